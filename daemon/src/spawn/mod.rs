//! Starts rank processes, and reaps those that have ended.
//!
//! Uses `posix_spawn` instead of fork: the child borrows this process's memory until it executes, so a start costs the same
//! however much memory the step has, and none of rsd's code runs between fork and exec. Besides `nvml` this is the only module
//! of the daemon that may use `unsafe`; [`resolve`] and reaping do not.
//!
//! A rank gets: the cpus and the memory policy that it is bound to, its own process group (so that a signal reaches it and its
//! children), a session of its own if the command says so, default signal dispositions, an empty signal mask, file
//! descriptors 0 to 2 and those that are passed to it. All other descriptors of this process are close-on-exec;
//! [`seal_inherited`] covers those that this process has inherited.

#![expect(unsafe_code, reason = "posix_spawn, waitpid and sched_setaffinity are C functions over pointers")]

mod confine;
mod crew;
mod inherited;
mod pidfd;
mod pipe;
mod program;
mod user;
mod warm;

pub(crate) use confine::{ConfineError, CpuMask, MemoryPolicy};
pub(crate) use crew::{Crew, Process};
pub(crate) use inherited::{Adopted, adopt, become_limited};
pub(crate) use pidfd::{PidFd, Watched, is_exiting, start_time};
pub(crate) use pipe::{input_pipe, output_pipe, socket_pair};
pub(crate) use program::{Interpreter, ProgramError, WdirError, check_env_line, check_wdir, resolve};
pub(crate) use user::{become_user, detach_streams, make_log_append_only};
pub(crate) use warm::map_own_text;

use std::ffi::{CStr, CString, OsStr};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, OwnedFd, RawFd};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::ptr;
use std::sync::LazyLock;

use nix::errno::Errno;
use nix::fcntl::{FcntlArg, FdFlag, fcntl};
use nix::unistd::Pid;
use rsd_proto::v1::Usage;

/// The number of signals of Linux.
const SIGNALS: libc::c_int = 64;

/// One process to start.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Command<'a> {
    /// The file to execute, absolute: the result of [`resolve`].
    pub(crate) program: &'a CStr,
    /// The arguments, the program's name as the user gave it first.
    pub(crate) argv: &'a [CString],
    /// The environment that all processes of a program share, each `NAME=value`.
    pub(crate) env: &'a [CString],
    /// The variables that only this process has.
    pub(crate) own_env: &'a [CString],
    /// The working directory, absolute.
    pub(crate) wdir: &'a CStr,
    /// Becomes file descriptor 0.
    pub(crate) stdin: BorrowedFd<'a>,
    /// Becomes file descriptor 1.
    pub(crate) stdout: BorrowedFd<'a>,
    /// Becomes file descriptor 2.
    pub(crate) stderr: BorrowedFd<'a>,
    /// Additional descriptors, each with its number in the child: 3 or more.
    pub(crate) pass: &'a [(BorrowedFd<'a>, RawFd)],
    /// The cpus that it may run on, by the kernel's numbers, ascending; empty: the cpus of this process.
    pub(crate) cpus: &'a [u32],
    /// Its memory policy; None: the policy of this process.
    pub(crate) memory: Option<&'a MemoryPolicy>,
    /// Whether it leads a session of its own; otherwise it is in that of this process.
    pub(crate) own_session: bool,
}

