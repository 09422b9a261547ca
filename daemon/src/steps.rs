//! The step processes of this daemon: starts and watches them, and cleans up after a step process that was killed.

use std::collections::HashMap;
use std::fs::File;
use std::io::Write;
use std::os::unix::fs::MetadataExt;
use std::os::unix::process::ExitStatusExt;
use std::path::Path;
use std::process::{ExitStatus, Stdio};
use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::Context;
use nix::sys::signal::Signal;
use nix::unistd::{Pid, geteuid};
use rsd_config::find::entry_of;
use rsd_core::JobId;
use rsd_core::rsd::Input;
use rsd_core::sentences::{StepEnd, step_lost};
use rsd_proto::v1::{Launch, LaunchBody, User};
use tokio::io::AsyncReadExt;
use tokio::process::Child;
use tracing::{info, warn};

use crate::descriptors;
use crate::disk::state_dir::StateDir;
use crate::disk::step_files;
use crate::door::{Door, Event};
use crate::logging;
use crate::owner::Owner;
use crate::reap::{self, Killed};
use crate::serve::callers::ROOT;
use crate::spawn::PidFd;
use crate::upgrade;

/// A launch keeps the node busy for about this long; starting a process at the same time would slow it down.
const REFILL_PAUSE: Duration = Duration::from_millis(250);
/// How long orphans are searched for and killed: they may start others meanwhile.
const ORPHANS_DEADLINE: Duration = Duration::from_secs(10);

/// The variables of the daemon that say where its settings are and what is logged, and where to look users up.
const ENVIRONMENT: [&str; 7] =
    ["RSD_CONFIG", "XDG_CONFIG_HOME", "HOME", "RSD_LOG", "RSD_LOG_FORMAT", "PATH", "LD_LIBRARY_PATH"];
/// How long a step process may take to become its user, for which it may ask a directory service of the network.
const BECOMING: Duration = Duration::from_secs(120);
/// The most bytes of a reason.
const WHY_BYTES_MAX: u64 = 4096;

/// Starts step processes. One connected step process is kept in reserve, so that a launch need not wait for a program to start.
#[derive(Debug)]
pub(crate) struct Steps {
    state_dir: Arc<StateDir>,
    door: Door,
    reserve: Option<Child>,
    refill_at: Option<Instant>,
    /// The process ids of the steps that this daemon has started.
    running: HashMap<JobId, u32>,
}

impl Steps {
    pub(crate) fn new(state_dir: Arc<StateDir>, door: Door) -> Steps {
        Steps { state_dir, door, reserve: None, refill_at: Some(Instant::now()), running: HashMap::new() }
    }

    /// Passes a launch to a step process and reports the end of that process to the shell. The process outlives the daemon.
    pub(crate) fn start(&mut self, node: u32, launch: &Launch) -> anyhow::Result<()> {
        step_files::write(self.state_dir.path(), launch)?;
        if let Some(owner) = launch.owner.as_ref().filter(|owner| owner.uid != ROOT) {
            return self.start_as(owner, node, launch);
        }
        let order = format!("{} {node}\n", launch.job);
        let ready = self.reserve.take().and_then(|mut child| Some((send_order(&mut child, &order).ok()?, child)));
        let (orders, mut child) = match ready {
            Some(ready) => ready,
            None => {
                let mut child = self.spawn()?;
                (send_order(&mut child, &order).context("send the launch to `rsd step`")?, child)
            }
        };
        self.refill_at = Some(Instant::now() + REFILL_PAUSE);
        let (job, left, door) = (launch.job, Left::of(launch), self.door.clone());
        let pid = child.id().unwrap_or(0);
        self.running.insert(job, pid);
        tokio::spawn(async move {
            let end = child.wait().await.map_or(StepEnd::Unknown, step_end);
            drop(orders);
            match end {
                // It has already ended the processes that its ranks left.
                StepEnd::Exited(0) => report_step_lost(&door, job, end),
                StepEnd::Exited(_) | StepEnd::Signaled(_) | StepEnd::Unknown | StepEnd::WhileDaemonWasDown => {
                    // The search for orphans reads many files and may take seconds.
                    tokio::task::spawn_blocking(move || ended(&door, job, &left, end));
                }
            }
        });
        Ok(())
    }

