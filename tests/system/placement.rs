//! The CPUs and the memory that the kernel grants to ranks.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::time::Duration;

use nix::sched::{CpuSet, sched_getaffinity, sched_setaffinity};
use nix::unistd::Pid;
use rsd_tests::{Dvm, Options, eventually};

/// Prints `RANK=CPUS=RSD_CPUS`: the CPUs that the kernel allows the rank, and the value of RSD_CPUS.
const WHERE: [&str; 3] =
    ["sh", "-c", "echo $RSD_RANK=$(sed -n 's/^Cpus_allowed_list:\t//p' /proc/self/status)=${RSD_CPUS-none}"];

fn dvm(nodes: usize, slots: u32) -> Dvm {
    Dvm::start_with(Options { nodes, slots, args: Vec::new() })
}

/// Parses a list such as `0-2,5`.
fn cpus(list: &str) -> BTreeSet<usize> {
    let number = |text: &str| text.parse::<usize>().unwrap_or_else(|_| panic!("invalid CPU list {list}"));
    list.split(',')
        .flat_map(|range| {
            let (first, last) = range.split_once('-').unwrap_or((range, range));
            number(first)..=number(last)
        })
        .collect()
}

/// The CPUs on which this thread may run.
fn ours() -> BTreeSet<usize> {
    let mask = sched_getaffinity(Pid::from_raw(0)).expect("a thread has a mask");
    (0..CpuSet::count()).filter(|cpu| mask.is_set(*cpu) == Ok(true)).collect()
}

/// The output of [`WHERE`], by rank.
fn printed(text: &str) -> BTreeMap<u32, (BTreeSet<usize>, String)> {
    let line = |line: &str| {
        let [rank, allowed, told] = line.split('=').collect::<Vec<_>>()[..] else { panic!("a rank printed {line}") };
        (rank.parse().expect("a rank"), (cpus(allowed), told.to_owned()))
    };
    text.lines().map(line).collect()
}

/// The number of cores that the first node offers.
fn cores(dvm: &Dvm) -> u32 {
    let nodes = dvm.json("plan -n 1 --bind-to none --idle")["nodes"].clone();
    u32::try_from(nodes[0]["cores"].as_u64().expect("a node has cores")).expect("the number of cores fits")
}

#[test]
fn bound_ranks_run_only_on_the_planned_cpus() {
    let dvm = dvm(2, 64);
    let cores = cores(&dvm);
    for (bind_to, n) in [("core", cores), ("hwthread", 1), ("package", 1), ("core --map-by node", 2)] {
        let line = format!("-n {n} --bind-to {bind_to}");
        let plan = dvm.json(&format!("plan {line}"));
        let words = line.split_whitespace();
        let found = printed(&dvm.rsctl(["run"]).args(words).args(WHERE).ok());
        assert_eq!(found.len(), n as usize);
        let mut taken = BTreeSet::new();
        for (rank, (allowed, told)) in &found {
            assert_eq!(*allowed, cpus(told), "rank {rank} of {line} has its cpus in RSD_CPUS");
            let planned = &plan["ranks"][*rank as usize];
            assert_eq!(
                planned["pus"].as_array().map(Vec::len),
                Some(allowed.len()),
                "rank {rank} of {line}: {planned}"
            );
            let node = planned["node"].as_str().expect("a rank has a node").to_owned();
            assert!(allowed.iter().all(|cpu| taken.insert((node.clone(), *cpu))), "{line}: {found:?}");
        }
        assert!(taken.iter().all(|(_, cpu)| ours().contains(cpu)));
    }
}

#[test]
fn requested_cpus_are_exclusive_until_the_job_ends() {
    let dvm = dvm(1, 64);
    let cores = cores(&dvm);
    let holder = dvm.submit(["-n", "1", "--bind-to", "core", "sleep", "600"]);
    if cores > 1 {
        let other = dvm.rsctl(["run", "-n", &(cores - 1).to_string(), "--bind-to", "core"]).args(WHERE).ok();
        let held: BTreeSet<usize> = printed(&other).into_values().flat_map(|(cpus, _)| cpus).collect();
        assert!(held.len() < ours().len(), "the other job holds one core: {held:?}");
    }
    let waiting = dvm.rsctl(["run", "-n", &cores.to_string(), "--bind-to", "core"]).args(WHERE).start();
    waiting.until_stderr(|said| said.contains("is queued").then_some(()));
    dvm.ctl(&format!("cancel {holder}")).ok();
    assert_eq!(printed(&waiting.end().ok()).len(), cores as usize);
}

#[test]
fn by_default_a_rank_has_at_least_its_share_of_the_node() {
    let dvm = dvm(1, 64);
    let cores = cores(&dvm);
    for n in [1, 2, cores, cores + 1] {
        let ended = dvm.rsctl(["run", "-n", &n.to_string()]).args(WHERE).end();
        let said = ended.err();
        for (rank, (allowed, told)) in printed(&ended.ok()) {
            assert!(allowed.len() >= (cores / n).max(1) as usize, "rank {rank} of {n} is confined to {allowed:?}");
            if told == "none" {
                assert_eq!(allowed, ours(), "an unbound rank may run where its daemon may");
            }
        }
        assert_eq!(said.contains("not bound"), n > cores, "{n} ranks on {cores} cores: {said}");
    }
    let unbound = printed(&dvm.rsctl(["run", "-n", "2", "--bind-to", "none"]).args(WHERE).ok());
    assert!(unbound.values().all(|(allowed, told)| *allowed == ours() && told == "none"), "{unbound:?}");
}

