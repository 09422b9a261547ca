//! One collective call of a whole world: its arguments, the memory of each rank before it, and the memory that each
//! must have after it.

#![expect(unsafe_code, reason = "lends memory, as the C boundary does")]

use std::cell::OnceCell;
use std::fmt;
use std::sync::Arc;

use super::super::choice::algorithms::{
    Allgather, Allreduce, Alltoall, Barrier, Bcast, Gather, Reduce, ReduceScatter, Scan,
};
use super::super::choice::{self, Algorithm, Call};
use super::super::halving::Vector;
use super::super::layout::Layout;
use super::super::operands::{Memory, Operands};
use super::super::run::Run;
use super::super::schedule::{Here, Schedule};
use super::fold::{self, Op};
use super::world::{self, Dice, Fabric};
use crate::abi::constants::MPI_ERR_PROC_ABORTED;
use crate::datatype::TypeRef;
use crate::error::MpiResult;
use crate::memory::Buffer;

/// The function under test.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Kind {
    Barrier,
    Bcast,
    Gather,
    Gatherv,
    Scatter,
    Scatterv,
    Allgather,
    Allgatherv,
    Alltoall,
    Alltoallv,
    Reduce,
    Allreduce,
    ReduceScatterBlock,
    ReduceScatter,
    Scan,
    Exscan,
}

impl Kind {
    pub(super) const ALL: [Self; 16] = [
        Self::Barrier,
        Self::Bcast,
        Self::Gather,
        Self::Gatherv,
        Self::Scatter,
        Self::Scatterv,
        Self::Allgather,
        Self::Allgatherv,
        Self::Alltoall,
        Self::Alltoallv,
        Self::Reduce,
        Self::Allreduce,
        Self::ReduceScatterBlock,
        Self::ReduceScatter,
        Self::Scan,
        Self::Exscan,
    ];

    fn reduces(self) -> bool {
        matches!(
            self,
            Self::Reduce | Self::Allreduce | Self::ReduceScatterBlock | Self::ReduceScatter | Self::Scan | Self::Exscan
        )
    }
}

/// One call.
#[derive(Clone)]
pub(super) struct Case {
    pub(super) kind: Kind,
    pub(super) size: u32,
    /// Which ranks share a node.
    pub(super) layout: Layout,
    pub(super) root: u32,
    pub(super) in_place: bool,
    /// Elements of each block or vector.
    pub(super) count: u64,
    /// For blocks of several lengths: elements from rank i to rank j.
    pub(super) uneven: bool,
    pub(super) op: Op,
    /// Whether elements have holes at the sender, and at the receiver.
    pub(super) holes: [bool; 2],
    /// Which algorithm: `None` for the table's choice.
    pub(super) how: Option<Algorithm>,
    /// The operation is a user function, called outside the run.
    pub(super) user: bool,
    pub(super) seed: u64,
    /// `prefixes[rank]`: the vectors of the ranks up to this one, combined.
    pub(super) prefixes: OnceCell<Vec<Vec<u8>>>,
}

impl fmt::Debug for Case {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { kind, size, layout, root, in_place, count, uneven, op, holes, how, user, seed, prefixes: _ } = self;
        let place = if *in_place { "in place" } else { "apart" };
        let nodes: Vec<u32> = (0..*size).map(|rank| layout.node(rank)).collect();
        write!(
            f,
            "{kind:?} of {size}, nodes {nodes:?}, root {root}, {place}, {count} elements, uneven {uneven}, {op:?}, "
        )?;
        write!(f, "holes {holes:?}, algorithm {how:?}, user {user}, seed {seed}")
    }
}

/// The memory of one rank, and the layout of its elements.
struct Lent {
    bytes: Vec<u8>,
    /// The bytes before the call.
    before: Vec<u8>,
    shape: Shape,
    count: usize,
}

/// Elements of `unit` packed bytes; see [`fold::with_holes`].
#[derive(Debug, Clone, Copy)]
struct Shape {
    unit: usize,
    holes: bool,
}

