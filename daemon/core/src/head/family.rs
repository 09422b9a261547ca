//! Jobs that ranks spawn (MPI 5.0, 11.8), on the head. A spawned job is a job like any other: with a number, a namespace, nodes
//! and an end of its own. It is placed on what is free now or refused, and never queued, as its spawner waits.
//!
//! A *family* is a job that was submitted, its root, and all that was spawned by its ranks and by theirs. The root's log has the
//! output of all, and ends when the last of them has ended. When a job is ended, so are those that it has spawned. When a
//! spawned job fails so that others could wait for it for ever, the whole family is ended, as under Hydra; unless it was spawned
//! *apart*: then its spawner finds out by itself, by [`state`].

use std::collections::BTreeMap;

use prost::Message;
use rsd_proto::v1::{self as wire, Down, JobSpec, JobState, RankExit, down, job_event};

use crate::calls::log;
use crate::head::job::{Job, Life, Why};
use crate::head::questions::Question;
use crate::head::{Head, namespace, waiting};
use crate::place::Placement;
use crate::rsd::{Answer, Effect, Rsd};
use crate::{JobId, NodeId, Now, plan, sentences};

/// So many refusals the root's log tells of.
const NOTICES_MAX: usize = 8;
/// So many smaller numbers of ranks are tried for a spawn that says which will do.
const TRIES_MAX: usize = 64;

/// What a spawned job is to others.
#[derive(Debug)]
pub(crate) struct Spawned {
    /// Whose rank has spawned it.
    pub(crate) parent: JobId,
    /// Who began the family.
    pub(crate) root: JobId,
    birth: Birth,
    /// Its failure is its own.
    apart: bool,
}

/// How far it is from having begun.
#[derive(Debug)]
enum Birth {
    /// Until all its ranks run, or it is clear that they never will: the question to answer.
    Awaited(Asked),
    /// Its spawner knows of it.
    Told,
    /// Its spawner was told that there is none.
    Refused,
}

#[derive(Debug)]
struct Asked {
    node: NodeId,
    call: u64,
    rank: u32,
    started: Vec<u32>,
}

impl Rsd {
    pub(crate) fn on_spawn_call(&mut self, now: Now, mut call: wire::SpawnCall, out: &mut Vec<Effect>) {
        let Some(head) = self.head.as_mut().filter(|head| head.has_ranks(call.job)) else { return };
        let (job, node, number) = (call.job, call.node, call.call);
        match head.questions.ask(job, node, number, call.open_from) {
            Question::Settled => {}
            Question::Answered(answer) => self.to_node(job, node, Down { body: Some(answer) }, out),
            Question::New => {
                let spec =
                    JobSpec::decode(call.spec.split_off(0)).map_err(|_| "the request does not decode".to_owned());
                if let Err(why) = spec.and_then(|spec| self.spawn(now, &call, spec, out)) {
                    let result = wire::SpawnResult { job, node, call: number, error: why, ..Default::default() };
                    self.refuse_spawn(now, call.rank, result, out);
                }
            }
        }
    }

    /// Starts the job; it is answered when all its ranks run.
    fn spawn(
        &mut self,
        now: Now,
        call: &wire::SpawnCall,
        mut spec: JobSpec,
        out: &mut Vec<Effect>,
    ) -> Result<(), String> {
        let Some(head) = &mut self.head else { return Err("only the head starts jobs".into()) };
        let parent = head.jobs.get(&call.job).filter(|job| matches!(job.life, Life::Running { .. }));
        let (Some(parent), None) = (parent, &self.stopping) else { return Err("it is being ended itself".into()) };
        let root = parent.spawned.as_ref().map_or(call.job, |spawned| spawned.root);
        spec.kill_grace_ms = Some(parent.grace_ms);
        if !call.wrong.is_empty() {
            return Err(call.wrong.clone());
        }
        if spec.apps.is_empty() || spec.apps.iter().any(|app| app.argv.is_empty()) {
            return Err("no program named".into());
        }
        let placement = fit(head, &mut spec, &call.soft)?;

        let id = head.memory.next_job;
        head.memory.next_job += 1;
        out.push(Effect::Remember(head.memory));
        if !spec.output_dir.is_empty() {
            // Ranks of several jobs have the same numbers.
            spec.output_dir = [&spec.output_dir[..], format!("/job.{id}").as_bytes()].concat().into();
        }
        let grace_ms = u64::try_from(self.tuning.kill_grace.as_millis()).unwrap_or(u64::MAX);
        let (namespace, secret) = (namespace(&self.dvm, id), call.secret.clone());
        let mut job = Job::new(now, id, spec, secret, namespace, String::new(), grace_ms);
        let started = placement.app_sizes.clone();
        let birth = Birth::Awaited(Asked { node: call.node, call: call.call, rank: call.rank, started });
        job.spawned = Some(Spawned { parent: call.job, root, birth, apart: call.apart });
        job.preput = call.preput.clone();
        out.push(log(now, id, job.submitted()));
        head.insert_running(job);
        self.start_job(now, id, placement, out);
        Ok(())
    }

