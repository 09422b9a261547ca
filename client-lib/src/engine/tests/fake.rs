//! Worlds of processes in one thread, over a transport whose delays, limits and failures follow from a seed.
//!
//! For tests only. [`FakeWorld`] holds one engine for each rank. Frames between two ranks keep their order; everything else is
//! random: when a frame arrives, which sender is first, when there is no room. [`Oddities`] define the transport's behaviour.

use std::cell::RefCell;
use std::collections::{HashMap, VecDeque};
use std::rc::Rc;

use super::bodies::World;
use crate::engine::frame::{Frame, Region, Sort};
use crate::engine::{Engine, FrameLimits, Landing, Loan, Peer, PullRefused, Pulled, Refusal, Sink, Transport};
use crate::memory::{Arrived, Buffer, Payload, Room};

/// Pseudo-random numbers; the same seed gives the same numbers (splitmix64).
#[derive(Debug, Clone)]
pub(crate) struct Rng(pub(crate) u64);

impl Rng {
    /// A number below `limit`, which must not be 0.
    pub(crate) fn below(&mut self, limit: usize) -> usize {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut word = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        word = (word ^ (word >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        ((word ^ (word >> 31)) % limit as u64) as usize
    }

    /// True in `share` of 100 cases.
    pub(crate) fn percent(&mut self, share: usize) -> bool {
        self.below(100) < share
    }
}

/// How the transport behaves.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Oddities {
    pub(crate) limits: FrameLimits,
    /// The number of frames that fit between two processes.
    pub(crate) room: usize,
    /// In this many of 100 cases there is no room anyway.
    pub(crate) full: usize,
    /// In this many of 100 cases a frame that has arrived is not delivered yet.
    pub(crate) late: usize,
    /// Whether receivers may read the sender's memory; if so, one of eight reads fails.
    pub(crate) pull: bool,
    /// Whether payloads are written to their destination in pieces, as from a stream.
    pub(crate) landing: bool,
}

impl Oddities {
    /// Any oddities that a transport might have.
    pub(crate) fn random(rng: &mut Rng) -> Self {
        let eager = [0, 1, 8, 64, 1000][rng.below(5)];
        let part = [5, 64, 500][rng.below(3)];
        let lent = [0, 30, usize::MAX][rng.below(3)];
        Self {
            limits: FrameLimits { eager, eager_device: eager, part, part_device: part, lent },
            room: 1 + rng.below(20),
            full: [0, 30, 80][rng.below(3)],
            late: [0, 50, 90][rng.below(3)],
            pull: rng.percent(50),
            landing: rng.percent(50),
        }
    }
}

/// The state that all processes of a world share.
#[derive(Debug)]
struct Net {
    oddities: Oddities,
    rng: Rng,
    /// `pipes[to][from]`.
    pipes: Vec<Vec<Pipe>>,
    /// The number of frames in flight to each.
    coming: Vec<usize>,
    dead: Vec<bool>,
    /// Memory that may be read, by its owner and ticket.
    offered: HashMap<(Peer, u32), Buffer>,
    /// Memory that stays lent, by its owner and loan.
    lent: HashMap<(Peer, Loan), Buffer>,
    /// Messages that each process is still reading.
    reading: Vec<Vec<Reading>>,
    tickets: u32,
    /// How many messages have been caught, and how many have been offered for that and left.
    caught: usize,
    left: usize,
    scratch: Vec<Peer>,
}

impl Net {
    fn read(&self, reading: &Reading) -> Result<(), PullRefused> {
        let buffer = self.offered.get(&(reading.from, reading.ticket)).ok_or(PullRefused)?;
        let mut bytes = vec![0; reading.len];
        buffer.read(0, &mut bytes);
        reading.into.write(0, &bytes);
        Ok(())
    }

    /// Ends all loans to a peer that this one has cut off, or that has lost this one: what was not read is lost.
    fn forget_lent(&mut self, owner: Peer, to: Peer) {
        let pipe = &mut self.pipes[to.0 as usize][owner.0 as usize];
        let first = pipe.packets.iter().position(|packet| packet.lent.is_some());
        for packet in pipe.packets.drain(first.unwrap_or(pipe.packets.len())..) {
            self.coming[to.0 as usize] -= 1;
            packet.lent.and_then(|loan| self.lent.remove(&(owner, loan)));
        }
    }

