//! How long messages are received: in parts, or from the sender's memory.
//!
//! Where two cores share a cache, parts are often faster, because both cores copy at the same time; where each part must be fetched from
//! another core's cache, one copy costs less than two. One message alone shows little of this: while it is copied, this process may
//! also send, and the next one is already on its way. So the two ways are compared by their rates, over stretches of several messages that
//! all come in the same way ([`super::trials`]).
//!
//! If messages go both ways, what a process measures depends on what its peer does at the same time. Both count the same messages, so at first
//! they try parts at about the same time; later, a process joins when its peer begins ([`Streams::peer_requests`]).

use super::choice::{Way, sample};
use super::geometry::LARGE;
use super::trials::Trials;

/// The length of a stretch: this many messages, or fewer if they are very long, or if a way is only tried.
const MESSAGES: usize = 16;
const MESSAGES_LEAST: usize = 4;
const BYTES: usize = 8 << 20;
/// About how many messages come in parts at the same time. More would not be faster, but take turns in the caches.
const AT_ONCE: usize = 4;
/// While parts show nothing yet ([`Streams::cold`]), one message in this many comes in parts.
const COLD_EVERY: u32 = 4;

/// If nothing comes for longer than this, in ticks, the sender of parts, or this process, does something else: some hundred microseconds on
/// most processors.
const STALL: u64 = 1 << 19;

/// The sender of the first parts is late: the kernel finds the memory of its cells.
const COLD_STALL: u64 = 32 * STALL;

/// The length class of a long message: below 128 KiB, below 512 KiB, below 2 MiB, or longer.
fn class(len: usize) -> usize {
    LENGTHS.iter().take_while(|from| len >= **from).count()
}

const LENGTHS: [usize; CLASSES - 1] = [128 << 10, 512 << 10, 2 << 20];
const CLASSES: usize = 4;

/// What a link has learned about long messages.
#[derive(Debug)]
pub(super) struct Streams {
    classes: [Class; CLASSES],
    /// The class of the last message.
    last: usize,
    /// How many of the bytes that were requested in parts have not arrived yet; those of one class at a time. Parts that were requested because
    /// a message could not be read count, too, if they come meanwhile.
    coming: u64,
    /// Their class.
    coming_class: usize,
    /// When the first of them was requested, or some arrived, in ticks.
    moved: u64,
    /// How many more bytes in parts show nothing: at first, both processes use the memory of the cells for the first time, and then the
    /// sender finds out how to fill them.
    cold: u64,
    /// How many messages have come since then began.
    turns: u32,
}

/// The messages of one class.
#[derive(Debug, Clone, Copy)]
struct Class {
    trials: Trials,
    stretch: Option<Stretch>,
}

/// Several messages of one class that come in the same way.
#[derive(Debug, Clone, Copy)]
struct Stretch {
    /// Its length, and how much has arrived, in bytes.
    len: u64,
    here: u64,
    /// How long it has taken, in ticks, until when.
    spent: u64,
    until: u64,
}

impl Streams {
    /// For a link whose sender has this many large cells.
    pub(super) fn new(cells: u32) -> Self {
        // Once for each cell, and some more for the ways to fill them.
        let cold = (u64::from(cells) + 16) * LARGE as u64;
        let class = Class { trials: Trials::new(Way::Second), stretch: None };
        Self { classes: [class; CLASSES], last: 0, coming: 0, coming_class: 0, moved: 0, cold, turns: 0 }
    }

    /// The faster way for long messages, once it is known.
    pub(super) fn best(&self) -> Option<Way> {
        self.classes.iter().rev().find(|class| class.trials.are_known()).map(|class| class.trials.best())
    }

    /// How many bytes are coming in parts.
    #[cfg(test)]
    #[cfg(not(loom))]
    pub(super) fn coming(&self) -> u64 {
        self.coming
    }

    /// Makes one way seem the faster one.
    #[cfg(test)]
    #[cfg(not(loom))]
    pub(super) fn prefer(&mut self, way: Way) {
        self.cold = 0;
        for Class { trials, .. } in &mut self.classes {
            *trials = Trials::new(way.other());
            while trials.way() != way || trials.is_trial() {
                trials.learn(if trials.way() == way { 100 } else { 1000 }, true);
            }
        }
    }