    /// All ranks of a spawned job have been started, but for those of nodes that have ended.
    pub(crate) fn on_begun(&mut self, now: Now, id: JobId, out: &mut Vec<Effect>) {
        let Some(job) = self.head.as_ref().and_then(|head| head.jobs.get(&id)) else { return };
        let fatal = job.cause().filter(|cause| cause.fatal).map(sentences::exit);
        self.answer_spawn(now, id, fatal.map_or(Ok(()), Err), out);
    }

    /// Tells whoever has spawned this job how that went, if nobody has yet.
    pub(crate) fn answer_spawn(&mut self, now: Now, id: JobId, began: Result<(), String>, out: &mut Vec<Effect>) {
        let Some(job) = self.head.as_mut().and_then(|head| head.jobs.get_mut(&id)) else { return };
        let namespace = job.namespace.clone();
        let Some(Spawned { parent, birth, .. }) = &mut job.spawned else { return };
        let after = if began.is_ok() { Birth::Told } else { Birth::Refused };
        let Birth::Awaited(Asked { node, call, rank, started }) = birth else { return };
        let (parent, node, call, rank, started) = (*parent, *node, *call, *rank, std::mem::take(started));
        *birth = after;
        let result = wire::SpawnResult { job: parent, node, call, ..Default::default() };
        match began {
            Ok(()) => self.send_spawn_result(wire::SpawnResult { namespace, started, ..result }, out),
            Err(error) => self.refuse_spawn(now, rank, wire::SpawnResult { error, ..result }, out),
        }
    }

    fn refuse_spawn(&mut self, now: Now, rank: u32, result: wire::SpawnResult, out: &mut Vec<Effect>) {
        let Some(head) = &mut self.head else { return };
        let root = head.jobs.get(&result.job).and_then(|job| job.spawned.as_ref()).map_or(result.job, |it| it.root);
        if let Some(root) = head.jobs.get_mut(&root).filter(|root| !root.is_over() && root.refusals < NOTICES_MAX) {
            root.refusals += 1;
            let of = if root.id == result.job { String::new() } else { format!(" of job {}", result.job) };
            let text = format!("rank {rank}{of} could not spawn: {}", result.error);
            out.push(log(now, root.id, job_event::Body::Notice(text)));
        }
        self.send_spawn_result(result, out);
    }

    fn send_spawn_result(&mut self, result: wire::SpawnResult, out: &mut Vec<Effect>) {
        let (job, node, call) = (result.job, result.node, result.call);
        let answer = down::Body::SpawnResult(result);
        if let Some(head) = &mut self.head {
            head.questions.answer(job, node, call, answer.clone());
        }
        self.to_node(job, node, Down { body: Some(answer) }, out);
    }

    /// A rank of a spawned job has failed so that others could wait for it for ever.
    pub(crate) fn fail_family(&mut self, now: Now, id: JobId, exit: &RankExit, out: &mut Vec<Effect>) {
        let Some(job) = self.head.as_ref().and_then(|head| head.jobs.get(&id)) else { return };
        let Some(Spawned { root, birth: Birth::Told, apart: false, .. }) = job.spawned else { return };
        let Some(family) = self.head.as_mut().and_then(|head| head.jobs.get_mut(&root)) else { return };
        family.take_cause(id, exit);
        let (grace_ms, reason) = (family.grace_ms, sentences::spawned_rank_failed(id, exit.rank));
        self.kill_job(now, root, Why::Failed, reason, grace_ms, out);
    }

