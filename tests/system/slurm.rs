//! The MPI library under Slurm's launcher, which speaks PMI-1 too (`srun --mpi=pmi2`): a cluster of two nodes on this machine, with
//! a controller, a daemon for each node and an authenticator of their own, in a scratch directory.

use std::fs::{self, File};
use std::io::Read;
use std::net::TcpListener;
use std::os::unix::fs::PermissionsExt;
use std::sync::atomic::{AtomicU16, Ordering};
use std::time::Duration;

use nix::sys::signal::Signal;
use nix::unistd::{User, geteuid, gethostname};
use rsd_tests::{Call, Dvm, Mpi, Options, Running, eventually};

/// Slurm's daemons, n0 and n1 among them. They stop when it is dropped.
struct Cluster {
    /// In the order in which they were started.
    daemons: Vec<Running>,
    /// The directory; what is left of the cluster fails the test.
    dvm: Dvm,
}

const NODES: usize = 2;
const READY: Duration = Duration::from_secs(30);

impl Cluster {
    fn start() -> Cluster {
        let dvm = Dvm::start_with(Options { nodes: 0, slots: 0, args: Vec::new() });
        let mut cluster = Cluster { daemons: Vec::new(), dvm };
        cluster.write_configuration();
        // The authenticator does not like directories that others cannot enter, but obeys.
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
            fs::create_dir(dir.join(sub)).expect("the directory is ours");
        }
        // Whoever knows it may run anything in the name of whoever runs this.
        let mut secret = [0; 64];
        File::open("/dev/urandom").and_then(|mut it| it.read_exact(&mut secret)).expect("there is randomness");
        let key = self.dvm.file("key", secret);
        fs::set_permissions(key, fs::Permissions::from_mode(0o600)).expect("the file is ours");

        let host = gethostname().expect("a machine has a name").to_string_lossy().into_owned();
        let user = User::from_uid(geteuid()).ok().flatten().expect("whoever runs tests has a name").name;
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

    /// A program that finds this cluster.
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

    /// `srun` with the words of a line, and a program.
    fn srun(&self, line: &str, program: &str) -> Call {
        self.call("srun").args(line.split_whitespace()).args([&Mpi::Ours.program(&format!("mpi/{program}.c")), "few"])
    }
}

impl Drop for Cluster {
    fn drop(&mut self) {
        for daemon in self.daemons.drain(..).rev() {
            daemon.signal(Signal::SIGTERM);
            if !daemon.gone() && !std::thread::panicking() {
                panic!("a daemon of Slurm's does not stop:\n{}", daemon.stderr());
            }
        }
    }
}

/// Ports for a controller and the daemons, which have to be told theirs. No other program is given one of them before they listen:
/// they lie below those that the kernel hands out, and two clusters of one process never take the same.
fn free_ports() -> [u16; NODES + 1] {
    static NEXT: AtomicU16 = AtomicU16::new(0);
    let range = fs::read_to_string("/proc/sys/net/ipv4/ip_local_port_range").expect("this is Linux");
    let handed_out: u16 =
        range.split_whitespace().next().and_then(|it| it.parse().ok()).expect("it says its first port");
    assert!(handed_out > 20_000, "the kernel hands out nearly all ports: {range}");
    // Other test runs of this machine begin elsewhere.
    let span = handed_out - 10_000;
    let start = u16::try_from(std::process::id() % u32::from(span)).expect("it is less than a port");
    [(); NODES + 1].map(|()| {
        let free = || {
            let step = NEXT.fetch_add(1, Ordering::Relaxed);
            let port = 10_000 + start.wrapping_add(step) % span;
            TcpListener::bind(("0.0.0.0", port)).is_ok().then_some(port)
        };
        (0..span).find_map(|_| free()).expect("there are free ports")
    })
}

/// Job numbers are such as no other cluster on this machine has, for by these jobs are told apart.
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
fn what_goes_wrong_under_slurm_ends_the_job_and_is_told() {
    let slurm = Cluster::start();
    let ended = slurm.srun("--mpi=pmi2 --ntasks 3", "fatal").end();
    assert!(!ended.status.success(), "{ended}");
    assert!(ended.err().contains("MPI_Send: 44 is not a rank of the communicator (0 to 2)"), "{ended}");
    // Its own default is no PMI at all.
    let ended = slurm.srun("--mpi=none --ntasks 2", "startup").end();
    assert!(!ended.status.success(), "{ended}");
    assert!(ended.err().contains("srun without PMI (try srun --mpi=pmi2, "), "{ended}");
}
