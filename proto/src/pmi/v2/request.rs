//! The requests of a rank to its process manager.

use super::frames::Frames;
use super::pairs::{Body, BodyWriter, bad_value};
use super::{VALLEN_MAX, WireError, spawn};
use crate::pmi::v1::Spawn;

/// A request. Keys, values and names are the client's bytes, unescaped.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Request {
    /// The first frame.
    FullInit {
        /// The `PMI_JOBID` of Slurm's library, without which Slurm's server fails.
        pmijobid: Option<Vec<u8>>,
        /// The rank from the client's environment; in port mode, MPICH sends its `PMI_ID` here.
        pmirank: Option<Vec<u8>>,
        /// The `PMI_ID` of Slurm's library.
        srcid: Option<Vec<u8>>,
    },
    /// Requests the job's name.
    JobGetId,
    /// Requests a connection to another job, which no server offers.
    JobConnect {
        /// The other job's name.
        jobid: Vec<u8>,
    },
    /// Ends such a connection.
    JobDisconnect {
        /// The other job's name.
        jobid: Vec<u8>,
    },
    /// Stores a value for the ranks of this node, which they can get at once.
    PutNodeAttr {
        /// The key.
        key: Vec<u8>,
        /// The value.
        value: Vec<u8>,
    },
    /// Requests a value that a rank of this node has stored.
    GetNodeAttr {
        /// The key.
        key: Vec<u8>,
        /// Whether the answer waits until a rank stores it.
        wait: bool,
    },
    /// Requests a value that the process manager knows.
    GetJobAttr {
        /// The key.
        key: Vec<u8>,
    },
    /// Stores a value. It is visible to all ranks after the next fence; the last put of a key wins.
    KvsPut {
        /// The key.
        key: Vec<u8>,
        /// The value.
        value: Vec<u8>,
    },
    /// Answered when all ranks have sent it.
    KvsFence,
    /// Requests a value. Answered at once, also when the key is missing.
    KvsGet {
        /// The job's name; this job if it is missing or empty.
        jobid: Option<Vec<u8>>,
        /// The key.
        key: Vec<u8>,
    },
    /// Publishes a port under a service's name.
    NamePublish {
        /// The name.
        name: Vec<u8>,
        /// The port that a lookup returns.
        port: Vec<u8>,
    },
    /// Requests a service's port. Answered at once.
    NameLookup {
        /// The name.
        name: Vec<u8>,
    },
    /// Withdraws a service's name.
    NameUnpublish {
        /// The name.
        name: Vec<u8>,
    },
    /// Starts a new job.
    Spawn(Spawn),
    /// Slurm's `PMIX_Ring`: exchanges values with the neighbours. Answered when all ranks have sent it.
    Ring {
        /// The number of ranks that this request speaks for: 1 for clients.
        count: u32,
        /// The value for the left neighbour.
        left: Vec<u8>,
        /// The value for the right neighbour.
        right: Vec<u8>,
    },
    /// Ends the job. Never answered, and the last request that is decoded.
    Abort {
        /// The code that the process asks for, if it names one: Slurm's library does not.
        exit_code: Option<i32>,
        /// May be empty.
        message: Vec<u8>,
    },
    /// Ends the dialogue.
    Finalize,
    /// A command that PMI-2 does not have; it is answered with a failure.
    Unknown {
        /// The command.
        command: Vec<u8>,
    },
}

/// The command of a request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[expect(missing_docs, reason = "as the variants of Request")]
pub enum Verb {
    FullInit,
    JobGetId,
    JobConnect,
    JobDisconnect,
    PutNodeAttr,
    GetNodeAttr,
    GetJobAttr,
    KvsPut,
    KvsFence,
    KvsGet,
    NamePublish,
    NameLookup,
    NameUnpublish,
    Spawn,
    Ring,
    Abort,
    Finalize,
}

const VERBS: [(Verb, &str); 17] = [
    (Verb::FullInit, "fullinit"),
    (Verb::JobGetId, "job-getid"),
    (Verb::JobConnect, "job-connect"),
    (Verb::JobDisconnect, "job-disconnect"),
    (Verb::PutNodeAttr, "info-putnodeattr"),
    (Verb::GetNodeAttr, "info-getnodeattr"),
    (Verb::GetJobAttr, "info-getjobattr"),
    (Verb::KvsPut, "kvs-put"),
    (Verb::KvsFence, "kvs-fence"),
    (Verb::KvsGet, "kvs-get"),
    (Verb::NamePublish, "name-publish"),
    (Verb::NameLookup, "name-lookup"),
    (Verb::NameUnpublish, "name-unpublish"),
    (Verb::Spawn, "spawn"),
    (Verb::Ring, "ring"),
    (Verb::Abort, "abort"),
    (Verb::Finalize, "finalize"),
];

