//! Divides a payload among the connections of a link: so that all of them are done with it at the same time.
//!
//! The kernel knows how fast each connection has been lately, and how much it has still to deliver. A rail that has carried nothing
//! yet begins with little, and gets twice as much as long as it is done with that before the next payload: so a slow interface never
//! holds up a fast one, and several equal ones share equally after a few payloads.
//!
//! The kernel believes that a network is fast which takes some data at once, and others slowly. So a rail that was busy from one payload to
//! the next counts as fast as it was in that time.

use std::time::{Duration, Instant};

use super::super::socket::Pace;
use super::super::wire::{Cut, LANES_MAX};

/// A rail gets no shorter slice: each costs two system calls.
const SLICE_MIN: usize = 8 << 10;
/// A connection that is too slow for a slice gets one of [`SLICE_MIN`] after this many payloads, since it may have become faster.
const FORGIVEN: u32 = 256;
/// Slices are as long as multiples of this, so that user memory is copied from good places.
const UNIT: usize = 64;
/// A rail's first share, relative to the main connection.
const FIRST: f64 = 1.0 / 8.0;
/// Of a new measurement, this much counts.
const WEIGHT: f64 = 1.0 / 4.0;
/// A rail is measured for so long: several payloads may follow each other before the first is under way.
const WINDOW: Duration = Duration::from_millis(10);
/// A rail that was done in time gets at most this much more than before.
const GROWTH: f64 = 1.25;

/// How fast a connection is.
#[derive(Debug, Clone, Copy)]
pub(super) struct Speed {
    /// Bytes in a second; 0 if unknown.
    rate: f64,
    /// Until it is known, its share relative to the main connection.
    trial: Option<f64>,
    /// Bytes that the kernel has not delivered.
    backlog: f64,
    /// Payloads of which it has got nothing.
    left_out: u32,
    /// Bytes of payloads that the rail has been given.
    given: u64,
    /// How many of them were delivered when it was measured last or had nothing to do, and when that was.
    delivered: (u64, Option<Instant>),
}

impl Speed {
    pub(super) const MAIN: Self =
        Self { rate: 0.0, trial: None, backlog: 0.0, left_out: 0, given: 0, delivered: (0, None) };
    pub(super) const RAIL: Self = Self { trial: Some(FIRST), ..Self::MAIN };

    /// Takes what the kernel says before a payload is divided; `queued` bytes are still to be given to the kernel.
    pub(super) fn look(&mut self, pace: Pace, queued: usize, now: Instant) {
        let was_new = self.rate == 0.0 || self.trial.is_some();
        let rate = match self.busy_rate(pace, now) {
            Some(rate) => rate,
            None if was_new || self.given == 0 => pace.rate as f64,
            None if pace.backlog > 0 => self.rate,
            None => (pace.rate as f64).min(self.rate * GROWTH),
        };
        self.rate += (rate - self.rate) * if was_new || rate < self.rate / 2.0 { 1.0 } else { WEIGHT };
        self.backlog = (pace.backlog + queued as u64) as f64;
        self.trial = match self.trial {
            // The kernel has measured what it could not deliver at once.
            Some(_) if pace.backlog > 0 => None,
            Some(share) => Some(share * 2.0).filter(|share| *share <= 1.0),
            None => None,
        };
    }

    /// The rail gets so many bytes of a payload.
    pub(super) fn give(&mut self, bytes: usize) {
        self.given += bytes as u64;
    }

    /// How fast a rail was, if it was busy at all looks for a while.
    fn busy_rate(&mut self, pace: Pace, now: Instant) -> Option<f64> {
        let delivered = self.given.saturating_sub(pace.backlog);
        let (before, since) = self.delivered;
        let time = since.map_or(Duration::MAX, |since| now.saturating_duration_since(since));
        let is_busy = since.is_some() && self.given > 0 && pace.backlog > 0;
        if is_busy && time < WINDOW {
            return None;
        }
        self.delivered = (delivered, Some(now));
        is_busy.then(|| delivered.saturating_sub(before).max(1) as f64 / time.as_secs_f64())
    }
}

/// Divides a payload of this length; `speeds[0]` is the main connection's, and rails without a speed get nothing.
pub(super) fn divide(len: usize, speeds: &mut [Option<Speed>; LANES_MAX]) -> Cut {
    let main = speeds[0].map_or(1.0, |main| main.rate.max(1.0));
    let rate = |speed: &Speed| match speed.trial {
        Some(share) => share * main,
        None if speed.rate > 0.0 => speed.rate,
        None => main,
    };
    let lanes: Vec<(usize, f64, f64)> = speeds
        .iter()
        .enumerate()
        .filter_map(|(at, speed)| speed.as_ref().map(|speed| (at, rate(speed), speed.backlog)))
        .collect();
    let mut cut = share(len, lanes);
    for (len, speed) in cut.iter_mut().zip(speeds.iter_mut()).skip(1) {
        let Some(speed) = speed else { continue };
        speed.left_out = if *len == 0 { speed.left_out + 1 } else { 0 };
        if speed.left_out == FORGIVEN {
            speed.left_out = 0;
            *len = SLICE_MIN as u32;
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
        speed.look(Pace { rate, backlog }, 0, Instant::now());
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

    #[test]
    fn a_new_rail_gets_more_until_it_is_too_much() {
        let mut speeds = lanes(&[speed(800, 0), Some(Speed::RAIL)]);
        let mut shares = Vec::new();
        for backlog in [0, 0, 5_000] {
            speeds[1].as_mut().unwrap().look(Pace { rate: 80, backlog }, 0, Instant::now());
            shares.push(divide(MIB, &mut speeds)[1] as usize * 100 / MIB);
        }
        assert_eq!(shares, [19, 33, 8]);
    }

    #[test]
    fn a_rail_that_was_busy_is_as_fast_as_it_was() {
        let (mut rail, start) = (Speed::MAIN, Instant::now());
        rail.look(Pace { rate: 1_000_000, backlog: 0 }, 0, start);
        rail.give(500);
        // The kernel takes it for faster than it is.
        rail.look(Pace { rate: 1_000_000, backlog: 400 }, 0, start + Duration::from_secs(1));
        assert_eq!(rail.rate, 100.0);
        rail.look(Pace { rate: 1_000_000, backlog: 0 }, 0, start + Duration::from_secs(9));
        assert!((100.0..=125.0).contains(&rail.rate), "{rail:?}");
    }

    #[test]
    fn a_rail_that_is_too_slow_is_tried_again_later() {
        let mut speeds = lanes(&[speed(1_000_000, 0), speed(1, 0)]);
        let slices: Vec<u32> = (0..2 * FORGIVEN).map(|_| divide(MIB, &mut speeds)[1]).filter(|len| *len > 0).collect();
        assert_eq!(slices, [SLICE_MIN as u32; 2]);
    }
}
