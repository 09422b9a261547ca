//! `rsctl kv`: values that processes exchange.

use std::fs;
use std::time::Duration;

use nix::sys::signal::Signal;
use rsd_tests::{Call, Dvm, Mpi, built, eventually};

use crate::sorted;

/// Every byte value once, with line feeds and zeros, like an id that a library generates.
fn blob() -> Vec<u8> {
    (0..=255).rev().collect()
}

/// A shell script with rsctl as `$0`.
fn script<'a>(text: &'a str, rsctl: &'a str) -> [&'a str; 4] {
    ["sh", "-c", text, rsctl]
}

fn kv<'a>(dvm: &Dvm, at: usize, words: impl IntoIterator<Item = &'a str>) -> Call {
    dvm.rsctl(["--dvm"]).args([dvm.state_dir(at)]).args(["kv"]).args(words)
}

/// Submits a job that runs until it is cancelled; returns its number.
fn idle(dvm: &Dvm, n: &str) -> String {
    dvm.rsctl(["submit", "-n", n, "--map-by", "node", "sleep", "600"]).ok().trim().to_owned()
}

#[test]
fn one_rank_puts_bytes_that_all_get_on_every_node() {
    let dvm = Dvm::start(2);
    let rsctl = built::rsctl().display().to_string();
    let id = dvm.scratch().join("id");
    fs::write(&id, blob()).expect("the directory is writable");
    let text = format!(
        r#"if [ "$RSD_RANK" = 3 ]; then "$0" kv put id < {0}; fi
           "$0" kv get id | cmp - {0} && "$0" kv put "from $RSD_RANK" --value "$RSD_NODE_NAME" && "$0" kv fence \
           && test $("$0" kv ls | wc -l) = 6 && "$0" kv fence && echo rank $RSD_RANK has it"#,
        id.display()
    );
    let printed = dvm.rsctl(["run", "-n", "4", "--map-by", "node"]).args(script(&text, &rsctl)).ok();
    assert_eq!(sorted(&printed), [0, 1, 2, 3].map(|rank| format!("rank {rank} has it")));
}

#[test]
fn members_of_a_group_exchange_values_before_mpi_init() {
    let dvm = Dvm::start(2);
    let rsctl = built::rsctl().display().to_string();
    let hello = Mpi::Debian.program("hello.c");
    let text = format!(
        r#""$0" kv put "at $RSD_RANK" --value "$RSD_EPOCH" && "$0" kv get "at 0" && "$0" kv get "at 3" && exec {hello}"#
    );
    let member = |at: usize| {
        let call = dvm.rsctl(["--dvm"]).args([dvm.state_dir(at % 2)]).args(["group", "exec", "actors", "--size", "4"]);
        call.args(["--"]).args(script(&text, &rsctl)).start()
    };
    let members: Vec<_> = (0..4).map(member).collect();
    for member in members {
        let printed = member.end().ok();
        assert!(printed.starts_with("11rank "), "{printed}");
    }
}