    /// The senders of pending frames, in random order.
    fn senders(&mut self, to: Peer) -> Vec<Peer> {
        let mut senders = std::mem::take(&mut self.scratch);
        let pipes = self.pipes[to.0 as usize].iter().zip(&self.dead).enumerate();
        senders.extend(pipes.filter(|(_, (pipe, dead))| pipe.has_news(**dead)).map(|(from, _)| Peer(from as u32)));
        if !senders.is_empty() {
            let first = self.rng.below(senders.len());
            senders.rotate_left(first);
        }
        senders
    }
}

impl Pipe {
    fn has_news(&self, dead: bool) -> bool {
        !self.shut && (dead || !self.packets.is_empty())
    }
}

#[derive(Debug, Default)]
struct Pipe {
    packets: VecDeque<Packet>,
    /// A payload, and how many of its bytes are written to their landing.
    landing: Option<(Landing, usize)>,
    /// Whether the receiver knows that the sender is dead, or has cut it off.
    shut: bool,
}

#[derive(Debug)]
struct Packet {
    frame: Frame,
    /// Meaningless as long as it is lent.
    payload: Vec<u8>,
    lent: Option<Loan>,
}

/// A message that is read later.
#[derive(Debug)]
struct Reading {
    from: Peer,
    ticket: u32,
    into: Buffer,
    len: usize,
    token: u32,
}

/// More steps than any world of these tests needs by far.
const STEPS: usize = 5_000_000;

/// One process's end of the transport.
#[derive(Debug)]
pub(crate) struct Fake {
    me: Peer,
    net: Rc<RefCell<Net>>,
}

impl Transport for Fake {
    fn limits(&self, _to: Peer) -> FrameLimits {
        self.net.borrow().oddities.limits
    }

    fn try_send(&mut self, to: Peer, frame: &Frame, payload: Payload<'_>) -> Result<(), Refusal> {
        let net = &mut *self.net.borrow_mut();
        if net.dead[to.0 as usize] {
            return Err(Refusal::Lost);
        }
        let pipe = &mut net.pipes[to.0 as usize][self.me.0 as usize];
        if pipe.packets.len() >= net.oddities.room || net.rng.percent(net.oddities.full) {
            return Err(Refusal::Full);
        }
        let allowed = match frame {
            Frame::Eager { .. } | Frame::EagerSync { .. } => net.oddities.limits.eager,
            // Notes are not messages: tests with short messages do not limit them.
            Frame::Note { .. } => usize::MAX,
            Frame::Dropped { .. } | Frame::Hold { .. } => 0,
            Frame::Signed { sort: Sort::Ready { .. }, .. } => 0,
            Frame::Signed { .. } => net.oddities.limits.eager,
            Frame::Part { .. } => net.oddities.limits.part,
            Frame::Ready { .. } | Frame::Clear { .. } | Frame::Done { .. } | Frame::Bye => 0,
        };
        assert!(payload.len() <= allowed, "{} bytes in {frame:?}", payload.len());
        let mut bytes = vec![0; payload.len()];
        payload.copy_to(&mut bytes);
        let mut head = [0; crate::engine::frame::HEAD_MAX];
        let len = frame.encode(Room::new(&mut head));
        assert_eq!(Frame::decode(&head), Ok((*frame, len)));
        pipe.packets.push_back(Packet { frame: *frame, payload: bytes, lent: None });
        net.coming[to.0 as usize] += 1;
        Ok(())
    }

    fn try_lend<S: Sink>(
        &mut self,
        to: Peer,
        frame: &Frame,
        buffer: &Buffer,
        may_stay: bool,
        _: &mut S,
    ) -> Result<Option<Loan>, Refusal> {
        self.try_send(to, frame, Payload::new(buffer, 0, buffer.len()))?;
        let net = &mut *self.net.borrow_mut();
        if !may_stay || net.rng.percent(30) {
            return Ok(None);
        }
        net.tickets += 1;
        let loan = Loan(net.tickets);
        if let Some(packet) = net.pipes[to.0 as usize][self.me.0 as usize].packets.back_mut() {
            packet.payload.fill(0xee);
            packet.lent = Some(loan);
        }
        net.lent.insert((self.me, loan), buffer.clone());
        Ok(Some(loan))
    }

