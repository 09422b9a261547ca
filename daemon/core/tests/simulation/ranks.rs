//! A rank: a script of operations that speaks PMI-1 or PMI-2 to its launcher, byte for byte.

use std::collections::VecDeque;
use std::net::SocketAddr;
use std::rc::Rc;
use std::time::Duration;

use bytes::Bytes;
use rsd_core::step::{Status, Stream};
use rsd_proto::pmi::v1::{Reply, Request, Spawn, SpawnSegment};
use rsd_proto::pmi::{listening, spawning};
use rsd_proto::v1::{NameResult, name_call};

use crate::dialects::{self, Dialect};
use crate::rng::Rng;

/// One operation of a rank.
#[derive(Debug, Clone)]
pub(crate) enum Op {
    /// The opening dialogue: init, maxes, the job's name.
    Init,
    Put(String, String),
    Fence,
    /// Gets a key and asserts its value.
    Get(String, String),
    /// Asks where a rank listens and asserts the port or, in a job of one node, that it does not listen.
    Locate(u32),
    /// Gets the mapping of ranks to nodes, as clients do.
    Mapping,
    /// PMI-2 only: gives a value to both neighbours and asserts these from them.
    Ring {
        value: String,
        left: String,
        right: String,
    },
    /// PMI-2 only.
    PutOnNode(String, String),
    /// PMI-2 only: waits for this value, or for none.
    GetOnNode(String, Option<String>),
    Finalize,
    Publish(String, String),
    /// Looks up a name and asserts this port.
    Lookup(String, String),
    Unpublish(String),
    /// The same request, which must be refused.
    Not(Box<Op>),
    /// The same request, whose answer does not matter.
    Try(Box<Op>),
    /// Spawns this many ranks of each program with these info keys, or fewer if the errors say so.
    Spawn {
        programs: Vec<(usize, u32)>,
        info: Vec<(String, String)>,
        errors: usize,
    },
    /// Waits until the job spawned last is in this state.
    Await(String),
    Write(Stream, Vec<u8>),
    Sleep(Duration),
    /// Reads standard input to its end.
    ReadStdin,
    /// Enters a fence through the gRPC service.
    CallFence,
    /// Sends a request to the head, as a PMIx server does for its process, and checks the answer.
    Ask(Box<name_call::Op>, Check),
    /// Commits data, which others may fetch.
    Commit(String, String),
    /// Waits until it has got this many events with different data.
    Events(usize),
    Abort(i32),
    Exit(i32),
    Die(i32),
    /// Waits forever.
    Hang,
}

impl Op {
    /// Returns whether only PMI-2 has the operation.
    pub(crate) fn is_of_two(&self) -> bool {
        matches!(self, Op::Ring { .. } | Op::PutOnNode(..) | Op::GetOnNode(..))
    }
}

/// Returns whether an answer is the right one.
#[derive(Clone)]
pub(crate) struct Check(pub(crate) Rc<dyn Fn(&NameResult) -> bool>);

impl std::fmt::Debug for Check {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Check")
    }
}

/// An action of a rank.
#[derive(Debug)]
pub(crate) enum Act {
    Ask(name_call::Op),
    Commit(String, String),
    Pmi(Vec<u8>),
    Write(Stream, Vec<u8>),
    Sleep(Duration),
    /// Enters a fence over gRPC; the number is the rank's own for this fence.
    CallFence(u64),
    End(Status),
}

/// What a rank is waiting for.
#[derive(Debug, PartialEq, Eq)]
enum Wait {
    Nothing,
    Reply,
    Clock,
    Stdin,
    Call,
    Answer,
    Events(usize),
    Ever,
}

#[derive(Debug)]
pub(crate) struct Rank {
    pub(crate) rank: u32,
    script: VecDeque<Op>,
    opening: VecDeque<Request>,
    kvsname: Vec<u8>,
    /// The namespace of the job that it spawned last.
    spawned: Vec<u8>,
    /// Whether the launcher has made listening sockets.
    pub(crate) listens: bool,
    dialect: Dialect,
    /// The operation whose reply it waits for.
    asked: Option<Op>,
    wait: Wait,
    pub(crate) stdin_open: bool,
    pub(crate) alive: bool,
    /// Whether it ignores TERM.
    pub(crate) stubborn: bool,
    /// Whether an unexpected answer ends it.
    pub(crate) gives_up: bool,
    /// The number of fences that it has passed by the gRPC service.
    fences: u64,
    /// The data of the events that it has got, in order.
    pub(crate) events: Vec<Bytes>,
}

