//! One entry of a host list, and its grammar, which host files and `--host` share.
//!
//! ```text
//! item     = "^" names | "+n" K [":" N] | "+id" K [":" N] | "+e" [":" N] | "+" KEY "=" VALUE [":" N] | [user "@"] names [":" (N | "*" | "auto")]
//! names    = a name | a name with brackets, "gpu[01-16,20]" | an IPv6 address in brackets, "[fe80::1]"
//! ```
//!
//! `+n`, `+e` and `^` are Open MPI's, `+id` and labels are rsd's; `HOST:N` is also Hydra's. `rsd-core`, which knows the nodes, resolves names and numbers.

use std::fmt;
use std::net::Ipv6Addr;

use crate::ranges;

pub(crate) use crate::mistake::Mistake;
pub use crate::mistake::{HOSTS_MAX, HostMistake};

/// One entry of a host list, in the user's order. A host may occur more than once.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct HostEntry {
    /// Which host.
    pub host: HostRef,
    /// How many of its slots to use.
    pub slots: Slots,
    /// The most ranks on it, even with oversubscription.
    pub max_slots: Option<u32>,
    /// The account to start a daemon with.
    pub user: Option<String>,
    /// Its ssh port, for starting a daemon.
    pub port: Option<u16>,
    /// Where it was written, for messages: "hostfile ./hosts:1", "--host".
    pub source: String,
}

/// The host that an entry names. Its text form is what a job carries.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum HostRef {
    /// By name or address.
    Named(String),
    /// `+n2`: the node at this index among all nodes, from 0.
    Nth(u32),
    /// `+id2`: the node with this id.
    Id(u32),
    /// `+gpu=h200`, `+gpu=h200:2`: nodes with this label: all, or this many.
    #[expect(missing_docs, reason = "described above")]
    Labelled { label: String, count: Option<u32> },
    /// `+e`, `+e:2`: nodes that run no job: all, or this many.
    Idle(Option<u32>),
    /// `^name`: excludes a host. A list that only excludes hosts means all others.
    Excluded(String),
}

impl fmt::Display for HostRef {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            HostRef::Named(name) => f.write_str(name),
            HostRef::Nth(at) => write!(f, "+n{at}"),
            HostRef::Id(id) => write!(f, "+id{id}"),
            HostRef::Labelled { label, count: None } => write!(f, "+{label}"),
            HostRef::Labelled { label, count: Some(count) } => write!(f, "+{label}:{count}"),
            HostRef::Idle(None) => f.write_str("+e"),
            HostRef::Idle(Some(count)) => write!(f, "+e:{count}"),
            HostRef::Excluded(name) => write!(f, "^{name}"),
        }
    }
}

/// How many slots of a host to use.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum Slots {
    /// No number: all slots if the host is listed once, else one slot for each mention.
    #[default]
    Unsaid,
    /// `:*`, `:auto`: all slots.
    Whole,
    /// This many slots, at least 1.
    Count(u32),
}

pub(crate) const SLOTS: &str = "slots";

/// Parses the item at byte `at` of its line into entries, whose source is still empty.
pub(crate) fn parse(at: usize, item: &str) -> Result<Vec<HostEntry>, Mistake> {
    if let Some(names) = item.strip_prefix('^') {
        return excluded(at + 1, names);
    }
    if item.starts_with('+') {
        return relative(at, item).map(|entry| vec![entry]);
    }
    let (user, names) = match item.split_once('@') {
        Some((user, names)) if fits_user(user) => (Some(user.to_owned()), names),
        Some((user, _)) => return Err((at, HostMistake::BadUser { user: user.to_owned() })),
        None => (None, item),
    };
    let at = at + item.len() - names.len();
    let (names, count) = split_count(at, names)?;
    let slots = match count {
        Some((at, count)) => slots(count).map_err(|mistake| (at, mistake))?,
        None => Slots::Unsaid,
    };
    let entry = |name| HostEntry { slots, user: user.clone(), ..HostEntry::of(HostRef::Named(name)) };
    Ok(names.into_iter().map(entry).collect())
}

impl HostEntry {
    /// An entry with nothing but the host.
    fn of(host: HostRef) -> HostEntry {
        HostEntry { host, slots: Slots::Unsaid, max_slots: None, user: None, port: None, source: String::new() }
    }
}

fn excluded(at: usize, names: &str) -> Result<Vec<HostEntry>, Mistake> {
    if let Some(offset) = names.find('@') {
        return Err((at + offset, HostMistake::ExcludedWith));
    }
    match split_count(at, names)? {
        (_, Some((at, _))) => Err((at - 1, HostMistake::ExcludedWith)),
        (names, None) => Ok(names.into_iter().map(|name| HostEntry::of(HostRef::Excluded(name))).collect()),
    }
}

