//! Short data of so many members that they are packed.

use std::sync::Mutex;

use super::*;
use crate::abi::constants::MPI_DOUBLE;

/// The last group is full or not; none of these shares cores in [`together`].
const MEMBERS: [u32; 3] = [33, 64, 128];

fn bytes(operation: u64, from: u32, len: u64) -> Vec<u8> {
    (0..len).map(|at| (operation * 31 + u64::from(from) * 7 + at * 3 + 1) as u8).collect()
}

/// Numbers whose sum depends on the order.
fn doubles(operation: u64, from: u32, count: u64) -> Vec<f64> {
    const NUMBERS: [f64; 7] = [1e16, 1.0, -1e16, 3.0, 0.1, -7e15, 2.5];
    (0..count).map(|at| NUMBERS[((operation + u64::from(from) * 3 + at) % 7) as usize]).collect()
}

fn as_bytes(doubles: &[f64]) -> Vec<u8> {
    doubles.iter().flat_map(|double| double.to_ne_bytes()).collect()
}

/// The sum of the first members' numbers, added in the order of ranks.
fn sums(operation: u64, members: u32, count: u64) -> Vec<u8> {
    let add =
        |sum: Vec<f64>, from| sum.iter().zip(doubles(operation, from, count)).map(|(sum, one)| sum + one).collect();
    as_bytes(&(1..members).fold(doubles(operation, 0, count), add))
}

fn sum_of_doubles() -> Reduction {
    let element = Element::of(DatatypeHandle(MPI_DOUBLE)).unwrap();
    let op = Ops::default().resolve(OpHandle(MPI_SUM)).unwrap();
    Reduction::new(&op, Datatype::predefined(element), element.handle()).unwrap()
}

/// What a member sends, the content of its result before and after.
type Contents = (Call, Vec<u8>, Vec<u8>, Vec<u8>);

fn moving(operation: u64, me: u32, members: u32) -> Contents {
    let (root, block, in_place) =
        ((operation * 5 % u64::from(members)) as u32, operation / 2 % SMALL as u64 + 1, operation.is_multiple_of(3));
    let (own, all) = (bytes(operation, me, block), (0..members).flat_map(|from| bytes(operation, from, block)));
    let is_for_all = operation.is_multiple_of(2);
    let (gets, in_place) = (is_for_all || me == root, in_place && (is_for_all || me == root));
    let all: Vec<u8> = if gets { all.collect() } else { vec![] };
    let mut before = vec![0; all.len()];
    if in_place {
        before[me as usize * own.len()..][..own.len()].copy_from_slice(&own);
    }
    let call = match is_for_all {
        true => Call::Allgather { block, in_place },
        false => Call::Gather { root, block, in_place },
    };
    (call, if in_place { vec![] } else { own }, before, all)
}

fn combining(operation: u64, me: u32, members: u32, kind: u64, count: u64) -> Contents {
    let root = (operation * 5 % u64::from(members)) as u32;
    let (vector, commutes, in_place) = (Vector { count, unit: 8 }, true, operation.is_multiple_of(3));
    let own = as_bytes(&doubles(operation, me, count));
    let in_place = in_place && (kind != 0 || me == root);
    let (call, first) = match kind {
        0 => (Call::Reduce { root, vector, commutes, in_place }, if me == root { members } else { 0 }),
        1 => (Call::Allreduce { vector, commutes, in_place }, members),
        2 => (Call::Scan { vector, in_place }, me + 1),
        _ => (Call::Exscan { vector, in_place }, me),
    };
    let before = if in_place { own.clone() } else { vec![0; own.len()] };
    let after = if first > 0 { sums(operation, first, count) } else { before.clone() };
    (call, if in_place { vec![] } else { own }, before, after)
}

fn lend(bytes: &mut [u8]) -> Memory {
    let base = bytes.as_mut_ptr();
    // SAFETY: the bytes outlive the operation for which they are lent.
    Memory::new(base, unsafe { Buffer::contiguous(base, bytes.len()) })
}

