//! Admission: how many peers on other hosts may send long messages to this process at the same time.
//!
//! If many hosts send to one, their data meet in the buffer of one port of a switch. What it cannot hold is lost, and a sender whose last
//! segments are lost waits for its retransmission timer: 64 messages of 64 KiB then take 209 ms over a port of 1 Gbit/s with 256 KB,
//! instead of 33 (*incast*). The receiver decides who sends: a peer sends a long message only once it has been requested
//! ([`Frame::Clear`]). So at most [`ADMITTED`] peers on other hosts have bytes outstanding, which have been requested and have not arrived,
//! and requests to further peers wait here, in order. Four messages of which each is longer than the eager limit fill a link of 100 Gbit/s
//! between hosts that are 40 us apart.
//!
//! An admitted peer may be computing, and send nothing until it calls MPI again. If nothing arrives from any admitted peer for [`STALL`]
//! while requests wait, more are admitted: 1, then 2, 4 and so on, until no request waits. So none waits forever.
//!
//! The engine does not know: a request that waits here has been sent, as far as it is concerned. Nothing depends on the order of a
//! request and other frames but the farewell, which sends the waiting requests to its receiver first.
//!
//! Cost without waiting requests: a comparison for each frame that is sent or received, and one for each poll.

use std::collections::VecDeque;
use std::time::{Duration, Instant};

use super::{PATIENCE, Tcp};
use crate::engine::{Frame, Refusal};
use crate::memory::Payload;

/// The most peers on other hosts that may have bytes outstanding.
pub(super) const ADMITTED: usize = 4;

/// After this long without data from admitted peers, more are admitted.
pub(super) const STALL: Duration = Duration::from_millis(5);

/// Who is admitted, and which requests wait.
#[derive(Debug)]
pub(super) struct Admission {
    /// The number of links with bytes outstanding.
    admitted: usize,
    /// How many there may be now.
    most: usize,
    /// How many more the next stall admits.
    more: usize,
    waiting: VecDeque<Request>,
    /// Data from an admitted peer have arrived since the last look at the clock.
    heard: bool,
    /// When more are admitted, unless data arrive. Set by the first look at the clock while requests wait.
    stalls_at: Option<Instant>,
    /// Polls since the last look at the clock.
    polls: u32,
}

/// A request for a long message.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Request {
    pub(super) link: u32,
    /// A [`Frame::Clear`].
    pub(super) frame: Frame,
    /// The number of bytes requested.
    pub(super) len: u64,
}

impl Admission {
    pub(super) const fn new() -> Self {
        let waiting = VecDeque::new();
        Self { admitted: 0, most: ADMITTED, more: 1, waiting, heard: false, stalls_at: None, polls: 0 }
    }

    #[inline]
    pub(super) fn is_waiting(&self) -> bool {
        !self.waiting.is_empty()
    }

    /// Whether a link may get bytes outstanding; `is_admitted` if it has some.
    fn has_place(&self, is_admitted: bool) -> bool {
        is_admitted || self.admitted < self.most
    }

    /// A request was sent on a link, which had bytes outstanding if it `is_admitted`.
    fn on_sent(&mut self, is_admitted: bool) {
        self.admitted += usize::from(!is_admitted);
    }

    /// Data have arrived on an admitted link; `is_complete` if nothing is outstanding any more.
    pub(super) fn on_data(&mut self, is_complete: bool) {
        self.heard = true;
        self.admitted -= usize::from(is_complete);
    }

    /// A link is over.
    pub(super) fn on_closed(&mut self, link: u32, is_admitted: bool) {
        self.admitted -= usize::from(is_admitted);
        self.waiting.retain(|request| request.link != link);
        self.review();
    }

    fn remove(&mut self, at: usize) {
        self.waiting.remove(at);
        self.review();
    }

    /// Once no request waits, the next ones find the usual places.
    fn review(&mut self) {
        if self.waiting.is_empty() {
            (self.most, self.more, self.heard, self.stalls_at) = (ADMITTED, 1, false, None);
        }
    }

    /// Whether it is time for a look at the clock, at this poll.
    fn is_due(&mut self) -> bool {
        self.polls = (self.polls + 1) % PATIENCE;
        self.polls == 0
    }

    /// Looks at the clock: after a stall, there are more places.
    fn look(&mut self, now: Instant) {
        match self.stalls_at {
            _ if self.waiting.is_empty() => {}
            Some(at) if !self.heard && now < at => {}
            Some(_) if !self.heard => {
                self.most = self.most.max(self.admitted) + self.more;
                self.more *= 2;
                self.stalls_at = Some(now + STALL);
            }
            Some(_) | None => {
                self.heard = false;
                self.stalls_at = Some(now + STALL);
            }
        }
    }

