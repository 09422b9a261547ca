//! `tcp_pingpong [EAGER PART [SIZE...]]`: two processes, each on its own core, exchange messages over loopback with only the library's TCP transport,
//! without matching. Prints for each size the one-way time (half a ping-pong, median and minimum) and the bandwidth (64 messages,
//! at most 64 MiB, then one back), each the best of several rounds, because other work on the machine only makes them worse.

use std::error::Error;
use std::io::{BufRead, BufReader, Write};
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::time::{Duration, Instant};

use nix::sched::{CpuSet, sched_setaffinity};
use nix::unistd::Pid;
use rsd_mpi::engine::{Envelope, Frame, FrameLimits, Landing, Peer, PullRefused, Refusal, Sink};
use rsd_mpi::memory::{Arrived, Buffer, Payload};
use rsd_mpi::transport::name::ProcessName;
use rsd_mpi::transport::poller::{Poller, Reports};
use rsd_mpi::transport::tcp::{LIMITS, Listen, Tcp, TcpConfig};

const SIZES: [usize; 8] = [8, 1 << 10, 4 << 10, 16 << 10, 64 << 10, 256 << 10, 1 << 20, 4 << 20];
const ROUNDS: usize = 6;
const WINDOWS: usize = 20;

fn main() -> Result<(), Box<dyn Error>> {
    let args: Vec<_> = std::env::args().skip(1).collect();
    if let [first, address, plan @ ..] = &args[..]
        && first == "other"
    {
        return End::new(1, &numbers(plan)?, address)?.answer();
    }
    let plan = numbers(&args)?;
    let mut end = End::new(0, &plan, "")?;
    let mut other = Command::new(std::env::current_exe()?)
        .args(["other", &end.tcp.address()])
        .args(plan.iter().map(usize::to_string))
        .stdout(Stdio::piped())
        .spawn()?;
    let mut address = String::new();
    BufReader::new(other.stdout.take().ok_or("no stdout")?).read_line(&mut address)?;
    end.address = address.trim().to_owned();
    end.measure();
    other.wait()?;
    Ok(())
}

/// `EAGER PART SIZE...`; missing values default to the library's.
fn numbers(args: &[String]) -> Result<Vec<usize>, Box<dyn Error>> {
    let mut plan = args.iter().map(|text| text.parse::<usize>()).collect::<Result<Vec<_>, _>>()?;
    let defaults = [&[LIMITS.eager, LIMITS.part], &SIZES[..]].concat();
    let given = plan.len().min(3);
    plan.extend_from_slice(if given < 3 { &defaults[given..] } else { &[] });
    Ok(plan)
}

/// One of the two processes, with memory for one message.
struct End {
    tcp: Tcp,
    poller: Arc<Poller>,
    address: String,
    memory: Memory,
    sizes: Vec<usize>,
    idle: u32,
    begun: bool,
}

/// Receives everything in the same memory, and counts it.
struct Memory {
    bytes: Vec<u8>,
    messages: u64,
    filled: usize,
    expected: usize,
    bye: bool,
}

impl Memory {
    fn add(&mut self, len: usize) {
        self.filled += len;
        if self.filled >= self.expected {
            self.filled = 0;
            self.messages += 1;
        }
    }

    fn buffer(&self) -> Buffer {
        #[expect(unsafe_code, reason = "lends memory as a user does")]
        // SAFETY: the memory lives as long as the process.
        unsafe {
            Buffer::contiguous(self.bytes.as_ptr().cast_mut(), self.bytes.len())
        }
    }
}

impl Sink for Memory {
    fn on_frame(&mut self, _: Peer, frame: Frame, payload: Arrived<'_>) {
        match frame {
            Frame::Bye => self.bye = true,
            _ => {
                payload.copy_to(&self.buffer(), self.filled, payload.len());
                self.add(payload.len());
            }
        }
    }

    fn landing(&mut self, _: Peer, _: &Frame, _: usize) -> Option<Landing> {
        Some(Landing { buffer: self.buffer(), at: self.filled })
    }

    fn on_landed(&mut self, _: Peer, _: Frame, len: usize) {
        self.add(len);
    }

    fn on_pulled(&mut self, _: Peer, _: u32, _: Result<(), PullRefused>) {}

    fn on_lost(&mut self, _: Peer, reason: &str) {
        eprintln!("tcp_pingpong: {reason}");
        std::process::exit(1);
    }
}

