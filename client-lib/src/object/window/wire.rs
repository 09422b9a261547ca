//! The messages between the members of a window.
//!
//! ```text
//! byte 0      4       8     16        24    32     40         48
//!    ┌───────┬───────┬─────┬─────────┬─────┬──────┬──────────┬────────────────────┬─────────┐
//!    │ kind  │inline │ op  │ element │ at  │ len  │ pieces   │ offset, length ... │ data    │
//!    └───────┴───────┴─────┴─────────┴─────┴──────┴──────────┴────────────────────┴─────────┘
//! ```
//!
//! `len` bytes of the target's memory are meant: at `at`, or the pieces, whose offsets count from there.

use crate::abi::{DatatypeHandle, OpHandle};

/// The tag of calls.
pub(super) const CALL: i32 = 1;
/// The tag of what a get returns.
pub(super) const REPLY: i32 = 2;
/// The tag of data that is not in its call.
pub(super) const DATA: i32 = 3;
/// The tag of the answer to [`Kind::Flush`] and [`Kind::Unlock`]: an error class, as 8 bytes.
pub(super) const DONE: i32 = 4;
/// The tag of `MPI_Win_post`, without data.
pub(super) const POST: i32 = 5;

/// Data of at most this many bytes is in its call.
pub(super) const INLINE_MAX: usize = 4096;

const HEAD: usize = 48;

/// What a call does.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u32)]
pub enum Kind {
    /// Writes.
    Put = 1,
    /// Reads.
    Get,
    /// Combines.
    Accumulate,
    /// Reads, then combines.
    Fetch,
    /// Reads, then writes if it was equal.
    Compare,
    /// Asks for an answer when everything before is done.
    Flush,
    /// Locks for several.
    LockShared,
    /// Locks for one.
    LockExclusive,
    /// Unlocks, and answers as a flush.
    Unlock,
    /// The origin's access is over (`MPI_Win_complete`).
    Complete,
}

const KINDS: [Kind; 10] = [
    Kind::Put,
    Kind::Get,
    Kind::Accumulate,
    Kind::Fetch,
    Kind::Compare,
    Kind::Flush,
    Kind::LockShared,
    Kind::LockExclusive,
    Kind::Unlock,
    Kind::Complete,
];

/// Bytes of the target's memory.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Places {
    /// In bytes from the start of the memory; an address in a dynamic window.
    pub at: i64,
    /// How many.
    pub len: usize,
    /// Offsets from `at` and lengths, in packed order; empty if the bytes are contiguous.
    pub pieces: Vec<(i64, usize)>,
}

impl Places {
    /// The first `len` of these bytes; there must be so many.
    pub fn first(mut self, len: usize) -> Self {
        let mut left = len;
        self.pieces.retain_mut(|(_, piece)| {
            *piece = left.min(*piece);
            left -= *piece;
            *piece > 0
        });
        if len == 0 { Self { at: self.at, ..Self::default() } } else { Self { len, ..self } }
    }

    /// The pieces, from the start of the memory; `None` where a sum exceeds the address space.
    pub fn absolute(&self) -> impl Iterator<Item = Option<(i64, usize)>> {
        let whole = (self.pieces.is_empty() && self.len > 0).then_some(Some((self.at, self.len)));
        let pieces = self.pieces.iter().map(|(offset, len)| Some((self.at.checked_add(*offset)?, *len)));
        whole.into_iter().chain(pieces)
    }
}

/// A call.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Call {
    pub(super) kind: Kind,
    /// What to combine with, and elements of which type.
    pub(super) op: OpHandle,
    pub(super) element: DatatypeHandle,
    pub(super) places: Places,
    /// The data, unless it follows as a message of its own.
    pub(super) data: Option<Vec<u8>>,
}

impl Call {
    /// A call without data or places.
    pub(super) fn plain(kind: Kind) -> Self {
        Self { kind, op: OpHandle(0), element: DatatypeHandle(0), places: Places::default(), data: Some(Vec::new()) }
    }

