//! One entry of a host list, and its grammar, which host files and `--host` share.
//!
//! ```text
//! item     = "^" names | "+n" K [":" N] | "+e" [":" N] | [user "@"] names [":" (N | "*" | "auto")]
//! names    = a name | a name with brackets, "gpu[01-16,20]" | an IPv6 address in brackets, "[fe80::1]"
//! ```
//!
//! `+n`, `+e` and `^` are Open MPI's, `HOST:N` is Hydra's as well. Which node a name or a number means is decided where the nodes
//! are known.

use std::fmt;
use std::net::Ipv6Addr;

use thiserror::Error;

use crate::ranges;

/// The most entries of a host list.
pub const HOSTS_MAX: usize = 65_536;

/// One entry of a host list, in the user's order; the same host may come again.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct HostEntry {
    /// Which host.
    pub host: HostRef,
    /// Slots to use there.
    pub slots: Slots,
    /// The most ranks there, also when oversubscribing.
    pub max_slots: Option<u32>,
    /// Whose account there, for starting daemons.
    pub user: Option<String>,
    /// Where its ssh listens, for starting daemons.
    pub port: Option<u16>,
    /// Where it was written, for messages: "hostfile ./hosts:1", "--host".
    pub source: String,
}

/// Which host an entry is about. Its text is what a job carries.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum HostRef {
    /// By name or address.
    Named(String),
    /// `+n2`: the node at this place among all, from 0.
    Nth(u32),
    /// `+e`, `+e:2`: nodes on which no job runs, as many or all.
    Idle(Option<u32>),
    /// `^name`: not this one. Where there are only such entries, all others are meant.
    Excluded(String),
}

impl fmt::Display for HostRef {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            HostRef::Named(name) => f.write_str(name),
            HostRef::Nth(at) => write!(f, "+n{at}"),
            HostRef::Idle(None) => f.write_str("+e"),
            HostRef::Idle(Some(count)) => write!(f, "+e:{count}"),
            HostRef::Excluded(name) => write!(f, "^{name}"),
        }
    }
}

/// How many slots of a host.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum Slots {
    /// Nothing is said: all when the host is mentioned once, one for each mention otherwise.
    #[default]
    Unsaid,
    /// `:*`, `:auto`: all.
    Whole,
    /// As many, from 1 up.
    Count(u32),
}

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
    /// Several in one line.
    #[error("a host file has one host a line; a range of them is written gpu[01-16,20]")]
    Comma,
    /// Not an account's name.
    #[error("`{user}` is no user name")]
    BadUser { user: String },
    /// Colons that are an address's own.
    #[error("an IPv6 address stands in brackets: [{address}]")]
    BareAddress { address: String },
    /// In brackets, with colons, and yet no address.
    #[error("`{address}` is no IPv6 address")]
    BadAddress { address: String },
    /// `[` without `]`.
    #[error("this bracket is not closed")]
    OpenBracket,
    /// `]` without `[`.
    #[error("this bracket was not opened")]
    StrayBracket,
    /// Not `1-16`, `20`.
    #[error("`{text}` is no number and no range of numbers")]
    BadRange { text: String },
    /// `1-016`.
    #[error("`{text}` has ends of different widths: write both with as many digits")]
    Widths { text: String },
    /// `16-1`.
    #[error("the range {first}-{last} runs backwards: write {last}-{first}")]
    Backwards { first: Box<str>, last: Box<str> },
    /// Beyond [`HOSTS_MAX`].
    #[error("this makes more than {HOSTS_MAX} hosts")]
    TooMany,
    /// Neither `+nK` nor `+e`.
    #[error("`{word}` is no relative node: +nK is the K-th node from 0, +e every idle node, +e:N as many of them")]
    BadRelative { word: String },
    /// A range of relative nodes.
    #[error("relative nodes have no ranges: name each")]
    RelativeRange,
    /// `^host:2`.
    #[error("`^` removes a host: nothing goes with it")]
    ExcludedWith,
    /// `h:+2`.
    #[error("`{value}` changes a node's own slots, which its daemon is started with: rsd start --slots N")]
    Adjusted { value: String },
    /// Peers have it, here it is elsewhere.
    #[error("{what}")]
    Elsewhere { what: &'static str },
    /// No such key.
    #[error("`{key}` is no key of a host")]
    UnknownKey { key: String },
    /// A key alone.
    #[error("`{word}` needs a value: {word}=N")]
    NoValue { word: String },
    /// Not a number, or none that makes sense.
    #[error("{key} takes a number from 1 up, not `{value}`")]
    BadNumber { key: &'static str, value: String },
    /// Not a port.
    #[error("port takes a number from 1 to 65535, not `{value}`")]
    BadPort { value: String },
    /// The same twice.
    #[error("{key} is given twice")]
    Twice { key: &'static str },
    /// The limit is below what it limits.
    #[error("max_slots={max_slots} is less than slots={slots}")]
    MaxBelowSlots { slots: u32, max_slots: u32 },
    /// On several lines, not all of them bare.
    #[error("`{name}` is on line {line} as well, and slots are given: list it once, with all its slots")]
    Repeated { name: String, line: usize },
    /// A comment without an end.
    #[error("the comment that begins here does not end")]
    OpenComment,
    /// Of `--host`, not in the host file.
    #[error("`{name}` is not in {file}")]
    NotInFile { name: Box<str>, file: Box<str> },
    /// Of `--host`, beyond the hosts of the host file.
    #[error("there is no +n{at}: {file} has {hosts} hosts, from +n0")]
    BeyondFile { at: u32, hosts: usize, file: String },
    /// `--host` cannot choose among what only the daemon can tell.
    #[error("{file} has relative nodes (+n, +e), among which --host cannot choose: leave out --host")]
    RelativeInFile { file: String },
    /// `+e` in `--host` beside a host file.
    #[error("+e cannot choose from a host file: write it into the file, or leave out --hostfile")]
    IdleOfFile,
}

/// Byte in the line, and what is wrong there.
pub(crate) type Mistake = (usize, HostMistake);

pub(crate) const SLOTS: &str = "slots";

/// The entries that the item at byte `at` of its line stands for, without their source.
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
    /// Nothing said of it.
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

/// `+n2`, `+n2:4`, `+e`, `+e:3`.
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
    let digits = lower.strip_prefix("+n").filter(|rest| rest.bytes().all(|byte| byte.is_ascii_digit()));
    let place = digits.and_then(|digits| digits.parse().ok()).ok_or_else(bad)?;
    let slots = count.map_or(Ok(Slots::Unsaid), slots).map_err(|mistake| (count_at, mistake))?;
    Ok(HostEntry { slots, ..HostEntry::of(HostRef::Nth(place)) })
}

type Count<'a> = Option<(usize, &'a str)>;

/// The names of `names:count`, and the count with its place.
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

/// A number from 1 up; the largest of all stands for "all" elsewhere.
pub(crate) fn number(key: &'static str, value: &str) -> Result<u32, HostMistake> {
    let digits = value.bytes().all(|byte| byte.is_ascii_digit());
    let number = value.parse().ok().filter(|number| digits && (1..u32::MAX).contains(number));
    number.ok_or_else(|| HostMistake::BadNumber { key, value: value.to_owned() })
}
