//! Daemons on this machine; several of them stand for several nodes.

use std::ffi::OsStr;
use std::fs;
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

use nix::sys::signal::Signal;
use rsd_proto::transport::{Target, dial, dvm_client};
use rsd_proto::v1::ListJobsRequest;
use serde_json::Value;

use crate::call::{Call, Running};
use crate::{built, leftovers, processes};

/// The DVM to start.
#[derive(Debug, Clone)]
pub struct Options {
    /// The number of daemons; the first is the head. With 0, only the directory is created.
    pub nodes: usize,
    /// Slots of each daemon.
    pub slots: u32,
    /// More arguments of `rsd start`, for each daemon.
    pub args: Vec<String>,
}

/// A DVM in its own directory. When it is dropped, its daemons are stopped, and the test fails if any process, socket or segment
/// of the daemons or their jobs is left.
#[derive(Debug)]
pub struct Dvm {
    dir: PathBuf,
    nodes: Vec<Node>,
    options: Options,
    /// The address on which the head listens since its first start: daemons that joined reconnect to it.
    listening: Option<String>,
    /// Environment variables of the daemons.
    env: Vec<(String, String)>,
}

#[derive(Debug)]
struct Node {
    name: String,
    daemon: Option<Running>,
}

/// The deadline for a daemon to become ready, on a machine that also does other work.
const READY: Duration = Duration::from_secs(30);

impl Dvm {
    /// Starts `nodes` daemons with four slots each.
    #[track_caller]
    pub fn start(nodes: usize) -> Dvm {
        Dvm::start_with(Options { nodes, slots: 4, args: Vec::new() })
    }

    /// Starts a DVM with these options. Returns when all nodes have joined.
    ///
    /// # Panics
    /// If a daemon does not become ready.
    #[track_caller]
    pub fn start_with(options: Options) -> Dvm {
        Dvm::start_in(options, &[])
    }

    /// Starts a DVM with these options and these environment variables for the daemons.
    ///
    /// # Panics
    /// If a daemon does not become ready.
    #[track_caller]
    pub fn start_in(options: Options, env: &[(&str, &str)]) -> Dvm {
        let env = env.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect();
        let mut dvm = Dvm { dir: directory(), nodes: Vec::new(), options, listening: None, env };
        if dvm.options.nodes > 0 {
            dvm.add(&[]);
        }
        if dvm.options.nodes > 1 {
            // Daemons start one by one, so that node ids, and with them the order of placement, follow the names.
            let join = ["--join".to_owned(), dvm.listen()];
            dvm.listening = Some(dvm.listen());
            (1..dvm.options.nodes).for_each(|_| dvm.add(&join));
        }
        dvm
    }

    /// Starts one more daemon with these arguments.
    #[track_caller]
    pub fn add(&mut self, args: &[String]) {
        let at = self.nodes.len();
        let node = self.node(at, args);
        self.nodes.push(node);
        self.ready(at);
    }

    /// Kills a daemon with SIGKILL; its steps and their ranks keep running.
    pub fn kill(&mut self, at: usize) {
        let daemon = self.nodes[at].daemon.take().expect("the daemon runs");
        daemon.signal(Signal::SIGKILL);
        daemon.gone();
    }

    /// Terminates a daemon with SIGTERM, as a service manager does; its steps and their ranks keep running.
    pub fn terminate(&mut self, at: usize) {
        let daemon = self.nodes[at].daemon.take().expect("the daemon runs");
        daemon.signal(Signal::SIGTERM);
        daemon.gone();
    }

    /// Restarts a daemon with its state directory.
    #[track_caller]
    pub fn restart(&mut self, at: usize) {
        let join = match at {
            0 => Vec::new(),
            _ => vec!["--join".to_owned(), self.listen()],
        };
        self.restart_with(at, &join);
    }

    /// Restarts a daemon with its state directory and these arguments.
    #[track_caller]
    pub fn restart_with(&mut self, at: usize, args: &[String]) {
        self.nodes[at] = self.node(at, args);
        self.ready(at);
    }

    /// Returns the log of a running daemon since its start.
    pub fn log(&self, at: usize) -> String {
        self.nodes[at].daemon.as_ref().expect("the daemon runs").stderr()
    }

    /// Returns what a running daemon has printed when it was ready.
    pub fn ready_text(&self, at: usize) -> String {
        self.nodes[at].daemon.as_ref().expect("the daemon runs").stdout()
    }

