//! The memory that the members of a communicator share on one node.

use std::io;
use std::mem::{align_of, size_of};
use std::num::NonZeroUsize;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::ptr::NonNull;
use std::sync::Arc;

use nix::fcntl::{FcntlArg, SealFlag, fcntl};
use nix::sys::memfd::{MFdFlags, memfd_create};
use nix::sys::mman::{MapFlags, MmapAdvise, ProtFlags, madvise, mmap};

use super::{DEPTH, Head, LETTER, Mark, NOTE, PACKED, POSTS, Pack, SLOTS};
use crate::shared_memory::sync::{AtomicU64, Line};

/// With fewer members, packing ([`super::packing`]) costs as much as it saves.
#[cfg(not(loom))]
const FEWEST: u32 = 32;
#[cfg(loom)]
const FEWEST: u32 = 3;

/// How many of the longest blocks fit in a cache line.
const PACKS_IN_LINE: usize = 64 / PACKED;

/// The dimensions of an area.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Shape {
    /// Members; at least 2, at most [`Shape::MOST`].
    pub members: u32,
    /// Bytes of a slot: a multiple of 4,096, at most 1 MiB.
    pub slot: usize,
    /// Whether members have cores of their own: then many count their arrivals in groups, and the last one to arrive ends a barrier.
    pub in_groups: bool,
}

impl Shape {
    /// The most members that can share an area.
    pub const MOST: u32 = 1024;

    /// Returns the shape if an area can have it, otherwise `None`.
    fn checked(self) -> Option<Self> {
        let sound = (2..=Self::MOST).contains(&self.members)
            && self.slot.is_multiple_of(4096)
            && (4096..=1 << 20).contains(&self.slot);
        sound.then_some(self)
    }

    /// Whether short data are packed.
    #[inline(always)]
    pub(super) fn packs(self) -> bool {
        self.in_groups && self.members >= FEWEST
    }

    fn marks(self) -> usize {
        self.members as usize * DEPTH as usize
    }

    fn packs_at(self) -> usize {
        size_of::<Head>() + self.marks() * size_of::<Mark>()
    }

    /// The packs of an operation: whole lines.
    fn packs_each(self) -> usize {
        let each = if self.packs() { self.members as usize } else { 0 };
        each.next_multiple_of(PACKS_IN_LINE)
    }

    fn notes_at(self) -> usize {
        (self.packs_at() + self.packs_each() * DEPTH as usize * size_of::<Pack>()).next_multiple_of(4096)
    }

    fn posts(self) -> usize {
        self.members as usize * POSTS as usize
    }

    fn posts_at(self) -> usize {
        (self.notes_at() + (self.members as usize + 1) * DEPTH as usize * NOTE).next_multiple_of(4096)
    }

    fn read_at(self) -> usize {
        (self.posts_at() + self.posts() * size_of::<Mark>()).next_multiple_of(align_of::<Line<AtomicU64>>())
    }

    fn letters_at(self) -> usize {
        (self.read_at() + self.members as usize * size_of::<Line<AtomicU64>>()).next_multiple_of(4096)
    }

    fn slots_at(self) -> usize {
        (self.letters_at() + self.posts() * LETTER).next_multiple_of(4096)
    }

    pub(super) fn total(self) -> usize {
        self.slots_at() + (self.members as usize + 1) * SLOTS as usize * self.slot
    }
}

const _: () = assert!(size_of::<Head>().is_multiple_of(align_of::<Mark>()));
#[cfg(not(loom))]
const _: () = assert!(size_of::<Pack>() * PACKS_IN_LINE == size_of::<Mark>());

/// A mapped area: a memfd that can neither shrink nor grow, in which only pages that are used exist. A child made by
/// fork does not inherit it. Copies are of one mapping.
#[derive(Debug, Clone)]
pub struct Area {
    head: NonNull<Head>,
    marks: NonNull<Mark>,
    packs: NonNull<Pack>,
    notes: NonNull<u8>,
    posts: NonNull<Mark>,
    read: NonNull<Line<AtomicU64>>,
    letters: NonNull<u8>,
    slots: NonNull<u8>,
    shape: Shape,
    /// None for models.
    _mapping: Option<Arc<Mapping>>,
}

