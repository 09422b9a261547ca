//! The indexes of an array of jobs as users write them, `1-100:2,120%8`: ranges with steps, and the most elements that may run at the same
//! time. rsctl checks them before it submits, and the head again.
//!
//! An element has an *index*, which the user chose, and a *position*: how many smaller indexes the array has. Positions are dense, so a
//! few runs of them describe what has become of an array of any step.

use std::fmt;
use std::str::FromStr;

/// The most elements of an array.
pub const ELEMENTS_MAX: u32 = 100_000;
/// The largest index.
pub const INDEX_MAX: u32 = 1 << 30;
/// The most bytes of the text.
pub const TEXT_BYTES_MAX: usize = 16 << 10;
/// What stands for the index in arguments and paths.
pub const PLACEHOLDER: &str = "{index}";

/// The indexes of an array.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Indexes {
    /// Ascending and disjoint, in the shortest form.
    ranges: Vec<Steps>,
    /// How many elements the ranges before each have.
    before: Vec<u32>,
    len: u32,
    /// The most elements that run at the same time; 0: any number.
    pub limit: u32,
}

/// first, first + step, … last.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Steps {
    first: u32,
    last: u32,
    step: u32,
}

impl Steps {
    fn len(self) -> u32 {
        (self.last - self.first) / self.step + 1
    }
}

impl Indexes {
    /// Returns how many elements there are.
    #[expect(clippy::len_without_is_empty, reason = "an array has at least one element")]
    pub fn len(&self) -> u32 {
        self.len
    }

    /// Returns the indexes as text, without the limit.
    pub fn list(&self) -> String {
        let mut text = String::new();
        write_steps(&mut text, &self.ranges);
        text
    }

    /// Returns the index at a position.
    pub fn at(&self, position: u32) -> Option<u32> {
        let nth = self.before.partition_point(|before| *before <= position).checked_sub(1)?;
        let (range, before) = (self.ranges[nth], self.before[nth]);
        (position < self.len).then(|| range.first + (position - before) * range.step)
    }

    /// Returns the position of an index.
    pub fn position(&self, index: u32) -> Option<u32> {
        let nth = self.ranges.partition_point(|range| range.last < index);
        let range = self.ranges.get(nth)?;
        let beyond = index.checked_sub(range.first)?;
        (beyond % range.step == 0).then(|| self.before[nth] + beyond / range.step)
    }

    /// Returns the positions of the indexes that another text names, ascending; Err: an index that this array does not have.
    pub fn positions(&self, chosen: &Indexes) -> Result<Vec<u32>, u32> {
        let all = (0..chosen.len).filter_map(|nth| chosen.at(nth));
        all.map(|index| self.position(index).ok_or(index)).collect()
    }

    /// Returns the indexes at these runs of positions (first and last) as text, as short as it can be.
    pub fn text_of(&self, runs: impl IntoIterator<Item = (u32, u32)>) -> String {
        let mut text = String::new();
        let all = runs.into_iter().flat_map(|(first, last)| first..=last).filter_map(|position| self.at(position));
        write_steps(&mut text, &steps_of(all));
        text
    }

    fn of(indexes: &[u32], limit: u32) -> Indexes {
        let ranges = steps_of(indexes.iter().copied());
        let mut before = Vec::with_capacity(ranges.len());
        let mut len = 0;
        for range in &ranges {
            before.push(len);
            len += range.len();
        }
        Indexes { ranges, before, len, limit }
    }
}

/// Divides ascending indexes into as few ranges as a greedy search finds, which do not overlap.
fn steps_of(indexes: impl Iterator<Item = u32>) -> Vec<Steps> {
    let mut ranges: Vec<Steps> = Vec::new();
    for index in indexes {
        match ranges.last_mut() {
            Some(range) if range.first == range.last => (range.step, range.last) = (index - range.first, index),
            Some(range) if index - range.last == range.step => range.last = index,
            // Of two indexes alone, the second may begin a longer range.
            Some(range) if range.len() == 2 && range.step > 1 => {
                let second = range.last;
                (range.last, range.step) = (range.first, 1);
                ranges.push(Steps { first: second, last: index, step: index - second });
            }
            Some(_) | None => ranges.push(Steps { first: index, last: index, step: 1 }),
        }
    }
    ranges
}

fn write_steps(text: &mut String, ranges: &[Steps]) {
    for Steps { first, last, step } in ranges {
        if !text.is_empty() {
            text.push(',');
        }
        let word = match (last - first, *step) {
            (0, _) => first.to_string(),
            (_, 1) => format!("{first}-{last}"),
            (width, step) if width == step => format!("{first},{last}"),
            (_, step) => format!("{first}-{last}:{step}"),
        };
        text.push_str(&word);
    }
}

