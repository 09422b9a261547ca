//! The codec of the gRPC `Pmi` service, which ranks without an MPI library use. Their daemon numbers the calls.

use rsd_proto::v1::{self as wire, pmi_call, up};

use super::dialect::{Asker, By, Reply, Request};
use super::{Effect, Local, Step};
use crate::Now;

impl Step {
    pub(super) fn on_pmi_call(&mut self, now: Now, call: wire::PmiCall, out: &mut Vec<Effect>) {
        let Some(local) = self.ranks.iter().position(|rank| rank.rank == call.rank) else {
            let why = format!("rank {} is not on this node", call.rank);
            return self.answer_call(call.call, Reply::Refused(why), out);
        };
        if !call.namespace.is_empty() && call.namespace != self.launch.namespace {
            let why = format!("job {} has another namespace: see RSD_PMI_NAMESPACE", crate::attempts::number(self.job));
            return self.answer_call(call.call, Reply::Refused(why), out);
        }
        let asker = Asker { local, by: By::Call { call: call.call, attempt: call.attempt } };
        match call.op {
            Some(pmi_call::Op::Put(kv)) => {
                self.request(now, asker, Request::Put { key: kv.key, value: kv.value }, out);
            }
            Some(pmi_call::Op::Get(key)) => {
                let namespace = self.launch.namespace.clone().into();
                self.request(now, asker, Request::Get { namespace, key }, out);
            }
            Some(pmi_call::Op::Fence(_)) => self.enter_fence_again(now, asker, out),
            Some(pmi_call::Op::Info(_)) => {
                let info = self.info(local);
                let result = wire::PmiResult { job: self.job, call: call.call, info: Some(info), ..Default::default() };
                self.send(up::Body::PmiResult(result), out);
            }
            None => self.answer_call(call.call, Reply::Refused("the call contains no request".into()), out),
        }
    }

    pub(super) fn answer_call(&self, call: u64, reply: Reply, out: &mut Vec<Effect>) {
        let (error, value) = match reply {
            Reply::Done | Reply::Spawned { .. } | Reply::Neighbours { .. } => (String::new(), None),
            Reply::Value(value) => (String::new(), value),
            Reply::Refused(error) | Reply::Failed(error) => (error, None),
        };
        self.send(up::Body::PmiResult(wire::PmiResult { job: self.job, call, error, value, info: None }), out);
    }

    fn info(&self, local: Local) -> wire::PmiInfo {
        let node_index = self.map.position(self.node).unwrap_or(0);
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
