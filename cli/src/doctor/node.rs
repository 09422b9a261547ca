//! `rsctl examine`, which `rsctl doctor` runs on every node as a rank: it looks at what programs get there, and connects to its peers.
//!
//! It speaks lines of JSON: on standard output a [`Looked`], then, after a line with a [`Plan`] on standard input, one [`Reached`] for each peer,
//! and `Done`. Peers prove themselves by the plan's secret, so no other program can use the open port. Everything has a deadline.

use std::io::{self, BufRead, ErrorKind, Read, Write};
use std::net::{IpAddr, SocketAddr, TcpListener, TcpStream};
use std::os::fd::AsFd;
use std::path::Path;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use nix::errno::Errno;
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::sys::resource::{Resource, getrlimit};
use prost::Message;
use rsd_config::ports::PortRange;
use rsd_proto::v1::Inventory;
use serde::{Deserialize, Serialize};

use crate::exit::Failure;
use crate::print::out;

/// How long a node waits for the plan, and for connections of peers after that.
const PLAN_WAIT: Duration = Duration::from_secs(60);
/// The deadline of each connection and of each read or write.
const PATIENCE: Duration = Duration::from_secs(3);
/// How many messages go back and forth for the latency.
const PINGS: u32 = 20;
/// How much is sent for the bandwidth: until so many bytes, or so long.
const BULK_BYTES: u64 = 64 << 20;
const BULK_TIME: Duration = Duration::from_millis(300);
const PIECE: usize = 64 << 10;

/// What a node has.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub(super) struct Looked {
    pub(super) rank: u32,
    /// The port on which it waits for its peers; 0: none.
    pub(super) port: u16,
    /// Milliseconds since the epoch.
    pub(super) clock_ms: u64,
    /// Soft limits; None: unlimited.
    pub(super) nofile: Option<u64>,
    pub(super) nproc: Option<u64>,
    pub(super) memlock_bytes: Option<u64>,
    pub(super) shm_bytes: u64,
    pub(super) shm_free_bytes: u64,
    /// Yama's setting: 0 lets processes of one user read each other's memory. None: no Yama, which means the same.
    pub(super) ptrace_scope: Option<u32>,
    pub(super) xpmem: bool,
    /// Whether it has RDMA devices, which need locked memory.
    pub(super) rdma: bool,
    pub(super) knem: bool,
    pub(super) hugepages: u64,
    pub(super) hugepages_free: u64,
    /// GPUs that the kernel shows, and the version of NVIDIA's driver; empty: not loaded.
    pub(super) nvidia_gpus: u32,
    pub(super) nvidia_driver: String,
    /// The largest packet of each interface that is up.
    pub(super) mtus: Vec<(String, u32)>,
}

/// Whom a node tries to reach.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub(super) struct Plan {
    pub(super) secret: String,
    pub(super) peers: Vec<Peer>,
    /// How many peers will connect to this node.
    pub(super) callers: u32,
}

#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub(super) struct Peer {
    pub(super) rank: u32,
    /// Its addresses, the best first, and its port.
    pub(super) hosts: Vec<String>,
    pub(super) port: u16,
}

/// How a peer was reached.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub(super) struct Reached {
    pub(super) from: u32,
    pub(super) to: u32,
    /// At which address; empty: at none.
    pub(super) host: String,
    /// Why not, or why a measurement ended early.
    pub(super) error: String,
    pub(super) rtt_us: Option<u64>,
    pub(super) bytes_per_second: Option<u64>,
    /// How much the peer's clock is ahead, in milliseconds, give or take half of `rtt_us`.
    pub(super) ahead_ms: Option<i64>,
}

/// What a node says, one line each.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum Said {
    Looked(Looked),
    Reached(Reached),
    Done,
}

/// `examine`.
pub(crate) fn examine() -> Result<u8, Failure> {
    let failed = |error: io::Error| Failure::new(rsd_proto::transport::exit::SYSTEM, error.to_string());
    let rank = std::env::var("PMI_RANK").ok().and_then(|rank| rank.parse().ok()).unwrap_or(0);
    let port = listen().ok();
    let number = port.as_ref().and_then(|port| Some(port.local_addr().ok()?.port())).unwrap_or(0);
    say(&Said::Looked(look(rank, number)))?;
    // The rank ends if no plan comes: rsctl is gone.
    let plan = plan_in_time().map_err(failed)?;
    let serving = port.map(|port| {
        let (secret, callers) = (plan.secret.clone(), plan.callers);
        std::thread::spawn(move || serve(&port, &secret, callers))
    });
    for peer in &plan.peers {
        say(&Said::Reached(reach(rank, peer, &plan.secret)))?;
    }
    if let Some(serving) = serving {
        let _ = serving.join(); // a panic there was printed
    }
    say(&Said::Done)?;
    Ok(0)
}

