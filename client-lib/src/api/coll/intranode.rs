//! Blocking collectives on one node over shared memory, instead of messages.
//!
//! The memory is set up once a communicator has made a few calls that can use it; all members count alike. The first member
//! creates it and tells the others where to get it; if one of them fails, no member uses it. Whether a call uses the memory
//! follows from what all members know: its kind, its length, the operation.

use std::collections::hash_map::RandomState;
use std::hash::{BuildHasher, Hasher};
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::sync::Arc;

use nix::sys::eventfd::{EfdFlags, EventFd};

use super::complete_by_messages;
use super::plan::{Plan, What};
use crate::abi::CommHandle;
use crate::coll::node::{
    Area, Guest, Host, Node, Outbox, Permit, Pull, Rest, Shape, Shared, Sharing, Uneven, UnevenWork, Way, Work, refuse,
    way,
};
use crate::coll::operands::{Memory, Operands};
use crate::coll::{Area as Place, Call, Members, Schedule, Slice, bcast, gather};
use crate::error::MpiResult;
use crate::memory::Buffer;
use crate::runtime::{Guard, Moment, State};
use crate::transport::Watched;

/// Bytes that a member can leave in one operation.
const SLOT: usize = 64 << 10;

/// The memory is set up at this call that could use it: a program with a single barrier does not pay for it.
const WORTH_IT: u32 = 3;

/// How many times a member with a core of its own polls before it checks anything else.
const POLLS: usize = 200;

/// How a call is executed over the shared memory.
enum How<'a> {
    Slots(Call, Option<&'a [(u64, u64)]>),
    Pull(Call, Option<&'a [(u64, u64)]>),
    Uneven(Uneven),
}

/// How to execute a call over memory that may not have been set up yet; `None` if the call needs messages. All members get the same answer.
#[inline]
fn how<'a>(plan: &'a Plan, node: Option<&Node>) -> Option<How<'a>> {
    let size = plan.members.here.size;
    let is_dense = plan.operands.elements.as_ref().is_none_or(|it| it.size() as i64 == it.extent());
    let pulls = node.is_none_or(Node::pulls);
    let way = |call| {
        let faster = node.map_or(0, |node| node.faster(call));
        way(call, size, SLOT, pulls, faster, plan.reduction.as_ref(), is_dense)
    };
    match &plan.what {
        What::Call(call) => match way(*call)? {
            Way::Slots => Some(How::Slots(*call, None)),
            Way::Pull => Some(How::Pull(*call, None)),
        },
        What::Varied(varied) => match way(varied.call_of_all())? {
            Way::Slots => Some(How::Slots(varied.call(), varied.parts())),
            Way::Pull => Some(How::Pull(varied.call(), varied.parts())),
        },
        What::Uneven(uneven) => UnevenWork::fits(size, SLOT).then_some(How::Uneven(*uneven)),
        What::Schedule(_) => None,
    }
}

