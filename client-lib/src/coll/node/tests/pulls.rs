//! Long blocks that are read from the memory of their owners, and which ones are.

use super::super::way::uneven as longest;
use super::*;
use crate::datatype::Layout;

/// An alltoall or allgather of 5,000 words per block: the call, the data sent, the content of the result before and
/// after.
fn long_call(kind: u64, in_place: bool, me: u32, size: u32) -> (Call, Vec<u32>, Vec<u32>, Vec<u32>) {
    const COUNT: u64 = 5_000;
    let block = 4 * COUNT;
    if kind == 0 {
        let send: Vec<u32> = (0..size).flat_map(|to| words(7, me, to, COUNT)).collect();
        let after: Vec<u32> = (0..size).flat_map(|from| words(7, from, me, COUNT)).collect();
        let before = if in_place { send.clone() } else { vec![0; after.len()] };
        return (Call::Alltoall { block, in_place }, if in_place { vec![] } else { send }, before, after);
    }
    let own = words(9, me, 0, COUNT);
    let after: Vec<u32> = (0..size).flat_map(|from| words(9, from, 0, COUNT)).collect();
    let mut before = vec![0; after.len()];
    if in_place {
        before[me as usize * own.len()..][..own.len()].copy_from_slice(&own);
    }
    (Call::Allgather { block, in_place }, if in_place { vec![] } else { own }, before, after)
}

pub(super) fn pull(call: Call, operands: &Operands, node: &mut Node) -> MpiResult<bool> {
    let sum = sum();
    let mut pull = Pull::new(call, operands, Some(&sum), None);
    until(|| pull.poll(node))
}

#[test]
fn long_blocks_are_read_from_the_owners_memory() {
    for members in [2, 3, 5] {
        together(members, |node| {
            for (kind, in_place) in [(0, false), (1, false), (0, true), (1, true), (0, false)] {
                let (call, mut send, mut recv, after) = long_call(kind, in_place, node.rank, members);
                let operands = Operands { send: lend(&mut send), recv: lend(&mut recv), ..Operands::default() };
                assert_eq!(pull(call, &operands, node), Ok(true), "{call:?}");
                assert!(recv == after, "{call:?} on {} of {members}", node.rank);
            }
        });
    }
}

#[test]
fn blocks_are_combined_as_they_are_read() {
    // Longer than the piece that is read at a time.
    const LONG: usize = 100_000;
    for members in [2, 3, 5] {
        together(members, |node| {
            let sum = sum();
            for (operation, in_place) in [(1, false), (2, true), (3, false), (4, true)] {
                // Equal parts; then parts of different lengths, of which the first one is empty.
                let len = |member: u32| match operation {
                    3 | 4 => LONG * member as usize / 2,
                    _ => LONG,
                };
                let ends = |member: u32| (0..member).map(len).sum::<usize>();
                let parts: Vec<_> = (0..members).map(|it| (4 * ends(it) as u64, 4 * len(it) as u64)).collect();
                let (whole, longest) = (ends(members), (0..members).map(len).max().unwrap());
                let (mut own, all) =
                    (words(operation, node.rank, 0, whole as u64), sums(operation, 0..members, whole as u64));
                let mut result = vec![0; if in_place { 0 } else { len(node.rank) }];
                let operands = match in_place {
                    true => Operands { recv: lend(&mut own), ..Operands::default() },
                    false => Operands { send: lend(&mut own), recv: lend(&mut result), ..Operands::default() },
                };
                let block = Vector { count: longest as u64, unit: 4 };
                let call = Call::ReduceScatterBlock { block, commutes: true, in_place };
                let parts = (operation > 2).then_some(&parts[..]);
                let mut pull = Pull::new(call, &operands, Some(&sum), parts);
                assert_eq!(until(|| pull.poll(node)), Ok(true), "{call:?}");
                let got = if in_place { &own[..len(node.rank)] } else { &result[..] };
                assert!(*got == all[ends(node.rank)..][..len(node.rank)], "{call:?} on {} of {members}", node.rank);
                let behind = len(node.rank);
                assert!(!in_place || own[behind..] == words(operation, node.rank, 0, whole as u64)[behind..]);
            }
        });
    }
}

#[test]
fn vectors_are_combined_as_they_are_read() {
    const COUNT: u64 = 100_000;
    for members in [2, 3, 5] {
        together(members, |node| {
            for (operation, in_place) in [(1, false), (2, true)] {
                let mut own = words(operation, node.rank, 0, COUNT);
                let mut result = vec![0; if in_place { 0 } else { own.len() }];
                let operands = match in_place {
                    true => Operands { recv: lend(&mut own), ..Operands::default() },
                    false => Operands { send: lend(&mut own), recv: lend(&mut result), ..Operands::default() },
                };
                let vector = Vector { count: COUNT, unit: 4 };
                let call = Call::Allreduce { vector, commutes: true, in_place };
                assert_eq!(pull(call, &operands, node), Ok(true), "{call:?}");
                let got = if in_place { own } else { result };
                assert!(got == sums(operation, 0..members, COUNT), "{call:?} on {} of {members}", node.rank);
            }
        });
    }
}

