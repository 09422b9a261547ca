//! The server's half of a connection on which a client may speak PMI-1 or PMI-2: every message shows by its first byte what it is, a line
//! or a frame. So a client switches when it has requested version 2, and back if it begins again.

use super::{v1, v2};

/// A request in one of the dialects.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Request {
    /// A line, or a spawn message.
    One(v1::Request),
    /// A frame.
    Two(v2::Asked),
}

/// Why a client's bytes are neither.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum WireError {
    /// They began as PMI-1.
    #[error(transparent)]
    One(#[from] v1::WireError),
    /// They began as PMI-2.
    #[error(transparent)]
    Two(#[from] v2::WireError),
}

/// Decodes bytes into requests. As an iterator it yields `None` until more bytes are fed; after an abort or an error, it yields
/// nothing more.
#[derive(Debug)]
pub struct RequestDecoder(Decoder);

#[derive(Debug)]
enum Decoder {
    One(v1::RequestDecoder),
    Two(v2::RequestDecoder),
}

impl Default for RequestDecoder {
    fn default() -> Self {
        Self(Decoder::One(v1::RequestDecoder::new()))
    }
}

impl RequestDecoder {
    /// Returns a decoder for a new connection.
    pub fn new() -> Self {
        Self::default()
    }

    /// Takes the bytes of a read.
    pub fn feed(&mut self, bytes: &[u8]) {
        match &mut self.0 {
            Decoder::One(lines) => lines.feed(bytes),
            Decoder::Two(frames) => frames.feed(bytes),
        }
    }

    /// Changes to the other decoder if the next message is of its dialect.
    fn follow(&mut self) {
        match &self.0 {
            Decoder::One(lines) if lines.is_between() && lines.pending().first().is_some_and(is_of_length) => {
                let mut frames = v2::RequestDecoder::new();
                frames.feed(lines.pending());
                self.0 = Decoder::Two(frames);
            }
            Decoder::Two(frames) if frames.pending().first() == Some(&b'c') => {
                let mut lines = v1::RequestDecoder::new();
                lines.feed(frames.pending());
                self.0 = Decoder::One(lines);
            }
            Decoder::One(_) | Decoder::Two(_) => {}
        }
    }
}

impl Iterator for RequestDecoder {
    type Item = Result<Request, WireError>;

    fn next(&mut self) -> Option<Self::Item> {
        self.follow();
        match &mut self.0 {
            Decoder::One(lines) => lines.next().map(|next| next.map(Request::One).map_err(WireError::One)),
            Decoder::Two(frames) => frames.next().map(|next| next.map(Request::Two).map_err(WireError::Two)),
        }
    }
}

/// Returns whether a byte begins the length of a frame.
fn is_of_length(byte: &u8) -> bool {
    *byte == b' ' || byte.is_ascii_digit()
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn words(text: &[u8], piece: usize) -> Vec<String> {
        let mut decoder = RequestDecoder::new();
        let mut all = Vec::new();
        for bytes in text.chunks(piece) {
            decoder.feed(bytes);
            for next in decoder.by_ref() {
                all.push(match next {
                    Ok(Request::One(v1::Request::Init { version, .. })) => format!("init {version}"),
                    Ok(Request::One(other)) => format!("line {other:?}"),
                    Ok(Request::Two(asked)) => asked.echo().unwrap().verb.word().to_owned(),
                    Err(error) => format!("{error:?}"),
                });
            }
        }
        all
    }

    #[test]
    fn a_connection_changes_its_dialect_at_any_message() {
        let text = b"cmd=init pmi_version=2 pmi_subversion=0\n23    cmd=fullinit;pmirank=0;    13cmd=finalize;\
            cmd=init pmi_version=1 pmi_subversion=1\ncmd=get_maxes\n13    cmd=finalize;";
        let expected = ["init 2", "fullinit", "finalize", "init 1", "line GetMaxes", "finalize"];
        for piece in [1, 7, usize::MAX] {
            assert_eq!(words(text, piece), expected);
        }
    }

    #[test]
    fn the_lines_of_a_spawn_message_are_no_frames() {
        let text = b"mcmd=spawn\nnprocs=1\n 1 is no length\n";
        assert!(words(text, 1)[0].contains("MalformedSpawn"), "{:?}", words(text, 1));
    }

    #[test]
    fn nothing_is_decoded_after_an_error_or_an_abort() {
        for text in
            [&b"rubbish\n13    cmd=finalize;"[..], b"      cmd=init\n", b"cmd=abort exitcode=1\n13    cmd=finalize;"]
        {
            assert_eq!(words(text, 1).len(), 1, "{}", text.escape_ascii());
        }
    }

    proptest! {
        #[test]
        fn no_bytes_make_the_decoder_panic(pieces in prop::collection::vec("[ 0-9cm;=\nd]{0,20}|cmd=|\n|13    cmd=finalize;", 0..30)) {
            let mut decoder = RequestDecoder::new();
            for piece in pieces {
                decoder.feed(piece.as_bytes());
                for _ in decoder.by_ref() {}
            }
        }
    }
}
