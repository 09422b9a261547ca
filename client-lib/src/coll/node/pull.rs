//! Long blocks: every member publishes the address of its own, and each reads what it needs from the others' memory, in
//! one copy. In a reduction, each (in a reduce, the root) combines what it reads, in pieces that stay in its cache.
//!
//! This takes two operations. At the first, each member leaves its pid and an address. At the second, after it has read, each
//! says whether its reads succeeded; after that no member reads. If one member failed, all discard their results: this call
//! and all later ones use messages. Each member's pid is verified once with a word of that member's own, because in another
//! pid namespace the number may belong to a different process.

use super::Node;
use super::combine::part_of;
use super::mailboxes::Awaited;
use super::way::class;
use super::work::{agreed, differ, stamp};
use crate::coll::choice::Call;
use crate::coll::operands::Operands;
use crate::copy::copy;
use crate::error::MpiResult;
use crate::memory::Buffer;
use crate::op::Reduction;
use crate::shared_memory::cma;

/// A call in progress. [`Pull::poll`] continues it.
#[derive(Debug)]
pub struct Pull<'a> {
    call: Call,
    operands: &'a Operands,
    reduction: Option<&'a Reduction>,
    /// As those of [`super::Work`].
    parts: Option<&'a [(u64, u64)]>,
    /// A copy of this member's data, if they are not contiguous or will be overwritten; in a reduction, the result, if it will overwrite what others
    /// read.
    kept: Vec<u8>,
    /// Whether all reads succeeded; `None` before they are done.
    went_well: Option<bool>,
    /// The operation that it waits for.
    waits: Option<u64>,
}

/// The word that a member leaves at the second operation if its reads succeeded.
const WELL: u64 = 15 << 56;

/// Bytes of another member's memory that are read before they are combined: so many that the kernel's preparations do not count, and so few
/// that they stay in the core's own caches.
const PIECE: usize = 256 << 10;

/// The number of words by which a member says whose memory is to be read: its pid, the verification word's address, and that word.
pub(super) const IDENTITY: usize = 3;

/// The number of words that a member leaves: these, and the address of its blocks.
const TOLD: usize = IDENTITY + 1;

impl<'a> Pull<'a> {
    /// For a call for which [`super::way()`] returned [`super::Way::Pull`].
    pub fn new(
        call: Call,
        operands: &'a Operands,
        reduction: Option<&'a Reduction>,
        parts: Option<&'a [(u64, u64)]>,
    ) -> Self {
        Self { call, operands, reduction, parts, kept: Vec::new(), went_well: None, waits: None }
    }

    /// Continues the call; once it is over, returns whether the result is valid.
    #[inline]
    pub fn poll(&mut self, node: &mut Node) -> Option<MpiResult<bool>> {
        loop {
            let mut waits = self.waits;
            let met = node.meet(&mut waits, Awaited::All, true, |node| self.arrive(node));
            self.waits = waits;
            let number = match met? {
                Ok(number) => number,
                Err(error) => return Some(Err(error)),
            };
            match self.went_well {
                None => {
                    if let Err(error) = agreed(node, number, stamp(self.call)) {
                        return Some(Err(error));
                    }
                    if let Some(class) = class(self.call, node.size()) {
                        node.adopt(number, self.call, class);
                    }
                    self.went_well = Some(self.read(node, number));
                }
                // A member that has seen a death has returned, and may have changed what others were still reading.
                Some(_) if let Some(died) = node.died_meanwhile() => return Some(Err(died)),
                Some(_) => return Some(Ok(self.counts(node, number))),
            }
        }
    }

    fn arrive(&mut self, node: &mut Node) -> u64 {
        if let Some(well) = self.went_well {
            return node.report_reads(well);
        }
        let (identity, address) = (node.identity(), self.address(node.rank));
        let stamp = stamp(self.call);
        let announcing = node.announcing(stamp, self.call, class(self.call, node.size()));
        let (number, arrival) = node.arrive(announcing, 8 * TOLD, false, |place| {
            for (index, word) in identity.into_iter().chain([address]).enumerate() {
                place.put(8 * index, word.to_ne_bytes());
            }
        });
        node.finish_checked(number, arrival, |other| differ(other, stamp), |_| ());
        number
    }