    /// Sends a signal to a daemon only.
    pub fn signal(&self, at: usize, signal: Signal) {
        self.nodes[at].daemon.as_ref().expect("the daemon runs").signal(signal);
    }

    fn node(&self, at: usize, args: &[String]) -> Node {
        let name = format!("node{at}");
        let slots = self.options.slots.to_string();
        let mut call = self.call(built::rsd()).args(["start", "--foreground", "--name", &name, "--slots", &slots]);
        if at == 0 && self.options.nodes > 1 {
            call = call.args(["--listen", self.listening.as_deref().unwrap_or("127.0.0.1:0")]);
        }
        for (name, value) in &self.env {
            call = call.env(name, value);
        }
        let daemon = call.args(&self.options.args).args(args).deadline(READY).start();
        Node { name, daemon: Some(daemon) }
    }

    #[track_caller]
    fn ready(&self, at: usize) {
        let daemon = self.nodes[at].daemon.as_ref().expect("it was just started");
        daemon.until_stdout(|out| out.contains("ready").then_some(()));
    }

    /// Returns the address that other daemons can join.
    pub fn listen(&self) -> String {
        self.record(0)["listen"].as_str().expect("a head records where it listens").to_owned()
    }

    /// Returns a daemon's process id.
    pub fn pid(&self, at: usize) -> i32 {
        self.nodes[at].daemon.as_ref().expect("the daemon runs").pid().as_raw()
    }

    /// Returns a daemon's record of itself, `daemon.json`.
    pub fn record(&self, at: usize) -> Value {
        let path = self.runtime_dir(at).join("daemon.json");
        let text = fs::read(&path).unwrap_or_else(|error| panic!("cannot read {}: {error}", path.display()));
        serde_json::from_slice(&text).expect("daemon.json is JSON")
    }

    /// Returns a daemon's state directory.
    pub fn state_dir(&self, at: usize) -> PathBuf {
        state_dir(&self.dir, &self.nodes[at].name)
    }

    /// Returns the directory with an entry for each daemon.
    pub fn runtime_base(&self) -> &Path {
        &self.dir
    }

    /// Returns the directory of a daemon's sockets, lock and record.
    pub fn runtime_dir(&self, at: usize) -> PathBuf {
        self.dir.join(&self.nodes[at].name)
    }

    /// Returns a directory for a test's own files, which exists as long as the DVM.
    pub fn scratch(&self) -> PathBuf {
        let path = self.dir.join("scratch");
        fs::create_dir_all(&path).expect("the DVM's directory is writable");
        path
    }

    /// Writes a file into [`Dvm::scratch`]; returns its path.
    pub fn file(&self, name: &str, text: impl AsRef<[u8]>) -> String {
        let path = self.scratch().join(name);
        fs::write(&path, text).expect("the DVM's directory is writable");
        path.display().to_string()
    }

    /// Returns `rsctl` with these arguments. It finds only this DVM, and starts in [`Dvm::scratch`].
    pub fn rsctl<I: IntoIterator<Item: AsRef<OsStr>>>(&self, args: I) -> Call {
        self.call(built::rsctl()).dir(self.scratch()).args(args)
    }

    /// Returns `rsctl` with the words of a line as arguments.
    pub fn ctl(&self, line: &str) -> Call {
        self.rsctl(line.split_whitespace())
    }

    /// Submits a job; returns its number.
    #[track_caller]
    pub fn submit<I: IntoIterator<Item: AsRef<OsStr>>>(&self, args: I) -> String {
        self.rsctl(["submit"]).args(args).ok().trim().to_owned()
    }

    /// Returns the output of `rsctl … --json`.
    #[track_caller]
    pub fn json(&self, line: &str) -> Value {
        let text = self.ctl(line).args(["--json"]).ok();
        serde_json::from_str(&text).unwrap_or_else(|error| panic!("rsctl {line}: {error} in {text}"))
    }

    /// Returns `rsd` or another program, in an environment in which it finds only this DVM.
    pub fn call(&self, program: impl AsRef<OsStr>) -> Call {
        Call::new(program)
            .env("RSD_RUNTIME_DIR", &self.dir)
            .env("RSD_STATE_DIR", self.dir.join("state"))
            .env_remove("RSD_DVM")
            .env_remove("RSD_LOG")
            .env_remove("RSD_CONFIG")
            .env("OPENBLAS_NUM_THREADS", "1")
    }

