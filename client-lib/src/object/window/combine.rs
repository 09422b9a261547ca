//! Accumulates: combine data with memory, so that no other accumulate on the same elements comes in between.
//!
//! The process that performs one, which is the origin itself or the target for an origin on another node, uses the same guards, those of
//! the member that owns the memory ([`super::board`]): the word of a range for as long as it works there, whatever the operation is. So
//! long accumulates run at the speed of plain loops, and one of a single element costs one atomic operation. Where all members have asked
//! for a granularity of single elements (`mpi_accumulate_granularity`), the hardware's atomics are used instead: no process waits for
//! another, but each element costs an atomic operation.
//!
//! Which guard an element has depends only on its type and place, never on the length of the accumulate.

use std::sync::atomic::{AtomicU8, AtomicU16, AtomicU32, AtomicU64, Ordering};

use super::board::{RANGE, Seat};
use crate::abi::constants::MPI_ERR_RMA_RANGE;
use crate::copy::copy;
use crate::datatype::{Datatype, Element};
use crate::error::{MpiError, MpiResult};
use crate::memory::Buffer;
use crate::op::{Builtin, OpRef, Reduction};
use crate::shared_memory::cma;

/// In which process an address is valid.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Place {
    /// In this one.
    Here,
    /// In the process with this pid.
    In(i32),
}

/// What to do with elements of one type.
#[derive(Debug, Clone)]
pub struct Combination {
    element: Element,
    what: What,
}

#[derive(Debug, Clone)]
enum What {
    /// Nothing: they are only read.
    Keep,
    Replace,
    Reduce(Reduction),
    /// One element: the data are what it is compared with, then its new value.
    Compare,
}

impl Combination {
    /// Fails with class `MPI_ERR_OP` if the operation is not defined for the elements.
    pub fn new(op: Builtin, element: Element) -> MpiResult<Self> {
        let what = match op {
            Builtin::NoOp => What::Keep,
            Builtin::Replace => What::Replace,
            _ => What::Reduce(Reduction::new(&OpRef::Builtin(op), Datatype::predefined(element), element.handle())?),
        };
        Ok(Self { element, what })
    }

    /// Compare and swap.
    pub fn compare(element: Element) -> Self {
        Self { element, what: What::Compare }
    }

    /// Whether the elements have no holes.
    pub fn is_dense(&self) -> bool {
        self.element.size() == self.element.repr().extent()
    }

    /// Combines `len` bytes of elements without holes at an address with data, and leaves what was there before, unless `before` is null.
    ///
    /// # Safety
    ///
    /// `data` must have [`Combination::data_len`] bytes, `before` and `at` `len`, and this process must have what guards the elements.
    #[inline]
    pub(super) unsafe fn run(&self, data: *const u8, before: *mut u8, at: *mut u8, len: usize) {
        // SAFETY: the caller's promise. The user may name the same memory twice: `copy` is defined even then.
        unsafe {
            if !before.is_null() {
                copy(at.cast_const(), before, len);
            }
            match &self.what {
                What::Keep => {}
                What::Replace => copy(data, at, len),
                What::Reduce(reduction) => reduction.apply(data, at, len / self.element.size()),
                What::Compare => {
                    if (0..len).all(|byte| at.add(byte).read() == data.add(byte).read()) {
                        std::ptr::copy(data.add(len), at, len);
                    }
                }
            }
        }
    }

    /// The type of the elements.
    pub fn element(&self) -> Element {
        self.element
    }

    /// The bytes of data for this many bytes of memory.
    pub fn data_len(&self, len: usize) -> usize {
        match self.what {
            What::Keep => 0,
            What::Replace | What::Reduce(_) => len,
            What::Compare => 2 * len,
        }
    }
}

/// An accumulate that is being performed.
#[derive(Debug)]
pub struct Accumulate<'a> {
    /// What to do.
    pub combination: &'a Combination,
    /// Packed; as long as the combination needs.
    pub data: *const u8,
    /// Where to leave what was there before, packed; null if the caller does not want it.
    pub before: *mut u8,
    /// The elements, at addresses of the process that owns them.
    pub elements: &'a Buffer,
    /// Packed bytes that are done.
    pub done: usize,
}

