//! What is in flight for a part that a message streams through: chunks that the device fills ahead of a reader, and chunks that it empties
//! behind a writer.

use std::collections::VecDeque;
use std::fmt;

use super::super::context::{CHUNK, Chunk, Context, Event, Way};
use super::super::driver::{Code, DEINITIALIZED};
use super::{Other, Part};

/// How many chunks a message has in flight.
const DEPTH: usize = 3;

/// What is in flight for a part that a message streams through.
#[derive(Debug, Default)]
pub(super) struct Stream {
    pub(super) ahead: Ahead,
    pub(super) behind: Behind,
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
pub(super) struct Ahead {
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
    pub(super) fn is_idle(&self) -> bool {
        self.loading.is_empty()
    }

    /// Passes on `len` bytes; loads further ones, up to `end`.
    pub(super) fn read(
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
    pub(super) fn first(
        &mut self,
        part: &Part,
        at: usize,
        end: usize,
        wanted: usize,
    ) -> Result<(*const u8, usize), Code> {
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
    pub(super) fn end(&mut self, context: &Context) {
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
pub(super) struct Behind {
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
    pub(super) fn is_idle(&self) -> bool {
        self.filling.is_none() && self.flying.is_empty()
    }

    pub(super) fn write(
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
    pub(super) fn room(&mut self, part: &Part, at: usize, len: usize) -> Result<Option<*mut u8>, Code> {
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

    /// Bytes have been written to the room for the packed bytes from `at` on.
    pub(super) fn filled(&mut self, at: usize, len: usize) {
        if let Some(filling) = self.filling.as_mut().filter(|filling| filling.at + filling.len == at) {
            filling.len += len;
        }
    }

    /// Starts the copy of what is filled.
    pub(super) fn send(&mut self, part: &Part) -> Result<(), Code> {
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
    pub(super) fn end(&mut self, part: &Part) -> Result<(), Code> {
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
