//! The methods that the process's combined transport needs.

use super::choice::{Way, ticks};
use super::device::ON_DEVICE;
use super::link::LinkState;
use super::{LOOK_EVERY, NO_LINK, Shm};
use crate::engine::{Peer, PullRefused, Pulled, Region};
use crate::memory::Buffer;
use crate::shared_memory::cma;
use crate::shared_memory::sync::Ordering;

impl Shm {
    /// The peers that are connected or being connected to.
    pub fn connected(&self) -> Vec<Peer> {
        let known = self.links.iter().filter(|link| matches!(link.state, LinkState::Up(_) | LinkState::Calling(_)));
        known.map(|link| link.peer).collect()
    }

    /// As [`crate::engine::Transport::cut`].
    pub fn cut(&mut self, peer: Peer) {
        let Some(index) = self.route(peer) else { return };
        // It may still write into the ring under this link's index, so that index is not reused.
        self.routes[peer.0 as usize] = NO_LINK;
        self.forget_name(index);
        self.links[index].bye = true;
        self.lose(index, "cut");
    }

    /// Makes the next poll check the sockets as well.
    pub fn look_soon(&mut self) {
        self.polls = LOOK_EVERY;
    }

    /// As [`crate::engine::Transport::offer`].
    pub fn offer(&mut self, to: Peer, buffer: &Buffer) -> Option<Region> {
        let index = self.route(to)?;
        if let Some(part) = buffer.device() {
            return self.offer_device(index, buffer, part);
        }
        let LinkState::Up(up) = &self.links[index].state else { return None };
        // If this process can read its memory, it most likely can read this one's; otherwise it requests the message in
        // parts.
        let cma::Verdict::Yes(_) = up.cma else { return None };
        let address = buffer.as_contiguous()? as u64;
        Some(Region { address, ticket: self.offers.add(index as u16, buffer.clone()) })
    }

    /// As [`crate::engine::Transport::withdraw`].
    pub fn withdraw(&mut self, _: Peer, region: Region) {
        self.offers.remove(region.ticket & !ON_DEVICE);
    }

    /// As [`crate::engine::Transport::retract`]. Peers may be reading at this moment: from now on, none of them trusts what it has read.
    pub fn retract(&mut self, peer: Peer, region: Region) {
        self.withdraw(peer, region);
        self.segment.retractions().store(1, Ordering::SeqCst);
    }

    /// As [`crate::engine::Transport::pull`]; also refused where parts were measured to be faster, or are tried.
    pub fn pull(
        &mut self,
        from: Peer,
        region: Region,
        into: &Buffer,
        len: usize,
        token: u32,
    ) -> Result<Pulled, PullRefused> {
        let index = self.route(from).ok_or(PullRefused)?;
        if len > into.len() {
            return Err(PullRefused);
        }
        if region.ticket & ON_DEVICE != 0 {
            return self.pull_device(index, region, into, len);
        }
        let LinkState::Up(up) = &self.links[index].state else { return Err(PullRefused) };
        let cma::Verdict::Yes(pid) = up.cma else { return Err(PullRefused) };
        if self.has_retracted(index) {
            return Err(PullRefused);
        }
        let LinkState::Up(up) = &mut self.links[index].state else { return Err(PullRefused) };
        // Parts need the sender's core, which another process may have.
        let way = if self.crowd.shares_cores() { Some(Way::Second) } else { up.streams.choose(len, ticks()) };
        match way {
            None => Ok(Pulled::NotYet),
            Some(Way::First) => Err(PullRefused),
            Some(Way::Second) => self.pull_by(index, pid, region, into, len, token),
        }
    }
}