fn say(said: &Said) -> Result<(), Failure> {
    let line = serde_json::to_string(said).unwrap_or_default();
    out(&(line + "\n"))
}

fn plan_in_time() -> io::Result<Plan> {
    let (sender, receiver) = std::sync::mpsc::channel();
    std::thread::spawn(move || {
        let mut line = String::new();
        let read = io::stdin().lock().take(64 << 20).read_line(&mut line);
        let _ = sender.send(read.map(|_| line)); // the reader may have given up
    });
    let line = receiver.recv_timeout(PLAN_WAIT).map_err(|_| io::Error::from(ErrorKind::TimedOut))??;
    // Each rank gets the plans of all.
    let mut plans: Vec<Plan> = serde_json::from_str(&line).map_err(io::Error::other)?;
    let rank: usize = std::env::var("PMI_RANK").ok().and_then(|rank| rank.parse().ok()).unwrap_or(0);
    if rank < plans.len() { Ok(plans.swap_remove(rank)) } else { Err(ErrorKind::InvalidData.into()) }
}

/// Listens as the ranks of programs do: within the port range of the node, if it has one.
fn listen() -> io::Result<TcpListener> {
    let on = |port: u16| TcpListener::bind(("::", port)).or_else(|_| TcpListener::bind(("0.0.0.0", port)));
    match ports() {
        PortRange::Any => on(0),
        // Each starts at another port, as far as process numbers go, because others may listen, too.
        range @ PortRange::From { .. } => {
            let mut ports = range.from(std::process::id() as usize);
            ports.find_map(|port| on(port).ok()).ok_or_else(|| ErrorKind::AddrInUse.into())
        }
    }
}

/// Returns the ports of this node, which its daemon has written down.
fn ports() -> PortRange {
    let directory = std::env::var_os("RSD_DVM").unwrap_or_default();
    let inventory = std::fs::read(Path::new(&directory).join("inventory")).ok();
    let inventory = inventory.and_then(|bytes| Inventory::decode(&*bytes).ok()).unwrap_or_default();
    inventory.port_range.parse().unwrap_or(PortRange::Any)
}

/// Answers peers until all have been here, or the deadline.
fn serve(port: &TcpListener, secret: &str, callers: u32) {
    // Each peer has a few seconds for each of its own peers; those that cannot connect are not waited for for long.
    let end = Instant::now() + PATIENCE * (2 + callers.min(20));
    // A connection may be gone again when it is to be accepted.
    let _ = port.set_nonblocking(true);
    let mut threads = Vec::new();
    while threads.len() < callers as usize {
        let left = end.saturating_duration_since(Instant::now());
        let mut wait = [PollFd::new(port.as_fd(), PollFlags::POLLIN)];
        match poll(&mut wait, PollTimeout::try_from(left).unwrap_or(PollTimeout::MAX)) {
            Ok(0) => break,
            Err(Errno::EINTR) => continue,
            Ok(_) => {}
            Err(_) => break,
        }
        if let Ok((stream, _)) = port.accept() {
            let secret = secret.to_owned();
            threads.push(std::thread::spawn(move || answer(stream, &secret)));
        }
    }
    threads.into_iter().for_each(|thread| drop(thread.join()));
}

/// Answers one peer: echoes pings with the time, then takes what it sends and says how much that was.
fn answer(mut stream: TcpStream, secret: &str) -> io::Result<()> {
    prepare(&stream)?;
    let mut given = vec![0; secret.len()];
    stream.read_exact(&mut given)?;
    if given != secret.as_bytes() {
        return Err(ErrorKind::PermissionDenied.into());
    }
    let mut ping = [0; 8];
    for _ in 0..PINGS {
        stream.read_exact(&mut ping)?;
        stream.write_all(&now_ms().to_be_bytes())?;
    }
    let (mut piece, mut taken) = (vec![0; PIECE], 0_u64);
    loop {
        match stream.read(&mut piece)? {
            0 => break,
            read => taken += read as u64,
        }
        if taken > 2 * BULK_BYTES {
            return Err(ErrorKind::InvalidData.into());
        }
    }
    stream.write_all(&taken.to_be_bytes())
}

