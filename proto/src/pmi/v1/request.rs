//! The requests of a rank to its process manager.

use super::error::{EncodeError, WireError, excerpt};
use super::lines::Lines;
use super::spawn::{Spawn, SpawnAssembly};
use super::words::{Words, check_line, check_word, number};
use super::{LINE_MAX, SPAWN_MAX};

/// A request. Keys, values and names are the client's bytes, unchanged.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Request {
    /// The first line of a client that connected over TCP: the opaque id from its `PMI_ID`, which alone determines its rank.
    InitAck {
        /// The id as found in the environment.
        pmiid: Vec<u8>,
    },
    /// The version of the dialogue; 2 requests PMI-2 frames.
    Init {
        /// `pmi_version`.
        version: u32,
        /// `pmi_subversion`.
        subversion: u32,
    },
    /// Requests the lengths that the server accepts.
    GetMaxes,
    /// Requests the index of the client's program in the job.
    GetAppnum,
    /// Requests the job's name.
    GetMyKvsname,
    /// Requests the number of processes that could run; -1 if unknown.
    GetUniverseSize,
    /// Stores a value; key and value may be empty. It is visible to all ranks after the next barrier; the last put of a key wins.
    Put {
        /// The job's name.
        kvsname: Vec<u8>,
        /// Without spaces.
        key: Vec<u8>,
        /// Verbatim.
        value: Vec<u8>,
    },
    /// Requests a value. Answered at once, also when the key is missing.
    Get {
        /// The job's name.
        kvsname: Vec<u8>,
        /// Without spaces.
        key: Vec<u8>,
    },
    /// Enters a barrier. Answered when all members have entered; `None` is the whole job.
    BarrierIn {
        /// PMI 1.2 only.
        group: Option<Group>,
    },
    /// Publishes a port under a service's name.
    PublishName {
        /// The name.
        service: Vec<u8>,
        /// The port that a lookup returns.
        port: Vec<u8>,
    },
    /// Requests a service's port. Answered at once.
    LookupName {
        /// The name.
        service: Vec<u8>,
    },
    /// Withdraws a service's name.
    UnpublishName {
        /// The name.
        service: Vec<u8>,
    },
    /// Starts a new job.
    Spawn(Spawn),
    /// Ends the job. Never answered, and the last request that is decoded: MPICH 4.1 and 4.2 send raw text after it, line
    /// feeds included.
    Abort {
        /// The code passed to `MPI_Abort`.
        exit_code: i32,
        /// The rest of the line; may be empty.
        message: Vec<u8>,
    },
    /// Ends the dialogue; a later `Init` on the same connection begins a new one.
    Finalize,
    /// Historic: creates another key-value space.
    CreateKvs,
    /// Historic: destroys a key-value space.
    DestroyKvs {
        /// Its name.
        kvsname: Vec<u8>,
    },
    /// Historic: iterates over a key-value space.
    GetByIdx {
        /// Its name.
        kvsname: Vec<u8>,
        /// The index, from 0.
        idx: u32,
    },
    /// A command that PMI-1 does not have. No generic reply exists: a client tests the reply's command.
    Unknown {
        /// The word after `cmd=`.
        command: Vec<u8>,
    },
}

/// A barrier of some ranks (PMI 1.2), identified by members and tag together.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Group {
    /// `WORLD`, `NODE`, or a comma-separated list of ranks of the job, as sent.
    pub members: Vec<u8>,
    /// Echoed in `barrier_out`.
    pub tag: u32,
}

/// The server's half: decodes bytes into requests. As an iterator it yields `None` until more bytes are fed.
#[derive(Debug, Default)]
pub struct RequestDecoder {
    lines: Lines,
    /// An incomplete spawn message.
    spawn: Option<SpawnAssembly>,
    /// After an abort or an error nothing is decoded or kept.
    closed: bool,
}

impl RequestDecoder {
    /// Returns a decoder for a new connection.
    pub fn new() -> Self {
        Self::default()
    }

