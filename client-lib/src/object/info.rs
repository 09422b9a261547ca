//! Info objects: keys and values in the order in which they were first set (MPI 5.0 §10).

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;

use super::table::{Objects, Table};
use crate::abi::constants::{MPI_INFO_ENV, MPI_INFO_NULL, MPI_MAX_INFO_KEY, MPI_MAX_INFO_VAL};
use crate::abi::{InfoHandle, handle::Handle};
use crate::device;
use crate::error::{MpiError, MpiResult};

/// Keys and values: any bytes but 0.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Info(Vec<(Vec<u8>, Vec<u8>)>);

/// Hints about communicators that the standard defines (MPI 5.0 §7.4.4): what the user asserts not to do.
pub const ASSERTIONS: [&[u8]; 5] = [
    b"mpi_assert_no_any_tag",
    b"mpi_assert_no_any_source",
    b"mpi_assert_exact_length",
    b"mpi_assert_allow_overtaking",
    b"mpi_assert_strict_persistent_collective_ordering",
];

impl Info {
    /// The value of a key.
    pub fn get(&self, key: &[u8]) -> Option<&[u8]> {
        self.0.iter().find(|(it, _)| it == key).map(|(_, value)| value.as_slice())
    }

    /// Sets a value. Fails with class `MPI_ERR_INFO_KEY` or `MPI_ERR_INFO_VALUE` if one is too long, or the key empty.
    pub fn set(&mut self, key: &[u8], value: &[u8]) -> MpiResult {
        check_key(key)?;
        if value.len() >= MPI_MAX_INFO_VAL as usize {
            let len = value.len();
            return Err(MpiError::info_value(format!(
                "the value has {len} characters, more than MPI_MAX_INFO_VAL - 1"
            )));
        }
        self.put(key, value);
        Ok(())
    }

    /// As [`Info::set`], for checked lengths.
    fn put(&mut self, key: &[u8], value: &[u8]) {
        match self.0.iter_mut().find(|(it, _)| it == key) {
            Some((_, old)) => *old = value.to_vec(),
            None => self.0.push((key.to_vec(), value.to_vec())),
        }
    }

    /// Removes a key; fails with class `MPI_ERR_INFO_NOKEY` if there is none.
    pub fn delete(&mut self, key: &[u8]) -> MpiResult {
        check_key(key)?;
        let Some(at) = self.0.iter().position(|(it, _)| it == key) else {
            return Err(MpiError::info_nokey(format!("unknown key {:?}", String::from_utf8_lossy(key))));
        };
        self.0.remove(at);
        Ok(())
    }

    /// The number of keys.
    pub fn len(&self) -> usize {
        self.0.len()
    }

    /// Whether there are no keys.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// The `n`-th key.
    pub fn key(&self, n: usize) -> Option<&[u8]> {
        self.0.get(n).map(|(key, _)| key.as_slice())
    }

    /// Copies the [`ASSERTIONS`] that another info has, true or false.
    pub fn take_assertions(&mut self, from: &Self) {
        let known = from.0.iter().filter(|(key, value)| {
            ASSERTIONS.contains(&key.as_slice()) && [&b"true"[..], b"false"].contains(&value.as_slice())
        });
        known.for_each(|(key, value)| self.put(key, value));
    }

    /// With the kinds of memory that buffers may lie in (MPI 5.0 §11.4.3).
    pub fn with_memory_kinds(mut self) -> Self {
        self.put(b"mpi_memory_alloc_kinds", device::kinds().as_bytes());
        self
    }

    /// How a program was started (MPI 5.0 §11.2.2): its arguments and where it runs. Long values are truncated.
    pub fn of_program<'a>(arguments: impl IntoIterator<Item = &'a [u8]>, more: &[(&str, String)]) -> Self {
        let mut info = Self::default();
        let mut put = |key: &str, value: &[u8]| {
            let end = value.len().min(MPI_MAX_INFO_VAL as usize - 1);
            info.put(key.as_bytes(), &value[..end]);
        };
        let mut arguments = arguments.into_iter();
        if let Some(command) = arguments.next() {
            put("command", command);
            let rest: Vec<&[u8]> = arguments.collect();
            put("argv", &rest.join(&b' '));
        }
        let directory = std::env::current_dir().unwrap_or_default();
        put("wdir", directory.as_os_str().as_bytes());
        put("host", nix::unistd::gethostname().unwrap_or_default().as_bytes());
        let machine = nix::sys::utsname::uname().map(|uname| uname.machine().to_owned()).unwrap_or_default();
        put("arch", OsStr::as_bytes(&machine));
        for (key, value) in more {
            put(key, value.as_bytes());
        }
        info
    }
}

/// Fails with class `MPI_ERR_INFO_KEY` for an invalid key.
pub fn check_key(key: &[u8]) -> MpiResult {
    match key.len() {
        0 => Err(MpiError::info_key("the key is empty")),
        len if len >= MPI_MAX_INFO_KEY as usize => {
            Err(MpiError::info_key(format!("the key has {len} characters, more than MPI_MAX_INFO_KEY - 1")))
        }
        _ => Ok(()),
    }
}

