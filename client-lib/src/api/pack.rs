//! Messages that the program itself packs and unpacks (MPI 5.0 §5.2 and §5.3).
//!
//! `MPI_Pack` writes only the packed bytes, so any part of them can be unpacked as any datatype.

#![expect(unsafe_code, reason = "the C boundary")]
#![expect(clippy::missing_safety_doc, reason = "callers guarantee what the standard requires of them")]

use std::ffi::{CStr, c_char, c_void};

use super::args;
use super::datatype::put_if_it_fits;
use super::ints::IntsOut;
use crate::abi::constants::MPI_BYTE;
use crate::abi::{CommHandle, DatatypeHandle};
use crate::error::{MpiError, MpiResult};
use crate::memory::Buffer;
use crate::runtime::{Runtime, State};

/// `MPI_Pack`.
#[expect(clippy::too_many_arguments, reason = "the standard's argument list")]
pub unsafe fn pack(
    rt: &Runtime,
    inbuf: *const c_void,
    incount: i64,
    datatype: DatatypeHandle,
    outbuf: *mut c_void,
    outsize: i64,
    position: IntsOut,
    comm: CommHandle,
) -> MpiResult {
    let state = rt.lock();
    state.comms.get(comm)?;
    // SAFETY: the caller's promise.
    unsafe {
        let buffer = args::buffer(&state, inbuf, incount, datatype)?;
        let at = position_at(position)?;
        let part = Part::of(outbuf, outsize, at, buffer.len())?;
        let packed = part.buffer(&state)?;
        buffer.copy_all(&packed);
        buffer.settle()?;
        packed.settle()?;
        position.put(0, part.end)
    }
}

/// `MPI_Unpack`.
#[expect(clippy::too_many_arguments, reason = "the standard's argument list")]
pub unsafe fn unpack(
    rt: &Runtime,
    inbuf: *const c_void,
    insize: i64,
    position: IntsOut,
    outbuf: *mut c_void,
    outcount: i64,
    datatype: DatatypeHandle,
    comm: CommHandle,
) -> MpiResult {
    let state = rt.lock();
    state.comms.get(comm)?;
    // SAFETY: the caller's promise.
    unsafe {
        let buffer = args::buffer(&state, outbuf, outcount, datatype)?;
        let at = position_at(position)?;
        let part = Part::of(inbuf.cast_mut(), insize, at, buffer.len())?;
        let packed = part.buffer(&state)?;
        packed.copy_all(&buffer);
        packed.settle()?;
        buffer.settle()?;
        position.put(0, part.end)
    }
}

/// `MPI_Pack_size`; `MPI_UNDEFINED` if the size does not fit an `int`.
pub unsafe fn pack_size(
    rt: &Runtime,
    incount: i64,
    datatype: DatatypeHandle,
    comm: CommHandle,
    size: IntsOut,
) -> MpiResult {
    let state = rt.lock();
    state.comms.get(comm)?;
    let len = state.types.resolve(datatype)?.packed_len(number(incount)?)?;
    // SAFETY: the caller's promise.
    unsafe { put_if_it_fits(size, i64::try_from(len).ok()) }
}

/// `MPI_Pack_external`.
#[expect(clippy::too_many_arguments, reason = "the standard's argument list")]
pub unsafe fn pack_external(
    rt: &Runtime,
    datarep: *const c_char,
    inbuf: *const c_void,
    incount: i64,
    datatype: DatatypeHandle,
    outbuf: *mut c_void,
    outsize: i64,
    position: *mut i64,
) -> MpiResult {
    let state = rt.lock();
    // SAFETY: the caller's promise.
    unsafe {
        only_external32(datarep)?;
        must_be_on_host(&args::buffer(&state, inbuf, incount, datatype)?)?;
        let datatype = state.types.resolve_committed(datatype)?;
        let (count, at) = (number(incount)?, position_at(IntsOut::Wide(position))?);
        let part = Part::of(outbuf, outsize, at, datatype.external_len(count)?)?;
        must_be_on_host(&part.buffer(&state)?)?;
        datatype.pack_external(inbuf.cast(), count, part.bytes());
        position.write(part.end);
    }
    Ok(())
}

