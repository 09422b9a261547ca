//! The memory that a process shares with its peers: its ring, its cells, its tickets.
//!
//! ```text
//!  0      | nonce, retractions | intent | ring's words | 16 tickets |       4,096 bytes
//!  4,096  | slot 0 | slot 1 | …                                64 bytes each
//!         | small cell 0 | small cell 1 | …                    64 + 4,096 bytes each
//!         | large cell 0 | …                                   64 + 32,768 bytes each
//!
//!  cell:  | state: u32 | ticks spent: u32 | data |
//! ```
//!
//! A memfd that can neither shrink nor grow, so a process that maps it can rely on its size, whatever its owner does. It has no
//! name in any file system and lives as long as some process maps it; the size of `/dev/shm` does not matter. There is one per
//! process, so memory grows with the number of processes and not of pairs; pages that were never used do not exist.
//!
//! A child made by fork does not inherit the mapping: it would write into the rings in its parent's name.

#![expect(unsafe_code, reason = "maps memory and lends parts of it, all within its bounds")]

use std::io;
use std::mem::size_of;
use std::num::NonZeroUsize;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::ptr::NonNull;

use nix::fcntl::{FcntlArg, SealFlag, fcntl};
use nix::sys::memfd::{MFdFlags, memfd_create};
use nix::sys::mman::{MapFlags, MmapAdvise, ProtFlags, madvise, mmap, munmap};

use super::geometry::{CELL_HEAD, CellHead, Geometry, HEAD_BYTES};
use super::ring::{Ring, RingHead, Slot};
use super::ticket::{TICKETS, Ticket, TicketLine};
use crate::memory::{Arrived, Room};
use crate::shared_memory::sync::{AtomicU64, Line};

#[repr(C)]
struct SegmentHead {
    nonce: Line<Nonce>,
    intent: Line<AtomicU64>,
    ring: RingHead,
    tickets: [TicketLine; TICKETS],
}

#[repr(C)]
struct Nonce {
    word: AtomicU64,
    retractions: AtomicU64,
}

const _: () = assert!(size_of::<SegmentHead>() <= HEAD_BYTES);

/// A mapped segment, the process's own or a peer's.
#[derive(Debug)]
pub(super) struct Segment {
    base: NonNull<u8>,
    geometry: Geometry,
    len: usize,
}

// SAFETY: it is shared between processes, and gives access only to atomics and to memory that the ring's protocol
// guards.
unsafe impl Send for Segment {}

impl Segment {
    /// Creates a segment; also returns the descriptor with which others map it.
    pub(super) fn create(geometry: Geometry) -> io::Result<(Self, OwnedFd)> {
        let flags = MFdFlags::MFD_CLOEXEC | MFdFlags::MFD_ALLOW_SEALING;
        let fd = memfd_create("rsd-mpi", flags | MFdFlags::from_bits_retain(nix::libc::MFD_NOEXEC_SEAL))
            .or_else(|_| memfd_create("rsd-mpi", flags))?; // kernels before 6.3
        nix::unistd::ftruncate(&fd, geometry.total() as i64)?;
        fcntl(&fd, FcntlArg::F_ADD_SEALS(SealFlag::F_SEAL_SHRINK | SealFlag::F_SEAL_GROW | SealFlag::F_SEAL_SEAL))?;
        Ok((Self::map(fd.as_fd(), geometry)?, fd))
    }

    /// The number of large cells.
    pub(super) fn large_cells(&self) -> u32 {
        self.geometry.large
    }

    /// Maps a peer's segment. Fails if the file could shrink while it is mapped, or is smaller than its geometry says.
    pub(super) fn open(fd: BorrowedFd<'_>, geometry: Geometry) -> io::Result<Self> {
        let refuse = |text: &str| Err(io::Error::new(io::ErrorKind::InvalidData, text.to_string()));
        let Some(geometry) = geometry.checked() else { return refuse("its segment has an invalid shape") };
        let seals = SealFlag::from_bits_retain(fcntl(fd, FcntlArg::F_GET_SEALS)?);
        if !seals.contains(SealFlag::F_SEAL_SHRINK) {
            return refuse("its segment could shrink");
        }
        if (nix::sys::stat::fstat(fd)?.st_size as u64) < geometry.total() as u64 {
            return refuse("its segment is shorter than announced");
        }
        Self::map(fd, geometry)
    }

