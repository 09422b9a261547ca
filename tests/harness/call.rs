//! A command with a deadline. It runs in its own process group, which is killed when the command ends.

use std::ffi::OsStr;
use std::fmt;
use std::io::{Read, Write};
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::path::Path;
use std::process::{Command, ExitStatus, Stdio};
use std::sync::Arc;
use std::thread;
use std::time::Duration;

use nix::errno::Errno;
use nix::sys::signal::{Signal, kill, killpg};
use nix::sys::wait::{Id, WaitPidFlag, waitid};
use nix::unistd::Pid;

use crate::watched::Watched;

/// A command that has not been started.
#[derive(Debug)]
pub struct Call {
    command: Command,
    stdin: Option<Vec<u8>>,
    deadline: Duration,
}

/// The default deadline: enough for the slowest command on two busy cores.
const DEADLINE: Duration = Duration::from_secs(60);

impl Call {
    /// `program` without arguments, with an empty standard input.
    pub fn new(program: impl AsRef<OsStr>) -> Call {
        let mut command = Command::new(program);
        command.process_group(0).stdout(Stdio::piped()).stderr(Stdio::piped());
        Call { command, stdin: Some(Vec::new()), deadline: DEADLINE }
    }

    /// Adds arguments.
    pub fn args<I: IntoIterator<Item: AsRef<OsStr>>>(mut self, args: I) -> Call {
        self.command.args(args);
        self
    }

    /// Sets an environment variable.
    pub fn env(mut self, name: impl AsRef<OsStr>, value: impl AsRef<OsStr>) -> Call {
        self.command.env(name, value);
        self
    }

    /// Removes an environment variable.
    pub fn env_remove(mut self, name: impl AsRef<OsStr>) -> Call {
        self.command.env_remove(name);
        self
    }

    /// Sets its working directory.
    pub fn dir(mut self, dir: impl AsRef<Path>) -> Call {
        self.command.current_dir(dir);
        self
    }

    /// Runs it as another user, which only root may.
    pub fn user(mut self, uid: u32) -> Call {
        self.command.uid(uid).gid(uid);
        self
    }

    /// Sets its standard input, which ends after these bytes.
    pub fn stdin(mut self, bytes: impl Into<Vec<u8>>) -> Call {
        self.stdin = Some(bytes.into());
        self
    }

    /// Keeps its standard input open while it runs.
    pub fn stdin_open(mut self) -> Call {
        self.stdin = None;
        self
    }

    /// Sets the time that [`Call::end`] and [`Running::end`] wait.
    pub fn deadline(mut self, deadline: Duration) -> Call {
        self.deadline = deadline;
        self
    }

    /// Runs it until it exits.
    ///
    /// # Panics
    /// If it cannot be started or does not exit in time.
    #[track_caller]
    pub fn end(self) -> Ended {
        self.start().end()
    }

    /// Runs it until it exits, which must be with success; returns its stdout.
    #[track_caller]
    pub fn ok(self) -> String {
        self.end().ok()
    }

    /// Runs it until it exits, which must be with `code`; returns its stderr.
    #[track_caller]
    pub fn fails(self, code: i32) -> String {
        self.end().fails(code)
    }

    /// Starts it.
    ///
    /// # Panics
    /// If it cannot be started.
    #[track_caller]
    pub fn start(mut self) -> Running {
        let line = words(&self.command);
        self.command.stdin(Stdio::piped());
        let mut child = self.command.spawn().unwrap_or_else(|error| panic!("cannot start {line}: {error}"));
        let mut stdin = child.stdin.take().expect("stdin is piped");
        let held = match self.stdin {
            Some(bytes) => {
                // A command that exits before it has read all its input is not an error.
                thread::spawn(move || drop(stdin.write_all(&bytes)));
                None
            }
            None => Some(stdin),
        };
        let stdout = collect(child.stdout.take().expect("stdout is piped"));
        let stderr = collect(child.stderr.take().expect("stderr is piped"));
        let pid = Pid::from_raw(i32::try_from(child.id()).expect("process ids are small"));
        let status = Arc::new(Watched::default());
        let ended = Arc::clone(&status);
        thread::spawn(move || {
            // It is reaped under the lock, so that no signal goes to a process id that is free again.
            let exited = WaitPidFlag::WEXITED | WaitPidFlag::WNOWAIT;
            while let Err(error) = waitid(Id::Pid(pid), exited) {
                assert!(error == Errno::EINTR, "cannot wait for the child {pid}: {error}");
            }
            ended.change(|status| *status = Some(child.wait().expect("it is a child that is waited for once")));
        });
        Running { line, pid, stdin: held, stdout, stderr, status, deadline: self.deadline }
    }
}

