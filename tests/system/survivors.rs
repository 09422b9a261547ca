//! Jobs that continue after the loss of a node.

use std::fs;
use std::sync::atomic::{AtomicU32, Ordering};

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use rsd_tests::{Dvm, Mpi, Options, processes};

use crate::sorted;

/// Returns a DVM whose head counts a node as lost after two seconds.
fn impatient(nodes: usize) -> Dvm {
    static NUMBER: AtomicU32 = AtomicU32::new(0);
    let name = format!("rsd-impatient-{}-{}.toml", std::process::id(), NUMBER.fetch_add(1, Ordering::Relaxed));
    let path = std::env::temp_dir().join(name);
    fs::write(&path, "[link]\nreattach_grace = \"2s\"\n").expect("the temporary directory is writable");
    let options = Options { nodes, slots: 1, args: Vec::new() };
    // The file stays: step processes read it, too, whenever they start.
    Dvm::start_in(options, &[("RSD_CONFIG", path.to_str().expect("the path is UTF-8"))])
}

/// Ends everything on a node at once, as a power failure does.
fn lose(dvm: &mut Dvm, at: usize, rank: i32) {
    let step = processes::parent(rank).expect("the rank has a step");
    for pid in [dvm.pid(at), step, rank] {
        kill(Pid::from_raw(pid), Signal::SIGSTOP).expect("the process runs");
    }
    for pid in [rank, step] {
        kill(Pid::from_raw(pid), Signal::SIGKILL).expect("the process runs");
    }
    dvm.kill(at);
}

/// Returns the pid that a rank has printed.
fn pid_of(rank: u32, out: &str) -> Option<i32> {
    let line = out.lines().find_map(|line| line.strip_prefix(&format!("rank {rank} has pid ")))?;
    line.parse().ok()
}

#[test]
fn ranks_of_a_lost_node_fail_what_depends_on_them_and_nothing_else() {
    let mut dvm = impatient(4);
    let program = Mpi::Ours.program("mpi/node_loss.c");
    let job = dvm.rsctl(["run", "-n", "4", "--on-node-loss", "continue", &program]).start();
    let rank = job.until_stdout(|out| (0..4).all(|rank| pid_of(rank, out).is_some()).then(|| pid_of(3, out))).unwrap();
    lose(&mut dvm, 3, rank);
    let ended = job.end();
    let (said, printed) = (ended.err(), ended.ok());
    for rank in 0..3 {
        assert!(printed.contains(&format!("rank {rank} has survived\n")), "{printed}");
        let error =
            printed.lines().find(|line| line.starts_with(&format!("rank {rank}: ")) && line.contains("MPI_Recv"));
        assert!(error.is_some_and(|line| line.contains("rank 3")), "{printed}");
    }
    assert!(
        said.contains("rank 3 is lost (its node node3 was unreachable for 2 s); the other ranks continue"),
        "{said}"
    );
    assert!(said.contains("job 1 is done without rank 3, which was lost (its node node3 was unreachable"), "{said}");
    let info = &dvm.json("job show 1");
    assert_eq!((&info["state"], &info["exit_code"]), (&"done".into(), &0.into()));
    assert_eq!((&info["exits"][0]["rank"], &info["exits"][0]["fatal"]), (&3.into(), &false.into()));
}

#[test]
fn without_the_option_the_loss_of_a_node_ends_the_job() {
    let mut dvm = impatient(2);
    let program = Mpi::Ours.program("mpi/node_loss.c");
    let job = dvm.rsctl(["run", "-n", "2", &program]).start();
    let rank = job.until_stdout(|out| (0..2).all(|rank| pid_of(rank, out).is_some()).then(|| pid_of(1, out))).unwrap();
    lose(&mut dvm, 1, rank);
    let said = job.end().err();
    assert!(said.contains("job 1 failed: rank"), "{said}");
}

