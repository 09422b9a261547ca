//! Finds the word that a mistyped word probably stands for.

/// Returns the candidate that differs from `word` in the fewest letters, if at most half of the letters differ.
pub fn nearest<'a>(word: &str, candidates: impl IntoIterator<Item = &'a str>) -> Option<&'a str> {
    let near = candidates.into_iter().map(|known| (edits(word, known), known)).min();
    near.filter(|(edits, _)| *edits * 2 <= word.len()).map(|(_, known)| known)
}

/// Returns how many letters must change to turn one word into the other. Cost: the product of their lengths.
pub(crate) fn edits(a: &str, b: &str) -> usize {
    let mut row: Vec<usize> = (0..=b.len()).collect();
    for (i, a) in a.bytes().enumerate() {
        let mut corner = std::mem::replace(&mut row[0], i + 1);
        for (j, b) in b.bytes().enumerate() {
            let replaced = corner + usize::from(a != b);
            corner = row[j + 1];
            row[j + 1] = replaced.min(row[j] + 1).min(corner + 1);
        }
    }
    row[b.len()]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_nearest_word_is_proposed_and_a_distant_one_is_not() {
        let words = ["placement", "groups", "mpi"];
        assert_eq!(nearest("placment", words), Some("placement"));
        assert_eq!(nearest("group", words), Some("groups"));
        assert_eq!(nearest("zzzz", words), None);
    }
}
