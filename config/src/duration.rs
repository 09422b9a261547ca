//! Durations as people write them: `250ms`, `5s`, `1.5h`, `1m30s`; a bare number is seconds.

use std::time::Duration;

use thiserror::Error;

/// Units and their milliseconds.
const UNITS: [(&str, f64); 5] = [("ms", 1.0), ("s", 1e3), ("m", 6e4), ("h", 3.6e6), ("d", 8.64e7)];
/// The longest duration accepted, far below an overflow.
const LONGEST: Duration = Duration::from_secs(10 * 365 * 86_400);

/// An invalid duration.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[error("invalid duration `{text}`: use 250ms, 5s, 1m30s, 2h or 1d; a bare number is seconds")]
pub struct DurationError {
    /// What was written.
    pub text: String,
}

/// Parses a duration of at most ten years, exact to the millisecond.
pub fn parse(text: &str) -> Result<Duration, DurationError> {
    let ms = bare_seconds(text.trim()).or_else(|| with_units(text.trim()));
    let duration = ms.and_then(|ms| Duration::try_from_secs_f64(ms.round() / 1e3).ok());
    duration.filter(|duration| *duration <= LONGEST).ok_or_else(|| DurationError { text: text.to_owned() })
}

/// Parses `5` as seconds, into milliseconds.
fn bare_seconds(text: &str) -> Option<f64> {
    let (number, rest) = number(text)?;
    rest.is_empty().then_some(number * 1e3)
}

/// Parses `5s` or `1h2m3s` into milliseconds. Each unit must be smaller than the previous one.
fn with_units(text: &str) -> Option<f64> {
    let mut rest = text;
    let (mut sum, mut larger) = (0.0, f64::INFINITY);
    loop {
        let (number, behind) = number(rest)?;
        let behind = behind.trim_start();
        let end = behind.find(|c: char| !c.is_ascii_alphabetic()).unwrap_or(behind.len());
        let (_, unit_ms) = UNITS.iter().find(|(name, ms)| *name == &behind[..end] && *ms < larger)?;
        sum += number * unit_ms;
        larger = *unit_ms;
        rest = behind[end..].trim_start();
        if rest.is_empty() {
            return Some(sum);
        }
    }
}

/// Splits `text` into the number at its start and the rest.
fn number(text: &str) -> Option<(f64, &str)> {
    let end = text.find(|c: char| !c.is_ascii_digit() && c != '.').unwrap_or(text.len());
    Some((text[..end].parse().ok()?, &text[end..]))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn durations_are_parsed_in_every_unit() {
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
            ("1m30s", 90_000),
            ("1m 30s", 90_000),
            ("1d2h3m4.5s6ms", 93_784_506),
            ("1h5s", 3_605_000),
        ];
        for (text, ms) in vectors {
            assert_eq!(parse(text), Ok(Duration::from_millis(ms)), "{text}");
        }
    }

    #[test]
    fn an_invalid_duration_is_refused_with_the_accepted_forms() {
        let invalid = [
            "",
            "s",
            "-1",
            "1w",
            "1 2",
            "1.2.3",
            "1e3",
            "inf",
            "NaN",
            "999999999999h",
            "5S",
            ".",
            "1m30",
            "30s1m",
            "1s1s",
            "1m30s-",
            "1m,30s",
        ];
        for text in invalid {
            assert_eq!(parse(text), Err(DurationError { text: text.into() }), "{text}");
        }
        assert_eq!(
            parse("5 parsecs").unwrap_err().to_string(),
            "invalid duration `5 parsecs`: use 250ms, 5s, 1m30s, 2h or 1d; a bare number is seconds"
        );
    }
}
