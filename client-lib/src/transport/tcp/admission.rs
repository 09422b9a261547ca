//! Admission: how many peers on other hosts may send long messages to this process at the same time.
//!
//! If many hosts send to one, their data meet in the buffer of one port of a switch. What it cannot hold is lost, and a sender whose last
//! segments are lost waits for its retransmission timer: 64 messages of 64 KiB then take 209 ms over a port of 1 Gbit/s with 256 KB,
//! instead of 34 (*incast*). The receiver decides who sends: a peer sends a long message only once it has been requested
//! ([`Frame::Clear`]). A peer is *admitted* while bytes are outstanding, which have been requested and have not arrived; requests to
//! further peers wait here. Those to hosts with the fewest admitted peers are sent first, and among these the earliest, because the
//! peers of one host share its port.
//!
//! There is no limit until the network loses data: how many senders it takes to fill a port depends on their speed and on the port's. The
//! kernel counts the segments that arrive out of order (since Linux 5.4; on older kernels there is never a limit). If there are many of
//! them while more than [`FEWEST`] peers are admitted, half as many are admitted from then on, but never fewer than [`FEWEST`]. While
//! requests wait and nothing is lost, the number grows: quickly to just below the one at the last loss, and slowly from there. So it comes
//! down within a few bursts, and then stays close to what the port bears.
//!
//! An admitted peer may be computing, and send nothing until it calls MPI again. One that has sent nothing of a long message for [`STALL`]
//! while requests wait takes no place, and its place goes to two others. So no request waits forever.
//!
//! The engine does not know: a request that waits here has been sent, as far as it is concerned. Nothing depends on the order of a
//! request and other frames but the farewell, which sends the waiting requests to its receiver first.
//!
//! Cost without waiting requests: a comparison for each frame that is sent or received, and one for each poll; with more than [`FEWEST`]
//! admitted peers, a system call for each part of a long message that has arrived.

use std::collections::VecDeque;
use std::collections::btree_map::{BTreeMap, Entry};
use std::net::IpAddr;
use std::time::{Duration, Instant};

use super::socket::{self, Disorder};
use super::{Tcp, loss};
use crate::engine::{Frame, Refusal};
use crate::memory::Payload;

/// At least this many peers on other hosts may have bytes outstanding, whatever is lost. Four messages, each longer than the eager limit,
/// fill a link of 100 Gbit/s between hosts that are 40 us apart.
pub(super) const FEWEST: usize = 4;

/// An admitted peer that sends nothing for this long takes no place. Longer than the shortest retransmission timeout, which is 10 ms
/// rounded up to the kernel's ticks ([`socket`]), or else a peer whose segments were lost would count as one that computes.
pub(super) const STALL: Duration = Duration::from_millis(20);

/// One more peer is admitted after requests have waited for so many times [`STALL`] without loss, below the number that lost data last:
/// 0.1 s.
const QUICK: u32 = 5;

/// From there on, one more is admitted after so many times [`STALL`]: 1 s.
const SLOW: u32 = 50;

/// So many of the waiting requests are compared, the earliest ones.
const SEEN: usize = 64;

/// At most this many later requests are sent before the earliest one.
const PASSED_MAX: u32 = 64;

/// Losses within this time after the first count as one: what was sent before the number fell may still be lost.
pub(super) const ONE_LOSS: Duration = Duration::from_millis(20);

