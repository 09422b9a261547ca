//! Which receive gets which message (MPI 5.0 §3.5): of the receives that a message suits, the one posted first; of the messages
//! that suit a receive, the one that arrived first.
//!
//! Everything waiting is in first-in-first-out lists by (context, source, tag), where source and tag may be "any", found by
//! hash: [`Posted`] receives in one list each, so that a message looks at no more than four list heads; [`Unexpected`]
//! messages in one list for each way to ask for them that their context has seen, and all in the order they came. All of it costs the same however much is
//! waiting.

use super::frame::Envelope;
use super::request::{Source, TagMatch};

/// No entry, no list.
const NONE: u32 = u32::MAX;

/// What a list is found by.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Key {
    context: u32,
    /// 0 if any.
    rank: u32,
    /// 0 if any.
    tag: i32,
    class: Class,
}

/// What is exact about a key.
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

    /// What a receive of this class would ask for to get the message.
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

    /// Multiplicative: all bits of the key reach the upper ones.
    #[inline]
    fn hash(self) -> u32 {
        let (rank, tag) = (u64::from(self.rank), u64::from(self.tag as u32));
        let context = (u64::from(self.context) << 2 | self.class as u64).wrapping_mul(0xd6e8_feb8_6659_fd93);
        ((rank << 32 | tag) ^ context).wrapping_mul(0x9e37_79b9_7f4a_7c15).rotate_left(32) as u32
    }
}

/// What a context remembers for matching.
#[derive(Debug, Clone, Copy)]
pub(super) struct Seen {
    /// How many receives of each class are posted.
    posted: [u32; 4],
    /// Whether unexpected messages are kept in lists of this class.
    indexed: [bool; 4],
    /// The unexpected messages that came first and last.
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
    /// Counts receives, to tell which of two lists' first was posted first.
    stamp: u64,
}

impl Posted {
    /// Adds a receive; what is returned stands for it until it is matched.
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

    /// As [`Posted::find`]; the receive is removed.
    #[inline]
    pub(super) fn take(&mut self, seen: &mut Seen, envelope: Envelope) -> Option<u32> {
        if seen.posted[1..] == [0, 0, 0] {
            // Nearly always: only one list comes into question.
            let list = self.lists.find(Key::under(envelope, Class::Exact))?;
            seen.posted[Class::Exact as usize] -= 1;
            return Some(self.lists.pop(list).request);
        }
        let (entry, request) = self.find(seen, envelope)?;
        self.remove(seen, entry);
        Some(request)
    }

    /// Removes a receive, which was found or is not wanted any more.
    #[inline]
    pub(super) fn remove(&mut self, seen: &mut Seen, entry: u32) {
        seen.posted[self.lists.key(entry).class as usize] -= 1;
        self.lists.remove(entry);
    }

    /// The context and source that a receive asks for.
    pub(super) fn asks(&self, entry: u32) -> (u32, Source) {
        let key = self.lists.key(entry);
        (key.context, key.source())
    }
}

/// Messages that no receive has asked for yet.
#[derive(Debug, Default)]
pub(super) struct Unexpected {
    lists: Lists<u32>,
    /// By the message's number.
    links: Vec<Links>,
    waiting: usize,
}

/// Where a message is.
#[derive(Debug, Clone, Copy)]
struct Links {
    /// Its entry in its list of each class.
    entries: [u32; 3],
    /// Its neighbours among all of its context.
    next: u32,
    previous: u32,
}

const UNLINKED: Links = Links { entries: [NONE; 3], next: NONE, previous: NONE };

/// Classes with lists by key. The first is kept always, as it is what most receives ask for; another one of a context is
/// made from the messages that wait when it is first asked for.
const LISTED: [Class; 3] = [Class::Exact, Class::AnySource, Class::AnyTag];

impl Unexpected {
    /// Whether none waits.
    #[inline]
    pub(super) fn is_empty(&self) -> bool {
        self.waiting == 0
    }

