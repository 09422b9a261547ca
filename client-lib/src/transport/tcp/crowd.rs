//! Whether a connection to another host is crowded: the network between loses what is sent.
//!
//! A long message is sent when its receiver has admitted it ([`super::admission`]), but messages up to the eager limit are sent at once, and
//! many hosts may do so to one at the same time. On a crowded connection the eager limit is [`CROWDED_EAGER`]: then messages of 16 to 128 KiB
//! are admitted too. A connection is crowded for [`REMEMBER`] after more than 1 in [`PART`] of the bytes sent on it had to be sent again.
//!
//! The kernel counts the segments that it has sent again. The count is read when an eager message of [`CROWDED_EAGER`] or more is sent, at most
//! once in [`LOOK`]: it costs a system call, and the time another for none. Other messages cost an addition. The first collapse of a network is
//! not prevented in this way, but those after it are.

use std::time::{Duration, Instant};

use super::Tcp;
use super::directory::Way;
use super::socket::{self, Resent};
use crate::engine::{FrameLimits, Peer};

/// The eager limit on a crowded connection.
pub(super) const CROWDED_EAGER: usize = 16 << 10;

/// How long a connection is crowded.
pub(super) const REMEMBER: Duration = Duration::from_secs(30);

/// The shortest time between two looks.
const LOOK: Duration = Duration::from_millis(10);

/// The part of the bytes that may be lost.
const PART: u64 = 32;

/// So few lost segments mean nothing: any network loses one now and then.
const FEW: u32 = 3;

/// At least so many bytes are judged together, unless the judgement is that the connection is crowded.
const ENOUGH: u64 = 128 << 10;

/// What is known of one connection.
#[derive(Debug)]
pub(super) struct Crowd {
    looked: Instant,
    /// The counts since which the connection is judged.
    sent: u64,
    segments: u32,
    until: Option<Instant>,
}

impl Crowd {
    /// Of a connection on which so much has been sent, and sent again.
    pub(super) const fn new(sent: u64, resent: Resent, now: Instant) -> Self {
        Self { looked: now, sent, segments: resent.segments, until: None }
    }

    pub(super) fn is_crowded(&self) -> bool {
        self.until.is_some()
    }

    fn is_due(&self, now: Instant) -> bool {
        now >= self.looked + LOOK
    }

    /// Judges by the counts of now.
    fn look(&mut self, sent: u64, resent: Resent, now: Instant) {
        self.looked = now;
        let is_crowded =
            is_crowded(sent - self.sent, resent.segments.wrapping_sub(self.segments), resent.segment_bytes);
        if is_crowded {
            self.until = Some(now + REMEMBER);
        } else {
            self.expire(now);
        }
        if is_crowded || sent - self.sent >= ENOUGH {
            (self.sent, self.segments) = (sent, resent.segments);
        }
    }

    fn expire(&mut self, now: Instant) {
        self.until = self.until.filter(|until| *until > now);
    }
}

/// Whether too many segments were sent again, of `sent` bytes.
fn is_crowded(sent: u64, segments: u32, segment_bytes: u32) -> bool {
    segments >= FEW && u64::from(segments) * u64::from(segment_bytes) * PART > sent
}

impl Tcp {
    /// The longest payloads of one frame to this peer.
    #[inline]
    pub fn limits(&self, to: Peer) -> FrameLimits {
        if self.crowded > 0 { self.limits_if_crowded(to) } else { self.limits }
    }

    fn limits_if_crowded(&self, to: Peer) -> FrameLimits {
        let mut limits = self.limits;
        if let Some(Way::Open(id)) = self.directory.way(to)
            && self.links.get(id).is_some_and(|link| link.is_crowded())
        {
            limits.eager = limits.eager.min(CROWDED_EAGER);
            limits.eager_device = limits.eager_device.min(CROWDED_EAGER);
        }
        limits
    }

    /// A rather long eager message has been sent on this link, to another host.
    #[cold]
    pub(super) fn look_at_crowd(&mut self, id: u32, now: Instant) {
        let Some(link) = self.links.get_mut(id) else { return };
        if link.crowd.as_ref().is_some_and(|crowd| !crowd.is_due(now)) {
            return;
        }
        let Some(resent) = socket::resent(&link.socket) else { return };
        let was_crowded = link.is_crowded();
        let sent = link.sent;
        link.crowd.get_or_insert_with(|| Box::new(Crowd::new(sent, resent, now))).look(sent, resent, now);
        self.crowded = self.crowded + usize::from(link.is_crowded()) - usize::from(was_crowded);
    }

    /// Ends what has lasted for long enough.
    pub(super) fn expire_crowds(&mut self, now: Instant) {
        if self.crowded > 0 {
            for link in self.links.iter_mut() {
                link.crowd.iter_mut().for_each(|crowd| crowd.expire(now));
            }
            self.crowded = self.links.iter().filter(|(_, link)| link.is_crowded()).count();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SEGMENT: u32 = 1448;

    const fn resent(segments: u32) -> Resent {
        Resent { segments, segment_bytes: SEGMENT }
    }

    #[test]
    fn a_connection_is_crowded_if_more_than_a_thirty_second_part_is_sent_again() {
        let lost = |segments: u64| segments * u64::from(SEGMENT) * PART;
        for segments in [FEW, 10, 1_000_000] {
            assert!(is_crowded(lost(segments.into()) - 1, segments, SEGMENT));
            assert!(!is_crowded(lost(segments.into()), segments, SEGMENT));
        }
        assert!(!is_crowded(0, 0, SEGMENT) && !is_crowded(0, FEW - 1, SEGMENT));
    }

    #[test]
    fn losses_are_remembered_for_a_while_after_the_last_ones() {
        let start = Instant::now();
        let mut crowd = Crowd::new(1_000_000, resent(7), start);
        assert!(!crowd.is_due(start + LOOK / 2) && crowd.is_due(start + LOOK));
        crowd.look(1_065_536, resent(8), start + LOOK);
        assert!(!crowd.is_crowded(), "one segment");
        // Together with the one before, since so little has been sent.
        crowd.look(1_100_000, resent(10), start + 2 * LOOK);
        assert!(crowd.is_crowded());
        let again = start + REMEMBER / 2;
        crowd.look(1_200_000, resent(20), again);
        crowd.look(100_000_000, resent(21), again + REMEMBER - LOOK);
        assert!(crowd.is_crowded());
        crowd.look(200_000_000, resent(21), again + REMEMBER);
        assert!(!crowd.is_crowded());
        // What was sent in between does not dilute the next losses.
        crowd.look(200_065_536, resent(30), again + REMEMBER + LOOK);
        assert!(crowd.is_crowded());
        crowd.expire(again + 2 * REMEMBER + LOOK);
        assert!(!crowd.is_crowded());
    }
}
