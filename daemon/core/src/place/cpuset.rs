//! Sets of small numbers: hardware threads by logical index, NUMA nodes.

use std::fmt;
use std::ops::Range;

/// A set of hardware threads by logical index, as bits. It grows as needed. Equal sets compare equal whatever their history.
#[derive(Clone, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct CpuSet {
    /// No trailing zero words.
    words: Vec<u64>,
}

impl CpuSet {
    /// The empty set. As a binding it means "unbound".
    pub const EMPTY: CpuSet = CpuSet { words: Vec::new() };

    /// The set of all numbers in a range.
    pub fn range(range: Range<u32>) -> CpuSet {
        range.collect()
    }

    /// Adds a number.
    pub fn insert(&mut self, cpu: u32) {
        let word = cpu as usize / 64;
        if self.words.len() <= word {
            self.words.resize(word + 1, 0);
        }
        self.words[word] |= 1 << (cpu % 64);
    }

    /// Whether `cpu` is in it.
    pub fn contains(&self, cpu: u32) -> bool {
        self.words.get(cpu as usize / 64).is_some_and(|word| word >> (cpu % 64) & 1 == 1)
    }

    /// How many numbers it has.
    pub fn len(&self) -> u32 {
        self.words.iter().map(|word| word.count_ones()).sum()
    }

    /// Whether it is empty.
    pub fn is_empty(&self) -> bool {
        self.words.is_empty()
    }

    /// The numbers, ascending.
    pub fn iter(&self) -> impl Iterator<Item = u32> + '_ {
        self.words.iter().enumerate().flat_map(|(at, word)| {
            let mut rest = *word;
            std::iter::from_fn(move || {
                let bit = rest.trailing_zeros();
                (rest != 0).then(|| {
                    rest &= rest - 1;
                    at as u32 * 64 + bit
                })
            })
        })
    }

    /// The smallest number, if any.
    pub fn first(&self) -> Option<u32> {
        self.iter().next()
    }

    /// The intersection.
    pub fn and(&self, other: &CpuSet) -> CpuSet {
        CpuSet::trimmed(self.words.iter().zip(&other.words).map(|(a, b)| a & b).collect())
    }

    /// The union.
    pub fn or(&self, other: &CpuSet) -> CpuSet {
        let (long, short) = if self.words.len() >= other.words.len() { (self, other) } else { (other, self) };
        let mut words = long.words.clone();
        words.iter_mut().zip(&short.words).for_each(|(a, b)| *a |= b);
        CpuSet { words }
    }

    /// The difference: what `other` lacks.
    pub fn minus(&self, other: &CpuSet) -> CpuSet {
        let mut words = self.words.clone();
        words.iter_mut().zip(&other.words).for_each(|(a, b)| *a &= !b);
        CpuSet::trimmed(words)
    }

    /// Whether the sets have a number in common.
    pub fn intersects(&self, other: &CpuSet) -> bool {
        self.words.iter().zip(&other.words).any(|(a, b)| a & b != 0)
    }

    /// Whether `other` has all numbers of this set.
    pub fn is_subset(&self, other: &CpuSet) -> bool {
        self.minus(other).is_empty()
    }

    /// The set as ascending ranges with gaps between them.
    pub fn ranges(&self) -> Vec<Range<u32>> {
        let mut ranges: Vec<Range<u32>> = Vec::new();
        for cpu in self.iter() {
            match ranges.last_mut() {
                Some(last) if last.end == cpu => last.end += 1,
                Some(_) | None => ranges.push(cpu..cpu + 1),
            }
        }
        ranges
    }

    fn trimmed(mut words: Vec<u64>) -> CpuSet {
        while words.last() == Some(&0) {
            words.pop();
        }
        CpuSet { words }
    }
}

impl FromIterator<u32> for CpuSet {
    fn from_iter<I: IntoIterator<Item = u32>>(cpus: I) -> CpuSet {
        let mut set = CpuSet::EMPTY;
        cpus.into_iter().for_each(|cpu| set.insert(cpu));
        set
    }
}

impl Extend<u32> for CpuSet {
    fn extend<I: IntoIterator<Item = u32>>(&mut self, cpus: I) {
        cpus.into_iter().for_each(|cpu| self.insert(cpu));
    }
}

/// `0-3,8`.
impl fmt::Display for CpuSet {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (at, range) in self.ranges().into_iter().enumerate() {
            let comma = if at == 0 { "" } else { "," };
            match range.end - range.start {
                1 => write!(f, "{comma}{}", range.start)?,
                _ => write!(f, "{comma}{}-{}", range.start, range.end - 1)?,
            }
        }
        Ok(())
    }
}

impl fmt::Debug for CpuSet {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{{{self}}}")
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use proptest::prelude::*;

    use super::*;

    #[test]
    fn sets_print_as_ranges() {
        assert_eq!([0, 1, 2, 3, 8, 63, 64, 200].into_iter().collect::<CpuSet>().to_string(), "0-3,8,63-64,200");
        assert_eq!(CpuSet::EMPTY.to_string(), "");
    }

    proptest! {
        #[test]
        fn operations_match_those_of_btree_set(a in prop::collection::btree_set(0u32..300, 0..40), b in prop::collection::btree_set(0u32..300, 0..40)) {
            let of = |numbers: &BTreeSet<u32>| numbers.iter().copied().collect::<CpuSet>();
            let (x, y) = (of(&a), of(&b));
            prop_assert_eq!(x.and(&y), a.intersection(&b).copied().collect());
            prop_assert_eq!(x.or(&y), a.union(&b).copied().collect());
            prop_assert_eq!(x.minus(&y), a.difference(&b).copied().collect());
            prop_assert_eq!(x.is_subset(&y), a.is_subset(&b));
            prop_assert_eq!(x.intersects(&y), !a.is_disjoint(&b));
            prop_assert_eq!(x.iter().collect::<BTreeSet<_>>(), a.clone());
            prop_assert_eq!((x.len() as usize, x.is_empty(), x.first()), (a.len(), a.is_empty(), a.first().copied()));
            prop_assert!((0..300).all(|cpu| x.contains(cpu) == a.contains(&cpu)));
            prop_assert_eq!(x.ranges().into_iter().flatten().collect::<CpuSet>(), x);
        }
    }
}
