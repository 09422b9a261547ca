//! Looks up the addresses of peers on other nodes at the process manager, when they are first needed.
//!
//! The engine's messages for such a peer wait until the address is known; everything else continues. One request is pending at a
//! time.

use std::collections::VecDeque;

use rsd_proto::pmi::listening;

use crate::bootstrap::{BootstrapError, Pmi};
use crate::engine::Peer;
use crate::transport::Routes;

/// The key under which addresses are requested.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(super) enum Source {
    /// The ranks have put their addresses and fenced: the answer is available.
    #[default]
    Ranks,
    /// The launcher has made the sockets, and may not know those of other nodes yet.
    Launcher,
}

impl Source {
    /// The key of a rank's address.
    pub(super) fn key(self, rank: u32) -> String {
        match self {
            Self::Ranks => format!("rsd-tcp-{rank}"),
            Self::Launcher => listening::address_key(rank),
        }
    }
}

/// The peers whose addresses are wanted.
#[derive(Debug, Default)]
pub(super) struct Lookups {
    pub(super) source: Source,
    wanted: VecDeque<Peer>,
    asked: Option<Peer>,
}

impl Lookups {
    /// For addresses from this source.
    pub(super) fn new(source: Source) -> Self {
        Self { source, ..Self::default() }
    }

    /// Requests this peer's address.
    pub(super) fn want(&mut self, peer: Peer) {
        self.wanted.push_back(peer);
    }

    /// Whether no address is wanted.
    #[inline]
    pub(super) fn is_idle(&self) -> bool {
        self.asked.is_none() && self.wanted.is_empty()
    }
}

impl Lookups {
    /// Requests the addresses that are wanted, and passes on the answers; returns whether there were any.
    #[cold]
    pub(super) fn poll(&mut self, mut pmi: Option<&mut Pmi>, routes: &mut Routes) -> bool {
        let mut moved = false;
        loop {
            let peer = match self.asked.or_else(|| self.wanted.pop_front()) {
                Some(peer) => peer,
                None => return moved,
            };
            let Some(answer) = self.ask_for(peer, pmi.as_deref_mut()) else { return moved };
            self.asked = None;
            routes.locate(peer, answer.as_deref().map_err(Clone::clone));
            moved = true;
        }
    }

    /// Returns the answer about a peer, if it has arrived; sends the request, if it is new.
    fn ask_for(&mut self, peer: Peer, pmi: Option<&mut Pmi>) -> Option<Result<String, String>> {
        let Some(pmi) = pmi else {
            return Some(Err("its address is unknown: there is no process manager".to_owned()));
        };
        let Self { source, asked, .. } = self;
        let begun = match asked {
            Some(_) => Ok(()),
            None => pmi.begin_get(&source.key(peer.0), *source == Source::Ranks),
        };
        *asked = Some(peer);
        let failed = |error: BootstrapError| Err(format!("its address is unknown: failed to {error}"));
        match begun.and_then(|()| pmi.take_got()) {
            Ok(None) => None,
            Ok(Some(Some(address))) => {
                Some(String::from_utf8(address).map_err(|_| "its address is not valid UTF-8".to_owned()))
            }
            Ok(Some(None)) => Some(Err("it has no listening address".to_owned())),
            Err(error) => Some(failed(error)),
        }
    }
}
