//! Named groups: processes that rsd did not launch become one MPI_COMM_WORLD.

use std::fs;
use std::io::{BufRead, BufReader, Write};
use std::os::unix::net::UnixStream;
use std::path::PathBuf;
use std::time::Duration;

use nix::sys::signal::Signal;
use rsd_proto::join::{Event, Join, Line};
use rsd_proto::transport::{Target, dial, dvm_client};
use rsd_proto::v1::{JoinRequest, join_event};
use rsd_tests::{Call, Dvm, Mpi, Running, built, client, eventually, intel, mpi4py_for_the_abi, processes, python};

/// Every MPI that connects to PMI-1 over a port.
const MPIS: [Mpi; 3] = [Mpi::Debian, Mpi::Wheel, Mpi::Ours];
const WITHIN: Duration = Duration::from_secs(20);

/// `rsctl group …` on the daemon of a node.
fn group<'a>(dvm: &Dvm, at: usize, words: impl IntoIterator<Item = &'a str>) -> Call {
    dvm.rsctl(["--dvm"]).args([dvm.state_dir(at)]).args(["group"]).args(words)
}

/// Returns a member on a node, in its own session: `rsctl group exec` with these words, for this program.
pub(crate) fn member(dvm: &Dvm, at: usize, words: &str, program: &[&str]) -> Call {
    let rsctl = built::rsctl().display().to_string();
    dvm.call("setsid")
        .dir(dvm.scratch())
        .args(["--wait", &rsctl, "--dvm"])
        .args([dvm.state_dir(at)])
        .args(["group", "exec"])
        .args(words.split_whitespace())
        .args(["--"])
        .args(program)
}

/// Waits until this many members wait in the group, all of them reachable; returns them.
pub(crate) fn until_waiting(dvm: &Dvm, name: &str, members: usize) -> Vec<serde_json::Value> {
    eventually(&format!("{members} members wait in group {name}"), WITHIN, || {
        let info = group(dvm, 0, ["show", name, "--json"]).end();
        let info: serde_json::Value = serde_json::from_str(&info.out()).ok()?;
        let waiting = info["waiting"].as_array()?.clone();
        (waiting.len() == members && waiting.iter().all(|member| member["away"] == false)).then_some(waiting)
    })
}

/// The numbers below `count`, shuffled by the seed.
pub(crate) fn shuffled(count: usize, seed: u64) -> Vec<usize> {
    let mut state = seed;
    let mut numbers: Vec<usize> = (0..count).collect();
    for at in (1..count).rev() {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        numbers.swap(at, (state >> 33) as usize % (at + 1));
    }
    numbers
}

pub(crate) fn hello_lines(nodes: usize, per_node: usize) -> Vec<String> {
    let size = nodes * per_node;
    let line = |rank: usize| {
        let (node, local) = (rank / per_node, rank % per_node);
        format!("rank {rank} of {size} on node{node}, local {local} of {per_node}")
    };
    let mut lines: Vec<String> = (0..size).map(line).collect();
    lines.sort_unstable();
    lines
}

/// Waits until all have succeeded; returns the lines that they printed.
pub(crate) fn all_ok(members: Vec<Running>) -> Vec<String> {
    let texts: Vec<String> = members.into_iter().map(|member| member.end().ok()).collect();
    let mut lines: Vec<String> = texts.iter().flat_map(|text| text.lines()).map(str::to_owned).collect();
    lines.sort_unstable();
    lines
}

#[test]
fn sixteen_independent_processes_become_one_world_in_any_order() {
    let dvm = Dvm::start(2);
    for (seed, mpi) in (1..).zip(MPIS) {
        let program = mpi.program("hello.c");
        let order = shuffled(16, seed);
        let members = order.into_iter().map(|number| member(&dvm, number % 2, "actors --size 16", &[&program]).start());
        assert_eq!(all_ok(members.collect()), hello_lines(2, 8), "{mpi:?}");
    }
    let jobs = dvm.json("ps -a");
    let names: Vec<_> = jobs["jobs"].as_array().into_iter().flatten().map(|job| job["command"].clone()).collect();
    assert_eq!(names, ["actors.1", "actors.2", "actors.3"]);
}

