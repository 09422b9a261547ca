//! Two groups of processes that know nothing of each other become one intercommunicator (MPI 5.0 §11.9).
//!
//! Each has a root; the roots reach each other over a port. What all members of a group do:
//!
//! 1. *meeting*: the roots find each other and say whether all their members share one node; the others wait for
//! 2. *word of it*: whether there is somebody, and whether members have to listen for connections from other nodes;
//! 3. *introductions*: every member says who and where it is, and all of its group learn that;
//! 4. *crossing*: the roots swap the introductions of their groups, and
//! 5. *telling*: all learn those of the others;
//! 6. *comparing*, if any member knows processes of other jobs: whom of the others each knows already, the roots swap that, too;
//! 7. *acquaintance*: the others become peers ([`super::acquaintance`]), and the roots confirm that to each other;
//! 8. *bridging*: the groups agree on a context, as any two groups with leaders do ([`crate::object::bridge`]). The leaders talk on a
//!    context of theirs that follows from the secret.
//!
//! By 8 everybody of a group knows all of the other one before anybody of that can send. Whoever fails says so in the next exchange,
//! and a root by hanging up. Only the meeting has a deadline: after it, what is waited for is that all members make the call, or
//! die. Cost: 8⌈log₂ n⌉ + 6 messages one after the other, and 2⌈log₂ n⌉ + 1 for comparing, of a word for each pair of members.

use std::sync::Arc;
use std::time::{Duration, Instant};

use hmac_sha256::HMAC;

use super::acquaintance::{acquaint, agreed};
use super::ports::port_name;
use super::{Guard, State, manager};
use crate::abi::CommHandle;
use crate::abi::constants::{MPI_ERR_OTHER, MPI_ERR_PORT, MPI_ERR_SPAWN};
use crate::engine::Peer;
use crate::error::{MpiError, MpiResult};
use crate::object::agree::{Circle, Exchange, Exchanged, tag};
use crate::object::bridge::Crossing;
use crate::object::comm::Communicator;
use crate::object::creation::{Born, Creation};
use crate::transport::port::{Call, Line, PortName};
use crate::transport::whereabouts::{self, Introduction, Node};

/// What a root does to find the other one; the name of the port is the root's alone.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Role<'a> {
    /// It waits at its own port.
    Accept(&'a [u8]),
    /// It waits there for a job that it has spawned, as long as the process manager does not say that this is lost.
    Expect {
        /// The port.
        port: &'a [u8],
        /// The job's name.
        job: &'a [u8],
    },
    /// It goes to another's port.
    Connect(&'a [u8]),
}

/// How long `MPI_Comm_connect` waits for the other side if the user does not say.
const CONNECT_LIMIT: Duration = Duration::from_secs(60);

/// How long a caller whose turn it is may take to say what it wants.
const CALLER_LIMIT: Duration = Duration::from_secs(30);

/// How often the process manager is asked what has become of a job that was spawned.
const LOOK: Duration = Duration::from_millis(300);

/// What a root says first.
#[derive(Debug, Clone, Copy)]
struct Opening {
    node: Node,
    /// Whether all of its group are of its job and share that node.
    is_near: bool,
    nonce: [u64; 4],
}

/// What all members of a group have called with.
struct Side<'a> {
    comm: CommHandle,
    /// Its members.
    circle: Circle,
    root: u32,
    role: Role<'a>,
}

/// Two roots that have met.
struct Met {
    line: Line,
    needs_tcp: bool,
    secret: [u8; 32],
}

/// The context on which two leaders talk that have no other.
const LEADERS: u32 = 1 << 31;

/// No group tells more words than this.
const THEIRS_MAX: u64 = 1 << 28;

