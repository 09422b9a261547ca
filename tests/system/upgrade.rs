//! `rsd upgrade` and `rsctl upgrade`: daemons get another program under their jobs.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::PathBuf;
use std::time::Duration;

use prost::Message;
use rsd_proto::v1::Launch;
use rsd_tests::{Dvm, built, eventually};

/// A job on all slots whose ranks print, wait for the file `gate`, and print again.
fn gated(dvm: &Dvm, ranks: u32) -> rsd_tests::Running {
    let gate = dvm.scratch().join("gate");
    let script = format!("echo up; while ! test -e {}; do sleep 0.02; done; echo done", gate.display());
    let job = dvm.rsctl(["run", "-n", &ranks.to_string(), "--map-by", "node", "sh", "-c", &script]).start();
    job.until_stdout(|out| (out.matches("up").count() == ranks as usize).then_some(()));
    job
}

/// A copy of `rsd`, as another version.
fn copy(dvm: &Dvm, name: &str) -> PathBuf {
    let path = dvm.scratch().join(name);
    fs::copy(built::rsd(), &path).expect("the DVM's directory is writable");
    path
}

fn script(dvm: &Dvm, name: &str, text: &str) -> String {
    let path = dvm.file(name, text);
    fs::set_permissions(&path, fs::Permissions::from_mode(0o755)).expect("the file is the test's own");
    path
}

/// The program that a daemon executes.
fn program(dvm: &Dvm, at: usize) -> PathBuf {
    fs::read_link(format!("/proc/{}/exe", dvm.pid(at))).expect("the daemon runs")
}

#[test]
fn all_daemons_get_another_program_while_jobs_run() {
    let dvm = Dvm::start(3);
    let job = gated(&dvm, 6);
    let queued = dvm.submit(["-n", "12", "echo", "late"]);
    let pids: Vec<i32> = (0..3).map(|at| dvm.pid(at)).collect();
    let other = copy(&dvm, "rsd-2");
    let said = dvm.rsctl(["upgrade", "--binary", &other.display().to_string()]).deadline(Duration::from_secs(60)).ok();
    assert!(said.contains("3 nodes upgraded"), "{said}");
    for (at, pid) in pids.iter().enumerate() {
        assert_eq!((program(&dvm, at), dvm.pid(at)), (other.clone(), *pid));
        assert!(said.contains(&format!("with the same pid {pid}; ")), "{said}");
    }
    dvm.file("gate", "");
    let out = job.end().ok();
    assert_eq!((out.matches("up").count(), out.matches("done").count()), (6, 6), "{out}");
    dvm.ctl(&format!("wait {queued}")).ok();
    assert_eq!(dvm.ctl("run -n 12 echo here").ok(), "here\n".repeat(12));
    let back = built::rsd().display().to_string();
    let said = dvm.rsctl(["upgrade", "node2", "--binary", &back]).deadline(Duration::from_secs(60)).ok();
    assert!(said.contains("1 node upgraded"), "{said}");
    let programs = [0, 1, 2].map(|at| program(&dvm, at) == other);
    assert_eq!(programs, [true, true, false], "only the named node has another program");
    // The steps that the earlier programs have started are reaped.
    for pid in pids {
        eventually("no zombie is left", Duration::from_secs(10), || {
            let children = fs::read_to_string(format!("/proc/{pid}/task/{pid}/children")).unwrap_or_default();
            let is_zombie =
                |child: &str| fs::read_to_string(format!("/proc/{child}/stat")).is_ok_and(|stat| stat.contains(") Z "));
            (!children.split_whitespace().any(is_zombie)).then_some(())
        });
    }
}

