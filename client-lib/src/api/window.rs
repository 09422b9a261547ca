//! Windows: creation and information (MPI 5.0 §12.2); [`synchronization`] (§12.5).

#![expect(unsafe_code, reason = "the C boundary")]
#![expect(clippy::missing_safety_doc, reason = "callers guarantee what the standard requires of them")]

mod set_up;
mod synchronization;

use std::ffi::{c_char, c_int, c_void};
use std::sync::Arc;

use super::args::{check_place, put, put_text, text};
use super::attr::{self, Object};
use super::comm::{finish, retire, sweep};
use super::ints::IntsOut;
use crate::abi::constants as c;
use crate::abi::{CommHandle, GroupHandle, InfoHandle, WinHandle};
use crate::device;
use crate::error::{MpiError, MpiResult};
use crate::object::agree::{Exchange, Exchanged};
use crate::object::creation::Creation;
use crate::object::errhandler::Errhandler;
use crate::object::info::Info;
use crate::object::window::{Made, Part, Place, Window};
use crate::runtime::{Guard, Runtime, State};
use set_up::Room;
use synchronization::settle;
pub use synchronization::{
    win_complete, win_fence, win_flush, win_flush_all, win_flush_local, win_flush_local_all, win_lock, win_lock_all,
    win_post, win_start, win_sync, win_test, win_unlock, win_unlock_all, win_wait,
};

// --- creation ---

/// The memory of a new window.
enum Memory {
    /// The user's.
    Given(usize),
    /// To be allocated.
    Allocated,
    /// To be allocated, shared by all members.
    Shared,
    /// None yet.
    Dynamic,
}

/// `MPI_Win_create`.
pub unsafe fn win_create(
    rt: &Runtime,
    base: *mut c_void,
    size: i64,
    disp_unit: i64,
    info: InfoHandle,
    comm: CommHandle,
    win: *mut WinHandle,
) -> MpiResult {
    check_place(win)?;
    let memory = match base.is_null() && size > 0 {
        true => Err(MpiError::new(c::MPI_ERR_BASE, format!("the base is null, for {size} bytes"))),
        false => must_be_on_host(base, size).map(|()| Memory::Given(base.expose_provenance())),
    };
    let made = create(&mut rt.lock(), memory, size, disp_unit, info, comm)?;
    // SAFETY: the caller's promise.
    unsafe { put(win, made) }
}

/// `MPI_Win_allocate`.
pub unsafe fn win_allocate(
    rt: &Runtime,
    size: i64,
    disp_unit: i64,
    info: InfoHandle,
    comm: CommHandle,
    baseptr: *mut c_void,
    win: *mut WinHandle,
) -> MpiResult {
    // SAFETY: the caller's promise.
    unsafe { allocate(rt, Memory::Allocated, (size, disp_unit), info, comm, baseptr, win) }
}

/// `MPI_Win_allocate_shared`: fails with class `MPI_ERR_RMA_SHARED` if the members are on several nodes.
pub unsafe fn win_allocate_shared(
    rt: &Runtime,
    size: i64,
    disp_unit: i64,
    info: InfoHandle,
    comm: CommHandle,
    baseptr: *mut c_void,
    win: *mut WinHandle,
) -> MpiResult {
    // SAFETY: the caller's promise.
    unsafe { allocate(rt, Memory::Shared, (size, disp_unit), info, comm, baseptr, win) }
}

unsafe fn allocate(
    rt: &Runtime,
    memory: Memory,
    (size, disp_unit): (i64, i64),
    info: InfoHandle,
    comm: CommHandle,
    baseptr: *mut c_void,
    win: *mut WinHandle,
) -> MpiResult {
    check_place(win)?;
    check_place(baseptr)?;
    let mut guard = rt.lock();
    let made = create(&mut guard, Ok(memory), size, disp_unit, info, comm)?;
    let base = std::ptr::with_exposed_provenance_mut::<c_void>(guard.windows.get(made)?.base());
    // SAFETY: the caller's promise: the address of an address.
    unsafe {
        put(baseptr.cast::<*mut c_void>(), base)?;
        put(win, made)
    }
}

/// `MPI_Win_create_dynamic`.
pub unsafe fn win_create_dynamic(rt: &Runtime, info: InfoHandle, comm: CommHandle, win: *mut WinHandle) -> MpiResult {
    check_place(win)?;
    let made = create(&mut rt.lock(), Ok(Memory::Dynamic), 0, 1, info, comm)?;
    // SAFETY: the caller's promise.
    unsafe { put(win, made) }
}

