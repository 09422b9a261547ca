//! Uniform agreement among the members of a communicator of which some die (`MPIX_Comm_agree`, `MPIX_Comm_shrink`).
//!
//! The lowest living member leads. All report to it; it proposes the combined value; when all living members have accepted that,
//! it decides. When it dies, all members, also those that have decided, report to the next one, which keeps a value that any of
//! them has accepted (that of the latest leader). A leader decides only after all living members hold its value, so no other
//! value can be decided, whichever members die then. Cost: 4 (n-1) messages, in 4 steps; each death of a leader may repeat that.
//!
//! Its rules, for the caller: frames between two members keep their order, those of living members arrive, only dead members are
//! declared dead, and every death is told to all in the end. A member keeps its state after its result, until the next agreement of
//! the communicator is decided: others may still report to it.

use std::collections::{BTreeMap, BTreeSet};

/// The place of a member.
pub type Place = u32;

/// What is agreed upon.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Value {
    /// The bitwise AND of what the members have passed: of the first group, and of the second.
    pub flags: [i32; 2],
    /// The largest number that a member has passed.
    pub largest: u32,
    /// The smallest one.
    pub smallest: u32,
    /// The members that are dead, as far as any member knew.
    pub failed: BTreeSet<Place>,
    /// The members whose death all members have acknowledged.
    pub acknowledged: BTreeSet<Place>,
}

impl Value {
    /// Whether a member has failed whose failure not all have acknowledged.
    pub fn is_marred(&self) -> bool {
        !self.failed.is_subset(&self.acknowledged)
    }

    fn combine(&mut self, other: &Self) {
        self.flags = [self.flags[0] & other.flags[0], self.flags[1] & other.flags[1]];
        self.largest = self.largest.max(other.largest);
        self.smallest = self.smallest.min(other.smallest);
        self.failed.extend(&other.failed);
        self.acknowledged.retain(|place| other.acknowledged.contains(place));
    }
}

/// What members send to each other.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Said {
    /// To the leader.
    Report {
        /// The member's own value.
        own: Value,
        /// The value that it has accepted, and from which leader.
        accepted: Option<(Place, Value)>,
    },
    /// From the leader.
    Propose(Value),
    /// To the leader.
    Accept,
    /// From any member that knows the result.
    Decide(Value),
}

/// One member's part in one agreement.
#[derive(Debug)]
pub struct Agreement {
    me: Place,
    size: u32,
    dead: BTreeSet<Place>,
    /// What this member passes; nothing until it calls.
    own: Option<Value>,
    accepted: Option<(Place, Value)>,
    decided: Option<Value>,
    /// At the leader, or at a member that others expect to lead.
    reports: BTreeMap<Place, (Value, Option<(Place, Value)>)>,
    /// At the leader: its proposal, and the members that have accepted it.
    proposal: Option<(Value, BTreeSet<Place>)>,
}

/// What to send to whom.
pub type Out = Vec<(Place, Said)>;

impl Agreement {
    /// An agreement of `size` members, of which some are known to be dead.
    pub fn new(me: Place, size: u32, dead: BTreeSet<Place>) -> Self {
        let (own, accepted, decided, reports, proposal) = Default::default();
        Self { me, size, dead, own, accepted, decided, reports, proposal }
    }

    /// The result, once there is one.
    pub fn result(&self) -> Option<&Value> {
        self.decided.as_ref()
    }

    /// Whether a death is new.
    pub fn is_alive(&self, place: Place) -> bool {
        !self.dead.contains(&place)
    }

    /// The members that this one waits for.
    pub fn awaited(&self) -> Vec<Place> {
        match (&self.proposal, self.leader()) {
            _ if self.decided.is_some() || self.own.is_none() => Vec::new(),
            (_, leader) if leader != self.me => vec![leader],
            (None, _) => self.living().filter(|place| !self.reports.contains_key(place)).collect(),
            (Some((_, accepts)), _) => self.living().filter(|place| !accepts.contains(place)).collect(),
        }
    }

    /// The process calls, and passes a value; its `failed` does not matter.
    pub fn start(&mut self, own: Value) -> Out {
        self.own = Some(Value { failed: self.dead.clone(), ..own });
        let mut out = Out::new();
        self.report(&mut out);
        out
    }

