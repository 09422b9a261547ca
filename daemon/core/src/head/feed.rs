//! The events of the DVM, for clients that watch it: jobs, nodes, groups, tokens. One bounded list has the latest of all users.
//!
//! Events of jobs are taken from what is logged ([`Feed::observe`] sees every effect of the head), so nothing that a job's log reports can
//! be missing here. The others are told by the places that change a node, a group or a token.
//!
//! Numbers rise, also across restarts: a head begins with its time of day. A client goes on after the last number that it has seen. It
//! keeps no place in the list, so a slow client costs nothing: it learns how many events it has missed.
//!
//! Each event is a record of the journal, in one write with the decision that it tells of. So the next head has it, and a standby too.

use std::collections::{BTreeMap, VecDeque};

use prost::Message;
use rsd_proto::v1::{
    self as wire, DvmEvent, EventsReply, GroupChange, HeadStarted, JobChange, JobEnd, JobEvent, JobInfo, JobPlaced,
    JobState, KeptEvent, NodeChange, NodeEvent, RankFailure, TokenChange, User, dvm_event::What, job_change::Change,
    job_event,
};

use super::NUMBERS_PER_MS_BITS;
use crate::calls::{Caller, Refused, exit};
use crate::contract::Effect;
use crate::{JobId, NodeId, Now, sentences};

/// The most events that are kept, and their most bytes.
const EVENTS_MAX: usize = 16_384;
const BYTES_MAX: usize = 8 << 20;
/// The most bytes of the latest events that the shortest journal has.
const KEPT_BYTES_MAX: usize = 1 << 20;
/// The most events in one answer.
const ANSWER_MAX: usize = 1024;
/// How many failures of a job's ranks are events.
const FAILURES_MAX: u32 = 16;
/// How many of a job's nodes an event names.
const NODES_SHOWN: usize = 4;
/// The longest text of an event, in bytes.
const TEXT_BYTES: usize = 1024;

/// The latest events.
#[derive(Debug)]
pub(super) struct Feed {
    events: VecDeque<Entry>,
    bytes: usize,
    /// The numbers after `began` up to `forgotten` are those of events that are not kept any more. Earlier ones are not counted.
    began: u64,
    forgotten: u64,
    /// The number of the last event.
    last: u64,
    /// The number of the last event whose record was taken for the journal.
    saved: u64,
    /// Of jobs of an earlier head that have not ended: the numbers of events that tell what may be logged again.
    told_before: BTreeMap<JobId, Vec<u64>>,
    /// Jobs that have been submitted and have not ended.
    jobs: BTreeMap<JobId, Known>,
    /// The nodes that clients were told of, and whether the last was that their link is cut.
    nodes: BTreeMap<NodeId, bool>,
    /// Nodes with smaller ids joined an earlier head.
    first_node: NodeId,
    /// How often nodes have changed in each way.
    node_events: BTreeMap<NodeEvent, u64>,
    /// What was told since the last call of [`Feed::settle`].
    told: Vec<(Audience, What)>,
    /// Whether the state of an earlier head is being restored.
    restores: bool,
}

#[derive(Debug)]
struct Entry {
    audience: Audience,
    event: DvmEvent,
    bytes: usize,
}

#[derive(Debug)]
struct Known {
    owner: Option<User>,
    failures: u32,
}

/// Who may see an event, besides administrators.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Audience {
    All,
    /// In a DVM that serves all users: this one.
    User(u32),
}

impl Feed {
    /// Returns a list whose first event is that the head was started. `next_node`: the id of the next new node.
    pub(super) fn new(now: Now, me: &wire::NodeInfo, next_node: NodeId) -> Feed {
        let began = now.unix_ms << NUMBERS_PER_MS_BITS;
        let mut feed = Feed {
            events: VecDeque::new(),
            bytes: 0,
            began,
            forgotten: began,
            last: began,
            saved: began,
            told_before: BTreeMap::new(),
            jobs: BTreeMap::new(),
            nodes: BTreeMap::new(),
            first_node: next_node,
            node_events: BTreeMap::new(),
            told: Vec::new(),
            restores: false,
        };
        feed.nodes.insert(me.node, false);
        let started = HeadStarted { node: me.name.clone(), version: me.version.clone(), ..HeadStarted::default() };
        feed.tell(Audience::All, What::HeadStarted(started));
        feed
    }

