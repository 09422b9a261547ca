//! Whether this process and its peers on the node have fewer cores than they are.
//!
//! The number of cores of the machine does not tell: a launcher, a container or the user may have confined the processes to some of
//! them. So each connected peer's affinity mask counts, which a cpuset narrows as well.

use nix::sched::{CpuSet, sched_getaffinity};
use nix::unistd::{Pid, getsid};

/// This process and the peers that it has been connected with.
#[derive(Debug, Default)]
pub(super) struct Crowd {
    /// The cores that any of them may use.
    cores: Vec<bool>,
    /// Those whose cores are known.
    members: usize,
    /// Two of them must share a core.
    is_crowded: bool,
    /// One of them belongs to another session.
    has_strangers: bool,
}

impl Crowd {
    /// Another process joins: 0 for this one.
    pub(super) fn add(&mut self, pid: i32) {
        // A process of another pid namespace has no number here, and a mask with more than 1,024 cores does not fit: those are not
        // counted, so no process is taken for crowded that may not be.
        let Some(cores) = (pid >= 0).then(|| sched_getaffinity(Pid::from_raw(pid)).ok()).flatten() else { return };
        let session = |pid: i32| getsid(Some(Pid::from_raw(pid))).ok();
        self.has_strangers |= session(pid).is_none_or(|theirs| Some(theirs) != session(0));
        self.count((0..CpuSet::count()).filter(|core| cores.is_set(*core) == Ok(true)));
    }

    fn count(&mut self, cores: impl Iterator<Item = usize>) {
        self.members += 1;
        self.cores.resize(CpuSet::count(), false);
        for core in cores {
            if let Some(place) = self.cores.get_mut(core) {
                *place = true;
            }
        }
        self.is_crowded = self.members > self.cores.iter().filter(|is_used| **is_used).count();
    }

    /// Whether all belong to one session: only then does a yield of one reach the others (`sched_autogroup`).
    pub(super) fn shares_session(&self) -> bool {
        !self.has_strangers
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
            masks.iter().for_each(|mask| crowd.count(mask.iter().copied()));
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
}
