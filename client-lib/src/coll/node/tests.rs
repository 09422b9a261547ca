//! Members in threads, each with its own mapping, make one call after another.

mod outbox;
mod packing;
mod pulls;
mod rooted;
mod scans;
mod uneven;

use std::os::fd::AsFd;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering as Order};
use std::time::{Duration, Instant};

use super::*;
use crate::abi::constants::{MPI_SUM, MPI_UINT32_T};
use crate::abi::{DatatypeHandle, OpHandle};
use crate::coll::choice::Call;
use crate::coll::halving::Vector;
use crate::coll::operands::{Memory, Operands};
use crate::datatype::{Datatype, Element};
use crate::error::{MpiError, MpiResult};
use crate::memory::Buffer;
use crate::object::ops::Ops;
use crate::op::Reduction;

const SLOT: usize = 4096;
/// No operation lasts so long, however busy the machine is.
const LIMIT: Duration = Duration::from_secs(60);

fn sum() -> Reduction {
    reduction(MPI_SUM, MPI_UINT32_T)
}

fn reduction(op: usize, datatype: usize) -> Reduction {
    let element = Element::of(DatatypeHandle(datatype)).unwrap();
    let op = Ops::default().resolve(OpHandle(op)).unwrap();
    Reduction::new(&op, Datatype::predefined(element), element.handle()).unwrap()
}

/// Runs a body in a thread for each member; returns the results and the number of wake-ups.
fn together<R: Send>(members: u32, body: impl Fn(&mut Node) -> R + Sync) -> (Vec<R>, usize) {
    together_with(SLOT, members, body)
}

fn together_with<R: Send>(slot: usize, members: u32, body: impl Fn(&mut Node) -> R + Sync) -> (Vec<R>, usize) {
    let shape = Shape { members, slot, in_groups: !members.is_multiple_of(5) };
    let (area, fd) = Area::create(shape).unwrap();
    drop(area);
    let rung = Arc::new(AtomicUsize::new(0));
    std::thread::scope(|scope| {
        let threads: Vec<_> = (0..members)
            .map(|rank| {
                let (fd, body, rung) = (&fd, &body, Arc::clone(&rung));
                scope.spawn(move || {
                    let area = Area::open(fd.as_fd(), shape).unwrap();
                    let ring = move || {
                        rung.fetch_add(1, Order::Relaxed);
                    };
                    body(&mut Node::new(area, rank, Box::new(ring)))
                })
            })
            .collect();
        let results = threads.into_iter().map(|thread| thread.join().unwrap()).collect();
        (results, rung.load(Order::Relaxed))
    })
}

/// Polls until there is a result.
fn until<R>(mut poll: impl FnMut() -> Option<R>) -> R {
    let begun = Instant::now();
    loop {
        if let Some(result) = poll() {
            return result;
        }
        assert!(begun.elapsed() < LIMIT, "a member has waited for {LIMIT:?}");
        std::thread::yield_now();
    }
}

fn wait(work: &mut Work<'_>, node: &mut Node) -> MpiResult {
    until(|| work.poll(node))
}

/// The words of one member for another one in an operation.
fn words(operation: u64, from: u32, to: u32, count: u64) -> Vec<u32> {
    (0..count as u32).map(|at| (operation as u32 * 1009 + from * 101 + to * 13 + at) % 65_521).collect()
}

/// The sums of what these ranks have.
fn sums(operation: u64, ranks: std::ops::Range<u32>, count: u64) -> Vec<u32> {
    let mut sums = vec![0; count as usize];
    for rank in ranks {
        sums.iter_mut().zip(words(operation, rank, 0, count)).for_each(|(sum, word)| *sum += word);
    }
    sums
}

fn lend(words: &mut [u32]) -> Memory {
    let base = words.as_mut_ptr().cast();
    // SAFETY: the words outlive the operation for which they are lent.
    Memory::new(base, unsafe { Buffer::contiguous(base, 4 * words.len()) })
}

