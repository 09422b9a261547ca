//! Reaps ended processes, and removes everything that a job leaves behind.
//!
//! A step is its descendants' *subreaper*: a process that loses its parent, even a `setsid` daemon, becomes the step's own child.
//! So querying the kernel for the step's children until there are none finds everything that a job started
//! ([`rsd_core::leftovers`] decides). A step signals only its children: no other process reaps them, so their pids cannot have
//! been reused.
//!
//! Two things outlive even that and are found by name: the ranks of a step that was killed (by an entry of their environment; they
//! are signalled by descriptors, which no other process can get), and the shared memory that a killed MPICH process left in `/dev/shm`.

use std::collections::BTreeMap;
use std::ffi::OsStr;
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::time::{Duration, Instant};

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use rsd_core::leftovers::{Action, Look};
use rsd_proto::v1::Usage;
use tracing::warn;

use crate::spawn::{PidFd, Waited, wait_any};

/// How a process ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Exit {
    /// It exited with this code.
    Exited(i32),
    /// It was killed by this signal.
    Signaled(i32),
}

impl Exit {
    /// Converts the status that `waitpid` returns for an ended process.
    fn from_raw(status: i32) -> Exit {
        if libc::WIFSIGNALED(status) {
            Exit::Signaled(libc::WTERMSIG(status))
        } else {
            Exit::Exited(libc::WEXITSTATUS(status))
        }
    }
}

/// A process that has ended and is reaped.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Ended {
    pub(crate) pid: Pid,
    pub(crate) exit: Exit,
    /// With the descendants that it and they have waited for.
    pub(crate) used: Usage,
}

/// Makes orphaned descendants children of this process, from now on.
pub(crate) fn become_subreaper() -> nix::Result<()> {
    nix::sys::prctl::set_child_subreaper(true)
}

/// Reaps every child that has ended, without waiting.
///
/// It reaps *any* child: no other code in this process may wait for one.
pub(crate) fn reap_all() -> Vec<Ended> {
    collect().0
}

/// Reaps the ended children; returns true if others are running.
fn collect() -> (Vec<Ended>, bool) {
    let mut ended = Vec::new();
    loop {
        match wait_any() {
            Waited::Ended(pid, status, used) => ended.push(Ended { pid, exit: Exit::from_raw(status), used }),
            Waited::Running => return (ended, true),
            Waited::Childless => return (ended, false),
        }
    }
}

/// Returns the children of this process, including those that have ended and are not yet collected.
pub(crate) fn children_of_self() -> io::Result<Vec<Pid>> {
    let mut children = Vec::new();
    for task in std::fs::read_dir("/proc/self/task")? {
        match std::fs::read_to_string(task?.path().join("children")) {
            Ok(list) => children.extend(list.split_whitespace().filter_map(|pid| pid.parse().ok()).map(Pid::from_raw)),
            // The thread has ended in the meantime, and another thread has its children.
            Err(error) if error.raw_os_error() == Some(libc::ESRCH) => {}
            Err(error) => return Err(error),
        }
    }
    Ok(children)
}

/// Reaps the ended children and lists the others.
pub(crate) fn look() -> (Vec<Ended>, Look) {
    let (ended, more) = collect();
    let look = match more {
        false => Look::Childless,
        true => match children_of_self() {
            Ok(children) => Look::Children(children.into_iter().map(Pid::as_raw).collect()),
            Err(error) => {
                warn!(%error, "cannot list the processes that the ranks left");
                Look::Unknown
            }
        },
    };
    (ended, look)
}

/// Sends the signals; returns false if nothing is left to do.
pub(crate) fn perform(actions: impl IntoIterator<Item = Action>) -> bool {
    let mut goes_on = true;
    for action in actions {
        // A child's pid is valid until it is reaped, so these fail only for a process of another user (setuid).
        match action {
            Action::Term(pid) => {
                let _ = kill(Pid::from_raw(pid), Signal::SIGTERM);
                let _ = kill(Pid::from_raw(pid), Signal::SIGCONT);
            }
            Action::Kill(pid) => drop(kill(Pid::from_raw(pid), Signal::SIGKILL)),
            Action::GiveUp(pids) => {
                warn!(?pids, "processes that the ranks left do not end, or start others too fast: they are left");
                goes_on = false;
            }
            Action::Finish => goes_on = false,
        }
    }
    goes_on
}

/// What was killed, and what is left.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Killed {
    pub(crate) ended: usize,
    pub(crate) left: usize,
}

