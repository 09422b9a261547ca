//! Trees of ranks, counted from the root.

use super::schedule::{Here, multiples_of, powers_of};

/// A rank's neighbours in a k-nomial tree: with radix r, the rank with the digits of its number to the base r is below the
/// rank in which its last digit that is not 0 is 0. Radix 2 is the binomial tree; with a radix of n, all ranks are children
/// of the root. The depth is at most ⌈logᵣ n⌉, and no rank has more than (r - 1) ⌈logᵣ n⌉ children. Each subtree is a range of
/// ranks.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Tree {
    /// None for the root.
    pub(super) parent: Option<u32>,
    /// In the order of their ranks, which is that of the depth of their subtrees as well.
    pub(super) children: Vec<Child>,
    /// How many ranks are in this rank's subtree, including itself.
    pub(super) many: u32,
}

/// The top of a subtree.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Child {
    /// Its rank.
    pub(super) rank: u32,
    /// How many ranks are in its subtree, including itself.
    pub(super) many: u32,
}

impl Tree {
    /// The neighbours of `here`.
    pub(super) fn new(here: Here, radix: u32) -> Self {
        let Here { rank, size, .. } = here;
        let radix = radix.clamp(2, size.max(2));
        let mut children = Vec::new();
        let mut parent = None;
        let mut reach = size;
        for power in powers_of(radix, size) {
            let digit = rank / power % radix;
            if digit > 0 {
                (parent, reach) = (Some(rank - digit * power), power);
                break;
            }
            let tops = multiples_of(power, radix, size - rank).map(|distance| rank + distance);
            children.extend(tops.map(|top| Child { rank: top, many: power.min(size - top) }));
        }
        Self { parent, children, many: reach.min(size - rank) }
    }
}

#[cfg(test)]
mod tests {
    use super::{Child, Here, Tree};

    #[test]
    fn every_rank_is_the_child_of_its_parent_and_subtrees_are_ranges() {
        for size in 1..70 {
            for radix in [2, 3, 4, 7, 64, u32::MAX] {
                let tree = |rank| Tree::new(Here::new(rank, size), radix);
                assert_eq!((tree(0).parent, tree(0).many), (None, size));
                let mut seen = 1;
                for rank in 0..size {
                    let here = tree(rank);
                    let mut next = rank + 1;
                    for Child { rank: child, many } in here.children {
                        assert_eq!((child, tree(child).parent, tree(child).many), (next, Some(rank), many));
                        next += many;
                        seen += 1;
                    }
                    assert_eq!(next, rank + here.many, "rank {rank} of {size}, radix {radix}");
                }
                assert_eq!(seen, size);
            }
        }
    }
}
