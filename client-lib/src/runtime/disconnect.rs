//! When peers of other jobs leave: when the last communicator with one of them has been disconnected (MPI 5.0 §11.10.4), when
//! it has said farewell and no communicator connects it with this process, or when it has died.
//!
//! `MPI_Comm_free` alone disconnects no process: the two say farewell to each other when one of them finalizes.

use std::sync::Arc;
use std::time::{Duration, Instant};

use rsd_proto::pmi::losses;

use super::{Guard, State};
use crate::abi::CommHandle;
use crate::bootstrap::{Lost, Pmi};
use crate::engine::{Farewell, Peer};
use crate::error::{MpiError, MpiResult};
use crate::object::agree::Exchange;

/// A process that waits without sleeping checks the awaited peers after this many polls, or this long.
const LOOK_EVERY: u32 = 1 << 12;
const LOOK: Duration = Duration::from_millis(500);

/// How long a contact that is half made is waited for. The peer answers when it makes its next call.
const MEETING: Duration = Duration::from_secs(2);

/// After this many sleeps, of half a second, a long wait for any source looks for all members again.
const ALL_EVERY: u64 = 8;

impl State {
    /// Handles peers of other jobs that have gone; returns whether there were any.
    #[inline]
    pub(super) fn poll_disconnects(&mut self) -> bool {
        self.farewells.polls += 1;
        if self.farewells.polls >= LOOK_EVERY {
            self.look_for_awaited();
        }
        let is_due = self.farewells.is_telling || !self.engine.disconnected().is_empty();
        is_due && self.disconnect_due()
    }

