//! The key-value store of one job on one node. What ranks put before a fence is completed by the fence: with the puts of all nodes or, if
//! these are too many, only with the knowledge that others exist.
//!
//! A put is visible on its own node at once and on all nodes after the next fence. The last put of a key wins. If several ranks
//! put the same key before one fence, the order of the batches in the fence decides; no MPI library relies on it.
//!
//! After a fence whose result is *held* by a daemon, a key may have a value that is not here. The store knows of each value up to which held
//! result it is the last; [`Kvs::find`] tells what is known from what must be fetched. What was fetched is kept, and may be forgotten when
//! the store is full. What this node has put is kept as it was contributed, because a daemon that holds results may lose them.
//!
//! The store of a job has at most [`BYTES_MAX`] bytes. Before each fence, every node may put its share of them, so that the result of a
//! fence is never larger.

use std::collections::{BTreeMap, HashMap, HashSet};

use bytes::Bytes;
use prost::Message;
use rsd_proto::v1::{Kv, KvBatch, NodePut};

use crate::NodeId;

/// The largest store of a job, in bytes of keys and values.
pub const BYTES_MAX: usize = 512 << 20;
/// The smallest share of a node, however many nodes there are.
const SHARE_MIN: usize = 1 << 20;
/// The longest key that is fetched from another node.
pub(crate) const KEY_MAX: usize = 64 << 10;
/// The most requests of a step for held keys that wait for their answers.
pub(crate) const ASKED_MAX: usize = 16;
/// The most runs of nodes of which a request says that they are known.
pub(crate) const KNOWN_MAX: usize = 512;
/// The most bytes that a request reads ahead.
pub(crate) const READ_AHEAD_MAX: u64 = 4 << 20;
/// The most absent keys that a store remembers.
const ABSENT_MAX: usize = 4096;

/// One node's copy of a job's store.
#[derive(Debug)]
pub struct Kvs {
    entries: HashMap<Bytes, Entry>,
    bytes: usize,
    /// Puts on this node since the last fence, and the number of the fence that takes them to the other nodes.
    pending: Vec<Kv>,
    pending_bytes: usize,
    next: u64,
    /// Values that ranks of this node have put before earlier fences, of keys that they have put again before a fence that is not complete.
    before: HashMap<Bytes, Vec<(u64, Bytes)>>,
    /// The number of the last fence that is complete, and of the last one whose result is held; 0: none.
    passed: u64,
    held: u64,
    /// Whether all that was held is here.
    is_complete: bool,
    /// Keys that no held result has.
    absent: HashSet<Bytes>,
    /// The largest that `bytes` and `pending_bytes` may become.
    bytes_max: usize,
    share: usize,
}

#[derive(Debug)]
struct Entry {
    value: Bytes,
    /// The fence before which it was put.
    epoch: u64,
    /// The last fence up to which no later value was put.
    known: u64,
    source: Source,
}

/// Where a value has come from.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Source {
    /// A rank of this node has put it.
    Own,
    /// Every node has it from the start or from a fence, or it is only for this node.
    Given,
    /// It was requested.
    Fetched,
}

/// What is known of a key.
#[derive(Debug, PartialEq, Eq)]
pub enum Known {
    /// Its value.
    Value(Bytes),
    /// It has none.
    Absent,
    /// The daemon that holds the results of fences knows.
    Elsewhere,
}

/// Why a value is not stored.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum KvsError {
    /// The store is full.
    #[error("the job's KVS is full: it has {max} bytes of keys and values")]
    Full {
        /// The limit in bytes.
        max: usize,
    },
    /// This node has put too much since the last fence.
    #[error("too much was put before one fence: the ranks of one node may put {share} bytes of keys and values")]
    Share {
        /// The limit in bytes.
        share: usize,
    },
    /// A fence delivered something that is not a batch.
    #[error("a fence delivered keys that do not decode")]
    Invalid,
}