/// Kills the processes of a user, except this one, that were started with `name=value` in their environment, and those that they
/// start meanwhile. Each is stopped when it is found, so that it starts no others; when no new one is found, all are killed. This is
/// repeated until none is left, at most for `timeout`. Cost: each look reads the environments of all processes of the user.
pub(crate) fn kill_by_environ(uid: u32, name: &str, value: &str, timeout: Duration) -> io::Result<Killed> {
    let (deadline, mut ended) = (Instant::now() + timeout, 0);
    loop {
        let mut found = BTreeMap::new();
        let looked = stop_by_environ(uid, name, value, deadline, &mut found);
        // Also after a failure: nothing may stay stopped.
        let killed = found.values().filter(|process| process.signal(Signal::SIGKILL).is_ok()).count();
        let unknown = looked?;
        if found.is_empty() && unknown == 0 {
            return Ok(Killed { ended, left: 0 });
        }
        if Instant::now() > deadline {
            return Ok(Killed { ended, left: found.len() + unknown });
        }
        ended += killed;
        // A killed process keeps its environment until the kernel has freed its memory.
        std::thread::sleep(Duration::from_millis(5));
    }
}

/// Stops these processes and adds them to `found`, until a look finds no new one. Returns how many processes the last look could not
/// examine, because this process has no descriptors left, for example.
fn stop_by_environ(
    uid: u32,
    name: &str,
    value: &str,
    deadline: Instant,
    found: &mut BTreeMap<i32, PidFd>,
) -> io::Result<usize> {
    loop {
        let before = found.len();
        let (pids, mut unknown) = processes_with_environ(uid, name, value)?;
        for pid in pids {
            // The number may be another process's by now: the descriptor is checked, and not the number.
            let process = PidFd::open(pid).and_then(|process| Ok(has_environ(pid, name, value)?.then_some(process)));
            match process {
                Ok(Some(process)) if !found.contains_key(&pid.as_raw()) => {
                    let _ = process.signal(Signal::SIGSTOP);
                    found.insert(pid.as_raw(), process);
                }
                Ok(_) => {}
                Err(error) if error.kind() == io::ErrorKind::NotFound => {} // it has ended
                Err(_) => unknown += usize::from(!found.contains_key(&pid.as_raw())),
            }
        }
        if found.len() == before || Instant::now() > deadline {
            return Ok(unknown);
        }
    }
}

/// Returns the processes of a user, except this one, that were started with `name=value` in their environment, and the number of
/// those whose environment could not be read.
fn processes_with_environ(uid: u32, name: &str, value: &str) -> io::Result<(Vec<Pid>, usize)> {
    let (mut found, mut unknown) = (Vec::new(), 0);
    for entry in std::fs::read_dir("/proc")? {
        let entry = entry?;
        let Some(pid) = entry.file_name().to_str().and_then(|name| name.parse::<i32>().ok()) else { continue };
        let ours = pid != Pid::this().as_raw() && entry.metadata().is_ok_and(|meta| meta.uid() == uid);
        if ours {
            match has_environ(Pid::from_raw(pid), name, value) {
                Ok(true) => found.push(Pid::from_raw(pid)),
                Ok(false) => {}
                Err(_) => unknown += 1,
            }
        }
    }
    Ok((found, unknown))
}

/// Whether the process runs and was started with `name=value` in its environment. A process whose environment the kernel keeps from
/// this one (a setuid program, for example) was not.
fn has_environ(pid: Pid, name: &str, value: &str) -> io::Result<bool> {
    let wanted = format!("{name}={value}");
    let environ = match std::fs::read(format!("/proc/{pid}/environ")) {
        Ok(environ) => environ,
        Err(error) if error.raw_os_error() == Some(libc::ESRCH) => return Ok(false),
        Err(error) if matches!(error.kind(), io::ErrorKind::NotFound | io::ErrorKind::PermissionDenied) => {
            return Ok(false);
        }
        Err(error) => return Err(error),
    };
    Ok(environ.split(|byte| *byte == 0).any(|entry| entry == wanted.as_bytes()))
}

/// Removes the shared memory that MPICH processes of this PMI namespace left behind; returns the number of files.
///
/// MPICH 5 names it `mpich_shm_<FNV-1a of the kvsname, hex>_<node>` and removes it itself unless it is killed during its start.
/// Only plain files of the user with exactly such names are removed; for a link, the link and not its target.
pub(crate) fn remove_mpich_shm(uid: u32, namespace: &str) -> usize {
    remove_shm_files(Path::new("/dev/shm"), uid, namespace)
}

