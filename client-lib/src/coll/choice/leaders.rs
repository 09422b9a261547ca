//! Compositions in which one rank of each node, its *leader*, communicates with the other nodes: the ranks of a node bring their data to
//! it, the leaders carry out the operation, and bring the results to the ranks of their nodes. A node's data cross the network once.
//! The costs are those of the parts, one after the other; rounds within a node are many times shorter than those between nodes.
//!
//! Where the order of nodes is not that of ranks, data that belong to all ranks are *sorted* in temporary memory, node by node.
//! Functions named after collectives are for layouts with several ranks on some node; `own` is where this rank's
//! data lie, as in `Call::by`. Operations that do not commute need a layout in order.

use super::super::halving::Vector;
use super::super::layout::Layout;
use super::super::schedule::{Area, Here, Schedule, Slice};
use super::super::{barrier, gather};
use super::algorithms::{self, Allgather};
use super::rules::choose;
use super::{Call, tables};

/// One rank's view of its node and of the leaders.
#[derive(Debug, Clone, Copy)]
pub(super) struct View<'a> {
    pub(super) layout: &'a Layout,
    pub(super) rank: u32,
    pub(super) node: u32,
    pub(super) place: u32,
    /// This rank leads its node, instead of the first one.
    chief: Option<u32>,
}

impl<'a> View<'a> {
    /// The layout has nodes with several ranks: otherwise the parts would be compositions again.
    pub(super) fn new(rank: u32, layout: &'a Layout) -> Self {
        debug_assert!(layout.most() > 1 || layout.size() < 2, "{layout:?}");
        Self { layout, rank, node: layout.node(rank), place: layout.place(rank), chief: None }
    }

    /// As [`View::new`], where this rank leads its node.
    fn led_by(rank: u32, layout: &'a Layout, chief: u32) -> Self {
        Self { chief: Some(chief), ..Self::new(rank, layout) }
    }

    fn leader(self, node: u32) -> u32 {
        self.chief.filter(|chief| self.layout.node(*chief) == node).unwrap_or_else(|| self.layout.rank(node, 0))
    }

    fn leads(self) -> bool {
        self.leader(self.node) == self.rank
    }

    /// The place of this node's leader.
    fn leading_place(self) -> u32 {
        self.layout.place(self.leader(self.node))
    }

    /// This rank among those of its node.
    pub(super) fn inside(self) -> Here {
        Here::new(self.place, self.layout.on(self.node))
    }

    /// The leader of this node among the leaders, and these alone.
    fn outside(self) -> (Here, Layout) {
        let nodes = self.layout.nodes();
        (Here::new(self.node, nodes), Layout::apart(nodes).crowded(self.layout.is_crowded()))
    }

    /// Appends a call among the ranks of this node.
    pub(super) fn within(self, schedule: &mut Schedule, call: Call, send: Slice, recv: Slice) {
        let part = call.schedule(self.inside(), &Layout::together(self.layout.on(self.node)));
        self.embed_within(schedule, &part, send, recv);
    }

    pub(super) fn embed_within(self, schedule: &mut Schedule, part: &Schedule, send: Slice, recv: Slice) {
        let area = |area: Area| if area == Area::Send { send } else { recv };
        schedule.embed(part, |place| self.layout.rank(self.node, place), area);
    }

    /// Appends a call among the leaders, if this rank is one.
    fn across(self, schedule: &mut Schedule, call: Call, send: Slice, recv: Slice) {
        if self.leads() {
            let (here, layout) = self.outside();
            self.embed_across(schedule, &call.schedule(here, &layout), send, recv);
        }
    }

    fn embed_across(self, schedule: &mut Schedule, part: &Schedule, send: Slice, recv: Slice) {
        let area = |area: Area| if area == Area::Send { send } else { recv };
        schedule.embed(part, |node| self.leader(node), area);
    }
}

/// The radix of the trees of a barrier within a node.
const RADIX: u32 = 4;

/// The ranks of a node arrive up a tree, the leaders wait for each other, and release their nodes down the tree.
pub(super) fn barrier(rank: u32, layout: &Layout) -> Schedule {
    let mut schedule = Schedule::default();
    let view = View::new(rank, layout);
    let nothing = Slice::all(Area::Recv, 0);
    view.embed_within(&mut schedule, &barrier::arrive(view.inside(), RADIX), nothing, nothing);
    view.across(&mut schedule, Call::Barrier, nothing, nothing);
    view.embed_within(&mut schedule, &barrier::release(view.inside(), RADIX), nothing, nothing);
    schedule
}

