//! Vectors of mapping and numbering on nodes of 2 packages × 4 cores × 2 threads with 8 slots each, unless a test says otherwise. A
//! result lists each node's ranks as `rank:cores`. OMPI: Open MPI 5.0.11 places and numbers the same.

use super::*;

pub(super) fn server() -> Arc<Topology> {
    Arc::new(Topology::regular(&[(Kind::Package, 2), (Kind::Core, 4), (Kind::Thread, 2)]).unwrap())
}

pub(super) fn of(id: NodeId, slots: u32, topology: &Arc<Topology>) -> NodeOffer {
    NodeOffer { usable: topology.all(), topology: Arc::clone(topology), ..node(id, slots) }
}

/// A request for one program: `-n`, `--map-by`, `--rank-by`, `--bind-to`; 0 and "" mean absent.
pub(super) fn ask(n: u32, map_by: &str, rank_by: &str, bind_to: &str) -> Request {
    let policy = Policy::from_texts(map_by, rank_by, bind_to, "", "", 0).unwrap();
    let oversubscribe = policy.map_by.oversubscribe == Some(true);
    let apps = vec![App { n: (n > 0).then_some(n), hosts: Vec::new() }];
    Request { apps, policy, oversubscribe, rankfile: Vec::new(), needs: Vec::new() }
}

/// The bindings of each of the map's nodes.
pub(super) fn by_node(placement: &Placement) -> Vec<&[RankBinding]> {
    let runs = placement.binding_runs.iter();
    runs.flat_map(|(count, at)| (0..*count).map(|_| &*placement.bindings[*at as usize])).collect()
}

/// `0:0-1 1:2-3 / 2:` — cores by logical index; a rank without cores is unbound.
pub(super) fn drawn(nodes: &[NodeOffer], placement: &Placement, kind: Kind) -> String {
    let per_node = placement.map.nodes().iter().zip(by_node(placement)).map(|(id, bindings)| {
        let topology = &nodes.iter().find(|node| node.id == *id).unwrap().topology;
        let ranks = placement.map.ranks_on(*id).zip(bindings);
        let ranks = ranks.map(|(rank, bound)| format!("{rank}:{}", topology.objects_of(kind, &bound.threads)));
        ranks.collect::<Vec<_>>().join(" ")
    });
    per_node.collect::<Vec<_>>().join(" / ")
}

/// Places a request and draws the result, or the first line of the refusal.
pub(super) fn cores(nodes: &[NodeOffer], request: &Request) -> String {
    match place(nodes, request, 0) {
        Ok(placement) => drawn(nodes, &placement, Kind::Core),
        Err(refusal) => refusal.to_string().lines().next().unwrap().to_owned(),
    }
}

