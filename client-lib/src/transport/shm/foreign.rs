//! Processes of other jobs on this node: they arrive with [`Shm::expect`] like all peers, and leave when no communicator
//! connects them any more.
//!
//! A peer reads its messages from the cells of this process's segment. These cells are not reused before the peer confirms
//! that it has read everything: it closes its direction of the socket after it has received the farewell.

use std::os::fd::AsRawFd;

use nix::sys::socket::{Shutdown, shutdown};

use super::connect::is_readable;
use super::link::LinkState;
use super::socket::{self, Received};
use super::{NO_LINK, Shm};
use crate::engine::Peer;

impl Shm {
    /// Connects, if that has not been tried.
    pub fn reach(&mut self, peer: Peer) {
        if let Some(index) = self.route(peer)
            && matches!(self.links[index].state, LinkState::Idle)
        {
            // There is no frame that could be refused.
            let _ = self.call(index);
        }
    }

    /// Connects if the peer listens now and that has not been tried; it may not have started yet, or have exited.
    pub fn seek(&mut self, peer: Peer) {
        self.reach(peer);
        if let Some(index) = self.route(peer)
            && let LinkState::Calling(call) = &self.links[index].state
            && call.socket.is_none()
            && call.tries <= 1
        {
            self.links[index].state = LinkState::Idle;
        }
    }

    /// The peer is known to listen from now on, as long as it lives.
    pub fn trust(&mut self, peer: Peer) {
        if let Some(index) = self.route(peer) {
            self.links[index].listens = true;
        }
    }

    /// As [`Shm::trust`]; `why` is the reason why the peer may have ended.
    pub fn doubt(&mut self, peer: Peer, why: Option<&str>) {
        self.trust(peer);
        if let Some(why) = why {
            self.news = Some(why.to_owned());
        }
    }

    /// Whether there is a connection to this peer.
    pub fn is_connected(&self, peer: Peer) -> bool {
        self.route(peer).is_some_and(|index| matches!(self.links[index].state, LinkState::Up(_)))
    }

    /// Whether this process has called the peer, which may have answered.
    pub fn is_meeting(&self, peer: Peer) -> bool {
        self.route(peer).is_some_and(|index| match &self.links[index].state {
            LinkState::Calling(call) => call.socket.is_some(),
            LinkState::Idle | LinkState::Up(_) | LinkState::Left(_) | LinkState::Over => false,
        })
    }

    /// This process sends nothing more to this peer, and expects at most the same from it: from now on the peer's name
    /// is free, and may become that of another peer.
    pub fn disconnect(&mut self, peer: Peer) {
        let Some(index) = self.route(peer) else { return };
        self.forget_name(index);
    }

    /// From now on, the name of this link's peer is free, unless it belongs to another one already.
    pub(super) fn forget_name(&mut self, index: usize) {
        let name = self.links[index].name;
        if self.names.get(&name).is_some_and(|link| *link as usize == index) {
            self.names.remove(&name);
        }
    }

    /// Forgets a peer after [`Shm::disconnect`]: nothing more arrives from it, and its number may become that of another
    /// peer.
    pub fn forget(&mut self, peer: Peer) {
        let Some(index) = self.route(peer) else { return };
        self.routes[peer.0 as usize] = NO_LINK;
        self.losses.retain(|(lost, _)| *lost != peer);
        self.hang_up(index);
        let link = &mut self.links[index];
        link.left = true;
        link.bye = true;
        match std::mem::replace(&mut link.state, LinkState::Over) {
            LinkState::Up(up) if up.ends_at.is_none() => {
                // It fails if the peer has gone, which is what this process waits for.
                let _ = shutdown(up.socket.as_raw_fd(), Shutdown::Write);
                link.state = LinkState::Left(up);
                self.read_left(index);
            }
            // Frames that it may still send are ignored as strays of the ring.
            state @ (LinkState::Up(_) | LinkState::Left(_) | LinkState::Idle | LinkState::Calling(_)) => {
                link.state = state;
                self.lose(index, "forgotten");
            }
            LinkState::Over => self.vacant.push(index as u16),
        }
    }

    /// Whether a forgotten peer has read everything that was sent to it.
    pub(super) fn read_left(&mut self, index: usize) {
        let LinkState::Left(up) = &self.links[index].state else { return };
        let has_ended = up.process.as_ref().is_some_and(is_readable);
        if has_ended || matches!(socket::receive(&up.socket), Received::End) {
            let _ = self.epoll.delete(&up.socket);
            if let Some(process) = &up.process {
                let _ = self.epoll.delete(process);
            }
            self.lose(index, "it has disconnected");
        }
    }
}
