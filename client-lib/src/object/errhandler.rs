//! Error handlers: what becomes of an error (MPI 5.0 §9.3).

use std::ffi::c_void;

use super::table::Table;
use crate::abi::constants::{MPI_ERRORS_ABORT, MPI_ERRORS_ARE_FATAL, MPI_ERRORS_RETURN};
use crate::abi::{ErrhandlerHandle, handle::Handle};
use crate::error::{MpiError, MpiResult};

/// What is done with an error.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Errhandler {
    /// The job is aborted.
    Fatal,
    /// The processes of the communicator are aborted; here: the job.
    Abort,
    /// The call returns the error.
    Return,
    /// A function of the user's is called, then the call returns the error.
    User {
        /// By which the user knows it.
        handle: ErrhandlerHandle,
        /// What is called: `MPI_X_errhandler_function` for the class of `of`.
        function: *const c_void,
        /// What kind of object it is for.
        of: Of,
    },
}

/// The classes of objects that have error handlers.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Of {
    /// Communicators.
    Comm,
    /// Windows.
    Win,
    /// Files.
    File,
    /// Sessions.
    Session,
}

// SAFETY: the function's address is called, not read; the user says that it may be called from any thread that uses MPI.
#[expect(unsafe_code, reason = "an address of the user's code")]
unsafe impl Send for Errhandler {}

/// Those that users have made, counted: a freed one lives on where it is set (MPI 5.0 §9.3.4).
#[derive(Debug, Default)]
pub struct Errhandlers {
    made: Table<ErrhandlerHandle, Made>,
}

#[derive(Debug)]
struct Made {
    function: *const c_void,
    of: Of,
}

impl Errhandlers {
    /// A new one.
    pub fn create(&mut self, function: *const c_void, of: Of) -> MpiResult<ErrhandlerHandle> {
        let handle = self.made.add(Made { function, of });
        handle.ok_or_else(|| MpiError::no_mem("there are two million error handlers already"))
    }

    /// What the handle stands for, for objects of class `of`.
    pub fn find(&self, handle: ErrhandlerHandle, of: Of) -> MpiResult<Errhandler> {
        match handle.bits() {
            MPI_ERRORS_ARE_FATAL => Ok(Errhandler::Fatal),
            MPI_ERRORS_ABORT => Ok(Errhandler::Abort),
            MPI_ERRORS_RETURN => Ok(Errhandler::Return),
            _ => match self.made.get(handle) {
                Some(made) if made.of == of => Ok(Errhandler::User { handle, function: made.function, of: made.of }),
                Some(made) => Err(MpiError::errhandler(format!(
                    "the error handler was made for a {:?}, not for a {of:?}",
                    made.of
                ))),
                None => Err(MpiError::errhandler("the error handler is null, was freed, or never was one")),
            },
        }
    }
}

impl Errhandler {
    /// By which the user knows it.
    pub fn handle(&self) -> ErrhandlerHandle {
        match *self {
            Self::Fatal => ErrhandlerHandle(MPI_ERRORS_ARE_FATAL),
            Self::Abort => ErrhandlerHandle(MPI_ERRORS_ABORT),
            Self::Return => ErrhandlerHandle(MPI_ERRORS_RETURN),
            Self::User { handle, .. } => handle,
        }
    }
}
