//! The body of a frame: a command and its values. The order is free except in spawn messages, unknown keys are ignored, and the first of
//! two equal keys counts.

use std::borrow::Cow;
use std::str::FromStr;

use super::WireError;
use crate::pmi::v1::excerpt;

/// A decoded body; its parts borrow from it.
#[derive(Debug, Clone, Copy)]
pub(super) struct Body<'a> {
    pub(super) command: &'a [u8],
    /// What follows the command.
    pub(super) rest: Pairs<'a>,
}

/// Pairs that are not split yet; yields each with its value unescaped.
#[derive(Debug, Clone, Copy)]
pub(super) struct Pairs<'a>(&'a [u8]);

type Pair<'a> = (&'a [u8], Cow<'a, [u8]>);

impl<'a> Body<'a> {
    pub(super) fn of(body: &'a [u8]) -> Result<Self, WireError> {
        let no_command = || WireError::NoCommand { excerpt: excerpt(body) };
        let rest = body.strip_prefix(b"cmd=").ok_or_else(no_command)?;
        let end = rest.iter().position(|byte| *byte == b';').unwrap_or(rest.len());
        if end == 0 {
            return Err(no_command());
        }
        Ok(Self { command: &rest[..end], rest: Pairs(rest.get(end + 1..).unwrap_or_default()) })
    }

    /// Checks that the whole body consists of pairs.
    pub(super) fn checked(self) -> Result<Self, WireError> {
        self.rest.map(|pair| pair.map(drop)).collect::<Result<(), _>>()?;
        Ok(self)
    }

    pub(super) fn find(&self, key: &str) -> Option<Cow<'a, [u8]>> {
        self.rest.map_while(Result::ok).find_map(|(found, value)| (found == key.as_bytes()).then_some(value))
    }

    pub(super) fn value(&self, key: &'static str) -> Result<Vec<u8>, WireError> {
        let missing = || WireError::Missing { command: excerpt(self.command), field: key };
        self.find(key).map(Cow::into_owned).ok_or_else(missing)
    }

    pub(super) fn number<T: FromStr>(&self, key: &'static str) -> Result<T, WireError> {
        number(self.command, key, &self.value(key)?)
    }

    pub(super) fn find_number<T: FromStr>(&self, key: &'static str) -> Result<Option<T>, WireError> {
        self.find(key).map(|value| number(self.command, key, &value)).transpose()
    }

    /// A missing truth value is false.
    pub(super) fn truth(&self, key: &'static str) -> Result<bool, WireError> {
        match self.find(key).as_deref() {
            Some(b"TRUE") => Ok(true),
            Some(b"FALSE") | None => Ok(false),
            Some(other) => Err(bad_value(self.command, key, other)),
        }
    }
}

pub(super) fn number<T: FromStr>(command: &[u8], field: &'static str, value: &[u8]) -> Result<T, WireError> {
    let parsed = str::from_utf8(value).ok().and_then(|text| text.parse().ok());
    parsed.ok_or_else(|| bad_value(command, field, value))
}

fn bad_value(command: &[u8], field: &'static str, value: &[u8]) -> WireError {
    WireError::BadValue { command: excerpt(command), field, excerpt: excerpt(value) }
}

impl<'a> Iterator for Pairs<'a> {
    type Item = Result<Pair<'a>, WireError>;

    fn next(&mut self) -> Option<Self::Item> {
        if self.0.is_empty() {
            return None;
        }
        let end = self.0.iter().position(|byte| b"=;".contains(byte)).filter(|at| *at > 0 && self.0[*at] == b'=');
        let Some(equals) = end else {
            let error = WireError::BadPair { excerpt: excerpt(self.0) };
            self.0 = &[];
            return Some(Err(error));
        };
        let (key, after) = (&self.0[..equals], &self.0[equals + 1..]);
        let (mut end, mut is_escaped) = (0, false);
        while end < after.len() && (after[end] != b';' || after.get(end + 1) == Some(&b';')) {
            let step = if after[end] == b';' { 2 } else { 1 };
            is_escaped |= step == 2;
            end += step;
        }
        self.0 = after.get(end + 1..).unwrap_or_default();
        let value = &after[..end];
        Some(Ok((key, if is_escaped { Cow::Owned(unescaped(value)) } else { Cow::Borrowed(value) })))
    }
}

fn unescaped(value: &[u8]) -> Vec<u8> {
    let mut out = Vec::with_capacity(value.len());
    let mut bytes = value.iter();
    while let Some(byte) = bytes.next() {
        out.push(*byte);
        if *byte == b';' {
            bytes.next();
        }
    }
    out
}

/// A body under construction.
pub(super) struct BodyWriter(Vec<u8>);

impl BodyWriter {
    pub(super) fn new(command: &[u8]) -> Self {
        Self([b"cmd=", command, b";"].concat())
    }

    pub(super) fn shown(self, key: &str, value: impl ToString) -> Self {
        self.value(key, value.to_string().as_bytes())
    }

    pub(super) fn truth(self, key: &str, value: bool) -> Self {
        self.value(key, if value { b"TRUE" } else { b"FALSE" })
    }

    pub(super) fn value(mut self, key: &str, value: &[u8]) -> Self {
        self.0.extend_from_slice(key.as_bytes());
        self.0.push(b'=');
        for byte in value {
            self.0.push(*byte);
            if *byte == b';' {
                self.0.push(b';');
            }
        }
        self.0.push(b';');
        self
    }

    pub(super) fn maybe(self, key: &str, value: Option<&[u8]>) -> Self {
        match value {
            Some(value) => self.value(key, value),
            None => self,
        }
    }

    pub(super) fn finish(&self, out: &mut Vec<u8>) -> Result<(), WireError> {
        super::frames::write(&self.0, out)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pairs(body: &str) -> Vec<(String, String)> {
        let text = |bytes: &[u8]| String::from_utf8(bytes.to_vec()).unwrap();
        Pairs(body.as_bytes()).map(|pair| pair.map(|(key, value)| (text(key), text(&value))).unwrap()).collect()
    }

    #[test]
    fn values_end_at_a_single_semicolon_and_double_ones_are_one() {
        for (body, expected) in [
            ("a=b;", &[("a", "b")][..]),
            ("a=b", &[("a", "b")]),
            ("a=;b=x=y;", &[("a", ""), ("b", "x=y")]),
            ("a=;;;b=;;x;;;;y;", &[("a", ";"), ("b", ";x;;y")]),
            ("a=two\nlines;a=2;", &[("a", "two\nlines"), ("a", "2")]),
        ] {
            let expected: Vec<_> = expected.iter().map(|(key, value)| ((*key).into(), (*value).into())).collect();
            assert_eq!(pairs(body), expected, "{body}");
        }
    }

    #[test]
    fn what_is_not_a_pair_is_refused_and_ends_the_body() {
        for body in ["a", "a;b=c;", ";", "=x;", ";a=b;"] {
            let all: Vec<_> = Pairs(body.as_bytes()).collect();
            assert_eq!(all.len(), 1, "{body}");
            assert_eq!(all[0], Err(WireError::BadPair { excerpt: body.into() }));
        }
    }
}