/// The data that one member sends and expects in one call.
fn call(operation: u64, me: u32, size: u32) -> (Call, Vec<u32>, Vec<u32>, Vec<u32>) {
    let mixed = operation.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 32;
    let (root, in_place) = ((mixed % u64::from(size)) as u32, mixed & 64 != 0);
    let room = SLOT as u64 / 4;
    // The last ones take several operations.
    let count =
        [1, 2, 12, 13, room / u64::from(size), room, room + 1, 3 * room, 3 * room + 5][(mixed >> 8) as usize % 9];
    let kind = (mixed >> 16) % 11;
    let vector = Vector { count, unit: 4 };
    let (block, all) = (4 * count, 0..size);
    let own = words(operation, me, 0, count);
    let sums = |ranks, count| sums(operation, ranks, count);
    // The content of `recv` before and after, in place or not.
    let (call, send, before, after) = match kind {
        0 => (Call::Barrier, vec![], vec![], vec![]),
        1 => {
            let data = words(operation, root, 0, 5 * count);
            let before = if me == root { data.clone() } else { vec![0; data.len()] };
            (Call::Bcast { root, len: 5 * block }, vec![], before, data)
        }
        2 | 4 => {
            let gathered: Vec<u32> = all.flat_map(|rank| words(operation, rank, 0, count)).collect();
            let is_root = kind == 4 || me == root;
            let in_place = in_place && is_root;
            let mut before = vec![0; if is_root { gathered.len() } else { 0 }];
            if in_place {
                before[me as usize * own.len()..][..own.len()].copy_from_slice(&own);
            }
            let call = match kind {
                2 => Call::Gather { root, block, in_place },
                _ => Call::Allgather { block, in_place },
            };
            (call, if in_place { vec![] } else { own }, before, if is_root { gathered } else { vec![] })
        }
        3 => {
            let is_root = me == root;
            let in_place = in_place && is_root;
            let send = if is_root { all.flat_map(|to| words(operation, root, to, count)).collect() } else { vec![] };
            let after = if in_place { vec![] } else { words(operation, root, me, count) };
            (Call::Scatter { root, block, in_place }, send, vec![0; after.len()], after)
        }
        5 => {
            let send: Vec<u32> = all.clone().flat_map(|to| words(operation, me, to, count)).collect();
            let after: Vec<u32> = all.flat_map(|from| words(operation, from, me, count)).collect();
            let before = if in_place { send.clone() } else { vec![0; after.len()] };
            (Call::Alltoall { block, in_place }, if in_place { vec![] } else { send }, before, after)
        }
        8 => {
            let whole = count * u64::from(size);
            let (own, all) = (words(operation, me, 0, whole), sums(all, whole));
            let part = all[(u64::from(me) * count) as usize..][..count as usize].to_vec();
            let mut after = if in_place { own.clone() } else { vec![0; part.len()] };
            after[..part.len()].copy_from_slice(&part);
            let before = if in_place { own.clone() } else { vec![0; part.len()] };
            let call = Call::ReduceScatterBlock { block: vector, commutes: true, in_place };
            (call, if in_place { vec![] } else { own }, before, after)
        }
        _ => {
            let in_place = in_place && (kind != 6 || me == root);
            let (call, result) = match kind {
                6 if me == root => (Call::Reduce { root, vector, commutes: true, in_place }, Some(sums(all, count))),
                6 => (Call::Reduce { root, vector, commutes: true, in_place }, None),
                7 => (Call::Allreduce { vector, commutes: true, in_place }, Some(sums(all, count))),
                9 => (Call::Scan { vector, in_place }, Some(sums(0..me + 1, count))),
                _ => (Call::Exscan { vector, in_place }, (me > 0).then(|| sums(0..me, count))),
            };
            let before = if in_place { own.clone() } else { vec![0; own.len()] };
            let after = result.unwrap_or_else(|| before.clone());
            (call, if in_place { vec![] } else { own }, before, after)
        }
    };
    (call, send, before, after)
}

#[test]
fn every_call_in_a_long_sequence_gives_each_member_its_result() {
    for members in [2, 3, 5, 16] {
        together(members, |node| {
            let (me, sum) = (node.rank, sum());
            for operation in 0..if members == 16 { 120 } else { 400 } {
                let (call, mut send, mut recv, after) = call(operation, me, members);
                assert_eq!(way(call, members, SLOT, false, 0, Some(&sum), true), Some(Way::Slots), "{call:?}");
                let operands = Operands { send: lend(&mut send), recv: lend(&mut recv), ..Operands::default() };
                let mut work = Work::new(call, &operands, Some(&sum), None, node.shape());
                assert_eq!(wait(&mut work, node), Ok(()), "{call:?} on {me} of {members}");
                assert_eq!(recv, after, "{call:?} on {me} of {members}, operation {operation}");
            }
        });
    }
}