/// `MPI_Unpack_external`.
#[expect(clippy::too_many_arguments, reason = "the standard's argument list")]
pub unsafe fn unpack_external(
    rt: &Runtime,
    datarep: *const c_char,
    inbuf: *const c_void,
    insize: i64,
    position: *mut i64,
    outbuf: *mut c_void,
    outcount: i64,
    datatype: DatatypeHandle,
) -> MpiResult {
    let state = rt.lock();
    // SAFETY: the caller's promise.
    unsafe {
        only_external32(datarep)?;
        must_be_on_host(&args::buffer(&state, outbuf, outcount, datatype)?)?;
        let datatype = state.types.resolve_committed(datatype)?;
        let (count, at) = (number(outcount)?, position_at(IntsOut::Wide(position))?);
        let part = Part::of(inbuf.cast_mut(), insize, at, datatype.external_len(count)?)?;
        must_be_on_host(&part.buffer(&state)?)?;
        datatype.unpack_external(part.bytes(), outbuf.cast(), count);
        position.write(part.end);
    }
    Ok(())
}

/// `MPI_Pack_external_size`.
pub unsafe fn pack_external_size(
    rt: &Runtime,
    datarep: *const c_char,
    incount: i64,
    datatype: DatatypeHandle,
    size: *mut i64,
) -> MpiResult {
    // SAFETY: the caller's promise.
    unsafe { only_external32(datarep)? };
    let len = rt.lock().types.resolve(datatype)?.external_len(number(incount)?)?;
    // SAFETY: the caller's promise.
    unsafe { args::put(size, len as i64) }
}

/// A part of the memory with packed bytes.
struct Part {
    start: *mut u8,
    len: usize,
    /// The position after it.
    end: i64,
}

impl Part {
    fn of(memory: *mut c_void, size: i64, at: i64, len: usize) -> MpiResult<Self> {
        if size < 0 || at < 0 || at > size || (size - at) as u64 > usize::MAX as u64 || len > (size - at) as usize {
            return Err(MpiError::arg(format!(
                "{len} packed bytes at position {at} exceed the buffer of {size} bytes"
            )));
        }
        if memory.is_null() && len > 0 {
            return Err(MpiError::buffer("the buffer for packed bytes is null"));
        }
        Ok(Self { start: memory.cast::<u8>().wrapping_add(at as usize), len, end: at + len as i64 })
    }

    /// As memory of any kind.
    ///
    /// # Safety
    ///
    /// As for [`args::buffer`].
    unsafe fn buffer(&self, state: &State) -> MpiResult<Buffer> {
        // SAFETY: the caller's promise.
        unsafe { args::buffer(state, self.start.cast_const().cast(), self.len as i64, DatatypeHandle(MPI_BYTE)) }
    }

    /// The bytes.
    ///
    /// # Safety
    ///
    /// The memory must belong to the caller alone, and have the given length.
    unsafe fn bytes<'a>(&self) -> &'a mut [u8] {
        if self.len == 0 {
            return &mut [];
        }
        // SAFETY: the caller's promise.
        unsafe { std::slice::from_raw_parts_mut(self.start, self.len) }
    }
}

unsafe fn position_at(position: IntsOut) -> MpiResult<i64> {
    if position.is_null() {
        return Err(MpiError::arg("the position pointer is null"));
    }
    // SAFETY: the caller's promise.
    Ok(unsafe {
        match position {
            IntsOut::Narrow(place) => place.read().into(),
            IntsOut::Wide(place) => place.read(),
        }
    })
}

/// The external representation is made element by element, by the processor.
fn must_be_on_host(buffer: &Buffer) -> MpiResult {
    match buffer.is_on_host() {
        true => Ok(()),
        false => Err(MpiError::buffer("device memory cannot be packed as external32: copy it to the host first")),
    }
}

fn number(count: i64) -> MpiResult<usize> {
    usize::try_from(count).map_err(|_| MpiError::count(format!("invalid count {count}")))
}

unsafe fn only_external32(datarep: *const c_char) -> MpiResult {
    if datarep.is_null() {
        return Err(MpiError::arg("the data representation is null"));
    }
    // SAFETY: the caller's promise.
    let name = unsafe { CStr::from_ptr(datarep) };
    if name == c"external32" {
        return Ok(());
    }
    let text = format!("unknown data representation \"{}\": it must be \"external32\"", name.to_string_lossy());
    Err(MpiError::new(crate::abi::constants::MPI_ERR_UNSUPPORTED_DATAREP, text))
}
