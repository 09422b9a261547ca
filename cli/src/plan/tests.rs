//! Tests of the output for plans made by hand.

use rsd_core::place::cpuset::CpuSet;
use rsd_core::place::topology::{Kind, Topology};
use rsd_proto::v1::plan_reply::Outcome;
use rsd_proto::v1::{Block, Gpu, NodeBinding, Plan, PlanNode, PlanRefusal, PlanReply, Range, RankBinding, TaskMap};
use serde_json::{Value, json};

use super::diff::Difference;
use super::view::View;
use super::{json as document, text};
use crate::look::Look;

const PAGE: Look = Look::PLAIN;

fn ranges(cpus: &[u32]) -> Vec<Range> {
    let set: CpuSet = cpus.iter().copied().collect();
    set.ranges().into_iter().map(|range| Range { first: range.start, count: range.end - range.start }).collect()
}

/// The binding of one node's ranks, each with its threads. The node has `of` slots.
fn binding(of: usize, ranks: &[&[u32]]) -> NodeBinding {
    let rank = |(at, threads): (usize, &&[u32])| RankBinding {
        threads: ranges(threads),
        gpus: Vec::new(),
        reason: match at < of {
            true => format!("slot {} of {of}", at + 1),
            false => format!("slot pass 2, share {} of {}", at + 1 - of, ranks.len() - of),
        },
    };
    NodeBinding { ranks: ranks.iter().enumerate().map(rank).collect() }
}

fn node(name: &str, slots: u32, threads: u32, binding: u32) -> PlanNode {
    PlanNode {
        name: name.into(),
        slots,
        slots_reason: format!("{slots} cores"),
        binding,
        usable: ranges(&(0..threads).collect::<Vec<_>>()),
        ..PlanNode::default()
    }
}

/// A plan that fills the nodes one after the other.
fn plan(topology: &[(Kind, u32)], nodes: Vec<PlanNode>, bindings: Vec<NodeBinding>) -> Plan {
    let size = |node: &PlanNode| bindings[node.binding as usize].ranks.len() as u32;
    let block = |(at, node): (usize, &PlanNode)| Block { first_node: at as u32, nodes: 1, ranks_per_node: size(node) };
    let map =
        TaskMap { nodes: (0..nodes.len() as u32).collect(), blocks: nodes.iter().enumerate().map(block).collect() };
    Plan {
        app_sizes: vec![nodes.iter().map(size).sum()],
        map: Some(map),
        topologies: vec![(&Topology::regular(topology).unwrap()).into()],
        nodes,
        bindings,
        map_by: "slot".into(),
        rank_by: "slot".into(),
        bind_to: "core".into(),
        notices: Vec::new(),
    }
}

const TWO_PACKAGES: [(Kind, u32); 3] = [(Kind::Package, 2), (Kind::Core, 4), (Kind::Thread, 2)];

fn shown(plan: &Plan, look: &Look) -> String {
    let asked = text::Asked { command: "rsctl run PROGRAM", name: "", default_binding: plan.bind_to == "none" };
    text::text(&View::new(plan), &asked, false, look)
}

/// The drawing below the node's name.
fn drawn(plan: &Plan, look: &Look) -> String {
    let view = View::new(plan);
    format!("\n{}", super::drawing::draw(&view, &view.nodes[0], look))
}

#[test]
fn a_plan_shows_a_table_drawings_reasons_and_the_full_command() {
    let eight: Vec<Vec<u32>> = (0..8).map(|core| vec![2 * core, 2 * core + 1]).collect();
    let eight: Vec<&[u32]> = eight.iter().map(|threads| &threads[..]).collect();
    let wide: [&[u32]; 2] = [&[0, 1, 2, 3, 4, 5, 6, 7], &[8, 9, 10, 11, 12, 13, 14, 15]];
    let nodes = vec![node("node0", 8, 16, 0), node("node1", 8, 16, 0), node("big", 2, 16, 1)];
    let mut plan = plan(&TWO_PACKAGES, nodes, vec![binding(8, &eight), binding(1, &wide)]);
    plan.notices = vec!["big has no slot for rank 17".into()];
    assert_eq!(
        shown(&plan, &PAGE),
        "\
18 ranks on 3 nodes

NODE   SLOTS        RANKS  WHICH  CPUS EACH
node0  8 (8 cores)  8      0-7    1 core
node1  8 (8 cores)  8      8-15   1 core
big    2 (2 cores)  2      16-17  4 cores

node0 (node1 is alike, with other ranks)
  package  [0        ] [1        ]
  core      0  1  2  3  4  5  6  7
  rank      0  1  2  3  4  5  6  7

big
  package  [0        ] [1        ]
  core      0  1  2  3  4  5  6  7
  rank     [16       ] [17       ]

reasons, in the order of each node's ranks (--reasons lists every rank)
  node[0-1]  slot 1-8 of 8
  big        slot 1 of 1; slot pass 2, share 1 of 1

mapped by slot, numbered by slot, bound to core
note: big has no slot for rank 17
full command: rsctl run PROGRAM
"
    );
}

