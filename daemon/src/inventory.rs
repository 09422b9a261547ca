//! What this node has: cores, memory, its name, and how many ranks it takes by default.
//!
//! The default is one slot per core that this process may really use. Three things narrow the machine: the affinity
//! mask (`sched_getaffinity`), the cgroup's cpuset and the cgroup's CPU quota; the smallest wins and is named in
//! [`Inventory::slots_reason`]. Two hardware threads of one core are one core: ranks that share a core's arithmetic
//! units gain nothing from the second thread.
//!
//! `decide` is a function over plain values; [`measure`] only reads them: hwloc for the cores (2.x loads no I/O
//! devices unless asked to, and the topology is dropped at once), `/proc` and the cgroup file system for the limits.

mod cgroup;

use std::collections::BTreeSet;
use std::path::Path;

use hwloc2::{ObjectType, Topology, TopologyFlag};
use nix::sched::{CpuSet, sched_getaffinity};
use nix::unistd::Pid;

use crate::load::memory;

/// What a node brings into its DVM.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Inventory {
    /// Ranks that are placed here without oversubscribing.
    pub(crate) slots: u32,
    /// Where `slots` comes from, in words: `2 of 8 cores (affinity mask)`.
    pub(crate) slots_reason: String,
    /// Cores of the machine, also those that we may not use.
    pub(crate) cores: u32,
    /// Hardware threads of the machine, also those that we may not use.
    pub(crate) hwthreads: u32,
    /// Memory of the machine.
    pub(crate) memory_bytes: u64,
    /// The machine's name as `gethostname` has it.
    pub(crate) hostname: String,
}

/// Looks at this machine; `slots_override` is the user's word against the measured default.
pub(crate) fn measure(slots_override: Option<u32>) -> Inventory {
    let limits = cgroup::limits(&|path: &Path| std::fs::read_to_string(path).ok());
    let found = Found { cores: read_cores(), affinity: read_affinity(), cpuset: limits.cpuset, quota: limits.quota };
    let verdict = decide(&found, slots_override);
    Inventory {
        slots: verdict.slots,
        slots_reason: verdict.reason,
        cores: verdict.cores,
        hwthreads: verdict.hwthreads,
        memory_bytes: memory().total_bytes,
        hostname: nix::unistd::gethostname()
            .map_or_else(|_| "localhost".to_owned(), |name| name.to_string_lossy().into_owned()),
    }
}

/// What was found out; `None` means "could not be read" or "not limited".
#[derive(Debug, Default, Clone)]
struct Found {
    /// `cores[i]` holds the numbers that the operating system gives to the hardware threads of core i.
    cores: Option<Vec<Vec<u32>>>,
    affinity: Option<BTreeSet<u32>>,
    cpuset: Option<BTreeSet<u32>>,
    /// CPU time per time.
    quota: Option<f64>,
}

#[derive(Debug, PartialEq, Eq)]
struct Verdict {
    slots: u32,
    reason: String,
    cores: u32,
    hwthreads: u32,
}

fn decide(found: &Found, slots_override: Option<u32>) -> Verdict {
    let topology = found.cores.as_deref().filter(|cores| !cores.is_empty());
    let (mut slots, mut reason, cores, hwthreads) = match topology {
        Some(cores) => {
            let (slots, reason) = usable_cores(cores, found);
            (slots, reason, count(cores.len()), count(cores.iter().map(Vec::len).sum()))
        }
        None => {
            let mask = found.affinity.as_ref().or(found.cpuset.as_ref()).map_or(1, BTreeSet::len).max(1);
            let reason = format!("{} in the affinity mask, hwloc found no cores", plural(mask, "cpu"));
            (count(mask), reason, count(mask), count(mask))
        }
    };
    if let Some(quota) = found.quota {
        // The cast saturates, so an absurd quota is no quota.
        let whole = (quota.floor() as u32).max(1);
        if whole < slots {
            slots = whole;
            reason = format!("cpu quota {} of {}", (quota * 100.0).floor() / 100.0, plural(cores as usize, "core"));
        }
    }
    if let Some(asked) = slots_override {
        slots = asked;
        reason = "--slots".to_owned();
    }
    Verdict { slots, reason, cores, hwthreads }
}

/// Cores with a hardware thread in every mask, and the words for it.
fn usable_cores(cores: &[Vec<u32>], found: &Found) -> (u32, String) {
    let allows = |mask: &Option<BTreeSet<u32>>, cpu: &u32| mask.as_ref().is_none_or(|mask| mask.contains(cpu));
    let within = |test: &dyn Fn(&u32) -> bool| cores.iter().filter(|core| core.iter().any(test)).count();
    let both = within(&|cpu| allows(&found.affinity, cpu) && allows(&found.cpuset, cpu));
    if both == cores.len() {
        return (count(both), plural(both, "core"));
    }
    // The kernel keeps the affinity mask inside the cpuset, so a narrow cpuset shows in both: it is the cause.
    let cause = if within(&|cpu| allows(&found.cpuset, cpu)) == both {
        "cgroup cpuset"
    } else if within(&|cpu| allows(&found.affinity, cpu)) == both {
        "affinity mask"
    } else {
        "affinity mask and cgroup cpuset"
    };
    (count(both.max(1)), format!("{} of {} ({cause})", both.max(1), plural(cores.len(), "core")))
}

fn count(number: usize) -> u32 {
    u32::try_from(number).unwrap_or(u32::MAX)
}

