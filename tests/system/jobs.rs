//! Inspecting and controlling jobs, while they run and afterwards.

use rsd_tests::{Dvm, Options, Running};
use serde_json::json;

/// Submits a job that prints a line and runs until its gate is opened; returns its number.
fn gated(dvm: &Dvm, options: &[&str], gate: &str) -> String {
    let path = dvm.scratch().join(gate);
    let script = format!("echo up; while ! test -e {}; do sleep 0.02; done; echo through", path.display());
    dvm.rsctl(["submit"]).args(options).args(["sh", "-c", &script]).ok().trim().to_owned()
}

#[test]
fn submit_prints_the_job_number_and_returns() {
    let dvm = Dvm::start(1);
    let submitted = dvm.rsctl(["submit", "-n", "2", "echo", "hello"]).end();
    assert_eq!((submitted.out().as_str(), submitted.err().as_str()), ("1\n", ""));
    dvm.ctl("wait 1").ok();
    assert_eq!(dvm.ctl("logs 1").ok(), "hello\nhello\n");
    assert_eq!(dvm.ctl("attach 1").ok(), "hello\nhello\n", "an ended job can be followed from its beginning");
    assert_eq!(dvm.submit(["-n", "1", "true"]), "2");
    dvm.ctl("wait 2").ok();
}

#[test]
fn ps_lists_running_jobs_and_with_a_ended_ones() {
    let dvm = Dvm::start(2);
    dvm.ctl("run -n 1 true").ok();
    dvm.rsctl(["run", "-n", "1", "sh", "-c", "exit 9"]).fails(9);
    let job = gated(&dvm, &["-n", "5"], "gate");
    let running = dvm.ctl("ps").ok();
    assert_eq!(running.lines().count(), 2, "{running}");
    let row: Vec<&str> = running.lines().nth(1).unwrap_or_default().split_whitespace().collect();
    assert_eq!(row[..4], [job.as_str(), "running", "5", "node0,node1"], "{running}");

    let all = dvm.json("ps -a");
    let states: Vec<_> = all["jobs"].as_array().into_iter().flatten().map(|job| (&job["job"], &job["state"])).collect();
    let (one, two, three) = (json!(1), json!(2), json!(3));
    assert_eq!(states, [(&one, &json!("done")), (&two, &json!("failed")), (&three, &json!("running"))]);
    dvm.file("gate", "");
    dvm.ctl("wait last").ok();
    assert!(dvm.ctl("ps").end().err().contains("no running jobs"));
}

#[test]
fn a_job_is_shown_with_its_placement() {
    let dvm = Dvm::start(2);
    dvm.ctl("run -n 6 true").ok();
    let shown = dvm.ctl("job show last").ok();
    let rows: Vec<Vec<&str>> = shown.lines().map(|line| line.split_whitespace().collect()).collect();
    for row in [&["state", "done"][..], &["exit", "code", "0"], &["node0", "4", "0-3"], &["node1", "2", "4-5"]] {
        assert!(rows.iter().any(|shown| shown.starts_with(row)), "{row:?} is not in\n{shown}");
    }
    let job = dvm.json("job show 1");
    let nodes = job["placement"].as_array().unwrap();
    let shown: Vec<_> = nodes.iter().map(|node| json!([node["node"], node["name"], node["ranks"]])).collect();
    assert_eq!(shown, [json!([0, "node0", [[0, 3]]]), json!([1, "node1", [[4, 5]]])]);
    assert_eq!(nodes[1]["bindings"][1]["rank"], 5);
    assert_eq!(nodes[1]["bindings"][1]["reason"], "slot 2 of 4");
    assert_eq!(job["exit_code"], 0);
}

#[test]
fn wait_exits_with_the_codes_of_the_jobs() {
    let dvm = Dvm::start(1);
    let codes: Vec<String> = [0, 3, 4].map(|code| dvm.submit(["-n", "1", "sh", "-c", &format!("exit {code}")])).into();
    dvm.rsctl(["wait", &codes[0]]).ok();
    dvm.rsctl(["wait", &codes[1]]).fails(3);
    dvm.rsctl(["wait"]).args(&codes).fails(3);
    dvm.rsctl(["wait", "last"]).fails(4);
}

