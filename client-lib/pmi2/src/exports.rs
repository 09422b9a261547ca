//! The functions that C calls.

#![expect(unsafe_code, reason = "the functions that C calls")]

use std::ffi::{c_char, c_int, c_void};

use rsd_bootstrap::border::{Code, code, copy, give_text, given, items, store, text};
use rsd_proto::pmi::v1::{Spawn, SpawnSegment};

use crate::process::{self, with};

/// `MPID_Info`.
#[repr(C)]
struct Info {
    _handle: c_int,
    _pobj_mutex: c_int,
    _ref_count: c_int,
    _next: *const Info,
    key: *const c_char,
    value: *const c_char,
}

#[unsafe(no_mangle)]
unsafe extern "C" fn PMI2_Init(spawned: *mut c_int, size: *mut c_int, rank: *mut c_int, appnum: *mut c_int) -> c_int {
    code(process::init().map(|place| {
        // SAFETY: C passes numbers' places.
        unsafe {
            store(spawned, i32::from(place.is_spawned));
            store(size, place.size);
            store(rank, place.rank);
            store(appnum, place.appnum.map_or(-1, i64::from));
        }
    }))
}

#[unsafe(no_mangle)]
extern "C" fn PMI2_Finalize() -> c_int {
    code(process::finalize())
}

#[unsafe(no_mangle)]
extern "C" fn PMI2_Initialized() -> c_int {
    c_int::from(process::is_initialised())
}

#[unsafe(no_mangle)]
unsafe extern "C" fn PMI2_Abort(flag: c_int, msg: *const c_char) -> c_int {
    // SAFETY: C passes text or a null pointer.
    let message = unsafe { text(msg) }.unwrap_or_default();
    process::abort(if flag == 0 { 1 } else { flag }, message)
}

#[unsafe(no_mangle)]
unsafe extern "C" fn PMI2_Job_GetId(jobid: *mut c_char, jobid_size: c_int) -> c_int {
    // SAFETY: C passes room for this many bytes.
    code(with(process::Process::job_id).and_then(|found| unsafe { give_text(jobid, jobid_size, &found) }))
}

#[unsafe(no_mangle)]
unsafe extern "C" fn PMI2_Job_GetRank(rank: *mut c_int) -> c_int {
    // SAFETY: C passes a number's place.
    code(with(|process| Ok(process.place().rank)).map(|found| unsafe { store(rank, found) }))
}

#[unsafe(no_mangle)]
unsafe extern "C" fn PMI2_Info_GetSize(size: *mut c_int) -> c_int {
    // SAFETY: C passes a number's place.
    code(with(|process| Ok(process.place().size)).map(|found| unsafe { store(size, found) }))
}

#[unsafe(no_mangle)]
unsafe extern "C" fn PMI2_Job_Connect(jobid: *const c_char, _conn: *mut c_void) -> c_int {
    // SAFETY: C passes text.
    let jobid = unsafe { given(jobid, Code::InvalidArgument) };
    code(with(|process| process.connect_job(jobid?)))
}

#[unsafe(no_mangle)]
unsafe extern "C" fn PMI2_Job_Disconnect(jobid: *const c_char) -> c_int {
    // SAFETY: C passes text.
    let jobid = unsafe { given(jobid, Code::InvalidArgument) };
    code(with(|process| process.disconnect_job(jobid?)))
}

#[unsafe(no_mangle)]
unsafe extern "C" fn PMI2_KVS_Put(key: *const c_char, value: *const c_char) -> c_int {
    // SAFETY: C passes text.
    let (key, value) = unsafe { (given(key, Code::InvalidKey), given(value, Code::InvalidValue)) };
    code(with(|process| process.put(key?, value?)))
}

#[unsafe(no_mangle)]
extern "C" fn PMI2_KVS_Fence() -> c_int {
    code(with(process::Process::fence))
}

#[unsafe(no_mangle)]
unsafe extern "C" fn PMI2_KVS_Get(
    jobid: *const c_char,
    _src_pmi_id: c_int,
    key: *const c_char,
    value: *mut c_char,
    maxvalue: c_int,
    vallen: *mut c_int,
) -> c_int {
    // SAFETY: C passes text, and may pass no job.
    let (jobid, key) = unsafe { (text(jobid), given(key, Code::InvalidKey)) };
    let found = with(|process| process.get(jobid.filter(|jobid| !jobid.is_empty()), key?)?.ok_or(Code::Fail));
    code(found.map(|found| {
        let length = i64::try_from(found.len()).unwrap_or(i64::MAX);
        // SAFETY: C passes room for `maxvalue` bytes, and a number's place.
        unsafe {
            let whole = copy(&found, value, maxvalue);
            store(vallen, if whole { length } else { -length });
        }
    }))
}

