//! The user's memory: what a message is sent from and received into.
//!
//! A [`Buffer`] is made once, at the C boundary, from address, count and datatype; from then on it is a value with a length in
//! packed bytes, and any part of it can be read or written. In every MPI call the caller guarantees that the library may use
//! the memory until the operation is over; this module and the copy loops of `datatype` rely on that.

#![expect(unsafe_code, reason = "copies from and to memory that the user has lent")]

mod exhausted;

use std::io;
use std::marker::PhantomData;
use std::os::fd::{AsRawFd, BorrowedFd};
use std::sync::Arc;

pub use exhausted::{tolerate, zeroed};

use crate::copy::copy;
use crate::datatype::{Layout, Sign};
use crate::device::{Found, Part};
use crate::error::MpiResult;
use crate::hint;

/// Memory that the user lends for one operation. Cheap to clone: it does not own the memory.
#[derive(Debug, Clone)]
pub struct Buffer {
    base: *mut u8,
    len: usize,
    shape: Shape,
}

#[derive(Debug, Clone)]
enum Shape {
    Contiguous,
    /// Elements of a layout with holes, one extent apart, starting at packed byte `start`.
    Scattered {
        layout: Arc<Layout>,
        start: usize,
    },
    /// In the memory of a device.
    Device(Arc<Part>),
}

// SAFETY: a buffer is an address; its creator has guaranteed that any thread of the process may use the memory until
// the operation is over (MPI 5.0 §3.7).
unsafe impl Send for Buffer {}

impl Buffer {
    /// No memory, for messages without data.
    pub const EMPTY: Self = Self { base: std::ptr::null_mut(), len: 0, shape: Shape::Contiguous };

    /// `len` bytes at `base`.
    ///
    /// # Safety
    ///
    /// The bytes must be readable, and writable where something is received into them, as long as the value or a clone of it
    /// is used; `base` may be anything if `len` is 0.
    #[inline]
    pub unsafe fn contiguous(base: *mut u8, len: usize) -> Self {
        Self { base, len, shape: Shape::Contiguous }
    }

    /// `count` elements with a layout, the first at `base`, one extent apart.
    ///
    /// # Safety
    ///
    /// As for [`Buffer::contiguous`], for all bytes that the layout names.
    pub unsafe fn new(base: *mut u8, count: usize, layout: &Arc<Layout>) -> Self {
        let len = layout.size() * count;
        if len == 0 {
            return Self::EMPTY;
        }
        match layout.contiguous_at(count) {
            Some(offset) => Self { base: base.wrapping_offset(offset), len, shape: Shape::Contiguous },
            None => Self { base, len, shape: Shape::Scattered { layout: Arc::clone(layout), start: 0 } },
        }
    }

    /// The same bytes, which lie in this allocation of device memory. Fails with class `MPI_ERR_BUFFER` if it cannot be used.
    pub fn on_device(self, found: Found) -> MpiResult<Self> {
        let (base, len) = (self.base, self.len);
        let layout = match self.shape {
            Shape::Contiguous => None,
            Shape::Scattered { layout, .. } => Some(layout),
            Shape::Device(_) => return Ok(self),
        };
        Ok(Self { base, len, shape: Shape::Device(Part::new(found, base, layout, len)?) })
    }

    /// Its part of a device's memory, if it lies there.
    #[inline]
    pub fn device(&self) -> Option<&Part> {
        match &self.shape {
            Shape::Contiguous | Shape::Scattered { .. } => None,
            Shape::Device(part) => Some(part),
        }
    }

    /// Whether the processor can use its bytes.
    #[inline]
    pub fn is_on_host(&self) -> bool {
        self.device().is_none()
    }

    /// The same memory, for a message that reads or writes it once, in order: device memory is then copied ahead of reading, and after
    /// writing ([`Buffer::settle`]).
    pub fn streamed(self) -> Self {
        match &self.shape {
            Shape::Contiguous | Shape::Scattered { .. } => self,
            Shape::Device(part) => Self { shape: Shape::Device(part.streamed()), ..self },
        }
    }

