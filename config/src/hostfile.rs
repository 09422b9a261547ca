//! Host files: one host a line, `node0 slots=4 max_slots=8` or `node0:4`, with comments from `#` on.
//!
//! Keys and their synonyms are Open MPI's, `HOST:N` is Hydra's. What either has besides and this version has not (users, ports,
//! exclusion, relative nodes, ranges) is refused by name, never ignored.

use thiserror::Error;

use crate::syntax::SyntaxError;

const ACCEPTED: &str = "HOST [slots=N] [max_slots=M], or HOST:N";

/// One entry of a host list, in the user's order; the same name may come again.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct HostEntry {
    /// The host's name as written.
    pub name: String,
    /// Slots to use there; absent: none said.
    pub slots: Option<u32>,
    /// The most ranks there, also when oversubscribing.
    pub max_slots: Option<u32>,
    /// Where it was written, for messages: "hostfile ./hosts:1", "--host".
    pub source: String,
}

/// A mistake in a host file or host list.
pub type HostfileError = SyntaxError<HostMistake>;

/// What can be wrong with a host.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[expect(missing_docs, reason = "the fields are what the user wrote")]
pub enum HostMistake {
    /// The whole list is empty.
    #[error("no host is named")]
    NoHosts,
    /// Not a name.
    #[error("`{name}` is no host name")]
    BadName { name: String },
    /// Peers have it, this version has not.
    #[error("{what} are not supported in this version")]
    NotSupported { what: &'static str },
    /// No such key.
    #[error("`{key}` is no key of a host")]
    UnknownKey { key: String },
    /// A key alone.
    #[error("`{word}` needs a value: {word}=N")]
    NoValue { word: String },
    /// Not a number, or none that makes sense.
    #[error("{key} takes a number from 1 up, not `{value}`")]
    BadNumber { key: &'static str, value: String },
    /// The same twice.
    #[error("{key} is given twice")]
    Twice { key: &'static str },
    /// The limit is below what it limits.
    #[error("max_slots={max_slots} is less than slots={slots}")]
    MaxBelowSlots { slots: u32, max_slots: u32 },
}

/// Byte in the line, and what is wrong there.
pub(crate) type Mistake = (usize, HostMistake);

/// The hosts of a file, at least one. `file_name` is only for messages.
pub fn parse(text: &str, file_name: &str) -> Result<Vec<HostEntry>, HostfileError> {
    let text = text.strip_prefix('\u{feff}').unwrap_or(text);
    let mut entries = Vec::new();
    for (line, number) in text.lines().zip(1..) {
        let entry = parse_line(line).map_err(|mistake| at(file_name, number, line, mistake))?;
        entries.extend(entry.map(|entry| HostEntry { source: format!("hostfile {file_name}:{number}"), ..entry }));
    }
    if entries.is_empty() {
        return Err(at(file_name, text.lines().count().max(1), "", (0, HostMistake::NoHosts)));
    }
    Ok(entries)
}

fn at(file_name: &str, number: usize, line: &str, mistake: Mistake) -> HostfileError {
    SyntaxError::new(file_name, Some(number), line, mistake, ACCEPTED)
}

fn parse_line(line: &str) -> Result<Option<HostEntry>, Mistake> {
    let mut words = Words { line: line.split('#').next().unwrap_or(line), at: 0 };
    let Some((start, host)) = words.next_until(&[]) else { return Ok(None) };
    let mut entry = parse_host(start, host)?;
    while let Some((at, key)) = words.next_until(&['=']) {
        let key_kind = key_of(key).map_err(|mistake| (at, mistake))?;
        let value = if words.skip('=') { words.next_until(&[]) } else { None };
        let Some((value_at, value)) = value else {
            return Err((at, HostMistake::NoValue { word: key.to_owned() }));
        };
        let number = number(key_kind, value).map_err(|mistake| (value_at, mistake))?;
        let field = if key_kind == SLOTS { &mut entry.slots } else { &mut entry.max_slots };
        if field.replace(number).is_some() {
            return Err((at, HostMistake::Twice { key: key_kind }));
        }
        if let (Some(slots), Some(max_slots)) = (entry.slots, entry.max_slots)
            && max_slots < slots
        {
            return Err((at, HostMistake::MaxBelowSlots { slots, max_slots }));
        }
    }
    Ok(Some(entry))
}

/// `HOST` or `HOST:N`, found at byte `at` of its line. The source is left to the caller.
pub(crate) fn parse_host(at: usize, word: &str) -> Result<HostEntry, Mistake> {
    let unsupported = |offset: usize, what| Err((at + offset, HostMistake::NotSupported { what }));
    match word.find(['@', '^', '+', '[']) {
        Some(offset) if word[offset..].starts_with('@') => return unsupported(0, "user names (user@host)"),
        Some(offset) if word[offset..].starts_with('[') => {
            return unsupported(offset, "host ranges and address brackets");
        }
        Some(0) if word.starts_with('^') => return unsupported(0, "excluded hosts (^host)"),
        Some(0) => return unsupported(0, "relative nodes (+n, +e)"),
        Some(_) | None => {}
    }
    let (name, count) = match word.split_once(':') {
        Some((name, count)) => (name, Some(count)),
        None => (word, None),
    };
    let fits = |c: char| c.is_ascii_alphanumeric() || matches!(c, '.' | '-' | '_');
    if name.is_empty() || name.len() > 255 || name.starts_with('-') || !name.chars().all(fits) {
        return Err((at, HostMistake::BadName { name: name.to_owned() }));
    }
    let slots = count.map(|count| number(SLOTS, count)).transpose();
    let slots = slots.map_err(|mistake| (at + name.len() + 1, mistake))?;
    Ok(HostEntry { name: name.to_owned(), slots, max_slots: None, source: String::new() })
}

const SLOTS: &str = "slots";
const MAX_SLOTS: &str = "max_slots";

fn key_of(word: &str) -> Result<&'static str, HostMistake> {
    match word.to_ascii_lowercase().as_str() {
        "slots" | "slot" | "cpu" | "cpus" | "count" => Ok(SLOTS),
        "max_slots" | "max-slots" | "slots_max" | "slots-max" => Ok(MAX_SLOTS),
        "user" | "username" | "user_name" | "user-name" => Err(HostMistake::NotSupported { what: "user names" }),
        "port" => Err(HostMistake::NotSupported { what: "ports" }),
        "binding" => Err(HostMistake::NotSupported { what: "bindings per host" }),
        _ => Err(HostMistake::UnknownKey { key: word.to_owned() }),
    }
}

fn number(key: &'static str, value: &str) -> Result<u32, HostMistake> {
    let digits = value.bytes().all(|byte| byte.is_ascii_digit());
    let number = value.parse().ok().filter(|number| digits && *number > 0);
    number.ok_or_else(|| HostMistake::BadNumber { key, value: value.to_owned() })
}

/// The words of a line with the byte that each begins at.
struct Words<'a> {
    line: &'a str,
    at: usize,
}

impl<'a> Words<'a> {
    /// The next word, which blanks and `ends` end.
    fn next_until(&mut self, ends: &[char]) -> Option<(usize, &'a str)> {
        self.skip_blanks();
        let rest = &self.line[self.at..];
        let length = rest.find(|c: char| c.is_whitespace() || ends.contains(&c)).unwrap_or(rest.len());
        let start = self.at;
        self.at += length;
        (!rest.is_empty()).then(|| (start, &rest[..length]))
    }

