//! The memory that the members of a window on one node share: their locks, the place where they meet, and the windows' memory itself.
//!
//! ```text
//!  head:    | broken | sleepers | arrived | met |                          lines of 128 bytes
//!  seats:   | member 0: lock | card | holes | range 0 … 31 | member 1: … |  the card and each lock on lines of their own
//!  signs:   | of member 0 for member 0, 1, … | of member 1 for member 0, … | 64 bytes each
//!  memory:  the members' parts, from the next page on
//! ```
//!
//! A member's *ranges* guard its memory against accumulates at the same time: every 16 KiB of the memory have one of 32 words, in turn.
//! Elements with holes have a word of their own (`holes`). A process that has a word never waits for anything until it has released it.

use std::io;
use std::mem::size_of;
use std::num::NonZeroUsize;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::ptr::NonNull;

use nix::fcntl::{FcntlArg, SealFlag, fcntl};
use nix::sys::memfd::{MFdFlags, memfd_create};
use nix::sys::mman::{MapFlags, ProtFlags, mmap, mmap_anonymous};

use super::lock::Lock;
use crate::shared_memory::sync::{AtomicU32, AtomicU64, Line, Ordering};

const PAGE: usize = 4096;

/// Bytes of a range.
pub(super) const RANGE: usize = 16 << 10;
const RANGES: usize = 32;

/// The dimensions of a board.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Shape {
    /// The members on the node.
    pub members: u32,
    /// Bytes of memory of all of them.
    pub bytes: usize,
}

impl Shape {
    fn memory_at(self) -> usize {
        let members = self.members as usize;
        (self.signs_at() + members * members * size_of::<Sign>()).next_multiple_of(PAGE)
    }

    fn signs_at(self) -> usize {
        size_of::<Head>() + self.members as usize * size_of::<Seat>()
    }

    /// `None` if it exceeds the address space.
    fn total(self) -> Option<NonZeroUsize> {
        let total = self.memory_at().checked_add(self.bytes).filter(|total| isize::try_from(*total).is_ok())?;
        NonZeroUsize::new(total)
    }
}

#[derive(Debug)]
#[repr(C)]
pub(super) struct Head {
    /// Not 0 once a member is lost.
    pub(super) broken: Line<AtomicU32>,
    /// The processes that sleep until something here changes.
    pub(super) sleepers: Line<AtomicU32>,
    /// How often a member has arrived at a meeting.
    pub(super) arrived: Line<AtomicU64>,
    /// The number of meetings that are over.
    pub(super) met: Line<AtomicU64>,
}

/// What belongs to one member.
#[derive(Debug)]
#[repr(C)]
pub(super) struct Seat {
    pub(super) lock: Line<Lock>,
    pub(super) card: Line<Card>,
    holes: Line<AtomicU32>,
    ranges: [Range; RANGES],
}

#[derive(Debug)]
#[repr(C, align(64))]
struct Range(AtomicU32);

/// What a member shows to another one: each only counts.
#[derive(Debug)]
#[repr(C, align(64))]
pub(super) struct Sign {
    /// How often the member has permitted the other to use its memory.
    pub(super) posted: AtomicU32,
    /// How often the other has declared that its use is over.
    pub(super) completed: AtomicU32,
}

/// How others find memory that is not on the board.
#[derive(Debug)]
#[repr(C)]
pub(super) struct Card {
    pub(super) pid: AtomicU32,
    /// By which the others check that they read the right process's memory.
    pub(super) word: AtomicU64,
    pub(super) word_at: AtomicU64,
    pub(super) memory_at: AtomicU64,
}

/// A word of a member's ranges that this process has, until it is dropped.
#[derive(Debug)]
pub(super) struct Taken<'a>(&'a AtomicU32);

impl Drop for Taken<'_> {
    #[inline]
    fn drop(&mut self) {
        self.0.store(0, Ordering::Release);
    }
}

/// How often a process looks at a word that another one has before it does something else.
const LOOKS: u32 = 100;

impl Seat {
    /// The word of elements with holes; `None` if others have it.
    pub(super) fn take_holes(&self, rank: u32) -> Option<Taken<'_>> {
        take(&self.holes.0, rank)
    }

    /// The word of the range that has the byte at `offset` of the memory; `None` if others have it.
    #[inline]
    pub(super) fn take_range(&self, offset: usize, rank: u32) -> Option<Taken<'_>> {
        take(&self.ranges[offset / RANGE % RANGES].0, rank)
    }
}

