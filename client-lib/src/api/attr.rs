//! Attributes, their keys, and the user functions that copy and delete them (MPI 5.0 §7.7, §16.1).
//!
//! Attributes are copied in the order in which they were set and deleted in the reverse order, always with the state
//! unlocked. The first function that fails ends the loop, and its result becomes the call's.

#![expect(unsafe_code, reason = "the C boundary, and user functions")]
#![expect(clippy::missing_safety_doc, reason = "callers guarantee what the standard requires of them")]

use std::ffi::{c_int, c_void};

use super::args::{check_place, put};
use crate::abi::constants::{
    MPI_APPNUM, MPI_COMM_SELF, MPI_COMM_WORLD, MPI_KEYVAL_INVALID, MPI_SUCCESS, MPI_UNIVERSE_SIZE, MPI_WIN_BASE,
    MPI_WIN_CREATE_FLAVOR, MPI_WIN_DISP_UNIT, MPI_WIN_MODEL, MPI_WIN_SIZE,
};
use crate::abi::{CommHandle, DatatypeHandle, WinHandle};
use crate::error::{MpiError, MpiResult};
use crate::object::attr::{Attributes, Bearer, Function, Key, Keyvals};
use crate::runtime::{Runtime, State, manager};

/// An object with attributes.
#[derive(Debug, Clone, Copy)]
pub enum Object {
    /// A communicator.
    Comm(CommHandle),
    /// A datatype.
    Type(DatatypeHandle),
    /// A window.
    Win(WinHandle),
}

impl Object {
    fn bearer(self) -> Bearer {
        match self {
            Self::Comm(_) => Bearer::Comm,
            Self::Type(_) => Bearer::Type,
            Self::Win(_) => Bearer::Win,
        }
    }

    /// As user functions get it: handles of all classes have the size of an address.
    fn bits(self) -> usize {
        match self {
            Self::Comm(comm) => comm.0,
            Self::Type(datatype) => datatype.0,
            Self::Win(win) => win.0,
        }
    }

    /// `None` if nothing was ever attached.
    fn attributes(self, state: &State) -> MpiResult<Option<&Attributes>> {
        match self {
            Self::Comm(comm) => Ok(Some(&state.comms.get(comm)?.attributes)),
            Self::Type(datatype) => Ok(state.types.attached(datatype)?.map(|attached| &attached.attributes)),
            Self::Win(win) => Ok(Some(&state.windows.get(win)?.attributes)),
        }
    }

    fn attributes_mut(self, state: &mut State) -> MpiResult<(&mut Attributes, &mut Keyvals)> {
        let attributes = match self {
            Self::Comm(comm) => &mut state.comms.get_mut(comm)?.attributes,
            Self::Type(datatype) => &mut state.types.attached_mut(datatype)?.attributes,
            Self::Win(win) => &mut state.windows.get_mut(win)?.attributes,
        };
        Ok((attributes, &mut state.keyvals))
    }
}

macro_rules! keyvals {
    ($($create:ident $free:ident $bearer:ident $names:literal;)*) => {$(
        #[doc = concat!("`MPI_", $names, "_create_keyval`.")]
        pub unsafe fn $create(
            rt: &Runtime,
            copy: *const c_void,
            delete: *const c_void,
            keyval: *mut c_int,
            extra_state: *mut c_void,
        ) -> MpiResult {
            check_place(keyval)?;
            let (copy, delete) = (Function::of_copy(copy), Function::of_delete(delete));
            let made = rt.lock().keyvals.create(Key { bearer: Bearer::$bearer, copy, delete, extra_state })?;
            // SAFETY: the caller's promise.
            unsafe { put(keyval, made) }
        }

        #[doc = concat!("`MPI_", $names, "_free_keyval`.")]
        pub unsafe fn $free(rt: &Runtime, keyval: *mut c_int) -> MpiResult {
            check_place(keyval)?;
            // SAFETY: the caller's promise.
            unsafe {
                rt.lock().keyvals.free(keyval.read(), Bearer::$bearer)?;
                put(keyval, MPI_KEYVAL_INVALID)
            }
        }
    )*};
}

keyvals! {
    comm_create_keyval comm_free_keyval Comm "Comm";
    type_create_keyval type_free_keyval Type "Type";
    win_create_keyval win_free_keyval Win "Win";
}

/// `MPI_Comm_set_attr`.
pub unsafe fn comm_set_attr(rt: &Runtime, comm: CommHandle, keyval: c_int, value: *mut c_void) -> MpiResult {
    set(rt, Object::Comm(comm), keyval, value)
}

/// `MPI_Comm_delete_attr`.
pub unsafe fn comm_delete_attr(rt: &Runtime, comm: CommHandle, keyval: c_int) -> MpiResult {
    delete(rt, Object::Comm(comm), keyval)
}