/// Which peers are admitted, and which requests wait.
#[derive(Debug)]
pub(super) struct Admission {
    /// The number of links with bytes outstanding.
    admitted: usize,
    /// How many of them each host has.
    hosts: BTreeMap<IpAddr, usize>,
    /// The number of those that do not send.
    silent: usize,
    /// How many there may be, without the silent ones; `None` as long as nothing was lost.
    most: Option<usize>,
    /// How many there were when data were lost last.
    ceiling: usize,
    /// The largest number of admitted links since there was none, or since the last loss.
    peak: usize,
    lost_at: Option<Instant>,
    waiting: VecDeque<Request>,
    /// How many later requests have been sent before the earliest one.
    passed: u32,
    /// How many looks ago the last loss was.
    looks: u32,
    /// When the clock is to be looked at next. Set by the first look while requests wait.
    next: Option<Instant>,
    stall: Duration,
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
        Self {
            admitted: 0,
            hosts: BTreeMap::new(),
            silent: 0,
            most: None,
            ceiling: 0,
            peak: 0,
            lost_at: None,
            waiting: VecDeque::new(),
            passed: 0,
            looks: 0,
            next: None,
            stall: STALL,
        }
    }

    #[inline]
    pub(super) fn is_waiting(&self) -> bool {
        !self.waiting.is_empty()
    }

    /// Whether a link may get bytes outstanding; `is_admitted` if it has some.
    fn has_place(&self, is_admitted: bool) -> bool {
        is_admitted || self.most.is_none_or(|most| self.admitted < most + 2 * self.silent)
    }

    /// Whether it matters that data are lost.
    #[inline]
    pub(super) fn is_crowd(&self) -> bool {
        self.peak > FEWEST
    }

    /// How many links of a host have bytes outstanding.
    fn load(&self, host: IpAddr) -> usize {
        self.hosts.get(&host).copied().unwrap_or(0)
    }

    /// A link to this host gets bytes outstanding.
    fn on_admitted(&mut self, host: IpAddr) {
        self.admitted += 1;
        *self.hosts.entry(host).or_default() += 1;
        self.peak = self.peak.max(self.admitted);
    }

    /// Data were lost on their way to this process.
    fn on_loss(&mut self, now: Instant) {
        if self.lost_at.is_some_and(|lost| now.saturating_duration_since(lost) < ONE_LOSS) {
            return;
        }
        let level = self.most.map_or(self.peak, |most| most.min(self.peak));
        (self.most, self.ceiling) = (Some((level / 2).max(FEWEST)), level);
        self.peak = self.admitted;
        self.lost_at = Some(now);
        self.looks = 0;
    }

    /// A link that was admitted has nothing outstanding any more, or is over.
    fn on_released(&mut self, host: IpAddr, was_silent: bool) {
        self.admitted -= 1;
        if let Entry::Occupied(mut load) = self.hosts.entry(host) {
            *load.get_mut() -= 1;
            if *load.get() == 0 {
                load.remove();
            }
        }
        self.silent -= usize::from(was_silent);
        // What is lost from now on is not the fault of those.
        self.peak = if self.admitted == 0 { 0 } else { self.peak };
    }

    fn remove(&mut self, at: usize) {
        self.waiting.remove(at);
        self.passed = if at == 0 { 0 } else { self.passed + 1 };
        self.review();
    }

    fn review(&mut self) {
        if self.waiting.is_empty() {
            self.next = None;
        }
    }

    /// Whether it is time to see which admitted peers are silent.
    fn is_due(&mut self, now: Instant) -> bool {
        if self.waiting.is_empty() || self.next.is_some_and(|next| now < next) {
            return false;
        }
        let is_first = self.next.replace(now + self.stall).is_none();
        if is_first {
            return false;
        }
        self.looks += 1;
        let is_low = self.most.is_some_and(|most| most + 1 < self.ceiling);
        if self.looks >= if is_low { QUICK } else { SLOW } {
            self.looks = 0;
            self.most = self.most.map(|most| most + 1);
        }
        true
    }

    /// When the clock is to be looked at next.
    pub(super) fn deadline(&self) -> Option<Instant> {
        self.next
    }

    /// At most this many peers are admitted, and each may be silent for so long.
    #[cfg(test)]
    pub(super) fn limit(&mut self, most: usize, stall: Duration) {
        (self.most, self.stall) = (Some(most), stall);
    }

    #[cfg(test)]
    pub(super) fn silent(&self) -> usize {
        self.silent
    }

    #[cfg(test)]
    pub(super) fn most(&self) -> Option<usize> {
        self.most
    }
}

