//! Memory of CUDA devices: which addresses lie in it, copies from and to it, and handles with which other processes of the node use it.
//!
//! A process that runs on a machine without NVIDIA's driver pays one load of a byte for each buffer. With the driver, an address in the
//! heap or on the stack of the main thread is told apart by comparing it; for any other one the driver is asked, once the program has
//! loaded it.
//!
//! The user's own work on the memory must be complete when it is passed to MPI, as for any other memory: a kernel that writes it has to be
//! waited for. The library copies in streams of its own, and every call that returns a result has waited for its copies.

#![expect(unsafe_code, reason = "asks the C library for addresses of this process")]

mod context;
mod driver;
mod finder;
mod ipc;
mod part;
mod turns;

use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

pub use context::{CHUNK, Pinned};
pub use finder::{Found, find};
pub use ipc::{Export, Import, RECORD};
pub use part::Part;

/// Whether the library looks for device memory.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum Wanted {
    /// If this machine has the driver's device files.
    #[default]
    Auto,
    /// In any case.
    On,
    /// Never: device memory passed to MPI is treated as memory of the host.
    Off,
}

static ENABLED: AtomicBool = AtomicBool::new(false);
/// The program's image and its heap lie between this address and the end of the heap.
static IMAGE: AtomicUsize = AtomicUsize::new(usize::MAX);
/// The main thread's stack ends near this address.
static STACK_END: AtomicUsize = AtomicUsize::new(0);

/// The kernel keeps at least this distance between the main thread's stack and the nearest mapping.
const STACK_GAP: usize = 128 << 20;

/// The files that show a driver: of a workstation or server, of Windows' subsystem for Linux, of the boards with an integrated device.
const FILES: [&str; 3] = ["/dev/nvidiactl", "/dev/dxg", "/dev/nvgpu"];

/// Decides whether this process looks for device memory; called in `MPI_Init`.
pub fn enable(wanted: Wanted) {
    let enabled = match wanted {
        Wanted::Auto => FILES.iter().any(|file| std::path::Path::new(file).exists()),
        Wanted::On => true,
        Wanted::Off => false,
    };
    if enabled {
        // SAFETY: takes numbers. AT_PHDR is an address near the start of the program's image, AT_RANDOM one above the stack.
        let [image, top] = unsafe { [libc::getauxval(libc::AT_PHDR), libc::getauxval(libc::AT_RANDOM)] };
        IMAGE.store(image as usize & !0xfff, Ordering::Relaxed);
        STACK_END.store(top as usize, Ordering::Relaxed);
    }
    ENABLED.store(enabled, Ordering::Relaxed);
}

/// Whether this process looks for device memory.
#[inline(always)]
pub fn is_enabled() -> bool {
    ENABLED.load(Ordering::Relaxed)
}

/// The value of the info key `mpi_memory_alloc_kinds`: the kinds of memory that buffers may lie in.
pub fn kinds() -> &'static str {
    if is_enabled() { "system,mpi,cuda:host,cuda:device,cuda:managed" } else { "system,mpi" }
}

/// Whether an address may be that of device memory. For the heap and the stack of the main thread it is not.
#[inline(always)]
pub fn may_hold(address: *const u8) -> bool {
    is_enabled() && !is_plain(address.addr())
}

/// Whether an address lies in the program's image, in its heap, or on the main thread's stack.
fn is_plain(address: usize) -> bool {
    let here = (&raw const address).addr();
    let top = STACK_END.load(Ordering::Relaxed);
    if (here..=top).contains(&address) && top - here < STACK_GAP {
        return true;
    }
    // SAFETY: moves nothing; the C library returns the end of the heap.
    let heap_end = unsafe { libc::sbrk(0) }.addr();
    (IMAGE.load(Ordering::Relaxed)..heap_end).contains(&address)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn heap_and_image_are_known_without_asking() {
        enable(Wanted::Auto);
        let was = is_enabled();
        enable(Wanted::On);
        assert!(is_enabled());
        static WORD: u32 = 1;
        assert!(!may_hold((&raw const WORD).cast()) || IMAGE.load(Ordering::Relaxed) == usize::MAX);
        // A mapping of its own must be asked about.
        let mapped = vec![0_u8; 64 << 20];
        assert!(may_hold(mapped.as_ptr()));
        assert!(find(mapped.as_ptr()).unwrap().is_none(), "no program of these tests loads the driver");
        enable(Wanted::Off);
        assert!(!may_hold(mapped.as_ptr()));
        enable(if was { Wanted::On } else { Wanted::Off });
    }
}
