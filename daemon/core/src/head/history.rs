//! How long ended jobs are remembered, with their output: by number, by age and by size, for each user.

use std::time::Duration;

use rsd_proto::v1::kept;

use super::Head;
use super::jobs::Jobs;
use crate::between::{Order, Outputs};
use crate::contract::Effect;
use crate::{JobId, Now, Tuning};

/// The least time for which a job is remembered, so that clients learn how it has ended.
const AGE_MIN: Duration = Duration::from_secs(60);

impl Head {
    /// Forgets the ended jobs of a user that are too many, too old or too large. To be called when one of the user's jobs has ended, and
    /// for each user after a restart.
    pub(super) fn forget_old(&mut self, now: Now, uid: u32, out: &mut Outputs<Order>) {
        while let Some(old) = self.jobs.beyond_bounds(now.unix_ms, uid, &self.tuning) {
            self.end_is_written(old, out);
            self.jobs.forget_oldest(uid);
            self.keep(kept::What::JobGone(crate::attempts::number(old)));
            out.push(Effect::DropLog(crate::attempts::number(old)));
        }
        let next = self.jobs.oldest_ended(uid).map(|job| job.ended_at().saturating_add(age_ms(&self.tuning)));
        let next = next.map(|at| now.mono + Duration::from_millis(at.saturating_sub(now.unix_ms).max(1)));
        self.ages.put(uid, next);
    }

    /// Forgets the jobs that have become too old since the last input.
    pub(super) fn settle_history(&mut self, now: Now, out: &mut Outputs<Order>) {
        while let Some(uid) = self.ages.pop_due(now.mono) {
            self.forget_old(now, uid, out);
        }
    }
}

fn age_ms(tuning: &Tuning) -> u64 {
    u64::try_from(tuning.jobs_kept_for.max(AGE_MIN).as_millis()).unwrap_or(u64::MAX)
}

impl Jobs {
    /// Returns the job of a user that ended first, if the user's ended jobs are beyond the bounds. The job that ended last is never too
    /// large.
    fn beyond_bounds(&self, now_ms: u64, uid: u32, tuning: &Tuning) -> Option<JobId> {
        let oldest = self.oldest_ended(uid)?;
        let is_old = oldest.ended_at().saturating_add(age_ms(tuning)) <= now_ms;
        let (count, bytes) = self.ended_of(uid);
        let fits = !is_old && count <= tuning.jobs_kept && (count == 1 || bytes <= tuning.jobs_kept_bytes);
        (!fits).then_some(oldest.id)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::head::job::Job;
    use crate::head::life::{Event, Pending};
    use crate::plan;
    use rsd_proto::v1::JobSpec;

    /// A user's jobs with these numbers of bytes of output, which ended at 1, 2, 3, … s.
    fn jobs(bytes: &[u64]) -> Jobs {
        let mut jobs = Jobs::default();
        for (id, bytes) in (1_u64..).zip(bytes) {
            let spec = JobSpec { apps: vec![Default::default()], ..Default::default() };
            let wanted = plan::request(&spec).unwrap();
            let (secret, preput, reason) = Default::default();
            let pending = Pending { spec, wanted, secret, preput, reason };
            let now = Now { mono: Duration::ZERO, unix_ms: id * 1000 };
            let mut job = Job::new(now, id, None, pending, String::new(), 0);
            job.apply(Event::Unplaceable);
            job.used.output_bytes = *bytes;
            job.finish(now);
            jobs.insert(job);
            jobs.retire(id);
        }
        jobs
    }

    fn forgotten(bytes: &[u64], now_s: u64, tuning: Tuning) -> Vec<JobId> {
        let mut jobs = jobs(bytes);
        std::iter::from_fn(|| {
            let old = jobs.beyond_bounds(now_s * 1000, 0, &tuning)?;
            assert_eq!(jobs.forget_oldest(0), Some(old));
            Some(old)
        })
        .collect()
    }

    #[test]
    fn the_oldest_jobs_are_forgotten_first_by_each_bound() {
        let all = Tuning { jobs_kept: 1000, jobs_kept_bytes: u64::MAX, ..Tuning::default() };
        assert_eq!(forgotten(&[5, 5, 5], 4, all), [] as [JobId; 0]);
        assert_eq!(forgotten(&[5, 5, 5], 4, Tuning { jobs_kept: 2, ..all }), [1]);
        assert_eq!(forgotten(&[5, 5, 5], 4, Tuning { jobs_kept_bytes: 10, ..all }), [1]);
        assert_eq!(forgotten(&[5, 5, 11], 4, Tuning { jobs_kept_bytes: 10, ..all }), [1, 2], "the last one stays");
        let hour = Duration::from_secs(3600);
        assert_eq!(forgotten(&[5, 5, 5], 3602, Tuning { jobs_kept_for: hour, ..all }), [1, 2]);
        assert_eq!(forgotten(&[5], 60, Tuning { jobs_kept_for: Duration::ZERO, ..all }), [] as [JobId; 0]);
        assert_eq!(forgotten(&[5], 61, Tuning { jobs_kept_for: Duration::ZERO, ..all }), [1]);
    }

    #[test]
    fn a_clock_that_is_set_back_forgets_nothing() {
        let all = Tuning { jobs_kept_for: Duration::from_secs(3600), ..Tuning::default() };
        assert_eq!(forgotten(&[5, 5], 0, all), [] as [JobId; 0]);
    }
}