#[test]
fn long_blocks_go_through_slots_in_pieces() {
    for members in [2, 3, 5, 16] {
        together(members, |node| {
            for (kind, in_place) in [(0, false), (1, false), (0, true), (1, true), (0, false)] {
                let (call, mut send, mut recv, after) = long_call(kind, in_place, node.rank, members);
                let operands = Operands { send: lend(&mut send), recv: lend(&mut recv), ..Operands::default() };
                assert_eq!(wait(&mut Work::new(call, &operands, None, None, node.shape()), node), Ok(()), "{call:?}");
                assert!(recv == after, "{call:?} on {} of {members}", node.rank);
            }
        });
    }
}

#[test]
fn the_longest_blocks_are_read_from_the_owners_memory_where_possible() {
    const ROOM: usize = 64 << 10;
    let by = |call, members, pulls| way(call, members, ROOM, pulls, 0, None, true);
    let alltoall = |block| Call::Alltoall { block, in_place: false };
    let allgather = |block| Call::Allgather { block, in_place: false };
    for (call, members, in_pieces) in [
        (allgather(1), 2, true),
        (allgather(4 << 20), 16, true),
        (allgather((4 << 20) + 1), 16, false),
        (allgather((32 << 10) - 1), 2, true),
        (allgather(32 << 10), 2, false),
        (alltoall(8), 1024, true),
        (alltoall((32 << 10) - 1), 2, true),
        (alltoall(32 << 10), 2, false),
        (alltoall(64 << 10), 16, true),
        (alltoall((64 << 10) + 1), 3, false),
        // Seventeen pieces, of 1,024 bytes each.
        (alltoall(16 << 10), 65, true),
        (alltoall((16 << 10) + 1), 65, false),
    ] {
        let there = if in_pieces { Way::Slots } else { Way::Pull };
        assert_eq!(by(call, members, true), Some(there), "{call:?} of {members}");
    }
    assert_eq!(by(alltoall(4 << 20), 16, false), Some(Way::Slots));
    assert_eq!(by(allgather((4 << 20) + 1), 2, false), None);
    assert_eq!(by(allgather(0), 2, true), None);
    // MPI_COMM_SELF needs no memory.
    for call in [alltoall(8), allgather(8), Call::Barrier] {
        assert_eq!(by(call, 1, true), None);
    }
}

#[test]
fn if_one_member_cannot_read_all_discard_their_results_and_no_data_is_lost() {
    for members in [2, 3] {
        together(members, |node| {
            let (call, mut send, mut recv, _) = long_call(0, true, node.rank, members);
            let before = recv.clone();
            let operands = Operands { send: lend(&mut send), recv: lend(&mut recv), ..Operands::default() };
            if node.rank == 1 {
                // As it would be in another pid namespace: here the number belongs to a different process.
                node.pid = std::os::unix::process::parent_id();
            }
            assert_eq!(pull(call, &operands, node), Ok(false));
            assert!(recv == before, "on {} of {members}", node.rank);
        });
    }
}

#[test]
fn if_one_member_cannot_read_a_reduction_keeps_its_operands() {
    for (members, hidden) in [(2, 0), (2, 1), (3, 0), (3, 1)] {
        together(members, |node| {
            if node.rank == hidden {
                node.pid = std::os::unix::process::parent_id();
            }
            let vector = Vector { count: 1000, unit: 4 };
            for (kind, in_place) in [(0, true), (0, false), (1, true), (1, false)] {
                let (call, count) = match kind {
                    0 => (Call::ReduceScatterBlock { block: vector, commutes: true, in_place }, 1000 * members),
                    _ => (Call::Allreduce { vector, commutes: true, in_place }, 1000),
                };
                let before = words(kind, node.rank, 0, u64::from(count));
                let (mut own, mut result) = (before.clone(), vec![0; if in_place { 0 } else { 1000 }]);
                let operands = match in_place {
                    true => Operands { recv: lend(&mut own), ..Operands::default() },
                    false => Operands { send: lend(&mut own), recv: lend(&mut result), ..Operands::default() },
                };
                assert_eq!(pull(call, &operands, node), Ok(false), "{call:?}");
                assert!(own == before, "{call:?} on {} of {members}", node.rank);
            }
        });
    }
}

