//! The dialogue of one process with its process manager in PMI-2.

use std::io;
use std::os::unix::net::UnixStream;
use std::time::Duration;

use rsd_proto::pmi::v1::{self, Spawn};
use rsd_proto::pmi::v2::{Asked, Reply, ReplyDecoder, Request, Verb};

use super::attach::{Attachment, Env, Socket};
use super::client::{Limits, broken, wrong};
use super::error::BootstrapError;

/// A process that has joined its job by PMI-2. [`Pmi2::finalize`] leaves the job properly.
#[derive(Debug)]
pub struct Pmi2 {
    socket: Socket,
    decoder: ReplyDecoder,
    limits: Limits,
    rank: u32,
    size: u32,
    appnum: u32,
    spawner: Option<Vec<u8>>,
}

impl Pmi2 {
    /// Joins the job that the environment names; `None` if it names none.
    pub fn from_env(env: &Env, limits: Limits) -> Result<Option<Self>, BootstrapError> {
        match env.attachment()? {
            None => Ok(None),
            Some(Attachment::Inherited { fd, rank, .. }) => {
                Self::join(Socket::inherited(fd)?, env.job.clone(), rank.to_string(), None, limits).map(Some)
            }
            // MPICH's server expects the id in one place, Slurm's in the other.
            Some(Attachment::Tcp { address, id }) => {
                let socket = Socket::connect(&address, limits.connect)?;
                Self::join(socket, env.job.clone(), id.clone(), Some(id.into()), limits).map(Some)
            }
        }
    }

    /// Joins as `rank` over a socket that the process manager has already assigned to this rank.
    pub fn over_socket(socket: UnixStream, rank: u32, limits: Limits) -> Result<Self, BootstrapError> {
        Self::join(Socket::Unix(socket), None, rank.to_string(), None, limits)
    }

    fn join(
        socket: Socket,
        job: Option<String>,
        pmirank: String,
        srcid: Option<Vec<u8>>,
        limits: Limits,
    ) -> Result<Self, BootstrapError> {
        let decoder = ReplyDecoder::new();
        let mut pmi = Self { socket, decoder, limits, rank: 0, size: 1, appnum: 0, spawner: None };
        pmi.request_version()?;
        let pmijobid = job.map(String::into_bytes);
        let init = Request::FullInit { pmijobid, pmirank: Some(pmirank.into()), srcid };
        let Reply::FullInit { rank, size, appnum, spawner } = pmi.ask(init)? else { return Err(wrong("fullinit")) };
        if rank >= size {
            return Err(wrong("fullinit"));
        }
        (pmi.rank, pmi.size, pmi.appnum, pmi.spawner) = (rank, size, appnum, spawner);
        Ok(pmi)
    }

    /// Requests PMI-2 in a line of PMI-1.
    fn request_version(&mut self) -> Result<(), BootstrapError> {
        let command = "init";
        let mut line = Vec::new();
        let init = v1::Request::Init { version: 2, subversion: 0 };
        init.encode(&mut line).map_err(|source| BootstrapError::Encode { command, source })?;
        self.socket.write_all(&line).map_err(|source| broken(command, source))?;
        let mut lines = v1::ReplyDecoder::new();
        // One by one: what follows the line belongs to the other decoder.
        let mut byte = [0];
        loop {
            self.receive(command, Some(self.limits.answer), &mut byte)?;
            lines.feed(&byte);
            match lines.next() {
                None => {}
                Some(Ok(v1::Reply::ResponseToInit { version: 2, rc: 0, .. })) => return Ok(()),
                Some(Ok(v1::Reply::ResponseToInit { .. })) => return Err(BootstrapError::NoPmi2),
                Some(Ok(_)) => return Err(wrong(command)),
                Some(Err(source)) => return Err(BootstrapError::Wire { command, source }),
            }
        }
    }

    /// This process's rank in its job.
    pub fn rank(&self) -> u32 {
        self.rank
    }

    /// The number of processes of the job.
    pub fn size(&self) -> u32 {
        self.size
    }

