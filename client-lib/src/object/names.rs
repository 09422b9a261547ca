//! Global names of processes.
//!
//! A [`Peer`] is a number local to this process. To refer to a third process in a message, a process uses the words made here,
//! and the receiver maps them to its own peers: peer numbers never leave the process. A name consists of the job, as a hash of
//! its PMI name, and the rank in it.
//!
//! Processes of this job permanently have their rank as number. Processes of other jobs get higher numbers while the two jobs
//! are connected; afterwards a number may be reused, unless one of the user's groups still contains the process.

use std::collections::HashMap;

use crate::engine::Peer;
use crate::error::{MpiError, MpiResult};
use crate::transport::endpoint::Node;
use crate::transport::name::ProcessName;

/// The names that this process knows.
#[derive(Debug, Clone, Default)]
pub struct Names {
    job: [u8; 16],
    size: u32,
    /// `met[i]` has number `size` + i.
    foreign: Vec<Option<Foreign>>,
    /// The processes that are still connected.
    known: HashMap<ProcessName, Peer>,
}

/// A process of another job.
#[derive(Debug, Clone, Copy)]
struct Foreign {
    name: ProcessName,
    node: Node,
    /// The number of its association, counted from 0 until all are forgotten.
    number: u64,
}

/// The number of words of a name.
pub const WORDS: usize = 3;

impl Names {
    /// The names for a process of the job with this PMI name, which has `size` processes.
    pub fn new(job: &[u8], size: u32) -> Self {
        Self { job: ProcessName::new(job, 0).world, size, ..Self::default() }
    }

    /// The name of a process of this job.
    pub fn of_rank(&self, rank: u32) -> ProcessName {
        ProcessName { world: self.job, rank }
    }

    /// A peer's name.
    pub fn name(&self, peer: Peer) -> ProcessName {
        self.foreign_process(peer).map_or(self.of_rank(peer.0), |process| process.name)
    }

    /// The peer of a name, if there is one.
    pub fn find(&self, name: ProcessName) -> Option<Peer> {
        match name.world == self.job {
            true => (name.rank < self.size).then_some(Peer(name.rank)),
            false => self.known.get(&name).copied(),
        }
    }

    /// Whether a peer belongs to another job.
    #[inline]
    pub fn is_foreign(&self, peer: Peer) -> bool {
        peer.0 >= self.size
    }

    /// Whether there are peers of other jobs, or numbers of such that are not free yet.
    #[inline]
    pub fn has_foreign(&self) -> bool {
        !self.foreign.is_empty()
    }

    /// Whether there are peers of other jobs now, or former ones that are not forgotten yet.
    pub fn knows_foreign(&self) -> bool {
        self.foreign.iter().any(Option::is_some)
    }

    /// The number of this process's current association with another, if there is one; otherwise of the one that would begin.
    pub fn association(&self, name: ProcessName, is_known: impl Fn(Peer) -> bool) -> u64 {
        match self.find(name) {
            Some(peer) if is_known(peer) => self.number(peer),
            Some(_) | None => {
                let met = self.foreign.iter().flatten().filter(|process| process.name == name);
                met.map(|process| process.number.saturating_add(1)).max().unwrap_or(0)
            }
        }
    }

    /// The number of the association that a peer stands for.
    pub fn number(&self, peer: Peer) -> u64 {
        self.foreign_process(peer).map_or(0, |process| process.number)
    }

    /// The node of a peer of another job.
    pub fn node(&self, peer: Peer) -> Option<Node> {
        self.foreign_process(peer).map(|process| process.node)
    }

    fn foreign_process(&self, peer: Peer) -> Option<&Foreign> {
        self.foreign.get(peer.0.checked_sub(self.size)? as usize)?.as_ref()
    }

    /// Creates a peer for a process of another job, in the association of this number: the lowest number that is free and that no group contains.
    pub fn add_foreign(
        &mut self,
        name: ProcessName,
        node: Node,
        number: u64,
        is_spoken_of: impl Fn(Peer) -> bool,
    ) -> Peer {
        let nth = |at: usize| Peer(self.size + at as u32);
        let free = self.foreign.iter().enumerate().position(|(at, it)| it.is_none() && !is_spoken_of(nth(at)));
        let at = free.unwrap_or(self.foreign.len());
        let peer = nth(at);
        if at == self.foreign.len() {
            self.foreign.push(None);
        }
        self.foreign[at] = Some(Foreign { name, node, number });
        self.known.insert(name, peer);
        peer
    }

    /// Disconnects a peer: a process that has its name from now on is another peer.
    pub fn disconnect(&mut self, peer: Peer) {
        let name = self.name(peer);
        if self.known.get(&name) == Some(&peer) {
            self.known.remove(&name);
        }
    }

