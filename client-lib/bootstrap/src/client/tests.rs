//! Runs the client against a process manager in the same process, made of the wire protocol's server half.

use std::collections::HashMap;
use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::os::fd::AsRawFd;
use std::sync::{Arc, Barrier, Mutex};
use std::thread::{self, JoinHandle};

use rsd_proto::pmi::v1::RequestDecoder;

use super::*;

const SIZE: u32 = 3;
const LIMITS: Limits = Limits { connect: Duration::from_secs(10), answer: Duration::from_secs(10) };

/// The state that the ranks of a job share.
#[derive(Clone)]
struct Job {
    kvs: Arc<Mutex<HashMap<Vec<u8>, Vec<u8>>>>,
    barrier: Arc<Barrier>,
}

impl Job {
    fn new(size: u32) -> Self {
        Self { kvs: Arc::default(), barrier: Arc::new(Barrier::new(size as usize)) }
    }

    /// Serves one rank until it closes the connection; returns its last request.
    fn serve(self, mut socket: impl Read + Write + Send + 'static, rank: u32) -> JoinHandle<Option<Request>> {
        thread::spawn(move || {
            let mut decoder = RequestDecoder::new();
            let mut last = None;
            let mut bytes = [0; 5];
            loop {
                let read = socket.read(&mut bytes).unwrap();
                if read == 0 {
                    return last;
                }
                decoder.feed(&bytes[..read]);
                for request in decoder.by_ref() {
                    let request = request.unwrap();
                    if let Some(reply) = self.answer(&request, rank) {
                        let mut out = Vec::new();
                        reply.encode(&mut out);
                        out.iter().for_each(|byte| socket.write_all(&[*byte]).unwrap());
                    }
                    last = Some(request);
                }
            }
        })
    }

    fn answer(&self, request: &Request, rank: u32) -> Option<Reply> {
        Some(match request {
            Request::InitAck { pmiid } if pmiid == b"token" => Reply::InitAck { size: SIZE, rank, debug: false },
            Request::InitAck { .. } => Reply::InitAckRefused,
            Request::Init { version, subversion } => {
                Reply::ResponseToInit { version: *version, subversion: *subversion, rc: 0 }
            }
            Request::GetMaxes => Reply::maxes(),
            Request::GetAppnum => Reply::Appnum(Some(4)),
            Request::GetMyKvsname => Reply::MyKvsname("job-1".into()),
            Request::Put { key, .. } if key == b"taken" => Reply::PutResult { rc: 1 },
            Request::Put { key, value, .. } => {
                self.kvs.lock().unwrap().insert(key.clone(), value.clone());
                Reply::PutResult { rc: 0 }
            }
            Request::Get { key, .. } => Reply::GetResult(self.kvs.lock().unwrap().get(key).cloned()),
            Request::BarrierIn { .. } => {
                self.barrier.wait();
                Reply::BarrierOut { rc: 0, tag: None }
            }
            Request::Finalize => Reply::FinalizeAck,
            Request::Abort { .. } => return None,
            other => panic!("not asked by this client: {other:?}"),
        })
    }
}

fn joined(job: &Job, rank: u32, size: u32) -> (Pmi, JoinHandle<Option<Request>>) {
    let (here, there) = UnixStream::pair().unwrap();
    let server = job.clone().serve(there, rank);
    (Pmi::over_socket(here, rank, size, LIMITS).unwrap(), server)
}

/// A process manager that answers every request with `answers`, then closes the connection.
fn mocked(answers: &'static str) -> Result<Pmi, BootstrapError> {
    let (here, mut there) = UnixStream::pair().unwrap();
    there.write_all(answers.as_bytes()).unwrap();
    there.shutdown(std::net::Shutdown::Write).unwrap();
    Pmi::over_socket(here, 0, 1, LIMITS)
}

