//! Counts the members that have arrived at an operation.
//!
//! Each member adds one to a counter, and the one that brings it to the full number is the last. If all members add to one counter, its cache
//! line moves from core to core once for each of them, one move after the other. So with more than [`FLAT`] members, each group of neighbours
//! has a counter of its own, and the last of a group adds one to that of all groups: at most about 2√n moves follow each other instead of n (8
//! for 16 members, 22 for 128), and those of different groups happen at the same time. Launchers put ranks that follow each other on cores near
//! each other. Members that share cores do not use one line at the same time; they use one counter.
//!
//! Besides one, each member adds a *sign* of its call to a second number in the same word. If the sum is that of members that all make the
//! last member's call, they do, and no one has to look at the marks of all members, which would move n lines to one member.
//!
//! ```text
//!  | sum of signs, modulo 2^48 | arrivals: 16 bits |
//! ```
//!
//! The member that completes a counter sets it back to zero; that of all, once the operation is over. The next operation that uses it begins
//! after all have arrived at a later one.
//!
//! In calls whose members wait only for those before them, the last member of a group also *tells* that it is complete ([`super::packing`]), in a
//! line of its own: those that look there do not take the counter's line from the members that arrive, unless their processors fetch lines in
//! pairs.

use std::ops::Range;

use super::Shape;
use super::faster::ANNOUNCED;
use super::work::kind;
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
pub(super) struct Groups([Group; GROUPS]);

#[derive(Debug)]
#[repr(C, align(128))]
struct Group {
    arrivals: AtomicU64,
    _apart: [u64; 7],
    /// Number + 1 of the last operation of which the group has told that it is complete, and the sum of the signs.
    told: AtomicU64,
    signs: AtomicU64,
}

/// The counters of an operation.
#[derive(Debug, Clone, Copy)]
pub(super) struct Counters<'a> {
    pub(super) all: &'a Line<AtomicU64>,
    pub(super) groups: &'a Groups,
}

/// Which counters a member adds to.
#[derive(Debug, Clone, Copy)]
pub(super) struct Membership {
    group: Option<Neighbours>,
    /// How many are counted by the counter of all: groups, or members.
    all: u64,
    members: u64,
}

/// A member's group.
#[derive(Debug, Clone, Copy)]
struct Neighbours {
    group: usize,
    /// Its first member, and how many it has.
    first: u32,
    size: u32,
}

/// The groups before a member's own, if groups tell that they are complete; otherwise none.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Prefix {
    pub(super) groups: usize,
    /// How many members they have together, and each of them; also a member's own has as many, unless it is the last one.
    pub(super) members: u32,
    pub(super) each: u32,
}

/// A number that follows from a call: equal for equal calls, and the sums of others are equal by chance only (1 in 2^48), also if lengths
/// differ by the same amount.
#[derive(Debug, Clone, Copy)]
pub(super) struct Sign(u64);

impl Sign {
    /// Of the call that has this stamp.
    #[inline(always)]
    pub(super) fn of(stamp: u64) -> Self {
        // What a member announces is not part of the call.
        let call = if kind::announces(stamp) { stamp & !ANNOUNCED } else { stamp };
        let mixed = call.wrapping_mul(0xbf58_476d_1ce4_e5b9);
        Self((mixed ^ mixed >> 29).wrapping_mul(0x94d0_49bb_1331_11eb) >> ARRIVALS)
    }

    /// Whether a sum of signs is that of so many members that all make this call.
    #[inline(always)]
    pub(super) fn is_of_all(self, sum: u64, members: u64) -> bool {
        sum << ARRIVALS == self.0.wrapping_mul(members) << ARRIVALS
    }
}

/// Bits of the arrivals in a counter.
const ARRIVALS: u32 = 16;

impl Membership {
    /// For the member with this rank.
    pub(super) fn of(rank: u32, Shape { members, in_groups, .. }: Shape) -> Self {
        if members <= FLAT || !in_groups {
            return Self { group: None, all: u64::from(members), members: u64::from(members) };
        }
        let each = members.isqrt() + u32::from(!is_square(members));
        let group = rank / each;
        let first = group * each;
        let group = Some(Neighbours { group: group as usize, first, size: each.min(members - first) });
        Self { group, all: u64::from(members.div_ceil(each)), members: u64::from(members) }
    }

    /// The members of this one's group.
    pub(super) fn neighbours(self) -> Range<u32> {
        self.group.map_or(0..0, |own| own.first..own.first + own.size)
    }

    /// The groups before this member's own.
    pub(super) fn prefix(self) -> Prefix {
        let Some(Neighbours { group, first, size }) = self.group else { return Prefix::default() };
        // Only the last group may have fewer members.
        Prefix { groups: group, members: first, each: first.checked_div(group as u32).unwrap_or(size) }
    }
}

fn is_square(number: u32) -> bool {
    number.isqrt() * number.isqrt() == number
}