/// Where the elements are, and which process combines them.
#[derive(Debug, Clone, Copy)]
pub(super) struct Site<'a> {
    pub(super) place: Place,
    /// The guards of the member that owns them.
    pub(super) seat: &'a Seat,
    /// The address of that member's memory.
    pub(super) base: usize,
    /// This member.
    pub(super) rank: u32,
    /// Whether single elements are guarded by the hardware.
    pub(super) by_elements: bool,
}

impl Accumulate<'_> {
    /// Goes on; `None` if another process is in the way.
    ///
    /// # Safety
    ///
    /// `data` and `before` must have the bytes that the combination needs, and the elements must be in memory that the user has lent.
    pub(super) unsafe fn advance(&mut self, site: Site<'_>) -> Option<MpiResult> {
        let element = self.combination.element;
        let size = element.size();
        if size == 0 || self.elements.is_empty() {
            return Some(Ok(()));
        }
        if !self.elements.len().is_multiple_of(size) {
            return Some(Err(MpiError::intern("invalid accumulate")));
        }
        if size != element.repr().extent() {
            let _taken = site.seat.take_holes(site.rank)?;
            // SAFETY: the caller's promise.
            return Some(unsafe { self.combine_with_holes(site) });
        }
        let mut result = Ok(());
        let mut scratch = Vec::new();
        let (elements, mut blocked) = (self.elements, false);
        elements.pieces(self.done, elements.len() - self.done, |start, len| {
            let (mut at, end) = (start, start.wrapping_add(len));
            while at < end && result.is_ok() {
                let offset = at.addr().wrapping_sub(site.base);
                let left = end.addr() - at.addr();
                if site.by_elements && has_atomics(size) && at.addr().is_multiple_of(size) {
                    // SAFETY: the caller's promise.
                    unsafe { self.combine_atomically(at, left) };
                    self.done += left;
                    return true;
                }
                // Whole elements, by the range of the first byte.
                let len = left.min((RANGE - offset % RANGE).div_ceil(size) * size);
                let Some(_taken) = site.seat.take_range(offset, site.rank) else {
                    blocked = true;
                    return false;
                };
                match site.place {
                    // SAFETY: the caller's promise.
                    Place::Here => unsafe { self.combine(at, len, self.done) },
                    // SAFETY: the caller's promise.
                    Place::In(pid) => result = unsafe { self.combine_in(pid, at, len, &mut scratch) },
                }
                self.done += len;
                at = at.wrapping_add(len);
            }
            result.is_ok()
        });
        (!blocked).then_some(result)
    }

    /// Combines `len` bytes at an address with the data from packed byte `from` on.
    unsafe fn combine(&self, at: *mut u8, len: usize, from: usize) {
        let before = if self.before.is_null() { self.before } else { self.before.wrapping_add(from) };
        // SAFETY: the caller's promise.
        unsafe { self.combination.run(self.data.wrapping_add(from), before, at, len) };
    }

    /// As [`Accumulate::combine`], in another process's memory.
    #[cold]
    unsafe fn combine_in(&self, pid: i32, at: *mut u8, len: usize, scratch: &mut Vec<u8>) -> MpiResult {
        scratch.resize(len, 0);
        // SAFETY: the vector's bytes; the other address is only passed to the kernel.
        let (here, there) = unsafe { (Buffer::contiguous(scratch.as_mut_ptr(), len), Buffer::contiguous(at, len)) };
        cma::copy(pid, cma::Way::Read, (&here, 0), (&there, 0), len).map_err(|_| unreachable_memory())?;
        // SAFETY: the caller's promise, for the data; the vector has the bytes.
        unsafe { self.combine(scratch.as_mut_ptr(), len, self.done) };
        match self.combination.what {
            What::Keep => Ok(()),
            What::Replace | What::Reduce(_) | What::Compare => {
                cma::copy(pid, cma::Way::Write, (&here, 0), (&there, 0), len).map_err(|_| unreachable_memory())
            }
        }
    }

    /// Elements with holes, laid out here as in an array.
    #[cold]
    unsafe fn combine_with_holes(&mut self, site: Site<'_>) -> MpiResult {
        let len = self.elements.len();
        let mut packed = crate::memory::zeroed(len)?;
        // SAFETY: the box's bytes.
        let here = unsafe { Buffer::contiguous(packed.as_mut_ptr(), len) };
        match site.place {
            Place::Here => self.elements.copy_all(&here),
            Place::In(pid) => {
                cma::copy(pid, cma::Way::Read, (&here, 0), (self.elements, 0), len).map_err(|_| unreachable_memory())?
            }
        }
        if !self.before.is_null() {
            // SAFETY: the caller's promise.
            unsafe { here.copy_to(0, self.before, len) };
        }
        match &self.combination.what {
            What::Keep => return Ok(()),
            // SAFETY: the caller's promise.
            What::Replace => unsafe { here.copy_from(0, self.data, len) },
            // SAFETY: the caller's promise.
            What::Reduce(reduction) => unsafe { reduce_packed(reduction, self.combination.element, self.data, &here) },
            What::Compare => return Err(MpiError::intern("compare and swap of an element with holes")),
        }
        match site.place {
            Place::Here => here.copy_all(self.elements),
            Place::In(pid) => cma::copy(pid, cma::Way::Write, (&here, 0), (self.elements, 0), len)
                .map_err(|_| unreachable_memory())?,
        }
        self.done = len;
        Ok(())
    }

    /// As [`Accumulate::combine`], each element in one step of the hardware.
    unsafe fn combine_atomically(&self, at: *mut u8, len: usize) {
        let size = self.combination.element.size();
        for offset in (0..len).step_by(size) {
            let (at, from) = (at.wrapping_add(offset), self.done + offset);
            // SAFETY: the caller's promise; `at` is aligned, as the caller has checked.
            unsafe {
                match size {
                    1 => self.step::<AtomicU8>(at, from),
                    2 => self.step::<AtomicU16>(at, from),
                    4 => self.step::<AtomicU32>(at, from),
                    _ => self.step::<AtomicU64>(at, from),
                }
            }
        }
    }

    /// Replaces an element by what the combination makes of it, until no other process came in between.
    unsafe fn step<A: Atomic>(&self, at: *mut u8, from: usize) {
        // SAFETY: the caller's promise.
        let (atomic, data) = unsafe { (A::at(at), self.data.wrapping_add(from)) };
        let mut old = atomic.read();
        loop {
            let mut new = old;
            // SAFETY: `data` has an element, or two; `new` is one.
            unsafe {
                match &self.combination.what {
                    What::Keep => break,
                    What::Replace => new = data.cast::<A::Value>().read_unaligned(),
                    What::Reduce(reduction) => reduction.apply(data, (&raw mut new).cast(), 1),
                    What::Compare if data.cast::<A::Value>().read_unaligned() == old => {
                        new = data.add(size_of::<A::Value>()).cast::<A::Value>().read_unaligned();
                    }
                    What::Compare => break,
                }
            }
            match atomic.replace(old, new) {
                Ok(()) => break,
                Err(now) => old = now,
            }
        }
        if !self.before.is_null() {
            // SAFETY: the caller's promise.
            unsafe { self.before.wrapping_add(from).cast::<A::Value>().write_unaligned(old) };
        }
    }
}

