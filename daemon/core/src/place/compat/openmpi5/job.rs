//! A job while its ranks are placed: its nodes and their free cpus.

use std::collections::HashMap;
use std::sync::Arc;

use super::super::processor::{Processor, Unit};
use super::node::{NoCpu, Node, Rank};
use super::rules::{Map, Mapping, Rules};
use super::wrong::Failure;
use crate::NodeId;
use crate::place::cpuset::CpuSet;
use crate::place::hosts::{self, Seat};
use crate::place::topology::Kind;
use crate::place::{ASKED_MAX, Host, NodeOffer, Obstacle, Request};

/// All nodes that the job has been offered so far.
pub(super) struct Job<'a> {
    offers: &'a [NodeOffer],
    unit: Unit,
    nodes: HashMap<usize, Node>,
    processors: HashMap<(usize, CpuSet), Arc<Processor>>,
    /// The offers, in the order of first use.
    order: Vec<usize>,
    /// Nodes on which the default binding was dropped.
    pub(super) unbound: Vec<usize>,
}

/// A node in a program's list.
#[derive(Debug, Clone, Copy)]
pub(super) struct Place {
    /// Index into the offers.
    pub(super) node: usize,
    /// The slots that the program may use.
    pub(super) offer: u32,
    /// The most ranks.
    room: u32,
    /// The ranks so far.
    pub(super) placed: u32,
}

impl Place {
    pub(super) fn is_full(&self) -> bool {
        self.placed >= self.offer
    }

    pub(super) fn is_at_max(&self) -> bool {
        self.placed >= self.room
    }
}

/// A rank's place on its node.
#[derive(Clone, Copy)]
pub(super) struct Spot<'t> {
    /// The kind of object that it is bound to; absent: unbound.
    pub(super) bind: Option<Kind>,
    /// The object that it is mapped to, if any.
    pub(super) object: Option<usize>,
    /// Its number among the ranks that `ppr` places together, from 1.
    pub(super) nth: Option<u32>,
    /// For each cpu, whether it was free when the node's turn began; the rank gets only such cpus.
    pub(super) turn: &'t [bool],
}

/// A program to place.
pub(super) struct Program {
    /// All nodes of its list.
    pub(super) seats: Vec<Seat>,
    /// The nodes that may take ranks, in the order of the list.
    pub(super) places: Vec<Place>,
    /// How many ranks.
    pub(super) n: u32,
}