#[test]
fn a_drawing_shows_shared_caches_threads_and_what_the_job_cannot_use() {
    let topology = [(Kind::Package, 1), (Kind::Numa, 2), (Kind::L3, 1), (Kind::Core, 2), (Kind::Thread, 2)];
    let mut plan = plan(&topology, vec![node("n", 4, 8, 0)], vec![binding(4, &[&[0], &[1], &[2, 3], &[]])]);
    plan.nodes[0].usable = ranges(&[0, 1, 2, 3, 4, 5, 7]);
    plan.nodes[0].taken = ranges(&[7]);
    assert_eq!(
        drawn(&plan, &PAGE),
        "
  package  [0                    ]
  numa l3  [0        ] [1        ]
  core     [0  ] [1  ] [2  ] [3  ]
  thread    0  1  2  3  4  5  6  7
  rank      0  1 [2  ]  .  .  x  #
  . free   x not usable   # another job's
"
    );
}

#[test]
fn ranks_that_share_cells_are_drawn_below_each_other_and_too_many_are_counted() {
    let cores: [&[u32]; 5] = [&[0], &[0], &[1], &[0, 1], &[1, 2]];
    let one = |ranks: &[&[u32]]| plan(&[(Kind::Core, 4)], vec![node("n", 4, 4, 0)], vec![binding(4, ranks)]);
    assert_eq!(
        drawn(&one(&cores), &PAGE),
        "
  core    0   1   2   3
  rank  0-1   2       .
        [3    ]
            [4    ]
  . free
"
    );
    // Every non-empty set of the four cores except the full one: most of them overlap.
    let sets = (1..15_u32).map(|bits| (0..4).filter(|core| bits >> core & 1 == 1).collect::<Vec<u32>>());
    let sets: Vec<Vec<u32>> = sets.collect();
    let sets: Vec<&[u32]> = sets.iter().map(|set| &set[..]).collect();
    let text = drawn(&one(&sets), &PAGE);
    assert!(text.ends_with(" more ranks overlap these\n"), "{text}");
}

#[test]
fn a_gpu_is_drawn_below_the_cores_nearest_to_it() {
    let mut plan = plan(&TWO_PACKAGES, vec![node("n", 2, 16, 0)], vec![binding(2, &[&[0, 1], &[8, 9]])]);
    let gpu = |index: u32, near: &[u32]| Gpu { index, near: ranges(near), ..Gpu::default() };
    let low: Vec<u32> = (0..8).collect();
    plan.nodes[0].gpus = vec![gpu(0, &low), gpu(1, &low), gpu(2, &[8, 9, 10, 11]), gpu(3, &[])];
    plan.bindings[0].ranks[0].gpus = vec![0, 1];
    plan.bindings[0].ranks[1].gpus = vec![2];
    assert_eq!(
        drawn(&plan, &PAGE),
        "
  package  [0                    ] [1                    ]
  core         0     1     2     3     4     5     6     7
  rank         0     .     .     .     1     .     .     .
  gpu      [0: rank 0            ] [2: rank 1]
           [1: rank 0            ]
           [3: free                                      ]
  . free
"
    );
}

#[test]
fn a_wide_machine_is_cut_at_its_packages_and_free_parts_are_one_line() {
    let topology = [(Kind::Package, 4), (Kind::Numa, 2), (Kind::Core, 8)];
    let ranks: Vec<Vec<u32>> = [0, 1, 2, 3, 16, 17].map(|core| vec![core]).to_vec();
    let ranks: Vec<&[u32]> = ranks.iter().map(|rank| &rank[..]).collect();
    let plan = plan(&topology, vec![node("n", 64, 64, 0)], vec![binding(64, &ranks)]);
    assert_eq!(
        drawn(&plan, &Look { width: 64, rich: false }),
        "
  package  [0                                            ]
  numa     [0                    ] [1                    ]
  core      0  1  2  3  4  5  6  7  8  9 10 11 12 13 14 15
  rank      0  1  2  3  .  .  .  .  .  .  .  .  .  .  .  .
  package  [1                                            ]
  numa     [2                    ] [3                    ]
  core     16 17 18 19 20 21 22 23 24 25 26 27 28 29 30 31
  rank      4  5  .  .  .  .  .  .  .  .  .  .  .  .  .  .
  cores 32-63: free
  . free
"
    );
}

