//! Compares the pack engine and the bounds with a type map written out in full, for random types made of random types.

#![expect(unsafe_code, reason = "the copy loops are what is tested")]

use std::sync::Arc;

use proptest::prelude::*;

use super::*;
use crate::abi::DatatypeHandle;
use crate::abi::constants as c;
use crate::memory::Buffer;

/// A type map in full: basic elements with offsets, and markers.
#[derive(Debug, Clone, Default)]
struct Naive {
    entries: Vec<(Element, i64)>,
    /// The bounds of all that it was built from, with their padding.
    padded: Vec<(i64, i64)>,
    lower: Vec<i64>,
    upper: Vec<i64>,
}

impl Naive {
    fn of(element: Element) -> Self {
        let entries = match element.halves() {
            None => vec![(element, 0)],
            Some((value, index, at)) => vec![(value, 0), (index, at as i64)],
        };
        let end = entries.iter().map(|(element, at)| at + element.size() as i64).max().unwrap_or(0);
        Self { entries, padded: vec![(0, end)], ..Self::default() }
    }

    fn add(&mut self, other: &Self, at: i64) {
        self.padded.extend(other.rounded().map(|(lower, upper)| (lower + at, upper + at)));
        self.entries.extend(other.entries.iter().map(|(element, offset)| (*element, offset + at)));
        self.lower.extend(other.lower.iter().map(|offset| offset + at));
        self.upper.extend(other.upper.iter().map(|offset| offset + at));
    }

    fn true_bounds(&self) -> (i64, i64) {
        let lower = self.entries.iter().map(|(_, at)| *at).min().unwrap_or(0);
        let upper = self.entries.iter().map(|(element, at)| at + element.size() as i64).max().unwrap_or(0);
        (lower, upper)
    }

    /// The lower bound and the extent, by the formulas of MPI 5.0 §5.1.6, but that padding counts.
    fn bounds(&self) -> (i64, i64) {
        if let (Some(lower), Some(upper)) = (self.lower.iter().min(), self.upper.iter().max()) {
            return (*lower, upper - lower);
        }
        self.rounded().map_or((0, 0), |(lower, upper)| (lower, upper - lower))
    }

    /// From the lower bound to the upper, rounded up to the alignment.
    fn rounded(&self) -> Option<(i64, i64)> {
        let lower = self.padded.iter().map(|bounds| bounds.0).min()?;
        let upper = self.padded.iter().map(|bounds| bounds.1).max()?;
        let align = self.entries.iter().map(|(element, _)| element.repr().align() as i64).max().unwrap_or(1);
        Some((lower, lower + (upper - lower + align - 1) / align * align))
    }

    fn size(&self) -> usize {
        self.entries.iter().map(|(element, _)| element.size()).sum()
    }

    /// The offsets of the packed bytes of `count` elements.
    fn places(&self, count: usize) -> Vec<i64> {
        let extent = self.bounds().1;
        let element = |index| {
            let bytes = |(element, at): &(Element, i64)| {
                let at = at + extent * index as i64;
                (0..element.size() as i64).map(move |byte| at + byte).collect::<Vec<_>>()
            };
            self.entries.iter().flat_map(bytes).collect::<Vec<_>>()
        };
        (0..count).flat_map(element).collect()
    }
}

/// How to make a type.
#[derive(Debug, Clone)]
enum Recipe {
    Basic(usize),
    Contiguous(i64, Box<Recipe>),
    Vector(Unit, i64, i64, i64, Box<Recipe>),
    Indexed(Unit, Vec<(i64, i64)>, Box<Recipe>),
    IndexedBlock(Unit, i64, Vec<i64>, Box<Recipe>),
    Structure(Vec<(i64, i64, Recipe)>),
    Resized(i64, i64, Box<Recipe>),
    Dup(Box<Recipe>),
    Subarray(bool, Vec<(i64, i64, i64)>, Box<Recipe>),
}

const BASIC: [usize; 10] = [
    c::MPI_BYTE,
    c::MPI_CHAR,
    c::MPI_SHORT,
    c::MPI_INT,
    c::MPI_DOUBLE,
    c::MPI_C_DOUBLE_COMPLEX,
    c::MPI_LONG_DOUBLE,
    c::MPI_DOUBLE_INT,
    c::MPI_SHORT_INT,
    c::MPI_FLOAT,
];

