//! Copies of memory with holes, by rows: pieces of equal length at equal distances take one call of the driver.

#![expect(unsafe_code, reason = "calls of the CUDA driver")]

use super::super::context::{Way, checked};
use super::super::driver::{Code, Copy2d, MEMORY_DEVICE, MEMORY_HOST, Rows};
use super::{Other, Part};

/// Plain copies of less than this to the device do not go through a copy engine, but through the queue of kernels. If another process uses
/// the device too, each such copy waits about 150 us for its turn. Copies of rows always go through a copy engine.
const INLINE: usize = 32 << 10;

/// Rows of equal length at equal distances.
#[derive(Debug, Clone, Copy, Default)]
struct Run {
    start: u64,
    width: usize,
    pitch: u64,
    rows: usize,
}

/// The driver takes pitches up to this.
const PITCH_MAX: u64 = i32::MAX as u64;

impl Run {
    /// Takes a piece as the next row, if it can be.
    fn takes(&mut self, piece: u64, width: usize) -> bool {
        if width != self.width {
            return false;
        }
        let fits = match self.rows {
            0 => false,
            1 => {
                let distance = piece.wrapping_sub(self.start);
                self.pitch = if (width as u64..=PITCH_MAX).contains(&distance) { distance } else { self.pitch };
                self.pitch == distance
            }
            rows => piece == self.start + rows as u64 * self.pitch,
        };
        self.rows += usize::from(fits);
        fits
    }

    fn len(&self) -> usize {
        self.width * self.rows
    }
}

impl Part {
    pub(super) fn copy_runs(&self, at: usize, len: usize, other: Other, way: Way) -> Result<(), Code> {
        if len == 0 {
            return Ok(());
        }
        let Some(layout) = &self.layout else {
            let run = Run { start: self.base + (self.start + at) as u64, width: len, pitch: len as u64, rows: 1 };
            return self.copy_run(run, other, way);
        };
        let mut run = Run::default();
        let (mut done, mut result) = (0, Ok(()));
        layout.pieces(
            std::ptr::without_provenance_mut(self.base as usize),
            self.start + at,
            len,
            &mut |piece, width| {
                let piece = piece.addr() as u64;
                if !run.takes(piece, width) {
                    result = self.copy_run(run, other.after(done), way);
                    done += run.len();
                    run = Run { start: piece, width, pitch: width as u64, rows: 1 };
                }
                result.is_ok()
            },
        );
        result?;
        self.copy_run(run, other.after(done), way)
    }

    fn copy_run(&self, run: Run, other: Other, way: Way) -> Result<(), Code> {
        let (driver, stream) = (self.context.driver, self.context.stream(way));
        let Run { start, width, rows, .. } = run;
        match (rows, way, other) {
            (0, ..) => Ok(()),
            (1, Way::In, Other::Host(from)) if (2..INLINE).contains(&width) => self.copy_halves(start, from, width),
            // SAFETY: the creator has guaranteed that the device memory may be used, and the caller the other side.
            (1, ..) => checked(unsafe {
                match (way, other) {
                    (Way::Out, Other::Host(into)) => (driver.to_host)(into.cast(), start, width, stream),
                    (Way::In, Other::Host(from)) => (driver.to_device)(start, from.cast_const().cast(), width, stream),
                    (Way::Out, Other::Device(into)) => (driver.within)(into, start, width, stream),
                    (Way::In, Other::Device(from)) => (driver.within)(start, from, width, stream),
                }
            }),
            _several => self.copy_rows(run, other, way),
        }
    }

    /// Copies a short piece to the device as two rows (and the last byte of an odd number with the one before, once more).
    fn copy_halves(&self, start: u64, from: *mut u8, width: usize) -> Result<(), Code> {
        let half = width / 2;
        self.copy_rows(Run { start, width: half, pitch: half as u64, rows: 2 }, Other::Host(from), Way::In)?;
        if width.is_multiple_of(2) {
            return Ok(());
        }
        let last = Run { start: start + width as u64 - 2, width: 1, pitch: 1, rows: 2 };
        self.copy_rows(last, Other::Host(from.wrapping_add(width - 2)), Way::In)
    }

    fn copy_rows(&self, run: Run, other: Other, way: Way) -> Result<(), Code> {
        let (driver, stream) = (self.context.driver, self.context.stream(way));
        let Run { start, width, pitch, rows } = run;
        let here = Rows { kind: MEMORY_DEVICE, device: start, pitch: pitch as usize, ..Rows::default() };
        let there = match other {
            Other::Host(place) => {
                Rows { kind: MEMORY_HOST, host: place.expose_provenance(), pitch: width, ..Rows::default() }
            }
            Other::Device(place) => Rows { kind: MEMORY_DEVICE, device: place, pitch: width, ..Rows::default() },
        };
        let (from, to) = match way {
            Way::Out => (here, there),
            Way::In => (there, here),
        };
        let copy = Copy2d { from, to, width, height: rows };
        // SAFETY: as above.
        checked(unsafe { (driver.rows)(&raw const copy, stream) })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pieces_at_equal_distances_are_one_run() {
        let mut run = Run { start: 1000, width: 8, pitch: 8, rows: 1 };
        assert!(run.takes(1024, 8) && run.takes(1048, 8) && run.takes(1072, 8));
        assert_eq!((run.rows, run.pitch, run.len()), (4, 24, 32));
        assert!(!run.takes(1100, 8) && !run.takes(1096, 4));
        assert_eq!(run.rows, 4);
        // Backwards, overlapping and too far.
        for next in [900, 1004, 1000 + PITCH_MAX + 1] {
            let mut run = Run { start: 1000, width: 8, pitch: 8, rows: 1 };
            assert!(!run.takes(next, 8), "{next}");
            assert_eq!((run.rows, run.pitch), (1, 8));
        }
        assert!(!Run::default().takes(0, 0));
    }
}
