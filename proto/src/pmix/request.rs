//! The requests of a client.
//!
//! A payload begins with the number of its command. Numbers are only added from version to version, so an unknown one is a request
//! that this server does not serve, not an error.

use bytes::Bytes;

use super::codec::{Codec, Item, Reader, Writer};
use super::error::WireError;
use super::names::Scope;
use super::value::{App, Info, KVal, Proc, Query, Text};

/// A request.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Request {
    /// Asks for the description of the client's job.
    JobInfo,
    /// Ends processes.
    Abort {
        /// The exit code.
        status: i32,
        /// Why.
        message: Text,
        /// Which; empty: the whole job.
        procs: Vec<Proc>,
    },
    /// Makes values that the client has put accessible to others.
    Commit(Vec<Commit>),
    /// Waits until all these processes have requested the same.
    Fence {
        /// The processes; empty: the client's job.
        procs: Vec<Proc>,
        /// Attributes.
        infos: Vec<Info>,
    },
    /// Asks for what a process has committed, or for the description of a job.
    Get {
        /// The process.
        proc: Proc,
        /// Attributes.
        infos: Vec<Info>,
        /// The key that the client needs; the answer may contain others too.
        key: Option<String>,
    },
    /// Ends the dialogue.
    Finalize,
    /// Publishes values.
    Publish {
        /// Attributes, and the values under keys that are not reserved.
        infos: Vec<Info>,
    },
    /// Looks values up.
    Lookup {
        /// Their keys.
        keys: Vec<String>,
        /// Attributes.
        infos: Vec<Info>,
    },
    /// Withdraws published values.
    Unpublish {
        /// Their keys; empty: all that the client has published.
        keys: Vec<String>,
        /// Attributes.
        infos: Vec<Info>,
    },
    /// Starts a job.
    Spawn {
        /// Attributes.
        infos: Vec<Info>,
        /// Its programs.
        apps: Vec<App>,
    },
    /// Makes jobs known to each other, when all these processes have requested the same.
    Connect {
        /// The processes.
        procs: Vec<Proc>,
        /// Attributes.
        infos: Vec<Info>,
    },
    /// Ends that relation.
    Disconnect {
        /// The processes.
        procs: Vec<Proc>,
        /// Attributes.
        infos: Vec<Info>,
    },
    /// Reports an event.
    Notify {
        /// Which event.
        status: i32,
        /// For whom: the number of a [`super::Range`].
        range: u8,
        /// Attributes.
        infos: Vec<Info>,
    },
    /// Asks for events.
    RegisterEvents {
        /// Which; empty: all.
        codes: Vec<i32>,
        /// Attributes.
        infos: Vec<Info>,
    },
    /// Asks for these events no longer. Not answered.
    DeregisterEvents {
        /// Which; empty: all.
        codes: Vec<i32>,
    },
    /// Asks questions.
    Query(Vec<Query>),
    /// Writes to a log.
    Log {
        /// What, under keys that say where.
        infos: Vec<Info>,
        /// Attributes.
        directives: Vec<Info>,
    },
    /// Controls processes.
    JobControl {
        /// Which; empty: the client's job.
        targets: Vec<Proc>,
        /// What to do.
        infos: Vec<Info>,
    },
    /// Founds a group of processes, when all of them have requested it.
    GroupConstruct {
        /// Its name.
        group: String,
        /// Its members.
        procs: Vec<Proc>,
        /// Attributes.
        infos: Vec<Info>,
    },
    /// Dissolves a group, when all members have requested it. What follows the name differs between versions and is not decoded.
    GroupDestruct {
        /// Its name.
        group: String,
    },
    /// Leaves a group.
    GroupLeave {
        /// Its name.
        group: String,
    },
    /// Asks which processes of a job run on a node.
    ResolvePeers {
        /// The node; none: all.
        node: Text,
        /// The job; empty: all.
        namespace: String,
    },
    /// Asks on which nodes a job runs.
    ResolveNodes {
        /// The job; empty: all.
        namespace: String,
    },
    /// A request with this number, which is not served.
    Unknown(u8),
}

/// What a client commits for one scope.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Commit {
    /// For whom.
    pub scope: Scope,
    /// The values.
    pub entries: Vec<Entry>,
}

