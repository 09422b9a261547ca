//! `RSD_MPI_CHECK`: what the MPI library finds in programs with one fault, and that it finds nothing in programs without.

use rsd_tests::{Dvm, Options};

use crate::library::ours;
use crate::sorted;

#[test]
fn a_process_that_checks_finds_each_fault_and_no_other() {
    for nodes in [1, 2] {
        let dvm = Dvm::start_with(Options { nodes, slots: 4, args: Vec::new() });
        let run = |n: &str, what: &str| {
            dvm.rsctl([
                "run",
                "-n",
                n,
                "--map-by",
                "node",
                "--bind-to",
                "none",
                "-x",
                "RSD_MPI_CHECK=1",
                &ours("checked"),
                what,
            ])
            .end()
        };
        for n in ["1", "2", "3", "4"] {
            let ended = run(n, "nothing");
            assert_eq!(
                (ended.out().as_str(), ended.err().as_str()),
                (format!("checked ok on {n}\n").as_str(), ""),
                "{ended}"
            );
        }
        for (fault, one, other) in [
            ("function", "MPI_Bcast with root 0, 4 bytes of MPI_INT", "MPI_Barrier"),
            ("root", "MPI_Bcast with root 0, 4 bytes of MPI_INT", "MPI_Bcast with root 1, 4 bytes of MPI_INT"),
            ("count", "MPI_Bcast with root 0, 4 bytes of MPI_INT", "MPI_Bcast with root 0, 8 bytes of MPI_INT"),
            (
                "operation",
                "MPI_Allreduce of 4 bytes of MPI_INT with MPI_SUM",
                "MPI_Allreduce of 4 bytes of MPI_INT with MPI_MAX",
            ),
            ("datatype", "MPI_Bcast with root 0, 4 bytes of MPI_INT", "MPI_Bcast with root 0, 4 bytes of MPI_FLOAT"),
            ("constructor", "MPI_Comm_dup", "MPI_Comm_split"),
            ("form", "MPI_Barrier", "MPI_Ibarrier"),
        ] {
            for n in ["2", "4"] {
                let ended = run(n, fault);
                let said = ended.err();
                assert!(!ended.status.success(), "{fault}\n{ended}");
                let sides = [(one, other), (other, one)].map(|(mine, theirs)| {
                    said.contains("unmatched collective calls: rank ")
                        && said.contains(&format!(" calls {mine}, and rank "))
                        && said.contains(&format!(" calls {theirs}\n"))
                });
                assert!(sides.contains(&true), "{fault}\n{ended}");
            }
        }
    }
}

#[test]
fn a_process_that_checks_lists_what_is_left_at_the_end() {
    let dvm = Dvm::start(1);
    let line = ["run", "-n", "2", "-x", "RSD_MPI_CHECK=1", &ours("checked"), "leaks"];
    let ended = dvm.rsctl(line).end();
    assert_eq!(ended.out(), "checked ok on 2\n", "{ended}");
    for rank in [0, 1] {
        let start = format!("MPI check on rank {rank} of job 1: MPI_Finalize: ");
        let said = ended.err();
        let lines: Vec<&str> = said.lines().filter_map(|line| line.strip_prefix(&start)).collect();
        let expected = [
            "2 requests of MPI_Irecv were not completed or freed",
            "1 request of MPI_Isend was not completed or freed",
            "1 request of MPI_Recv_init was not completed or freed",
            "2 communicators of MPI_Comm_dup were not freed",
            "1 window of MPI_Win_create was not freed",
            "1 group of MPI_Comm_group was not freed",
            "1 datatype of MPI_Type_contiguous was not freed",
            "1 datatype of MPI_Type_vector was not freed",
            "1 operation of MPI_Op_create was not freed",
            "1 info object of MPI_Info_create was not freed",
            &format!("1 message of 4 bytes from rank {rank} with tag 97 was not received"),
            &format!("1 message of 12 bytes from rank {rank} with tag 95 was not received"),
        ];
        assert_eq!(sorted(&lines.join("\n")), sorted(&expected.join("\n")), "{ended}");
    }
    // Without the variable it says nothing.
    let silent = dvm.rsctl(["run", "-n", "2", &ours("checked"), "leaks"]).end();
    assert_eq!((silent.out().as_str(), silent.err().as_str()), ("checked ok on 2\n", ""), "{silent}");
}

#[test]
fn programs_without_faults_pass_while_they_are_checked() {
    let programs = [
        "p2p",
        "requests",
        "datatypes",
        "comms",
        "more",
        "intercomms",
        "collectives",
        "topologies",
        "windows",
        "partitioned",
    ];
    for nodes in [1, 2] {
        let dvm = Dvm::start_with(Options { nodes, slots: 3, args: Vec::new() });
        for name in programs {
            let line = ["run", "-n", "3", "--map-by", "node", "-x", "RSD_MPI_CHECK=1", &ours(name), "few"];
            assert_eq!(dvm.rsctl(line).end().ok(), format!("{name} ok on 3\n"), "{nodes} nodes");
        }
    }
}
