//! What jobs have used, what users call them, and how they find them afterwards.

use std::time::Duration;

use rsd_tests::{Dvm, Options, eventually};
use serde_json::{Value, json};

/// Fills as many MiB as its argument says, and computes until it has used half a second of cpu time. Then it prints what it has measured itself, as JSON.
const BURN: &str = "\
import json, os, resource, sys
fill = bytearray(int(sys.argv[1]) << 20)
for at in range(0, len(fill), 4096): fill[at] = 1
def used(): return resource.getrusage(resource.RUSAGE_SELF)
while used().ru_utime + used().ru_stime < 0.5:
    for number in range(20000): number * number
own = used()
print(json.dumps({'cpu': own.ru_utime + own.ru_stime, 'peak': own.ru_maxrss * 1024, 'minor': own.ru_minflt}))
";

/// The interpreter itself: `python3` may be a script that looks for it.
fn python() -> String {
    let found = std::process::Command::new("python3").args(["-c", "import sys; print(sys.executable)"]).output();
    String::from_utf8(found.expect("Python is installed").stdout).expect("a path in UTF-8").trim().to_owned()
}

fn measured(text: &str) -> Vec<Value> {
    text.lines().map(|line| serde_json::from_str(line).unwrap_or_else(|error| panic!("{line}: {error}"))).collect()
}

fn sum(values: &[Value], key: &str) -> f64 {
    values.iter().map(|value| value[key].as_f64().expect("a number")).sum()
}

#[test]
fn a_jobs_usage_is_that_which_its_ranks_measure_themselves() {
    let dvm = Dvm::start(2);
    let burn = dvm.file("burn.py", BURN);
    // Rank 1 has the most memory; ranks 0 to 3 are on node0.
    let script = format!("exec {} {burn} $((RSD_RANK == 1 ? 80 : 8))", python());
    let own = measured(&dvm.rsctl(["run", "-n", "5", "sh", "-c", &script]).ok());
    assert_eq!(own.len(), 5);
    let job = dvm.json("job show last");
    let usage = &job["usage"];
    let number = |key: &str| usage[key].as_f64().unwrap_or_else(|| panic!("{key} in {usage}"));
    let cpu = (number("user_us") + number("system_us")) / 1e6;
    // What a process uses while it ends is in the kernel's numbers only.
    assert!((sum(&own, "cpu")..sum(&own, "cpu") + 1.0).contains(&cpu), "{cpu} s, {own:?}");
    let largest = own.iter().filter_map(|value| value["peak"].as_f64()).fold(0.0, f64::max);
    assert!((largest..largest * 1.2).contains(&number("peak_bytes")), "{largest}, {usage}");
    assert!(number("peak_bytes") > f64::from(80 << 20) && usage["peak_rank"] == 1, "{usage}");
    assert!(number("minor_faults") >= sum(&own, "minor"), "{usage}, {own:?}");
    assert_eq!((&usage["ranks"], &usage["unknown_nodes"]), (&json!(5), &json!([])));
    let of = |at: usize, key: &str| job["placement"][at]["usage"][key].as_f64().expect("every node has reported");
    assert_eq!((of(0, "ranks"), of(1, "ranks"), of(0, "peak_rank"), of(1, "peak_rank")), (4.0, 1.0, 1.0, 4.0));
    for key in ["user_us", "system_us", "minor_faults", "voluntary_switches"] {
        assert!((of(0, key) + of(1, key) - number(key)).abs() < 0.5, "{key}: {job}");
    }
    let report = dvm.ctl("report last").ok();
    for part in [
        "5 ranks on 2 nodes: 4 on node0, 1 on node1",
        " at most in one process (rank 1 on node0)",
        "output     2",
        "NODE   RANKS  USER",
    ] {
        assert!(report.contains(part), "{part} is not in\n{report}");
    }
}

#[test]
fn processes_that_ranks_wait_for_or_leave_behind_count_too() {
    let dvm = Dvm::start(1);
    let burn = dvm.file("burn.py", BURN);
    let cpu_us = |script: &str| {
        dvm.rsctl(["run", "-n", "1", "sh", "-c", script]).ok();
        let usage = dvm.json("job show last")["usage"].clone();
        usage["user_us"].as_u64().expect("it is known") + usage["system_us"].as_u64().expect("it is known")
    };
    assert!(cpu_us(&format!("{} {burn} 1; true", python())) >= 500_000, "a child");
    let (gate, log) = (dvm.scratch().join("gate"), dvm.scratch().join("left"));
    let [gate, log] = [gate, log].map(|path| path.display().to_string());
    // The rank ends when the other process, which the step then ends, has computed.
    let left = format!(
        "setsid sh -c '{} {burn} 1 > {log}; touch {gate}; sleep 600' > /dev/null 2>&1 & \
         while ! test -e {gate}; do sleep 0.02; done",
        python()
    );
    assert!(cpu_us(&left) >= 500_000, "a process that has lost its parent");
}