/// The leaders broadcast, then each node does. The root leads its node.
pub(super) fn bcast(rank: u32, layout: &Layout, root: u32, len: u64) -> Schedule {
    let mut schedule = Schedule::default();
    let view = View::led_by(rank, layout, root);
    let data = Slice::all(Area::Recv, len);
    view.across(&mut schedule, Call::Bcast { root: layout.node(root), len }, data, data);
    view.within(&mut schedule, Call::Bcast { root: view.leading_place(), len }, data, data);
    schedule
}

/// Each node gathers, then the leaders do. The root leads its node. Memory at a leader: the blocks of its node; at the root, all blocks
/// unless the layout is in order.
pub(super) fn gather(rank: u32, layout: &Layout, root: u32, own: Slice, block: u64) -> Schedule {
    let mut schedule = Schedule::default();
    let view = View::led_by(rank, layout, root);
    let bytes = |ranks: u32| u64::from(ranks) * block;
    let (all, len) = (Slice::all(Area::Recv, bytes(layout.size())), bytes(layout.on(view.node)));
    let sorted = match layout.is_in_order() {
        true => all,
        false if rank == root => schedule.temporary(all.len),
        false => Slice::all(Area::Recv, 0),
    };
    let mine = match view.leads() {
        true if rank == root => sorted.part(bytes(layout.start(view.node)), len),
        true => schedule.temporary(len),
        false => Slice::all(Area::Recv, 0),
    };
    let call = Call::Gather { root: view.leading_place(), block, in_place: false };
    view.within(&mut schedule, call, own, mine);
    if view.leads() {
        let node = layout.node(root);
        let how = choose(tables::GATHER, &view.outside().1, bytes(layout.most()));
        let send = Slice::all(Area::Send, len);
        let part = algorithms::gather(view.outside().0, how, node, send, |node| Slice {
            area: Area::Recv,
            at: bytes(layout.start(node)),
            len: bytes(layout.on(node)),
        });
        view.embed_across(&mut schedule, &part, mine, sorted);
    }
    if rank == root && sorted != all {
        for position in 0..layout.size() {
            schedule.copy(sorted.part(bytes(position), block), all.part(bytes(layout.at(position)), block));
        }
    }
    schedule
}

/// The leaders scatter, then each node does. The root leads its node. Memory as for [`gather()`].
pub(super) fn scatter(rank: u32, layout: &Layout, root: u32, own: Slice, block: u64) -> Schedule {
    let mut schedule = Schedule::default();
    let view = View::led_by(rank, layout, root);
    let bytes = |ranks: u32| u64::from(ranks) * block;
    let (all, len) = (Slice::all(Area::Send, bytes(layout.size())), bytes(layout.on(view.node)));
    let sorted = match layout.is_in_order() {
        true => all,
        false if rank == root => schedule.temporary(all.len),
        false => Slice::all(Area::Send, 0),
    };
    if rank == root && sorted != all {
        for position in 0..layout.size() {
            schedule.copy(all.part(bytes(layout.at(position)), block), sorted.part(bytes(position), block));
        }
    }
    let mine = match view.leads() {
        true if rank == root => sorted.part(bytes(layout.start(view.node)), len),
        true => schedule.temporary(len),
        false => Slice::all(Area::Send, 0),
    };
    if view.leads() {
        let node = layout.node(root);
        let how = choose(tables::SCATTER, &view.outside().1, bytes(layout.most()));
        let place = |node: u32| Slice { area: Area::Send, at: bytes(layout.start(node)), len: bytes(layout.on(node)) };
        let part = algorithms::scatter(view.outside().0, how, node, place, Slice::all(Area::Recv, len));
        view.embed_across(&mut schedule, &part, sorted, mine);
    }
    let call = Call::Scatter { root: view.leading_place(), block, in_place: false };
    view.within(&mut schedule, call, mine, own);
    schedule
}

