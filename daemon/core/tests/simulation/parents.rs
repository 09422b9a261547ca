//! Daemons that listen only when the head needs them as parents.

use std::time::Duration;

use rsd_core::Tuning;

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
        let deep = world.nodes().iter().filter(|node| node.parent != 0).count();
        assert!(deep > 0, "the head takes two of 22 daemons, if another one listens");
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
