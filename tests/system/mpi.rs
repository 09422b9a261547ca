//! Real MPI programs with two generations of MPICH, in C and in Python, on one node and on four.

use rsd_tests::{Dvm, Mpi, Options, python};

use crate::{MPIS, sorted};

#[test]
fn every_rank_has_the_right_rank_node_and_local_rank() {
    for nodes in [1, 4] {
        let dvm = Dvm::start_with(Options { nodes, slots: 8 / nodes as u32, args: Vec::new() });
        for mpi in MPIS {
            let printed = dvm.rsctl(["run", "-n", "8", &mpi.program("hello.c")]).ok();
            let per_node = 8 / nodes;
            let expected: Vec<String> = (0..8)
                .map(|rank| {
                    let (node, local) = (rank / per_node, rank % per_node);
                    format!("rank {rank} of 8 on node{node}, local {local} of {per_node}")
                })
                .collect();
            assert_eq!(sorted(&printed), expected, "{mpi:?} on {nodes} nodes");
        }
    }
}

#[test]
fn ranks_mapped_by_node_share_memory_within_their_node() {
    let dvm = Dvm::start(2);
    for mpi in MPIS {
        let printed = dvm.rsctl(["run", "-n", "5", "--map-by", "node", &mpi.program("hello.c")]).ok();
        let expected = [
            "rank 0 of 5 on node0, local 0 of 3",
            "rank 1 of 5 on node1, local 0 of 2",
            "rank 2 of 5 on node0, local 1 of 3",
            "rank 3 of 5 on node1, local 1 of 2",
            "rank 4 of 5 on node0, local 2 of 3",
        ];
        assert_eq!(sorted(&printed), expected, "{mpi:?}");
    }
}

#[test]
fn messages_and_collectives_are_correct_on_one_node() {
    messages_and_collectives(1);
}

#[test]
fn messages_and_collectives_are_correct_on_four_nodes() {
    messages_and_collectives(4);
}

fn messages_and_collectives(nodes: usize) {
    let dvm = Dvm::start_with(Options { nodes, slots: 4 / nodes as u32, args: Vec::new() });
    for mpi in MPIS {
        let run = |program: &str, arg: &str| dvm.rsctl(["run", "-n", "4", &mpi.program(program), arg]).ok();
        assert_eq!(run("ring.c", "20"), "token 80\n", "{mpi:?}");
        assert_eq!(run("collectives.c", ""), "collectives right on 4 ranks\n", "{mpi:?}");
        assert_eq!(run("large.c", "20000000"), "20000000 bytes right on 4 ranks\n", "{mpi:?}");
    }
}

#[test]
fn one_rank_is_a_world_of_one() {
    let dvm = Dvm::start(1);
    for mpi in MPIS {
        assert_eq!(dvm.rsctl(["run", "--host", "node0:1", &mpi.program("ring.c")]).ok(), "token 3\n");
        let printed = dvm.rsctl(["run", "-n", "1", &mpi.program("hello.c")]).ok();
        assert_eq!(printed, "rank 0 of 1 on node0, local 0 of 1\n");
    }
}

#[test]
fn sixteen_ranks_on_four_nodes_run_collectives() {
    let dvm = Dvm::start(4);
    for mpi in MPIS {
        let printed = dvm.rsctl(["run", "-n", "16", &mpi.program("collectives.c")]).ok();
        assert_eq!(printed, "collectives right on 16 ranks\n", "{mpi:?}");
    }
}

#[test]
fn sixty_four_oversubscribed_ranks_have_the_right_places() {
    let dvm = Dvm::start(4);
    for mpi in MPIS {
        let printed = dvm.rsctl(["run", "-n", "64", "--oversubscribe", &mpi.program("hello.c")]).ok();
        let expected: Vec<String> =
            (0..64).map(|rank| format!("rank {rank} of 64 on node{}, local {} of 16", rank / 16, rank % 16)).collect();
        let mut lines: Vec<&str> = printed.lines().collect();
        lines.sort_by_key(|line| line.split(' ').nth(1).and_then(|rank| rank.parse::<u32>().ok()));
        assert_eq!(lines, expected, "{mpi:?}");
    }
}

