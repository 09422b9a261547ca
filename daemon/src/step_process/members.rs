//! The members of a group's epoch at the system level: the port of their PMI server, and the ends of their processes.
//!
//! PMI has no authentication of its own. The port is on loopback. A peer must have the uid of some member, and present that
//! member's `PMI_ID`, a number that only the member has received. Connections of other users are closed at once, and each user has its
//! own bound on silent ones, so that no other user can keep members out. PMIx clients connect to the same port. They present the job's
//! namespace and their rank instead, and the core checks that this member has their uid.

use std::cell::RefCell;
use std::collections::HashMap;
use std::io::ErrorKind;
use std::net::Ipv4Addr;
use std::rc::Rc;
use std::time::Duration;

use bytes::Bytes;
use nix::unistd::Pid;
use rsd_config::ports::PortRange;
use rsd_core::step::{Input, Local, MemberStart};
use rsd_proto::pmi::dialogue::{Request, RequestDecoder};
use rsd_proto::pmi::{v1, v2};
use rsd_proto::transport::loopback::loopback_peer_uid;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{Semaphore, mpsc};
use tracing::{debug, warn};

use super::Event;
use super::pmix_port::first_message;
use crate::network;
use crate::spawn::{Watched, is_exiting};

/// How long a peer may take to present its id.
const KNOCK_DEADLINE: Duration = Duration::from_secs(10);
/// It does so with `cmd=initack pmiid=N`, or with the two first messages of PMI-2.
const KNOCK_BYTES_MAX: usize = 256;
/// The first byte of a PMIx client, which no other dialect begins with.
const PMIX: u8 = 0xff;
/// The most connections of one user that have not yet presented their id.
const KNOCKS_MAX: usize = 256;
/// The pause after a failure to accept, which usually means that no descriptors are left.
const PAUSE: Duration = Duration::from_millis(50);

/// A peer has connected and presented its id.
#[derive(Debug)]
pub(super) struct Knock {
    pub(super) stream: TcpStream,
    pub(super) pmi_id: u32,
    pub(super) uid: u32,
    /// The bytes that it has sent.
    pub(super) bytes: Bytes,
}

/// The node's members.
#[derive(Debug)]
pub(super) struct Members {
    port: u16,
    listener: Option<TcpListener>,
    by_id: HashMap<(u32, u32), Local>,
    /// The members' users.
    users: Users,
    /// Pid and start time of the processes that are known on this node.
    processes: HashMap<Local, (u32, u64)>,
    events: mpsc::UnboundedSender<Event>,
}

/// The users of the members, each with the places of its connections that have not yet presented an id.
type Users = Rc<RefCell<HashMap<u32, Rc<Semaphore>>>>;

impl Members {
    /// Listens. No connection is accepted as a member before [`Members::expect`].
    pub(super) fn listen(ports: PortRange, events: mpsc::UnboundedSender<Event>) -> std::io::Result<Members> {
        let listener = network::in_range(ports, |port| network::listen((Ipv4Addr::LOCALHOST, port).into()))?;
        let port = listener.local_addr()?.port();
        let (by_id, users, processes) = (HashMap::new(), Users::default(), HashMap::new());
        Ok(Members { port, listener: Some(listener), by_id, users, processes, events })
    }

    pub(super) fn port(&self) -> u16 {
        self.port
    }

    /// Registers a member, and watches for the end of its process.
    pub(super) fn expect(&mut self, start: &MemberStart) {
        self.by_id.insert((start.pmi_id, start.uid), start.local);
        self.users.borrow_mut().entry(start.uid).or_insert_with(|| Rc::new(Semaphore::new(KNOCKS_MAX)));
        if start.pid > 0 {
            self.processes.insert(start.local, (start.pid, start.started));
        }
        if let Some(listener) = self.listener.take() {
            tokio::task::spawn_local(accept(listener, Rc::clone(&self.users), self.events.clone()));
        }
        let Some(pid) = i32::try_from(start.pid).ok().filter(|pid| *pid > 0).map(Pid::from_raw) else { return };
        let (events, local) = (self.events.clone(), start.local);
        match Watched::new(pid, start.started) {
            Ok(process) => drop(tokio::task::spawn_local(async move {
                tokio::select! {
                    () = process.end() => drop(events.send(Event::Input(Input::Gone(local)))),
                    () = events.closed() => {}
                }
            })),
            Err(error) if error.kind() == ErrorKind::NotFound => drop(events.send(Event::Input(Input::Gone(local)))),
            // The end of its connection also reports that it has ended.
            Err(error) => warn!(%pid, %error, "cannot watch a member"),
        }
    }