    /// Frees the number.
    pub fn forget(&mut self, peer: Peer) {
        self.disconnect(peer);
        if let Some(at) = peer.0.checked_sub(self.size)
            && let Some(process) = self.foreign.get_mut(at as usize)
        {
            *process = None;
        }
    }

    /// Encodes the names of these peers, one after the other.
    pub fn to_words(&self, peers: &[Peer]) -> Vec<u64> {
        peers.iter().flat_map(|peer| words_of(self.name(*peer))).collect()
    }

    /// Decodes the peers of these names; fails if this process does not know one of them.
    pub fn peers_of(&self, names: &[u64]) -> MpiResult<Vec<Peer>> {
        let known = |name: &[u64]| name_of(name).and_then(|name| self.find(name)).ok_or_else(unknown);
        names.chunks(WORDS).map(known).collect()
    }
}

#[cold]
fn unknown() -> MpiError {
    MpiError::other(
        "another process speaks of one that this one does not know: processes of different jobs come to know each other by \
         MPI_Comm_accept and MPI_Comm_connect, MPI_Comm_join, MPI_Comm_spawn or MPI_Intercomm_create",
    )
}

fn words_of(name: ProcessName) -> [u64; WORDS] {
    let world = u128::from_be_bytes(name.world);
    [(world >> 64) as u64, world as u64, u64::from(name.rank)]
}

fn name_of(words: &[u64]) -> Option<ProcessName> {
    let &[high, low, rank] = words else { return None };
    let world = (u128::from(high) << 64 | u128::from(low)).to_be_bytes();
    Some(ProcessName { world, rank: u32::try_from(rank).ok()? })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_decode_to_peers_only_within_the_job() {
        let (one, other) = (Names::new(b"kvs_1", 4), Names::new(b"kvs_2", 4));
        let peers = [3, 0, 2].map(Peer);
        let encoded = one.to_words(&peers);
        assert_eq!(encoded.len(), 3 * WORDS);
        assert_eq!(one.peers_of(&encoded).unwrap(), peers);
        assert!(other.peers_of(&encoded).is_err());
        assert!(Names::new(b"kvs_1", 3).peers_of(&encoded).is_err());
        assert!(one.peers_of(&encoded[..4]).is_err());
    }

    #[test]
    fn foreign_processes_get_numbers_above_the_jobs_as_long_as_they_are_known() {
        let in_no_group = |_: Peer| false;
        let (mut here, there) = (Names::new(b"kvs_1", 4), Names::new(b"kvs_2", 2));
        let encoded = there.to_words(&[Peer(1), Peer(0)]);
        let met = [1, 0].map(|rank| here.add_foreign(there.of_rank(rank), Node::default(), 0, in_no_group));
        assert_eq!(met, [Peer(4), Peer(5)]);
        assert_eq!(here.peers_of(&encoded).unwrap(), met);
        assert_eq!(here.to_words(&met), encoded);
        assert!(here.is_foreign(Peer(4)) && !here.is_foreign(Peer(3)));
        // Taken leave of, the same process comes again as another peer; the number is not free yet.
        here.disconnect(Peer(4));
        assert!(here.peers_of(&encoded).is_err());
        assert_eq!(here.add_foreign(there.of_rank(1), Node::default(), 0, in_no_group), Peer(6));
        here.forget(Peer(4));
        assert_eq!(here.find(there.of_rank(1)), Some(Peer(6)));
        assert_eq!(
            here.add_foreign(ProcessName::new(b"kvs_3", 0), Node::default(), 0, |peer| peer == Peer(4)),
            Peer(7)
        );
        assert_eq!(here.add_foreign(ProcessName::new(b"kvs_4", 0), Node::default(), 0, in_no_group), Peer(4));
    }

    #[test]
    fn associations_with_a_process_are_counted_until_the_last_is_forgotten() {
        let in_no_group = |_: Peer| false;
        let (mut here, there) = (Names::new(b"kvs_1", 4), Names::new(b"kvs_2", 2).of_rank(1));
        let other = ProcessName::new(b"kvs_3", 1);
        assert!(!here.knows_foreign());
        assert_eq!(here.association(there, |_| true), 0);
        let first = here.add_foreign(there, Node::default(), 3, in_no_group);
        assert!(here.knows_foreign());
        assert_eq!((here.number(first), here.association(there, |_| true)), (3, 3));
        // One side has disconnected.
        assert_eq!(here.association(there, |_| false), 4);
        here.disconnect(first);
        assert_eq!((here.association(there, |_| true), here.association(other, |_| true)), (4, 0));
        let second = here.add_foreign(there, Node::default(), 4, in_no_group);
        assert_eq!(here.association(there, |peer| peer == second), 4);
        here.forget(first);
        assert_eq!(here.association(there, |_| false), 5);
        here.forget(second);
        assert_eq!(here.association(there, |_| true), 0);
        assert!(!here.knows_foreign());
        assert_eq!(here.association(here.of_rank(2), |_| true), 0);
    }
}
