//! Processes by names that mean the same to others.
//!
//! A [`Peer`] is a number of this process's own. What one process tells another about a third, it tells in words made here,
//! and what it is told it takes for a peer here: nowhere else does a peer's number leave the process. A name is the job, by
//! a hash of its PMI name, and the rank in it.

use crate::engine::Peer;
use crate::error::{MpiError, MpiResult};
use crate::transport::name::ProcessName;

/// How this process names others.
#[derive(Debug, Clone, Copy, Default)]
pub struct Names {
    job: [u64; 2],
    size: u32,
}

/// How many words a name has.
pub const WORDS: usize = 3;

impl Names {
    /// For a process of the job with this PMI name, which has `size` processes.
    pub fn new(job: &[u8], size: u32) -> Self {
        let hash = u128::from_be_bytes(ProcessName::new(job, 0).world);
        Self { job: [(hash >> 64) as u64, hash as u64], size }
    }

    /// The names of these peers, one after the other.
    pub fn tell(&self, peers: &[Peer]) -> Vec<u64> {
        peers.iter().flat_map(|peer| [self.job[0], self.job[1], u64::from(peer.0)]).collect()
    }

    /// The peers of these names; an error if one is of no process that this one can know.
    pub fn understand(&self, names: &[u64]) -> MpiResult<Vec<Peer>> {
        let known = |name: &[u64]| match *name {
            [high, low, rank] if [high, low] == self.job && rank < u64::from(self.size) => Ok(Peer(rank as u32)),
            _ => Err(MpiError::other("another process speaks of one that does not belong to this job")),
        };
        names.chunks(WORDS).map(known).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_come_back_as_peers_within_the_job_only() {
        let (one, other) = (Names::new(b"kvs_1", 4), Names::new(b"kvs_2", 4));
        let peers = [3, 0, 2].map(Peer);
        let told = one.tell(&peers);
        assert_eq!(told.len(), 3 * WORDS);
        assert_eq!(one.understand(&told).unwrap(), peers);
        assert!(other.understand(&told).is_err());
        assert!(Names::new(b"kvs_1", 3).understand(&told).is_err());
        assert!(one.understand(&told[..4]).is_err());
    }
}
