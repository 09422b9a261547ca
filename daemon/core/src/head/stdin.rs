//! Standard input of a job, on its way from one client to the nodes whose ranks read it.
//!
//! The client's chunks wait here until every reading node has acknowledged them; a client that sends faster than the ranks
//! read gets its answers later. Nothing goes to a node before its step says that it is there.

use std::collections::BTreeMap;

use bytes::Bytes;
use rsd_proto::v1::{self as wire, Down, StdinAck, down};

use crate::head::job::Life;
use crate::outbox::Outbox;
use crate::rsd::{Effect, ReqId, Rsd};
use crate::{JobId, NodeId};

const WINDOW_BYTES: u64 = 256 << 10;

/// One job's standard input.
#[derive(Debug)]
pub(crate) struct StdinFeed {
    outbox: Outbox<Chunk>,
    /// Absent until the job is placed.
    readers: Option<BTreeMap<NodeId, Reader>>,
    /// The client's request that is answered when there is room again, or, at the end, when all is taken.
    waiting: Option<(ReqId, bool)>,
}

#[derive(Debug, Clone)]
struct Chunk {
    data: Bytes,
    eof: bool,
}

#[derive(Debug, Default)]
struct Reader {
    there: bool,
    closed: bool,
    acked: u64,
}

impl Default for StdinFeed {
    fn default() -> StdinFeed {
        StdinFeed { outbox: Outbox::new(WINDOW_BYTES), readers: None, waiting: None }
    }
}

impl StdinFeed {
    /// These nodes have ranks that read.
    pub(crate) fn set_readers(&mut self, nodes: impl Iterator<Item = NodeId>) {
        self.readers = Some(nodes.map(|node| (node, Reader::default())).collect());
    }

    fn nobody_reads(&self) -> bool {
        self.readers.as_ref().is_some_and(|readers| readers.values().all(|reader| reader.closed))
    }

    /// Answers the waiting client if it can be.
    pub(crate) fn settle(&mut self, job_over: bool) -> Option<ReqId> {
        let readers = self.readers.iter().flat_map(BTreeMap::values);
        let taken = readers.filter(|reader| !reader.closed).map(|reader| reader.acked).min();
        if let Some(taken) = taken {
            self.outbox.ack(taken);
        }
        let (req, eof) = self.waiting?;
        let ready =
            job_over || self.nobody_reads() || if eof { self.outbox.is_drained() } else { self.outbox.is_open() };
        if ready {
            self.waiting = None;
        }
        ready.then_some(req)
    }
}

impl Rsd {
    /// A client brings input for a job; `eof` with the last of it.
    pub(crate) fn on_stdin_chunk(&mut self, req: ReqId, job: JobId, data: Bytes, eof: bool, out: &mut Vec<Effect>) {
        let Some(found) = self.head.as_mut().and_then(|head| head.job_mut(job)) else {
            return self.answer_no_such_job(req, job, out);
        };
        if found.is_over() || matches!(found.life, Life::Outlived { .. }) {
            return out.push(Effect::Answer { req, answer: crate::rsd::Answer::Stopped });
        }
        // One client feeds a job; a second one's chunk takes the first one's place in the queue for an answer.
        if let Some((before, _)) = found.stdin.waiting.replace((req, eof)) {
            out.push(Effect::Answer { req: before, answer: crate::rsd::Answer::Stopped });
        }
        let offset = found.stdin.outbox.push(data.len() as u64 + u64::from(eof), Chunk { data: data.clone(), eof });
        let readers = found.stdin.readers.iter().flatten().filter(|(_, reader)| reader.there && !reader.closed);
        let nodes: Vec<NodeId> = readers.map(|(node, _)| *node).collect();
        for node in nodes {
            let stdin = wire::Stdin { job, node, offset, data: data.clone(), eof };
            self.to_node(job, node, Down { body: Some(down::Body::Stdin(stdin)) }, out);
        }
    }

    pub(crate) fn on_stdin_ack(&mut self, ack: StdinAck, out: &mut Vec<Effect>) {
        let job = ack.job;
        let Some(found) = self.head.as_mut().and_then(|head| head.job_mut(job)) else { return };
        let Some(reader) = found.stdin.readers.as_mut().and_then(|readers| readers.get_mut(&ack.node)) else { return };
        reader.acked = reader.acked.max(ack.offset);
        reader.closed |= ack.closed;
        if !ack.resume || reader.closed {
            return;
        }
        reader.there = true;
        let again: Vec<(u64, Chunk)> = found.stdin.outbox.unacked().map(|(at, chunk)| (at, chunk.clone())).collect();
        for (offset, Chunk { data, eof }) in again {
            let stdin = wire::Stdin { job, node: ack.node, offset, data, eof };
            self.to_node(job, ack.node, Down { body: Some(down::Body::Stdin(stdin)) }, out);
        }
    }
}