    /// Memory of the host into which the `len` packed bytes from `at` on may be written, with the place of the first; then
    /// [`Buffer::landed`] must be called. `None` if these bytes must be copied instead.
    pub fn landing(&self, at: usize, len: usize) -> Option<(Self, usize)> {
        match &self.shape {
            Shape::Contiguous | Shape::Scattered { .. } => Some((self.clone(), at)),
            Shape::Device(part) => {
                let base = part.landing(at, len)?;
                Some((Self { base, len, shape: Shape::Contiguous }, 0))
            }
        }
    }

    /// The bytes of a landing are there.
    pub fn landed(&self, at: usize, len: usize) {
        if let Some(part) = self.device() {
            part.landed(at, len);
        }
    }

    /// Starts all copies to a device that have not started yet; [`Buffer::settle`] waits for them.
    pub fn flush(&self) {
        if let Some(part) = self.device() {
            part.flush();
        }
    }

    /// Waits until all that was written is there. Fails if a copy from or to a device has failed.
    #[inline]
    pub fn settle(&self) -> MpiResult {
        match &self.shape {
            Shape::Contiguous | Shape::Scattered { .. } => Ok(()),
            Shape::Device(part) => part.settle(),
        }
    }

    /// The basic datatypes of the first `len` packed bytes, if the memory has not forgotten its datatype.
    pub fn sign(&self, len: usize) -> Sign {
        match &self.shape {
            Shape::Contiguous => Sign::UNKNOWN,
            Shape::Scattered { layout, start } => layout.sign(*start, len),
            Shape::Device(part) => part.layout().map_or(Sign::UNKNOWN, |(layout, start)| layout.sign(start, len)),
        }
    }

    /// The length in packed bytes.
    #[inline]
    pub fn len(&self) -> usize {
        self.len
    }

    /// Whether it has no bytes.
    #[inline]
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// The address of the first byte, if the bytes are contiguous and on the host.
    #[inline]
    pub fn as_contiguous(&self) -> Option<*mut u8> {
        match self.shape {
            Shape::Contiguous => Some(self.base),
            Shape::Scattered { .. } | Shape::Device(_) => None,
        }
    }

    /// The bytes, if they are contiguous and on the host.
    #[inline]
    pub fn as_bytes(&self) -> Option<&[u8]> {
        let base = self.as_contiguous()?;
        if self.len == 0 {
            return Some(&[]);
        }
        // SAFETY: the creator of the buffer has guaranteed that these bytes are readable while it is used.
        Some(unsafe { std::slice::from_raw_parts(base, self.len) })
    }

    /// A copy of the packed bytes, and a buffer of it, which is valid as long as the copy lives. Fails with class
    /// `MPI_ERR_NO_MEM`, or if a device fails.
    pub fn copied(&self) -> MpiResult<(Box<[u8]>, Self)> {
        let mut copy = zeroed(self.len)?;
        self.read(0, &mut copy);
        self.settle()?;
        let base = copy.as_mut_ptr();
        Ok((copy, Self { base, len: self.len, shape: Shape::Contiguous }))
    }

    /// The part of `len` packed bytes that starts at `at`; it must lie within the buffer.
    #[inline]
    pub fn part(&self, at: usize, len: usize) -> Self {
        assert!(at <= self.len && len <= self.len - at, "{len} bytes at {at} of {}", self.len);
        match &self.shape {
            Shape::Contiguous => Self { base: self.base.wrapping_add(at), len, shape: Shape::Contiguous },
            Shape::Scattered { layout, start } => {
                Self { base: self.base, len, shape: Shape::Scattered { layout: Arc::clone(layout), start: start + at } }
            }
            Shape::Device(part) => Self { base: self.base, len, shape: Shape::Device(part.part(at, len)) },
        }
    }