#[test]
fn a_queued_job_says_that_it_waits_for_slots() {
    let dvm = Dvm::start_with(Options { nodes: 2, slots: 1, args: Vec::new() });
    let first = gated(&dvm, &["-n", "2"], "gate");
    let second = dvm.rsctl(["run", "-n", "2", "echo", "second"]).start();
    second.until_stderr(|err| err.contains("job 2 is queued").then_some(()));
    let third = dvm.rsctl(["submit", "-n", "1", "true"]).end();
    assert!(third.err().contains("job 3 is queued"), "{third}");
    assert_eq!(dvm.json("job show 2")["state"], "queued");
    // A job that is cancelled in the queue never runs.
    dvm.ctl("cancel 3").ok();
    dvm.ctl("wait 3").fails(130);
    dvm.file("gate", "");
    assert_eq!(second.end().ok(), "second\nsecond\n");
    dvm.rsctl(["wait", &first]).ok();
    // A request that can never fit is refused at once.
    dvm.ctl("run -n 3 true").fails(243);
}

#[test]
fn several_jobs_run_side_by_side() {
    let dvm = Dvm::start(2);
    let gates = ["a", "b", "c", "d"];
    let jobs: Vec<String> = gates.iter().map(|gate| gated(&dvm, &["-n", "2"], gate)).collect();
    for (job, gate) in jobs.iter().zip(gates).rev() {
        assert_eq!(dvm.json(&format!("job show {job}"))["state"], "running");
        dvm.file(gate, "");
        dvm.rsctl(["wait", job]).ok();
    }
}

#[test]
fn signals_reach_all_ranks_or_one() {
    let dvm = Dvm::start(2);
    // A rank that gets USR1 prints it; TERM ends it.
    let script = "trap 'echo usr1' USR1; trap 'exit 0' TERM; echo up; while :; do sleep 0.02; done";
    let job = dvm.rsctl(["run", "-n", "4", "--map-by", "node", "-l", "sh", "-c", script]).start();
    let count = |job: &Running, word: &str, times: usize| {
        job.until_stdout(|out| (out.matches(word).count() == times).then_some(()));
    };
    count(&job, "up", 4);
    dvm.ctl("signal last.3 USR1").ok();
    job.until_stdout(|out| out.contains("[3] usr1").then_some(()));
    dvm.ctl("signal last SIGUSR1").ok();
    count(&job, "usr1", 5);
    dvm.ctl("signal 1 15").ok();
    job.end().ok();
}

#[test]
fn json_is_one_document_or_one_event_per_line() {
    let dvm = Dvm::start(2);
    for line in ["ps -a", "nodes"] {
        assert_eq!(dvm.json(line)["schema_version"], 1, "{line}");
    }
    let events = dvm.ctl("--json run -n 2 echo hello").ok();
    let events: Vec<serde_json::Value> =
        events.lines().map(|line| serde_json::from_str(line).expect("every line is JSON")).collect();
    let kinds: Vec<&str> = events.iter().filter_map(|event| event["event"].as_str()).collect();
    assert_eq!((kinds.first(), kinds.last()), (Some(&"submitted"), Some(&"ended")), "{kinds:?}");
    assert!(kinds.contains(&"placed") && kinds.contains(&"output"), "{kinds:?}");
    assert_eq!(events.last().map(|ended| &ended["exit_code"]), Some(&json!(0)));
    let submitted: serde_json::Value =
        serde_json::from_str(&dvm.ctl("--json submit -n 1 true").ok()).expect("submit prints JSON");
    assert_eq!(submitted["job"], 2);
    dvm.ctl("wait 2").ok();
}

#[test]
fn rsctl_writes_its_own_completions_and_man_pages() {
    let dvm = Dvm::start(1);
    for shell in ["bash", "zsh", "fish"] {
        let script = dvm.ctl(&format!("completion {shell}")).ok();
        assert!(script.contains("rsctl") && script.contains("COMPLETE"), "{shell}: {script}");
    }
    let dir = dvm.scratch().join("man");
    dvm.rsctl(["man"]).args([&dir]).ok();
    let page = std::fs::read_to_string(dir.join("man1/rsctl-run.1")).expect("a page for run exists");
    assert!(page.contains("oversubscribe"), "{page}");
}
