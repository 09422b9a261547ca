//! Collectives of processes of one or several jobs (`Meet`): each step that has participants sends what they contribute, and gets
//! what all contribute once the last of them has arrived.
//!
//! A meeting is identified by its members and a key that its members use once. It fails for all of them together: when a member
//! ends without having arrived, or when the time limit of one of the calls passes. A failed meeting is remembered until all its
//! members have learned of it, so that one that arrives late does not wait for the others in vain.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use prost::Message;
use rsd_proto::v1 as wire;

use super::questions::CallId;
use super::rank_set::RankSet;
use crate::JobId;
use crate::contract::rounded;
use crate::status::{BAD_PARAM, Failure, LOST_CONNECTION, OUT_OF_RESOURCE, TIMEOUT};
use crate::timers::Timers;

/// The most meetings of a user's processes that wait for members, and the most bytes that have been contributed to these.
const OPEN_MAX: usize = 1 << 14;
pub(super) const BYTES_MAX: usize = 256 << 20;
/// How many failed meetings of a user are remembered.
const FAILED_MAX: usize = 1 << 10;
/// What a meeting or an arrival costs apart from its data, about.
const OVERHEAD_BYTES: usize = 256;
/// What a run of ranks costs, about.
const RUN_BYTES: usize = 16;

/// The members of a meeting, by job.
pub(super) type Members = BTreeMap<JobId, RankSet>;

/// All meetings.
#[derive(Debug, Default)]
pub(super) struct Meetings {
    all: BTreeMap<Id, Meeting>,
    by_key: BTreeMap<Key, Id>,
    of_job: BTreeMap<JobId, BTreeSet<Id>>,
    of_user: BTreeMap<u32, OfUser>,
    timers: Timers<Id>,
    last: Id,
}

type Id = u64;

#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
struct Key {
    /// The user; 0 in a DVM that serves one user.
    realm: u32,
    key: Bytes,
    members: Arc<Members>,
}

#[derive(Debug, Default)]
struct OfUser {
    open: usize,
    bytes: usize,
    failed: BTreeSet<Id>,
}

#[derive(Debug)]
struct Meeting {
    key: Key,
    /// The jobs, in the order of the call that came first.
    order: Vec<JobId>,
    /// The members that have arrived and, if it has failed, those that have ended.
    accounted: Members,
    /// How many members are not accounted for.
    missing: u64,
    state: State,
}

#[derive(Debug)]
enum State {
    Open { arrivals: Vec<Arrived>, since: Duration, bytes: usize },
    Failed(Failure),
}

#[derive(Debug)]
struct Arrived {
    call: CallId,
    namespace: String,
    ranks: RankSet,
    data: Bytes,
}

/// Ranks that arrive at a meeting.
#[derive(Debug)]
pub(super) struct Arrival {
    pub(super) realm: u32,
    pub(super) call: CallId,
    /// The namespace of their job.
    pub(super) namespace: String,
    pub(super) key: Bytes,
    pub(super) members: Members,
    /// The jobs of the members, in the caller's order.
    pub(super) order: Vec<JobId>,
    /// Members of the calling job; not empty.
    pub(super) ranks: RankSet,
    pub(super) data: Bytes,
    pub(super) timeout: Option<Duration>,
}

/// A meeting that waits for members.
#[derive(Debug)]
pub(super) struct Open<'a> {
    pub(super) key: &'a [u8],
    pub(super) since: Duration,
    pub(super) until: Option<Duration>,
    /// How many members it has.
    pub(super) want: u64,
    pub(super) missing: Members,
}

/// The end of a meeting for some of its calls: all contributions, encoded, or why it has failed.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Outcome {
    pub(super) calls: Vec<CallId>,
    pub(super) met: Result<Bytes, Failure>,
}

