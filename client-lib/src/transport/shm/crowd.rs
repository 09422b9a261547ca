//! Whether this process and its peers on the node have fewer cores than they are.
//!
//! The number of cores of the machine does not tell: a launcher, a container or the user may have confined the processes to some of
//! them. So each connected peer's affinity mask counts, which a cpuset narrows as well.

use nix::sched::{CpuSet, sched_getaffinity};
use nix::unistd::{Pid, getsid};

/// This process and the peers that it is connected with.
#[derive(Debug, Default)]
pub(super) struct Crowd {
    /// Those whose cores are known.
    members: Vec<Member>,
    /// Two of them must share a core.
    is_crowded: bool,
}

#[derive(Debug)]
struct Member {
    pid: i32,
    /// The cores that it may use.
    cores: Vec<usize>,
    /// It belongs to another session.
    is_stranger: bool,
}

impl Crowd {
    /// Another process joins: 0 for this one. It counts once, however often it joins.
    pub(super) fn add(&mut self, pid: i32) {
        if self.members.iter().any(|member| member.pid == pid) {
            return;
        }
        // A process of another pid namespace has no number here, and a mask with more than 1,024 cores does not fit: those are not
        // counted, so no process is taken for crowded that may not be.
        let Some(cores) = (pid >= 0).then(|| sched_getaffinity(Pid::from_raw(pid)).ok()).flatten() else { return };
        let session = |pid: i32| getsid(Some(Pid::from_raw(pid))).ok();
        let is_stranger = session(pid).is_none_or(|theirs| Some(theirs) != session(0));
        let cores = (0..CpuSet::count()).filter(|core| cores.is_set(*core) == Ok(true)).collect();
        self.members.push(Member { pid, cores, is_stranger });
        self.review();
    }

    /// This process is connected with a peer no longer.
    pub(super) fn remove(&mut self, pid: i32) {
        self.members.retain(|member| member.pid != pid || pid == 0);
        self.review();
    }

    fn review(&mut self) {
        let mut is_used = vec![false; CpuSet::count()];
        self.members.iter().flat_map(|member| &member.cores).for_each(|core| is_used[*core] = true);
        self.is_crowded = self.members.len() > is_used.iter().filter(|is_used| **is_used).count();
    }

    /// Whether all belong to one session: only then does a yield of one reach the others (`sched_autogroup`).
    pub(super) fn shares_session(&self) -> bool {
        !self.members.iter().any(|member| member.is_stranger)
    }

    /// Whether two of them must share a core.
    pub(super) fn shares_cores(&self) -> bool {
        self.is_crowded
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn processes_share_cores_if_their_masks_together_have_fewer_than_they_are() {
        let crowd = |masks: &[&[usize]]| {
            let mut crowd = Crowd::default();
            for (pid, mask) in (1..).zip(masks) {
                crowd.members.push(Member { pid, cores: mask.to_vec(), is_stranger: false });
            }
            crowd.review();
            crowd.shares_cores()
        };
        assert!(!crowd(&[&[0]]));
        assert!(crowd(&[&[0], &[0]]));
        assert!(!crowd(&[&[0], &[1]]));
        assert!(crowd(&[&[0, 1], &[0, 1], &[1]]));
        let mut own = Crowd::default();
        own.add(0);
        assert!(!own.shares_cores() && own.shares_session());
        own.add(-1);
        assert!(!own.shares_cores(), "an unknown process does not count");
    }

    #[test]
    fn a_process_counts_once_and_only_while_it_is_there() {
        let other = std::os::unix::process::parent_id() as i32;
        let mut crowd = Crowd::default();
        crowd.add(0);
        (0..2_000).for_each(|_| crowd.add(other));
        assert_eq!(crowd.members.len(), 2);
        crowd.remove(other);
        crowd.remove(0);
        assert_eq!(crowd.members.len(), 1);
        assert!(!crowd.shares_cores() && crowd.shares_session());
    }
}
