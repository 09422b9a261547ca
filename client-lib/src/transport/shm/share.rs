//! Copies a long message from both of its ends at once.
//!
//! The copy rate of one core is limited, and while a long message is in flight the sender's core is mostly idle. So the
//! receiver divides the message into pieces, tells the sender where its memory is, and starts to read pieces; the sender writes
//! pieces when it polls. A ticket in the receiver's segment assigns each piece:
//!
//! ```text
//!  ticket, 128 bytes:  | turn: number of the copy (32 bits), next piece (32 bits) | done: u32 | failed: u32 |
//! ```
//!
//! To claim a piece, a process raises `turn` by one, provided that it still has the number of this copy: a late request finds
//! another number or no piece left. The sender counts the pieces that it has written in `done`. When no piece is left, the
//! receiver knows how many the sender has claimed; the message is complete when all of these are done. A sender that does not
//! poll claims no piece, and the receiver reads them all. A process that has messages of its own to read does these first. A
//! receiver that got no help does not ask again at once. Help does not always pay: memory that both write moves between the caches of two
//! cores. So the receiver measures, for each class of lengths, whether it is done sooner with help.
//!
//! Cost: one slot in the sender's ring, and a system call for each piece on either side.

use std::collections::VecDeque;

use super::choice::{Way, ticks};
use super::link::{HELPED_FROM, LinkState, helped_class};
use super::ring::{DATA, SlotData};
use super::ticket::TICKETS;
use super::{HELP, Shm, put};
use crate::engine::{PullRefused, Pulled, Region, Sink};
use crate::memory::{Buffer, Room};
use crate::shared_memory::cma;
use crate::shared_memory::sync::{Ordering, fence};

/// The two ways to read a message from its sender's memory.
const BY_BOTH: Way = Way::First;
const BY_RECEIVER: Way = Way::Second;
/// A message is divided into about this many pieces: not tiny, and not so long that one end waits for the other's last
/// piece.
const PIECES: usize = 8;
const PIECE_MIN: usize = 64 << 10;
const PIECE_MAX: usize = 256 << 10;
/// After a request without help, this many messages are read alone.
const ALONE: u32 = 15;
/// The most requests that are kept until there is time for them; the excess is dropped, and costs a receiver only the
/// help.
const ASKED: usize = 64;
const PAGE: usize = 4096;

/// Memory that a peer may read, or ask this process to write to the peer's memory.
#[derive(Debug)]
pub(super) struct Offer {
    link: u16,
    buffer: Buffer,
}

/// The offers, by ticket of the region.
#[derive(Debug, Default)]
pub(super) struct Offers {
    all: Vec<Option<Offer>>,
    free: Vec<u32>,
}

impl Offers {
    pub(super) fn add(&mut self, link: u16, buffer: Buffer) -> u32 {
        let offer = Some(Offer { link, buffer });
        match self.free.pop() {
            Some(ticket) => {
                self.all[ticket as usize] = offer;
                ticket
            }
            None => {
                self.all.push(offer);
                (self.all.len() - 1) as u32
            }
        }
    }

    pub(super) fn remove(&mut self, ticket: u32) {
        if self.all.get_mut(ticket as usize).and_then(Option::take).is_some() {
            self.free.push(ticket);
        }
    }

    /// Whether something is offered over this link.
    pub(super) fn is_read_by(&self, link: usize) -> bool {
        self.all.iter().flatten().any(|offer| usize::from(offer.link) == link)
    }

    /// The memory, if it is offered over this link with this address and length.
    fn find(&self, link: usize, region: Region, len: usize) -> Option<&Buffer> {
        let offer = self.all.get(region.ticket as usize)?.as_ref()?;
        let begins = offer.buffer.as_contiguous()? as u64 == region.address;
        (usize::from(offer.link) == link && begins && len <= offer.buffer.len()).then_some(&offer.buffer)
    }
}

/// A copy in which the sender may take part, on the receiver's side.
#[derive(Debug, Clone, Copy)]
pub(super) struct Copy {
    link: u16,
    pub(super) ticket: usize,
    pub(super) number: u32,
    /// The engine's token for it.
    token: u32,
    since: u64,
    len: usize,
}

/// A message whose sender still has to write pieces.
#[derive(Debug)]
struct Unfinished {
    copy: Copy,
    /// How many pieces the sender has claimed.
    theirs: u32,
    /// Whether all pieces of the receiver itself were copied.
    good: bool,
}

/// The copies in which this process receives.
#[derive(Debug, Default)]
pub(super) struct Shares {
    unfinished: Vec<Unfinished>,
    /// A bit set of the tickets in use.
    taken: u32,
    /// The number of copies so far.
    number: u32,
    /// Requests of peers in the order of arrival, with their links.
    asked: VecDeque<(u16, Help)>,
}