/// What a link has to do with admission.
#[derive(Debug, Default)]
pub(super) struct Standing {
    /// Whether bytes that were requested from the peer have not arrived.
    pub(super) is_admitted: bool,
    /// Whether any have arrived since the last look at the clock while requests waited; true for a new one.
    heard: bool,
    /// Nothing has arrived between two looks.
    is_silent: bool,
    /// What was known of lost data at the last look.
    disorder: Disorder,
}

impl Tcp {
    /// Requests a long message from a peer on another host: now, or when there is a place.
    pub(super) fn request(&mut self, request: Request) -> Result<(), Refusal> {
        let Some(link) = self.links.get(request.link) else { return Err(Refusal::Lost) };
        if !self.admission.is_waiting() && self.admission.has_place(link.standing.is_admitted) {
            return self.send_request(request);
        }
        if link.is_closing() {
            return Err(Refusal::Lost);
        }
        self.admission.waiting.push_back(request);
        // Those before it may wait for their own peers to read.
        self.admit();
        Ok(())
    }

    fn send_request(&mut self, Request { link: id, frame, len }: Request) -> Result<(), Refusal> {
        self.send_on(id, &frame, Payload::NONE)?;
        if let Some(link) = self.links.get_mut(id) {
            link.expect(len);
            if !link.standing.is_admitted {
                (link.standing.is_admitted, link.standing.heard) = (true, true);
                self.admission.on_admitted(link.address.ip());
            }
        }
        Ok(())
    }

    /// Sends the waiting requests for which there is a place.
    pub(super) fn admit(&mut self) {
        // Links whose peers do not read: their requests must not hold up those of others.
        let mut full = Vec::new();
        while let Some(at) = self.next_request(&full) {
            let request = self.admission.waiting[at];
            match self.send_request(request) {
                Err(Refusal::Full) => full.push(request.link),
                // The link will report the loss.
                Ok(()) | Err(Refusal::Lost) => self.admission.remove(at),
            }
        }
    }