impl Shape {
    fn elements(self) -> TypeRef {
        if self.holes { fold::with_holes(self.unit) } else { fold::without_holes(self.unit) }
    }
}

impl Lent {
    fn new(shape: Shape, count: u64, packed: Option<&[u8]>) -> Self {
        let stride = shape.elements().extent().unsigned_abs() as usize;
        let bytes = vec![0xee; (count as usize + 2) * stride + 64];
        let mut lent = Self { before: bytes.clone(), bytes, shape, count: count as usize };
        if let Some(packed) = packed {
            lent.memory().1.write(0, packed);
            lent.before.clone_from(&lent.bytes);
        }
        lent
    }

    /// The address of the first element, and a buffer of all of them.
    fn memory(&mut self) -> (*mut u8, Buffer) {
        let elements = self.shape.elements();
        let last = (self.count as isize - 1).max(0) * elements.layout().extent();
        let address = self.bytes.as_mut_ptr().wrapping_offset(32 - last.min(0));
        // SAFETY: `new` has left room for all elements on either side; the bytes live as long as the world.
        (address, unsafe { Buffer::new(address, self.count, elements.layout()) })
    }

    fn lend(&mut self) -> Memory {
        let (address, buffer) = self.memory();
        Memory::new(address, buffer)
    }

    /// Asserts that all bytes are as before, except for these packed ones from the first on.
    fn assert_holds(&mut self, packed: Option<&[u8]>, what: impl Fn() -> String) {
        let mut after = Self { bytes: self.before.clone(), before: Vec::new(), ..*self };
        if let Some(packed) = packed {
            after.memory().1.write(0, packed);
        }
        if after.bytes != self.bytes {
            let (is, should) = (self.packed(), after.packed());
            let at = is.iter().zip(&should).position(|(is, should)| is != should);
            panic!(
                "{}: {} of {} packed bytes are wrong, from {at:?} on",
                what(),
                is.iter().zip(&should).filter(|(a, b)| a != b).count(),
                is.len()
            );
        }
    }

    fn packed(&mut self) -> Vec<u8> {
        let (_, buffer) = self.memory();
        let mut packed = vec![0; buffer.len()];
        buffer.read(0, &mut packed);
        packed
    }
}

/// One rank's memory, by area.
#[derive(Default)]
struct Rank {
    send: Option<Lent>,
    recv: Option<Lent>,
    send_to: Vec<Lent>,
    recv_from: Vec<Lent>,
}

impl Case {
    /// A random case.
    pub(super) fn sample(kind: Kind, size: u32, dice: &mut Dice) -> Self {
        let n = u64::from(size);
        // Limits vectors that every rank holds whole, and blocks that every rank has for each other rank.
        let long = match kind {
            Kind::Barrier | Kind::Bcast | Kind::Reduce | Kind::Allreduce | Kind::Scan | Kind::Exscan => 9_000,
            _ => 9_000 / n,
        };
        let long = if size > 17 { long / 10 } else { long };
        let layout = layout(size, dice);
        let classes = [0, 1, 2 + dice.below(20), n.min(40), long / 3, 1 + dice.below(1 + long / 10), long];
        let count = dice.one_of(&classes);
        let algorithms = algorithms(kind, count);
        let how = algorithms.get(dice.below(1 + algorithms.len() as u64) as usize).copied();
        Self {
            kind,
            size,
            layout,
            root: dice.below(n) as u32,
            in_place: dice.flip(),
            count,
            uneven: matches!(
                kind,
                Kind::Gatherv | Kind::Scatterv | Kind::Allgatherv | Kind::Alltoallv | Kind::ReduceScatter
            ),
            op: dice.one_of(&[Op::Sum, Op::Compose]),
            holes: dice.one_of(&[[false; 2], [false; 2], [true; 2], [true, false], [false, true]]),
            how,
            user: dice.flip(),
            seed: dice.next(),
            prefixes: OnceCell::new(),
        }
    }

