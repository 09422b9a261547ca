//! The standard input of a job: takes it from one client and sends it to the nodes whose ranks read it.
//!
//! The client's chunks are kept here until every reading node has acknowledged them. If a client sends faster than the ranks
//! read, its requests are answered later. Nothing is sent to a node before its step has attached. The answers say how much all
//! readers have, and a client keeps the rest: so it can go on with the next head, which begins with what the client sends first.

use std::collections::BTreeMap;

use bytes::Bytes;
use rsd_proto::v1::{self as wire, JobSpec, StdinAck, stdin_target};

use crate::contract::ReqId;
use crate::outbox::Outbox;
use crate::taskmap::TaskMap;
use crate::{JobId, NodeId};

const WINDOW_BYTES: u64 = 256 << 10;

/// One job's standard input.
#[derive(Debug)]
pub(super) struct StdinFeed {
    outbox: Outbox<Chunk>,
    /// The reading nodes; None until the job is placed.
    readers: Option<BTreeMap<NodeId, Reader>>,
    /// The client's pending request. It is answered when there is room again or, at the end of input, when all is acknowledged.
    waiting: Option<(ReqId, bool)>,
    /// Whether the job ran under an earlier head, and no client has sent input to this one.
    is_resumed: bool,
    /// Whether the input's end has arrived.
    ended: bool,
}

/// The answer to a client that sends input.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Fed {
    pub(super) req: ReqId,
    /// How many bytes of the input all readers have.
    pub(super) delivered: u64,
    /// Whether no rank reads any more.
    pub(super) closed: bool,
}

#[derive(Debug, Clone)]
struct Chunk {
    data: Bytes,
    eof: bool,
}

#[derive(Debug, Default)]
struct Reader {
    is_attached: bool,
    is_closed: bool,
    acked: u64,
}

impl Default for StdinFeed {
    fn default() -> StdinFeed {
        StdinFeed { outbox: Outbox::new(WINDOW_BYTES), readers: None, waiting: None, is_resumed: false, ended: false }
    }
}

impl StdinFeed {
    /// Returns the input of a job that ran before the head was started.
    pub(super) fn restored(nodes: impl IntoIterator<Item = NodeId>) -> StdinFeed {
        let mut feed = StdinFeed { is_resumed: true, ..StdinFeed::default() };
        feed.set_readers(nodes);
        feed
    }

    /// Sets the nodes with reading ranks, once the job is placed.
    pub(super) fn set_readers(&mut self, nodes: impl IntoIterator<Item = NodeId>) {
        self.readers = Some(nodes.into_iter().map(|node| (node, Reader::default())).collect());
    }

    /// Takes a client's input, whose first byte is byte number `at` of all (None: it follows what this head has); `eof` is set with the
    /// last chunk. Returns the messages to send, and the request that this one replaces. Fails if there is a gap before it.
    pub(super) fn push(
        &mut self,
        job: JobId,
        req: ReqId,
        at: Option<u64>,
        mut data: Bytes,
        eof: bool,
    ) -> Result<(Vec<wire::Stdin>, Option<ReqId>), String> {
        if let Some(at) = at.filter(|_| std::mem::take(&mut self.is_resumed)) {
            self.outbox = Outbox::beginning(WINDOW_BYTES, at);
        }
        let (end, has_eof) = self.end();
        let known = end.saturating_sub(at.unwrap_or(end));
        if at.is_some_and(|at| at > end) || has_eof && data.len() as u64 > known {
            return Err(format!("its standard input has {end} bytes so far: a client cannot go on elsewhere"));
        }
        // Only one client sends input to a job: the request of a second client replaces that of the first.
        let before = self.waiting.replace((req, eof)).map(|(before, _)| before);
        // A client that has reconnected repeats what no reader has confirmed.
        let known = usize::try_from(known).map_or(data.len(), |known| known.min(data.len()));
        let data = data.split_off(known);
        if has_eof || data.is_empty() && !eof {
            return Ok((Vec::new(), before));
        }
        self.ended |= eof;
        let offset = self.outbox.push(data.len() as u64 + u64::from(eof), Chunk { data: data.clone(), eof });
        let readers = self.readers.iter().flatten().filter(|(_, reader)| reader.is_attached && !reader.is_closed);
        let stdin = readers.map(|(node, _)| wire::Stdin { job, node: *node, offset, data: data.clone(), eof });
        Ok((stdin.collect(), before))
    }

    /// Returns how many bytes of input have arrived, and whether its end has.
    fn end(&self) -> (u64, bool) {
        (self.outbox.end() - u64::from(self.ended), self.ended)
    }

    /// Handles an acknowledgement of a node, or the first report of its step. Returns the messages to send (again).
    pub(super) fn on_ack(&mut self, ack: &StdinAck) -> Vec<wire::Stdin> {
        let Some(reader) = self.readers.as_mut().and_then(|readers| readers.get_mut(&ack.node)) else {
            return Vec::new();
        };
        reader.acked = reader.acked.max(ack.offset);
        reader.is_closed |= ack.closed;
        if !ack.resume || reader.is_closed {
            return Vec::new();
        }
        reader.is_attached = true;
        let (job, node) = (ack.job, ack.node);
        let again = self.outbox.unacked().map(|(offset, chunk)| {
            let Chunk { data, eof } = chunk.clone();
            wire::Stdin { job, node, offset, data, eof }
        });
        again.collect()
    }

    /// Drops the input that all readers have acknowledged. Returns the answer to the pending request if it can be answered. Must be
    /// called after every change.
    pub(super) fn settle(&mut self, no_ranks: bool) -> Option<Fed> {
        let readers = self.readers.iter().flat_map(BTreeMap::values);
        if let Some(taken) = readers.filter(|reader| !reader.is_closed).map(|reader| reader.acked).min() {
            self.outbox.ack(taken);
        }
        let (req, eof) = self.waiting?;
        let unread = self.readers.as_ref().is_some_and(|readers| readers.values().all(|reader| reader.is_closed));
        let ready = no_ranks || unread || if eof { self.outbox.is_drained() } else { self.outbox.is_open() };
        if ready {
            self.waiting = None;
        }
        let (_, has_eof) = self.end();
        let delivered = self.outbox.acked() - u64::from(has_eof && self.outbox.is_drained());
        ready.then_some(Fed { req, delivered, closed: no_ranks || unread })
    }
}

/// Returns why no rank reads a job's standard input, if the job does not have the rank that was named.
pub(super) fn reader_missing(spec: &JobSpec, map: &TaskMap) -> Option<String> {
    let Some(stdin_target::Target::Rank(rank)) = spec.stdin.as_ref()?.target else { return None };
    let ranks = map.size();
    let counted = if ranks == 1 { "1 rank, rank 0".to_owned() } else { format!("{ranks} ranks, 0 to {}", ranks - 1) };
    (rank >= ranks).then(|| format!("--stdin {rank}: the job has {counted}"))
}

/// Returns the nodes whose ranks read a job's standard input.
pub(super) fn reading_nodes(spec: &JobSpec, map: &TaskMap) -> Vec<NodeId> {
    match spec.stdin.and_then(|stdin| stdin.target) {
        Some(stdin_target::Target::Rank(rank)) => map.node_of(rank).into_iter().collect(),
        Some(stdin_target::Target::All(true)) => map.nodes().to_vec(),
        Some(stdin_target::Target::All(false) | stdin_target::Target::None(_)) | None => Vec::new(),
    }
}