/// Makes an intercommunicator of this communicator's group and the one at the other end. All members call it; `limit` is the root's.
pub fn meet(
    guard: &mut Guard<'_>,
    comm: CommHandle,
    root: u32,
    role: Role<'_>,
    limit: Option<Duration>,
) -> MpiResult<CommHandle> {
    let parent = guard.comms.get_mut(comm)?;
    let (circle, group) = (parent.circle_of_all(), Arc::clone(parent.group()));
    let Communicator { errhandler, session, rank, .. } = *parent;
    let (met, fault) = match (rank == root).then(|| find(guard, &group.members, role, limit)).transpose() {
        Ok(met) => (met, None),
        Err(error) => (None, Some(error)),
    };
    let needs_tcp = met.as_ref().is_some_and(|met| met.needs_tcp);
    let heard = words(guard, &circle, &[u64::from(needs_tcp), class(fault.as_ref())])?;
    check(fault, heard[1], role)?;

    let mut new = Vec::new();
    // Nobody may be taken leave of between the word that he is known and the communicator, by other threads either.
    guard.hold_partings();
    let made = bring_together(guard, Side { comm, circle, root, role }, met, heard[0] != 0, &mut new);
    let made = made.and_then(|born| guard.comms.add(Communicator { session, ..Communicator::born(born, errhandler) }));
    guard.resume_partings();
    match made {
        Ok(made) => {
            guard.errhandlers.used(errhandler);
            Ok(made)
        }
        Err(error) => {
            guard.leave(&new);
            Err(error)
        }
    }
}

/// From the introductions to the bridge; `new` are the peers that this process comes to know.
fn bring_together(
    guard: &mut Guard<'_>,
    side: Side<'_>,
    met: Option<Met>,
    listens: bool,
    new: &mut Vec<Peer>,
) -> MpiResult<Born> {
    let (circle, root, role) = (&side.circle, side.root, side.role);
    let ours = introduce(guard, listens);
    let told = ours.as_ref().map_or([u64::MAX; whereabouts::WORDS], Introduction::tell);
    let list = blocks(guard, circle, &told)?;
    let all_here = list.chunks(whereabouts::WORDS).all(|it| Introduction::understand(it).is_some());
    let ours = ours?;
    if !all_here {
        return Err(MpiError::other("another member of the communicator cannot listen for the other side"));
    }

    let (theirs, mut line, fault) = match met.map(|met| cross(guard, met, root, &list)).transpose() {
        Ok(Some((theirs, line))) => (Some(theirs), Some(line), None),
        Ok(None) => (None, None, None),
        Err(error) => (None, None, Some(error)),
    };
    let len = theirs.as_ref().map_or(0, |theirs| theirs.len() as u64);
    let heard = words(guard, circle, &[len, class(fault.as_ref())])?;
    check(fault, heard[1], role)?;
    if heard[0] > THEIRS_MAX {
        return Err(strange());
    }
    let theirs = theirs.unwrap_or_else(|| vec![0; heard[0] as usize]);
    let theirs = Theirs::understand(&words(guard, circle, &theirs)?);

    let mut numbers = Vec::new();
    if let Ok(theirs) = &theirs {
        let members = list.chunks(whereabouts::WORDS).filter_map(Introduction::understand);
        numbers = match members.chain(theirs.members.iter().copied()).any(|member| member.knows_strangers) {
            true => compare(guard, &side, line.as_mut(), theirs)?,
            false => vec![0; theirs.members.len()],
        };
    }
    let peers = theirs.as_ref().map_err(MpiError::clone).and_then(|theirs| {
        let peers = acquaint(guard, &ours, theirs, &numbers, new)?;
        if let Some(line) = line {
            confirm(guard, line)?;
            guard.engine.transport_mut().trust_with(peers[theirs.root as usize], theirs.secret);
        }
        Ok(peers)
    });
    let made = bridge(guard, side, theirs.as_ref().ok().zip(peers.as_deref().ok()), peers.is_err());
    let (theirs, peers) = (theirs?, peers?);
    let born = made?.ok_or_else(|| MpiError::intern("an intercommunicator without this process"))?;
    // All of them know this process by now.
    for peer in peers {
        guard.engine.transport_mut().trust_with(peer, theirs.secret);
    }
    Ok(born)
}

/// What goes to the others instead of success.
fn class(fault: Option<&MpiError>) -> u64 {
    fault.map_or(0, |error| error.class as u64)
}

/// This process's own fault, or the one that its root speaks of.
fn check(fault: Option<MpiError>, class: u64, role: Role<'_>) -> MpiResult {
    let what = match role {
        Role::Accept(_) | Role::Expect { .. } => "accepting",
        Role::Connect(_) => "connecting",
    };
    match (fault, class) {
        (Some(fault), _) => Err(fault),
        (None, 0) => Ok(()),
        (None, class) => {
            let class = i32::try_from(class).unwrap_or(MPI_ERR_OTHER);
            Err(MpiError::new(class, format!("the root has failed in {what}, and knows why")))
        }
    }
}