/// A committed value. Only its key is decoded: its bytes are sent as they are to clients that use the same codec.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Entry {
    /// The key.
    pub key: String,
    /// The encoded [`KVal`], preceded by its count.
    pub bytes: Bytes,
}

impl Entry {
    /// Encodes a value.
    pub fn new(codec: Codec, kval: &KVal) -> Entry {
        let mut writer = Writer::new(codec);
        writer.one(kval);
        Entry { key: kval.key.clone(), bytes: writer.finish().into() }
    }

    /// Decodes the value, which was committed in this codec.
    pub fn decode(&self, codec: Codec) -> Result<KVal, WireError> {
        Reader::new(codec, &self.bytes).one()
    }

    /// Splits encoded values.
    pub fn split(codec: Codec, bytes: &Bytes) -> Result<Vec<Entry>, WireError> {
        let mut reader = Reader::new(codec, bytes);
        let mut entries = Vec::new();
        while !reader.is_empty() {
            let from = bytes.len() - reader.rest().len();
            let KVal { key, .. } = reader.one()?;
            entries.push(Entry { key, bytes: bytes.slice(from..bytes.len() - reader.rest().len()) });
        }
        Ok(entries)
    }
}

/// The type of a buffer without descriptions.
const PLAIN_BUFFER: u8 = 1;

/// The numbers of the commands.
mod number {
    pub(super) const JOB_INFO: u8 = 0;
    pub(super) const ABORT: u8 = 1;
    pub(super) const COMMIT: u8 = 2;
    pub(super) const FENCE: u8 = 3;
    pub(super) const GET: u8 = 4;
    pub(super) const FINALIZE: u8 = 5;
    pub(super) const PUBLISH: u8 = 6;
    pub(super) const LOOKUP: u8 = 7;
    pub(super) const UNPUBLISH: u8 = 8;
    pub(super) const SPAWN: u8 = 9;
    pub(super) const CONNECT: u8 = 10;
    pub(super) const DISCONNECT: u8 = 11;
    pub(in super::super) const NOTIFY: u8 = 12;
    pub(super) const REGISTER_EVENTS: u8 = 13;
    pub(super) const DEREGISTER_EVENTS: u8 = 14;
    pub(super) const QUERY: u8 = 15;
    pub(super) const LOG: u8 = 16;
    pub(super) const JOB_CONTROL: u8 = 18;
    pub(super) const GROUP_CONSTRUCT: u8 = 24;
    pub(super) const GROUP_LEAVE: u8 = 27;
    pub(super) const GROUP_DESTRUCT: u8 = 28;
    pub(super) const RESOLVE_PEERS: u8 = 37;
    pub(super) const RESOLVE_NODES: u8 = 38;
}

pub(super) use number::NOTIFY;

