//! The report on how a job ended: the first cause with its last lines on stderr, then the consequences.

use std::collections::HashMap;

use rsd_proto::transport::exit;
use rsd_proto::v1::rank_exit::How;
use rsd_proto::v1::{JobInfo, JobState, RankExit, job_event};
use rsd_proto::{exits, ranges};

use crate::{array, placement, print, signals};

/// Returns the report on an ended job, or None if it succeeded. `seen` returns whether the stderr of a rank of a job (0: this one) was
/// already printed.
pub(crate) fn verdict(info: &JobInfo, seen: impl Fn(u64, u32) -> bool) -> Option<String> {
    let job = array::called(info);
    let headline = match info.state() {
        JobState::Done => return without(info),
        JobState::Cancelled => format!("job {job} was cancelled"),
        JobState::TimedOut => format!("job {job} timed out (--timeout)"),
        JobState::Failed => format!("job {job} failed"),
        JobState::Queued | JobState::Running | JobState::Ending | JobState::Unknown => return None,
    };
    let secondary = exits::count(info.exits.iter().filter(|exit| exit.secondary)) as usize;
    let Some(cause) = info.cause.as_ref().filter(|cause| !cause.secondary) else {
        // Without this line, the user may assume that the cancel has ended the members' processes.
        let left = if info.joined && secondary > 0 { format!("\n{}", cut_off(secondary, "")) } else { String::new() };
        return Some(headline + &left);
    };

    let mut text = format!("{headline}: {}", describe(cause, info));
    if !cause.stderr_tail.is_empty() && !seen(cause.job, cause.rank) {
        text.push_str("; its last lines on stderr:");
        for line in String::from_utf8_lossy(&cause.stderr_tail).lines() {
            text.push_str("\n  | ");
            text.push_str(line);
        }
    }
    if secondary > 0 {
        text.push_str(&format!("\n{}", followed(secondary, info.joined)));
    }
    let others = info
        .exits
        .iter()
        .filter(|exit| !exit.secondary)
        .flat_map(exits::ranks)
        .filter(|rank| (cause.job, cause.rank) != (0, *rank));
    let others = ranges::of(others);
    if !others.is_empty() {
        let ranks = if matches!(&others[..], [(first, last)] if first == last) { "rank" } else { "ranks" };
        text.push_str(&format!("\nalso failed: {ranks} {}", placement::ranges(&others)));
    }
    Some(text)
}

/// Returns what a reader of a log learns at a gap.
pub(crate) fn missing(bytes: u64) -> String {
    format!("{} of output are missing here: they were not kept", print::bytes(bytes))
}

/// Returns that a job has failed and starts again.
pub(crate) fn requeued(again: &job_event::Requeued) -> String {
    format!("{}; attempt {} of {} follows", again.reason, again.next + 1, again.attempts)
}

/// Returns that a job's log is not complete.
pub(crate) fn not_kept(info: &JobInfo) -> String {
    format!(
        "{} of the output of job {} were not kept: rsctl logs does not have them",
        print::bytes(info.lost_bytes),
        info.job
    )
}

/// Returns which ranks a job has lost that has continued without them.
fn without(info: &JobInfo) -> Option<String> {
    let is_lost = |exit: &&RankExit| exit.lost || (exit.code == u32::from(exit::UNREACHABLE) && !exit.fatal);
    let first = info.exits.iter().find(is_lost)?;
    let lost = ranges::of(info.exits.iter().filter(is_lost).flat_map(exits::ranks));
    let (ranks, were) = match &lost[..] {
        [(first, last)] if first == last => ("rank", "was"),
        _ => ("ranks", "were"),
    };
    let how = match &first.how {
        Some(How::Failed(why)) => format!(" ({why})"),
        Some(How::Exited(_) | How::Signaled(_) | How::Aborted(_)) | None => format!(" ({})", describe(first, info)),
    };
    Some(format!("job {} is done without {ranks} {}, which {were} lost{how}", info.job, placement::ranges(&lost)))
}

