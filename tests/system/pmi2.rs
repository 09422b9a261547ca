//! PMI-2, and the PMI libraries of rsd: programs that call PMI themselves, and Intel MPI over PMI-2.

use std::time::Duration;

use rsd_tests::{Call, Dvm, Options, Pmi, Running, eventually, hydra, intel, plain};

use crate::groups::member;
use crate::sorted;

const PMIS: [Pmi; 2] = [Pmi::Slurm, Pmi::Ours];

/// What the ranks of a program print.
pub(crate) fn right(what: &str, size: usize) -> Vec<String> {
    let mut lines: Vec<String> = (0..size).map(|rank| format!("{what}: rank {rank} of {size}: right")).collect();
    lines.sort_unstable();
    lines
}

fn run(dvm: &Dvm, n: usize, program: &str, words: &[&str]) -> Call {
    dvm.rsctl(["run", "-n", &n.to_string(), "--map-by", "node", program]).args(words)
}

#[test]
fn programs_exchange_values_names_and_places_over_pmi_2() {
    for nodes in [1, 3] {
        let dvm = Dvm::start_with(Options { nodes, slots: 6 / nodes as u32, args: Vec::new() });
        for pmi in PMIS {
            let program = pmi.program("pmi/pmi2.c");
            for what in ["all", "shmem"] {
                let printed = run(&dvm, 6, &program, &[what]).ok();
                assert_eq!(sorted(&printed), right(what, 6), "{pmi:?} on {nodes} nodes");
            }
            assert_eq!(sorted(&run(&dvm, 1, &program, &["all"]).ok()), right("all", 1), "{pmi:?}");
        }
    }
}

#[test]
#[ignore = "needs the plug-ins of NVSHMEM 3.8 or later (a wheel of 280 MB, but no GPU): RSD_TEST_NVSHMEM=DIRECTORY"]
fn nvshmem_bootstraps_over_pmi() {
    let plugins =
        std::env::var("RSD_TEST_NVSHMEM").expect("RSD_TEST_NVSHMEM names the directory of NVSHMEM's plug-ins");
    let program = plain("nvshmem_bootstrap.c");
    for nodes in [1, 2] {
        let dvm = Dvm::start_with(Options { nodes, slots: 8 / nodes as u32, args: Vec::new() });
        for kind in ["pmi", "pmi2", "mpi"] {
            let plugin = format!("{plugins}/nvshmem_bootstrap_{kind}.so.3");
            for n in [1, 2, 5, 8] {
                let expected: Vec<String> = (0..n).map(|rank| format!("rank {rank} of {n}")).collect();
                assert_eq!(sorted(&run(&dvm, n, &program, &[&plugin]).ok()), expected, "{kind} on {nodes} nodes");
            }
        }
    }
}

#[test]
fn jobs_are_spawned_over_pmi_2() {
    let dvm = Dvm::start_with(Options { nodes: 3, slots: 2, args: Vec::new() });
    for pmi in PMIS {
        let program = pmi.program("pmi/pmi2.c");
        let mut expected = [right("spawn", 2), right("child", 3)].concat();
        expected.sort_unstable();
        assert_eq!(sorted(&run(&dvm, 2, &program, &["spawn"]).ok()), expected, "{pmi:?}");
        assert_eq!(sorted(&run(&dvm, 1, &program, &["refused"]).ok()), right("refused", 1), "{pmi:?}");
    }
}

#[test]
fn an_abort_over_pmi_2_ends_the_job_with_its_code() {
    for nodes in [1, 3] {
        let dvm = Dvm::start_with(Options { nodes, slots: 6 / nodes as u32, args: Vec::new() });
        for pmi in PMIS {
            let said = run(&dvm, 3, &pmi.program("pmi/pmi2.c"), &["abort", "7"]).end().fails(7);
            assert!(said.contains("rank 1 on node"), "{pmi:?}: {said}");
            assert!(said.contains("called MPI_Abort with code 7"), "{pmi:?}: {said}");
        }
    }
}

#[test]
fn a_rank_that_dies_between_pmi_2_init_and_finalize_ends_the_job() {
    for nodes in [1, 3] {
        let dvm = Dvm::start_with(Options { nodes, slots: 6 / nodes as u32, args: Vec::new() });
        for pmi in PMIS {
            let said = run(&dvm, 3, &pmi.program("pmi/pmi2.c"), &["die"]).end().fails(128 + 9);
            assert!(said.contains("was killed by SIGKILL"), "{pmi:?}: {said}");
        }
    }
}