    /// Runs the case twice over the same schedules, and checks all memory.
    pub(super) fn run<F: Fabric>(&self, mut fabric: F) {
        let mut ranks: Vec<Rank> = (0..self.size).map(|rank| self.before(rank)).collect();
        let mut runs = self.runs(&mut ranks, 7);
        let mut dice = Dice::new(self.seed);
        for round in 0..2 {
            for (rank, result) in world::drive(&mut fabric, &mut runs, &mut dice, None).into_iter().enumerate() {
                assert_eq!(result, Ok(()), "rank {rank} of {self:?}");
            }
            for (rank, memory) in ranks.iter_mut().enumerate() {
                self.check(rank as u32, memory, round);
            }
            fabric.assert_empty();
            runs.iter_mut().for_each(Run::restart);
        }
    }

    /// As [`Case::run`], once, in a world with failures: only where the call reports success must the memory be right.
    /// Returns the number of ranks that succeeded.
    pub(super) fn run_failing<F: Fabric>(
        &self,
        mut fabric: F,
        mut trouble: impl FnMut(&mut F, &mut [Run<F::Id>], &mut Dice) -> Option<u32>,
    ) -> usize {
        let mut ranks: Vec<Rank> = (0..self.size).map(|rank| self.before(rank)).collect();
        let mut runs = self.runs(&mut ranks, 7);
        let mut dice = Dice::new(self.seed);
        let gone = trouble(&mut fabric, &mut runs, &mut dice);
        let results = world::drive(&mut fabric, &mut runs, &mut dice, gone);
        let mut well = 0;
        for (rank, result) in results.into_iter().enumerate().filter(|(rank, _)| Some(*rank as u32) != gone) {
            match result {
                Ok(()) => {
                    self.check(rank as u32, &mut ranks[rank], 0);
                    well += 1;
                }
                Err(error) => {
                    assert_eq!(error.class, MPI_ERR_PROC_ABORTED, "rank {rank}: {error:?}");
                    // A rank that ends because of it must not be taken for the cause.
                    assert!(error.is_secondhand, "{error}");
                }
            }
        }
        well
    }

    /// One rank calls with different arguments: returns what every rank's call returned.
    pub(super) fn run_mixed<F: Fabric>(&self, other: &Self, rank: u32, mut fabric: F) -> Vec<MpiResult> {
        let before = |of: u32| if of == rank { other.before(of) } else { self.before(of) };
        let mut ranks: Vec<Rank> = (0..self.size).map(before).collect();
        let mut runs = self.runs(&mut ranks, 7);
        runs[rank as usize] = other.runs(&mut ranks, 7).swap_remove(rank as usize);
        world::drive(&mut fabric, &mut runs, &mut Dice::new(self.seed), None)
    }

    fn runs<I: Copy>(&self, ranks: &mut [Rank], tag: i32) -> Vec<Run<I>> {
        let run = |(rank, memory): (usize, &mut Rank)| {
            let schedule = self.schedule(Here::new(rank as u32, self.size));
            world::assert_orderly(&schedule, rank as u32, self.size);
            let elements = self.kind.reduces().then(|| self.shape(0).elements());
            let reduction = elements.as_ref().map(|it| self.op.reduction(it, self.user, self.shape(0).holes));
            let lend = |lent: &mut Option<Lent>| lent.as_mut().map_or(Memory::NONE, Lent::lend);
            let all = |lent: &mut [Lent]| lent.iter_mut().map(|lent| lent.memory().1).collect();
            let operands = Operands {
                send: lend(&mut memory.send),
                recv: lend(&mut memory.recv),
                send_to: all(&mut memory.send_to),
                recv_from: all(&mut memory.recv_from),
                elements,
                staged: Vec::new(),
                is_streamed: false,
            };
            let mut run = Run::default();
            run.prepare(Arc::new(schedule), operands, reduction, tag, None).unwrap();
            run
        };
        ranks.iter_mut().enumerate().map(run).collect()
    }

