//! Jobs that ranks spawn (MPI 5.0, 11.8). A spawned job has its own number, namespace, nodes and end, as any job has. It is
//! placed on free slots or refused, and never queued, because its spawner waits.
//!
//! A *family* is a submitted job, its root, and all jobs spawned by its ranks and by theirs. The root's log has the output of all
//! jobs and ends when the last of them has ended. When a job is killed, so are the jobs that it spawned. If a spawned job fails so
//! that other jobs could wait for it forever, the whole family is killed, as under Hydra. A job that was spawned *apart* is an
//! exception: its spawner learns of the failure from [`state`].

use prost::Message;
use rsd_proto::v1::{self as wire, JobSpec, JobState, RankExit, down, job_event};

use super::job::spec_bytes;
use super::jobs::Jobs;
use super::launching::name_and_secret;
use super::life::{Life, Pending, Why};
use super::questions::{CallId, Question};
use super::queue::waiting;
use super::spawned::{Asked, Birth, Spawned};
use super::{Head, offers};
use crate::between::{Order, Outputs};
use crate::place::{self, Placement};
use crate::{JobId, Now, plan, sentences};

/// How many refused spawns the root's log reports.
const NOTICES_MAX: usize = 8;
/// How many smaller numbers of ranks are tried for a spawn that accepts them.
const TRIES_MAX: usize = 64;

impl Head {
    pub(super) fn on_spawn_call(&mut self, now: Now, call: wire::SpawnCall, out: &mut Outputs<Order>) {
        let (job, node, number) = (call.job, call.node, call.call);
        if !self.jobs.get(job).is_some_and(super::job::Job::has_ranks) {
            return;
        }
        let realm = self.realm_of_job(job);
        match self.questions.ask(realm, CallId { job, node, number }, call.open_from, &[]) {
            Question::Settled => {}
            Question::Answered(answer) => out.order(*answer),
            Question::New => self.begin_spawn(now, call, out),
        }
    }

    /// Spawns a job, or refuses that. While nodes that an earlier head knew may reconnect, it waits for them.
    fn begin_spawn(&mut self, now: Now, call: wire::SpawnCall, out: &mut Outputs<Order>) {
        if !self.jobs.get(call.job).is_some_and(super::job::Job::has_ranks) {
            return;
        }
        let spec = JobSpec::decode(call.spec.clone()).map_err(|_| "the request does not decode".to_owned());
        let Err(error) = spec.and_then(|spec| self.spawn(now, &call, spec, out)) else { return };
        if !self.returning.is_empty() {
            return self.late_spawns.push(call);
        }
        let result = wire::SpawnResult { job: call.job, node: call.node, call: call.call, error, ..Default::default() };
        self.refuse_spawn(now, call.rank, result, out);
    }

    /// Tries the spawns again that wait for nodes.
    pub(super) fn begin_late_spawns(&mut self, now: Now, out: &mut Outputs<Order>) {
        for call in std::mem::take(&mut self.late_spawns) {
            self.begin_spawn(now, call, out);
        }
    }

    /// Starts a spawned job. The spawner is answered when all ranks run.
    fn spawn(
        &mut self,
        now: Now,
        call: &wire::SpawnCall,
        mut spec: JobSpec,
        out: &mut Outputs<Order>,
    ) -> Result<(), String> {
        let parent = self.jobs.get(call.job).filter(|job| matches!(job.life(), Life::Running { .. }));
        let (Some(parent), false) = (parent, self.is_stopping()) else {
            return Err(sentences::JOB_IS_BEING_ENDED.to_owned());
        };
        let root = parent.spawned.as_ref().map_or(call.job, |spawned| spawned.root);
        let (owner, parent_namespace) = (parent.owner().cloned(), parent.namespace.clone());
        spec.kill_grace_ms = Some(parent.grace_ms);
        spec.on_node_loss = parent.on_node_loss().into();
        spec.on_rank_loss = parent.on_rank_loss().into();
        if !call.wrong.is_empty() {
            return Err(call.wrong.clone());
        }
        if spec.apps.is_empty() || spec.apps.iter().any(|app| app.argv.is_empty()) {
            return Err("no program given".into());
        }
        let bytes = spec_bytes(&spec, &call.preput);
        self.check_jobs(owner.as_ref().map_or(0, |owner| owner.uid), bytes).map_err(|refused| refused.text)?;
        let (placement, wanted) = self.fit(&mut spec, &call.soft)?;

        let id = self.next_job(out);
        if !spec.output_dir.is_empty() {
            // Ranks of several jobs have the same numbers.
            spec.output_dir = [&spec.output_dir[..], format!("/job.{id}").as_bytes()].concat().into();
        }
        let ((name, secret), preput) = (name_and_secret(call.random.clone()), call.preput.clone());
        let pending = Pending { spec, wanted, secret, preput, reason: String::new() };
        let mut job = self.new_job(now, id, owner, pending, &name);
        let started = placement.app_sizes.clone();
        let asked = Asked { node: call.node, call: call.call, rank: call.rank, started };
        let (parent, apart) = (call.job, call.apart);
        job.spawned = Some(Spawned { parent, parent_namespace, root, birth: Birth::Awaited, apart, asked });
        out.log(now, id, job.submitted());
        self.jobs.insert(job);
        self.start_job(now, id, placement, out);
        Ok(())
    }

