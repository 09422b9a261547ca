//! What the process's transport as a whole asks of this part of it.

use super::link::State;
use super::{LOOK_EVERY, Shm};
use crate::engine::Peer;

impl Shm {
    /// The peers that were talked to, or are being called.
    pub fn connected(&self) -> Vec<Peer> {
        let known = self.links.iter().filter(|link| matches!(link.state, State::Up(_) | State::Calling(_)));
        known.map(|link| link.peer).collect()
    }

    /// As [`crate::engine::Transport::cut`].
    pub fn cut(&mut self, peer: Peer) {
        let Some(index) = self.route(peer) else { return };
        self.links[index].bye = true;
        self.lose(index, "cut");
    }

    /// The next poll looks at the sockets, too.
    pub fn look_soon(&mut self) {
        self.polls = LOOK_EVERY;
    }
}
