//! What must hold of the costs. Times depend on the machine and are not checked.

use crate::dvm::RANKS;
use crate::meter::Cost;
use crate::phases::PHASES;

/// The most memory of the head for each node: its description and marks, and its part of the job. What its ranks have put comes in addition.
const HEAD_BYTES_PER_NODE: u64 = 10_000;
/// What one rank puts before the fence of the table: 100 bytes, a key, and what surrounds them; in a message, and in the memory of a step.
const PUT_BYTES: u64 = 130;
const PUT_BYTES_KEPT: u64 = 190;
/// The part of the puts that a daemon below the head may have: it has 32 siblings. The launch and the tree come in addition.
const ARITY: u64 = 32;
const INNER_BYTES: u64 = 16 << 20;
/// The largest result that goes to all nodes, and what a daemon keeps of larger ones that pass through it.
const REPLICATED_MAX: u64 = 2 << 20;
const CACHED_MAX: u64 = 32 << 20;
/// The most memory of a daemon without children: the launch as it passes, the map of the job, and what a fence takes to all nodes.
const LEAF_BYTES: u64 = 10 << 20;

/// Returns what does not hold.
pub(crate) fn exceeded(sizes: &[usize], runs: &[Vec<Cost>]) -> Vec<String> {
    let mut wrong = Vec::new();
    for (nodes, costs) in sizes.iter().zip(runs) {
        for (phase, cost) in PHASES.iter().zip(costs) {
            let mut check = |what: &str, is: u64, most: u64| {
                if is > most {
                    wrong.push(format!("{phase} with {nodes} nodes: {what}: {is}, at most {most} expected"));
                }
            };
            check_phase(phase, *nodes as u64, cost, &mut check);
        }
    }
    wrong
}

fn check_phase(phase: &str, nodes: u64, cost: &Cost, check: &mut impl FnMut(&str, u64, u64)) {
    let edges = nodes - 1;
    // The distance of the farthest node, in a tree of which each node has 32 children.
    let mut depth = 0;
    let mut reached = 1;
    while reached < nodes {
        depth += 1;
        reached += ARITY.pow(depth);
    }
    let (down, up) = (u64::from(depth), u64::from(depth));
    // What one node puts, what all nodes below a child of the head put, and all nodes; and what of it goes to all nodes.
    let put = u64::from(RANKS) * PUT_BYTES;
    let puts_of_child = (0..depth).map(|level| ARITY.pow(level)).sum::<u64>() * put;
    let puts = nodes * put;
    let is_held = puts > REPLICATED_MAX;
    let replicated = if is_held { 0 } else { puts };
    let Cost { rounds, messages, bytes, largest, at_head, memory, .. } = cost;
    let bytes = *bytes;
    let rounds = u64::from(*rounds);
    match phase {
        // A hello to the head, its redirection, a hello to the parent, its welcome with the list of ancestors; and a report to the head.
        "formation" => check("messages", *messages, edges * (5 + up)),
        // With the addresses of its ranks.
        "launch" | "exit" | "fence, 0 bytes" | "loads of all nodes" => {
            check("messages", *messages, 2 * edges);
            check("rounds", rounds, down + up);
            check("messages of the head", *at_head, 2 * ARITY);
        }
        "fence, 100 bytes a rank" => {
            check("messages", *messages, 2 * edges);
            check("messages of the head", *at_head, 2 * ARITY);
            check("largest message", *largest, if is_held { puts_of_child } else { puts });
            check("bytes", bytes, up * puts + nodes * replicated);
        }
        // Each node fetches from six others, over as many links as it is far from the head.
        "gets of 8 keys by each rank" if is_held => {
            check("messages", *messages, 6 * nodes * (up + down));
            check("bytes", bytes, 6 * nodes * down * (put + 100));
            check("largest message", *largest, 2 * put);
        }
        "gets of rank 0's key" if is_held => {
            check("messages", *messages, 2 * edges);
            check("rounds", rounds, up + down);
            check("bytes", bytes, edges * (put + 100));
            check("messages of the head", *at_head, 2 * ARITY);
        }
        "gets of all keys by one node" if is_held => {
            // A quarter more each time, up to 4 MiB; what is read ahead for one rank may be under way for another.
            check("rounds", rounds, (up + down) * 50);
            check("messages", *messages, (up + down) * 500);
            check("bytes", bytes, down * puts * 3 / 2);
        }
        "one get after it" if is_held => {
            // The request and its answer, and the collection.
            check("messages", *messages, 2 * edges + up + down);
            check("rounds", rounds, 2 * (up + down));
            check("bytes", bytes, up * puts + 100 * nodes);
            check("messages of the head", *at_head, 2 * ARITY + 2);
        }
        "gets of 8 keys by each rank"
        | "gets of rank 0's key"
        | "gets of all keys by one node"
        | "one get after it" => check("messages", *messages, 0),
        "restart of the head" => {
            check("largest message", *largest, (replicated + nodes * 10).max(nodes * 200));
            check("messages", *messages, edges * (8 + 2 * up));
            // Each node sends the map of the job, and no node gets the launch again.
            check("bytes", bytes, nodes * (3 * nodes + 12_000) + replicated);
        }
        "cancel" | "loss of a node" => {
            // The order, one report of all ends, and the release.
            check("messages", *messages, 3 * edges + 2 * up);
            check("rounds", rounds, 3 * down + 1);
            check("bytes", bytes, 500 * nodes);
            check("bytes written", cost.written, 100 * nodes + 20_000);
        }
        // It runs on the head's node.
        "a job of one rank" => {
            check("messages", *messages, 0);
            check("bytes written", cost.written, 2_000);
        }
        "loss, the job continues" => check("messages", *messages, edges + up),
        other => unreachable!("no bounds for {other}"),
    }
    let (of_head, of_inner, of_leaf) = match phase {
        "formation" | "launch" | "fence, 0 bytes" => (0, 0, 0),
        // While contributions are merged, they are here twice.
        _ if is_held => (2 * puts, CACHED_MAX + 2 * puts_of_child, 0),
        _ => {
            let kept = 4 * nodes * u64::from(RANKS) * PUT_BYTES_KEPT;
            (kept, kept, kept)
        }
    };
    check("memory of the head", memory[0], nodes * HEAD_BYTES_PER_NODE + of_head + INNER_BYTES);
    check("memory of an inner node", memory[1], of_inner + INNER_BYTES);
    check("memory of a leaf", memory[2], of_leaf + LEAF_BYTES);
}
