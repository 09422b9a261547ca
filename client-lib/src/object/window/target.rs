//! The called side: performs what other members call on this process's memory.

use std::collections::VecDeque;
use std::sync::Arc;

use super::super::agree::Lent;
use super::wire::{CALL, Call, DATA, DONE, Kind, Places, REPLY};
use super::{Accumulate, Combination, Window};
use crate::abi::constants::{MPI_ERR_OTHER, MPI_ERR_RMA_RANGE, MPI_SUCCESS};
use crate::datatype::{Element, Layout};
use crate::engine::{Engine, Mode, RequestId, Source, Started, TagMatch, Transport};
use crate::error::MpiError;
use crate::memory::Buffer;
use crate::op::Builtin;

/// A member that calls.
#[derive(Debug, Default)]
pub(super) struct Origin {
    /// Calls that wait for their turn, or are arriving.
    queue: VecDeque<Lent>,
    /// What the calls wait for.
    busy: Busy,
    /// The first error since the last answer.
    error: i32,
    /// How many times it has called `MPI_Win_complete` without a `MPI_Win_wait` that has seen it.
    completed: u32,
}

#[derive(Debug, Default)]
enum Busy {
    #[default]
    No,
    /// Data that is written to the window as it arrives.
    Writing(RequestId),
    /// Data to combine with the window.
    Arriving(Call, Lent),
    /// Elements that others use.
    Combining(Combining),
    /// A lock that others hold.
    Locking,
    /// The release of a lock, until what the member has read under it has left.
    Leaving,
}

/// Members that have asked by message for the lock on this process's memory and wait for it.
#[derive(Debug, Default)]
pub(super) struct Waiting {
    /// Whether they want it alone, in the order in which they asked.
    queue: VecDeque<(u32, bool)>,
    /// Whether members that use the lock themselves know that the first one wants it alone.
    wants: bool,
}

/// An accumulate that has all its data.
#[derive(Debug)]
struct Combining {
    combination: Combination,
    data: Box<[u8]>,
    /// What was there before, if the member wants it.
    before: Option<Box<[u8]>>,
    elements: Buffer,
    done: usize,
}

impl Window {
    /// Performs what has been called; returns whether there was anything.
    pub(super) fn serve<T: Transport>(&mut self, engine: &mut Engine<T>) -> bool {
        let mut moved = false;
        loop {
            match engine.next_message(self.context, TagMatch::Value(CALL)) {
                Ok(None) => break,
                Ok(Some((id, probed))) => {
                    let call = Lent::start(vec![0; probed.bytes as usize].into(), |buffer| engine.mrecv(id, buffer));
                    self.origins[probed.source as usize].queue.push_back(call);
                    self.activate(probed.source);
                    moved = true;
                }
                Err(error) => {
                    self.break_down(error);
                    break;
                }
            }
        }
        if self.near.is_broken() {
            self.break_down(MpiError::proc_aborted("another process on this node has reported a death"));
        }
        moved |= self.grant();
        let mut at = 0;
        while let Some(origin) = self.active.get(at).copied() {
            moved |= self.advance(engine, origin);
            let Origin { queue, busy, .. } = &self.origins[origin as usize];
            match queue.is_empty() && matches!(busy, Busy::No) {
                true => drop(self.active.swap_remove(at)),
                false => at += 1,
            }
        }
        if !self.direct.is_empty() {
            self.direct.retain(|(_, id)| engine.take(*id).is_none());
        }
        if !self.answers.is_empty() {
            let answers = std::mem::take(&mut self.answers);
            self.answers.extend(answers.into_iter().filter_map(|answer| answer.outcome(engine).err()));
        }
        moved
    }

    fn activate(&mut self, origin: u32) {
        if !self.active.contains(&origin) {
            self.active.push(origin);
        }
    }

