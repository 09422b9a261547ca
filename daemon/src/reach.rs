//! Where this daemon listens, and the addresses that it advertises.
//!
//! A head listens only on request. A joined daemon listens while it joins, so that its parent can find out whether it is reachable, and
//! then only if the user or the head requests it: a daemon without children needs no port.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, ToSocketAddrs, UdpSocket};

use anyhow::Context;
use rsd_config::ports::PortRange;
use rsd_config::settings::Network;
use rsd_core::addresses::{Wishes, advertised, host_port};
use rsd_proto::transport::exit;
use rsd_proto::v1::NodeAddress;
use tokio::net::{TcpListener, TcpSocket};
use tokio::sync::mpsc;
use tracing::{info, warn};

use crate::failed::Failed;
use crate::network;
use crate::options::StartOptions;
use crate::secure::enroll;

/// The daemon's TCP port.
#[derive(Debug)]
pub(crate) struct TcpPort {
    /// Where it listens; None: never.
    at: Option<SocketAddr>,
    range: PortRange,
    /// Whether it stays open after the daemon has joined.
    stays: bool,
    /// Where it is open.
    bound: Option<SocketAddr>,
    listeners: mpsc::Sender<Option<TcpListener>>,
}

impl TcpPort {
    /// Opens the port, if the daemon needs it at its start. Returns it, the listeners for the server, and the address that it
    /// listens on.
    pub(crate) fn open(
        options: &StartOptions,
        network: &Network,
    ) -> anyhow::Result<(TcpPort, mpsc::Receiver<Option<TcpListener>>, Option<SocketAddr>)> {
        let at = match (&options.listen, &options.join) {
            (Some(listen), _) => Some(resolved(listen)?),
            (None, Some(join)) if !options.local_only => Some(SocketAddr::new(for_join(join), 0)),
            (None, _) => None,
        };
        // One listener waits for the server, and another may replace it before.
        let (listeners, receiver) = mpsc::channel(4);
        // A standby is asked to become the head while it has no way to the other nodes.
        let stays = options.listen.is_some() || options.standby.is_some();
        let mut port = TcpPort { at, range: network.port_range, stays, bound: None, listeners };
        if let Some(at) = at {
            port.listen().map_err(|error| Failed::new(exit::SYSTEM, format!("listen on {at}: {error}")))?;
        }
        let bound = port.bound;
        Ok((port, receiver, bound))
    }

    /// Opens the port for children, as the head has requested. Returns where it listens.
    pub(crate) fn open_for_children(&mut self) -> Option<SocketAddr> {
        if let Some(at) = self.bound.filter(|_| self.stays) {
            return Some(at);
        }
        self.stays = true;
        let bound = self.listen();
        match &bound {
            Ok(at) => info!(%at, "listening for other daemons, as the head has requested"),
            Err(error) => warn!(%error, "cannot listen for other daemons"),
        }
        bound.ok()
    }

    /// Closes the port once the daemon has joined, unless it is needed.
    pub(crate) fn joined(&mut self) {
        if !self.stays {
            self.bound = None;
            // The server takes listeners as long as it runs.
            let _ = self.listeners.try_send(None);
        }
    }

    fn listen(&mut self) -> std::io::Result<SocketAddr> {
        let Some(at) = self.at else { return Err(std::io::ErrorKind::Unsupported.into()) };
        let range = if at.port() == 0 { self.range } else { PortRange::Any };
        let open = |port: u16| network::listen(SocketAddr::new(at.ip(), if at.port() == 0 { port } else { at.port() }));
        let listener = network::in_range(range, open)?;
        let bound = listener.local_addr()?;
        // The server takes listeners as long as it runs.
        let _ = self.listeners.try_send(Some(listener));
        self.bound = Some(bound);
        Ok(bound)
    }
}

/// Returns the address that a daemon without `--listen` listens on: loopback, if it joins a daemon of the same user on this machine over
/// loopback, because no other machine then needs to reach it. Behind any other loopback address may be a tunnel.
fn for_join(join: &str) -> IpAddr {
    match network::way_to(join) {
        Some(ip) if ip.is_loopback() && enroll::listening_here(join).is_some() => ip,
        Some(_) | None => any_address(),
    }
}

fn resolved(listen: &str) -> anyhow::Result<SocketAddr> {
    let found = listen.to_socket_addrs().map(|mut found| found.next());
    match found {
        Ok(Some(at)) => Ok(at),
        Ok(None) => Err(invalid_listen(listen, "the name has no address").into()),
        Err(error) => Err(invalid_listen(listen, &error.to_string()).into()),
    }
}

