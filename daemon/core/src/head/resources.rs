//! What jobs reserve besides slots, threads and GPUs: memory of nodes, what users declare of nodes (`rsd start --resource fpga:2`), and
//! what the DVM has as a whole (`jobs.resources` of the head, for licences). Of a node's stock each rank gets its amount, of the DVM's the
//! whole job. rsd counts; it does not enforce that a rank uses no more.

use std::collections::BTreeMap;

use rsd_proto::resources::{self, MEMORY, RESOURCES_MAX};
use rsd_proto::v1::{self as wire, JobSpec};

use crate::calls::{Refused, exit};
use crate::place::{Refusal, Request, Stock};
use crate::taskmap::TaskMap;
use crate::{JobId, NodeId};

/// What jobs hold of stocks.
#[derive(Debug, Clone, Default)]
pub(super) struct Reserved {
    /// What the DVM has.
    dvm: BTreeMap<String, Stock>,
    of_nodes: BTreeMap<NodeId, BTreeMap<String, u64>>,
    of_jobs: BTreeMap<JobId, Holding>,
}

/// What a job holds.
#[derive(Debug, Clone, Default)]
struct Holding {
    nodes: Vec<(NodeId, String, u64)>,
    dvm: Vec<(String, u64)>,
}

impl Reserved {
    /// Sets what the DVM has.
    pub(super) fn declare(&mut self, resources: &[wire::Resource]) {
        let stock = |resource: &wire::Resource| Stock { name: resource.name.clone(), total: resource.amount, held: 0 };
        self.dvm = resources.iter().map(|resource| (resource.name.clone(), stock(resource))).collect();
    }

    pub(super) fn hold(&mut self, job: JobId, map: &TaskMap, needs: &[(String, u64)]) {
        let mut holding = Holding::default();
        for (name, each) in needs {
            if let Some(stock) = self.dvm.get_mut(name) {
                stock.held += each;
                holding.dvm.push((name.clone(), *each));
                continue;
            }
            for node in map.nodes() {
                let amount = each.saturating_mul(u64::from(map.count_on(*node)));
                *self.of_nodes.entry(*node).or_default().entry(name.clone()).or_default() += amount;
                holding.nodes.push((*node, name.clone(), amount));
            }
        }
        if !needs.is_empty() {
            self.of_jobs.insert(job, holding);
        }
    }

    pub(super) fn free(&mut self, job: JobId) {
        let Some(holding) = self.of_jobs.remove(&job) else { return };
        for (name, amount) in holding.dvm {
            if let Some(stock) = self.dvm.get_mut(&name) {
                stock.held = stock.held.saturating_sub(amount);
            }
        }
        for (node, name, amount) in holding.nodes {
            let Some(of_node) = self.of_nodes.get_mut(&node) else { continue };
            if let Some(held) = of_node.get_mut(&name) {
                *held = held.saturating_sub(amount);
                if *held == 0 {
                    of_node.remove(&name);
                }
            }
            if of_node.is_empty() {
                self.of_nodes.remove(&node);
            }
        }
    }

    /// Returns how much of a node's stock jobs hold.
    pub(super) fn held(&self, node: NodeId, name: &str) -> u64 {
        self.of_nodes.get(&node).and_then(|of_node| of_node.get(name)).copied().unwrap_or(0)
    }

    /// Returns a request's needs of nodes. Fails if the DVM has too little of the others.
    pub(super) fn divide(&self, wanted: &Request) -> Result<Option<Request>, Refusal> {
        if self.dvm.is_empty() || wanted.needs.is_empty() {
            return Ok(None);
        }
        for (name, asked) in &wanted.needs {
            let Some(Stock { total, held, .. }) = self.dvm.get(name) else { continue };
            let free = total.saturating_sub(*held);
            if *asked > free {
                return Err(Refusal::FewInDvm { name: name.clone(), asked: *asked, free, total: *total });
            }
        }
        let needs = wanted.needs.iter().filter(|(name, _)| !self.dvm.contains_key(name)).cloned().collect();
        Ok(Some(Request { needs, ..wanted.clone() }))
    }

    /// Returns whether two jobs need the same resource of the DVM.
    pub(super) fn share(&self, a: &Request, b: &Request) -> bool {
        a.needs.iter().any(|(name, _)| self.dvm.contains_key(name) && b.needs.iter().any(|(other, _)| other == name))
    }

    /// Adds to a node's description what jobs have reserved of it.
    pub(super) fn shown(&self, mut info: wire::NodeInfo) -> wire::NodeInfo {
        for (name, amount) in self.of_nodes.get(&info.node).into_iter().flatten() {
            match &**name {
                MEMORY => info.memory_reserved = *amount,
                _ => info.reserved_resources.push(wire::Resource { name: name.clone(), amount: *amount }),
            }
        }
        info
    }

    pub(super) fn leftovers(&self) -> impl Iterator<Item = String> + '_ {
        self.of_jobs.keys().map(|job| format!("what job {job} has reserved"))
    }
}

/// Returns what a node has, and how much of it jobs hold.
pub(super) fn stocks(inventory: Option<&wire::Inventory>, held: impl Fn(&str) -> u64) -> Vec<Stock> {
    let Some(inventory) = inventory else { return Vec::new() };
    let stock = |name: &str, total| Stock { name: name.to_owned(), total, held: held(name) };
    let memory = stock(MEMORY, inventory.memory_bytes);
    let others = inventory.resources.iter().map(|resource| stock(&resource.name, resource.amount));
    std::iter::once(memory).chain(others).collect()
}

/// Refuses resources that cannot be reserved.
pub(super) fn check(spec: &JobSpec) -> Result<(), Refused> {
    let usage = |text: String| Err(Refused::new(exit::USAGE, format!("--resource: {text}")));
    if spec.resources.len() > RESOURCES_MAX {
        return usage(format!("{} resources: the most is {RESOURCES_MAX}", spec.resources.len()));
    }
    for (at, resource) in spec.resources.iter().enumerate() {
        if let Err(why) = resources::check_name(&resource.name) {
            return usage(why);
        }
        if resource.amount == 0 || spec.resources[..at].iter().any(|other| other.name == resource.name) {
            return usage(format!("{} must be given once, with a number from 1", resource.name));
        }
    }
    Ok(())
}
