//! Requests that a test makes in the place of a PMIx server, to examine what the head and the links do with them.

use std::collections::BTreeMap;

use bytes::Bytes;
use rsd_proto::v1::{self as wire, name_call};

use super::{Effect, Local, Step};
use crate::status::{NOT_FOUND, SUCCESS};

/// This bit distinguishes a test's tickets from those of the PMIx server.
pub(super) const TICKETS: u64 = 1 << 63;

/// What a test has got and committed.
#[derive(Debug, Default)]
pub struct Probe {
    /// The answers to its requests, by ticket.
    pub answers: Vec<(u64, wire::NameResult)>,
    /// The events for its job.
    pub events: Vec<wire::Event>,
    committed: BTreeMap<(u32, Bytes), Bytes>,
    waiting: BTreeMap<u64, wire::Fetch>,
}

impl Step {
    /// Returns the test's part. From the first call on, it is in the place of a PMIx server.
    pub fn probe(&mut self) -> &mut Probe {
        self.others.probe.get_or_insert_default()
    }

    /// Sends a request to the head.
    pub fn probe_ask(&mut self, ticket: u64, op: name_call::Op, out: &mut Vec<Effect>) {
        self.ask_head_for(ticket | TICKETS, op, out);
    }

    /// Commits data of a rank.
    pub fn probe_commit(&mut self, rank: u32, what: Bytes, data: Bytes, out: &mut Vec<Effect>) {
        let probe = self.probe();
        probe.committed.insert((rank, what), data);
        for fetch in std::mem::take(&mut probe.waiting).into_values() {
            self.probe_fetch(fetch, out);
        }
    }

    pub(super) fn probe_fetch(&mut self, fetch: wire::Fetch, out: &mut Vec<Effect>) {
        let found = self.probe().committed.get(&(fetch.rank, fetch.what.clone())).cloned();
        let is_over = self.ranks.iter().any(|rank| rank.rank == fetch.rank && rank.phase.is_over());
        match found {
            Some(data) => self.answer_fetch(&fetch, SUCCESS, "", data, out),
            None if fetch.immediate || is_over => {
                self.answer_fetch(&fetch, NOT_FOUND, "it was not committed", Bytes::new(), out);
            }
            None => drop(self.probe().waiting.insert(fetch.number, fetch)),
        }
    }

    pub(super) fn probe_rank_over(&mut self, local: Local, out: &mut Vec<Effect>) {
        let rank = self.ranks[local].rank;
        let waiting = self.probe().waiting.extract_if(.., |_, fetch| fetch.rank == rank);
        for (_, fetch) in waiting.collect::<Vec<_>>() {
            self.probe_fetch(fetch, out);
        }
    }
}