#[test]
fn a_block_is_read_into_memory_with_holes() {
    let members = 2;
    together(members, |node| {
        // Three of every five bytes, in more places than the kernel takes at a time.
        let (layout, len) = (Arc::new(Layout::new(&[(0, 3)], 5)), 300_000);
        let mut send: Vec<u8> = (0..len).map(|at| (at % 250) as u8 + node.rank as u8).collect();
        let mut recv = vec![255; 2 * len / 3 * 5];
        // SAFETY: both live until the call is over, and the second has room for so many elements of five bytes.
        let (from, into) = unsafe {
            (Buffer::contiguous(send.as_mut_ptr(), len), Buffer::new(recv.as_mut_ptr(), 2 * len / 3, &layout))
        };
        let call = Call::Allgather { block: len as u64, in_place: false };
        assert_eq!(pull(call, &Operands::new(from, into), node), Ok(true));
        for (at, element) in recv.chunks(5).enumerate() {
            let expected = |byte: usize| ((3 * at + byte) % len % 250) as u8 + (3 * at / len) as u8;
            assert_eq!(*element, [expected(0), expected(1), expected(2), 255, 255], "{at}");
        }
    });
}

#[test]
fn all_members_go_the_way_that_the_first_one_announces() {
    // Of more members, the blocks would be too long for slots.
    let members = 2;
    let (ways, _) = together(members, |node| {
        let mut ways = Vec::new();
        for _ in 0..200 {
            let (call, mut send, mut recv, after) = long_call(0, false, node.rank, members);
            let operands = Operands { send: lend(&mut send), recv: lend(&mut recv), ..Operands::default() };
            node.pull(true);
            let way = way(call, members, SLOT, true, node.faster(call), None, true).unwrap();
            node.measured(call, way, |node| match way {
                Way::Slots => assert_eq!(wait(&mut Work::new(call, &operands, None, None, node.shape()), node), Ok(())),
                Way::Pull => assert_eq!(pull(call, &operands, node), Ok(true)),
            });
            assert!(recv == after, "{way:?} on {} of {members}", node.rank);
            ways.push(way);
            // A call whose stamp announces nothing.
            let (mut own, vector) = (vec![1_u32], Vector { count: 1, unit: 4 });
            let operands = Operands { recv: lend(&mut own), ..Operands::default() };
            let allreduce = Call::Allreduce { vector, commutes: true, in_place: true };
            assert_eq!((pull(allreduce, &operands, node), own), (Ok(true), vec![members]));
        }
        ways
    });
    assert!(ways.iter().all(|other| *other == ways[0]));
    assert!(ways[0].contains(&Way::Slots) && ways[0].contains(&Way::Pull), "both are tried");
}

#[test]
fn longer_blocks_between_two_members_go_as_messages_if_these_can_be_read() {
    const ROOM: usize = 64 << 10;
    let vector = |bytes: u64| Vector { count: bytes / 8, unit: 8 };
    let calls = |bytes| {
        [
            Call::Bcast { root: 0, len: bytes },
            Call::Scatter { root: 1, block: bytes, in_place: false },
            Call::Gather { root: 0, block: bytes, in_place: true },
            Call::Reduce { root: 1, vector: vector(bytes), commutes: true, in_place: false },
        ]
    };
    let (sum, slots) = (sum(), Some(Way::Slots));
    let reductions = |bytes, size, pulls| {
        let (vector, commutes, in_place) = (vector(bytes), true, false);
        [Call::ReduceScatterBlock { block: vector, commutes, in_place }, Call::Allreduce { vector, commutes, in_place }]
            .map(|call| way(call, size, ROOM, pulls, 0, Some(&sum), true))
    };
    let pull = Some(Way::Pull);
    assert_eq!(reductions((128 << 10) - 8, 2, true), [slots; 2]);
    assert_eq!(reductions(128 << 10, 2, true), [pull, slots]);
    assert_eq!(reductions((1 << 20) - 8, 2, true), [pull, slots]);
    assert_eq!(reductions(1 << 20, 2, true), [pull; 2]);
    assert_eq!([reductions(1 << 20, 2, false), reductions(1 << 20, 3, true)], [[slots; 2]; 2]);
    // A member would have to keep a long result until the other has read its own vector.
    let in_place = Call::Allreduce { vector: vector(32 << 20), commutes: true, in_place: true };
    assert_eq!(way(in_place, 2, ROOM, true, 0, Some(&sum), true), slots);
    let ways = |bytes, size, pulls| calls(bytes).map(|call| way(call, size, ROOM, pulls, 0, Some(&sum), true));
    assert_eq!(ways(4096, 2, true), [slots; 4]);
    assert_eq!(ways(8192, 2, true), [slots, slots, None, None]);
    assert_eq!(ways(16384, 2, true), [None; 4]);
    assert_eq!(ways(16384, 2, false), [slots; 4]);
    assert_eq!(ways(16384, 3, true), [slots; 4]);
    assert_eq!((longest(2, true, ROOM), longest(2, true, 100), longest(2, false, ROOM)), (8192, 100, ROOM));
}