    /// Places all ranks or, if they do not fit, the largest acceptable number of them.
    pub(super) fn fit(&self, spec: &mut JobSpec, soft: &[wire::Soft]) -> Result<(Placement, place::Request), String> {
        let mut wanted = plan::request(spec).map_err(|refusal| waiting(&refusal))?;
        for _ in 0..TRIES_MAX {
            let refusal = match offers::place(&self.nodes, &self.ledger, &wanted) {
                Ok(placement) => return Ok((placement, wanted)),
                Err(refusal) => refusal,
            };
            let fewer = refusal.shortage().and_then(|shortage| {
                let at = shortage.program.map_or(0, |program| program.saturating_sub(1));
                let less = wanted.apps.get(at)?.n?.checked_sub(1)?;
                let most = u32::try_from(shortage.free).unwrap_or(u32::MAX).min(less);
                Some((at, largest(soft.get(at)?, most)?))
            });
            let Some((at, n)) = fewer else { return Err(waiting(&refusal)) };
            (spec.apps[at].n, wanted.apps[at].n) = (Some(n), Some(n));
        }
        Err("none of the acceptable numbers of ranks fits".into())
    }

    /// Handles that all ranks of a spawned job have started, except ranks of nodes that have ended.
    pub(super) fn on_begun(&mut self, now: Now, id: JobId, out: &mut Outputs<Order>) {
        let Some(job) = self.jobs.get(id) else { return };
        let fatal = job.cause().filter(|cause| cause.fatal).map(sentences::exit);
        self.answer_spawn(now, id, fatal.map_or(Ok(()), Err), out);
    }

    /// Answers the spawner of this job, unless it has been answered.
    pub(super) fn answer_spawn(&mut self, now: Now, id: JobId, began: Result<(), String>, out: &mut Outputs<Order>) {
        let Some(job) = self.jobs.get_mut(id) else { return };
        let namespace = job.namespace.clone();
        let Some(Spawned { parent, birth, asked, .. }) = &mut job.spawned else { return };
        if *birth != Birth::Awaited {
            return;
        }
        *birth = if began.is_ok() { Birth::Confirmed } else { Birth::Refused };
        let (parent, Asked { node, call, rank, started }) = (*parent, asked.clone());
        self.keep_job(id);
        let result = wire::SpawnResult { job: parent, node, call, ..Default::default() };
        match began {
            Ok(()) => self.send_spawn_result(wire::SpawnResult { namespace, started, ..result }, out),
            Err(error) => self.refuse_spawn(now, rank, wire::SpawnResult { error, ..result }, out),
        }
    }

    fn refuse_spawn(&mut self, now: Now, rank: u32, result: wire::SpawnResult, out: &mut Outputs<Order>) {
        let root = self.jobs.get(result.job).and_then(|job| job.spawned.as_ref()).map_or(result.job, |it| it.root);
        let root = self.jobs.get_mut(root).filter(|root| !root.is_over() && root.refusals < NOTICES_MAX);
        if let Some(root) = root {
            root.refusals += 1;
            let of = if root.id == result.job { String::new() } else { format!(" of job {}", result.job) };
            let text = format!("rank {rank}{of} could not spawn: {}", result.error);
            out.log(now, root.id, job_event::Body::Notice(text));
        }
        self.send_spawn_result(result, out);
    }

    fn send_spawn_result(&mut self, result: wire::SpawnResult, out: &mut Outputs<Order>) {
        let (job, node, call) = (result.job, result.node, result.call);
        let answer = down::Body::SpawnResult(result);
        self.questions.answer(CallId { job, node, number: call }, answer.clone(), 0);
        out.order(answer);
    }

    /// Handles a failure in a spawned job that could make other jobs wait forever.
    pub(super) fn fail_family(&mut self, now: Now, id: JobId, exit: &RankExit, out: &mut Outputs<Order>) {
        let Some(Spawned { root, birth: Birth::Confirmed, apart: false, .. }) =
            self.jobs.get(id).and_then(|job| job.spawned.as_ref())
        else {
            return;
        };
        let root = *root;
        let Some(family) = self.jobs.get_mut(root) else { return };
        family.ends.take_cause(id, exit);
        let (grace_ms, reason) = (family.grace_ms, sentences::spawned_rank_failed(id, exit.rank));
        self.kill(now, root, Why::Failed, reason, grace_ms, out);
    }

