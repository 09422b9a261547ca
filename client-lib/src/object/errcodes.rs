//! Error classes and codes: the standard's, and those that users add (MPI 5.0 §9.4, §9.5).
//!
//! The codes that this library returns are the classes themselves. Their text is the class's text and, if the calling
//! thread's last error was of that class, that error's own message ([`Met`]): as `strerror` would, if `errno` had a message. It is
//! labelled as the last error, so it is true whenever it is asked for. User-defined numbers count up from `MPI_ERR_LASTCODE`
//! and are never reused.

use std::borrow::Cow;
use std::collections::BTreeMap;

use crate::abi::constants as c;
use crate::error::{MpiError, MpiResult};

/// The texts of the standard's classes.
const CLASSES: &[(i32, &str)] = &[
    (c::MPI_SUCCESS, "no error"),
    (c::MPI_ERR_BUFFER, "invalid buffer: a null address, or memory that two arguments share"),
    (c::MPI_ERR_COUNT, "invalid count: negative, or more than memory can hold"),
    (c::MPI_ERR_TYPE, "invalid datatype: null, freed, or not committed"),
    (c::MPI_ERR_TAG, "invalid tag: it must be 0 to MPI_TAG_UB, or MPI_ANY_TAG where messages are received"),
    (c::MPI_ERR_COMM, "invalid communicator: null, freed, or of the wrong kind"),
    (c::MPI_ERR_RANK, "invalid rank: not in the group"),
    (c::MPI_ERR_REQUEST, "invalid request: null, freed, or of the wrong kind"),
    (c::MPI_ERR_ROOT, "invalid root: not a rank of the communicator"),
    (c::MPI_ERR_GROUP, "invalid group: null, freed, or not a subset of another one"),
    (c::MPI_ERR_OP, "invalid operation: null, freed, or not defined for the datatype"),
    (c::MPI_ERR_TOPOLOGY, "invalid topology"),
    (c::MPI_ERR_DIMS, "invalid dimensions"),
    (c::MPI_ERR_ARG, "invalid argument"),
    (c::MPI_ERR_UNKNOWN, "unknown error"),
    (c::MPI_ERR_TRUNCATE, "the message is longer than the receive buffer"),
    (c::MPI_ERR_OTHER, "an error that has no class of its own"),
    (c::MPI_ERR_INTERN, "internal error of the MPI library"),
    (c::MPI_ERR_PENDING, "the operation is neither complete nor has it failed"),
    (c::MPI_ERR_IN_STATUS, "some operations have failed: see the error field of each status"),
    (c::MPI_ERR_ACCESS, "permission denied"),
    (c::MPI_ERR_AMODE, "invalid access mode for the file"),
    (c::MPI_ERR_ASSERT, "invalid assertion"),
    (c::MPI_ERR_BAD_FILE, "invalid file name"),
    (c::MPI_ERR_BASE, "invalid base address"),
    (c::MPI_ERR_CONVERSION, "a user-defined conversion function has failed"),
    (c::MPI_ERR_DISP, "invalid displacement"),
    (c::MPI_ERR_DUP_DATAREP, "a data representation of this name is already defined"),
    (c::MPI_ERR_FILE_EXISTS, "the file exists"),
    (c::MPI_ERR_FILE_IN_USE, "the file is open in some process"),
    (c::MPI_ERR_FILE, "invalid file handle"),
    (c::MPI_ERR_INFO_KEY, "invalid info key: empty, or MPI_MAX_INFO_KEY characters or more"),
    (c::MPI_ERR_INFO_NOKEY, "the info has no such key"),
    (c::MPI_ERR_INFO_VALUE, "invalid info value: MPI_MAX_INFO_VAL characters or more, or not valid for the key"),
    (c::MPI_ERR_INFO, "invalid info: null or freed"),
    (c::MPI_ERR_IO, "input or output has failed"),
    (c::MPI_ERR_KEYVAL, "invalid attribute key: freed, predefined, or for another class of objects"),
    (c::MPI_ERR_LOCKTYPE, "invalid lock type"),
    (c::MPI_ERR_NAME, "the service name is not published"),
    (c::MPI_ERR_NO_MEM, "out of memory"),
    (c::MPI_ERR_NOT_SAME, "the processes of a collective call have passed different arguments"),
    (c::MPI_ERR_NO_SPACE, "no space left for the file"),
    (c::MPI_ERR_NO_SUCH_FILE, "the file does not exist"),
    (c::MPI_ERR_PORT, "invalid or unreachable port"),
    (c::MPI_ERR_QUOTA, "the quota is exceeded"),
    (c::MPI_ERR_READ_ONLY, "the file or file system is read-only"),
    (c::MPI_ERR_RMA_ATTACH, "memory cannot be attached to the window"),
    (c::MPI_ERR_RMA_CONFLICT, "conflicting accesses to a window"),
    (c::MPI_ERR_RMA_RANGE, "the target memory is not within the window"),
    (c::MPI_ERR_RMA_SHARED, "the memory cannot be shared by the processes"),
    (c::MPI_ERR_RMA_SYNC, "wrong synchronisation of accesses to a window"),
    (c::MPI_ERR_SERVICE, "the service name cannot be unpublished"),
    (c::MPI_ERR_SIZE, "invalid size"),
    (c::MPI_ERR_SPAWN, "processes could not be started"),
    (c::MPI_ERR_UNSUPPORTED_DATAREP, "unsupported data representation"),
    (c::MPI_ERR_UNSUPPORTED_OPERATION, "this library does not support the operation"),
    (c::MPI_ERR_WIN, "invalid window: null or freed"),
    (c::MPI_ERR_RMA_FLAVOR, "the window is of the wrong flavour"),
    (c::MPI_ERR_PROC_ABORTED, "a process has died or is unreachable"),
    (c::MPI_ERR_VALUE_TOO_LARGE, "the value does not fit the type of the argument: call the form ending in _c"),
    (c::MPI_ERR_SESSION, "invalid session"),
    (c::MPI_ERR_ERRHANDLER, "invalid error handler: null, freed, or for another class of objects"),
    (c::MPI_ERR_ABI, "the requested ABI is not supported"),
    (c::MPI_T_ERR_CANNOT_INIT, "the tools interface cannot be initialised"),
    (c::MPI_T_ERR_NOT_ACCESSIBLE, "the tools interface is not accessible"),
    (c::MPI_T_ERR_NOT_INITIALIZED, "the tools interface is not initialised"),
    (c::MPI_T_ERR_NOT_SUPPORTED, "the tools interface does not support this"),
    (c::MPI_T_ERR_MEMORY, "the tools interface is out of memory"),
    (c::MPI_T_ERR_INVALID, "invalid use of the tools interface"),
    (c::MPI_T_ERR_INVALID_INDEX, "invalid index of a variable, category or event"),
    (c::MPI_T_ERR_INVALID_ITEM, "invalid index of an item of an enumeration"),
    (c::MPI_T_ERR_INVALID_SESSION, "invalid session of the tools interface"),
    (c::MPI_T_ERR_INVALID_HANDLE, "invalid handle of the tools interface"),
    (c::MPI_T_ERR_INVALID_NAME, "no variable, category or event has this name"),
    (c::MPI_T_ERR_OUT_OF_HANDLES, "the tools interface has no handle left"),
    (c::MPI_T_ERR_OUT_OF_SESSIONS, "the tools interface has no session left"),
    (c::MPI_T_ERR_CVAR_SET_NOT_NOW, "the control variable cannot be set now"),
    (c::MPI_T_ERR_CVAR_SET_NEVER, "the control variable cannot be set any more"),
    (c::MPI_T_ERR_PVAR_NO_WRITE, "the performance variable cannot be written or reset"),
    (c::MPI_T_ERR_PVAR_NO_STARTSTOP, "the performance variable cannot be started or stopped"),
    (c::MPI_T_ERR_PVAR_NO_ATOMIC, "the performance variable cannot be read and reset at once"),
    (c::MPIX_ERR_PROC_FAILED_PENDING, "a process has died that could have matched the receive, which is still posted"),
    (c::MPIX_ERR_REVOKED, "the communicator is revoked"),
];