#[inline(always)]
fn take(word: &AtomicU32, rank: u32) -> Option<Taken<'_>> {
    for _ in 0..LOOKS {
        if word.load(Ordering::Relaxed) == 0
            && word.compare_exchange(0, rank.wrapping_add(1), Ordering::Acquire, Ordering::Relaxed).is_ok()
        {
            return Some(Taken(word));
        }
        std::hint::spin_loop();
    }
    None
}

/// A mapped board. The memory of a descriptor can neither shrink nor grow.
#[derive(Debug)]
pub struct Board {
    start: NonNull<u8>,
    shape: Shape,
}

// SAFETY: it is shared between processes, and gives access only to atomics and to addresses.
unsafe impl Send for Board {}

impl Board {
    /// Creates one; also returns the descriptor with which the others map it.
    pub fn create(shape: Shape) -> io::Result<(Self, OwnedFd)> {
        let total = shape.total().ok_or(io::ErrorKind::OutOfMemory)?;
        let flags = MFdFlags::MFD_CLOEXEC | MFdFlags::MFD_ALLOW_SEALING;
        let fd = memfd_create("rsd-mpi-window", flags | MFdFlags::from_bits_retain(libc::MFD_NOEXEC_SEAL))
            .or_else(|_| memfd_create("rsd-mpi-window", flags))?; // kernels before 6.3
        nix::unistd::ftruncate(&fd, total.get() as i64)?;
        fcntl(&fd, FcntlArg::F_ADD_SEALS(SealFlag::F_SEAL_SHRINK | SealFlag::F_SEAL_GROW | SealFlag::F_SEAL_SEAL))?;
        Ok((Self::map(fd.as_fd(), shape)?, fd))
    }

    /// Maps one that another process has made. Fails if the file could shrink while it is mapped, or is smaller than its shape.
    pub fn open(fd: BorrowedFd<'_>, shape: Shape) -> io::Result<Self> {
        let total = shape.total().ok_or(io::ErrorKind::OutOfMemory)?.get() as u64;
        let seals = SealFlag::from_bits_retain(fcntl(fd, FcntlArg::F_GET_SEALS)?);
        if !seals.contains(SealFlag::F_SEAL_SHRINK) || (nix::sys::stat::fstat(fd)?.st_size as u64) < total {
            return Err(io::ErrorKind::InvalidData.into());
        }
        Self::map(fd, shape)
    }

    fn map(fd: BorrowedFd<'_>, shape: Shape) -> io::Result<Self> {
        let total = shape.total().ok_or(io::ErrorKind::OutOfMemory)?;
        // SAFETY: a new mapping, at an address that the kernel chooses, touches no existing memory.
        let start = unsafe { mmap(None, total, READ_WRITE, MapFlags::MAP_SHARED, fd, 0) }?;
        Ok(Self { start: start.cast(), shape })
    }

    /// For a process that shares with none.
    pub fn private(bytes: usize) -> io::Result<Self> {
        let shape = Shape { members: 1, bytes };
        let total = shape.total().ok_or(io::ErrorKind::OutOfMemory)?;
        // SAFETY: a new mapping, at an address that the kernel chooses, touches no existing memory.
        let start = unsafe { mmap_anonymous(None, total, READ_WRITE, MapFlags::MAP_PRIVATE) }?;
        Ok(Self { start: start.cast(), shape })
    }

    /// Where the members' memory begins.
    pub fn memory(&self) -> usize {
        self.start.as_ptr().expose_provenance() + self.shape.memory_at()
    }

    /// Fills in the card of the member at a place: the address of a word by which others recognise the process, and that of its memory.
    pub fn introduce(&self, place: u32, word: &u64, memory: usize) {
        let card = &self.seat(place).card.0;
        card.pid.store(std::process::id(), Ordering::Relaxed);
        card.word.store(*word, Ordering::Relaxed);
        card.word_at.store(std::ptr::from_ref(word).addr() as u64, Ordering::Relaxed);
        card.memory_at.store(memory as u64, Ordering::Relaxed);
    }

