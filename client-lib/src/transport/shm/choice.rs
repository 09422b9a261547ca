//! Finds the faster of two ways to do the same thing, by measuring during use; and what a link has learned about offers ([`Lending`]).
//!
//! The cost of a copy depends on where the two processes run: two cores may share a cache, or fetch each line that the other
//! has written one by one, ten times as slowly; and the cores of a virtual machine move. So both ways are timed every so
//! often, in ticks of the processor's clock, and the cheaper one is used otherwise.

/// How often the costlier way is tried again: once in this many uses, or rarely if it costs more than a quarter more.
const TRY_EVERY: u32 = 64;
const TRY_RARELY_EVERY: u32 = 256;
/// Both ways are tried in turn until each has been measured so often: a first sample says little, because memory is used for the first time.
const ENOUGH: u8 = 4;
/// How many uses a measurement may take to arrive, before its way is tried once more to get one.
const LATE: u32 = 16;
/// How often the cheaper way is timed.
const TIME_EVERY: u32 = 16;

/// One of two ways; the module that uses the choice defines them.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Way {
    /// The first one.
    First,
    /// The second one.
    Second,
}

/// The measured costs of two ways.
#[derive(Debug, Clone, Copy, Default)]
pub struct Choice {
    /// In ticks per 1,024 bytes; 0 if unknown.
    cost: [u32; 2],
    /// How often each has been measured by [`Choice::learn_least`], up to [`ENOUGH`].
    samples: [u8; 2],
    /// The use at which each was last tried, if its measurement has not arrived; otherwise long ago.
    tried: [u32; 2],
    uses: u32,
}

impl Choice {
    /// Returns the way to use now, and whether to time it and pass the result to [`Choice::learn`].
    #[inline]
    pub fn choose(&mut self) -> (Way, bool) {
        self.uses = self.uses.wrapping_add(1);
        let [first, second] = self.cost;
        if first == 0 || second == 0 {
            return self.explore();
        }
        if self.samples.iter().any(|samples| (1..ENOUGH).contains(samples)) && self.uses < TRY_EVERY {
            let [first, second] = self.samples;
            let rarer = if first <= second { Way::First } else { Way::Second };
            let awaits = |way: Way| self.uses.wrapping_sub(self.tried[way as usize]) < LATE;
            let way = if awaits(rarer) { rarer.other() } else { rarer };
            self.tried[way as usize] = self.uses;
            return (way, true);
        }
        let (best, dear, cheap) =
            if first <= second { (Way::First, second, first) } else { (Way::Second, first, second) };
        let every = if dear - cheap > cheap / 4 { TRY_RARELY_EVERY } else { TRY_EVERY };
        if self.is_turn(every) { (best.other(), true) } else { (best, self.is_turn(TIME_EVERY)) }
    }

    /// The faster way, once both costs are known.
    pub fn best(&self) -> Option<Way> {
        match self.cost {
            [_, 0] | [0, _] => None,
            [first, second] if first <= second => Some(Way::First),
            [_, _] => Some(Way::Second),
        }
    }

    /// Whether neither way has been measured by [`Choice::learn_least`].
    pub fn is_new(&self) -> bool {
        self.samples == [0; 2]
    }

    /// Whether both ways have been measured often enough by [`Choice::learn_least`].
    pub fn is_explored(&self) -> bool {
        self.samples == [ENOUGH; 2]
    }

    /// A choice of which is known that the ways cost about as much; half as many samples as usual show whether they do.
    pub fn like_this(self) -> Self {
        let samples = self.samples.map(|samples| samples.min(ENOUGH / 2));
        Self { cost: self.cost, samples, tried: [LATE.wrapping_neg(); 2], uses: 0 }
    }

    /// By how many ticks the second way is faster for this many bytes; 0 if it is slower. While its cost is unknown: the whole cost of the
    /// first.
    pub fn gain(&self, len: usize) -> u64 {
        let [first, second] = self.cost;
        u64::from(first.saturating_sub(second)) * len as u64 / 1024
    }

    /// Whether this use is one in `every`, a power of two.
    fn is_turn(&self, every: u32) -> bool {
        self.uses & (every - 1) == 0
    }

