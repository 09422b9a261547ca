//! When jobs start: priorities, dependencies, arrays, retries and `rsctl why`, with real processes, and what their wrong uses say.

use std::time::Duration;

use rsd_tests::{Dvm, Options, eventually};
use serde_json::Value;

/// Submits a job that holds so many slots until its gate is opened; returns its number.
fn gated(dvm: &Dvm, options: &[&str], gate: &str) -> String {
    let script = format!("while ! test -e {}; do sleep 0.02; done", dvm.scratch().join(gate).display());
    dvm.rsctl(["submit"]).args(options).args(["sh", "-c", &script]).ok().trim().to_owned()
}

fn started_ms(dvm: &Dvm, job: &str) -> u64 {
    dvm.json(&format!("job show {job}"))["started_ms"].as_u64().expect("it has started")
}

#[test]
fn jobs_of_higher_priority_start_first_and_why_tells_the_order() {
    let dvm = Dvm::start(1);
    let blocker = gated(&dvm, &["-n", "4"], "gate");
    let low = dvm.submit(["-n", "4", "--priority", "-5", "true"]);
    let normal = dvm.submit(["-n", "4", "true"]);
    let high = dvm.submit(["-n", "4", "--priority", "3", "true"]);
    let why = dvm.ctl(&format!("why {low}")).ok();
    assert!(why.contains(&format!("2 jobs are before it in the queue: {high} (priority 3), {normal}")), "{why}");
    let why = dvm.ctl(&format!("why {high}")).ok();
    assert!(why.contains("4 ranks requested, 0 slots free"), "{why}");
    assert!(why.contains(&format!("freed by: the end of job {blocker}, which has no time limit")), "{why}");
    assert!(why.contains("expected start: unknown: jobs without a time limit"), "{why}");
    let plan =
        dvm.rsctl(["plan", "--idle", "-n", "1", "--array", "1-9%2", "--after", &format!("ok:{blocker}"), "true"]).ok();
    assert!(plan.contains(&format!("the job would wait for job {blocker} to succeed; that job is running")), "{plan}");
    assert!(plan.contains("an array of 1-9%2: 9 elements"), "{plan}");
    dvm.ctl(&format!("priority -10 {low}")).ok();
    dvm.ctl(&format!("priority 9 {low}")).ok();
    dvm.file("gate", "");
    dvm.ctl(&format!("wait {low} {normal} {high}")).ok();
    let started: Vec<u64> = [&low, &high, &normal].map(|job| started_ms(&dvm, job)).into();
    assert!(started.is_sorted(), "{started:?}");
    assert!(dvm.ctl(&format!("why {low}")).ok().contains("does not wait: it is done"));
}

#[test]
fn a_job_with_a_limit_starts_before_the_first_if_it_does_not_delay_it() {
    let dvm = Dvm::start(1);
    let blocker = gated(&dvm, &["-n", "3", "--timeout", "5m"], "gate");
    let first = dvm.submit(["-n", "4", "true"]);
    let long = dvm.submit(["-n", "1", "true"]);
    let short = dvm.submit(["-n", "1", "--timeout", "1m", "true"]);
    dvm.ctl(&format!("wait {short}")).ok();
    assert_eq!(dvm.json(&format!("job show {first}"))["state"], "queued");
    assert_eq!(dvm.json(&format!("job show {long}"))["state"], "queued");
    let why = dvm.ctl(&format!("why {first}")).ok();
    assert!(why.contains(&format!("when job {blocker} reaches its time limit")), "{why}");
    let why = dvm.ctl(&format!("why {long}")).ok();
    assert!(why.contains("without a time limit (--timeout), it could delay job"), "{why}");
    dvm.file("gate", "");
    dvm.ctl(&format!("wait {first} {long}")).ok();
}