    /// Prefetches the first lines of a buffer that a message will be sent from. Otherwise they would be waited for after what the library has to
    /// do first, such as an atomic operation.
    #[inline(always)]
    pub fn will_be_read(&self) {
        self.first_lines(hint::reading);
    }

    /// Prefetches the first lines of a buffer that a message will be received into: they come while the process waits for the message. Otherwise
    /// the stores to them would hold up those that follow, which may be the process's answer.
    #[inline(always)]
    pub fn will_be_written(&self) {
        self.first_lines(hint::writing);
    }

    #[inline(always)]
    fn first_lines(&self, prefetch: impl Fn(*const u8)) {
        const LINE: usize = 64;
        // The processor itself prefetches the rest of a longer copy.
        const MOST: usize = 4 * LINE;
        let Shape::Contiguous = self.shape else { return };
        for at in (0..self.len.min(MOST)).step_by(LINE) {
            prefetch(self.base.wrapping_add(at));
        }
    }

    /// Copies the packed bytes that start at `at` into `into`; they must lie within the buffer.
    #[inline]
    pub fn read(&self, at: usize, into: &mut [u8]) {
        // SAFETY: a slice of the library's own.
        unsafe { self.copy_to(at, into.as_mut_ptr(), into.len()) }
    }

    /// As [`Buffer::read`], into memory that other processes may use meanwhile.
    ///
    /// # Safety
    ///
    /// `len` bytes at `into` must be writable.
    #[inline]
    pub unsafe fn copy_to(&self, at: usize, into: *mut u8, len: usize) {
        assert!(at <= self.len && len <= self.len - at, "{len} bytes at {at} of {}", self.len);
        if len == 0 {
            return;
        }
        match &self.shape {
            // SAFETY: within the memory that the creator of the buffer has guaranteed. The user may name the same memory twice, against
            // the standard's rules: `copy` is defined even then.
            Shape::Contiguous => unsafe { copy(self.base.add(at).cast_const(), into, len) },
            // SAFETY: as above, for the bytes of the layout.
            Shape::Scattered { layout, start } => unsafe { layout.pack(self.base, start + at, into, len) },
            // SAFETY: the caller's promise.
            Shape::Device(part) => unsafe { part.read(at, into, len) },
        }
    }

    /// Copies `from` over the packed bytes that start at `at`; they must lie within the buffer.
    #[inline]
    pub fn write(&self, at: usize, from: &[u8]) {
        // SAFETY: a slice of the library's own.
        unsafe { self.copy_from(at, from.as_ptr(), from.len()) }
    }

    /// As [`Buffer::write`], from memory that other processes may use meanwhile.
    ///
    /// # Safety
    ///
    /// `len` bytes at `from` must be readable.
    #[inline]
    pub unsafe fn copy_from(&self, at: usize, from: *const u8, len: usize) {
        assert!(at <= self.len && len <= self.len - at, "{len} bytes at {at} of {}", self.len);
        if len == 0 {
            return;
        }
        match &self.shape {
            // SAFETY: as for `copy_to`; the memory is writable.
            Shape::Contiguous => unsafe { copy(from, self.base.add(at), len) },
            // SAFETY: as above, for the bytes of the layout.
            Shape::Scattered { layout, start } => unsafe { layout.unpack(self.base, start + at, from, len) },
            // SAFETY: the caller's promise.
            Shape::Device(part) => unsafe { part.write(at, from, len) },
        }
    }

    /// Copies the first `len` bytes to another buffer; both must have them.
    pub fn copy_first(&self, len: usize, to: &Buffer) {
        assert!(len <= self.len && len <= to.len, "{len} bytes of {} to {}", self.len, to.len);
        match (self.as_contiguous(), to.as_contiguous()) {
            // SAFETY: bytes of this buffer.
            (Some(from), _) => unsafe { to.copy_from(0, from, len) },
            // SAFETY: bytes of the other buffer.
            (None, Some(into)) => unsafe { self.copy_to(0, into, len) },
            (None, None) => self.copy_in_pieces(len, to),
        }
    }

