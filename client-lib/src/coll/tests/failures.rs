//! A collective in which something fails ends on every rank, and no rank takes a wrong result for a right one.

use std::cell::OnceCell;

use super::super::run::Progress;
use super::case::{Case, Kind, algorithms};
use super::engines::Engines;
use super::net::Net;
use super::world::{Dice, Fabric};

/// Runs worlds of every kind in which a rank dies during the operation; returns in how many of them a rank failed.
fn worlds_where_one_dies<F: Fabric>(
    sizes: &[u32],
    samples: u64,
    make: impl Fn(u32, u64) -> F,
    kill: impl Fn(&mut F, u32),
) -> usize {
    let mut failed = 0;
    for kind in Kind::ALL {
        for &size in sizes {
            for sample in 0..samples {
                let mut dice = Dice::new(u64::from(size) << 32 | sample << 8 | kind as u64 | 1 << 60);
                let mut case = Case::sample(kind, size, &mut dice);
                case.count = case.count.clamp(1, 600);
                let victim = dice.below(u64::from(size)) as u32;
                let steps = dice.below(40);
                let well = case.run_failing(make(size, dice.next()), |world, runs, dice| {
                    for _ in 0..steps {
                        let rank = dice.below(u64::from(size)) as u32;
                        while let Progress::Call(call) = runs[rank as usize].advance(&mut world.courier(rank)) {
                            call.perform();
                        }
                        world.stir(dice);
                    }
                    kill(world, victim);
                    Some(victim)
                });
                failed += usize::from(well < size as usize - 1);
            }
        }
    }
    failed
}

#[test]
fn when_a_rank_dies_all_others_return_and_a_rank_with_missing_data_gets_an_error() {
    let failed = worlds_where_one_dies(&[2, 3, 5, 8, 13, 16], 6, Net::new, Net::kill);
    assert!(failed > 100, "only {failed} worlds noticed");
}

#[test]
fn when_a_process_dies_all_others_return_over_engines() {
    let failed = worlds_where_one_dies(&[2, 5, 8], 2, Engines::new, Engines::kill);
    assert!(failed > 20, "only {failed} worlds noticed");
}

#[test]
fn ranks_that_disagree_about_the_length_get_an_error() {
    for kind in [Kind::Bcast, Kind::Allreduce, Kind::Allgather, Kind::Alltoall, Kind::Scan] {
        let mut case = Case::sample(kind, 4, &mut Dice::new(3));
        (case.count, case.in_place, case.root) = (8, false, 0);
        case.how = algorithms(kind, 8).first().copied();
        for count in [4, 16] {
            let wrong = Case { count, prefixes: OnceCell::new(), ..case.clone() };
            let results = case.run_mixed(&wrong, 0, Net::new(4, 1));
            // Every MPI library accepts a gather with more room than data.
            let is_lenient = count == 4 && !matches!(kind, Kind::Allreduce | Kind::Scan);
            assert!(is_lenient || results.iter().any(Result::is_err), "{kind:?}: {results:?}");
        }
    }
}
