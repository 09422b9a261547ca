//! A byte stream that survives lost links. The sender keeps unacknowledged bytes and sends them again after a reconnect; the
//! receiver recognises repeats by their offset. Offsets count payload bytes from the beginning of the stream.
//!
//! Used upwards for output (a step to the head) and downwards for standard input (the head to a step). The window bounds the
//! memory and slows the sender down to the speed of the receiver.

use std::collections::VecDeque;

/// The sending half: the unacknowledged items.
#[derive(Debug)]
pub struct Outbox<T> {
    /// The items in order; `end` is the offset after the item.
    items: VecDeque<Item<T>>,
    next: u64,
    acked: u64,
    window_bytes: u64,
}

#[derive(Debug)]
struct Item<T> {
    start: u64,
    end: u64,
    payload: T,
}

impl<T> Outbox<T> {
    /// Returns an empty stream. It accepts no input while `window_bytes` or more are unacknowledged.
    pub fn new(window_bytes: u64) -> Outbox<T> {
        Outbox { items: VecDeque::new(), next: 0, acked: 0, window_bytes }
    }

    /// Returns an empty stream of which the bytes below `start` have been acknowledged.
    pub fn beginning(window_bytes: u64, start: u64) -> Outbox<T> {
        Outbox { items: VecDeque::new(), next: start, acked: start, window_bytes }
    }

    /// Returns the offset after the last byte that was pushed.
    pub fn end(&self) -> u64 {
        self.next
    }

    /// Returns the offset below which everything is acknowledged.
    pub fn acked(&self) -> u64 {
        self.acked
    }

    /// Returns whether another item, of any size, may be pushed.
    pub fn is_open(&self) -> bool {
        self.next - self.acked < self.window_bytes
    }

    /// Returns whether everything has been acknowledged.
    pub fn is_drained(&self) -> bool {
        self.items.is_empty()
    }

    /// Appends `len` bytes and returns their offset.
    pub fn push(&mut self, len: u64, payload: T) -> u64 {
        let start = self.next;
        self.next += len;
        self.items.push_back(Item { start, end: self.next, payload });
        start
    }

    /// Records that the receiver has everything below `offset`. An offset beyond the sent bytes is invalid and counts as
    /// everything.
    pub fn ack(&mut self, offset: u64) {
        self.acked = self.acked.max(offset.min(self.next));
        while self.items.front().is_some_and(|item| item.end <= self.acked) {
            self.items.pop_front();
        }
    }

    /// Returns everything unacknowledged with its offset, oldest first.
    pub fn unacked(&self) -> impl Iterator<Item = (u64, &T)> {
        self.items.iter().map(|item| (item.start, &item.payload))
    }
}

/// The receiving half: the offset up to which bytes have arrived.
#[derive(Debug, Default, Clone, Copy)]
pub struct Inbox {
    next: u64,
    acked: u64,
}

impl Inbox {
    /// Returns the half of a stream of which so many bytes have arrived and can be acknowledged.
    pub fn at(next: u64) -> Inbox {
        Inbox { next, acked: next }
    }

    /// Returns whether the `len` bytes at `offset` are new; if so, they count as received. Repeats, and bytes beyond a gap, are
    /// not new: after a reconnect the sender sends everything unacknowledged again, in order.
    pub fn accept(&mut self, offset: u64, len: u64) -> bool {
        let new = offset == self.next;
        if new {
            self.next += len;
        }
        new
    }

    /// Returns the offset to acknowledge.
    pub fn received(&self) -> u64 {
        self.next
    }

    /// Records that the bytes below this offset are acknowledged. Returns false if more is acknowledged already.
    pub fn ack_to(&mut self, offset: u64) -> bool {
        let offset = offset.min(self.next);
        let is_news = offset >= self.acked;
        self.acked = self.acked.max(offset);
        is_news
    }

    /// Records that the sender has dropped everything below this offset, because an earlier receiver has acknowledged it. What this
    /// receiver lacks of it is lost.
    pub fn skip_to(&mut self, offset: u64) {
        self.next = self.next.max(offset);
        self.acked = self.acked.max(offset);
    }

    /// Returns the offset that was acknowledged last.
    pub fn acked(&self) -> u64 {
        self.acked
    }

    /// Returns how many bytes have arrived since the last acknowledgement.
    pub fn unacked(&self) -> u64 {
        self.next - self.acked
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn unacknowledged_items_are_sent_again_and_accepted_once() {
        let mut outbox = Outbox::new(8);
        let mut inbox = Inbox::default();
        let first = outbox.push(5, "hello");
        assert!(inbox.accept(first, 5));
        let second = outbox.push(5, "world");
        assert!(!outbox.is_open(), "10 bytes unacknowledged are more than 8");
        // The second message and the acknowledgement are lost with the link.
        let again: Vec<_> = outbox.unacked().map(|(offset, payload)| (offset, *payload)).collect();
        assert_eq!(again, [(first, "hello"), (second, "world")]);
        assert!(!inbox.accept(first, 5));
        assert!(inbox.accept(second, 5));
        assert_eq!(inbox.unacked(), 10);
        assert!(inbox.ack_to(10) && !inbox.ack_to(9));
        outbox.ack(inbox.acked());
        assert_eq!(inbox.unacked(), 0);
        assert!(outbox.is_open() && outbox.is_drained());
    }

    #[test]
    fn an_acknowledgement_of_more_than_was_sent_is_harmless() {
        let mut outbox = Outbox::new(4);
        outbox.push(3, ());
        outbox.ack(1_000_000);
        assert_eq!(outbox.push(3, ()), 3);
        assert!(!outbox.is_drained());
    }

    #[test]
    fn nothing_beyond_a_gap_is_accepted() {
        let mut inbox = Inbox::default();
        assert!(!inbox.accept(7, 3));
        assert_eq!((inbox.received(), inbox.acked()), (0, 0));
    }
}
