//! The one global of the library: its state, the lock around it, and the entry for every exported function.
//!
//! Functions enter through [`call`]: it checks that the library is initialized, runs the function, and passes an error to the
//! error handler ([`errors`]). A function gets the [`Runtime`] and locks the [`State`] while it works on it. User functions
//! (operations, attribute copies, error handlers) are called with the state unlocked, because they may call the library again.
//! [`wait`] is how a function waits; [`serving`] makes progress while the program computes, if the user wants it; [`life`] keeps track of
//! the library's users, for which [`start`] opens and closes it. [`connect`] connects groups that were started separately;
//! [`mod@spawn`] starts them. [`check`] is where a process that checks its program leaves the usual way.

#![expect(unsafe_code, reason = "the one global state and its guard")]

mod background;
mod check;
mod connect;
mod disconnect;
mod errors;
mod farewells;
mod foreign;
mod forks;
mod join;
mod life;
mod lock;
mod lookups;
mod manager;
mod ports;
mod psets;
mod resting;
mod serving;
mod spawn;
mod spread;
mod start;
mod state;
mod wait;
mod waiting;

use std::cell::UnsafeCell;
use std::ffi::c_int;
use std::ops::{Deref, DerefMut};
use std::sync::atomic::{AtomicU8, Ordering};

pub use connect::{Role, connect_groups};
pub use errors::{Scope, die, last_met, of_no_object, raise, unsupported};
pub use join::join;
pub use life::{begin_session, end_session, finalize, init};
pub use manager::manager;
pub use ports::{Ports, port_name};
pub use resting::Moment;
pub use spawn::{Offspring, Program, spawn};
pub use start::{FIRST_CONTEXT, GROUPS_CONTEXT};
pub use state::{Kept, State, World};

use crate::abi::constants::MPI_SUCCESS;
use crate::error::MpiResult;
use lock::Lock;

/// The library in this process.
pub struct Runtime {
    /// How calls enter: a [`Mode`].
    mode: AtomicU8,
    /// The phase of the world model.
    phase: AtomicU8,
    lock: Lock,
    state: UnsafeCell<Option<Box<State>>>,
}

// SAFETY: the state is only reached through `lock`, whose guard one thread holds at a time: by a mutex where there may
// be several, by the user's promise (a thread level below MPI_THREAD_MULTIPLE) otherwise.
unsafe impl Sync for Runtime {}

static RUNTIME: Runtime = Runtime {
    mode: AtomicU8::new(Mode::Closed as u8),
    phase: AtomicU8::new(Phase::Before as u8),
    lock: Lock::new(),
    state: UnsafeCell::new(None),
};

/// How calls enter.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u8)]
enum Mode {
    /// They do not: the library has no user, neither the world model nor a session.
    Closed = 0,
    /// As usual.
    Open = 1,
    /// With the checks of `RSD_MPI_CHECK`: see [`check`].
    Checked = 2,
}

impl Mode {
    #[inline(always)]
    fn is_open() -> bool {
        RUNTIME.mode.load(Ordering::Relaxed) == Self::Open as u8
    }

    fn now() -> Self {
        match RUNTIME.mode.load(Ordering::Relaxed) {
            0 => Self::Closed,
            1 => Self::Open,
            _ => Self::Checked,
        }
    }

    fn set(self) {
        RUNTIME.mode.store(self as u8, Ordering::Release);
    }
}

/// The phases of the world model (MPI 5.0 §11.2).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u8)]
pub enum Phase {
    /// `MPI_Init` has not been called.
    Before = 0,
    /// Between `MPI_Init` and `MPI_Finalize`.
    Running = 1,
    /// `MPI_Finalize` has been called.
    After = 2,
}

