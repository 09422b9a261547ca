//! Vectors `hosts | ranks | options | result`, where a result lists the ranks of each node. The results of `as_it_did` and of
//! Hydra's wrapping were recorded from the releases themselves.

use std::sync::Arc;

use proptest::prelude::*;

use crate::place::cpuset::CpuSet;
use crate::place::policy::{Compat, Directive, Policy};
use crate::place::topology::{Kind, Topology};
use crate::place::{App, Host, NodeOffer, Placement, RankBinding, Refusal, Request, place};

/// A node of packages, cores of each and threads of each core. It offers its cores.
fn node(id: u32, [packages, cores, threads]: [u32; 3]) -> NodeOffer {
    let levels = [(Kind::Package, packages), (Kind::Numa, 1), (Kind::Core, cores), (Kind::Thread, threads)];
    let topology = Arc::new(Topology::regular(&levels).unwrap());
    NodeOffer {
        id,
        name: ["na", "nb", "nc"][id as usize].into(),
        slots: packages * cores,
        slots_reason: format!("{} cores", packages * cores),
        in_use: 0,
        usable: topology.all(),
        topology,
        taken: CpuSet::EMPTY,
        gpus: Arc::new([]),
        gpus_taken: CpuSet::EMPTY,
        aliases: Arc::default(),
        stocks: Vec::new(),
        labels: Arc::default(),
    }
}

fn nodes(machine: [u32; 3]) -> Vec<NodeOffer> {
    (0..3).map(|id| node(id, machine)).collect()
}

/// `2,2`: the slots of na, nb, … in a host file, `2/3` with max_slots, `-` for none; else a `--host` value.
fn hosts(text: &str) -> Vec<Host> {
    let entries = text.split(',').enumerate();
    if text.starts_with('n') {
        let host = |(_, entry): (usize, &str)| {
            let (name, slots) = entry.split_once(':').map_or((entry, None), |(name, slots)| (name, Some(slots)));
            let slots = slots.map(|slots| if slots == "*" { Host::WHOLE } else { slots.parse().unwrap() });
            Host { name: name.into(), slots, max_slots: None, source: "--host".into() }
        };
        return entries.map(host).collect();
    }
    let line = |(at, entry): (usize, &str)| {
        let (slots, max_slots) = entry.split_once('/').unwrap_or((entry, "-"));
        let name = ["na", "nb", "nc"][at].into();
        let source = format!("hostfile ./hosts:{}", at + 1);
        Host { name, slots: slots.parse().ok(), max_slots: max_slots.parse().ok(), source }
    };
    entries.map(line).collect()
}

/// Options as a user types them, without the dashes: `map-by=slot rank-by=node bind-to=core`.
fn policy(compat: Compat, options: &str) -> Policy {
    let mut policy = Policy { compat, ..Policy::default() };
    for option in options.split_whitespace() {
        match option.split_once('=') {
            Some(("map-by", text)) => policy.map_by = text.parse().unwrap(),
            Some(("rank-by", text)) => policy.rank_by = Some(text.parse().unwrap()),
            Some(("bind-to", text)) => policy.bind_to = Some(text.parse().unwrap()),
            other => panic!("no such option: {other:?}"),
        }
    }
    policy
}

fn request(compat: Compat, list: &str, n: Option<u32>, options: &str) -> Request {
    let policy = policy(compat, options);
    let oversubscribe = policy.map_by.oversubscribe == Some(true);
    let hosts = if list.is_empty() { Vec::new() } else { hosts(list) };
    Request { apps: vec![App { n, hosts }], policy, oversubscribe, rankfile: Vec::new(), needs: Vec::new() }
}

fn ranks(placement: &Placement) -> String {
    let on = |id: &u32| placement.map.ranks_on(*id).map(|rank| rank.to_string()).collect::<Vec<_>>().join(" ");
    placement.map.nodes().iter().map(on).collect::<Vec<_>>().join(" / ")
}

