//! The memory that a schedule works on: buffers that the user lends, and temporary memory of the library.

#![expect(unsafe_code, reason = "memory lent by the user, and temporary memory that messages are received into")]

mod block;

use std::sync::Arc;

use super::schedule::{Area, Slice};
use crate::datatype::{Sign, TypeRef};
use crate::device::Pinned;
use crate::error::{MpiError, MpiResult};
use crate::memory::Buffer;
use block::{ALIGN, Block};

/// The memory that the user lends for one operation.
#[derive(Debug, Clone)]
pub struct Operands {
    /// [`Area::Send`].
    pub send: Memory,
    /// [`Area::Recv`].
    pub recv: Memory,
    /// [`Area::SendTo`], by rank.
    pub send_to: Box<[Buffer]>,
    /// [`Area::RecvFrom`], by rank.
    pub recv_from: Box<[Buffer]>,
    /// The datatype of the elements to combine; `None` if bytes are only moved.
    pub elements: Option<TypeRef>,
    /// Memory of the host in place of a device's ([`Operands::on_host`]).
    pub staged: Vec<Staged>,
    /// Whether there are results to flush.
    pub is_streamed: bool,
}

/// Memory of the host that stands for memory of a device, because the processor combines its elements.
#[derive(Debug, Clone)]
pub struct Staged {
    device: Buffer,
    host: Buffer,
    loads: bool,
    stores: bool,
    place: Place,
}

/// Where elements are staged.
#[derive(Debug, Clone)]
enum Place {
    /// The device copies all of them at once.
    Pinned(Arc<Pinned>),
    /// Others.
    Own { _block: Arc<Block> },
}

impl Staged {
    fn load(&self) -> MpiResult {
        match (&self.place, self.device.device()) {
            // SAFETY: the pinned memory has room for all bytes.
            (Place::Pinned(pinned), Some(part)) => unsafe { part.read_pinned(0, pinned.start(), self.device.len()) },
            _own => self.device.copy_all(&self.host),
        }
        self.device.settle()
    }

    fn store(&self) -> MpiResult {
        match (&self.place, self.device.device()) {
            // SAFETY: the pinned memory has all bytes.
            (Place::Pinned(pinned), Some(part)) => unsafe { part.write_pinned(0, pinned.start(), self.device.len()) },
            _own => self.host.copy_all(&self.device),
        }
        self.device.settle()
    }
}

/// Elements at an address.
#[derive(Debug, Clone)]
pub struct Memory {
    address: *mut u8,
    pub(super) buffer: Buffer,
}

// SAFETY: an address, as in `Buffer`.
unsafe impl Send for Memory {}

impl Memory {
    /// No memory.
    pub const NONE: Self = Self { address: std::ptr::null_mut(), buffer: Buffer::EMPTY };

    /// The buffer consists of elements at this address.
    pub fn new(address: *mut u8, buffer: Buffer) -> Self {
        Self { address, buffer }
    }

    /// The length in packed bytes.
    pub fn len(&self) -> u64 {
        self.buffer.len() as u64
    }

    /// Whether there are no bytes.
    pub fn is_empty(&self) -> bool {
        self.buffer.is_empty()
    }

    /// The basic datatypes of the first `len` bytes.
    pub fn sign(&self, len: u64) -> Sign {
        self.buffer.sign(len as usize)
    }
}

impl Default for Operands {
    fn default() -> Self {
        Self::new(Buffer::EMPTY, Buffer::EMPTY)
    }
}

impl Operands {
    /// Where the block of a member goes in an allgather: the buffer, the offset in it, and the length, which is `block` where all blocks have
    /// one length.
    #[inline]
    pub fn place_of(&self, member: u32, block: usize) -> (&Buffer, usize, usize) {
        match self.recv_from.get(member as usize) {
            Some(buffer) => (buffer, 0, buffer.len()),
            None => (&self.recv.buffer, member as usize * block, block),
        }
    }

    /// For an operation that only moves bytes.
    pub fn new(send: Buffer, recv: Buffer) -> Self {
        let memory = |buffer| Memory::new(std::ptr::null_mut(), buffer);
        let (send, recv) = (memory(send), memory(recv));
        Self {
            send,
            recv,
            send_to: [].into(),
            recv_from: [].into(),
            elements: None,
            staged: Vec::new(),
            is_streamed: false,
        }
    }