    fn redeem<S: Sink>(&mut self, to: Peer, loan: Loan, buffer: &Buffer, must: bool, _: &mut S) -> bool {
        let net = &mut *self.net.borrow_mut();
        if !must && net.rng.percent(30) {
            return false;
        }
        let is_known = net.lent.remove(&(self.me, loan)).is_some();
        assert!(is_known || net.dead[to.0 as usize], "{loan:?} was redeemed before");
        let packets = &mut net.pipes[to.0 as usize][self.me.0 as usize].packets;
        if let Some(packet) = packets.iter_mut().find(|packet| packet.lent == Some(loan)) {
            buffer.read(0, &mut packet.payload);
            packet.lent = None;
        }
        true
    }

    fn poll<S: Sink>(&mut self, sink: &mut S) -> bool {
        let mut senders = self.net.borrow_mut().senders(self.me);
        let mut any = false;
        for from in senders.drain(..) {
            while self.pass_on(from, sink) {
                any = true;
            }
        }
        self.net.borrow_mut().scratch = senders;
        any | self.read_on(sink)
    }

    fn catch(&mut self, from: Option<Peer>, take: impl FnOnce(Peer, &Frame, Arrived<'_>) -> bool) {
        let mut net = self.net.borrow_mut();
        let senders = net.senders(self.me);
        // As in a ring, another sender's frame may be the next one.
        let first = from.filter(|_| net.rng.percent(70)).or(senders.first().copied());
        net.scratch = senders;
        net.scratch.clear();
        let (late, me) = (net.oddities.late, self.me.0 as usize);
        let Some(from) = first.filter(|_| !net.rng.percent(late)) else { return };
        let pipe = &mut net.pipes[me][from.0 as usize];
        if pipe.shut || pipe.landing.is_some() {
            return;
        }
        let Some(packet) = pipe.packets.pop_front_if(|packet| packet.lent.is_none()) else { return };
        drop(net);
        let is_taken = take(from, &packet.frame, Arrived::new(&packet.payload));
        let net = &mut *self.net.borrow_mut();
        if !is_taken {
            net.left += 1;
            return net.pipes[me][from.0 as usize].packets.push_front(packet);
        }
        net.coming[me] -= 1;
        net.caught += 1;
    }

    fn offer(&mut self, _to: Peer, buffer: &Buffer) -> Option<Region> {
        let net = &mut *self.net.borrow_mut();
        if !net.oddities.pull {
            return None;
        }
        net.tickets += 1;
        net.offered.insert((self.me, net.tickets), buffer.clone());
        Some(Region { address: 0, ticket: net.tickets })
    }

    fn withdraw(&mut self, _to: Peer, region: Region) {
        let gone = self.net.borrow_mut().offered.remove(&(self.me, region.ticket));
        assert!(gone.is_some(), "{region:?} was withdrawn before");
    }

    fn retract(&mut self, to: Peer, region: Region) {
        self.withdraw(to, region);
    }

    fn pull(
        &mut self,
        from: Peer,
        region: Region,
        into: &Buffer,
        len: usize,
        token: u32,
    ) -> Result<Pulled, PullRefused> {
        let net = &mut *self.net.borrow_mut();
        let reading = Reading { from, ticket: region.ticket, into: into.clone(), len, token };
        match net.rng.below(8) {
            0 => Err(PullRefused),
            1 => Ok(Pulled::NotYet),
            2..4 => {
                net.reading[self.me.0 as usize].push(reading);
                Ok(Pulled::Later)
            }
            _ => net.read(&reading).map(|()| Pulled::Now),
        }
    }

    fn cut(&mut self, peer: Peer) {
        let net = &mut *self.net.borrow_mut();
        net.pipes[self.me.0 as usize][peer.0 as usize].shut = true;
        net.forget_lent(self.me, peer);
        net.reading[self.me.0 as usize].retain(|reading| reading.from != peer);
    }
}

impl Fake {
    /// Continues reading a message from its sender's memory; returns whether there was one that is not late.
    fn read_on<S: Sink>(&mut self, sink: &mut S) -> bool {
        let (from, token, result) = {
            let net = &mut *self.net.borrow_mut();
            let (late, me) = (net.oddities.late, self.me.0 as usize);
            if net.reading[me].is_empty() || net.rng.percent(late) {
                return false;
            }
            let at = net.rng.below(net.reading[me].len());
            let reading = net.reading[me].swap_remove(at);
            if net.dead[reading.from.0 as usize] {
                return true;
            }
            let result = if net.rng.below(8) == 0 { Err(PullRefused) } else { net.read(&reading) };
            (reading.from, reading.token, result)
        };
        sink.on_pulled(from, token, result);
        true
    }