/// Makes a call in one of the two ways.
fn make(call: Call, is_brief: bool, node: &mut Node, send: &mut [u8], recv: &mut [u8]) -> MpiResult {
    if !is_brief {
        let operands = Operands { send: lend(send), recv: lend(recv), ..Operands::default() };
        return wait(&mut Work::new(call, &operands, Some(&sum_of_doubles()), None, node.shape()), node);
    }
    assert!(fits(call, node.shape()), "{call:?}");
    let kernel = crate::op::loop_for(OpHandle(MPI_SUM), DatatypeHandle(MPI_DOUBLE));
    let to = if recv.is_empty() { std::ptr::null_mut() } else { recv.as_mut_ptr() };
    let from = match call {
        _ if !send.is_empty() => send.as_ptr(),
        Call::Gather { block, .. } | Call::Allgather { block, .. } => {
            to.wrapping_add(node.rank as usize * block as usize)
        }
        _ => to,
    };
    // SAFETY: the bytes outlive the call, and are as many as it says.
    let brief = unsafe { Brief::<0>::new(call, from, to, kernel) };
    let mut met = Met::default();
    until(|| brief.poll(node, &mut met))
}

/// Every length that fits in a mark, packed or not, and every rank's place in its group.
#[test]
fn short_blocks_of_many_members_are_gathered_in_either_way() {
    for members in MEMBERS {
        together(members, |node| {
            for operation in 0..2 * SMALL as u64 {
                let (call, mut send, mut recv, after) = moving(operation, node.rank, members);
                let is_brief = (operation / 2 + u64::from(node.rank)) % 2 == 0;
                assert_eq!(make(call, is_brief, node, &mut send, &mut recv), Ok(()), "{call:?}");
                assert!(recv == after, "{call:?} on {} of {members}, operation {operation}", node.rank);
            }
        });
    }
}

#[test]
fn short_vectors_of_many_members_are_added_in_the_order_of_ranks_in_either_way() {
    for members in MEMBERS {
        together(members, |node| {
            for operation in 0..60 {
                let count = [1, 2, 3, 6, 7][(operation / 4 % 5) as usize];
                let (call, mut send, mut recv, after) = combining(operation, node.rank, members, operation % 4, count);
                let is_brief = (operation / 4 + u64::from(node.rank)) % 2 == 0;
                assert_eq!(make(call, is_brief, node, &mut send, &mut recv), Ok(()), "{call:?}");
                assert!(recv == after, "{call:?} on {} of {members}, operation {operation}", node.rank);
            }
        });
    }
}

/// Those of an allreduce are cut into slices from different lengths on; the result of 256 numbers still lies in a note. Calls that are not cut
/// take one operation in between, so each place is used in turn for everything.
#[test]
fn vectors_of_many_members_are_added_in_slices_between_other_calls() {
    for members in MEMBERS {
        let (slices, _) = together(members, |node| {
            let mut slices = 0;
            for operation in 0..84 {
                let count = [64, 256, 257, 7, 500, 128][(operation % 6) as usize];
                let kind = [1, 0, 1, 1, 2, 1, 3][(operation % 7) as usize];
                let (call, mut send, mut recv, after) = combining(operation, node.rank, members, kind, count);
                let is_brief = fits(call, node.shape()) && (operation / 4 + u64::from(node.rank)).is_multiple_of(2);
                slices += u32::from(super::way::is_sliced(call, node.shape()) && count <= NOTE as u64 / 8);
                assert_eq!(make(call, is_brief, node, &mut send, &mut recv), Ok(()), "{call:?}");
                assert!(recv == after, "{call:?} on {} of {members}, operation {operation}", node.rank);
            }
            slices
        });
        assert!(slices[0] >= 8, "{slices:?}");
    }
}

#[test]
fn short_blocks_of_different_lengths_are_gathered_at_all() {
    let members = 33;
    together(members, |node| {
        for operation in 0..2 * PACKED as u64 {
            let len = |member: u32| (operation + u64::from(member) * 5) % (operation / 2 + 2);
            let mut own = bytes(operation, node.rank, len(node.rank));
            let mut blocks: Vec<Vec<u8>> = (0..members).map(|member| vec![0; len(member) as usize]).collect();
            let block = (0..members).map(len).max().unwrap();
            let recv_from = blocks.iter_mut().map(|bytes| lend(bytes).buffer).collect();
            let operands = Operands { send: lend(&mut own), recv_from, ..Operands::default() };
            let from = |member: u32| {
                let buffer = &operands.recv_from[member as usize];
                (buffer.as_contiguous().unwrap(), buffer.len())
            };
            if (operation + u64::from(node.rank)) % 2 == 0 {
                // SAFETY: the operands are lent for longer.
                let brief = unsafe { VariedBrief::new(operands.send.buffer.as_contiguous().unwrap(), from, node) };
                let (brief, mut met) = (brief.expect("short blocks"), Met::default());
                assert_eq!(until(|| brief.poll(node, &mut met)), Ok(()));
            } else {
                let call = Call::Allgather { block, in_place: false };
                assert_eq!(wait(&mut Work::new(call, &operands, None, None, node.shape()), node), Ok(()));
            }
            for (from, block) in (0..).zip(&blocks) {
                assert!(*block == bytes(operation, from, len(from)), "of {from}, {operation}");
            }
        }
    });
}