    /// The index of this process's program in the job.
    pub fn appnum(&self) -> u32 {
        self.appnum
    }

    /// Whether a process has spawned the job.
    pub fn is_spawned(&self) -> bool {
        self.spawner.is_some()
    }

    /// The job's name, which no other job has.
    pub fn job_id(&mut self) -> Result<Vec<u8>, BootstrapError> {
        let Reply::JobId(jobid) = self.ask(Request::JobGetId)? else { return Err(wrong("job-getid")) };
        Ok(jobid)
    }

    /// Stores a value for all ranks to get after the next fence.
    pub fn put(&mut self, key: &[u8], value: &[u8]) -> Result<(), BootstrapError> {
        self.done(Request::KvsPut { key: key.into(), value: value.into() })
    }

    /// Waits, without limit, until every rank has called it the same number of times.
    ///
    /// MPICH's process managers answer the fence at once, and then hold back a request for a missing key until all ranks have entered.
    pub fn fence(&mut self) -> Result<(), BootstrapError> {
        self.done(Request::KvsFence)?;
        match self.value(Request::KvsGet { jobid: None, key: MISSING_KEY.into() }) {
            Ok(_) | Err(BootstrapError::Declined { .. }) => Ok(()),
            Err(error) => Err(error),
        }
    }

    /// Returns the value of a key that was put before the last fence, if there is one, in this job or in another one.
    pub fn get(&mut self, jobid: Option<&[u8]>, key: &[u8]) -> Result<Option<Vec<u8>>, BootstrapError> {
        self.value(Request::KvsGet { jobid: jobid.map(<[u8]>::to_vec), key: key.into() })
    }

    /// Stores a value for the ranks of this node, at once.
    pub fn put_on_node(&mut self, key: &[u8], value: &[u8]) -> Result<(), BootstrapError> {
        self.done(Request::PutNodeAttr { key: key.into(), value: value.into() })
    }

    /// Returns such a value; with `wait`, waits without limit until there is one.
    pub fn get_on_node(&mut self, key: &[u8], wait: bool) -> Result<Option<Vec<u8>>, BootstrapError> {
        self.value(Request::GetNodeAttr { key: key.into(), wait })
    }

    /// Returns a value that the process manager knows about the job.
    pub fn job_attribute(&mut self, key: &[u8]) -> Result<Option<Vec<u8>>, BootstrapError> {
        self.value(Request::GetJobAttr { key: key.into() })
    }

    /// Waits, without limit, until every rank has called it; returns the rank in the ring, and the values of the left and of the right
    /// neighbour.
    pub fn ring(&mut self, value: &[u8]) -> Result<(u32, Vec<u8>, Vec<u8>), BootstrapError> {
        let ring = Request::Ring { count: 1, left: value.into(), right: value.into() };
        let Reply::Ring { count, left, right } = self.ask(ring)? else { return Err(wrong("ring")) };
        Ok((count, left, right))
    }

    /// Publishes a port under a name; fails if the name is taken.
    pub fn publish(&mut self, name: &[u8], port: &[u8]) -> Result<(), BootstrapError> {
        self.done(Request::NamePublish { name: name.into(), port: port.into() })
    }

    /// The port that is published under a name, if any.
    pub fn lookup(&mut self, name: &[u8]) -> Result<Option<Vec<u8>>, BootstrapError> {
        self.value(Request::NameLookup { name: name.into() })
    }

    /// Withdraws a name; fails if it was not published, or by another user.
    pub fn unpublish(&mut self, name: &[u8]) -> Result<(), BootstrapError> {
        self.done(Request::NameUnpublish { name: name.into() })
    }

    /// Starts a job; returns its name and one code per process, 0 for each that runs, when all of them run.
    pub fn spawn(&mut self, spawn: Spawn) -> Result<(Vec<u8>, Vec<i32>), BootstrapError> {
        let asked = spawn.segments.iter().map(|segment| segment.nprocs as usize).sum();
        let Reply::Spawned { jobid, mut codes } = self.ask(Request::Spawn(spawn))? else { return Err(wrong("spawn")) };
        codes.resize(asked, 0);
        Ok((jobid, codes))
    }

