//! Error handlers: the reaction to an error (MPI 5.0 §9.3).

use std::ffi::c_void;

use super::table::{Objects, Table};
use crate::abi::constants::{MPI_ERRORS_ABORT, MPI_ERRORS_ARE_FATAL, MPI_ERRORS_RETURN};
use crate::abi::{ErrhandlerHandle, handle::Handle};
use crate::error::{MpiError, MpiResult};

/// The reaction to an error.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Errhandler {
    /// The job is aborted.
    Fatal,
    /// The processes of the communicator are aborted; in this library, the job.
    Abort,
    /// The call returns the error.
    Return,
    /// A user function is called, then the call returns the error.
    User {
        /// The user's handle.
        handle: ErrhandlerHandle,
        /// The function: `MPI_X_errhandler_function` for the class of `of`.
        function: *const c_void,
        /// The class of objects that it is for.
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

// SAFETY: the function's address is called, not read; the user guarantees that any thread that uses MPI may call it.
#[expect(unsafe_code, reason = "the address of a user function")]
unsafe impl Send for Errhandler {}

/// User-defined error handlers: a freed one remains valid where it is set (MPI 5.0 §9.3.4), and can be obtained from
/// there again.
#[derive(Debug)]
pub struct Errhandlers {
    made: Table<ErrhandlerHandle, Made>,
    /// For files that are not open yet: the handler of `MPI_FILE_NULL` (MPI 5.0 §14.7).
    pub file: Errhandler,
}

#[derive(Debug)]
struct Made {
    function: *const c_void,
    of: Of,
    /// How often the user may free it: the number of times it was created or obtained.
    held: u32,
    /// The number of objects that use it.
    uses: u32,
}

impl Default for Errhandlers {
    fn default() -> Self {
        Self { made: Table::default(), file: Errhandler::Return }
    }
}

impl Errhandlers {
    /// The handles that the program has got.
    pub fn made(&self) -> &dyn Objects {
        &self.made
    }

    /// Whether the program still has to free the error handler with these bits of its handle.
    pub fn is_held(&self, handle: usize) -> bool {
        self.made.get(ErrhandlerHandle(handle)).is_some_and(|made| made.held > 0)
    }

    /// Creates an error handler.
    pub fn create(&mut self, function: *const c_void, of: Of) -> MpiResult<ErrhandlerHandle> {
        if function.is_null() {
            return Err(MpiError::arg("the function of the error handler is null"));
        }
        let handle = self.made.add(Made { function, of, held: 1, uses: 0 });
        handle.ok_or_else(|| MpiError::no_mem("too many error handlers (two million)"))
    }

    /// The error handler of a handle, for objects of class `of`.
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
                None => Err(unknown()),
            },
        }
    }

    /// One more object uses it.
    pub fn used(&mut self, errhandler: Errhandler) {
        if let Some(made) = self.made.get_mut(errhandler.handle()) {
            made.uses += 1;
        }
    }

    /// One object fewer uses it.
    pub fn unused(&mut self, errhandler: Errhandler) {
        if let Some(made) = self.made.get_mut(errhandler.handle()) {
            made.uses = made.uses.saturating_sub(1);
        }
        self.drop_unused(errhandler.handle());
    }

    /// The user has obtained it, and will free it.
    pub fn held(&mut self, errhandler: Errhandler) -> ErrhandlerHandle {
        if let Some(made) = self.made.get_mut(errhandler.handle()) {
            made.held += 1;
        }
        errhandler.handle()
    }

    /// Frees a handle. It may be a predefined one, since functions return these too.
    pub fn free(&mut self, handle: ErrhandlerHandle) -> MpiResult {
        match handle.bits() {
            MPI_ERRORS_ARE_FATAL | MPI_ERRORS_ABORT | MPI_ERRORS_RETURN => return Ok(()),
            _ => match self.made.get_mut(handle) {
                Some(made) if made.held > 0 => made.held -= 1,
                Some(_) | None => return Err(unknown()),
            },
        }
        self.drop_unused(handle);
        Ok(())
    }

    fn drop_unused(&mut self, handle: ErrhandlerHandle) {
        if self.made.get(handle).is_some_and(|made| made.held == 0 && made.uses == 0) {
            let _ = self.made.take(handle);
        }
    }
}

#[cold]
fn unknown() -> MpiError {
    MpiError::errhandler("invalid or freed error handler")
}

impl Errhandler {
    /// The user's handle.
    pub fn handle(&self) -> ErrhandlerHandle {
        match *self {
            Self::Fatal => ErrhandlerHandle(MPI_ERRORS_ARE_FATAL),
            Self::Abort => ErrhandlerHandle(MPI_ERRORS_ABORT),
            Self::Return => ErrhandlerHandle(MPI_ERRORS_RETURN),
            Self::User { handle, .. } => handle,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::abi::constants::MPI_ERR_ERRHANDLER;

    fn address() -> *const c_void {
        std::ptr::without_provenance(4096)
    }

    #[test]
    fn a_freed_error_handler_remains_valid_where_it_is_set() {
        let mut all = Errhandlers::default();
        let handle = all.create(address(), Of::Comm).unwrap();
        let found = all.find(handle, Of::Comm).unwrap();
        all.used(found);
        assert_eq!(all.held(found), handle);
        all.free(handle).unwrap();
        all.free(handle).unwrap();
        assert_eq!(all.free(handle).unwrap_err().class, MPI_ERR_ERRHANDLER);
        assert_eq!(all.held(found), handle);
        all.free(handle).unwrap();
        all.unused(found);
        assert_eq!(all.find(handle, Of::Comm).unwrap_err().class, MPI_ERR_ERRHANDLER);
    }

    #[test]
    fn an_error_handler_is_for_one_class_of_objects_and_a_predefined_one_for_all() {
        let mut all = Errhandlers::default();
        let handle = all.create(address(), Of::Win).unwrap();
        assert_eq!(all.find(handle, Of::Comm).unwrap_err().class, MPI_ERR_ERRHANDLER);
        for predefined in [MPI_ERRORS_ARE_FATAL, MPI_ERRORS_ABORT, MPI_ERRORS_RETURN].map(ErrhandlerHandle) {
            assert_eq!(all.find(predefined, Of::Session).unwrap().handle(), predefined);
            all.free(predefined).unwrap();
        }
        assert!(all.create(std::ptr::null(), Of::Comm).is_err());
    }
}