    /// Performs the calls of one member as far as possible.
    fn advance<T: Transport>(&mut self, engine: &mut Engine<T>, origin: u32) -> bool {
        let mut moved = false;
        loop {
            match std::mem::take(&mut self.origins[origin as usize].busy) {
                Busy::No => {}
                Busy::Writing(id) => match engine.take(id) {
                    Some(_) => moved = true,
                    None => return self.stay(origin, Busy::Writing(id), moved),
                },
                Busy::Arriving(call, data) => match data.outcome(engine) {
                    Ok((_, data)) => {
                        moved = true;
                        self.combine(engine, origin, &call, data);
                        if !matches!(self.origins[origin as usize].busy, Busy::No) {
                            return moved;
                        }
                    }
                    Err(data) => return self.stay(origin, Busy::Arriving(call, data), moved),
                },
                Busy::Combining(combining) => {
                    self.go_on(engine, origin, combining);
                    if !matches!(self.origins[origin as usize].busy, Busy::No) {
                        return moved;
                    }
                    moved = true;
                }
                Busy::Locking => return self.stay(origin, Busy::Locking, moved),
                Busy::Leaving if self.is_read_by(engine, origin) => return self.stay(origin, Busy::Leaving, moved),
                Busy::Leaving => {
                    self.unlock(engine, origin);
                    moved = true;
                }
            }
            let Some(next) = self.origins[origin as usize].queue.pop_front() else { return moved };
            match next.outcome(engine) {
                Err(arriving) => {
                    self.origins[origin as usize].queue.push_front(arriving);
                    return moved;
                }
                Ok((_, bytes)) => match Call::decode(&bytes) {
                    Some(call) => self.perform(engine, origin, call),
                    None => self.note_error(origin, MPI_ERR_OTHER),
                },
            }
            moved = true;
        }
    }

    fn stay(&mut self, origin: u32, busy: Busy, moved: bool) -> bool {
        self.origins[origin as usize].busy = busy;
        moved
    }

    fn note_error(&mut self, origin: u32, class: i32) {
        let error = &mut self.origins[origin as usize].error;
        if *error == MPI_SUCCESS {
            *error = class;
        }
    }

    fn perform<T: Transport>(&mut self, engine: &mut Engine<T>, origin: u32, mut call: Call) {
        match call.kind {
            Kind::Put => {
                let place = self.place(origin, &call.places);
                match &call.data {
                    Some(data) if data.len() == place.len() => place.write(0, data),
                    Some(_) => self.note_error(origin, MPI_ERR_RMA_RANGE),
                    None => {
                        let (from, tag) = (Source::Rank(origin), TagMatch::Value(DATA));
                        if let Started::Pending(id) = engine.recv(self.context, from, tag, place) {
                            self.origins[origin as usize].busy = Busy::Writing(id);
                        }
                    }
                }
            }
            Kind::Get => {
                let place = self.place(origin, &call.places);
                let (envelope, to) = (self.envelope(REPLY), self.group.members[origin as usize]);
                if let Started::Pending(id) = engine.send(envelope, to, Mode::Standard, place) {
                    self.direct.push((origin, id));
                }
            }
            Kind::Accumulate | Kind::Fetch | Kind::Compare => match call.data.take() {
                Some(data) => self.combine(engine, origin, &call, data.into()),
                None => {
                    let len = call.places.len;
                    let room = crate::memory::zeroed(len).unwrap_or_default();
                    if room.len() < len {
                        // The data is taken without room for it, and not used.
                        call.places = Places { at: -1, len: 1, pieces: Vec::new() };
                    }
                    let (context, from) = (self.context, Source::Rank(origin));
                    let data = Lent::start(room, |buffer| engine.recv(context, from, TagMatch::Value(DATA), buffer));
                    self.origins[origin as usize].busy = Busy::Arriving(call, data);
                }
            },
            Kind::Flush => self.answer(engine, origin),
            Kind::LockShared | Kind::LockExclusive => {
                let alone = call.kind == Kind::LockExclusive;
                if !self.waiting.queue.is_empty() || !self.near.try_lock_for(origin, alone) {
                    // Before another look: the process that releases the lock wakes this one.
                    self.near.announce_sleep(true);
                    self.waiting.queue.push_back((origin, alone));
                    self.origins[origin as usize].busy = Busy::Locking;
                    self.grant();
                }
            }
            Kind::Unlock if self.is_read_by(engine, origin) => self.origins[origin as usize].busy = Busy::Leaving,
            Kind::Unlock => self.unlock(engine, origin),
            Kind::Complete => self.origins[origin as usize].completed += 1,
        }
    }

