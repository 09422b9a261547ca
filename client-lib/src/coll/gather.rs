//! `MPI_Gather`, `MPI_Gatherv`, `MPI_Scatter` and `MPI_Scatterv`.

use super::schedule::{Here, Schedule, Slice};
use super::tree::{Child, Tree};

/// K-nomial tree: each rank collects the blocks of its subtree and sends them to its parent. `own` is this rank's block;
/// `place(rank)` is where the block of each rank of the communicator goes at the root; all ranks know the lengths. `here` is
/// counted from the root.
///
/// ⌈logᵣ n⌉ rounds for radix r, n - 1 messages, more where what the root gets from one child lies in two pieces; each block travels
/// up to ⌈logᵣ n⌉ times. Memory: what the largest child of the root collects; also at the root if it lies in many pieces.
pub fn tree_gather(here: Here, radix: u32, own: Slice, place: impl Fn(u32) -> Slice) -> Schedule {
    let mut schedule = Schedule::default();
    let tree = Tree::new(here, radix);
    let blocks = |from: u32, many: u32| (from..from + many).map(|rank| place(here.peer(rank))).map(|it| it.len).sum();
    let Some(parent) = tree.parent else {
        schedule.copy(own, place(here.peer(0)));
        let mut parcels = Vec::new();
        for child in &tree.children {
            let pieces = pieces(here, *child, &place);
            if pieces.len() > PIECES {
                let parcel = schedule.temporary(pieces.iter().map(|piece| piece.len).sum());
                schedule.recv(here.peer(child.rank), parcel);
                parcels.push((parcel, pieces));
            } else {
                pieces.iter().for_each(|piece| schedule.recv(here.peer(child.rank), *piece));
            }
        }
        schedule.wait();
        for (parcel, pieces) in parcels {
            in_turn(parcel, &pieces).for_each(|(part, piece)| schedule.copy(part, piece));
        }
        return schedule;
    };
    let mut gathered = own;
    if !tree.children.is_empty() {
        gathered = schedule.temporary(blocks(here.rank, tree.many));
        schedule.copy(own, gathered.part(0, own.len));
        for child in &tree.children {
            let at = blocks(here.rank, child.rank - here.rank);
            schedule.recv(here.peer(child.rank), gathered.part(at, blocks(child.rank, child.many)));
        }
        schedule.wait();
    }
    let pieces =
        if parent == 0 { pieces(here, Child { rank: here.rank, many: tree.many }, &place) } else { Vec::new() };
    if (1..=PIECES).contains(&pieces.len()) {
        in_turn(gathered, &pieces).for_each(|(part, _)| schedule.send(here.peer(0), part));
    } else {
        schedule.send(here.peer(parent), gathered);
    }
    schedule.wait();
    schedule
}

/// The reverse: each rank receives the blocks of its subtree and sends each child its blocks. Cost as for [`tree_gather`].
pub fn tree_scatter(here: Here, radix: u32, place: impl Fn(u32) -> Slice, own: Slice) -> Schedule {
    let mut schedule = Schedule::default();
    let tree = Tree::new(here, radix);
    let blocks = |from: u32, many: u32| (from..from + many).map(|rank| place(here.peer(rank))).map(|it| it.len).sum();
    let Some(parent) = tree.parent else {
        for child in tree.children.iter().rev() {
            let pieces = pieces(here, *child, &place);
            if pieces.len() > PIECES {
                let parcel = schedule.temporary(pieces.iter().map(|piece| piece.len).sum());
                in_turn(parcel, &pieces).for_each(|(part, piece)| schedule.copy(piece, part));
                schedule.send(here.peer(child.rank), parcel);
            } else {
                pieces.iter().for_each(|piece| schedule.send(here.peer(child.rank), *piece));
            }
        }
        schedule.copy(place(here.peer(0)), own);
        schedule.wait();
        return schedule;
    };
    let got = if tree.children.is_empty() { own } else { schedule.temporary(blocks(here.rank, tree.many)) };
    let pieces =
        if parent == 0 { pieces(here, Child { rank: here.rank, many: tree.many }, &place) } else { Vec::new() };
    if (1..=PIECES).contains(&pieces.len()) {
        in_turn(got, &pieces).for_each(|(part, _)| schedule.recv(here.peer(0), part));
    } else {
        schedule.recv(here.peer(parent), got);
    }
    schedule.wait();
    for child in tree.children.iter().rev() {
        let at = blocks(here.rank, child.rank - here.rank);
        schedule.send(here.peer(child.rank), got.part(at, blocks(child.rank, child.many)));
    }
    schedule.copy(got.part(0, own.len), own);
    schedule.wait();
    schedule
}

/// Every rank sends to the root: one round, n - 1 messages, each block travels once. A rank without data sends an empty
/// message.
pub fn linear_gather(here: Here, root: u32, own: Slice, from: impl Fn(u32) -> Slice) -> Schedule {
    let mut schedule = Schedule::default();
    if here.rank == root {
        for rank in (0..here.size).filter(|rank| *rank != root) {
            schedule.recv_even_none(rank, from(rank));
        }
        schedule.copy(own, from(root));
    } else {
        schedule.send_even_none(root, own);
    }
    schedule.wait();
    schedule
}

/// The root sends to every rank: one round, n - 1 messages, each block travels once.
pub fn linear_scatter(here: Here, root: u32, to: impl Fn(u32) -> Slice, own: Slice) -> Schedule {
    let mut schedule = Schedule::default();
    if here.rank == root {
        for distance in 1..here.size {
            let rank = here.next(distance);
            schedule.send_even_none(rank, to(rank));
        }
        schedule.copy(to(root), own);
    } else {
        schedule.recv_even_none(root, own);
    }
    schedule.wait();
    schedule
}

/// What lies at the root in more pieces than this is copied there.
const PIECES: usize = 2;

/// Where the blocks of a subtree lie at the root, in order: several that lie one after the other are one piece. There are two if
/// the root is not rank 0 and the subtree wraps round.
fn pieces(here: Here, child: Child, place: &impl Fn(u32) -> Slice) -> Vec<Slice> {
    let mut pieces: Vec<Slice> = Vec::new();
    for slice in (child.rank..child.rank + child.many).map(|rank| place(here.peer(rank))).filter(|it| it.len > 0) {
        match pieces.last_mut() {
            Some(last) if last.area == slice.area && last.at + last.len == slice.at => last.len += slice.len,
            Some(_) | None => pieces.push(slice),
        }
    }
    pieces
}

/// The pieces, each with its part of a parcel that has all of them in order.
fn in_turn(parcel: Slice, pieces: &[Slice]) -> impl Iterator<Item = (Slice, Slice)> {
    pieces.iter().scan(0, move |end, piece| {
        let part = parcel.part(*end, piece.len);
        *end += piece.len;
        Some((part, *piece))
    })
}
