//! Memory that all members of a window share (`MPI_Win_allocate_shared`): the first member makes it and passes it to the others.

use std::collections::hash_map::RandomState;
use std::hash::{BuildHasher, Hasher};
use std::io;
use std::os::fd::{AsFd, OwnedFd};

use nix::sys::eventfd::{EfdFlags, EventFd};
use nix::sys::memfd::{MFdFlags, memfd_create};

use super::share_blocks;
use crate::abi::CommHandle;
use crate::abi::constants::{MPI_ERR_RMA_SHARED, MPI_ERR_SIZE};
use crate::coll::node::{Guest, Host};
use crate::error::{MpiError, MpiResult};
use crate::object::agree::{Exchange, Exchanged};
use crate::object::group::Group;
use crate::object::window::{Kept, Mapping, Part};
use crate::runtime::{Guard, State};

const PAGE: usize = 4096;

/// Allocates the memory of all members, side by side, or each on pages of its own if `apart`; fills in where it is here.
pub(super) fn allocate(
    guard: &mut Guard<'_>,
    comm: CommHandle,
    group: &Group,
    parts: &mut [Part],
    apart: bool,
) -> MpiResult<Kept> {
    if !are_on_one_node(guard, group) {
        return Err(MpiError::new(MPI_ERR_RMA_SHARED, "the members are not all on one node, so they share no memory"));
    }
    let mut end = 0_usize;
    let mut starts = Vec::new();
    for part in &*parts {
        starts.push(end);
        let room = if apart { part.size.checked_next_multiple_of(PAGE) } else { Some(part.size) };
        let next = room.and_then(|room| end.checked_add(room)).filter(|end| *end <= isize::MAX as usize);
        end = next.ok_or_else(|| MpiError::new(MPI_ERR_SIZE, "the window exceeds the address space"))?;
    }
    let len = end.max(1);
    let random = || RandomState::new().build_hasher().finish();
    let address = [random(), random()];
    let made = if group.rank == Some(0) { Some(make(address, len)) } else { None };
    let (host, mut mapping) = match made {
        Some(Ok((host, mapping))) => (Some(host), Some(Ok(mapping))),
        Some(Err(error)) => (None, Some(Err(error))),
        None => (None, None),
    };
    let address = share_blocks(guard, comm, &address)?[0];
    if mapping.is_none() {
        let asked = guard.unlocked(|| Guest::ask(&name(address)));
        mapping = Some(asked.and_then(|guest| Mapping::new(guest.memory.as_fd(), len)));
    }
    let failed = mapping.as_ref().is_none_or(Result::is_err);
    let mut verdict = Exchange::of_words(guard.comms.get_mut(comm)?.circle_of_all(), &[u64::from(failed)]);
    let verdict = guard.wait(|state| {
        if let Some(host) = &host {
            host.serve();
        }
        verdict.poll(&mut state.engine)
    })?;
    match (mapping, verdict) {
        (Some(Ok(mapping)), Exchanged::Words(words)) if words == [0] => {
            for (part, start) in parts.iter_mut().zip(starts) {
                part.address = if part.size > 0 || !apart { mapping.address() + start } else { 0 };
            }
            Ok(Kept::Shared(mapping))
        }
        (Some(Err(error)), _) => Err(MpiError::no_mem(format!("cannot share {len} bytes: {error}"))),
        _ => Err(MpiError::no_mem("another member cannot share the memory").secondhand()),
    }
}

fn name([one, two]: [u64; 2]) -> String {
    format!("rsd-mpi-window-{one:016x}{two:016x}")
}

fn make(address: [u64; 2], len: usize) -> io::Result<(Host, Mapping)> {
    let memory: OwnedFd = memfd_create("rsd-mpi-window", MFdFlags::MFD_CLOEXEC)?;
    nix::unistd::ftruncate(&memory, len as i64)?;
    let mapping = Mapping::new(memory.as_fd(), len)?;
    // Members get two descriptors; they have no use for a bell here.
    let bell = EventFd::from_flags(EfdFlags::EFD_CLOEXEC)?;
    Ok((Host::new(&name(address), memory, bell.as_fd().try_clone_to_owned()?)?, mapping))
}

fn are_on_one_node(state: &State, group: &Group) -> bool {
    let Some(world) = &state.world else { return false };
    let node = |rank: usize| world.nodes.get(group.members[rank].0 as usize);
    (0..group.members.len()).all(|rank| node(rank).is_some() && node(rank) == node(0))
}
