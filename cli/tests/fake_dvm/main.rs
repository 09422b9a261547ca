//! Runs the built rsctl against a fake daemon in the test, and checks what it sends, what it prints and how it exits.

#![expect(clippy::unwrap_used, reason = "a test's helpers fail with the test")]

mod played;

use std::fs::{self, File};
use std::io::{Read, Write};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use rsd_proto::transport::{exit, refusal};
use rsd_proto::v1::change_job_request::Change;
use rsd_proto::v1::dependency::Kind;
use rsd_proto::v1::job_event::{Body, Killing, Placed, Queued};
use rsd_proto::v1::plan_reply::Outcome;
use rsd_proto::v1::{
    ArrayInfo, AttachRequest, Block, ChangeJobRequest, JobInfo, JobState, LogsRequest, Plan, PlanNode, PlanRefusal,
    PlanReply, Record, Stream, TaskMap,
};
use tonic::Code;

use played::{Act, Asked, Said, Stage, at, ended, failed, output, record, say, submitted, the_end};

/// How long a test waits for an expected event.
const PATIENCE: Duration = Duration::from_secs(30);

#[test]
fn groups_are_shown_with_their_waiting_members() {
    let stage = Stage::new([]);
    let listed = stage.output(&["group", "ls"]);
    let table =
        "GROUP   STATE    SIZE  WAITING  NEXT EPOCH  EPOCHS\nactors  filling     3        2           2  1 (job 7)\n";
    assert_eq!((listed.code, listed.text()), (Some(0), table));
    let shown = stage.output(&["group", "show", "actors"]);
    let uid = nix::unistd::geteuid();
    let expected = format!(
        "\
group    actors
state    filling
size     3
owner    uid {uid}, mode 600
created  by its first member
timeout  1m00s
next     epoch 2: 2 waiting, 1 missing
epochs   1 (job 7)
  n0 pid 11 (uid {uid}) has waited 8.0s
  n0 pid 12 (uid {uid}) has waited 8.0s, requests rank 0
"
    );
    assert_eq!((shown.code, shown.text()), (Some(0), expected.as_str()));
    let json = stage.output(&["group", "close", "actors", "--json"]);
    let json: serde_json::Value = serde_json::from_str(json.text()).unwrap();
    assert_eq!((&json["state"], &json["waiting"][1]["pid"]), (&"closed".into(), &12.into()));
    assert_eq!(stage.output(&["group", "create", "actors"]).code, Some(240));
    assert_eq!(stage.output(&["group", "kick", "actors", "n0:"]).code, Some(240));
}

#[test]
fn output_is_printed_unchanged_and_the_exit_code_is_the_jobs() {
    let bytes: Vec<u8> = (0..=255).cycle().take(200_000).collect();
    let stage = Stage::new([
        submitted(),
        say(Body::Placed(Placed::default())),
        output(vec![record(0, Stream::Stdout, &bytes), record(1, Stream::Stderr, b"careful\n")]),
        output(vec![record(0, Stream::Stdout, &bytes)]),
        the_end(ended(JobState::Done, 0)),
    ]);
    let said = stage.output(&["run", "a"]);
    assert_eq!((said.code, &*said.err), (Some(0), "careful\n"));
    assert!(said.out == [bytes.clone(), bytes].concat());
    let spec = stage.submitted();
    assert!(spec.attached);
    assert_eq!(spec.apps[0].argv, ["a"]);
}

#[test]
fn a_failure_is_reported_once_with_stderr_that_was_not_printed_before() {
    let stage = Stage::new([submitted(), the_end(failed())]);
    let said = stage.output(&["run", "a"]);
    let text = "rsctl: job 7 failed: rank 3 on node 0 exited with code 3; its last lines on stderr:\n  | oops\n";
    assert_eq!((said.code, &*said.err), (Some(3), text));

    let stage = Stage::new([submitted(), output(vec![record(3, Stream::Stderr, b"oops\n")]), the_end(failed())]);
    let said = stage.output(&["run", "-l", "a"]);
    let text = "[3] oops\nrsctl: job 7 failed: rank 3 on node 0 exited with code 3\n";
    assert_eq!((said.code, &*said.err), (Some(3), text));
}

#[test]
fn all_input_arrives_and_ends() {
    for size in [0, 1, 65_535, 65_536, 65_537, 3_000_000] {
        let stage = Stage::new([submitted(), Act::AwaitInput, the_end(ended(JobState::Done, 0))]);
        let data: Vec<u8> = (0..=255).cycle().take(size).collect();
        let mut child = stage.rsctl(&["run", "a"]).stdin(Stdio::piped()).spawn().unwrap();
        child.stdin.take().unwrap().write_all(&data).unwrap();
        assert_eq!(child.wait().unwrap().code(), Some(0));
        stage.submitted();
        assert!(stage.asked() == Asked::Input(7, data), "{size} bytes");
    }
}

