//! Accepts joins of running processes of this node to named groups: over the socket `join.sock`, line by line as
//! [`rsd_proto::join`] says, and over gRPC.
//!
//! A connection is a lease: the place is given up when the connection closes, or when the process that gets the place ends. The
//! kernel identifies the process that has connected. The state machine decides about the join.

use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::sync::Arc;
use std::time::Duration;

use anyhow::Context;
use bytes::Bytes;
use nix::unistd::{Pid, geteuid};
use rsd_core::rsd::{Caller, Input, MemberId};
use rsd_proto::join::{BY_OTHER, Decoder, Event, Join, Line};
use rsd_proto::transport::{Share, Shares, exit};
use rsd_proto::v1::GroupJoin;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{UnixListener, UnixStream};
use tokio::sync::{Semaphore, mpsc};
use tracing::{debug, warn};

use super::callers::{Callers, ROOT};
use crate::disk::runtime_dir::RuntimeDir;
use crate::door::{self, Door};
use crate::random::random;
use crate::spawn::{Watched, start_time};

/// How long a client may take to send its request, and to read an answer.
const TALK_DEADLINE: Duration = Duration::from_secs(10);
/// The most processes that may wait here.
const CLIENTS_MAX: usize = 16 << 10;
/// The pause after a failure to accept, which usually means that no descriptors are left.
const PAUSE: Duration = Duration::from_millis(50);
/// The most connections of a user beyond its share, which are refused with the reason. Further ones are closed.
const OVER_MAX: usize = 16;

/// A requested place in a group.
struct Lease {
    door: Door,
    member: MemberId,
    events: mpsc::UnboundedReceiver<Event>,
    /// The process that gets the place, if another process requests it.
    process: Option<(Pid, Watched)>,
}

/// Listens in the directory of the daemon's sockets, for its own user and root.
pub(crate) fn listen(dir: &RuntimeDir) -> anyhow::Result<UnixListener> {
    let path = dir.path().join(rsd_proto::join::SOCKET);
    // This daemon holds the lock, so an existing socket belonged to a dead daemon.
    let _ = std::fs::remove_file(&path);
    let listener = UnixListener::bind(&path).with_context(|| format!("listen on {}", path.display()))?;
    std::fs::set_permissions(&path, std::fs::Permissions::from_mode(dir.socket_mode()))?;
    Ok(listener)
}

/// Serves the socket until the daemon ends. Where it serves all users, each connection takes one of its user's `connections`.
pub(crate) async fn serve(listener: UnixListener, callers: Callers, connections: Shares, door: Door) {
    let room = Arc::new(Semaphore::new(CLIENTS_MAX));
    loop {
        let Ok((stream, _)) = listener.accept().await else {
            tokio::time::sleep(PAUSE).await;
            continue;
        };
        let Ok(credentials) = stream.peer_cred() else { continue };
        let (uid, pid) = (credentials.uid(), credentials.pid().and_then(|pid| u32::try_from(pid).ok()));
        if !callers.serves_all && uid != ROOT && uid != geteuid().as_raw() {
            continue;
        }
        let share = match callers.serves_all.then(|| connections.take(uid, OVER_MAX)) {
            Some(Some(share)) if share.is_over() => {
                tokio::spawn(refuse(stream, share));
                continue;
            }
            Some(None) => continue,
            share => share.flatten(),
        };
        let Ok(permit) = Arc::clone(&room).try_acquire_owned() else {
            warn!(CLIENTS_MAX, "too many processes wait for places in groups: refused a connection");
            continue;
        };
        let door = door.clone();
        tokio::spawn(async move {
            // Without a name, the head refuses.
            let user = callers.name_of(Caller { uid, is_admin: false }).await.unwrap_or_default();
            talk(stream, Process { uid, user, pid }, &door).await;
            drop((permit, share));
        });
    }
}

/// Refuses a connection of a user who has too many.
async fn refuse(mut stream: UnixStream, share: Share) {
    let text = "you have as many connections to this daemon as it allows a user (setting users.connections)".to_owned();
    // A client that can no longer send its request does not read the answer.
    let _ = tokio::time::timeout(TALK_DEADLINE, request(&mut stream)).await;
    let _ = say(&mut stream, &Event::Error { code: exit::NOT_PERMITTED, text }).await;
    drop(share);
}

/// The process that requests a join, over a unix socket.
#[derive(Debug, Clone)]
pub(crate) struct Process {
    pub(crate) uid: u32,
    /// The name of its user; empty in a DVM that serves one user.
    pub(crate) user: String,
    /// Its pid in our namespace; None if the kernel does not report it.
    pub(crate) pid: Option<u32>,
}

/// Serves one client, from its request to its answer.
async fn talk(mut stream: UnixStream, peer: Process, door: &Door) {
    let lease = match tokio::time::timeout(TALK_DEADLINE, request(&mut stream)).await {
        Ok(Some(Ok(join))) => Lease::take(door, peer, join),
        Ok(Some(Err(refusal))) => Err(refusal),
        // The client has disconnected, or sent nothing.
        Ok(None) | Err(_) => return,
    };
    let mut lease = match lease {
        Ok(lease) => lease,
        Err(refusal) => {
            // The client may have disconnected.
            let _ = say(&mut stream, &refusal).await;
            return;
        }
    };
    let mut rest = [0; 64];
    loop {
        let event = tokio::select! {
            event = lease.next() => event,
            // The client sends nothing more; the read only detects the end of the connection.
            read = stream.read(&mut rest) => match read {
                Ok(1..) => continue,
                Ok(0) | Err(_) => None,
            },
        };
        let Some(event) = event else { return lease.give_up() };
        let told = say(&mut stream, &event).await;
        if !matches!(event, Event::Wait(_)) {
            return;
        }
        if told.is_err() {
            return lease.give_up();
        }
    }
}