impl Shares {
    #[inline(always)]
    pub(super) fn is_empty(&self) -> bool {
        self.unfinished.is_empty()
    }

    /// Whether a peer waits for help.
    #[inline(always)]
    pub(super) fn is_asked(&self) -> bool {
        !self.asked.is_empty()
    }

    fn take_ticket(&mut self) -> Option<usize> {
        let ticket = self.taken.trailing_ones() as usize;
        if ticket >= TICKETS {
            return None;
        }
        self.taken |= 1 << ticket;
        self.number = self.number.wrapping_add(1);
        Some(ticket)
    }

    /// The peer is gone. Its tickets stay in use: it is unknown whether it is still writing.
    pub(super) fn forget(&mut self, gone: u16) {
        self.unfinished.retain(|it| it.copy.link != gone);
        self.asked.retain(|(link, _)| *link != gone);
    }
}

/// The length of a message's pieces.
fn piece_of(len: usize) -> usize {
    (len / PIECES).clamp(PIECE_MIN, PIECE_MAX).next_multiple_of(PAGE)
}

/// A receiver's request to its sender.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Help {
    /// The memory that the sender has offered.
    region: Region,
    /// The destination address in the receiver's memory.
    address: u64,
    len: u64,
    ticket: u32,
    number: u32,
}

impl Help {
    fn encode(&self, data: Room<'_>) {
        let words =
            [self.region.address, self.address, self.len, pair(self.ticket, self.number), self.region.ticket.into()];
        for (at, word) in words.into_iter().enumerate() {
            data.put(8 * at, word.to_ne_bytes());
        }
    }

    fn decode(data: &SlotData) -> Self {
        let mut words = [0; DATA / 8];
        for (word, bytes) in words.iter_mut().zip(data.0.as_chunks().0) {
            *word = u64::from_ne_bytes(*bytes);
        }
        let [at, address, len, copy, ticket, ..] = words;
        let region = Region { address: at, ticket: ticket as u32 };
        Self { region, address, len, ticket: (copy >> 32) as u32, number: copy as u32 }
    }
}

fn pair(high: u32, low: u32) -> u64 {
    u64::from(high) << 32 | u64::from(low)
}

impl Shm {
    /// Reads a message from the sender's memory, with the sender's help if it is long; `token` is passed to
    /// [`Sink::on_pulled`] if the sender is still writing when this end has finished.
    pub(super) fn pull_by(
        &mut self,
        index: usize,
        pid: i32,
        region: Region,
        into: &Buffer,
        len: usize,
        token: u32,
    ) -> Result<Pulled, PullRefused> {
        let since = ticks();
        if let Some(copy) = self.ask_for_help(index, region, into, len) {
            return self.read_pieces(Copy { token, since, ..copy }, pid, region.address, into);
        }
        cma::read(pid, region.address, into, 0, len)?;
        if self.has_retracted(index) {
            return Err(PullRefused);
        }
        self.learn_pull(index, BY_RECEIVER, ticks() - since, len);
        Ok(Pulled::Now)
    }

    /// Reads the pieces that the sender does not write.
    pub(super) fn read_pieces(
        &mut self,
        copy: Copy,
        pid: i32,
        address: u64,
        into: &Buffer,
    ) -> Result<Pulled, PullRefused> {
        let Copy { link, ticket, number, len, .. } = copy;
        let Some(turn) = self.segment.ticket(ticket) else { return Err(PullRefused) };
        let piece = piece_of(len);
        let pieces = len.div_ceil(piece) as u32;
        let (mut ours, mut good) = (0, true);
        while let Some(next) = turn.claim(number, pieces) {
            ours += 1;
            let at = next as usize * piece;
            if cma::read(pid, address.wrapping_add(at as u64), into, at, piece.min(len - at)).is_err() {
                good = false;
                break;
            }
        }
        let theirs = turn.close(number, pieces).saturating_sub(ours);
        if good && theirs > 0 {
            // Without the wait for the sender's last piece: this process reads other messages meanwhile.
            self.learn_pull(usize::from(link), BY_BOTH, ticks() - copy.since, len);
        } else if let LinkState::Up(up) = &mut self.links[usize::from(link)].state {
            up.alone = ALONE;
        }
        self.shares.unfinished.push(Unfinished { copy, theirs, good });
        match self.finish_share(self.shares.unfinished.len() - 1) {
            Some((_, true)) => Ok(Pulled::Now),
            Some((_, false)) => Err(PullRefused),
            None => Ok(Pulled::Later),
        }
    }

