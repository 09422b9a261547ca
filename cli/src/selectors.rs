//! Names of a job or one of its ranks: `last`, `7`, `7.3`.

use std::fmt;
use std::str::FromStr;

/// A job, or one rank of it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Selector {
    /// None: the newest job.
    pub(crate) job: Option<u64>,
    pub(crate) rank: Option<u32>,
}

impl FromStr for Selector {
    type Err = &'static str;

    fn from_str(text: &str) -> Result<Selector, Self::Err> {
        const FORMS: &str = "expected a job (`last` or its number) or a rank (`7.3` or `last.3`)";
        let (job, rank) = match text.split_once('.') {
            Some((job, rank)) => (job, Some(number(rank).ok_or(FORMS)?)),
            None => (text, None),
        };
        let job = match job {
            "last" => None,
            _ => Some(number(job).ok_or(FORMS)?),
        };
        if job == Some(0) {
            return Err("job numbers start at 1");
        }
        Ok(Selector { job, rank })
    }
}

impl fmt::Display for Selector {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.job {
            Some(job) => write!(f, "{job}")?,
            None => f.write_str("last")?,
        }
        self.rank.map_or(Ok(()), |rank| write!(f, ".{rank}"))
    }
}

/// Parses a job where a rank is not allowed.
pub(crate) fn whole_job(text: &str) -> Result<Selector, &'static str> {
    let selector: Selector = text.parse()?;
    match selector.rank {
        None => Ok(selector),
        Some(_) => Err("expected a job, not a rank: `7`, not `7.3`"),
    }
}

/// Parses digits only: `from_str` also accepts "+7".
fn number<T: FromStr>(text: &str) -> Option<T> {
    if text.bytes().all(|b| b.is_ascii_digit()) { text.parse().ok() } else { None }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn selectors_are_printed_as_they_are_parsed() {
        for text in ["last", "7", "7.3", "last.0", "18446744073709551615.4294967295"] {
            assert_eq!(text.parse::<Selector>().unwrap().to_string(), text);
        }
        assert_eq!("7.3".parse(), Ok(Selector { job: Some(7), rank: Some(3) }));
        assert_eq!("last".parse(), Ok(Selector { job: None, rank: None }));
    }

    #[test]
    fn malformed_selectors_are_refused() {
        for text in
            ["", ".", "7.", ".3", "+7", "-1", "0", "0.1", "7.3.1", "seven", "7.x", "LAST", "4294967296.4294967296"]
        {
            assert!(text.parse::<Selector>().is_err(), "{text}");
        }
        assert!(whole_job("7.3").is_err());
        assert_eq!(whole_job("7"), Ok(Selector { job: Some(7), rank: None }));
    }
}