/// The output of one of its streams so far.
#[derive(Debug, Default)]
struct Stream {
    bytes: Vec<u8>,
    ended: bool,
}

fn collect(mut from: impl Read + Send + 'static) -> Arc<Watched<Stream>> {
    let stream = Arc::new(Watched::<Stream>::default());
    let filled = Arc::clone(&stream);
    thread::spawn(move || {
        let mut buffer = vec![0; 64 << 10];
        loop {
            match from.read(&mut buffer) {
                Ok(0) | Err(_) => break filled.change(|stream| stream.ended = true),
                Ok(got) => filled.change(|stream| stream.bytes.extend_from_slice(&buffer[..got])),
            }
        }
    });
    stream
}

/// A running command. It is killed when dropped.
#[derive(Debug)]
pub struct Running {
    line: String,
    pid: Pid,
    stdin: Option<std::process::ChildStdin>,
    stdout: Arc<Watched<Stream>>,
    stderr: Arc<Watched<Stream>>,
    status: Arc<Watched<Option<ExitStatus>>>,
    deadline: Duration,
}

impl Running {
    /// Its process id.
    pub fn pid(&self) -> Pid {
        self.pid
    }

    /// Returns whether it is still running.
    pub fn runs(&self) -> bool {
        self.status.look().is_none()
    }

    /// Sends a signal to the process, not to its children.
    pub fn signal(&self, signal: Signal) {
        let status = self.status.look();
        if status.is_none() {
            kill(self.pid, signal).expect("it is a child that has not been reaped");
        }
    }

    /// Writes to its standard input, which must be open.
    pub fn write(&mut self, bytes: &[u8]) {
        let stdin = self.stdin.as_mut().expect("standard input is open");
        stdin.write_all(bytes).and_then(|()| stdin.flush()).expect("it reads its input");
    }

    /// Closes its standard input.
    pub fn close_stdin(&mut self) {
        self.stdin = None;
    }

    /// Waits until `find` finds something in its stdout so far.
    #[track_caller]
    pub fn until_stdout<R>(&self, find: impl FnMut(&str) -> Option<R>) -> R {
        self.until(&self.stdout, find)
    }

    /// Waits until `find` finds something in its stderr so far.
    #[track_caller]
    pub fn until_stderr<R>(&self, find: impl FnMut(&str) -> Option<R>) -> R {
        self.until(&self.stderr, find)
    }

    #[track_caller]
    fn until<R>(&self, stream: &Watched<Stream>, mut find: impl FnMut(&str) -> Option<R>) -> R {
        // The wait also ends when the stream ends.
        let found = stream.wait(self.deadline, |stream| match find(&String::from_utf8_lossy(&stream.bytes)) {
            Some(found) => Some(Some(found)),
            None => stream.ended.then_some(None),
        });
        found.flatten().unwrap_or_else(|| panic!("the expected output did not appear\n{}", self.story("…")))
    }

    /// Waits until it exits.
    ///
    /// # Panics
    /// If it does not exit in time.
    #[track_caller]
    pub fn end(self) -> Ended {
        self.end_in_time().unwrap_or_else(|story| panic!("{story}"))
    }

    /// Its end, or what there is to say if it does not exit in time.
    fn end_in_time(self) -> Result<Ended, String> {
        let Some(status) = self.status.wait(self.deadline, |status| *status) else {
            let story = self.story("still running");
            self.kill();
            return Err(format!("still running after {:?}\n{story}", self.deadline));
        };
        // A grandchild may hold the streams open; this does not wait for its output.
        let grace = Duration::from_secs(5);
        let take = |stream: &Watched<Stream>| {
            stream.wait(grace, |stream| stream.ended.then_some(()));
            std::mem::take(&mut stream.look().bytes)
        };
        Ok(Ended { line: self.line.clone(), status, stdout: take(&self.stdout), stderr: take(&self.stderr) })
    }

