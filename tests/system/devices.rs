//! MPI on device memory: programs that check themselves (`programs/cuda`), over a double of the CUDA driver whose device memory crashes a
//! process that touches it; on a real device, by a test that must be asked for.

use std::collections::HashMap;
use std::fs;
use std::os::unix::fs::symlink;
use std::time::Duration;

use rsd_tests::{Call, Dvm, Mpi, Options, mpi4py_for_the_abi, plain_with};

/// Nodes, and the double of the driver for the programs that run on them.
struct Machine {
    dvm: Dvm,
    driver: String,
}

impl Machine {
    /// With room for so many ranks.
    fn start(nodes: usize, ranks: usize) -> Self {
        let slots = ranks.div_ceil(nodes) as u32;
        let dvm = Dvm::start_with(Options { nodes, slots, args: Vec::new() });
        let library = plain_with("cuda/fake.c", &["-shared", "-fPIC", "-Wl,-soname,libcuda.so.1"]);
        let driver = dvm.scratch();
        symlink(library, driver.join("libcuda.so.1")).expect("the scratch folder is new");
        Self { dvm, driver: driver.display().to_string() }
    }

    /// Runs a program of `programs/cuda` on the nodes in turn; `settings` are variables of its environment.
    fn run(&self, n: usize, settings: &[&str], program: &str, args: &[&str]) -> Call {
        let (n, library) = (n.to_string(), format!("LD_LIBRARY_PATH={}", self.driver));
        let mut line = vec!["run", "-n", &n, "--map-by", "node", "-x", &library, "-x", "RSD_MPI_CUDA=on"];
        settings.iter().for_each(|setting| line.extend(["-x", *setting]));
        let program = Mpi::Ours.program(&format!("cuda/{program}.c"));
        line.push(&program);
        line.extend(args);
        self.dvm.rsctl(line).deadline(Duration::from_secs(100))
    }

    /// As [`Machine::run`]; also returns how often all ranks together called each function of the driver.
    fn counted(&self, n: usize, program: &str, args: &[&str]) -> (String, HashMap<String, u64>) {
        let trace = self.dvm.file("trace", "");
        let said = self.run(n, &[&format!("FAKE_CUDA_TRACE={trace}")], program, args).ok();
        let mut calls = HashMap::new();
        for line in fs::read_to_string(trace).expect("the ranks have written it").lines() {
            let [_, function, count] = line.split(' ').collect::<Vec<_>>()[..] else { panic!("{line}") };
            *calls.entry(function.to_owned()).or_insert(0) += count.parse::<u64>().expect("a number");
        }
        (said, calls)
    }
}

#[test]
fn messages_go_between_all_kinds_of_memory() {
    for (nodes, n) in [(1, 2), (1, 5), (2, 2), (2, 3)] {
        let machine = Machine::start(nodes, n);
        assert_eq!(machine.run(n, &[], "p2p", &[]).ok(), format!("ok p2p DMPH on {n} ranks\n"), "{nodes} nodes");
    }
}

#[test]
fn messages_arrive_by_every_way_that_is_left() {
    let machine = Machine::start(1, 2);
    for settings in [
        "RSD_MPI_SHM=off",
        "RSD_MPI_CUDA_IPC=off",
        "RSD_MPI_CMA=off",
        "RSD_MPI_PROGRESS=thread",
        "RSD_MPI_CHECK=1",
        "FAKE_CUDA_NO_IPC=1",
        "FAKE_CUDA_NO_OPEN=1",
    ] {
        assert_eq!(machine.run(2, &[settings], "p2p", &["DH"]).ok(), "ok p2p DH on 2 ranks\n", "{settings}");
    }
}

#[test]
fn collectives_work_on_device_memory() {
    for (nodes, n) in [(1, 1), (1, 2), (1, 4), (2, 3)] {
        let machine = Machine::start(nodes, n);
        assert_eq!(machine.run(n, &[], "coll", &[]).ok(), format!("ok coll DD,DH,HD on {n} ranks\n"), "{nodes} nodes");
    }
}

#[test]
fn one_sided_operations_work_from_device_memory_and_windows_refuse_it() {
    for (nodes, n) in [(1, 1), (1, 3), (2, 2)] {
        let machine = Machine::start(nodes, n);
        assert_eq!(machine.run(n, &[], "rma", &[]).ok(), format!("ok rma on {n} ranks\n"), "{nodes} nodes");
    }
}

#[test]
fn an_allocation_is_exported_and_mapped_once() {
    let machine = Machine::start(1, 2);
    // 64 messages of 1 to 256 KiB in both directions at once, several times, from one allocation into another.
    let (_, calls) = machine.counted(2, "p2p", &["D", "w"]);
    let count = |function: &str| calls.get(function).copied().unwrap_or(0);
    assert_eq!((count("cuIpcGetMemHandle"), count("cuIpcOpenMemHandle_v2")), (2, 2), "{calls:?}");
    assert!(count("cuMemcpyDtoDAsync_v2") > 0, "the device has copied nothing: {calls:?}");
    assert_eq!((count("cuIpcCloseMemHandle"), count("open"), count("unfinished")), (2, 0, 0), "{calls:?}");
}

