//! Copies that do not meet a weakness of the processor.
//!
//! For copies from about 4 KiB on, glibc uses an instruction (`rep movsb`) that takes 25 times as long on some processors of AMD if the bytes go to
//! an address that lies 1 to 15 bytes behind that of their origin, and twice as long for 16 to 47, counted modulo the size of a page. Arrays whose first
//! element is not sent, in pages of their own, are like that.

#![expect(unsafe_code, reason = "bytes at addresses")]

/// glibc does not use the instruction for shorter copies.
const LONG: usize = 2048;

/// How much is copied at a time where the instruction would be slow.
const PIECE: usize = 1024;

/// The size of a page, and how close behind each other addresses in it are slow.
const PAGE: usize = 4096;
const CLOSE: usize = 48;

/// As [`std::ptr::copy`].
///
/// # Safety
///
/// As for [`std::ptr::copy`].
#[inline(always)]
pub unsafe fn copy(from: *const u8, into: *mut u8, len: usize) {
    // SAFETY: the caller's promise.
    unsafe {
        if len >= LONG && (1..CLOSE).contains(&(into.addr().wrapping_sub(from.addr()) % PAGE)) {
            copy_closely(from, into, len);
        } else {
            std::ptr::copy(from, into, len);
        }
    }
}

/// # Safety
///
/// As for [`std::ptr::copy`].
#[cold]
unsafe fn copy_closely(from: *const u8, into: *mut u8, len: usize) {
    // What overlaps goes as a whole.
    let piece = if from.addr().abs_diff(into.addr()) >= len { PIECE } else { len };
    for at in (0..len).step_by(piece) {
        // SAFETY: within what the caller has promised.
        unsafe { std::ptr::copy(from.add(at), into.add(at), piece.min(len - at)) };
    }
}

#[cfg(test)]
#[cfg(not(loom))]
mod tests {
    use super::*;

    #[test]
    fn every_distance_is_copied_and_no_other_byte_changes() {
        let from: Vec<u8> = (0..3 * PAGE).map(|at| (at % 251) as u8).collect();
        for (distance, len) in (0..64).flat_map(|distance| [1, 100, 2048, 2049, 5000].map(|len| (distance, len))) {
            let mut into = vec![255; 4 * PAGE];
            let at = (from.as_ptr().addr().wrapping_sub(into.as_ptr().addr()) + distance) % PAGE;
            // SAFETY: both vectors have so many bytes there.
            unsafe { copy(from.as_ptr(), into.as_mut_ptr().add(at), len) };
            assert!(into[at..at + len] == from[..len], "{distance} {len}");
            assert!(into[..at].iter().chain(&into[at + len..]).all(|byte| *byte == 255), "{distance} {len}");
        }
    }

    #[test]
    fn what_overlaps_is_moved() {
        let before: Vec<u8> = (0..3 * PAGE).map(|at| (at % 251) as u8).collect();
        for distance in [1, 8, 40, PAGE - 8, PAGE + 8] {
            let moved = |from: usize, into: usize| {
                let mut bytes = before.clone();
                let start = bytes.as_mut_ptr();
                // SAFETY: both lie within the vector.
                unsafe { copy(start.add(from), start.add(into), PAGE) };
                bytes
            };
            let mut expected = before.clone();
            expected.copy_within(..PAGE, distance);
            assert!(moved(0, distance) == expected, "{distance}");
            expected.clone_from(&before);
            expected.copy_within(distance..distance + PAGE, 0);
            assert!(moved(distance, 0) == expected, "{distance}");
        }
    }
}