#[test]
fn input_that_never_ends_does_not_delay_the_exit() {
    let stage = Stage::new([submitted(), the_end(ended(JobState::Done, 0))]);
    let mut child = stage.rsctl(&["run", "a"]).stdin(Stdio::piped()).spawn().unwrap();
    let held = child.stdin.take();
    assert_eq!(child.wait().unwrap().code(), Some(0));
    drop(held);
}

#[test]
fn a_refusal_keeps_its_text_and_its_code() {
    for (code, text) in
        [(exit::NOT_PLACED, "8 ranks requested, 4 slots free on 2 nodes"), (exit::VERSION, "the caller is version 9")]
    {
        for command in ["run", "submit"] {
            let stage = Stage::new([Act::Refuse(refusal(Code::FailedPrecondition, code, text))]);
            let said = stage.output(&[command, "-n", "8", "a"]);
            assert_eq!(said, Said { code: Some(code.into()), out: Vec::new(), err: format!("rsctl: {text}\n") });
        }
    }
}

#[test]
fn submit_prints_only_the_number() {
    let stage = Stage::new([submitted(), say(Body::Placed(Placed::default()))]);
    assert_eq!(stage.output(&["submit", "a"]), Said { code: Some(0), out: b"7\n".to_vec(), err: String::new() });
    assert!(!stage.submitted().attached);

    let queued = || Stage::new([submitted(), say(Body::Queued(Queued { reason: "2 slots are busy".into() }))]);
    let said = queued().output(&["submit", "a"]);
    assert_eq!((said.text(), &*said.err), ("7\n", "rsctl: job 7 is queued: 2 slots are busy\n"));
    let said = queued().output(&["--json", "submit", "a"]);
    assert_eq!(
        (said.text(), &*said.err),
        ("{\"job\":7,\"queued_reason\":\"2 slots are busy\",\"schema_version\":1}\n", "")
    );
}

#[test]
fn a_lost_daemon_is_reported_with_the_job_and_the_command_to_look_at_it() {
    let stage = Stage::new([submitted(), Act::Die]);
    let said = stage.output(&["run", "a"]);
    assert_eq!(said.code, Some(242), "{said:?}");
    assert!(said.err.starts_with("rsctl: lost the daemon while job 7 ran: "), "{said:?}");
    assert!(said.err.ends_with("see: rsctl job show 7\n"), "{said:?}");
}

/// What rsctl says of a lost daemon, up to the cause.
const LOST: &str = "rsctl: lost the daemon while job 7 ran: ";

fn text(text: &str) -> Act {
    output(vec![record(0, Stream::Stdout, text.as_bytes())])
}

#[test]
fn a_daemon_that_comes_back_finds_run_where_it_stopped() {
    let mut stage = Stage::new([at(10, submitted()), at(20, text("one\n")), Act::Die]);
    let mut child = stage.rsctl(&["run", "a"]).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    let mut line = lines_of(&mut child);
    let said = line();
    assert!(said.starts_with(LOST) && said.ends_with("; trying again for 5m"), "{said}");
    let spec = stage.submitted();
    assert_eq!((spec.reconnect_ms, spec.token.len()), (300_000, 16));
    let jobs = || vec![ended(JobState::Running, 0)];
    stage.again("9f", [at(30, text("two\n")), Act::Die], jobs());
    assert_eq!(line(), "rsctl: the daemon is back");
    assert_eq!(stage.asked(), Asked::Attach(AttachRequest { job: 7, from: 20, owner: true }));
    assert!(line().starts_with(LOST));
    stage.again("9f", [the_end(ended(JobState::Failed, 3))], jobs());
    assert_eq!(stage.asked(), Asked::Attach(AttachRequest { job: 7, from: 30, owner: true }));
    let end = Said::of(child.wait_with_output().unwrap());
    assert_eq!((end.code, end.text()), (Some(3), "one\ntwo\n"));
}

#[test]
fn a_submission_whose_answer_is_lost_is_sent_again_as_the_same() {
    let mut stage = Stage::new([Act::Die]);
    let mut child = stage.rsctl(&["submit", "a"]).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    let mut line = lines_of(&mut child);
    assert!(line().starts_with("rsctl: lost the daemon while submitting: "));
    let first = stage.submitted();
    stage.again("9f", [submitted(), text("x")], Vec::new());
    assert_eq!(line(), "rsctl: the daemon is back");
    assert_eq!((stage.submitted(), first.token.len()), (first, 16));
    let said = Said::of(child.wait_with_output().unwrap());
    assert_eq!((said.code, said.text()), (Some(0), "7\n"));
}