    /// Returns the PMI names of all jobs that the head knows.
    pub fn namespaces(&self) -> Vec<String> {
        let runtime =
            tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime can be created");
        let deadline = Duration::from_secs(5);
        let target = Target::Unix(self.dir.join("node0/rsd.sock"));
        runtime.block_on(async {
            let Ok(channel) = dial(&target, deadline).await else { return Vec::new() };
            let mut client = dvm_client(channel);
            match tokio::time::timeout(
                deadline,
                client.list_jobs(ListJobsRequest { all: true, ..ListJobsRequest::default() }),
            )
            .await
            {
                Ok(Ok(reply)) => reply.into_inner().jobs.into_iter().map(|job| job.namespace).collect(),
                Ok(Err(_)) | Err(_) => Vec::new(),
            }
        })
    }

    /// Stops all daemons; returns the failures.
    pub fn stop(&mut self) -> Vec<String> {
        let mut complaints = Vec::new();
        let namespaces = self.namespaces();
        if self.nodes.iter().any(|node| node.daemon.is_some()) {
            let stop = self.call(built::rsd()).args(["stop", "--force", "--dvm", "node0"]).start();
            if !stop.gone() {
                complaints.push("`rsd stop --force` does not exit".to_owned());
            }
        }
        let mut said = Vec::new();
        for node in &mut self.nodes {
            let Some(daemon) = node.daemon.take() else { continue };
            if daemon.gone() {
                said.push(format!("{} has ended:\n{}", node.name, daemon.end()));
            } else {
                complaints.push(format!("{} did not stop:\n{}", node.name, daemon.stderr()));
            }
        }
        // With the slash: the name of another directory may begin with this one.
        let marker = format!("{}/", self.dir.display());
        let left = within(Duration::from_secs(10), || processes::mentioning(&marker));
        complaints.extend(left.into_iter().map(|(pid, line)| format!("process {pid} is left: {line}")));
        leftovers::kill_all(&marker);
        let sockets = leftovers::sockets(&self.dir);
        if !sockets.is_empty() {
            complaints.push(said.join("\n"));
        }
        complaints.extend(sockets.into_iter().map(|path| format!("socket {path} is left")));
        complaints.extend(leftovers::segments(&namespaces).into_iter().map(|name| format!("/dev/shm/{name} is left")));
        complaints
    }

    fn logs(&self) -> String {
        let log = |node: &Node| {
            let log = node.daemon.as_ref().map(Running::stderr).unwrap_or_default();
            let from = log.len().saturating_sub(4000);
            format!("--- log of {}\n{}", node.name, log.get(from..).unwrap_or(&log))
        };
        self.nodes.iter().map(log).collect::<Vec<_>>().join("\n")
    }
}

impl Drop for Dvm {
    fn drop(&mut self) {
        if std::thread::panicking() {
            eprintln!("{}", self.logs());
        }
        let complaints = self.stop();
        // The directory is below /tmp, and no later test uses it.
        let _ = fs::remove_dir_all(&self.dir);
        if !std::thread::panicking() {
            assert!(complaints.is_empty(), "{}", complaints.join("\n"));
        }
    }
}

/// Returns the state directory of a daemon with `RSD_STATE_DIR=base/state`.
pub fn state_dir(base: &Path, name: &str) -> PathBuf {
    let host = nix::unistd::gethostname().expect("a host has a name");
    base.join("state").join(format!("{name}@{}", host.display()))
}

/// Creates a directory with a short name, because a socket's path is limited to about a hundred bytes.
fn directory() -> PathBuf {
    static NEXT: AtomicU32 = AtomicU32::new(0);
    let name = format!("rsd-test-{}-{}", std::process::id(), NEXT.fetch_add(1, Ordering::Relaxed));
    let dir = Path::new("/tmp").join(name);
    // An earlier process with this process id may have left it.
    let _ = fs::remove_dir_all(&dir);
    fs::DirBuilder::new().mode(0o700).create(&dir).expect("/tmp is writable");
    dir
}

/// Calls `look` until it returns nothing or the deadline has passed; returns its last result.
fn within<T>(deadline: Duration, look: impl Fn() -> Vec<T>) -> Vec<T> {
    let end = Instant::now() + deadline;
    loop {
        let left = look();
        if left.is_empty() || Instant::now() > end {
            return left;
        }
        std::thread::sleep(Duration::from_millis(20));
    }
}
