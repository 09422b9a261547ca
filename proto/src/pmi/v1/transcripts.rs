//! Dialogues captured between real clients and a server, in both directions. Our two halves must write and read exactly the bytes
//! of MPICH's client library and its server.

use super::{Reply, ReplyDecoder, Request, RequestDecoder};

/// A line of the dialogue: its sender, its bytes, its meaning.
enum Said {
    Client(&'static str, Request),
    Server(&'static str, Reply),
}
use Said::{Client, Server};

const KVS: &[u8] = b"kvs_sp1_17506";

fn get(kvsname: &[u8], key: &str) -> Request {
    Request::Get { kvsname: kvsname.to_vec(), key: key.into() }
}

/// Two ranks over an inherited socket, with MPICH's development client; rank 0.
fn inherited_socket() -> Vec<Said> {
    let put = Request::Put { kvsname: KVS.to_vec(), key: "key-0".into(), value: "val-0".into() };
    let maxes = Reply::Maxes { kvsname_max: 256, keylen_max: 64, vallen_max: 1024 };
    vec![
        Client("cmd=init pmi_version=1 pmi_subversion=1\n", Request::Init { version: 1, subversion: 1 }),
        Server(
            "cmd=response_to_init pmi_version=1 pmi_subversion=1 rc=0\n",
            Reply::ResponseToInit { version: 1, subversion: 1, rc: 0 },
        ),
        Client("cmd=get_maxes\n", Request::GetMaxes),
        Server("cmd=maxes kvsname_max=256 keylen_max=64 vallen_max=1024 rc=0\n", maxes),
        Client("cmd=get_my_kvsname\n", Request::GetMyKvsname),
        Server("cmd=my_kvsname kvsname=kvs_sp1_17506 rc=0\n", Reply::MyKvsname(KVS.to_vec())),
        Client("cmd=put kvsname=kvs_sp1_17506 key=key-0 value=val-0\n", put),
        Server("cmd=put_result rc=0\n", Reply::PutResult { rc: 0 }),
        Client("cmd=barrier_in\n", Request::BarrierIn { group: None }),
        Server("cmd=barrier_out rc=0\n", Reply::BarrierOut { rc: 0, tag: None }),
        Client("cmd=get kvsname=kvs_sp1_17506 key=key-1\n", get(KVS, "key-1")),
        Server("cmd=get_result rc=0 value=val-1\n", Reply::GetResult(Some("val-1".into()))),
        Client("cmd=finalize\n", Request::Finalize),
        Server("cmd=finalize_ack rc=0\n", Reply::FinalizeAck),
    ]
}

/// A process that no launcher started becomes rank 2 of 3 over TCP, with MPICH 5.
fn foreign_process() -> Vec<Said> {
    const KVS: &[u8] = b"kvs_A_5372";
    let absent = || Server("cmd=get_result rc=1 msg=key_not_found\n", Reply::GetResult(None));
    vec![
        Client("cmd=initack pmiid=2\n", Request::InitAck { pmiid: "2".into() }),
        Server(
            "cmd=initack rc=0\ncmd=set size=3\ncmd=set rank=2\ncmd=set debug=0\n",
            Reply::InitAck { size: 3, rank: 2, debug: false },
        ),
        Client("cmd=init pmi_version=1 pmi_subversion=1\n", Request::Init { version: 1, subversion: 1 }),
        Server(
            "cmd=response_to_init pmi_version=1 pmi_subversion=1 rc=0\n",
            Reply::ResponseToInit { version: 1, subversion: 1, rc: 0 },
        ),
        Client("cmd=get_maxes\n", Request::GetMaxes),
        Server("cmd=maxes kvsname_max=256 keylen_max=64 vallen_max=1024 rc=0\n", Reply::maxes()),
        Client("cmd=get_appnum\n", Request::GetAppnum),
        Server("cmd=appnum appnum=0 rc=0\n", Reply::Appnum(Some(0))),
        Client("cmd=get_my_kvsname\n", Request::GetMyKvsname),
        Server("cmd=my_kvsname kvsname=kvs_A_5372 rc=0\n", Reply::MyKvsname(KVS.to_vec())),
        Client("cmd=get kvsname=kvs_A_5372 key=PMI_process_mapping\n", get(KVS, "PMI_process_mapping")),
        Server("cmd=get_result rc=0 value=(vector,(0,1,3))\n", Reply::GetResult(Some("(vector,(0,1,3))".into()))),
        Client("cmd=get kvsname=kvs_A_5372 key=PMI_hwloc_xmlfile\n", get(KVS, "PMI_hwloc_xmlfile")),
        absent(),
        Client("cmd=get kvsname=kvs_A_5372 key=PMI_mpi_memory_alloc_kinds\n", get(KVS, "PMI_mpi_memory_alloc_kinds")),
        absent(),
        Client("cmd=barrier_in\n", Request::BarrierIn { group: None }),
        Server("cmd=barrier_out rc=0\n", Reply::BarrierOut { rc: 0, tag: None }),
        Client("cmd=finalize\n", Request::Finalize),
        Server("cmd=finalize_ack rc=0\n", Reply::FinalizeAck),
    ]
}

#[test]
fn captured_dialogues_are_encoded_byte_for_byte() {
    for said in [inherited_socket(), foreign_process()].into_iter().flatten() {
        let mut out = Vec::new();
        let text = match said {
            Client(text, request) => {
                request.encode(&mut out).unwrap();
                text
            }
            Server(text, reply) => {
                reply.encode(&mut out);
                text
            }
        };
        assert_eq!(String::from_utf8(out).unwrap(), text);
    }
}

#[test]
fn captured_dialogues_are_decoded_byte_by_byte_and_all_at_once() {
    for dialogue in [inherited_socket, foreign_process] {
        let (mut asked, mut answered) = (String::new(), String::new());
        let (mut requests, mut replies) = (Vec::new(), Vec::new());
        for said in dialogue() {
            match said {
                Client(text, request) => {
                    asked.push_str(text);
                    requests.push(request);
                }
                Server(text, reply) => {
                    answered.push_str(text);
                    replies.push(reply);
                }
            }
        }
        for piece in [1, usize::MAX] {
            let (mut server, mut client) = (RequestDecoder::new(), ReplyDecoder::new());
            let (mut heard, mut told) = (Vec::new(), Vec::new());
            for bytes in asked.as_bytes().chunks(piece) {
                server.feed(bytes);
                heard.extend(server.by_ref().map(Result::unwrap));
            }
            for bytes in answered.as_bytes().chunks(piece) {
                client.feed(bytes);
                told.extend(client.by_ref().map(Result::unwrap));
            }
            assert_eq!(heard, requests);
            assert_eq!(told, replies);
        }
    }
}