#[test]
fn a_daemon_that_does_not_come_back_or_is_of_another_dvm_is_reported() {
    let story = || [at(10, submitted()), Act::Die];
    let said = Stage::new(story()).output(&["run", "--reconnect", "100ms", "a"]);
    assert_eq!(said.code, Some(242), "{said:?}");
    assert!(said.err.contains("; it did not come back within 0.1s; when a daemon is running again"), "{said:?}");
    let said = Stage::new(story()).output(&["run", "--reconnect", "0", "a"]);
    assert!(said.err.starts_with(LOST) && !said.err.contains("trying again"), "{said:?}");

    let mut stage = Stage::new(story());
    let mut child = stage.rsctl(&["run", "a"]).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    let mut line = lines_of(&mut child);
    assert!(line().starts_with(LOST));
    stage.again("77", [], vec![ended(JobState::Running, 0)]);
    assert_eq!(line(), "rsctl: the daemon is back: DVM 9f is gone, and with it its jobs: n0 is a daemon of DVM 77");
    assert_eq!(child.wait().unwrap().code(), Some(246));
}

#[test]
fn ctrl_c_while_the_daemon_is_lost_cancels_when_it_is_back_or_leaves() {
    let mut stage = Stage::new([at(10, submitted()), Act::Die]);
    let mut child = stage.rsctl(&["run", "a"]).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    let mut line = lines_of(&mut child);
    assert!(line().starts_with(LOST));
    let pid = Pid::from_raw(child.id().cast_signed());
    kill(pid, Signal::SIGINT).unwrap();
    assert!(line().starts_with("rsctl: job 7 will be cancelled when the daemon is back"));
    stage.again(
        "9f",
        [Act::AwaitCancel(1), the_end(ended(JobState::Cancelled, 130))],
        vec![ended(JobState::Running, 0)],
    );
    assert_eq!(stage.asked(), Asked::Attach(AttachRequest { job: 7, from: 10, owner: true }));
    assert_eq!(stage.asked(), Asked::Cancel(7, None));
    assert_eq!(child.wait().unwrap().code(), Some(130));

    let stage = Stage::with_jobs([at(10, submitted()), Act::Die], vec![ended(JobState::Running, 0)]);
    let mut child = stage.rsctl(&["attach"]).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    let mut line = lines_of(&mut child);
    assert!(line().starts_with(LOST));
    kill(Pid::from_raw(child.id().cast_signed()), Signal::SIGINT).unwrap();
    assert_eq!(child.wait().unwrap().code(), Some(130));
}

#[test]
fn logs_go_on_in_the_middle_of_an_event_and_say_what_is_missing() {
    let jobs = || vec![ended(JobState::Running, 0)];
    let piece = |position, index, text: &str| Record { position, index, ..record(0, Stream::Stdout, text.as_bytes()) };
    let mut stage = Stage::with_jobs([Act::Tell(piece(0, 1, "a\n")), Act::Tell(piece(9, 2, "b\n")), Act::Die], jobs());
    let mut child = stage.rsctl(&["logs", "-f", "7"]).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    let mut line = lines_of(&mut child);
    assert!(line().starts_with("rsctl: lost the daemon while reading the output of job 7: "));
    let lost = Record { position: 30, index: 1, lost_bytes: 2048, ..Record::default() };
    stage.again("9f", [Act::Tell(piece(9, 3, "c\n")), Act::Tell(lost)], jobs());
    assert_eq!(line(), "rsctl: the daemon is back");
    let expected = LogsRequest { job: 7, follow: true, from: 9, skip: 2, ..LogsRequest::default() };
    assert_eq!(stage.asked(), Asked::Logs(expected));
    assert_eq!(line(), "rsctl: 2.0 KiB of output are missing here: they were not kept");
    let said = Said::of(child.wait_with_output().unwrap());
    assert_eq!((said.code, said.text()), (Some(0), "a\nb\nc\n"));
}

/// A child whose stderr is read line by line.
fn lines_of(child: &mut Child) -> impl FnMut() -> String + use<> {
    let mut stderr = child.stderr.take().unwrap();
    move || {
        let (mut line, mut byte) = (Vec::new(), [0]);
        while stderr.read(&mut byte).unwrap() == 1 && byte[0] != b'\n' {
            line.push(byte[0]);
        }
        String::from_utf8(line).unwrap()
    }
}

