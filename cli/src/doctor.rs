//! `rsctl doctor`: examines the nodes of the DVM and the ways between them, and says how to mend what is wrong.
//!
//! It runs `rsctl examine` ([`node`]) once on each node, as a job of the user: so what it sees is what the user's programs get. When all have said
//! on which port they wait, it tells each which peers to reach. [`checks`] judges, and [`text`] prints.

mod checks;
mod node;
mod text;

use std::collections::BTreeMap;
use std::io::Read;
use std::time::Duration;

use bytes::Bytes;
use rsd_proto::transport::exit;
use rsd_proto::v1::job_event::Body;
use rsd_proto::v1::stdin_target::Target;
use rsd_proto::v1::{
    App, EnvVar, InputChunk, JobEvent, JobSpec, ListNodesRequest, NodeInfo, NodeState, RankExit, StdinTarget, Stream,
};
use tokio::sync::mpsc;
use tokio::time::Instant;
use tokio_stream::wrappers::ReceiverStream;
use tonic::Streaming;

use crate::dvm::{self, Client};
use crate::exit::Failure;
use crate::{json, placement, print, verdict};
use node::{Looked, Peer, Plan, Reached, Said};

pub(crate) use node::examine;

/// Up to so many nodes, each tries to reach all others.
const ALL_UP_TO: usize = 9;
/// With more nodes, each tries its parent in the tree and so many others.
const OTHERS: usize = 8;
/// How long the nodes have to start, and in all.
const START: Duration = Duration::from_secs(20);
const WHOLE: Duration = Duration::from_secs(120);
/// How long the job may take to end when all nodes have said everything.
const FAREWELL: Duration = Duration::from_secs(5);
/// The longest line of a node.
const LINE_BYTES: usize = 64 << 10;

/// A node that is examined, and what came back.
#[derive(Debug, Default)]
struct Examined {
    info: NodeInfo,
    looked: Option<Looked>,
    /// Why its rank failed.
    failed: String,
    /// A line that is not complete.
    line: Vec<u8>,
}

/// `doctor`.
pub(crate) async fn doctor(mut client: Client, all: bool, as_json: bool) -> Result<u8, Failure> {
    let nodes = dvm::answer("listing the nodes", client.list_nodes(ListNodesRequest { load: false })).await?.nodes;
    let (present, absent): (Vec<_>, Vec<_>) =
        nodes.into_iter().partition(|node| node.state() == NodeState::Up && !node.drained);
    let (examined, reached) = match present.is_empty() {
        true => (Vec::new(), Vec::new()),
        false => examine_all(client, present, all).await?,
    };
    let report = checks::report(&examined, &absent, reached);
    match as_json {
        true => print::out(&(json::document(text::document(&report)) + "\n"))?,
        false => print::out(&text::text(&report, crate::look::Look::of_stdout()))?,
    }
    Ok(report.exit_code())
}

async fn examine_all(
    mut client: Client,
    present: Vec<NodeInfo>,
    all: bool,
) -> Result<(Vec<Examined>, Vec<Reached>), Failure> {
    let by_name: BTreeMap<String, NodeInfo> = present.into_iter().map(|node| (node.name.clone(), node)).collect();
    let mut events = dvm::answer("submitting the examination", client.submit(spec(by_name.len())?)).await?;
    let (mut examined, mut reached, mut job): (Vec<Examined>, Vec<Reached>, u64) = (Vec::new(), Vec::new(), 0);
    let (mut is_planned, mut done) = (false, 0);
    let (begin_by, mut end_by) = (Instant::now() + START, Instant::now() + WHOLE);
    loop {
        let answered = examined.iter().filter(|node| node.looked.is_some() || !node.failed.is_empty()).count();
        if !is_planned && !examined.is_empty() && (answered == examined.len() || Instant::now() >= begin_by) {
            is_planned = true;
            send_plans(client.clone(), job, &plans(&examined, all)?);
        }
        let until = if is_planned || examined.is_empty() { end_by } else { begin_by };
        let Some(event) = next(&mut events, until).await? else {
            if is_planned || examined.is_empty() {
                break;
            }
            continue;
        };
        match event.body {
            Some(Body::Submitted(submitted)) => job = submitted.job,
            Some(Body::Placed(placed)) => {
                let map = placed.map.unwrap_or_default();
                let ranks = placement::by_node(&map, &placed.node_names).into_iter().flat_map(|node| {
                    let ranks = node.ranges.iter().flat_map(|(first, last)| *first..=*last).collect::<Vec<u32>>();
                    ranks.into_iter().map(move |rank| (rank, node.name.clone()))
                });
                let ranks: BTreeMap<u32, String> = ranks.collect();
                let info = |name: &String| by_name.get(name).cloned().unwrap_or_default();
                examined = ranks.values().map(|name| Examined { info: info(name), ..Examined::default() }).collect();
            }
            Some(Body::Output(output)) => {
                for record in output.records.iter().filter(|record| record.stream() == Stream::Stdout) {
                    let Some(node) = examined.get_mut(record.rank as usize) else { continue };
                    for said in node.take(&record.data) {
                        match said {
                            Said::Looked(looked) => node.looked = Some(looked),
                            Said::Reached(way) => reached.push(way),
                            Said::Done => done += 1,
                        }
                    }
                }
            }
            Some(Body::RankExit(ended)) => {
                for rank in rsd_proto::exits::ranks(&ended) {
                    if let Some(node) = examined.get_mut(rank as usize) {
                        node.failed = why(&ended);
                    }
                }
            }
            Some(Body::Ended(info)) => {
                if examined.is_empty() {
                    let why = verdict::verdict(&info, |_, _| false).unwrap_or_else(|| "it never started".to_owned());
                    return Err(Failure::new(exit::NOT_STARTED, format!("cannot examine the nodes: {why}")));
                }
                break;
            }
            Some(Body::Queued(_) | Body::Notice(_) | Body::Killing(_) | Body::Gap(_) | Body::Requeued(_)) | None => {}
        }
        if is_planned && done == examined.len() {
            // The ranks end now: the job should be over when the user reads the report.
            end_by = end_by.min(Instant::now() + FAREWELL);
        }
    }
    Ok((examined, reached))
}

