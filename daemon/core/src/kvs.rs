//! The key-value store of one job on one node: a full copy of the job's KVS, completed by every fence, so a get needs no message
//! to another node.
//!
//! A put is visible on its own node at once and on all nodes after the next fence. The last put of a key wins. If several ranks
//! put the same key before one fence, the order of the batches in the fence decides; no MPI library relies on it.

use std::collections::HashMap;

use bytes::Bytes;
use prost::Message;
use rsd_proto::v1::{Kv, KvBatch};

/// One node's copy of a job's store.
#[derive(Debug, Default)]
pub struct Kvs {
    entries: HashMap<Bytes, Bytes>,
    /// Puts on this node since the last fence.
    pending: Vec<Kv>,
}

impl Kvs {
    /// Returns a store with the entries that every node has from the start.
    pub fn preset(entries: &[Kv]) -> Kvs {
        let entries = entries.iter().map(|kv| (kv.key.clone(), kv.value.clone())).collect();
        Kvs { entries, pending: Vec::new() }
    }

    /// Stores a value for this node now and for the others at the next fence.
    pub fn put(&mut self, key: Bytes, value: Bytes) {
        self.pending.push(Kv { key: key.clone(), value: value.clone() });
        self.entries.insert(key, value);
    }

    /// Returns the value of a key, if it was put on this node or delivered by a fence.
    pub fn get(&self, key: &[u8]) -> Option<&Bytes> {
        self.entries.get(key)
    }

    /// Returns the `index`-th entry in a stable order. Cost: a sort; only historic clients use this.
    pub fn entry(&self, index: usize) -> Option<(&Bytes, &Bytes)> {
        let mut keys: Vec<_> = self.entries.keys().collect();
        keys.sort_unstable();
        self.entries.get_key_value(*keys.get(index)?)
    }

    /// Takes the puts since the last fence, encoded once for the whole tree; None if there are none.
    pub fn take_batch(&mut self) -> Option<Bytes> {
        if self.pending.is_empty() {
            return None;
        }
        let batch = KvBatch { entries: std::mem::take(&mut self.pending) };
        Some(batch.encode_to_vec().into())
    }

    /// Stores the puts of all nodes that a fence delivered. A batch that does not decode is an error of its sender.
    pub fn apply(&mut self, batch: Bytes) -> Result<(), prost::DecodeError> {
        for Kv { key, value } in KvBatch::decode(batch)?.entries {
            self.entries.insert(key, value);
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_batch_carries_the_puts_before_one_fence_to_another_node() {
        let (mut here, mut there) = (Kvs::default(), Kvs::default());
        here.put("k".into(), "1".into());
        here.put("k".into(), "2".into());
        let batch = here.take_batch().unwrap();
        assert_eq!(here.take_batch(), None);
        there.apply(batch).unwrap();
        assert_eq!(there.get(b"k").unwrap(), "2");
        assert_eq!(there.entry(0).unwrap().0, "k");
        assert_eq!(there.entry(1), None);
    }

    #[test]
    fn a_batch_that_does_not_decode_is_an_error() {
        assert!(Kvs::default().apply(Bytes::from_static(b"\xff\xff\xff")).is_err());
    }
}
