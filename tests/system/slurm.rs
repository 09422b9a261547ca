//! The MPI and PMI libraries under Slurm's launcher (`srun --mpi=pmi2` speaks both PMIs): a cluster of two nodes on this machine,
//! with its own controller, a daemon for each node and an authenticator, in a scratch directory.

use std::fs::{self, File};
use std::io::Read;
use std::net::TcpListener;
use std::os::unix::fs::PermissionsExt;
use std::sync::atomic::{AtomicU16, Ordering};
use std::time::Duration;

use nix::sys::signal::{Signal, kill};
use nix::unistd::{Pid, User, geteuid, gethostname};
use rsd_tests::{Call, Dvm, Mpi, Options, Pmi, Running, built, eventually, processes};

use crate::pmi2::right;
use crate::sorted;

/// The daemons of a Slurm cluster with the nodes n0 and n1. They stop when it is dropped.
struct Cluster {
    /// The daemons in the order in which they were started.
    daemons: Vec<Running>,
    /// The directory of the cluster; dropping it checks that the cluster leaves nothing behind.
    dvm: Dvm,
}

const NODES: usize = 2;
const READY: Duration = Duration::from_secs(30);

impl Cluster {
    fn start() -> Cluster {
        let dvm = Dvm::start_with(Options { nodes: 0, slots: 0, args: Vec::new() });
        let mut cluster = Cluster { daemons: Vec::new(), dvm };
        cluster.write_configuration();
        // munged warns about directories that others cannot enter; --force makes it start.
        let munged = ["--force", "--foreground", "--key-file=key", "--seed-file=seed", "--pid-file=munged.pid"];
        let socket = format!("--socket={}/munge.sock", cluster.dvm.scratch().display());
        cluster.start_daemon(cluster.call("/usr/sbin/munged").args(munged).args([socket]), "Created socket");
        cluster.start_daemon(cluster.call("/usr/sbin/slurmctld").args(["-D"]), "Running as primary controller");
        for node in 0..NODES {
            let slurmd = cluster.call("/usr/sbin/slurmd").args(["-D", "-N", &format!("n{node}")]);
            cluster.start_daemon(slurmd, "slurmd started");
        }
        eventually("all nodes are idle", READY, || {
            let states = cluster.call("sinfo").args(["--noheader", "--Node", "--format=%T"]).ok();
            (states == "idle\n".repeat(NODES)).then_some(())
        });
        cluster
    }

    fn write_configuration(&self) {
        let dir = self.dvm.scratch();
        let spools = (0..NODES).map(|node| format!("spool-n{node}"));
        for sub in spools.chain(["state".to_owned()]) {
            fs::create_dir(dir.join(sub)).expect("the directory is writable");
        }
        // A process with this key can run programs as the user of the test.
        let mut secret = [0; 64];
        File::open("/dev/urandom")
            .and_then(|mut it| it.read_exact(&mut secret))
            .expect("the kernel gives random bytes");
        let key = self.dvm.file("key", secret);
        fs::set_permissions(key, fs::Permissions::from_mode(0o600)).expect("the file belongs to this user");

        let host = gethostname().expect("a machine has a name").to_string_lossy().into_owned();
        let user = User::from_uid(geteuid()).ok().flatten().expect("the user has a name").name;
        let ports = free_ports();
        let text = CONFIGURATION
            .replace("{dir}", &dir.display().to_string())
            .replace("{host}", &host)
            .replace("{user}", &user)
            .replace("{controller}", &ports[0].to_string())
            .replace("{port0}", &ports[1].to_string())
            .replace("{port1}", &ports[2].to_string());
        self.dvm.file("slurm.conf", text);
        self.dvm.file("cgroup.conf", "");
    }

    /// A program in an environment in which it finds this cluster.
    fn call(&self, program: &str) -> Call {
        let dir = self.dvm.scratch();
        self.dvm.call(program).env("SLURM_CONF", dir.join("slurm.conf")).dir(dir)
    }

    #[track_caller]
    fn start_daemon(&mut self, call: Call, ready: &str) {
        let daemon = call.deadline(READY).start();
        daemon.until_stderr(|said| said.contains(ready).then_some(()));
        self.daemons.push(daemon);
    }

    /// `srun` with the words of a line as options, for a program.
    fn srun(&self, line: &str, program: &str) -> Call {
        self.call("srun").args(line.split_whitespace()).args([&Mpi::Ours.program(&format!("mpi/{program}.c")), "few"])
    }
}

impl Drop for Cluster {
    fn drop(&mut self) {
        for daemon in self.daemons.drain(..).rev() {
            daemon.signal(Signal::SIGTERM);
            if !daemon.gone() && !std::thread::panicking() {
                panic!("a Slurm daemon does not stop:\n{}", daemon.stderr());
            }
        }
    }
}