// --- the roots ---

/// Finds the other root.
fn find(guard: &mut Guard<'_>, members: &[Peer], role: Role<'_>, limit: Option<Duration>) -> MpiResult<Met> {
    let (Role::Accept(text) | Role::Expect { port: text, .. } | Role::Connect(text)) = role;
    let name = port_name(text)?;
    let mut nonce = [0; 32];
    getrandom::fill(&mut nonce).map_err(|error| MpiError::other(format!("cannot get random bytes: {error}")))?;
    let nonce = words_of(&nonce);
    let ours = Opening { node: Node::here(), is_near: guard.are_near(members), nonce };
    let (line, theirs) = match role {
        Role::Accept(_) => accept(guard, &name, &ours, limit, None)?,
        Role::Expect { job, .. } => accept(guard, &name, &ours, limit, Some(job))?,
        Role::Connect(_) => connect(guard, name, &ours, limit.unwrap_or(CONNECT_LIMIT))?,
    };
    let [first, second] = match role {
        Role::Accept(_) | Role::Expect { .. } => [ours.nonce, theirs.nonce],
        Role::Connect(_) => [theirs.nonce, ours.nonce],
    };
    let said: Vec<u8> = first.into_iter().chain(second).flat_map(u64::to_ne_bytes).collect();
    let needs_tcp = !(ours.is_near && theirs.is_near && ours.node.is(theirs.node));
    Ok(Met { line, needs_tcp, secret: name.derive(|key| HMAC::mac(&said, key)) })
}

fn accept(
    guard: &mut Guard<'_>,
    name: &PortName,
    ours: &Opening,
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
                    // Without a report it is found by the next look, which is not far.
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
                // Who has given up meanwhile, or says what makes no sense, has not been accepted.
                Err(_) => {}
                Ok(None) if now >= until => {}
                Ok(None) => {
                    taken = Some((line, until));
                    break;
                }
                Ok(Some(words)) => {
                    if let Some(theirs) = Opening::understand(&words)
                        && line.send(&ours.tell()).is_ok()
                    {
                        return Some(Ok((line, theirs)));
                    }
                }
            }
        }
        if let Some(job) = expected.filter(|_| look_at <= now) {
            look_at = now + LOOK;
            let lost = manager(state).map(|pmi| pmi.lost(job).ok().flatten());
            if let Ok(Some(why)) = lost {
                let text = format!("what was spawned will not come: {why}");
                return Some(Err(MpiError::new(MPI_ERR_SPAWN, text)));
            }
        }
        let limit = limit.filter(|_| deadline.is_some_and(|deadline| deadline <= now))?;
        Some(Err(port_error(format!("nobody has connected to the port at {} within {limit:?}", name.address))))
    })
}

fn connect(guard: &mut Guard<'_>, name: PortName, ours: &Opening, limit: Duration) -> MpiResult<(Line, Opening)> {
    let now = Instant::now();
    let me = guard.comms.names.of_rank(guard.me().0);
    let mut call = Call::begin(me, name, limit, now);
    if let Some(socket) = call.fd() {
        // Without a report it is found by the next look, which is not far.
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
                Ok(Some(mut line)) => match line.send(&ours.tell()) {
                    Ok(()) => called = Some(line),
                    Err(error) => return Some(Err(hung_up(&error))),
                },
                Err(why) => return Some(Err(port_error(why))),
            }
        }
        match called.as_mut().map(Line::receive) {
            Some(Ok(Some(words))) => {
                let theirs = Opening::understand(&words).ok_or_else(strange);
                return called.take().map(|line| Ok((line, theirs?)));
            }
            Some(Err(error)) => return Some(Err(hung_up(&error))),
            Some(Ok(None)) | None => {}
        }
        (current.duration_since(now) >= limit).then(|| {
            Err(port_error(format!(
                "rank {} at {} has not accepted within {limit:?}: is it in MPI_Comm_accept? (the info key timeout sets how many \
                 seconds are waited)",
                name.owner.rank, name.address
            )))
        })
    })
}