/// An error that a call has returned.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Met {
    class: i32,
    text: String,
}

impl Met {
    /// An error with the name of the function and the message; long texts are truncated.
    pub fn new(class: i32, mut text: String) -> Self {
        text.truncate(text.floor_char_boundary(TEXT_MAX));
        Self { class, text }
    }
}

/// The longest text in bytes.
const TEXT_MAX: usize = c::MPI_MAX_ERROR_STRING as usize - 1;

/// The classes and codes that users have added.
#[derive(Debug)]
pub struct ErrorCodes {
    added: BTreeMap<i32, Added>,
    last: i32,
}

#[derive(Debug)]
struct Added {
    /// Its own number if it is a class.
    class: i32,
    text: Vec<u8>,
}

impl Default for ErrorCodes {
    fn default() -> Self {
        Self { added: BTreeMap::new(), last: c::MPI_ERR_LASTCODE }
    }
}

impl ErrorCodes {
    /// A new class.
    pub fn add_class(&mut self) -> MpiResult<i32> {
        let class = self.next()?;
        self.added.insert(class, Added { class, text: Vec::new() });
        Ok(class)
    }

    /// A new code of a class.
    pub fn add_code(&mut self, class: i32) -> MpiResult<i32> {
        if self.class_of(class)? != class {
            return Err(MpiError::arg(format!("{class} is an error code, not a class")));
        }
        let code = self.next()?;
        self.added.insert(code, Added { class, text: Vec::new() });
        Ok(code)
    }

