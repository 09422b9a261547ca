//! Properties of every placement, on random processors (irregular, masked, partly taken) with random hosts and options.

use super::mapping::by_node;
use super::*;

/// A random node.
#[derive(Debug, Clone)]
struct Chance {
    slots: u32,
    in_use: u32,
    cap: Option<u32>,
    max: Option<u32>,
    topology: Arc<Topology>,
    usable: CpuSet,
    taken: CpuSet,
    gpus: Vec<u32>,
    gpus_taken: CpuSet,
}

/// Random numbers of packages of NUMA nodes or L3 caches of cores of threads; some kinds are missing.
fn topology() -> impl Strategy<Value = Topology> {
    let core = 1u32..3;
    let part = prop::collection::vec(core, 1..5);
    let package = prop::collection::vec(part, 1..3);
    (prop::collection::vec(package, 1..3), any::<[bool; 3]>()).prop_map(
        |(packages, [with_packages, with_numa, with_l3])| {
            let (mut objects, mut end) = (Vec::new(), 0);
            let mut spans: Vec<(Kind, std::ops::Range<u32>)> = Vec::new();
            for package in packages {
                let from = end;
                for part in package {
                    let from = end;
                    for core in part {
                        spans.push((Kind::Core, end..end + core));
                        end += core;
                    }
                    if with_numa {
                        spans.push((Kind::Numa, from..end));
                    }
                    if with_l3 {
                        spans.push((Kind::L3, from..end));
                    }
                }
                if with_packages {
                    spans.push((Kind::Package, from..end));
                }
            }
            for (kind, threads) in spans {
                objects.push((kind, topology::Object { os: threads.start, threads }));
            }
            Topology::new(&(0..end).collect::<Vec<_>>(), objects).unwrap()
        },
    )
}

fn chance() -> impl Strategy<Value = Chance> {
    let slots = (0u32..14, 0u32..3, prop::option::of(1u32..8), prop::option::of(1u32..12));
    (slots, topology(), any::<u64>(), any::<u64>(), any::<u64>(), 0u8..4, 0usize..4).prop_map(
        |((slots, in_use, cap, max), topology, mask, taken, near, how, gpus)| {
            let all = topology.all();
            let pick = |bits: u64| all.iter().filter(|thread| bits >> (thread % 64) & 1 == 1).collect::<CpuSet>();
            let usable = if how & 1 == 1 { pick(mask | mask >> 7) } else { all.clone() };
            let taken = if how & 2 == 2 { pick(taken & taken >> 3).and(&usable) } else { CpuSet::EMPTY };
            let gpus_taken = (0..gpus as u32).filter(|gpu| near >> (60 + gpu) & 1 == 1).collect();
            let near = (0..gpus).map(|gpu| (near >> (8 * gpu)) as u32 % topology.threads()).collect();
            Chance { slots, in_use, cap, max, topology: Arc::new(topology), usable, taken, gpus: near, gpus_taken }
        },
    )
}

const MAP_BY: &[&str] = &[
    "",
    "slot",
    "node",
    "core",
    "hwthread",
    "l2cache",
    "l3cache",
    "numa",
    "package",
    "package:span",
    "core:span",
    "slot:span",
    "slot:pe=2",
    "package:pe=2",
    "numa:pe=3:hwtcpus",
    "slot:hwtcpus",
    "core:hwtcpus",
    "ppr:1:package",
    "ppr:2:core",
    "ppr:1:node",
    "ppr:2:l3cache",
    "pe-list=0,2,1",
    "pe-list=3,1,0:ordered",
    "slot:nolocal",
    "seq",
];
const RANK_BY: &[&str] = &["", "slot", "node", "fill", "span"];
const BIND_TO: &[&str] = &[
    "",
    "none",
    "hwthread",
    "core",
    "l3cache",
    "numa",
    "package",
    "core:overload-allowed",
    "numa:overload-allowed",
    "package:if-supported",
    "hwthread:overload-allowed",
];