fn has_atomics(size: usize) -> bool {
    matches!(size, 1 | 2 | 4 | 8)
}

/// An integer on which the hardware has atomic operations.
trait Atomic {
    type Value: Copy + PartialEq;

    /// # Safety
    ///
    /// There must be an aligned one at the address.
    unsafe fn at<'a>(address: *mut u8) -> &'a Self;
    fn read(&self) -> Self::Value;
    fn replace(&self, old: Self::Value, new: Self::Value) -> Result<(), Self::Value>;
}

macro_rules! atomics {
    ($($atomic:ident of $value:ty;)*) => {$(
        impl Atomic for $atomic {
            type Value = $value;

            unsafe fn at<'a>(address: *mut u8) -> &'a Self {
                // SAFETY: the caller's promise.
                unsafe { Self::from_ptr(address.cast()) }
            }

            #[inline]
            fn read(&self) -> $value {
                self.load(Ordering::Acquire)
            }

            #[inline]
            fn replace(&self, old: $value, new: $value) -> Result<(), $value> {
                self.compare_exchange(old, new, Ordering::AcqRel, Ordering::Acquire).map(drop)
            }
        }
    )*};
}

atomics! {
    AtomicU8 of u8;
    AtomicU16 of u16;
    AtomicU32 of u32;
    AtomicU64 of u64;
}