#[test]
fn objects_take_turns_within_a_node_and_slots_decide_between_nodes() {
    let vectors = [
        // OMPI: na 0-3 on package 0, 4-7 on package 1; nb 8 9 on package 0, 10 11 on package 1.
        (12, "package", "", "0:0 1:1 2:2 3:3 4:4 5:5 6:6 7:7 / 8:0-1 9:2-3 10:4-5 11:6-7"),
        // OMPI: na 0 4 8 10 / 1 5 9 11; nb 2 6 / 3 7.
        (12, "package", "span", "0:0 1:4 4:1 5:5 8:2 9:6 10:3 11:7 / 2:0-1 3:4-5 6:2-3 7:6-7"),
        (12, "package", "slot", "0:0 1:4 2:1 3:5 4:2 5:6 6:3 7:7 / 8:0-1 9:4-5 10:2-3 11:6-7"),
        (12, "slot", "", "0:0 1:1 2:2 3:3 4:4 5:5 6:6 7:7 / 8:0-1 9:2-3 10:4-5 11:6-7"), // OMPI, its binding apart
        (6, "slot", "node", "0:0 1:1 2:2 3:3 4:4 5:5"),
        (6, "node", "", "0:0-1 2:2-3 4:4-5 / 1:0-1 3:2-3 5:4-5"), // OMPI
        (6, "node", "slot", "0:0-1 1:2-3 2:4-5 / 3:0-1 4:2-3 5:4-5"), // OMPI
        // 3 ranks get 2 cores each: package 1 has room for one, package 0 for the others.
        (3, "package", "", "0:0-1 1:2-3 2:4-5"),
        (2, "core", "", "0:0-3 1:4-7"),
        (4, "package:span", "", "0:0-3 1:4-7 / 2:0-3 3:4-7"), // OMPI
        (7, "package:span", "", "0:0-1 1:4-5 4:2-3 5:6-7 / 2:0-1 3:4-5 6:2-3"),
        (12, "hwthread", "", "0:0 1:1 2:2 3:3 4:4 5:5 6:6 7:7 / 8:0-1 9:2-3 10:4-5 11:6-7"),
        // OMPI: 4 per node, 2 cores each.
        (8, "slot:pe=2", "", "0:0-1 1:2-3 2:4-5 3:6-7 / 4:0-1 5:2-3 6:4-5 7:6-7"),
        (8, "package:pe=2", "", "0:0-1 1:2-3 2:4-5 3:6-7 / 4:0-1 5:2-3 6:4-5 7:6-7"),
        (3, "package:pe=2", "", "0:0-1 1:2-3 2:4-5"),
        (2, "slot:pe=4:hwtcpus", "", "0:0-1 1:2-3"),
        // OMPI: na 0 1 / 2 3; nb 4 5. A share of nb is a package.
        (6, "ppr:2:package", "", "0:0-1 1:2-3 2:4-5 3:6-7 / 4:0-3 5:4-7"),
        // OMPI: na 0 3 / 1 4; nb 2 5.
        (6, "ppr:2:package", "span", "0:0-1 1:4-5 3:2-3 4:6-7 / 2:0-3 5:4-7"),
        (0, "ppr:1:node", "", "0: / 1:"), // OMPI; a rank alone on its node needs no binding
        (0, "ppr:1:core", "", "0:0 1:1 2:2 3:3 4:4 5:5 6:6 7:7 / 8:0 9:1 10:2 11:3 12:4 13:5 14:6 15:7"),
        (18, "package:oversubscribe", "", "0: 1: 2: 3: 4: 5: 6: 7: 8: / 9: 10: 11: 12: 13: 14: 15: 16: 17:"),
        (3, "pe-list=0,2,5,6", "", "0:0 1:2 2:5"),
        (2, "pe-list=0,2,5,6", "", "0:0,2 1:5-6"),
        (3, "pe-list=6,0,2:ordered", "", "0:6 1:0 2:2"),
        (5, "pe-list=6,0,2:ordered", "", "0:6 1:0 2:2 / 3:6 4:0"),
    ];
    let nodes = [of(0, 8, &server()), of(1, 8, &server())];
    for (n, map_by, rank_by, expected) in vectors {
        assert_eq!(
            cores(&nodes, &ask(n, map_by, rank_by, "")),
            expected,
            "-n {n} --map-by {map_by} --rank-by {rank_by}"
        );
    }
}

#[test]
fn ranks_are_numbered_as_mapped_or_as_requested() {
    let nodes = nodes(&[2, 2]);
    let numbered = |map_by, rank_by| ranks(&place(&nodes, &ask(4, map_by, rank_by, ""), 0).unwrap());
    assert_eq!(numbered("node", ""), "0 2 / 1 3"); // OMPI
    assert_eq!(numbered("node", "slot"), "0 1 / 2 3"); // OMPI
    assert_eq!(numbered("slot", "node"), "0 2 / 1 3"); // OMPI
    assert_eq!(numbered("slot", "span"), "0 2 / 1 3");
    assert_eq!(numbered("core", ""), "0 1 / 2 3");
    assert_eq!(numbered("core", "span"), "0 1 / 2 3");
    assert_eq!(numbered("core", "node"), "0 2 / 1 3");
    let mut listed = ask(2, "seq", "node", "");
    listed.apps[0].hosts = hostfile(&["node0", "node1"]);
    assert_eq!(refusal(&nodes, &listed).to_string(), "seq and rankfile number the ranks themselves: omit --rank-by");
}

