//! The PMI engine: answers a rank's requests to its process manager from this node alone, except names, spawns and fences.
//!
//! There is one state per rank, whatever the dialect: PMI-1 text over the inherited socket, or the gRPC `Pmi` service.
//! `rsd_proto::pmi` documents the rules that every server must obey (replies that old clients accept, what counts as a failure).

use bytes::Bytes;
use rsd_proto::pmi::v1::{Reply, Request, RequestDecoder};
use rsd_proto::pmi::{listening, losses, mapping, sets, spawning};
use rsd_proto::v1::{self as wire, name_call, pmi_call, up};

use super::fence::Waiter;
use super::{Effect, Local, Phase, Step};
use crate::Now;

/// The state of one rank's dialogue.
#[derive(Debug, Default)]
pub(super) struct Conn {
    decoder: RequestDecoder,
    spoken: bool,
    finalized: bool,
}

impl Conn {
    /// The rank has a new connection; its state from the previous one remains.
    pub(super) fn begin_anew(&mut self) {
        self.decoder = RequestDecoder::default();
    }

    /// Returns whether the rank has ever sent a PMI message.
    pub(super) fn has_spoken(&self) -> bool {
        self.spoken
    }

    /// Returns whether the rank has finalized.
    pub(super) fn is_finalized(&self) -> bool {
        self.finalized
    }

    /// Returns whether the rank is between init and finalize.
    pub(super) fn is_active(&self) -> bool {
        self.spoken && !self.finalized
    }
}

impl Step {
    pub(super) fn on_pmi(&mut self, now: Now, local: Local, bytes: &[u8], out: &mut Vec<Effect>) {
        self.ranks[local].pmi.decoder.feed(bytes);
        while let Some(request) = self.ranks[local].pmi.decoder.next() {
            self.ranks[local].pmi.spoken = true;
            match request {
                Ok(request) => self.answer(now, local, request, out),
                Err(error) => self.on_protocol_fault(now, local, format!("sent malformed PMI: {error}"), out),
            }
        }
    }

    fn answer(&mut self, now: Now, local: Local, request: Request, out: &mut Vec<Effect>) {
        if self.refuse_kin(now, local, &request, out) {
            return;
        }
        self.note_progress(local, &request, out);
        let reply = match request {
            Request::InitAck { .. } => {
                Reply::InitAck { size: self.map.size(), rank: self.ranks[local].rank, debug: false }
            }
            Request::Init { version: 1, .. } => {
                self.ranks[local].pmi.finalized = false;
                Reply::ResponseToInit { version: 1, subversion: 1, rc: 0 }
            }
            // On a version mismatch the client fails by itself, with its own error.
            Request::Init { .. } => Reply::ResponseToInit { version: 1, subversion: 1, rc: 1 },
            Request::GetMaxes => Reply::maxes(),
            Request::GetAppnum => Reply::Appnum(Some(self.ranks[local].app as u32)),
            Request::GetMyKvsname => Reply::MyKvsname(self.launch.namespace.clone().into_bytes()),
            Request::GetUniverseSize => Reply::UniverseSize(match self.launch.universe_size {
                // Unlimited. PMI has a word for "unknown" only, and libraries then set no attribute.
                0 => -1,
                size => size.into(),
            }),
            Request::Put { key, value, .. } => {
                // Reserved for rsd: ranks must not put such keys.
                if key.starts_with(b"PMI_") {
                    Reply::PutResult { rc: 1 }
                } else {
                    if let Err(error) = self.kvs.put(key.into(), value.into()) {
                        return self.on_protocol_fault(now, local, format!("cannot put a key: {error}"), out);
                    }
                    Reply::PutResult { rc: 0 }
                }
            }
            Request::Get { key, kvsname } if key == spawning::STATE_KEY.as_bytes() => {
                let namespace = String::from_utf8_lossy(&kvsname).into_owned();
                return self.ask_head(local, name_call::Op::State(namespace), out);
            }
            Request::Get { key, .. } if key == spawning::ERROR_KEY.as_bytes() => {
                Reply::GetResult(self.calls.spawn_errors.get(&local).map(|why| one_line(why).into_bytes()))
            }
            Request::Get { key, .. } if key == losses::KEY.as_bytes() => return self.on_losses_wanted(local, out),
            Request::Get { key, .. } if key == mapping::KEY.as_bytes() => return self.on_mapping_wanted(local, out),
            Request::Get { key, .. } => match listening::rank_of(&key) {
                Some(rank) if self.makes_sockets() => return self.locate(local, rank, out),
                Some(_) | None => match self.lookup(&key) {
                    Some(value) => Reply::GetResult(Some(value)),
                    // The rank that should have put it may be dead.
                    None => self.or_broken(Reply::GetResult(None)),
                },
            },
            Request::BarrierIn { group: None } => {
                return self.enter_fence(now, local, Waiter::Pmi1 { tag: None }, out);
            }
            Request::BarrierIn { group: Some(group) } => {
                if group.members == b"WORLD" {
                    return self.enter_fence(now, local, Waiter::Pmi1 { tag: Some(group.tag) }, out);
                }
                // Only PMI 1.2 has other groups, and the answer to init was 1.1.
                Reply::BarrierOut { rc: 1, tag: Some(group.tag) }
            }
            Request::PublishName { service, port } => {
                let op = name_call::Op::Publish(wire::Kv { key: service.into(), value: port.into() });
                return self.ask_head(local, op, out);
            }
            Request::LookupName { service } => {
                return self.ask_head(local, name_call::Op::Lookup(service.into()), out);
            }
            Request::UnpublishName { service } => {
                return self.ask_head(local, name_call::Op::Unpublish(service.into()), out);
            }
            Request::Spawn(spawn) => return self.on_spawn(local, spawn, out),
            Request::Abort { exit_code, .. } => return self.on_abort(now, local, exit_code),
            Request::Finalize => {
                self.ranks[local].pmi.finalized = true;
                Reply::FinalizeAck
            }
            Request::CreateKvs => Reply::NewKvs(self.launch.namespace.clone().into_bytes()),
            Request::DestroyKvs { .. } => Reply::KvsDestroyed { rc: 0 },
            Request::GetByIdx { idx, .. } => {
                let entry = self.kvs.entry(idx as usize);
                Reply::GetByIdxResults(entry.map(|(key, value)| (idx + 1, key.to_vec(), value.to_vec())))
            }
            Request::Unknown { command } => {
                let command = String::from_utf8_lossy(&command).into_owned();
                return self.on_protocol_fault(now, local, format!("sent the unknown PMI command {command:?}"), out);
            }
        };
        reply_to(local, &reply, out);
    }

