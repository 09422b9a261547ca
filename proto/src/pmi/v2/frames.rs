//! Splits bytes that arrive in arbitrary pieces into the bodies of frames.

use super::{BODY_MAX, WireError};
use crate::pmi::v1::excerpt;

const LENGTH_BYTES: usize = 6;
/// The most bytes that are kept. Clients wait for each reply, so a correct client stays below.
const BACKLOG_MAX: usize = LENGTH_BYTES + BODY_MAX;

/// Bytes fed but not yet taken, at most one frame of the greatest length.
#[derive(Debug, Default)]
pub(super) struct Frames {
    bytes: Vec<u8>,
    /// Where the first frame that has not been taken starts.
    start: usize,
    overrun: bool,
}

impl Frames {
    pub(super) fn feed(&mut self, bytes: &[u8]) {
        self.bytes.drain(..self.start);
        self.start = 0;
        let room = BACKLOG_MAX - self.bytes.len();
        self.overrun |= bytes.len() > room;
        self.bytes.extend_from_slice(&bytes[..bytes.len().min(room)]);
    }

    /// Returns the body of the next whole frame.
    pub(super) fn next(&mut self) -> Option<Result<&[u8], WireError>> {
        let whole = self.length().map(|length| {
            let length = length?;
            let body = self.start + LENGTH_BYTES;
            Ok((self.bytes.len() - body >= length).then_some(body..body + length))
        });
        match whole {
            Some(Ok(Some(body))) => {
                self.start = body.end;
                Some(Ok(&self.bytes[body]))
            }
            Some(Err(error)) => Some(Err(error)),
            Some(Ok(None)) | None => self.overrun.then_some(Err(WireError::BacklogTooLong)),
        }
    }

    /// Returns the length of the next frame, once it has arrived.
    fn length(&self) -> Option<Result<usize, WireError>> {
        let digits = self.pending().get(..LENGTH_BYTES)?;
        let length = digits.trim_ascii();
        let is_number = !length.is_empty() && length.iter().all(u8::is_ascii_digit);
        let length = str::from_utf8(length).ok().filter(|_| is_number).and_then(|length| length.parse().ok());
        Some(length.ok_or_else(|| WireError::BadLength { excerpt: excerpt(digits) }))
    }

    /// The bytes of what is not a whole frame yet.
    pub(super) fn pending(&self) -> &[u8] {
        &self.bytes[self.start..]
    }

    #[cfg(test)]
    pub(super) fn buffered(&self) -> usize {
        self.bytes.len()
    }
}

/// Appends a frame with this body. On an error `out` is unchanged.
pub(super) fn write(body: &[u8], out: &mut Vec<u8>) -> Result<(), WireError> {
    if body.len() > BODY_MAX {
        return Err(WireError::TooLong);
    }
    out.extend_from_slice(format!("{:6}", body.len()).as_bytes());
    out.extend_from_slice(body);
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn taken(frames: &mut Frames) -> Vec<Result<Vec<u8>, WireError>> {
        let mut all = Vec::new();
        while let Some(body) = frames.next() {
            let body = body.map(<[u8]>::to_vec);
            let last = body.is_err();
            all.push(body);
            if last {
                break;
            }
        }
        all
    }

    #[test]
    fn frames_are_whole_whatever_the_pieces_and_the_padding() {
        let mut frames = Frames::default();
        let mut all = Vec::new();
        for byte in b"     3one3     two000005three     0  4   " {
            frames.feed(&[*byte]);
            all.extend(taken(&mut frames));
        }
        frames.feed(b"four");
        all.extend(taken(&mut frames));
        let all: Vec<_> = all.into_iter().map(Result::unwrap).collect();
        assert_eq!(all, [&b"one"[..], b"two", b"three", b"", b"four"]);
    }

    #[test]
    fn a_length_that_is_no_number_is_refused() {
        for bad in ["cmd=in", "      ", "1 2   ", "+5    ", "-1    ", "0x5   ", "1e3   "] {
            let mut frames = Frames::default();
            frames.feed(bad.as_bytes());
            assert_eq!(taken(&mut frames), [Err(WireError::BadLength { excerpt: bad.into() })]);
        }
    }

    #[test]
    fn the_longest_frame_is_taken_and_bytes_beyond_it_are_dropped() {
        let mut frames = Frames::default();
        frames.feed(b"999999");
        frames.feed(&vec![b'x'; BODY_MAX]);
        frames.feed(b"     1");
        assert_eq!(frames.buffered(), BACKLOG_MAX);
        let all = taken(&mut frames);
        assert_eq!(all[0].as_ref().map(Vec::len), Ok(BODY_MAX));
        assert_eq!(all[1..], [Err(WireError::BacklogTooLong)]);
    }
}