    /// Takes over the events of earlier heads, before this one has had its first. `epoch`: which head this is.
    pub(super) fn restore(&mut self, kept: Vec<KeptEvent>, epoch: u64) {
        let mut before: Option<HeadStarted> = None;
        for KeptEvent { event, uid } in kept {
            let Some(event) = event else { continue };
            match &event.what {
                Some(What::Job(change)) => self.note_told(&event, change),
                Some(What::HeadStarted(started)) => before = Some(started.clone()),
                Some(_) | None => {}
            }
            if self.events.is_empty() {
                (self.began, self.forgotten) = (event.number.saturating_sub(1), event.number.saturating_sub(1));
            }
            self.last = self.last.max(event.number);
            self.add(Entry { audience: uid.map_or(Audience::All, Audience::User), bytes: bytes_of(&event), event });
        }
        self.saved = self.last;
        if let Some((_, What::HeadStarted(started))) = self.told.first_mut() {
            started.epoch = epoch;
            let before = before.filter(|before| before.epoch < epoch);
            started.successor_of = before.map(|before| before.node).unwrap_or_default();
        }
    }

    fn note_told(&mut self, event: &DvmEvent, change: &JobChange) {
        let told = self.told_before.entry(change.job).or_default();
        if matches!(change.change, Some(Change::Placed(_))) {
            // An attempt begins: of the earlier ones, only what comes before any placement still counts.
            told.retain(|number| matches!(find(&self.events, *number), Some(Change::Submitted(_) | Change::Queued(_))));
        }
        told.push(event.number);
    }

