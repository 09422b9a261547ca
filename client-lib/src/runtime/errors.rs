//! From an error to the reaction that the user has set: an exit, a return code, or a user function (MPI 5.0 §9.3).
//!
//! A code says no more than its class. The error's message stays with the thread until its next error, for `MPI_Error_string`.

use std::any::Any;
use std::cell::RefCell;
use std::ffi::{c_int, c_void};
use std::io::Write;
use std::panic::AssertUnwindSafe;
use std::time::Duration;

use super::{Phase, Runtime, State, forks};
use crate::abi::constants::{MPI_COMM_NULL, MPI_COMM_SELF, MPI_COMM_WORLD, MPI_ERR_OTHER, MPI_SESSION_NULL};
use crate::abi::{CommHandle, ErrhandlerHandle, FileHandle, SessionHandle, WinHandle};
use crate::error::{MpiError, MpiResult, On};
use crate::object::errcodes::Met;
use crate::object::errhandler::{Errhandler, Of};
use crate::transport::name::number_of;

/// The object of a call: its error handler is invoked.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Scope {
    /// None: the handler of `MPI_COMM_SELF` (MPI 5.0 §9.3), or of `MPI_COMM_WORLD` if the program has set one only there.
    World,
    /// A communicator.
    Comm(CommHandle),
    /// A window.
    Win(WinHandle),
    /// A file.
    File(FileHandle),
    /// A session.
    Session(SessionHandle),
    /// A call of the tools interface: it returns its code, whatever handlers there are (MPI 5.0 §15.3.10).
    Tool,
    /// None yet: the function makes the object that will have this error handler.
    Errhandler(ErrhandlerHandle),
}

/// The error of a function that is not implemented yet.
#[cold]
pub fn unsupported(name: &'static str) -> MpiResult {
    Err(MpiError::unsupported(format!("{name} is not supported by this library yet")))
}

/// Runs the body of a call. A panic is a fault of this library, and becomes an error of class `MPI_ERR_INTERN`: it must not unwind into C.
#[inline(always)]
pub(super) fn caught(body: impl FnOnce() -> MpiResult) -> MpiResult {
    std::panic::catch_unwind(AssertUnwindSafe(body)).unwrap_or_else(|panic| Err(fault(&*panic)))
}

#[cold]
fn fault(panic: &(dyn Any + Send)) -> MpiError {
    let text = panic.downcast_ref::<&str>().map(ToString::to_string);
    let text = text.or_else(|| panic.downcast_ref::<String>().cloned()).unwrap_or_default();
    MpiError::intern(format!("a fault of this library, please report it: {text}"))
}

/// A function was called before `MPI_Init` or after `MPI_Finalize`.
#[cold]
pub(super) fn outside(runtime: &Runtime, name: &'static str) -> c_int {
    if forks::is_child() {
        end_child(name);
    }
    let text = match runtime.phase() {
        Phase::Before => "MPI is not initialized: call MPI_Init or MPI_Session_init first",
        Phase::Running | Phase::After => "MPI has been finalized, and no session is open",
    };
    fail(runtime, name, Scope::World, MpiError::other(text))
}

thread_local! {
    static LAST: RefCell<Option<Met>> = const { RefCell::new(None) };
}

/// The last error of a call of this thread.
pub fn last_met() -> Option<Met> {
    // A thread that is ending has lost its record.
    LAST.try_with(|last| last.borrow().clone()).ok().flatten()
}

/// Records an error of a call, then reacts as the error handler says; returns the function's return value.
#[cold]
pub(super) fn fail(runtime: &Runtime, name: &'static str, scope: Scope, error: MpiError) -> c_int {
    let met = Met::new(error.class, format!("{name}: {error}"));
    let _ = LAST.try_with(|last| last.replace(Some(met)));
    if scope == Scope::Tool {
        return error.class;
    }
    raise(runtime, name, scope, error)
}

/// Reacts to the error as the error handler says; returns the function's return value.
#[cold]
pub fn raise(runtime: &Runtime, name: &'static str, scope: Scope, error: MpiError) -> c_int {
    let scope = match error.on {
        Some(On::Comm(comm)) => Scope::Comm(comm),
        Some(On::Win(win)) => Scope::Win(win),
        Some(On::Session(session)) => Scope::Session(session),
        None => scope,
    };
    let (errhandler, object) = {
        let state = runtime.visit();
        let found = match scope {
            Scope::Comm(comm) => state.comms.get(comm).ok().map(|found| (found.errhandler, comm.0)),
            // Files cannot be opened yet: the handler for future files applies (MPI 5.0 §14.7).
            Scope::File(file) => Some((state.errhandlers.file, file.0)),
            Scope::Session(session) => state.sessions.get(session).ok().map(|found| (found.errhandler, session.0)),
            Scope::Errhandler(handle) => {
                let of = [Of::Session, Of::Comm].into_iter().find_map(|of| state.errhandlers.find(handle, of).ok());
                of.map(|found| (found, if name == "MPI_Session_init" { MPI_SESSION_NULL } else { MPI_COMM_NULL }))
            }
            Scope::Win(win) => state.windows.get(win).ok().map(|found| (found.errhandler, win.0)),
            Scope::World | Scope::Tool => None,
        };
        found.unwrap_or_else(|| of_no_object(&state))
    };
    let code = error.class;
    match errhandler {
        Errhandler::Return => code,
        Errhandler::User { function, .. } => {
            call_user(function, object, code);
            code
        }
        Errhandler::Fatal | Errhandler::Abort => {
            let code = if code == 0 { MPI_ERR_OTHER } else { code };
            die(runtime, &format!("{name}: {error}"), code, error.is_secondhand)
        }
    }
}

