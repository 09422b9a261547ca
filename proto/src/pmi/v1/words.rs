//! Splits a line into a command and its words. The order is free, unknown words are ignored, and the first of two equal keys
//! counts.

use std::str::FromStr;

use super::error::{EncodeError, WireError, excerpt};

/// A decoded line; every part borrows from it.
#[derive(Debug, Clone, Copy)]
pub(super) struct Words<'a> {
    pub(super) command: &'a [u8],
    /// The line after the command, with its leading space.
    pub(super) rest: &'a [u8],
}

impl<'a> Words<'a> {
    pub(super) fn of(line: &'a [u8]) -> Result<Self, WireError> {
        let no_command = || WireError::NoCommand { excerpt: excerpt(line) };
        let line = line.strip_prefix(b"cmd=").ok_or_else(no_command)?;
        let (command, rest) = line.split_at(line.iter().position(|byte| *byte == b' ').unwrap_or(line.len()));
        if command.is_empty() { Err(no_command()) } else { Ok(Self { command, rest }) }
    }

    pub(super) fn find(&self, key: &str) -> Option<&'a [u8]> {
        self.rest.split(|byte| *byte == b' ').find_map(|word| value_of(word, key))
    }

    pub(super) fn word(&self, key: &'static str) -> Result<&'a [u8], WireError> {
        self.find(key).ok_or_else(|| WireError::Missing { command: excerpt(self.command), field: key })
    }

    pub(super) fn number<T: FromStr>(&self, key: &'static str) -> Result<T, WireError> {
        number(self.command, key, self.word(key)?)
    }

    pub(super) fn find_number<T: FromStr>(&self, key: &'static str) -> Result<Option<T>, WireError> {
        self.find(key).map(|value| number(self.command, key, value)).transpose()
    }

    /// Returns the value that extends verbatim to the end of the line, and the words before it.
    pub(super) fn split_tail(&self, key: &str) -> (Self, Option<&'a [u8]>) {
        let mark = [b" ", key.as_bytes(), b"="].concat();
        match self.rest.windows(mark.len()).position(|window| window == mark) {
            Some(at) => (Self { rest: &self.rest[..at], ..*self }, Some(&self.rest[at + mark.len()..])),
            None => (*self, None),
        }
    }
}

/// Returns the value of `key=value` if `key` is the word's key.
pub(super) fn value_of<'a>(word: &'a [u8], key: &str) -> Option<&'a [u8]> {
    word.strip_prefix(key.as_bytes())?.strip_prefix(b"=")
}

pub(super) fn number<T: FromStr>(command: &[u8], field: &'static str, value: &[u8]) -> Result<T, WireError> {
    let parsed = str::from_utf8(value).ok().and_then(|text| text.parse().ok());
    parsed.ok_or_else(|| WireError::BadNumber { command: excerpt(command), field, excerpt: excerpt(value) })
}

pub(super) fn check_word(field: &'static str, value: &[u8]) -> Result<(), EncodeError> {
    if value.iter().any(|byte| b" \n\0".contains(byte)) { Err(EncodeError::NotAWord { field }) } else { Ok(()) }
}

pub(super) fn check_line(field: &'static str, value: &[u8]) -> Result<(), EncodeError> {
    if value.iter().any(|byte| b"\n\0".contains(byte)) { Err(EncodeError::NotALine { field }) } else { Ok(()) }
}
