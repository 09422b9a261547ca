//! Names of DVMs and daemons. They become directory names and appear on command lines.

use thiserror::Error;

const LONGEST: usize = 64;

/// An invalid name.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[error(
    "invalid daemon name `{name}`: use 1 to {LONGEST} letters, digits, `.`, `_` or `-`; the first must be a letter, digit or `_`"
)]
pub struct NameError {
    /// What was written.
    pub name: String,
}

/// Checks that `name` is a valid daemon name.
pub fn check(name: &str) -> Result<(), NameError> {
    let fits = |c: char| c.is_ascii_alphanumeric() || matches!(c, '.' | '_' | '-');
    // A leading dot would make a hidden directory or `..`; a leading dash would read as an option.
    let fine = (1..=LONGEST).contains(&name.len()) && name.chars().all(fits) && !name.starts_with(['.', '-']);
    if fine { Ok(()) } else { Err(NameError { name: name.to_owned() }) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_safe_as_directories_and_arguments() {
        for name in ["default", "n0", "node-1.cluster_2", "_", &"x".repeat(64)] {
            assert_eq!(check(name), Ok(()), "{name}");
        }
        for name in ["", ".", "..", ".x", "-x", "a/b", "a b", "ü", "a\n", &"x".repeat(65)] {
            assert!(check(name).is_err(), "{name:?}");
        }
    }
}