    /// How to receive a message of this length; `now` in ticks. `None`: it must wait until some of what is coming in parts has come.
    pub(super) fn choose(&mut self, len: usize, now: u64) -> Option<Way> {
        let number = class(len);
        self.last = number;
        if self.coming > 0 && now.wrapping_sub(self.moved) > self.stall() {
            self.give_up();
        }
        let Class { trials, stretch } = &mut self.classes[number];
        let way = trials.way();
        if self.coming > 0 && self.coming_class != number {
            return Some(Way::Second);
        }
        if way == Way::First && self.cold > 0 {
            self.turns += 1;
            if !self.turns.is_multiple_of(COLD_EVERY) {
                return Some(Way::Second);
            }
        }
        let most = (AT_ONCE * LENGTHS.get(number).copied().unwrap_or(len)) as u64;
        if way == Way::First && self.coming >= most {
            // Much longer ones are coming: it could wait for them forever.
            return if self.coming < 2 * most { None } else { Some(Way::Second) };
        }
        match stretch {
            Some(stretch) if self.coming == 0 => stretch.resume(len, now),
            Some(stretch) if trials.is_trial() && stretch.here + self.coming >= stretch.len => return None,
            Some(_) => {}
            None if self.coming > 0 && trials.is_trial() => return None,
            None => *stretch = Some(Stretch::new(len, trials, now)),
        }
        if way == Way::First {
            if self.coming == 0 {
                (self.moved, self.coming_class) = (now, number);
            }
            self.coming += len as u64;
        }
        Some(way)
    }

    /// Records that the peer has requested a message in parts. What it measures depends on what this process does, so this one tries parts
    /// now, too, instead of later.
    pub(super) fn peer_requests(&mut self) {
        let Class { trials, stretch } = &mut self.classes[self.last];
        if trials.join(Way::First) {
            *stretch = None;
        }
    }

    /// Records that some bytes of a message have come in a part, now.
    #[inline]
    pub(super) fn has_come(&mut self, len: usize, now: impl FnOnce() -> u64) {
        if self.coming > 0 {
            let (len, now) = (self.coming.min(len as u64), now());
            self.coming -= len;
            if now.wrapping_sub(std::mem::replace(&mut self.moved, now)) > self.stall() {
                return self.give_up();
            }
            match self.cold.checked_sub(len) {
                Some(cold) if self.cold > 0 => {
                    self.cold = cold;
                    self.classes[self.coming_class].stretch = None;
                }
                _warm => {
                    self.cold = 0;
                    self.classes[self.coming_class].count(Way::First, len, now);
                }
            }
        }
    }

    /// How long nothing may come, in ticks.
    fn stall(&self) -> u64 {
        if self.cold > 0 { COLD_STALL } else { STALL }
    }

    /// What is coming does not come. It could have been read meanwhile.
    #[cold]
    fn give_up(&mut self) {
        let Class { trials, stretch } = &mut self.classes[self.coming_class];
        trials.give_up(Way::First);
        *stretch = None;
    }

    /// Records that a message was read from the sender's memory, until now.
    pub(super) fn was_read(&mut self, len: usize, now: u64) {
        let number = class(len);
        match &mut self.classes[number] {
            Class { stretch: Some(stretch), .. } if self.coming > 0 && self.coming_class != number => {
                stretch.until = now
            }
            class => class.count(Way::Second, len as u64, now),
        }
    }
}

impl Class {
    /// Counts bytes that have come in this way.
    fn count(&mut self, way: Way, len: u64, now: u64) {
        let Some(stretch) = &mut self.stretch else { return };
        stretch.spent += now.wrapping_sub(stretch.until);
        stretch.until = now;
        // Otherwise it is the rest of the stretch before.
        if way == self.trials.way() {
            stretch.here += len;
        }
        let is_over = stretch.here >= stretch.len;
        if is_over || self.trials.is_too_much(stretch.spent, stretch.len) {
            self.trials.learn(sample(stretch.spent, stretch.here.max(1) as usize), is_over);
            self.stretch = None;
        }
    }
}