impl Meetings {
    /// Takes in an arrival. `ended` returns the ranks of a job of which it is known that they have ended. Fails if the arrival is
    /// invalid or exceeds a limit.
    pub(super) fn arrive<'a>(
        &mut self,
        now: Duration,
        arrival: Arrival,
        ended: impl Fn(JobId) -> Option<&'a RankSet>,
        outcomes: &mut Vec<Outcome>,
    ) -> Result<(), Failure> {
        let Arrival { realm, call, namespace, key, members, order, ranks, data, timeout } = arrival;
        let key = Key { realm, key, members: Arc::new(members) };
        let known = self.by_key.get(&key).copied();
        let runs: usize = key.members.values().map(RankSet::runs_len).sum();
        let begin_bytes = if known.is_none() { key.key.len() + OVERHEAD_BYTES + runs * RUN_BYTES } else { 0 };
        let bytes = begin_bytes + data.len() + OVERHEAD_BYTES + ranks.runs_len() * RUN_BYTES;
        let of_user = self.of_user.entry(realm).or_default();
        if (known.is_none() && of_user.open >= OPEN_MAX) || of_user.bytes + bytes > BYTES_MAX {
            let why = format!(
                "the limit on collectives between jobs of a user is reached: {OPEN_MAX} that wait, or {BYTES_MAX} bytes that their \
                 processes have contributed"
            );
            self.forget_user_if_idle(realm);
            return Err(Failure::new(OUT_OF_RESOURCE, why));
        }
        let id = known.unwrap_or_else(|| self.begin(now, key, order));
        let Some(meeting) = self.all.get_mut(&id) else { return Ok(()) };
        match &mut meeting.state {
            State::Failed(failure) => {
                outcomes.push(Outcome { calls: vec![call], met: Err(failure.clone()) });
                self.account(id, call.job, &ranks);
                return Ok(());
            }
            State::Open { arrivals, bytes: held, .. } => {
                let here = meeting.accounted.entry(call.job).or_default();
                if let Some(rank) = here.common(&ranks).first() {
                    let why = format!("rank {rank} of job {} has entered the same collective twice", call.job);
                    return Err(Failure::new(BAD_PARAM, why));
                }
                here.extend(&ranks);
                meeting.missing -= ranks.len();
                *held += bytes;
                arrivals.push(Arrived { call, namespace, ranks, data });
            }
        }
        let is_complete = meeting.missing == 0;
        if let Some(of_user) = self.of_user.get_mut(&realm) {
            of_user.bytes += bytes;
        }
        if is_complete {
            self.complete(id, outcomes);
            return Ok(());
        }
        if let Some(at) = timeout.map(|timeout| now.saturating_add(timeout)) {
            let earliest = self.timers.at(&id).map_or(at, |before| before.min(at));
            self.timers.set(id, earliest);
        }
        if known.is_none() {
            self.fail_if_ended(id, ended, outcomes);
        }
        Ok(())
    }

    fn begin(&mut self, now: Duration, key: Key, order: Vec<JobId>) -> Id {
        self.last += 1;
        let id = self.last;
        for job in key.members.keys() {
            self.of_job.entry(*job).or_default().insert(id);
        }
        self.of_user.entry(key.realm).or_default().open += 1;
        let missing = key.members.values().map(RankSet::len).sum();
        let state = State::Open { arrivals: Vec::new(), since: now, bytes: 0 };
        self.by_key.insert(key.clone(), id);
        self.all.insert(id, Meeting { key, order, accounted: Members::new(), missing, state });
        id
    }

    fn complete(&mut self, id: Id, outcomes: &mut Vec<Outcome>) {
        let Some(meeting) = self.remove(id) else { return };
        let State::Open { mut arrivals, .. } = meeting.state else { return };
        let place = |arrived: &Arrived| {
            let job = meeting.order.iter().position(|job| *job == arrived.call.job);
            (job, arrived.ranks.first())
        };
        arrivals.sort_by_key(place);
        let calls = arrivals.iter().map(|arrived| arrived.call).collect();
        let contribution = |arrived: Arrived| wire::Contribution {
            namespace: arrived.namespace,
            ranks: arrived.ranks.to_wire(),
            data: arrived.data,
        };
        let met = wire::Met { contributions: arrivals.into_iter().map(contribution).collect() };
        outcomes.push(Outcome { calls, met: Ok(met.encode_to_vec().into()) });
    }

    /// Fails a new meeting if members have ended before it began.
    fn fail_if_ended<'a>(&mut self, id: Id, ended: impl Fn(JobId) -> Option<&'a RankSet>, outcomes: &mut Vec<Outcome>) {
        let Some(members) = self.all.get(&id).map(|meeting| meeting.key.members.clone()) else { return };
        for job in members.keys() {
            if let Some(ended) = ended(*job) {
                self.lose(id, *job, ended, None, outcomes);
            }
        }
    }

    /// Handles that these ranks of a job have ended.
    pub(super) fn ranks_ended(&mut self, job: JobId, ended: &RankSet, outcomes: &mut Vec<Outcome>) {
        for id in self.of_job.get(&job).cloned().unwrap_or_default() {
            self.lose(id, job, ended, None, outcomes);
        }
    }

    /// Handles that all ranks of a job have ended.
    pub(super) fn job_is_over(&mut self, job: JobId, outcomes: &mut Vec<Outcome>) {
        for id in self.of_job.get(&job).cloned().unwrap_or_default() {
            let why = format!("job {job} has ended, and processes of it had not entered the collective");
            self.lose(id, job, &RankSet::run(0, u32::MAX), Some(why), outcomes);
        }
    }

    /// Fails a meeting of which members have ended without having arrived.
    fn lose(&mut self, id: Id, job: JobId, ended: &RankSet, why: Option<String>, outcomes: &mut Vec<Outcome>) {
        let Some(meeting) = self.all.get(&id) else { return };
        let Some(members) = meeting.key.members.get(&job) else { return };
        let none = RankSet::default();
        let lost = members.common(ended).without(meeting.accounted.get(&job).unwrap_or(&none));
        let Some(first) = lost.first() else { return };
        let why = why.unwrap_or_else(|| {
            let more = match lost.len() - 1 {
                0 => String::new(),
                more => format!(" and {more} more"),
            };
            format!("rank {first} of job {job}{more} ended without having entered the collective")
        });
        self.fail(id, Failure::new(LOST_CONNECTION, why), outcomes);
        self.account(id, job, &lost);
    }

    /// Fails an open meeting, and remembers that it has failed.
    fn fail(&mut self, id: Id, failure: Failure, outcomes: &mut Vec<Outcome>) {
        let Some(meeting) = self.all.get_mut(&id) else { return };
        if matches!(meeting.state, State::Failed(_)) {
            return;
        }
        self.timers.cancel(&id);
        let before = std::mem::replace(&mut meeting.state, State::Failed(failure.clone()));
        if let State::Open { arrivals, bytes, .. } = before {
            let calls = arrivals.into_iter().map(|arrived| arrived.call).collect();
            outcomes.push(Outcome { calls, met: Err(failure) });
            let realm = meeting.key.realm;
            let of_user = self.of_user.entry(realm).or_default();
            of_user.open -= 1;
            of_user.bytes -= bytes;
            of_user.failed.insert(id);
            let oldest = of_user.failed.first().copied().filter(|_| of_user.failed.len() > FAILED_MAX);
            oldest.into_iter().for_each(|oldest| drop(self.remove(oldest)));
        }
    }

    /// Records members that need not be told of a failed meeting any more. The meeting is forgotten when all members are recorded.
    fn account(&mut self, id: Id, job: JobId, ranks: &RankSet) {
        let Some(meeting) = self.all.get_mut(&id) else { return };
        let here = meeting.accounted.entry(job).or_default();
        meeting.missing -= ranks.without(here).len();
        here.extend(ranks);
        if meeting.missing == 0 {
            self.remove(id);
        }
    }

    fn remove(&mut self, id: Id) -> Option<Meeting> {
        let meeting = self.all.remove(&id)?;
        self.timers.cancel(&id);
        self.by_key.remove(&meeting.key);
        for job in meeting.key.members.keys() {
            if let Some(ids) = self.of_job.get_mut(job) {
                ids.remove(&id);
                if ids.is_empty() {
                    self.of_job.remove(job);
                }
            }
        }
        let realm = meeting.key.realm;
        if let Some(of_user) = self.of_user.get_mut(&realm) {
            match &meeting.state {
                State::Open { bytes, .. } => {
                    of_user.open -= 1;
                    of_user.bytes -= bytes;
                }
                State::Failed(_) => drop(of_user.failed.remove(&id)),
            }
        }
        self.forget_user_if_idle(realm);
        Some(meeting)
    }

    fn forget_user_if_idle(&mut self, realm: u32) {
        if self.of_user.get(&realm).is_some_and(|of_user| of_user.open == 0 && of_user.failed.is_empty()) {
            self.of_user.remove(&realm);
        }
    }

    /// Returns the meetings that a job has begun and that wait for members.
    pub(super) fn of(&self, job: JobId) -> impl Iterator<Item = Open<'_>> {
        let ids = self.of_job.get(&job).into_iter().flatten();
        ids.filter_map(move |id| {
            let meeting = self.all.get(id)?;
            let State::Open { since, arrivals, .. } = &meeting.state else { return None };
            arrivals.first().filter(|first| first.call.job == job)?;
            let none = RankSet::default();
            let left = |(job, members): (&JobId, &RankSet)| {
                (*job, members.without(meeting.accounted.get(job).unwrap_or(&none)))
            };
            let missing = meeting.key.members.iter().map(left).filter(|(_, ranks)| !ranks.is_empty()).collect();
            let want = meeting.key.members.values().map(RankSet::len).sum();
            Some(Open { key: &meeting.key.key, since: *since, until: self.timers.at(id), want, missing })
        })
    }

    pub(super) fn next_deadline(&self) -> Option<Duration> {
        self.timers.next()
    }

    /// Fails the meetings whose time limit has passed.
    pub(super) fn settle(&mut self, now: Duration, outcomes: &mut Vec<Outcome>) {
        while let Some(id) = self.timers.pop_due(now) {
            let Some(failure) = self.all.get(&id).and_then(|meeting| meeting.timed_out(now)) else { continue };
            self.fail(id, failure, outcomes);
        }
    }

    /// Describes the entries that are still kept, for tests.
    pub(super) fn leftovers(&self) -> impl Iterator<Item = String> + '_ {
        let users = self.of_user.keys().map(|user| format!("meetings of user {user}"));
        self.of_job.keys().map(|job| format!("meetings of job {job}")).chain(users)
    }
}