/// The threads of each node's ranks, in rank order.
fn threads(placement: &Placement) -> String {
    let runs = placement.binding_runs.iter().flat_map(|(count, index)| (0..*count).map(|_| *index as usize));
    let on = |index: usize| {
        let sets = placement.bindings[index].iter().map(|binding| match binding.threads.is_empty() {
            true => "-".to_owned(),
            false => binding.threads.to_string(),
        });
        sets.collect::<Vec<_>>().join(" ")
    };
    runs.map(on).collect::<Vec<_>>().join(" / ")
}

const TWO_CORES: [u32; 3] = [1, 2, 1];
const SERVER: [u32; 3] = [2, 4, 2];

#[test]
fn openmpi5_places_two_core_nodes_as_it_did() {
    let vectors = [
        ("2,2", Some(3), "", "0 1 / 2"),
        ("2,2", Some(8), "map-by=slot:oversubscribe", "0 1 2 3 / 4 5 6 7"),
        ("2,2", Some(8), "map-by=node:oversubscribe", "0 2 4 6 / 1 3 5 7"),
        ("2,2", Some(8), "map-by=core:oversubscribe", "0 1 2 3 4 5 6 7"),
        ("2,2", Some(8), "map-by=package:oversubscribe", "0 1 2 3 4 5 6 7"),
        ("2,2", Some(8), "map-by=:oversubscribe", "0 1 2 3 4 5 6 7"),
        ("2,2", Some(8), "map-by=package:oversubscribe:span", "0 2 4 6 / 1 3 5 7"),
        ("2,2", Some(9), "map-by=slot:oversubscribe", "0 1 2 3 4 / 5 6 7 8"),
        ("4,1", Some(9), "map-by=slot:oversubscribe", "0 1 2 3 4 5 / 6 7 8"),
        ("4,1", Some(10), "map-by=slot:oversubscribe", "0 1 2 3 4 5 6 / 7 8 9"),
        ("4,1", Some(9), "map-by=node:oversubscribe", "0 2 4 6 8 / 1 3 5 7"),
        ("2,2,2", Some(11), "map-by=slot:oversubscribe", "0 1 2 3 / 4 5 6 7 / 8 9 10"),
        ("2,2", Some(4), "map-by=node", "0 2 / 1 3"),
        ("2,2", Some(4), "map-by=node rank-by=slot", "0 1 / 2 3"),
        ("2,2", Some(4), "map-by=slot rank-by=node", "0 2 / 1 3"),
        ("na,nb,na", None, "", "0 1 / 2"),
        ("na:2,nb:2", None, "", "0 1 / 2 3"),
        ("2,2", None, "map-by=ppr:1:node", "0 / 1"),
        // Open MPI exceeds `max_slots` here.
        ("2/3,2", Some(8), "map-by=slot:oversubscribe", "0 1 2 3 / 4 5 6 7"),
    ];
    for (hosts, n, options, expected) in vectors {
        let placement = place(&nodes(TWO_CORES), &request(Compat::OpenMpi5, hosts, n, options), 0);
        assert_eq!(placement.map(|placement| ranks(&placement)), Ok(expected.to_owned()), "{hosts} {n:?} {options}");
    }
    let on_two_packages = request(Compat::OpenMpi5, "2,2", Some(8), "map-by=package:oversubscribe:span");
    assert_eq!(ranks(&place(&nodes([2, 1, 1]), &on_two_packages, 0).unwrap()), "0 1 4 5 / 2 3 6 7");
}

