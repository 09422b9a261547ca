//! The users of the library: the world model, from `MPI_Init` to `MPI_Finalize`, and sessions (MPI 5.0 §11.2, §11.3).
//!
//! The first user opens the library ([`start`]), the last one closes it. After that it can be opened again, if the process
//! manager accepts the process again.

use std::collections::HashSet;
use std::sync::atomic::{AtomicU32, Ordering};

use super::background::Background;
use super::lock::{futex_wait, futex_wake};
use super::{Guard, Mode, Phase, Runtime, State, forks, serving, spawn, start};
use crate::abi::SessionHandle;
use crate::abi::constants::{MPI_THREAD_FUNNELED, MPI_THREAD_MULTIPLE, MPI_THREAD_SERIALIZED, MPI_THREAD_SINGLE};
use crate::error::{MpiError, MpiResult};
use crate::object::buffered::Owner;
use crate::object::comm::{Comms, Communicator};
use crate::object::partitioned;
use crate::object::session::Session;

/// Counts how often the library was closed, for threads that wait for it.
static CLOSED: AtomicU32 = AtomicU32::new(0);

/// `MPI_Init_thread`: returns the provided thread level, which is the required one.
pub fn init(runtime: &Runtime, required: i32) -> MpiResult<i32> {
    let level = match required {
        MPI_THREAD_SINGLE | MPI_THREAD_FUNNELED | MPI_THREAD_SERIALIZED | MPI_THREAD_MULTIPLE => required,
        _ => return Err(MpiError::arg(format!("invalid thread level {required}"))),
    };
    let mut state = runtime.visit();
    match runtime.phase() {
        Phase::Before => {}
        Phase::Running => return Err(MpiError::other("MPI is already initialized")),
        Phase::After => {
            let text = "MPI has been finalized and cannot be initialized again: use a session (MPI_Session_init)";
            return Err(MpiError::other(text));
        }
    }
    let is_first = enter(&mut state)?;
    start::add_predefined(&mut state);
    if let Some(world) = &mut state.world {
        (world.thread_level, world.main_thread) = (level, std::thread::current().id());
    }
    runtime.phase.store(Phase::Running as u8, Ordering::Release);
    declare_threads(runtime, &mut state);
    if is_first {
        start::reach_out(&mut state, true)?;
    }
    spawn::join_parent(&mut state)?;
    begin_progress(&mut state)?;
    Ok(level)
}

/// `MPI_Finalize`: waits until everything that was sent is on its way or received, except by sessions that are still open.
pub fn finalize(runtime: &Runtime) -> MpiResult {
    let mut state = runtime.visit();
    if Mode::now() == Mode::Checked {
        state.report_leaks();
    }
    let others = contexts_of(&state, |session| session.is_some());
    deliver_all(&mut state, &others)?;
    (state.comms.world, state.comms.own) = (None, None);
    runtime.phase.store(Phase::After as u8, Ordering::Release);
    leave(runtime, &mut state)
}

/// `MPI_Session_init`.
pub fn begin_session(runtime: &Runtime, session: Session) -> MpiResult<SessionHandle> {
    let mut state = runtime.visit();
    let is_first = enter(&mut state)?;
    let errhandler = session.errhandler;
    // Before any wait: other threads that leave meanwhile must see that the library is used.
    let handle = state.sessions.add(session)?;
    state.errhandlers.used(errhandler);
    if is_first {
        // MPI_Session_init is local: it waits for no other rank.
        start::reach_out(&mut state, false)?;
    }
    declare_threads(runtime, &mut state);
    begin_progress(&mut state)?;
    Ok(handle)
}

/// `MPI_Session_finalize`.
pub fn end_session(runtime: &Runtime, handle: SessionHandle) -> MpiResult {
    let mut state = runtime.visit();
    state.sessions.get(handle)?;
    let owner = Owner::Session(handle);
    // An attached buffer is released after its messages have been sent (MPI 5.0 §3.6).
    state.wait(|State { buffered, engine, .. }| (!buffered.is_busy(owner, engine)).then_some(()));
    let _ = state.buffered.detach(owner);
    let others = contexts_of(&state, |session| session != Some(handle));
    deliver_all(&mut state, &others).map_err(|error| error.on_session(handle))?;
    let ended = state.sessions.take(handle)?;
    state.errhandlers.unused(ended.errhandler);
    leave(runtime, &mut state)
}