    /// For elements to combine: device memory is replaced by memory of the host, which [`Operands::load`] fills and [`Operands::store`]
    /// copies back. `reads_result`: whether the operation needs what is in the memory for the result. Fails if there is not enough memory.
    pub fn on_host(mut self, reads_result: bool) -> MpiResult<Self> {
        for (is_result, memory) in [(false, &mut self.send), (true, &mut self.recv)] {
            if memory.buffer.is_on_host() {
                continue;
            }
            let elements = self.elements.as_ref();
            let (lower, span) = span(memory.buffer.len(), elements)?;
            let is_dense = lower == 0 && span == memory.buffer.len();
            let pinned = memory.buffer.device().filter(|_| is_dense).and_then(|part| part.pinned(span));
            let (start, place) = match pinned {
                Some(pinned) => (pinned.start(), Place::Pinned(Arc::new(pinned))),
                None => {
                    let mut block = Block::default();
                    block.reserve(span.max(1))?;
                    (block.start(), Place::Own { _block: Arc::new(block) })
                }
            };
            let address = start.wrapping_offset(lower.wrapping_neg());
            // SAFETY: this memory has room for these elements, and lives as long as the operands.
            let host = unsafe { elements_at(address, memory.buffer.len(), elements) };
            let device = std::mem::replace(memory, Memory::new(address, host.clone())).buffer;
            self.staged.push(Staged { device, host, loads: !is_result || reads_result, stores: is_result, place });
        }
        Ok(self)
    }

    /// Before the operation: copies elements from devices. Fails if a device does.
    #[inline]
    pub fn load(&self) -> MpiResult {
        self.staged.iter().filter(|it| it.loads).try_for_each(Staged::load)
    }

    /// After the operation: copies the result to its device. Fails if that or an earlier copy from or to a device has failed.
    #[inline]
    pub fn store(&self) -> MpiResult {
        self.staged.iter().filter(|it| it.stores).try_for_each(Staged::store)?;
        self.settle()
    }

    /// Waits for all copies to and from devices; fails if one has failed.
    #[inline]
    pub fn settle(&self) -> MpiResult {
        let lent = || [&self.send.buffer, &self.recv.buffer].into_iter().chain(&self.send_to).chain(&self.recv_from);
        if self.is_streamed {
            lent().for_each(Buffer::flush);
        }
        lent().try_for_each(Buffer::settle)
    }

    /// For an operation that does not read what it has written: results go to their device together, in [`Operands::store`].
    pub fn stream_results(&mut self) {
        for result in std::iter::once(&mut self.recv.buffer).chain(&mut self.recv_from) {
            if !result.is_on_host() {
                *result = std::mem::replace(result, Buffer::EMPTY).streamed();
                self.is_streamed = true;
            }
        }
    }

    /// The address of the first element to send, and of the first one to receive.
    pub fn addresses(&self) -> (*const u8, *mut u8) {
        (self.send.address, self.recv.address)
    }
}

/// Temporary memory; reused by the next operation.
#[derive(Debug, Default)]
pub struct Workspace {
    block: Block,
    temporaries: Vec<Memory>,
}

impl Workspace {
    /// Allocates temporaries of these lengths in packed bytes.
    pub fn prepare(&mut self, lens: &[u64], elements: Option<&TypeRef>) -> MpiResult {
        self.temporaries.clear();
        let too_many = || MpiError::no_mem("the temporary memory of this operation exceeds the address space");
        let mut end = 0_usize;
        for len in lens {
            let len = usize::try_from(*len).map_err(|_| too_many())?;
            let (_, span) = span(len, elements)?;
            end = span.checked_next_multiple_of(ALIGN).and_then(|span| end.checked_add(span)).ok_or_else(too_many)?;
        }
        self.block.reserve(end)?;
        let mut at = self.block.start();
        for len in lens.iter().map(|len| *len as usize) {
            let (lower, span) = span(len, elements)?;
            let address = at.wrapping_offset(lower.wrapping_neg());
            // SAFETY: the memory of the elements is that of `span`, in the block, which lives until the next operation.
            let buffer = unsafe { elements_at(address, len, elements) };
            self.temporaries.push(Memory::new(address, buffer));
            at = at.wrapping_add(span.next_multiple_of(ALIGN));
        }
        Ok(())
    }

    /// Called after the operation: gives back memory that is too large to keep.
    pub fn trim(&mut self) {
        self.temporaries.clear();
        self.block.trim();
    }

    /// The bytes of a slice.
    #[inline]
    pub(super) fn buffer(&self, operands: &Operands, slice: Slice) -> Buffer {
        let (at, len) = (slice.at as usize, slice.len as usize);
        match slice.area {
            Area::SendTo(rank) => operands.send_to[rank as usize].part(at, len),
            Area::RecvFrom(rank) => operands.recv_from[rank as usize].part(at, len),
            area => self.memory(operands, area).buffer.part(at, len),
        }
    }

