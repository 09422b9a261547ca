//! Processes of other nodes and jobs: what a PMIx server here requests of the head for its ranks, and what the head requests of it.
//!
//! A request has a *ticket*, a number that the asker chooses. Requests are kept and repeated as all calls are, see `calls`. The
//! head repeats its own requests after a reconnect: a fetch keeps its number, and events have ascending numbers.

use rsd_proto::ranges;
use rsd_proto::v1::{self as wire, name_call, up};

use super::probe::{Probe, TICKETS};
use super::{Effect, Local, Step};
use crate::Now;
use crate::status::{LOST_CONNECTION, NOT_FOUND, NOT_SUPPORTED, SUCCESS};

/// The most answered calls that a call confirms.
const CONFIRMED_MAX: usize = 256;

/// What connects the ranks here with other processes.
#[derive(Debug, Default)]
pub(super) struct Others {
    /// The requests that failed because the ranks are being ended; their askers learn of it next.
    failed: Vec<u64>,
    /// The number of the last event.
    events_seen: u64,
    /// Whether the head wants to know at once which ranks have ended.
    ends_wanted: bool,
    /// The ranks of which it is known here that they have ended, by index, and how many of them have been reported.
    over: Vec<Local>,
    reported: usize,
    pub(super) probe: Option<Probe>,
}

impl Step {
    /// Sends a request to the head. [`Step::on_head_answer`] gets the answer.
    pub(super) fn ask_head_for(&mut self, ticket: u64, op: name_call::Op, out: &mut Vec<Effect>) {
        let (call, open_from) = self.calls.number();
        let uid = self.uid_of(&op);
        let confirmed = &mut self.calls.confirmed;
        let latest = confirmed.len().min(CONFIRMED_MAX);
        let answered = confirmed.drain(..latest).filter(|number| *number >= open_from).collect();
        let message = wire::NameCall { job: self.job, node: self.node, call, op: Some(op), uid, open_from, answered };
        self.send(up::Body::NameCall(message.clone()), out);
        self.calls.tickets.insert(call, (ticket, message));
    }

    /// Returns the user of the member for which a request is made, if it is another than the daemons'.
    fn uid_of(&self, op: &name_call::Op) -> Option<u32> {
        let rank = match op {
            name_call::Op::PublishData(data) => data.rank,
            name_call::Op::LookupData(data) => data.rank,
            name_call::Op::UnpublishData(data) => data.rank,
            name_call::Op::Event(event) => event.rank,
            name_call::Op::Control(control) => control.rank,
            name_call::Op::Namespaces(namespaces) => namespaces.rank,
            name_call::Op::Meet(meet) => meet.arrived.first()?.first,
            name_call::Op::Publish(_)
            | name_call::Op::Lookup(_)
            | name_call::Op::Unpublish(_)
            | name_call::Op::State(_)
            | name_call::Op::FetchData(_)
            | name_call::Op::Describe(_) => return None,
        };
        let rank = self.ranks.iter().find(|it| it.rank == rank)?;
        rank.member.as_ref().and_then(super::members::Member::other_uid)
    }

    /// Handles the answer to a request with a ticket. Returns false if the call had none.
    pub(super) fn on_ticket_result(&mut self, now: Now, result: &wire::NameResult, out: &mut Vec<Effect>) -> bool {
        let Some((ticket, _)) = self.calls.tickets.remove(&result.call) else { return false };
        self.calls.confirmed.push_back(result.call);
        let mut result = result.clone();
        if !result.ok && result.status == SUCCESS {
            // A head of an earlier version does not know the request.
            result.status = NOT_SUPPORTED;
        }
        self.on_head_answer(now, ticket, result, out);
        true
    }

    /// Fails all requests: no answer will come.
    pub(super) fn fail_tickets(&mut self) {
        let tickets = std::mem::take(&mut self.calls.tickets);
        self.others.failed.extend(tickets.into_values().map(|(ticket, _)| ticket));
    }

    /// Handles the head's request for what a rank here has committed. A repeat has the same number.
    pub(super) fn on_fetch_request(&mut self, now: Now, fetch: wire::Fetch, out: &mut Vec<Effect>) {
        match self.ranks.iter().any(|rank| rank.rank == fetch.rank) {
            true => self.on_fetch(now, fetch, out),
            false => self.answer_fetch(&fetch, NOT_FOUND, "the rank is not on this node", bytes::Bytes::new(), out),
        }
    }

