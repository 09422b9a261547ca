//! Requests of ranks to the head: to publish and look up names, and to spawn jobs. Each call is numbered, kept until it is
//! answered, and repeated on a new link.

use std::collections::{BTreeMap, HashMap, VecDeque};

use bytes::Bytes;
use prost::Message;
use rsd_proto::pmi::v1::Spawn;
use rsd_proto::v1::{self as wire, JobSpec, name_call, up};

use super::dialect::{Asker, Reply};
use super::{Effect, Local, Step};

/// A job that a rank requests to spawn.
#[derive(Debug, Clone, PartialEq)]
pub struct SpawnWish {
    /// The programs, each with a number of ranks, and the inherited environment and settings.
    pub spec: JobSpec,
    /// `soft[i]`: the acceptable numbers of ranks for `spec.apps[i]`.
    pub soft: Vec<wire::Soft>,
    /// The first entries of its ranks' KVS.
    pub preput: Vec<(Bytes, Bytes)>,
    /// Whether the spawner's job continues if this job fails.
    pub apart: bool,
    /// 44 fresh random bytes, see [`Call::Submit`](crate::rsd::Call::Submit).
    pub random: Bytes,
}

/// Calls that wait for their answer.
#[derive(Debug, Default)]
pub(super) struct Calls {
    next: u64,
    open: BTreeMap<u64, (Asker, Asked)>,
    /// Requests to spawn that the step process is completing.
    describing: BTreeMap<u64, Asker>,
    described: u64,
    /// Requests of the PMIx server, with its number for each (see `others`), and the answered ones that no call has confirmed.
    pub(super) tickets: BTreeMap<u64, (u64, wire::NameCall)>,
    pub(super) confirmed: VecDeque<u64>,
    /// Why a rank's last spawn failed.
    pub(super) spawn_errors: HashMap<Local, String>,
}

#[derive(Debug)]
enum Asked {
    Name(wire::NameCall),
    /// `asked[i]`: the requested number of ranks of the i-th program.
    Spawn {
        call: Box<wire::SpawnCall>,
        asked: Vec<u32>,
    },
}

impl Asked {
    fn message(&self) -> up::Body {
        match self {
            Asked::Name(call) => up::Body::NameCall(call.clone()),
            Asked::Spawn { call, .. } => up::Body::SpawnCall((**call).clone()),
        }
    }
}

impl Calls {
    /// The number of the next call, and of the oldest pending call.
    pub(super) fn number(&mut self) -> (u64, u64) {
        let call = self.next;
        self.next += 1;
        let first = [self.open.keys().next(), self.tickets.keys().next()].into_iter().flatten().min();
        (call, first.map_or(call, |first| *first))
    }
}

impl Step {
    pub(super) fn ask_head(&mut self, asker: Asker, op: name_call::Op, out: &mut Vec<Effect>) {
        let (call, open_from) = self.calls.number();
        let uid = self.ranks[asker.local].member.as_ref().and_then(super::members::Member::other_uid);
        let message =
            wire::NameCall { job: self.job, node: self.node, call, op: Some(op), uid, open_from, ..Default::default() };
        self.keep_and_ask(asker, call, Asked::Name(message), out);
    }

    pub(super) fn on_name_result(&mut self, result: wire::NameResult, out: &mut Vec<Effect>) {
        let Some((asker, Asked::Name(call))) = self.calls.open.remove(&result.call) else { return };
        let done = |refusal: &str| if result.ok { Reply::Done } else { Reply::Refused(refusal.into()) };
        let reply = match call.op {
            Some(name_call::Op::Publish(_)) => done("the name is taken"),
            Some(name_call::Op::Unpublish(_)) => done("the name is not published, or by another user"),
            Some(name_call::Op::Lookup(_) | name_call::Op::State(_)) => Reply::Value(result.ok.then_some(result.port)),
            // Of the other operations, none is asked for a rank alone.
            Some(
                name_call::Op::Meet(_)
                | name_call::Op::FetchData(_)
                | name_call::Op::PublishData(_)
                | name_call::Op::LookupData(_)
                | name_call::Op::UnpublishData(_)
                | name_call::Op::Describe(_)
                | name_call::Op::Event(_)
                | name_call::Op::Control(_)
                | name_call::Op::Namespaces(_),
            )
            | None => return,
        };
        self.answer(&asker, reply, out);
    }