/// Makes a window with all members. One whose arguments are invalid takes part all the same, so that no member waits for it.
fn create(
    guard: &mut Guard<'_>,
    memory: MpiResult<Memory>,
    size: i64,
    disp_unit: i64,
    info: InfoHandle,
    comm: CommHandle,
) -> MpiResult<WinHandle> {
    let state = &mut **guard;
    sweep(state);
    let parent = state.comms.get(comm)?;
    parent.must_be_intra()?;
    parent.must_be_usable()?;
    let circle = state.circle_of_all(comm)?;
    let parent = state.comms.get(comm)?;
    let (parties, session) = (parent.parties.clone(), parent.session);
    let group = Arc::clone(parent.group());
    let rank = parent.rank;
    let mine = memory.and_then(|memory| {
        let bytes =
            usize::try_from(size).map_err(|_| MpiError::new(c::MPI_ERR_SIZE, format!("invalid size {size}")))?;
        if disp_unit <= 0 {
            return Err(MpiError::new(c::MPI_ERR_DISP, format!("invalid displacement unit {disp_unit}")));
        }
        let mut hints = defaults();
        if let Some(given) = state.infos.hints(info)? {
            take_hints(&mut hints, given, &HINTS);
        }
        Ok((memory, bytes, hints))
    });
    // The window's errors are its own: nothing is reported on the communicator.
    let creation = Creation::of_all(circle, parties, &mut state.comms.contexts, false);
    let own = finish(guard, creation, Errhandler::Return, session)?;
    let result = fill_in(guard, own, mine, disp_unit, (group, rank));
    if result.is_err() {
        free_comm(guard, own);
    }
    result
}

type Mine = (Memory, usize, Info);

/// The largest granularity of accumulates, in bytes, that single elements are.
const ELEMENT_MAX: u64 = 8;

fn fill_in(
    guard: &mut Guard<'_>,
    comm: CommHandle,
    mine: MpiResult<Mine>,
    disp_unit: i64,
    (group, rank): (Arc<crate::object::group::Group>, u32),
) -> MpiResult<WinHandle> {
    let block = match &mine {
        Ok((_, size, hints)) => {
            [1, *size as u64, disp_unit as u64, granularity(hints), u64::from(hints.get(APART) == Some(b"true"))]
        }
        Err(_) => [0; 5],
    };
    let blocks = share_blocks(guard, comm, &block)?;
    let (memory, _, mut hints) = mine?;
    if blocks.iter().any(|block| block[0] == 0) {
        return Err(MpiError::other("the arguments of another member are invalid").secondhand());
    }
    let by_elements = blocks.iter().all(|block| (1..=ELEMENT_MAX).contains(&block[3]));
    let mut parts: Box<[Part]> =
        blocks.iter().map(|block| Part { size: block[1] as usize, disp_unit: block[2] as i64, address: 0 }).collect();
    // Only if all want it: the place of a part depends on it.
    let apart = blocks.iter().all(|block| block[4] == 1);
    let (flavor, room) = match memory {
        Memory::Given(base) => (c::MPI_WIN_FLAVOR_CREATE, Room::Given(base)),
        Memory::Allocated => (c::MPI_WIN_FLAVOR_ALLOCATE, Room::Apart),
        Memory::Dynamic => (c::MPI_WIN_FLAVOR_DYNAMIC, Room::None),
        Memory::Shared => (c::MPI_WIN_FLAVOR_SHARED, if apart { Room::SharedApart } else { Room::Shared }),
    };
    let near = set_up::near(guard, comm, (&group, rank), &mut parts, room, by_elements);
    // One that cannot have its memory tells the others, which have theirs. And no member uses the window before all have it.
    let all_have_it = meet(guard, comm, near.is_ok());
    let near = near?;
    if !all_have_it? {
        return Err(MpiError::no_mem("another member cannot have its memory").secondhand());
    }
    report_kept(&mut hints, room);
    let base = parts[rank as usize].address;
    let context = guard.comms.get(comm)?.context;
    let made = Made { comm, context, group, rank, flavor, parts, base, near, hints };
    guard.windows.add(Window::new(made))
}

