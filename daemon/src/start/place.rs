//! What a daemon is in its DVM, where others reach it, and what its node has.

use std::net::SocketAddr;

use anyhow::Context;
use nix::unistd::geteuid;
use rsd_config::settings::Settings;
use rsd_proto::resources;
use rsd_proto::transport::exit;
use rsd_proto::transport::token::Token;
use rsd_proto::v1::{Inventory, NodeInfo, Resource};
use tokio::net::TcpListener;
use tokio::sync::mpsc;
use tracing::info;

use crate::clock::unix_ms;
use crate::disk::state_dir::{Identity, StateDir};
use crate::failed::Failed;
use crate::inventory;
use crate::network;
use crate::options::StartOptions;
use crate::random::random;
use crate::reach::{self, TcpPort};
use crate::secure::authority::Authority;
use crate::secure::enroll;
use crate::secure::membership::Membership;
use crate::serve::callers::Callers;

/// A daemon's place.
pub(super) struct Place {
    pub(super) identity: Identity,
    pub(super) membership: Membership,
    pub(super) callers: Callers,
    /// Where it listens now.
    pub(super) bound: Option<SocketAddr>,
    /// Where it listens for good; empty: a daemon that does not need its port closes it once it has joined.
    pub(super) listen: String,
    /// Where others join it; empty: nowhere.
    pub(super) join_address: String,
    pub(super) inventory: Inventory,
}

/// The port of a daemon, and the listeners that it opens.
pub(super) type Port = (TcpPort, mpsc::Receiver<Option<TcpListener>>);

impl Place {
    /// Opens the port, and joins the DVM if there is one to join: a joining daemon has its node id from here on.
    pub(super) async fn take(
        options: &StartOptions,
        token: Option<&Token>,
        settings: &Settings,
        before: Option<Identity>,
        state_dir: &StateDir,
    ) -> anyhow::Result<(Place, Port)> {
        let mut identity = identity(options, before)?;
        // What is wrong with these shows before the token, which may serve only once, is used.
        let network = reach::wishes(options, &settings.network);
        let (port, listeners, bound) = TcpPort::open(options, &network)?;
        let addresses = reach::addresses(options, &network, bound)?;
        let membership = membership(options, token, settings, &mut identity, state_dir).await?;
        let place = Place {
            callers: Callers { serves_all: membership.serves_all(|| head_serves_all(options)) },
            membership,
            identity,
            bound,
            listen: bound.filter(|_| options.listen.is_some()).map(|at| at.to_string()).unwrap_or_default(),
            join_address: bound.map(|at| reach::join_address(at, &network)).unwrap_or_default(),
            inventory: Inventory { addresses, port_range: network.port_range.to_string(), ..Inventory::default() },
        };
        Ok((place, (port, listeners)))
    }

    /// Measures the node.
    pub(super) fn measure(&mut self, options: &StartOptions, settings: &Settings) -> anyhow::Result<()> {
        let own = if options.resource.is_empty() { &settings.node.resources } else { &options.resource };
        let before = std::mem::take(&mut self.inventory);
        self.inventory = Inventory {
            addresses: before.addresses,
            port_range: before.port_range,
            machine: network::machine(),
            resources: declared("node.resources or --resource", own)?,
            ..inventory::measure(options.slots)
        };
        let Inventory { slots, slots_reason, cores, hostname, .. } = &self.inventory;
        info!(slots, reason = slots_reason, cores, "measured this node");
        let name = options.name.clone().unwrap_or_else(|| short(hostname));
        if self.identity.name.is_empty() || options.name.is_some() {
            self.identity.name = name;
        }
        Ok(())
    }

    /// How it introduces itself.
    pub(super) fn introduction(&self) -> NodeInfo {
        NodeInfo {
            node: self.identity.node,
            name: self.identity.name.clone(),
            inventory: Some(self.inventory.clone()),
            listen: self.listen.clone(),
            version: rsd_proto::VERSION.into(),
            pid: std::process::id(),
            may_listen: self.bound.is_some(),
            ..Default::default()
        }
    }
}

/// Whether a head serves all users of its machines: root's does, unless root wants it for itself.
fn head_serves_all(options: &StartOptions) -> bool {
    geteuid().is_root() && !options.single_user && !options.private
}

/// Returns the identity of this daemon: the saved identity, unless the daemon's role has changed.
fn identity(options: &StartOptions, before: Option<Identity>) -> anyhow::Result<Identity> {
    let is_head = options.join.is_none();
    match before {
        Some(before) if (before.node == 0) == is_head => Ok(before),
        _ if is_head => Ok(Identity { dvm: random_id()?, next_job: 1, next_node: 1, ..Default::default() }),
        _ => Ok(Identity::default()),
    }
}

fn random_id() -> anyhow::Result<String> {
    let bytes = random().context("read /dev/urandom")?;
    Ok(format!("{:016x}", u64::from_ne_bytes(bytes)))
}

fn short(hostname: &str) -> String {
    hostname.split('.').next().filter(|name| !name.is_empty()).unwrap_or("localhost").to_owned()
}

/// Returns what this daemon is in its DVM. A joining daemon gets its certificate here, and with it its node id.
async fn membership(
    options: &StartOptions,
    token: Option<&Token>,
    settings: &Settings,
    identity: &mut Identity,
    state_dir: &StateDir,
) -> anyhow::Result<Membership> {
    match &options.join {
        Some(join) => {
            let deadline = settings.link.dial_deadline;
            let credentials = enroll::credentials(join, token, state_dir, deadline).await?;
            enroll::check_head(join, &credentials, options.trust_user)?;
            let name = if identity.dvm == credentials.dvm { identity.name.clone() } else { String::new() };
            let node = credentials.node.unwrap_or_default();
            *identity = Identity { dvm: credentials.dvm.clone(), node, name, ..Identity::default() };
            Membership::of_node(credentials)
        }
        None if options.listen.is_some() => Membership::of_head(Authority::open(state_dir, &identity.dvm, unix_ms())?),
        None => Ok(Membership::Alone),
    }
}

/// Parses the resources that a user declares.
pub(super) fn declared(wherefrom: &str, texts: &[String]) -> Result<Vec<Resource>, Failed> {
    let found = resources::declared(texts).map_err(|why| Failed::new(exit::USAGE, format!("{wherefrom}: {why}")))?;
    Ok(found.into_iter().map(|(name, amount)| Resource { name, amount }).collect())
}
