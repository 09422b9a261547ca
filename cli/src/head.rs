//! `rsctl head …`: the head and its standbys.

use std::time::Duration;

use rsd_proto::v1::lease::State as LeaseState;
use rsd_proto::v1::standby_info::State;
use rsd_proto::v1::{AllowStandbyRequest, HeadInfo, Lease, PromoteRequest, ShowHeadRequest, StandbyInfo};
use serde_json::json;

use crate::dvm::{self, Heads};
use crate::exit::Failure;
use crate::json;
use crate::options::HeadCommand;
use crate::print::{self, Align, out, visible};

/// How long a promotion may take: the head may have to hand over, and another one to start.
const PROMOTION: Duration = Duration::from_secs(90);

pub(crate) async fn perform(mut client: Heads, command: HeadCommand, as_json: bool) -> Result<u8, Failure> {
    let change = |node, forbid| AllowStandbyRequest { node, forbid };
    let info = match command {
        HeadCommand::Show => dvm::answer("asking for the head", client.show_head(ShowHeadRequest {})).await?,
        HeadCommand::Allow { node } => {
            dvm::answer("allowing a standby", client.allow_standby(change(node, false))).await?
        }
        HeadCommand::Forbid { node } => {
            dvm::answer("forbidding a standby", client.allow_standby(change(node, true))).await?
        }
        HeadCommand::Promote { node, switch, force } => {
            let machine = node.as_ref().map_or("this machine".to_owned(), |node| format!("the machine of {node}"));
            let request = PromoteRequest { node: node.unwrap_or_default(), hand_over: switch, force };
            let asked = tokio::time::timeout(PROMOTION, client.promote(request)).await;
            let late = || Failure::unreachable(format!("the standby has not become the head within {PROMOTION:?}"));
            let reply = asked.map_err(|_| late())?;
            let reply = reply.map_err(|status| Failure::of_status("promoting the standby", &status))?.into_inner();
            match as_json {
                true => out(&(json::document(json!({ "epoch": reply.epoch, "ready": reply.ready })) + "\n"))?,
                false => {
                    let epoch = reply.epoch;
                    out(&format!("{machine} is the head now (epoch {epoch})\n{}\n", visible(&reply.ready)))?
                }
            }
            return Ok(0);
        }
    };
    match as_json {
        true => out(&(json::document(to_json(&info)) + "\n"))?,
        false => out(&described(&info))?,
    }
    Ok(0)
}

fn to_json(info: &HeadInfo) -> serde_json::Value {
    let standby = |standby: &StandbyInfo| {
        json!({
            "node": standby.node,
            "name": standby.name,
            "state": state(standby),
            "addresses": standby.addresses,
            "records_behind": standby.records_behind,
            "bytes_behind": standby.bytes_behind,
            "behind_ms": standby.behind_ms,
        })
    };
    json!({
        "dvm": info.dvm,
        "name": info.name,
        "listen": info.listen,
        "epoch": info.epoch,
        "standbys": info.standbys.iter().map(standby).collect::<Vec<_>>(),
        "lease": info.lease.as_ref().map(|lease| json!({
            "state": lease_state(lease),
            "why": lease.why,
            "candidates": lease.candidates,
            "left_ms": lease.left_ms,
        })),
    })
}

fn lease_state(lease: &Lease) -> &'static str {
    match lease.state() {
        LeaseState::Waiting => "waiting",
        LeaseState::Held => "held",
        LeaseState::Confirmed => "confirmed",
    }
}

/// Describes the head's lease in etcd.
fn described_lease(lease: &Lease, standbys: &[StandbyInfo]) -> String {
    let state = match lease.state() {
        LeaseState::Waiting => "none: the head decides nothing until it has one",
        LeaseState::Held => "held",
        LeaseState::Confirmed => "not renewed: the head goes on, because its standbys confirm it",
    };
    let why = if lease.why.is_empty() { String::new() } else { format!(" ({})", visible(&lease.why)) };
    let name = |node: &u32| {
        let known = standbys.iter().find(|standby| standby.node == *node);
        known.map_or_else(|| format!("node {node}"), |standby| visible(&standby.name).to_string())
    };
    let names: Vec<String> = lease.candidates.iter().map(name).collect();
    let names = if names.is_empty() { "no standby".to_owned() } else { names.join(", ") };
    format!("lease in etcd: {state}{why}\nif the head is lost, takes over: {names}\n")
}

fn state(standby: &StandbyInfo) -> &'static str {
    match standby.state() {
        State::Absent => "absent",
        State::Copying => "copying",
        State::InStep => "in step",
        State::Late => "late",
    }
}

fn described(info: &HeadInfo) -> String {
    let listen = if info.listen.is_empty() { String::new() } else { format!(", at {}", info.listen) };
    let head = format!("head: {}{listen}, epoch {} of DVM {}\n", visible(&info.name), info.epoch, info.dvm);
    let head = head + &info.lease.as_ref().map(|lease| described_lease(lease, &info.standbys)).unwrap_or_default();
    if info.standbys.is_empty() {
        return head + "no standbys\n";
    }
    let columns = [
        ("STANDBY", Align::Left),
        ("STATE", Align::Left),
        ("RECORDS BEHIND", Align::Right),
        ("BYTES BEHIND", Align::Right),
        ("FOR", Align::Right),
        ("AS THE HEAD AT", Align::Left),
    ];
    let row = |standby: &StandbyInfo| {
        let is_there = standby.state() != State::Absent;
        let number = |number: u64| if is_there { number.to_string() } else { "-".to_owned() };
        [
            standby.name.clone(),
            state(standby).to_owned(),
            number(standby.records_behind),
            number(standby.bytes_behind),
            if is_there { print::duration(standby.behind_ms) } else { "-".to_owned() },
            standby.addresses.first().cloned().unwrap_or_else(|| "-".to_owned()),
        ]
    };
    head + &print::table(columns, &info.standbys.iter().map(row).collect::<Vec<_>>())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_head_and_its_standbys_are_shown() {
        let mut info =
            HeadInfo { dvm: "d0".into(), name: "node0".into(), listen: "10.0.0.1:7817".into(), ..HeadInfo::default() };
        assert_eq!(described(&info), "head: node0, at 10.0.0.1:7817, epoch 0 of DVM d0\nno standbys\n");
        let standby = |name: &str, is: State, bytes_behind| StandbyInfo {
            name: name.into(),
            state: is.into(),
            bytes_behind,
            addresses: vec!["10.0.0.2:7817".into()],
            ..StandbyInfo::default()
        };
        info.lease = Some(Lease { state: LeaseState::Held.into(), candidates: vec![0], ..Lease::default() });
        assert!(described(&info).contains("lease in etcd: held\nif the head is lost, takes over: node 0\n"));
        info.lease = None;
        info.epoch = 2;
        info.standbys = vec![standby("node1", State::InStep, 0), standby("b", State::Absent, 0)];
        assert_eq!(
            described(&info),
            "\
head: node0, at 10.0.0.1:7817, epoch 2 of DVM d0
STANDBY  STATE    RECORDS BEHIND  BYTES BEHIND   FOR  AS THE HEAD AT
node1    in step               0             0  0.0s  10.0.0.2:7817
b        absent                -             -     -  10.0.0.2:7817
"
        );
    }
}
