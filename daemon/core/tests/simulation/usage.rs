//! What ranks have used reaches the head once, whatever fails on the way.

use std::collections::BTreeSet;
use std::time::Duration;

use rsd_core::Tuning;
use rsd_proto::v1::{JobInfo, JobSpec, JobState, OnNodeLoss, Usage};

use crate::checks::{Seed, seeds, spec};
use crate::ranks::Op;
use crate::world::{Event, Fault, World};

/// What a rank uses here: more by its number.
pub(crate) fn of_rank(rank: u32) -> Usage {
    let number = u64::from(rank) + 1;
    Usage { user_us: number, system_us: 1, minor_faults: 2 * number, peak_bytes: 1000 * number, ..Usage::default() }
}

fn deep(seed: u64) -> World {
    World::new(seed, 9, 3, Tuning { arity: 2, ..Tuning::default() })
}

/// Asserts that exactly these ranks are counted.
fn assert_counted(info: &JobInfo, ranks: impl Iterator<Item = u32> + Clone) {
    let usage = info.usage.as_ref().expect("all ranks have ended");
    let total = usage.total.expect("it is known");
    let sum: u64 = ranks.clone().map(|rank| u64::from(rank) + 1).sum();
    let count = ranks.clone().count();
    assert_eq!((total.ranks as usize, total.user_us, total.system_us), (count, sum, count as u64), "{usage:?}");
    assert_eq!(total.minor_faults, 2 * sum);
    let last = ranks.max().expect("some ranks are counted");
    assert_eq!((total.peak_bytes, total.peak_rank), (1000 * (u64::from(last) + 1), last));
}

#[test]
fn every_rank_is_counted_once_although_daemons_restart() {
    for seed in seeds(60) {
        let _seed = Seed(seed);
        let mut world = deep(seed);
        let program = world.program(|_, _, rng| {
            vec![Op::Init, Op::Sleep(rng.within(Duration::from_secs(1))), Op::Fence, Op::Finalize, Op::Exit(0)]
        });
        let job = world.submit(spec(program, 27));
        for _ in 0..4 {
            let at = world.rng.within(Duration::from_secs(2));
            let daemon = 1 + world.rng.index(8);
            let fault = Fault::Restart(daemon, Duration::from_millis(200));
            world.after(at, Event::Fault(fault));
        }
        world.run();
        let info = world.assert_ended(job, JobState::Done, 0);
        assert_counted(&info, 0..27);
        let usage = info.usage.unwrap();
        assert!(usage.unknown.is_empty() && usage.nodes.iter().all(|node| node.known && node.ranks == 3));
        world.assert_at_rest();
    }
}

#[test]
fn what_a_lost_node_has_used_is_unknown() {
    for seed in seeds(30) {
        let _seed = Seed(seed);
        let mut world = deep(seed);
        let program =
            world.program(|_, _, _| vec![Op::Init, Op::Sleep(Duration::from_secs(200)), Op::Finalize, Op::Exit(0)]);
        let surviving = JobSpec { on_node_loss: OnNodeLoss::Continue.into(), ..spec(program, 27) };
        let job = world.submit(surviving);
        world.run_for(Duration::from_millis(500));
        let machine = 1 + world.rng.index(8);
        world.after(Duration::ZERO, Event::Fault(Fault::Lose(machine)));
        world.run();
        let info = world.assert_ended(job, JobState::Done, 0);
        let lost: BTreeSet<u32> = info.exits.iter().flat_map(rsd_proto::exits::ranks).collect();
        assert_counted(&info, (0..27).filter(|rank| !lost.contains(rank)));
        assert_eq!(info.usage.unwrap().unknown, [world.node(machine)]);
    }
}