#[test]
fn after_the_fence_every_rank_gets_what_the_others_put_before_it() {
    let job = Job::new(SIZE);
    let ranks: Vec<_> = (0..SIZE)
        .map(|rank| {
            let job = job.clone();
            thread::spawn(move || {
                let (mut pmi, server) = joined(&job, rank, SIZE);
                assert_eq!((pmi.rank(), pmi.size(), pmi.appnum(), pmi.kvsname()), (rank, SIZE, Some(4), &b"job-1"[..]));
                for round in 0..20 {
                    pmi.put(&format!("key-{round}-{rank}"), &format!("value=of#{rank}")).unwrap();
                    pmi.fence().unwrap();
                    for other in 0..SIZE {
                        let value = pmi.get(&format!("key-{round}-{other}")).unwrap();
                        assert_eq!(value, Some(format!("value=of#{other}").into_bytes()));
                    }
                }
                assert_eq!(pmi.get("never").unwrap(), None);
                pmi.finalize().unwrap();
                assert_eq!(server.join().unwrap(), Some(Request::Finalize));
            })
        })
        .collect();
    ranks.into_iter().for_each(|rank| rank.join().unwrap());
}

#[test]
fn a_process_manager_need_not_know_the_application_number() {
    // As Slurm answers.
    let pmi = mocked(
        "cmd=response_to_init pmi_version=1 pmi_subversion=1 rc=0\n\
         cmd=maxes rc=0 kvsname_max=256 keylen_max=256 vallen_max=1024\n\
         cmd=appnum rc=0 appnum=-1\n\
         cmd=my_kvsname rc=0 kvsname=12.0\n",
    );
    let pmi = pmi.unwrap();
    assert_eq!((pmi.appnum(), pmi.kvsname()), (None, &b"12.0"[..]));
}

/// A client whose process manager has answered what every client asks first, and the process manager's end.
fn greeted() -> (Pmi, UnixStream) {
    let (here, mut there) = UnixStream::pair().unwrap();
    say(&mut there, "cmd=response_to_init pmi_version=1 pmi_subversion=1 rc=0\n");
    say(&mut there, "cmd=maxes kvsname_max=256 keylen_max=64 vallen_max=1024 rc=0\ncmd=appnum appnum=0\n");
    say(&mut there, "cmd=my_kvsname kvsname=job\n");
    (Pmi::over_socket(here, 0, 2, LIMITS).unwrap(), there)
}

fn say(there: &mut UnixStream, text: &str) {
    there.write_all(text.as_bytes()).unwrap();
}

#[test]
fn a_value_can_be_requested_without_waiting_and_other_requests_may_intervene() {
    let (mut pmi, mut there) = greeted();
    assert_eq!(pmi.take_got().unwrap(), None, "nothing was asked");
    pmi.begin_get("late", false).unwrap();
    assert_eq!(pmi.take_got().unwrap(), None);
    say(&mut there, "cmd=get_result rc=0 value=");
    assert_eq!(pmi.take_got().unwrap(), None, "an incomplete answer is not returned");
    say(&mut there, "here\n");
    assert_eq!(pmi.take_got().unwrap(), Some(Some(b"here".to_vec())));
    assert_eq!(pmi.take_got().unwrap(), None, "it was taken");
    pmi.begin_get("later", true).unwrap();
    say(&mut there, "cmd=get_result rc=1 msg=key_not_found\ncmd=get_result rc=0 value=other\n");
    assert_eq!(pmi.get("other").unwrap(), Some(b"other".to_vec()));
    assert_eq!(pmi.take_got().unwrap(), Some(None));
    pmi.limits.answer = Duration::ZERO;
    pmi.begin_get("never", true).unwrap();
    assert!(matches!(pmi.take_got(), Err(BootstrapError::NoAnswer { command: "get", .. })));
    pmi.begin_get("never", false).unwrap();
    assert_eq!(pmi.take_got().unwrap(), None);
    drop(there);
    assert!(matches!(pmi.take_got(), Err(BootstrapError::Closed { command: "get" })));
}

