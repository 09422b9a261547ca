//! The connection back to a daemon that joins: at which of its addresses is it reachable?
//!
//! While a daemon joins, it listens at all its addresses. The daemon that it dials tries them all at the same time, and accepts only a
//! listener with the certificate of that node. So an address that another machine has too is not taken for the node's.

use std::net::IpAddr;
use std::time::Duration;

use rsd_core::addresses::host_port;
use rsd_proto::transport::{Own, Peer, Who, probe};
use rsd_proto::v1::{NodeHello, NodeInfo};
use tokio::task::JoinSet;
use tokio::time::{Instant, timeout_at};
use tracing::debug;

use crate::network;

/// How long the attempts may take: the round trips of a TLS handshake, also to a distant or busy machine.
const DEADLINE: Duration = Duration::from_millis(1500);
/// How long an answer at a better address is waited for, after the first answer.
const BETTER: Duration = Duration::from_millis(100);
/// The most addresses that are tried.
const ADDRESSES_MAX: usize = 16;

/// Completes what a daemon says about itself: corrects its machine, and finds out where it is reachable, if it asks for that.
pub(crate) async fn complete(hello: &mut NodeHello, peer: Peer, own: &Own, machine: &str) {
    let (port, Some(node)) = (hello.connect_back, hello.nodes.first_mut()) else { return };
    let Peer { who: Who::Node(certified), from: Some(from), .. } = peer else { return };
    if let Some(inventory) = &mut node.inventory
        && inventory.machine == machine
        && !network::is_own(from)
    {
        // A resumed copy of this machine.
        inventory.machine.clear();
    }
    if let (None, Ok(port @ 1..)) = (&node.reached, u16::try_from(port)) {
        node.reached = Some(reached(node, certified, port, own, machine).await.unwrap_or_default());
    }
}

/// Returns the address at which a node on another machine has reached this daemon.
pub(crate) fn reached_at(hello: &NodeHello, peer: Peer, machine: &str) -> Option<IpAddr> {
    let inventory = hello.nodes.first()?.inventory.as_ref()?;
    peer.at.filter(|at| !at.is_loopback() && (inventory.machine.is_empty() || inventory.machine != machine))
}

/// Returns the best of the node's addresses at which it answers; None if it answers at none.
async fn reached(node: &NodeInfo, certified: u32, port: u16, own: &Own, machine: &str) -> Option<String> {
    let inventory = node.inventory.as_ref()?;
    let mut hosts: Vec<String> = inventory.addresses.iter().map(|address| address.host.clone()).collect();
    hosts.truncate(ADDRESSES_MAX);
    if !machine.is_empty() && inventory.machine == machine {
        hosts.push("127.0.0.1".into());
    }
    let mut attempts = JoinSet::new();
    for (at, host) in hosts.into_iter().enumerate() {
        let dialer = own.dialer(Some(certified));
        attempts.spawn(async move {
            let address = host_port(&host, port);
            let answer = probe(&address, &dialer).await;
            answer.map(|ip| (at, ip.to_string())).inspect_err(|error| debug!(address, %error, "no way back"))
        });
    }
    let mut until = Instant::now() + DEADLINE;
    let mut best: Option<(usize, String)> = None;
    while let Ok(Some(done)) = timeout_at(until, attempts.join_next()).await {
        let Ok(Ok(found)) = done else { continue };
        if best.is_none() {
            until = until.min(Instant::now() + BETTER);
        }
        if best.as_ref().is_none_or(|best| found.0 < best.0) {
            best = Some(found);
        }
        if best.as_ref().is_some_and(|best| best.0 == 0) {
            break;
        }
    }
    best.map(|(_, host)| host)
}