#[test]
fn jobs_wait_for_others_by_number_name_and_label() {
    let dvm = Dvm::start(1);
    let one = gated(&dvm, &["-n", "1", "--name", "prepare", "--job-label", "project=x"], "gate");
    let by_name = dvm.submit(["-n", "1", "--after", "ok:prepare", "true"]);
    let by_label = dvm.submit(["-n", "1", "--after", "any:project=x,start:1", "true"]);
    let failed = dvm.submit(["-n", "1", "--after", &format!("ok:{by_name}"), "sh", "-c", "exit 3"]);
    let never = dvm.submit(["-n", "1", "--after", &format!("ok:{failed}"), "true"]);
    let kept = dvm.submit(["-n", "1", "--after", &format!("ok:{failed}"), "--after-never", "hold", "true"]);
    let mended = dvm.submit(["-n", "1", "--after", &format!("fail:{failed}"), "true"]);
    let why = dvm.ctl(&format!("why {by_name}")).ok();
    assert!(why.contains(&format!("it waits for job {one} to succeed; that job is running")), "{why}");
    let shown = dvm.ctl(&format!("job show {by_name}")).ok();
    assert!(shown.lines().any(|line| line.starts_with("after ") && line.ends_with(&format!("ok:{one}"))), "{shown}");
    dvm.file("gate", "");
    dvm.ctl(&format!("wait {by_name} {by_label} {mended}")).ok();
    let verdict = dvm.ctl(&format!("wait {never}")).fails(243);
    assert!(verdict.contains(&format!("it waits for job {failed} to succeed, and it has failed")), "{verdict}");
    let why = dvm.ctl(&format!("why {kept}")).ok();
    assert!(why.contains("it is held: it waits for job") && why.contains(&format!("rsctl release {kept}")), "{why}");
    dvm.ctl(&format!("release {kept}")).ok();
    dvm.ctl(&format!("wait {kept}")).ok();
    for (wrong, code, says) in [
        ("12", 240, "expected ok:JOB"),
        ("afterok:1", 240, "another scheduler's word: write ok, any, fail or start"),
        ("ok:99", 246, "--after: no job 99"),
        ("ok:1[2]", 240, "job 1 is not an array"),
        ("ok:nobody", 246, "no job of yours is named nobody"),
        ("ok:last[x]", 240, "the index must be a number"),
    ] {
        let error = dvm.rsctl(["submit", "--after", wrong, "true"]).fails(code);
        assert!(error.contains(says), "{wrong}: {error}");
    }
    let error = dvm.rsctl(["submit", "--after", &format!("ok:{failed}"), "true"]).fails(243);
    assert!(error.contains("the job could never start"), "{error}");
}

#[test]
fn the_elements_of_an_array_are_jobs() {
    let dvm = Dvm::start(1);
    let script =
        "test $RSD_ARRAY_INDEX != 5 || exit 4; echo {index} $RSD_ARRAY_INDEX of $RSD_ARRAY_COUNT in $RSD_ARRAY_JOB";
    let out = dvm.scratch().join("out-{index}");
    let array = dvm.rsctl(["submit", "-n", "1", "--name", "sweep", "--array", "1-7:2%2", "sh", "-c", script]).ok();
    let array = array.trim();
    dvm.ctl(&format!("wait {array}")).fails(4);
    assert_eq!(dvm.ctl(&format!("logs {array}[3]")).ok(), format!("3 3 of 4 in {array}\n"));
    assert_eq!(dvm.ctl("logs sweep[1,7]").ok(), format!("1 1 of 4 in {array}\n7 7 of 4 in {array}\n"));
    assert_eq!(dvm.ctl("logs sweep").ok().lines().count(), 3);
    let listed = dvm.ctl("ps -a").ok();
    assert!(listed.contains("3 done, 1 failed") && listed.lines().count() == 2, "{listed}");
    let expanded = dvm.ctl("ps -a --expand").ok();
    assert!(expanded.lines().count() == 6 && expanded.contains(&format!("{array}[5]")), "{expanded}");
    let report = dvm.ctl(&format!("report {array}")).ok();
    assert!(report.contains("4 elements: 1-7:2, at most 2 at the same time"), "{report}");
    assert!(report.contains("exited with code 4"), "{report}");
    let shown = dvm.json("job show sweep[5]");
    assert_eq!((&shown["state"], &shown["element"]["index"]), (&Value::from("failed"), &Value::from(5)));
    dvm.ctl("wait sweep[1,3]").ok();

    let files =
        dvm.rsctl(["submit", "-n", "1", "--array", "1-2", "--output", out.to_str().unwrap(), "echo", "{index}"]).ok();
    dvm.ctl(&format!("wait {}", files.trim())).ok();
    let written = std::fs::read_to_string(dvm.scratch().join("out-2/rank.0.stdout")).unwrap();
    assert_eq!(written, "2\n");
    for (options, says) in [
        (&["--array", "0-200000"][..], "an array has at most 100000"),
        (&["--array", "1-3%0"], "would let no element run"),
        (&["--array", "3-1"], "ends before it begins"),
        (&["--array", "1-2", "--output", "out"], "would write the same files; put {index} into the directory's name"),
    ] {
        let error = dvm.rsctl(["submit"]).args(options).args(["-n", "1", "true"]).fails(240);
        assert!(error.contains(says), "{options:?}: {error}");
    }
    let error = dvm.rsctl(["run", "--array", "1-2", "-n", "1", "true"]).fails(240);
    assert!(error.contains("use rsctl submit --array"), "{error}");
}

