//! Puts a label before every line of a rank. When another rank's output interrupts a line, the line is ended there and continues under
//! a new label.

use std::collections::HashMap;

use bytes::Bytes;

use super::To;

/// A rank's job (0: the submitted one) and number.
type Source = (u64, u32);

/// By place: the source of the unfinished line.
#[derive(Debug, Default)]
pub(super) struct Labels {
    open: HashMap<To, Source>,
}

impl Labels {
    /// Returns the text for a piece of output at `to`. With `more`, its last line continues in this source's next piece.
    pub(super) fn label(&mut self, to: &To, source: Source, label: &str, data: &[u8], more: bool) -> Bytes {
        let open = self.open.get(to).copied();
        let continues = open == Some(source);
        let mut out = Vec::with_capacity(data.len() + 16);
        if data.is_empty() {
            if continues && !more {
                out.push(b'\n');
                self.open.remove(to);
            }
            return out.into();
        }
        if open.is_some() && !continues {
            out.push(b'\n');
        }
        for (at, line) in data.split_inclusive(|&b| b == b'\n').enumerate() {
            if at > 0 || !continues {
                out.extend_from_slice(label.as_bytes());
            }
            out.extend_from_slice(line);
        }
        self.open.remove(to);
        if !data.ends_with(b"\n") {
            match more {
                true => drop(self.open.insert(to.clone(), source)),
                false => out.push(b'\n'),
            }
        }
        out.into()
    }

    /// Returns the places with an unfinished line.
    pub(super) fn unfinished(&self) -> impl Iterator<Item = &To> {
        self.open.keys()
    }
}
