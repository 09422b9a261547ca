//! Messages between processes of a node whose bytes lie in a device's memory.
//!
//! The sender exports the allocation once, and tells each peer its handle before the first message from it:
//!
//! ```text
//!  EXPORT, two slots:  | part: u64 | 48 bytes of the record |
//! ```
//!
//! Each announcement names the address of the message; the receiver, whose memory is a device's too, maps the allocation once and lets
//! its device copy. If either of them cannot, the message goes through cells, as from other memory: the device fills and empties
//! those. It does too where that is faster: two processes that use one device without NVIDIA's multi-process service take turns on it, and
//! each turn costs about 150 us. So both ways are measured, for each length ([`super::choice`]).
//!
//! Both keep the last [`KNOWN`] allocations of a peer in the same order, so the sender knows what the receiver still has. The receiver also
//! drops what a new allocation overlaps (it is freed), so it forgets an allocation that still exists no earlier than the sender.

use std::collections::VecDeque;

use super::choice::{Way, ticks};
use super::link::{Arriving, LinkState, device_class};
use super::ring::{DATA, SlotData};
use super::{EXPORT, Shm, put};
use crate::device::{Export, Import, Part, RECORD};
use crate::engine::{PullRefused, Pulled, Region};
use crate::memory::Buffer;

/// In the ticket of a region: its address is one of device memory.
pub(super) const ON_DEVICE: u32 = 1 << 31;
/// Up to this many bytes, a message from a device goes through a cell: longer ones are copied by the device alone.
pub(super) const EAGER: usize = 2 << 10;
/// How many allocations of a peer are known at a time. Freed ones are among them: a mapping keeps their memory.
const KNOWN: usize = 64;

/// The bytes of a record in one slot.
const SLICE: usize = DATA - 8;
const SLICES: usize = RECORD.div_ceil(SLICE);

/// What this process has told one peer.
#[derive(Debug, Default)]
pub(super) struct Exports {
    told: VecDeque<u64>,
    /// The last allocation that could not be exported.
    refused: Option<u64>,
}

/// What one peer has told this process.
#[derive(Debug)]
pub(super) struct Imports {
    known: VecDeque<Import>,
    /// The slices of a record of which some are here.
    record: [[u8; SLICE]; SLICES],
    /// How many are.
    slices: usize,
}

impl Exports {
    fn add(&mut self, id: u64) {
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

impl Shm {
    /// Offers a message in device memory; `None` if the peer must get it through cells.
    pub(super) fn offer_device(&mut self, index: usize, buffer: &Buffer, part: &Part) -> Option<Region> {
        if !self.config.device_ipc {
            return None;
        }
        let (id, address) = (Export::id_of(part)?, part.address()?);
        let LinkState::Up(up) = &mut self.links[index].state else { return None };
        if up.exports.refused == Some(id) {
            return None;
        }
        if !up.exports.told.contains(&id) {
            let Some(export) = Export::of(part) else {
                up.exports.refused = Some(id);
                return None;
            };
            for (number, slice) in export.encode().chunks(SLICE).enumerate() {
                let put = put(&self.segment, up, EXPORT, |data| {
                    let mut bytes = [0; SLICE];
                    bytes[..slice.len()].copy_from_slice(slice);
                    data.put(0, (number as u64).to_ne_bytes());
                    data.put(8, bytes);
                });
                if !put {
                    return None;
                }
            }
            up.exports.add(id);
        }
        Some(Region { address, ticket: ON_DEVICE | self.offers.add(index as u16, buffer.clone()) })
    }

    /// Copies a message from a peer's device memory.
    pub(super) fn pull_device(
        &mut self,
        index: usize,
        region: Region,
        into: &Buffer,
        len: usize,
    ) -> Result<Pulled, PullRefused> {
        let (Some(part), true) = (into.device(), self.config.device_ipc) else { return Err(PullRefused) };
        let LinkState::Up(up) = &mut self.links[index].state else { return Err(PullRefused) };
        let known = &mut up.imports.known;
        let import = known.iter_mut().find(|known| known.holds(region.address, len)).ok_or(PullRefused)?;
        let since = ticks();
        let choice = &mut up.devices[device_class(len)];
        if let (Way::First, _) = choice.choose() {
            up.arriving.get_or_insert(Arriving { since, len, left: len, between_devices: true });
            return Err(PullRefused);
        }
        if !import.read(region.address, part, len) {
            return Err(PullRefused);
        }
        choice.learn_least(Way::Second, ticks() - since, len);
        if self.has_retracted(index) { Err(PullRefused) } else { Ok(Pulled::Now) }
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