/// The info objects of the process.
#[derive(Debug, Default)]
pub struct Infos {
    made: Table<InfoHandle, Info>,
    /// `MPI_INFO_ENV`, once it has been read.
    pub env: Option<Info>,
}

impl Infos {
    /// The handles that the program has got.
    pub fn made(&self) -> &dyn Objects {
        &self.made
    }

    /// The info of a handle; fails with class `MPI_ERR_INFO` if there is none. `MPI_INFO_ENV` must be filled in before.
    pub fn get(&self, handle: InfoHandle) -> MpiResult<&Info> {
        let found = if handle.bits() == MPI_INFO_ENV { self.env.as_ref() } else { self.made.get(handle) };
        found.ok_or_else(|| unknown(handle))
    }

    /// As [`Infos::get`]; `MPI_INFO_ENV` cannot be changed.
    pub fn get_mut(&mut self, handle: InfoHandle) -> MpiResult<&mut Info> {
        self.made.get_mut(handle).ok_or_else(|| unknown(handle))
    }

    /// The hints of an argument that may be `MPI_INFO_NULL`.
    pub fn hints(&self, handle: InfoHandle) -> MpiResult<Option<&Info>> {
        if handle == InfoHandle::NULL { Ok(None) } else { self.get(handle).map(Some) }
    }

    /// Returns a handle for an info.
    pub fn add(&mut self, info: Info) -> MpiResult<InfoHandle> {
        self.made.add(info).ok_or_else(|| MpiError::no_mem("too many info objects (two million)"))
    }

    /// Frees a handle.
    pub fn free(&mut self, handle: InfoHandle) -> MpiResult {
        self.made.take(handle).map(drop).ok_or_else(|| unknown(handle))
    }
}

#[cold]
fn unknown(handle: InfoHandle) -> MpiError {
    MpiError::info(match handle.bits() {
        MPI_INFO_NULL => "the info is MPI_INFO_NULL",
        MPI_INFO_ENV => "MPI_INFO_ENV cannot be changed or freed",
        _ => "invalid or freed info",
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::abi::constants::{MPI_ERR_INFO, MPI_ERR_INFO_KEY, MPI_ERR_INFO_NOKEY, MPI_ERR_INFO_VALUE};

    #[test]
    fn keys_keep_their_order_and_a_value_is_replaced() {
        let mut info = Info::default();
        for (key, value) in [("one", "1"), ("two", "2"), ("one", "eins")] {
            info.set(key.as_bytes(), value.as_bytes()).unwrap();
        }
        assert_eq!(
            (info.len(), info.key(0), info.key(1), info.key(2)),
            (2, Some(&b"one"[..]), Some(&b"two"[..]), None)
        );
        assert_eq!((info.get(b"one"), info.get(b"three")), (Some(&b"eins"[..]), None));
        info.delete(b"one").unwrap();
        assert_eq!(info.delete(b"one").unwrap_err().class, MPI_ERR_INFO_NOKEY);
        assert_eq!(info.key(0), Some(&b"two"[..]));
    }

    #[test]
    fn long_values_and_long_or_empty_keys_are_refused() {
        let mut info = Info::default();
        let class = |result: MpiResult| result.map_err(|error| error.class);
        assert_eq!(class(info.set(&[b'k'; 255], &[b'v'; 1023])), Ok(()));
        assert_eq!(class(info.set(&[b'k'; 256], b"v")), Err(MPI_ERR_INFO_KEY));
        assert_eq!(class(info.set(b"", b"v")), Err(MPI_ERR_INFO_KEY));
        assert_eq!(class(info.set(b"k", &[b'v'; 1024])), Err(MPI_ERR_INFO_VALUE));
        assert_eq!(class(info.set(b"k", b"")), Ok(()));
    }

    #[test]
    fn only_assertions_of_the_standard_are_kept() {
        let (mut given, mut kept) = (Info::default(), Info::default());
        for (key, value) in
            [("mpi_assert_no_any_tag", "true"), ("mpi_assert_exact_length", "perhaps"), ("colour", "true")]
        {
            given.set(key.as_bytes(), value.as_bytes()).unwrap();
        }
        kept.take_assertions(&given);
        assert_eq!((kept.len(), kept.get(b"mpi_assert_no_any_tag")), (1, Some(&b"true"[..])));
    }

    #[test]
    fn the_environment_cannot_be_changed() {
        let mut infos = Infos { env: Some(Info::of_program([&b"a.out"[..], b"-x", b"1"], &[])), ..Infos::default() };
        let env = InfoHandle(MPI_INFO_ENV);
        assert_eq!(infos.get(env).unwrap().get(b"argv"), Some(&b"-x 1"[..]));
        assert_eq!(infos.get_mut(env).unwrap_err().class, MPI_ERR_INFO);
        assert_eq!(infos.free(env).unwrap_err().class, MPI_ERR_INFO);
    }
}
