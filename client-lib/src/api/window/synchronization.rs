//! Synchronization of windows (MPI 5.0 §12.5): fences, post, start, complete and wait, locks, flushes.

use std::ffi::c_int;

use super::{barrier, check_assert, members, sync, target};
use crate::abi::constants as c;
use crate::abi::{CommHandle, GroupHandle, WinHandle};
use crate::api::args::{check_place, put};
use crate::error::{MpiError, MpiResult};
use crate::object::window::{Access, Exposure, Kind, Locked, Window};
use crate::runtime::{Guard, Moment, Runtime, State};

// --- fences ---

/// `MPI_Win_fence`.
pub unsafe fn win_fence(rt: &Runtime, assert: c_int, win: WinHandle) -> MpiResult {
    const KNOWN: c_int = c::MPI_MODE_NOSTORE | c::MPI_MODE_NOPUT | c::MPI_MODE_NOPRECEDE | c::MPI_MODE_NOSUCCEED;
    check_assert(assert, KNOWN)?;
    let mut guard = rt.lock();
    let State { windows, engine, .. } = &mut *guard;
    let window = windows.get_mut(win)?;
    if !window.access.is_over() || window.exposure.is_some() {
        return Err(sync("an epoch of another kind is not over"));
    }
    window.ask_touched(engine);
    let comm = window.comm;
    let complete = settle(&mut guard, win, None);
    let met = meet(&mut guard, win, comm);
    guard.windows.get_mut(win)?.access = if assert & c::MPI_MODE_NOSUCCEED != 0 { Access::None } else { Access::Fence };
    complete.and(met)
}

/// Waits until all members are here.
fn meet(guard: &mut Guard<'_>, win: WinHandle, comm: CommHandle) -> MpiResult {
    let near = &mut guard.windows.get_mut(win)?.near;
    if !near.meets() {
        return barrier(guard, comm);
    }
    let number = near.arrive();
    await_near(guard, win, |window| window.near.has_met(number))
}

/// Waits for something that other members of the node do to the window's shared memory.
fn await_near(guard: &mut Guard<'_>, win: WinHandle, mut done: impl FnMut(&mut Window) -> bool) -> MpiResult {
    for _ in 0..if guard.spins() { POLLS } else { 1 } {
        if done(guard.windows.get_mut(win)?) {
            return Ok(());
        }
        std::hint::spin_loop();
    }
    guard.wait_as(|state, moment| {
        let window = match state.windows.get_mut(win) {
            Ok(window) => window,
            Err(error) => return Some(Err(error)),
        };
        match moment {
            Moment::Awake => {
                window.near.announce_sleep(false);
                return None;
            }
            Moment::Sleep => window.near.announce_sleep(true),
            Moment::Look => {}
        }
        match done(window) {
            true => Some(Ok(())),
            false => window.loss().err().map(Err),
        }
    })
}

/// How often a process with a core of its own looks whether the others have done something before it checks anything else.
const POLLS: usize = 200;

// --- post, start, complete, wait ---

/// `MPI_Win_post`.
pub unsafe fn win_post(rt: &Runtime, group: GroupHandle, assert: c_int, win: WinHandle) -> MpiResult {
    check_assert(assert, c::MPI_MODE_NOCHECK | c::MPI_MODE_NOSTORE | c::MPI_MODE_NOPUT)?;
    let mut state = rt.lock();
    let origins = members(&state, group, win)?;
    let State { windows, engine, .. } = &mut *state;
    let window = windows.get_mut(win)?;
    if window.exposure.is_some() {
        return Err(sync("the window is posted already"));
    }
    if assert & c::MPI_MODE_NOCHECK == 0 {
        origins.iter().for_each(|origin| window.post(engine, *origin));
    }
    window.exposure = Some(Exposure { origins });
    Ok(())
}

