//! Open MPI and other PMIx clients: unmodified programs under the same commands as all others.

use rsd_tests::{Call, Dvm, Mpi, Options, pkg_config, plain_with, python};

use crate::sorted;

/// The Open MPIs that bring mpi4py.
const WHEELS: [Mpi; 2] = [Mpi::OpenMpi4, Mpi::OpenMpi5];

/// `rsctl run …` of a script with this MPI's Python. Between daemons of one machine, Open MPI must be told to use loopback.
fn run(dvm: &Dvm, mpi: Mpi, ranks: &str, script: &[&str]) -> Call {
    let interpreter = mpi.python().expect("it brings mpi4py");
    let [_, path] = python(script[0]);
    let call = dvm.rsctl(["run", "-n", ranks]).args([&interpreter]).args([&path]).args(&script[1..]);
    let call = call.env("OMPI_MCA_btl_tcp_if_include", "lo").env("OMPI_MCA_pml", "ob1");
    match mpi.environment() {
        Some((name, value)) => call.env(name, value),
        None => call,
    }
}

#[test]
fn every_open_mpi_is_one_world_on_one_node_and_on_two() {
    for nodes in [1, 2] {
        let dvm = Dvm::start_with(Options { nodes, slots: 4 / nodes as u32, args: Vec::new() });
        for mpi in WHEELS {
            assert_eq!(run(&dvm, mpi, "4", &["world.py"]).ok(), "world right on 4\n", "{mpi:?} on {nodes} nodes");
        }
        let program = Mpi::OpenMpiDebian.program("collectives.c");
        let call = dvm.rsctl(["run", "-n", "4", &program]).env("OMPI_MCA_btl_tcp_if_include", "lo");
        assert_eq!(call.ok(), "collectives right on 4 ranks\n", "{nodes} nodes");
    }
}

/// UCX takes part only where it finds a network for which it was made, unless it is told to use what is there.
#[test]
fn every_open_mpi_sends_through_ucx_between_two_daemons() {
    let dvm = Dvm::start_with(Options { nodes: 2, slots: 2, args: Vec::new() });
    for mpi in [Mpi::OpenMpiDebian, Mpi::OpenMpi4, Mpi::OpenMpi5] {
        let ucx = |program: &str, arg: &str| {
            let call = dvm.rsctl(["run", "-n", "4", "--map-by", "node", &mpi.program(program), arg]);
            let call = call.env("OMPI_MCA_pml", "ucx").env("OMPI_MCA_opal_common_ucx_tls", "any");
            call.env("OMPI_MCA_opal_common_ucx_devices", "any").ok()
        };
        assert_eq!(ucx("ring.c", "5"), "token 20\n", "{mpi:?}");
        assert_eq!(ucx("collectives.c", ""), "collectives right on 4 ranks\n", "{mpi:?}");
    }
}

/// As many ranks as a large node has, and half of them on four daemons. (64 ranks that wait in four sessions get such uneven shares
/// of two processors from Linux that some do not run for seconds: a job then takes 4 to 18 s, with the same ranks in one session 1.7 s.)
#[test]
fn many_ranks_of_open_mpi_meet_on_one_daemon_and_on_four() {
    for (nodes, ranks) in [(1, 64), (4, 32)] {
        let dvm = Dvm::start_with(Options { nodes, slots: ranks / nodes as u32, args: Vec::new() });
        for mpi in [Mpi::OpenMpi4, Mpi::OpenMpi5] {
            let call = dvm.rsctl(["run", "-n", &ranks.to_string(), &mpi.program("ring.c"), "2"]);
            // Without the module that sleeps; and 4.1 names its shared memory after the host, which the daemons have in common.
            let on_one = if mpi == Mpi::OpenMpi4 { "self,vader" } else { "self,sm" };
            let btl = if nodes == 1 { on_one } else { "self,tcp" };
            let call =
                call.env("OMPI_MCA_btl", btl).env("OMPI_MCA_btl_tcp_if_include", "lo").env("OMPI_MCA_pml", "ob1");
            assert_eq!(call.ok(), format!("token {}\n", 2 * ranks), "{mpi:?} on {nodes} daemons");
        }
    }
}

#[test]
fn a_client_without_mpi_gets_right_answers_on_one_node_and_on_two() {
    let flags = pkg_config("pmix");
    let flags: Vec<&str> = flags.iter().map(String::as_str).collect();
    let program = plain_with("pmix.c", &flags);
    for nodes in [1, 2] {
        let dvm = Dvm::start_with(Options { nodes, slots: 4 / nodes as u32, args: Vec::new() });
        let printed = dvm.rsctl(["run", "-n", "4", &program]).ok();
        let expected: Vec<String> = (0..4).map(|rank| format!("rank {rank} of 4 right")).collect();
        assert_eq!(sorted(&printed), expected, "{nodes} nodes");
    }
}

#[test]
fn sessions_spawns_and_connections_work() {
    let dvm = Dvm::start_with(Options { nodes: 1, slots: 8, args: Vec::new() });
    let printed = run(&dvm, Mpi::OpenMpi5, "3", &["sessions.py"]).ok();
    let expected: Vec<String> = (0..3).map(|rank| format!("rank {rank} of 3, 2 in the smaller one")).collect();
    assert_eq!(sorted(&printed), expected);
    for mpi in WHEELS {
        let printed = run(&dvm, mpi, "2", &["family.py"]).ok();
        assert_eq!(sorted(&printed), ["child in 4", "child in 4", "parent in 4", "parent in 4"], "{mpi:?}");
        let accepting = run(&dvm, mpi, "2", &["doors.py", "accept"]).start();
        accepting.until_stdout(|text| text.contains("published").then_some(()));
        let connecting = run(&dvm, mpi, "2", &["doors.py", "connect"]).ok();
        assert_eq!(connecting, "4 together\n4 together\n", "{mpi:?}");
        assert_eq!(sorted(&accepting.end().ok()), ["4 together", "4 together", "published"], "{mpi:?}");
    }
}