impl Stretch {
    fn new(len: usize, trials: &Trials, now: u64) -> Self {
        // At first, reading is tried for longer: whether the sender helps is found out at the same time.
        let is_short = trials.is_trial() && (trials.way() == Way::First || trials.are_known());
        let bytes = if is_short { 0 } else { (MESSAGES * len).min(BYTES) }.max(MESSAGES_LEAST * len);
        Self { len: bytes as u64, here: 0, spent: 0, until: now }
    }

    /// Goes on with a message of this length after a pause. Some of the pause counts, because the process may have waited for what it sends;
    /// all of it would be more than either way costs, if the program computes.
    fn resume(&mut self, len: usize, now: u64) {
        let most = (u128::from(self.spent) * len as u128).checked_div(self.here.into()).unwrap_or(0);
        let pause = now.wrapping_sub(self.until);
        self.spent += u64::try_from(most).unwrap_or(u64::MAX).min(pause);
        self.until = now;
    }
}

#[cfg(test)]
#[cfg(not(loom))]
mod tests {
    use super::*;

    const LEN: usize = 64 << 10;

    /// One message after the other at these costs, in ticks per KiB, with pauses; returns how many came in parts.
    fn messages(streams: &mut Streams, clock: &mut u64, count: usize, costs: [u64; 2], pause: u64) -> usize {
        let mut parts = 0;
        for _ in 0..count {
            let way = streams.choose(LEN, *clock).unwrap();
            *clock += costs[way as usize] * LEN as u64 / 1024;
            match way {
                Way::First => {
                    parts += 1;
                    (0..2).for_each(|_| streams.has_come(LEN / 2, || *clock));
                }
                Way::Second => streams.was_read(LEN, *clock),
            }
            *clock += pause;
        }
        parts
    }

    #[test]
    fn the_faster_way_is_found_also_with_pauses_between_messages() {
        for pause in [0, 100, 10_000, 1 << 30] {
            for costs in [[50, 100], [100, 50]] {
                let (mut streams, mut clock) = (Streams::new(4), 1000);
                assert_eq!(streams.best(), None);
                messages(&mut streams, &mut clock, 200, costs, pause);
                let parts = messages(&mut streams, &mut clock, 10_000, costs, pause);
                let best = if costs[0] < costs[1] { Way::First } else { Way::Second };
                assert_eq!(streams.best(), Some(best), "{costs:?} {pause}");
                assert!(
                    if best == Way::First { parts > 9_500 } else { parts < 500 },
                    "{costs:?} {pause}: {parts} in parts"
                );
            }
        }
    }

    #[test]
    fn the_first_use_of_the_cells_does_not_count_and_is_spread() {
        let (mut streams, mut clock) = (Streams::new(64), 0);
        messages(&mut streams, &mut clock, 2 * MESSAGES, [1000, 100], 0);
        // 80 cells of 32 KiB, for one message in four.
        let parts = messages(&mut streams, &mut clock, 160, [1000, 100], 0);
        assert_eq!((parts, streams.cold, streams.best()), (40, 0, None));
        assert_eq!(messages(&mut streams, &mut clock, 8, [50, 100], 0), 8);
        assert_eq!(streams.best(), Some(Way::First));
    }

    #[test]
    fn several_messages_at_once_are_judged_by_the_time_of_all() {
        let (mut streams, mut clock) = (Streams::new(4), 0);
        let (mut last, mut most) = (Way::Second, 0);
        for _ in 0..200 {
            let (mut left, mut coming) = (16, 0);
            while left > 0 || coming > 0 {
                // Several in parts at once; together, they take less time than as many reads.
                match if left > 0 { streams.choose(LEN, clock) } else { None } {
                    Some(Way::First) => (left, coming, last) = (left - 1, coming + 1, Way::First),
                    Some(Way::Second) => {
                        clock += 100 * 64;
                        streams.was_read(LEN, clock);
                        (left, last) = (left - 1, Way::Second);
                    }
                    None => {
                        assert!(coming > 0, "nothing is coming that it could wait for");
                        clock += 40 * 64;
                        streams.has_come(LEN, || clock);
                        coming -= 1;
                        most = most.max(if streams.best().is_none() { coming } else { 0 });
                    }
                }
            }
        }
        assert_eq!((last, streams.best(), streams.coming()), (Way::First, Some(Way::First), 0));
        assert!(most < MESSAGES_LEAST, "{most} more at once before it was known that parts are faster");
    }

