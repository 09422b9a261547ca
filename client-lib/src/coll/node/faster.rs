//! Finds out which way is faster for long blocks, slots or pulls, by measuring during use.
//!
//! All members must go the same way, so the first member alone measures and decides. It announces its decisions with its stamp in
//! each call that has a class, at which all members wait for all; each member adopts what has been announced at the end of the call.

use super::work::kind;
use super::{ANNOUNCED, Node, Way};
use crate::coll::choice::Call;
use crate::transport::shm::choice::{self, Choice, ticks};

/// The ways of all classes.
#[derive(Debug, Default)]
pub(super) struct Faster {
    /// A bit for each class in which pulls are faster, as all members know it.
    agreed: u32,
    /// What the first member announces.
    next: u32,
    choices: [Choice; super::way::CLASSES],
}

impl Node {
    /// The ways that all members know.
    pub fn faster(&self) -> u32 {
        self.faster.agreed
    }

    /// A stamp with what this member announces.
    #[inline]
    pub(super) fn announcing(&self, stamp: u64) -> u64 {
        match self.rank {
            0 if kind::announces(stamp) => stamp | (u64::from(self.faster.next) << 32) & ANNOUNCED,
            _ => stamp,
        }
    }

    /// Adopts what the first member has announced at an operation of a call that has a class; all have arrived at it, and this member has
    /// not arrived at the next one, so the stamp is still there.
    #[inline]
    pub(super) fn adopt(&mut self, number: u64) {
        self.faster.agreed = ((self.stamp(number, 0) & ANNOUNCED) >> 32) as u32;
    }

    /// Runs a long call that has a class, and learns from it.
    #[inline]
    pub fn measured<R>(&mut self, call: Call, way: Way, body: impl FnOnce(&mut Self) -> R) -> R {
        let Some(class) = super::way::class(call, self.size()) else { return body(self) };
        let since = ticks();
        let result = body(self);
        if self.rank == 0 && self.pulls() {
            let block = match call {
                Call::Allgather { block, .. } | Call::Alltoall { block, .. } => block as usize,
                _ => return result,
            };
            let choice = &mut self.faster.choices[class as usize];
            let way = if way == Way::Pull { choice::Way::Second } else { choice::Way::First };
            choice.learn_least(way, ticks() - since, block);
            let (next, _) = choice.choose();
            let bit = 1 << class;
            self.faster.next =
                if next == choice::Way::Second { self.faster.next | bit } else { self.faster.next & !bit };
        }
        result
    }
}
