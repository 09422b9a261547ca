//! Names that ranks publish for each other (MPI 5.0, 11.4.4); their scope is the DVM, and in a
//! DVM that serves all users the user.
//!
//! A name lives until it is unpublished or its job ends. Publishing a name that is taken fails, whichever job has taken it; only a
//! process of the same user may unpublish it.

use std::collections::{BTreeMap, BTreeSet};

use bytes::Bytes;
use rsd_proto::v1 as wire;

use crate::JobId;

/// The most names that a user's jobs may have published, and the most bytes of these and their ports.
const NAMES_MAX: usize = 65_536;
const BYTES_MAX: usize = 16 << 20;

/// The published names of each user; in a DVM that serves one user, they are user 0's.
#[derive(Debug, Default)]
pub(super) struct NamesOfUsers(BTreeMap<u32, Names>);

impl NamesOfUsers {
    /// Returns the names of a user.
    pub(super) fn of(&mut self, user: u32) -> &mut Names {
        self.0.retain(|known, names| *known == user || !names.published.is_empty());
        self.0.entry(user).or_default()
    }

    /// Returns the names of the users that `may_see` accepts.
    pub(super) fn list(&self, may_see: impl Fn(u32) -> bool) -> Vec<wire::PublishedName> {
        self.0.iter().filter(|(user, _)| may_see(**user)).flat_map(|(_, names)| names.list()).collect()
    }

    /// Describes the entries that are still kept, for tests.
    pub(super) fn leftovers(&self) -> impl Iterator<Item = String> {
        self.0.values().flat_map(Names::leftovers)
    }
}

/// All published names of a user.
#[derive(Debug, Default)]
pub(super) struct Names {
    published: BTreeMap<Bytes, Published>,
    of_job: BTreeMap<JobId, BTreeSet<Bytes>>,
    bytes: usize,
}

#[derive(Debug)]
struct Published {
    port: Bytes,
    job: JobId,
    /// None: the user who runs the DVM.
    uid: Option<u32>,
}

impl Names {
    /// Publishes a name. False if it is taken, or if there are too many.
    pub(super) fn publish(&mut self, name: Bytes, port: Bytes, job: JobId, uid: Option<u32>) -> bool {
        let bytes = self.bytes + name.len() + port.len();
        if self.published.len() >= NAMES_MAX || bytes > BYTES_MAX || self.published.contains_key(&name) {
            return false;
        }
        self.bytes = bytes;
        self.of_job.entry(job).or_default().insert(name.clone());
        self.published.insert(name, Published { port, job, uid });
        true
    }

    pub(super) fn lookup(&self, name: &[u8]) -> Option<Bytes> {
        self.published.get(name).map(|published| published.port.clone())
    }

    /// Unpublishes a name; returns the job that had published it. None: it is not published, or was published by another user.
    pub(super) fn unpublish(&mut self, name: &[u8], uid: Option<u32>) -> Option<JobId> {
        let job = self.published.get(name).filter(|published| published.uid == uid)?.job;
        self.remove(name);
        Some(job)
    }

    fn remove(&mut self, name: &[u8]) {
        let Some(Published { port, job, .. }) = self.published.remove(name) else { return };
        self.bytes -= name.len() + port.len();
        if let Some(names) = self.of_job.get_mut(&job) {
            names.remove(name);
            if names.is_empty() {
                self.of_job.remove(&job);
            }
        }
    }

    /// Removes the names of a job that has ended.
    pub(super) fn forget(&mut self, job: JobId) {
        for name in self.of_job.remove(&job).unwrap_or_default() {
            self.remove(&name);
        }
    }

    fn list(&self) -> Vec<wire::PublishedName> {
        let told = |(name, published): (&Bytes, &Published)| wire::PublishedName {
            name: name.clone(),
            port: published.port.clone(),
            job: published.job,
            uid: published.uid,
        };
        self.published.iter().map(told).collect()
    }

    /// Describes the entries that are still kept, for tests.
    fn leftovers(&self) -> impl Iterator<Item = String> {
        self.published.values().map(|published| format!("a name of job {}", published.job))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn publish(names: &mut Names, name: &'static str, job: JobId, uid: Option<u32>) -> bool {
        names.publish(name.into(), "port".into(), job, uid)
    }

    #[test]
    fn a_name_is_taken_until_its_owner_unpublishes_it() {
        let mut names = Names::default();
        assert!(publish(&mut names, "ocean", 1, None));
        assert!(!publish(&mut names, "ocean", 1, None), "the job has already published it");
        assert!(!publish(&mut names, "ocean", 2, Some(7)), "another job has published it");
        assert_eq!(names.lookup(b"ocean"), Some("port".into()));
        assert_eq!(names.unpublish(b"ocean", Some(7)), None, "it belongs to another user");
        assert_eq!(names.unpublish(b"ocean", None), Some(1), "any process of the same user may unpublish it");
        assert_eq!(names.unpublish(b"ocean", None), None);
        assert_eq!(names.lookup(b"ocean"), None);
        assert!(publish(&mut names, "ocean", 2, Some(7)));
        assert_eq!(names.unpublish(b"ocean", Some(7)), Some(2));
        assert_eq!(names.bytes, 0);
    }

    #[test]
    fn the_names_of_a_job_end_with_it() {
        let mut names = Names::default();
        assert!(publish(&mut names, "a", 1, None) && publish(&mut names, "b", 2, None));
        names.forget(1);
        assert_eq!(names.list().iter().map(|name| name.job).collect::<Vec<_>>(), [2]);
        assert_eq!(names.bytes, 5);
        assert_eq!(names.of_job.len(), 1);
    }

    #[test]
    fn names_are_bounded_in_number_and_in_size() {
        let mut names = Names::default();
        let all = (0..NAMES_MAX).filter(|n| names.publish(n.to_string().into(), Bytes::new(), 1, None)).count();
        assert_eq!(all, NAMES_MAX);
        assert!(!publish(&mut names, "one more", 1, None));
        names.forget(1);
        let long = Bytes::from(vec![b'x'; BYTES_MAX / 2]);
        assert!(names.publish("a".into(), long.clone(), 1, None));
        assert!(!names.publish("b".into(), long, 1, None));
    }
}
