//! A recorded request, converted to one of rsd's.

use std::fmt;
use std::sync::Arc;

use rsd_core::place::cpuset::CpuSet;
use rsd_core::place::policy::{Compat, Policy};
use rsd_core::place::topology::{Kind, Topology};
use rsd_core::place::{App, Host, NodeOffer, Request};
use serde_json::Value;

/// One line of the data.
pub(crate) struct Case {
    synthetic: String,
    /// Whether `hosts` is the text of a host file; otherwise it is a `--host` value.
    file: bool,
    hosts: String,
    n: u32,
    map_by: String,
    rank_by: String,
    bind_to: String,
    pub(crate) outcome: Outcome,
}

pub(crate) enum Outcome {
    Refused,
    /// The rank, node and binding of every rank.
    Mapped(Vec<(usize, String, String)>),
}

impl Case {
    pub(crate) fn parse(line: &str) -> Case {
        let value: Value = serde_json::from_str(line).unwrap();
        let text = |key: &str| value[key].as_str().unwrap_or_default().to_owned();
        let proc = |proc: &Value| {
            let text = |at: usize| proc[at].as_str().unwrap().to_owned();
            (proc[0].as_u64().unwrap() as usize, text(1), text(2))
        };
        Case {
            synthetic: text("synthetic"),
            file: text("hosts_kind") == "hostfile",
            hosts: text("hosts"),
            n: value["n"].as_u64().unwrap() as u32,
            map_by: text("map_by"),
            rank_by: text("rank_by"),
            bind_to: text("bind_to"),
            outcome: match value["outcome"].as_str() {
                Some("mapped") => Outcome::Mapped(value["procs"].as_array().unwrap().iter().map(proc).collect()),
                Some("refused") if value["reason"] == "slots" => Outcome::Refused,
                other => panic!("unknown outcome: {other:?}"),
            },
        }
    }

    /// Returns the nodes in the order of their names. All are equal and have one slot per core.
    pub(crate) fn nodes(&self) -> Vec<NodeOffer> {
        let topology = Arc::new(topology(&self.synthetic));
        let mut names: Vec<String> = self.host_list().into_iter().map(|host| host.name).collect();
        names.sort();
        names.dedup();
        let cores = topology.objects(Kind::Core).len() as u32;
        let node = |(id, name): (usize, String)| NodeOffer {
            id: id as u32,
            name,
            slots: cores,
            slots_reason: format!("{cores} cores"),
            in_use: 0,
            usable: topology.all(),
            topology: Arc::clone(&topology),
            taken: CpuSet::EMPTY,
            gpus: Arc::new([]),
            gpus_taken: CpuSet::EMPTY,
            aliases: Arc::default(),
            stocks: Vec::new(),
            labels: Arc::default(),
        };
        names.into_iter().enumerate().map(node).collect()
    }

    pub(crate) fn request(&self) -> Request {
        let policy = Policy {
            map_by: self.map_by.parse().unwrap(),
            rank_by: Some(self.rank_by.as_str()).filter(|text| !text.is_empty()).map(|text| text.parse().unwrap()),
            bind_to: Some(self.bind_to.as_str()).filter(|text| !text.is_empty()).map(|text| text.parse().unwrap()),
            compat: Compat::OpenMpi5,
            ..Policy::default()
        };
        let oversubscribe = policy.map_by.oversubscribe == Some(true);
        let apps = vec![App { n: Some(self.n), hosts: self.host_list() }];
        Request { apps, policy, oversubscribe, rankfile: Vec::new(), needs: Vec::new() }
    }

    fn host_list(&self) -> Vec<Host> {
        if self.file {
            let lines =
                self.hosts.lines().enumerate().map(|(at, line)| (at + 1, line.split('#').next().unwrap().trim()));
            return lines.filter(|(_, line)| !line.is_empty()).map(|(at, line)| file_line(at, line)).collect();
        }
        let host = |entry: &str| {
            let (name, slots) = entry.split_once(':').map_or((entry, None), |(name, slots)| (name, Some(slots)));
            let slots = slots.map(|slots| slots.parse().unwrap());
            Host { name: name.into(), slots, max_slots: None, source: "--host".into() }
        };
        self.hosts.split(',').map(host).collect()
    }
}

fn file_line(at: usize, line: &str) -> Host {
    let mut words = line.split_whitespace();
    let name = words.next().unwrap().into();
    let mut host = Host { name, slots: None, max_slots: None, source: format!("hostfile ./hosts:{at}") };
    for word in words {
        match word.split_once('=').map(|(key, number)| (key, number.parse().unwrap())) {
            Some(("slots", number)) => host.slots = Some(number),
            Some(("max_slots", number)) => host.max_slots = Some(number),
            other => panic!("unknown key: {other:?}"),
        }
    }
    host
}

/// A topology such as `pack:2 numa:1 l3:1 l2:4 l1:1 core:1 pu:2`: each number is the count per object of the level before.
fn topology(synthetic: &str) -> Topology {
    let level = |word: &str| {
        let (kind, count) = word.split_once(':').unwrap();
        let kind = match kind {
            "pack" => Kind::Package,
            "numa" => Kind::Numa,
            "l3" => Kind::L3,
            "l2" => Kind::L2,
            "l1" => Kind::L1,
            "core" => Kind::Core,
            "pu" => Kind::Thread,
            other => panic!("unknown level: {other}"),
        };
        (kind, count.parse().unwrap())
    };
    Topology::regular(&synthetic.split_whitespace().map(level).collect::<Vec<_>>()).unwrap()
}

impl fmt::Display for Case {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Case { synthetic, hosts, n, map_by, rank_by, bind_to, .. } = self;
        write!(f, "[{synthetic}] {hosts:?} -n {n} --map-by {map_by} --rank-by {rank_by} --bind-to {bind_to}")
    }
}
