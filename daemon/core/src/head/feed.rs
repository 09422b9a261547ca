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
mod tests {
    use std::time::Duration;

    use super::*;

    const NOW: Now = Now { mono: Duration::ZERO, unix_ms: 7000 };

    fn started(name: &str) -> Feed {
        let me = wire::NodeInfo { name: name.into(), version: "1.2.3".into(), ..Default::default() };
        Feed::new(NOW, &me, 5)
    }

    fn feed() -> Feed {
        let mut feed = started("n0");
        feed.settle(NOW);
        feed
    }

    /// The feed of the head that restores these records.
    fn restored(name: &str, kept: Vec<KeptEvent>, epoch: u64) -> Feed {
        let mut feed = started(name);
        feed.restore(kept, epoch);
        feed.restoring(true);
        feed.settle(NOW);
        feed
    }

    fn log(feed: &mut Feed, job: JobId, body: job_event::Body) {
        let event = Box::new(JobEvent { at_ms: 1, body: Some(body), ..JobEvent::default() });
        feed.observe(&Effect::Log { job, event }, |_| None, |node| format!("n{node}"));
        feed.settle(NOW);
    }

    fn submitted(job: JobId, uid: u32) -> job_event::Body {
        let owner = Some(User { uid, name: format!("u{uid}") });
        job_event::Body::Submitted(job_event::Submitted { job, command: "./a".into(), owner })
    }

    fn seen(feed: &Feed, since: Option<u64>, uid: u32) -> (Vec<DvmEvent>, u64) {
        let caller = Caller { uid, is_admin: uid == 0 };
        let reply = feed.after(since, |audience| audience.has(caller, true)).unwrap();
        (reply.events, reply.missed)
    }

    #[test]
    fn a_user_sees_what_is_its_own_and_what_is_everybodys() {
        let mut feed = feed();
        log(&mut feed, 1, submitted(1, 1001));
        log(&mut feed, 2, submitted(2, 1002));
        feed.node_is_up(6, "n6");
        let info = wire::TokenInfo { id: 9, uid: 1002, ..Default::default() };
        feed.token(&info, wire::token_change::Change::Made(1));
        feed.settle(NOW);
        assert_eq!([0, 1001, 1002].map(|uid| seen(&feed, None, uid).0.len()), [5, 3, 4]);
        let jobs: Vec<JobId> = seen(&feed, None, 1001)
            .0
            .iter()
            .filter_map(|event| match &event.what {
                Some(What::Job(change)) => Some(change.job),
                _ => None,
            })
            .collect();
        assert_eq!(jobs, [1]);
    }

    #[test]
    fn a_client_goes_on_after_its_last_event_and_learns_what_it_has_missed() {
        let mut feed = feed();
        let first = feed.last();
        for node in 0..EVENTS_MAX as u32 + 9 {
            feed.node(node, "n", NodeEvent::Drained, String::new());
        }
        feed.settle(NOW);
        let reply = feed.after(Some(first), |_| true).unwrap();
        assert_eq!((reply.missed, reply.events.len(), reply.head_restarted), (9, ANSWER_MAX, false));
        let (mut cursor, mut count) = (reply.cursor, reply.events.len());
        while cursor < feed.last() {
            let reply = feed.after(Some(cursor), |_| true).unwrap();
            assert_eq!((reply.missed, reply.events[0].number), (0, cursor + 1));
            (cursor, count) = (reply.cursor, count + reply.events.len());
        }
        assert_eq!(count, EVENTS_MAX);
        // The cursor of an earlier head is smaller than the numbers of this one.
        let reply = feed.after(Some(3), |_| true).unwrap();
        assert!(reply.head_restarted && reply.missed == 10, "{reply:?}");
        assert!(feed.after(Some(feed.last() + 1), |_| true).unwrap_err().text.contains("has not happened yet"));
    }

    #[test]
    fn large_events_are_kept_up_to_a_number_of_bytes_and_texts_are_cut() {
        let mut feed = feed();
        for job in 1..=9000 {
            let command = "é".repeat(3000);
            let body = job_event::Body::Submitted(job_event::Submitted { job, command, owner: None });
            log(&mut feed, job, body);
        }
        assert!(feed.bytes <= BYTES_MAX && feed.events.len() > 1000, "{} {}", feed.bytes, feed.events.len());
        assert!(feed.events.iter().all(|entry| entry.bytes < TEXT_BYTES + 300));
    }