impl Request {
    /// Decodes a payload.
    pub fn decode(codec: Codec, payload: &Bytes) -> Result<Request, WireError> {
        let mut reader = Reader::new(codec, payload);
        let r = &mut reader;
        Ok(match r.one_byte()? {
            number::JOB_INFO => Request::JobInfo,
            number::ABORT => {
                let status = r.one::<Code>()?.0;
                Request::Abort { status, message: r.one_text()?, procs: r.sized_list()? }
            }
            number::COMMIT => Request::Commit(commits(codec, payload, r)?),
            number::FENCE => Request::Fence { procs: r.sized_list()?, infos: r.sized_list()? },
            number::GET => {
                let proc = Proc { namespace: r.one_namespace()?, rank: r.one_uint32()? };
                let infos = r.sized_list()?;
                let key = if r.is_empty() { None } else { Some(r.one_key()?).filter(|key| !key.is_empty()) };
                Request::Get { proc, infos, key }
            }
            number::FINALIZE => Request::Finalize,
            number::PUBLISH => {
                r.one_uint32()?; // the uid, as the client says
                Request::Publish { infos: r.sized_list()? }
            }
            number::LOOKUP => {
                let keys = keys(r)?;
                Request::Lookup { keys, infos: r.sized_list()? }
            }
            number::UNPUBLISH => {
                let keys = keys(r)?;
                Request::Unpublish { keys, infos: r.sized_list()? }
            }
            number::SPAWN => Request::Spawn { infos: r.sized_list()?, apps: r.sized_list()? },
            number::CONNECT => Request::Connect { procs: r.sized_list()?, infos: r.sized_list()? },
            number::DISCONNECT => Request::Disconnect { procs: r.sized_list()?, infos: r.sized_list()? },
            number::NOTIFY => {
                let status = r.one::<Code>()?.0;
                Request::Notify { status, range: r.one_byte()?, infos: r.sized_list()? }
            }
            number::REGISTER_EVENTS => {
                let codes = r.sized_list::<Code>()?.into_iter().map(|code| code.0).collect();
                Request::RegisterEvents { codes, infos: r.sized_list()? }
            }
            number::DEREGISTER_EVENTS => {
                let mut codes = Vec::new();
                while !r.is_empty() {
                    codes.push(r.one::<Code>()?.0);
                }
                Request::DeregisterEvents { codes }
            }
            number::QUERY => Request::Query(r.sized_list()?),
            number::LOG => {
                r.one::<Stamp>()?;
                Request::Log { infos: r.sized_list()?, directives: r.sized_list()? }
            }
            number::JOB_CONTROL => Request::JobControl { targets: r.sized_list()?, infos: r.sized_list()? },
            number::GROUP_CONSTRUCT => {
                Request::GroupConstruct { group: r.one_key()?, procs: r.sized_list()?, infos: r.sized_list()? }
            }
            number::GROUP_DESTRUCT => Request::GroupDestruct { group: r.one_key()? },
            number::GROUP_LEAVE => Request::GroupLeave { group: r.one_key()? },
            number::RESOLVE_PEERS => Request::ResolvePeers { node: r.one_text()?, namespace: r.one_namespace()? },
            number::RESOLVE_NODES => Request::ResolveNodes { namespace: r.one_namespace()? },
            other => Request::Unknown(other),
        })
    }

    /// Returns the payload: the client's half.
    pub fn encode(&self, codec: Codec) -> Vec<u8> {
        let mut w = Writer::new(codec);
        w.one_byte(self.number());
        match self {
            Request::JobInfo | Request::Finalize | Request::Unknown(_) => {}
            Request::Abort { status, message, procs } => {
                w.one(&Code(*status));
                w.one_text(message.as_deref());
                w.sized_list(procs);
            }
            Request::Commit(commits) => {
                for commit in commits {
                    w.one_byte(commit.scope.number());
                    w.count(1);
                    w.octet(PLAIN_BUFFER);
                    w.object(&commit.entries.iter().flat_map(|entry| &entry.bytes[..]).copied().collect::<Vec<_>>());
                }
            }
            Request::Fence { procs, infos }
            | Request::Connect { procs, infos }
            | Request::Disconnect { procs, infos } => {
                w.sized_list(procs);
                w.sized_list(infos);
            }
            Request::Get { proc, infos, key } => {
                w.one_text(Some(proc.namespace.as_bytes()));
                w.one_uint32(proc.rank);
                w.sized_list(infos);
                if let Some(key) = key {
                    w.one_text(Some(key.as_bytes()));
                }
            }
            Request::Publish { infos } => {
                w.one_uint32(0);
                w.sized_list(infos);
            }
            Request::Lookup { keys, infos } | Request::Unpublish { keys, infos } => {
                w.one_uint32(0);
                w.one_size(keys.len());
                keys.iter().for_each(|key| w.one_text(Some(key.as_bytes())));
                w.sized_list(infos);
            }
            Request::Spawn { infos, apps } => {
                w.sized_list(infos);
                w.sized_list(apps);
            }
            Request::Notify { status, range, infos } => {
                w.one(&Code(*status));
                w.one_byte(*range);
                w.sized_list(infos);
            }
            Request::RegisterEvents { codes, infos } => {
                w.sized_list(&codes.iter().copied().map(Code).collect::<Vec<_>>());
                w.sized_list(infos);
            }
            Request::DeregisterEvents { codes } => codes.iter().for_each(|code| w.one(&Code(*code))),
            Request::Query(queries) => w.sized_list(queries),
            Request::Log { infos, directives } => {
                w.one(&Stamp);
                w.sized_list(infos);
                w.sized_list(directives);
            }
            Request::JobControl { targets, infos } => {
                w.sized_list(targets);
                w.sized_list(infos);
            }
            Request::GroupConstruct { group, procs, infos } => {
                w.one_text(Some(group.as_bytes()));
                w.sized_list(procs);
                w.sized_list(infos);
            }
            Request::GroupDestruct { group } | Request::GroupLeave { group } => {
                w.one_text(Some(group.as_bytes()));
                w.one_size(0);
            }
            Request::ResolvePeers { node, namespace } => {
                w.one_text(node.as_deref());
                w.one_text(Some(namespace.as_bytes()));
            }
            Request::ResolveNodes { namespace } => w.one_text(Some(namespace.as_bytes())),
        }
        w.finish()
    }