#[test]
fn usage_survives_a_restart_of_a_nodes_daemon() {
    let mut dvm = Dvm::start_with(Options { nodes: 2, slots: 1, args: Vec::new() });
    let burn = dvm.file("burn.py", BURN);
    let ended = dvm.scratch().join("ended");
    let script = format!("{} {burn} 1; touch {}$RSD_RANK", python(), ended.display());
    let gate = dvm.scratch().join("gate");
    let script = format!("echo up; while ! test -e {}; do sleep 0.02; done; {script}", gate.display());
    let job = dvm.rsctl(["run", "-n", "2", "sh", "-c", &script]).start();
    job.until_stdout(|out| (out.matches("up").count() == 2).then_some(()));
    dvm.kill(1);
    dvm.file("gate", "");
    eventually("rank 1 has ended", Duration::from_secs(30), || dvm.scratch().join("ended1").exists().then_some(()));
    dvm.restart(1);
    job.end().ok();
    let shown = dvm.json("job show last");
    assert_eq!(shown["usage"]["unknown_nodes"], json!([]), "{shown}");
    for node in 0..2 {
        let used = &shown["placement"][node]["usage"];
        assert!(
            used["user_us"].as_u64().expect("it is known") + used["system_us"].as_u64().expect("so is this") >= 500_000,
            "{shown}"
        );
    }
}

#[test]
fn a_job_has_its_users_name_although_no_variable_says_it() {
    let dvm = Dvm::start(1);
    let job = dvm.rsctl(["submit", "-n", "1", "true"]).env_remove("USER").env_remove("LOGNAME").ok();
    let user = nix::unistd::User::from_uid(nix::unistd::geteuid()).unwrap().unwrap().name;
    let found = dvm.json(&format!("ps -a --user {user}"))["jobs"].clone();
    let jobs: Vec<String> = found.as_array().into_iter().flatten().map(|job| job["job"].to_string()).collect();
    assert_eq!(jobs, [job.trim()], "{found}");
}

#[test]
fn jobs_are_found_by_their_names_and_labels() {
    let dvm = Dvm::start(1);
    let named = |args: &[&str], program: &[&str]| {
        dvm.rsctl(["submit", "-n", "1"]).args(args).args(program).ok().trim().to_owned()
    };
    let first = named(&["--name", "train", "--job-label", "project=x"], &["sh", "-c", "echo I am $RSD_JOB_NAME"]);
    dvm.ctl("wait train").ok();
    assert_eq!(dvm.ctl("logs train").ok(), "I am train\n");
    let other =
        named(&["--name", "relax-2", "--job-label", "project=y", "--job-label", "step=1"], &["sh", "-c", "exit 3"]);
    dvm.ctl("wait relax-2").fails(3);
    let plain = named(&[], &["true"]);
    dvm.rsctl(["wait", &plain]).ok();

    let listed = |line: &str| -> Vec<String> {
        let jobs = dvm.json(line)["jobs"].clone();
        jobs.as_array().into_iter().flatten().map(|job| job["job"].to_string()).collect()
    };
    assert_eq!(listed("ps -a"), [first.as_str(), &other, &plain]);
    assert_eq!(listed("ps -a --name tr*"), [first.as_str()]);
    assert_eq!(listed("ps -a --name re?ax*"), [other.as_str()]);
    assert_eq!(listed("ps -a --label project"), [first.as_str(), &other]);
    assert_eq!(listed("ps -a --label project=y --label step=1"), [other.as_str()]);
    assert_eq!(listed("ps --state failed"), [other.as_str()], "a state of ended jobs implies -a");
    assert_eq!(listed("ps --limit 2"), [other.as_str(), &plain]);
    assert_eq!(listed("ps --since 1h"), [first.as_str(), &other, &plain]);
    assert_eq!(listed("ps --until 1h"), [] as [&str; 0]);
    assert_eq!(listed("ps"), [] as [&str; 0]);
    let table = dvm.ctl("ps -a").ok();
    assert!(table.lines().next().is_some_and(|head| head.contains(" NAME ")) && table.contains(" relax-2 "), "{table}");

    assert!(dvm.ctl("report train").ok().starts_with(&format!("job        {first} (train)\n")));
    // Of several jobs with the name, the one that has not ended is meant; otherwise nothing is guessed.
    let gate = dvm.scratch().join("gate");
    let wait = format!("while ! test -e {}; do sleep 0.02; done", gate.display());
    let second = named(&["--name", "train"], &["sh", "-c", &wait]);
    assert_eq!(dvm.json("job show train")["job"].to_string(), second);
    dvm.file("gate", "");
    dvm.rsctl(["wait", &second]).ok();
    let refusal = dvm.ctl("logs train").fails(240);
    assert!(refusal.contains(&format!("2 jobs are named train: {first} (done), {second} (done)")), "{refusal}");
    assert!(dvm.ctl("logs nobody").fails(246).contains("no job is named nobody"));
    let job = dvm.json(&format!("job show {first}"));
    assert_eq!((&job["name"], &job["labels"]), (&json!("train"), &json!({"project": "x"})));
    assert_eq!(job["submitter"]["dir"], json!(dvm.scratch()));
}

