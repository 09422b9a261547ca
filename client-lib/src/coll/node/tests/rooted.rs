//! Gathers, reduces and broadcasts of long blocks, which go through slots or are read from memory, whichever is faster.

use super::super::way::{CLASSES, class};
use super::pulls::pull;
use super::*;

/// The kinds of calls of [`rooted`].
const KINDS: u64 = 3;

/// A gather, a reduce or a broadcast of 20,000 bytes: the call, the data sent, the content of the result before and after.
fn rooted(kind: u64, root: u32, in_place: bool, me: u32, size: u32) -> (Call, Vec<u32>, Vec<u32>, Vec<u32>) {
    const COUNT: u64 = 5_000;
    let (block, is_root) = (4 * COUNT, me == root);
    let (own, in_place) = (words(kind, me, 0, COUNT), in_place && is_root);
    let of_root = |data: Vec<u32>| if is_root { data } else { vec![] };
    match kind {
        0 => {
            let data = words(kind, root, 0, COUNT);
            let before = if is_root { data.clone() } else { vec![0; data.len()] };
            (Call::Bcast { root, len: block }, vec![], before, data)
        }
        1 => {
            let mut before = of_root(vec![0; (COUNT * u64::from(size)) as usize]);
            if in_place {
                before[me as usize * own.len()..][..own.len()].copy_from_slice(&own);
            }
            let after = (0..size).flat_map(|rank| words(kind, rank, 0, COUNT)).collect();
            (Call::Gather { root, block, in_place }, if in_place { vec![] } else { own }, before, of_root(after))
        }
        _ => {
            let call = Call::Reduce { root, vector: Vector { count: COUNT, unit: 4 }, commutes: true, in_place };
            let after = of_root(sums(kind, 0..size, COUNT));
            match in_place {
                true => (call, vec![], own, after),
                false => (call, own, of_root(vec![0; COUNT as usize]), after),
            }
        }
    }
}

fn operands(send: &mut [u32], recv: &mut [u32]) -> Operands {
    Operands { send: lend(send), recv: lend(recv), ..Operands::default() }
}

#[test]
fn blocks_are_read_at_or_from_the_root() {
    for members in [3, 5] {
        together(members, |node| {
            for round in 0..4 * KINDS {
                let (kind, root, in_place) = (round % KINDS, round as u32 % members, round < 2 * KINDS);
                let (call, mut send, mut recv, after) = rooted(kind, root, in_place, node.rank, members);
                let sent = send.clone();
                assert_eq!(pull(call, &operands(&mut send, &mut recv), node), Ok(true), "{call:?}");
                assert!((recv, send) == (after, sent), "{call:?} on {} of {members}", node.rank);
            }
        });
    }
}

#[test]
fn if_a_member_cannot_read_all_discard_their_results_and_no_data_is_lost() {
    for (members, hidden) in [(3, 0), (3, 1), (5, 4)] {
        together(members, |node| {
            if node.rank == hidden {
                // As it would be in another pid namespace: here the number belongs to a different process.
                node.pid = std::os::unix::process::parent_id();
            }
            for (kind, in_place) in [(0, false), (1, false), (1, true), (2, false), (2, true)] {
                // Of a broadcast, only the root's memory is read, and of a gather or reduce, only the others'.
                let root = if kind == 0 { hidden } else { (hidden + 1) % members };
                let (call, mut send, mut recv, _) = rooted(kind, root, in_place, node.rank, members);
                let before = (send.clone(), recv.clone());
                assert_eq!(pull(call, &operands(&mut send, &mut recv), node), Ok(false), "{call:?}");
                // What the root gets may be anything, but what it has in its place is still there.
                let kept = match kind {
                    1 | 2 if node.rank == root && !in_place => 0..0,
                    1 if node.rank == root => {
                        let block = recv.len() / members as usize;
                        root as usize * block..(root as usize + 1) * block
                    }
                    _ => 0..recv.len(),
                };
                let is_kept = send == before.0 && recv[kept.clone()] == before.1[kept];
                assert!(is_kept, "{call:?} on {} of {members}", node.rank);
            }
        });
    }
}

#[test]
fn a_different_call_is_noticed_by_all_and_the_next_call_succeeds() {
    let members = 3;
    together(members, |node| {
        for kind in 0..KINDS {
            // One member names another root.
            let root = u32::from(node.rank == 2);
            let (call, mut send, mut recv, _) = rooted(kind, root, false, node.rank, members);
            assert!(pull(call, &operands(&mut send, &mut recv), node).is_err(), "{call:?}");
            let (call, mut send, mut recv, after) = rooted(kind, 1, false, node.rank, members);
            assert_eq!(pull(call, &operands(&mut send, &mut recv), node), Ok(true), "{call:?}");
            assert!(recv == after, "{call:?}");
        }
    });
}

