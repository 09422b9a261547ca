//! Shared by the tests of collectives: random numbers, and a world of runs that are driven in random order.

use super::super::run::{Courier, Progress, Run};
use super::super::schedule::{Action, Area, Schedule, Slice};
use crate::error::MpiResult;

/// Random numbers; the same seed gives the same numbers.
#[derive(Debug, Clone)]
pub(super) struct Dice(u64);

impl Dice {
    pub(super) fn new(seed: u64) -> Self {
        Self(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) ^ 0x5851_f42d_4c95_7f2d)
    }

    pub(super) fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mixed = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }

    /// A number below `end`.
    pub(super) fn below(&mut self, end: u64) -> u64 {
        self.next() % end
    }

    pub(super) fn one_of<T: Copy>(&mut self, all: &[T]) -> T {
        all[self.below(all.len() as u64) as usize]
    }

    pub(super) fn flip(&mut self) -> bool {
        self.next() & 1 == 1
    }
}

/// The connection between the ranks of a world.
pub(super) trait Fabric {
    /// After this many turns without progress, no further progress is possible.
    const PATIENCE: usize;
    type Id: Copy;
    type Courier<'a>: Courier<Id = Self::Id>
    where
        Self: 'a;

    /// The carrier of one rank.
    fn courier(&mut self, rank: u32) -> Self::Courier<'_>;

    /// Lets one thing happen; returns whether anything could.
    fn stir(&mut self, dice: &mut Dice) -> bool;

    /// Asserts that no sent or received message is left over.
    fn assert_empty(&mut self);
}

/// Drives all runs to their ends in random order, except that of a rank that has died; a world without progress fails
/// the test.
pub(super) fn drive<F: Fabric>(
    fabric: &mut F,
    runs: &mut [Run<F::Id>],
    dice: &mut Dice,
    gone: Option<u32>,
) -> Vec<MpiResult> {
    let mut results: Vec<Option<MpiResult>> = runs.iter().map(|_| None).collect();
    let mut left: Vec<usize> = (0..runs.len()).filter(|rank| gone != Some(*rank as u32)).collect();
    let mut still = 0;
    while !left.is_empty() {
        let mut moved = false;
        for _ in 0..left.len().min(1 + dice.below(8) as usize) {
            let turn = dice.below(left.len() as u64) as usize;
            let rank = left[turn];
            loop {
                match runs[rank].advance(&mut fabric.courier(rank as u32)) {
                    Progress::Pending => break,
                    Progress::Call(call) => call.perform(),
                    Progress::Done(result) => {
                        results[rank] = Some(result);
                        left.swap_remove(turn);
                        moved = true;
                        break;
                    }
                }
            }
            if left.is_empty() {
                break;
            }
        }
        for _ in 0..=dice.below(16) {
            moved |= fabric.stir(dice);
        }
        still = if moved { 0 } else { still + 1 };
        assert!(still < F::PATIENCE, "nothing moves: ranks {left:?} wait");
    }
    results.into_iter().map(|result| result.unwrap_or(Ok(()))).collect()
}

/// Asserts the guarantees of a schedule (see `schedule`).
pub(super) fn assert_orderly(schedule: &Schedule, rank: u32, size: u32) {
    let mut reads: Vec<Slice> = Vec::new();
    let mut writes: Vec<Slice> = Vec::new();
    let free = |slice: Slice, taken: &[Slice]| !taken.iter().any(|other| other.overlaps(slice));
    for step in schedule.actions() {
        let (read, written, peer) = match *step {
            Action::Send { to, from } => (Some(from), None, Some(to)),
            Action::Recv { from, into } => (None, Some(into), Some(from)),
            Action::Copy { from, to } => {
                assert_eq!(from.len, to.len);
                assert!(!from.overlaps(to), "{step:?}");
                (Some(from), Some(to), None)
            }
            Action::Combine { left, right } => {
                assert_eq!(left.len, right.len);
                assert!(!left.overlaps(right), "{step:?}");
                assert!(free(right, &reads), "{step:?} writes what is being sent");
                (Some(left), Some(right), None)
            }
            Action::Wait => {
                reads.clear();
                writes.clear();
                continue;
            }
        };
        assert!(peer.is_none_or(|peer| peer != rank && peer < size), "{step:?} of rank {rank}");
        for slice in read.into_iter().chain(written) {
            assert!(free(slice, &writes), "{step:?} touches what is being received");
            if let Area::Temporary(index) = slice.area {
                assert!(slice.at + slice.len <= schedule.temporaries()[index as usize], "{step:?}");
            }
        }
        if let Some(written) = written {
            assert!(free(written, &reads), "{step:?} writes what is being sent");
        }
        if peer.is_some() {
            reads.extend(read);
            writes.extend(written);
        }
    }
    assert!(
        !matches!(schedule.actions().last(), Some(Action::Send { .. } | Action::Recv { .. })),
        "nothing waits at the end"
    );
}