    pub(super) fn encode(&self) -> Box<[u8]> {
        let data = self.data.as_deref();
        let pieces = &self.places.pieces;
        let mut bytes = Vec::with_capacity(HEAD + 16 * pieces.len() + data.map_or(0, <[u8]>::len));
        bytes.extend_from_slice(&(self.kind as u32).to_ne_bytes());
        bytes.extend_from_slice(&u32::from(data.is_some()).to_ne_bytes());
        for word in [self.op.0, self.element.0, self.places.at as usize, self.places.len, pieces.len()] {
            bytes.extend_from_slice(&word.to_ne_bytes());
        }
        for (offset, len) in pieces {
            bytes.extend_from_slice(&offset.to_ne_bytes());
            bytes.extend_from_slice(&len.to_ne_bytes());
        }
        bytes.extend_from_slice(data.unwrap_or_default());
        bytes.into()
    }

    /// `None` if the bytes are not a call.
    pub(super) fn decode(bytes: &[u8]) -> Option<Self> {
        let word = |at: usize| Some(usize::from_ne_bytes(*bytes.get(at..)?.first_chunk()?));
        let (kind, inline) = (word(0)? as u32, word(0)? >> 32 != 0);
        let kind = KINDS.into_iter().find(|it| *it as u32 == kind)?;
        let (op, element) = (OpHandle(word(8)?), DatatypeHandle(word(16)?));
        let (at, len, count) = (word(24)? as i64, word(32)?, word(40)?);
        let rest = bytes.get(HEAD..)?;
        let (pieces, data) = rest.split_at_checked(count.checked_mul(16)?)?;
        let pieces = pieces.chunks_exact(16).map(|piece| {
            let (offset, len) = (piece.first_chunk()?, piece.last_chunk()?);
            Some((i64::from_ne_bytes(*offset), usize::from_ne_bytes(*len)))
        });
        let pieces = pieces.collect::<Option<Vec<_>>>()?;
        let sum = pieces.iter().try_fold(0_usize, |sum, (_, len)| sum.checked_add(*len))?;
        let is_sound = len <= isize::MAX as usize && (pieces.is_empty() || sum == len);
        let data = inline.then(|| data.to_vec());
        is_sound.then_some(Self { kind, op, element, places: Places { at, len, pieces }, data })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_bytes_of_places_are_the_first_of_their_pieces() {
        let whole = Places { at: 3, len: 10, pieces: Vec::new() };
        assert_eq!(whole.clone().first(4), Places { len: 4, ..whole.clone() });
        let parts = Places { at: 3, len: 10, pieces: vec![(0, 4), (8, 4), (20, 2)] };
        assert_eq!(parts.clone().first(10), parts);
        assert_eq!(parts.clone().first(6), Places { len: 6, pieces: vec![(0, 4), (8, 2)], ..parts.clone() });
        assert_eq!(parts.clone().first(4), Places { len: 4, pieces: vec![(0, 4)], ..parts.clone() });
        assert_eq!((parts.first(0).len, whole.first(0).absolute().count()), (0, 0));
    }

    #[test]
    fn calls_survive_their_bytes_and_nothing_else_is_one() {
        let places = Places { at: -16, len: 12, pieces: vec![(0, 4), (1 << 40, 8)] };
        let long = Call { places, data: None, ..Call::plain(Kind::Accumulate) };
        let short = Call {
            places: Places { at: 8, len: 3, pieces: Vec::new() },
            data: Some(vec![1, 2, 3]),
            op: OpHandle(0x20),
            element: DatatypeHandle(0x240),
            kind: Kind::Put,
        };
        for call in [long, short].into_iter().chain(KINDS.map(Call::plain)) {
            let bytes = call.encode();
            assert_eq!(Call::decode(&bytes), Some(call.clone()));
            let head = HEAD + 16 * call.places.pieces.len();
            assert!((0..head).all(|len| Call::decode(&bytes[..len]).is_none()), "{call:?}");
        }
        assert_eq!(Call::decode(&[0; 64]), None);
        let mut wrong = Call::plain(Kind::Get).encode();
        wrong[40..48].fill(0xff);
        assert_eq!(Call::decode(&wrong), None);
    }
}
