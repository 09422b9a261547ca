//! Matches receives and messages (MPI 5.0 §3.5): a message goes to the oldest posted receive that it suits, and a receive gets
//! the oldest message that suits it.
//!
//! Everything pending is in first-in-first-out lists by (context, source, tag), where source and tag may be "any", found by
//! hash ([`lists`]). Each of the [`Posted`] receives is in one list, so a message checks at most four list heads. Each of the
//! [`Unexpected`] messages is in one list for each kind of receive that its context has seen, and in one of all by arrival.
//! The cost of each operation does not depend on how much is pending.

mod lists;
#[cfg(test)]
mod tests;

use lists::{Lists, NONE};

use super::calls::{Source, TagMatch};
use super::frame::Envelope;

/// The key of a list.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Key {
    context: u32,
    /// 0 for any rank.
    rank: u32,
    /// 0 for any tag.
    tag: i32,
    class: Class,
}

/// Which parts of a key are exact.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Class {
    Exact,
    AnySource,
    AnyTag,
    Anything,
}

const CLASSES: [Class; 4] = [Class::Exact, Class::AnySource, Class::AnyTag, Class::Anything];

impl Key {
    #[inline]
    fn of(context: u32, source: Source, tag: TagMatch) -> Self {
        match (source, tag) {
            (Source::Rank(rank), TagMatch::Value(tag)) => Self { context, rank, tag, class: Class::Exact },
            (Source::Any, TagMatch::Value(tag)) => Self { context, rank: 0, tag, class: Class::AnySource },
            (Source::Rank(rank), TagMatch::Any) => Self { context, rank, tag: 0, class: Class::AnyTag },
            (Source::Any, TagMatch::Any) => Self { context, rank: 0, tag: 0, class: Class::Anything },
        }
    }

    /// The key of the receives of this class that would match the message.
    #[inline]
    fn under(envelope: Envelope, class: Class) -> Self {
        let Envelope { context, rank, tag } = envelope;
        match class {
            Class::Exact => Self { context, rank, tag, class },
            Class::AnySource => Self { context, rank: 0, tag, class },
            Class::AnyTag => Self { context, rank, tag: 0, class },
            Class::Anything => Self { context, rank: 0, tag: 0, class },
        }
    }

    #[inline]
    fn source(self) -> Source {
        match self.class {
            Class::Exact | Class::AnyTag => Source::Rank(self.rank),
            Class::AnySource | Class::Anything => Source::Any,
        }
    }

    /// Multiplicative: all bits of the key affect the upper ones.
    #[inline]
    fn hash(self) -> u32 {
        let (rank, tag) = (u64::from(self.rank), u64::from(self.tag as u32));
        let context = (u64::from(self.context) << 2 | self.class as u64).wrapping_mul(0xd6e8_feb8_6659_fd93);
        ((rank << 32 | tag) ^ context).wrapping_mul(0x9e37_79b9_7f4a_7c15).rotate_left(32) as u32
    }
}

/// The state of a context for matching.
#[derive(Debug, Clone, Copy)]
pub(super) struct Seen {
    /// How many receives of each class are posted.
    posted: [u32; 4],
    /// Whether unexpected messages are kept in lists of this class.
    indexed: [bool; 4],
    /// The oldest and the newest unexpected message.
    first: u32,
    last: u32,
}

impl Default for Seen {
    fn default() -> Self {
        let indexed = [true, false, false, false];
        Self { posted: [0; 4], indexed, first: NONE, last: NONE }
    }
}

/// Receives that wait for a message.
#[derive(Debug, Default)]
pub(super) struct Posted {
    lists: Lists<Receive>,
    stamp: u64,
}

#[derive(Debug, Clone, Copy)]
struct Receive {
    request: u32,
    /// Counts receives, to decide which of two list heads was posted first.
    stamp: u64,
}

impl Posted {
    /// Adds a receive; the returned entry identifies it until it is matched.
    #[inline]
    pub(super) fn post(&mut self, seen: &mut Seen, context: u32, source: Source, tag: TagMatch, request: u32) -> u32 {
        let key = Key::of(context, source, tag);
        seen.posted[key.class as usize] += 1;
        self.stamp += 1;
        self.lists.push(key, Receive { request, stamp: self.stamp })
    }

    /// The receive that gets a message with this envelope.
    #[inline]
    pub(super) fn find(&self, seen: &Seen, envelope: Envelope) -> Option<(u32, u32)> {
        let mut best: Option<(u32, Receive)> = None;
        for class in CLASSES {
            if seen.posted[class as usize] == 0 {
                continue;
            }
            let Some(entry) = self.lists.first(Key::under(envelope, class)) else { continue };
            let receive = *self.lists.value(entry);
            if best.is_none_or(|(_, other)| receive.stamp < other.stamp) {
                best = Some((entry, receive));
            }
        }
        best.map(|(entry, receive)| (entry, receive.request))
    }

    /// As [`Posted::find`]; also removes the receive.
    #[inline]
    pub(super) fn take(&mut self, seen: &mut Seen, envelope: Envelope) -> Option<u32> {
        if seen.posted[1..] == [0, 0, 0] {
            // The usual case: only one list is possible.
            let list = self.lists.find(Key::under(envelope, Class::Exact))?;
            seen.posted[Class::Exact as usize] -= 1;
            return Some(self.lists.pop(list).request);
        }
        let (entry, request) = self.find(seen, envelope)?;
        self.remove(seen, entry);
        Some(request)
    }

