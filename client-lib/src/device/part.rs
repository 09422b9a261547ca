//! A part of the user's device memory, and the copies between it and the host.
//!
//! Copies go through pinned chunks of memory: the device fills or empties one while the processor works on another. A part that a
//! message streams through ([`Part::streamed`]) is read ahead and written behind; all other copies are complete when they return.
//! Memory with holes is copied by rows: a vector takes one copy for each chunk, whatever its number of blocks.

#![expect(unsafe_code, reason = "calls of the CUDA driver, and copies from and to chunks of this library")]

use std::collections::VecDeque;
use std::fmt;
use std::sync::atomic::{AtomicI32, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Instant;

use super::context::{CHUNK, Chunk, Context, Event, Pinned, Way, checked};
use super::driver::{Code, Copy2d, DEINITIALIZED, MEMORY_DEVICE, MEMORY_HOST, Rows};
use super::finder::Found;
use super::turns;
use crate::datatype::Layout;
use crate::error::{MpiError, MpiResult};

/// How many chunks a message has in flight.
const DEPTH: usize = 3;

/// Plain copies of less than this to the device do not go through a copy engine, but through the queue of kernels. If another process uses
/// the device too, each such copy waits about 150 us for its turn. Copies of rows always go through a copy engine.
const INLINE: usize = 32 << 10;

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
        if let Some(filling) = stream.behind.filling.as_mut().filter(|filling| filling.at + filling.len == at) {
            filling.len += len;
        }
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

    fn copy_runs(&self, at: usize, len: usize, other: Other, way: Way) -> Result<(), Code> {
        if len == 0 {
            return Ok(());
        }
        let Some(layout) = &self.layout else {
            let run = Run { start: self.base + (self.start + at) as u64, width: len, pitch: len as u64, rows: 1 };
            return self.copy_run(run, other, way);
        };
        let mut run = Run::default();
        let (mut done, mut result) = (0, Ok(()));
        layout.pieces(
            std::ptr::without_provenance_mut(self.base as usize),
            self.start + at,
            len,
            &mut |piece, width| {
                let piece = piece.addr() as u64;
                if !run.takes(piece, width) {
                    result = self.copy_run(run, other.after(done), way);
                    done += run.len();
                    run = Run { start: piece, width, pitch: width as u64, rows: 1 };
                }
                result.is_ok()
            },
        );
        result?;
        self.copy_run(run, other.after(done), way)
    }

    fn copy_run(&self, run: Run, other: Other, way: Way) -> Result<(), Code> {
        let (driver, stream) = (self.context.driver, self.context.stream(way));
        let Run { start, width, rows, .. } = run;
        match (rows, way, other) {
            (0, ..) => Ok(()),
            (1, Way::In, Other::Host(from)) if (2..INLINE).contains(&width) => self.copy_halves(start, from, width),
            // SAFETY: the creator has guaranteed that the device memory may be used, and the caller the other side.
            (1, ..) => checked(unsafe {
                match (way, other) {
                    (Way::Out, Other::Host(into)) => (driver.to_host)(into.cast(), start, width, stream),
                    (Way::In, Other::Host(from)) => (driver.to_device)(start, from.cast_const().cast(), width, stream),
                    (Way::Out, Other::Device(into)) => (driver.within)(into, start, width, stream),
                    (Way::In, Other::Device(from)) => (driver.within)(start, from, width, stream),
                }
            }),
            _several => self.copy_rows(run, other, way),
        }
    }

    /// Copies a short piece to the device as two rows (and the last byte of an odd number with the one before, once more).
    fn copy_halves(&self, start: u64, from: *mut u8, width: usize) -> Result<(), Code> {
        let half = width / 2;
        self.copy_rows(Run { start, width: half, pitch: half as u64, rows: 2 }, Other::Host(from), Way::In)?;
        if width.is_multiple_of(2) {
            return Ok(());
        }
        let last = Run { start: start + width as u64 - 2, width: 1, pitch: 1, rows: 2 };
        self.copy_rows(last, Other::Host(from.wrapping_add(width - 2)), Way::In)
    }

    fn copy_rows(&self, run: Run, other: Other, way: Way) -> Result<(), Code> {
        let (driver, stream) = (self.context.driver, self.context.stream(way));
        let Run { start, width, pitch, rows } = run;
        let here = Rows { kind: MEMORY_DEVICE, device: start, pitch: pitch as usize, ..Rows::default() };
        let there = match other {
            Other::Host(place) => {
                Rows { kind: MEMORY_HOST, host: place.expose_provenance(), pitch: width, ..Rows::default() }
            }
            Other::Device(place) => Rows { kind: MEMORY_DEVICE, device: place, pitch: width, ..Rows::default() },
        };
        let (from, to) = match way {
            Way::Out => (here, there),
            Way::In => (there, here),
        };
        let copy = Copy2d { from, to, width, height: rows };
        // SAFETY: as above.
        checked(unsafe { (driver.rows)(&raw const copy, stream) })
    }
}

