//! Neighbourhood collectives: each rank exchanges blocks with its neighbours alone (MPI 5.0 §8.6).

use super::schedule::{Schedule, Slice};

/// Every block travels directly, all at once. One round; each block is sent once. Blocks between the same two ranks arrive in the order
/// in which they are sent, and what a rank sends to itself is copied in that order. Returns also the lengths of the first block that
/// does not fit where this rank receives it from itself.
pub fn exchange(me: u32, to: &[(u32, Slice)], from: &[(u32, Slice)]) -> (Schedule, Option<(u64, u64)>) {
    let mut schedule = Schedule::default();
    for (source, into) in from.iter().filter(|(source, _)| *source != me) {
        schedule.recv(*source, *into);
    }
    for (destination, block) in to.iter().filter(|(destination, _)| *destination != me) {
        schedule.send(*destination, *block);
    }
    let own = |all: &[(u32, Slice)]| -> Vec<Slice> {
        all.iter().filter(|(rank, _)| *rank == me).map(|(_, slice)| *slice).collect()
    };
    let mut excess = None;
    for (block, into) in own(to).into_iter().zip(own(from)) {
        if block.len > into.len {
            excess.get_or_insert((block.len, into.len));
        }
        schedule.copy(block, into);
    }
    schedule.wait();
    (schedule, excess)
}

#[cfg(test)]
mod tests {
    use super::super::schedule::{Action, Area};
    use super::*;

    #[test]
    fn a_rank_copies_its_own_blocks_in_order_and_sends_the_others() {
        let slice = |area, at| Slice { area, at, len: 4 };
        let to: Vec<_> = [1, 0, 0].into_iter().zip([0, 4, 8]).map(|(rank, at)| (rank, slice(Area::Send, at))).collect();
        let from: Vec<_> =
            [0, 1, 0].into_iter().zip([0, 4, 8]).map(|(rank, at)| (rank, slice(Area::Recv, at))).collect();
        let (schedule, excess) = exchange(0, &to, &from);
        assert_eq!(excess, None);
        assert_eq!(
            schedule.actions(),
            [
                Action::Recv { from: 1, into: slice(Area::Recv, 4) },
                Action::Send { to: 1, from: slice(Area::Send, 0) },
                Action::Copy { from: slice(Area::Send, 4), to: slice(Area::Recv, 0) },
                Action::Copy { from: slice(Area::Send, 8), to: slice(Area::Recv, 8) },
                Action::Wait,
            ]
        );
        let shorter = [(0, Slice { len: 3, ..slice(Area::Recv, 0) })];
        assert_eq!(exchange(0, &to[1..2], &shorter).1, Some((4, 3)));
    }
}
