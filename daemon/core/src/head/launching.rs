//! From a submission to its launch: a job is placed at once or queued. [`super::scheduling`] starts queued jobs.

use bytes::Bytes;
use prost::Message;
use rsd_proto::frameworks;
use rsd_proto::v1::{JobSpec, Soft, User, down, job_event};

use super::job::{Job, Surroundings};
use super::life::{Life, Pending};
use super::queue::waiting;
use super::{Due, Head, after, called, elements, holding, offers, stdin};
use crate::between::{Order, Outputs};
use crate::calls::{Answer, Caller, Refused, exit};
use crate::contract::{Effect, NAME_BYTES, ReqId, in_ms, namespace};
use crate::place::{self, Placement, Refusal};
use crate::{JobId, Now, plan, sentences};

/// The most bytes of a submission's token.
const TOKEN_BYTES_MAX: usize = 64;
/// The fewest bytes of a secret.
const SECRET_BYTES_MIN: usize = 24;

impl Head {
    pub(super) fn submit(
        &mut self,
        now: Now,
        req: ReqId,
        (caller, user): (Caller, String),
        mut spec: JobSpec,
        random: Bytes,
        out: &mut Outputs<Order>,
    ) -> Result<(), Refused> {
        let uid = caller.uid;
        if self.is_stopping() {
            return Err(Refused::new(exit::NOT_PLACED, "the DVM is being stopped"));
        }
        if spec.token.len() > TOKEN_BYTES_MAX {
            let text = format!("the token of a submission has at most {TOKEN_BYTES_MAX} bytes");
            return Err(Refused::new(exit::USAGE, text));
        }
        if let Some(job) = self.jobs.of_token(self.realm(uid), &spec.token).filter(|_| !spec.token.is_empty()) {
            // The answer was lost, and the client asks again.
            self.timers.cancel(&Due::Owner(job));
            out.answer(req, Answer::Submitted(crate::attempts::number(job)));
            return Ok(());
        }
        if spec.apps.is_empty() || spec.apps.iter().any(|app| app.argv.is_empty()) {
            return Err(Refused::new(exit::USAGE, "no program given: rsctl submit -n 4 ./a.out"));
        }
        called::check(&spec)?;
        super::retry::check(&spec)?;
        super::resources::check(&spec)?;
        let elements = elements::check(&spec)?.map_or(0, |array| array.indexes.len());
        self.check_priority(caller, spec.priority)?;
        self.check_jobs(uid, spec.encoded_len() as u64)?;
        frameworks::parse(&spec.export).map_err(|error| Refused::new(exit::USAGE, format!("export: {error}")))?;
        spec.after = self.resolve_after(caller, &spec.after, spec.after_holds)?;
        (spec.element, spec.attempt) = (None, 0);
        if spec.retries > 0 {
            elements::set_variable(&mut spec, "RSD_ATTEMPT", "1".to_owned());
        }
        let never = |refusal: Refusal| Refused::new(exit::NOT_PLACED, refusal.to_string());
        let mut wanted = plan::request(&spec).map_err(never)?;
        let may_pass = spec.oversubscribe;
        let may_start = !spec.hold && spec.after.is_empty() && elements == 0;
        let may_start = may_start && (may_pass || self.queue.is_free_for(spec.priority));
        let mut offered = offers::place(&self.nodes, &self.ledger, &wanted);
        let mut fewer = None;
        if offered.is_err()
            && let Some((placement, request)) = self.fit_softly(&mut spec)
        {
            fewer = Some(sentences::fewer_ranks(placement.map.size()));
            (offered, wanted) = (Ok(placement), request);
        }
        let waits_by_itself = match spec.after.first() {
            _ if spec.hold => Some(holding::HELD.to_owned()),
            Some(first) => Some(after::waits_for(first, spec.after.len())),
            None => None,
        };
        let (placement, reason) = match offered {
            Ok(placement) if may_start => (Some(placement), String::new()),
            Ok(_) if elements > 0 => {
                (None, waits_by_itself.unwrap_or_else(|| "its elements are about to start".to_owned()))
            }
            Ok(_) => (None, waits_by_itself.unwrap_or_else(|| "earlier jobs are waiting".to_owned())),
            Err(refusal) if refusal.fits_when_idle() && waits_by_itself.is_some() => {
                (None, waits_by_itself.unwrap_or_default())
            }
            Err(refusal) if refusal.fits_when_idle() => (None, waiting(&refusal)),
            Err(_) if !self.returning.is_empty() => (None, self.awaits_nodes()),
            Err(refusal) => return Err(never(refusal)),
        };
        if let Some(missing) = placement.as_ref().and_then(|placement| stdin::reader_missing(&spec, &placement.map)) {
            return Err(Refused::new(exit::USAGE, missing));
        }
        let (name, secret) = name_and_secret(random);
        let pending = Pending { spec, wanted, secret, preput: Vec::new(), reason: reason.clone() };
        let id = self.reserve_jobs(1 + u64::from(elements), out);
        let job = self.new_job(now, id, self.owner(uid, user), pending, &name);
        out.log(now, id, job.submitted());
        self.jobs.insert(job);
        fewer.into_iter().for_each(|text| out.log(now, id, job_event::Body::Notice(text)));
        match placement {
            Some(placement) => self.start_job(now, id, placement, out),
            None => {
                self.begin_waiting(now, id);
                self.keep_job(id);
                out.log(now, id, job_event::Body::Queued(job_event::Queued { reason }));
            }
        }
        out.answer(req, Answer::Submitted(id));
        Ok(())
    }

