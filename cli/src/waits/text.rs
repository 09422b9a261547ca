//! A wait in one line.

use rsd_proto::v1::{RankState, RankWaiting, RanksOfJob, SilentNode, Wait, wait::What};

use crate::{placement, print};

/// How many missing ranks and nodes a line names.
const NAMED: usize = 8;

/// Returns what waits, and for what. The text contains no times, so it changes only when the wait does.
pub(crate) fn text(wait: &Wait) -> String {
    let Wait { job, have, want, .. } = wait;
    match &wait.what {
        Some(What::Queue(reason)) => format!("job {job} is queued: {reason}"),
        Some(What::Launch(_)) => format!("launch of job {job}: {have} of {want} ranks started{}", missing(wait)),
        Some(What::Fence(number)) => format!("fence {number} of job {job}: {have} of {want} in{}", missing(wait)),
        Some(What::End(_)) => format!("end of job {job}: {have} of {want} ranks ended{}", missing(wait)),
        Some(What::Group(name)) => {
            format!("group {name}: {have} of {want} {}{}", plural(*want, "member"), missing(wait))
        }
        Some(What::KvFence(name)) => format!("kv fence {name:?} of job {job}: {have} of {want} in{}", missing(wait)),
        Some(What::KvGet(key)) => {
            let verb = if *want == 1 { "waits" } else { "wait" };
            let key = String::from_utf8_lossy(key);
            format!("value {key:?} of job {job}: {want} {} {verb} for it", plural(*want, "request"))
        }
        Some(What::Node(name)) if wait.left_ms.is_some() => format!("node {name}: its link is cut"),
        Some(What::Node(name)) => format!("node {name}: its daemon does not answer"),
        Some(What::Drain(name)) => {
            let of = match names_of_jobs(wait) {
                names if names.is_empty() => String::new(),
                names => format!(" of {names}"),
            };
            let verb = if *want == 1 { "runs" } else { "run" };
            format!("drain of node {name}: {want} {}{of} still {verb} there", plural(*want, "rank"))
        }
        Some(What::Shutdown(_)) => format!("shutdown: {}", unended(wait)),
        Some(What::Stop(name)) => format!("stop of node {name}: {}", unended(wait)),
        Some(What::Collective(name)) => {
            let elsewhere: u32 =
                wait.others.iter().flat_map(|it| it.ranks.chunks_exact(2)).map(run_len).fold(0, u32::saturating_add);
            let here = Wait { want: want.saturating_sub(elsewhere), ..wait.clone() };
            let before = if wait.missing.is_empty() { ", missing " } else { ", and " };
            format!("{name} in job {job}: {have} of {want} in{}{}", missing(&here), others(wait, before))
        }
        Some(What::Value(key)) => {
            let verb = if *want == 1 { "waits" } else { "wait" };
            let key = if key.is_empty() { "a value".to_owned() } else { format!("value {key:?}") };
            let requests = format!("{want} {} of job {job} {verb}", plural(*want, "request"));
            let of = if wait.others.is_empty() { own(wait) } else { others(wait, " of ") };
            format!("{key}{of}: {requests} until it is committed")
        }
        Some(What::Lookup(keys)) => format!("published data {keys:?}: a process of job {job} waits for it"),
        None => format!("job {job} waits for something that this version of rsctl does not know"),
    }
}

/// Returns the processes of other jobs, as `ranks 0-3 of job 7`.
fn others(wait: &Wait, before: &str) -> String {
    let described = |other: &RanksOfJob| {
        let pairs: Vec<(u32, u32)> = other.ranks.chunks_exact(2).map(|pair| (pair[0], pair[1])).collect();
        let one = matches!(&pairs[..], [(first, last)] if first == last);
        format!("{} {} of job {}", if one { "rank" } else { "ranks" }, placement::ranges(&pairs), other.job)
    };
    let all: Vec<String> = wait.others.iter().take(NAMED).map(described).collect();
    if all.is_empty() { String::new() } else { format!("{before}{}", all.join(", ")) }
}

/// Returns ` of rank 3 (n3, pid 4411)`.
fn own(wait: &Wait) -> String {
    wait.missing.first().map(|rank| format!(" of rank {}", described(wait, rank))).unwrap_or_default()
}

/// Returns `jobs 4, 7`; empty if the user may see none of them.
fn names_of_jobs(wait: &Wait) -> String {
    let jobs: Vec<String> = wait.jobs.iter().map(u64::to_string).collect();
    match jobs.is_empty() {
        true => String::new(),
        false => format!("{} {}", plural(wait.jobs.len() as u32, "job"), jobs.join(", ")),
    }
}

