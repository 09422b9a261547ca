//! An error of an MPI call: an error class of the standard and a text.

use std::borrow::Cow;

use crate::abi::{CommHandle, SessionHandle, WinHandle, constants};

/// An error of one of the standard's classes (MPI 5.0 §9.4). The text says what was wrong with which argument; it is
/// printed after the function's name and a colon.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{text}")]
pub struct MpiError {
    /// `MPI_ERR_…`, or a class or code that the user added.
    pub class: i32,
    /// Lower case, no full stop: "rank 7 is not in the communicator (0 to 3)".
    pub text: Cow<'static, str>,
    /// The object whose error handler is invoked, if the call's arguments do not tell: the communicator of a request.
    pub on: Option<On>,
    /// The error follows from a failure of another process, which that process or its launcher reports itself.
    pub is_secondhand: bool,
}

/// An object with an error handler.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum On {
    /// A communicator.
    Comm(CommHandle),
    /// A window.
    Win(WinHandle),
    /// A session.
    Session(SessionHandle),
}

/// The result of the functions behind the exported ones.
pub type MpiResult<T = ()> = Result<T, MpiError>;

impl MpiError {
    /// An error with this text.
    #[cold]
    pub fn new(class: i32, text: impl Into<Cow<'static, str>>) -> Self {
        let secondhand =
            [constants::MPI_ERR_PROC_ABORTED, constants::MPIX_ERR_PROC_FAILED_PENDING, constants::MPIX_ERR_REVOKED];
        Self { class, text: text.into(), on: None, is_secondhand: secondhand.contains(&class) }
    }

    /// A use of a revoked communicator.
    #[cold]
    pub fn was_revoked() -> Self {
        Self::revoked("the communicator is revoked: only MPIX_Comm_agree and MPIX_Comm_shrink still communicate on it")
    }

    /// Marks the error as the consequence of another process's failure.
    #[cold]
    pub fn secondhand(self) -> Self {
        Self { is_secondhand: true, ..self }
    }

    /// Sets the communicator of the failed operation.
    pub fn on(self, comm: CommHandle) -> Self {
        Self { on: Some(On::Comm(comm)), ..self }
    }

    /// Sets the session of the failed operation.
    pub fn on_session(self, session: SessionHandle) -> Self {
        Self { on: Some(On::Session(session)), ..self }
    }

    /// Sets the window of the failed operation.
    pub fn on_window(self, win: WinHandle) -> Self {
        Self { on: Some(On::Win(win)), ..self }
    }
}

macro_rules! classes {
    ($($(#[$doc:meta])* $name:ident $class:ident;)*) => {
        impl MpiError {$(
            $(#[$doc])*
            #[cold]
            pub fn $name(text: impl Into<Cow<'static, str>>) -> Self {
                Self::new(constants::$class, text)
            }
        )*}
    };
}

classes! {
    /// An invalid buffer pointer.
    buffer MPI_ERR_BUFFER;
    /// An invalid count.
    count MPI_ERR_COUNT;
    /// An invalid datatype.
    datatype MPI_ERR_TYPE;
    /// An invalid tag.
    tag MPI_ERR_TAG;
    /// An invalid communicator.
    comm MPI_ERR_COMM;
    /// An invalid rank.
    rank MPI_ERR_RANK;
    /// An invalid request.
    request MPI_ERR_REQUEST;
    /// An invalid root.
    root MPI_ERR_ROOT;
    /// An invalid group.
    group MPI_ERR_GROUP;
    /// An invalid operation.
    op MPI_ERR_OP;
    /// An invalid argument of another kind.
    arg MPI_ERR_ARG;
    /// A message longer than the receive buffer.
    truncate MPI_ERR_TRUNCATE;
    /// An error of no other class.
    other MPI_ERR_OTHER;
    /// An internal error of this library.
    intern MPI_ERR_INTERN;
    /// Out of memory.
    no_mem MPI_ERR_NO_MEM;
    /// An info key longer than `MPI_MAX_INFO_KEY`.
    info_key MPI_ERR_INFO_KEY;
    /// An info value longer than `MPI_MAX_INFO_VAL`.
    info_value MPI_ERR_INFO_VALUE;
    /// An unknown info key.
    info_nokey MPI_ERR_INFO_NOKEY;
    /// An invalid info object.
    info MPI_ERR_INFO;
    /// An invalid key value.
    keyval MPI_ERR_KEYVAL;
    /// An invalid error handler.
    errhandler MPI_ERR_ERRHANDLER;
    /// Something that this library does not support.
    unsupported MPI_ERR_UNSUPPORTED_OPERATION;
    /// A peer that has died or is unreachable.
    proc_aborted MPI_ERR_PROC_ABORTED;
    /// A receive from any source that a process can no longer match, which has died.
    proc_failed_pending MPIX_ERR_PROC_FAILED_PENDING;
    /// A revoked communicator.
    revoked MPIX_ERR_REVOKED;
    /// A value out of range for the caller's type.
    value_too_large MPI_ERR_VALUE_TOO_LARGE;
}