/// Combines packed elements, whose operation needs them with their holes.
unsafe fn reduce_packed(reduction: &Reduction, element: Element, data: *const u8, packed: &Buffer) {
    let (layout, extent) = (Datatype::predefined(element).layout(), element.repr().extent());
    let count = packed.len() / element.size();
    let mut arrays = [vec![0_u128; (count * extent).div_ceil(16)], vec![0_u128; (count * extent).div_ceil(16)]];
    let [input, inout] = arrays.each_mut().map(|array| array.as_mut_ptr().cast::<u8>());
    // SAFETY: each array has room for `count` elements one extent apart, and lives until the end of this function; `data` is as long as
    // `packed`.
    unsafe {
        Buffer::new(input, count, layout).copy_from(0, data, packed.len());
        let target = Buffer::new(inout, count, layout);
        packed.copy_all(&target);
        reduction.apply(input, inout, count);
        target.copy_all(packed);
    }
}

#[cold]
pub(super) fn unreachable_memory() -> MpiError {
    MpiError::new(MPI_ERR_RMA_RANGE, "the target's memory cannot be accessed: it is not mapped there, or is read-only")
}

#[cfg(test)]
#[cfg(not(loom))]
mod tests {
    use std::os::fd::AsFd;

    use super::super::board::{Board, Shape};
    use super::*;
    use crate::abi::DatatypeHandle;
    use crate::abi::constants::{MPI_INT64_T, MPI_LONG_DOUBLE_INT, MPI_UINT16_T};

    fn element(handle: usize) -> Element {
        Element::of(DatatypeHandle(handle)).unwrap()
    }

