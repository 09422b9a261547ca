//! `nodes`: the nodes of the DVM, as a table or JSON.

use rsd_proto::v1::{Gpu, Inventory, ListNodesRequest, NodeInfo, Resource};
use serde_json::json;

use crate::dvm::{self, Client};
use crate::exit::Failure;
use crate::json;
use crate::print::{self, Align, columns_within, out, visible};

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
    let any_gpus = nodes.iter().any(|info| info.inventory.iter().any(|inventory| !inventory.gpus.is_empty()));
    let gpus = any_gpus.then_some(("GPUS", Align::Left));
    let columns = [
        ("NODE", Align::Left),
        ("STATE", Align::Left),
        ("SLOTS", Align::Right),
        ("IN USE", Align::Right),
        ("CORES", Align::Right),
        ("LOAD", Align::Right),
        ("MEMORY USED", Align::Left),
    ];
    let last = [("ADDRESS", Align::Left), ("SLOTS FROM; LABELS", Align::Left)];
    let columns: Vec<_> = columns.into_iter().chain(gpus).chain(last).collect();
    let row = |info: &NodeInfo| -> Vec<String> {
        let inventory = info.inventory.clone().unwrap_or_default();
        let total = print::bytes(inventory.memory_bytes);
        let used = info.load.map_or_else(dash, |load| print::bytes(load.memory_used_bytes));
        let cells = [
            info.name.clone(),
            state_of(info),
            inventory.slots.to_string(),
            info.slots_in_use.to_string(),
            inventory.cores.to_string(),
            info.load.map_or_else(dash, |load| format!("{:.2}", load.load1)),
            format!("{used} of {total}"),
        ];
        let gpus = any_gpus.then(|| gpus_of(&inventory.gpus, info.gpus_in_use.len()));
        let last = [address(info), with_labels(with_resources(&inventory, info), info)];
        cells.into_iter().chain(gpus).chain(last).collect()
    };
    columns_within(None, &columns, &nodes.iter().map(row).collect::<Vec<_>>())
}

/// Returns how many GPUs of which models a node has: `1 NVIDIA H200 140.4 GiB`, `2 A, 1 B; 1 free`. Of a single model, the memory of one
/// is shown unless the name has it. How many are free is shown if jobs hold some.
fn gpus_of(gpus: &[Gpu], in_use: usize) -> String {
    let mut models: Vec<(&Gpu, usize)> = Vec::new();
    for gpu in gpus {
        match models.iter_mut().find(|(first, _)| first.name == gpu.name) {
            Some((_, count)) => *count += 1,
            None => models.push((gpu, 1)),
        }
    }
    let named = |(gpu, count): &(&Gpu, usize)| format!("{count} {}", name_of(gpu));
    let text = match &models[..] {
        [] => return dash(),
        [one] if one.0.memory_bytes > 0 && !names_memory(one.0) => {
            format!("{} {}", named(one), print::bytes(one.0.memory_bytes))
        }
        several => several.iter().map(named).collect::<Vec<_>>().join(", "),
    };
    match in_use {
        0 => text,
        _ => format!("{text}; {} free", gpus.len().saturating_sub(in_use)),
    }
}

fn name_of(gpu: &Gpu) -> &str {
    if gpu.name.is_empty() { "unnamed" } else { &gpu.name }
}

/// Returns whether a GPU's name has its memory: `NVIDIA H100 80GB HBM3`, `NVIDIA H100 80GB HBM3 MIG 1g.10gb`. In `NVIDIA GH200 480GB`, the
/// number is another memory's.
fn names_memory(gpu: &Gpu) -> bool {
    let own = gpu.memory_bytes / 1_000_000_000;
    let named = |word: &str| word.to_ascii_lowercase().strip_suffix("gb").and_then(|number| number.parse::<u64>().ok());
    gpu.name.split([' ', '-', '.']).filter_map(named).any(|named| named.abs_diff(own) <= own / 8)
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

    #[test]
    fn gpus_are_counted_by_model() {
        let gpu = |name: &str, gib: u64| Gpu { name: name.into(), memory_bytes: gib << 30, ..Gpu::default() };
        let (h100, h200) = (gpu("NVIDIA H100 80GB HBM3", 80), gpu("NVIDIA H200", 140));
        let (a100, mig) = (gpu("NVIDIA A100-SXM4-40GB", 40), gpu("NVIDIA H100 80GB HBM3 MIG 1g.10gb", 10));
        let vectors = [
            (vec![], 0, "-"),
            (vec![h200.clone()], 0, "1 NVIDIA H200 140.0 GiB"),
            (vec![h200.clone()], 1, "1 NVIDIA H200 140.0 GiB; 0 free"),
            (vec![h100.clone(); 8], 3, "8 NVIDIA H100 80GB HBM3; 5 free"),
            (vec![a100.clone()], 0, "1 NVIDIA A100-SXM4-40GB"),
            (vec![mig.clone(); 7], 0, "7 NVIDIA H100 80GB HBM3 MIG 1g.10gb"),
            (vec![h200.clone(), a100, h200], 1, "2 NVIDIA H200, 1 NVIDIA A100-SXM4-40GB; 2 free"),
            (vec![gpu("NVIDIA GH200 480GB", 96)], 0, "1 NVIDIA GH200 480GB 96.0 GiB"),
            (vec![gpu("", 0); 2], 0, "2 unnamed"),
        ];
        for (gpus, in_use, text) in vectors {
            assert_eq!(gpus_of(&gpus, in_use), text);
        }
    }

    #[test]
    fn the_column_of_gpus_is_shown_if_a_node_has_some() {
        let node = |name: &str, gpus: Vec<Gpu>| NodeInfo {
            name: name.into(),
            inventory: Some(Inventory { slots_reason: "--slots".into(), gpus, ..Inventory::default() }),
            ..NodeInfo::default()
        };
        let gpu = Gpu { name: "NVIDIA H200".into(), memory_bytes: 143_771 << 20, ..Gpu::default() };
        assert_eq!(
            nodes_table(&[node("n0", vec![gpu]), node("n1", vec![])]),
            "\
NODE  STATE  SLOTS  IN USE  CORES  LOAD  MEMORY USED  GPUS                     ADDRESS  SLOTS FROM; LABELS
n0    up         0       0      0     -  - of 0 B     1 NVIDIA H200 140.4 GiB  -        --slots
n1    up         0       0      0     -  - of 0 B     -                        -        --slots
"
        );
    }
}