    fn unlock<T: Transport>(&mut self, engine: &mut Engine<T>, origin: u32) {
        self.near.unlock_for(origin);
        self.grant();
        self.answer(engine, origin);
    }

    /// Whether what a member reads is still leaving the window's memory.
    fn is_read_by<T: Transport>(&mut self, engine: &mut Engine<T>, origin: u32) -> bool {
        self.direct.retain(|(_, id)| engine.take(*id).is_none());
        self.direct.iter().any(|(by, _)| *by == origin)
    }

    /// Gives the lock to members that wait for it, in turn; returns whether any got it.
    fn grant(&mut self) -> bool {
        let mut granted = false;
        while let Some((origin, alone)) = self.waiting.queue.front().copied() {
            if !self.near.try_lock_for(origin, alone) {
                if alone && !self.waiting.wants {
                    self.near.want_own(true);
                    self.waiting.wants = true;
                }
                break;
            }
            if self.waiting.wants {
                self.near.want_own(false);
                self.waiting.wants = false;
            }
            self.near.announce_sleep(false);
            self.waiting.queue.pop_front();
            self.origins[origin as usize].busy = Busy::No;
            granted = true;
        }
        granted
    }

    /// Tells a member that everything so far is done, and the first error.
    fn answer<T: Transport>(&mut self, engine: &mut Engine<T>, origin: u32) {
        let class = std::mem::replace(&mut self.origins[origin as usize].error, MPI_SUCCESS);
        self.reply(engine, origin, DONE, Box::new(i64::from(class).to_ne_bytes()));
    }

    fn reply<T: Transport>(&mut self, engine: &mut Engine<T>, origin: u32, tag: i32, bytes: Box<[u8]>) {
        let (envelope, to) = (self.envelope(tag), self.group.members[origin as usize]);
        let answer = Lent::start(bytes, |buffer| engine.send(envelope, to, Mode::Standard, buffer));
        self.answers.extend(answer.outcome(engine).err());
    }

    /// The memory that a member means; nothing if some of it is not in the window.
    fn place(&mut self, origin: u32, places: &Places) -> Buffer {
        let found = self.find(places);
        if found.is_none() {
            self.note_error(origin, MPI_ERR_RMA_RANGE);
        }
        found.unwrap_or(Buffer::EMPTY)
    }

    fn find(&self, places: &Places) -> Option<Buffer> {
        if places.len == 0 {
            return Some(Buffer::EMPTY);
        }
        let mut pieces = Vec::with_capacity(places.pieces.len());
        for piece in places.absolute() {
            let (at, len) = piece?;
            pieces.push((self.address(at, len)?, len));
        }
        let (first, rest) = pieces.split_first()?;
        let start = std::ptr::with_exposed_provenance_mut(first.0);
        if rest.is_empty() {
            // SAFETY: `address` has found it in the window's memory, which the user lends until `MPI_Win_free` or `MPI_Win_detach`.
            return Some(unsafe { Buffer::contiguous(start, first.1) });
        }
        let offset = |(address, len): &(usize, usize)| (address.wrapping_sub(first.0) as isize, *len);
        let layout = Arc::new(Layout::new(&pieces.iter().map(offset).collect::<Vec<_>>(), 0));
        // SAFETY: as above, for each piece.
        Some(unsafe { Buffer::new(start, 1, &layout) })
    }

    /// The address of `len` bytes of this process's memory, if the window has them.
    fn address(&self, at: i64, len: usize) -> Option<usize> {
        let at = usize::try_from(at).ok()?;
        let end = at.checked_add(len)?;
        if self.is_dynamic() {
            // Memory that was attached in several pieces may lie side by side.
            let mut next = at;
            while next < end {
                let holds = |(start, size): &&(usize, usize)| (*start..start + size).contains(&next);
                next = self.attached.iter().find(holds).map(|(start, size)| start + size)?;
            }
            return Some(at);
        }
        (end <= self.parts[self.rank as usize].size).then_some(self.base + at)
    }

