//! Groups: ordered sets of processes (MPI 5.0 §7.3).
//!
//! Everything here is local: a group is a list of peers, and combining two of them costs the sum of their sizes.

use std::collections::HashMap;
use std::sync::Arc;

use super::table::{Objects, Table};
use crate::abi::constants::{MPI_GROUP_EMPTY, MPI_GROUP_NULL, MPI_IDENT, MPI_SIMILAR, MPI_UNEQUAL};
use crate::abi::{GroupHandle, SessionHandle, handle::Handle};
use crate::engine::Peer;
use crate::error::{MpiError, MpiResult};

/// Processes in the order of their ranks.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Group {
    /// `members[rank]`, each at most once.
    pub members: Arc<[Peer]>,
    /// This process's rank among them.
    pub rank: Option<u32>,
    /// The session with whose process set it was made.
    pub session: Option<SessionHandle>,
}

impl Group {
    /// A group of these members, from one process's view.
    pub fn new(members: impl Into<Arc<[Peer]>>, me: Peer) -> Self {
        let members = members.into();
        let rank = members.iter().position(|member| *member == me).map(|rank| rank as u32);
        Self { members, rank, session: None }
    }

    /// The number of processes.
    pub fn size(&self) -> u32 {
        self.members.len() as u32
    }

    /// `MPI_IDENT`, `MPI_SIMILAR` or `MPI_UNEQUAL`.
    pub fn compare(&self, other: &Self) -> i32 {
        if self.members == other.members {
            MPI_IDENT
        } else if self.size() == other.size() && other.ranks_in(self).all(|rank| rank.is_some()) {
            MPI_SIMILAR
        } else {
            MPI_UNEQUAL
        }
    }

    /// For each member, in order: its rank in another group, if it is there.
    pub fn ranks_in(&self, other: &Self) -> impl Iterator<Item = Option<u32>> {
        let ranks = other.index();
        self.members.iter().map(move |member| ranks.get(member).copied())
    }

    /// For these ranks of this group: their ranks in another one.
    pub fn translate(&self, ranks: impl Iterator<Item = u32>, other: &Self) -> Vec<Option<u32>> {
        let index = other.index();
        ranks.map(|rank| self.members.get(rank as usize).and_then(|member| index.get(member).copied())).collect()
    }

    /// The members of this group, then those of the other that are not in it.
    pub fn union(&self, other: &Self) -> Vec<Peer> {
        let here = self.index();
        let more = other.members.iter().filter(|member| !here.contains_key(member));
        self.members.iter().chain(more).copied().collect()
    }

    /// The members of this group that are in the other.
    pub fn intersection(&self, other: &Self) -> Vec<Peer> {
        let there = other.index();
        self.members.iter().filter(|member| there.contains_key(member)).copied().collect()
    }

    /// The members of this group that are not in the other.
    pub fn difference(&self, other: &Self) -> Vec<Peer> {
        let there = other.index();
        self.members.iter().filter(|member| !there.contains_key(member)).copied().collect()
    }

    /// The members with these ranks, in this order; fails with class `MPI_ERR_RANK` if a rank is invalid, or named
    /// twice.
    pub fn include(&self, ranks: &[i64]) -> MpiResult<Vec<Peer>> {
        self.check(ranks)?;
        Ok(ranks.iter().map(|rank| self.members[*rank as usize]).collect())
    }

    /// The other members, in their order; errors as for [`Group::include`].
    pub fn exclude(&self, ranks: &[i64]) -> MpiResult<Vec<Peer>> {
        let out = self.check(ranks)?;
        Ok(self.members.iter().zip(out).filter(|(_, out)| !out).map(|(member, _)| *member).collect())
    }

    /// `named[rank]`.
    fn check(&self, ranks: &[i64]) -> MpiResult<Vec<bool>> {
        let mut named = vec![false; self.members.len()];
        for rank in ranks {
            match usize::try_from(*rank).ok().and_then(|rank| named.get_mut(rank)) {
                Some(named) if !*named => *named = true,
                Some(_) => return Err(MpiError::rank(format!("rank {rank} is named twice"))),
                None => return Err(MpiError::rank(format!("rank {rank} is not in the group of size {}", self.size()))),
            }
        }
        Ok(named)
    }