#[derive(Debug)]
struct Mapping {
    base: NonNull<std::ffi::c_void>,
    len: usize,
}

// SAFETY: it is shared between processes, and gives access only to atomics and to memory that the protocol guards.
unsafe impl Send for Area {}

impl Area {
    /// Creates an area; also returns the descriptor with which the others map it.
    pub fn create(shape: Shape) -> io::Result<(Self, OwnedFd)> {
        let shape = shape.checked().ok_or(io::ErrorKind::InvalidInput)?;
        let flags = MFdFlags::MFD_CLOEXEC | MFdFlags::MFD_ALLOW_SEALING;
        let fd = memfd_create("rsd-mpi-node", flags | MFdFlags::from_bits_retain(nix::libc::MFD_NOEXEC_SEAL))
            .or_else(|_| memfd_create("rsd-mpi-node", flags))?; // kernels before 6.3
        nix::unistd::ftruncate(&fd, shape.total() as i64)?;
        fcntl(&fd, FcntlArg::F_ADD_SEALS(SealFlag::F_SEAL_SHRINK | SealFlag::F_SEAL_GROW | SealFlag::F_SEAL_SEAL))?;
        Ok((Self::map(fd.as_fd(), shape)?, fd))
    }

    /// Maps an area made by another process. Fails if the file could shrink while it is mapped, or does not have the length that follows from
    /// the shape: then the other process lays it out differently.
    pub fn open(fd: BorrowedFd<'_>, shape: Shape) -> io::Result<Self> {
        let shape = shape.checked().ok_or(io::ErrorKind::InvalidInput)?;
        let seals = SealFlag::from_bits_retain(fcntl(fd, FcntlArg::F_GET_SEALS)?);
        let has_length = nix::sys::stat::fstat(fd)?.st_size as u64 == shape.total() as u64;
        if !seals.contains(SealFlag::F_SEAL_SHRINK) || !has_length {
            return Err(io::ErrorKind::InvalidData.into());
        }
        Self::map(fd, shape)
    }

    fn map(fd: BorrowedFd<'_>, shape: Shape) -> io::Result<Self> {
        let size = NonZeroUsize::new(shape.total()).ok_or(io::ErrorKind::InvalidInput)?;
        // SAFETY: a new mapping, at an address that the kernel chooses, touches no existing memory.
        let base =
            unsafe { mmap(None, size, ProtFlags::PROT_READ | ProtFlags::PROT_WRITE, MapFlags::MAP_SHARED, fd, 0) }?;
        let base = base.cast::<u8>();
        let mapping = Some(Arc::new(Mapping { base: base.cast(), len: shape.total() }));
        let places = [size_of::<Head>(), shape.notes_at(), shape.posts_at(), shape.read_at(), shape.letters_at()];
        // SAFETY: within the mapping, by the sizes in `Shape`.
        let [marks, notes, posts, read, letters] = unsafe { places.map(|at| base.add(at)) };
        // SAFETY: as above.
        let [packs, slots] = unsafe { [shape.packs_at(), shape.slots_at()].map(|at| base.add(at)) };
        let (head, marks, packs, posts, read) = (base.cast(), marks.cast(), packs.cast(), posts.cast(), read.cast());
        let area = Self { head, marks, packs, notes, posts, read, letters, slots, shape, _mapping: mapping };
        // SAFETY: the mapping just made.
        unsafe { madvise(base.cast(), shape.total(), MmapAdvise::MADV_DONTFORK) }?;
        Ok(area)
    }

    pub(super) fn shape(&self) -> Shape {
        self.shape
    }

    #[inline(always)]
    pub(super) fn head(&self) -> &Head {
        // SAFETY: the mapping begins with a head, is page-aligned, and any bytes are a valid head.
        unsafe { self.head.as_ref() }
    }

