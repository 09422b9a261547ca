//! `rsctl events`, `rsctl metrics`, and logs as JSON: what those see who watch a DVM.

use std::collections::BTreeMap;
use std::io::{Read, Write};
use std::net::TcpStream;
use std::time::Duration;

use rsd_tests::{Dvm, Options, built, eventually};
use serde_json::Value;

/// Returns the events after a cursor, as JSON.
fn events(dvm: &Dvm, since: &str) -> Vec<Value> {
    let since = if since.is_empty() { String::new() } else { format!(" --since {since}") };
    let text = dvm.ctl(&format!("events --json{since}")).ok();
    text.lines().map(|line| serde_json::from_str(line).expect("each line is JSON")).collect()
}

fn kinds(events: &[Value]) -> Vec<&str> {
    events.iter().map(|event| event["event"].as_str().expect("each event has its kind")).collect()
}

#[test]
fn events_tell_what_becomes_of_jobs_nodes_groups_and_tokens() {
    let mut dvm = Dvm::start(2);
    let begun = events(&dvm, "");
    assert!(kinds(&begun).starts_with(&["head_started"]), "{begun:?}");
    assert!(kinds(&begun).contains(&"node_joined"), "{begun:?}");
    let cursor = begun[begun.len() - 1]["cursor"].as_str().unwrap().to_owned();

    // From another daemon, while it happens.
    let follow = dvm.ctl(&format!("--dvm node1 events --follow --since {cursor}")).start();
    dvm.ctl("run -n 3 true").ok();
    dvm.rsctl(["run", "-n", "2", "sh", "-c", "exit 7"]).fails(7);
    let job = dvm.submit(["-n", "1", "sleep", "1000"]);
    dvm.ctl(&format!("cancel {job} --grace 0")).ok();
    dvm.ctl(&format!("wait {job}")).fails(130);
    dvm.ctl("node drain node1").ok();
    dvm.ctl("node drain node1").ok();
    dvm.ctl("node resume node1").ok();
    dvm.ctl("node label node1 a=b").ok();
    dvm.ctl("group exec actors --size 1 -- true").ok();
    dvm.ctl("group close actors").ok();
    let seen = follow.until_stdout(|out| out.contains("group actors closed\n").then(|| out.to_owned()));
    follow.signal(nix::sys::signal::Signal::SIGTERM);
    follow.end();
    for line in [
        "job 1 submitted",
        "job 1 placed: 3 ranks on node0\n",
        "job 1 done with exit code 0",
        "exited with code 7 (on node0)",
        "job 2 failed with exit code 7: rank ",
        "job 3 is being ended: cancelled",
        "job 3 cancelled with exit code 130",
        "node node1 drained",
        "node node1 resumed",
        "node node1 labelled: a=b",
        "group actors formed: epoch 1, 1 member, job 4",
        "group actors: epoch 1 failed: rank 0: its process",
    ] {
        assert!(seen.contains(line), "no `{line}` in:\n{seen}");
    }
    assert_eq!(seen.matches("drained").count(), 1, "the second drain changed nothing");
    let after = events(&dvm, &cursor);
    let numbers: Vec<u64> =
        after.iter().map(|event| u64::from_str_radix(event["cursor"].as_str().unwrap(), 16).unwrap()).collect();
    assert!(numbers.is_sorted() && numbers.len() == seen.lines().count(), "{after:?}");
    let last = after[after.len() - 1]["cursor"].as_str().unwrap().to_owned();
    assert_eq!(events(&dvm, &last), Vec::<Value>::new());
    assert!(dvm.ctl("events --since ffffffffffffff00").fails(240).contains("has not happened yet"));
    assert!(dvm.ctl("events --since yesterday").fails(240).contains("cursor"));

    // The next head has all of them, and goes on with its own.
    dvm.terminate(0);
    dvm.restart(0);
    let back = eventually("node1 is back", Duration::from_secs(20), || {
        let seen = events(&dvm, &last);
        kinds(&seen).contains(&"node_back").then_some(seen)
    });
    assert_eq!(back[0]["event"], "head_started", "{back:?}");
    let number = |event: &Value| u64::from_str_radix(event["cursor"].as_str().unwrap(), 16).unwrap();
    assert!(number(&back[0]) > *numbers.last().unwrap());
    assert!(events(&dvm, "").starts_with(&[&begun[..], &after[..]].concat()), "{begun:?} {after:?}");
}