/// All parts together are as short as blocks that are packed.
#[test]
fn the_parts_of_a_reduce_scatter_are_not_packed() {
    let (members, owner) = (64, 11);
    together(members, |node| {
        for operation in 0..40 {
            let count = |member: u32| usize::from(member == owner);
            let own = doubles(operation, node.rank, 1);
            let mut result = vec![0.0_f64; count(node.rank)];
            let kernel = crate::op::loop_for(OpHandle(MPI_SUM), DatatypeHandle(MPI_DOUBLE)).unwrap();
            let (from, to) = (own.as_ptr().cast(), result.as_mut_ptr().cast());
            // SAFETY: the numbers outlive the call.
            let brief = unsafe { PartsBrief::new(from, to, kernel, 8, count, node) }.expect("short parts");
            let mut met = Met::default();
            assert_eq!(until(|| brief.poll(node, &mut met)), Ok(()));
            let expected = if node.rank == owner { sums(operation, members, 1) } else { vec![] };
            assert_eq!(as_bytes(&result), expected);
        }
    });
}

#[test]
fn a_member_among_many_that_calls_something_else_gives_an_error_to_all_that_depend_on_it() {
    let (members, vector) = (64, Vector { count: 1, unit: 8 });
    let scan = Call::Scan { vector, in_place: true };
    let allreduce = Call::Allreduce { vector, commutes: true, in_place: true };
    // The first and the last member, and those at both ends of a group.
    for (differs, call) in [0, 7, 8, 63].into_iter().flat_map(|rank| [scan, allreduce].map(|call| (rank, call))) {
        let others = [
            Call::Barrier,
            Call::Exscan { vector, in_place: true },
            Call::Scan { vector: Vector { count: 2, unit: 8 }, in_place: true },
        ];
        for other in others {
            let (results, _) = together(members, |node| {
                let (call, is_brief) = (if node.rank == differs { other } else { call }, node.rank % 2 == 0);
                make(call, is_brief, node, &mut [], &mut [0; 16][..if call == other { 16 } else { 8 }])
            });
            for (rank, result) in (0..).zip(&results).filter(|(rank, _)| *rank != differs) {
                let is_told = result.as_ref().is_err_and(|error| error.text.contains("called a different"));
                assert_eq!(is_told, call == allreduce || rank > differs, "{differs} {other:?} {rank}: {result:?}");
            }
        }
        let (results, _) = together(members, |node| match node.rank == differs {
            true => until(|| refuse(node)),
            false => make(call, node.rank % 2 == 0, node, &mut [], &mut [0; 8]),
        });
        for (rank, result) in (0..).zip(&results).filter(|(rank, _)| *rank != differs) {
            let is_told = result.as_ref().is_err_and(|error| error.text.contains("abandoned"));
            assert_eq!(is_told, call == allreduce || rank > differs, "{differs} {rank}: {result:?}");
        }
    }
}

#[test]
fn after_the_death_of_a_member_among_many_those_that_wait_for_it_get_an_error() {
    let (members, dead) = (64, 20);
    let (results, _) = together(members, |node| {
        let call = Call::Scan { vector: Vector { count: 1, unit: 8 }, in_place: true };
        if node.rank == dead {
            node.declare_broken(dead);
            return Ok(());
        }
        make(call, true, node, &mut [], &mut [0; 8])
    });
    for result in &results[dead as usize + 1..] {
        assert_eq!(result.as_ref().unwrap_err().text, "rank 20 of the communicator has died");
    }
}

/// The members of an area in one thread, with what each calls to wake the others.
fn in_one_thread(area: &Area, ring: impl Fn() -> Box<dyn Fn() + Send>) -> Vec<Node> {
    (0..area.shape().members).map(|rank| Node::new(area.clone(), rank, ring())).collect()
}

fn area(members: u32) -> Area {
    Area::create(Shape { members, slot: SLOT, in_groups: true }).unwrap().0
}

