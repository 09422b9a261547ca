//! A part of the user's device memory, and the copies between it and the host.
//!
//! Copies go through pinned chunks of memory: the device fills or empties one while the processor works on another. A part that a
//! message streams through ([`Part::streamed`]) is read ahead and written behind; all other copies are complete when they return.
//! Memory with holes is copied by rows: a vector takes one copy for each chunk, whatever its number of blocks.

#![expect(unsafe_code, reason = "calls of the CUDA driver, and copies from and to chunks of this library")]

mod runs;
mod streaming;

use std::sync::atomic::{AtomicI32, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Instant;

use super::context::{Context, Pinned, Way};
use super::driver::Code;
use super::finder::Found;
use super::turns;
use crate::datatype::Layout;
use crate::error::{MpiError, MpiResult};
use streaming::{Ahead, Behind, Stream};

/// Device memory that the user lends, or a part of it, in packed order.
#[derive(Debug)]
pub struct Part {
    pub(super) context: Arc<Context>,
    pub(super) found: Found,
    /// What the layout's offsets count from; without a layout, the address of the first byte of the whole.
    base: u64,
    layout: Option<Arc<Layout>>,
    /// The first packed byte of this part.
    start: usize,
    pub(super) len: usize,
    /// For a part that a message streams through.
    stream: Option<Mutex<Stream>>,
    /// The first failure that [`Part::settle`] has not reported, of the whole and of all its parts; 0 if there is none.
    fault: Arc<AtomicI32>,
}

/// What lies on the other side of a copy, contiguous.
#[derive(Debug, Clone, Copy)]
enum Other {
    Host(*mut u8),
    Device(u64),
}

impl Other {
    fn after(self, bytes: usize) -> Self {
        match self {
            Self::Host(place) => Self::Host(place.wrapping_add(bytes)),
            Self::Device(place) => Self::Device(place + bytes as u64),
        }
    }
}

impl Part {
    /// `len` packed bytes: of elements with a layout, the first at `base`, or without one, from `base` on. Fails with class
    /// `MPI_ERR_BUFFER` if the memory cannot be used.
    pub fn new(found: Found, base: *mut u8, layout: Option<Arc<Layout>>, len: usize) -> MpiResult<Arc<Self>> {
        let context =
            Context::find(found.context, found.device).map_err(|code| failed(None, base.addr() as u64, code))?;
        Ok(Arc::new(Self {
            context,
            found,
            base: base.addr() as u64,
            layout,
            start: 0,
            len,
            stream: None,
            fault: Arc::default(),
        }))
    }

    /// The part of `len` packed bytes that starts at `at`.
    #[cold]
    #[inline(never)]
    pub fn part(&self, at: usize, len: usize) -> Arc<Self> {
        self.piece(at, len, None)
    }

    /// The same part, to be read or written once, in order: then [`Part::settle`] must follow the last write.
    #[cold]
    #[inline(never)]
    pub fn streamed(&self) -> Arc<Self> {
        self.piece(0, self.len, Some(Mutex::default()))
    }

    fn piece(&self, at: usize, len: usize, stream: Option<Mutex<Stream>>) -> Arc<Self> {
        Arc::new(Self {
            context: Arc::clone(&self.context),
            found: self.found,
            base: self.base,
            layout: self.layout.clone(),
            start: self.start + at,
            len,
            stream,
            fault: Arc::clone(&self.fault),
        })
    }

    /// Passes the pieces that hold these packed bytes to `visit`, in packed order, until it returns false: addresses of the device.
    pub fn pieces(&self, at: usize, len: usize, visit: &mut dyn FnMut(*mut u8, usize) -> bool) {
        let base: *mut u8 = std::ptr::without_provenance_mut(self.base as usize);
        match &self.layout {
            None => drop(visit(base.wrapping_add(self.start + at), len)),
            Some(layout) => layout.pieces(base, self.start + at, len, visit),
        }
    }

    /// The elements' layout, and the first packed byte.
    pub fn layout(&self) -> Option<(&Layout, usize)> {
        self.layout.as_deref().map(|layout| (layout, self.start))
    }

    /// The address of the first byte, if the bytes are contiguous.
    pub fn address(&self) -> Option<u64> {
        self.layout.is_none().then(|| self.base + self.start as u64)
    }

    /// Copies packed bytes to the host.
    ///
    /// # Safety
    ///
    /// `len` bytes at `into` must be writable.
    #[cold]
    #[inline(never)]
    pub unsafe fn read(&self, at: usize, into: *mut u8, len: usize) {
        self.read_with(at, len, &mut |from, done, len| {
            // SAFETY: the caller's promise.
            unsafe { std::ptr::copy_nonoverlapping(from, into.add(done), len) };
            true
        });
    }

    /// As [`Part::read`], but passes the bytes on piece by piece: their address, how many came before, their number. Stops when `take`
    /// returns false, and returns that.
    #[cold]
    #[inline(never)]
    pub fn read_with(&self, at: usize, len: usize, take: &mut dyn FnMut(*const u8, usize, usize) -> bool) -> bool {
        self.attempt(&mut || match &self.stream {
            Some(stream) => {
                let mut stream = stream.lock().unwrap_or_else(PoisonError::into_inner);
                stream.ahead.read(self, at, len, self.len, take)
            }
            None => {
                let mut ahead = Ahead::default();
                let result = ahead.read(self, at, len, at + len, take);
                ahead.end(&self.context);
                result
            }
        })
    }

    /// Of a part that a message streams through: the address of `len` packed bytes on the host, if they lie side by side there. They stay
    /// until the next call of this part.
    #[cold]
    #[inline(never)]
    pub fn lend(&self, at: usize, len: usize) -> Option<*const u8> {
        let stream = self.stream.as_ref()?;
        let mut lent = None;
        self.attempt(&mut || {
            let mut stream = stream.lock().unwrap_or_else(PoisonError::into_inner);
            let (from, count) = stream.ahead.first(self, at, self.len, len)?;
            lent = (count >= len).then_some(from);
            Ok(true)
        });
        lent
    }

    /// Of a part that a message streams through: memory of the host for the `len` packed bytes from `at` on, which go to the device after
    /// [`Part::landed`].
    #[cold]
    #[inline(never)]
    pub fn landing(&self, at: usize, len: usize) -> Option<*mut u8> {
        let stream = self.stream.as_ref()?;
        let mut room = None;
        self.attempt(&mut || {
            let mut stream = stream.lock().unwrap_or_else(PoisonError::into_inner);
            room = stream.behind.room(self, at, len)?;
            Ok(true)
        });
        room
    }

    /// The `len` bytes from `at` on have been written where [`Part::landing`] said.
    #[cold]
    #[inline(never)]
    pub fn landed(&self, at: usize, len: usize) {
        let Some(stream) = &self.stream else { return };
        let mut stream = stream.lock().unwrap_or_else(PoisonError::into_inner);
        stream.behind.filled(at, len);
    }

    /// Copies packed bytes from the host.
    ///
    /// # Safety
    ///
    /// `len` bytes at `from` must be readable.
    #[cold]
    #[inline(never)]
    pub unsafe fn write(&self, at: usize, from: *const u8, len: usize) {
        self.write_with(at, len, &mut |into, done, len| {
            // SAFETY: the caller's promise.
            unsafe { std::ptr::copy_nonoverlapping(from.add(done), into, len) };
            true
        });
    }

    /// As [`Part::write`], but asks for the bytes piece by piece: an address to write to, how many came before, their number. Stops
    /// when `give` returns false, and returns that.
    #[cold]
    #[inline(never)]
    pub fn write_with(&self, at: usize, len: usize, give: &mut dyn FnMut(*mut u8, usize, usize) -> bool) -> bool {
        self.attempt(&mut || match &self.stream {
            Some(stream) => stream.lock().unwrap_or_else(PoisonError::into_inner).behind.write(self, at, len, give),
            None => {
                let mut behind = Behind::default();
                let result = behind.write(self, at, len, give);
                behind.end(self).and(result)
            }
        })
    }

    /// Copies `len` bytes of device memory over the packed bytes from `at` on.
    pub fn write_from(&self, at: usize, from: u64, len: usize) {
        let since = Instant::now();
        self.attempt(&mut || {
            self.enqueue(at, len, Other::Device(from), Way::In)?;
            self.context.finish(Way::In).map(|()| true)
        });
        turns::learn(since.elapsed(), len);
    }

    /// Copies the first `len` packed bytes over those of another part.
    #[cold]
    #[inline(never)]
    pub fn copy_to(&self, to: &Self, len: usize) {
        match turns::prefer_the_host(len) {
            true => self.copy_by_host(to, 0, len),
            false => self.copy_within(to, len),
        }
    }

    fn copy_within(&self, to: &Self, len: usize) {
        match (self.address(), to.address()) {
            (Some(from), _) => to.write_from(0, from, len),
            (None, Some(into)) => {
                self.attempt(&mut || {
                    self.enqueue(0, len, Other::Device(into), Way::Out)?;
                    self.context.finish(Way::Out).map(|()| true)
                });
            }
            (None, None) => self.copy_by_host(to, 0, len),
        }
    }

    /// As [`Part::copy_to`], over the packed bytes from `at` on, through memory of the host.
    fn copy_by_host(&self, to: &Self, at: usize, len: usize) {
        self.read_with(0, len, &mut |from, done, len| {
            // SAFETY: `read_with` passes this many bytes.
            unsafe { to.write(at + done, from, len) };
            true
        });
    }

    /// Copies all packed bytes over those of another part from `at` on.
    #[cold]
    #[inline(never)]
    pub fn copy_over(&self, to: &Self, at: usize) {
        match turns::prefer_the_host(self.len) {
            true => self.copy_by_host(to, at, self.len),
            false => self.copy_within(&to.part(at, self.len), self.len),
        }
    }

    /// Starts the copies of all that was written.
    #[cold]
    #[inline(never)]
    pub fn flush(&self) {
        if let Some(stream) = &self.stream {
            self.attempt(&mut || {
                stream.lock().unwrap_or_else(PoisonError::into_inner).behind.send(self).map(|()| true)
            });
        }
    }

    /// Copies packed bytes to memory of [`Pinned`], without a chunk.
    ///
    /// # Safety
    ///
    /// `len` bytes at `into` must be writable.
    pub unsafe fn read_pinned(&self, at: usize, into: *mut u8, len: usize) {
        self.attempt(&mut || {
            self.enqueue(at, len, Other::Host(into), Way::Out)?;
            self.context.finish(Way::Out).map(|()| true)
        });
    }

    /// As [`Part::read_pinned`], the other way round.
    ///
    /// # Safety
    ///
    /// `len` bytes at `from` must be readable.
    pub unsafe fn write_pinned(&self, at: usize, from: *mut u8, len: usize) {
        self.attempt(&mut || {
            self.enqueue(at, len, Other::Host(from), Way::In)?;
            self.context.finish(Way::In).map(|()| true)
        });
    }

    /// Memory of the host for `len` bytes, which this part's device reaches directly if there is not too much of it in use.
    pub fn pinned(&self, len: usize) -> Option<Pinned> {
        let mut taken = None;
        self.attempt(&mut || {
            taken = Pinned::take(self.context.driver, len);
            Ok(true)
        });
        taken
    }

    /// Waits until all that was written has arrived; fails if any copy has failed since the last call.
    #[cold]
    #[inline(never)]
    pub fn settle(&self) -> MpiResult {
        if let Some(stream) = &self.stream {
            self.attempt(&mut || stream.lock().unwrap_or_else(PoisonError::into_inner).behind.end(self).map(|()| true));
        }
        match self.fault.swap(0, Ordering::Relaxed) {
            0 => Ok(()),
            code => Err(failed(Some(self), self.base, code)),
        }
    }

    /// Does something in the part's context; notes a failure.
    fn attempt(&self, body: &mut dyn FnMut() -> Result<bool, Code>) -> bool {
        match self.context.enter(body) {
            Ok(went_on) => went_on,
            Err(code) => {
                let _ = self.fault.compare_exchange(0, code, Ordering::Relaxed, Ordering::Relaxed);
                false
            }
        }
    }

    /// Starts a copy between packed bytes and contiguous memory. If that fails, nothing of it is under way when this returns.
    fn enqueue(&self, at: usize, len: usize, other: Other, way: Way) -> Result<(), Code> {
        let started = self.copy_runs(at, len, other, way);
        if started.is_err() {
            let _ = self.context.finish(way);
        }
        started
    }
}

impl Drop for Part {
    /// The device must not use a chunk any more that goes back.
    fn drop(&mut self) {
        if let Some(stream) = self.stream.take() {
            let mut stream = stream.into_inner().unwrap_or_else(PoisonError::into_inner);
            if !stream.ahead.is_idle() || !stream.behind.is_idle() {
                let context = Arc::clone(&self.context);
                let _ = context.enter(|| {
                    stream.ahead.end(&context);
                    stream.behind.end(self)
                });
            }
        }
    }
}

#[cold]
fn failed(part: Option<&Part>, address: u64, code: Code) -> MpiError {
    let text = super::driver::driver().map_or_else(|| format!("CUDA error {code}"), |driver| driver.explain(code));
    let what = part.map_or(String::new(), |part| format!(" (device {}, {} bytes)", part.found.device, part.len));
    let text = format!("cannot use the device memory at {address:#x}{what}: {text}");
    /// `CUDA_ERROR_INVALID_VALUE`: the memory is freed, or shorter.
    const INVALID_VALUE: Code = 1;
    if code == INVALID_VALUE { MpiError::buffer(text) } else { MpiError::other(text) }
}
