//! The texts about exits of ranks and losses of nodes, written in one place for nodes, the head and steps.
//!
//! Each is a fragment of a longer sentence: the `how` of a [`RankExit`] follows `rank 3: `, and its `note` follows in brackets.
//! Jobs and fences have the numbers that users see.

use std::time::Duration;

use rsd_proto::v1::{JobState, RankExit, rank_exit::How};

use std::ops::Range;

use crate::calls::Refused;
use crate::calls::exit::{NODE_LOST, NOT_PLACED, USAGE};
use crate::{JobId, NodeId};

/// Describes the exit of a rank: `rank 3 exited with code 1 (without MPI_Finalize)`.
pub(crate) fn exit(exit: &RankExit) -> String {
    let how = match &exit.how {
        Some(How::Exited(code)) => format!(" exited with code {code}"),
        Some(How::Signaled(signal)) => format!(" was killed by signal {signal}"),
        Some(How::Aborted(code)) => format!(" called MPI_Abort with code {code}"),
        Some(How::Failed(why)) => format!(": {why}"),
        None => " failed".to_owned(),
    };
    let note = if exit.note.is_empty() { String::new() } else { format!(" ({})", exit.note) };
    let (first, last) = (exit.rank.saturating_add(1), exit.rank.saturating_add(exit.more));
    let others = match exit.more {
        0 => String::new(),
        1 => format!("; the same for rank {first}"),
        _ => format!("; the same for ranks {first}-{last}"),
    };
    format!("rank {}{how}{note}{others}", exit.rank)
}

/// [`exit`] with the node: `on n1, rank 3 exited with code 1`.
pub(crate) fn exit_on(node: &str, ended: &RankExit) -> String {
    format!("on {node}, {}", exit(ended))
}

/// A node has no way to the head.
pub(crate) fn cut_off(limit: Duration) -> String {
    let s = limit.as_secs();
    format!(
        "this node has been cut off from its DVM for {s} s (link.silence and link.reattach_grace): ending its ranks"
    )
}

/// A step has no daemon.
pub(crate) fn without_daemon(limit: Duration) -> String {
    format!("no daemon has run on this node for {} s (step.orphan_deadline): ending its ranks", limit.as_secs())
}

