//! Whose a job is. In a DVM that serves all users, each has its own jobs, groups, names and values, and no user learns whether
//! another's exist. What belongs together is a *realm*: there a user; in a DVM that serves one user, everything.

use rsd_proto::v1::User;

use super::Head;
use super::job::Job;
use crate::JobId;
use crate::calls::{Caller, Refused, exit};

/// The superuser, who has no limits.
const ROOT: u32 = 0;

impl Head {
    /// Returns the realm of a user's groups and names.
    pub(super) fn realm(&self, uid: u32) -> u32 {
        if self.serves_all { uid } else { 0 }
    }

    /// Returns the user as whom a caller's job runs; None in a DVM that serves one user.
    pub(super) fn owner(&self, uid: u32, name: String) -> Option<User> {
        self.serves_all.then_some(User { uid, name })
    }

    /// Returns the uid of a job's owner; 0 for an unknown job, and in a DVM that serves one user.
    pub(super) fn owner_uid(&self, job: JobId) -> u32 {
        self.jobs.get(job).map_or(0, Job::owner_uid)
    }

    pub(super) fn realm_of_job(&self, job: JobId) -> u32 {
        self.realm(self.owner_uid(job))
    }

    /// Returns the job that a caller means, if the caller may see it; 0 is the caller's last job.
    pub(super) fn find(&self, caller: Caller, job: JobId) -> Option<JobId> {
        match job {
            0 => self.jobs.current(self.jobs.last_of(self.realm(caller.uid))?),
            number => self.jobs.current(number).filter(|id| self.may_see(caller, *id)),
        }
    }

    /// Returns whether a caller may see a job.
    pub(super) fn may_see(&self, caller: Caller, job: JobId) -> bool {
        !self.serves_all || caller.may_use(self.owner_uid(job))
    }

    /// Refuses one more job, with a specification of so many bytes, of a user who has as much as the DVM allows.
    pub(super) fn check_jobs(&self, uid: u32, bytes: u64) -> Result<(), Refused> {
        let (has, held) = self.jobs.alive_of(self.realm(uid));
        let (most, most_bytes) = (self.tuning.user_jobs, self.tuning.user_submissions);
        if !self.serves_all || uid == ROOT {
            return Ok(());
        }
        let text = if has >= most {
            format!(
                "you have {has} jobs queued or running, and this DVM allows a user {most} (setting users.jobs): wait until some \
                 have ended, or cancel some"
            )
        } else if held.saturating_add(bytes) > most_bytes {
            format!(
                "the programs, arguments, environments and host lists of your queued and running jobs have {held} bytes, those of \
                 this one {bytes}, and this DVM allows a user {most_bytes} (setting users.submissions): wait until some jobs have \
                 ended, cancel some, or pass less of the environment"
            )
        } else {
            return Ok(());
        };
        Err(Refused::new(exit::NOT_PLACED, text))
    }
}