/// `MPI_Comm_get_attr`. The predefined ones are addresses of an `int` (MPI 5.0 §9.1.2).
pub unsafe fn comm_get_attr(
    rt: &Runtime,
    comm: CommHandle,
    keyval: c_int,
    value: *mut c_void,
    flag: *mut c_int,
) -> MpiResult {
    let predefined = {
        let mut state = rt.lock();
        state.comms.get(comm)?;
        predefined(&mut state, keyval)
    };
    match predefined {
        // SAFETY: the caller's promise.
        Some(found) => unsafe { put_found(found.map(<*mut c_int>::cast), value, flag) },
        // SAFETY: the caller's promise.
        None => unsafe { get(rt, Object::Comm(comm), keyval, value, flag) },
    }
}

/// `MPI_Type_set_attr`.
pub unsafe fn type_set_attr(rt: &Runtime, datatype: DatatypeHandle, keyval: c_int, value: *mut c_void) -> MpiResult {
    set(rt, Object::Type(datatype), keyval, value)
}

/// `MPI_Type_delete_attr`.
pub unsafe fn type_delete_attr(rt: &Runtime, datatype: DatatypeHandle, keyval: c_int) -> MpiResult {
    delete(rt, Object::Type(datatype), keyval)
}

/// `MPI_Type_get_attr`.
pub unsafe fn type_get_attr(
    rt: &Runtime,
    datatype: DatatypeHandle,
    keyval: c_int,
    value: *mut c_void,
    flag: *mut c_int,
) -> MpiResult {
    // SAFETY: the caller's promise.
    unsafe { get(rt, Object::Type(datatype), keyval, value, flag) }
}

/// `MPI_Win_set_attr`.
pub unsafe fn win_set_attr(rt: &Runtime, win: WinHandle, keyval: c_int, value: *mut c_void) -> MpiResult {
    set(rt, Object::Win(win), keyval, value)
}

/// `MPI_Win_delete_attr`.
pub unsafe fn win_delete_attr(rt: &Runtime, win: WinHandle, keyval: c_int) -> MpiResult {
    delete(rt, Object::Win(win), keyval)
}

/// `MPI_Win_get_attr`. Of the predefined ones, `MPI_WIN_BASE` is an address, and the others are addresses of values (MPI 5.0 §12.2.6).
pub unsafe fn win_get_attr(
    rt: &Runtime,
    win: WinHandle,
    keyval: c_int,
    value: *mut c_void,
    flag: *mut c_int,
) -> MpiResult {
    let predefined = {
        let state = rt.lock();
        let window = state.windows.get(win)?;
        let values = &window.values;
        match keyval {
            MPI_WIN_BASE => Some(std::ptr::with_exposed_provenance_mut(window.base())),
            MPI_WIN_SIZE => Some((&raw const values.size).cast_mut().cast()),
            MPI_WIN_DISP_UNIT => Some((&raw const values.disp_unit).cast_mut().cast()),
            MPI_WIN_CREATE_FLAVOR => Some((&raw const values.flavor).cast_mut().cast()),
            MPI_WIN_MODEL => Some((&raw const values.model).cast_mut().cast()),
            _ => None,
        }
    };
    match predefined {
        // SAFETY: the caller's promise.
        Some(found) => unsafe { put_found(Some(found), value, flag) },
        // SAFETY: the caller's promise.
        None => unsafe { get(rt, Object::Win(win), keyval, value, flag) },
    }
}

/// A predefined attribute: `None` if the key is not predefined, `Some(None)` if it has no value here.
fn predefined(state: &mut State, keyval: c_int) -> Option<Option<*mut c_int>> {
    let values = &state.keyvals.predefined;
    let place = values.place(keyval)?;
    if keyval == MPI_UNIVERSE_SIZE && values.universe_size().is_none() {
        // Without a process manager that answers, there is no value.
        let size = manager(state).ok().and_then(|pmi| pmi.universe_size().ok().flatten());
        state.keyvals.predefined.set_universe_size(size.unwrap_or(-1));
    }
    let values = &state.keyvals.predefined;
    let pmi = state.world.as_mut().and_then(|world| world.pmi.as_mut());
    let has_value = match (keyval, pmi) {
        (MPI_APPNUM, Some(pmi)) => pmi.appnum().inspect(|appnum| values.set_appnum(*appnum as i32)).is_some(),
        (MPI_UNIVERSE_SIZE, _) => values.universe_size().is_some_and(|size| size > 0),
        (MPI_APPNUM, None) => false,
        _ => true,
    };
    Some(has_value.then_some(place))
}

unsafe fn put_found(found: Option<*mut c_void>, value: *mut c_void, flag: *mut c_int) -> MpiResult {
    check_place(value)?;
    // SAFETY: the caller's promise: the address of an address.
    unsafe {
        put(flag, c_int::from(found.is_some()))?;
        found.map_or(Ok(()), |found| put(value.cast::<*mut c_void>(), found))
    }
}

unsafe fn get(rt: &Runtime, object: Object, keyval: c_int, value: *mut c_void, flag: *mut c_int) -> MpiResult {
    let found = {
        let state = rt.lock();
        let attributes = object.attributes(&state)?;
        state.keyvals.find(keyval, object.bearer())?;
        attributes.and_then(|attributes| attributes.get(keyval))
    };
    // SAFETY: the caller's promise.
    unsafe { put_found(found, value, flag) }
}

