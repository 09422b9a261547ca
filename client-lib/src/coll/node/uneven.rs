//! Gather, scatter and alltoall of blocks whose lengths only some members know: the v and w forms.
//!
//! Each member says with its stamp how long its longest block is, and leaves each block behind a word with its length:
//!
//! ```text
//!  slot of a member:   | length: u64 | block, padded | length | block, padded | …      one for each other member, equally far apart
//! ```
//!
//! So a receiver finds its block, and notices a wrong length. In an alltoall, all members see the longest block of all. If it is too long for
//! one operation, they read each other's memory ([`super::offers`]), or if they cannot, go on in as many operations as it takes. In a
//! gather or scatter, such blocks travel as messages ([`Rest`]): so no member waits for one on which it does not depend.

use super::mailboxes::{Awaited, Mailboxes};
use super::offers::Offers;
use super::way::{PAIRED, PIECED_FOR_EACH, share, uneven};
use super::work::{disagrees, take};
use super::{NOTE, Node, offers};
use crate::coll::operands::Operands;
use crate::error::{MpiError, MpiResult};
use crate::memory::Buffer;

/// A function. The blocks are those of [`Operands::send_to`] and [`Operands::recv_from`]; a member that sends or receives only one
/// block has it in [`Operands::send`] or [`Operands::recv`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Uneven {
    /// `MPI_Gatherv`.
    Gather {
        /// The rank that receives all blocks.
        root: u32,
        /// The root's own block is already in its place.
        in_place: bool,
    },
    /// `MPI_Scatterv`.
    Scatter {
        /// The rank that has all blocks.
        root: u32,
        /// The root's own block stays in its place.
        in_place: bool,
    },
    /// `MPI_Alltoallv`, `MPI_Alltoallw`.
    Alltoall {
        /// Each block to send lies where the block from the same rank will be received.
        in_place: bool,
    },
}

/// What is left to be done by messages.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Rest {
    /// Nothing.
    Nothing,
    /// Everything: no block has been moved.
    All,
    /// Of a gather or scatter, the blocks of these members.
    Of(Vec<u32>),
}

/// A call in progress. [`UnevenWork::poll`] continues it.
#[derive(Debug)]
pub struct UnevenWork<'a> {
    call: Uneven,
    operands: &'a Operands,
    /// The longest block that this member leaves for another one; [`offers::NONE`] if it should offer it and cannot.
    longest: u64,
    /// This member's blocks, if one of them is too long for one operation.
    offers: Option<Offers>,
    /// Whether all blocks that others offer were read; `None` before that, and if none are offered.
    went_well: Option<bool>,
    /// How many operations are over.
    index: usize,
    /// The operation that it waits for.
    waits: Option<u64>,
    /// What was wrong with a block: this member takes part to the end all the same.
    fault: Option<MpiError>,
    rest: Vec<u32>,
}

/// The length in front of each block.
pub(super) const WORD: usize = 8;

impl<'a> UnevenWork<'a> {
    /// For a communicator whose members share memory in which blocks fit ([`UnevenWork::fits`]).
    pub fn new(call: Uneven, operands: &'a Operands, node: &mut Node) -> Self {
        let waits = node.resumed.take();
        let (offers, fault) = (None, None);
        let mut work =
            Self { call, operands, longest: 0, offers, went_well: None, index: 0, waits, fault, rest: Vec::new() };
        let mut others = (0..node.size()).filter(|member| *member != node.rank);
        work.longest = match call {
            Uneven::Gather { root, .. } if root == node.rank => 0,
            Uneven::Gather { .. } => operands.send.len(),
            Uneven::Scatter { root, .. } if root != node.rank => 0,
            Uneven::Scatter { .. } | Uneven::Alltoall { .. } => {
                others.by_ref().map(|member| work.block_to(member).len() as u64).max().unwrap_or(0)
            }
        };
        if let Uneven::Alltoall { in_place } = call
            && offers::are_made(node)
            && work.longest > most(call, node) as u64
        {
            let offers = Offers::new(work.blocks_to_others(node), !in_place);
            work.longest = if offers.is_some() { work.longest } else { offers::NONE };
            work.offers = Some(offers.unwrap_or_default());
        }
        work
    }

