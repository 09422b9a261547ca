//! Short calls of the v forms: what [`super::super::UnevenWork`] does for every call. Where a call turns out to be unusual at the meeting
//! (another function, a long block, a block of a wrong length), that goes on from there ([`Node::resume`]).

use super::super::mailboxes::Mailboxes;
use super::{MOST, Met, block, fits};
use crate::coll::choice::Call;
use crate::coll::halving::Vector;
use crate::coll::node::combine::{Left, combine};
use crate::coll::node::mailboxes::Awaited;
use crate::coll::node::uneven::{Uneven, WORD, most, most_for_root, stamp, stride};
use crate::coll::node::work::{self, agreed_among, blocks, differ};
use crate::coll::node::{NOTE, Node};
use crate::copy::copy;
use crate::error::MpiResult;
use crate::op::Kernel;

/// The address of a block, and its length in bytes.
pub type Block = (*mut u8, usize);

/// A call: `to` returns the block that this member gives to a member, `from` the one that it gets. Its own block is in its place if both are
/// the same.
#[derive(Debug, Clone, Copy)]
pub struct UnevenBrief<To, From> {
    call: Uneven,
    to: To,
    from: From,
    /// The bytes of the longest block that this member leaves for another one.
    longest: usize,
}

impl<To, From> UnevenBrief<To, From>
where
    To: Fn(u32) -> Block + Copy,
    From: Fn(u32) -> Block + Copy,
{
    /// `None` if a block is too long.
    ///
    /// # Safety
    ///
    /// Until the call is over, the blocks of `to` must be readable, and those of `from` writable.
    #[inline(always)]
    pub unsafe fn new(call: Uneven, to: To, from: From, node: &Node) -> Option<Self> {
        let (me, size) = (node.rank, node.size());
        let others = || (0..size).filter(|member| *member != me);
        let longest = match call {
            Uneven::Gather { root, .. } if root == me => 0,
            Uneven::Gather { root, .. } => to(root).1,
            Uneven::Scatter { root, .. } if root != me => 0,
            Uneven::Scatter { .. } | Uneven::Alltoall { .. } => others().map(|member| to(member).1).max().unwrap_or(0),
        };
        let room = match call {
            Uneven::Gather { .. } => most_for_root(node),
            Uneven::Scatter { .. } | Uneven::Alltoall { .. } if node.share >= 2 * WORD => most(call, node),
            Uneven::Scatter { .. } | Uneven::Alltoall { .. } => 0,
        };
        (longest <= room.min(MOST)).then_some(Self { call, to, from, longest })
    }

    /// Continues the call; returns whether it is over. If not, it is unusual, and [`super::super::UnevenWork`] goes on.
    #[inline(always)]
    pub fn poll(self, node: &mut Node, met: &mut Met) -> Option<MpiResult<bool>> {
        let (awaited, own) = (self.awaited(node.rank), stamp(self.call, self.longest as u64));
        let number =
            match node.meet(&mut met.0, awaited, self.leaves(node, own) <= NOTE, |node| self.arrive(node, own))? {
                Ok(number) => number,
                Err(error) => return Some(Err(error)),
            };
        let is_usual = self.is_usual(node, number, awaited, own);
        if is_usual {
            self.read(node, number);
        } else {
            node.resume(number);
        }
        Some(Ok(is_usual))
    }

    #[inline(always)]
    fn awaited(self, me: u32) -> Awaited {
        match self.call {
            Uneven::Alltoall { .. } => Awaited::All,
            Uneven::Gather { root, .. } if root == me => Awaited::All,
            Uneven::Scatter { root, .. } if root != me => Awaited::One(root),
            Uneven::Gather { .. } | Uneven::Scatter { .. } => Awaited::None,
        }
    }

    /// How many bytes this member leaves.
    #[inline(always)]
    fn leaves(self, node: &Node, own: u64) -> usize {
        match self.call {
            Uneven::Gather { .. } => self.longest,
            Uneven::Scatter { root, .. } if root != node.rank => 0,
            Uneven::Scatter { .. } | Uneven::Alltoall { .. } => {
                (node.size() as usize - 1) * stride(self.call, node, own)
            }
        }
    }

    /// Leaves this member's blocks.
    #[inline(always)]
    fn arrive(self, node: &mut Node, own: u64) -> u64 {
        let (me, others, len) = (node.rank, node.size() as usize - 1, self.leaves(node, own));
        let (number, arrival) = match self.call {
            Uneven::Gather { root, .. } if root != me => {
                // SAFETY: the slot has room for `len` bytes, which this member gives.
                node.arrive(own, len, false, |slot| unsafe { copy((self.to)(root).0, slot.start(), len) })
            }
            Uneven::Gather { .. } => node.arrive(own, 0, true, |_| ()),
            Uneven::Scatter { root, .. } if root != me => node.arrive(own, 0, false, |_| ()),
            Uneven::Scatter { .. } | Uneven::Alltoall { .. } => {
                let (stride, is_rooted) = (stride(self.call, node, own), matches!(self.call, Uneven::Scatter { .. }));
                node.arrive(own, len, is_rooted, |slot| {
                    for index in 0..others {
                        let (block, len) = (self.to)((index + usize::from(index >= me as usize)) as u32);
                        slot.put(index * stride, (len as u64).to_ne_bytes());
                        // SAFETY: the slot has room for a block in each stride, behind the word.
                        unsafe { copy(block, slot.start().add(index * stride + WORD), len) };
                    }
                })
            }
        };
        node.finish_checked(number, arrival, |other| other >> 32 != own >> 32, |_| ());
        number
    }

    /// Whether all that this member waited for called the same function, and left blocks of the lengths that it expects.
    #[inline(always)]
    fn is_usual(self, node: &Node, number: u64, awaited: Awaited, own: u64) -> bool {
        let is_sound = |member: u32| {
            let (stamp, expected) = (node.stamp(number, member), (self.from)(member).1);
            let longest = stamp as u32 as usize;
            let is_short = match self.call {
                Uneven::Gather { .. } => longest == expected && longest <= most_for_root(node),
                Uneven::Scatter { .. } | Uneven::Alltoall { .. } => {
                    longest <= most(self.call, node)
                        && expected <= longest
                        && self.len_of(node, number, member) == expected
                }
            };
            stamp >> 32 == own >> 32 && is_short
        };
        match awaited {
            Awaited::All => (0..node.size()).filter(|member| *member != node.rank).all(is_sound),
            Awaited::One(member) => is_sound(member),
            Awaited::None | Awaited::Before(_) => true,
        }
    }

    /// What a member has left for this one among its blocks for all others: the bytes of all, and where in them the word of this block lies.
    #[inline(always)]
    fn left(self, node: &Node, number: u64, member: u32) -> (usize, usize) {
        let stride = stride(self.call, node, node.stamp(number, member));
        ((node.size() as usize - 1) * stride, node.index_at(member) * stride)
    }

    /// The bytes of the block that a member has left for this one, as it says.
    #[inline(always)]
    fn len_of(self, node: &Node, number: u64, member: u32) -> usize {
        let ((whole, at), mut word) = (self.left(node, number, member), [0; WORD]);
        node.with_data(number, member, whole, |data| {
            // SAFETY: the word lies within the slot; the member has left it before it arrived.
            unsafe { word.as_mut_ptr().copy_from(data.cast::<u8>().add(at), WORD) };
        });
        usize::try_from(u64::from_ne_bytes(word)).unwrap_or(usize::MAX)
    }

    /// Takes the blocks that it waited for.
    #[inline(always)]
    fn read(self, node: &Node, number: u64) {
        let (me, others) = (node.rank, || (0..node.size()).filter(|member| *member != node.rank));
        match self.call {
            Uneven::Gather { root, .. } if root != me => return,
            Uneven::Scatter { root, .. } if root != me => return self.take(node, number, root),
            Uneven::Gather { .. } | Uneven::Alltoall { .. } => others().for_each(|it| self.take(node, number, it)),
            Uneven::Scatter { .. } => {}
        }
        let ((own, len), (into, _)) = ((self.to)(me), (self.from)(me));
        if own != into && !into.is_null() {
            // SAFETY: the caller's promise; both blocks have the same length.
            unsafe { copy(own, into, len) };
        }
    }

    /// Takes the block that a member has left for this one.
    #[inline(always)]
    fn take(self, node: &Node, number: u64, member: u32) {
        let (into, len) = (self.from)(member);
        let (whole, at) = match self.call {
            Uneven::Gather { .. } => (len, 0),
            Uneven::Scatter { .. } | Uneven::Alltoall { .. } => {
                let (whole, at) = self.left(node, number, member);
                (whole, at + WORD)
            }
        };
        node.with_data(number, member, whole, |data| {
            // A process that changes its stamp meanwhile must not lead this one out of the slot.
            if at + len <= data.len() {
                // SAFETY: the block lies within the member's data; this member gets so many bytes.
                unsafe { copy(data.cast::<u8>().add(at), into, len) }
            }
        });
    }
}

