//! The inventory of this node: cores, memory, name, and the default number of ranks.
//!
//! The default is one slot per core that this process may really use. Three limits apply: the affinity mask
//! (`sched_getaffinity`), the cgroup's cpuset and the cgroup's CPU quota. The smallest applies and is named in
//! `Inventory.slots_reason`. Two hardware threads of one core are one core: ranks that share a core's arithmetic units gain
//! nothing from the second thread.
//!
//! `decide` is a function over plain values; [`measure`] only reads them: hwloc for the processor (2.x loads no I/O
//! devices unless asked to, and its own topology is dropped at once), `/proc` and the cgroup file system for the limits,
//! the environment for what a batch system grants ([`manager`]), the driver for the GPUs ([`gpus`]).

mod cgroup;
mod gpus;
pub(crate) mod load;
mod manager;
mod nvml;
mod topology;

pub(crate) use topology::{Machine, read as machine};

use std::collections::BTreeSet;
use std::path::Path;

use rsd_core::place::cpuset::CpuSet;
use rsd_core::place::topology::{Kind, Topology};
use rsd_core::plan::ranges;
use rsd_proto::v1 as wire;

use crate::spawn::CpuMask;
use load::memory;

/// Measures this machine; `slots_override` replaces the measured default.
pub(crate) fn measure(slots_override: Option<u32>) -> wire::Inventory {
    let limits = cgroup::limits(&|path: &Path| std::fs::read_to_string(path).ok());
    let hostname =
        nix::unistd::gethostname().map_or_else(|_| "localhost".to_owned(), |name| name.to_string_lossy().into_owned());
    let machine = topology::read();
    let imagined = machine.as_ref().is_some_and(|machine| !machine.is_this);
    let topology = machine.map(|machine| machine.topology);
    let found = match imagined {
        // The limits of this machine do not apply to the described one.
        true => Found { imagined, cores: topology.as_ref().map(cores), ..Found::default() },
        false => Found {
            cores: topology.as_ref().map(cores),
            affinity: read_affinity(),
            cpuset: limits.cpuset,
            quota: limits.quota,
            granted: manager::word(&|name| std::env::var(name).ok(), &hostname),
            imagined,
        },
    };
    let verdict = decide(&found, slots_override);
    let topology = topology.or_else(|| known_threads(&found));
    let usable = topology.as_ref().map(|topology| usable(topology, &found)).unwrap_or_default();
    let gpus = match imagined {
        true => Vec::new(),
        false => gpus::read(Path::new("/"), topology.as_ref()),
    };
    wire::Inventory {
        slots: verdict.slots,
        slots_reason: verdict.reason,
        cores: verdict.cores,
        hwthreads: verdict.hwthreads,
        memory_bytes: memory().total_bytes,
        hostname,
        usable: ranges(&usable),
        topology: topology.as_ref().map(wire::Topology::from),
        gpus,
        imagined,
        // The daemon adds its addresses: they depend on its options.
        ..Default::default()
    }
}

/// The measured values; `None` means "could not be read" or "not limited".
#[derive(Debug, Default, Clone)]
struct Found {
    /// `cores[i]` holds the numbers that the operating system gives to the hardware threads of core i.
    cores: Option<Vec<Vec<u32>>>,
    affinity: Option<BTreeSet<u32>>,
    cpuset: Option<BTreeSet<u32>>,
    /// CPU time per wall-clock time.
    quota: Option<f64>,
    /// The number of ranks that a batch system grants, and the variable that has it.
    granted: Option<(u32, &'static str)>,
    /// Whether the cores are those of another machine.
    imagined: bool,
}

impl Found {
    /// Whether this process may run on a cpu.
    fn allows(&self, cpu: u32) -> bool {
        let within = |mask: &Option<BTreeSet<u32>>| mask.as_ref().is_none_or(|mask| mask.contains(&cpu));
        within(&self.affinity) && within(&self.cpuset)
    }
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
        // The cast saturates, so an absurd quota sets no limit.
        let whole = (quota.floor() as u32).max(1);
        if whole < slots {
            slots = whole;
            reason = format!("cpu quota {} of {}", (quota * 100.0).floor() / 100.0, plural(cores as usize, "core"));
        }
    }
    if let Some((granted, variable)) = found.granted.filter(|(granted, _)| (1..slots).contains(granted)) {
        slots = granted;
        reason = format!("{granted} of {} ({variable})", plural(cores as usize, "core"));
    }
    if found.imagined {
        reason = format!("{reason} of another machine's topology");
    }
    if let Some(asked) = slots_override {
        slots = asked;
        reason = "--slots".to_owned();
    }
    Verdict { slots, reason, cores, hwthreads }
}