    /// Waits until it exits, with any status. Returns false if it does not exit in time.
    pub fn gone(&self) -> bool {
        self.gone_within(Duration::from_secs(20))
    }

    /// Waits so long until it exits, with any status. Returns false if it does not exit in time.
    pub fn gone_within(&self, time: Duration) -> bool {
        self.status.wait(time, |status| *status).is_some()
    }

    /// Kills it and its process group, unless it has exited.
    fn kill(&self) {
        let status = self.status.look();
        if status.is_none() {
            let _ = killpg(self.pid, Signal::SIGKILL); // It fails if the command has moved to another group.
        }
    }

    /// Its stdout so far.
    pub fn stdout(&self) -> String {
        String::from_utf8_lossy(&self.stdout.look().bytes).into_owned()
    }

    /// Its stderr so far.
    pub fn stderr(&self) -> String {
        String::from_utf8_lossy(&self.stderr.look().bytes).into_owned()
    }

    fn story(&self, how: &str) -> String {
        story(&self.line, how, &self.stdout.look().bytes, &self.stderr.look().bytes)
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        if self.runs() {
            self.kill();
            self.status.wait(Duration::from_secs(10), |status| *status);
        }
    }
}

/// Checks that commands which depend on each other all succeed; returns the stdout of each. If one fails, it shows all of them: often
/// another one failed first.
#[track_caller]
pub fn all_ok(running: impl IntoIterator<Item = Running>) -> Vec<String> {
    let ended: Vec<Result<Ended, String>> = running.into_iter().map(Running::end_in_time).collect();
    let out = |ended: &Result<Ended, String>| {
        let ended = ended.as_ref().ok()?;
        ended.status.success().then(|| ended.out())
    };
    ended.iter().map(out).collect::<Option<Vec<String>>>().unwrap_or_else(|| {
        let story = |ended: &Result<Ended, String>| ended.as_ref().map_or_else(String::clone, Ended::to_string);
        let all: Vec<String> = ended.iter().map(story).collect();
        panic!("expected success\n{}", all.join("\n"))
    })
}

/// How a command exited, and its output.
#[derive(Debug)]
pub struct Ended {
    line: String,
    /// Its exit status.
    pub status: ExitStatus,
    /// All of its stdout.
    pub stdout: Vec<u8>,
    /// All of its stderr.
    pub stderr: Vec<u8>,
}

impl Ended {
    /// Its stdout as text.
    pub fn out(&self) -> String {
        String::from_utf8_lossy(&self.stdout).into_owned()
    }

    /// Its stderr as text.
    pub fn err(&self) -> String {
        String::from_utf8_lossy(&self.stderr).into_owned()
    }

    /// Checks that it succeeded; returns its stdout.
    #[track_caller]
    pub fn ok(self) -> String {
        assert!(self.status.success(), "expected success\n{self}");
        self.out()
    }

    /// Checks that it exited with `code`; returns its stderr.
    #[track_caller]
    pub fn fails(self, code: i32) -> String {
        assert!(self.status.code() == Some(code), "expected exit code {code}\n{self}");
        self.err()
    }
}

impl fmt::Display for Ended {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let how = match (self.status.code(), self.status.signal()) {
            (Some(code), _) => format!("exit code {code}"),
            (None, signal) => format!("signal {}", signal.unwrap_or_default()),
        };
        f.write_str(&story(&self.line, &how, &self.stdout, &self.stderr))
    }
}

fn story(line: &str, how: &str, stdout: &[u8], stderr: &[u8]) -> String {
    format!("$ {line}\n{how}\n--- stdout\n{}\n--- stderr\n{}", tail(stdout), tail(stderr))
}

/// Returns the last bytes as text if there are many.
fn tail(bytes: &[u8]) -> String {
    const SHOWN: usize = 4000;
    let text = String::from_utf8_lossy(&bytes[bytes.len().saturating_sub(SHOWN)..]).into_owned();
    if bytes.len() > SHOWN { format!("({} bytes) … {text}", bytes.len()) } else { text }
}

fn words(command: &Command) -> String {
    let words = std::iter::once(command.get_program()).chain(command.get_args());
    words.map(|word| word.to_string_lossy()).collect::<Vec<_>>().join(" ")
}
