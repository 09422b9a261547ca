//! The step processes of this daemon: starts and watches them, and cleans up after a step process that was killed.

use std::fs::File;
use std::io::Write;
use std::os::unix::process::ExitStatusExt;
use std::path::Path;
use std::process::{ExitStatus, Stdio};
use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::Context;
use nix::sys::signal::{Signal, kill};
use rsd_core::JobId;
use rsd_core::rsd::Input;
use rsd_core::sentences::{StepEnd, step_lost};
use rsd_proto::v1::{Launch, LaunchBody};
use tokio::process::Child;
use tracing::{info, warn};

use crate::descriptors;
use crate::disk::state_dir::{self, StateDir};
use crate::door::{Door, Event};
use crate::reap;

/// A launch keeps the node busy for about this long; starting a process at the same time would slow it down.
const REFILL_PAUSE: Duration = Duration::from_millis(250);

/// Starts step processes. One connected step process is kept in reserve, so that a launch need not wait for a program to start.
#[derive(Debug)]
pub(crate) struct Steps {
    state_dir: Arc<StateDir>,
    door: Door,
    reserve: Option<Child>,
    refill_at: Option<Instant>,
}

impl Steps {
    pub(crate) fn new(state_dir: Arc<StateDir>, door: Door) -> Steps {
        Steps { state_dir, door, reserve: None, refill_at: Some(Instant::now()) }
    }

    /// Passes a launch to a step process and reports the end of that process to the shell. The process outlives the daemon.
    pub(crate) fn start(&mut self, node: u32, launch: &Launch) -> anyhow::Result<()> {
        self.state_dir.write_step(launch)?;
        let order = format!("{} {node}\n", launch.job);
        let ready = self.reserve.take().and_then(|mut child| send_order(&mut child, &order).is_ok().then_some(child));
        let mut child = match ready {
            Some(child) => child,
            None => {
                let mut child = self.spawn()?;
                send_order(&mut child, &order).context("send the launch to `rsd step`")?;
                child
            }
        };
        self.refill_at = Some(Instant::now() + REFILL_PAUSE);
        let (job, left, door) = (launch.job, Left::of(launch), self.door.clone());
        tokio::spawn(async move {
            let end = child.wait().await.map_or(StepEnd::Unknown, step_end);
            match end {
                // It has already ended the processes that its ranks left.
                StepEnd::Exited(0) => report_step_lost(&door, job, end),
                StepEnd::Exited(_) | StepEnd::Signaled(_) | StepEnd::Unknown | StepEnd::WhileDaemonWasDown => {
                    ended(&door, job, &left, end);
                }
            }
        });
        Ok(())
    }

    /// Returns when [`Steps::refill`] must be called next.
    pub(crate) fn refill_at(&self) -> Option<Instant> {
        self.refill_at
    }

    /// Starts a new reserve at once if there is none: a short job has ended, and the next may follow immediately.
    pub(crate) fn on_step_ended(&mut self) {
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
        // /proc/self/exe is this program even if its file was replaced: a daemon and its steps must have the same version.
        let mut command = tokio::process::Command::new("/proc/self/exe");
        command.arg0("rsd").arg("step").arg(self.state_dir.path());
        if let Some(files) = descriptors::of_steps() {
            command.arg(format!("--nofile={files}"));
        }
        command.stdin(Stdio::piped()).stdout(Stdio::null()).spawn().context("start `rsd step`")
    }
}

/// Writes an order to a step process. An order is far smaller than a pipe's buffer, so a write fails only if the process has
/// ended.
fn send_order(child: &mut Child, order: &str) -> anyhow::Result<()> {
    let stdin = child.stdin.take().context("internal error: standard input is not a pipe")?.into_owned_fd()?;
    File::from(stdin).write_all(order.as_bytes())?;
    Ok(())
}

/// Watches a step process that an earlier daemon started. It holds a lock until it ends.
pub(crate) fn watch(state_dir: &Path, launch: &Launch, door: Door) {
    let (path, job, left) = (state_dir::step(state_dir, launch.job), launch.job, Left::of(launch));
    let watching = std::thread::Builder::new().name(format!("step-{job}")).stack_size(64 << 10).spawn(move || {
        let waited = File::open(path).and_then(|file| file.lock());
        if let Err(error) = waited {
            warn!(job, %error, "cannot watch a step");
        }
        ended(&door, job, &left, StepEnd::Unknown);
    });
    if let Err(error) = watching {
        warn!(job, %error, "cannot watch a step");
    }
}

/// Reports a step whose launch file was found after a restart, and whose process ended while no daemon was running.
pub(crate) fn report_ended_while_down(launch: &Launch, door: &Door) {
    ended(door, launch.job, &Left::of(launch), StepEnd::WhileDaemonWasDown);
}

/// Cleans up after a step process and reports its end. If it was killed, its ranks are orphans, found by their environment.
fn ended(door: &Door, job: JobId, left: &Left, end: StepEnd) {
    if !left.members {
        kill_orphans(job, &left.namespace);
    } // else the ranks keep running: rsd never signals a process it did not start
    reap::remove_mpich_shm(&left.namespace);
    report_step_lost(door, job, end);
}

fn kill_orphans(job: JobId, namespace: &str) {
    match reap::processes_with_environ("RSD_PMI_NAMESPACE", namespace) {
        Ok(orphans) => {
            for pid in orphans {
                warn!(job, %pid, "killing an orphan of a step process that was killed");
                let _ = kill(pid, Signal::SIGKILL);
            }
        }
        Err(error) => warn!(job, %error, "cannot search for orphans of a step process that was killed"),
    }
}

/// What identifies the processes and files that a killed step process leaves behind.
#[derive(Debug)]
struct Left {
    namespace: String,
    /// Whether its ranks were members of a group, which are processes that rsd did not start.
    members: bool,
}

impl Left {
    fn of(launch: &Launch) -> Left {
        use prost::Message;
        let namespace = LaunchBody::decode(launch.body.clone()).map(|body| body.namespace).unwrap_or_default();
        Left { namespace, members: !launch.group.is_empty() }
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
