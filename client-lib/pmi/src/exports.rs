//! The functions that C calls.

#![expect(unsafe_code, reason = "the functions that C calls")]

use std::ffi::{c_char, c_int};

use rsd_bootstrap::border::{Code, code, give_text, given, items, store, text};
use rsd_proto::pmi::v1::{KVSNAME_MAX, Spawn, SpawnSegment, VALLEN_MAX};

use crate::process::{self, Entries, with};

/// `PMI_keyval_t`.
#[repr(C)]
struct KeyVal {
    key: *const c_char,
    val: *mut c_char,
}

/// Stores what `find` returns.
///
/// # Safety
/// As `store`.
unsafe fn give<N: TryInto<c_int>>(place: *mut c_int, found: Result<N, Code>) -> c_int {
    code(found.and_then(|found| {
        if place.is_null() {
            return Err(Code::InvalidArgument);
        }
        // SAFETY: the caller guarantees that the place may be written.
        unsafe { store(place, found) };
        Ok(())
    }))
}

/// Copies what was found, whole.
///
/// # Safety
/// As `copy`.
unsafe fn give_found(place: *mut c_char, len: c_int, found: Result<Vec<u8>, Code>) -> c_int {
    // SAFETY: the caller guarantees the room.
    code(found.and_then(|found| unsafe { give_text(place, len, &found) }))
}

#[unsafe(no_mangle)]
unsafe extern "C" fn PMI_Init(spawned: *mut c_int) -> c_int {
    // SAFETY: C passes a number's place.
    unsafe { give(spawned, process::init().map(i32::from)) }
}

#[unsafe(no_mangle)]
unsafe extern "C" fn PMI_Initialized(initialized: *mut c_int) -> c_int {
    // SAFETY: C passes a number's place.
    unsafe { give(initialized, Ok(i32::from(process::is_initialised()))) }
}

#[unsafe(no_mangle)]
extern "C" fn PMI_Finalize() -> c_int {
    code(process::finalize())
}

#[unsafe(no_mangle)]
unsafe extern "C" fn PMI_Abort(exit_code: c_int, error_msg: *const c_char) -> c_int {
    // SAFETY: C passes text or a null pointer.
    let message = unsafe { text(error_msg) }.unwrap_or_default();
    code(process::abort(exit_code, &String::from_utf8_lossy(message)))
}

#[unsafe(no_mangle)]
unsafe extern "C" fn PMI_Get_size(size: *mut c_int) -> c_int {
    // SAFETY: C passes a number's place.
    unsafe { give(size, with(|process| Ok(process.size()))) }
}

#[unsafe(no_mangle)]
unsafe extern "C" fn PMI_Get_rank(rank: *mut c_int) -> c_int {
    // SAFETY: C passes a number's place.
    unsafe { give(rank, with(|process| Ok(process.rank()))) }
}

#[unsafe(no_mangle)]
unsafe extern "C" fn PMI_Get_universe_size(size: *mut c_int) -> c_int {
    // SAFETY: C passes a number's place.
    unsafe { give(size, with(|process| Ok(process.universe_size()?.unwrap_or(-1)))) }
}

#[unsafe(no_mangle)]
unsafe extern "C" fn PMI_Get_appnum(appnum: *mut c_int) -> c_int {
    let number = with(|process| Ok(process.appnum().map_or(-1, i64::from)));
    // SAFETY: C passes a number's place.
    unsafe { give(appnum, number) }
}

#[unsafe(no_mangle)]
unsafe extern "C" fn PMI_Get_clique_size(size: *mut c_int) -> c_int {
    // SAFETY: C passes a number's place.
    unsafe { give(size, with(|process| Ok(process.clique()?.len()))) }
}

#[unsafe(no_mangle)]
unsafe extern "C" fn PMI_Get_clique_ranks(ranks: *mut c_int, length: c_int) -> c_int {
    code(with(|process| {
        let clique = process.clique()?;
        if ranks.is_null() || usize::try_from(length).map_or(true, |length| length < clique.len()) {
            return Err(Code::InvalidLength);
        }
        for (at, rank) in clique.into_iter().enumerate() {
            // SAFETY: C passes room for `length` numbers, which are enough.
            unsafe { store(ranks.add(at), rank) };
        }
        Ok(())
    }))
}

#[unsafe(no_mangle)]
unsafe extern "C" fn PMI_KVS_Get_my_name(kvsname: *mut c_char, length: c_int) -> c_int {
    // SAFETY: C passes room for `length` bytes.
    unsafe { give_found(kvsname, length, with(|process| Ok(process.name()))) }
}

#[unsafe(no_mangle)]
unsafe extern "C" fn PMI_Get_id(id: *mut c_char, length: c_int) -> c_int {
    // SAFETY: C passes room for `length` bytes.
    unsafe { PMI_KVS_Get_my_name(id, length) }
}

#[unsafe(no_mangle)]
unsafe extern "C" fn PMI_Get_kvs_domain_id(id: *mut c_char, length: c_int) -> c_int {
    // SAFETY: C passes room for `length` bytes.
    unsafe { PMI_KVS_Get_my_name(id, length) }
}

#[unsafe(no_mangle)]
unsafe extern "C" fn PMI_KVS_Get_name_length_max(length: *mut c_int) -> c_int {
    // SAFETY: C passes a number's place.
    unsafe { give(length, with(|_| Ok(KVSNAME_MAX))) }
}

#[unsafe(no_mangle)]
unsafe extern "C" fn PMI_Get_id_length_max(length: *mut c_int) -> c_int {
    // SAFETY: C passes a number's place.
    unsafe { PMI_KVS_Get_name_length_max(length) }
}