/// The error handler for errors of no particular object, and the handle of the communicator that has it.
pub fn of_no_object(state: &State) -> (Errhandler, usize) {
    match (&state.comms.own, &state.comms.world) {
        // Before MPI 4.0, the handler of MPI_COMM_WORLD was the one: what a program of that time has set there counts, unless it
        // has set another one on MPI_COMM_SELF. MPICH does the same.
        (Some(own), Some(world)) if world.chose_errhandler && !own.chose_errhandler => {
            (world.errhandler, MPI_COMM_WORLD)
        }
        (Some(own), _) => (own.errhandler, MPI_COMM_SELF),
        (None, _) => (state.initial_errhandler, MPI_COMM_SELF),
    }
}

#[expect(unsafe_code, reason = "an error handler is a user function")]
fn call_user(function: *const c_void, object: usize, code: c_int) {
    /// Handles of all classes have the size of an address.
    type Function = unsafe extern "C" fn(*mut usize, *mut c_int, ...);
    let (mut object, mut code) = (object, code);
    // SAFETY: the user has passed the address as a function of this type, for this class of objects.
    unsafe {
        let function = std::mem::transmute::<*const c_void, Function>(function);
        function(&raw mut object, &raw mut code);
    }
}

/// How long a process that ends because of another process's error lets that process and the launcher report first.
const SECOND_DEATH: Duration = Duration::from_millis(500);

/// Ends the job: prints the error, tells the process manager, and exits. A secondary error waits, so that it is not
/// reported before the cause.
pub fn die(runtime: &Runtime, text: &str, code: c_int, is_secondhand: bool) -> ! {
    if forks::is_child() {
        end_child(text);
    }
    let (rank, pmi) = {
        let mut state = runtime.visit();
        (state.world.as_ref().map(|world| world.rank), state.world.as_mut().and_then(|world| world.pmi.take()))
    };
    if pmi.is_some() && is_secondhand {
        // The launcher will receive the other process's error, and then ends this process too.
        std::thread::sleep(SECOND_DEATH);
    }
    let job = pmi.as_ref().and_then(|pmi| number_of(pmi.kvsname()));
    let job = job.map(|job| format!(" of job {job}")).unwrap_or_default();
    let place = rank.map(|rank| format!(" on rank {rank}{job}")).unwrap_or_default();
    // If even that fails, there is no way left to report it.
    let _ = std::io::stderr().write_all(format!("MPI error{place}: {text}\n").as_bytes());
    if pmi.is_some() {
        let_be_read();
    }
    if let Some(pmi) = pmi {
        let _ = pmi.abort(code, text);
    }
    leave(code)
}

/// Ends a forked child alone. Its copy of the state may be locked by a thread that it does not have.
#[cold]
pub(super) fn end_child(what: &str) -> ! {
    let _ = std::io::stderr().write_all(format!("MPI error: {what}: {}\n", forks::TEXT).as_bytes());
    leave(MPI_ERR_OTHER)
}

/// Waits briefly until stderr has been read, if it is a pipe: Hydra stops reading after an abort request.
#[expect(unsafe_code, reason = "asks how many bytes are in a pipe")]
fn let_be_read() {
    const LOOKS: usize = 100;
    for _ in 0..LOOKS {
        let mut unread: c_int = 0;
        // SAFETY: the kernel writes one int there, or fails.
        let asked = unsafe { libc::ioctl(libc::STDERR_FILENO, libc::FIONREAD, &raw mut unread) };
        if asked != 0 || unread == 0 {
            break;
        }
        std::thread::sleep(Duration::from_millis(1));
    }
}

/// Ends this process with an exit code, at once: handlers of `exit` could call the library again.
#[expect(unsafe_code, reason = "_exit is a C function")]
fn leave(code: c_int) -> ! {
    // SAFETY: ends the process; never returns.
    unsafe { libc::_exit(if code & 0xff == 0 { 1 } else { code & 0xff }) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::abi::constants::MPI_ERR_INTERN;

    #[test]
    fn a_panic_becomes_an_error_that_says_what_it_was() {
        let error = caught(|| panic!("index {} of {}", 7, 4)).unwrap_err();
        assert_eq!(error.class, MPI_ERR_INTERN);
        assert!(error.text.ends_with(": index 7 of 4"), "{error}");
        assert_eq!(caught(|| Ok(())), Ok(()));
    }
}
