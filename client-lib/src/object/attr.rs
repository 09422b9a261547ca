//! Attributes: values that the user attaches to objects, under keys with functions for copying and deleting (MPI 5.0 §7.7).
//!
//! The functions are the user's and may call the library, so [`crate::api::attr`] calls them with the state unlocked; this
//! module only holds the data. A freed key remains valid as long as an object has its attribute.

use std::ffi::{c_int, c_void};
use std::sync::atomic::{AtomicI32, Ordering};

use super::table::Table;
use crate::abi::constants::{
    MPI_ANY_SOURCE, MPI_APPNUM, MPI_ERR_LASTCODE, MPI_HOST, MPI_IO, MPI_KEYVAL_INVALID, MPI_LASTUSEDCODE,
    MPI_PROC_NULL, MPI_TAG_UB, MPI_UNIVERSE_SIZE, MPI_WIN_BASE, MPI_WIN_MODEL, MPI_WTIME_IS_GLOBAL,
};
use crate::abi::handle::Handle;
use crate::error::{MpiError, MpiResult};

/// The classes of objects that have attributes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Bearer {
    /// Communicators.
    Comm,
    /// Datatypes.
    Type,
    /// Windows.
    Win,
}

/// A user function for copying or deleting, or a predefined one, which is a number.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Function {
    /// `MPI_X_NULL_COPY_FN`, `MPI_X_NULL_DELETE_FN`: does nothing.
    Null,
    /// `MPI_X_DUP_FN`: copies the value unchanged.
    Dup,
    /// A user function.
    User(*const c_void),
}

impl Function {
    /// Decodes the argument that C passes.
    pub fn of_copy(address: *const c_void) -> Self {
        match address.addr() {
            0 => Self::Null,
            1 => Self::Dup,
            _ => Self::User(address),
        }
    }

    /// Decodes the argument that C passes.
    pub fn of_delete(address: *const c_void) -> Self {
        if address.is_null() { Self::Null } else { Self::User(address) }
    }
}

/// The meaning of a key value.
#[derive(Debug, Clone, Copy)]
pub struct Key {
    /// The class of objects that it is for.
    pub bearer: Bearer,
    /// Called when the object is duplicated.
    pub copy: Function,
    /// Called when the attribute is deleted.
    pub delete: Function,
    /// Passed to both functions.
    pub extra_state: *mut c_void,
}

/// A key value in the table: the user gets its number as an `int`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
struct Keyval(usize);

impl Handle for Keyval {
    const CLASS: u8 = 12;

    fn from_bits(bits: usize) -> Self {
        Self(bits)
    }

    fn bits(self) -> usize {
        self.0
    }
}

#[derive(Debug)]
struct Entry {
    key: Key,
    /// The number of objects that have it.
    uses: u32,
    freed: bool,
}

/// The keys of the process.
#[derive(Debug, Default)]
pub struct Keyvals {
    made: Table<Keyval, Entry>,
    /// Values that predefined attributes point to.
    pub predefined: Box<Predefined>,
}

impl Keyvals {
    /// A new key.
    pub fn create(&mut self, key: Key) -> MpiResult<c_int> {
        let keyval = self.made.add(Entry { key, uses: 0, freed: false });
        keyval.map(Keyval::to_int).ok_or_else(|| MpiError::no_mem("too many attribute keys (two million)"))
    }

    /// Returns the meaning of a key value on objects of a class; a key that is freed but in use is valid.
    pub fn find(&self, keyval: c_int, bearer: Bearer) -> MpiResult<Key> {
        match self.made.get(Keyval::from_int(keyval)) {
            Some(entry) if entry.key.bearer == bearer => Ok(entry.key),
            Some(entry) => {
                Err(MpiError::keyval(format!("the key was made for a {:?}, not for a {bearer:?}", entry.key.bearer)))
            }
            None => Err(unknown(keyval)),
        }
    }

    /// Frees a key. Programs free a key that is in use several times, from its delete function for example.
    pub fn free(&mut self, keyval: c_int, bearer: Bearer) -> MpiResult {
        self.find(keyval, bearer)?;
        let handle = Keyval::from_int(keyval);
        if let Some(entry) = self.made.get_mut(handle) {
            entry.freed = true;
        }
        self.drop_unused(handle);
        Ok(())
    }