#[test]
fn ctrl_c_cancels_and_a_second_one_kills() {
    let stage = Stage::new([
        submitted(),
        output(vec![record(0, Stream::Stderr, b"up\n")]),
        Act::AwaitCancel(2),
        say(Body::Killing(Killing::default())),
        the_end(ended(JobState::Cancelled, 130)),
    ]);
    let mut child = stage.rsctl(&["run", "--kill-grace", "9s", "a"]).stderr(Stdio::piped()).spawn().unwrap();
    let pid = Pid::from_raw(child.id().cast_signed());
    let mut line = lines_of(&mut child);
    assert_eq!(line(), "up");
    assert_eq!(stage.submitted().kill_grace_ms, Some(9000));
    kill(pid, Signal::SIGTERM).unwrap();
    assert_eq!(line(), "rsctl: cancelling job 7: TERM now, KILL after the grace period (Ctrl-C again: KILL now)");
    assert_eq!(stage.asked(), Asked::Cancel(7, None));
    kill(pid, Signal::SIGINT).unwrap();
    assert_eq!(line(), "rsctl: killing job 7 (Ctrl-C again: exit without waiting)");
    assert_eq!(stage.asked(), Asked::Cancel(7, Some(0)));
    assert_eq!(line(), "rsctl: job 7 was cancelled");
    assert_eq!(child.wait().unwrap().code(), Some(130));
}

#[test]
fn a_third_ctrl_c_exits_at_once() {
    let stage = Stage::new([submitted(), output(vec![record(0, Stream::Stderr, b"up\n")]), Act::AwaitCancel(9)]);
    let mut child = stage.rsctl(&["run", "a"]).stderr(Stdio::piped()).spawn().unwrap();
    let pid = Pid::from_raw(child.id().cast_signed());
    let mut line = lines_of(&mut child);
    for expected in ["up", "rsctl: cancelling", "rsctl: killing"] {
        let said = line();
        assert!(said.starts_with(expected), "{said}");
        kill(pid, Signal::SIGINT).unwrap();
    }
    assert_eq!(child.wait().unwrap().code(), Some(130));
}

#[test]
fn ctrl_c_in_attach_leaves_the_job_running() {
    let story = [submitted(), output(vec![record(0, Stream::Stderr, b"up\n")]), Act::AwaitCancel(1)];
    let stage = Stage::with_jobs(story, vec![ended(JobState::Running, 0)]);
    let mut child = stage.rsctl(&["attach", "7"]).stderr(Stdio::piped()).spawn().unwrap();
    let mut line = lines_of(&mut child);
    assert_eq!(line(), "up");
    kill(Pid::from_raw(child.id().cast_signed()), Signal::SIGINT).unwrap();
    assert_eq!(line(), "rsctl: job 7 is still running; follow it again with: rsctl attach 7");
    assert_eq!(child.wait().unwrap().code(), Some(130));
    assert_eq!(stage.asked(), Asked::Attach(AttachRequest { job: 7, ..AttachRequest::default() }));
    assert!(stage.asked.try_recv().is_err());
}

/// An array of ten, of which four have ended.
fn array() -> JobInfo {
    let array = ArrayInfo {
        elements: "1-10".into(),
        limit: 2,
        size: 10,
        queued: 4,
        running: 2,
        done: 3,
        failed: 1,
        which_queued: "7-10".into(),
        which_running: "5,6".into(),
        which_failed: "2".into(),
        ..ArrayInfo::default()
    };
    JobInfo { job: 7, array: Some(array), priority: -5, ended_ms: 0, ..ended(JobState::Running, 0) }
}

#[test]
fn an_array_is_one_line_and_is_named_with_its_elements() {
    let stage = Stage::with_jobs([], vec![array()]);
    let listed = stage.output(&["ps"]);
    assert!(listed.text().contains("3 done, 1 failed, 2 running, 4 queued"), "{listed:?}");
    assert!(listed.text().lines().nth(1).is_some_and(|row| row.starts_with("7[1-10]  running ")), "{listed:?}");
    let shown = stage.output(&["job", "show", "7"]);
    for line in ["array      10 elements: 1-10, at most 2 at the same time\n", "failed     2\n", "priority   -5\n"] {
        assert!(shown.text().contains(line), "{line}{shown:?}");
    }
    for (args, hold) in [(["hold", "7[7-9]"], true), (["release", "7[7-9]"], false)] {
        assert_eq!(stage.output(&args).code, Some(0));
        let change = Some(Change::Hold(hold));
        assert_eq!(stage.asked(), Asked::Change(ChangeJobRequest { job: 7, elements: "7-9".into(), change }));
    }
    assert_eq!(stage.output(&["priority", "-3", "7"]).code, Some(0));
    let change = Some(Change::Priority(-3));
    assert_eq!(stage.asked(), Asked::Change(ChangeJobRequest { job: 7, elements: String::new(), change }));
    assert_eq!(stage.output(&["cancel", "7[9,10]"]).code, Some(0));
    assert_eq!(stage.asked(), Asked::CancelElements(7, "9-10".into()));
    let said = stage.output(&["logs", "-f", "7"]);
    assert!(said.code == Some(240) && said.err.contains("name an element, as in 7[3]"), "{said:?}");
}