    /// A member has died.
    pub fn on_death(&mut self, place: Place) -> Out {
        let led = self.leader();
        let mut out = Out::new();
        if self.dead.insert(place) {
            self.reports.remove(&place);
            if led == place {
                self.report(&mut out);
            } else {
                self.advance(&mut out);
            }
        }
        out
    }

    /// A member has said something.
    pub fn on_said(&mut self, from: Place, said: Said) -> Out {
        let mut out = Out::new();
        match said {
            // True whichever member says it, and even if that is dead by now.
            Said::Decide(value) => self.decide(value, &mut out),
            // This member may have reported to the next leader already.
            _ if self.dead.contains(&from) => {}
            Said::Report { own, accepted } => match self.decided.clone() {
                Some(value) => out.push((from, Said::Decide(value))),
                None => {
                    self.reports.insert(from, (own, accepted));
                    self.advance(&mut out);
                }
            },
            Said::Propose(value) => {
                // The proposer knows that all members below it are dead, which this member may not have heard yet: they will never lead.
                if self.accepted.as_ref().is_none_or(|(leader, _)| *leader <= from) {
                    self.accepted = Some((from, value));
                    out.push((from, Said::Accept));
                }
            }
            Said::Accept => {
                if let Some((_, accepts)) = &mut self.proposal {
                    accepts.insert(from);
                }
                self.advance(&mut out);
            }
        }
        out
    }

    fn living(&self) -> impl Iterator<Item = Place> {
        (0..self.size).filter(|place| !self.dead.contains(place))
    }

    fn leader(&self) -> Place {
        self.living().next().unwrap_or(self.me)
    }

    fn report(&mut self, out: &mut Out) {
        let leader = self.leader();
        if let Some(value) = &self.decided {
            // A member that has reported to this one before it led has not been answered.
            let to = if leader == self.me { 0..self.size } else { leader..leader + 1 };
            let to = to.filter(|place| *place != self.me && !self.dead.contains(place));
            out.extend(to.map(|place| (place, Said::Decide(value.clone()))));
            return;
        }
        let Some(own) = self.own.clone() else { return };
        if leader == self.me {
            self.reports.insert(self.me, (own, self.accepted.clone()));
            self.advance(out);
        } else {
            out.push((leader, Said::Report { own, accepted: self.accepted.clone() }));
        }
    }

    /// Does what the leader can do now.
    fn advance(&mut self, out: &mut Out) {
        let Some(mut combined) = self.own.clone() else { return };
        if self.leader() != self.me || self.decided.is_some() {
            return;
        }
        if self.proposal.is_none() {
            if !self.living().all(|place| self.reports.contains_key(&place)) {
                return;
            }
            let accepted = self.reports.values().filter_map(|(_, accepted)| accepted.clone());
            let value = match accepted.max_by_key(|(leader, _)| *leader) {
                Some((_, value)) => value,
                None => {
                    self.reports.values().for_each(|(own, _)| combined.combine(own));
                    combined.failed.extend(&self.dead);
                    combined
                }
            };
            self.accepted = Some((self.me, value.clone()));
            let others = self.living().filter(|place| *place != self.me);
            out.extend(others.map(|place| (place, Said::Propose(value.clone()))));
            self.proposal = Some((value, BTreeSet::from([self.me])));
        }
        if let Some((value, accepts)) = &self.proposal
            && self.living().all(|place| accepts.contains(&place))
        {
            self.decide(value.clone(), out);
        }
    }

    fn decide(&mut self, value: Value, out: &mut Out) {
        if self.decided.is_some() {
            return;
        }
        if self.leader() == self.me {
            let others = self.living().filter(|place| *place != self.me);
            out.extend(others.map(|place| (place, Said::Decide(value.clone()))));
        }
        self.decided = Some(value);
        self.reports.clear();
    }
}

#[cfg(test)]
mod tests {
    use std::collections::VecDeque;

    use super::*;
    use crate::engine::tests::fake::Rng;

