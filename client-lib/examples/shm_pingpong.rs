//! `shm_pingpong`: measures the shared-memory transport alone between two processes pinned to cpus 0 and 1:
//! one-way latency, rate of small frames, and bandwidth through cells and by one copy. Every line is the median of some rounds.

#![expect(unsafe_code, reason = "lends its own vectors")]

use std::process::{Command, ExitCode};
use std::time::{Duration, Instant};

use nix::sched::{CpuSet, sched_setaffinity};
use nix::unistd::Pid;
use rsd_mpi::engine::frame::{Envelope, Frame, Region};
use rsd_mpi::engine::{Landing, Peer, PullRefused, Pulled, Refusal, Sink};
use rsd_mpi::memory::{Arrived, Buffer, Payload};
use rsd_mpi::transport::name::ProcessName;
use rsd_mpi::transport::shm::{Shm, ShmConfig};

const OTHER: Peer = Peer(1);
const ROUNDS: usize = 41;

/// The received frames of each kind.
#[derive(Default)]
struct Inbox {
    /// Frames that are not part of a complete message yet.
    frames: usize,
    ready: Vec<(u64, Region)>,
    done: u64,
    pulled: Option<Result<(), PullRefused>>,
    lost: bool,
    into: Vec<u8>,
    at: usize,
}

impl Sink for Inbox {
    fn on_frame(&mut self, _: Peer, frame: Frame, payload: Arrived<'_>) {
        match frame {
            Frame::Ready { len, region: Some(region), .. } => self.ready.push((len, region)),
            Frame::Done { .. } => self.done += 1,
            _ => {
                if self.at + payload.len() > self.into.len() {
                    self.at = 0;
                }
                // SAFETY: the vector outlives the buffer.
                let into = unsafe { Buffer::contiguous(self.into.as_mut_ptr(), self.into.len()) };
                payload.copy_to(&into, self.at, payload.len());
                self.at += payload.len();
                self.frames += 1;
            }
        }
    }

    fn landing(&mut self, _: Peer, _: &Frame, _: usize) -> Option<Landing> {
        None
    }

    fn on_landed(&mut self, _: Peer, _: Frame, _: usize) {}

    fn on_pulled(&mut self, _: Peer, _: u32, result: Result<(), PullRefused>) {
        self.pulled = Some(result);
    }

    fn on_lost(&mut self, peer: Peer, reason: &str) {
        eprintln!("{peer:?}: {reason}");
        self.lost = true;
    }
}

struct Side {
    shm: Shm,
    inbox: Inbox,
    first: bool,
    from: Vec<u8>,
}

impl Side {
    fn poll(&mut self) {
        self.shm.poll(&mut self.inbox);
        assert!(!self.inbox.lost);
        std::hint::spin_loop();
    }

    fn send(&mut self, frame: &Frame, at: usize, len: usize) {
        // SAFETY: the vector lives longer than the buffer.
        let buffer = unsafe { Buffer::contiguous(self.from.as_mut_ptr(), self.from.len()) };
        while let Err(refusal) = self.shm.try_send(OTHER, frame, Payload::new(&buffer, at, len)) {
            assert_eq!(refusal, Refusal::Full);
            self.poll();
        }
    }

    fn send_message(&mut self, way: Way, len: usize) {
        let envelope = Envelope { context: 1, rank: 0, tag: 1 };
        match way {
            Way::Cells(part) => {
                let mut at = 0;
                loop {
                    let part = part.min(len - at);
                    self.send(&Frame::Eager { envelope }, at, part);
                    at += part;
                    if at == len {
                        break;
                    }
                }
            }
            Way::Pull => {
                // SAFETY: the vector lives longer than the buffer.
                let buffer = unsafe { Buffer::contiguous(self.from.as_mut_ptr(), len) };
                let region = self.shm.offer(OTHER, &buffer);
                let region = region.unwrap_or(Region { address: self.from.as_ptr() as u64, ticket: u32::MAX });
                self.send(&Frame::Ready { envelope, send: 1, len: len as u64, region: Some(region) }, 0, 0);
                while self.inbox.done == 0 {
                    self.poll();
                }
                self.inbox.done -= 1;
                self.shm.withdraw(OTHER, region);
            }
        }
    }

    fn receive_message(&mut self, way: Way, len: usize) {
        match way {
            Way::Cells(part) => {
                let parts = len.div_ceil(part).max(1);
                while self.inbox.frames < parts {
                    self.poll();
                }
                self.inbox.frames -= parts;
            }
            Way::Pull => {
                while self.inbox.ready.is_empty() {
                    self.poll();
                }
                let (len, region) = self.inbox.ready.remove(0);
                // SAFETY: as above.
                let into = unsafe { Buffer::contiguous(self.inbox.into.as_mut_ptr(), self.inbox.into.len()) };
                // The transport sometimes requests parts to measure whether they are faster: not here.
                while !self.pull(region, &into, len as usize) {}
                self.send(&Frame::Done { send: 1 }, 0, 0);
            }
        }
    }

