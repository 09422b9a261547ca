//! The tree of daemons with an arity of 2: daemons that die, stop or fall silent while jobs run elsewhere, and daemons that join in
//! circles.

use std::io;
use std::net::{TcpListener, TcpStream};
use std::path::PathBuf;
use std::time::{Duration, Instant};

use nix::sys::signal::Signal;
use rsd_tests::{Dvm, Mpi, Options, Running, built, eventually};

/// A file with settings, which lives as long as the test.
struct Settings(PathBuf);

impl Settings {
    fn new(name: &str, text: &str) -> Settings {
        let path = std::env::temp_dir().join(format!("rsd-tree-{}-{name}.toml", std::process::id()));
        std::fs::write(&path, text).expect("the temporary directory is writable");
        Settings(path)
    }

    fn dvm(&self, nodes: usize) -> Dvm {
        let path = self.0.display().to_string();
        Dvm::start_in(Options { nodes, slots: 4, args: Vec::new() }, &[("RSD_CONFIG", &path)])
    }
}

impl Drop for Settings {
    fn drop(&mut self) {
        let _ = std::fs::remove_file(&self.0);
    }
}

/// The state and the parent of a node.
fn place(dvm: &Dvm, name: &str) -> Option<(String, u64)> {
    let nodes = dvm.json("nodes");
    let node = nodes["nodes"].as_array()?.iter().find(|node| node["name"] == name)?.clone();
    Some((node["state"].as_str()?.to_owned(), node["parent"].as_u64()?))
}

/// A job that is in a fence, and a job that writes, on all nodes of seven but node1.
struct Jobs {
    fence: Running,
    output: Running,
    gate: String,
}

const HOSTS: &str = "node0:1,node2:1,node3:1,node4:1,node5:1,node6:1";
const SCRIPT: &str = "i=0; while [ $i -lt 3000 ]; do i=$((i+1)); echo $i; [ $((i % 1000)) = 0 ] && sleep 2; done";

impl Jobs {
    fn start(dvm: &Dvm) -> Jobs {
        let program = Mpi::Debian.program("late_init.c");
        let gate = "gate".to_owned();
        let path = dvm.scratch().join(&gate);
        let fence = dvm.rsctl(["run", "-n", "6", "--host", HOSTS, &program]).args([&path]).start();
        fence.until_stdout(|out| (out.matches("entering").count() == 5).then_some(()));
        let output = dvm.rsctl(["run", "-n", "6", "--host", HOSTS, "-l", "sh", "-c", SCRIPT]).start();
        output.until_stdout(|out| (out.matches("] 1000").count() == 6).then_some(()));
        Jobs { fence, output, gate }
    }

    /// Lets both jobs end, and compares what they wrote.
    fn end(self, dvm: &Dvm) {
        dvm.file(&self.gate, "");
        assert!(self.fence.end().ok().contains("6 ranks met"));
        let printed = self.output.end().ok();
        for rank in 0..6 {
            let label = format!("[{rank}] ");
            let lines: Vec<&str> = printed.lines().filter_map(|line| line.strip_prefix(&label)).collect();
            let expected: Vec<String> = (1..=3000).map(|number| number.to_string()).collect();
            assert_eq!(lines, expected, "rank {rank}");
        }
    }
}

fn until_moved(dvm: &Dvm) {
    eventually("the children of node1 have another parent", Duration::from_secs(20), || {
        let moved = |name| place(dvm, name).is_some_and(|(state, parent)| state == "up" && parent != 1);
        (moved("node3") && moved("node4")).then_some(())
    });
}

#[test]
fn no_job_elsewhere_notices_that_an_inner_daemon_is_killed() {
    let settings = Settings::new("killed", "[tree]\narity = 2\n");
    let mut dvm = settings.dvm(7);
    assert_eq!((place(&dvm, "node3"), place(&dvm, "node4")), (Some(("up".into(), 1)), Some(("up".into(), 1))));
    let jobs = Jobs::start(&dvm);
    dvm.kill(1);
    until_moved(&dvm);
    jobs.end(&dvm);
    dvm.restart(1);
    assert_eq!(dvm.ctl("run --host node1:2 echo back").ok(), "back\nback\n");
}

#[test]
fn no_job_elsewhere_notices_that_an_inner_daemon_is_stopped_by_a_signal() {
    let settings = Settings::new("silent", "[tree]\narity = 2\n[link]\nsilence = \"3s\"\n");
    let dvm = settings.dvm(7);
    let jobs = Jobs::start(&dvm);
    let start = Instant::now();
    dvm.signal(1, Signal::SIGSTOP);
    until_moved(&dvm);
    assert!(start.elapsed() < Duration::from_secs(15), "{:?}", start.elapsed());
    jobs.end(&dvm);
    assert_eq!(place(&dvm, "node1").map(|(state, _)| state), Some("away".into()));
    dvm.signal(1, Signal::SIGCONT);
    eventually("node1 is back", Duration::from_secs(20), || {
        place(&dvm, "node1").is_some_and(|(state, _)| state == "up").then_some(())
    });
    assert_eq!(dvm.ctl("run --host node1:2 echo back").ok(), "back\nback\n");
}