/// Keeps a port free for later, at which nothing listens until then. Returns the address too, with the port that it has.
pub(crate) fn reserve(listen: &str) -> anyhow::Result<(String, TcpSocket)> {
    let at = resolved(listen)?;
    let reserve = || -> std::io::Result<(String, TcpSocket)> {
        let socket = if at.is_ipv4() { TcpSocket::new_v4() } else { TcpSocket::new_v6() }?;
        socket.set_reuseaddr(true)?;
        socket.bind(at)?;
        Ok((socket.local_addr()?.to_string(), socket))
    };
    Ok(reserve().map_err(|error| Failed::new(exit::SYSTEM, format!("--standby {listen}: {error}")))?)
}

/// Refuses an address that cannot be parsed or resolved.
pub(crate) fn check_listen(listen: Option<&str>) -> anyhow::Result<()> {
    listen.map_or(Ok(()), |listen| resolved(listen).map(drop))
}

fn invalid_listen(listen: &str, why: &str) -> Failed {
    Failed::new(
        exit::USAGE,
        format!("--listen {listen}: {why}: write HOST:PORT, for example 0.0.0.0:7817 or [::]:7817"),
    )
}

/// Returns the addresses that this daemon advertises, best first.
pub(crate) fn addresses(
    options: &StartOptions,
    network: &Network,
    bound: Option<SocketAddr>,
) -> anyhow::Result<Vec<NodeAddress>> {
    let own = network::own_addresses().context("list the network interfaces")?;
    let listen = bound.filter(|_| options.listen.is_some()).map(|at| at.ip().to_canonical());
    let route = match &options.join {
        Some(join) => network::way_to(join),
        None => network::way_out(),
    };
    let wishes = Wishes {
        advertise: network.advertise.clone(),
        interfaces: network.interfaces.clone(),
        listen: listen.filter(|ip| !ip.is_unspecified()),
        route,
    };
    Ok(advertised(&own, &wishes).map_err(|(option, why)| Failed::new(exit::USAGE, format!("{option}: {why}")))?)
}

/// Returns the address at which other machines join a head that listens at `bound`: the one that the user advertises, or for all
/// addresses the host's name, which people remember.
pub(crate) fn join_address(bound: SocketAddr, wishes: &Network) -> String {
    match wishes.advertise.first() {
        Some(first) => host_port(first, bound.port()),
        None if bound.ip().to_canonical().is_unspecified() => {
            let host = nix::unistd::gethostname().ok().and_then(|name| name.into_string().ok());
            host_port(&host.unwrap_or_else(|| "HOST".into()), bound.port())
        }
        None => bound.to_string(),
    }
}

/// Returns the part of the ready line about reachability, and a line about a node that cannot be reached.
pub(crate) fn reachability(addresses: &[NodeAddress], reached: Option<&str>, listen: &str) -> (String, Option<String>) {
    let hosts: Vec<&str> = addresses.iter().map(|address| address.host.as_str()).collect();
    let hosts = hosts.join(", ");
    let listens_elsewhere = listen.parse().is_ok_and(|at: SocketAddr| !at.ip().is_loopback());
    match reached {
        Some("") => {
            let at =
                if hosts.is_empty() { "it has no address for other machines".into() } else { format!("tried {hosts}") };
            let line = format!(
                "rsd: not reachable from the head ({at}): this node works as a leaf of the tree, but ranks on other machines may not \
                 be able to connect to its ranks: open the firewall (rsctl ports), or use --advertise or --interface\n"
            );
            (String::new(), Some(line))
        }
        Some(host) => (format!(", reachable at {host}"), None),
        None if listens_elsewhere && !hosts.is_empty() => (format!(", advertising {hosts}"), None),
        None => (String::new(), None),
    }
}

/// Returns the settings of the network, as changed by options.
pub(crate) fn wishes(options: &StartOptions, settings: &Network) -> Network {
    let or =
        |option: &Vec<String>, setting: &Vec<String>| if option.is_empty() { setting.clone() } else { option.clone() };
    // Naming interfaces replaces addresses that the settings name, and the other way round.
    let named = |other: &Vec<String>| !other.is_empty();
    Network {
        advertise: if named(&options.interface) {
            options.advertise.clone()
        } else {
            or(&options.advertise, &settings.advertise)
        },
        interfaces: if named(&options.advertise) { Vec::new() } else { or(&options.interface, &settings.interfaces) },
        port_range: options.port_range.unwrap_or(settings.port_range),
    }
}

/// The address of all interfaces: that of both families if the kernel has IPv6.
fn any_address() -> IpAddr {
    match UdpSocket::bind((Ipv6Addr::UNSPECIFIED, 0)) {
        Ok(_) => Ipv6Addr::UNSPECIFIED.into(),
        Err(_) => Ipv4Addr::UNSPECIFIED.into(),
    }
}
