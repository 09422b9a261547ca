//! Why a member does not get its place: one sentence each, with what is there and what would work.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use rsd_proto::v1::GroupJoin;
use rsd_proto::{frameworks, join};

use super::{Group, SIZE_MAX};
use crate::calls::{Refused, exit};
use crate::{JobId, NodeId};

/// As many pids are listed of those that wait.
const LISTED: usize = 128;

fn no(exit_code: u8, text: String) -> Refused {
    Refused { exit_code, text }
}

/// Whether a join makes sense by itself: the size that it speaks of.
pub(crate) fn check(join: &GroupJoin) -> Result<Option<(u32, u32)>, Refused> {
    if let Err(error) = join::check_name(&join.group) {
        return Err(no(exit::USAGE, error.to_string()));
    }
    if let Err(error) = frameworks::parse(&join.export) {
        return Err(no(exit::USAGE, format!("export: {error}")));
    }
    sizes(&join.group, join.size, join.min, join.max)
}

pub(crate) fn sizes(
    name: &str,
    size: Option<u32>,
    min: Option<u32>,
    max: Option<u32>,
) -> Result<Option<(u32, u32)>, Refused> {
    let wrong = |text: String| Err(no(exit::USAGE, format!("group {name}: {text}")));
    let (min, max) = match (size, min, max) {
        (None, None, None) => return Ok(None),
        (Some(size), None, None) => (size, size),
        (None, Some(min), Some(max)) => (min, max),
        (Some(_), ..) => return wrong("a size, or the least and the most members, not both".into()),
        (None, ..) => return wrong("the least and the most members are said together: min=8 max=16".into()),
    };
    if min == 0 || max > SIZE_MAX {
        return wrong(format!("a group has 1 to {SIZE_MAX} members"));
    }
    if min > max {
        return wrong(format!("the least, {min}, is more than the most, {max}"));
    }
    Ok(Some((min, max)))
}

fn size_text((min, max): (u32, u32)) -> String {
    match min == max {
        true => format!("{max} members"),
        false => format!("{min} to {max} members"),
    }
}

pub(crate) fn unknown(name: &str, wants_size: bool) -> Refused {
    match wants_size {
        true => no(
            exit::NOT_PLACED,
            format!(
                "there is no group {name} yet, and this join does not say how many members it is to have: say its size, \
                 or first: rsctl group create {name} --size N"
            ),
        ),
        false => no(exit::NO_SUCH_JOB, format!("there is no group {name} (rsctl group ls lists those that are)")),
    }
}

pub(crate) fn exists(name: &str) -> Refused {
    no(exit::NOT_PLACED, format!("group {name} is there already: rsctl group show {name}, or close it first"))
}

pub(crate) fn no_epoch(name: &str) -> Refused {
    let text = format!("group {name} has no epoch that lives: rsctl group show {name} tells who is missing");
    no(exit::NO_SUCH_JOB, text)
}

pub(crate) fn full(what: &str, most: usize) -> Refused {
    no(exit::NOT_PLACED, format!("as many {what} as this DVM takes: {most}"))
}

pub(crate) fn closed(name: &str) -> Refused {
    no(exit::NOT_PLACED, format!("group {name} is closed: rsctl group create {name} --size N opens it again"))
}

pub(crate) fn kicked(name: &str) -> Refused {
    no(exit::CANCELLED, format!("sent away from group {name} by rsctl group kick"))
}

pub(crate) fn not_yours(name: &str, owner: u32, uid: u32) -> Refused {
    no(
        exit::NOT_PERMITTED,
        format!(
            "group {name} belongs to uid {owner}, this process to uid {uid}: take another name, or let the owner open it to all \
             whom the daemon lets in (rsctl group create {name} --mode 666)"
        ),
    )
}

pub(crate) fn not_its_place(join: &GroupJoin) -> Refused {
    no(exit::NOT_PERMITTED, format!("the token is not that of a place of uid {} in group {}", join.uid, join.group))
}

pub(crate) fn other_size(group: &Group, size: (u32, u32), name_of: impl Fn(NodeId) -> String) -> Refused {
    let by = match group.said_by {
        Some((0, node)) => format!("as a process on {} said first", name_of(node)),
        Some((pid, node)) => format!("as pid {pid} on {} said first", name_of(node)),
        None => "as it was created".to_owned(),
    };
    let (there, here) = (size_text(group.size), size_text(size));
    no(exit::NOT_PLACED, format!("group {} has {there}, {by}; this process wants {here}", group.name))
}

