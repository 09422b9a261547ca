//! Divides a payload among the connections of a link: so that all of them are done with it at the same time.
//!
//! The kernel knows how fast each connection has been lately, how much it has delivered, and how much it has still to deliver. A rail
//! that has carried nothing yet begins with little, and gets twice as much as long as it is done with that before the next payload: so a
//! slow interface never holds up a fast one, and several equal ones share equally after a few payloads.
//!
//! The kernel believes that a network is fast which takes some data at once, and others slowly. So a rail that was busy from one payload
//! to the next counts as fast as it was in that time, and no connection counts as much faster than just before, unless it has delivered
//! as much. And deliveries are reported in lumps, or not at all for a while when a segment was lost: so a measurement counts by its time,
//! together with what was measured before.
//!
//! The slowest rails are left out if together they would add little: a segment that is lost there would hold up a payload for longer than
//! they save.

use std::time::{Duration, Instant};

use super::super::socket::Pace;
use super::super::wire::{Cut, LANES_MAX};

/// A rail gets no shorter slice: each costs two system calls.
const SLICE_MIN: usize = 8 << 10;
/// A rail that is too slow for a slice is tried again, beginning with [`SLICE_MIN`], after this many payloads: it may have become faster.
const FORGIVEN: u32 = 256;
/// Slices are as long as multiples of this, so that user memory is copied from good places.
const UNIT: usize = 64;
/// A rail's first share, relative to the main connection.
const FIRST: f64 = 1.0 / 32.0;
/// The slowest rails are left out if all of them together have less than this share of the speed of all connections.
const WORTH: f64 = 1.0 / 16.0;
/// What was measured earlier counts as much as a measurement of this many seconds at most, depending on the speed.
const MEMORY: [f64; 2] = [0.1, 1.0];
/// Between these two, it is the time for this many bytes: the kernel reports up to 64 KiB at once.
const MEMORY_BYTES: f64 = (256 << 10) as f64;
/// A connection is measured for so long: several payloads may follow each other before the first is under way.
const WINDOW: Duration = Duration::from_millis(10);
/// What the kernel says makes a connection at most this much faster in a [`WINDOW`].
const GROWTH: f64 = 1.25;
/// And at most this much slower.
const DECLINE: f64 = 0.5;

/// How fast a connection is.
#[derive(Debug, Clone, Copy)]
pub(super) struct Speed {
    /// Bytes in a second; 0 if unknown.
    rate: f64,
    /// When the rate was determined by what the kernel said.
    said: Option<Instant>,
    /// Until it is known, its share relative to the main connection.
    trial: Option<f64>,
    /// Bytes that the kernel has not delivered.
    backlog: f64,
    /// Payloads of which it has got nothing.
    left_out: u32,
    /// When the last measurement ended, and how many bytes it had delivered until then.
    since: Option<(Instant, u64)>,
    /// For how many seconds the rate was measured, as far as that still counts.
    weight: f64,
}

impl Speed {
    pub(super) const MAIN: Self =
        Self { rate: 0.0, said: None, trial: None, backlog: 0.0, left_out: 0, since: None, weight: 0.0 };
    pub(super) const RAIL: Self = Self { trial: Some(FIRST), ..Self::MAIN };

    /// Bytes in a second; 0 if unknown.
    pub(super) fn rate(&self) -> f64 {
        self.rate
    }

    /// Takes what the kernel says of the main connection before a payload is divided. It also carries other messages, so that it may have
    /// been idle although it is busy now.
    pub(super) fn look(&mut self, pace: Pace, now: Instant) {
        self.backlog = pace.backlog as f64;
        let (bytes, seconds) = self.measured(pace, now).unwrap_or((0.0, 1.0));
        self.believe(pace, bytes / seconds, now);
    }

