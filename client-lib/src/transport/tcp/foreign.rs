//! Processes of other jobs: they arrive when two jobs are connected, and leave when no communicator connects them any
//! more.

use std::net::SocketAddr;

use super::Tcp;
use super::directory::Way;
use super::handshake::Greeting;
use crate::engine::Peer;
use crate::transport::name::ProcessName;

impl Tcp {
    /// As [`Tcp::expect`], for a process of another job: both sides know where the other listens, and a secret that
    /// their jobs share.
    pub fn add_foreign(&mut self, peer: Peer, name: ProcessName, address: SocketAddr, secret: [u8; 32]) {
        self.directory.add(peer, name);
        if let Some(foreign) = &mut self.own.foreign {
            foreign.insert(name, vec![secret]);
        }
        self.addresses.insert(peer, address);
    }

    /// Adds a further secret that both share, before they have connected: either secret is accepted.
    pub fn learn(&mut self, peer: Peer, secret: [u8; 32]) {
        if let Some(secrets) = self.secrets(peer).filter(|secrets| !secrets.contains(&secret)) {
            secrets.insert(0, secret);
        }
    }

    /// Records that the peer knows this secret.
    pub fn trust(&mut self, peer: Peer, secret: [u8; 32]) {
        if let Some(secrets) = self.secrets(peer)
            && let Some(at) = secrets.iter().position(|it| *it == secret)
        {
            secrets[at..].rotate_left(1);
        }
    }

    /// The secrets for a connection to the peer, while there is none.
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
            // There is no frame that could be refused.
            let _ = self.try_connect(peer);
        }
    }

    /// Whether there is a connection to this peer.
    pub fn is_connected(&self, peer: Peer) -> bool {
        matches!(self.directory.way(peer), Some(Way::Open(_)))
    }

    /// Whether the peer may already take the connection between the two for open, or is about to.
    pub fn is_meeting(&self, peer: Peer) -> bool {
        match self.directory.way(peer) {
            Some(Way::Dialled(id)) if self.may_be_taken(id) => true,
            Some(Way::Unused | Way::Wanted | Way::Dialled(_)) => {
                let name = self.directory.name(peer);
                let is_of_it = |greeting: &Greeting| match greeting {
                    Greeting::Answer(answer) => answer.rail == 0 && name.is_some() && answer.from() == name,
                    Greeting::Dial(_) => false,
                };
                self.greetings.iter().any(|(_, greeting)| is_of_it(greeting))
            }
            Some(Way::Open(_) | Way::Lost | Way::Over) | None => false,
        }
    }

    /// This process sends nothing more to this peer, and expects at most the same from it: from now on the peer's name
    /// is free, and may become that of another peer.
    pub fn disconnect(&mut self, peer: Peer) {
        if let Some(Way::Dialled(id)) = self.directory.way(peer) {
            self.drop_greeting(id);
        }
        if let Some(name) = self.directory.name(peer) {
            if let Some(foreign) = &mut self.own.foreign {
                foreign.remove(&name);
            }
            self.own.tickets.remove(&name);
            self.drop_answers(name);
        }
        self.directory.remove(peer);
        self.addresses.remove(&peer);
    }

    /// Drops connections that a process of this name has dialled and that are not open yet: it may have given them up, and they must
    /// not count as those of a later peer of that name.
    fn drop_answers(&mut self, name: ProcessName) {
        let is_of_it =
            |greeting: &Greeting| matches!(greeting, Greeting::Answer(answer) if answer.from() == Some(name));
        let dropped: Vec<u32> = self.greetings.iter().filter(|(_, it)| is_of_it(it)).map(|(id, _)| id).collect();
        dropped.into_iter().for_each(|id| self.drop_greeting(id));
    }

    /// Forgets a peer after [`Tcp::disconnect`]: nothing more arrives from it, and its number may become that of another
    /// peer.
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
