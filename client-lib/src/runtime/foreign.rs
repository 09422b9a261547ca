//! Decides whether a process of another job is already known when it is met, consistently on both sides.
//!
//! Two processes are associated from their first common communicator until one says farewell. If several threads connect and
//! disconnect, farewells and connects overtake each other, so one side may have processed a farewell that the other has not.
//! Therefore each pair numbers its associations: each side states the number of its current association, or of the one that
//! it would begin, and the larger number is used. A side that is in an older one has been left; it also says farewell before
//! it begins the new one.
//!
//! While two groups connect, their processes say only these farewells ([`State::hold_farewells`]), so the same number is used
//! in all concurrent connects of a pair, whichever thread is first. A pair whose farewells have both arrived begins at 0 again.

use super::{Guard, State};
use crate::abi::constants::MPI_ERR_PORT;
use crate::engine::{Farewell, Peer};
use crate::error::{MpiError, MpiResult};
use crate::transport::ForeignPeer;
use crate::transport::endpoint::{self, Endpoint};
use crate::transport::name::ProcessName;

/// The numbers of the associations with the other group's members. `ours` is what this process, the `place`-th of its
/// group, has stated for each of them; `theirs` is what each of them has stated for each member of this group, in
/// order.
pub(super) fn agreed(ours: &[u64], theirs: &[u64], place: u32) -> Vec<u64> {
    let members = theirs.len() / ours.len().max(1);
    let of_me = theirs.chunks(members.max(1)).map(|said| said.get(place as usize).copied().unwrap_or(0));
    ours.iter().zip(of_me).map(|(ours, theirs)| theirs.max(*ours)).collect()
}

/// Makes peers of the other group's members, in associations of these numbers; new peers are added to `new`.
pub(super) fn associate(
    guard: &mut Guard<'_>,
    ours: &Endpoint,
    theirs: &Theirs,
    numbers: &[u64],
    new: &mut Vec<Peer>,
) -> MpiResult<Vec<Peer>> {
    let mut peers = Vec::with_capacity(theirs.members.len());
    for (member, number) in theirs.members.iter().zip(numbers) {
        if guard.comms.names.find(member.name).is_none() && member.name.world == ours.name.world {
            return Err(malformed());
        }
        if guard.recognise(member.name, *number).is_none()
            && let Some(old) = guard.comms.names.find(member.name)
        {
            guard.disconnect_from(old);
        }
        let state = &mut **guard;
        // Another thread may have met it in the meantime.
        let peer = match state.recognise(member.name, *number) {
            Some(peer) => {
                state.engine.transport_mut().learn(peer, theirs.secret);
                peer
            }
            None => {
                let foreign = ForeignPeer { theirs: member, ours, secret: theirs.secret };
                let peer = state.add_foreign(&foreign, *number)?;
                new.push(peer);
                peer
            }
        };
        peers.push(peer);
    }
    Ok(peers)
}

/// The other group, as its root described it.
#[derive(Debug)]
pub(super) struct Theirs {
    pub(super) root: u32,
    pub(super) members: Vec<Endpoint>,
    pub(super) secret: [u8; 32],
}

impl Theirs {
    /// From what its root has sent: the root, the members, the secret.
    pub(super) fn from_words(words: &[u64]) -> MpiResult<Self> {
        let (said, secret) = words.split_last_chunk::<4>().ok_or_else(malformed)?;
        let (root, list) = said.split_first().ok_or_else(malformed)?;
        let members: Option<Vec<_>> = list.chunks(endpoint::WORDS).map(Endpoint::from_words).collect();
        let members = members.filter(|members| *root < members.len() as u64).ok_or_else(malformed)?;
        let mut bytes = [0; 32];
        for (bytes, word) in bytes.chunks_exact_mut(8).zip(secret) {
            bytes.copy_from_slice(&word.to_ne_bytes());
        }
        Ok(Self { root: *root as u32, members, secret: bytes })
    }
}

impl Guard<'_> {
    /// Disconnects from a peer after either side has already said farewell, even if it is in communicators. Everything
    /// that it was sent is on its way then.
    fn disconnect_from(&mut self, old: Peer) {
        self.note_disconnect(old);
        if self.engine.transport().is_connected(old) {
            self.engine.say_bye(&[old]);
            self.wait(|state| (state.engine.farewell(old) != Farewell::Telling).then_some(()));
        }
    }
}

impl State {
    /// The number of this process's current association with another, or of the one that it would begin.
    pub(super) fn association(&self, name: ProcessName) -> u64 {
        self.comms.names.association(name, |peer| self.is_known(peer))
    }

    /// The peer of a process in this association.
    fn recognise(&self, name: ProcessName, number: u64) -> Option<Peer> {
        let names = &self.comms.names;
        names.find(name).filter(|peer| self.is_known(*peer) && names.number(*peer) >= number)
    }

    /// Whether a peer is of this job, or neither side has said farewell.
    fn is_known(&self, peer: Peer) -> bool {
        !self.comms.names.is_foreign(peer) || self.engine.is_present(peer)
    }

    /// Creates a peer, in the association of this number or a later one.
    fn add_foreign(&mut self, foreign: &ForeignPeer<'_>, number: u64) -> MpiResult<Peer> {
        let number = number.max(self.association(foreign.theirs.name));
        let Self { comms, engine, groups, world, .. } = self;
        let Some(world) = world else { return Err(MpiError::intern("the library is not open")) };
        let theirs = foreign.theirs;
        if let Some(old) = comms.names.find(theirs.name) {
            comms.names.disconnect(old);
            engine.transport_mut().disconnect(old);
        }
        let peer = comms.names.add_foreign(theirs.name, theirs.node, number, |peer| groups.speak_of(peer));
        engine.transport_mut().add_foreign(peer, foreign, &world.settings).map_err(|error| {
            comms.names.forget(peer);
            MpiError::other(format!("cannot reach {}: {error}", theirs.name))
        })?;
        Ok(peer)
    }
}

#[cold]
pub(super) fn malformed() -> MpiError {
    MpiError::new(MPI_ERR_PORT, "the other side sent an invalid message")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_pair_uses_the_larger_of_both_sides_numbers() {
        // Three processes here, two on the other side.
        let here = [[0, 4], [2, 0], [7, 1]];
        let there = [[0, 3, 7], [4, 1, 0]];
        let said_there: Vec<u64> = there.concat();
        let said_here: Vec<u64> = here.concat();
        let agreed_here: Vec<_> = (0..3).map(|place| agreed(&here[place as usize], &said_there, place)).collect();
        let agreed_there: Vec<_> = (0..2).map(|place| agreed(&there[place as usize], &said_here, place)).collect();
        assert_eq!(agreed_here, [[0, 4], [3, 1], [7, 1]]);
        for (one, numbers) in agreed_here.iter().enumerate() {
            for (other, number) in numbers.iter().enumerate() {
                assert_eq!(*number, agreed_there[other][one]);
            }
        }
    }
}