#[test]
fn memory_comes_from_the_requested_numa_nodes() {
    if !Path::new("/proc/self/numa_maps").exists() {
        return eprintln!("skipped: this kernel does not support memory policies");
    }
    let dvm = dvm(1, 4);
    // The policy of the first mapping, which is that of the process.
    let script = "echo $RSD_RANK $(head -n 1 /proc/self/numa_maps | cut -d ' ' -f 2)";
    for (mem_bind, policy) in [("local", "bind:"), ("preferred", "prefer"), ("interleave", "interleave:")] {
        for bind_to in ["core:overload-allowed", "none"] {
            let run = dvm.rsctl(["run", "-n", "2", "--bind-to", bind_to, "--mem-bind", mem_bind, "sh", "-c", script]);
            for line in run.ok().lines() {
                let found = line.split_once(' ').map(|(_, policy)| policy.to_owned()).unwrap_or_default();
                assert!(found.starts_with(policy), "--mem-bind {mem_bind} --bind-to {bind_to}: {line}");
            }
        }
    }
    let run = dvm.rsctl(["run", "-n", "1", "sh", "-c", script]).ok();
    assert_eq!(run, "0 default\n");
}

#[test]
fn a_daemon_offers_only_cpus_that_it_may_use() {
    let all = ours();
    let Some(last) = all.last().filter(|_| all.len() > 1) else {
        return eprintln!("skipped: this machine has only one CPU");
    };
    let confine = |cpus: &BTreeSet<usize>| {
        let mut mask = CpuSet::new();
        cpus.iter().for_each(|cpu| mask.set(*cpu).expect("the kernel reported this CPU"));
        sched_setaffinity(Pid::from_raw(0), &mask).expect("this process may use these CPUs");
    };
    // Daemons inherit this thread's mask.
    confine(&BTreeSet::from([*last]));
    let dvm = dvm(1, 4);
    confine(&all);
    for options in [&["--bind-to", "core"][..], &["--bind-to", "none"], &[]] {
        let found = printed(&dvm.rsctl(["run", "-n", "1"]).args(options).args(WHERE).ok());
        assert_eq!(found[&0].0, BTreeSet::from([*last]), "{options:?}");
    }
    let said = dvm.rsctl(["run", "-n", "2", "--bind-to", "core", "true"]).fails(243);
    assert!(said.contains("2 ranks, 1 free core"), "{said}");
}

#[test]
fn a_node_with_a_synthetic_topology_plans_on_it_and_binds_no_rank() {
    let options = Options { nodes: 2, slots: 8, args: Vec::new() };
    let dvm = Dvm::start_in(options, &[("HWLOC_SYNTHETIC", "pack:2 l3:1 core:4 pu:2")]);
    assert_eq!(cores(&dvm), 8);
    let plan = dvm.json("plan -n 16 --bind-to core");
    assert_eq!((&plan["ranks"][7]["pus"], &plan["ranks"][15]["node"]), (&[14, 15].into(), &"node1".into()));
    let ended = dvm.rsctl(["run", "-n", "16", "--bind-to", "core"]).args(WHERE).end();
    let said = ended.err();
    assert!(said.contains("not bound") && said.contains("HWLOC_SYNTHETIC"), "{said}");
    let found = printed(&ended.ok());
    assert!(found.values().all(|(allowed, told)| *allowed == ours() && told == "none"), "{found:?}");
    let job = dvm.json("job show last");
    assert_eq!(job["placement"][1]["bindings"][7]["pus"], plan["ranks"][15]["pus"], "{job}");
}

#[test]
fn a_restarted_daemon_knows_its_bound_cpus() {
    let mut dvm = dvm(2, 64);
    let cores = cores(&dvm).to_string();
    let holder = dvm.submit(["--host", "node1", "-n", &cores, "--bind-to", "core", "sleep", "600"]);
    let refused = |dvm: &Dvm| {
        let plan = dvm.ctl("plan --host node1 -n 1 --bind-to core --json").end();
        serde_json::from_slice::<serde_json::Value>(&plan.stdout).is_ok_and(|plan| plan.get("refused").is_some())
    };
    assert!(refused(&dvm));
    dvm.kill(1);
    dvm.restart(1);
    eventually("node1 has reconnected", Duration::from_secs(20), || {
        (dvm.json("nodes")["nodes"][1]["state"] == "up").then_some(())
    });
    assert!(refused(&dvm), "its ranks are still running");
    dvm.ctl(&format!("cancel {holder}")).ok();
    eventually("its cpus are free", Duration::from_secs(20), || (!refused(&dvm)).then_some(()));
}