#[test]
fn openmpi5_binds_on_servers_as_it_did() {
    let vectors = [
        ("8,8", Some(12), "", "0 1 2 3 4 5 6 7 / 8 9 10 11", "0-1 2-3 4-5 6-7 8-9 10-11 12-13 14-15 / 0-1 2-3 4-5 6-7"),
        (
            "8,8",
            Some(12),
            "map-by=slot",
            "0 1 2 3 4 5 6 7 / 8 9 10 11",
            "0-7 0-7 0-7 0-7 8-15 8-15 8-15 8-15 / 0-7 0-7 0-7 0-7",
        ),
        (
            "8,8",
            Some(12),
            "map-by=numa",
            "0 1 2 3 4 5 6 7 / 8 9 10 11",
            "0-7 0-7 0-7 0-7 8-15 8-15 8-15 8-15 / 0-7 0-7 8-15 8-15",
        ),
        (
            "8,8",
            Some(12),
            "map-by=numa rank-by=span",
            "0 1 4 5 8 9 10 11 / 2 3 6 7",
            "0-7 8-15 0-7 8-15 0-7 8-15 0-7 8-15 / 0-7 8-15 0-7 8-15",
        ),
        ("8,8", Some(8), "map-by=package:pe=2", "0 1 2 3 / 4 5 6 7", "0-3 4-7 8-11 12-15 / 0-3 4-7 8-11 12-15"),
        ("8,8", Some(8), "map-by=slot:pe=2", "0 1 2 3 / 4 5 6 7", "0-3 4-7 8-11 12-15 / 0-3 4-7 8-11 12-15"),
        ("8,8", Some(6), "map-by=ppr:2:package", "0 1 2 3 / 4 5", "0-7 0-7 8-15 8-15 / 0-7 0-7"),
        ("8,8", Some(6), "map-by=ppr:2:package rank-by=span", "0 1 3 4 / 2 5", "0-7 8-15 0-7 8-15 / 0-7 0-7"),
    ];
    for (hosts, n, options, expected, bound) in vectors {
        let placement = place(&nodes(SERVER), &request(Compat::OpenMpi5, hosts, n, options), 0).unwrap();
        assert_eq!(
            (ranks(&placement), threads(&placement)),
            (expected.into(), bound.into()),
            "{hosts} {n:?} {options}"
        );
    }
}

fn refusal(machine: [u32; 3], request: &Request) -> Refusal {
    place(&nodes(machine), request, 0).unwrap_err()
}

#[test]
fn openmpi5_refuses_more_ranks_than_slots() {
    let refusal = refusal([1, 4, 1], &request(Compat::OpenMpi5, "2,2", Some(8), ""));
    assert!(matches!(refusal, Refusal::NotEnoughSlots(_)));
    assert_eq!(
        refusal.to_string(),
        "8 ranks requested, 4 slots free on 2 nodes\n  \
         na  2 slots (hostfile ./hosts:1)   0 in use\n  \
         nb  2 slots (hostfile ./hosts:2)   0 in use\n\
         fix one of:  -n 4   |  --oversubscribe (=> na: 0-7)  |  slots=4 in ./hosts"
    );
}

#[test]
fn openmpi5_may_refuse_within_the_slots_and_fixes_are_suggested() {
    let vectors = [
        // By core is the default.
        (
            "na:8",
            8,
            "",
            "8 ranks requested, Open MPI 5.0.11 places only 2 (--bind-to core)\n\
             fix one of:  -n 2   |  --bind-to core:overload-allowed  |  --bind-to none",
        ),
        (
            "8,8",
            10,
            "map-by=slot bind-to=core",
            "10 ranks requested, Open MPI 5.0.11 places only 4 (--bind-to core)\n\
             fix one of:  -n 4   |  --bind-to core:overload-allowed  |  --bind-to none",
        ),
        // The node with one slot lowers what the other takes.
        (
            "1,5",
            6,
            "map-by=node",
            "6 ranks requested, Open MPI 5.0.11 places only 3 (--bind-to numa)\n\
             fix:  --map-by slot",
        ),
        // The machine has no third-level cache.
        (
            "2,2",
            4,
            "map-by=ppr:2:l3cache",
            "4 ranks requested, Open MPI 5.0.11 places only 0 (--bind-to l3cache)\n\
             fix one of:  --map-by slot  |  omit --compat",
        ),
    ];
    for (hosts, n, options, expected) in vectors {
        let refusal = refusal(TWO_CORES, &request(Compat::OpenMpi5, hosts, Some(n), options));
        assert_eq!(refusal.to_string(), expected, "{hosts} {options}");
        assert!(!refusal.fits_when_idle());
    }
    let mut busy = nodes(TWO_CORES);
    busy[0].taken = CpuSet::range(0..1);
    let refusal = place(&busy, &request(Compat::OpenMpi5, "na:2", None, "bind-to=core"), 0).unwrap_err();
    assert!(refusal.fits_when_idle(), "{refusal}");
}

