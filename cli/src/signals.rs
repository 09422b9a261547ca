//! Signals, by name or number.

use nix::sys::signal::Signal;

/// Parses `TERM`, `SIGTERM`, `term` or `15`.
pub(crate) fn parse(text: &str) -> Result<i32, String> {
    if let Ok(number) = text.parse() {
        return if (1..=NUMBER_MAX).contains(&number) {
            Ok(number)
        } else {
            Err(format!("signal numbers are 1 to {NUMBER_MAX}"))
        };
    }
    let upper = text.to_ascii_uppercase();
    let full = if upper.starts_with("SIG") { upper } else { format!("SIG{upper}") };
    full.parse::<Signal>()
        .map(|signal| signal as i32)
        .map_err(|_| "unknown signal; use a name (TERM, SIGUSR1, …) or a number".to_owned())
}

/// Returns `SIGSEGV (signal 11)`.
pub(crate) fn describe(number: i32) -> String {
    match Signal::try_from(number) {
        Ok(signal) => format!("{} (signal {number})", signal.as_str()),
        Err(_) => format!("signal {number}"),
    }
}

/// The last real-time signal of Linux.
const NUMBER_MAX: i32 = 64;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_signal_is_accepted_by_name_with_or_without_sig_and_by_number() {
        for text in ["TERM", "SIGTERM", "term", "sigterm", "15"] {
            assert_eq!(parse(text), Ok(15), "{text}");
        }
        assert_eq!(parse("64"), Ok(64));
        assert_eq!(describe(11), "SIGSEGV (signal 11)");
        assert_eq!(describe(40), "signal 40");
    }

    #[test]
    fn unknown_signals_are_refused() {
        for text in ["0", "65", "-1", "", "SIG", "FOO"] {
            assert!(parse(text).is_err(), "{text}");
        }
    }
}
