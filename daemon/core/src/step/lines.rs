//! Cuts one output stream of a rank into records of whole lines, so that lines of several ranks do not mix.
//!
//! The output of a job's only rank is passed on as it arrives. A line beyond the limit is passed on in marked pieces, because
//! memory is bounded. Bytes are never changed: the concatenated records are the stream.

use bytes::Bytes;

/// The cutter of one stream.
#[derive(Debug)]
pub(super) struct Lines {
    /// The line that has not ended yet.
    partial: Vec<u8>,
    limit: usize,
    whole: bool,
    open: bool,
}

/// Bytes to pass on. `more`: their last line continues in the next record.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Piece {
    pub(super) data: Bytes,
    pub(super) more: bool,
}

impl Lines {
    /// Returns a cutter. `whole`: hold back an incomplete line, up to `limit` bytes.
    pub(super) fn new(whole: bool, limit: usize) -> Lines {
        Lines { partial: Vec::new(), limit, whole, open: true }
    }

    /// Takes bytes as read and returns what can be passed on now. Cost: one copy.
    pub(super) fn feed(&mut self, bytes: &[u8]) -> Option<Piece> {
        let end = bytes.iter().rposition(|byte| *byte == b'\n').map(|at| at + 1);
        let (lines, rest) = match end {
            Some(end) => bytes.split_at(end),
            None => (&[][..], bytes),
        };
        let too_long = self.partial.len() + bytes.len() > self.limit;
        if !self.whole || (end.is_none() && too_long) || rest.len() > self.limit {
            self.partial.extend_from_slice(bytes);
            let more = !rest.is_empty();
            return self.take().map(|data| Piece { data, more });
        }
        if lines.is_empty() {
            self.partial.extend_from_slice(rest);
            return None;
        }
        self.partial.extend_from_slice(lines);
        let data = self.take();
        self.partial.extend_from_slice(rest);
        data.map(|data| Piece { data, more: false })
    }

    /// Closes the stream and returns the incomplete line.
    pub(super) fn close(&mut self) -> Option<Bytes> {
        self.open = false;
        self.take()
    }

    /// Returns whether more output may follow.
    pub(super) fn is_open(&self) -> bool {
        self.open
    }

    fn take(&mut self) -> Option<Bytes> {
        if self.partial.is_empty() { None } else { Some(Bytes::from(std::mem::take(&mut self.partial))) }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn whole_lines_are_passed_on_and_an_incomplete_line_is_held_back() {
        let mut lines = Lines::new(true, 100);
        assert_eq!(lines.feed(b"he"), None);
        assert_eq!(lines.feed(b"llo\nwor"), Some(Piece { data: "hello\n".into(), more: false }));
        assert_eq!(lines.feed(b"ld"), None);
        assert_eq!(lines.close(), Some("world".into()));
        assert!(!lines.is_open());
    }

    #[test]
    fn a_line_beyond_the_limit_is_passed_on_in_marked_pieces() {
        let mut lines = Lines::new(true, 4);
        assert_eq!(lines.feed(b"abcdef"), Some(Piece { data: "abcdef".into(), more: true }));
        assert_eq!(lines.feed(b"g\n"), Some(Piece { data: "g\n".into(), more: false }));
    }

    #[test]
    fn output_of_the_only_rank_is_passed_on_at_once() {
        let mut lines = Lines::new(false, 4);
        assert_eq!(lines.feed(b"name? "), Some(Piece { data: "name? ".into(), more: true }));
        assert_eq!(lines.close(), None);
    }

    proptest! {
        #[test]
        fn nothing_is_changed_held_beyond_the_limit_or_cut_within_a_line(
            chunks in prop::collection::vec(prop::collection::vec(prop::sample::select(vec![b'a', b'\n']), 0..20), 0..20)
        ) {
            let mut lines = Lines::new(true, 8);
            let mut seen = Vec::new();
            for chunk in &chunks {
                if let Some(piece) = lines.feed(chunk) {
                    prop_assert!(!piece.data.is_empty());
                    prop_assert_eq!(piece.more, piece.data.last() != Some(&b'\n'));
                    seen.extend_from_slice(&piece.data);
                }
                prop_assert!(lines.partial.len() <= 8);
            }
            seen.extend(lines.close().unwrap_or_default());
            prop_assert_eq!(seen, chunks.concat());
        }
    }
}
