//! The key-value store of one job as one node holds it: a full copy, made complete by every fence, so that a get never
//! leaves the node.
//!
//! A put is visible on its own node at once and everywhere after the next fence. The last put of a key wins; among ranks that
//! put one key in one epoch the order is that of the fence's batches, which no MPI relies on.

use std::collections::HashMap;

use bytes::Bytes;
use prost::Message;
use rsd_proto::v1::{Kv, KvBatch};

/// One node's copy of a job's store.
#[derive(Debug, Default)]
pub struct Kvs {
    entries: HashMap<Bytes, Bytes>,
    /// Put here since the last fence.
    pending: Vec<Kv>,
}

impl Kvs {
    /// With what every node has from the start.
    pub fn preset(entries: &[Kv]) -> Kvs {
        let entries = entries.iter().map(|kv| (kv.key.clone(), kv.value.clone())).collect();
        Kvs { entries, pending: Vec::new() }
    }

    /// Stores a value for this node now and for the others at the next fence.
    pub fn put(&mut self, key: Bytes, value: Bytes) {
        self.pending.push(Kv { key: key.clone(), value: value.clone() });
        self.entries.insert(key, value);
    }

    /// The value of a key, if a put here or a fence has brought it.
    pub fn get(&self, key: &[u8]) -> Option<&Bytes> {
        self.entries.get(key)
    }

    /// The `index`-th entry in a stable order. Cost: a sort; nobody but historic clients asks.
    pub fn entry(&self, index: usize) -> Option<(&Bytes, &Bytes)> {
        let mut keys: Vec<_> = self.entries.keys().collect();
        keys.sort_unstable();
        self.entries.get_key_value(*keys.get(index)?)
    }

    /// What was put since the last fence, encoded once for the whole tree; nothing if there is nothing.
    pub fn take_batch(&mut self) -> Option<Bytes> {
        if self.pending.is_empty() {
            return None;
        }
        let batch = KvBatch { entries: std::mem::take(&mut self.pending) };
        Some(batch.encode_to_vec().into())
    }

    /// Takes in what a fence brought from all nodes. A batch that does not decode is an error: a peer's fault.
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
    fn a_batch_carries_the_puts_of_one_epoch_to_another_node() {
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
    fn garbage_is_refused() {
        assert!(Kvs::default().apply(Bytes::from_static(b"\xff\xff\xff")).is_err());
    }
}