/// A random request with its nodes.
fn case() -> impl Strategy<Value = (Vec<NodeOffer>, Request, Vec<Chance>, bool)> {
    let words = (prop::sample::select(MAP_BY), prop::sample::select(RANK_BY), prop::sample::select(BIND_TO));
    let asked = prop::collection::vec(prop::option::of(1u32..10), 1..3);
    (
        prop::collection::vec(chance(), 1..5),
        words,
        asked,
        any::<bool>(),
        any::<bool>(),
        prop::sample::select(&[0u32, 0, 0, 1, 2][..]),
    )
        .prop_map(|(chances, (map_by, rank_by, bind_to), asked, oversubscribe, listed, gpus)| {
            let offer = |(id, chance): (usize, &Chance)| NodeOffer {
                slots: chance.slots,
                in_use: chance.in_use,
                topology: Arc::clone(&chance.topology),
                usable: chance.usable.clone(),
                taken: chance.taken.clone(),
                gpus: chance.gpus.iter().map(|near| Gpu { near: [*near].into_iter().collect() }).collect(),
                gpus_taken: chance.gpus_taken.clone(),
                aliases: Arc::default(),
                stocks: Vec::new(),
                labels: Arc::default(),
                ..node(id as NodeId, chance.slots)
            };
            let offers: Vec<NodeOffer> = chances.iter().enumerate().map(offer).collect();
            let listed = listed || map_by == "seq";
            let hosts: Vec<Host> = match listed {
                true => chances.iter().enumerate().map(|(id, c)| host(&format!("node{id}"), c.cap, c.max)).collect(),
                false => Vec::new(),
            };
            let rank_by = if map_by == "seq" { "" } else { rank_by };
            let policy = Policy::from_texts(map_by, rank_by, bind_to, "", "", gpus).unwrap();
            let apps = asked.iter().map(|n| App { n: *n, hosts: hosts.clone() }).collect();
            (offers, Request { apps, policy, oversubscribe, rankfile: Vec::new(), needs: Vec::new() }, chances, listed)
        })
}

