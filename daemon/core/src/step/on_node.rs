//! Values that the ranks of one node store for each other (PMI-2's node attributes). They never leave the node.
//!
//! A rank may wait until another one stores a value. It is told that there is none if that can no longer happen: when a rank of the
//! node has left and all others wait too.

use std::collections::HashMap;

use bytes::Bytes;

use super::dialect::{Asker, Reply};
use super::{Effect, Local, Step};

/// The most bytes of keys and values on a node.
const BYTES_MAX: usize = 64 << 20;
/// The most values that a rank waits for at the same time: one, unless it has threads.
const WAITS_MAX: usize = 64;

/// The values, and who waits for one.
#[derive(Debug, Default)]
pub(super) struct OnNode {
    values: HashMap<Bytes, Bytes>,
    bytes: usize,
    waiting: Vec<(Asker, Bytes)>,
}

impl Step {
    /// Stores a value and answers the ranks that wait for it. Fails with a sentence if too much is stored.
    pub(super) fn put_on_node(&mut self, key: Bytes, value: Bytes, out: &mut Vec<Effect>) -> Result<(), String> {
        let before = self.on_node.values.get(&key).map_or(0, |value| key.len() + value.len());
        let bytes = self.on_node.bytes - before + key.len() + value.len();
        if bytes > BYTES_MAX {
            return Err(format!("the ranks of one node may store {BYTES_MAX} bytes of node attributes"));
        }
        self.on_node.bytes = bytes;
        self.on_node.values.insert(key.clone(), value.clone());
        let answered: Vec<_> = self.on_node.waiting.extract_if(.., |(_, wanted)| *wanted == key).collect();
        for (asker, _) in answered {
            self.answer(&asker, Reply::Value(Some(value.clone())), out);
        }
        Ok(())
    }

    /// Answers with a value; with `wait`, once there is one.
    pub(super) fn get_on_node(&mut self, asker: Asker, key: Bytes, wait: bool, out: &mut Vec<Effect>) {
        let value = self.on_node.values.get(&key).cloned();
        let broken = self.has_members() && self.ending.is_killing();
        if value.is_some() || !wait || broken {
            let reply = if value.is_none() { self.or_broken(Reply::Value(None)) } else { Reply::Value(value) };
            return self.answer(&asker, reply, out);
        }
        if self.on_node.waiting.iter().filter(|(waiting, _)| waiting.local == asker.local).count() >= WAITS_MAX {
            let why = format!("a rank waits for at most {WAITS_MAX} node attributes");
            return self.answer(&asker, Reply::Refused(why), out);
        }
        self.on_node.waiting.push((asker, key));
        self.check_on_node(out);
    }

    /// Answers the waiting ranks if no rank is left that could store a value.
    pub(super) fn check_on_node(&mut self, out: &mut Vec<Effect>) {
        if self.on_node.waiting.is_empty() || !self.ranks.iter().any(|rank| rank.left_quietly() || rank.is_lost()) {
            return;
        }
        let mut waits = vec![false; self.ranks.len()];
        let inside = self.fence.waiting.iter().chain(self.on_node.waiting.iter().map(|(asker, _)| asker));
        inside.for_each(|asker| waits[asker.local] = true);
        if self.ranks.iter().zip(waits).all(|(rank, waits)| waits || rank.phase.is_over()) {
            for (asker, _) in std::mem::take(&mut self.on_node.waiting) {
                self.answer(&asker, Reply::Value(None), out);
            }
        }
    }

    /// Fails all waits: the epoch is broken.
    pub(super) fn fail_on_node(&mut self, out: &mut Vec<Effect>) {
        for (asker, _) in std::mem::take(&mut self.on_node.waiting) {
            self.answer(&asker, Reply::Failed(self.ending.why()), out);
        }
    }

    /// Forgets what a rank waited for on its previous connection.
    pub(super) fn forget_on_node(&mut self, local: Local) {
        self.on_node.waiting.retain(|(asker, _)| asker.local != local);
    }
}
