//! Vectors `hosts | ranks | flags | result`, where a result lists the ranks of each node. Those marked OMPI are the answers of Open
//! MPI 4.1.4 and 5.0.11.

use proptest::prelude::*;

use super::policy::Directive;
use super::*;

mod binding;
mod mapping;
mod properties;

fn node(id: NodeId, slots: u32) -> NodeOffer {
    let topology = Arc::new(Topology::regular(&[(Kind::Core, slots.clamp(1, 64))]).unwrap());
    NodeOffer {
        id,
        name: format!("node{id}"),
        slots,
        slots_reason: format!("{slots} cores"),
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

fn nodes(slots: &[u32]) -> Vec<NodeOffer> {
    slots.iter().enumerate().map(|(id, slots)| node(id as NodeId, *slots)).collect()
}

fn host(name: &str, slots: Option<u32>, max_slots: Option<u32>) -> Host {
    Host { name: name.into(), slots, max_slots, source: "--host".into() }
}

/// A host file's lines: `name`, `name:slots` or `name:slots:max_slots`, 0 for none.
fn hostfile(lines: &[&str]) -> Vec<Host> {
    let entry = |(at, line): (usize, &&str)| {
        let mut words = line.split(':');
        let name = words.next().unwrap().to_owned();
        let mut number = || words.next().map(|word| word.parse::<u32>().unwrap()).filter(|number| *number > 0);
        Host { name, slots: number(), max_slots: number(), source: format!("hostfile ./hosts:{}", at + 1) }
    };
    lines.iter().enumerate().map(entry).collect()
}

fn request(n: Option<u32>, hosts: Vec<Host>, flags: &str) -> Request {
    job(vec![App { n, hosts }], flags.contains("node"), flags.contains("oversubscribe"))
}

fn job(apps: Vec<App>, by_node: bool, oversubscribe: bool) -> Request {
    let mut policy = Policy::default();
    policy.map_by.directive = Some(if by_node { Directive::Node } else { Directive::Slot });
    Request { apps, policy, oversubscribe, rankfile: Vec::new(), needs: Vec::new() }
}

fn ranks(placement: &Placement) -> String {
    let on = |id: &NodeId| {
        let ranks: Vec<String> = placement.map.ranks_on(*id).map(|rank| rank.to_string()).collect();
        ranks.join(" ")
    };
    placement.map.nodes().iter().map(on).collect::<Vec<_>>().join(" / ")
}

fn refusal(nodes: &[NodeOffer], request: &Request) -> Refusal {
    place(nodes, request, 0).unwrap_err()
}

#[test]
fn slots_fill_before_overflow_is_shared() {
    // Slots of each node, 0:MAX after a colon for max_slots; ranks (0: not given); flags; ranks of each node.
    let vectors: &[(&[u32], u32, &str, &str)] = &[
        (&[2, 2], 3, "slot", "0 1 / 2"),                                      // OMPI
        (&[2, 2], 8, "slot:oversubscribe", "0 1 2 3 / 4 5 6 7"),              // OMPI
        (&[2, 2], 8, "node:oversubscribe", "0 2 4 6 / 1 3 5 7"),              // OMPI
        (&[2, 2], 9, "slot:oversubscribe", "0 1 2 3 4 / 5 6 7 8"),            // OMPI
        (&[4, 1], 9, "slot:oversubscribe", "0 1 2 3 4 5 / 6 7 8"),            // OMPI
        (&[4, 1], 10, "slot:oversubscribe", "0 1 2 3 4 5 6 / 7 8 9"),         // OMPI
        (&[4, 1], 9, "node:oversubscribe", "0 2 4 6 8 / 1 3 5 7"),            // OMPI
        (&[2, 2, 2], 11, "slot:oversubscribe", "0 1 2 3 / 4 5 6 7 / 8 9 10"), // OMPI
        (&[2, 2], 4, "node", "0 2 / 1 3"),                                    // OMPI
        (&[2, 1], 4, "node:oversubscribe", "0 2 / 1 3"),                      // OMPI
        (&[1, 5], 5, "node", "0 / 1 2 3 4"),
        (&[1, 5], 6, "slot:oversubscribe", "0 / 1 2 3 4 5"),
        (&[1, 5], 4, "node:oversubscribe", "0 / 1 2 3"),
        (&[16, 16], 5, "slot", "0 1 2 3 4"), // OMPI
        (&[2, 1], 0, "slot", "0 1 / 2"),     // OMPI
        (&[2, 2], 0, "node", "0 2 / 1 3"),
        (&[0, 0], 3, "slot:oversubscribe", "0 1 / 2"),
        (&[0, 1], 0, "slot:oversubscribe", "0"),
    ];
    for (slots, n, flags, expected) in vectors {
        let own = place(&nodes(slots), &request((*n > 0).then_some(*n), Vec::new(), flags), 0).unwrap();
        assert_eq!(ranks(&own), *expected, "{slots:?} -n {n} {flags}");
        // The same through a host list over larger nodes.
        if slots.iter().all(|slots| *slots > 0) {
            let list = slots.iter().enumerate().map(|(id, slots)| host(&format!("node{id}"), Some(*slots), None));
            let large = nodes(&vec![64; slots.len()]);
            let listed = place(&large, &request((*n > 0).then_some(*n), list.collect(), flags), 0).unwrap();
            assert_eq!(ranks(&listed), *expected, "{slots:?} -n {n} {flags} by list");
        }
    }
}

#[test]
fn a_host_list_limits_how_much_of_a_node_a_job_uses() {
    let vectors: &[(&[&str], u32, &str, &str)] = &[
        (&["node0", "node1", "node0"], 0, "", "0 1 / 2 3 4 5 6 7 8 9"), // twice: two slots; once: the whole node
        (&["node1:1", "node0:2"], 0, "", "0 / 1 2"),                    // in the list's order
        (&["node0:1", "node1:1", "node0:2"], 0, "", "0 1 2 / 3"),
        (&["node0:2:20", "node1:2:20"], 8, "oversubscribe", "0 1 2 3 / 4 5 6 7"),
        (&["node0:2:20", "node1:2:20"], 8, "node:oversubscribe", "0 2 4 6 / 1 3 5 7"),
        (&["node0:0:3", "node1:2"], 5, "", "0 1 2 / 3 4"), // max_slots alone also sets the slots
        (&["node0:2:3", "node1:2"], 8, "oversubscribe", "0 1 2 / 3 4 5 6 7"), // what node0 may not take goes to node1
        (&["node0:2:3", "node1:2"], 8, "node:oversubscribe", "0 2 4 / 1 3 5 6 7"),
        (&["node0:2", "node1:1:1", "node2:1"], 9, "oversubscribe", "0 1 2 3 4 / 5 / 6 7 8"),
        (&["node0:8:4", "node1:8:4"], 8, "", "0 1 2 3 / 4 5 6 7"),
        (&["node0:99"], 0, "", "0 1 2 3 4 5 6 7"), // at most the node's own slots
    ];
    for (lines, n, flags, expected) in vectors {
        let request = request((*n > 0).then_some(*n), hostfile(lines), flags);
        let placement = place(&nodes(&[8, 8, 8]), &request, 0).unwrap();
        assert_eq!(ranks(&placement), *expected, "{lines:?} -n {n} {flags}");
    }
}

#[test]
fn a_node_without_free_slots_still_takes_its_share_of_overflow() {
    let mut busy = nodes(&[4, 4]);
    busy[0].in_use = 4;
    busy[1].in_use = 1;
    assert_eq!(place(&busy, &request(Some(3), Vec::new(), ""), 0).unwrap().used, [(1, 3)]);
    assert_eq!(place(&busy, &request(Some(5), Vec::new(), "oversubscribe"), 0).unwrap().used, [(0, 1), (1, 4)]);
    busy[0].in_use = 9; // oversubscribed itself
    assert_eq!(place(&busy, &request(None, Vec::new(), ""), 0).unwrap().used, [(1, 3)]);
}

#[test]
fn each_program_is_placed_on_what_earlier_programs_left() {
    let app = |n, hosts: &[&str]| App { n, hosts: hostfile(hosts) };
    let mut job = job(vec![app(Some(3), &[]), app(Some(2), &[])], false, false);
    let placement = place(&nodes(&[2, 4]), &job, 0).unwrap();
    assert_eq!((ranks(&placement).as_str(), &placement.app_sizes[..]), ("0 1 / 2 3 4", &[3, 2][..]));

    job.apps = vec![app(Some(1), &["node1"]), app(None, &[])];
    let placement = place(&nodes(&[2, 4]), &job, 0).unwrap();
    assert_eq!(placement.app_sizes, [1, 5]);
    assert_eq!(placement.map.nodes(), [1, 0]);
    assert_eq!(placement.map.ranks_on(1).collect::<Vec<_>>(), [0, 3, 4, 5]);
    assert_eq!(placement.used, [(1, 4), (0, 2)]);

    job.policy.map_by.directive = Some(Directive::Node);
    job.apps = vec![app(Some(2), &[]), app(Some(4), &[])];
    assert_eq!(ranks(&place(&nodes(&[3, 3]), &job, 0).unwrap()), "0 2 4 / 1 3 5");
}

#[test]
fn a_host_list_counts_the_ranks_of_the_whole_job() {
    let list = hostfile(&["node0:2:3"]);
    let app = App { n: Some(2), hosts: list };
    let mut job = self::job(vec![app.clone(), app], false, false);
    assert_eq!(
        refusal(&nodes(&[8]), &job).to_string(),
        "2 ranks requested for program 2, 0 slots free on 1 node\n  \
           node0  2 slots (hostfile ./hosts:1)   0 in use, 2 for this job's other programs"
    );
    job.apps[1].n = Some(1);
    job.oversubscribe = true;
    assert_eq!(place(&nodes(&[8]), &job, 0).unwrap().used, [(0, 3)]);
}

#[test]
fn a_node_is_found_by_any_unambiguous_name() {
    let mut named = nodes(&[1; 5]);
    for (node, name) in named.iter_mut().zip(["n0", "N1.cluster.org", "10.0.0.7", "a.x", "a.y"]) {
        node.name = name.into();
    }
    let found = |name: &str| place(&named, &request(Some(1), vec![host(name, None, None)], ""), 2).map(|p| p.used[0].0);
    assert_eq!(found("n0"), Ok(0));
    assert_eq!(found("N0.cluster.org"), Ok(0));
    assert_eq!(found("n1.CLUSTER.org"), Ok(1));
    assert_eq!(found("n1"), Ok(1));
    assert_eq!(found("localhost"), Ok(2));
    assert_eq!(found("a.y"), Ok(4));
    let several = found("a").unwrap_err().to_string();
    assert_eq!(several, "a (--host) names 2 nodes: a.x (+id3), a.y (+id4); use one of these names");
    for unknown in ["n1.other.org", "10", "10.0.0.8", "", ".cluster.org"] {
        assert!(matches!(found(unknown), Err(Refusal::UnknownHost { .. })), "{unknown}");
    }
    named[4].name = "localhost".into();
    let by_name = place(&named, &request(Some(1), vec![host("localhost", None, None)], ""), 2).unwrap();
    assert_eq!(by_name.used, [(4, 1)]);
}

#[test]
fn too_many_ranks_are_refused_with_the_offers_and_fixes() {
    let list = hostfile(&["node0:2:20", "node1:2:20"]);
    assert_eq!(
        refusal(&nodes(&[8, 8]), &request(Some(8), list.clone(), "")).to_string(),
        "8 ranks requested, 4 slots free on 2 nodes\n  \
           node0  2 slots (hostfile ./hosts:1)   0 in use\n  \
           node1  2 slots (hostfile ./hosts:2)   0 in use\n\
         fix one of:  -n 4   |  --oversubscribe (=> node0: 0-3, node1: 4-7)  |  slots=4 in ./hosts"
    );
    assert_eq!(
        refusal(&nodes(&[2, 2]), &request(Some(8), list, "node")).to_string(),
        "8 ranks requested, 4 slots free on 2 nodes\n  \
           node0  2 slots (hostfile ./hosts:1)   0 in use\n  \
           node1  2 slots (hostfile ./hosts:2)   0 in use\n\
         fix one of:  -n 4   |  --oversubscribe (=> node0: 0 2 4 6, node1: 1 3 5 7)  |  \
         slots=4 in ./hosts and rsd start --slots 4"
    );
    assert_eq!(
        refusal(&nodes(&[2, 16]), &request(Some(30), hostfile(&["node0:4", "node1"]), "")).to_string(),
        "30 ranks requested, 18 slots free on 2 nodes\n  \
           node0  2 of 4 slots requested by ./hosts:1 (2 cores)   0 in use\n  \
           node1  16 slots (16 cores)                             0 in use\n\
         fix one of:  -n 18  |  --oversubscribe (=> node0: 0-7, node1: 8-29)"
    );
    assert_eq!(
        refusal(&nodes(&[1]), &request(Some(2), Vec::new(), "")).to_string(),
        "2 ranks requested, 1 slot free on 1 node\n  \
           node0  1 slot (1 cores)   0 in use\n\
         fix one of:  -n 1   |  --oversubscribe (=> node0: 0-1)  |  rsd start --slots 2"
    );
    assert_eq!(
        refusal(&nodes(&[8, 8]), &request(Some(8), vec![host("node1", Some(2), None)], "")).to_string(),
        "8 ranks requested, 2 slots free on 1 node\n  \
           node1  2 slots (--host)   0 in use\n\
         fix one of:  -n 2   |  --oversubscribe (=> node1: 0-7)  |  --host node1:8"
    );
}

#[test]
fn a_refusal_on_many_nodes_is_short() {
    let mut busy = nodes(&[4; 18]);
    busy[0].in_use = 1;
    let text = refusal(&busy, &request(Some(100), Vec::new(), "")).to_string();
    assert_eq!(
        text,
        "100 ranks requested, 72 slots on 18 nodes without other jobs\n  \
           node0  4 slots (4 cores)   1 in use\n  \
           node1  4 slots (4 cores)   0 in use\n  \
           node2  4 slots (4 cores)   0 in use\n  \
           node3  4 slots (4 cores)   0 in use\n  \
           node4  4 slots (4 cores)   0 in use\n  \
           … and 13 more nodes\n\
         fix one of:  -n 72  |  --oversubscribe (=> node0: 0-5, node1: 6-11, node2: 12-17, node3: 18-23, …)  |  \
         rsd start --slots 6"
    );
}

#[test]
fn max_slots_is_never_exceeded_and_the_refusal_lists_the_limits() {
    let list = hostfile(&["node0:2:3", "node1:2:4"]);
    let refused = refusal(&nodes(&[8, 8]), &request(Some(9), list, "oversubscribe"));
    assert!(matches!(refused, Refusal::MaxSlots(_)) && !refused.fits_when_idle());
    assert_eq!(
        refused.to_string(),
        "9 ranks requested, max_slots allows 7 on 2 nodes\n  \
           node0  at most 3 ranks (hostfile ./hosts:1)   0 in use\n  \
           node1  at most 4 ranks (hostfile ./hosts:2)   0 in use\n\
         fix one of:  -n 7   |  max_slots=5 in ./hosts"
    );
}

#[test]
fn a_fix_that_would_not_work_is_not_suggested() {
    // Neither oversubscribing nor slots=4 gets past max_slots.
    let list = hostfile(&["node0:2:3", "node1:2:3"]);
    let text = refusal(&nodes(&[8, 8]), &request(Some(8), list, "")).to_string();
    assert!(text.ends_with("\nfix:  -n 4"), "{text}");
}

#[test]
fn a_job_that_only_lacks_busy_slots_may_queue() {
    let mut busy = nodes(&[2, 2]);
    busy[1].in_use = 2;
    let refused = refusal(&busy, &request(Some(3), Vec::new(), ""));
    assert!(refused.fits_when_idle());
    assert_eq!(
        refused.to_string(),
        "3 ranks requested, 2 slots free on 2 nodes\n  \
           node0  2 slots (2 cores)   0 in use\n  \
           node1  2 slots (2 cores)   2 in use\n\
         the job fits once other jobs end"
    );
    assert!(!refusal(&busy, &request(Some(5), Vec::new(), "")).fits_when_idle());
    busy[0].in_use = 3;
    let all = refusal(&busy, &request(None, hostfile(&["node0:1", "node1:2"]), ""));
    assert!(all.fits_when_idle());
    assert!(all.to_string().starts_with(
        "one rank per slot requested, 0 slots free on 2 nodes\n  \
           node0  1 slot (hostfile ./hosts:1)    3 of 2 in use\n"
    ));
}

#[test]
fn an_impossible_request_names_what_is_wrong() {
    let refuse = |n, hosts| refusal(&nodes(&[2, 2]), &request(n, hosts, "oversubscribe")).to_string();
    assert_eq!(refuse(Some(0), Vec::new()), "0 ranks requested; request at least 1 with -n");
    assert_eq!(refuse(Some(20_000_000), Vec::new()), "20000000 ranks requested; a job has at most 16777216");
    assert_eq!(
        refuse(Some(1), hostfile(&["node0", "nodeX:2"])),
        "hostfile ./hosts:2: no node named nodeX in this DVM (nodes: node0, node1)"
    );
    let many = refusal(&nodes(&[1; 20]), &request(Some(1), vec![host("x", None, None)], "")).to_string();
    assert!(many.ends_with("node6, node7 and 12 more)"), "{many}");
    assert_eq!(refusal(&[], &request(Some(1), Vec::new(), "")), Refusal::NoNodes);
    let no_program = job(Vec::new(), false, false);
    assert_eq!(refusal(&nodes(&[1]), &no_program), Refusal::ZeroRanks);
}

#[test]
fn huge_numbers_do_not_overflow() {
    let most = u32::MAX;
    let huge = [node(0, most), node(1, most)];
    let all = refusal(&huge, &request(None, Vec::new(), "node"));
    assert!(matches!(all, Refusal::TooMany { .. }), "{all}");
    let entry = || host("node0", Some(most), Some(most));
    let listed = request(Some(5), vec![entry(), entry()], "oversubscribe");
    assert_eq!(place(&huge, &listed, 0).unwrap().used, [(0, 5)]);
    let app = App { n: Some(ASKED_MAX), hosts: Vec::new() };
    let many = job(vec![app; 10_000], false, true);
    assert!(matches!(refusal(&nodes(&[1]), &many), Refusal::TooMany { .. }));
}

#[test]
fn ten_thousand_nodes_are_placed_in_both_orders() {
    let large = nodes(&vec![128; 10_000]);
    let by_slot = place(&large, &request(None, Vec::new(), "slot"), 0).unwrap();
    assert_eq!((by_slot.map.size(), by_slot.map.blocks().len()), (1_280_000, 1));
    let by_node = place(&large, &request(None, Vec::new(), "node"), 0).unwrap();
    assert_eq!((by_node.map.size(), by_node.map.blocks().len()), (1_280_000, 128));
    assert_eq!(by_node.map.node_of(10_001), Some(1));
    let mixed: Vec<u32> = (0..10_000).map(|id| if id < 400 { 64 } else { 128 }).collect();
    assert_eq!(place(&nodes(&mixed), &request(None, Vec::new(), "slot"), 0).unwrap().map.blocks().len(), 2);
}

proptest! {
    #[test]
    fn every_placement_keeps_the_rule(
        slots in prop::collection::vec((0u32..6, 0u32..6, prop::option::of(0u32..7), prop::option::of(1u32..9)), 1..7),
        asked in prop::collection::vec(prop::option::of(1u32..24), 1..3),
        by_node: bool,
        oversubscribe: bool,
        listed: bool,
    ) {
        let offers: Vec<NodeOffer> = slots
            .iter()
            .enumerate()
            .map(|(id, (slots, in_use, _, _))| NodeOffer { in_use: *in_use, ..node(id as NodeId, *slots) })
            .collect();
        let hosts: Vec<Host> = if listed {
            slots.iter().enumerate().map(|(id, (_, _, cap, max))| host(&format!("node{id}"), *cap, *max)).collect()
        } else {
            Vec::new()
        };
        let request = job(asked.iter().map(|n| App { n: *n, hosts: hosts.clone() }).collect(), by_node, oversubscribe);
        let offer = |id: usize| {
            let (slots, in_use, cap, max) = slots[id];
            let free = slots.saturating_sub(in_use);
            if listed { free.min(cap.or(max).unwrap_or(free)).min(max.unwrap_or(free)) } else { free }
        };
        let room = |id: usize| if listed { slots[id].3.unwrap_or(u32::MAX) } else { u32::MAX };
        match place(&offers, &request, 0) {
            Ok(Placement { map, app_sizes, used, .. }) => {
                let mut ranks: Vec<u32> = map.nodes().iter().flat_map(|id| map.ranks_on(*id)).collect();
                ranks.sort_unstable();
                prop_assert_eq!(ranks, (0..map.size()).collect::<Vec<_>>());
                prop_assert_eq!(app_sizes.iter().sum::<u32>(), map.size());
                prop_assert!(asked.iter().zip(&app_sizes).all(|(n, size)| n.is_none_or(|n| n == *size)));
                let overflows = used.iter().any(|(id, count)| *count > offer(*id as usize));
                prop_assert!(!overflows || oversubscribe);
                // No rank goes without a slot while one is free.
                let full = (0..offers.len()).all(|id| map.count_on(id as NodeId) >= offer(id));
                prop_assert!(!overflows || full);
                prop_assert!(used.iter().all(|(id, count)| *count <= room(*id as usize)));
                let wire = rsd_proto::v1::TaskMap::from(&map);
                prop_assert_eq!(TaskMap::try_from(wire), Ok(map));
            }
            Err(refusal) => {
                let (all, most): (u64, u64) =
                    ((0..offers.len()).map(|id| u64::from(offer(id))).sum(), (0..offers.len()).map(|id| u64::from(room(id))).sum());
                let total: u64 = asked.iter().map(|n| u64::from(n.unwrap_or(1))).sum();
                let limit = if oversubscribe && asked.iter().all(Option::is_some) { most } else { all };
                prop_assert!(total > limit || asked.contains(&None), "{}", refusal);
                prop_assert!(refusal.to_string().lines().count() <= 9);
            }
        }
    }
}