/// The entry for functions that need an initialized library; `checked` is the body in a process that checks.
#[inline(always)]
pub fn call(
    name: &'static str,
    scope: Scope,
    body: impl FnOnce(&'static Runtime) -> MpiResult,
    checked: impl FnMut(&'static Runtime) -> MpiResult,
) -> c_int {
    if !Mode::is_open() {
        // Moved only here, so that the arguments stay in registers otherwise.
        let mut checked = checked;
        return unusual(name, scope, &mut checked);
    }
    match errors::caught(|| body(&RUNTIME)) {
        Ok(()) => MPI_SUCCESS,
        Err(error) => errors::fail(&RUNTIME, name, scope, error),
    }
}

/// The library is not open, or checks.
#[cold]
#[inline(never)]
fn unusual(name: &'static str, scope: Scope, checked: &mut dyn FnMut(&'static Runtime) -> MpiResult) -> c_int {
    match Mode::now() {
        Mode::Checked => check::around(name, scope, false, checked),
        Mode::Closed | Mode::Open => errors::outside(&RUNTIME, name),
    }
}

/// The entry for functions that may be called at any time.
#[inline(always)]
pub fn call_always(
    name: &'static str,
    scope: Scope,
    body: impl FnOnce(&'static Runtime) -> MpiResult,
    checked: impl FnMut(&'static Runtime) -> MpiResult,
) -> c_int {
    if Mode::now() == Mode::Checked {
        let mut checked = checked;
        return check::around(name, scope, true, &mut checked);
    }
    match errors::caught(|| body(&RUNTIME)) {
        Ok(()) => MPI_SUCCESS,
        Err(error) => errors::fail(&RUNTIME, name, scope, error),
    }
}

impl Runtime {
    /// The state, for this thread alone until the guard is dropped. Do not call it while this thread holds a guard.
    #[inline(always)]
    pub fn lock(&self) -> Guard<'_> {
        self.lock.acquire();
        // SAFETY: the lock is held.
        let state = unsafe { &mut *self.state.get() };
        if state.is_none() {
            make(state);
        }
        Guard { runtime: self, visits: false }
    }

    /// As [`Runtime::lock`], for functions that any thread may call at any time, whatever the thread level is (MPI 5.0 §11.6.1).
    #[cold]
    pub fn visit(&self) -> Guard<'_> {
        if forks::is_child() {
            errors::end_child("a call of MPI");
        }
        self.lock.visit();
        let mut guard = self.lock();
        guard.visits = true;
        guard
    }

    /// The phase of the world model.
    pub fn phase(&self) -> Phase {
        match self.phase.load(Ordering::Acquire) {
            0 => Phase::Before,
            1 => Phase::Running,
            _ => Phase::After,
        }
    }
}

/// Makes the state at the first call.
#[cold]
#[inline(never)]
fn make(state: &mut Option<Box<State>>) {
    *state = Some(Box::default());
}

/// The state, locked.
pub struct Guard<'a> {
    runtime: &'a Runtime,
    /// Whether this is a visit: see [`Runtime::visit`].
    visits: bool,
}

impl Guard<'_> {
    /// The library that owns this state.
    pub fn runtime(&self) -> &'static Runtime {
        &RUNTIME
    }
}

impl Deref for Guard<'_> {
    type Target = State;

    #[inline]
    fn deref(&self) -> &State {
        // SAFETY: the lock is held as long as the guard lives, and `lock` has made the state.
        unsafe { (*self.runtime.state.get()).as_deref().unwrap_unchecked() }
    }
}

impl DerefMut for Guard<'_> {
    #[inline]
    fn deref_mut(&mut self) -> &mut State {
        // SAFETY: as for `deref`; the guard is borrowed for as long as the reference lives.
        unsafe { (*self.runtime.state.get()).as_deref_mut().unwrap_unchecked() }
    }
}

impl Drop for Guard<'_> {
    #[inline]
    fn drop(&mut self) {
        match self.runtime.lock.is_alone() {
            true => self.runtime.lock.release(),
            false => self.release(),
        }
        if self.visits {
            self.runtime.lock.leave();
        }
    }
}