#[test]
fn the_driver_is_not_loaded_for_a_program_that_does_not_use_it() {
    let machine = Machine::start(1, 2);
    let (said, calls) = machine.counted(2, "p2p", &["H"]);
    assert_eq!((said.as_str(), calls.len()), ("ok p2p H on 2 ranks\n", 0), "{calls:?}");
}

#[test]
fn a_copy_that_fails_is_an_error_of_its_call() {
    let machine = Machine::start(1, 2);
    assert_eq!(machine.run(2, &["FAKE_CUDA_FAIL_COPY=1"], "faults", &["copy"]).ok(), "ok faults copy\n");
    for settings in [
        &["FAKE_CUDA_FAIL_COPY=1"][..],
        &["FAKE_CUDA_FAIL_COPY=1", "FAKE_CUDA_FAIL_LATE=1"],
        &["FAKE_CUDA_FAIL_COPY=1", "RSD_MPI_SHM=off"],
        &["FAKE_CUDA_FAIL_COPY=1", "RSD_MPI_PROGRESS=thread"],
    ] {
        assert_eq!(machine.run(2, settings, "faults", &["calls"]).ok(), "ok faults calls\n", "{settings:?}");
    }
    let said = machine.run(2, &["FAKE_CUDA_FAIL_COPY=1"], "faults", &["default"]).end();
    assert!(!said.status.success(), "{}", said.err());
    let text = said.err();
    assert!(text.contains("cannot use the device memory at 0x"), "{text}");
    assert!(text.contains("CUDA_ERROR_ILLEGAL_ADDRESS: an illegal memory access was encountered"), "{text}");
}

#[test]
fn a_process_outlives_the_death_of_one_whose_memory_it_has_mapped() {
    let machine = Machine::start(1, 2);
    let library = format!("LD_LIBRARY_PATH={}", machine.driver);
    let program = Mpi::Ours.program("cuda/faults.c");
    let line =
        ["run", "-n", "2", "--on-rank-loss", "continue", "-x", &library, "-x", "RSD_MPI_CUDA=on", &program, "dies"];
    let said = machine.dvm.rsctl(line).end().out();
    assert!(said.contains("rank 1 goes on\n"), "{said}");
}

#[test]
fn contexts_resets_and_freed_memory_do_not_confuse_it() {
    let machine = Machine::start(1, 2);
    for mode in ["freed-later", "context", "late", "reset"] {
        assert_eq!(machine.run(2, &[], "faults", &[mode]).ok(), format!("ok faults {mode}\n"));
    }
}

#[test]
fn the_kinds_of_memory_are_told() {
    let machine = Machine::start(1, 1);
    let (python, _) = mpi4py_for_the_abi();
    let script = "from mpi4py import MPI; print(MPI.COMM_WORLD.Get_info().get('mpi_memory_alloc_kinds'))";
    let kinds = |setting: &str| {
        let set = format!("RSD_MPI_CUDA={setting}");
        machine.dvm.rsctl(["run", "-x", &set, &python.display().to_string(), "-c", script]).ok()
    };
    assert_eq!(kinds("on"), "system,mpi,cuda:host,cuda:device,cuda:managed\n");
    assert_eq!(kinds("off"), "system,mpi\n");
}

#[test]
#[ignore = "needs an NVIDIA GPU and its driver (libcuda.so.1)"]
fn all_programs_pass_on_a_real_device() {
    let dvm = Dvm::start_with(Options { nodes: 1, slots: 3, args: Vec::new() });
    let run = |n: &str, program: &str, arg: &[&str], settings: &[&str]| {
        let program = Mpi::Ours.program(&format!("cuda/{program}.c"));
        let line = ["run", "-n", n].into_iter().chain(settings.iter().copied()).chain([program.as_str()]);
        dvm.rsctl(line.chain(arg.iter().copied())).deadline(Duration::from_secs(100)).ok()
    };
    for settings in [&[][..], &["-x", "RSD_MPI_SHM=off"], &["-x", "RSD_MPI_CUDA_IPC=off"]] {
        assert_eq!(run("2", "p2p", &[], settings), "ok p2p DMPH on 2 ranks\n", "{settings:?}");
        assert_eq!(run("3", "coll", &[], settings), "ok coll DD,DH,HD on 3 ranks\n", "{settings:?}");
        assert_eq!(run("2", "rma", &[], settings), "ok rma on 2 ranks\n", "{settings:?}");
    }
    for mode in ["freed-later", "context", "late", "reset"] {
        assert_eq!(run("2", "faults", &[mode], &[]), format!("ok faults {mode}\n"));
    }
}