fn remove_shm_files(dir: &Path, uid: u32, namespace: &str) -> usize {
    let prefix = format!("mpich_shm_{:x}_", fnv1a_32(namespace.as_bytes()));
    let is_ours = |name: &OsStr| {
        let node = name.as_bytes().strip_prefix(prefix.as_bytes());
        node.is_some_and(|node| !node.is_empty() && node.iter().all(u8::is_ascii_digit))
    };
    let Ok(entries) = std::fs::read_dir(dir) else { return 0 };
    entries
        .flatten()
        .filter(|entry| is_ours(&entry.file_name()))
        // An entry's metadata is its own, not that of a link's target.
        .filter(|entry| entry.metadata().is_ok_and(|meta| meta.is_file() && meta.uid() == uid))
        .filter(|entry| std::fs::remove_file(entry.path()).is_ok())
        .count()
}

/// The 32-bit hash of Fowler, Noll and Vo, variant 1a.
fn fnv1a_32(bytes: &[u8]) -> u32 {
    bytes.iter().fold(0x811c_9dc5, |hash, byte| (hash ^ u32::from(*byte)).wrapping_mul(0x0100_0193))
}

#[cfg(test)]
mod tests {
    use std::fs::File;
    use std::io::Read;
    use std::os::fd::AsRawFd;
    use std::os::unix::process::ExitStatusExt;
    use std::process::{Command, Stdio};

    use nix::sys::resource::{Resource, getrlimit, setrlimit};
    use rsd_core::leftovers::Leftovers;
    use tokio::signal::unix::{SignalKind, signal};
    use tokio::time::sleep_until;

    use super::*;
    use crate::clock::Clock;

