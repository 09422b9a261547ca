//! Sizes as people write them: `256KiB`, `1MiB`, `2GB`; a bare number is bytes.

use thiserror::Error;

const UNITS: [(&str, u64); 9] = [
    ("", 1),
    ("B", 1),
    ("KiB", 1 << 10),
    ("MiB", 1 << 20),
    ("GiB", 1 << 30),
    ("TiB", 1 << 40),
    ("kB", 1_000),
    ("MB", 1_000_000),
    ("GB", 1_000_000_000),
];

/// An invalid size.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[error("invalid size `{text}`: use 256KiB, 1MiB, 2GiB, 1TiB, 64kB, 5MB or 2GB; a bare number is bytes")]
pub struct SizeError {
    /// What was written.
    pub text: String,
}

/// Parses a size into bytes.
pub fn parse(text: &str) -> Result<u64, SizeError> {
    read(text.trim()).ok_or_else(|| SizeError { text: text.to_owned() })
}

fn read(text: &str) -> Option<u64> {
    let end = text.find(|c: char| !c.is_ascii_digit()).unwrap_or(text.len());
    let (_, unit) = UNITS.iter().find(|(name, _)| *name == text[end..].trim())?;
    text[..end].parse::<u64>().ok()?.checked_mul(*unit)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_are_parsed_in_every_unit() {
        for (text, bytes) in
            [("0", 0), ("17", 17), ("17B", 17), ("256KiB", 262_144), ("1 MiB", 1 << 20), ("2GB", 2_000_000_000)]
        {
            assert_eq!(parse(text), Ok(bytes), "{text}");
        }
    }

    #[test]
    fn an_invalid_size_is_refused() {
        for text in ["", "KiB", "1M", "1.5MiB", "-1", "18446744073709551615KiB", "1kib"] {
            assert_eq!(parse(text), Err(SizeError { text: text.into() }), "{text}");
        }
    }
}
