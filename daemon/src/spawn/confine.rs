//! Sets the cpus and the memory policy of a thread; a process that it starts inherits both.
//!
//! `posix_spawn` has no attribute for either, so the thread that starts a rank adopts the rank's cpus and memory policy, and
//! restores its own afterwards. Both belong to the thread alone (sched_setaffinity(2), set_mempolicy(2)).

use nix::errno::Errno;

/// A set of cpus as the kernel takes it: bit n of the mask is cpu n.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct CpuMask(Vec<libc::c_ulong>);

/// More cpus than any kernel is built for.
const CPUS_MAX: usize = 1 << 16;
/// The most NUMA nodes that a kernel is built for.
const NUMA_NODES_MAX: usize = 1 << 10;

impl CpuMask {
    pub(crate) fn of(cpus: &[u32]) -> CpuMask {
        CpuMask(bits(cpus))
    }

    /// Returns the cpus of the calling thread.
    pub(crate) fn current() -> Result<CpuMask, Errno> {
        let mut words = vec![0; 1024 / WORD_BITS];
        loop {
            let bytes = size_of_val(&words[..]);
            // SAFETY: the mask is a local of the size that is passed.
            let got = Errno::result(unsafe { libc::sched_getaffinity(0, bytes, words.as_mut_ptr().cast()) });
            match got {
                Ok(_) => return Ok(CpuMask(words)),
                // The kernel has more cpus than the mask.
                Err(Errno::EINVAL) if words.len() * WORD_BITS < CPUS_MAX => words.resize(words.len() * 2, 0),
                Err(errno) => return Err(errno),
            }
        }
    }

    /// Binds the calling thread to these cpus, as far as its cpuset allows.
    fn set(&self) -> Result<(), Errno> {
        let bytes = size_of_val(&self.0[..]);
        // SAFETY: the mask lives until the call ends and has the size that is passed.
        Errno::result(unsafe { libc::sched_setaffinity(0, bytes, self.0.as_ptr().cast()) }).map(drop)
    }

    pub(crate) fn cpus(&self) -> Vec<u32> {
        let bit = |at: &usize| self.0[at / WORD_BITS] >> (at % WORD_BITS) & 1 == 1;
        (0..self.0.len() * WORD_BITS).filter(bit).map(|at| at as u32).collect()
    }
}

const WORD_BITS: usize = libc::c_ulong::BITS as usize;

fn bits(numbers: &[u32]) -> Vec<libc::c_ulong> {
    let most = numbers.iter().max().map_or(0, |most| *most as usize);
    let mut words = vec![0; most / WORD_BITS + 1];
    numbers.iter().for_each(|number| words[*number as usize / WORD_BITS] |= 1 << (*number as usize % WORD_BITS));
    words
}

/// A thread's memory policy: a mode and its NUMA nodes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct MemoryPolicy {
    mode: libc::c_int,
    nodes: Vec<libc::c_ulong>,
}

/// Prefers several nodes: kernels since 5.15; earlier kernels prefer one.
const MPOL_PREFERRED_MANY: libc::c_int = 5;

impl MemoryPolicy {
    /// Binds memory to these nodes only.
    pub(crate) fn only(nodes: &[u32]) -> MemoryPolicy {
        MemoryPolicy { mode: libc::MPOL_BIND, nodes: bits(nodes) }
    }

    /// Binds memory to these nodes if possible.
    pub(crate) fn first(nodes: &[u32]) -> MemoryPolicy {
        let mode = if nodes.len() > 1 { MPOL_PREFERRED_MANY } else { libc::MPOL_PREFERRED };
        MemoryPolicy { mode, nodes: bits(nodes) }
    }

    /// Binds memory to these nodes in turn.
    pub(crate) fn in_turn(nodes: &[u32]) -> MemoryPolicy {
        MemoryPolicy { mode: libc::MPOL_INTERLEAVE, nodes: bits(nodes) }
    }

    fn current() -> Result<MemoryPolicy, Errno> {
        let mut mode: libc::c_int = 0;
        let mut nodes: Vec<libc::c_ulong> = vec![0; NUMA_NODES_MAX / WORD_BITS];
        let (no_address, no_flags): (*const libc::c_void, libc::c_ulong) = (std::ptr::null(), 0);
        let nodes_max = nodes.len() * WORD_BITS;
        // SAFETY: both results are locals, and the mask has the size that is passed.
        Errno::result(unsafe {
            libc::syscall(
                libc::SYS_get_mempolicy,
                &raw mut mode,
                nodes.as_mut_ptr(),
                nodes_max as libc::c_ulong,
                no_address,
                no_flags,
            )
        })?;
        Ok(MemoryPolicy { mode, nodes })
    }

    fn set(&self) -> Result<(), Errno> {
        let set = |mode: libc::c_int, nodes: &[libc::c_ulong]| {
            // The kernel reads one bit less than this number.
            let bits = nodes.len() * WORD_BITS + 1;
            let (nodes, bits) = match nodes.iter().any(|word| *word != 0) {
                true => (nodes.as_ptr(), bits),
                false => (std::ptr::null(), 0),
            };
            // SAFETY: the mask lives until the call ends and has the size that is passed.
            let done = unsafe {
                libc::syscall(libc::SYS_set_mempolicy, libc::c_long::from(mode), nodes, bits as libc::c_ulong)
            };
            Errno::result(done).map(drop)
        };
        match set(self.mode, &self.nodes) {
            Err(Errno::EINVAL) if self.mode == MPOL_PREFERRED_MANY => {
                let first = self.nodes.iter().position(|word| *word != 0).unwrap_or(0);
                let mut one = self.nodes.clone();
                one.iter_mut().enumerate().filter(|(at, _)| *at != first).for_each(|(_, word)| *word = 0);
                one[first] &= one[first].wrapping_neg();
                set(libc::MPOL_PREFERRED, &one)
            }
            done => done,
        }
    }
}

