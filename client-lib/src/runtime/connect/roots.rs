//! The part of the two roots: they find each other, and exchange their groups' data.

use std::time::{Duration, Instant};

use hmac_sha256::HMAC;

use super::super::foreign::malformed;
use super::Role;
use crate::abi::constants::{MPI_ERR_PORT, MPI_ERR_SPAWN};
use crate::engine::Peer;
use crate::error::{MpiError, MpiResult};
use crate::object::agree::Failure;
use crate::object::bridge::{Crossing, Swap};
use crate::object::context::word_of;
use crate::runtime::ports::port_name;
use crate::runtime::{Guard, State, manager};
use crate::transport::endpoint::Node;
use crate::transport::port::{Call, Line, PortName};

/// How long `MPI_Comm_connect` waits for the other side by default.
const CONNECT_LIMIT: Duration = Duration::from_secs(60);

/// How long an accepted caller may take to send its opening.
const CALLER_LIMIT: Duration = Duration::from_secs(30);

/// How often the state of the group's own members, and of a spawned job, is checked.
const LOOK: Duration = Duration::from_millis(300);

/// A root's first message.
#[derive(Debug, Clone, Copy)]
struct Opening {
    node: Node,
    /// Whether all members of its group are of its job and share that node.
    on_one_node: bool,
    nonce: [u64; 4],
}

/// The other root, once it is found.
#[derive(Debug)]
pub(super) struct OtherRoot {
    pub(super) channel: Channel,
    /// Whether members must listen for connections from other nodes.
    pub(super) needs_tcp: bool,
    /// A secret that only the two groups know.
    pub(super) secret: [u8; 32],
    /// True for exactly one of the two roots.
    pub(super) is_first: bool,
}

/// How two roots communicate: each sends any number of words, and receives the other's.
#[derive(Debug)]
pub(super) enum Channel {
    /// A root that fails closes the connection.
    Line(Line),
    /// A root that fails says so instead of its next message; until then both send in turn.
    Through {
        /// By messages of a communicator.
        crossing: Crossing,
        /// Neither has failed, and both have more to send.
        is_open: bool,
    },
}

/// Finds the other root.
pub(super) fn find(
    guard: &mut Guard<'_>,
    members: &[Peer],
    role: Role<'_>,
    limit: Option<Duration>,
) -> MpiResult<OtherRoot> {
    let mut nonce = [0; 32];
    let random = getrandom::fill(&mut nonce);
    let random = random.map_err(|error| MpiError::other(format!("cannot get random bytes: {error}")));
    let ours = Opening { node: Node::here(), on_one_node: guard.are_on_this_node(members), nonce: words_of(&nonce) };
    let (channel, theirs, is_first, port) = match role {
        Role::Through(crossing) => {
            let crossing = crossing.ok_or_else(|| MpiError::intern("a leader without a way to the other one"))?;
            let mut channel = Channel::Through { crossing, is_open: true };
            let said = random.and_then(|()| channel.swap(guard, &ours.to_words()));
            let nonsense = || MpiError::other("the other leader sent an invalid message");
            match said.and_then(|said| Opening::from_words(&said).ok_or_else(nonsense)) {
                Ok(theirs) => (channel, theirs, ours.nonce < theirs.nonce, None),
                Err(error) => {
                    channel.give_up(guard, &error);
                    return Err(error);
                }
            }
        }
        Role::Accept(text) | Role::Expect { port: text, .. } => {
            random?;
            let name = port_name(text)?;
            let expected = if let Role::Expect { job, .. } = role { Some(job) } else { None };
            let (line, theirs) = accept(guard, &name, &ours, members, limit, expected)?;
            (Channel::Line(line), theirs, true, Some(name))
        }
        Role::Connect(text) => {
            random?;
            let name = port_name(text)?;
            let (line, theirs) = connect(guard, name, &ours, members, limit.unwrap_or(CONNECT_LIMIT))?;
            (Channel::Line(line), theirs, false, Some(name))
        }
    };
    let [first, second] = if is_first { [ours.nonce, theirs.nonce] } else { [theirs.nonce, ours.nonce] };
    let said: Vec<u8> = first.into_iter().chain(second).flat_map(u64::to_ne_bytes).collect();
    let hash = |key: &[u8; 32]| HMAC::mac(&said, key);
    // Messages of a communicator are only known to its members.
    let secret = port.map_or_else(|| hash(&[0; 32]), |name| name.derive(hash));
    let needs_tcp = !(ours.on_one_node && theirs.on_one_node && ours.node.is(theirs.node));
    Ok(OtherRoot { channel, needs_tcp, secret, is_first })
}

