//! The protocol by which a running process joins a named group through its node's daemon: lines of text over the unix socket
//! [`SOCKET`] in the daemon's state directory, so that C, Python and shells need no gRPC. Sans-IO, client and server; [`client`]
//! uses it over a socket.
//!
//! ```text
//! > join v=1 group=actors size=16 [min=8 max=16] [rank=3] [timeout_ms=60000] [token=T] [pid=P] [export=torch,nccl]; or
//! > join v=1 [token=T] [pid=P] [namespace=singleton.a.411]                   a group of one, without a name
//! < wait token=T have=3 want=16 epoch=1                                  any number of times
//! < go rank=3 size=16 local_rank=1 local_size=8 epoch=1 pmi_port=127.0.0.1:40123 pmi_id=1234567 job=7
//!      namespace=rsd-…-7 node=a nodes=2 node_index=0 address=10.0.0.1 [env=RANK=3%0AMASTER_PORT=…]    one line; or
//! < error code=243 text=group%20actors%20…
//! ```
//!
//! A message is a verb and `key=value` pairs, separated by blanks and ended by a line feed. Values are percent-encoded UTF-8
//! without blanks. Keys may come in any order; unknown keys are ignored. The daemon closes the connection after `go` or `error`.
//! A client that closes it earlier leaves the group. A client whose connection breaks earlier, because its daemon was
//! restarted, may reconnect with its last `token` to keep its place.
//!
//! A process whose PMIx library runs already has given itself a namespace. It asks for a group of one under this name, and gets the address
//! of a server to which its library can connect.
//!
//! `rsd-core` decides what a join means and which processes may join.

pub mod client;

use std::fmt::Write as _;

use crate::pmi::environment::Place;

/// The socket's name in the state directory.
pub const SOCKET: &str = "join.sock";
/// The version of this protocol: `v`.
pub const VERSION: u32 = 1;
/// The longest line that either side accepts.
pub const LINE_BYTES_MAX: usize = 16 << 10;
/// The length at which an error's text is cut, so that its line fits.
const TEXT_BYTES_MAX: usize = 4 << 10;
/// The longest name of a group.
pub const NAME_BYTES_MAX: usize = 64;
/// The longest token.
const TOKEN_BYTES_MAX: usize = 64;
/// What the names begin with that PMIx clients without a server give themselves: `singleton.HOST.PID`.
const SELF_NAMED: &str = "singleton.";
/// The longest name of a PMIx client.
const NAMESPACE_BYTES_MAX: usize = 255;

/// The hint for a process that has ended after another process joined for it.
pub const BY_OTHER: &str = "rsctl group env joins for the shell that runs it; in a pipe, that is a subshell, which ends with \
                            the pipe; use --pid to name another process";

/// A client's request.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Join {
    /// The group's name, see [`check_name`]; `None`: a group of one without a name, which no other process can join or list.
    pub group: Option<String>,
    /// The number of members; absent: the number with which the group was created.
    pub size: Option<u32>,
    /// Instead of `size`: the minimum number of members.
    pub min: Option<u32>,
    /// With `min`: the maximum number of members.
    pub max: Option<u32>,
    /// The requested rank.
    pub rank: Option<u32>,
    /// The timeout; absent: the group's default.
    pub timeout_ms: Option<u64>,
    /// The token of its earlier join, if the client reconnects.
    pub token: Option<String>,
    /// The process that becomes the member, if it is not the client.
    pub pid: Option<u32>,
    /// The frameworks whose variables it requests, see [`crate::frameworks`]. With these, it need not be an MPI program.
    pub export: Option<String>,
    /// The name under which the process already runs as a PMIx client without a server, see [`check_namespace`]. Only without a group.
    pub namespace: Option<String>,
}

/// The daemon's message.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Event {
    /// Other members are missing.
    Wait(Wait),
    /// All members have joined.
    Go(Box<Go>),
    /// A refusal: rsctl's exit code and a message.
    Error {
        /// See `transport::exit`.
        code: u8,
        /// The message, which names what to do.
        text: String,
    },
}

/// A waiting member's place in the lobby.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Wait {
    /// Identifies the place, for a client that reconnects.
    pub token: String,
    /// The number of members that have joined.
    pub have: u32,
    /// The number of members that are needed.
    pub want: u32,
    /// The number of the epoch that is forming, from 1.
    pub epoch: u64,
}

