//! Common mistakes of new users, and unusual environments.

use std::fs;
use std::time::{Duration, Instant};

use nix::sys::signal::Signal;
use nix::unistd::Uid;
use rsd_tests::{Dvm, Mpi, Options, built, client, eventually, python, write_program};
use serde_json::{Value, json};

fn no_daemon() -> Dvm {
    Dvm::start_with(Options { nodes: 0, slots: 1, args: Vec::new() })
}

#[test]
fn ps_and_job_show_accept_any_command_line() {
    let dvm = Dvm::start(1);
    let long = "x".repeat(70_000);
    let job = dvm.submit(["-n", "1", "true", "\u{1b}[2J\u{9b}31m", &long]);
    // The head keeps 16 KiB of a command line.
    let kept = |text: &str| text.contains(&long[..16_000]) && text.contains("x…") && !text.contains(&long[..17_000]);
    dvm.rsctl(["wait", &job]).ok();
    let fits = |text: &str| assert!(!text.contains(|c: char| c.is_control() && c != '\n'), "{text:?}");
    let listed = dvm.ctl("ps -a").ok();
    assert!(kept(&listed) && listed.contains("^[[2J"), "{listed}");
    fits(&listed);
    let shown = dvm.rsctl(["job", "show", &job]).ok();
    assert!(kept(&shown) && shown.contains("^[[2J"), "{shown}");
    fits(&shown);
    // On a terminal of 80 columns, every row is one line.
    let line = format!("stty cols 80 rows 24; {} ps -a", built::rsctl().display());
    let seen = dvm.call("script").args(["-qec", &line, "/dev/null"]).ok();
    let rows: Vec<&str> = seen.lines().map(|row| row.trim_end_matches('\r')).collect();
    assert_eq!(rows.len(), 2, "{seen}");
    assert!(rows.iter().all(|row| row.chars().count() <= 80) && rows[1].ends_with('…'), "{seen}");
}

#[test]
fn control_characters_of_a_command_line_do_not_reach_the_terminal() {
    let dvm = Dvm::start(1);
    let said = dvm.rsctl(["run", "-n", "1", "./no\u{1b}[31mprogram"]).fails(247);
    assert!(said.contains("^[[31mprogram") && !said.contains('\u{1b}'), "{said:?}");
}

#[test]
fn control_characters_of_arguments_in_errors_do_not_reach_the_terminal() {
    let dvm = no_daemon();
    for (program, line) in [
        (built::rsctl(), vec!["run", "--\u{1b}[2Jx", "true"]),
        (built::rsctl(), vec!["run", "-n", "\u{1b}[2J", "true"]),
        (built::rsctl(), vec!["run", "true", ":", "--\u{1b}[2J", "true"]),
        (built::rsctl(), vec!["\u{1b}[2J"]),
        (built::rsctl(), vec!["ps", "--dvm", "\u{1b}[2J"]),
        (built::rsd(), vec!["\u{1b}[2J"]),
        (built::rsd(), vec!["start", "--slots", "\u{1b}[2J"]),
        (built::rsd(), vec!["start", "--name", "\u{1b}[2J/"]),
        (built::rsd(), vec!["start", "--join", "\u{1b}[2J"]),
        (built::rsd(), vec!["stop", "--dvm", "\u{1b}[2J"]),
        (built::rsd(), vec!["config", "show", "--config", "\u{1b}[2J"]),
    ] {
        let ended = dvm.call(program).args(&line).end();
        let said = ended.err();
        assert!(!ended.status.success() && said.contains("^[[2J"), "{line:?}: {said:?}");
        assert!(!said.contains('\u{1b}'), "{line:?}: {said:?}");
        // On a terminal, where errors have colours.
        let words = line.iter().map(|word| format!("'{word}'")).collect::<Vec<_>>().join(" ");
        let script = format!("{} {words}", program.display());
        let seen = dvm.call("script").args(["-qec", &script, "/dev/null"]).end().out();
        assert!(seen.contains("^[[2J") && !seen.contains("\u{1b}[2J"), "{line:?}: {seen:?}");
    }
}

