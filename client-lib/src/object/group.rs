//! Groups: ordered sets of processes (MPI 5.0 §7.2.1).

use std::sync::Arc;

use crate::engine::Peer;

/// Processes in the order of their ranks.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Group {
    /// `members[rank]`, each at most once.
    pub members: Arc<[Peer]>,
    /// This process's rank among them.
    pub rank: Option<u32>,
}

impl Group {
    /// Of these members, seen from one process.
    pub fn new(members: impl Into<Arc<[Peer]>>, me: Peer) -> Self {
        let members = members.into();
        let rank = members.iter().position(|member| *member == me).map(|rank| rank as u32);
        Self { members, rank }
    }

    /// How many processes.
    pub fn size(&self) -> u32 {
        self.members.len() as u32
    }
}
