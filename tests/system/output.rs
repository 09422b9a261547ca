//! Input and output of ranks: bytes arrive complete, and lines stay whole.

use std::collections::BTreeMap;
use std::fs;
use std::time::Duration;

use nix::sys::signal::Signal;
use rsd_tests::{Dvm, eventually, plain, processes};

use crate::sorted;

/// Pseudorandom bytes with all values, so that a lost block changes the digest.
fn noise(bytes: usize) -> Vec<u8> {
    let mut state = 0x2545_f491_4f6c_dd1d_u64;
    let next = || {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        state.to_le_bytes()[3]
    };
    std::iter::repeat_with(next).take(bytes).collect()
}

/// The output of `digest` for these bytes.
fn digest(bytes: &[u8]) -> String {
    let hash = bytes
        .iter()
        .fold(0xcbf2_9ce4_8422_2325_u64, |hash, &byte| (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3));
    format!("{} {hash:016x}", bytes.len())
}

const EMPTY: &str = "0 cbf29ce484222325";

#[test]
fn standard_input_arrives_whole_at_rank_0_and_the_others_get_none() {
    let dvm = Dvm::start(2);
    let program = plain("digest.c");
    for bytes in [0, 1, 65_535, 65_536, 65_537, 10_000_000] {
        let input = noise(bytes);
        let expected = [format!("[0] {}", digest(&input)), format!("[1] {EMPTY}"), format!("[2] {EMPTY}")];
        let printed = dvm.rsctl(["run", "-n", "3", "--map-by", "node", "-l", &program]).stdin(input).ok();
        assert_eq!(sorted(&printed), expected, "{bytes} bytes");
    }
}

#[test]
fn standard_input_goes_to_the_chosen_ranks() {
    let dvm = Dvm::start(2);
    let program = plain("digest.c");
    let input = noise(300_000);
    let full = digest(&input);
    for (target, reads) in [("1", [false, true, false]), ("all", [true, true, true]), ("none", [false; 3])] {
        let line = ["run", "-n", "3", "--map-by", "node", "-l", "--stdin", target, &program];
        let printed = dvm.rsctl(line).stdin(input.clone()).ok();
        let expected: Vec<String> = (reads.iter().enumerate())
            .map(|(rank, &reads)| format!("[{rank}] {}", if reads { &full } else { EMPTY }))
            .collect();
        assert_eq!(sorted(&printed), expected, "--stdin {target}");
    }
}

#[test]
fn a_rank_that_does_not_read_its_input_delays_no_other_rank() {
    let dvm = Dvm::start(1);
    assert_eq!(dvm.rsctl(["run", "-n", "1", "echo", "done"]).stdin(noise(3_000_000)).ok(), "done\n");
}

#[test]
fn input_arrives_as_it_is_typed() {
    let dvm = Dvm::start(1);
    let mut job = dvm.rsctl(["run", "-n", "1", "cat"]).stdin_open().start();
    for line in ["one\n", "two\n"] {
        job.write(line.as_bytes());
        job.until_stdout(|out| out.ends_with(line).then_some(()));
    }
    job.close_stdin();
    assert_eq!(job.end().ok(), "one\ntwo\n");
}

/// Half of a file is not a file: a job whose client was killed must not take what it has for all of it.
#[test]
fn the_input_of_a_client_that_was_killed_has_no_end() {
    let dvm = Dvm::start(2);
    for at in [0, 1] {
        let [begun, ended] = ["begun", "ended"].map(|name| dvm.scratch().join(format!("{name}{at}")));
        let script = format!(
            "trap '' TERM; read line; echo \"$line\" > {0}.new; mv {0}.new {0}; cat > /dev/null; echo end > {1}",
            begun.display(),
            ended.display()
        );
        let line = ["run", "--kill-grace", "1s", "-n", "1", "sh", "-c", &script];
        let mut client = dvm.rsctl(["--dvm"]).args([dvm.state_dir(at)]).args(line).stdin_open().start();
        client.write(b"a line\n");
        eventually("the rank has a line", Duration::from_secs(20), || begun.exists().then_some(()));
        client.signal(Signal::SIGKILL);
        eventually("the job is over", Duration::from_secs(20), || {
            (dvm.rsctl(["ps"]).ok().lines().count() <= 1).then_some(())
        });
        assert_eq!(fs::read_to_string(&begun).ok().as_deref(), Some("a line\n"));
        assert!(!ended.exists(), "the rank read the end of its input at daemon {at}");
    }
}