#[test]
fn a_daemon_with_a_state_directory_elsewhere_is_stopped_by_its_name() {
    let dvm = no_daemon();
    let elsewhere = dvm.scratch().join("elsewhere").display().to_string();
    for _ in 0..5 {
        dvm.call(built::rsd()).args(["start", "--name", "far", "--state-dir", &elsewhere]).ok();
        let said = dvm.call(built::rsd()).args(["stop", "--dvm", "far"]).ok();
        assert!(said.starts_with("rsd: stopped: "), "{said}");
    }
}

#[test]
fn a_script_with_windows_line_ends_is_reported() {
    let dvm = Dvm::start(1);
    for (line, interpreter) in
        [("/bin/sh", "/bin/sh"), ("/usr/bin/no-such", "/usr/bin/no-such"), ("/usr/bin/env python3", "python3")]
    {
        let script = dvm.scratch().join("job.sh");
        write_program(&script, format!("#!{line}\r\necho hello\r\n"));
        let said = dvm.rsctl(["run", "-n", "1", &script.display().to_string()]).fails(247);
        assert!(said.contains(r"its first line ends in \r\n"), "{said}");
        assert!(said.contains(&format!(r"`{interpreter}\r`")) && said.contains(r"sed -i 's/\r$//'"), "{said}");
    }
}

#[test]
fn standard_input_for_a_rank_that_does_not_exist_is_refused() {
    let dvm = Dvm::start(1);
    let said = dvm.ctl("run -n 2 --stdin 7 cat").fails(240);
    assert!(said.contains("--stdin 7: the job has 2 ranks, 0 to 1"), "{said}");
    let said = dvm.ctl("run --stdin 7 cat").fails(240);
    assert!(said.contains("--stdin 7: the job has 4 ranks, 0 to 3"), "{said}");
    assert_eq!(dvm.ctl("run -n 2 --stdin 1 cat").stdin("in\n").ok(), "in\n");
}

#[test]
fn a_node_does_not_replace_output_files_that_exist_when_the_job_starts() {
    let dvm = Dvm::start_with(Options { nodes: 1, slots: 1, args: Vec::new() });
    let first = dvm.submit(["-n", "1", "sh", "-c", "while ! test -e gate; do sleep 0.01; done"]);
    // When these are submitted, the directory is empty, so rsctl finds nothing to refuse.
    let [second, third, fourth] = [&[][..], &[], &["--overwrite"]].map(|options| {
        let line = ["-n", "1", "--output", "out"].iter().chain(options);
        dvm.submit(line.chain(&["sh", "-c", "echo job $RSD_JOB"]))
    });
    let kept = || fs::read_to_string(dvm.scratch().join("out/rank.0.stdout")).unwrap_or_default();
    dvm.file("gate", "");
    dvm.rsctl(["wait", &first, &second]).ok();
    let said = dvm.rsctl(["wait", &third]).fails(247);
    assert!(said.contains("rank 0 on node0: output file ") && said.contains("out/rank.0.stdout"), "{said}");
    assert!(said.contains("exists already (replace it: --overwrite)"), "{said}");
    dvm.rsctl(["wait", &fourth]).ok();
    assert_eq!(kept(), format!("job {fourth}\n"));
}

#[test]
fn output_files_of_an_earlier_job_are_replaced_only_when_asked() {
    let dvm = Dvm::start(1);
    let kept = |dvm: &Dvm| fs::read_to_string(dvm.scratch().join("out/rank.0.stdout")).unwrap_or_default();
    dvm.ctl("run -n 1 --output out ./typo").fails(247);
    dvm.ctl("run -n 1 --output out echo one").ok();
    let said = dvm.ctl("run -n 1 --output out echo two").fails(240);
    assert!(said.contains("rank.0.std") && said.contains("--overwrite"), "{said}");
    assert_eq!(kept(&dvm), "one\n");
    dvm.ctl("run -n 1 --output out --overwrite echo two").ok();
    assert_eq!(kept(&dvm), "two\n");
}