#[test]
fn events_are_followed_over_kills_of_the_head_and_none_is_lost_or_repeated() {
    let mut dvm = Dvm::start(2);
    let followers = ["node0", "node1"].map(|at| dvm.ctl(&format!("--dvm {at} events --follow --json")).start());
    let mut jobs = Vec::new();
    for _ in 0..6 {
        let fails = dvm.submit(["-n", "1", "--host", "node1", "sh", "-c", "sleep 0.2; exit 3"]);
        let of_it = format!("\"job\":{fails},");
        let is_placed = |line: &str| line.contains("job_placed") && line.contains(&of_it);
        followers[1].until_stdout(|out| out.lines().any(is_placed).then_some(()));
        dvm.kill(0);
        dvm.restart(0);
        dvm.ctl(&format!("wait {fails}")).fails(3);
        jobs.extend([(fails, true), (dvm.submit(["-n", "1", "true"]), false)]);
    }
    for (job, fails) in &jobs {
        let code = dvm.ctl(&format!("wait {job}")).end().status.code();
        assert_eq!(code, Some(if *fails { 3 } else { 0 }), "job {job}");
    }
    let all = events(&dvm, "");
    let last = all[all.len() - 1]["cursor"].clone();
    for follower in followers {
        let seen = follower.until_stdout(|out| out.contains(last.as_str()?).then(|| out.to_owned()));
        follower.signal(nix::sys::signal::Signal::SIGTERM);
        let said = follower.end();
        let seen: Vec<Value> = seen.lines().filter_map(|line| serde_json::from_str(line).ok()).collect();
        assert!(seen.starts_with(&all), "{said}");
    }
    for (job, fails) in jobs {
        let number: &Value = &job.parse::<u64>().expect("a job has a number").into();
        let of_it = |event: &&Value| event["job"] == *number && event["event"] != "job_queued";
        let kinds: Vec<&str> = all.iter().filter(of_it).filter_map(|event| event["event"].as_str()).collect();
        let expected: &[&str] = match fails {
            true => &["job_submitted", "job_placed", "job_rank_failed", "job_ended"],
            false => &["job_submitted", "job_placed", "job_ended"],
        };
        assert_eq!(kinds, expected, "job {job}");
    }
}

#[test]
fn a_node_that_goes_away_and_is_lost_has_events() {
    let mut dvm = Dvm::start(2);
    dvm.kill(1);
    let follow = dvm.ctl("events --follow").start();
    follow.until_stdout(|out| out.contains("node node1 away").then_some(()));
    dvm.restart(1);
    follow.until_stdout(|out| out.contains("node node1 back").then_some(()));
    dvm.ctl("node remove node1 --stop").ok();
    follow.until_stdout(|out| out.contains("node node1 left").then_some(()));
    follow.signal(nix::sys::signal::Signal::SIGTERM);
    follow.end();
}

/// A sample: its name with labels, and its value.
type Samples = BTreeMap<String, f64>;