    fn skip(&mut self, c: char) -> bool {
        self.skip_blanks();
        let found = self.line[self.at..].starts_with(c);
        self.at += if found { c.len_utf8() } else { 0 };
        found
    }

    fn skip_blanks(&mut self) {
        let rest = &self.line[self.at..];
        self.at += rest.len() - rest.trim_start().len();
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn error(text: &str) -> String {
        parse(text, "./hosts").unwrap_err().to_string()
    }

    #[test]
    fn every_form_is_read() {
        let text = "# nodes of ours\n\nnode0 slots=2 max_slots=20\r\n  node1:4 # fast\nnode2\n\
                    node3 CPU = 8 Max-Slots =9\nnode4.org count=1\nnode0 slots_max=3\n10.0.0.7\n";
        let entries = parse(text, "./hosts").unwrap();
        let found: Vec<_> =
            entries.iter().map(|e| (e.name.as_str(), e.slots, e.max_slots, e.source.as_str())).collect();
        assert_eq!(
            found,
            [
                ("node0", Some(2), Some(20), "hostfile ./hosts:3"),
                ("node1", Some(4), None, "hostfile ./hosts:4"),
                ("node2", None, None, "hostfile ./hosts:5"),
                ("node3", Some(8), Some(9), "hostfile ./hosts:6"),
                ("node4.org", Some(1), None, "hostfile ./hosts:7"),
                ("node0", None, Some(3), "hostfile ./hosts:8"),
                ("10.0.0.7", None, None, "hostfile ./hosts:9"),
            ]
        );
    }

    #[test]
    fn a_mistake_is_shown_with_file_line_column_and_the_accepted_form() {
        assert_eq!(
            error("node0 slots=2\nnode1 slots=x max_slots=3"),
            "./hosts:2:13: slots takes a number from 1 up, not `x`\n  \
               node1 slots=x max_slots=3\n              \
                           ^\n\
             accepted: HOST [slots=N] [max_slots=M], or HOST:N"
        );
    }

    #[test]
    fn every_mistake_is_called_by_its_name() {
        let vectors = [
            ("node0 slots", "1:7: `slots` needs a value: slots=N"),
            ("node0 slots=", "1:7: `slots` needs a value: slots=N"),
            ("node0 slots=0", "1:13: slots takes a number from 1 up, not `0`"),
            ("node0 slots=+1", "1:13: slots takes a number from 1 up, not `+1`"),
            ("node0 max_slots=99999999999", "1:17: max_slots takes a number from 1 up, not `99999999999`"),
            ("node0:two", "1:7: slots takes a number from 1 up, not `two`"),
            ("node0:2:3", "1:7: slots takes a number from 1 up, not `2:3`"),
            ("node0:", "1:7: slots takes a number from 1 up, not ``"),
            ("node0:2 slots=2", "1:9: slots is given twice"),
            ("node0 cpu=2 slots=2", "1:13: slots is given twice"),
            ("node0 slots=4 max_slots=2", "1:15: max_slots=2 is less than slots=4"),
            ("node0 slot5=2", "1:7: `slot5` is no key of a host"),
            ("node0 =2", "1:7: `` is no key of a host"),
            (":4", "1:1: `` is no host name"),
            ("nöde", "1:1: `nöde` is no host name"),
            ("-n", "1:1: `-n` is no host name"),
            ("node0,node1", "1:1: `node0,node1` is no host name"),
            ("me@node0", "1:1: user names (user@host) are not supported in this version"),
            ("node0 user=me", "1:7: user names are not supported in this version"),
            ("node0 port=22", "1:7: ports are not supported in this version"),
            ("^node0", "1:1: excluded hosts (^host) are not supported in this version"),
            ("+n2", "1:1: relative nodes (+n, +e) are not supported in this version"),
            ("node[0-3]", "1:5: host ranges and address brackets are not supported in this version"),
            ("# nothing\n\n", "2:1: no host is named"),
            ("", "1:1: no host is named"),
        ];
        for (text, expected) in vectors {
            assert_eq!(error(text).lines().next().unwrap(), format!("./hosts:{expected}"), "{text:?}");
        }
    }

    proptest! {
        #[test]
        fn any_text_is_read_or_refused(text in "[a-c0-2:=# \t\né@^+\\[slotmax_]{0,40}") {
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
