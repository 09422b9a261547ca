//! What a step may send. In a DVM that serves all users, steps are their users' processes, and a user may run another program in a
//! step's place. So a step speaks only about its own job and its own node.

use rsd_proto::v1::{RankExit, RanksWaiting, up};

use crate::kvs::{KEY_MAX, KNOWN_MAX};
use crate::{JobId, NodeId};

/// Returns whether the step of this job on node `me` may send the message.
pub(super) fn may_send(me: NodeId, job: JobId, body: &up::Body) -> bool {
    let own = |nodes: &[NodeId]| nodes == [me];
    // A run of ranks says only where its first rank is.
    let exits = |exits: &[RankExit]| exits.iter().all(|exit| exit.node == me && exit.more == 0);
    match body {
        up::Body::FenceUp(fence) => fence.job == job && own(&fence.nodes),
        up::Body::GetHeld(get) => get.job == job && get.key.len() <= KEY_MAX && get.known.len() <= KNOWN_MAX,
        up::Body::NodesPut(put) => put.job == job && own(&put.nodes) && put.puts.iter().all(|put| put.node == me),
        up::Body::Located(located) => located.job == job && own(&located.nodes),
        up::Body::Locate(locate) => locate.job == job,
        up::Body::Begun(begun) => begun.job == job && own(&begun.nodes),
        up::Body::Done(done) => done.job == job && own(&done.nodes) && exits(&done.exits),
        up::Body::RankFailed(failed) => failed.job == job && exits(failed.exit.as_slice()) && exits(&failed.others),
        up::Body::Resume(resume) => resume.job == job && resume.node.is_none_or(|node| node == me),
        up::Body::Fetched(fetched) => (fetched.job, fetched.node) == (job, me),
        up::Body::RanksEnded(ended) => (ended.job, ended.node) == (job, me),
        up::Body::PmiResult(result) => result.job == job,
        up::Body::Master(master) => master.job == job,
        up::Body::Output(output) => (output.job, output.node) == (job, me),
        up::Body::StdinAck(ack) => (ack.job, ack.node) == (job, me),
        up::Body::Notice(notice) => (notice.job, notice.node) == (job, me),
        up::Body::NameCall(call) => (call.job, call.node) == (job, me),
        up::Body::SpawnCall(call) => (call.job, call.node) == (job, me),
        up::Body::Waits(report) => {
            report.silent.is_empty()
                && report.stopping.is_empty()
                && report.steps.len() <= 1
                && report.steps.iter().all(|ranks| are_waiting(me, job, ranks))
        }
        up::Body::Pong(pong) => pong.job == job,
        up::Body::Hello(_)
        | up::Body::Part(_)
        | up::Body::NodesUp(_)
        | up::Body::NodesAway(_)
        | up::Body::NodesGone(_)
        | up::Body::GroupJoin(_)
        | up::Body::GroupLeave(_)
        | up::Body::Load(_)
        | up::Body::Missed(_)
        | up::Body::Passed(_) => false,
    }
}

/// Returns whether a report is about this job on this node.
fn are_waiting(me: NodeId, job: JobId, ranks: &RanksWaiting) -> bool {
    let own = ranks.missing.iter().all(|rank| rank.node == me);
    own && ranks.job == job && ranks.unattached.is_empty() && ranks.silent.is_empty()
}

#[cfg(test)]
mod tests {
    use rsd_proto::v1::{
        Done, FenceUp, Fetched, GetHeld, GroupJoin, NameCall, NodePut, NodesGone, NodesPut, Output, RankFailed,
        RankWaiting, RanksEnded, Resume, StoppingNode, WaitReport,
    };

    use super::*;

    #[test]
    fn a_step_speaks_only_about_its_own_job_and_node() {
        let fence =
            |job, nodes: &[NodeId]| up::Body::FenceUp(FenceUp { job, nodes: nodes.into(), ..FenceUp::default() });
        assert!(may_send(3, 7, &fence(7, &[3])));
        assert!(!may_send(3, 7, &fence(8, &[3])), "another job");
        assert!(!may_send(3, 7, &fence(7, &[4])) && !may_send(3, 7, &fence(7, &[3, 4])), "other nodes");
        let get = |job, len| up::Body::GetHeld(GetHeld { job, key: vec![b'k'; len].into(), ..GetHeld::default() });
        assert!(may_send(3, 7, &get(7, KEY_MAX)));
        assert!(!may_send(3, 7, &get(8, 1)), "the keys of another job");
        assert!(!may_send(3, 7, &get(7, KEY_MAX + 1)));
        let put = |nodes: &[NodeId], node| {
            let puts = vec![NodePut { node, ..NodePut::default() }];
            up::Body::NodesPut(NodesPut { job: 7, nodes: nodes.into(), puts, ..NodesPut::default() })
        };
        assert!(may_send(3, 7, &put(&[3], 3)));
        assert!(!may_send(3, 7, &put(&[3], 4)) && !may_send(3, 7, &put(&[3, 4], 3)), "other nodes");
        let exit = |node| RankExit { node, ..RankExit::default() };
        for (node, may) in [(3, true), (4, false)] {
            let failed = RankFailed { job: 7, exit: Some(exit(node)), others: Vec::new() };
            assert_eq!(may_send(3, 7, &up::Body::RankFailed(failed)), may);
            let done = Done { job: 7, nodes: vec![3], exits: vec![exit(node)], fences: vec![0], usage: Vec::new() };
            assert_eq!(may_send(3, 7, &up::Body::Done(done)), may);
            assert_eq!(may_send(3, 7, &up::Body::Output(Output { job: 7, node, ..Output::default() })), may);
            assert_eq!(may_send(3, 7, &up::Body::NameCall(NameCall { job: 7, node, ..NameCall::default() })), may);
            assert_eq!(may_send(3, 7, &up::Body::Fetched(Fetched { job: 7, node, ..Fetched::default() })), may);
            assert_eq!(may_send(3, 7, &up::Body::RanksEnded(RanksEnded { job: 7, node, ranks: vec![] })), may);
            let resume = Resume { job: 7, node: Some(node), ..Resume::default() };
            assert_eq!(may_send(3, 7, &up::Body::Resume(resume)), may);
        }
        let waits = |job, node, silent| {
            let missing = vec![RankWaiting { node, ..RankWaiting::default() }];
            let steps = vec![RanksWaiting { job, missing, silent, ..RanksWaiting::default() }];
            up::Body::Waits(WaitReport { probe: 1, steps, silent: Vec::new(), stopping: Vec::new() })
        };
        assert!(may_send(3, 7, &waits(7, 3, Vec::new())));
        assert!(!may_send(3, 7, &waits(8, 3, Vec::new())) && !may_send(3, 7, &waits(7, 4, Vec::new())));
        assert!(!may_send(3, 7, &waits(7, 3, vec![3])));
        let ranks = RanksWaiting { job: 7, ..RanksWaiting::default() };
        let twice = WaitReport { probe: 1, steps: vec![ranks.clone(), ranks], ..WaitReport::default() };
        assert!(!may_send(3, 7, &up::Body::Waits(twice)), "a step has one report");
        let stops = WaitReport { stopping: vec![StoppingNode::default()], ..WaitReport::default() };
        assert!(!may_send(3, 7, &up::Body::Waits(stops)), "a step says nothing about daemons");
        assert!(!may_send(3, 7, &up::Body::GroupJoin(GroupJoin { node: 3, ..GroupJoin::default() })));
        assert!(!may_send(3, 7, &up::Body::NodesGone(NodesGone { nodes: vec![3] })));
    }
}
