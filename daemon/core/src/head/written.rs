//! What waits until it is in the logs' files: acknowledgements of output, and the ends of jobs. A step keeps its output until it is
//! acknowledged, and its job's end until it is released. So whatever a head that is killed had not written, the next head gets again.
//!
//! A log that cannot be written any more counts as written; then output is lost, and the job says so.

use std::collections::{BTreeMap, VecDeque};

use rsd_proto::v1::{self as wire, down, job_event, kept};

use super::Head;
use crate::between::{Order, Outputs};
use crate::contract::Effect;
use crate::{JobId, NodeId};

/// What has been appended to the logs and is not in their files.
#[derive(Debug, Default)]
pub(super) struct Unwritten {
    logs: BTreeMap<JobId, Log>,
}

#[derive(Debug, Default)]
struct Log {
    /// How many events this head has appended.
    appended: u64,
    /// What waits for which event.
    waiting: VecDeque<(u64, Waiting)>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Waiting {
    /// Output of a job's node, up to this offset.
    Output { job: JobId, node: NodeId, end: u64 },
    /// The end of the log's job.
    End,
    /// A failure after which the log's job starts again.
    Again,
}

impl Unwritten {
    /// Records the events that these effects append.
    pub(super) fn note(&mut self, effects: &[Effect]) {
        for effect in effects {
            match effect {
                Effect::Log { job: id, event } => {
                    let log = self.logs.entry(*id).or_default();
                    log.appended += 1;
                    let waiting = match &event.body {
                        Some(job_event::Body::Output(output)) => {
                            let job = if output.job == 0 { *id } else { output.job };
                            Waiting::Output { job, node: output.node, end: output.end }
                        }
                        Some(job_event::Body::Ended(_)) => Waiting::End,
                        Some(job_event::Body::Requeued(_)) => Waiting::Again,
                        Some(_) | None => continue,
                    };
                    log.waiting.push_back((log.appended, waiting));
                }
                Effect::DropLog(id) => drop(self.logs.remove(id)),
                _ => {}
            }
        }
    }

    /// Returns what has waited for the first `events` events of a log.
    fn written(&mut self, id: JobId, events: u64) -> Vec<Waiting> {
        let Some(log) = self.logs.get_mut(&id) else { return Vec::new() };
        let count = log.waiting.partition_point(|(number, _)| *number <= events);
        let done: Vec<Waiting> = log.waiting.drain(..count).map(|(_, waiting)| waiting).collect();
        if done.contains(&Waiting::End) {
            self.logs.remove(&id);
        }
        done
    }

    pub(super) fn leftovers(&self) -> impl Iterator<Item = String> + '_ {
        self.logs
            .iter()
            .filter(|(_, log)| !log.waiting.is_empty())
            .map(|(job, log)| format!("log of job {job}: {log:?}"))
    }
}

impl Head {
    /// Records the events that these effects append to logs.
    pub(crate) fn note_logged(&mut self, effects: &[Effect]) {
        self.unwritten.note(effects);
    }

    /// Handles that the first `events` events of a log are in its file, or never will be. `lost_bytes`: how much output is in no file.
    pub(crate) fn on_log_written(&mut self, log: JobId, events: u64, lost_bytes: u64, out: &mut Outputs<Order>) {
        let of_log = self.jobs.current(log).unwrap_or(log);
        if let Some(job) = self.jobs.get_mut(of_log) {
            job.lost_bytes = job.lost_bytes.max(lost_bytes);
        }
        let mut arrived: BTreeMap<(JobId, NodeId), u64> = BTreeMap::new();
        for waiting in self.unwritten.written(log, events) {
            match waiting {
                Waiting::Output { job, node, end } => drop(arrived.insert((job, node), end)),
                Waiting::End => self.end_is_written(of_log, out),
                Waiting::Again => self.again.push(of_log),
            }
        }
        for ((job, node), end) in arrived {
            let Some(found) = self.jobs.get_mut(job) else { continue };
            let has_root = found.spawned.is_some();
            let Some(active) = found.active_mut() else { continue };
            let logged = active.logged.entry(node).or_default();
            logged[usize::from(log != crate::attempts::number(job))] = end;
            // The output of a spawned job goes to the log of its family's root, too.
            let offset = if has_root { logged[0].min(logged[1]) } else { logged[0] };
            let Some(inbox) = active.output.get_mut(&node) else { continue };
            if inbox.ack_to(offset) {
                out.order(down::Body::OutputAck(wire::OutputAck { job, node, offset }));
            }
        }
    }

    /// Handles that the log of a job that has ended is complete: only now its steps may forget it.
    pub(super) fn end_is_written(&mut self, id: JobId, out: &mut Outputs<Order>) {
        let Some(job) = self.jobs.get_mut(id) else { return };
        if !job.keep_end() {
            return;
        }
        let (info, joined, was_launched) = (job.info_in_full(), job.joined, job.map.size() > 0);
        self.note_end(&info);
        self.keep(kept::What::Ended(info));
        if joined {
            self.keep(kept::What::EpochOver(id));
        }
        if was_launched {
            out.order(down::Body::Release(wire::Release { job: id }));
        }
    }
}
