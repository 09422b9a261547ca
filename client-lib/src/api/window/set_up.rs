//! How the members of a window on one node come to share its board: the first of them makes it and passes it to the others.
//!
//! They agree in three small exchanges among themselves: the address where the board is to be had, whether all have it, and (before, among
//! all members of the window) the sizes. If one cannot have it, none uses it: then everything goes by messages, except that
//! `MPI_Win_allocate_shared` fails.

use std::collections::hash_map::RandomState;
use std::hash::{BuildHasher, Hasher};
use std::io;
use std::os::fd::{AsFd, OwnedFd};

use nix::sys::eventfd::{EfdFlags, EventFd};

use crate::abi::CommHandle;
use crate::abi::constants::{MPI_ERR_RMA_SHARED, MPI_ERR_SIZE};
use crate::coll::node::{Guest, Host, Permit};
use crate::error::{MpiError, MpiResult};
use crate::object::agree::{Circle, Exchange, Exchanged};
use crate::object::group::Group;
use crate::object::window::{Bell, Board, Memory, Near, Part, Place, Reach, Shape};
use crate::runtime::{Guard, State};
use crate::shared_memory::cma;
use crate::transport::Watched;

const PAGE: usize = 4096;

/// The memory of this member's window.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Room {
    /// None yet.
    None,
    /// The user's, at this address.
    Given(usize),
    /// On the board, on pages of its own.
    Apart,
    /// On the board, which all members must have; one part after the other.
    Shared,
    /// As `Shared`, each part on pages of its own.
    SharedApart,
}

/// Lets the members of this node share a board, and fills in the addresses of the parts that this process can use.
pub(super) fn near(
    guard: &mut Guard<'_>,
    comm: CommHandle,
    (group, rank): (&Group, u32),
    parts: &mut [Part],
    room: Room,
    by_elements: bool,
) -> MpiResult<Near> {
    let is_shared = matches!(room, Room::Shared | Room::SharedApart);
    let by_elements = by_elements && !matches!(room, Room::Given(_) | Room::None);
    let neighbours = match room {
        Room::None => vec![rank],
        Room::Given(_) | Room::Apart if !uses_shared_memory(guard) => vec![rank],
        _ => neighbours(guard, group, rank),
    };
    if is_shared && neighbours.len() < parts.len() {
        return Err(MpiError::new(MPI_ERR_RMA_SHARED, "the members are not all on one node, so they share no memory"));
    }
    let place = neighbours.iter().position(|neighbour| *neighbour == rank).unwrap_or(0);
    let mut reach = vec![Reach::default(); parts.len()];
    // Counted by all members, also by those that have no connection.
    let all = guard.comms.get_mut(comm)?.circle_of_all();
    if neighbours.len() > 1 {
        let plan = Plan::new(&neighbours, parts, room)?;
        let circle = Circle { ranks: Some(neighbours.clone().into()), place: place as u32, ..all };
        let given = if let Room::Given(base) = room { Some(base) } else { None };
        match share(guard, &circle, group, &plan, given)? {
            Ok((board, bell, word)) => {
                for ((at, neighbour), start) in neighbours.iter().enumerate().zip(&plan.starts) {
                    let target = *neighbour as usize;
                    let part = &mut parts[target];
                    reach[target].place = Some(at as u32);
                    part.address = match given {
                        Some(base) if at == place => base,
                        Some(_) => 0,
                        None if part.size == 0 && room != Room::Shared => 0,
                        None => board.memory() + start,
                    };
                    reach[target].memory = match given {
                        Some(_) if at != place => theirs(guard, &board, at as u32),
                        _ => Some(Memory { place: Place::Here, address: part.address }),
                    };
                }
                return Ok(Near::new(board, rank, reach.into(), by_elements, bell, word));
            }
            Err(error) if is_shared => return Err(error),
            Err(_) => {}
        }
    }
    alone(rank, reach, parts, room, by_elements)
}