fn unbound(request: &Request) -> Request {
    let mut request = request.clone();
    request.policy.bind_to = Some("none".parse().unwrap());
    request
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(1000))]

    #[test]
    fn every_placement_keeps_the_limits((nodes, request, chances, listed) in case()) {
        let Ok(placement) = place(&nodes, &request, 0) else { return Ok(()) };
        // Placing again gives the same result.
        let again = place(&nodes, &request, 0);
        prop_assert_eq!(again.as_ref(), Ok(&placement));
        // Every rank occurs once, in runs over all nodes.
        let map = &placement.map;
        let mut ranks: Vec<u32> = map.nodes().iter().flat_map(|id| map.ranks_on(*id)).collect();
        ranks.sort_unstable();
        prop_assert_eq!(ranks, (0..map.size()).collect::<Vec<_>>());
        prop_assert_eq!(placement.app_sizes.iter().sum::<u32>(), map.size());
        prop_assert_eq!(by_node(&placement).len(), map.nodes().len());
        prop_assert!(placement.policy.map_by.directive.is_some());
        let policy = &placement.policy;
        prop_assert!(policy.rank_by.is_some() && policy.bind_to.is_some());
        let nolocal = request.policy.map_by.nolocal;
        let overload = request.policy.bind_to.is_some_and(|bind_to| bind_to.overload_allowed);
        for ((id, count), ranks) in placement.used.iter().zip(by_node(&placement)) {
            let (node, chance) = (&nodes[*id as usize], &chances[*id as usize]);
            prop_assert_eq!(ranks.len() as u32, *count);
            prop_assert!(!nolocal || *id != 0);
            // No limit is exceeded.
            let most = chance.max.filter(|_| listed).unwrap_or(u32::MAX);
            let slots = chance.slots.saturating_sub(chance.in_use);
            let most = if request.oversubscribe { most } else { most.min(slots) };
            prop_assert!(*count <= most);
            // Only usable cpus, each for one rank.
            let mut seen = CpuSet::EMPTY;
            for rank in ranks {
                prop_assert!(rank.threads.is_subset(&node.usable), "{:?} of {:?}", rank.threads, node.usable);
                prop_assert!(!rank.threads.intersects(&node.taken));
                prop_assert!(overload || !rank.threads.intersects(&seen));
                seen = seen.or(&rank.threads);
            }
            // The same for GPUs.
            let mut seen = node.gpus_taken.clone();
            for gpu in ranks.iter().flat_map(|rank| &rank.gpus) {
                prop_assert!((*gpu as usize) < node.gpus.len() && !seen.contains(*gpu));
                seen.insert(*gpu);
            }
            prop_assert!(ranks.iter().all(|rank| rank.gpus.len() as u32 == request.policy.gpus_per_rank));
        }
    }

    #[test]
    fn a_default_binding_never_refuses_and_gives_every_rank_its_share((nodes, mut request, _, _) in case()) {
        request.policy.bind_to = None;
        request.policy.map_by.pe = None;
        if let Some(Directive::PeList { .. }) = request.policy.map_by.directive {
            request.policy.map_by.directive = None;
        }
        let (default, none) = (place(&nodes, &request, 0), place(&nodes, &unbound(&request), 0));
        prop_assert_eq!(default.is_ok(), none.is_ok());
        let (Ok(default), Ok(none)) = (default, none) else { return Ok(()) };
        prop_assert_eq!(&default.used, &none.used);
        prop_assert!(!default.exclusive && !none.exclusive);
        prop_assert!(by_node(&none).iter().all(|ranks| ranks.iter().all(|rank| rank.threads.is_empty())));
        for ((id, count), ranks) in default.used.iter().zip(by_node(&default)) {
            let node = &nodes[*id as usize];
            let cores = node.topology.objects(Kind::Core).iter().map(|core| CpuSet::range(core.threads.clone()).and(&node.usable));
            let free = cores.filter(|core| !core.is_empty() && !core.intersects(&node.taken)).count() as u32;
            let bound = ranks.iter().filter(|rank| !rank.threads.is_empty());
            for rank in bound.filter(|_| free >= *count) {
                prop_assert_eq!(node.topology.objects_of(Kind::Core, &rank.threads).len(), free / count);
            }
            let whole = |rank: &RankBinding| rank.threads.is_empty();
            prop_assert!(free < *count || ranks.iter().all(|rank| !whole(rank)) || (*count == 1 && free == node.topology.objects(Kind::Core).len() as u32));
        }
    }

    #[test]
    fn counts_do_not_depend_on_the_object((nodes, request, _, _) in case()) {
        let counts = |map_by: &str| {
            let mut request = unbound(&request);
            request.policy.map_by = map_by.parse().unwrap();
            request.policy.rank_by = None;
            place(&nodes, &request, 0).map(|placement| placement.used).ok()
        };
        let by_slot = counts("slot");
        for map_by in ["hwthread", "core", "l2cache", "l3cache", "numa", "package"] {
            prop_assert_eq!(&counts(map_by), &by_slot, "{}", map_by);
        }
    }

    #[test]
    fn suggested_fixes_work_and_refusals_are_short((nodes, request, _, _) in case()) {
        if let Err(refusal) = place(&nodes, &request, 0) {
            let text = refusal.to_string();
            prop_assert!(!text.is_empty() && text.lines().count() <= 9, "{}", text);
            let mut idle = nodes.clone();
            for node in &mut idle {
                (node.in_use, node.taken, node.gpus_taken) = (0, CpuSet::EMPTY, CpuSet::EMPTY);
            }
            prop_assert_eq!(refusal.fits_when_idle(), place(&idle, &request, 0).is_ok());
            for fix in refusal.shortage().map(|shortage| &shortage.fixes[..]).unwrap_or_default() {
                let Some(n) = fix.strip_prefix("-n ").and_then(|n| n.parse::<u32>().ok()) else { continue };
                let mut fewer = request.clone();
                if let [app] = &mut fewer.apps[..] {
                    app.n = Some(n);
                    let without_others = refusal.shortage().is_some_and(|shortage| shortage.without_others);
                    let nodes = if without_others { &idle } else { &nodes };
                    prop_assert!(place(nodes, &fewer, 0).is_ok(), "{}", text);
                }
            }
        }
    }
}
