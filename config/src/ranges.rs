//! Ranges of names: `gpu[01-16,20]` is `gpu01` to `gpu16` and `gpu20`. With several brackets, the last one varies fastest.
//!
//! The first number of a range sets the width: `[01-16]` is padded with zeros, `[1-16]` is not. Slurm and Flux do the same.

use crate::mistake::{HOSTS_MAX, HostMistake, Mistake};

/// The most digits of a number, so that it fits a `u32`.
const DIGITS_MAX: usize = 9;

/// Expands `pattern`, at byte `at` of its line, into at least 1 and at most [`HOSTS_MAX`] names.
pub(crate) fn expand(at: usize, pattern: &str) -> Result<Vec<String>, Mistake> {
    let mut names = vec![String::new()];
    let mut rest = pattern;
    while let Some(open) = rest.find(['[', ']']) {
        let start = at + pattern.len() - rest.len() + open;
        let inside = rest[open..].strip_prefix('[').ok_or((start, HostMistake::StrayBracket))?;
        let end = inside.find([']', '[']).filter(|end| inside[*end..].starts_with(']'));
        let end = end.ok_or((start, HostMistake::OpenBracket))?;
        let numbers = numbers(start + 1, &inside[..end])?;
        if names.len().saturating_mul(numbers.len()) > HOSTS_MAX {
            return Err((start, HostMistake::TooMany));
        }
        let literal = &rest[..open];
        let with = |name: &String| numbers.iter().map(move |number| format!("{name}{literal}{number}")).collect();
        names = names.iter().flat_map::<Vec<String>, _>(with).collect();
        rest = &inside[end + 1..];
    }
    names.iter_mut().for_each(|name| name.push_str(rest));
    Ok(names)
}

/// Expands `01-16,20` into numbers, as text.
fn numbers(mut at: usize, list: &str) -> Result<Vec<String>, Mistake> {
    let mut numbers = Vec::new();
    for item in list.split(',') {
        let wrong = |mistake| Err((at, mistake));
        let (first_text, last_text) = item.split_once('-').unwrap_or((item, item));
        let (Some(first), Some(last)) = (number(first_text), number(last_text)) else {
            return wrong(HostMistake::BadRange { text: item.to_owned() });
        };
        let width = first_text.len();
        if last_text.starts_with('0') && last_text.len() > 1 && last_text.len() != width {
            return wrong(HostMistake::Widths { text: item.to_owned() });
        }
        if last < first {
            return wrong(HostMistake::Backwards { first: first_text.into(), last: last_text.into() });
        }
        if numbers.len() + (last - first) as usize >= HOSTS_MAX {
            return wrong(HostMistake::TooMany);
        }
        let width = if first_text.starts_with('0') { width } else { 1 };
        numbers.extend((first..=last).map(|number| format!("{number:0width$}")));
        at += item.len() + 1;
    }
    Ok(numbers)
}

fn number(text: &str) -> Option<u32> {
    let digits = text.len() <= DIGITS_MAX && text.bytes().all(|byte| byte.is_ascii_digit());
    text.parse().ok().filter(|_| digits)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn expanded(pattern: &str) -> String {
        expand(0, pattern).unwrap().join(" ")
    }

    #[test]
    fn brackets_expand_to_numbers() {
        assert_eq!(expanded("node0"), "node0");
        assert_eq!(expanded("gpu[08-11,20]"), "gpu08 gpu09 gpu10 gpu11 gpu20");
        assert_eq!(expanded("gpu[8-11]-ib"), "gpu8-ib gpu9-ib gpu10-ib gpu11-ib");
        assert_eq!(expanded("r[1-2]n[00-02]"), "r1n00 r1n01 r1n02 r2n00 r2n01 r2n02");
        assert_eq!(expanded("[098-101]"), "098 099 100 101");
        assert_eq!(expanded("x[0-1,007]"), "x0 x1 x007");
    }

    #[test]
    fn a_mistake_in_brackets_is_refused_with_its_offset() {
        let vectors = [
            ("gpu[1-4", 3, HostMistake::OpenBracket),
            ("gpu[1-[4]]", 3, HostMistake::OpenBracket),
            ("gpu1]", 4, HostMistake::StrayBracket),
            ("gpu[]", 4, HostMistake::BadRange { text: String::new() }),
            ("gpu[1,,2]", 6, HostMistake::BadRange { text: String::new() }),
            ("gpu[1,a]", 6, HostMistake::BadRange { text: "a".into() }),
            ("gpu[-3]", 4, HostMistake::BadRange { text: "-3".into() }),
            ("gpu[1-2-3]", 4, HostMistake::BadRange { text: "1-2-3".into() }),
            ("gpu[+1]", 4, HostMistake::BadRange { text: "+1".into() }),
            ("gpu[0-99999999999]", 4, HostMistake::BadRange { text: "0-99999999999".into() }),
            ("gpu[1-016]", 4, HostMistake::Widths { text: "1-016".into() }),
            ("gpu[16-1]", 4, HostMistake::Backwards { first: "16".into(), last: "1".into() }),
            ("gpu[0-65536]", 4, HostMistake::TooMany),
            ("gpu[0-65535,7]", 12, HostMistake::TooMany),
            ("r[0-299]n[0-299]", 9, HostMistake::TooMany),
        ];
        for (pattern, at, mistake) in vectors {
            assert_eq!(expand(0, pattern), Err((at, mistake)), "{pattern}");
        }
        assert_eq!(expand(0, "gpu[0-65535]").unwrap().len(), HOSTS_MAX);
    }

    proptest! {
        #[test]
        fn a_range_expands_to_one_name_per_number_of_equal_width(first in 0u32..2000, more in 0u32..300, width in 1usize..6) {
            let names = expand(0, &format!("n[{first:0width$}-{:0width$}]", first + more)).unwrap();
            prop_assert_eq!(names.len() as u32, more + 1);
            let padded = format!("{first:0width$}").starts_with('0') && width > 1;
            for (number, name) in (first..).zip(&names) {
                let expected = if padded { format!("n{number:0width$}") } else { format!("n{number}") };
                prop_assert_eq!(name, &expected);
            }
        }
    }
}
