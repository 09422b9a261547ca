//! Whole worlds that make communicators, in one thread over a transport with seeded oddities.

use std::collections::{BTreeMap, BTreeSet};

use super::*;
use crate::abi::constants::MPI_ERR_PROC_ABORTED;
use crate::engine::tests::bodies::World;
use crate::engine::tests::fake::{FakeWorld, Rng};
use crate::object::agree::{Failure, tag};
use crate::object::comm::{Comms, Communicator};
use crate::object::errhandler::Errhandler;
use crate::object::partitioned::Partitions;
use crate::object::requests::Requests;
use crate::runtime::FIRST_CONTEXT;

/// Processes with communicators.
struct Job {
    world: FakeWorld,
    comms: Vec<Comms>,
    rng: Rng,
    dead: Option<usize>,
}

/// The result of each process that began the same creation: nothing, or a context with these members.
type Results = Vec<Option<(u32, Vec<Peer>)>>;

impl Job {
    fn new(size: usize, seed: u64) -> Self {
        let mut world = FakeWorld::new(size, seed);
        let members: Arc<[Peer]> = (0..size as u32).map(Peer).collect();
        let comms = (0..size as u32).map(|rank| {
            world.engine(rank as usize).open(0, Arc::clone(&members));
            world.engine(rank as usize).open(1, Arc::clone(&members));
            let group = Arc::new(Group::new(Arc::clone(&members), Peer(rank)));
            let communicator = Communicator::new(0, group, Errhandler::Return, "world");
            let mut comms = Comms::default();
            comms.names = Names::new(b"job", size as u32);
            comms.world = Some(communicator);
            comms
        });
        let comms = comms.collect();
        Self { world, comms, rng: Rng(seed ^ 0xabcd), dead: None }
    }

    fn size(&self) -> usize {
        self.comms.len()
    }

    /// Reserves numbers that others have free, as if communicators had been made with others.
    fn differ(&mut self) {
        for rank in 0..self.size() {
            for _ in 0..self.rng.below(4) {
                let color = Creation::by_colour(
                    self.circle_of_self(rank),
                    Some(0),
                    0,
                    Peer(rank as u32),
                    Sorts::One,
                    &mut self.comms[rank].contexts,
                );
                let id = self.comms[rank].begin(color);
                assert!(self.comms[rank].progress(self.world.engine(rank)));
                let born = self.comms[rank].take_born(id).unwrap().unwrap().unwrap();
                assert_eq!(born.parties.group.size(), 1);
            }
        }
    }

    fn circle_of_self(&mut self, rank: usize) -> Circle {
        let communicator = self.comms[rank].world.as_ref().unwrap();
        communicator.circle(Some(Arc::from([rank as u32])), 0, tag::named(rank as i32))
    }

    fn split(&mut self, rank: usize, colour: Option<Colour>, key: i32) -> CreationId {
        let comms = &mut self.comms[rank];
        let circle = comms.world.as_mut().unwrap().circle_of_all();
        let creation = Creation::by_colour(circle, colour, key, Peer(rank as u32), Sorts::One, &mut comms.contexts);
        comms.begin(creation)
    }

    fn dup(&mut self, rank: usize, fails: bool) -> CreationId {
        let comms = &mut self.comms[rank];
        let world = comms.world.as_mut().unwrap();
        let (circle, group) = (world.circle_of_all(), world.parties.clone());
        let creation = Creation::of_all(circle, group, &mut comms.contexts, fails);
        comms.begin(creation)
    }

    fn create_group(&mut self, rank: usize, members: &[u32], user_tag: i32) -> CreationId {
        let comms = &mut self.comms[rank];
        let group = Group::new(members.iter().copied().map(Peer).collect::<Vec<_>>(), Peer(rank as u32));
        let place = group.rank.unwrap();
        let circle = comms.world.as_ref().unwrap().circle(Some(members.into()), place, tag::named(user_tag));
        let creation = Creation::of_all(circle, Arc::new(group), &mut comms.contexts, false);
        comms.begin(creation)
    }