#[test]
fn elements_are_held_released_and_cancelled_also_over_a_restart_of_the_head() {
    let mut dvm = Dvm::start(1);
    let script = format!("while ! test -e {}; do sleep 0.02; done", dvm.scratch().join("gate").display());
    let array = dvm.rsctl(["submit", "-n", "1", "--array", "1-10%2", "sh", "-c", &script]).ok().trim().to_owned();
    dvm.ctl(&format!("hold {array}[9-10]")).ok();
    dvm.ctl(&format!("cancel {array}[5-8]")).ok();
    let why = dvm.ctl(&format!("why {array}[4]")).ok();
    assert!(why.contains("2 of its elements run, and no more may run at the same time (%2)"), "{why}");
    assert!(why.contains("1 element of its array starts before it"), "{why}");
    let why = dvm.ctl(&format!("why {array}[10]")).ok();
    assert!(why.contains("it is held") && why.contains(&format!("rsctl release '{array}[10]'")), "{why}");
    dvm.kill(0);
    dvm.restart(0);
    let row = dvm.ctl("ps").ok();
    assert!(row.contains("4 cancelled, 2 running, 2 queued, 2 held"), "{row}");
    dvm.file("gate", "");
    dvm.ctl(&format!("wait {array}[1-4]")).ok();
    dvm.ctl(&format!("release {array}[9-10]")).ok();
    dvm.ctl(&format!("wait {array}")).fails(130);
    let own = dvm.json(&format!("job show {array}"))["array"].clone();
    assert_eq!((&own["done"], &own["cancelled"]), (&Value::from(6), &Value::from(4)), "{own}");
    assert!(dvm.ctl(&format!("hold {array}")).fails(240).contains("it has ended"));
    assert!(dvm.ctl(&format!("job show {array}[11]")).fails(246).contains("has no element 11: its indexes are 1-10"));
}

#[test]
fn a_job_that_fails_is_started_again() {
    let dvm = Dvm::start(1);
    let count = dvm.scratch().join("count");
    let script = format!(
        "echo attempt $RSD_ATTEMPT of job $RSD_JOB; echo x >> {0}; test $(wc -l < {0}) -ge 3 || exit 75",
        count.display()
    );
    let run = dvm.rsctl(["run", "-n", "1", "--retry", "4", "--retry-on", "75", "sh", "-c", &script]).end();
    assert_eq!(run.out(), "attempt 1 of job 1\nattempt 2 of job 1\nattempt 3 of job 1\n", "{}", run.err());
    assert!(run.err().contains("attempt 1 of 5 has failed: on node0, rank 0 exited with code 75"), "{}", run.err());
    assert_eq!(dvm.ctl("logs 1").ok().lines().count(), 3);
    let report = dvm.ctl("report 1").ok();
    assert!(report.contains("3 of 5") && report.contains("exited with code 75"), "{report}");
    let listed = dvm.ctl("ps -a").ok();
    assert!(listed.contains("ATTEMPT") && listed.contains("3/5"), "{listed}");
    let shown = dvm.json("job show 1");
    assert_eq!((&shown["state"], shown["attempts"].as_array().map(Vec::len)), (&Value::from("done"), Some(2)));

    let other =
        dvm.rsctl(["run", "-n", "1", "--retry", "4", "--retry-on", "node-loss", "sh", "-c", "exit 75"]).fails(75);
    assert!(!other.contains("attempt 2"), "{other}");
    let error = dvm.rsctl(["submit", "--retry-on", "75", "true"]).fails(240);
    assert!(error.contains("--retry"), "{error}");
    let error = dvm.rsctl(["submit", "--retry", "1001", "true"]).fails(240);
    assert!(error.contains("1001"), "{error}");
}