#[test]
fn why_says_what_frees_a_job() {
    let queued = JobInfo { queued_reason: "4 ranks requested, 0 slots free".into(), ..ended(JobState::Queued, 0) };
    let said = Stage::with_jobs([], vec![queued]).output(&["why", "7"]);
    assert!(said.text().contains("\n  4 ranks requested, 0 slots free\n    freed by: the end of job 6\n"), "{said:?}");
}

#[test]
fn what_decides_when_a_job_starts_is_submitted() {
    let stage = Stage::new([submitted(), the_end(ended(JobState::Done, 0))]);
    let args = ["submit", "--array", "1-9:2%3", "--after", "ok:12,any:train[3]", "--priority", "-4", "--retry", "2"];
    let more = ["--retry-on", "node-loss,75", "--after-never", "hold", "a", "{index}"];
    assert_eq!(stage.output(&[&args[..], &more[..]].concat()).code, Some(0));
    let spec = stage.submitted();
    let after: Vec<(Kind, &str)> = spec.after.iter().map(|need| (need.kind(), &*need.of)).collect();
    assert_eq!(after, [(Kind::Ok, "12"), (Kind::Any, "train[3]")]);
    assert_eq!((&*spec.array, spec.priority, spec.retries, spec.after_holds), ("1-9:2%3", -4, 2, true));
    let on = spec.retry_on.unwrap();
    assert_eq!((on.node_loss, on.failure, &on.codes[..]), (true, false, &[75][..]));
    assert_eq!(&spec.apps[0].argv[1][..], b"{index}", "the head replaces it");
}

#[test]
fn a_closed_pipe_cancels_the_job_without_a_message() {
    let mut story = vec![submitted()];
    story.extend((0..64).map(|_| output(vec![record(0, Stream::Stdout, &[b'y'; 65_536])])));
    story.push(Act::AwaitCancel(1));
    let stage = Stage::new(story);
    let mut child = stage.rsctl(&["run", "a"]).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    drop(child.stdout.take());
    stage.submitted();
    assert_eq!(stage.asked(), Asked::Cancel(7, None));
    assert_eq!(
        Said::of(child.wait_with_output().unwrap()),
        Said { code: Some(141), out: Vec::new(), err: String::new() }
    );
}

#[test]
fn a_full_disk_is_reported() {
    let stage =
        Stage::new([submitted(), output(vec![record(0, Stream::Stdout, b"x\n")]), the_end(ended(JobState::Done, 0))]);
    let full = fs::OpenOptions::new().write(true).open("/dev/full").unwrap();
    let said = Said::of(stage.rsctl(&["run", "a"]).stdout(full).output().unwrap());
    assert_eq!(said.code, Some(248));
    assert!(said.err.starts_with("rsctl: cannot write to standard output: No space left"), "{said:?}");
}

#[test]
fn each_json_event_is_a_line() {
    let stage = Stage::new([submitted(), output(vec![record(1, Stream::Stdout, b"\xff")]), the_end(failed())]);
    let said = stage.output(&["run", "--json", "-l", "a"]);
    assert_eq!((said.code, &*said.err), (Some(3), ""));
    let lines: Vec<serde_json::Value> = said.text().lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    let kinds: Vec<_> = lines.iter().map(|line| (line["schema_version"].as_u64(), line["event"].as_str())).collect();
    assert_eq!(kinds, [(Some(1), Some("submitted")), (Some(1), Some("output")), (Some(1), Some("ended"))]);
    assert_eq!(lines[1]["records"][0]["data_base64"], "/w==");
    assert_eq!(lines[2]["cause"]["stderr_tail"], "oops\n");
}

