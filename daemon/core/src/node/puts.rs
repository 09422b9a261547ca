//! What ranks of many nodes have put, by key: whole contributions of nodes, as they came, and an index over their keys.
//!
//! Of several values of a key, only the last remains: that of the latest fence and, within a fence, of the node with the highest id. So a
//! contribution may be passed on as a whole, and all its values are current.
//!
//! Cost: the keys of a contribution are indexed when a key is first looked for, about 30 bytes and 150 ns each; a lookup reads the index and
//! decodes one contribution.

use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};
use std::hash::{DefaultHasher, Hash, Hasher};

use bytes::Bytes;
use prost::Message;
use rsd_proto::v1::{KvBatch, NodePut, NodeRun};

use crate::NodeId;

/// A contribution, by its place in [`Puts::slots`].
type Slot = u32;

/// Contributions of nodes, by node and fence.
#[derive(Debug, Default)]
pub(super) struct Puts {
    slots: Vec<Option<NodePut>>,
    free: Vec<Slot>,
    order: BTreeMap<(NodeId, u64), Slot>,
    /// By the first half of a key's hash: the second half, and where its last value is.
    index: HashMap<u64, (u32, Slot)>,
    /// Where the last values of keys are whose first half of the hash another key has too.
    others: HashMap<Bytes, Slot>,
    unindexed: Vec<Slot>,
    bytes: u64,
}

/// The two halves of a key's hash. That two keys share both is as good as impossible: 96 bits, and a job has some million keys.
fn hash(key: &[u8]) -> (u64, u32) {
    let mut first = DefaultHasher::new();
    key.hash(&mut first);
    let mut second = first.clone();
    second.write_u8(1);
    (first.finish(), (second.finish() >> 32) as u32)
}

impl Puts {
    /// Adds a contribution, unless it is known.
    pub(super) fn add(&mut self, put: NodePut) {
        let at = (put.node, put.epoch);
        if self.order.contains_key(&at) {
            return;
        }
        self.bytes += put.batch.len() as u64;
        let slot = match self.free.pop() {
            Some(slot) => slot,
            None => {
                self.slots.push(None);
                (self.slots.len() - 1) as Slot
            }
        };
        self.slots[slot as usize] = Some(put);
        self.order.insert(at, slot);
        self.unindexed.push(slot);
    }

    /// Returns the length of all contributions.
    pub(super) fn bytes(&self) -> u64 {
        self.bytes
    }

    /// Returns about as many bytes of contributions as are welcome: first the one that has the last value of a key, then those of the nodes
    /// after it that are not `known`. `None` if no node has put the key.
    pub(super) fn with(&mut self, key: &[u8], welcome: u64, known: &[NodeRun]) -> Option<Vec<NodePut>> {
        self.tidy();
        let put = self.slots[self.find(key)? as usize].as_ref()?;
        let at = (put.node, put.epoch);
        Some(self.some(at, welcome, known).0)
    }

    /// Returns about as many bytes of contributions as are welcome, of the nodes from `from` on, and the node with which to go on.
    pub(super) fn from(&mut self, from: NodeId, welcome: u64) -> (Vec<NodePut>, Option<NodeId>) {
        self.tidy();
        self.some((from, 0), welcome, &[])
    }

    /// Returns the contributions of whole nodes, from the first on.
    fn some(&self, first: (NodeId, u64), welcome: u64, known: &[NodeRun]) -> (Vec<NodePut>, Option<NodeId>) {
        let (mut some, mut bytes) = (Vec::<NodePut>::new(), 0);
        let is_known = |node: NodeId| known.iter().any(|run| (run.first..=run.last).contains(&node));
        for ((node, _), slot) in self.order.range(first..) {
            if *node != first.0 && is_known(*node) {
                continue;
            }
            let Some(put) = &self.slots[*slot as usize] else { continue };
            bytes += put.batch.len() as u64;
            // The parts of a node stay together, so that one can go on with the next node.
            if bytes > welcome && some.last().is_some_and(|last| last.node != *node) {
                return (some, Some(*node));
            }
            some.push(put.clone());
        }
        (some, None)
    }

