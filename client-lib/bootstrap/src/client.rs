//! The dialogue of one process with its process manager.

use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd};
use std::os::unix::net::UnixStream;
use std::time::{Duration, Instant};

use nix::errno::Errno;
use nix::sys::socket::{MsgFlags, recv};
use rsd_proto::pmi::mapping;
use rsd_proto::pmi::v1::{Reply, ReplyDecoder, Request, WireError};

use super::attach::{Attachment, Env, Socket};
use super::error::BootstrapError;

/// A process that has joined its job. [`Pmi::finalize`] leaves the job properly: without it, a process manager takes
/// the end of the connection for a death, and ends the job.
#[derive(Debug)]
pub struct Pmi {
    socket: Socket,
    decoder: ReplyDecoder,
    limits: Limits,
    /// The timeout set on the socket, cached to save the call.
    read_timeout: Option<Duration>,
    rank: u32,
    size: u32,
    appnum: Option<u32>,
    kvsname: Vec<u8>,
    /// Lengths without the terminating byte that the process manager counts.
    key_max: usize,
    value_max: usize,
    /// A value that was requested and not taken yet.
    asked: Asked,
    /// Why the process manager has closed its end, if it gave a reason.
    farewell: Option<String>,
    /// Ranks that are lost, and why, as the process manager has told.
    lost: Vec<Lost>,
}

/// Inclusive ranges of ranks that are lost, and why.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Lost {
    /// The ranks.
    pub ranks: Vec<(u32, u32)>,
    /// A sentence.
    pub why: String,
}

/// The state of a request.
#[derive(Debug, Default)]
enum Asked {
    #[default]
    Nothing,
    /// It was sent, and times out at this time.
    Sent { until: Option<Instant> },
    /// Its answer arrived before the answer to a later request.
    Answered(Option<Vec<u8>>),
}

/// Time limits.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Limits {
    /// For the connection to the process manager.
    pub connect: Duration,
    /// For the next byte of an answer, except that of a fence.
    pub answer: Duration,
}

impl Default for Limits {
    /// Ten seconds to connect, a minute to answer: a slower node counts as dead.
    fn default() -> Self {
        Self { connect: Duration::from_secs(10), answer: Duration::from_secs(60) }
    }
}

impl Pmi {
    /// Joins the job that the environment names; `None` if it names none.
    pub fn from_env(env: &Env, limits: Limits) -> Result<Option<Self>, BootstrapError> {
        let joined = match env.attachment()? {
            None => return Ok(None),
            Some(Attachment::Inherited { fd, rank, size }) => Self::join(Socket::inherited(fd)?, rank, size, limits),
            Some(Attachment::Tcp { address, id }) => {
                let mut pmi = Self::fresh(Socket::connect(&address, limits.connect)?, limits);
                let answer = pmi.ask("initack", &Request::InitAck { pmiid: id.clone().into() })?;
                if answer == Reply::InitAckRefused {
                    return Err(BootstrapError::UnknownId { id });
                }
                let Reply::InitAck { size, rank, debug: _ } = answer else { return Err(wrong("initack")) };
                if rank >= size {
                    return Err(wrong("initack"));
                }
                pmi.init(rank, size)
            }
        };
        joined.map(Some)
    }

    /// Joins as `rank` of `size` over a socket that the process manager has already assigned to this rank.
    pub fn over_socket(socket: UnixStream, rank: u32, size: u32, limits: Limits) -> Result<Self, BootstrapError> {
        Self::join(Socket::Unix(socket), rank, size, limits)
    }

    /// This process's rank in its job.
    pub fn rank(&self) -> u32 {
        self.rank
    }

    /// The number of processes of the job.
    pub fn size(&self) -> u32 {
        self.size
    }

    /// The index of this process's program in the job; `None` if the process manager does not know.
    pub fn appnum(&self) -> Option<u32> {
        self.appnum
    }

    /// The number of processes that the system can hold; `None` if the process manager does not know.
    pub fn universe_size(&mut self) -> Result<Option<i32>, BootstrapError> {
        let answer = self.ask("get_universe_size", &Request::GetUniverseSize)?;
        let Reply::UniverseSize(size) = answer else { return Err(wrong("get_universe_size")) };
        Ok(i32::try_from(size).ok().filter(|size| *size > 0))
    }

    /// The job's name, which no other job has.
    pub fn kvsname(&self) -> &[u8] {
        &self.kvsname
    }