/// Reads metrics as Prometheus does, and checks what its linter checks.
fn parsed(text: &str) -> Samples {
    assert!(text.ends_with('\n'), "the last line is complete");
    let mut kinds: BTreeMap<&str, &str> = BTreeMap::new();
    let mut helped: Vec<&str> = Vec::new();
    let mut samples = Samples::new();
    let is_name = |name: &str| {
        name.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'_' || byte == b':')
            && !name.starts_with(|c: char| c.is_ascii_digit())
            && !name.is_empty()
    };
    for line in text.lines() {
        if let Some(rest) = line.strip_prefix("# HELP ") {
            let (name, help) = rest.split_once(' ').expect(line);
            assert!(is_name(name) && !help.is_empty() && !helped.contains(&name), "{line}");
            helped.push(name);
            continue;
        }
        if let Some(rest) = line.strip_prefix("# TYPE ") {
            let (name, kind) = rest.split_once(' ').expect(line);
            assert_eq!(helped.last(), Some(&name), "help comes first: {line}");
            assert!(["counter", "gauge", "histogram"].contains(&kind) && kinds.insert(name, kind).is_none(), "{line}");
            assert_eq!(name.ends_with("_total"), kind == "counter", "only counters end in _total: {line}");
            for (unit, base) in
                [("_ms", "_seconds"), ("_milliseconds", "_seconds"), ("_kb", "_bytes"), ("_mib", "_bytes")]
            {
                assert!(!name.contains(unit), "{name}: use {base}");
            }
            continue;
        }
        let (key, value) = line.rsplit_once(' ').expect(line);
        let value: f64 = value.parse().expect(line);
        let (name, labels) = key.split_once('{').map_or((key, None), |(name, rest)| (name, Some(rest)));
        let labels = labels.map(|labels| labels.strip_suffix('}').expect(line)).unwrap_or_default();
        for label in labels.split("\",").filter(|label| !label.is_empty()) {
            let (label, word) = label.split_once("=\"").expect(line);
            assert!(is_name(label) && !word.contains('\n'), "{line}");
        }
        let of = ["_bucket", "_sum", "_count"]
            .iter()
            .find_map(|end| name.strip_suffix(end).filter(|base| kinds.get(base) == Some(&"histogram")));
        let kind = kinds.get(of.unwrap_or(name)).unwrap_or_else(|| panic!("no type for {line}"));
        assert_eq!(Some(&of.unwrap_or(name)), helped.last(), "the samples of a name stand together: {line}");
        assert_eq!(*kind == "histogram", of.is_some(), "{line}");
        assert!(*kind == "gauge" || value >= 0.0, "{line}");
        assert!(samples.insert(key.to_owned(), value).is_none(), "twice: {line}");
    }
    for (name, _) in kinds.iter().filter(|(_, kind)| **kind == "histogram") {
        let bucket = format!("{name}_bucket{{le=\"");
        let mut buckets: Vec<(f64, f64)> = samples
            .iter()
            .filter_map(|(key, count)| Some((key.strip_prefix(&bucket)?.strip_suffix("\"}")?.parse().ok()?, *count)))
            .collect();
        buckets.sort_by(|a, b| a.0.total_cmp(&b.0));
        assert!(buckets.is_sorted_by_key(|(_, count)| *count), "{name}: {buckets:?}");
        assert_eq!(
            buckets.last().map(|(bound, count)| (*bound, *count)),
            Some((f64::INFINITY, samples[&format!("{name}_count")]))
        );
    }
    samples
}