    /// Indexes what is new, and removes values that are not the last of their key.
    pub(super) fn tidy(&mut self) {
        let mut untidy = BTreeSet::new();
        for slot in std::mem::take(&mut self.unindexed) {
            for kv in self.entries(slot) {
                self.enter(kv.key, slot, &mut untidy);
            }
        }
        for slot in untidy {
            self.rewrite(slot);
        }
    }

    fn entries(&self, slot: Slot) -> Vec<rsd_proto::v1::Kv> {
        let put = self.slots.get(slot as usize).and_then(Option::as_ref);
        // What does not decode has no keys: it came from a step, which may be any program of the job's user.
        put.and_then(|put| KvBatch::decode(put.batch.clone()).ok()).map(|batch| batch.entries).unwrap_or_default()
    }

    /// Enters a key of a contribution into the index. Adds the contribution to the untidy ones that has a value which is not the last.
    fn enter(&mut self, key: Bytes, slot: Slot, untidy: &mut BTreeSet<Slot>) {
        let (half, other_half) = hash(&key);
        let before = match self.index.get(&half) {
            None => {
                self.index.insert(half, (other_half, slot));
                return;
            }
            Some((it, before)) if *it == other_half => *before,
            Some(_) => match self.others.get(&key) {
                None => {
                    self.others.insert(key, slot);
                    return;
                }
                Some(before) => *before,
            },
        };
        let age = |slot: Slot| self.slots[slot as usize].as_ref().map(|put| (put.epoch, put.node));
        let (last, earlier) = if age(slot) > age(before) { (slot, before) } else { (before, slot) };
        untidy.insert(earlier);
        match self.index.get_mut(&half) {
            Some((it, at)) if *it == other_half => *at = last,
            Some(_) | None => drop(self.others.insert(key, last)),
        }
    }

    fn find(&self, key: &[u8]) -> Option<Slot> {
        let (half, other_half) = hash(key);
        let (it, slot) = self.index.get(&half)?;
        if *it == other_half { Some(*slot) } else { self.others.get(key).copied() }
    }

    /// Keeps of a contribution only the last values of keys.
    fn rewrite(&mut self, slot: Slot) {
        let mut seen = HashSet::new();
        let mut entries = self.entries(slot);
        entries.reverse();
        entries.retain(|kv| self.find(&kv.key) == Some(slot) && seen.insert(kv.key.clone()));
        entries.reverse();
        let Some(put) = self.slots[slot as usize].as_mut() else { return };
        self.bytes -= put.batch.len() as u64;
        if entries.is_empty() {
            self.order.remove(&(put.node, put.epoch));
            self.slots[slot as usize] = None;
            self.free.push(slot);
        } else {
            put.batch = KvBatch { entries }.encode_to_vec().into();
            self.bytes += put.batch.len() as u64;
        }
    }
}

#[cfg(test)]
mod tests {
    use rsd_proto::v1::Kv;

    use super::*;

    fn put(node: NodeId, epoch: u64, entries: &[(&str, &str)]) -> NodePut {
        let kv = |(key, value): &(&str, &str)| Kv { key: key.to_string().into(), value: value.to_string().into() };
        let batch = KvBatch { entries: entries.iter().map(kv).collect() };
        NodePut { node, epoch, batch: batch.encode_to_vec().into() }
    }

    /// What is known of a key: the node and the fence of its contribution, and the value there.
    fn value(puts: &mut Puts, key: &str) -> Option<(NodeId, u64, String)> {
        let found = puts.with(key.as_bytes(), 0, &[])?;
        let first = &found[0];
        let entries = KvBatch::decode(first.batch.clone()).unwrap().entries;
        let mut values = entries.iter().filter(|kv| kv.key == key);
        let value = String::from_utf8(values.next()?.value.to_vec()).unwrap();
        assert!(values.next().is_none(), "each key once");
        Some((first.node, first.epoch, value))
    }

