//! Peers of other jobs go again: when the last communicator with one of them has been disconnected (MPI 5.0 §11.10.4), when it
//! has said farewell and nothing connects it with this process, or when it has died.
//!
//! `MPI_Comm_free` alone parts nobody: the two are still connected, and take leave of each other when one of them finalizes.

use std::sync::Arc;
use std::time::{Duration, Instant};

use super::{Guard, State};
use crate::abi::CommHandle;
use crate::engine::{Farewell, Peer};
use crate::error::{MpiError, MpiResult};
use crate::object::agree::Exchange;

/// As often it is looked for whom a process waits that does not sleep: after so many polls, or this time.
const LOOK_EVERY: u32 = 1 << 12;
const LOOK: Duration = Duration::from_millis(500);

impl State {
    /// Looks after peers of other jobs that have gone; whether anybody had.
    #[inline]
    pub(super) fn poll_disconnects(&mut self) -> bool {
        self.farewells.polls += 1;
        if self.farewells.polls >= LOOK_EVERY {
            self.look_for_awaited();
        }
        let is_due = self.farewells.is_telling || !self.engine.disconnected().is_empty();
        is_due && self.disconnect_due()
    }

    /// For a process that asks in vain, and does something else before it asks again.
    pub fn asked_in_vain(&mut self) {
        let now = Instant::now();
        if self.farewells.looked.is_none_or(|looked| now - looked >= LOOK) {
            self.farewells.looked = Some(now);
            self.look_for_awaited();
        }
    }

    /// For a process that does not sleep.
    #[cold]
    fn look_for_awaited(&mut self) {
        self.farewells.polls = 0;
        if self.cut_off().is_some() {
            self.seek_awaited();
        }
        if self.comms.names.has_foreign() {
            self.reach_awaited();
        }
    }

    /// Whether the process manager has let go of this process, since something has happened to the job; and what, if it has said so.
    fn cut_off(&mut self) -> Option<Option<String>> {
        let pmi = self.world.as_mut().and_then(|world| world.pmi.as_mut())?;
        pmi.cut_off().map(|why| why.map(str::to_owned))
    }

    /// Whoever of these has died, if that can be known: of this job, once the process manager has let go of this process; of other
    /// jobs, in any case, since these are connected to.
    pub(super) fn find_dead(&mut self, members: &[Peer]) -> Option<MpiError> {
        let cut_off = self.cut_off();
        let me = self.me();
        for peer in members.iter().copied().filter(|peer| *peer != me) {
            let routes = self.engine.transport_mut();
            match (self.comms.names.is_foreign(peer), &cut_off) {
                (false, None) => continue,
                (false, Some(why)) => routes.doubt(peer, why.as_deref()),
                (true, _) => {}
            }
            routes.reach(peer);
        }
        let lost = members.iter().find(|peer| self.engine.is_lost(**peer))?;
        Some(MpiError::proc_aborted(format!("a member of the communicator has died: {}", self.comms.names.name(*lost))))
    }

    /// Connects to those of other jobs from which a message is waited for: nobody else would tell of their death.
    #[cold]
    pub(super) fn reach_awaited(&mut self) {
        self.farewells.polls = 0;
        for peer in self.engine.awaited(false) {
            if self.comms.names.is_foreign(peer) {
                self.engine.transport_mut().reach(peer);
            }
        }
    }

    /// As [`State::reach_awaited`], of this job, when nothing has come for long. If the process manager has let go of this process,
    /// something has happened to the job: then all of it that is alive listens, and who does not listen is dead.
    #[cold]
    pub(super) fn seek_awaited(&mut self) {
        let cut_off = self.cut_off();
        for peer in self.engine.awaited(cut_off.is_some()) {
            let routes = self.engine.transport_mut();
            if self.comms.names.is_foreign(peer) {
                routes.reach(peer);
                continue;
            }
            match &cut_off {
                Some(why) => {
                    routes.doubt(peer, why.as_deref());
                    routes.reach(peer);
                }
                None => routes.seek(peer),
            }
        }
    }