/// The granularity of accumulates that the user asks for, in bytes; 0 if none.
fn granularity(hints: &Info) -> u64 {
    let value = hints.get(b"mpi_accumulate_granularity").and_then(|value| std::str::from_utf8(value).ok());
    value.and_then(|value| value.parse().ok()).unwrap_or(0)
}

/// All members' words.
fn share_blocks<const N: usize>(guard: &mut Guard<'_>, comm: CommHandle, words: &[u64; N]) -> MpiResult<Vec<[u64; N]>> {
    let block: Vec<u8> = words.iter().flat_map(|word| word.to_ne_bytes()).collect();
    let mut exchange = Exchange::of_blocks(guard.comms.get_mut(comm)?.circle_of_all(), &block);
    let word = |bytes: &[u8]| bytes.first_chunk().map_or(0, |word| u64::from_ne_bytes(*word));
    match guard.wait(|state| exchange.poll(&mut state.engine))? {
        Exchanged::Blocks(bytes) => {
            Ok(bytes.chunks_exact(8 * N).map(|block| std::array::from_fn(|at| word(&block[8 * at..]))).collect())
        }
        Exchanged::Words(_) => Err(MpiError::intern("words instead of blocks")),
    }
}

fn barrier(guard: &mut Guard<'_>, comm: CommHandle) -> MpiResult {
    meet(guard, comm, true).map(drop)
}

/// A barrier; returns whether all members are well.
fn meet(guard: &mut Guard<'_>, comm: CommHandle, is_well: bool) -> MpiResult<bool> {
    let mut exchange = Exchange::of_words(guard.comms.get_mut(comm)?.circle_of_all(), &[u64::from(!is_well)]);
    match guard.wait(|state| exchange.poll(&mut state.engine))? {
        Exchanged::Words(words) => Ok(words.iter().all(|word| *word == 0)),
        Exchanged::Blocks(_) => Err(MpiError::intern("blocks instead of words")),
    }
}

fn free_comm(guard: &mut Guard<'_>, comm: CommHandle) {
    let state = &mut **guard;
    if let Ok(freed) = state.comms.free(comm) {
        retire(state, freed);
    }
}

/// `MPI_Win_free`: waits for all members.
pub unsafe fn win_free(rt: &Runtime, win: *mut WinHandle) -> MpiResult {
    if win.is_null() {
        return Err(MpiError::new(c::MPI_ERR_WIN, "the window pointer is null"));
    }
    // SAFETY: the caller's promise.
    let handle = unsafe { win.read() };
    {
        let state = rt.lock();
        let window = state.windows.get(handle)?;
        if !window.access.is_over() || window.exposure.is_some() {
            return Err(sync("an epoch is not over").on_window(handle));
        }
    }
    attr::delete_all(rt, Object::Win(handle)).map_err(|error| error.on_window(handle))?;
    let mut guard = rt.lock();
    let comm = guard.windows.get(handle)?.comm;
    let complete = settle(&mut guard, handle, None);
    let met = barrier(&mut guard, comm);
    guard.wait(|state| state.windows.get(handle).is_ok_and(Window::has_answered).then_some(()));
    let State { windows, engine, errhandlers, .. } = &mut *guard;
    let window = windows.take(handle)?;
    errhandlers.unused(window.errhandler);
    window.abandon(engine);
    free_comm(&mut guard, comm);
    // SAFETY: the caller's promise.
    unsafe { put(win, WinHandle::NULL)? };
    complete.and(met)
}

/// `MPI_Win_attach`.
pub unsafe fn win_attach(rt: &Runtime, win: WinHandle, base: *mut c_void, size: i64) -> MpiResult {
    let mut state = rt.lock();
    let window = dynamic(&mut state, win)?;
    let size = usize::try_from(size).map_err(|_| MpiError::new(c::MPI_ERR_SIZE, format!("invalid size {size}")))?;
    if base.is_null() && size > 0 {
        return Err(MpiError::new(c::MPI_ERR_BASE, format!("the base is null, for {size} bytes")));
    }
    must_be_on_host(base, size as i64)?;
    match window.attach(base.expose_provenance(), size) {
        true => Ok(()),
        false => Err(MpiError::new(c::MPI_ERR_RMA_ATTACH, "some of this memory is attached already")),
    }
}

