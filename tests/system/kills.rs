//! The head is killed at random moments, again and again, while jobs of every kind run: each job's output and exit code must be those of
//! an undisturbed run.

use std::collections::BTreeMap;
use std::thread::sleep;
use std::time::Duration;

use rsd_tests::{Call, Dvm, Ended, Mpi, Options, Running, plain};

use crate::attached::until_idle;
use crate::groups::member;

/// How long a job may take, with all kills during it.
const PATIENCE: Duration = Duration::from_secs(150);

/// A kind of job: how it is started, and the exit code with which it must end.
struct Kind {
    name: &'static str,
    code: i32,
    start: Box<dyn Fn(&Dvm) -> Call>,
    /// Whether all that it prints is determined, rank by rank.
    is_determined: bool,
}

fn kind(name: &'static str, code: i32, start: impl Fn(&Dvm) -> Call + 'static) -> Kind {
    Kind { name, code, start: Box::new(start), is_determined: code == 0 }
}

/// `rsctl run` with these options and this command line.
fn run(options: &'static str, argv: Vec<String>) -> impl Fn(&Dvm) -> Call {
    move |dvm| dvm.rsctl(["run", "-l"]).args(options.split_whitespace()).args(&argv)
}

fn script(text: &str) -> Vec<String> {
    vec!["sh".to_owned(), "-c".to_owned(), text.to_owned()]
}

/// The kinds of jobs with this MPI.
fn kinds(mpi: Mpi, spawning: Mpi) -> Vec<Kind> {
    let input: String = (0..60_000).map(|line| format!("line {line}\n")).collect();
    let cat = run("-n 2 --stdin 0", script("[ $RSD_RANK = 1 ] || exec cat"));
    let family = spawning.program("spawn.c");
    // On the head's node too, where its step outlives the daemon.
    let at = if spawning == Mpi::Ours { "node0" } else { "node1" };
    vec![
        kind("ring", 0, run("-n 6", vec![mpi.program("ring.c"), "20".to_owned()])),
        kind("flood", 0, run("-n 4", vec![plain("flood.c"), "20000".to_owned()])),
        kind(
            "slow lines",
            0,
            run("-n 3", script("for i in 1 2 3 4 5 6 7 8 9; do echo $RSD_RANK $i; sleep 0.15; done")),
        ),
        kind("failure", 7, run("-n 4", script("sleep 0.7; [ $RSD_RANK != 2 ] || exit 7; sleep 1"))),
        kind("time limit", 124, run("-n 2 --timeout 1s", script("exec sleep 100"))),
        kind("standard input", 0, move |dvm| cat(dvm).stdin(input.clone())),
        kind("spawn", 0, move |dvm| {
            // MPICH 5.0.2 hangs in collectives of jobs that share some nodes and not others, also under its own launcher.
            let call = dvm.rsctl(["run", "-l", "--host", at, "-n", "1", &family, "family"]);
            call.env("MPIR_CVAR_CH4_NETMOD", "ofi").env("MPIR_CVAR_NOLOCAL", "1")
        }),
        kind("exits at once", 0, run("-n 9 --oversubscribe", vec!["true".to_owned()])),
    ]
}

/// What each rank has printed, in order; and what was printed without a label.
fn told(ended: &Ended) -> BTreeMap<String, Vec<String>> {
    let mut told: BTreeMap<String, Vec<String>> = BTreeMap::new();
    for line in ended.out().lines() {
        let (label, rest) = line.split_once("] ").unwrap_or(("", line));
        // A spawned job has another number in every run.
        let label = label.trim_start_matches('[');
        let label = label.split_once('.').map_or(label.to_owned(), |(_, rank)| format!("spawned {rank}"));
        told.entry(label).or_default().push(rest.to_owned());
    }
    told
}

struct Random(u64);

impl Random {
    fn ms(&mut self, below: u64) -> Duration {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        Duration::from_millis((self.0 >> 33) % below)
    }
}