impl Meeting {
    fn timed_out(&self, now: Duration) -> Option<Failure> {
        let State::Open { since, .. } = &self.state else { return None };
        let all: u64 = self.key.members.values().map(RankSet::len).sum();
        let none = RankSet::default();
        let missing = self.key.members.iter().find_map(|(job, members)| {
            let rank = members.without(self.accounted.get(job).unwrap_or(&none)).first()?;
            Some(format!("rank {rank} of job {job}"))
        });
        let why = format!(
            "timed out after {}: {} of {all} processes have entered the collective; the first that is missing is {}",
            rounded(now.saturating_sub(*since)),
            all - self.missing,
            missing.unwrap_or_default(),
        );
        Some(Failure::new(TIMEOUT, why))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn call(job: JobId, node: u32) -> CallId {
        CallId { job, node, number: 1 }
    }

    /// Ranks 0 to 3 of job 1, and ranks 0 and 1 of job 2.
    fn members() -> Members {
        [(1, RankSet::run(0, 3)), (2, RankSet::run(0, 1))].into()
    }

    fn arrival(job: JobId, (first, last): (u32, u32), data: &'static str) -> Arrival {
        Arrival {
            realm: 0,
            call: call(job, first),
            namespace: format!("job-{job}"),
            key: "connect 1".into(),
            members: members(),
            order: vec![2, 1],
            ranks: RankSet::run(first, last),
            data: data.into(),
            timeout: None,
        }
    }

    fn at(seconds: u64) -> Duration {
        Duration::from_secs(seconds)
    }

    fn arrive(meetings: &mut Meetings, now: Duration, arrival: Arrival) -> Result<Vec<Outcome>, Failure> {
        let mut outcomes = Vec::new();
        meetings.arrive(now, arrival, |_| None, &mut outcomes).map(|()| outcomes)
    }

    fn failure(outcome: &Outcome) -> (Vec<CallId>, i32, &str) {
        let failure = outcome.met.as_ref().unwrap_err();
        (outcome.calls.clone(), failure.status, &failure.why)
    }

    fn assert_empty(meetings: &Meetings) {
        assert_eq!(meetings.leftovers().collect::<Vec<_>>(), Vec::<String>::new());
        assert!(meetings.all.is_empty() && meetings.by_key.is_empty() && meetings.next_deadline().is_none());
    }

    #[test]
    fn all_members_get_all_contributions_in_the_order_of_the_jobs_and_ranks() {
        let mut meetings = Meetings::default();
        for arrival in [arrival(1, (2, 3), "c"), arrival(2, (0, 1), "a")] {
            assert_eq!(arrive(&mut meetings, at(0), arrival), Ok(vec![]));
        }
        let outcomes = arrive(&mut meetings, at(9), Arrival { order: vec![1, 2], ..arrival(1, (0, 1), "b") }).unwrap();
        let [Outcome { calls, met: Ok(met) }] = &outcomes[..] else { panic!("{outcomes:?}") };
        assert_eq!(calls, &[call(2, 0), call(1, 0), call(1, 2)]);
        let met = wire::Met::decode(met.clone()).unwrap();
        let told =
            met.contributions.iter().map(|it| (&it.namespace[..], it.ranks[0].first, it.ranks[0].last, &it.data[..]));
        let expected: [(&str, u32, u32, &[u8]); 3] =
            [("job-2", 0, 1, b"a"), ("job-1", 0, 1, b"b"), ("job-1", 2, 3, b"c")];
        assert_eq!(told.collect::<Vec<_>>(), expected);
        assert_empty(&meetings);
    }

    #[test]
    fn other_keys_members_and_users_are_other_meetings() {
        let mut meetings = Meetings::default();
        let fewer: Members = [(1, RankSet::run(0, 3))].into();
        for arrival in [
            arrival(1, (0, 3), ""),
            Arrival { key: "connect 2".into(), ..arrival(1, (0, 3), "") },
            Arrival { realm: 7, ..arrival(1, (0, 3), "") },
        ] {
            assert_eq!(arrive(&mut meetings, at(0), arrival), Ok(vec![]));
        }
        let alone = arrive(&mut meetings, at(0), Arrival { members: fewer, ..arrival(1, (0, 3), "") }).unwrap();
        assert!(alone[0].met.is_ok());
        assert_eq!(meetings.all.len(), 3);
        let mut outcomes = Vec::new();
        meetings.job_is_over(2, &mut outcomes);
        assert_eq!(outcomes.len(), 3);
        // Those of job 1 have arrived, so no member is left to tell.
        assert_empty(&meetings);
    }

    #[test]
    fn a_rank_enters_a_collective_once() {
        let mut meetings = Meetings::default();
        arrive(&mut meetings, at(0), arrival(1, (0, 1), "")).unwrap();
        let twice = arrive(&mut meetings, at(0), arrival(1, (1, 2), "")).unwrap_err();
        assert_eq!(
            (twice.status, &twice.why[..]),
            (BAD_PARAM, "rank 1 of job 1 has entered the same collective twice")
        );
        arrive(&mut meetings, at(0), arrival(1, (2, 3), "")).unwrap();
        assert!(arrive(&mut meetings, at(0), arrival(2, (0, 1), "")).unwrap()[0].met.is_ok());
        assert_empty(&meetings);
    }

    #[test]
    fn a_member_that_ends_fails_the_meeting_for_all_unless_it_has_arrived() {
        let mut meetings = Meetings::default();
        arrive(&mut meetings, at(0), arrival(1, (0, 1), "")).unwrap();
        let mut outcomes = Vec::new();
        meetings.ranks_ended(1, &RankSet::run(0, 1), &mut outcomes);
        assert_eq!(outcomes, [], "they have arrived");
        meetings.ranks_ended(1, &RankSet::run(1, 2), &mut outcomes);
        let why = "rank 2 of job 1 ended without having entered the collective";
        assert_eq!(failure(&outcomes[0]), (vec![call(1, 0)], LOST_CONNECTION, why));
        // Those that arrive later are told the same, and then nothing is left.
        for arrival in [arrival(2, (0, 1), ""), arrival(1, (3, 3), "")] {
            let id = arrival.call;
            assert_eq!(failure(&arrive(&mut meetings, at(1), arrival).unwrap()[0]), (vec![id], LOST_CONNECTION, why));
        }
        assert_empty(&meetings);
    }

    #[test]
    fn a_meeting_with_a_member_that_had_ended_fails_at_once() {
        let mut meetings = Meetings::default();
        let gone = RankSet::run(1, 1);
        let mut outcomes = Vec::new();
        let ended = |job| (job == 2).then_some(&gone);
        meetings.arrive(at(0), arrival(1, (0, 3), ""), ended, &mut outcomes).unwrap();
        assert_eq!(failure(&outcomes[0]).1, LOST_CONNECTION);
        meetings.job_is_over(2, &mut outcomes);
        assert_eq!(outcomes.len(), 1);
        assert_empty(&meetings);
    }

    #[test]
    fn the_shortest_time_limit_fails_the_meeting_for_all_also_for_those_that_come_later() {
        let mut meetings = Meetings::default();
        let limited = |arrival, seconds| Arrival { timeout: Some(at(seconds)), ..arrival };
        arrive(&mut meetings, at(1), arrival(1, (0, 1), "")).unwrap();
        arrive(&mut meetings, at(2), limited(arrival(1, (2, 2), ""), 9)).unwrap();
        arrive(&mut meetings, at(3), limited(arrival(2, (1, 1), ""), 3)).unwrap();
        assert_eq!(meetings.next_deadline(), Some(at(6)));
        let mut outcomes = Vec::new();
        meetings.settle(at(5), &mut outcomes);
        assert_eq!(outcomes, []);
        meetings.settle(at(6), &mut outcomes);
        let why = "timed out after 5 s: 4 of 6 processes have entered the collective; the first that is missing is rank 3 of job 1";
        assert_eq!(failure(&outcomes[0]), (vec![call(1, 0), call(1, 2), call(2, 1)], TIMEOUT, why));
        let late = arrive(&mut meetings, at(7), arrival(1, (3, 3), "")).unwrap();
        assert_eq!(failure(&late[0]).1, TIMEOUT);
        meetings.job_is_over(2, &mut Vec::new());
        assert_empty(&meetings);
    }

    #[test]
    fn meetings_are_bounded_for_each_user() {
        let mut meetings = Meetings::default();
        let keyed = |n: usize| Arrival { key: n.to_string().into(), ..arrival(1, (0, 0), "") };
        for n in 0..OPEN_MAX {
            assert!(arrive(&mut meetings, at(0), keyed(n)).is_ok());
        }
        assert_eq!(arrive(&mut meetings, at(0), keyed(OPEN_MAX)).unwrap_err().status, OUT_OF_RESOURCE);
        arrive(&mut meetings, at(0), Arrival { realm: 1, ..keyed(0) }).expect("another user has its own limit");
        meetings.job_is_over(1, &mut Vec::new());
        assert!(meetings.of_user.values().all(|of_user| of_user.open == 0 && of_user.bytes == 0));
        assert_eq!(meetings.of_user[&0].failed.len(), FAILED_MAX, "the failed ones are bounded too");
        meetings.job_is_over(2, &mut Vec::new());
        assert_empty(&meetings);

        let large = Bytes::from(vec![0; BYTES_MAX / 2]);
        let with_data = |n: usize| Arrival { data: large.clone(), ..keyed(n) };
        assert!(arrive(&mut meetings, at(0), with_data(0)).is_ok());
        assert_eq!(arrive(&mut meetings, at(0), with_data(1)).unwrap_err().status, OUT_OF_RESOURCE);
        meetings.job_is_over(1, &mut Vec::new());
        meetings.job_is_over(2, &mut Vec::new());
        assert_empty(&meetings);
        assert_eq!(
            arrive(&mut meetings, at(0), Arrival { realm: 9, data: vec![0; BYTES_MAX].into(), ..keyed(1) })
                .unwrap_err()
                .status,
            OUT_OF_RESOURCE
        );
        assert_empty(&meetings);
    }
}
