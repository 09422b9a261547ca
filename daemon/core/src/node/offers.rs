//! Which links of a daemon have the result of a fence that this daemon lacks, because it was restarted, or because their way up is new.
//!
//! A result may be large, and after a restart of the head every daemon of a job has it. So a daemon on a new way up only says which result it
//! has ([`Passed`](rsd_proto::v1::Passed)), and its parent requests the result from one link, if it lacks it itself. Cost: one small message
//! over each link, and one result over one of them.

use std::collections::BTreeMap;

use crate::contract::LinkId;

/// The links of one job.
#[derive(Debug, Default)]
pub(super) struct Offers {
    /// The number of the last fence of which a link has the result; 0: of none.
    by_link: BTreeMap<LinkId, u64>,
    /// The link of this node's step and the last fence that it has passed: it keeps no result, and needs none.
    step: Option<(LinkId, u64)>,
    /// The link that has been asked for its result and has not answered.
    asked: Option<LinkId>,
}

impl Offers {
    /// Records that a link has the result of this fence and of all earlier ones.
    pub(super) fn add(&mut self, link: LinkId, fence: u64) {
        if self.asked == Some(link) && fence == 0 {
            self.asked = None;
        }
        self.by_link.insert(link, fence);
    }

    /// Records that this node's step has passed this fence.
    pub(super) fn step_has_passed(&mut self, link: LinkId, fence: u64) {
        self.step = Some((link, fence));
    }

    /// Returns whether a link is known to have the result of this fence.
    pub(super) fn has(&self, link: LinkId, fence: u64) -> bool {
        let of_step = self.step.filter(|(of, _)| *of == link).map(|(_, has)| has);
        self.by_link.get(&link).copied().or(of_step).is_some_and(|has| has >= fence)
    }

    /// Returns the link to ask for its result, and the fence, if it is later than the last one here and no other link has been asked.
    pub(super) fn next(&mut self, last: u64) -> Option<(LinkId, u64)> {
        if self.asked.is_some() {
            return None;
        }
        let (link, fence) = self.by_link.iter().max_by_key(|(_, fence)| **fence)?;
        let next = (*link, *fence);
        (next.1 > last).then(|| {
            self.asked = Some(next.0);
            next
        })
    }

    /// Handles that a result has arrived here, from wherever.
    pub(super) fn settle(&mut self) {
        self.asked = None;
    }

    pub(super) fn forget_link(&mut self, link: LinkId) {
        self.by_link.remove(&link);
        self.asked.take_if(|asked| *asked == link);
    }

    pub(super) fn links(&self) -> impl Iterator<Item = LinkId> + '_ {
        self.by_link.keys().copied()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_link_is_asked_and_the_next_one_if_it_closes_or_has_nothing() {
        let mut offers = Offers::default();
        for (link, fence) in [(1, 3), (2, 5), (3, 5), (4, 4)] {
            offers.add(link, fence);
        }
        assert_eq!(offers.next(5), None, "that result is here");
        assert_eq!((offers.next(4), offers.next(4)), (Some((3, 5)), None));
        offers.forget_link(3);
        assert_eq!((offers.next(4), offers.next(4)), (Some((2, 5)), None));
        offers.add(2, 0);
        assert_eq!(offers.next(4), None);
        assert_eq!((offers.next(2), offers.next(2)), (Some((4, 4)), None));
        offers.settle();
        assert_eq!(offers.next(4), None);
        assert!(offers.has(4, 4) && offers.has(1, 2) && !offers.has(2, 1));
        offers.step_has_passed(9, 7);
        assert_eq!((offers.next(4), offers.has(9, 7), offers.has(9, 8)), (None, true, false));
        assert_eq!(offers.links().collect::<Vec<_>>(), [1, 2, 4]);
    }
}
