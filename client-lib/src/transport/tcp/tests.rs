//! Several simulated processes in one, over loopback: each has its own poller, and runs when the test says so.

use std::collections::HashMap;
use std::io::{Read, Write};
use std::net::{Ipv4Addr, TcpStream};

use super::handshake::Dial;
use super::*;
use crate::datatype::Layout;
use crate::engine::frame::Envelope;
use crate::engine::{Landing, PullRefused};
use crate::memory::{Arrived, Buffer};
use crate::transport::poller::Reports;

mod admission;
mod connecting;
mod flowing;
mod foreign;
mod rails;
mod reaching;

const SECRET: [u8; 32] = [42; 32];
const WORLD: [u8; 16] = [1; 16];

fn config(rank: u32) -> TcpConfig {
    TcpConfig {
        me: ProcessName { world: WORLD, rank },
        secret: SECRET,
        listen: Listen::At(Ipv4Addr::LOCALHOST.into()),
        advertise: None,
        rails: Vec::new(),
        connect_limit: Duration::from_secs(20),
        hello_limit: Duration::from_secs(20),
        limits: LIMITS,
    }
}

/// What a process has received. Parts with the number 0 land in `memory`, one after the other, if it has some.
#[derive(Default)]
struct Received {
    frames: Vec<(Peer, Frame, Vec<u8>)>,
    lost: Vec<(Peer, String)>,
    memory: Vec<u8>,
    filled: usize,
    /// The memory has holes: elements of this layout fill it.
    layout: Option<Arc<Layout>>,
}

impl Received {
    #[expect(unsafe_code, reason = "lends memory as a user does")]
    fn buffer(&self) -> Buffer {
        let base = self.memory.as_ptr().cast_mut();
        match &self.layout {
            // SAFETY: the memory stays where it is as long as the test uses it.
            None => unsafe { Buffer::contiguous(base, self.memory.len()) },
            // SAFETY: as above; elements do not reach beyond their extent.
            Some(layout) => unsafe { Buffer::new(base, self.memory.len() / layout.extent() as usize, layout) },
        }
    }

    fn has_place_for(&self, frame: &Frame, len: usize) -> bool {
        *frame == (Frame::Part { receive: 0 }) && self.buffer().len() - self.filled >= len
    }
}

impl Sink for Received {
    fn on_frame(&mut self, from: Peer, frame: Frame, payload: Arrived<'_>) {
        if self.has_place_for(&frame, payload.len()) {
            payload.copy_to(&self.buffer(), self.filled, payload.len());
            self.filled += payload.len();
        } else {
            self.frames.push((from, frame, payload.to_vec()));
        }
    }

    fn landing(&mut self, _: Peer, frame: &Frame, len: usize) -> Option<Landing> {
        self.has_place_for(frame, len).then(|| Landing { buffer: self.buffer(), at: self.filled })
    }

    fn on_landed(&mut self, _: Peer, _: Frame, len: usize) {
        self.filled += len;
    }

    fn on_pulled(&mut self, _: Peer, _: u32, _: Result<(), PullRefused>) {}

    fn on_lost(&mut self, peer: Peer, reason: &str) {
        self.lost.push((peer, reason.to_owned()));
    }
}

struct Process {
    tcp: Tcp,
    poller: Arc<Poller>,
    received: Received,
    /// The addresses of the others.
    addresses: HashMap<Peer, Result<String, String>>,
}

impl Process {
    fn new(config: TcpConfig) -> Self {
        let poller = Arc::new(Poller::new().unwrap());
        let tcp = Tcp::new(config, Arc::clone(&poller)).unwrap();
        Self { tcp, poller, received: Received::default(), addresses: HashMap::new() }
    }

    /// Processes 0 to `count` - 1 that expect each other.
    fn world(count: u32) -> Vec<Self> {
        Self::world_of((0..count).map(config))
    }

    fn world_of(configs: impl Iterator<Item = TcpConfig>) -> Vec<Self> {
        let mut world: Vec<_> = configs.map(Self::new).collect();
        let addresses: Vec<_> = world.iter().map(|process| process.tcp.address()).collect();
        for (me, process) in world.iter_mut().enumerate() {
            for (rank, address) in addresses.iter().enumerate().filter(|(rank, _)| *rank != me) {
                process.knows(rank as u32, Ok(address));
            }
        }
        world
    }

    fn pair() -> [Self; 2] {
        Self::world(2).try_into().unwrap_or_else(|_| unreachable!("two were asked for"))
    }

    fn knows(&mut self, rank: u32, address: Result<&str, &str>) {
        self.tcp.expect(Peer(rank), ProcessName { world: WORLD, rank });
        self.addresses.insert(Peer(rank), address.map(str::to_owned).map_err(str::to_owned));
    }

    fn look(&mut self) {
        let mut reports = Reports::default();
        self.poller.wait(&mut reports, Duration::ZERO).unwrap();
        reports.iter().for_each(|ready| self.tcp.on_ready(ready));
    }

    fn find(&mut self) {
        while let Some(peer) = self.tcp.next_wanted() {
            let address = self.addresses[&peer].clone();
            self.tcp.locate(peer, address.as_deref().map_err(Clone::clone));
        }
    }

    /// Runs the process once; returns whether anything arrived.
    fn turn(&mut self) -> bool {
        self.look();
        self.find();
        self.tcp.poll(&mut self.received)
    }

    /// Sleeps as the library does.
    fn sleep(&mut self) {
        let limit = self.tcp.prepare_sleep().unwrap_or(Duration::from_secs(1));
        let mut reports = Reports::default();
        self.poller.wait(&mut reports, limit).unwrap();
        reports.iter().for_each(|ready| self.tcp.on_ready(ready));
        self.find();
        self.tcp.poll(&mut self.received);
    }

    fn send(&mut self, to: u32, frame: &Frame, bytes: &[u8]) -> Result<(), Refusal> {
        let buffer = lent(bytes);
        self.tcp.try_send(Peer(to), frame, Payload::new(&buffer, 0, bytes.len()))
    }

    fn payloads(&self) -> Vec<&[u8]> {
        self.received.frames.iter().map(|(_, _, payload)| &payload[..]).collect()
    }
}

#[expect(unsafe_code, reason = "lends memory as a user does")]
fn lent(bytes: &[u8]) -> Buffer {
    // SAFETY: nothing is received into it, and its users end before the bytes do.
    unsafe { Buffer::contiguous(bytes.as_ptr().cast_mut(), bytes.len()) }
}

fn eager(tag: i32) -> Frame {
    Frame::Eager { envelope: Envelope { context: 0, rank: 0, tag } }
}

/// Runs all processes until the condition holds.
fn until(processes: &mut [Process], mut done: impl FnMut(&mut [Process]) -> bool) {
    let start = Instant::now();
    while !done(processes) {
        assert!(start.elapsed() < Duration::from_secs(30), "timed out");
        for process in processes.iter_mut() {
            process.turn();
        }
    }
}

/// Two processes that have exchanged a frame.
fn connected() -> [Process; 2] {
    let mut pair = Process::pair();
    until(&mut pair, |pair| pair[0].send(1, &eager(0), b"first").is_ok());
    until(&mut pair, |pair| !pair[1].received.frames.is_empty());
    pair[1].received.frames.clear();
    pair
}

/// An endless sequence of random numbers from a seed (xorshift).
struct Dice(u64);

impl Dice {
    fn below(&mut self, limit: usize) -> usize {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        (self.0 % limit as u64) as usize
    }
}