    /// The shape of what is sent (0) or received (1); a reduction has only one.
    fn shape(&self, side: usize) -> Shape {
        let unit = if self.kind.reduces() { self.op.unit() } else { 6 };
        Shape { unit, holes: self.holes[if self.kind.reduces() { 0 } else { side }] }
    }

    /// Elements that one rank sends to another; in a reduce-scatter, the elements of the other rank's part.
    fn between(&self, from: u32, to: u32) -> u64 {
        match self.kind {
            _ if !self.uneven => self.count,
            Kind::Alltoallv if self.in_place => {
                (u64::from(from * to + from + to) * 7 + self.seed % 5) % (self.count + 1)
            }
            Kind::Alltoallv => (u64::from(from * 3 + to * 5) + self.seed % 11) % (self.count + 1),
            Kind::ReduceScatter | Kind::Scatterv => (u64::from(to) * 5 + self.seed % 3) % (self.count + 1),
            _ => (u64::from(from) * 5 + self.seed % 3) % (self.count + 1),
        }
    }

    /// Packed bytes that one rank has for another.
    fn data(&self, from: u32, to: u32, count: u64) -> Vec<u8> {
        let mut dice = Dice::new(self.seed ^ (u64::from(from) << 32) ^ u64::from(to));
        let unit = self.shape(0).unit;
        let mut bytes: Vec<u8> =
            (0..count as usize * unit / 2 + 1).flat_map(|_| (dice.next() as u16).to_ne_bytes()).collect();
        bytes.truncate(count as usize * unit);
        bytes
    }

    /// The bytes that a rank sends: its blocks for all ranks, or its vector.
    fn sends(&self, rank: u32) -> Vec<u8> {
        match self.kind {
            Kind::Barrier => Vec::new(),
            Kind::Bcast | Kind::Gather | Kind::Gatherv | Kind::Allgather | Kind::Allgatherv => {
                self.data(rank, 0, self.between(rank, 0))
            }
            Kind::Scatter | Kind::Scatterv | Kind::Alltoall | Kind::Alltoallv => {
                (0..self.size).flat_map(|to| self.data(rank, to, self.between(rank, to))).collect()
            }
            Kind::Reduce | Kind::Allreduce | Kind::Scan | Kind::Exscan => self.data(rank, 0, self.count),
            Kind::ReduceScatter | Kind::ReduceScatterBlock => {
                self.data(rank, 0, (0..self.size).map(|to| self.between(rank, to)).sum())
            }
        }
    }

    /// The bytes that the standard says a rank receives; `None` if it receives nothing, or if they are not significant.
    fn receives(&self, rank: u32) -> Option<Vec<u8>> {
        let folded = |ranks: u32| -> Option<&[u8]> {
            let prefixes = self.prefixes.get_or_init(|| {
                let mut prefixes: Vec<Vec<u8>> = Vec::new();
                for rank in 0..self.size {
                    let mut next = self.sends(rank);
                    if let Some(before) = prefixes.last() {
                        self.op.apply(before, &mut next);
                    }
                    prefixes.push(next);
                }
                prefixes
            });
            Some(&prefixes[ranks.checked_sub(1)? as usize])
        };
        match self.kind {
            Kind::Barrier => None,
            Kind::Bcast => Some(self.sends(self.root)),
            Kind::Gather | Kind::Gatherv if rank != self.root => None,
            Kind::Gather | Kind::Gatherv | Kind::Allgather | Kind::Allgatherv => {
                Some((0..self.size).flat_map(|from| self.sends(from)).collect())
            }
            Kind::Scatter | Kind::Scatterv if self.in_place && rank == self.root => None,
            Kind::Scatter | Kind::Scatterv => Some(self.data(self.root, rank, self.between(self.root, rank))),
            Kind::Alltoall | Kind::Alltoallv => {
                Some((0..self.size).flat_map(|from| self.data(from, rank, self.between(from, rank))).collect())
            }
            Kind::Reduce if rank != self.root => None,
            Kind::Reduce | Kind::Allreduce => folded(self.size).map(<[u8]>::to_vec),
            Kind::Scan => folded(rank + 1).map(<[u8]>::to_vec),
            Kind::Exscan => folded(rank).map(<[u8]>::to_vec),
            Kind::ReduceScatter | Kind::ReduceScatterBlock => {
                let unit = self.shape(0).unit;
                let start: u64 = (0..rank).map(|to| self.between(0, to)).sum();
                let end = start + self.between(0, rank);
                folded(self.size).map(|all| all[start as usize * unit..end as usize * unit].to_vec())
            }
        }
    }

