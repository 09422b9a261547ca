//! The replies of the process manager.

use std::fmt::Display;

use crate::pmi::losses;

use super::error::{WireError, excerpt};
use super::lines::Lines;
use super::words::{Words, number};
use super::{KEYLEN_MAX, KVSNAME_MAX, LINE_MAX, REPLY_LINE_MAX, VALLEN_MAX};

/// A reply. `rc` is 0 for success and anything else for failure; clients test no more than that.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Reply {
    /// Tells a client that connected over TCP its rank. Four lines on the wire.
    InitAck {
        /// The number of ranks of its job.
        size: u32,
        /// Its rank.
        rank: u32,
        /// Makes the client trace its dialogue on stderr; overrides its `PMI_DEBUG`.
        debug: bool,
    },
    /// Answers a client that connected over TCP with an unknown id.
    InitAckRefused,
    /// The version of the dialogue.
    ResponseToInit {
        /// `pmi_version`.
        version: u32,
        /// `pmi_subversion`.
        subversion: u32,
        /// Required: MPICH 4 and Intel MPI fail without it.
        rc: i32,
    },
    /// The lengths that the server accepts, each with the end byte. See [`Reply::maxes`].
    Maxes {
        /// The limit for a job's name.
        kvsname_max: u32,
        /// The limit for a key.
        keylen_max: u32,
        /// The limit for a value.
        vallen_max: u32,
    },
    /// The index of the client's program in the job; `None`, written as -1, if the server does not know it (Slurm never does).
    Appnum(Option<u32>),
    /// The job's name: 1 to 255 visible ASCII bytes; any other name is answered as a failure.
    MyKvsname(Vec<u8>),
    /// The number of processes that could run; -1 if unknown.
    UniverseSize(i64),
    /// Whether the value was stored.
    PutResult {
        /// 0 if it was.
        rc: i32,
    },
    /// The value, if it exists. A value that the wire cannot carry (empty, with a line feed or a NUL, too long for a line)
    /// is answered as missing: clients treat an empty `value=` as an error.
    GetResult(Option<Vec<u8>>),
    /// All ranks have entered the barrier, or some never will.
    BarrierOut {
        /// 0 if all have entered.
        rc: i32,
        /// The tag of the group in the request.
        tag: Option<u32>,
    },
    /// Whether the name was published.
    PublishResult {
        /// 0 if it was; it fails if the name is taken.
        rc: i32,
    },
    /// The port, if the name is known; the limits of the wire are those of [`Reply::GetResult`].
    LookupResult(Option<Vec<u8>>),
    /// Whether the name was known.
    UnpublishResult {
        /// 0 if it was.
        rc: i32,
    },
    /// Whether the new job was started.
    SpawnResult {
        /// 0 if it was; otherwise the spawning call fails on all its ranks.
        rc: i32,
        /// The new job's name, if the server reports it; otherwise empty.
        jobid: Vec<u8>,
        /// One code per process, or an empty list for no errors. A line of 1,023 bytes has no room for many codes, so errors that
        /// do not fit make the whole result fail.
        errcodes: Vec<i32>,
    },
    /// The end of the dialogue; the connection stays open until the client closes it.
    FinalizeAck,
    /// Historic: the name of a new key-value space.
    NewKvs(Vec<u8>),
    /// Historic.
    KvsDestroyed {
        /// 0 if it was there.
        rc: i32,
    },
    /// Answers any request of a broken job with the reason. Clients test for the command that they expect and treat this one as a
    /// failure, while some of them ignore an `rc` that is not 0. MPICH up to 4.1 and Intel MPI print the word of the command, so
    /// it contains the sentence, with `_` for every byte that is not visible ASCII.
    Failed(String),
    /// Unrequested, and only to clients that have requested [`losses::KEY`]: these ranks are lost, and the job continues.
    Lost {
        /// Inclusive ranges.
        ranks: Vec<(u32, u32)>,
        /// A sentence, sent like that of [`Reply::Failed`].
        why: String,
    },
    /// Historic: the next index, a key and its value; `None` at the end.
    GetByIdxResults(Option<(u32, Vec<u8>, Vec<u8>)>),
}

/// The beginning of the command of [`Reply::Failed`].
const FAILED: &str = "failed:_";
/// The sentence is cut at this length.
const WHY_MAX: usize = 400;