    /// Takes what the kernel says of a rail; `queued` bytes are still to be given to the kernel, and the main connection is so fast.
    pub(super) fn look_at_rail(&mut self, pace: Pace, queued: usize, now: Instant, main: f64) {
        let was_tried = self.since.is_some() && self.left_out == 0;
        self.backlog = (pace.backlog + queued as u64) as f64;
        let is_busy = self.backlog > 0.0;
        match (self.measured(pace, now), self.trial) {
            (Some((bytes, seconds)), _) if is_busy => {
                self.remember(bytes, seconds);
                if self.rate > 0.0 {
                    self.trial = None;
                }
            }
            (None, _) if is_busy => {}
            (_, Some(share)) if was_tried => {
                let next = share * 2.0;
                (self.trial, self.rate, self.weight) =
                    if next <= 1.0 { (Some(next), 0.0, 0.0) } else { (None, main, MEMORY[0]) };
            }
            (_, Some(_)) => {}
            (measured, None) => {
                // It was idle for some of the time.
                if let Some((bytes, seconds)) = measured.filter(|(bytes, seconds)| *bytes > self.rate * seconds) {
                    self.remember(bytes, seconds);
                }
                self.believe(pace, 0.0, now);
                self.weight = if self.rate > 0.0 { MEMORY[0] / 2.0 } else { 0.0 };
            }
        }
    }

    /// Takes what it has delivered in these seconds together with what was measured before.
    fn remember(&mut self, bytes: f64, seconds: f64) {
        let weight = self.weight.min((MEMORY_BYTES / self.rate.max(1.0)).clamp(MEMORY[0], MEMORY[1]));
        self.weight = weight + seconds;
        self.rate = (self.rate * weight + bytes) / self.weight;
    }

    /// How many bytes it has delivered since the last measurement, and in how many seconds, if that is long enough ago.
    fn measured(&mut self, pace: Pace, now: Instant) -> Option<(f64, f64)> {
        let (since, delivered) = *self.since.get_or_insert((now, pace.delivered));
        let time = now.saturating_duration_since(since);
        let is_long = time >= WINDOW;
        if is_long || self.backlog == 0.0 {
            self.since = Some((now, pace.delivered));
        }
        is_long.then(|| (pace.delivered.saturating_sub(delivered) as f64, time.as_secs_f64()))
    }

    /// Takes what the kernel says, within limits; it has delivered `least` bytes in a second, at least.
    fn believe(&mut self, pace: Pace, least: f64, now: Instant) {
        let rate = pace.rate as f64;
        if self.rate == 0.0 {
            (self.rate, self.said) = (rate, Some(now));
        } else if rate > 0.0 && self.said.is_none_or(|said| now.saturating_duration_since(said) >= WINDOW) {
            (self.rate, self.said) = (rate.clamp(self.rate * DECLINE, self.rate * GROWTH), Some(now));
        }
        self.rate = self.rate.max(least);
    }
}

/// Divides a payload of this length; `speeds[0]` is the main connection's, and rails without a speed get nothing.
pub(super) fn divide(len: usize, speeds: &mut [Option<Speed>; LANES_MAX]) -> Cut {
    let main = speeds[0].map_or(1.0, |main| main.rate.max(1.0));
    let known = |speed: &Speed| match speed.trial {
        Some(_) => None,
        None => Some(if speed.rate > 0.0 { speed.rate } else { main }),
    };
    let all: f64 = speeds.iter().flatten().filter_map(known).sum();
    let too_slow = too_slow(&speeds.map(|speed| speed.as_ref().and_then(known)), all);
    let least = 1.25 * SLICE_MIN as f64 / len as f64 * all / main;
    let rate = |speed: &mut Speed| match &mut speed.trial {
        Some(share) => {
            *share = share.max(least);
            *share * main
        }
        None => known(speed).unwrap_or(main),
    };
    let lanes = speeds.iter_mut().enumerate().filter_map(|(at, speed)| {
        let speed = speed.as_mut().filter(|_| !too_slow[at])?;
        Some((at, rate(speed), speed.backlog))
    });
    let mut cut = share(len, lanes.collect());
    for (slice, speed) in cut.iter_mut().zip(&*speeds) {
        let Some(Speed { trial: Some(share), backlog, .. }) = speed else { continue };
        // No more than this is under way: what it cannot do delays all that follows.
        let room = ((share * len as f64 - backlog).clamp(0.0, len as f64) as usize / UNIT * UNIT) as u32;
        *slice = (*slice).min(if room < SLICE_MIN as u32 { 0 } else { room });
    }
    for (len, speed) in cut.iter_mut().zip(speeds.iter_mut()).skip(1) {
        let Some(speed) = speed else { continue };
        speed.left_out = if *len == 0 { speed.left_out + 1 } else { 0 };
        if speed.left_out == FORGIVEN {
            *speed = Speed { trial: Some(0.0), ..Speed::RAIL };
        }
    }
    // The rest is the main connection's.
    let mut left = len as u32;
    for len in &mut cut[1..] {
        *len = (*len).min(left);
        left -= *len;
    }
    cut[0] = left;
    cut
}