    fn index(&self) -> HashMap<Peer, u32> {
        self.members.iter().enumerate().map(|(rank, member)| (*member, rank as u32)).collect()
    }
}

/// The ranks that triplets (first, last, stride) name, in order; `size` is that of the group. Fails with class
/// `MPI_ERR_ARG` for a stride of zero, with class `MPI_ERR_RANK` for an invalid rank.
pub fn ranks_of_ranges(ranges: &[[i32; 3]], size: u32) -> MpiResult<Vec<i64>> {
    let mut ranks = Vec::new();
    for &[first, last, stride] in ranges {
        if stride == 0 {
            return Err(MpiError::arg(format!("the range ({first}, {last}, 0) has a stride of zero")));
        }
        let (first, last, stride) = (i64::from(first), i64::from(last), i64::from(stride));
        // Ranks out of range are found before any is listed: the two ends of an int range can be far apart.
        let named = if (last - first).signum() * stride.signum() < 0 { 0 } else { (last - first) / stride + 1 };
        let ends = if named > 0 { vec![first, first + (named - 1) * stride] } else { Vec::new() };
        if let Some(bad) = ends.iter().find(|rank| !(0..i64::from(size)).contains(*rank)) {
            return Err(MpiError::rank(format!(
                "the range ({first}, {last}, {stride}) names rank {bad} in a group of size {size}"
            )));
        }
        ranks.extend((0..named).map(|step| first + step * stride));
    }
    Ok(ranks)
}

/// The table of group handles.
#[derive(Debug, Default)]
pub struct Groups {
    made: Table<GroupHandle, Arc<Group>>,
}

impl Groups {
    /// The handles that the program has got.
    pub fn made(&self) -> &dyn Objects {
        &self.made
    }

    /// The group of a handle; fails with class `MPI_ERR_GROUP` if there is none.
    pub fn get(&self, handle: GroupHandle) -> MpiResult<Arc<Group>> {
        match handle.bits() {
            MPI_GROUP_EMPTY => Ok(Arc::new(Group { members: Arc::from([]), rank: None, session: None })),
            _ => self.made.get(handle).cloned().ok_or_else(|| unknown(handle)),
        }
    }

    /// Whether a peer is a member of any of the user's groups.
    pub fn speak_of(&self, peer: Peer) -> bool {
        self.made.iter().any(|(_, group)| group.members.contains(&peer))
    }

    /// Returns a handle for a group: `MPI_GROUP_EMPTY` if it has no members.
    pub fn add(&mut self, group: Arc<Group>) -> MpiResult<GroupHandle> {
        if group.members.is_empty() {
            return Ok(GroupHandle(MPI_GROUP_EMPTY));
        }
        self.made.add(group).ok_or_else(|| MpiError::no_mem("too many groups (two million)"))
    }

    /// Frees a handle. Functions may return `MPI_GROUP_EMPTY`, so it may be freed.
    pub fn free(&mut self, handle: GroupHandle) -> MpiResult {
        match handle.bits() {
            MPI_GROUP_EMPTY => Ok(()),
            _ => self.made.take(handle).map(drop).ok_or_else(|| unknown(handle)),
        }
    }
}