/// Swaps the groups' introductions; theirs in words, with the secret.
fn cross(guard: &mut Guard<'_>, met: Met, root: u32, list: &[u64]) -> MpiResult<(Vec<u64>, Line)> {
    let Met { mut line, secret, .. } = met;
    let mut message = vec![u64::from(root)];
    message.extend_from_slice(list);
    let mut words = swap(guard, &mut line, &message)?;
    words.extend(words_of(&secret));
    Ok((words, line))
}

/// Says this to the other root, and hears what that says.
fn swap(guard: &mut Guard<'_>, line: &mut Line, words: &[u64]) -> MpiResult<Vec<u64>> {
    line.send(words).map_err(|error| hung_up(&error))?;
    let theirs = guard.wait(|_| line.receive().map_err(|error| hung_up(&error)).transpose())?;
    guard.wait(|_| match line.flush() {
        Ok(false) => None,
        Ok(true) => Some(Ok(())),
        Err(error) => Some(Err(hung_up(&error))),
    })?;
    Ok(theirs)
}

/// Both roots know each other's group: from now on they listen for each other, and the line has served.
fn confirm(guard: &mut Guard<'_>, mut line: Line) -> MpiResult {
    line.send(&[]).map_err(|error| hung_up(&error))?;
    guard.wait(|_| line.receive().map_err(|error| hung_up(&error)).transpose()).map(drop)
}

fn port_error(text: String) -> MpiError {
    MpiError::new(MPI_ERR_PORT, text)
}

#[cold]
fn hung_up(error: &std::io::Error) -> MpiError {
    port_error(format!("the other side has given up, or died: {error}"))
}

#[cold]
pub(super) fn strange() -> MpiError {
    port_error("the other side says what makes no sense".to_owned())
}

impl Opening {
    fn tell(&self) -> Vec<u64> {
        let mut words = vec![u64::from(self.is_near)];
        words.extend(self.node.tell());
        words.extend(self.nonce);
        words
    }

    fn understand(words: &[u64]) -> Option<Self> {
        let &[near, machine, label, a, b, c, d] = words else { return None };
        Some(Self { node: Node::understand([machine, label]), is_near: near == 1, nonce: [a, b, c, d] })
    }
}

fn words_of(bytes: &[u8; 32]) -> [u64; 4] {
    let mut words = [0; 4];
    for (word, bytes) in words.iter_mut().zip(bytes.chunks_exact(8)) {
        *word = bytes.try_into().map_or(0, u64::from_ne_bytes);
    }
    words
}

// --- all members ---

/// The largest of each word that members bring.
pub(super) fn words(guard: &mut Guard<'_>, circle: &Circle, words: &[u64]) -> MpiResult<Vec<u64>> {
    match exchange(guard, Exchange::of_words(circle.clone(), words))? {
        Exchanged::Words(words) => Ok(words),
        Exchanged::Blocks(_) => Err(MpiError::intern("blocks where words were exchanged")),
    }
}

/// What all members bring, in the order of their ranks.
fn blocks(guard: &mut Guard<'_>, circle: &Circle, block: &[u64]) -> MpiResult<Vec<u64>> {
    let block: Vec<u8> = block.iter().flat_map(|word| word.to_ne_bytes()).collect();
    match exchange(guard, Exchange::of_blocks(circle.clone(), &block))? {
        Exchanged::Blocks(bytes) => {
            Ok(bytes.chunks_exact(8).filter_map(|it| it.try_into().ok().map(u64::from_ne_bytes)).collect())
        }
        Exchanged::Words(_) => Err(MpiError::intern("words where blocks were exchanged")),
    }
}

/// Others go on to a next exchange, where they hear of it if this one fails.
fn exchange(guard: &mut Guard<'_>, mut exchange: Exchange) -> MpiResult<Exchanged> {
    let came = guard.wait(|state| exchange.poll(&mut state.engine));
    if came.is_err() {
        exchange.warn(&mut guard.engine);
    }
    came
}

fn introduce(guard: &mut Guard<'_>, listens: bool) -> MpiResult<Introduction> {
    let me = guard.comms.names.of_rank(guard.me().0);
    let State { comms, engine, world, .. } = &mut **guard;
    let Some(world) = world else { return Err(MpiError::intern("the library is not open")) };
    let introduced = engine.transport_mut().introduce(me, &world.settings, listens, comms.names.knows_strangers());
    introduced.map_err(|error| MpiError::other(format!("cannot listen for the other side: {error}")))
}