#[unsafe(no_mangle)]
unsafe extern "C" fn PMI2_Info_PutNodeAttr(name: *const c_char, value: *const c_char) -> c_int {
    // SAFETY: C passes text.
    let (name, value) = unsafe { (given(name, Code::InvalidKey), given(value, Code::InvalidValue)) };
    code(with(|process| process.put_on_node(name?, value?)))
}

#[unsafe(no_mangle)]
unsafe extern "C" fn PMI2_Info_GetNodeAttr(
    name: *const c_char,
    value: *mut c_char,
    valuelen: c_int,
    flag: *mut c_int,
    waitfor: c_int,
) -> c_int {
    // SAFETY: C passes text.
    let name = unsafe { given(name, Code::InvalidKey) };
    let found = with(|process| process.get_on_node(name?, waitfor != 0));
    // SAFETY: C passes room for `valuelen` bytes, and a number's place.
    unsafe { attribute(found, value, valuelen, flag) }
}

#[unsafe(no_mangle)]
unsafe extern "C" fn PMI2_Info_GetNodeAttrIntArray(
    name: *const c_char,
    array: *mut c_int,
    arraylen: c_int,
    outlen: *mut c_int,
    flag: *mut c_int,
) -> c_int {
    // SAFETY: C passes text.
    let name = unsafe { given(name, Code::InvalidKey) };
    let found = with(|process| process.get_on_node(name?, false));
    // SAFETY: C passes room for `arraylen` numbers, and numbers' places.
    unsafe { numbers(found, array, arraylen, outlen, flag) }
}

#[unsafe(no_mangle)]
unsafe extern "C" fn PMI2_Info_GetJobAttr(
    name: *const c_char,
    value: *mut c_char,
    valuelen: c_int,
    flag: *mut c_int,
) -> c_int {
    // SAFETY: C passes text.
    let name = unsafe { given(name, Code::InvalidKey) };
    let found = with(|process| process.job_attribute(name?));
    // SAFETY: C passes room for `valuelen` bytes, and a number's place.
    unsafe { attribute(found, value, valuelen, flag) }
}

#[unsafe(no_mangle)]
unsafe extern "C" fn PMI2_Info_GetJobAttrIntArray(
    name: *const c_char,
    array: *mut c_int,
    arraylen: c_int,
    outlen: *mut c_int,
    flag: *mut c_int,
) -> c_int {
    // SAFETY: C passes text.
    let name = unsafe { given(name, Code::InvalidKey) };
    let found = with(|process| process.job_attribute(name?));
    // SAFETY: C passes room for `arraylen` numbers, and numbers' places.
    unsafe { numbers(found, array, arraylen, outlen, flag) }
}

/// Stores whether there is a value, and the value.
///
/// # Safety
/// As `copy` and `store`.
unsafe fn attribute(
    found: Result<Option<Vec<u8>>, Code>,
    value: *mut c_char,
    valuelen: c_int,
    flag: *mut c_int,
) -> c_int {
    code(found.and_then(|found| {
        // SAFETY: the caller guarantees the number's place.
        unsafe { store(flag, i32::from(found.is_some())) };
        match found {
            // SAFETY: the caller guarantees the room.
            Some(found) => unsafe { give_text(value, valuelen, &found) },
            None => Ok(()),
        }
    }))
}

/// Stores whether there is a value, and the numbers of which it consists, as many as fit.
///
/// # Safety
/// As `store`; `arraylen` numbers may be written to `array`.
unsafe fn numbers(
    found: Result<Option<Vec<u8>>, Code>,
    array: *mut c_int,
    arraylen: c_int,
    outlen: *mut c_int,
    flag: *mut c_int,
) -> c_int {
    code(found.and_then(|found| {
        // SAFETY: the caller guarantees the number's place.
        unsafe { store(flag, i32::from(found.is_some())) };
        let Some(found) = found else { return Ok(()) };
        let number = |text: &[u8]| str::from_utf8(text).ok()?.trim().parse::<c_int>().ok();
        let all: Option<Vec<c_int>> = found.split(|byte| *byte == b',').map(number).collect();
        let all = all.ok_or(Code::InvalidValue)?;
        let room = if array.is_null() { 0 } else { usize::try_from(arraylen).unwrap_or(0) };
        for (at, number) in all.iter().take(room).enumerate() {
            // SAFETY: the caller guarantees room for `arraylen` numbers.
            unsafe { store(array.add(at), *number) };
        }
        // SAFETY: the caller guarantees the number's place.
        unsafe { store(outlen, all.len().min(room)) };
        Ok(())
    }))
}

#[unsafe(no_mangle)]
unsafe extern "C" fn PMI2_Nameserv_publish(
    service_name: *const c_char,
    _info: *const c_void,
    port: *const c_char,
) -> c_int {
    // SAFETY: C passes text.
    let (name, port) = unsafe { (given(service_name, Code::InvalidArgument), given(port, Code::InvalidArgument)) };
    code(with(|process| process.publish(name?, port?)))
}