impl Verb {
    /// Returns the verb as it is on the wire.
    pub fn word(self) -> &'static str {
        VERBS.iter().find(|(verb, _)| *verb == self).map(|(_, word)| *word).expect("the table has every verb")
    }

    pub(super) fn of(word: &[u8]) -> Option<Self> {
        VERBS.iter().find(|(_, known)| known.as_bytes() == word).map(|(verb, _)| *verb)
    }
}

/// What a reply repeats of its request.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Echo {
    /// The request's command.
    pub verb: Verb,
    /// The mark of the client's thread, if it has one.
    pub thrid: Option<Vec<u8>>,
}

/// A request with the mark of its thread.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Asked {
    /// The request.
    pub request: Request,
    /// The mark, which the reply repeats.
    pub thrid: Option<Vec<u8>>,
}

/// The server's half: decodes bytes into requests. As an iterator it yields `None` until more bytes are fed.
#[derive(Debug, Default)]
pub struct RequestDecoder {
    frames: Frames,
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
            self.frames.feed(bytes);
        }
    }

    /// The bytes that are no whole frame yet.
    pub(in crate::pmi) fn pending(&self) -> &[u8] {
        self.frames.pending()
    }
}

impl Iterator for RequestDecoder {
    type Item = Result<Asked, WireError>;

    fn next(&mut self) -> Option<Self::Item> {
        if self.closed {
            return None;
        }
        let next = self.frames.next()?.and_then(parse);
        if let Err(_) | Ok(Asked { request: Request::Abort { .. }, .. }) = next {
            *self = Self { closed: true, ..Self::default() };
        }
        Some(next)
    }
}

fn parse(body: &[u8]) -> Result<Asked, WireError> {
    let body = Body::of(body)?;
    let thrid = body.find("thrid").map(std::borrow::Cow::into_owned);
    if let Some(long) = thrid.as_ref().filter(|thrid| thrid.len() > VALLEN_MAX) {
        // Every reply repeats it.
        return Err(bad_value(body.command, "thrid", long));
    }
    let owned = |key| body.find(key).map(std::borrow::Cow::into_owned);
    let Some(verb) = Verb::of(body.command) else {
        return Ok(Asked { request: Request::Unknown { command: body.command.to_vec() }, thrid });
    };
    // The text of an abort may contain anything, and its exit code comes first.
    let body = if verb == Verb::Abort { body } else { body.checked()? };
    let value = |key| body.value(key);
    let request = match verb {
        Verb::FullInit => {
            Request::FullInit { pmijobid: owned("pmijobid"), pmirank: owned("pmirank"), srcid: owned("srcid") }
        }
        Verb::JobGetId => Request::JobGetId,
        Verb::JobConnect => Request::JobConnect { jobid: value("jobid")? },
        Verb::JobDisconnect => Request::JobDisconnect { jobid: value("jobid")? },
        Verb::PutNodeAttr => Request::PutNodeAttr { key: value("key")?, value: value("value")? },
        Verb::GetNodeAttr => Request::GetNodeAttr { key: value("key")?, wait: body.truth("wait")? },
        Verb::GetJobAttr => Request::GetJobAttr { key: value("key")? },
        Verb::KvsPut => Request::KvsPut { key: value("key")?, value: value("value")? },
        Verb::KvsFence => Request::KvsFence,
        Verb::KvsGet => Request::KvsGet { jobid: owned("jobid").filter(|jobid| !jobid.is_empty()), key: value("key")? },
        Verb::NamePublish => Request::NamePublish { name: value("name")?, port: value("port")? },
        Verb::NameLookup => Request::NameLookup { name: value("name")? },
        Verb::NameUnpublish => Request::NameUnpublish { name: value("name")? },
        Verb::Spawn => Request::Spawn(spawn::parse(body)?),
        Verb::Ring => {
            Request::Ring { count: body.number("ring-count")?, left: value("ring-left")?, right: value("ring-right")? }
        }
        Verb::Abort => {
            let message = owned("msg").or_else(|| owned("message")).unwrap_or_default();
            Request::Abort { exit_code: body.find_number("exitcode")?, message }
        }
        Verb::Finalize => Request::Finalize,
    };
    Ok(Asked { request, thrid })
}

