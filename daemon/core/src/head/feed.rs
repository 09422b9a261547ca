//! The events of the DVM, for clients that watch it: jobs, nodes, groups, tokens. One bounded list has the latest of all users.
//!
//! Events of jobs are taken from what is logged ([`Feed::observe`] sees every effect of the head), so nothing that a job's log reports can
//! be missing here. The others are told by the places that change a node, a group or a token.
//!
//! Numbers rise, also across restarts: a head begins with its time of day. A client goes on after the last number that it has seen. It
//! keeps no place in the list, so a slow client costs nothing: it learns how many events it has missed.

use std::collections::{BTreeMap, VecDeque};

use prost::Message;
use rsd_proto::v1::{
    self as wire, DvmEvent, EventsReply, GroupChange, HeadStarted, JobChange, JobEnd, JobEvent, JobInfo, JobPlaced,
    JobState, NodeChange, NodeEvent, RankFailure, TokenChange, User, dvm_event::What, job_change::Change, job_event,
};

use super::NUMBERS_PER_MS_BITS;
use crate::calls::{Caller, Refused, exit};
use crate::contract::Effect;
use crate::{JobId, NodeId, Now, sentences};

/// The most events that are kept, and their most bytes.
const EVENTS_MAX: usize = 16_384;
const BYTES_MAX: usize = 8 << 20;
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
    /// The numbers before this head's first event, and of the last one that is not kept any more.
    began: u64,
    forgotten: u64,
    /// The number of the last event.
    last: u64,
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
            jobs: BTreeMap::new(),
            nodes: BTreeMap::new(),
            first_node: next_node,
            node_events: BTreeMap::new(),
            told: Vec::new(),
            restores: false,
        };
        feed.nodes.insert(me.node, false);
        feed.tell(Audience::All, What::HeadStarted(HeadStarted { node: me.name.clone(), version: me.version.clone() }));
        feed.settle(now);
        feed
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
            let bytes = event.encoded_len() + size_of::<Entry>();
            self.bytes += bytes;
            self.events.push_back(Entry { audience, event, bytes });
        }
        while self.events.len() > EVENTS_MAX || self.bytes > BYTES_MAX {
            let Some(old) = self.events.pop_front() else { break };
            self.bytes -= old.bytes;
            self.forgotten = old.event.number;
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
        let is_repeat = self.restores && matches!(change, Change::Submitted(_) | Change::Queued(_) | Change::Placed(_));
        let owner = match (&event.body, self.jobs.get(&job)) {
            (Some(job_event::Body::Ended(info)), _) => info.owner.clone(),
            (_, Some(known)) => known.owner.clone(),
            (_, None) => return,
        };
        if !is_repeat {
            let audience = owner.as_ref().map_or(Audience::All, |owner| Audience::User(owner.uid));
            self.tell(audience, What::Job(JobChange { job, owner, change: Some(change) }));
        }
        if matches!(event.body, Some(job_event::Body::Ended(_))) {
            self.jobs.remove(&job);
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
        self.jobs.keys().map(|job| format!("job {job} among the events"))
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

    fn feed() -> Feed {
        let me = wire::NodeInfo { name: "n0".into(), version: "1.2.3".into(), ..Default::default() };
        Feed::new(NOW, &me, 5)
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
}