/// Returns `jobs 4, 7 have not ended on node1, node2`. Names all jobs, or only their number.
fn unended(wait: &Wait) -> String {
    let whole = wait.jobs.len() == wait.want as usize && wait.jobs.len() <= NAMED;
    let jobs = if whole { names_of_jobs(wait) } else { format!("{} {}", wait.want, plural(wait.want, "job")) };
    let verb = if wait.want == 1 { "has" } else { "have" };
    let rest = wait.nodes.len().saturating_sub(NAMED);
    let more = if rest > 0 { format!(" and {rest} more") } else { String::new() };
    let at = match &wait.nodes[..] {
        [] => String::new(),
        nodes => format!(" on {}{more}", nodes[..nodes.len().min(NAMED)].join(", ")),
    };
    format!("{jobs} {verb} not ended{at}")
}

/// Returns how long the wait has lasted, and when it ends: `; for 42 s, at most 18 s more`.
pub(super) fn times(wait: &Wait) -> String {
    let mut text = match wait.waiting_ms {
        0 => String::new(),
        ms => format!("; for {}", print::duration(ms)),
    };
    if let Some(left) = wait.left_ms {
        let word = if text.is_empty() { "; " } else { ", " };
        text.push_str(&format!("{word}at most {} more", print::duration(left)));
    }
    text
}

pub(super) fn node_name(wait: &Wait, node: u32) -> Option<&str> {
    let at = wait.node_ids.iter().position(|id| *id == node)?;
    wait.node_names.get(at).map(String::as_str)
}

/// Returns `, missing rank 17 (n3, pid 4411)`.
fn missing(wait: &Wait) -> String {
    let lacking = wait.want.saturating_sub(wait.have);
    let silent: u32 = wait.silent.iter().map(silent_len).sum();
    let ranks = wait.missing.iter().map(|rank| (1, described(wait, rank)));
    let nodes = wait.silent.iter().map(|node| (silent_len(node), described_node(node)));
    let named: Vec<(u32, String)> = nodes.take(NAMED).chain(ranks).take(NAMED).collect();
    if named.is_empty() {
        return String::new();
    }
    let rest = lacking.saturating_sub(named.iter().map(|(count, _)| count).sum());
    let more = if rest > 0 { format!(" and {rest} more") } else { String::new() };
    let noun = plural(lacking.max(silent), "rank");
    let texts: Vec<String> = named.into_iter().map(|(_, text)| text).collect();
    format!(", missing {noun} {}{more}", texts.join(", "))
}

fn described(wait: &Wait, rank: &RankWaiting) -> String {
    let node = node_name(wait, rank.node).map(str::to_owned);
    let pid = (rank.pid > 0).then(|| format!("pid {}", rank.pid));
    let state = match rank.state() {
        RankState::Ended => Some("has ended".to_owned()),
        RankState::Starting if rank.pid == 0 => Some("is starting".to_owned()),
        RankState::Starting => Some("has not called MPI_Init".to_owned()),
        RankState::Running | RankState::Unknown => None,
    };
    let about: Vec<String> = [node, pid, state].into_iter().flatten().collect();
    match about.is_empty() {
        true => rank.rank.to_string(),
        false => format!("{} ({})", rank.rank, about.join(", ")),
    }
}

fn described_node(node: &SilentNode) -> String {
    let pairs: Vec<(u32, u32)> = node.ranks.chunks_exact(2).map(|pair| (pair[0], pair[1])).collect();
    let why = if node.away { "its link is cut" } else { "does not answer" };
    format!("{} ({}, {why})", placement::ranges(&pairs), node.name)
}

fn silent_len(node: &SilentNode) -> u32 {
    node.ranks.chunks_exact(2).map(run_len).sum()
}

fn run_len(pair: &[u32]) -> u32 {
    pair[1].saturating_sub(pair[0]).saturating_add(1)
}

