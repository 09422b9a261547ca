//! Copying into a cell past the caches.
//!
//! A line that was written stays in the writer's cache, and on many processors another core fetches it from there slowly:
//! 2 GB/s were measured, against 12 to 25 when the writer had sent it to memory at once. [`super::choice`] measures which is
//! better.

/// Copies all of `from` to the start of `into`, which must be at least as long and aligned to 16 bytes. Bypasses the
/// caches if this processor can. Later writes become visible after the copy.
#[inline]
pub(super) fn stream(into: &mut [u8], from: &[u8]) {
    let into = &mut into[..from.len()];
    let whole = from.len() / LINE * LINE;
    if cfg!(target_arch = "x86_64") && into.as_ptr().addr().is_multiple_of(16) {
        lines(&mut into[..whole], &from[..whole]);
        into[whole..].copy_from_slice(&from[whole..]);
    } else {
        into.copy_from_slice(from);
    }
}

const LINE: usize = 64;

#[cfg(target_arch = "x86_64")]
#[expect(unsafe_code, reason = "instructions without a safe form")]
fn lines(into: &mut [u8], from: &[u8]) {
    use std::arch::x86_64::{__m128i, _mm_loadu_si128, _mm_sfence, _mm_stream_si128};
    for (into, from) in into.chunks_exact_mut(LINE).zip(from.chunks_exact(LINE)) {
        let (into, from) = (into.as_mut_ptr().cast::<__m128i>(), from.as_ptr().cast::<__m128i>());
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
fn lines(into: &mut [u8], from: &[u8]) {
    into.copy_from_slice(from);
}

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
                stream(&mut target.0[start..], &source[3..3 + len]);
                assert_eq!(target.0[start..start + len], source[3..3 + len]);
                assert!(target.0[..start].iter().chain(&target.0[start + len..]).all(|byte| *byte == 0));
            }
        }
    }
}
