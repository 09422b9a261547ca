//! The device memory that two processes of a node have told each other of ([`super::device`]).

use std::collections::VecDeque;

use super::ring::{DATA, SlotData};
use crate::device::{Export, Import, RECORD};

/// How many allocations of a peer are known at a time. Freed ones are among them: a mapping keeps their memory.
const KNOWN: usize = 64;

/// The bytes of a record in one slot.
pub(super) const SLICE: usize = DATA - 8;
const SLICES: usize = RECORD.div_ceil(SLICE);

/// What this process has told one peer.
#[derive(Debug, Default)]
pub(super) struct Exports {
    pub(super) told: VecDeque<u64>,
    /// The last allocation that could not be exported.
    pub(super) refused: Option<u64>,
}

/// What one peer has told this process.
#[derive(Debug)]
pub(super) struct Imports {
    pub(super) known: VecDeque<Import>,
    /// The slices of a record of which some are here.
    record: [[u8; SLICE]; SLICES],
    /// How many are.
    slices: usize,
}

impl Exports {
    /// This allocation has been told.
    pub(super) fn add(&mut self, id: u64) {
        if self.told.len() >= KNOWN {
            self.told.pop_front();
        }
        self.told.push_back(id);
    }
}

impl Default for Imports {
    fn default() -> Self {
        Self { known: VecDeque::new(), record: [[0; SLICE]; SLICES], slices: 0 }
    }
}

impl Imports {
    /// Takes a slice of a record; an earlier record may be incomplete, if there was no room for the rest of it.
    #[cold]
    pub(super) fn on_export(&mut self, data: &SlotData) {
        let number = data.word(0) as usize;
        if number == 0 {
            self.slices = 0;
        }
        if number != self.slices || number >= SLICES {
            return;
        }
        self.record[number].copy_from_slice(&data.0[8..]);
        self.slices += 1;
        if self.slices == SLICES
            && let Some(record) = self.record.as_flattened().first_chunk()
        {
            let export = Export::decode(record);
            self.known.retain(|known| !known.overlaps(&export));
            if self.known.len() >= KNOWN {
                self.known.pop_front();
            }
            self.known.push_back(Import::new(export));
        }
    }
}

#[cfg(test)]
#[cfg(not(loom))]
mod tests {
    use super::*;

    fn slot(number: u64, byte: u8) -> SlotData {
        let mut data = [byte; DATA];
        data[..8].copy_from_slice(&number.to_ne_bytes());
        SlotData(data)
    }

    #[test]
    fn a_record_counts_once_all_its_slices_are_here_in_order() {
        let mut imports = Imports::default();
        imports.on_export(&slot(1, 1));
        assert_eq!(imports.known.len(), 0, "its first slice is missing");
        imports.on_export(&slot(0, 1));
        imports.on_export(&slot(0, 1));
        imports.on_export(&slot(1, 1));
        assert_eq!(imports.known.len(), 1);
        imports.on_export(&slot(2, 1));
        imports.on_export(&slot(u64::MAX, 1));
        assert_eq!(imports.known.len(), 1, "no such slices");
        // The same range again: the older allocation is freed.
        imports.on_export(&slot(0, 1));
        imports.on_export(&slot(1, 1));
        assert_eq!(imports.known.len(), 1);
    }

    #[test]
    fn both_sides_forget_the_same_allocation() {
        let (mut exports, mut imports) = (Exports::default(), Imports::default());
        for id in 0..KNOWN as u64 + 3 {
            exports.add(id);
            let mut record = [0_u8; 2 * SLICE];
            for (place, word) in record.chunks_mut(8).zip([id, id << 20, 1 << 20]) {
                place.copy_from_slice(&word.to_ne_bytes());
            }
            for (number, slice) in (0_u64..).zip(record.chunks(SLICE)) {
                let mut data = slot(number, 0);
                data.0[8..].copy_from_slice(slice);
                imports.on_export(&data);
            }
        }
        assert_eq!((exports.told.len(), imports.known.len()), (KNOWN, KNOWN));
        for id in exports.told {
            assert!(imports.known.iter().any(|known| known.holds(id << 20, 1 << 20)), "{id}");
        }
    }
}