    /// One agreement under a seed: any order of pairs, calls, deaths and news of deaths; what a member has sent last may be lost when it
    /// dies. Returns how many have died, and how many of these after the first decision.
    fn run(seed: u64) -> (usize, usize) {
        let mut rng = Rng(seed);
        let size = 1 + rng.below(7);
        let all = 0..size as u32;
        let new = |me| Agreement::new(me, size as u32, BTreeSet::new());
        let mut members: Vec<Agreement> = all.clone().map(new).collect();
        let mut links: BTreeMap<(Place, Place), VecDeque<Said>> = BTreeMap::new();
        let mut news: Vec<(Place, Place)> = Vec::new();
        let mut calls: Vec<Place> = all.clone().collect();
        let flags: Vec<i32> = all.clone().map(|_| !(1 << rng.below(4))).collect();
        let (mut dead, mut called) = (BTreeSet::new(), BTreeSet::new());
        let mut to_die = rng.below(size);
        let mut decided: Option<Value> = None;
        let mut late = 0;
        for step in 0.. {
            assert!(step < 100_000, "seed {seed} does not end");
            let ready: Vec<_> = links.iter().filter(|(_, queue)| !queue.is_empty()).map(|(pair, _)| *pair).collect();
            let possible = ready.len() + news.len() + calls.len();
            if to_die > 0 && (possible == 0 || rng.below(6) == 0) {
                let place = rng.below(size) as Place;
                if dead.insert(place) {
                    to_die -= 1;
                    late += usize::from(decided.is_some());
                    calls.retain(|other| *other != place);
                    news.retain(|(to, _)| *to != place);
                    news.extend(all.clone().filter(|to| !dead.contains(to)).map(|to| (to, place)));
                    for ((from, to), queue) in &mut links {
                        let keep = if *to == place { 0 } else { rng.below(queue.len() + 1) };
                        queue.truncate(if *from == place || *to == place { keep } else { queue.len() });
                    }
                }
                continue;
            }
            if possible == 0 {
                break;
            }
            let choice = rng.below(possible);
            let (actor, out) = if choice < ready.len() {
                let (from, to) = ready[choice];
                let said = links.get_mut(&(from, to)).unwrap().pop_front().unwrap();
                (to, members[to as usize].on_said(from, said))
            } else if choice < ready.len() + news.len() {
                let (to, place) = news.swap_remove(choice - ready.len());
                (to, members[to as usize].on_death(place))
            } else {
                let place = calls.swap_remove(choice - ready.len() - news.len());
                called.insert(place);
                let member = &mut members[place as usize];
                let acknowledged = member.dead.iter().copied().filter(|_| rng.below(3) > 0).collect();
                let (flags, failed) = ([flags[place as usize], !0], BTreeSet::new());
                (place, member.start(Value { flags, largest: place, smallest: place, failed, acknowledged }))
            };
            for (to, said) in out {
                assert_ne!(to, actor, "seed {seed}");
                if !dead.contains(&to) {
                    links.entry((actor, to)).or_default().push_back(said);
                }
            }
            if let Some(value) = members[actor as usize].result() {
                assert_eq!(*decided.get_or_insert_with(|| value.clone()), *value, "seed {seed}: {actor}");
            }
        }
        let living: Vec<Place> = all.filter(|place| !dead.contains(place)).collect();
        for place in &living {
            let result = members[*place as usize].result();
            assert!(result.is_some(), "seed {seed}: {place} of {size} hangs, dead {dead:?}");
        }
        let value = decided.expect("one lives");
        let of = |places: &mut dyn Iterator<Item = Place>| places.fold(!0, |all, place| all & flags[place as usize]);
        let (required, allowed) = (of(&mut living.iter().copied()), of(&mut called.iter().copied()));
        assert_eq!(value.flags[0] & !required, 0, "seed {seed}: the flags of all survivors count");
        assert_eq!(allowed & !value.flags[0], 0, "seed {seed}: only flags that were passed count");
        assert!(value.failed.is_subset(&dead), "seed {seed}: the living are never called dead");
        assert!(living.iter().all(|place| (value.smallest..=value.largest).contains(place)), "seed {seed}");
        (dead.len(), late)
    }

    #[test]
    fn all_survivors_get_one_result_whichever_members_die_at_any_time() {
        let runs = (0..20_000).map(run);
        let (deaths, late) = runs.fold((0, 0), |sum, one| (sum.0 + one.0, sum.1 + one.1));
        assert!(deaths > 10_000 && late > 1_000, "{deaths} deaths, {late} after the first decision");
    }
}