    fn copy_in_pieces(&self, len: usize, to: &Buffer) {
        match (&self.shape, &to.shape) {
            (Shape::Device(from), Shape::Device(into)) => from.copy_to(into, len),
            (Shape::Device(from), _) => {
                from.read_with(0, len, &mut |piece, at, len| {
                    // SAFETY: `read_with` passes this many bytes.
                    unsafe { to.copy_from(at, piece, len) };
                    true
                });
            }
            (_, Shape::Device(into)) => {
                into.write_with(0, len, &mut |piece, at, len| {
                    // SAFETY: `write_with` has room for this many bytes.
                    unsafe { self.copy_to(at, piece, len) };
                    true
                });
            }
            (Shape::Contiguous | Shape::Scattered { .. }, Shape::Contiguous | Shape::Scattered { .. }) => {
                let mut some = [0; 4096];
                for at in (0..len).step_by(some.len()) {
                    let some = &mut some[..(len - at).min(4096)];
                    self.read(at, some);
                    to.write(at, some);
                }
            }
        }
    }

    /// Copies all bytes to a buffer that has room for them.
    pub fn copy_all(&self, to: &Buffer) {
        self.copy_first(self.len, to);
    }

    /// Copies all bytes over those of a buffer that start at `at`; it must have them.
    #[inline]
    pub fn copy_over(&self, to: &Buffer, at: usize) {
        match (self.device(), to.device()) {
            (Some(from), Some(into)) => from.copy_over(into, at),
            (None, Some(_)) if let Some(from) = self.as_contiguous() => {
                // SAFETY: all bytes of this buffer.
                unsafe { to.copy_from(at, from, self.len) };
            }
            _other => self.copy_all(&to.part(at, self.len)),
        }
    }

    /// Passes the pieces of memory that hold the packed bytes from `at` on, in packed order, to `visit`, until it
    /// returns false or `len` bytes are covered: for calls that take lists of pieces (`readv`, `process_vm_readv`). Of device memory, these
    /// are the device's addresses.
    pub fn pieces(&self, at: usize, len: usize, mut visit: impl FnMut(*mut u8, usize) -> bool) {
        assert!(at <= self.len && len <= self.len - at, "{len} bytes at {at} of {}", self.len);
        if len == 0 {
            return;
        }
        match &self.shape {
            Shape::Contiguous => drop(visit(self.base.wrapping_add(at), len)),
            Shape::Scattered { layout, start } => layout.pieces(self.base, start + at, len, &mut visit),
            Shape::Device(part) => part.pieces(at, len, &mut visit),
        }
    }

    /// Reads from a descriptor into the packed bytes from `at` on, at most `len`, and once these are filled into
    /// `rest`: one system call. Returns the total number of bytes read; 0 at the end of the stream.
    #[inline]
    pub fn read_from(&self, descriptor: BorrowedFd<'_>, at: usize, len: usize, rest: &mut [u8]) -> io::Result<usize> {
        const PIECES: usize = 32;
        let none = libc::iovec { iov_base: std::ptr::null_mut(), iov_len: 0 };
        let mut list = [none; PIECES + 1];
        let (mut count, mut named) = (0, 0);
        self.pieces(at, len, |piece, piece_len| {
            list[count] = libc::iovec { iov_base: piece.cast(), iov_len: piece_len };
            count += 1;
            named += piece_len;
            count < PIECES
        });
        if named == len && !rest.is_empty() {
            list[count] = libc::iovec { iov_base: rest.as_mut_ptr().cast(), iov_len: rest.len() };
            count += 1;
        }
        // SAFETY: the pieces lie within the memory that the creator of the buffer has guaranteed to be writable; `rest`
        // belongs to the library.
        let got = unsafe { libc::readv(descriptor.as_raw_fd(), list.as_ptr(), count as libc::c_int) };
        usize::try_from(got).map_err(|_| io::Error::last_os_error())
    }
}