#[unsafe(no_mangle)]
unsafe extern "C" fn PMI_KVS_Get_key_length_max(length: *mut c_int) -> c_int {
    // SAFETY: C passes a number's place.
    unsafe { give(length, with(|process| Ok(process.lengths().0 + 1))) }
}

#[unsafe(no_mangle)]
unsafe extern "C" fn PMI_KVS_Get_value_length_max(length: *mut c_int) -> c_int {
    // SAFETY: C passes a number's place.
    unsafe { give(length, with(|process| Ok(process.lengths().1 + 1))) }
}

#[unsafe(no_mangle)]
unsafe extern "C" fn PMI_KVS_Put(_kvsname: *const c_char, key: *const c_char, value: *const c_char) -> c_int {
    // SAFETY: C passes text.
    let given = unsafe { (given(key, Code::InvalidKey), given(value, Code::InvalidValue)) };
    code(with(|process| process.put(given.0?, given.1?)))
}

#[unsafe(no_mangle)]
extern "C" fn PMI_KVS_Commit(_kvsname: *const c_char) -> c_int {
    code(with(|_| Ok(())))
}

#[unsafe(no_mangle)]
unsafe extern "C" fn PMI_KVS_Get(
    kvsname: *const c_char,
    key: *const c_char,
    value: *mut c_char,
    length: c_int,
) -> c_int {
    // SAFETY: C passes text.
    let (kvsname, key) = unsafe { (text(kvsname), given(key, Code::InvalidKey)) };
    let found = with(|process| {
        let kvsname = kvsname.map_or_else(|| process.name(), <[u8]>::to_vec);
        process.get(&kvsname, key?)?.ok_or(Code::Fail)
    });
    // SAFETY: C passes room for `length` bytes.
    unsafe { give_found(value, length, found) }
}

#[unsafe(no_mangle)]
extern "C" fn PMI_Barrier() -> c_int {
    code(with(process::Process::barrier))
}

#[unsafe(no_mangle)]
unsafe extern "C" fn PMI_Publish_name(service_name: *const c_char, port: *const c_char) -> c_int {
    // SAFETY: C passes text.
    let given = unsafe { (given(service_name, Code::InvalidArgument), given(port, Code::InvalidArgument)) };
    code(with(|process| process.publish(given.0?, given.1?)))
}

#[unsafe(no_mangle)]
unsafe extern "C" fn PMI_Unpublish_name(service_name: *const c_char) -> c_int {
    // SAFETY: C passes text.
    let name = unsafe { given(service_name, Code::InvalidArgument) };
    code(with(|process| process.unpublish(name?)))
}

#[unsafe(no_mangle)]
unsafe extern "C" fn PMI_Lookup_name(service_name: *const c_char, port: *mut c_char) -> c_int {
    // SAFETY: C passes text.
    let name = unsafe { given(service_name, Code::InvalidArgument) };
    let found = with(|process| process.lookup(name?));
    // SAFETY: C passes room for the longest value, as the API says.
    unsafe { give_found(port, VALLEN_MAX as c_int, found) }
}

#[unsafe(no_mangle)]
unsafe extern "C" fn PMI_Spawn_multiple(
    count: c_int,
    cmds: *const *const c_char,
    argvs: *const *const *const c_char,
    maxprocs: *const c_int,
    info_keyval_sizes: *const c_int,
    info_keyval_vectors: *const *const KeyVal,
    preput_keyval_size: c_int,
    preput_keyval_vector: *const KeyVal,
    errors: *mut c_int,
) -> c_int {
    // SAFETY: C passes arrays of `count` items, and `argvs` and the infos may be null.
    let (cmds, argvs, maxprocs, info_sizes, infos) = unsafe {
        (
            items(cmds, count),
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
            // SAFETY: C passes text, a vector that ends with a null pointer, and a vector of the size beside it.
            let (execname, args, info) = unsafe {
                let info = infos.get(at).map_or(&[][..], |info| items(*info, info_sizes.get(at).copied().unwrap_or(0)));
                (given(*cmd, Code::InvalidArgument)?, vector(argvs.get(at).copied()), pairs(info)?)
            };
            segments.push(SpawnSegment { nprocs, execname: execname.to_vec(), args, info });
        }
        if segments.is_empty() {
            return Err(Code::InvalidArgument);
        }
        // SAFETY: C passes a vector of this size.
        let preput: Entries = unsafe { pairs(items(preput_keyval_vector, preput_keyval_size)) }?.into_iter().collect();
        let codes = process.spawn(Spawn { segments, preput })?;
        for (at, error) in codes.into_iter().enumerate().filter(|_| !errors.is_null()) {
            // SAFETY: C passes room for one number of each process.
            unsafe { store(errors.add(at), error) };
        }
        Ok(())
    }))
}

/// Returns the texts of a vector that ends with a null pointer.
///
/// # Safety
/// It does so, and each is text.
unsafe fn vector(texts: Option<*const *const c_char>) -> Vec<Vec<u8>> {
    let mut all = Vec::new();
    let Some(texts) = texts.filter(|texts| !texts.is_null()) else { return all };
    // SAFETY: the null pointer at the end stops the walk.
    while let Some(found) = unsafe { text(*texts.add(all.len())) } {
        all.push(found.to_vec());
    }
    all
}

/// Keys with their values, in order.
type List = Vec<(Vec<u8>, Vec<u8>)>;

/// # Safety
/// Keys and values are text.
unsafe fn pairs(pairs: &[KeyVal]) -> Result<List, Code> {
    let pair = |pair: &KeyVal| {
        // SAFETY: the caller guarantees text.
        let (key, val) = unsafe { (given(pair.key, Code::InvalidKey)?, given(pair.val, Code::InvalidValue)?) };
        Ok((key.to_vec(), val.to_vec()))
    };
    pairs.iter().map(pair).collect()
}