    /// The memory of a rank before the call.
    fn before(&self, rank: u32) -> Rank {
        let is_root = rank == self.root;
        let in_place = self.in_place
            && match self.kind {
                Kind::Gather | Kind::Gatherv | Kind::Scatter | Kind::Scatterv | Kind::Reduce => is_root,
                Kind::Barrier | Kind::Bcast => false,
                _ => true,
            };
        let (send, recv) = (self.shape(0), self.shape(1));
        let count = |packed: &[u8]| (packed.len() / send.unit) as u64;
        let sends = self.sends(rank);
        let each = |shape: Shape, len: &dyn Fn(u32) -> u64, data: &dyn Fn(u32) -> Option<Vec<u8>>| -> Vec<Lent> {
            (0..self.size).map(|other| Lent::new(shape, len(other), data(other).as_deref())).collect()
        };
        let sent = (!in_place).then(|| Lent::new(send, count(&sends), Some(&sends)));
        let received = |packed: Option<&[u8]>| {
            self.receives(rank).map(|result| {
                let len = count(&result).max(packed.map_or(0, count));
                Lent::new(recv, len, packed)
            })
        };
        // The content of the place of a block that is in place.
        let own_block = |from: u32| (in_place && from == rank).then(|| sends.clone());
        match self.kind {
            Kind::Barrier => Rank::default(),
            Kind::Bcast => Rank { recv: received(is_root.then_some(&sends[..])), ..Rank::default() },
            Kind::Gather | Kind::Allgather => {
                let mut recv = received(None);
                if let (true, Some(recv)) = (in_place, &mut recv) {
                    let at = rank as usize * sends.len();
                    recv.memory().1.write(at, &sends);
                    recv.before.clone_from(&recv.bytes);
                }
                Rank { send: sent, recv, ..Rank::default() }
            }
            Kind::Gatherv if !is_root => Rank { send: sent, ..Rank::default() },
            Kind::Gatherv | Kind::Allgatherv => {
                let recv_from = each(recv, &|from| self.between(from, rank), &own_block);
                Rank { send: sent, recv_from, ..Rank::default() }
            }
            Kind::Scatter => {
                let send = is_root.then(|| Lent::new(send, count(&sends), Some(&sends)));
                Rank { send, recv: received(None), ..Rank::default() }
            }
            Kind::Scatterv => {
                let data = |to: u32| Some(self.data(rank, to, self.between(rank, to)));
                let send_to = if is_root { each(send, &|to| self.between(rank, to), &data) } else { Vec::new() };
                Rank { send_to, recv: received(None), ..Rank::default() }
            }
            Kind::Alltoallv => {
                let data = |to: u32| Some(self.data(rank, to, self.between(rank, to)));
                let send_to = if in_place { Vec::new() } else { each(send, &|to| self.between(rank, to), &data) };
                let before = |from: u32| if in_place { data(from) } else { None };
                let recv_from = each(recv, &|from| self.between(from, rank), &before);
                Rank { send_to, recv_from, ..Rank::default() }
            }
            Kind::Exscan if rank == 0 => {
                let recv = Lent::new(recv, self.count, in_place.then_some(&sends[..]));
                Rank { send: sent, recv: Some(recv), ..Rank::default() }
            }
            Kind::Alltoall
            | Kind::Reduce
            | Kind::Allreduce
            | Kind::ReduceScatter
            | Kind::ReduceScatterBlock
            | Kind::Scan
            | Kind::Exscan => Rank { send: sent, recv: received(in_place.then_some(&sends[..])), ..Rank::default() },
        }
    }

