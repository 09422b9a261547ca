//! Folds reasons that differ only in numbers that count up into one: "slot 1-4 of 4".

/// A reason, split into its numbers and the words around them.
#[derive(Debug, PartialEq, Eq)]
struct Counted<'a> {
    words: Vec<&'a str>,
    numbers: Vec<u64>,
}

/// Folds adjacent reasons into one text if they are equal, or if some numbers of a reason are one more than those of the previous
/// reason.
pub(crate) fn fold<'a>(reasons: impl IntoIterator<Item = &'a str>) -> Vec<String> {
    let mut runs: Vec<Run<'a>> = Vec::new();
    for reason in reasons {
        let next = Counted::new(reason);
        match runs.last_mut() {
            Some(run) if run.goes_on_with(&next) => (run.last, run.length) = (next, run.length + 1),
            Some(_) | None => runs.push(Run { first: Counted::new(reason), last: next, length: 1 }),
        }
    }
    runs.iter().map(Run::text).collect()
}

/// Reasons from `first` to `last`.
struct Run<'a> {
    first: Counted<'a>,
    last: Counted<'a>,
    length: usize,
}

impl Run<'_> {
    /// Whether the run continues with `next`: numbers that were constant stay constant, and numbers that counted up count on. In a run of
    /// one reason, a number may do either.
    fn goes_on_with(&self, next: &Counted<'_>) -> bool {
        let steady = |((first, last), next): ((&u64, &u64), &u64)| match last.checked_add(1) == Some(*next) {
            true => first != last || self.length == 1,
            false => last == next && first == last,
        };
        let Run { first, last, .. } = self;
        first.words == next.words && first.numbers.iter().zip(&last.numbers).zip(&next.numbers).all(steady)
    }

    fn text(&self) -> String {
        let numbers = self.first.numbers.iter().zip(&self.last.numbers).map(|(first, last)| match first == last {
            true => first.to_string(),
            false => format!("{first}-{last}"),
        });
        let numbers = numbers.chain([String::new()]);
        self.first.words.iter().zip(numbers).map(|(words, number)| format!("{words}{number}")).collect()
    }
}

impl<'a> Counted<'a> {
    fn new(text: &'a str) -> Counted<'a> {
        let (mut words, mut numbers) = (Vec::new(), Vec::new());
        let mut rest = text;
        while let Some(at) = rest.find(|c: char| c.is_ascii_digit()) {
            let digits = rest[at..].find(|c: char| !c.is_ascii_digit()).unwrap_or(rest.len() - at);
            let Ok(number) = rest[at..at + digits].parse() else { break };
            words.push(&rest[..at]);
            numbers.push(number);
            rest = &rest[at + digits..];
        }
        words.push(rest);
        Counted { words, numbers }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reasons_that_count_up_are_folded() {
        let slots = ["slot 1 of 2", "slot 2 of 2", "slot pass 2, share 1 of 3", "slot pass 2, share 2 of 3"];
        assert_eq!(fold(slots), ["slot 1-2 of 2", "slot pass 2, share 1-2 of 3"]);
        assert_eq!(fold(["listed", "listed", "listed"]), ["listed"]);
        assert_eq!(fold(["slot 1 of 4", "slot 3 of 4"]), ["slot 1 of 4", "slot 3 of 4"]);
        assert_eq!(fold([]), [""; 0]);
    }

    #[test]
    fn a_number_that_stops_counting_ends_the_run() {
        assert_eq!(fold(["a 1", "a 2", "a 2"]), ["a 1-2", "a 2"]);
        assert_eq!(fold(["a 1", "a 1", "a 2"]), ["a 1", "a 2"]);
    }
}
