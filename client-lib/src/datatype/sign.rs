//! Digests of the basic datatypes of messages, for their comparison by another process (`RSD_MPI_CHECK`).

use std::fmt;

use super::element::{Class, Element, Repr};
use super::signature::Signature;

/// The basic datatypes of a message, in 24 bits: its only one, or a hash of all in order.
///
/// Datatypes agree if their values look alike in memory: `MPI_LONG` and `MPI_INT64_T` do. `MPI_BYTE` and `MPI_PACKED` agree with all, and all
/// of one byte with each other.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Sign(u32);

const SEVERAL: u32 = 1 << 23;

impl Sign {
    /// Agrees with every other.
    pub const UNKNOWN: Self = Self(0);

    /// The sign with this number, if it is valid, otherwise an unknown one.
    pub fn of_number(number: u32) -> Self {
        let is_element = (1..=256).contains(&number) && element(number).is_some();
        if is_element || number & SEVERAL != 0 { Self(number & 0x00ff_ffff) } else { Self::UNKNOWN }
    }

    /// 24 bits.
    pub fn number(self) -> u32 {
        self.0
    }

    /// Whether a message with this sign may be received with the other one.
    pub fn agrees(self, other: Self) -> bool {
        self == Self::UNKNOWN || other == Self::UNKNOWN || self.meaning() == other.meaning()
    }

    /// The same for all that agree with it, except for bytes, which agree with all.
    pub fn canonical(self) -> Self {
        let first_like = |form| Element::all().find(|other| self::form(*other) == Some(form));
        match element(self.0).and_then(form).and_then(first_like) {
            Some(first) => Self(first.number() as u32 + 1),
            None => self,
        }
    }

    fn meaning(self) -> Meaning {
        match element(self.0) {
            Some(element) => Meaning::One(form(element)),
            None => Meaning::Several(self.0),
        }
    }

    /// That of the `len` packed bytes after the first `skip`, of elements with this signature.
    pub(super) fn of(signature: &Signature, skip: usize, len: usize) -> Self {
        if len == 0 {
            return Self::UNKNOWN;
        }
        if let Some(only) = signature.uniform() {
            return Self::of_element(only);
        }
        let mut digest = Digest::default();
        let (mut skip, mut left) = (skip % signature.size().max(1), len);
        while left > 0 {
            let mut visited = 0;
            signature.visit(&mut |element, count| {
                visited += 1;
                let size = element.size();
                let skipped = count.min(skip / size);
                skip -= skipped * size;
                let taken = (count - skipped).min(left.div_ceil(size));
                left = left.saturating_sub(taken * size);
                digest.add(element, taken);
                left > 0
            });
            if visited == 0 {
                break;
            }
        }
        digest.finish()
    }

    fn of_element(element: Element) -> Self {
        match form(element) {
            None => Self::UNKNOWN,
            Some(_) => Self(element.number() as u32 + 1),
        }
    }
}

#[derive(PartialEq, Eq)]
enum Meaning {
    One(Option<Repr>),
    Several(u32),
}

/// How a value looks in memory; `None` for untyped bytes.
fn form(element: Element) -> Option<Repr> {
    match (element.class(), element.repr()) {
        (Class::Byte, _) => None,
        _ if element.name() == "MPI_PACKED" => None,
        (_, Repr::Int8) => Some(Repr::Uint8),
        (_, repr) => Some(repr),
    }
}

fn element(number: u32) -> Option<Element> {
    Element::all().find(|element| element.number() as u32 + 1 == number)
}

/// The elements in order, equal ones counted.
#[derive(Default)]
struct Digest {
    hash: u32,
    last: Option<(Element, usize)>,
    runs: usize,
}

impl Digest {
    fn add(&mut self, element: Element, count: usize) {
        match &mut self.last {
            _ if count == 0 => {}
            Some((last, so_far)) if form(*last) == form(element) => *so_far += count,
            _ => {
                self.close();
                self.last = Some((element, count));
            }
        }
    }

