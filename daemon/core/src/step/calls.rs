//! What ranks ask the head: names that they publish and look up. Each question is numbered, kept until it is answered, and asked
//! again after a cut.

use std::collections::BTreeMap;

use rsd_proto::pmi::v1::Reply;
use rsd_proto::v1::{self as wire, name_call, up};

use super::pmi::reply_to;
use super::{Effect, Local, Step};

/// Questions that wait for their answer.
#[derive(Debug, Default)]
pub(super) struct Calls {
    next: u64,
    open: BTreeMap<u64, (Local, wire::NameCall)>,
}

impl Step {
    pub(super) fn ask_head(&mut self, local: Local, op: name_call::Op, out: &mut Vec<Effect>) {
        let call = self.calls.next;
        self.calls.next += 1;
        let open_from = self.calls.open.first_key_value().map_or(call, |(first, _)| *first);
        let uid = self.ranks[local].member.as_ref().map(super::members::Member::uid);
        let message = wire::NameCall { job: self.job, node: self.node, call, op: Some(op), uid, open_from };
        self.calls.open.insert(call, (local, message.clone()));
        self.send(up::Body::NameCall(message), out);
    }

    pub(super) fn on_name_result(&mut self, result: wire::NameResult, out: &mut Vec<Effect>) {
        let Some((local, call)) = self.calls.open.remove(&result.call) else { return };
        let rc = if result.ok { 0 } else { 1 };
        let reply = match call.op {
            Some(name_call::Op::Publish(_)) => Reply::PublishResult { rc },
            Some(name_call::Op::Lookup(_)) => Reply::LookupResult(result.ok.then(|| result.port.to_vec())),
            Some(name_call::Op::Unpublish(_)) => Reply::UnpublishResult { rc },
            None => return,
        };
        reply_to(local, &reply, out);
    }

    /// Over a new link: asks again what has not been answered.
    pub(super) fn ask_again(&self, out: &mut Vec<Effect>) {
        for (_, call) in self.calls.open.values() {
            self.send(up::Body::NameCall(call.clone()), out);
        }
    }

    /// Nobody will answer: says no to whoever waits.
    pub(super) fn fail_calls(&mut self, out: &mut Vec<Effect>) {
        for call in self.calls.open.keys().copied().collect::<Vec<_>>() {
            self.on_name_result(wire::NameResult { call, ..Default::default() }, out);
        }
    }

    /// A rank has a new connection: what it asked over the one before is nobody's.
    pub(super) fn forget_calls(&mut self, local: Local) {
        self.calls.open.retain(|_, (of, _)| *of != local);
    }
}
