//! The known peers, and the state of the contact with each.

use std::fmt::{self, Display};

use crate::engine::Peer;
use crate::transport::name::ProcessName;

/// The state of the contact with a peer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Way {
    /// Nothing has been sent to it or received from it.
    Unused,
    /// There is something to send, and its address is wanted.
    Wanted,
    /// It is being dialled: the number of the greeting.
    Dialled(u32),
    /// Frames flow: the number of the link.
    Open(u32),
    /// It has died or is unreachable.
    Lost,
    /// It has said farewell and closed the connection.
    Over,
}

#[derive(Debug, Clone, Copy)]
struct Entry {
    world: u32,
    rank: u32,
    way: Way,
}

/// `entries[i]` for peer i; 16 bytes each.
#[derive(Debug)]
pub(super) struct Directory {
    own: [u8; 16],
    worlds: Vec<World>,
    entries: Vec<Entry>,
}

#[derive(Debug)]
struct World {
    name: [u8; 16],
    /// The peer number of its rank 0 if its ranks have consecutive numbers, as they nearly always do.
    first: u32,
    /// The number of its entries; if it has none, its place may be reused for another world.
    entries: u32,
}

/// The place of a peer that is not reached over TCP.
const NOWHERE: u32 = u32::MAX;

impl Directory {
    /// A directory for a process of this world.
    pub(super) fn new(own: [u8; 16]) -> Self {
        Self { own, worlds: Vec::new(), entries: Vec::new() }
    }

    pub(super) fn add(&mut self, peer: Peer, name: ProcessName) {
        let world = self.world(name.world).unwrap_or_else(|| {
            let new = World { name: name.world, first: peer.0.wrapping_sub(name.rank), entries: 0 };
            match self.worlds.iter().position(|world| world.entries == 0) {
                Some(free) => {
                    self.worlds[free] = new;
                    free
                }
                None => {
                    self.worlds.push(new);
                    self.worlds.len() - 1
                }
            }
        });
        let index = peer.0 as usize;
        if index >= self.entries.len() {
            self.entries.resize(index + 1, Entry { world: NOWHERE, rank: 0, way: Way::Unused });
        }
        if self.entries[index].world == NOWHERE {
            self.entries[index] = Entry { world: world as u32, rank: name.rank, way: Way::Unused };
            self.worlds[world].entries += 1;
        }
    }

    /// Removes a peer, which is no longer expected.
    pub(super) fn remove(&mut self, peer: Peer) {
        let Some(entry) = self.entries.get_mut(peer.0 as usize) else { return };
        if let Some(world) = self.worlds.get_mut(entry.world as usize) {
            world.entries -= 1;
        }
        entry.world = NOWHERE;
    }

    fn world(&self, name: [u8; 16]) -> Option<usize> {
        self.worlds.iter().position(|world| world.name == name && world.entries > 0)
    }

    /// The state of the contact; `None` if the peer is not expected here.
    #[inline]
    pub(super) fn way(&self, peer: Peer) -> Option<Way> {
        self.entries.get(peer.0 as usize).filter(|entry| entry.world != NOWHERE).map(|entry| entry.way)
    }

    pub(super) fn set(&mut self, peer: Peer, way: Way) {
        if let Some(entry) = self.entries.get_mut(peer.0 as usize) {
            entry.way = way;
        }
    }

    pub(super) fn name(&self, peer: Peer) -> Option<ProcessName> {
        let entry = self.entries.get(peer.0 as usize)?;
        let world = self.worlds.get(entry.world as usize)?;
        Some(ProcessName { world: world.name, rank: entry.rank })
    }

    /// The peers of this process's own job.
    pub(super) fn of_own_job(&self) -> impl Iterator<Item = Peer> + '_ {
        let own = self.world(self.own).map(|world| world as u32);
        let is_own = move |entry: &Entry| Some(entry.world) == own;
        self.entries.iter().enumerate().filter(move |(_, entry)| is_own(entry)).map(|(index, _)| Peer(index as u32))
    }

    /// Finds a peer by name: in one comparison, or in one per peer if the world's ranks do not have consecutive
    /// numbers.
    pub(super) fn find(&self, name: ProcessName) -> Option<Peer> {
        let world = self.world(name.world)?;
        let is = |entry: &Entry| entry.world == world as u32 && entry.rank == name.rank;
        let guess = self.worlds[world].first.wrapping_add(name.rank);
        if self.entries.get(guess as usize).is_some_and(is) {
            return Some(Peer(guess));
        }
        self.entries.iter().position(is).map(|index| Peer(index as u32))
    }

    /// The peer's name for users: "rank 3", or "rank 3 of job 2".
    pub(super) fn call(&self, peer: Peer) -> impl Display + use<> {
        Called { name: self.name(peer), own: self.own }
    }
}

struct Called {
    name: Option<ProcessName>,
    own: [u8; 16],
}

impl Display for Called {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.name {
            Some(name) if name.world == self.own => write!(f, "rank {}", name.rank),
            Some(name) => write!(f, "{name}"),
            None => write!(f, "a process"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const fn name(world: u8, rank: u32) -> ProcessName {
        let mut name = ProcessName { world: [world; 16], rank };
        [name.world[12], name.world[13], name.world[14]] = [0; 3];
        name
    }

    #[test]
    fn peers_are_found_by_name_whatever_their_order() {
        let mut directory = Directory::new(name(1, 0).world);
        for rank in [1, 2, 5] {
            directory.add(Peer(rank), name(1, rank));
        }
        for (peer, rank) in [(6, 3), (7, 1), (8, 0)] {
            directory.add(Peer(peer), name(2, rank));
        }
        for (wanted, peer) in [
            (name(1, 1), Some(1)),
            (name(1, 5), Some(5)),
            (name(1, 3), None),
            (name(2, 3), Some(6)),
            (name(2, 1), Some(7)),
            (name(2, 0), Some(8)),
            (name(2, 2), None),
            (name(3, 1), None),
        ] {
            assert_eq!(directory.find(wanted), peer.map(Peer), "{wanted:?}");
        }
        assert_eq!(directory.way(Peer(3)), None);
        assert_eq!(directory.way(Peer(9)), None);
        directory.remove(Peer(8));
        directory.remove(Peer(3));
        assert_eq!((directory.find(name(2, 0)), directory.way(Peer(8))), (None, None));
        assert_eq!(directory.find(name(2, 1)), Some(Peer(7)));
        for peer in [6, 7] {
            directory.remove(Peer(peer));
        }
        directory.add(Peer(6), name(3, 9));
        assert_eq!((directory.find(name(3, 9)), directory.worlds.len()), (Some(Peer(6)), 2));
        directory.remove(Peer(6));
        directory.add(Peer(6), name(2, 3));
        directory.set(Peer(5), Way::Open(4));
        assert_eq!(directory.way(Peer(5)), Some(Way::Open(4)));
        assert_eq!(directory.call(Peer(5)).to_string(), "rank 5");
        assert_eq!(directory.call(Peer(6)).to_string(), "rank 3 of job 2");
    }
}
