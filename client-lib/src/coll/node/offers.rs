//! Long blocks of an alltoall whose blocks differ in length: a member leaves the addresses of its blocks, and the others read them from its
//! memory, as in [`super::pull`].
//!
//! ```text
//!  slot of a member:   | pid | word's address | word | length, address | length, address | …      a pair for each other member
//! ```
//!
//! A member that has only short blocks leaves these as in every call. Which of the two it has done follows from the longest of its blocks, which
//! it says with its stamp.

#![expect(unsafe_code, reason = "what a member has left is read through a pointer")]

use super::Node;
use super::mailboxes::Mailboxes;
use super::pull::IDENTITY;
use crate::memory::{Buffer, Room};
use crate::shared_memory::cma;

/// In larger communicators, a member would make so many short reads that pieces of the blocks in slots are faster.
const MOST_MEMBERS: u32 = 16;

/// Blocks that are not contiguous, or that the member overwrites, are copied before they are read by the others: at most so many bytes.
const KEPT: usize = 16 << 20;

/// As the longest block in a stamp: this member cannot offer its blocks, so all members send messages.
pub(super) const NONE: u64 = u32::MAX as u64;

const WORD: usize = 8;

/// The blocks of one member. Empty if it cannot offer them.
#[derive(Debug, Default)]
pub(super) struct Offers {
    /// The length and the address of the block for each other member.
    blocks: Vec<[u64; 2]>,
    /// A copy of the blocks, one after the other in the order of the members, if there must be one.
    kept: Vec<u8>,
}

/// Whether members of this communicator offer the blocks that are too long for one operation.
pub(super) fn are_made(node: &Node) -> bool {
    node.pulls() && node.size() <= MOST_MEMBERS
}

/// The bytes that a member leaves.
pub(super) fn len(others: usize) -> usize {
    (IDENTITY + 2 * others) * WORD
}

impl Offers {
    /// Of these blocks, one for each other member. `None` if they must be copied, and the copy would be too long or
    /// there is not enough memory for it.
    /// `may_lend`: the blocks stay as they are until the call is over.
    pub(super) fn new<'a>(blocks: impl Iterator<Item = &'a Buffer> + Clone, may_lend: bool) -> Option<Self> {
        let addresses = || blocks.clone().map(|block| Some([block.len() as u64, block.as_contiguous()? as u64]));
        if may_lend && let Some(blocks) = addresses().collect() {
            return Some(Self { blocks, kept: Vec::new() });
        }
        let whole: usize = blocks.clone().map(Buffer::len).sum();
        let mut kept = Vec::new();
        if whole > KEPT || kept.try_reserve_exact(whole).is_err() {
            return None;
        }
        kept.resize(whole, 0);
        let (start, mut end) = (kept.as_ptr() as u64, 0);
        let blocks = blocks
            .map(|block| {
                let at = end;
                end += block.len();
                block.read(0, &mut kept[at..end]);
                [block.len() as u64, start + at as u64]
            })
            .collect();
        Some(Self { blocks, kept })
    }

    /// Leaves them.
    pub(super) fn leave(&self, identity: [u64; IDENTITY], slot: &Room<'_>) {
        let words = identity.into_iter().chain(self.blocks.iter().copied().flatten());
        for (index, word) in words.enumerate() {
            slot.put(index * WORD, word.to_ne_bytes());
        }
    }

    /// Writes the kept copy back into the blocks.
    pub(super) fn restore<'a>(&self, blocks: impl Iterator<Item = &'a Buffer>) {
        let mut rest = &self.kept[..];
        for block in blocks {
            if let Some((own, others)) = rest.split_at_checked(block.len()) {
                block.write(0, own);
                rest = others;
            }
        }
    }
}

/// Where a block lies in the memory of another member.
#[derive(Debug, Clone, Copy)]
pub(super) struct Place {
    pid: i32,
    address: u64,
}

/// The length of the block that a member offers to this one, and its place; `None` if the member's memory cannot be read.
pub(super) fn of(node: &mut Node, number: u64, member: u32) -> Option<(usize, Place)> {
    let (others, index) = (node.size() as usize - 1, node.index_at(member));
    let mut words = [0; IDENTITY + 2];
    node.with_data(number, member, len(others), |data| {
        for (nth, word) in words.iter_mut().enumerate() {
            let at = if nth < IDENTITY { nth } else { nth + 2 * index };
            // SAFETY: a member that has arrived with such a stamp has left this many bytes; their alignment is unknown.
            *word = unsafe { data.cast::<u64>().add(at).read_unaligned() };
        }
    });
    let [identity @ .., len, address] = words;
    Some((usize::try_from(len).unwrap_or(usize::MAX), Place { pid: node.process(identity, member)?, address }))
}

impl Place {
    /// Reads as many bytes as the buffer takes; `None` if that fails.
    pub(super) fn read_into(self, buffer: &Buffer) -> Option<()> {
        cma::read(self.pid, self.address, buffer, 0, buffer.len()).ok()
    }
}