#[test]
fn metrics_are_as_prometheus_wants_them_and_count_what_happens() {
    let args = vec!["--metrics".to_owned(), "0".to_owned()];
    let dvm = Dvm::start_with(Options { nodes: 2, slots: 2, args });
    let ready = dvm.ready_text(0);
    let url = ready
        .lines()
        .find_map(|line| line.strip_prefix("rsd: metrics at: http://"))
        .expect("the ready lines")
        .to_owned();
    let address = url.strip_suffix("/metrics").unwrap().to_owned();
    dvm.ctl("run -n 4 echo 123456789").ok();
    dvm.ctl("run -n 1 false").fails(1);
    let waiting = dvm.submit(["-n", "4", "sleep", "1000"]);
    let queued = dvm.submit(["-n", "1", "true"]);

    let samples = parsed(&dvm.ctl("metrics").ok());
    for (name, value) in [
        ("rsd_jobs{state=\"running\"}", 1.0),
        ("rsd_jobs{state=\"queued\"}", 1.0),
        ("rsd_jobs_remembered", 2.0),
        ("rsd_jobs_submitted_total", 4.0),
        ("rsd_jobs_launched_total", 3.0),
        ("rsd_jobs_ended_total{state=\"done\"}", 1.0),
        ("rsd_jobs_ended_total{state=\"failed\"}", 1.0),
        ("rsd_ranks_failed_total", 1.0),
        ("rsd_ranks", 4.0),
        ("rsd_slots", 4.0),
        ("rsd_slots_in_use", 4.0),
        ("rsd_nodes{state=\"up\"}", 2.0),
        ("rsd_node_events_total{event=\"joined\"}", 1.0),
        ("rsd_output_bytes_total", 40.0),
        ("rsd_job_placed_seconds_count", 3.0),
        ("rsd_job_ended_seconds_count", 2.0),
        ("rsd_links{kind=\"child\"}", 1.0),
        ("rsd_links{kind=\"step\"}", 1.0),
    ] {
        assert_eq!(samples.get(name), Some(&value), "{name} in {samples:?}");
    }
    for name in [
        "process_resident_memory_bytes",
        "process_open_fds",
        "rsd_log_bytes{log=\"jobs\"}",
        "rsd_loop_lag_seconds_count",
    ] {
        assert!(samples[name] > 0.0, "{name} in {samples:?}");
    }

    // Another daemon tells of itself; and over HTTP.
    let other = parsed(&dvm.ctl("--dvm node1 metrics").ok());
    assert!(!other.contains_key("rsd_slots") && other["rsd_links{kind=\"parent\"}"] == 1.0, "{other:?}");
    let ask = |request: &str| {
        let mut stream = TcpStream::connect(&address).unwrap();
        stream.set_read_timeout(Some(Duration::from_secs(20))).unwrap();
        stream.write_all(request.as_bytes()).unwrap();
        let mut text = String::new();
        stream.read_to_string(&mut text).unwrap();
        text
    };
    let answer = ask("GET /metrics HTTP/1.1\r\nHost: x\r\n\r\n");
    let (head, body) = answer.split_once("\r\n\r\n").unwrap();
    assert!(head.starts_with("HTTP/1.1 200 OK\r\nContent-Type: text/plain; version=0.0.4"), "{head}");
    assert_eq!(parsed(body)["rsd_ranks"], 4.0);
    assert!(head.contains(&format!("Content-Length: {}\r\n", body.len())));
    assert!(ask("GET / HTTP/1.1\r\n\r\n").starts_with("HTTP/1.1 404 "));
    assert!(ask("POST /metrics HTTP/1.1\r\n\r\n").starts_with("HTTP/1.1 405 "));
    assert!(ask(&format!("GET /metrics HTTP/1.1\r\nX: {}", "a".repeat(9000))).starts_with("HTTP/1.1 431 "));
    // A client that sends nothing is disconnected.
    assert_eq!(ask(""), "");
    dvm.ctl(&format!("cancel {waiting} {queued} --grace 0")).ok();
    dvm.ctl(&format!("wait {waiting} {queued}")).fails(130);
}