    /// Returns the latest events as records.
    pub(super) fn kept(&self) -> impl Iterator<Item = KeptEvent> + '_ {
        let mut bytes = 0;
        let count = self.events.iter().rev().take_while(|entry| {
            bytes += entry.bytes;
            bytes <= KEPT_BYTES_MAX
        });
        self.events.range(self.events.len() - count.count()..).map(Entry::kept)
    }

    /// Returns the records of events that were not returned before.
    pub(super) fn take_unsaved(&mut self) -> impl Iterator<Item = KeptEvent> + '_ {
        let saved = std::mem::replace(&mut self.saved, self.last);
        let first = self.events.partition_point(|entry| entry.event.number <= saved);
        self.events.range(first..).map(Entry::kept)
    }

    /// Adds an event when the present input has been handled.
    pub(super) fn tell(&mut self, audience: Audience, what: What) {
        self.told.push((audience, what));
    }

    /// Adds what was told.
    pub(super) fn settle(&mut self, now: Now) {
        for (audience, what) in std::mem::take(&mut self.told) {
            if let What::Node(change) = &what {
                *self.node_events.entry(change.change()).or_default() += 1;
            }
            self.last += 1;
            let event = DvmEvent { number: self.last, at_ms: now.unix_ms, what: Some(what) };
            self.add(Entry { audience, bytes: bytes_of(&event), event });
        }
    }

    fn add(&mut self, entry: Entry) {
        self.bytes += entry.bytes;
        self.events.push_back(entry);
        while self.events.len() > EVENTS_MAX || self.bytes > BYTES_MAX {
            let Some(Entry { event: old, bytes, .. }) = self.events.pop_front() else { break };
            self.bytes -= bytes;
            // A later head began with a larger number than the next one.
            if old.number > self.forgotten.saturating_add(1) {
                self.began = old.number - 1;
            }
            self.forgotten = old.number;
        }
    }

    /// Returns how often nodes have changed in a way.
    pub(super) fn count(&self, event: NodeEvent) -> u64 {
        self.node_events.get(&event).copied().unwrap_or_default()
    }

    /// Returns the number of the last event.
    pub(super) fn last(&self) -> u64 {
        self.last
    }

    /// Returns the events after number `since` that a caller may see, as many as one answer has.
    ///
    /// # Errors
    /// When no event can have had this number yet.
    pub(super) fn after(&self, since: Option<u64>, may_see: impl Fn(Audience) -> bool) -> Result<EventsReply, Refused> {
        let since = since.unwrap_or(self.forgotten);
        if since > self.last {
            let text = format!(
                "event {since:x} has not happened yet, the last one is {:x}: use the cursor that an event of this DVM has, or none \
                 (if the clock of the head's machine was set back, numbers before that cannot be used)",
                self.last
            );
            return Err(Refused::new(exit::USAGE, text));
        }
        let first = self.events.partition_point(|entry| entry.event.number <= since);
        let seen = self.events.range(first..).filter(|entry| may_see(entry.audience)).take(ANSWER_MAX);
        let events: Vec<DvmEvent> = seen.map(|entry| entry.event.clone()).collect();
        let cursor = match events.last() {
            Some(last) if events.len() == ANSWER_MAX => last.number,
            Some(_) | None => self.last,
        };
        let missed = self.forgotten.saturating_sub(since.max(self.began));
        Ok(EventsReply { events, missed, head_restarted: since < self.began, cursor })
    }

    // --- jobs ---

    /// Notes that the head restores what an earlier one has left, or no longer: then it logs again how jobs were started.
    pub(super) fn restoring(&mut self, restores: bool) {
        if self.restores && !restores {
            let events = &self.events;
            let goes_on = |number| find(events, number).is_some_and(|change| !matches!(change, Change::Ended(_)));
            self.told_before.retain(|_, told| told.last().is_some_and(|last| goes_on(*last)));
        }
        self.restores = restores;
    }

    pub(super) fn restores(&self) -> bool {
        self.restores
    }

    /// Takes the events of jobs from what is logged. `alive`: returns whose a job is that has not ended.
    pub(super) fn observe(
        &mut self,
        effect: &Effect,
        alive: impl Fn(JobId) -> Option<Option<User>>,
        name_of: impl Fn(NodeId) -> String,
    ) {
        let Effect::Log { job, event } = effect else { return };
        // A job that an earlier head has submitted is known from now on.
        if !self.jobs.contains_key(job)
            && let Some(owner) = alive(*job)
        {
            self.jobs.insert(*job, Known { owner, failures: 0 });
        }
        self.on_logged(*job, event, name_of);
    }

    fn on_logged(&mut self, job: JobId, event: &JobEvent, name_of: impl Fn(NodeId) -> String) {
        let change = match &event.body {
            Some(job_event::Body::Submitted(submitted)) => {
                self.jobs.insert(job, Known { owner: submitted.owner.clone(), failures: 0 });
                Change::Submitted(shortened(&submitted.command))
            }
            Some(job_event::Body::Queued(queued)) => Change::Queued(shortened(&queued.reason)),
            Some(job_event::Body::Placed(placed)) => Change::Placed(JobPlaced {
                ranks: placed.map.as_ref().map_or(0, ranks_of),
                nodes: placed.node_names.len() as u32,
                node_names: placed.node_names.iter().take(NODES_SHOWN).cloned().collect(),
            }),
            Some(job_event::Body::Killing(killing)) => Change::Killing(shortened(&killing.reason)),
            // It was ended because of another one.
            Some(job_event::Body::RankExit(exit)) if exit.secondary => return,
            Some(job_event::Body::RankExit(exit)) => {
                let Some(known) = self.jobs.get_mut(&job) else { return };
                known.failures += 1;
                if known.failures > FAILURES_MAX {
                    return;
                }
                let text = shortened(&sentences::exit(exit));
                Change::RankFailed(RankFailure { rank: exit.rank, node: name_of(exit.node), text })
            }
            Some(job_event::Body::Ended(info)) => Change::Ended(end_of(info)),
            Some(
                job_event::Body::Output(_)
                | job_event::Body::Notice(_)
                | job_event::Body::Gap(_)
                | job_event::Body::Requeued(_),
            )
            | None => return,
        };
        let owner = match (&event.body, self.jobs.get(&job)) {
            (Some(job_event::Body::Ended(info)), _) => info.owner.clone(),
            (_, Some(known)) => known.owner.clone(),
            (_, None) => return,
        };
        if !self.was_told(job, &change) {
            let audience = owner.as_ref().map_or(Audience::All, |owner| Audience::User(owner.uid));
            self.tell(audience, What::Job(JobChange { job, owner, change: Some(change) }));
        }
        if matches!(event.body, Some(job_event::Body::Ended(_))) {
            self.jobs.remove(&job);
            self.told_before.remove(&job);
        }
    }

    /// Whether clients were told of this change by an earlier head, which was killed before its log had it.
    fn was_told(&mut self, job: JobId, change: &Change) -> bool {
        let is_start = matches!(change, Change::Submitted(_) | Change::Queued(_) | Change::Placed(_));
        if is_start && !self.restores {
            self.told_before.remove(&job); // another attempt
            return false;
        }
        match self.told_before.get(&job) {
            Some(told) => told.iter().any(|number| find(&self.events, *number) == Some(change)),
            // What was told of its start is forgotten.
            None => is_start && self.restores,
        }
    }

    // --- nodes ---

    /// Tells that a node is up, unless that is known.
    pub(super) fn node_is_up(&mut self, node: NodeId, name: &str) {
        let change = match self.nodes.insert(node, false) {
            Some(false) => return,
            Some(true) => NodeEvent::Back,
            // An earlier head had it.
            None if node < self.first_node => NodeEvent::Back,
            None => NodeEvent::Joined,
        };
        self.node(node, name, change, String::new());
    }

    /// Tells that the link to a node is cut, if clients know the node.
    pub(super) fn node_is_away(&mut self, node: NodeId, name: &str) {
        if self.nodes.get(&node) == Some(&false) {
            self.nodes.insert(node, true);
            self.node(node, name, NodeEvent::Away, String::new());
        }
    }

    /// Tells that a node is no longer part of the DVM, if clients know it, perhaps from an earlier head.
    pub(super) fn node_is_gone(&mut self, node: NodeId, name: &str, change: NodeEvent, why: String) {
        if self.nodes.remove(&node).is_some() || node < self.first_node {
            self.node(node, name, change, why);
        }
    }

    /// Tells that somebody has changed a node.
    pub(super) fn node(&mut self, node: NodeId, name: &str, change: NodeEvent, text: String) {
        let (name, change) = (name.to_owned(), change.into());
        self.tell(Audience::All, What::Node(NodeChange { node, name, change, text: shortened(&text) }));
    }

    // --- groups and tokens ---

    /// Tells what has become of a group of this realm. Groups without a name have one member, which needs no group.
    pub(super) fn group(&mut self, realm: u32, change: GroupChange) {
        if !change.group.is_empty() {
            self.tell(Audience::User(realm), What::Group(change));
        }
    }

    /// Tells what has become of a token.
    pub(super) fn token(&mut self, info: &wire::TokenInfo, change: wire::token_change::Change) {
        let event = TokenChange { token: info.id, uid: info.uid, change: Some(change) };
        self.tell(Audience::User(info.uid), What::Token(event));
    }

    pub(super) fn leftovers(&self) -> impl Iterator<Item = String> + '_ {
        let told_before = self.told_before.keys().filter(|job| !self.jobs.contains_key(job));
        self.jobs.keys().chain(told_before).map(|job| format!("job {job} among the events"))
    }
}

