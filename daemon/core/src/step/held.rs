//! Keys that came with a fence whose result is held by a daemon: what ranks get of them is fetched, and kept in the KVS.
//!
//! A get waits until the daemon that holds the results has answered. All gets of a key share one request. Requests are kept until they are
//! answered, and repeated over a new link and every ten seconds, because a daemon on the way may have lost them. Answers may come twice, and for
//! keys that are known by then. A get that has waited longer than the head waits for lost nodes is refused.
//!
//! How much is read ahead follows from what the ranks do: a request welcomes a quarter of what was fetched so far, less what is under way, and
//! at least 16 KiB, which is the contribution of one node with a hundred ranks. So a few gets fetch little, and a library that gets all keys
//! needs a number of round trips that grows with the logarithm of their bytes. Ranks of a node often get keys of the same other node: so two
//! requests are under way at first, one more after each answer that has brought one key, and half as many after one that has brought others.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::time::Duration;

use bytes::Bytes;
use rsd_proto::pmi::v1::Reply as Line;
use rsd_proto::ranges;
use rsd_proto::v1::{self as wire, NodePut, up};

use super::dialect::{Asker, By, Reply};
use super::{Effect, Local, Phase, Step};
use crate::kvs::{ASKED_MAX, KEY_MAX, KNOWN_MAX, Known, KvsError, READ_AHEAD_MAX};
use crate::{NodeId, Now};

/// How many requests may be under way at least.
const ASKED_MIN: usize = 2;
/// The least that a request reads ahead.
const READ_AHEAD_MIN: u64 = 16 << 10;
/// After how long an unanswered request is repeated.
const REPEAT: Duration = Duration::from_secs(10);
/// How long a get waits for its answer once the head has given up nodes that are lost.
const PATIENCE: Duration = Duration::from_secs(60);

/// The requests for held keys.
#[derive(Debug, Default)]
pub(super) struct Fetching {
    wants: BTreeMap<Wanted, Want>,
    /// Those that have not been sent, in their order; and some that have been answered by other answers.
    line: VecDeque<Wanted>,
    /// How many bytes were fetched so far; and from which nodes, since the last fence whose result is held.
    fetched: u64,
    known: (u64, BTreeSet<NodeId>),
    /// How many requests may be under way beside [`ASKED_MIN`].
    more: usize,
}

/// What is requested.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
enum Wanted {
    Key(Bytes),
    /// All keys that were put on the nodes from this one on.
    AllFrom(NodeId),
}

#[derive(Debug, Default)]
struct Want {
    waiting: Vec<Waiting>,
    /// When it was sent, and how many bytes were welcome.
    asked: Option<(Duration, u64)>,
}

#[derive(Debug)]
struct Waiting {
    until: Duration,
    then: Then,
}

/// What follows when a key is known.
#[derive(Debug)]
pub(super) enum Then {
    /// The rank's get is answered.
    Get { asker: Asker, key: Bytes },
    /// The rank's ring may be complete, which it entered with this fence.
    Ring { asker: Asker, fence: u64 },
    /// The rank's get by index is answered.
    Entry { local: Local, index: u32 },
}

impl Then {
    fn is_of(&self, local: Local) -> bool {
        match self {
            Then::Get { asker, .. } | Then::Ring { asker, .. } => asker.local == local,
            Then::Entry { local: of, .. } => *of == local,
        }
    }
}

impl Step {
    /// Requests a key, which is not known here. `timeout`: how long the rank waits at most.
    pub(super) fn fetch(&mut self, now: Now, key: Bytes, timeout: Option<Duration>, then: Then, out: &mut Vec<Effect>) {
        if key.len() > KEY_MAX {
            return self.refuse_fetch(then, "a key of another node has at most 64 KiB", out);
        }
        self.want_held(now, Wanted::Key(key), timeout, then, out);
    }

    /// Answers a get by index. All keys must be here.
    pub(super) fn get_entry(&mut self, now: Now, local: Local, index: u32, out: &mut Vec<Effect>) {
        if !self.kvs.is_complete() {
            return self.want_held(now, Wanted::AllFrom(0), None, Then::Entry { local, index }, out);
        }
        let entry = self.kvs.entry(index as usize);
        let line = Line::GetByIdxResults(entry.map(|(key, value)| (index + 1, key.to_vec(), value.to_vec())));
        super::pmi1::send(local, &line, out);
    }

    fn want_held(&mut self, now: Now, wanted: Wanted, timeout: Option<Duration>, then: Then, out: &mut Vec<Effect>) {
        let limit = self.tuning.reattach_grace.saturating_add(PATIENCE);
        let until = now.mono.saturating_add(timeout.map_or(limit, |timeout| timeout.min(limit)));
        self.enqueue(wanted, vec![Waiting { until, then }]);
        self.ask_for_held(now, out);
    }

    fn enqueue(&mut self, wanted: Wanted, waiting: Vec<Waiting>) {
        let fetching = &mut self.fetching;
        if !fetching.wants.contains_key(&wanted) {
            fetching.line.push_back(wanted.clone());
        }
        fetching.wants.entry(wanted).or_default().waiting.extend(waiting);
    }