#[test]
fn openmpi5_refuses_incompatible_options() {
    let vectors = [
        ("map-by=core bind-to=package", "map by package or larger, or bind to core or smaller"),
        ("map-by=slot rank-by=fill", "use --map-by package"),
        ("map-by=ppr:2:node:span", "use --map-by package"),
        ("map-by=core:pe=2", "map by slot, or by a larger object"),
        ("map-by=package:pe=2 bind-to=none", "use --bind-to core or hwthread"),
    ];
    for (options, expected) in vectors {
        let refusal = refusal(SERVER, &request(Compat::OpenMpi5, "8,8", Some(4), options)).to_string();
        assert!(refusal.contains(expected), "{options}: {refusal}");
    }
    let mut gpus = request(Compat::OpenMpi5, "8,8", Some(4), "");
    gpus.policy.gpus_per_rank = 1;
    assert!(refusal(SERVER, &gpus).to_string().contains("--gpus-per-rank"));
}

#[test]
fn openmpi5_fills_the_last_ppr_object() {
    let one = request(Compat::OpenMpi5, "8,8", Some(3), "map-by=ppr:2:package");
    let placement = place(&nodes(SERVER), &one, 0).unwrap();
    assert_eq!((ranks(&placement), placement.app_sizes), ("0 1 2 3".into(), vec![4]));
}

#[test]
fn openmpi5_notifies_when_it_drops_a_default_binding() {
    let placement = place(&nodes(TWO_CORES), &request(Compat::OpenMpi5, "4,2", Some(5), "map-by=slot"), 0).unwrap();
    assert_eq!(threads(&placement), "- - - - / 0-1");
    assert_eq!(placement.notices, ["ranks on na are not bound: the node offers more slots than cpus"]);
}

#[test]
fn openmpi5_has_defaults_of_its_own() {
    let resolved = |n, options: &str| {
        let policy = place(&nodes(SERVER), &request(Compat::OpenMpi5, "8,8", Some(n), options), 0).unwrap().policy;
        let bind = policy.bind_to.unwrap().kind.map_or("none", Kind::name);
        format!("{} {} {bind}", policy.map_by, policy.rank_by.unwrap())
    };
    let vectors = [
        (4, "", "core fill core"),
        (4, "bind-to=package", "package fill package"),
        (4, "bind-to=none", "slot slot none"),
        (2, "map-by=slot", "slot slot core"),
        (3, "map-by=slot", "slot slot numa"),
        (3, "map-by=node", "node node numa"),
        (3, "map-by=numa:span", "numa:span span numa"),
        (3, "map-by=:pe=2", "slot:pe=2 slot core"),
        (3, "map-by=:hwtcpus", "core:hwtcpus fill core"),
        (3, "map-by=:oversubscribe", "core:oversubscribe fill none"),
        (2, "map-by=ppr:1:node", "ppr:1:node slot core"),
    ];
    for (n, options, expected) in vectors {
        assert_eq!(resolved(n, options), expected, "{n} {options}");
    }
}