    /// Called when a test was unsuccessful, since the process may do something else before it tests again.
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
            self.seek_awaited(false);
        }
        self.note_losses();
        if self.comms.names.has_foreign() {
            self.reach_awaited();
        }
    }

    /// Whether the process manager has closed this process's connection, because something has happened to the job; and
    /// its reason, if it gave one.
    fn cut_off(&mut self) -> Option<Option<String>> {
        let pmi = self.world.as_mut().and_then(|world| world.pmi.as_mut())?;
        pmi.cut_off().map(|why| why.map(str::to_owned))
    }

    /// Whether one of these members is known to have died: in this job, after the process manager has closed this
    /// process's connection; in other jobs always, since these members are connected.
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

    /// Connects to those of other jobs from which a message is awaited: nothing else would report their death.
    #[cold]
    pub(super) fn reach_awaited(&mut self) {
        self.farewells.polls = 0;
        for peer in self.engine.awaited(false) {
            if self.comms.names.is_foreign(peer) {
                self.engine.transport_mut().reach(peer);
            }
        }
    }

    /// As [`State::reach_awaited`], for this job, when nothing has arrived for long. If the process manager has closed
    /// this process's connection, something has happened to the job: then all live members listen, and a member that
    /// does not listen is dead. `far`: peers on other nodes are sought too. They listen before they start, but a connection costs
    /// more there.
    #[cold]
    pub(super) fn seek_awaited(&mut self, far: bool) {
        let cut_off = self.cut_off();
        self.note_losses();
        // A receive from any source waits for all, but to ask for each costs something: not every time.
        let all = cut_off.is_some() || (far && self.waiting.sleeps.is_multiple_of(ALL_EVERY));
        let mut awaited = self.engine.awaited(all);
        awaited.extend(self.recovery.awaited());
        for peer in awaited {
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
                None => routes.seek(peer, far),
            }
            if cut_off.is_none() && self.has_ended(peer) {
                self.engine.declare_lost(peer, &format!("rank {} has finalized MPI or ended", peer.0));
            }
        }
    }

    /// Whether the process manager knows that a rank of this node has ended that never was connected: nothing else would tell.
    fn has_ended(&mut self, peer: Peer) -> bool {
        let Some(world) = &mut self.world else { return false };
        let is_here = world.nodes.get(peer.0 as usize) == world.nodes.get(world.rank as usize);
        if !is_here || !self.lookups.is_idle() || self.engine.transport().is_connected(peer) {
            return false;
        }
        // Only rsd's process manager answers this at once.
        let pmi = world.pmi.as_mut().filter(|pmi| pmi.kvsname().starts_with(b"rsd-"));
        pmi.is_some_and(|pmi| matches!(pmi.get(&losses::ended_key(peer.0)), Ok(Some(text)) if text == b"1"))
    }

    /// Takes in what the process manager has told, if it has told anything.
    #[cold]
    pub fn hear_losses(&mut self) {
        let _ = self.cut_off();
        self.note_losses();
    }

    /// Takes in which ranks are lost, by the process manager.
    fn note_losses(&mut self) {
        let Some(world) = &mut self.world else { return };
        let (size, me) = (world.size, world.rank);
        let lost = world.pmi.as_mut().map(Pmi::take_lost).unwrap_or_default();
        for Lost { ranks, why } in lost {
            for rank in
                ranks.into_iter().flat_map(|(first, last)| first..=last.min(size - 1)).filter(|rank| *rank != me)
            {
                self.engine.declare_lost(Peer(rank), &format!("rank {rank}: {why}"));
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

    /// Called when a connect begins: farewells wait until it has ended.
    pub(super) fn hold_farewells(&mut self) {
        self.farewells.connects += 1;
    }

    pub(super) fn note_disconnect(&mut self, peer: Peer) {
        if !self.farewells.peers.contains(&peer) {
            self.farewells.peers.push(peer);
        }
    }

    /// Continues with disconnections, after communicators have gone or farewells have arrived.
    pub fn review_disconnects(&mut self) {
        if self.farewells.connects > 0 {
            return;
        }
        let mut telling = false;
        for peer in std::mem::take(&mut self.farewells.peers) {
            let is_member = self.engine.is_member(peer);
            if is_member || self.engine.transport().is_connected(peer) {
                self.farewells.meetings.retain(|meeting| meeting.0 != peer);
            }
            if is_member {
                self.farewells.peers.push(peer);
                continue;
            }
            if self.engine.farewell(peer) == Farewell::Untold {
                if self.engine.is_busy(peer) {
                    // Messages to it have not left yet.
                    telling = true;
                    self.farewells.peers.push(peer);
                    continue;
                }
                if !self.engine.transport().is_connected(peer) {
                    if self.awaits_contact(peer) {
                        // The peer may be connected already, and would take the end of that for this process's death.
                        telling = true;
                        self.farewells.peers.push(peer);
                        continue;
                    }
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

    /// Whether a contact with this peer, which is to be disconnected, is half made and may still succeed.
    fn awaits_contact(&mut self, peer: Peer) -> bool {
        if !self.engine.transport().is_meeting(peer) {
            return false;
        }
        let now = Instant::now();
        let met = self.farewells.meetings.iter().find(|meeting| meeting.0 == peer).map(|meeting| meeting.1);
        if met.is_none() {
            self.farewells.meetings.push((peer, now));
        }
        met.is_none_or(|met| now - met < MEETING)
    }

    fn forget_name(&mut self, peer: Peer) {
        self.comms.names.disconnect(peer);
        self.engine.transport_mut().disconnect(peer);
    }

    fn forget_peer(&mut self, peer: Peer) {
        self.farewells.meetings.retain(|meeting| meeting.0 != peer);
        self.engine.forget_peer(peer);
        self.engine.transport_mut().forget(peer);
        self.comms.names.forget(peer);
    }
}

impl Guard<'_> {
    /// Waits for all members of a communicator that has members of other jobs, and returns these. Dead members are not
    /// waited for.
    pub fn gather(&mut self, comm: CommHandle) -> MpiResult<Vec<Peer>> {
        let state = &mut **self;
        let all = Arc::clone(state.comms.get(comm)?.parties.all());
        let foreign: Vec<Peer> = all.iter().copied().filter(|peer| state.comms.names.is_foreign(*peer)).collect();
        if foreign.is_empty() {
            return Ok(foreign);
        }
        let mut exchange = Exchange::of_words(state.comms.get_mut(comm)?.circle_of_all(), &[0]);
        // If this fails, the only consequence is that this process continues earlier.
        let _ = self.wait(|state| exchange.poll(&mut state.engine));
        // Short messages complete for their sender before they have left, and may wait for a connection.
        self.wait(|state| (!foreign.iter().any(|peer| state.engine.is_busy(*peer))).then_some(()));
        Ok(foreign)
    }

    /// Called when a connect has ended.
    pub fn resume_farewells(&mut self) {
        self.farewells.connects -= 1;
        if self.farewells.connects == 0 {
            let held = std::mem::take(&mut self.farewells.held);
            self.leave(&held);
        }
    }

    /// Disconnects from those of these peers that belong to other jobs and are in no communicator any more. Returns
    /// once the farewells are on their way, without waiting for theirs.
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
        if !self.farewells.meetings.is_empty() {
            // The peer may have answered already, and this process may make no further call for long.
            self.engine.transport_mut().look_soon();
            self.step();
        }
        self.review_disconnects();
    }
}