    /// Starts a step process that becomes the job's user and reads the launch from standard input, a file that it cannot write. No
    /// process waits in reserve for other users: it would be theirs.
    fn start_as(&mut self, owner: &User, node: u32, launch: &Launch) -> anyhow::Result<()> {
        let owner = Owner { uid: owner.uid, name: owner.name.clone() };
        let file = step_files::open_to_read(self.state_dir.path(), launch.job)?;
        // The user cannot enter the state directory. The directory of the sockets has what a step needs.
        let mut command = step_command(&entry_of(self.state_dir.path()));
        command.args(["--user", &owner.to_string(), "--order", &launch.job.to_string(), &node.to_string()]);
        // The rest of the daemon's environment is root's own.
        command.env_clear().envs(ENVIRONMENT.iter().filter_map(|name| Some((name, std::env::var_os(name)?))));
        let child = command.current_dir("/").stdin(Stdio::from(file)).stdout(Stdio::piped()).spawn();
        let mut child = child.context("start `rsd step`")?;
        let (job, left, door) = (launch.job, Left::of(launch), self.door.clone());
        self.running.insert(job, child.id().unwrap_or(0));
        tokio::spawn(async move {
            // It says why it cannot become the user, or closes its standard output.
            let mut why = String::new();
            if let Some(said) = child.stdout.take() {
                let mut said = said.take(WHY_BYTES_MAX);
                if tokio::time::timeout(BECOMING, said.read_to_string(&mut why)).await.is_err() {
                    let _ = child.start_kill(); // it may end by itself meanwhile
                    why = format!(
                        "looking up the groups of the user took longer than {} s: is the directory service of this machine down?",
                        BECOMING.as_secs()
                    );
                }
            }
            let end = child.wait().await.map_or(StepEnd::Unknown, step_end);
            match (why.trim(), end) {
                ("", StepEnd::Exited(0)) => report_step_lost(&door, job, end),
                ("", _) => {
                    tokio::task::spawn_blocking(move || ended(&door, job, &left, end));
                }
                (why, _) => {
                    warn!(job, why, "a step process did not become its user");
                    door.send(Event::Input(Input::StepLost { job, why: why.to_owned() }));
                }
            }
        });
        Ok(())
    }

    /// Kills the process of a step that does not answer: this daemon's child, or the process `pid` of this user, which an earlier daemon
    /// started. That number is what the step has said of itself, so a process of another user is not killed. A child may not have become
    /// its user yet.
    pub(crate) fn kill(&self, job: JobId, pid: u32, uid: Option<u32>) {
        let own = self.running.get(&job).copied();
        let pid = own.unwrap_or(pid);
        let Some(pid) = i32::try_from(pid).ok().filter(|pid| *pid > 0).map(Pid::from_raw) else {
            return warn!(job, "a step does not answer, and its process is unknown");
        };
        warn!(job, %pid, "a step does not answer and is killed, and then its ranks: is a file server down?");
        let killed = PidFd::open(pid).and_then(|process| {
            // The number may be another process's by now.
            let line = std::fs::read(format!("/proc/{pid}/cmdline"))?;
            let owner = std::fs::metadata(format!("/proc/{pid}"))?.uid();
            let is_step = line.split(|byte| *byte == 0).nth(1) == Some(b"step");
            let daemons = geteuid().as_raw();
            if is_step && (owner == uid.unwrap_or(daemons) || (own.is_some() && owner == daemons)) {
                return process.signal(Signal::SIGKILL);
            }
            warn!(job, %pid, "it is not killed: the process is another one by now");
            Ok(())
        });
        if let Err(error) = killed {
            warn!(job, %pid, %error, "cannot kill a step");
        }
    }

    /// Returns when [`Steps::refill`] must be called next.
    pub(crate) fn refill_at(&self) -> Option<Instant> {
        self.refill_at
    }

    /// Starts a new reserve at once if there is none: a short job has ended, and the next may follow immediately.
    pub(crate) fn on_step_ended(&mut self, job: JobId) {
        self.running.remove(&job);
        if self.reserve.is_none() {
            self.refill_at = Some(Instant::now());
        }
    }

    /// Starts a step process as the reserve unless one is running.
    pub(crate) fn refill(&mut self) {
        self.refill_at = None;
        if self.reserve.is_none() {
            match self.spawn() {
                Ok(child) => self.reserve = Some(child),
                Err(error) => warn!(
                    error = format!("{error:#}"),
                    "cannot start the spare step process: the next launch takes longer"
                ),
            }
        }
    }