/// Each node gathers, the leaders allgather, and each node broadcasts all. `place(rank)` is where the block of a rank goes; blocks may have
/// different lengths. Memory: all blocks, unless they lie contiguously in the order of nodes.
pub(super) fn allgather(rank: u32, layout: &Layout, own: Slice, place: impl Fn(u32) -> Slice) -> Schedule {
    let mut schedule = Schedule::default();
    let view = View::new(rank, layout);
    let mut starts = vec![0];
    let mut is_sorted = true;
    let first = place(layout.at(0));
    for position in 0..layout.size() {
        let (slice, start) = (place(layout.at(position)), starts[position as usize]);
        is_sorted &= slice.area == first.area && slice.at == first.at + start;
        starts.push(start + slice.len);
    }
    let start = |position: u32| starts[position as usize];
    let len = start(layout.size());
    let sorted = if is_sorted { Slice { len, ..first } } else { schedule.temporary(len) };
    let range = |from: u32, to: u32| Slice { area: Area::Recv, at: start(from), len: start(to) - start(from) };
    let base = layout.start(view.node);
    let how = choose(tables::GATHER, &Layout::together(layout.on(view.node)), len / u64::from(layout.size()));
    let part = algorithms::gather(view.inside(), how, 0, Slice::all(Area::Send, own.len), |place| {
        range(base + place, base + place + 1)
    });
    view.embed_within(&mut schedule, &part, own, sorted);
    if view.leads() {
        let (here, nodes) = view.outside();
        let how = match super::allgather(&nodes, len) {
            // Of blocks that are too different, the longest would go round while others wait.
            Allgather::Ring if !layout.is_even() => Allgather::Logarithmic(2),
            how => how,
        };
        let blocks = |from: u32, to: u32| range(layout.start(from), layout.start(to));
        let part = algorithms::allgather(here, how, blocks(here.rank, here.rank + 1), blocks);
        view.embed_across(&mut schedule, &part, sorted, sorted);
    }
    view.within(&mut schedule, Call::Bcast { root: 0, len }, sorted, sorted);
    if !is_sorted {
        for position in 0..layout.size() {
            let part = range(position, position + 1);
            schedule.copy(sorted.part(part.at, part.len), place(layout.at(position)));
        }
    }
    schedule
}

/// Each node reduces, then the leaders do. The root leads its node. Memory at a leader: one vector, and what the parts need.
pub(super) fn reduce(rank: u32, layout: &Layout, root: u32, own: Slice, vector: Vector, commutes: bool) -> Schedule {
    let mut schedule = Schedule::default();
    let view = View::led_by(rank, layout, root);
    let result = Slice::all(Area::Recv, vector.len());
    let of_node = match view.leads() {
        true if rank == root => result,
        true => schedule.temporary(vector.len()),
        false => result,
    };
    let in_place = rank == root && own == result;
    let call = Call::Reduce { root: view.leading_place(), vector, commutes, in_place };
    view.within(&mut schedule, call, own, of_node);
    let call = Call::Reduce { root: layout.node(root), vector, commutes, in_place: true };
    view.across(&mut schedule, call, of_node, result);
    schedule
}

/// Each node reduces, the leaders allreduce, and each node broadcasts.
pub(super) fn allreduce(rank: u32, layout: &Layout, own: Slice, vector: Vector, commutes: bool) -> Schedule {
    let mut schedule = Schedule::default();
    let view = View::new(rank, layout);
    let result = Slice::all(Area::Recv, vector.len());
    let in_place = view.leads() && own == result;
    view.within(&mut schedule, Call::Reduce { root: 0, vector, commutes, in_place }, own, result);
    view.across(&mut schedule, Call::Allreduce { vector, commutes, in_place: true }, result, result);
    view.within(&mut schedule, Call::Bcast { root: 0, len: vector.len() }, result, result);
    schedule
}