    /// Adds the message with this number, a small one: numbers are indices.
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

    /// The message that a receive gets; `envelope_of` tells a message's envelope.
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

    /// Removes a message, which was found.
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
    /// The unexpected message that came first.
    pub(super) fn first_unexpected(&self) -> Option<u32> {
        (self.first != NONE).then_some(self.first)
    }
}

/// First-in-first-out lists of `V` by key, linked through vectors:
///
/// ```text
/// buckets[hash] → list {key, next} → list …      (another key with the same hash)
///                   ↓ head
///                 entry ⇄ entry ⇄ entry           (tail)
/// ```
#[derive(Debug)]
struct Lists<V> {
    /// As many as a power of two, and at least as many as lists.
    buckets: Vec<u32>,
    lists: Vec<List>,
    entries: Vec<Entry<V>>,
    /// First of the lists not used, linked by `next`.
    free_list: u32,
    free_entry: u32,
    used: usize,
    /// The list that something was put into last: the same key often follows.
    recent: u32,
}

#[derive(Debug, Clone, Copy)]
struct List {
    key: Key,
    head: u32,
    tail: u32,
    next: u32,
}

#[derive(Debug, Clone, Copy)]
struct Entry<V> {
    list: u32,
    next: u32,
    previous: u32,
    value: V,
}

impl<V> Default for Lists<V> {
    fn default() -> Self {
        let (lists, entries) = (Vec::new(), Vec::new());
        Self { buckets: vec![NONE; 16], lists, entries, free_list: NONE, free_entry: NONE, used: 0, recent: NONE }
    }
}

impl<V: Copy> Lists<V> {
    #[inline]
    fn push(&mut self, key: Key, value: V) -> u32 {
        let list = match self.find(key) {
            Some(list) => list,
            None => self.open(key),
        };
        self.recent = list;
        let tail = self.lists[list as usize].tail;
        let entry = Entry { list, next: NONE, previous: tail, value };
        let at = self.free_entry;
        let at = if at == NONE {
            self.entries.push(entry);
            (self.entries.len() - 1) as u32
        } else {
            self.free_entry = self.entries[at as usize].next;
            self.entries[at as usize] = entry;
            at
        };
        if tail == NONE {
            self.lists[list as usize].head = at;
        } else {
            self.entries[tail as usize].next = at;
        }
        self.lists[list as usize].tail = at;
        at
    }

    #[inline]
    fn first(&self, key: Key) -> Option<u32> {
        self.find(key).map(|list| self.lists[list as usize].head)
    }

    #[inline]
    fn value(&self, entry: u32) -> &V {
        &self.entries[entry as usize].value
    }

    #[inline]
    fn key(&self, entry: u32) -> Key {
        self.lists[self.entries[entry as usize].list as usize].key
    }

    #[inline]
    fn remove(&mut self, entry: u32) {
        let Entry { list, next, previous, .. } = self.entries[entry as usize];
        match previous {
            NONE => self.lists[list as usize].head = next,
            _ => self.entries[previous as usize].next = next,
        }
        match next {
            NONE => self.lists[list as usize].tail = previous,
            _ => self.entries[next as usize].previous = previous,
        }
        self.entries[entry as usize].next = self.free_entry;
        self.free_entry = entry;
        if next == NONE && previous == NONE {
            self.close(list);
        }
    }

    /// Takes out the first of a list.
    #[inline]
    fn pop(&mut self, list: u32) -> V {
        let head = self.lists[list as usize].head;
        let Entry { next, value, .. } = self.entries[head as usize];
        self.entries[head as usize].next = self.free_entry;
        self.free_entry = head;
        if next == NONE {
            self.close(list);
        } else {
            self.lists[list as usize].head = next;
            self.entries[next as usize].previous = NONE;
        }
        value
    }

