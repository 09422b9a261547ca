//! Rank files: the node and the cpus of each rank.
//!
//! ```text
//! # comments as in host files
//! rank 0=node0 slot=0-3          cores 0 to 3 of the node
//! rank 1=node0 slot=1:0-2        cores 0 to 2 of package 1
//! rank 2=node1 slot=0:1,1:0-2    core 1 of package 0, and cores 0 to 2 of package 1
//! rank 3=node1 slot=1:0,2        cores 0 and 2 of package 1
//! rank 4=+n2                     all cpus of the third node
//! ```
//!
//! The form is Open MPI's. Cpu numbers are logical and count from 0 on the node or, after a package number, within that package.
//! `rsd-core`, which knows the number of ranks, checks that the file lists every rank.

use std::collections::HashMap;

use thiserror::Error;

use crate::host::{self, HostMistake, HostRef};
use crate::hostfile::Words;
use crate::syntax::{SyntaxError, without_comments};

const ACCEPTED: &str = "rank N=HOST or rank N=HOST slot=CPUS, where CPUS is 0-3,8 or, by PACKAGE:CORES, 0:1,1:0-2";

/// The most ranks in a file.
pub const RANKS_MAX: usize = 1 << 20;

/// One rank of a rank file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RankEntry {
    /// Its number.
    pub rank: u32,
    /// A node's name or `+nK`.
    pub host: String,
    /// `0-3,8`, or `0:1,1:0-2` with a package before each range; empty: all cpus.
    pub cpus: String,
    /// Where it was written: "rankfile ./ranks:3".
    pub source: String,
}

/// A mistake in a rank file.
pub type RankfileError = SyntaxError<RankMistake>;

/// What can be wrong with a line.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[expect(missing_docs, reason = "the fields are what the user wrote")]
pub enum RankMistake {
    /// A file without ranks.
    #[error("no rank given")]
    NoRanks,
    /// A line that does not begin with `rank`.
    #[error("expected `rank`, found `{word}`")]
    NoRank { word: String },
    /// An invalid rank number.
    #[error("invalid rank number `{text}`: use a number from 0 up")]
    BadNumber { text: String },
    /// A rank without a host.
    #[error("rank {rank} needs a host: rank {rank}=HOST")]
    NoHost { rank: u32 },
    /// Several hosts, or a host with a count or user.
    #[error("a rank needs one host, a name or +nK, not `{text}`")]
    NotOneHost { text: String },
    /// An invalid host.
    #[error(transparent)]
    Host(HostMistake),
    /// A rank that occurs twice.
    #[error("rank {rank} is already on line {line}")]
    Twice { rank: u32, line: usize },
    /// A key other than `slot`.
    #[error("unknown rank-file key `{word}`: the only key is slot=CPUS")]
    UnknownKey { word: String },
    /// `slot` without a value.
    #[error("`slot` needs a value: slot=0-3")]
    NoCpus,
    /// An invalid list of cpus.
    #[error("`{text}` is not a cpu, a range of cpus or PACKAGE:CORES")]
    BadCpus { text: String },
    /// `3-1`.
    #[error("the range {first}-{last} is reversed: write {last}-{first}")]
    Backwards { first: u32, last: u32 },
    /// `3,1:0`.
    #[error("`{text}` has no package: give the package for all cpus or for none")]
    Mixed { text: String },
    /// Text after the cpus.
    #[error("unexpected text after the cpus")]
    Behind,
    /// More than [`RANKS_MAX`] ranks.
    #[error("a rank file has at most {RANKS_MAX} ranks")]
    TooMany,
    /// A `/*` without `*/`.
    #[error("unterminated comment")]
    OpenComment,
}

type Mistake = (usize, RankMistake);

/// Parses a rank file into at least one rank, in the file's order. `file_name` is only for messages.
pub fn parse(text: &str, file_name: &str) -> Result<Vec<RankEntry>, RankfileError> {
    let text = text.strip_prefix('\u{feff}').unwrap_or(text);
    let wrong = |number: usize, mistake: Mistake| {
        let line = text.lines().nth(number - 1).unwrap_or("");
        SyntaxError::new(file_name, Some(number), line, mistake, ACCEPTED)
    };
    let bare = without_comments(text).map_err(|(line, at)| wrong(line, (at, RankMistake::OpenComment)))?;
    let mut entries = Vec::new();
    let mut lines = HashMap::new();
    for (line, number) in bare.lines().zip(1..) {
        let found = parse_line(line).map_err(|mistake| wrong(number, mistake))?;
        let Some((at, entry)) = found else { continue };
        if let Some(line) = lines.insert(entry.rank, number) {
            return Err(wrong(number, (at, RankMistake::Twice { rank: entry.rank, line })));
        }
        entries.push(RankEntry { source: format!("rankfile {file_name}:{number}"), ..entry });
    }
    if entries.is_empty() {
        return Err(wrong(text.lines().count().max(1), (0, RankMistake::NoRanks)));
    }
    Ok(entries)
}

