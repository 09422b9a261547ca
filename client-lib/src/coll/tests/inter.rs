//! Every collective of two groups, for all small sizes and some large ones, from every root.

#![expect(unsafe_code, reason = "lends memory, as the C boundary does")]

use std::sync::Arc;

use super::super::halving::Vector;
use super::super::inter::{self, Root, Sides};
use super::super::operands::{Memory, Operands};
use super::super::run::Run;
use super::super::schedule::{Area, Schedule, Slice};
use super::engines::Engines;
use super::fold::{self, Op};
use super::net::Net;
use super::world::{self, Dice, Fabric};
use crate::memory::Buffer;

/// Two groups; ranks of the union below `first` are in the first group.
#[derive(Debug, Clone, Copy)]
struct Pair {
    first: u32,
    second: u32,
}

/// One process's schedule, its buffers, and the bytes that it must have received in the end.
struct Part {
    schedule: Schedule,
    send: Vec<u8>,
    received: Vec<u8>,
}

impl Pair {
    /// Groups from 1 + 1 to 5 + 3, in both orders, and some of very different sizes.
    fn all() -> impl Iterator<Item = Self> {
        let small = (1..=5).flat_map(|first| (1..=3).map(move |second| (first, second)));
        let more = [(1, 5), (3, 4), (2, 9), (16, 1), (7, 8)];
        small.chain(more).map(|(first, second)| Self { first, second })
    }

    fn size(self) -> u32 {
        self.first + self.second
    }

    fn sides(self, all: u32) -> Sides {
        let Self { first, second } = self;
        match all < first {
            true => Sides { rank: all, local: first, remote: second, local_first: true },
            false => Sides { rank: all - first, local: second, remote: first, local_first: false },
        }
    }

    /// The ranks in the union of the group that this one is not in.
    fn others(self, all: u32) -> std::ops::Range<u32> {
        if all < self.first { self.first..self.size() } else { 0..self.first }
    }

    fn group(self, all: u32) -> std::ops::Range<u32> {
        if all < self.first { 0..self.first } else { self.first..self.size() }
    }

    /// How a process names the root.
    fn root(self, all: u32, root: u32) -> Root {
        match (all < self.first) == (root < self.first) {
            _ if all == root => Root::This,
            true => Root::Beside,
            false => Root::Remote(if root < self.first { root } else { root - self.first }),
        }
    }

    /// Runs every part over two kinds of world.
    fn run(self, seed: u64, op: Option<Op>, part: impl Fn(u32) -> Part) {
        self.run_over(Net::new(self.size(), seed), seed, op, &part);
        if self.size() <= 8 && part(0).send.len() < 2000 {
            self.run_over(Engines::new(self.size(), seed), seed, op, &part);
        }
    }

    fn run_over<F: Fabric>(self, mut fabric: F, seed: u64, op: Option<Op>, part: &impl Fn(u32) -> Part) {
        let mut parts: Vec<Part> = (0..self.size()).map(part).collect();
        let mut received: Vec<Vec<u8>> = parts.iter().map(|part| vec![0xee; part.received.len()]).collect();
        let elements = op.map(|op| fold::without_holes(op.unit()));
        let runs = parts.iter_mut().zip(&mut received).zip(0..).map(|((part, received), rank)| {
            world::assert_orderly(&part.schedule, rank, self.size());
            let operands = Operands {
                send: lend(&mut part.send),
                recv: lend(received),
                elements: elements.clone(),
                ..Operands::default()
            };
            let reduction = op.zip(elements.as_ref()).map(|(op, elements)| op.reduction(elements, false, false));
            let mut run = Run::default();
            run.prepare(Arc::new(part.schedule.clone()), operands, reduction, 3, None).unwrap();
            run
        });
        let mut runs: Vec<_> = runs.collect();
        let results = world::drive(&mut fabric, &mut runs, &mut Dice::new(seed), None);
        fabric.assert_empty();
        for (rank, result) in results.into_iter().enumerate() {
            assert_eq!(result, Ok(()), "rank {rank} of {self:?}");
            assert!(received[rank] == parts[rank].received, "rank {rank} of {self:?} has something else");
        }
    }
}