    /// The address of the first element of a slice, and the number of elements.
    pub(super) fn elements(&self, operands: &Operands, slice: Slice) -> (*mut u8, usize) {
        let (size, extent) = match &operands.elements {
            Some(elements) => (elements.size().max(1), elements.layout().extent()),
            None => (1, 1),
        };
        let (first, count) = (slice.at as usize / size, slice.len as usize / size);
        let address = self.memory(operands, slice.area).address;
        (address.wrapping_offset(extent.wrapping_mul(first as isize)), count)
    }

    #[inline]
    fn memory<'a>(&'a self, operands: &'a Operands, area: Area) -> &'a Memory {
        match area {
            Area::Send => &operands.send,
            Area::Recv => &operands.recv,
            Area::Temporary(index) => &self.temporaries[index as usize],
            Area::SendTo(_) | Area::RecvFrom(_) => &Memory::NONE,
        }
    }
}

/// `len` packed bytes of elements at an address.
///
/// # Safety
///
/// As for [`Buffer::new`].
unsafe fn elements_at(address: *mut u8, len: usize, elements: Option<&TypeRef>) -> Buffer {
    // SAFETY: the caller's promise.
    unsafe {
        match elements {
            Some(elements) => Buffer::new(address, len / elements.size().max(1), elements.layout()),
            None => Buffer::contiguous(address, len),
        }
    }
}

/// The memory for packed bytes: the offset of its first byte from the address of the elements, and its length.
fn span(len: usize, elements: Option<&TypeRef>) -> MpiResult<(isize, usize)> {
    elements.map_or(Ok((0, len)), |elements| elements.span(len / elements.size().max(1)))
}

/// A message of a wrong length for a receive of `expected` bytes: 1 byte if 0 are expected, otherwise 0 bytes.
pub(super) fn wrong(expected: usize) -> Buffer {
    static ONE: [u8; 1] = [0];
    if expected > 0 {
        return Buffer::EMPTY;
    }
    // SAFETY: the byte is static, and is only sent.
    unsafe { Buffer::contiguous(ONE.as_ptr().cast_mut(), 1) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::abi::DatatypeHandle;
    use crate::abi::constants::MPI_BYTE;
    use crate::datatype::{Datatype, Element, Form, Layout, Unit};

    /// Elements of 6 bytes in two pieces, stored backwards and starting before their address.
    fn with_holes() -> TypeRef {
        let byte = TypeRef::Predefined(Datatype::predefined(Element::of(DatatypeHandle(MPI_BYTE)).unwrap()));
        let pieces = Datatype::indexed(Form::Count, Unit::Bytes, &[4, 2], &[-8, 4], &byte).unwrap();
        TypeRef::Made(Arc::new(Datatype::resized(Form::Count, 0, -24, &TypeRef::Made(Arc::new(pieces))).unwrap()))
    }

    #[test]
    fn temporaries_have_room_for_the_elements_that_they_are_for() {
        let elements = with_holes();
        assert_eq!(span(18, Some(&elements)).unwrap(), (-56, 62));
        let mut workspace = Workspace::default();
        workspace.prepare(&[18, 0, 6], Some(&elements)).unwrap();
        let operands = Operands { elements: Some(elements), ..Operands::default() };
        let whole = Slice::all(Area::Temporary(0), 18);
        let bytes: Vec<u8> = (1..19).collect();
        workspace.buffer(&operands, whole).write(0, &bytes);
        workspace.buffer(&operands, Slice::all(Area::Temporary(2), 6)).write(0, &[7; 6]);
        let mut back = [0; 12];
        workspace.buffer(&operands, whole.part(6, 12)).read(0, &mut back);
        assert_eq!(back[..], bytes[6..]);
        let (first, three) = workspace.elements(&operands, whole);
        let (second, one) = workspace.elements(&operands, whole.part(6, 6));
        assert_eq!((second as isize - first as isize, three, one), (-24, 3, 1));
        assert_eq!(first as usize % 8, 0);
    }

    #[test]
    fn impossible_lengths_are_errors() {
        let mut workspace = Workspace::default();
        for lens in [&[u64::MAX][..], &[1 << 62, 1 << 62], &[i64::MAX as u64]] {
            assert!(workspace.prepare(lens, None).is_err());
        }
    }

    #[test]
    fn scattered_bytes_are_copied_in_packed_order() {
        let layout = Arc::new(Layout::new(&[(0, 3)], 5));
        let mut from: Vec<u8> = (0..250).flat_map(|n| [n, n, n, 0, 0]).cycle().take(10_000).collect();
        let mut to = vec![0_u8; 10_000];
        // SAFETY: both have room for 2,000 elements of 5 bytes and live until the end.
        let [a, b] = [&mut from, &mut to].map(|bytes| unsafe { Buffer::new(bytes.as_mut_ptr(), 2_000, &layout) });
        a.copy_all(&b);
        assert_eq!(from, to);
    }
}