    fn site(board: &Board, base: usize, rank: u32, by_elements: bool) -> Site<'_> {
        Site { place: Place::Here, seat: board.seat(0), base, rank, by_elements }
    }

    /// Elements in a vector, as a member's memory.
    fn memory<T>(elements: &mut [T]) -> Buffer {
        // SAFETY: the vector's memory, which outlives the buffer in these tests.
        unsafe { Buffer::contiguous(elements.as_mut_ptr().cast(), size_of_val(elements)) }
    }

    #[test]
    fn an_accumulate_stops_before_a_range_that_others_use_and_goes_on_later() {
        const COUNT: usize = 2 * RANGE / 8 + 5;
        let board = Board::private(0).unwrap();
        let (mut target, ones, mut before) = (vec![7_i64; COUNT], vec![1_i64; COUNT], vec![0_i64; COUNT]);
        let elements = memory(&mut target);
        let sum = Combination::new(Builtin::Sum, element(MPI_INT64_T)).unwrap();
        let site = site(&board, target.as_ptr().addr(), 0, false);
        let mut work = Accumulate {
            combination: &sum,
            data: ones.as_ptr().cast(),
            before: before.as_mut_ptr().cast(),
            elements: &elements,
            done: 0,
        };
        let other = board.seat(0).take_range(RANGE, 1);
        // SAFETY: the vectors have the elements.
        unsafe { assert_eq!((work.advance(site), work.done), (None, RANGE)) };
        drop(other);
        // SAFETY: as above.
        unsafe { assert_eq!((work.advance(site), work.done), (Some(Ok(())), 8 * COUNT)) };
        assert!(target.iter().all(|value| *value == 8) && before.iter().all(|value| *value == 7));
    }

    #[test]
    fn an_element_belongs_to_the_range_of_its_first_byte() {
        let board = Board::private(0).unwrap();
        let mut bytes = vec![0_u8; 2 * RANGE];
        let base = bytes.as_ptr().addr();
        // SAFETY: three elements at an odd place, the second of which begins with the last byte of the first range.
        let elements = unsafe { Buffer::contiguous(bytes.as_mut_ptr().add(RANGE - 3), 6) };
        let sum = Combination::new(Builtin::Sum, element(MPI_UINT16_T)).unwrap();
        let ones = [1_u16; 3];
        let mut work = Accumulate {
            combination: &sum,
            data: ones.as_ptr().cast(),
            before: std::ptr::null_mut(),
            elements: &elements,
            done: 0,
        };
        let _other = board.seat(0).take_range(RANGE, 1);
        // SAFETY: as above.
        unsafe { assert_eq!((work.advance(site(&board, base, 0, false)), work.done), (None, 4)) };
    }

    #[test]
    fn nothing_is_lost_between_threads_whatever_they_combine() {
        const COUNT: usize = 3000;
        for by_elements in [false, true] {
            let shape = Shape { members: 1, bytes: 0 };
            let (_, fd) = Board::create(shape).unwrap();
            let mut target = vec![0_i64; COUNT];
            let base = target.as_mut_ptr().addr();
            let elements = memory(&mut target);
            std::thread::scope(|scope| {
                for rank in 0..4 {
                    let (board, elements) = (Board::open(fd.as_fd(), shape).unwrap(), elements.clone());
                    scope.spawn(move || {
                        let sum = Combination::new(Builtin::Sum, element(MPI_INT64_T)).unwrap();
                        let ones = vec![1_i64; COUNT];
                        for round in 0..200 {
                            // Long ones, and one element in the middle.
                            let part = if round % 2 == 0 { elements.clone() } else { elements.part(8 * 1500, 8) };
                            let mut work = Accumulate {
                                combination: &sum,
                                data: ones.as_ptr().cast(),
                                before: std::ptr::null_mut(),
                                elements: &part,
                                done: 0,
                            };
                            // SAFETY: the vectors have the elements.
                            while unsafe { work.advance(site(&board, base, rank, by_elements)) }.is_none() {
                                std::thread::yield_now();
                            }
                        }
                    });
                }
            });
            let expected = |index: usize| if index == 1500 { 800 } else { 400 };
            assert!(target.iter().enumerate().all(|(index, value)| *value == expected(index)), "{by_elements}");
        }
    }

    #[test]
    fn elements_with_holes_keep_what_is_in_the_holes() {
        let board = Board::private(0).unwrap();
        let pair = element(MPI_LONG_DOUBLE_INT);
        let (size, extent) = (pair.size(), pair.repr().extent());
        let mut bytes = vec![0xee_u8; 2 * extent];
        // SAFETY: room for two elements.
        let elements = unsafe { Buffer::new(bytes.as_mut_ptr(), 2, Datatype::predefined(pair).layout()) };
        elements.write(0, &vec![0; 2 * size]);
        let replace = Combination::new(Builtin::Replace, pair).unwrap();
        let (data, mut before) = (vec![1_u8; 2 * size], vec![9_u8; 2 * size]);
        let mut work = Accumulate {
            combination: &replace,
            data: data.as_ptr(),
            before: before.as_mut_ptr(),
            elements: &elements,
            done: 0,
        };
        // SAFETY: as above.
        assert_eq!(unsafe { work.advance(site(&board, bytes.as_ptr().addr(), 0, true)) }, Some(Ok(())));
        assert!(before.iter().all(|byte| *byte == 0) && !bytes.contains(&0));
        assert_eq!(bytes.iter().filter(|byte| **byte == 0xee).count(), 2 * (extent - size));
    }
}
