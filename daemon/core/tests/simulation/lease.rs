//! Heads and standbys with a lease in a store: under lost messages, pauses, restarts and clocks of different speed, no head acts beside a
//! later one, and nothing that was promised is lost.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use rsd_core::NodeId;
use rsd_core::lease::{Ground, HeadLease, NotNow, Stored, claim, take};

use crate::checks::seeds;
use crate::rng::Rng;

const LEASE: Duration = Duration::from_secs(10);
const STEP: Duration = Duration::from_millis(100);
const STANDBYS: NodeId = 3;

/// The store. A lease ends by its clock.
#[derive(Debug, Default)]
struct Store {
    stored: Stored,
    /// Whose the head's key is, and when its lease ends.
    holder: Option<(usize, Duration)>,
}

#[derive(Debug)]
struct Head {
    epoch: u64,
    lease: HeadLease,
    /// What it has decided, and how much of that it has promised.
    records: Vec<u64>,
    promised: usize,
    /// What each standby in step has confirmed.
    in_step: BTreeMap<NodeId, usize>,
    paused_until: Duration,
    renew_at: Duration,
    rate: f64,
    is_gone: bool,
}

#[derive(Debug)]
struct Standby {
    /// The epoch of the head whose copy this is, and the copy.
    copy: (u64, Vec<u64>),
    heard: Duration,
    paused_until: Duration,
    rate: f64,
    is_promoted: bool,
}

/// A message that is on its way.
#[derive(Debug)]
enum Message {
    /// To a standby: everything that the head has decided; and when it was sent, by the head's clock.
    Copy {
        head: usize,
        node: NodeId,
        sent: Duration,
        records: Vec<u64>,
    },
    Confirmed {
        head: usize,
        node: NodeId,
        sent: Duration,
        count: usize,
    },
}

struct Model {
    now: Duration,
    rng: Rng,
    store: Store,
    heads: Vec<Head>,
    standbys: BTreeMap<NodeId, Standby>,
    messages: Vec<(Duration, Message)>,
    /// Pairs that do not reach each other: heads are 100 + index, the store is 99.
    cut: BTreeSet<(usize, usize)>,
    next_record: u64,
    promised: BTreeSet<u64>,
    /// The highest epoch of a head that has acted.
    acted: u64,
    takeovers: usize,
    acts: usize,
}

fn rate(rng: &mut Rng) -> f64 {
    0.98 + 0.04 * rng.below(1000) as f64 / 1000.0
}

impl Model {
    fn new(seed: u64) -> Model {
        let mut rng = Rng::new(seed);
        let mut model = Model {
            now: Duration::ZERO,
            store: Store::default(),
            heads: Vec::new(),
            standbys: BTreeMap::new(),
            messages: Vec::new(),
            cut: BTreeSet::new(),
            next_record: 0,
            promised: BTreeSet::new(),
            acted: 0,
            takeovers: 0,
            acts: 0,
            rng: rng.clone(),
        };
        for node in 1..=STANDBYS {
            let rate = rate(&mut rng);
            let (copy, heard, paused_until) = ((0, Vec::new()), Duration::ZERO, Duration::ZERO);
            model.standbys.insert(node, Standby { copy, heard, paused_until, rate, is_promoted: false });
        }
        model.add_head(0, Vec::new());
        model.rng = rng;
        model
    }

    fn add_head(&mut self, epoch: u64, records: Vec<u64>) {
        let rate = rate(&mut self.rng);
        self.heads.push(Head {
            epoch,
            lease: HeadLease::new(LEASE),
            promised: 0,
            records,
            in_step: BTreeMap::new(),
            paused_until: Duration::ZERO,
            renew_at: Duration::ZERO,
            rate,
            is_gone: false,
        });
    }

    fn is_cut(&self, a: usize, b: usize) -> bool {
        self.cut.contains(&(a.min(b), a.max(b)))
    }

    fn disturb(&mut self) {
        let ends: Vec<usize> =
            (1..=STANDBYS as usize).chain([99]).chain((0..self.heads.len()).map(|head| 100 + head)).collect();
        if self.rng.chance(60) {
            let (a, b) = (ends[self.rng.index(ends.len())], ends[self.rng.index(ends.len())]);
            self.cut.insert((a.min(b), a.max(b)));
        }
        if self.rng.chance(200) {
            self.cut.clear();
        }
        let until = self.now + self.rng.within(3 * LEASE);
        if self.rng.chance(300) {
            let head = self.rng.index(self.heads.len());
            self.heads[head].paused_until = until;
        }
        if self.rng.chance(300) {
            let node = 1 + self.rng.below(u64::from(STANDBYS)) as NodeId;
            if let Some(standby) = self.standbys.get_mut(&node) {
                standby.paused_until = until;
            }
        }
        // A head is killed and started again with its journal: it knows nothing of its lease.
        if self.rng.chance(400) {
            let head = self.rng.index(self.heads.len());
            let head = &mut self.heads[head];
            (head.lease, head.in_step, head.renew_at) = (HeadLease::new(LEASE), BTreeMap::new(), Duration::ZERO);
        }
    }

