//! Names of DVMs and their daemons: they become directory names and stand in command lines.

use thiserror::Error;

const LONGEST: usize = 64;

/// Not a name.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[error(
    "`{name}` is no name for a daemon: use 1 to {LONGEST} letters, digits, `.`, `_` or `-`, the first a letter, digit or `_`"
)]
pub struct NameError {
    /// What was written.
    pub name: String,
}

/// Whether a daemon may be called so.
pub fn check(name: &str) -> Result<(), NameError> {
    let fits = |c: char| c.is_ascii_alphanumeric() || matches!(c, '.' | '_' | '-');
    // A leading dot would be a hidden directory, or `..`; a leading dash an option.
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
