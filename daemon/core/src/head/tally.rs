//! The metrics of the DVM: what the head counts while it works, and what its tables have when a client asks.

use std::collections::BTreeMap;
use std::time::Duration;

use rsd_proto::v1::{JobState, NodeEvent, job_event};

use super::Head;
use super::job::Job;
use crate::calls::Caller;
use crate::contract::Effect;
use crate::metrics::{Durations, Family};
use crate::{JobId, Now};

/// The most users whose jobs are counted apart.
const USERS_MAX: usize = 1000;

/// What becomes of nodes, as labels have it.
const NODE_EVENTS: [(NodeEvent, &str); 5] = [
    (NodeEvent::Joined, "joined"),
    (NodeEvent::Away, "away"),
    (NodeEvent::Back, "back"),
    (NodeEvent::Lost, "lost"),
    (NodeEvent::Left, "left"),
];

/// What has been counted since the head was started.
#[derive(Debug, Default)]
pub(super) struct Tally {
    submitted: u64,
    launched: u64,
    ended: BTreeMap<&'static str, u64>,
    failed_ranks: u64,
    output_bytes: u64,
    /// From the submission of a job to its placement, and to its end.
    placed: Durations,
    lasted: Durations,
    /// When the jobs were submitted that have not ended.
    since: BTreeMap<JobId, Duration>,
}

impl Tally {
    /// Counts what is logged.
    pub(super) fn observe(&mut self, now: Now, effect: &Effect, restores: bool) {
        let Effect::Log { job, event } = effect else { return };
        let waited = |since: &BTreeMap<JobId, Duration>| since.get(job).map(|at| now.mono.saturating_sub(*at));
        match &event.body {
            // How long a job of an earlier head has lasted is unknown.
            Some(job_event::Body::Submitted(_) | job_event::Body::Placed(_)) if restores => {}
            Some(job_event::Body::Submitted(_)) => {
                self.submitted += 1;
                self.since.insert(*job, now.mono);
            }
            Some(job_event::Body::Placed(_)) => {
                self.launched += 1;
                waited(&self.since).iter().for_each(|waited| self.placed.add(*waited));
            }
            Some(job_event::Body::RankExit(exit)) if !exit.secondary => self.failed_ranks += u64::from(exit.more) + 1,
            Some(job_event::Body::Ended(info)) => {
                waited(&self.since).iter().for_each(|lasted| self.lasted.add(*lasted));
                self.since.remove(job);
                *self.ended.entry(word(info.state())).or_default() += 1;
            }
            // A family's root has the same output once more.
            Some(job_event::Body::Output(output)) if output.job == 0 => {
                self.output_bytes += output.records.iter().map(|record| record.data.len() as u64).sum::<u64>();
            }
            Some(
                job_event::Body::Output(_)
                | job_event::Body::RankExit(_)
                | job_event::Body::Queued(_)
                | job_event::Body::Killing(_)
                | job_event::Body::Notice(_)
                | job_event::Body::Gap(_)
                | job_event::Body::Requeued(_),
            )
            | None => {}
        }
    }

    fn families(&self) -> Vec<Family> {
        let ended = ["done", "failed", "cancelled", "timed_out"];
        let ended = ended.map(|state| (state, self.ended.get(state).copied().unwrap_or_default() as f64));
        vec![
            Family::counter("rsd_jobs_submitted_total", "Jobs that were submitted.", self.submitted as f64),
            Family::counter("rsd_jobs_launched_total", "Jobs that were placed and launched.", self.launched as f64),
            Family::counters("rsd_jobs_ended_total", "Jobs that have ended, by their final state.", "state", ended),
            Family::counter(
                "rsd_ranks_failed_total",
                "Ranks that failed of themselves, not because another rank failed.",
                self.failed_ranks as f64,
            ),
            Family::counter("rsd_output_bytes_total", "Output of ranks that has arrived.", self.output_bytes as f64),
            Family::histogram(
                "rsd_job_placed_seconds",
                "Time from the submission of a job to its placement.",
                &self.placed,
            ),
            Family::histogram("rsd_job_ended_seconds", "Time from the submission of a job to its end.", &self.lasted),
        ]
    }
}

impl Head {
    /// Returns the metrics of the DVM that a caller may see.
    pub(crate) fn metrics(&self, caller: Caller) -> Vec<Family> {
        let mut states = BTreeMap::from([("queued", 0.0), ("running", 0.0), ("ending", 0.0)]);
        let mut ranks = 0.0;
        let mut users: BTreeMap<(String, &'static str), f64> = BTreeMap::new();
        for job in self.jobs.alive() {
            let state = word(job.life().state());
            *states.entry(state).or_default() += 1.0;
            ranks += if job.has_ranks() { f64::from(job.map.size()) } else { 0.0 };
            if let Some(owner) = job.owner()
                && users.len() < USERS_MAX
            {
                *users.entry((owner.name.clone(), state)).or_default() += 1.0;
            }
        }
        let away = self.nodes.all().filter(|node| node.is_away).count();
        let drained = self.nodes.all().filter(|node| !node.is_away && node.is_drained).count();
        let up = self.nodes.len() - away - drained;
        let nodes = [("up", up as f64), ("drained", drained as f64), ("away", away as f64)];
        let remembered = self.jobs.all().filter(|job: &&Job| job.is_over()).count();
        let mut families = vec![
            Family::gauges("rsd_jobs", "Jobs that have not ended, by their state.", "state", states),
            Family::gauge("rsd_jobs_remembered", "Ended jobs that rsctl ps -a lists.", remembered as f64),
            Family::gauge("rsd_ranks", "Ranks of jobs that run.", ranks),
            Family::gauge("rsd_slots", "Slots of all nodes.", f64::from(self.nodes.slots())),
            Family::gauge("rsd_slots_in_use", "Slots that ranks hold.", f64::from(self.ledger.total())),
            Family::gauges("rsd_nodes", "Nodes, by their state.", "state", nodes),
        ];
        families.extend(self.tally.families());
        let events = NODE_EVENTS.map(|(event, word)| (word, self.feed.count(event) as f64));
        families.push(Family::counters("rsd_node_events_total", "What has become of nodes.", "event", events));
        if caller.is_admin && !users.is_empty() {
            let of_users = users
                .into_iter()
                .map(|((user, state), count)| (vec![("user", user), ("state", state.to_owned())], count));
            let help = "Jobs of each user that have not ended; only for administrators.";
            families.push(Family::labelled("rsd_user_jobs", help, of_users.collect()));
        }
        families
    }
}

/// Returns the word for a job's state, as a label has it.
fn word(state: JobState) -> &'static str {
    match state {
        JobState::Unknown => "unknown",
        JobState::Queued => "queued",
        JobState::Running => "running",
        JobState::Ending => "ending",
        JobState::Done => "done",
        JobState::Failed => "failed",
        JobState::Cancelled => "cancelled",
        JobState::TimedOut => "timed_out",
    }
}
