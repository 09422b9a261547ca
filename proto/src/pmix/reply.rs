//! The answers of the server, and the events that it sends by itself.

use bytes::Bytes;

use super::codec::{Codec, Reader, Writer};
use super::error::WireError;
use super::names::Status;
use super::request::{Code, NOTIFY, Request};
use super::value::{Info, KVal, Pdata, Proc, Text};

/// An answer. Values of jobs and ranks are passed as they were encoded, in the codec of the client.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Reply {
    /// Whether the request has succeeded; the only answer if it has not.
    Done(Status),
    /// The description of the client's job: its name and encoded values.
    JobInfo(String, Bytes),
    /// What processes have committed.
    Kept(Vec<Kept>),
    /// Published values, of which some may be missing.
    Found(Status, Vec<Pdata>),
    /// A started job: its name and encoded description.
    Spawned(String, Bytes),
    /// The descriptions of the other jobs of a connection.
    Connected(Vec<(String, Bytes)>),
    /// Answers to questions, of which some may be missing.
    Infos(Status, Vec<Info>),
    /// A founded group.
    Group(Founded),
    /// Processes.
    Procs(Vec<Proc>),
    /// A text.
    Text(Text),
}

/// A group: what its members are told when it is founded.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Founded {
    /// What of this the client understands.
    pub form: GroupForm,
    /// Its members.
    pub members: Vec<Proc>,
    /// Its number.
    pub number: u64,
    /// The descriptions of the members' other jobs.
    pub jobs: Vec<(String, Bytes)>,
}

/// The form in which a client is told about a group. It changed twice, without a change of the codec.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum GroupForm {
    /// PMIx up to 4.2.3: the number.
    Number,
    /// Up to 5: the members, the number, and descriptions.
    Members,
    /// From 6 on: the members, whether there is a number, the number, and what members tell about themselves.
    Flagged,
}

impl GroupForm {
    /// Returns the form for a client with this version of the library.
    pub fn of(version: &str) -> GroupForm {
        let mut numbers = version.split('.').map(|number| number.parse::<u32>().unwrap_or(0));
        let version = [(); 3].map(|()| numbers.next().unwrap_or(0));
        match version {
            version if version < [4, 2, 4] => GroupForm::Number,
            version if version < [6, 0, 0] => GroupForm::Members,
            _ => GroupForm::Flagged,
        }
    }
}

/// What one process has committed, or the description of a job under [`super::rank::WILDCARD`].
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Kept {
    /// The process.
    pub proc: Proc,
    /// Its encoded values.
    pub values: Bytes,
}

impl Reply {
    /// Returns the payload.
    pub fn encode(&self, codec: Codec) -> Vec<u8> {
        let mut w = Writer::new(codec);
        match self {
            Reply::Done(status) => w.one(&Code(status.0)),
            Reply::JobInfo(namespace, values) => {
                w.one_text(Some(namespace.as_bytes()));
                w.raw(values);
            }
            Reply::Kept(kept) => {
                w.one(&Code(0));
                for Kept { proc, values } in kept {
                    let mut object = Writer::new(codec);
                    object.one(proc);
                    object.raw(values);
                    w.one_object(&object.finish());
                }
            }
            Reply::Found(status, found) => {
                w.one(&Code(status.0));
                w.sized_list(found);
            }
            Reply::Spawned(namespace, values) => {
                w.one(&Code(0));
                w.one_text(Some(namespace.as_bytes()));
                w.raw(values);
            }
            Reply::Connected(jobs) => {
                w.one(&Code(0));
                descriptions(&mut w, jobs);
            }
            Reply::Infos(status, infos) => {
                w.one(&Code(status.0));
                w.sized_list(infos);
            }
            Reply::Group(Founded { form, members, number, jobs }) => {
                let number = usize::try_from(*number).unwrap_or(usize::MAX);
                w.one(&Code(0));
                match form {
                    GroupForm::Number => w.one_size(number),
                    GroupForm::Members => {
                        w.sized_list(members);
                        w.one_size(number);
                        descriptions(&mut w, jobs);
                    }
                    GroupForm::Flagged => {
                        w.sized_list(members);
                        w.one_byte(1);
                        w.one_size(number);
                        // Clients ask for what members tell about themselves.
                        w.one_size(0);
                    }
                }
            }
            Reply::Procs(procs) => {
                w.one(&Code(0));
                w.sized_list(procs);
            }
            Reply::Text(text) => {
                w.one(&Code(0));
                w.one_text(text.as_deref());
            }
        }
        w.finish()
    }

