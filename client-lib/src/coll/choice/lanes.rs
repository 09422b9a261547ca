//! Compositions in which each rank communicates with the ranks in the same place of other nodes, its *lane*: the ranks of a node divide
//! the work among them, all lanes carry it out at the same time, and the ranks of a node share the results. So all cores of a node
//! and its whole bandwidth are used, and a node's data cross the network once. All nodes have the same number of ranks. The costs
//! are those of the parts, one after the other; n nodes of k ranks.
//!
//! `own` is where this rank's data lie, as in `Call::by`. Operations that do not commute need a layout in order.

use super::super::halving::Vector;
use super::super::layout::Layout;
use super::super::schedule::{Area, Here, Schedule, Slice};
use super::algorithms;
use super::leaders::View;
use super::rules::choose;
use super::{Call, tables};

/// Appends a call among the ranks of this lane.
fn along(schedule: &mut Schedule, view: View<'_>, call: Call, send: Slice, recv: Slice) {
    let nodes = view.layout.nodes();
    let part = call.schedule(Here::new(view.node, nodes), &Layout::apart(nodes));
    let area = |area: Area| if area == Area::Send { send } else { recv };
    schedule.embed(&part, |node| view.layout.rank(node, view.place), area);
}

/// Once all ranks of the nodes have arrived, each lane waits: that tells each rank that all nodes have.
pub(super) fn barrier(rank: u32, layout: &Layout) -> Schedule {
    let mut schedule = Schedule::default();
    let view = View::new(rank, layout);
    let nothing = Slice::all(Area::Recv, 0);
    view.within(&mut schedule, Call::Barrier, nothing, nothing);
    along(&mut schedule, view, Call::Barrier, nothing, nothing);
    schedule
}

/// The root's node scatters k parts, each lane broadcasts one, and each node allgathers them.
pub(super) fn bcast(rank: u32, layout: &Layout, root: u32, len: u64) -> Schedule {
    let mut schedule = Schedule::default();
    let view = View::new(rank, layout);
    let data = Slice::all(Area::Recv, len);
    let part = len.div_ceil(u64::from(layout.most())).next_multiple_of(64);
    let start = |place: u32| (u64::from(place) * part).min(len);
    let range = |from: u32, to: u32| data.part(start(from), start(to) - start(from));
    let mine = range(view.place, view.place + 1);
    let inside = Layout::together(layout.most());
    if view.node == layout.node(root) {
        let how = choose(tables::SCATTER, &inside, part);
        let parts = |place: u32| Slice { area: Area::Send, ..range(place, place + 1) };
        let own = Slice::all(Area::Recv, mine.len);
        let scattered = algorithms::scatter(view.inside(), how, layout.place(root), parts, own);
        view.embed_within(&mut schedule, &scattered, data, mine);
    }
    along(&mut schedule, view, Call::Bcast { root: layout.node(root), len: mine.len }, mine, mine);
    gather_parts(&mut schedule, view, data, range);
    schedule
}

/// The ranks of a node allgather `range(place, place + 1)`, which each has in its place of `all`.
fn gather_parts(schedule: &mut Schedule, view: View<'_>, all: Slice, range: impl Fn(u32, u32) -> Slice) {
    let how = super::allgather(&Layout::together(view.layout.most()), all.len);
    let range = |from: u32, to: u32| Slice { area: Area::Recv, ..range(from, to) };
    let own = range(view.place, view.place + 1);
    let part = algorithms::allgather(view.inside(), how, own, range);
    view.embed_within(schedule, &part, all, all);
}

/// The ranks of a node reduce-scatter k parts: this rank's part of the node's result goes to `mine`.
fn divide(schedule: &mut Schedule, view: View<'_>, own: Slice, mine: Slice, vector: Vector, commutes: bool) {
    let many = view.layout.most();
    let how = choose(tables::REDUCE_SCATTER, &Layout::together(many), vector.len());
    let [send, recv] = [(Area::Send, own.len), (Area::Recv, mine.len)].map(|(area, len)| Slice::all(area, len));
    let part = |place: u32| vector.part(place, many);
    let part = algorithms::reduce_scatter(view.inside(), how, send, part, recv, vector.unit, commutes);
    view.embed_within(schedule, &part, own, mine);
}

/// A part of a vector, in the receive buffer.
fn part_of(vector: Vector, place: u32, many: u32) -> (Slice, Vector) {
    let (at, len) = vector.part(place, many);
    (Slice { area: Area::Recv, at, len }, Vector { count: len / vector.unit, unit: vector.unit })
}

/// Each node reduce-scatters k parts, each lane allreduces one, and each node allgathers them.
pub(super) fn allreduce(rank: u32, layout: &Layout, own: Slice, vector: Vector, commutes: bool) -> Schedule {
    let mut schedule = Schedule::default();
    let view = View::new(rank, layout);
    let (mine, part) = part_of(vector, view.place, layout.most());
    divide(&mut schedule, view, own, mine, vector, commutes);
    along(&mut schedule, view, Call::Allreduce { vector: part, commutes, in_place: true }, mine, mine);
    let all = Slice::all(Area::Recv, vector.len());
    gather_parts(&mut schedule, view, all, |from, to| {
        let (start, (last, len)) = (vector.part(from, layout.most()).0, vector.part(to - 1, layout.most()));
        all.part(start, last + len - start)
    });
    schedule
}

