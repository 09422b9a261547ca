//! The result so far of a reduction, and in which of two places it is.

use super::schedule::{Schedule, Slice};

/// Combining writes into the right operand, so a result moves to where that was received, unless the operation commutes. Two places
/// take turns: the one where the result belongs in the end, and another one. What it starts with may be a third one, which is
/// only read.
#[derive(Debug, Clone, Copy)]
pub(super) struct Accumulator {
    /// Where the result so far is.
    now: Slice,
    target: Slice,
    other: Slice,
    /// How many more times the result will move.
    moves: usize,
    commutes: bool,
}

impl Accumulator {
    /// Starts with `own`; `target` and `other` are as long. `appends` is how many operands will come from the right: if that
    /// holds, nothing need be copied in the end.
    pub(super) fn new(own: Slice, target: Slice, other: Slice, appends: usize, commutes: bool) -> Self {
        let moves = if commutes { usize::from(own != target) } else { appends };
        Self { now: own, target, other, moves, commutes }
    }

    /// The result so far.
    pub(super) fn now(&self) -> Slice {
        self.now
    }

    /// Where the next operand is to be received: where the result is not, such that the last move is to the target.
    pub(super) fn room(&self) -> Slice {
        let [wanted, instead] = if self.moves % 2 == 1 { [self.target, self.other] } else { [self.other, self.target] };
        if wanted == self.now { instead } else { wanted }
    }

    /// Goes on with part of the elements only.
    pub(super) fn narrow(&mut self, at: u64, len: u64) {
        for slice in [&mut self.now, &mut self.target, &mut self.other] {
            *slice = slice.part(at, len);
        }
    }

    /// What has been received in [`Accumulator::room`] stands to the right of the result so far.
    pub(super) fn append(&mut self, schedule: &mut Schedule) {
        let came = self.room();
        if self.commutes && self.is_writable() {
            schedule.combine(came, self.now);
        } else {
            self.move_to(came, schedule);
        }
    }

    /// What has been received in [`Accumulator::room`] stands to the left of it.
    pub(super) fn prepend(&mut self, schedule: &mut Schedule) {
        let came = self.room();
        if self.is_writable() {
            schedule.combine(came, self.now);
        } else if self.commutes {
            self.move_to(came, schedule);
        } else {
            let place = if came == self.target { self.other } else { self.target };
            schedule.copy(self.now, place);
            schedule.combine(came, place);
            self.now = place;
        }
    }

    /// Brings the result to the target.
    pub(super) fn finish(self, schedule: &mut Schedule) {
        schedule.copy(self.now, self.target);
    }

    fn is_writable(&self) -> bool {
        self.now == self.target || self.now == self.other
    }

    fn move_to(&mut self, came: Slice, schedule: &mut Schedule) {
        schedule.combine(self.now, came);
        self.now = came;
        self.moves = self.moves.saturating_sub(1);
    }
}
