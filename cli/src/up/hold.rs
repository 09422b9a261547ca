//! `--via-ssh`: a process in the background holds an ssh connection to each host, and forwards a port of the host's loopback to the
//! head. When a connection is lost, it makes it again, with the same port. `rsctl down` ends it.

use std::fs::{File, OpenOptions};
use std::io::{self, Read, Seek, Write};
use std::os::fd::AsFd;
use std::os::unix::fs::OpenOptionsExt;
use std::path::PathBuf;
use std::process::Stdio;
use std::sync::Arc;
use std::time::{Duration, Instant};

use nix::fcntl::{Flock, FlockArg};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use rsd_proto::transport::exit;
use rsd_ssh::{Connection, Network, SshError};
use serde::{Deserialize, Serialize};
use tokio::io::{AsyncBufReadExt, AsyncWriteExt, BufReader};
use tokio::net::TcpStream;
use tokio::process::Command;
use tokio::signal::unix::{SignalKind, signal};
use tokio::sync::Semaphore;
use tokio::task::JoinSet;

use super::network;
use super::record::{HostRecord, folder};
use super::targets::Host;
use crate::exit::Failure;
use crate::options::up::Ssh;
use crate::print::say;

/// The pauses between attempts to connect again.
const PAUSE_MIN: Duration = Duration::from_secs(1);
const PAUSE_MAX: Duration = Duration::from_secs(30);
/// How long the head may be away: then the process ends.
const HEAD_AWAY_MAX: Duration = Duration::from_secs(600);
/// How often the head is looked for.
const HEAD_CHECK: Duration = Duration::from_secs(20);
/// How long the process may take to end.
const END: Duration = Duration::from_secs(5);
/// The most hosts: as many children as the head has (`tree.arity`). A further node would be a child of another node, which it cannot reach.
const HOSTS_MAX: usize = 32;

/// What the process is to do. It arrives on standard input.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct Order {
    name: String,
    /// Where the head listens on this machine.
    to: String,
    hosts: Vec<HostRecord>,
    ssh_config: Option<PathBuf>,
    accept_new_host_keys: bool,
    parallel: u32,
    connect_timeout_ms: u64,
}

/// What it reports once for each host, a line of JSON.
#[derive(Debug, Serialize, Deserialize)]
struct Line {
    host: usize,
    port: u16,
    error: String,
}

/// The port of each host that is forwarded, or why none is.
pub(crate) type Ports = Vec<Result<u16, String>>;

/// Fails if there are too many hosts, or if a process holds connections for this DVM already: it serves only the hosts that it was
/// started for.
pub(crate) fn check(name: &str, hosts: usize) -> Result<(), Failure> {
    if hosts > HOSTS_MAX {
        let text = format!("--via-ssh: {hosts} hosts are named, and it serves at most {HOSTS_MAX}");
        return Err(Failure::usage(text));
    }
    let Ok(file) = File::open(place(name, "holder")?) else { return Ok(()) };
    match Flock::lock(file, FlockArg::LockSharedNonblock) {
        Ok(_) => Ok(()),
        Err(_) => {
            let text = format!("DVM {name} already has hosts with --via-ssh, and no more can be added");
            Err(Failure::new(exit::RUNS_ALREADY, text).hint("stop it (rsctl down), then name all hosts in one call"))
        }
    }
}