    /// When the clock is to be looked at next.
    pub(super) fn deadline(&self) -> Option<Instant> {
        self.stalls_at
    }
}

impl Tcp {
    /// Requests a long message from a peer on another host: now, or when there is a place.
    pub(super) fn request(&mut self, request: Request) -> Result<(), Refusal> {
        let Some(link) = self.links.get(request.link) else { return Err(Refusal::Lost) };
        if !self.admission.is_waiting() && self.admission.has_place(link.is_admitted) {
            return self.send_request(request);
        }
        if link.is_closing() {
            return Err(Refusal::Lost);
        }
        self.admission.waiting.push_back(request);
        Ok(())
    }

    fn send_request(&mut self, Request { link: id, frame, len }: Request) -> Result<(), Refusal> {
        self.send_on(id, &frame, Payload::NONE)?;
        if let Some(link) = self.links.get_mut(id) {
            link.expect(len);
            self.admission.on_sent(link.is_admitted);
            link.is_admitted = true;
        }
        Ok(())
    }

    /// Sends the waiting requests for which there is a place.
    pub(super) fn admit(&mut self) {
        let mut at = 0;
        while let Some(&request) = self.admission.waiting.get(at) {
            let is_admitted = self.links.get(request.link).is_some_and(|link| link.is_admitted);
            if !self.admission.has_place(is_admitted) {
                return;
            }
            match self.send_request(request) {
                // Those behind it need not wait for its peer to read.
                Err(Refusal::Full) => at += 1,
                // The link will report the loss.
                Ok(()) | Err(Refusal::Lost) => self.admission.remove(at),
            }
        }
    }

    /// Sends all waiting requests of a link, because nothing can be sent on it after the farewell.
    pub(super) fn release(&mut self, link: u32) -> Result<(), Refusal> {
        while let Some(at) = self.admission.waiting.iter().position(|request| request.link == link) {
            if self.send_request(self.admission.waiting[at]) == Err(Refusal::Full) {
                return Err(Refusal::Full);
            }
            self.admission.remove(at);
        }
        Ok(())
    }

    /// Call this in each poll while requests wait; `moved` if anything has arrived or was sent.
    #[cold]
    pub(super) fn continue_admission(&mut self, moved: bool) {
        if moved {
            self.admit();
        }
        if self.admission.is_due() {
            self.relieve(Instant::now());
        }
    }

    /// Admits more after a stall.
    pub(super) fn relieve(&mut self, now: Instant) {
        self.admission.look(now);
        self.admit();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// With this many waiting requests on links of their own, and all places taken.
    fn full(waiting: u32) -> Admission {
        let mut admission = Admission::new();
        (0..ADMITTED).for_each(|_| admission.on_sent(false));
        let frame = Frame::Clear { send: 0, receive: 0, len: 1 };
        admission.waiting.extend((0..waiting).map(|link| Request { link, frame, len: 1 }));
        admission
    }

    #[test]
    fn each_stall_admits_more_until_no_request_waits() {
        let mut admission = full(100);
        let mut now = Instant::now();
        admission.look(now);
        let mut most = Vec::new();
        for _ in 0..4 {
            now += STALL / 2;
            admission.look(now);
            most.push(admission.most);
            now += STALL / 2;
            admission.look(now);
            most.push(admission.most);
        }
        assert_eq!(most, [4, 5, 5, 7, 7, 11, 11, 19]);
        (1..100).for_each(|link| admission.on_closed(link, false));
        assert_eq!((admission.most, admission.is_waiting()), (19, true));
        admission.remove(0);
        assert_eq!((admission.most, admission.more, admission.deadline()), (ADMITTED, 1, None));
    }

    #[test]
    fn data_from_admitted_peers_end_a_stall() {
        let mut admission = full(1);
        let start = Instant::now();
        admission.look(start);
        admission.on_data(false);
        admission.look(start + STALL);
        assert_eq!((admission.most, admission.deadline()), (ADMITTED, Some(start + 2 * STALL)));
        admission.look(start + 2 * STALL);
        assert_eq!(admission.most, ADMITTED + 1);
    }

    #[test]
    fn an_admitted_peer_needs_no_further_place() {
        let mut admission = full(0);
        assert!(admission.has_place(true) && !admission.has_place(false));
        admission.on_sent(true);
        admission.on_data(true);
        assert!(admission.has_place(false));
        admission.on_closed(0, true);
        assert_eq!(admission.admitted, ADMITTED - 2);
    }
}
