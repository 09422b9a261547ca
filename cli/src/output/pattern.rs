//! Texts with places for what differs between ranks: labels before lines, and names of files.
//!
//! | code | stands for |
//! |---|---|
//! | `%r` | the rank |
//! | `%R` | the rank, with zeros before it, as wide as the largest rank |
//! | `%j` | the number of the rank's job |
//! | `%g` | 0 for the job itself, else the number of the job that its ranks spawned |
//! | `%h` | the node's name |
//! | `%p` | the node's index among the job's nodes |
//! | `%%` | a percent sign |
//!
//! `%r`, `%g`, `%h` and `%p` are Hydra's.

use std::fmt::Write;

/// The codes, for messages.
pub(crate) const CODES: &str = "%r (rank), %R (rank with zeros before it), %h (node), %p (node's index), %j (job), %g (0, or the spawned \
                                job) and %% (a percent sign)";

/// A parsed text.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Pattern(Vec<Piece>);

#[derive(Debug, Clone, PartialEq, Eq)]
enum Piece {
    Text(String),
    Rank,
    PaddedRank,
    Job,
    Group,
    Node,
    NodeIndex,
    /// The rank, after the job's number and a dot in a spawned job.
    Member,
    Stream,
    Time,
}

/// The rank that a pattern is filled in for.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Of<'a> {
    pub(crate) rank: u32,
    /// The number of digits of the largest rank.
    pub(crate) width: usize,
    /// The job that was submitted.
    pub(crate) job: u64,
    /// The rank's job if that one spawned it; else 0.
    pub(crate) spawned: u64,
    pub(crate) node: &'a str,
    pub(crate) node_index: usize,
    pub(crate) stream: &'static str,
    /// Milliseconds since the epoch.
    pub(crate) at_ms: u64,
}

impl Pattern {
    /// Parses what a user writes.
    pub(crate) fn parse(text: &str) -> Result<Pattern, String> {
        let mut pieces = Vec::new();
        let mut chars = text.chars();
        let mut literal = String::new();
        while let Some(c) = chars.next() {
            if c != '%' {
                literal.push(c);
                continue;
            }
            let piece = match chars.next() {
                Some('%') => {
                    literal.push('%');
                    continue;
                }
                Some('r') => Piece::Rank,
                Some('R') => Piece::PaddedRank,
                Some('j') => Piece::Job,
                Some('g') => Piece::Group,
                Some('h') => Piece::Node,
                Some('p') => Piece::NodeIndex,
                Some(other) => return Err(format!("`%{other}` is not known; known are {CODES}")),
                None => return Err(format!("it ends in `%`; known are {CODES}")),
            };
            if !literal.is_empty() {
                pieces.push(Piece::Text(std::mem::take(&mut literal)));
            }
            pieces.push(piece);
        }
        if !literal.is_empty() {
            pieces.push(Piece::Text(literal));
        }
        Ok(Pattern(pieces))
    }

    /// A text in which nothing is replaced.
    pub(crate) fn literal(text: impl Into<String>) -> Pattern {
        Pattern(vec![Piece::Text(text.into())])
    }

    /// `[3] `, or `[8.3] ` for rank 3 of the spawned job 8.
    pub(crate) fn of_rank() -> Pattern {
        Pattern(vec![Piece::Text("[".into()), Piece::Member, Piece::Text("] ".into())])
    }

    /// Open MPI's `[1,3]<stdout>:`.
    pub(crate) fn tag() -> Pattern {
        let text = |text: &str| Piece::Text(text.to_owned());
        Pattern(vec![text("["), Piece::Job, text(","), Piece::Rank, text("]<"), Piece::Stream, text(">:")])
    }

    /// The time, in UTC: `2026-11-23T11:59:25.123Z `.
    pub(crate) fn time() -> Pattern {
        Pattern(vec![Piece::Time, Piece::Text(" ".into())])
    }

    /// This text, then another.
    pub(crate) fn then(mut self, next: Pattern) -> Pattern {
        self.0.extend(next.0);
        self
    }

