//! The output of ranks, on its way to the logs. A step sends more only when what it has sent is acknowledged, and that is when it is in
//! the file of the log ([`super::written`]): so a slow disk slows down the ranks whose output it takes, and nothing else.

use rsd_proto::v1::{self as wire, down, job_event};

use super::Head;
use crate::Now;
use crate::between::{Order, Outputs};

/// The most unacknowledged bytes of a step that are taken. A step has at most `output.window`; one that has more does not wait for
/// acknowledgements, and is a user's own program.
const UNACKED_MAX: u64 = 256 << 20;

impl Head {
    pub(super) fn on_output(&mut self, now: Now, output: wire::Output, out: &mut Outputs<Order>) {
        let (id, node) = (output.job, output.node);
        let Some(job) = self.jobs.get_mut(id) else { return };
        let root = job.spawned.as_ref().map(|spawned| spawned.root);
        let Some(active) = job.active_mut() else { return };
        let Some(inbox) = active.output.get_mut(&node).filter(|inbox| inbox.unacked() <= UNACKED_MAX) else { return };
        let bytes = output.records.iter().map(|record| record.data.len() as u64).sum();
        if !inbox.accept(output.offset, bytes) {
            // A repeat: the acknowledgement was lost.
            let offset = inbox.acked();
            return out.order(down::Body::OutputAck(wire::OutputAck { job: id, node, offset }));
        }
        let (end, records) = (inbox.received(), output.records);
        // After a restart, one of two logs may have more than the other.
        let [own, of_root] = active.logged.get(&node).copied().unwrap_or_default();
        if let Some(root) = root.filter(|_| end > of_root) {
            let records = records.iter().map(|record| wire::Record { job: id, ..record.clone() }).collect();
            out.log(now, root, job_event::Body::Output(job_event::Output { records, node, job: id, end }));
        }
        if end > own {
            // The offsets of each attempt begin anew.
            let job = if crate::attempts::attempt(id) == 0 { 0 } else { id };
            out.log(now, id, job_event::Body::Output(job_event::Output { records, node, job, end }));
        }
    }
}