    /// Sends the next requests.
    fn ask_for_held(&mut self, now: Now, out: &mut Vec<Effect>) {
        loop {
            let fetching = &mut self.fetching;
            let (mut asked, mut under_way) = (0, 0);
            for (_, welcome) in fetching.wants.values().filter_map(|want| want.asked) {
                asked += 1;
                under_way += welcome;
            }
            if asked >= ASKED_MIN + fetching.more {
                return;
            }
            let Some(wanted) = fetching.line.pop_front() else { return };
            let Some(want) = fetching.wants.get_mut(&wanted).filter(|want| want.asked.is_none()) else { continue };
            let welcome = (fetching.fetched / 4).saturating_sub(under_way).clamp(READ_AHEAD_MIN, READ_AHEAD_MAX);
            want.asked = Some((now.mono, welcome));
            self.send_want(&wanted, welcome, out);
        }
    }

    fn send_want(&self, wanted: &Wanted, welcome: u64, out: &mut Vec<Effect>) {
        let (key, from) = match wanted {
            Wanted::Key(key) => (key.clone(), 0),
            Wanted::AllFrom(node) => (Bytes::new(), *node),
        };
        let (job, held, welcome_bytes) = (self.job, self.kvs.held(), u32::try_from(welcome).unwrap_or(u32::MAX));
        let (of_held, nodes) = &self.fetching.known;
        let reads_on = welcome > READ_AHEAD_MIN && *of_held == held;
        let known = ranges::of(nodes.iter().copied().filter(|_| reads_on)).into_iter().take(KNOWN_MAX);
        let known = known.map(|(first, last)| wire::NodeRun { first, last }).collect();
        self.send(up::Body::GetHeld(wire::GetHeld { job, held, key, from, welcome_bytes, known }), out);
    }

    /// Handles an answer, perhaps a repeated one.
    pub(super) fn on_held(&mut self, now: Now, answer: wire::Held, out: &mut Vec<Effect>) {
        let wire::Held { held, key, from, puts, next, .. } = answer;
        let wanted = if key.is_empty() { Wanted::AllFrom(from) } else { Wanted::Key(key) };
        let Some(want) = self.fetching.wants.remove(&wanted) else { return };
        if held < self.kvs.held() {
            // Another result has been held meanwhile, which the answer lacks.
            self.enqueue(wanted, want.waiting);
            return self.ask_for_held(now, out);
        }
        if self.fetching.known.0 != self.kvs.held() {
            self.fetching.known = (self.kvs.held(), BTreeSet::new());
        }
        self.fetching.known.1.extend(puts.iter().map(|put| put.node));
        self.fetching.fetched += puts.iter().map(|put| put.batch.len() as u64).sum::<u64>();
        let learned = match self.learn(held, puts) {
            Ok(learned) => learned,
            Err(error) => {
                want.waiting.into_iter().for_each(|waiting| self.refuse_fetch(waiting.then, &error.to_string(), out));
                return self.ask_for_held(now, out);
            }
        };
        match (wanted, next) {
            (Wanted::Key(key), _) => {
                self.kvs.settle(held, &key);
                want.waiting.into_iter().for_each(|waiting| self.finish_fetch(now, waiting.then, out));
            }
            (Wanted::AllFrom(_), Some(next)) => self.enqueue(Wanted::AllFrom(next), want.waiting),
            (Wanted::AllFrom(_), None) => {
                self.kvs.complete(held);
                want.waiting.into_iter().for_each(|waiting| self.finish_fetch(now, waiting.then, out));
            }
        }
        let has_brought_others = self.finish_learned(now, learned, out);
        let more = &mut self.fetching.more;
        *more = if has_brought_others { *more / 2 } else { (*more + 1).min(ASKED_MAX - ASKED_MIN) };
        self.ask_for_held(now, out);
    }

    /// Stores fetched values, and returns their keys. If there is not enough room, it drops all that was fetched before, and stores only the
    /// first value, the one that was asked for, without those that were read ahead.
    fn learn(&mut self, held: u64, puts: Vec<NodePut>) -> Result<Vec<Bytes>, KvsError> {
        match self.kvs.learn(held, puts.clone()) {
            Err(KvsError::Full { .. }) => {
                self.kvs.forget_fetched();
                self.fetching.known.1.clear();
                self.kvs.learn(held, puts.into_iter().take(1).collect())
            }
            other => other,
        }
    }

    /// Goes on with all that waits for these keys. Returns whether there was any.
    fn finish_learned(&mut self, now: Now, keys: Vec<Bytes>, out: &mut Vec<Effect>) -> bool {
        let mut has_any = false;
        for key in keys {
            let want = self.fetching.wants.remove(&Wanted::Key(key));
            has_any |= want.is_some();
            for waiting in want.into_iter().flat_map(|want| want.waiting) {
                self.finish_fetch(now, waiting.then, out);
            }
        }
        has_any
    }

