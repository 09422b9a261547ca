//! The members of a communicator: one group, or two that communicate with each other (MPI 5.0 §7.2, §7.6).
//!
//! The messages of an intercommunicator name ranks of the other group, so its first context is open with the remote group's
//! members. Its collectives, and the exchanges that derive other communicators from it, use the *union* of both groups, one
//! group after the other in an order that both sides know: its second context is open with that.

use std::sync::Arc;

use super::group::Group;
use crate::engine::{Engine, Peer, Transport};

/// The result of a creation.
#[derive(Debug)]
pub struct Born {
    /// The first of its two contexts; both are open.
    pub context: u32,
    /// Its group or groups, including this process.
    pub parties: Parties,
}

/// The groups of a communicator, seen from one process.
#[derive(Debug, Clone)]
pub struct Parties {
    /// The group of this process.
    pub group: Arc<Group>,
    /// For an intercommunicator: the other group.
    pub remote: Option<Remote>,
}

/// The other side of an intercommunicator.
#[derive(Debug, Clone)]
pub struct Remote {
    /// Its members; this process is not one of them.
    pub group: Arc<Group>,
    /// The union of both groups.
    union: Arc<[Peer]>,
    /// Whether this process's group comes first in the union.
    pub local_first: bool,
}

impl From<Arc<Group>> for Parties {
    fn from(group: Arc<Group>) -> Self {
        Self { group, remote: None }
    }
}

impl Parties {
    /// Two groups without a common member.
    pub fn both(group: Arc<Group>, remote: Arc<Group>, local_first: bool) -> Self {
        let [one, two] = if local_first { [&group, &remote] } else { [&remote, &group] };
        let union = one.members.iter().chain(two.members.iter()).copied().collect();
        Self { group, remote: Some(Remote { group: remote, union, local_first }) }
    }

    /// This process's rank in its group.
    pub fn rank(&self) -> u32 {
        self.group.rank.unwrap_or(0)
    }

    /// The processes that messages name by rank.
    pub fn named(&self) -> &Arc<[Peer]> {
        self.remote.as_ref().map_or(&self.group.members, |remote| &remote.group.members)
    }

    /// The union, in the same order everywhere.
    pub fn all(&self) -> &Arc<[Peer]> {
        self.remote.as_ref().map_or(&self.group.members, |remote| &remote.union)
    }

    /// This process's place in the union.
    pub fn place(&self) -> u32 {
        match &self.remote {
            Some(remote) if !remote.local_first => remote.group.size() + self.rank(),
            Some(_) | None => self.rank(),
        }
    }

    /// The place in the union of the process that messages name by this rank.
    pub fn place_of_named(&self, rank: u32) -> u32 {
        match &self.remote {
            Some(remote) if remote.local_first => self.group.size() + rank,
            Some(_) | None => rank,
        }
    }

    /// The size of the group that comes first in the union; all members if there is only one group.
    pub fn size_of_first(&self) -> u32 {
        match &self.remote {
            Some(remote) if !remote.local_first => remote.group.size(),
            Some(_) | None => self.group.size(),
        }
    }

    /// Opens the two contexts of a communicator of these members; `context` is the first.
    pub fn open<T: Transport>(&self, engine: &mut Engine<T>, context: u32) {
        engine.open(context, Arc::clone(self.named()));
        engine.open_collective(context + 1, Arc::clone(self.all()));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn group(members: &[u32], me: u32) -> Arc<Group> {
        Arc::new(Group::new(members.iter().copied().map(Peer).collect::<Vec<_>>(), Peer(me)))
    }

    #[test]
    fn both_sides_of_an_intercommunicator_order_the_union_alike() {
        let (one, two) = ([7, 3], [5, 9, 1]);
        for (me, local_first) in [(7, true), (3, true), (5, false), (9, false), (1, false)] {
            let (mine, theirs): (&[u32], &[u32]) = if local_first { (&one, &two) } else { (&two, &one) };
            let parties = Parties::both(group(mine, me), group(theirs, me), local_first);
            assert_eq!(*parties.all().as_ref(), [7, 3, 5, 9, 1].map(Peer));
            assert_eq!(parties.all()[parties.place() as usize], Peer(me));
            assert_eq!(parties.size_of_first(), 2);
            for (rank, peer) in theirs.iter().enumerate() {
                assert_eq!(parties.named()[rank], Peer(*peer));
                assert_eq!(parties.all()[parties.place_of_named(rank as u32) as usize], Peer(*peer));
            }
        }
    }
}