/// Returns `rank 3 on n1 was killed by SIGSEGV (signal 11)`.
pub(crate) fn describe(exit: &RankExit, info: &JobInfo) -> String {
    let how = match &exit.how {
        Some(How::Exited(code)) => format!(" exited with code {code}"),
        Some(How::Signaled(signal)) => format!(" was killed by {}", signals::describe(*signal)),
        Some(How::Aborted(code)) => format!(" called MPI_Abort with code {code}"),
        Some(How::Failed(why)) => format!(": {why}"),
        None => " failed".to_owned(),
    };
    let note = if exit.note.is_empty() { String::new() } else { format!(" ({})", exit.note) };
    match exit.job {
        0 => {
            let node = placement::node_name(info.map.as_ref(), &info.node_names, exit.node);
            format!("rank {} on {node}{how}{note}", exit.rank)
        }
        job if info.array.is_some() => {
            format!("rank {} of job {job}, its first element that failed,{how}{note}", exit.rank)
        }
        job => format!("rank {} of job {job}, which it spawned,{how}{note}", exit.rank),
    }
}

/// Returns a line for each rank: how it ended, and the exit code that a shell would show.
pub(crate) fn of_each_rank(info: &JobInfo) -> Vec<String> {
    let single: Vec<RankExit> = exits::singly(&info.exits, info.map.as_ref()).collect();
    let own: HashMap<u32, &RankExit> =
        single.iter().filter(|exit| exit.job == 0).map(|exit| (exit.rank, exit)).collect();
    let line = |rank: u32| match own.get(&rank) {
        None => format!("rank {rank}: exit code 0"),
        Some(exit) => format!("{}: exit code {}", describe(exit, info), exit.code),
    };
    // The job's state has no more failures than this.
    let known = if info.exits.len() < EXITS_MAX { info.ranks } else { 0 };
    let failed = single.iter().filter(|_| known == 0).map(|exit| exit.rank);
    (0..known).chain(failed).map(line).collect()
}

/// The most failed ranks that a job's state lists.
const EXITS_MAX: usize = 100_000;

/// Says what happened to the other ranks. Members of groups are only cut off: rsd never signals a process it did not start.
fn followed(ranks: usize, joined: bool) -> String {
    match (joined, ranks) {
        (false, 1) => "1 other rank was ended because of it".to_owned(),
        (false, _) => format!("{ranks} other ranks were ended because of it"),
        (true, _) => cut_off(ranks, "other "),
    }
}

fn cut_off(members: usize, other: &str) -> String {
    let why = if other.is_empty() { "" } else { " because of it" };
    match members {
        1 => format!("1 {other}member was cut off{why}; its process was not signalled"),
        _ => format!("{members} {other}members were cut off{why}; their processes were not signalled"),
    }
}

#[cfg(test)]
mod tests {
    use rsd_proto::v1::TaskMap;

    use super::*;

    fn exit(rank: u32, how: How, secondary: bool) -> RankExit {
        RankExit { rank, node: 4, how: Some(how), secondary, ..RankExit::default() }
    }

    #[test]
    fn the_exit_code_of_every_rank_is_listed() {
        let abort = RankExit { code: 7, ..exit(1, How::Aborted(7), false) };
        let killed = RankExit { code: 143, ..exit(2, How::Signaled(15), true) };
        let info = JobInfo { ranks: 3, ..failed(abort.clone(), vec![abort, killed]) };
        let aborted = "rank 1 on n1 called MPI_Abort with code 7: exit code 7";
        let killed = "rank 2 on n1 was killed by SIGTERM (signal 15): exit code 143";
        assert_eq!(of_each_rank(&info), ["rank 0: exit code 0", aborted, killed]);
    }

    fn failed(cause: RankExit, exits: Vec<RankExit>) -> JobInfo {
        JobInfo {
            job: 7,
            state: JobState::Failed.into(),
            map: Some(TaskMap { nodes: vec![0, 4], blocks: Vec::new() }),
            node_names: vec!["n0".into(), "n1".into()],
            cause: Some(cause),
            exits,
            ..JobInfo::default()
        }
    }

    #[test]
    fn a_job_that_has_continued_names_the_lost_ranks() {
        let failed = How::Failed("its node n1 was stopped".into());
        let lost = |rank| RankExit { code: 242, ..exit(rank, failed.clone(), false) };
        let done = |exits| JobInfo { job: 7, state: JobState::Done.into(), exits, ..JobInfo::default() };
        let text = verdict(&done(vec![lost(2), lost(3)]), |_, _| false).unwrap();
        assert_eq!(text, "job 7 is done without ranks 2-3, which were lost (its node n1 was stopped)");
        assert!(verdict(&done(vec![lost(2)]), |_, _| false).unwrap().contains("without rank 2, which was lost ("));
        assert_eq!(verdict(&done(Vec::new()), |_, _| false), None);
    }

