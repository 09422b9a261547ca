//! What processes wait for in requests beside the fences of whole jobs, for `rsctl waits`: collectives of some processes, values that others
//! must commit, and data that others must publish. The head knows those that concern several nodes; steps report the rest.

use rsd_proto::v1::{RankState, RankWaiting, RanksBlocked, RanksOfJob, RanksWaiting, Wait, wait::What};

use super::Head;
use super::job::Job;
use super::rank_set::RankSet;
use crate::Now;
use crate::contract::in_ms;
use crate::waits::MISSING_MAX;

/// The most characters of a name that a rank has chosen.
const NAME_MAX: usize = 64;

impl Head {
    /// Returns what the processes of a job wait for.
    pub(super) fn waits_of_processes(&self, now: Now, job: &Job, ranks: &[RanksWaiting]) -> Vec<Wait> {
        let mut waits: Vec<Wait> =
            ranks.iter().flat_map(|step| &step.blocked).map(|blocked| from_step(job, blocked)).collect();
        for open in self.meetings.of(job.id) {
            let missing = open.missing.get(&job.id).map(|ranks| named(job, ranks)).unwrap_or_default();
            let left: u64 = open.missing.values().map(RankSet::len).sum();
            let others = open.missing.iter().filter(|(other, _)| **other != job.id).map(|(other, ranks)| RanksOfJob {
                job: *other,
                ranks: ranks.runs().take(MISSING_MAX).flat_map(|(first, last)| [first, last]).collect(),
            });
            waits.push(Wait {
                waiting_ms: in_ms(now.mono.saturating_sub(open.since)),
                left_ms: open.until.map(|until| in_ms(until.saturating_sub(now.mono))),
                have: count(open.want.saturating_sub(left)),
                want: count(open.want),
                missing,
                others: others.take(MISSING_MAX).collect(),
                what: Some(What::Collective(collective(&String::from_utf8_lossy(open.key)))),
                ..Wait::default()
            });
        }
        for (wanted, node, requests, since) in self.fetches.of(job.id) {
            let of = self.jobs.get(wanted.job).filter(|of| of.id != job.id);
            let others = of.map(|of| RanksOfJob { job: of.id, ranks: vec![wanted.rank, wanted.rank] });
            let own = RankWaiting { rank: wanted.rank, node, pid: 0, state: RankState::Running.into() };
            waits.push(Wait {
                waiting_ms: in_ms(now.mono.saturating_sub(since)),
                want: requests,
                missing: if others.is_some() { Vec::new() } else { vec![own] },
                others: others.into_iter().collect(),
                what: Some(What::Value(short(&String::from_utf8_lossy(&wanted.what)))),
                ..Wait::default()
            });
        }
        for (keys, since, until) in self.published.of(self.realm(job.owner_uid()), job.id) {
            waits.push(Wait {
                waiting_ms: in_ms(now.mono.saturating_sub(since)),
                left_ms: until.map(|until| in_ms(until.saturating_sub(now.mono))),
                want: 1,
                what: Some(What::Lookup(short(&keys))),
                ..Wait::default()
            });
        }
        waits.truncate(MISSING_MAX);
        waits.into_iter().map(|wait| self.named(job, Wait { job: job.number(), ..wait })).collect()
    }
}

/// Returns what a step says about ranks that wait for others of its node.
fn from_step(job: &Job, blocked: &RanksBlocked) -> Wait {
    let known = |rank: &&RankWaiting| job.map.node_of(rank.rank) == Some(rank.node);
    let missing: Vec<RankWaiting> = blocked.missing.iter().filter(known).take(MISSING_MAX).copied().collect();
    let (what, want) = match &blocked.value {
        Some(key) => (What::Value(short(key)), blocked.inside),
        None => (
            What::Collective(collective(&blocked.collective)),
            blocked.inside.saturating_add(count(missing.len() as u64)),
        ),
    };
    let have = if blocked.value.is_some() { 0 } else { blocked.inside };
    Wait { waiting_ms: blocked.waiting_ms, have, want, missing, what: Some(what), ..Wait::default() }
}

/// Returns the first ranks with their nodes.
fn named(job: &Job, ranks: &RankSet) -> Vec<RankWaiting> {
    let all = ranks.runs().flat_map(|(first, last)| first..=last);
    let named = all.map(|rank| RankWaiting {
        rank,
        node: job.map.node_of(rank).unwrap_or(0),
        pid: 0,
        state: RankState::Running.into(),
    });
    named.take(MISSING_MAX).collect()
}

/// Returns the name of a collective for people. The key of a meeting is `pmix/KIND/COUNT`.
fn collective(key: &str) -> String {
    let name = match key.strip_prefix("pmix/").and_then(|rest| rest.rsplit_once('/')) {
        Some((name, _count)) => name,
        None => key,
    };
    match name.split_once('/') {
        Some(("found", group)) => format!("construction of group {}", short(group)),
        Some(("dissolve", group)) => format!("destruction of group {}", short(group)),
        Some(_) | None if name == "fence" => "fence of some processes".to_owned(),
        Some(_) | None => short(name),
    }
}

fn short(name: &str) -> String {
    name.chars().take(NAME_MAX).collect()
}

fn count(number: u64) -> u32 {
    u32::try_from(number).unwrap_or(u32::MAX)
}

#[cfg(test)]
mod tests {
    use super::collective;

    #[test]
    fn a_collective_has_a_name_for_people() {
        for (key, name) in [
            ("pmix/connect/0", "connect"),
            ("pmix/fence/17", "fence of some processes"),
            ("pmix/found/a/b/3", "construction of group a/b"),
            ("dissolve/a", "destruction of group a"),
            ("disconnect", "disconnect"),
        ] {
            assert_eq!(collective(key), name);
        }
    }
}
