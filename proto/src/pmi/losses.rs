//! How rsd tells the ranks of a job that goes on after the loss of nodes which ranks are lost.
//!
//! A rank whose library wants to know requests [`KEY`]. From then on, its process manager may send [`Reply::Lost`] between its
//! answers, unrequested; other libraries never get it, because they would take it for an answer.
//!
//! [`Reply::Lost`]: super::v1::Reply::Lost

/// The key that a library requests to be told about lost ranks. Ranks cannot put keys that begin with `PMI_`.
pub const KEY: &str = "PMI_rsd_losses";

const ENDED: &str = "PMI_rsd_ended_";

/// Returns the key of whether a rank on the asker's node has ended its use of MPI: `1` if it has finalized or exited, `0` if it has not, or is
/// on another node.
pub fn ended_key(rank: u32) -> String {
    format!("{ENDED}{rank}")
}

/// Returns the rank that such a key asks about; `None` for any other key.
pub fn ended_of(key: &[u8]) -> Option<u32> {
    str::from_utf8(key).ok()?.strip_prefix(ENDED)?.parse().ok()
}

/// The most ranges of ranks in one message, so that it fits into a line.
pub const RANGES_MAX: usize = 32;

/// Returns inclusive ranges of ranks as text: `4-7,9`.
pub fn to_text(ranks: &[(u32, u32)]) -> String {
    let text = |(first, last): &(u32, u32)| if first == last { first.to_string() } else { format!("{first}-{last}") };
    ranks.iter().map(text).collect::<Vec<_>>().join(",")
}

/// Returns the ranges that a text names; None if it is invalid.
pub fn parse(text: &[u8]) -> Option<Vec<(u32, u32)>> {
    let range = |range: &str| {
        let (first, last) = range.split_once('-').unwrap_or((range, range));
        let (first, last) = (first.parse().ok()?, last.parse().ok()?);
        (first <= last).then_some((first, last))
    };
    str::from_utf8(text).ok()?.split(',').map(range).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_key_names_its_rank() {
        assert_eq!(ended_of(ended_key(7).as_bytes()), Some(7));
        assert_eq!([&b"PMI_rsd_ended_"[..], b"PMI_rsd_ended_x", b"rank"].map(ended_of), [None; 3]);
    }

    #[test]
    fn ranges_survive_their_text() {
        let found = crate::ranges::of([0, 4, 5, 6, 9, u32::MAX]);
        assert_eq!(to_text(&found), "0,4-6,9,4294967295");
        assert_eq!(parse(to_text(&found).as_bytes()), Some(found));
        for text in [&b""[..], b"4-", b"-", b"5-4", b"1,,2", b"x", b"1-2-3", b"\xff"] {
            assert_eq!(parse(text), None, "{text:?}");
        }
    }
}