#[test]
fn a_group_is_a_process_set_of_its_members_sessions() {
    let dvm = Dvm::start(2);
    let program = Mpi::Ours.program("mpi/psets.c");
    let members = (0..4).map(|at| member(&dvm, at % 2, "actors --size 4", &[&program]).start()).collect();
    assert_eq!(all_ok(members), ["psets ok on 4"]);
}

/// A process on a node that joins by itself, in Python or in C.
fn joining(dvm: &Dvm, at: usize, program: &[String], words: [&str; 3]) -> Call {
    let call = dvm.call(&program[0]).env("PYTHONPATH", client("python")).env("RSD_DVM", dvm.state_dir(at));
    call.dir(dvm.scratch()).args(&program[1..]).args(words)
}

#[test]
fn processes_in_python_and_c_join_by_themselves() {
    let dvm = Dvm::start(2);
    let include = format!("-I{}", client("include").display());
    let c = |mpi: Mpi| vec![mpi.program_with("join.c", &[&include])];
    let [of_the_wheel, script] = python("join.py");
    let ours = mpi4py_for_the_abi().0.display().to_string();
    let worlds = [
        [c(Mpi::Ours), vec![ours, script.clone()]],
        [c(Mpi::Wheel), vec![of_the_wheel, script]],
        [c(Mpi::Debian), c(Mpi::Debian)],
    ];
    for programs in worlds {
        // Only rsd_join.h reads `RSD_JOIN_EXPORT`; other programs must not fail because of it.
        let member = |at: usize| {
            joining(&dvm, at % 2, &programs[at / 2], ["actors", "4", "60s"])
                .env("RSD_JOIN_EXPORT", "torch, nccl")
                .start()
        };
        assert_eq!(all_ok((0..4).map(member).collect()), hello_lines(2, 2), "{programs:?}");
    }
}

#[test]
fn a_process_that_cannot_join_gets_the_reason() {
    let dvm = Dvm::start(1);
    let programs = [
        vec![Mpi::Ours.program_with("join.c", &[&format!("-I{}", client("include").display())])],
        python("join.py").to_vec(),
    ];
    for program in programs {
        let late = joining(&dvm, 0, &program, ["actors", "2", "1s"]).end().fails(1);
        assert!(late.contains("refused 124: group actors timed out after 1 s: 1 of 2 members have joined"), "{late}");
        let nameless = joining(&dvm, 0, &program, ["a b", "2", "1"]).end().fails(1);
        assert!(nameless.contains("refused 240: ") && nameless.contains("a group's name is"), "{nameless}");
        let unreachable = joining(&dvm, 0, &program, ["actors", "2", "1"]).env("RSD_DVM", "nosuch").end().fails(1);
        assert!(unreachable.contains("refused 241: ") && unreachable.contains("rsd start"), "{unreachable}");
    }
    let soon = joining(&dvm, 0, &python("join.py"), ["actors", "2", "soon"]).end().fails(1);
    assert!(soon.contains("refused 240: invalid duration timeout='soon': use 250ms, 5s"), "{soon}");
}