    #[test]
    fn the_failures_of_a_job_are_bounded_and_its_end_counts_them() {
        let mut feed = feed();
        log(&mut feed, 1, submitted(1, 1001));
        let exits: Vec<wire::RankExit> = (0..100).map(|rank| wire::RankExit { rank, ..Default::default() }).collect();
        for exit in &exits {
            log(&mut feed, 1, job_event::Body::RankExit(exit.clone()));
        }
        let owner = Some(User { uid: 1001, name: "u".into() });
        log(&mut feed, 1, job_event::Body::Ended(JobInfo { exits, owner, ..Default::default() }));
        let (events, _) = seen(&feed, None, 1001);
        assert_eq!(events.len(), 3 + FAILURES_MAX as usize);
        let Some(What::Job(JobChange { change: Some(Change::Ended(end)), .. })) = &events[events.len() - 1].what else {
            panic!("{events:?}")
        };
        assert_eq!((end.failed_ranks, feed.leftovers().count()), (100, 0));
    }

    #[test]
    fn jobs_of_an_earlier_head_are_not_submitted_again() {
        let mut feed = feed();
        feed.restoring(true);
        log(&mut feed, 1, submitted(1, 1001));
        feed.restoring(false);
        let owner = Some(User { uid: 1001, name: "u".into() });
        log(&mut feed, 1, job_event::Body::Ended(JobInfo { owner: owner.clone(), ..Default::default() }));
        // Of this one, not even the submission was logged again.
        let event = Box::new(JobEvent {
            at_ms: 1,
            body: Some(job_event::Body::Killing(Default::default())),
            ..JobEvent::default()
        });
        feed.observe(&Effect::Log { job: 2, event }, |_| Some(owner.clone()), |_| String::new());
        log(&mut feed, 2, job_event::Body::Ended(JobInfo { owner: owner.clone(), ..Default::default() }));
        assert_eq!([1001, 1002].map(|uid| seen(&feed, None, uid).0.len()), [4, 1]);
        assert_eq!(feed.leftovers().count(), 0);
    }

    #[test]
    fn a_node_joins_goes_away_comes_back_and_is_lost() {
        let mut feed = feed();
        let start = feed.last();
        feed.node_is_away(7, "n7"); // its place is reserved, and it has not attached
        feed.node_is_up(7, "n7");
        feed.node_is_up(7, "n7");
        feed.node_is_away(7, "n7");
        feed.node_is_away(7, "n7");
        feed.node_is_up(7, "n7");
        feed.node_is_gone(7, "n7", NodeEvent::Lost, "gone".into());
        feed.node_is_gone(7, "n7", NodeEvent::Lost, "gone".into());
        feed.node_is_up(3, "n3"); // the earlier head had it
        feed.node_is_gone(4, "n4", NodeEvent::Lost, "gone".into()); // and this one, which does not come back
        feed.node_is_gone(9, "n9", NodeEvent::Lost, "gone".into()); // its place was reserved
        feed.settle(NOW);
        let changes: Vec<NodeEvent> = seen(&feed, Some(start), 1001)
            .0
            .iter()
            .filter_map(|event| match &event.what {
                Some(What::Node(change)) => Some(change.change()),
                _ => None,
            })
            .collect();
        use NodeEvent::{Away, Back, Joined, Lost};
        assert_eq!(changes, [Joined, Away, Back, Lost, Back, Lost]);
    }