    /// Delivers the next frame of a peer, or some of its bytes; returns whether there was one that is not late.
    fn pass_on<S: Sink>(&mut self, from: Peer, sink: &mut S) -> bool {
        let mut net = self.net.borrow_mut();
        let (late, landing, dead) = (net.oddities.late, net.oddities.landing, net.dead[from.0 as usize]);
        let (me, sender) = (self.me.0 as usize, from.0 as usize);
        if net.pipes[me][sender].shut || net.rng.percent(late) {
            return false;
        }
        let piece = 1 + net.rng.below(100);
        let cannot_read = net.rng.percent(20);
        let Net { pipes, lent, .. } = &mut *net;
        let pipe = &mut pipes[me][sender];
        if let Some(packet) = pipe.packets.front_mut()
            && let Some(loan) = packet.lent
        {
            let Some(buffer) = lent.get(&(from, loan)).filter(|_| !cannot_read) else { return false };
            buffer.read(0, &mut packet.payload);
            packet.lent = None;
        }
        if let Some((landing, done)) = &mut pipe.landing {
            let Some(Packet { frame, payload, .. }) = pipe.packets.front() else { return false };
            let end = (*done + piece).min(payload.len());
            landing.buffer.write(landing.at + *done, &payload[*done..end]);
            *done = end;
            if end == payload.len() {
                let (frame, len) = (*frame, payload.len());
                pipe.landing = None;
                pipe.packets.pop_front();
                net.coming[me] -= 1;
                drop(net);
                sink.on_landed(from, frame, len);
            }
            return true;
        }
        let Some(Packet { frame, payload, .. }) = pipe.packets.front() else {
            if dead {
                pipe.shut = true;
                drop(net);
                sink.on_lost(from, "it was killed");
            }
            return dead;
        };
        if landing && !payload.is_empty() {
            let (frame, len) = (*frame, payload.len());
            drop(net);
            let place = sink.landing(from, &frame, len);
            net = self.net.borrow_mut();
            if let Some(place) = place {
                net.pipes[me][sender].landing = Some((place, 0));
                return true;
            }
        }
        let Some(packet) = net.pipes[me][sender].packets.pop_front() else { return false };
        drop(net);
        let is_taken = sink.on_frame_unless_early(from, &packet.frame, Arrived::new(&packet.payload));
        let net = &mut *self.net.borrow_mut();
        match is_taken {
            true => net.coming[me] -= 1,
            false => net.pipes[me][sender].packets.push_front(packet),
        }
        is_taken
    }
}

/// Processes that know only each other.
#[derive(Debug)]
pub(crate) struct FakeWorld {
    engines: Vec<Engine<Fake>>,
    net: Rc<RefCell<Net>>,
    rng: Rng,
}

impl FakeWorld {
    /// A world of this size, with random oddities.
    pub(crate) fn new(size: usize, seed: u64) -> Self {
        let mut rng = Rng(seed);
        let oddities = Oddities::random(&mut rng);
        Self::with(size, seed, oddities)
    }

    /// A world with these oddities.
    pub(crate) fn with(size: usize, seed: u64, oddities: Oddities) -> Self {
        let net = Rc::new(RefCell::new(Net {
            oddities,
            rng: Rng(seed ^ 0x5bd1_e995),
            pipes: (0..size).map(|_| (0..size).map(|_| Pipe::default()).collect()).collect(),
            coming: vec![0; size],
            dead: vec![false; size],
            offered: HashMap::new(),
            lent: HashMap::new(),
            reading: (0..size).map(|_| Vec::new()).collect(),
            tickets: 0,
            caught: 0,
            left: 0,
            scratch: Vec::new(),
        }));
        let engine = |rank| {
            let me = Peer(rank as u32);
            let mut engine = Engine::new(me, Fake { me, net: Rc::clone(&net) });
            engine.set_deferring(seed.rotate_right(me.0) & 1 == 1);
            engine
        };
        Self { engines: (0..size).map(engine).collect(), net: Rc::clone(&net), rng: Rng(seed ^ 0x2545_f491) }
    }