#[cold]
fn unknown(handle: GroupHandle) -> MpiError {
    MpiError::group(match handle.bits() {
        MPI_GROUP_NULL => "the group is MPI_GROUP_NULL",
        _ => "invalid or freed group",
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::abi::constants::{MPI_ERR_ARG, MPI_ERR_RANK};
    use proptest::collection::vec;
    use proptest::prelude::*;
    use std::collections::BTreeSet;

    fn group(members: &[u32]) -> Group {
        Group::new(members.iter().copied().map(Peer).collect::<Vec<_>>(), Peer(0))
    }

    /// Some of the numbers below 12, in random order.
    fn some() -> impl Strategy<Value = Vec<u32>> {
        vec(0_u32..12, 0..12).prop_map(|all| {
            let mut seen = BTreeSet::new();
            all.into_iter().filter(|one| seen.insert(*one)).collect()
        })
    }

    fn set(members: &[Peer]) -> BTreeSet<u32> {
        members.iter().map(|peer| peer.0).collect()
    }

    /// Whether members are in the same order as in `order`.
    fn in_order(members: &[Peer], order: &[u32]) -> bool {
        let places: Vec<_> = members.iter().map(|peer| order.iter().position(|it| *it == peer.0)).collect();
        places.is_sorted()
    }

    proptest! {
        #[test]
        fn set_operations_keep_the_order_of_the_first_group(a in some(), b in some()) {
            let (one, two) = (group(&a), group(&b));
            let (set_a, set_b): (BTreeSet<_>, BTreeSet<_>) = (a.iter().copied().collect(), b.iter().copied().collect());
            let (union, both, only) = (one.union(&two), one.intersection(&two), one.difference(&two));
            prop_assert_eq!(set(&union), set_a.union(&set_b).copied().collect::<BTreeSet<_>>());
            prop_assert_eq!(set(&both), set_a.intersection(&set_b).copied().collect::<BTreeSet<_>>());
            prop_assert_eq!(set(&only), set_a.difference(&set_b).copied().collect::<BTreeSet<_>>());
            prop_assert_eq!(&union[..a.len()], &one.members[..]);
            prop_assert!(in_order(&union[a.len()..], &b) && in_order(&both, &a) && in_order(&only, &a));
            prop_assert_eq!(union.len(), set(&union).len());
            let expected = if a == b { MPI_IDENT } else if set_a == set_b { MPI_SIMILAR } else { MPI_UNEQUAL };
            prop_assert_eq!(one.compare(&two), expected);
            for (rank, there) in one.ranks_in(&two).enumerate() {
                prop_assert_eq!(there, b.iter().position(|it| *it == a[rank]).map(|rank| rank as u32));
            }
        }

        #[test]
        fn including_and_excluding_the_same_ranks_partition_the_group(a in some(), picks in vec(any::<prop::sample::Index>(), 0..5)) {
            prop_assume!(!a.is_empty());
            let ranks: BTreeSet<i64> = picks.iter().map(|pick| pick.index(a.len()) as i64).collect();
            let ranks: Vec<i64> = ranks.into_iter().rev().collect();
            let one = group(&a);
            let (inside, outside) = (one.include(&ranks).unwrap(), one.exclude(&ranks).unwrap());
            prop_assert_eq!(inside.len() + outside.len(), a.len());
            prop_assert!(set(&inside).is_disjoint(&set(&outside)) && in_order(&outside, &a));
            for (rank, member) in ranks.iter().zip(&inside) {
                prop_assert_eq!(member.0, a[*rank as usize]);
            }
        }
    }

    #[test]
    fn invalid_and_repeated_ranks_are_refused() {
        let four = group(&[3, 2, 1, 0]);
        for bad in [&[4_i64][..], &[-1], &[0, 0]] {
            assert_eq!(four.include(bad).unwrap_err().class, MPI_ERR_RANK);
            assert_eq!(four.exclude(bad).unwrap_err().class, MPI_ERR_RANK);
        }
        assert_eq!((four.rank, group(&[5]).rank), (Some(3), None));
    }

    #[test]
    fn ranges_run_both_ways_and_name_no_rank_out_of_range() {
        assert_eq!(ranks_of_ranges(&[[1, 8, 3], [9, 9, -5], [5, 0, -2]], 10).unwrap(), [1, 4, 7, 9, 5, 3, 1]);
        assert_eq!(ranks_of_ranges(&[[5, 2, 1]], 10).unwrap(), Vec::<i64>::new());
        assert_eq!(ranks_of_ranges(&[[0, 1, 0]], 10).unwrap_err().class, MPI_ERR_ARG);
        for bad in [[0, 10, 1], [-1, 3, 1], [0, i32::MAX, 1], [i32::MAX, i32::MIN, -1]] {
            assert_eq!(ranks_of_ranges(&[bad], 10).unwrap_err().class, MPI_ERR_RANK, "{bad:?}");
        }
    }
}