    /// Sets the text of a user-defined class or code; long texts are truncated.
    pub fn set_text(&mut self, code: i32, text: &[u8]) -> MpiResult {
        self.of_user(code)?.text = text[..text.len().min(TEXT_MAX)].to_vec();
        Ok(())
    }

    /// Removes the text of a user-defined class or code.
    pub fn remove_text(&mut self, code: i32) -> MpiResult {
        let added = self.of_user(code)?;
        if added.text.is_empty() {
            return Err(MpiError::arg(format!("the error code {code} has no text")));
        }
        added.text = Vec::new();
        Ok(())
    }

    /// Removes a user-defined code, which must have no text any more.
    pub fn remove_code(&mut self, code: i32) -> MpiResult {
        let added = self.of_user(code)?;
        if added.class == code {
            return Err(MpiError::arg(format!("{code} is an error class, not a code")));
        }
        self.remove(code)
    }

    /// Removes a user-defined class, which must have no codes and no text any more.
    pub fn remove_class(&mut self, class: i32) -> MpiResult {
        let added = self.of_user(class)?;
        if added.class != class {
            return Err(MpiError::arg(format!("{class} is an error code, not a class")));
        }
        if let Some((code, _)) = self.added.iter().find(|(code, added)| added.class == class && **code != class) {
            return Err(MpiError::arg(format!("the error class {class} has a code, {code}: remove that first")));
        }
        self.remove(class)
    }

    /// The class of a code, or of a class itself; fails with class `MPI_ERR_ARG` if it is neither.
    pub fn class_of(&self, code: i32) -> MpiResult<i32> {
        if standard(code).is_some() {
            return Ok(code);
        }
        self.added.get(&code).map(|added| added.class).ok_or_else(|| unknown(code))
    }

    /// The text of a code, at most `MPI_MAX_ERROR_STRING` - 1 bytes; empty if the user has given it no text.
    pub fn text_of(&self, code: i32) -> MpiResult<&[u8]> {
        if let Some(text) = standard(code) {
            return Ok(text.as_bytes());
        }
        self.added.get(&code).map(|added| added.text.as_slice()).ok_or_else(|| unknown(code))
    }

    /// The text of a code for a thread whose last error was this one: as [`Self::text_of`] and, if the error was of
    /// this class of the standard, the function that failed and why.
    pub fn text_after(&self, code: i32, last: Option<&Met>) -> MpiResult<Cow<'_, [u8]>> {
        match (standard(code), last) {
            (Some(text), Some(last)) if last.class == code => {
                let mut full = format!("{text} (last: {})", last.text);
                full.truncate(full.floor_char_boundary(TEXT_MAX));
                Ok(Cow::Owned(full.into_bytes()))
            }
            (Some(_) | None, _) => self.text_of(code).map(Cow::Borrowed),
        }
    }

    /// The largest number that is or was in use, or `MPI_ERR_LASTCODE`.
    pub fn last(&self) -> i32 {
        self.last
    }

    fn next(&mut self) -> MpiResult<i32> {
        self.last = self.last.checked_add(1).ok_or_else(|| MpiError::other("no error codes are left"))?;
        Ok(self.last)
    }

    fn remove(&mut self, code: i32) -> MpiResult {
        if !self.of_user(code)?.text.is_empty() {
            return Err(MpiError::arg(format!("the error code {code} has a text: remove that first")));
        }
        self.added.remove(&code);
        Ok(())
    }

    fn of_user(&mut self, code: i32) -> MpiResult<&mut Added> {
        match self.added.get_mut(&code) {
            Some(added) => Ok(added),
            None if standard(code).is_some() => Err(MpiError::arg(format!("the error class {code} is predefined"))),
            None => Err(unknown(code)),
        }
    }
}

fn standard(code: i32) -> Option<&'static str> {
    let at = CLASSES.binary_search_by_key(&code, |(class, _)| *class).ok()?;
    Some(CLASSES[at].1)
}

