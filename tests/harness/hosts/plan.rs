//! The hosts and networks to make, and their addresses.

use std::fmt::Write;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::time::Duration;

use nix::unistd::Uid;

use super::network::Network;

/// Which addresses hosts have.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Family {
    /// IPv4 and IPv6.
    Both,
    /// IPv4 only.
    V4,
    /// IPv6 only.
    V6,
}

/// A cable with faults, which are the same in both directions.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Cable {
    /// How long each packet travels.
    pub delay: Duration,
    /// How many of a thousand packets are lost.
    pub loss_per_mille: u32,
    /// How many kilobits it carries in a second; 0: any number.
    pub kbit_per_s: u32,
}

/// The hosts to make.
#[derive(Debug, Clone)]
pub struct Plan {
    family: Family,
    hosts: Vec<Planned>,
}

/// A host to make.
#[derive(Debug, Clone)]
pub(super) struct Planned {
    pub(super) name: String,
    /// Its interfaces `eth0`, `eth1` …: the local network that each is connected to.
    pub(super) lans: Vec<u8>,
    /// The last byte of its addresses.
    pub(super) number: u8,
    /// The number of the host through which it reaches the network 0, if it is not there itself.
    pub(super) gate: Option<u8>,
    /// What connects its first interface, if that has faults.
    pub(super) cable: Option<Cable>,
}

impl Plan {
    /// Hosts on one local network, with IPv4 and IPv6 addresses.
    pub fn of(names: &[&str]) -> Plan {
        let mut plan = Plan { family: Family::Both, hosts: Vec::new() };
        names.iter().for_each(|name| plan.add(name, vec![0], None));
        plan
    }

    /// Hosts on a local network of their own, behind `gate`. They can dial out with the address of `gate`; they cannot be dialled.
    pub fn behind(mut self, gate: &str, names: &[&str]) -> Plan {
        let lan = self.lans();
        self.add(gate, vec![0, lan], None);
        let gate = self.hosts.last().map(|host| host.number);
        names.iter().for_each(|name| self.add(name, vec![lan], gate));
        self
    }

    /// Connects these hosts with one more local network, to which their next interfaces belong.
    ///
    /// # Panics
    /// If one of them does not exist.
    #[track_caller]
    pub fn also_connected(mut self, names: &[&str]) -> Plan {
        let lan = self.lans();
        for name in names {
            let host = self.hosts.iter_mut().find(|host| host.name == *name);
            host.unwrap_or_else(|| panic!("there is no host {name}")).lans.push(lan);
        }
        self
    }

    /// Connects a host with this cable.
    ///
    /// # Panics
    /// If there is no such host.
    #[track_caller]
    pub fn cable(mut self, name: &str, cable: Cable) -> Plan {
        let host = self.hosts.iter_mut().find(|host| host.name == name);
        host.unwrap_or_else(|| panic!("there is no host {name}")).cable = Some(cable);
        self
    }

    /// Gives hosts these addresses only.
    pub fn only(mut self, family: Family) -> Plan {
        self.family = family;
        self
    }

    /// Makes the hosts. `None` if this process is not root.
    #[track_caller]
    pub fn start(self) -> Option<Network> {
        if !Uid::effective().is_root() {
            eprintln!("skipped: only root can make hosts");
            return None;
        }
        Some(Network::make(&self))
    }

    fn add(&mut self, name: &str, lans: Vec<u8>, gate: Option<u8>) {
        let number = u8::try_from(self.hosts.len() + 1).expect("a network has at most 255 hosts");
        self.hosts.push(Planned { name: name.to_owned(), lans, number, gate, cable: None });
    }

    pub(super) fn hosts(&self) -> &[Planned] {
        &self.hosts
    }

    /// Whether a host hides others behind itself.
    pub(super) fn is_gate(&self, host: &Planned) -> bool {
        self.hosts.iter().any(|inside| inside.gate == Some(host.number))
    }

    /// The number of local networks.
    pub(super) fn lans(&self) -> u8 {
        self.hosts.iter().flat_map(|host| &host.lans).max().map_or(0, |last| last + 1)
    }

    /// The addresses of a host on one local network.
    pub(super) fn addresses(&self, lan: u8, number: u8) -> Vec<IpAddr> {
        let v4 = IpAddr::V4(Ipv4Addr::new(10, 77, lan, number));
        let v6 = IpAddr::V6(Ipv6Addr::new(0xfd77, 0, 0, lan.into(), 0, 0, 0, number.into()));
        match self.family {
            Family::Both => vec![v4, v6],
            Family::V4 => vec![v4],
            Family::V6 => vec![v6],
        }
    }

    /// The file `/etc/hosts` of a host: the names of all hosts that it can reach.
    pub(super) fn names_for(&self, reader: &Planned) -> String {
        let mut text = "127.0.0.1 localhost\n::1 localhost ip6-localhost\n".to_owned();
        for host in &self.hosts {
            let seen = host.lans.iter().find(|lan| reader.lans.contains(lan) || (**lan == 0 && reader.gate.is_some()));
            for address in seen.into_iter().flat_map(|lan| self.addresses(*lan, host.number)) {
                writeln!(text, "{address} {0}.rsd.test {0}", host.name).expect("a string can be written to");
            }
        }
        text
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hosts_know_the_names_of_those_that_they_can_reach() {
        let plan = Plan::of(&["a"]).behind("gate", &["w"]).only(Family::V4);
        let names = |at: usize| plan.names_for(&plan.hosts()[at]).lines().skip(2).collect::<Vec<_>>().join("; ");
        assert_eq!(names(0), "10.77.0.1 a.rsd.test a; 10.77.0.2 gate.rsd.test gate");
        assert_eq!(names(2), "10.77.0.1 a.rsd.test a; 10.77.0.2 gate.rsd.test gate; 10.77.1.3 w.rsd.test w");
    }
}