#[test]
fn an_inner_daemon_that_is_stopped_hands_its_children_over() {
    let settings = Settings::new("stopped", "[tree]\narity = 2\n");
    let dvm = settings.dvm(7);
    let jobs = Jobs::start(&dvm);
    // That it does not wait for a deadline is tested with the simulation's clock.
    dvm.call(built::rsd()).args(["stop", "--dvm", "node1"]).ok();
    until_moved(&dvm);
    assert_eq!(place(&dvm, "node1"), None, "it has left");
    jobs.end(&dvm);
}

#[test]
fn a_node_that_joins_serves_the_queue() {
    let mut dvm = Dvm::start(2);
    let first = dvm.submit(["-n", "8", "sleep", "1000"]);
    let second = dvm.submit(["-n", "3", "echo", "hello"]);
    assert_eq!(dvm.json(&format!("job show {second}"))["state"], "queued");
    dvm.add(&["--join".to_owned(), dvm.listen()]);
    dvm.ctl(&format!("wait {second}")).ok();
    assert_eq!(dvm.ctl(&format!("logs {second}")).ok(), "hello\n".repeat(3));
    assert_eq!(dvm.json(&format!("job show {first}"))["state"], "running");
    dvm.ctl(&format!("cancel {first} --grace 0s")).ok();
}

#[test]
fn a_step_that_is_cut_off_says_why_it_ends_its_ranks() {
    let settings = Settings::new("cut", "[link]\nsilence = \"1s\"\nreattach_grace = \"2s\"\n");
    let dvm = settings.dvm(2);
    let dir = dvm.scratch().join("written");
    let job = ["--output", &dir.display().to_string(), "--host", "node1:2", "sh", "-c", "echo up >&2; exec sleep 1000"]
        .map(str::to_owned);
    dvm.submit(job);
    let written = || {
        let files = std::fs::read_dir(&dir).into_iter().flatten().flatten();
        files.filter_map(|file| std::fs::read_to_string(file.path()).ok()).collect::<Vec<_>>()
    };
    let all_say = |what: &str| (written().iter().filter(|text| text.contains(what)).count() == 2).then_some(());
    eventually("both ranks run", Duration::from_secs(20), || all_say("up"));
    dvm.signal(0, Signal::SIGSTOP);
    eventually("both ranks are told", Duration::from_secs(20), || {
        all_say("rsd: job 1: this node has been cut off from its DVM for 3 s")
    });
    dvm.signal(0, Signal::SIGCONT);
    eventually("the log says it too", Duration::from_secs(10), || {
        dvm.log(1).contains("this node has been cut off from its DVM").then_some(())
    });
    eventually("the node is back", Duration::from_secs(20), || {
        place(&dvm, "node1").is_some_and(|(state, _)| state == "up").then_some(())
    });
}

/// Returns an address of this machine that nothing uses.
fn free() -> String {
    TcpListener::bind("127.0.0.1:0").and_then(|socket| socket.local_addr()).expect("a port is free").to_string()
}

/// Passes connections on to an address, as a proxy or a tunnel does.
fn proxy(to: String) -> String {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port is free");
    let address = listener.local_addr().expect("it listens").to_string();
    let pass = |mut from: TcpStream, mut to: TcpStream| {
        std::thread::spawn(move || {
            let _ = io::copy(&mut from, &mut to);
            let _ = to.shutdown(std::net::Shutdown::Both);
        })
    };
    std::thread::spawn(move || {
        for near in listener.incoming().flatten() {
            if let (Ok(far), Ok(back)) = (TcpStream::connect(&to), near.try_clone())
                && let Ok(far_too) = far.try_clone()
            {
                pass(near, far);
                pass(far_too, back);
            }
        }
    });
    address
}

#[test]
fn a_daemon_that_joins_itself_ends_with_a_sentence() {
    let mut dvm = Dvm::start(2);
    dvm.kill(1);
    let own = free();
    let port = own.rsplit(':').next().expect("a port").to_owned();
    let start = |listen: &str, join: &str| {
        let name = ["start", "--foreground", "--name", "node1", "--slots", "4"];
        dvm.call(built::rsd()).args(name).args(["--listen", listen, "--join", join])
    };
    for (listen, join) in [
        (own.clone(), own.clone()),
        (own.clone(), format!("localhost:{port}")),
        (format!("0.0.0.0:{port}"), own.clone()),
    ] {
        let said = start(&listen, &join).fails(240);
        assert!(said.contains("this daemon itself would listen there"), "{said}");
    }
    let said = start(&own, &proxy(own.clone())).fails(242);
    assert!(said.contains("is this daemon itself"), "{said}");
    dvm.restart(1);
}
