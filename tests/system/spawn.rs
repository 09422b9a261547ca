//! Jobs that ranks spawn, with a program for any MPI (`programs/spawn.c`).

use std::time::Duration;

use nix::sys::signal::Signal;
use rsd_tests::{Call, Dvm, Mpi, Options, Running, eventually, mpi4py_for_the_abi};

use crate::groups::{all_ok, member};
use crate::sorted;

/// The deadline for jobs of Python interpreters that spawn others.
const PATIENCE: Duration = Duration::from_secs(180);

/// `rsctl run …` of the program with the wheel's MPICH, whose UCX module cannot spawn.
fn mpich(dvm: &Dvm, options: &[&str], args: &[&str]) -> Call {
    let program = Mpi::Wheel.program("spawn.c");
    dvm.rsctl(["run"]).args(options).args([&program]).args(args).env("MPIR_CVAR_CH4_NETMOD", "ofi")
}

#[test]
fn mpich_spawns_two_programs_as_one_job_on_one_node_and_on_two() {
    for nodes in [1, 2] {
        let dvm = Dvm::start_with(Options { nodes, slots: 8 / nodes as u32, args: Vec::new() });
        let directory = dvm.scratch().display().to_string();
        let run = mpich(&dvm, &["-n", "2"], &["family"]).env("SPAWN_DIRECTORY", &directory);
        // MPICH 5.0.2 hangs in collectives of jobs that share some nodes and not others, also under its own launcher.
        let printed = if nodes > 1 { run.env("MPIR_CVAR_NOLOCAL", "1") } else { run }.ok();
        let mut expected = vec!["child of 2"; 5];
        expected.push("family of 7");
        assert_eq!(sorted(&printed), expected, "{nodes} nodes");
        let jobs = dvm.rsctl(["--json", "ps", "-a"]).ok();
        let jobs: serde_json::Value = serde_json::from_str(&jobs).expect("the output is JSON");
        assert_eq!((&jobs["jobs"][1]["ranks"], &jobs["jobs"][1]["parent"]), (&5.into(), &1.into()), "{jobs}");
    }
}

#[test]
fn spawned_ranks_inherit_umask_limits_and_nice_value_of_their_spawner() {
    let dvm = Dvm::start_with(Options { nodes: 1, slots: 8, args: Vec::new() });
    let program = Mpi::Ours.program("spawn.c");
    // A shell between rsctl and the spawner changes them: the spawner's count, not those of the submitting shell.
    let change = "umask 0027; ulimit -n 200; exec nice -n 3 \"$0\" family";
    let printed = dvm.rsctl(["run", "-n", "1", "sh", "-c", change, &program]).env("SPAWN_INHERITED", "1").ok();
    let inherited = printed.lines().filter(|line| *line == "umask 027, 200 files, nice 3").count();
    assert_eq!(inherited, 5, "{printed}");
}

#[test]
fn lines_of_spawned_ranks_are_labelled_with_their_job() {
    let dvm = Dvm::start_with(Options { nodes: 1, slots: 8, args: Vec::new() });
    let printed = mpich(&dvm, &["-l", "-n", "1"], &["family"]).ok();
    let mut expected: Vec<String> = (0..5).map(|rank| format!("[2.{rank}] child of 1")).collect();
    expected.insert(0, "[0] family of 6".to_owned());
    assert_eq!(sorted(&printed), expected);
    assert_eq!(dvm.rsctl(["logs", "2.3"]).ok(), "child of 1\n", "the spawned job's log has the line too");
}

#[test]
fn a_spawn_that_cannot_run_is_refused_and_reported() {
    let dvm = Dvm::start(1);
    for (count, program, said) in [
        ("50", "./a.out", "rank 0 could not spawn: 50 ranks requested, 4 slots on 1 node without other jobs"),
        ("1", "./nowhere", "rank 0 could not spawn: rank 0: program ./nowhere: not found in"),
        ("2", "/bin/false", "without calling MPI_Init, which its spawner waits for"),
    ] {
        let ended = mpich(&dvm, &["-n", "2"], &["refused", count, program]).end();
        assert!(ended.err().contains(said), "{ended}");
        if program != "/bin/false" {
            assert_eq!(ended.ok(), "refused\n");
        }
    }
}

