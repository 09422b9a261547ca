//! The same worlds over engines and the fake transport.

use std::sync::Arc;

use super::super::running::{Members, Messages};
use super::super::schedule::Here;
use super::world::{Dice, Fabric};
use crate::engine::tests::bodies::{self, World};
use crate::engine::tests::fake::{Fake, FakeWorld};
use crate::engine::{Peer, RequestId};

const CONTEXT: u32 = 5;

pub(super) struct Engines {
    world: FakeWorld,
    members: Vec<Members>,
}

impl Engines {
    pub(super) fn new(size: u32, seed: u64) -> Self {
        let mut world = FakeWorld::new(size as usize, seed);
        bodies::open(&mut world, CONTEXT);
        let peers: Arc<[Peer]> = (0..size).map(Peer).collect();
        let members = |rank| Members { context: CONTEXT, here: Here::new(rank, size), peers: Arc::clone(&peers) };
        Self { world, members: (0..size).map(members).collect() }
    }

    pub(super) fn kill(&mut self, rank: u32) {
        self.world.kill(rank as usize);
    }
}

impl Fabric for Engines {
    const PATIENCE: usize = 100_000;
    type Id = RequestId;
    type Courier<'a> = Messages<'a, Fake>;

    fn courier(&mut self, rank: u32) -> Messages<'_, Fake> {
        Messages::new(self.world.engine(rank as usize), &self.members[rank as usize])
    }

    /// It is unknown whether that had an effect.
    fn stir(&mut self, _: &mut Dice) -> bool {
        self.world.step();
        false
    }

    fn assert_empty(&mut self) {
        bodies::until(&mut self.world, |world| (0..world.size()).all(|rank| world.engine(rank).quiet()));
        for rank in 0..self.world.size() {
            assert_eq!(self.world.engine(rank).leftovers(), [0; 4], "requests, messages, early frames, errands");
        }
    }
}