#[test]
fn lost_ranks_are_told_between_answers() {
    let (mut pmi, mut there) = greeted();
    let lost = |ranks: &[(u32, u32)]| Lost { ranks: ranks.to_vec(), why: "its node n1 was stopped".into() };
    let text = |ranks: &str| format!("cmd=rsd_lost ranks={ranks} why=its_node_n1_was_stopped\n");
    say(&mut there, &(text("4-7,9") + "cmd=get_result rc=0 value=here\n" + &text("11")));
    assert_eq!(pmi.get("key").unwrap(), Some(b"here".to_vec()));
    assert_eq!(pmi.take_lost(), [lost(&[(4, 7), (9, 9)])]);
    assert_eq!(pmi.cut_off(), None);
    assert_eq!(pmi.take_lost(), [lost(&[(11, 11)])]);
    pmi.begin_get("late", false).unwrap();
    say(&mut there, &text("2"));
    assert_eq!(pmi.take_got().unwrap(), None);
    say(&mut there, "cmd=get_result rc=0 value=there\n");
    assert_eq!(pmi.take_got().unwrap(), Some(Some(b"there".to_vec())));
    assert_eq!((pmi.take_lost(), pmi.take_lost()), (vec![lost(&[(2, 2)])], Vec::new()));
}

#[test]
fn the_last_message_of_a_process_manager_is_reported() {
    let (mut pmi, mut there) = greeted();
    assert_eq!(pmi.cut_off(), None);
    let mut farewell = Vec::new();
    Reply::Failed("rank 1: it is gone".into()).encode(&mut farewell);
    let (one, other) = farewell.split_at(10);
    there.write_all(one).unwrap();
    assert_eq!(pmi.cut_off(), None);
    there.write_all(other).unwrap();
    assert_eq!(pmi.cut_off(), None, "there may be more to come");
    drop(there);
    assert_eq!(pmi.cut_off(), Some(Some("rank 1: it is gone")));
    let error = pmi.get("key").unwrap_err();
    assert!(matches!(&error, BootstrapError::Broken { command: "get", why } if why == "rank 1: it is gone"), "{error}");

    // As the answer to a request.
    let (mut pmi, mut there) = greeted();
    there.write_all(&farewell).unwrap();
    assert!(matches!(pmi.get("key"), Err(BootstrapError::Broken { command: "get", .. })));
    assert_eq!(pmi.cut_off(), None);
    drop(there);
    assert_eq!(pmi.cut_off(), Some(Some("rank 1: it is gone")));

    // Before a request that can no longer be sent.
    let (mut pmi, mut there) = greeted();
    there.write_all(&farewell).unwrap();
    drop(there);
    let error = pmi.get("key").unwrap_err();
    assert!(matches!(&error, BootstrapError::Broken { command: "get", why } if why == "rank 1: it is gone"), "{error}");

    let (mut pmi, server) = joined(&Job::new(1), 0, 1);
    assert_eq!(pmi.cut_off(), None);
    nix::sys::socket::shutdown(pmi.fd().as_raw_fd(), nix::sys::socket::Shutdown::Both).unwrap();
    assert_eq!(pmi.cut_off(), Some(None));
    server.join().unwrap();
}

#[test]
fn a_rank_joins_over_its_inherited_socket_and_leaves_that_open() {
    let (here, there) = UnixStream::pair().unwrap();
    let server = Job::new(1).serve(there, 1);
    let number = |number: i32| Some(number.to_string());
    let env = Env { fd: number(here.as_raw_fd()), rank: number(1), size: number(SIZE as i32), ..Env::default() };
    for _ in 0..2 {
        let pmi = Pmi::from_env(&env, LIMITS).unwrap().unwrap();
        assert_eq!((pmi.rank(), pmi.size()), (1, SIZE));
        pmi.finalize().unwrap();
    }
    drop(here);
    assert_eq!(server.join().unwrap(), Some(Request::Finalize));
}

