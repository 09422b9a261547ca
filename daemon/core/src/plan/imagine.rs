//! Imaginary nodes for `rsd plan`: those that a job's host lists name, all with one topology.

use std::collections::HashMap;
use std::sync::Arc;

use rsd_proto::v1::{Host, JobSpec};

use crate::place::cpuset::CpuSet;
use crate::place::policy::MapBy;
use crate::place::topology::{Kind, Topology};
use crate::place::{self, NodeOffer};

/// The most nodes of a plan.
const NODES_MAX: usize = 1 << 16;

/// Returns the hosts of a job as idle nodes of this topology, numbered by first mention; without host lists one node, `node0`. A
/// host's slots are those in its list, or k if it is listed k times without slots, or else one per core (per hardware thread with
/// `hwtcpus`). Fails if a list uses `+n` or `+e`, which have a meaning only in a running DVM.
pub fn imagine(spec: &JobSpec, topology: Topology) -> Result<Vec<NodeOffer>, String> {
    let hwtcpus = spec.map_by.parse::<MapBy>().is_ok_and(|map_by| map_by.hwtcpus);
    let (cpus, cpu) = match hwtcpus {
        true => (topology.threads(), "hardware thread"),
        false => (topology.objects(Kind::Core).len() as u32, "core"),
    };
    let own = (cpus, format!("{cpus} {cpu}{}", if cpus == 1 { "" } else { "s" }));
    let mut hosts = Hosts::default();
    for app in &spec.apps {
        let mut listed: HashMap<usize, Vec<&Host>> = HashMap::new();
        for host in app.hosts.iter().filter(|host| !host.name.starts_with('^')) {
            if host.name.starts_with('+') {
                return Err(of_a_dvm(&host.name, &host.source));
            }
            listed.entry(hosts.find(&host.name)?).or_default().push(host);
        }
        for (at, entries) in listed {
            hosts.add(at, &entries);
        }
    }
    for place in &spec.rankfile {
        if place.host.starts_with('+') {
            return Err(of_a_dvm(&place.host, &place.source));
        }
        hosts.find(&place.host)?;
    }
    if hosts.names.is_empty() {
        hosts.find("node0")?;
    }
    let (topology, gpus): (_, Arc<[_]>) = (Arc::new(topology), Arc::new([]));
    let node = |(at, (name, slots)): (usize, (String, Option<(u32, String)>))| {
        let (slots, slots_reason) = slots.unwrap_or_else(|| own.clone());
        NodeOffer {
            id: at as u32,
            name,
            slots,
            slots_reason,
            in_use: 0,
            usable: topology.all(),
            topology: Arc::clone(&topology),
            taken: CpuSet::EMPTY,
            gpus: Arc::clone(&gpus),
            gpus_taken: CpuSet::EMPTY,
            aliases: Arc::default(),
            stocks: Vec::new(),
            labels: Arc::default(),
        }
    };
    Ok(hosts.names.into_iter().zip(hosts.slots).enumerate().map(node).collect())
}

fn of_a_dvm(name: &str, source: &str) -> String {
    format!("{name} ({source}) names a node of a running DVM: with --topology, use a host name")
}

#[derive(Default)]
struct Hosts {
    names: Vec<String>,
    by_name: HashMap<String, usize>,
    /// Each host's slots by its lists, and where they are given; the largest number of several programs' lists.
    slots: Vec<Option<(u32, String)>>,
}

impl Hosts {
    fn find(&mut self, name: &str) -> Result<usize, String> {
        let folded = name.to_ascii_lowercase();
        if let Some(at) = self.by_name.get(&folded) {
            return Ok(*at);
        }
        if self.names.len() == NODES_MAX {
            return Err(format!("more than {NODES_MAX} hosts, the most that a plan can have"));
        }
        self.names.push(name.to_owned());
        self.slots.push(None);
        self.by_name.insert(folded, self.names.len() - 1);
        Ok(self.names.len() - 1)
    }

    fn add(&mut self, at: usize, entries: &[&Host]) {
        let slots = match entries {
            [] | [Host { slots: None, max_slots: None, .. }] => return,
            many if many.iter().any(|host| host.slots == Some(place::Host::WHOLE)) => return,
            many => many
                .iter()
                .map(|host| host.slots.or(host.max_slots).unwrap_or(1))
                .fold(0u32, |sum, slots| sum.saturating_add(slots)),
        };
        if self.slots[at].as_ref().is_none_or(|(before, _)| *before < slots) {
            self.slots[at] = Some((slots, entries[0].source.clone()));
        }
    }
}