    /// Takes the bytes of a read.
    pub fn feed(&mut self, bytes: &[u8]) {
        if !self.closed {
            self.lines.feed(bytes);
        }
    }

    /// Whether no message has begun that continues in the next line.
    pub(in crate::pmi) fn is_between(&self) -> bool {
        self.spawn.is_none() && !self.closed && !self.lines.is_overrun()
    }

    /// The bytes that are no whole line yet.
    pub(in crate::pmi) fn pending(&self) -> &[u8] {
        self.lines.pending()
    }

    fn next_request(&mut self) -> Option<Result<Request, WireError>> {
        while let Some(line) = self.lines.next() {
            let line = match line {
                Ok(line) => line,
                Err(error) => {
                    // The exit code comes first and matters more than the end of the text.
                    let pending = self.lines.pending();
                    let aborts = error == WireError::LineTooLong && pending.starts_with(b"cmd=abort ");
                    return Some(if aborts { parse(&pending[..LINE_MAX]) } else { Err(error) });
                }
            };
            if line == b"mcmd=spawn" || self.spawn.is_some() {
                match self.spawn.get_or_insert_default().push(line) {
                    Ok(None) => continue,
                    Ok(Some(spawn)) => {
                        self.spawn = None;
                        return Some(Ok(Request::Spawn(spawn)));
                    }
                    Err(error) => return Some(Err(error)),
                }
            }
            return Some(parse(line));
        }
        None
    }
}

impl Iterator for RequestDecoder {
    type Item = Result<Request, WireError>;

    fn next(&mut self) -> Option<Self::Item> {
        if self.closed {
            return None;
        }
        let next = self.next_request();
        if let Some(Err(_) | Ok(Request::Abort { .. })) = next {
            *self = Self { closed: true, ..Self::default() };
        }
        next
    }
}

fn parse(line: &[u8]) -> Result<Request, WireError> {
    if let Some(command) = line.strip_prefix(b"mcmd=") {
        return Ok(Request::Unknown { command: command.to_vec() });
    }
    let words = Words::of(line)?;
    let owned = |key| words.word(key).map(<[u8]>::to_vec);
    Ok(match words.command {
        b"initack" => Request::InitAck { pmiid: owned("pmiid")? },
        b"init" => Request::Init { version: words.number("pmi_version")?, subversion: words.number("pmi_subversion")? },
        b"get_maxes" => Request::GetMaxes,
        b"get_appnum" => Request::GetAppnum,
        b"get_my_kvsname" => Request::GetMyKvsname,
        b"get_universe_size" => Request::GetUniverseSize,
        b"put" => parse_put(words.rest).ok_or_else(|| WireError::MalformedPut { excerpt: excerpt(line) })?,
        b"get" => Request::Get { kvsname: owned("kvsname")?, key: owned("key")? },
        b"barrier_in" => Request::BarrierIn { group: words.find("group").map(parse_group).transpose()? },
        b"publish_name" => Request::PublishName { service: owned("service")?, port: owned("port")? },
        b"lookup_name" => Request::LookupName { service: owned("service")? },
        b"unpublish_name" => Request::UnpublishName { service: owned("service")? },
        b"abort" => {
            let (words, message) = words.split_tail("message");
            let message = message.unwrap_or_default().to_vec();
            Request::Abort { exit_code: words.number("exitcode")?, message }
        }
        b"finalize" => Request::Finalize,
        b"create_kvs" => Request::CreateKvs,
        b"destroy_kvs" => Request::DestroyKvs { kvsname: owned("kvsname")? },
        b"getbyidx" => Request::GetByIdx { kvsname: owned("kvsname")?, idx: words.number("idx")? },
        command => Request::Unknown { command: command.to_vec() },
    })
}