#[test]
fn wait_exits_with_the_jobs_code() {
    let done = JobInfo { job: 6, ..ended(JobState::Done, 0) };
    let stage = Stage::with_jobs([], vec![done, failed()]);
    assert_eq!(stage.output(&["wait", "6"]), Said { code: Some(0), out: Vec::new(), err: String::new() });
    for args in [&["wait"][..], &["wait", "last"], &["wait", "6", "7"]] {
        let said = stage.output(args);
        assert_eq!(said.code, Some(3));
        assert!(said.err.starts_with("rsctl: job 7 failed: rank 3"), "{said:?}");
    }
}

#[test]
fn unknown_jobs_and_ranks_are_refused() {
    let stage = Stage::with_jobs([], vec![ended(JobState::Running, 0)]);
    for args in [
        &["wait", "9"][..],
        &["attach", "9"],
        &["logs", "9"],
        &["job", "show", "9"],
        &["signal", "9", "TERM"],
        &["cancel", "9"],
    ] {
        let said = stage.output(args);
        assert_eq!((said.code, &*said.err), (Some(246), "rsctl: there is no job 9\n"), "{args:?}");
    }
    let said = stage.output(&["signal", "7.4", "TERM"]);
    assert_eq!((said.code, &*said.err), (Some(246), "rsctl: job 7 has no rank 4: its ranks are 0 to 3\n"));
}

#[test]
fn signal_and_logs_send_the_job_and_the_rank() {
    let stage = Stage::with_jobs([], vec![ended(JobState::Running, 0)]);
    assert_eq!(stage.output(&["signal", "last.3", "usr1"]).code, Some(0));
    assert_eq!(stage.asked(), Asked::Signal(7, Some(3), 10));
    let said = stage.output(&["logs", "last", "-r", "3", "-l", "--stream", "stdout"]);
    assert_eq!((said.code, said.text()), (Some(0), "[3] one\n[3] two\n"));
    assert_eq!(
        stage.asked(),
        Asked::Logs(LogsRequest { job: 7, rank: Some(3), stream: Some(0), ..LogsRequest::default() })
    );
}

#[test]
fn lists_are_printed_as_tables_or_json() {
    let stage = Stage::with_jobs([], vec![failed()]);
    let said = stage.output(&["ps"]);
    assert_eq!((said.text(), &*said.err), ("", "rsctl: no running jobs (ended jobs: rsctl ps -a)\n"));
    assert!(stage.output(&["ps", "-a"]).text().starts_with("JOB  STATE   RANKS"));
    for (args, key) in
        [(&["ps", "-a", "--json"][..], "jobs"), (&["nodes", "--json"], "nodes"), (&["job", "show", "--json"], "job")]
    {
        let value: serde_json::Value = serde_json::from_str(stage.output(args).text()).unwrap();
        assert_eq!(value["schema_version"], 1);
        assert!(!value[key].is_null(), "{value}");
    }
}

#[test]
fn without_a_daemon_the_command_to_start_one_is_named() {
    let stage = Stage::empty();
    for args in [&["submit", "a"][..], &["ps"], &["wait"], &["nodes"]] {
        let said = stage.output(args);
        let base = stage.base.display();
        let text = format!("rsctl: no daemon is running here (looked in {base}); start one with: rsd start\n");
        assert_eq!((said.code, said.err), (Some(241), text));
    }
    let said = stage.output(&["--dvm", "n9", "run", "a"]);
    assert_eq!(
        (said.code, &*said.err),
        (Some(241), "rsctl: --dvm n9: no daemon is running; start one with: rsd start\n")
    );
}

#[test]
fn a_socket_of_another_user_is_not_trusted() {
    let stage = Stage::new([]);
    let socket = stage.base.join("n0/rsd.sock");
    fs::remove_file(&socket).unwrap();
    if nix::unistd::geteuid().is_root() {
        File::create(&socket).unwrap();
        std::os::unix::fs::chown(&socket, Some(12_345), None).unwrap();
    } else {
        // rsctl checks the owner before it connects, so the link may lead to any file of root.
        std::os::unix::fs::symlink("/etc/passwd", &socket).unwrap();
    }
    let said = stage.output(&["submit", "a"]);
    assert_eq!(said.code, Some(245));
    assert!(said.err.contains("its socket belongs to uid ") && said.err.contains("rsd start"), "{said:?}");
}

