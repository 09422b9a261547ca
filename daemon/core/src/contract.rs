//! The interface between a daemon's core and its shell: inputs, effects, and the numbers in both.

use std::collections::BTreeMap;
use std::net::IpAddr;
use std::time::Duration;

use rsd_proto::join;
use rsd_proto::v1::{self as wire, Down, NodeInfo, Up};

use crate::calls::{Answer, Call, Caller};
use crate::taskmap::TaskMap;
use crate::{JobId, NodeId};

/// The shell's number for a stream from a child or a step; never reused.
pub type LinkId = u64;
/// The shell's number for a request that waits for its [`Answer`].
pub type ReqId = u64;
/// The shell's number for a process that waits for a place in a group; never reused.
pub type MemberId = u64;

/// The head's own node id.
pub(crate) const HEAD: NodeId = 0;

/// The fence of a node in [`wire::Done`] that has only lost ranks.
pub(crate) const NO_FENCE_NEEDS_IT: u64 = u64::MAX;

/// An event that a daemon's core handles.
#[expect(missing_docs, reason = "the variants say what their fields are")]
#[derive(Debug)]
pub enum Input {
    /// A child or a step has connected and sent its hello. `uid`: the user of a step's process.
    Hello { link: LinkId, hello: wire::Hello, uid: u32 },
    /// A message from a child or a step.
    Up { link: LinkId, up: Up },
    /// The stream of a child or a step was closed.
    LinkClosed { link: LinkId },
    /// The parent has accepted this daemon.
    Welcome(wire::Welcome),
    /// A daemon above redirects this daemon to another parent.
    Redirected(wire::Redirect),
    /// A message from the parent.
    Down(Down),
    /// The stream to the parent was closed.
    ParentLost,
    /// A step could not be started, or its process has ended. `why` is a sentence.
    StepLost { job: JobId, why: String },
    /// This node's load, measured because of [`Effect::MeasureLoad`].
    Load { probe: u64, load: wire::NodeLoad },
    /// A process of this node requests a place in a group. The core fills in the node and the member's number.
    Join { member: MemberId, join: Box<wire::GroupJoin> },
    /// The process has closed its connection, or has ended.
    MemberGone { member: MemberId },
    /// A client's request.
    Call { req: ReqId, caller: Caller, call: Call },
    /// The client of a request that is not answered yet has ended, or was disconnected.
    CallerGone { req: ReqId },
    /// What the previous head has left: the records that [`Effect::Keep`] wrote, in their order, and of the jobs in
    /// [`crate::rsd::jobs_of`] these, the logs of those that had not ended, and those that lack the end of a job that ended unplaced. A
    /// head's first input.
    Kept { records: Vec<wire::Kept>, logs: Vec<Logged> },
    /// The first `events` events that this core has appended to this log are in its file, or never will be. `lost_bytes`: how much output
    /// is in no file, in all.
    LogWritten { log: JobId, events: u64, lost_bytes: u64 },
    /// The daemon listens for children now, as [`Effect::OpenPort`] requested.
    PortOpened { listen: String },
    /// A daemon on another machine has reached this one at this address.
    ReachedAt(IpAddr),
    /// Time has passed.
    Tick,
}

/// An action that the core requests of the daemon's shell.
#[expect(missing_docs, reason = "the variants say what their fields are")]
#[derive(Debug)]
pub enum Effect {
    /// Send to a child or a step.
    Down { link: LinkId, down: Down },
    /// Send to the parent.
    Up(Up),
    /// Close the stream of a child or a step, after everything that was sent on it.
    Close { link: LinkId },
    /// Start this node's step of a job.
    StartStep(wire::Launch),
    /// The step of a job does not answer: kill its process (0: a step that has never attached), and with it its ranks. `uid`: the user
    /// as whom it runs; None: the daemon's own.
    KillStep { job: JobId, pid: u32, uid: Option<u32> },
    /// The job is over on this node: remove the file that identifies its step after a restart.
    ForgetStep(JobId),
    /// Measure this node's load and answer with [`Input::Load`].
    MeasureLoad { probe: u64 },
    /// Send to a process that waits for its place. Every event except `Wait` is the last one and closes the connection.
    Member { member: MemberId, event: join::Event },
    /// Answer a request.
    Answer { req: ReqId, answer: Answer },
    /// Append to a job's log.
    Log { job: JobId, event: Box<wire::JobEvent> },
    /// Delete a job's log.
    DropLog(JobId),
    /// Write the numbers that must survive a restart.
    Remember(Memory),
    /// Append these records to the file of kept records, all or none, before performing the effects that follow.
    Keep(Vec<wire::Kept>),
    /// Delete the file of kept records: the DVM is being stopped.
    ForgetKept,
    /// A later head has taken over, with this epoch: write it, and exit. What runs here goes on, without this daemon.
    StepDown(wire::HeadEpoch),
    /// Write which daemons are above this one, and which head it obeys (joined daemons).
    Ancestors(wire::Ancestors),
    /// Write this daemon's identity (joined daemons). `reached`: see `NodeInfo.reached`.
    Identity { node: NodeId, dvm: String, name: String, reached: Option<String> },
    /// Listen for children, and answer with [`Input::PortOpened`] if that succeeds.
    OpenPort,
    /// Nothing is left to do: the process may exit.
    Exit,
}