#[test]
fn the_doctor_examines_all_nodes_and_ways() {
    let mut dvm = Dvm::start_with(Options { nodes: 3, slots: 1, args: Vec::new() });
    // It needs no free slot.
    let job = dvm.submit(["-n", "3", "sleep", "1000"]);
    let ended = dvm.ctl("doctor --json --all").end();
    // What this machine lacks is a warning; how fast it is now depends on what else it does.
    assert!(matches!(ended.status.code(), Some(0 | 1)), "{ended}");
    let report: Value = serde_json::from_str(&ended.out()).unwrap();
    let names = |list: &str, field: &str| -> Vec<String> {
        let values = report[list].as_array().unwrap().iter();
        values.map(|value| value[field].as_str().unwrap().to_owned()).collect()
    };
    assert_eq!(names("nodes", "name"), ["node0", "node1", "node2"]);
    assert!(report["nodes"].as_array().unwrap().iter().all(|node| node["looked"]["shm_bytes"].as_u64() > Some(0)));
    let ways: Vec<String> =
        names("ways", "from").into_iter().zip(names("ways", "to")).map(|(a, b)| a + ">" + &b).collect();
    let pairs = ["node0>node1", "node0>node2", "node1>node0", "node1>node2", "node2>node0", "node2>node1"];
    assert_eq!(ways, pairs);
    for way in report["ways"].as_array().unwrap() {
        assert!(way["rtt_us"].as_u64().is_some() && way["bytes_per_second"].as_u64() > Some(0), "{way}");
        assert!(way["ahead_ms"].as_i64().is_some_and(|ms| ms.abs() < 500), "{way}");
    }
    for finding in report["findings"].as_array().unwrap() {
        assert!(
            finding["level"] == "warning" && finding["mend"].as_str().is_some_and(|mend| !mend.is_empty()),
            "{finding}"
        );
    }
    dvm.ctl(&format!("cancel {job} --grace 0")).ok();
    dvm.ctl(&format!("wait {job}")).fails(130);

    dvm.ctl("node drain node1").ok();
    dvm.kill(2);
    eventually("node2 is away", Duration::from_secs(20), || {
        (dvm.json("nodes")["nodes"][2]["state"] == "away").then_some(())
    });
    let ended = dvm.ctl("doctor").end();
    assert_eq!(ended.status.code(), Some(2), "{ended}");
    let text = ended.out();
    assert!(text.contains("error: node2: its link is cut\n  mend: start its daemon there"), "{text}");
    assert!(
        text.contains("warning: node1: it is drained, and was not examined\n  mend: rsctl node resume node1\n"),
        "{text}"
    );
    dvm.restart(2);
}

/// What rsctl has drawn on a terminal, as text: without the sequences that move the cursor.
fn drawn(bytes: &[u8]) -> String {
    let text = String::from_utf8_lossy(bytes);
    let mut pieces = text.split('\u{1b}');
    let first = pieces.next().unwrap_or_default().to_owned();
    pieces.fold(first, |shown, piece| {
        let rest = match piece.strip_prefix('[') {
            Some(sequence) => sequence.split_once(|c: char| c.is_ascii_alphabetic()).map_or("", |(_, rest)| rest),
            None => piece.get(1..).unwrap_or_default(),
        };
        shown + rest
    })
}