#[test]
fn rsd_and_rsctl_use_the_same_exit_codes() {
    let dvm = no_daemon();
    let rsd = |words: &[&str]| dvm.call(built::rsd()).args(words);
    for words in [
        &["start", "--no-such-option"][..],
        &["start", "--name", "a/b"],
        &["start", "--listen", "here"],
        &["start", "--token", "rsd1-x"],
        &["start", "--join", "127.0.0.1:1", "--token", "rsd1-x"],
        &["start", "--foreground", "--log", "loud,,=x="],
    ] {
        rsd(words).fails(240);
    }
    let settings = dvm.file("rsd.toml", "[jobs]\nkept = 7\n");
    rsd(&["start"]).env("RSD_CONFIG", &settings).fails(240);
    rsd(&["status"]).fails(241);
    rsd(&["start", "--state-dir", "/proc/no/such/place"]).fails(248);
    rsd(&["--help"]).ok();
    rsd(&["start", "--name", "one"]).ok();
    let said = rsd(&["start", "--name", "one"]).fails(249);
    assert!(said.contains("already runs in "), "{said}");
    rsd(&["stop"]).ok();
    // A full disk is not an internal error.
    for (program, command) in [(built::rsctl(), "completion bash"), (built::rsd(), "config show")] {
        let line = format!("{} {command} > /dev/full", program.display());
        let said = dvm.call("sh").args(["-c", &line]).fails(248);
        assert!(said.contains("cannot write to standard output: No space left"), "{said}");
        // Nor is a reader that has seen enough.
        let line = format!("{} {command}; echo $? >&2", program.display());
        let mut reader =
            std::process::Command::new("true").stdin(std::process::Stdio::piped()).spawn().expect("it starts");
        let closed = reader.stdin.take().expect("a pipe");
        reader.wait().expect("it ends");
        let said = std::process::Command::new("sh").args(["-c", &line]).stdout(closed).output().expect("it runs");
        assert_eq!(String::from_utf8_lossy(&said.stderr), "141\n");
    }
    let said = dvm.rsctl(["man", "/proc/no/such/place"]).fails(248);
    assert!(said.contains("/proc/no/such/place"), "{said}");
}

#[test]
fn with_json_errors_are_json() {
    let dvm = no_daemon();
    let error =
        |text: String| -> Value { serde_json::from_str(&text).unwrap_or_else(|error| panic!("{error}: {text}")) };
    let none = error(dvm.ctl("ps --json").fails(241));
    assert_eq!((&none["schema_version"], &none["error"]["code"]), (&json!(1), &json!("no-daemon")));
    assert_eq!(
        (&none["error"]["exit_code"], &none["error"]["hint"]),
        (&json!(241), &json!("start one with: rsd start"))
    );
    let usage = error(dvm.ctl("run --json --no-such-option true").fails(240));
    assert_eq!(usage["error"]["code"], "usage");
    assert!(usage["error"]["message"].as_str().is_some_and(|text| text.contains("--no-such-option")), "{usage}");
    let usage = error(dvm.ctl("run --json --map-by cores true").fails(240));
    assert_eq!(usage["error"]["code"], "usage");
    let none = error(dvm.call(built::rsd()).args(["status", "--json"]).fails(241));
    assert_eq!(none["error"]["code"], "no-daemon");
    let dvm = Dvm::start(1);
    let large = error(dvm.ctl("run --json -n 99 true").fails(243));
    assert_eq!(large["error"]["code"], "not-placed");
    assert_eq!(error(dvm.ctl("job show 99 --json").fails(246))["error"]["code"], "not-found");
}