    /// One more object has an attribute of the key.
    fn used(&mut self, keyval: c_int) {
        if let Some(entry) = self.made.get_mut(Keyval::from_int(keyval)) {
            entry.uses += 1;
        }
    }

    /// One object fewer has an attribute of the key.
    fn unused(&mut self, keyval: c_int) {
        let handle = Keyval::from_int(keyval);
        if let Some(entry) = self.made.get_mut(handle) {
            entry.uses = entry.uses.saturating_sub(1);
        }
        self.drop_unused(handle);
    }

    fn drop_unused(&mut self, handle: Keyval) {
        if self.made.get(handle).is_some_and(|entry| entry.freed && entry.uses == 0) {
            let _ = self.made.take(handle);
        }
    }
}

#[cold]
fn unknown(keyval: c_int) -> MpiError {
    match keyval {
        MPI_KEYVAL_INVALID => MpiError::keyval("the key is MPI_KEYVAL_INVALID"),
        MPI_TAG_UB..=MPI_UNIVERSE_SIZE | MPI_WIN_BASE..=MPI_WIN_MODEL => {
            MpiError::keyval("the key is predefined: its value cannot be changed")
        }
        _ => MpiError::keyval(format!("{keyval} is not an attribute key, or was freed")),
    }
}

/// The attributes of one object, in the order in which they were set.
#[derive(Debug, Default)]
pub struct Attributes(Vec<(c_int, *mut c_void)>);

impl Attributes {
    /// The value of a key.
    pub fn get(&self, keyval: c_int) -> Option<*mut c_void> {
        self.0.iter().find(|(key, _)| *key == keyval).map(|(_, value)| *value)
    }

    /// Sets a value; a previous value is overwritten, and the attribute counts as set now.
    pub fn set(&mut self, keyvals: &mut Keyvals, keyval: c_int, value: *mut c_void) {
        match self.0.iter().position(|(key, _)| *key == keyval) {
            Some(at) => drop(self.0.remove(at)),
            None => keyvals.used(keyval),
        }
        self.0.push((keyval, value));
    }

    /// Removes a value.
    pub fn remove(&mut self, keyvals: &mut Keyvals, keyval: c_int) {
        if let Some(at) = self.0.iter().position(|(key, _)| *key == keyval) {
            self.0.remove(at);
            keyvals.unused(keyval);
        }
    }

    /// All values, in the order in which they were set.
    pub fn to_vec(&self) -> Vec<(c_int, *mut c_void)> {
        self.0.clone()
    }

    /// The value that was set last.
    pub fn last(&self) -> Option<(c_int, *mut c_void)> {
        self.0.last().copied()
    }

    /// Removes all values.
    pub fn clear(&mut self, keyvals: &mut Keyvals) {
        while let Some((keyval, _)) = self.last() {
            self.remove(keyvals, keyval);
        }
    }
}

/// The values behind the attributes of the environment (MPI 5.0 §9.1.2): the user gets their addresses, so they never
/// move.
#[derive(Debug)]
pub struct Predefined {
    tag_ub: AtomicI32,
    io: AtomicI32,
    host: AtomicI32,
    wtime_is_global: AtomicI32,
    appnum: AtomicI32,
    last_used_code: AtomicI32,
    universe_size: AtomicI32,
}

impl Default for Predefined {
    fn default() -> Self {
        Self {
            tag_ub: AtomicI32::new(crate::engine::TAG_MAX),
            // Every process can read and write files.
            io: AtomicI32::new(MPI_ANY_SOURCE),
            host: AtomicI32::new(MPI_PROC_NULL),
            // The clocks of nodes differ.
            wtime_is_global: AtomicI32::new(0),
            appnum: AtomicI32::new(0),
            last_used_code: AtomicI32::new(MPI_ERR_LASTCODE),
            universe_size: AtomicI32::new(0),
        }
    }
}