fn prepare(stream: &TcpStream) -> io::Result<()> {
    stream.set_nodelay(true)?;
    stream.set_read_timeout(Some(PATIENCE))?;
    stream.set_write_timeout(Some(PATIENCE))
}

/// Connects to a peer and measures the way to it.
fn reach(from: u32, peer: &Peer, secret: &str) -> Reached {
    let mut reached = Reached { from, to: peer.rank, ..Reached::default() };
    let end = Instant::now() + PATIENCE;
    let mut errors = Vec::new();
    for host in &peer.hosts {
        let left = end.saturating_duration_since(Instant::now()).max(Duration::from_millis(100));
        let connected = host
            .parse::<IpAddr>()
            .map_err(|_| io::Error::from(ErrorKind::InvalidInput))
            .and_then(|ip| TcpStream::connect_timeout(&SocketAddr::new(ip, peer.port), left));
        match connected {
            Ok(stream) => {
                reached.host.clone_from(host);
                if let Err(error) = measure(stream, secret, &mut reached) {
                    reached.error = format!("the connection to {host} was made, and then: {}", sentence(&error));
                }
                return reached;
            }
            Err(error) => errors.push(format!("{host}: {}", sentence(&error))),
        }
    }
    reached.error = if errors.is_empty() { "it has no address".to_owned() } else { errors.join("; ") };
    reached
}

fn sentence(error: &io::Error) -> String {
    match error.kind() {
        ErrorKind::TimedOut | ErrorKind::WouldBlock => "nothing answers in time".to_owned(),
        _ => error.to_string(),
    }
}

fn measure(mut stream: TcpStream, secret: &str, reached: &mut Reached) -> io::Result<()> {
    prepare(&stream)?;
    stream.write_all(secret.as_bytes())?;
    let mut shortest = Duration::MAX;
    for _ in 0..PINGS {
        let (began, sent_ms) = (Instant::now(), now_ms());
        stream.write_all(&[0; 8])?;
        let mut time = [0; 8];
        stream.read_exact(&mut time)?;
        let took = began.elapsed();
        if took < shortest {
            shortest = took;
            let middle = sent_ms + u64::try_from(took.as_millis() / 2).unwrap_or(0);
            reached.ahead_ms = Some(u64::from_be_bytes(time).cast_signed() - middle.cast_signed());
        }
    }
    reached.rtt_us = u64::try_from(shortest.as_micros()).ok();
    let (piece, began, mut sent) = (vec![0; PIECE], Instant::now(), 0_u64);
    while sent < BULK_BYTES && began.elapsed() < BULK_TIME {
        sent += stream.write(&piece)? as u64;
    }
    stream.shutdown(std::net::Shutdown::Write)?;
    let mut taken = [0; 8];
    stream.read_exact(&mut taken)?;
    let seconds = began.elapsed().as_secs_f64();
    if u64::from_be_bytes(taken) == sent && seconds > 0.0 {
        reached.bytes_per_second = Some((sent as f64 / seconds) as u64);
    }
    Ok(())
}

// --- this node ---

fn look(rank: u32, port: u16) -> Looked {
    let limit = |resource| getrlimit(resource).ok().map(|(soft, _)| soft).filter(|soft| *soft != u64::MAX);
    let shm = nix::sys::statvfs::statvfs("/dev/shm").ok();
    let blocks = |count: u64| shm.as_ref().map_or(0, |shm| count.saturating_mul(shm.fragment_size()));
    let memory = read("/proc/meminfo");
    let pages = |name: &str| {
        let line = memory.lines().find_map(|line| line.strip_prefix(name));
        line.and_then(|rest| rest.trim_start_matches(':').trim().parse().ok()).unwrap_or(0)
    };
    Looked {
        rank,
        port,
        clock_ms: now_ms(),
        nofile: limit(Resource::RLIMIT_NOFILE),
        nproc: limit(Resource::RLIMIT_NPROC),
        memlock_bytes: limit(Resource::RLIMIT_MEMLOCK),
        shm_bytes: shm.as_ref().map_or(0, |shm| blocks(shm.blocks())),
        shm_free_bytes: shm.as_ref().map_or(0, |shm| blocks(shm.blocks_available())),
        ptrace_scope: read("/proc/sys/kernel/yama/ptrace_scope").trim().parse().ok(),
        xpmem: Path::new("/dev/xpmem").exists(),
        knem: Path::new("/dev/knem").exists(),
        rdma: std::fs::read_dir("/sys/class/infiniband").is_ok_and(|mut devices| devices.next().is_some()),
        hugepages: pages("HugePages_Total"),
        hugepages_free: pages("HugePages_Free"),
        nvidia_gpus: nvidia_gpus(),
        nvidia_driver: read("/sys/module/nvidia/version").trim().to_owned(),
        mtus: mtus(),
    }
}