    /// The pid, the word, its address and that of the memory of the member at a place.
    pub fn introduction(&self, place: u32) -> (i32, u64, u64, usize) {
        let card = &self.seat(place).card.0;
        let [word, word_at, memory] = [&card.word, &card.word_at, &card.memory_at].map(|it| it.load(Ordering::Relaxed));
        (card.pid.load(Ordering::Relaxed) as i32, word, word_at, memory as usize)
    }

    #[inline]
    pub(super) fn head(&self) -> &Head {
        // SAFETY: the mapping begins with a head, is page-aligned, and any bytes are a valid head.
        unsafe { self.start.cast().as_ref() }
    }

    /// Of a member by its place on the node.
    #[inline]
    pub(super) fn seat(&self, place: u32) -> &Seat {
        assert!(place < self.shape.members, "place {place} of {}", self.shape.members);
        // SAFETY: this many seats follow the head, which keeps their alignment, and any bytes are a valid seat.
        unsafe { self.start.add(size_of::<Head>()).cast::<Seat>().add(place as usize).as_ref() }
    }
}

impl Board {
    /// What the member at one place shows to that at another.
    #[inline]
    pub(super) fn sign(&self, of: u32, to: u32) -> &Sign {
        let members = self.shape.members;
        assert!(of < members && to < members, "places {of} and {to} of {members}");
        let index = of as usize * members as usize + to as usize;
        // SAFETY: this many signs follow the seats, which keep their alignment, and any bytes are a valid sign.
        unsafe { self.start.add(self.shape.signs_at()).cast::<Sign>().add(index).as_ref() }
    }
}

const READ_WRITE: ProtFlags = ProtFlags::PROT_READ.union(ProtFlags::PROT_WRITE);

const _: () = assert!(size_of::<Head>().is_multiple_of(align_of::<Seat>()));
const _: () = assert!(size_of::<Seat>().is_multiple_of(align_of::<Sign>()));

#[cfg(not(loom))]
impl Drop for Board {
    fn drop(&mut self) {
        if let Some(total) = self.shape.total() {
            // SAFETY: mapped with this length; the window's memory is not used after `MPI_Win_free`.
            let _ = unsafe { nix::sys::mman::munmap(self.start.cast(), total.get()) };
        }
    }
}

#[cfg(test)]
#[cfg(not(loom))]
mod tests {
    use super::*;

    #[test]
    fn two_mappings_share_seats_and_memory() {
        let shape = Shape { members: 3, bytes: 10_000 };
        let (one, fd) = Board::create(shape).unwrap();
        let two = Board::open(fd.as_fd(), shape).unwrap();
        assert!(one.memory().is_multiple_of(PAGE) && one.memory() != two.memory());
        one.seat(2).card.0.pid.store(77, Ordering::Relaxed);
        assert_eq!(
            (two.seat(2).card.0.pid.load(Ordering::Relaxed), two.seat(1).card.0.pid.load(Ordering::Relaxed)),
            (77, 0)
        );
        let taken = one.seat(1).take_range(RANGE + 5, 0);
        assert!(taken.is_some() && two.seat(1).take_range(2 * RANGE - 1, 1).is_none());
        assert!(two.seat(1).take_range(0, 1).is_some() && two.seat(1).take_holes(1).is_some());
        one.sign(2, 1).posted.store(9, Ordering::Relaxed);
        assert_eq!(
            (two.sign(2, 1).posted.load(Ordering::Relaxed), two.sign(1, 2).posted.load(Ordering::Relaxed)),
            (9, 0)
        );
        drop(taken);
        assert!(two.seat(1).take_range(2 * RANGE - 1, 1).is_some());
        assert!(Board::open(fd.as_fd(), Shape { bytes: 20_000, ..shape }).is_err());
        assert!(Board::create(Shape { members: 1, bytes: usize::MAX - 5 }).is_err());
    }

    #[test]
    fn a_private_board_has_one_seat_and_its_memory() {
        let board = Board::private(100).unwrap();
        assert!(board.seat(0).take_range(0, 0).is_some());
        let last = std::ptr::with_exposed_provenance_mut::<u8>(board.memory() + 99);
        // SAFETY: the last of the 100 bytes.
        unsafe { last.write(1) };
    }
}