    #[inline(always)]
    fn find(&self, key: Key) -> Option<u32> {
        if let Some(list) = self.lists.get(self.recent as usize)
            && list.key == key
        {
            return Some(self.recent);
        }
        self.find_by_hash(key)
    }

    #[inline(never)]
    fn find_by_hash(&self, key: Key) -> Option<u32> {
        let mut at = self.buckets[self.bucket(key)];
        while at != NONE {
            let list = &self.lists[at as usize];
            if list.key == key {
                return Some(at);
            }
            at = list.next;
        }
        None
    }

    #[inline]
    fn bucket(&self, key: Key) -> usize {
        key.hash() as usize & (self.buckets.len() - 1)
    }

    #[inline]
    fn open(&mut self, key: Key) -> u32 {
        if self.used == self.buckets.len() {
            self.widen();
        }
        let bucket = self.bucket(key);
        let list = List { key, head: NONE, tail: NONE, next: self.buckets[bucket] };
        let at = self.free_list;
        let at = if at == NONE {
            self.lists.push(list);
            (self.lists.len() - 1) as u32
        } else {
            self.free_list = self.lists[at as usize].next;
            self.lists[at as usize] = list;
            at
        };
        self.buckets[bucket] = at;
        self.used += 1;
        at
    }

    /// An empty list is not kept: keys come and go, as tags that count messages do.
    #[inline]
    fn close(&mut self, list: u32) {
        let List { key, next, .. } = self.lists[list as usize];
        if self.recent == list {
            self.recent = NONE;
        }
        let bucket = self.bucket(key);
        let mut at = self.buckets[bucket];
        if at == list {
            self.buckets[bucket] = next;
        } else {
            while self.lists[at as usize].next != list {
                at = self.lists[at as usize].next;
            }
            self.lists[at as usize].next = next;
        }
        self.lists[list as usize].next = self.free_list;
        self.free_list = list;
        self.used -= 1;
    }

