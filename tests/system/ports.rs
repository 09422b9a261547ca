//! Processes that were started separately connect: jobs of one DVM, on one node and between nodes, groups, jobs of another
//! launcher, and processes without a launcher. The program `programs/mpi/ports.c` checks the results.

use std::fs;
use std::path::PathBuf;
use std::time::Duration;

use nix::sys::signal::Signal;
use rsd_tests::{Call, Dvm, Mpi, Options, Running, all_ok, built, eventually, hydra, mpi4py_for_the_abi};

/// The deadline: a thousand connections of a debug build take half a minute on two idle cores, and several times that on busy
/// cores.
const WITHIN: Duration = Duration::from_secs(240);

/// How one side is started, with its number of processes.
#[derive(Debug, Clone, Copy)]
enum By {
    /// `rsctl run`, on the node with this name, or on all nodes in turn.
    Job(usize, &'static str),
    /// A named group, its members on two nodes in turn.
    Group(usize),
    /// The launcher of MPICH.
    Hydra(usize),
    /// No launcher: one process.
    Itself,
}

impl By {
    fn size(self) -> usize {
        match self {
            By::Job(size, _) | By::Group(size) | By::Hydra(size) => size,
            By::Itself => 1,
        }
    }

    /// Starts `programs/mpi/ports.c` with these words; `side` distinguishes groups.
    fn start(self, dvm: &Dvm, side: &str, words: &[&str]) -> Vec<Running> {
        self.start_program(dvm, "mpi/ports.c", side, words)
    }