/// Kills the head `kills` times while jobs run.
fn campaign(mpi: Mpi, spawning: Mpi, kills: usize, seed: u64) {
    let mut dvm = Dvm::start_with(Options { nodes: 3, slots: 20, args: Vec::new() });
    let kinds = kinds(mpi, spawning);
    let undisturbed: Vec<_> = kinds
        .iter()
        .map(|kind| {
            let ended = (kind.start)(&dvm).deadline(PATIENCE).end();
            assert_eq!(ended.status.code(), Some(kind.code), "undisturbed: {}: {ended}", kind.name);
            told(&ended)
        })
        .collect();
    let hello = mpi.program("hello.c");
    let (mut random, mut killed, mut rounds) = (Random(seed), 0, 0);
    while killed < kills {
        rounds += 1;
        let running: Vec<Running> = kinds.iter().map(|kind| (kind.start)(&dvm).deadline(PATIENCE).start()).collect();
        let words = format!("g{rounds} --size 4");
        let members: Vec<Running> =
            (0..4).map(|at| member(&dvm, 1 + at % 2, &words, &[&hello]).deadline(PATIENCE).start()).collect();
        let detached = dvm.submit(["-n", "3", "sh", "-c", "seq 1 2000; sleep 0.5; seq 2001 4000"]);
        for _ in 0..10 {
            sleep(random.ms(350));
            dvm.kill(0);
            sleep(random.ms(120));
            dvm.restart(0);
            killed += 1;
        }
        for ((kind, running), expected) in kinds.iter().zip(running).zip(&undisturbed) {
            let ended = running.end();
            let name = kind.name;
            assert_eq!(ended.status.code(), Some(kind.code), "{name}, after {killed} kills: {ended}");
            if kind.is_determined {
                let told = told(&ended);
                let same = told == *expected;
                let counts = |told: &BTreeMap<String, Vec<String>>| {
                    told.iter().map(|(rank, lines)| format!("{rank}: {} lines", lines.len())).collect::<Vec<_>>()
                };
                assert!(same, "{name}, after {killed} kills: {:?}, not {:?}: {ended}", counts(&told), counts(expected));
            }
        }
        for member in members {
            member.end().ok();
        }
        dvm.rsctl(["wait", &detached]).deadline(PATIENCE).ok();
        for rank in 0..3 {
            let printed = dvm.rsctl(["logs", &format!("{detached}.{rank}")]).ok();
            let expected: String = (1..=4000).map(|line| format!("{line}\n")).collect();
            assert!(printed == expected, "rank {rank} of job {detached}: {} lines", printed.lines().count());
        }
    }
    // A node that has not reconnected to the restarted head yet still has to report that the last group's members have left.
    until_idle(&dvm);
    println!("{killed} kills of the head under {} jobs with {mpi:?}: none has noticed", rounds * (kinds.len() + 2));
}

#[test]
fn jobs_of_mpich_do_not_notice_kills_of_the_head() {
    campaign(Mpi::Debian, Mpi::Wheel, 100, 17);
}

#[test]
fn jobs_of_rsds_library_do_not_notice_kills_of_the_head() {
    campaign(Mpi::Ours, Mpi::Ours, 100, 42);
}

/// The step that begins on the head's node, the journal's record of the launch, and the order are at the same moment.
#[test]
fn the_head_is_killed_as_it_starts_ranks() {
    let mut dvm = Dvm::start_with(Options { nodes: 1, slots: 4, args: Vec::new() });
    let mut random = Random(5);
    for round in 0..60 {
        // The first submission after a restart finds no step in reserve, the second one does.
        if random.ms(2) == Duration::ZERO {
            dvm.rsctl(["run", "true"]).ok();
        }
        let call = dvm.rsctl(["run", "-n", "2", "sh", "-c", "echo $RSD_RANK; exit 3"]).deadline(PATIENCE).start();
        sleep(Duration::from_millis(3) + random.ms(3000) / 200);
        dvm.kill(0);
        dvm.restart(0);
        let ended = call.end();
        assert_eq!(ended.status.code(), Some(3), "round {round}: {ended}");
        let out = ended.out();
        let mut lines: Vec<&str> = out.lines().collect();
        lines.sort_unstable();
        assert_eq!(lines, ["0", "1"], "round {round}: {ended}");
    }
}