impl Rank {
    pub(crate) fn new(rank: u32, script: Vec<Op>, stdin_open: bool, stubborn: bool, dialect: Dialect) -> Rank {
        Rank {
            rank,
            script: script.into(),
            opening: VecDeque::new(),
            kvsname: Vec::new(),
            spawned: Vec::new(),
            listens: false,
            dialect,
            asked: None,
            wait: Wait::Nothing,
            stdin_open,
            alive: true,
            stubborn,
            gives_up: false,
            fences: 0,
            events: Vec::new(),
        }
    }

    pub(crate) fn has_finished(&self) -> bool {
        self.script.is_empty()
    }

    /// Runs the script until it must wait.
    pub(crate) fn go(&mut self) -> Vec<Act> {
        let mut acts = Vec::new();
        while self.alive && self.wait == Wait::Nothing {
            if let Some(request) = self.opening.pop_front() {
                self.ask(request, Op::Init, &mut acts);
                continue;
            }
            let Some(op) = self.script.pop_front() else { panic!("rank {} has no end in its script", self.rank) };
            let kvsname = self.kvsname.clone();
            let question = match &op {
                Op::Not(question) | Op::Try(question) => (**question).clone(),
                op => op.clone(),
            };
            match question {
                Op::Init => {
                    let init = Request::Init { version: 1, subversion: 1 };
                    let secret = Request::Get { kvsname: Vec::new(), key: listening::SECRET_KEY.into() };
                    self.opening.extend([init, Request::GetMaxes, Request::GetMyKvsname, secret]);
                }
                Op::Put(key, value) => {
                    self.ask(Request::Put { kvsname, key: key.into(), value: value.into() }, op, &mut acts);
                }
                Op::Fence => self.ask(Request::BarrierIn { group: None }, op, &mut acts),
                Op::Get(key, _) => self.ask(Request::Get { kvsname, key: key.into() }, op, &mut acts),
                Op::Locate(rank) => {
                    self.ask(Request::Get { kvsname, key: listening::address_key(rank).into() }, op, &mut acts);
                }
                Op::Mapping => {
                    self.ask(Request::Get { kvsname, key: "PMI_process_mapping".into() }, op, &mut acts);
                }
                Op::Ring { .. } | Op::PutOnNode(..) | Op::GetOnNode(..) => {
                    acts.push(Act::Pmi(dialects::of_two(&op)));
                    self.asked = Some(op);
                    self.wait = Wait::Reply;
                }
                Op::Finalize => self.ask(Request::Finalize, op, &mut acts),
                Op::Publish(service, port) => {
                    self.ask(Request::PublishName { service: service.into(), port: port.into() }, op, &mut acts);
                }
                Op::Unpublish(service) => {
                    self.ask(Request::UnpublishName { service: service.into() }, op, &mut acts);
                }
                Op::Spawn { programs, info, .. } => self.ask(Request::Spawn(spawn(&programs, &info)), op, &mut acts),
                Op::Await(_) => {
                    let kvsname = self.spawned.clone();
                    self.ask(Request::Get { kvsname, key: spawning::STATE_KEY.into() }, op, &mut acts);
                }
                Op::Not(_) | Op::Try(_) => panic!("Not and Try cannot be nested"),
                Op::Lookup(service, _) => self.ask(Request::LookupName { service: service.into() }, op, &mut acts),
                Op::Write(stream, bytes) => acts.push(Act::Write(stream, bytes)),
                Op::Sleep(time) => {
                    self.wait = Wait::Clock;
                    acts.push(Act::Sleep(time));
                }
                Op::ReadStdin => {
                    if self.stdin_open {
                        self.wait = Wait::Stdin;
                        self.script.push_front(Op::ReadStdin);
                    }
                }
                Op::CallFence => {
                    self.wait = Wait::Call;
                    acts.push(Act::CallFence(self.fences + 1));
                }
                Op::Ask(question, check) => {
                    acts.push(Act::Ask((*question).clone()));
                    self.asked = Some(Op::Ask(question, check));
                    self.wait = Wait::Answer;
                }
                Op::Commit(what, data) => acts.push(Act::Commit(what, data)),
                Op::Events(count) if self.events.len() < count => self.wait = Wait::Events(count),
                Op::Events(_) => {}
                Op::Abort(exit_code) => {
                    let abort = Request::Abort { exit_code, message: b"giving up".to_vec() };
                    acts.push(Act::Pmi(self.dialect.write(&abort)));
                    self.wait = Wait::Ever; // the launcher ends it
                }
                Op::Exit(code) => {
                    self.wait = Wait::Ever;
                    acts.push(Act::End(Status::Exited(code)));
                }
                Op::Die(signal) => {
                    self.wait = Wait::Ever;
                    acts.push(Act::End(Status::Signaled(signal)));
                }
                Op::Hang => self.wait = Wait::Ever,
            }
        }
        acts
    }