    /// The blocks that this member gives to the others, in their order.
    fn blocks_to_others(&self, node: &Node) -> impl Iterator<Item = &'a Buffer> + Clone {
        let (blocks, me) = (self.blocks(), node.rank);
        (0..node.size()).filter(move |member| *member != me).map(move |member| &blocks[member as usize])
    }

    /// The blocks that this member gives, its own among them.
    fn blocks(&self) -> &'a [Buffer] {
        match self.call {
            Uneven::Alltoall { in_place: true } => &self.operands.recv_from,
            Uneven::Gather { .. } | Uneven::Scatter { .. } | Uneven::Alltoall { .. } => &self.operands.send_to,
        }
    }

    fn block_to(&self, member: u32) -> &'a Buffer {
        &self.blocks()[member as usize]
    }

    /// Continues the call; once it is over, returns what is left.
    pub fn poll(&mut self, node: &mut Node) -> Option<MpiResult<Rest>> {
        loop {
            if let Some(well) = self.went_well {
                return self.end_reads(well, node);
            }
            let (mut waits, awaited) = (self.waits, self.awaited(node));
            let met = node.meet(&mut waits, awaited, self.leaves(node) <= NOTE, |node| self.arrive(node));
            self.waits = waits;
            let number = match met? {
                Ok(number) => number,
                Err(error) => return Some(Err(error)),
            };
            if let Err(error) = self.agreed(node, number) {
                return Some(Err(error));
            }
            if let Uneven::Alltoall { .. } = self.call
                && self.index == 0
            {
                let (longest, most) = (self.longest_of_all(node, number), most(self.call, node) as u64);
                let are_offered = offers::are_made(node);
                // `UnevenBrief` ends a call of up to `most` bytes in one operation, so such a call must not go by messages.
                let in_pieces = (16 * most).min(PIECED_FOR_EACH / 2).max(most);
                if longest > if are_offered { offers::NONE - 1 } else { in_pieces } {
                    return Some(Ok(Rest::All));
                }
                if are_offered && longest > most {
                    self.went_well = Some(self.read_offers(node, number).is_some());
                    continue;
                }
                self.longest = self.longest.max(longest);
            }
            self.read(node, number);
            self.index += 1;
            if self.index >= self.operations(node) {
                let rest = std::mem::take(&mut self.rest);
                return Some(Ok(if rest.is_empty() { Rest::Nothing } else { Rest::Of(rest) }));
            }
        }
    }

    /// Waits until all have read. If one member could not, everything goes by messages, and in later calls, too.
    fn end_reads(&mut self, well: bool, node: &mut Node) -> Option<MpiResult<Rest>> {
        let mut waits = self.waits;
        let met = node.meet(&mut waits, Awaited::All, true, |node| node.report_reads(well));
        self.waits = waits;
        let met = met?.and_then(|number| node.died_meanwhile().map_or(Ok(number), Err));
        Some(met.map(|number| {
            if node.all_read(number) {
                return Rest::Nothing;
            }
            node.pull(false);
            self.fault = None;
            if let (Some(offers), Uneven::Alltoall { in_place: true }) = (&self.offers, self.call) {
                offers.restore(self.blocks_to_others(node));
            }
            Rest::All
        }))
    }

    /// What was wrong with a block. The others depend on the rest all the same.
    pub fn into_fault(self) -> Option<MpiError> {
        self.fault
    }

    /// Whether slots of `room` bytes are large enough for so many members.
    pub fn fits(members: u32, room: usize) -> bool {
        members > 1 && share(room, members) >= 2 * WORD
    }

    fn operations(&self, node: &Node) -> usize {
        match self.call {
            Uneven::Gather { .. } | Uneven::Scatter { .. } => 1,
            Uneven::Alltoall { .. } => (self.longest as usize).div_ceil(most(self.call, node)).max(1),
        }
    }

    /// How many bytes this member leaves at an operation, at most.
    fn leaves(&self, node: &Node) -> usize {
        let others = node.size() as usize - 1;
        match self.call {
            Uneven::Gather { .. } => self.longest as usize,
            Uneven::Scatter { root, .. } if root != node.rank => 0,
            Uneven::Alltoall { .. } if self.offers.is_some() => offers::len(others),
            Uneven::Scatter { .. } | Uneven::Alltoall { .. } => others * stride(self.call, node, self.stamp()),
        }
    }

    fn awaited(&self, node: &Node) -> Awaited {
        let (me, room) = (node.rank, most_for_root(node) as u64);
        match self.call {
            Uneven::Alltoall { .. } => Awaited::All,
            Uneven::Gather { root, .. } if root == me => Awaited::All,
            // Before it sends a message, it must know that the root receives it.
            Uneven::Gather { root, .. } if self.longest > room => Awaited::One(root),
            Uneven::Scatter { root, .. } if root != me => Awaited::One(root),
            Uneven::Scatter { .. } if self.longest > most(self.call, node) as u64 => Awaited::All,
            Uneven::Gather { .. } | Uneven::Scatter { .. } => Awaited::None,
        }
    }

    fn stamp(&self) -> u64 {
        stamp(self.call, self.longest)
    }

    /// Leaves this member's blocks, or a piece of each.
    fn arrive(&self, node: &mut Node) -> u64 {
        let (stamp, me, others) = (self.stamp(), node.rank, node.size() as usize - 1);
        let (room, most) = (most_for_root(node), most(self.call, node));
        let (number, arrival) = match self.call {
            Uneven::Gather { root, .. } if root != me && self.longest <= room as u64 => {
                let send = &self.operands.send.buffer;
                node.arrive(stamp, send.len(), false, |slot| slot.fill(send, 0))
            }
            Uneven::Scatter { root, .. } if root != me => node.arrive(stamp, 0, false, |_| ()),
            Uneven::Gather { root, .. } => node.arrive(stamp, 0, root == me, |_| ()),
            Uneven::Alltoall { .. } if let Some(offers) = &self.offers => {
                let identity = node.identity();
                node.arrive(stamp, offers::len(others), false, |slot| offers.leave(identity, &slot))
            }
            Uneven::Scatter { .. } | Uneven::Alltoall { .. } => {
                let is_rooted = matches!(self.call, Uneven::Scatter { .. });
                let stride = stride(self.call, node, stamp);
                node.arrive(stamp, others * stride, is_rooted, |slot| {
                    for index in 0..others {
                        let block = self.block_to((index + usize::from(index >= me as usize)) as u32);
                        slot.put(index * stride, (block.len() as u64).to_ne_bytes());
                        // A block that goes as a message leaves nothing but its length.
                        if !is_rooted || block.len() <= most {
                            let (at, len) = piece(block.len(), most, self.index);
                            slot.part(index * stride + WORD, len).fill(block, at);
                        }
                    }
                })
            }
        };
        node.finish_checked(number, arrival, |other| other >> 32 != stamp >> 32, |_| ());
        number
    }

    /// Whether a member that has left this stamp has refused the call, or called another function.
    fn differs(&self, stamp: u64) -> bool {
        stamp >> 32 != self.stamp() >> 32
    }

    /// Whether the members that this one depends on have called the same function.
    fn agreed(&self, node: &Node, number: u64) -> MpiResult {
        let differing = match (self.call, self.awaited(node)) {
            // One that has not must not keep the others from their blocks: see `read`.
            (Uneven::Gather { .. } | Uneven::Scatter { .. }, Awaited::All) => None,
            (_, awaited) => node.differing(number, awaited, |stamp| self.differs(stamp)),
        };
        differing.map_or(Ok(()), |member| Err(disagrees(node, number, member)))
    }

    fn longest_of_all(&self, node: &Node, number: u64) -> u64 {
        (0..node.size()).map(|member| u64::from(node.stamp(number, member) as u32)).max().unwrap_or(0)
    }

    /// Reads the blocks that it waited for.
    fn read(&mut self, node: &Node, number: u64) {
        let (me, others) = (node.rank, (0..node.size()).filter(|member| *member != node.rank));
        let Operands { send, recv, send_to, recv_from, .. } = self.operands;
        match self.call {
            Uneven::Gather { root, .. } if root != me => {
                if self.longest > most_for_root(node) as u64 {
                    self.rest.push(me);
                }
            }
            Uneven::Gather { in_place, .. } => {
                for member in others {
                    let stamp = node.stamp(number, member);
                    let (len, into) = (stamp as u32 as usize, &recv_from[member as usize]);
                    if self.differs(stamp) {
                        self.fault = Some(disagrees(node, number, member));
                    } else if len > most_for_root(node) {
                        self.rest.push(member);
                    } else if self.check(len, into.len(), member) {
                        take(node, number, member, len, (0, len), into, 0);
                    }
                }
                if !in_place {
                    send.buffer.copy_over(&recv_from[me as usize], 0);
                }
            }
            Uneven::Scatter { root, .. } if root != me => self.read_block(node, number, root, &recv.buffer),
            Uneven::Scatter { in_place, .. } => {
                let (most, has_waited) = (most(self.call, node), self.awaited(node) == Awaited::All);
                for member in others.filter(|_| has_waited) {
                    if self.differs(node.stamp(number, member)) {
                        self.fault = Some(disagrees(node, number, member));
                    } else if send_to[member as usize].len() > most {
                        self.rest.push(member);
                    }
                }
                if !in_place {
                    let own = &send_to[me as usize];
                    own.copy_over(&recv.buffer, 0);
                }
            }
            Uneven::Alltoall { in_place } => {
                for member in others {
                    self.read_block(node, number, member, &recv_from[member as usize]);
                }
                if !in_place && self.index == 0 {
                    let own = &send_to[me as usize];
                    own.copy_over(&recv_from[me as usize], 0);
                }
            }
        }
    }

    /// Reads the blocks that others offer or, if theirs are short, have left; `None` if a member's memory cannot be read.
    fn read_offers(&mut self, node: &mut Node, number: u64) -> Option<()> {
        let (me, size, operands) = (node.rank, node.size(), self.operands);
        match self.call {
            Uneven::Alltoall { in_place: true } if self.offers.is_none() => {
                // Should another member fail to read, this one needs its blocks once more.
                self.offers = Some(Offers::new(self.blocks_to_others(node), false)?);
            }
            Uneven::Alltoall { in_place: true } => {}
            Uneven::Alltoall { in_place: false } | Uneven::Gather { .. } | Uneven::Scatter { .. } => {
                operands.send_to[me as usize].copy_over(&operands.recv_from[me as usize], 0);
            }
        }
        // Each member starts with a different one.
        for member in (1..size).map(|distance| (me + distance) % size) {
            let into = &operands.recv_from[member as usize];
            if node.stamp(number, member) as u32 as usize <= most(self.call, node) {
                self.read_block(node, number, member, into);
                continue;
            }
            let (len, address) = offers::of(node, number, member)?;
            if self.check(len, into.len(), member) && len > 0 {
                address.read_into(into)?;
            }
        }
        Some(())
    }

    /// Reads the block that a member has left for this one, or a piece of it.
    #[expect(unsafe_code, reason = "a member's data are read through a pointer")]
    fn read_block(&mut self, node: &Node, number: u64, member: u32, into: &Buffer) {
        let (stride, most) = (stride(self.call, node, node.stamp(number, member)), most(self.call, node));
        let whole = (node.size() as usize - 1) * stride;
        let index = node.index_at(member);
        let mut word = [0; WORD];
        node.with_data(number, member, whole, |data| {
            // SAFETY: the word lies within the slot; the member has left it before it arrived.
            unsafe { word.as_mut_ptr().copy_from(data.cast::<u8>().add(index * stride), WORD) };
        });
        let len = usize::try_from(u64::from_ne_bytes(word)).unwrap_or(usize::MAX);
        if len > most && matches!(self.call, Uneven::Scatter { .. }) {
            self.rest.push(node.rank);
        } else if self.check(len, into.len(), member) {
            let (at, len) = piece(len, most.min(stride - WORD).max(1), self.index);
            take(node, number, member, whole, (index * stride + WORD, len), into, at);
        }
    }

    /// Whether a block has the expected length; if not, notes that it has not.
    fn check(&mut self, len: usize, expected: usize, member: u32) -> bool {
        if len != expected && self.fault.is_none() {
            let text = format!("the block from rank {member} has {len} bytes; {expected} were expected");
            self.fault = Some(MpiError::truncate(text));
        }
        len == expected
    }
}