    fn close(&mut self) {
        if let Some((element, count)) = self.last.take() {
            self.runs += 1;
            let code = form(element).map_or(0, |repr| repr as u32 + 1);
            for word in [code, count as u32, (count >> 32) as u32] {
                self.hash = (self.hash ^ word).wrapping_mul(0x9e37_79b1).rotate_left(15);
            }
        }
    }

    fn finish(mut self) -> Sign {
        if let (0, Some((only, _))) = (self.runs, self.last) {
            return Sign::of_element(only);
        }
        self.close();
        Sign(SEVERAL | (self.hash & (SEVERAL - 1)))
    }
}

impl fmt::Display for Sign {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match element(self.0) {
            Some(element) => f.write_str(element.name()),
            None if *self == Self::UNKNOWN => f.write_str("bytes"),
            None => write!(f, "several basic datatypes (digest {:06x})", self.0 & (SEVERAL - 1)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::abi::DatatypeHandle;
    use crate::abi::constants as c;
    use crate::datatype::{Datatype, Form, TypeRef};
    use std::sync::Arc;

    fn basic(handle: usize) -> TypeRef {
        TypeRef::Predefined(Datatype::predefined(Element::of(DatatypeHandle(handle)).unwrap()))
    }

    fn sign(datatype: &TypeRef, skip: usize, len: usize) -> Sign {
        datatype.layout().sign(skip, len)
    }

    fn pair(first: usize, second: usize) -> TypeRef {
        let types = [basic(first), basic(second)];
        TypeRef::Made(Arc::new(Datatype::structure(Form::Int, &[1, 2], &[0, 16], &types).unwrap()))
    }

    #[test]
    fn datatypes_agree_if_their_values_look_alike() {
        let of = |handle| sign(&basic(handle), 0, 16);
        assert!(of(c::MPI_LONG).agrees(of(c::MPI_INT64_T)) && of(c::MPI_INT).agrees(of(c::MPI_INTEGER)));
        assert!(of(c::MPI_CHAR).agrees(of(c::MPI_CHARACTER)) && of(c::MPI_BYTE).agrees(of(c::MPI_DOUBLE)));
        assert!(of(c::MPI_DOUBLE).agrees(of(c::MPI_PACKED)));
        for (one, other) in [(c::MPI_INT, c::MPI_FLOAT), (c::MPI_INT, c::MPI_LONG), (c::MPI_INT, c::MPI_UNSIGNED)] {
            assert!(!of(one).agrees(of(other)), "{one} {other}");
        }
        assert_eq!(of(c::MPI_FLOAT).to_string(), "MPI_FLOAT");
    }

    #[test]
    fn the_order_and_number_of_basic_datatypes_counts_and_not_how_they_were_combined() {
        let (one, other) = (pair(c::MPI_INT, c::MPI_DOUBLE), pair(c::MPI_DOUBLE, c::MPI_INT));
        assert!(!sign(&one, 0, 20).agrees(sign(&other, 0, 16)));
        assert!(sign(&one, 0, 40).agrees(sign(&one, 20, 40)));
        assert!(!sign(&one, 0, 40).agrees(sign(&one, 0, 20)));
        let two = TypeRef::Made(Arc::new(Datatype::contiguous(Form::Int, 2, &one).unwrap()));
        assert_eq!(sign(&two, 0, 40), sign(&one, 0, 40));
        // A part with only one of them.
        assert_eq!(sign(&one, 0, 4), sign(&basic(c::MPI_INT), 0, 4));
        assert_eq!(sign(&one, 4, 16), sign(&basic(c::MPI_DOUBLE), 0, 16));
        assert_eq!(sign(&one, 0, 0), Sign::UNKNOWN);
    }

    #[test]
    fn a_number_from_another_process_is_a_sign_or_unknown() {
        for number in [0, 1, 2, 256, 257, SEVERAL, u32::MAX] {
            let sign = Sign::of_number(number);
            assert!(sign == Sign::UNKNOWN || sign.number() == number & 0x00ff_ffff, "{number:#x}");
            assert!(!sign.to_string().is_empty());
        }
        let int = sign(&basic(c::MPI_INT), 0, 4);
        assert_eq!(Sign::of_number(int.number()), int);
    }
}
