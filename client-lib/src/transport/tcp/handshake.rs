//! Sockets that cannot carry frames yet: dialled or accepted ones in their handshake.
//!
//! An attempt to connect has a deadline. A dialler that is connected waits without limit, because the acceptor may be computing.
//! For the same reason an acceptor waits for a proof without limit, but for a hello only for a limited time, after which it
//! closes the connection; a dialler whose hello was late, because it was computing, notices this and dials again.

use std::collections::HashMap;
use std::io::{self, ErrorKind, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::time::{Duration, Instant};

use super::hello::{self, Acceptor, CHALLENGE, Dialler, HELLO, Nonce, PROOF, Secret, VERDICT, Verdict};
use super::socket::{self, Source};
use super::wire::Offer;
use crate::engine::Peer;
use crate::transport::name::ProcessName;

/// The data of this process that handshakes need.
#[derive(Debug)]
pub(super) struct Own {
    pub(super) me: ProcessName,
    /// The secret of this process's job.
    pub(super) secret: Secret,
    /// The secrets shared with each process of another job; `None` if all processes that may connect share the job's
    /// secret. There are several if two processes were introduced to each other several times at once: the other side
    /// knows the last one for sure.
    pub(super) foreign: Option<HashMap<ProcessName, Vec<Secret>>>,
    /// The tickets of the links for which this process accepts rails, by the peer's name.
    pub(super) tickets: HashMap<ProcessName, u64>,
    pub(super) connect_limit: Duration,
    pub(super) hello_limit: Duration,
}

impl Own {
    /// For a process that knows no process of another job.
    pub(super) fn of_job(me: ProcessName, secret: Secret, connect_limit: Duration, hello_limit: Duration) -> Self {
        Self { me, secret, foreign: Some(HashMap::new()), tickets: HashMap::new(), connect_limit, hello_limit }
    }

    /// For any process that knows the secret.
    pub(super) fn of_port(me: ProcessName, secret: Secret, limit: Duration) -> Self {
        Self { me, secret, foreign: None, tickets: HashMap::new(), connect_limit: limit, hello_limit: limit }
    }

    /// The secrets that this process shares with another one. Either side accepts any of them; the other process knows
    /// the last one for sure. Empty if there is none.
    fn secrets_with(&self, other: ProcessName) -> &[Secret] {
        match &self.foreign {
            Some(foreign) if other.world != self.me.world => foreign.get(&other).map_or(&[], Vec::as_slice),
            Some(_) | None => std::slice::from_ref(&self.secret),
        }
    }

    /// The secrets by which another process may prove that it dials this rail of its link; none if it has not been offered one.
    fn rail_secrets(&self, other: ProcessName, rail: u8) -> Vec<Secret> {
        let Some(ticket) = self.tickets.get(&other) else { return Vec::new() };
        self.secrets_with(other).iter().map(|secret| hello::rail_secret(secret, *ticket, rail)).collect()
    }
}

/// A handshake, on the dialling or the accepting side.
#[derive(Debug)]
pub(super) enum Greeting {
    Dial(Dial),
    Answer(Answer),
}

/// This process wants to connect to a peer.
#[derive(Debug)]
pub(super) struct Dial {
    pub(super) peer: Peer,
    pub(super) address: SocketAddr,
    /// If it is to become a rail and not the main connection.
    pub(super) rail: Option<ToRail>,
    to: ProcessName,
    secret: Secret,
    stage: Stage,
    /// The pause before the next attempt, and the time after which there is none.
    pause: Duration,
    give_up: Option<Instant>,
    /// If this dial fails, the peer's own dial is awaited until this time: the peer may reach this process nevertheless.
    patience: Option<Instant>,
}

/// The rail that a dial is to become.
#[derive(Debug, Clone)]
pub(super) struct ToRail {
    /// The number of the link.
    pub(super) link: u32,
    /// The number of the rail.
    pub(super) number: u8,
    pub(super) from: Source,
}

#[derive(Debug)]
enum Stage {
    Connecting {
        socket: TcpStream,
        until: Instant,
    },
    Asked {
        socket: TcpStream,
        dialler: Dialler,
        inbox: Inbox,
    },
    Proved {
        socket: TcpStream,
        inbox: Inbox,
    },
    Pausing {
        until: Instant,
    },
    /// The peer's own dial to this process is awaited.
    Awaiting {
        until: Instant,
        /// What it means if that does not arrive.
        why: String,
    },
}

/// The state of a dial.
#[derive(Debug)]
pub(super) enum Dialled {
    /// Nothing yet.
    Wait,
    /// There is a new socket for the poller.
    Watch,
    /// The connection is open.
    Open(TcpStream),
    /// The peer is unreachable; the text reads after the peer's address and a colon.
    Failed(String),
}

/// The shortest and longest pause between two attempts.
const PAUSE: [Duration; 2] = [Duration::from_millis(4), Duration::from_millis(500)];

impl Dial {
    /// Starts a dial.
    pub(super) fn new(own: &Own, peer: Peer, to: ProcessName, address: SocketAddr, now: Instant) -> Self {
        let stage = Stage::Pausing { until: now };
        let secret = *own.secrets_with(to).last().unwrap_or(&own.secret);
        let (pause, give_up, patience) = (PAUSE[0], None, None);
        let mut dial = Self { peer, address, rail: None, to, secret, stage, pause, give_up, patience };
        dial.connect(own, now);
        dial
    }

    /// Starts a dial for a rail, which the peer has offered with this ticket. The first step is the first [`Dial::advance`].
    pub(super) fn of_rail(own: &Own, peer: Peer, to: ProcessName, rail: ToRail, offer: &Offer, now: Instant) -> Self {
        let secret = own.secrets_with(to).last().unwrap_or(&own.secret);
        let secret = hello::rail_secret(secret, offer.ticket, offer.rail);
        let (address, rail, stage) = (offer.address, Some(rail), Stage::Pausing { until: now });
        Self { peer, address, rail, to, secret, stage, pause: PAUSE[0], give_up: None, patience: None }
    }

    /// Dials nothing: the peer, which cannot be reached at this address, is to dial this process.
    pub(super) fn awaiting(own: &Own, peer: Peer, to: ProcessName, address: SocketAddr, now: Instant) -> Self {
        let limit = own.connect_limit;
        let why = format!("its node only dials out, and its connection did not arrive within {limit:?}");
        let stage = Stage::Awaiting { until: now + limit, why };
        let (secret, pause) = (own.secret, PAUSE[0]);
        Self { peer, address, rail: None, to, secret, stage, pause, give_up: None, patience: None }
    }

    /// This dial, and the peer's own if this one fails.
    pub(super) fn or_await(self, until: Instant) -> Self {
        Self { patience: Some(until), ..self }
    }

    fn connect(&mut self, own: &Own, now: Instant) -> Option<io::Error> {
        let dialled = match &self.rail {
            None => socket::dial(self.address),
            Some(rail) => socket::dial_from(&rail.from, self.address),
        };
        match dialled {
            Ok(socket) => self.stage = Stage::Connecting { socket, until: now + own.connect_limit },
            Err(error) => return Some(error),
        }
        None
    }

    /// The socket for the poller.
    pub(super) fn socket(&self) -> Option<&TcpStream> {
        match &self.stage {
            Stage::Connecting { socket, .. } | Stage::Asked { socket, .. } | Stage::Proved { socket, .. } => {
                Some(socket)
            }
            Stage::Pausing { .. } | Stage::Awaiting { .. } => None,
        }
    }

    /// Whether this process still has to act: it has not said hello.
    pub(super) fn is_connecting(&self) -> bool {
        match self.stage {
            Stage::Connecting { .. } | Stage::Pausing { .. } => true,
            Stage::Asked { .. } | Stage::Proved { .. } | Stage::Awaiting { .. } => false,
        }
    }

    /// The peer whose own dial should have arrived by now.
    pub(super) fn overdue(&self, now: Instant) -> Option<ProcessName> {
        matches!(self.stage, Stage::Awaiting { until, .. } if until <= now).then_some(self.to)
    }

    /// Awaits the peer's own dial until this time, if it is awaited at all.
    pub(super) fn await_longer(&mut self, later: Instant) {
        if let Stage::Awaiting { until, .. } = &mut self.stage {
            *until = later;
        }
        self.patience = self.patience.map(|_| later);
    }

    /// Whether the peer may accept this connection as the one between the two.
    pub(super) fn may_be_taken(&self) -> bool {
        matches!(self.stage, Stage::Proved { .. })
    }

    /// When to call [`Dial::advance`] at the latest.
    pub(super) fn deadline(&self) -> Option<Instant> {
        match self.stage {
            Stage::Connecting { until, .. } | Stage::Pausing { until } | Stage::Awaiting { until, .. } => Some(until),
            Stage::Asked { .. } | Stage::Proved { .. } => None,
        }
    }

    /// Advances as far as the received data allow.
    pub(super) fn advance(&mut self, own: &Own, now: Instant) -> Dialled {
        match self.try_advance(own, now) {
            Dialled::Failed(why) => match self.patience.take() {
                Some(until) if now < until => self.wait(Stage::Awaiting { until, why }),
                Some(_) | None => Dialled::Failed(why),
            },
            other @ (Dialled::Wait | Dialled::Watch | Dialled::Open(_)) => other,
        }
    }

    fn try_advance(&mut self, own: &Own, now: Instant) -> Dialled {
        loop {
            let stage = std::mem::replace(&mut self.stage, Stage::Pausing { until: now });
            let next = match stage {
                Stage::Connecting { socket, until } => match is_connected(&socket) {
                    Ok(true) => match self.ask(own, socket) {
                        Ok(next) => next,
                        Err(error) => return self.fail_or_pause(own, now, &error),
                    },
                    Ok(false) if now < until => return self.wait(Stage::Connecting { socket, until }),
                    Ok(false) => return Dialled::Failed(format!("no answer within {:?}", own.connect_limit)),
                    Err(error) => return self.fail_or_pause(own, now, &error),
                },
                Stage::Asked { socket, dialler, mut inbox } => match inbox.fill::<CHALLENGE>(&socket) {
                    Ok(None) => return self.wait(Stage::Asked { socket, dialler, inbox }),
                    Ok(Some(challenge)) => {
                        let proof = match dialler.on_challenge(&self.secret, &challenge) {
                            Ok(proof) => proof,
                            Err(refused) => return Dialled::Failed(format!("failed to {refused}")),
                        };
                        match (&socket).write_all(&proof) {
                            Ok(()) => Stage::Proved { socket, inbox: Inbox::default() },
                            Err(error) => return self.pause(own, now, &error.to_string()),
                        }
                    }
                    Err(error) => return self.pause(own, now, &format!("the handshake failed: {error}")),
                },
                Stage::Proved { socket, mut inbox } => match inbox.fill::<VERDICT>(&socket) {
                    Ok(None) => return self.wait(Stage::Proved { socket, inbox }),
                    Ok(Some(verdict)) => match Dialler::on_verdict(&verdict) {
                        Ok(Verdict::Welcome) => return Dialled::Open(socket),
                        Ok(Verdict::Yield) => {
                            let why = format!("its own connection did not arrive within {:?}", own.connect_limit);
                            return self.wait(Stage::Awaiting { until: now + own.connect_limit, why });
                        }
                        Ok(Verdict::Later) => return self.pause(own, now, "it does not know this process"),
                        Ok(Verdict::Over) => {
                            return Dialled::Failed("it has ended its connection with this process".into());
                        }
                        Err(refused) => return Dialled::Failed(format!("failed to {refused}")),
                    },
                    Err(error) => return self.pause(own, now, &format!("the handshake failed: {error}")),
                },
                Stage::Pausing { until } if now < until => return self.wait(Stage::Pausing { until }),
                Stage::Pausing { .. } => {
                    return match self.connect(own, now) {
                        None => Dialled::Watch,
                        Some(error) => Dialled::Failed(error.to_string()),
                    };
                }
                Stage::Awaiting { until, why } if now < until => return self.wait(Stage::Awaiting { until, why }),
                Stage::Awaiting { why, .. } => return Dialled::Failed(why),
            };
            self.stage = next;
        }
    }

    fn wait(&mut self, stage: Stage) -> Dialled {
        self.stage = stage;
        Dialled::Wait
    }

    /// Sends this process's hello.
    fn ask(&mut self, own: &Own, socket: TcpStream) -> io::Result<Stage> {
        socket::set_options(&socket)?;
        if self.rail.is_none() {
            // Since the last attempt, the peer may have forgotten an earlier secret.
            self.secret = *own.secrets_with(self.to).last().unwrap_or(&own.secret);
        }
        let (dialler, hello) = Dialler::new(&self.secret, own.me, self.to, nonce()?);
        // A new socket has room for it.
        (&socket).write_all(&hello)?;
        Ok(Stage::Asked { socket, dialler, inbox: Inbox::default() })
    }

    /// Retries later if the peer has closed the connection, as it does if it has too many.
    fn fail_or_pause(&mut self, own: &Own, now: Instant, error: &io::Error) -> Dialled {
        match error.kind() {
            ErrorKind::ConnectionReset | ErrorKind::BrokenPipe | ErrorKind::NotConnected => {
                self.pause(own, now, &format!("the handshake failed: {error}"))
            }
            _ => Dialled::Failed(error.to_string()),
        }
    }

    /// Retries later, until the deadline of the attempt.
    fn pause(&mut self, own: &Own, now: Instant, why: &str) -> Dialled {
        let give_up = *self.give_up.get_or_insert(now + own.connect_limit);
        if now >= give_up {
            return Dialled::Failed(why.to_owned());
        }
        self.stage = Stage::Pausing { until: (now + self.pause).min(give_up) };
        self.pause = (self.pause * 2).min(PAUSE[1]);
        Dialled::Wait
    }
}

/// A connection that this process has accepted.
#[derive(Debug)]
pub(super) struct Answer {
    pub(super) socket: TcpStream,
    pub(super) address: SocketAddr,
    /// The number of the rail that it is to become; 0 for a main connection.
    pub(super) rail: u8,
    inbox: Inbox,
    stage: Expected,
}

#[derive(Debug)]
enum Expected {
    Hello { until: Instant },
    Proof { acceptor: Acceptor, secret: Secret },
}

/// The state of an accepted connection.
#[derive(Debug)]
pub(super) enum Progress {
    /// Nothing yet.
    Wait,
    /// It knows the secret and claims this name; the proof is still to come.
    Named(ProcessName),
    /// It has proved that it is this process.
    Proved(ProcessName),
    /// It is not a valid peer, or too slow to prove it.
    Refused,
    /// It knew the secret, and has closed the connection.
    Gone,
}

impl Answer {
    pub(super) fn new(own: &Own, socket: TcpStream, address: SocketAddr, rail: u8, now: Instant) -> io::Result<Self> {
        socket::set_options(&socket)?;
        let stage = Expected::Hello { until: now + own.hello_limit };
        Ok(Self { socket, address, rail, inbox: Inbox::default(), stage })
    }

    /// The deadline for the hello, if none has arrived.
    pub(super) fn deadline(&self) -> Option<Instant> {
        match self.stage {
            Expected::Hello { until } => Some(until),
            Expected::Proof { .. } => None,
        }
    }

    /// The name that it claims.
    pub(super) fn from(&self) -> Option<ProcessName> {
        match &self.stage {
            Expected::Hello { .. } => None,
            Expected::Proof { acceptor, .. } => Some(acceptor.from),
        }
    }

    /// Advances by one message, if that has arrived.
    pub(super) fn advance(&mut self, own: &Own, now: Instant) -> Progress {
        match &self.stage {
            Expected::Hello { until } => match self.inbox.fill::<HELLO>(&self.socket) {
                Ok(None) if now >= *until || !Acceptor::may_begin(self.inbox.begun()) => Progress::Refused,
                Ok(None) => Progress::Wait,
                Ok(Some(hello)) => self.challenge(own, &hello),
                Err(_) => Progress::Refused,
            },
            Expected::Proof { acceptor, secret } => match self.inbox.fill::<PROOF>(&self.socket) {
                Ok(None) => Progress::Wait,
                Ok(Some(proof)) if acceptor.on_proof(secret, &proof).is_ok() => Progress::Proved(acceptor.from),
                Ok(Some(_)) => Progress::Refused,
                Err(_) => Progress::Gone,
            },
        }
    }

    fn challenge(&mut self, own: &Own, hello: &[u8; HELLO]) -> Progress {
        let Ok(nonce) = nonce() else { return Progress::Refused };
        let from = Acceptor::says(hello);
        let of_rail = if self.rail > 0 { own.rail_secrets(from, self.rail) } else { Vec::new() };
        let known = if self.rail > 0 { &of_rail } else { own.secrets_with(from) };
        let is_known = !known.is_empty();
        let secrets = if is_known || self.rail > 0 { known } else { std::slice::from_ref(&own.secret) };
        let answers = secrets.iter().map(|it| Acceptor::new(it, own.me, nonce, hello).map(|answer| (answer, *it)));
        let answer = answers.reduce(|before, answer| if before.is_ok() { before } else { answer });
        match answer.unwrap_or(Err(hello::Refused::Secret)) {
            Ok(((acceptor, challenge), secret)) if (&self.socket).write_all(&challenge).is_ok() => {
                let from = acceptor.from;
                self.inbox = Inbox::default();
                self.stage = Expected::Proof { acceptor, secret };
                Progress::Named(from)
            }
            Ok(_) | Err(hello::Refused::Foreign) => Progress::Refused,
            // A process that this one does not know yet finds the connection closed, and dials again.
            Err(hello::Refused::Secret) if !is_known && self.rail == 0 => Progress::Refused,
            Err(_) => {
                // So that its user learns the reason; a failure to send it does not matter.
                let _ = (&self.socket).write_all(&Acceptor::no_challenge());
                Progress::Refused
            }
        }
    }

    /// Sends the verdict.
    pub(super) fn send_verdict(&self, verdict: Verdict) -> io::Result<()> {
        (&self.socket).write_all(&Acceptor::verdict(verdict))
    }
}

/// The bytes of a message of fixed length. No byte after it is read, since frames may follow.
#[derive(Debug)]
struct Inbox {
    bytes: [u8; HELLO],
    filled: usize,
}

impl Default for Inbox {
    fn default() -> Self {
        Self { bytes: [0; HELLO], filled: 0 }
    }
}

impl Inbox {
    /// Returns the message once it is complete.
    fn fill<const LEN: usize>(&mut self, mut socket: &TcpStream) -> io::Result<Option<[u8; LEN]>> {
        while self.filled < LEN {
            match socket.read(&mut self.bytes[self.filled..LEN]) {
                Ok(0) => return Err(io::Error::new(ErrorKind::UnexpectedEof, "it closed the connection")),
                Ok(count) => self.filled += count,
                Err(error) if error.kind() == ErrorKind::WouldBlock => return Ok(None),
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
        Ok(self.bytes.first_chunk().copied())
    }

    fn begun(&self) -> &[u8] {
        &self.bytes[..self.filled]
    }
}

/// Whether the attempt to connect has succeeded; an error if it has failed.
fn is_connected(socket: &TcpStream) -> io::Result<bool> {
    if let Some(error) = socket.take_error()? {
        return Err(error);
    }
    match socket.peer_addr() {
        Ok(_) => Ok(true),
        Err(error) if error.kind() == ErrorKind::NotConnected => Ok(false),
        Err(error) => Err(error),
    }
}

fn nonce() -> io::Result<Nonce> {
    let mut nonce = [0; 32];
    getrandom::fill(&mut nonce).map_err(io::Error::from)?;
    Ok(nonce)
}