#[unsafe(no_mangle)]
unsafe extern "C" fn PMI2_Nameserv_lookup(
    service_name: *const c_char,
    _info: *const c_void,
    port: *mut c_char,
    portlen: c_int,
) -> c_int {
    // SAFETY: C passes text.
    let name = unsafe { given(service_name, Code::InvalidArgument) };
    // SAFETY: C passes room for `portlen` bytes.
    code(with(|process| process.lookup(name?)).and_then(|found| unsafe { give_text(port, portlen, &found) }))
}

#[unsafe(no_mangle)]
unsafe extern "C" fn PMI2_Nameserv_unpublish(service_name: *const c_char, _info: *const c_void) -> c_int {
    // SAFETY: C passes text.
    let name = unsafe { given(service_name, Code::InvalidArgument) };
    code(with(|process| process.unpublish(name?)))
}

#[unsafe(no_mangle)]
unsafe extern "C" fn PMIX_Ring(
    value: *const c_char,
    rank: *mut c_int,
    ranks: *mut c_int,
    left: *mut c_char,
    right: *mut c_char,
    maxvalue: c_int,
) -> c_int {
    // SAFETY: C passes text.
    let value = unsafe { given(value, Code::InvalidValue) };
    let ring = with(|process| process.ring(value?));
    code(ring.and_then(|(number, size, from_left, from_right)| {
        // SAFETY: C passes numbers' places, and twice room for `maxvalue` bytes.
        unsafe {
            store(rank, number);
            store(ranks, size);
            give_text(left, maxvalue, &from_left)?;
            give_text(right, maxvalue, &from_right)
        }
    }))
}

#[unsafe(no_mangle)]
unsafe extern "C" fn PMI2_Job_Spawn(
    count: c_int,
    cmds: *const *const c_char,
    argcs: *const c_int,
    argvs: *const *const *const c_char,
    maxprocs: *const c_int,
    info_keyval_sizes: *const c_int,
    info_keyval_vectors: *const *const Info,
    preput_keyval_size: c_int,
    preput_keyval_vector: *const *const Info,
    jobid: *mut c_char,
    jobid_size: c_int,
    errors: *mut c_int,
) -> c_int {
    // SAFETY: C passes arrays of `count` items; those of the infos may be null.
    let (cmds, argcs, argvs, maxprocs, info_sizes, infos) = unsafe {
        (
            items(cmds, count),
            items(argcs, count),
            items(argvs, count),
            items(maxprocs, count),
            items(info_keyval_sizes, count),
            items(info_keyval_vectors, count),
        )
    };
    code(with(|process| {
        let mut segments = Vec::new();
        for (at, cmd) in cmds.iter().enumerate() {
            let nprocs = maxprocs.get(at).and_then(|n| u32::try_from(*n).ok()).ok_or(Code::InvalidArgument)?;
            let count = |counts: &[c_int]| counts.get(at).copied().unwrap_or(0);
            // SAFETY: C passes text, and vectors of the sizes beside them.
            let (execname, args, info) = unsafe {
                let args = argvs.get(at).map_or(&[][..], |args| items(*args, count(argcs)));
                let args = args.iter().map(|arg| Ok(given(*arg, Code::InvalidArgument)?.to_vec()));
                let info = infos.get(at).map_or(&[][..], |info| items(*info, count(info_sizes)));
                let info = info.iter().map(|info| pair(info));
                (
                    given(*cmd, Code::InvalidArgument)?,
                    args.collect::<Result<_, Code>>()?,
                    info.collect::<Result<_, _>>()?,
                )
            };
            segments.push(SpawnSegment { nprocs, execname: execname.to_vec(), args, info });
        }
        if segments.is_empty() {
            return Err(Code::InvalidArgument);
        }
        // SAFETY: C passes a vector of this size, of pointers that are null or valid.
        let preput = unsafe {
            let preput = items(preput_keyval_vector, preput_keyval_size).iter();
            preput.map(|info| pair(info.as_ref().ok_or(Code::InvalidArgument)?)).collect::<Result<_, _>>()?
        };
        let (name, codes) = process.spawn(Spawn { segments, preput })?;
        for (at, error) in codes.into_iter().enumerate().filter(|_| !errors.is_null()) {
            // SAFETY: C passes room for one number of each process.
            unsafe { store(errors.add(at), error) };
        }
        if jobid.is_null() || jobid_size <= 0 {
            return Ok(());
        }
        // SAFETY: C passes room for `jobid_size` bytes.
        unsafe { give_text(jobid, jobid_size, &name) }
    }))
}

/// # Safety
/// Key and value are text.
unsafe fn pair(info: &Info) -> Result<(Vec<u8>, Vec<u8>), Code> {
    // SAFETY: the caller guarantees text.
    let (key, value) = unsafe { (given(info.key, Code::InvalidKey)?, given(info.value, Code::InvalidValue)?) };
    Ok((key.to_vec(), value.to_vec()))
}
