//! The time that the schedules of all ranks take on a machine: an event simulation.
//!
//! Each rank's core takes the steps of its schedule one after the other. A message costs the core of the sender, a port of its node, the
//! latency, a port of the other node and the core of the receiver; long ones also wait for their receiver first. What a rank does between
//! two waits happens at once in the order of events, so ports are given to messages in nearly the order of their times.
//!
//! If all nodes do the same, one node stands for all ([`World::Folded`]): what it sends to other nodes it also receives from
//! them. The lengths of the messages must then agree, and none may be left over; otherwise the nodes are not alike.

use std::cmp::Reverse;
use std::collections::{BinaryHeap, HashMap, VecDeque};
use std::hash::{BuildHasherDefault, Hasher};

use rsd_mpi::coll::{Action, Layout, Schedule};

use crate::machine::{EAGER, Link, Machine};

/// Which ranks are simulated.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum World {
    /// All.
    Whole,
    /// The ranks of the first node.
    Folded,
}

/// Returns when the last rank is done, in nanoseconds; none if the world cannot be folded. `schedule(rank)` are its steps.
pub(crate) fn time(
    machine: &Machine,
    layout: &Layout,
    world: World,
    schedule: impl Fn(u32) -> Schedule,
) -> Option<f64> {
    let ranks = if world == World::Folded { layout.on(0) } else { layout.size() };
    let nodes = if world == World::Folded { 1 } else { layout.nodes() };
    let schedules: Vec<Schedule> = (0..ranks).map(schedule).collect();
    let mut clock = Clock {
        machine,
        layout,
        world,
        ranks: schedules.iter().map(|schedule| Rank::new(schedule.actions())).collect(),
        nodes: (0..nodes).map(|_| Node::new(machine.ports)).collect(),
        halves: HashMap::default(),
        events: BinaryHeap::new(),
        tick: 0,
        fits: true,
    };
    (0..ranks).for_each(|rank| clock.at(0.0, rank, Event::Go));
    while let Some(Reverse((time, _, rank, event))) = clock.events.pop() {
        clock.on(f64::from_bits(time), rank, event);
    }
    let is_over = clock.ranks.iter().all(|rank| rank.missing == 0 && rank.next == rank.steps.len());
    if world == World::Whole {
        assert!(is_over && clock.halves.values().all(VecDeque::is_empty), "messages are left over");
    }
    let fits = clock.fits && is_over && clock.halves.values().all(VecDeque::is_empty);
    fits.then(|| clock.ranks.iter().map(|rank| rank.now).fold(0.0, f64::max))
}

struct Clock<'a> {
    machine: &'a Machine,
    layout: &'a Layout,
    world: World,
    ranks: Vec<Rank<'a>>,
    nodes: Vec<Node>,
    /// Messages of which the other side is not there yet.
    halves: HashMap<Way, VecDeque<Half>, BuildHasherDefault<Mixer>>,
    /// By time (as bits, which order like the positive numbers) and order of arrival.
    events: BinaryHeap<Reverse<(u64, u64, u32, Event)>>,
    tick: u64,
    fits: bool,
}

/// The sender and the receiver, and whether the message leaves the node.
type Way = (u32, u32, bool);

struct Rank<'a> {
    steps: &'a [Action],
    next: usize,
    now: f64,
    /// Messages that the current wait waits for.
    missing: u32,
    /// When the core has sent all that it has begun to send.
    sent: f64,
}

impl<'a> Rank<'a> {
    fn new(steps: &'a [Action]) -> Self {
        Self { steps, next: 0, now: 0.0, missing: 0, sent: 0.0 }
    }
}

/// What the ranks of a node share.
struct Node {
    out: Vec<Shared>,
    into: Vec<Shared>,
    memory: Shared,
}

impl Node {
    fn new(ports: usize) -> Self {
        Self { out: vec![Shared::default(); ports], into: vec![Shared::default(); ports], memory: Shared::default() }
    }
}