    /// The address at which the others find this member's data; 0 if none of it is read, or if there is not enough memory for a copy.
    fn address(&mut self, me: u32) -> u64 {
        let Operands { send, recv, .. } = self.operands;
        let (buffer, may_lend) = match self.call {
            Call::Allgather { block, in_place: true } => {
                let (buffer, at, len) = self.operands.place_of(me, block as usize);
                (buffer.part(at, len), true)
            }
            // This member overwrites what the others read, so it keeps a copy.
            Call::Alltoall { in_place: true, .. } => (recv.buffer.clone(), false),
            Call::Gather { root, .. } | Call::Reduce { root, .. } if root == me => return 0,
            Call::Bcast { root, .. } if root != me => return 0,
            Call::Bcast { .. } => (recv.buffer.clone(), true),
            call if is_combined_in_place(call) => (recv.buffer.clone(), true),
            _ => (send.buffer.clone(), true),
        };
        if may_lend && let Some(address) = buffer.as_contiguous() {
            return address as u64;
        }
        if self.kept.try_reserve_exact(buffer.len()).is_err() {
            return 0;
        }
        self.kept.resize(buffer.len(), 0);
        buffer.read(0, &mut self.kept);
        self.kept.as_ptr() as u64
    }

    /// Reads the data of every other member; returns whether all reads succeeded.
    fn read(&mut self, node: &mut Node, number: u64) -> bool {
        let (me, size) = (node.rank, node.size());
        let Operands { send, recv, .. } = self.operands;
        let (block, is_alltoall, in_place) = match self.call {
            Call::Alltoall { block, in_place } => (block as usize, true, in_place),
            Call::Allgather { block, in_place } => (block as usize, false, in_place),
            Call::Gather { root, .. } | Call::Reduce { root, .. } if root != me => return true,
            Call::Gather { block, in_place, .. } => (block as usize, false, in_place),
            Call::Bcast { root, .. } if root == me => return true,
            Call::Bcast { root, len } => return read_from(node, number, root, 0, (&recv.buffer, 0, len as usize)),
            _reduction => return self.combine(node, number).is_some(),
        };
        let place_of = |member: u32| match self.call {
            Call::Allgather { .. } => self.operands.place_of(member, block),
            _alltoall_or_gather => (&recv.buffer, member as usize * block, block),
        };
        // Where this member's block lies in what another one has.
        let from = if is_alltoall { me as usize * block } else { 0 };
        if !in_place {
            let (buffer, at, len) = place_of(me);
            send.buffer.part(from, len).copy_over(buffer, at);
        }
        // Each member starts with a different one.
        (1..size).map(|distance| (me + distance) % size).all(|member| {
            let (buffer, at, len) = place_of(member);
            len == 0 || read_from(node, number, member, from as u64, (buffer, at, len))
        })
    }

    /// The part of each vector that this member combines (first byte, length), and the bytes of an element; `None` if nothing is combined.
    fn combined(&self, me: u32) -> Option<(usize, usize, usize)> {
        match self.call {
            Call::ReduceScatterBlock { block, .. } => {
                let (first, len) = part_of(self.parts, block.len() as usize, me);
                Some((first, len, block.unit as usize))
            }
            Call::Allreduce { vector, .. } | Call::Reduce { vector, .. } => {
                Some((0, vector.len() as usize, vector.unit as usize))
            }
            _moved => None,
        }
    }

    /// Combines vectors into this member's result, in rank order as over slots; `None` if some memory cannot be read.
    #[expect(unsafe_code, reason = "an operation works on elements at addresses")]
    fn combine(&mut self, node: &mut Node, number: u64) -> Option<()> {
        let (me, reduction, in_place) = (node.rank, self.reduction?, is_combined_in_place(self.call));
        let (first, len, unit) = self.combined(me)?;
        if len == 0 {
            return Some(());
        }
        let Operands { send, recv, .. } = self.operands;
        let own = if in_place { &recv.buffer } else { &send.buffer };
        let own = own.as_contiguous().filter(|_| own.len() >= first + len)?;
        let result = if in_place {
            self.kept.try_reserve_exact(len).ok()?;
            self.kept.as_mut_ptr()
        } else {
            recv.buffer.as_contiguous().filter(|_| recv.buffer.len() >= len)?
        };
        let most = PIECE / unit * unit;
        let mut piece = Vec::<u8>::new();
        piece.try_reserve_exact(most.min(len)).ok()?;
        for done in (0..len).step_by(most) {
            let (at, len) = (first + done, most.min(len - done));
            let result = result.wrapping_add(done);
            for member in 0..node.size() {
                // The first member's elements go where the others' are added to them.
                let into = if member == 0 { result } else { piece.as_mut_ptr() };
                let from = if member == me { own.wrapping_add(at) } else { into };
                if member != me {
                    let (pid, address) = node.whereabouts(number, member)?;
                    // SAFETY: the result has room for this member's part, and `piece` for `len` bytes.
                    let into = unsafe { Buffer::contiguous(into, len) };
                    cma::read(pid, address.checked_add(at as u64)?, &into, 0, len).ok()?;
                }
                // SAFETY: `from` and `result` have `len` bytes, which are whole elements.
                unsafe {
                    if member > 0 {
                        reduction.apply(from, result, len / unit);
                    } else if member == me {
                        copy(from, result, len);
                    }
                }
            }
        }
        if in_place {
            // SAFETY: all of these bytes have been reserved and written.
            unsafe { self.kept.set_len(len) };
        }
        Some(())
    }