    /// Answers the head's request. `why`: a sentence if the status is not 0.
    pub(super) fn answer_fetch(
        &self,
        fetch: &wire::Fetch,
        status: i32,
        why: &str,
        data: bytes::Bytes,
        out: &mut Vec<Effect>,
    ) {
        let (job, node, number, why) = (self.job, self.node, fetch.number, why.to_owned());
        self.send(up::Body::Fetched(wire::Fetched { job, node, number, status, why, data }), out);
    }

    pub(super) fn on_notify(&mut self, now: Now, notify: wire::Notify, out: &mut Vec<Effect>) {
        if notify.number <= self.others.events_seen || notify.previous > self.others.events_seen {
            return; // a repeat, or the one before it was lost with a link: both come again after the Resume
        }
        self.others.events_seen = notify.number;
        if let Some(event) = notify.event {
            self.on_event(now, event, out);
        }
    }

    /// Returns the number of the last event, which a Resume contains.
    pub(super) fn events_seen(&self) -> u64 {
        self.others.events_seen
    }

    pub(super) fn on_ends_wanted(&mut self, out: &mut Vec<Effect>) {
        self.others.ends_wanted = true;
        self.send_ends(out);
    }

    /// Tells the PMIx server, and the head if it wants to know, which ranks have ended since the last time.
    pub(super) fn settle_others(&mut self, now: Now, out: &mut Vec<Effect>) {
        for ticket in std::mem::take(&mut self.others.failed) {
            let (status, why) = (LOST_CONNECTION, self.ending.why());
            self.on_head_answer(now, ticket, wire::NameResult { status, why, ..Default::default() }, out);
        }
        if self.others.over.len() == self.ranks.len() {
            return;
        }
        for local in 0..self.ranks.len() {
            if self.ranks[local].phase.is_over() && !self.others.over.contains(&local) {
                self.others.over.push(local);
                self.on_rank_over(now, local, out);
            }
        }
        if self.others.ends_wanted && self.others.over.len() > self.others.reported {
            self.send_ends(out);
        }
    }

    /// Reports all ranks that have ended. They are reported again on a new link.
    pub(super) fn send_ends(&mut self, out: &mut Vec<Effect>) {
        if !self.others.ends_wanted || self.others.over.is_empty() {
            return;
        }
        self.others.reported = self.others.over.len();
        let mut over: Vec<u32> = self.others.over.iter().map(|local| self.ranks[*local].rank).collect();
        over.sort_unstable();
        let runs = ranges::of(over).into_iter().map(|(first, last)| wire::RankRun { first, last });
        let ended = wire::RanksEnded { job: self.job, node: self.node, ranks: runs.collect() };
        self.send(up::Body::RanksEnded(ended), out);
    }

    // --- the PMIx server ---

    /// Handles the answer to [`Step::ask_head_for`].
    fn on_head_answer(&mut self, now: Now, ticket: u64, result: wire::NameResult, out: &mut Vec<Effect>) {
        match &mut self.others.probe {
            Some(probe) if ticket & TICKETS != 0 => probe.answers.push((ticket & !TICKETS, result)),
            Some(_) | None => self.on_pmix_head_answer(now, ticket, result, out),
        }
    }

    /// Handles the request for what a rank has committed: answers with [`Step::answer_fetch`] when the rank has, or at once if the request
    /// is immediate.
    fn on_fetch(&mut self, _now: Now, fetch: wire::Fetch, out: &mut Vec<Effect>) {
        if self.others.probe.is_some() {
            return self.probe_fetch(fetch, out);
        }
        self.on_pmix_fetch(fetch, out);
    }

    /// Handles an event for processes of this job.
    fn on_event(&mut self, _now: Now, event: wire::Event, out: &mut Vec<Effect>) {
        match &mut self.others.probe {
            Some(probe) => probe.events.push(event),
            None => self.on_pmix_event(event, out),
        }
    }

    /// Handles that a rank has ended: what it has not committed never will be.
    fn on_rank_over(&mut self, _now: Now, local: Local, out: &mut Vec<Effect>) {
        match self.others.probe.is_some() {
            true => self.probe_rank_over(local, out),
            false => self.on_pmix_rank_over(local, out),
        }
    }
}