    fn map(fd: BorrowedFd<'_>, geometry: Geometry) -> io::Result<Self> {
        let len = geometry.total();
        let size = NonZeroUsize::new(len).ok_or(io::ErrorKind::InvalidInput)?;
        // SAFETY: a new mapping, at an address that the kernel chooses, touches no existing memory.
        let base =
            unsafe { mmap(None, size, ProtFlags::PROT_READ | ProtFlags::PROT_WRITE, MapFlags::MAP_SHARED, fd, 0) }?;
        let segment = Self { base: base.cast(), geometry, len };
        // SAFETY: the mapping just made.
        unsafe { madvise(base, len, MmapAdvise::MADV_DONTFORK) }?;
        Ok(segment)
    }

    pub(super) fn geometry(&self) -> Geometry {
        self.geometry
    }

    #[inline(always)]
    fn head(&self) -> &SegmentHead {
        // SAFETY: the mapping begins with a head, is page-aligned, and any bytes are valid atomics.
        unsafe { self.base.cast::<SegmentHead>().as_ref() }
    }

    /// A word that the owner chooses; with it a peer verifies that it reads the right process's memory.
    pub(super) fn nonce(&self) -> &AtomicU64 {
        &self.head().nonce.0.word
    }

    /// Whether the owner has ever taken back an offer of its memory (not 0): its peers read it no more.
    pub(super) fn retractions(&self) -> &AtomicU64 {
        &self.head().nonce.0.retractions
    }

    /// The slots, and their ring, that the owner is about to claim, or has claimed and not yet published.
    #[inline(always)]
    pub(super) fn intent(&self) -> &AtomicU64 {
        &self.head().intent.0
    }

    /// The ring in which the owner receives.
    #[inline(always)]
    pub(super) fn ring(&self) -> Ring<'_> {
        // SAFETY: `slots` slots follow the head, within the mapping; any bytes are valid slots.
        let slots = unsafe {
            std::slice::from_raw_parts(self.base.add(HEAD_BYTES).cast::<Slot>().as_ptr(), self.geometry.slots as usize)
        };
        Ring { head: &self.head().ring, slots }
    }

    /// The ticket of a copy in which the owner receives; `None` if there is no such ticket.
    pub(super) fn ticket(&self, ticket: usize) -> Option<&Ticket> {
        self.head().tickets.get(ticket).map(|line| &line.0)
    }

    /// The head of one of the owner's cells; `None` if there is no such cell.
    #[inline]
    pub(super) fn cell_head(&self, cell: u32) -> Option<&CellHead> {
        let (at, _) = self.geometry.cell(cell)?;
        // SAFETY: cells lie within the mapping, at multiples of 64 bytes; any bytes are valid heads.
        Some(unsafe { self.base.add(at).cast::<CellHead>().as_ref() })
    }

    /// The first `len` bytes of a cell; `None` if there is no such cell or it is smaller. A peer that follows the
    /// protocol does not change them until the cell is freed; one that does not corrupts its own message.
    #[inline]
    pub(super) fn cell(&self, cell: u32, len: usize) -> Option<Arrived<'_>> {
        // SAFETY: `cell_at` has found that many bytes, which are mapped as long as the segment exists.
        self.cell_at(cell, len).map(|start| unsafe { Arrived::shared(start, len) })
    }

    /// Room in the first `len` bytes of a cell, which the owner of the segment fills once it has taken the cell from its pool.
    #[inline]
    pub(super) fn cell_room(&self, cell: u32, len: usize) -> Option<Room<'_>> {
        // SAFETY: `cell_at` has found that many bytes, which are mapped as long as the segment exists.
        self.cell_at(cell, len).map(|start| unsafe { Room::shared(start, len) })
    }

    /// Has the kernel find the memory of the owner's cells now, instead of page by page when they are filled. Returns whether it could: before
    /// Linux 5.14, it finds the memory when they are filled.
    pub(super) fn populate(&self, cells: std::ops::Range<u32>) -> bool {
        const POPULATE_WRITE: nix::libc::c_int = 23; // MADV_POPULATE_WRITE
        const PAGE: usize = 4096;
        let Some((from, _)) = self.geometry.cell(cells.start) else { return false };
        let Some((last, room)) = cells.end.checked_sub(1).and_then(|last| self.geometry.cell(last)) else {
            return false;
        };
        let (from, to) = (from / PAGE * PAGE, last + CELL_HEAD + room);
        // SAFETY: pages of the mapping, whose contents do not change. With larger pages than these, it fails.
        !cells.is_empty()
            && unsafe { nix::libc::madvise(self.base.add(from).as_ptr().cast(), to - from, POPULATE_WRITE) } == 0
    }

    #[inline]
    fn cell_at(&self, cell: u32, len: usize) -> Option<*mut u8> {
        let (at, room) = self.geometry.cell(cell)?;
        // SAFETY: within the cell, which lies within the mapping.
        (len <= room).then(|| unsafe { self.base.add(at + CELL_HEAD).as_ptr() })
    }
}

