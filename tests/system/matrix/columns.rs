//! What is tried with every MPI on one machine.

use std::time::Duration;

use rsd_tests::{client, eventually, script};

use super::Trial;
use crate::groups::{all_ok, hello_lines, member};
use crate::sorted;

/// One column of the table.
pub(super) struct Column {
    pub(super) name: &'static str,
    /// The number of daemons.
    pub(super) nodes: usize,
    /// Panics if it fails.
    pub(super) run: fn(Trial<'_>),
}

/// In the table's order; those with one daemon first.
pub(super) const COLUMNS: [Column; 11] = [
    Column { name: "hello", nodes: 1, run: hello },
    Column { name: "ring", nodes: 1, run: ring },
    Column { name: "allreduce", nodes: 1, run: allreduce },
    Column { name: "mpi4py", nodes: 1, run: mpi4py },
    Column { name: "abort", nodes: 1, run: abort },
    Column { name: "death", nodes: 1, run: death },
    Column { name: "spawn", nodes: 1, run: spawn },
    Column { name: "connect", nodes: 1, run: connect },
    Column { name: "session", nodes: 1, run: session },
    Column { name: "group", nodes: 2, run: group },
    Column { name: "restart", nodes: 2, run: restart },
];

/// Every rank knows its number, its node and its place on it.
fn hello(trial: Trial<'_>) {
    let printed = trial.rsctl(["run", "-n", "4", &trial.mpi.program("hello.c")]).ok();
    assert_eq!(sorted(&printed), hello_lines(1, 4));
}

fn ring(trial: Trial<'_>) {
    assert_eq!(trial.rsctl(["run", "-n", "4", &trial.mpi.program("ring.c"), "20"]).ok(), "token 80\n");
}

/// Collectives, and messages that are longer than any buffer.
fn allreduce(trial: Trial<'_>) {
    let run = |program: &str, arg: &str| trial.rsctl(["run", "-n", "4", &trial.mpi.program(program), arg]).ok();
    assert_eq!(run("collectives.c", ""), "collectives right on 4 ranks\n");
    assert_eq!(run("large.c", "5000000"), "5000000 bytes right on 4 ranks\n");
}

fn mpi4py(trial: Trial<'_>) {
    assert_eq!(python(&trial, 3, &[]), "world right on 3\n");
}

fn python(trial: &Trial<'_>, ranks: usize, words: &[&str]) -> String {
    let python = trial.mpi.python().unwrap_or_else(|| panic!("{:?} has no mpi4py", trial.mpi));
    let run = ["run".to_owned(), "-n".to_owned(), ranks.to_string(), python.display().to_string(), script("world.py")];
    trial.rsctl(run.iter().map(String::as_str).chain(words.iter().copied())).ok()
}

/// The code of `MPI_Abort` is the job's, and the rank is named.
fn abort(trial: Trial<'_>) {
    let said = trial.rsctl(["run", "-n", "4", &trial.mpi.program("ends.c"), "abort", "2"]).fails(7);
    assert!(said.contains("rank 2 on node0 called MPI_Abort with code 7"), "{said}");
}

/// A rank that is killed, or leaves without `MPI_Finalize`, ends the job and is named.
fn death(trial: Trial<'_>) {
    for (how, code, told) in [
        ("segv", 139, "was killed by SIGSEGV"),
        ("exit3", 3, "exited with code 3"),
        ("exit0", 1, "exited with code 0"),
        ("finalize5", 5, "exited with code 5"),
    ] {
        let said = trial.rsctl(["run", "-n", "4", &trial.mpi.program("ends.c"), how, "1"]).fails(code);
        assert!(said.contains(&format!("rank 1 on node0 {told}")), "{how}: {said}");
    }
}

/// Two programs as one job, merged with their parents; and one that cannot run.
fn spawn(trial: Trial<'_>) {
    let program = trial.mpi.program("spawn.c");
    let printed = trial.rsctl(["run", "-n", "2", &program, "family"]).ok();
    let mut expected = vec!["child of 2"; 5];
    expected.push("family of 7");
    assert_eq!(sorted(&printed), expected);
    // With several ranks in Open MPI 4.1, only the root of a spawn gets the error; the others hang.
    assert_eq!(trial.rsctl(["run", "-n", "1", &program, "refused", "1", "./nowhere"]).ok(), "refused\n");
    if trial.mpi.python().is_some() {
        assert_eq!(python(&trial, 2, &["spawn"]), "spawned right from 2\n");
    }
}

/// Two jobs find each other by a published name, and by a port that they pass in a file.
fn connect(trial: Trial<'_>) {
    let program = trial.mpi.program("names.c");
    let file = trial.dvm.scratch().join(format!("port of {:?}", trial.mpi)).display().to_string();
    for name in ["ocean", &file] {
        let accepting = trial.rsctl(["run", "-n", "2", &program, "hold", name, "2"]).start();
        accepting.until_stdout(|out| out.contains("published").then_some(()));
        let connecting = trial.rsctl(["run", "-n", "3", &program, "connect", name, "2"]);
        assert_eq!(connecting.ok(), "names ok on 3\n", "{name}");
        assert_eq!(accepting.end().ok(), "published\nnames ok on 2\n", "{name}");
    }
}

fn session(trial: Trial<'_>) {
    assert_eq!(trial.rsctl(["run", "-n", "4", &trial.mpi.program("session.c")]).ok(), "session right on 4\n");
}

/// Processes that rsd did not start become one world: by `rsctl group exec`, and by `rsd_join.h`.
fn group(trial: Trial<'_>) {
    let program = trial.mpi.program("hello.c");
    let start = |at: usize| trial.with(member(trial.dvm, at % 2, "actors --size 4", &[&program])).start();
    assert_eq!(all_ok((0..4).map(start).collect()), hello_lines(2, 2));

    let include = format!("-I{}", client("include").display());
    let program = trial.mpi.program_with("join.c", &[&include]);
    let start = |at: usize| {
        let call = trial.dvm.call(&program).dir(trial.dvm.scratch()).env("RSD_DVM", trial.dvm.state_dir(at % 2));
        trial.with(call).args(["critics", "4", "60"]).start()
    };
    assert_eq!(all_ok((0..4).map(start).collect()), hello_lines(2, 2));
}

/// A daemon dies and returns: while its ranks compute, and while they wait in `MPI_Init` for a rank on the other node.
fn restart(trial: Trial<'_>) {
    const WITHIN: Duration = Duration::from_secs(30);
    let gate = |name: &str| trial.dvm.scratch().join(name).display().to_string();
    let [computing, entering] = ["computing", "entering"].map(gate);
    let run = ["run", "-n", "4", "--map-by", "node"];
    let gated = trial.mpi.program("gated.c");
    let job = trial.rsctl(run.into_iter().chain([&*gated, &computing])).start();
    job.until_stdout(|out| out.contains("computing").then_some(()));
    trial.dvm.kill(1);
    trial.dvm.restart(1);
    trial.dvm.file("computing", "");
    let right: Vec<String> = (0..4).map(|rank| format!("rank {rank}: right")).collect();
    let printed = job.end().ok();
    assert_eq!(sorted(&printed)[1..], right, "computing");

    let late = trial.mpi.program("late_init.c");
    let job = trial.rsctl(run.into_iter().chain([&*late, &entering])).start();
    job.until_stdout(|out| (out.matches("entering").count() == 3).then_some(()));
    trial.dvm.kill(1);
    trial.dvm.restart(1);
    eventually("both nodes are up", WITHIN, || {
        let nodes = trial.dvm.json("nodes");
        nodes["nodes"].as_array()?.iter().all(|node| node["state"] == "up").then_some(())
    });
    trial.dvm.file("entering", "");
    assert!(job.end().ok().contains("4 ranks met"), "entering");
}