/// Returns a sentence as one word of visible ASCII.
fn in_one_word(why: &str) -> String {
    let is_safe = |char: &char| char.is_ascii_graphic() && !"\\'\"".contains(*char);
    why.chars().take(WHY_MAX).map(|char| if is_safe(&char) { char } else { '_' }).collect()
}

impl Reply {
    /// Returns the lengths that suit every client.
    pub fn maxes() -> Self {
        Self::Maxes { kvsname_max: KVSNAME_MAX as u32, keylen_max: KEYLEN_MAX as u32, vallen_max: VALLEN_MAX as u32 }
    }

    /// Appends the reply's bytes. Something is always written, because a client waits for it: a reply that the wire cannot carry
    /// is replaced by one that reports a failure.
    pub fn encode(&self, out: &mut Vec<u8>) {
        match self {
            Self::InitAck { size, rank, debug } => {
                let debug = u8::from(*debug);
                let lines =
                    format!("cmd=initack rc=0\ncmd=set size={size}\ncmd=set rank={rank}\ncmd=set debug={debug}");
                write(out, lines);
            }
            Self::InitAckRefused => write(out, "cmd=initack rc=1"),
            Self::ResponseToInit { version, subversion, rc } => write(
                out,
                format_args!("cmd=response_to_init pmi_version={version} pmi_subversion={subversion} rc={rc}"),
            ),
            Self::Maxes { kvsname_max, keylen_max, vallen_max } => write(
                out,
                format_args!(
                    "cmd=maxes kvsname_max={kvsname_max} keylen_max={keylen_max} vallen_max={vallen_max} rc=0"
                ),
            ),
            Self::Appnum(Some(appnum)) => write(out, format_args!("cmd=appnum appnum={appnum} rc=0")),
            Self::Appnum(None) => write(out, "cmd=appnum appnum=-1 rc=0"),
            Self::MyKvsname(name) => write_name(out, "my_kvsname", name),
            Self::UniverseSize(size) => write(out, format_args!("cmd=universe_size size={size} rc=0")),
            Self::PutResult { rc } => write(out, format_args!("cmd=put_result rc={rc}")),
            Self::GetResult(value) => {
                write_value(
                    out,
                    "cmd=get_result rc=0 value=",
                    value.as_deref(),
                    "cmd=get_result rc=1 msg=key_not_found",
                );
            }
            Self::BarrierOut { rc, tag: None } => write(out, format_args!("cmd=barrier_out rc={rc}")),
            Self::BarrierOut { rc, tag: Some(tag) } => write(out, format_args!("cmd=barrier_out rc={rc} tag={tag}")),
            Self::PublishResult { rc: 0 } => write(out, "cmd=publish_result rc=0"),
            Self::PublishResult { rc } => {
                write(out, format_args!("cmd=publish_result rc={rc} msg=key_already_present"))
            }
            Self::LookupResult(port) => {
                write_value(out, "cmd=lookup_result rc=0 port=", port.as_deref(), "cmd=lookup_result rc=1");
            }
            Self::UnpublishResult { rc } => write(out, format_args!("cmd=unpublish_result rc={rc}")),
            Self::SpawnResult { rc, jobid, errcodes } => write_spawn_result(out, *rc, jobid, errcodes),
            Self::FinalizeAck => write(out, "cmd=finalize_ack rc=0"),
            Self::Failed(why) => write(out, format_args!("cmd={FAILED}{} rc=1", in_one_word(why))),
            Self::Lost { ranks, why } => {
                write(out, format_args!("cmd=rsd_lost ranks={} why={}", losses::to_text(ranks), in_one_word(why)));
            }
            Self::NewKvs(name) => write_name(out, "newkvs", name),
            Self::KvsDestroyed { rc } => write(out, format_args!("cmd=kvs_destroyed rc={rc}")),
            Self::GetByIdxResults(entry) => {
                let end = "cmd=getbyidx_results rc=-1 reason=no_more_keyvals";
                match entry {
                    Some((next, key, value)) if is_name(key) => {
                        let mut head = format!("cmd=getbyidx_results rc=0 nextidx={next} key=").into_bytes();
                        head.extend_from_slice(key);
                        head.extend_from_slice(b" val=");
                        write_value(out, &head, Some(value), end);
                    }
                    Some(_) | None => write(out, end),
                }
            }
        }
    }
}

fn write(out: &mut Vec<u8>, line: impl Display) {
    out.extend_from_slice(line.to_string().as_bytes());
    out.push(b'\n');
}

