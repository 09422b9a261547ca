//! Where the ranks of a job meet that use other frameworks than MPI (`--export`). The step of rank 0's node reserves a free port
//! and announces it in a fence among the steps, the job's first. Only after that are ranks started, with the address and the port
//! in their environment. A job that exports nothing skips this, and a job on a single node costs no message.
//!
//! The step process reserves the port until the ranks run. Members of groups already run: their daemon delays their `go` until
//! the step has reported address and port.

use bytes::Bytes;
use prost::Message;
use rsd_proto::frameworks::{self, Framework, MASTER_KEY};
use rsd_proto::pmi::environment::Place;
use rsd_proto::v1::{self as wire, JobSpec, Kv, KvBatch, LaunchBody, up};

use super::{Effect, Step};
use crate::Now;

/// The state of the rendezvous.
#[derive(Debug)]
pub(super) struct Meeting {
    frameworks: Vec<Framework>,
    /// The interface over which this node reaches the others; empty if unknown.
    interface: String,
    phase: Phase,
}

#[derive(Debug, Clone, PartialEq, Eq)]
enum Phase {
    /// The search has not begun.
    Before,
    /// The step process looks for a port, or the fence that announces it is in progress.
    Finding,
    /// Address and port are known.
    Known { address: String, port: u16 },
    /// The job was ended before address and port were known.
    Over,
}

impl Meeting {
    /// Returns the state for a launch on this node.
    pub(super) fn new(launch: &LaunchBody, interface: String) -> Result<Meeting, String> {
        let export = launch.spec.as_ref().map_or("", |spec| &spec.export);
        let frameworks = frameworks::parse(export).map_err(|error| error.to_string())?;
        Ok(Meeting { frameworks, interface, phase: Phase::Before })
    }
}

/// Returns whether ranks inherit a variable from the environment of the submitting process. They do not inherit variables that an
/// outer job has set, nor variables that would make all ranks the same rank.
pub(super) fn may_be_inherited(spec: &JobSpec, name: &[u8]) -> bool {
    let mut exported = spec.env.iter().filter(|var| var.name == frameworks::EXPORTED.as_bytes());
    let by_outer = exported.any(|var| var.value.split(|byte| *byte == b',').any(|known| known == name));
    !by_outer && (spec.export.is_empty() || !frameworks::is_of_one_rank(name))
}

impl Step {
    /// Returns whether ranks and members must wait until address and port are known.
    pub(super) fn needs_meeting(&self) -> bool {
        !self.meeting.frameworks.is_empty()
    }

    /// Begins the search: the step of rank 0's node looks for a port, the others wait for its announcement.
    pub(super) fn begin_meeting(&mut self, out: &mut Vec<Effect>) {
        self.meeting.phase = Phase::Finding;
        match self.map.node_of(0) == Some(self.node) {
            true => out.push(Effect::FindPort),
            false => self.enter_meeting(Vec::new(), out),
        }
    }

    /// Handles the result of the search for a port.
    pub(super) fn on_port(&mut self, now: Now, found: Result<u16, String>, out: &mut Vec<Effect>) {
        if self.meeting.phase != Phase::Finding {
            return;
        }
        let alone = self.map.nodes().len() == 1;
        let address = match (self.address.as_str(), alone) {
            ("", true) => Ok("127.0.0.1"),
            ("", false) => {
                Err("no address is known at which other machines reach it: start its daemon with --advertise ADDR"
                    .to_owned())
            }
            (address, _) => Ok(address),
        };
        match (address, found) {
            (Ok(address), Ok(port)) if alone => {
                self.meeting.phase = Phase::Known { address: address.to_owned(), port };
                self.begin(now, out);
            }
            (Ok(address), Ok(port)) => {
                let value = format!("{address} {port}").into_bytes().into();
                let batch = KvBatch { entries: vec![Kv { key: MASTER_KEY.into(), value }] };
                self.enter_meeting(vec![batch.encode_to_vec().into()], out);
            }
            (Err(why), _) | (_, Err(why)) => {
                self.meeting.phase = Phase::Over;
                self.fail_before(now, &format!("cannot provide --export: {why}"), out);
            }
        }
    }

    /// Enters the job's first fence for all ranks of this node.
    fn enter_meeting(&mut self, batches: Vec<Bytes>, out: &mut Vec<Effect>) {
        let (epoch, nodes) = (self.fence.number, vec![self.node]);
        // All steps need the result.
        let fence = wire::FenceUp { job: self.job, epoch, nodes, batches, ..Default::default() };
        self.fence.sent.push(fence.clone());
        self.send(up::Body::FenceUp(fence), out);
    }

    /// Handles a completed fence, which may be the announcement.
    pub(super) fn settle_meeting(&mut self, now: Now, out: &mut Vec<Effect>) {
        if self.meeting.phase != Phase::Finding {
            return;
        }
        let told = self.kvs.get(MASTER_KEY.as_bytes()).and_then(|value| str::from_utf8(value).ok());
        let master = told
            .and_then(|told| told.split_once(' '))
            .and_then(|(address, port)| Some(Phase::Known { address: address.to_owned(), port: port.parse().ok()? }));
        match master {
            Some(known) => {
                self.meeting.phase = known;
                self.begin(now, out);
            }
            None => {
                self.meeting.phase = Phase::Over;
                self.fail_before(now, "cannot provide --export: the first node announced no address", out);
            }
        }
    }

    /// Sends address and port to the members' daemon, on every new link.
    pub(super) fn send_master(&self, out: &mut Vec<Effect>) {
        if let (Phase::Known { address, port }, true) = (&self.meeting.phase, self.has_members()) {
            let master = wire::Master { job: self.job, address: address.clone(), port: u32::from(*port) };
            self.send(up::Body::Master(master), out);
        }
    }

    /// Handles that the job is being ended: ranks that have not been started never will be.
    pub(super) fn give_up_meeting(&mut self, now: Now, out: &mut Vec<Effect>) {
        if matches!(self.meeting.phase, Phase::Before | Phase::Finding) && self.needs_meeting() {
            self.meeting.phase = Phase::Over;
            if !self.has_members() {
                self.fail_before(now, "the job was ended before it began", out);
            }
        }
    }

    /// Returns the variables of a rank of this program, `NAME=VALUE`, without those that the user has set.
    pub(super) fn frameworks_env(&self, place: &Place<'_>, app: usize) -> Vec<String> {
        let Phase::Known { address, port } = &self.meeting.phase else { return Vec::new() };
        let spec = self.launch_spec();
        let own = spec.apps.get(app).map_or(&[][..], |app| &app.env);
        let is_set = |name: &str| {
            let inherited = spec.env.iter().filter(|var| may_be_inherited(spec, &var.name));
            own.iter().chain(inherited).any(|var| var.name == name.as_bytes())
        };
        let nodes = self.map.nodes().len() as u32;
        let meeting = frameworks::Meeting { address, port: *port, interface: &self.meeting.interface, nodes };
        let variables = frameworks::variables(&self.meeting.frameworks, place, &meeting, is_set);
        variables.into_iter().map(|(name, value)| format!("{name}={value}")).collect()
    }
}