    /// Tells the sender where the message belongs, if it is long and the sender may have time.
    pub(super) fn ask_for_help(&mut self, index: usize, region: Region, into: &Buffer, len: usize) -> Option<Copy> {
        // A sender that reads messages of this process has no time.
        if len < HELPED_FROM || self.offers.is_read_by(index) {
            return None;
        }
        let address = into.as_contiguous()? as u64;
        let LinkState::Up(up) = &mut self.links[index].state else { return None };
        if up.alone > 0 {
            up.alone -= 1;
            return None;
        }
        if up.helped[helped_class(len)].choose().0 == BY_RECEIVER {
            return None;
        }
        let ticket = self.shares.take_ticket()?;
        let number = self.shares.number;
        self.segment.ticket(ticket)?.open(number);
        let help = Help { region, address, len: len as u64, ticket: ticket as u32, number };
        let LinkState::Up(up) = &mut self.links[index].state else { return None };
        if put(&self.segment, up, HELP, |data| help.encode(data)) {
            return Some(Copy { link: index as u16, ticket, number, token: 0, since: 0, len });
        }
        self.shares.taken &= !(1 << ticket);
        None
    }

    /// Removes a copy that is complete or that the sender could not complete; returns its token and whether it is
    /// complete.
    fn finish_share(&mut self, at: usize) -> Option<(u32, bool)> {
        let Unfinished { copy, theirs, good } = self.shares.unfinished.get(at)?;
        let (Copy { link, ticket, token, .. }, good) = (*copy, *good);
        let outcome = self.segment.ticket(ticket)?.outcome(*theirs)?;
        self.shares.unfinished.swap_remove(at);
        self.shares.taken &= !(1 << ticket);
        let all = good && outcome && !self.has_retracted(usize::from(link));
        Some((token, all))
    }

    /// Whether what was read from this peer may be something else than it has offered: it has taken back an offer.
    pub(super) fn has_retracted(&self, index: usize) -> bool {
        fence(Ordering::SeqCst); // the reading before the word
        let LinkState::Up(up) = &self.links[index].state else { return true };
        up.segment.retractions().load(Ordering::Relaxed) != 0
    }

    /// Records what it has cost to read a message: alone, or with the sender's help.
    fn learn_pull(&mut self, index: usize, way: Way, spent: u64, len: usize) {
        if let LinkState::Up(up) = &mut self.links[index].state {
            up.streams.was_read(len, ticks());
            if len >= HELPED_FROM {
                up.helped[helped_class(len)].learn_least(way, spent, len);
            }
        }
    }

    /// Reports messages whose senders are done; returns whether there were any.
    #[cold]
    pub(super) fn poll_shares<S: Sink>(&mut self, sink: &mut S) -> bool {
        let (mut at, mut any) = (0, false);
        while let Some(it) = self.shares.unfinished.get(at) {
            let from = self.links[usize::from(it.copy.link)].peer;
            match self.finish_share(at) {
                Some((token, all)) => {
                    sink.on_pulled(from, token, if all { Ok(()) } else { Err(PullRefused) });
                    any = true;
                }
                None => at += 1,
            }
        }
        any
    }

    /// Whether a message is complete that has not been reported to the engine.
    pub(super) fn has_finished_shares(&self) -> bool {
        let ticket = |it: &Unfinished| self.segment.ticket(it.copy.ticket);
        self.shares.unfinished.iter().any(|it| ticket(it).is_some_and(|ticket| ticket.outcome(it.theirs).is_some()))
    }

    /// Handles a receiver's request for help.
    #[cold]
    pub(super) fn on_help(&mut self, index: usize, data: &SlotData) {
        if self.shares.asked.len() < ASKED {
            self.shares.asked.push_back((index as u16, Help::decode(data)));
        }
    }

    /// Writes a piece for the first request that still needs one; returns whether there was one.
    #[cold]
    pub(super) fn help(&mut self) -> bool {
        while let Some((link, help)) = self.shares.asked.front() {
            if self.write_piece(usize::from(*link), help).is_some() {
                return true;
            }
            self.shares.asked.pop_front();
        }
        false
    }

    /// `None` if there is nothing to write: all pieces are claimed, or the memory is no longer offered.
    fn write_piece(&self, index: usize, help: &Help) -> Option<()> {
        let LinkState::Up(up) = &self.links[index].state else { return None };
        let cma::Verdict::Yes(pid) = up.cma else { return None };
        let (len, ticket) = (usize::try_from(help.len).ok()?, up.segment.ticket(help.ticket as usize)?);
        let from = self.offers.find(index, help.region, len)?;
        let piece = piece_of(len);
        let next = ticket.claim(help.number, u32::try_from(len.div_ceil(piece)).ok()?)?;
        let at = next as usize * piece;
        ticket.finish(cma::write(pid, help.address.wrapping_add(at as u64), from, at, piece.min(len - at)).is_ok());
        up.wake();
        Some(())
    }
}
