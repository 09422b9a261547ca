//! Scans in slices.

use super::super::way::is_sliced;
use super::*;
use crate::abi::constants::{MPI_FLOAT, MPI_MAX, MPI_MIN};

#[test]
fn the_bits_of_a_scan_do_not_depend_on_the_length_of_the_vector() {
    let members = 9;
    // The largest before a NaN, NaNs, and zeros of both signs.
    let of = |rank: u32, at: usize| match (rank, at % 3) {
        (0, 0) => 100.0,
        (5, 0) => f32::NAN,
        (_, 0) => rank as f32,
        (_, 1) if rank.is_multiple_of(3) => -0.0,
        (_, 1) => 0.0,
        _ => 1.0 / (rank + at as u32) as f32,
    };
    let (short, long) = (12, SLOT / 4 + 5);
    let (results, _) = together(members, |node| {
        let mut results = Vec::new();
        for op in [MPI_MAX, MPI_MIN, MPI_SUM] {
            let reduction = reduction(op, MPI_FLOAT);
            for (is_scan, count) in [true, false].into_iter().flat_map(|is_scan| [(is_scan, short), (is_scan, long)]) {
                let vector = Vector { count: count as u64, unit: 4 };
                let call = match is_scan {
                    true => Call::Scan { vector, in_place: false },
                    false => Call::Exscan { vector, in_place: false },
                };
                assert_eq!(is_sliced(call, node.shape()), count == long);
                let mut send: Vec<u32> = (0..count).map(|at| of(node.rank, at).to_bits()).collect();
                let mut recv = vec![7; count];
                let operands = Operands { send: lend(&mut send), recv: lend(&mut recv), ..Operands::default() };
                let mut work = Work::new(call, &operands, Some(&reduction), None, node.shape());
                assert_eq!(wait(&mut work, node), Ok(()));
                results.push(recv);
            }
        }
        results
    });
    for (rank, results) in results.iter().enumerate() {
        for (nth, pair) in results.chunks(2).enumerate() {
            assert_eq!(pair[0], pair[1][..short], "rank {rank}, operation {nth}");
            assert!(pair[1][short..].iter().all(|word| (*word == 7) == (nth % 2 == 1 && rank == 0)), "rank {rank}");
        }
    }
    let last = f32::from_bits(results[8][1][0]);
    assert!(last == 100.0 || last.is_nan(), "the largest of all: {last}");
}