    /// Handles a rank's request to spawn a job, which the step process completes.
    pub(super) fn on_spawn(&mut self, asker: Asker, spawn: Spawn, out: &mut Vec<Effect>) {
        let (number, local) = (self.calls.described, asker.local);
        self.calls.described += 1;
        self.calls.spawn_errors.remove(&local);
        self.calls.describing.insert(number, asker);
        out.push(Effect::Describe { number, local, app: self.ranks[local].app, spawn });
    }

    /// Sends the completed request, or why it is invalid, to the head, which notifies the user in both cases.
    pub(super) fn on_described(&mut self, number: u64, wish: Result<SpawnWish, String>, out: &mut Vec<Effect>) {
        let Some(asker) = self.calls.describing.remove(&number) else { return };
        let (call, open_from) = self.calls.number();
        let message = wire::SpawnCall { job: self.job, node: self.node, call, open_from, ..Default::default() };
        let mut asked = Vec::new();
        let message = match wish {
            Ok(SpawnWish { spec, soft, preput, apart, random }) => {
                let preput = preput.into_iter().map(|(key, value)| wire::Kv { key, value }).collect();
                asked.extend(spec.apps.iter().map(|app| app.n.unwrap_or(0)));
                wire::SpawnCall { spec: spec.encode_to_vec().into(), soft, preput, apart, random, ..message }
            }
            Err(wrong) => wire::SpawnCall { wrong, ..message },
        };
        let message = wire::SpawnCall { rank: self.ranks[asker.local].rank, ..message };
        self.keep_and_ask(asker, call, Asked::Spawn { call: Box::new(message), asked }, out);
    }

    pub(super) fn on_spawn_result(&mut self, result: wire::SpawnResult, out: &mut Vec<Effect>) {
        let Some((asker, Asked::Spawn { asked, .. })) = self.calls.open.remove(&result.call) else { return };
        if !result.error.is_empty() {
            self.calls.spawn_errors.insert(asker.local, result.error.clone());
            return self.answer(&asker, Reply::Refused(result.error), out);
        }
        let codes = asked.into_iter().zip(result.started).flat_map(|(asked, started)| {
            let started = started.min(asked) as usize;
            std::iter::repeat_n(0, started).chain(std::iter::repeat_n(1, asked as usize - started))
        });
        let reply = Reply::Spawned { namespace: result.namespace, codes: codes.collect() };
        self.answer(&asker, reply, out);
    }

    fn keep_and_ask(&mut self, asker: Asker, call: u64, asked: Asked, out: &mut Vec<Effect>) {
        let message = asked.message();
        self.calls.open.insert(call, (asker, asked));
        self.send(message, out);
    }

    /// Repeats pending calls on a new link.
    pub(super) fn ask_again(&self, out: &mut Vec<Effect>) {
        for (_, asked) in self.calls.open.values() {
            self.send(asked.message(), out);
        }
        for (_, call) in self.calls.tickets.values() {
            self.send(up::Body::NameCall(call.clone()), out);
        }
    }

    /// Fails all pending calls: no answer will come.
    pub(super) fn fail_calls(&mut self, out: &mut Vec<Effect>) {
        self.fail_tickets();
        for call in self.calls.open.keys().copied().collect::<Vec<_>>() {
            match self.calls.open.get(&call) {
                Some((_, Asked::Name(_))) => self.on_name_result(wire::NameResult { call, ..Default::default() }, out),
                Some((_, Asked::Spawn { .. })) => {
                    let error = crate::sentences::JOB_IS_BEING_ENDED.into();
                    self.on_spawn_result(wire::SpawnResult { call, error, ..Default::default() }, out);
                }
                None => {}
            }
        }
    }

    /// Forgets what a rank asked on its previous connection: no answer can reach it.
    pub(super) fn forget_calls(&mut self, local: Local) {
        self.calls.open.retain(|_, (asker, _)| asker.local != local);
        self.calls.describing.retain(|_, asker| asker.local != local);
    }
}
