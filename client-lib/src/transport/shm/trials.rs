//! Finds the faster of two ways to do the same thing, where one use shows little: what a way costs depends on what was done just before, in
//! which caches the memory lies after it, and on what the peer does at the same time.
//!
//! So a way is used for *stretches* of several uses, and its cost is that of a stretch. It is tried for two in a row, and the cheaper one
//! counts; then the better way is used for many stretches. [`super::choice`] is for what one use shows.

use super::choice::Way;

/// For how many stretches a way is tried. The trial ends early if it costs so many times as much as the other way.
const TRIED_FOR: u32 = 2;
const TOO_MUCH: u64 = 4;
/// For how many stretches the better way is used before the other one is tried again; each time twice as many, up to more if the other one
/// costs more than a quarter more. Two processes that have chosen differently do not try at the same time.
const PAUSE: [u32; 2] = [4, 3];
const PAUSE_MOST: u32 = 32;
const PAUSE_MOST_IF_DEAR: u32 = 1024;

/// The measured costs of two ways, and which one is used.
#[derive(Debug, Clone, Copy)]
pub(super) struct Trials {
    /// In ticks per 1,024 bytes; 0 if unknown.
    cost: [u32; 2],
    way: Way,
    /// Whether it is only tried.
    is_trial: bool,
    /// For how many stretches it has been used, and for how many more it will be.
    used: u32,
    left: u32,
    /// Whether the last stretch cost much more than was known.
    has_risen: bool,
    /// How often in a row the same way was the better one.
    won: u32,
}

impl Trials {
    /// Begins with this way.
    pub(super) fn new(way: Way) -> Self {
        Self { cost: [0; 2], way, is_trial: true, used: 0, left: TRIED_FOR, has_risen: false, won: 0 }
    }

    /// The way to use now.
    #[inline]
    pub(super) fn way(&self) -> Way {
        self.way
    }

    /// Whether this way is only tried.
    pub(super) fn is_trial(&self) -> bool {
        self.is_trial
    }

    /// Whether the costs of both ways are known.
    pub(super) fn are_known(&self) -> bool {
        !self.cost.contains(&0)
    }

    /// The better way, or the only one whose cost is known.
    pub(super) fn best(&self) -> Way {
        match self.cost {
            [_, 0] => Way::First,
            [0, _] => Way::Second,
            [first, second] if first <= second => Way::First,
            [_, _] => Way::Second,
        }
    }

    /// Whether a way that is tried has already taken much longer, in ticks, than the other one takes for a stretch of `len` bytes. Not if it
    /// is used for the first time.
    pub(super) fn is_too_much(&self, spent: u64, len: u64) -> bool {
        let other = u64::from(self.cost[self.way.other() as usize]);
        self.is_trial && self.are_known() && spent / TOO_MUCH > other * (len / 1024)
    }

    /// Tries this way, unless it is used or was tried just before; returns whether it does.
    pub(super) fn join(&mut self, way: Way) -> bool {
        let joins = self.way != way && !self.is_trial && self.used >= PAUSE[0] << self.won.min(7);
        if joins {
            self.take(way, true, TRIED_FOR);
        }
        joins
    }

    /// Uses the other way from now on: this one has got stuck.
    pub(super) fn give_up(&mut self, way: Way) {
        if self.way == way {
            let [this, other] = [way, way.other()].map(|way| self.cost[way as usize]);
            self.cost[way as usize] = if other == 0 { 0 } else { this.max(other.saturating_mul(2)) };
            self.won = if self.is_trial { self.won + 1 } else { 0 };
            self.rest(way.other(), PAUSE_MOST_IF_DEAR);
        }
    }

    /// Records what a stretch has cost, in ticks per 1,024 bytes, and chooses the way of the next one. A trial ends unless it `may_go_on`. The
    /// first rise in cost is accepted only in part: it may include an interruption.
    pub(super) fn learn(&mut self, sample: u32, may_go_on: bool) {
        let cost = &mut self.cost[self.way as usize];
        let is_rise = *cost != 0 && sample > *cost + *cost / 4;
        *cost = match *cost {
            0 => sample,
            known if sample <= known => sample,
            known => known + ((sample - known).min(known) / if self.has_risen { 2 } else { 8 }).max(1),
        };
        self.has_risen = is_rise;
        self.used += 1;
        self.left -= 1;
        let (best, other) = (self.best(), self.way.other());
        if self.left > 0 && may_go_on && (self.is_trial || best == self.way) {
            return;
        }
        if self.cost[other as usize] == 0 || (!self.is_trial && best == self.way) {
            return self.take(other, true, TRIED_FOR);
        }
        let [first, second] = self.cost;
        let most = if first.abs_diff(second) > first.min(second) / 4 { PAUSE_MOST_IF_DEAR } else { PAUSE_MOST };
        self.won = if self.is_trial && best == self.way { 0 } else { self.won + 1 };
        self.rest(best, most);
    }

