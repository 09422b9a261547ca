//! `rsctl upgrade`: replaces the programs of all daemons of the DVM, one after the other.
//!
//! On each node, a job of one rank runs `rsd upgrade`: the job outlives the change, as all jobs do, so its end says what has become of it. The
//! head comes last.

use std::ffi::OsString;
use std::path::Path;
use std::process::{Command, Stdio};

use rsd_proto::transport::exit;
use rsd_proto::v1::{ListNodesRequest, NodeInfo, NodeState};

use crate::dvm::{self, Dvm};
use crate::exit::Failure;
use crate::options::Upgrade;
use crate::print::{out, say};

pub(crate) async fn upgrade(dvm: &Dvm, options: &Upgrade, which: Option<OsString>) -> Result<u8, Failure> {
    let mut client = dvm.client().await?;
    let nodes = dvm::answer("listing the nodes", client.list_nodes(ListNodesRequest { load: false })).await?.nodes;
    let own = std::env::current_exe()
        .map_err(|error| Failure::new(exit::SYSTEM, format!("cannot find the program rsctl: {error}")))?;
    let program = match &options.binary {
        Some(path) => std::path::absolute(path)
            .map_err(|error| Failure::new(exit::SYSTEM, format!("cannot find {}: {error}", path.display())))?,
        None => own.with_file_name("rsd"),
    };
    for name in &options.nodes {
        if !nodes.iter().any(|node| is_named(node, name)) {
            return Err(Failure::usage(format!("no node {name} in this DVM: rsctl nodes lists them")));
        }
    }
    let mut wanted: Vec<NodeInfo> = nodes
        .into_iter()
        .filter(|node| options.nodes.is_empty() || options.nodes.iter().any(|name| is_named(node, name)))
        .collect();
    wanted.sort_by_key(|node| (node.node == 0, node.node));
    let mut code = 0;
    for (at, node) in wanted.iter().enumerate() {
        if let Some(why) = out_of_reach(node) {
            say(&format!("{}: {why}: run rsd upgrade on its machine", node.name));
            code = exit::NOT_PLACED;
            continue;
        }
        let status = rank_on(&own, which.as_ref(), node, &program)
            .status()
            .map_err(|error| Failure::new(exit::SYSTEM, format!("cannot run {}: {error}", own.display())))?;
        if !status.success() {
            let left: Vec<&str> = wanted[at..].iter().map(|node| &*node.name).collect();
            say(&format!("not upgraded: {}", left.join(", ")));
            return Ok(status.code().and_then(|code| u8::try_from(code).ok()).unwrap_or(exit::INTERNAL));
        }
    }
    if code == 0 {
        out(&format!("{} node{} upgraded\n", wanted.len(), if wanted.len() == 1 { "" } else { "s" }))?;
    }
    Ok(code)
}

fn is_named(node: &NodeInfo, name: &str) -> bool {
    node.name == name || name.strip_prefix("+id").is_some_and(|id| id.parse() == Ok(node.node))
}

/// Returns why no job can be started on a node.
fn out_of_reach(node: &NodeInfo) -> Option<&'static str> {
    let slots = node.inventory.as_ref().map_or(0, |inventory| inventory.slots);
    match () {
        () if node.state() != NodeState::Up => Some("it is not connected"),
        () if node.drained => Some("it is drained"),
        () if slots == 0 => Some("it has no slots"),
        () => None,
    }
}

/// Returns the command that runs `rsd upgrade` on a node: this program, which follows the job over the restart of the head too.
fn rank_on(own: &Path, which: Option<&OsString>, node: &NodeInfo, program: &Path) -> Command {
    let mut command = Command::new(own);
    if let Some(dvm) = which {
        command.arg("--dvm").arg(dvm);
    }
    command.args(["run", "-n", "1", "--oversubscribe", "--bind-to", "none", "--stdin", "none", "--wdir", "/"]);
    command.args(["--name", "rsd-upgrade", "--host", &format!("+id{}", node.node)]);
    command.arg(program).arg("upgrade").stdin(Stdio::null());
    command
}
