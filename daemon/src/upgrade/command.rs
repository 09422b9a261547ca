//! The command: asks the daemon, waits until another program has taken its place, and says what has become of it.

use std::collections::BTreeMap;
use std::ffi::{OsStr, OsString};
use std::fs::File;
use std::os::fd::AsRawFd;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

use anyhow::{Context, bail};
use nix::unistd::Pid;
use rsd_config::find::Daemon;
use rsd_proto::transport::{dvm_client, exit};
use rsd_proto::v1::{StatusReply, StatusRequest, UpgradeReply, UpgradeRequest};

use super::{BACK, FAILED};
use crate::failed::{Failed, out};
use crate::options::{DAEMONIZED, UpgradeOptions};
use crate::query;
use crate::spawn::PidFd;

/// How long the program may take to be ready.
const READY_DEADLINE: Duration = Duration::from_secs(60);
/// How often the daemon is asked meanwhile.
const LOOK_EVERY: Duration = Duration::from_millis(20);

pub(crate) fn upgrade(options: UpgradeOptions) -> anyhow::Result<()> {
    let daemon = query::which(options.dvm.as_deref())?;
    let program = match options.binary {
        Some(path) => std::path::absolute(&path).context("find the program")?,
        None => std::env::current_exe().context("find this program")?,
    };
    let before = status(&daemon)?;
    let process = Process::of(before.pid)?;
    let wish = UpgradeRequest { program: program.display().to_string() };
    let checked = query::ask_within(&daemon, READY_DEADLINE, async |channel| dvm_client(channel).upgrade(wish).await)?;
    let deadline = Instant::now() + READY_DEADLINE;
    let after = loop {
        match status(&daemon) {
            Ok(after) if after.started_ms != before.started_ms && (after.head || after.connected) => break after,
            _ if process.has_ended() => return Err(process.start_again(&before, &checked)),
            _ if Instant::now() > deadline => {
                let text = format!(
                    "{} has taken the place of the daemon in {} (pid {}), and is not ready after {READY_DEADLINE:?}: see its log",
                    program.display(),
                    before.state_dir,
                    before.pid
                );
                bail!(Failed::new(exit::UNREACHABLE, text));
            }
            _ => std::thread::sleep(LOOK_EVERY),
        }
    };
    if let Some(why) = variables(after.pid).remove(OsStr::new(FAILED)) {
        let text = format!(
            "{} could not take the place of the daemon {}: {}; the earlier program runs again (rsd {}, pid {})",
            program.display(),
            after.name,
            why.display(),
            after.version,
            after.pid
        );
        bail!(Failed::new(exit::SYSTEM, text));
    }
    let jobs = query::count(after.jobs, "job");
    out(format_args!(
        "rsd: {}: {} runs now (rsd {}, before {}), with the same pid {}; {jobs} running or queued\n",
        after.name,
        program.display(),
        after.version,
        before.version,
        after.pid,
    ))
}

fn status(daemon: &Daemon) -> anyhow::Result<StatusReply> {
    query::ask(daemon, async |channel| dvm_client(channel).get_status(StatusRequest {}).await)
}

/// The daemon's process, and what is needed to start the earlier program again.
struct Process {
    pid: u32,
    handle: PidFd,
    /// The earlier program. None: it cannot be opened.
    program: Option<File>,
    variables: BTreeMap<OsString, OsString>,
    directory: PathBuf,
}

impl Process {
    fn of(pid: u32) -> anyhow::Result<Process> {
        let handle = PidFd::open(Pid::from_raw(i32::try_from(pid)?)).context("find the daemon's process")?;
        let directory = std::fs::read_link(format!("/proc/{pid}/cwd")).unwrap_or_else(|_| "/".into());
        let program = File::open(format!("/proc/{pid}/exe")).ok();
        Ok(Process { pid, handle, program, variables: variables(pid), directory })
    }

    fn has_ended(&self) -> bool {
        // A process that has ended and is not reaped has no threads left.
        let state = std::fs::read_to_string(format!("/proc/{}/stat", self.pid)).unwrap_or_default();
        let state = state.rsplit_once(") ").map_or("", |(_, state)| state);
        state.starts_with('Z') || self.handle.has_ended()
    }

    /// Starts the earlier program in the background, unless a service manager does so; returns what has happened, as a failure.
    fn start_again(&self, before: &StatusReply, checked: &UpgradeReply) -> anyhow::Error {
        let ended = format!(
            "rsd {} has taken the place of the daemon {} and has ended before it was ready",
            checked.version, before.name
        );
        let supervised =
            ["NOTIFY_SOCKET", "INVOCATION_ID"].iter().any(|name| self.variables.contains_key(OsStr::new(name)));
        let what = match &self.program {
            _ if supervised => Err("its service manager starts it again: install the earlier version there".to_owned()),
            None => Err("start the earlier version: its jobs wait for it".to_owned()),
            Some(program) => self.start(program, checked),
        };
        let (Ok(what) | Err(what)) = what;
        Failed::new(exit::SYSTEM, format!("{ended}; {what}")).into()
    }

    fn start(&self, program: &File, checked: &UpgradeReply) -> Result<String, String> {
        let arguments = checked.arguments.iter().map(|word| OsStr::from_bytes(word));
        let arguments = arguments.filter(|word| *word != "--foreground");
        let variables = self.variables.iter().filter(|(name, _)| !is_of_a_start(name));
        let mut command = Command::new(format!("/proc/self/fd/{}", program.as_raw_fd()));
        command.arg0("rsd").args(arguments).env_clear().envs(variables).current_dir(&self.directory);
        let output = command.output().map_err(|error| format!("the earlier program cannot be started: {error}"))?;
        let said = |bytes: &[u8]| String::from_utf8_lossy(bytes).trim().trim_start_matches("rsd: ").to_owned();
        match output.status.success() {
            true => Ok(format!("the earlier version was started again, in the background: {}", said(&output.stdout))),
            false => Err(format!("the earlier version does not start either: {}", said(&output.stderr))),
        }
    }
}

/// Whether a variable says how the daemon was started.
fn is_of_a_start(name: &OsStr) -> bool {
    [DAEMONIZED, BACK, FAILED].iter().any(|other| name == *other)
}

/// Returns the environment of a process as it was at its start; empty if it cannot be read.
fn variables(pid: u32) -> BTreeMap<OsString, OsString> {
    let bytes = std::fs::read(Path::new("/proc").join(pid.to_string()).join("environ")).unwrap_or_default();
    let variables = bytes.split(|byte| *byte == 0).filter_map(|entry| {
        let at = entry.iter().position(|byte| *byte == b'=')?;
        Some((OsString::from_vec(entry[..at].to_vec()), OsString::from_vec(entry[at + 1..].to_vec())))
    });
    variables.collect()
}