/// A call of `MPI_Allgatherv`, as [`super::Brief`]: `from` returns the block of a member, whose length all know.
#[derive(Debug, Clone, Copy)]
pub struct VariedBrief<From> {
    call: Call,
    own: *const u8,
    from: From,
}

impl<From: Fn(u32) -> Block + Copy> VariedBrief<From> {
    /// `None` if a block is too long, or all are empty.
    ///
    /// # Safety
    ///
    /// Until the call is over, `own` must be readable for this member's block, and the blocks of `from` writable.
    #[inline(always)]
    pub unsafe fn new(own: *const u8, from: From, node: &Node) -> Option<Self> {
        let longest = (0..node.size()).map(|member| from(member).1).max().unwrap_or(0);
        let call = Call::Allgather { block: longest as u64, in_place: false };
        fits(call, node.shape()).then_some(Self { call, own, from })
    }

    /// Continues the call; returns the result once it is over.
    #[inline(always)]
    pub fn poll(self, node: &mut Node, met: &mut Met) -> Option<MpiResult> {
        let (me, (into, len)) = (node.rank, (self.from)(node.rank));
        // SAFETY: this member gives `len` bytes.
        let number = match unsafe { meet_all(self.call, self.own, len, node, met)? } {
            Ok(number) => number,
            Err(error) => return Some(Err(error)),
        };
        let longest = block(self.call) as usize;
        let packed = node.packed(number, longest, Awaited::All);
        for member in (0..node.size()).filter(|member| *member != me) {
            let (into, len) = (self.from)(member);
            // SAFETY: the member has left so many bytes, and this one gets them.
            let take = |data: *const u8| unsafe { copy(data, into, len) };
            if member < packed.members() {
                take(packed.block(member, longest));
            } else {
                node.with_data(number, member, len, |data| take(data.cast()));
            }
        }
        if self.own != into.cast_const() {
            // SAFETY: the caller's promise.
            unsafe { copy(self.own, into, len) };
        }
        Some(Ok(()))
    }
}

