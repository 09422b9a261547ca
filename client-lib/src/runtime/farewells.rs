//! The state of the farewells to peers of other jobs ([`super::disconnect`]).

use std::time::Instant;

use crate::engine::Peer;

/// Peers of other jobs that are leaving.
#[derive(Debug, Default)]
pub(super) struct Farewells {
    pub(super) peers: Vec<Peer>,
    /// A farewell waits for room, or for a contact that is half made.
    pub(super) is_telling: bool,
    /// Peers whose contact with this process is half made, and since when they are to be disconnected.
    pub(super) meetings: Vec<(Peer, Instant)>,
    /// Polls since the peers that this process waits for were last checked.
    pub(super) polls: u32,
    /// The time of that check, for a process that only tests every so often.
    pub(super) looked: Option<Instant>,
    /// The number of connects in progress. During them no process is disconnected: peers that both sides know then, they
    /// know afterwards.
    pub(super) connects: u32,
    /// The peers to disconnect from afterwards.
    pub(super) held: Vec<Peer>,
}