    #[cold]
    fn disconnect_due(&mut self) -> bool {
        let parted = std::mem::take(self.engine.disconnected());
        let moved = !parted.is_empty();
        for peer in parted {
            self.note_disconnect(peer);
        }
        self.review_disconnects();
        moved
    }

    /// A connect begins: farewells wait until it has ended.
    pub(super) fn hold_farewells(&mut self) {
        self.farewells.connects += 1;
    }

    pub(super) fn note_disconnect(&mut self, peer: Peer) {
        if !self.farewells.peers.contains(&peer) {
            self.farewells.peers.push(peer);
        }
    }

    /// Goes on with leave-takings, after communicators have gone or farewells have come.
    pub fn review_disconnects(&mut self) {
        if self.farewells.connects > 0 {
            return;
        }
        let mut telling = false;
        for peer in std::mem::take(&mut self.farewells.peers) {
            if self.engine.is_member(peer) {
                self.farewells.peers.push(peer);
                continue;
            }
            if self.engine.farewell(peer) == Farewell::Untold {
                if self.engine.is_busy(peer) {
                    // What it was sent has not left yet.
                    telling = true;
                    self.farewells.peers.push(peer);
                    continue;
                }
                if !self.engine.transport().is_connected(peer) {
                    self.forget_name(peer);
                    self.forget_peer(peer);
                    continue;
                }
                self.engine.say_bye(&[peer]);
            }
            match self.engine.farewell(peer) {
                Farewell::Untold | Farewell::Telling => {
                    telling = true;
                    self.farewells.peers.push(peer);
                }
                Farewell::Told => {
                    self.forget_name(peer);
                    self.farewells.peers.push(peer);
                }
                Farewell::Over => {
                    self.forget_name(peer);
                    self.forget_peer(peer);
                }
            }
        }
        self.farewells.is_telling = telling;
    }

    fn forget_name(&mut self, peer: Peer) {
        self.comms.names.disconnect(peer);
        self.engine.transport_mut().disconnect(peer);
    }

    fn forget_peer(&mut self, peer: Peer) {
        self.engine.forget_peer(peer);
        self.engine.transport_mut().forget(peer);
        self.comms.names.forget(peer);
    }
}

impl Guard<'_> {
    /// Waits for all members of a communicator if some are of other jobs: these. Whoever has died is not waited for.
    pub fn gather(&mut self, comm: CommHandle) -> MpiResult<Vec<Peer>> {
        let state = &mut **self;
        let all = Arc::clone(state.comms.get(comm)?.parties.all());
        let foreign: Vec<Peer> = all.iter().copied().filter(|peer| state.comms.names.is_foreign(*peer)).collect();
        if foreign.is_empty() {
            return Ok(foreign);
        }
        let mut exchange = Exchange::of_words(state.comms.get_mut(comm)?.circle_of_all(), &[0]);
        // What failed has no consequence but that this process goes on earlier.
        let _ = self.wait(|state| exchange.poll(&mut state.engine));
        // Short messages are over for their sender before they have left, and may wait for a connection.
        self.wait(|state| (!foreign.iter().any(|peer| state.engine.is_busy(*peer))).then_some(()));
        Ok(foreign)
    }

    /// A connect has ended.
    pub fn resume_farewells(&mut self) {
        self.farewells.connects -= 1;
        if self.farewells.connects == 0 {
            let held = std::mem::take(&mut self.farewells.held);
            self.leave(&held);
        }
    }

    /// Takes leave of these peers, as far as they are of other jobs and in no communicator any more. Returns once the farewells
    /// are on their way; theirs are not waited for.
    pub fn leave(&mut self, peers: &[Peer]) {
        let state = &mut **self;
        if state.farewells.connects > 0 {
            return state.farewells.held.extend_from_slice(peers);
        }
        let mut left = Vec::new();
        for peer in peers.iter().copied() {
            if !state.comms.names.is_foreign(peer) || state.engine.is_member(peer) {
                continue;
            }
            state.note_disconnect(peer);
            left.push(peer);
        }
        state.review_disconnects();
        self.wait(|state| (!left.iter().any(|peer| state.engine.farewell(*peer) == Farewell::Telling)).then_some(()));
        self.review_disconnects();
    }
}