#[test]
fn a_rank_that_waits_for_a_value_of_its_node_learns_that_none_will_come() {
    let dvm = Dvm::start(1);
    for pmi in PMIS {
        let printed = run(&dvm, 3, &pmi.program("pmi/pmi2.c"), &["alone", "1"]).ok();
        assert_eq!(sorted(&printed), right("alone", 3), "{pmi:?}");
    }
}

#[test]
fn a_daemon_is_killed_and_restarted_under_ranks_of_pmi_2() {
    let mut dvm = Dvm::start_with(Options { nodes: 3, slots: 2, args: Vec::new() });
    for (at, pmi) in PMIS.into_iter().enumerate() {
        let gate = dvm.scratch().join(format!("gate{at}")).display().to_string();
        let job = run(&dvm, 6, &pmi.program("pmi/pmi2.c"), &["all", &gate]).start();
        job.until_stdout(|out| out.contains("waiting").then_some(()));
        for node in [2, 1] {
            dvm.kill(node);
            dvm.restart(node);
        }
        assert!(job.runs());
        dvm.file(&format!("gate{at}"), "");
        let printed = job.end().ok();
        let lines: Vec<String> =
            sorted(&printed).into_iter().map(str::to_owned).filter(|line| line != "waiting").collect();
        assert_eq!(lines, right("all", 6), "{pmi:?}");
    }
}

#[test]
fn members_of_a_group_speak_pmi_2() {
    let dvm = Dvm::start(2);
    for pmi in PMIS {
        let program = pmi.program("pmi/pmi2.c");
        for (epoch, what) in ["all", "shmem"].into_iter().enumerate() {
            let start = |at: usize| member(&dvm, at % 2, &format!("{pmi:?} --size 4"), &[&program, what]).start();
            let members: Vec<_> = (0..4).map(start).collect();
            let mut printed: Vec<String> =
                members.into_iter().map(|member| member.end().ok().trim().to_owned()).collect();
            printed.sort_unstable();
            assert_eq!(printed, right(what, 4), "{pmi:?}, epoch {epoch}");
        }
    }
}

#[test]
fn the_fence_of_members_fails_over_pmi_2_when_one_of_them_dies() {
    let dvm = Dvm::start(2);
    for pmi in PMIS {
        let program = pmi.program("pmi/pmi2.c");
        let start = |at: usize| {
            let words = format!("{pmi:?} --size 3 --rank {at}");
            member(&dvm, at % 2, &words, &[&program, "die"]).start()
        };
        let members: Vec<_> = (0..3).map(start).collect();
        let ended: Vec<_> = members.into_iter().map(Running::end).collect();
        assert!(!ended[1].status.success(), "{}", ended[1]);
        for other in [0, 2] {
            assert_eq!(ended[other].out(), format!("die: rank {other} of 3: right\n"), "{pmi:?}: {}", ended[other]);
        }
        assert!(dvm.ctl("wait last").end().fails(1).contains("ended without MPI_Finalize"), "{pmi:?}");
    }
}

#[test]
fn intel_mpi_runs_over_pmi_2() {
    let (interpreter, library) = intel();
    // The library is mapped only if it is used: Intel MPI has a client of PMI-1 itself.
    const SCRIPT: &str = r#"
import os
from mpi4py import MPI
world = MPI.COMM_WORLD
total = world.allreduce(world.rank)
used = os.path.realpath(os.environ["I_MPI_PMI_LIBRARY"]) in open("/proc/self/maps").read()
print(f"rank {world.rank} of {world.size} on {os.environ['RSD_NODE_NAME']}, sum {total}, used {used}", flush=True)
"#;
    for nodes in [1, 3] {
        let dvm = Dvm::start_with(Options { nodes, slots: 6 / nodes as u32, args: Vec::new() });
        for pmi in PMIS {
            let job = dvm.rsctl(["run", "-n", "6", "--map-by", "node"]).args([&interpreter]).args(["-c", SCRIPT]);
            let job = job.env("LD_LIBRARY_PATH", &library).env("I_MPI_PMI", "pmi2");
            let printed = job.env("I_MPI_PMI_LIBRARY", pmi.library("libpmi2.so.0")).ok();
            let line = |rank| format!("rank {rank} of 6 on node{}, sum 15, used True", rank % nodes);
            let expected: Vec<String> = (0..6).map(line).collect();
            assert_eq!(sorted(&printed), expected, "{pmi:?} on {nodes} nodes");
        }
    }
}