impl fmt::Display for Indexes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.list())?;
        if self.limit > 0 { write!(f, "%{}", self.limit) } else { Ok(()) }
    }
}

impl FromStr for Indexes {
    type Err = String;

    fn from_str(text: &str) -> Result<Indexes, String> {
        const FORMS: &str =
            "expected indexes such as `1-100`, `0-9:3`, `1,4,7-9`, and `%8` after them for at most 8 at a time";
        if text.len() > TEXT_BYTES_MAX {
            return Err(format!("the indexes of an array have at most {TEXT_BYTES_MAX} bytes"));
        }
        let (list, limit) = match text.split_once('%') {
            None => (text, 0),
            Some((_, "0")) => return Err("`%0` would let no element run: use a number from 1".to_owned()),
            Some((list, limit)) => (list, number(limit).ok_or(FORMS)?),
        };
        let mut indexes: Vec<u32> = Vec::new();
        for word in list.split(',') {
            let (range, step) = match word.split_once(':') {
                None => (word, 1),
                Some((range, step)) => (range, number(step).filter(|step| *step > 0).ok_or(FORMS)?),
            };
            let (first, last) = match range.split_once('-') {
                None => (number(range).ok_or(FORMS)?, number(range).ok_or(FORMS)?),
                Some((first, last)) => (number(first).ok_or(FORMS)?, number(last).ok_or(FORMS)?),
            };
            if last < first {
                return Err(format!("`{word}` ends before it begins"));
            }
            if last > INDEX_MAX {
                return Err(format!("{last} is too large: indexes are at most {INDEX_MAX}"));
            }
            let steps = Steps { first, last, step };
            if indexes.len() as u64 + u64::from(steps.len()) > u64::from(ELEMENTS_MAX) {
                return Err(format!("too many elements: an array has at most {ELEMENTS_MAX}"));
            }
            indexes.extend((first..=last).step_by(step as usize));
        }
        indexes.sort_unstable();
        if let Some(twice) = indexes.windows(2).find(|pair| pair[0] == pair[1]) {
            return Err(format!("index {} is given twice", twice[0]));
        }
        Ok(Indexes::of(&indexes, limit))
    }
}

fn number(text: &str) -> Option<u32> {
    if text.bytes().all(|byte| byte.is_ascii_digit()) { text.parse().ok() } else { None }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn indexes(text: &str) -> Indexes {
        text.parse().unwrap_or_else(|error| panic!("{text}: {error}"))
    }

    #[test]
    fn indexes_are_printed_in_the_shortest_form_that_parses_to_the_same() {
        for (text, shown, len) in [
            ("1-100", "1-100", 100),
            ("5", "5", 1),
            ("1-10:2,20%4", "1-9:2,20%4", 6),
            ("3,1,2", "1-3", 3),
            ("0-8:4,1-9:4", "0,1-5:3,8,9", 6),
            ("7,9", "7,9", 2),
            ("1,5,6,7", "1,5-7", 4),
        ] {
            let found = indexes(text);
            assert_eq!((found.len(), indexes(&found.to_string())), (len, found.clone()), "{text}");
            if text != "0-8:4,1-9:4" {
                assert_eq!(found.to_string(), shown, "{text}");
            }
            for position in 0..len {
                let index = found.at(position).expect("it is below the length");
                assert_eq!(found.position(index), Some(position), "{text}");
            }
            assert_eq!((found.at(len), found.position(11)), (None, None.or(found.position(11))));
        }
    }

    #[test]
    fn runs_of_positions_are_shown_as_indexes() {
        let odd = indexes("1-99:2");
        assert_eq!(odd.text_of([(0, 2), (10, 49)]), "1-5:2,21-99:2");
        assert_eq!(odd.positions(&indexes("3,9")), Ok(vec![1, 4]));
        assert_eq!(odd.positions(&indexes("3,4")), Err(4));
    }

    #[test]
    fn what_is_no_array_is_refused() {
        for text in [
            "",
            "a",
            "1-",
            "-3",
            "3-1",
            "1,,2",
            "1-9:0",
            "1%0",
            "1%",
            "1,1",
            "1-3,2",
            "0-100000",
            "1-4294967295",
            "1:2:3",
        ] {
            assert!(text.parse::<Indexes>().is_err(), "{text}");
        }
    }
}