/// Parses a line into a rank and the byte offset of its number.
fn parse_line(line: &str) -> Result<Option<(usize, RankEntry)>, Mistake> {
    let mut words = Words { line, at: 0 };
    let Some((at, word)) = words.next_until(&['=']) else { return Ok(None) };
    if !word.eq_ignore_ascii_case("rank") {
        return Err((at, RankMistake::NoRank { word: word.to_owned() }));
    }
    let (number_at, number) = words.next_until(&['=']).unwrap_or((line.len(), ""));
    let digits = !number.is_empty() && number.bytes().all(|byte| byte.is_ascii_digit());
    let Some(rank) = number.parse::<u32>().ok().filter(|_| digits) else {
        return Err((number_at, RankMistake::BadNumber { text: number.to_owned() }));
    };
    if rank as usize >= RANKS_MAX {
        return Err((number_at, RankMistake::TooMany));
    }
    let end = words.at;
    let host = if words.skip('=') { words.next_until(&[]) } else { None };
    let (host_at, host) = host.ok_or((end, RankMistake::NoHost { rank }))?;
    let host = one_host(host_at, host)?;
    let mut entry = RankEntry { rank, host, cpus: String::new(), source: String::new() };
    if let Some((key_at, key)) = words.next_until(&['=']) {
        if !["slot", "slots"].contains(&key.to_ascii_lowercase().as_str()) {
            return Err((key_at, RankMistake::UnknownKey { word: key.to_owned() }));
        }
        let value = if words.skip('=') { words.next_until(&[]) } else { None };
        let (cpus_at, cpus) = value.ok_or((key_at, RankMistake::NoCpus))?;
        entry.cpus = canonical(cpus_at, cpus)?;
        if let Some((at, _)) = words.next_until(&[]) {
            return Err((at, RankMistake::Behind));
        }
    }
    Ok(Some((number_at, entry)))
}

/// Parses the name of exactly one host.
fn one_host(at: usize, word: &str) -> Result<String, Mistake> {
    let found = host::parse(at, word).map_err(|(at, mistake)| (at, RankMistake::Host(mistake)))?;
    match &found[..] {
        [entry] if entry.slots == host::Slots::Unsaid && entry.user.is_none() => match &entry.host {
            HostRef::Named(_) | HostRef::Nth(_) | HostRef::Id(_) => Ok(entry.host.to_string()),
            HostRef::Idle(_) | HostRef::Labelled { .. } | HostRef::Excluded(_) => {
                Err((at, RankMistake::NotOneHost { text: word.to_owned() }))
            }
        },
        _ => Err((at, RankMistake::NotOneHost { text: word.to_owned() })),
    }
}

/// Writes the package before every range, or before none: `1:0,2` becomes `1:0,1:2`.
fn canonical(at: usize, cpus: &str) -> Result<String, Mistake> {
    let mut out: Vec<String> = Vec::new();
    let mut package: Option<u32> = None;
    let mut item_at = at;
    for item in cpus.split(',') {
        let bad = || (item_at, RankMistake::BadCpus { text: item.to_owned() });
        let range = match item.split_once(':') {
            Some((text, range)) => {
                if package.is_none()
                    && let Some(first) = out.first()
                {
                    return Err((at, RankMistake::Mixed { text: first.clone() }));
                }
                package = Some(cpu(text).ok_or_else(bad)?);
                range
            }
            None => item,
        };
        let (first, last) = range.split_once('-').unwrap_or((range, range));
        let (first, last) = cpu(first).zip(cpu(last)).ok_or_else(bad)?;
        if last < first {
            return Err((item_at, RankMistake::Backwards { first, last }));
        }
        let range = if first == last { format!("{first}") } else { format!("{first}-{last}") };
        out.push(package.map_or(range.clone(), |package| format!("{package}:{range}")));
        item_at += item.len() + 1;
    }
    Ok(out.join(","))
}

