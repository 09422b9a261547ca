//! The dialects of ranks: scripts are written for PMI-1, and said in PMI-2 by some ranks.

use rsd_proto::pmi::v1::{self, Reply, Request};
use rsd_proto::pmi::v2;

use crate::ranks::Op;

/// The client's half of a connection.
#[derive(Debug)]
pub(crate) enum Dialect {
    One(Box<v1::ReplyDecoder>),
    /// The first answer is a line.
    Two {
        opening: Option<Box<v1::ReplyDecoder>>,
        frames: v2::ReplyDecoder,
    },
}

impl Dialect {
    pub(crate) fn one() -> Dialect {
        Dialect::One(Box::default())
    }

    pub(crate) fn two() -> Dialect {
        Dialect::Two { opening: Some(Box::default()), frames: v2::ReplyDecoder::new() }
    }

    pub(crate) fn is_two(&self) -> bool {
        matches!(self, Dialect::Two { .. })
    }

    pub(crate) fn write(&self, request: &Request) -> Vec<u8> {
        let mut bytes = Vec::new();
        match self {
            Dialect::One(_) => request.encode(&mut bytes).expect("these requests are short"),
            Dialect::Two { .. } => match in_two(request) {
                Some(request) => bytes = frame(request),
                None => {
                    let init = Request::Init { version: 2, subversion: 0 };
                    init.encode(&mut bytes).expect("this request is short");
                }
            },
        }
        bytes
    }

    pub(crate) fn feed(&mut self, bytes: &[u8]) {
        match self {
            Dialect::One(lines) | Dialect::Two { opening: Some(lines), .. } => lines.feed(bytes),
            Dialect::Two { opening: None, frames } => frames.feed(bytes),
        }
    }

    /// Returns the next reply, in the form of PMI-1.
    pub(crate) fn next(&mut self) -> Option<Reply> {
        match self {
            Dialect::One(lines) => Some(lines.next()?.expect("the launcher writes what the client half reads")),
            Dialect::Two { opening: opening @ Some(_), .. } => {
                let reply = opening.as_mut()?.next()?.expect("the launcher writes what the client half reads");
                *opening = None;
                assert_eq!(reply, v2::ACCEPTED);
                Some(reply)
            }
            Dialect::Two { opening: None, frames } => {
                let (echo, reply) = frames.next()?.expect("the launcher writes what the client half reads");
                Some(in_one(echo.verb, reply))
            }
        }
    }

    pub(crate) fn next_of_two(&mut self) -> Option<v2::Reply> {
        let Dialect::Two { frames, .. } = self else { panic!("only PMI-2 has this operation") };
        Some(frames.next()?.expect("the launcher writes what the client half reads").1)
    }
}

fn frame(request: v2::Request) -> Vec<u8> {
    let mut bytes = Vec::new();
    v2::Asked { request, thrid: None }.encode(&mut bytes).expect("these requests are short");
    bytes
}

/// Returns the request for an operation that only PMI-2 has.
pub(crate) fn of_two(op: &Op) -> Vec<u8> {
    frame(match op {
        Op::Ring { value, .. } => {
            v2::Request::Ring { count: 1, left: value.clone().into(), right: value.clone().into() }
        }
        Op::PutOnNode(key, value) => v2::Request::PutNodeAttr { key: key.clone().into(), value: value.clone().into() },
        Op::GetOnNode(key, _) => v2::Request::GetNodeAttr { key: key.clone().into(), wait: true },
        other => panic!("{other:?} is no operation of PMI-2 alone"),
    })
}

pub(crate) fn is_right(op: &Op, reply: &v2::Reply) -> bool {
    match (op, reply) {
        (Op::Ring { left, right, .. }, v2::Reply::Ring { left: from_left, right: from_right, .. }) => {
            from_left == left.as_bytes() && from_right == right.as_bytes()
        }
        (Op::PutOnNode(..), v2::Reply::Done) => true,
        (Op::GetOnNode(_, wanted), v2::Reply::Value(value)) => value.as_deref() == wanted.as_deref().map(str::as_bytes),
        _ => false,
    }
}

/// None: a line.
fn in_two(request: &Request) -> Option<v2::Request> {
    Some(match request.clone() {
        Request::Init { .. } => return None,
        Request::GetMaxes => v2::Request::FullInit { pmijobid: None, pmirank: None, srcid: None },
        Request::GetMyKvsname => v2::Request::JobGetId,
        Request::Put { key, value, .. } => v2::Request::KvsPut { key, value },
        Request::Get { key, .. } if key == b"PMI_process_mapping" => v2::Request::GetJobAttr { key },
        Request::Get { key, kvsname } => v2::Request::KvsGet { jobid: Some(kvsname), key },
        Request::BarrierIn { .. } => v2::Request::KvsFence,
        Request::PublishName { service: name, port } => v2::Request::NamePublish { name, port },
        Request::LookupName { service: name } => v2::Request::NameLookup { name },
        Request::UnpublishName { service: name } => v2::Request::NameUnpublish { name },
        Request::Spawn(spawn) => v2::Request::Spawn(spawn),
        Request::Abort { exit_code, message } => v2::Request::Abort { exit_code: Some(exit_code), message },
        Request::Finalize => v2::Request::Finalize,
        other => panic!("no script sends {other:?}"),
    })
}

fn in_one(verb: v2::Verb, reply: v2::Reply) -> Reply {
    let rc = i32::from(matches!(reply, v2::Reply::Failed { .. }));
    match (verb, reply) {
        (v2::Verb::FullInit, v2::Reply::FullInit { .. }) => Reply::maxes(),
        (_, v2::Reply::JobId(name)) => Reply::MyKvsname(name),
        (v2::Verb::NameLookup, v2::Reply::Value(port)) => Reply::LookupResult(port),
        (_, v2::Reply::Value(value)) => Reply::GetResult(value),
        (_, v2::Reply::Spawned { jobid, codes }) => Reply::SpawnResult { rc, jobid, errcodes: codes },
        (v2::Verb::Spawn, _) => Reply::SpawnResult { rc, jobid: Vec::new(), errcodes: Vec::new() },
        (v2::Verb::NamePublish, _) => Reply::PublishResult { rc },
        (v2::Verb::NameUnpublish, _) => Reply::UnpublishResult { rc },
        (v2::Verb::KvsPut, v2::Reply::Done) => Reply::PutResult { rc },
        (v2::Verb::KvsFence, v2::Reply::Done) => Reply::BarrierOut { rc, tag: None },
        (v2::Verb::Finalize, v2::Reply::Done) => Reply::FinalizeAck,
        (_, v2::Reply::Failed { why }) => Reply::Failed(why),
        (verb, other) => panic!("{other:?} does not answer {verb:?}"),
    }
}