    #[test]
    fn a_single_failure_is_one_line() {
        let cause = exit(3, How::Signaled(11), false);
        let info = failed(cause.clone(), vec![cause]);
        assert_eq!(
            verdict(&info, |_, _| false).unwrap(),
            "job 7 failed: rank 3 on n1 was killed by SIGSEGV (signal 11)"
        );
    }

    #[test]
    fn stderr_is_quoted_unless_it_was_printed_already() {
        let mut cause = exit(3, How::Exited(3), false);
        cause.stderr_tail = "no such file\ngiving up\n".into();
        cause.note = "after it had called MPI_Init".into();
        let info = failed(cause, Vec::new());
        let head = "job 7 failed: rank 3 on n1 exited with code 3 (after it had called MPI_Init)";
        assert_eq!(verdict(&info, |_, rank| rank == 3).unwrap(), head);
        let long = format!("{head}; its last lines on stderr:\n  | no such file\n  | giving up");
        assert_eq!(verdict(&info, |_, _| false).unwrap(), long);
    }

    #[test]
    fn the_cause_may_be_in_a_spawned_job() {
        let cause = RankExit { job: 8, ..exit(1, How::Exited(3), false) };
        let text = verdict(&failed(cause, vec![exit(1, How::Signaled(15), true)]), |_, _| false).unwrap();
        let lines: Vec<&str> = text.lines().collect();
        assert_eq!(
            lines,
            [
                "job 7 failed: rank 1 of job 8, which it spawned, exited with code 3",
                "1 other rank was ended because of it",
            ]
        );
    }

    #[test]
    fn ranks_ended_because_of_the_failure_are_counted() {
        let mut exits =
            vec![exit(3, How::Aborted(7), false), exit(5, How::Exited(1), false), exit(6, How::Exited(1), false)];
        exits.extend((8..23).map(|rank| exit(rank, How::Signaled(15), true)));
        let text = verdict(&failed(exits[0].clone(), exits), |_, _| false).unwrap();
        let lines: Vec<&str> = text.lines().collect();
        assert_eq!(
            lines,
            [
                "job 7 failed: rank 3 on n1 called MPI_Abort with code 7",
                "15 other ranks were ended because of it",
                "also failed: ranks 5-6",
            ]
        );
    }

    #[test]
    fn members_of_a_group_are_cut_off_and_not_signalled() {
        let cut = |rank| exit(rank, How::Failed("its process (pid 9) was cut off".into()), true);
        let cause = exit(3, How::Failed("its process (pid 7) ended without MPI_Finalize".into()), false);
        for (others, said) in [
            (1, "\n1 other member was cut off because of it; its process was not signalled"),
            (3, "\n3 other members were cut off because of it; their processes were not signalled"),
        ] {
            let exits = (0..others).map(cut).chain([cause.clone()]).collect();
            let text = verdict(&JobInfo { joined: true, ..failed(cause.clone(), exits) }, |_, _| false).unwrap();
            assert!(text.ends_with(said), "{text}");
        }
        let exits = vec![cut(0), cut(1)];
        let cancelled =
            JobInfo { job: 7, joined: true, state: JobState::Cancelled.into(), exits, ..JobInfo::default() };
        assert_eq!(
            verdict(&cancelled, |_, _| false).unwrap(),
            "job 7 was cancelled\n2 members were cut off; their processes were not signalled"
        );
    }

    #[test]
    fn the_reason_is_reported_for_a_rank_that_did_not_start() {
        let cause = exit(0, How::Failed("no program ./foo there".into()), false);
        assert_eq!(
            verdict(&failed(cause, Vec::new()), |_, _| false).unwrap(),
            "job 7 failed: rank 0 on n1: no program ./foo there"
        );
    }

    #[test]
    fn a_cancelled_job_names_no_rank() {
        let mut info = failed(exit(0, How::Signaled(15), true), vec![exit(0, How::Signaled(15), true)]);
        info.state = JobState::Cancelled.into();
        assert_eq!(verdict(&info, |_, _| false).unwrap(), "job 7 was cancelled");
        info.state = JobState::Done.into();
        assert_eq!(verdict(&info, |_, _| false), None);
    }
}