fn read(path: &str) -> String {
    std::fs::read_to_string(path).unwrap_or_default()
}

/// Counts NVIDIA's GPUs on the bus, whether or not a driver is loaded: display controllers of its vendor number.
fn nvidia_gpus() -> u32 {
    let devices = std::fs::read_dir("/sys/bus/pci/devices").into_iter().flatten().flatten();
    let is_gpu = |path: &Path| {
        let word = |name: &str| std::fs::read_to_string(path.join(name)).unwrap_or_default();
        word("vendor").trim() == "0x10de" && word("class").starts_with("0x03")
    };
    devices.filter(|device| is_gpu(&device.path())).count() as u32
}

fn mtus() -> Vec<(String, u32)> {
    let interfaces = std::fs::read_dir("/sys/class/net").into_iter().flatten().flatten();
    let mtu = |path: &Path| std::fs::read_to_string(path.join("mtu")).ok()?.trim().parse().ok();
    let mut mtus: Vec<(String, u32)> = interfaces
        .filter_map(|interface| Some((interface.file_name().into_string().ok()?, mtu(&interface.path())?)))
        .filter(|(name, _)| name != "lo")
        .collect();
    mtus.sort();
    mtus
}

fn now_ms() -> u64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    u64::try_from(since.as_millis()).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn served(secret: &'static str, callers: u32) -> (Peer, std::thread::JoinHandle<()>) {
        let port = TcpListener::bind("127.0.0.1:0").unwrap();
        let peer = Peer { rank: 1, hosts: vec!["127.0.0.1".into()], port: port.local_addr().unwrap().port() };
        (peer, std::thread::spawn(move || serve(&port, secret, callers)))
    }

    #[test]
    fn two_nodes_measure_the_way_between_them() {
        let (peer, serving) = served("secret", 1);
        let reached = reach(0, &peer, "secret");
        serving.join().unwrap();
        assert_eq!((reached.error.as_str(), reached.host.as_str()), ("", "127.0.0.1"));
        assert!(reached.rtt_us.is_some_and(|us| us < 1_000_000), "{reached:?}");
        assert!(reached.bytes_per_second.is_some_and(|rate| rate > 1 << 20), "{reached:?}");
        assert!(reached.ahead_ms.is_some_and(|ms| ms.abs() < 1000), "{reached:?}");
    }

    #[test]
    fn a_program_without_the_secret_gets_no_answer_and_a_closed_port_is_named() {
        let (peer, serving) = served("secret", 1);
        let reached = reach(0, &peer, "sEcret");
        serving.join().unwrap();
        assert!(reached.error.contains("was made, and then") && reached.rtt_us.is_none(), "{reached:?}");
        let reached = reach(0, &peer, "secret");
        assert!(reached.error.starts_with("127.0.0.1: ") && reached.host.is_empty(), "{reached:?}");
        assert_eq!(reach(0, &Peer::default(), "").error, "it has no address");
    }

    #[test]
    fn this_machine_has_limits_shared_memory_and_a_clock() {
        let looked = look(3, 5);
        assert_eq!((looked.rank, looked.port), (3, 5));
        assert!(looked.clock_ms > 1_600_000_000_000 && looked.shm_bytes >= looked.shm_free_bytes, "{looked:?}");
        let text = serde_json::to_string(&Said::Looked(looked.clone())).unwrap();
        assert_eq!(serde_json::from_str::<Said>(&text).unwrap(), Said::Looked(looked));
    }
}