#[test]
fn output_bytes_are_unchanged() {
    let dvm = Dvm::start(1);
    let input = noise(1_000_000);
    let job = dvm.rsctl(["run", "-n", "1", "cat"]).stdin(input.clone()).end();
    assert!(job.stdout == input, "{} bytes arrived of {}", job.stdout.len(), input.len());
    let end = dvm.rsctl(["run", "-n", "1", "printf", r"no newline at the end"]).end();
    assert_eq!(end.stdout, b"no newline at the end");
}

#[test]
fn the_two_streams_are_kept_apart() {
    let dvm = Dvm::start(1);
    let job = dvm.rsctl(["run", "-n", "2", "-l", "sh", "-c", "echo out; echo err >&2"]).end();
    assert_eq!(sorted(&job.out()), ["[0] out", "[1] out"]);
    assert_eq!(sorted(&job.err()), ["[0] err", "[1] err"]);
}

#[test]
fn lines_of_many_ranks_stay_whole_and_no_line_is_lost() {
    let dvm = Dvm::start(4);
    let (ranks, lines) = (16, 20_000);
    let printed = dvm.rsctl(["run", "-n", &ranks.to_string(), &plain("flood.c"), &lines.to_string()]).ok();
    assert_flood(&printed, ranks, lines);
    // The job's log has the same lines.
    assert_flood(&dvm.ctl("logs last").ok(), ranks, lines);
}

/// Checks that every line is whole, and that the lines of each rank are complete and in order.
fn assert_flood(printed: &str, ranks: u64, lines: u64) {
    let mut next: BTreeMap<u64, u64> = (0..ranks).map(|rank| (rank, 0)).collect();
    for line in printed.lines() {
        let mut words = line.split_whitespace().map(|word| word.parse::<u64>());
        let (Some(Ok(rank)), Some(Ok(number)), Some(Ok(again)), None) =
            (words.next(), words.next(), words.next(), words.next())
        else {
            panic!("not a whole line: {line:?}");
        };
        assert!(line.len() == 99 && number == again, "not a whole line: {line:?}");
        let expected = next.get_mut(&rank).unwrap_or_else(|| panic!("unknown rank {rank}"));
        assert_eq!(number, *expected, "the next line of rank {rank}");
        *expected += 1;
    }
    assert!(next.values().all(|&count| count == lines), "{next:?}");
}

#[test]
fn a_flood_does_not_fill_the_daemons_memory() {
    let dvm = Dvm::start(2);
    let job = dvm.rsctl(["run", "-n", "2", "--map-by", "node", &plain("flood.c"), "1000000"]).end();
    assert_eq!(job.stdout.len(), 200_000_000);
    job.ok();
    for node in 0..2 {
        let (_, peak) = processes::memory_bytes(dvm.pid(node)).expect("the daemon runs");
        assert!(peak < 64 << 20, "node{node} took {} MiB", peak >> 20);
    }
}

#[test]
fn a_reader_that_exits_ends_the_job_and_fills_no_memory() {
    let dvm = Dvm::start(1);
    // `head` exits after one line; the job is cancelled because its output has no reader.
    let line = format!("{} run -n 1 yes | head -n 1", rsd_tests::built::rsctl().display());
    assert_eq!(dvm.call("sh").args(["-c", &line]).ok(), "y\n");
    rsd_tests::eventually("the job ends", Duration::from_secs(20), || {
        (dvm.json("job show last")["state"] == "cancelled").then_some(())
    });
}