impl Asked {
    /// Returns what the reply repeats; None for an unknown command.
    pub fn echo(&self) -> Option<Echo> {
        Some(Echo { verb: self.request.verb()?, thrid: self.thrid.clone() })
    }

    /// Appends the request's frame as MPICH writes it. On an error `out` is unchanged.
    pub fn encode(&self, out: &mut Vec<u8>) -> Result<(), WireError> {
        let command = match &self.request {
            Request::Unknown { command } => command.as_slice(),
            known => known.verb().map_or("", Verb::word).as_bytes(),
        };
        let body = BodyWriter::new(command).maybe("thrid", self.thrid.as_deref());
        let body = match &self.request {
            Request::FullInit { pmijobid, pmirank, srcid } => {
                let body = body.maybe("pmijobid", pmijobid.as_deref());
                // Slurm's server fails without a word about threads.
                body.maybe("pmirank", pmirank.as_deref()).maybe("srcid", srcid.as_deref()).truth("threaded", false)
            }
            Request::JobConnect { jobid } | Request::JobDisconnect { jobid } => body.value("jobid", jobid),
            Request::PutNodeAttr { key, value } | Request::KvsPut { key, value } => {
                body.value("key", key).value("value", value)
            }
            Request::GetNodeAttr { key, wait } => body.value("key", key).truth("wait", *wait),
            Request::GetJobAttr { key } => body.value("key", key),
            Request::KvsGet { jobid, key } => body.maybe("jobid", jobid.as_deref()).value("key", key),
            Request::NamePublish { name, port } => body.value("name", name).value("port", port),
            Request::NameLookup { name } | Request::NameUnpublish { name } => body.value("name", name),
            Request::Spawn(spawn) => spawn::write(spawn, body),
            Request::Ring { count, left, right } => {
                body.shown("ring-count", count).value("ring-left", left).value("ring-right", right)
            }
            Request::Abort { exit_code, message } => {
                let code = exit_code.map(|code| code.to_string());
                let body = body.truth("isworld", true).maybe("exitcode", code.as_deref().map(str::as_bytes));
                // Slurm's server reads `msg`, MPICH's `message`.
                body.value("msg", message).value("message", message)
            }
            Request::JobGetId | Request::KvsFence | Request::Finalize | Request::Unknown { .. } => body,
        };
        body.finish(out)
    }
}

impl Request {
    /// Returns the request's command; None if it is unknown.
    pub fn verb(&self) -> Option<Verb> {
        Some(match self {
            Request::FullInit { .. } => Verb::FullInit,
            Request::JobGetId => Verb::JobGetId,
            Request::JobConnect { .. } => Verb::JobConnect,
            Request::JobDisconnect { .. } => Verb::JobDisconnect,
            Request::PutNodeAttr { .. } => Verb::PutNodeAttr,
            Request::GetNodeAttr { .. } => Verb::GetNodeAttr,
            Request::GetJobAttr { .. } => Verb::GetJobAttr,
            Request::KvsPut { .. } => Verb::KvsPut,
            Request::KvsFence => Verb::KvsFence,
            Request::KvsGet { .. } => Verb::KvsGet,
            Request::NamePublish { .. } => Verb::NamePublish,
            Request::NameLookup { .. } => Verb::NameLookup,
            Request::NameUnpublish { .. } => Verb::NameUnpublish,
            Request::Spawn(_) => Verb::Spawn,
            Request::Ring { .. } => Verb::Ring,
            Request::Abort { .. } => Verb::Abort,
            Request::Finalize => Verb::Finalize,
            Request::Unknown { .. } => return None,
        })
    }
}

#[cfg(test)]
pub(super) mod tests {
    use proptest::prelude::*;

    use super::*;

    pub(in crate::pmi) fn framed(body: &str) -> Vec<u8> {
        format!("{:<6}{body}", body.len()).into_bytes()
    }

