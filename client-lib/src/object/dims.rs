//! Lays out processes in dimensions (MPI 5.0 §8.5.2), as equal in length as the divisors permit.

use std::cmp::Ordering;

use crate::abi::constants::MPI_ERR_DIMS;
use crate::error::{MpiError, MpiResult};

/// Fills in the dimensions that are 0, the largest first, so that the product of all is `nodes`. Fails with class
/// `MPI_ERR_DIMS` if the given dimensions do not divide it, or are negative.
pub fn create(nodes: i32, dims: &mut [i32]) -> MpiResult {
    if nodes < 1 {
        return Err(MpiError::arg(format!("invalid number of processes {nodes}")));
    }
    let failed = |text: String| Err(MpiError::new(MPI_ERR_DIMS, text));
    let mut rest = i64::from(nodes);
    for dim in dims.iter().filter(|dim| **dim != 0) {
        if *dim < 0 || rest % i64::from(*dim) != 0 {
            return failed(format!("{nodes} processes are not divisible by the dimension {dim}"));
        }
        rest /= i64::from(*dim);
    }
    let free = dims.iter().filter(|dim| **dim == 0).count();
    if free == 0 && rest != 1 {
        return failed(format!("all dimensions are given, and their product is less than {nodes}"));
    }
    let mut found = balanced(rest as u32, free).into_iter();
    for dim in dims.iter_mut().filter(|dim| **dim == 0) {
        *dim = found.next().map_or(1, |factor| factor as i32);
    }
    Ok(())
}

/// Splits a number into `factors` factors, the largest first, such that the largest and the smallest differ least; among
/// those, such that the smallest is largest, then the second smallest, and so on: no thin boxes, as in other libraries.
///
/// The search tries the divisors for the largest factor from the root upwards, and prunes what cannot improve on the best: a few
/// thousand steps for the numbers below 2^31 with most divisors.
fn balanced(number: u32, factors: usize) -> Vec<u32> {
    let divisors: Vec<u32> = {
        let root = (1_u32..=46340).take_while(|divisor| u64::from(*divisor).pow(2) <= u64::from(number));
        let low: Vec<u32> = root.filter(|divisor| number.is_multiple_of(*divisor)).collect();
        let high = low.iter().rev().map(|divisor| number / divisor).filter(|high| Some(high) != low.last());
        low.iter().copied().chain(high).collect()
    };
    let mut search = Search { divisors: &divisors, chosen: Vec::new(), best: Vec::new() };
    if factors > 0 {
        search.go(number, factors);
    }
    search.best
}

struct Search<'a> {
    divisors: &'a [u32],
    chosen: Vec<u32>,
    best: Vec<u32>,
}

impl Search<'_> {
    /// Chooses the remaining factors, none larger than the last one chosen.
    fn go(&mut self, number: u32, factors: usize) {
        let largest = self.chosen.first().copied();
        if factors == 1 {
            if self.chosen.last().is_none_or(|last| number <= *last) {
                self.chosen.push(number);
                if self.is_better() {
                    self.best.clone_from(&self.chosen);
                }
                self.chosen.pop();
            }
            return;
        }
        let limit = self.chosen.last().copied().unwrap_or(u32::MAX);
        for index in 0..self.divisors.len() {
            let divisor = self.divisors[index];
            if divisor > limit {
                break;
            }
            // The largest factor is not below the root, and the smallest not above it.
            if !number.is_multiple_of(divisor) || power(divisor, factors) < u64::from(number) {
                continue;
            }
            let largest = largest.unwrap_or(divisor);
            let smallest = self.smallest_possible(largest);
            if power(smallest, factors) > u64::from(number) {
                // All further choices have a larger spread than the best.
                if self.chosen.is_empty() {
                    break;
                }
                continue;
            }
            self.chosen.push(divisor);
            self.go(number / divisor, factors - 1);
            self.chosen.pop();
        }
    }

    /// The minimum of the last factor for the spread not to be larger than the best one's.
    fn smallest_possible(&self, largest: u32) -> u32 {
        spread(&self.best).map_or(1, |best| largest.saturating_sub(best).max(1))
    }

    fn is_better(&self) -> bool {
        let (new, best) = (&self.chosen, &self.best);
        match spread(new).cmp(&spread(best)) {
            _ if best.is_empty() => true,
            Ordering::Equal => new.iter().rev().gt(best.iter().rev()),
            less_or_more => less_or_more.is_lt(),
        }
    }
}