    /// A way of unknown cost is tried, but not on every use: its measurement may arrive late.
    fn explore(&self) -> (Way, bool) {
        match self.cost {
            [0, 0] => (if self.uses % 2 == 1 { Way::First } else { Way::Second }, true),
            [0, _] => {
                if self.is_turn(4) {
                    (Way::First, true)
                } else {
                    (Way::Second, false)
                }
            }
            [_, _] => {
                if self.is_turn(4) {
                    (Way::Second, true)
                } else {
                    (Way::First, false)
                }
            }
        }
    }

    /// As [`Choice::learn`], where the time includes waiting for another process: what a way has once cost, it can cost again.
    pub fn learn_least(&mut self, way: Way, ticks: u64, len: usize) {
        let (known, samples) = (self.cost[way as usize], &mut self.samples[way as usize]);
        *samples = (*samples + 1).min(ENOUGH);
        self.tried[way as usize] = self.uses.wrapping_sub(LATE);
        self.learn(way, ticks, len);
        let sample = sample(ticks, len);
        if known > sample {
            self.cost[way as usize] = sample;
        }
    }

    /// Records that a way took this long for this many bytes. The process may have been interrupted during that time, so a
    /// rise in cost is accepted only gradually.
    pub fn learn(&mut self, way: Way, ticks: u64, len: usize) {
        let sample = sample(ticks, len);
        let cost = &mut self.cost[way as usize];
        *cost = match *cost {
            0 => sample,
            known if sample <= known => known - (known - sample).div_ceil(2),
            known => known + ((sample - known).min(known) / 8).max(1),
        };
    }
}

/// For how many late receivers in a row a sender waits as long as the receiver's reading would save; and how often, after that, it tries again.
const TRUST: u32 = 32;
const TRUST_EVERY: u32 = 16;
/// The longest wait, in ticks: an interrupted measurement may say more.
const PATIENCE_MAX: u64 = 1 << 16;

/// What a link has learned about offers.
#[derive(Debug)]
pub(super) struct Lending {
    /// For each class of lengths: a cell, or an offer.
    ways: [Choice; LONGEST + 1],
    /// The offers since the receiver has taken one; `None` before the first.
    missed: Option<u32>,
    /// Whether the receiver has read the memory of an offer; `Some(false)` once it could not.
    reads: Option<bool>,
    /// When the last message was sent, in ticks, and how many receives the program had started.
    last: (u64, u64),
    /// Whether the message of the last choice follows another one at once.
    follows: bool,
    /// Whether a longer message has come from the peer since the choice before.
    has_heard: bool,
    patience_max: u64,
}

impl Default for Lending {
    fn default() -> Self {
        let (ways, missed, reads, last, follows, has_heard) = Default::default();
        Self { ways, missed, reads, last, follows, has_heard, patience_max: PATIENCE_MAX }
    }
}

/// The class of a message's length.
fn class(len: usize) -> usize {
    match len {
        0..=8192 => 0,
        8193..=16384 => 1,
        _ => LONGEST,
    }
}

const LONGEST: usize = 2;

impl Lending {
    /// Prefers offers from now on, and waits until the receiver takes them.
    #[cfg(test)]
    #[cfg(not(loom))]
    pub(super) fn insist(&mut self) {
        for way in &mut self.ways {
            way.learn(Way::First, u64::MAX / 2048, 1);
            way.learn(Way::Second, 1, 1024);
        }
        self.patience_max = u64::MAX;
    }

    /// Limits the wait for a receiver, in ticks.
    #[cfg(test)]
    #[cfg(not(loom))]
    pub(super) fn patience_is(&mut self, ticks: u64) {
        self.patience_max = ticks;
    }

    /// Whether the receiver has taken the last offer.
    #[cfg(test)]
    #[cfg(not(loom))]
    pub(super) fn is_quick(&self) -> bool {
        self.missed == Some(0)
    }

    /// Chooses between a cell and an offer, as [`Choice::choose`] does. `receives`: how many receives the program has started.
    ///
    /// A message that follows another one at once, without a receive in between, goes in a cell: the sender fills a cell while the receiver
    /// empties the one before, which takes less time than one copy after the other. Not so if as much comes from the peer meanwhile: then
    /// both processors have work enough, and two copies cost more than one.
    pub(super) fn choose(&mut self, len: usize, now: u64, receives: u64) -> (Way, bool) {
        let choice = &mut self.ways[class(len)];
        let (sent_at, receives_then) = self.last;
        // At once: sooner than 1 KiB goes through a cell.
        let follows = now.wrapping_sub(sent_at) < u64::from(choice.cost[Way::First as usize]);
        let is_both_ways = std::mem::take(&mut self.has_heard) && class(len) == LONGEST;
        self.follows = follows && receives == receives_then;
        if self.follows && !is_both_ways { (Way::First, false) } else { choice.choose() }
    }

