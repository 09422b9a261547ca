//! The names of processes, which all processes agree on.

use std::fmt;

/// A process's name: unique among the processes of all jobs as long as the process lives.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct ProcessName {
    /// The job: a hash of its PMI name.
    pub world: [u8; 16],
    /// The rank in its `MPI_COMM_WORLD`.
    pub rank: u32,
}

impl ProcessName {
    /// The name of a rank of the job with this PMI name (kvsname), which process managers never use twice.
    pub fn new(job: &[u8], rank: u32) -> Self {
        // FNV-1a twice, from two initial values: 128 bits avoid collisions; nothing secret depends on it.
        let hash = |start: u64| job.iter().fold(start, |hash, byte| (hash ^ u64::from(*byte)).wrapping_mul(PRIME));
        let mut world = [0; 16];
        world[..8].copy_from_slice(&hash(0xcbf2_9ce4_8422_2325).to_be_bytes());
        world[8..].copy_from_slice(&hash(0x6c62_272e_07bb_0142).to_be_bytes());
        Self { world, rank }
    }
}

const PRIME: u64 = 0x0100_0000_01b3;

impl fmt::Display for ProcessName {
    /// `rank 3 of job 1f00…`: enough of the hash to distinguish jobs.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "rank {} of job ", self.rank)?;
        self.world[..4].iter().try_for_each(|byte| write!(f, "{byte:02x}"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_differ_by_job_and_rank() {
        let name = ProcessName::new(b"kvs_1_0", 3);
        assert_eq!(name, ProcessName::new(b"kvs_1_0", 3));
        assert_ne!(name, ProcessName::new(b"kvs_1_0", 4));
        assert_ne!(name.world, ProcessName::new(b"kvs_1_1", 3).world);
        assert_ne!(name.world[..8], name.world[8..]);
        assert!(name.to_string().starts_with("rank 3 of job "));
    }
}
