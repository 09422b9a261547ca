//! Daemons that listen only when the head needs them as parents.

use std::time::Duration;

use rsd_core::rsd::{Answer, Call, Caller, Effect, Input, Start};
use rsd_core::{Now, Rsd, Tuning};
use rsd_proto::v1::{self as wire, Inventory, NodeInfo, NodeState, hello::Who, up};

use crate::checks::{Seed, seeds, spec};
use crate::ranks;
use crate::world::{Event, Fault, World};

#[test]
fn daemons_open_a_port_when_the_head_needs_another_parent() {
    for seed in seeds(30) {
        let _seed = Seed(seed);
        let mut world = World::lazy(seed, 23, 2, Tuning { arity: 2, ..Tuning::default() });
        for node in world.nodes() {
            let machine = world.machine(node.parent);
            assert!(world.may_be_parent(machine), "{} is below {}", node.name, node.parent);
        }
        // The head asks its first two children; if neither opens a port, it takes all daemons itself.
        let nodes = world.nodes();
        let mut children: Vec<_> =
            nodes.iter().map(|node| (node.node, node.parent)).filter(|node| node.1 == 0).collect();
        children.sort_unstable();
        let can = children[1..].iter().take(2).any(|(node, _)| {
            let machine = world.machine(*node);
            world.may_be_parent(machine)
        });
        let deep = nodes.iter().filter(|node| node.parent != 0).count();
        assert_eq!(deep > 0, can, "the head takes two of 22 daemons, if another one listens");
        let program = world.program(|rank, size, rng| ranks::mpi(rank, size, 2, rng));
        let job = world.submit(spec(program, 46));
        let restarts = (0..4).map(|_| {
            let pause = world.rng.within(Duration::from_secs(1));
            Fault::Restart(1 + world.rng.index(22), pause)
        });
        for restart in restarts.collect::<Vec<_>>() {
            let at = world.rng.within(Duration::from_secs(1));
            world.after(at, Event::Fault(restart));
        }
        world.run();
        world.assert_done(job);
        world.assert_at_rest();
        assert_eq!(world.nodes_up(), 23);
    }
}

/// A daemon waits at the head until another one has opened a port, gives up and finds its former parent. The head learns that before it
/// learns that the daemon no longer waits.
#[test]
fn a_daemon_that_has_found_its_parent_gets_no_other_place() {
    let info = |node, name: &str| {
        let inventory = Some(Inventory { machine: "m".into(), slots: 1, ..Inventory::default() });
        NodeInfo { node, name: name.into(), may_listen: true, inventory, ..NodeInfo::default() }
    };
    let mut ms = 0;
    let mut now = || {
        ms += 1;
        Now { mono: Duration::from_millis(ms), unix_ms: 0 }
    };
    let start = Start { me: info(0, "head"), dvm: "d".into(), ..Start::default() };
    let mut head = Rsd::new(now(), start, Tuning { arity: 1, ..Tuning::default() });
    let mut told = |now: Now, input: Input| {
        let mut effects = Vec::new();
        head.handle(now, input, &mut effects);
        effects
    };
    let hello = |link, info| {
        let node = wire::NodeHello { nodes: vec![info], ..wire::NodeHello::default() };
        Input::Hello { link, uid: 0, hello: wire::Hello { who: Some(Who::Node(node)), ..wire::Hello::default() } }
    };
    let up = |info| {
        let nodes = wire::NodesUp { nodes: vec![info] };
        Input::Up { link: 1, up: wire::Up { body: Some(up::Body::NodesUp(nodes)) } }
    };
    let downs = |effects: &[Effect], of: u64| {
        effects.iter().filter(|effect| matches!(effect, Effect::Down { link, .. } if *link == of)).count()
    };
    assert!(downs(&told(now(), hello(1, info(1, "parent"))), 1) > 0, "the head takes it");
    assert_eq!(downs(&told(now(), hello(2, info(2, "child"))), 2), 0, "it waits for the other's port");
    told(now(), up(NodeInfo { parent: 1, ..info(2, "child") }));
    let opened = told(now(), up(NodeInfo { listen: "127.0.0.1:7001".into(), ..info(1, "parent") }));
    assert_eq!(downs(&opened, 2), 0, "it has its place: {opened:?}");
    // Longer than a place is kept for a daemon that is not there.
    let later = Now { mono: Duration::from_secs(600), unix_ms: 0 };
    told(later, Input::Tick);
    let caller = Caller { uid: 1000, is_admin: true };
    let answers = told(later, Input::Call { req: 1, caller, call: Call::ListNodes { load: false } });
    let nodes = answers.into_iter().find_map(|effect| match effect {
        Effect::Answer { answer: Answer::Nodes(nodes), .. } => Some(nodes),
        _ => None,
    });
    let states: Vec<_> = nodes.unwrap_or_default().iter().map(|node| (node.node, node.state())).collect();
    assert_eq!(states, [(0, NodeState::Up), (1, NodeState::Up), (2, NodeState::Up)]);
}
