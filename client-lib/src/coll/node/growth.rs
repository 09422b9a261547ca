//! How the collectives grow with the number of members: counts the cache lines that move, in the real code, for members that each have a
//! core, in one thread ([`crate::shared_memory::traffic`]).
//!
//! All members begin a call at the same time. They are polled in turn, or in random orders, until the call is over for all.

use std::os::fd::{AsFd, OwnedFd};

use super::*;
use crate::abi::constants::{MPI_SUM, MPI_UINT32_T};
use crate::abi::{DatatypeHandle, OpHandle};
use crate::coll::choice::Call;
use crate::coll::halving::Vector;
use crate::coll::operands::Operands;
use crate::datatype::{Datatype, Element};
use crate::error::MpiResult;
use crate::memory::Buffer;
use crate::object::ops::Ops;
use crate::op::{Reduction, loop_for};
use crate::shared_memory::traffic::{self, Moves};

/// As in a job.
const SLOT: usize = 64 << 10;

/// Calls until every line of the marks and notes, or of the slots, was used.
const WARM: usize = DEPTH as usize + 1;
const WARM_LONG: usize = SLOTS as usize + 1;

/// An operation as it stands in the table.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Operation {
    Barrier,
    Bcast(u64),
    Gather(u64),
    Allgather(u64),
    Alltoall(u64),
    Reduce(u64),
    Allreduce(u64),
    Scan(u64),
}

use Operation::{Allgather, Allreduce, Alltoall, Barrier, Bcast, Gather, Reduce, Scan};

const SHORT: u64 = 8;
const MIDDLE: u64 = 4 << 10;
const LONG: u64 = 64 << 10;

const ALL: [Operation; 17] = [
    Barrier,
    Bcast(SHORT),
    Bcast(MIDDLE),
    Bcast(LONG),
    Gather(SHORT),
    Allgather(SHORT),
    Allgather(MIDDLE),
    Alltoall(SHORT),
    Alltoall(512),
    Reduce(SHORT),
    Reduce(MIDDLE),
    Reduce(LONG),
    Allreduce(SHORT),
    Allreduce(MIDDLE),
    Allreduce(LONG),
    Scan(SHORT),
    Scan(LONG),
];

impl Operation {
    fn call(self) -> Call {
        let (root, in_place, commutes) = (0, false, true);
        let vector = |bytes: u64| Vector { count: bytes / 4, unit: 4 };
        match self {
            Barrier => Call::Barrier,
            Bcast(len) => Call::Bcast { root, len },
            Gather(block) => Call::Gather { root, block, in_place },
            Allgather(block) => Call::Allgather { block, in_place },
            Alltoall(block) => Call::Alltoall { block, in_place },
            Reduce(bytes) => Call::Reduce { root, vector: vector(bytes), commutes, in_place },
            Allreduce(bytes) => Call::Allreduce { vector: vector(bytes), commutes, in_place },
            Scan(bytes) => Call::Scan { vector: vector(bytes), in_place },
        }
    }

    fn bytes(self) -> u64 {
        match self {
            Barrier => 0,
            Bcast(bytes) | Gather(bytes) | Allgather(bytes) | Alltoall(bytes) => bytes,
            Reduce(bytes) | Allreduce(bytes) | Scan(bytes) => bytes,
        }
    }

    fn name(self) -> String {
        let (name, bytes) = match self {
            Barrier => return "barrier".into(),
            Bcast(bytes) => ("bcast", bytes),
            Gather(bytes) => ("gather", bytes),
            Allgather(bytes) => ("allgather", bytes),
            Alltoall(bytes) => ("alltoall", bytes),
            Reduce(bytes) => ("reduce", bytes),
            Allreduce(bytes) => ("allreduce", bytes),
            Scan(bytes) => ("scan", bytes),
        };
        if bytes < 1024 { format!("{name} {bytes} B") } else { format!("{name} {} KiB", bytes >> 10) }
    }
}

/// The order in which members are polled.
#[derive(Debug, Clone, Copy)]
enum Order {
    InTurn,
    Random(u64),
}