fn plural(count: u32, noun: &str) -> String {
    if count == 1 { noun.to_owned() } else { format!("{noun}s") }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rank(rank: u32, node: u32, pid: u32, state: RankState) -> RankWaiting {
        RankWaiting { rank, node, pid, state: state.into() }
    }

    fn fence(missing: Vec<RankWaiting>, silent: Vec<SilentNode>, have: u32) -> Wait {
        Wait {
            job: 7,
            have,
            want: 32,
            missing,
            silent,
            node_ids: vec![3, 4],
            node_names: vec!["node3".into(), "node4".into()],
            what: Some(What::Fence(12)),
            ..Wait::default()
        }
    }

    #[test]
    fn a_fence_names_the_missing_ranks() {
        let one = fence(vec![rank(17, 3, 4411, RankState::Running)], Vec::new(), 31);
        assert_eq!(text(&one), "fence 12 of job 7: 31 of 32 in, missing rank 17 (node3, pid 4411)");
        let ranks = (0..20).map(|it| rank(it, 4, 90 + it, RankState::Running)).collect();
        let many = text(&fence(ranks, Vec::new(), 12));
        assert!(many.starts_with("fence 12 of job 7: 12 of 32 in, missing ranks 0 (node4, pid 90), 1 "), "{many}");
        assert!(many.ends_with(", 7 (node4, pid 97) and 12 more"), "{many}");
        let ended = fence(vec![rank(1, 3, 5, RankState::Ended)], Vec::new(), 31);
        assert!(text(&ended).ends_with("missing rank 1 (node3, pid 5, has ended)"));
    }

    #[test]
    fn nodes_that_do_not_answer_are_named_with_their_ranks() {
        let node =
            |name: &str, ranks: &[u32], away| SilentNode { node: 9, name: name.into(), ranks: ranks.into(), away };
        let silent = vec![node("node5", &[4, 7], false), node("node6", &[8, 8, 12, 13], true)];
        assert_eq!(
            text(&fence(vec![rank(0, 3, 0, RankState::Running)], silent, 24)),
            "fence 12 of job 7: 24 of 32 in, missing ranks 4-7 (node5, does not answer), 8,12-13 (node6, its link is cut), \
             0 (node3)"
        );
    }

    #[test]
    fn other_waits_say_what_is_missing_and_for_how_long() {
        let wait = |what| Wait {
            job: 7,
            have: 1,
            want: 2,
            waiting_ms: 5200,
            left_ms: Some(800),
            what: Some(what),
            ..Wait::default()
        };
        let starting = Wait { missing: vec![rank(1, 0, 0, RankState::Starting)], ..wait(What::Launch(true)) };
        assert_eq!(text(&starting), "launch of job 7: 1 of 2 ranks started, missing rank 1 (is starting)");
        assert_eq!(
            text(&wait(What::Queue("2 slots requested, 1 free".into()))),
            "job 7 is queued: 2 slots requested, 1 free"
        );
        assert_eq!(text(&wait(What::Group("actors".into()))), "group actors: 1 of 2 members");
        assert_eq!(text(&wait(What::KvGet("id".into()))), "value \"id\" of job 7: 2 requests wait for it");
        assert_eq!(text(&wait(What::Node("n3".into()))), "node n3: its link is cut");
        let drain = Wait { jobs: vec![4, 7], want: 3, ..wait(What::Drain("n3".into())) };
        assert_eq!(text(&drain), "drain of node n3: 3 ranks of jobs 4, 7 still run there");
        let of_others = Wait { want: 1, ..wait(What::Drain("n3".into())) };
        assert_eq!(text(&of_others), "drain of node n3: 1 rank still runs there");
        let names = |count: usize| (1..=count).map(|node| format!("n{node}")).collect::<Vec<_>>();
        let shutdown = Wait { jobs: vec![4, 7], want: 2, nodes: names(2), ..wait(What::Shutdown(true)) };
        assert_eq!(text(&shutdown), "shutdown: jobs 4, 7 have not ended on n1, n2");
        let stop = Wait { jobs: vec![4], want: 2, nodes: names(9), ..wait(What::Stop("n3".into())) };
        let shown = "n1, n2, n3, n4, n5, n6, n7, n8 and 1 more";
        assert_eq!(text(&stop), format!("stop of node n3: 2 jobs have not ended on {shown}"));
        let of_another = Wait { want: 1, ..wait(What::Shutdown(true)) };
        assert_eq!(text(&of_another), "shutdown: 1 job has not ended");
        let of_job = |job, ranks: &[u32]| RanksOfJob { job, ranks: ranks.into() };
        let connect =
            Wait { want: 4, have: 2, others: vec![of_job(9, &[0, 1])], ..wait(What::Collective("connect".into())) };
        assert_eq!(text(&connect), "connect in job 7: 2 of 4 in, missing ranks 0-1 of job 9");
        let both = Wait { missing: vec![rank(1, 0, 0, RankState::Running)], have: 1, ..connect };
        assert_eq!(text(&both), "connect in job 7: 1 of 4 in, missing rank 1, and ranks 0-1 of job 9");
        let value =
            Wait { want: 1, missing: vec![rank(1, 0, 5, RankState::Running)], ..wait(What::Value("addr".into())) };
        assert_eq!(text(&value), "value \"addr\" of rank 1 (pid 5): 1 request of job 7 waits until it is committed");
        let value = Wait { others: vec![of_job(9, &[3, 3])], ..wait(What::Value(String::new())) };
        assert_eq!(text(&value), "a value of rank 3 of job 9: 2 requests of job 7 wait until it is committed");
        let lookup = wait(What::Lookup("the door".into()));
        assert_eq!(text(&lookup), "published data \"the door\": a process of job 7 waits for it");
        assert_eq!(times(&wait(What::Node("n3".into()))), "; for 5.2s, at most 0.8s more");
        assert_eq!(times(&Wait::default()), "");
    }
}
