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
//! Both keep the last [`KNOWN`](super::allocations) allocations of a peer in the same order, so the sender knows what the receiver still has. The receiver also
//! drops what a new allocation overlaps (it is freed), so it forgets an allocation that still exists no earlier than the sender.

use super::allocations::SLICE;
use super::choice::{Way, ticks};
use super::link::{Arriving, LinkState, device_class};
use super::{EXPORT, Shm, put};
use crate::device::{Export, Part};
use crate::engine::{PullRefused, Pulled, Region};
use crate::memory::Buffer;

/// In the ticket of a region: its address is one of device memory.
pub(super) const ON_DEVICE: u32 = 1 << 31;
/// Up to this many bytes, a message from a device goes through a cell: longer ones are copied by the device alone.
pub(super) const EAGER: usize = 2 << 10;
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
            up.arriving.get_or_insert(Arriving { since, len, left: len });
            return Err(PullRefused);
        }
        if !import.read(region.address, part, len) {
            return Err(PullRefused);
        }
        choice.learn_least(Way::Second, ticks() - since, len);
        if self.has_retracted(index) { Err(PullRefused) } else { Ok(Pulled::Now) }
    }
}
