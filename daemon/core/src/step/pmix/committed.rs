//! What ranks have committed: values by key, each in the codec of the client that committed it.
//!
//! A client commits what it has put for this node (`local`) and for other nodes (`remote`). The server reads only the keys. Other
//! clients get all values of a rank at once and keep them, so a rank's values are encoded in one piece, and again only for a client of
//! the other codec. To other nodes they travel as a byte that names the codec and the encoded values.

use std::collections::BTreeMap;

use bytes::{BufMut, Bytes, BytesMut};
use rsd_proto::pmix::{Codec, Commit, Entry, Reply, Scope, Status, append};

use super::{Effect, Local, Step, To};
use crate::Now;
use crate::kvs::{BYTES_MAX, Known};

/// The key in the KVS under which a rank's values for other nodes travel with a fence. Ranks cannot put keys that begin like this.
const KEY: &str = "PMI_x/";

/// The values of one rank.
#[derive(Debug, Default)]
pub(super) struct Committed {
    pub(super) local: Values,
    pub(super) remote: Values,
    /// Whether `remote` has changed since it was put into the KVS.
    undistributed: bool,
}

/// Values by key.
#[derive(Debug, Default)]
pub(super) struct Values {
    entries: BTreeMap<String, (Codec, Bytes)>,
    bytes: usize,
}

impl Values {
    fn put(&mut self, codec: Codec, entry: Entry) {
        self.bytes += entry.key.len() + entry.bytes.len();
        // A part of the message would keep all of it.
        let bytes = Bytes::copy_from_slice(&entry.bytes);
        if let Some((_, before)) = self.entries.insert(entry.key.clone(), (codec, bytes)) {
            self.bytes -= entry.key.len() + before.len();
        }
    }

    /// Returns whether there is a value under this key.
    pub(super) fn has(&self, key: &str) -> bool {
        self.entries.contains_key(key)
    }

    /// The bytes that a key and its value take, if there is one.
    fn length_of(&self, key: &str) -> usize {
        self.entries.get(key).map_or(0, |(_, bytes)| key.len() + bytes.len())
    }

    /// Returns the encoded values.
    pub(super) fn encode(&self, codec: Codec) -> Bytes {
        let mut values = Vec::new();
        for (key, (of, bytes)) in &self.entries {
            recode(*of, codec, &Entry { key: key.clone(), bytes: bytes.clone() }, &mut values);
        }
        values.into()
    }

    /// Returns the values as they travel to other nodes.
    pub(super) fn pack(&self) -> Bytes {
        let codec = self.entries.values().next().map_or(Codec::V41, |(codec, _)| *codec);
        let values = self.encode(codec);
        let mut packed = BytesMut::with_capacity(values.len() + 1);
        packed.put_u8(codec as u8);
        packed.put(values);
        packed.freeze()
    }
}

/// Values that have come from another node.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Packed {
    codec: Codec,
    values: Bytes,
}

impl Packed {
    /// Reads what [`Values::pack`] wrote; None: it is something else.
    pub(super) fn read(packed: &Bytes) -> Option<Packed> {
        let codec = match packed.first()? {
            byte if *byte == Codec::V3 as u8 => Codec::V3,
            byte if *byte == Codec::V41 as u8 => Codec::V41,
            _ => return None,
        };
        Some(Packed { codec, values: packed.slice(1..) })
    }

    /// Returns whether there is a value under this key.
    pub(super) fn has(&self, key: &str) -> bool {
        Entry::split(self.codec, &self.values).is_ok_and(|entries| entries.iter().any(|entry| entry.key == key))
    }

    /// Returns the encoded values.
    pub(super) fn encode(&self, codec: Codec) -> Bytes {
        if self.codec == codec {
            return self.values.clone();
        }
        let mut values = Vec::new();
        for entry in Entry::split(self.codec, &self.values).unwrap_or_default() {
            recode(self.codec, codec, &entry, &mut values);
        }
        values.into()
    }
}

/// Appends a value in a codec. A value that was decoded once to find its key can be decoded again.
fn recode(from: Codec, to: Codec, entry: &Entry, values: &mut Vec<u8>) {
    if from == to {
        values.extend_from_slice(&entry.bytes);
    } else if let Ok(kval) = entry.decode(from) {
        append(to, values, &kval);
    }
}

impl Step {
    pub(super) fn on_commit(&mut self, now: Now, local: Local, to: To, commits: Vec<Commit>, out: &mut Vec<Effect>) {
        let Some(codec) = self.codec_of(to.client) else { return };
        let before = self.pmix.committed.get(&local);
        let (here, elsewhere) = (before.map(|it| &it.local), before.map(|it| &it.remote));
        let grows = |values: Option<&Values>, entry: &Entry| {
            (entry.key.len() + entry.bytes.len())
                .saturating_sub(values.map_or(0, |values| values.length_of(&entry.key)))
        };
        let by = |scope: Scope, entry: &Entry| match scope {
            Scope::Local => grows(here, entry),
            Scope::Remote => grows(elsewhere, entry),
            Scope::Global => grows(here, entry) + grows(elsewhere, entry),
        };
        let of = |commit: &Commit| commit.entries.iter().map(|entry| by(commit.scope, entry)).sum::<usize>();
        let more: usize = commits.iter().map(of).sum();
        let known: usize = self.pmix.committed.values().map(|it| it.local.bytes + it.remote.bytes).sum();
        if known.saturating_add(more) > BYTES_MAX {
            return self.send_pmix(to, &Reply::Done(Status::OUT_OF_RESOURCE), out);
        }
        let committed = self.pmix.committed.entry(local).or_default();
        for commit in commits {
            for entry in commit.entries {
                if matches!(commit.scope, Scope::Local | Scope::Global) {
                    committed.local.put(codec, entry.clone());
                }
                if matches!(commit.scope, Scope::Remote | Scope::Global) {
                    committed.remote.put(codec, entry);
                    committed.undistributed = true;
                }
            }
        }
        self.send_pmix(to, &Reply::Done(Status::SUCCESS), out);
        self.on_committed(now, local, out);
    }

    /// Puts the rank's values for other nodes into the KVS, so that the next fence takes them there. Returns false if it has no room.
    pub(super) fn distribute(&mut self, now: Now, local: Local, out: &mut Vec<Effect>) -> bool {
        if self.map.nodes().len() == 1 {
            return true;
        }
        let rank = self.ranks[local].rank;
        let Some(committed) = self.pmix.committed.get_mut(&local).filter(|it| it.undistributed) else { return true };
        committed.undistributed = false;
        let put = self.kvs.put(format!("{KEY}{rank}").into(), committed.remote.pack());
        if let Err(error) = &put {
            self.on_protocol_fault(now, local, format!("cannot distribute its values: {error}"), out);
        }
        put.is_ok()
    }

    /// Returns what is known of the values that a rank on another node has distributed with a fence, and their key.
    pub(super) fn distributed(&self, rank: u32) -> (Known, Bytes) {
        let key = Bytes::from(format!("{KEY}{rank}"));
        (self.kvs.find(&key), key)
    }
}
