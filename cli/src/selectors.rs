//! Names of a job, of elements of an array, or of one rank: `last`, `7`, `7.3`, `train`, `train.3`, `7[3]`, `7[1-5]`, `7[3].0`.

use std::fmt;
use std::str::FromStr;

use rsd_proto::called;
use rsd_proto::indexes::Indexes;

/// A job, or one rank of it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Selector {
    pub(crate) job: Which,
    /// Of an array: indexes, in canonical form.
    pub(crate) elements: Option<String>,
    pub(crate) rank: Option<u32>,
}

impl Selector {
    /// Returns the index of the only element that it names. Fails if it names several.
    pub(crate) fn index(&self) -> Result<Option<u32>, String> {
        let Some(elements) = &self.elements else { return Ok(None) };
        elements.parse().map(Some).map_err(|_| format!("expected one element, not several: `{self}`"))
    }
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
        const FORMS: &str = "expected a job (`last`, its number or its name), elements of an array (`7[3]`, `7[1-5]`) or a rank (`7.3` or `last.3`)";
        let (text, elements, behind) = match text.split_once('[') {
            None => (text, None, text),
            Some((job, rest)) => {
                let (indexes, behind) = rest.split_once(']').ok_or(FORMS)?;
                let indexes: Indexes = indexes.parse()?;
                if indexes.limit > 0 || !behind.is_empty() && !behind.starts_with('.') || job.contains('.') {
                    return Err(FORMS.to_owned());
                }
                (job, Some(indexes.to_string()), behind)
            }
        };
        let (_, rank) = match behind.split_once('.') {
            Some((_, rank)) => ((), Some(number(rank).ok_or(FORMS)?)),
            None => ((), None),
        };
        let (job, _) = match text.split_once('.') {
            Some((job, _)) => (job, ()),
            None => (text, ()),
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
        Ok(Selector { job, elements, rank })
    }
}

impl fmt::Display for Selector {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.job {
            Which::Number(job) => write!(f, "{job}")?,
            Which::Last => f.write_str("last")?,
            Which::Named(name) => f.write_str(name)?,
        }
        if let Some(elements) = &self.elements {
            write!(f, "[{elements}]")?;
        }
        self.rank.map_or(Ok(()), |rank| write!(f, ".{rank}"))
    }
}

/// Parses a job where a rank is not allowed.
pub(crate) fn whole_job(text: &str) -> Result<Selector, String> {
    let selector: Selector = text.parse()?;
    match (selector.rank, &selector.elements) {
        (None, None) => Ok(selector),
        (None, Some(_)) => Err("expected a whole job, not elements of an array: `7`, not `7[3]`".to_owned()),
        (Some(_), _) => Err("expected a job, not a rank: `7`, not `7.3`".to_owned()),
    }
}

/// Parses a whole job, or one element of an array.
pub(crate) fn one_job(text: &str) -> Result<Selector, String> {
    let selector = some_jobs(text)?;
    selector.index().map(|_| selector)
}

/// Parses a whole job, or elements of an array.
pub(crate) fn some_jobs(text: &str) -> Result<Selector, String> {
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
        for text in
            ["last", "7", "7.3", "last.0", "train", "relax-2.17", "7[3]", "a[1-5].2", "18446744073709551615.4294967295"]
        {
            assert_eq!(text.parse::<Selector>().unwrap().to_string(), text);
        }
        assert_eq!("7.3".parse(), Ok(Selector { job: Which::Number(7), elements: None, rank: Some(3) }));
        assert_eq!("last".parse(), Ok(Selector { job: Which::Last, elements: None, rank: None }));
        assert_eq!(
            "train.3".parse(),
            Ok(Selector { job: Which::Named("train".into()), elements: None, rank: Some(3) })
        );
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
            "7[",
            "7[]",
            "7[a]",
            "7[1%2]",
            "7[1]x",
            "7.3[1]",
            "4294967296.4294967296",
        ] {
            assert!(text.parse::<Selector>().is_err(), "{text}");
        }
        assert!(whole_job("7.3").is_err());
        assert_eq!(whole_job("7"), Ok(Selector { job: Which::Number(7), elements: None, rank: None }));
    }
}
