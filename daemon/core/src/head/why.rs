//! `rsctl why`: why a job waits, what frees it, and when it starts at the latest by what the head knows. Each reason is a sentence, the one
//! that holds the job back first.

use std::time::Duration;

use rsd_proto::v1::{Dependency, JobInfo, JobState, WhyReason, WhyReply};

use super::after::{named, wish};
use super::job::Job;
use super::life::{Life, Pending};
use super::queue::waiting;
use super::{Head, offers};
use crate::{JobId, Now, sentences};

/// How many jobs a sentence lists.
const LISTED: usize = 5;
/// How many dependencies are told one by one.
const NEEDS_TOLD: usize = 20;

impl Head {
    /// Says why a job waits. `element`: one that has not started, of the array with this id.
    pub(super) fn why(&self, now: Now, id: JobId, element: Option<JobInfo>) -> WhyReply {
        let Some(job) = self.jobs.get(id) else { return WhyReply::default() };
        let info = element.unwrap_or_else(|| job.info());
        let mut reply = WhyReply { job: Some(info.clone()), ..WhyReply::default() };
        let Life::Queued(pending) = job.life() else { return reply };
        let waits = match &job.array {
            _ if info.state() != JobState::Queued && info.state() != JobState::Running => false,
            Some(own) if info.array.is_some() => own.has_waiting(),
            Some(_) | None => info.state() == JobState::Queued,
        };
        if !waits {
            return reply;
        }
        let number = job.number();
        if info.held || pending.spec.hold {
            let text = match pending.reason.strip_prefix("it is held: ") {
                Some(why) if pending.spec.hold && pending.reason != super::holding::HELD => {
                    format!("it is held: {why}")
                }
                Some(_) | None => "it is held".to_owned(),
            };
            let what = info.element.map_or_else(|| number.to_string(), |own| format!("'{number}[{}]'", own.index));
            reply.reasons.push(reason(text, [format!("rsctl release {what}")]));
        }
        let needs = job.needs.iter().take(NEEDS_TOLD).map(|need| self.reason_of(now, need));
        reply.reasons.extend(needs);
        if job.needs.len() > NEEDS_TOLD {
            let text = format!("it waits for {} more jobs", job.needs.len() - NEEDS_TOLD);
            reply.reasons.push(reason(text, []));
        }
        if let Some(own) = &job.array {
            let about = own.info(pending.spec.hold);
            if own.is_full() {
                let text = format!(
                    "{} of its elements run, and no more may run at the same time (%{})",
                    about.running, about.limit
                );
                reply.reasons.push(reason(text, [format!("the end of one of the elements {}", about.which_running)]));
            }
            let before = info.element.and_then(|element| own.indexes.position(element.index)).unwrap_or(0);
            let before = own.queued_before(before);
            if before > 0 {
                let elements = if before == 1 { "element of its array starts" } else { "elements of its array start" };
                reply.reasons.push(reason(format!("{before} {elements} before it"), []));
            }
        }
        let is_free = reply.reasons.is_empty();
        self.add_reasons_of_queue(now, job, pending, &mut reply);
        if !is_free {
            reply.earliest_ms = None;
            reply.earliest_because = "unknown: it depends on what it waits for".to_owned();
        }
        if pending.spec.queue_deadline_ms > 0 && !job.has_started() {
            let left = (job.lifetime().0 + pending.spec.queue_deadline_ms).saturating_sub(now.unix_ms);
            let left = sentences::span(Duration::from_millis(left));
            reply.reasons.push(reason(format!("it fails if it has not started in {left} (--queue-deadline)"), []));
        }
        reply
    }

    /// Adds what the queue and the nodes have to do with it.
    fn add_reasons_of_queue(&self, now: Now, job: &Job, pending: &Pending, reply: &mut WhyReply) {
        if self.queue.contains(job.id) {
            let before: Vec<&Job> = self.queue.before(job.id).filter_map(|id| self.jobs.get(id)).collect();
            if !before.is_empty() {
                let listed: Vec<String> = before.iter().take(LISTED).map(|job| with_priority(job)).collect();
                let more =
                    if before.len() > LISTED { format!(" and {} more", before.len() - LISTED) } else { String::new() };
                let (jobs, are) = if before.len() == 1 { ("job", "is") } else { ("jobs", "are") };
                let mut text =
                    format!("{} {jobs} {are} before it in the queue: {}{more}", before.len(), listed.join(", "));
                if pending.spec.timeout_ms == 0 {
                    text.push_str(
                        "; with a time limit (--timeout) it could start before them where it does not delay the first",
                    );
                }
                reply.reasons.push(reason(text, []));
            }
        }
        match offers::place(&self.nodes, &self.ledger, &pending.wanted) {
            Ok(_) if reply.reasons.is_empty() => {
                reply.reasons.push(reason("it starts in a moment".to_owned(), []));
                reply.earliest_ms = Some(now.unix_ms);
            }
            Ok(_) => {
                if self.queue.contains(job.id) && pending.reason.starts_with("it fits now") {
                    reply.reasons.push(reason(pending.reason.clone(), []));
                }
                reply.earliest_because =
                    "unknown: it fits now, but does not start before what is told above".to_owned();
            }
            Err(refusal) if refusal.fits_when_idle() => self.add_forecast(now, job, pending, waiting(&refusal), reply),
            Err(_) if !self.returning.is_empty() => reply.reasons.push(reason(self.awaits_nodes(), [])),
            Err(refusal) => reply.reasons.push(reason(waiting(&refusal), [])),
        }
    }