#[test]
fn openmpi5_counts_what_other_jobs_use_and_what_is_not_listed() {
    let ask = |nodes: &[NodeOffer], hosts: &str, options: &str| {
        ranks(&place(nodes, &request(Compat::OpenMpi5, hosts, None, options), 0).unwrap())
    };
    let mut nodes = nodes(SERVER);
    assert_eq!(ask(&nodes, "-,-", "map-by=slot").split(" / ").count(), 2);
    nodes[0].in_use = 6;
    assert_eq!(ask(&nodes, "-", ""), "0 1");
    assert_eq!(ask(&nodes, "na:*", ""), "0 1");
    assert_eq!(ask(&nodes, "na", ""), "0");
    assert_eq!(ask(&nodes, "-", "map-by=slot:hwtcpus"), "0 1 2 3 4 5 6 7 8 9");
    assert_eq!(ask(&nodes, "na,nb", "map-by=slot:nolocal"), "0");
    nodes[0].taken = CpuSet::range(0..6);
    let placement = place(&nodes, &request(Compat::OpenMpi5, "na:2", None, "bind-to=core"), 0).unwrap();
    assert_eq!(threads(&placement), "6-7 8-9");
}

#[test]
fn openmpi5_numbers_programs_one_after_another() {
    let mut two = request(Compat::OpenMpi5, "3,3", Some(2), "map-by=node");
    two.apps.push(App { n: Some(3), hosts: hosts("3,3") });
    let placement = place(&nodes(SERVER), &two, 0).unwrap();
    assert_eq!((ranks(&placement), placement.app_sizes), ("0 2 4 / 1 3".into(), vec![2, 3]));
    two.apps[1].n = None;
    assert!(refusal(SERVER, &two).to_string().contains("-n for each"));
}

#[test]
fn reasons_tell_slots_from_shares() {
    let reasons = |compat, n, options: &str| {
        let placement = place(&nodes(TWO_CORES), &request(compat, "2,2", Some(n), options), 0).unwrap();
        let on = |bindings: &Arc<[RankBinding]>| bindings.iter().map(|b| b.reason.to_string()).collect::<Vec<_>>();
        placement.bindings.iter().map(on).collect::<Vec<_>>()
    };
    let expected = ["slot 1 of 2", "slot 2 of 2", "slot pass 2, share 1 of 2", "slot pass 2, share 2 of 2"];
    assert_eq!(reasons(Compat::OpenMpi5, 8, "map-by=slot:oversubscribe"), [expected]);
    assert_eq!(reasons(Compat::Hydra, 8, ""), [expected]);
    assert_eq!(reasons(Compat::OpenMpi5, 4, "map-by=ppr:1:core"), [["1 of 1 on core 0", "1 of 1 on core 1"]]);
    assert_eq!(reasons(Compat::OpenMpi5, 4, "map-by=ppr:2:node"), [["1 of 2 on the node", "2 of 2 on the node"]]);
}

#[test]
fn mappings_that_neither_launcher_offers_follow_our_rule() {
    for compat in [Compat::OpenMpi5, Compat::Hydra] {
        let placement = place(&nodes(TWO_CORES), &request(compat, "nb,na,nb", Some(3), "map-by=seq"), 0).unwrap();
        assert_eq!((ranks(&placement), placement.policy.compat), ("0 2 / 1".into(), compat));
    }
}

#[test]
fn too_many_ranks_on_one_node_are_refused() {
    for compat in [Compat::OpenMpi5, Compat::Hydra] {
        let many = request(compat, "na:2", Some(100_000), "map-by=slot:oversubscribe");
        let refusal = refusal(TWO_CORES, &many).to_string();
        assert!(refusal.starts_with("100000 ranks on na, at most 65536 per node"), "{refusal}");
    }
}