#[test]
fn rsctl_run_waits_for_the_last_job_of_the_family() {
    let dvm = Dvm::start(1);
    assert_eq!(mpich(&dvm, &["-n", "1"], &["outlived", "1"]).ok(), "left\nlived\n");
}

#[test]
fn a_spawned_job_that_fails_ends_its_family() {
    let dvm = Dvm::start(1);
    let said = mpich(&dvm, &["-n", "1"], &["dying", "late"]).fails(3);
    assert!(said.contains("job 1 failed: rank 0 of job 2, which it spawned, exited with code 3"), "{said}");
}

#[test]
fn cancelling_a_job_ends_the_jobs_that_it_has_spawned() {
    let dvm = Dvm::start(1);
    let running = mpich(&dvm, &["-n", "1"], &["outlived", "1000"]).start();
    running.until_stdout(|out| out.contains("left").then_some(()));
    dvm.rsctl(["cancel", "1"]).ok();
    running.end().fails(130);
    assert!(dvm.rsctl(["ps"]).ok().lines().count() <= 1, "no job is left");
}

// --- members of groups ---

/// The MPIs that can spawn.
const SPAWNERS: [Mpi; 2] = [Mpi::Ours, Mpi::Wheel];

/// Starts the members of a group on the nodes in turn.
fn group(dvm: &Dvm, nodes: usize, name: &str, size: usize, program: &[&str]) -> Vec<Running> {
    let words = format!("{name} --size {size}");
    let start = |at| {
        let call = member(dvm, at % nodes, &words, program).env("MPIR_CVAR_CH4_NETMOD", "ofi");
        // MPICH hangs in collectives of jobs that share some nodes and not others.
        if nodes > 1 { call.env("MPIR_CVAR_NOLOCAL", "1") } else { call }.start()
    };
    (0..size).map(start).collect()
}

#[test]
fn members_of_a_group_spawn_on_one_node_and_on_two() {
    for nodes in [1, 2] {
        let dvm = Dvm::start_with(Options { nodes, slots: 24 / nodes as u32, args: Vec::new() });
        for mpi in SPAWNERS {
            for size in [1, 2, 3] {
                let members = group(&dvm, nodes, &format!("{mpi:?}{size}"), size, &[&mpi.program("spawn.c"), "family"]);
                assert_eq!(all_ok(members), [format!("family of {}", size + 5)], "{mpi:?}, {nodes} nodes");
                let jobs = dvm.json("ps -a");
                let [.., epoch, spawned] = &jobs["jobs"].as_array().expect("a list")[..] else { panic!("{jobs}") };
                assert_eq!((&epoch["ranks"], &spawned["parent"]), (&size.into(), &epoch["job"]), "{jobs}");
                // Members keep their own output; the jobs that they spawn write to the epoch's log.
                let job = epoch["job"].to_string();
                dvm.rsctl(["wait", &job]).ok();
                assert_eq!(sorted(&dvm.rsctl(["logs", &job]).ok()), vec![format!("child of {size}"); 5]);
            }
        }
    }
}

#[test]
fn a_refused_spawn_is_an_error_at_all_members_and_they_continue() {
    let dvm = Dvm::start_with(Options { nodes: 2, slots: 8, args: Vec::new() });
    for size in [1, 2] {
        let members = group(&dvm, 2, "actors", size, &[&Mpi::Ours.program("mpi/spawn.c"), "refusals"]);
        assert_eq!(all_ok(members), [format!("spawn ok on {size}")]);
    }
}

