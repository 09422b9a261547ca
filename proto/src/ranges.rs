//! Ranges of ranks.

/// Returns ascending ranks as inclusive ranges.
pub fn of(ranks: impl IntoIterator<Item = u32>) -> Vec<(u32, u32)> {
    let mut ranges: Vec<(u32, u32)> = Vec::new();
    for rank in ranks {
        match ranges.last_mut() {
            Some((_, last)) if last.checked_add(1) == Some(rank) => *last = rank,
            Some(_) | None => ranges.push((rank, rank)),
        }
    }
    ranges
}
