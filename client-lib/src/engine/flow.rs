//! Flow control: messages that no receive takes must not fill the memory of their receiver. Here is the rule; `holding` follows it.
//!
//! A process counts the bytes of unreceived messages that it stores for each peer. A peer that has more stored than is still free is told to
//! announce its further messages (`Frame::Hold`): those stay in the sender's memory, and its blocking sends wait for their receives.
//! Once most of what it has sent is received, it may send as before. One such peer fills half of the memory at most, n of them n/(n+1), and
//! there is always room for others (Choudhury and Hahne, dynamic queue length thresholds). Above that comes what is under way when
//! the order is given.
//!
//! Only messages that find no receive are counted, so others cost nothing; those to the process itself are not. A sender that never waits
//! looks for orders once in [`LOOK_EVERY`] messages.

use super::state::Content;

/// All peers together are to store no more than about this many bytes here.
const STORED_MAX: usize = 64 << 20;
/// A peer may always store this much.
const FLOOR: usize = 256 << 10;
/// The cost of keeping a message, besides its bytes.
const OVERHEAD: usize = 128;
/// A sender polls once in this many messages: a power of two.
pub(super) const LOOK_EVERY: u64 = 256;

/// How many bytes are stored, and how many may be.
#[derive(Debug)]
pub(super) struct Flow {
    pub(super) stored: usize,
    pub(super) most: usize,
    pub(super) floor: usize,
}

impl Default for Flow {
    fn default() -> Self {
        Self { stored: 0, most: STORED_MAX, floor: FLOOR }
    }
}

impl Flow {
    /// How much one peer may store.
    pub(super) fn share(&self) -> usize {
        self.most.saturating_sub(self.stored).max(self.floor)
    }
}

/// The cost of a stored message: 0 if its bytes are not here.
pub(super) fn cost(content: &Content) -> usize {
    match content {
        Content::Bytes(bytes) | Content::Sync { bytes, .. } => cost_of(bytes.len()),
        Content::Ready(_) | Content::Own(_) => 0,
        Content::Signed(signed) => cost(&signed.1),
    }
}

#[inline]
pub(super) fn cost_of(bytes: usize) -> usize {
    bytes + OVERHEAD
}