#[test]
fn a_job_that_loses_its_node_is_started_again_elsewhere() {
    let dvm = Dvm::start(3);
    let script = "echo on $RSD_NODE_NAME; test $RSD_ATTEMPT -gt 1 || sleep 600";
    let job = dvm.submit(["-n", "1", "--host", "^node0", "--retry", "1", "sh", "-c", script]);
    eventually("the job runs", Duration::from_secs(20), || {
        dvm.ctl(&format!("logs {job}")).ok().contains("on node1").then_some(())
    });
    dvm.ctl("node remove node1 --stop --force").ok();
    dvm.ctl(&format!("wait {job}")).ok();
    assert_eq!(dvm.ctl(&format!("logs {job}")).ok(), "on node1\non node2\n");
    let shown = dvm.json(&format!("job show {job}"));
    assert_eq!(shown["attempts"][0]["node"], "node1");
}

#[test]
fn memory_and_resources_are_reserved() {
    let settings = std::env::temp_dir().join(format!("rsd-resources-{}.toml", std::process::id()));
    std::fs::write(&settings, "[jobs]\nresources = [\"licence:2\"]\n").expect("the temporary directory is writable");
    let options = Options { nodes: 1, slots: 4, args: ["--resource", "fpga:3"].map(str::to_owned).into() };
    let dvm = Dvm::start_in(options, &[("RSD_CONFIG", settings.to_str().expect("the path is UTF-8"))]);
    let one = gated(&dvm, &["-n", "2", "--resource", "licence:2,fpga:1"], "gate");
    let licence = dvm.submit(["-n", "1", "--resource", "licence", "true"]);
    let why = dvm.ctl(&format!("why {licence}")).ok();
    assert!(why.contains("licence:1 requested, 0 of 2 free in the DVM"), "{why}");
    assert!(why.contains(&format!("the end of job {one}")), "{why}");
    let plan = dvm.rsctl(["plan", "-n", "1", "--resource", "fpga:2", "true"]).end();
    assert!(format!("{}{}", plan.out(), plan.err()).contains("fpga:2 each"), "{} {}", plan.out(), plan.err());
    let shown = dvm.ctl(&format!("job show {one}")).ok();
    assert!(shown.contains("licence:2, fpga:1"), "{shown}");
    let nodes = dvm.json("nodes");
    assert_eq!(nodes["nodes"][0]["resources"]["fpga"], 3);
    assert_eq!(nodes["nodes"][0]["reserved"]["fpga"], 2);
    dvm.file("gate", "");
    dvm.ctl(&format!("wait {one} {licence}")).ok();
    for (options, code, says) in [
        (&["--resource", "licence:3"][..], 243, "licence:3 requested, the DVM has 2; request at most licence:2"),
        (&["--resource", "fpga:4"], 243, "1 rank requested with fpga:4 each, room for 0 on 1 node"),
        (&["--resource", "none"], 243, "no none"),
        (&["--mem-per-rank", "900TiB"], 243, "of memory each, room for 0 on 1 node"),
        (&["--mem-per-rank", "0"], 240, "expected a size"),
        (&["--resource", "1x:1"], 240, "invalid name of a resource"),
        (&["--resource", "fpga:0"], 240, "a number from 1"),
        (&["--resource", "fpga:1,fpga:1"], 240, "requested twice"),
    ] {
        let error = dvm.rsctl(["submit", "-n", "1"]).args(options).args(["true"]).fails(code);
        assert!(error.contains(says), "{options:?}: {error}");
    }
    let other = dvm.scratch().join("other").display().to_string();
    let error =
        dvm.call(rsd_tests::built::rsd()).args(["start", "--state-dir", &other, "--resource", "memory:4"]).fails(240);
    assert!(error.contains("nodes know their memory and GPUs by themselves"), "{error}");
    std::fs::remove_file(&settings).expect("steps have read it");
}

#[test]
fn the_last_job_is_the_array_and_not_one_of_its_elements() {
    let dvm = Dvm::start(1);
    let array = dvm.submit(["-n", "1", "--array", "1-4", "--name", "many", "sh", "-c", "echo {index}"]);
    dvm.ctl("wait last").ok();
    assert_eq!(dvm.json("job show last")["name"], "many");
    assert_eq!(dvm.json("job show last")["job"].to_string(), array);
    assert_eq!(crate::sorted(&dvm.ctl("logs last").ok()), ["1", "2", "3", "4"]);
    let next = dvm.submit(["-n", "1", "true"]);
    assert_eq!(dvm.json("job show last")["job"].to_string(), next);
}