/// The numbers that a head keeps across a restart.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Memory {
    /// The number of the next job.
    pub next_job: JobId,
    /// The id of the next node that joins.
    pub next_node: NodeId,
}

impl Default for Memory {
    fn default() -> Memory {
        Memory { next_job: 1, next_node: 1 }
    }
}

/// The state with which a daemon starts.
#[derive(Debug, Clone, Default)]
pub struct Start {
    /// Name, inventory, listening address, version and pid; and the daemon's previous id, or 0.
    pub me: NodeInfo,
    /// The DVM to which the daemon belonged or, for a head, belongs.
    pub dvm: String,
    /// For a joined daemon: the address of the DVM to join.
    pub head_addr: Option<String>,
    /// For a joined daemon: the daemons above it before its restart, its parent first and the head last.
    pub above: Vec<wire::Ancestor>,
    /// For a joined daemon: the highest epoch of a head that it has heard of, and where standbys will be the head.
    pub epoch: wire::HeadEpoch,
    /// See `epoch`.
    pub standbys: Vec<wire::Ancestor>,
    /// For a joined daemon: the port on which it listens until it has joined; 0: none.
    pub connect_back: u16,
    /// For a head: its numbers.
    pub memory: Memory,
    /// Steps that ran here before a restart and may reconnect.
    pub steps: Vec<KnownStep>,
    /// Whether the DVM serves all users of its machines. Otherwise it serves the user who runs it.
    pub serves_all: bool,
    /// For a head: what the DVM has as a whole, by `jobs.resources`.
    pub resources: Vec<wire::Resource>,
}

/// What a job's log had when the daemon started.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Logged {
    /// The job.
    pub job: JobId,
    /// Its events, without output.
    pub events: Vec<wire::JobEvent>,
    /// By job and node as in `JobEvent.Output` (0: the log's own job): the largest end.
    pub output: BTreeMap<(JobId, NodeId), u64>,
}

/// What a hello says about the way here.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Approach {
    /// The head sent this daemon to the peer, or the peer was its parent before.
    pub redirected: bool,
    /// The peer was above the lost parent.
    pub orphan: bool,
    /// The nodes that did not answer since the parent was lost.
    pub unreachable: Vec<NodeId>,
}

/// A step that ran before its daemon was restarted.
#[derive(Debug, Clone)]
pub struct KnownStep {
    /// Its job.
    pub job: JobId,
    /// The job's task map.
    pub map: TaskMap,
    /// `Launch.group`.
    pub group: bytes::Bytes,
    /// `Launch.owner`.
    pub owner: Option<wire::User>,
}

/// How many random bytes a job's namespace contains.
pub(crate) const NAME_BYTES: usize = 12;

/// Returns the name of a job's KVS: `rsd-DVM.RANDOM-NUMBER`. It is never used twice, because MPI libraries name shared memory after it.
/// rsd's library also names its sockets after it, so other users must not be able to guess it: `random` are [`NAME_BYTES`] random bytes.
pub(crate) fn namespace(dvm: &str, random: &[u8], job: JobId) -> String {
    let digits: String = random.iter().map(|byte| format!("{byte:02x}")).collect();
    match digits.is_empty() {
        true => format!("rsd-{dvm}-{job}"),
        false => format!("rsd-{dvm}.{digits}-{job}"),
    }
}

/// Returns whether a text has the form of this job's namespace. Only the job's steps know the random part.
pub(crate) fn may_be_namespace(text: &str, dvm: &str, job: JobId) -> bool {
    let rest = text.strip_prefix("rsd-").and_then(|rest| rest.strip_prefix(dvm));
    let random = rest.and_then(|rest| rest.strip_suffix(&format!("-{job}")));
    random.is_some_and(|random| random.is_empty() || random.starts_with('.'))
}

/// Returns whole milliseconds, the unit of times in messages.
pub(crate) fn in_ms(time: Duration) -> u64 {
    u64::try_from(time.as_millis()).unwrap_or(u64::MAX)
}

/// Returns a time as users read it: milliseconds below a second, else seconds. It is rounded, because a client has spent part of
/// its timeout before its request arrives.
pub(crate) fn rounded(time: Duration) -> String {
    match time.as_millis() {
        ms @ 0..10 => format!("{ms} ms"),
        ms @ 10..950 => format!("{} ms", (ms + 5) / 10 * 10),
        ms => format!("{} s", (ms + 500) / 1000),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_namespace_is_recognised_by_its_dvm_and_number() {
        let name = namespace("d.0-1", &[0x0f; NAME_BYTES], 17);
        assert_eq!(name, "rsd-d.0-1.0f0f0f0f0f0f0f0f0f0f0f0f-17");
        assert!(may_be_namespace(&name, "d.0-1", 17) && may_be_namespace("rsd-d-7", "d", 7));
        for (text, dvm, job) in
            [(&*name, "d.0-1", 7), (&name, "d.0", 1), (&name, "e", 17), ("rsd-d7", "d", 7), ("", "d", 7)]
        {
            assert!(!may_be_namespace(text, dvm, job), "{text} {dvm} {job}");
        }
    }

    #[test]
    fn times_below_a_second_are_shown_in_milliseconds() {
        let shown = [0, 7, 297, 304, 949, 950, 1499, 2996].map(|ms| rounded(Duration::from_millis(ms)));
        assert_eq!(shown, ["0 ms", "7 ms", "300 ms", "300 ms", "950 ms", "1 s", "1 s", "3 s"]);
    }
}
