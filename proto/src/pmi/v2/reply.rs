//! The replies of the process manager.

use super::frames::Frames;
use super::pairs::{Body, BodyWriter, number};
use super::{Echo, VALLEN_MAX, Verb, WireError};
use crate::pmi::v1::excerpt;

/// A reply; its form depends on the request. Every reply has an `rc`, without which Slurm's library fails.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Reply {
    /// Answers the first frame.
    FullInit {
        /// The client's rank.
        rank: u32,
        /// The number of ranks of its job.
        size: u32,
        /// The index of its program in the job.
        appnum: u32,
        /// The name of the job that has spawned this one, if one has: MPI libraries take its presence for the fact.
        spawner: Option<Vec<u8>>,
    },
    /// The job's name.
    JobId(Vec<u8>),
    /// A value, if it exists.
    Value(Option<Vec<u8>>),
    /// The request was executed.
    Done,
    /// The new job's name, and one code per process, or an empty list for no errors.
    Spawned {
        /// The name.
        jobid: Vec<u8>,
        /// The codes.
        codes: Vec<i32>,
    },
    /// The neighbours' values.
    Ring {
        /// The client's rank in the ring.
        count: u32,
        /// From the left neighbour.
        left: Vec<u8>,
        /// From the right neighbour.
        right: Vec<u8>,
    },
    /// The request was not executed.
    Failed {
        /// The reason.
        why: String,
    },
}

/// The reason is cut at this length.
const WHY_MAX: usize = 400;

/// Returns a sentence without the bytes that clients do not transfer unchanged.
fn plain(why: &str) -> String {
    let is_safe = |char: &char| (char.is_ascii_graphic() || *char == ' ') && *char != ';';
    why.chars().take(WHY_MAX).map(|char| if is_safe(&char) { char } else { '_' }).collect()
}

impl Reply {
    /// Appends the reply's frame. Something is always written, because a client waits for it: a reply that no frame can carry is
    /// replaced by one that reports a failure.
    pub fn encode(&self, echo: &Echo, out: &mut Vec<u8>) {
        let body = || Self::begin(echo.verb.word().as_bytes(), echo.thrid.as_deref());
        let written = match self {
            Reply::FullInit { rank, size, appnum, spawner } => {
                let body = body().shown("pmi-version", 2).shown("pmi-subversion", 0);
                let body = body.shown("rank", rank).shown("size", size).shown("appnum", appnum);
                let body = body.maybe("spawner-jobid", spawner.as_deref());
                body.truth("debugged", false).truth("pmiverbose", false).shown("rc", 0)
            }
            Reply::JobId(jobid) => body().value("jobid", jobid).shown("rc", 0),
            // MPICH reads `port`, Slurm's library `value`.
            Reply::Value(Some(port)) if echo.verb == Verb::NameLookup => {
                body().value("port", port).value("value", port).shown("rc", 0)
            }
            Reply::Value(None) if echo.verb == Verb::NameLookup => {
                body().shown("rc", 1).value("errmsg", b"service_not_found")
            }
            Reply::Value(Some(value)) => body().truth("found", true).value("value", value).shown("rc", 0),
            Reply::Value(None) => body().truth("found", false).shown("rc", 0),
            Reply::Done => body().shown("rc", 0),
            Reply::Spawned { jobid, codes } => {
                let errors = codes.iter().filter(|code| **code != 0).count();
                let body = body().shown("rc", 0).value("jobid", jobid).shown("nerrs", errors);
                let codes = codes.iter().map(i32::to_string).collect::<Vec<_>>().join(",");
                if errors > 0 && codes.len() > VALLEN_MAX {
                    return Self::failed("too many error codes").encode(echo, out);
                }
                if errors > 0 { body.value("errcodes", codes.as_bytes()) } else { body }
            }
            Reply::Ring { count, left, right } => {
                body().shown("rc", 0).shown("ring-count", count).value("ring-left", left).value("ring-right", right)
            }
            Reply::Failed { why } => body().shown("rc", 1).value("errmsg", plain(why).as_bytes()),
        };
        if written.finish(out).is_err() {
            Self::failed("the answer is too long for a frame").encode(echo, out);
        }
    }