fn accept(
    guard: &mut Guard<'_>,
    name: &PortName,
    ours: &Opening,
    members: &[Peer],
    limit: Option<Duration>,
    expected: Option<&[u8]>,
) -> MpiResult<(Line, Opening)> {
    guard.ports.get_mut(name)?;
    let deadline = limit.and_then(|limit| Instant::now().checked_add(limit));
    let mut taken: Option<(Line, Instant)> = None;
    let mut look_at = Instant::now() + LOOK;
    guard.wait(|state| {
        let now = Instant::now();
        loop {
            if taken.is_none() {
                let State { ports, engine, .. } = &mut *state;
                let next = ports.get_mut(name).and_then(|port| {
                    // Without a report, the next check finds it soon.
                    let next = port.next_caller(now, |socket| drop(engine.transport_mut().watch(socket)));
                    next.map_err(|error| port_error(format!("cannot accept: {error}")))
                });
                match next {
                    Ok(next) => taken = next.map(|line| (line, now + CALLER_LIMIT)),
                    Err(error) => return Some(Err(error)),
                }
            }
            let Some((mut line, until)) = taken.take() else { break };
            match line.receive() {
                // A caller that has given up in the meantime, or that sends an invalid message, is not accepted.
                Err(_) => {}
                Ok(None) if now >= until => {}
                Ok(None) => {
                    taken = Some((line, until));
                    break;
                }
                Ok(Some(words)) => {
                    if let Some(theirs) = Opening::from_words(&words)
                        && line.send(&ours.to_words()).is_ok()
                    {
                        return Some(Ok((line, theirs)));
                    }
                }
            }
        }
        if look_at <= now {
            look_at = now + LOOK;
            if let Some(error) = state.find_dead(members) {
                return Some(Err(error));
            }
            let lost = expected.map(|job| manager(state).map(|pmi| pmi.lost(job).ok().flatten()));
            if let Some(Ok(Some(why))) = lost {
                let text = format!("the spawned job will not connect: {why}");
                return Some(Err(MpiError::new(MPI_ERR_SPAWN, text)));
            }
        }
        let limit = limit.filter(|_| deadline.is_some_and(|deadline| deadline <= now))?;
        Some(Err(match expected {
            None => port_error(format!("no process connected to the port at {} within {limit:?}", name.address)),
            Some(_) => MpiError::new(
                MPI_ERR_SPAWN,
                format!(
                    "what was spawned has not called MPI_Init within {limit:?}: is it a program of MPI? (the info key timeout \
                     sets how many seconds are waited)"
                ),
            ),
        }))
    })
}

fn connect(
    guard: &mut Guard<'_>,
    name: PortName,
    ours: &Opening,
    members: &[Peer],
    limit: Duration,
) -> MpiResult<(Line, Opening)> {
    let now = Instant::now();
    let mut look_at = now + LOOK;
    let me = guard.comms.names.of_rank(guard.me().0);
    let mut call = Call::begin(me, name, limit, now);
    if let Some(socket) = call.fd() {
        // Without a report, the next check finds it soon.
        let _ = guard.engine.transport_mut().watch(socket);
    }
    guard.wake_others();
    let mut called: Option<Line> = None;
    guard.wait(|state| {
        let current = Instant::now();
        if called.is_none() {
            let transport = state.engine.transport_mut();
            match call.poll(current, |socket| drop(transport.watch(socket))) {
                Ok(None) => {}
                Ok(Some(mut line)) => match line.send(&ours.to_words()) {
                    Ok(()) => called = Some(line),
                    Err(error) => return Some(Err(hung_up(&error))),
                },
                Err(why) => return Some(Err(port_error(why))),
            }
        }
        match called.as_mut().map(Line::receive) {
            Some(Ok(Some(words))) => {
                let theirs = Opening::from_words(&words).ok_or_else(malformed);
                return called.take().map(|line| Ok((line, theirs?)));
            }
            Some(Err(error)) => return Some(Err(hung_up(&error))),
            Some(Ok(None)) | None => {}
        }
        if look_at <= current {
            look_at = current + LOOK;
            if let Some(error) = state.find_dead(members) {
                return Some(Err(error));
            }
        }
        (current.duration_since(now) >= limit).then(|| {
            Err(port_error(format!(
                "{} at {} has not accepted within {limit:?}: is it in MPI_Comm_accept? (the info key timeout sets how many \
                 seconds are waited)",
                name.owner, name.address
            )))
        })
    })
}