    /// Connects to another job by its name, which most process managers refuse.
    pub fn connect_job(&mut self, jobid: &[u8]) -> Result<(), BootstrapError> {
        self.done(Request::JobConnect { jobid: jobid.into() })
    }

    /// Ends such a connection.
    pub fn disconnect_job(&mut self, jobid: &[u8]) -> Result<(), BootstrapError> {
        self.done(Request::JobDisconnect { jobid: jobid.into() })
    }

    /// Requests the end of the whole job with this exit code, and returns: there is no answer, and the process manager kills this
    /// process too.
    pub fn abort(&mut self, exit_code: i32, message: &[u8]) -> Result<(), BootstrapError> {
        let message = message.iter().copied().take(ABORT_MESSAGE_MAX).collect();
        self.send("abort", Request::Abort { exit_code: Some(exit_code), message })
    }

    /// Leaves the job properly.
    pub fn finalize(mut self) -> Result<(), BootstrapError> {
        self.done(Request::Finalize)
    }

    fn done(&mut self, request: Request) -> Result<(), BootstrapError> {
        let command = command(&request);
        let Reply::Done = self.ask(request)? else { return Err(wrong(command)) };
        Ok(())
    }

    fn value(&mut self, request: Request) -> Result<Option<Vec<u8>>, BootstrapError> {
        let command = command(&request);
        let Reply::Value(value) = self.ask(request)? else { return Err(wrong(command)) };
        Ok(value)
    }

    fn ask(&mut self, request: Request) -> Result<Reply, BootstrapError> {
        let command = command(&request);
        let (verb, limit) = (request.verb(), self.limit(&request));
        self.send(command, request)?;
        let mut bytes = [0; 4096];
        loop {
            match self.decoder.next() {
                Some(Ok((_, Reply::Failed { why }))) => return Err(BootstrapError::Declined { command, why }),
                Some(Ok((echo, reply))) if Some(echo.verb) == verb => return Ok(reply),
                Some(Ok(_)) => return Err(wrong(command)),
                Some(Err(source)) => return Err(BootstrapError::Frame { command, source }),
                None => {}
            }
            let read = self.receive(command, limit, &mut bytes)?;
            self.decoder.feed(&bytes[..read]);
        }
    }

    /// None: the answer depends on other processes.
    fn limit(&self, request: &Request) -> Option<Duration> {
        let waits = matches!(
            request,
            Request::KvsFence | Request::Ring { .. } | Request::Spawn(_) | Request::GetNodeAttr { wait: true, .. }
        ) || matches!(request, Request::KvsGet { key, .. } if key == MISSING_KEY);
        // Members of a group wait for each other before they get the mapping of ranks to nodes.
        let may_wait = waits || matches!(request, Request::GetJobAttr { .. });
        (!may_wait).then_some(self.limits.answer)
    }

    fn send(&mut self, command: &'static str, request: Request) -> Result<(), BootstrapError> {
        let mut frame = Vec::new();
        let asked = Asked { request, thrid: None };
        asked.encode(&mut frame).map_err(|source| BootstrapError::Frame { command, source })?;
        self.socket.write_all(&frame).map_err(|source| broken(command, source))
    }

    fn receive(
        &mut self,
        command: &'static str,
        limit: Option<Duration>,
        bytes: &mut [u8],
    ) -> Result<usize, BootstrapError> {
        self.socket.set_read_timeout(limit).map_err(|source| broken(command, source))?;
        loop {
            match self.socket.read(bytes) {
                Ok(0) => return Err(BootstrapError::Closed { command }),
                Ok(read) => return Ok(read),
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => {
                    let timed_out = matches!(error.kind(), io::ErrorKind::WouldBlock | io::ErrorKind::TimedOut);
                    return Err(match limit.filter(|_| timed_out) {
                        Some(limit) => BootstrapError::NoAnswer { command, limit },
                        None => broken(command, error),
                    });
                }
            }
        }
    }
}