fn lend(bytes: &mut [u8]) -> Memory {
    // SAFETY: the bytes live as long as the runs.
    let buffer = unsafe { Buffer::contiguous(bytes.as_mut_ptr(), bytes.len()) };
    Memory::new(bytes.as_mut_ptr(), buffer)
}

/// The bytes that one process has for another.
fn bytes(from: u32, to: u32, len: u64) -> Vec<u8> {
    (0..len).map(|at| (from * 89 + to * 31 + 7).wrapping_add(at as u32 * 13) as u8).collect()
}

const LENS: [u64; 5] = [0, 1, 9, 700, 40_000];

/// Runs `body` for each pair with each length that is not too long for it, and a seed.
fn with_lens(body: impl Fn(Pair, u64, u64)) {
    for pair in Pair::all() {
        for (index, len) in LENS.into_iter().enumerate() {
            if len < 1000 || pair.size() % 4 == 3 {
                body(pair, len, u64::from(pair.first * 100 + pair.second) * 10 + index as u64);
            }
        }
    }
}

/// The roots to try: all of them where that is quick.
fn roots(pair: Pair, len: u64) -> Vec<u32> {
    if len < 1000 { (0..pair.size()).collect() } else { vec![0, pair.first - 1, pair.size() - 1] }
}

#[test]
fn a_root_broadcasts_to_the_other_group_only() {
    with_lens(|pair, len, seed| {
        for root in roots(pair, len) {
            pair.run(seed, None, |me| {
                let place = pair.root(me, root);
                let received = if place == Root::Beside { bytes(me, me, len) } else { bytes(root, 0, len) };
                // The data of a broadcast lie in the receive area: the root fills it first.
                let mut schedule = Schedule::default();
                if !matches!(place, Root::Remote(_)) {
                    schedule.copy(Slice::all(Area::Send, len), Slice::all(Area::Recv, len));
                }
                let broadcast = inter::bcast(pair.sides(me), place, len);
                schedule.embed(&broadcast, |rank| rank, |area| Slice::all(area, len));
                Part { schedule, send: received.clone(), received }
            });
        }
    });
}

#[test]
fn a_root_gathers_from_the_other_group_and_scatters_to_it() {
    with_lens(|pair, len, seed| {
        let of = |rank: u32| if rank % 3 == 1 { 0 } else { len };
        for root in roots(pair, len) {
            // `offset[rank]` of the others' blocks, at the root.
            let at = |rank: u32| pair.others(root).take_while(|it| *it < rank).map(of).sum::<u64>();
            let name = |rank: u32| pair.others(root).start + rank;
            let all = |of_rank: &dyn Fn(u32) -> Vec<u8>| pair.others(root).flat_map(of_rank).collect::<Vec<u8>>();
            let slice = |area: Area, rank: u32| Slice { area, at: at(name(rank)), len: of(name(rank)) };
            pair.run(seed, None, |me| {
                let place = pair.root(me, root);
                let own = Slice::all(Area::Send, of(me));
                let schedule = inter::gather(pair.sides(me), place, own, |rank| slice(Area::Recv, rank));
                let received = if place == Root::This { all(&|from| bytes(from, root, of(from))) } else { Vec::new() };
                Part { schedule, send: bytes(me, root, of(me)), received }
            });
            pair.run(seed, None, |me| {
                let place = pair.root(me, root);
                let own = Slice::all(Area::Recv, of(me));
                let schedule = inter::scatter(pair.sides(me), place, |rank| slice(Area::Send, rank), own);
                let send = if place == Root::This { all(&|to| bytes(root, to, of(to))) } else { Vec::new() };
                let received = if let Root::Remote(_) = place { bytes(root, me, of(me)) } else { Vec::new() };
                Part { schedule, send, received }
            });
        }
    });
}

