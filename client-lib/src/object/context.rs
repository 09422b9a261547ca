//! Contexts: the numbers that separate the messages of different communicators, and how processes agree on one.
//!
//! A communicator has two consecutive contexts, for its point-to-point messages and for its collectives; here the pair counts
//! as one number. The members of a new communicator must find a number that is free in all of them, while their other threads
//! may do the same for other communicators, in a different order. An [`Agreement`] takes, per attempt,
//!
//! 1. each member reserves a free number and proposes it; all learn the largest and the smallest. If these are equal, as they
//!    are where all members have made the same communicators, that is the result: one exchange;
//! 2. otherwise all try to reserve the largest, and learn whether all could: a second exchange. If not (another thread of a
//!    member has proposed that number for something else), all release it and propose higher ones.
//!
//! No agreement waits for another one, so none can block another forever. Two that collide separate eventually, because each
//! skips a pseudo-random gap of its own, which doubles with every attempt.

use super::agree::Failure;
use crate::error::{MpiError, MpiResult};

/// The contexts of this process that communicators have, or may get.
#[derive(Debug)]
pub struct Contexts {
    /// Bit `n`: number n is taken.
    taken: Vec<u64>,
}

/// The numbers of `MPI_COMM_WORLD`, of `MPI_COMM_SELF`, and of messages of groups without a communicator.
const PREDEFINED: u64 = 0b111;

impl Default for Contexts {
    fn default() -> Self {
        Self { taken: vec![PREDEFINED] }
    }
}

impl Contexts {
    /// The first of a number's two contexts.
    pub fn context_of(number: u32) -> u32 {
        2 * number
    }

    /// The number to which a context belongs.
    pub fn number_of(context: u32) -> u32 {
        context / 2
    }

    /// Reserves the lowest free number that is not below `floor`.
    pub(super) fn propose(&mut self, floor: u32) -> u32 {
        let first = floor as usize / 64;
        let below = !0_u64 << (floor % 64);
        let word = (first..self.taken.len())
            .find(|word| !self.taken[*word] & if *word == first { below } else { !0 } != 0)
            .unwrap_or(self.taken.len().max(first));
        if word >= self.taken.len() {
            self.taken.resize(word + 1, 0);
        }
        let free = !self.taken[word] & if word == first { below } else { !0 };
        self.taken[word] |= 1 << free.trailing_zeros();
        word as u32 * 64 + free.trailing_zeros()
    }

    /// Reserves a number; returns whether it was free.
    pub(super) fn take(&mut self, number: u32) -> bool {
        let word = number as usize / 64;
        if word >= self.taken.len() {
            self.taken.resize(word + 1, 0);
        }
        let bit = 1 << (number % 64);
        let free = self.taken[word] & bit == 0;
        self.taken[word] |= bit;
        free
    }

    /// Releases a number.
    pub fn release(&mut self, number: u32) {
        if let Some(word) = self.taken.get_mut(number as usize / 64) {
            *word &= !(1 << (number % 64));
        }
    }

    /// The number of numbers in use.
    pub fn len(&self) -> u32 {
        self.taken.iter().map(|word| word.count_ones()).sum()
    }

    /// Whether none is in use.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }
}

/// The words that members exchange; all get the maximum of each. The last one is 0 if nothing prevents the agreement.
pub type Words = [u64; 3];

/// The last of [`Words`] if a member has failed: then no member proceeds. 1 is reserved for conditions that are not
/// failures.
pub fn word_of(failure: Failure) -> u64 {
    match failure {
        Failure::Other => 2,
        Failure::Death => 3,
    }
}

/// One process's part in finding a number that is free in all members.
#[derive(Debug)]
pub struct Agreement {
    /// Equal in all members, and different for other agreements of the same processes.
    salt: u64,
    attempt: u32,
    stage: Stage,
}

#[derive(Debug, Clone, Copy)]
enum Stage {
    /// This number is reserved here.
    Proposed(u32),
    /// All try this number; whether it is reserved here.
    Tried(u32, bool),
}

/// The next step of an agreement.
#[derive(Debug, PartialEq, Eq)]
pub enum Next {
    /// These words must be exchanged.
    Exchange(Words),
    /// This number is reserved in all members.
    Agreed(u32),
}

/// Larger than any number that has a context.
pub(super) const LIMIT: u32 = 1 << 30;

impl Agreement {
    /// Starts: returns the first words to exchange. With a failure, no member will proceed.
    pub fn start(contexts: &mut Contexts, salt: u64, failure: Option<Failure>) -> (Self, Words) {
        let number = contexts.propose(0);
        let [largest, smallest, _] = proposal(number);
        let words = [largest, smallest, failure.map_or(0, word_of)];
        (Self { salt, attempt: 0, stage: Stage::Proposed(number) }, words)
    }