    /// Which request is to be sent next, of links other than these.
    fn next_request(&self, full: &[u32]) -> Option<usize> {
        let admission = &self.admission;
        let first = admission.waiting.front()?;
        let first_is_full = full.contains(&first.link);
        if !admission.has_place(false) {
            let is_admitted = self.links.get(first.link).is_some_and(|link| link.standing.is_admitted);
            return (is_admitted && !first_is_full).then_some(0);
        }
        if admission.passed >= PASSED_MAX && !first_is_full {
            return Some(0);
        }
        let candidates = admission.waiting.iter().enumerate().take(SEEN).filter(|(_, it)| !full.contains(&it.link));
        // A link that is lost has no host; its request goes anywhere.
        let load = |link: u32| self.links.get(link).map_or(0, |link| admission.load(link.address.ip()));
        candidates.min_by_key(|(_, request)| load(request.link)).map(|(at, _)| at)
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

    /// Something has arrived on an admitted link, on which so many bytes were outstanding before.
    pub(super) fn on_data(&mut self, id: u32, before: u64) {
        let Some(link) = self.links.get_mut(id) else { return };
        let outstanding = link.outstanding();
        if outstanding == before && !link.is_within_a_part() {
            return;
        }
        link.standing.heard = true;
        if std::mem::take(&mut link.standing.is_silent) {
            self.admission.silent -= 1;
        }
        if outstanding < before && self.admission.is_crowd() {
            self.look_for_disorder(id);
        }
        if outstanding == 0
            && let Some(link) = self.links.get_mut(id)
        {
            link.standing.is_admitted = false;
            self.admission.on_released(link.address.ip(), false);
        }
    }

    #[cold]
    fn look_for_disorder(&mut self, id: u32) {
        let Some(link) = self.links.get_mut(id) else { return };
        let Some(now) = socket::disorder(&link.socket) else { return };
        let before = std::mem::replace(&mut link.standing.disorder, now);
        let segments = now.segments.wrapping_sub(before.segments);
        if loss::is_much(now.arrived.saturating_sub(before.arrived), segments, now.segment_bytes) {
            self.admission.on_loss(Instant::now());
        }
    }

    /// A link is over.
    pub(super) fn leave(&mut self, id: u32, host: IpAddr, standing: &Standing) {
        if standing.is_admitted {
            self.admission.on_released(host, standing.is_silent);
        }
        self.admission.waiting.retain(|request| request.link != id);
        self.admission.review();
    }

    /// Call this in each poll while requests wait; `moved` if anything has arrived or was sent.
    #[cold]
    pub(super) fn continue_admission(&mut self, moved: bool) {
        if moved {
            self.admit();
        }
        self.relieve(Instant::now());
    }

    /// Gives the places of silent peers to others.
    pub(super) fn relieve(&mut self, now: Instant) {
        if !self.admission.is_due(now) {
            return;
        }
        self.admission.silent = 0;
        for link in self.links.iter_mut().filter(|link| link.standing.is_admitted) {
            link.standing.is_silent = !std::mem::take(&mut link.standing.heard);
            self.admission.silent += usize::from(link.standing.is_silent);
        }
        self.admit();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const HOST: IpAddr = IpAddr::V4(std::net::Ipv4Addr::LOCALHOST);

    /// With so many admitted links.
    fn of(admitted: usize) -> Admission {
        let mut admission = Admission::new();
        (0..admitted).for_each(|_| admission.on_admitted(HOST));
        admission
    }

    #[test]
    fn each_loss_halves_the_number_and_it_grows_again_quickly_below_what_was_lost() {
        let mut admission = of(64);
        assert!(admission.has_place(false) && admission.is_crowd());
        let start = Instant::now();
        let mut most = Vec::new();
        for ms in [0, 19, 20, 40, 60, 80, 100] {
            admission.on_loss(start + Duration::from_millis(ms));
            most.extend(admission.most);
        }
        assert_eq!((most, admission.ceiling), (vec![32, 32, 16, 8, 4, 4, 4], 4));
        let frame = Frame::Clear { send: 0, receive: 0, len: 1 };
        admission.waiting.push_back(Request { link: 0, frame, len: 1 });
        let mut now = start + Duration::from_secs(1);
        assert!(!admission.is_due(now));
        admission.ceiling = 6;
        for (looks, most) in [(QUICK, 5), (SLOW, 6), (SLOW, 7)] {
            for look in 0..looks {
                assert_eq!(admission.most, Some(most - 1), "{look}");
                now += STALL;
                assert!(admission.is_due(now) && !admission.is_due(now));
            }
            assert_eq!(admission.most, Some(most));
        }
        // Time without waiting requests does not count.
        admission.remove(0);
        assert!(!admission.is_due(now + Duration::from_secs(9)));
        assert_eq!((admission.most, admission.deadline()), (Some(7), None));
    }

    #[test]
    fn a_loss_counts_from_as_many_as_there_were() {
        let mut admission = of(12);
        (0..10).for_each(|_| admission.on_released(HOST, false));
        admission.on_loss(Instant::now());
        assert_eq!(admission.most, Some(6));
        assert!(!admission.is_crowd());
    }

    #[test]
    fn senders_that_are_gone_are_not_to_blame_for_a_loss() {
        let mut admission = of(12);
        assert!(admission.is_crowd());
        (0..12).for_each(|_| admission.on_released(HOST, false));
        admission.on_admitted(HOST);
        assert!(!admission.is_crowd());
    }

    #[test]
    fn a_silent_peer_leaves_its_place_to_two() {
        let mut admission = of(4);
        admission.limit(4, STALL);
        assert!(admission.has_place(true) && !admission.has_place(false));
        admission.silent = 1;
        admission.on_admitted(HOST);
        assert!(admission.has_place(false));
        admission.on_admitted(HOST);
        assert!(!admission.has_place(false));
        admission.on_released(HOST, true);
        assert_eq!((admission.admitted, admission.silent, admission.load(HOST)), (5, 0, 5));
        assert!(!admission.has_place(false));
    }
}