impl End {
    fn new(rank: u32, plan: &[usize], other: &str) -> Result<Self, Box<dyn Error>> {
        let mut cpu = CpuSet::new();
        cpu.set(rank as usize)?;
        sched_setaffinity(Pid::from_raw(0), &cpu)?;
        let poller = Arc::new(Poller::new()?);
        let name = |rank| ProcessName { world: [0; 16], rank };
        let config = TcpConfig {
            me: name(rank),
            secret: [1; 32],
            listen: Listen::At("127.0.0.1".parse()?),
            advertise: None,
            rails: Vec::new(),
            connect_limit: Duration::from_secs(10),
            hello_limit: Duration::from_secs(10),
            limits: FrameLimits {
                eager: plan[0],
                eager_device: plan[0],
                part: plan[1],
                part_device: plan[1],
                lent: usize::MAX,
            },
        };
        let mut tcp = Tcp::new(config, Arc::clone(&poller))?;
        tcp.expect(Peer(1 - rank), name(1 - rank));
        let sizes = plan[2..].to_vec();
        let largest = sizes.iter().copied().max().unwrap_or(0);
        let memory = Memory { bytes: vec![1; largest], messages: 0, filled: 0, expected: 0, bye: false };
        Ok(Self { tcp, poller, address: other.to_owned(), memory, sizes, idle: 0, begun: false })
    }

    fn poll(&mut self) {
        self.idle += 1;
        if self.tcp.poll(&mut self.memory) {
            self.idle = 0;
        } else if self.idle >= 256 || !self.begun {
            self.idle = 0;
            self.begun = !self.tcp.connected().is_empty();
            let mut reports = Reports::default();
            self.poller.wait(&mut reports, Duration::ZERO).expect("epoll works");
            reports.iter().for_each(|ready| self.tcp.on_ready(ready));
            while let Some(peer) = self.tcp.next_wanted() {
                self.tcp.locate(peer, Ok(&self.address));
            }
        }
    }

    fn frame(&mut self, to: u32, frame: &Frame, payload: Payload<'_>) {
        while let Err(refusal) = self.tcp.try_send(Peer(to), frame, payload) {
            assert_eq!(refusal, Refusal::Full);
            self.poll();
        }
    }

    fn send(&mut self, to: u32, len: usize) {
        let buffer = self.memory.buffer();
        let FrameLimits { eager, part, .. } = self.tcp.limits(Peer(to));
        let (frame, part) = if len <= eager {
            (Frame::Eager { envelope: Envelope { context: 0, rank: 0, tag: 0 } }, len)
        } else {
            (Frame::Part { receive: 0 }, part)
        };
        let mut at = 0;
        while at < len {
            let now = part.min(len - at);
            self.frame(to, &frame, Payload::new(&buffer, at, now));
            at += now;
        }
    }

    fn receive(&mut self, count: u64) {
        let until = self.memory.messages + count;
        while self.memory.messages < until {
            self.poll();
        }
    }

    /// The first process measures.
    fn measure(&mut self) {
        println!("{:>9} {:>12} {:>12} {:>12}", "bytes", "median us", "least us", "MB/s");
        for size in self.sizes.clone() {
            let (count, window) = plan(size);
            self.memory.expected = size;
            let (mut median, mut least, mut best) = (f64::MAX, f64::MAX, 0.0_f64);
            for _ in 0..ROUNDS {
                let mut times = Vec::with_capacity(count);
                for _ in 0..count {
                    let start = Instant::now();
                    self.send(1, size);
                    self.receive(1);
                    times.push(start.elapsed().as_secs_f64() * 1e6 / 2.0);
                }
                times.sort_by(f64::total_cmp);
                median = median.min(times[count / 2]);
                least = least.min(times[0]);
            }
            for _ in 0..WINDOWS {
                let start = Instant::now();
                for _ in 0..window {
                    self.send(1, size);
                }
                self.receive(1);
                best = best.max((window * size) as f64 / start.elapsed().as_secs_f64() / 1e6);
            }
            println!("{size:>9} {median:>12.2} {least:>12.2} {best:>12.1}");
        }
        self.leave(1);
    }

    /// The second process sends everything back.
    fn answer(&mut self) -> Result<(), Box<dyn Error>> {
        println!("{}", self.tcp.address());
        std::io::stdout().flush()?;
        for size in self.sizes.clone() {
            let (count, window) = plan(size);
            self.memory.expected = size;
            for _ in 0..ROUNDS * count {
                self.receive(1);
                self.send(0, size);
            }
            for _ in 0..WINDOWS {
                self.receive(window as u64);
                self.send(0, size);
            }
        }
        self.leave(0);
        Ok(())
    }

    fn leave(&mut self, to: u32) {
        self.frame(to, &Frame::Bye, Payload::NONE);
        while !self.memory.bye || !self.tcp.is_flushed() {
            self.poll();
        }
    }
}

/// The number of ping-pongs in a round, and of messages in a window.
fn plan(size: usize) -> (usize, usize) {
    ((100_000_000 / (size + 40_000)).clamp(20, 2_000), ((64 << 20) / size).clamp(1, 64))
}
