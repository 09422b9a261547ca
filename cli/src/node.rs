//! `rsctl node …`: changes a node, and prints what it is now.

use std::time::{Duration, Instant};

use rsd_proto::transport::exit;
use rsd_proto::v1::change_node_request::Change;
use rsd_proto::v1::{ChangeNodeRequest, Label, LabelNode, ListNodesRequest, NodeInfo, RemoveNode};

use crate::dvm::{self, Client};
use crate::exit::Failure;
use crate::json;
use crate::options::NodeCommand;
use crate::print::{out, visible};

/// How often a drain looks whether the last job has left.
const LOOK_EVERY: Duration = Duration::from_millis(250);

pub(crate) async fn change(mut client: Client, command: NodeCommand, as_json: bool) -> Result<u8, Failure> {
    let (node, change, done, wait) = match command {
        NodeCommand::Drain { node, wait, timeout } => (node, Change::Drain(true), "drained", wait.then_some(timeout)),
        NodeCommand::Resume { node } => (node, Change::Drain(false), "resumed", None),
        NodeCommand::Remove { node, stop, force } => {
            (node, Change::Remove(RemoveNode { stop, force }), "removed", None)
        }
        NodeCommand::Label { node, labels } => (node, Change::Label(label(&labels)?), "labelled", None),
    };
    let request = ChangeNodeRequest { node, change: Some(change) };
    let mut info = dvm::answer("changing the node", client.change_node(request)).await?;
    if let Some(timeout) = wait {
        info = idle(&mut client, info, timeout).await?;
    }
    match as_json {
        true => out(&(json::document(json::node(&info)) + "\n"))?,
        false => out(&described(&info, done))?,
    }
    Ok(0)
}

/// Reads `KEY=VALUE` and `KEY-`.
fn label(words: &[String]) -> Result<LabelNode, Failure> {
    let mut change = LabelNode::default();
    for word in words {
        match (word.split_once('='), word.strip_suffix('-')) {
            (Some((key, value)), _) => change.set.push(Label { key: key.to_owned(), value: value.to_owned() }),
            (None, Some(key)) => change.delete.push(key.to_owned()),
            (None, None) => {
                let text = format!("invalid label `{word}`: KEY=VALUE sets a label, KEY- deletes it");
                return Err(Failure::usage(text));
            }
        }
    }
    Ok(change)
}

/// Waits until no job has ranks on the node; returns its state then.
async fn idle(client: &mut Client, mut info: NodeInfo, timeout: Option<Duration>) -> Result<NodeInfo, Failure> {
    let end = timeout.map(|timeout| Instant::now() + timeout);
    while info.slots_in_use > 0 {
        if end.is_some_and(|end| end <= Instant::now()) {
            let text = format!("{} still runs {} ranks; it stays drained: rsctl ps", info.name, info.slots_in_use);
            return Err(Failure::new(exit::TIMED_OUT, text));
        }
        tokio::time::sleep(LOOK_EVERY).await;
        let nodes = dvm::answer("listing the nodes", client.list_nodes(ListNodesRequest { load: false })).await?.nodes;
        // A node that has left runs nothing.
        let Some(now) = nodes.into_iter().find(|node| node.node == info.node) else { break };
        info = now;
    }
    Ok(info)
}

fn described(info: &NodeInfo, done: &str) -> String {
    let running = match info.slots_in_use {
        0 => String::new(),
        1 => ", 1 rank is still running there".to_owned(),
        ranks => format!(", {ranks} ranks are still running there"),
    };
    let labels: Vec<String> = info.labels.iter().map(|label| format!("{}={}", label.key, label.value)).collect();
    match done {
        "drained" => format!("{}: drained{running}\n", visible(&info.name)),
        "labelled" if labels.is_empty() => format!("{}: no labels\n", visible(&info.name)),
        "labelled" => format!("{}: {}\n", visible(&info.name), visible(&labels.join(" "))),
        done => format!("{}: {done}\n", visible(&info.name)),
    }
}