/// Parses by position, because the value may contain anything: ` kvsname=K key=k value=`, then the rest of the line.
fn parse_put(rest: &[u8]) -> Option<Request> {
    let (kvsname, rest) = take_word(rest, b"kvsname=")?;
    let (key, rest) = take_word(rest, b"key=")?;
    let value = skip_spaces(rest).strip_prefix(b"value=")?;
    Some(Request::Put { kvsname: kvsname.to_vec(), key: key.to_vec(), value: value.to_vec() })
}

fn take_word<'a>(rest: &'a [u8], key: &[u8]) -> Option<(&'a [u8], &'a [u8])> {
    let word = skip_spaces(rest).strip_prefix(key)?;
    Some(word.split_at(word.iter().position(|byte| *byte == b' ')?))
}

fn skip_spaces(bytes: &[u8]) -> &[u8] {
    &bytes[bytes.iter().take_while(|byte| **byte == b' ').count()..]
}

fn parse_group(text: &[u8]) -> Result<Group, WireError> {
    let malformed = || WireError::MalformedGroup { excerpt: excerpt(text) };
    let colon = text.iter().rposition(|byte| *byte == b':').ok_or_else(malformed)?;
    let (members, tag) = (&text[..colon], &text[colon + 1..]);
    if members.is_empty() {
        return Err(malformed());
    }
    let tag = number(b"barrier_in", "tag", tag).map_err(|_| malformed())?;
    Ok(Group { members: members.to_vec(), tag })
}

impl Request {
    /// Appends the request's bytes as MPICH 5 writes them. On an error `out` is unchanged.
    pub fn encode(&self, out: &mut Vec<u8>) -> Result<(), EncodeError> {
        let before = out.len();
        let max = if matches!(self, Self::Spawn(_)) { SPAWN_MAX } else { LINE_MAX + 1 };
        let written = self
            .write(out)
            .and_then(|()| if out.len() - before > max { Err(EncodeError::TooLong { max }) } else { Ok(()) });
        if written.is_err() {
            out.truncate(before);
        }
        written
    }

    fn write(&self, out: &mut Vec<u8>) -> Result<(), EncodeError> {
        let line = match self {
            Self::InitAck { pmiid } => Line::new("initack").word("pmiid", pmiid)?,
            Self::Init { version, subversion } => {
                Line::new("init").shown("pmi_version", version).shown("pmi_subversion", subversion)
            }
            Self::GetMaxes => Line::new("get_maxes"),
            Self::GetAppnum => Line::new("get_appnum"),
            Self::GetMyKvsname => Line::new("get_my_kvsname"),
            Self::GetUniverseSize => Line::new("get_universe_size"),
            Self::Put { kvsname, key, value } => {
                Line::new("put").word("kvsname", kvsname)?.word("key", key)?.tail("value", value)?
            }
            Self::Get { kvsname, key } => Line::new("get").word("kvsname", kvsname)?.word("key", key)?,
            Self::BarrierIn { group: None } => Line::new("barrier_in"),
            Self::BarrierIn { group: Some(Group { members, tag }) } => {
                let members = [members, &b":"[..], tag.to_string().as_bytes()].concat();
                Line::new("barrier_in").word("group", &members)?
            }
            Self::PublishName { service, port } => {
                Line::new("publish_name").word("service", service)?.word("port", port)?
            }
            Self::LookupName { service } => Line::new("lookup_name").word("service", service)?,
            Self::UnpublishName { service } => Line::new("unpublish_name").word("service", service)?,
            Self::Spawn(spawn) => return spawn.write(out),
            Self::Abort { exit_code, message } => {
                let line = Line::new("abort").shown("exitcode", exit_code);
                if message.is_empty() { line } else { line.tail("message", message)? }
            }
            Self::Finalize => Line::new("finalize"),
            Self::CreateKvs => Line::new("create_kvs"),
            Self::DestroyKvs { kvsname } => Line::new("destroy_kvs").word("kvsname", kvsname)?,
            Self::GetByIdx { kvsname, idx } => Line::new("getbyidx").word("kvsname", kvsname)?.shown("idx", idx),
            Self::Unknown { command } => {
                check_word("cmd", command)?;
                Line([b"cmd=", command.as_slice()].concat())
            }
        };
        out.extend_from_slice(&line.0);
        out.push(b'\n');
        Ok(())
    }
}