/// The way of a short call: members decide it alone.
fn brief(call: Call, node: &mut Node, send: &mut [u32], recv: &mut [u32]) -> MpiResult {
    let (me, in_place) = (node.rank as usize, send.is_empty());
    let kernel = crate::op::loop_for(OpHandle(MPI_SUM), DatatypeHandle(MPI_UINT32_T));
    let to = if recv.is_empty() { std::ptr::null_mut() } else { recv.as_mut_ptr().cast::<u8>() };
    let from = match call {
        Call::Gather { block, .. } | Call::Allgather { block, .. } if in_place => to.wrapping_add(me * block as usize),
        _ if in_place => to,
        _ => send.as_mut_ptr().cast(),
    };
    // SAFETY: the words outlive the call, and are as many as it says.
    let brief = unsafe { Brief::<0>::new(call, from, to, kernel) };
    let mut met = Met::default();
    until(|| brief.poll(node, &mut met))
}

#[test]
fn members_may_execute_a_short_call_in_either_way() {
    for members in [2, 3, 5, 16] {
        let (briefs, _) = together(members, |node| {
            let (me, sum, mut briefs) = (node.rank, sum(), 0);
            for operation in 0..if members == 16 { 300 } else { 1000 } {
                let (call, mut send, mut recv, after) = call(operation, me, members);
                let is_in_place_for_each = matches!(call, Call::Alltoall { in_place: true, .. });
                let is_brief = (operation + u64::from(me)) % 3 > 0 || operation % 7 == 0;
                if is_brief && fits(call, node.shape()) && !is_in_place_for_each {
                    briefs += 1;
                    assert_eq!(brief(call, node, &mut send, &mut recv), Ok(()), "{call:?} on {me} of {members}");
                } else {
                    let operands = Operands { send: lend(&mut send), recv: lend(&mut recv), ..Operands::default() };
                    let mut work = Work::new(call, &operands, Some(&sum), None, node.shape());
                    assert_eq!(wait(&mut work, node), Ok(()), "{call:?} on {me} of {members}");
                }
                assert_eq!(recv, after, "{call:?} on {me} of {members}, operation {operation}");
            }
            briefs
        });
        assert!(briefs.iter().all(|briefs| *briefs > 50), "{briefs:?}");
    }
}

/// The root of a gather comes late every time, so the others wait at the end of the marks, notes and slots again and again; the root of a
/// broadcast does not wait for the others.
#[test]
fn members_that_are_far_ahead_overwrite_nothing() {
    // Around the lengths at which data go from marks to notes, and from notes to slots.
    let lens = [SMALL as u64 / 4, SMALL as u64 / 4 + 1, NOTE as u64 / 4, NOTE as u64 / 4 + 1];
    for members in [2, 3, 5] {
        together(members, |node| {
            let me = node.rank;
            for operation in 0..12 * DEPTH {
                // First all of one length, then mixed.
                let round = operation / DEPTH;
                let gathers = round.is_multiple_of(2);
                let count = lens[if round < 8 { round / 2 } else { operation * 7 / 3 } as usize % lens.len()];
                let (root, block) = (0, 4 * count);
                let is_late = if gathers { me == root } else { me + 1 == members };
                if is_late && operation % 5 == 0 {
                    std::thread::sleep(Duration::from_micros(100));
                }
                let all: Vec<u32> = (0..members).flat_map(|from| words(operation, from, 0, count)).collect();
                let mut own = words(operation, if gathers { me } else { root }, 0, count);
                let (call, mut send, mut recv, after) = if gathers {
                    let room = if me == root { all.len() } else { 0 };
                    let after = if me == root { all } else { vec![] };
                    (Call::Gather { root, block, in_place: false }, own, vec![0; room], after)
                } else {
                    let after = own.clone();
                    if me != root {
                        own.fill(0);
                    }
                    (Call::Bcast { root, len: block }, vec![], own, after)
                };
                assert_eq!(brief(call, node, &mut send, &mut recv), Ok(()), "{call:?} on {me} of {members}");
                assert!(recv == after, "{call:?} on {me} of {members}, operation {operation}");
            }
        });
    }
}

