//! rsd's own rule, from a request to a placement.
//!
//! ```text
//! policy ─▶ wants          the request with defaults filled in
//! nodes ─▶ machines        the free parts of each node's processor; nodes that are alike share one
//! hosts ─▶ seats ─▶ counts      which nodes, in which order, how many ranks each, program after program
//! counts ─▶ local          objects, threads and GPUs on each node; nodes that are alike and loaded alike are placed once
//! local ─▶ numbers         the task map
//! ```

use std::collections::HashMap;
use std::sync::Arc;

use super::bind::Unbindable;
use super::counts::{self, Room};
use super::hosts::{self, Limit, Scarce, Seat};
use super::local::{self, Local, Part};
use super::machine::Machines;
use super::number::{self, Run};
use super::policy::{Directive, PolicyError, RankBy};
use super::topology::{Kind, word};
use super::wants::Wants;
use super::{ASKED_MAX, App, NodeOffer, Obstacle, Placement, RankBinding, Request, listed};
use crate::NodeId;
use crate::taskmap::{self, TaskMap, TaskMapBuilder};

/// The most ranks on one node. Each has its own binding, so memory is bounded by this.
pub(super) const NODE_RANKS_MAX: u32 = 1 << 16;

/// Places a job by rsd's own rule.
pub(super) fn place(nodes: &[NodeOffer], request: &Request, head: NodeId) -> Result<Placement, Obstacle> {
    let wants = Wants::of(request).map_err(Obstacle::Policy)?;
    let machines = Machines::of(nodes, &wants);
    let listed = listed::nodes_of_ranks(nodes, request, &wants, head)?;
    let mut job = Job::new(nodes, request, &wants, &machines, head);
    for (at, app) in request.apps.iter().enumerate() {
        job.count(at, app, listed.as_ref().map(|listed| &listed[at][..]))?;
    }
    if let Some(node) = job.placed.iter().position(|ranks| *ranks > NODE_RANKS_MAX) {
        return Err(crowded(&nodes[node].name, job.placed[node]));
    }
    let lines = match wants.directive {
        Directive::Rankfile => Some(listed::in_rank_order(request)?),
        Directive::Slot
        | Directive::Node
        | Directive::Object(_)
        | Directive::Ppr { .. }
        | Directive::Seq
        | Directive::PeList { .. } => None,
    };
    let settled = job.settle(lines.as_deref(), listed.as_deref())?;
    job.number(&settled, listed.as_deref())
}

/// A job being placed.
struct Job<'a> {
    nodes: &'a [NodeOffer],
    wants: &'a Wants<'a>,
    machines: &'a Machines<'a>,
    head: NodeId,
    needs: &'a [(String, u64)],
    /// `placed[i]`: how many of its ranks are on node i so far.
    placed: Vec<u32>,
    /// `slots[i]`: how many of them have slots.
    slots: Vec<u32>,
    /// For each program: its nodes in list order, with their ranks.
    programs: Vec<Vec<(usize, Part)>>,
    total: u64,
}

/// The nodes, with their ranks placed.
struct Settled<'a> {
    /// The distinct layouts of a node.
    all: Vec<Local>,
    /// Node i's layout, an index into `all`, if it has ranks.
    of: Vec<Option<usize>>,
    notices: Notices<'a>,
}