#[test]
fn colours_are_shown_only_on_a_terminal() {
    let plan = plan(&TWO_PACKAGES, vec![node("n", 2, 16, 0)], vec![binding(2, &[&[0, 1], &[2, 3]])]);
    assert!(shown(&plan, &PAGE).is_ascii());
    let rich = shown(&plan, &Look { rich: true, ..PAGE });
    assert!(rich.contains("\x1b[32m 0\x1b[0m \x1b[33m 1\x1b[0m"), "{rich}");
}

#[test]
fn few_ranks_have_a_line_each_that_shows_whether_they_are_bound() {
    let mut plan = plan(&TWO_PACKAGES, vec![node("n", 2, 16, 0)], vec![binding(1, &[&[], &[]])]);
    plan.bind_to = "none".into();
    plan.nodes[0].in_use = 1;
    assert_eq!(
        shown(&plan, &PAGE),
        "\
2 ranks on 1 node

NODE  SLOTS        IN USE  RANKS  WHICH  CPUS EACH
n     2 (2 cores)  1       2      0-1    any cpu

RANK  NODE  ON       REASON
   0  n     any cpu  slot 1 of 1
   1  n     any cpu  slot pass 2, share 1 of 1

mapped by slot, numbered by slot, bound to none (the default)
full command: rsctl run PROGRAM
"
    );
}

#[test]
fn ten_thousand_equal_nodes_are_one_row_and_one_drawing() {
    let names: Vec<String> = (0..10_000).map(|at| format!("n{at}")).collect();
    let ranks: Vec<Vec<u32>> = (0..128).map(|core| vec![core]).collect();
    let ranks: Vec<&[u32]> = ranks.iter().map(|rank| &rank[..]).collect();
    let nodes = names.iter().map(|name| node(name, 128, 128, 0)).collect();
    let mut plan = plan(&[(Kind::Package, 2), (Kind::Core, 64)], nodes, vec![binding(128, &ranks)]);
    let text = shown(&plan, &PAGE);
    assert!(text.contains("\nn[0-9999]  128 (128 cores) each  128 each  0-1279999  1 core\n"), "{text}");
    assert!(text.contains("\nn0 (n[1-9999] are alike, with other ranks)\n"), "{text}");
    assert!(text.lines().count() < 60, "{text}");
    // The same ranks, placed in rounds.
    let round = Block { first_node: 0, nodes: 10_000, ranks_per_node: 1 };
    plan.map = plan.map.map(|map| TaskMap { blocks: vec![round; 128], ..map });
    let text = shown(&plan, &PAGE);
    assert!(text.contains("  0,10000,20000,30000,.. to 9999,19999,29999,39999,..  1 core\n"), "{text}");
}

fn read(write: impl FnOnce(&mut Vec<u8>)) -> Value {
    let mut bytes = Vec::new();
    write(&mut bytes);
    serde_json::from_slice(&bytes).unwrap()
}

fn replied(plan: Plan) -> PlanReply {
    PlanReply { outcome: Some(Outcome::Plan(plan)) }
}

#[test]
fn json_has_an_object_per_rank() {
    let nodes = vec![node("a", 1, 16, 0), node("b", 2, 16, 1)];
    let mut plan = plan(&TWO_PACKAGES, nodes, vec![binding(1, &[&[0, 1, 2, 3]]), binding(2, &[&[9], &[]])]);
    plan.bindings[0].ranks[0].gpus = vec![1];
    let read = read(|out| document::reply(&replied(plan), "rsctl run PROGRAM", out).unwrap());
    assert_eq!(
        read["ranks"],
        json!([
            {"rank": 0, "node": "a", "cores": [0, 1], "pus": [0, 1, 2, 3], "gpus": [1], "reason": "slot 1 of 1"},
            {"rank": 1, "node": "b", "cores": [4], "pus": [9], "gpus": [], "reason": "slot 1 of 2"},
            {"rank": 2, "node": "b", "cores": [], "pus": [], "gpus": [], "reason": "slot 2 of 2"},
        ])
    );
    assert_eq!(read["policy"], json!({"map_by": "slot", "rank_by": "slot", "bind_to": "core"}));
    assert_eq!((&read["programs"], &read["schema_version"]), (&json!([3]), &json!(1)));
    let b = &read["nodes"][1];
    assert_eq!(
        (&b["name"], &b["ranks"], &b["cores"], &b["pus"]),
        (&json!("b"), &json!([[1, 2]]), &json!(8), &json!(16))
    );
    assert_eq!((&b["usable"], &b["taken"], &b["slots_reason"]), (&json!([[0, 15]]), &json!([]), &json!("2 cores")));
}