    /// Twice the buckets; called when all lists are in use.
    #[cold]
    fn widen(&mut self) {
        let old = std::mem::take(&mut self.buckets);
        self.buckets = vec![NONE; old.len() * 2];
        for mut at in old {
            while at != NONE {
                let List { key, next, .. } = self.lists[at as usize];
                let bucket = self.bucket(key);
                self.lists[at as usize].next = self.buckets[bucket];
                self.buckets[bucket] = at;
                at = next;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// The same with nothing but two lists in order of time.
    #[derive(Default)]
    struct Naive {
        posted: Vec<(u32, Source, TagMatch, u32)>,
        messages: Vec<(Envelope, u32)>,
    }

    fn suits(context: u32, source: Source, tag: TagMatch, envelope: Envelope) -> bool {
        context == envelope.context
            && (source == Source::Any || source == Source::Rank(envelope.rank))
            && (tag == TagMatch::Any || tag == TagMatch::Value(envelope.tag))
    }

    #[derive(Debug, Clone)]
    enum Event {
        /// A receive is started: it gets a message that is there, or is posted.
        Receive(u32, Source, TagMatch),
        /// A message comes: a posted receive gets it, or it waits.
        Message(Envelope),
        /// One of the posted receives is cancelled.
        Cancel(prop::sample::Index),
    }

    fn event() -> impl Strategy<Value = Event> {
        let source = prop_oneof![3 => (0..3_u32).prop_map(Source::Rank), 1 => Just(Source::Any)];
        let tag = prop_oneof![3 => (-1..2_i32).prop_map(TagMatch::Value), 1 => Just(TagMatch::Any)];
        let envelope = (0..2_u32, 0..3_u32, -1..2_i32);
        prop_oneof![
            4 => (0..2_u32, source, tag).prop_map(|(context, source, tag)| Event::Receive(context, source, tag)),
            4 => envelope.prop_map(|(context, rank, tag)| Event::Message(Envelope { context, rank, tag })),
            1 => any::<prop::sample::Index>().prop_map(Event::Cancel),
        ]
    }

    proptest! {
        #[test]
        fn who_gets_what_is_as_with_two_plain_lists(events in prop::collection::vec(event(), 0..200)) {
            let (mut posted, mut unexpected, mut naive) = (Posted::default(), Unexpected::default(), Naive::default());
            let mut seen = [Seen::default(); 2];
            let mut entries = Vec::new();
            let mut envelopes = Vec::new();
            for (number, event) in events.into_iter().enumerate() {
                let number = number as u32;
                match event {
                    Event::Receive(context, source, tag) => {
                        let place = naive.messages.iter().position(|it| suits(context, source, tag, it.0));
                        let expected = place.map(|place| naive.messages.remove(place).1);
                        let of = |message: u32| envelopes.iter().find(|it: &&(Envelope, u32)| it.1 == message).map(|it| it.0);
                        let seen = &mut seen[context as usize];
                        let found = unexpected.find(seen, context, source, tag, of);
                        prop_assert_eq!(found, expected);
                        if let Some(message) = found {
                            unexpected.remove(seen, message);
                        } else {
                            naive.posted.push((context, source, tag, number));
                            entries.push((posted.post(seen, context, source, tag, number), number));
                        }
                    }
                    Event::Message(envelope) => {
                        let place = naive.posted.iter().position(|it| suits(it.0, it.1, it.2, envelope));
                        let expected = place.map(|place| naive.posted.remove(place).3);
                        let seen = &mut seen[envelope.context as usize];
                        let found = posted.find(seen, envelope);
                        prop_assert_eq!(found.map(|it| it.1), expected);
                        if let Some((entry, request)) = found {
                            prop_assert_eq!(posted.asks(entry).0, envelope.context);
                            posted.remove(seen, entry);
                            entries.retain(|it| it.1 != request);
                        } else {
                            naive.messages.push((envelope, number));
                            envelopes.push((envelope, number));
                            unexpected.add(seen, envelope, number);
                        }
                    }
                    Event::Cancel(index) if !entries.is_empty() => {
                        let (entry, request) = entries.remove(index.index(entries.len()));
                        let (context, _) = posted.asks(entry);
                        posted.remove(&mut seen[context as usize], entry);
                        naive.posted.retain(|it| it.3 != request);
                    }
                    Event::Cancel(_) => {}
                }
            }
            for context in 0..2 {
                let first = naive.messages.iter().find(|it| it.0.context == context).map(|it| it.1);
                prop_assert_eq!(seen[context as usize].first_unexpected(), first);
            }
        }
    }

    #[test]
    fn lists_are_found_in_a_few_steps_however_many_there_are() {
        let mut lists = Lists::default();
        let (contexts, ranks, tags) = (0..8_u32, 0..100_u32, 0..100_i32);
        for context in contexts {
            for rank in ranks.clone() {
                for tag in tags.clone() {
                    let (source, tag) = (Source::Rank(rank), TagMatch::Value(tag));
                    lists.push(Key::of(context, source, tag), ());
                    lists.push(Key::of(context, source, tag), ());
                }
            }
        }
        let steps = |bucket: &u32| {
            let next = |at: &u32| Some(lists.lists[*at as usize].next).filter(|at| *at != NONE);
            std::iter::successors(Some(*bucket).filter(|at| *at != NONE), next).count()
        };
        assert!(lists.buckets.iter().map(steps).max() <= Some(8));
    }

    #[test]
    fn what_was_used_is_used_again() {
        let mut lists = Lists::default();
        for round in 0..1000 {
            let entries = [0, 1, 2].map(|tag| lists.push(Key::of(round, Source::Any, TagMatch::Value(tag)), tag));
            for entry in entries {
                lists.remove(entry);
            }
        }
        assert_eq!((lists.lists.len(), lists.entries.len(), lists.buckets.len(), lists.used), (3, 3, 16, 0));
    }
}
