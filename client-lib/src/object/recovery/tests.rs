//! Whole worlds that lose members, in one thread over a transport with seeded oddities.

use super::*;
use crate::engine::tests::bodies::World;
use crate::engine::tests::fake::{FakeWorld, Rng};
use crate::object::comm::Communicator;
use crate::object::errhandler::Errhandler;
use crate::object::names::Names;

struct Job {
    world: FakeWorld,
    comms: Vec<Comms>,
    recoveries: Vec<Recovery>,
    rng: Rng,
    dead: BTreeSet<usize>,
}

/// More steps than any of these tests needs.
const STEPS: usize = 200_000;

impl Job {
    /// Processes with one communicator, of context 0: `first` of them are the first group, and the others, if there are any, the second.
    fn new(size: usize, first: usize, seed: u64) -> Self {
        let mut world = FakeWorld::new(size, seed);
        let mut comms: Vec<Comms> = (0..size).map(|_| Comms::default()).collect();
        for (rank, comms) in (0..size as u32).zip(&mut comms) {
            let group = |ranks: std::ops::Range<usize>| {
                Arc::new(Group::new(ranks.map(|rank| Peer(rank as u32)).collect::<Vec<_>>(), Peer(rank)))
            };
            let (one, two) = (group(0..first), group(first..size));
            let parties = match (rank as usize) < first {
                _ if first == size => Parties::from(one),
                true => Parties::both(one, two, true),
                false => Parties::both(two, one, false),
            };
            parties.open(world.engine(rank as usize), 0);
            comms.names = Names::new(b"job", size as u32);
            comms.world = Some(Communicator::new(0, parties, Errhandler::Return, "world"));
        }
        let recoveries = (0..size).map(|_| Recovery::default()).collect();
        Self { world, comms, recoveries, rng: Rng(seed ^ 0x5eed), dead: BTreeSet::new() }
    }

    fn size(&self) -> usize {
        self.comms.len()
    }

    fn living(&self) -> Vec<usize> {
        (0..self.size()).filter(|rank| !self.dead.contains(rank)).collect()
    }

    fn kill_one(&mut self) {
        let living = self.living();
        if living.len() > 1 {
            let rank = living[self.rng.below(living.len())];
            self.dead.insert(rank);
            self.world.kill(rank);
        }
    }

    fn begin(&mut self, rank: usize, ask: Ask) -> RecoveryId {
        let (engine, comms) = (self.world.engine(rank), &mut self.comms[rank]);
        let acknowledged = comms.world.as_ref().unwrap().lost(engine);
        self.recoveries[rank].begin(ask, 0, &acknowledged, engine, comms).unwrap()
    }

    fn revoke(&mut self, rank: usize) {
        self.recoveries[rank].revoke(0, self.world.engine(rank), &mut self.comms[rank]);
    }

    fn step(&mut self) {
        self.world.step();
        for rank in self.living() {
            let (engine, comms) = (self.world.engine(rank), &mut self.comms[rank]);
            if self.recoveries[rank].has_work(engine, comms) {
                self.recoveries[rank].heed(engine, comms);
            }
        }
    }

    /// Each process calls at some time, some die, and all survivors get a result.
    fn call_all(&mut self, ask: impl Fn(usize) -> Ask, deaths: usize) -> Vec<(usize, Recovered)> {
        let mut ids = vec![None; self.size()];
        let mut to_die = deaths;
        let mut results = Vec::new();
        for _ in 0..STEPS {
            let rank = self.rng.below(self.size());
            if ids[rank].is_none() && !self.dead.contains(&rank) {
                ids[rank] = Some(self.begin(rank, ask(rank)));
            }
            if to_die > 0 && self.rng.below(12) == 0 {
                to_die -= 1;
                self.kill_one();
            }
            (0..self.rng.below(4)).for_each(|_| self.step());
            for rank in self.living() {
                let id = ids[rank].filter(|id| self.recoveries[rank].is_over(*id));
                results.extend(id.and_then(|id| Some((rank, self.recoveries[rank].take(id)?))));
            }
            let has_result = |rank: &usize| results.iter().any(|(it, _)| it == rank);
            if to_die == 0 && self.living().iter().all(has_result) {
                results.retain(|(rank, _)| !self.dead.contains(rank));
                return results;
            }
        }
        panic!("survivors hang: {:?} of {} are dead", self.dead, self.size());
    }
}

fn in_jobs(mut body: impl FnMut(&mut Job, u64)) {
    for seed in 0..300 {
        let size = 1 + Rng(seed).below(8);
        body(&mut Job::new(size, size, seed), seed);
    }
}

