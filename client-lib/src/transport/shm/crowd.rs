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
    /// How many of them may use each core.
    users: Vec<u32>,
    /// How many cores have users.
    cores: usize,
}

#[derive(Debug)]
struct Member {
    pid: i32,
    /// The cores that it may use.
    cores: CpuSet,
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
        self.join(Member { pid, cores, is_stranger });
    }

    fn join(&mut self, member: Member) {
        self.users.resize(CpuSet::count(), 0);
        for core in cores_of(&member.cores) {
            self.users[core] += 1;
            self.cores += usize::from(self.users[core] == 1);
        }
        self.members.push(member);
    }

    /// This process is connected with a peer no longer.
    pub(super) fn remove(&mut self, pid: i32) {
        let Some(at) = self.members.iter().position(|member| member.pid == pid && pid != 0) else { return };
        for core in cores_of(&self.members.swap_remove(at).cores) {
            self.users[core] -= 1;
            self.cores -= usize::from(self.users[core] == 0);
        }
    }

    /// Whether all belong to one session: only then does a yield of one reach the others (`sched_autogroup`).
    pub(super) fn shares_session(&self) -> bool {
        !self.members.iter().any(|member| member.is_stranger)
    }

    /// Whether two of them must share a core.
    pub(super) fn shares_cores(&self) -> bool {
        self.members.len() > self.cores
    }
}

fn cores_of(set: &CpuSet) -> impl Iterator<Item = usize> + '_ {
    (0..CpuSet::count()).filter(|core| set.is_set(*core) == Ok(true))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn processes_share_cores_if_their_masks_together_have_fewer_than_they_are() {
        let crowd = |masks: &[&[usize]]| {
            let mut crowd = Crowd::default();
            for (pid, mask) in (1..).zip(masks) {
                crowd.join(member(pid, mask));
            }
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

    fn member(pid: i32, mask: &[usize]) -> Member {
        let mut cores = CpuSet::new();
        mask.iter().for_each(|core| cores.set(*core).unwrap());
        Member { pid, cores, is_stranger: pid > 100 }
    }

    #[test]
    fn a_process_counts_once_and_only_while_it_is_there() {
        let me = std::process::id() as i32;
        let mut crowd = Crowd::default();
        (0..2_000).for_each(|_| crowd.add(me));
        assert!(!crowd.shares_cores());
        crowd.remove(me);
        assert_eq!((crowd.members.len(), crowd.cores), (0, 0));
        crowd.join(member(0, &[0]));
        crowd.join(member(7, &[0, 1]));
        crowd.join(member(101, &[0, 1]));
        assert!(crowd.shares_cores() && !crowd.shares_session());
        for pid in [101, 8, 0] {
            crowd.remove(pid);
        }
        assert!(!crowd.shares_cores() && crowd.shares_session());
        assert_eq!((crowd.members.len(), crowd.cores), (2, 2));
        crowd.remove(7);
        assert_eq!((crowd.members.len(), crowd.cores), (1, 1));
    }
}