    /// Continues with the maximum of each word.
    pub fn on_words(&mut self, contexts: &mut Contexts, words: Words) -> MpiResult<Next> {
        if words[2] != 0 {
            self.give_up(contexts);
            return Err(failed(words[2]));
        }
        match self.stage {
            Stage::Proposed(mine) => {
                let (largest, smallest) = (words[0] as u32, !words[1] as u32);
                if largest >= LIMIT {
                    self.give_up(contexts);
                    return Err(MpiError::no_mem("too many communicators (2^30)"));
                }
                if largest == smallest {
                    return Ok(Next::Agreed(mine));
                }
                let got = if mine == largest {
                    true
                } else {
                    contexts.release(mine);
                    contexts.take(largest)
                };
                self.stage = Stage::Tried(largest, got);
                Ok(Next::Exchange([u64::from(!got), 0, 0]))
            }
            Stage::Tried(number, _) if words[0] == 0 => Ok(Next::Agreed(number)),
            Stage::Tried(number, _) => {
                self.give_up(contexts);
                self.attempt += 1;
                let mine = contexts.propose((number + 1 + self.gap()).min(LIMIT));
                self.stage = Stage::Proposed(mine);
                Ok(Next::Exchange(proposal(mine)))
            }
        }
    }

    /// Whether these words end it, with or without success.
    pub fn ends_with(&self, words: Words) -> bool {
        match self.stage {
            _ if words[2] != 0 => true,
            Stage::Proposed(_) => words[0] == !words[1] || words[0] >= u64::from(LIMIT),
            Stage::Tried(..) => words[0] == 0,
        }
    }

    /// Releases the number that this process has reserved.
    pub fn give_up(&mut self, contexts: &mut Contexts) {
        match self.stage {
            Stage::Proposed(number) | Stage::Tried(number, true) => contexts.release(number),
            Stage::Tried(_, false) => {}
        }
    }

    /// A number below 2 to the number of attempts.
    fn gap(&self) -> u32 {
        // The multiplier is 2^64 divided by the golden ratio: it spreads neighbouring numbers far apart.
        let mixed = (self.salt ^ u64::from(self.attempt)).wrapping_mul(0x9e37_79b9_7f4a_7c15);
        (mixed >> 32) as u32 & ((1 << self.attempt.min(16)) - 1)
    }
}

fn proposal(number: u32) -> Words {
    [u64::from(number), !u64::from(number), 0]
}