/// Why a thread cannot be confined.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub(crate) enum ConfineError {
    /// The kernel allows none of these cpus.
    #[error(
        "cannot run on cpus {}: the kernel allows none of them (its cpuset has changed or they are offline: restart the node's \
         daemon, or use --bind-to none)",
        list(wanted)
    )]
    NoCpu {
        /// By the kernel's numbers.
        wanted: Vec<u32>,
    },
    /// The kernel allows only some of these cpus.
    #[error(
        "cannot run on cpus {}: the kernel allows only {} (its cpuset has changed or some are offline: restart the node's \
         daemon, or use --bind-to none)",
        list(wanted),
        list(allowed)
    )]
    FewerCpus {
        /// By the kernel's numbers.
        wanted: Vec<u32>,
        /// The cpus that are allowed.
        allowed: Vec<u32>,
    },
    /// Its memory cannot be bound.
    #[error("cannot bind its memory: {} (leave out --mem-bind{})", .0.desc(), if *.0 == Errno::EPERM {
        ", or allow set_mempolicy in this container" } else { "" })]
    Memory(Errno),
    /// Any other error.
    #[error("cannot bind to cpus: {} (use --bind-to none)", .0.desc())]
    Os(Errno),
}

fn list(cpus: &[u32]) -> String {
    cpus.iter().copied().collect::<rsd_core::place::cpuset::CpuSet>().to_string()
}

/// Calls a function with the thread bound to these cpus, then restores the thread's own cpus.
pub(crate) fn on_cpus<T>(wanted: &[u32], act: impl FnOnce() -> T) -> Result<T, ConfineError> {
    let before = CpuMask::current().map_err(ConfineError::Os)?;
    let _back = OnDrop(|| {
        // The kernel reduces the mask to the allowed cpus, and fails only if none is left.
        let _ = before.set();
    });
    match CpuMask::of(wanted).set() {
        Ok(()) => {}
        Err(Errno::EINVAL) => return Err(ConfineError::NoCpu { wanted: wanted.to_vec() }),
        Err(errno) => return Err(ConfineError::Os(errno)),
    }
    let allowed = CpuMask::current().map_err(ConfineError::Os)?.cpus();
    if allowed != wanted {
        return Err(ConfineError::FewerCpus { wanted: wanted.to_vec(), allowed });
    }
    Ok(act())
}

/// Calls a function under this memory policy, then restores the thread's own policy.
pub(crate) fn with_memory<T>(policy: &MemoryPolicy, act: impl FnOnce() -> T) -> Result<T, ConfineError> {
    let before = MemoryPolicy::current().map_err(ConfineError::Memory)?;
    policy.set().map_err(ConfineError::Memory)?;
    let _back = OnDrop(|| {
        // This restores a policy that was valid before, so it cannot fail.
        let _ = before.set();
    });
    Ok(act())
}

struct OnDrop<F: FnMut()>(F);

impl<F: FnMut()> Drop for OnDrop<F> {
    fn drop(&mut self) {
        (self.0)();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_become_bits_and_come_back() {
        let cpus = [0, 5, 63, 64, 700];
        assert_eq!(CpuMask::of(&cpus).cpus(), cpus);
    }

    #[test]
    fn a_thread_is_bound_during_a_call_only() {
        let before = CpuMask::current().expect("a thread has a mask");
        let one = *before.cpus().last().expect("at least one cpu");
        let inside = on_cpus(&[one], || CpuMask::current().expect("a thread has a mask").cpus());
        assert_eq!(inside, Ok(vec![one]));
        let after = CpuMask::current().expect("a thread has a mask");
        assert_eq!(after.cpus(), before.cpus(), "the mask is restored");
        let (none, some) = (60_000, vec![one, 60_000]);
        assert_eq!(on_cpus(&[none], || ()), Err(ConfineError::NoCpu { wanted: vec![none] }));
        assert_eq!(on_cpus(&some, || ()), Err(ConfineError::FewerCpus { wanted: some, allowed: vec![one] }));
        assert_eq!(CpuMask::current().expect("a thread has a mask").cpus(), before.cpus(), "the mask is restored");
    }

    #[test]
    fn a_memory_policy_holds_during_a_call_only() {
        let before = match MemoryPolicy::current() {
            Ok(before) => before,
            Err(errno) => return eprintln!("skipped: this kernel or container has no memory policies ({errno})"),
        };
        let mode = |policy: MemoryPolicy| with_memory(&policy, || MemoryPolicy::current().expect("as before"));
        for policy in [MemoryPolicy::only(&[0]), MemoryPolicy::first(&[0]), MemoryPolicy::in_turn(&[0])] {
            let inside = mode(policy.clone()).expect("every machine has a node 0");
            assert_eq!((inside.mode, inside.nodes[0]), (policy.mode, 1));
        }
        assert_eq!(MemoryPolicy::current(), Ok(before));
        assert!(matches!(mode(MemoryPolicy::only(&[1000])), Err(ConfineError::Memory(_))));
    }
}
