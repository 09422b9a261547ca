//! Names of a job or one of its ranks: `last`, `7`, `7.3`, `train`, `train.3`.

use std::fmt;
use std::str::FromStr;

use rsd_proto::called;

/// A job, or one rank of it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Selector {
    pub(crate) job: Which,
    pub(crate) rank: Option<u32>,
}

/// A job.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Which {
    /// The newest job.
    Last,
    Number(u64),
    /// The only job of this name.
    Named(String),
}

impl FromStr for Selector {
    type Err = String;

    fn from_str(text: &str) -> Result<Selector, String> {
        const FORMS: &str = "expected a job (`last`, its number or its name) or a rank (`7.3` or `last.3`)";
        let (job, rank) = match text.split_once('.') {
            Some((job, rank)) => (job, Some(number(rank).ok_or(FORMS)?)),
            None => (text, None),
        };
        let job = match job {
            "last" => Which::Last,
            _ if job.starts_with(|c: char| c.is_ascii_alphabetic() || c == '_') => {
                called::check_name(job)?;
                Which::Named(job.to_owned())
            }
            _ => Which::Number(number(job).ok_or(FORMS)?),
        };
        if job == Which::Number(0) {
            return Err("job numbers start at 1".to_owned());
        }
        Ok(Selector { job, rank })
    }
}

impl fmt::Display for Selector {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.job {
            Which::Number(job) => write!(f, "{job}")?,
            Which::Last => f.write_str("last")?,
            Which::Named(name) => f.write_str(name)?,
        }
        self.rank.map_or(Ok(()), |rank| write!(f, ".{rank}"))
    }
}

/// Parses a job where a rank is not allowed.
pub(crate) fn whole_job(text: &str) -> Result<Selector, String> {
    let selector: Selector = text.parse()?;
    match selector.rank {
        None => Ok(selector),
        Some(_) => Err("expected a job, not a rank: `7`, not `7.3`".to_owned()),
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
        for text in ["last", "7", "7.3", "last.0", "train", "relax-2.17", "18446744073709551615.4294967295"] {
            assert_eq!(text.parse::<Selector>().unwrap().to_string(), text);
        }
        assert_eq!("7.3".parse(), Ok(Selector { job: Which::Number(7), rank: Some(3) }));
        assert_eq!("last".parse(), Ok(Selector { job: Which::Last, rank: None }));
        assert_eq!("train.3".parse(), Ok(Selector { job: Which::Named("train".into()), rank: Some(3) }));
    }

    #[test]
    fn malformed_selectors_are_refused() {
        for text in [
            "",
            ".",
            "7.",
            ".3",
            "+7",
            "-1",
            "0",
            "0.1",
            "7.3.1",
            "7a",
            "7.x",
            "all",
            "a b",
            "a.b",
            "4294967296.4294967296",
        ] {
            assert!(text.parse::<Selector>().is_err(), "{text}");
        }
        assert!(whole_job("7.3").is_err());
        assert_eq!(whole_job("7"), Ok(Selector { job: Which::Number(7), rank: None }));
    }
}
