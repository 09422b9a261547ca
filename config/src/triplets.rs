//! Numbers of processes that are acceptable, as the MPI standard writes them (`-soft`, and the info key `soft`): `4`, `2:10`, `2:10:2`,
//! with commas between several.

use thiserror::Error;

/// The numbers first, first + stride, … up to last; down to last if the stride is negative.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Triplet {
    /// The first number.
    pub first: i64,
    /// The limit.
    pub last: i64,
    /// Not 0.
    pub stride: i64,
}

/// An invalid list.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[error("invalid value {text:?}: write numbers or ranges, such as 4,6 or 2:10 or 2:10:2")]
pub struct TripletError {
    /// What was written.
    pub text: String,
}

/// Parses a list.
pub fn parse(text: &str) -> Result<Vec<Triplet>, TripletError> {
    let wrong = || TripletError { text: text.to_owned() };
    let number = |text: &str| text.trim().parse::<i64>().map_err(|_| wrong());
    let triplet = |item: &str| {
        let parts = item.split(':').map(number).collect::<Result<Vec<_>, _>>()?;
        match parts[..] {
            [only] => Ok(Triplet { first: only, last: only, stride: 1 }),
            [first, last] => Ok(Triplet { first, last, stride: 1 }),
            [first, last, stride] if stride != 0 => Ok(Triplet { first, last, stride }),
            _ => Err(wrong()),
        }
    };
    text.split(',').map(triplet).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_ranges_and_strides_are_parsed() {
        let triplet = |first, last, stride| Triplet { first, last, stride };
        assert_eq!(parse("4, 2:10 ,9:1:-2"), Ok(vec![triplet(4, 4, 1), triplet(2, 10, 1), triplet(9, 1, -2)]));
        for text in ["", "a", "1:2:0", "1:2:3:4", "4,", "99999999999999999999"] {
            assert!(parse(text).unwrap_err().to_string().contains("such as 4,6 or 2:10"), "{text}");
        }
    }
}
