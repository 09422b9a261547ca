//! Copying into a cell past the caches.
//!
//! A line that was written stays in the writer's cache, and on many processors another core fetches it from there slowly:
//! 2 GB/s were measured, against 12 to 25 when the writer had sent it to memory at once. [`super::choice`] measures which is
//! better.

use crate::memory::Room;

/// Copies all of `from` to the start of a room that is at least as long. Bypasses the caches if this processor can and the address is a
/// multiple of 16. Later writes become visible after the copy.
#[inline]
#[expect(unsafe_code, reason = "shared memory is written by address")]
pub(super) fn stream(into: Room<'_>, from: &[u8]) {
    assert!(from.len() <= into.len(), "{} bytes in {}", from.len(), into.len());
    let into = into.start();
    let by_lines = cfg!(target_arch = "x86_64") && into.addr().is_multiple_of(16);
    let (whole, rest) = from.split_at(if by_lines { from.len() / LINE * LINE } else { 0 });
    // SAFETY: within the room; the address is a multiple of 16 if there are whole lines.
    unsafe {
        lines(into, whole);
        std::ptr::copy_nonoverlapping(rest.as_ptr(), into.add(whole.len()), rest.len());
    }
}

const LINE: usize = 64;

#[cfg(target_arch = "x86_64")]
#[expect(unsafe_code, reason = "instructions without a safe form")]
unsafe fn lines(into: *mut u8, from: &[u8]) {
    use std::arch::x86_64::{__m128i, _mm_loadu_si128, _mm_sfence, _mm_stream_si128};
    for (index, from) in from.chunks_exact(LINE).enumerate() {
        let (into, from) = (into.wrapping_add(index * LINE).cast::<__m128i>(), from.as_ptr().cast::<__m128i>());
        // SAFETY: both are 64 bytes; `into` is aligned to 16, as `stream` has checked; every x86-64 processor has SSE2.
        unsafe {
            let line = [0, 1, 2, 3].map(|at| _mm_loadu_si128(from.add(at)));
            _mm_stream_si128(into, line[0]);
            _mm_stream_si128(into.add(1), line[1]);
            _mm_stream_si128(into.add(2), line[2]);
            _mm_stream_si128(into.add(3), line[3]);
        }
    }
    // SAFETY: every x86-64 processor has it. It orders the stores past the caches before later stores.
    unsafe { _mm_sfence() };
}

#[cfg(not(target_arch = "x86_64"))]
#[expect(unsafe_code, reason = "as above")]
unsafe fn lines(_: *mut u8, _: &[u8]) {}

#[cfg(test)]
#[cfg(not(loom))]
mod tests {
    use super::*;

    #[repr(align(64))]
    struct Aligned([u8; 1024]);

    #[test]
    fn every_length_and_alignment_is_copied_and_no_other_byte_changes() {
        let source: Vec<u8> = (0..1024u32).map(|byte| (byte * 7 % 255) as u8 + 1).collect();
        for start in [0, 1, 16, 63] {
            for len in (0..200).chain([255, 256, 257, 900]) {
                let mut target = Aligned([0; 1024]);
                stream(Room::new(&mut target.0[start..]), &source[3..3 + len]);
                assert_eq!(target.0[start..start + len], source[3..3 + len]);
                assert!(target.0[..start].iter().chain(&target.0[start + len..]).all(|byte| *byte == 0));
            }
        }
    }
}
