//! Two groups of processes that do not know each other become one intercommunicator (MPI 5.0 §11.9).
//!
//! Each group has a root. The roots reach each other over a port, or over a communicator that only they may have in common
//! (`MPI_Intercomm_create`). All members of a group take these steps:
//!
//! 1. *meeting*: the roots find each other, and tell each other whether all their members share one node; the other members
//!    wait for
//! 2. the result: whether the other root was found, and whether members must listen for connections from other nodes;
//! 3. *introductions*: every member announces its name and location to its group;
//! 4. *crossing*: the roots exchange the introductions of their groups, and
//! 5. *telling*: all members learn those of the other group;
//! 6. *comparing*, if any member knows processes of other jobs: which members of the other group each member already knows;
//!    the roots exchange that, too;
//! 7. *association*: the other group's members become peers ([`super::foreign`]), and the roots confirm that to each other;
//! 8. *bridging*: the groups agree on a context, as any two groups with leaders do ([`crate::object::bridge`]). The leaders
//!    communicate on a context that follows from the secret.
//!
//! At step 8 every member of a group knows all of the other group before any of them can send. A member that fails says so in
//! the next exchange, and a root by closing the connection or by saying so. At a port only the meeting has a deadline: after
//! it, the wait ends when all members make the call or one dies. Cost: 8⌈log₂ n⌉ + 6 consecutive messages, and
//! 2⌈log₂ n⌉ + 1 for comparing, with one word for each pair of members.

mod roots;

use std::sync::Arc;
use std::time::Duration;

use super::foreign::{Theirs, agreed, associate, malformed};
use super::{Guard, State};
use crate::abi::CommHandle;
use crate::abi::constants::MPI_ERR_OTHER;
use crate::engine::Peer;
use crate::error::{MpiError, MpiResult};
use crate::object::agree::{Circle, Exchange, Exchanged, Failure, tag};
use crate::object::bridge::{Brings, Crossing};
use crate::object::comm::Communicator;
use crate::object::creation::Creation;
use crate::object::parties::Born;
use crate::transport::endpoint::{self, Endpoint};

use roots::{OtherRoot, find, words_of};

/// How a root finds the other one; only the root knows the name of the port.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Role<'a> {
    /// It waits at its own port.
    Accept(&'a [u8]),
    /// It waits at its own port for a job that it has spawned, unless the process manager reports that the job has
    /// failed.
    Expect {
        /// The port.
        port: &'a [u8],
        /// The job's name.
        job: &'a [u8],
    },
    /// It connects to another process's port.
    Connect(&'a [u8]),
    /// The roots have a common communicator; `Some` in the root, which knows the other one there.
    Through(Option<Crossing>),
}

/// The arguments of all members of a group.
struct Side<'a> {
    comm: CommHandle,
    /// Its members.
    circle: Circle,
    root: u32,
    role: Role<'a>,
}

/// The context of two leaders that have no common communicator.
const LEADERS: u32 = 1 << 31;

/// The most words that a group may send.
const THEIRS_MAX: u64 = 1 << 28;

/// Makes an intercommunicator of this communicator's group, whose members are the circle, and the group at the other
/// end. All members call it; only the root's `limit` matters.
pub fn connect_groups(
    guard: &mut Guard<'_>,
    comm: CommHandle,
    circle: Circle,
    root: u32,
    role: Role<'_>,
    limit: Option<Duration>,
) -> MpiResult<CommHandle> {
    let parent = guard.comms.get(comm)?;
    let group = Arc::clone(parent.group());
    let Communicator { errhandler, session, rank, .. } = *parent;
    let (mut other_root, fault) = match (rank == root).then(|| find(guard, &group.members, role, limit)).transpose() {
        Ok(other_root) => (other_root, None),
        Err(error) => (None, Some(error)),
    };
    let needs_tcp = other_root.as_ref().is_some_and(|other_root| other_root.needs_tcp);
    let received = words(guard, &circle, &[u64::from(needs_tcp), class(fault.as_ref())]);
    let received = received.and_then(|received| check(fault, received[1], role).map(|()| received[0] != 0));
    let mut new = Vec::new();
    let made = received.and_then(|listens| {
        let side = Side { comm, circle, root, role };
        // No process may be disconnected, by other threads either, between the announcement that it is known and the
        // new communicator.
        guard.hold_farewells();
        let made = bring_together(guard, &side, other_root.as_mut(), listens, &mut new);
        let made = made.and_then(|it| guard.comms.add(Communicator { session, ..Communicator::born(it, errhandler) }));
        guard.resume_farewells();
        made
    });
    match &made {
        Ok(_) => guard.errhandlers.used(errhandler),
        Err(error) => {
            if let Some(other_root) = other_root {
                other_root.channel.give_up(guard, error);
            }
            guard.leave(&new);
        }
    }
    made
}

