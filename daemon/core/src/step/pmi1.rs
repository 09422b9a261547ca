//! The PMI-1 codec: lines of text on the rank's connection.

use rsd_proto::pmi::v1::{Reply as Line, Request as Asked};
use rsd_proto::pmi::v2;

use super::dialect::{Asker, By, Reply, Request, Verb};
use super::{Effect, Local, Step};
use crate::Now;

impl Step {
    pub(super) fn on_pmi1(&mut self, now: Now, local: Local, asked: Asked, out: &mut Vec<Effect>) {
        let mut pass_on = |step: &mut Step, verb, request| {
            step.request(now, Asker { local, by: By::Pmi1(verb) }, request, out);
        };
        let line = match asked {
            Asked::InitAck { .. } => {
                Line::InitAck { size: self.map.size(), rank: self.ranks[local].rank, debug: false }
            }
            Asked::Init { version: 1, .. } => {
                pass_on(self, Verb::Finalize, Request::Begin);
                Line::ResponseToInit { version: 1, subversion: 1, rc: 0 }
            }
            Asked::Init { version: 2, .. } => v2::ACCEPTED,
            // On a version mismatch the client fails by itself, with its own error.
            Asked::Init { .. } => Line::ResponseToInit { version: 1, subversion: 1, rc: 1 },
            Asked::GetMaxes => Line::maxes(),
            Asked::GetAppnum => Line::Appnum(Some(self.ranks[local].app as u32)),
            Asked::GetMyKvsname => Line::MyKvsname(self.launch.namespace.clone().into_bytes()),
            Asked::GetUniverseSize => Line::UniverseSize(match self.launch.universe_size {
                // Unlimited. PMI has a word for "unknown" only, and libraries then set no attribute.
                0 => -1,
                size => size.into(),
            }),
            Asked::Put { key, value, .. } => {
                return pass_on(self, Verb::Put, Request::Put { key: key.into(), value: value.into() });
            }
            Asked::Get { kvsname, key } => {
                return pass_on(self, Verb::Get, Request::Get { namespace: kvsname.into(), key: key.into() });
            }
            Asked::BarrierIn { group: None } => return pass_on(self, Verb::Barrier { tag: None }, Request::Fence),
            Asked::BarrierIn { group: Some(group) } if group.members == b"WORLD" => {
                return pass_on(self, Verb::Barrier { tag: Some(group.tag) }, Request::Fence);
            }
            // Only PMI 1.2 has other groups, and the answer to init was 1.1.
            Asked::BarrierIn { group: Some(group) } => Line::BarrierOut { rc: 1, tag: Some(group.tag) },
            Asked::PublishName { service, port } => {
                return pass_on(self, Verb::Publish, Request::Publish { name: service.into(), port: port.into() });
            }
            Asked::LookupName { service } => {
                return pass_on(self, Verb::Lookup, Request::Lookup { name: service.into() });
            }
            Asked::UnpublishName { service } => {
                return pass_on(self, Verb::Unpublish, Request::Unpublish { name: service.into() });
            }
            Asked::Spawn(spawn) => return pass_on(self, Verb::Spawn, Request::Spawn(spawn)),
            Asked::Abort { exit_code, .. } => {
                return pass_on(self, Verb::Finalize, Request::Abort { code: exit_code, is_known: true });
            }
            Asked::Finalize => return pass_on(self, Verb::Finalize, Request::Finalize),
            Asked::CreateKvs => Line::NewKvs(self.launch.namespace.clone().into_bytes()),
            Asked::DestroyKvs { .. } => Line::KvsDestroyed { rc: 0 },
            Asked::GetByIdx { idx, .. } => return self.get_entry(now, local, idx, out),
            Asked::Unknown { command } => {
                let command = String::from_utf8_lossy(&command).into_owned();
                return self.on_protocol_fault(now, local, format!("sent the unknown PMI command {command:?}"), out);
            }
        };
        send(local, &line, out);
    }
}

/// Returns an answer in the form of PMI-1.
pub(super) fn line(verb: Verb, reply: Reply) -> Line {
    let rc = match &reply {
        Reply::Failed(why) => return Line::Failed(why.clone()),
        Reply::Done | Reply::Value(Some(_)) | Reply::Spawned { .. } | Reply::Neighbours { .. } => 0,
        Reply::Refused(_) | Reply::Value(None) => 1,
    };
    let value = |reply| match reply {
        Reply::Value(value) => value.map(|value| value.to_vec()),
        Reply::Done | Reply::Spawned { .. } | Reply::Neighbours { .. } | Reply::Refused(_) | Reply::Failed(_) => None,
    };
    match verb {
        Verb::Put => Line::PutResult { rc },
        Verb::Get => Line::GetResult(value(reply)),
        Verb::Barrier { tag } => Line::BarrierOut { rc, tag },
        Verb::Publish => Line::PublishResult { rc },
        Verb::Lookup => Line::LookupResult(value(reply)),
        Verb::Unpublish => Line::UnpublishResult { rc },
        Verb::Spawn => match reply {
            Reply::Spawned { namespace, codes: errcodes } => {
                Line::SpawnResult { rc, jobid: namespace.into_bytes(), errcodes }
            }
            Reply::Done | Reply::Value(_) | Reply::Neighbours { .. } | Reply::Refused(_) | Reply::Failed(_) => {
                Line::SpawnResult { rc, jobid: Vec::new(), errcodes: Vec::new() }
            }
        },
        Verb::Finalize => Line::FinalizeAck,
    }
}

/// Sends a line on a rank's connection.
pub(super) fn send(local: Local, line: &Line, out: &mut Vec<Effect>) {
    let mut bytes = Vec::new();
    line.encode(&mut bytes);
    out.push(Effect::PmiSend(local, bytes.into()));
}
