//! Buffers of unexpected messages, for reuse. To allocate one each time costs more than the copy of a short message; for a longer message
//! it also costs page faults, because the allocator returns the memory to the system whenever it is freed.

/// Short buffers are at most this long, in bytes, and so many are kept.
const SHORT_BYTES: usize = 4 << 10;
const SHORT: usize = 64;
const LONGER: usize = SHORT_BYTES + 1;
/// Long buffers are at most this long, in bytes, and so many are kept.
const LONG_BYTES: usize = 32 << 10;
const LONG: usize = 16;
const LARGER: usize = LONG_BYTES + 1;
/// The longest messages that travel before a receive is there are not longer than this, in bytes. So many of their buffers are kept: 4 MiB.
const LARGE_BYTES: usize = 128 << 10;
const LARGE: usize = 32;

/// Buffers that are empty and have a capacity.
#[derive(Debug, Default)]
pub(super) struct Spare {
    short: Vec<Vec<u8>>,
    long: Vec<Vec<u8>>,
    large: Vec<Vec<u8>>,
}

impl Spare {
    /// Returns an empty buffer for so many bytes, with memory if one of about this length is here.
    #[inline]
    pub(super) fn take(&mut self, len: usize) -> Vec<u8> {
        let found = match len {
            0 => None,
            1..=SHORT_BYTES => self.short.pop(),
            LONGER..=LONG_BYTES => self.long.pop(),
            _ => self.large.pop(),
        };
        found.unwrap_or_default()
    }

    /// Keeps a buffer for reuse.
    #[inline]
    pub(super) fn keep(&mut self, mut bytes: Vec<u8>) {
        let (kept, most) = match bytes.capacity() {
            1..=SHORT_BYTES => (&mut self.short, SHORT),
            LONGER..=LONG_BYTES => (&mut self.long, LONG),
            LARGER..=LARGE_BYTES => (&mut self.large, LARGE),
            _ => return,
        };
        if kept.len() < most {
            bytes.clear();
            kept.push(bytes);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn buffers_of_about_the_right_length_are_used_again_and_few_are_kept() {
        let mut spare = Spare::default();
        for len in [0, 1, SHORT_BYTES, SHORT_BYTES + 1, LONG_BYTES, LONG_BYTES + 1, LARGE_BYTES, LARGE_BYTES + 1] {
            spare.keep(vec![7; len]);
        }
        assert_eq!((spare.short.len(), spare.long.len(), spare.large.len()), (2, 2, 2));
        assert_eq!(spare.take(0).capacity(), 0);
        let taken = spare.take(LONG_BYTES);
        assert_eq!((taken.len(), taken.capacity()), (0, LONG_BYTES));
        assert_eq!((spare.take(1).capacity(), spare.take(1).capacity(), spare.take(1).capacity()), (SHORT_BYTES, 1, 0));
        (0..100).for_each(|_| spare.keep(vec![7; LONG_BYTES]));
        (0..100).for_each(|_| spare.keep(vec![7; LARGE_BYTES]));
        assert_eq!((spare.long.len(), spare.large.len()), (LONG, LARGE));
    }
}
