//! Results of fences that do not go to all nodes: ranks get the same values, whatever happens to the daemons.

use std::fs;
use std::sync::atomic::{AtomicU32, Ordering};
use std::thread::sleep;
use std::time::Duration;

use rsd_tests::{Call, Dvm, Mpi, Options, Pmi, python};

use crate::pmi2::right;
use crate::{MPIS, sorted};

/// Returns four daemons, one below another, which hold the result of every fence with a put.
fn holding(slots: u32) -> Dvm {
    static NUMBER: AtomicU32 = AtomicU32::new(0);
    let name = format!("rsd-holding-{}-{}.toml", std::process::id(), NUMBER.fetch_add(1, Ordering::Relaxed));
    let path = std::env::temp_dir().join(name);
    fs::write(&path, "[tree]\narity = 1\nreplicated_max = \"1B\"\n").expect("the temporary directory is writable");
    let options = Options { nodes: 4, slots, args: Vec::new() };
    // The file stays: step processes read it, too, whenever they start.
    Dvm::start_in(options, &[("RSD_CONFIG", path.to_str().expect("the path is UTF-8"))])
}

fn run(dvm: &Dvm, n: &str, words: &[&str]) -> Call {
    dvm.rsctl(["run", "-n", n, "--map-by", "node"]).args(words)
}

#[test]
fn mpi_programs_find_their_peers() {
    let dvm = holding(2);
    for mpi in [Mpi::Debian, Mpi::Wheel, Mpi::Ours] {
        assert_eq!(run(&dvm, "8", &[&mpi.program("ring.c"), "5"]).ok(), "token 40\n", "{mpi:?}");
        assert_eq!(run(&dvm, "8", &[&mpi.program("collectives.c")]).ok(), "collectives right on 8 ranks\n", "{mpi:?}");
    }
    let interpreter = Mpi::OpenMpi5.python().expect("it brings mpi4py").display().to_string();
    let [_, script] = python("world.py");
    let call = run(&dvm, "8", &[&interpreter, &script]).env("OMPI_MCA_btl_tcp_if_include", "lo");
    assert_eq!(call.env("OMPI_MCA_pml", "ob1").ok(), "world right on 8\n");
}

#[test]
fn programs_that_call_pmi_get_what_others_have_put() {
    let dvm = holding(2);
    for (pmi, program) in [(Pmi::Ours, "pmi/pmi2.c"), (Pmi::Slurm, "pmi/pmi2.c"), (Pmi::Ours, "pmi/pmi.c")] {
        let printed = run(&dvm, "8", &[&pmi.program(program), "all"]).ok();
        assert_eq!(sorted(&printed), right("all", 8), "{pmi:?} {program}");
    }
}

#[test]
fn daemons_are_killed_between_a_fence_and_the_gets() {
    let mut dvm = holding(2);
    let program = Pmi::Ours.program("pmi/pmi2.c");
    for (at, killed) in [&[0][..], &[1], &[0, 3], &[2, 0, 1]].into_iter().enumerate() {
        let gate = dvm.scratch().join(format!("gate{at}")).display().to_string();
        let job = run(&dvm, "8", &[&program, "held", &gate]).start();
        job.until_stdout(|out| out.contains("waiting").then_some(()));
        killed.iter().for_each(|at| dvm.kill(*at));
        // Some gets begin while the daemons are away.
        dvm.file(&format!("gate{at}"), "");
        // A daemon that is started waits for one above it.
        let mut killed = killed.to_vec();
        killed.sort_unstable();
        killed.iter().for_each(|at| dvm.restart(*at));
        let printed = job.end().ok();
        let lines: Vec<&str> = sorted(&printed).into_iter().filter(|line| *line != "waiting").collect();
        assert_eq!(lines, right("held", 8), "daemons {killed:?}");
    }
}

/// The libraries put, enter a fence and get in MPI_Init.
#[test]
fn the_head_is_killed_while_mpi_starts() {
    let mut dvm = holding(2);
    for (at, mpi) in MPIS.into_iter().cycle().take(8).enumerate() {
        let job = run(&dvm, "8", &[&mpi.program("ring.c"), "5"]).start();
        sleep(Duration::from_millis(60 + 20 * at as u64));
        dvm.kill(0);
        dvm.restart(0);
        assert_eq!(job.end().ok(), "token 40\n", "{mpi:?}");
    }
}