    /// Stores a value for all ranks to get after the next fence. Key and value must be visible ASCII characters without
    /// a backslash, the only ones that every process manager transfers unchanged.
    pub fn put(&mut self, key: &str, value: &str) -> Result<(), BootstrapError> {
        check_portable("key", key, self.key_max)?;
        check_portable("value", value, self.value_max)?;
        let put = Request::Put { kvsname: self.kvsname.clone(), key: key.into(), value: value.into() };
        let Reply::PutResult { rc } = self.ask("put", &put)? else { return Err(wrong("put")) };
        done("put", rc)
    }

    /// Returns the value of a key that was put before the last fence, if there is one.
    pub fn get(&mut self, key: &str) -> Result<Option<Vec<u8>>, BootstrapError> {
        check_portable("key", key, self.key_max)?;
        let get = Request::Get { kvsname: self.kvsname.clone(), key: key.into() };
        let Reply::GetResult(value) = self.ask("get", &get)? else { return Err(wrong("get")) };
        Ok(value)
    }

    /// Stores a value as [`Pmi::put`] does, with any bytes that a line can carry: some process managers change them.
    pub fn put_bytes(&mut self, key: &[u8], value: &[u8]) -> Result<(), BootstrapError> {
        let put = Request::Put { kvsname: self.kvsname.clone(), key: key.into(), value: value.into() };
        let Reply::PutResult { rc } = self.ask("put", &put)? else { return Err(wrong("put")) };
        done("put", rc)
    }

    /// Returns the value of a key of a namespace: this job's, or that of a job that it has spawned.
    pub fn get_bytes(&mut self, kvsname: &[u8], key: &[u8]) -> Result<Option<Vec<u8>>, BootstrapError> {
        // Some process managers have requests of other ranks to wait for before they answer this one.
        let limit = (key != mapping::KEY.as_bytes()).then_some(self.limits.answer);
        let get = Request::Get { kvsname: kvsname.into(), key: key.into() };
        let Reply::GetResult(value) = self.ask_within("get", &get, limit)? else { return Err(wrong("get")) };
        Ok(value)
    }

    /// The longest key and the longest value that the process manager accepts, without an end byte.
    pub fn lengths(&self) -> (usize, usize) {
        (self.key_max, self.value_max)
    }

    /// Requests the value of a key as [`Pmi::get`] does, without waiting: [`Pmi::take_got`] returns it once it has
    /// arrived. Without `limited` there is no timeout. Only one request can be pending; a second one waits for the
    /// answer to the first and discards it.
    pub fn begin_get(&mut self, key: &str, limited: bool) -> Result<(), BootstrapError> {
        check_portable("key", key, self.key_max)?;
        self.settle("get")?;
        self.send("get", &Request::Get { kvsname: self.kvsname.clone(), key: key.into() })?;
        self.asked = Asked::Sent { until: limited.then(|| Instant::now() + self.limits.answer) };
        Ok(())
    }

