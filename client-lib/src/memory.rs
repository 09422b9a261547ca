//! The user's memory: what a message is sent from and received into.
//!
//! A [`Buffer`] is made once, at the C boundary, from address, count and datatype; from then on it is a value with a length in
//! packed bytes, and any part of it can be read or written. In every MPI call the caller guarantees that the library may use
//! the memory until the operation is over; this module and the copy loops of `datatype` rely on that.

#![expect(unsafe_code, reason = "copies from and to memory that the user has lent")]

mod exhausted;

use std::io;
use std::os::fd::{AsRawFd, BorrowedFd};
use std::sync::Arc;

pub use exhausted::{tolerate, zeroed};

use crate::datatype::Layout;

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

    /// The address of the first byte, if the bytes are contiguous.
    #[inline]
    pub fn as_contiguous(&self) -> Option<*mut u8> {
        match self.shape {
            Shape::Contiguous => Some(self.base),
            Shape::Scattered { .. } => None,
        }
    }

    /// The bytes, if they are contiguous.
    #[inline]
    pub fn as_bytes(&self) -> Option<&[u8]> {
        let base = self.as_contiguous()?;
        if self.len == 0 {
            return Some(&[]);
        }
        // SAFETY: the creator of the buffer has guaranteed that these bytes are readable while it is used.
        Some(unsafe { std::slice::from_raw_parts(base, self.len) })
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
        }
    }

    /// Copies the packed bytes that start at `at` into `into`; they must lie within the buffer.
    #[inline]
    pub fn read(&self, at: usize, into: &mut [u8]) {
        assert!(at <= self.len && into.len() <= self.len - at, "{} bytes at {at} of {}", into.len(), self.len);
        if into.is_empty() {
            return;
        }
        match &self.shape {
            // SAFETY: within the memory that the creator of the buffer has guaranteed; `into` belongs to the library,
            // so they do not overlap.
            Shape::Contiguous => unsafe {
                std::ptr::copy_nonoverlapping(self.base.add(at), into.as_mut_ptr(), into.len());
            },
            // SAFETY: as above, for the bytes of the layout.
            Shape::Scattered { layout, start } => unsafe { layout.pack(self.base, start + at, into) },
        }
    }

    /// Copies `from` over the packed bytes that start at `at`; they must lie within the buffer.
    #[inline]
    pub fn write(&self, at: usize, from: &[u8]) {
        assert!(at <= self.len && from.len() <= self.len - at, "{} bytes at {at} of {}", from.len(), self.len);
        if from.is_empty() {
            return;
        }
        match &self.shape {
            // SAFETY: within the memory that the creator of the buffer has guaranteed to be writable. The user may have
            // lent the same memory for sending, against the standard's rules: `copy` is defined even then.
            Shape::Contiguous => unsafe {
                std::ptr::copy(from.as_ptr(), self.base.add(at), from.len());
            },
            // SAFETY: as above, for the bytes of the layout.
            Shape::Scattered { layout, start } => unsafe { layout.unpack(self.base, start + at, from) },
        }
    }

    /// Passes the pieces of memory that hold the packed bytes from `at` on, in packed order, to `visit`, until it
    /// returns false or `len` bytes are covered: for calls that take lists of pieces (`readv`, `process_vm_readv`).
    pub fn pieces(&self, at: usize, len: usize, mut visit: impl FnMut(*mut u8, usize) -> bool) {
        assert!(at <= self.len && len <= self.len - at, "{len} bytes at {at} of {}", self.len);
        if len == 0 {
            return;
        }
        match &self.shape {
            Shape::Contiguous => drop(visit(self.base.wrapping_add(at), len)),
            Shape::Scattered { layout, start } => layout.pieces(self.base, start + at, len, &mut visit),
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

    /// The bytes, if they are contiguous.
    #[inline]
    pub fn as_bytes(&self) -> Option<&'a [u8]> {
        match self.bytes {
            Bytes::Lent(buffer, at) => Some(&buffer.as_bytes()?[at..at + self.len]),
            Bytes::Own(bytes) => Some(bytes),
        }
    }

    /// Copies all bytes; `into` must have the same length.
    #[inline]
    pub fn copy_to(&self, into: &mut [u8]) {
        assert_eq!(into.len(), self.len);
        match self.bytes {
            Bytes::Lent(buffer, at) => buffer.read(at, into),
            Bytes::Own(bytes) => into.copy_from_slice(bytes),
        }
    }
}