#[test]
fn all_members_go_the_same_way_and_both_are_tried() {
    let room = 64 << 10;
    for (members, slot) in [(3, room), (5, room), (3, SLOT)] {
        let (ways, _) = together_with(slot, members, |node| {
            node.pull(true);
            let sum = sum();
            let mut ways = Vec::new();
            for round in 0..120 * KINDS {
                // For each root, its calls find out by themselves.
                let (kind, root) = (round % KINDS, (round / 7) as u32 % members);
                let (call, mut send, mut recv, after) = rooted(kind, root, round % 2 == 0, node.rank, members);
                let operands = operands(&mut send, &mut recv);
                let way = way(call, members, slot, node.pulls(), node.faster(call), Some(&sum), true).unwrap();
                node.measured(call, way, |node| match way {
                    Way::Slots => {
                        let mut work = Work::new(call, &operands, Some(&sum), None, node.shape());
                        assert_eq!(wait(&mut work, node), Ok(()), "{call:?}");
                    }
                    Way::Pull => assert_eq!(pull(call, &operands, node), Ok(true), "{call:?}"),
                });
                assert!(recv == after, "{call:?} {way:?} on {} of {members}", node.rank);
                ways.push((kind, way));
            }
            ways
        });
        assert!(ways.iter().all(|other| *other == ways[0]));
        for kind in 0..KINDS {
            let of_kind = |way| ways[0].iter().filter(|it| **it == (kind, way)).count();
            assert!(of_kind(Way::Slots) >= 4 && of_kind(Way::Pull) >= 4, "both are tried: kind {kind} of {members}");
        }
    }
}

#[test]
fn few_calls_wait_for_all_once_both_ways_have_been_tried() {
    const GATHER: Call = Call::Gather { root: 0, block: 20_000, in_place: false };
    let (ways, _) = together_with(64 << 10, 3, |node| {
        node.pull(true);
        let class = class(GATHER, 3).unwrap();
        assert!((0..100).all(|number| node.is_due(number, GATHER, class)));
        for _ in 0..100 {
            let (call, mut send, mut recv, _) = rooted(1, 0, false, node.rank, 3);
            let operands = operands(&mut send, &mut recv);
            let way = way(call, 3, 64 << 10, true, node.faster(call), None, true).unwrap();
            node.measured(call, way, |node| match way {
                Way::Slots => assert_eq!(wait(&mut Work::new(call, &operands, None, None, node.shape()), node), Ok(())),
                Way::Pull => assert_eq!(pull(call, &operands, node), Ok(true)),
            });
        }
        // Also at every second operation: there may be a barrier between two calls.
        [1, 2].map(|step| (0..4096).step_by(step).filter(|number| node.is_due(*number, GATHER, class)).count() * step)
    });
    assert!(ways.iter().flatten().all(|due| (90..170).contains(due)), "{ways:?}");
}

#[test]
fn a_reduce_that_slots_cannot_combine_is_not_read_either() {
    let reduce = |len: u64| Call::Reduce {
        root: 0,
        vector: Vector { count: len / 4, unit: 4 },
        commutes: true,
        in_place: false,
    };
    let (sum, all_faster) = (sum(), u32::MAX);
    let way = |call, size, faster, reduction, is_dense| way(call, size, 64 << 10, true, faster, reduction, is_dense);
    assert_eq!(way(reduce(20_000), 3, all_faster, Some(&sum), true), Some(Way::Pull));
    assert_eq!(way(reduce(20_000), 3, 0, Some(&sum), true), Some(Way::Slots));
    assert_eq!(way(reduce(20_000), 3, all_faster, None, true), None);
    assert_eq!(way(reduce(20_000), 3, all_faster, Some(&sum), false), None);
    // Of two members, they are messages, and shorter ones are never worth it.
    assert_eq!(way(reduce(20_000), 2, all_faster, Some(&sum), true), None);
    assert_eq!(way(reduce(16_380), 3, all_faster, Some(&sum), true), Some(Way::Slots));
}

#[test]
fn rooted_calls_have_classes_by_their_lengths() {
    let gather = |block| class(Call::Gather { root: 0, block, in_place: false }, 3);
    let bcast = |len| class(Call::Bcast { root: 0, len }, 3);
    const KIB: u64 = 1 << 10;
    let lengths = [16 * KIB - 1, 16 * KIB, 64 * KIB - 1, 64 * KIB, 256 * KIB, 1024 * KIB, 4096 * KIB, 4096 * KIB + 1];
    let first = gather(16 * KIB).unwrap();
    let of = |steps: [Option<u32>; 8], first: u32| steps.map(|step| step.map(|step| first + step));
    let gathers = [None, Some(0), Some(1), Some(2), Some(4), Some(6), Some(8), None];
    assert_eq!(lengths.map(gather), of(gathers, first));
    let bcasts = [None, Some(0), Some(1), Some(2), Some(4), Some(6), None, None];
    assert_eq!(lengths.map(bcast), of(bcasts, bcast(16 * KIB).unwrap()));
    let reduce =
        |len| Call::Reduce { root: 0, vector: Vector { count: len, unit: 1 }, commutes: true, in_place: false };
    assert_eq!(class(reduce(16 << 20), 3), class(reduce(4096 * KIB), 3));
    assert_eq!(class(reduce((16 << 20) + 1), 3), None);
    assert!(class(reduce(4096 * KIB), 3) < bcast(16 * KIB) && gather(4096 * KIB) < class(reduce(16 * KIB), 3));
    assert_eq!(bcast(1024 * KIB), Some(CLASSES as u32 - 1));
}