/// The bytes of the longest block for one of the others that goes through a slot.
#[inline]
pub(super) fn most(call: Uneven, node: &Node) -> usize {
    let share = (node.share & !(WORD - 1)) - WORD;
    match call {
        Uneven::Alltoall { .. } if node.size() == 2 && offers::are_made(node) => share.min(PAIRED as usize),
        Uneven::Alltoall { .. } | Uneven::Gather { .. } | Uneven::Scatter { .. } => {
            uneven(node.size(), node.pulls(), share)
        }
    }
}

/// The bytes of the longest block for the root that goes through a slot.
#[inline]
pub(super) fn most_for_root(node: &Node) -> usize {
    uneven(node.size(), node.pulls(), node.room())
}

/// Identifies a call, and says how long this member's longest block is.
#[inline]
pub(super) fn stamp(call: Uneven, longest: u64) -> u64 {
    let (kind, root) = match call {
        Uneven::Gather { root, .. } => (16, root),
        Uneven::Scatter { root, .. } => (17, root),
        Uneven::Alltoall { .. } => (18, 0),
    };
    kind << 56 | u64::from(root) << 32 | longest.min(u64::from(u32::MAX))
}

/// The distance of two blocks in the slot of a member that has left this stamp.
#[inline]
pub(super) fn stride(call: Uneven, node: &Node, stamp: u64) -> usize {
    let longest = (stamp as u32 as usize).min(most(call, node));
    (WORD + longest).next_multiple_of(WORD)
}

/// The bytes (offset, length) of a block that an operation brings.
fn piece(len: usize, most: usize, operation: usize) -> (usize, usize) {
    let at = operation.saturating_mul(most).min(len);
    (at, most.min(len - at))
}
