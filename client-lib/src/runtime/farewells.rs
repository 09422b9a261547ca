//! What a process remembers of the farewells that it owes to peers of other jobs ([`super::disconnect`]).

use std::time::Instant;

use crate::engine::Peer;

/// Peers of other jobs that are on their way out.
#[derive(Debug, Default)]
pub(super) struct Farewells {
    pub(super) peers: Vec<Peer>,
    /// A farewell waits for room.
    pub(super) is_telling: bool,
    /// Polls since it was looked for whom is waited.
    pub(super) polls: u32,
    /// When that was, of a process that asks now and then.
    pub(super) looked: Option<Instant>,
    /// Connects under way, during which nobody is taken leave of: whom both sides know then they know after it.
    pub(super) connects: u32,
    /// Whom to take leave of after them.
    pub(super) held: Vec<Peer>,
}