    fn ask(&mut self, request: Request, op: Op, acts: &mut Vec<Act>) {
        acts.push(Act::Pmi(self.dialect.write(&request)));
        self.asked = Some(op);
        self.wait = Wait::Reply;
    }

    /// Handles bytes from the launcher.
    pub(crate) fn on_pmi(&mut self, bytes: &[u8]) -> Vec<Act> {
        self.dialect.feed(bytes);
        if let Some(op) = self.asked.as_ref().filter(|op| op.is_of_two()) {
            let Some(reply) = self.dialect.next_of_two() else { return Vec::new() };
            assert!(dialects::is_right(op, &reply), "rank {} requested {op:?} and got {reply:?}", self.rank);
            self.asked = None;
            return self.resume(&Wait::Reply);
        }
        let Some(reply) = self.dialect.next() else { return Vec::new() };
        if self.asked.is_none() && self.gives_up && matches!(reply, Reply::Failed(_)) {
            return Vec::new(); // the reply says why the connection is closed
        }
        let asked = self.asked.take().unwrap_or_else(|| panic!("rank {} got {reply:?} unasked", self.rank));
        if let (Op::Await(wanted), Reply::GetResult(Some(state))) = (&asked, &reply)
            && !state.starts_with(wanted.as_bytes())
        {
            assert_eq!(state, b"running", "rank {} expects {wanted}", self.rank);
            self.script.push_front(asked);
            self.script.push_front(Op::Sleep(Duration::from_millis(20)));
            return self.resume(&Wait::Reply);
        }
        let right = match (&asked, &reply) {
            (Op::Spawn { programs, errors, .. }, Reply::SpawnResult { rc: 0, jobid, errcodes }) => {
                self.spawned.clone_from(jobid);
                let asked: u32 = programs.iter().map(|(_, n)| n).sum();
                (errcodes.len() == asked as usize || self.dialect.is_two() && errcodes.is_empty())
                    && errcodes.iter().filter(|code| **code != 0).count() == *errors
            }
            (Op::Await(_), Reply::GetResult(Some(_))) => true,
            (Op::Init, Reply::ResponseToInit { rc: 0, .. } | Reply::Maxes { .. }) => true,
            (Op::Init, Reply::MyKvsname(name)) => {
                self.kvsname.clone_from(name);
                true
            }
            (Op::Init, Reply::GetResult(secret)) => {
                self.listens = secret.is_some();
                true
            }
            (Op::Locate(rank), Reply::GetResult(Some(value))) => {
                let address = str::from_utf8(value).ok().and_then(|text| text.parse::<SocketAddr>().ok());
                self.listens && address.is_some_and(|address| address.port() == port(*rank))
            }
            (Op::Locate(_), Reply::GetResult(None)) => !self.listens,
            (Op::Put(..), Reply::PutResult { rc: 0 })
            | (Op::Fence, Reply::BarrierOut { rc: 0, tag: None })
            | (Op::Finalize, Reply::FinalizeAck)
            | (Op::Publish(..), Reply::PublishResult { rc: 0 })
            | (Op::Unpublish(_), Reply::UnpublishResult { rc: 0 }) => true,
            (Op::Try(_), _) => true,
            (Op::Not(question), reply) => matches!(
                (&**question, reply),
                (Op::Publish(..), Reply::PublishResult { rc: 1 })
                    | (Op::Unpublish(_), Reply::UnpublishResult { rc: 1 })
                    | (Op::Lookup(..), Reply::LookupResult(None))
                    | (Op::Get(..), Reply::GetResult(None))
                    | (Op::Spawn { .. }, Reply::SpawnResult { rc: 1, .. })
            ),
            (Op::Get(_, wanted), Reply::GetResult(Some(value))) => value == wanted.as_bytes(),
            (Op::Mapping, Reply::GetResult(Some(value))) => value.starts_with(b"(vector"),
            (Op::Lookup(_, wanted), Reply::LookupResult(Some(port))) => port == wanted.as_bytes(),
            _ => false,
        };
        // The address of a rank on a lost node never arrives; whoever asserts that a job has done its work finds out.
        let is_lost = matches!((&asked, &reply), (Op::Locate(_), Reply::GetResult(None)));
        if !right && (self.gives_up || is_lost) {
            return vec![Act::End(Status::Exited(1))];
        }
        assert!(right, "rank {} requested {asked:?} and got {reply:?}", self.rank);
        assert!(self.dialect.next().is_none(), "rank {} got more than one reply", self.rank);
        self.resume(&Wait::Reply)
    }

    pub(crate) fn on_wake(&mut self) -> Vec<Act> {
        self.resume(&Wait::Clock)
    }

    pub(crate) fn on_stdin_end(&mut self) -> Vec<Act> {
        self.stdin_open = false;
        self.resume(&Wait::Stdin)
    }

