//! How a user names a job or one of its ranks: `last`, `7`, `7.3`.

use std::fmt;
use std::str::FromStr;

/// A job, or one rank of it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Selector {
    /// None: the last one submitted.
    pub(crate) job: Option<u64>,
    pub(crate) rank: Option<u32>,
}

impl FromStr for Selector {
    type Err = &'static str;

    fn from_str(text: &str) -> Result<Selector, Self::Err> {
        const FORMS: &str = "a job is `last` or its number, a rank of it `7.3` or `last.3`";
        let (job, rank) = match text.split_once('.') {
            Some((job, rank)) => (job, Some(number(rank).ok_or(FORMS)?)),
            None => (text, None),
        };
        let job = match job {
            "last" => None,
            _ => Some(number(job).ok_or(FORMS)?),
        };
        if job == Some(0) {
            return Err("jobs count from 1");
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

/// A job as a whole, where a rank makes no sense.
pub(crate) fn whole_job(text: &str) -> Result<Selector, &'static str> {
    let selector: Selector = text.parse()?;
    match selector.rank {
        None => Ok(selector),
        Some(_) => Err("this takes a whole job: `7`, not `7.3`"),
    }
}

/// Digits only: `from_str` alone takes "+7".
fn number<T: FromStr>(text: &str) -> Option<T> {
    if text.bytes().all(|b| b.is_ascii_digit()) { text.parse().ok() } else { None }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn selectors_read_as_they_print() {
        for text in ["last", "7", "7.3", "last.0", "18446744073709551615.4294967295"] {
            assert_eq!(text.parse::<Selector>().unwrap().to_string(), text);
        }
        assert_eq!("7.3".parse(), Ok(Selector { job: Some(7), rank: Some(3) }));
        assert_eq!("last".parse(), Ok(Selector { job: None, rank: None }));
    }

    #[test]
    fn nonsense_is_refused() {
        for text in
            ["", ".", "7.", ".3", "+7", "-1", "0", "0.1", "7.3.1", "seven", "7.x", "LAST", "4294967296.4294967296"]
        {
            assert!(text.parse::<Selector>().is_err(), "{text}");
        }
        assert!(whole_job("7.3").is_err());
        assert_eq!(whole_job("7"), Ok(Selector { job: Some(7), rank: None }));
    }
}
