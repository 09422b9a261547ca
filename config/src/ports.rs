//! Ranges of TCP ports: `7000-7100`.

use std::fmt;
use std::str::FromStr;

/// The ports that a daemon and its ranks may listen on.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum PortRange {
    /// The ports that the kernel chooses.
    #[default]
    Any,
    /// These, both ends included.
    #[expect(missing_docs, reason = "described above")]
    From { first: u16, last: u16 },
}

/// Not a range of ports.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("expected two port numbers, the lower one first: 7000-7100")]
pub struct InvalidRange;

impl PortRange {
    /// Returns the ports, each once, from the one at position `start` on, in a circle; empty for [`PortRange::Any`].
    pub fn from(self, start: usize) -> impl Iterator<Item = u16> {
        let (first, count) = match self {
            PortRange::Any => (0, 0),
            PortRange::From { first, last } => (first, usize::from(last - first) + 1),
        };
        (0..count).map(move |at| first + u16::try_from((start + at) % count).expect("the range ends below 65536"))
    }
}

impl FromStr for PortRange {
    type Err = InvalidRange;

    /// Reads a range; the empty text means any port.
    fn from_str(text: &str) -> Result<PortRange, InvalidRange> {
        if text.is_empty() {
            return Ok(PortRange::Any);
        }
        let port = |word: &str| word.trim().parse::<u16>().ok().filter(|port| *port > 0).ok_or(InvalidRange);
        let (first, last) = text.split_once('-').ok_or(InvalidRange)?;
        let (first, last) = (port(first)?, port(last)?);
        if first <= last { Ok(PortRange::From { first, last }) } else { Err(InvalidRange) }
    }
}

impl fmt::Display for PortRange {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            PortRange::Any => Ok(()),
            PortRange::From { first, last } => write!(f, "{first}-{last}"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_range_is_read_and_printed() {
        for text in ["7000-7100", "1-65535", "7000-7000", ""] {
            assert_eq!(text.parse::<PortRange>().map(|range| range.to_string()).as_deref(), Ok(text));
        }
        for text in ["7000", "7100-7000", "0-5", "7000-70000", "a-b", "-", "7000-", "-7000", "7000-7100-7200"] {
            assert_eq!(text.parse::<PortRange>(), Err(InvalidRange), "{text}");
        }
    }

    #[test]
    fn each_port_comes_once_wherever_the_search_begins() {
        let range = PortRange::From { first: 65_533, last: 65_535 };
        assert_eq!(range.from(0).collect::<Vec<_>>(), [65_533, 65_534, 65_535]);
        assert_eq!(range.from(5).collect::<Vec<_>>(), [65_535, 65_533, 65_534]);
        assert_eq!(PortRange::Any.from(3).count(), 0);
    }
}
