//! Durations as people write them: `250ms`, `5s`, `1.5h`; a bare number is seconds.

use std::time::Duration;

use thiserror::Error;

/// Units in milliseconds.
const UNITS: [(&str, f64); 6] = [("ms", 1.0), ("s", 1e3), ("", 1e3), ("m", 6e4), ("h", 3.6e6), ("d", 8.64e7)];
/// As long as anybody waits; far below what overflows.
const LONGEST: Duration = Duration::from_secs(10 * 365 * 86_400);

/// Not a duration.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[error("`{text}` is no duration: write 250ms, 5s, 2m, 1h or 1d, or seconds alone")]
pub struct DurationError {
    /// What was written.
    pub text: String,
}

/// A duration of at most ten years, exact to the millisecond.
pub fn parse(text: &str) -> Result<Duration, DurationError> {
    read(text.trim()).ok_or_else(|| DurationError { text: text.to_owned() })
}

fn read(text: &str) -> Option<Duration> {
    let end = text.find(|c: char| !c.is_ascii_digit() && c != '.').unwrap_or(text.len());
    let (number, unit) = (&text[..end], text[end..].trim());
    let (_, unit_ms) = UNITS.iter().find(|(name, _)| *name == unit)?;
    let duration = Duration::try_from_secs_f64((number.parse::<f64>().ok()? * unit_ms).round() / 1e3).ok()?;
    (duration <= LONGEST).then_some(duration)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn durations_are_read_in_every_unit() {
        let vectors = [
            ("250ms", 250),
            ("5s", 5_000),
            ("5", 5_000),
            ("0", 0),
            ("0.5", 500),
            ("1.001s", 1_001),
            ("2m", 120_000),
            ("1.5h", 5_400_000),
            ("1d", 86_400_000),
            (" 10 s ", 10_000),
        ];
        for (text, ms) in vectors {
            assert_eq!(parse(text), Ok(Duration::from_millis(ms)), "{text}");
        }
    }

    #[test]
    fn what_is_no_duration_is_refused_with_the_accepted_forms() {
        for text in ["", "s", "-1", "1w", "1 2", "1.2.3", "1e3", "inf", "NaN", "999999999999h", "5S", "."] {
            assert_eq!(parse(text), Err(DurationError { text: text.into() }), "{text}");
        }
        assert_eq!(
            parse("5 parsecs").unwrap_err().to_string(),
            "`5 parsecs` is no duration: write 250ms, 5s, 2m, 1h or 1d, or seconds alone"
        );
    }
}