#[test]
fn a_short_call_takes_one_operation_over_slots_at_any_size() {
    let (reduction, longer) = (sum(), [1_u64, 7, 48, 49, 500, 4095, 4096, 4097, 1 << 14, 1 << 17]);
    for (members, room) in
        [2, 3, 4, 5, 16, 17, 64, 128, 1024].into_iter().flat_map(|members| [(members, 65_536), (members, 4096)])
    {
        for len in longer.into_iter().flat_map(|len| [len, len * 4]) {
            let (root, in_place, commutes, block) = (1, false, true, len);
            let vector = Vector { count: len.div_ceil(4), unit: 4 };
            let calls = [
                Call::Barrier,
                Call::Bcast { root, len },
                Call::Gather { root, block, in_place },
                Call::Scatter { root, block, in_place },
                Call::Allgather { block, in_place },
                Call::Alltoall { block, in_place },
                Call::Reduce { root, vector, commutes, in_place },
                Call::Allreduce { vector, commutes, in_place },
                Call::ReduceScatterBlock { block: vector, commutes, in_place },
                Call::Scan { vector, in_place },
                Call::Exscan { vector, in_place },
            ];
            let shapes = [true, false].map(|in_groups| Shape { members, slot: room, in_groups });
            for (call, shape) in calls.into_iter().flat_map(|call| shapes.map(|shape| (call, shape))) {
                if !fits(call, shape) {
                    continue;
                }
                for pulls in [false, true] {
                    let way = way(call, members, room, pulls, u32::MAX, Some(&reduction), true);
                    assert_eq!(way, Some(Way::Slots), "{call:?}, {members} members, {room} bytes");
                }
                let cut = super::way::Cut::of(call, shape);
                assert!(cut.is_whole() && !cut.is_sliced && cut.operations() == 1, "{call:?}, {members}, {room}");
            }
        }
    }
}

#[test]
fn members_that_call_different_functions_get_an_error() {
    for members in [2, 3] {
        let (results, _) = together(members, |node| {
            let mut words = [node.rank; 8];
            let vector = Vector { count: if node.rank == 1 { 2 } else { 1 }, unit: 4 };
            let operands = Operands { recv: lend(&mut words[..vector.count as usize]), ..Operands::default() };
            let call = Call::Allreduce { vector, commutes: true, in_place: true };
            wait(&mut Work::new(call, &operands, Some(&sum()), None, node.shape()), node)
        });
        assert!(results.iter().any(|result| result.as_ref().is_err_and(|error| error.text.contains("rank"))));
    }
}

#[test]
fn a_member_that_calls_something_else_than_a_barrier_gives_all_an_error() {
    // Of five members that share cores here, the first one ends a barrier; of four, the last one to arrive.
    for (members, other) in [4, 5].into_iter().flat_map(|members| (0..members).map(move |other| (members, other))) {
        let (results, _) = together(members, |node| {
            let mut words = [node.rank; 2];
            let operands = Operands { recv: lend(&mut words), ..Operands::default() };
            let vector = Vector { count: 2, unit: 4 };
            let call = match node.rank == other {
                true => Call::Allreduce { vector, commutes: true, in_place: true },
                false => Call::Barrier,
            };
            let sum = sum();
            match node.rank % 2 {
                0 => wait(&mut Work::new(call, &operands, Some(&sum), None, node.shape()), node),
                _ => brief(call, node, &mut [], &mut [0; 2]),
            }
        });
        let is_told =
            |result: &MpiResult| result.as_ref().is_err_and(|error| error.text.contains("called a different"));
        assert!(results.iter().all(is_told), "{members} members, {other} differs: {results:?}");
    }
}

#[test]
fn a_member_that_refuses_a_barrier_does_not_keep_the_others() {
    for refusing in 0..5 {
        let (results, _) = together(5, |node| match node.rank == refusing {
            true => std::iter::from_fn(|| Some(refuse(node))).flatten().next().unwrap(),
            false => wait(&mut Work::new(Call::Barrier, &Operands::default(), None, None, node.shape()), node),
        });
        let told = results.iter().filter(|result| result.as_ref().is_err_and(|error| error.text.contains("abandoned")));
        assert_eq!(told.count(), 4, "{refusing}: {results:?}");
    }
}