#[test]
fn overflow_does_not_depend_on_the_object_mapped_to() {
    let nodes = [of(0, 2, &server()), of(1, 2, &server())];
    for map_by in ["slot", "core", "package", "numa", "hwthread", "l3cache"] {
        let placement = place(&nodes, &ask(9, &format!("{map_by}:oversubscribe"), "", ""), 0).unwrap();
        assert_eq!(placement.used, [(0, 5), (1, 4)], "{map_by}");
        let reasons: Vec<String> = by_node(&placement)[0].iter().map(|rank| rank.reason.to_string()).collect();
        let mut sorted = reasons.clone();
        sorted.sort();
        let expected = [
            "slot 1 of 2",
            "slot 2 of 2",
            "slot pass 2, share 1 of 3",
            "slot pass 2, share 2 of 3",
            "slot pass 2, share 3 of 3",
        ];
        assert_eq!(sorted, expected, "{map_by}");
        if map_by == "slot" {
            assert_eq!(reasons, expected);
        }
    }
    let spread = |map_by| ranks(&place(&nodes, &ask(8, map_by, "", ""), 0).unwrap());
    assert_eq!(spread("package:oversubscribe:span"), "0 1 4 5 / 2 3 6 7"); // OMPI
    assert_eq!(spread("node:oversubscribe"), "0 2 4 6 / 1 3 5 7"); // OMPI
    assert_eq!(spread("core:oversubscribe"), "0 1 2 3 / 4 5 6 7"); // OMPI 4.1.4
}

#[test]
fn a_missing_kind_of_object_is_replaced_by_the_next_larger_with_one_notice() {
    let nodes = [of(0, 8, &server()), of(1, 8, &server())];
    let placement = place(&nodes, &ask(12, "l3cache", "", ""), 0).unwrap();
    assert_eq!(placement.notices, ["node0 has no L3 cache: ranks are mapped by package there (same on 1 other node)"]);
    let by_package = place(&nodes, &ask(12, "package", "", ""), 0).unwrap();
    assert_eq!((placement.map, placement.bindings), (by_package.map, by_package.bindings));

    let flat = [node(0, 4)];
    let placement = place(&flat, &ask(4, "numa", "", ""), 0).unwrap();
    assert_eq!(placement.notices, ["node0 has no NUMA node: ranks are mapped by node there"]);
    let ppr = place(&flat, &ask(0, "ppr:2:l2cache", "", ""), 0).unwrap();
    assert_eq!(ppr.used, [(0, 2)]);
    assert_eq!(by_node(&ppr)[0][1].reason.to_string(), "2 of 2 on the node");
}

#[test]
fn masked_and_taken_threads_are_skipped() {
    let mut nodes = [of(0, 8, &server())];
    nodes[0].usable = CpuSet::range(6..16); // cores 3 to 7
    assert_eq!(cores(&nodes, &ask(3, "package", "", "")), "0:3 1:4 2:5");
    assert_eq!(cores(&nodes, &ask(5, "package", "", "core")), "0:3 1:4 2:5 3:6 4:7");
    assert_eq!(cores(&nodes, &ask(1, "slot", "", "")), "0:3-7");
    nodes[0].usable = CpuSet::range(8..16); // package 1
    assert_eq!(cores(&nodes, &ask(2, "package", "", "")), "0:4-5 1:6-7");
    nodes[0].usable = nodes[0].topology.all();
    nodes[0].taken = [0, 9].into_iter().collect(); // a thread of cores 0 and 4
    assert_eq!(cores(&nodes, &ask(6, "package", "", "")), "0:1 1:2 2:3 3:5 4:6 5:7");
    assert_eq!(cores(&nodes, &ask(2, "slot", "", "")), "0:1-3 1:5-7");
    assert_eq!(cores(&nodes, &ask(1, "slot", "", "")), "0:1-3,5-7");
    // By thread, the free half of such a core is usable.
    let placement = place(&nodes, &ask(2, "hwthread", "", "hwthread"), 0).unwrap();
    assert_eq!(drawn(&nodes, &placement, Kind::Thread), "0:1 1:2");
}

