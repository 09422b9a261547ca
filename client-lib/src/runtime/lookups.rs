//! Where peers on other nodes are, asked of the process manager when they are first wanted.
//!
//! The engine's messages for such a peer wait meanwhile; everything else goes on. One question is under way at a time.

use std::collections::VecDeque;

use rsd_proto::pmi::listening;

use crate::bootstrap::{BootstrapError, Pmi};
use crate::engine::Peer;
use crate::transport::Routes;

/// By which key addresses are asked for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(super) enum Source {
    /// The ranks have put them, and fenced: the answer is there.
    #[default]
    Ranks,
    /// The launcher has made the sockets, and may yet have to hear of other nodes'.
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

/// Who is wanted.
#[derive(Debug, Default)]
pub(super) struct Lookups {
    pub(super) source: Source,
    wanted: VecDeque<Peer>,
    asked: Option<Peer>,
}

impl Lookups {
    /// For addresses from there.
    pub(super) fn new(source: Source) -> Self {
        Self { source, ..Self::default() }
    }

    /// This peer's address is needed.
    pub(super) fn want(&mut self, peer: Peer) {
        self.wanted.push_back(peer);
    }

    /// Whether nobody is wanted.
    #[inline]
    pub(super) fn is_idle(&self) -> bool {
        self.asked.is_none() && self.wanted.is_empty()
    }
}

impl Lookups {
    /// Asks for the addresses that are wanted, and passes on what has been answered; whether anything was.
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

    /// The answer about a peer, if it is there; the question, if it is new.
    fn ask_for(&mut self, peer: Peer, pmi: Option<&mut Pmi>) -> Option<Result<String, String>> {
        let Some(pmi) = pmi else {
            return Some(Err("there is no process manager to ask for its address".to_owned()));
        };
        let Self { source, asked, .. } = self;
        let begun = match asked {
            Some(_) => Ok(()),
            None => pmi.begin_get(&source.key(peer.0), *source == Source::Ranks),
        };
        *asked = Some(peer);
        let failed = |error: BootstrapError| Err(format!("its address could not be asked for: {error}"));
        match begun.and_then(|()| pmi.take_got()) {
            Ok(None) => None,
            Ok(Some(Some(address))) => {
                Some(String::from_utf8(address).map_err(|_| "its address is no text".to_owned()))
            }
            Ok(Some(None)) => Some(Err("it listens nowhere".to_owned())),
            Err(error) => Some(failed(error)),
        }
    }
}