    fn only(body: &str) -> Result<Asked, WireError> {
        let mut decoder = RequestDecoder::new();
        decoder.feed(&framed(body));
        let all: Vec<_> = decoder.by_ref().collect();
        assert_eq!(all.len(), 1, "{all:?}");
        all.into_iter().next().unwrap()
    }

    fn request(body: &str) -> Request {
        only(body).unwrap().request
    }

    #[test]
    fn what_slurms_library_and_mpich_send_is_understood() {
        let bytes = |text: &str| Some(text.as_bytes().to_vec());
        assert_eq!(
            request("cmd=fullinit;pmijobid=7;srcid=99;threaded=FALSE;"),
            Request::FullInit { pmijobid: bytes("7"), pmirank: None, srcid: bytes("99") }
        );
        assert_eq!(
            request("cmd=fullinit;pmirank=3;"),
            Request::FullInit { pmijobid: None, pmirank: bytes("3"), srcid: None }
        );
        assert_eq!(request("cmd=kvs-get;jobid=;srcid=-1;key=a;"), Request::KvsGet { jobid: None, key: "a".into() });
        assert_eq!(
            request("cmd=kvs-put;key=a;value=x;;y=z;"),
            Request::KvsPut { key: "a".into(), value: "x;y=z".into() }
        );
        assert_eq!(
            request("cmd=info-getnodeattr;key=n;wait=TRUE;"),
            Request::GetNodeAttr { key: "n".into(), wait: true }
        );
        assert_eq!(
            request("cmd=name-publish;name=s;port=p;infokeycount=0;"),
            Request::NamePublish { name: "s".into(), port: "p".into() }
        );
        let thread = only("cmd=kvs-fence;thrid=0x55d0;").unwrap();
        assert_eq!((thread.request, thread.thrid), (Request::KvsFence, bytes("0x55d0")));
        assert_eq!(request("cmd=dance;a=b;"), Request::Unknown { command: "dance".into() });
    }

    #[test]
    fn an_abort_is_the_last_request_whatever_its_text_contains() {
        let mut decoder = RequestDecoder::new();
        decoder.feed(&framed("cmd=abort;isworld=TRUE;msg=Fatal error\nin ;MPI_Init;"));
        decoder.feed(&framed("cmd=finalize;"));
        let message = "Fatal error\nin ".into();
        let abort = Request::Abort { exit_code: None, message };
        assert_eq!(decoder.next(), Some(Ok(Asked { request: abort, thrid: None })));
        assert_eq!(decoder.next(), None);
        decoder.feed(b"     1x");
        assert_eq!((decoder.next(), decoder.frames.buffered()), (None, 0));
        assert_eq!(request("cmd=abort;exitcode=-1;message=;"), Request::Abort { exit_code: Some(-1), message: vec![] });
    }

    #[test]
    fn each_kind_of_malformed_body_has_its_own_error() {
        let long = format!("cmd=kvs-fence;thrid={}5;", "6".repeat(VALLEN_MAX));
        let told = format!("kvs-fence: invalid thrid={}…", "6".repeat(60));
        for (body, text) in [
            ("", "invalid body, expected a command: \"\""),
            ("cmd=;", "invalid body, expected a command: \"cmd=;\""),
            ("key=k;cmd=kvs-get;", "invalid body, expected a command: \"key=k;cmd=kvs-get;\""),
            ("cmd=kvs-put;key=k;", "kvs-put: value= is missing"),
            ("cmd=kvs-put;key=k;value;", "invalid body, expected key=value; \"value;\""),
            ("cmd=info-getnodeattr;key=k;wait=1;", "info-getnodeattr: invalid wait=1"),
            ("cmd=ring;ring-count=-1;ring-left=a;ring-right=b;", "ring: invalid ring-count=-1"),
            ("cmd=abort;exitcode=x;", "abort: invalid exitcode=x"),
            (long.as_str(), told.as_str()),
        ] {
            assert_eq!(only(body).unwrap_err().to_string(), text);
        }
    }

    #[test]
    fn nothing_is_decoded_after_an_error() {
        let mut decoder = RequestDecoder::new();
        decoder.feed(&framed("rubbish"));
        decoder.feed(&framed("cmd=finalize;"));
        assert!(decoder.next().is_some_and(|first| first.is_err()));
        assert_eq!(decoder.next(), None);
    }