/// A member's place in an epoch that begins.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Go {
    /// Its rank.
    pub rank: u32,
    /// The number of members.
    pub size: u32,
    /// Its local rank.
    pub local_rank: u32,
    /// The number of members on its node.
    pub local_size: u32,
    /// The epoch's number, from 1.
    pub epoch: u64,
    /// `host:port` of its PMI server, for `PMI_PORT`.
    pub pmi_port: String,
    /// Its id at that server, for `PMI_ID`: positive, 31 bits.
    pub pmi_id: u32,
    /// The epoch's job.
    pub job: u64,
    /// The job's namespace.
    pub namespace: String,
    /// The name of its node.
    pub node: String,
    /// The number of nodes.
    pub nodes: u32,
    /// The index of its node.
    pub node_index: u32,
    /// The address on which it listens for members on other nodes; empty: unknown.
    pub address: String,
    /// The variables that it requested with `export`: `NAME=VALUE`, one per line.
    pub env: String,
}

impl Go {
    /// Returns the environment variables that a launched rank would have.
    pub fn place(&self) -> Place<'_> {
        Place {
            job: self.job,
            rank: self.rank,
            size: self.size,
            local_rank: self.local_rank,
            local_size: self.local_size,
            node_index: self.node_index,
            node_name: &self.node,
            namespace: &self.namespace,
            node_address: &self.address,
        }
    }
}