    /// Asserts that all memory of a rank is right, then restores it.
    fn check(&self, rank: u32, memory: &mut Rank, round: u32) {
        let what = |area: &'static str| move || format!("{area} of rank {rank}, round {round} of {self:?}");
        for lent in memory.send.iter_mut().chain(&mut memory.send_to) {
            lent.assert_holds(None, what("send"));
        }
        let expected = self.receives(rank);
        if let Some(recv) = &mut memory.recv {
            recv.assert_holds(expected.as_deref(), what("recv"));
        }
        let mut at = 0;
        for lent in &mut memory.recv_from {
            let len = lent.count * lent.shape.unit;
            lent.assert_holds(expected.as_ref().map(|packed| &packed[at..at + len]), what("recv_from"));
            at += len;
        }
        for lent in memory.recv.iter_mut().chain(&mut memory.recv_from) {
            lent.bytes.copy_from_slice(&lent.before);
        }
    }

    /// One rank's schedule.
    pub(super) fn schedule(&self, here: Here) -> Schedule {
        let unit = self.shape(0).unit as u64;
        let (root, layout, in_place) = (self.root, &self.layout, self.in_place);
        let commutes = self.op == Op::Sum;
        let lens = |len: &dyn Fn(u32) -> u64| -> Vec<u64> { (0..here.size).map(|rank| len(rank) * unit).collect() };
        let from = lens(&|from| self.between(from, here.rank));
        let to = lens(&|to| self.between(here.rank, to));
        let own = |other: u32| self.between(here.rank, other) * unit;
        match self.kind {
            Kind::Gatherv => choice::gatherv(here, root, own(root), &from, in_place),
            Kind::Scatterv => choice::scatterv(here, root, &to, self.between(root, here.rank) * unit, in_place),
            Kind::Allgatherv => choice::allgatherv(here, layout, own(0), &from, in_place),
            Kind::Alltoallv => choice::alltoallv(here, (!in_place).then_some(&to), &from),
            Kind::ReduceScatter => {
                let counts: Vec<u64> = (0..here.size).map(|rank| self.between(0, rank)).collect();
                choice::reduce_scatterv(here, layout, &counts, unit, commutes, in_place)
            }
            _ => {
                let call = self.call(Vector { count: self.count, unit }, self.count * unit, commutes);
                self.how.map_or_else(|| call.schedule(here, layout), |how| call.by(how, here, layout))
            }
        }
    }

    fn call(&self, vector: Vector, block: u64, commutes: bool) -> Call {
        let &Self { root, in_place, .. } = self;
        match self.kind {
            Kind::Barrier => Call::Barrier,
            Kind::Bcast => Call::Bcast { root, len: block },
            Kind::Gather => Call::Gather { root, block, in_place },
            Kind::Scatter => Call::Scatter { root, block, in_place },
            Kind::Allgather => Call::Allgather { block, in_place },
            Kind::Alltoall => Call::Alltoall { block, in_place },
            Kind::Reduce => Call::Reduce { root, vector, commutes, in_place },
            Kind::Allreduce => Call::Allreduce { vector, commutes, in_place },
            Kind::ReduceScatterBlock => Call::ReduceScatterBlock { block: vector, commutes, in_place },
            Kind::Scan => Call::Scan { vector, in_place },
            Kind::Exscan => Call::Exscan { vector, in_place },
            Kind::Gatherv | Kind::Scatterv | Kind::Allgatherv | Kind::Alltoallv | Kind::ReduceScatter => {
                unreachable!("they have no fixed length")
            }
        }
    }
}

