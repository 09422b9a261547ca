//! State directories that earlier builds have left: a head of this build goes on with what is in them.

use std::fs::{self, Permissions};
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::time::Duration;

use nix::sys::signal::Signal;
use rsd_tests::{Dvm, Options, built};

const PATIENCE: Duration = Duration::from_secs(60);

/// Copies a sample, with the modes that a repository does not keep.
fn copy(sample: &Path, to: &Path) {
    fs::create_dir_all(to).expect("the DVM's directory is writable");
    fs::set_permissions(to, Permissions::from_mode(0o700)).expect("it is the test's own");
    for entry in fs::read_dir(sample).expect("the sample is checked in") {
        let entry = entry.expect("the sample can be read");
        let (from, to) = (entry.path(), to.join(entry.file_name()));
        if from.is_dir() {
            copy(&from, &to);
            continue;
        }
        fs::copy(&from, &to).expect("the DVM's directory is writable");
        let mode = if sample.ends_with("steps") { 0o700 } else { 0o600 };
        fs::set_permissions(&to, Permissions::from_mode(mode)).expect("it is the test's own");
    }
}

/// The sample's head was killed. Job 1 had succeeded, job 2 had failed, job 3 ran, jobs 4 to 6 and the array 7 waited, and a group had formed.
#[test]
fn a_head_goes_on_with_journal_logs_and_steps_of_format_1() {
    let dvm = Dvm::start_with(Options { nodes: 0, slots: 1, args: Vec::new() });
    let dir = dvm.scratch().join("state");
    copy(&Path::new(env!("CARGO_MANIFEST_DIR")).join("system/samples/format-1"), &dir);
    let settings = dvm.file("rsd.toml", "[jobs]\nkeep_for = \"3650d\"\n");
    let start = ["start", "--foreground", "--name", "h0", "--slots", "4", "--single-user", "--resource", "licence:2"];
    let head = dvm.call(built::rsd()).args(start).args(["--state-dir"]).args([&dir]).env("RSD_CONFIG", &settings);
    let head = head.deadline(3 * PATIENCE).start();
    head.until_stdout(|out| out.contains("ready").then_some(()));
    // What waited starts when the job before is over, in its order; the job whose processes are gone has failed.
    let ctl = |line: &str| dvm.ctl(line).deadline(PATIENCE);
    let said = ctl("wait 3").fails(242);
    assert!(said.contains("its step process was killed while the daemon of its node was down"), "{said}");
    ctl("wait 4 6 7").ok();
    let jobs = dvm.json("ps -a");
    let state = |job: u64| {
        let found = jobs["jobs"].as_array().into_iter().flatten().find(|info| info["job"] == job);
        found.map(|info| (info["name"].clone(), info["state"].clone(), info["exit_code"].clone()))
    };
    for (job, name, is, code) in [
        (1, "first", "done", 0),
        (2, "", "failed", 7),
        (4, "waits", "done", 0),
        (6, "later", "done", 0),
        (7, "many", "done", 0),
    ] {
        let (found, state, exit_code) = state(job).unwrap_or_else(|| panic!("no job {job} in {jobs}"));
        let found = found.as_str().unwrap_or_default();
        assert_eq!((found, state.as_str(), exit_code.as_u64()), (name, Some(is), Some(code)), "job {job}");
    }
    assert_eq!(state(5).map(|(_, state, _)| state), Some("queued".into()), "it is held");
    assert_eq!(crate::sorted(&ctl("logs 1").ok()), ["out 0", "out 1"]);
    assert_eq!(ctl("logs 7[3]").ok(), "3\n".repeat(3));
    assert_eq!(ctl("ps -a --label kind=sample --json").ok().matches("\"job\":1,").count(), 1);
    assert!(ctl("group ls").ok().contains("actors"));
    assert!(ctl("nodes --json").ok().contains("\"a\":\"b\""));
    assert_eq!(ctl("submit -n 1 true").ok(), "34\n", "the numbers that the earlier head had reserved are not used");
    ctl("wait 34").ok();
    dvm.call(built::rsd()).args(["stop", "--force"]).deadline(PATIENCE).ok();
    head.signal(Signal::SIGTERM); // it may have ended
    head.gone();
}
