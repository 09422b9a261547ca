//! Processes of other jobs on this node: they come with [`Shm::expect`] as all do, and go when nothing connects them any more.
//!
//! A peer reads what it was sent out of the cells of this process's segment, so these are not used again before the peer has said
//! that it has read all: by closing its direction of the socket, which it does once it has the farewell.

use std::os::fd::AsRawFd;

use nix::sys::socket::{Shutdown, shutdown};

use super::connect::is_readable;
use super::link::LinkState;
use super::socket::{self, Heard};
use super::{NO_LINK, Shm};
use crate::engine::Peer;

impl Shm {
    /// Connects, if that has not been tried.
    pub fn reach(&mut self, peer: Peer) {
        if let Some(index) = self.route(peer)
            && matches!(self.links[index].state, LinkState::Idle)
        {
            // There is no frame to be refused.
            let _ = self.call(index);
        }
    }

    /// Connects if the peer listens now, and that has not been tried; it may not have started yet, or have gone.
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

    /// The peer listens from now on, as long as it lives.
    pub fn trust(&mut self, peer: Peer) {
        if let Some(index) = self.route(peer) {
            self.links[index].listens = true;
        }
    }

    /// As [`Shm::trust`]; why somebody may have ended.
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

    /// This process has said all it has to say to this peer, and expects no more than the same of it: from now on its name is
    /// nobody's, and may come to be another peer's.
    pub fn disconnect(&mut self, peer: Peer) {
        let Some(index) = self.route(peer) else { return };
        let name = self.links[index].name;
        if self.names.get(&name).is_some_and(|link| *link as usize == index) {
            self.names.remove(&name);
        }
    }

    /// Nothing more comes from a peer that was parted from: its number may be another's from now on.
    pub fn forget(&mut self, peer: Peer) {
        let Some(index) = self.route(peer) else { return };
        self.routes[peer.0 as usize] = NO_LINK;
        self.losses.retain(|(lost, _)| *lost != peer);
        let link = &mut self.links[index];
        link.left = true;
        link.bye = true;
        match std::mem::replace(&mut link.state, LinkState::Over) {
            LinkState::Up(up) if up.ends_at.is_none() => {
                // It fails if the peer has gone, which is what is waited for.
                let _ = shutdown(up.socket.as_raw_fd(), Shutdown::Write);
                link.state = LinkState::Left(up);
                self.hear_left(index);
            }
            // What it may still have to say is passed over with the ring's other strays.
            LinkState::Up(_) | LinkState::Left(_) | LinkState::Idle | LinkState::Calling(_) => {
                link.state = LinkState::Idle;
                self.lose(index, "forgotten");
            }
            LinkState::Over => self.vacant.push(index as u16),
        }
    }

    /// Whether a peer that was forgotten has read all that it was sent.
    pub(super) fn hear_left(&mut self, index: usize) {
        let LinkState::Left(up) = &self.links[index].state else { return };
        let has_ended = up.process.as_ref().is_some_and(is_readable);
        if has_ended || matches!(socket::hear(&up.socket), Heard::End) {
            let _ = self.epoll.delete(&up.socket);
            if let Some(process) = &up.process {
                let _ = self.epoll.delete(process);
            }
            self.lose(index, "it has left");
        }
    }
}