    /// Uses a way until the other one is tried again.
    fn rest(&mut self, way: Way, most: u32) {
        self.take(way, false, (PAUSE[way as usize] << self.won.min(16)).min(most));
    }

    /// Uses a way for this many stretches.
    fn take(&mut self, way: Way, is_trial: bool, left: u32) {
        (self.way, self.is_trial, self.used, self.left, self.has_risen) = (way, is_trial, 0, left, false);
    }
}

#[cfg(test)]
#[cfg(not(loom))]
mod tests {
    use super::*;

    /// Uses this many stretches at these costs; returns how many took the first way.
    fn stretches(trials: &mut Trials, count: usize, costs: [u32; 2]) -> usize {
        let mut firsts = 0;
        for _ in 0..count {
            let way = trials.way();
            firsts += usize::from(way == Way::First);
            trials.learn(costs[way as usize], true);
        }
        firsts
    }

    #[test]
    fn both_ways_are_tried_and_the_better_one_is_used() {
        let mut trials = Trials::new(Way::Second);
        assert_eq!((stretches(&mut trials, 2, [50, 100]), trials.are_known()), (0, false));
        assert_eq!((stretches(&mut trials, 2, [50, 100]), trials.are_known()), (2, true));
        assert_eq!((trials.way(), trials.is_trial()), (Way::First, false));
        let firsts = stretches(&mut trials, 10_000, [50, 100]);
        assert!((9_950..10_000).contains(&firsts), "much costlier: tried rarely, but tried: {firsts}");
        // Once the costs are alike, one of them is tried every 32 stretches.
        let firsts = stretches(&mut trials, 10_000, [50, 55]);
        assert!((9_300..9_800).contains(&firsts), "{firsts}");
    }

    #[test]
    fn a_change_is_noticed() {
        let mut trials = Trials::new(Way::Second);
        stretches(&mut trials, 100, [50, 100]);
        let late = stretches(&mut trials, 100, [200, 100]);
        assert!(late <= 8, "the way in use has become costly: {late} more stretches");
        let seconds = 2_000 - stretches(&mut trials, 2_000, [200, 20]);
        assert!(seconds > 1_900, "{seconds}");
        // The other way has become cheap: it is noticed at the next trial.
        let mut trials = Trials::new(Way::Second);
        stretches(&mut trials, 5, [100, 50]);
        assert_eq!((trials.way(), trials.is_trial()), (Way::Second, false));
        assert!(stretches(&mut trials, 200, [10, 50]) > 150);
    }

    #[test]
    fn one_interruption_does_not_change_the_way() {
        let mut trials = Trials::new(Way::Second);
        stretches(&mut trials, 5, [50, 100]);
        trials.learn(1 << 28, true);
        assert_eq!((trials.best(), trials.way()), (Way::First, Way::First));
        // A second one in a row does.
        trials.learn(1 << 28, true);
        trials.learn(1 << 28, true);
        assert_eq!(trials.way(), Way::Second);
    }

    #[test]
    fn of_a_trial_the_better_stretch_counts_and_a_hopeless_one_ends() {
        let mut trials = Trials::new(Way::Second);
        stretches(&mut trials, 2, [0, 100]);
        assert!(trials.is_trial() && !trials.is_too_much(u64::MAX, 1024), "the first use is never cut short");
        trials.learn(5_000, true);
        trials.learn(50, true);
        assert_eq!(trials.way(), Way::First);
        while !trials.is_trial() {
            trials.learn(50, true);
        }
        assert!(!trials.is_too_much(4 * 50 * 16, 16 << 10) && trials.is_too_much(5 * 50 * 16, 16 << 10));
        trials.learn(1_000, false);
        assert_eq!((trials.way(), trials.is_trial()), (Way::First, false));
    }

    #[test]
    fn a_process_joins_a_trial_but_not_at_once_again() {
        let mut trials = Trials::new(Way::Second);
        assert!(!trials.join(Way::First), "its own trial goes on");
        stretches(&mut trials, 4, [100, 50]);
        assert_eq!((trials.way(), trials.join(Way::First)), (Way::Second, false));
        let mut until = 0;
        while !trials.join(Way::First) {
            (trials.left, until) = (9, until + 1);
            trials.learn(50, true);
        }
        assert_eq!((until, trials.way(), trials.is_trial()), (8, Way::First, true));
        stretches(&mut trials, 2, [100, 50]);
        assert_eq!(trials.way(), Way::Second);
    }

    #[test]
    fn what_has_got_stuck_is_given_up_for_longer_and_longer() {
        let mut trials = Trials::new(Way::First);
        let mut pauses = Vec::new();
        for _ in 0..3 {
            trials.give_up(Way::First);
            assert_eq!((trials.way(), trials.is_trial()), (Way::Second, false));
            trials.give_up(Way::First);
            let mut pause = 0;
            while trials.way() == Way::Second {
                trials.learn(50, true);
                pause += 1;
            }
            pauses.push(pause);
        }
        assert_eq!(pauses, [6, 12, 24]);
    }
}