/// The result, if the call can use the shared memory.
#[inline]
pub(super) fn attempt(guard: &mut Guard<'_>, plan: &Plan) -> Option<MpiResult> {
    if matches!(plan.what, What::Schedule(_)) {
        return None;
    }
    let sharing = &mut guard.comms.get_mut(plan.comm).ok()?.sharing;
    if matches!(sharing, Sharing::Never | Sharing::Busy) {
        return None;
    }
    let node = if let Sharing::Ready(shared) = sharing { Some(&shared.node) } else { None };
    let how = how(plan, node)?;
    if let Sharing::Untried(calls) = sharing {
        *calls += 1;
        if *calls < WORTH_IT {
            return None;
        }
        let set_up = set_up(guard, plan.comm, &plan.members);
        match set_up {
            Ok(true) => {}
            Ok(false) => return None,
            Err(error) => return Some(Err(error)),
        }
    }
    let sharing = &mut guard.comms.get_mut(plan.comm).ok()?.sharing;
    let Sharing::Ready(mut shared) = std::mem::replace(sharing, Sharing::Busy) else { return None };
    let node = &mut shared.node;
    let mut fault = plan.fault.clone().or_else(|| plan.operands.load().err());
    let result = match how {
        // Before the memory was set up, it was unknown whether members can read each other's memory.
        How::Pull(..) if !node.pulls() => Ok(Rest::All),
        _ if fault.is_some() => complete(guard, &plan.members, node, refuse).map(|()| Rest::Nothing),
        How::Slots(call, parts) => {
            let mut work = Work::new(call, &plan.operands, plan.reduction.as_ref(), parts, node.shape());
            let result =
                node.measured(call, Way::Slots, |node| complete(guard, &plan.members, node, |node| work.poll(node)));
            result.map(|()| Rest::Nothing)
        }
        How::Pull(call, parts) => {
            let mut pull = Pull::new(call, &plan.operands, plan.reduction.as_ref(), parts);
            let result =
                node.measured(call, Way::Pull, |node| complete(guard, &plan.members, node, |node| pull.poll(node)));
            result.map(|went_well| {
                node.pull(went_well);
                if went_well { Rest::Nothing } else { Rest::All }
            })
        }
        How::Uneven(call) => {
            let mut work = UnevenWork::new(call, &plan.operands, node);
            let rest = complete(guard, &plan.members, node, |node| work.poll(node));
            fault = work.into_fault();
            rest
        }
    };
    if let Ok(communicator) = guard.comms.get_mut(plan.comm) {
        communicator.sharing = Sharing::Ready(shared);
        // Some members may move a rest by messages: the tags of later messages must not differ for that.
        let may_have_rest = matches!(plan.what, What::Uneven(Uneven::Gather { .. } | Uneven::Scatter { .. }));
        if may_have_rest && !matches!(result, Ok(Rest::Of(_))) {
            communicator.collectives = communicator.collectives.wrapping_add(1);
        }
    }
    let rest = match result {
        Ok(Rest::Nothing) => Ok(()),
        Ok(Rest::All) => {
            // What has been written so far must not overwrite what messages bring; a failure of a copy will show again.
            let _ = plan.operands.settle();
            return None;
        }
        Ok(Rest::Of(members)) => rest_by_messages(guard, plan, &members),
        Err(error) => Err(error),
    };
    let rest = rest.and_then(|()| if fault.is_none() { plan.operands.store() } else { Ok(()) });
    Some(fault.map_or(rest, Err))
}

/// Moves the blocks of a gather or scatter that did not fit into the slots: those of these members. One round.
#[cold]
fn rest_by_messages(guard: &mut Guard<'_>, plan: &Plan, blocks: &[u32]) -> MpiResult {
    let (mut schedule, me) = (Schedule::default(), plan.members.here.rank);
    let Operands { send, recv, send_to, recv_from, .. } = &plan.operands;
    for member in blocks.iter().copied() {
        let at = member as usize;
        match plan.what {
            What::Uneven(Uneven::Gather { root, .. }) if root == me => {
                schedule.recv_even_none(member, Slice::all(Place::RecvFrom(member), recv_from[at].len() as u64));
            }
            What::Uneven(Uneven::Gather { root, .. }) => {
                schedule.send_even_none(root, Slice::all(Place::Send, send.len()));
            }
            What::Uneven(Uneven::Scatter { root, .. }) if root == me => {
                schedule.send_even_none(member, Slice::all(Place::SendTo(member), send_to[at].len() as u64));
            }
            What::Uneven(Uneven::Scatter { root, .. }) => {
                schedule.recv_even_none(root, Slice::all(Place::Recv, recv.len()));
            }
            What::Uneven(Uneven::Alltoall { .. }) | What::Call(_) | What::Varied(_) | What::Schedule(_) => {}
        }
    }
    schedule.wait();
    by_messages(guard, plan.comm, &plan.members, schedule, plan.operands.clone(), &mut |_| ())
}

/// How often a call polls for the other members before it waits. Members with cores of their own are rarely far apart in time: they poll nothing
/// else for about a microsecond.
#[inline]
pub(super) fn polls(guard: &Guard<'_>) -> usize {
    if guard.spins() { POLLS } else { 1 }
}

#[inline]
fn complete<T>(
    guard: &mut Guard<'_>,
    members: &Members,
    node: &mut Node,
    mut poll: impl FnMut(&mut Node) -> Option<MpiResult<T>>,
) -> MpiResult<T> {
    for _ in 0..polls(guard) {
        if let Some(result) = poll(node) {
            return result;
        }
    }
    wait(guard, members, node, poll)
}