    /// Records that a longer message has come from the peer.
    pub(super) fn hear(&mut self) {
        self.has_heard = true;
    }

    /// Records that a message was sent, until now.
    pub(super) fn has_sent(&mut self, now: u64, receives: u64) {
        self.last = (now, receives);
    }

    /// Records whether the receiver has taken an offer.
    pub(super) fn was_taken(&mut self, is_taken: bool) {
        let missed = self.missed.unwrap_or(0);
        self.missed = Some(if is_taken { 0 } else { missed.saturating_add(1) });
        self.reads = self.reads.or(is_taken.then_some(true));
    }

    /// Records that the receiver could not read the memory of an offer.
    pub(super) fn was_refused(&mut self) {
        self.reads = Some(false);
    }

    /// Whether an offer may stay after the call. Not if the receiver has never read this process's memory: one that cannot would wait for
    /// this process's next poll, and so would all messages behind this one, of all senders. Not if messages follow one another: each keeps
    /// a cell.
    pub(super) fn may_stay(&self) -> bool {
        self.reads == Some(true) && !self.follows
    }

    /// How long an offer of a message is worth waiting, in ticks.
    pub(super) fn patience(&self, len: usize) -> u64 {
        let is_due = self.missed.is_none_or(|missed| missed < TRUST || missed.is_multiple_of(TRUST_EVERY));
        if is_due { self.ways[class(len)].gain(len).min(self.patience_max) } else { 0 }
    }

    /// Records what a way has cost for a message of this length.
    pub(super) fn learn(&mut self, way: Way, ticks: u64, len: usize) {
        self.ways[class(len)].learn(way, ticks, len);
    }
}

/// Ticks per 1,024 bytes.
pub(super) fn sample(ticks: u64, len: usize) -> u32 {
    (ticks.saturating_mul(1024) / (len as u64).max(1)).clamp(1, 1 << 28) as u32
}

impl Way {
    pub(super) fn other(self) -> Self {
        match self {
            Self::First => Self::Second,
            Self::Second => Self::First,
        }
    }
}

/// The processor's clock in ticks. Only differences on the same machine are meaningful.
#[inline]
#[expect(unsafe_code, reason = "an instruction that reads a counter")]
pub fn ticks() -> u64 {
    #[cfg(target_arch = "x86_64")]
    // SAFETY: every x86-64 processor has it, and the kernel lets programs use it.
    return unsafe { std::arch::x86_64::_rdtsc() };
    #[cfg(target_arch = "aarch64")]
    {
        let ticks: u64;
        // SAFETY: reads a register that the kernel lets programs read.
        unsafe { std::arch::asm!("mrs {}, cntvct_el0", out(reg) ticks, options(nomem, nostack)) };
        return ticks;
    }
    #[cfg(not(any(target_arch = "x86_64", target_arch = "aarch64")))]
    {
        static START: std::sync::OnceLock<std::time::Instant> = std::sync::OnceLock::new();
        START.get_or_init(std::time::Instant::now).elapsed().as_nanos() as u64
    }
}

#[cfg(test)]
#[cfg(not(loom))]
mod tests {
    use super::*;

    /// Uses a choice this many times, at these costs per KiB; returns how often the first way was taken.
    fn uses(choice: &mut Choice, count: usize, costs: [u64; 2]) -> usize {
        let mut firsts = 0;
        for _ in 0..count {
            let (way, timed) = choice.choose();
            firsts += usize::from(way == Way::First);
            if timed {
                choice.learn(way, costs[way as usize] * 4, 4096);
            }
        }
        firsts
    }

    #[test]
    fn the_faster_way_is_found_and_found_again_after_a_change() {
        let mut choice = Choice::default();
        assert!(uses(&mut choice, 1000, [100, 150]) >= 970);
        assert_eq!(choice.best(), Some(Way::First));
        // The second way becomes cheap: a few tries suffice to notice.
        uses(&mut choice, 1000, [100, 20]);
        assert_eq!(choice.best(), Some(Way::Second));
        // The way in use becomes expensive.
        uses(&mut choice, 1000, [100, 1000]);
        assert_eq!(choice.best(), Some(Way::First));
        // A way that costs ten times as much is rarely tried.
        assert!(uses(&mut choice, 10_000, [100, 1000]) >= 9950);
    }