    fn expire(&mut self) {
        if self.store.holder.is_some_and(|(_, ends)| ends <= self.now) {
            self.store.holder = None;
            self.store.stored.head = None;
        }
    }

    fn head_step(&mut self, index: usize) {
        let reaches_store = !self.is_cut(99, 100 + index);
        let head = &mut self.heads[index];
        if head.paused_until > self.now || head.is_gone {
            return;
        }
        let clock = self.now.mul_f64(head.rate);
        if clock >= head.renew_at && reaches_store {
            head.renew_at = clock + LEASE / 5;
            // The store takes a while to answer, and the answer may be lost.
            let asked = clock.saturating_sub(self.rng.within(LEASE / 10));
            let is_lost = self.rng.chance(8);
            let holds = self.store.holder.is_some_and(|(holder, _)| holder == index);
            if !holds {
                match take(&self.store.stored, head.epoch) {
                    Err(_) => {
                        head.is_gone = true;
                        return;
                    }
                    Ok(_) if self.store.holder.is_some() => return,
                    Ok(candidates) => {
                        self.store.stored.head = Some(head.epoch);
                        self.store.stored.epoch = Some(head.epoch);
                        self.store.stored.candidates = Some((head.epoch, candidates.clone()));
                        self.store.holder = Some((index, self.now + LEASE));
                        if !is_lost {
                            head.lease.on_renewed(asked);
                            head.lease.on_candidates(candidates);
                        }
                    }
                }
            } else {
                self.store.holder = Some((index, self.now + LEASE));
                // A head that starts writes who may take over, before it acts.
                if head.lease.candidates().is_none() {
                    let candidates = take(&self.store.stored, head.epoch).unwrap_or_default();
                    self.store.stored.candidates = Some((head.epoch, candidates.clone()));
                    head.lease.on_candidates(candidates);
                }
                if !is_lost {
                    head.lease.on_renewed(asked);
                }
            }
            let in_step: BTreeSet<NodeId> = head.in_step.keys().copied().collect();
            if head.lease.candidates().is_some() && !head.lease.has_candidates(&in_step) {
                head.lease.on_candidates_asked(&in_step);
                if !self.rng.chance(8) {
                    self.store.stored.candidates = Some((head.epoch, in_step.clone()));
                    if !self.rng.chance(8) {
                        head.lease.on_candidates(in_step);
                    }
                }
            }
        }
        // Decides, and sends what it has decided.
        if self.rng.chance(3) {
            self.next_record += 1;
            head.records.push(self.next_record);
        }
        if self.rng.chance(20) {
            let late: Vec<NodeId> = head.in_step.keys().copied().collect();
            if let Some(late) = self.rng.pick(&late) {
                head.in_step.remove(&late);
            }
        }
        if head.lease.ground(clock).is_some() {
            assert!(self.acted <= head.epoch, "the head of epoch {} acts after that of {}", head.epoch, self.acted);
            self.acted = head.epoch;
            self.acts += 1;
            let in_step: BTreeSet<NodeId> = head.in_step.keys().copied().collect();
            if head.lease.may_promise(&in_step) {
                let promised = head.in_step.values().copied().min().unwrap_or(head.records.len());
                self.promised.extend(&head.records[..promised.max(head.promised)]);
                head.promised = head.promised.max(promised);
            }
        }
        for node in 1..=STANDBYS {
            if !self.rng.chance(3) || self.is_cut(node as usize, 100 + index) {
                continue;
            }
            let at = self.now + self.rng.within(LEASE / 4);
            let (sent, records) = (clock, self.heads[index].records.clone());
            self.messages.push((at, Message::Copy { head: index, node, sent, records }));
        }
    }

    fn deliver(&mut self) {
        let (due, later) = std::mem::take(&mut self.messages).into_iter().partition(|(at, _)| *at <= self.now);
        self.messages = later;
        let due: Vec<(Duration, Message)> = due;
        for (_, message) in due {
            match message {
                Message::Copy { head, node, sent, records } => {
                    let epoch = self.heads[head].epoch;
                    let Some(standby) = self.standbys.get_mut(&node) else { continue };
                    if standby.is_promoted || standby.copy.0 > epoch || standby.paused_until > self.now {
                        continue;
                    }
                    standby.heard = self.now.mul_f64(standby.rate);
                    // Messages of one connection keep their order.
                    if standby.copy.0 < epoch || records.len() >= standby.copy.1.len() {
                        standby.copy = (epoch, records);
                    }
                    let count = standby.copy.1.len();
                    if !self.is_cut(node as usize, 100 + head) {
                        let at = self.now + self.rng.within(LEASE / 4);
                        self.messages.push((at, Message::Confirmed { head, node, sent, count }));
                    }
                }
                Message::Confirmed { head, node, sent, count } => {
                    let head = &mut self.heads[head];
                    if head.paused_until > self.now {
                        continue;
                    }
                    head.lease.on_confirmed(node, sent);
                    // It counts once it has all that was promised without it.
                    if count >= head.promised || head.in_step.contains_key(&node) {
                        let known = head.in_step.entry(node).or_default();
                        *known = count.max(*known);
                    }
                }
            }
        }
    }

