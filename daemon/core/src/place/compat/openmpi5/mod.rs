//! `--compat openmpi5`: places ranks as Open MPI 5.0.11 (PRRTE 3.0.14) does, by 759 recorded requests (`tests/golden`) and by what
//! is known of that release. Its rules, where they differ from ours:
//!
//! **Slots.** `--host h` is one slot and mentions add up. A hostfile line without a number means the node's cores, or its
//! threads when cpus are threads. A number in a list counts even if it exceeds the node's slots. Without
//! oversubscription more ranks than slots are refused.
//!
//! **Defaults.** Mapping: by slot with `pe=N` for N > 1; else by the object of `--bind-to`, by slot for `none`; else by core,
//! whatever the number of ranks. Numbering: by node for `node`, by span for objects with `span`, fill for other objects, else by
//! slot; `ppr` by span with `span`, else by slot. Binding: none if ranks may oversubscribe; cpus with `pe`; else the object that
//! ranks are mapped by; for slot, node or `ppr:N:node` a core for at most two ranks, else a NUMA node.
//!
//! **Cpus** are cores, or hardware threads with `hwtcpus` or by hwthread; with `pe=N` ranks are bound to cpus. If all
//! cores have one thread the two are the same. Binding to an object larger than the one mapped by is refused.
//!
//! **Each bound rank uses up one cpu**, or N with `pe=N`, even if it is bound to an object of many: it gets the first object
//! at its place that still has a cpu. When all of a node's cpus are used up and `overload-allowed` is given, they become
//! available again, except those that were used up when the node's turn began.
//!
//! **By slot**: each node in turn takes what it offers; then each takes an equal share of the rest, the first nodes one
//! more. A node below its `max_slots` takes its whole share, even beyond that limit. A node takes no more ranks than it has
//! cpus left for, if they are bound and not overloaded. A default binding is dropped on a node that *offers* more slots than it
//! has cpus, whatever the number of ranks.
//!
//! **By node**: two rounds over the nodes, each taking an equal part of the rest, at least one. A node that can take less lowers
//! what later nodes take in the same round. Ranks that two rounds do not place are refused, even if slots are left.
//!
//! **By object**: on each node one rank per object in turn, until the node is full. Objects without cpus are skipped, and
//! a node is done after a round that met one. With `span` each node has one round at a time. If oversubscribed, the first node
//! takes everything.
//!
//! **ppr** needs cpus for all of an object's ranks at once, else it skips the object. The last object gets all of its
//! ranks, even more than were requested; numbered by fill or span, only the requested number exists.
//!
//! Numbering goes program by program over the nodes, in the order of first use.

mod job;
mod map;
mod node;
mod number;
mod rules;
mod wrong;

use super::refuse;
use crate::NodeId;
use crate::place::{NodeOffer, Obstacle, Placement, Request};
use job::{Job, Program};
use map::Turn;
use rules::{Mapping, Rules};
use wrong::Failure;

/// [`place`](crate::place::place) by these rules.
pub(in crate::place) fn place(nodes: &[NodeOffer], request: &Request, head: NodeId) -> Result<Placement, Obstacle> {
    if super::is_silent(&request.policy) {
        return super::place_our_way(nodes, request, head);
    }
    super::without_gpus(&request.policy)?;
    attempt(nodes, request, head).map_err(|failure| failure.explain(nodes, request, head))
}

fn attempt(nodes: &[NodeOffer], request: &Request, head: NodeId) -> Result<Placement, Failure> {
    let mapping = Mapping::resolve(nodes, request)?;
    let mut job = Job::new(nodes, mapping.unit);
    let mut sizes: Vec<u32> = request.apps.iter().map(|app| app.n.unwrap_or(0)).collect();
    if let [only] = &mut sizes[..] {
        *only = job.program(request, 0, &mapping, head)?.n;
    } else if sizes.contains(&0) {
        return Err(refuse("Open MPI 5.0.11 needs -n for each program if there are several").into());
    }
    let rules = Rules::resolve(mapping, request, sizes.iter().map(|size| u64::from(*size)).sum())?;
    let policy = rules.policy(request);
    for app in 0..sizes.len() {
        let Program { places, seats, n, .. } = job.program(request, app, &mapping, head)?;
        let placed = map::map(&mut job, Turn { app, n, rules: &rules }, places);
        if placed < n {
            let room = seats.iter().map(|seat| u64::from(seat.room)).sum::<u64>();
            if mapping.oversubscribe && room < u64::from(n) {
                return Err(Obstacle::Short { app, asked: request.apps[app].n, seats }.into());
            }
            return Err(Failure::Unplaced { app, asked: n, placed, bind: policy.bind_to.and_then(|bind| bind.kind) });
        }
    }
    let mut layout = number::number(nodes, &job, &mapping, &sizes);
    layout.notices = job.notices();
    Ok(layout.finish(nodes, policy, rules.is_exclusive(request))?)
}