    fn finish_fetch(&mut self, now: Now, then: Then, out: &mut Vec<Effect>) {
        match then {
            Then::Get { asker, key } => {
                let value = match self.kvs.find(&key) {
                    Known::Value(value) => Some(value),
                    Known::Absent | Known::Elsewhere => None,
                };
                let reply = match value {
                    None if asker.is_library() => self.or_broken(Reply::Value(None)),
                    value => Reply::Value(value),
                };
                self.answer_waiting_rank(&asker, reply, out);
            }
            Then::Ring { asker, fence } => self.answer_ring(now, asker, fence, out),
            Then::Entry { local, index } if self.ranks[local].phase == Phase::Running => {
                self.get_entry(now, local, index, out);
            }
            Then::Entry { .. } => {}
        }
    }

    fn refuse_fetch(&mut self, then: Then, why: &str, out: &mut Vec<Effect>) {
        match then {
            Then::Get { asker, .. } | Then::Ring { asker, .. } => {
                self.answer_waiting_rank(&asker, Reply::Refused(why.to_owned()), out);
            }
            Then::Entry { local, .. } => super::pmi1::send(local, &Line::GetByIdxResults(None), out),
        }
    }

    /// Answers a rank that has waited, if its process is still there.
    fn answer_waiting_rank(&mut self, asker: &Asker, reply: Reply, out: &mut Vec<Effect>) {
        let is_there = match asker.by {
            By::Pmi1(_) | By::Pmi2(_) => self.ranks[asker.local].phase == Phase::Running,
            By::Pmix { .. } | By::Call { .. } | By::Disconnected { .. } => true,
        };
        if is_there {
            self.answer(asker, reply, out);
        }
    }

    /// Repeats requests, and refuses gets that have waited too long.
    pub(super) fn settle_held(&mut self, now: Now, out: &mut Vec<Effect>) {
        if self.held_deadline().is_none_or(|at| at > now.mono) {
            return;
        }
        let mut late = Vec::new();
        self.fetching.wants.retain(|_, want| {
            late.extend(want.waiting.extract_if(.., |waiting| waiting.until <= now.mono));
            !want.waiting.is_empty()
        });
        if !late.is_empty() {
            let why = "timed out: the daemon that holds the results of fences has not answered";
            out.push(Effect::Warn(format!("refused gets of keys of other nodes ({}): {why}", late.len())));
            late.into_iter().for_each(|waiting| self.refuse_fetch(waiting.then, why, out));
        }
        let mut again = Vec::new();
        for (wanted, want) in &mut self.fetching.wants {
            if let Some((at, welcome)) = want.asked.filter(|(at, _)| *at + REPEAT <= now.mono) {
                want.asked = Some((at.max(now.mono), welcome));
                again.push((wanted.clone(), welcome));
            }
        }
        again.iter().for_each(|(wanted, welcome)| self.send_want(wanted, *welcome, out));
        self.ask_for_held(now, out);
    }

    /// Returns when something is due.
    pub(super) fn held_deadline(&self) -> Option<Duration> {
        let wants = self.fetching.wants.values();
        let repeats = wants.clone().filter_map(|want| want.asked.map(|(at, _)| at + REPEAT));
        wants.flat_map(|want| &want.waiting).map(|waiting| waiting.until).chain(repeats).min()
    }

    /// Repeats the open requests on a new link.
    pub(super) fn resend_held(&self, out: &mut Vec<Effect>) {
        for (wanted, want) in &self.fetching.wants {
            if let Some((_, welcome)) = want.asked {
                self.send_want(wanted, welcome, out);
            }
        }
    }

    /// Sends again what the ranks here have put, for a daemon that should hold it.
    pub(super) fn on_collect(&self, collect: &wire::Collect, out: &mut Vec<Effect>) {
        let (job, held, nodes) = (self.job, collect.held, vec![self.node]);
        let puts = self.kvs.contributed(self.node, held);
        self.send(up::Body::NodesPut(wire::NodesPut { job, held, nodes, puts }), out);
    }

    /// Forgets what a rank waits for that has a new connection.
    pub(super) fn forget_fetches(&mut self, local: Local) {
        self.forget_waiting(|then| then.is_of(local));
    }

    /// Forgets the calls of a daemon that may have ended: it repeats them.
    pub(super) fn forget_fetches_of_calls(&mut self) {
        self.forget_waiting(|then| matches!(then, Then::Get { asker: Asker { by: By::Call { .. }, .. }, .. }));
    }

    fn forget_waiting(&mut self, is_over: impl Fn(&Then) -> bool) {
        self.fetching.wants.retain(|_, want| {
            want.waiting.retain(|waiting| !is_over(&waiting.then));
            !want.waiting.is_empty()
        });
    }

    /// Fails all gets: the epoch is broken.
    pub(super) fn fail_fetches(&mut self, out: &mut Vec<Effect>) {
        self.fetching.line.clear();
        for waiting in std::mem::take(&mut self.fetching.wants).into_values().flat_map(|want| want.waiting) {
            match waiting.then {
                Then::Get { asker, .. } | Then::Ring { asker, .. } => {
                    self.answer(&asker, Reply::Failed(self.ending.why()), out);
                }
                then @ Then::Entry { .. } => self.refuse_fetch(then, "", out),
            }
        }
    }
}