/// The contexts of the communicators that these users of the library have made, of which `None` is the world model.
fn contexts_of(state: &State, users: impl Fn(Option<SessionHandle>) -> bool) -> HashSet<u32> {
    let Comms { world, own, made, .. } = &state.comms;
    let all = world.iter().chain(own).chain(made.iter().map(|(_, communicator)| communicator));
    let theirs = all.filter(|communicator| users(communicator.session));
    let contexts = |of: &Communicator| [of.context, of.context + 1, partitioned::context_of(of.context + 1)];
    theirs.flat_map(contexts).collect()
}

/// Waits until everything has been sent, except messages that another user of the library has sent and whose receives may come later:
/// those in the contexts of `others`. Fails if messages were lost whose sends have succeeded, because the messages were stored;
/// a later call does not fail because of the same messages. Processes of other jobs may end at any time: losing them is not an error
/// of this job.
fn deliver_all(state: &mut Guard<'_>, others: &HashSet<u32>) -> MpiResult {
    state.wait(|state| state.engine.quiet_but(|context| others.contains(&context)).then_some(()));
    let State { engine, comms, .. } = &mut **state;
    engine.take_undelivered(|peer| !comms.names.is_foreign(peer)).map_or(Ok(()), Err)
}

/// Opens the library, unless it is open; returns whether it was not. Waits first while another thread closes it.
fn enter(state: &mut Guard<'_>) -> MpiResult<bool> {
    while state.closes {
        let seen = CLOSED.load(Ordering::Relaxed);
        state.unlocked(|| futex_wait(&CLOSED, seen, None));
    }
    let is_first = state.world.is_none();
    if is_first {
        forks::watch();
        start::open(state)?;
        let checks = state.world.as_ref().is_some_and(|world| world.settings.check);
        if checks { Mode::Checked.set() } else { Mode::Open.set() }
    }
    Ok(is_first)
}

/// Starts the thread that makes progress, if the user wants it and it does not run.
fn begin_progress(state: &mut State) -> MpiResult {
    if state.background.is_none() && state.world.as_ref().is_some_and(|world| world.settings.progresses) {
        state.background = Some(Background::start(serving::run)?);
    }
    Ok(())
}

/// Tells the lock and the engine which threads there are: whether only one makes calls, and whether another one makes progress.
fn declare_threads(runtime: &Runtime, state: &mut State) {
    let alone = is_alone(state);
    runtime.lock.set_alone(alone);
    state.engine.set_single(alone);
    let progresses = state.world.as_ref().is_some_and(|world| world.settings.progresses);
    state.engine.set_deferring(alone && !progresses);
}

/// Closes the library if it has no user any more.
fn leave(runtime: &Runtime, state: &mut Guard<'_>) -> MpiResult {
    if !is_used(state)
        && let Some(background) = state.background.take()
    {
        background.stop();
        state.wake_others();
        // Meanwhile another thread may begin a session, and even end it and close the library.
        state.unlocked(|| background.join());
    }
    let closed = if is_used(state) || state.closes || state.world.is_none() { Ok(()) } else { close(state) };
    runtime.lock.set_alone(is_alone(state));
    closed
}

/// Closes the library; threads that want to open it again wait until this is done.
fn close(state: &mut Guard<'_>) -> MpiResult {
    state.closes = true;
    let closed = start::close(state);
    state.closes = false;
    Mode::Closed.set();
    CLOSED.fetch_add(1, Ordering::Relaxed);
    futex_wake(&CLOSED, i32::MAX);
    closed
}

fn is_used(state: &State) -> bool {
    state.comms.world.is_some() || state.sessions.iter().next().is_some()
}

/// Whether only one thread makes calls, as the only user has promised. With several users, each promises only for its
/// own threads.
fn is_alone(state: &State) -> bool {
    let of_world = state.comms.world.as_ref().and(state.world.as_ref()).map(|world| world.thread_level);
    let mut levels = of_world.into_iter().chain(state.sessions.iter().map(|session| session.thread_level));
    matches!((levels.next(), levels.next()), (Some(level), None) if level != MPI_THREAD_MULTIPLE)
}