#[test]
fn a_member_that_sleeps_is_woken_once_the_group_before_its_own_tells_that_it_is_complete() {
    let area = area(64);
    let rung = Arc::new(Mutex::new(Vec::new()));
    let mut nodes = in_one_thread(&area, || {
        let (rung, looks) = (Arc::clone(&rung), Node::new(area.clone(), 0, Box::new(|| ())));
        Box::new(move || rung.lock().unwrap().push(looks.counters(0).told(0, 0).is_some()))
    });
    let call = Call::Scan { vector: Vector { count: 1, unit: 8 }, in_place: true };
    let kernel = crate::op::loop_for(OpHandle(MPI_SUM), DatatypeHandle(MPI_DOUBLE));
    let mut numbers = vec![1.0_f64; 64];
    let mut poll = |rank: usize, met: &mut Met| {
        let own = (&raw mut numbers[rank]).cast();
        // SAFETY: the number outlives the call.
        let brief = unsafe { Brief::<0>::new(call, own, own, kernel) };
        brief.poll(&mut nodes[rank], met)
    };
    // The first member of the second group.
    let mut met = Met::default();
    assert_eq!(poll(8, &mut met), None);
    area.head().announce_sleep(true);
    assert_eq!(poll(8, &mut met), None);
    for rank in 0..8 {
        assert_eq!(poll(rank, &mut Met::default()), Some(Ok(())));
    }
    assert_eq!(rung.lock().unwrap().last(), Some(&true), "{rung:?}");
    assert_eq!(poll(8, &mut met), Some(Ok(())));
    assert_eq!(numbers[8], 9.0);
}

/// The last member of the fifth group packs it in another length, or in another call, before the fourth group reads what the first ones
/// packed.
#[test]
fn a_member_that_passes_another_length_changes_nothing_for_those_that_do_not_depend_on_it() {
    let (members, differs) = (64, 39);
    let vector = Vector { count: 2, unit: 8 };
    let call = Call::Scan { vector, in_place: true };
    let shorter = Call::Scan { vector: Vector { count: 1, unit: 8 }, in_place: true };
    let others = [shorter, Call::Exscan { vector, in_place: true }, Call::Allgather { block: 1, in_place: true }];
    for other in others {
        let area = area(members);
        let nodes = in_one_thread(&area, || Box::new(|| ()));
        let mut memory: Vec<Vec<u8>> = (0..members).map(|rank| as_bytes(&doubles(1, rank, 2))).collect();
        memory[differs].resize(members as usize, 7);
        let kernel = crate::op::loop_for(OpHandle(MPI_SUM), DatatypeHandle(MPI_DOUBLE));
        let mut results: Vec<Option<MpiResult>> = vec![None; members as usize];
        let mut of_each: Vec<(Node, Met)> = nodes.into_iter().map(|node| (node, Met::default())).collect();
        for rank in (0..24).chain(32..40).chain(24..32).chain(40..64).chain(0..64) {
            let own = memory[rank].as_mut_ptr();
            // SAFETY: the bytes outlive the call, and are as many as it says.
            let brief = unsafe { Brief::<0>::new(if rank == differs { other } else { call }, own, own, kernel) };
            let (node, met) = &mut of_each[rank];
            if results[rank].is_none() {
                results[rank] = brief.poll(node, met);
            }
        }
        for rank in (0..members).filter(|rank| *rank as usize != differs) {
            let (result, expected) = (&results[rank as usize], sums(1, rank + 1, 2));
            if (rank as usize) < differs {
                assert_eq!((result, &memory[rank as usize]), (&Some(Ok(())), &expected), "{rank}, {other:?}");
            } else {
                let is_told = matches!(result, Some(Err(error)) if error.text.contains("called a different"));
                assert!(is_told, "{rank}, {other:?}: {result:?}");
            }
        }
    }
}

/// In slices, all would have to wait for all. So a reduce is cut into slices only where an allreduce of as many bytes was measured to need it.
#[test]
fn a_member_of_a_reduce_that_is_not_its_root_does_not_wait_for_the_others() {
    let (members, root, count) = (32, 0, 256);
    let vector = Vector { count, unit: 8 };
    let reduce = Call::Reduce { root, vector, commutes: true, in_place: false };
    let allreduce = Call::Allreduce { vector, commutes: true, in_place: false };
    let mut nodes = in_one_thread(&area(members), || Box::new(|| ()));
    let mut is_over = |call, rank: usize| {
        let (mut send, mut recv) = (as_bytes(&doubles(0, rank as u32, count)), vec![0; 8 * count as usize]);
        let operands = Operands { send: lend(&mut send), recv: lend(&mut recv), ..Operands::default() };
        let node = &mut nodes[rank];
        Work::new(call, &operands, Some(&sum_of_doubles()), None, node.shape()).poll(node) == Some(Ok(()))
    };
    assert!((1..members as usize).all(|rank| is_over(reduce, rank)));
    assert!(!is_over(allreduce, 1));
}
