//! `MPI_Comm_spawn` and related functions (MPI 5.0 §11.8). Programs, arguments and info are only significant at the
//! root.

#![expect(unsafe_code, reason = "the C boundary")]
#![expect(clippy::missing_safety_doc, reason = "callers guarantee what the standard requires of them")]

use std::ffi::{c_char, c_int};

use super::args::{self, check_place, elements, put, text};
use super::dynamic::seconds;
use crate::abi::{CommHandle, InfoHandle};
use crate::error::{MpiError, MpiResult};
use crate::runtime::{Program, Runtime, State, spawn};

/// `MPI_Comm_spawn`.
#[expect(clippy::too_many_arguments, reason = "the standard's argument list")]
pub unsafe fn comm_spawn(
    rt: &Runtime,
    command: *const c_char,
    argv: *mut *mut c_char,
    maxprocs: c_int,
    info: InfoHandle,
    root: c_int,
    comm: CommHandle,
    intercomm: *mut CommHandle,
    array_of_errcodes: *mut c_int,
) -> MpiResult {
    // SAFETY: the caller's promise.
    let programs = |state: &State| unsafe { Ok(vec![program(state, command, argv, maxprocs, info)?]) };
    // SAFETY: the caller's promise.
    unsafe { begin(rt, programs, root, comm, intercomm, array_of_errcodes) }
}

/// `MPI_Comm_spawn_multiple`: all programs become one job, with one `MPI_COMM_WORLD`.
#[expect(clippy::too_many_arguments, reason = "the standard's argument list")]
pub unsafe fn comm_spawn_multiple(
    rt: &Runtime,
    count: c_int,
    array_of_commands: *mut *mut c_char,
    array_of_argv: *mut *mut *mut c_char,
    array_of_maxprocs: *const c_int,
    array_of_info: *const InfoHandle,
    root: c_int,
    comm: CommHandle,
    intercomm: *mut CommHandle,
    array_of_errcodes: *mut c_int,
) -> MpiResult {
    // SAFETY: the caller's promise.
    let programs = |state: &State| unsafe {
        let commands = elements(count, array_of_commands.cast_const(), "commands")?;
        let counts = elements(count, array_of_maxprocs, "numbers of processes")?;
        let infos = elements(count, array_of_info, "infos")?;
        let args = match array_of_argv.is_null() {
            true => &[][..],
            false => elements(count, array_of_argv.cast_const(), "arguments")?,
        };
        if commands.is_empty() {
            return Err(MpiError::arg("the number of commands is 0"));
        }
        let args = args.iter().copied().chain(std::iter::repeat(std::ptr::null_mut()));
        let all = commands.iter().zip(args).zip(counts.iter().zip(infos));
        all.map(|((command, argv), (count, info))| program(state, *command, argv, *count, *info)).collect()
    };
    // SAFETY: the caller's promise.
    unsafe { begin(rt, programs, root, comm, intercomm, array_of_errcodes) }
}

unsafe fn begin(
    rt: &Runtime,
    programs: impl FnOnce(&State) -> MpiResult<Vec<Program>>,
    root: c_int,
    comm: CommHandle,
    intercomm: *mut CommHandle,
    array_of_errcodes: *mut c_int,
) -> MpiResult {
    check_place(intercomm)?;
    let mut guard = rt.lock();
    let communicator = guard.comms.get(comm)?;
    communicator.must_be_intra()?;
    let root = args::root(communicator, root)?;
    let is_root = communicator.rank == root;
    let programs = is_root.then(|| programs(&guard));
    let first = programs.as_ref().and_then(|programs| programs.as_ref().ok()?.first());
    let limit = first.and_then(|program| program.info.iter().find(|(key, _)| key == b"timeout"));
    let (programs, limit) = match limit.map(|(_, said)| seconds(said)).transpose() {
        Ok(limit) => (programs, limit),
        Err(error) => (Some(Err(error)), None),
    };
    let offspring = spawn(&mut guard, comm, root, programs, limit)?;
    if !array_of_errcodes.is_null() {
        for (at, code) in offspring.codes.iter().enumerate() {
            // SAFETY: the caller guarantees room for a code for each process.
            unsafe { array_of_errcodes.add(at).write(code) };
        }
    }
    // SAFETY: the caller's promise.
    unsafe { put(intercomm, offspring.comm?) }
}

unsafe fn program(
    state: &State,
    command: *const c_char,
    argv: *mut *mut c_char,
    count: c_int,
    info: InfoHandle,
) -> MpiResult<Program> {
    // SAFETY: the caller's promise.
    let command = unsafe { text(command, "command")? };
    if command.is_empty() {
        return Err(MpiError::arg("the command is empty"));
    }
    let count = u32::try_from(count).map_err(|_| MpiError::arg(format!("invalid number of processes {count}")))?;
    let mut args = Vec::new();
    let mut next = argv;
    // SAFETY: the caller's promise: the array ends with a null pointer.
    while !next.is_null() && unsafe { !next.read().is_null() } {
        // SAFETY: the caller's promise; the pointer is not at the end.
        unsafe {
            args.push(text(next.read(), "argument")?.to_vec());
            next = next.add(1);
        }
    }
    let mut keys = Vec::new();
    if let Some(info) = state.infos.hints(info)? {
        for (key, value) in (0..info.len()).filter_map(|at| info.key(at)).filter_map(|key| Some((key, info.get(key)?)))
        {
            // One variable per line; the process manager takes one at a time.
            let lines = value.split(|byte| *byte == b'\n').filter(|line| !line.is_empty());
            match key {
                b"env" => keys.extend(lines.map(|line| (key.to_vec(), line.to_vec()))),
                _ => keys.push((key.to_vec(), value.to_vec())),
            }
        }
    }
    Ok(Program { command: command.to_vec(), args, count, info: keys })
}

/// `MPI_Comm_get_parent`: `MPI_COMM_NULL` in a process that was not spawned, and after the communicator with its parent was freed.
pub unsafe fn comm_get_parent(rt: &Runtime, parent: *mut CommHandle) -> MpiResult {
    let found = rt.lock().comms.parent.unwrap_or(CommHandle::NULL);
    // SAFETY: the caller's promise.
    unsafe { put(parent, found) }
}
