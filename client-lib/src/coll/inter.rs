//! Collectives of two groups, in which the data of each group goes to the other group (MPI 5.0 §6.2.3).
//!
//! Messages travel in the *union* of both groups, one group after the other, so a schedule uses ranks of the union. The part
//! that stays within a group is that group's intracommunicator schedule, embedded. A barrier is a barrier of the union. Which ranks share a
//! node is not considered.

use super::choice::Call;
use super::gather;
use super::halving::Vector;
use super::layout::Layout;
use super::schedule::{Area, Here, Schedule, Slice};

/// The process that a schedule is for, and the two groups.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Sides {
    /// This process's rank in its group.
    pub rank: u32,
    /// The size of its group.
    pub local: u32,
    /// The size of the other group.
    pub remote: u32,
    /// Whether its group comes first in the union.
    pub local_first: bool,
}

/// Where the root of a rooted operation is, from one process's view.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Root {
    /// This process (`MPI_ROOT`).
    This,
    /// Another process of this group: this process has nothing to do (`MPI_PROC_NULL`).
    Beside,
    /// This rank of the other group.
    Remote(u32),
}

impl Sides {
    /// The rank in the union of a process of this group.
    fn local_rank(self, rank: u32) -> u32 {
        if self.local_first { rank } else { self.remote + rank }
    }

    /// The rank in the union of a process of the other group.
    fn remote_rank(self, rank: u32) -> u32 {
        if self.local_first { self.local + rank } else { rank }
    }

    fn within(self) -> Here {
        Here::new(self.rank, self.local)
    }
}

/// `MPI_Bcast` of [`Area::Recv`], as if the root and the other group formed one communicator: ⌈log₂(n + 1)⌉ rounds for
/// short data and a group of n.
pub fn bcast(sides: Sides, root: Root, len: u64) -> Schedule {
    let mut schedule = Schedule::default();
    let call = Call::Bcast { root: 0, len };
    match root {
        Root::This => {
            let all = call.schedule(Here::new(0, sides.remote + 1), &Layout::apart(sides.remote + 1));
            schedule.embed(&all, |rank| sides.remote_rank(rank.saturating_sub(1)), |area| Slice::all(area, len));
        }
        Root::Remote(root) => {
            let all = call.schedule(Here::new(sides.rank + 1, sides.local + 1), &Layout::apart(sides.local + 1));
            let rank = |rank: u32| if rank == 0 { sides.remote_rank(root) } else { sides.local_rank(rank - 1) };
            schedule.embed(&all, rank, |area| Slice::all(area, len));
        }
        Root::Beside => {}
    }
    schedule
}

/// `MPI_Gather`, `MPI_Gatherv`: every process of the other group sends to the root. One round, n messages.
pub fn gather(sides: Sides, root: Root, own: Slice, from: impl Fn(u32) -> Slice) -> Schedule {
    let mut schedule = Schedule::default();
    match root {
        Root::This => (0..sides.remote).for_each(|rank| schedule.recv_even_none(sides.remote_rank(rank), from(rank))),
        Root::Remote(root) => schedule.send_even_none(sides.remote_rank(root), own),
        Root::Beside => {}
    }
    schedule.wait();
    schedule
}

/// `MPI_Scatter`, `MPI_Scatterv`: the root sends to every process of the other group. One round, n messages.
pub fn scatter(sides: Sides, root: Root, to: impl Fn(u32) -> Slice, own: Slice) -> Schedule {
    let mut schedule = Schedule::default();
    match root {
        Root::This => (0..sides.remote).for_each(|rank| schedule.send_even_none(sides.remote_rank(rank), to(rank))),
        Root::Remote(root) => schedule.recv_even_none(sides.remote_rank(root), own),
        Root::Beside => {}
    }
    schedule.wait();
    schedule
}

/// `MPI_Allgather` and `MPI_Alltoall` in all their forms: each process of one group exchanges with each of the other.
/// max(m, n) rounds, with `window` of them in flight at a time; in each round a process exchanges with one other
/// process or idles.
pub fn exchange(sides: Sides, window: u32, to: impl Fn(u32) -> Slice, from: impl Fn(u32) -> Slice) -> Schedule {
    let mut schedule = Schedule::default();
    let rounds = sides.local.max(sides.remote);
    for round in 0..rounds {
        // One side counts up and the other down, so that partners meet in the same round.
        let steps = if sides.local_first { round } else { rounds - round };
        let partner = (sides.rank + steps) % rounds;
        if partner < sides.remote {
            schedule.recv(sides.remote_rank(partner), from(partner));
            schedule.send(sides.remote_rank(partner), to(partner));
        }
        if (round + 1) % window == 0 {
            schedule.wait();
        }
    }
    schedule.wait();
    schedule
}