/// Why a line is invalid. The text follows "failed to read the line: ".
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum JoinError {
    /// Too long.
    #[error("it is longer than {LINE_BYTES_MAX} bytes")]
    TooLong,
    /// Not UTF-8.
    #[error("it is not UTF-8")]
    NotText,
    /// An unknown first word.
    #[error("it begins with {0:?}, expected {1}")]
    Verb(String, &'static str),
    /// Another version.
    #[error("unsupported version v={0}, this daemon has v={VERSION}: use programs of one release")]
    Version(String),
    /// Not `key=value`.
    #[error("{0:?} is not key=value")]
    Pair(String),
    /// A broken percent code.
    #[error("the value of {0} is not percent-encoded UTF-8")]
    Encoding(&'static str),
    /// A missing key.
    #[error("{0}= is missing")]
    Missing(&'static str),
    /// An invalid value.
    #[error("{key}={value:?}: {wanted}")]
    Value {
        /// The key.
        key: &'static str,
        /// The value as sent.
        value: String,
        /// The accepted values.
        wanted: &'static str,
    },
}

impl JoinError {
    /// Returns whether the two sides have different releases.
    pub fn is_version(&self) -> bool {
        matches!(self, JoinError::Version(_))
    }
}

/// Checks a group's name: short, readable, and without characters that need quoting.
pub fn check_name(name: &str) -> Result<(), JoinError> {
    let plain = |byte: u8| byte.is_ascii_alphanumeric() || b"._-".contains(&byte);
    let starts_well = name.bytes().next().is_some_and(|first| first.is_ascii_alphanumeric());
    match starts_well && name.len() <= NAME_BYTES_MAX && name.bytes().all(plain) {
        true => Ok(()),
        false => Err(JoinError::Value {
            key: "group",
            value: name.chars().take(NAME_BYTES_MAX).collect(),
            wanted: "a group's name is 1 to 64 letters, digits, `.`, `_` and `-`, and begins with a letter or digit",
        }),
    }
}

/// Checks the name that a PMIx client without a server has given itself.
pub fn check_namespace(name: &str) -> Result<(), JoinError> {
    let plain = |byte: u8| byte.is_ascii_alphanumeric() || b"._-".contains(&byte);
    match is_self_named(name) && name.len() <= NAMESPACE_BYTES_MAX && name.bytes().all(plain) {
        true => Ok(()),
        false => Err(JoinError::Value {
            key: "namespace",
            value: excerpt(name),
            wanted: "only a PMIx client that runs without a server can be attached, which calls itself singleton.HOST.PID",
        }),
    }
}

/// Returns whether a namespace has the form of a name that a PMIx client without a server gives itself. Jobs' own begin differently.
pub fn is_self_named(namespace: &str) -> bool {
    namespace.len() > SELF_NAMED.len() && namespace.starts_with(SELF_NAMED)
}

/// Returns the host name by which a PMIx client without a server knows its machine.
pub fn self_named_host(namespace: &str) -> Option<&str> {
    let (host, _pid) = namespace.strip_prefix(SELF_NAMED)?.rsplit_once('.')?;
    (!host.is_empty()).then_some(host)
}

/// A message of one line.
pub trait Line: Sized {
    /// Decodes a line without its line feed.
    fn parse(line: &str) -> Result<Self, JoinError>;
    /// Encodes a line with its line feed.
    fn line(&self) -> String;
}

impl Line for Join {
    fn parse(line: &str) -> Result<Join, JoinError> {
        let (verb, pairs) = Pairs::split(line)?;
        if verb != "join" {
            return Err(JoinError::Verb(excerpt(verb), "`join`"));
        }
        let version = pairs.text("v")?.ok_or(JoinError::Missing("v"))?;
        if version.parse() != Ok(VERSION) {
            return Err(JoinError::Version(excerpt(&version)));
        }
        let group = pairs.text("group")?;
        match &group {
            Some(name) => check_name(name)?,
            None if ["size", "min", "max", "rank"].iter().any(|key| pairs.has(key)) => {
                return Err(JoinError::Missing("group"));
            }
            None => {}
        }
        let namespace = pairs.text("namespace")?;
        match &namespace {
            Some(_) if group.is_some() => {
                return Err(JoinError::Value {
                    key: "namespace",
                    value: excerpt(namespace.as_deref().unwrap_or_default()),
                    wanted: "a process that already has a name cannot become a member of a group",
                });
            }
            Some(name) => check_namespace(name)?,
            None => {}
        }
        let token = pairs.text("token")?.filter(|token| !token.is_empty());
        if let Some(token) = token.as_ref().filter(|token| token.len() > TOKEN_BYTES_MAX) {
            return Err(JoinError::Value {
                key: "token",
                value: excerpt(token),
                wanted: "it is at most 64 bytes long",
            });
        }
        Ok(Join {
            group,
            size: pairs.number("size")?,
            min: pairs.number("min")?,
            max: pairs.number("max")?,
            rank: pairs.number("rank")?,
            timeout_ms: pairs.number("timeout_ms")?,
            token,
            pid: pairs.number("pid")?,
            export: pairs.text("export")?,
            namespace,
        })
    }

    fn line(&self) -> String {
        let mut line = Writer::new("join");
        line.put("v", VERSION);
        if let Some(group) = &self.group {
            line.text("group", group);
        }
        for (key, value) in [("size", self.size), ("min", self.min), ("max", self.max), ("rank", self.rank)] {
            line.maybe(key, value);
        }
        line.maybe("timeout_ms", self.timeout_ms);
        if let Some(token) = &self.token {
            line.text("token", token);
        }
        line.maybe("pid", self.pid);
        if let Some(export) = &self.export {
            line.text("export", export);
        }
        if let Some(namespace) = &self.namespace {
            line.text("namespace", namespace);
        }
        line.end()
    }
}

impl Line for Event {
    fn parse(line: &str) -> Result<Event, JoinError> {
        let (verb, pairs) = Pairs::split(line)?;
        let text = |key| pairs.text(key)?.ok_or(JoinError::Missing(key));
        match verb {
            "wait" => Ok(Event::Wait(Wait {
                token: text("token")?,
                have: pairs.needed("have")?,
                want: pairs.needed("want")?,
                epoch: pairs.needed("epoch")?,
            })),
            "go" => Ok(Event::Go(Box::new(Go {
                rank: pairs.needed("rank")?,
                size: pairs.needed("size")?,
                local_rank: pairs.needed("local_rank")?,
                local_size: pairs.needed("local_size")?,
                epoch: pairs.needed("epoch")?,
                pmi_port: text("pmi_port")?,
                pmi_id: pairs.needed("pmi_id")?,
                job: pairs.needed("job")?,
                namespace: text("namespace")?,
                node: text("node")?,
                nodes: pairs.needed("nodes")?,
                node_index: pairs.number("node_index")?.unwrap_or(0),
                address: pairs.text("address")?.unwrap_or_default(),
                env: pairs.text("env")?.unwrap_or_default(),
            }))),
            "error" => Ok(Event::Error { code: pairs.needed("code")?, text: text("text")? }),
            other => Err(JoinError::Verb(excerpt(other), "`wait`, `go` or `error`")),
        }
    }

    fn line(&self) -> String {
        match self {
            Event::Wait(Wait { token, have, want, epoch }) => {
                let mut line = Writer::new("wait");
                line.text("token", token);
                line.put("have", have);
                line.put("want", want);
                line.put("epoch", epoch);
                line.end()
            }
            Event::Go(go) => {
                let mut line = Writer::new("go");
                let numbers = [
                    ("rank", go.rank),
                    ("size", go.size),
                    ("local_rank", go.local_rank),
                    ("local_size", go.local_size),
                ];
                numbers.into_iter().for_each(|(key, value)| line.put(key, value));
                line.put("epoch", go.epoch);
                line.text("pmi_port", &go.pmi_port);
                line.put("pmi_id", go.pmi_id);
                line.put("job", go.job);
                line.text("namespace", &go.namespace);
                line.text("node", &go.node);
                line.put("nodes", go.nodes);
                line.put("node_index", go.node_index);
                line.text("address", &go.address);
                if !go.env.is_empty() {
                    line.text("env", &go.env);
                }
                line.end()
            }
            Event::Error { code, text } => {
                let mut line = Writer::new("error");
                line.put("code", code);
                let mut end = text.len().min(TEXT_BYTES_MAX);
                while !text.is_char_boundary(end) {
                    end -= 1;
                }
                line.text("text", &text[..end]);
                line.end()
            }
        }
    }
}

/// Decodes messages from bytes in pieces of any size. After an error it decodes and keeps nothing more.
#[derive(Debug, Default)]
pub struct Decoder {
    bytes: Vec<u8>,
    closed: bool,
}

impl Decoder {
    /// Adds received bytes.
    pub fn feed(&mut self, bytes: &[u8]) {
        if !self.closed {
            self.bytes.extend_from_slice(bytes);
        }
    }

    /// Returns the next message; `None` until more bytes are fed.
    pub fn next_line<T: Line>(&mut self) -> Option<Result<T, JoinError>> {
        let end = self.bytes.iter().take(LINE_BYTES_MAX + 1).position(|byte| *byte == b'\n');
        let parsed = match end {
            Some(end) => {
                let line: Vec<u8> = self.bytes.drain(..=end).take(end).collect();
                String::from_utf8(line).map_err(|_| JoinError::NotText).and_then(|line| T::parse(&line))
            }
            None if self.bytes.len() > LINE_BYTES_MAX => Err(JoinError::TooLong),
            None => return None,
        };
        if parsed.is_err() {
            (self.closed, self.bytes) = (true, Vec::new());
        }
        Some(parsed)
    }
}

/// The pairs of a line, still encoded.
struct Pairs<'a>(Vec<(&'a str, &'a str)>);

impl<'a> Pairs<'a> {
    fn split(line: &'a str) -> Result<(&'a str, Pairs<'a>), JoinError> {
        let mut words = line.split([' ', '\r']).filter(|word| !word.is_empty());
        let verb = words.next().unwrap_or_default();
        let pairs = words.map(|word| word.split_once('=').ok_or_else(|| JoinError::Pair(excerpt(word))));
        Ok((verb, Pairs(pairs.collect::<Result<_, _>>()?)))
    }

    fn has(&self, key: &str) -> bool {
        self.0.iter().any(|(name, _)| *name == key)
    }

    fn text(&self, key: &'static str) -> Result<Option<String>, JoinError> {
        let found = self.0.iter().find(|(name, _)| *name == key);
        found.map(|(_, value)| decode(value).ok_or(JoinError::Encoding(key))).transpose()
    }

    fn number<T: std::str::FromStr>(&self, key: &'static str) -> Result<Option<T>, JoinError> {
        let wrong = |value: &str| JoinError::Value { key, value: excerpt(value), wanted: "expected a number" };
        self.text(key)?.map(|value| value.parse().map_err(|_| wrong(&value))).transpose()
    }

    fn needed<T: std::str::FromStr>(&self, key: &'static str) -> Result<T, JoinError> {
        self.number(key)?.ok_or(JoinError::Missing(key))
    }
}

struct Writer(String);

impl Writer {
    fn new(verb: &str) -> Writer {
        Writer(verb.to_owned())
    }

    fn put(&mut self, key: &str, value: impl std::fmt::Display) {
        // Writing to a string cannot fail.
        let _ = write!(self.0, " {key}={value}");
    }

    fn maybe(&mut self, key: &str, value: Option<impl std::fmt::Display>) {
        if let Some(value) = value {
            self.put(key, value);
        }
    }

    fn text(&mut self, key: &str, value: &str) {
        self.put(key, "");
        for byte in value.bytes() {
            match byte {
                b'a'..=b'z' | b'A'..=b'Z' | b'0'..=b'9' => self.0.push(char::from(byte)),
                b'-' | b'.' | b'_' | b'~' | b':' | b'/' | b',' | b'@' => self.0.push(char::from(byte)),
                other => {
                    let _ = write!(self.0, "%{other:02X}");
                }
            }
        }
    }

    fn end(mut self) -> String {
        self.0.push('\n');
        self.0
    }
}

fn decode(value: &str) -> Option<String> {
    let mut bytes = value.bytes();
    let mut decoded = Vec::with_capacity(value.len());
    while let Some(byte) = bytes.next() {
        decoded.push(match byte {
            b'%' => {
                let high = char::from(bytes.next()?).to_digit(16)?;
                let low = char::from(bytes.next()?).to_digit(16)?;
                u8::try_from(high * 16 + low).ok()?
            }
            plain => plain,
        });
    }
    String::from_utf8(decoded).ok()
}

/// Returns the part of a peer's word that an error repeats.
fn excerpt(word: &str) -> String {
    word.chars().take(40).collect()
}

#[cfg(test)]
mod tests;
