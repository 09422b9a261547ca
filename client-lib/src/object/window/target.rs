//! The called side: performs what other members call on this process's memory.

use std::collections::VecDeque;
use std::sync::Arc;

use super::super::agree::Lent;
use super::Window;
use super::wire::{CALL, Call, DATA, DONE, Kind, Places, REPLY};
use crate::abi::constants::{MPI_ERR_OTHER, MPI_ERR_RMA_RANGE, MPI_SUCCESS};
use crate::datatype::{Datatype, Element, Layout};
use crate::engine::{Engine, Mode, RequestId, Source, Started, TagMatch, Transport};
use crate::error::{MpiError, MpiResult};
use crate::memory::Buffer;
use crate::op::{Builtin, OpRef, Reduction};

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
    Combining(Call, Lent),
    /// A lock that others hold.
    Locking,
}

/// The locks on this process's memory.
#[derive(Debug, Default)]
pub(super) struct Locks {
    held: Held,
    /// Members that wait, and whether they want it alone, in the order in which they asked.
    waiting: VecDeque<(u32, bool)>,
}

#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
enum Held {
    #[default]
    Free,
    Shared(u32),
    Alone,
}

impl Locks {
    /// Whether the lock was granted; otherwise the member waits.
    fn lock(&mut self, origin: u32, alone: bool) -> bool {
        if self.waiting.is_empty() && self.grant(alone) {
            return true;
        }
        self.waiting.push_back((origin, alone));
        false
    }

    fn grant(&mut self, alone: bool) -> bool {
        let next = match (self.held, alone) {
            (Held::Free, true) => Held::Alone,
            (Held::Free, false) => Held::Shared(1),
            (Held::Shared(count), false) => Held::Shared(count + 1),
            (Held::Shared(_), true) | (Held::Alone, _) => return false,
        };
        self.held = next;
        true
    }

    /// Returns the members that have it now.
    fn unlock(&mut self) -> Vec<u32> {
        self.held = match self.held {
            Held::Shared(count @ 2..) => Held::Shared(count - 1),
            Held::Free | Held::Shared(_) | Held::Alone => Held::Free,
        };
        let mut granted = Vec::new();
        while let Some((origin, alone)) = self.waiting.front().copied()
            && self.grant(alone)
        {
            self.waiting.pop_front();
            granted.push(origin);
        }
        granted
    }
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
                    self.broken.get_or_insert(error);
                    break;
                }
            }
        }
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
            self.direct.retain(|id| engine.take(*id).is_none());
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
                Busy::Combining(call, data) => match data.outcome(engine) {
                    Ok((_, data)) => {
                        self.combine(engine, origin, &call, &data);
                        moved = true;
                    }
                    Err(data) => return self.stay(origin, Busy::Combining(call, data), moved),
                },
                Busy::Locking => return self.stay(origin, Busy::Locking, moved),
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
                    self.direct.push(id);
                }
            }
            Kind::Accumulate | Kind::Fetch | Kind::Compare => match call.data.take() {
                Some(data) => self.combine(engine, origin, &call, &data),
                None => {
                    let len = call.places.len;
                    let room = crate::memory::zeroed(len).unwrap_or_default();
                    if room.len() < len {
                        // The data is taken without room for it, and not used.
                        call.places = Places { at: -1, len: 1, pieces: Vec::new() };
                    }
                    let (context, from) = (self.context, Source::Rank(origin));
                    let data = Lent::start(room, |buffer| engine.recv(context, from, TagMatch::Value(DATA), buffer));
                    self.origins[origin as usize].busy = Busy::Combining(call, data);
                }
            },
            Kind::Flush => self.answer(engine, origin),
            Kind::LockShared | Kind::LockExclusive => {
                if !self.locks.lock(origin, call.kind == Kind::LockExclusive) {
                    self.origins[origin as usize].busy = Busy::Locking;
                }
            }
            Kind::Unlock => {
                for granted in self.locks.unlock() {
                    self.origins[granted as usize].busy = Busy::No;
                }
                self.answer(engine, origin);
            }
            Kind::Complete => self.origins[origin as usize].completed += 1,
        }
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
            let within = |(start, size): &(usize, usize)| at >= *start && end - *start <= *size;
            return self.attached.iter().any(within).then_some(at);
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

    /// Whether all of these members have called `MPI_Win_complete`; if so, it counts as seen.
    pub fn take_completed(&mut self, origins: &[u32]) -> bool {
        let all = origins.iter().all(|origin| self.origins[*origin as usize].completed > 0);
        if all {
            origins.iter().for_each(|origin| self.origins[*origin as usize].completed -= 1);
        }
        all || self.broken.is_some()
    }

    /// Combines data with the window, and returns what was there before to the member that asked.
    fn combine<T: Transport>(&mut self, engine: &mut Engine<T>, origin: u32, call: &Call, data: &[u8]) {
        let place = self.place(origin, &call.places);
        let fetches = call.kind != Kind::Accumulate;
        let mut before = vec![0; if fetches { place.len() } else { 0 }];
        if fetches {
            place.read(0, &mut before);
        }
        let done = match call.kind {
            Kind::Compare => compare(&place, &before, data),
            _ => apply(call, &place, data),
        };
        if done.is_err() {
            self.note_error(origin, MPI_ERR_RMA_RANGE);
        }
        if fetches {
            self.reply(engine, origin, REPLY, before.into());
        }
    }

    pub(super) fn abandon_calls<T: Transport>(&mut self, engine: &mut Engine<T>) {
        for origin in &mut self.origins {
            origin.queue.drain(..).for_each(|call| call.leave(engine));
            match std::mem::take(&mut origin.busy) {
                Busy::Writing(id) => engine.forget(id),
                Busy::Combining(_, data) => data.leave(engine),
                Busy::No | Busy::Locking => {}
            }
        }
        self.answers.drain(..).for_each(|answer| answer.leave(engine));
        self.direct.drain(..).for_each(|id| engine.forget(id));
    }

    /// Whether nothing is being sent to members that have called.
    pub fn has_answered(&self) -> bool {
        (self.answers.is_empty() && self.direct.is_empty() && self.active.is_empty()) || self.broken.is_some()
    }
}