    #[test]
    fn the_last_value_of_a_key_is_found_whatever_the_order_in_which_they_came() {
        for order in [[0, 1, 2, 3], [3, 2, 1, 0], [2, 0, 3, 1]] {
            let all = [
                put(1, 3, &[("a", "1"), ("b", "1"), ("a", "2")]),
                put(2, 3, &[("c", "2")]),
                put(2, 5, &[("b", "3")]),
                put(3, 5, &[("b", "4")]),
            ];
            let mut puts = Puts::default();
            for at in order {
                puts.add(all[at].clone());
                puts.add(all[at].clone());
                let _ = value(&mut puts, "a");
            }
            assert_eq!(value(&mut puts, "a"), Some((1, 3, "2".into())));
            assert_eq!(value(&mut puts, "b"), Some((3, 5, "4".into())));
            assert_eq!(value(&mut puts, "c"), Some((2, 3, "2".into())));
            assert_eq!(value(&mut puts, "d"), None);
            let kept = [put(1, 3, &[("a", "2")]), put(2, 3, &[("c", "2")]), put(3, 5, &[("b", "4")])];
            assert_eq!(puts.from(0, u64::MAX), (kept.to_vec(), None), "values that are not the last are removed");
            assert_eq!(puts.bytes(), kept.iter().map(|put| put.batch.len() as u64).sum::<u64>());
        }
    }

    #[test]
    fn as_much_is_read_ahead_as_is_welcome() {
        let mut puts = Puts::default();
        (0..10).for_each(|node| puts.add(put(node, 1, &[(&format!("key{node}"), "value")])));
        let nodes = |puts: Vec<NodePut>| puts.iter().map(|put| put.node).collect::<Vec<_>>();
        let len = puts.bytes() / 10;
        assert_eq!(nodes(puts.with(b"key4", 0, &[]).unwrap()), [4], "at least the one");
        assert_eq!(nodes(puts.with(b"key4", 3 * len, &[]).unwrap()), [4, 5, 6]);
        assert_eq!(nodes(puts.with(b"key8", u64::MAX, &[]).unwrap()), [8, 9]);
        let known = [NodeRun { first: 3, last: 5 }, NodeRun { first: 7, last: 7 }];
        assert_eq!(nodes(puts.with(b"key4", 3 * len, &known).unwrap()), [4, 6, 8], "what is known is left out");
        let (some, next) = puts.from(7, 2 * len);
        assert_eq!((nodes(some), next), (vec![7, 8], Some(9)));
        puts.add(put(9, 2, &[("more", "value")]));
        let (some, next) = puts.from(9, 0);
        assert_eq!((nodes(some), next), (vec![9, 9], None), "the parts of a node stay together");
        assert_eq!(puts.from(10, 0), (vec![], None));
    }

    #[test]
    fn keys_with_the_same_hash_are_told_apart() {
        let mut puts = Puts::default();
        puts.add(put(1, 1, &[("a", "1")]));
        puts.tidy();
        // As if the first half of the hash of "b" were that of "a".
        let (half, _) = hash(b"b");
        let of_a = puts.index.remove(&hash(b"a").0).unwrap();
        puts.index.insert(half, of_a);
        puts.add(put(2, 1, &[("b", "2")]));
        puts.add(put(3, 2, &[("b", "3")]));
        assert_eq!(value(&mut puts, "b"), Some((3, 2, "3".into())));
        assert_eq!(puts.others.len(), 1);
    }

    #[test]
    fn what_does_not_decode_has_no_keys() {
        let mut puts = Puts::default();
        puts.add(NodePut { node: 1, epoch: 1, batch: Bytes::from_static(b"\xff\xff\xff") });
        assert_eq!(puts.with(b"a", 0, &[]), None);
    }
}
