//! Decides how many ranks each node takes.
//!
//! ```text
//! offers 4 2 4 | 9 ranks    in list order  4 2 3        in turns, one each           3 2 4 → 4 2 3 (earlier nodes first)
//! offers 4 1   | 9 ranks    in list order  4 1 + 2 2    in turns  4 1, then the nodes with fewest: 5 4
//! ```
//!
//! By node, overflow goes to the nodes with the fewest ranks, so that the totals are equal and not only the overflow. "One rank
//! per node in turn" is about the total, and Open MPI answers the same (4,1 | 9 → 5,4). Rules 3 and 4 of the module above also
//! hold: offers fill up before anything overflows, `max_slots` is never exceeded, and ranks that one node may not take go to
//! the others.

/// How many ranks a node may take.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Room {
    /// Ranks within its slots.
    pub(super) offer: u32,
    /// The most ranks.
    pub(super) most: u32,
    /// Ranks per turn; at least 1.
    pub(super) turn: u32,
}

/// Fills each node's offer in list order. With `oversubscribe` the rest goes in equal shares to all nodes with room. Returns
/// `None` if ranks remain.
pub(super) fn in_list_order(rooms: &[Room], n: u32, oversubscribe: bool) -> Option<Vec<u32>> {
    let mut rest = n;
    let first: Vec<u32> = rooms
        .iter()
        .map(|room| {
            let count = rest.min(room.offer);
            rest -= count;
            count
        })
        .collect();
    if rest == 0 || !oversubscribe {
        return (rest == 0).then_some(first);
    }
    let left: Vec<Cap> =
        rooms.iter().zip(&first).map(|(room, count)| Cap { most: room.most - count, turn: 1 }).collect();
    let mut shares = vec![0; rooms.len()];
    let rest = deal(&mut shares, &left, rest);
    (rest == 0).then(|| first.iter().zip(shares).map(|(count, share)| count + share).collect())
}

/// Deals ranks to the nodes in turns up to their offers. With `oversubscribe` the rest goes in further turns to the nodes with
/// the fewest. Returns `None` if ranks remain.
pub(super) fn in_turns(rooms: &[Room], n: u32, oversubscribe: bool) -> Option<Vec<u32>> {
    let caps = |most: fn(&Room) -> u32| -> Vec<Cap> {
        rooms.iter().map(|room| Cap { most: most(room), turn: room.turn }).collect()
    };
    let mut counts = vec![0; rooms.len()];
    let mut rest = deal(&mut counts, &caps(|room| room.offer), n);
    if rest > 0 && oversubscribe {
        rest = deal(&mut counts, &caps(|room| room.most), rest);
    }
    (rest == 0).then_some(counts)
}

/// How many ranks a node may get in a deal.
struct Cap {
    most: u32,
    turn: u32,
}

impl Cap {
    /// How many ranks it has after `turns` turns.
    fn after(&self, turns: u32) -> u32 {
        u32::try_from(u64::from(turns) * u64::from(self.turn)).unwrap_or(u32::MAX).min(self.most)
    }
}

/// Deals turns to the nodes that have had the fewest and are below their cap, and returns how many ranks are left. Cost: a binary
/// search for the number of whole turns, with one pass over the nodes per step.
fn deal(counts: &mut [u32], caps: &[Cap], rest: u32) -> u32 {
    let needed = |turns: u32, counts: &[u32]| -> u64 {
        counts.iter().zip(caps).map(|(count, cap)| u64::from(cap.after(turns).saturating_sub(*count))).sum()
    };
    let (mut turns, mut above) = (0, caps.iter().map(|cap| cap.most.div_ceil(cap.turn)).max().unwrap_or(0));
    while turns < above {
        let middle = above - (above - turns) / 2;
        if needed(middle, counts) <= u64::from(rest) {
            turns = middle;
        } else {
            above = middle - 1;
        }
    }
    let mut rest = rest - u32::try_from(needed(turns, counts)).expect("the search keeps it within `rest`");
    for (count, cap) in counts.iter_mut().zip(caps) {
        *count = cap.after(turns).max(*count);
        let more = cap.after(turns.saturating_add(1)).saturating_sub(*count).min(rest);
        *count += more;
        rest -= more;
    }
    rest
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn rooms(rooms: &[(u32, u32, u32)]) -> Vec<Room> {
        rooms.iter().map(|(offer, most, turn)| Room { offer: *offer, most: *most, turn: *turn }).collect()
    }

    #[test]
    fn a_turn_may_be_several_ranks() {
        let two = rooms(&[(16, 16, 4), (16, 16, 2)]);
        assert_eq!(in_turns(&two, 7, false), Some(vec![5, 2]));
        assert_eq!(in_turns(&two, 12, false), Some(vec![8, 4]));
        assert_eq!(in_turns(&two, 32, false), Some(vec![16, 16]));
        assert_eq!(in_turns(&two, 33, true), None);
        assert_eq!(in_turns(&rooms(&[(2, 9, 2), (2, 9, 2)]), 8, true), Some(vec![4, 4]));
    }

    proptest! {
        /// Compares with the rule applied rank by rank.
        #[test]
        fn counts_match_dealing_turn_by_turn(
            given in prop::collection::vec((0u32..6, 0u32..6, 1u32..4), 1..6),
            n in 1u32..40,
            oversubscribe: bool,
        ) {
            let rooms: Vec<Room> = given.iter().map(|(offer, more, turn)| Room { offer: *offer, most: offer + more, turn: *turn }).collect();
            let mut counts = vec![0; rooms.len()];
            let mut rest = n;
            for most in [false, true] {
                let cap = |room: &Room| if most { room.most } else { room.offer };
                for turns in 1..if most && !oversubscribe { 1 } else { 200 } {
                    for (count, room) in counts.iter_mut().zip(&rooms) {
                        while rest > 0 && *count < cap(room).min(turns * room.turn) {
                            *count += 1;
                            rest -= 1;
                        }
                    }
                }
            }
            prop_assert_eq!(in_turns(&rooms, n, oversubscribe), (rest == 0).then_some(counts));
        }

        #[test]
        fn both_orders_fill_offers_before_they_overflow(given in prop::collection::vec((0u32..6, 0u32..6), 1..6), n in 1u32..40) {
            let rooms: Vec<Room> = given.iter().map(|(offer, more)| Room { offer: *offer, most: offer + more, turn: 1 }).collect();
            let (list, turns) = (in_list_order(&rooms, n, true), in_turns(&rooms, n, true));
            prop_assert_eq!(list.is_some(), turns.is_some());
            for counts in [list, turns].into_iter().flatten() {
                prop_assert_eq!(counts.iter().sum::<u32>(), n);
                let over = counts.iter().zip(&rooms).any(|(count, room)| *count > room.offer);
                prop_assert!(!over || counts.iter().zip(&rooms).all(|(count, room)| *count >= room.offer));
                prop_assert!(counts.iter().zip(&rooms).all(|(count, room)| *count <= room.most));
            }
        }
    }
}