fn write_name(out: &mut Vec<u8>, command: &str, name: &[u8]) {
    if is_name(name) {
        write(out, format_args!("cmd={command} kvsname={} rc=0", name.escape_ascii()));
    } else {
        write(out, format_args!("cmd={command} rc=1"));
    }
}

fn write_value(out: &mut Vec<u8>, head: impl AsRef<[u8]>, value: Option<&[u8]>, otherwise: &str) {
    let head = head.as_ref();
    match value {
        Some(value)
            if !value.is_empty()
                && head.len() + value.len() <= LINE_MAX
                && !value.iter().any(|byte| b"\n\0".contains(byte)) =>
        {
            out.extend_from_slice(head);
            out.extend_from_slice(value);
            out.push(b'\n');
        }
        Some(_) | None => write(out, otherwise),
    }
}

fn write_spawn_result(out: &mut Vec<u8>, rc: i32, jobid: &[u8], errcodes: &[i32]) {
    let codes: Vec<String> = errcodes.iter().map(i32::to_string).collect();
    let jobid = if is_name(jobid) { format!(" jobid={}", jobid.escape_ascii()) } else { String::new() };
    let line = format!("cmd=spawn_result rc={rc}{jobid} errcodes={}", codes.join(","));
    if errcodes.is_empty() || (line.len() > REPLY_LINE_MAX && errcodes.iter().all(|code| *code == 0)) {
        write(out, format_args!("cmd=spawn_result rc={rc}{jobid}"));
    } else if line.len() > REPLY_LINE_MAX {
        write(out, "cmd=spawn_result rc=1");
    } else {
        write(out, line);
    }
}

/// Returns whether every client accepts the bytes as a word.
fn is_name(name: &[u8]) -> bool {
    !name.is_empty()
        && name.len() < KVSNAME_MAX
        && name.iter().all(|byte| byte.is_ascii_graphic() && !b"\\'\"".contains(byte))
}

/// The client's half: decodes bytes into replies. As an iterator it yields `None` until more bytes are fed.
#[derive(Debug, Default)]
pub struct ReplyDecoder {
    lines: Lines,
    /// The values of the handshake's lines so far.
    handshake: Option<Handshake>,
    /// After an error nothing is decoded or kept.
    closed: bool,
}

#[derive(Debug, Default)]
struct Handshake {
    size: Option<u32>,
    rank: Option<u32>,
}

impl ReplyDecoder {
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

    fn next_reply(&mut self) -> Result<Option<Reply>, WireError> {
        while let Some(line) = self.lines.next() {
            let words = Words::of(line?)?;
            let Some(handshake) = &mut self.handshake else {
                if words.command == b"initack" && words.find_number("rc")?.unwrap_or(0) == 0 {
                    self.handshake = Some(Handshake::default());
                    continue;
                }
                return parse(words).map(Some);
            };
            if words.command != b"set" {
                return Err(unexpected(words));
            }
            handshake.size = words.find_number("size")?.or(handshake.size);
            handshake.rank = words.find_number("rank")?.or(handshake.rank);
            if let Some(debug) = words.find_number::<u32>("debug")? {
                let missing = |field| WireError::Missing { command: "initack".into(), field };
                let size = handshake.size.ok_or_else(|| missing("size"))?;
                let rank = handshake.rank.ok_or_else(|| missing("rank"))?;
                self.handshake = None;
                return Ok(Some(Reply::InitAck { size, rank, debug: debug != 0 }));
            }
        }
        Ok(None)
    }
}

impl Iterator for ReplyDecoder {
    type Item = Result<Reply, WireError>;

    fn next(&mut self) -> Option<Self::Item> {
        if self.closed {
            return None;
        }
        let next = self.next_reply().transpose();
        if let Some(Err(_)) = next {
            *self = Self { closed: true, ..Self::default() };
        }
        next
    }
}