    /// An intercommunicator of the processes below `first` and the others, made by their last members; later splits are
    /// of it.
    fn bridge(&mut self, first: u32, brings: impl Fn(usize) -> Brings) -> Vec<Option<CreationId>> {
        let size = self.size() as u32;
        let leaders = [first - 1, size - 1];
        let begin = |rank: u32| {
            let side = usize::from(rank >= first);
            let ranks: Arc<[u32]> = if side == 0 { (0..first).collect() } else { (first..size).collect() };
            let comms = &mut self.comms[rank as usize];
            let world = comms.world.as_mut().unwrap();
            let group = Group::new(ranks.iter().copied().map(Peer).collect::<Vec<_>>(), Peer(rank));
            let circle = world.circle(Some(ranks), group.rank.unwrap(), tag::named(side as i32));
            let crossing = (rank == leaders[side]).then(|| Crossing {
                context: 1,
                rank,
                from: leaders[1 - side],
                to: Peer(leaders[1 - side]),
                tag: tag::of_leaders(3),
            });
            let creation =
                Creation::between(circle, Arc::new(group), crossing, &mut comms.contexts, brings(rank as usize));
            Some(comms.begin(creation))
        };
        (0..size).map(begin).collect()
    }

    /// Advances a random process.
    fn step(&mut self) {
        self.world.step();
        let rank = self.rng.below(self.size());
        if Some(rank) != self.dead {
            self.comms[rank].progress(self.world.engine(rank));
        }
    }

    /// Runs until these are over; `None` for a process that did not begin it.
    fn finish(&mut self, ids: &[Option<CreationId>]) -> Vec<Option<MpiResult<Option<Born>>>> {
        for _ in 0..2_000_000 {
            let over = |(rank, id): (usize, &Option<CreationId>)| {
                id.is_none_or(|id| Some(rank) == self.dead || self.comms[rank].creations.is_over(id))
            };
            if ids.iter().enumerate().all(over) {
                let take = |(rank, id): (usize, &Option<CreationId>)| self.comms[rank].take_born((*id)?);
                return ids.iter().enumerate().map(take).collect();
            }
            self.step();
        }
        panic!("timed out");
    }

    fn finish_well(&mut self, ids: &[Option<CreationId>]) -> Results {
        let results = self.finish(ids).into_iter();
        results
            .map(|result| {
                result.and_then(|it| it.unwrap()).map(|born| (born.context, born.parties.group.members.to_vec()))
            })
            .collect()
    }
}

/// Runs in worlds of these sizes, with this many seeds.
fn in_jobs(sizes: &[usize], seeds: u64, body: impl Fn(&mut Job, u64)) {
    for &size in sizes {
        for seed in 0..seeds {
            let mut job = Job::new(size, seed << 8 | size as u64);
            if seed % 2 == 1 {
                job.differ();
            }
            let outcome = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| body(&mut job, seed)));
            if let Err(panic) = outcome {
                eprintln!("size {size}, seed {seed}");
                std::panic::resume_unwind(panic);
            }
        }
    }
}

#[test]
fn all_of_one_colour_get_one_communicator_in_the_order_of_keys() {
    in_jobs(&[1, 2, 3, 7, 16, 130], 6, |job, _| {
        let size = job.size();
        let said: Vec<(Option<Colour>, i32)> = (0..size)
            .map(|_| (Some(job.rng.below(4) as i32 - 1).filter(|colour| *colour >= 0), job.rng.below(5) as i32 - 2))
            .collect();
        let ids: Vec<_> = (0..size).map(|rank| Some(job.split(rank, said[rank].0, said[rank].1))).collect();
        let results = job.finish_well(&ids);
        let mut groups: BTreeMap<Colour, Vec<(i32, Peer)>> = BTreeMap::new();
        for (rank, (colour, key)) in said.iter().enumerate() {
            if let Some(colour) = colour {
                groups.entry(*colour).or_default().push((*key, Peer(rank as u32)));
            }
        }
        for (rank, (colour, _)) in said.iter().enumerate() {
            let Some(colour) = colour else {
                assert!(results[rank].is_none());
                continue;
            };
            let mut expected = groups[colour].clone();
            expected.sort_unstable();
            let (context, members) = results[rank].as_ref().unwrap();
            assert_eq!(*members, expected.iter().map(|(_, peer)| *peer).collect::<Vec<_>>());
            assert!(*context >= FIRST_CONTEXT && context % 2 == 0);
            let first = expected[0].1.0 as usize;
            assert_eq!(results[first].as_ref().unwrap().0, *context);
        }
    });
}