/// A call of `MPI_Reduce_scatter`, as [`super::Brief`]: the parts of the result differ in length.
#[derive(Debug, Clone, Copy)]
pub struct PartsBrief {
    call: Call,
    send: *const u8,
    recv: *mut u8,
    kernel: Kernel,
    /// The bytes of all parts.
    whole: usize,
    /// The first byte and the bytes of this member's part.
    part: (usize, usize),
    /// Its elements.
    count: usize,
}

impl PartsBrief {
    /// `count` returns the number of elements of a member's part, each of `unit` bytes. `None` if a part is too long, or all are empty.
    ///
    /// # Safety
    ///
    /// Until the call is over, `send` must be readable for all parts, and `recv` writable for this member's part. `kernel` combines
    /// elements of `unit` bytes.
    #[inline(always)]
    pub unsafe fn new(
        send: *const u8,
        recv: *mut u8,
        kernel: Kernel,
        unit: usize,
        count: impl Fn(u32) -> usize,
        node: &Node,
    ) -> Option<Self> {
        let (mut longest, mut end, mut first) = (0, 0, 0);
        for member in 0..node.size() {
            first = if member == node.rank { end } else { first };
            longest = count(member).max(longest);
            end += count(member);
        }
        let block = Vector { count: longest as u64, unit: unit as u64 };
        let call = Call::ReduceScatterBlock { block, commutes: true, in_place: false };
        let (own, whole) = (count(node.rank), end * unit);
        let brief = Self { call, send, recv, kernel, whole, part: (first * unit, own * unit), count: own };
        fits(call, node.shape()).then_some(brief)
    }

    /// Continues the call; returns the result once it is over.
    #[inline(always)]
    pub fn poll(self, node: &mut Node, met: &mut Met) -> Option<MpiResult> {
        let Self { call, send, recv, kernel, whole, part, count } = self;
        // SAFETY: this member gives `whole` bytes.
        let number = match unsafe { meet_all(call, send, whole, node, met)? } {
            Ok(number) => number,
            Err(error) => return Some(Err(error)),
        };
        if count > 0 {
            // SAFETY: `combine` passes the addresses of the elements of a part.
            let apply = move |from: *const u8, into: *mut u8| unsafe { kernel.run(from, into, count) };
            combine(node, Left::unpacked(number, node.size(), whole), part, recv, apply);
        }
        Some(Ok(()))
    }
}

/// Meets all members in a call in which each leaves bytes: this one `len` bytes at `own`. All have called the same function.
///
/// # Safety
///
/// The bytes must be readable.
#[inline(always)]
unsafe fn meet_all(call: Call, own: *const u8, len: usize, node: &mut Node, met: &mut Met) -> Option<MpiResult<u64>> {
    let (stamp, is_short) = (work::stamp(call), block(call) as usize * blocks(call, node.size()) <= NOTE);
    let arrive = |node: &mut Node| {
        // SAFETY: the caller's promise; the slot has room for the bytes.
        let (number, arrival) = node.arrive(stamp, len, false, |slot| unsafe { copy(own, slot.start(), len) });
        node.finish_checked(number, arrival, |other| differ(other, stamp), |_| ());
        number
    };
    let number = match node.meet(&mut met.0, Awaited::All, is_short, arrive)? {
        Ok(number) => number,
        Err(error) => return Some(Err(error)),
    };
    Some(agreed_among(node, number, Awaited::All, stamp).map(|()| number))
}