/// The view of a process that shares with none.
fn alone(rank: u32, mut reach: Vec<Reach>, parts: &mut [Part], room: Room, by_elements: bool) -> MpiResult<Near> {
    let part = &mut parts[rank as usize];
    let (size, is_own) = match room {
        Room::None | Room::Given(_) => (0, false),
        Room::Apart | Room::Shared | Room::SharedApart => (part.size, true),
    };
    let board = Board::private(size)
        .map_err(|error| MpiError::no_mem(format!("failed to allocate {size} bytes for the window: {error}")))?;
    part.address = match room {
        Room::Given(base) => base,
        _ if is_own => board.memory(),
        _ => 0,
    };
    if room != Room::None {
        let memory = Some(Memory { place: Place::Here, address: part.address });
        reach[rank as usize] = Reach { place: Some(0), memory };
    }
    Ok(Near::new(board, rank, reach.into(), by_elements, None, Box::default()))
}

/// Whether `RSD_MPI_SHM` leaves shared memory on: the same for all processes of a node.
fn uses_shared_memory(state: &State) -> bool {
    state.world.as_ref().is_some_and(|world| world.settings.shm)
}

/// The members on this node, by rank.
fn neighbours(state: &State, group: &Group, rank: u32) -> Vec<u32> {
    let Some(world) = &state.world else { return vec![rank] };
    let node = |rank: u32| world.nodes.get(group.members[rank as usize].0 as usize);
    let is_here = |other: &u32| node(*other).is_some() && node(*other) == node(rank);
    match node(rank) {
        Some(_) => (0..group.members.len() as u32).filter(is_here).collect(),
        None => vec![rank],
    }
}

/// What is on the board.
struct Plan {
    shape: Shape,
    /// Where the memory of each neighbour starts.
    starts: Vec<usize>,
}

impl Plan {
    fn new(neighbours: &[u32], parts: &[Part], room: Room) -> MpiResult<Self> {
        let (mut end, mut starts) = (0_usize, Vec::new());
        for neighbour in neighbours {
            starts.push(end);
            let size = parts[*neighbour as usize].size;
            let taken = match room {
                Room::None | Room::Given(_) => Some(0),
                Room::Shared => Some(size),
                Room::Apart | Room::SharedApart => size.checked_next_multiple_of(PAGE),
            };
            let next = taken.and_then(|taken| end.checked_add(taken)).filter(|end| *end <= isize::MAX as usize / 2);
            end = next.ok_or_else(|| MpiError::new(MPI_ERR_SIZE, "the window exceeds the address space"))?;
        }
        let members = neighbours.len() as u32;
        Ok(Self { shape: Shape { members, bytes: end }, starts })
    }
}

/// The board, the bell if all members have it, and the word on this process's card.
type Got = (Board, Option<Bell>, Box<u64>);

/// What a member tells the others about itself: nothing, that it has the board, or that it also has the bell. The others learn the worst.
const NOTHING: u64 = 2;
const BOARD: u64 = 1;
const BELL: u64 = 0;

