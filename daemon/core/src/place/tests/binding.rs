//! Bindings, their refusals, and GPUs. Nodes and notation are those of `mapping`.

use super::mapping::{ask, by_node, cores, drawn, of, server};
use super::*;

#[test]
fn a_default_binding_is_an_equal_share_and_never_fails() {
    let numa = Topology::regular(&[(Kind::Package, 2), (Kind::Numa, 1), (Kind::Core, 4)]).unwrap();
    let mut nodes = [of(0, 16, &Arc::new(numa))];
    let shares = [
        (1, "0:"), // the whole node needs no binding
        (2, "0:0-3 1:4-7"),
        (3, "0:0-1 1:2-3 2:4-5"),
        (5, "0:0 1:1 2:2 3:3 4:4"),
        (9, "0: 1: 2: 3: 4: 5: 6: 7: 8:"),
    ];
    for (n, expected) in shares {
        assert_eq!(cores(&nodes, &ask(n, "", "", "")), expected);
    }
    nodes[0].taken = [1].into_iter().collect();
    assert_eq!(cores(&nodes, &ask(3, "", "", "")), "0:0,2 1:4-5 2:6-7");
    assert_eq!(cores(&nodes, &ask(1, "", "", "")), "0:0,2-7");
    nodes[0].taken = nodes[0].topology.all();
    let placement = place(&nodes, &ask(2, "", "", ""), 0).unwrap();
    assert_eq!(drawn(&nodes, &placement, Kind::Core), "0: 1:");
    assert!(!placement.exclusive);
    assert_eq!(placement.notices, ["ranks on node0 are not bound: 2 ranks, 0 free cores (8 held by other jobs)"]);
}

#[test]
fn a_share_that_fits_no_numa_node_spans_two() {
    let numa = Topology::regular(&[(Kind::Numa, 2), (Kind::Core, 5)]).unwrap();
    let nodes = [of(0, 8, &Arc::new(numa))];
    assert_eq!(cores(&nodes, &ask(3, "", "", "")), "0:0-2 1:5-7 2:3-4,8");
}

#[test]
fn more_ranks_than_cores_are_unbound_with_one_notice() {
    let nodes = nodes(&[2, 2, 2]);
    let placement = place(&nodes, &ask(9, "slot:oversubscribe", "", ""), 0).unwrap();
    assert_eq!(placement.notices, ["ranks on node0 are not bound: 3 ranks, 2 free cores (same on 2 other nodes)"]);
    assert_eq!((placement.bindings.len(), &placement.binding_runs[..]), (1, &[(3, 0)][..]));
    assert!(place(&nodes, &ask(9, "slot:oversubscribe", "", "none"), 0).unwrap().notices.is_empty());
}

#[test]
fn a_requested_object_is_not_shared() {
    let nodes = [of(0, 8, &server())];
    let vectors = [
        (2, "", "core", "0:0 1:1"),
        (2, "", "package", "0:0-3 1:4-7"),
        (2, "package", "core", "0:0 1:4"),
        (1, "core", "package", "0:0-3"),
        (2, "core", "package", "0:0-3 1:4-7"), // core 0, and the first core whose package is free
        (4, "core", "package:overload-allowed", "0:0-3 1:0-3 2:0-3 3:0-3"),
        (4, "", "package:overload-allowed", "0:0-3 1:4-7 2:0-3 3:4-7"),
        (2, "", "none", "0: 1:"),
        (2, "", "l3cache:if-supported", "0: 1:"),
        (4, "", "package:if-supported", "0: 1: 2: 3:"),
        (2, "pe-list=2,5", "hwthread", "0:2 1:2"), // both threads of core 2
        (2, "pe-list=2,5", "package", "0:2 1:5"),  // the listed part of each package
    ];
    for (n, map_by, bind_to, expected) in vectors {
        assert_eq!(
            cores(&nodes, &ask(n, map_by, "", bind_to)),
            expected,
            "-n {n} --map-by {map_by} --bind-to {bind_to}"
        );
    }
    let placement = place(&nodes, &ask(3, "", "", "hwthread"), 0).unwrap();
    assert_eq!(drawn(&nodes, &placement, Kind::Thread), "0:0 1:1 2:2");
    assert!(placement.exclusive && placement.notices.is_empty());
    assert!(!place(&nodes, &ask(3, "", "", "core:overload-allowed"), 0).unwrap().exclusive);
    let lenient = place(&nodes, &ask(4, "", "", "package:if-supported"), 0).unwrap();
    assert!(!lenient.exclusive);
    assert_eq!(lenient.notices, ["ranks on node0 are not bound: 4 ranks, 2 free packages"]);
}