/// Each node reduce-scatters k parts, each lane reduces one to the root's node, and the root gathers them.
pub(super) fn reduce(rank: u32, layout: &Layout, root: u32, own: Slice, vector: Vector, commutes: bool) -> Schedule {
    let mut schedule = Schedule::default();
    let view = View::new(rank, layout);
    let (in_result, part) = part_of(vector, view.place, layout.most());
    let mine = if rank == root { in_result } else { schedule.temporary(in_result.len) };
    divide(&mut schedule, view, own, mine, vector, commutes);
    // Ranks whose part is not needed any more combine in place, too.
    let node = layout.node(root);
    let call = Call::Reduce { root: node, vector: part, commutes, in_place: true };
    along(&mut schedule, view, call, mine, mine);
    if view.node == node {
        let how = choose(tables::GATHER, &Layout::together(layout.most()), part_of(vector, 0, layout.most()).0.len);
        let parts = |place: u32| part_of(vector, place, layout.most()).0;
        let own = Slice::all(Area::Send, mine.len);
        let gathered = algorithms::gather(view.inside(), how, layout.place(root), own, parts);
        view.embed_within(&mut schedule, &gathered, mine, Slice::all(Area::Recv, vector.len()));
    }
    schedule
}

/// Each lane allgathers, then each node does. Memory: all blocks.
pub(super) fn allgather(rank: u32, layout: &Layout, own: Slice, block: u64) -> Schedule {
    let mut schedule = Schedule::default();
    let view = View::new(rank, layout);
    let (nodes, many) = (layout.nodes(), layout.most());
    let bytes = |ranks: u32| u64::from(ranks) * block;
    // Lane by lane.
    let all = schedule.temporary(bytes(layout.size()));
    let lane = all.part(bytes(view.place * nodes), bytes(nodes));
    along(&mut schedule, view, Call::Allgather { block, in_place: false }, own, lane);
    view.within(&mut schedule, Call::Allgather { block: bytes(nodes), in_place: true }, all, all);
    for node in 0..nodes {
        for place in 0..many {
            let to = Slice { area: Area::Recv, at: bytes(layout.rank(node, place)), len: block };
            schedule.copy(all.part(bytes(place * nodes + node), block), to);
        }
    }
    schedule
}

/// The ranks of a node exchange what is for each lane, k messages of n blocks; then each lane exchanges what is for each node, n messages
/// of k blocks. Each block travels twice, once within a node. Memory: twice all blocks.
pub(super) fn alltoall(rank: u32, layout: &Layout, block: u64, in_place: bool) -> Schedule {
    let mut schedule = Schedule::default();
    let view = View::new(rank, layout);
    let (nodes, many) = (layout.nodes(), layout.most());
    let nth = |area: Slice, index: u32| area.part(u64::from(index) * block, block);
    let all = u64::from(layout.size()) * block;
    let (send, recv) = (Slice::all(if in_place { Area::Recv } else { Area::Send }, all), Slice::all(Area::Recv, all));
    let (one, two) = (schedule.temporary(all), schedule.temporary(all));
    for place in 0..many {
        for node in 0..nodes {
            schedule.copy(nth(send, layout.rank(node, place)), nth(one, place * nodes + node));
        }
    }
    let call = Call::Alltoall { block: block * u64::from(nodes), in_place: false };
    view.within(&mut schedule, call, one, two);
    for node in 0..nodes {
        for place in 0..many {
            schedule.copy(nth(two, place * nodes + node), nth(one, node * many + place));
        }
    }
    let result = if layout.is_in_order() { recv } else { two };
    let call = Call::Alltoall { block: block * u64::from(many), in_place: false };
    along(&mut schedule, view, call, one, result);
    if result != recv {
        for position in 0..layout.size() {
            schedule.copy(nth(two, position), nth(recv, layout.at(position)));
        }
    }
    schedule
}

/// Each node reduce-scatters what is for each lane, then each lane does what is for each node. Memory: one vector and the part of a lane.
pub(super) fn reduce_scatter(rank: u32, layout: &Layout, own: Slice, block: Vector, commutes: bool) -> Schedule {
    let mut schedule = Schedule::default();
    let view = View::new(rank, layout);
    let nodes = layout.nodes();
    let bytes = |ranks: u32| u64::from(ranks) * block.len();
    // Lane by lane.
    let (all, mine) = (schedule.temporary(own.len), schedule.temporary(bytes(nodes)));
    for place in 0..layout.most() {
        for node in 0..nodes {
            let at = bytes(place * nodes + node);
            schedule.copy(own.part(bytes(layout.rank(node, place)), block.len()), all.part(at, block.len()));
        }
    }
    let of_lane = Vector { count: block.count * u64::from(nodes), unit: block.unit };
    let call = |block| Call::ReduceScatterBlock { block, commutes, in_place: false };
    view.within(&mut schedule, call(of_lane), all, mine);
    along(&mut schedule, view, call(block), mine, Slice::all(Area::Recv, block.len()));
    schedule
}