/// A daemon has connected to itself.
pub(crate) fn joins_itself() -> String {
    "the daemon that answers there is this daemon itself, or has a copy of its state directory: --join must name the head, or a \
     daemon that has joined it"
        .to_owned()
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

/// A user has removed a node that was unreachable.
pub(crate) fn node_removed(node: &str) -> String {
    format!("its node {node} was unreachable and has been removed (rsctl node remove)")
}

/// A node's daemon was stopped.
pub(crate) fn node_stopped(node: &str) -> String {
    format!("its node {node} was stopped")
}

/// No address is known at which ranks on other machines reach these nodes.
pub(crate) fn nodes_without_address(names: &[&str]) -> String {
    let (whose, it) = if let [_] = names { ("its", "it") } else { ("their", "them") };
    format!(
        "{} no address at which other machines reach {it}, so MPI with {whose} ranks may fail: start {whose} {} with --advertise \
         ADDR",
        few(names, "has", "have"),
        if let [_] = names { "daemon" } else { "daemons" },
    )
}

/// The head could not connect back to these nodes.
pub(crate) fn nodes_out_of_reach(names: &[&str]) -> String {
    let whose = if let [_] = names { "its" } else { "their" };
    format!(
        "{} not reachable from the head, so ranks on other machines may not be able to connect to {whose} ranks, which connect to \
         them instead if the MPI library is rsd's: open the firewall (rsctl ports), or start {whose} {} with --advertise ADDR",
        few(names, "is", "are"),
        if let [_] = names { "daemon" } else { "daemons" },
    )
}

/// `node a has`, `nodes a, b, c and 5 more have`.
fn few(names: &[&str], one: &str, several: &str) -> String {
    const SHOWN: usize = 4;
    match names {
        [name] => format!("node {name} {one}"),
        names if names.len() > SHOWN => {
            format!("nodes {} and {} more {several}", names[..SHOWN].join(", "), names.len() - SHOWN)
        }
        names => format!("nodes {} {several}", names.join(", ")),
    }
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

/// Appends a note to earlier notes.
pub(crate) fn noted(before: &str, note: &str) -> String {
    if before.is_empty() { note.to_owned() } else { format!("{before}; {note}") }
}

/// Makes the exits of ranks that no step reported.
pub(crate) fn lost_ranks(ranks: Vec<Range<u32>>, node: NodeId, why: &str) -> Vec<RankExit> {
    let lost = |ranks: Range<u32>| RankExit {
        rank: ranks.start,
        more: ranks.end.saturating_sub(ranks.start + 1),
        node,
        how: Some(How::Failed(why.to_owned())),
        fatal: true,
        code: u32::from(NODE_LOST),
        ..RankExit::default()
    };
    ranks.into_iter().map(lost).collect()
}

/// Makes the exit of a rank whose job cannot complete a fence: what a daemon would keep for the jobs of its user is too much.
pub(crate) fn fence_too_large(rank: u32, node: NodeId, fence: u64, bytes: u64) -> RankExit {
    let why = format!(
        "fence {fence} cannot complete: its puts have {bytes} bytes, and the running jobs of its user may have 2 GiB in their last fences \
         together: run fewer of these jobs at a time, or put less"
    );
    RankExit {
        rank,
        node,
        how: Some(How::Failed(why)),
        fatal: true,
        code: u32::from(NOT_PLACED),
        ..RankExit::default()
    }
}

/// Returns whether a rank was lost with its node.
pub(crate) fn is_loss(exit: &RankExit) -> bool {
    exit.code == u32::from(NODE_LOST)
}

/// A job continues without some of its ranks, which are lost because of `why`.
pub(crate) fn continues_without(ranks: impl Iterator<Item = u32>, why: &str) -> String {
    let ranks = in_ranges(ranks);
    let (noun, are) = if ranks.contains(['-', ',']) { ("ranks", "are") } else { ("rank", "is") };
    format!("{noun} {ranks} {are} lost ({why}); the other ranks continue (--on-node-loss continue)")
}

/// Returns how a rank ended whose job continues without it, as a sentence about it: `it was killed by signal 9`.
pub(crate) fn how_lost(exit: &RankExit) -> String {
    let how = match &exit.how {
        Some(How::Exited(code)) => format!("it exited with code {code}"),
        Some(How::Signaled(signal)) => format!("it was killed by signal {signal}"),
        Some(How::Aborted(code)) => format!("it called MPI_Abort with code {code}"),
        Some(How::Failed(why)) => why.clone(),
        None => "it failed".to_owned(),
    };
    noted(&how, &exit.note).replacen("; ", ", ", usize::from(exit.note == WITHOUT_FINALIZE))
}

/// A job continues without a rank, or a run of ranks, that has died.
pub(crate) fn continues_after(node: &str, ended: &RankExit) -> String {
    format!("{}; the other ranks continue (--on-rank-loss continue)", exit_on(node, ended))
}

/// A node returned after a job had continued without it.
pub(crate) fn returned_late() -> String {
    "its node was cut off for so long that the job has continued without it".to_owned()
}

/// Returns ascending numbers as text: `0-3,7`.
pub(crate) fn in_ranges(numbers: impl Iterator<Item = u32>) -> String {
    let mut ranges: Vec<(u32, u32)> = Vec::new();
    for number in numbers {
        match ranges.last_mut() {
            Some((_, last)) if *last + 1 == number => *last = number,
            Some(_) | None => ranges.push((number, number)),
        }
    }
    let text = |(first, last): &(u32, u32)| if first == last { first.to_string() } else { format!("{first}-{last}") };
    ranges.iter().map(text).collect::<Vec<_>>().join(",")
}

/// The state of a job.
pub fn state(state: JobState) -> &'static str {
    match state {
        JobState::Unknown => "unknown",
        JobState::Queued => "queued",
        JobState::Running => "running",
        JobState::Ending => "ending",
        JobState::Done => "done",
        JobState::Failed => "failed",
        JobState::Cancelled => "cancelled",
        JobState::TimedOut => "timed-out",
    }
}

/// Refuses to stop a daemon while these jobs are running.
pub(crate) fn jobs_are_running(jobs: &[JobId]) -> Refused {
    let ids = jobs.iter().map(JobId::to_string).collect::<Vec<_>>().join(", ");
    let (jobs, are) = if jobs.len() == 1 { ("job", "is") } else { ("jobs", "are") };
    let text = format!("{jobs} {ids} {are} still running: wait, rsctl cancel, or rsd stop --force");
    Refused::new(USAGE, text)
}

// --- written by steps ---

/// The rank was not started because of a failure elsewhere.
pub(crate) const NEVER_STARTED: &str = "never started";
/// The process ended between `MPI_Init` and `MPI_Finalize`.
pub(crate) const WITHOUT_FINALIZE: &str = "without MPI_Finalize";
/// The process closed its PMI connection between `MPI_Init` and `MPI_Finalize`.
pub(crate) const HUNG_UP: &str = "closed its PMI connection without MPI_Finalize";
/// A process of a spawned job ended, and its spawner waits until it has called `MPI_Init`.
pub(crate) const WITHOUT_INIT_FOR_SPAWNER: &str = "without calling MPI_Init, which its spawner waits for";
/// A member left its epoch without a failure.
pub(crate) const LEFT_THE_EPOCH: &str = "it left the epoch";
/// The job is being ended because of another job or a user.
pub(crate) const JOB_IS_BEING_ENDED: &str = "the job is being ended";

/// The rank has exited, and this many ranks of its node wait for it in a barrier.
pub(crate) fn missing_in_barrier(finalized: bool, waiting: usize) -> String {
    let what = if finalized { "after MPI_Finalize" } else { "without calling MPI_Init" };
    let others =
        if waiting == 1 { "1 rank of its node waits".to_owned() } else { format!("{waiting} ranks of its node wait") };
    format!("{what}, while {others} for it in a barrier")
}

/// The rank has exited without using MPI, and this many ranks of its node are in MPI.
pub(crate) fn missing_in_mpi(in_mpi: usize) -> String {
    let others = match in_mpi {
        1 => "1 rank of its node is in MPI and waits".to_owned(),
        _ => format!("{in_mpi} ranks of its node are in MPI and wait"),
    };
    format!("without calling MPI_Init, while {others} for it")
}

/// Two programs of a job, each with its MPI library: the first uses rsd's, the second another one.
pub(crate) fn programs_differ((a, ours): (&str, &str), (b, other): (&str, &str)) -> String {
    format!(
        "program {a} uses rsd's MPI library ({ours}), but program {b} uses another one ({other}): all programs of a job must use \
         the same MPI library; build them with the same mpicc"
    )
}

/// How a step process ended before its ranks.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum StepEnd {
    /// By this signal.
    Signaled(i32),
    /// With this code.
    Exited(i32),
    /// Unknown: the process was the child of an earlier daemon.
    Unknown,
    /// The process ended while no daemon was running.
    WhileDaemonWasDown,
}