impl Drop for Part {
    /// The device must not use a chunk any more that goes back.
    fn drop(&mut self) {
        if let Some(stream) = self.stream.take() {
            let mut stream = stream.into_inner().unwrap_or_else(PoisonError::into_inner);
            if !stream.ahead.loading.is_empty() || !stream.behind.is_idle() {
                let context = Arc::clone(&self.context);
                let _ = context.enter(|| {
                    stream.ahead.end(&context);
                    stream.behind.end(self)
                });
            }
        }
    }
}

/// Rows of equal length at equal distances.
#[derive(Debug, Clone, Copy, Default)]
struct Run {
    start: u64,
    width: usize,
    pitch: u64,
    rows: usize,
}

/// The driver takes pitches up to this.
const PITCH_MAX: u64 = i32::MAX as u64;

impl Run {
    /// Takes a piece as the next row, if it can be.
    fn takes(&mut self, piece: u64, width: usize) -> bool {
        if width != self.width {
            return false;
        }
        let fits = match self.rows {
            0 => false,
            1 => {
                let distance = piece.wrapping_sub(self.start);
                self.pitch = if (width as u64..=PITCH_MAX).contains(&distance) { distance } else { self.pitch };
                self.pitch == distance
            }
            rows => piece == self.start + rows as u64 * self.pitch,
        };
        self.rows += usize::from(fits);
        fits
    }

    fn len(&self) -> usize {
        self.width * self.rows
    }
}

impl Other {
    fn after(self, bytes: usize) -> Self {
        match self {
            Self::Host(place) => Self::Host(place.wrapping_add(bytes)),
            Self::Device(place) => Self::Device(place + bytes as u64),
        }
    }
}

/// What is in flight for a part that a message streams through.
#[derive(Debug, Default)]
struct Stream {
    ahead: Ahead,
    behind: Behind,
}

/// A chunk, or memory that is not pinned if all chunks are in use: the driver copies that at once.
enum Scratch {
    Pinned(Chunk),
    Plain(Box<[u8]>),
}

impl Scratch {
    /// The first of a copy has room for at least the smaller of `len` bytes and a chunk. A further one may not be had.
    fn take(context: &Context, is_first: bool, len: usize) -> Option<Self> {
        match Chunk::take(context.driver, is_first) {
            Some(chunk) => Some(Self::Pinned(chunk)),
            None => is_first.then(|| Self::Plain(vec![0; len.min(CHUNK)].into())),
        }
    }

    fn start(&mut self) -> *mut u8 {
        match self {
            Self::Pinned(chunk) => chunk.start(),
            Self::Plain(bytes) => bytes.as_mut_ptr(),
        }
    }

    fn room(&self) -> usize {
        match self {
            Self::Pinned(_) => CHUNK,
            Self::Plain(bytes) => bytes.len(),
        }
    }
}

impl fmt::Debug for Scratch {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Pinned(_) => "Pinned",
            Self::Plain(_) => "Plain",
        })
    }
}

