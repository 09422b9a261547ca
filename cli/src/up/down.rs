//! `rsctl down`: stops what `rsctl up` has started.

use std::sync::Arc;
use std::time::Duration;

use rsd_proto::transport::exit;
use rsd_ssh::Network;
use tokio::sync::Semaphore;
use tokio::task::JoinSet;

use super::daemon::{self, NotStopped, Stop, Stopped};
use super::place::{Place, Why};
use super::record::{HostRecord, NodeRecord, Record};
use super::report::{Board, Phase, Verdict};
use super::targets::Host;
use super::{hold, network, wished_name};
use crate::dvm::Dvm;
use crate::exit::Failure;
use crate::options::up::Down;
use crate::print::say;

/// Stops the daemons of a DVM that `rsctl up` has started: the head, which stops all nodes, and then those that remain.
pub(crate) async fn down(dvm: &Dvm, options: Down, json: bool) -> Result<u8, Failure> {
    let mut record = recorded(wished_name(dvm)?)?;
    let network = Arc::new(network(&options.ssh)?);
    let deadline = options.ssh.timeout;
    let head_name = record.head.host.as_ref().map_or("here", |host| host.name.as_str());
    let offset = usize::from(record.head.started);
    let rows = record.head.started.then(|| (head_name.to_owned(), "head")).into_iter();
    let board = Board::new(rows.chain(record.nodes.iter().map(|node| (node.host.name.clone(), "node"))), json);

    let mut told = false;
    if record.head.started {
        board.phase(0, Phase::Stopping);
        let stopping = stop_head(&record, &network, options.force, deadline);
        match board.shown(stopping, || network.asking()).await {
            Ok(stopped) => {
                // A head that was gone has told nothing to its nodes.
                told = stopped == Stopped::Now;
                board.end(0, Verdict::Done(word(stopped)));
            }
            Err(NotStopped::Refused(why)) => {
                let hint = "to kill running jobs: rsctl down --force";
                let text = format!("the head refuses to stop: {}", why.lines.last().unwrap_or(&why.text));
                return Err(Failure::new(exit::NOT_PERMITTED, text).hint(hint));
            }
            Err(NotStopped::Unknown(why)) => board.end(0, Verdict::Failed(why)),
        }
    }

    let slots = Arc::new(Semaphore::new(options.ssh.parallel as usize));
    let mut tasks = JoinSet::new();
    for (at, node) in record.nodes.iter().cloned().enumerate() {
        let (network, board, slots) = (Arc::clone(&network), board.clone(), Arc::clone(&slots));
        let (dvm, force) = (record.dvm.clone(), options.force);
        tasks.spawn(async move {
            let Ok(_slot) = slots.acquire().await else { return };
            board.phase(at + offset, Phase::Connecting);
            let verdict = match stop_node(&node, &dvm, &network, force, told, deadline).await {
                Ok(stopped) => Verdict::Done(word(stopped)),
                // The head has passed the order on, and stops no node that it does not know.
                Err(why) => Verdict::Failed(why),
            };
            board.end(at + offset, verdict);
        });
    }
    let all = async { while tasks.join_next().await.is_some() {} };
    board.shown(all, || network.asking()).await;
    network.notices().iter().for_each(|notice| say(notice));
    hold::end(&record.name).await?;

    let failed = |at: usize| matches!(board.rows()[at].verdict, Some(Verdict::Failed(_)));
    let mut at = offset;
    record.nodes.retain(|_| {
        at += 1;
        failed(at - 1)
    });
    record.head.started = record.head.started && failed(0);
    board.print(&record.name, json)?;
    if record.nodes.is_empty() && !record.head.started {
        record.remove()?;
        return Ok(0);
    }
    record.write()?;
    let left = record.nodes.len() + usize::from(record.head.started);
    let text = format!("{left} daemon{} may still be running", if left == 1 { "" } else { "s" });
    Err(Failure::new(exit::UNREACHABLE, text).hint("repeat rsctl down when the hosts are reachable"))
}

fn word(stopped: Stopped) -> &'static str {
    match stopped {
        Stopped::Now => "stopped",
        Stopped::Before => "not running",
    }
}

/// Returns the record of the DVM that the user named, or the only one.
fn recorded(wished: Option<String>) -> Result<Record, Failure> {
    let names = Record::names()?;
    let name = match (wished, &names[..]) {
        (Some(name), _) => name,
        (None, [one]) => one.clone(),
        (None, []) => return Err(Failure::new(exit::NO_DAEMON, "rsctl up has started no DVM from here")),
        (None, several) => {
            let text = format!("rsctl up has started several DVMs: choose one with --dvm: {}", several.join(", "));
            return Err(Failure::new(exit::NO_DAEMON, text));
        }
    };
    let nothing = || {
        let text = format!("rsctl up has started no DVM {name} from here");
        let known = if names.is_empty() { String::new() } else { format!("started: {}", names.join(", ")) };
        Failure::new(exit::NO_DAEMON, text).hint(known)
    };
    Record::read(&name)?.ok_or_else(nothing)
}

async fn place_of(host: Option<&HostRecord>, network: &Network) -> Result<Place, Why> {
    match host {
        None => Ok(Place::Here),
        Some(host) => Ok(Place::There(Box::new(network.connect(&Host::from(host).wish()).await?))),
    }
}

async fn stop_head(record: &Record, network: &Network, force: bool, deadline: Duration) -> Result<Stopped, NotStopped> {
    let place = place_of(record.head.host.as_ref(), network).await.map_err(NotStopped::Unknown)?;
    let (rsd, name) = (record.head.rsd.as_str(), record.head.daemon.as_deref());
    daemon::stop(&place, &Stop { rsd, name, dvm: Some(&record.dvm), force, told: false }, deadline).await
}

async fn stop_node(
    node: &NodeRecord,
    dvm: &str,
    network: &Network,
    force: bool,
    told: bool,
    deadline: Duration,
) -> Result<Stopped, Why> {
    let place = place_of(Some(&node.host), network).await?;
    let (rsd, name) = (node.rsd.as_str(), node.daemon.as_deref());
    let stop = Stop { rsd, name, dvm: Some(dvm), force: force || told, told };
    let stopped = daemon::stop(&place, &stop, deadline).await.map_err(NotStopped::why)?;
    Ok(if told { Stopped::Now } else { stopped })
}