    #[test]
    fn the_next_head_has_the_events_of_the_one_before_and_tells_nothing_twice() {
        let mut first = feed();
        let killing =
            || job_event::Body::Killing(wire::job_event::Killing { reason: "asked".into(), ..Default::default() });
        let exit = |rank| job_event::Body::RankExit(wire::RankExit { rank, ..Default::default() });
        let owner = Some(User { uid: 1001, name: "u1001".into() });
        let ended = || job_event::Body::Ended(JobInfo { owner: owner.clone(), ..Default::default() });
        for body in [submitted(1, 1001), exit(3), killing(), ended()] {
            log(&mut first, 1, body);
        }
        for body in [submitted(2, 1001), exit(5)] {
            log(&mut first, 2, body);
        }
        let kept: Vec<KeptEvent> = first.take_unsaved().collect();
        assert_eq!((kept.len(), first.take_unsaved().count(), first.kept().count()), (7, 0, 7));
        let (all, _) = seen(&first, None, 0);

        let mut next = restored("n0", kept, 0);
        // The log of job 1 lacked its end, and that of job 2 the failure.
        log(&mut next, 1, ended());
        next.restoring(false);
        for body in [exit(5), exit(6), killing(), ended()] {
            let event = Box::new(JobEvent { at_ms: 1, body: Some(body), ..JobEvent::default() });
            next.observe(&Effect::Log { job: 2, event }, |_| Some(owner.clone()), |node| format!("n{node}"));
        }
        next.settle(NOW);
        let (events, missed) = seen(&next, None, 0);
        assert_eq!((&events[..7], missed), (&all[..], 0));
        let kinds: Vec<String> = events[7..].iter().map(|event| format!("{:?}", event.what)).collect();
        assert_eq!(kinds.len(), 4, "{kinds:#?}");
        assert!(kinds[0].contains("HeadStarted") && kinds[1].contains("rank: 6"), "{kinds:#?}");
        assert!(kinds[2].contains("Killing") && kinds[3].contains("Ended"), "{kinds:#?}");
        assert_eq!((next.take_unsaved().count(), next.leftovers().count()), (4, 0));
        assert!(next.told_before.is_empty(), "{:?}", next.told_before);
        // Numbers rise, also if the clock does not.
        assert!(events.is_sorted_by(|one, other| one.number < other.number));
        // A client that has followed the first head goes on with this one.
        let reply = next.after(Some(all[4].number), |_| true).unwrap();
        assert_eq!((reply.events.len(), reply.missed, reply.head_restarted), (6, 0, false));
    }

    #[test]
    fn a_head_on_another_machine_says_whose_place_it_has_taken() {
        let mut first = feed();
        let mut next = restored("n3-head", first.take_unsaved().collect(), 1);
        let again = restored("n3-head", first.kept().chain(next.take_unsaved()).collect(), 1);
        let started = |feed: &Feed| match seen(feed, None, 0).0.pop().and_then(|event| event.what) {
            Some(What::HeadStarted(started)) => (started.node, started.epoch, started.successor_of),
            other => panic!("{other:?}"),
        };
        assert_eq!(started(&next), ("n3-head".to_owned(), 1, "n0".to_owned()));
        assert_eq!(started(&again), ("n3-head".to_owned(), 1, String::new()));
    }

    #[test]
    fn events_of_several_heads_are_forgotten_in_order_and_counted_since_the_last_jump() {
        let mut first = feed();
        let began = first.last() - 1;
        for node in 0..9 {
            first.node(node, "n", NodeEvent::Drained, String::new());
        }
        first.settle(NOW);
        let mut next = started("n0");
        next.began += 1 << 30;
        next.last = next.began; // it was started later
        next.restore(first.kept().collect(), 0);
        for node in 0..EVENTS_MAX as u32 - 1 {
            next.node(node, "n", NodeEvent::Drained, String::new());
        }
        next.settle(NOW);
        let reply = next.after(Some(began + 4), |_| true).unwrap();
        assert_eq!((reply.missed, reply.head_restarted), (6, false), "the other six of the first head");
        next.node(0, "n", NodeEvent::Drained, String::new());
        next.settle(NOW);
        let reply = next.after(Some(began + 4), |_| true).unwrap();
        assert_eq!((reply.missed, reply.head_restarted), (1, true), "one of this head, and some of the earlier one");
    }

    #[test]
    fn the_shortest_journal_has_the_latest_events() {
        let mut feed = feed();
        for job in 1..=3000 {
            let command = "x".repeat(1000);
            log(&mut feed, job, job_event::Body::Submitted(job_event::Submitted { job, command, owner: None }));
        }
        let kept: Vec<KeptEvent> = feed.kept().collect();
        assert!((500..1000).contains(&kept.len()), "{}", kept.len());
        assert_eq!(kept.last().and_then(|kept| Some(kept.event.as_ref()?.number)), Some(feed.last()));
    }
}