    /// Whether the message was read, by both ends or by this one alone.
    fn pull(&mut self, region: Region, into: &Buffer, len: usize) -> bool {
        self.inbox.pulled = None;
        match self.shm.pull(OTHER, region, into, len, 0) {
            Ok(Pulled::Now) => return true,
            Err(PullRefused) => return false,
            Ok(Pulled::NotYet) => {
                self.poll();
                return false;
            }
            Ok(Pulled::Later) => {}
        }
        loop {
            if let Some(result) = self.inbox.pulled {
                return result.is_ok();
            }
            self.poll();
        }
    }

    /// The median one-way time in microseconds.
    fn latency(&mut self, way: Way, len: usize, count: usize) -> f64 {
        let times = (0..ROUNDS).map(|_| {
            let start = Instant::now();
            for _ in 0..count {
                if self.first {
                    self.send_message(way, len);
                    self.receive_message(way, len);
                } else {
                    self.receive_message(way, len);
                    self.send_message(way, len);
                }
            }
            start.elapsed().as_secs_f64() * 1e6 / (2 * count) as f64
        });
        median(times.collect())
    }

    /// The median rate of one-way messages per microsecond, with an answer after each `count`.
    fn rate(&mut self, way: Way, len: usize, count: usize) -> f64 {
        let rates = (0..ROUNDS).map(|_| {
            let start = Instant::now();
            if self.first {
                (0..count).for_each(|_| self.send_message(way, len));
                self.receive_message(Way::Cells(8), 8);
            } else {
                (0..count).for_each(|_| self.receive_message(way, len));
                self.send_message(Way::Cells(8), 8);
            }
            count as f64 / (start.elapsed().as_secs_f64() * 1e6)
        });
        median(rates.collect())
    }
}

#[derive(Clone, Copy)]
enum Way {
    /// Sends in frames of at most this payload.
    Cells(usize),
    Pull,
}

fn median(mut values: Vec<f64>) -> f64 {
    values.sort_by(f64::total_cmp);
    values[values.len() / 2]
}

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().collect();
    let (first, job) = match arguments.get(1).map(String::as_str) {
        None => (true, format!("pingpong {}", std::process::id())),
        Some(job) => (false, job.to_string()),
    };
    let mut cpus = CpuSet::new();
    let pinned = cpus.set(usize::from(!first)).and_then(|()| sched_setaffinity(Pid::from_raw(0), &cpus));
    if let Err(errno) = pinned {
        eprintln!("shm_pingpong: needs cpus 0 and 1: {}", errno.desc());
        return ExitCode::from(2);
    }
    let name = |rank| ProcessName::new(job.as_bytes(), rank);
    let mut shm = Shm::new(ShmConfig::new(name(u32::from(!first)))).expect("shared memory");
    shm.expect(OTHER, name(u32::from(first)));
    let child = first.then(|| Command::new(&arguments[0]).arg(&job).spawn().expect("itself"));
    let inbox = Inbox { into: vec![1; 8 << 20], ..Inbox::default() };
    let mut side = Side { shm, inbox, first, from: vec![2; 8 << 20] };
    measure(&mut side);
    if let Some(mut child) = child {
        side.shm.park(Duration::ZERO);
        return if child.wait().is_ok_and(|status| status.success()) { ExitCode::SUCCESS } else { ExitCode::FAILURE };
    }
    ExitCode::SUCCESS
}

fn measure(side: &mut Side) {
    let first = side.first;
    side.latency(Way::Cells(32768), 8, 1000);
    let print = |text: String| {
        if first {
            println!("{text}")
        }
    };
    print(side.shm.describe(OTHER));
    for len in [0, 8, 40, 64, 256, 1024, 4096, 16384, 32768] {
        let latency = side.latency(Way::Cells(32768), len, 500);
        let rate = side.rate(Way::Cells(32768), len, 2000);
        print(format!("{len:>8} B: {latency:6.3} us one way, {rate:6.2} M/s, {:6.2} GB/s", rate * len as f64 / 1e3));
    }
    for len in [65536, 262_144, 1 << 20, 4 << 20] {
        let count = (4 << 20) / len;
        for part in [4096, 8192, 16384, 32768].into_iter().filter(|part| *part <= len) {
            let latency = side.latency(Way::Cells(part), len, count);
            let rate = side.rate(Way::Cells(part), len, count);
            let rate = rate * len as f64 / 1e3;
            print(format!("{len:>8} B in parts of {part:>6}: {latency:8.2} us one way, {rate:6.2} GB/s"));
        }
        let latency = side.latency(Way::Pull, len, count);
        let rate = side.rate(Way::Pull, len, count) * len as f64 / 1e3;
        print(format!("{len:>8} B by one copy       : {latency:8.2} us one way, {rate:6.2} GB/s"));
    }
}