fn invalid() -> MpiError {
    MpiError::intern("invalid accumulate")
}

/// `data` is what to compare with, then what to write.
fn compare(place: &Buffer, before: &[u8], data: &[u8]) -> MpiResult {
    let (expected, new) = data.split_at_checked(place.len()).ok_or_else(invalid)?;
    if new.len() != place.len() {
        return Err(invalid());
    }
    if before == expected {
        place.write(0, new);
    }
    Ok(())
}

fn apply(call: &Call, place: &Buffer, data: &[u8]) -> MpiResult {
    let op = Builtin::of(call.op).ok_or_else(invalid)?;
    match op {
        Builtin::NoOp => return Ok(()),
        _ if data.is_empty() && place.is_empty() => return Ok(()),
        _ if data.len() != place.len() => return Err(invalid()),
        Builtin::Replace => {
            place.write(0, data);
            return Ok(());
        }
        _ => {}
    }
    let element = Element::of(call.element).ok_or_else(invalid)?;
    let datatype = Datatype::predefined(element);
    let reduction = Reduction::new(&OpRef::Builtin(op), datatype, call.element)?;
    let (size, extent) = (datatype.size(), datatype.extent() as usize);
    if size == 0 || !data.len().is_multiple_of(size) {
        return Err(invalid());
    }
    let count = data.len() / size;
    if let Some(address) = place.as_contiguous().filter(|_| size == extent) {
        // SAFETY: `count` elements are in both, and elements without holes may be anywhere.
        unsafe { reduction.apply(data.as_ptr(), address, count) };
        return Ok(());
    }
    // Elements with holes, or scattered ones: laid out here as in an array.
    let mut packed = vec![0; data.len()];
    place.read(0, &mut packed);
    let mut arrays = [vec![0_u128; (count * extent).div_ceil(16)], vec![0_u128; (count * extent).div_ceil(16)]];
    let [input, inout] = arrays.each_mut().map(|array| array.as_mut_ptr().cast::<u8>());
    // SAFETY: each array has room for `count` elements one extent apart, and lives until the end of this function.
    unsafe {
        Buffer::new(input, count, datatype.layout()).write(0, data);
        let target = Buffer::new(inout, count, datatype.layout());
        target.write(0, &packed);
        reduction.apply(input, inout, count);
        target.read(0, &mut packed);
    }
    place.write(0, &packed);
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_lock_is_granted_in_the_order_of_requests() {
        let mut locks = Locks::default();
        assert!(locks.lock(0, false) && locks.lock(1, false));
        assert!(!locks.lock(2, true) && !locks.lock(3, false) && !locks.lock(4, false));
        assert!(locks.unlock().is_empty());
        assert_eq!(locks.unlock(), [2]);
        assert_eq!(locks.unlock(), [3, 4]);
        assert!(locks.unlock().is_empty());
        assert!(locks.unlock().is_empty());
        assert!(locks.lock(5, true));
    }
}