#[test]
fn wrong_names_labels_and_times_are_refused_with_what_is_accepted() {
    let dvm = Dvm::start(1);
    for (line, why) in [
        ("submit --name 7 true", "invalid job name `7`"),
        ("submit --name a.3 true", "it must begin with a letter"),
        ("submit --job-label x true", "write KEY=VALUE"),
        ("submit --job-label a=1 --job-label a=2 true", "two labels with the key a"),
        ("ps --state asleep", "the states are queued, running"),
        ("ps --since yesterday", "expected a duration before now"),
        ("ps --since 1h --until 2h", "--since is not before --until"),
        ("ps --label =x", "invalid label"),
        ("ps --limit 0", "0 is not in 1.."),
    ] {
        let refusal = dvm.ctl(line).fails(240);
        assert!(refusal.contains(why), "{line}: {refusal}");
    }
}

#[test]
fn a_held_job_starts_when_it_is_released_and_others_pass_it() {
    let dvm = Dvm::start(1);
    let held = dvm.rsctl(["submit", "--hold", "--name", "later", "-n", "1", "echo", "now"]).end();
    assert!(held.err().contains("is queued: it is held: rsctl release starts it"), "{}", held.err());
    dvm.ctl("run -n 4 true").ok();
    assert_eq!(dvm.json("job show later")["state"], "queued");
    dvm.ctl("release later").ok();
    dvm.ctl("wait later").ok();
    assert_eq!(dvm.ctl("logs later").ok(), "now\n");
    assert!(dvm.ctl("release later").fails(240).contains("has ended"));
}

#[test]
fn a_job_that_waits_too_long_for_its_placement_fails_and_says_why() {
    let dvm = Dvm::start(1);
    let gate = dvm.scratch().join("gate");
    let wait = format!("while ! test -e {}; do sleep 0.02; done", gate.display());
    dvm.submit(["-n", "4", "sh", "-c", &wait]);
    let refusal = dvm.ctl("run --queue-deadline 300ms -n 4 true").fails(243);
    assert!(refusal.contains("it was not placed within 300ms (--queue-deadline); it waited because: "), "{refusal}");
    let held = dvm.ctl("run --hold --queue-deadline 200ms -n 1 true").fails(243);
    assert!(held.contains("it waited because: it is held"), "{held}");
    dvm.file("gate", "");
    dvm.ctl("run --queue-deadline 30s -n 4 true").ok();
}

#[test]
fn ended_jobs_are_forgotten_beyond_the_settings() {
    let config = "[jobs]\nkeep_bytes = \"20KiB\"\n";
    let file = std::env::temp_dir().join(format!("rsd-usage-{}.toml", std::process::id()));
    std::fs::write(&file, config).expect("the directory for temporary files is writable");
    let args = vec!["--config".to_owned(), file.display().to_string()];
    let dvm = Dvm::start_with(Options { nodes: 1, slots: 1, args });
    for _ in 0..3 {
        dvm.rsctl(["run", "-n", "1", "seq", "2000"]).ok();
    }
    // Each has 8,893 bytes.
    let jobs = dvm.json("ps -a")["jobs"].clone();
    let listed: Vec<String> = jobs.as_array().into_iter().flatten().map(|job| job["job"].to_string()).collect();
    assert_eq!(listed, ["2", "3"]);
    assert_eq!(jobs[0]["output_bytes"], 8893);
    assert!(dvm.ctl("logs 1").fails(246).contains("no job 1"));
    // Every step reads it.
    drop(dvm);
    std::fs::remove_file(&file).expect("it was written above");
}
