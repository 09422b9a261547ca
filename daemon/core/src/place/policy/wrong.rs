//! A mistake in a policy: what is wrong, what was probably meant, the text with a mark under the wrong word, and what is
//! accepted.

use std::fmt::{self, Display};

/// A word of a policy that is unknown or misplaced. The text names it and what is accepted:
///
/// ```text
/// unknown mapping `pakage`; did you mean `package`?
///   pakage:pe=2
///   ^
/// accepted: slot, node, …
/// ```
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{text}")]
pub struct PolicyError {
    /// The message.
    pub text: String,
}

impl PolicyError {
    /// A mistake without a position in the text.
    pub(super) fn plain(text: impl Into<String>) -> PolicyError {
        PolicyError { text: text.into() }
    }

    /// Adds the option whose value is wrong.
    pub(super) fn of(self, option: &str) -> PolicyError {
        PolicyError { text: format!("{option}: {}", self.text) }
    }
}

/// A word of a text, with its byte offset.
#[derive(Debug, Clone, Copy)]
pub(super) struct Word<'a> {
    pub(super) whole: &'a str,
    pub(super) at: usize,
    pub(super) text: &'a str,
}

impl<'a> Word<'a> {
    /// Splits at colons into at least one word.
    pub(super) fn split(whole: &'a str) -> impl Iterator<Item = Word<'a>> {
        let mut next = 0;
        whole.split(':').map(move |text| {
            let at = next;
            next += text.len() + 1;
            Word { whole, at, text }
        })
    }

    /// The word in lower case.
    pub(super) fn lower(&self) -> String {
        self.text.to_ascii_lowercase()
    }

    /// Returns the rest of the word after `prefix`, which is matched ignoring case.
    pub(super) fn value_of(&self, prefix: &str) -> Option<Word<'a>> {
        let (start, rest) = self.text.split_at_checked(prefix.len())?;
        let fits = start.eq_ignore_ascii_case(prefix);
        fits.then_some(Word { whole: self.whole, at: self.at + prefix.len(), text: rest })
    }

    /// The word as a whole number from 1 to `max`.
    pub(super) fn number(&self, max: u32) -> Option<u32> {
        let digits = !self.text.is_empty() && self.text.bytes().all(|byte| byte.is_ascii_digit());
        self.text.parse().ok().filter(|number| digits && (1..=max).contains(number))
    }

    /// The error for this word.
    pub(super) fn wrong(&self, what: impl Display, accepted: &str) -> PolicyError {
        let before = self.whole[..self.at].chars().count();
        let shown: String = self.whole.chars().map(|c| if c.is_control() { ' ' } else { c }).collect();
        PolicyError { text: format!("{what}\n  {shown}\n  {:before$}^\naccepted: {accepted}", "") }
    }
}

/// The hint that follows "unknown WORD": a prepared answer, else the nearest of `known`, else nothing.
pub(super) fn meant<'a>(
    word: &'a str,
    answers: &'a [(&'a str, &'a str)],
    known: impl Iterator<Item = &'a str>,
) -> impl Display {
    struct Meant<'a>(Option<&'a str>, Option<&'a str>);
    impl Display for Meant<'_> {
        fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
            match (self.0, self.1) {
                (Some(answer), _) => write!(f, "; {answer}"),
                (None, Some(near)) => write!(f, "; did you mean `{near}`?"),
                (None, None) => Ok(()),
            }
        }
    }
    let answer = answers.iter().find(|(foreign, _)| *foreign == word).map(|(_, answer)| *answer);
    Meant(answer, nearest(word, known))
}

/// The nearest of `known` within one typing error, or two for words of more than four letters.
fn nearest<'a>(word: &str, known: impl Iterator<Item = &'a str>) -> Option<&'a str> {
    let letters: Vec<char> = word.chars().take(32).collect();
    let slips = if letters.len() > 4 { 2 } else { 1 };
    let measured = known.map(|known| (distance(&letters, known), known));
    measured.filter(|(distance, _)| *distance <= slips).min_by_key(|(distance, _)| *distance).map(|(_, known)| known)
}

/// How many letters to insert, delete, change, or swap with a neighbour. Cost: the product of the lengths.
fn distance(word: &[char], known: &str) -> usize {
    let known: Vec<char> = known.chars().collect();
    let mut before_last = vec![0; known.len() + 1];
    let mut last: Vec<usize> = (0..=known.len()).collect();
    for (i, a) in word.iter().enumerate() {
        let mut row = vec![i + 1];
        for (j, b) in known.iter().enumerate() {
            let mut steps = (last[j + 1] + 1).min(row[j] + 1).min(last[j] + usize::from(a != b));
            if i > 0 && j > 0 && *a == known[j - 1] && word[i - 1] == *b {
                steps = steps.min(before_last[j - 1] + 1);
            }
            row.push(steps);
        }
        before_last = std::mem::replace(&mut last, row);
    }
    last[known.len()]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn typing_errors_are_counted() {
        let count = |word: &str, known: &str| distance(&word.chars().collect::<Vec<_>>(), known);
        let vectors =
            [("core", "core", 0), ("cores", "core", 1), ("cor", "core", 1), ("croe", "core", 1), ("", "slot", 4)];
        for (word, known, expected) in vectors {
            assert_eq!(count(word, known), expected, "{word} {known}");
        }
        assert_eq!(count("pakcge", "package"), 2);
    }

    #[test]
    fn only_near_words_are_suggested() {
        let near = |word: &str| nearest(word, ["slot", "node", "package", "core"].into_iter());
        assert_eq!(near("nodes"), Some("node"));
        assert_eq!(near("packge"), Some("package"));
        assert_eq!(near("gpu"), None);
        assert_eq!(near(&"x".repeat(100_000)), None);
    }
}