/// A key that no rank puts.
const MISSING_KEY: &[u8] = b"-NONEXIST-KEY";

/// Process managers read an abort with buffers of 1,024 bytes.
const ABORT_MESSAGE_MAX: usize = 900;

fn command(request: &Request) -> &'static str {
    request.verb().map_or("a request", Verb::word)
}

#[cfg(test)]
mod tests {
    use std::io::{Read, Write};
    use std::thread;

    use rsd_proto::pmi::dialogue::{self, RequestDecoder};
    use rsd_proto::pmi::v2;

    use super::*;

    const LIMITS: Limits = Limits { connect: Duration::from_secs(10), answer: Duration::from_secs(10) };

    /// Answers a process with `replies` in turn, after the opening; returns what it requested.
    fn served(replies: Vec<Reply>, run: impl FnOnce(Pmi2)) -> Vec<Request> {
        let (ours, mut theirs) = UnixStream::pair().unwrap();
        let server = thread::spawn(move || {
            let init = Reply::FullInit { rank: 1, size: 3, appnum: 2, spawner: None };
            let (mut replies, mut asked) = ([init].into_iter().chain(replies), Vec::new());
            let (mut decoder, mut bytes) = (RequestDecoder::new(), [0; 512]);
            while let Ok(read @ 1..) = theirs.read(&mut bytes) {
                decoder.feed(&bytes[..read]);
                for request in decoder.by_ref() {
                    let mut out = Vec::new();
                    match request.unwrap() {
                        dialogue::Request::One(line) => {
                            assert_eq!(line, v1::Request::Init { version: 2, subversion: 0 });
                            v2::ACCEPTED.encode(&mut out);
                        }
                        dialogue::Request::Two(frame) => {
                            if let Some(reply) = replies.next() {
                                reply.encode(&frame.echo().unwrap(), &mut out);
                            }
                            asked.push(frame.request);
                        }
                    }
                    theirs.write_all(&out).unwrap();
                }
            }
            asked
        });
        run(Pmi2::over_socket(ours, 1, LIMITS).unwrap());
        server.join().unwrap()
    }

    #[test]
    fn a_process_learns_its_place_and_leaves_properly() {
        let asked = served(vec![Reply::JobId("job".into()), Reply::Done], |mut pmi| {
            assert_eq!((pmi.rank(), pmi.size(), pmi.appnum(), pmi.is_spawned()), (1, 3, 2, false));
            assert_eq!(pmi.job_id().unwrap(), b"job");
            pmi.finalize().unwrap();
        });
        assert_eq!(asked[0], Request::FullInit { pmijobid: None, pmirank: Some("1".into()), srcid: None });
        assert_eq!(asked[1..], [Request::JobGetId, Request::Finalize]);
    }

    #[test]
    fn a_refusal_says_why_and_the_dialogue_goes_on() {
        let replies = vec![Reply::failed("the name is taken"), Reply::Value(None), Reply::Value(Some("v".into()))];
        served(replies, |mut pmi| {
            let error = pmi.publish(b"a;b", b"port").unwrap_err();
            assert_eq!(error.to_string(), "execute name-publish: the name is taken");
            assert_eq!(pmi.lookup(b"a").unwrap(), None);
            assert_eq!(pmi.get(None, b"k").unwrap(), Some(b"v".to_vec()));
        });
    }

    #[test]
    fn a_process_manager_without_pmi_2_is_refused_with_a_way_out() {
        let (ours, mut theirs) = UnixStream::pair().unwrap();
        theirs.write_all(b"cmd=response_to_init pmi_version=1 pmi_subversion=1 rc=1\n").unwrap();
        let error = Pmi2::over_socket(ours, 0, LIMITS).unwrap_err();
        assert!(error.to_string().contains("libpmi.so.0"), "{error}");
    }
}