/// The outer error is that of an exchange; the inner one is the same for all members: they cannot share.
fn share(
    guard: &mut Guard<'_>,
    circle: &Circle,
    group: &Group,
    plan: &Plan,
    given: Option<usize>,
) -> MpiResult<MpiResult<Got>> {
    let random = || RandomState::new().build_hasher().finish();
    let (address, word) = ([random(), random()], Box::new(random()));
    let is_first = circle.place == 0;
    let mut host = None;
    let mut got = Err(io::ErrorKind::NotConnected.into());
    if is_first {
        got = make(guard, address, plan.shape).map(|(made, watched, board, bell)| {
            host = Some((made, watched));
            (board, bell)
        });
    }
    let address = match exchange(guard, Exchange::of_blocks(circle.clone(), &bytes_of(address)), &host)? {
        Exchanged::Blocks(bytes) => first_address(&bytes),
        Exchanged::Words(_) => return Err(MpiError::intern("words instead of blocks")),
    };
    if !is_first {
        // The first member will be connected to each, so it notices if one dies.
        guard.engine.transport_mut().reach(group.members[circle.rank(0) as usize]);
        let asked = guard.unlocked(|| Guest::ask(&name(address)));
        got = asked.and_then(|guest| Ok((Board::open(guest.memory.as_fd(), plan.shape)?, guest.bell)));
    }
    let got = got.map(|(board, bell)| {
        board.introduce(circle.place, &word, given.unwrap_or(0));
        (board, watch(guard, bell))
    });
    let has = match &got {
        Ok((_, Some(_))) => BELL,
        Ok((_, None)) => BOARD,
        Err(_) => NOTHING,
    };
    // The same tag serves again: the messages of two processes keep their order.
    let worst = match exchange(guard, Exchange::of_words(circle.clone(), &[has]), &host)? {
        Exchanged::Words(words) => words.first().copied().unwrap_or(NOTHING),
        Exchanged::Blocks(_) => return Err(MpiError::intern("blocks instead of words")),
    };
    Ok(match (got, worst) {
        (Ok((board, bell)), BELL | BOARD) => Ok((board, bell.filter(|_| worst == BELL), word)),
        (Err(error), _) => Err(MpiError::no_mem(format!("cannot share {} bytes: {error}", plan.shape.bytes))),
        (Ok(_), _) => Err(MpiError::no_mem("another member cannot share the memory").secondhand()),
    })
}

/// Waits for an exchange; meanwhile the first member passes the board on.
fn exchange(
    guard: &mut Guard<'_>,
    mut exchange: Exchange,
    host: &Option<(Host, Option<Watched>)>,
) -> MpiResult<Exchanged> {
    guard.wait(|state| {
        if let Some((host, _)) = host {
            host.serve();
        }
        exchange.poll(&mut state.engine)
    })
}

fn bytes_of([one, two]: [u64; 2]) -> [u8; 16] {
    (u128::from(one) << 64 | u128::from(two)).to_ne_bytes()
}

fn first_address(blocks: &[u8]) -> [u64; 2] {
    let both = blocks.first_chunk().map_or(0, |bytes| u128::from_ne_bytes(*bytes));
    [(both >> 64) as u64, both as u64]
}

fn name([one, two]: [u64; 2]) -> String {
    format!("rsd-mpi-window-{one:016x}{two:016x}")
}

/// Makes the board, and listens for the others. The returned value lets them wake this process.
fn make(state: &State, address: [u64; 2], shape: Shape) -> io::Result<(Host, Option<Watched>, Board, OwnedFd)> {
    let (board, memory) = Board::create(shape)?;
    let bell: OwnedFd = EventFd::from_flags(EfdFlags::EFD_CLOEXEC | EfdFlags::EFD_NONBLOCK)?.into();
    let host = Host::new(&name(address), memory, bell.try_clone()?)?;
    let watched = state.engine.transport().watch_bell(host.fd().try_clone_to_owned()?);
    Ok((host, watched, board, bell))
}

/// The bell, if this process may have one more and can wait for it.
fn watch(state: &State, descriptor: OwnedFd) -> Option<Bell> {
    let permit = Permit::take()?;
    let watched = state.engine.transport().watch_bell(descriptor.try_clone().ok()?)?;
    Some(Bell { descriptor, watched, permit })
}

/// The memory of a member that has brought its own, if the kernel lets this process use it.
fn theirs(state: &State, board: &Board, place: u32) -> Option<Memory> {
    if !state.world.as_ref().is_some_and(|world| world.settings.cma && world.settings.shm) {
        return None;
    }
    let (pid, word, word_at, address) = board.introduction(place);
    match cma::probe(pid, word_at, word, [cma::namespaces(); 2]) {
        cma::Verdict::Yes(pid) => Some(Memory { place: Place::In(pid), address }),
        cma::Verdict::No(_) => None,
    }
}