impl Channel {
    /// Sends these words to the other root, and returns its words.
    pub(super) fn swap(&mut self, guard: &mut Guard<'_>, words: &[u64]) -> MpiResult<Vec<u64>> {
        match self {
            Channel::Line(line) => {
                line.send(words).map_err(|error| hung_up(&error))?;
                let theirs = guard.wait(|_| line.receive().map_err(|error| hung_up(&error)).transpose())?;
                guard.wait(|_| match line.flush() {
                    Ok(false) => None,
                    Ok(true) => Some(Ok(())),
                    Err(error) => Some(Err(hung_up(&error))),
                })?;
                Ok(theirs)
            }
            Channel::Through { crossing, is_open } => {
                let said = swap_through(guard, *crossing, None, words);
                *is_open = said.is_ok();
                said
            }
        }
    }

    /// Both roots know each other's group: from now on the processes listen for each other, and the channel is closed.
    pub(super) fn confirm(&mut self, guard: &mut Guard<'_>) -> MpiResult {
        match self {
            Channel::Line(line) => {
                line.send(&[]).map_err(|error| hung_up(&error))?;
                guard.wait(|_| line.receive().map_err(|error| hung_up(&error)).transpose()).map(drop)
            }
            Channel::Through { crossing, is_open } => {
                *is_open = false;
                swap_through(guard, *crossing, None, &[]).map(drop)
            }
        }
    }

    /// The other root waits for a message that this one will not send, because it has failed.
    pub(super) fn give_up(self, guard: &mut Guard<'_>, error: &MpiError) {
        if let Channel::Through { crossing, is_open: true } = self {
            // The other root's answer does not matter.
            let _ = swap_through(guard, crossing, Some(Failure::of(error)), &[]);
        }
    }
}

fn swap_through(
    guard: &mut Guard<'_>,
    crossing: Crossing,
    failure: Option<Failure>,
    words: &[u64],
) -> MpiResult<Vec<u64>> {
    let said = [0, 0, failure.map_or(0, word_of)];
    let mut swap = Swap::start(crossing, said, words.to_vec(), &mut guard.engine);
    let mut came = guard.wait(|state| swap.poll(&mut state.engine))?;
    match came.get(2) {
        Some(0) => Ok(came.split_off(3)),
        Some(word) if *word == word_of(Failure::Death) => Err(Failure::Death.error()),
        Some(_) | None => Err(Failure::Other.error()),
    }
}

fn port_error(text: String) -> MpiError {
    MpiError::new(MPI_ERR_PORT, text)
}

#[cold]
fn hung_up(error: &std::io::Error) -> MpiError {
    port_error(format!("the other side gave up or died: {error}"))
}

impl Opening {
    fn to_words(self) -> Vec<u64> {
        let mut words = vec![u64::from(self.on_one_node)];
        words.extend(self.node.to_words());
        words.extend(self.nonce);
        words
    }

    fn from_words(words: &[u64]) -> Option<Self> {
        let &[near, machine, label, a, b, c, d] = words else { return None };
        Some(Self { node: Node::from_words([machine, label]), on_one_node: near == 1, nonce: [a, b, c, d] })
    }
}

pub(super) fn words_of(bytes: &[u8; 32]) -> [u64; 4] {
    let mut words = [0; 4];
    for (word, bytes) in words.iter_mut().zip(bytes.chunks_exact(8)) {
        *word = bytes.try_into().map_or(0, u64::from_ne_bytes);
    }
    words
}

impl State {
    /// Whether all of these are of this job and on this process's node.
    fn are_on_this_node(&self, members: &[Peer]) -> bool {
        let Some(world) = &self.world else { return false };
        let node = |peer: Peer| world.nodes.get(peer.0 as usize);
        world.settings.shm && members.iter().all(|peer| node(*peer).is_some() && node(*peer) == node(self.me()))
    }
}
