//! Host files: one host per line, `node0 slots=4 max_slots=8` or `node0:4`.
//!
//! ```text
//! # comments: this, // this, and /* this,
//!   which may span lines */
//! node0 slots=4 max_slots=8        synonyms: cpu, count; slots_max, max-slots, max_cpus, …
//! node1:4                          Hydra's form
//! gpu[01-16,20] slots=8            gpu01 to gpu16 and gpu20
//! me@node2 port=2222               or user=me; used to start daemons
//! node3                            all slots of node3; if it is listed on k lines, k slots
//! [fe80::1]                        an IPv6 address
//! ^gpu07                           excluded
//! +n2                              the third node; +e: all idle nodes; +e:3: three of them
//! ```
//!
//! The keys and their synonyms are Open MPI's. If a host is on several lines, it must be bare on each line, which counts one slot per
//! line, or have a `:N` on each line; these add up. Any other mix is ambiguous and refused.

use std::collections::HashMap;

use crate::host::{self, HOSTS_MAX, HostEntry, HostMistake, HostRef, Mistake, SLOTS, Slots, fits_user, number};
use crate::syntax::{SyntaxError, without_comments};

const ACCEPTED: &str = "\
HOST [slots=N] [max_slots=M] [user=NAME] [port=P], HOST:N, USER@HOST, NAME[01-16,20], +nK, +idK, +e[:N], +KEY=VALUE[:N], ^HOST";

/// A mistake in a host file or host list.
pub type HostfileError = SyntaxError<HostMistake>;

/// Parses a host file into at least one entry. `file_name` is only for messages.
pub fn parse(text: &str, file_name: &str) -> Result<Vec<HostEntry>, HostfileError> {
    let text = text.strip_prefix('\u{feff}').unwrap_or(text);
    let wrong = |number: usize, mistake: Mistake| {
        let line = text.lines().nth(number - 1).unwrap_or("");
        SyntaxError::new(file_name, Some(number), line, mistake, ACCEPTED)
    };
    let bare = without_comments(text).map_err(|(line, at)| wrong(line, (at, HostMistake::OpenComment)))?;
    let mut entries = Vec::new();
    let mut listed = HashMap::new();
    for (line, number) in bare.lines().zip(1..) {
        let found = parse_line(line).map_err(|mistake| wrong(number, mistake))?;
        let Some(Line { at, form, hosts }) = found else { continue };
        if entries.len() + hosts.len() > HOSTS_MAX {
            return Err(wrong(number, (at, HostMistake::TooMany)));
        }
        for entry in hosts {
            if let HostRef::Named(name) = &entry.host {
                let first = *listed.entry(name.to_ascii_lowercase()).or_insert((form, number, entries.len()));
                let again = first.2 < entries.len();
                if again && (first.0 != form || form == Form::Keys) {
                    return Err(wrong(number, (at, HostMistake::Repeated { name: name.clone(), line: first.1 })));
                }
            }
            entries.push(HostEntry { source: format!("hostfile {file_name}:{number}"), ..entry });
        }
    }
    if entries.is_empty() {
        return Err(wrong(text.lines().count().max(1), (0, HostMistake::NoHosts)));
    }
    Ok(entries)
}

/// How a line gives its slots.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Form {
    Bare,
    Colon,
    Keys,
}

/// A parsed line.
struct Line {
    at: usize,
    form: Form,
    hosts: Vec<HostEntry>,
}

fn parse_line(line: &str) -> Result<Option<Line>, Mistake> {
    let mut words = Words { line, at: 0 };
    let Some((at, item)) = words.next_until(&[]) else { return Ok(None) };
    let mut hosts = host::parse(at, item).map_err(|mistake| commas(at, item, mistake))?;
    let Some(first) = hosts.first() else { return Ok(None) };
    let mut keys = Keys { slots: first.slots, max_slots: None, user: first.user.clone(), port: None };
    let mut form = if first.slots == Slots::Unsaid { Form::Bare } else { Form::Colon };
    while let Some((key_at, word)) = words.next_until(&['=']) {
        if matches!(first.host, HostRef::Excluded(_)) {
            return Err((key_at, HostMistake::ExcludedWith));
        }
        let key = key_of(word).map_err(|mistake| (key_at, mistake))?;
        let value = if words.skip('=') { words.next_until(&[]) } else { None };
        let Some((value_at, value)) = value else {
            return Err((key_at, HostMistake::NoValue { word: word.to_owned() }));
        };
        keys.set(key, value).map_err(|mistake| {
            let of_key = matches!(mistake, HostMistake::Twice { .. } | HostMistake::MaxBelowSlots { .. });
            (if of_key { key_at } else { value_at }, mistake)
        })?;
        if matches!(key, Key::Slots | Key::MaxSlots) {
            form = Form::Keys;
        }
    }
    for entry in &mut hosts {
        entry.slots = keys.slots;
        entry.max_slots = keys.max_slots;
        entry.user.clone_from(&keys.user);
        entry.port = keys.port;
    }
    Ok(Some(Line { at, form, hosts }))
}