#[test]
fn programs_exchange_values_names_and_places_over_the_pmi_1_library() {
    for nodes in [1, 3] {
        let dvm = Dvm::start_with(Options { nodes, slots: 6 / nodes as u32, args: Vec::new() });
        // Slurm's own library asks Slurm's daemons; its header describes ours too.
        for program in [Pmi::Ours.program("pmi/pmi.c"), Pmi::OursWithSlurmsHeader.program("pmi/pmi.c")] {
            assert_eq!(sorted(&run(&dvm, 5, &program, &["all"]).ok()), right("all", 5), "on {nodes} nodes");
            assert_eq!(sorted(&run(&dvm, 1, &program, &["all"]).ok()), right("all", 1));
            let mut expected = [right("spawn", 2), right("child", 3)].concat();
            expected.sort_unstable();
            assert_eq!(sorted(&run(&dvm, 2, &program, &["spawn"]).ok()), expected);
            let said = run(&dvm, 3, &program, &["abort", "7"]).end().fails(7);
            assert!(said.contains("called MPI_Abort with code 7"), "{said}");
        }
    }
}

#[test]
fn the_pmi_libraries_work_without_a_launcher_and_under_another_one() {
    let dvm = Dvm::start(1);
    let (one, two) = (Pmi::Ours.program("pmi/pmi.c"), Pmi::Ours.program("pmi/pmi2.c"));
    assert_eq!(dvm.call(&one).args(["some"]).ok(), "some: rank 0 of 1: right\n");
    assert_eq!(dvm.call(&two).args(["exchange"]).ok(), "exchange: rank 0 of 1: right\n");
    let printed = dvm.call(hydra()).args(["-n", "3", &one, "some"]).ok();
    assert_eq!(sorted(&printed), right("some", 3));
    let printed = dvm.call(hydra()).args(["-n", "3", &two, "exchange"]).ok();
    assert_eq!(sorted(&printed), right("exchange", 3));
}

#[test]
fn a_member_that_never_presents_its_id_in_pmi_2_keeps_no_other_out() {
    use std::io::{Read, Write};

    let dvm = Dvm::start(1);
    let gate = dvm.scratch().join("gate").display().to_string();
    let script = format!("echo port $PMI_PORT; while ! test -e {gate}; do sleep 0.02; done; exec \"$@\"");
    let program = Pmi::Slurm.program("pmi/pmi2.c");
    let start = |_| member(&dvm, 0, "actors --size 2", &["sh", "-c", &script, "sh", &program, "exchange"]).start();
    let members: Vec<_> = (0..2).map(start).collect();
    let port = members[0].until_stdout(|out| out.trim().strip_prefix("port ").map(str::to_owned));
    let mut strangers = Vec::new();
    for words in [&b"cmd=init pmi_version=2 pmi_subversion=0\n"[..], b"    30cmd=fullinit;pmirank=1;srcid=1;"] {
        let mut stream = std::net::TcpStream::connect(&port).expect("the step listens");
        stream.write_all(words).expect("the step reads");
        strangers.push(stream);
    }
    strangers[0].write_all(b"    30cmd=fullinit;pmirank=1;srcid=1;").expect("the step reads");
    dvm.file("gate", "");
    for member in members {
        assert!(member.end().ok().contains(": right\n"));
    }
    // One got the answer to its line; then both were closed.
    let mut answers = Vec::new();
    for mut stream in strangers {
        stream.set_read_timeout(Some(Duration::from_secs(20))).expect("a socket has a timeout");
        let mut text = String::new();
        let _ = stream.read_to_string(&mut text);
        answers.push(text);
    }
    assert_eq!(answers, ["cmd=response_to_init pmi_version=2 pmi_subversion=0 rc=0\n", ""]);
    eventually("the group's job has ended", Duration::from_secs(20), || {
        dvm.ctl("wait last").end().status.success().then_some(())
    });
}