/// By how much the first, largest factor exceeds the last.
fn spread(factors: &[u32]) -> Option<u32> {
    Some(factors.first()? - factors.last()?)
}

/// Saturating.
fn power(base: u32, exponent: usize) -> u64 {
    (0..exponent).fold(1_u64, |product, _| product.saturating_mul(u64::from(base)))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn of(nodes: i32, dims: &[i32]) -> Result<Vec<i32>, i32> {
        let mut dims = dims.to_vec();
        create(nodes, &mut dims).map(|()| dims).map_err(|error| error.class)
    }

    #[test]
    fn the_examples_of_the_standard_hold() {
        assert_eq!(of(6, &[0, 0]), Ok(vec![3, 2]));
        assert_eq!(of(7, &[0, 0]), Ok(vec![7, 1]));
        assert_eq!(of(6, &[0, 3, 0]), Ok(vec![2, 3, 1]));
        assert_eq!(of(7, &[0, 3, 0]), Err(MPI_ERR_DIMS));
        assert_eq!((of(6, &[-1, 0]), of(6, &[2, 2]), of(6, &[2, 3]), of(1, &[])).1, Err(MPI_ERR_DIMS));
        assert_eq!((of(6, &[2, 3]), of(1, &[]), of(16, &[0, 0, 0])), (Ok(vec![2, 3]), Ok(vec![]), Ok(vec![4, 2, 2])));
        assert_eq!(of(72, &[0, 0, 0]), Ok(vec![6, 4, 3]));
        assert_eq!(of(i32::MAX, &[0, 0]), Ok(vec![i32::MAX, 1]));
    }

    #[test]
    fn of_equal_spreads_the_one_with_the_largest_small_factors_is_taken() {
        assert_eq!(of(5040, &[0; 3]), Ok(vec![21, 16, 15]));
        assert_eq!(of(10800, &[0; 3]), Ok(vec![27, 20, 20]));
        assert_eq!(of(6240, &[0; 3]), Ok(vec![26, 16, 15]));
        assert_eq!(of(590_520, &[0; 4]), Ok(vec![38, 37, 21, 20]));
    }

    #[test]
    fn numbers_with_many_divisors_and_many_dimensions_take_little_time() {
        for dims in 1..40 {
            for nodes in [2_095_133_040, 1 << 30, 1_745_944_200, 735_134_400] {
                let found = of(nodes, &vec![0; dims]).unwrap();
                assert_eq!(found.iter().map(|dim| i64::from(*dim)).product::<i64>(), i64::from(nodes));
                assert!(found.is_sorted_by(|one, next| one >= next));
            }
        }
    }

    proptest! {
        #[test]
        fn no_other_factors_are_closer(number in 1_u32..5000, factors in 1_usize..5) {
            fn all(number: u32, factors: usize, limit: u32) -> Vec<Vec<u32>> {
                if factors == 1 {
                    return if number <= limit { vec![vec![number]] } else { vec![] };
                }
                let divisors = (1..=number.min(limit)).filter(|divisor| number.is_multiple_of(*divisor));
                divisors.flat_map(|first| {
                    all(number / first, factors - 1, first).into_iter().map(move |rest| [vec![first], rest].concat())
                }).collect()
            }
            let rank = |factors: &[u32]| {
                let smallest_first: Vec<u32> = factors.iter().rev().map(|factor| number - factor).collect();
                (spread(factors), smallest_first)
            };
            let found = balanced(number, factors);
            let least = all(number, factors, u32::MAX).iter().map(|factors| rank(factors)).min().unwrap();
            prop_assert_eq!(found.iter().product::<u32>(), number);
            prop_assert_eq!((found.len(), rank(&found)), (factors, least));
        }
    }
}