impl<'a> Job<'a> {
    pub(super) fn new(offers: &'a [NodeOffer], unit: Unit) -> Job<'a> {
        let (nodes, processors) = (HashMap::new(), HashMap::new());
        Job { offers, unit, nodes, processors, order: Vec::new(), unbound: Vec::new() }
    }

    /// Finds a program's nodes and its number of ranks, by what earlier programs left.
    pub(super) fn program(
        &mut self,
        request: &Request,
        app: usize,
        mapping: &Mapping,
        head: NodeId,
    ) -> Result<Program, Failure> {
        match request.apps[app].n {
            Some(0) => return Err(Obstacle::ZeroRanks.into()),
            Some(asked) if asked > ASKED_MAX => return Err(Obstacle::TooMany { asked: asked.into() }.into()),
            Some(_) | None => {}
        }
        let seats = self.seats(request, app, mapping, head)?;
        let kept = seats.iter().filter(|seat| seat.room > 0 && (seat.offer > 0 || mapping.oversubscribe));
        let places: Vec<Place> =
            kept.map(|seat| Place { node: seat.node, offer: seat.offer, room: seat.room, placed: 0 }).collect();
        let offered: u64 = places.iter().map(|place| u64::from(place.offer)).sum();
        for place in &places {
            self.open(place.node);
        }
        let n = match request.apps[app].n {
            Some(n) => u64::from(n),
            None => self.natural(&places, mapping, offered),
        };
        let n = u32::try_from(n).ok().filter(|n| *n <= ASKED_MAX).ok_or(Obstacle::TooMany { asked: n })?;
        if n == 0 || places.is_empty() || (u64::from(n) > offered && !mapping.oversubscribe) {
            return Err(Obstacle::Short { app, asked: request.apps[app].n, seats }.into());
        }
        Ok(Program { seats, places, n })
    }

    /// Seats a program as rsd's own rule does, except for slots in a list.
    fn seats(&self, request: &Request, app: usize, mapping: &Mapping, head: NodeId) -> Result<Vec<Seat>, Obstacle> {
        let placed: Vec<u32> =
            (0..self.offers.len()).map(|at| self.nodes.get(&at).map_or(0, |node| node.ranks.len() as u32)).collect();
        let hosts: Vec<Host> = request.apps[app].hosts.iter().map(one_slot).collect();
        let mut seats = hosts::seats(self.offers, &placed, &hosts, head).map_err(Obstacle::UnknownHost)?;
        if request.policy.map_by.nolocal {
            seats.retain(|seat| self.offers[seat.node].id != head);
        }
        for seat in &mut seats {
            let own = &self.offers[seat.node];
            let counted = slots(own, mapping.threads);
            // A number in the list counts even if the node has fewer slots.
            let listed = seat.cap.unwrap_or(counted);
            let free = listed.max(counted).saturating_sub(own.in_use);
            seat.offer = free.min(listed).saturating_sub(seat.placed).min(seat.room);
            seat.by_slots = (seat.offer, seat.room);
        }
        Ok(seats)
    }

    /// The number of ranks without `-n`: `ppr` fills its objects, `pe` the cpus, other mappings the slots.
    fn natural(&self, places: &[Place], mapping: &Mapping, offered: u64) -> u64 {
        let processors = places.iter().map(|place| &self.nodes[&place.node].processor);
        match mapping.map {
            Map::Ppr(count, per) => {
                let objects = processors.map(|processor| per.map_or(1, |kind| processor.objects(kind).len()) as u64);
                objects.map(|objects| objects * u64::from(count)).sum()
            }
            Map::Slot | Map::Node | Map::Object(_) if mapping.pe > 1 => {
                let fitting: u64 =
                    processors.map(|processor| (processor.all().len() / mapping.pe as usize) as u64).sum();
                fitting.clamp(1, offered.max(1))
            }
            Map::Slot | Map::Node | Map::Object(_) => offered,
        }
    }

    /// Adds a node if it is new, and remembers its free cpus.
    fn open(&mut self, at: usize) {
        let (offers, unit) = (self.offers, self.unit);
        let own = &offers[at];
        let node = self.nodes.entry(at).or_insert_with(|| {
            let key = (Arc::as_ptr(&own.topology) as usize, own.usable.clone());
            let known = self.processors.entry(key);
            let processor =
                Arc::clone(known.or_insert_with(|| Arc::new(Processor::new(&own.topology, &own.usable, unit))));
            Node::new(processor, &own.taken)
        });
        node.begin();
    }

    pub(super) fn node(&self, place: &Place) -> &Node {
        &self.nodes[&place.node]
    }

    /// The used nodes, in the order of first use.
    pub(super) fn used(&self) -> impl Iterator<Item = (usize, &Node)> {
        self.order.iter().map(|at| (*at, &self.nodes[at]))
    }

    /// Marks a node as used.
    pub(super) fn enter(&mut self, place: &Place) {
        if self.nodes.get_mut(&place.node).is_some_and(Node::enter) {
            self.order.push(place.node);
        }
    }

    /// Adds a rank of program `app`.
    pub(super) fn add(&mut self, app: usize, place: &mut Place, rules: &Rules, spot: Spot<'_>) -> Result<(), NoCpu> {
        let Some(node) = self.nodes.get_mut(&place.node) else { return Err(NoCpu) };
        let region = match (rules.mapping.map.object(), spot.object) {
            (Some(kind), Some(object)) => node.processor.objects(kind)[object].cpus.clone(),
            _ => node.processor.all(),
        };
        let pe = rules.mapping.pe as usize;
        let threads = match spot.bind {
            None => CpuSet::EMPTY,
            Some(_) if pe > 1 => node.bind_many(pe, region, spot.object.is_some(), spot.turn)?,
            Some(kind) => node.bind_one(kind, rules, region, spot.turn)?,
        };
        place.placed += 1;
        node.turns.insert(app, (place.offer, place.placed));
        node.ranks.push(Rank { app, object: spot.object, threads, nth: spot.nth.unwrap_or(place.placed) });
        Ok(())
    }

    /// Notices for the user.
    pub(super) fn notices(&self) -> Vec<String> {
        let Some(first) = self.unbound.first() else { return Vec::new() };
        let others = match self.unbound.len() {
            1 => String::new(),
            2 => " (same on 1 other node)".to_owned(),
            count => format!(" (same on {} other nodes)", count - 1),
        };
        vec![format!(
            "ranks on {} are not bound: the node offers more slots than cpus{others}",
            self.offers[*first].name
        )]
    }
}

/// On the command line a name without a number means one slot.
fn one_slot(host: &Host) -> Host {
    let counted = host.slots.is_some() || host.max_slots.is_some() || host.source.starts_with("hostfile ");
    Host { slots: if counted { host.slots } else { Some(1) }, ..host.clone() }
}

/// A node's slots. If they are its cores by default and cpus are threads, its threads count instead.
fn slots(own: &NodeOffer, threads: bool) -> u32 {
    let cores = || own.topology.objects_of(Kind::Core, &own.usable).len();
    if threads && own.slots == cores() { own.usable.len() } else { own.slots }
}