    /// `marks[member × DEPTH + operation]`.
    #[inline(always)]
    pub(super) fn marks(&self) -> &[Mark] {
        // SAFETY: this many marks lie within the mapping, and any bytes are valid marks.
        unsafe { std::slice::from_raw_parts(self.marks.as_ptr(), self.shape.marks()) }
    }

    /// The packs of an operation, one for each member, if data are packed.
    #[inline(always)]
    pub(super) fn packs(&self, operation: u64) -> &[Pack] {
        let (at, each) = ((operation % DEPTH) as usize, self.shape.packs_each());
        // SAFETY: so many packs of each of `DEPTH` operations lie within the mapping, and any bytes are valid packs.
        unsafe { std::slice::from_raw_parts(self.packs.add(at * each).as_ptr(), each) }
    }

    /// The start of a note; the notes of member `members` are the results.
    #[inline(always)]
    pub(super) fn note(&self, member: u32, operation: u64) -> *mut u8 {
        let index = u64::from(member.min(self.shape.members)) * DEPTH + operation % DEPTH;
        // SAFETY: `DEPTH` notes of each member and as many results lie within the mapping.
        unsafe { self.notes.add(index as usize * NOTE) }.as_ptr()
    }

    /// `posts[member × POSTS + operation]`.
    #[inline(always)]
    pub(super) fn posts(&self) -> &[Mark] {
        // SAFETY: this many marks lie within the mapping, and any bytes are valid marks.
        unsafe { std::slice::from_raw_parts(self.posts.as_ptr(), self.shape.posts()) }
    }

    /// For each member, how many non-blocking operations it has read.
    #[inline(always)]
    pub(super) fn read(&self) -> &[Line<AtomicU64>] {
        // SAFETY: a line for each member lies within the mapping, and any bytes are valid numbers.
        unsafe { std::slice::from_raw_parts(self.read.as_ptr(), self.shape.members as usize) }
    }

    /// Where the data of a post lie that do not fit in its mark.
    #[inline(always)]
    pub(super) fn letter(&self, member: u32, operation: u64) -> *mut u8 {
        let index = u64::from(member.min(self.shape.members - 1)) * POSTS + operation % POSTS;
        // SAFETY: `POSTS` letters of each member lie within the mapping.
        unsafe { self.letters.add(index as usize * LETTER) }.as_ptr()
    }

    /// The start of a slot; the slots of member `members` are the results.
    #[inline(always)]
    pub(super) fn slot(&self, member: u32, operation: u64) -> *mut u8 {
        let index = u64::from(member.min(self.shape.members)) * SLOTS + operation % SLOTS;
        // SAFETY: `SLOTS` slots of each member and as many results lie within the mapping.
        unsafe { self.slots.add(index as usize * self.shape.slot) }.as_ptr()
    }
}

#[cfg(loom)]
impl Area {
    /// For models: an area over memory that outlives it.
    pub(super) fn over(
        head: &Head,
        marks: &[Mark],
        packs: &[Pack],
        posts: &[Mark],
        read: &[Line<AtomicU64>],
        shape: Shape,
    ) -> Self {
        let none = NonNull::dangling();
        assert!(packs.len() >= shape.packs_each() * DEPTH as usize);
        Self {
            head: head.into(),
            marks: NonNull::from(marks).cast(),
            packs: NonNull::from(packs).cast(),
            notes: none,
            posts: NonNull::from(posts).cast(),
            read: NonNull::from(read).cast(),
            letters: none,
            slots: none,
            shape,
            _mapping: None,
        }
    }
}

// SAFETY: an address.
unsafe impl Send for Mapping {}
// SAFETY: as above.
unsafe impl Sync for Mapping {}

impl Drop for Mapping {
    fn drop(&mut self) {
        // SAFETY: `Area::map` mapped it with this length; nothing that was handed out outlives the borrow of an area.
        let _ = unsafe { nix::sys::mman::munmap(self.base, self.len) };
    }
}