/// The bytes of a frame that has arrived. They may lie in memory to which the peer can still write, against the rules: so they are copied, and
/// no reference to them exists.
#[derive(Debug, Clone, Copy)]
pub struct Arrived<'a> {
    start: *const u8,
    len: usize,
    lent: PhantomData<&'a u8>,
}

impl<'a> Arrived<'a> {
    /// The process's own bytes.
    #[inline]
    pub fn new(bytes: &'a [u8]) -> Self {
        Self { start: bytes.as_ptr(), len: bytes.len(), lent: PhantomData }
    }

    /// `len` bytes in memory that is shared.
    ///
    /// # Safety
    ///
    /// They must be readable as long as the value is used.
    #[inline]
    pub unsafe fn shared(start: *const u8, len: usize) -> Self {
        Self { start, len, lent: PhantomData }
    }

    /// The number of bytes.
    #[inline]
    pub fn len(&self) -> usize {
        self.len
    }

    /// Whether there are no bytes.
    #[inline]
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Copies the first `len` bytes over those of a buffer that start at `at`; both must have them.
    #[inline]
    pub fn copy_to(&self, buffer: &Buffer, at: usize, len: usize) {
        assert!(len <= self.len, "{len} bytes of {}", self.len);
        // SAFETY: the creator has guaranteed that the bytes are readable.
        unsafe { buffer.copy_from(at, self.start, len) }
    }

    /// Appends a copy.
    #[inline]
    pub fn append_to(&self, bytes: &mut Vec<u8>) {
        bytes.reserve(self.len);
        // SAFETY: there is room for the bytes, which the creator has guaranteed to be readable; a vector's own memory is not shared.
        unsafe {
            std::ptr::copy_nonoverlapping(self.start, bytes.as_mut_ptr().add(bytes.len()), self.len);
            bytes.set_len(bytes.len() + self.len);
        }
    }

    /// A copy.
    pub fn to_vec(&self) -> Vec<u8> {
        let mut bytes = Vec::new();
        self.append_to(&mut bytes);
        bytes
    }
}

/// Room for a frame, perhaps in memory to which a peer can write as well, against the rules: so it is written by address, and no reference to
/// it exists.
#[derive(Debug, Clone, Copy)]
pub struct Room<'a> {
    start: *mut u8,
    len: usize,
    lent: PhantomData<&'a mut u8>,
}

impl<'a> Room<'a> {
    /// The process's own bytes.
    #[inline]
    pub fn new(bytes: &'a mut [u8]) -> Self {
        Self { start: bytes.as_mut_ptr(), len: bytes.len(), lent: PhantomData }
    }

    /// `len` bytes in memory that is shared.
    ///
    /// # Safety
    ///
    /// They must be writable as long as the value is used.
    #[inline]
    pub unsafe fn shared(start: *mut u8, len: usize) -> Self {
        Self { start, len, lent: PhantomData }
    }

    /// The address of the first byte.
    #[inline]
    pub fn start(&self) -> *mut u8 {
        self.start
    }

    /// The number of bytes.
    #[inline]
    pub fn len(&self) -> usize {
        self.len
    }

