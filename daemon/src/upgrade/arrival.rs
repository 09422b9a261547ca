//! The side of the program that has taken a daemon's place: until it is ready, a failure gives the place back.

use std::ffi::{OsStr, OsString};
use std::os::fd::RawFd;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::process::CommandExt;
use std::process::Command;
use std::sync::atomic::{AtomicBool, Ordering};

use nix::sys::wait::waitpid;

use super::{BACK, BETWEEN, FAILED};
use crate::failed::say;
use crate::reap;

/// The longest reason that is passed on, in bytes.
const WHY_BYTES: usize = 2048;

/// Whether this daemon has been ready.
static IS_READY: AtomicBool = AtomicBool::new(false);

/// The descriptor of the earlier program and its arguments, while this one is not ready.
fn earlier() -> Option<(RawFd, Vec<OsString>)> {
    if IS_READY.load(Ordering::Relaxed) {
        return None;
    }
    let back = std::env::var_os(BACK)?;
    let mut words = back.as_bytes().split(|byte| *byte == BETWEEN.as_bytes()[0]).map(OsStr::from_bytes);
    let descriptor = words.next()?.to_str()?.parse().ok()?;
    Some((descriptor, words.map(OsStr::to_owned).collect()))
}

/// Notes that this daemon is ready: from here on, its failures are its own.
pub(crate) fn arrived() {
    let earlier = earlier();
    if !IS_READY.swap(true, Ordering::Relaxed)
        && let Some((earlier, _)) = earlier
    {
        let _ = nix::unistd::close(earlier); // it is not needed any more
    }
}

/// Executes the earlier program if this one has taken its place and is not ready. Otherwise returns.
pub(crate) fn go_back(why: &str) {
    let Some((earlier, arguments)) = earlier() else { return };
    let why = why.replace('\0', " ");
    let why = &why[..why.floor_char_boundary(WHY_BYTES)];
    say(&format!("this program cannot take the daemon's place: {why}: going back to the earlier one"));
    let mut command = Command::new(format!("/proc/self/fd/{earlier}"));
    let error = command.arg0("rsd").args(arguments).env_remove(BACK).env(FAILED, why).exec();
    say(&format!("cannot execute the earlier program: {error}"));
}

/// Reaps the children that the earlier program has started, when they end: its steps.
pub(crate) fn reap_inherited() {
    if [BACK, FAILED].iter().all(|name| std::env::var_os(name).is_none()) {
        return;
    }
    for child in reap::children_of_self().unwrap_or_default() {
        let reaper = std::thread::Builder::new().name(format!("reap-{child}")).stack_size(64 << 10);
        // Without the thread, an ended step remains as a zombie.
        let _ = reaper.spawn(move || waitpid(child, None));
    }
}