impl Kvs {
    /// Returns the store of a job on `nodes` nodes, with the entries that every node has from the start.
    pub fn preset(entries: &[Kv], nodes: usize) -> Kvs {
        let mut kvs = Kvs::limited(BYTES_MAX, (BYTES_MAX / nodes.max(1)).max(SHARE_MIN));
        for kv in entries {
            // They came in one message of a rank and are far below the limit.
            let (value, source) = (kv.value.clone(), Source::Given);
            let _ = kvs.insert(kv.key.clone(), Entry { value, epoch: 0, known: 0, source });
        }
        kvs
    }

    fn limited(bytes_max: usize, share: usize) -> Kvs {
        Kvs {
            entries: HashMap::new(),
            bytes: 0,
            pending: Vec::new(),
            pending_bytes: 0,
            next: 1,
            before: HashMap::new(),
            passed: 0,
            held: 0,
            is_complete: true,
            absent: HashSet::new(),
            bytes_max,
            share,
        }
    }

    /// Stores a value for this node now and for the others at the next fence.
    pub fn put(&mut self, key: Bytes, value: Bytes) -> Result<(), KvsError> {
        let bytes = key.len() + value.len();
        if self.pending_bytes + bytes > self.share {
            return Err(KvsError::Share { share: self.share });
        }
        let epoch = self.next;
        let before =
            self.insert(key.clone(), Entry { value: value.clone(), epoch, known: epoch, source: Source::Own })?;
        if let Some(before) = before.filter(|before| before.source == Source::Own && before.epoch < epoch) {
            self.before.entry(key.clone()).or_default().push((before.epoch, before.value));
        }
        self.pending_bytes += bytes;
        self.pending.push(Kv { key, value });
        Ok(())
    }

    /// Stores a value for this node only.
    pub fn keep(&mut self, key: Bytes, value: Bytes) -> Result<(), KvsError> {
        self.insert(key, Entry { value, epoch: self.next, known: u64::MAX, source: Source::Given }).map(drop)
    }

    /// Stores an entry. Returns the one that it replaces.
    fn insert(&mut self, key: Bytes, entry: Entry) -> Result<Option<Entry>, KvsError> {
        let before = self.entries.get(&key).map_or(0, |before| key.len() + before.value.len());
        let bytes = self.bytes - before + key.len() + entry.value.len();
        if bytes > self.bytes_max {
            return Err(KvsError::Full { max: self.bytes_max });
        }
        self.bytes = bytes;
        Ok(self.entries.insert(key, entry))
    }

    /// Returns the value of a key that is here, whether or not another node has put a later one.
    pub fn get(&self, key: &[u8]) -> Option<&Bytes> {
        self.entries.get(key).map(|entry| &entry.value)
    }

    /// Returns what is known of a key.
    pub fn find(&self, key: &[u8]) -> Known {
        let entry = self.entries.get(key);
        let is_known = self.is_complete || entry.map_or_else(|| self.absent.contains(key), |it| it.known >= self.held);
        match entry {
            _ if !is_known => Known::Elsewhere,
            Some(entry) => Known::Value(entry.value.clone()),
            None => Known::Absent,
        }
    }

    /// Returns the number of the last fence whose result is held; 0: there is none.
    pub fn held(&self) -> u64 {
        self.held
    }

    /// Returns whether all that was held is here.
    pub fn is_complete(&self) -> bool {
        self.is_complete
    }

    /// Returns the `index`-th entry in a stable order, if [`Kvs::is_complete`]. Cost: a sort; only historic clients use this.
    pub fn entry(&self, index: usize) -> Option<(&Bytes, &Bytes)> {
        let mut keys: Vec<_> = self.entries.keys().collect();
        keys.sort_unstable();
        let (key, entry) = self.entries.get_key_value(*keys.get(index)?)?;
        Some((key, &entry.value))
    }