    /// Removes a receive that was matched or is no longer wanted.
    #[inline]
    pub(super) fn remove(&mut self, seen: &mut Seen, entry: u32) {
        seen.posted[self.lists.key(entry).class as usize] -= 1;
        self.lists.remove(entry);
    }

    /// The context and source of a receive.
    pub(super) fn asks(&self, entry: u32) -> (u32, Source) {
        let key = self.lists.key(entry);
        (key.context, key.source())
    }

    /// The tag of a receive.
    pub(super) fn tag(&self, entry: u32) -> TagMatch {
        let key = self.lists.key(entry);
        match key.class {
            Class::Exact | Class::AnySource => TagMatch::Value(key.tag),
            Class::AnyTag | Class::Anything => TagMatch::Any,
        }
    }
}

/// Messages that no receive has matched yet.
#[derive(Debug, Default)]
pub(super) struct Unexpected {
    lists: Lists<u32>,
    /// By the message's number.
    links: Vec<Links>,
    waiting: usize,
}

/// The position of a message in the lists.
#[derive(Debug, Clone, Copy)]
struct Links {
    /// Its entry in its list of each class.
    entries: [u32; 3],
    /// Its neighbours among all messages of its context.
    next: u32,
    previous: u32,
}

const UNLINKED: Links = Links { entries: [NONE; 3], next: NONE, previous: NONE };

/// The classes with lists by key. The first is always kept, since most receives are of that class; another one is built
/// for a context from the pending messages when it is first needed.
const LISTED: [Class; 3] = [Class::Exact, Class::AnySource, Class::AnyTag];

impl Unexpected {
    /// Whether the message is pending; this looks at all of its context.
    pub(super) fn contains(&self, seen: &Seen, message: u32) -> bool {
        self.all(seen).any(|at| at == message)
    }

    /// All pending messages of a context.
    pub(super) fn all(&self, seen: &Seen) -> impl Iterator<Item = u32> {
        let next = |at: &u32| Some(self.links[*at as usize].next).filter(|next| *next != NONE);
        std::iter::successors(seen.first_unexpected(), next)
    }

    /// Whether no message is pending.
    #[inline]
    pub(super) fn is_empty(&self) -> bool {
        self.waiting == 0
    }

    /// Adds the message with this number, which must be small: numbers are indices.
    #[inline]
    pub(super) fn add(&mut self, seen: &mut Seen, envelope: Envelope, message: u32) {
        let at = message as usize;
        if at >= self.links.len() {
            self.links.resize(at + 1, UNLINKED);
        }
        let mut links = Links { previous: seen.last, ..UNLINKED };
        for class in LISTED {
            if seen.indexed[class as usize] {
                links.entries[class as usize] = self.lists.push(Key::under(envelope, class), message);
            }
        }
        self.links[at] = links;
        match seen.last {
            NONE => seen.first = message,
            last => self.links[last as usize].next = message,
        }
        seen.last = message;
        self.waiting += 1;
    }

    /// The message that a receive gets; `envelope_of` returns a message's envelope.
    #[inline]
    pub(super) fn find(
        &mut self,
        seen: &mut Seen,
        context: u32,
        source: Source,
        tag: TagMatch,
        envelope_of: impl Fn(u32) -> Option<Envelope>,
    ) -> Option<u32> {
        if seen.first == NONE {
            return None;
        }
        let key = Key::of(context, source, tag);
        match key.class {
            Class::Anything => return Some(seen.first),
            Class::Exact => {}
            Class::AnySource | Class::AnyTag if seen.indexed[key.class as usize] => {}
            Class::AnySource | Class::AnyTag => self.index(seen, key.class, envelope_of),
        }
        self.lists.first(key).map(|entry| *self.lists.value(entry))
    }

    #[cold]
    fn index(&mut self, seen: &mut Seen, class: Class, envelope_of: impl Fn(u32) -> Option<Envelope>) {
        seen.indexed[class as usize] = true;
        let mut message = seen.first;
        while message != NONE {
            if let Some(envelope) = envelope_of(message) {
                let entry = self.lists.push(Key::under(envelope, class), message);
                self.links[message as usize].entries[class as usize] = entry;
            }
            message = self.links[message as usize].next;
        }
    }

    /// Removes a message that was found.
    #[inline]
    pub(super) fn remove(&mut self, seen: &mut Seen, message: u32) {
        let Links { entries, next, previous } = self.links[message as usize];
        for entry in entries {
            if entry != NONE {
                self.lists.remove(entry);
            }
        }
        match previous {
            NONE => seen.first = next,
            _ => self.links[previous as usize].next = next,
        }
        match next {
            NONE => seen.last = previous,
            _ => self.links[next as usize].previous = previous,
        }
        self.waiting -= 1;
    }
}

impl Seen {
    /// Whether any receive is posted.
    #[inline(always)]
    pub(super) fn has_posted(&self) -> bool {
        self.posted != [0; 4]
    }

    /// The oldest unexpected message.
    pub(super) fn first_unexpected(&self) -> Option<u32> {
        (self.first != NONE).then_some(self.first)
    }
}