    fn spawn(&self) -> anyhow::Result<Child> {
        let mut command = step_command(self.state_dir.path());
        command.stdin(Stdio::piped()).stdout(Stdio::null()).spawn().context("start `rsd step`")
    }
}

fn step_command(dir: &Path) -> tokio::process::Command {
    // /proc/self/exe is this program even if its file was replaced: a daemon and its steps must have the same version.
    let mut command = tokio::process::Command::new("/proc/self/exe");
    command.arg0("rsd").arg("step").arg(dir).env_remove(upgrade::BACK).env_remove(upgrade::FAILED);
    if let Some(files) = descriptors::of_steps() {
        command.arg(format!("--nofile={files}"));
    }
    command.args(logging::of_steps());
    command
}

/// Writes an order to a step process. The order is valid while the pipe is open. An order is far smaller than a pipe's buffer, so a write fails only if the process has
/// ended.
fn send_order(child: &mut Child, order: &str) -> anyhow::Result<File> {
    let stdin = child.stdin.take().context("internal error: standard input is not a pipe")?.into_owned_fd()?;
    let mut pipe = File::from(stdin);
    pipe.write_all(order.as_bytes())?;
    Ok(pipe)
}

/// Watches a step process that an earlier daemon started. It holds a lock until it ends.
pub(crate) fn watch(state_dir: &Path, launch: &Launch, door: Door) {
    let (state_dir, job, left) = (state_dir.to_owned(), launch.job, Left::of(launch));
    let watching = std::thread::Builder::new().name(format!("step-{job}")).stack_size(64 << 10).spawn(move || {
        if let Err(error) = step_files::wait_for_end(&state_dir, job) {
            warn!(job, %error, "cannot watch a step");
        }
        ended(&door, job, &left, StepEnd::Unknown);
    });
    if let Err(error) = watching {
        warn!(job, %error, "cannot watch a step");
    }
}

/// Reports a step whose launch file was found after a restart, and whose process ended while no daemon was running.
pub(crate) fn report_ended_while_down(launch: &Launch, door: Door) {
    let (job, left) = (launch.job, Left::of(launch));
    tokio::task::spawn_blocking(move || ended(&door, job, &left, StepEnd::WhileDaemonWasDown));
}

/// Cleans up after a step process and reports its end.
fn ended(door: &Door, job: JobId, left: &Left, end: StepEnd) {
    clean_up(job, left);
    report_step_lost(door, job, end);
}

/// Ends the orphans of a step process that was killed, which are found by their environment.
fn clean_up(job: JobId, left: &Left) {
    if !left.members {
        match reap::kill_by_environ(left.uid, "RSD_PMI_NAMESPACE", &left.namespace, ORPHANS_DEADLINE) {
            Ok(Killed { ended: 0, left: 0 }) => {}
            Ok(Killed { ended, left: 0 }) => warn!(job, ended, "killed the orphans of a step process that was killed"),
            Ok(Killed { ended, left }) => {
                warn!(
                    job,
                    ended, left, "orphans of a step process that was killed do not end, or start others too fast"
                );
            }
            Err(error) => warn!(job, %error, "cannot search for orphans of a step process that was killed"),
        }
    } // else the ranks keep running: rsd never signals a process it did not start
    reap::remove_mpich_shm(left.uid, &left.namespace);
}

/// What identifies the processes and files that a killed step process leaves behind.
#[derive(Debug)]
struct Left {
    namespace: String,
    /// As whom they ran.
    uid: u32,
    /// Whether its ranks were members of a group, which are processes that rsd did not start.
    members: bool,
}

impl Left {
    fn of(launch: &Launch) -> Left {
        use prost::Message;
        let namespace = LaunchBody::decode(launch.body.clone()).map(|body| body.namespace).unwrap_or_default();
        let uid = launch.owner.as_ref().map_or_else(|| geteuid().as_raw(), |owner| owner.uid);
        Left { namespace, uid, members: !launch.group.is_empty() }
    }
}

fn step_end(status: ExitStatus) -> StepEnd {
    match (status.signal(), status.code()) {
        (Some(signal), _) => StepEnd::Signaled(signal),
        (None, Some(code)) => StepEnd::Exited(code),
        (None, None) => StepEnd::Unknown,
    }
}

fn report_step_lost(door: &Door, job: JobId, end: StepEnd) {
    info!(job, ?end, "a step process has ended");
    door.send(Event::Input(Input::StepLost { job, why: step_lost(end) }));
}