/// Which rails of these rates, of `all` connections together, are not worth their risk; the first one is the main connection.
fn too_slow(rates: &[Option<f64>; LANES_MAX], all: f64) -> [bool; LANES_MAX] {
    let mut rails: Vec<(usize, f64)> =
        rates.iter().enumerate().skip(1).filter_map(|(at, rate)| rate.map(|rate| (at, rate))).collect();
    rails.sort_by(|one, other| one.1.total_cmp(&other.1));
    let mut left_out = [false; LANES_MAX];
    let mut sum = 0.0;
    for (at, rate) in rails {
        sum += rate;
        left_out[at] = sum < WORTH * all;
    }
    left_out
}

/// Shares so that all connections `(number, rate, backlog)` end together. One that is busy for longer gets nothing, nor does a rail that
/// would get less than [`SLICE_MIN`].
fn share(len: usize, mut lanes: Vec<(usize, f64, f64)>) -> Cut {
    loop {
        let rates: f64 = lanes.iter().map(|lane| lane.1).sum();
        let backlogs: f64 = lanes.iter().map(|lane| lane.2).sum();
        let end = (len as f64 + backlogs) / rates;
        let bytes = |lane: &(usize, f64, f64)| lane.1 * end - lane.2;
        let least = lanes.iter().map(bytes).enumerate().min_by(|one, other| one.1.total_cmp(&other.1));
        match least {
            Some((at, bytes)) if bytes < SLICE_MIN as f64 && lanes.len() > 1 => drop(lanes.remove(at)),
            Some(_) | None => {
                let mut cut = Cut::default();
                for lane in &lanes {
                    cut[lane.0] = (bytes(lane) as usize / UNIT * UNIT).min(len) as u32;
                }
                return cut;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MIB: usize = 1 << 20;

    fn speed(rate: u64, backlog: u64) -> Option<Speed> {
        let mut speed = Speed::MAIN;
        speed.look(Pace { rate, backlog, delivered: 0 }, Instant::now());
        Some(speed)
    }

    fn lanes(first: &[Option<Speed>]) -> [Option<Speed>; LANES_MAX] {
        std::array::from_fn(|at| first.get(at).copied().flatten())
    }

    fn whole(cut: &Cut) -> usize {
        cut.iter().map(|len| *len as usize).sum()
    }

    #[test]
    fn shares_are_in_proportion_to_speed_and_add_up() {
        let cut = divide(MIB, &mut lanes(&[speed(300, 0), None, speed(100, 0)]));
        assert_eq!((cut[0] as usize, cut[2] as usize), (MIB * 3 / 4, MIB / 4));
        // What is queued counts.
        let cut = divide(MIB, &mut lanes(&[speed(100, MIB as u64 / 2), speed(100, 0)]));
        assert_eq!((cut[0] as usize, cut[1] as usize), (MIB / 4, MIB * 3 / 4));
        let cut = divide(MIB, &mut lanes(&[speed(100, 0), speed(100, 2 * MIB as u64), speed(100, 0)]));
        assert_eq!((cut[0], cut[1], cut[2]), (1 << 19, 0, 1 << 19));
        for len in (65_536..5 * MIB).step_by(77_777) {
            for rates in [[1, 1, 1], [9, 5, 1], [1_000_000, 3, 1], [1, 1_000_000, 500_000], [0, 0, 0]] {
                let cut = divide(len, &mut lanes(&rates.map(|rate| speed(rate, 0))));
                assert_eq!(whole(&cut), len, "{rates:?}");
                assert!(cut[1..].iter().all(|len| *len == 0 || *len as usize >= SLICE_MIN), "{cut:?}");
            }
        }
    }

    /// A rail as a kernel sees it, which is looked at now and then.
    struct Rail {
        speed: Speed,
        pace: Pace,
        now: Instant,
    }

    impl Rail {
        fn of_known_speed(rate: u64) -> Self {
            let speed = Speed { trial: None, rate: rate as f64, ..Speed::RAIL };
            let mut rail = Self { speed, pace: Pace { rate, backlog: 0, delivered: 0 }, now: Instant::now() };
            rail.after(0, 0, 0);
            rail
        }

        /// Looks at it after so many milliseconds, in which it has delivered so many bytes; so many are left.
        fn after(&mut self, ms: u64, delivered: u64, backlog: u64) -> f64 {
            self.now += Duration::from_millis(ms);
            self.pace = Pace { delivered: self.pace.delivered + delivered, backlog, ..self.pace };
            self.speed.look_at_rail(self.pace, 0, self.now, 1e6);
            self.speed.rate
        }
    }

    #[test]
    fn a_new_rail_gets_more_until_it_is_too_much() {
        let (mut speeds, mut pace, start) =
            (lanes(&[speed(800, 0), Some(Speed::RAIL)]), Pace::default(), Instant::now());
        let mut shares = Vec::new();
        for (ms, backlog) in [(0, 0), (1, 0), (2, 5_000), (22, 0), (23, 0), (24, 0), (25, 0), (1_025, 5_000)] {
            pace.delivered += ms;
            pace.backlog = backlog;
            speeds[1].as_mut().unwrap().look_at_rail(pace, 0, start + Duration::from_millis(ms), 800.0);
            shares.push(divide(MIB, &mut speeds)[1] as usize * 100 / MIB);
        }
        // It is done, it is not but had little time, it is done four times, and then not after a second.
        assert_eq!(shares, [3, 5, 5, 11, 19, 33, 50, 55]);
    }

    #[test]
    fn a_rail_that_was_busy_is_as_fast_as_it_was() {
        // The kernel takes it for faster than it is.
        let mut rail = Rail::of_known_speed(1_000_000);
        let first = rail.after(1_000, 100_000, 400_000);
        assert!((100e3..150e3).contains(&first), "{first}");
        let again = rail.after(1_000, 100_000, 300_000);
        assert!((100e3..125e3).contains(&again), "{again}");
        // It had nothing to do for a while, so it was at least as fast as this, and perhaps as the kernel says.
        let idle = rail.after(8_000, 300_000, 0);
        assert_eq!(idle, again * GROWTH);
    }

    #[test]
    fn a_rail_that_stopped_for_a_while_is_soon_as_fast_as_before() {
        let mut rail = Rail::of_known_speed(24_000_000);
        let steady = rail.after(40, 960_000, 500_000);
        assert_eq!(steady, 24e6);
        let stopped = rail.after(30, 0, 1_000_000);
        assert!((5e6..20e6).contains(&stopped), "{stopped}");
        // It repeats what was lost, and then everything has arrived.
        let busy = rail.after(50, 1_200_000, 100_000);
        assert!((15e6..24e6).contains(&busy), "{busy}");
        assert!(rail.after(40, 900_000, 0) > 22e6);
        // Also if nothing was known of it before, and the kernel tells nothing.
        let mut rail = Rail::of_known_speed(0);
        assert_eq!(rail.after(30, 0, 1_000_000), 0.0);
        assert_eq!(rail.after(50, 1_000_000, 0), 12.5e6);
    }

    #[test]
    fn a_rail_whose_deliveries_are_reported_in_lumps_is_as_fast_as_on_average() {
        // 1.2 MB/s, in 64 KiB: so nothing arrives between some of the looks.
        let mut rail = Rail::of_known_speed(1_200_000);
        let mut speeds = lanes(&[speed(24_000_000, 0), Some(rail.speed)]);
        let (mut total, mut told) = (0, 0);
        for look in 0..100 {
            total += 36_000;
            let lump = (total - told) / 65_536 * 65_536;
            told += lump;
            let rate = rail.after(30, lump, 500_000);
            assert!(look < 10 || (0.8e6..1.6e6).contains(&rate), "look {look}: {rate}");
            speeds[1] = Some(rail.speed);
            assert_eq!(divide(MIB, &mut speeds)[1], 0);
        }
    }

    #[test]
    fn a_rail_that_delivers_nothing_does_not_count_as_fast() {
        let mut rail = Rail::of_known_speed(24_000_000);
        let mut before = f64::MAX;
        for _ in 0..50 {
            let rate = rail.after(30, 0, 500_000);
            assert!(0.0 < rate && rate < before, "{rate} after {before}");
            before = rate;
        }
        assert!(before < 2e6, "{before}");
        let cut = divide(MIB, &mut lanes(&[speed(24_000_000, 0), Some(rail.speed)]));
        assert_eq!(cut[1], 0);
    }

    #[test]
    fn a_rail_that_would_add_little_gets_nothing_after_it_was_tried() {
        let mut speeds = lanes(&[speed(240, 0), Some(Speed::RAIL), speed(14, 0), speed(20, 0)]);
        let cut = divide(MIB, &mut speeds);
        assert!(cut[1] > 0 && (cut[1] as usize) < MIB / 32, "{cut:?}");
        assert_eq!(cut[2], 0);
        assert!(cut[3] > 0);
        // Together they may add much.
        let mut many: [_; LANES_MAX] = std::array::from_fn(|at| speed(if at == 0 { 1_000 } else { 60 }, 0));
        let cut = divide(MIB, &mut many);
        assert_eq!(cut[1..].iter().filter(|len| **len > 0).count(), LANES_MAX - 2, "{cut:?}");
        // A connection that is the slowest may be the main one.
        let cut = divide(MIB, &mut lanes(&[speed(14, 0), speed(240, 0)]));
        assert!(cut[0] > 0 && cut[1] > cut[0], "{cut:?}");
    }

    #[test]
    fn a_burst_that_the_network_takes_at_once_says_little() {
        let mut main = Speed::MAIN;
        let start = Instant::now();
        main.look(Pace { rate: 24_000_000, backlog: 0, delivered: 0 }, start);
        for (ms, expected) in [(1, 24e6), (9, 24e6), (11, 30e6), (12, 30e6)] {
            let pace = Pace { rate: 320_000_000, backlog: 1 << 20, delivered: 100_000 };
            main.look(pace, start + Duration::from_millis(ms));
            assert_eq!(main.rate, expected, "after {ms} ms");
        }
        main.look(Pace { rate: 23_000_000, backlog: 0, delivered: 1_000_000 }, start + Duration::from_millis(41));
        assert_eq!(main.rate, 9e5 / 0.03);
        let mut rail = Rail::of_known_speed(1_000_000);
        rail.pace.rate = 320_000_000;
        assert_eq!(rail.after(1, 100_000, 0), 1e6);
        assert_eq!(rail.after(11, 5_000, 0), 1.25e6);
    }

    #[test]
    fn a_rail_is_tried_beside_several_others() {
        for known in 1..LANES_MAX - 1 {
            for len in [64 << 10, 256 << 10, MIB] {
                let mut speeds = [None; LANES_MAX];
                speeds[..=known].fill(speed(1_000_000, 0));
                speeds[known + 1] = Some(Speed { trial: Some(0.0), ..Speed::RAIL });
                let cut = divide(len, &mut speeds);
                assert!((SLICE_MIN..2 * SLICE_MIN).contains(&(cut[known + 1] as usize)), "{known}, {len}: {cut:?}");
            }
        }
    }

    #[test]
    fn a_trial_does_not_depend_on_what_the_main_connection_has_still_to_send() {
        let mut speeds = lanes(&[speed(24_000_000, 2 << 20), Some(Speed::RAIL)]);
        assert_eq!(divide(MIB, &mut speeds)[1] as usize, MIB / 32);
        speeds[1].as_mut().unwrap().backlog = 10_000.0;
        let slice = divide(MIB, &mut speeds)[1] as usize;
        assert!((MIB / 32 - 10_064..=MIB / 32 - 10_000).contains(&slice), "{slice}");
    }

    #[test]
    fn a_rail_that_is_too_slow_is_tried_again_later() {
        let mut speeds = lanes(&[speed(1_000_000, 0), speed(1, 0)]);
        let (mut pace, now) = (Pace::default(), Instant::now());
        let mut slices = Vec::new();
        for _ in 0..2 * FORGIVEN {
            speeds[1].as_mut().unwrap().look_at_rail(pace, 0, now, 1e6);
            let slice = divide(MIB, &mut speeds)[1];
            pace.backlog += u64::from(slice);
            slices.extend((slice > 0).then_some(slice as usize));
        }
        assert_eq!(slices.len(), 1, "{slices:?}");
        assert!((SLICE_MIN..2 * SLICE_MIN).contains(&slices[0]), "{slices:?}");
        // If it is done with that, it gets more.
        pace.backlog = 0;
        for _ in 0..8 {
            speeds[1].as_mut().unwrap().look_at_rail(pace, 0, now, 1e6);
            slices.push(divide(MIB, &mut speeds)[1] as usize);
        }
        assert!(slices[8] > MIB / 3, "{slices:?}");
    }
}
