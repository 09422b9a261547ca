//! Where daemons keep their state and their sockets.

use std::fs;
use std::os::unix::fs::{DirBuilderExt, chown};
use std::path::{Path, PathBuf};
use std::time::Duration;

use nix::unistd::{Uid, gethostname};
use rsd_tests::{Call, Dvm, Options, built, copy_program, eventually};

const SOON: Duration = Duration::from_secs(20);
/// The uid of `nobody`.
const UID: u32 = 65_534;

#[test]
fn a_logout_that_removes_the_runtime_directory_loses_no_job_no_output_and_no_exit_code() {
    let mut dvm = Dvm::start(2);
    let ended = dvm.submit(["-n", "2", "sh", "-c", "echo before; exit 5"]);
    dvm.rsctl(["wait", &ended]).fails(5);
    let gate = dvm.scratch().join("gate");
    let script = format!("echo up; while ! test -e {}; do sleep 0.02; done; echo down; exit 3", gate.display());
    let job = dvm.submit(["-n", "8", "sh", "-c", &script]);
    eventually("all ranks run", SOON, || (dvm.rsctl(["logs", &job]).ok().matches("up").count() == 8).then_some(()));
    for at in 0..2 {
        fs::remove_dir_all(dvm.runtime_dir(at)).expect("the daemon has made it");
    }
    for at in 0..2 {
        eventually("the daemon has made its sockets again", SOON, || {
            dvm.call(built::rsd())
                .args(["status", "--dvm"])
                .args([dvm.state_dir(at)])
                .end()
                .status
                .success()
                .then_some(())
        });
    }
    // The step finds the next daemon's socket, too.
    dvm.kill(1);
    dvm.restart(1);
    dvm.file("gate", "");
    dvm.rsctl(["wait", &job]).fails(3);
    assert_eq!(dvm.rsctl(["logs", &job]).end().out().matches("down").count(), 8);
    assert_eq!(dvm.rsctl(["logs", &ended]).end().out(), "before\nbefore\n", "the log of an ended job");
    dvm.rsctl(["wait", &ended]).fails(5);
}

#[test]
fn restarts_of_killed_daemons_leave_one_entry_in_the_runtime_directory() {
    let dvm = Dvm::start_with(Options { nodes: 0, slots: 1, args: Vec::new() });
    let runtime = dvm.scratch().join("run");
    let elsewhere = dvm.scratch().join("elsewhere");
    let names = || -> Vec<String> {
        let entries = fs::read_dir(&runtime).expect("a daemon has made it").flatten();
        entries.map(|entry| entry.file_name().to_string_lossy().into_owned()).collect()
    };
    for _ in 0..4 {
        let start = dvm.call(built::rsd()).env("RSD_RUNTIME_DIR", &runtime);
        let daemon = start.args(["start", "--foreground", "--name", "far", "--state-dir"]).args([&elsewhere]).start();
        daemon.until_stdout(|out| out.contains("ready").then_some(()));
        assert_eq!(names(), ["far"]);
        daemon.signal(nix::sys::signal::Signal::SIGKILL);
        daemon.gone();
    }
}

/// A user with a home directory and a runtime directory, and without variables of rsd.
struct User {
    dir: PathBuf,
}

impl User {
    /// Returns `None` if this process cannot become another user.
    fn new(dvm: &Dvm) -> Option<User> {
        if !Uid::effective().is_root() {
            eprintln!("skipped: only root can become another user");
            return None;
        }
        let dir = PathBuf::from(format!("{}-user", dvm.runtime_base().display()));
        for path in [dir.clone(), dir.join("home"), dir.join("xdg")] {
            fs::DirBuilder::new().mode(0o755).create(&path).expect("/tmp is writable");
            chown(&path, Some(UID), Some(UID)).expect("root may change owners");
        }
        for program in [built::rsd(), built::rsctl()] {
            copy_program(program, dir.join(program.file_name().expect("a program has a name")));
        }
        Some(User { dir })
    }

    fn call(&self, program: &str) -> Call {
        let call = Call::new(self.dir.join(program)).dir(&self.dir).user(UID);
        let call = ["RSD_RUNTIME_DIR", "RSD_STATE_DIR", "RSD_DVM", "RSD_CONFIG", "XDG_STATE_HOME", "XDG_CONFIG_HOME"]
            .into_iter()
            .fold(call, Call::env_remove);
        call.env("HOME", self.dir.join("home")).env("XDG_RUNTIME_DIR", self.dir.join("xdg"))
    }
}

impl Drop for User {
    fn drop(&mut self) {
        // The directories are below /tmp, and no later test uses them.
        let _ = fs::remove_dir_all(&self.dir);
        let _ = fs::remove_dir(without_login());
    }
}

/// The runtime directory of a user who is not logged in.
fn without_login() -> PathBuf {
    PathBuf::from(format!("/tmp/rsd-{UID}"))
}

#[test]
fn the_state_is_in_the_home_directory_and_the_sockets_follow_the_runtime_directory() {
    let dvm = Dvm::start_with(Options { nodes: 0, slots: 1, args: Vec::new() });
    let Some(user) = User::new(&dvm) else { return };
    if Path::new(&format!("/run/user/{UID}")).exists() {
        eprintln!("skipped: uid {UID} is logged in");
        return;
    }
    let host = gethostname().expect("a host has a name");
    let state = user.dir.join(format!("home/.local/state/rsd/mine@{}", host.display()));
    let ready = user.call("rsd").args(["start", "--name", "mine"]).ok();
    assert!(ready.contains(&format!("state in {}", state.display())), "{ready}");
    assert!(user.dir.join("xdg/rsd/mine/rsd.sock").exists() && state.join("rsd.log").exists());
    let job = user.call("rsctl").args(["submit", "-n", "1", "sh", "-c", "echo out; sleep 3; exit 7"]).ok();
    let finds = |place: &str| {
        eventually(place, SOON, || user.call("rsctl").args(["ps"]).end().status.success().then_some(()));
    };
    fs::remove_dir_all(user.dir.join("xdg")).expect("the directory exists");
    finds("after the logout");
    assert!(without_login().join("mine/rsd.sock").exists());
    let xdg = user.dir.join("xdg");
    fs::create_dir(&xdg).expect("/tmp is writable");
    chown(&xdg, Some(UID), Some(UID)).expect("root may change owners");
    finds("after the next login");
    assert!(!without_login().join("mine").exists(), "the old directory is removed");
    user.call("rsctl").args(["wait", job.trim()]).fails(7);
    assert_eq!(user.call("rsctl").args(["logs", job.trim()]).end().out(), "out\n");
    user.call("rsd").args(["stop"]).ok();

    // A private daemon: its directories are removed.
    user.call("rsctl").args(["run", "-n", "1", "true"]).ok();
    for (dir, left) in [(xdg.join("rsd"), 0), (user.dir.join("home/.local/state/rsd"), 1)] {
        assert_eq!(fs::read_dir(&dir).expect("it was made").count(), left, "{}", dir.display());
    }
}