    /// Takes the puts since the last fence, encoded once for the whole tree, into the fence with this number; None if there are none.
    pub fn take_batch(&mut self, fence: u64) -> Option<Bytes> {
        self.next = fence + 1;
        if self.pending.is_empty() {
            return None;
        }
        self.pending_bytes = 0;
        let batch = KvBatch { entries: std::mem::take(&mut self.pending) };
        Some(batch.encode_to_vec().into())
    }

    /// Stores the puts of all nodes that the fence with this number has delivered, or takes in that its result is held.
    pub fn pass(&mut self, fence: u64, batches: Vec<Bytes>, is_held: bool) -> Result<(), KvsError> {
        for batch in batches {
            for Kv { key, value } in KvBatch::decode(batch).map_err(|_| KvsError::Invalid)?.entries {
                self.take(key, Entry { value, epoch: fence, known: fence, source: Source::Given })?;
            }
        }
        (self.passed, self.next) = (fence, self.next.max(fence + 1));
        // No node can want earlier values than those of this fence any more.
        let entries = &self.entries;
        self.before.retain(|key, values| {
            let last = values.iter().map(|(epoch, _)| *epoch).filter(|epoch| *epoch <= fence).max();
            values.retain(|(epoch, _)| last.is_none_or(|last| *epoch >= last));
            entries.get(key).is_some_and(|entry| entry.epoch > fence)
        });
        if is_held {
            self.held = fence;
            self.is_complete = false;
            self.absent.clear();
        }
        Ok(())
    }

    /// Stores a value of another node, unless this node has put a later one.
    fn take(&mut self, key: Bytes, mut entry: Entry) -> Result<(), KvsError> {
        let own = |entry: &Entry| entry.source == Source::Own;
        if let Some(here) = self.entries.get_mut(&key)
            && (here.epoch > entry.epoch || here.epoch == entry.epoch && entry.source == Source::Fetched)
        {
            here.known = here.known.max(entry.known);
            return Ok(());
        }
        // What this node has put stays what it is, so that it can be sent again.
        if self
            .entries
            .get(&key)
            .is_some_and(|here| own(here) && here.epoch == entry.epoch && here.value == entry.value)
        {
            entry.source = Source::Own;
        }
        self.insert(key, entry).map(drop)
    }

    /// Stores fetched contributions, which are the last up to this held fence. Returns their keys.
    pub fn learn(&mut self, held: u64, puts: Vec<NodePut>) -> Result<Vec<Bytes>, KvsError> {
        let mut keys = Vec::new();
        for put in puts {
            for Kv { key, value } in KvBatch::decode(put.batch).map_err(|_| KvsError::Invalid)?.entries {
                keys.push(key.clone());
                self.take(key, Entry { value, epoch: put.epoch, known: held, source: Source::Fetched })?;
            }
        }
        Ok(keys)
    }

    /// Takes in that no held result up to this one has a later value of a key than the one that is here, if there is one.
    pub fn settle(&mut self, held: u64, key: &Bytes) {
        match self.entries.get_mut(key) {
            Some(entry) => entry.known = entry.known.max(held),
            None => {
                if self.absent.len() >= ABSENT_MAX {
                    self.absent.clear();
                }
                self.absent.insert(key.clone());
            }
        }
    }

    /// Takes in that all that was held up to this fence is here.
    pub fn complete(&mut self, held: u64) {
        self.is_complete |= held >= self.held;
    }

    /// Forgets what was fetched: it can be fetched again.
    pub fn forget_fetched(&mut self) {
        self.entries.retain(|_, entry| entry.source != Source::Fetched);
        self.bytes = self.entries.iter().map(|(key, entry)| key.len() + entry.value.len()).sum();
        self.is_complete = self.held == 0;
    }