#[test]
fn hydra_wraps_without_limit() {
    let vectors = [
        ("2,2", Some(8), "", "0 1 4 5 / 2 3 6 7"),
        ("2,2", Some(9), "", "0 1 4 5 8 / 2 3 6 7"),
        ("4,1", Some(9), "", "0 1 2 3 5 6 7 8 / 4"),
        ("2,2", Some(8), "map-by=ppr:1:node", "0 2 4 6 / 1 3 5 7"),
        ("2,2", Some(8), "map-by=node", "0 2 4 6 / 1 3 5 7"),
        ("2,2", Some(8), "map-by=ppr:3:node", "0 1 2 6 7 / 3 4 5"),
        ("-,-", Some(4), "", "0 2 / 1 3"),
        ("2,2", None, "", "0 1 / 2 3"),
        ("na:2,nb:2,na:1", Some(7), "", "0 1 4 5 6 / 2 3"),
        ("", None, "", "0 1 / 2 3 / 4 5"),
        ("na:*,nb", None, "", "0 1 / 2"),
        ("2/2,2/2", Some(6), "", "0 1 4 5 / 2 3"),
    ];
    for (hosts, n, options, expected) in vectors {
        let placement = place(&nodes(TWO_CORES), &request(Compat::Hydra, hosts, n, options), 0).unwrap();
        assert_eq!(ranks(&placement), expected, "{hosts} {n:?} {options}");
        assert!(!threads(&placement).contains(|c: char| c.is_ascii_digit()), "no binding was requested");
    }
    let mut two = request(Compat::Hydra, "2,2", Some(3), "");
    two.apps.push(two.apps[0].clone());
    assert_eq!(ranks(&place(&nodes(TWO_CORES), &two, 0).unwrap()), "0 1 4 5 / 2 3");
}

#[test]
fn hydra_binds_in_turn() {
    let vectors = [
        (4, "bind-to=core", "0-1 2-3 4-5 6-7"),
        (4, "bind-to=package", "0-7 8-15 0-7 8-15"),
        (3, "map-by=slot:pe=3 bind-to=core", "0-5 6-11 0-1,12-15"),
        (4, "map-by=package bind-to=core", "0-1 8-9 2-3 10-11"),
        (3, "map-by=package bind-to=hwthread", "0 8 1"),
    ];
    for (n, options, expected) in vectors {
        let placement = place(&nodes(SERVER), &request(Compat::Hydra, "na:4", Some(n), options), 0).unwrap();
        assert_eq!(threads(&placement), expected, "{options}");
    }
    let refusal = refusal(SERVER, &request(Compat::Hydra, "na:4", Some(4), "bind-to=l3cache")).to_string();
    assert!(refusal.starts_with("na has no l3cache to bind ranks to"), "{refusal}");
    let placement = place(&nodes(SERVER), &request(Compat::Hydra, "na", None, "bind-to=l3cache:if-supported"), 0);
    assert_eq!(threads(&placement.unwrap()), "-");
}

#[test]
fn hydra_refuses_options_that_it_does_not_offer() {
    let vectors = [
        "rank-by=node",
        "map-by=slot:span",
        "map-by=slot:hwtcpus",
        "map-by=slot:nooversubscribe",
        "map-by=slot:pe=2",
        "map-by=ppr:1:core",
    ];
    for options in vectors {
        let refusal = refusal(SERVER, &request(Compat::Hydra, "2,2", Some(2), options));
        assert!(refusal.to_string().starts_with("--compat hydra: "), "{options}: {refusal}");
    }
}

fn any_machine() -> impl Strategy<Value = NodeOffer> {
    let levels = [Kind::Package, Kind::Numa, Kind::L3, Kind::L2, Kind::Core, Kind::Thread];
    let counts = (prop::collection::vec(1u32..4, levels.len()), prop::collection::vec(any::<bool>(), levels.len()));
    (counts, 0u32..12, 0u32..6, any::<u64>(), any::<u64>()).prop_map(
        move |((counts, told), slots, in_use, usable, taken)| {
            let told = |at: &usize| told[*at] || levels[*at] == Kind::Core;
            let levels: Vec<_> = (0..levels.len()).filter(told).map(|at| (levels[at], counts[at])).collect();
            let topology = Arc::new(Topology::regular(&levels).unwrap());
            let mask = |bits: u64| topology.all().iter().filter(|cpu| bits >> (cpu % 64) & 1 == 1).collect::<CpuSet>();
            let usable = Some(mask(usable)).filter(|usable| !usable.is_empty()).unwrap_or(topology.all());
            let taken = usable.and(&mask(taken & 0x1111));
            NodeOffer { slots, in_use, usable, taken, topology, ..node(0, [1, 1, 1]) }
        },
    )
}