/// Other processes use a window's memory without its owner's help, by address.
fn must_be_on_host(base: *const c_void, size: i64) -> MpiResult {
    match device::find(base.cast())? {
        Some(found) if size > 0 && !found.is_managed() => Err(MpiError::new(
            c::MPI_ERR_BASE,
            format!("{base:p} is device memory, which cannot be in a window: only the other side's buffers can be"),
        )),
        Some(_) | None => Ok(()),
    }
}

/// `MPI_Win_detach`.
pub unsafe fn win_detach(rt: &Runtime, win: WinHandle, base: *const c_void) -> MpiResult {
    let mut state = rt.lock();
    match dynamic(&mut state, win)?.detach(base.addr()) {
        true => Ok(()),
        false => Err(MpiError::new(c::MPI_ERR_BASE, "no memory that starts there is attached")),
    }
}

fn dynamic(state: &mut State, win: WinHandle) -> MpiResult<&mut Window> {
    let window = state.windows.get_mut(win)?;
    match window.is_dynamic() {
        true => Ok(window),
        false => Err(MpiError::new(c::MPI_ERR_RMA_FLAVOR, "memory can only be attached to a dynamic window")),
    }
}

// --- information ---

/// `MPI_Win_shared_query`. For `MPI_PROC_NULL`: the first member with memory. Memory that this process cannot use has no size.
pub unsafe fn win_shared_query(
    rt: &Runtime,
    win: WinHandle,
    rank: c_int,
    size: *mut i64,
    disp_unit: IntsOut,
    baseptr: *mut c_void,
) -> MpiResult {
    check_place(baseptr)?;
    let part = {
        let state = rt.lock();
        let window = state.windows.get(win)?;
        if window.is_dynamic() {
            return Err(MpiError::new(c::MPI_ERR_RMA_FLAVOR, "a dynamic window has no memory of its own"));
        }
        let is_here = |target: u32| window.near.memory(target).is_some_and(|memory| memory.place == Place::Here);
        let target = match rank {
            c::MPI_PROC_NULL => (0..window.size()).find(|it| window.parts[*it as usize].size > 0),
            _ => Some(member(window, rank)?),
        };
        target.filter(|target| is_here(*target)).map(|target| window.parts[target as usize])
    };
    let part = part.unwrap_or(Part { size: 0, disp_unit: 0, address: 0 });
    // SAFETY: the caller's promise.
    unsafe {
        put(size, part.size as i64)?;
        disp_unit.put(0, part.disp_unit)?;
        put(baseptr.cast::<*mut c_void>(), std::ptr::with_exposed_provenance_mut(part.address))
    }
}

/// `MPI_Win_get_group`.
pub unsafe fn win_get_group(rt: &Runtime, win: WinHandle, group: *mut GroupHandle) -> MpiResult {
    check_place(group)?;
    let mut state = rt.lock();
    let found = Arc::clone(&state.windows.get(win)?.group);
    // SAFETY: the caller's promise.
    unsafe { put(group, state.groups.add(found)?) }
}

/// `MPI_Win_get_name`: `MPI_WIN_NULL` also has a name.
pub unsafe fn win_get_name(rt: &Runtime, win: WinHandle, name: *mut c_char, resultlen: *mut c_int) -> MpiResult {
    let state = rt.lock();
    let found = if win == WinHandle::NULL { &b"MPI_WIN_NULL"[..] } else { &state.windows.get(win)?.name };
    // SAFETY: the caller's promise.
    unsafe { put(resultlen, put_text(name, c::MPI_MAX_OBJECT_NAME as usize, found)?) }
}

/// `MPI_Win_set_name`.
pub unsafe fn win_set_name(rt: &Runtime, win: WinHandle, name: *const c_char) -> MpiResult {
    // SAFETY: the caller's promise.
    let name = unsafe { text(name, "name")? };
    let end = name.len().min(c::MPI_MAX_OBJECT_NAME as usize - 1);
    rt.lock().windows.get_mut(win)?.name = name[..end].to_vec();
    Ok(())
}

/// Each part of a window that its members share begins on a page of its own.
const APART: &[u8] = b"alloc_shared_noncontig";
const ALIGNMENT: &[u8] = b"mpi_minimum_memory_alignment";

/// The largest alignment that parts on pages of their own have.
const PAGE: u64 = 4096;