fn set(rt: &Runtime, object: Object, keyval: c_int, value: *mut c_void) -> MpiResult {
    let (key, old) = {
        let state = rt.lock();
        let old = object.attributes(&state)?.and_then(|attributes| attributes.get(keyval));
        (state.keyvals.find(keyval, object.bearer())?, old)
    };
    if let Some(old) = old {
        call_delete(key, object, keyval, old)?;
    }
    let mut state = rt.lock();
    let (attributes, keyvals) = object.attributes_mut(&mut state)?;
    attributes.set(keyvals, keyval, value);
    Ok(())
}

fn delete(rt: &Runtime, object: Object, keyval: c_int) -> MpiResult {
    let (key, old) = {
        let state = rt.lock();
        let old = object.attributes(&state)?.and_then(|attributes| attributes.get(keyval));
        (state.keyvals.find(keyval, object.bearer())?, old)
    };
    if let Some(old) = old {
        call_delete(key, object, keyval, old)?;
    }
    let mut state = rt.lock();
    let (attributes, keyvals) = object.attributes_mut(&mut state)?;
    attributes.remove(keyvals, keyval);
    Ok(())
}

/// Copies the attributes for a duplicate of an object.
pub fn copy_all(rt: &Runtime, object: Object) -> MpiResult<Attributes> {
    let all: Vec<(c_int, *mut c_void, Key)> = {
        let state = rt.lock();
        let attributes = object.attributes(&state)?.map(Attributes::to_vec).unwrap_or_default();
        let keys = attributes
            .into_iter()
            .map(|(keyval, value)| Ok((keyval, value, state.keyvals.find(keyval, object.bearer())?)));
        keys.collect::<MpiResult<_>>()?
    };
    let mut copies = Attributes::default();
    for (keyval, value, key) in all {
        match call_copy(key, object, keyval, value) {
            Ok(Some(copy)) => copies.set(&mut rt.lock().keyvals, keyval, copy),
            Ok(None) => {}
            Err(error) => {
                copies.clear(&mut rt.lock().keyvals);
                return Err(error);
            }
        }
    }
    Ok(copies)
}

/// Deletes all attributes of an object that is about to be freed, the most recently set one first.
pub fn delete_all(rt: &Runtime, object: Object) -> MpiResult {
    loop {
        let (keyval, value, key) = {
            let state = rt.lock();
            let Some((keyval, value)) = object.attributes(&state)?.and_then(Attributes::last) else { return Ok(()) };
            (keyval, value, state.keyvals.find(keyval, object.bearer())?)
        };
        call_delete(key, object, keyval, value)?;
        let mut state = rt.lock();
        let (attributes, keyvals) = object.attributes_mut(&mut state)?;
        attributes.remove(keyvals, keyval);
    }
}

/// The first action of `MPI_Finalize` (MPI 5.0 §11.2.4).
pub fn delete_at_end(rt: &Runtime) -> MpiResult {
    let of_self = delete_all(rt, Object::Comm(CommHandle(MPI_COMM_SELF)));
    of_self.and(delete_all(rt, Object::Comm(CommHandle(MPI_COMM_WORLD))))
}

fn call_copy(key: Key, object: Object, keyval: c_int, value: *mut c_void) -> MpiResult<Option<*mut c_void>> {
    type Copy = unsafe extern "C" fn(usize, c_int, *mut c_void, *mut c_void, *mut *mut c_void, *mut c_int) -> c_int;
    let address = match key.copy {
        Function::Null => return Ok(None),
        Function::Dup => return Ok(Some(value)),
        Function::User(address) => address,
    };
    let (mut copy, mut flag) = (std::ptr::null_mut(), 0);
    // SAFETY: the user has passed the address as a function of this type, for this class of objects.
    let code = unsafe {
        let function = std::mem::transmute::<*const c_void, Copy>(address);
        function(object.bits(), keyval, key.extra_state, value, &raw mut copy, &raw mut flag)
    };
    of_user(code, "copy")?;
    Ok((flag != 0).then_some(copy))
}

fn call_delete(key: Key, object: Object, keyval: c_int, value: *mut c_void) -> MpiResult {
    type Delete = unsafe extern "C" fn(usize, c_int, *mut c_void, *mut c_void) -> c_int;
    let Function::User(address) = key.delete else { return Ok(()) };
    // SAFETY: the user has passed the address as a function of this type, for this class of objects.
    let code = unsafe {
        let function = std::mem::transmute::<*const c_void, Delete>(address);
        function(object.bits(), keyval, value, key.extra_state)
    };
    of_user(code, "delete")
}

fn of_user(code: c_int, which: &str) -> MpiResult {
    match code {
        MPI_SUCCESS => Ok(()),
        code => Err(MpiError::new(code, format!("the {which} function of an attribute returned {code}"))),
    }
}
