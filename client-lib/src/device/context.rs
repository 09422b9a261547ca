//! The CUDA contexts in which this process has memory, with what the copies of each need: a stream, events; and the pinned chunks.

#![expect(unsafe_code, reason = "calls of the CUDA driver")]

use std::ffi::c_void;
use std::mem::ManuallyDrop;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use super::driver::{Address, Code, Driver, Handle, attribute, driver};

/// A context of the program.
#[derive(Debug)]
pub(super) struct Context {
    pub(super) driver: &'static Driver,
    handle: Handle,
    /// What tells it apart from a later context with the same handle; 0 if the driver cannot tell.
    id: u64,
    /// This library's own, one for each [`Way`], which wait for no other stream.
    streams: [Handle; 2],
    /// Events that are not in use.
    events: Mutex<Vec<Handle>>,
}

/// The direction of a copy, seen from the device memory that the user lends.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Way {
    /// The memory is read.
    Out,
    /// It is written.
    In,
}

/// `CU_STREAM_NON_BLOCKING`, `CU_EVENT_DISABLE_TIMING`, `CU_MEMHOSTREGISTER_PORTABLE`.
const NON_BLOCKING: u32 = 1;
const DISABLE_TIMING: u32 = 2;
const PORTABLE: u32 = 1;

static CONTEXTS: Mutex<Vec<Arc<Context>>> = Mutex::new(Vec::new());
/// Memory of the host for the elements of reductions, to be used again.
static PINNED: Mutex<Vec<Pinned>> = Mutex::new(Vec::new());
static CHUNKS: Mutex<Chunks> = Mutex::new(Chunks { free: Vec::new(), slabs: Vec::new() });

/// The bytes of a chunk: long enough for the speed of a copy on the host, short enough that the first one is soon there.
pub const CHUNK: usize = 128 << 10;
/// Chunks are allocated by so many, and at most so often.
const SLAB: usize = 16;
const SLABS: usize = 8;
/// The last chunks are for copies that have none yet.
const RESERVE: usize = 48;

fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Context {
    /// The context of a handle; of the device's primary context if that is 0, as for memory of a pool.
    pub(super) fn find(handle: Handle, device: i32) -> Result<Arc<Self>, Code> {
        let driver = driver().ok_or(super::driver::DEINITIALIZED)?;
        let is_primary = handle == 0;
        let handle = if is_primary { retain_primary(driver, device)? } else { handle };
        let mut id = 0;
        if let Some(function) = driver.context_id {
            // SAFETY: a context of the program, and a place for a number.
            checked(unsafe { function(handle, &raw mut id) })?;
        }
        let mut known = locked(&CONTEXTS);
        if let Some(found) = known.iter().find(|it| (it.handle, it.id) == (handle, id)) {
            if is_primary {
                // One hold on it is enough, which this process keeps: memory of a pool does not keep a context.
                // SAFETY: releases what was retained above.
                unsafe { (driver.release_primary)(device) };
            }
            return Ok(Arc::clone(found));
        }
        // An earlier one with this handle is destroyed, and its streams and events with it.
        known.retain(|it| it.handle != handle);
        let mut streams = [0; 2];
        entered(driver, handle, || {
            for stream in &mut streams {
                // SAFETY: a place for a handle.
                checked(unsafe { (driver.new_stream)(stream, NON_BLOCKING) })?;
            }
            locked(&CHUNKS).pin_again(driver);
            locked(&PINNED).iter().for_each(|kept| pin(driver, kept.start, kept.len));
            Ok(())
        })?;
        let made = Arc::new(Self { driver, handle, id, streams, events: Mutex::default() });
        known.push(Arc::clone(&made));
        Ok(made)
    }

    /// Whether the other one is destroyed, and this one has its handle.
    pub(super) fn replaces(&self, other: &Self) -> bool {
        self.handle == other.handle && self.id != other.id
    }

    /// Whether an address belongs to memory of this context, which then exists.
    pub(super) fn holds(&self, address: Address) -> bool {
        let (mut owner, mut attribute) = (0_usize, attribute::CONTEXT);
        let mut place = (&raw mut owner).cast::<c_void>();
        // SAFETY: one attribute, and a place of its size.
        let code = unsafe { (self.driver.attributes)(1, &raw mut attribute, &raw mut place, address) };
        code == 0 && owner == self.handle
    }

    /// Runs a closure with this context as the thread's current one. It must exist: memory of it is in use.
    pub(super) fn enter<T>(&self, body: impl FnOnce() -> Result<T, Code>) -> Result<T, Code> {
        entered(self.driver, self.handle, body)
    }

    /// The stream of the copies of this direction.
    pub(super) fn stream(&self, way: Way) -> Handle {
        self.streams[way as usize]
    }

    /// Waits until all copies of this direction are done; call it within [`Context::enter`].
    pub(super) fn finish(&self, way: Way) -> Result<(), Code> {
        // SAFETY: this context's stream.
        checked(unsafe { (self.driver.await_stream)(self.stream(way)) })
    }

    /// Marks the end of the copies of this direction so far; call it within [`Context::enter`].
    pub(super) fn mark(&self, way: Way) -> Result<Event, Code> {
        let unused = locked(&self.events).pop();
        let event = match unused {
            Some(event) => event,
            None => {
                let mut event = 0;
                // SAFETY: a place for a handle.
                checked(unsafe { (self.driver.new_event)(&raw mut event, DISABLE_TIMING) })?;
                event
            }
        };
        // SAFETY: an event and the stream of this context.
        checked(unsafe { (self.driver.record)(event, self.stream(way)) })?;
        Ok(Event(event))
    }

    /// Waits until the copies before a mark are done; call it within [`Context::enter`].
    pub(super) fn wait(&self, event: Event) -> Result<(), Code> {
        // SAFETY: an event of this context.
        let result = checked(unsafe { (self.driver.await_event)(event.0) });
        self.forget(event);
        result
    }

    /// The mark is not needed any more.
    pub(super) fn forget(&self, event: Event) {
        locked(&self.events).push(event.0);
    }
}