    /// Attaches memory to a dynamic window; returns whether none of it was attached before.
    pub fn attach(&mut self, start: usize, size: usize) -> bool {
        let overlaps = |(other, other_size): &(usize, usize)| start < other + other_size && *other < start + size;
        if size > 0 && self.attached.iter().any(overlaps) {
            return false;
        }
        self.attached.push((start, size));
        true
    }

    /// Detaches memory; returns whether it was attached.
    pub fn detach(&mut self, start: usize) -> bool {
        let found = self.attached.iter().position(|(it, _)| *it == start);
        found.map(|at| self.attached.swap_remove(at)).is_some()
    }

    /// Whether all of these members have called `MPI_Win_complete`, and nothing is read from the window any more; if so, it counts as seen.
    pub fn take_completed(&mut self, origins: &[u32]) -> bool {
        let has_told = |origin: u32| self.origins[origin as usize].completed > 0;
        let all = self.direct.is_empty()
            && origins.iter().all(|origin| has_told(*origin) || self.near.has_completed(*origin));
        for origin in origins.iter().filter(|_| all) {
            match &mut self.origins[*origin as usize].completed {
                0 => self.near.take_completion(*origin),
                told => *told -= 1,
            }
        }
        all || self.broken.is_some()
    }

    /// Combines data with the window, and returns what was there before to the member that asked.
    fn combine<T: Transport>(&mut self, engine: &mut Engine<T>, origin: u32, call: &Call, data: Box<[u8]>) {
        let elements = self.place(origin, &call.places);
        let before = (call.kind != Kind::Accumulate).then(|| vec![0; elements.len()].into());
        match combination(call) {
            Some(combination) if combination.data_len(elements.len()) <= data.len() => {
                self.go_on(engine, origin, Combining { combination, data, before, elements, done: 0 });
            }
            _ => {
                if !(data.is_empty() && elements.is_empty()) {
                    self.note_error(origin, MPI_ERR_RMA_RANGE);
                }
                self.give_back(engine, origin, before);
            }
        }
    }

    fn go_on<T: Transport>(&mut self, engine: &mut Engine<T>, origin: u32, mut combining: Combining) {
        let before = combining.before.as_mut().map_or(std::ptr::null_mut(), |before| before.as_mut_ptr());
        let Combining { combination, data, elements, done, .. } = &combining;
        let mut work = Accumulate { combination, data: data.as_ptr(), before, elements, done: *done };
        // SAFETY: `combine` has checked the length of the data, and made room for what was there before; the elements are in the window.
        let result = unsafe { self.near.accumulate_here(self.base, &mut work) };
        let done = work.done;
        match result {
            None => {
                combining.done = done;
                self.origins[origin as usize].busy = Busy::Combining(combining);
            }
            Some(result) => {
                if let Err(error) = result {
                    self.note_error(origin, error.class);
                }
                self.give_back(engine, origin, combining.before);
            }
        }
    }

    fn give_back<T: Transport>(&mut self, engine: &mut Engine<T>, origin: u32, before: Option<Box<[u8]>>) {
        if let Some(before) = before {
            self.reply(engine, origin, REPLY, before);
        }
    }

    pub(super) fn abandon_calls<T: Transport>(&mut self, engine: &mut Engine<T>) {
        for origin in &mut self.origins {
            origin.queue.drain(..).for_each(|call| call.leave(engine));
            match std::mem::take(&mut origin.busy) {
                Busy::Writing(id) => engine.forget(id),
                Busy::Arriving(_, data) => data.leave(engine),
                Busy::No | Busy::Locking | Busy::Leaving | Busy::Combining(_) => {}
            }
        }
        self.answers.drain(..).for_each(|answer| answer.leave(engine));
        self.direct.drain(..).for_each(|(_, id)| engine.forget(id));
    }

    /// Whether nothing is being sent to members that have called.
    pub fn has_answered(&self) -> bool {
        (self.answers.is_empty() && self.direct.is_empty() && self.active.is_empty()) || self.broken.is_some()
    }
}

/// `None` if there is no such combination.
fn combination(call: &Call) -> Option<Combination> {
    let element = Element::of(call.element)?;
    match call.kind {
        Kind::Compare => Some(Combination::compare(element)),
        _ => Combination::new(Builtin::of(call.op)?, element).ok(),
    }
}
