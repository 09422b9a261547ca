//! Captured dialogues: what clients sent and what a server answered that they accepted. The length of a request stands as the client wrote
//! it; rsd writes it on the right.

use super::request::tests::framed;
use super::{Asked, Reply, ReplyDecoder, Request, RequestDecoder};

enum Said {
    Client(&'static str, Request),
    Server(&'static str, Reply),
}

use Said::{Client, Server};

/// Intel MPI 2021.18 through Slurm's library, rank 0 of 2.
fn intel() -> Vec<Said> {
    let get = |key: &str| Request::KvsGet { jobid: Some("kvs_sp1_14912".into()), key: key.into() };
    let attribute = |key: &str| Request::GetJobAttr { key: key.into() };
    let put = Request::KvsPut { key: "bc-0".into(), value: "mpi#0200A34BC00002020000000000000000$".into() };
    vec![
        Client(
            "38    cmd=fullinit;pmirank=0;threaded=FALSE;",
            Request::FullInit { pmijobid: None, pmirank: Some("0".into()), srcid: None },
        ),
        Server(
            "   113cmd=fullinit-response;pmi-version=2;pmi-subversion=0;rank=0;size=2;appnum=0;debugged=FALSE;\
             pmiverbose=FALSE;rc=0;",
            Reply::FullInit { rank: 0, size: 2, appnum: 0, spawner: None },
        ),
        Client("14    cmd=job-getid;", Request::JobGetId),
        Server("    48cmd=job-getid-response;jobid=kvs_sp1_14912;rc=0;", Reply::JobId("kvs_sp1_14912".into())),
        Client("44    cmd=info-getjobattr;key=PMI_process_mapping;", attribute("PMI_process_mapping")),
        Server(
            "    68cmd=info-getjobattr-response;found=TRUE;value=(vector,(0,2,1));rc=0;",
            Reply::Value(Some("(vector,(0,2,1))".into())),
        ),
        Client("14    cmd=kvs-fence;", Request::KvsFence),
        Server("    28cmd=kvs-fence-response;rc=0;", Reply::Done),
        Client("65    cmd=kvs-put;key=bc-0;value=mpi#0200A34BC00002020000000000000000$;", put),
        Server("    26cmd=kvs-put-response;rc=0;", Reply::Done),
        Client("50    cmd=kvs-get;jobid=kvs_sp1_14912;srcid=-1;key=bc-1;", get("bc-1")),
        Server(
            "    81cmd=kvs-get-response;found=TRUE;value=mpi#02008379C00002020000000000000000$;rc=0;",
            Reply::Value(Some("mpi#02008379C00002020000000000000000$".into())),
        ),
        Client("37    cmd=info-getjobattr;key=universeSize;", attribute("universeSize")),
        Server("    53cmd=info-getjobattr-response;found=TRUE;value=2;rc=0;", Reply::Value(Some("2".into()))),
        Client("13    cmd=finalize;", Request::Finalize),
        Server("    27cmd=finalize-response;rc=0;", Reply::Done),
    ]
}

/// MPICH's own client, which writes lengths on the right.
fn mpich() -> Vec<Said> {
    let get = |jobid: &str, key: &str| Request::KvsGet { jobid: Some(jobid.into()), key: key.into() };
    vec![
        Client(
            "    23cmd=fullinit;pmirank=0;",
            Request::FullInit { pmijobid: None, pmirank: Some("0".into()), srcid: None },
        ),
        Server(
            "   141cmd=fullinit-response;pmi-version=2;pmi-subversion=0;rank=0;size=2;appnum=0;\
             spawner-jobid=kvs_sp1_19584;debugged=FALSE;pmiverbose=FALSE;rc=0;",
            Reply::FullInit { rank: 0, size: 2, appnum: 0, spawner: Some("kvs_sp1_19584".into()) },
        ),
        Client(
            "    34cmd=kvs-put;key=key-0;value=val-0;",
            Request::KvsPut { key: "key-0".into(), value: "val-0".into() },
        ),
        Server("    26cmd=kvs-put-response;rc=0;", Reply::Done),
        Client("    50cmd=kvs-get;jobid=kvs_sp1_18691;srcid=1;key=key-1;", get("kvs_sp1_18691", "key-1")),
        Server("    49cmd=kvs-get-response;found=TRUE;value=val-1;rc=0;", Reply::Value(Some("val-1".into()))),
        Client("    41cmd=kvs-get;jobid=kvs_sp1_18691;key=nope;", get("kvs_sp1_18691", "nope")),
        Server("    38cmd=kvs-get-response;found=FALSE;rc=0;", Reply::Value(None)),
        Client("    38cmd=info-getnodeattr;key=na;wait=TRUE;", Request::GetNodeAttr { key: "na".into(), wait: true }),
        Server("    55cmd=info-getnodeattr-response;found=TRUE;value=nv;rc=0;", Reply::Value(Some("nv".into()))),
        Client("    25cmd=name-lookup;name=svc;", Request::NameLookup { name: "svc".into() }),
        Server("    49cmd=name-lookup-response;port=p:1;value=p:1;rc=0;", Reply::Value(Some("p:1".into()))),
        Client("    13cmd=finalize;", Request::Finalize),
        Server("    27cmd=finalize-response;rc=0;", Reply::Done),
    ]
}

#[test]
fn captured_dialogues_are_decoded_byte_by_byte_and_all_at_once() {
    for dialogue in [intel, mpich] {
        for piece in [1, usize::MAX] {
            let (mut server, mut client) = (RequestDecoder::new(), ReplyDecoder::new());
            for said in dialogue() {
                match said {
                    Client(text, request) => {
                        let mut heard = Vec::new();
                        for bytes in text.as_bytes().chunks(piece) {
                            server.feed(bytes);
                            heard.extend(server.by_ref().map(|asked| asked.unwrap().request));
                        }
                        assert_eq!(heard, [request]);
                    }
                    Server(text, reply) => {
                        let mut told = Vec::new();
                        for bytes in text.as_bytes().chunks(piece) {
                            client.feed(bytes);
                            told.extend(client.by_ref().map(|reply| reply.unwrap().1));
                        }
                        assert_eq!(told, [reply]);
                    }
                }
            }
        }
    }
}

#[test]
fn captured_replies_are_encoded_byte_for_byte() {
    for said in [intel(), mpich()].into_iter().map(Vec::into_iter) {
        let mut echo = None;
        for said in said {
            match said {
                Client(_, request) => echo = Asked { request, thrid: None }.echo(),
                Server(text, reply) => {
                    let mut out = Vec::new();
                    reply.encode(&echo.clone().unwrap(), &mut out);
                    assert_eq!(String::from_utf8(out).unwrap(), text);
                }
            }
        }
    }
}

#[test]
fn requests_are_encoded_as_mpich_writes_them() {
    for (request, body) in [
        (
            Request::FullInit { pmijobid: None, pmirank: Some("0".into()), srcid: None },
            "cmd=fullinit;pmirank=0;threaded=FALSE;",
        ),
        (Request::KvsPut { key: "key-0".into(), value: "val-0".into() }, "cmd=kvs-put;key=key-0;value=val-0;"),
        (Request::GetNodeAttr { key: "na".into(), wait: true }, "cmd=info-getnodeattr;key=na;wait=TRUE;"),
        (Request::KvsFence, "cmd=kvs-fence;"),
    ] {
        let mut out = Vec::new();
        Asked { request, thrid: None }.encode(&mut out).unwrap();
        assert_eq!(out[6..], framed(body)[6..]);
        assert_eq!(String::from_utf8(out[..6].to_vec()).unwrap(), format!("{:6}", body.len()));
    }
}