/// Without a fabric, Open MPI 5's module for libfabric sleeps for a second, so it is left out, unless the user has said what to use.
#[test]
fn open_mpi_does_not_look_for_a_fabric_that_is_not_there() {
    let dvm = Dvm::start(1);
    let class =
        |name: &str| std::fs::read_dir(format!("/sys/class/{name}")).is_ok_and(|mut found| found.next().is_some());
    let is_there = ["infiniband", "infiniband_verbs", "cxi", "cxi_user", "hfi1"].into_iter().any(class);
    let home = dvm.scratch().join("home");
    std::fs::create_dir_all(home.join(".openmpi")).expect("the scratch directory is writable");
    // The distribution's file may leave out more.
    let script = "echo $OMPI_MCA_btl $OMPI_MCA_mtl . | sed 's/,[a-z,]* ^ofi/ ^ofi/'";
    let told = |name: &str, value: &str| {
        let call = dvm.rsctl(["run", "-n", "1", "sh", "-c", script]).env("HOME", &home).env("PATH", "/usr/bin:/bin");
        call.env(name, value).ok()
    };
    assert_eq!(told("OMPI_MCA_btl_tcp_if_include", "lo"), if is_there { ".\n" } else { "^ofi ^ofi .\n" });
    assert_eq!(told("OMPI_MCA_btl", "self,tcp"), "self,tcp .\n");
    assert_eq!(told("FI_PROVIDER", "tcp"), ".\n");
    // A job of a job may run where there is a fabric, so it does not inherit the answer.
    let rsctl = rsd_tests::built::rsctl().display().to_string();
    let nested = ["run", "-n", "1", &rsctl, "run", "-n", "1", "-x", "FI_PROVIDER=tcp", "sh", "-c", script];
    assert_eq!(dvm.rsctl(nested).env("HOME", &home).env("PATH", "/usr/bin:/bin").ok(), ".\n");
    std::fs::write(home.join(".openmpi/mca-params.conf"), "btl = self,tcp\n").expect("written");
    assert_eq!(told("OMPI_MCA_btl_tcp_if_include", "lo"), ".\n", "the user's file decides");
}

#[test]
fn an_abort_and_an_exit_without_finalize_end_the_job_with_their_code() {
    let dvm = Dvm::start_with(Options { nodes: 1, slots: 4, args: Vec::new() });
    for mpi in WHEELS {
        let said = run(&dvm, mpi, "2", &["ends.py", "abort"]).fails(7);
        assert!(said.contains("called MPI_Abort with code 7"), "{mpi:?}: {said}");
        let said = run(&dvm, mpi, "2", &["ends.py", "exit"]).fails(5);
        assert!(said.contains("exited with code 5 (without MPI_Finalize)"), "{mpi:?}: {said}");
    }
}

#[test]
fn a_job_leaves_no_files_behind() {
    let dvm = Dvm::start_with(Options { nodes: 1, slots: 4, args: Vec::new() });
    let directory = dvm.scratch().join("segments");
    std::fs::create_dir(&directory).expect("the scratch directory is writable");
    let within = |call: Call| {
        let names = ["TMPDIR", "OMPI_MCA_btl_sm_backing_directory", "OMPI_MCA_btl_vader_backing_directory"];
        names.iter().fold(call, |call, name| call.env(name, &directory))
    };
    for mpi in WHEELS {
        within(run(&dvm, mpi, "2", &["world.py"])).ok();
        within(run(&dvm, mpi, "2", &["ends.py", "exit"])).fails(5);
        let left: Vec<_> =
            std::fs::read_dir(&directory).expect("it exists").flatten().map(|it| it.file_name()).collect();
        assert!(left.is_empty(), "{mpi:?}: {left:?}");
    }
}

#[test]
fn a_ranks_place_cannot_be_set_by_its_user() {
    let dvm = Dvm::start(1);
    let names = ["OMPI_COMM_WORLD_RANK", "PMIX_RANK", "PMI_RANK", "RSD_RANK", "PMI_FD"];
    let wrong: Vec<String> = names.iter().flat_map(|name| ["-x".to_owned(), format!("{name}=9")]).collect();
    // In C the first of two values would count, in a shell the last: so there must be one.
    let count = names.map(|name| format!("-e ^{name}=")).join(" ");
    let script = format!("echo $RSD_RANK $OMPI_COMM_WORLD_RANK $PMIX_RANK $PMI_RANK $(env | grep -c {count}) $MINE");
    let call = dvm.rsctl(["run", "-n", "2", "-x", "MINE=kept"]).args(&wrong).args(["sh", "-c", &script]);
    assert_eq!(sorted(&call.ok()), ["0 0 0 0 5 kept", "1 1 1 1 5 kept"]);
    let interpreter = Mpi::OpenMpi5.python().expect("it brings mpi4py");
    let [_, path] = python("world.py");
    let call = dvm.rsctl(["run", "-n", "2"]).args(&wrong).args([&interpreter]).args([&path]);
    assert_eq!(call.env("OMPI_MCA_pml", "ob1").ok(), "world right on 2\n");
}