/// `MPI_Reduce`: the other group reduces to its first rank, which sends the result to the root. Cost: a reduction and
/// one message. Memory: one additional vector.
pub fn reduce(sides: Sides, root: Root, vector: Vector, commutes: bool) -> Schedule {
    let mut schedule = Schedule::default();
    if vector.is_empty() {
        return schedule;
    }
    match root {
        Root::This => schedule.recv(sides.remote_rank(0), Slice::all(Area::Recv, vector.len())),
        Root::Remote(root) => {
            let result = reduce_to_first(&mut schedule, sides, vector, commutes);
            if sides.rank == 0 {
                schedule.send(sides.remote_rank(root), result);
            }
        }
        Root::Beside => {}
    }
    schedule.wait();
    schedule
}

/// `MPI_Allreduce`: both groups reduce to their first ranks, which exchange the results and broadcast them in their
/// groups. Cost: a reduction, one message and a broadcast. Memory: one additional vector at the first ranks.
pub fn allreduce(sides: Sides, vector: Vector, commutes: bool) -> Schedule {
    let mut schedule = Schedule::default();
    if vector.is_empty() {
        return schedule;
    }
    let recv = Slice::all(Area::Recv, vector.len());
    let sums = reduce_to_first(&mut schedule, sides, vector, commutes);
    swap(&mut schedule, sides, sums, recv);
    let broadcast = Call::Bcast { root: 0, len: vector.len() }.schedule(sides.within(), &Layout::apart(sides.local));
    schedule.embed(&broadcast, |rank| sides.local_rank(rank), |_| recv);
    schedule
}

/// `MPI_Reduce_scatter`, `MPI_Reduce_scatter_block`: both groups reduce to their first ranks, which exchange the
/// results and scatter them; `part(rank)` is the (offset, length) for each rank of this group. Cost: a reduction, and
/// two rounds in which the first rank sends all bytes. Memory: two additional vectors at the first ranks.
pub fn reduce_scatter(sides: Sides, vector: Vector, part: impl Fn(u32) -> (u64, u64), commutes: bool) -> Schedule {
    let mut schedule = Schedule::default();
    if vector.is_empty() {
        return schedule;
    }
    let sums = reduce_to_first(&mut schedule, sides, vector, commutes);
    let theirs = if sides.rank == 0 { schedule.temporary(vector.len()) } else { sums };
    swap(&mut schedule, sides, sums, theirs);
    let to = |rank: u32| {
        let (at, len) = part(rank);
        Slice { area: Area::Send, at, len }
    };
    let scattered = gather::linear_scatter(sides.within(), 0, to, Slice::all(Area::Recv, part(sides.rank).1));
    let place = |area: Area| if area == Area::Send { theirs } else { Slice::all(area, vector.len()) };
    schedule.embed(&scattered, |rank| sides.local_rank(rank), place);
    schedule
}

/// Reduces the vectors of this group to its first rank; returns the slice that holds the result there.
fn reduce_to_first(schedule: &mut Schedule, sides: Sides, vector: Vector, commutes: bool) -> Slice {
    let result = match sides.rank {
        0 => schedule.temporary(vector.len()),
        _ => Slice::all(Area::Recv, 0),
    };
    let reduced = Call::Reduce { root: 0, vector, commutes, in_place: false }
        .schedule(sides.within(), &Layout::apart(sides.local));
    let place = |area: Area| if area == Area::Recv { result } else { Slice::all(area, vector.len()) };
    schedule.embed(&reduced, |rank| sides.local_rank(rank), place);
    result
}

/// The first ranks of both groups exchange their vectors.
fn swap(schedule: &mut Schedule, sides: Sides, mine: Slice, theirs: Slice) {
    if sides.rank == 0 {
        schedule.recv(sides.remote_rank(0), theirs);
        schedule.send(sides.remote_rank(0), mine);
        schedule.wait();
    }
}