/// From the introductions to the bridge; `new` collects the peers that this process did not know before.
fn bring_together(
    guard: &mut Guard<'_>,
    side: &Side<'_>,
    mut other_root: Option<&mut OtherRoot>,
    listens: bool,
    new: &mut Vec<Peer>,
) -> MpiResult<Born> {
    let (circle, role) = (&side.circle, side.role);
    let ours = own_endpoint(guard, listens);
    let words_of_ours = ours.as_ref().map_or([u64::MAX; endpoint::WORDS], |it| it.to_words());
    let list = blocks(guard, circle, &words_of_ours)?;
    let all_here = list.chunks(endpoint::WORDS).all(|it| Endpoint::from_words(it).is_some());
    let ours = ours?;
    if !all_here {
        return Err(MpiError::other("another member of the communicator cannot listen for the other group"));
    }

    let (theirs, fault) =
        match other_root.as_deref_mut().map(|other_root| cross(guard, other_root, side.root, &list)).transpose() {
            Ok(theirs) => (theirs, None),
            Err(error) => (None, Some(error)),
        };
    let len = theirs.as_ref().map_or(0, |theirs| theirs.len() as u64);
    let received = words(guard, circle, &[len, class(fault.as_ref())])?;
    check(fault, received[1], role)?;
    if received[0] > THEIRS_MAX {
        return Err(malformed());
    }
    let theirs = theirs.unwrap_or_else(|| vec![0; received[0] as usize]);
    let theirs = Theirs::from_words(&words(guard, circle, &theirs)?);

    let mut numbers = Vec::new();
    if let Ok(theirs) = &theirs {
        let members = list.chunks(endpoint::WORDS).filter_map(Endpoint::from_words);
        numbers = match members.chain(theirs.members.iter().copied()).any(|member| member.knows_foreign) {
            true => compare(guard, side, other_root.as_deref_mut(), theirs)?,
            false => vec![0; theirs.members.len()],
        };
    }
    let peers = theirs.as_ref().map_err(MpiError::clone).and_then(|theirs| {
        let peers = associate(guard, &ours, theirs, &numbers, new)?;
        if let Some(other_root) = other_root.as_deref_mut() {
            other_root.channel.confirm(guard)?;
            guard.engine.transport_mut().trust_with(peers[theirs.root as usize], theirs.secret);
        }
        Ok(peers)
    });
    let is_first = other_root.is_some_and(|other_root| other_root.is_first);
    let others = theirs.as_ref().and_then(|theirs| peers.as_deref().map(|peers| (theirs, peers)));
    let made = bridge(guard, side, others.map_err(Failure::of), is_first);
    let (theirs, peers) = (theirs?, peers?);
    let born = made?.ok_or_else(|| MpiError::intern("an intercommunicator without this process"))?;
    // All of them know this process by now.
    for peer in peers {
        guard.engine.transport_mut().trust_with(peer, theirs.secret);
    }
    Ok(born)
}

/// Exchanges the groups' introductions; returns those of the other group in words, with the secret.
fn cross(guard: &mut Guard<'_>, other_root: &mut OtherRoot, root: u32, list: &[u64]) -> MpiResult<Vec<u64>> {
    let mut message = vec![u64::from(root)];
    message.extend_from_slice(list);
    let mut words = other_root.channel.swap(guard, &message)?;
    words.extend(words_of(&other_root.secret));
    Ok(words)
}

/// The class that goes to the others instead of success.
fn class(fault: Option<&MpiError>) -> u64 {
    fault.map_or(0, |error| error.class as u64)
}

/// Returns this process's own error, or the one that its root reports.
fn check(fault: Option<MpiError>, class: u64, role: Role<'_>) -> MpiResult {
    let what = match role {
        Role::Accept(_) | Role::Expect { .. } => "accepting",
        Role::Connect(_) => "connecting",
        Role::Through(_) => "reaching the other leader",
    };
    match (fault, class) {
        (Some(fault), _) => Err(fault),
        (None, 0) => Ok(()),
        (None, class) => {
            let class = i32::try_from(class).unwrap_or(MPI_ERR_OTHER);
            Err(MpiError::new(class, format!("the root failed in {what}: see its error message")))
        }
    }
}