#[cold]
fn failed(word: u64) -> MpiError {
    match word == word_of(Failure::Death) {
        true => Failure::Death.error(),
        false => MpiError::other("another process could not make the communicator").secondhand(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::abi::constants::{MPI_ERR_OTHER, MPI_ERR_PROC_ABORTED};
    use proptest::collection::{btree_set, vec};
    use proptest::prelude::*;
    use std::collections::{BTreeMap, BTreeSet};

    #[test]
    fn the_lowest_free_number_is_proposed_and_released_numbers_are_reused() {
        let mut contexts = Contexts::default();
        assert_eq!([0, 0, 0, 70, 70].map(|floor| contexts.propose(floor)), [3, 4, 5, 70, 71]);
        contexts.release(4);
        assert_eq!((contexts.propose(0), contexts.propose(0)), (4, 6));
        assert!(!contexts.take(70) && contexts.take(72) && !contexts.take(72) && contexts.take(1000));
        assert_eq!(contexts.len(), 3 + 4 + 3 + 1);
        let full: Vec<u32> = (0..200).map(|_| contexts.propose(0)).collect();
        assert_eq!(full.iter().collect::<BTreeSet<_>>().len(), 200);
        assert!(contexts.propose(63) > 63);
    }

    /// An agreement of some processes, each of which advances in its turn.
    struct Op {
        members: Vec<usize>,
        parts: Vec<Part>,
    }

    enum Part {
        Outside,
        Waiting(Agreement, Words),
        Going(Agreement, Words),
        Done(u32),
    }

    impl Op {
        /// Advances one member; returns whether it moved.
        fn turn(&mut self, at: usize, contexts: &mut [Contexts], salt: u64) -> bool {
            let all_there = self.parts.iter().all(|part| matches!(part, Part::Waiting(..)));
            let mine = &mut contexts[self.members[at]];
            match &mut self.parts[at] {
                part @ Part::Outside => {
                    let (agreement, words) = Agreement::start(mine, salt, None);
                    *part = Part::Waiting(agreement, words);
                    true
                }
                Part::Waiting(..) if all_there => {
                    let mut words = [0; 3];
                    for part in &self.parts {
                        let Part::Waiting(_, theirs) = part else { unreachable!("all wait") };
                        words = std::array::from_fn(|at| words[at].max(theirs[at]));
                    }
                    for part in &mut self.parts {
                        let Part::Waiting(agreement, _) = std::mem::replace(part, Part::Outside) else {
                            unreachable!("all wait")
                        };
                        *part = Part::Going(agreement, words);
                    }
                    true
                }
                Part::Waiting(..) | Part::Done(_) => false,
                part @ Part::Going(..) => {
                    let Part::Going(mut agreement, words) = std::mem::replace(part, Part::Outside) else {
                        unreachable!("matched")
                    };
                    *part = match agreement.on_words(mine, words).unwrap() {
                        Next::Agreed(number) => Part::Done(number),
                        Next::Exchange(words) => Part::Waiting(agreement, words),
                    };
                    true
                }
            }
        }
    }

    proptest! {
        /// Processes with different histories agree on many communicators at once, in any order.
        #[test]
        fn all_members_get_one_number_that_none_had(
            held in vec(btree_set(3_u32..30, 0..10), 6),
            ops in vec(btree_set(0_usize..6, 1..6), 1..7),
            turns in vec(any::<prop::sample::Index>(), 0..400),
        ) {
            let mut contexts: Vec<Contexts> = held.iter().map(|held| {
                let mut one = Contexts::default();
                held.iter().for_each(|number| assert!(one.take(*number)));
                one
            }).collect();
            let mut ops: Vec<Op> = ops.iter().map(|members| Op {
                members: members.iter().copied().collect(),
                parts: members.iter().map(|_| Part::Outside).collect(),
            }).collect();
            let parts: Vec<(usize, usize)> = ops.iter().enumerate()
                .flat_map(|(op, it)| (0..it.members.len()).map(move |at| (op, at))).collect();
            for turn in turns {
                let (op, at) = parts[turn.index(parts.len())];
                ops[op].turn(at, &mut contexts, op as u64 * 7919);
            }
            // Then in turn, until all are done.
            let mut rounds = 0;
            while parts.iter().filter(|(op, at)| ops[*op].turn(*at, &mut contexts, *op as u64 * 7919)).count() > 0 {
                rounds += 1;
                prop_assert!(rounds < 500, "the agreements still collide");
            }
            let mut at: BTreeMap<usize, BTreeSet<u32>> = BTreeMap::new();
            for op in &ops {
                let numbers: BTreeSet<u32> = op.parts.iter().map(|part| match part {
                    Part::Done(number) => *number,
                    Part::Outside | Part::Waiting(..) | Part::Going(..) => panic!("unfinished"),
                }).collect();
                prop_assert_eq!(numbers.len(), 1);
                for member in &op.members {
                    let number = *numbers.first().unwrap();
                    prop_assert!(!held[*member].contains(&number) && number >= 3);
                    prop_assert!(at.entry(*member).or_default().insert(number), "one process has the number twice");
                }
            }
            // No other number stays reserved.
            for (process, contexts) in contexts.iter().enumerate() {
                let made = at.get(&process).map_or(0, BTreeSet::len);
                prop_assert_eq!(contexts.len() as usize, 3 + held[process].len() + made);
            }
        }
    }

    #[test]
    fn a_member_that_fails_makes_all_members_fail() {
        let mut both = [Contexts::default(), Contexts::default()];
        let (mut a, one) = Agreement::start(&mut both[0], 1, None);
        let (mut b, two) = Agreement::start(&mut both[1], 1, Some(Failure::Other));
        let words: Words = std::array::from_fn(|at| one[at].max(two[at]));
        assert!(a.on_words(&mut both[0], words).is_err() && b.on_words(&mut both[1], words).is_err());
        assert_eq!([both[0].len(), both[1].len()], [3, 3]);
    }

    #[test]
    fn a_failure_ends_a_second_attempt_too() {
        for (failure, class) in [(Failure::Death, MPI_ERR_PROC_ABORTED), (Failure::Other, MPI_ERR_OTHER)] {
            let mut contexts = Contexts::default();
            let (mut agreement, [mine, ..]) = Agreement::start(&mut contexts, 1, None);
            // Another member has proposed a higher number.
            let words = [mine + 4, !mine, 0];
            assert!(matches!(agreement.on_words(&mut contexts, words), Ok(Next::Exchange([0, ..]))));
            let words = [0, 0, word_of(failure)];
            assert!(agreement.ends_with(words));
            assert_eq!(agreement.on_words(&mut contexts, words).unwrap_err().class, class);
            assert_eq!(contexts.len(), 3);
        }
    }
}