#[test]
fn json_of_a_refusal_says_what_would_work() {
    let refusal = PlanRefusal {
        text: "8 ranks requested".into(),
        asked: Some(8),
        free: Some(4),
        nodes: vec![node("a", 4, 4, 0)],
        fixes: vec!["-n 4".into()],
    };
    let reply = PlanReply { outcome: Some(Outcome::Refused(refusal)) };
    let read = read(|out| document::reply(&reply, "", out).unwrap());
    assert_eq!(read.get("ranks"), None);
    let refused = &read["refused"];
    assert_eq!((&refused["text"], &refused["asked"]), (&json!("8 ranks requested"), &json!(8)));
    assert_eq!((&refused["free"], &refused["fixes"]), (&json!(4), &json!(["-n 4"])));
    assert_eq!(refused["nodes"][0]["name"], "a");
}

#[test]
fn a_difference_names_the_ranks_that_move() {
    let nodes = |first: &str, second: &str| vec![node(first, 2, 16, 0), node(second, 2, 16, 0)];
    let bindings = || vec![binding(2, &[&[0, 1], &[2, 3]])];
    let a = plan(&TWO_PACKAGES, nodes("a", "b"), bindings());
    let mut b = plan(&TWO_PACKAGES, nodes("a", "b"), bindings());
    b.map = b.map.map(|map| TaskMap { blocks: vec![Block { first_node: 0, nodes: 2, ranks_per_node: 1 }; 2], ..map });
    let views = [View::new(&a), View::new(&b)];
    let difference = Difference::new(&views[0], &views[1]);
    assert_eq!(
        difference.text(false, &PAGE),
        "\
2 of 4 ranks differ: 2 to another node
  rank 1: a core 1 -> b core 0
  rank 2: b core 0 -> a core 1
"
    );
    let replies = [replied(a.clone()), replied(b.clone())];
    let read = read(|out| {
        document::pair([(&replies[0], "first"), (&replies[1], "second")], Some(&difference), out).unwrap();
    });
    let place = |node: &str, core: u32| json!({"node": node, "cores": [core], "pus": [2 * core, 2 * core + 1]});
    assert_eq!(read["moved"][0], json!({"rank": 1, "from": place("a", 1), "to": place("b", 0)}));
    assert_eq!((&read["a"]["command"], read["b"]["ranks"].as_array().map(Vec::len)), (&json!("first"), Some(4)));
}

#[test]
fn ranks_that_stay_and_ranks_in_only_one_plan_are_distinguished() {
    let small = plan(&TWO_PACKAGES, vec![node("a", 2, 16, 0)], vec![binding(2, &[&[0, 1], &[2, 3]])]);
    let large = plan(&TWO_PACKAGES, vec![node("a", 2, 16, 0)], vec![binding(3, &[&[0, 1], &[], &[4, 5]])]);
    let views = [View::new(&small), View::new(&large)];
    assert_eq!(Difference::new(&views[0], &views[0]).text(false, &PAGE), "no rank moves\n");
    assert_eq!(
        Difference::new(&views[0], &views[1]).text(false, &Look { rich: true, ..PAGE }),
        "\
\x1b[1m2 of 3 ranks differ: 1 to other cpus of its node, 1 in only one plan\x1b[0m
  rank 1: a core 1 → a
  rank 2: none → a core 2
"
    );
}

#[test]
fn an_invalid_reply_does_not_panic() {
    let mut odd = plan(&TWO_PACKAGES, vec![node("a", 2, 16, 0)], vec![binding(2, &[&[0, 1], &[2, 3]])]);
    odd.nodes[0].binding = 7;
    odd.nodes[0].topology = 7;
    odd.nodes[0].usable = vec![Range { first: u32::MAX, count: u32::MAX }];
    odd.map = odd.map.map(|map| TaskMap { nodes: vec![0, 1, 2], ..map });
    assert!(shown(&odd, &PAGE).contains("any cpu"));
    assert!(shown(&Plan::default(), &PAGE).starts_with("0 ranks on 0 nodes"));
}