/// Serves one after the other. Requests come in nearly the order of their times; one that comes too late in that order waits no longer
/// than for the work that is left.
#[derive(Debug, Clone, Copy, Default)]
struct Shared {
    now: f64,
    /// The time that the work takes that is left at `now`.
    left: f64,
}

impl Shared {
    /// Returns when the work begins.
    fn serve(&mut self, time: f64, work: f64) -> f64 {
        if time > self.now {
            self.left = (self.left - (time - self.now)).max(0.0);
            self.now = time;
        }
        let start = time + self.left;
        self.left += work;
        start
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Event {
    /// The rank goes on.
    Go,
    /// A send is complete.
    Sent,
    /// The head of a message is there; the tail comes at this time (as bits).
    Came { outside: bool, len: u64, tail: u64, sender: u32 },
}

#[derive(Debug, Clone, Copy)]
enum Half {
    Send { at: f64, len: u64 },
    Recv { at: f64, len: u64 },
}

impl Clock<'_> {
    fn at(&mut self, time: f64, rank: u32, event: Event) {
        self.tick += 1;
        self.events.push(Reverse((time.to_bits(), self.tick, rank, event)));
    }

    fn link(&self, outside: bool) -> Link {
        if outside { self.machine.outside } else { self.machine.inside }
    }

    /// The node that stands for the node of a rank.
    fn node(&self, rank: u32) -> usize {
        if self.world == World::Folded { 0 } else { self.layout.node(rank) as usize }
    }

    fn on(&mut self, time: f64, rank: u32, event: Event) {
        let now = self.ranks[rank as usize].now.max(time);
        self.ranks[rank as usize].now = now;
        match event {
            Event::Go => return self.go(rank),
            Event::Sent => {}
            Event::Came { outside, len, tail, sender } => {
                let link = self.link(outside);
                let bytes = len as f64;
                let done = if outside {
                    (now + link.recv + bytes / link.core).max(f64::from_bits(tail))
                } else {
                    self.moved(rank, now + link.recv, bytes, link.core)
                };
                self.ranks[rank as usize].now = done;
                if !outside && len > EAGER {
                    self.at(done + link.latency, sender, Event::Sent);
                }
            }
        }
        let state = &mut self.ranks[rank as usize];
        state.missing -= 1;
        if state.missing == 0 {
            let now = state.now;
            self.at(now, rank, Event::Go);
        }
    }

    /// When the core has moved bytes, of which all cores of the node together can move so many at a time.
    fn moved(&mut self, rank: u32, now: f64, bytes: f64, rate: f64) -> f64 {
        let node = self.node(rank);
        let work = bytes / self.machine.memory;
        (self.nodes[node].memory.serve(now, work) + work).max(now + bytes / rate)
    }

    fn go(&mut self, rank: u32) {
        let steps = self.ranks[rank as usize].steps;
        while let Some(step) = steps.get(self.ranks[rank as usize].next) {
            let now = self.ranks[rank as usize].now;
            self.ranks[rank as usize].next += 1;
            match *step {
                Action::Wait if self.ranks[rank as usize].missing > 0 => return,
                Action::Wait => {}
                Action::Send { to, from } => self.send(rank, to, from.len),
                Action::Recv { from, into } => self.recv(rank, from, into.len),
                Action::Copy { from, .. } => {
                    let bytes = from.len as f64;
                    self.ranks[rank as usize].now = self.moved(rank, now + self.machine.step, bytes, self.machine.copy);
                }
                Action::Combine { left, .. } => {
                    let bytes = left.len as f64;
                    self.ranks[rank as usize].now =
                        self.moved(rank, now + self.machine.step, bytes, self.machine.combine);
                }
            }
        }
    }

    /// Both ends of a message, as simulated ranks, and whether it leaves the node.
    fn way(&self, from: u32, to: u32) -> Way {
        let outside = self.layout.node(from) != self.layout.node(to);
        match self.world {
            World::Whole => (from, to, outside),
            World::Folded => (self.layout.place(from), self.layout.place(to), outside),
        }
    }

    fn send(&mut self, rank: u32, to: u32, len: u64) {
        let way = self.way(rank, to);
        let link = self.link(way.2);
        let start = self.ranks[rank as usize].now + link.send;
        self.ranks[rank as usize].now = if len > EAGER {
            start
        } else if way.2 {
            start + len as f64 / link.core
        } else {
            self.moved(rank, start, len as f64, link.core)
        };
        if len > EAGER {
            self.ranks[rank as usize].missing += 1;
        }
        // Over the network, the head is on its way while the core still writes.
        let at = if way.2 { start } else { self.ranks[rank as usize].now };
        self.half(way, Half::Send { at, len });
    }

    fn recv(&mut self, rank: u32, from: u32, len: u64) {
        let now = self.ranks[rank as usize].now + self.machine.step;
        self.ranks[rank as usize].now = now;
        self.ranks[rank as usize].missing += 1;
        let way = self.way(from, rank);
        self.half(way, Half::Recv { at: now, len });
    }

    fn half(&mut self, way: Way, half: Half) {
        let queue = self.halves.entry(way).or_default();
        let is_other = |other: &Half| matches!(other, Half::Send { .. }) != matches!(half, Half::Send { .. });
        if queue.front().is_none_or(|front| !is_other(front)) {
            queue.push_back(half);
            return;
        }
        match (queue.pop_front(), half) {
            (Some(Half::Send { at, len }), Half::Recv { at: ready, len: expected })
            | (Some(Half::Recv { at: ready, len: expected }), Half::Send { at, len }) => {
                // Nearly equal parts of a vector may differ by an element or a line.
                self.fits &= len.abs_diff(expected) <= 64.max(len / 64);
                self.transfer(way, at, ready, len);
            }
            (front, _) => unreachable!("{front:?} is not the other half"),
        }
    }

    /// A message of which both sides are there.
    fn transfer(&mut self, (from, to, outside): Way, sent: f64, ready: f64, len: u64) {
        let link = self.link(outside);
        let bytes = len as f64;
        let waits = len > EAGER;
        if !outside {
            let head = (sent + link.latency).max(ready);
            return self.at(head, to, Event::Came { outside, len, tail: 0, sender: from });
        }
        let mut start = sent;
        if waits {
            // The announcement, the answer, and then the bytes, as the sender's core gets to them.
            let cleared = (sent + link.latency).max(ready) + link.latency;
            start = cleared.max(self.ranks[from as usize].sent);
            self.ranks[from as usize].sent = start + bytes / link.core;
        }
        let slowest = self.machine.port.min(link.core);
        let (gap, port) = (self.machine.gap, self.machine.port);
        let through = |ports: &mut [Shared], head: f64| {
            let first = (0..ports.len()).min_by(|one, two| ports[*one].left.total_cmp(&ports[*two].left));
            first.map_or(head, |first| ports[first].serve(head, gap + bytes / port))
        };
        let (near, far) = (self.node(from), self.node(to));
        let left = through(&mut self.nodes[near].out, start);
        let head = through(&mut self.nodes[far].into, left + link.latency);
        let tail = head + gap + bytes / slowest;
        if waits {
            self.at(left + gap + bytes / slowest, from, Event::Sent);
        }
        let came = Event::Came { outside, len, tail: tail.to_bits(), sender: from };
        self.at(head.max(ready), to, came);
    }
}

/// A fast hash of the ends of a message.
#[derive(Default)]
struct Mixer(u64);

impl Hasher for Mixer {
    fn finish(&self) -> u64 {
        self.0 ^ self.0 >> 32
    }

    fn write(&mut self, bytes: &[u8]) {
        bytes.iter().for_each(|byte| self.write_u32(u32::from(*byte)));
    }

    fn write_u32(&mut self, word: u32) {
        self.0 = (self.0.rotate_left(23) ^ u64::from(word)).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    }
}
