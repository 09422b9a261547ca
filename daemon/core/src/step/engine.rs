//! The PMI engine: answers a rank's requests to its process manager from this node alone, except names, spawns and fences. The
//! dialects are codecs over it (`dialect`).
//!
//! `rsd_proto::pmi` documents the rules that every server must obey (replies that old clients accept, what counts as a failure).

use bytes::Bytes;
use rsd_proto::pmi::{listening, losses, mapping, sets, spawning};
use rsd_proto::v1::{self as wire, name_call};

use super::dialect::{Asker, By, Reply, Request};
use super::held::Then;
use super::{Effect, Step};
use crate::Now;
use crate::kvs::Known;

/// Ranks must not put keys that begin like this: they are rsd's.
const RESERVED: &[u8] = b"PMI_";

impl Step {
    /// Handles a rank's request. [`Step::answer`] gets the answer, now or later.
    pub(super) fn request(&mut self, now: Now, asker: Asker, request: Request, out: &mut Vec<Effect>) {
        let local = asker.local;
        if asker.is_library() {
            if self.refuse_kin(now, &asker, &request, out) {
                return;
            }
            self.note_progress(local, &request, out);
        }
        let reply = match request {
            Request::Begin => return self.ranks[local].pmi.begin(),
            Request::Put { key, value } => match self.put(key, value) {
                // A library would ignore a refusal, or continue without its peers' addresses.
                Err(Unstored::Full(error)) if asker.is_library() => {
                    return self.on_protocol_fault(now, local, format!("cannot put a key: {error}"), out);
                }
                Err(Unstored::Full(error)) => Reply::Refused(error),
                Err(Unstored::Reserved) => Reply::Refused("keys that begin with PMI_ are reserved for rsd".into()),
                Ok(()) => Reply::Done,
            },
            Request::Get { namespace, key } => return self.get(now, asker, &namespace, key, out),
            Request::Fence => return self.enter_fence(now, asker, out),
            Request::Ring { left, right } => return self.enter_ring(now, asker, &left, &right, out),
            Request::PutOnNode { key, value } => match self.put_on_node(key, value, out) {
                Err(error) => Reply::Refused(error),
                Ok(()) => Reply::Done,
            },
            Request::GetOnNode { key, wait } => return self.get_on_node(asker, key, wait, out),
            Request::Publish { name, port } => {
                let op = name_call::Op::Publish(wire::Kv { key: name, value: port });
                return self.ask_head(asker, op, out);
            }
            Request::Lookup { name } => return self.ask_head(asker, name_call::Op::Lookup(name), out),
            Request::Unpublish { name } => return self.ask_head(asker, name_call::Op::Unpublish(name), out),
            Request::Spawn(spawn) => return self.on_spawn(asker, spawn, out),
            Request::Abort { code, is_known } => return self.on_abort(now, local, code, is_known),
            Request::Finalize => {
                self.ranks[local].pmi.finalize();
                Reply::Done
            }
        };
        self.answer(&asker, reply, out);
    }

    /// Answers a request in the asker's dialect.
    pub(super) fn answer(&mut self, asker: &Asker, reply: Reply, out: &mut Vec<Effect>) {
        match &asker.by {
            By::Pmi1(verb) => super::pmi1::send(asker.local, &super::pmi1::line(*verb, reply), out),
            By::Pmi2(_) => super::pmi2::send(asker, &super::pmi2::frame(reply), out),
            By::Call { call, .. } => self.answer_call(*call, reply, out),
            By::Disconnected { .. } => {}
            By::Pmix { ticket } => self.on_pmix_answer(*ticket, reply, out),
        }
    }

    fn put(&mut self, key: Bytes, value: Bytes) -> Result<(), Unstored> {
        if key.starts_with(RESERVED) {
            return Err(Unstored::Reserved);
        }
        self.kvs.put(key, value).map_err(|error| Unstored::Full(error.to_string()))
    }

    fn get(&mut self, now: Now, asker: Asker, namespace: &Bytes, key: Bytes, out: &mut Vec<Effect>) {
        let is_library = asker.is_library();
        if is_library && key == spawning::STATE_KEY.as_bytes() {
            let namespace = String::from_utf8_lossy(namespace).into_owned();
            return self.ask_head(asker, name_call::Op::State(namespace), out);
        }
        if is_library && key == losses::KEY.as_bytes() {
            return self.on_losses_wanted(&asker, out);
        }
        if let Some(rank) = losses::ended_of(&key).filter(|_| is_library) {
            let ended = if self.has_ended(rank) { "1" } else { "0" };
            return self.answer(&asker, Reply::Value(Some(ended.into())), out);
        }
        if is_library && key == mapping::KEY.as_bytes() {
            return self.on_mapping_wanted(asker, out);
        }
        if let Some(rank) = listening::rank_of(&key).filter(|_| is_library && self.makes_sockets()) {
            return self.locate(asker, rank, out);
        }
        let own = is_library && key == spawning::ERROR_KEY.as_bytes();
        let value = match listening::dial_out_from(&key).filter(|_| is_library) {
            Some(first) => self.dial_out(first).map(Into::into),
            None if own => self.calls.spawn_errors.get(&asker.local).map(|why| one_line(why).into()),
            None => match self.lookup(&key) {
                Known::Value(value) => Some(value),
                Known::Absent => None,
                Known::Elsewhere => {
                    let then = Then::Get { asker, key: key.clone() };
                    return self.fetch(now, key, None, then, out);
                }
            },
        };
        let reply = match value {
            // The rank that should have put it may be dead.
            None if is_library && !own => self.or_broken(Reply::Value(None)),
            value => Reply::Value(value),
        };
        self.answer(&asker, reply, out);
    }

    /// Returns what is known of a key: of the keys that the server itself knows, then of the KVS.
    fn lookup(&self, key: &[u8]) -> Known {
        let known = if key == mapping::KEY.as_bytes() || key == mapping::AT_ONCE_KEY.as_bytes() {
            self.mapping()
        } else if key == listening::SECRET_KEY.as_bytes() {
            self.makes_sockets().then(|| listening::digits(&self.launch.secret).into())
        } else if key == sets::JOB_KEY.as_bytes() {
            Some(self.job.to_string().into())
        } else if key == sets::GROUP_KEY.as_bytes() {
            self.group.clone().map(Bytes::from)
        } else if let Some(first) = sets::first_node(key) {
            sets::list(&self.launch.node_names, first).map(Bytes::from)
        } else if key.starts_with(RESERVED) {
            // No rank of another node has put it.
            self.kvs.get(key).cloned()
        } else {
            return self.kvs.find(key);
        };
        known.map_or(Known::Absent, Known::Value)
    }
}

/// Why a value was not stored.
enum Unstored {
    Reserved,
    /// The sentence says which limit was reached.
    Full(String),
}

/// Joins the lines of a text: a value of PMI is one line.
fn one_line(text: &str) -> String {
    text.lines().collect::<Vec<_>>().join("; ")
}
