//! The output of ranks, on its way to the logs. A step sends more only when what it has sent is acknowledged. While a log has much that is
//! not on the disk, its job's steps get no acknowledgements: so a slow disk slows these ranks down, and nothing else.

use rsd_proto::v1::{self as wire, down, job_event};

use super::Head;
use crate::between::{Order, Outputs};
use crate::{JobId, NodeId, Now};

/// The most unacknowledged bytes of a step that are taken while its log is slow. A step has at most `output.window`; one that has more
/// does not wait for acknowledgements, and is a user's own program.
const UNACKED_MAX: u64 = 256 << 20;

impl Head {
    pub(super) fn on_output(&mut self, now: Now, output: wire::Output, out: &mut Outputs<Order>) {
        let (id, node) = (output.job, output.node);
        let waits = self.waits_for_disk(id);
        let Some(job) = self.jobs.get_mut(id) else { return };
        let root = job.spawned.as_ref().map(|spawned| spawned.root);
        let Some(inbox) = job.active_mut().and_then(|active| active.output.get_mut(&node)) else { return };
        if waits && inbox.unacked() > UNACKED_MAX {
            return;
        }
        let bytes = output.records.iter().map(|record| record.data.len() as u64).sum();
        if inbox.accept(output.offset, bytes) {
            let end = inbox.received();
            let records = output.records;
            if let Some(root) = root {
                let records = records.iter().map(|record| wire::Record { job: id, ..record.clone() }).collect();
                out.log(now, root, job_event::Body::Output(job_event::Output { records, node, job: id, end }));
            }
            out.log(now, id, job_event::Body::Output(job_event::Output { records, node, job: 0, end }));
        }
        if !waits {
            let offset = inbox.ack();
            out.order(down::Body::OutputAck(wire::OutputAck { job: id, node, offset }));
        }
    }

    /// Handles that a log has much that is not on the disk, or no longer.
    pub(crate) fn on_log_pace(&mut self, log: JobId, is_slow: bool, out: &mut Outputs<Order>) {
        match is_slow {
            true if self.jobs.get(log).is_some() => drop(self.slow_logs.insert(log)),
            true => {}
            false => {
                self.slow_logs.remove(&log);
                let concerned: Vec<JobId> = std::iter::once(log).chain(self.jobs.family(log)).collect();
                concerned.into_iter().for_each(|job| self.ack_output(job, out));
            }
        }
    }

    /// Whether the output of a job goes to a log that is slow: its own, or that of its family's root.
    fn waits_for_disk(&self, id: JobId) -> bool {
        let root = || self.jobs.get(id).and_then(|job| job.spawned.as_ref()).map(|spawned| spawned.root);
        !self.slow_logs.is_empty()
            && (self.slow_logs.contains(&id) || root().is_some_and(|root| self.slow_logs.contains(&root)))
    }

    /// Acknowledges what has arrived of a job.
    fn ack_output(&mut self, id: JobId, out: &mut Outputs<Order>) {
        if self.waits_for_disk(id) {
            return;
        }
        let Some(active) = self.jobs.get_mut(id).and_then(super::job::Job::active_mut) else { return };
        let late = active.output.iter_mut().filter(|(_, inbox)| inbox.unacked() > 0);
        let acks: Vec<(NodeId, u64)> = late.map(|(node, inbox)| (*node, inbox.ack())).collect();
        for (node, offset) in acks {
            out.order(down::Body::OutputAck(wire::OutputAck { job: id, node, offset }));
        }
    }
}