/// Starts the process for these hosts, and waits until it has tried all of them.
pub(crate) async fn start(name: &str, to: &str, hosts: Vec<HostRecord>, ssh: &Ssh) -> Result<Ports, Failure> {
    let failed = |what: &str, error: &dyn std::fmt::Display| {
        Failure::new(
            exit::SYSTEM,
            format!("--via-ssh: cannot start the process that holds the connections: {what}: {error}"),
        )
    };
    let count = hosts.len();
    let order = Order {
        name: name.to_owned(),
        to: to.to_owned(),
        hosts,
        ssh_config: ssh
            .ssh_config
            .clone()
            .map(std::path::absolute)
            .transpose()
            .map_err(|error| failed("its settings", &error))?,
        accept_new_host_keys: ssh.accept_new_host_keys,
        parallel: ssh.parallel,
        connect_timeout_ms: u64::try_from(ssh.connect_timeout.as_millis()).unwrap_or(u64::MAX),
    };
    let path = place(name, "log")?;
    let log = OpenOptions::new().create(true).append(true).mode(0o600).open(&path);
    let log = log.map_err(|error| failed(&path.display().to_string(), &error))?;
    let mut child = Command::new("/proc/self/exe")
        .arg("hold-connections")
        .current_dir("/")
        .process_group(0)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(log)
        // Until it has reported its hosts, so that an interrupt ends it.
        .kill_on_drop(true)
        .spawn()
        .map_err(|error| failed("rsctl", &error))?;
    let text = serde_json::to_vec(&order).map_err(|error| failed("its settings", &error))?;
    if let Some(mut stdin) = child.stdin.take() {
        stdin.write_all(&text).await.map_err(|error| failed("its settings", &error))?;
    }
    let mut ports: Vec<Option<Result<u16, String>>> = vec![None; count];
    let stdout = child.stdout.take().ok_or_else(|| failed("rsctl", &"it has no pipes"))?;
    let mut lines = BufReader::new(stdout).lines();
    // It closes its output when it has reported all hosts.
    let read = async {
        while let Ok(Some(line)) = lines.next_line().await {
            let Ok(Line { host, port, error }) = serde_json::from_str(&line) else { continue };
            if let Some(slot) = ports.get_mut(host) {
                *slot = Some(if error.is_empty() { Ok(port) } else { Err(error) });
            }
        }
    };
    let missing = match tokio::time::timeout(ssh.timeout, read).await {
        Ok(()) => "the process that holds the connections ended".to_owned(),
        Err(_) => format!("no answer within {} s from the process that holds the connections", ssh.timeout.as_secs()),
    };
    // From here on, the process outlives this one.
    std::mem::forget(child);
    let missing = || Err(format!("{missing}; its log: {}", path.display()));
    Ok(ports.into_iter().map(|port| port.unwrap_or_else(missing)).collect())
}

