//! Lower bounds: no algorithm can be faster on the machine.

use crate::grid::{Cell, Kind};
use crate::machine::{Link, Machine};

/// The larger of the times that the news of one rank takes to reach all, and that a node's port or memory takes for the bytes that
/// it must move.
pub(crate) fn bound(machine: &Machine, cell: &Cell) -> f64 {
    news(machine, cell).max(bytes(machine, cell))
}

/// A rank that knows sends to one rank after the other; so does each that has heard. All ranks of a node know at once.
fn news(machine: &Machine, cell: &Cell) -> f64 {
    let spread = |link: &Link, ranks: u32, senders: u32| {
        let arrival = link.send + link.latency + link.recv;
        // `known[t]`: after t sends of one core.
        let mut known = vec![1_u64];
        let delay = (arrival / link.send) as usize;
        while known[known.len() - 1] < u64::from(ranks) {
            let senders = known.len().checked_sub(delay).map_or(0, |then| known[then] * u64::from(senders));
            known.push(known[known.len() - 1] + senders);
        }
        (known.len() - 1) as f64 * link.send
    };
    if cell.nodes > 1 { spread(&machine.outside, cell.nodes, cell.each) } else { spread(&machine.inside, cell.each, 1) }
}

fn bytes(machine: &Machine, cell: &Cell) -> f64 {
    let (nodes, each, len) = (f64::from(cell.nodes), f64::from(cell.each), cell.bytes as f64);
    let others = nodes * each - each;
    // Through the ports of the busiest node, in one direction; through its memory, at least to where the results lie.
    let (through, stored) = match cell.kind {
        Kind::Barrier => (0.0, 0.0),
        Kind::Bcast => (len, len * (each - 1.0)),
        Kind::Reduce => (len, len),
        Kind::Scan | Kind::Exscan => (len, len * each),
        Kind::Gather | Kind::Scatter => (len * others, len * (nodes * each - 1.0)),
        Kind::Allgather => (len * others, len * (nodes * each - 1.0) * each),
        Kind::Alltoall => (len * others * each, len * (nodes * each - 1.0) * each),
        Kind::Allreduce => (2.0 * len * (nodes - 1.0) / nodes, len * each),
        Kind::ReduceScatter => (len * (nodes - 1.0) / nodes, len),
    };
    let wire = if cell.nodes > 1 { through / (machine.port * machine.ports as f64) } else { 0.0 };
    wire.max(stored / machine.memory)
}