#[test]
fn the_death_of_a_member_ends_the_jobs_that_its_group_has_spawned() {
    let dvm = Dvm::start(2);
    for mpi in SPAWNERS {
        let program = mpi.program("spawn.c");
        let name = format!("{mpi:?}");
        // rsctl execs the program, so the pid is the program's, and this test may kill it.
        let start = |at: usize| {
            let call =
                dvm.rsctl(["--dvm"]).args([dvm.state_dir(at)]).args(["group", "exec", &name, "--size", "2", "--"]);
            call.env("MPIR_CVAR_CH4_NETMOD", "ofi").args([&program, "outlived", "1000", "1000"]).start()
        };
        let members = [start(0), start(1)];
        members.iter().for_each(|member| member.until_stdout(|out| out.contains("left").then_some(())));
        let jobs = dvm.json("ps");
        let jobs = jobs["jobs"].as_array().expect("a list").clone();
        assert_eq!(jobs.len(), 3, "{mpi:?}: {jobs:?}");
        members[0].signal(Signal::SIGKILL);
        let verdict = dvm.rsctl(["wait", &jobs[0]["job"].to_string()]).end().fails(1);
        assert!(verdict.contains("ended without MPI_Finalize"), "{mpi:?}: {verdict}");
        eventually("the spawned jobs have ended", Duration::from_secs(20), || {
            dvm.json("ps")["jobs"].as_array().is_some_and(Vec::is_empty).then_some(())
        });
    }
}

// --- our library ---

#[test]
fn our_library_spawns_two_programs_as_one_job_on_one_node_and_on_two() {
    for nodes in [1, 2] {
        let dvm = Dvm::start_with(Options { nodes, slots: 8 / nodes as u32, args: Vec::new() });
        for n in [1, 2] {
            let line = ["run", "-n", &n.to_string(), "--map-by", "node", &Mpi::Ours.program("spawn.c"), "family"];
            let mut expected = vec![format!("child of {n}"); 5];
            expected.push(format!("family of {}", n + 5));
            assert_eq!(sorted(&dvm.rsctl(line).ok()), expected, "{nodes} nodes");
        }
    }
}

#[test]
fn other_ranks_find_published_names_and_every_misuse_has_its_error_class() {
    for nodes in [1, 2] {
        let dvm = Dvm::start(nodes);
        for n in ["1", "3"] {
            let line = ["run", "-n", n, "--map-by", "node", &Mpi::Ours.program("mpi/spawn.c"), "names"];
            assert_eq!(dvm.rsctl(line).ok(), format!("spawn ok on {n}\n"));
        }
    }
}

#[test]
fn a_refused_spawn_is_an_error_at_all_parents_and_they_continue() {
    for nodes in [1, 2] {
        let dvm = Dvm::start_with(Options { nodes, slots: 8, args: Vec::new() });
        for n in ["1", "2"] {
            let line = ["run", "-n", n, "--map-by", "node", &Mpi::Ours.program("mpi/spawn.c"), "refusals"];
            assert_eq!(dvm.rsctl(line).ok(), format!("spawn ok on {n}\n"));
        }
    }
}

#[test]
fn mpi4py_passes_its_own_tests_of_spawning_and_sessions() {
    let (python, tests) = mpi4py_for_the_abi();
    for nodes in [1, 2] {
        // Enough slots for what its tests spawn at once, and for processes that are still exiting.
        let dvm = Dvm::start_with(Options { nodes, slots: 64 / nodes as u32, args: Vec::new() });
        for n in ["1", "2", "3", "4"] {
            for file in ["test_session\\.py$", "test_spawn\\.py$"] {
                let call = dvm.rsctl(["run", "-n", n, "--map-by", "node"]).args([&python, &tests.join("main.py")]);
                let ended = call.args(["--no-builddir", "-q", "-f", "-i", file]).deadline(PATIENCE).end();
                assert!(ended.status.success() && ended.err().contains("\nOK"), "{nodes} nodes: {ended}");
            }
        }
    }
}