#[test]
fn top_shows_jobs_on_a_terminal_over_a_kill_of_the_head_and_cancels_one() {
    let mut dvm = Dvm::start(2);
    let script = "echo says-hello; while ! test -e more; do sleep 0.02; done; echo says-more; exec sleep 1000";
    let job = dvm.submit(["-n", "3", "sh", "-c", script]);
    let table = dvm.ctl("top --plain --count 1").ok();
    assert!(table.starts_with("nodes 2 up; slots 3 of 8 in use; jobs 1 running; ranks 3 running"), "{table}");
    assert!(table.contains("\nnode1 ") && table.contains("\n  1  running      3 "), "{table}");
    let document = dvm.json("top --count 1");
    assert_eq!((&document["jobs"][0]["job"], document["nodes"].as_array().map(Vec::len)), (&1.into(), Some(2)));
    // Standard output is no terminal here.
    assert!(dvm.ctl("top --count 2 --interval 200ms").ok().matches("nodes 2 up").count() == 2);

    let size = nix::pty::Winsize { ws_row: 24, ws_col: 100, ws_xpixel: 0, ws_ypixel: 0 };
    let pty = nix::pty::openpty(Some(&size), None).unwrap();
    let stdio = || std::process::Stdio::from(pty.slave.try_clone().unwrap());
    let mut child = std::process::Command::new(built::rsctl())
        .args(["top", "--interval", "200ms"])
        .env("RSD_RUNTIME_DIR", dvm.runtime_base())
        .env("RSD_DVM", dvm.state_dir(0))
        .env("TERM", "xterm")
        .stdin(stdio())
        .stdout(stdio())
        .stderr(stdio())
        .spawn()
        .unwrap();
    drop(pty.slave);
    let (mut keys, mut screen) =
        (std::fs::File::from(pty.master.try_clone().unwrap()), std::fs::File::from(pty.master));
    let (sender, pieces) = std::sync::mpsc::channel();
    std::thread::spawn(move || {
        let mut piece = [0; 4096];
        while let Ok(read @ 1..) = screen.read(&mut piece) {
            if sender.send(piece[..read].to_vec()).is_err() {
                return;
            }
        }
    });
    let mut seen = Vec::new();
    let mut until = |what: &str| {
        eventually(&format!("`{what}` on the screen"), Duration::from_secs(20), || {
            seen.extend(pieces.try_iter().flatten());
            let has = drawn(&seen).contains(what);
            has.then(|| seen.clear())
        });
    };
    until("running");
    let tables = dvm.ctl("top --plain --interval 200ms").start();
    // The daemon of the second one lives on, without a head.
    let elsewhere = dvm.ctl("--dvm node1 top --plain --interval 200ms").start();
    for tables in [&tables, &elsewhere] {
        tables.until_stdout(|out| out.contains("nodes 2 up").then_some(()));
    }
    dvm.kill(0);
    until("trying again");
    // Shown when the daemon is back.
    keys.write_all(b"l").unwrap();
    for tables in [&tables, &elsewhere] {
        tables.until_stderr(|said| said.contains("trying again").then_some(()));
    }
    dvm.restart(0);
    for tables in [tables, elsewhere] {
        tables.until_stderr(|said| said.contains("the daemon is back").then_some(()));
        let shown = tables.stdout().len();
        tables.until_stdout(|out| out[shown..].contains("nodes 2 up").then_some(()));
        tables.signal(nix::sys::signal::Signal::SIGTERM);
        let said = tables.end().err();
        assert_eq!(said.matches("trying again").count(), 1, "{said}");
    }
    until("says-hello");
    // The open output goes on over another kill.
    dvm.kill(0);
    dvm.restart(0);
    dvm.file("more", "");
    until("says-more");
    keys.write_all(b"q").unwrap();
    until("quit");
    keys.write_all(b"c").unwrap();
    until("cancel job 1?");
    keys.write_all(b"y").unwrap();
    dvm.ctl(&format!("wait {job}")).fails(130);
    until("no running jobs");
    keys.write_all(b"q").unwrap();
    let status = eventually("top ends", Duration::from_secs(20), || child.try_wait().unwrap());
    assert_eq!(status.code(), Some(0));
}

#[test]
fn the_logs_of_a_job_are_found_by_its_number_in_daemon_and_step() {
    let args = ["--log", "debug", "--log-format", "json"].map(str::to_owned).to_vec();
    let dvm = Dvm::start_with(Options { nodes: 1, slots: 2, args });
    dvm.ctl("run -n 2 true").ok();
    dvm.ctl("run -n 1 true").ok();
    let targets = eventually("lines of the daemon and of the step", Duration::from_secs(20), || {
        let log = dvm.log(0);
        let lines = log.lines().filter_map(|line| serde_json::from_str::<Value>(line).ok());
        let of_job = lines.filter(|line| line["job"] == 2);
        let targets: Vec<String> = of_job.map(|line| line["target"].as_str().unwrap().to_owned()).collect();
        let has = |part: &str| targets.iter().any(|target| target.starts_with(part));
        (has("rsd::shell") && has("rsd::step_process")).then_some(targets)
    });
    assert!(!targets.is_empty());
    for line in dvm.log(0).lines().filter(|line| line.starts_with('{')) {
        let line: Value = serde_json::from_str(line).unwrap_or_else(|error| panic!("{error}: {line}"));
        assert!(line["level"].is_string() && line["timestamp"].is_string(), "{line}");
    }
}