/// Returns the number of cores with a hardware thread in every mask, and the reason in words.
fn usable_cores(cores: &[Vec<u32>], found: &Found) -> (u32, String) {
    let allows = |mask: &Option<BTreeSet<u32>>, cpu: &u32| mask.as_ref().is_none_or(|mask| mask.contains(cpu));
    let within = |test: &dyn Fn(&u32) -> bool| cores.iter().filter(|core| core.iter().any(test)).count();
    let both = within(&|cpu| found.allows(*cpu));
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

/// The cores by their threads' numbers.
fn cores(topology: &Topology) -> Vec<Vec<u32>> {
    let threads = |core: &rsd_core::place::topology::Object| CpuSet::range(core.threads.clone());
    topology.objects(Kind::Core).iter().map(|core| topology.os_threads(&threads(core))).collect()
}

/// Returns the threads that this process may run on, for machines where hwloc finds no cores.
fn known_threads(found: &Found) -> Option<Topology> {
    let threads: Vec<u32> = found.affinity.as_ref().or(found.cpuset.as_ref())?.iter().copied().collect();
    Topology::new(&threads, []).ok()
}

/// Returns the threads that ranks may use; all threads, if none would be left.
fn usable(topology: &Topology, found: &Found) -> CpuSet {
    let threads = topology.objects(Kind::Thread).iter().zip(0..);
    let usable: CpuSet = threads.filter(|(thread, _)| found.allows(thread.os)).map(|(_, at)| at).collect();
    if usable.is_empty() { topology.all() } else { usable }
}

fn read_affinity() -> Option<BTreeSet<u32>> {
    CpuMask::current().ok().map(|mask| mask.cpus().into_iter().collect())
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
        // The mask has both threads of cores 0 and 1, and the second thread of core 2.
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
    fn the_users_number_of_slots_wins_but_the_machine_is_still_described() {
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
    fn a_batch_system_lowers_the_offer_and_never_raises_it() {
        let granted = |slots| Found { granted: Some((slots, "SLURM_CPUS_ON_NODE")), ..found(8, 1) };
        assert_eq!(words(&granted(3)), (3, "3 of 8 cores (SLURM_CPUS_ON_NODE)".into()));
        assert_eq!(words(&granted(16)), (8, "8 cores".into()));
        assert_eq!(words(&granted(0)), (8, "8 cores".into()));
        assert_eq!(words(&Found { quota: Some(2.0), ..granted(3) }), (2, "cpu quota 2 of 8 cores".into()));
    }

    #[test]
    fn another_machines_topology_is_named_as_such() {
        let imagined = Found { imagined: true, ..found(8, 2) };
        assert_eq!(words(&imagined), (8, "8 cores of another machine's topology".into()));
        assert_eq!(decide(&imagined, Some(3)).reason, "--slots");
    }

    #[test]
    fn threads_outside_the_masks_are_not_usable() {
        let topology = Topology::new(&[0, 4, 1, 5], []).expect("four threads");
        let masked = Found { affinity: set([1, 4]), ..Found::default() };
        assert_eq!(usable(&topology, &masked).to_string(), "1-2", "logical numbers");
        assert_eq!(usable(&topology, &Found { cpuset: set([9]), ..Found::default() }), topology.all());
        let known = known_threads(&masked).expect("the mask is known");
        assert_eq!(known.os_threads(&known.all()), [1, 4]);
    }

    #[test]
    fn this_machine_can_be_measured() {
        let here = measure(None);
        assert!(here.slots >= 1 && here.slots <= here.cores && here.cores <= here.hwthreads, "{here:?}");
        assert!(here.memory_bytes > 1 << 20 && !here.hostname.is_empty(), "{here:?}");
        assert!(here.slots_reason.contains("core"), "{here:?}");
        assert!(here.topology.is_some() && !here.usable.is_empty() && !here.imagined, "{here:?}");
    }
}