    #[test]
    fn a_way_whose_measurement_is_late_is_tried_again_only_after_some_uses() {
        let mut choice = Choice::default();
        choice.learn_least(Way::First, 100, 1024);
        choice.learn_least(Way::Second, 50, 1024);
        assert_eq!(choice.samples, [1; 2]);
        let mut firsts = 0;
        for _ in 0..2 * LATE {
            match choice.choose().0 {
                Way::First => firsts += 1,
                Way::Second => choice.learn_least(Way::Second, 50, 1024),
            }
        }
        assert_eq!(firsts, 2);
        (0..ENOUGH).for_each(|_| choice.learn_least(Way::First, 100, 1024));
        assert_eq!((choice.samples, choice.best()), ([ENOUGH; 2], Some(Way::Second)));
    }

    #[test]
    fn what_is_like_a_known_choice_is_explored_soon_however_old_that_is() {
        let mut known = Choice::default();
        let learned = |choice: &mut Choice, uses: usize, costs: [u64; 2]| {
            let seconds = (0..uses).filter(|_| {
                let (way, _) = choice.choose();
                choice.learn_least(way, costs[way as usize], 1024);
                way == Way::Second
            });
            seconds.count()
        };
        learned(&mut known, 1000, [100, 300]);
        assert!(known.is_explored());
        let mut new = known.like_this();
        assert_eq!((new.is_explored(), new.is_new(), new.best()), (false, false, Some(Way::First)));
        // Two samples of each, and then rarely one of the second way, as if nothing had been learned from the other.
        assert_eq!(learned(&mut new, 4, [100, 300]), 2);
        assert!(new.is_explored());
        assert!(learned(&mut new, 1000, [100, 300]) <= 8);
    }

    #[test]
    fn one_interruption_does_not_change_the_way() {
        let mut choice = Choice::default();
        uses(&mut choice, 100, [100, 150]);
        choice.learn(Way::First, 1_000_000_000, 4096);
        assert_eq!(choice.best(), Some(Way::First));
    }

    #[test]
    fn a_way_whose_cost_is_never_reported_is_not_tried_forever() {
        let mut choice = Choice::default();
        let mut firsts = 0;
        for _ in 0..400 {
            let (way, timed) = choice.choose();
            firsts += usize::from(way == Way::First);
            if timed && way == Way::Second {
                choice.learn(way, 1000, 1024);
            }
        }
        assert!(firsts <= 101, "{firsts}");
    }

    #[test]
    fn a_slow_first_use_does_not_decide() {
        let mut choice = Choice::default();
        let mut seconds = 0;
        for used in 0..100 {
            let (way, timed) = choice.choose();
            seconds += usize::from(way == Way::Second);
            // The second way is the faster one, but its first use takes long.
            let ticks = if way == Way::First {
                200
            } else if seconds == 1 {
                10_000
            } else {
                100
            };
            if timed {
                choice.learn_least(way, ticks * 4, 4096);
            }
            assert!(used < 16 || choice.best() == Some(Way::Second), "after {used} uses");
        }
        assert!(seconds > 80, "{seconds}");
    }

    #[test]
    fn messages_in_a_row_go_in_cells() {
        let learned = || {
            let mut lending = Lending::default();
            for len in [8000, 16_000, 32_000] {
                lending.learn(Way::First, len as u64, len);
                lending.learn(Way::Second, len as u64 / 2, len);
            }
            lending
        };
        for len in [8000, 16_000, 32_000] {
            let mut lending = learned();
            assert_eq!(lending.choose(len, 5000, 1).0, Way::Second, "the first one");
            lending.has_sent(6000, 1);
            assert_eq!(lending.choose(len, 6500, 1), (Way::First, false), "at once");
            assert_eq!(lending.choose(len, 6500, 2).0, Way::Second, "after a receive");
            assert_eq!(lending.choose(len, 60_000, 1).0, Way::Second, "after a pause");
            lending.hear();
            let then = if len == 32_000 { Way::Second } else { Way::First };
            assert_eq!(lending.choose(len, 6500, 1).0, then, "as much comes back");
            assert_eq!(lending.choose(len, 6500, 1).0, Way::First, "nothing has come since");
        }
    }

    #[test]
    fn the_clock_goes_forward() {
        let start = ticks();
        let spent = std::time::Instant::now();
        while spent.elapsed().as_micros() < 100 {}
        assert!(ticks() > start);
    }
}