/// Ranks on nodes: alike or not, in order or not.
pub(super) fn layout(size: u32, dice: &mut Dice) -> Layout {
    let divisors: Vec<u32> = (1..=size).filter(|each| size.is_multiple_of(*each)).collect();
    let (each, nodes) = (dice.one_of(&divisors), 1 + dice.below(u64::from(size).min(6)) as u32);
    let layout = match dice.below(6) {
        0 => Layout::apart(size),
        1 => Layout::together(size),
        2 => Layout::blocks(size / each, each),
        3 => Layout::of((0..size).map(|rank| rank % (size / each))),
        4 => Layout::of((0..size).map(|rank| rank / nodes)),
        _ => Layout::of((0..size).map(|_| dice.below(u64::from(nodes)))),
    };
    layout.crowded(dice.below(3) == 0)
}

/// All algorithms of a function, for vectors of so many elements.
pub(super) fn algorithms(kind: Kind, count: u64) -> Vec<Algorithm> {
    let segment = 1 + count;
    let gathers = [Gather::Tree(2), Gather::Tree(3), Gather::Linear, Gather::Leaders];
    let scans = [Scan::Doubling, Scan::Chain(segment), Scan::Leaders];
    match kind {
        Kind::Barrier => {
            [Barrier::Dissemination(2), Barrier::Dissemination(4), Barrier::Root, Barrier::Leaders, Barrier::Lanes]
                .map(Algorithm::Barrier)
                .into()
        }
        Kind::Bcast => [
            Bcast::Tree(2),
            Bcast::Tree(5),
            Bcast::ScatterAllgather,
            Bcast::ScatterBruck,
            Bcast::Pipeline(1, segment),
            Bcast::Pipeline(2, segment),
            Bcast::Leaders,
            Bcast::Lanes,
        ]
        .map(Algorithm::Bcast)
        .into(),
        Kind::Gather => gathers.map(Algorithm::Gather).into(),
        Kind::Scatter => gathers.map(Algorithm::Scatter).into(),
        Kind::Allgather => [
            Allgather::Logarithmic(2),
            Allgather::Logarithmic(3),
            Allgather::Ring,
            Allgather::Spread,
            Allgather::Root,
            Allgather::Leaders,
            Allgather::Lanes,
        ]
        .map(Algorithm::Allgather)
        .into(),
        Kind::Alltoall => [
            Alltoall::Bruck(2),
            Alltoall::Bruck(3),
            Alltoall::Bruck(8),
            Alltoall::Spread(3),
            Alltoall::Spread(u32::MAX),
            Alltoall::Lanes,
        ]
        .map(Algorithm::Alltoall)
        .into(),
        Kind::Reduce => [
            Reduce::Tree(2),
            Reduce::Tree(4),
            Reduce::Halving,
            Reduce::ScatterGather,
            Reduce::Pipeline(segment),
            Reduce::Leaders,
            Reduce::Lanes,
        ]
        .map(Algorithm::Reduce)
        .into(),
        Kind::Allreduce => [
            Allreduce::Multiplying(2),
            Allreduce::Multiplying(5),
            Allreduce::Halving,
            Allreduce::ScatterGather,
            Allreduce::Ring,
            Allreduce::Root,
            Allreduce::Leaders,
            Allreduce::Lanes,
        ]
        .map(Algorithm::Allreduce)
        .into(),
        Kind::ReduceScatterBlock => [
            ReduceScatter::OfAll,
            ReduceScatter::Halving,
            ReduceScatter::Spread,
            ReduceScatter::Root,
            ReduceScatter::Leaders,
            ReduceScatter::Lanes,
        ]
        .map(Algorithm::ReduceScatter)
        .into(),
        Kind::Scan => scans.map(Algorithm::Scan).into(),
        Kind::Exscan => scans.map(Algorithm::Exscan).into(),
        Kind::Gatherv | Kind::Scatterv | Kind::Allgatherv | Kind::Alltoallv | Kind::ReduceScatter => Vec::new(),
    }
}