    fn add_forecast(&self, now: Now, job: &Job, pending: &Pending, text: String, reply: &mut WhyReply) {
        let forecast = self.forecast(now, &pending.wanted);
        let is_first = !self.queue.before(job.id).any(|_| true);
        let ms =
            |at: Duration| now.unix_ms + u64::try_from(at.saturating_sub(now.mono).as_millis()).unwrap_or(u64::MAX);
        // Which jobs are in its way: those that hold something where it may run.
        let usable = offers::candidates(&self.nodes, &self.ledger, &pending.wanted);
        let is_near =
            |job: &&Job| usable.as_ref().is_none_or(|usable| job.map.nodes().iter().any(|node| usable.contains(node)));
        let holders: Vec<&Job> = self.ledger.jobs().filter_map(|id| self.jobs.get(id)).filter(is_near).collect();
        let mut listed: Vec<(Option<Duration>, JobId)> =
            holders.iter().map(|job| (job.life().deadline(), job.number())).collect();
        listed.sort_by_key(|(until, number)| (until.is_none(), *until, *number));
        let frees: Vec<String> = listed
            .iter()
            .take(LISTED)
            .map(|(until, number)| match until {
                Some(until) => format!(
                    "the end of job {number}, in {} at the latest",
                    sentences::span(until.saturating_sub(now.mono))
                ),
                None => format!("the end of job {number}, which has no time limit"),
            })
            .collect();
        reply.reasons.push(WhyReason { text, frees });
        match (forecast.at, forecast.last) {
            (Some(at), Some(last)) if is_first => {
                reply.earliest_ms = Some(ms(at));
                let last = crate::attempts::number(last);
                reply.earliest_because =
                    format!("when job {last} reaches its time limit, or earlier if jobs end earlier");
            }
            (Some(at), _) => {
                reply.earliest_ms = Some(ms(at));
                reply.earliest_because =
                    "by the time limits of running jobs, and later if jobs before it take the room".to_owned();
            }
            (None, _) => {
                reply.earliest_because =
                    "unknown: jobs without a time limit, or nodes that take no ranks, are in its way".to_owned();
            }
        }
    }

    fn reason_of(&self, now: Now, need: &Dependency) -> WhyReason {
        let other = self.jobs.current(need.job).and_then(|id| self.jobs.get(id));
        let state = other.map_or("queued", |job| sentences::state(job.state()));
        let until = other.and_then(|job| job.life().deadline());
        let at_most = until.map_or_else(String::new, |until| {
            format!(", {} left of its time limit", sentences::span(until.saturating_sub(now.mono)))
        });
        let text = format!("it waits for {} {}; that job is {state}{at_most}", named(need), wish(need.kind()));
        let number = need.index.map_or_else(|| need.job.to_string(), |index| format!("'{}[{index}]'", need.array));
        let frees = match state {
            "queued" => vec![format!("the end of {}: rsctl why {number}", named(need))],
            _ => vec![format!("the end of {}", named(need))],
        };
        WhyReason { text, frees }
    }

    /// Returns what a submission would wait for, for `rsctl plan`.
    pub(super) fn plan_notices(&self, caller: crate::calls::Caller, spec: &rsd_proto::v1::JobSpec) -> Vec<String> {
        let mut notices = Vec::new();
        match self.resolve_after(caller, &spec.after, spec.after_holds) {
            Ok(needs) if spec.after.is_empty() || !needs.is_empty() => {
                let waits = |need: &Dependency| {
                    let state = self.jobs.current(need.job).and_then(|id| self.jobs.get(id)).map(Job::state);
                    let state = sentences::state(state.unwrap_or(JobState::Queued));
                    format!("the job would wait for {} {}; that job is {state}", named(need), wish(need.kind()))
                };
                notices.extend(needs.iter().take(NEEDS_TOLD).map(waits));
            }
            Ok(_) => notices.push("what the job would wait for has happened already".to_owned()),
            Err(refused) => notices.push(format!("the job would be refused: {}", refused.text)),
        }
        match super::elements::check(spec) {
            Ok(Some(own)) => notices.push(format!(
                "an array of {}: {}; the plan is that of one element",
                own.indexes,
                if own.indexes.len() == 1 { "1 element".to_owned() } else { format!("{} elements", own.indexes.len()) }
            )),
            Ok(None) => {}
            Err(refused) => notices.push(format!("the job would be refused: {}", refused.text)),
        }
        if spec.hold {
            notices.push("the job would be held until rsctl release".to_owned());
        } else if !self.queue.is_free_for(spec.priority) {
            notices.push(format!("jobs of priority {} or more wait already, and come first", spec.priority));
        }
        if let Err(refused) = self.check_priority(caller, spec.priority) {
            notices.push(format!("the job would be refused: {}", refused.text));
        }
        notices
    }
}

fn with_priority(job: &Job) -> String {
    match job.priority {
        0 => job.number().to_string(),
        priority => format!("{} (priority {priority})", job.number()),
    }
}

fn reason<const N: usize>(text: String, frees: [String; N]) -> WhyReason {
    WhyReason { text, frees: frees.into() }
}