impl Recipe {
    fn make(&self) -> (TypeRef, Naive) {
        let form = Form::Count;
        let (made, naive) = match self {
            Self::Basic(handle) => {
                let element = Element::of(DatatypeHandle(*handle)).unwrap();
                return (TypeRef::Predefined(Datatype::predefined(element)), Naive::of(element));
            }
            Self::Contiguous(count, old) => {
                let (old, naive) = old.make();
                let mut all = Naive::default();
                (0..*count).for_each(|index| all.add(&naive, index * old.extent()));
                (Datatype::contiguous(form, *count, &old), all)
            }
            Self::Vector(unit, count, length, stride, old) => {
                let (old, naive) = old.make();
                let mut all = Naive::default();
                let bytes = if *unit == Unit::Bytes { *stride } else { stride * old.extent() };
                for block in 0..*count {
                    (0..*length).for_each(|index| all.add(&naive, block * bytes + index * old.extent()));
                }
                (Datatype::vector(form, *unit, *count, *length, *stride, &old), all)
            }
            Self::Indexed(unit, blocks, old) => {
                let (old, naive) = old.make();
                let mut all = Naive::default();
                for (length, at) in blocks {
                    let at = if *unit == Unit::Bytes { *at } else { at * old.extent() };
                    (0..*length).for_each(|index| all.add(&naive, at + index * old.extent()));
                }
                let (lengths, displacements): (Vec<i64>, Vec<i64>) = blocks.iter().copied().unzip();
                (Datatype::indexed(form, *unit, &lengths, &displacements, &old), all)
            }
            Self::IndexedBlock(unit, length, displacements, old) => {
                let (old, naive) = old.make();
                let mut all = Naive::default();
                for at in displacements {
                    let at = if *unit == Unit::Bytes { *at } else { at * old.extent() };
                    (0..*length).for_each(|index| all.add(&naive, at + index * old.extent()));
                }
                (Datatype::indexed_block(form, *unit, *length, displacements, &old), all)
            }
            Self::Structure(fields) => {
                let mut all = Naive::default();
                let mut types = Vec::new();
                for (length, at, old) in fields {
                    let (old, naive) = old.make();
                    (0..*length).for_each(|index| all.add(&naive, at + index * old.extent()));
                    types.push(old);
                }
                let lengths: Vec<i64> = fields.iter().map(|field| field.0).collect();
                let displacements: Vec<i64> = fields.iter().map(|field| field.1).collect();
                (Datatype::structure(form, &lengths, &displacements, &types), all)
            }
            Self::Resized(lb, extent, old) => {
                let (old, naive) = old.make();
                let all = Naive { lower: vec![*lb], upper: vec![lb + extent], ..naive };
                (Datatype::resized(form, *lb, *extent, &old), all)
            }
            Self::Dup(old) => {
                let (old, naive) = old.make();
                (Datatype::dup(&old), naive)
            }
            Self::Subarray(c_order, dimensions, old) => {
                let (old, naive) = old.make();
                // From the outermost dimension inwards: offsets in elements.
                let outward: Vec<_> =
                    if *c_order { dimensions.clone() } else { dimensions.iter().rev().copied().collect() };
                let mut offsets = vec![0];
                for (size, subsize, start) in &outward {
                    offsets = offsets
                        .iter()
                        .flat_map(|at| (0..*subsize).map(move |index| at * size + start + index))
                        .collect();
                }
                let mut all = Naive::default();
                offsets.iter().for_each(|at| all.add(&naive, at * old.extent()));
                let whole: i64 = outward.iter().map(|dimension| dimension.0).product();
                (all.lower, all.upper) = (vec![0], vec![whole * old.extent()]);
                let column = |pick: fn(&(i64, i64, i64)) -> i64| dimensions.iter().map(pick).collect::<Vec<_>>();
                let order = if *c_order { c::MPI_ORDER_C } else { c::MPI_ORDER_FORTRAN };
                let made = Datatype::subarray(form, &column(|d| d.0), &column(|d| d.1), &column(|d| d.2), order, &old);
                (made, all)
            }
        };
        (TypeRef::Made(Arc::new(made.unwrap())), naive)
    }
}

fn recipe() -> impl Strategy<Value = Recipe> {
    let unit = || prop_oneof![Just(Unit::Extents), Just(Unit::Bytes)];
    let basic = prop::sample::select(BASIC.to_vec()).prop_map(Recipe::Basic);
    basic.prop_recursive(4, 24, 4, move |inner| {
        let old = inner.clone().prop_map(Box::new);
        let dimension = (1i64..5)
            .prop_flat_map(|size| (Just(size), 1..=size))
            .prop_flat_map(|(size, subsize)| (Just(size), Just(subsize), 0..=size - subsize));
        prop_oneof![
            (0i64..5, old.clone()).prop_map(|(count, old)| Recipe::Contiguous(count, old)),
            (unit(), 0i64..5, 0i64..4, -6i64..20, old.clone())
                .prop_map(|(unit, count, length, stride, old)| { Recipe::Vector(unit, count, length, stride, old) }),
            (unit(), prop::collection::vec((0i64..4, -10i64..30), 0..5), old.clone())
                .prop_map(|(unit, blocks, old)| Recipe::Indexed(unit, blocks, old)),
            (unit(), 0i64..4, prop::collection::vec(-10i64..30, 0..40), old.clone())
                .prop_map(|(unit, length, at, old)| Recipe::IndexedBlock(unit, length, at, old)),
            prop::collection::vec((0i64..4, -40i64..80, inner), 0..4).prop_map(Recipe::Structure),
            (-20i64..20, -40i64..60, old.clone()).prop_map(|(lb, extent, old)| Recipe::Resized(lb, extent, old)),
            old.clone().prop_map(Recipe::Dup),
            (any::<bool>(), prop::collection::vec(dimension, 1..4), old)
                .prop_map(|(order, dimensions, old)| Recipe::Subarray(order, dimensions, old)),
        ]
    })
}