#[test]
fn irregular_packages_take_the_ranks_that_they_have_room_for() {
    let object = |threads| topology::Object { threads, os: 0 };
    let lopsided =
        Topology::new(&[0, 1, 2, 3, 4, 5, 6, 7], [(Kind::Package, object(0..2)), (Kind::Package, object(2..8))]);
    let nodes = [of(0, 8, &Arc::new(lopsided.unwrap()))];
    assert_eq!(cores(&nodes, &ask(8, "package", "", "")), "0:0 1:1 2:2 3:3 4:4 5:5 6:6 7:7");
    assert_eq!(cores(&nodes, &ask(4, "package", "", "")), "0:0-1 1:2-3 2:4-5 3:6-7");
    assert_eq!(cores(&nodes, &ask(4, "package", "slot", "")), "0:0-1 1:2-3 2:4-5 3:6-7");
    assert_eq!(cores(&nodes, &ask(3, "package", "slot", "core")), "0:0 1:2 2:1");
}

#[test]
fn nodes_that_differ_are_placed_separately() {
    let small = Arc::new(Topology::regular(&[(Kind::Core, 2)]).unwrap());
    let nodes = [of(0, 8, &server()), of(1, 2, &small), of(2, 8, &server())];
    let placement = place(&nodes, &ask(18, "slot", "", ""), 0).unwrap();
    assert_eq!(placement.binding_runs, [(1, 0), (1, 1), (1, 0)]);
    assert!(drawn(&nodes, &placement, Kind::Core).contains(" / 8:0 9:1 / "));
    // Nodes that are alike count as one, even with separate topology values.
    let alike = place(&[of(0, 8, &server()), of(1, 8, &server())], &ask(16, "node", "", ""), 0).unwrap();
    assert_eq!((alike.bindings.len(), &alike.binding_runs[..]), (1, &[(2, 0)][..]));
}

#[test]
fn programs_may_share_a_node_but_not_a_core() {
    let nodes = [of(0, 8, &server())];
    let mut request = ask(2, "package", "", "");
    request.apps.push(App { n: Some(2), hosts: Vec::new() });
    assert_eq!(cores(&nodes, &request), "0:0-1 1:4-5 2:2-3 3:6-7");
    let placement = place(&nodes, &request, 0).unwrap();
    assert_eq!(by_node(&placement)[0][2].reason.to_string(), "slot 3 of 8");
}

#[test]
fn a_placement_reports_its_policy_with_defaults() {
    let nodes = [of(0, 8, &server())];
    let texts = |n, map_by, bind_to| {
        let policy = place(&nodes, &ask(n, map_by, "", bind_to), 0).unwrap().policy;
        format!("{} {} {}", policy.map_by, policy.rank_by.unwrap(), policy.bind_to.unwrap())
    };
    assert_eq!(texts(2, "", ""), "slot slot core:if-supported");
    assert_eq!(texts(1, "node", ""), "node node none");
    assert_eq!(texts(2, "package", ""), "package fill core:if-supported");
    assert_eq!(texts(2, "package:span", ""), "package:span span core:if-supported");
    assert_eq!(texts(2, "slot:pe=2", ""), "slot:pe=2 slot core");
    assert_eq!(texts(2, "", "package"), "slot slot package");
    assert_eq!(texts(0, "ppr:2:package", "none"), "ppr:2:package slot none");
}

#[test]
fn nolocal_excludes_the_head() {
    let nodes = nodes(&[4, 4]);
    assert_eq!(place(&nodes, &ask(0, "slot:nolocal", "", ""), 0).unwrap().used, [(1, 4)]);
    let refused = refusal(&nodes[..1], &ask(1, "slot:nolocal", "", "")).to_string();
    assert_eq!(refused, "nolocal excludes the head's node, and no other node is available: omit nolocal");
}