/// A line under construction.
struct Line(Vec<u8>);

impl Line {
    fn new(command: &str) -> Self {
        Self([b"cmd=", command.as_bytes()].concat())
    }

    fn shown(self, key: &'static str, value: impl ToString) -> Self {
        self.push(key, value.to_string().as_bytes())
    }

    fn word(self, key: &'static str, value: &[u8]) -> Result<Self, EncodeError> {
        check_word(key, value)?;
        Ok(self.push(key, value))
    }

    /// A value that may contain spaces; nothing may follow it.
    fn tail(self, key: &'static str, value: &[u8]) -> Result<Self, EncodeError> {
        check_line(key, value)?;
        Ok(self.push(key, value))
    }

    fn push(mut self, key: &str, value: &[u8]) -> Self {
        for part in [b" ", key.as_bytes(), b"=", value] {
            self.0.extend_from_slice(part);
        }
        self
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::pmi::v1::spawn::tests::any_spawn;

    fn decode(bytes: &[u8]) -> Vec<Result<Request, WireError>> {
        let mut decoder = RequestDecoder::new();
        decoder.feed(bytes);
        decoder.by_ref().collect()
    }

    fn only(bytes: &[u8]) -> Result<Request, WireError> {
        let mut all = decode(bytes);
        assert_eq!(all.len(), 1, "{all:?}");
        all.remove(0)
    }

    fn put(key: &str, value: &str) -> Request {
        Request::Put { kvsname: "k".into(), key: key.into(), value: value.into() }
    }

    #[test]
    fn a_put_takes_its_value_verbatim() {
        let vectors = [
            ("cmd=put kvsname=k key=a value=b\n", put("a", "b")),
            ("cmd=put kvsname=k key= value=\n", put("", "")),
            ("cmd=put kvsname=k key=a value=x=y key=z\\ \\\\ end \n", put("a", "x=y key=z\\ \\\\ end ")),
            ("cmd=put  kvsname=k   key=a value=  two\n", put("a", "  two")),
            ("cmd=put kvsname=k key=a=b value=c\n", put("a=b", "c")),
        ];
        for (line, request) in vectors {
            assert_eq!(only(line.as_bytes()), Ok(request), "{line}");
        }
        for line in [
            "cmd=put",
            "cmd=put kvsname=k key=a",
            "cmd=put key=a kvsname=k value=b",
            "cmd=put kvsname=k key=a b value=c",
        ] {
            let error = only(format!("{line}\n").as_bytes());
            assert_eq!(error, Err(WireError::MalformedPut { excerpt: line.into() }));
        }
    }

    #[test]
    fn words_may_come_in_any_order_and_unknown_ones_are_ignored() {
        let get = only(b"cmd=get  x=1 key=a=b flag kvsname=k key=second\n");
        assert_eq!(get, Ok(Request::Get { kvsname: "k".into(), key: "a=b".into() }));
    }

    #[test]
    fn each_kind_of_malformed_line_has_its_own_error() {
        for line in ["", "init", "cmd", "cmd=", "cmd= init", "PUT x", "\0\0", "endcmd", " cmd=init", "\u{1b}[2J"] {
            let excerpt = line.as_bytes().escape_ascii().to_string();
            assert_eq!(only(format!("{line}\n").as_bytes()), Err(WireError::NoCommand { excerpt }));
        }
        let missing = only(b"cmd=get kvsname=k\n").unwrap_err();
        assert_eq!(missing.to_string(), "get: key= is missing");
        let number = only(b"cmd=init pmi_version=one pmi_subversion=1\n").unwrap_err();
        assert_eq!(number.to_string(), "init: invalid number pmi_version=one");
        let number = only(b"cmd=getbyidx kvsname=k idx=-1\n").unwrap_err();
        assert_eq!(number.to_string(), "getbyidx: invalid number idx=-1");
        assert_eq!(only(b"cmd=mput a=b\n"), Ok(Request::Unknown { command: "mput".into() }));
        assert_eq!(only(b"mcmd=dance\n"), Ok(Request::Unknown { command: "dance".into() }));
    }

    #[test]
    fn nothing_is_decoded_after_an_error() {
        let all = decode(b"cmd=get_maxes\nrubbish\ncmd=finalize\n");
        assert_eq!(all.len(), 2);
        assert_eq!(all[0], Ok(Request::GetMaxes));
        assert!(all[1].is_err());
    }

    #[test]
    fn an_abort_is_the_last_request_whatever_its_text_contains() {
        let mut decoder = RequestDecoder::new();
        decoder.feed(b"cmd=abort exitcode=7 message=Fatal error in rank 3: exitcode=9\ncmd=finalize\n\xff\n");
        let message = b"Fatal error in rank 3: exitcode=9".to_vec();
        assert_eq!(decoder.next(), Some(Ok(Request::Abort { exit_code: 7, message })));
        assert_eq!(decoder.next(), None);
        decoder.feed(b"cmd=finalize\n");
        assert_eq!(decoder.next(), None);
        assert_eq!(decoder.lines.buffered(), 0);
        assert_eq!(only(b"cmd=abort exitcode=-1\n"), Ok(Request::Abort { exit_code: -1, message: vec![] }));
    }

    #[test]
    fn an_abort_with_endless_text_still_yields_its_exit_code() {
        let mut decoder = RequestDecoder::new();
        decoder.feed(b"cmd=abort exitcode=5 message=");
        decoder.feed(&[b'x'; LINE_MAX]);
        assert!(matches!(decoder.next(), Some(Ok(Request::Abort { exit_code: 5, .. }))));
        assert_eq!(decoder.next(), None);
    }

    #[test]
    fn groups_keep_their_members_text_and_their_tag() {
        let group = |members: &str, tag| Ok(Request::BarrierIn { group: Some(Group { members: members.into(), tag }) });
        assert_eq!(only(b"cmd=barrier_in group=WORLD:434711146\n"), group("WORLD", 434711146));
        assert_eq!(only(b"cmd=barrier_in group=NODE:250856029\n"), group("NODE", 250856029));
        assert_eq!(only(b"cmd=barrier_in group=0,2:0\n"), group("0,2", 0));
        assert_eq!(only(b"cmd=barrier_in group=3:0\n"), group("3", 0));
        for bad in ["WORLD", ":1", "0,1:x", ""] {
            let error = only(format!("cmd=barrier_in group={bad}\n").as_bytes());
            assert_eq!(error, Err(WireError::MalformedGroup { excerpt: bad.into() }));
        }
    }

    #[test]
    fn requests_that_the_wire_cannot_carry_are_not_written() {
        let mut out = b"before".to_vec();
        let refused = |request: Request, out: &mut Vec<u8>| request.encode(out).unwrap_err();
        assert_eq!(refused(put("a b", "c"), &mut out), EncodeError::NotAWord { field: "key" });
        assert_eq!(refused(put("a", "c\nd"), &mut out), EncodeError::NotALine { field: "value" });
        let long = put("a", &"x".repeat(LINE_MAX));
        assert_eq!(refused(long, &mut out), EncodeError::TooLong { max: LINE_MAX + 1 });
        assert_eq!(out, b"before");
    }

    fn word() -> impl Strategy<Value = Vec<u8>> {
        prop::collection::vec(any::<u8>().prop_filter("a word's byte", |byte| !b" \n\0".contains(byte)), 0..20)
    }

    fn tail() -> impl Strategy<Value = Vec<u8>> {
        prop::collection::vec(any::<u8>().prop_filter("a line's byte", |byte| !b"\n\0".contains(byte)), 0..40)
    }

    fn any_request() -> impl Strategy<Value = Request> {
        let group =
            ("[0-9,]{1,9}|WORLD|NODE", any::<u32>()).prop_map(|(members, tag)| Group { members: members.into(), tag });
        prop_oneof![
            word().prop_map(|pmiid| Request::InitAck { pmiid }),
            any::<(u32, u32)>().prop_map(|(version, subversion)| Request::Init { version, subversion }),
            Just(Request::GetMaxes),
            Just(Request::GetAppnum),
            Just(Request::GetMyKvsname),
            Just(Request::GetUniverseSize),
            (word(), word(), tail()).prop_map(|(kvsname, key, value)| Request::Put { kvsname, key, value }),
            (word(), word()).prop_map(|(kvsname, key)| Request::Get { kvsname, key }),
            prop::option::of(group).prop_map(|group| Request::BarrierIn { group }),
            (word(), word()).prop_map(|(service, port)| Request::PublishName { service, port }),
            word().prop_map(|service| Request::LookupName { service }),
            word().prop_map(|service| Request::UnpublishName { service }),
            any_spawn().prop_map(Request::Spawn),
            Just(Request::Finalize),
            Just(Request::CreateKvs),
            word().prop_map(|kvsname| Request::DestroyKvs { kvsname }),
            (word(), any::<u32>()).prop_map(|(kvsname, idx)| Request::GetByIdx { kvsname, idx }),
        ]
    }

    proptest! {
        #[test]
        fn requests_survive_the_wire_in_any_pieces(
            requests in prop::collection::vec(any_request(), 0..6),
            code in any::<i32>(),
            message in tail(),
            piece in 1usize..40,
        ) {
            let mut requests = requests;
            requests.push(Request::Abort { exit_code: code, message });
            let mut bytes = Vec::new();
            for request in &requests {
                request.encode(&mut bytes).expect("the strategy generates valid requests");
            }
            let mut decoder = RequestDecoder::new();
            let mut decoded = Vec::new();
            for piece in bytes.chunks(piece) {
                decoder.feed(piece);
                decoded.extend(decoder.by_ref());
            }
            let decoded: Vec<_> = decoded.into_iter().map(Result::unwrap).collect();
            prop_assert_eq!(decoded, requests);
        }

        #[test]
        fn no_bytes_make_the_decoder_panic_or_grow(pieces in prop::collection::vec(hostile(), 0..30)) {
            let mut decoder = RequestDecoder::new();
            for piece in pieces {
                decoder.feed(&piece);
                prop_assert!(decoder.lines.buffered() <= crate::pmi::v1::BACKLOG_MAX);
                for _ in decoder.by_ref() {}
                prop_assert!(decoder.lines.pending().len() <= LINE_MAX);
            }
        }
    }

    /// Random bytes, and pieces of real messages in wrong places.
    fn hostile() -> impl Strategy<Value = Vec<u8>> {
        let piece = prop::sample::select(vec![
            "cmd=",
            "put",
            " kvsname=k",
            " key=",
            " value=",
            "\n",
            " ",
            "=",
            "mcmd=spawn\n",
            "endcmd\n",
            "nprocs=1\n",
            "execname=x\n",
            "totspawns=2\n",
            "spawnssofar=1\n",
            "argcnt=4294967295\n",
            "arg1=x\n",
            "info_key_0=a\n",
            "preput_val_9=\n",
            "barrier_in group=",
            "0,1:",
            "abort exitcode=",
            "init pmi_version=",
            "99999999999",
        ]);
        let pieces = prop::collection::vec(piece, 1..8).prop_map(|pieces| pieces.concat().into_bytes());
        prop_oneof![prop::collection::vec(any::<u8>(), 0..80), pieces, Just(vec![b'x'; 50_000])]
    }
}