    #[test]
    fn a_sender_that_does_not_answer_is_not_asked_again_soon() {
        let (mut streams, mut clock) = (Streams::new(4), 0);
        messages(&mut streams, &mut clock, 1_000, [50, 100], 0);
        assert_eq!(streams.best(), Some(Way::First));
        // From now on it computes for long, and sends only then.
        let late = messages(&mut streams, &mut clock, 1_000, [STALL / 32, 100], 0);
        assert!(late <= 6, "{late} messages have waited");
    }

    #[test]
    fn what_waits_for_a_trial_does_not_wait_for_a_sender_that_computes() {
        let (mut streams, mut clock) = (Streams::new(0), 0);
        streams.cold = 0;
        messages(&mut streams, &mut clock, 2 * MESSAGES, [50, 100], 0);
        let ways: Vec<_> = (0..6).map(|_| streams.choose(LEN, clock)).collect();
        assert_eq!(ways, [[Some(Way::First); 4].as_slice(), &[None; 2]].concat());
        assert_eq!(streams.choose(16 * LEN, clock), Some(Way::Second), "one of another class is read");
        streams.was_read(16 * LEN, clock);
        assert_eq!(streams.choose(LEN, clock + STALL), None);
        assert_eq!(streams.choose(LEN, clock + STALL + 1), Some(Way::Second));
        assert_eq!(streams.coming(), 4 * LEN as u64);
    }

    #[test]
    fn classes_in_turn_learn_apart() {
        let (mut streams, mut clock) = (Streams::new(0), 0);
        streams.cold = 0;
        // Short ones are faster in parts, long ones are not.
        let mut late = [0; 2];
        for round in 0..4_000 {
            for (at, len) in [LEN, 8 * LEN].into_iter().enumerate() {
                let way = streams.choose(len, clock).unwrap();
                clock += if (way == Way::First) == (at == 0) { 50 } else { 100 } * len as u64 / 1024;
                match way {
                    Way::First => streams.has_come(len, || clock),
                    Way::Second => streams.was_read(len, clock),
                }
                late[at] += usize::from(round >= 200 && (way == Way::First) != (at == 0));
            }
        }
        assert!(late[0] < 200 && late[1] < 200, "{late:?} in the slower way");
    }

    #[test]
    fn the_class_whose_parts_do_not_come_is_given_up() {
        let (mut streams, mut clock) = (Streams::new(0), 0);
        streams.prefer(Way::First);
        let mut late = 0;
        for _ in 0..100 {
            let first = streams.choose(LEN, clock).unwrap();
            let second = streams.choose(8 * LEN, clock).unwrap();
            if second == Way::Second {
                streams.was_read(8 * LEN, clock);
            }
            // The sender computes.
            clock += 10 * STALL;
            match first {
                Way::First => {
                    late += 1;
                    streams.has_come(LEN, || clock);
                }
                Way::Second => streams.was_read(LEN, clock - 10 * STALL),
            }
            if second == Way::First {
                streams.has_come(8 * LEN, || clock);
            }
        }
        assert!(late <= 4, "{late} of 100 have waited");
    }

    #[test]
    fn a_peer_that_requests_parts_is_joined() {
        let (mut streams, mut clock) = (Streams::new(4), 0);
        streams.peer_requests();
        while streams.best().is_none() {
            messages(&mut streams, &mut clock, 1, [100, 50], 0);
        }
        let mut joined = None;
        for nth in 0..1_000 {
            streams.peer_requests();
            if streams.choose(LEN, clock) == Some(Way::First) {
                joined = Some(nth);
                break;
            }
            clock += 50 * 64;
            streams.was_read(LEN, clock);
        }
        assert!(joined.is_some_and(|nth| nth < 200), "{joined:?}");
    }
}