impl Order {
    fn of(self, members: usize, pass: u64) -> Vec<usize> {
        let mut order: Vec<usize> = (0..members).collect();
        if let Order::Random(seed) = self {
            let mut state = seed << 32 | pass;
            for at in (1..members).rev() {
                // SplitMix64.
                state = state.wrapping_add(0x9e37_79b9_7f4a_7c15);
                let mixed = (state ^ (state >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
                let mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
                order.swap(at, ((mixed ^ (mixed >> 31)) % (at as u64 + 1)) as usize);
            }
        }
        order
    }
}

/// The members of an area, each with its own view of it.
struct Members {
    nodes: Vec<Node>,
    order: Order,
    passes: u64,
    _area: OwnedFd,
}

impl Members {
    fn new(members: u32, in_groups: bool, order: Order) -> Self {
        let shape = Shape { members, slot: SLOT, in_groups };
        let (area, fd) = Area::create(shape).expect("an area");
        drop(area);
        let node = |rank| {
            let area = Area::open(fd.as_fd(), shape).expect("the same area");
            Node::new(area, rank, Box::new(|| ()))
        };
        let nodes: Vec<Node> = (0..members).map(node).collect();
        let view = |node: &Node| {
            let start = std::ptr::from_ref(node.area.head()).addr();
            start..start + shape.total()
        };
        traffic::watch(nodes.iter().map(view).collect());
        Self { nodes, order, passes: 0, _area: fd }
    }

    /// All members make a call, each of them as it does in a job; returns what moved.
    fn call(&mut self, operation: Operation) -> Moves {
        let (call, members) = (operation.call(), self.nodes.len());
        assert!(way(call, members as u32, SLOT, false, 0, Some(&sum()), true) == Some(Way::Slots), "{call:?}");
        let (bytes, reduction) = (operation.bytes() as usize, sum());
        let [sends, receives] = match operation {
            Barrier | Bcast(_) => [0, bytes],
            Gather(_) | Allgather(_) => [bytes, bytes * members],
            Alltoall(_) => [bytes * members; 2],
            Reduce(_) | Allreduce(_) | Scan(_) => [bytes; 2],
        };
        // The members run in turn, and nothing looks at what they get: they use the same memory.
        let (mut send, mut recv) = (vec![1_u8; sends], vec![0_u8; receives]);
        // SAFETY: the memory outlives the call.
        let lend = |bytes: &mut Vec<u8>| unsafe { Buffer::contiguous(bytes.as_mut_ptr(), bytes.len()) };
        let operands = Operands::new(lend(&mut send), lend(&mut recv));
        let mut polls: Vec<Option<Poll<'_>>> =
            self.nodes.iter().map(|node| Some(poll_of(call, &operands, &reduction, node))).collect();
        traffic::begin();
        let mut waiting = members;
        while waiting > 0 {
            let before = self.passes;
            self.passes += 1;
            for rank in self.order.of(members, before) {
                let Some(poll) = &mut polls[rank] else { continue };
                traffic::run(rank);
                if let Some(result) = poll(&mut self.nodes[rank]) {
                    assert_eq!(result, Ok(()), "{operation:?} of {members}");
                    polls[rank] = None;
                    waiting -= 1;
                }
            }
        }
        traffic::moves()
    }
}

impl Drop for Members {
    fn drop(&mut self) {
        traffic::end();
    }
}

/// Continues a member's call; returns the result once it is over.
type Poll<'a> = Box<dyn FnMut(&mut Node) -> Option<MpiResult> + 'a>;

fn poll_of<'a>(call: Call, operands: &'a Operands, reduction: &'a Reduction, node: &Node) -> Poll<'a> {
    let address = |buffer: &Buffer| buffer.as_contiguous().expect("contiguous memory");
    if fits(call, node.shape()) {
        let (mut send, recv) = (address(&operands.send.buffer), address(&operands.recv.buffer));
        if matches!(call, Call::Bcast { .. }) {
            send = recv;
        }
        // SAFETY: the operands have the memory of the call.
        let brief = unsafe { Brief::<0>::new(call, send, recv, kernel()) };
        let mut met = Met::default();
        Box::new(move |node| brief.poll(node, &mut met))
    } else {
        let mut work = Work::new(call, operands, Some(reduction), None, node.shape());
        Box::new(move |node| work.poll(node))
    }
}

fn kernel() -> Option<crate::op::Kernel> {
    loop_for(OpHandle(MPI_SUM), DatatypeHandle(MPI_UINT32_T))
}

fn sum() -> Reduction {
    let element = Element::of(DatatypeHandle(MPI_UINT32_T)).expect("a basic datatype");
    let op = Ops::default().resolve(OpHandle(MPI_SUM)).expect("a predefined operation");
    Reduction::new(&op, Datatype::predefined(element), element.handle()).expect("they go together")
}

/// The most that moves in one of some calls, in some orders, once the caches are warm.
fn count(operation: Operation, members: u32, in_groups: bool) -> Moves {
    let is_long = operation.bytes() >= 512;
    let orders: &[Order] = match is_long {
        true => &[Order::InTurn, Order::Random(1)],
        false => &[Order::InTurn, Order::Random(1), Order::Random(2), Order::Random(3)],
    };
    let (warm, calls) = if is_long { (WARM_LONG, 2) } else { (WARM, 4) };
    orders.iter().fold(Moves::default(), |most, order| {
        let mut all = Members::new(members, in_groups, *order);
        (0..warm).for_each(|_| _ = all.call(operation));
        (0..calls).fold(most, |most, _| most.most(all.call(operation)))
    })
}

/// What stands in the table.
const TABLE: &str = include_str!("../../../../tests/bench/growth/collectives.md");

#[test]
fn the_table_shows_how_the_code_grows() {
    let mut table = traffic::Table::default();
    for operation in ALL {
        table.row(&operation.name(), |members| count(operation, members, true));
    }
    table.row("barrier, one counter", |members| count(Barrier, members, false));
    table.check(TABLE, "collectives.md");
}

/// With √n members in a group, a counter is moved at most once for each member of a group, or each group.
#[test]
fn no_line_is_written_by_more_than_about_the_root_of_all_members() {
    for operation in [Barrier, Bcast(SHORT), Allgather(SHORT), Reduce(SHORT), Allreduce(SHORT), Allreduce(LONG)] {
        for members in traffic::NUMBERS {
            let moves = count(operation, members, true);
            assert!(moves.line <= u64::from(members).isqrt() + 3, "{operation:?} of {members}: {moves:?}");
        }
    }
}

/// The groups at the same time, then their counters, then what the last one tells the others: no member looks at all others.
#[test]
fn the_chain_of_a_barrier_and_of_a_broadcast_grows_with_the_root_of_all_members() {
    for operation in [Barrier, Bcast(SHORT)] {
        for members in traffic::NUMBERS {
            let moves = count(operation, members, true);
            assert!(moves.chain <= 2 * u64::from(members).isqrt() + 5, "{operation:?} of {members}: {moves:?}");
            assert!(
                moves.member <= 5 && moves.all <= 2 * u64::from(members) + 16,
                "{operation:?} of {members}: {moves:?}"
            );
        }
    }
}

/// Each group packs its data at the same time, then readers read those of a group from at most two lines.
#[test]
fn short_data_of_many_members_are_read_from_few_lines() {
    for operation in [Gather(SHORT), Allgather(SHORT), Reduce(SHORT), Allreduce(SHORT), Scan(SHORT)] {
        for members in [32, 64, 128] {
            let (moves, members) = (count(operation, members, true), u64::from(members));
            let root = members.isqrt();
            // Readers that do not wait for all look whether each group is complete, and read the marks of their own.
            let steps = if operation == Scan(SHORT) { 6 } else { 5 };
            assert!(moves.chain <= steps * root + 8, "{operation:?} of {members}: {moves:?}");
            assert!(moves.member <= 4 * root + 4, "{operation:?} of {members}: {moves:?}");
            assert!(moves.all <= members * (2 * root + 8), "{operation:?} of {members}: {moves:?}");
        }
    }
}

#[test]
fn the_longest_data_that_are_packed_move_less_than_longer_ones() {
    for operation in [Gather, Allgather, Allreduce, Scan] {
        for members in [32, 128] {
            let [packed, longer] = [0, 4].map(|more| count(operation(PACKED as u64 + more), members, true));
            assert!(packed.chain < longer.chain, "{members}: {packed:?} {longer:?}");
        }
    }
}

/// Each member writes its vector, combines a slice of all vectors, and reads the other slices.
#[test]
fn each_member_combines_a_slice_of_long_vectors() {
    let lines = LONG / 64;
    // Of a scan, it also writes the results of its slice to where all read them.
    for (operation, times, numbers) in [(Allreduce(LONG), 3, [4, 16, 64]), (Scan(LONG), 4, [8, 16, 64])] {
        let share = times * lines + 16;
        for members in numbers {
            let moves = count(operation, members, true);
            let (longest, root) = (moves.chain, u64::from(members).isqrt());
            assert!(moves.member <= share && longest <= share + 4 * root, "{operation:?} of {members}: {moves:?}");
        }
    }
}

/// The last one combines short vectors alone, but not so many of them that the others wait long.
#[test]
fn a_member_combines_a_bounded_number_of_bytes() {
    let most = (0..=16).map(|log| {
        let moves = count(Allreduce(SHORT.max(1 << log)), 128, true);
        moves.chain
    });
    assert!(most.clone().max() < Some(5 << 10), "{:?}", most.collect::<Vec<_>>());
    for (members, log) in [17, 32, 64, 128].into_iter().flat_map(|members| (5..=12).map(move |log| (members, log))) {
        let moves = count(Allreduce(1 << log), members, true);
        assert!(moves.chain < (64 << 10) / 64, "{} bytes, {members}: {moves:?}", 1 << log);
    }
}

#[test]
fn a_member_needs_as_much_memory_among_many_as_among_few() {
    let each = |members: u32| (Shape { members, slot: SLOT, in_groups: true }).total() / members as usize;
    let few = each(16);
    assert!([32, 128, 1024].into_iter().all(|members| each(members) < few));
    assert!(few < 1 << 20, "{few}");
}