    /// Appends the reply to a command that PMI-2 does not have.
    pub fn encode_unknown(command: &[u8], thrid: Option<&[u8]>, out: &mut Vec<u8>) {
        // The command fitted into a frame, but its reply may be longer.
        let command = &command[..command.len().min(VALLEN_MAX)];
        let thrid = thrid.filter(|thrid| thrid.len() <= VALLEN_MAX);
        let body = Self::begin(command, thrid).shown("rc", 1).value("errmsg", b"unknown");
        body.finish(out).expect("two short values fit into a frame");
    }

    /// Returns a failure for this reason.
    pub fn failed(why: impl Into<String>) -> Self {
        Reply::Failed { why: why.into() }
    }

    fn begin(command: &[u8], thrid: Option<&[u8]>) -> BodyWriter {
        BodyWriter::new(&[command, b"-response"].concat()).maybe("thrid", thrid)
    }
}

/// The client's half: decodes bytes into replies. As an iterator it yields `None` until more bytes are fed.
#[derive(Debug, Default)]
pub struct ReplyDecoder {
    frames: Frames,
    /// After an error nothing is decoded or kept.
    closed: bool,
}

impl ReplyDecoder {
    /// Returns a decoder for a new connection.
    pub fn new() -> Self {
        Self::default()
    }

    /// Takes the bytes of a read.
    pub fn feed(&mut self, bytes: &[u8]) {
        if !self.closed {
            self.frames.feed(bytes);
        }
    }
}

impl Iterator for ReplyDecoder {
    type Item = Result<(Echo, Reply), WireError>;

    fn next(&mut self) -> Option<Self::Item> {
        if self.closed {
            return None;
        }
        let next = self.frames.next()?.and_then(parse);
        if next.is_err() {
            *self = Self { closed: true, ..Self::default() };
        }
        Some(next)
    }
}