fn parse(words: Words<'_>) -> Result<Reply, WireError> {
    let rc = |words: Words<'_>| words.find_number::<i32>("rc").map(Option::unwrap_or_default);
    Ok(match words.command {
        b"initack" => Reply::InitAckRefused,
        b"response_to_init" => Reply::ResponseToInit {
            version: words.number("pmi_version")?,
            subversion: words.number("pmi_subversion")?,
            rc: rc(words)?,
        },
        b"maxes" => Reply::Maxes {
            kvsname_max: words.number("kvsname_max")?,
            keylen_max: words.number("keylen_max")?,
            vallen_max: words.number("vallen_max")?,
        },
        b"appnum" => Reply::Appnum(u32::try_from(words.number::<i64>("appnum")?).ok()),
        b"my_kvsname" => Reply::MyKvsname(words.word("kvsname")?.to_vec()),
        b"universe_size" => Reply::UniverseSize(words.number("size")?),
        b"put_result" => Reply::PutResult { rc: rc(words)? },
        b"get_result" => {
            let (words, value) = words.split_tail("value");
            // Hydra 4.1 and 4.2 append a word to the value.
            let value = value.map(|value| value.strip_suffix(b" found=TRUE").unwrap_or(value));
            let found = rc(words)? == 0 && words.find("found") != Some(b"FALSE");
            Reply::GetResult(value.filter(|_| found).map(<[u8]>::to_vec))
        }
        b"barrier_out" => Reply::BarrierOut { rc: rc(words)?, tag: words.find_number("tag")? },
        b"publish_result" => Reply::PublishResult { rc: rc(words)? },
        b"lookup_result" => {
            let (words, port) = words.split_tail("port");
            let found = rc(words)? == 0;
            Reply::LookupResult(port.filter(|_| found).map(<[u8]>::to_vec))
        }
        b"unpublish_result" => Reply::UnpublishResult { rc: rc(words)? },
        b"spawn_result" => {
            let codes = words.find("errcodes").into_iter().flat_map(|codes| codes.split(|byte| *byte == b','));
            let errcodes = codes.map(|code| number(words.command, "errcodes", code)).collect::<Result<_, _>>()?;
            let jobid = words.find("jobid").map(<[u8]>::to_vec).unwrap_or_default();
            Reply::SpawnResult { rc: rc(words)?, jobid, errcodes }
        }
        b"finalize_ack" => Reply::FinalizeAck,
        command if command.starts_with(FAILED.as_bytes()) => {
            Reply::Failed(String::from_utf8_lossy(&command[FAILED.len()..]).replace('_', " "))
        }
        b"rsd_lost" => Reply::Lost {
            ranks: match losses::parse(words.word("ranks")?) {
                Some(ranks) => ranks,
                None => return Err(unexpected(words)),
            },
            why: String::from_utf8_lossy(words.word("why")?).replace('_', " "),
        },
        b"newkvs" => Reply::NewKvs(words.word("kvsname")?.to_vec()),
        b"kvs_destroyed" => Reply::KvsDestroyed { rc: rc(words)? },
        b"getbyidx_results" => {
            let (words, value) = words.split_tail("val");
            let Some(value) = value.filter(|_| words.find("key").is_some()) else {
                return Ok(Reply::GetByIdxResults(None));
            };
            Reply::GetByIdxResults(Some((words.number("nextidx")?, words.word("key")?.to_vec(), value.to_vec())))
        }
        _ => return Err(unexpected(words)),
    })
}