#[test]
fn a_program_that_cannot_take_the_place_leaves_the_daemon_as_it_is() {
    let dvm = Dvm::start(1);
    let job = gated(&dvm, 2);
    let rsd = built::rsd().display().to_string();
    let upgrade = |program: &str| dvm.call(&rsd).args(["upgrade", "--binary", program]);
    let pid = dvm.pid(0);
    for (program, says) in [
        ("/bin/true", "it is not rsd"),
        ("/bin/false", "exit status: 1"),
        ("/nonexistent", "No such file"),
        (&*dvm.file("text", "no program"), "ermission denied"),
        (
            &*script(&dvm, "newer", "#!/bin/sh\necho '{\"version\":\"9.0\",\"protocol\":99,\"protocol_oldest\":98}'\n"),
            "version 9.0 speaks protocols 98 to 99",
        ),
    ] {
        let ended = upgrade(program).end();
        let said = ended.err();
        assert!(!ended.status.success() && said.contains(says) && said.contains("which goes on"), "{program}: {said}");
    }
    // It examines the state well, and then fails.
    let text = format!("#!/bin/sh\ncase \"$*\" in *--check*) exec {rsd} \"$@\";; esac\nexec {rsd} start --nonsense\n");
    let ended = upgrade(&script(&dvm, "failing", &text)).end();
    let said = ended.err();
    assert!(!ended.status.success() && said.contains("unexpected argument '--nonsense'"), "{said}");
    assert!(said.contains("the earlier program runs again"), "{said}");
    assert_eq!((dvm.pid(0), program(&dvm, 0)), (pid, built::rsd().canonicalize().expect("it exists")));
    dvm.file("gate", "");
    assert_eq!(job.end().ok().matches("done").count(), 2);
}

#[test]
fn the_earlier_program_is_started_again_if_the_process_has_ended() {
    let mut dvm = Dvm::start(1);
    let job = gated(&dvm, 2);
    let rsd = built::rsd().display().to_string();
    let text = format!("#!/bin/sh\ncase \"$*\" in *--check*) exec {rsd} \"$@\";; esac\nexit 3\n");
    let ended = dvm.call(&rsd).args(["upgrade", "--binary", &script(&dvm, "crashing", &text)]).end();
    let said = ended.err();
    assert!(!ended.status.success() && said.contains("has ended before it was ready"), "{said}");
    assert!(said.contains("the earlier version was started again, in the background: ready: node0"), "{said}");
    dvm.file("gate", "");
    assert_eq!(job.end().ok().matches("done").count(), 2);
    dvm.call(&rsd).args(["stop", "--dvm", "node0"]).ok();
    dvm.restart(0);
}

#[test]
fn steps_of_an_earlier_version_go_on_and_those_of_a_newer_one_are_refused_by_name() {
    let mut dvm = Dvm::start(1);
    let job = gated(&dvm, 2);
    dvm.kill(0);
    let path = dvm.state_dir(0).join("steps/1");
    let written = fs::read(&path).expect("the step runs");
    let launch = Launch::decode(&*written).expect("it is a launch");
    assert_eq!(launch.format, 1);
    fs::write(&path, Launch { format: 9, ..launch.clone() }.encode_to_vec()).expect("the file is ours");
    let state_dir = dvm.state_dir(0).display().to_string();
    let start = ["start", "--foreground", "--name", "node0", "--state-dir", &state_dir];
    let said = dvm.call(built::rsd()).args(start).fails(248);
    assert!(said.contains("steps/1 was written by a newer version of rsd (format 9;"), "{said}");
    // The same inode, which the step has locked.
    fs::write(&path, Launch { format: 0, ..launch }.encode_to_vec()).expect("the file is ours");
    dvm.restart(0);
    dvm.file("gate", "");
    assert_eq!(job.end().ok().matches("done").count(), 2);
}

#[test]
fn a_service_manager_sees_a_reload_and_not_an_end() {
    use std::os::unix::net::UnixDatagram;
    let probe = Dvm::start(0);
    let path = probe.scratch().join("notify");
    let socket = UnixDatagram::bind(&path).expect("the path is free");
    socket.set_read_timeout(Some(Duration::from_secs(20))).expect("a timeout can be set");
    let next = || {
        let mut bytes = [0; 256];
        let length = socket.recv(&mut bytes).expect("the daemon notifies");
        String::from_utf8_lossy(&bytes[..length]).into_owned()
    };
    let options = rsd_tests::Options { nodes: 1, slots: 2, args: Vec::new() };
    let dvm = Dvm::start_in(options, &[("NOTIFY_SOCKET", path.to_str().expect("the path is UTF-8"))]);
    assert_eq!(next(), "READY=1");
    dvm.call(built::rsd()).args(["upgrade"]).ok();
    assert_eq!([next(), next()], ["RELOADING=1", "READY=1"]);
}