#[test]
fn creations_begun_in_different_orders_do_not_block_each_other() {
    in_jobs(&[2, 3, 5, 9], 20, |job, _| {
        let size = job.size();
        let circles: Vec<Vec<u32>> = (0..6)
            .map(|_| {
                let mut members: Vec<u32> = (0..size as u32).filter(|_| job.rng.percent(70)).collect();
                members.reverse();
                members
            })
            .collect();
        // `ids[op][rank]`; two copies of the whole world come last in some processes and first in others, but always in
        // the same order.
        let mut ids: Vec<Vec<Option<CreationId>>> = vec![vec![None; size]; circles.len() + 2];
        let mut left: Vec<(usize, usize)> =
            (0..ids.len()).flat_map(|op| (0..size).map(move |rank| (op, rank))).collect();
        while !left.is_empty() {
            let (mut op, rank) = left.swap_remove(job.rng.below(left.len()));
            if op > circles.len() && ids[circles.len()][rank].is_none() {
                left.retain(|it| *it != (circles.len(), rank));
                left.push((op, rank));
                op = circles.len();
            }
            ids[op][rank] = match circles.get(op) {
                Some(members) if members.contains(&(rank as u32)) => Some(job.create_group(rank, members, op as i32)),
                Some(_) => None,
                None => Some(job.dup(rank, false)),
            };
            (0..job.rng.below(20)).for_each(|_| job.step());
        }
        let mut seen: Vec<BTreeSet<u32>> = vec![BTreeSet::new(); size];
        for ids in &ids {
            let results = job.finish_well(ids);
            let contexts: BTreeSet<u32> = results.iter().flatten().map(|(context, _)| *context).collect();
            assert!(contexts.len() <= 1, "{results:?}");
            for (rank, (context, _)) in results.iter().enumerate().filter_map(|(rank, it)| Some((rank, it.as_ref()?))) {
                assert!(seen[rank].insert(*context), "process {rank} has context {context} twice");
            }
        }
    });
}

#[test]
fn freed_contexts_are_reused() {
    in_jobs(&[1, 2, 3], 4, |job, _| {
        let before: Vec<u32> = job.comms.iter().map(|comms| comms.contexts.len()).collect();
        let mut highest = 0;
        for _ in 0..40 {
            let ids: Vec<_> = (0..job.size()).map(|rank| Some(job.dup(rank, false))).collect();
            for (rank, result) in job.finish(&ids).into_iter().enumerate() {
                let born = result.unwrap().unwrap().unwrap();
                highest = highest.max(born.context);
                let comms = &mut job.comms[rank];
                let handle = comms.add(Communicator::born(born, Errhandler::Return)).unwrap();
                comms.free(handle).unwrap();
                assert!(comms.free(handle).is_err());
                comms.sweep(job.world.engine(rank), &Requests::default(), &mut Partitions::default());
            }
        }
        assert_eq!(job.comms.iter().map(|comms| comms.contexts.len()).collect::<Vec<_>>(), before);
        assert!(highest <= 2 * (before.iter().max().unwrap() + 1), "{highest}");
    });
}

#[test]
fn if_one_member_fails_all_fail() {
    in_jobs(&[1, 2, 3, 7], 6, |job, seed| {
        let unlucky = seed as usize % job.size();
        let before: Vec<u32> = job.comms.iter().map(|comms| comms.contexts.len()).collect();
        let ids: Vec<_> = (0..job.size()).map(|rank| Some(job.dup(rank, rank == unlucky))).collect();
        assert!(job.finish(&ids).into_iter().all(|result| result.unwrap().is_err()));
        assert_eq!(job.comms.iter().map(|comms| comms.contexts.len()).collect::<Vec<_>>(), before);
    });
}

#[test]
fn no_member_waits_for_a_dead_member() {
    in_jobs(&[2, 3, 5, 8], 40, |job, seed| {
        let ids: Vec<_> = (0..job.size())
            .map(|rank| Some(if seed % 3 == 0 { job.dup(rank, false) } else { job.split(rank, Some(0), 0) }))
            .collect();
        (0..job.rng.below(60)).for_each(|_| job.step());
        let dead = job.rng.below(job.size());
        job.dead = Some(dead);
        job.world.kill(dead);
        let results = job.finish(&ids);
        // A process with a result no longer depended on the dead one.
        assert!(results.iter().enumerate().all(|(rank, result)| rank == dead || result.is_some()));
    });
}

