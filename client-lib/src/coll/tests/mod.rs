//! Every collective, in worlds of 1 to 130 ranks simulated in one thread, compared with the result that the standard
//! defines.

mod case;
mod counts;
mod engines;
mod failures;
mod fold;
mod inter;
mod net;
mod world;

use case::{Case, Kind, algorithms, layout};
use fold::Op;
use world::Dice;

/// Sizes of worlds: all small ones, and some large ones.
const SIZES: [u32; 20] = [1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16, 17, 32, 64, 130];

#[test]
fn every_collective_gives_each_rank_its_result_and_touches_nothing_else() {
    for kind in Kind::ALL {
        for size in SIZES {
            let samples = if size <= 17 { 6 } else { 1 };
            for sample in 0..samples {
                let mut dice = Dice::new(u64::from(size) << 32 | sample << 8 | kind as u64);
                let case = Case::sample(kind, size, &mut dice);
                case.run(net::Net::new(size, dice.next()));
            }
        }
    }
}

#[test]
fn every_algorithm_gives_each_rank_its_result_on_every_kind_of_layout() {
    for kind in Kind::ALL {
        for (number, how) in algorithms(kind, 37).into_iter().map(Some).chain([None]).enumerate() {
            for size in [2, 3, 6, 7, 12, 15] {
                for sample in 0..12 {
                    let mut dice = Dice::new(u64::from(size) << 32 | sample << 16 | (number as u64) << 8 | kind as u64);
                    let mut case = Case::sample(kind, size, &mut dice);
                    // Zero elements, fewer than ranks, a few for each, and enough for several segments.
                    case.count = [0, 1, 5, 100][sample as usize % 4];
                    (case.how, case.in_place) = (how, sample % 2 == 1);
                    (case.op, case.layout) = ([Op::Sum, Op::Compose][sample as usize / 2 % 2], layout(size, &mut dice));
                    case.run(net::Net::new(size, dice.next()));
                }
            }
        }
    }
}

#[test]
fn every_collective_gives_each_rank_its_result_over_engines_and_an_odd_transport() {
    for kind in Kind::ALL {
        for size in SIZES {
            let samples = if size <= 8 { 2 } else { u64::from(size <= 32 || kind == Kind::Allreduce) };
            for sample in 0..samples {
                let mut dice = Dice::new(u64::from(size) << 32 | sample << 8 | kind as u64 | 1 << 40);
                let mut case = Case::sample(kind, size, &mut dice);
                case.count = case.count.min(if size <= 8 { 300 } else { 20 });
                case.run(engines::Engines::new(size, dice.next()));
            }
        }
    }
}
