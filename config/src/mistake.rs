//! What can be wrong with a host entry, in a host file or in `--host`.

use thiserror::Error;

/// The most entries of a host list.
pub const HOSTS_MAX: usize = 65_536;

/// What can be wrong with a host entry.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[expect(missing_docs, reason = "the fields are what the user wrote")]
pub enum HostMistake {
    /// An empty list or entry.
    #[error("no host given")]
    NoHosts,
    /// An invalid host name.
    #[error("invalid host name `{name}`")]
    BadName { name: String },
    /// Several hosts on one line.
    #[error("a host file has one host per line; write a range as gpu[01-16,20]")]
    Comma,
    /// An invalid account name.
    #[error("invalid user name `{user}`")]
    BadUser { user: String },
    /// An IPv6 address without brackets.
    #[error("an IPv6 address needs brackets: [{address}]")]
    BareAddress { address: String },
    /// An invalid IPv6 address in brackets.
    #[error("invalid IPv6 address `{address}`")]
    BadAddress { address: String },
    /// `[` without `]`.
    #[error("unclosed bracket")]
    OpenBracket,
    /// `]` without `[`.
    #[error("`]` without `[`")]
    StrayBracket,
    /// Neither `20` nor `1-16`.
    #[error("`{text}` is not a number or a range such as 1-16")]
    BadRange { text: String },
    /// `1-016`.
    #[error("`{text}` has ends of different widths: write both with the same number of digits")]
    Widths { text: String },
    /// `16-1`.
    #[error("the range {first}-{last} is reversed: write {last}-{first}")]
    Backwards { first: Box<str>, last: Box<str> },
    /// More than [`HOSTS_MAX`] hosts.
    #[error("more than {HOSTS_MAX} hosts")]
    TooMany,
    /// Neither `+nK` nor `+e`.
    #[error(
        "invalid relative node `{word}`: use +nK (node K, from 0), +idK (the node with id K), +e (every idle node), +e:N (N idle nodes) or +KEY=VALUE (every node with this label)"
    )]
    BadRelative { word: String },
    /// `+n[0-3]`.
    #[error("a relative node cannot be a range: list each, +n0,+n1")]
    RelativeRange,
    /// `^host:2`, `^host slots=2`.
    #[error("`^` excludes a host and takes a name only")]
    ExcludedWith,
    /// `host:+2`.
    #[error("`{value}` would change the node's own slots: set them when its daemon starts, with rsd start --slots N")]
    Adjusted { value: String },
    /// Another launcher's key that has no meaning for rsd.
    #[error("{what}")]
    Elsewhere { what: &'static str },
    /// An unknown key.
    #[error("unknown host-file key `{key}`")]
    UnknownKey { key: String },
    /// A key without a value.
    #[error("`{word}` needs a value: {word}=N")]
    NoValue { word: String },
    /// Not a number, or out of range.
    #[error("{key} takes a number from 1 up, not `{value}`")]
    BadNumber { key: &'static str, value: String },
    /// An invalid port.
    #[error("port takes a number from 1 to 65535, not `{value}`")]
    BadPort { value: String },
    /// A key that occurs twice.
    #[error("{key} is given twice")]
    Twice { key: &'static str },
    /// `max_slots` below `slots`.
    #[error("max_slots={max_slots} is less than slots={slots}")]
    MaxBelowSlots { slots: u32, max_slots: u32 },
    /// A host on several lines whose slots cannot be added up.
    #[error("`{name}` is already on line {line}, and slots are given: list it on one line, with all its slots")]
    Repeated { name: String, line: usize },
    /// A `/*` without `*/`.
    #[error("unterminated comment")]
    OpenComment,
    /// A host of `--host` that the host file does not list.
    #[error("`{name}` is not in {file}")]
    NotInFile { name: Box<str>, file: Box<str> },
    /// A `+nK` of `--host` beyond the last host of the host file.
    #[error("no host +n{at}: {file} has {hosts} host{}, from +n0", if *hosts == 1 { "" } else { "s" })]
    BeyondFile { at: u32, hosts: usize, file: String },
    /// `--host` beside a host file with relative nodes, which only the daemon can resolve.
    #[error("--host cannot choose from {file}, which has relative nodes (+n, +e): omit --host")]
    RelativeInFile { file: String },
    /// `+e` in `--host` beside a host file: only the head knows which nodes are idle.
    #[error("only names and +nK choose from a host file: write the entry into the file, or omit --hostfile")]
    IdleOfFile,
}

/// A byte offset in the line, and what is wrong there.
pub(crate) type Mistake = (usize, HostMistake);
