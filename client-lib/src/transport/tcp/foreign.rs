//! Processes of other jobs: they come when two jobs are connected, and go when nothing connects them any more.

use std::net::SocketAddr;

use super::Tcp;
use super::directory::Way;
use crate::engine::Peer;
use crate::transport::name::ProcessName;

impl Tcp {
    /// As [`Tcp::expect`], of another job: both sides know where the other listens, and a secret that their jobs share.
    pub fn add_foreign(&mut self, peer: Peer, name: ProcessName, address: SocketAddr, secret: [u8; 32]) {
        self.directory.add(peer, name);
        if let Some(foreign) = &mut self.own.foreign {
            foreign.insert(name, vec![secret]);
        }
        self.addresses.insert(peer, address);
    }

    /// Both come to know each other once more, before they have connected: either secret serves.
    pub fn learn(&mut self, peer: Peer, secret: [u8; 32]) {
        if let Some(secrets) = self.secrets(peer).filter(|secrets| !secrets.contains(&secret)) {
            secrets.insert(0, secret);
        }
    }

    /// The peer knows this secret.
    pub fn trust(&mut self, peer: Peer, secret: [u8; 32]) {
        if let Some(secrets) = self.secrets(peer)
            && let Some(at) = secrets.iter().position(|it| *it == secret)
        {
            secrets[at..].rotate_left(1);
        }
    }

    /// What a connection to the peer can be made with, while there is none.
    fn secrets(&mut self, peer: Peer) -> Option<&mut Vec<[u8; 32]>> {
        let name = self.directory.name(peer).filter(|_| !self.is_connected(peer))?;
        self.own.foreign.as_mut()?.get_mut(&name)
    }

    /// The socket's address, for processes of other jobs.
    pub fn socket_address(&self) -> SocketAddr {
        self.address
    }

    /// Connects, if that has not been tried.
    pub fn reach(&mut self, peer: Peer) {
        if self.directory.way(peer) == Some(Way::Unused) {
            // There is no frame to be refused.
            let _ = self.try_connect(peer);
        }
    }

    /// Whether there is a connection to this peer.
    pub fn is_connected(&self, peer: Peer) -> bool {
        matches!(self.directory.way(peer), Some(Way::Open(_)))
    }

    /// This process has said all it has to say to this peer, and expects no more than the same of it: from now on its name is
    /// nobody's, and may come to be another peer's.
    pub fn disconnect(&mut self, peer: Peer) {
        if let Some(Way::Dialled(id)) = self.directory.way(peer) {
            self.drop_greeting(id);
        }
        if let (Some(name), Some(foreign)) = (self.directory.name(peer), &mut self.own.foreign) {
            foreign.remove(&name);
        }
        self.directory.remove(peer);
        self.addresses.remove(&peer);
    }

    /// Nothing more comes from a peer that was parted from: its number may be another's from now on.
    pub fn forget(&mut self, peer: Peer) {
        let left = self.links.iter().find(|(_, link)| link.peer == peer && !link.is_left()).map(|(id, _)| id);
        if let Some(link) = left.and_then(|id| self.links.get_mut(id)) {
            link.leave();
        }
        if let Some(id) = left {
            self.activate(id);
        }
        self.losses.retain(|(lost, _)| *lost != peer);
    }
}