/// Each node reduces the whole vector, the leaders reduce-scatter the parts of their nodes, and each node scatters. `part(rank)` is each
/// rank's (offset, length). Memory at a leader: two vectors and the part of its node, and what the parts need.
pub(super) fn reduce_scatter(
    rank: u32,
    layout: &Layout,
    own: Slice,
    part: impl Fn(u32) -> (u64, u64),
    unit: u64,
    commutes: bool,
) -> Schedule {
    let mut schedule = Schedule::default();
    let view = View::new(rank, layout);
    let vector = Vector { count: own.len / unit, unit };
    let mut starts = vec![0];
    for position in 0..layout.size() {
        starts.push(starts[position as usize] + part(layout.at(position)).1);
    }
    let start = |position: u32| starts[position as usize];
    let base = start(layout.start(view.node));
    let len = start(layout.start(view.node + 1)) - base;
    let none = Slice::all(Area::Recv, 0);
    let [whole, mine] = [own.len, len].map(|len| if view.leads() { schedule.temporary(len) } else { none });
    view.within(&mut schedule, Call::Reduce { root: 0, vector, commutes, in_place: false }, own, whole);
    if view.leads() {
        let mut sorted = whole;
        if !layout.is_in_order() {
            sorted = schedule.temporary(own.len);
            for position in 0..layout.size() {
                let (at, len) = part(layout.at(position));
                schedule.copy(whole.part(at, len), sorted.part(start(position), len));
            }
        }
        let (here, nodes) = view.outside();
        let how = choose(tables::REDUCE_SCATTER, &nodes, own.len);
        let of_node = |node: u32| {
            let (from, to) = (start(layout.start(node)), start(layout.start(node + 1)));
            (from, to - from)
        };
        let [send, recv] = [(Area::Send, own.len), (Area::Recv, len)].map(|(area, len)| Slice::all(area, len));
        let part = algorithms::reduce_scatter(here, how, send, of_node, recv, unit, commutes);
        view.embed_across(&mut schedule, &part, sorted, mine);
    }
    let place = |place: u32| {
        let position = layout.start(view.node) + place;
        Slice { area: Area::Send, at: start(position) - base, len: start(position + 1) - start(position) }
    };
    let result = Slice::all(Area::Recv, part(rank).1);
    let scattered = gather::linear_scatter(view.inside(), 0, place, result);
    view.embed_within(&mut schedule, &scattered, mine, result);
    schedule
}

/// Each node scans; the last rank of each has the node's whole, and these exscan; each node broadcasts what comes from the nodes before
/// it, and combines. The layout is in order. Memory: a vector.
pub(super) fn scan(rank: u32, layout: &Layout, own: Slice, vector: Vector) -> Schedule {
    let mut schedule = Schedule::default();
    let view = View::new(rank, layout);
    let result = Slice::all(Area::Recv, vector.len());
    view.within(&mut schedule, Call::Scan { vector, in_place: own == result }, own, result);
    if let Some(before) = before(&mut schedule, view, result, vector) {
        schedule.combine(before, result);
    }
    schedule
}

/// As [`scan`], but the first part of each rank's result is that of the ranks before it. Memory: two vectors.
pub(super) fn exscan(rank: u32, layout: &Layout, own: Slice, vector: Vector) -> Schedule {
    let mut schedule = Schedule::default();
    let view = View::new(rank, layout);
    let result = Slice::all(Area::Recv, vector.len());
    // The whole of a node is needed only at its last rank.
    let mut whole = result;
    let is_last = view.place + 1 == layout.on(view.node);
    if is_last {
        whole = schedule.temporary(vector.len());
        schedule.copy(own, whole);
    }
    view.within(&mut schedule, Call::Exscan { vector, in_place: own == result }, own, result);
    if is_last && view.place > 0 {
        schedule.combine(result, whole);
    }
    if let Some(before) = before(&mut schedule, view, whole, vector) {
        if view.place > 0 { schedule.combine(before, result) } else { schedule.copy(before, result) }
    }
    schedule
}

/// What the nodes before this one have, combined; `whole` is what this node has, at its last rank.
fn before(schedule: &mut Schedule, view: View<'_>, whole: Slice, vector: Vector) -> Option<Slice> {
    let before = if view.node > 0 { schedule.temporary(vector.len()) } else { Slice::all(Area::Recv, 0) };
    let layout = view.layout;
    let last = |node: u32| layout.on(node) - 1;
    if view.place == last(view.node) {
        let (here, nodes) = view.outside();
        let part = Call::Exscan { vector, in_place: false }.schedule(here, &nodes);
        let area = |area: Area| if area == Area::Send { whole } else { before };
        schedule.embed(&part, |node| layout.rank(node, last(node)), area);
    }
    if view.node == 0 {
        return None;
    }
    view.within(schedule, Call::Bcast { root: last(view.node), len: vector.len() }, before, before);
    Some(before)
}
