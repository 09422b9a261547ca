//! The key-value store of one job on one node: a full copy of the job's KVS, completed by every fence, so a get needs no message
//! to another node.
//!
//! A put is visible on its own node at once and on all nodes after the next fence. The last put of a key wins. If several ranks
//! put the same key before one fence, the order of the batches in the fence decides; no MPI library relies on it.
//!
//! The store of a job has at most [`BYTES_MAX`] bytes. Before each fence, every node may put its share of them, so that the result of a
//! fence is never larger.

use std::collections::HashMap;

use bytes::Bytes;
use prost::Message;
use rsd_proto::v1::{Kv, KvBatch};

/// The largest store of a job, in bytes of keys and values.
pub const BYTES_MAX: usize = 512 << 20;
/// The smallest share of a node, however many nodes there are.
const SHARE_MIN: usize = 1 << 20;

/// One node's copy of a job's store.
#[derive(Debug)]
pub struct Kvs {
    entries: HashMap<Bytes, Bytes>,
    bytes: usize,
    /// Puts on this node since the last fence.
    pending: Vec<Kv>,
    pending_bytes: usize,
    /// The largest that `bytes` and `pending_bytes` may become.
    bytes_max: usize,
    share: usize,
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
            let _ = kvs.insert(kv.key.clone(), kv.value.clone());
        }
        kvs
    }

    fn limited(bytes_max: usize, share: usize) -> Kvs {
        Kvs { entries: HashMap::new(), bytes: 0, pending: Vec::new(), pending_bytes: 0, bytes_max, share }
    }

    /// Stores a value for this node now and for the others at the next fence.
    pub fn put(&mut self, key: Bytes, value: Bytes) -> Result<(), KvsError> {
        let bytes = key.len() + value.len();
        if self.pending_bytes + bytes > self.share {
            return Err(KvsError::Share { share: self.share });
        }
        self.insert(key.clone(), value.clone())?;
        self.pending_bytes += bytes;
        self.pending.push(Kv { key, value });
        Ok(())
    }

    /// Stores a value for this node only.
    pub fn keep(&mut self, key: Bytes, value: Bytes) -> Result<(), KvsError> {
        self.insert(key, value)
    }

    fn insert(&mut self, key: Bytes, value: Bytes) -> Result<(), KvsError> {
        let before = self.entries.get(&key).map_or(0, |value| key.len() + value.len());
        let bytes = self.bytes - before + key.len() + value.len();
        if bytes > self.bytes_max {
            return Err(KvsError::Full { max: self.bytes_max });
        }
        self.bytes = bytes;
        self.entries.insert(key, value);
        Ok(())
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
        self.pending_bytes = 0;
        let batch = KvBatch { entries: std::mem::take(&mut self.pending) };
        Some(batch.encode_to_vec().into())
    }

    /// Stores the puts of all nodes that a fence delivered.
    pub fn apply(&mut self, batch: Bytes) -> Result<(), KvsError> {
        for Kv { key, value } in KvBatch::decode(batch).map_err(|_| KvsError::Invalid)?.entries {
            self.insert(key, value)?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_batch_carries_the_puts_before_one_fence_to_another_node() {
        let (mut here, mut there) = (Kvs::preset(&[], 2), Kvs::preset(&[], 2));
        here.put("k".into(), "1".into()).unwrap();
        here.put("k".into(), "2".into()).unwrap();
        let batch = here.take_batch().unwrap();
        assert_eq!(here.take_batch(), None);
        there.apply(batch).unwrap();
        assert_eq!(there.get(b"k").unwrap(), "2");
        assert_eq!(there.entry(0).unwrap().0, "k");
        assert_eq!(there.entry(1), None);
    }

    #[test]
    fn a_batch_that_does_not_decode_is_an_error() {
        assert_eq!(Kvs::preset(&[], 1).apply(Bytes::from_static(b"\xff\xff\xff")), Err(KvsError::Invalid));
    }

    #[test]
    fn a_node_puts_no_more_than_its_share_before_a_fence_and_the_store_is_bounded() {
        let mut kvs = Kvs::limited(100, 60);
        kvs.put("a".into(), vec![0; 49].into()).unwrap();
        assert_eq!(kvs.put("b".into(), vec![0; 10].into()), Err(KvsError::Share { share: 60 }));
        kvs.put("b".into(), vec![0; 9].into()).unwrap();
        kvs.take_batch().unwrap();
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
