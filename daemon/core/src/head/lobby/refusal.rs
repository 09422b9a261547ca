//! Refusals of members: for each, why it gets no place and what would work.

use std::time::Duration;

use rsd_proto::v1::GroupJoin;
use rsd_proto::{frameworks, join};

use super::SIZE_MAX;
use crate::calls::{Refused, exit};
use crate::contract::rounded;
use crate::{JobId, NodeId};

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
    no(exit::NOT_PLACED, format!("too many {what}: the limit is {most}"))
}

pub(in crate::head) fn closed(name: &str) -> Refused {
    no(exit::NOT_PLACED, format!("group {name} is closed: rsctl group create {name} --size N reopens it"))
}

pub(in crate::head) fn kicked(name: &str) -> Refused {
    no(exit::CANCELLED, format!("removed from group {name} by rsctl group kick"))
}

pub(in crate::head) fn other_owner(name: &str, owner: u32, uid: u32) -> Refused {
    no(
        exit::NOT_PERMITTED,
        format!(
            "group {name} belongs to uid {owner}, this process to uid {uid}: use another name, or let the owner open it to \
             all users that the daemon accepts (rsctl group create {name} --mode 666)"
        ),
    )
}

/// Refuses a process whose name for itself another process of the user has.
pub(in crate::head) fn attached(namespace: &str, job: JobId) -> Refused {
    no(
        exit::NOT_PLACED,
        format!(
            "a process {namespace} is attached already, as job {job}: attach a process once; if it is another one, two machines \
             have one host name, so give them different ones"
        ),
    )
}

pub(in crate::head) fn not_its_place(join: &GroupJoin) -> Refused {
    no(exit::NOT_PERMITTED, format!("the token does not belong to a place of uid {} in group {}", join.uid, join.group))
}

/// Refuses a join that requests size `wanted` in a group whose size was set by the process `sized_by`.
pub(in crate::head) fn other_size(
    name: &str,
    size: (u32, u32),
    sized_by: Option<(u32, NodeId)>,
    wanted: (u32, u32),
    name_of: impl Fn(NodeId) -> String,
) -> Refused {
    let by = match sized_by {
        Some((0, node)) => format!("requested first by a process on {}", name_of(node)),
        Some((pid, node)) => format!("requested first by pid {pid} on {}", name_of(node)),
        None => "set when it was created".to_owned(),
    };
    let (there, here) = (size_text(size), size_text(wanted));
    no(exit::NOT_PLACED, format!("group {name} has {there} ({by}); this process requests {here}"))
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

pub(in crate::head) fn already_waits(name: &str, join: &GroupJoin) -> Refused {
    let wish = join.rank.map(|rank| format!(" (as rank {rank})")).unwrap_or_default();
    no(
        exit::NOT_PLACED,
        format!("pid {} is already waiting in group {name}{wish}: a process can be a member only once", join.pid),
    )
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

/// Refuses a member whose timeout has passed after `waited`. `have` members had joined; `here` lists them.
pub(in crate::head) fn timed_out(name: &str, (have, want): (usize, u32), waited: Duration, here: &str) -> Refused {
    no(
        exit::TIMED_OUT,
        format!("group {name} timed out after {}: {have} of {want} members have joined; {here}", rounded(waited)),
    )
}

/// Refuses the name of a node that this DVM does not have.
pub(in crate::head) fn unknown_node(name: &str) -> Refused {
    no(exit::NO_SUCH_JOB, format!("no node named {name} in this DVM (rsctl nodes lists them)"))
}
