//! Programs with rsd's MPI library that join by themselves: a group that their environment names, or, as singletons, a job of
//! their own when they need a process manager.

use std::path::{Path, PathBuf};
use std::time::Duration;

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use rsd_tests::{Call, Dvm, Mpi, Running, built, client, eventually, intel, mpi4py_for_the_abi, processes, python};

use crate::MPIS;
use crate::groups::{member, shuffled};

const WITHIN: Duration = Duration::from_secs(20);
/// The deadline for jobs of Python interpreters.
const PATIENCE: Duration = Duration::from_secs(180);

/// A process on a node that rsd did not launch.
fn process(dvm: &Dvm, at: usize, program: &str) -> Call {
    dvm.call(program).dir(dvm.scratch()).env("RSD_DVM", dvm.state_dir(at))
}

/// A member of the group `actors`.
fn actor(dvm: &Dvm, at: usize, size: &str, program: &str) -> Call {
    process(dvm, at, program).env("RSD_JOIN", "actors").env("RSD_JOIN_SIZE", size)
}

fn all_ok(members: Vec<Running>) -> Vec<String> {
    let texts: Vec<String> = members.into_iter().map(|member| member.end().ok()).collect();
    let mut lines: Vec<String> = texts.iter().flat_map(|text| text.lines()).map(str::to_owned).collect();
    lines.sort_unstable();
    lines
}

/// The commands of all jobs, as listed.
fn commands(dvm: &Dvm) -> Vec<String> {
    let jobs = dvm.json("ps -a");
    let jobs = jobs["jobs"].as_array().into_iter().flatten();
    jobs.map(|job| job["command"].as_str().unwrap_or_default().to_owned()).collect()
}

#[test]
fn processes_whose_environment_names_a_group_become_one_world() {
    let dvm = Dvm::start(2);
    let program = Mpi::Ours.program("hello.c");
    let members = (0..16).map(|at| actor(&dvm, at % 2, "16", &program).start()).collect();
    // The environment is unchanged, so it names no node.
    let line = |rank: usize| format!("rank {rank} of 16 on -, local {} of 8", rank % 8);
    let mut expected: Vec<String> = (0..16).map(line).collect();
    expected.sort_unstable();
    assert_eq!(all_ok(members), expected);
    // A requested rank, and a group with a range of sizes.
    let some = |rank: &str| {
        let call = process(&dvm, 0, &program).env("RSD_JOIN", "few").env("RSD_JOIN_MIN", "2").env("RSD_JOIN_MAX", "4");
        call.env("RSD_JOIN_RANK", rank).start()
    };
    assert_eq!(
        all_ok(vec![some("1"), some("0")]),
        ["rank 0 of 2 on -, local 0 of 2", "rank 1 of 2 on -, local 1 of 2"]
    );
    assert_eq!(commands(&dvm), ["actors.1", "few.1"]);
}

#[test]
fn a_process_that_cannot_join_reports_why_and_what_to_do() {
    let dvm = Dvm::start(1);
    let program = Mpi::Ours.program("hello.c");
    let actor = || actor(&dvm, 0, "2", &program);
    let told = |call: Call, parts: &[&str]| {
        let ended = call.end();
        let text = ended.err();
        assert!(!ended.status.success(), "{text}");
        parts.iter().for_each(|part| assert!(text.contains(part), "{part}: {text}"));
    };
    told(actor().env("RSD_JOIN_TIMEOUT", "1s"), &["cannot join group actors (RSD_JOIN)", "1 of 2 members have joined"]);
    told(actor().env("RSD_JOIN", "a b"), &["invalid RSD_JOIN=\"a b\": expected a group's name"]);
    told(actor().env("RSD_JOIN_MIN", "1"), &["group actors: give either a size or min and max, not both"]);
    told(
        actor().env("RSD_JOIN_EXPORT", "torch"),
        &["RSD_JOIN_EXPORT is not for MPI_Init", "rsctl group exec actors --export …", "or unset it"],
    );
    told(actor().env("RSD_JOIN", ""), &["set RSD_JOIN to its name, or unset these"]);
    told(actor().env("RSD_DVM", "nosuch"), &["RSD_DVM=nosuch: no such daemon is running; running daemons: /"]);
    told(actor().env("PMI_PORT", "127.0.0.1:9").env("PMI_ID", "7"), &["PMI_PORT is set", "unset RSD_JOIN"]);
    // A launched process is a rank of its job and cannot join a group.
    let launched = dvm.rsctl(["run", "-n", "1", "-x", "RSD_JOIN=actors", &program]).end();
    assert!(launched.err().contains("a launcher has given this process one already"), "{}", launched.err());
    // A process that has joined by other means keeps its place.
    let member =
        |_| dvm.rsctl(["group", "exec", "actors", "--size", "2", "--", &program]).env("RSD_JOIN", "actors").start();
    assert_eq!(all_ok((0..2).map(member).collect()).len(), 2);
}

