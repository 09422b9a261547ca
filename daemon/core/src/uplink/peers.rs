//! The daemons that may become the parent, and the order in which they are tried.
//!
//! A *round* tries each of them once: first the parent that was lost, then its ancestors up to the head, then the places where standbys
//! will be the head, then the address that the user gave. So a daemon never forgets the head, even after a redirect.

use std::collections::VecDeque;

use rsd_proto::v1::Ancestor;

use crate::NodeId;
use crate::contract::HEAD;

/// A daemon that may become the parent.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Peer {
    /// Best first.
    pub(super) addresses: Vec<String>,
    /// The node that must answer there; None: any node of the DVM.
    pub(super) node: Option<NodeId>,
    pub(super) role: Role,
}

impl Peer {
    /// Returns its addresses as one text.
    pub(super) fn name(&self) -> String {
        self.addresses.join(" or ")
    }
}

/// Why a peer may become the parent.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Role {
    /// The user gave its address, or a redirect named it as the head. It decides.
    Head,
    /// It is above the lost parent.
    Ancestor,
    /// It was the parent until the link was cut.
    Parent,
    /// The head sent this daemon there.
    Redirected,
}

/// All that a daemon knows about the daemons above it.
#[derive(Debug)]
pub(super) struct Peers {
    /// The address that the user gave.
    join: String,
    /// What a redirect has named as the head's addresses.
    head: Vec<String>,
    /// The lost parent.
    pub(super) parent: Option<Peer>,
    above: Vec<Ancestor>,
    /// Where standbys will be the head.
    standbys: Vec<Ancestor>,
    /// The peers that this round has not tried yet.
    round: VecDeque<Peer>,
}

impl Peers {
    /// `above` and `standbys`: what the daemon knew before it was restarted.
    pub(super) fn new(join: String, above: Vec<Ancestor>, standbys: Vec<Ancestor>) -> Peers {
        let mut peers = Peers { join, head: Vec::new(), parent: None, above, standbys, round: VecDeque::new() };
        peers.begin_round();
        // The user's word comes first.
        let join = peers.joined();
        peers.round.retain(|peer| peer.addresses != join.addresses);
        peers.round.push_front(join);
        peers
    }

    pub(super) fn join(&self) -> &str {
        &self.join
    }

    fn joined(&self) -> Peer {
        Peer { addresses: vec![self.join.clone()], node: None, role: Role::Head }
    }

    pub(super) fn set_above(&mut self, above: &[Ancestor], standbys: &[Ancestor]) {
        (self.above, self.standbys) = (above.to_vec(), standbys.to_vec());
    }

    pub(super) fn set_head(&mut self, addresses: &[String]) {
        self.head = addresses.to_vec();
    }

    pub(super) fn begin_round(&mut self) {
        let above = self.above.iter().map(|above| {
            let role = if above.node == HEAD { Role::Head } else { Role::Ancestor };
            Peer { addresses: above.addresses.clone(), node: Some(above.node), role }
        });
        let later = self.standbys.iter().map(|standby| {
            // Whichever standby it is, it will answer as the head.
            Peer { addresses: standby.addresses.clone(), node: Some(HEAD), role: Role::Head }
        });
        let head = Peer { addresses: self.head.clone(), node: None, role: Role::Head };
        let all = self.parent.iter().cloned().chain(above).chain(later).chain([head, self.joined()]);
        let mut round = VecDeque::<Peer>::new();
        for peer in all {
            let is_known = |address: &String| round.iter().any(|known| known.addresses.contains(address));
            if !peer.addresses.iter().all(is_known) {
                round.push_back(peer);
            }
        }
        self.round = round;
    }

    /// Returns whether every peer of the round was tried.
    pub(super) fn is_exhausted(&self) -> bool {
        self.round.is_empty()
    }

    /// Returns the next peer of the round.
    pub(super) fn next(&mut self) -> Option<Peer> {
        self.round.pop_front()
    }

    /// Has this peer tried next.
    pub(super) fn again(&mut self, peer: Peer) {
        self.round.push_front(peer);
    }
}