/// Says how the step process ended; its ranks are lost.
pub fn step_lost(end: StepEnd) -> String {
    match end {
        StepEnd::Signaled(signal) => format!("its step process was killed by signal {signal}"),
        StepEnd::Exited(0) => "its step process exited without reporting how its ranks ended".to_owned(),
        StepEnd::Exited(code) => format!("its step process exited with code {code}"),
        StepEnd::Unknown => "its step process was killed".to_owned(),
        StepEnd::WhileDaemonWasDown => "its step process was killed while the daemon of its node was down".to_owned(),
    }
}

/// The members of a group's epoch, which are processes that rsd did not start. `pid` 0: the process is unknown on this node.
pub(crate) mod member {
    use super::{Duration, WITHOUT_FINALIZE};

    fn process(pid: u32) -> String {
        if pid == 0 { "its process".to_owned() } else { format!("its process (pid {pid})") }
    }

    /// The process never connected.
    pub(crate) fn never_attached(pid: u32, deadline: Duration) -> String {
        let (process, seconds) = (process(pid), deadline.as_secs());
        format!("{process} did not connect within {seconds} s after the group was complete: it must call MPI_Init")
    }

    /// rsd closed its connection because of another failure.
    pub(crate) fn cut_off(pid: u32) -> String {
        format!("{} was cut off", process(pid))
    }

    /// The process ended before `MPI_Init`. `hint` names the usual cause; may be empty.
    pub(crate) fn ended_before_init(pid: u32, hint: &str) -> String {
        let colon = if hint.is_empty() { "" } else { ": " };
        format!("{} ended before it called MPI_Init{colon}{hint}", process(pid))
    }

    /// The process ended between `MPI_Init` and `MPI_Finalize`.
    pub(crate) fn ended_without_finalize(pid: u32) -> String {
        format!("{} ended {WITHOUT_FINALIZE}", process(pid))
    }

    /// The process did what `what` says.
    pub(crate) fn did(pid: u32, what: &str) -> String {
        format!("{} {what}", process(pid))
    }