/// The maximum of each word that the members contribute.
pub(super) fn words(guard: &mut Guard<'_>, circle: &Circle, words: &[u64]) -> MpiResult<Vec<u64>> {
    match exchange(guard, Exchange::of_words(circle.clone(), words))? {
        Exchanged::Words(words) => Ok(words),
        Exchanged::Blocks(_) => Err(MpiError::intern("blocks where words were exchanged")),
    }
}

/// The blocks of all members, in the order of their ranks.
fn blocks(guard: &mut Guard<'_>, circle: &Circle, block: &[u64]) -> MpiResult<Vec<u64>> {
    let block: Vec<u8> = block.iter().flat_map(|word| word.to_ne_bytes()).collect();
    match exchange(guard, Exchange::of_blocks(circle.clone(), &block))? {
        Exchanged::Blocks(bytes) => {
            Ok(bytes.chunks_exact(8).filter_map(|it| it.try_into().ok().map(u64::from_ne_bytes)).collect())
        }
        Exchanged::Words(_) => Err(MpiError::intern("words where blocks were exchanged")),
    }
}

/// If this exchange fails, the others learn it in their next exchange.
fn exchange(guard: &mut Guard<'_>, mut exchange: Exchange) -> MpiResult<Exchanged> {
    let came = guard.wait(|state| exchange.poll(&mut state.engine));
    if let Err(error) = &came {
        exchange.warn(&mut guard.engine, error);
    }
    came
}

fn own_endpoint(guard: &mut Guard<'_>, listens: bool) -> MpiResult<Endpoint> {
    let me = guard.comms.names.of_rank(guard.me().0);
    let State { comms, engine, world, .. } = &mut **guard;
    let Some(world) = world else { return Err(MpiError::intern("the library is not open")) };
    let endpoint = engine.transport_mut().own_endpoint(me, &world.settings, listens, comms.names.knows_foreign());
    endpoint.map_err(|error| MpiError::other(format!("cannot listen for the other group: {error}")))
}

/// Which association with each of the others the new communicator is to rest on, as both sides find it.
fn compare(
    guard: &mut Guard<'_>,
    side: &Side<'_>,
    other_root: Option<&mut OtherRoot>,
    theirs: &Theirs,
) -> MpiResult<Vec<u64>> {
    let circle = &side.circle;
    let ours: Vec<u64> = theirs.members.iter().map(|member| guard.association(member.name)).collect();
    let all = blocks(guard, circle, &ours)?;
    let said = other_root.map(|other_root| other_root.channel.swap(guard, &all)).transpose();
    let said = said.and_then(|said| match said.as_ref().is_none_or(|said| said.len() == all.len()) {
        true => Ok(said),
        false => Err(malformed()),
    });
    let (said, fault) = match said {
        Ok(said) => (said, None),
        Err(error) => (None, Some(error)),
    };
    let mut said = said.unwrap_or_else(|| vec![0; all.len()]);
    said.push(class(fault.as_ref()));
    let received = words(guard, circle, &said)?;
    let (fault_class, received) = received.split_last().ok_or_else(malformed)?;
    check(fault, *fault_class, side.role)?;
    Ok(agreed(&ours, received, circle.place))
}

/// Makes the two groups agree on a context, if this process knows the other group.
fn bridge(
    guard: &mut Guard<'_>,
    side: &Side<'_>,
    others: Result<(&Theirs, &[Peer]), Failure>,
    is_first: bool,
) -> MpiResult<Option<Born>> {
    let group = Arc::clone(guard.comms.get(side.comm)?.group());
    let mut leaders = None;
    let crossing = match others {
        Ok((theirs, peers)) if group.rank == Some(side.root) => {
            let context = LEADERS | (u32::from_ne_bytes([0, 1, 2, 3].map(|at| theirs.secret[at])) & 0x3fff_ffff);
            let (me, to) = (guard.me(), peers[theirs.root as usize]);
            let (rank, from, members) = if is_first { (0, 1, [me, to]) } else { (1, 0, [to, me]) };
            guard.engine.open_own(context, Arc::from(members));
            leaders = Some(context);
            Some(Crossing { context, rank, from, to, tag: tag::of_leaders(0) })
        }
        Ok(_) | Err(_) => None,
    };
    let State { comms, engine, requests, partitions, .. } = &mut **guard;
    comms.sweep(engine, requests, partitions);
    let brings = others.map_or_else(Brings::Failure, |_| Brings::Nothing);
    let creation = Creation::between(side.circle.clone(), group, crossing, &mut comms.contexts, brings);
    let id = comms.begin(creation);
    let born = guard.wait(|state| state.comms.take_born(id));
    if let Some(context) = leaders {
        guard.engine.close(context);
    }
    born
}