/// Checks both groups of an intercommunicator in each process: the peers that it names, and the union.
fn assert_is_between(born: &[Option<MpiResult<Option<Born>>>], first: &[u32], second: &[u32]) -> u32 {
    let peers = |ranks: &[u32]| ranks.iter().copied().map(Peer).collect::<Vec<_>>();
    let of = |rank: u32| born[rank as usize].as_ref().unwrap().as_ref().unwrap().as_ref().unwrap();
    let union = of(first[0]).parties.all().to_vec();
    assert!(union == peers(&[first, second].concat()) || union == peers(&[second, first].concat()), "{union:?}");
    for (mine, theirs) in [(first, second), (second, first)] {
        for (place, rank) in mine.iter().enumerate() {
            let Born { context, parties } = of(*rank);
            assert_eq!((*context, parties.all().to_vec()), (of(first[0]).context, union.clone()));
            assert_eq!((parties.group.members.to_vec(), parties.named().to_vec()), (peers(mine), peers(theirs)));
            assert_eq!((parties.rank() as usize, union[parties.place() as usize]), (place, Peer(*rank)));
        }
    }
    of(first[0]).context
}

#[test]
fn two_groups_make_an_intercommunicator_and_derive_others_from_it() {
    in_jobs(&[2, 3, 5, 8, 20], 12, |job, _| {
        let size = job.size() as u32;
        let first = 1 + job.rng.below(size as usize - 1) as u32;
        let ids = job.bridge(first, |_| Brings::Nothing);
        let results = job.finish(&ids);
        let (one, two): (Vec<u32>, Vec<u32>) = ((0..first).collect(), (first..size).collect());
        let context = assert_is_between(&results, &one, &two);
        assert!(context >= FIRST_CONTEXT);
        let mut inter: Vec<Communicator> = results
            .into_iter()
            .map(|born| Communicator::born(born.unwrap().unwrap().unwrap(), Errhandler::Return))
            .collect();

        // A copy.
        let ids: Vec<_> = (0..size as usize)
            .map(|rank| {
                let (circle, parties) = (inter[rank].circle_of_all(), inter[rank].parties.clone());
                let comms = &mut job.comms[rank];
                let creation = Creation::of_all(circle, parties, &mut comms.contexts, false);
                Some(comms.begin(creation))
            })
            .collect();
        let copies = job.finish(&ids);
        assert_ne!(assert_is_between(&copies, &one, &two), context);

        // Colours, with ranks reversed; members of a colour that only one side has get nothing.
        let colours: Vec<i32> = (0..size).map(|_| job.rng.below(3) as i32).collect();
        let mut sort = |sorts: fn(&Parties) -> Sorts, said: &dyn Fn(u32) -> (Option<Colour>, i32)| {
            let ids: Vec<_> = (0..size)
                .map(|rank| {
                    let communicator = &mut inter[rank as usize];
                    let (circle, (colour, key)) = (communicator.circle_of_all(), said(rank));
                    let (sorts, comms) = (sorts(&communicator.parties), &mut job.comms[rank as usize]);
                    let creation = Creation::by_colour(circle, colour, key, Peer(rank), sorts, &mut comms.contexts);
                    Some(comms.begin(creation))
                })
                .collect();
            job.finish(&ids)
        };
        let parts =
            sort(|parties| Sorts::Two(parties.size_of_first()), &|rank| (Some(colours[rank as usize]), -(rank as i32)));
        for colour in 0..3 {
            let of = |ranks: &[u32]| {
                let mut of: Vec<u32> = ranks.iter().copied().filter(|it| colours[*it as usize] == colour).collect();
                of.reverse();
                of
            };
            let (one, two) = (of(&one), of(&two));
            if one.is_empty() || two.is_empty() {
                let none = |rank: &u32| matches!(parts[*rank as usize], Some(Ok(None)));
                assert!(one.iter().chain(&two).all(none));
            } else {
                assert_is_between(&parts, &one, &two);
            }
        }

        // All in one group, the first part last.
        let merged = sort(|_| Sorts::One, &|rank| (Some(0), i32::from(rank < first)));
        for (rank, born) in merged.into_iter().enumerate() {
            let Born { parties, .. } = born.unwrap().unwrap().unwrap();
            assert!(parties.remote.is_none());
            let expected: Vec<Peer> = two.iter().chain(&one).copied().map(Peer).collect();
            assert_eq!(
                (parties.group.members.to_vec(), expected[parties.rank() as usize]),
                (expected, Peer(rank as u32))
            );
        }
        // All numbers that were reserved without result are free again.
        let taken: BTreeSet<u32> = job.comms.iter().map(|comms| comms.contexts.len()).collect();
        assert!(taken.iter().all(|taken| *taken <= 3 + 4 + 4), "{taken:?}");
    });
}