    /// Kills the jobs that a job has spawned, and theirs, when the job itself is killed.
    pub(super) fn kill_spawned(&mut self, now: Now, id: JobId, grace_ms: u64, out: &mut Outputs<Order>) {
        self.answer_spawn(now, id, Err(sentences::JOB_IS_BEING_ENDED.to_owned()), out);
        let root = self.jobs.get(id).and_then(|job| job.spawned.as_ref()).map_or(id, |spawned| spawned.root);
        let is_child = |child: &JobId| {
            let spawned = self.jobs.get(*child).and_then(|job| job.spawned.as_ref());
            spawned.is_some_and(|it| it.parent == id || it.root == id)
        };
        for child in self.jobs.family(root).filter(is_child).collect::<Vec<_>>() {
            self.kill(now, child, Why::Cancelled, sentences::spawner_is_ending(id), grace_ms, out);
        }
    }

    /// Handles the end of a job of a family. The root ends too if it was only waiting for this job.
    pub(super) fn end_in_family(&mut self, now: Now, id: JobId, out: &mut Outputs<Order>) {
        let Some(job) = self.jobs.get(id) else { return };
        let Some(Spawned { root, birth, apart, .. }) = &job.spawned else { return };
        let concerns_family = !apart && matches!(birth, Birth::Confirmed);
        let (root, cause) = (*root, job.cause().filter(|_| concerns_family).cloned());
        if let (Some(family), Some(cause)) = (self.jobs.get_mut(root), cause) {
            family.ends.take_cause(id, &cause);
            self.keep_job(root);
        }
        if !self.jobs.has_family(root) {
            self.end_outlived(now, root, out);
        }
    }
}

/// Returns the largest acceptable number from 1 to `most`.
fn largest(soft: &wire::Soft, most: u32) -> Option<u32> {
    let of = |triplet: &wire::Triplet| {
        let (first, last, stride) = match triplet.stride {
            0 => (triplet.first, triplet.first, 1),
            stride if stride < 0 => {
                let stride = stride.checked_neg()?;
                let span = triplet.first.checked_sub(triplet.last).filter(|span| *span >= 0)?;
                let steps = span.div_euclid(stride);
                (triplet.first - steps * stride, triplet.first, stride)
            }
            stride => (triplet.first, triplet.last, stride),
        };
        let end = last.min(i64::from(most));
        let span = end.checked_sub(first).filter(|span| *span >= 0)?;
        u32::try_from(first + span / stride * stride).ok().filter(|n| *n > 0)
    };
    soft.triplets.iter().filter_map(of).max()
}

/// Returns the state of a spawned job for its spawner: `running`, `done`, or `failed: ` and the reason.
pub(super) fn state(jobs: &Jobs, namespace: &str, owner_uid: u32) -> Option<String> {
    let job = jobs.named(namespace, owner_uid)?;
    let why = || job.cause().map_or_else(|| "it was ended".to_owned(), sentences::exit);
    Some(match job.life().state() {
        JobState::Done => "done".to_owned(),
        JobState::Unknown | JobState::Queued | JobState::Running => "running".to_owned(),
        JobState::Ending | JobState::Failed | JobState::Cancelled | JobState::TimedOut => format!("failed: {}", why()),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_largest_acceptable_number_that_fits_is_taken() {
        let soft = |triplets: &[(i64, i64, i64)]| wire::Soft {
            triplets: triplets.iter().map(|&(first, last, stride)| wire::Triplet { first, last, stride }).collect(),
        };
        assert_eq!(largest(&soft(&[(0, 100, 1)]), 7), Some(7));
        assert_eq!(largest(&soft(&[(2, 10, 4)]), 7), Some(6));
        assert_eq!(largest(&soft(&[(2, 10, 4)]), 100), Some(10));
        assert_eq!(largest(&soft(&[(10, 2, -4)]), 7), Some(6));
        assert_eq!(largest(&soft(&[(3, 3, 1), (1, 1, 1)]), 2), Some(1));
        assert_eq!(largest(&soft(&[(3, 3, 0)]), 5), Some(3));
        assert_eq!(largest(&soft(&[(0, 0, 1), (-5, -1, 1), (8, 9, 1)]), 7), None);
        assert_eq!(largest(&soft(&[(i64::MIN, i64::MAX, 1), (i64::MAX, i64::MIN, i64::MIN)]), 7), None);
        assert_eq!(largest(&soft(&[(1, 2, -i64::MAX), (i64::MAX, 2, -1)]), 7), Some(7));
        assert_eq!(largest(&soft(&[]), 7), None);
    }
}