#[test]
fn a_very_long_line_arrives_completely() {
    let dvm = Dvm::start(1);
    let script = "head -c 3000000 /dev/zero | tr '\\0' x; echo";
    let printed = dvm.rsctl(["run", "-n", "1", "sh", "-c", script]).ok();
    assert!(printed.len() == 3_000_001 && printed.trim_end().bytes().all(|byte| byte == b'x'), "{}", printed.len());
}

#[test]
fn output_goes_to_one_file_per_rank_and_stream() {
    let dvm = Dvm::start(2);
    let dir = dvm.scratch().join("out/of/job");
    let printed = dvm
        .rsctl(["run", "-n", "8", "--output"])
        .args([dir.as_os_str()])
        .args(["sh", "-c", "echo rank $RSD_RANK; printf err$RSD_RANK >&2"])
        .ok();
    assert_eq!(printed, "");
    for rank in 0..8 {
        let read = |stream: &str| fs::read_to_string(dir.join(format!("rank.{rank}.{stream}"))).unwrap_or_default();
        assert_eq!(read("stdout"), format!("rank {rank}\n"));
        assert_eq!(read("stderr"), format!("err{rank}"));
    }
    assert_eq!(fs::read_dir(&dir).map_or(0, |entries| entries.count()), 16);
}

#[test]
fn a_full_disk_is_reported_with_the_file() {
    let dvm = Dvm::start(1);
    let dir = dvm.scratch().join("full");
    fs::create_dir(&dir).expect("the scratch directory is writable");
    std::os::unix::fs::symlink("/dev/full", dir.join("rank.1.stdout")).expect("the scratch directory is writable");
    let said = dvm
        .rsctl(["run", "-n", "2", "--overwrite", "--output"])
        .args([dir.as_os_str()])
        .args(["echo", "lost"])
        .fails(247);
    assert!(said.contains("rank 1 on node0"), "{said}");
    assert!(said.contains("full/rank.1.stdout") && said.contains("No space left"), "{said}");
}

#[test]
fn logs_can_be_read_again_and_in_part() {
    let dvm = Dvm::start(2);
    let script = "echo out $RSD_RANK; echo err $RSD_RANK >&2";
    let job = dvm.submit(["-n", "2", "--map-by", "node", "sh", "-c", script]);
    dvm.rsctl(["wait", &job]).ok();
    let both = dvm.rsctl(["logs", "-l", &job]).end();
    assert_eq!(sorted(&both.out()), ["[0] out 0", "[1] out 1"]);
    assert_eq!(sorted(&both.err()), ["[0] err 0", "[1] err 1"]);
    let one = dvm.rsctl(["logs", &format!("{job}.1")]).end();
    assert_eq!((one.out().as_str(), one.err().as_str()), ("out 1\n", "err 1\n"));
    let same = dvm.rsctl(["logs", &job, "-r", "1", "--stream", "stderr"]).end();
    assert_eq!((same.out().as_str(), same.err().as_str()), ("", "err 1\n"));
}

#[test]
fn several_clients_may_follow_one_job() {
    let dvm = Dvm::start(2);
    let gate = dvm.scratch().join("gate");
    let script = format!("echo begun; while ! test -e {}; do sleep 0.02; done; echo done; exit 6", gate.display());
    let job = dvm.submit(["sh", "-c", &script]);
    let followers = [
        (dvm.rsctl(["attach", &job]).start(), 6),
        (dvm.rsctl(["attach", &job]).start(), 6),
        (dvm.rsctl(["logs", "-f", &job]).start(), 0),
    ];
    for (follower, _) in &followers {
        follower.until_stdout(|out| out.contains("begun").then_some(()));
    }
    dvm.file("gate", "");
    for (follower, code) in followers {
        let ended = follower.end();
        assert_eq!(ended.status.code(), Some(code), "{ended}");
        assert_eq!(sorted(&ended.out()), [["begun"; 8], ["done"; 8]].concat());
    }
}