fn any_options() -> impl Strategy<Value = String> {
    let map = prop::sample::select(vec![
        "",
        "slot",
        "node",
        "hwthread",
        "core",
        "l2cache",
        "l3cache",
        "numa",
        "package",
        "ppr:1:node",
        "ppr:2:package",
        "ppr:1:core",
        "ppr:3:l2cache",
        "ppr:1:hwthread",
    ]);
    let modifiers = prop::sample::subsequence(vec!["span", "pe=2", "hwtcpus", "oversubscribe", "nolocal"], 0..4);
    let rank = prop::sample::select(vec!["", "slot", "node", "fill", "span"]);
    let bind = prop::sample::select(vec!["", "none", "hwthread", "core", "l3cache", "numa", "package"]);
    let how = prop::sample::select(vec!["", ":overload-allowed", ":if-supported"]);
    (map, modifiers, rank, bind, how).prop_map(|(map, modifiers, rank, bind, how)| {
        let map = modifiers.iter().fold(map.to_owned(), |map, modifier| format!("{map}:{modifier}"));
        let option =
            |name: &str, value: &str| if value.is_empty() { String::new() } else { format!("{name}={value} ") };
        let how = if bind.is_empty() { "" } else { how };
        option("map-by", &map) + &option("rank-by", rank) + &option("bind-to", &format!("{bind}{how}"))
    })
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(2000))]

    #[test]
    fn every_request_is_placed_completely_or_refused(
        machines in prop::collection::vec(any_machine(), 1..4),
        list in prop::sample::select(vec!["", "na", "na,na", "na:3", "na:*", "2", "1/3", "-", "-/2"]),
        n in prop::option::of(1u32..30),
        options in any_options(),
        hydra in any::<bool>(),
        programs in 1usize..3,
    ) {
        let name = |id: usize| ["na", "nb", "nc"][id].to_owned();
        let nodes: Vec<NodeOffer> =
            machines.into_iter().enumerate().map(|(id, own)| NodeOffer { id: id as u32, name: name(id), ..own }).collect();
        let compat = if hydra { Compat::Hydra } else { Compat::OpenMpi5 };
        let mut request = request(compat, list, n, &options);
        request.apps.resize(programs, request.apps[0].clone());
        let Ok(placement) = place(&nodes, &request, 0) else { return Ok(()) };
        let mut seen = vec![false; placement.map.size() as usize];
        let runs = placement.binding_runs.iter().flat_map(|(count, index)| (0..*count).map(|_| *index as usize));
        let runs: Vec<usize> = runs.collect();
        prop_assert_eq!(runs.len(), placement.map.nodes().len());
        for (id, index) in placement.map.nodes().iter().zip(runs) {
            let bindings = &placement.bindings[index];
            prop_assert_eq!(placement.map.count_on(*id) as usize, bindings.len());
            for (rank, binding) in placement.map.ranks_on(*id).zip(bindings.iter()) {
                prop_assert!(!std::mem::replace(&mut seen[rank as usize], true), "rank {} is there twice", rank);
                prop_assert!(binding.threads.is_subset(&nodes[*id as usize].usable));
            }
        }
        prop_assert!(seen.into_iter().all(|seen| seen));
        prop_assert_eq!(placement.app_sizes.iter().sum::<u32>(), placement.map.size());
        prop_assert_eq!(placement.used, placement.map.counts());
        if let (Some(n), 1) = (n, programs) {
            let objects = matches!(request.policy.map_by.directive, Some(Directive::Ppr { per: Some(_), .. }));
            prop_assert!(placement.map.size() == n || objects && placement.map.size() > n);
        }
        prop_assert_eq!(place(&nodes, &request, 0).map(|again| again.map), Ok(placement.map));
    }
}
