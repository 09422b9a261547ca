//! `--compat openmpi5`: what Open MPI 5.0.11 (PRRTE 3.0.14) answers, from 759 recorded requests (`tests/golden`) and from what
//! that release is known to do. Its rules, where they differ from ours:
//!
//! **Slots.** `--host h` is one slot and mentions add up; a hostfile's line without a number is the node's cores, or its
//! threads when cpus are threads; a number in a list counts even where it is more than the node has. Without
//! oversubscription more ranks than slots are refused.
//!
//! **Defaults.** Mapping: by slot with `pe=N` for N > 1; else by the object of `--bind-to`, by slot for `none`; else by core,
//! however many ranks. Numbering: by node for `node`, by span for objects with `span`, fill for other objects, else by slot;
//! `ppr` by span with `span`, else by slot. Binding: none if ranks may oversubscribe; cpus with `pe`; else the object mapped
//! by; and by slot, node or `ppr:N:node` a core for at most two ranks, else a NUMA node.
//!
//! **Cpus** are cores, or hardware threads with `hwtcpus` or by hwthread; with `pe=N` they are what is bound to. Where all
//! cores have one thread the two are the same. Binding to something larger than what is mapped by is refused.
//!
//! **Each bound rank uses up one cpu**, or N with `pe=N`, also when it is bound to an object of many: it gets the first object
//! that still has one, among those of its place. When all of a node's are used up and `overload-allowed` is given, they
//! are all there again; what was used up when the node's turn began is not.
//!
//! **By slot**: each node in turn takes as many as it offers; then each takes an equal share of the rest, the first ones one
//! more. A node below its `max_slots` takes its share whole, also across that limit. A node cannot take more than it has
//! cpus left for, if bound and not overloaded. A default binding is dropped on a node that *offers* more slots than it
//! has cpus, however few ranks come.
//!
//! **By node**: twice over the nodes, each taking an equal part of what is left, at least one. A node that can take less lowers
//! what those behind it take in the same round. What two rounds do not place is refused, also where slots are left.
//!
//! **By object**: on each node one rank per object in turn, until the node is full; objects without cpus are passed over, and
//! a node is left after a round that met one. With `span` each node has one round at a time. Oversubscribed, the first node
//! takes everything.
//!
//! **ppr** wants cpus for all of an object's ranks at once, else the object is passed over. The last object gets all of its
//! ranks, even more than were asked for; numbered by fill or span only as many as asked exist.
//!
//! Numbering goes program by program over the nodes, in the order in which they were first used.

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

/// As [`place`](crate::place::place), by these rules.
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
        return Err(refuse("Open MPI 5.0.11 wants -n for each of several programs").into());
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