/// Returns ports for the controller and the daemons, which need fixed ports. No other program can get them before the daemons
/// listen: they are below the range that the kernel assigns, and two clusters of one process never use the same ports.
fn free_ports() -> [u16; NODES + 1] {
    static NEXT: AtomicU16 = AtomicU16::new(0);
    let range = fs::read_to_string("/proc/sys/net/ipv4/ip_local_port_range").expect("Linux has this file");
    let assigned_from: u16 =
        range.split_whitespace().next().and_then(|it| it.parse().ok()).expect("the range has a first port");
    assert!(assigned_from > 20_000, "the kernel assigns nearly all ports: {range}");
    // Other test runs on this machine start at other ports.
    let span = assigned_from - 10_000;
    let start = u16::try_from(std::process::id() % u32::from(span)).expect("it is less than a port");
    [(); NODES + 1].map(|()| {
        let free = || {
            let step = NEXT.fetch_add(1, Ordering::Relaxed);
            let port = 10_000 + start.wrapping_add(step) % span;
            TcpListener::bind(("0.0.0.0", port)).is_ok().then_some(port)
        };
        (0..span).find_map(|_| free()).expect("some ports are free")
    })
}

/// The first job number differs between clusters on this machine, because it identifies their jobs.
const CONFIGURATION: &str = "
ClusterName=test
SlurmctldHost={host}(127.0.0.1)
SlurmctldPort={controller}
SlurmUser={user}
SlurmdUser={user}
AuthType=auth/munge
AuthInfo=socket={dir}/munge.sock
CredType=cred/munge
FirstJobId={controller}00
ProctrackType=proctrack/pgid
TaskPlugin=task/none
SelectType=select/cons_tres
SelectTypeParameters=CR_CPU
SlurmdParameters=config_overrides
ReturnToService=2
StateSaveLocation={dir}/state
SlurmctldPidFile={dir}/slurmctld.pid
SlurmdPidFile={dir}/slurmd-%n.pid
SlurmdSpoolDir={dir}/spool-%n
NodeName=n0 NodeHostname={host} NodeAddr=127.0.0.1 Port={port0} CPUs=4
NodeName=n1 NodeHostname={host} NodeAddr=127.0.0.1 Port={port1} CPUs=4
PartitionName=all Nodes=n[0-1] Default=YES
";

#[test]
fn programs_pass_under_slurm_on_one_node_and_on_two() {
    let slurm = Cluster::start();
    for (nodes, n) in [(1, 1), (1, 2), (1, 4), (2, 2), (2, 4)] {
        for program in ["p2p", "comms", "collectives", "startup", "attributes"] {
            let ended = slurm.srun(&format!("--mpi=pmi2 --nodes {nodes} --ntasks {n}"), program).end();
            assert_eq!(ended.ok(), format!("{program} ok on {n}\n"), "{nodes} nodes");
        }
    }
}

#[test]
fn an_error_under_slurm_ends_the_job_and_is_reported() {
    let slurm = Cluster::start();
    let ended = slurm.srun("--mpi=pmi2 --ntasks 3", "fatal").end();
    assert!(!ended.status.success(), "{ended}");
    assert!(ended.err().contains("MPI_Send: 44 is not a rank of the communicator (0 to 2)"), "{ended}");
    // Slurm's default is to offer no PMI.
    let ended = slurm.srun("--mpi=none --ntasks 2", "startup").end();
    assert!(!ended.status.success(), "{ended}");
    assert!(ended.err().contains("srun without PMI (try srun --mpi=pmi2, "), "{ended}");
}

#[test]
fn the_pmi_libraries_of_rsd_work_under_slurm() {
    let slurm = Cluster::start();
    for (source, what) in [("pmi/pmi.c", "some"), ("pmi/pmi2.c", "exchange"), ("pmi/pmi2.c", "shmem")] {
        for (nodes, n) in [(1, 2), (2, 4)] {
            let line = format!("--mpi=pmi2 --nodes {nodes} --ntasks {n}");
            let program = Pmi::Ours.program(source);
            let printed = slurm.call("srun").args(line.split_whitespace()).args([&program, what]).ok();
            assert_eq!(sorted(&printed), right(what, n), "{source} on {nodes} nodes");
        }
    }
}

/// `mpiexec` as it is installed, with the words of a line as options.
fn mpiexec(slurm: &Cluster, line: &str) -> Vec<String> {
    let link = slurm.dvm.scratch().join("mpiexec");
    if !link.exists() {
        std::os::unix::fs::symlink(built::rsctl(), &link).expect("the file does not exist yet");
    }
    [link.display().to_string()].into_iter().chain(line.split_whitespace().map(str::to_owned)).collect()
}

const WHERE: [&str; 3] = ["sh", "-c", "echo $RSD_NODE_NAME $RSD_RANK"];

