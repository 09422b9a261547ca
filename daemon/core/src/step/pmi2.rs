//! The PMI-2 codec: frames on the rank's connection, after the line that requests them.

use rsd_proto::pmi::v2::{Asked, Echo, Reply as Frame, Request as Asks};

use super::dialect::{Asker, By, Reply, Request};
use super::{Effect, Local, Step};
use crate::Now;

/// The key of the number of processes that could run.
const UNIVERSE_KEY: &[u8] = b"universeSize";
/// The exit code of an abort that names none.
const ABORTED: i32 = 1;

impl Step {
    pub(super) fn on_pmi2(&mut self, now: Now, local: Local, asked: Asked, out: &mut Vec<Effect>) {
        let Some(echo) = asked.echo() else {
            if let Asks::Unknown { command } = asked.request {
                let mut bytes = Vec::new();
                Frame::encode_unknown(&command, asked.thrid.as_deref(), &mut bytes);
                out.push(Effect::PmiSend(local, bytes.into()));
            }
            return;
        };
        let asker = Asker { local, by: By::Pmi2(echo) };
        let request = match asked.request {
            Asks::FullInit { .. } => {
                self.request(now, asker.clone(), Request::Begin, out);
                let launch = &self.launch;
                let spawner = launch.spawned.then(|| launch.spawner_namespace.clone().into_bytes());
                let (rank, appnum) = (self.ranks[local].rank, self.ranks[local].app as u32);
                return send(&asker, &Frame::FullInit { rank, size: self.map.size(), appnum, spawner }, out);
            }
            Asks::JobGetId => {
                return send(&asker, &Frame::JobId(self.launch.namespace.clone().into_bytes()), out);
            }
            Asks::JobConnect { .. } | Asks::JobDisconnect { .. } => {
                return send(&asker, &Frame::failed("rsd connects no jobs by PMI: use MPI_Comm_connect"), out);
            }
            Asks::GetJobAttr { key } if key == UNIVERSE_KEY => {
                let size = Some(self.launch.universe_size).filter(|size| *size > 0);
                return send(&asker, &Frame::Value(size.map(|size| size.to_string().into_bytes())), out);
            }
            Asks::GetJobAttr { key } => self.get_of_job(key),
            Asks::KvsGet { jobid: None, key } => self.get_of_job(key),
            Asks::KvsGet { jobid: Some(jobid), key } => Request::Get { namespace: jobid.into(), key: key.into() },
            Asks::PutNodeAttr { key, value } => Request::PutOnNode { key: key.into(), value: value.into() },
            Asks::GetNodeAttr { key, wait } => Request::GetOnNode { key: key.into(), wait },
            Asks::KvsPut { key, value } => Request::Put { key: key.into(), value: value.into() },
            Asks::KvsFence => Request::Fence,
            Asks::NamePublish { name, port } => Request::Publish { name: name.into(), port: port.into() },
            Asks::NameLookup { name } => Request::Lookup { name: name.into() },
            Asks::NameUnpublish { name } => Request::Unpublish { name: name.into() },
            Asks::Spawn(spawn) => Request::Spawn(spawn),
            Asks::Ring { left, right, .. } => Request::Ring { left: left.into(), right: right.into() },
            // A process that names no code usually exits with it.
            Asks::Abort { exit_code, .. } => {
                Request::Abort { code: exit_code.unwrap_or(ABORTED), is_known: exit_code.is_some() }
            }
            Asks::Finalize => Request::Finalize,
            Asks::Unknown { .. } => return,
        };
        self.request(now, asker, request, out);
    }

    fn get_of_job(&self, key: Vec<u8>) -> Request {
        Request::Get { namespace: self.launch.namespace.clone().into(), key: key.into() }
    }
}

/// Returns an answer in the form of PMI-2.
pub(super) fn frame(reply: Reply) -> Frame {
    match reply {
        Reply::Done => Frame::Done,
        Reply::Value(value) => Frame::Value(value.map(|value| value.to_vec())),
        Reply::Spawned { namespace, codes } => Frame::Spawned { jobid: namespace.into_bytes(), codes },
        Reply::Neighbours { rank, left, right } => {
            Frame::Ring { count: rank, left: left.to_vec(), right: right.to_vec() }
        }
        Reply::Refused(why) | Reply::Failed(why) => Frame::Failed { why },
    }
}

/// Sends a frame on a rank's connection.
pub(super) fn send(asker: &Asker, frame: &Frame, out: &mut Vec<Effect>) {
    if let By::Pmi2(echo) = &asker.by {
        send_frame(asker.local, echo, frame, out);
    }
}

fn send_frame(local: Local, echo: &Echo, frame: &Frame, out: &mut Vec<Effect>) {
    let mut bytes = Vec::new();
    frame.encode(echo, &mut bytes);
    out.push(Effect::PmiSend(local, bytes.into()));
}