#[test]
fn an_invalid_runtime_directory_is_reported() {
    let dvm = no_daemon();
    let rsd = |words: &[&str]| dvm.call(built::rsd()).args(words);
    let said = rsd(&["start"]).env("RSD_RUNTIME_DIR", "run").fails(240);
    assert!(said.contains("RSD_RUNTIME_DIR=run: not an absolute path"), "{said}");
    let said = dvm.ctl("ps").env("RSD_RUNTIME_DIR", "run").fails(240);
    assert!(said.contains("RSD_RUNTIME_DIR=run: not an absolute path"), "{said}");
    let said = dvm.ctl("ps").fails(241);
    assert!(
        said.contains(&format!(
            "(looked in {})",
            dvm.scratch().parent().expect("the directory has a parent").display()
        )),
        "{said}"
    );
    let join =
        format!("import sys; sys.path.insert(0, {:?}); import rsd_join; rsd_join.join('g', 1)", client("python"));
    let said = dvm.call("python3").args(["-c", &join]).env("RSD_RUNTIME_DIR", "run").end();
    assert!(said.err().contains("RSD_RUNTIME_DIR=run: not an absolute path"), "{said}");
    let said = rsd(&["start"]).env("RSD_STATE_DIR", "state").fails(240);
    assert!(said.contains("RSD_STATE_DIR=state: not an absolute path"), "{said}");
}

#[test]
fn an_address_that_cannot_be_joined_is_refused_at_once() {
    let dvm = no_daemon();
    for (address, told) in [
        ("node0", "--join node0: no port: write HOST:PORT"),
        ("127.0.0.1:port", "no port"),
        ("127.0.0.1:0", "no port"),
        // A DNS label has at most 63 bytes, so no resolver is asked for this name.
        (&format!("{}.example:7817", "n".repeat(64)), "--join nnn"),
    ] {
        let began = Instant::now();
        let said = dvm.call(built::rsd()).args(["start", "--name", "late", "--join", address]).fails(240);
        assert!(said.contains(told), "{said}");
        assert!(began.elapsed() < Duration::from_secs(8), "it was not tried: {:?}", began.elapsed());
    }
}

#[test]
fn a_program_that_cannot_run_does_not_join_a_group() {
    let dvm = Dvm::start(1);
    let exec = |program: &str| dvm.rsctl(["group", "exec", "actors", "--size", "2", "--", program]).fails(247);
    assert!(exec("./nosuch").contains("cannot execute ./nosuch: No such file"), "at once");
    assert!(exec("nosuch").contains("not found in PATH"), "at once");
    assert_eq!(dvm.json("group ls")["groups"], json!([]), "no group was joined");
}

#[test]
fn a_member_that_waits_on_a_terminal_reports_which_members_are_missing() {
    let dvm = Dvm::start(1);
    let exec = format!("{} group exec actors --size 3 --timeout 4s -- true", built::rsctl().display());
    let first = dvm.rsctl(["group", "exec", "actors", "--size", "3", "--timeout", "20s", "--", "true"]).start();
    eventually("the member waits", Duration::from_secs(20), || {
        let groups = dvm.json("group ls");
        (groups["groups"][0]["waiting"].as_array().map(Vec::len) == Some(1)).then_some(())
    });
    let seen = dvm.call("script").args(["-qc", &exec, "/dev/null"]).end().out();
    assert!(seen.contains("rsctl: waiting for 1 of 3 members of actors: node0 has 2"), "{seen}");
    first.signal(Signal::SIGKILL);
    let told = first.end().err();
    assert!(!told.contains("waiting for"), "its stderr is not a terminal: {told}");
}

#[test]
fn a_join_after_mpi_init_is_refused() {
    let dvm = Dvm::start(1);
    let join = |program: &[String]| {
        dvm.call(&program[0]).args(&program[1..]).env("PYTHONPATH", client("python")).env("RSD_DVM", dvm.state_dir(0))
    };
    let include = format!("-I{}", client("include").display());
    let c = vec![Mpi::Ours.program_with("joins_late.c", &[&include])];
    for program in [c, python("joins_late.py").to_vec()] {
        let said = join(&program).ok();
        assert!(said.contains("refused 240: MPI is initialised already"), "{said}");
    }
}