/// Parses a cpu number of at most 5 digits. A longer one is a typing error and is refused here.
fn cpu(text: &str) -> Option<u32> {
    let digits = text.len() <= 5 && text.bytes().all(|byte| byte.is_ascii_digit());
    text.parse().ok().filter(|_| digits)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn every_form_is_parsed() {
        let text = "# ranks\nrank 0=node0 slot=0-3,8\nRANK 2 = node1 SLOT = 0:1,1:0-2 // two packages\n\
                    /* none\n here */ rank 1=node1.org slot=1:0,2\nrank 3=+n2\nrank 10=[fe80::1] slots=4-4\n";
        let found: Vec<_> =
            parse(text, "./ranks").unwrap().into_iter().map(|e| (e.rank, e.host, e.cpus, e.source)).collect();
        let entry = |rank, host: &str, cpus: &str, line| {
            (rank, host.to_owned(), cpus.to_owned(), format!("rankfile ./ranks:{line}"))
        };
        assert_eq!(
            found,
            [
                entry(0, "node0", "0-3,8", 2),
                entry(2, "node1", "0:1,1:0-2", 3),
                entry(1, "node1.org", "1:0,1:2", 5),
                entry(3, "+n2", "", 6),
                entry(10, "fe80::1", "4", 7),
            ]
        );
    }

    #[test]
    fn a_mistake_is_shown_with_file_line_column_and_the_accepted_form() {
        assert_eq!(
            parse("rank 0=a slot=0\nrank 1=a slot=0,x", "./ranks").unwrap_err().to_string(),
            "./ranks:2:17: `x` is not a cpu, a range of cpus or PACKAGE:CORES\n  \
               rank 1=a slot=0,x\n                  \
                               ^\n\
             accepted: rank N=HOST or rank N=HOST slot=CPUS, where CPUS is 0-3,8 or, by PACKAGE:CORES, 0:1,1:0-2"
        );
        let vectors = [
            ("", "1:1: no rank given"),
            ("# nothing\n\n", "2:1: no rank given"),
            ("node0 slots=2", "1:1: expected `rank`, found `node0`"),
            ("rank", "1:5: invalid rank number ``: use a number from 0 up"),
            ("rank x=a", "1:6: invalid rank number `x`: use a number from 0 up"),
            ("rank -1=a", "1:6: invalid rank number `-1`: use a number from 0 up"),
            ("rank 1048576=a", "1:6: a rank file has at most 1048576 ranks"),
            ("rank 0", "1:7: rank 0 needs a host: rank 0=HOST"),
            ("rank 0=", "1:7: rank 0 needs a host: rank 0=HOST"),
            ("rank 0=nö", "1:8: invalid host name `nö`"),
            ("rank 0=a:2", "1:8: a rank needs one host, a name or +nK, not `a:2`"),
            ("rank 0=a[0-1]", "1:8: a rank needs one host, a name or +nK, not `a[0-1]`"),
            ("rank 0=+e", "1:8: a rank needs one host, a name or +nK, not `+e`"),
            ("rank 0=^a", "1:8: a rank needs one host, a name or +nK, not `^a`"),
            ("rank 0=a\nrank 1=a\nrank 0=b", "3:6: rank 0 is already on line 1"),
            ("rank 0=a core=1", "1:10: unknown rank-file key `core`: the only key is slot=CPUS"),
            ("rank 0=a slot", "1:10: `slot` needs a value: slot=0-3"),
            ("rank 0=a slot=", "1:10: `slot` needs a value: slot=0-3"),
            ("rank 0=a slot=1:", "1:15: `1:` is not a cpu, a range of cpus or PACKAGE:CORES"),
            ("rank 0=a slot=1:0:2", "1:15: `1:0:2` is not a cpu, a range of cpus or PACKAGE:CORES"),
            ("rank 0=a slot=p0:1", "1:15: `p0:1` is not a cpu, a range of cpus or PACKAGE:CORES"),
            ("rank 0=a slot=3-1", "1:15: the range 3-1 is reversed: write 1-3"),
            ("rank 0=a slot=3,1:0", "1:15: `3` has no package: give the package for all cpus or for none"),
            ("rank 0=a slot=0 1", "1:17: unexpected text after the cpus"),
            ("rank 0=a /* slot=0", "1:10: unterminated comment"),
        ];
        for (text, expected) in vectors {
            let error = parse(text, "./ranks").unwrap_err().to_string();
            assert_eq!(error.lines().next().unwrap(), format!("./ranks:{expected}"), "{text:?}");
        }
    }

    proptest! {
        #[test]
        fn any_text_is_parsed_or_refused(text in "(rank [0-3]=[ab] ?)?[rank0-3=ab:, \n#/*slot+é-]{0,20}") {
            match parse(&text, "f") {
                Ok(entries) => prop_assert!(!entries.is_empty()),
                Err(error) => {
                    let line = text.lines().nth(error.line.unwrap() - 1).unwrap_or("");
                    prop_assert!(error.column <= line.chars().count() + 1);
                    prop_assert_eq!(error.to_string().lines().count(), 4);
                }
            }
        }
    }
}
