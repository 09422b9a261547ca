//! `nodes`: the nodes of the DVM, as a table or JSON.

use rsd_proto::v1::{Inventory, ListNodesRequest, NodeInfo, Resource};
use serde_json::json;

use crate::dvm::{self, Client};
use crate::exit::Failure;
use crate::json;
use crate::print::{self, Align, out, table, visible};

/// `nodes`.
pub(crate) async fn nodes(mut client: Client, as_json: bool) -> Result<u8, Failure> {
    let nodes = dvm::answer("listing the nodes", client.list_nodes(ListNodesRequest { load: true })).await?.nodes;
    match as_json {
        true => {
            let nodes: Vec<_> = nodes.iter().map(json::node).collect();
            out(&(json::document(json!({ "nodes": nodes })) + "\n"))?;
        }
        false => out(&nodes_table(&nodes))?,
    }
    Ok(0)
}

fn nodes_table(nodes: &[NodeInfo]) -> String {
    let columns = [
        ("NODE", Align::Left),
        ("STATE", Align::Left),
        ("SLOTS", Align::Right),
        ("IN USE", Align::Right),
        ("CORES", Align::Right),
        ("LOAD", Align::Right),
        ("MEMORY USED", Align::Left),
        ("ADDRESS", Align::Left),
        ("SLOTS FROM; LABELS", Align::Left),
    ];
    let rows: Vec<_> = nodes
        .iter()
        .map(|info| {
            let inventory = info.inventory.clone().unwrap_or_default();
            let total = print::bytes(inventory.memory_bytes);
            let used = info.load.map_or_else(dash, |load| print::bytes(load.memory_used_bytes));
            [
                info.name.clone(),
                state_of(info),
                inventory.slots.to_string(),
                info.slots_in_use.to_string(),
                inventory.cores.to_string(),
                info.load.map_or_else(dash, |load| format!("{:.2}", load.load1)),
                format!("{used} of {total}"),
                address(info),
                with_labels(with_resources(&inventory, info), info),
            ]
        })
        .collect();
    table(columns, &rows)
}

fn state_of(info: &NodeInfo) -> String {
    let drained = if info.drained { ", drained" } else { "" };
    format!("{}{drained}", json::node_state(info.state()))
}

/// Returns where a node's slots come from, and what it has besides, with what jobs have reserved.
fn with_resources(inventory: &Inventory, info: &NodeInfo) -> String {
    let mut text = inventory.slots_reason.clone();
    if info.memory_reserved > 0 {
        text.push_str(&format!("; memory: {} reserved", print::bytes(info.memory_reserved)));
    }
    for Resource { name, amount } in &inventory.resources {
        let held = info.reserved_resources.iter().find(|held| held.name == *name).map_or(0, |held| held.amount);
        text.push_str(&format!("; {name}: {held} of {amount} reserved"));
    }
    text
}

/// Adds a node's labels to the last column.
fn with_labels(text: String, info: &NodeInfo) -> String {
    let labels = info.labels.iter().map(|label| format!("; {}={}", label.key, label.value));
    visible(&format!("{text}{}", labels.collect::<String>())).into_owned()
}

/// The address at which other machines reach a node.
fn address(info: &NodeInfo) -> String {
    let first =
        info.inventory.iter().flat_map(|inventory| &inventory.addresses).map(|address| address.host.as_str()).next();
    match (info.reached.as_deref(), first) {
        (Some(""), Some(first)) => format!("{first} (not reachable)"),
        (Some(""), None) => "none".to_owned(),
        (Some(reached), _) => reached.to_owned(),
        (None, first) => first.map_or_else(dash, str::to_owned),
    }
}

fn dash() -> String {
    "-".to_owned()
}

#[cfg(test)]
mod tests {
    use rsd_proto::v1::{NodeAddress, NodeLoad};

    use super::*;

    #[test]
    fn nodes_are_shown_with_their_slots_and_the_reason() {
        let inventory = Inventory {
            slots: 2,
            slots_reason: "2 cores".into(),
            cores: 2,
            memory_bytes: 8 << 30,
            addresses: vec![NodeAddress { host: "fd00::5".into(), interface: "eth0".into() }],
            ..Inventory::default()
        };
        let load = NodeLoad { load1: 0.254, memory_used_bytes: 3 << 29, ..NodeLoad::default() };
        let up = NodeInfo {
            name: "n0".into(),
            inventory: Some(inventory),
            slots_in_use: 1,
            load: Some(load),
            ..NodeInfo::default()
        };
        let away = NodeInfo { name: "n1".into(), state: 1, load: None, reached: Some("10.0.0.7".into()), ..up.clone() };
        let closed = NodeInfo { name: "n2".into(), reached: Some(String::new()), ..away.clone() };
        assert_eq!(
            nodes_table(&[up, away, closed]),
            "\
NODE  STATE  SLOTS  IN USE  CORES  LOAD  MEMORY USED         ADDRESS                  SLOTS FROM; LABELS
n0    up         2       1      2  0.25  1.5 GiB of 8.0 GiB  fd00::5                  2 cores
n1    away       2       1      2     -  - of 8.0 GiB        10.0.0.7                 2 cores
n2    away       2       1      2     -  - of 8.0 GiB        fd00::5 (not reachable)  2 cores
"
        );
    }
}