    fn start_program(self, dvm: &Dvm, program: &str, side: &str, words: &[&str]) -> Vec<Running> {
        let (program, size) = (Mpi::Ours.program(program), self.size().to_string());
        let started = |call: Call| call.deadline(WITHIN).start();
        match self {
            By::Job(_, "") => vec![started(dvm.rsctl(["run", "-n", &size, "--map-by", "node", &program]).args(words))],
            By::Job(_, node) => vec![started(dvm.rsctl(["run", "-n", &size, "--host", node, &program]).args(words))],
            By::Hydra(_) => vec![started(dvm.call(hydra()).args(["-n", &size, &program]).args(words))],
            By::Itself => vec![started(dvm.call(&program).args(words))],
            By::Group(members) => {
                let rsctl = built::rsctl().display().to_string();
                let member = |at: usize| {
                    let call = dvm.call("setsid").dir(dvm.scratch()).args(["--wait", &rsctl, "--dvm"]);
                    let call = call.args([dvm.state_dir(at % 2)]).args(["group", "exec", side, "--size", &size]);
                    started(call.args(["--", &program]).args(words))
                };
                (0..members).map(member).collect()
            }
        }
    }
}

/// Returns a path for the name of a port; the file does not exist yet.
fn file(dvm: &Dvm) -> String {
    static NEXT: std::sync::atomic::AtomicUsize = std::sync::atomic::AtomicUsize::new(0);
    let number = NEXT.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
    dvm.scratch().join(format!("port-{number}")).display().to_string()
}

/// Checks that all processes of a side succeed and one of them reports it.
#[track_caller]
fn ends_well(side: Vec<Running>, size: usize, what: &str) {
    assert_eq!(all_ok(side).concat(), format!("ports ok on {size}\n"), "{what}");
}

/// Lets one side accept and the other connect, `rounds` times.
#[track_caller]
fn connect(dvm: &Dvm, accepting: By, connecting: By, rounds: usize) {
    let (port, rounds) = (file(dvm), rounds.to_string());
    let one = accepting.start(dvm, "one", &["accept", &port, &rounds]);
    let other = connecting.start(dvm, "other", &["connect", &port, &rounds]);
    let what = format!("{accepting:?} accepts, {connecting:?} connects");
    let sides = one.into_iter().chain(other);
    let said = format!("ports ok on {}\nports ok on {}\n", accepting.size(), connecting.size());
    assert_eq!(all_ok(sides).concat(), said, "{what}");
}

fn dvm(nodes: usize, slots: u32) -> Dvm {
    Dvm::start_with(Options { nodes, slots, args: Vec::new() })
}

#[test]
fn jobs_on_one_node_connect() {
    let dvm = dvm(1, 24);
    for (accepting, connecting) in [(1, 1), (2, 3), (16, 3)] {
        connect(&dvm, By::Job(accepting, ""), By::Job(connecting, ""), 3);
    }
}

#[test]
fn jobs_on_two_nodes_connect() {
    let dvm = dvm(2, 20);
    for (accepting, connecting) in [(1, 1), (2, 3), (16, 3)] {
        connect(&dvm, By::Job(accepting, "node0"), By::Job(connecting, "node1"), 3);
    }
    connect(&dvm, By::Job(2, ""), By::Job(3, ""), 3);
    connect(&dvm, By::Job(1, "node1"), By::Job(4, ""), 3);
}

#[test]
fn jobs_groups_and_single_processes_connect_with_each_other() {
    let dvm = dvm(2, 8);
    let sides = [By::Job(2, "node1"), By::Group(2), By::Hydra(2), By::Itself];
    for accepting in sides {
        for connecting in sides {
            connect(&dvm, accepting, connecting, 2);
        }
    }
}

#[test]
fn both_sides_of_a_connection_may_belong_to_one_job() {
    for nodes in [1, 2] {
        let dvm = dvm(nodes, 4);
        for size in [1, 2, 4] {
            ends_well(By::Job(size, "").start(&dvm, "one", &[]), size, "within a job");
        }
    }
}

#[test]
fn a_thousand_connections_leave_nothing_behind() {
    let dvm = dvm(1, 8);
    connect(&dvm, By::Job(2, ""), By::Itself, 1000);
}

#[test]
fn several_processes_connect_to_one_port() {
    let dvm = dvm(2, 8);
    for server in [By::Job(3, ""), By::Itself] {
        let port = file(&dvm);
        let serving = server.start(&dvm, "one", &["serve", &port, "6"]);
        let visiting = By::Job(6, "").start(&dvm, "other", &["visit", &port]);
        ends_well(visiting, 6, "visitors");
        ends_well(serving, server.size(), "server");
    }
}

/// The number of connections to this port whose first bytes have not been read.
fn standing_at(port: u16) -> usize {
    let sockets = fs::read_to_string("/proc/net/tcp").expect("the kernel lists its sockets");
    let unread = |line: &str| {
        let [_, local, _, state, queues, ..] = line.split_whitespace().collect::<Vec<_>>()[..] else { return false };
        local.ends_with(&format!(":{port:04X}")) && state == "01" && !queues.ends_with(":00000000")
    };
    sockets.lines().filter(|line| unread(line)).count()
}

#[test]
fn connections_to_a_busy_port_are_served_in_order_of_arrival() {
    let dvm = dvm(2, 8);
    for server in [By::Job(3, ""), By::Itself] {
        let (port, gate) = (file(&dvm), file(&dvm));
        let serving = server.start(&dvm, "one", &["queue", &port, "6", &gate]);
        let name = eventually("the port is open", WITHIN, || fs::read_to_string(&port).ok());
        let at = name
            .split('/')
            .nth(1)
            .and_then(|at| at.rsplit(':').next()?.parse().ok())
            .expect("a port's name has an address");
        let queue = (0..6).map(|number| {
            let process = By::Itself.start(&dvm, "other", &["stand", &port, &number.to_string()]);
            eventually("the process is in the queue", WITHIN, || (standing_at(at) == number + 1).then_some(()));
            process
        });
        let queue: Vec<_> = queue.collect();
        fs::write(format!("{gate}.new"), "now")
            .and_then(|()| fs::rename(format!("{gate}.new"), &gate))
            .expect("the directory is writable");
        for process in queue {
            ends_well(process, 1, "a process in the queue");
        }
        ends_well(serving, server.size(), "the server");
    }
}

#[test]
fn threads_accept_while_others_talk_and_accept() {
    let dvm = dvm(2, 8);
    let program = Mpi::Ours.program("mpi/accepting.c");
    for size in ["1", "2"] {
        let run = |node: &str, words: &[&str]| {
            let call = dvm.rsctl(["run", "-n", size, "--host", node, &program]).args(words);
            call.deadline(WITHIN).start()
        };
        let said = format!("accepting ok on {size}\n");
        assert_eq!(run("node0", &["alone"]).end().ok(), said);
        for node in ["node0", "node1"] {
            let port = file(&dvm);
            let sides = [run("node0", &["host", &port]), run(node, &["guest", &port])];
            assert_eq!(all_ok(sides), [&*said, &*said], "{node}");
        }
    }
}

#[test]
fn processes_that_know_each_other_only_through_others_are_introduced() {
    let dvm = dvm(2, 12);
    let program = Mpi::Ours.program("mpi/introduced.c");
    let places = [["--host=node0"; 3], ["--host=node0", "--host=node1", "--host=node0"], ["--map-by=node"; 3]];
    for (size, places) in ["1", "2", "3"].into_iter().flat_map(|size| places.map(|places| (size, places))) {
        let port = file(&dvm);
        let start = |(part, place): (&str, &str)| {
            dvm.rsctl(["run", "-n", size, place, &program, part, &port]).deadline(WITHIN).start()
        };
        let jobs = ["host", "first", "second"].into_iter().zip(places).map(start).collect::<Vec<_>>();
        assert_eq!(all_ok(jobs), vec![format!("introduced ok on {size}\n"); 3], "{places:?}");
    }
}

#[test]
fn a_death_during_an_introduction_is_reported_to_all() {
    let dvm = dvm(2, 8);
    for (size, death) in [(2, "before"), (3, "before"), (2, "within"), (4, "within")] {
        let port = file(&dvm);
        let sides = ["host", "first"].map(|part| {
            let group = format!("{part}{size}{death}");
            (part, By::Group(size).start_program(&dvm, "mpi/introduced.c", &group, &[part, &port, death]))
        });
        for (part, members) in sides {
            let ended: Vec<_> = members.into_iter().map(Running::end).collect();
            let told = ended.iter().flat_map(|it| it.out().lines().map(str::to_owned).collect::<Vec<_>>());
            let mut told: Vec<_> = told.filter(|line| line.ends_with("told")).collect();
            told.sort();
            let dies = (part == "first").then_some(if death == "within" { 1 } else { size - 1 });
            let alive = (0..size).filter(|rank| dies != Some(*rank));
            let all: Vec<_> = alive.map(|rank| format!("{part} {rank}: told")).collect();
            assert_eq!(told, all, "{death}: {}", ended.iter().map(|it| it.to_string()).collect::<String>());
            let well = ended.iter().filter(|it| it.status.success()).count();
            assert_eq!(well, all.len(), "{}", ended.iter().map(|it| it.to_string()).collect::<String>());
        }
    }
}

#[test]
fn an_accepting_side_survives_connecting_processes_that_die_at_any_time() {
    let dvm = dvm(2, 4);
    for besieged in [By::Job(2, ""), By::Itself] {
        let port = file(&dvm);
        let accepting = besieged.start(&dvm, "one", &["besieged", &port]);
        let address = eventually("the port is open", WITHIN, || fs::read_to_string(&port).ok());
        let address = address.split('/').nth(1).expect("a port's name has an address").to_owned();
        for victim in 0..12 {
            let mut process = By::Itself.start(&dvm, "other", &["victim", &port]);
            let process = process.pop().expect("the side has one process");
            // Killed while it connects, or once it is connected.
            if victim % 3 == 0 {
                process.until_stdout(|said| said.contains("there").then_some(()));
            } else {
                let stranger = std::net::TcpStream::connect(&address).expect("the port listens");
                std::io::Write::write_all(&mut &stranger, b"GET / HTTP/1.1\r\n\r\n").expect("the connection is open");
            }
            process.signal(Signal::SIGKILL);
            process.gone();
        }
        ends_well(By::Itself.start(&dvm, "other", &["word", &port]), 1, "the process that ends the test");
        ends_well(accepting, besieged.size(), "the accepting side");
    }
}

#[test]
fn a_connecting_job_survives_an_accepting_process_that_dies() {
    let dvm = dvm(1, 4);
    let port = file(&dvm);
    // The holder has an open port but never accepts.
    let mut holder = By::Itself.start(&dvm, "one", &["besieged", &port]);
    let holder = holder.pop().expect("the side has one process");
    eventually("the port is open", WITHIN, || fs::read_to_string(&port).ok());
    holder.signal(Signal::SIGSTOP);
    let forsaken = By::Job(3, "").start(&dvm, "other", &["forsaken", &port]);
    for process in &forsaken {
        process.until_stdout(|said| (said.matches("calling").count() == 3).then_some(()));
    }
    holder.signal(Signal::SIGKILL);
    for process in forsaken {
        let ended = process.end();
        assert!(ended.status.success() && ended.out().ends_with("ports ok on 3\n"), "{ended}");
    }
}

#[test]
fn the_default_error_handler_names_the_unreachable_port() {
    let dvm = dvm(1, 4);
    let nowhere = "rsd-mpi-1/127.0.0.1:1/00000000000000000000000000000000/0/".to_owned() + &"0".repeat(64);
    let port = dvm.file("nowhere", nowhere);
    let ended = By::Itself.start(&dvm, "one", &["visit", &port]).pop().expect("the side has one process").end();
    let said = ended.err();
    assert!(
        !ended.status.success() && said.contains("MPI_Comm_connect: the port at 127.0.0.1:1 is unreachable"),
        "{ended}"
    );
}

#[test]
fn mpi4py_passes_its_own_tests_of_dynamic_processes() {
    let (python, tests): (PathBuf, PathBuf) = mpi4py_for_the_abi();
    for nodes in [1, 2] {
        let dvm = dvm(nodes, 4);
        for n in ["1", "2", "3", "4"] {
            let call = dvm.rsctl(["run", "-n", n, "--map-by", "node"]).args([&python, &tests.join("main.py")]);
            let call =
                call.args(["--no-builddir", "-q", "-f", "-i", "test_dynproc\\.py$", "-k", "Connect", "-k", "Join"]);
            let ended = call.deadline(Duration::from_secs(120)).end();
            let said = ended.err();
            assert!(ended.status.success() && said.contains("\nOK"), "{ended}");
        }
    }
}