#[test]
fn mpiexec_uses_all_nodes_of_an_allocation_and_leaves_nothing_on_them() {
    let slurm = Cluster::start();
    let salloc = |line: &str| slurm.call("salloc").args(["--quiet"]).args(line.split_whitespace());
    // The shell of salloc is on none of the nodes.
    let placed = salloc("--nodes=1 --ntasks=3").args(mpiexec(&slurm, "")).args(WHERE).ok();
    assert_eq!(sorted(&placed), ["n0 0", "n0 1", "n0 2"]);
    let placed = salloc("--nodes=2 --ntasks-per-node=2").args(mpiexec(&slurm, "")).args(WHERE).ok();
    assert_eq!(sorted(&placed), ["n0 0", "n0 1", "n1 2", "n1 3"]);
    let one = salloc("--nodes=2 --ntasks-per-node=2").args(mpiexec(&slurm, "-n 2 -host n1")).args(WHERE).ok();
    assert_eq!(sorted(&one), ["n1 0", "n1 1"]);
    // A batch script is on the first node.
    let said = slurm.dvm.scratch().join("said").display().to_string();
    for mpi in [Mpi::Ours, Mpi::Wheel, Mpi::OpenMpi5] {
        let line = mpiexec(&slurm, &format!("-ppn 2 {} 5", mpi.program("ring.c"))).join(" ");
        let command = mpi
            .environment()
            .into_iter()
            .fold(line, |line, (name, value)| format!("{name}={} {line}", value.display()));
        let batch = ["--wait", "--nodes=2", "--ntasks-per-node=2", &format!("--output={said}"), "--wrap", &command];
        let ended = slurm.call("sbatch").args(batch).end();
        let said = fs::read_to_string(&said).expect("the script has run");
        assert!(ended.status.success(), "{mpi:?}: {ended}\n{said}");
        assert_eq!(said, "token 20\n", "{mpi:?}");
    }
    // srun has ended with mpiexec, and Slurm waits for no step.
    eventually("all nodes are idle", READY, || {
        let states = slurm.call("sinfo").args(["--noheader", "--Node", "--format=%T"]).ok();
        (states == "idle\n".repeat(NODES)).then_some(())
    });
}

#[test]
fn the_daemons_of_an_allocation_end_with_mpiexec_however_it_ends() {
    let slurm = Cluster::start();
    let dir = slurm.dvm.scratch().join("tmp");
    fs::create_dir(&dir).expect("the directory is writable");
    let line = mpiexec(&slurm, "sh -c").into_iter().chain(["echo started; exec sleep 1000".to_owned()]);
    let job = slurm.call("salloc").args(["--quiet", "--nodes=2", "--ntasks-per-node=1"]).args(line);
    let job = job.env("TMPDIR", &dir).start();
    job.until_stdout(|out| (out.matches("started").count() == 2).then_some(()));
    let scratch = slurm.dvm.scratch().display().to_string();
    let running = |word: &str| -> Vec<(i32, String)> {
        processes::mentioning(&scratch).into_iter().filter(|(_, line)| line.contains(word)).collect()
    };
    assert!(running("--private").len() >= 2, "{:?}", running("--private"));
    let launcher = running("/mpiexec").into_iter().find(|(_, line)| line.starts_with(&scratch)).expect("it runs");
    kill(Pid::from_raw(launcher.0), Signal::SIGKILL).expect("it is ours");
    job.end();
    for word in ["--private", "sleep 1000"] {
        eventually(&format!("{word} has ended"), READY, || running(word).is_empty().then_some(()));
    }
    eventually("no directory is left", READY, || {
        fs::read_dir(&dir).is_ok_and(|entries| entries.count() == 0).then_some(())
    });
}

#[test]
fn an_allocation_whose_nodes_cannot_be_reached_is_reported() {
    let dvm = Dvm::start_with(Options { nodes: 0, slots: 0, args: Vec::new() });
    let link = dvm.scratch().join("mpiexec");
    std::os::unix::fs::symlink(built::rsctl(), &link).expect("the file does not exist yet");
    let srun = dvm.file("srun", "#!/bin/sh\necho 'srun: error: Node a2 is down' >&2\nexit 3\n");
    fs::set_permissions(srun, fs::Permissions::from_mode(0o700)).expect("the file belongs to this user");
    let call = |path: &str| {
        let call = dvm.call(&link).args(["true"]).env("SLURM_JOB_ID", "7").env("SLURM_JOB_NODELIST", "a[1-2]");
        call.env("SLURMD_NODENAME", "a1").env("PATH", path)
    };
    let said = call(&format!("{}:/usr/bin:/bin", dvm.scratch().display())).fails(242);
    assert!(said.contains("cannot start daemons on a2: srun ended (exit status: 3)"), "{said}");
    assert!(said.contains("srun: error: Node a2 is down"), "{said}");
    assert!(said.contains("rsd must have the same path there"), "{said}");
    let said = call("/nonexistent").fails(248);
    assert!(said.contains("cannot start daemons on the allocation's nodes: srun: No such file"), "{said}");
}