pub(super) fn wait<T>(
    guard: &mut Guard<'_>,
    members: &Members,
    node: &mut Node,
    mut poll: impl FnMut(&mut Node) -> Option<MpiResult<T>>,
) -> MpiResult<T> {
    let mut heard = 0;
    guard.wait_as(|state, moment| match moment {
        Moment::Look | Moment::Sleep => {
            if moment == Moment::Sleep {
                node.announce_sleep(true);
            }
            // Nothing arrives from a member that has died, and only its peers are told: the first rank is a peer of all. A member to
            // which the communicator is revoked may have left.
            if heard != state.engine.alarms() {
                heard = state.engine.alarms();
                if state.engine.is_revoked(members.context) {
                    node.revoke();
                } else if let Some(lost) = members.peers.iter().position(|peer| state.engine.is_lost(*peer)) {
                    node.declare_broken(lost as u32);
                }
            }
            poll(node)
        }
        Moment::Awake => {
            node.announce_sleep(false);
            None
        }
    })
}

/// The first member's message to the others: the address where they get the memory, and whether they count in groups; all zero if there is no
/// memory.
type Invitation = [u8; INVITATION];
const INVITATION: usize = 48;

/// Makes the members share memory, if all can. All members get the same result.
#[cold]
fn set_up(guard: &mut Guard<'_>, comm: CommHandle, members: &Members) -> MpiResult<bool> {
    guard.comms.get_mut(comm)?.sharing = Sharing::Never;
    if !are_on_one_node(guard, members) {
        return Ok(false);
    }
    let here = members.here;
    let mut shape = Shape { members: here.size, slot: SLOT, in_groups: guard.has_core() };
    let mut invitation: Invitation = [0; INVITATION];
    let mut host = None;
    let mut shared = None;
    if here.rank == 0
        && let Ok((made, node, hearings)) = make(guard, shape, &mut invitation)
    {
        host = Some((made, hearings));
        shared = Some(node);
    }
    invite_all(guard, comm, members, &mut invitation)?;
    let [address @ .., in_groups] = &invitation;
    shape.in_groups = *in_groups == 1;
    if here.rank > 0 && address[0] != 0 {
        let address = String::from_utf8_lossy(address).into_owned();
        let asked = guard.unlocked(|| Guest::ask(address.trim_end_matches('\0')));
        shared = asked.and_then(|guest| join(guard, guest, shape, here.rank)).ok();
    }
    // All members send to the first one, which is thereby connected to each: it will notice if one of them dies.
    let pulls = guard.world.as_ref().is_some_and(|world| world.settings.cma);
    let can = if shared.is_some() { 1 + u8::from(pulls) } else { 0 };
    let mut votes = Vote { can, started: guard.comms.get(comm)?.nonblocking }.to_bytes().to_vec();
    if here.rank == 0 {
        votes.resize(here.size as usize * VOTE, 0);
    }
    let own = Slice::all(if here.rank == 0 { Place::Recv } else { Place::Send }, VOTE as u64);
    let vote_of = |rank| Slice { area: Place::Recv, at: u64::from(rank) * VOTE as u64, len: VOTE as u64 };
    let schedule = gather::linear_gather(here, 0, own, vote_of);
    let operands = if here.rank == 0 { lend(&mut [], &mut votes) } else { lend(&mut votes, &mut []) };
    by_messages(guard, comm, members, schedule, operands, &mut |_| {
        if let Some((host, _)) = &host {
            host.serve();
        }
    })?;
    let mut verdict = Vote::of_all(&votes).to_bytes();
    let mut got = [0; VOTE];
    let operands = if here.rank == 0 { lend(&mut verdict, &mut got) } else { lend(&mut [], &mut got) };
    let all = Slice::all(Place::Send, VOTE as u64);
    let schedule = gather::linear_scatter(here, 0, |_| all, Slice::all(Place::Recv, VOTE as u64));
    by_messages(guard, comm, members, schedule, operands, &mut |_| ())?;
    let verdict = Vote::from_bytes(got);
    if let (1.., Some((mut shared, outbox))) = (verdict.can, shared) {
        shared.node.pull(verdict.can > 1);
        let outbox = guard.outboxes.add(outbox, members.clone());
        let communicator = guard.comms.get_mut(comm)?;
        communicator.sharing = Sharing::Ready(Box::new(shared));
        communicator.outbox = Some((outbox, verdict.started));
        return Ok(true);
    }
    Ok(false)
}

/// What a member tells the first one before they share memory, and what that tells all.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Vote {
    /// 0: no; 1: memory; 2: memory, and it may be read by others.
    can: u8,
    /// How many non-blocking operations a member has started: those from the greatest number on may use the memory. Members of a correct
    /// program have started equally many.
    started: u32,
}

const VOTE: usize = 5;

