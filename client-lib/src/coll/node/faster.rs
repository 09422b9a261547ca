//! Finds out which way is faster for long blocks, slots or pulls, by measuring during use.
//!
//! All members must go the same way, so for each class of calls, one member measures and decides: the root, whose time is that of the call, or in
//! a broadcast, the member after it. It announces what it has decided with its stamp in each call of the class, and all members adopt that at the
//! end of an operation at which all have waited for all. A rooted call over slots needs no such operation, so of these, all are made
//! one until both ways have been tried, and then one in [`DUE`].

use super::way::{CLASSES, class, shorter};
use super::{Node, Way};
use crate::coll::choice::Call;
use crate::transport::shm::choice::{self, Choice, ticks};

/// The ways of all classes.
#[derive(Debug, Default)]
pub(super) struct Faster {
    /// What all members know of the calls with each root; of those without, at 0. It grows when it is needed.
    agreed: Vec<Agreed>,
    /// A bit for each class in which this member wants pulls where it decides.
    next: u32,
    choices: [Choice; CLASSES],
}

#[derive(Debug, Default, Clone, Copy)]
struct Agreed {
    /// A bit for each class in which pulls are faster.
    faster: u32,
    /// A bit for each class in which both ways have been tried often enough.
    explored: u32,
}

/// Of how many rooted calls one is an agreement, on average.
const DUE: u64 = 32;

/// In a stamp, where the member that decides announces that pulls are faster in this class of calls, and that both ways have been tried.
const FASTER: u64 = 1 << 54;
const EXPLORED: u64 = 1 << 55;
pub(super) const ANNOUNCED: u64 = FASTER | EXPLORED;

impl Node {
    /// A bit for each class in which pulls are faster for a call with this one's root. All members get the same answer.
    pub fn faster(&self, call: Call) -> u32 {
        self.agreed(call).faster
    }

    fn agreed(&self, call: Call) -> Agreed {
        self.faster.agreed.get(call.root().unwrap_or(0) as usize).copied().unwrap_or_default()
    }

    /// The member that decides which way calls like this one go.
    fn decider(&self, call: Call) -> u32 {
        match call {
            Call::Bcast { root, .. } => (root + 1) % self.size(),
            call => call.root().unwrap_or(0),
        }
    }

    /// The stamp of a call, which has this class, with what this member announces.
    #[inline]
    pub(super) fn announcing(&self, stamp: u64, call: Call, class: Option<u32>) -> u64 {
        let Some(class) = class.filter(|_| self.decider(call) == self.rank) else { return stamp };
        let Faster { next, choices, .. } = &self.faster;
        let faster = if has(*next, class) { FASTER } else { 0 };
        let explored = if choices[class as usize].is_explored() { EXPLORED } else { 0 };
        stamp | faster | explored
    }

    /// Adopts what has been announced at an operation of a call, which has this class; all have arrived at it, and this member has
    /// not arrived at the next one, so the stamp is still there.
    #[inline]
    pub(super) fn adopt(&mut self, number: u64, call: Call, class: u32) {
        let (stamp, root) = (self.stamp(number, self.decider(call)), call.root().unwrap_or(0) as usize);
        let known = &mut self.faster.agreed;
        if known.len() <= root {
            known.resize(root + 1, Agreed::default());
        }
        set(&mut known[root].faster, class, stamp & FASTER != 0);
        set(&mut known[root].explored, class, stamp & EXPLORED != 0);
    }

    /// Whether all wait for all at this operation of a rooted call over slots, to agree on the way of its class. All members get the same answer.
    #[inline]
    pub(super) fn is_due(&self, number: u64, call: Call, class: u32) -> bool {
        // A program may repeat a sequence of calls, in which those of the class are always at the same places.
        let scattered = number.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 32;
        !has(self.agreed(call).explored, class) || scattered.is_multiple_of(DUE)
    }

    /// Runs a long call that has a class, and learns from it.
    #[inline]
    pub fn measured<R>(&mut self, call: Call, way: Way, body: impl FnOnce(&mut Self) -> R) -> R {
        let decides = self.decider(call) == self.rank;
        let Some(class) = class(call, self.size()).filter(|_| decides) else { return body(self) };
        let since = ticks();
        let result = body(self);
        if self.pulls() {
            self.learn(call, class, way, ticks() - since);
        }
        result
    }

    fn learn(&mut self, call: Call, class: u32, way: Way, ticks: u64) {
        let is_rooted = call.root().is_some();
        let block = match call {
            Call::Gather { block, .. } | Call::Allgather { block, .. } | Call::Alltoall { block, .. } => block,
            Call::Reduce { vector, .. } => vector.len(),
            Call::Bcast { len, .. } => len,
            // They have no class.
            Call::Barrier | Call::Scatter { .. } | Call::Allreduce { .. } => return,
            Call::ReduceScatterBlock { .. } | Call::Scan { .. } | Call::Exscan { .. } => return,
        };
        let Faster { next, choices, .. } = &mut self.faster;
        if is_rooted && choices[class as usize].is_new() {
            // Both ways cost about the same for each byte of blocks of half the length.
            if let Some(like) = shorter(class).map(|shorter| choices[shorter as usize]).filter(Choice::is_explored) {
                choices[class as usize] = like.like_this();
            }
        }
        let choice = &mut choices[class as usize];
        // After a rooted call by pulls, two cores share the lines of what was read: before the next call, their owners have to take back each one that
        // they write. If all vectors change between the calls, that costs as much as pulls gain, or more; but then the calls gain less than the
        // parts added here, because nothing is in the root's cache. And of a broadcast, this member's time says less about the others'.
        let (way, ticks) = match way {
            Way::Slots => (choice::Way::First, ticks),
            Way::Pull if let Call::Bcast { .. } = call => (choice::Way::Second, ticks * 3 / 2),
            Way::Pull if is_rooted => (choice::Way::Second, ticks * 5 / 4),
            Way::Pull => (choice::Way::Second, ticks),
        };
        choice.learn_least(way, ticks, block as usize);
        // What it has announced takes effect at the next agreement.
        if has(*next, class) == (way == choice::Way::Second) {
            let (wanted, _) = choice.choose();
            set(next, class, wanted == choice::Way::Second);
        }
    }
}

fn has(bits: u32, class: u32) -> bool {
    bits >> class & 1 == 1
}

fn set(bits: &mut u32, class: u32, value: bool) {
    *bits = *bits & !(1 << class) | u32::from(value) << class;
}