#[test]
fn after_the_death_of_a_member_the_others_get_an_error() {
    let (results, _) = together(4, |node| {
        let operands = Operands::default();
        let mut work = Work::new(Call::Barrier, &operands, None, None, node.shape());
        match node.rank {
            3 => Ok(()),
            // The member that finds it out first.
            0 => {
                assert!(work.poll(node).is_none());
                node.declare_broken(3);
                wait(&mut work, node)
            }
            _ => wait(&mut work, node),
        }
    });
    for result in &results[..3] {
        let error = result.as_ref().unwrap_err();
        assert_eq!(error.class, crate::abi::constants::MPI_ERR_PROC_ABORTED);
        assert_eq!(error.text, "rank 3 of the communicator has died");
    }
}

#[test]
fn a_member_that_has_left_a_call_takes_no_other_one_for_a_later_call_of_its_own() {
    let (area, _fd) = Area::create(Shape { members: 4, slot: SLOT, in_groups: true }).unwrap();
    let mut nodes: Vec<Node> = (0..4).map(|rank| Node::new(area.clone(), rank, Box::new(|| ()))).collect();
    let mut vectors = vec![vec![1; SLOT]; 4];
    let operands: Vec<Operands> =
        vectors.iter_mut().map(|words| Operands { recv: lend(words), ..Operands::default() }).collect();
    let vector = Vector { count: SLOT as u64, unit: 4 };
    let (call, sum) = (Call::Allreduce { vector, commutes: true, in_place: true }, sum());
    let mut works: Vec<Work<'_>> =
        operands.iter().map(|it| Work::new(call, it, Some(&sum), None, nodes[0].shape())).collect();
    let mut poll = |member: usize| works[member].poll(&mut nodes[member]);
    // The last one dies when all but the third have arrived at the first of several operations, and only the first one has noticed it.
    assert!([3, 0, 1].map(&mut poll).iter().all(Option::is_none));
    area.head().declare_broken(3);
    assert!(poll(0).unwrap().is_err());
    // The third one completes this operation, and leaves the next one.
    assert!(poll(2).unwrap().is_err());
    // The two have left at different operations.
    for length in [8, 16, 8] {
        for member in [2, 0] {
            let mut words = vec![member; 4];
            let operands = Operands { recv: lend(&mut words), ..Operands::default() };
            let call = Call::Bcast { root: 2, len: length };
            let mut work = Work::new(call, &operands, None, None, nodes[0].shape());
            let error = work.poll(&mut nodes[member as usize]).unwrap().unwrap_err();
            assert_eq!(error.text, "rank 3 of the communicator has died");
        }
    }
}

#[test]
fn a_sleeping_member_is_woken() {
    for members in [2, 4] {
        let (results, rung) = together(members, |node| {
            let operands = Operands::default();
            let mut work = Work::new(Call::Barrier, &operands, None, None, node.shape());
            if node.rank > 0 {
                node.announce_sleep(true);
            }
            let result = wait(&mut work, node);
            if node.rank > 0 {
                node.announce_sleep(false);
            }
            result
        });
        assert!(results.iter().all(Result::is_ok));
        // The member that ended the last wait rang the bell, since the others had announced their sleep.
        assert!(rung > 0);
    }
}

#[test]
fn an_area_that_could_shrink_or_has_another_length_is_refused() {
    let shape = Shape { members: 3, slot: SLOT, in_groups: true };
    let (_area, fd) = Area::create(shape).unwrap();
    assert!(Area::open(fd.as_fd(), shape).is_ok());
    for members in [2, 9] {
        assert!(Area::open(fd.as_fd(), Shape { members, ..shape }).is_err());
    }
    for members in [0, 1, Shape::MOST + 1] {
        assert!(Area::create(Shape { members, ..shape }).is_err());
    }
    for slot in [0, 100, 2 << 20] {
        assert!(Area::create(Shape { slot, ..shape }).is_err());
    }
    let file = std::fs::File::open("/dev/zero").unwrap();
    assert!(Area::open(file.as_fd(), shape).is_err());
}