/// Returns a copy of rsctl with the script `rsd` beside it.
fn beside(stage: &Stage, rsd: &str) -> Command {
    use std::os::unix::fs::PermissionsExt;
    let bin = stage.base.join("bin");
    fs::create_dir(&bin).unwrap();
    // Written by other processes: if this process wrote the file, a child that another test starts could inherit the descriptor, and the
    // file could not be executed.
    let copied = Command::new("cp").arg(env!("CARGO_BIN_EXE_rsctl")).arg(bin.join("rsctl")).status().unwrap();
    assert!(copied.success());
    let mut written =
        Command::new("tee").arg(bin.join("rsd")).stdin(Stdio::piped()).stdout(Stdio::null()).spawn().unwrap();
    written.stdin.take().unwrap().write_all(rsd.as_bytes()).unwrap();
    assert!(written.wait().unwrap().success());
    fs::set_permissions(bin.join("rsd"), fs::Permissions::from_mode(0o755)).unwrap();
    let mut command = Command::new(bin.join("rsctl"));
    command.env("RSD_RUNTIME_DIR", stage.base.join("rsd")).env("RSD_STATE_DIR", stage.base.join("state"));
    command.env_remove("RSD_DVM").stdin(Stdio::null());
    command
}

#[test]
fn run_starts_a_private_daemon_and_removes_it() {
    let stage = Stage::new([submitted(), the_end(ended(JobState::Done, 0))]);
    // The script links to the directory of the fake daemon's socket and ends at the end of its input.
    let script = format!(
        "#!/bin/sh\necho \"$*\" > {base}/args\nln -s {base}/n0 \"$5/run\"\necho 'rsd: ready'\ncat\n",
        base = stage.base.display()
    );
    let said = Said::of(beside(&stage, &script).args(["run", "a"]).output().unwrap());
    let text =
        "rsctl: no daemon is running here; starting a private one for this job (to keep one running: rsd start)\n";
    assert_eq!((said.code, &*said.err), (Some(0), text));
    let args = fs::read_to_string(stage.base.join("args")).unwrap();
    let dir = stage.base.join("state/.private@");
    let expected = format!("start --foreground --private --state-dir {}", dir.display());
    assert!(args.starts_with(&expected) && args.ends_with(" --name=private\n"), "{args}");
    assert_eq!(fs::read_dir(stage.base.join("state")).unwrap().count(), 0);
}

#[test]
fn the_error_of_a_private_daemon_that_cannot_start_is_reported() {
    let stage = Stage::empty();
    let said =
        Said::of(beside(&stage, "#!/bin/sh\necho 'rsd: no cores' >&2\nexit 1\n").args(["run", "a"]).output().unwrap());
    assert_eq!(said.code, Some(242));
    assert!(said.err.trim_end().ends_with("rsd: no cores"), "{said:?}");
    assert_eq!(fs::read_dir(stage.base.join("state")).unwrap().count(), 0);
}

#[test]
fn usage_errors_exit_with_240_and_help_with_0() {
    let stage = Stage::empty();
    for args in
        [&["run", "-n", "0", "a"][..], &["run"], &["frobnicate"], &["run", "-hostfile", "h", "a"], &["wait", "7.3"]]
    {
        let said = stage.output(args);
        assert_eq!((said.code, said.text()), (Some(240), ""), "{args:?}");
        assert!(!said.err.is_empty());
    }
    assert_eq!(stage.output(&["run", "--help"]).code, Some(0));
    assert!(stage.output(&["completion", "bash"]).text().contains("rsctl"));
    let man = stage.base.join("man");
    assert_eq!(stage.output(&["man", man.to_str().unwrap()]).code, Some(0));
    assert!(man.join("man1/rsctl-run.1").is_file());
}

/// Two ranks on a node of this name.
fn planned(name: &str) -> PlanReply {
    let map = TaskMap { nodes: vec![0], blocks: vec![Block { first_node: 0, nodes: 1, ranks_per_node: 2 }] };
    let node = PlanNode { name: name.into(), slots: 2, slots_reason: "2 cores".into(), ..PlanNode::default() };
    let plan = Plan { map: Some(map), nodes: vec![node], app_sizes: vec![2], map_by: "slot".into(), ..Plan::default() };
    PlanReply { outcome: Some(Outcome::Plan(plan)) }
}

#[test]
fn a_plan_is_requested_with_the_options_of_run_and_printed() {
    let stage = Stage::with_plans(vec![planned("n0")]);
    let said = stage.output(&["plan", "--idle", "-n", "2", "--host", "n0:2", "-x", "A=1", "-l", "./a", "b c"]);
    assert_eq!((said.code, &*said.err), (Some(0), ""));
    let text = "\
2 ranks on 1 node

NODE  SLOTS        RANKS  WHICH  CPUS EACH
n0    2 (2 cores)  2      0-1    any cpu

RANK  NODE  ON       REASON
   0  n0    any cpu
   1  n0    any cpu

mapped by slot
full command: rsctl run --map-by slot -n 2 --host n0:2 ./a 'b c'
";
    assert_eq!(said.text(), text);
    let Asked::Plan(request) = stage.asked() else { panic!("rsctl requests a plan") };
    let spec = request.spec.unwrap();
    assert!(request.idle && request.topology.is_empty() && spec.env.is_empty(), "{spec:?}");
    assert_eq!((spec.apps[0].n, &*spec.apps[0].hosts[0].name), (Some(2), "n0"));
}

