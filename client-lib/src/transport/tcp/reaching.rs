//! Jobs with ranks that cannot be dialled from other machines, because they are behind a router or a firewall.
//!
//! The launcher knows these ranks: they only dial out. Each of them dials all ranks on other nodes when the library is opened, before
//! there is anything to send, and a rank that can be dialled waits for their dials instead of dialling them. Two ranks that both only
//! dial out may be behind the same router, or one behind the other's: both dial, and each accepts the other's dial if its own fails.
//! So a pair is connected, whichever side sends first, if at least one side can dial the other.
//!
//! Many ranks that only dial out are most likely behind one firewall and reach each other. With more than [`ALIKE_MAX`] of them on other
//! nodes, they dial each other only when they send.
//!
//! Cost, in jobs with such ranks only: one connection from each of them to each rank on another node, [`AHEAD_MAX`] at most, of which
//! [`AT_ONCE`] are being made at a time. With a rank beyond that, it exchanges messages if it sends first.

use std::collections::{HashSet, VecDeque};
use std::time::Instant;

use super::Tcp;
use super::directory::Way;
use super::handshake::Greeting;
use crate::engine::Peer;

/// The most ranks that a rank dials before there is anything to send: each takes a descriptor, of which a process often has 1024.
const AHEAD_MAX: usize = 512;

/// The most ranks that only dial out and dial each other before there is anything to send.
const ALIKE_MAX: usize = 64;

/// The most of these dials that are in progress at a time.
const AT_ONCE: usize = 32;

/// The ranks that only dial out, and the dials that this process makes for that reason.
#[derive(Debug, Default)]
pub(super) struct Reaching {
    /// Inclusive ranges of ranks of this job.
    dial_out: Vec<(u32, u32)>,
    /// Whether this process is one of them.
    is_own: bool,
    /// Peers to be dialled, although there is nothing to send.
    pub(super) queue: VecDeque<Peer>,
    /// Peers that are being dialled although there is nothing to send.
    ahead: HashSet<Peer>,
}

/// How two processes are connected.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Manner {
    /// This process dials.
    Dial,
    /// This process dials; if it fails, the peer's dial may arrive.
    Both,
    /// The peer dials.
    Await,
}

impl Reaching {
    pub(super) fn manner(&self, peer: Peer) -> Manner {
        match (self.only_dials(peer.0), self.is_own) {
            (false, _) => Manner::Dial,
            (true, true) => Manner::Both,
            (true, false) => Manner::Await,
        }
    }

    /// There is something to send to this peer, or the attempt to reach it has ended. Returns whether it was dialled for another
    /// reason.
    pub(super) fn needs(&mut self, peer: Peer) -> bool {
        !self.ahead.is_empty() && self.ahead.remove(&peer)
    }

    fn only_dials(&self, rank: u32) -> bool {
        self.dial_out.iter().any(|(first, last)| (first..=last).contains(&&rank))
    }
}

impl Tcp {
    /// Declares which ranks of this job, as inclusive ranges, only dial out. Call it after [`Tcp::expect`], before the first poll.
    pub fn set_dial_out(&mut self, ranks: &[(u32, u32)]) {
        self.reaching = Reaching { dial_out: ranks.to_vec(), ..Reaching::default() };
        self.reaching.is_own = self.reaching.only_dials(self.own.me.rank);
        if self.reaching.is_own {
            // First those that cannot dial this process.
            let (mut alike, mut peers): (Vec<Peer>, Vec<Peer>) =
                self.directory.of_own_job().partition(|peer| self.reaching.only_dials(peer.0));
            if alike.len() <= ALIKE_MAX {
                peers.append(&mut alike);
            }
            peers.truncate(AHEAD_MAX);
            self.reaching.queue = peers.into();
        }
    }

    /// Whether this job has ranks that only dial out.
    pub fn has_dial_out(&self) -> bool {
        !self.reaching.dial_out.is_empty()
    }

    /// If this process only dials out: dials the other ranks, and returns whether some of them have neither got its hello yet nor
    /// turned out to be unreachable. Call it again after each poll.
    pub fn is_reaching(&mut self) -> bool {
        loop {
            let under_way = self.reaching.ahead.iter().filter(|peer| self.is_dialling(**peer)).count();
            if under_way >= AT_ONCE {
                return true;
            }
            let Some(peer) = self.reaching.queue.pop_front() else { return under_way > 0 };
            if self.directory.way(peer) == Some(Way::Unused) {
                self.reaching.ahead.insert(peer);
                self.reach(peer);
            }
        }
    }

    fn is_dialling(&self, peer: Peer) -> bool {
        match self.directory.way(peer) {
            Some(Way::Wanted) => true,
            Some(Way::Dialled(id)) => {
                matches!(self.greetings.get(id), Some(Greeting::Dial(dial)) if dial.is_connecting())
            }
            Some(Way::Unused | Way::Open(_) | Way::Lost | Way::Over) | None => false,
        }
    }

    /// There is something to send to a peer that is being dialled.
    pub(super) fn need(&mut self, peer: Peer) {
        if self.reaching.needs(peer)
            && let Some(Way::Dialled(id)) = self.directory.way(peer)
            && let Some(Greeting::Dial(dial)) = self.greetings.get_mut(id)
        {
            dial.await_longer(Instant::now() + self.own.connect_limit);
        }
    }

    /// Whether no peer may have accepted a dial of this process without its knowledge: if this process ended now, it would be lost to
    /// that peer.
    pub fn is_settled(&self) -> bool {
        self.greetings.iter().all(|(_, greeting)| match greeting {
            Greeting::Dial(dial) => !dial.may_be_taken(),
            Greeting::Answer(_) => true,
        })
    }
}