/// Ends the process of a DVM, if it runs.
pub(crate) async fn end(name: &str) -> Result<(), Failure> {
    let path = place(name, "holder")?;
    let Ok(mut file) = File::open(&path) else { return Ok(()) };
    let mut text = String::new();
    let pid = file.read_to_string(&mut text).ok().and_then(|_| text.trim().parse::<i32>().ok());
    let began = Instant::now();
    loop {
        // The process holds the lock as long as it lives, so its number is its own.
        file = match Flock::lock(file, FlockArg::LockSharedNonblock) {
            Ok(_) => {
                let _ = std::fs::remove_file(&path);
                return Ok(());
            }
            Err((file, _)) => file,
        };
        if began.elapsed() > END {
            let text = format!("process {} still holds connections to the hosts", text.trim());
            return Err(Failure::new(exit::UNREACHABLE, text));
        }
        if let Some(pid) = pid {
            let _ = kill(Pid::from_raw(pid), Signal::SIGTERM);
        }
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
}

/// `rsctl hold`: the process.
pub(crate) async fn hold() -> Result<u8, Failure> {
    let mut text = String::new();
    io::stdin()
        .read_to_string(&mut text)
        .map_err(|error| Failure::new(exit::SYSTEM, format!("read the order: {error}")))?;
    let order: Order = serde_json::from_str(&text)
        .map_err(|error| Failure::usage(format!("rsctl hold is for rsctl up --via-ssh: {error}")))?;
    let system = |error: &dyn std::fmt::Display| Failure::new(exit::SYSTEM, format!("rsctl hold: {error}"));
    let _ = nix::unistd::setsid();
    let path = place(&order.name, "holder")?;
    let file = OpenOptions::new().create(true).truncate(false).write(true).mode(0o600).open(&path);
    let mut lock =
        Flock::lock(file.map_err(|error| system(&error))?, FlockArg::LockExclusiveNonblock).map_err(|_| {
            Failure::new(exit::RUNS_ALREADY, "another process holds connections for this DVM: rsctl down first")
        })?;
    let written = lock.set_len(0).and_then(|()| lock.rewind()).and_then(|()| write!(lock, "{}", std::process::id()));
    written.map_err(|error| system(&error))?;

    let ssh = Ssh {
        accept_new_host_keys: order.accept_new_host_keys,
        ssh_config: order.ssh_config.clone(),
        parallel: order.parallel,
        connect_timeout: Duration::from_millis(order.connect_timeout_ms),
        timeout: Duration::from_secs(60),
    };
    let network = Arc::new(network(&ssh)?);
    let deadline = ssh.connect_timeout;
    let slots = Arc::new(Semaphore::new(ssh.parallel as usize));
    let mut first = JoinSet::new();
    for (at, host) in order.hosts.iter().map(Host::from).enumerate() {
        let (network, slots, to) = (Arc::clone(&network), Arc::clone(&slots), order.to.clone());
        first.spawn(async move {
            // It is never closed, so each task gets a permit.
            let _slot = slots.acquire().await;
            let made = forwarded(&network, &host, 0, &to, deadline).await;
            (at, host, made)
        });
    }
    let mut tasks = JoinSet::new();
    while let Some(done) = first.join_next().await {
        let Ok((at, host, made)) = done else { continue };
        let line = match &made {
            Ok((_, port)) => Line { host: at, port: *port, error: String::new() },
            Err(error) => Line { host: at, port: 0, error: error.to_string() },
        };
        if let Ok(text) = serde_json::to_string(&line) {
            // The reader may have given up. The connections are held all the same, until `down` ends them.
            let _ = writeln!(io::stdout(), "{text}");
        }
        if let Ok((connection, port)) = made {
            tasks.spawn(keep(Arc::clone(&network), host, connection, port, order.to.clone(), deadline));
        }
    }
    let null = OpenOptions::new().write(true).open("/dev/null").map_err(|error| system(&error))?;
    nix::unistd::dup2_stdout(null.as_fd()).map_err(|error| system(&error))?;
    let mut terminate = signal(SignalKind::terminate()).map_err(|error| system(&error))?;
    let all = async { while tasks.join_next().await.is_some() {} };
    tokio::select! {
        _ = terminate.recv() => {}
        () = until_head_is_gone(&order.to) => say("hold: the head has been away for too long: ending"),
        () = all => {}
    }
    Ok(0)
}

async fn forwarded(
    network: &Network,
    host: &Host,
    port: u16,
    to: &str,
    deadline: Duration,
) -> Result<(Connection, u16), SshError> {
    let connection = network.connect(&host.wish()).await?;
    let forwarded = connection.forward(port, to, deadline).await?;
    Ok((connection, forwarded.port))
}

/// Holds a connection, and makes it again when it is lost. The host frees the port when it notices the loss, so this may need several
/// attempts.
async fn keep(network: Arc<Network>, host: Host, connection: Connection, port: u16, to: String, deadline: Duration) {
    let mut connection = connection;
    loop {
        connection.closed().await;
        say(&format!("hold: {}: the connection was lost", host.name));
        let mut pause = PAUSE_MIN;
        connection = loop {
            match forwarded(&network, &host, port, &to, deadline).await {
                Ok((connection, _)) => break connection,
                Err(error) => say(&format!("hold: {}: {error}", host.name)),
            }
            tokio::time::sleep(pause).await;
            pause = (pause * 2).min(PAUSE_MAX);
        };
        say(&format!("hold: {}: connected again", host.name));
    }
}

async fn until_head_is_gone(to: &str) {
    let mut seen = Instant::now();
    while seen.elapsed() < HEAD_AWAY_MAX {
        tokio::time::sleep(HEAD_CHECK).await;
        if TcpStream::connect(to).await.is_ok() {
            seen = Instant::now();
        }
    }
}

fn place(name: &str, kind: &str) -> Result<PathBuf, Failure> {
    Ok(folder()?.join(format!("{name}.{kind}")))
}