#[test]
fn with_two_daemons_of_one_dvm_the_head_is_the_default() {
    let dvm = Dvm::start(2);
    let header = vec![Mpi::Ours.program_with("join.c", &[&format!("-I{}", client("include").display())])];
    let [_, script] = python("join.py");
    let module = vec![mpi4py_for_the_abi().0.display().to_string(), script];
    let hello = Mpi::Ours.program("hello.c");
    let unnamed = |program: &[String]| joining(&dvm, 0, program, ["actors", "2", "60s"]).env_remove("RSD_DVM");
    assert_eq!(all_ok(vec![unnamed(&header).start(), unnamed(&module).start()]), hello_lines(1, 2));
    let by_variable = dvm.call(&hello).env("RSD_JOIN", "critics").env("RSD_JOIN_SIZE", "2");
    let by_rsctl = dvm.rsctl(["group", "exec", "critics", "--size", "2", "--", &hello]);
    let lines = all_ok(vec![by_variable.start(), by_rsctl.start()]);
    // A process that joins in MPI_Init has no node in its environment.
    let mut lines: Vec<String> = lines.iter().map(|line| line.replace(" on -,", " on node0,")).collect();
    lines.sort_unstable();
    assert_eq!(lines, hello_lines(1, 2));

    // The state directory of a head of another DVM.
    let other = dvm.runtime_dir(0).with_file_name("other");
    fs::create_dir(&other).expect("the DVM's directory is writable");
    fs::write(other.join("daemon.json"), r#"{"name":"other","dvm":"f00","node":0,"head":true,"pid":1}"#)
        .expect("the DVM's directory is writable");
    let lock = fs::File::create(other.join("rsd.lock")).expect("the DVM's directory is writable");
    lock.lock().expect("no other process holds the lock");
    for program in [header, module] {
        let several = unnamed(&program).end().fails(1);
        assert!(
            several.contains("refused 241: ") && several.contains("DVMs are running here; choose one with"),
            "{several}"
        );
    }
}

#[test]
fn requested_ranks_are_granted_and_a_second_request_is_refused() {
    let dvm = Dvm::start(2);
    let program = [
        "sh",
        "-c",
        "echo rank $PMI_RANK of $PMI_SIZE in $RSD_GROUP $RSD_EPOCH; exec $0",
        &Mpi::Debian.program("ring.c"),
    ];
    let first = member(&dvm, 1, "actors --size 2 --rank 0", &program).start();
    until_waiting(&dvm, "actors", 1);
    let clash = member(&dvm, 0, "actors --size 2 --rank 0", &["true"]).end().fails(243);
    assert!(clash.contains("rank 0 of group actors is taken by pid") && clash.contains("on node1"), "{clash}");
    let other_size = member(&dvm, 0, "actors --size 3", &["true"]).end().fails(243);
    assert!(
        other_size.contains("has 2 members") && other_size.contains("this process requests 3 members"),
        "{other_size}"
    );
    let second = member(&dvm, 0, "actors --size 2", &program).start();
    assert!(first.end().ok().contains("rank 0 of 2 in actors 1"));
    assert!(second.end().ok().contains("rank 1 of 2 in actors 1"));
}

#[test]
fn an_incomplete_group_times_out_and_names_its_members() {
    let dvm = Dvm::start(2);
    let patient = member(&dvm, 1, "actors --size 4 --timeout 20s", &["true"]).start();
    let waiting = until_waiting(&dvm, "actors", 1);
    let refused = member(&dvm, 0, "actors --size 4 --timeout 1s", &["true"]).end().fails(124);
    let pid = waiting[0]["pid"].as_u64().expect("a member has a pid");
    for part in [
        "group actors timed out after 1 s: 2 of 4 members have joined; here: node0: pid ",
        "; missing: 2",
        &format!("node1: pid {pid}"),
    ] {
        assert!(refused.contains(part), "{refused}");
    }
    patient.signal(Signal::SIGKILL);
}

#[test]
fn a_member_that_is_killed_in_the_lobby_frees_its_place() {
    let dvm = Dvm::start(2);
    let mortal =
        dvm.rsctl(["--dvm"]).args([dvm.state_dir(1)]).args(["group", "exec", "actors", "--size", "2", "--", "true"]);
    let mortal = mortal.start();
    until_waiting(&dvm, "actors", 1);
    mortal.signal(Signal::SIGKILL);
    eventually("the empty group is removed", WITHIN, || {
        (group(&dvm, 0, ["ls", "--json"]).ok().contains(r#""groups":[]"#)).then_some(())
    });
    // The removed group does not fix the size of the next one.
    let program = Mpi::Debian.program("hello.c");
    let members = (0..4).map(|at| member(&dvm, at % 2, "actors --size 4", &[&program]).start()).collect();
    assert_eq!(all_ok(members), hello_lines(2, 2));
}

#[test]
fn members_keep_their_places_when_their_leaf_is_killed_and_restarted() {
    let mut dvm = Dvm::start(3);
    let program = Mpi::Wheel.program("hello.c");
    let mut members: Vec<Running> = [1, 2, 2].map(|at| member(&dvm, at, "actors --size 6", &[&program]).start()).into();
    until_waiting(&dvm, "actors", 3);
    dvm.kill(2);
    dvm.restart(2);
    until_waiting(&dvm, "actors", 3);
    members.extend([0, 0, 1].map(|at| member(&dvm, at, "actors --size 6", &[&program]).start()));
    assert_eq!(all_ok(members), hello_lines(3, 2));
}

#[test]
fn after_a_death_the_others_are_not_signalled_and_the_next_epoch_is_the_second() {
    let dvm = Dvm::start(2);
    for mpi in [Mpi::Debian, Mpi::Ours] {
        let name = format!("{mpi:?}");
        let gate = dvm.scratch().join(&name);
        let words = format!("{name} --size 4");
        let gated = [mpi.program("gated.c"), gate.display().to_string()];
        // rsctl execs the program, so the pid is the program's, and this test may kill it.
        let start = |at: usize| {
            let call = dvm.rsctl(["--dvm"]).args([dvm.state_dir(at % 2)]).args(["group", "exec"]);
            call.args(words.split_whitespace()).args(["--rank", &at.to_string(), "--"]).args(&gated).start()
        };
        let members: Vec<Running> = (0..4).map(start).collect();
        members[0].until_stdout(|out| out.contains("computing").then_some(()));
        let info = group(&dvm, 0, ["show", &name, "--json"]).ok();
        let info: serde_json::Value = serde_json::from_str(&info).expect("JSON");
        let job = info["epochs"][0]["job"].to_string();
        let refused = dvm.rsctl(["signal", &job, "TERM"]).fails(240);
        assert!(refused.contains("rsd did not start its processes and never signals them"), "{refused}");
        members[3].signal(Signal::SIGKILL);
        let ended = dvm.rsctl(["wait", &job]).end();
        let verdict = ended.fails(1);
        assert!(verdict.contains("ended without MPI_Finalize"), "{verdict}");
        // The reaction of the other members depends on their MPI.
        drop(members);

        let hello = mpi.program("hello.c");
        let again = ["sh", "-c", "echo epoch $RSD_EPOCH; exec $0", &hello];
        let members = (0..4).map(|at| member(&dvm, at % 2, &words, &again).start()).collect();
        let mut expected = hello_lines(2, 2);
        expected.extend(["epoch 2"; 4].map(str::to_owned));
        expected.sort_unstable();
        assert_eq!(all_ok(members), expected, "{mpi:?}");
    }
}

#[test]
fn a_member_that_dies_between_init_and_the_first_barrier_is_named_by_the_job_and_the_others_fail() {
    let dvm = Dvm::start(2);
    let [python, half] = python("half.py");
    let (intel, library) = intel();
    let actor = python_hello(&dvm);
    let mut worlds: Vec<(String, Vec<String>, Option<PathBuf>)> =
        MPIS.map(|mpi| (format!("{mpi:?}"), vec![mpi.program("hello.c")], None)).into();
    worlds.push(("Intel".to_owned(), vec![intel.display().to_string(), actor], Some(library)));
    // The other member is on the same node, where most MPIs wait in shared memory, or on another one.
    for (at, (name, program, library)) in worlds.iter().flat_map(|world| [(1, world), (0, world)]) {
        let group = format!("{name}{at}");
        let call = dvm.rsctl(["--dvm"]).args([dvm.state_dir(1)]).args(["group", "exec", &group, "--size", "2"]);
        let mortal = call.args(["--rank", "1", "--", &python, &half, "60"]).start();
        let program: Vec<&str> = program.iter().map(String::as_str).collect();
        let mut other = member(&dvm, at, &format!("{group} --size 2 --rank 0"), &program);
        if let Some(library) = library {
            other = other.env("LD_LIBRARY_PATH", library);
        }
        let other = other.start();
        mortal.until_stdout(|out| out.contains("begun").then_some(()));
        let pid = mortal.pid();
        mortal.signal(Signal::SIGKILL);
        let ended = other.end();
        assert!(!ended.status.success(), "{group}: {}", ended.err());
        let verdict = format!("rank 1 on node1: its process (pid {pid}) ended without MPI_Finalize");
        let told = dvm.ctl("wait last").end().fails(1);
        assert!(told.contains(&verdict), "{group}: {told}");
        let shown = self::group(&dvm, 0, ["show", &group]).ok();
        let last = format!(" failed: rank 1: its process (pid {pid}) ended without MPI_Finalize");
        assert!(shown.contains(&last), "{shown}");
        // In the words of the member's MPI; MPICH 5 does not print rsd's.
        let words = ended.err().replace('_', " ");
        let cause = format!("on node1, rank 1: its process (pid {pid}) ended without MPI Finalize");
        let lost = "process 1 is lost";
        match &name[..] {
            "Debian" | "Intel" => assert!(words.contains(&cause), "{group}: {words}"),
            "Ours" => assert!(words.contains(&cause) || (at == 1 && words.contains(lost)), "{group}: {words}"),
            _ => assert!(words.contains("Fatal error in internal Init"), "{group}: {words}"),
        }
    }
    let jobs = dvm.json("ps -a");
    let states: Vec<_> = jobs["jobs"].as_array().into_iter().flatten().map(|job| job["state"].clone()).collect();
    assert_eq!(states, ["failed"; 8]);
}

#[test]
fn members_with_different_mpi_libraries_get_an_error() {
    let dvm = Dvm::start(2);
    let (ours, theirs) = (Mpi::Ours.program("hello.c"), Mpi::Wheel.program("hello.c"));
    // Whether the members share a node, and which of them comes first.
    for (number, places) in [[0, 0], [0, 1]].into_iter().flat_map(|places| [(0, places), (1, places)]) {
        let name = format!("mixed{number}{}", places[1]);
        let programs = if number == 0 { [&ours, &theirs] } else { [&theirs, &ours] };
        // The second member arrives later; the progress of the first at that time is not fixed.
        let late = format!("while ! test -e {name}; do sleep 0.01; done; exec $0");
        let start = |rank: usize| {
            let program = if rank == 0 { vec![programs[0].as_str()] } else { vec!["sh", "-c", &late, programs[1]] };
            member(&dvm, places[rank], &format!("{name} --size 2 --rank {rank}"), &program).start()
        };
        let members = [start(0), start(1)];
        eventually("the epoch has begun", WITHIN, || {
            dvm.json("ps -a")["jobs"].as_array()?.iter().any(|job| job["command"] == format!("{name}.1")).then_some(())
        });
        dvm.file(&name, "");
        let ended = members.map(Running::end);
        let verdict = dvm.ctl("wait last").end().fails(1);
        let same = "all members of a group must use the same";
        assert!(verdict.contains("MPI library") && verdict.contains(same), "{verdict}");
        for (ended, program) in ended.iter().zip(programs) {
            // Neither member crashes.
            assert!(ended.status.code().is_some_and(|code| (1..128).contains(&code)), "{ended}");
            let words = ended.err().replace('_', " ");
            assert!(
                program == &theirs || (words.contains("rsd") && words.contains("another") && words.contains(same)),
                "{words}"
            );
        }
    }
}

/// A Python script that prints its rank over MPI.
fn python_hello(dvm: &Dvm) -> String {
    dvm.file("hello.py", "from mpi4py import MPI\nprint(MPI.COMM_WORLD.allreduce(1))\n")
}

#[test]
fn a_restarted_head_recovers_its_half_full_lobby() {
    let mut dvm = Dvm::start(1);
    let program = Mpi::Ours.program("hello.c");
    let start = |dvm: &Dvm| member(dvm, 0, "actors --size 6", &[&program]).start();
    let mut members: Vec<Running> = (0..3).map(|_| start(&dvm)).collect();
    until_waiting(&dvm, "actors", 3);
    dvm.kill(0);
    dvm.restart(0);
    until_waiting(&dvm, "actors", 3);
    members.extend((0..3).map(|_| start(&dvm)));
    assert_eq!(all_ok(members), hello_lines(1, 6));
}

#[test]
fn an_epoch_is_cancelled_without_a_signal_to_its_members() {
    let dvm = Dvm::start(1);
    // The members do not use MPI, and any signal would end them.
    let done = dvm.scratch().join("done");
    let script = format!("echo up; while ! test -e {}; do sleep 0.02; done; echo unharmed", done.display());
    let members: Vec<Running> =
        (0..2).map(|_| member(&dvm, 0, "actors --size 2", &["sh", "-c", &script]).start()).collect();
    members.iter().for_each(|member| member.until_stdout(|out| out.contains("up").then_some(())));
    dvm.ctl("cancel last").ok();
    dvm.ctl("wait last").end().fails(130);
    dvm.file("done", "");
    for member in members {
        assert!(member.end().ok().contains("unharmed"));
    }
}

#[test]
fn a_shell_joins_through_its_environment() {
    let dvm = Dvm::start(1);
    let rsctl = built::rsctl().display().to_string();
    let program = Mpi::Debian.program("hello.c");
    let script = r#"eval "$("$0" group env actors --min 2 --max 2)" && exec "$1""#;
    let start = |_| dvm.call("sh").args(["-c", script, &rsctl, &program]).start();
    assert_eq!(all_ok((0..2).map(start).collect()), hello_lines(1, 2));
    // A shell that cannot join must not run its program alone.
    let script = r#"eval "$("$0" group env lonely --size 2 --timeout 100ms)" && exec "$1""#;
    let alone = dvm.call("sh").args(["-c", script, &rsctl, &program]).start().end();
    assert!(!alone.status.success() && alone.out().is_empty() && alone.err().contains("missing"), "{alone}");
}

#[test]
fn the_error_says_that_a_process_for_which_another_joined_has_ended() {
    let dvm = Dvm::start(1);
    // In the lobby.
    let member = dvm.call("sleep").args(["60"]).start();
    let pid = member.pid().to_string();
    let joining = group(&dvm, 0, ["env", "lonely", "--size", "2", "--pid", &pid]).start();
    until_waiting(&dvm, "lonely", 1);
    member.signal(Signal::SIGKILL);
    let told = joining.end().fails(240);
    assert!(
        told.contains(&format!("process {pid}, for which the place was requested, has ended: rsctl group env joins")),
        "{told}"
    );
    // In the epoch: the process is the shell of the pipe.
    let script = r#"eval "$("$0" group env actors --size 2 | cat)"; read line"#;
    let piped = dvm.call("sh").args(["-c", script, &built::rsctl().display().to_string()]).stdin_open().start();
    let other = self::member(&dvm, 0, "actors --size 2", &[&Mpi::Ours.program("hello.c")]).start();
    assert!(!other.end().status.success());
    let told = dvm.ctl("wait last").end().fails(1);
    assert!(
        told.contains("ended before it called MPI_Init: rsctl group env joins for the shell that runs it"),
        "{told}"
    );
    let shown = dvm.ctl("job show last").ok();
    assert!(
        shown.contains("cut off because of it; ") && shown.contains("not signalled") && !shown.contains("was ended"),
        "{shown}"
    );
    drop(piped);
}

#[test]
fn groups_are_created_listed_kicked_from_and_closed() {
    let dvm = Dvm::start(2);
    group(&dvm, 1, ["create", "actors", "--size", "3", "--timeout", "30s", "--ttl", "5m"]).ok();
    let again = group(&dvm, 0, ["create", "actors", "--size", "4"]).fails(243);
    assert!(again.contains("already exists"), "{again}");
    let kicked = member(&dvm, 1, "actors", &["true"]).start();
    let stays = member(&dvm, 0, "actors --rank 2", &["true"]).start();
    let waiting = until_waiting(&dvm, "actors", 2);
    let text = group(&dvm, 1, ["show", "actors"]).ok();
    for part in [
        "filling",
        "size     3",
        "rsctl group create",
        "epoch 1: 2 waiting, 1 missing",
        "node1 pid ",
        "requests rank 2",
    ] {
        assert!(text.contains(part), "{part}: {text}");
    }
    assert!(group(&dvm, 0, ["ls"]).ok().contains("actors  filling     3        2           1  -"));
    let pid = waiting.iter().find(|member| member["node_name"] == "node1").expect("a member on node1 waits")["pid"]
        .to_string();
    group(&dvm, 0, ["kick", "actors", &format!("node0:{pid}")]).fails(246);
    group(&dvm, 0, ["kick", "actors", &format!("node1:{pid}")]).ok();
    assert!(kicked.end().fails(130).contains("removed from group actors"));
    group(&dvm, 1, ["close", "actors"]).ok();
    assert!(stays.end().fails(243).contains("group actors is closed"));
    member(&dvm, 0, "actors --size 3", &["true"]).end().fails(243);
    group(&dvm, 0, ["show", "critics"]).fails(246);
}

#[test]
fn the_join_socket_survives_malformed_lines() {
    let dvm = Dvm::start(1);
    let path = dvm.runtime_dir(0).join("join.sock");
    let ask = |line: &str| {
        let mut stream = UnixStream::connect(&path).expect("the daemon listens");
        stream.write_all(line.as_bytes()).expect("a short line can be written");
        BufReader::new(stream)
    };
    let answer = |line: &str| {
        let mut text = String::new();
        ask(line).read_line(&mut text).expect("the daemon answers");
        Event::parse(text.trim_end()).unwrap_or_else(|error| panic!("{text:?}: {error}"))
    };
    let code = |line: &str| match answer(line) {
        Event::Error { code, text } => (code, text),
        other => panic!("{line:?}: {other:?}"),
    };
    assert_eq!(code("join v=2 group=actors size=2\n").0, 244);
    assert_eq!(code("hello\n").0, 240);
    assert_eq!(code("join v=1 group=actors size=0\n").0, 240);
    assert_eq!(code("join v=1 group=actors size=2 pid=1073741824\n").0, 240);
    assert_eq!(code(&format!("join v=1 group={}\n", "a".repeat(20_000))).0, 240);
    assert!(matches!(answer("join v=1 group=actors size=2\n"), Event::Wait(_)));
    // The token identifies the place on any connection.
    let mut first = ask(&Join { group: Some("actors".into()), size: Some(2), ..Join::default() }.line());
    let mut line = String::new();
    first.read_line(&mut line).expect("the daemon answers");
    let Ok(Event::Wait(wait)) = Event::parse(line.trim_end()) else { panic!("{line}") };
    assert_eq!((wait.have, wait.want, wait.epoch), (1, 2, 1));
}

#[test]
fn many_rounds_of_joining_and_leaving_leave_nothing_behind() {
    let dvm = Dvm::start(1);
    let path = dvm.runtime_dir(0).join("join.sock");
    let line = Join { group: Some("actors".into()), size: Some(2), ..Join::default() }.line();
    let round = || {
        let mut stream = UnixStream::connect(&path).expect("the daemon listens");
        stream.write_all(line.as_bytes()).expect("a short line can be written");
        let mut text = String::new();
        BufReader::new(stream).read_line(&mut text).expect("the daemon answers");
        assert!(text.starts_with("wait ") || text.contains("already"), "{text}");
    };
    let open = || processes::open_files(dvm.pid(0)).expect("the daemon runs");
    round();
    let (before, memory) = (open(), processes::private_bytes(dvm.pid(0)).expect("the daemon runs"));
    (0..1000).for_each(|_| round());
    // The spare step process may have started in the meantime, with a few descriptors.
    eventually("the daemon has closed all connections", WITHIN, || (open() <= before + 8).then_some(()));
    let grown = processes::private_bytes(dvm.pid(0)).expect("the daemon runs").saturating_sub(memory);
    assert!(grown < 1 << 20, "the daemon has grown by {grown} bytes");
    eventually("no member waits", WITHIN, || {
        (group(&dvm, 0, ["ls", "--json"]).ok().contains(r#""groups":[]"#)).then_some(())
    });
}

#[test]
fn epoch_after_epoch_leaves_nothing_behind() {
    let dvm = Dvm::start(1);
    let program = Mpi::Debian.program("hello.c");
    let round = || {
        let members = (0..2).map(|_| member(&dvm, 0, "actors --size 2", &[&program]).start()).collect();
        assert_eq!(all_ok(members), hello_lines(1, 2));
    };
    let settled = || {
        eventually("the last job is over", WITHIN, || {
            dvm.json("ps")["jobs"].as_array().is_some_and(Vec::is_empty).then_some(())
        });
        processes::open_files(dvm.pid(0)).expect("the daemon runs")
    };
    (0..2).for_each(|_| round());
    let before = settled();
    (0..20).for_each(|_| round());
    // The spare step process has a few descriptors and may have started or ended in the meantime. One descriptor per epoch would be
    // twenty.
    eventually("no descriptor is left", WITHIN, || (settled() <= before + 8).then_some(()));
}

#[test]
fn members_join_by_grpc() {
    let dvm = Dvm::start(2);
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime can be created");
    let events: Vec<join_event::Event> = runtime.block_on(async {
        let mut streams = Vec::new();
        for at in 0..2 {
            let target = Target::Unix(dvm.runtime_dir(at).join("rsd.sock"));
            let channel = dial(&target, WITHIN).await.expect("the daemon runs");
            // A process is one member per group, but may be in several groups; here it requests the second place for another
            // process.
            let pid = if at == 0 { 0 } else { u32::try_from(dvm.pid(0)).expect("a pid") };
            let request = JoinRequest { group: "actors".into(), size: Some(2), pid, ..JoinRequest::default() };
            let stream = dvm_client(channel).join_group(request).await.expect("the request is valid");
            streams.push(stream.into_inner());
        }
        let mut last = Vec::new();
        for mut stream in streams {
            while let Some(event) = stream.message().await.expect("the daemon runs") {
                last.push(event.event.expect("an event has a kind"));
            }
        }
        last
    });
    let went: Vec<_> = events
        .iter()
        .filter_map(|event| match event {
            join_event::Event::Go(go) => Some((go.rank, go.size, go.local_size, go.nodes, go.job, &go.node[..])),
            join_event::Event::Wait(_) | join_event::Event::Error(_) => None,
        })
        .collect();
    assert_eq!(went, [(0, 2, 1, 2, 1, "node0"), (1, 2, 1, 2, 1, "node1")], "{events:?}");
    dvm.ctl("cancel last").ok();
    dvm.ctl("wait last").end().fails(130);
}
