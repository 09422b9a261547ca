//! A DVM over hosts.

use std::collections::BTreeMap;
use std::ffi::OsStr;
use std::time::Duration;

use nix::sys::signal::Signal;
use serde_json::Value;

use super::host::Host;
use super::network::Network;
use super::plan::Plan;
use crate::call::{Call, Running};
use crate::watched::eventually;

/// A DVM with one daemon on each of some hosts; the first is the head. When it is dropped, its daemons are stopped, and the test fails
/// if a process is left on a host that has or had a daemon.
#[derive(Debug)]
pub struct Cluster {
    /// The hosts.
    pub network: Network,
    head: String,
    slots: u32,
    daemons: BTreeMap<String, Running>,
}

/// The head's port.
const PORT: u16 = 7817;
/// The deadline for a daemon to become ready, on a machine that also does other work.
const READY: Duration = Duration::from_secs(30);

impl Cluster {
    /// Makes these hosts, with a daemon of four slots on each. `None` if this process is not root.
    #[track_caller]
    pub fn start(names: &[&str]) -> Option<Cluster> {
        Some(Cluster::on(Plan::of(names).start()?, names, 4, ""))
    }

    /// Starts a daemon with `slots` slots on each of these hosts. `settings` is the text of root's settings file there.
    #[track_caller]
    pub fn on(network: Network, names: &[&str], slots: u32, settings: &str) -> Cluster {
        let head = names[0].to_owned();
        let mut cluster = Cluster { network, head: head.clone(), slots, daemons: BTreeMap::new() };
        for host in cluster.network.hosts() {
            host.sh("mkdir -p .config/rsd; cat >.config/rsd/rsd.toml").stdin(settings).ok();
        }
        let any = if cluster.head().address().is_ipv4() { "0.0.0.0" } else { "[::]" };
        cluster.start_daemon(&head, &["--listen", &format!("{any}:{PORT}")]);
        names[1..].iter().for_each(|name| cluster.join(name, &[]));
        cluster
    }

    /// Starts a daemon on a host, which joins with a new token.
    #[track_caller]
    pub fn join(&mut self, name: &str, args: &[&str]) {
        let token = self.token(&["--uses", "1"]);
        let head = format!("{}:{PORT}", self.head);
        let join = ["--join", &head, "--token", &token].into_iter().chain(args.iter().copied());
        self.start_daemon(name, &join.collect::<Vec<_>>());
    }

    /// Starts a daemon on a host with these arguments; returns when it is ready.
    #[track_caller]
    pub fn start_daemon(&mut self, name: &str, args: &[&str]) {
        let slots = self.slots.to_string();
        let daemon = self.network.host(name).call("rsd").args(["start", "--foreground", "--slots", &slots]).args(args);
        let daemon = daemon.deadline(READY).start();
        daemon.until_stdout(|out| out.contains("ready").then_some(()));
        self.daemons.insert(name.to_owned(), daemon);
    }

    /// A new join token; `args` are options of `rsd token new`.
    #[track_caller]
    pub fn token(&self, args: &[&str]) -> String {
        self.head().call("rsd").args(["token", "new", "--quiet"]).args(args).ok().trim().to_owned()
    }

    /// The head's host.
    pub fn head(&self) -> &Host {
        self.network.host(&self.head)
    }

    /// A host, by its name.
    #[track_caller]
    pub fn host(&self, name: &str) -> &Host {
        self.network.host(name)
    }

    /// `rsctl` on the head's host with the words of a line as arguments.
    pub fn ctl(&self, line: &str) -> Call {
        self.rsctl(line.split_whitespace())
    }

    /// `rsctl` on the head's host with these arguments.
    pub fn rsctl<I: IntoIterator<Item: AsRef<OsStr>>>(&self, args: I) -> Call {
        self.head().call("rsctl").args(args)
    }

    /// The output of `rsctl … --json` on the head's host.
    #[track_caller]
    pub fn json(&self, line: &str) -> Value {
        let text = self.ctl(line).args(["--json"]).ok();
        serde_json::from_str(&text).unwrap_or_else(|error| panic!("rsctl {line}: {error} in {text}"))
    }

    /// Returns the log of a host's daemon since its start.
    #[track_caller]
    pub fn log(&self, name: &str) -> String {
        self.daemons.get(name).unwrap_or_else(|| panic!("no daemon runs on {name}")).stderr()
    }

    /// Returns what a host's daemon has printed when it was ready.
    #[track_caller]
    pub fn said(&self, name: &str) -> String {
        self.daemons.get(name).unwrap_or_else(|| panic!("no daemon runs on {name}")).stdout()
    }

    /// Sends a signal to a host's daemon.
    pub fn signal(&self, name: &str, signal: Signal) {
        self.daemons.get(name).into_iter().for_each(|daemon| Host::signal(daemon, signal));
    }

    /// Kills a host's daemon with SIGKILL; its steps and their ranks keep running.
    #[track_caller]
    pub fn kill(&mut self, name: &str) {
        self.signal(name, Signal::SIGKILL);
        let daemon = self.daemons.remove(name).unwrap_or_else(|| panic!("no daemon runs on {name}"));
        assert!(daemon.gone(), "the daemon on {name} does not end");
    }

    /// Ends a host with all its processes, as if it had lost its power.
    #[track_caller]
    pub fn power_off(&mut self, name: &str) {
        self.network.power_off(name);
        self.daemons.remove(name);
    }

    /// Waits until the head counts this many nodes as up, and no others.
    #[track_caller]
    pub fn until_up(&self, count: usize) {
        eventually(&format!("{count} nodes are up"), READY, || {
            let nodes = self.json("nodes");
            let nodes = nodes["nodes"].as_array()?;
            (nodes.len() == count && nodes.iter().all(|node| node["state"] == "up")).then_some(())
        });
    }

    /// Stops the daemons; returns the command lines of processes that are left.
    fn stop(&mut self) -> Vec<String> {
        if self.daemons.contains_key(&self.head) {
            self.head().call("rsd").args(["stop", "--force"]).start().gone();
        }
        let mut left = Vec::new();
        for (name, daemon) in std::mem::take(&mut self.daemons) {
            // The head stops all daemons, and those that it cannot reach are not in a test's way. But a daemon that is terminated
            // before the head's message arrives over a slow cable leaves its step to the next one.
            if !daemon.gone_within(Duration::from_secs(3)) {
                Host::signal(&daemon, Signal::SIGTERM);
            }
            if !daemon.gone() {
                left.push(format!("the daemon on {name} does not stop"));
            }
            let host = self.network.host(&name);
            let end = std::time::Instant::now() + Duration::from_secs(10);
            while !host.processes().is_empty() && std::time::Instant::now() < end {
                std::thread::sleep(Duration::from_millis(20));
            }
            left.extend(host.processes().into_iter().map(|line| format!("left on {name}: {line}")));
        }
        left
    }
}

impl Drop for Cluster {
    fn drop(&mut self) {
        if std::thread::panicking() {
            for (name, daemon) in &self.daemons {
                let log = daemon.stderr();
                let from = log.len().saturating_sub(4000);
                eprintln!("--- log of the daemon on {name}\n{}", log.get(from..).unwrap_or(&log));
            }
            return;
        }
        let left = self.stop();
        assert!(left.is_empty(), "{}", left.join("\n"));
    }
}