    pub(in crate::pmi::v2) fn text() -> impl Strategy<Value = Vec<u8>> {
        prop_oneof![
            prop::collection::vec(any::<u8>(), 0..20),
            prop::collection::vec(prop::sample::select(b";=a \n".to_vec()), 0..12),
        ]
    }

    fn any_request() -> impl Strategy<Value = Request> {
        prop_oneof![
            (prop::option::of(text()), prop::option::of(text()), prop::option::of(text()))
                .prop_map(|(pmijobid, pmirank, srcid)| Request::FullInit { pmijobid, pmirank, srcid }),
            Just(Request::JobGetId),
            text().prop_map(|jobid| Request::JobConnect { jobid }),
            text().prop_map(|jobid| Request::JobDisconnect { jobid }),
            (text(), text()).prop_map(|(key, value)| Request::PutNodeAttr { key, value }),
            (text(), any::<bool>()).prop_map(|(key, wait)| Request::GetNodeAttr { key, wait }),
            text().prop_map(|key| Request::GetJobAttr { key }),
            (text(), text()).prop_map(|(key, value)| Request::KvsPut { key, value }),
            Just(Request::KvsFence),
            (prop::option::of(text().prop_filter("empty is absent", |text| !text.is_empty())), text())
                .prop_map(|(jobid, key)| Request::KvsGet { jobid, key }),
            (text(), text()).prop_map(|(name, port)| Request::NamePublish { name, port }),
            text().prop_map(|name| Request::NameLookup { name }),
            text().prop_map(|name| Request::NameUnpublish { name }),
            spawn::tests::any_spawn().prop_map(Request::Spawn),
            (any::<u32>(), text(), text()).prop_map(|(count, left, right)| Request::Ring { count, left, right }),
            Just(Request::Finalize),
            "[a-z]{2,5}x".prop_map(|command| Request::Unknown { command: command.into() }),
        ]
    }

    proptest! {
        #[test]
        fn requests_survive_the_wire_in_any_pieces(
            requests in prop::collection::vec((any_request(), prop::option::of(text())), 0..6),
            exit_code in any::<Option<i32>>(),
            message in text(),
            piece in 1usize..40,
        ) {
            let abort = (Request::Abort { exit_code, message }, None);
            let asked: Vec<_> =
                requests.into_iter().chain([abort]).map(|(request, thrid)| Asked { request, thrid }).collect();
            let mut bytes = Vec::new();
            for asked in &asked {
                asked.encode(&mut bytes).expect("the strategy generates short requests");
            }
            let mut decoder = RequestDecoder::new();
            let mut decoded = Vec::new();
            for piece in bytes.chunks(piece) {
                decoder.feed(piece);
                decoded.extend(decoder.by_ref());
            }
            let decoded: Vec<_> = decoded.into_iter().map(Result::unwrap).collect();
            prop_assert_eq!(decoded, asked);
        }

        #[test]
        fn no_bytes_make_the_decoder_panic_or_grow(pieces in prop::collection::vec(hostile(), 0..30)) {
            let mut decoder = RequestDecoder::new();
            for piece in pieces {
                decoder.feed(&piece);
                prop_assert!(decoder.frames.buffered() <= crate::pmi::v2::BODY_MAX + 6);
                for _ in decoder.by_ref() {}
            }
        }
    }

    /// Random bytes, frames with random bodies, and pieces of real messages in wrong places.
    fn hostile() -> impl Strategy<Value = Vec<u8>> {
        let piece = prop::sample::select(vec![
            "cmd=",
            "kvs-put;",
            "key=",
            "value=",
            ";",
            ";;",
            "=",
            "     9",
            "38    ",
            "999999",
            "spawn;",
            "ncmds=2;",
            "subcmd=x;",
            "maxprocs=1;",
            "argc=1;",
            "argv0=;",
            "argv4294967295=;",
            "infokey0=a;",
            "infokeycount=1;",
            "preputcount=1;",
            "ppkey0=a;",
            "thrid=",
            "abort;",
            "exitcode=",
            "99999999999",
            "ring;",
            "ring-count=",
        ]);
        let pieces = prop::collection::vec(piece, 1..8).prop_map(|pieces| pieces.concat());
        prop_oneof![
            prop::collection::vec(any::<u8>(), 0..80),
            pieces.clone().prop_map(String::into_bytes),
            pieces.prop_map(|body| framed(&format!("cmd={body}"))),
            Just(vec![b'1'; 50_000]),
        ]
    }
}