impl<'a> Job<'a> {
    fn new(
        nodes: &'a [NodeOffer],
        request: &'a Request,
        wants: &'a Wants<'a>,
        machines: &'a Machines<'a>,
        head: NodeId,
    ) -> Job<'a> {
        let none = vec![0; nodes.len()];
        let needs = &request.needs[..];
        Job { nodes, wants, machines, head, needs, placed: none.clone(), slots: none, programs: Vec::new(), total: 0 }
    }

    /// Decides how many of a program's ranks each node takes.
    fn count(&mut self, at: usize, app: &App, listed: Option<&[usize]>) -> Result<(), Obstacle> {
        match app.n {
            Some(0) => return Err(Obstacle::ZeroRanks),
            Some(asked) if asked > ASKED_MAX => return Err(Obstacle::TooMany { asked: asked.into() }),
            Some(_) | None => {}
        }
        let seats = self.seats(app)?;
        let counts = match listed {
            Some(listed) => self.listed_counts(&seats, listed),
            None => self.share_out(&seats, app.n),
        };
        let Some(counts) = counts else {
            return Err(Obstacle::Short { app: at, asked: app.n, seats });
        };
        self.total += counts.iter().map(|count| u64::from(*count)).sum::<u64>();
        if self.total > u64::from(taskmap::RANKS_MAX) {
            return Err(Obstacle::TooMany { asked: self.total });
        }
        let mut program = Vec::with_capacity(seats.len());
        for (seat, count) in seats.iter().zip(counts).filter(|(_, count)| *count > 0) {
            let (placed, before) = (&mut self.placed[seat.node], &mut self.slots[seat.node]);
            *placed += count;
            let slots = count.min(seat.offer);
            program.push((seat.node, Part { count, slots, before: *before, of: *before + seat.offer }));
            *before += slots;
        }
        self.programs.push(program);
        Ok(())
    }

    /// The program's nodes, with offers limited by cpus and GPUs.
    fn seats(&self, app: &App) -> Result<Vec<Seat>, Obstacle> {
        let mut seats = hosts::seats(self.nodes, &self.placed, &app.hosts, self.head).map_err(Obstacle::UnknownHost)?;
        if self.wants.nolocal {
            seats.retain(|seat| self.nodes[seat.node].id != self.head);
            if seats.is_empty() {
                return Err(refuse("nolocal excludes the head's node, and no other node is available: omit nolocal"));
            }
        }
        for seat in &mut seats {
            let machine = self.machines.on(seat.node);
            if let Some(each) = self.wants.cpus_each() {
                let free = machine.cpus(self.wants.cpu).len() as u32;
                let at_all = machine.cpus_at_all(self.wants.cpu);
                seat.limit(Limit { of: Scarce::Cpus(self.wants.cpu), each, free, at_all });
            }
            if self.wants.gpus > 0 {
                let (free, at_all) = (machine.gpus_free.len(), machine.gpus.len() as u32);
                seat.limit(Limit { of: Scarce::Gpus, each: self.wants.gpus, free, at_all });
            }
            for (at, (name, each)) in self.needs.iter().enumerate() {
                let stock = self.nodes[seat.node].stocks.iter().find(|stock| stock.name == *name);
                let ranks = |amount: u64| u32::try_from(amount / (*each).max(1)).unwrap_or(u32::MAX);
                let free = stock.map_or(0, |stock| ranks(stock.total.saturating_sub(stock.held)));
                let at_all = stock.map_or(0, |stock| ranks(stock.total));
                seat.limit(Limit { of: Scarce::Need(at), each: 1, free, at_all });
            }
            if let Directive::Ppr { count, .. } = self.wants.directive {
                seat.wanted = Some(count.saturating_mul(machine.places()));
            }
        }
        Ok(seats)
    }

    /// How many ranks each seat gets; `None` if they do not fit.
    fn share_out(&self, seats: &[Seat], n: Option<u32>) -> Option<Vec<u32>> {
        if let Directive::Ppr { .. } = self.wants.directive {
            return self.per_object(seats, n);
        }
        let offered: u64 = seats.iter().map(|seat| u64::from(seat.offer)).sum();
        let n = match n {
            Some(n) => n,
            None if offered == 0 => return None,
            None => u32::try_from(offered).unwrap_or(u32::MAX).min(taskmap::RANKS_MAX + 1),
        };
        let turn = |seat: &Seat| if self.wants.span { self.machines.on(seat.node).places() } else { 1 };
        let room = |seat: &Seat| Room { offer: seat.offer, most: seat.room, turn: turn(seat) };
        let rooms: Vec<Room> = seats.iter().map(room).collect();
        match self.wants.nodes_take_turns() {
            true => counts::in_turns(&rooms, n, self.wants.oversubscribe),
            false => counts::in_list_order(&rooms, n, self.wants.oversubscribe),
        }
    }

    /// `ppr`: a fixed number of ranks on each object, node by node, until all are placed.
    fn per_object(&self, seats: &[Seat], n: Option<u32>) -> Option<Vec<u32>> {
        let mut rest = n.unwrap_or(u32::MAX);
        let take = |seat: &Seat| {
            let count = rest.min(seat.wanted.unwrap_or(0));
            rest -= count;
            let most = if self.wants.oversubscribe { seat.room } else { seat.offer };
            (count <= most).then_some(count)
        };
        let counts: Option<Vec<u32>> = seats.iter().map(take).collect();
        counts.filter(|_| n.is_none() || rest == 0)
    }

    /// How many ranks each seat gets by the user's list; `None` if a node has no room for its ranks.
    fn listed_counts(&self, seats: &[Seat], listed: &[usize]) -> Option<Vec<u32>> {
        let mut on_node = vec![0; self.nodes.len()];
        listed.iter().for_each(|node| on_node[*node] += 1);
        let take = |seat: &Seat| {
            let count = std::mem::take(&mut on_node[seat.node]);
            let most = if self.wants.oversubscribe { seat.room } else { seat.offer };
            (count <= most).then_some(count)
        };
        let counts: Option<Vec<u32>> = seats.iter().map(take).collect();
        // A rank listed on a node that the host list excludes has no seat.
        counts.filter(|_| on_node.iter().all(|left| *left == 0))
    }

    /// Places the ranks of every node. Nodes that are alike and loaded alike are placed once.
    fn settle(
        &self,
        lines: Option<&[&super::RankPlace]>,
        listed: Option<&[listed::Listed]>,
    ) -> Result<Settled<'a>, Obstacle> {
        let mut parts: Vec<Vec<Part>> = vec![Vec::new(); self.nodes.len()];
        for (node, part) in self.programs.iter().flatten() {
            parts[*node].push(part.clone());
        }
        let mut own: HashMap<usize, Vec<&super::RankPlace>> = HashMap::new();
        if let (Some(lines), Some(listed)) = (lines, listed) {
            listed.iter().flatten().zip(lines).for_each(|(node, line)| own.entry(*node).or_default().push(line));
        }
        let mut known = HashMap::new();
        let mut settled =
            Settled { all: Vec::new(), of: Vec::with_capacity(self.nodes.len()), notices: Notices::default() };
        for (node, parts) in parts.into_iter().enumerate() {
            if parts.is_empty() {
                settled.of.push(None);
                continue;
            }
            let (offer, machine) = (&self.nodes[node], self.machines.on(node));
            let key = (self.machines.of[node], lines.is_some().then_some(node), parts);
            let way = match known.get(&key) {
                Some(way) => *way,
                None => {
                    let threads =
                        own.get(&node).map(|lines| listed::threads(machine, self.wants, offer, lines)).transpose()?;
                    let local = local::settle(machine, self.wants, &key.2, threads.as_deref())
                        .map_err(|why| Obstacle::Unbindable { node, why })?;
                    settled.all.push(local);
                    known.insert(key, settled.all.len() - 1);
                    settled.all.len() - 1
                }
            };
            if let (Some(instead), Some(kind)) = (machine.instead, self.wants.mapped_kind()) {
                settled.notices.mapped_elsewhere(&offer.name, kind, instead);
            }
            if let Some(why) = &settled.all[way].unbound {
                settled.notices.unbound(&offer.name, why);
            }
            settled.of.push(Some(way));
        }
        Ok(settled)
    }

    /// Numbers the ranks and builds the placement.
    fn number(&self, settled: &Settled<'_>, listed: Option<&[listed::Listed]>) -> Result<Placement, Obstacle> {
        let mut map = TaskMapBuilder::default();
        let mut programs_before = vec![0; self.nodes.len()];
        for (at, program) in self.programs.iter().enumerate() {
            if let Some(listed) = listed {
                listed[at].iter().for_each(|node| map.push(self.nodes[*node].id, 1));
                continue;
            }
            let run = |(node, part): &(usize, Part)| {
                let turns = match self.wants.rank_by {
                    RankBy::Span => {
                        let local = settled.of[*node].map(|way| &settled.all[way].turns[programs_before[*node]]);
                        local.map_or(&[][..], |turns| &turns[..])
                    }
                    RankBy::Slot | RankBy::Node | RankBy::Fill => &[],
                };
                Run { id: self.nodes[*node].id, count: part.count, turns }
            };
            number::number(program.iter().map(run).collect(), self.wants.rank_by, &mut map);
            program.iter().for_each(|(node, _)| programs_before[*node] += 1);
        }
        let map = map.build().map_err(|error| Obstacle::TooMany { asked: error.ranks })?;
        if map.size() == 0 {
            return Err(Obstacle::ZeroRanks);
        }
        let bindings: Vec<Arc<[RankBinding]>> = settled.all.iter().map(|local| Arc::clone(&local.bindings)).collect();
        let bound = bindings.iter().any(|node| node.iter().any(|rank| !rank.threads.is_empty()));
        Ok(Placement {
            app_sizes: self.programs.iter().map(|program| program.iter().map(|(_, part)| part.count).sum()).collect(),
            used: map.counts(),
            binding_runs: self.runs(settled, &map),
            map,
            bindings,
            exclusive: bound && self.wants.is_explicit() && !self.wants.overload,
            policy: self.wants.resolved(bound),
            notices: settled.notices.texts(),
        })
    }

    /// The layouts of the map's nodes, run-length encoded.
    fn runs(&self, settled: &Settled<'_>, map: &TaskMap) -> Vec<(u32, u32)> {
        let ways: HashMap<NodeId, usize> =
            self.nodes.iter().zip(&settled.of).filter_map(|(node, way)| Some((node.id, (*way)?))).collect();
        let mut runs: Vec<(u32, u32)> = Vec::new();
        for id in map.nodes() {
            let way = ways[id] as u32;
            match runs.last_mut() {
                Some((count, last)) if *last == way => *count += 1,
                Some(_) | None => runs.push((1, way)),
            }
        }
        runs
    }
}