/// The other group, as its root has told.
#[derive(Debug)]
pub(super) struct Theirs {
    root: u32,
    pub(super) members: Vec<Introduction>,
    pub(super) secret: [u8; 32],
}

/// Which acquaintance with each of the others the new communicator is to rest on, as both sides find it.
fn compare(guard: &mut Guard<'_>, side: &Side<'_>, line: Option<&mut Line>, theirs: &Theirs) -> MpiResult<Vec<u64>> {
    let circle = &side.circle;
    let ours: Vec<u64> = theirs.members.iter().map(|member| guard.acquaintance(member.name)).collect();
    let all = blocks(guard, circle, &ours)?;
    let said = line.map(|line| swap(guard, line, &all)).transpose();
    let said = said.and_then(|said| match said.as_ref().is_none_or(|said| said.len() == all.len()) {
        true => Ok(said),
        false => Err(strange()),
    });
    let (said, fault) = match said {
        Ok(said) => (said, None),
        Err(error) => (None, Some(error)),
    };
    let mut said = said.unwrap_or_else(|| vec![0; all.len()]);
    said.push(class(fault.as_ref()));
    let heard = words(guard, circle, &said)?;
    let (fault_class, heard) = heard.split_last().ok_or_else(strange)?;
    check(fault, *fault_class, side.role)?;
    Ok(agreed(&ours, heard, circle.place))
}

impl Theirs {
    fn understand(words: &[u64]) -> MpiResult<Self> {
        let (said, secret) = words.split_last_chunk::<4>().ok_or_else(strange)?;
        let (root, list) = said.split_first().ok_or_else(strange)?;
        let members: Option<Vec<_>> = list.chunks(whereabouts::WORDS).map(Introduction::understand).collect();
        let members = members.filter(|members| *root < members.len() as u64).ok_or_else(strange)?;
        let mut bytes = [0; 32];
        for (bytes, word) in bytes.chunks_exact_mut(8).zip(secret) {
            bytes.copy_from_slice(&word.to_ne_bytes());
        }
        Ok(Self { root: *root as u32, members, secret: bytes })
    }
}

impl State {
    /// Whether all of these are of this job, and on this process's node.
    fn are_near(&self, members: &[Peer]) -> bool {
        let Some(world) = &self.world else { return false };
        let node = |peer: Peer| world.nodes.get(peer.0 as usize);
        world.settings.shm && members.iter().all(|peer| node(*peer).is_some() && node(*peer) == node(self.me()))
    }
}

/// Makes the two groups agree on a context, if this process knows the other group.
fn bridge(
    guard: &mut Guard<'_>,
    side: Side<'_>,
    others: Option<(&Theirs, &[Peer])>,
    fails: bool,
) -> MpiResult<Option<Born>> {
    let Side { comm, circle, root, role } = side;
    let group = Arc::clone(guard.comms.get(comm)?.group());
    let mut leaders = None;
    let crossing = match others {
        Some((theirs, peers)) if group.rank == Some(root) => {
            let context = LEADERS | (u32::from_ne_bytes([0, 1, 2, 3].map(|at| theirs.secret[at])) & 0x3fff_ffff);
            let (me, to) = (guard.me(), peers[theirs.root as usize]);
            let (rank, from, members) = match role {
                Role::Accept(_) | Role::Expect { .. } => (0, 1, [me, to]),
                Role::Connect(_) => (1, 0, [to, me]),
            };
            guard.engine.open_own(context, Arc::from(members));
            leaders = Some(context);
            Some(Crossing { context, rank, from, to, tag: tag::of_leaders(0) })
        }
        Some(_) | None => None,
    };
    let State { comms, engine, requests, .. } = &mut **guard;
    comms.sweep(engine, requests);
    let creation = Creation::between(circle, group, crossing, &mut comms.contexts, fails);
    let id = comms.begin(creation);
    let born = guard.wait(|state| state.comms.take_born(id));
    if let Some(context) = leaders {
        guard.engine.close(context);
    }
    born
}
