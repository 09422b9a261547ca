//! Why a member does not get its place: one sentence each, with what exists and what would work.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use rsd_proto::v1::GroupJoin;
use rsd_proto::{frameworks, join};

use super::{Group, SIZE_MAX};
use crate::calls::{Refused, exit};
use crate::{JobId, NodeId};

/// How many waiting pids a sentence lists.
const LISTED: usize = 128;

fn no(exit_code: u8, text: String) -> Refused {
    Refused { exit_code, text }
}

/// Checks a join by itself; returns the size that it requests.
pub(in crate::head) fn check(join: &GroupJoin) -> Result<Option<(u32, u32)>, Refused> {
    if let Err(error) = join::check_name(&join.group) {
        return Err(no(exit::USAGE, error.to_string()));
    }
    if let Err(error) = frameworks::parse(&join.export) {
        return Err(no(exit::USAGE, format!("export: {error}")));
    }
    sizes(&join.group, join.size, join.min, join.max)
}

pub(in crate::head) fn sizes(
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
        (Some(_), ..) => return wrong("give either a size or min and max, not both".into()),
        (None, ..) => return wrong("min and max must be given together: min=8 max=16".into()),
    };
    if min == 0 || max > SIZE_MAX {
        return wrong(format!("a group has 1 to {SIZE_MAX} members"));
    }
    if min > max {
        return wrong(format!("min {min} is greater than max {max}"));
    }
    Ok(Some((min, max)))
}

fn size_text((min, max): (u32, u32)) -> String {
    match min == max {
        true => format!("{max} members"),
        false => format!("{min} to {max} members"),
    }
}

pub(in crate::head) fn unknown(name: &str, wants_size: bool) -> Refused {
    match wants_size {
        true => no(
            exit::NOT_PLACED,
            format!(
                "no group {name}, and this join gives no size to create it: give a size, or run rsctl group create {name} \
                 --size N first"
            ),
        ),
        false => no(exit::NO_SUCH_JOB, format!("no group {name} (rsctl group ls lists all groups)")),
    }
}

pub(in crate::head) fn exists(name: &str) -> Refused {
    no(exit::NOT_PLACED, format!("group {name} already exists: see rsctl group show {name}, or close it first"))
}

pub(in crate::head) fn no_epoch(name: &str) -> Refused {
    let text = format!("group {name} has no running epoch: rsctl group show {name} shows which members are missing");
    no(exit::NO_SUCH_JOB, text)
}

pub(in crate::head) fn full(what: &str, most: usize) -> Refused {
    no(exit::NOT_PLACED, format!("too many {what}: the limit of this DVM is {most}"))
}

pub(in crate::head) fn closed(name: &str) -> Refused {
    no(exit::NOT_PLACED, format!("group {name} is closed: rsctl group create {name} --size N reopens it"))
}

pub(in crate::head) fn kicked(name: &str) -> Refused {
    no(exit::CANCELLED, format!("removed from group {name} by rsctl group kick"))
}

pub(in crate::head) fn not_yours(name: &str, owner: u32, uid: u32) -> Refused {
    no(
        exit::NOT_PERMITTED,
        format!(
            "group {name} belongs to uid {owner}, this process to uid {uid}: use another name, or let the owner open it to \
             all users that the daemon accepts (rsctl group create {name} --mode 666)"
        ),
    )
}

pub(in crate::head) fn not_its_place(join: &GroupJoin) -> Refused {
    no(exit::NOT_PERMITTED, format!("the token is not that of a place of uid {} in group {}", join.uid, join.group))
}

pub(in crate::head) fn other_size(group: &Group, size: (u32, u32), name_of: impl Fn(NodeId) -> String) -> Refused {
    let by = match group.said_by {
        Some((0, node)) => format!("as a process on {} requested first", name_of(node)),
        Some((pid, node)) => format!("as pid {pid} on {} requested first", name_of(node)),
        None => "set when it was created".to_owned(),
    };
    let (there, here) = (size_text(group.size), size_text(size));
    no(exit::NOT_PLACED, format!("group {} has {there}, {by}; this process requests {here}", group.name))
}

pub(in crate::head) fn no_such_rank(name: &str, rank: u32, (min, max): (u32, u32)) -> Refused {
    let why = match min == max {
        true => format!("has {max} members"),
        false => format!("may begin with {min} members"),
    };
    no(exit::NOT_PLACED, format!("group {name} {why}: rank {rank} is out of range, use 0 to {}", min - 1))
}

pub(in crate::head) fn rank_taken(
    name: &str,
    rank: u32,
    other: &GroupJoin,
    name_of: impl Fn(NodeId) -> String,
) -> Refused {
    let node = name_of(other.node);
    no(exit::NOT_PLACED, format!("rank {rank} of group {name} is taken by pid {} on {node}", other.pid))
}

pub(in crate::head) fn is_there(name: &str, join: &GroupJoin) -> Refused {
    let wish = join.rank.map(|rank| format!(" (as rank {rank})")).unwrap_or_default();
    no(exit::NOT_PLACED, format!("pid {} is already waiting in group {name}{wish}: a process is one member", join.pid))
}

pub(in crate::head) fn several(name: &str, pid: u32) -> Refused {
    no(exit::USAGE, format!("pid {pid} is waiting in group {name} on several nodes: give the node as NODE:{pid}"))
}

pub(in crate::head) fn not_waiting(name: &str, pid: u32, live: impl Iterator<Item = JobId>) -> Refused {
    let live: Vec<String> = live.map(|job| format!("rsctl cancel {job}")).collect();
    let hint = match live.is_empty() {
        true => String::new(),
        false => format!("; to end a running epoch: {}", live.join(", ")),
    };
    no(exit::NO_SUCH_JOB, format!("no pid {pid} is waiting in group {name}{hint}"))
}

/// `have` members had joined after `waited` seconds; `here`: the text of [`here`].
pub(in crate::head) fn timed_out(group: &Group, have: usize, waited: u64, here: &str) -> Refused {
    let (name, want) = (&group.name, group.size.0);
    no(
        exit::TIMED_OUT,
        format!("group {name} timed out after {waited} s: {have} of {want} members have joined; {here}"),
    )
}

/// The members that wait, and how many or which ranks are missing: `here: a: pids 11 12 (waiting 60 s); b: pid 7 (waiting 2 s); missing: 2`.
pub(in crate::head) fn here(group: &Group, now: Duration, name_of: impl Fn(NodeId) -> String) -> String {
    let (have, want) = (group.seats.len(), group.size.0 as usize);
    let mut here: BTreeMap<NodeId, BTreeMap<Reverse<u64>, Vec<String>>> = BTreeMap::new();
    for seat in group.seats.iter().take(LISTED) {
        let seconds = now.saturating_sub(seat.since).as_secs();
        let away = if seat.away.is_some() { " (its daemon is unreachable)" } else { "" };
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

/// No node of this DVM has the name.
pub(in crate::head) fn unknown_node(name: &str) -> Refused {
    no(exit::NO_SUCH_JOB, format!("no node named {name} in this DVM (rsctl nodes lists them)"))
}