impl Vote {
    fn to_bytes(self) -> [u8; VOTE] {
        let [a, b, c, d] = self.started.to_ne_bytes();
        [self.can, a, b, c, d]
    }

    fn from_bytes([can, a, b, c, d]: [u8; VOTE]) -> Self {
        Self { can, started: u32::from_ne_bytes([a, b, c, d]) }
    }

    fn of_all(votes: &[u8]) -> Self {
        let votes = votes.as_chunks::<VOTE>().0.iter().map(|vote| Self::from_bytes(*vote));
        let both = |one: Self, other: Self| {
            // Modulo 2^32.
            let is_later = other.started.wrapping_sub(one.started) as i32 > 0;
            Self { can: one.can.min(other.can), started: if is_later { other.started } else { one.started } }
        };
        votes.reduce(both).unwrap_or(Self { can: 0, started: 0 })
    }
}

fn are_on_one_node(state: &State, members: &Members) -> bool {
    let Some(world) = &state.world else { return false };
    let node = |rank: usize| world.nodes.get(members.peers[rank].0 as usize);
    let size = members.here.size;
    (2..=Shape::MOST).contains(&size)
        && world.settings.shm
        && (0..size as usize).all(|rank| node(rank).is_some() && node(rank) == node(0))
}

/// Creates the memory, the host that passes it on, and the descriptor that wakes this process.
fn make(
    state: &State,
    shape: Shape,
    invitation: &mut Invitation,
) -> io::Result<(Host, (Shared, Outbox), Option<Watched>)> {
    let random = || RandomState::new().build_hasher().finish();
    let address = format!("rsd-mpi-node-{:016x}{:016x}", random(), random());
    let (area, memory) = Area::create(shape)?;
    let bell = EventFd::from_flags(EfdFlags::EFD_CLOEXEC | EfdFlags::EFD_NONBLOCK)?;
    let host = Host::new(&address, memory, bell.as_fd().try_clone_to_owned()?)?;
    let watched = state.engine.transport().watch_bell(host.fd().try_clone_to_owned()?);
    let shared = share(state, area, 0, bell.into())?;
    for (place, byte) in invitation.iter_mut().zip(address.bytes()) {
        *place = byte;
    }
    invitation[INVITATION - 1] = u8::from(shape.in_groups);
    Ok((host, shared, watched))
}

fn join(state: &State, guest: Guest, shape: Shape, rank: u32) -> io::Result<(Shared, Outbox)> {
    share(state, Area::open(guest.memory.as_fd(), shape)?, rank, guest.bell)
}

fn share(state: &State, area: Area, rank: u32, bell: OwnedFd) -> io::Result<(Shared, Outbox)> {
    let permit = Permit::take().ok_or(io::ErrorKind::QuotaExceeded)?;
    let watched = state.engine.transport().watch_bell(bell.try_clone()?).ok_or(io::ErrorKind::Unsupported)?;
    let bell = Arc::new(bell);
    let ring = || {
        let bell = Arc::clone(&bell);
        Box::new(move || {
            // It fails only if the bell was never read.
            let _ = nix::unistd::write(&bell, &1_u64.to_ne_bytes());
        })
    };
    let node = Node::new(area, rank, ring());
    let outbox = node.outbox(ring());
    Ok((Shared { node, watched, permit }, outbox))
}

fn invite_all(guard: &mut Guard<'_>, comm: CommHandle, members: &Members, invitation: &mut Invitation) -> MpiResult {
    let schedule = bcast::binomial(members.here, Slice::all(Place::Recv, invitation.len() as u64));
    by_messages(guard, comm, members, schedule, lend(&mut [], invitation), &mut |_| ())
}

fn by_messages(
    guard: &mut Guard<'_>,
    comm: CommHandle,
    members: &Members,
    schedule: Schedule,
    operands: Operands,
    meanwhile: &mut dyn FnMut(&mut State),
) -> MpiResult {
    let what = What::Schedule(schedule);
    let plan = Plan::new((comm, members.clone()), what, operands);
    complete_by_messages(guard, plan, meanwhile)
}

/// Lends bytes of this function's callers, which live until the operation is over.
fn lend(send: &mut [u8], recv: &mut [u8]) -> Operands {
    let memory = |bytes: &mut [u8]| {
        let base = bytes.as_mut_ptr();
        // SAFETY: the bytes are borrowed from the caller that waits for the operation.
        Memory::new(base, unsafe { Buffer::contiguous(base, bytes.len()) })
    };
    Operands { send: memory(send), recv: memory(recv), ..Operands::default() }
}