    /// Decodes the answer to a request: the half of a client of PMIx 4.2.4 to 5.
    pub fn decode(codec: Codec, request: &Request, payload: &Bytes) -> Result<Reply, WireError> {
        let mut reader = Reader::new(codec, payload);
        let r = &mut reader;
        let rest = |r: &Reader<'_>| payload.slice_ref(r.rest());
        if matches!(request, Request::JobInfo) {
            let namespace = r.one_namespace()?;
            return Ok(Reply::JobInfo(namespace, rest(r)));
        }
        let status = Status(r.one::<Code>()?.0);
        if r.is_empty() {
            return Ok(Reply::Done(status));
        }
        Ok(match request {
            Request::Get { .. } => {
                let mut kept = Vec::new();
                while !r.is_empty() {
                    let object = payload.slice_ref(r.one_object()?);
                    let mut object_reader = Reader::new(codec, &object);
                    let proc = object_reader.one()?;
                    kept.push(Kept { proc, values: object.slice_ref(object_reader.rest()) });
                }
                Reply::Kept(kept)
            }
            Request::Lookup { .. } => Reply::Found(status, r.sized_list()?),
            Request::Spawn { .. } => {
                let namespace = r.one_namespace()?;
                Reply::Spawned(namespace, rest(r))
            }
            Request::Connect { .. } => Reply::Connected(read_descriptions(codec, payload, r)?),
            Request::Query(_) | Request::JobControl { .. } => Reply::Infos(status, r.sized_list()?),
            Request::GroupConstruct { .. } => {
                let (form, members, number) = (GroupForm::Members, r.sized_list()?, r.one_size()?);
                Reply::Group(Founded { form, members, number, jobs: read_descriptions(codec, payload, r)? })
            }
            Request::ResolvePeers { .. } => Reply::Procs(r.sized_list()?),
            Request::ResolveNodes { .. } => Reply::Text(r.one_text()?),
            Request::JobInfo
            | Request::Abort { .. }
            | Request::Commit(_)
            | Request::Fence { .. }
            | Request::Finalize
            | Request::Publish { .. }
            | Request::Unpublish { .. }
            | Request::Disconnect { .. }
            | Request::Notify { .. }
            | Request::RegisterEvents { .. }
            | Request::DeregisterEvents { .. }
            | Request::Log { .. }
            | Request::GroupDestruct { .. }
            | Request::GroupLeave { .. }
            | Request::Unknown(_) => return Err(WireError::Trailing(r.rest().len())),
        })
    }
}

fn descriptions(writer: &mut Writer, jobs: &[(String, Bytes)]) {
    for (namespace, values) in jobs {
        let mut object = Writer::new(writer.codec());
        object.one_text(Some(namespace.as_bytes()));
        object.raw(values);
        writer.one_object(&object.finish());
    }
}

fn read_descriptions(
    codec: Codec,
    payload: &Bytes,
    reader: &mut Reader<'_>,
) -> Result<Vec<(String, Bytes)>, WireError> {
    let mut jobs = Vec::new();
    while !reader.is_empty() {
        let object = payload.slice_ref(reader.one_object()?);
        let mut object_reader = Reader::new(codec, &object);
        let namespace = object_reader.one_namespace()?;
        jobs.push((namespace, object.slice_ref(object_reader.rest())));
    }
    Ok(jobs)
}

/// Encodes values one after the other, as descriptions and commits have them.
pub fn encode_all<'a>(codec: Codec, kvals: impl IntoIterator<Item = &'a KVal>) -> Vec<u8> {
    let mut writer = Writer::new(codec);
    kvals.into_iter().for_each(|kval| writer.one(kval));
    writer.finish()
}

/// Appends a value to encoded values.
pub fn append(codec: Codec, values: &mut Vec<u8>, kval: &KVal) {
    let mut writer = Writer::new(codec);
    writer.one(kval);
    values.extend(writer.finish());
}

/// A message of the server that is no answer: something has happened.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Event {
    /// What.
    pub status: Status,
    /// To which process, or which process reports it.
    pub source: Proc,
    /// Attributes.
    pub infos: Vec<Info>,
}

impl Event {
    /// Returns the payload.
    pub fn encode(&self, codec: Codec) -> Vec<u8> {
        let mut w = Writer::new(codec);
        w.one_byte(NOTIFY);
        w.one(&Code(self.status.0));
        w.one(&self.source);
        w.sized_list(&self.infos);
        w.finish()
    }

    /// Decodes a payload: the client's half.
    pub fn decode(codec: Codec, payload: &[u8]) -> Result<Event, WireError> {
        let mut r = Reader::new(codec, payload);
        match r.one_byte()? {
            NOTIFY => {
                let status = Status(r.one::<Code>()?.0);
                Ok(Event { status, source: r.one()?, infos: r.sized_list()? })
            }
            other => Err(WireError::OutOfRange(other.into())),
        }
    }
}