    /// Runs `body` as the only test of a new process, because it becomes a subreaper and reaps any child.
    fn alone(name: &str, body: impl FnOnce()) {
        const ALONE: &str = "RSD_TEST_ALONE";
        if std::env::var_os(ALONE).is_some_and(|value| value == name) {
            return body();
        }
        let path = format!("{}::{name}", module_path!().split_once("::").expect("a crate").1);
        let output = Command::new(std::env::current_exe().expect("this test program"))
            .args([&path, "--exact", "--nocapture"])
            .env(ALONE, name)
            .output()
            .expect("this test program again");
        let text = String::from_utf8_lossy(&output.stdout);
        let errors = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success() && text.contains("1 passed"), "{text}{errors}");
    }

    fn in_runtime<T>(future: impl Future<Output = T>) -> T {
        tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime").block_on(future)
    }

    /// Starts a shell and returns its first line of output; processes that it starts before that line exist then.
    #[expect(clippy::zombie_processes, reason = "what is tested collects it")]
    fn shell_until_ready(script: &str) -> String {
        let mut shell = Command::new("/bin/sh").args(["-c", script]).stdout(Stdio::piped()).spawn().expect("a shell");
        let mut line = String::new();
        let mut byte = [0];
        let mut output = shell.stdout.take().expect("a pipe");
        while output.read(&mut byte).is_ok_and(|n| n == 1) && byte[0] != b'\n' {
            line.push(char::from(byte[0]));
        }
        line
    }

    /// Ends every descendant of this process as a step does. Returns the reaped processes when none is left.
    ///
    /// A process that KILL cannot end (it waits for a dead file server) makes this wait forever: use a timeout.
    async fn kill_leftovers(clock: Clock, grace: Duration) -> Vec<Ended> {
        // Listens before the first look, so that no exit between a look and the wait is missed.
        let mut ends = signal(SignalKind::child()).expect("a signal stream");
        let mut leftovers = Leftovers::new(clock.now(), grace);
        let mut collected = Vec::new();
        loop {
            let (ended, look) = look();
            leftovers.collected(ended.iter().map(|ended| ended.pid.as_raw()));
            collected.extend(ended);
            let mut actions = Vec::new();
            leftovers.handle(clock.now(), look, &mut actions);
            if !perform(actions) {
                return collected;
            }
            tokio::select! {
                _ = ends.recv() => {}
                () = sleep_until(clock.instant(leftovers.next_deadline()).into()) => {}
            }
        }
    }

    fn is_gone(pid: &str) -> bool {
        !Path::new("/proc").join(pid).exists()
    }

    #[test]
    fn exits_are_reaped_with_code_or_signal_including_real_time_signals() {
        alone("exits_are_reaped_with_code_or_signal_including_real_time_signals", || {
            let scripts = [
                ("exit 7", Exit::Exited(7)),
                ("exit 255", Exit::Exited(255)),
                ("kill -9 $$", Exit::Signaled(9)),
                ("kill -34 $$", Exit::Signaled(34)),
            ];
            let start = |script: &str| Command::new("/bin/sh").args(["-c", script]).spawn().expect("a shell").id();
            let (mut expected, ended) = in_runtime(async {
                let mut ends = signal(SignalKind::child()).expect("a signal stream");
                let expected: Vec<_> = scripts.iter().map(|(script, exit)| (start(script), *exit)).collect();
                let mut ended = Vec::new();
                loop {
                    let (some, more) = collect();
                    ended.extend(some);
                    if !more {
                        return (expected, ended);
                    }
                    ends.recv().await;
                }
            });
            let mut ended: Vec<_> = ended.iter().map(|ended| (ended.pid.as_raw().unsigned_abs(), ended.exit)).collect();
            ended.sort_by_key(|(pid, _)| *pid);
            expected.sort_by_key(|(pid, _)| *pid);
            assert_eq!(ended, expected);
            assert_eq!(reap_all(), []);
        });
    }

    #[test]
    fn a_process_that_left_its_session_and_parents_is_found_and_killed() {
        alone("a_process_that_left_its_session_and_parents_is_found_and_killed", || {
            become_subreaper().expect("Linux has subreapers");
            // Forks twice, starts its own session, ignores TERM, and has a child that ends on TERM.
            let daemon = "trap '' TERM; (trap - TERM; exec sleep 1000) & echo $$ $!; exec >&-; while :; do wait; done";
            let pids = shell_until_ready(&format!("(setsid sh -c \"{}\" &)", daemon.replace('$', "\\$")));
            let (daemon, sleeper) = pids.split_once(' ').expect("two numbers");
            assert!(!is_gone(daemon) && !is_gone(sleeper));
            let (clock, grace) = (Clock::start(), Duration::from_millis(100));
            let ended =
                in_runtime(async { tokio::time::timeout(Duration::from_secs(10), kill_leftovers(clock, grace)).await });
            let ended = ended.expect("an end before the deadline");
            let how = |pid: &str| ended.iter().find(|ended| ended.pid.to_string() == pid).map(|ended| ended.exit);
            assert!(clock.now().mono >= grace, "TERM ended a process that ignores it");
            assert_eq!(how(daemon), Some(Exit::Signaled(9)));
            assert_eq!(how(sleeper), Some(Exit::Signaled(9)), "became our child only after its parent ended");
            assert!(is_gone(daemon) && is_gone(sleeper));
            assert_eq!(children_of_self().expect("/proc"), []);
        });
    }

    #[test]
    fn a_process_that_ends_on_term_is_not_killed_even_if_it_was_stopped() {
        alone("a_process_that_ends_on_term_is_not_killed_even_if_it_was_stopped", || {
            become_subreaper().expect("Linux has subreapers");
            let pid = shell_until_ready("(setsid sh -c 'trap \"exit 3\" TERM; echo $$; kill -STOP $$; exit 4' &)");
            let (clock, patience) = (Clock::start(), Duration::from_secs(10));
            let ended = in_runtime(kill_leftovers(clock, patience));
            let how = ended.iter().find(|ended| ended.pid.to_string() == pid).map(|ended| ended.exit);
            assert_eq!(how, Some(Exit::Exited(3)));
            assert!(clock.now().mono < patience);
        });
    }

    #[test]
    fn processes_are_found_by_an_entry_of_their_environment() {
        let value = format!("w{}", std::process::id());
        let start = |value: &str| {
            let child = Command::new("sleep").arg("1000").env("RSD_TEST_MARK", value).spawn().expect("sleep");
            // `spawn` returns after the child has executed, so its environment is in place.
            (Pid::from_raw(child.id().cast_signed()), child)
        };
        let (ours, other) = (start(&value), start(&format!("{value}0")));
        assert_eq!(
            processes_with_environ(nix::unistd::geteuid().as_raw(), "RSD_TEST_MARK", &value).expect("/proc"),
            (vec![ours.0], 0)
        );
        let none = (Vec::new(), 0);
        assert_eq!(processes_with_environ(nix::unistd::geteuid().as_raw(), "TEST_MARK", &value).expect("/proc"), none);
        for mut child in [ours.1, other.1] {
            child.kill().and_then(|()| child.wait()).expect("our child");
        }
    }

    #[test]
    fn processes_that_start_others_and_end_are_killed_until_none_is_left() {
        let value = format!("r{}", std::process::id());
        // Each one starts its successor and ends, all the time.
        let chain = "sleep 0.01; sh -c \"$RSD_TEST_CHAIN\" & exit";
        let start = || {
            let mut command = Command::new("sh");
            command.args(["-c", chain]).env("RSD_TEST_CHAIN", chain).env("RSD_TEST_MARK", &value);
            command.spawn().expect("a shell").wait().expect("our child");
        };
        (0..8).for_each(|_| start());
        let killed = kill_by_environ(nix::unistd::geteuid().as_raw(), "RSD_TEST_MARK", &value, Duration::from_secs(20))
            .expect("/proc");
        assert!(killed.ended > 0 && killed.left == 0, "{killed:?}");
        std::thread::sleep(Duration::from_millis(200));
        assert_eq!(
            processes_with_environ(nix::unistd::geteuid().as_raw(), "RSD_TEST_MARK", &value).expect("/proc"),
            (Vec::new(), 0)
        );
        let none = Killed { ended: 0, left: 0 };
        assert_eq!(
            kill_by_environ(nix::unistd::geteuid().as_raw(), "RSD_TEST_MARK", &value, Duration::ZERO).expect("/proc"),
            none
        );
    }

    #[test]
    fn processes_that_cannot_be_examined_are_left_and_none_stays_stopped() {
        alone("processes_that_cannot_be_examined_are_left_and_none_stays_stopped", || {
            let value = format!("x{}", std::process::id());
            let start = || Command::new("sleep").arg("1000").env("RSD_TEST_MARK", &value).spawn().expect("sleep");
            let children = [start(), start()];
            let kill = |timeout| kill_by_environ(nix::unistd::geteuid().as_raw(), "RSD_TEST_MARK", &value, timeout);
            // Room for reading /proc, and one descriptor less than reading a process's environment needs.
            let next = File::open("/dev/null").expect("a free descriptor").as_raw_fd();
            let (_, hard) = getrlimit(Resource::RLIMIT_NOFILE).expect("a limit");
            let limit = |more| setrlimit(Resource::RLIMIT_NOFILE, next as u64 + more, hard).expect("a lower limit");
            limit(1);
            assert!(kill(Duration::ZERO).expect("/proc").left >= 2, "nothing can be said about them");
            limit(0);
            assert!(kill(Duration::ZERO).is_err(), "not even /proc can be read");
            // One of them is stopped when the descriptors run out; it is killed all the same, and then the other one.
            limit(2);
            assert_eq!(kill(Duration::from_secs(20)).expect("/proc"), Killed { ended: 2, left: 0 });
            limit(64);
            for mut child in children {
                assert_eq!(child.wait().expect("our child").signal(), Some(9));
            }
        });
    }

    #[test]
    fn the_hash_is_fnv_1a() {
        // Vectors of the IETF draft on FNV.
        assert_eq!(fnv1a_32(b""), 0x811c_9dc5);
        assert_eq!(fnv1a_32(b"a"), 0xe40c_292c);
        assert_eq!(fnv1a_32(b"foobar"), 0xbf9c_f968);
    }

    #[test]
    fn only_files_of_this_namespace_are_removed_and_no_links() {
        let dir = std::env::temp_dir().join(format!("rsd-shm-{}", std::process::id()));
        std::fs::create_dir_all(&dir).expect("a scratch directory");
        let precious = dir.join("precious");
        let hash = format!("{:x}", fnv1a_32(b"foobar"));
        for name in ["0", "12", "", "1x", "1_1"].map(|node| format!("mpich_shm_{hash}_{node}")) {
            std::fs::write(dir.join(name), "x").expect("a file");
        }
        std::fs::write(&precious, "x").expect("a file");
        std::fs::write(dir.join("mpich_shm_e40c292c_0"), "x").expect("a file");
        std::os::unix::fs::symlink(&precious, dir.join(format!("mpich_shm_{hash}_3"))).expect("a link");
        assert_eq!(remove_shm_files(&dir, nix::unistd::geteuid().as_raw(), "foobar"), 2);
        let left = std::fs::read_dir(&dir).expect("the directory").count();
        assert!(precious.exists());
        assert_eq!(left, 6, "three of other names, one of another namespace, the link and its target");
        std::fs::remove_dir_all(&dir).expect("our own directory");
    }
}
