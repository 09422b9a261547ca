//! Running hosts, and the switch between them: bridges in a network namespace of its own, so that the machine's own network is not
//! touched and any number of networks can run at once.

use std::net::IpAddr;

use super::host::{Host, Namespaces};
use super::plan::{Cable, Plan, Planned};
use crate::call::{Call, Running};
use crate::programs::plain;

/// Running hosts. Dropping it ends them and all their processes.
#[derive(Debug)]
pub struct Network {
    hosts: Vec<Host>,
    switch: Switch,
    _cables: Vec<Running>,
}

impl Network {
    /// Makes the hosts of a plan and connects them.
    #[track_caller]
    pub(super) fn make(plan: &Plan) -> Network {
        let switch = Switch::start(plan.lans());
        let starting: Vec<_> =
            plan.hosts().iter().map(|host| Namespaces::start(&host.name, &plan.names_for(host))).collect();
        let hosts = plan.hosts().iter().zip(starting);
        let hosts = hosts.map(|(host, namespaces)| Host::new(&host.name, addresses(plan, host), namespaces.ready()));
        let hosts: Vec<Host> = hosts.collect();
        let cables = plan.hosts().iter().filter_map(|host| Some(switch.lay(host, host.cable?))).collect();
        let plugged = plan.hosts().iter().zip(&hosts).map(|(planned, host)| Switch::plug(planned, host));
        switch.run("ip", &plugged.collect::<String>());
        let network = Network { hosts, switch, _cables: cables };
        for (planned, host) in plan.hosts().iter().zip(&network.hosts) {
            host.call("ip").args(["-batch", "-"]).stdin(configuration(plan, planned)).ok();
            if plan.is_gate(planned) {
                masquerade(host);
            }
        }
        network
    }

    /// A host, by its name.
    ///
    /// # Panics
    /// If there is none, or it has been powered off.
    #[track_caller]
    pub fn host(&self, name: &str) -> &Host {
        let found = self.hosts.iter().find(|host| host.name() == name);
        found.unwrap_or_else(|| panic!("there is no host {name}"))
    }

    /// All hosts that run.
    pub fn hosts(&self) -> &[Host] {
        &self.hosts
    }

    /// Cuts a host off: packets from and to it are dropped silently, and nothing on the host shows it.
    #[track_caller]
    pub fn cut(&self, name: &str) {
        self.port(name, 0);
    }

    /// Ends [`Network::cut`].
    #[track_caller]
    pub fn mend(&self, name: &str) {
        self.port(name, 3);
    }

    /// Cuts the network in two: these hosts reach each other, and so do the others. Nothing on a host shows it.
    #[track_caller]
    pub fn divide(&self, names: &[&str]) {
        let ports = names.iter().map(|name| self.plugged(name, APART)).collect::<String>();
        let bridge = format!("link add {APART} type bridge stp_state 0 mcast_snooping 0\nlink set {APART} up\n");
        self.switch.run("ip", &(bridge + &ports));
    }

    /// Ends [`Network::divide`] for the same hosts.
    #[track_caller]
    pub fn unite(&self, names: &[&str]) {
        let ports = names.iter().map(|name| self.plugged(name, "bridge0")).collect::<String>();
        self.switch.run("ip", &(ports + &format!("link del {APART}\n")));
    }

    /// Limits what the switch delivers to a host, in megabits a second. What waits for that is in a buffer of so many bytes; the rest is lost.
    #[track_caller]
    pub fn narrow(&self, name: &str, mbit_per_s: u32, buffer_bytes: u32) {
        let port = port(self.host(name).number(), 0);
        let limit = format!("rate {mbit_per_s}mbit burst 32kb limit {buffer_bytes}");
        self.switch.run("tc", &format!("qdisc add dev {port} root tbf {limit}\n"));
    }

    fn plugged(&self, name: &str, bridge: &str) -> String {
        let port = port(self.host(name).number(), 0);
        format!("link set {port} master {bridge}\nlink set {port} up\n")
    }

    /// Cuts a host off and ends it with all its processes: the others hear nothing of it, as if it had lost its power.
    #[track_caller]
    pub fn power_off(&mut self, name: &str) {
        self.cut(name);
        self.hosts.retain(|host| host.name() != name);
    }

    /// Sets the state of the bridge's port to a host: 0 (disabled) or 3 (forwarding).
    fn port(&self, name: &str, state: u8) {
        let port = port(self.host(name).number(), 0);
        self.switch.run("bridge", &format!("link set dev {port} state {state}\n"));
    }
}

/// The bridge of the hosts on the other side of a network that is cut in two.
const APART: &str = "apart";

/// A network namespace with one bridge for each local network.
#[derive(Debug)]
struct Switch {
    holder: Running,
}