/// Replaces "invalid host name" for `a,b` on one line by a more useful message.
fn commas(at: usize, item: &str, mistake: Mistake) -> Mistake {
    let unread = matches!(mistake.1, HostMistake::BadName { .. } | HostMistake::BadNumber { .. });
    match item.find(',') {
        Some(comma) if unread => (at + comma, HostMistake::Comma),
        Some(_) | None => mistake,
    }
}

/// The values of a line's keys.
struct Keys {
    slots: Slots,
    max_slots: Option<u32>,
    user: Option<String>,
    port: Option<u16>,
}

impl Keys {
    fn set(&mut self, key: Key, value: &str) -> Result<(), HostMistake> {
        let again = match key {
            Key::Slots => {
                let before = std::mem::replace(&mut self.slots, Slots::Count(number(SLOTS, value)?));
                before != Slots::Unsaid
            }
            Key::MaxSlots => self.max_slots.replace(number("max_slots", value)?).is_some(),
            Key::User if !fits_user(value) => return Err(HostMistake::BadUser { user: value.to_owned() }),
            Key::User => self.user.replace(value.to_owned()).is_some(),
            Key::Port => {
                let port = value.parse().ok().filter(|port| *port > 0 && !value.starts_with('+'));
                self.port.replace(port.ok_or_else(|| HostMistake::BadPort { value: value.to_owned() })?).is_some()
            }
        };
        if again {
            return Err(HostMistake::Twice { key: key.name() });
        }
        if let (Slots::Count(slots), Some(max_slots)) = (self.slots, self.max_slots)
            && max_slots < slots
        {
            return Err(HostMistake::MaxBelowSlots { slots, max_slots });
        }
        Ok(())
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Key {
    Slots,
    MaxSlots,
    User,
    Port,
}

impl Key {
    fn name(self) -> &'static str {
        match self {
            Key::Slots => SLOTS,
            Key::MaxSlots => "max_slots",
            Key::User => "user",
            Key::Port => "port",
        }
    }
}

fn key_of(word: &str) -> Result<Key, HostMistake> {
    let elsewhere = |what| Err(HostMistake::Elsewhere { what });
    match word.to_ascii_lowercase().replace('-', "_").as_str() {
        "slots" | "slot" | "cpu" | "cpus" | "count" => Ok(Key::Slots),
        "max_slots" | "slots_max" | "max_slot" | "slot_max" | "max_cpu" | "max_cpus" | "cpu_max" | "cpus_max"
        | "max_count" | "count_max" => Ok(Key::MaxSlots),
        "user" | "username" | "user_name" => Ok(Key::User),
        "port" => Ok(Key::Port),
        "slots+" | "slots_" => elsewhere("a node's own slots are set when its daemon starts: rsd start --slots N"),
        "binding" => elsewhere("binding is not per host: use rsctl run --bind-to core"),
        "boards" | "sockets" | "sockets_per_board" | "cores" | "cores_per_socket" => {
            elsewhere("each node reports its own hardware: remove this key")
        }
        _ => Err(HostMistake::UnknownKey { key: word.to_owned() }),
    }
}

/// The words of a line, each with its byte offset.
pub(crate) struct Words<'a> {
    pub(crate) line: &'a str,
    pub(crate) at: usize,
}

impl<'a> Words<'a> {
    /// Returns the next word, up to a blank or one of `ends`.
    pub(crate) fn next_until(&mut self, ends: &[char]) -> Option<(usize, &'a str)> {
        self.skip_blanks();
        let rest = &self.line[self.at..];
        let length = rest.find(|c: char| c.is_whitespace() || ends.contains(&c)).unwrap_or(rest.len());
        let start = self.at;
        self.at += length;
        (!rest.is_empty()).then(|| (start, &rest[..length]))
    }

    /// Consumes the next character if it is `c`, and returns whether it was.
    pub(crate) fn skip(&mut self, c: char) -> bool {
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
mod tests;