#[test]
fn ppr_is_exact_or_refused() {
    let nodes = [of(0, 3, &server()), of(1, 8, &server())];
    assert_eq!(
        refusal(&nodes, &ask(6, "ppr:2:package", "", "")).to_string(),
        "6 ranks requested by ppr:2:package, room for 3 on 2 nodes\n  \
           node0  3 slots (3 cores), 4 ranks requested   0 in use\n  \
           node1  8 slots (8 cores), 4 ranks requested   0 in use\n\
         fix one of:  -n 3   |  --oversubscribe (=> node0: 0-3, node1: 4-5)  |  rsd start --slots 4"
    );
    assert_eq!(place(&nodes, &ask(6, "ppr:2:package:oversubscribe", "", ""), 0).unwrap().used, [(0, 4), (1, 2)]);
    let all = refusal(&nodes, &ask(0, "ppr:2:package", "", "")).to_string();
    assert!(all.starts_with("ranks requested by ppr:2:package, room for 3 on 2 nodes\n"), "{all}");
    let many = refusal(&nodes, &ask(9, "ppr:2:package:oversubscribe", "", ""));
    assert!(many.to_string().starts_with("9 ranks requested by ppr:2:package, room for 8 on 2 nodes\n"), "{many}");
    let refused = refusal(&nodes, &ask(9, "ppr:2:package:oversubscribe", "", ""));
    assert!(matches!(refused, Refusal::NotEnoughSlots(_)), "no max_slots was given");
    let placement = place(&nodes, &ask(3, "ppr:2:package", "", ""), 0).unwrap();
    let reasons: Vec<String> = by_node(&placement)[0].iter().map(|rank| rank.reason.to_string()).collect();
    assert_eq!(reasons, ["1 of 2 on package 0", "2 of 2 on package 0", "1 of 2 on package 1"]);
}

#[test]
fn seq_puts_rank_i_on_entry_i() {
    let nodes = nodes(&[4, 4]);
    let mut request = ask(0, "seq", "", "");
    request.apps[0].hosts = hostfile(&["node1", "node0", "node1"]);
    let placement = place(&nodes, &request, 0).unwrap();
    assert_eq!(
        (ranks(&placement).as_str(), drawn(&nodes, &placement, Kind::Core).as_str()),
        ("0 2 / 1", "0:0-1 2:2-3 / 1:")
    );
    assert_eq!(by_node(&placement)[0][0].reason, Reason::Listed);
    request.apps[0].n = Some(4);
    assert_eq!(
        refusal(&nodes, &request).to_string(),
        "4 ranks requested, 3 entries in the host list, and seq puts one rank on each: use -n 3, or list more hosts"
    );
    request.apps[0] = App { n: Some(2), hosts: Vec::new() };
    let refused = refusal(&nodes, &request).to_string();
    assert_eq!(refused, "seq needs a host list, with one entry for each rank: use --host or --hostfile");
    let mut full = nodes.clone();
    full[1].in_use = 3;
    request.apps[0] = App { n: None, hosts: hostfile(&["node1", "node1"]) };
    assert!(refusal(&full, &request).fits_when_idle());
    request.oversubscribe = true;
    assert_eq!(place(&full, &request, 0).unwrap().used, [(1, 2)]);
}

/// Rank, host, cpus.
type Line<'a> = (u32, &'a str, &'a str);