#[test]
fn each_of_one_group_exchanges_with_each_of_the_other() {
    with_lens(|pair, len, seed| {
        let of = |from: u32, to: u32| if (from + 2 * to) % 4 == 1 { 0 } else { len };
        for window in [1, 3, 16] {
            pair.run(seed, None, |me| {
                let name = |rank: u32| pair.others(me).start + rank;
                let to = |rank: u32| {
                    let at = pair.others(me).take_while(|it| *it < name(rank)).map(|it| of(me, it)).sum();
                    Slice { area: Area::Send, at, len: of(me, name(rank)) }
                };
                let from = |rank: u32| {
                    let at = pair.others(me).take_while(|it| *it < name(rank)).map(|it| of(it, me)).sum();
                    Slice { area: Area::Recv, at, len: of(name(rank), me) }
                };
                let schedule = inter::exchange(pair.sides(me), window, to, from);
                let send = pair.others(me).flat_map(|it| bytes(me, it, of(me, it))).collect();
                let received = pair.others(me).flat_map(|it| bytes(it, me, of(it, me))).collect();
                Part { schedule, send, received }
            });
        }
    });
}

/// The operands of a group, reduced in the order of ranks.
fn reduced(op: Op, ranks: std::ops::Range<u32>, len: u64) -> Vec<u8> {
    let mut all = bytes(ranks.start, 0, len);
    for rank in ranks.skip(1) {
        let mut next = bytes(rank, 0, len);
        op.apply(&all, &mut next);
        all = next;
    }
    all
}

/// Vectors of both operations; one of the operations does not commute.
fn with_vectors(body: impl Fn(Pair, Op, Vector, u64)) {
    with_lens(|pair, len, seed| {
        for op in [Op::Sum, Op::Compose] {
            body(pair, op, Vector { count: len / 8, unit: op.unit() as u64 }, seed);
        }
    });
}

#[test]
fn a_group_is_reduced_to_a_root_in_the_other_one() {
    with_vectors(|pair, op, vector, seed| {
        for root in roots(pair, vector.len()) {
            pair.run(seed, Some(op), |me| {
                let place = pair.root(me, root);
                let schedule = inter::reduce(pair.sides(me), place, vector, op == Op::Sum);
                let received = match place {
                    Root::This => reduced(op, pair.others(me), vector.len()),
                    Root::Beside | Root::Remote(_) => Vec::new(),
                };
                Part { schedule, send: bytes(me, 0, vector.len()), received }
            });
        }
    });
}

#[test]
fn both_groups_get_the_result_of_the_other_group() {
    with_vectors(|pair, op, vector, seed| {
        pair.run(seed, Some(op), |me| Part {
            schedule: inter::allreduce(pair.sides(me), vector, op == Op::Sum),
            send: bytes(me, 0, vector.len()),
            received: reduced(op, pair.others(me), vector.len()),
        });
    });
}

#[test]
fn both_groups_scatter_the_result_of_the_other_group() {
    with_vectors(|pair, op, vector, seed| {
        pair.run(seed, Some(op), |me| {
            // Some ranks get nothing, the last one the rest.
            let size = pair.group(me).len() as u64;
            let each = vector.count / size / 2;
            let count = |rank: u64| if rank + 1 == size { vector.count - rank * each } else { each };
            let part = |rank: u32| (u64::from(rank) * each * vector.unit, count(u64::from(rank)) * vector.unit);
            let sides = pair.sides(me);
            let (at, len) = part(sides.rank);
            let all = reduced(op, pair.others(me), vector.len());
            Part {
                schedule: inter::reduce_scatter(sides, vector, part, op == Op::Sum),
                send: bytes(me, 0, vector.len()),
                received: all[at as usize..(at + len) as usize].to_vec(),
            }
        });
    });
}