#[test]
fn a_process_learns_its_rank_over_tcp() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let env = |id: &str| Env {
        port: Some(listener.local_addr().unwrap().to_string()),
        id: Some(id.into()),
        ..Env::default()
    };
    let accept = || -> TcpStream { listener.accept().unwrap().0 };
    thread::scope(|scope| {
        let known = env("token");
        let member = scope.spawn(move || Pmi::from_env(&known, LIMITS).unwrap().unwrap());
        let server = Job::new(SIZE).serve(accept(), 2);
        let pmi = member.join().unwrap();
        assert_eq!((pmi.rank(), pmi.size()), (2, SIZE));
        pmi.finalize().unwrap();
        assert_eq!(server.join().unwrap(), Some(Request::Finalize));

        let unknown = env("guess");
        let member = scope.spawn(move || Pmi::from_env(&unknown, LIMITS));
        let server = Job::new(SIZE).serve(accept(), 2);
        let error = member.join().unwrap().unwrap_err();
        assert_eq!(error.to_string(), "join with the id \"guess\" from PMI_ID: the process manager does not know it");
        server.join().unwrap();
    });
}

#[test]
fn an_abort_carries_its_code_and_a_message_of_one_word() {
    let (pmi, server) = joined(&Job::new(1), 0, 1);
    pmi.abort(7, "out of\nmemory").unwrap();
    let abort = Request::Abort { exit_code: 7, message: "out_of_memory".into() };
    assert_eq!(server.join().unwrap(), Some(abort));
}

#[test]
fn only_portable_keys_and_values_are_put() {
    let (mut pmi, _server) = joined(&Job::new(1), 0, 1);
    let long = "x".repeat(1024);
    for value in ["", "a b", "a\nb", "a\\b", "é", &long] {
        let error = pmi.put("key", value).unwrap_err();
        assert!(matches!(error, BootstrapError::NotPortable { what: "value", max: 1023 }), "{error}");
    }
    for key in ["", "a b", &long[..64]] {
        let error = pmi.put(key, "value").unwrap_err();
        assert!(matches!(error, BootstrapError::NotPortable { what: "key", max: 63 }), "{error}");
    }
    pmi.put(&long[..63], &long[..1023]).unwrap();
    assert_eq!(pmi.get(&long[..63]).unwrap(), Some(long.as_bytes()[..1023].to_vec()));
    assert!(matches!(pmi.put("taken", "v"), Err(BootstrapError::Refused { command: "put", rc: 1 })));
}

#[test]
fn a_failing_process_manager_is_reported() {
    let init = "cmd=response_to_init pmi_version=1 pmi_subversion=1 rc=0\n";
    let vectors = [
        ("", "get an answer to init: the process manager has closed the connection"),
        ("cmd=resp", "get an answer to init: the process manager has closed the connection"),
        ("HTTP/1.1 400 Bad Request\n", "understand the answer to init"),
        ("cmd=barrier_out rc=0\n", "understand the answer to init: it answers a different request"),
        (
            "cmd=response_to_init pmi_version=2 pmi_subversion=0 rc=1\n",
            "execute init: the process manager answered rc=1",
        ),
        (init, "get an answer to get_maxes: the process manager has closed the connection"),
    ];
    for (answers, text) in vectors {
        assert_eq!(mocked(answers).unwrap_err().to_string(), text);
    }
}

#[test]
fn a_silent_process_manager_times_out() {
    let (here, _there) = UnixStream::pair().unwrap();
    let limits = Limits { answer: Duration::from_millis(20), ..LIMITS };
    let error = Pmi::over_socket(here, 0, 1, limits).unwrap_err();
    assert_eq!(error.to_string(), "get an answer to init from the process manager within 20ms");
}

#[test]
fn without_a_launcher_there_is_no_job_to_join() {
    assert!(Pmi::from_env(&Env::default(), LIMITS).unwrap().is_none());
}