/// Why a process did not start.
#[derive(Debug, thiserror::Error)]
pub(crate) enum SpawnError {
    /// The working directory cannot be entered.
    #[error(transparent)]
    Wdir(#[from] WdirError),
    /// The program cannot be executed.
    #[error(transparent)]
    Program(#[from] ProgramError),
    /// The program exists, but the interpreter in its first line or its loader entry does not.
    #[error("program {}: {}", path.display(), interpreter.missing(path))]
    NoInterpreter {
        /// The program.
        path: PathBuf,
        /// The interpreter or loader.
        interpreter: Interpreter,
    },
    /// This machine cannot run the binary.
    #[error("program {}: a binary for another kind of machine, or damaged", path.display())]
    ForeignBinary {
        /// The program.
        path: PathBuf,
    },
    /// Arguments and environment exceed the kernel's limit.
    #[error("program {}: arguments and environment are too long together ({bytes} bytes)", path.display())]
    TooLong {
        /// The program.
        path: PathBuf,
        /// Their size.
        bytes: usize,
    },
    /// It cannot be bound to its cpus or its memory.
    #[error(transparent)]
    Confine(#[from] ConfineError),
    /// The node or the user has reached its limit of processes.
    #[error("program {}: this node allows no more processes (see ulimit -u, cgroup pids.max)", path.display())]
    TooManyProcesses {
        /// The program.
        path: PathBuf,
    },
    /// Any other error.
    #[error("program {}: {}", path.display(), errno.desc())]
    Os {
        /// The program.
        path: PathBuf,
        /// The system's error.
        errno: Errno,
    },
}

/// Starts the process; it leads its own process group, whose number is the process's.
pub(crate) fn spawn(command: &Command<'_>) -> Result<Pid, SpawnError> {
    let spawn = || spawn_here(command);
    let with_memory = || match command.memory {
        Some(policy) => confine::with_memory(policy, spawn)?,
        None => spawn(),
    };
    match command.cpus {
        [] => with_memory(),
        cpus => confine::on_cpus(cpus, with_memory)?,
    }
}

/// Starts the process with the cpus of the calling thread.
fn spawn_here(command: &Command<'_>) -> Result<Pid, SpawnError> {
    match start(command, command.program, command.argv) {
        Ok(pid) => Ok(pid),
        Err(Errno::ENOEXEC) => start_as_script(command),
        Err(errno) => Err(culprit(command, errno)),
    }
}

/// Starts a text without a `#!` line: a shell runs it, as with `execvp`.
fn start_as_script(command: &Command<'_>) -> Result<Pid, SpawnError> {
    let path = path(command.program);
    if program::is_elf(path) {
        return Err(SpawnError::ForeignBinary { path: path.to_path_buf() });
    }
    let mut argv = vec![c"/bin/sh".to_owned(), command.program.to_owned()];
    argv.extend(command.argv.iter().skip(1).cloned());
    start(command, c"/bin/sh", &argv).map_err(|errno| culprit(command, errno))
}

/// Finds the cause of an error: the system returns one error number for every cause.
fn culprit(command: &Command<'_>, errno: Errno) -> SpawnError {
    let path = path(command.program);
    if let Err(error) = check_wdir(self::path(command.wdir)) {
        return error.into();
    }
    if let Err(error) = program::check(path) {
        return error.into();
    }
    let path = path.to_path_buf();
    match errno {
        Errno::ENOENT => SpawnError::NoInterpreter { interpreter: program::interpreter(&path), path },
        Errno::E2BIG => {
            let bytes =
                command.argv.iter().chain(command.env).chain(command.own_env).map(|text| text.count_bytes() + 1).sum();
            SpawnError::TooLong { path, bytes }
        }
        Errno::EAGAIN => SpawnError::TooManyProcesses { path },
        errno => SpawnError::Os { path, errno },
    }
}

fn path(text: &CStr) -> &Path {
    Path::new(OsStr::from_bytes(text.to_bytes()))
}

fn start(command: &Command<'_>, program: &CStr, argv: &[CString]) -> Result<Pid, Errno> {
    let mut moves = vec![(command.stdin, 0), (command.stdout, 1), (command.stderr, 2)];
    moves.extend(command.pass);
    let copies = copy_endangered(&mut moves)?;
    let mut actions = FileActions::new()?;
    for ((from, to), copy) in moves.iter().zip(&copies) {
        actions.dup(copy.as_ref().map_or(*from, AsFd::as_fd), *to)?;
    }
    actions.chdir(command.wdir)?;
    let attributes = Attributes::new(command.own_session)?;
    let argv = pointers(argv);
    let envp = pointers(command.env.iter().chain(command.own_env));
    let mut pid = 0;
    // SAFETY: both arrays end in null and point to C strings that `command` and `argv` keep alive until the call ends.
    let errno = unsafe {
        libc::posix_spawn(&mut pid, program.as_ptr(), &actions.0, &attributes.0, argv.as_ptr(), envp.as_ptr())
    };
    check(errno)?;
    Ok(Pid::from_raw(pid))
}

/// Copies sources that an earlier move might overwrite, each to a number above all targets: `copies[i]` then replaces the source
/// of `moves[i]`. Usually there are none, because no program requests the numbers of sources.
fn copy_endangered(moves: &mut [(BorrowedFd<'_>, RawFd)]) -> Result<Vec<Option<OwnedFd>>, Errno> {
    let above = moves.iter().map(|(_, to)| to + 1).max().unwrap_or(0);
    let is_target = |fd: RawFd| moves.iter().any(|(_, to)| *to == fd);
    moves
        .iter()
        .map(|(from, to)| {
            if from.as_raw_fd() == *to || !is_target(from.as_raw_fd()) {
                return Ok(None);
            }
            let copy = fcntl(from, FcntlArg::F_DUPFD_CLOEXEC(above))?;
            // SAFETY: the call has just made this descriptor for us.
            Ok(Some(unsafe { OwnedFd::from_raw_fd(copy) }))
        })
        .collect()
}

fn pointers<'a>(texts: impl IntoIterator<Item = &'a CString>) -> Vec<*mut libc::c_char> {
    texts.into_iter().map(|text| text.as_ptr().cast_mut()).chain([ptr::null_mut()]).collect()
}

fn check(errno: libc::c_int) -> Result<(), Errno> {
    if errno == 0 { Ok(()) } else { Err(Errno::from_raw(errno)) }
}

/// The file actions that the child performs before it executes the program.
struct FileActions(libc::posix_spawn_file_actions_t);

impl FileActions {
    fn new() -> Result<FileActions, Errno> {
        let mut actions = MaybeUninit::uninit();
        // SAFETY: the call fills its argument, which is read only if the call succeeded.
        unsafe {
            check(libc::posix_spawn_file_actions_init(actions.as_mut_ptr()))?;
            Ok(FileActions(actions.assume_init()))
        }
    }

    /// Copying a descriptor onto itself clears its close-on-exec flag.
    fn dup(&mut self, from: BorrowedFd<'_>, to: RawFd) -> Result<(), Errno> {
        // SAFETY: `self` holds initialised actions.
        check(unsafe { libc::posix_spawn_file_actions_adddup2(&mut self.0, from.as_raw_fd(), to) })
    }

    fn chdir(&mut self, dir: &CStr) -> Result<(), Errno> {
        // SAFETY: `self` holds initialised actions, and the call copies the text.
        check(unsafe { libc::posix_spawn_file_actions_addchdir_np(&mut self.0, dir.as_ptr()) })
    }
}

impl Drop for FileActions {
    fn drop(&mut self) {
        // SAFETY: initialised by `new`, and not used after this.
        unsafe { libc::posix_spawn_file_actions_destroy(&mut self.0) };
    }
}

/// The attributes of the child: own process group, and own session if that is wanted, empty signal mask, default dispositions.
struct Attributes(libc::posix_spawnattr_t);

impl Attributes {
    fn new(own_session: bool) -> Result<Attributes, Errno> {
        let mut attributes = MaybeUninit::uninit();
        let mut none = MaybeUninit::uninit();
        let group = if own_session { libc::POSIX_SPAWN_SETSID.into() } else { libc::POSIX_SPAWN_SETPGROUP };
        let flags = libc::c_int::from(group) | libc::POSIX_SPAWN_SETSIGMASK | libc::POSIX_SPAWN_SETSIGDEF;
        // SAFETY: every pointer is to a local of the type that the call wants, initialised by the call before it.
        unsafe {
            libc::sigemptyset(none.as_mut_ptr());
            check(libc::posix_spawnattr_init(attributes.as_mut_ptr()))?;
            let mut attributes = Attributes(attributes.assume_init());
            check(libc::posix_spawnattr_setpgroup(&mut attributes.0, 0))?;
            check(libc::posix_spawnattr_setsigmask(&mut attributes.0, none.as_ptr()))?;
            check(libc::posix_spawnattr_setsigdefault(&mut attributes.0, changed_signals()))?;
            check(libc::posix_spawnattr_setflags(&mut attributes.0, flags as libc::c_short))?;
            Ok(attributes)
        }
    }
}

impl Drop for Attributes {
    fn drop(&mut self) {
        // SAFETY: initialised by `new`, and not used after this.
        unsafe { libc::posix_spawnattr_destroy(&mut self.0) };
    }
}

/// The signals that this process ignores or handles, when it starts its first child: the child resets each signal of the set with a
/// system call, while this thread waits, and all 64 take 9 us.
fn changed_signals() -> &'static libc::sigset_t {
    static CHANGED: LazyLock<libc::sigset_t> = LazyLock::new(|| {
        let is_changed = |signal: &libc::c_int| {
            let mut now = MaybeUninit::<libc::sigaction>::uninit();
            // SAFETY: the call fills its argument, which is read only if the call succeeded.
            unsafe {
                libc::sigaction(*signal, ptr::null(), now.as_mut_ptr()) != 0
                    || now.assume_init().sa_sigaction != libc::SIG_DFL
            }
        };
        // Two signals of the C library are refused, by sigaddset too. Where it uses them, the child would ignore them if they were left out.
        let bits = (1..=SIGNALS).filter(is_changed).fold(0_u64, |bits, signal| bits | 1 << (signal - 1));
        let mut changed = MaybeUninit::<libc::sigset_t>::zeroed();
        // SAFETY: a set is an array of words of which the first has the bits of the signals 1 to 64, on Linux; zeros are a valid set.
        unsafe {
            changed.as_mut_ptr().cast::<u64>().write(bits);
            changed.assume_init()
        }
    });
    &CHANGED
}

/// Marks the descriptors that this process has inherited, except 0 to 2, close-on-exec. Descriptors that it opens later are
/// close-on-exec anyway. Must be called at the beginning of `main`.
pub(crate) fn seal_inherited() -> std::io::Result<()> {
    for entry in std::fs::read_dir("/proc/self/fd")? {
        let Some(fd) = entry?.file_name().to_str().and_then(|name| name.parse::<RawFd>().ok()) else { continue };
        if fd > 2 {
            // SAFETY: only its flag is set; a number that is closed by now yields EBADF and changes nothing.
            let _ = fcntl(unsafe { BorrowedFd::borrow_raw(fd) }, FcntlArg::F_SETFD(FdFlag::FD_CLOEXEC));
        }
    }
    Ok(())
}

/// The result of [`wait_any`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Waited {
    /// This child has ended with this raw wait status, and is reaped; it has used this, with the descendants that were waited for.
    Ended(Pid, i32, Usage),
    /// All children are running.
    Running,
    /// This process has no children.
    Childless,
}

/// Reaps any one ended child, without waiting.
///
/// Returns the raw status, because `nix` has no names for real-time signals: it would return an error and lose the child that it
/// has just reaped.
pub(crate) fn wait_any() -> Waited {
    let mut status = 0;
    let mut used = MaybeUninit::<libc::rusage>::zeroed();
    // SAFETY: status and usage are locals of the types that the call wants, and outlive it.
    match Errno::result(unsafe { libc::wait4(-1, &mut status, libc::WNOHANG, used.as_mut_ptr()) }) {
        Ok(0) | Err(Errno::EINTR) => Waited::Running,
        // SAFETY: all zeros is a valid value, and the call has filled it.
        Ok(pid) => Waited::Ended(Pid::from_raw(pid), status, usage(&unsafe { used.assume_init() })),
        // ECHILD: the only other answer to these arguments.
        Err(_) => Waited::Childless,
    }
}

fn usage(used: &libc::rusage) -> Usage {
    let count = |number: libc::c_long| u64::try_from(number).unwrap_or(0);
    let us = |time: libc::timeval| count(time.tv_sec).saturating_mul(1_000_000).saturating_add(count(time.tv_usec));
    Usage {
        user_us: us(used.ru_utime),
        system_us: us(used.ru_stime),
        minor_faults: count(used.ru_minflt),
        major_faults: count(used.ru_majflt),
        voluntary_switches: count(used.ru_nvcsw),
        involuntary_switches: count(used.ru_nivcsw),
        // Linux counts it in KiB.
        peak_bytes: count(used.ru_maxrss).saturating_mul(1024),
        ..Default::default()
    }
}

#[cfg(test)]
mod tests;