    /// A job is being ended: so are those that it has spawned, and those that they have.
    pub(crate) fn kill_spawned(&mut self, now: Now, id: JobId, grace_ms: u64, out: &mut Vec<Effect>) {
        self.answer_spawn(now, id, Err("it is being ended".into()), out);
        let Some(head) = &self.head else { return };
        let of = |job: &&Job| job.spawned.as_ref().is_some_and(|it| it.parent == id || it.root == id);
        for child in head.alive().filter(of).map(|job| job.id).collect::<Vec<_>>() {
            let reason = sentences::spawner_is_ending(id);
            self.kill_job(now, child, Why::Cancelled, reason, grace_ms, out);
        }
    }

    /// All ranks of a job have ended. A root lives until its family does.
    pub(crate) fn end_or_outlive(&mut self, now: Now, id: JobId, out: &mut Vec<Effect>) {
        let Some(head) = &mut self.head else { return };
        if head.has_family(id) {
            let Some(job) = head.jobs.get_mut(&id) else { return };
            job.outlive();
            let req = job.stdin.settle(true);
            head.epoch_is_over(id);
            out.extend(req.map(|req| Effect::Answer { req, answer: Answer::Stopped }));
            return;
        }
        let Some(job) = head.jobs.get_mut(&id) else { return };
        out.push(log(now, id, job.end(now, None)));
        let (cause, spawned) = (job.cause().cloned(), job.spawned.take());
        self.retire(id, out);
        let Some(Spawned { parent, root, apart, birth }) = spawned else { return };
        let Some(head) = &mut self.head else { return };
        if let Some(job) = head.jobs.get_mut(&id) {
            job.parent = parent;
        }
        let Some(family) = head.jobs.get_mut(&root) else { return };
        if let Some(cause) = cause.filter(|_| !apart && matches!(birth, Birth::Told)) {
            family.take_cause(id, &cause);
        }
        if matches!(family.life, Life::Outlived { .. }) && !head.has_family(root) {
            self.end_or_outlive(now, root, out);
        }
    }
}

impl Head {
    /// Whether a job that is not over belongs to the family that this one began.
    fn has_family(&self, root: JobId) -> bool {
        self.alive().any(|job| job.spawned.as_ref().is_some_and(|spawned| spawned.root == root))
    }
}

/// A place for all of it; if there is none, for as many ranks less as will do as well.
fn fit(head: &Head, spec: &mut JobSpec, soft: &[wire::Soft]) -> Result<Placement, String> {
    for _ in 0..TRIES_MAX {
        let refusal = match plan::request(spec).and_then(|wanted| head.place(&wanted)) {
            Ok(placement) => return Ok(placement),
            Err(refusal) => refusal,
        };
        let fewer = refusal.shortage().and_then(|shortage| {
            let at = shortage.program.map_or(0, |program| program.saturating_sub(1));
            let less = spec.apps.get(at)?.n?.checked_sub(1)?;
            let most = u32::try_from(shortage.free).unwrap_or(u32::MAX).min(less);
            Some((at, largest(soft.get(at)?, most)?))
        });
        match fewer {
            Some((at, n)) => spec.apps[at].n = Some(n),
            None => return Err(waiting(&refusal)),
        }
    }
    Err("none of the numbers of ranks that would do fits".into())
}

/// The largest number from 1 to `most` that will do.
fn largest(soft: &wire::Soft, most: u32) -> Option<u32> {
    let of = |triplet: &wire::Triplet| {
        let (first, last, stride) = match triplet.stride {
            0 => (triplet.first, triplet.first, 1),
            stride if stride < 0 => {
                let stride = stride.checked_neg()?;
                let steps = triplet.first.checked_sub(triplet.last)?.div_euclid(stride);
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

/// What has become of a job, for those who have spawned it: `running`, `done`, or `failed: ` and why.
pub(crate) fn state(jobs: &BTreeMap<JobId, Job>, namespace: &str) -> Option<String> {
    let id: JobId = namespace.rsplit('-').next()?.parse().ok()?;
    let info = jobs.get(&id).filter(|job| job.namespace == namespace)?.info();
    let why = || info.cause.as_ref().map_or_else(|| "it was ended".to_owned(), sentences::exit);
    Some(match info.state() {
        JobState::Done => "done".to_owned(),
        JobState::Unknown | JobState::Queued | JobState::Running => "running".to_owned(),
        JobState::Ending | JobState::Failed | JobState::Cancelled | JobState::TimedOut => format!("failed: {}", why()),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn of_the_numbers_that_will_do_the_largest_that_fits_is_taken() {
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
        assert_eq!(largest(&soft(&[]), 7), None);
    }
}