    /// Whether there is none.
    #[inline]
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// The part of `len` bytes that starts at `at`; it must lie within the room.
    #[inline]
    pub fn part(&self, at: usize, len: usize) -> Room<'a> {
        assert!(at <= self.len && len <= self.len - at, "{len} bytes at {at} of {}", self.len);
        Room { start: self.start.wrapping_add(at), len, lent: PhantomData }
    }

    /// Fills all of the room with the packed bytes of a buffer that start at `at`; the buffer must have them.
    #[inline]
    pub fn fill(&self, from: &Buffer, at: usize) {
        // SAFETY: the creator has guaranteed that the room is writable.
        unsafe { from.copy_to(at, self.start, self.len) }
    }

    /// Writes bytes from `at` on; there must be room for them.
    #[inline(always)]
    pub fn put<const N: usize>(&self, at: usize, bytes: [u8; N]) {
        assert!(N <= self.len && at <= self.len - N, "{N} bytes at {at} of {}", self.len);
        // SAFETY: within the room that the creator has guaranteed.
        unsafe { self.start.add(at).cast::<[u8; N]>().write_unaligned(bytes) }
    }

    /// Writes a payload from `at` on; there must be room for it.
    #[inline(always)]
    pub fn put_payload(&self, at: usize, payload: Payload<'_>) {
        assert!(
            payload.len <= self.len && at <= self.len - payload.len,
            "{} bytes at {at} of {}",
            payload.len,
            self.len
        );
        // SAFETY: within the room that the creator has guaranteed.
        unsafe { payload.copy_to_shared(self.start.add(at)) }
    }
}

/// The bytes of one frame after its head.
#[derive(Debug, Clone, Copy)]
pub struct Payload<'a> {
    bytes: Bytes<'a>,
    len: usize,
}

#[derive(Debug, Clone, Copy)]
enum Bytes<'a> {
    /// A buffer's bytes from this one on.
    Lent(&'a Buffer, usize),
    /// The library's own bytes.
    Own(&'a [u8]),
}

impl<'a> Payload<'a> {
    /// No bytes.
    pub const NONE: Payload<'static> = Payload { bytes: Bytes::Own(&[]), len: 0 };

    /// `len` packed bytes of a buffer, starting at `at`.
    #[inline]
    pub fn new(buffer: &'a Buffer, at: usize, len: usize) -> Self {
        assert!(at <= buffer.len() && len <= buffer.len() - at, "{len} bytes at {at} of {}", buffer.len());
        Self { bytes: Bytes::Lent(buffer, at), len }
    }

    /// A payload of these bytes.
    #[inline]
    pub fn bytes(bytes: &'a [u8]) -> Self {
        Self { bytes: Bytes::Own(bytes), len: bytes.len() }
    }

    /// The number of bytes.
    #[inline]
    pub fn len(&self) -> usize {
        self.len
    }

    /// Whether there are no bytes.
    #[inline]
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// The bytes, if they are contiguous on the host, as those of a device are in a chunk.
    #[inline]
    pub fn as_bytes(&self) -> Option<&'a [u8]> {
        match self.bytes {
            Bytes::Lent(buffer, at) => match buffer.device() {
                None => Some(&buffer.as_bytes()?[at..at + self.len]),
                // SAFETY: they are in a chunk, and stay there as long as no call moves the stream on, which the frame's sender makes last.
                Some(part) => Some(unsafe { std::slice::from_raw_parts(part.lend(at, self.len)?, self.len) }),
            },
            Bytes::Own(bytes) => Some(bytes),
        }
    }

    /// Copies all bytes; `into` must have the same length.
    #[inline]
    pub fn copy_to(&self, into: &mut [u8]) {
        assert_eq!(into.len(), self.len);
        // SAFETY: a slice of this length.
        unsafe { self.copy_to_shared(into.as_mut_ptr()) }
    }

    /// # Safety
    ///
    /// There must be room for all bytes at `into`.
    #[inline]
    unsafe fn copy_to_shared(&self, into: *mut u8) {
        match self.bytes {
            // SAFETY: the caller's promise.
            Bytes::Lent(buffer, at) => unsafe { buffer.copy_to(at, into, self.len) },
            // SAFETY: the caller's promise; the library's own bytes are not shared.
            Bytes::Own(bytes) => unsafe { std::ptr::copy_nonoverlapping(bytes.as_ptr(), into, bytes.len()) },
        }
    }
}