#[test]
fn sessions_join_epoch_after_epoch() {
    let dvm = Dvm::start(2);
    let program = Mpi::Ours.program("mpi/epochs.c");
    let members = (0..4).map(|at| actor(&dvm, at % 2, "4", &program).args(["3"]).start()).collect();
    let lines = all_ok(members);
    let sums = |epoch: usize| {
        lines.iter().filter(move |line| line.starts_with(&format!("epoch {epoch}: ")) && line.ends_with(" of 4, sum 6"))
    };
    assert!((0..3).all(|epoch| sums(epoch).count() == 4), "{lines:?}");
    assert_eq!(commands(&dvm), ["actors.1", "actors.2", "actors.3"]);
}

#[test]
fn a_singleton_contacts_the_local_daemon_when_it_needs_one() {
    let dvm = Dvm::start(1);
    let program = Mpi::Ours.program("universe.c");
    let universe = dvm.rsctl(["run", "-n", "1", &program]).ok();
    assert_eq!(universe, "world 1, universe 4\n");
    assert_eq!(process(&dvm, 0, &program).ok(), universe);
    // The only daemon here needs no name.
    assert_eq!(dvm.call(&program).ok(), universe);
    assert_eq!(commands(&dvm), [program.as_str(), "singleton", "singleton"]);
    assert!(dvm.rsctl(["group", "ls", "--json"]).ok().contains(r#""groups":[]"#));
    // A program that needs no daemon gets no job, nor does a program that is set to run alone.
    process(&dvm, 0, &Mpi::Ours.program("hello.c")).ok();
    let unknown = "world 1, universe unknown\n";
    assert_eq!(process(&dvm, 0, &program).env("RSD_MPI_SINGLETON", "alone").ok(), unknown);
    assert_eq!(process(&dvm, 0, &program).env("RSD_DVM", "nosuch").ok(), unknown);
    assert_eq!(commands(&dvm).len(), 3);
}

/// A PATH that begins with a directory in which `rsctl` is named `mpiexec`.
fn path_with_mpiexec(dvm: &Dvm) -> String {
    let dir = dvm.scratch().join("launchers");
    std::fs::create_dir_all(&dir).expect("the DVM's directory is writable");
    std::os::unix::fs::symlink(built::rsctl(), dir.join("mpiexec")).expect("the file does not exist yet");
    format!("{}:{}", dir.display(), std::env::var("PATH").unwrap_or_default())
}

#[test]
fn singletons_of_mpich_find_the_daemon_through_the_mpiexec_of_rsd() {
    let dvm = Dvm::start(1);
    let path = path_with_mpiexec(&dvm);
    for (adopted, mpi) in (1..).zip(MPIS) {
        let program = mpi.program("universe.c");
        assert_eq!(process(&dvm, 0, &program).env("PATH", &path).ok(), "world 1, universe 4\n", "{mpi:?}");
        assert_eq!(commands(&dvm), vec!["singleton"; adopted]);
        eventually("its job has ended", WITHIN, || {
            dvm.json("ps")["jobs"].as_array().is_some_and(Vec::is_empty).then_some(())
        });
    }
    let launched = dvm.call("mpiexec").env("PATH", &path).args(["-n", "2", &Mpi::Wheel.program("universe.c")]).ok();
    assert_eq!(launched, "world 2, universe 4\nworld 2, universe 4\n");
}

/// A singleton on the second node that finds rsd's `mpiexec`. Ports of MPICH (not in Debian's build) need another network module
/// than its default; and MPICH hangs in collectives of jobs that share some nodes and not others, unless shared memory is
/// disabled.
fn singleton(dvm: &Dvm, path: &str, program: &str) -> Call {
    mpich(process(dvm, 1, program).env("PATH", path))
}

fn mpich(call: Call) -> Call {
    call.env("MPIR_CVAR_CH4_NETMOD", "ofi").env("MPIR_CVAR_NOLOCAL", "1")
}

#[test]
fn singletons_can_publish_look_up_and_spawn() {
    let dvm = Dvm::start(2);
    let path = path_with_mpiexec(&dvm);
    for mpi in [Mpi::Ours, Mpi::Wheel, Mpi::Debian] {
        let said = singleton(&dvm, &path, &mpi.program("names.c")).args(["alone", "ocean"]).ok();
        assert_eq!(said, "names ok on 1\n", "{mpi:?}");
    }
    for mpi in [Mpi::Ours, Mpi::Wheel] {
        let spawn = |words: &[&str]| singleton(&dvm, &path, &mpi.program("spawn.c")).args(words).end();
        assert_eq!(spawn(&["family"]).ok(), "family of 6\n", "{mpi:?}");
        assert_eq!(spawn(&["refused", "50", "./a.out"]).ok(), "refused\n", "{mpi:?}");
        let told = dvm.ctl("attach last").end().err();
        assert!(told.contains("rank 0 could not spawn: 50 ranks requested"), "{mpi:?}: {told}");
        assert_eq!(spawn(&["outlived", "1"]).ok(), "left\n", "{mpi:?}");
        eventually("its child has printed its line", WITHIN, || {
            dvm.ctl("logs last").ok().contains("lived").then_some(())
        });
    }
}

/// How one side of a connection is started.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Side {
    /// By no launcher.
    Singleton,
    /// As a group of this many members, on both nodes.
    Group(usize),
    /// By `rsctl run`, one rank on each node.
    Job,
}

#[test]
fn mpich_singletons_groups_and_jobs_connect_through_a_published_name() {
    let dvm = Dvm::start(2);
    let path = path_with_mpiexec(&dvm);
    let program = Mpi::Wheel.program("names.c");
    let sides = [Side::Singleton, Side::Group(1), Side::Group(2), Side::Job];
    let start = |side: Side, words: [&str; 3]| -> Vec<Running> {
        match side {
            Side::Singleton => vec![singleton(&dvm, &path, &program).args(words).start()],
            Side::Job => vec![mpich(dvm.rsctl(["run", "-n", "2", "--map-by", "node", &program]).args(words)).start()],
            Side::Group(size) => {
                let group = format!("{}{size} --size {size}", words[0]);
                let member = |at: usize| mpich(member(&dvm, at % 2, &group, &[&program]).args(words)).start();
                (0..size).map(member).collect()
            }
        }
    };
    for accepting in sides {
        for connecting in sides {
            // All singletons of MPICH regard themselves as the same process; groups of one do not.
            if (accepting, connecting) == (Side::Singleton, Side::Singleton) {
                continue;
            }
            let name = format!("{accepting:?} and {connecting:?}");
            let one = start(accepting, ["accept", &name, "2"]);
            let other = start(connecting, ["connect", &name, "2"]);
            let size = |side| if let Side::Singleton | Side::Group(1) = side { 1 } else { 2 };
            assert_eq!(all_ok(other), [format!("names ok on {}", size(connecting))], "{name}");
            assert_eq!(all_ok(one), [format!("names ok on {}", size(accepting))], "{name}");
        }
    }
}

#[test]
fn a_singleton_of_mpich_without_a_daemon_gets_a_warning_and_continues() {
    let dvm = Dvm::start(1);
    let path = path_with_mpiexec(&dvm);
    for mpi in MPIS {
        let program = mpi.program("universe.c");
        let ended = process(&dvm, 0, &program).env("PATH", &path).env("RSD_DVM", "nosuch").end();
        assert!(ended.err().contains("RSD_DVM=nosuch: no such daemon is running"), "{mpi:?}: {}", ended.err());
        assert_eq!(ended.ok(), "world 1, universe unknown\n", "{mpi:?}");
    }
    // A user runs it directly.
    let used = dvm.call("mpiexec").env("PATH", &path).args(["-pmi_args", "many"]).fails(240);
    assert!(used.contains("is for MPI libraries and needs a port number"), "{used}");
}

/// An actor in Python with each MPI: its interpreter, and the folder of its MPI.
fn pythons() -> [(&'static str, PathBuf, Option<PathBuf>); 3] {
    let [mpich, _] = python("actor.py");
    let (ours, _) = mpi4py_for_the_abi();
    let (intel, library) = intel();
    [("ours", ours, None), ("MPICH 5", PathBuf::from(mpich), None), ("Intel MPI", intel, Some(library))]
}

/// Starts sixteen actors on two nodes, with unrelated parents, shuffled by the seed and spread over some time.
fn actors(dvm: &Dvm, python: &Path, library: Option<&Path>, seed: u64, gate: &Path) -> Vec<Running> {
    let [_, script] = rsd_tests::python("actor.py");
    let actor = |(at, place): (usize, usize)| {
        let pause = format!("{}.{}", place / 10, place % 10);
        let mut call = process(dvm, at % 2, "setsid").env("PYTHONPATH", client("python")).args(["--wait"]);
        if let Some(library) = library {
            call = call.env("LD_LIBRARY_PATH", library);
        }
        call.args([python]).args([&script, "actors", "16", &pause]).args([gate]).deadline(PATIENCE).start()
    };
    shuffled(16, seed).into_iter().enumerate().map(actor).collect()
}

#[test]
fn sixteen_actors_in_python_lose_one_and_form_again() {
    for (seed, (name, python, library)) in (1..).zip(pythons()) {
        let dvm = Dvm::start(2);
        let (never, gate) = (dvm.scratch().join("never"), dvm.scratch().join("gate"));
        let first = actors(&dvm, &python, library.as_deref(), seed, &never);
        let told = |epoch: u32| move |text: &str| text.contains(&format!("epoch {epoch}: sum 120 of 16")).then_some(());
        first.iter().for_each(|actor| actor.until_stdout(told(1)));
        let there = || processes::mentioning(&never.display().to_string());
        let victim = there().into_iter().find(|(_, line)| !line.contains("setsid")).expect("the actors run").0;
        kill(Pid::from_raw(victim), Signal::SIGKILL).expect("the actor runs");
        assert!(dvm.rsctl(["wait", "last"]).end().fails(1).contains("ended without MPI_Finalize"), "{name}");
        // The reaction of the others depends on their MPI; a framework kills them and starts new ones.
        for (pid, _) in there() {
            // The actor may have ended by itself.
            let _ = kill(Pid::from_raw(pid), Signal::SIGKILL);
        }
        drop(first);
        std::fs::write(&gate, "").expect("the DVM's directory is writable");
        let second = actors(&dvm, &python, library.as_deref(), seed + 16, &gate);
        for actor in second {
            let text = actor.end().ok();
            assert!(told(2)(&text).is_some(), "{name}: {text}");
        }
        assert_eq!(commands(&dvm), ["actors.1", "actors.2"], "{name}");
    }
}

#[test]
fn survivors_with_the_library_of_rsd_join_again_with_a_new_member() {
    let dvm = Dvm::start(2);
    let gate = dvm.scratch().join("gate");
    let program = Mpi::Ours.program("mpi/survivors.c");
    let start = |at: usize| actor(&dvm, at % 2, "4", &program).args([&gate]).deadline(PATIENCE).start();
    let mut members: Vec<Running> = (0..4).map(start).collect();
    let told = |world: u32, text: &str| {
        text.lines().any(|line| line.starts_with(&format!("world {world}: ")) && line.ends_with(" of 4, sum 6"))
    };
    members.iter().for_each(|member| member.until_stdout(|text| told(1, text).then_some(())));
    let dead = members.pop().expect("there are four members");
    dead.signal(Signal::SIGKILL);
    drop(dead);
    let newcomer = start(3);
    newcomer.until_stdout(|text| told(1, text).then_some(()));
    members.iter().for_each(|member| member.until_stdout(|text| told(2, text).then_some(())));
    std::fs::write(&gate, "").expect("the DVM's directory is writable");
    members.into_iter().chain([newcomer]).for_each(|member| drop(member.end().ok()));
    assert_eq!(commands(&dvm), ["actors.1", "actors.2"]);
}

#[test]
fn the_death_of_a_member_that_has_not_communicated_is_noticed() {
    let dvm = Dvm::start(2);
    let program = Mpi::Ours.program("mpi/killed.c");
    for way in ["recv", "any", "probe", "mprobe", "iprobe", "ssend", "accept"] {
        let member = |at: usize| actor(&dvm, at % 2, "4", &program).args(["unknown", way]).start();
        let members: Vec<Running> = (0..4).map(member).collect();
        let ends: Vec<_> = members.into_iter().map(Running::end).collect();
        let told = ends.iter().filter(|end| end.out().ends_with("noticed\n")).count();
        let silent = ends.iter().filter(|end| end.out().is_empty()).count();
        assert_eq!((told, silent), (3, 1), "{way}: {}", ends.iter().map(|end| end.to_string()).collect::<String>());
    }
}

#[test]
fn hundreds_of_epochs_leave_nothing_behind_in_daemon_or_members() {
    let dvm = Dvm::start(1);
    let program = Mpi::Ours.program("mpi/epochs.c");
    let weigh = || {
        eventually("the last job has ended", WITHIN, || {
            dvm.json("ps")["jobs"].as_array().is_some_and(Vec::is_empty).then_some(())
        });
        (
            processes::open_files(dvm.pid(0)).expect("the daemon runs"),
            processes::private_bytes(dvm.pid(0)).expect("the daemon runs"),
        )
    };
    let rounds = |count: &str| {
        let member = |_| actor(&dvm, 0, "2", &program).args([count]).deadline(PATIENCE).start();
        all_ok((0..2).map(member).collect())
    };
    rounds("20");
    let (files, memory) = weigh();
    for line in rounds("300").iter().filter(|line| line.starts_with("grown")) {
        let numbers: Vec<i64> = line.split_whitespace().filter_map(|word| word.parse().ok()).collect();
        assert!(numbers[0] <= 0 && numbers[1] < 512, "{line}");
    }
    let (files_after, memory_after) = weigh();
    // The spare step process may have started in the meantime, with a few descriptors.
    assert!(files_after <= files + 8, "{files} descriptors, then {files_after}");
    // The head remembers the last jobs that have ended (`jobs.keep`), which include these.
    assert!(memory_after < memory + 300 * (8 << 10), "{memory} bytes, then {memory_after}");
}