    fn number(&self) -> u8 {
        match self {
            Request::JobInfo => number::JOB_INFO,
            Request::Abort { .. } => number::ABORT,
            Request::Commit(_) => number::COMMIT,
            Request::Fence { .. } => number::FENCE,
            Request::Get { .. } => number::GET,
            Request::Finalize => number::FINALIZE,
            Request::Publish { .. } => number::PUBLISH,
            Request::Lookup { .. } => number::LOOKUP,
            Request::Unpublish { .. } => number::UNPUBLISH,
            Request::Spawn { .. } => number::SPAWN,
            Request::Connect { .. } => number::CONNECT,
            Request::Disconnect { .. } => number::DISCONNECT,
            Request::Notify { .. } => number::NOTIFY,
            Request::RegisterEvents { .. } => number::REGISTER_EVENTS,
            Request::DeregisterEvents { .. } => number::DEREGISTER_EVENTS,
            Request::Query(_) => number::QUERY,
            Request::Log { .. } => number::LOG,
            Request::JobControl { .. } => number::JOB_CONTROL,
            Request::GroupConstruct { .. } => number::GROUP_CONSTRUCT,
            Request::GroupDestruct { .. } => number::GROUP_DESTRUCT,
            Request::GroupLeave { .. } => number::GROUP_LEAVE,
            Request::ResolvePeers { .. } => number::RESOLVE_PEERS,
            Request::ResolveNodes { .. } => number::RESOLVE_NODES,
            Request::Unknown(number) => *number,
        }
    }
}

fn commits(codec: Codec, payload: &Bytes, reader: &mut Reader<'_>) -> Result<Vec<Commit>, WireError> {
    let mut commits = Vec::new();
    while !reader.is_empty() {
        let number = reader.one_byte()?;
        let scope = Scope::of(number).ok_or(WireError::OutOfRange(number.into()))?;
        reader.expect(1)?;
        let entries = Entry::split(codec, &payload.slice_ref(buffer(reader)?))?;
        commits.push(Commit { scope, entries });
    }
    Ok(commits)
}

/// Reads a buffer, and returns its bytes.
fn buffer<'a>(reader: &mut Reader<'a>) -> Result<&'a [u8], WireError> {
    match reader.octet()? {
        PLAIN_BUFFER => reader.object(),
        other => Err(WireError::Buffer(other)),
    }
}

/// A uid, which the client only says, and keys.
fn keys(reader: &mut Reader<'_>) -> Result<Vec<String>, WireError> {
    reader.one_uint32()?;
    let length = reader.one_size()?;
    reader.items(length, Reader::one_key)
}

/// A status or the number of an event.
pub(super) struct Code(pub(super) i32);

impl Item for Code {
    fn write(&self, writer: &mut Writer) {
        writer.int32(self.0);
    }

    fn read(reader: &mut Reader<'_>) -> Result<Code, WireError> {
        reader.int32().map(Code)
    }
}

/// The time of an entry for a log, which is not used.
struct Stamp;

impl Item for Stamp {
    fn write(&self, writer: &mut Writer) {
        writer.uint64(0);
    }

    fn read(reader: &mut Reader<'_>) -> Result<Stamp, WireError> {
        reader.uint64().map(|_| Stamp)
    }
}
