//! One collective call of a whole world: its arguments, the memory of each rank before it, and the memory that each
//! must have after it.

#![expect(unsafe_code, reason = "lends memory, as the C boundary does")]

use std::cell::OnceCell;
use std::fmt;
use std::sync::Arc;

use super::super::choice::{self, Allgather, Alltoall, Bcast, Call, Gather, Reduce, ReduceScatter};
use super::super::halving::Vector;
use super::super::operands::{Memory, Operands};
use super::super::run::Run;
use super::super::schedule::{Area, Here, Schedule, Slice};
use super::super::{allgather, barrier, scan};
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
    pub(super) root: u32,
    pub(super) in_place: bool,
    /// Elements of each block or vector.
    pub(super) count: u64,
    /// For blocks of several lengths: elements from rank i to rank j.
    pub(super) uneven: bool,
    pub(super) op: Op,
    /// Whether elements have holes at the sender, and at the receiver.
    pub(super) holes: [bool; 2],
    /// Which algorithm: `None` for the table's choice, or a number.
    pub(super) how: Option<usize>,
    /// The operation is a user function, called outside the run.
    pub(super) user: bool,
    pub(super) seed: u64,
    /// `prefixes[rank]`: the vectors of the ranks up to this one, combined.
    pub(super) prefixes: OnceCell<Vec<Vec<u8>>>,
}

impl fmt::Debug for Case {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { kind, size, root, in_place, count, uneven, op, holes, how, user, seed, prefixes: _ } = self;
        let place = if *in_place { "in place" } else { "apart" };
        write!(f, "{kind:?} of {size}, root {root}, {place}, {count} elements, uneven {uneven}, {op:?}, ")?;
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
        let classes = [0, 1, 2 + dice.below(20), n.min(40), long / 3, 1 + dice.below(1 + long / 10), long];
        Self {
            kind,
            size,
            root: dice.below(n) as u32,
            in_place: dice.flip(),
            count: dice.one_of(&classes),
            uneven: matches!(
                kind,
                Kind::Gatherv | Kind::Scatterv | Kind::Allgatherv | Kind::Alltoallv | Kind::ReduceScatter
            ),
            op: dice.one_of(&[Op::Sum, Op::Compose]),
            holes: dice.one_of(&[[false; 2], [false; 2], [true; 2], [true, false], [false, true]]),
            how: dice.one_of(&[None, Some(0), Some(1), Some(2)]),
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
        let shape = self.shape(0);
        let unit = shape.unit as u64;
        let (root, block) = (self.root, self.count * unit);
        let blocks = block * u64::from(here.size);
        let vector = Vector { count: self.count, unit };
        let is_root = here.rank == root;
        let in_place = self.in_place;
        let commutes = self.op == Op::Sum;
        let lens = |len: &dyn Fn(u32) -> u64| -> Vec<u64> { (0..here.size).map(|rank| len(rank) * unit).collect() };
        let from = lens(&|from| self.between(from, here.rank));
        let to = lens(&|to| self.between(here.rank, to));
        match self.kind {
            Kind::Gatherv => return choice::gatherv(here, root, self.between(here.rank, root) * unit, &from, in_place),
            Kind::Scatterv => return choice::scatterv(here, root, &to, self.between(root, here.rank) * unit, in_place),
            Kind::Allgatherv => return choice::allgatherv(here, self.between(here.rank, 0) * unit, &from, in_place),
            Kind::Alltoallv => return choice::alltoallv(here, (!in_place).then_some(&to), &from),
            Kind::ReduceScatter => {
                let counts: Vec<u64> = (0..here.size).map(|rank| self.between(0, rank)).collect();
                return choice::reduce_scatterv(here, &counts, unit, commutes, in_place);
            }
            _ => {}
        }
        let Some(how) = self.how else { return self.call(vector, block, commutes).schedule(here) };
        let recv = |len: u64| Slice::all(Area::Recv, len);
        let own = |in_place: bool, len: u64| Slice::all(if in_place { Area::Recv } else { Area::Send }, len);
        let mine = own(in_place, block);
        let at_root = |among: Area, apart: Area| {
            if in_place && is_root {
                Slice { area: among, at: u64::from(root) * block, len: block }
            } else {
                Slice::all(apart, block)
            }
        };
        let gather = [Gather::Binomial, Gather::Linear][how % 2];
        let reduce = [Reduce::Whole, Reduce::Halving][how % 2];
        match self.kind {
            _ if block == 0 => Schedule::default(),
            Kind::Barrier => barrier::dissemination(here),
            Kind::Bcast => {
                let how = [Bcast::Binomial, Bcast::ScatterAllgather, Bcast::Chain(1 + block / 5)][how];
                choice::bcast(here, how, root, block)
            }
            Kind::Gather => choice::gather(here, gather, root, at_root(Area::Recv, Area::Send), recv(blocks)),
            Kind::Scatter => {
                let all = Slice::all(Area::Send, blocks);
                choice::scatter(here, gather, root, all, at_root(Area::Send, Area::Recv))
            }
            Kind::Allgather if how == 2 => {
                let mut schedule = Schedule::default();
                let place = |rank: u32| recv(blocks).part(u64::from(rank) * block, block);
                let own = if in_place { place(here.rank) } else { Slice::all(Area::Send, block) };
                allgather::bruck(&mut schedule, here, own, place);
                schedule
            }
            Kind::Allgather => {
                let how = [Allgather::Logarithmic, Allgather::Ring][how];
                choice::allgather(here, how, recv(blocks), block, in_place)
            }
            Kind::Alltoall => {
                let how = [Alltoall::Bruck, Alltoall::Spread(3), Alltoall::Spread(u32::MAX)][how];
                choice::alltoall(here, how, block, in_place)
            }
            Kind::Reduce => {
                choice::reduce(here, reduce, root, own(in_place && is_root, block), recv(block), vector, commutes)
            }
            Kind::Allreduce => choice::allreduce(here, reduce, mine, recv(block), vector, commutes),
            Kind::ReduceScatterBlock => {
                let how = [ReduceScatter::OfAll, ReduceScatter::Halving, ReduceScatter::Spread][how];
                let part = |rank: u32| (u64::from(rank) * block, block);
                choice::reduce_scatter(here, how, own(in_place, blocks), part, recv(block), commutes)
            }
            Kind::Scan => scan::inclusive(here, mine, recv(block)),
            Kind::Exscan => scan::exclusive(here, mine, recv(block)),
            Kind::Gatherv | Kind::Scatterv | Kind::Allgatherv | Kind::Alltoallv | Kind::ReduceScatter => unreachable!(),
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