#[cold]
fn unknown(code: i32) -> MpiError {
    MpiError::arg(format!("{code} is not an error code"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_class_of_the_standard_has_a_text_of_its_own() {
        let codes = ErrorCodes::default();
        let all = (c::MPI_SUCCESS..=c::MPI_ERR_ABI).chain(c::MPI_T_ERR_CANNOT_INIT..=c::MPI_T_ERR_PVAR_NO_ATOMIC);
        let all = all.chain([c::MPIX_ERR_PROC_FAILED_PENDING, c::MPIX_ERR_REVOKED]);
        let mut seen = std::collections::BTreeSet::new();
        for class in all {
            assert_eq!(codes.class_of(class), Ok(class));
            let text = codes.text_of(class).unwrap();
            assert!(!text.is_empty() && text.len() < c::MPI_MAX_ERROR_STRING as usize && seen.insert(text), "{class}");
        }
        assert!(CLASSES.is_sorted() && seen.len() == CLASSES.len());
        for none in [-5, c::MPI_ERR_ABI + 1, c::MPI_ERR_LASTCODE, c::MPI_ERR_LASTCODE + 1] {
            assert_eq!(codes.class_of(none).unwrap_err().class, c::MPI_ERR_ARG);
        }
    }

    #[test]
    fn the_text_of_a_class_includes_the_last_error_of_that_class() {
        let mut codes = ErrorCodes::default();
        fn text(codes: &ErrorCodes, code: i32, last: Option<&Met>) -> String {
            String::from_utf8(codes.text_after(code, last).unwrap().into_owned()).unwrap()
        }
        let plain = "invalid rank: not in the group";
        assert_eq!(text(&codes, c::MPI_ERR_RANK, None), plain);
        let met = Met::new(c::MPI_ERR_RANK, "MPI_Send: rank 7 is none".to_owned());
        assert_eq!(text(&codes, c::MPI_ERR_RANK, Some(&met)), format!("{plain} (last: MPI_Send: rank 7 is none)"));
        assert_eq!(text(&codes, c::MPI_ERR_TAG, Some(&met)), text(&codes, c::MPI_ERR_TAG, None));
        let unknown = Met { class: c::MPI_ERR_LASTCODE, ..met };
        assert!(codes.text_after(c::MPI_ERR_LASTCODE, Some(&unknown)).is_err());
        // User-defined codes keep the user's text.
        let code = codes.add_code(c::MPI_ERR_RANK).unwrap();
        codes.set_text(code, b"of my own").unwrap();
        assert_eq!(text(&codes, code, Some(&Met::new(code, "MPI_Wait: it failed".to_owned()))), "of my own");
        // No text exceeds the limit, or ends within a character.
        let full = text(&codes, c::MPI_ERR_RANK, Some(&Met::new(c::MPI_ERR_RANK, "é".repeat(1000))));
        assert!((TEXT_MAX - 1..=TEXT_MAX).contains(&full.len()) && full.ends_with('é'), "{full}");
    }

    #[test]
    fn users_remove_texts_before_codes_and_codes_before_classes() {
        let mut codes = ErrorCodes::default();
        let class = codes.add_class().unwrap();
        let code = codes.add_code(class).unwrap();
        let other = codes.add_code(c::MPI_ERR_ARG).unwrap();
        assert_eq!([class, code, other, codes.last()].map(|it| it - c::MPI_ERR_LASTCODE), [1, 2, 3, 3]);
        assert_eq!([class, code, other].map(|it| codes.class_of(it)), [Ok(class), Ok(class), Ok(c::MPI_ERR_ARG)]);
        codes.set_text(code, b"of my own").unwrap();
        assert_eq!((codes.text_of(code), codes.text_of(class)), (Ok(&b"of my own"[..]), Ok(&b""[..])));
        assert!(codes.add_code(code).is_err() && codes.set_text(c::MPI_ERR_ARG, b"mine").is_err());
        assert!(
            codes.remove_class(class).is_err() && codes.remove_code(code).is_err() && codes.remove_code(class).is_err()
        );
        assert!(codes.remove_text(class).is_err());
        codes.remove_text(code).unwrap();
        codes.remove_code(code).unwrap();
        codes.remove_class(class).unwrap();
        assert!(codes.class_of(code).is_err() && codes.class_of(class).is_err());
        assert_eq!(codes.add_class().unwrap() - c::MPI_ERR_LASTCODE, 4, "no number is given twice");
    }
}