    /// Returns a member's process, if it is known on this node.
    pub(super) fn pid(&self, local: Local) -> Option<u32> {
        self.processes.get(&local).map(|(pid, _)| *pid)
    }

    /// Returns whether a member's process has ended or is exiting; false if it is unknown on this node.
    pub(super) fn is_exiting(&self, local: Local) -> bool {
        let process = self.processes.get(&local).and_then(|(pid, started)| Some((i32::try_from(*pid).ok()?, started)));
        process.is_some_and(|(pid, started)| is_exiting(Pid::from_raw(pid), *started))
    }

    /// Returns the member to which this connection belongs.
    pub(super) fn find(&self, knock: &Knock) -> Option<Local> {
        self.by_id.get(&(knock.pmi_id, knock.uid)).copied()
    }
}

async fn accept(listener: TcpListener, users: Users, events: mpsc::UnboundedSender<Event>) {
    loop {
        let accepted = tokio::select! {
            accepted = listener.accept() => accepted,
            () = events.closed() => return,
        };
        let Ok((stream, peer)) = accepted else {
            tokio::time::sleep(PAUSE).await;
            continue;
        };
        let uid = stream.local_addr().ok().and_then(|local| loopback_peer_uid(local, peer));
        let member = uid.and_then(|uid| Some((uid, Rc::clone(users.borrow().get(&uid)?))));
        let Some((uid, room)) = member else {
            debug!(%peer, uid, "dropped a connection of a user without members");
            continue;
        };
        let events = events.clone();
        tokio::task::spawn_local(async move {
            // The semaphore is never closed.
            let Ok(_permit) = room.acquire().await else { return };
            match tokio::time::timeout(KNOCK_DEADLINE, first_words(stream, uid)).await {
                Ok(Some(event)) => drop(events.send(event)),
                Ok(None) | Err(_) => debug!(%peer, "dropped a connection that did not present a member's id"),
            }
        });
    }
}

/// Reads until it is known which member the peer says it is, in whatever dialect.
async fn first_words(stream: TcpStream, uid: u32) -> Option<Event> {
    let mut first = [0];
    if stream.peek(&mut first).await.ok()? == 0 {
        return None;
    }
    match first == [PMIX] {
        true => first_message(stream, uid).await.map(Event::PmixArrival),
        false => {
            let (stream, pmi_id, bytes) = introduction(stream).await?;
            Some(Event::Knock(Knock { stream, pmi_id, uid, bytes }))
        }
    }
}

/// Reads until the peer has presented its id: in the first line of PMI-1, or in the first frame of PMI-2, which follows the answer to a
/// line that requests it. Returns what the step has to read.
async fn introduction(mut stream: TcpStream) -> Option<(TcpStream, u32, Bytes)> {
    let (mut decoder, mut bytes, mut answer) = (RequestDecoder::new(), Vec::new(), Vec::new());
    let id = loop {
        let Some(request) = decoder.next() else {
            let before = bytes.len();
            if before > KNOCK_BYTES_MAX || stream.read_buf(&mut bytes).await.ok()? == 0 {
                return None;
            }
            decoder.feed(&bytes[before..]);
            continue;
        };
        match request.ok()? {
            Request::One(v1::Request::InitAck { pmiid }) => break pmiid,
            Request::One(v1::Request::Init { version: 2, .. }) if answer.is_empty() => {
                v2::ACCEPTED.encode(&mut answer);
                stream.write_all(&answer).await.ok()?;
                // The step begins with the frame.
                bytes.drain(..=bytes.iter().position(|byte| *byte == b'\n')?);
            }
            // Slurm's library sends the id as `srcid`, MPICH as `pmirank`.
            Request::Two(v2::Asked { request: v2::Request::FullInit { pmirank, srcid }, .. }) if !answer.is_empty() => {
                break srcid.or(pmirank)?;
            }
            Request::One(_) | Request::Two(_) => return None,
        }
    };
    let pmi_id = std::str::from_utf8(&id).ok()?.parse().ok()?;
    stream.set_nodelay(true).ok()?;
    Some((stream, pmi_id, bytes.into()))
}
