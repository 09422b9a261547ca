//! `MPI_Barrier`.

use super::schedule::{Area, Here, Schedule, Slice, multiples_of, powers_of};
use super::tree::Tree;

/// Dissemination: in round `k` each rank tells the ranks rᵏ, 2rᵏ … (r - 1)rᵏ after it that it, and every rank it has heard
/// of, has arrived. ⌈logᵣ n⌉ rounds of at most (r - 1) n empty messages, for radix r.
pub fn dissemination(here: Here, radix: u32) -> Schedule {
    let mut schedule = Schedule::default();
    for power in powers_of(radix, here.size) {
        for distance in multiples_of(power, radix, here.size) {
            schedule.recv_even_none(here.peer(here.back(distance)), NOTHING);
            schedule.send_even_none(here.peer(here.next(distance)), NOTHING);
        }
        schedule.wait();
    }
    schedule
}

/// Every rank tells the root that it has arrived, up a tree. ⌈logᵣ n⌉ rounds, n - 1 empty messages.
pub fn arrive(here: Here, radix: u32) -> Schedule {
    let mut schedule = Schedule::default();
    let tree = Tree::new(here, radix);
    tree.children.iter().for_each(|child| schedule.recv_even_none(here.peer(child.rank), NOTHING));
    schedule.wait();
    if let Some(parent) = tree.parent {
        schedule.send_even_none(here.peer(parent), NOTHING);
    }
    schedule.wait();
    schedule
}

/// The root tells every rank, down a tree. Cost as for [`arrive`].
pub fn release(here: Here, radix: u32) -> Schedule {
    let mut schedule = Schedule::default();
    let tree = Tree::new(here, radix);
    if let Some(parent) = tree.parent {
        schedule.recv_even_none(here.peer(parent), NOTHING);
    }
    schedule.wait();
    tree.children.iter().rev().for_each(|child| schedule.send_even_none(here.peer(child.rank), NOTHING));
    schedule.wait();
    schedule
}

const NOTHING: Slice = Slice::all(Area::Recv, 0);
