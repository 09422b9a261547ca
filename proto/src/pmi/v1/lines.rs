//! Splits bytes that arrive in arbitrary pieces into lines.

use super::{BACKLOG_MAX, LINE_MAX, WireError};

/// Bytes fed but not yet taken, at most [`BACKLOG_MAX`].
#[derive(Debug, Default)]
pub(super) struct Lines {
    bytes: Vec<u8>,
    /// Where the first line that has not been taken starts.
    start: usize,
    /// No line feed lies between `start` and here.
    searched: usize,
    overrun: bool,
}

impl Lines {
    pub(super) fn feed(&mut self, bytes: &[u8]) {
        self.bytes.drain(..self.start);
        self.searched -= self.start;
        self.start = 0;
        let room = BACKLOG_MAX - self.bytes.len();
        self.overrun |= bytes.len() > room;
        self.bytes.extend_from_slice(&bytes[..bytes.len().min(room)]);
    }

    /// Returns the next whole line, without its line feed.
    pub(super) fn next(&mut self) -> Option<Result<&[u8], WireError>> {
        let found = self.bytes[self.searched..].iter().position(|byte| *byte == b'\n');
        let end = found.map_or(self.bytes.len(), |offset| self.searched + offset);
        if end - self.start > LINE_MAX {
            return Some(Err(WireError::LineTooLong));
        }
        if found.is_none() {
            self.searched = end;
            return self.overrun.then_some(Err(WireError::BacklogTooLong));
        }
        let line = self.start..end;
        self.start = end + 1;
        self.searched = self.start;
        Some(Ok(&self.bytes[line]))
    }

    /// Whether bytes were dropped.
    pub(super) fn is_overrun(&self) -> bool {
        self.overrun
    }

    /// The bytes of a line that is incomplete or too long.
    pub(super) fn pending(&self) -> &[u8] {
        &self.bytes[self.start..]
    }

    #[cfg(test)]
    pub(super) fn buffered(&self) -> usize {
        self.bytes.len()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn taken(lines: &mut Lines) -> Vec<Result<Vec<u8>, WireError>> {
        let mut all = Vec::new();
        while let Some(line) = lines.next() {
            let line = line.map(<[u8]>::to_vec);
            let last = line.is_err();
            all.push(line);
            if last {
                break;
            }
        }
        all
    }

    #[test]
    fn lines_are_whole_whatever_the_pieces() {
        let mut lines = Lines::default();
        let mut all = Vec::new();
        for byte in b"one\n\ntwo\nthr" {
            lines.feed(&[*byte]);
            all.extend(taken(&mut lines));
        }
        lines.feed(b"ee\nfour\n");
        all.extend(taken(&mut lines));
        let all: Vec<_> = all.into_iter().map(Result::unwrap).collect();
        assert_eq!(all, [&b"one"[..], b"", b"two", b"three", b"four"]);
    }

    #[test]
    fn a_line_may_reach_but_not_exceed_the_limit() {
        let mut lines = Lines::default();
        lines.feed(&[b'x'; LINE_MAX]);
        assert!(lines.next().is_none());
        lines.feed(b"\n");
        assert_eq!(lines.next().unwrap().unwrap().len(), LINE_MAX);
        lines.feed(&[b'x'; LINE_MAX + 1]);
        assert_eq!(lines.next().unwrap(), Err(WireError::LineTooLong));
        let mut lines = Lines::default();
        lines.feed(&[&[b'x'; LINE_MAX + 1][..], b"\n"].concat());
        assert_eq!(lines.next().unwrap(), Err(WireError::LineTooLong));
    }

    #[test]
    fn bytes_beyond_the_backlog_are_dropped() {
        let mut lines = Lines::default();
        for _ in 0..3 {
            lines.feed(&b"cmd=x\n".repeat(BACKLOG_MAX / 6));
            assert!(lines.buffered() <= BACKLOG_MAX);
        }
        let all = taken(&mut lines);
        assert_eq!(all.last(), Some(&Err(WireError::BacklogTooLong)));
        assert_eq!(all.len(), BACKLOG_MAX / 6 + 1);
    }
}