/// Returns the next event; None: the stream has ended, or the time has passed.
async fn next(events: &mut Streaming<JobEvent>, until: Instant) -> Result<Option<JobEvent>, Failure> {
    match tokio::time::timeout_at(until, events.message()).await {
        Ok(event) => event.map_err(|status| Failure::of_status("examining the nodes", &status)),
        Err(_) => Ok(None),
    }
}

fn why(ended: &RankExit) -> String {
    use rsd_proto::v1::rank_exit::How;
    let tail = String::from_utf8_lossy(&ended.stderr_tail);
    match &ended.how {
        Some(How::Failed(why)) => why.clone(),
        Some(How::Signaled(signal)) => format!("it was killed by signal {signal}"),
        Some(How::Exited(_) | How::Aborted(_)) | None => tail.lines().last().unwrap_or("it failed").to_owned(),
    }
}

/// Returns a job with one rank on each node: this program, which must be at the same place everywhere.
fn spec(nodes: usize) -> Result<JobSpec, Failure> {
    use std::os::unix::ffi::OsStringExt;
    let program = std::env::current_exe()
        .map_err(|error| Failure::new(exit::SYSTEM, format!("cannot find the program rsctl: {error}")))?;
    let argv = vec![Bytes::from(program.into_os_string().into_vec()), Bytes::from_static(b"examine")];
    let var = |name: &str| std::env::var_os(name).map(|value| (name.to_owned(), value));
    let env = ["PATH", "HOME"]
        .into_iter()
        .filter_map(var)
        .map(|(name, value)| EnvVar { name: Bytes::from(name.into_bytes()), value: Bytes::from(value.into_vec()) });
    let app = App { argv, n: u32::try_from(nodes).ok(), wdir: Bytes::from_static(b"/"), ..App::default() };
    Ok(JobSpec {
        apps: vec![app],
        env: env.collect(),
        map_by: "ppr:1:node".to_owned(),
        bind_to: "none".to_owned(),
        oversubscribe: true,
        timeout_ms: u64::try_from(WHOLE.as_millis()).unwrap_or(u64::MAX),
        kill_grace_ms: Some(0),
        stdin: Some(StdinTarget { target: Some(Target::All(true)) }),
        attached: true,
        allow_singletons: true,
        ..JobSpec::default()
    })
}

/// Returns whom each node tries to reach.
fn plans(examined: &[Examined], all: bool) -> Result<Vec<Plan>, Failure> {
    let mut random = [0; 16];
    std::fs::File::open("/dev/urandom")
        .and_then(|mut file| file.read_exact(&mut random))
        .map_err(|error| Failure::new(exit::SYSTEM, format!("cannot read /dev/urandom: {error}")))?;
    let secret: String = random.iter().map(|byte| format!("{byte:02x}")).collect();
    let len = examined.len();
    let peers_of = |from: usize| -> Vec<usize> {
        // Each begins with its successor, so that not all reach the same node at the same time.
        let others = (1..len).map(|by| (from + by) % len);
        if all || len <= ALL_UP_TO {
            return others.collect();
        }
        let parent = examined.iter().position(|node| node.info.node == examined[from].info.parent);
        let stride = usize::from(u16::from_be_bytes([random[0], random[1]])) % (len - 1) + 1;
        let mut some: Vec<usize> = parent.into_iter().chain((1..len).map(|by| (from + by * stride) % len)).collect();
        some.retain(|other| *other != from);
        let mut seen = std::collections::BTreeSet::new();
        some.retain(|other| seen.insert(*other));
        some.truncate(OTHERS + 1);
        some
    };
    let targets: Vec<Vec<usize>> = (0..len).map(peers_of).collect();
    let callers = |to: usize| targets.iter().filter(|targets| targets.contains(&to)).count();
    let peer = |from: usize, to: usize| Peer {
        rank: to as u32,
        hosts: hosts(&examined[from].info, &examined[to].info),
        port: examined[to].looked.as_ref().map_or(0, |looked| looked.port),
    };
    let plan = |from: usize| Plan {
        secret: secret.clone(),
        peers: targets[from].iter().map(|to| peer(from, *to)).filter(|peer| peer.port > 0).collect(),
        callers: callers(from) as u32,
    };
    Ok((0..len).map(plan).collect())
}