#[test]
fn ranks_that_have_died_fail_what_depends_on_them_and_nothing_else() {
    for nodes in [1, 2, 4] {
        let dvm = Dvm::start_with(Options { nodes, slots: 4 / nodes as u32, args: Vec::new() });
        let program = Mpi::Ours.program("mpi/node_loss.c");
        let job = dvm.rsctl(["run", "-n", "4", "--on-rank-loss", "continue", &program]).start();
        let all = |out: &str| (0..4).all(|rank| pid_of(rank, out).is_some()).then(|| pid_of(3, out));
        let rank = job.until_stdout(all).unwrap();
        kill(Pid::from_raw(rank), Signal::SIGKILL).expect("the process runs");
        let ended = job.end();
        let (said, printed) = (ended.err(), ended.ok());
        for rank in 0..3 {
            assert!(printed.contains(&format!("rank {rank} has survived\n")), "{nodes} nodes: {printed}");
            let error =
                printed.lines().find(|line| line.starts_with(&format!("rank {rank}: ")) && line.contains("MPI_Recv"));
            assert!(error.is_some_and(|line| line.contains("rank 3")), "{nodes} nodes: {printed}");
        }
        assert!(said.contains("rank 3 was killed by signal 9; the other ranks continue (--on-rank-loss"), "{said}");
        assert!(said.contains("job 1 is done without rank 3, which was lost (rank 3 on node"), "{said}");
        let info = &dvm.json("job show 1");
        assert_eq!((&info["state"], &info["exit_code"]), (&"done".into(), &0.into()));
        let exit = &info["exits"][0];
        assert_eq!((&exit["rank"], &exit["fatal"], &exit["lost"]), (&3.into(), &false.into(), &true.into()));
    }
}

/// Fault-tolerant Open MPI hears from its PMIx server which processes have died.
#[test]
fn open_mpi_shrinks_its_world_after_ranks_have_died() {
    let program = Mpi::OpenMpi5.program("ulfm.c");
    for nodes in [1, 2, 5] {
        let dvm = Dvm::start_with(Options { nodes, slots: 6_u32.div_ceil(nodes as u32), args: Vec::new() });
        let call = dvm.rsctl(["run", "-n", "5", "--map-by", "node", "--on-rank-loss", "continue", &program]);
        let call = call.env("OMPI_MCA_mpi_ft_enable", "1").env("OMPI_MCA_btl_tcp_if_include", "lo");
        let right: String = [0, 2, 3].map(|rank| format!("rank {rank}: 3 are left, sum 3\n")).concat();
        let printed = call.ok();
        assert_eq!(sorted(&printed).join("\n") + "\n", right, "{nodes} nodes");
    }
}

#[test]
fn a_wait_for_a_window_ends_when_a_member_dies() {
    let dvm = Dvm::start_with(Options { nodes: 1, slots: 3, args: Vec::new() });
    for what in ["lock", "fence", "start", "wait"] {
        let program = Mpi::Ours.program("mpi/window_loss.c");
        let printed = dvm.rsctl(["run", "-n", "3", "--on-rank-loss", "continue", &program, what]).ok();
        let right: String = (0..2).map(|rank| format!("rank {rank}: the loss is an error\n")).collect();
        assert_eq!(sorted(&printed).join("\n") + "\n", right, "{what}");
    }
}

/// Runs `recovery.c` on so many ranks, of which `left` survive.
fn recovers(dvm: &Dvm, ranks: usize, mode: &[&str], left: usize) {
    let (n, program) = (ranks.to_string(), Mpi::Ours.program("mpi/recovery.c"));
    let mut line = vec!["run", "-n", &n, "--map-by", "node", "--on-rank-loss", "continue", &program];
    line.extend(mode);
    assert_eq!(dvm.rsctl(line).ok(), format!("{} ok: {left} of {ranks} are left\n", mode[0]), "{mode:?}");
}

fn with_nodes(nodes: usize, ranks: usize) -> Dvm {
    Dvm::start_with(Options { nodes, slots: ranks.div_ceil(nodes) as u32, args: Vec::new() })
}

#[test]
fn survivors_revoke_shrink_agree_and_go_on() {
    for nodes in [1, 2, 3] {
        let dvm = with_nodes(nodes, 8);
        for deaths in 1..=4 {
            recovers(&dvm, 8, &["steps", &deaths.to_string()], 8 - deaths);
        }
        recovers(&dvm, 2, &["steps", "1"], 1);
    }
}

#[test]
fn an_agreement_has_one_result_although_ranks_die_in_it() {
    for nodes in [1, 2] {
        let dvm = with_nodes(nodes, 6);
        for deaths in [1, 3, 5] {
            recovers(&dvm, 6, &["agreements", &deaths.to_string()], 6 - deaths);
        }
    }
}

#[test]
fn a_receive_from_any_source_is_pending_until_a_failure_is_acknowledged() {
    for nodes in [1, 2] {
        let dvm = with_nodes(nodes, 5);
        for ranks in [4, 5] {
            recovers(&dvm, ranks, &["any"], ranks - 2);
        }
    }
}

#[test]
fn no_collective_hangs_when_a_member_dies() {
    for nodes in [1, 2] {
        let dvm = with_nodes(nodes, 5);
        for kind in 0..20 {
            recovers(
                &dvm,
                if kind % 2 == 0 { 5 } else { 4 },
                &["hangs", &kind.to_string()],
                if kind % 2 == 0 { 4 } else { 3 },
            );
        }
    }
}