    /// Handles the answer to a fence over gRPC. After a failure, the rank may have passed or not: it asks again.
    pub(crate) fn on_call_answered(&mut self, done: bool) -> Vec<Act> {
        match done {
            true => self.fences += 1,
            false => {
                self.script.push_front(Op::CallFence);
                self.script.push_front(Op::Sleep(Duration::from_millis(50)));
            }
        }
        self.resume(&Wait::Call)
    }

    /// Handles the head's answer to its request.
    pub(crate) fn on_answer(&mut self, result: &NameResult) -> Vec<Act> {
        let Some(Op::Ask(question, Check(check))) = self.asked.take() else {
            panic!("rank {} got {result:?} unasked", self.rank)
        };
        if !check(result) {
            assert!(self.gives_up, "rank {} requested {question:?} and got {result:?}", self.rank);
            return vec![Act::End(Status::Exited(1))];
        }
        self.resume(&Wait::Answer)
    }

    /// Handles an event.
    pub(crate) fn on_event(&mut self, data: Bytes) -> Vec<Act> {
        assert!(!self.events.contains(&data), "rank {} got the event {data:?} twice", self.rank);
        self.events.push(data);
        self.resume(&Wait::Events(self.events.len()))
    }

    fn resume(&mut self, from: &Wait) -> Vec<Act> {
        if self.wait != *from {
            return Vec::new();
        }
        self.wait = Wait::Nothing;
        self.go()
    }
}

fn spawn(programs: &[(usize, u32)], info: &[(String, String)]) -> Spawn {
    let info: Vec<_> = info.iter().map(|(key, value)| (key.clone().into_bytes(), value.clone().into_bytes())).collect();
    let segment = |(program, n): &(usize, u32)| SpawnSegment {
        nprocs: *n,
        execname: program.to_string().into_bytes(),
        args: Vec::new(),
        info: info.clone(),
    };
    let preput = [(spawning::PARENT_PORT_KEY.into(), b"port$7".to_vec())].into();
    Spawn { segments: programs.iter().map(segment).collect(), preput }
}

/// Returns the port at which a rank listens on its node.
pub(crate) fn port(rank: u32) -> u16 {
    1024 + (rank % 60_000) as u16
}

// --- programs ---

/// Returns an MPI program: init, `fences` rounds of put, fence and gets, finalize, exit. It gets the keys of all ranks if they
/// are few, else of a sample.
pub(crate) fn mpi(rank: u32, size: u32, fences: u32, rng: &mut Rng) -> Vec<Op> {
    let mut script = vec![Op::Init, Op::Mapping];
    script.extend(rounds(rank, size, 0..fences, rng));
    script.extend([Op::Finalize, Op::Exit(0)]);
    script
}

/// Returns rounds of put, fence and gets.
pub(crate) fn rounds(rank: u32, size: u32, rounds: std::ops::Range<u32>, rng: &mut Rng) -> Vec<Op> {
    let mut script = Vec::new();
    for round in rounds {
        script.push(Op::Put(key(rank, round), value(rank, round)));
        if rng.chance(4) {
            script.push(Op::Sleep(rng.within(Duration::from_millis(20))));
        }
        if rng.chance(3) {
            script.push(Op::Locate(rng.below(u64::from(size)) as u32));
        }
        script.push(Op::Fence);
        let others: Vec<u32> = if size <= 24 {
            (0..size).collect()
        } else {
            (0..4).map(|_| rng.below(u64::from(size)) as u32).chain([0, size - 1, (rank + 1) % size]).collect()
        };
        script.extend(others.into_iter().map(|other| Op::Get(key(other, round), value(other, round))));
    }
    script
}

fn key(rank: u32, round: u32) -> String {
    format!("bc-{round}-{rank}")
}

fn value(rank: u32, round: u32) -> String {
    format!("tcp$rank={rank} round={round}$")
}

/// Returns writes of lines and of an unfinished last line, cut anywhere within lines.
pub(crate) fn output(rank: u32, lines: u64, rng: &mut Rng) -> Vec<Op> {
    let mut text = Vec::new();
    for number in 0..lines {
        text.extend_from_slice(format!("rank {rank} line {number} {}\n", "x".repeat(rng.index(60))).as_bytes());
    }
    text.extend_from_slice(b"and no end");
    let mut script = Vec::new();
    while !text.is_empty() {
        let rest = text.split_off((1 + rng.index(120)).min(text.len()));
        let stream = if rng.chance(5) { Stream::Stderr } else { Stream::Stdout };
        script.push(Op::Write(stream, std::mem::replace(&mut text, rest)));
        if rng.chance(4) {
            script.push(Op::Sleep(rng.within(Duration::from_millis(5))));
        }
    }
    script
}