impl Entry {
    fn kept(&self) -> KeptEvent {
        let uid = match self.audience {
            Audience::All => None,
            Audience::User(uid) => Some(uid),
        };
        KeptEvent { event: Some(self.event.clone()), uid }
    }
}

impl Audience {
    /// Whether a caller belongs to it, in a DVM that serves all users or only one.
    pub(super) fn has(self, caller: Caller, serves_all: bool) -> bool {
        match self {
            Audience::All => true,
            Audience::User(uid) => !serves_all || caller.may_use(uid),
        }
    }
}

fn bytes_of(event: &DvmEvent) -> usize {
    event.encoded_len() + size_of::<Entry>()
}

/// Returns what has become of a job, by the event's number.
fn find(events: &VecDeque<Entry>, number: u64) -> Option<&Change> {
    let at = events.binary_search_by_key(&number, |entry| entry.event.number).ok()?;
    match &events[at].event.what {
        Some(What::Job(change)) => change.change.as_ref(),
        Some(_) | None => None,
    }
}

/// Returns how a job has ended.
fn end_of(info: &JobInfo) -> JobEnd {
    JobEnd {
        state: info.state,
        exit_code: info.exit_code,
        cause: info.cause.as_ref().map(|cause| shortened(&sentences::exit(cause))).unwrap_or_default(),
        failed_ranks: info.exits.iter().filter(|exit| !exit.secondary).map(|exit| exit.more + 1).sum(),
    }
}

/// Returns how an epoch has ended.
pub(super) fn epoch_end(state: JobState, cause: Option<&str>) -> JobEnd {
    JobEnd { state: state.into(), cause: shortened(cause.unwrap_or_default()), ..JobEnd::default() }
}

fn ranks_of(map: &wire::TaskMap) -> u32 {
    let ranks = map.blocks.iter().map(|block| u64::from(block.nodes) * u64::from(block.ranks_per_node)).sum::<u64>();
    u32::try_from(ranks).unwrap_or(u32::MAX)
}

fn shortened(text: &str) -> String {
    let mut text = text[..text.floor_char_boundary(TEXT_BYTES + 1)].to_owned();
    sentences::cut(&mut text, TEXT_BYTES);
    text
}

#[cfg(test)]
mod tests;
