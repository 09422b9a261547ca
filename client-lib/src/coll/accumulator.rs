//! The partial result of a reduction, and which of two places holds it.

use super::schedule::{Schedule, Slice};

/// Combining overwrites the right operand, so the partial result moves to the place where that operand was received,
/// unless the operation commutes. Two places take turns: the final target and one other. The initial operand may be in
/// a third place, which is only read.
#[derive(Debug, Clone, Copy)]
pub(super) struct Accumulator {
    /// Where the partial result is.
    now: Slice,
    target: Slice,
    other: Slice,
    /// How many more times the partial result will move.
    moves: usize,
    commutes: bool,
}

impl Accumulator {
    /// Starts with `own`; `target` and `other` have the same length. `appends` is how many operands will arrive on the
    /// right: if that number is exact, no final copy is needed.
    pub(super) fn new(own: Slice, target: Slice, other: Slice, appends: usize, commutes: bool) -> Self {
        let moves = if commutes { usize::from(own != target) } else { appends };
        Self { now: own, target, other, moves, commutes }
    }

    /// The partial result.
    pub(super) fn now(&self) -> Slice {
        self.now
    }

    /// Where to receive the next operand: the place that does not hold the partial result, chosen so that the last move
    /// is to the target.
    pub(super) fn room(&self) -> Slice {
        let [wanted, instead] = if self.moves % 2 == 1 { [self.target, self.other] } else { [self.other, self.target] };
        if wanted == self.now { instead } else { wanted }
    }

    /// Continues with only part of the elements.
    pub(super) fn narrow(&mut self, at: u64, len: u64) {
        for slice in [&mut self.now, &mut self.target, &mut self.other] {
            *slice = slice.part(at, len);
        }
    }

    /// Combines the operand received in [`Accumulator::room`] on the right of the partial result.
    pub(super) fn append(&mut self, schedule: &mut Schedule) {
        let came = self.room();
        if self.commutes && self.is_writable() {
            schedule.combine(came, self.now);
        } else {
            self.move_to(came, schedule);
        }
    }

    /// Combines the operand received in [`Accumulator::room`] on the left of the partial result.
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

    /// Moves the result to the target.
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
