//! The users of the library: the world model, from `MPI_Init` to `MPI_Finalize`, and sessions (MPI 5.0 §11.2, §11.3).
//!
//! The first user opens the library ([`start`]), the last one closes it. After that it can be opened again, if the process
//! manager accepts the process again.

use std::sync::atomic::Ordering;

use super::background::Background;
use super::{Guard, Mode, Phase, Runtime, State, forks, serving, spawn, start};
use crate::abi::SessionHandle;
use crate::abi::constants::{MPI_THREAD_FUNNELED, MPI_THREAD_MULTIPLE, MPI_THREAD_SERIALIZED, MPI_THREAD_SINGLE};
use crate::error::{MpiError, MpiResult};
use crate::object::buffered::Owner;
use crate::object::session::Session;

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
    let alone = is_alone(&state);
    runtime.lock.set_alone(alone);
    state.engine.set_single(alone);
    if is_first {
        start::reach_out(&mut state, true)?;
    }
    spawn::join_parent(&mut state)?;
    begin_progress(&mut state)?;
    Ok(level)
}

/// `MPI_Finalize`: waits until the peers have received everything that was sent to them.
pub fn finalize(runtime: &Runtime) -> MpiResult {
    let mut state = runtime.visit();
    if Mode::now() == Mode::Checked {
        state.report_leaks();
    }
    deliver_all(&mut state)?;
    (state.comms.world, state.comms.own) = (None, None);
    runtime.phase.store(Phase::After as u8, Ordering::Release);
    leave(runtime, &mut state)
}

/// `MPI_Session_init`.
pub fn begin_session(runtime: &Runtime, session: Session) -> MpiResult<SessionHandle> {
    let mut state = runtime.visit();
    if enter(&mut state)? {
        // MPI_Session_init is local: it waits for no other rank.
        start::reach_out(&mut state, false)?;
    }
    let errhandler = session.errhandler;
    let handle = state.sessions.add(session)?;
    state.errhandlers.used(errhandler);
    let alone = is_alone(&state);
    runtime.lock.set_alone(alone);
    state.engine.set_single(alone);
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
    deliver_all(&mut state)?;
    let ended = state.sessions.take(handle)?;
    state.errhandlers.unused(ended.errhandler);
    leave(runtime, &mut state)
}

/// Waits until everything has been sent. Fails if messages were lost whose sends have succeeded, because the messages were stored;
/// a later call does not fail because of the same messages. Processes of other jobs may end at any time: losing them is not an error
/// of this job.
fn deliver_all(state: &mut Guard<'_>) -> MpiResult {
    state.wait(|state| state.engine.quiet().then_some(()));
    let State { engine, comms, .. } = &mut **state;
    engine.take_undelivered(|peer| !comms.names.is_foreign(peer)).map_or(Ok(()), Err)
}

/// Opens the library, unless it is open; returns whether it was not.
fn enter(state: &mut State) -> MpiResult<bool> {
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

/// Closes the library if it has no user any more.
fn leave(runtime: &Runtime, state: &mut Guard<'_>) -> MpiResult {
    let is_used = state.comms.world.is_some() || state.sessions.iter().next().is_some();
    if let Some(background) = state.background.take_if(|_| !is_used) {
        background.stop();
        state.wake_others();
        state.unlocked(|| background.join());
    }
    let closed = if is_used { Ok(()) } else { start::close(state) };
    runtime.lock.set_alone(is_used && is_alone(state));
    if !is_used {
        Mode::Closed.set();
    }
    closed
}

/// Whether only one thread makes calls, as the only user has promised. With several users, each promises only for its
/// own threads.
fn is_alone(state: &State) -> bool {
    let of_world = state.comms.world.as_ref().and(state.world.as_ref()).map(|world| world.thread_level);
    let mut levels = of_world.into_iter().chain(state.sessions.iter().map(|session| session.thread_level));
    matches!((levels.next(), levels.next()), (Some(level), None) if level != MPI_THREAD_MULTIPLE)
}
