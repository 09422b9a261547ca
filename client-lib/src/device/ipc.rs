//! Device memory of other processes of this node: an allocation is exported once, and imported once by each process that reads it.

#![expect(unsafe_code, reason = "calls of the CUDA driver")]

use std::sync::Arc;

use super::context::{Context, checked};
use super::driver::{IpcHandle, attribute};
use super::part::Part;

/// What a process must know to use an allocation of another one.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Export {
    /// Unique in the process that exports it.
    pub id: u64,
    start: u64,
    size: u64,
    handle: IpcHandle,
}

/// The length of an encoded [`Export`].
pub const RECORD: usize = 88;

/// `CU_IPC_MEM_LAZY_ENABLE_PEER_ACCESS`.
const LAZY_PEER_ACCESS: u32 = 1;

impl Export {
    /// Exports the allocation of a part; `None` if the driver cannot (memory of a pool, managed memory, some containers), or if the part
    /// is not all in it.
    pub fn of(part: &Part) -> Option<Self> {
        let (found, address) = (part.found, part.address()?);
        if found.is_managed || found.context == 0 {
            return None;
        }
        let mut handle = IpcHandle([0; 64]);
        let exported = part.context.enter(|| {
            // SAFETY: the start of an allocation, and a place for a handle.
            checked(unsafe { (part.context.driver.export)(&raw mut handle, found.start) })?;
            // Copies of the program that the driver would only start are then complete when they return, as the reader expects.
            let yes = 1_u32;
            // SAFETY: the attribute's value, and an address in the allocation.
            checked(unsafe {
                (part.context.driver.set_attribute)((&raw const yes).cast(), attribute::SYNC_MEMOPS, address)
            })
        });
        exported.is_ok().then_some(Self { id: found.id, start: found.start, size: found.size, handle })
    }

    /// The id of the allocation that a part lies in, if it may be exported.
    pub fn id_of(part: &Part) -> Option<u64> {
        let (found, address) = (part.found, part.address()?);
        let is_inside = address >= found.start && part.len as u64 <= (found.start + found.size).saturating_sub(address);
        (is_inside && !found.is_managed && found.context != 0).then_some(found.id)
    }

    /// In native byte order, for a process on the same machine.
    pub fn encode(&self) -> [u8; RECORD] {
        let mut bytes = [0; RECORD];
        for (place, word) in bytes.chunks_exact_mut(8).zip([self.id, self.start, self.size]) {
            place.copy_from_slice(&word.to_ne_bytes());
        }
        bytes[24..].copy_from_slice(&self.handle.0);
        bytes
    }

    /// Reverts [`Export::encode`].
    pub fn decode(bytes: &[u8; RECORD]) -> Self {
        let word = |at: usize| u64::from_ne_bytes(*bytes[at..].first_chunk().unwrap_or(&[0; 8]));
        let mut handle = IpcHandle([0; 64]);
        handle.0.copy_from_slice(&bytes[24..]);
        Self { id: word(0), start: word(8), size: word(16), handle }
    }
}

/// An allocation of another process.
#[derive(Debug)]
pub struct Import {
    export: Export,
    /// Where it is mapped, in each context that has used it: a mapping ends with its context.
    mapped: Vec<(Arc<Context>, u64)>,
    /// The driver has refused: it is not asked again.
    is_refused: bool,
}

impl Import {
    /// Maps nothing yet.
    pub fn new(export: Export) -> Self {
        Self { export, mapped: Vec::new(), is_refused: false }
    }

    /// Whether `len` bytes at an address of the other process lie in it.
    pub fn holds(&self, address: u64, len: usize) -> bool {
        let Export { start, size, .. } = self.export;
        address >= start && address - start <= size && len as u64 <= size - (address - start)
    }

    /// Whether both cannot exist at the same time.
    pub fn overlaps(&self, other: &Export) -> bool {
        let mine = &self.export;
        mine.start < other.start.saturating_add(other.size) && other.start < mine.start.saturating_add(mine.size)
    }

    /// Copies `len` bytes at an address of the other process over the first bytes of a part; returns false if the driver does not
    /// permit it. Other failures are the part's ([`Part::settle`]).
    pub fn read(&mut self, address: u64, into: &Part, len: usize) -> bool {
        let Some(start) = self.start_in(&into.context) else { return false };
        into.write_from(0, start + (address - self.export.start), len);
        true
    }

    /// Its first address in a context.
    fn start_in(&mut self, context: &Arc<Context>) -> Option<u64> {
        if let Some((_, start)) = self.mapped.iter().find(|(known, _)| Arc::ptr_eq(known, context)) {
            return Some(*start);
        }
        if self.is_refused {
            return None;
        }
        let mut start = 0;
        let mapped = context.enter(|| {
            // SAFETY: a handle that the driver checks, and a place for an address.
            checked(unsafe { (context.driver.import)(&raw mut start, self.export.handle, LAZY_PEER_ACCESS) })
        });
        self.is_refused = mapped.is_err();
        self.mapped.retain(|(known, _)| !context.replaces(known));
        mapped.is_ok().then(|| {
            self.mapped.push((Arc::clone(context), start));
            start
        })
    }
}

impl Drop for Import {
    fn drop(&mut self) {
        for (context, start) in &self.mapped {
            // The driver frees a context's memory with it, and must not be asked to enter it again: with the context, the mapping has ended.
            if context.holds(*start) {
                // SAFETY: what `start_in` has mapped.
                let _ = context.enter(|| checked(unsafe { (context.driver.end_import)(*start) }));
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_record_has_all_that_an_export_has() {
        let mut handle = IpcHandle([7; 64]);
        handle.0[63] = 9;
        let export = Export { id: 5, start: 1 << 40, size: 1 << 21, handle };
        assert_eq!(Export::decode(&export.encode()), export);
        let import = Import::new(export);
        assert!(import.holds(1 << 40, 1 << 21) && import.holds((1 << 40) + 1, (1 << 21) - 1));
        assert!(!import.holds((1 << 40) + 1, 1 << 21) && !import.holds((1 << 40) - 1, 1));
        assert!(!import.holds(u64::MAX, 1) && import.holds((1 << 40) + (1 << 21), 0));
        assert!(import.overlaps(&export) && !import.overlaps(&Export { start: (1 << 40) + (1 << 21), ..export }));
    }
}