fn ranked(lines: &[Line<'_>], bind_to: &str) -> Request {
    let line = |(at, (rank, host, cpus)): (usize, &Line<'_>)| RankPlace {
        rank: *rank,
        host: (*host).into(),
        cpus: (*cpus).into(),
        source: format!("rankfile ./ranks:{}", at + 1),
    };
    Request { rankfile: lines.iter().enumerate().map(line).collect(), ..ask(0, "rankfile", "", bind_to) }
}

#[test]
fn a_rankfile_sets_the_exact_cpus() {
    let nodes = [of(0, 8, &server()), of(1, 8, &server())];
    let lines = [(1, "node1", "1:0-2"), (0, "node1", "0-1,3"), (2, "node0", ""), (3, "node1", "0:2,1:3")];
    assert_eq!(cores(&nodes, &ranked(&lines, "")), "0:0-1,3 1:4-6 3:2,7 / 2:");
    let placement = place(&nodes, &ranked(&lines, ""), 0).unwrap();
    assert!(placement.exclusive);
    assert_eq!(cores(&nodes, &ranked(&lines, "none")), "0: 1: 3: / 2:");
    assert_eq!(cores(&nodes, &ranked(&[(0, "node0", "5")], "package")), "0:4-7");
    let mut threads = ranked(&[(0, "node0", "1:1-2")], "");
    threads.policy.map_by.hwtcpus = true;
    assert_eq!(drawn(&nodes, &place(&nodes, &threads, 0).unwrap(), Kind::Thread), "0:9-10");
}

#[test]
fn a_mistake_in_a_rankfile_names_its_line() {
    let mut nodes = [of(0, 8, &server()), of(1, 8, &server())];
    nodes[1].taken = CpuSet::range(0..2);
    let text = |lines: &[Line<'_>]| refusal(&nodes, &ranked(lines, "")).to_string();
    let vectors: &[(&[Line<'_>], &str)] = &[
        (&[(0, "node0", "0"), (2, "node0", "1")], "rankfile ./ranks:2: no rank 2: the job has 2, numbered from 0"),
        (&[(0, "node0", "0"), (0, "node0", "1")], "rankfile ./ranks:2: rank 0 is already placed by rankfile ./ranks:1"),
        (&[(0, "node0", "8")], "rankfile ./ranks:1: 8: no core 8: node0 has 8, numbered from 0"),
        (&[(0, "node0", "2:0")], "rankfile ./ranks:1: 2:0: no package 2: node0 has 2, numbered from 0"),
        (&[(0, "node0", "1:4")], "rankfile ./ranks:1: 1:4: no core 4: package 1 has 4, numbered from 0"),
        (
            &[(0, "node0", "x")],
            "rankfile ./ranks:1: x: \"x\" is not a number; cpus are written as 0-3,6 or, within a package, as 1:0-2",
        ),
        (&[(0, "node0", "3-1")], "rankfile ./ranks:1: the range 3-1 is reversed: write 1-3"),
        (
            &[(0, "node0", "0-1"), (1, "node0", "1")],
            "rankfile ./ranks:2: core 1 of node0 already belongs to rank 0 (rankfile ./ranks:1); to share it, use \
             --bind-to core:overload-allowed",
        ),
        (&[(0, "nodeX", "0")], "rankfile ./ranks:1: no node named nodeX in this DVM (nodes: node0, node1)"),
        (
            &[(0, "node1", "0")],
            "rankfile ./ranks:1: core 0 of node1 is held by another job\nthe job fits once other jobs end",
        ),
        (&[], "mapping by rankfile needs a rank file with a line for each rank: use --rankfile"),
    ];
    for (lines, expected) in vectors {
        assert_eq!(text(lines), *expected);
    }
    let shared = ranked(&[(0, "node0", "0-1"), (1, "node0", "1")], "core:overload-allowed");
    assert_eq!(cores(&nodes, &shared), "0:0-1 1:1");
    let mut missing = ranked(&[(0, "node0", ""), (2, "node0", "")], "");
    missing.apps[0].n = Some(3);
    let refused = refusal(&nodes, &missing).to_string();
    assert_eq!(refused, "rankfile ./ranks:2: no line for rank 1 of 3; add: rank 1=HOST");
    let mut outside = ranked(&[(0, "node0", "")], "");
    outside.apps[0].hosts = vec![host("node1", None, None)];
    let refused = refusal(&nodes, &outside).to_string();
    assert_eq!(refused, "rankfile ./ranks:1: node0 is not in the program's host list: add it there, or omit the list");
    nodes[0].usable = CpuSet::range(0..4);
    assert_eq!(
        refusal(&nodes, &ranked(&[(0, "node0", "2")], "")).to_string(),
        "rankfile ./ranks:1: core 2 of node0 is not available; available cores: 0-1"
    );
}