    /// Whether the reads of all members succeeded; otherwise what the call needs is unchanged.
    fn counts(&self, node: &Node, number: u64) -> bool {
        let well = node.all_read(number);
        match self.call {
            Call::Alltoall { in_place: true, .. } if !well => restore(&self.operands.recv.buffer, &self.kept),
            call if well && is_combined_in_place(call) => self.operands.recv.buffer.write(0, &self.kept),
            _ => {}
        }
        well
    }
}

/// Reads bytes of a member's data, from this one of them on, into a place (packed byte, length) in a buffer; returns whether that succeeded.
fn read_from(node: &mut Node, number: u64, member: u32, from: u64, (into, at, len): (&Buffer, usize, usize)) -> bool {
    let Some((pid, address)) = node.whereabouts(number, member) else { return false };
    let Some(address) = address.checked_add(from) else { return false };
    read(pid, address, (into, at), len).is_some()
}

/// Reads bytes of a process into a buffer, from a packed byte on; `None` if they cannot be read.
#[expect(unsafe_code, reason = "a slice by its address")]
fn read(pid: i32, address: u64, (into, at): (&Buffer, usize), len: usize) -> Option<()> {
    if into.as_contiguous().is_some() || into.device().is_some() {
        return cma::read(pid, address, into, at, len).ok();
    }
    // The kernel would be called again for every thousand places.
    let mut piece = vec![0; PIECE.min(len)];
    for done in (0..len).step_by(PIECE) {
        let piece = &mut piece[..PIECE.min(len - done)];
        // SAFETY: the slice has so many bytes.
        let buffer = unsafe { Buffer::contiguous(piece.as_mut_ptr(), piece.len()) };
        cma::read(pid, address.checked_add(done as u64)?, &buffer, 0, piece.len()).ok()?;
        into.write(at + done, piece);
    }
    Some(())
}

/// Whether the result of a reduction will overwrite what others read.
fn is_combined_in_place(call: Call) -> bool {
    match call {
        Call::ReduceScatterBlock { in_place, .. } | Call::Allreduce { in_place, .. } => in_place,
        // Only the root may be in place.
        Call::Reduce { in_place, .. } => in_place,
        _moved => false,
    }
}

fn restore(buffer: &Buffer, kept: &[u8]) {
    if buffer.len() == kept.len() {
        buffer.write(0, kept);
    }
}

impl Node {
    /// The words that say whose memory is to be read: this process's.
    pub(super) fn identity(&self) -> [u64; IDENTITY] {
        [u64::from(self.pid), &raw const *self.word as u64, *self.word]
    }

    /// The pid of a member that has left these words; `None` if its memory cannot be read.
    pub(super) fn process(&mut self, [pid, word_at, word]: [u64; IDENTITY], member: u32) -> Option<i32> {
        let pid = i32::try_from(pid).ok()?;
        let checked = self.checked.get_mut(member as usize)?;
        if *checked != pid {
            let cma::Verdict::Yes(_) = cma::probe(pid, word_at, word, [[0; 2]; 2]) else { return None };
            *checked = pid;
        }
        Some(pid)
    }

    /// The pid and address that a member has left; `None` if its memory cannot be read.
    fn whereabouts(&mut self, number: u64, member: u32) -> Option<(i32, u64)> {
        let mut words = [0; TOLD];
        self.with_data(number, member, 8 * TOLD, |data| {
            for (index, word) in words.iter_mut().enumerate() {
                // SAFETY: a member that has arrived has left this many bytes; their alignment is unknown.
                *word = unsafe { data.cast::<u64>().add(index).read_unaligned() };
            }
        });
        let [identity @ .., address] = words;
        let pid = self.process(identity, member)?;
        (address != 0).then_some((pid, address))
    }

    /// Arrives at the operation after the reads, and says whether those of this member succeeded.
    pub(super) fn report_reads(&mut self, well: bool) -> u64 {
        let (number, arrival) = self.arrive(if well { WELL } else { WELL | 1 }, 0, false, |_| ());
        self.finish_checked(number, arrival, |other| differ(other, WELL), |_| ());
        number
    }

    /// Whether the reads of all members succeeded.
    pub(super) fn all_read(&self, number: u64) -> bool {
        agreed(self, number, WELL).is_ok()
    }
}
