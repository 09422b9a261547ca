//! Counts the members that have arrived at an operation.
//!
//! Each member adds one to a counter, and the one that brings it to the full number is the last. If all members add to one counter, its cache
//! line moves from core to core once for each of them, one move after the other. So with more than [`FLAT`] members, each group of neighbours
//! has a counter of its own, and the last of a group adds one to that of all groups: at most about 2√n moves follow each other instead of n (8
//! for 16 members, 22 for 128), and those of different groups happen at the same time. Launchers put ranks that follow each other on cores near
//! each other. Members that share cores do not use one line at the same time; they use one counter.
//!
//! Counters are never reset: they count up from operation to operation.

use super::Shape;
use crate::shared_memory::sync::{AtomicU64, Line, Ordering};

/// Up to so many members share one counter.
#[cfg(not(loom))]
const FLAT: u32 = 4;
#[cfg(loom)]
const FLAT: u32 = 2;

/// The most groups.
#[cfg(not(loom))]
const GROUPS: usize = 32;
#[cfg(loom)]
const GROUPS: usize = 2;

/// The counters of an operation's groups, in shared memory.
#[derive(Debug)]
#[repr(C)]
pub(super) struct Groups([Line<AtomicU64>; GROUPS]);

/// The counters of an operation.
#[derive(Debug, Clone, Copy)]
pub(super) struct Counters<'a> {
    pub(super) all: &'a Line<AtomicU64>,
    pub(super) groups: &'a Groups,
}

/// Which counters a member adds to.
#[derive(Debug, Clone, Copy)]
pub(super) struct Membership {
    /// Its group, and how many members that has.
    group: Option<(usize, u64)>,
    /// How many are counted by the counter of all: groups, or members.
    all: u64,
}

impl Membership {
    /// For the member with this rank.
    pub(super) fn of(rank: u32, Shape { members, in_groups, .. }: Shape) -> Self {
        if members <= FLAT || !in_groups {
            return Self { group: None, all: u64::from(members) };
        }
        let each = members.isqrt() + u32::from(!is_square(members));
        let group = rank / each;
        let size = each.min(members - group * each);
        Self { group: Some((group as usize, u64::from(size))), all: u64::from(members.div_ceil(each)) }
    }
}

fn is_square(number: u32) -> bool {
    number.isqrt() * number.isqrt() == number
}

impl Counters<'_> {
    /// Counts a member for the `turn`-th time, from 1; returns whether it is the last one. What a member wrote before is visible to the last.
    #[inline]
    pub(super) fn count(self, membership: Membership, turn: u64) -> bool {
        let completes = |counter: &Line<AtomicU64>, of: u64| {
            counter.0.fetch_add(1, Ordering::AcqRel).wrapping_add(1) == of.wrapping_mul(turn)
        };
        if let Some((group, members)) = membership.group
            && !self.groups.0.get(group).is_some_and(|counter| completes(counter, members))
        {
            return false;
        }
        completes(self.all, membership.all)
    }

    /// Whether all members have been counted for the `turn`-th time. What they wrote before is visible then.
    #[inline]
    pub(super) fn are_complete(self, membership: Membership, turn: u64) -> bool {
        self.all.0.load(Ordering::Acquire) == membership.all.wrapping_mul(turn)
    }
}

#[cfg(any(loom, test))]
impl Groups {
    /// For tests and models.
    pub(super) fn new() -> Self {
        Self(std::array::from_fn(|_| Line(AtomicU64::new(0))))
    }
}

#[cfg(test)]
#[cfg(not(loom))]
mod tests {
    use super::*;

    fn membership(rank: u32, members: u32) -> Membership {
        Membership::of(rank, Shape { members, slot: 4096, in_groups: true })
    }

    #[test]
    fn exactly_the_last_member_of_each_turn_is_the_last() {
        for members in (2..=70).chain([100, 127, 128, 129, 500, Shape::MOST - 1, Shape::MOST]) {
            let (all, groups) = (Line(AtomicU64::new(0)), Groups::new());
            let counters = Counters { all: &all, groups: &groups };
            for turn in 1..4_u64 {
                // In an order that mixes the groups, another one each time.
                let step = (7 + 4 * turn as u32..).find(|step| gcd(*step, members) == 1).expect("there are primes");
                for nth in 0..members {
                    let rank = (nth * step + turn as u32) % members;
                    let is_last = counters.count(membership(rank, members), turn);
                    assert_eq!(is_last, nth == members - 1, "{nth} of {members}, turn {turn}");
                }
            }
        }
    }

    fn gcd(a: u32, b: u32) -> u32 {
        if b == 0 { a } else { gcd(b, a % b) }
    }

    #[test]
    fn a_counter_has_few_users() {
        for members in 2..=Shape::MOST {
            let memberships: Vec<Membership> = (0..members).map(|rank| membership(rank, members)).collect();
            let longest =
                memberships.iter().map(|membership| membership.group.map_or(0, |(_, of)| of) + membership.all).max();
            let bound = u64::from(if members <= FLAT { members } else { 2 * (members.isqrt() + 1) });
            assert!(longest <= Some(bound), "{longest:?} of {members}");
            assert!(
                memberships.iter().all(|membership| membership.group.is_none_or(|(group, _)| group < GROUPS)),
                "{members}"
            );
        }
    }
}