impl Drop for Segment {
    fn drop(&mut self) {
        // SAFETY: `map` mapped it with this length; nothing that was handed out outlives the borrow of `self`.
        let _ = unsafe { munmap(self.base.cast(), self.len) };
    }
}

#[cfg(test)]
#[cfg(not(loom))]
mod tests {
    use super::super::geometry::{LARGE, SMALL};
    use super::*;

    const GEOMETRY: Geometry = Geometry { slots: 16, small: 3, large: 2 };

    #[test]
    fn cells_are_contiguous_and_end_with_the_segment() {
        let mut end = HEAD_BYTES + 16 * 64;
        for (cell, room) in [(0, SMALL), (1, SMALL), (2, SMALL), (3, LARGE), (4, LARGE)] {
            assert_eq!(GEOMETRY.cell(cell), Some((end, room)));
            end += CELL_HEAD + room;
        }
        assert_eq!(GEOMETRY.total(), end);
        for cell in [5, 6, u32::MAX] {
            assert_eq!(GEOMETRY.cell(cell), None);
        }
    }

    #[test]
    fn bytes_of_a_cell_are_never_more_than_the_cell_has() {
        let (segment, _) = Segment::create(GEOMETRY).unwrap();
        assert_eq!(segment.cell(2, SMALL).map(|bytes| bytes.len()), Some(SMALL));
        assert!(segment.cell(2, SMALL + 1).is_none());
        assert!(segment.cell(4, LARGE + 1).is_none());
        assert!(segment.cell(5, 0).is_none());
        assert!(segment.cell_head(5).is_none());
        segment.cell_room(4, LARGE).unwrap().put(LARGE - 1, [7]);
        assert_eq!(segment.cell(4, LARGE).unwrap().to_vec().last(), Some(&7));
    }

    #[test]
    fn the_memory_of_cells_is_found_at_once() {
        let (segment, fd) = Segment::create(GEOMETRY).unwrap();
        let kib = || nix::sys::stat::fstat(&fd).unwrap().st_blocks / 2;
        assert!(!segment.populate(5..6) && !segment.populate(2..9), "the segment does not have these cells");
        #[expect(clippy::reversed_empty_ranges, reason = "that is what is tested")]
        let empty = segment.populate(4..4) || segment.populate(4..2);
        assert_eq!((empty, kib()), (false, 0));
        // What else it may refuse is an old kernel.
        if segment.populate(3..4) {
            assert_eq!(kib(), 36, "nine pages for a cell that begins within the first");
            assert!(segment.populate(0..5));
            assert!((80..=88).contains(&kib()), "{}", kib());
        }
    }

    #[test]
    fn segments_that_could_shrink_or_are_too_short_are_refused() {
        let unsealed = memfd_create("test", MFdFlags::MFD_CLOEXEC | MFdFlags::MFD_ALLOW_SEALING).unwrap();
        nix::unistd::ftruncate(&unsealed, GEOMETRY.total() as i64).unwrap();
        let text = |fd: &OwnedFd, geometry| Segment::open(fd.as_fd(), geometry).unwrap_err().to_string();
        assert_eq!(text(&unsealed, GEOMETRY), "its segment could shrink");
        let (_, fd) = Segment::create(GEOMETRY).unwrap();
        assert!(Segment::open(fd.as_fd(), GEOMETRY).is_ok());
        assert_eq!(text(&fd, Geometry { large: 99, ..GEOMETRY }), "its segment is shorter than announced");
        assert_eq!(text(&fd, Geometry { slots: 15, ..GEOMETRY }), "its segment has an invalid shape");
        assert_eq!(text(&fd, Geometry { small: u32::MAX, ..GEOMETRY }), "its segment has an invalid shape");
        assert!(nix::unistd::ftruncate(&fd, 0).is_err());
    }
}