/// Bytes on their way to the host, in order.
#[derive(Debug, Default)]
struct Ahead {
    loading: VecDeque<Loading>,
    /// The next packed byte to load.
    next: usize,
}

#[derive(Debug)]
struct Loading {
    scratch: Scratch,
    at: usize,
    len: usize,
    /// `None`: all copies must be waited for.
    event: Option<Event>,
    is_here: bool,
}

impl Ahead {
    /// Passes on `len` bytes; loads further ones, up to `end`.
    fn read(
        &mut self,
        part: &Part,
        at: usize,
        len: usize,
        end: usize,
        take: &mut dyn FnMut(*const u8, usize, usize) -> bool,
    ) -> Result<bool, Code> {
        let mut done = 0;
        while done < len {
            let (from, count) = self.first(part, at + done, end, len - done)?;
            let count = count.min(len - done);
            if !take(from, done, count) {
                return Ok(false);
            }
            done += count;
        }
        Ok(true)
    }

    /// Waits until the bytes from `at` on are here; returns where, and how many.
    fn first(&mut self, part: &Part, at: usize, end: usize, wanted: usize) -> Result<(*const u8, usize), Code> {
        let context = &part.context;
        while self.loading.front().is_some_and(|first| first.is_here && first.at + first.len <= at) {
            self.loading.pop_front();
        }
        if self.loading.front().is_none_or(|first| at < first.at || at >= first.at + first.len) {
            self.end(context);
            self.next = at;
        }
        self.load(part, end, wanted)?;
        // `load` has started a copy: the first one always finds memory.
        let Some(first) = self.loading.front_mut() else { return Err(DEINITIALIZED) };
        if !first.is_here {
            match first.event.take() {
                Some(event) => context.wait(event)?,
                None => context.finish(Way::Out)?,
            }
            first.is_here = true;
        }
        let skipped = at - first.at;
        Ok((first.scratch.start().wrapping_add(skipped).cast_const(), first.len - skipped))
    }

    /// Starts further copies; at least one for the next `wanted` bytes.
    fn load(&mut self, part: &Part, end: usize, wanted: usize) -> Result<(), Code> {
        while self.loading.len() < DEPTH && self.next < end {
            let Some(mut scratch) = Scratch::take(&part.context, self.loading.is_empty(), wanted) else { break };
            let len = scratch.room().min(end - self.next);
            let is_only = self.loading.is_empty() && len == end - self.next;
            part.enqueue(self.next, len, Other::Host(scratch.start()), Way::Out)?;
            // Without a mark, the copy is over once all are.
            let event = if is_only { None } else { part.context.mark(Way::Out).ok() };
            self.loading.push_back(Loading { scratch, at: self.next, len, event, is_here: false });
            self.next += len;
        }
        Ok(())
    }

    /// Waits for what is on its way, and drops it.
    fn end(&mut self, context: &Context) {
        if self.loading.iter().any(|it| !it.is_here) {
            let _ = context.finish(Way::Out);
        }
        for loading in self.loading.drain(..) {
            loading.event.into_iter().for_each(|event| context.forget(event));
        }
    }
}

/// Bytes on their way to the device.
#[derive(Debug, Default)]
struct Behind {
    filling: Option<Filling>,
    flying: VecDeque<(Scratch, Event)>,
}

#[derive(Debug)]
struct Filling {
    scratch: Scratch,
    /// The packed byte where its bytes belong.
    at: usize,
    len: usize,
}

impl Behind {
    fn is_idle(&self) -> bool {
        self.filling.is_none() && self.flying.is_empty()
    }