/// The mark that [`Context::mark`] sets.
#[derive(Debug)]
pub(super) struct Event(Handle);

/// A result of the driver.
pub(super) fn checked(code: Code) -> Result<(), Code> {
    if code == 0 { Ok(()) } else { Err(code) }
}

/// The primary context of a device, with a hold on it.
fn retain_primary(driver: &Driver, device: i32) -> Result<Handle, Code> {
    let mut handle = 0;
    // SAFETY: a place for a handle.
    checked(unsafe { (driver.retain_primary)(&raw mut handle, device) })?;
    Ok(handle)
}

fn entered<T>(driver: &Driver, handle: Handle, body: impl FnOnce() -> Result<T, Code>) -> Result<T, Code> {
    let mut current = 0;
    // SAFETY: a place for a handle.
    let is_current = unsafe { (driver.current)(&raw mut current) } == 0 && current == handle;
    if is_current {
        return body();
    }
    // SAFETY: a context of the program.
    checked(unsafe { (driver.push)(handle) })?;
    let result = body();
    // SAFETY: takes back what was pushed above.
    unsafe { (driver.pop)(&raw mut current) };
    result
}

/// Memory of the host that devices reach directly.
#[derive(Debug)]
struct Chunks {
    free: Vec<usize>,
    /// Addresses; mapped by this library, so that they outlive every context.
    slabs: Vec<usize>,
}

impl Chunks {
    /// Memory is pinned in a context, and no longer when that is destroyed.
    fn pin_again(&self, driver: &Driver) {
        for slab in &self.slabs {
            pin(driver, *slab, SLAB * CHUNK);
        }
    }
}

/// If this fails, copies are slower, but right.
fn pin(driver: &Driver, start: usize, len: usize) {
    // SAFETY: this library's own memory, which is never freed.
    unsafe { (driver.register)(std::ptr::with_exposed_provenance_mut(start), len, PORTABLE) };
}