fn unexpected(words: Words<'_>) -> WireError {
    WireError::UnexpectedReply { command: excerpt(words.command) }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn encoded(reply: &Reply) -> String {
        let mut out = Vec::new();
        reply.encode(&mut out);
        String::from_utf8(out).unwrap()
    }

    fn decode(bytes: &[u8]) -> Vec<Result<Reply, WireError>> {
        let mut decoder = ReplyDecoder::new();
        decoder.feed(bytes);
        decoder.by_ref().collect()
    }

    #[test]
    fn every_reply_has_the_form_that_clients_read() {
        let vectors = [
            (Reply::InitAckRefused, "cmd=initack rc=1\n"),
            (
                Reply::ResponseToInit { version: 2, subversion: 0, rc: 1 },
                "cmd=response_to_init pmi_version=2 pmi_subversion=0 rc=1\n",
            ),
            (Reply::Appnum(None), "cmd=appnum appnum=-1 rc=0\n"),
            (Reply::UniverseSize(-1), "cmd=universe_size size=-1 rc=0\n"),
            (Reply::PutResult { rc: 1 }, "cmd=put_result rc=1\n"),
            (Reply::GetResult(None), "cmd=get_result rc=1 msg=key_not_found\n"),
            (Reply::BarrierOut { rc: 0, tag: Some(434711146) }, "cmd=barrier_out rc=0 tag=434711146\n"),
            (Reply::PublishResult { rc: 0 }, "cmd=publish_result rc=0\n"),
            (Reply::PublishResult { rc: 1 }, "cmd=publish_result rc=1 msg=key_already_present\n"),
            (Reply::LookupResult(Some("p:1".into())), "cmd=lookup_result rc=0 port=p:1\n"),
            (Reply::LookupResult(None), "cmd=lookup_result rc=1\n"),
            (Reply::UnpublishResult { rc: 0 }, "cmd=unpublish_result rc=0\n"),
            (
                Reply::SpawnResult { rc: 0, jobid: vec![], errcodes: vec![0, 0, 3] },
                "cmd=spawn_result rc=0 errcodes=0,0,3\n",
            ),
            (
                Reply::SpawnResult { rc: 0, jobid: "rsd-d-7".into(), errcodes: vec![0] },
                "cmd=spawn_result rc=0 jobid=rsd-d-7 errcodes=0\n",
            ),
            (Reply::SpawnResult { rc: 1, jobid: vec![], errcodes: vec![] }, "cmd=spawn_result rc=1\n"),
            (Reply::NewKvs("k_1".into()), "cmd=newkvs kvsname=k_1 rc=0\n"),
            (Reply::KvsDestroyed { rc: 0 }, "cmd=kvs_destroyed rc=0\n"),
            (
                Reply::GetByIdxResults(Some((1, "a".into(), "b c".into()))),
                "cmd=getbyidx_results rc=0 nextidx=1 key=a val=b c\n",
            ),
            (
                Reply::Failed("rank 1: its process (pid 7) is gone".into()),
                "cmd=failed:_rank_1:_its_process_(pid_7)_is_gone rc=1\n",
            ),
            (
                Reply::Lost { ranks: vec![(4, 7), (9, 9)], why: "its node n1 was stopped".into() },
                "cmd=rsd_lost ranks=4-7,9 why=its_node_n1_was_stopped\n",
            ),
            (Reply::GetByIdxResults(None), "cmd=getbyidx_results rc=-1 reason=no_more_keyvals\n"),
        ];
        for (reply, text) in vectors {
            assert_eq!(encoded(&reply), text);
            assert_eq!(decode(text.as_bytes()), [Ok(reply)], "{text}");
        }
    }

    #[test]
    fn a_value_that_no_line_can_carry_is_answered_as_missing() {
        let absent = "cmd=get_result rc=1 msg=key_not_found\n";
        for value in [&b""[..], b"two\nlines", b"nul\0", &[b'x'; LINE_MAX]] {
            assert_eq!(encoded(&Reply::GetResult(Some(value.to_vec()))), absent);
        }
        assert_eq!(encoded(&Reply::LookupResult(Some(b"a\nb".to_vec()))), "cmd=lookup_result rc=1\n");
    }

    #[test]
    fn the_longest_announced_value_is_carried_whole() {
        let value = "x".repeat(VALLEN_MAX - 1);
        assert_eq!(
            encoded(&Reply::GetResult(Some(value.clone().into()))),
            format!("cmd=get_result rc=0 value={value}\n")
        );
    }

    #[test]
    fn an_invalid_job_name_is_never_written() {
        for name in ["", "a b", "a\nb", "a\\b", &"x".repeat(KVSNAME_MAX)] {
            assert_eq!(encoded(&Reply::MyKvsname(name.into())), "cmd=my_kvsname rc=1\n");
        }
    }

    #[test]
    fn error_codes_that_do_not_fit_are_omitted_only_if_all_are_zero() {
        let mut errcodes = vec![0; 600];
        assert_eq!(
            encoded(&Reply::SpawnResult { rc: 0, jobid: vec![], errcodes: errcodes.clone() }),
            "cmd=spawn_result rc=0\n"
        );
        errcodes[599] = 1;
        assert_eq!(encoded(&Reply::SpawnResult { rc: 0, jobid: vec![], errcodes }), "cmd=spawn_result rc=1\n");
    }

    #[test]
    fn variants_of_other_servers_are_understood() {
        for absent in ["rc=1", "rc=-1 msg=no", "rc=1 found=FALSE", "rc=0 found=FALSE", "rc=1 value=x"] {
            assert_eq!(decode(format!("cmd=get_result {absent}\n").as_bytes()), [Ok(Reply::GetResult(None))]);
        }
        let value = Reply::GetResult(Some("v".into()));
        for found in ["rc=0 value=v found=TRUE", "rc=0 msg=success value=v", "rc=0 value=v", "value=v"] {
            assert_eq!(decode(format!("cmd=get_result {found}\n").as_bytes()), [Ok(value.clone())], "{found}");
        }
        assert_eq!(decode(b"cmd=barrier_out\n"), [Ok(Reply::BarrierOut { rc: 0, tag: None })]);
        let init = Reply::ResponseToInit { version: 1, subversion: 1, rc: 0 };
        assert_eq!(decode(b"cmd=response_to_init pmi_version=1 pmi_subversion=1\n"), [Ok(init)]);
    }

    #[test]
    fn an_invalid_reply_ends_the_decoding() {
        for text in [
            "cmd=tv_ready\n",
            "hello\n",
            "cmd=initack rc=0\ncmd=finalize_ack rc=0\n",
            "cmd=initack rc=0\ncmd=set debug=0\n",
            "cmd=maxes\n",
        ] {
            let mut all = decode([text, "cmd=finalize_ack rc=0\n"].concat().as_bytes());
            assert_eq!(all.len(), 1, "{text}");
            assert!(all.remove(0).is_err(), "{text}");
        }
    }

    fn value() -> impl Strategy<Value = Vec<u8>> {
        prop::collection::vec(any::<u8>().prop_filter("a line's byte", |byte| !b"\n\0".contains(byte)), 1..40)
    }

    fn any_reply() -> impl Strategy<Value = Reply> {
        let name = || "[a-zA-Z0-9_.#$-]{1,30}".prop_map(String::into_bytes);
        prop_oneof![
            any::<(u32, u32, bool)>().prop_map(|(size, rank, debug)| Reply::InitAck { size, rank, debug }),
            Just(Reply::InitAckRefused),
            any::<(u32, u32, i32)>().prop_map(|(version, subversion, rc)| Reply::ResponseToInit {
                version,
                subversion,
                rc
            }),
            Just(Reply::maxes()),
            any::<Option<u32>>().prop_map(Reply::Appnum),
            name().prop_map(Reply::MyKvsname),
            any::<i64>().prop_map(Reply::UniverseSize),
            any::<i32>().prop_map(|rc| Reply::PutResult { rc }),
            prop::option::of(value()).prop_map(Reply::GetResult),
            any::<(i32, Option<u32>)>().prop_map(|(rc, tag)| Reply::BarrierOut { rc, tag }),
            any::<i32>().prop_map(|rc| Reply::PublishResult { rc }),
            prop::option::of(value()).prop_map(Reply::LookupResult),
            any::<i32>().prop_map(|rc| Reply::UnpublishResult { rc }),
            (any::<i32>(), prop::option::of(name()), prop::collection::vec(any::<i32>(), 0..50)).prop_map(
                |(rc, jobid, errcodes)| Reply::SpawnResult { rc, jobid: jobid.unwrap_or_default(), errcodes }
            ),
            Just(Reply::FinalizeAck),
            name().prop_map(Reply::NewKvs),
            any::<i32>().prop_map(|rc| Reply::KvsDestroyed { rc }),
            prop::option::of((any::<u32>(), name(), value())).prop_map(Reply::GetByIdxResults),
        ]
    }

    proptest! {
        #[test]
        fn replies_survive_the_wire_in_any_pieces(replies in prop::collection::vec(any_reply(), 0..6), piece in 1usize..40) {
            let mut bytes = Vec::new();
            replies.iter().for_each(|reply| reply.encode(&mut bytes));
            let mut decoder = ReplyDecoder::new();
            let mut decoded = Vec::new();
            for piece in bytes.chunks(piece) {
                decoder.feed(piece);
                decoded.extend(decoder.by_ref());
            }
            let decoded: Vec<_> = decoded.into_iter().map(Result::unwrap).collect();
            prop_assert_eq!(decoded, replies);
        }

        #[test]
        fn no_bytes_make_the_decoder_panic(text in "(cmd=(initack|set|get_result|spawn_result|getbyidx_results|x)( (rc|size|rank|debug|errcodes|key|val|value)=[-0-9,a]{0,12}){0,4}\n){0,6}", rubbish in prop::collection::vec(any::<u8>(), 0..200)) {
            for bytes in [text.as_bytes(), &rubbish] {
                let mut decoder = ReplyDecoder::new();
                decoder.feed(bytes);
                let errors = decoder.by_ref().filter(Result::is_err).count();
                prop_assert!(errors <= 1);
            }
        }
    }
}
