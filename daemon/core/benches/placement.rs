//! Time and memory for placing ranks on 10,000 nodes × 128 cores: `cargo bench -p rsd-core --bench placement`.
//!
//! Every case is placed several times. The bench prints the median and the growth of the process's largest resident size during the
//! case, which covers the placement and the memory used to compute it. The offers of the nodes exist before.

use std::sync::Arc;
use std::time::{Duration, Instant};

use rsd_core::place::cpuset::CpuSet;
use rsd_core::place::policy::Policy;
use rsd_core::place::topology::{Kind, Topology};
use rsd_core::place::{App, NodeOffer, Request, place};

const NODES: u32 = 10_000;
const SLOTS: u32 = 128;
const ROUNDS: usize = 7;

/// `--map-by`, `--rank-by`, `--bind-to`.
const CASES: &[(&str, &str, &str)] = &[
    ("slot", "", ""),
    ("slot", "", "core"),
    ("node", "", ""),
    ("node", "", "core"),
    ("numa", "", ""),
    ("numa", "span", "core"),
    ("package:span", "", "core"),
    ("ppr:32:numa", "", "core"),
];

fn main() {
    let alike = offers(SLOTS, |_| CpuSet::EMPTY);
    // No two nodes are alike: other jobs hold different cores on each.
    let unlike = offers(96, |id| (0..14).filter(|bit| id >> bit & 1 == 1).map(|bit| 114 + bit).collect());
    println!("{NODES} nodes of {SLOTS} cores, one rank per slot; median of {ROUNDS}");
    for (map_by, rank_by, bind_to) in CASES {
        measure("", &alike, map_by, rank_by, bind_to);
    }
    measure("no two nodes alike: ", &unlike, "slot", "", "");
    measure("no two nodes alike: ", &unlike, "slot", "", "core");
}

fn offers(slots: u32, taken: impl Fn(u32) -> CpuSet) -> Vec<NodeOffer> {
    let shape = [(Kind::Package, 2), (Kind::Numa, 2), (Kind::L3, 4), (Kind::Core, 8), (Kind::Thread, 1)];
    let topology = Arc::new(Topology::regular(&shape).expect("the shape is a valid machine"));
    let gpus: Arc<[_]> = Arc::new([]);
    let offer = |id| NodeOffer {
        id,
        name: format!("node{id}"),
        slots,
        slots_reason: "128 cores".into(),
        in_use: 0,
        topology: Arc::clone(&topology),
        usable: topology.all(),
        taken: taken(id),
        gpus: Arc::clone(&gpus),
        gpus_taken: CpuSet::EMPTY,
        aliases: Arc::default(),
        stocks: Vec::new(),
        labels: Arc::default(),
    };
    (0..NODES).map(offer).collect()
}

fn measure(what: &str, nodes: &[NodeOffer], map_by: &str, rank_by: &str, bind_to: &str) {
    let policy = Policy::from_texts(map_by, rank_by, bind_to, "", "", 0).expect("the policy is valid");
    let apps = vec![App { n: None, hosts: Vec::new() }];
    let request = Request { apps, policy, oversubscribe: false, rankfile: Vec::new(), needs: Vec::new() };
    let before = peak_kib(true);
    let mut times: Vec<Duration> = Vec::new();
    let mut told = String::new();
    for _ in 0..ROUNDS {
        let start = Instant::now();
        let placement = place(nodes, &request, 0).expect("it fits");
        times.push(start.elapsed());
        told = format!(
            "{} ranks, {} blocks, {} bindings in {} runs",
            placement.map.size(),
            placement.map.blocks().len(),
            placement.bindings.len(),
            placement.binding_runs.len()
        );
    }
    times.sort_unstable();
    let (median, grown) = (times[ROUNDS / 2].as_secs_f64() * 1e3, peak_kib(false).saturating_sub(before));
    let options = [("map-by", map_by), ("rank-by", rank_by), ("bind-to", bind_to)];
    let options = options.iter().filter(|(_, word)| !word.is_empty()).map(|(name, word)| format!("--{name} {word} "));
    println!("{median:7.1} ms  {:5.1} MiB  {what}{}({told})", grown as f64 / 1024.0, options.collect::<String>());
}

/// The process's largest resident size so far, in KiB; with `anew`, the measurement restarts here. 0 if the system does not report it.
fn peak_kib(anew: bool) -> u64 {
    if anew {
        // Best effort: if it fails, the bench prints the growth over earlier cases.
        let _ = std::fs::write("/proc/self/clear_refs", "5");
    }
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:"));
    line.and_then(|line| line.trim().trim_end_matches("kB").trim().parse().ok()).unwrap_or(0)
}