#[test]
fn a_refused_plan_has_the_message_and_exit_code_of_run() {
    let text = "3 ranks requested, 2 slots free on 1 node\nfix:  -n 2";
    let refused = PlanRefusal { text: text.into(), asked: Some(3), free: Some(2), ..PlanRefusal::default() };
    let refused = PlanReply { outcome: Some(Outcome::Refused(refused)) };
    let stage = Stage::with_plans(vec![refused.clone()]);
    let said = stage.output(&["plan", "-n", "3"]);
    assert_eq!(said, Said { code: Some(243), out: Vec::new(), err: format!("rsctl: {text}\n") });
    let said = Stage::with_plans(vec![refused]).output(&["plan", "-n", "3", "--json"]);
    assert_eq!((said.code, &*said.err), (Some(243), ""));
    assert!(said.text().contains("\"refused\":{\"asked\":3,\"fixes\":[],\"free\":2,"), "{}", said.text());
}

#[test]
fn a_mapping_that_the_daemon_does_not_know_is_a_usage_error() {
    let said = Stage::with_plans(Vec::new()).output(&["plan", "-n", "3"]);
    assert_eq!((said.code, &*said.err), (Some(240), "rsctl: unknown mapping `x`\n"));
}

#[test]
fn two_plans_are_compared() {
    let stage = Stage::with_plans(vec![planned("n0"), planned("n1")]);
    let said = stage.output(&["plan", "-n", "2", "--diff", "--map-by node"]);
    assert_eq!((said.code, &*said.err), (Some(0), ""));
    assert!(said.text().contains("plan a: 2 ranks on 1 node\n"), "{}", said.text());
    let moves = "2 of 2 ranks differ: 2 to another node\n  rank 0: n0 -> n1\n  rank 1: n0 -> n1\n";
    assert!(said.text().ends_with(moves), "{}", said.text());
    let asked = [stage.asked(), stage.asked()].map(|asked| match asked {
        Asked::Plan(request) => request.spec.unwrap().map_by,
        other => panic!("{other:?}"),
    });
    assert_eq!(asked[1], "node");
    assert_ne!(asked[0], "node");
}

#[test]
fn an_error_of_rsd_plan_is_passed_on_with_its_exit_code() {
    let stage = Stage::empty();
    let script =
        "#!/bin/sh\n[ \"$1\" = plan ] || exit 9\ncat > /dev/null\necho 'rsd: no such topology' >&2\nexit 240\n";
    let said = Said::of(beside(&stage, script).args(["plan", "--topology", "pack:x"]).output().unwrap());
    assert_eq!(said, Said { code: Some(240), out: Vec::new(), err: "rsctl: no such topology\n".into() });

    let stage = Stage::empty();
    let said = Said::of(beside(&stage, "#!/bin/sh\nexit 2\n").args(["plan", "--topology", "pu:1"]).output().unwrap());
    assert_eq!((said.code, said.err.contains("rsd plan failed: exit status: 2")), (Some(255), true), "{said:?}");
}

#[test]
fn a_run_shows_its_plan_first_and_a_refusal_is_reported_once() {
    let story = || [submitted(), output(vec![record(0, Stream::Stdout, b"out\n")]), the_end(ended(JobState::Done, 0))];
    let said = Stage::with(story(), Vec::new(), vec![planned("n0")]).output(&["run", "--show-plan", "-n", "2", "a"]);
    assert_eq!((said.code, said.text()), (Some(0), "out\n"));
    assert!(said.err.starts_with("2 ranks on 1 node\n\nNODE "), "{}", said.err);

    let refused =
        PlanReply { outcome: Some(Outcome::Refused(PlanRefusal { text: "no".into(), ..PlanRefusal::default() })) };
    let story = [Act::Refuse(refusal(Code::FailedPrecondition, exit::NOT_PLACED, "no"))];
    let said = Stage::with(story, Vec::new(), vec![refused]).output(&["run", "--show-plan", "a"]);
    assert_eq!(said, Said { code: Some(243), out: Vec::new(), err: "rsctl: no\n".into() });
}