#[test]
fn several_programs_are_one_world() {
    let dvm = Dvm::start(2);
    for mpi in MPIS {
        let program = mpi.program("mpmd.c");
        let line = ["run", "-n", "2", &program, "master", ":", "-n", "3", &program, "worker", ":", &program, "last"];
        let printed = dvm.rsctl(line).ok();
        let expected =
            ["0 master 0", "1 master 0", "2 worker 1", "3 worker 1", "4 worker 1", "5 last 2", "6 last 2", "7 last 2"];
        assert_eq!(printed.lines().collect::<Vec<_>>(), expected, "{mpi:?}");
    }
}

#[test]
fn programs_with_different_mpi_libraries_are_refused_before_they_start() {
    let dvm = Dvm::start(2);
    let ours = Mpi::Ours.program("hello.c");
    // The second has a library of the same name as rsd's.
    for theirs in [Mpi::Debian.program("hello.c"), Mpi::WheelAbi.program("hello.c")] {
        for (first, second) in [(&ours, &theirs), (&theirs, &ours)] {
            for host in ["node0", "node1"] {
                let line = ["run", "-n", "1", "--host", "node0", first, ":", "-n", "1", "--host", host, second];
                let refused = dvm.rsctl(line).end();
                assert_eq!(refused.out(), "");
                let said = refused.fails(247);
                for words in [
                    " failed: rank ",
                    &format!("program {ours} uses rsd's MPI library (/"),
                    &format!("program {theirs} uses another one (/"),
                    "all programs of a job must use the same MPI library",
                ] {
                    assert!(said.contains(words), "{words:?} is not in\n{said}");
                }
            }
        }
    }
    // What the loader finds counts, not what the programs were built with.
    let theirs = Mpi::WheelAbi.program("hello.c");
    let line = ["run", "-n", "1", &ours, ":", "-n", "1", &theirs];
    let same = dvm.rsctl(line).env("LD_LIBRARY_PATH", Mpi::Ours.library_folder()).ok();
    assert_eq!(sorted(&same), ["rank 0 of 2 on node0, local 0 of 2", "rank 1 of 2 on node0, local 1 of 2"]);
}

#[test]
fn several_programs_run_on_their_own_hosts() {
    let dvm = Dvm::start(2);
    let program = Mpi::Wheel.program("hello.c");
    let line = ["run", "-n", "2", "--host", "node1", &program, ":", "-n", "1", "--host", "node0", &program];
    let printed = dvm.rsctl(line).ok();
    let expected = [
        "rank 0 of 3 on node1, local 0 of 2",
        "rank 1 of 3 on node1, local 1 of 2",
        "rank 2 of 3 on node0, local 0 of 1",
    ];
    assert_eq!(sorted(&printed), expected);
}

#[test]
fn mpi4py_runs() {
    let dvm = Dvm::start_with(Options { nodes: 4, slots: 1, args: Vec::new() });
    for (script, expected) in
        [("allreduce.py", "allreduce right on 4 ranks\n"), ("alltoall.py", "alltoall right on 4 ranks\n")]
    {
        assert_eq!(dvm.rsctl(["run"]).args(python(script)).ok(), expected);
    }
    let printed = dvm.rsctl(["run", "-n", "2"]).args(python("hello.py")).ok();
    assert_eq!(sorted(&printed), ["rank 0 of 2 on node0", "rank 1 of 2 on node1"]);
}

#[test]
fn worlds_that_run_side_by_side_are_separate() {
    let dvm = Dvm::start(2);
    let program = Mpi::Wheel.program("collectives.c");
    let jobs: Vec<_> = (0..4).map(|_| dvm.rsctl(["run", "-n", "2", &program]).start()).collect();
    for job in jobs {
        assert_eq!(job.end().ok(), "collectives right on 2 ranks\n");
    }
}

#[test]
fn a_rank_can_run_another_job() {
    let dvm = Dvm::start(2);
    let rsctl = rsd_tests::built::rsctl().display().to_string();
    let inner = format!("{rsctl} run -n 2 {}", Mpi::Debian.program("ring.c"));
    // Without RSD_RUNTIME_DIR, only RSD_DVM names the DVM.
    let printed = dvm.rsctl(["run", "-n", "1", "env", "-u", "RSD_RUNTIME_DIR", "sh", "-c", &inner]).ok();
    assert_eq!(printed, "token 6\n");
}