/// New memory; `None` if there is none.
fn mapped(len: usize) -> Option<usize> {
    let (access, kind) = (libc::PROT_READ | libc::PROT_WRITE, libc::MAP_PRIVATE | libc::MAP_ANONYMOUS);
    // SAFETY: asks for new memory.
    let start = unsafe { libc::mmap(std::ptr::null_mut(), len, access, kind, -1, 0) };
    if start == libc::MAP_FAILED {
        return None;
    }
    // A child gets none of it: on older kernels, the pages that the device knows would stay with the child.
    // SAFETY: the memory that was just mapped.
    unsafe { libc::madvise(start, len, libc::MADV_DONTFORK) };
    Some(start.expose_provenance())
}

/// Memory of the host that devices reach directly; it is kept for the next use.
#[derive(Debug)]
pub struct Pinned {
    start: usize,
    len: usize,
}

/// At most so much of this memory exists, in bytes; elements beyond that are staged elsewhere.
const PINNED_MAX: usize = 256 << 20;
static PINNED_BYTES: AtomicUsize = AtomicUsize::new(0);

impl Pinned {
    /// At least `len` bytes; `None` if too much is in use. Call it within [`Context::enter`].
    pub(super) fn take(driver: &Driver, len: usize) -> Option<Self> {
        let mut kept = locked(&PINNED);
        // Powers of two, so that they fit the next uses; but a short use does not take a long piece. Those that do not fit make room.
        let len = len.max(1 << 20).checked_next_power_of_two().filter(|len| *len <= PINNED_MAX)?;
        let fits = |it: &Self| (len..=4 * len).contains(&it.len);
        let fitting = kept.iter().enumerate().filter(|(_, it)| fits(it)).min_by_key(|(_, it)| it.len);
        if let Some(index) = fitting.map(|(index, _)| index) {
            return Some(kept.swap_remove(index));
        }
        while PINNED_BYTES.load(Ordering::Relaxed) > PINNED_MAX - len {
            kept.pop()?.unmap(driver);
        }
        let start = mapped(len)?;
        pin(driver, start, len);
        PINNED_BYTES.fetch_add(len, Ordering::Relaxed);
        Some(Self { start, len })
    }

    /// Gives the memory back to the system.
    fn unmap(self, driver: &Driver) {
        let this = ManuallyDrop::new(self);
        let start = std::ptr::with_exposed_provenance_mut(this.start);
        // SAFETY: this value's own memory, to which nothing else refers. If it was not pinned, the driver says so.
        unsafe {
            (driver.unregister)(start);
            libc::munmap(start, this.len);
        }
        PINNED_BYTES.fetch_sub(this.len, Ordering::Relaxed);
    }

    /// Its first byte.
    pub fn start(&self) -> *mut u8 {
        std::ptr::with_exposed_provenance_mut(self.start)
    }
}

impl Drop for Pinned {
    fn drop(&mut self) {
        locked(&PINNED).push(Self { start: self.start, len: self.len });
    }
}

/// [`CHUNK`] bytes of pinned memory, which go back when it is dropped.
#[derive(Debug)]
pub(super) struct Chunk(usize);

impl Chunk {
    /// `None` if all are in use; the last ones are only for copies that have no chunk yet (`is_first`). Call it within [`Context::enter`].
    pub(super) fn take(driver: &Driver, is_first: bool) -> Option<Self> {
        let mut chunks = locked(&CHUNKS);
        if !is_first && chunks.slabs.len() == SLABS && chunks.free.len() <= RESERVE {
            return None;
        }
        if chunks.free.is_empty()
            && chunks.slabs.len() < SLABS
            && let Some(slab) = mapped(SLAB * CHUNK)
        {
            pin(driver, slab, SLAB * CHUNK);
            chunks.slabs.push(slab);
            chunks.free.extend((0..SLAB).rev().map(|index| slab + index * CHUNK));
        }
        chunks.free.pop().map(Self)
    }

    /// Its first byte.
    pub(super) fn start(&self) -> *mut u8 {
        std::ptr::with_exposed_provenance_mut(self.0)
    }
}

impl Drop for Chunk {
    fn drop(&mut self) {
        locked(&CHUNKS).free.push(self.0);
    }
}