    fn standby_step(&mut self, node: NodeId) {
        let reaches_store = !self.is_cut(99, node as usize);
        let Some(standby) = self.standbys.get_mut(&node) else { return };
        let clock = self.now.mul_f64(standby.rate);
        if standby.is_promoted || standby.paused_until > self.now || clock < standby.heard + LEASE || !reaches_store {
            return;
        }
        let Ok(epoch) = claim(&self.store.stored, node, standby.copy.0, false) else { return };
        self.store.stored.epoch = Some(epoch);
        self.store.stored.head = Some(epoch);
        self.store.holder = Some((self.heads.len(), self.now + LEASE));
        // It may be lost before it has started the head.
        if self.rng.chance(4) {
            self.store.holder = Some((usize::MAX, self.now + LEASE));
            return;
        }
        standby.is_promoted = true;
        let records = standby.copy.1.clone();
        let has: BTreeSet<u64> = records.iter().copied().collect();
        let lost: Vec<&u64> = self.promised.difference(&has).collect();
        assert!(lost.is_empty(), "standby {node} takes over as epoch {epoch} without {lost:?}");
        self.takeovers += 1;
        self.add_head(epoch, records);
    }

    fn run(&mut self, time: Duration) {
        while self.now < time {
            self.now += STEP;
            self.disturb();
            self.expire();
            self.deliver();
            (0..self.heads.len()).for_each(|head| self.head_step(head));
            (1..=STANDBYS).for_each(|node| self.standby_step(node));
        }
    }
}

#[test]
fn no_head_acts_beside_a_later_one_and_nothing_promised_is_lost() {
    let (mut takeovers, mut acts, mut promised) = (0, 0, 0);
    for seed in seeds(60) {
        let mut model = Model::new(seed);
        model.run(30 * LEASE);
        (takeovers, acts) = (takeovers + model.takeovers, acts + model.acts);
        promised += model.promised.len();
    }
    if std::env::var_os("SIMULATION_SEEDS").is_none() {
        assert!(takeovers > 20 && acts > 5_000 && promised > 5_000, "{takeovers} {acts} {promised}");
    }
}

fn stored(head: Option<u64>, epoch: u64, candidates: (u64, &[NodeId])) -> Stored {
    let (named, nodes) = candidates;
    Stored { head, epoch: Some(epoch), candidates: Some((named, nodes.iter().copied().collect())) }
}

#[test]
fn only_a_candidate_takes_over_and_only_after_the_lease() {
    assert_eq!(claim(&Stored::default(), 3, 0, true), Err(NotNow::NoRecord));
    assert_eq!(claim(&stored(Some(0), 0, (0, &[3])), 3, 0, true), Err(NotNow::HeadHolds(0)));
    assert_eq!(claim(&stored(None, 0, (0, &[3])), 3, 0, false), Ok(1));
    assert_eq!(claim(&stored(None, 0, (0, &[4])), 3, 0, false), Err(NotNow::NotInStep));
    assert_eq!(claim(&stored(None, 0, (0, &[4])), 3, 0, true), Ok(1));
    // Another standby has taken over, and was lost before it began: it has promised nothing.
    assert_eq!(claim(&stored(None, 1, (0, &[3, 4])), 3, 0, false), Ok(2));
    // Another has begun.
    let other = NotNow::OtherCopy { copied: 0, stored: 1 };
    assert_eq!(claim(&stored(None, 1, (1, &[3])), 3, 0, false), Err(other));
}

#[test]
fn a_head_acts_while_its_lease_lasts_or_all_candidates_confirm_it() {
    let seconds = Duration::from_secs;
    let mut lease = HeadLease::new(seconds(10));
    assert_eq!(lease.ground(seconds(0)), None);
    lease.on_renewed(seconds(100));
    assert_eq!(lease.ground(seconds(100)), None, "it does not know yet who may take over");
    lease.on_candidates(BTreeSet::from([3, 4]));
    assert_eq!((lease.ground(seconds(108)), lease.ground(seconds(109))), (Some(Ground::Held), None));
    lease.on_confirmed(3, seconds(105));
    assert_eq!(lease.ground(seconds(110)), None, "the other may take over");
    lease.on_confirmed(4, seconds(104));
    assert_eq!(lease.ground(seconds(110)), Some(Ground::Confirmed));
    assert_eq!(lease.may_act_until(), Some(seconds(113)));
    assert!(!lease.may_promise(&BTreeSet::from([3])) && lease.may_promise(&BTreeSet::from([3, 4, 5])));
    lease.on_candidates_asked(&BTreeSet::new());
    assert!(!lease.may_promise(&BTreeSet::from([3])), "the store has not said that 4 is removed");
    lease.on_candidates(BTreeSet::from([3]));
    assert!(lease.may_promise(&BTreeSet::from([3])));
    lease.on_over();
    assert_eq!(lease.ground(seconds(105)), None);
}