fn plural(number: usize, noun: &str) -> String {
    format!("{number} {noun}{}", if number == 1 { "" } else { "s" })
}

/// All cores of the machine, those included that the cgroup hides from us: the reason speaks of "2 of 8".
fn read_cores() -> Option<Vec<Vec<u32>>> {
    let topology = Topology::with_flags(vec![TopologyFlag::IncludeDisallowed])?;
    // A machine that does not tell its cores (some virtual ones) still tells its hardware threads.
    let objects = match topology.objects_with_type(&ObjectType::Core) {
        Ok(cores) if !cores.is_empty() => cores,
        Ok(_) | Err(_) => topology.objects_with_type(&ObjectType::PU).ok()?,
    };
    Some(objects.iter().filter_map(|core| core.cpuset()).map(|set| set.into_iter().collect()).collect())
}

/// `None` on a machine of more than 1,024 hardware threads, which the kernel does not fit into this mask.
fn read_affinity() -> Option<BTreeSet<u32>> {
    let mask = sched_getaffinity(Pid::from_raw(0)).ok()?;
    Some((0..CpuSet::count()).filter(|cpu| mask.is_set(*cpu).unwrap_or(false)).map(count).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn found(cores: usize, threads: u32) -> Found {
        let core = |i: usize| (0..threads).map(|t| i as u32 + t * cores as u32).collect();
        Found { cores: Some((0..cores).map(core).collect()), ..Found::default() }
    }

    fn set(cpus: impl IntoIterator<Item = u32>) -> Option<BTreeSet<u32>> {
        Some(cpus.into_iter().collect())
    }

    fn words(found: &Found) -> (u32, String) {
        let verdict = decide(found, None);
        (verdict.slots, verdict.reason)
    }

    #[test]
    fn a_free_machine_has_a_slot_per_core() {
        assert_eq!(words(&found(2, 1)), (2, "2 cores".into()));
        assert_eq!(words(&found(1, 1)), (1, "1 core".into()));
        let all = Found { affinity: set(0..8), cpuset: set(0..8), quota: Some(8.0), ..found(8, 1) };
        assert_eq!(words(&all), (8, "8 cores".into()));
    }

    #[test]
    fn two_hardware_threads_of_a_core_are_one_slot() {
        let verdict = decide(&found(4, 2), None);
        assert_eq!((verdict.slots, verdict.cores, verdict.hwthreads), (4, 4, 8));
        // Cores 0 and 1 by both threads, core 2 by its second thread alone.
        let masked = Found { affinity: set([0, 4, 1, 5, 6]), ..found(4, 2) };
        assert_eq!(words(&masked), (3, "3 of 4 cores (affinity mask)".into()));
    }

    #[test]
    fn the_narrower_mask_is_named() {
        let masked = Found { affinity: set([2, 3]), cpuset: set(0..8), ..found(8, 1) };
        assert_eq!(words(&masked), (2, "2 of 8 cores (affinity mask)".into()));
        let caged = Found { affinity: set(0..4), cpuset: set(0..4), ..found(8, 1) };
        assert_eq!(words(&caged), (4, "4 of 8 cores (cgroup cpuset)".into()));
        let crossed = Found { affinity: set(0..4), cpuset: set(3..8), ..found(8, 1) };
        assert_eq!(words(&crossed), (1, "1 of 8 cores (affinity mask and cgroup cpuset)".into()));
    }

    #[test]
    fn a_quota_gives_whole_cores_and_at_least_one() {
        for (quota, slots, reason) in [
            (1.5, 1, "cpu quota 1.5 of 8 cores"),
            (3.999, 3, "cpu quota 3.99 of 8 cores"),
            (2.0, 2, "cpu quota 2 of 8 cores"),
            (0.25, 1, "cpu quota 0.25 of 8 cores"),
            (8.5, 8, "8 cores"),
            (1e30, 8, "8 cores"),
        ] {
            assert_eq!(words(&Found { quota: Some(quota), ..found(8, 1) }), (slots, reason.into()));
        }
        let masked = Found { affinity: set(0..2), quota: Some(3.0), ..found(8, 1) };
        assert_eq!(words(&masked), (2, "2 of 8 cores (affinity mask)".into()));
    }

    #[test]
    fn the_users_word_wins_but_the_machine_is_still_described() {
        let verdict = decide(&Found { quota: Some(1.0), ..found(8, 2) }, Some(64));
        assert_eq!(verdict, Verdict { slots: 64, reason: "--slots".into(), cores: 8, hwthreads: 16 });
    }

    #[test]
    fn without_a_topology_the_mask_counts() {
        let blind = Found { affinity: set([0, 1, 5]), ..Found::default() };
        assert_eq!(words(&blind), (3, "3 cpus in the affinity mask, hwloc found no cores".into()));
        assert_eq!(decide(&Found::default(), None).slots, 1);
        // PUs that the topology does not know leave one slot, not none.
        assert_eq!(words(&Found { affinity: set([99]), ..found(2, 1) }).0, 1);
    }

    #[test]
    fn this_machine_can_be_measured() {
        let here = measure(None);
        assert!(here.slots >= 1 && here.slots <= here.cores && here.cores <= here.hwthreads, "{here:?}");
        assert!(here.memory_bytes > 1 << 20 && !here.hostname.is_empty(), "{here:?}");
        assert!(here.slots_reason.contains("core"), "{here:?}");
    }
}