    fn write(
        &mut self,
        part: &Part,
        at: usize,
        len: usize,
        give: &mut dyn FnMut(*mut u8, usize, usize) -> bool,
    ) -> Result<bool, Code> {
        let mut done = 0;
        while done < len {
            let place = at + done;
            if self.filling.as_ref().is_some_and(|it| it.at + it.len != place || it.len == it.scratch.room()) {
                self.send(part)?;
            }
            let mut filling = match self.filling.take() {
                Some(filling) => filling,
                None => {
                    let scratch = match Scratch::take(&part.context, self.flying.is_empty(), len - done) {
                        Some(scratch) => scratch,
                        None => self.land(part)?,
                    };
                    Filling { scratch, at: place, len: 0 }
                }
            };
            let count = (filling.scratch.room() - filling.len).min(len - done);
            let goes_on = give(filling.scratch.start().wrapping_add(filling.len), done, count);
            filling.len += if goes_on { count } else { 0 };
            self.filling = Some(filling);
            if !goes_on {
                return Ok(false);
            }
            done += count;
        }
        Ok(true)
    }

    /// Room for `len` bytes in one piece; `None` if a chunk is too short, or all are in use.
    fn room(&mut self, part: &Part, at: usize, len: usize) -> Result<Option<*mut u8>, Code> {
        let fits = |it: &Filling| it.at + it.len == at && len <= it.scratch.room() - it.len;
        if self.filling.as_ref().is_some_and(|it| !fits(it)) {
            self.send(part)?;
        }
        if self.filling.is_none() {
            let Some(scratch) = Scratch::take(&part.context, self.flying.is_empty(), len) else { return Ok(None) };
            self.filling = Some(Filling { scratch, at, len: 0 });
        }
        let filling = self.filling.as_mut().filter(|it| fits(it));
        Ok(filling.map(|it| it.scratch.start().wrapping_add(it.len)))
    }

    /// Starts the copy of what is filled.
    fn send(&mut self, part: &Part) -> Result<(), Code> {
        let Some(mut filling) = self.filling.take() else { return Ok(()) };
        let context = &part.context;
        let sent = part.enqueue(filling.at, filling.len, Other::Host(filling.scratch.start()), Way::In);
        let event = sent.and_then(|()| context.mark(Way::In));
        match event {
            Ok(event) => self.flying.push_back((filling.scratch, event)),
            Err(code) => {
                // Some of it may be on its way.
                let _ = context.finish(Way::In);
                return Err(code);
            }
        }
        while self.flying.len() >= DEPTH {
            self.land(part)?;
        }
        Ok(())
    }

    /// Waits for the first copy on its way; returns its memory.
    fn land(&mut self, part: &Part) -> Result<Scratch, Code> {
        // Its callers know that there is one.
        let Some((scratch, event)) = self.flying.pop_front() else { return Err(DEINITIALIZED) };
        part.context.wait(event).map(|()| scratch)
    }

    /// Starts the last copy, and waits for all.
    fn end(&mut self, part: &Part) -> Result<(), Code> {
        if self.is_idle() {
            return Ok(());
        }
        let context = &part.context;
        let started = match self.filling.take() {
            Some(mut last) => {
                let started = part.enqueue(last.at, last.len, Other::Host(last.scratch.start()), Way::In);
                let finished = context.finish(Way::In);
                drop(last);
                started.and(finished)
            }
            None => context.finish(Way::In),
        };
        for (scratch, event) in self.flying.drain(..) {
            context.forget(event);
            drop(scratch);
        }
        started
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pieces_at_equal_distances_are_one_run() {
        let mut run = Run { start: 1000, width: 8, pitch: 8, rows: 1 };
        assert!(run.takes(1024, 8) && run.takes(1048, 8) && run.takes(1072, 8));
        assert_eq!((run.rows, run.pitch, run.len()), (4, 24, 32));
        assert!(!run.takes(1100, 8) && !run.takes(1096, 4));
        assert_eq!(run.rows, 4);
        // Backwards, overlapping and too far.
        for next in [900, 1004, 1000 + PITCH_MAX + 1] {
            let mut run = Run { start: 1000, width: 8, pitch: 8, rows: 1 };
            assert!(!run.takes(next, 8), "{next}");
            assert_eq!((run.rows, run.pitch), (1, 8));
        }
        assert!(!Run::default().takes(0, 0));
    }
}