    /// Returns the value of a key: of the keys that the server itself knows, then of the KVS.
    fn lookup(&self, key: &[u8]) -> Option<Vec<u8>> {
        if key == mapping::KEY.as_bytes() || key == mapping::AT_ONCE_KEY.as_bytes() {
            return self.mapping();
        }
        if key == listening::SECRET_KEY.as_bytes() {
            return self.makes_sockets().then(|| listening::digits(&self.launch.secret).into_bytes());
        }
        if key == sets::JOB_KEY.as_bytes() {
            return Some(self.job.to_string().into_bytes());
        }
        if key == sets::GROUP_KEY.as_bytes() {
            return self.group.clone().map(String::into_bytes);
        }
        if let Some(first) = sets::first_node(key) {
            return sets::list(&self.launch.node_names, first).map(String::into_bytes);
        }
        self.kvs.get(key).map(|value| value.to_vec())
    }

    pub(super) fn answer_barrier(&mut self, local: Local, tag: Option<u32>, out: &mut Vec<Effect>) {
        if self.ranks[local].phase == Phase::Running {
            reply_to(local, &Reply::BarrierOut { rc: 0, tag }, out);
        }
    }

    // --- the gRPC service ---

    pub(super) fn on_pmi_call(&mut self, now: Now, call: wire::PmiCall, out: &mut Vec<Effect>) {
        let Some(local) = self.ranks.iter().position(|rank| rank.rank == call.rank) else {
            return self.answer_call(call.call, Err(format!("rank {} is not on this node", call.rank)), out);
        };
        if !call.namespace.is_empty() && call.namespace != self.launch.namespace {
            let why = format!("job {} has another namespace: see RSD_PMI_NAMESPACE", self.job);
            return self.answer_call(call.call, Err(why), out);
        }
        match call.op {
            Some(pmi_call::Op::Put(kv)) => {
                let put = self.kvs.put(kv.key, kv.value);
                self.answer_call(call.call, put.map(|()| None).map_err(|error| error.to_string()), out);
            }
            Some(pmi_call::Op::Get(key)) => {
                let value = self.lookup(&key).map(Bytes::from);
                self.answer_call(call.call, Ok(value), out);
            }
            Some(pmi_call::Op::Fence(_)) => self.enter_fence_by_call(now, local, call.call, call.attempt, out),
            Some(pmi_call::Op::Info(_)) => {
                let info = self.info(local);
                let result = wire::PmiResult { job: self.job, call: call.call, info: Some(info), ..Default::default() };
                self.send(up::Body::PmiResult(result), out);
            }
            None => self.answer_call(call.call, Err("the call contains no request".into()), out),
        }
    }

    pub(super) fn answer_call(&self, call: u64, answer: Result<Option<Bytes>, String>, out: &mut Vec<Effect>) {
        let (error, value) = match answer {
            Ok(value) => (String::new(), value),
            Err(error) => (error, None),
        };
        self.send(up::Body::PmiResult(wire::PmiResult { job: self.job, call, error, value, info: None }), out);
    }

    fn info(&self, local: Local) -> wire::PmiInfo {
        let node_index = self.map.nodes().iter().position(|node| *node == self.node).unwrap_or(0);
        wire::PmiInfo {
            size: self.map.size(),
            rank: self.ranks[local].rank,
            local_rank: local as u32,
            local_size: self.ranks.len() as u32,
            node_index: node_index as u32,
            nodes: self.map.nodes().len() as u32,
            app: self.ranks[local].app as u32,
            universe_size: self.launch.universe_size,
            namespace: self.launch.namespace.clone(),
            node_name: self.launch.node_names[node_index].clone(),
        }
    }
}

/// Joins the lines of a text: a value of PMI is one line.
fn one_line(text: &str) -> String {
    text.lines().collect::<Vec<_>>().join("; ")
}

pub(super) fn reply_to(local: Local, reply: &Reply, out: &mut Vec<Effect>) {
    let mut bytes = Vec::new();
    reply.encode(&mut bytes);
    out.push(Effect::PmiSend(local, bytes.into()));
}