/// `MPI_Win_start`: waits for the matching `MPI_Win_post`.
pub unsafe fn win_start(rt: &Runtime, group: GroupHandle, assert: c_int, win: WinHandle) -> MpiResult {
    check_assert(assert, c::MPI_MODE_NOCHECK)?;
    let mut guard = rt.lock();
    let targets = members(&guard, group, win)?;
    let State { windows, engine, .. } = &mut *guard;
    let window = windows.get_mut(win)?;
    if !window.access.is_over() {
        return Err(sync("the access epoch before is not over"));
    }
    if assert & c::MPI_MODE_NOCHECK == 0 {
        targets.iter().for_each(|target| window.await_post(engine, *target));
    }
    window.access = Access::Started(targets.clone());
    settle(&mut guard, win, None)?;
    if assert & c::MPI_MODE_NOCHECK != 0 || !guard.windows.get(win)?.near.waits() {
        return Ok(());
    }
    await_near(&mut guard, win, |window| window.near.take_posts(&targets))
}

/// `MPI_Win_complete`.
pub unsafe fn win_complete(rt: &Runtime, win: WinHandle) -> MpiResult {
    let mut guard = rt.lock();
    let State { windows, engine, .. } = &mut *guard;
    let window = windows.get_mut(win)?;
    let targets = match std::mem::replace(&mut window.access, Access::None) {
        Access::Started(targets) => targets,
        other => {
            window.access = other;
            return Err(sync("MPI_Win_start was not called"));
        }
    };
    targets.iter().for_each(|target| window.complete(engine, *target));
    window.forget_touched();
    settle(&mut guard, win, None)
}

/// `MPI_Win_wait`.
pub unsafe fn win_wait(rt: &Runtime, win: WinHandle) -> MpiResult {
    let mut guard = rt.lock();
    exposed(&guard, win)?;
    await_near(&mut guard, win, is_completed)?;
    guard.windows.get_mut(win)?.take_error(None)
}

/// `MPI_Win_test`.
pub unsafe fn win_test(rt: &Runtime, win: WinHandle, flag: *mut c_int) -> MpiResult {
    check_place(flag)?;
    let mut guard = rt.lock();
    exposed(&guard, win)?;
    let mut over = is_completed(guard.windows.get_mut(win)?);
    if !over {
        guard.step();
        over = is_completed(guard.windows.get_mut(win)?);
    }
    // SAFETY: the caller's promise.
    unsafe { put(flag, c_int::from(over)) }
}

fn exposed(state: &State, win: WinHandle) -> MpiResult {
    match state.windows.get(win)?.exposure {
        Some(_) => Ok(()),
        None => Err(sync("MPI_Win_post was not called")),
    }
}

/// Whether all origins have called `MPI_Win_complete`; then the exposure is over.
fn is_completed(window: &mut Window) -> bool {
    let Some(exposure) = window.exposure.take() else { return true };
    let over = window.take_completed(&exposure.origins);
    if !over {
        window.exposure = Some(exposure);
    }
    over
}

// --- locks ---

/// `MPI_Win_lock`.
pub unsafe fn win_lock(rt: &Runtime, lock_type: c_int, rank: c_int, assert: c_int, win: WinHandle) -> MpiResult {
    let mut guard = rt.lock();
    let State { windows, engine, .. } = &mut *guard;
    let window = windows.get_mut(win)?;
    let kind = match lock_type {
        c::MPI_LOCK_EXCLUSIVE => Kind::LockExclusive,
        c::MPI_LOCK_SHARED => Kind::LockShared,
        _ => return Err(MpiError::new(c::MPI_ERR_LOCKTYPE, format!("invalid lock type {lock_type}"))),
    };
    check_assert(assert, c::MPI_MODE_NOCHECK)?;
    let Some(target) = target(window, rank)? else { return Ok(()) };
    let mut locked = match std::mem::replace(&mut window.access, Access::None) {
        Access::None | Access::Fence => Locked::default(),
        Access::Locked(locked) => locked,
        other => {
            window.access = other;
            return Err(sync("the access epoch before is not over"));
        }
    };
    let is_new = !locked.contains(target);
    let checks = assert & c::MPI_MODE_NOCHECK == 0;
    if is_new {
        locked.insert(target, checks);
    }
    window.access = Access::Locked(locked);
    if !is_new {
        return Err(sync(format!("rank {target} is locked already")));
    }
    if !checks {
        return Ok(());
    }
    if let Some(place) = window.near.lock_of(target) {
        let taken = take_lock(&mut guard, win, place, kind == Kind::LockExclusive);
        if taken.is_err() {
            forget_lock(guard.windows.get_mut(win)?, target);
        }
        return taken;
    }
    window.tell(engine, target, kind);
    // Memory that this process uses by itself must be its own from now on. Otherwise the target holds back the operations.
    if window.near.memory(target).is_some() || target == window.rank {
        window.ask(engine, target, Kind::Flush);
        return settle(&mut guard, win, Some(target));
    }
    Ok(())
}