#[test]
fn all_survivors_agree_whichever_members_die() {
    in_jobs(|job, seed| {
        let deaths = job.rng.below(job.size());
        for round in 0..3 {
            let results = job.call_all(|rank| Ask::Agree(!(1 << rank)), if round == 1 { deaths } else { 0 });
            let flags: BTreeSet<i32> = results.iter().map(|(_, result)| flag_of(result).0).collect();
            assert_eq!(flags.len(), 1, "seed {seed}: {results:?}");
            let errors: BTreeSet<bool> = results.iter().map(|(_, result)| flag_of(result).1).collect();
            assert_eq!(errors.len(), 1, "seed {seed}: {results:?}");
            let flag = flags.first().unwrap();
            assert!(job.living().iter().all(|rank| flag & (1 << rank) == 0), "seed {seed}");
        }
    });
}

fn flag_of(result: &Recovered) -> (i32, bool) {
    match result {
        Recovered::Agreed(flag, error) => (*flag, error.is_err()),
        Recovered::Shrunk(_) => panic!("{result:?}"),
    }
}

#[test]
fn an_acknowledged_failure_is_no_error() {
    let mut job = Job::new(4, 4, 1);
    job.kill_one();
    (0..200).for_each(|_| job.step());
    let results = job.call_all(|_| Ask::Agree(1), 0);
    assert!(results.len() == 3 && results.iter().all(|(_, result)| flag_of(result) == (1, false)), "{results:?}");
}

#[test]
fn groups_of_an_intercommunicator_get_what_the_other_has_passed() {
    let mut job = Job::new(5, 2, 3);
    for (rank, result) in job.call_all(|rank| Ask::Agree(if rank < 2 { 6 } else { 3 }), 0) {
        assert_eq!(flag_of(&result), (if rank < 2 { 3 } else { 6 }, false));
    }
}

#[test]
fn survivors_get_one_communicator_with_all_of_them() {
    in_jobs(|job, seed| {
        // They have different numbers free.
        for rank in 0..job.size() {
            (0..job.rng.below(3)).for_each(|_| {
                job.comms[rank].contexts.propose(0);
            });
        }
        if seed % 2 == 0 {
            job.revoke(0);
        }
        let deaths = job.rng.below(job.size());
        let results = job.call_all(|_| Ask::Shrink(None), deaths);
        let born: Vec<(usize, &Born)> = results
            .iter()
            .map(|(rank, result)| match result {
                Recovered::Shrunk(Ok(Some(born))) => (*rank, born),
                _ => panic!("seed {seed}: {result:?}"),
            })
            .collect();
        let (_, first) = born[0];
        for (rank, born) in &born {
            assert_eq!((born.context, &born.parties.group.members), (first.context, &first.parties.group.members));
            assert!(born.context > 0 && born.parties.group.members[born.parties.rank() as usize] == Peer(*rank as u32));
            assert!(job.world.engine(*rank).is_open(born.context));
        }
        // Those that died late may still be in it.
        assert!(
            job.living().iter().all(|rank| first.parties.group.members.contains(&Peer(*rank as u32))),
            "seed {seed}"
        );
    });
}

#[test]
fn all_survivors_hear_of_a_revocation_if_one_does() {
    in_jobs(|job, seed| {
        let deaths = job.rng.below(job.size());
        let first = job.rng.below(job.size());
        job.revoke(first);
        for _ in 0..deaths {
            (0..job.rng.below(6)).for_each(|_| job.step());
            job.kill_one();
        }
        (0..4000).for_each(|_| job.step());
        let revoked = |rank: &usize| job.comms[*rank].world.as_ref().unwrap().is_revoked;
        let heard: BTreeSet<bool> = job.living().iter().map(revoked).collect();
        assert_eq!(heard.len(), 1, "seed {seed}");
        assert!(job.dead.contains(&first) || heard.contains(&true), "seed {seed}");
    });
}

#[test]
fn a_revocation_is_heard_by_members_that_have_not_made_the_communicator_yet() {
    let mut job = Job::new(2, 2, 7);
    let late = job.comms[1].world.take();
    job.revoke(0);
    (0..200).for_each(|_| job.step());
    assert_eq!(job.recoveries[1].early.len(), 1);
    // As a birth does.
    job.comms[1].made.add(late.unwrap()).unwrap();
    let parties = job.comms[1].made.iter().next().unwrap().1.parties.clone();
    let other = Communicator::new(8, parties, Errhandler::Return, "");
    job.comms[1].add(other).unwrap();
    job.step();
    let revoked: Vec<(u32, bool)> = job.comms[1].made.iter().map(|(_, it)| (it.context, it.is_revoked)).collect();
    assert_eq!(revoked, [(0, true), (8, false)]);
}