#[test]
fn an_impossible_binding_is_refused_with_fixes() {
    let mut nodes = [of(0, 16, &server())];
    let text = |nodes: &[NodeOffer], n, map_by, bind_to| refusal(nodes, &ask(n, map_by, "", bind_to)).to_string();
    assert_eq!(
        text(&nodes, 4, "", "package"),
        "--bind-to package: cannot bind ranks on node0: 4 ranks, 2 free packages\n\
         fix one of:  -n 2   |  --bind-to core  |  --bind-to package:overload-allowed  |  --bind-to none"
    );
    assert_eq!(
        text(&nodes, 12, "", "core"),
        "--bind-to core: cannot bind ranks on node0: 12 ranks, 8 free cores\n\
         fix one of:  -n 8   |  --bind-to hwthread  |  --bind-to core:overload-allowed  |  --bind-to none"
    );
    assert!(
        text(&nodes, 20, "slot:oversubscribe", "core")
            .starts_with("--bind-to core: cannot bind ranks on node0: 20 ranks, 8 free cores")
    ); // OMPI: overload
    assert_eq!(
        text(&nodes, 1, "", "l3cache"),
        "--bind-to l3cache: cannot bind ranks on node0: the node has no L3 cache\nfix one of:  --bind-to core  |  --bind-to none"
    );
    assert_eq!(
        text(&nodes, 2, "package:pe=2", "numa"),
        "pe=2 gives each rank 2 cores, but --bind-to numa gives it a NUMA node: omit one of them, or use --bind-to core"
    );
    nodes[0].taken = CpuSet::range(0..12);
    let busy = refusal(&nodes, &ask(4, "", "", "core"));
    assert!(busy.fits_when_idle() && matches!(busy, Refusal::Binding(_)));
    assert_eq!(
        busy.to_string(),
        "--bind-to core: cannot bind ranks on node0: 4 ranks, 2 free cores (6 held by other jobs)\nthe job fits once other jobs end"
    );
    // Cores of other jobs stay off limits even if the job's ranks may share cores.
    assert_eq!(cores(&nodes, &ask(3, "", "", "core:overload-allowed")), "0:6 1:7 2:6");
}

#[test]
fn cpus_per_rank_limit_how_many_ranks_a_node_takes() {
    let mut nodes = [of(0, 8, &server()), of(1, 8, &server())];
    assert_eq!(
        refusal(&nodes, &ask(6, "slot:pe=3", "", "")).to_string(),
        "6 ranks requested with 3 cores each, room for 4 on 2 nodes\n  \
           node0  8 slots (8 cores), 8 cores free   0 in use\n  \
           node1  8 slots (8 cores), 8 cores free   0 in use\n\
         fix one of:  -n 4   |  --map-by slot:pe=2"
    );
    // Oversubscription does not lift the limit, unless ranks may share cpus or are unbound.
    assert!(place(&nodes, &ask(6, "slot:pe=3:oversubscribe", "", ""), 0).is_err());
    assert_eq!(place(&nodes, &ask(6, "slot:pe=3", "", "none"), 0).unwrap().used, [(0, 6)]);
    assert_eq!(cores(&nodes, &ask(3, "slot:pe=3", "", "core:overload-allowed")), "0:0-2 1:4-6 2:0-2");
    nodes[0].taken = CpuSet::range(0..10);
    assert_eq!(place(&nodes, &ask(0, "slot:pe=3", "", ""), 0).unwrap().used, [(0, 1), (1, 2)]);
    let listed = refusal(&nodes[1..], &ask(5, "pe-list=0-3", "", "")).to_string();
    assert!(listed.starts_with("5 ranks requested with 1 core each, room for 4 on 1 node\n"), "{listed}");
    let all = place(&nodes[1..], &ask(0, "pe-list=0-3,99", "", ""), 0).unwrap();
    assert_eq!(drawn(&nodes, &all, Kind::Core), "0:0 1:1 2:2 3:3");
}