/// Reads the client's one line. Returns an error if the line is invalid, and None if the client has disconnected.
async fn request(stream: &mut UnixStream) -> Option<Result<Join, Event>> {
    let mut decoder = Decoder::default();
    let mut buffer = [0; 1024];
    loop {
        if let Some(line) = decoder.next_line::<Join>() {
            return Some(line.map_err(|error| Event::Error {
                code: if error.is_version() { exit::VERSION } else { exit::USAGE },
                text: format!("invalid join request: {error}"),
            }));
        }
        match stream.read(&mut buffer).await {
            Ok(n @ 1..) => decoder.feed(&buffer[..n]),
            Ok(0) | Err(_) => return None,
        }
    }
}

async fn say(stream: &mut UnixStream, event: &Event) -> Result<(), ()> {
    let line = event.line();
    let written = tokio::time::timeout(TALK_DEADLINE, stream.write_all(line.as_bytes())).await;
    written.map_err(drop)?.map_err(drop)
}

impl Lease {
    /// Sends the core a request for a place; the core answers by events.
    fn take(door: &Door, peer: Process, join: Join) -> Result<Lease, Event> {
        let refused = |code, text: String| Err(Event::Error { code, text });
        let other = join.pid.filter(|pid| Some(*pid) != peer.pid);
        let pid = other.or(peer.pid).unwrap_or(0);
        let started = process(pid).and_then(start_time).unwrap_or(0);
        let process = match other.and_then(process) {
            Some(other) => {
                let owner = std::fs::metadata(format!("/proc/{other}")).map(|meta| meta.uid());
                match owner {
                    Ok(uid) if uid == peer.uid || peer.uid == 0 => {}
                    Ok(uid) => return refused(exit::NOT_PERMITTED, format!("process {other} belongs to uid {uid}")),
                    Err(_) => return refused(exit::USAGE, format!("no process {other} on this node")),
                }
                match Watched::new(other, started) {
                    Ok(watched) => Some((other, watched)),
                    Err(error) => return refused(exit::USAGE, format!("cannot watch process {other}: {error}")),
                }
            }
            None => None,
        };
        let (token, pmi_id, random) = match random::<32>() {
            Ok(bytes) => {
                let pmi_id = u32::from_ne_bytes([bytes[0], bytes[1], bytes[2], bytes[3]]);
                (hex(&bytes[4..20]), pmi_id, Bytes::copy_from_slice(&bytes[20..]))
            }
            Err(error) => return refused(exit::INTERNAL, format!("cannot read random bytes: {error}")),
        };
        let join = GroupJoin {
            group: join.group.unwrap_or_default(),
            token: join.token.unwrap_or(token),
            pmi_id,
            size: join.size,
            min: join.min,
            max: join.max,
            rank: join.rank,
            timeout_ms: join.timeout_ms,
            export: join.export.unwrap_or_default(),
            pid,
            started,
            uid: peer.uid,
            user: peer.user,
            by_other: process.is_some(),
            random,
            namespace: join.namespace.unwrap_or_default(),
            ..GroupJoin::default()
        };
        debug!(group = join.group, pid, "a process requests a place");
        let (client, events) = mpsc::unbounded_channel();
        let member = door.new_link();
        door.send(door::Event::Join { member, join: Box::new(join), client });
        Ok(Lease { door: door.clone(), member, events, process })
    }

    /// Returns the next message for the client; None when the daemon ends. If the process that gets the place ends, gives up the
    /// place.
    async fn next(&mut self) -> Option<Event> {
        match &self.process {
            None => self.events.recv().await,
            Some((pid, process)) => tokio::select! {
                event = self.events.recv() => event,
                () = process.end() => {
                    let text = format!("process {pid}, for which the place was requested, has ended: {BY_OTHER}");
                    self.give_up();
                    Some(Event::Error { code: exit::USAGE, text })
                }
            },
        }
    }

    fn give_up(&self) {
        self.door.send(door::Event::Input(Input::MemberGone { member: self.member }));
    }
}

/// Serves a join over gRPC.
pub(crate) fn over_grpc(door: &Door, peer: Process, join: Join) -> mpsc::Receiver<Event> {
    let (client, stream) = mpsc::channel(16);
    // Converts to the text form and back, so that the same values are invalid in both forms.
    let lease = Join::parse(join.line().trim_end())
        .map_err(|error| Event::Error { code: exit::USAGE, text: error.to_string() })
        .and_then(|join| Lease::take(door, peer, join));
    tokio::spawn(async move {
        let mut lease = match lease {
            Ok(lease) => lease,
            Err(refusal) => return drop(client.send(refusal).await),
        };
        loop {
            let event = tokio::select! {
                event = lease.next() => event,
                () = client.closed() => None,
            };
            let Some(event) = event else { return lease.give_up() };
            let goes_on = matches!(event, Event::Wait(_));
            let told = client.send(event).await.is_ok();
            match (goes_on, told) {
                (true, true) => {}
                (true, false) => return lease.give_up(),
                (false, _) => return,
            }
        }
    });
    stream
}

fn process(pid: u32) -> Option<Pid> {
    i32::try_from(pid).ok().filter(|pid| *pid > 0).map(Pid::from_raw)
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}