#[test]
fn values_are_accessible_from_outside_by_job_and_by_group() {
    let dvm = Dvm::start(2);
    let job = idle(&dvm, "2");
    let file = dvm.scratch().join("blob");
    fs::write(&file, blob()).expect("the directory is writable");
    let file = file.display().to_string();
    let waits = kv(&dvm, 1, ["get", "--job", &job, "late"]).start();
    kv(&dvm, 1, ["put", "--job", &job, "bytes", "--file", &file]).ok();
    kv(&dvm, 0, ["put", "--job", "last", "late", "--hex", "00ff0a"]).ok();
    assert_eq!(kv(&dvm, 0, ["get", "--job", &job, "late", "--hex"]).ok(), "00ff0a\n");
    assert_eq!(waits.end().stdout, [0, 255, 10]);
    kv(&dvm, 1, ["put", "--job", &job, "bytes"]).stdin("other").ok();
    assert_eq!(kv(&dvm, 0, ["get", "--job", &job, "bytes"]).ok(), "other");
    let listed = kv(&dvm, 1, ["ls", "--job", &job]).ok();
    assert_eq!(listed, "KEY    BYTES  RANK\nbytes      5     -\nlate       3     -\n");
    kv(&dvm, 1, ["del", "--job", &job, "late"]).ok();
    assert!(kv(&dvm, 1, ["del", "--job", &job, "late"]).fails(246).contains(r#"has no value "late""#));
    dvm.rsctl(["cancel", &job]).ok();
    dvm.rsctl(["wait", &job]).end().fails(130);
    assert!(kv(&dvm, 0, ["ls", "--job", &job]).fails(246).contains("has ended, and its values with it"));

    let gate = dvm.scratch().join("gate");
    let wait = format!("while ! test -e {}; do sleep 0.02; done", gate.display());
    let member = dvm.rsctl(["group", "exec", "actors", "--size", "1", "--", "sh", "-c", &wait]).start();
    eventually("the epoch has begun", Duration::from_secs(20), || {
        kv(&dvm, 1, ["put", "--group", "actors", "k", "--value", "v"]).end().status.success().then_some(())
    });
    assert_eq!(kv(&dvm, 0, ["get", "--group", "actors", "k"]).ok(), "v");
    dvm.file("gate", "");
    member.end().ok();
}

#[test]
fn a_get_that_times_out_names_the_ranks_that_put_nothing() {
    let dvm = Dvm::start(2);
    let job = idle(&dvm, "3");
    let of = ["--job", job.as_str()];
    let missing = kv(&dvm, 1, ["get", "id", "--timeout", "300ms"]).args(of).fails(124);
    assert!(missing.contains(&format!(r#"job {job} has no value "id""#)), "{missing}");
    assert!(missing.contains("none of its ranks has put anything"), "{missing}");
    let as_rank = |rank: &str| kv(&dvm, 0, ["put", "mine", "--value", rank]).env("RSD_JOB", &job).env("RSD_RANK", rank);
    as_rank("1").ok();
    let missing = kv(&dvm, 1, ["get", "id", "--timeout", "0s"]).args(of).fails(246);
    assert!(missing.contains("ranks 0, 2 have put nothing yet"), "{missing}");
    as_rank("0").ok();
    as_rank("2").ok();
    let missing = kv(&dvm, 1, ["get", "id", "--timeout", "100ms"]).args(of).fails(124);
    assert!(missing.contains("each of its ranks has put other values"), "{missing}");
    // A command whose job ends does not wait for its timeout.
    let waits = kv(&dvm, 1, ["get", "id", "--timeout", "10m"]).args(of).start();
    eventually("the waiting command is ended by the cancel", Duration::from_secs(20), || {
        dvm.rsctl(["cancel", &job]).end();
        (!waits.runs()).then_some(())
    });
    assert!(waits.end().fails(246).contains("has ended"));
}

#[test]
fn a_fence_waits_for_all_participants_and_names_the_missing_ones() {
    let dvm = Dvm::start(2);
    let job = idle(&dvm, "3");
    let rank =
        |rank: &str, words: &[&str]| kv(&dvm, 1, ["fence"]).args(words).env("RSD_JOB", &job).env("RSD_RANK", rank);
    let missing = rank("1", &["--timeout", "200ms"]).fails(124);
    assert!(
        missing.contains("1 of 3 participants have entered") && missing.contains("missing: ranks 0, 2"),
        "{missing}"
    );
    for _ in 0..3 {
        let waiting: Vec<_> = ["0", "1"].map(|number| rank(number, &[]).start()).into();
        rank("2", &[]).ok();
        waiting.into_iter().for_each(|rank| drop(rank.end().ok()));
    }
    let named =
        |participant: &str, n: &str| kv(&dvm, 0, ["fence", "ready", "--job", &job, "--as", participant, "-n", n]);
    let first = named("a", "2").start();
    let again = eventually("the first has entered", Duration::from_secs(20), || {
        let ended = named("a", "2").args(["--timeout", "0s"]).end();
        ended.err().contains("already waiting in fence").then(|| ended.err())
    });
    assert!(again.contains(r#""a" is already waiting in fence "ready""#), "{again}");
    assert!(named("b", "3").fails(243).contains(r#"has 2 participants (requested first by "a"); "b" requests 3"#));
    named("b", "2").ok();
    first.end().ok();
    dvm.rsctl(["cancel", &job]).ok();
}

#[test]
fn a_command_that_was_killed_is_no_longer_in_the_fence() {
    let dvm = Dvm::start(2);
    let job = idle(&dvm, "2");
    let fence = |at: usize, who: &str| kv(&dvm, at, ["fence", "f", "--job", &job, "--as", who, "-n", "2"]);
    let is_inside = |who: &str| {
        let again = fence(0, who).args(["--timeout", "0s"]).end();
        again.err().contains("already waiting in fence")
    };
    for at in [0, 1] {
        let killed = fence(at, "a").start();
        eventually("it has entered", Duration::from_secs(20), || is_inside("a").then_some(()));
        killed.signal(Signal::SIGKILL);
        let alone = eventually("it is gone", Duration::from_secs(20), || {
            let again = fence(0, "a").args(["--timeout", "0s"]).end();
            (!again.err().contains("already waiting")).then(|| again.err())
        });
        assert!(alone.contains("1 of 2 participants have entered"), "{alone}");
        let other = fence(1, "b").start();
        eventually("the other one has entered", Duration::from_secs(20), || is_inside("b").then_some(()));
        assert!(other.runs(), "it waits for the second participant");
        fence(0, "a").ok();
        other.end().ok();
    }
    dvm.rsctl(["cancel", &job]).ok();
}

#[test]
fn waiting_commands_survive_a_restart_of_the_daemon() {
    let mut dvm = Dvm::start(2);
    let job = idle(&dvm, "2");
    let waits = kv(&dvm, 1, ["get", "--job", &job, "id"]).start();
    let inside = kv(&dvm, 1, ["fence", "f", "--job", &job, "--as", "a", "-n", "2"]).start();
    // When another command's first try finds the place taken, the fence has the first participant.
    eventually("the first has entered", Duration::from_secs(20), || {
        let again = kv(&dvm, 0, ["fence", "f", "--job", &job, "--as", "a", "-n", "2", "--timeout", "0s"]).end();
        again.err().contains("already waiting in fence").then_some(())
    });
    dvm.kill(1);
    dvm.restart(1);
    kv(&dvm, 0, ["put", "--job", &job, "id", "--value", "x"]).ok();
    assert_eq!(waits.end().ok(), "x");
    kv(&dvm, 0, ["fence", "f", "--job", &job, "--as", "b", "-n", "2"]).ok();
    inside.end().ok();
    dvm.rsctl(["cancel", &job]).ok();
}

#[test]
fn errors_of_kv_commands_name_the_correct_usage() {
    let dvm = Dvm::start(1);
    assert!(kv(&dvm, 0, ["get", "id"]).fails(240).contains("not inside a job or group; use --job 7 or --group actors"));
    assert!(kv(&dvm, 0, ["get", "id", "--job", "99"]).fails(246).contains("no job 99"));
    assert!(kv(&dvm, 0, ["get", "id", "--group", "actors"]).fails(246).contains("no group actors"));
    let job = idle(&dvm, "1");
    let put = |words: &[&str]| kv(&dvm, 0, ["put", "--job", &job]).args(words);
    assert!(put(&["id"]).stdin("").fails(240).contains("--value '' for an empty value"));
    put(&["id", "--value", ""]).ok();
    assert!(put(&["id", "--hex", "0"]).fails(240).contains("two hexadecimal digits"));
    assert!(put(&["id", "--file", "/nonexistent/x"]).fails(240).contains("cannot read /nonexistent/x"));
    assert!(put(&["", "--value", "x"]).fails(240).contains("1 to 255 bytes"));
    put(&["big"]).stdin(vec![7; 1 << 20]).ok();
    let long = put(&["bigger"]).stdin(vec![7; (1 << 20) + 1]).fails(240);
    assert!(long.contains("too large: the limit is 1048576 bytes (1 MiB)"), "{long}");
    let fence = kv(&dvm, 0, ["fence", "--job", &job]).fails(240);
    assert!(fence.contains("rsctl kv fence ready -n 3 --as loader"), "{fence}");
    dvm.rsctl(["cancel", &job]).ok();
}
