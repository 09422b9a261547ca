//! Groups as text and as JSON.

use rsd_proto::v1::{GroupInfo, GroupRules, WaitingMember};
use serde_json::{Value, json};

use crate::json::state as state_of_job;
use crate::print::{self, Align};

fn rules(info: &GroupInfo) -> GroupRules {
    info.rules.clone().unwrap_or_default()
}

fn size(rules: &GroupRules) -> String {
    if rules.min == rules.max { rules.max.to_string() } else { format!("{}-{}", rules.min, rules.max) }
}

fn state(info: &GroupInfo) -> &'static str {
    match (info.closed, info.waiting.is_empty(), info.epochs.is_empty()) {
        (true, _, _) => "closed",
        (false, false, _) => "filling",
        (false, true, false) => "running",
        (false, true, true) => "empty",
    }
}

fn epochs(info: &GroupInfo) -> String {
    let epochs: Vec<String> = info.epochs.iter().map(|live| format!("{} (job {})", live.epoch, live.job)).collect();
    if epochs.is_empty() { "-".to_owned() } else { epochs.join(", ") }
}

/// Returns the groups as a table. It names their owners if one of them is another user's.
pub(super) fn table(groups: &[GroupInfo], own_uid: u32) -> String {
    let columns = [
        ("GROUP", Align::Left),
        ("STATE", Align::Left),
        ("SIZE", Align::Right),
        ("WAITING", Align::Right),
        ("NEXT EPOCH", Align::Right),
        ("EPOCHS", Align::Left),
    ];
    let rows: Vec<_> = groups
        .iter()
        .map(|info| {
            let rules = rules(info);
            [
                rules.name.clone(),
                state(info).to_owned(),
                size(&rules),
                info.waiting.len().to_string(),
                info.epoch.to_string(),
                epochs(info),
            ]
        })
        .collect();
    if groups.iter().all(|info| info.owner_uid == own_uid) {
        return print::table(columns, &rows);
    }
    let [group, a, b, c, d, e] = columns;
    let owned = rows
        .into_iter()
        .zip(groups)
        .map(|([group, a, b, c, d, e], info)| [group, format!("uid {}", info.owner_uid), a, b, c, d, e]);
    print::table([group, ("OWNER", Align::Left), a, b, c, d, e], &owned.collect::<Vec<_>>())
}

pub(super) fn description(info: &GroupInfo) -> String {
    let rules = rules(info);
    let ms = |time: Option<u64>| time.map_or_else(|| "-".to_owned(), print::duration);
    let missing = u64::from(rules.min).saturating_sub(info.waiting.len() as u64);
    let mut fields = vec![
        ("group", rules.name.clone()),
        ("state", state(info).to_owned()),
        ("size", size(&rules)),
        ("owner", format!("uid {}, mode {:03o}", info.owner_uid, rules.mode.unwrap_or(0o600))),
        ("created", if info.created { "by rsctl group create" } else { "by its first member" }.to_owned()),
        ("timeout", ms(rules.timeout_ms)),
    ];
    if info.created {
        fields.push(("kept", format!("{} while empty", ms(rules.ttl_ms))));
    }
    fields.push(("next", format!("epoch {}: {} waiting, {missing} missing", info.epoch, info.waiting.len())));
    fields.push(("epochs", epochs(info)));
    if let Some(last) = &info.last {
        let cause = if last.cause.is_empty() { String::new() } else { format!(": {}", last.cause) };
        fields.push(("last", format!("{} (job {}) {}{cause}", last.epoch, last.job, state_of_job(last.state()))));
    }
    let width = fields.iter().map(|(name, _)| name.len()).max().unwrap_or(0);
    let mut text: String = fields.iter().map(|(name, value)| format!("{name:<width$}  {value}\n")).collect();
    for member in &info.waiting {
        text.push_str(&format!("  {}\n", waiting(member)));
    }
    text
}

fn waiting(member: &WaitingMember) -> String {
    let wish = member.rank.map(|rank| format!(", requests rank {rank}")).unwrap_or_default();
    let away = if member.away { ", its daemon is unreachable" } else { "" };
    let (node, pid, waits) = (&member.node_name, member.pid, print::duration(member.waiting_ms));
    format!("{node} pid {pid} (uid {}) has waited {waits}{wish}{away}", member.uid)
}

pub(super) fn json(info: &GroupInfo) -> Value {
    let rules = rules(info);
    let member = |member: &WaitingMember| {
        json!({
            "node": member.node,
            "node_name": member.node_name,
            "pid": member.pid,
            "uid": member.uid,
            "rank": member.rank,
            "waiting_ms": member.waiting_ms,
            "away": member.away,
        })
    };
    let live = info.epochs.iter().map(|live| json!({ "epoch": live.epoch, "job": live.job, "size": live.size }));
    let last = info.last.as_ref().map(|last| {
        let state = state_of_job(last.state());
        json!({ "epoch": last.epoch, "job": last.job, "state": state, "cause": last.cause })
    });
    json!({
        "group": rules.name,
        "state": state(info),
        "min": rules.min,
        "max": rules.max,
        "owner_uid": info.owner_uid,
        "mode": format!("{:03o}", rules.mode.unwrap_or(0o600)),
        "created": info.created,
        "timeout_ms": rules.timeout_ms,
        "settle_ms": rules.settle_ms,
        "ttl_ms": rules.ttl_ms,
        "epoch": info.epoch,
        "waiting": info.waiting.iter().map(member).collect::<Vec<_>>(),
        "epochs": live.collect::<Vec<_>>(),
        "last": last,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_owner_is_shown_only_if_one_is_another_user() {
        let group = |name: &str, owner_uid| GroupInfo {
            rules: Some(GroupRules { name: name.into(), min: 2, max: 4, ..GroupRules::default() }),
            owner_uid,
            epoch: 1,
            ..GroupInfo::default()
        };
        let groups = [group("actors", 1000), group("actors", 1001)];
        assert_eq!(
            table(&groups[..1], 1000),
            "GROUP   STATE  SIZE  WAITING  NEXT EPOCH  EPOCHS\nactors  empty   2-4        0           1  -\n"
        );
        assert_eq!(
            table(&groups, 1000),
            "GROUP   OWNER     STATE  SIZE  WAITING  NEXT EPOCH  EPOCHS\n\
             actors  uid 1000  empty   2-4        0           1  -\n\
             actors  uid 1001  empty   2-4        0           1  -\n"
        );
    }
}