/// Waits for a lock on the board.
fn take_lock(guard: &mut Guard<'_>, win: WinHandle, place: u32, alone: bool) -> MpiResult {
    let near = &guard.windows.get(win)?.near;
    if near.try_lock(place, alone) {
        return Ok(());
    }
    if alone {
        near.want(place, true);
    }
    let taken = await_near(guard, win, |window| window.near.try_lock(place, alone));
    if alone {
        guard.windows.get(win)?.near.want(place, false);
    }
    taken
}

/// Removes a lock from the epoch; returns whether it was really taken, or `None` if there is none.
fn forget_lock(window: &mut Window, target: u32) -> Option<bool> {
    let Access::Locked(locked) = &mut window.access else { return None };
    let taken = locked.remove(target)?;
    if locked.is_empty() {
        window.access = Access::None;
    }
    Some(taken)
}

/// `MPI_Win_unlock`.
pub unsafe fn win_unlock(rt: &Runtime, rank: c_int, win: WinHandle) -> MpiResult {
    let mut guard = rt.lock();
    let State { windows, engine, .. } = &mut *guard;
    let window = windows.get_mut(win)?;
    let Some(target) = target(window, rank)? else { return Ok(()) };
    let Some(taken) = forget_lock(window, target) else {
        return Err(sync(format!("rank {target} is not locked")));
    };
    match window.near.lock_of(target) {
        None => {
            window.ask(engine, target, if taken { Kind::Unlock } else { Kind::Flush });
            settle(&mut guard, win, Some(target))
        }
        Some(place) => {
            window.ask_if_touched(engine, target);
            let complete = settle(&mut guard, win, Some(target));
            if taken {
                guard.windows.get(win)?.near.unlock(place);
            }
            complete
        }
    }
}

/// `MPI_Win_lock_all`. Locks by message are taken with the first operation on each member.
pub unsafe fn win_lock_all(rt: &Runtime, assert: c_int, win: WinHandle) -> MpiResult {
    check_assert(assert, c::MPI_MODE_NOCHECK)?;
    let mut guard = rt.lock();
    let window = guard.windows.get_mut(win)?;
    if !window.access.is_over() {
        return Err(sync("the access epoch before is not over"));
    }
    let checks = assert & c::MPI_MODE_NOCHECK == 0;
    if !checks {
        window.access = Access::LockedAll { taken: vec![false; window.size() as usize], checks };
        return Ok(());
    }
    take_all(&mut guard, win)?;
    let State { windows, engine, .. } = &mut *guard;
    let window = windows.get_mut(win)?;
    let taken = (0..window.size()).map(|target| window.near.lock_of(target).is_some()).collect();
    window.access = Access::LockedAll { taken, checks };
    for target in 0..window.size() {
        let near = &window.near;
        let is_used_here = near.memory(target).is_some() || target == window.rank;
        if is_used_here && near.lock_of(target).is_none() {
            window.enter(engine, target)?;
            window.ask(engine, target, Kind::Flush);
        }
    }
    settle(&mut guard, win, None)
}

/// Takes the locks on the board of all members. A process that has to wait for one holds no other meanwhile, so it stops no other process.
fn take_all(guard: &mut Guard<'_>, win: WinHandle) -> MpiResult {
    let window = guard.windows.get(win)?;
    let places: Vec<u32> = (0..window.size()).filter_map(|target| window.near.lock_of(target)).collect();
    let mut held = None;
    loop {
        let near = &guard.windows.get(win)?.near;
        let missing = places.iter().position(|place| held != Some(*place) && !near.try_lock(*place, false));
        let Some(missing) = missing else { return Ok(()) };
        let taken = places[..missing].iter().filter(|place| held != Some(**place));
        taken.chain(held.as_ref()).for_each(|place| near.unlock(*place));
        take_lock(guard, win, places[missing], false)?;
        held = Some(places[missing]);
    }
}