/// Notices for the user. Each appears once, with the number of nodes that it applies to.
#[derive(Default)]
struct Notices<'a> {
    elsewhere: Option<(&'a str, Kind, Option<Kind>, u32)>,
    unbound: Option<(&'a str, Unbindable, u32)>,
}

impl<'a> Notices<'a> {
    fn mapped_elsewhere(&mut self, node: &'a str, kind: Kind, instead: Option<Kind>) {
        self.elsewhere.get_or_insert((node, kind, instead, 0)).3 += 1;
    }

    fn unbound(&mut self, node: &'a str, why: &Unbindable) {
        self.unbound.get_or_insert_with(|| (node, why.clone(), 0)).2 += 1;
    }

    fn texts(&self) -> Vec<String> {
        let others = |count: u32| match count {
            0 | 1 => String::new(),
            2 => " (same on 1 other node)".to_owned(),
            count => format!(" (same on {} other nodes)", count - 1),
        };
        let elsewhere = self.elsewhere.iter().map(|(node, kind, instead, count)| {
            let (kind, instead) = (word(*kind), instead.map_or("node", Kind::name));
            format!("{node} has no {kind}: ranks are mapped by {instead} there{}", others(*count))
        });
        let unbound = self.unbound.iter();
        let unbound =
            unbound.map(|(node, why, count)| format!("ranks on {node} are not bound: {why}{}", others(*count)));
        elsewhere.chain(unbound).collect()
    }
}

pub(super) fn crowded(node: &str, ranks: u32) -> Obstacle {
    refuse(format!("{ranks} ranks on {node}, at most {NODE_RANKS_MAX} per node: use more nodes or fewer ranks"))
}

fn refuse(text: impl Into<String>) -> Obstacle {
    Obstacle::Policy(PolicyError { text: text.into() })
}