/// The next bridge of the two groups succeeds: no message of the earlier bridges is left over.
fn assert_next_bridge_is_sound(job: &mut Job, first: u32) {
    let ids = job.bridge(first, |_| Brings::Nothing);
    let results = job.finish(&ids);
    let size = job.size() as u32;
    assert_is_between(&results, &(0..first).collect::<Vec<_>>(), &(first..size).collect::<Vec<_>>());
}

#[test]
fn if_a_member_of_one_group_fails_both_groups_fail() {
    in_jobs(&[2, 3, 7], 12, |job, _| {
        let before: Vec<u32> = job.comms.iter().map(|comms| comms.contexts.len()).collect();
        let (first, unlucky) = (1 + job.rng.below(job.size() - 1) as u32, job.rng.below(job.size()));
        let failing = |rank| if rank == unlucky { Brings::Failure(Failure::Death) } else { Brings::Nothing };
        let ids = job.bridge(first, failing);
        let classes = job.finish(&ids).into_iter().map(|result| result.unwrap().unwrap_err().class);
        assert!(classes.into_iter().all(|class| class == MPI_ERR_PROC_ABORTED));
        assert_eq!(job.comms.iter().map(|comms| comms.contexts.len()).collect::<Vec<_>>(), before);
        assert_next_bridge_is_sound(job, first);
    });
}

#[test]
fn if_one_member_has_foreign_processes_all_know_it_unless_one_fails() {
    in_jobs(&[2, 3, 7], 12, |job, seed| {
        let before: Vec<u32> = job.comms.iter().map(|comms| comms.contexts.len()).collect();
        let first = 1 + job.rng.below(job.size() - 1) as u32;
        let (one, other) = (job.rng.below(job.size()), job.rng.below(job.size()));
        let fails = seed % 2 == 1 && other != one;
        let ids = job.bridge(first, |rank| match rank {
            rank if rank == one => Brings::Foreign,
            rank if rank == other && fails => Brings::Failure(Failure::Other),
            _ => Brings::Nothing,
        });
        for result in job.finish(&ids) {
            assert_eq!(result.unwrap().map(|born| born.is_none()).ok(), (!fails).then_some(true));
        }
        assert_eq!(job.comms.iter().map(|comms| comms.contexts.len()).collect::<Vec<_>>(), before);
        assert_next_bridge_is_sound(job, first);
    });
}

#[test]
fn in_two_groups_no_member_waits_for_a_dead_one() {
    in_jobs(&[2, 3, 5, 8], 40, |job, _| {
        let first = 1 + job.rng.below(job.size() - 1) as u32;
        let ids = job.bridge(first, |_| Brings::Nothing);
        (0..job.rng.below(80)).for_each(|_| job.step());
        let dead = job.rng.below(job.size());
        job.dead = Some(dead);
        job.world.kill(dead);
        let results = job.finish(&ids);
        assert!(results.iter().enumerate().all(|(rank, result)| rank == dead || result.is_some()));
    });
}

#[test]
fn a_leader_that_loses_the_other_one_says_which() {
    in_jobs(&[2], 10, |job, _| {
        let ids = job.bridge(1, |_| Brings::Nothing);
        job.dead = Some(1);
        job.world.kill(1);
        let error = job.finish(&ids).swap_remove(0).unwrap().unwrap_err();
        assert!(error.class == MPI_ERR_PROC_ABORTED && error.to_string().contains("process 1"), "{error}");
    });
}