pub(crate) fn no_such_rank(name: &str, rank: u32, (min, max): (u32, u32)) -> Refused {
    let why = match min == max {
        true => format!("has {max} members"),
        false => format!("may begin with {min} members"),
    };
    no(exit::NOT_PLACED, format!("group {name} {why}: a rank to wish for is 0 to {}, not {rank}", min - 1))
}

pub(crate) fn rank_taken(name: &str, rank: u32, other: &GroupJoin, name_of: impl Fn(NodeId) -> String) -> Refused {
    let node = name_of(other.node);
    no(exit::NOT_PLACED, format!("rank {rank} of group {name} is taken by pid {} on {node}", other.pid))
}

pub(crate) fn is_there(name: &str, join: &GroupJoin) -> Refused {
    let wish = join.rank.map(|rank| format!(" (as rank {rank})")).unwrap_or_default();
    no(exit::NOT_PLACED, format!("pid {} waits in group {name} already{wish}: a process is one member", join.pid))
}

pub(crate) fn several(name: &str, pid: u32) -> Refused {
    no(exit::USAGE, format!("pids {pid} of several nodes wait in group {name}: say which, as NODE:{pid}"))
}

pub(crate) fn nobody(name: &str, pid: u32, live: impl Iterator<Item = JobId>) -> Refused {
    let live: Vec<String> = live.map(|job| format!("rsctl cancel {job}")).collect();
    let hint = match live.is_empty() {
        true => String::new(),
        false => format!("; an epoch that has begun is ended with {}", live.join(", ")),
    };
    no(exit::NO_SUCH_JOB, format!("no pid {pid} waits in group {name}{hint}"))
}

/// After so many seconds; `here` is what [`here`] says.
pub(crate) fn timed_out(group: &Group, have: usize, waited: u64, here: &str) -> Refused {
    let (name, want) = (&group.name, group.size.0);
    no(exit::TIMED_OUT, format!("group {name}: {have} of {want} have joined after {waited} s; {here}"))
}

/// Who is here, and how many or who is not: `here: a: pids 11 12 (waiting 60 s); b: pid 7 (waiting 2 s); missing: 2`.
pub(crate) fn here(group: &Group, now: Duration, name_of: impl Fn(NodeId) -> String) -> String {
    let (have, want) = (group.seats.len(), group.size.0 as usize);
    let mut here: BTreeMap<NodeId, BTreeMap<Reverse<u64>, Vec<String>>> = BTreeMap::new();
    for seat in group.seats.iter().take(LISTED) {
        let seconds = now.saturating_sub(seat.since).as_secs();
        let away = if seat.away.is_some() { " (its daemon is out of reach)" } else { "" };
        let pids = here.entry(seat.join.node).or_default().entry(Reverse(seconds)).or_default();
        pids.push(format!("{}{away}", seat.join.pid));
    }
    let at_once = |(Reverse(seconds), pids): (&Reverse<u64>, &Vec<String>)| {
        let word = if pids.len() == 1 { "pid" } else { "pids" };
        format!("{word} {} (waiting {seconds} s)", pids.join(" "))
    };
    let on_node = |(node, times): (&NodeId, &BTreeMap<_, _>)| {
        format!("{}: {}", name_of(*node), times.iter().map(at_once).collect::<Vec<_>>().join(", "))
    };
    let nodes: Vec<String> = here.iter().map(on_node).collect();
    let more = if have > LISTED { format!(" and {} more", have - LISTED) } else { String::new() };
    let wishes: BTreeSet<u32> = group.seats.iter().filter_map(|seat| seat.join.rank).collect();
    let ranks = match wishes.len() == have {
        true => {
            (0..group.size.0).filter(|rank| !wishes.contains(rank)).take(LISTED).map(|rank| rank.to_string()).collect()
        }
        false => Vec::new(),
    };
    let which = match &ranks[..] {
        [] => String::new(),
        [rank] => format!(" (rank {rank})"),
        ranks => format!(" (ranks {})", ranks.join(" ")),
    };
    format!("here: {}{more}; missing: {}{which}", nodes.join("; "), want.saturating_sub(have))
}