/// Hints about windows that the standard defines (MPI 5.0 §12.2), those first that may be changed later.
const HINTS: [&[u8]; 8] = [
    b"no_locks",
    b"same_size",
    b"same_disp_unit",
    b"accumulate_ordering",
    b"accumulate_ops",
    b"mpi_accumulate_granularity",
    APART,
    ALIGNMENT,
];
const CHANGEABLE: usize = 5;
/// The first three are true or false.
const TRUE_OR_FALSE: usize = 3;

/// The defaults of those that have one for every window.
fn defaults() -> Info {
    let mut hints = Info::default();
    let values: [&[u8]; 6] = [b"false", b"false", b"false", b"rar,raw,war,waw", b"same_op_no_op", b"0"];
    for (key, value) in HINTS.into_iter().zip(values) {
        // All are short.
        let _ = hints.set(key, value);
    }
    hints
}

/// Takes over these hints, except values that mean nothing.
fn take_hints(hints: &mut Info, given: &Info, keys: &[&[u8]]) {
    for (at, key) in keys.iter().enumerate() {
        let is_valid = |value: &&[u8]| match at < TRUE_OR_FALSE || *key == APART {
            true => matches!(*value, b"true" | b"false"),
            false => true,
        };
        if let Some(value) = given.get(key).filter(is_valid) {
            // Lengths were checked when they were set.
            let _ = hints.set(key, value);
        }
    }
}

/// Sets the hints about memory to what holds for memory in this room.
fn report_kept(hints: &mut Info, room: Room) {
    let alignment = hints.get(ALIGNMENT).and_then(|value| std::str::from_utf8(value).ok()?.parse::<u64>().ok());
    let is_aligned = matches!(room, Room::Apart | Room::SharedApart) && alignment.is_some_and(|it| it <= PAGE);
    if !is_aligned {
        let _ = hints.delete(ALIGNMENT);
    }
    let _ = match room {
        Room::Shared => hints.set(APART, b"false"),
        Room::SharedApart => hints.set(APART, b"true"),
        Room::None | Room::Given(_) | Room::Apart => hints.delete(APART),
    };
}

/// `MPI_Win_set_info`.
pub unsafe fn win_set_info(rt: &Runtime, win: WinHandle, info: InfoHandle) -> MpiResult {
    let mut state = rt.lock();
    let State { infos, windows, .. } = &mut *state;
    let window = windows.get_mut(win)?;
    if let Some(given) = infos.hints(info)? {
        take_hints(&mut window.hints, given, &HINTS[..CHANGEABLE]);
    }
    Ok(())
}

/// `MPI_Win_get_info`.
pub unsafe fn win_get_info(rt: &Runtime, win: WinHandle, info_used: *mut InfoHandle) -> MpiResult {
    check_place(info_used)?;
    let mut state = rt.lock();
    let hints = state.windows.get(win)?.hints.clone();
    // SAFETY: the caller's promise.
    unsafe { put(info_used, state.infos.add(hints.with_memory_kinds())?) }
}

// --- arguments ---

fn check_assert(assert: c_int, known: c_int) -> MpiResult {
    match assert & !known {
        0 => Ok(()),
        _ => Err(MpiError::new(c::MPI_ERR_ASSERT, format!("invalid assertion {assert}"))),
    }
}

fn sync(text: impl Into<std::borrow::Cow<'static, str>>) -> MpiError {
    MpiError::new(c::MPI_ERR_RMA_SYNC, text)
}

fn member(window: &Window, rank: c_int) -> MpiResult<u32> {
    let found = u32::try_from(rank).ok().filter(|rank| *rank < window.size());
    found.ok_or_else(|| MpiError::rank(format!("rank {rank} is not in the window (0 to {})", window.size() - 1)))
}

/// `None` for `MPI_PROC_NULL`.
fn target(window: &Window, rank: c_int) -> MpiResult<Option<u32>> {
    if rank == c::MPI_PROC_NULL { Ok(None) } else { member(window, rank).map(Some) }
}

/// The ranks in the window of a group's members.
fn members(state: &State, group: GroupHandle, win: WinHandle) -> MpiResult<Vec<u32>> {
    let (group, window) = (state.groups.get(group)?, state.windows.get(win)?);
    let ranks = group.ranks_in(&window.group).collect::<Option<Vec<u32>>>();
    ranks.ok_or_else(|| MpiError::group("a member of the group is not in the window"))
}