/// `+n2`, `+n2:4`, `+id7`, `+e`, `+e:3`, `+gpu=h200`, `+gpu=h200:2`.
fn relative(at: usize, item: &str) -> Result<HostEntry, Mistake> {
    let bad = || (at, HostMistake::BadRelative { word: item.to_owned() });
    if let Some(offset) = item.find('[') {
        return Err((at + offset, HostMistake::RelativeRange));
    }
    let (word, count) = item.split_once(':').map_or((item, None), |(word, count)| (word, Some(count)));
    let count_at = at + word.len() + 1;
    let lower = word.to_ascii_lowercase();
    if lower == "+e" {
        let count = count.map(|count| number("+e", count)).transpose().map_err(|mistake| (count_at, mistake))?;
        return Ok(HostEntry::of(HostRef::Idle(count)));
    }
    if let Some((key, value)) = word[1..].split_once('=') {
        let count = count.map(|count| number("+", count)).transpose().map_err(|mistake| (count_at, mistake))?;
        let fits = |word: &str| !word.is_empty() && word.chars().all(fits_label);
        return match fits(key) && fits(value) {
            true => Ok(HostEntry::of(HostRef::Labelled { label: word[1..].to_owned(), count })),
            false => Err(bad()),
        };
    }
    if let Some(id) = lower.strip_prefix("+id") {
        let id = Some(id).filter(|id| id.bytes().all(|byte| byte.is_ascii_digit())).and_then(|id| id.parse().ok());
        let slots = count.map_or(Ok(Slots::Unsaid), slots).map_err(|mistake| (count_at, mistake))?;
        return Ok(HostEntry { slots, ..HostEntry::of(HostRef::Id(id.ok_or_else(bad)?)) });
    }
    let digits = lower.strip_prefix("+n").filter(|rest| rest.bytes().all(|byte| byte.is_ascii_digit()));
    let place = digits.and_then(|digits| digits.parse().ok()).ok_or_else(bad)?;
    let slots = count.map_or(Ok(Slots::Unsaid), slots).map_err(|mistake| (count_at, mistake))?;
    Ok(HostEntry { slots, ..HostEntry::of(HostRef::Nth(place)) })
}

type Count<'a> = Option<(usize, &'a str)>;

/// Splits `names:count` into the names and the count with its byte offset.
fn split_count(at: usize, item: &str) -> Result<(Vec<String>, Count<'_>), Mistake> {
    if let Some((address, rest)) = item.strip_prefix('[').and_then(|rest| rest.split_once(']'))
        && address.contains(':')
    {
        let plain = address.split('%').next().unwrap_or_default();
        let zone = address.len() - plain.len() != 1;
        if plain.parse::<Ipv6Addr>().is_err() || !zone {
            return Err((at + 1, HostMistake::BadAddress { address: address.to_owned() }));
        }
        let behind = at + address.len() + 2;
        return match rest.strip_prefix(':') {
            Some(count) => Ok((vec![address.to_owned()], Some((behind + 1, count)))),
            None if rest.is_empty() => Ok((vec![address.to_owned()], None)),
            None => Err((at, HostMistake::BadName { name: item.to_owned() })),
        };
    }
    if item.matches(':').count() > 1 && item.parse::<Ipv6Addr>().is_ok() {
        return Err((at, HostMistake::BareAddress { address: item.to_owned() }));
    }
    let (pattern, count) = match item.split_once(':') {
        Some((pattern, count)) => (pattern, Some((at + pattern.len() + 1, count))),
        None => (item, None),
    };
    let names = ranges::expand(at, pattern)?;
    match names.iter().find(|name| !fits(name)) {
        Some(name) => Err((at, HostMistake::BadName { name: name.clone() })),
        None => Ok((names, count)),
    }
}

fn fits_label(c: char) -> bool {
    c.is_ascii_alphanumeric() || matches!(c, '.' | '-' | '_' | '/')
}

fn fits(name: &str) -> bool {
    let fits = |c: char| c.is_ascii_alphanumeric() || matches!(c, '.' | '-' | '_');
    !name.is_empty() && name.len() <= 255 && !name.starts_with('-') && name.chars().all(fits)
}

pub(crate) fn fits_user(user: &str) -> bool {
    let fits = |c: char| c.is_alphanumeric() || matches!(c, '.' | '-' | '_' | '\\' | '$');
    !user.is_empty() && user.len() <= 255 && !user.starts_with('-') && user.chars().all(fits)
}

/// `4`, `*`, `auto`.
fn slots(text: &str) -> Result<Slots, HostMistake> {
    if text == "*" || text.eq_ignore_ascii_case("auto") {
        return Ok(Slots::Whole);
    }
    if text.strip_prefix(['+', '-']).is_some_and(|rest| rest.parse::<u32>().is_ok()) {
        return Err(HostMistake::Adjusted { value: text.to_owned() });
    }
    number(SLOTS, text).map(Slots::Count)
}

/// Parses a number from 1 up. `u32::MAX` is invalid, because placement uses it for "all".
pub(crate) fn number(key: &'static str, value: &str) -> Result<u32, HostMistake> {
    let digits = value.bytes().all(|byte| byte.is_ascii_digit());
    let number = value.parse().ok().filter(|number| digits && (1..u32::MAX).contains(number));
    number.ok_or_else(|| HostMistake::BadNumber { key, value: value.to_owned() })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nodes_are_named_by_id_and_by_label() {
        let parsed = |item: &str| parse(0, item).map(|entries| (entries[0].host.to_string(), entries[0].slots));
        for item in ["+id3", "+gpu=h200", "+gpu=h200:2", "+example.org/zone=a-1"] {
            assert_eq!(parsed(item), Ok((item.to_owned(), Slots::Unsaid)), "{item}");
        }
        assert_eq!(parsed("+id3:4"), Ok(("+id3".to_owned(), Slots::Count(4))));
        for wrong in ["+id", "+idx", "+=a", "+gpu=", "+gpu=a=b", "+gpu=h200:0", "+gpu=h200:x", "+gpu"] {
            assert!(parsed(wrong).is_err(), "{wrong}");
        }
    }
}