/// Returns the addresses at which a node is reached from another one.
fn hosts(from: &NodeInfo, to: &NodeInfo) -> Vec<String> {
    let machine = |node: &NodeInfo| node.inventory.as_ref().map(|inventory| inventory.machine.clone());
    if machine(from) == machine(to) && machine(from).is_some_and(|machine| !machine.is_empty()) {
        return vec!["127.0.0.1".to_owned()];
    }
    let known = to.inventory.iter().flat_map(|inventory| &inventory.addresses).map(|address| address.host.clone());
    let reached = to.reached.clone().filter(|reached| !reached.is_empty());
    let mut hosts: Vec<String> = Vec::new();
    for host in reached.into_iter().chain(known) {
        if !hosts.contains(&host) {
            hosts.push(host);
        }
    }
    hosts
}

/// Sends the plans of all to every rank, as one line on its standard input.
fn send_plans(mut client: Client, job: u64, plans: &[Plan]) {
    const CHUNK: usize = 64 << 10;
    let mut line = serde_json::to_vec(plans).unwrap_or_default();
    line.push(b'\n');
    let (sender, receiver) = mpsc::channel(4);
    tokio::spawn(async move {
        for chunk in line.chunks(CHUNK) {
            if sender
                .send(InputChunk { job, data: Bytes::copy_from_slice(chunk), ..InputChunk::default() })
                .await
                .is_err()
            {
                return;
            }
        }
    });
    tokio::spawn(async move {
        // A rank that does not read fails by itself.
        let Ok(replies) = client.input(ReceiverStream::new(receiver)).await else { return };
        let mut replies = replies.into_inner();
        while let Ok(Some(_)) = replies.message().await {}
    });
}

impl Examined {
    /// Takes output of the node's rank; returns what it has said in whole lines.
    fn take(&mut self, data: &[u8]) -> Vec<Said> {
        let mut said = Vec::new();
        for piece in data.split_inclusive(|byte| *byte == b'\n') {
            if self.line.len() < LINE_BYTES {
                self.line.extend_from_slice(piece);
            }
            if piece.ends_with(b"\n") {
                said.extend(serde_json::from_slice(&std::mem::take(&mut self.line)).ok());
            }
        }
        said
    }
}

#[cfg(test)]
mod tests {
    use rsd_proto::v1::{Inventory, NodeAddress};

    use super::*;

    fn node(id: u32, machine: &str, address: &str) -> Examined {
        let addresses = vec![NodeAddress { host: address.into(), interface: "eth0".into() }];
        let inventory = Some(Inventory { machine: machine.into(), addresses, ..Inventory::default() });
        let info = NodeInfo { node: id, name: format!("n{id}"), inventory, ..NodeInfo::default() };
        let looked = Some(Looked { rank: id, port: 7000, ..Looked::default() });
        Examined { info, looked, ..Examined::default() }
    }

    #[test]
    fn few_nodes_reach_all_others_and_many_their_parent_and_some() {
        let few: Vec<Examined> = (0..4).map(|id| node(id, &format!("m{id}"), "10.0.0.1")).collect();
        let found = plans(&few, false).unwrap();
        assert_eq!(found[1].peers.iter().map(|peer| peer.rank).collect::<Vec<_>>(), [2, 3, 0]);
        assert!(found.iter().all(|plan| plan.callers == 3 && plan.secret.len() == 32));
        let many: Vec<Examined> = (0..100).map(|id| node(id, &format!("m{id}"), "10.0.0.1")).collect();
        let found = plans(&many, false).unwrap();
        assert!(found.iter().enumerate().all(|(from, plan)| {
            let own = plan.peers.iter().any(|peer| peer.rank as usize == from);
            !own && (1..=OTHERS + 1).contains(&plan.peers.len()) && (from == 0 || plan.peers[0].rank == 0)
        }));
        let calls: usize = found.iter().map(|plan| plan.peers.len()).sum();
        assert_eq!(found.iter().map(|plan| plan.callers as usize).sum::<usize>(), calls);
        assert_eq!(plans(&many, true).unwrap()[7].peers.len(), 99);
    }

    #[test]
    fn nodes_of_one_machine_use_loopback_and_others_the_address_that_worked() {
        let (a, mut b) = (node(0, "m", "10.0.0.1"), node(1, "other", "10.0.0.2"));
        assert_eq!(hosts(&a.info, &node(2, "m", "10.0.0.3").info), ["127.0.0.1"]);
        b.info.reached = Some("10.9.9.9".into());
        assert_eq!(hosts(&a.info, &b.info), ["10.9.9.9", "10.0.0.2"]);
    }

    #[test]
    fn lines_are_put_together_and_nonsense_is_ignored() {
        let mut node = node(0, "m", "10.0.0.1");
        assert_eq!(node.take(b"\"do"), []);
        assert_eq!(node.take(b"ne\"\nnonsense\n\"done\"\n"), [Said::Done, Said::Done]);
    }
}