fn parse(body: &[u8]) -> Result<(Echo, Reply), WireError> {
    let body = Body::of(body)?.checked()?;
    let unexpected = || WireError::UnexpectedReply { command: excerpt(body.command) };
    let verb = body.command.strip_suffix(b"-response").and_then(Verb::of).ok_or_else(unexpected)?;
    let owned = |key| body.find(key).map(std::borrow::Cow::into_owned);
    let echo = Echo { verb, thrid: owned("thrid") };
    if body.find_number("rc")?.unwrap_or(0) != 0 {
        if verb == Verb::NameLookup && owned("errmsg").is_none_or(|why| why == b"service_not_found") {
            return Ok((echo, Reply::Value(None)));
        }
        let why = owned("errmsg").map(|why| String::from_utf8_lossy(&why).into_owned());
        return Ok((echo, Reply::failed(why.unwrap_or_else(|| "the process manager gave no reason".into()))));
    }
    let reply = match verb {
        Verb::FullInit => Reply::FullInit {
            rank: body.number("rank")?,
            size: body.number("size")?,
            appnum: body.find_number::<i64>("appnum")?.and_then(|appnum| appnum.try_into().ok()).unwrap_or(0),
            spawner: owned("spawner-jobid"),
        },
        Verb::JobGetId => Reply::JobId(body.value("jobid")?),
        Verb::GetNodeAttr | Verb::GetJobAttr | Verb::KvsGet => {
            Reply::Value(if body.truth("found")? { Some(body.value("value")?) } else { None })
        }
        Verb::NameLookup => Reply::Value(owned("port").or_else(|| owned("value"))),
        Verb::Spawn => {
            let codes = owned("errcodes").unwrap_or_default();
            let codes = codes.split(|byte| *byte == b',').filter(|code| !code.is_empty());
            let codes = codes.map(|code| number(body.command, "errcodes", code)).collect::<Result<_, _>>()?;
            Reply::Spawned { jobid: owned("jobid").unwrap_or_default(), codes }
        }
        Verb::Ring => Reply::Ring {
            count: body.number("ring-count")?,
            left: body.value("ring-left")?,
            right: body.value("ring-right")?,
        },
        Verb::JobConnect
        | Verb::JobDisconnect
        | Verb::PutNodeAttr
        | Verb::KvsPut
        | Verb::KvsFence
        | Verb::NamePublish
        | Verb::NameUnpublish
        | Verb::Finalize => Reply::Done,
        Verb::Abort => return Err(unexpected()),
    };
    Ok((echo, reply))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::super::request::tests::{framed, text};
    use super::*;

    fn echo(verb: Verb) -> Echo {
        Echo { verb, thrid: None }
    }

    fn encoded(reply: &Reply, verb: Verb) -> String {
        let mut out = Vec::new();
        reply.encode(&echo(verb), &mut out);
        let (length, body) = out.split_at(6);
        assert_eq!(std::str::from_utf8(length).unwrap(), format!("{:6}", body.len()));
        String::from_utf8(body.to_vec()).unwrap()
    }

    fn decode(bytes: &[u8]) -> Vec<Result<(Echo, Reply), WireError>> {
        let mut decoder = ReplyDecoder::new();
        decoder.feed(bytes);
        decoder.by_ref().collect()
    }

    #[test]
    fn each_reply_has_the_form_that_every_client_reads() {
        let init = |spawner| Reply::FullInit { rank: 0, size: 2, appnum: 1, spawner };
        for (reply, verb, body) in [
            (
                init(Some("j".into())),
                Verb::FullInit,
                "cmd=fullinit-response;pmi-version=2;pmi-subversion=0;rank=0;size=2;appnum=1;spawner-jobid=j;\
                 debugged=FALSE;pmiverbose=FALSE;rc=0;",
            ),
            (Reply::Value(Some("a;b".into())), Verb::KvsGet, "cmd=kvs-get-response;found=TRUE;value=a;;b;rc=0;"),
            (Reply::Value(None), Verb::GetNodeAttr, "cmd=info-getnodeattr-response;found=FALSE;rc=0;"),
            (Reply::Value(Some("p".into())), Verb::NameLookup, "cmd=name-lookup-response;port=p;value=p;rc=0;"),
            (Reply::Value(None), Verb::NameLookup, "cmd=name-lookup-response;rc=1;errmsg=service_not_found;"),
            (
                Reply::Spawned { jobid: "j".into(), codes: vec![] },
                Verb::Spawn,
                "cmd=spawn-response;rc=0;jobid=j;nerrs=0;",
            ),
            (
                Reply::Spawned { jobid: "j".into(), codes: vec![0, 1, 1] },
                Verb::Spawn,
                "cmd=spawn-response;rc=0;jobid=j;nerrs=2;errcodes=0,1,1;",
            ),
            (
                Reply::Ring { count: 3, left: "l".into(), right: "r".into() },
                Verb::Ring,
                "cmd=ring-response;rc=0;ring-count=3;ring-left=l;ring-right=r;",
            ),
            (Reply::failed("no; really"), Verb::JobConnect, "cmd=job-connect-response;rc=1;errmsg=no_ really;"),
        ] {
            assert_eq!(encoded(&reply, verb), body);
        }
        let mut out = Vec::new();
        Reply::Done.encode(&Echo { verb: Verb::KvsFence, thrid: Some("7;".into()) }, &mut out);
        assert_eq!(String::from_utf8(out).unwrap(), "    38cmd=kvs-fence-response;thrid=7;;;rc=0;");
        let mut out = Vec::new();
        Reply::encode_unknown(b"dance", None, &mut out);
        assert_eq!(String::from_utf8(out).unwrap(), "    39cmd=dance-response;rc=1;errmsg=unknown;");
    }

    #[test]
    fn a_reply_that_no_frame_can_carry_reports_a_failure() {
        let value = Reply::Value(Some(vec![b'x'; super::super::BODY_MAX]));
        let failed = "cmd=kvs-get-response;rc=1;errmsg=the answer is too long for a frame;";
        assert_eq!(encoded(&value, Verb::KvsGet), failed);
        let codes = Reply::Spawned { jobid: "j".into(), codes: vec![1; 600] };
        assert_eq!(encoded(&codes, Verb::Spawn), "cmd=spawn-response;rc=1;errmsg=too many error codes;");
        let codes = Reply::Spawned { jobid: "j".into(), codes: vec![0; 600] };
        assert_eq!(encoded(&codes, Verb::Spawn), "cmd=spawn-response;rc=0;jobid=j;nerrs=0;");
    }

    #[test]
    fn variants_of_other_servers_are_understood() {
        for (body, reply) in [
            ("cmd=kvs-get-response;found=FALSE;rc=0;", Reply::Value(None)),
            ("cmd=kvs-fence-response;", Reply::Done),
            ("cmd=name-lookup-response;value=p;found=TRUE;rc=0;", Reply::Value(Some("p".into()))),
            ("cmd=name-lookup-response;rc=1;", Reply::Value(None)),
            ("cmd=spawn-response;rc=0;jobid=j;nerrs=0;", Reply::Spawned { jobid: "j".into(), codes: vec![] }),
            ("cmd=kvs-put-response;rc=-1;errmsg=no;", Reply::failed("no")),
            (
                "cmd=fullinit-response;pmi-version=2;pmi-subversion=0;rank=0;size=1;appnum=-1;rc=0;",
                Reply::FullInit { rank: 0, size: 1, appnum: 0, spawner: None },
            ),
        ] {
            let decoded: Vec<_> = decode(&framed(body)).into_iter().map(|reply| reply.unwrap().1).collect();
            assert_eq!(decoded, [reply], "{body}");
        }
    }

    #[test]
    fn an_invalid_reply_ends_the_decoding() {
        for body in ["hello", "cmd=kvs-get;", "cmd=dance-response;rc=0;", "cmd=kvs-get-response;found=TRUE;rc=0;"] {
            let bytes = [framed(body), framed("cmd=finalize-response;rc=0;")].concat();
            let all = decode(&bytes);
            assert_eq!(all.len(), 1, "{body}");
            assert!(all[0].is_err(), "{body}");
        }
    }

    fn any_reply() -> impl Strategy<Value = (Verb, Reply)> {
        let init = (any::<(u32, u32, u32)>(), prop::option::of(text()))
            .prop_map(|((rank, size, appnum), spawner)| Reply::FullInit { rank, size, appnum, spawner });
        let why = "[a-z ,:]{1,20}".prop_map(Reply::failed);
        let value = prop::option::of(text()).prop_map(Reply::Value);
        let getting = prop::sample::select(vec![Verb::GetNodeAttr, Verb::GetJobAttr, Verb::KvsGet, Verb::NameLookup]);
        let done = prop::sample::select(vec![Verb::PutNodeAttr, Verb::KvsPut, Verb::KvsFence, Verb::Finalize]);
        let spawned =
            (text(), prop::collection::vec(1..9i32, 0..50)).prop_map(|(jobid, codes)| Reply::Spawned { jobid, codes });
        let ring = (any::<u32>(), text(), text()).prop_map(|(count, left, right)| Reply::Ring { count, left, right });
        prop_oneof![
            init.prop_map(|reply| (Verb::FullInit, reply)),
            text().prop_map(|jobid| (Verb::JobGetId, Reply::JobId(jobid))),
            (getting, value),
            (done.clone(), Just(Reply::Done)),
            (done, why),
            spawned.prop_map(|reply| (Verb::Spawn, reply)),
            ring.prop_map(|reply| (Verb::Ring, reply)),
        ]
    }

    proptest! {
        #[test]
        fn replies_survive_the_wire_in_any_pieces(
            replies in prop::collection::vec((any_reply(), prop::option::of(text())), 0..6),
            piece in 1usize..40,
        ) {
            let replies: Vec<_> =
                replies.into_iter().map(|((verb, reply), thrid)| (Echo { verb, thrid }, reply)).collect();
            let mut bytes = Vec::new();
            replies.iter().for_each(|(echo, reply)| reply.encode(echo, &mut bytes));
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
        fn no_bytes_make_the_decoder_panic(
            bodies in prop::collection::vec("cmd=(fullinit|kvs-get|ring|spawn|name-lookup|x)-response;((rc|rank|size|found|value|errcodes|ring-count|errmsg)=[-0-9,TRUE;]{0,8};){0,5}", 0..5),
            rubbish in prop::collection::vec(any::<u8>(), 0..200),
        ) {
            let framed: Vec<u8> = bodies.iter().flat_map(|body| framed(body)).collect();
            for bytes in [&framed, &rubbish] {
                let errors = decode(bytes).iter().filter(|reply| reply.is_err()).count();
                prop_assert!(errors <= 1);
            }
        }
    }
}
