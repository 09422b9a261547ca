//! The names of processes, which all processes agree on.

use std::fmt;

/// A process's name: unique among the processes of all jobs as long as the process lives.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct ProcessName {
    /// The job: twelve bytes of a hash of its PMI name, then the number that rsctl shows, big-endian; 0 if rsd has not launched it.
    pub world: [u8; 16],
    /// The rank in its `MPI_COMM_WORLD`.
    pub rank: u32,
}

impl ProcessName {
    /// The name of a rank of the job with this PMI name (kvsname), which process managers never use twice.
    pub fn new(job: &[u8], rank: u32) -> Self {
        // FNV-1a twice, from two initial values: 96 bits avoid collisions; nothing secret depends on it.
        let hash = |start: u64| job.iter().fold(start, |hash, byte| (hash ^ u64::from(*byte)).wrapping_mul(PRIME));
        let mut world = [0; 16];
        world[..8].copy_from_slice(&hash(0xcbf2_9ce4_8422_2325).to_be_bytes());
        world[8..12].copy_from_slice(&hash(0x6c62_272e_07bb_0142).to_be_bytes()[..4]);
        world[12..].copy_from_slice(&number_of(job).unwrap_or(0).to_be_bytes());
        Self { world, rank }
    }
}

const PRIME: u64 = 0x0100_0000_01b3;

/// The job's number in `rsd-DVM-NUMBER`, which is rsd's PMI name for it; `#` and how often the library was opened may follow.
pub fn number_of(job: &[u8]) -> Option<u32> {
    let name = str::from_utf8(job).ok()?.strip_prefix("rsd-")?;
    let (name, _opened) = name.split_once('#').unwrap_or((name, ""));
    name.rsplit_once('-')?.1.parse().ok()
}

impl fmt::Display for ProcessName {
    /// `rank 3 of job 12`; without a number, enough of the hash to tell jobs apart.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let [a, b, c, d, .., e, g, h, i] = self.world;
        match u32::from_be_bytes([e, g, h, i]) {
            0 => write!(f, "rank {} of another launcher's job ({:08x})", self.rank, u32::from_be_bytes([a, b, c, d])),
            job => write!(f, "rank {} of job {job}", self.rank),
        }
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
    }

    #[test]
    fn a_job_is_named_by_the_number_that_rsctl_shows() {
        let shown = |job: &str| ProcessName::new(job.as_bytes(), 1).to_string();
        assert_eq!(shown("rsd-0123456789abcdef-12"), "rank 1 of job 12");
        assert_eq!(shown("rsd-a-b-12#1"), "rank 1 of job 12");
        for other in ["kvs_12_0", "rsd-12", "rsd-d-", "rsd-d-x", "0f1e", ""] {
            assert!(shown(other).starts_with("rank 1 of another launcher's job ("), "{other}: {}", shown(other));
        }
    }
}