    /// Whether it depends on the job's nodes or on the number of its ranks.
    pub(crate) fn needs_places(&self) -> bool {
        self.0.iter().any(|piece| matches!(piece, Piece::Node | Piece::NodeIndex | Piece::PaddedRank))
    }

    /// Whether it contains the time.
    pub(crate) fn names_time(&self) -> bool {
        self.0.contains(&Piece::Time)
    }

    /// Returns the text for a rank.
    pub(crate) fn fill(&self, of: &Of<'_>) -> String {
        let mut out = String::new();
        for piece in &self.0 {
            // Writing to a String cannot fail.
            let _ = match piece {
                Piece::Text(text) => out.write_str(text),
                Piece::Rank => write!(out, "{}", of.rank),
                Piece::PaddedRank => write!(out, "{:0width$}", of.rank, width = of.width),
                Piece::Job => write!(out, "{}", if of.spawned == 0 { of.job } else { of.spawned }),
                Piece::Group => write!(out, "{}", of.spawned),
                Piece::Node => out.write_str(of.node),
                Piece::NodeIndex => write!(out, "{}", of.node_index),
                Piece::Member if of.spawned == 0 => write!(out, "{}", of.rank),
                Piece::Member => write!(out, "{}.{}", of.spawned, of.rank),
                Piece::Stream => out.write_str(of.stream),
                Piece::Time => out.write_str(&utc(of.at_ms)),
            };
        }
        out
    }
}

/// Returns a time as in RFC 3339. Dates by Howard Hinnant's algorithm `civil_from_days`.
pub(crate) fn utc(at_ms: u64) -> String {
    let (seconds, ms) = (at_ms / 1000, at_ms % 1000);
    let (days, of_day) = (seconds / 86_400, seconds % 86_400);
    let days = days + 719_468;
    let (era, of_era) = (days / 146_097, days % 146_097);
    let year_of_era = (of_era - of_era / 1460 + of_era / 36_524 - of_era / 146_096) / 365;
    let of_year = of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    let month = (5 * of_year + 2) / 153;
    let day = of_year - (153 * month + 2) / 5 + 1;
    let month = if month < 10 { month + 3 } else { month - 9 };
    let year = year_of_era + era * 400 + u64::from(month <= 2);
    let (hour, minute, second) = (of_day / 3600, of_day / 60 % 60, of_day % 60);
    format!("{year:04}-{month:02}-{day:02}T{hour:02}:{minute:02}:{second:02}.{ms:03}Z")
}

#[cfg(test)]
mod tests {
    use super::*;

    const RANK: Of<'_> =
        Of { rank: 3, width: 2, job: 7, spawned: 0, node: "n1", node_index: 1, stream: "stdout", at_ms: 0 };

    #[test]
    fn every_code_is_replaced() {
        let fill = |text: &str, of: &Of<'_>| Pattern::parse(text).unwrap().fill(of);
        assert_eq!(fill("a%r.%R-%j-%g-%h-%p-100%%", &RANK), "a3.03-7-0-n1-1-100%");
        assert_eq!(fill("%r.%j.%g", &Of { spawned: 8, ..RANK }), "3.8.8");
        assert_eq!(fill("", &RANK), "");
        assert_eq!(Pattern::tag().fill(&RANK), "[7,3]<stdout>:");
        assert_eq!(Pattern::of_rank().fill(&Of { spawned: 8, ..RANK }), "[8.3] ");
        assert_eq!(Pattern::literal("50%r").fill(&RANK), "50%r");
    }

    #[test]
    fn an_unknown_code_is_refused_with_the_known_ones() {
        assert!(Pattern::parse("out.%x").unwrap_err().contains("`%x` is not known; known are %r (rank)"));
        assert!(Pattern::parse("out.%").unwrap_err().contains("ends in `%`"));
    }

    #[test]
    fn times_are_written_in_utc() {
        assert_eq!(utc(0), "1970-01-01T00:00:00.000Z");
        assert_eq!(utc(951_782_400_000), "2000-02-29T00:00:00.000Z");
        assert_eq!(utc(1_795_434_365_123), "2026-11-23T11:46:05.123Z");
        assert_eq!(utc(4_107_542_399_999), "2100-02-28T23:59:59.999Z");
    }
}