impl Predefined {
    /// The address of a predefined key's value; `None` if the key is not a predefined one of communicators.
    pub fn place(&self, keyval: c_int) -> Option<*mut c_int> {
        let value = match keyval {
            MPI_TAG_UB => &self.tag_ub,
            MPI_IO => &self.io,
            MPI_HOST => &self.host,
            MPI_WTIME_IS_GLOBAL => &self.wtime_is_global,
            MPI_APPNUM => &self.appnum,
            MPI_LASTUSEDCODE => &self.last_used_code,
            MPI_UNIVERSE_SIZE => &self.universe_size,
            _ => return None,
        };
        Some(value.as_ptr())
    }

    /// Sets the index of this process's program in the job.
    pub fn set_appnum(&self, appnum: i32) {
        self.appnum.store(appnum, Ordering::Relaxed);
    }

    /// The largest error code in use.
    pub fn set_last_used_code(&self, code: i32) {
        self.last_used_code.store(code, Ordering::Relaxed);
    }

    /// The number of processes that the system can hold; `None` if it has not been requested yet.
    pub fn universe_size(&self) -> Option<i32> {
        Some(self.universe_size.load(Ordering::Relaxed)).filter(|size| *size != 0)
    }

    /// Sets the process manager's value; -1 if it does not know.
    pub fn set_universe_size(&self, size: i32) {
        self.universe_size.store(if size > 0 { size } else { -1 }, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::abi::constants::MPI_ERR_KEYVAL;

    fn key(bearer: Bearer) -> Key {
        Key { bearer, copy: Function::Null, delete: Function::Null, extra_state: std::ptr::null_mut() }
    }

    fn value(of: usize) -> *mut c_void {
        std::ptr::without_provenance_mut(of)
    }

    #[test]
    fn a_freed_key_remains_valid_where_it_is_used() {
        let mut keyvals = Keyvals::default();
        let (mut one, mut two) = (Attributes::default(), Attributes::default());
        let keyval = keyvals.create(key(Bearer::Comm)).unwrap();
        one.set(&mut keyvals, keyval, value(1));
        two.set(&mut keyvals, keyval, value(2));
        keyvals.free(keyval, Bearer::Comm).unwrap();
        keyvals.free(keyval, Bearer::Comm).unwrap();
        one.remove(&mut keyvals, keyval);
        assert!(keyvals.find(keyval, Bearer::Comm).is_ok());
        two.clear(&mut keyvals);
        assert_eq!(keyvals.free(keyval, Bearer::Comm).unwrap_err().class, MPI_ERR_KEYVAL);
        assert_eq!(keyvals.find(keyval, Bearer::Comm).unwrap_err().class, MPI_ERR_KEYVAL);
        assert_ne!(keyvals.create(key(Bearer::Comm)).unwrap(), keyval);
    }

    #[test]
    fn a_key_is_for_one_class_of_objects_and_never_a_predefined_number() {
        let mut keyvals = Keyvals::default();
        let keyval = keyvals.create(key(Bearer::Type)).unwrap();
        assert!(keyval > MPI_WIN_MODEL && keyvals.find(keyval, Bearer::Type).is_ok());
        for (number, bearer) in [(keyval, Bearer::Comm), (keyval, Bearer::Win), (0, Bearer::Comm), (501, Bearer::Comm)]
        {
            assert_eq!(keyvals.find(number, bearer).unwrap_err().class, MPI_ERR_KEYVAL);
        }
    }

    #[test]
    fn attributes_keep_the_order_in_which_they_were_set() {
        let mut keyvals = Keyvals::default();
        let keys = [0; 3].map(|_| keyvals.create(key(Bearer::Comm)).unwrap());
        let mut all = Attributes::default();
        for (at, keyval) in keys.into_iter().enumerate() {
            all.set(&mut keyvals, keyval, value(at));
        }
        all.set(&mut keyvals, keys[0], value(7));
        assert_eq!(all.to_vec(), [(keys[1], value(1)), (keys[2], value(2)), (keys[0], value(7))]);
        assert_eq!((all.last(), all.get(keys[0])), (Some((keys[0], value(7))), Some(value(7))));
    }

    #[test]
    fn predefined_functions_are_numbers() {
        assert_eq!([0, 1].map(|at| Function::of_copy(value(at))), [Function::Null, Function::Dup]);
        assert_eq!(Function::of_copy(value(4096)), Function::User(value(4096)));
        assert_eq!([0, 1].map(|at| Function::of_delete(value(at))), [Function::Null, Function::User(value(1))]);
    }
}