    /// Makes the processes of even ranks sign their messages.
    pub(crate) fn check(&mut self) {
        self.engines.iter_mut().step_by(2).for_each(Engine::set_checked);
    }

    /// Limits what each process stores of unreceived messages, of all senders and at least of one.
    pub(crate) fn limit_stored(&mut self, most: usize, floor: usize) {
        self.engines.iter_mut().for_each(|engine| engine.limit_stored(most, floor));
    }

    /// Kills the process, and drops some of the last frames that it sent.
    pub(crate) fn kill(&mut self, rank: usize) {
        let net = &mut *self.net.borrow_mut();
        net.dead[rank] = true;
        net.reading[rank].clear();
        for peer in (0..net.dead.len()).map(|peer| Peer(peer as u32)) {
            net.forget_lent(Peer(rank as u32), peer);
            net.forget_lent(peer, Peer(rank as u32));
        }
        for (to, coming) in net.pipes.iter_mut().zip(&mut net.coming) {
            let pipe = &mut to[rank];
            let landing = usize::from(pipe.landing.is_some());
            let kept = landing + net.rng.below(pipe.packets.len() - landing + 1);
            *coming -= pipe.packets.len() - kept;
            pipe.packets.truncate(kept);
        }
    }

    /// Leaves no room for frames, until [`FakeWorld::empty_again`].
    pub(crate) fn fill_up(&mut self) {
        self.net.borrow_mut().oddities.full = 100;
    }

    /// Ends what [`FakeWorld::fill_up`] began.
    pub(crate) fn empty_again(&mut self) {
        self.net.borrow_mut().oddities.full = 0;
    }

    /// How many messages have been caught.
    pub(crate) fn caught(&self) -> usize {
        self.net.borrow().caught
    }

    /// How often a message was offered to a receive and left.
    pub(crate) fn left(&self) -> usize {
        self.net.borrow().left
    }

    /// Injects a frame that the process did not send.
    pub(crate) fn inject(&mut self, from: usize, to: usize, frame: Frame, payload: &[u8]) {
        let net = &mut *self.net.borrow_mut();
        net.pipes[to][from].packets.push_back(Packet { frame, payload: payload.to_vec(), lent: None });
        net.coming[to] += 1;
    }

    fn is_busy(&self, rank: usize) -> bool {
        let net = self.net.borrow();
        let lends = net.lent.keys().any(|(owner, _)| owner.0 as usize == rank);
        let has_work = net.coming[rank] > 0 || !net.reading[rank].is_empty() || self.engines[rank].has_backlog();
        !net.dead[rank] && (lends || has_work)
    }

    /// Whether no frame is in flight, and no memory is lent.
    pub(crate) fn is_silent(&self) -> bool {
        let net = self.net.borrow();
        net.offered.is_empty()
            && net.lent.is_empty()
            && net.reading.iter().all(Vec::is_empty)
            && net.pipes.iter().flatten().all(|pipe| pipe.packets.is_empty())
    }
}

impl World for FakeWorld {
    type Carrier = Fake;
    type Held<'a> = &'a mut Engine<Fake>;

    fn size(&self) -> usize {
        self.engines.len()
    }

    fn long(&self) -> usize {
        2000
    }

    fn engine(&mut self, rank: usize) -> &mut Engine<Fake> {
        &mut self.engines[rank]
    }

    /// Runs a process that has something to do, if there is one; all eventually notice a death.
    fn step(&mut self) {
        let size = self.engines.len();
        let busy: Vec<usize> = (0..size).filter(|rank| self.is_busy(*rank)).collect();
        let rank = if busy.is_empty() { self.rng.below(size) } else { busy[self.rng.below(busy.len())] };
        if !self.net.borrow().dead[rank] {
            self.engines[rank].progress();
        }
    }

    fn has_patience(&self, steps: usize) -> bool {
        steps < STEPS
    }
}
