//! The sentences about how ranks and nodes end, written in one place for nodes, the head and steps.
//!
//! Each is a fragment of a longer sentence: a [`RankExit`]'s `how` reads after `rank 3: `, its `note` stands in brackets behind
//! that. Jobs and fences have the numbers that users see.

use std::time::Duration;

use rsd_proto::v1::{RankExit, rank_exit::How};

use crate::JobId;

/// Says how a rank ended: `rank 3 exited with code 1 (without MPI_Finalize)`.
pub(crate) fn exit(exit: &RankExit) -> String {
    let how = match &exit.how {
        Some(How::Exited(code)) => format!(" exited with code {code}"),
        Some(How::Signaled(signal)) => format!(" was killed by signal {signal}"),
        Some(How::Aborted(code)) => format!(" called MPI_Abort with code {code}"),
        Some(How::Failed(why)) => format!(": {why}"),
        None => " failed".to_owned(),
    };
    let note = if exit.note.is_empty() { String::new() } else { format!(" ({})", exit.note) };
    format!("rank {}{how}{note}", exit.rank)
}

/// [`exit`] with the node: `on n1, rank 3 exited with code 1`.
pub(crate) fn exit_on(node: &str, ended: &RankExit) -> String {
    format!("on {node}, {}", exit(ended))
}

/// A rank of a job that this one spawned failed.
pub(crate) fn spawned_rank_failed(job: JobId, rank: u32) -> String {
    format!("rank {rank} of job {job}, which it spawned, failed")
}

/// The job that spawned this one is being ended.
pub(crate) fn spawner_is_ending(job: JobId) -> String {
    format!("job {job}, which spawned it, is being ended")
}

/// A rank ended although ranks of other nodes wait for it in a fence.
pub(crate) fn missed_fence(fence: u64) -> String {
    format!("it ended before fence {fence}, in which ranks on other nodes are waiting for it")
}

/// A node did not reconnect in time.
pub(crate) fn node_unreachable(node: &str, grace: Duration) -> String {
    format!("its node {node} was unreachable for {} s", grace.as_secs())
}

/// A node's daemon was told to stop.
pub(crate) fn node_stopped(node: &str) -> String {
    format!("its node {node} was stopped")
}

/// A node did not report the end of its ranks after they were killed.
pub(crate) fn kill_unconfirmed() -> String {
    "its node did not confirm the kill".to_owned()
}

/// A launch reached a daemon that was stopping.
pub(crate) fn daemon_stopping() -> String {
    "the daemon of its node is stopping".to_owned()
}

/// A member went away between the start of its epoch and its `go`.
pub(crate) fn member_left() -> String {
    "it left the group before the epoch began".to_owned()
}

/// These nodes were unreachable when the job failed, and are lost since.
pub(crate) fn may_have_failed_earlier(nodes: &[&str]) -> String {
    let (nodes, were) = match nodes {
        [node] => (format!("node {node}"), "was"),
        nodes => (format!("nodes {}", nodes.join(", ")), "were"),
    };
    format!("{nodes} {were} unreachable; a rank there may have failed earlier")
}

/// Appends a note to what is already noted.
pub(crate) fn noted(before: &str, note: &str) -> String {
    if before.is_empty() { note.to_owned() } else { format!("{before}; {note}") }
}