/// Memory in which offsets may be negative.
struct Arena {
    bytes: Vec<u8>,
    zero: usize,
}

impl Arena {
    fn around(places: &[i64]) -> Self {
        let lower = places.iter().copied().min().unwrap_or(0).min(0);
        let upper = places.iter().copied().max().unwrap_or(0).max(0);
        let bytes = (0..=upper - lower).map(|index| (index * 7 % 251) as u8).collect();
        Self { bytes, zero: -lower as usize }
    }

    fn base(&mut self) -> *mut u8 {
        self.bytes.as_mut_ptr().wrapping_add(self.zero)
    }

    fn at(&self, place: i64) -> usize {
        (self.zero as i64 + place) as usize
    }
}

fn small(naive: &Naive, count: usize) -> bool {
    let places = naive.entries.len() * count;
    places < 20_000 && naive.places(count).iter().all(|place| place.abs() < 4_000_000)
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 400, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn bounds_sizes_and_elements_are_those_of_the_type_map(recipe in recipe()) {
        let (made, naive) = recipe.make();
        prop_assert_eq!(made.size(), naive.size());
        prop_assert_eq!((made.lb(), made.extent()), naive.bounds());
        let (lower, upper) = naive.true_bounds();
        prop_assert_eq!((made.true_lb(), made.true_extent()), (lower, upper - lower));
        prop_assert_eq!(made.elements(), naive.entries.len());
        let mut bytes = 0u64;
        for (index, (element, _)) in naive.entries.iter().chain(&naive.entries).enumerate() {
            prop_assert_eq!(made.elements_of(bytes), Some(index as i64));
            prop_assert_eq!(made.bytes_of(index as u64), Some(bytes));
            if element.size() > 1 {
                prop_assert_eq!(made.elements_of(bytes + 1), None);
            }
            bytes += element.size() as u64;
        }
        let first = naive.entries.first().map(|entry| entry.0);
        prop_assert_eq!(made.uniform(), first.filter(|first| naive.entries.iter().all(|entry| entry.0 == *first)));
    }

    #[test]
    fn any_part_is_packed_unpacked_and_listed_in_the_order_of_the_type_map(
        recipe in recipe(), count in 0usize..4, cuts in (0f64..1.0, 0f64..1.0),
    ) {
        let (made, naive) = recipe.make();
        prop_assume!(small(&naive, count));
        let places = naive.places(count);
        prop_assert_eq!(made.packed_len(count).unwrap(), places.len());
        let (lower, len) = made.span(count).unwrap();
        let reached = places.iter().map(|place| place - lower as i64);
        prop_assert!(reached.clone().all(|place| (0..len as i64).contains(&place)));
        prop_assert!(places.is_empty() || (reached.clone().min() == Some(0) && reached.max() == Some(len as i64 - 1)));

        let mut arena = Arena::around(&places);
        let cuts = (cuts.0.min(cuts.1) * places.len() as f64, cuts.0.max(cuts.1) * places.len() as f64);
        let range = cuts.0 as usize..cuts.1 as usize;
        let base = arena.base();
        // SAFETY: the arena contains all places.
        let buffer = unsafe { Buffer::new(base, count, made.layout()) };
        prop_assert_eq!(buffer.len(), places.len());

        for range in [0..places.len(), range] {
            let mut packed = vec![0; range.len()];
            buffer.read(range.start, &mut packed);
            let expected: Vec<u8> = places[range.clone()].iter().map(|place| arena.bytes[arena.at(*place)]).collect();
            prop_assert_eq!(&packed, &expected);

            let mut listed = Vec::new();
            let mut last: Option<(usize, usize)> = None;
            let mut joined = true;
            buffer.pieces(range.start, range.len(), |address, len| {
                let start = address.addr() - base.addr().wrapping_sub(arena.zero);
                joined &= len > 0 && last.is_none_or(|(last, len)| last + len != start);
                last = Some((start, len));
                listed.extend(start..start + len);
                true
            });
            prop_assert!(joined, "no piece is empty, and pieces that touch are one");
            prop_assert_eq!(listed, places[range.clone()].iter().map(|place| arena.at(*place)).collect::<Vec<_>>());

            let new: Vec<u8> = (0..range.len()).map(|index| (index * 13 + 5) as u8).collect();
            let mut expected = arena.bytes.clone();
            for (place, byte) in places[range.clone()].iter().zip(&new) {
                expected[arena.at(*place)] = *byte;
            }
            buffer.write(range.start, &new);
            prop_assert_eq!(&arena.bytes, &expected);
        }
    }
}
