//! Who may be the head, by a lease in an external store that all of them ask (etcd): when a head may act, and when a standby may take over.
//!
//! ```text
//! store: head (there while its lease lasts) · epoch (the highest) · candidates (standbys that have all that the head has promised)
//! head:     acts while its lease lasts, or while every candidate has said that it will not take over yet
//! standby:  takes over if the head's key is gone, it is a candidate, and it has said nothing to the head for a lease's time
//! ```
//!
//! Only a standby that has confirmed all that was promised becomes a candidate. The head promises a thing after every candidate has it; one that does not answer is first removed from the candidates in the store, by a
//! transaction that also checks that the head's key is its own. So a candidate has everything that was promised. A standby takes over
//! by a transaction that checks that nothing has changed since it looked, so that one of them wins; with it goes the next epoch.
//!
//! All times here are of a clock that also counts while the machine sleeps.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use crate::NodeId;

/// The part of a lease at its end in which the head does not act any more: for clocks of different speed, and for what is on its way.
const MARGIN: u32 = 10;

/// The head's side.
#[derive(Debug, Clone)]
pub struct HeadLease {
    lasts: Duration,
    /// Until when the store keeps the head's key.
    until: Duration,
    /// The standbys that may take over, as far as this head knows; None: it has not had the lease yet.
    candidates: Option<BTreeSet<NodeId>>,
    /// Whether the store has exactly these.
    is_sure: bool,
    /// When each standby was asked what it has answered last.
    confirmed: BTreeMap<NodeId, Duration>,
    is_over: bool,
}

/// Why a head may act.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Ground {
    /// Its lease lasts.
    Held,
    /// Its lease may have ended, but no candidate takes over yet.
    Confirmed,
}

impl HeadLease {
    /// A head that has no lease yet, of leases that last so long.
    pub fn new(lasts: Duration) -> HeadLease {
        let (candidates, confirmed) = (None, BTreeMap::new());
        HeadLease { lasts, until: Duration::ZERO, candidates, is_sure: false, confirmed, is_over: false }
    }

    /// Returns whether the head may act now, and why; None: it must not.
    pub fn ground(&self, now: Duration) -> Option<Ground> {
        let candidates = self.candidates.as_ref().filter(|_| !self.is_over)?;
        if now < self.until {
            return Some(Ground::Held);
        }
        candidates.iter().all(|node| now < self.no_claim_before(*node)).then_some(Ground::Confirmed)
    }

    /// Returns until when the head may act if nothing more is heard; None: without end.
    pub fn may_act_until(&self) -> Option<Duration> {
        let candidates = self.candidates.iter().flatten();
        candidates.map(|node| self.no_claim_before(*node)).min().map(|confirmed| confirmed.max(self.until))
    }

    fn no_claim_before(&self, node: NodeId) -> Duration {
        self.confirmed.get(&node).map_or(Duration::ZERO, |asked| *asked + self.usable())
    }

    fn usable(&self) -> Duration {
        self.lasts - self.lasts / MARGIN
    }

    /// The store keeps the head's key for a lease's time from the moment in which it was asked, at least.
    pub fn on_renewed(&mut self, asked: Duration) {
        self.until = self.until.max(asked + self.usable());
    }

    /// A standby has answered something that was sent to it at this time. It will not take over until a lease's time has passed.
    pub fn on_confirmed(&mut self, node: NodeId, asked: Duration) {
        let known = self.confirmed.entry(node).or_default();
        *known = asked.max(*known);
    }

    /// The store is about to be told of other candidates. Until it answers, those before may take over, and so may these.
    pub fn on_candidates_asked(&mut self, nodes: &BTreeSet<NodeId>) {
        if let Some(candidates) = &mut self.candidates {
            candidates.extend(nodes);
        }
        self.is_sure = false;
    }

    /// The store has exactly these candidates.
    pub fn on_candidates(&mut self, nodes: BTreeSet<NodeId>) {
        (self.candidates, self.is_sure) = (Some(nodes), true);
    }

    /// Whether the store is known to have exactly these candidates.
    pub fn has_candidates(&self, nodes: &BTreeSet<NodeId>) -> bool {
        self.is_sure && self.candidates.as_ref() == Some(nodes)
    }

    /// There is a later head, or this one has handed over.
    pub fn on_over(&mut self) {
        self.is_over = true;
    }

    /// Whether there is a later head, or this one has handed over.
    pub fn is_over(&self) -> bool {
        self.is_over
    }

    /// The standbys that may take over.
    pub fn candidates(&self) -> Option<&BTreeSet<NodeId>> {
        self.candidates.as_ref()
    }

    /// Whether something may be promised that these standbys have: no other standby may take over.
    pub fn may_promise(&self, standbys: &BTreeSet<NodeId>) -> bool {
        self.candidates.as_ref().is_some_and(|candidates| candidates.is_subset(standbys))
    }
}

/// What a store has about the head of a DVM.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Stored {
    /// The epoch of the head that has a lease.
    pub head: Option<u64>,
    /// The highest epoch.
    pub epoch: Option<u64>,
    /// The candidates, and the epoch of the head that has named them.
    pub candidates: Option<(u64, BTreeSet<NodeId>)>,
}

/// Why a standby does not take over.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum NotNow {
    /// The store has nothing about the DVM.
    NoRecord,
    /// The head of this epoch has its lease.
    HeadHolds(u64),
    /// The standby's copy is of another head than the one that has named the candidates.
    OtherCopy {
        /// The epoch of the copy.
        copied: u64,
        /// That of the candidates.
        stored: u64,
    },
    /// The standby may lack what the head has promised.
    NotInStep,
}

/// Returns the epoch with which a standby may take over that has a copy of the head with epoch `copied`. `force`: also if it may lack
/// something.
///
/// # Errors
/// Why it must not.
pub fn claim(stored: &Stored, node: NodeId, copied: u64, force: bool) -> Result<u64, NotNow> {
    let (Some(epoch), Some((named, candidates))) = (stored.epoch, &stored.candidates) else {
        return Err(NotNow::NoRecord);
    };
    match stored.head {
        Some(head) => Err(NotNow::HeadHolds(head)),
        None if force => Ok(epoch.max(copied) + 1),
        None if *named != copied => Err(NotNow::OtherCopy { copied, stored: *named }),
        None if !candidates.contains(&node) => Err(NotNow::NotInStep),
        None => Ok(epoch + 1),
    }
}

/// Returns the candidates that a head finds when it takes the lease: its own, from before a restart.
///
/// # Errors
/// `Err(epoch)` if there is a later head.
pub fn take(stored: &Stored, epoch: u64) -> Result<BTreeSet<NodeId>, u64> {
    match (stored.epoch, &stored.candidates) {
        (Some(later), _) if later > epoch => Err(later),
        (_, Some((named, candidates))) if *named == epoch => Ok(candidates.clone()),
        _ => Ok(BTreeSet::new()),
    }
}