    /// Places the largest acceptable numbers of ranks that fit now, if the job accepts fewer than it requests; then sets them in `spec`.
    fn fit_softly(&self, spec: &mut JobSpec) -> Option<(Placement, place::Request)> {
        if spec.apps.iter().all(|app| app.soft.is_none()) {
            return None;
        }
        let mut fewer = spec.clone();
        let soft: Vec<Soft> = fewer.apps.iter_mut().map(|app| app.soft.take().unwrap_or_default()).collect();
        let fitted = self.fit(&mut fewer, &soft).ok()?;
        *spec = fewer;
        Some(fitted)
    }

    /// Returns a new job number; numbers are never reused.
    pub(super) fn next_job(&mut self, out: &mut Outputs<Order>) -> JobId {
        self.reserve_jobs(1, out)
    }

    /// Returns the first of so many new job numbers.
    fn reserve_jobs(&mut self, count: u64, out: &mut Outputs<Order>) -> JobId {
        let id = self.memory.next_job;
        self.memory.next_job += count;
        out.push(Effect::Remember(self.memory));
        id
    }

    /// Returns a queued job with this number. `name`: the random part of its namespace.
    pub(super) fn new_job(&self, now: Now, id: JobId, owner: Option<User>, pending: Pending, name: &[u8]) -> Job {
        Job::new(now, id, owner, pending, namespace(&self.dvm, name, id), in_ms(self.tuning.kill_grace))
    }

    pub(super) fn start_job(&mut self, now: Now, id: JobId, placement: Placement, out: &mut Outputs<Order>) {
        let around = Surroundings {
            node_names: placement.map.nodes().iter().map(|node| self.nodes.name(*node)).collect(),
            universe_size: self.nodes.slots().max(placement.map.size()),
            node_addresses: self.nodes.addresses(placement.map.nodes()),
            dial_out: self.nodes.dial_out(placement.map.nodes()),
            crowded: self.nodes.are_crowded(&placement.map.counts()),
        };
        let reach = self.nodes.reach_notice(placement.map.nodes());
        let Some(job) = self.jobs.get_mut(id) else { return };
        let readers = match job.life() {
            Life::Queued(pending) => stdin::reading_nodes(&pending.spec, &placement.map),
            Life::Running { .. } | Life::Ending { .. } | Life::Outlived { .. } | Life::Ended(_) => Vec::new(),
        };
        let needs = match job.life() {
            Life::Queued(pending) => pending.wanted.needs.clone(),
            Life::Running { .. } | Life::Ending { .. } | Life::Outlived { .. } | Life::Ended(_) => Vec::new(),
        };
        self.ledger.hold(id, &placement, &needs);
        let notices = placement.notices.clone();
        let Some((launch, placed)) = job.start(now, placement, around) else { return self.ledger.free(id) };
        job.stdin.set_readers(readers);
        self.keep_job(id);
        self.has_started(id);
        self.note_start(id);
        out.log(now, id, placed);
        notices.into_iter().chain(reach).for_each(|text| out.log(now, id, job_event::Body::Notice(text)));
        out.order(down::Body::Launch(launch));
    }

    /// Records that a job runs: it is indexed by its nodes, and its time limit begins.
    pub(super) fn has_started(&mut self, id: JobId) {
        self.jobs.launched(id);
        let deadline = self.jobs.get(id).and_then(|job| job.life().deadline());
        self.timers.put(Due::Job(id), deadline);
    }
}

/// Divides a new job's random bytes: for its namespace, and for its ranks. Steps of an earlier version send too few.
pub(super) fn name_and_secret(mut random: Bytes) -> (Bytes, Bytes) {
    match random.len() > NAME_BYTES + SECRET_BYTES_MIN {
        true => (random.split_to(NAME_BYTES), random),
        false => (Bytes::new(), random),
    }
}