/// `MPI_Win_unlock_all`.
pub unsafe fn win_unlock_all(rt: &Runtime, win: WinHandle) -> MpiResult {
    let mut guard = rt.lock();
    let State { windows, engine, .. } = &mut *guard;
    let window = windows.get_mut(win)?;
    let taken = match std::mem::replace(&mut window.access, Access::None) {
        Access::LockedAll { taken, .. } => taken,
        other => {
            window.access = other;
            return Err(sync("MPI_Win_lock_all was not called"));
        }
    };
    for target in (0..window.size()).filter(|target| taken[*target as usize]) {
        if window.near.lock_of(target).is_none() {
            window.ask(engine, target, Kind::Unlock);
        }
    }
    window.ask_touched(engine);
    let complete = settle(&mut guard, win, None);
    let near = &guard.windows.get(win)?.near;
    let places = (0..).zip(&taken).filter(|(_, taken)| **taken).filter_map(|(target, _)| near.lock_of(target));
    places.for_each(|place| near.unlock(place));
    complete
}

// --- flushes ---

/// `MPI_Win_flush`.
pub unsafe fn win_flush(rt: &Runtime, rank: c_int, win: WinHandle) -> MpiResult {
    flush(rt, Some(rank), win, true)
}

/// `MPI_Win_flush_all`.
pub unsafe fn win_flush_all(rt: &Runtime, win: WinHandle) -> MpiResult {
    flush(rt, None, win, true)
}

/// `MPI_Win_flush_local`.
pub unsafe fn win_flush_local(rt: &Runtime, rank: c_int, win: WinHandle) -> MpiResult {
    flush(rt, Some(rank), win, false)
}

/// `MPI_Win_flush_local_all`.
pub unsafe fn win_flush_local_all(rt: &Runtime, win: WinHandle) -> MpiResult {
    flush(rt, None, win, false)
}

fn flush(rt: &Runtime, rank: Option<c_int>, win: WinHandle, remotely: bool) -> MpiResult {
    let mut guard = rt.lock();
    let State { windows, engine, .. } = &mut *guard;
    let window = windows.get_mut(win)?;
    // The common case: all is done, and only has to be visible to all others.
    if rank.is_none_or(|rank| window.spot(rank as u32).is_some() && window.access.permits(rank as u32))
        && matches!(window.access, Access::Locked(_) | Access::LockedAll { .. })
        && window.is_idle()
        && (!remotely || window.has_sent_nothing())
        && !window.is_turn_of_others()
    {
        return Ok(());
    }
    let wanted = match rank {
        None => None,
        Some(rank) => match target(window, rank)? {
            Some(target) => Some(target),
            None => return Ok(()),
        },
    };
    let is_locked = match &window.access {
        Access::None | Access::Fence | Access::Started(_) => false,
        Access::LockedAll { .. } => true,
        Access::Locked(locked) => wanted.is_none_or(|target| locked.contains(target)),
    };
    if !is_locked {
        return Err(sync("not in an epoch of MPI_Win_lock or MPI_Win_lock_all"));
    }
    match wanted {
        _ if !remotely => {}
        Some(target) => window.ask_if_touched(engine, target),
        None => window.ask_touched(engine),
    }
    settle(&mut guard, win, wanted)
}

/// `MPI_Win_sync`: what others have written is visible, and what this process has written is for others.
pub unsafe fn win_sync(rt: &Runtime, win: WinHandle) -> MpiResult {
    let mut guard = rt.lock();
    guard.windows.get(win)?;
    std::sync::atomic::fence(std::sync::atomic::Ordering::SeqCst);
    // A process that polls its window's memory calls nothing else.
    guard.step();
    Ok(())
}

/// Waits until everything with a member, or with all, is complete; returns the first error. A program that calls nothing else makes
/// progress.
pub(super) fn settle(guard: &mut Guard<'_>, win: WinHandle, target: Option<u32>) -> MpiResult {
    let window = guard.windows.get_mut(win)?;
    if window.is_idle() && !window.is_turn_of_others() {
        return Ok(());
    }
    guard.step();
    guard.wait(|State { windows, engine, .. }| match windows.get_mut(win) {
        Ok(window) => window.is_settled(engine, target).then_some(()),
        Err(_) => Some(()),
    });
    guard.windows.get_mut(win)?.take_error(target)
}
