//! The names of processes, which all processes agree on.

use std::fmt;

use hmac_sha256::HMAC;

/// A process's name: unique among the processes of all jobs as long as the process lives.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct ProcessName {
    /// The job: twelve bytes of a hash of its PMI name, then the number that rsctl shows, big-endian; 0 if rsd has not launched it.
    /// The PMI name of a job that rsd has launched contains random digits, so other users cannot guess the hash.
    pub world: [u8; 16],
    /// The rank in its `MPI_COMM_WORLD`.
    pub rank: u32,
}

impl ProcessName {
    /// The name of a rank of the job with this PMI name (kvsname), which process managers never use twice.
    pub fn new(job: &[u8], rank: u32) -> Self {
        let mut world = [0; 16];
        world[..12].copy_from_slice(&HMAC::mac(job, b"rsd-mpi job")[..12]);
        world[12..].copy_from_slice(&number_of(job).unwrap_or(0).to_be_bytes());
        Self { world, rank }
    }

    /// A name for the process's socket, which does not reveal the name of the process: 32 hexadecimal digits. Any user can list the
    /// sockets of a machine; who could compute other names from one of them could bind those before their owners do. `turn`: the
    /// name to use if another process has taken the one before.
    pub fn socket(&self, turn: u8) -> String {
        let mut input = [0; 21];
        input[..16].copy_from_slice(&self.world);
        input[16..20].copy_from_slice(&self.rank.to_be_bytes());
        input[20] = turn;
        HMAC::mac(input, b"rsd-mpi socket")[..16].iter().map(|byte| format!("{byte:02x}")).collect()
    }
}

/// The job's number in `rsd-DVM.RANDOM-NUMBER`, which is rsd's PMI name for it; `#` and how often the library was opened may follow.
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
    fn the_names_of_sockets_have_nothing_in_common() {
        let name = |job: &[u8], rank| ProcessName::new(job, rank);
        let names = [
            name(b"rsd-d.0f-7", 3).socket(0),
            name(b"rsd-d.0f-7", 3).socket(1),
            name(b"rsd-d.0f-7", 4).socket(0),
            name(b"rsd-d.0f-8", 3).socket(0),
        ];
        assert!(names.iter().all(|name| name.len() == 32));
        for (at, one) in names.iter().enumerate() {
            for other in &names[at + 1..] {
                let same = one.bytes().zip(other.bytes()).filter(|(one, other)| one == other).count();
                assert!(same < 12, "{one} {other}");
            }
        }
    }

    #[test]
    fn a_job_is_named_by_the_number_that_rsctl_shows() {
        let shown = |job: &str| ProcessName::new(job.as_bytes(), 1).to_string();
        assert_eq!(shown("rsd-0123456789abcdef-12"), "rank 1 of job 12");
        assert_eq!(shown("rsd-a-b-12#1"), "rank 1 of job 12");
        assert_eq!(shown("rsd-0123456789abcdef.00ff00ff00ff00ff00ff00ff-12#1"), "rank 1 of job 12");
        for other in ["kvs_12_0", "rsd-12", "rsd-d-", "rsd-d-x", "0f1e", ""] {
            assert!(shown(other).starts_with("rank 1 of another launcher's job ("), "{other}: {}", shown(other));
        }
    }
}