#[test]
fn a_limit_above_the_hard_limit_of_the_node_is_reported_and_lowered() {
    let dvm = no_daemon();
    // Only root, unless it has lost this capability, may raise a hard limit.
    let lose = if Uid::effective().is_root() { "setpriv --bounding-set=-sys_resource" } else { "" };
    let start = format!("ulimit -n 256; exec {lose} {} start --slots 2", built::rsd().display());
    dvm.call("sh").args(["-c", &start]).ok();
    let run = |limit: u32, ranks: u32| {
        let line = format!("ulimit -Sn {limit}; exec {} run -n {ranks} sh -c 'ulimit -n'", built::rsctl().display());
        dvm.call("sh").args(["-c", &line]).end()
    };
    let (above, below) = (run(300, 2), run(200, 1));
    dvm.call(built::rsd()).args(["stop"]).ok();
    let notice = "limit nofile: 300 in the submitting shell, 256 here (this node's hard limit)";
    assert_eq!(above.err().matches(notice).count(), 1, "{above}");
    assert_eq!(above.ok(), "256\n256\n");
    assert_eq!((below.out().as_str(), below.err().as_str()), ("200\n", ""));
}

#[test]
fn ranks_inherit_umask_limits_and_nice_value_of_the_submitting_shell() {
    let dvm = Dvm::start(2);
    let show = "umask; ulimit -Sn; ulimit -Hn; ulimit -f; ulimit -c; ulimit -v; nice";
    let shell = "umask 0027; ulimit -n 60; ulimit -f 700; ulimit -c 0; ulimit -v 9000000";
    let rsctl = built::rsctl().display();
    let line = format!("{shell}; exec nice -n 3 {rsctl} run -n 4 --map-by node sh -c '{show}'");
    let seen = dvm.call("sh").args(["-c", &line]).ok();
    for expected in ["0027", "60", "700", "0", "9000000", "3"] {
        assert_eq!(seen.lines().filter(|line| *line == expected).count() % 4, 0, "{expected} of each rank\n{seen}");
        assert!(seen.lines().any(|line| line == expected), "{expected}\n{seen}");
    }
    // A step keeps its own limits, so a rank that needs a higher hard limit fails, and the failure is reported.
    let line = format!("ulimit -f 1; exec {rsctl} run -n 1 sh -c 'head -c 100000 /dev/zero > big'");
    let end = dvm.call("sh").dir(dvm.scratch()).args(["-c", &line]).end();
    assert_ne!(end.status.code(), Some(0), "{end}");
    // Arguments, exit codes and signals pass through.
    let line = format!("ulimit -t 900; exec {rsctl} run -n 1 sh -c 'echo \"$1\"; exit 5' x '-a b'");
    let end = dvm.call("sh").args(["-c", &line]).end();
    assert_eq!((end.out().as_str(), end.status.code()), ("-a b\n", Some(5)));
}

#[test]
fn a_low_soft_limit_on_open_files_is_raised_for_many_ranks_and_a_low_hard_limit_is_named() {
    let dvm = no_daemon();
    let (rsd, rsctl) = (built::rsd().display(), built::rsctl().display());
    let start = |limits: &str| {
        let line = format!("{limits}; exec {rsd} start --name low --slots 200");
        dvm.call("sh").args(["-c", &line]).ok();
    };
    start("ulimit -Hn 4096; ulimit -Sn 128");
    let line = format!("ulimit -Sn 200; exec {rsctl} run -n 120 sh -c 'ulimit -Sn'");
    let seen = dvm.call("sh").args(["-c", &line]).ok();
    assert_eq!(seen, "200\n".repeat(120));
    dvm.call(built::rsd()).args(["stop"]).ok();

    start("ulimit -n 128");
    let line = format!("ulimit -Sn 100; exec {rsctl} run -n 120 true");
    let said = dvm.call("sh").args(["-c", &line]).fails(247);
    assert!(
        said.contains("120 ranks need 544 open files in rsd's step process, and the limit here is 128: raise"),
        "{said}"
    );
    dvm.call(built::rsd()).args(["stop"]).ok();
}