    /// Returns the requested value if the answer has arrived: `Some(None)` if the key has no value.
    pub fn take_got(&mut self) -> Result<Option<Option<Vec<u8>>>, BootstrapError> {
        let until = match std::mem::take(&mut self.asked) {
            Asked::Nothing => return Ok(None),
            Asked::Answered(value) => return Ok(Some(value)),
            Asked::Sent { until } => until,
        };
        let command = "get";
        let mut bytes = [0; 4096];
        loop {
            match self.next_reply() {
                Some(Ok(Reply::GetResult(value))) => return Ok(Some(value)),
                Some(Ok(Reply::Failed(why))) => return Err(BootstrapError::Broken { command, why }),
                Some(Ok(_)) => return Err(wrong(command)),
                Some(Err(source)) => return Err(BootstrapError::Wire { command, source }),
                None => {}
            }
            match self.socket.read_now(&mut bytes) {
                Ok(0) => return Err(BootstrapError::Closed { command }),
                Ok(read) => self.decoder.feed(&bytes[..read]),
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                    if until.is_some_and(|until| until <= Instant::now()) {
                        return Err(BootstrapError::NoAnswer { command, limit: self.limits.answer });
                    }
                    self.asked = Asked::Sent { until };
                    return Ok(None);
                }
                Err(source) => return Err(broken(command, source)),
            }
        }
    }

    /// Readable when an answer may have arrived.
    pub fn fd(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }

    /// Whether the process manager has closed its end, and its last message if it sent one.
    pub fn cut_off(&mut self) -> Option<Option<&str>> {
        let is_closed = match self.asked {
            Asked::Sent { .. } => self.is_closed(),
            Asked::Nothing | Asked::Answered(_) => self.read_to_end(),
        };
        is_closed.then_some(self.farewell.as_deref())
    }

    /// Whether only the end of the stream is left to read.
    fn is_closed(&self) -> bool {
        let peeked = recv(self.fd().as_raw_fd(), &mut [0], MsgFlags::MSG_PEEK | MsgFlags::MSG_DONTWAIT);
        // If anything else is wrong with the socket, nothing will arrive on it either.
        !matches!(peeked, Ok(1..) | Err(Errno::EAGAIN | Errno::EINTR))
    }

    /// Reads unrequested messages up to the end of the stream, if that is there: rsd sends the reason before it closes.
    fn read_to_end(&mut self) -> bool {
        let mut bytes = [0; 1024];
        while let Ok(read @ 1..) = self.socket.read_now(&mut bytes) {
            self.decoder.feed(&bytes[..read]);
        }
        while let Some(Ok(_)) = self.next_reply() {}
        self.is_closed()
    }

    /// Returns the next reply; keeps what the process manager has told unrequested, and its last message: the process manager closes
    /// the connection after that one, whether a request was pending or not.
    fn next_reply(&mut self) -> Option<Result<Reply, WireError>> {
        loop {
            match self.decoder.next()? {
                Ok(Reply::Lost { ranks, why }) => self.lost.push(Lost { ranks, why }),
                reply => {
                    if let Ok(Reply::Failed(why)) = &reply {
                        self.farewell = Some(why.clone());
                    }
                    return Some(reply);
                }
            }
        }
    }

    /// Returns the lost ranks that the process manager has told since the last call, if it was asked to ([`KEY`](rsd_proto::pmi::losses::KEY)).
    pub fn take_lost(&mut self) -> Vec<Lost> {
        std::mem::take(&mut self.lost)
    }

    /// Called before the next request: reads the answer to [`Pmi::begin_get`] if that is still pending.
    fn settle(&mut self, command: &'static str) -> Result<(), BootstrapError> {
        if let Some(why) = self.farewell.clone() {
            return Err(BootstrapError::Broken { command, why });
        }
        if let Asked::Sent { until } = self.asked {
            let limit = until.map(|_| self.limits.answer);
            let Reply::GetResult(value) = self.answer("get", limit)? else { return Err(wrong("get")) };
            self.asked = Asked::Answered(value);
        }
        Ok(())
    }

    /// Waits, without limit, until every rank has called it the same number of times.
    pub fn fence(&mut self) -> Result<(), BootstrapError> {
        let answer = self.ask_within("barrier_in", &Request::BarrierIn { group: None }, None)?;
        let Reply::BarrierOut { rc, tag: _ } = answer else { return Err(wrong("barrier_in")) };
        done("barrier_in", rc)
    }

    /// Requests the end of the whole job with this exit code. There is no answer: the process manager kills this process too. Returns
    /// when it has not done so for a while. If a rank exits at once, Hydra's mpiexec may write to its proxy that has ended with it, and
    /// die of that.
    pub fn abort(mut self, exit_code: i32, message: &str) -> Result<(), BootstrapError> {
        // Older process managers split a line at its spaces, including the exit code.
        let message = message.chars().map(|char| if char.is_ascii_graphic() { char } else { '_' });
        let message = message.take(ABORT_MESSAGE_MAX).collect::<String>().into_bytes();
        self.send("abort", &Request::Abort { exit_code, message })?;
        // The end of the connection, or nothing.
        let _ = self.answer("abort", Some(END_AFTER_ABORT));
        Ok(())
    }

    /// Leaves the job properly.
    pub fn finalize(mut self) -> Result<(), BootstrapError> {
        let Reply::FinalizeAck = self.ask("finalize", &Request::Finalize)? else { return Err(wrong("finalize")) };
        Ok(())
    }

    fn fresh(socket: Socket, limits: Limits) -> Self {
        Self {
            socket,
            decoder: ReplyDecoder::new(),
            limits,
            read_timeout: None,
            rank: 0,
            size: 1,
            appnum: None,
            kvsname: Vec::new(),
            key_max: 0,
            value_max: 0,
            asked: Asked::Nothing,
            farewell: None,
            lost: Vec::new(),
        }
    }

    fn join(socket: Socket, rank: u32, size: u32, limits: Limits) -> Result<Self, BootstrapError> {
        Self::fresh(socket, limits).init(rank, size)
    }

    fn init(mut self, rank: u32, size: u32) -> Result<Self, BootstrapError> {
        (self.rank, self.size) = (rank, size);
        let answer = self.ask("init", &Request::Init { version: 1, subversion: 1 })?;
        let Reply::ResponseToInit { rc, .. } = answer else { return Err(wrong("init")) };
        done("init", rc)?;
        let answer = self.ask("get_maxes", &Request::GetMaxes)?;
        let Reply::Maxes { keylen_max, vallen_max, .. } = answer else { return Err(wrong("get_maxes")) };
        self.key_max = keylen_max.saturating_sub(1) as usize;
        self.value_max = vallen_max.saturating_sub(1) as usize;
        let answer = self.ask("get_appnum", &Request::GetAppnum)?;
        let Reply::Appnum(appnum) = answer else { return Err(wrong("get_appnum")) };
        self.appnum = appnum;
        let answer = self.ask("get_my_kvsname", &Request::GetMyKvsname)?;
        let Reply::MyKvsname(kvsname) = answer else { return Err(wrong("get_my_kvsname")) };
        self.kvsname = kvsname;
        Ok(self)
    }

    pub(super) fn ask(&mut self, command: &'static str, request: &Request) -> Result<Reply, BootstrapError> {
        self.ask_within(command, request, Some(self.limits.answer))
    }

    pub(super) fn ask_within(
        &mut self,
        command: &'static str,
        request: &Request,
        limit: Option<Duration>,
    ) -> Result<Reply, BootstrapError> {
        self.settle(command)?;
        self.send(command, request)?;
        self.answer(command, limit)
    }

    fn answer(&mut self, command: &'static str, limit: Option<Duration>) -> Result<Reply, BootstrapError> {
        let failed = |source| broken(command, source);
        if self.read_timeout != limit {
            self.socket.set_read_timeout(limit).map_err(failed)?;
            self.read_timeout = limit;
        }
        let mut bytes = [0; 4096];
        loop {
            match self.next_reply() {
                Some(Ok(Reply::Failed(why))) => return Err(BootstrapError::Broken { command, why }),
                Some(reply) => return reply.map_err(|source| BootstrapError::Wire { command, source }),
                None => {}
            }
            match self.socket.read(&mut bytes) {
                Ok(0) => return Err(BootstrapError::Closed { command }),
                Ok(read) => self.decoder.feed(&bytes[..read]),
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => {
                    let timed_out = matches!(error.kind(), io::ErrorKind::WouldBlock | io::ErrorKind::TimedOut);
                    return Err(match limit.filter(|_| timed_out) {
                        Some(limit) => BootstrapError::NoAnswer { command, limit },
                        None => failed(error),
                    });
                }
            }
        }
    }

    fn send(&mut self, command: &'static str, request: &Request) -> Result<(), BootstrapError> {
        let mut bytes = Vec::new();
        request.encode(&mut bytes).map_err(|source| BootstrapError::Encode { command, source })?;
        self.socket.write_all(&bytes).map_err(|source| {
            self.read_to_end();
            match self.farewell.clone() {
                Some(why) => BootstrapError::Broken { command, why },
                None => BootstrapError::Io { command, source },
            }
        })
    }
}

/// A reset means that the connection was closed before the last request was read.
pub(super) fn broken(command: &'static str, source: io::Error) -> BootstrapError {
    match source.kind() {
        io::ErrorKind::ConnectionReset => BootstrapError::Closed { command },
        _ => BootstrapError::Io { command, source },
    }
}

/// How long a process manager has to kill the processes of a job that it aborts.
const END_AFTER_ABORT: Duration = Duration::from_millis(200);
/// Process managers read an abort with buffers of 1,024 bytes.
const ABORT_MESSAGE_MAX: usize = 900;

pub(super) fn wrong(command: &'static str) -> BootstrapError {
    BootstrapError::WrongAnswer { command }
}

fn done(command: &'static str, rc: i32) -> Result<(), BootstrapError> {
    if rc == 0 { Ok(()) } else { Err(BootstrapError::Refused { command, rc }) }
}

fn check_portable(what: &'static str, text: &str, max: usize) -> Result<(), BootstrapError> {
    let portable = text.bytes().all(|byte| byte.is_ascii_graphic() && byte != b'\\');
    if portable && (1..=max).contains(&text.len()) { Ok(()) } else { Err(BootstrapError::NotPortable { what, max }) }
}

#[cfg(test)]
mod tests;
