//! Events as lines for people: `2026-11-23T15:20:38.104Z  job 7 submitted: ./a.out`.

use rsd_proto::v1::dvm_event::What;
use rsd_proto::v1::{
    DvmEvent, GroupChange, HeadStarted, JobChange, JobEnd, JobPlaced, NodeChange, NodeEvent, TokenChange, group_change,
    job_change, token_change,
};

use crate::json;
use crate::output::pattern::utc;

/// Returns the line of an event.
pub(super) fn line(event: &DvmEvent) -> String {
    let text = match &event.what {
        Some(What::Job(change)) => job(change),
        Some(What::Node(change)) => node(change),
        Some(What::Group(change)) => group(change),
        Some(What::Token(change)) => token(change),
        Some(What::HeadStarted(it)) => head_started(it),
        None => "an event that a newer rsctl can show".to_owned(),
    };
    format!("{}  {text}", utc(event.at_ms))
}

fn head_started(started: &HeadStarted) -> String {
    let HeadStarted { node, version, epoch, successor_of } = started;
    match successor_of.as_str() {
        "" => format!("head {node} started (rsd {version})"),
        before => format!("{node} is the head now, in place of {before} (epoch {epoch}, rsd {version})"),
    }
}

fn job(change: &JobChange) -> String {
    use job_change::Change;
    let what = match &change.change {
        Some(Change::Submitted(command)) => {
            let by = change.owner.as_ref().map(|owner| format!(" by {}", owner.name)).unwrap_or_default();
            format!("submitted{by}: {command}")
        }
        Some(Change::Queued(reason)) => format!("queued: {reason}"),
        Some(Change::Placed(placed)) => places(placed),
        Some(Change::Killing(reason)) => format!("is being ended: {reason}"),
        Some(Change::RankFailed(failure)) => format!("{} (on {})", failure.text, failure.node),
        Some(Change::Ended(end)) => ending(end),
        None => "changed in a way that a newer rsctl can show".to_owned(),
    };
    let colon = if matches!(change.change, Some(Change::RankFailed(_))) { ":" } else { "" };
    format!("job {}{colon} {what}", change.job)
}

fn places(placed: &JobPlaced) -> String {
    let more = u64::from(placed.nodes).saturating_sub(placed.node_names.len() as u64);
    let more = if more > 0 { format!(",+{more}") } else { String::new() };
    let ranks = if placed.ranks == 1 { "rank" } else { "ranks" };
    format!("placed: {} {ranks} on {}{more}", placed.ranks, placed.node_names.join(","))
}

fn ending(end: &JobEnd) -> String {
    let cause = if end.cause.is_empty() { String::new() } else { format!(": {}", end.cause) };
    let more = if end.failed_ranks > 1 { format!(" ({} ranks failed)", end.failed_ranks) } else { String::new() };
    format!("{} with exit code {}{cause}{more}", json::state(end.state()), end.exit_code)
}

fn node(change: &NodeChange) -> String {
    let text = if change.text.is_empty() { String::new() } else { format!(": {}", change.text) };
    format!("node {} {}{text}", change.name, node_word(change.change()))
}

/// Returns the word for what has happened to a node.
pub(super) fn node_word(event: NodeEvent) -> &'static str {
    match event {
        NodeEvent::Unknown => "unknown",
        NodeEvent::Joined => "joined",
        NodeEvent::Away => "away",
        NodeEvent::Back => "back",
        NodeEvent::Lost => "lost",
        NodeEvent::Left => "left",
        NodeEvent::Drained => "drained",
        NodeEvent::Resumed => "resumed",
        NodeEvent::Labelled => "labelled",
    }
}

fn group(change: &GroupChange) -> String {
    use group_change::Change;
    let GroupChange { group, epoch, job, change } = change;
    match change {
        Some(Change::Formed(members)) => {
            let word = if *members == 1 { "member" } else { "members" };
            format!("group {group} formed: epoch {epoch}, {members} {word}, job {job}")
        }
        Some(Change::EpochEnded(end)) => {
            let cause = if end.cause.is_empty() { String::new() } else { format!(": {}", end.cause) };
            format!("group {group}: epoch {epoch} {}{cause}", json::state(end.state()))
        }
        Some(Change::Closed(_)) => format!("group {group} closed"),
        None => format!("group {group} changed in a way that a newer rsctl can show"),
    }
}

fn token(change: &TokenChange) -> String {
    use token_change::Change;
    let what = match &change.change {
        Some(Change::Made(uses)) => {
            format!("made for uid {}, {uses} {}", change.uid, if *uses == 1 { "use" } else { "uses" })
        }
        Some(Change::Used(left)) => format!("used, {left} left"),
        Some(Change::Revoked(_)) => "revoked".to_owned(),
        None => "changed in a way that a newer rsctl can show".to_owned(),
    };
    format!("token {:016x} {what}", change.token)
}

#[cfg(test)]
mod tests {
    use rsd_proto::v1::{JobState, User};

    use super::*;

    fn text(what: What) -> String {
        line(&DvmEvent { number: 1, at_ms: 0, what: Some(what) }).split_off("1970-01-01T00:00:00.000Z  ".len())
    }

    fn of_job(change: job_change::Change) -> String {
        let owner = Some(User { uid: 1, name: "ann".into() });
        text(What::Job(JobChange { job: 7, owner, change: Some(change) }))
    }

    #[test]
    fn each_event_is_a_line_that_names_its_subject() {
        use job_change::Change;
        assert_eq!(of_job(Change::Submitted("./a -x".into())), "job 7 submitted by ann: ./a -x");
        let placed = JobPlaced { ranks: 9, nodes: 6, node_names: vec!["n0".into(), "n1".into()] };
        assert_eq!(of_job(Change::Placed(placed)), "job 7 placed: 9 ranks on n0,n1,+4");
        let end = JobEnd {
            state: JobState::Failed.into(),
            exit_code: 3,
            cause: "rank 1 exited with code 3".into(),
            failed_ranks: 2,
        };
        let said = "job 7 failed with exit code 3: rank 1 exited with code 3 (2 ranks failed)";
        assert_eq!(of_job(Change::Ended(end.clone())), said);
        let failure =
            rsd_proto::v1::RankFailure { rank: 1, node: "n1".into(), text: "rank 1 exited with code 3".into() };
        assert_eq!(of_job(Change::RankFailed(failure)), "job 7: rank 1 exited with code 3 (on n1)");
        let started = HeadStarted { node: "n0".into(), version: "1.2".into(), ..HeadStarted::default() };
        assert_eq!(text(What::HeadStarted(started.clone())), "head n0 started (rsd 1.2)");
        let moved = HeadStarted { epoch: 1, successor_of: "n9".into(), ..started };
        assert_eq!(text(What::HeadStarted(moved)), "n0 is the head now, in place of n9 (epoch 1, rsd 1.2)");
        let node = NodeChange { node: 2, name: "n2".into(), change: NodeEvent::Labelled.into(), text: "a=b".into() };
        assert_eq!(text(What::Node(node)), "node n2 labelled: a=b");
        let group = GroupChange {
            group: "actors".into(),
            epoch: 2,
            job: 9,
            change: Some(group_change::Change::EpochEnded(JobEnd { state: JobState::Done.into(), ..end })),
        };
        assert_eq!(text(What::Group(group)), "group actors: epoch 2 done: rank 1 exited with code 3");
        let token = TokenChange { token: 0xab, uid: 1000, change: Some(token_change::Change::Made(1)) };
        assert_eq!(text(What::Token(token)), "token 00000000000000ab made for uid 1000, 1 use");
    }
}