    /// A member uses rsd's library (`ours`) or another one, and `rank` the opposite.
    pub(crate) fn libraries_differ(ours: bool, rank: u32) -> String {
        let both = match ours {
            true => format!("uses rsd's MPI library, but rank {rank} uses another one"),
            false => format!("uses another MPI library than rank {rank}, which uses rsd's"),
        };
        format!("{both}: all members of a group must use the same MPI library")
    }
}

/// Shortens a text that has more bytes, and marks the end.
pub(crate) fn cut(text: &mut String, bytes_max: usize) {
    if text.len() > bytes_max {
        text.truncate(text.floor_char_boundary(bytes_max));
        text.push('…');
    }
}

/// Returns a text that is not too long for a message.
pub(crate) fn short(text: &str) -> String {
    let mut text = text.to_owned();
    cut(&mut text, 200);
    text
}

/// Returns a time for people: `3d04h`, `2h05m`, `1m30s`, `7s`.
pub(crate) fn span(time: Duration) -> String {
    let s = time.as_secs();
    match s {
        0..60 => format!("{s}s"),
        60..3600 => format!("{}m{:02}s", s / 60, s % 60),
        3600..86_400 => format!("{}h{:02}m", s / 3600, s % 3600 / 60),
        _ => format!("{}d{:02}h", s / 86_400, s % 86_400 / 3600),
    }
}

/// A job that accepts fewer ranks than it requests starts with fewer.
pub(crate) fn fewer_ranks(ranks: u32) -> String {
    format!("starting {ranks} ranks, the most acceptable ones that fit now")
}

/// Why a job is cancelled whose client has not come back after a restart of the head.
pub(crate) const OWNER_IS_GONE: &str = "the client that ran it has lost its connection and not come back";

/// Why a job waits that may fit when these many nodes have reconnected to a restarted head.
pub(crate) fn nodes_return(nodes: usize) -> String {
    let (nodes, have) = if nodes == 1 { ("1 node".to_owned(), "has") } else { (format!("{nodes} nodes"), "have") };
    format!("{nodes} {have} not reconnected since the head was restarted")
}

/// Why the ranks on the node of an earlier head are lost.
pub(crate) fn head_moved() -> &'static str {
    "the machine of the head was lost, and another machine has become the head"
}

/// Why the ranks of a job are lost that has ended under an earlier head.
pub(crate) fn over_before() -> String {
    "the job had ended there under an earlier head, which could not tell how".to_owned()
}

/// Why a node may not stand by.
pub(crate) fn may_not_stand_by(name: &str) -> String {
    format!(
        "node {name} may not stand by for the head, because a standby gets the key of the DVM: on the head's machine: rsctl head allow {name}"
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lost_ranks_are_named_in_ranges() {
        let without = |ranks: &[u32]| continues_without(ranks.iter().copied(), "its node n1 was stopped");
        assert_eq!(
            without(&[0, 1, 2, 7]),
            "ranks 0-2,7 are lost (its node n1 was stopped); the other ranks continue (--on-node-loss continue)"
        );
        assert!(without(&[3]).starts_with("rank 3 is lost ("));
    }

    #[test]
    fn counts_agree() {
        assert_eq!(
            missing_in_barrier(true, 1),
            "after MPI_Finalize, while 1 rank of its node waits for it in a barrier"
        );
        assert_eq!(
            missing_in_barrier(false, 2),
            "without calling MPI_Init, while 2 ranks of its node wait for it in a barrier"
        );
        assert_eq!(missing_in_mpi(1), "without calling MPI_Init, while 1 rank of its node is in MPI and waits for it");
        let earlier = may_have_failed_earlier;
        assert_eq!(earlier(&["a"]), "node a was unreachable; a rank there may have failed earlier");
        assert_eq!(earlier(&["a", "b"]), "nodes a, b were unreachable; a rank there may have failed earlier");
    }

    #[test]
    fn a_rank_is_described_with_its_note() {
        let ended =
            RankExit { rank: 3, how: Some(How::Exited(0)), note: WITHOUT_FINALIZE.into(), ..Default::default() };
        assert_eq!(exit(&ended), "rank 3 exited with code 0 (without MPI_Finalize)");
        let lost = RankExit { rank: 3, how: Some(How::Failed(step_lost(StepEnd::Unknown))), ..Default::default() };
        assert_eq!(exit(&lost), "rank 3: its step process was killed");
        assert_eq!(step_lost(StepEnd::Exited(0)), "its step process exited without reporting how its ranks ended");
        assert_eq!(step_lost(StepEnd::Exited(3)), "its step process exited with code 3");
    }
}