fn with_gpus(mut node: NodeOffer, near: &[std::ops::Range<u32>]) -> NodeOffer {
    node.gpus = near.iter().map(|near| Gpu { near: CpuSet::range(near.clone()) }).collect();
    node
}

/// `rank:cores+gpus`.
fn gpus(nodes: &[NodeOffer], request: &Request) -> String {
    let placement = place(nodes, request, 0).unwrap();
    let node = |bindings: &[RankBinding]| {
        let rank = |rank: &RankBinding| {
            let gpus: CpuSet = rank.gpus.iter().copied().collect();
            format!("{}+{gpus}", nodes[0].topology.objects_of(Kind::Core, &rank.threads))
        };
        bindings.iter().map(rank).collect::<Vec<_>>().join(" ")
    };
    by_node(&placement).into_iter().map(node).collect::<Vec<_>>().join(" / ")
}

fn wanting(each: u32, request: Request) -> Request {
    Request { policy: Policy { gpus_per_rank: each, ..request.policy }, ..request }
}

#[test]
fn ranks_are_bound_near_their_gpus() {
    // GPUs 0 and 2 at package 1, 1 and 3 at package 0.
    let near = [8..16, 0..8, 8..16, 0..8];
    let mut nodes = [with_gpus(of(0, 8, &server()), &near)];
    assert_eq!(gpus(&nodes, &wanting(1, ask(4, "", "", ""))), "4-5+0 0-1+1 6-7+2 2-3+3");
    assert_eq!(gpus(&nodes, &wanting(2, ask(2, "", "", ""))), "4-7+0,2 0-3+1,3");
    assert_eq!(gpus(&nodes, &wanting(1, ask(2, "package", "", ""))), "0-3+1 4-7+0");
    assert_eq!(gpus(&nodes, &wanting(1, ask(3, "", "", "core"))), "0+1 1+3 2+0");
    assert_eq!(gpus(&nodes, &wanting(1, ask(2, "", "", "none"))), "+0 +1");
    assert_eq!(gpus(&nodes, &wanting(1, ask(0, "", "", "none"))), "+0 +1 +2 +3");
    nodes[0].gpus_taken = [0, 1].into_iter().collect();
    assert_eq!(gpus(&nodes, &wanting(1, ask(2, "", "", ""))), "4-7+2 0-3+3");
    // GPUs at an unknown place.
    let nodes = [with_gpus(of(0, 8, &server()), &[0..0, 0..0])];
    assert_eq!(gpus(&nodes, &wanting(1, ask(2, "", "", ""))), "0-3+0 4-7+1");
}

#[test]
fn gpus_per_rank_limit_how_many_ranks_a_node_takes() {
    let nodes = [of(0, 8, &server()), with_gpus(of(1, 8, &server()), &[0..8, 0..8, 8..16])];
    let asked = |n, each| wanting(each, ask(n, "slot:oversubscribe", "", ""));
    assert_eq!(place(&nodes, &asked(3, 1), 0).unwrap().used, [(1, 3)]);
    assert_eq!(
        refusal(&nodes, &asked(3, 2)).to_string(),
        "3 ranks requested with 2 GPUs each, room for 1 on 2 nodes\n  \
           node0  8 slots (8 cores), 0 GPUs free   0 in use\n  \
           node1  8 slots (8 cores), 3 GPUs free   0 in use\n\
         fix one of:  -n 1   |  --gpus-per-rank 1"
    );
    let mut busy = nodes.clone();
    busy[1].gpus_taken = CpuSet::range(0..1);
    let refused = refusal(&busy, &asked(3, 1));
    assert!(refused.fits_when_idle());
    assert!(refused.to_string().contains("2 GPUs free (1 held by other jobs)"), "{refused}");
    let none = refusal(&nodes[..1], &asked(1, 1)).to_string();
    assert!(none.ends_with("\nfix:  omit --gpus-per-rank"), "{none}");
    // Two programs do not share GPUs either.
    let mut two = wanting(1, ask(2, "", "", ""));
    two.apps.push(App { n: Some(1), hosts: Vec::new() });
    assert_eq!(gpus(&nodes[1..], &two), "0-1+0 2-3+1 4-5+2");
    two.apps[1].n = Some(2);
    assert!(
        refusal(&nodes[1..], &two)
            .to_string()
            .starts_with("2 ranks requested with 1 GPU each for program 2, room for 1 on 1 node")
    );
}