impl Switch {
    #[track_caller]
    fn start(lans: u8) -> Switch {
        const SCRIPT: &str = r#"set -eu
            ip link set lo up
            for lan in $(seq 0 $(($1 - 1))); do
                ip link add bridge$lan type bridge stp_state 0 mcast_snooping 0
                ip link set bridge$lan up
            done
            echo ready
            exec cat >/dev/null"#;
        let holder = Call::new("unshare").args(["--net", "--", "sh", "-c", SCRIPT, "sh", &lans.to_string()]);
        let holder = holder.stdin_open().start();
        holder.until_stdout(|out| out.contains("ready").then_some(()));
        Switch { holder }
    }

    /// Lays a cable with faults, whose ends are the port of a host and an interface for the host.
    #[track_caller]
    fn lay(&self, host: &Planned, cable: Cable) -> Running {
        let (port, end) = (port(host.number, 0), end(host.number));
        let faults = [cable.delay.as_micros(), cable.loss_per_mille.into(), cable.kbit_per_s.into()];
        let cable = Call::new("nsenter").args([&self.namespace(), "--", &plain("wire.c"), &port, &end]);
        let cable = cable.args(faults.map(|fault| fault.to_string())).stdin_open().start();
        cable.until_stdout(|out| out.contains("ready").then_some(()));
        cable
    }

    /// The commands of `ip` that connect a host's interfaces to their bridges.
    fn plug(planned: &Planned, host: &Host) -> String {
        let pid = host.pid();
        let lines = planned.lans.iter().enumerate().map(|(at, lan)| {
            let port = port(planned.number, at);
            let connection = match planned.cable {
                Some(_) if at == 0 => format!("link set {} netns {pid} name eth0", end(planned.number)),
                Some(_) | None => format!("link add {port} type veth peer name eth{at} netns {pid}"),
            };
            format!("{connection}\nlink set {port} master bridge{lan}\nlink set {port} up\n")
        });
        lines.collect()
    }

    /// Runs commands of `ip`, `bridge` or `tc` on the switch.
    #[track_caller]
    fn run(&self, program: &str, batch: &str) {
        Call::new("nsenter").args([&self.namespace(), "--", program, "-batch", "-"]).stdin(batch).ok();
    }

    /// The option with which `nsenter` enters it.
    fn namespace(&self) -> String {
        format!("--net=/proc/{}/ns/net", self.holder.pid())
    }
}

fn port(number: u8, interface: usize) -> String {
    format!("port{number}.{interface}")
}

/// The end of a cable with faults that becomes a host's first interface.
fn end(number: u8) -> String {
    format!("end{number}")
}

/// The addresses of a host's first interface.
fn addresses(plan: &Plan, host: &Planned) -> (u8, Vec<IpAddr>) {
    (host.number, plan.addresses(host.lans[0], host.number))
}

/// The commands of `ip` that configure a host's interfaces.
fn configuration(plan: &Plan, host: &Planned) -> String {
    let mut text = String::new();
    for (at, lan) in host.lans.iter().enumerate() {
        for address in plan.addresses(*lan, host.number) {
            // Duplicate addresses cannot occur, and looking for them takes a second.
            let (bits, flags) = if address.is_ipv6() { (64, " nodad") } else { (24, "") };
            text += &format!("address add {address}/{bits} dev eth{at}{flags}\n");
        }
        // The same holds for link-local addresses, to which nothing can be bound until then.
        text += &format!("link set eth{at} addrgenmode none\nlink set eth{at} up\n");
        // A router asks with it for the neighbour that a forwarded packet goes to. Without one it forwards only to those
        // that asked for it a few seconds ago.
        let routes = plan.hosts().iter().any(|other| other.gate == Some(host.number));
        if routes && plan.addresses(*lan, host.number).iter().any(IpAddr::is_ipv6) {
            text += &format!("address add fe80::{:x}/64 dev eth{at} nodad\n", host.number);
        }
    }
    if let (Some(gate), [lan, ..]) = (host.gate, host.lans.as_slice()) {
        for address in plan.addresses(*lan, gate) {
            text += &format!("route add default via {address}\n");
        }
    }
    text
}

/// Makes a host a router that hides its second network behind its address on the first.
fn masquerade(host: &Host) {
    host.sh("echo 1 >/proc/sys/net/ipv4/ip_forward; echo 1 >/proc/sys/net/ipv6/conf/all/forwarding").ok();
    host.nft(
        "table inet gate {
            chain out { type nat hook postrouting priority srcnat; oifname eth0 masquerade; }
            chain through {
                type filter hook forward priority filter; policy drop;
                iifname eth1 accept
                ct state established,related accept
            }
        }",
    );
}