impl Counters<'_> {
    /// Counts a member. If it is the last one, returns whether all have the same sign. What a member wrote before is visible to the last. The
    /// last one of a group calls `complete` with the sum of the group's signs before the group is counted.
    #[inline]
    pub(super) fn count(self, membership: Membership, sign: Sign, complete: impl FnOnce(u64)) -> Option<bool> {
        let mut sum = sign.0;
        if let Some(Neighbours { group, size, .. }) = membership.group {
            let counter = &self.groups.0.get(group)?.arrivals;
            sum = add(counter, sum, u64::from(size))?;
            counter.store(0, Ordering::Relaxed);
            complete(sum);
        }
        add(&self.all.0, sum, membership.all).map(|sum| sign.is_of_all(sum, membership.members))
    }

    /// Tells that this member's group is complete. What its members and this one wrote before is visible to those that see it.
    #[inline]
    pub(super) fn tell(self, membership: Membership, number: u64, signs: u64) {
        let Some(group) = membership.group.and_then(|own| self.groups.0.get(own.group)) else { return };
        group.signs.store(signs, Ordering::Relaxed);
        group.told.store(number + 1, Ordering::Release);
    }

    /// The sum of the signs of a group that has told that it is complete.
    #[inline]
    pub(super) fn told(self, group: usize, number: u64) -> Option<u64> {
        let group = self.groups.0.get(group)?;
        (group.told.load(Ordering::Acquire) > number).then(|| group.signs.load(Ordering::Relaxed))
    }

    /// If all members have been counted, whether all have this sign. What they wrote before is visible then.
    #[inline]
    pub(super) fn completed(self, membership: Membership, sign: Sign) -> Option<bool> {
        complete(self.all.0.load(Ordering::Acquire), membership.all).map(|sum| sign.is_of_all(sum, membership.members))
    }

    /// Makes the counter of all ready for the next operation that uses it, once all members have been counted.
    #[inline]
    pub(super) fn reset(self) {
        self.all.0.store(0, Ordering::Relaxed);
    }
}

/// Adds an arrival; returns the sum of the signs if it completes the counter.
#[inline]
fn add(counter: &AtomicU64, sign: u64, of: u64) -> Option<u64> {
    let arrival = sign << ARRIVALS | 1;
    complete(counter.fetch_add(arrival, Ordering::AcqRel).wrapping_add(arrival), of)
}

/// The sum of the signs if so many have been counted.
#[inline]
fn complete(counter: u64, of: u64) -> Option<u64> {
    (counter & ((1 << ARRIVALS) - 1) == of).then_some(counter >> ARRIVALS)
}

#[cfg(any(loom, test))]
impl Groups {
    /// For tests and models.
    pub(super) fn new() -> Self {
        let zero = || AtomicU64::new(0);
        Self(std::array::from_fn(|_| Group { arrivals: zero(), _apart: [0; 7], told: zero(), signs: zero() }))
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
    fn exactly_the_last_member_of_each_turn_is_the_last_and_knows_whether_all_are_alike() {
        for members in (2..=70).chain([100, 127, 128, 129, 500, Shape::MOST - 1, Shape::MOST]) {
            let (all, groups) = (Line(AtomicU64::new(0)), Groups::new());
            let counters = Counters { all: &all, groups: &groups };
            for turn in 0..6_u32 {
                // In an order that mixes the groups, another one each time.
                let step = (7 + 4 * turn..).find(|step| gcd(*step, members) == 1).expect("there are primes");
                // Now and then, members pass lengths that differ by the same amount up and down.
                let differs = |rank| match (turn % 3, rank) {
                    (1, 0) => 8,
                    (1, 1) | (2, 1) => -8,
                    _ => 0,
                };
                for nth in 0..members {
                    let rank = (nth * step + turn) % members;
                    let sign = Sign::of(8 << 56 | (64 + differs(rank)) as u64);
                    let alike = counters.count(membership(rank, members), sign, |_| ());
                    let expected = (nth == members - 1).then_some(turn % 3 == 0);
                    assert_eq!(alike, expected, "{nth} of {members}, turn {turn}");
                    assert_eq!(counters.completed(membership(rank, members), sign), expected);
                }
                counters.reset();
            }
        }
    }

    #[test]
    fn what_the_first_member_announces_is_not_part_of_its_sign() {
        for kind in 5..=6 {
            let stamp = kind << 56 | 64;
            assert_eq!(Sign::of(stamp).0, Sign::of(stamp | ANNOUNCED).0);
            assert_ne!(Sign::of(stamp).0, Sign::of(stamp + 1).0);
        }
    }

    fn gcd(a: u32, b: u32) -> u32 {
        if b == 0 { a } else { gcd(b, a % b) }
    }

    #[test]
    fn a_counter_has_few_users() {
        for members in 2..=Shape::MOST {
            let memberships: Vec<Membership> = (0..members).map(|rank| membership(rank, members)).collect();
            let longest = memberships.iter().map(|it| it.group.map_or(0, |own| u64::from(own.size)) + it.all).max();
            let bound = u64::from(if members <= FLAT { members } else { 2 * (members.isqrt() + 1) });
            assert!(longest <= Some(bound), "{longest:?} of {members}");
            assert!(
                memberships.iter().all(|membership| membership.group.is_none_or(|own| own.group < GROUPS)),
                "{members}"
            );
        }
    }
}