    /// Returns what ranks of this node have put before fences up to this one, or up to the last complete one, as they contributed it.
    pub fn contributed(&self, node: NodeId, held: u64) -> Vec<NodePut> {
        let up_to = held.max(self.passed);
        let mut by_epoch: BTreeMap<u64, Vec<Kv>> = BTreeMap::new();
        let mut add = |epoch: u64, key: &Bytes, value: &Bytes| {
            by_epoch.entry(epoch).or_default().push(Kv { key: key.clone(), value: value.clone() });
        };
        for (key, entry) in self.entries.iter().filter(|(_, entry)| entry.source == Source::Own) {
            if entry.epoch <= up_to {
                add(entry.epoch, key, &entry.value);
                continue;
            }
            let earlier = self.before.get(key).into_iter().flatten().filter(|(epoch, _)| *epoch <= up_to);
            if let Some((epoch, value)) = earlier.max_by_key(|(epoch, _)| *epoch) {
                add(*epoch, key, value);
            }
        }
        let put = |(epoch, entries)| NodePut { node, epoch, batch: KvBatch { entries }.encode_to_vec().into() };
        by_epoch.into_iter().map(put).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn fetched(of: &Kvs, node: NodeId, held: u64) -> Vec<NodePut> {
        of.contributed(node, held)
    }

    #[test]
    fn a_batch_carries_the_puts_before_one_fence_to_another_node() {
        let (mut here, mut there) = (Kvs::preset(&[], 2), Kvs::preset(&[], 2));
        here.put("k".into(), "1".into()).unwrap();
        here.put("k".into(), "2".into()).unwrap();
        let batch = here.take_batch(1).unwrap();
        assert_eq!(here.take_batch(1), None);
        there.pass(1, vec![batch], false).unwrap();
        assert_eq!(there.find(b"k"), Known::Value("2".into()));
        assert_eq!((there.entry(0).unwrap().0, there.find(b"l")), (&"k".into(), Known::Absent));
        assert_eq!(there.entry(1), None);
    }

    #[test]
    fn a_batch_that_does_not_decode_is_an_error() {
        let batch = Bytes::from_static(b"\xff\xff\xff");
        assert_eq!(Kvs::preset(&[], 1).pass(1, vec![batch], false), Err(KvsError::Invalid));
    }

    #[test]
    fn after_a_held_fence_only_what_is_later_is_known() {
        let given = [Kv { key: "given".into(), value: "0".into() }];
        let (mut a, mut b) = (Kvs::preset(&given, 2), Kvs::preset(&given, 2));
        a.put("k".into(), "a1".into()).unwrap();
        b.put("l".into(), "b1".into()).unwrap();
        for kvs in [&mut a, &mut b] {
            kvs.take_batch(1);
            assert_eq!(kvs.find(b"given"), Known::Value("0".into()));
            kvs.pass(1, Vec::new(), true).unwrap();
        }
        assert_eq!(a.find(b"k"), Known::Value("a1".into()), "its own");
        assert_eq!(
            (a.find(b"l"), a.find(b"given"), a.find(b"m")),
            (Known::Elsewhere, Known::Elsewhere, Known::Elsewhere)
        );
        a.learn(1, fetched(&b, 2, 1)).unwrap();
        ["given", "m"].into_iter().for_each(|key| a.settle(1, &key.into()));
        assert_eq!((a.find(b"l"), a.find(b"m")), (Known::Value("b1".into()), Known::Absent));
        assert_eq!(a.find(b"given"), Known::Value("0".into()));
        // A fence that goes to all nodes is the last for its keys, and changes nothing for the others.
        b.put("k".into(), "b2".into()).unwrap();
        let batch = b.take_batch(2).unwrap();
        a.take_batch(2);
        a.pass(2, vec![batch], false).unwrap();
        assert_eq!((a.find(b"k"), a.find(b"l")), (Known::Value("b2".into()), Known::Value("b1".into())));
        // After another held one, all but its own puts may be old.
        a.put("m".into(), "a3".into()).unwrap();
        a.take_batch(3);
        a.pass(3, Vec::new(), true).unwrap();
        assert_eq!(
            (a.find(b"k"), a.find(b"l"), a.find(b"m")),
            (Known::Elsewhere, Known::Elsewhere, Known::Value("a3".into()))
        );
        // What is fetched does not replace what is later.
        let old = KvBatch { entries: vec![Kv { key: "k".into(), value: "a1".into() }] }.encode_to_vec();
        a.learn(3, vec![NodePut { node: 1, epoch: 1, batch: old.into() }]).unwrap();
        assert_eq!(a.find(b"k"), Known::Value("b2".into()));
        a.complete(3);
        assert_eq!((a.find(b"l"), a.find(b"x")), (Known::Value("b1".into()), Known::Absent));
        a.forget_fetched();
        assert_eq!((a.find(b"l"), a.find(b"m")), (Known::Elsewhere, Known::Value("a3".into())));
    }

    #[test]
    fn a_node_sends_again_what_it_has_contributed_and_not_what_it_will() {
        let mut kvs = Kvs::preset(&[], 2);
        let sent = |kvs: &Kvs, held| {
            let puts = kvs.contributed(7, held).into_iter();
            let values = |put: NodePut| {
                let entries = KvBatch::decode(put.batch).unwrap().entries.into_iter();
                entries.map(move |kv| (put.epoch, kv.key, kv.value)).collect::<Vec<_>>()
            };
            puts.flat_map(values).collect::<Vec<_>>()
        };
        let is = |epoch, value: &'static str| vec![(epoch, Bytes::from("k"), Bytes::from(value))];
        kvs.put("k".into(), "1".into()).unwrap();
        assert_eq!(sent(&kvs, 0), []);
        kvs.take_batch(1);
        kvs.pass(1, Vec::new(), true).unwrap();
        assert_eq!(sent(&kvs, 1), is(1, "1"));
        kvs.put("k".into(), "2".into()).unwrap();
        assert_eq!((sent(&kvs, 1), kvs.find(b"k")), (is(1, "1"), Known::Value("2".into())));
        kvs.take_batch(2);
        assert_eq!(sent(&kvs, 1), is(1, "1"), "the fence is not complete");
        assert_eq!(sent(&kvs, 2), is(2, "2"), "the fence is complete, and this node does not know yet");
        kvs.put("k".into(), "3".into()).unwrap();
        assert_eq!((sent(&kvs, 1), sent(&kvs, 2)), (is(1, "1"), is(2, "2")));
        kvs.pass(2, Vec::new(), true).unwrap();
        assert_eq!(sent(&kvs, 1), is(2, "2"));
        assert_eq!(kvs.before.values().flatten().count(), 1);
        kvs.take_batch(3);
        kvs.pass(3, Vec::new(), false).unwrap();
        assert_eq!((sent(&kvs, 2), kvs.before.len()), (is(3, "3"), 0));
    }

    #[test]
    fn a_node_puts_no_more_than_its_share_before_a_fence_and_the_store_is_bounded() {
        let mut kvs = Kvs::limited(100, 60);
        kvs.put("a".into(), vec![0; 49].into()).unwrap();
        assert_eq!(kvs.put("b".into(), vec![0; 10].into()), Err(KvsError::Share { share: 60 }));
        kvs.put("b".into(), vec![0; 9].into()).unwrap();
        kvs.take_batch(1).unwrap();
        assert_eq!(kvs.put("c".into(), vec![0; 40].into()), Err(KvsError::Full { max: 100 }));
        // A value that replaces another one needs only the difference.
        kvs.put("a".into(), vec![1; 49].into()).unwrap();
        assert_eq!(kvs.get(b"c"), None);
    }

    #[test]
    fn the_shares_of_all_nodes_are_the_store() {
        assert_eq!(Kvs::preset(&[], 1).share, BYTES_MAX);
        assert_eq!(Kvs::preset(&[], 64).share, BYTES_MAX / 64);
        assert_eq!(Kvs::preset(&[], 100_000).share, SHARE_MIN);
    }
}
