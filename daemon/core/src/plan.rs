//! Converts between a client's [`JobSpec`] and placement's values, and writes placements as messages.
//!
//! A launch, a plan from a head and `rsd plan` for machines that do not exist all use these functions, so they cannot differ.
//! [`crate::place`] makes the decisions.

mod imagine;
mod reply;

pub use imagine::imagine;
pub use reply::{reply, slots_of};

use rsd_config::host::{HostEntry, Slots};
use rsd_proto::resources::MEMORY;
use rsd_proto::v1::{self as wire, JobSpec};

use crate::place::cpuset::CpuSet;
use crate::place::policy::{Directive, Policy};
use crate::place::{self, Gpu, Placement, RankBinding, Refusal, Request};

/// Parses a job's placement request. Fails if the text of a policy is invalid.
pub fn request(spec: &JobSpec) -> Result<Request, Refusal> {
    let host = |host: &wire::Host| place::Host {
        name: host.name.clone(),
        slots: host.slots,
        max_slots: host.max_slots,
        source: host.source.clone(),
    };
    let app = |app: &wire::App| place::App { n: app.n, hosts: app.hosts.iter().map(host).collect() };
    let rank = |place: &wire::RankPlace| place::RankPlace {
        rank: place.rank,
        host: place.host.clone(),
        cpus: place.cpus.clone(),
        source: place.source.clone(),
    };
    let JobSpec { map_by, rank_by, bind_to, mem_bind, compat, gpus_per_rank, .. } = spec;
    let policy = Policy::from_texts(map_by, rank_by, bind_to, mem_bind, compat, *gpus_per_rank)?;
    Ok(Request {
        apps: spec.apps.iter().map(app).collect(),
        oversubscribe: spec.oversubscribe || policy.map_by.oversubscribe == Some(true),
        policy,
        rankfile: spec.rankfile.iter().map(rank).collect(),
        needs: needs(spec),
    })
}

/// Returns what each rank of a job needs of its node's stocks. What the DVM has, the job needs once; the head tells them apart.
pub fn needs(spec: &JobSpec) -> Vec<(String, u64)> {
    let memory = (spec.memory_per_rank > 0).then(|| (MEMORY.to_owned(), spec.memory_per_rank));
    let others = spec.resources.iter().map(|resource| (resource.name.clone(), resource.amount));
    memory.into_iter().chain(others).collect()
}

/// Converts an entry of a host list to the form that a job carries. Accounts and ports are dropped: they only serve to start daemons.
pub fn host(entry: HostEntry) -> wire::Host {
    let slots = match entry.slots {
        Slots::Unsaid => None,
        Slots::Whole => Some(place::Host::WHOLE),
        Slots::Count(count) => Some(count),
    };
    wire::Host { name: entry.host.to_string(), slots, max_slots: entry.max_slots, source: entry.source }
}

/// Whether a rank that cannot be bound as planned must not run: the user requested the binding without `if-supported`.
pub fn is_binding_required(policy: &Policy) -> bool {
    let listed = match policy.map_by.directive {
        Some(Directive::Rankfile | Directive::PeList { .. }) => true,
        Some(Directive::Slot | Directive::Node | Directive::Object(_) | Directive::Ppr { .. } | Directive::Seq)
        | None => false,
    };
    match policy.bind_to {
        Some(bind_to) => bind_to.kind.is_some() && !bind_to.if_supported,
        None => listed || policy.map_by.pe.is_some(),
    }
}

/// A placement's bindings as messages, and how many successive nodes have each.
pub fn bindings(placement: &Placement) -> (Vec<wire::NodeBinding>, Vec<wire::BindingRun>) {
    let rank = |rank: &RankBinding| wire::RankBinding {
        threads: ranges(&rank.threads),
        gpus: rank.gpus.clone(),
        reason: rank.reason.to_string(),
    };
    let node = |ranks: &[RankBinding]| wire::NodeBinding { ranks: ranks.iter().map(rank).collect() };
    let run = |(nodes, binding): &(u32, u32)| wire::BindingRun { nodes: *nodes, binding: *binding };
    (placement.bindings.iter().map(|ranks| node(ranks)).collect(), placement.binding_runs.iter().map(run).collect())
}

/// Converts a set to ranges.
pub fn ranges(set: &CpuSet) -> Vec<wire::Range> {
    set.ranges().into_iter().map(|range| wire::Range { first: range.start, count: range.end - range.start }).collect()
}

/// Converts a peer's ranges to a set, without the numbers from `end` up.
pub fn cpu_set(ranges: &[wire::Range], end: u32) -> CpuSet {
    ranges.iter().flat_map(|range| range.first.min(end)..range.first.saturating_add(range.count).min(end)).collect()
}

/// Converts a node's GPUs for placement. `threads`: how many hardware threads the node has.
pub fn gpus(gpus: &[wire::Gpu], threads: u32) -> Vec<Gpu> {
    gpus.iter().map(|gpu| Gpu { near: cpu_set(&gpu.near, threads) }).collect()
}

#[cfg(test)]
mod tests;
