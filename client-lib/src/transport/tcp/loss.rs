//! Whether a connection to another host is lossy: the network between loses what is sent.
//!
//! A long message is sent when its receiver has admitted it ([`super::admission`]), but messages up to the eager limit are sent at once, and
//! many hosts may do so to one at the same time. On a lossy connection the eager limit is [`LOSSY_EAGER`]: then messages of 16 to 128 KiB
//! are admitted too. A connection is lossy for [`REMEMBER`] after more than 1 in [`PART`] of the bytes sent on it had to be sent again.
//!
//! The kernel counts the segments that it has sent again. The count is read when an eager message of [`LOSSY_EAGER`] or more is sent, at most
//! once in [`LOOK`], because a look costs a system call; reading the clock does not. Other messages cost an addition. The first collapse of
//! a network is not prevented in this way, but those after it are.

use std::time::{Duration, Instant};

use super::Tcp;
use super::directory::Way;
use super::socket::{self, Resent};
use crate::engine::{FrameLimits, Peer};

/// The eager limit on a lossy connection.
pub(super) const LOSSY_EAGER: usize = 16 << 10;

/// How long a connection is lossy.
pub(super) const REMEMBER: Duration = Duration::from_secs(30);

/// The shortest time between two looks.
const LOOK: Duration = Duration::from_millis(10);

/// The part of the bytes that may be lost.
const PART: u64 = 32;

/// So few lost segments mean nothing: any network loses one now and then.
const FEW: u32 = 3;

/// At least so many bytes are judged together, unless the judgement is that the connection is lossy.
const ENOUGH: u64 = 128 << 10;

/// What is known of one connection.
#[derive(Debug)]
pub(super) struct Loss {
    looked: Instant,
    /// The counts since which the connection is judged.
    sent: u64,
    segments: u32,
    until: Option<Instant>,
}

impl Loss {
    /// Of a connection on which so much has been sent, and sent again.
    pub(super) const fn new(sent: u64, resent: Resent, now: Instant) -> Self {
        Self { looked: now, sent, segments: resent.segments, until: None }
    }

    pub(super) fn is_lossy(&self) -> bool {
        self.until.is_some()
    }

    fn is_due(&self, now: Instant) -> bool {
        now >= self.looked + LOOK
    }

    /// Judges by the counts of now.
    fn look(&mut self, sent: u64, resent: Resent, now: Instant) {
        self.looked = now;
        // The count falls when the peer tells that it had already received some of them.
        let segments = resent.segments.wrapping_sub(self.segments).cast_signed().max(0).cast_unsigned();
        let is_lossy = is_much(sent - self.sent, segments, resent.segment_bytes);
        if is_lossy {
            self.until = Some(now + REMEMBER);
        } else {
            self.expire(now);
        }
        if is_lossy || sent - self.sent >= ENOUGH {
            (self.sent, self.segments) = (sent, resent.segments);
        }
    }

    fn expire(&mut self, now: Instant) {
        self.until = self.until.filter(|until| *until > now);
    }
}

/// Whether so many lost segments are too many, of `sent` bytes.
pub(super) fn is_much(sent: u64, segments: u32, segment_bytes: u32) -> bool {
    segments >= FEW && u64::from(segments) * u64::from(segment_bytes) * PART > sent
}

impl Tcp {
    /// The longest payloads of one frame to this peer.
    #[inline]
    pub fn limits(&self, to: Peer) -> FrameLimits {
        if self.lossy > 0 { self.limits_if_lossy(to) } else { self.limits }
    }

    fn limits_if_lossy(&self, to: Peer) -> FrameLimits {
        let mut limits = self.limits;
        if let Some(Way::Open(id)) = self.directory.way(to)
            && self.links.get(id).is_some_and(|link| link.is_lossy())
        {
            limits.eager = limits.eager.min(LOSSY_EAGER);
            limits.eager_device = limits.eager_device.min(LOSSY_EAGER);
        }
        limits
    }

    /// A rather long eager message has been sent on this link, to another host.
    #[cold]
    pub(super) fn look_for_loss(&mut self, id: u32, now: Instant) {
        let Some(link) = self.links.get_mut(id) else { return };
        if link.loss.as_ref().is_some_and(|loss| !loss.is_due(now)) {
            return;
        }
        let Some(resent) = socket::resent(&link.socket) else { return };
        let was_lossy = link.is_lossy();
        let sent = link.sent;
        link.loss.get_or_insert_with(|| Box::new(Loss::new(sent, resent, now))).look(sent, resent, now);
        self.lossy = self.lossy + usize::from(link.is_lossy()) - usize::from(was_lossy);
    }

    /// Ends what has lasted for long enough.
    pub(super) fn forget_losses(&mut self, now: Instant) {
        if self.lossy > 0 {
            for link in self.links.iter_mut() {
                link.loss.iter_mut().for_each(|loss| loss.expire(now));
            }
            self.lossy = self.links.iter().filter(|(_, link)| link.is_lossy()).count();
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
    fn a_connection_is_lossy_if_more_than_a_thirty_second_part_is_sent_again() {
        let lost = |segments: u64| segments * u64::from(SEGMENT) * PART;
        for segments in [FEW, 10, 1_000_000] {
            assert!(is_much(lost(segments.into()) - 1, segments, SEGMENT));
            assert!(!is_much(lost(segments.into()), segments, SEGMENT));
        }
        assert!(!is_much(0, 0, SEGMENT) && !is_much(0, FEW - 1, SEGMENT));
    }

    #[test]
    fn losses_are_remembered_for_a_while_after_the_last_ones() {
        let start = Instant::now();
        let mut loss = Loss::new(1_000_000, resent(7), start);
        assert!(!loss.is_due(start + LOOK / 2) && loss.is_due(start + LOOK));
        loss.look(1_065_536, resent(8), start + LOOK);
        assert!(!loss.is_lossy(), "one segment");
        // Together with the one before, since so little has been sent.
        loss.look(1_100_000, resent(10), start + 2 * LOOK);
        assert!(loss.is_lossy());
        let again = start + REMEMBER / 2;
        loss.look(1_200_000, resent(20), again);
        loss.look(100_000_000, resent(21), again + REMEMBER - LOOK);
        assert!(loss.is_lossy());
        loss.look(200_000_000, resent(21), again + REMEMBER);
        assert!(!loss.is_lossy());
        // What was sent in between does not dilute the next losses.
        loss.look(200_065_536, resent(30), again + REMEMBER + LOOK);
        assert!(loss.is_lossy());
        loss.expire(again + 2 * REMEMBER + LOOK);
        assert!(!loss.is_lossy());
    }

    #[test]
    fn segments_that_the_peer_had_already_are_not_lost() {
        let start = Instant::now();
        let mut loss = Loss::new(1_000_000, resent(7), start);
        for (turn, segments) in [(1, 5), (2, 0)] {
            loss.look(1_020_000, resent(segments), start + turn * LOOK);
            assert!(!loss.is_lossy(), "7, then {segments}");
        }
    }
}
