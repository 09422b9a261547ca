//! Daemons and users of other machines: tokens, certificates, and programs that have neither. A directory of its own for each
//! daemon stands for another machine: there a daemon finds no other daemon of its user.

use std::fs;
use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use prost::Message;
use rsd_proto::services::link_client::LinkClient;
use rsd_proto::transport::token::Token;
use rsd_proto::transport::{Dialer, Own, Target, access_client, dial, dvm_client, exit_code, link_client, renewal};
use rsd_proto::v1::{
    Credentials, Hello, JobSpec, ListJobsRequest, NodeHello, NodeInfo, RenewRequest, StepHello, Up, UpgradeRequest,
    hello, up,
};
use rsd_tests::{Call, Dvm, Options, Running, built, eventually, state_dir};
use serde_json::Value;
use tokio_stream::StreamExt;

/// Far above a refusal on a busy machine, and below the deadline for a head that does not answer.
const AT_ONCE: Duration = Duration::from_secs(5);
const WITHIN: Duration = Duration::from_secs(20);

/// A head that listens, alone in its DVM.
fn head() -> Dvm {
    let mut dvm = Dvm::start_with(Options { nodes: 0, slots: 2, args: Vec::new() });
    dvm.add(&["--listen".to_owned(), "127.0.0.1:0".to_owned()]);
    dvm
}

/// The directory of another machine.
fn elsewhere(dvm: &Dvm, name: &str) -> PathBuf {
    let dir = dvm.runtime_dir(0).with_file_name(name);
    fs::create_dir_all(&dir).expect("the DVM's directory is writable");
    fs::set_permissions(&dir, fs::Permissions::from_mode(0o700)).expect("the directory belongs to this user");
    dir
}

/// A program on the other machine.
fn there(dvm: &Dvm, name: &str, program: &Path) -> Call {
    let dir = elsewhere(dvm, name);
    let call = dvm.call(program).env("RSD_RUNTIME_DIR", &dir).env("RSD_STATE_DIR", dir.join("state"));
    call.env("XDG_CONFIG_HOME", &dir)
}

/// `rsd start --join` on the other machine.
fn joining(dvm: &Dvm, name: &str, words: &[&str]) -> Call {
    let start = ["start", "--foreground", "--name", name, "--slots", "2", "--join", &dvm.listen()];
    there(dvm, name, built::rsd()).args(start).args(words)
}

fn token(dvm: &Dvm, words: &[&str]) -> String {
    dvm.call(built::rsd()).args(["token", "new", "--quiet"]).args(words).ok().trim().to_owned()
}

fn until_ready(node: &Running) {
    node.until_stdout(|out| out.contains("ready").then_some(()));
}

/// The names and states of the nodes.
fn nodes(dvm: &Dvm) -> Vec<(u64, String, String)> {
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    let nodes = dvm.json("nodes");
    let nodes = nodes["nodes"].as_array().into_iter().flatten();
    nodes.map(|node| (node["node"].as_u64().unwrap_or(99), text(&node["name"]), text(&node["state"]))).collect()
}

fn until_up(dvm: &Dvm, count: usize) {
    eventually("all nodes are up", WITHIN, || {
        let nodes = nodes(dvm);
        (nodes.len() == count && nodes.iter().all(|(_, _, state)| state == "up")).then_some(())
    });
}

fn credentials(dvm: &Dvm, name: &str) -> Credentials {
    let bytes = fs::read(state_dir(&elsewhere(dvm, name), name).join("credentials")).expect("the node has joined");
    Credentials::decode(&*bytes).expect("the file is a message")
}

fn block_on<T>(future: impl Future<Output = T>) -> T {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime can be created");
    runtime.block_on(future)
}

/// Submits a job over this connection; returns the refusal.
async fn refused_submit(target: Target) -> tonic::Status {
    let channel = dial(&target, WITHIN).await.expect("the head accepts connections");
    dvm_client(channel).submit(JobSpec::default()).await.expect_err("the caller may not submit")
}

fn jobs(dvm: &Dvm) -> usize {
    dvm.json("ps -a")["jobs"].as_array().map_or(99, Vec::len)
}

/// Checks that the head has logged this text, and only once.
#[track_caller]
fn logged_once(dvm: &Dvm, text: &str) {
    // The log arrives through a pipe.
    let count = eventually(&format!("the head logs `{text}`"), WITHIN, || {
        Some(dvm.log(0).matches(text).count()).filter(|count| *count > 0)
    });
    assert_eq!(count, 1, "{text}: {}", dvm.log(0));
}

#[test]
fn a_daemon_joins_by_a_token_and_needs_none_after_a_restart() {
    let mut dvm = head();
    let file = dvm.file("token", token(&dvm, &["--uses", "1"]));
    fs::set_permissions(&file, fs::Permissions::from_mode(0o600)).expect("the file belongs to this user");
    let node = joining(&dvm, "far", &["--token-file", &file]).start();
    until_ready(&node);
    assert_eq!(dvm.ctl("run -n 4 echo hello").ok(), "hello\n".repeat(4));
    let path = state_dir(&elsewhere(&dvm, "far"), "far").join("credentials");
    assert_eq!(fs::metadata(path).expect("the node has joined").permissions().mode() & 0o777, 0o600);
    let authority = dvm.state_dir(0).join("authority");
    assert_eq!(fs::metadata(authority).expect("the head listens").permissions().mode() & 0o777, 0o600);

    // Neither a restart of the node nor one of the head changes the node, and the token is used up.
    node.signal(nix::sys::signal::Signal::SIGKILL);
    drop(node);
    let node = joining(&dvm, "far", &[]).start();
    until_ready(&node);
    until_up(&dvm, 2);
    let listen = dvm.listen();
    dvm.kill(0);
    dvm.restart_with(0, &["--listen".to_owned(), listen]);
    until_up(&dvm, 2);
    assert_eq!(nodes(&dvm)[1].0, 1, "it keeps its id");
    // A token that is used up stands in a service's options for ever.
    drop(node);
    let node = joining(&dvm, "far", &["--token-file", &file]).start();
    until_ready(&node);
    until_up(&dvm, 2);
    assert_eq!(nodes(&dvm).len(), 2);
}

#[test]
fn a_daemon_of_the_same_user_and_machine_joins_without_a_token() {
    let dvm = Dvm::start(2);
    until_up(&dvm, 2);
    let tokens: Value = serde_json::from_str(&dvm.call(built::rsd()).args(["token", "list", "--json"]).ok()).unwrap();
    assert!(tokens["tokens"].as_array().is_some_and(|all| all.iter().any(|one| one["uses_left"] == 0)), "{tokens}");
}

#[test]
fn wrong_tokens_are_refused_at_once_with_the_reason_and_logged() {
    let dvm = head();
    let good = token(&dvm, &[]);
    let used = token(&dvm, &["--uses", "1"]);
    let first = joining(&dvm, "first", &["--token", &used]).start();
    until_ready(&first);
    let revoked = token(&dvm, &[]);
    let number = format!("{:016x}", revoked.parse::<Token>().expect("rsd prints tokens").id);
    dvm.call(built::rsd()).args(["token", "revoke", &number]).ok();
    let expired = token(&dvm, &["--ttl", "1ms"]);
    let mut wrong: Token = good.parse().expect("rsd prints tokens");
    wrong.secret[0] ^= 1;
    let other = head();
    let foreign = token(&other, &[]);
    let rows = [
        (wrong.to_text(), "unknown token: make a new one on the head's machine: rsd token new"),
        (used, "the token is used up: "),
        (revoked, "the token has been revoked: "),
        (expired, "the token has expired: "),
        (foreign, "the token is of another DVM than the daemon there: "),
    ];
    for (at, (token, reason)) in rows.iter().enumerate() {
        for _ in 0..2 {
            let began = Instant::now();
            let said = joining(&dvm, &format!("late{at}"), &["--token", token]).fails(245);
            assert!(said.contains(reason), "{reason}: {said}");
            assert!(began.elapsed() < AT_ONCE, "{reason}: {:?}", began.elapsed());
        }
    }
    let said = joining(&dvm, "none", &[]).fails(245);
    assert!(said.contains("no token") && said.contains("rsd token new"), "{said}");
    let said = joining(&dvm, "none", &["--token", &good[..60]]).fails(240);
    assert!(said.contains("not a join token"), "{said}");
    for reason in ["unknown token", "used up", "revoked", "expired"] {
        logged_once(&dvm, reason);
    }
    assert_eq!(nodes(&dvm).len(), 2);
    assert!(!dvm.log(0).contains(&good[5..]), "no log has a token");
}

#[test]
fn tokens_are_printed_listed_and_revoked() {
    let dvm = head();
    let rsd = |line: &str| dvm.call(built::rsd()).args(line.split_whitespace());
    let text = rsd("token new").ok();
    let mut lines = text.lines();
    let made: Token = lines.next().and_then(|line| line.parse().ok()).expect("the first line is the token");
    let join = format!("rsd start --join {} --token", dvm.listen());
    assert!(lines.next().is_some_and(|line| line.contains(&join)), "{text}");
    rsd("token new --ttl 1h --uses 1").ok();
    let listed = rsd("token list").ok();
    let row = |id: u64| listed.lines().find(|line| line.starts_with(&format!("{id:016x}"))).map(str::to_owned);
    assert!(row(made.id).is_some_and(|row| row.contains("32/32") && row.contains("valid for")), "{listed}");
    assert!(listed.lines().any(|line| line.contains("1/1") && line.contains(" 59 minutes")), "{listed}");
    assert_eq!(rsd(&format!("token revoke {:016x}", made.id)).ok(), format!("revoked token {:016x}\n", made.id));
    assert!(rsd("token list").ok().contains("revoked"));
    assert!(rsd("token revoke 5f0c1e0a9b3d7e21").fails(246).contains("rsd token list"));
    let alone = Dvm::start(1);
    let said = alone.call(built::rsd()).args(["token", "new"]).fails(240);
    assert!(said.contains("restart its head with --listen"), "{said}");
}

#[test]
fn tokens_survive_a_restart_of_the_head() {
    let mut dvm = head();
    let text = token(&dvm, &["--uses", "1"]);
    let listen = dvm.listen();
    dvm.kill(0);
    dvm.restart_with(0, &["--listen".to_owned(), listen]);
    let node = joining(&dvm, "far", &["--token", &text]).start();
    until_ready(&node);
    let said = joining(&dvm, "later", &["--token", &text]).fails(245);
    assert!(said.contains("used up"), "{said}");
}

#[test]
fn a_program_that_has_taken_the_port_of_a_dead_head_is_not_trusted() {
    let mut dvm = Dvm::start(2);
    let listen = dvm.listen();
    dvm.kill(0);
    // A head of another DVM: it would launch jobs on the node.
    let rogue = there(&dvm, "rogue", built::rsd());
    let rogue = rogue.args(["start", "--foreground", "--name", "rogue", "--listen", &listen, "--slots", "1"]).start();
    until_ready(&rogue);
    eventually("the node has seen the rogue", WITHIN, || {
        dvm.log(1).contains("does not belong to this DVM").then_some(())
    });
    let seen = there(&dvm, "rogue", built::rsctl()).args(["--dvm", "rogue", "nodes", "--json"]).ok();
    let seen: Value = serde_json::from_str(&seen).expect("rsctl prints JSON");
    assert_eq!(seen["nodes"].as_array().map(Vec::len), Some(1), "{seen}");
    there(&dvm, "rogue", built::rsd()).args(["stop", "--dvm", "rogue"]).ok();
    drop(rogue);

    // A program that speaks no TLS learns nothing but that a TLS handshake begins.
    let listener = TcpListener::bind(&listen).expect("the port is free again");
    let (mut stream, _) = listener.accept().expect("the node dials again");
    let mut first = [0; 1];
    stream.read_exact(&mut first).expect("the node begins a handshake");
    assert_eq!(first, [22]);
    stream.write_all(b"HTTP/1.1 200 OK\r\n\r\n").expect("the node is connected");
    drop((stream, listener));
    dvm.restart(0);
    until_up(&dvm, 2);
    assert_eq!(dvm.ctl("run -n 8 echo hello").ok(), "hello\n".repeat(8));
}

#[test]
fn without_a_certificate_nothing_but_enrolling_is_possible() {
    let dvm = head();
    let known: Token = token(&dvm, &[]).parse().expect("rsd prints tokens");
    let target = || Target::Tcp(dvm.listen(), Dialer::of_newcomer(known.authority).expect("the settings are right"));
    let refusal = block_on(refused_submit(target()));
    assert_eq!(exit_code(&refusal), Some(245), "{refusal}");
    assert!(refusal.message().starts_with("it has no certificate of this DVM: get a token"), "{refusal}");
    let refusal = block_on(async {
        let channel = dial(&target(), WITHIN).await.expect("the head accepts connections");
        dvm_client(channel)
            .list_jobs(ListJobsRequest { all: true, ..ListJobsRequest::default() })
            .await
            .expect_err("the caller may not ask")
    });
    assert_eq!(exit_code(&refusal), Some(245), "{refusal}");
    let refusal = block_on(attach(target(), node_hello("", 1)));
    assert_eq!(exit_code(&refusal), Some(245), "{refusal}");
    assert_eq!(jobs(&dvm), 0);
    logged_once(&dvm, "it has no certificate of this DVM");
}

#[test]
fn another_user_cannot_submit_through_the_tcp_port() {
    if !nix::unistd::Uid::effective().is_root() {
        eprintln!("skipped: only root can become another user");
        return;
    }
    let dvm = head();
    let (host, port) = dvm.listen().rsplit_once(':').map(|(a, b)| (a.to_owned(), b.to_owned())).expect("HOST:PORT");
    // The other user sends a request as an rsd of today would understand it without TLS, and closes at once: 200 times in plain
    // text, then inside TLS without a certificate.
    let script = r#"
import socket, ssl, sys
host, port = sys.argv[1], int(sys.argv[2])
preface = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + bytes([0, 0, 0, 4, 0, 0, 0, 0, 0])
answers = set()
for attempt in range(200):
    with socket.create_connection((host, port), 5) as plain:
        plain.sendall(preface)
        answers.add(plain.recv(12))
context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
context.set_alpn_protocols(["h2"])
with socket.create_connection((host, port), 5) as plain, context.wrap_socket(plain) as tls:
    path = b"/rsd.v1.Dvm/Submit"
    literal = lambda name, value: bytes([0, len(name)]) + name + bytes([len(value)]) + value
    headers = literal(b":method", b"POST") + literal(b":scheme", b"http") + literal(b":path", path)
    headers += literal(b":authority", b"rsd") + literal(b"content-type", b"application/grpc")
    headers += literal(b"te", b"trailers") + literal(b"rsd-protocol", b"4")
    frame = len(headers).to_bytes(3, "big") + bytes([1, 4, 0, 0, 0, 1]) + headers
    body = bytes([0, 0, 0, 0, 0])
    tls.sendall(preface + frame + len(body).to_bytes(3, "big") + bytes([0, 1, 0, 0, 0, 1]) + body)
    tls.settimeout(5)
    types = lambda got: {got[3]} | types(got[9 + int.from_bytes(got[:3], "big"):]) if len(got) > 8 else set()
    got = b""
    while 1 not in types(got):
        got += tls.recv(65536)
    print(sorted(answers), "answered")
"#;
    let said = Call::new("python3").dir("/").user(65_534).args(["-c", script, &host, &port]).ok();
    assert_eq!(said, "[b'HTTP/1.1 400'] answered\n");
    logged_once(&dvm, "it has no certificate of this DVM");
    assert_eq!(jobs(&dvm), 0);
    logged_once(&dvm, "it does not speak TLS");
}

#[test]
fn a_silent_connection_delays_nobody_and_is_closed() {
    let dvm = head();
    let text = token(&dvm, &[]);
    let began = Instant::now();
    let mut silent: Vec<TcpStream> =
        (0..300).map(|_| TcpStream::connect(dvm.listen()).expect("the head accepts connections")).collect();
    let node = joining(&dvm, "far", &["--token", &text]).start();
    until_ready(&node);
    assert!(began.elapsed() < AT_ONCE, "{:?}", began.elapsed());
    for stream in &mut silent {
        stream.set_read_timeout(Some(AT_ONCE)).expect("the socket is open");
        assert_eq!(stream.read(&mut [0; 1]).unwrap_or(0), 0, "the head closes it");
    }
    assert!(began.elapsed() < 2 * AT_ONCE, "{:?}", began.elapsed());
}

#[test]
fn a_certificate_of_another_dvm_is_refused() {
    let (dvm, other) = (head(), head());
    let [ours, theirs] = [&dvm, &other].map(|dvm| {
        let node = joining(dvm, "far", &["--token", &token(dvm, &[])]).start();
        until_ready(&node);
        (credentials(dvm, "far"), node)
    });
    // A daemon there does not trust this head either.
    let own = Own::new(&theirs.0).expect("the credentials are right");
    let error = block_on(dial(&Target::Tcp(dvm.listen(), own.dialer(None)), WITHIN)).expect_err("another authority");
    assert!(error.to_string().starts_with("the daemon there does not belong to this DVM"), "{error}");
    // A caller that trusts this head and shows a certificate of the other.
    let mixed = Credentials { authority: ours.0.authority.clone(), dvm: ours.0.dvm.clone(), ..theirs.0.clone() };
    let own = Own::new(&mixed).expect("the certificate belongs to its key");
    let refusal = block_on(refused_submit(Target::Tcp(dvm.listen(), own.dialer(None))));
    assert!(refusal.message().starts_with("its certificate is of another DVM: "), "{refusal}");
    assert_eq!(jobs(&dvm), 0);
}

fn node_hello(dvm: &str, node: u32) -> Hello {
    let nodes = vec![NodeInfo { node, name: "posing".into(), ..NodeInfo::default() }];
    let who = hello::Who::Node(NodeHello { nodes, dvm: dvm.to_owned(), ..NodeHello::default() });
    Hello { version: rsd_proto::VERSION.into(), who: Some(who) }
}

/// Attaches with this hello; returns the refusal.
async fn attach(target: Target, hello: Hello) -> tonic::Status {
    let channel = dial(&target, WITHIN).await.expect("the head accepts connections");
    let ups = tokio_stream::once(Up { body: Some(up::Body::Hello(hello)) }).chain(tokio_stream::pending());
    match link_client(channel).attach(ups).await {
        Ok(downs) => downs.into_inner().message().await.expect_err("the child is refused"),
        Err(status) => status,
    }
}

#[test]
fn a_node_cannot_pose_as_another_node_or_as_a_step() {
    let dvm = head();
    let node = joining(&dvm, "far", &["--token", &token(&dvm, &[])]).start();
    until_ready(&node);
    let own = Own::new(&credentials(&dvm, "far")).expect("the credentials are right");
    let target = || Target::Tcp(dvm.listen(), own.dialer(Some(0)));
    let own_dvm = credentials(&dvm, "far").dvm;
    for (hello, named) in [
        (node_hello(&own_dvm, 2), "node 2"),
        (node_hello(&own_dvm, 0), "node 0"),
        (Hello { who: Some(hello::Who::Step(StepHello::default())), ..Hello::default() }, "not a node"),
    ] {
        let refusal = block_on(attach(target(), hello));
        let expected = format!("the caller says that it is {named}, and its certificate is that of node 1");
        assert_eq!(refusal.message(), expected);
    }
    // The head would take it for a new node and give it another id.
    for other in ["", "0123456789abcdef"] {
        let refusal = block_on(attach(target(), node_hello(other, 1)));
        assert_eq!(exit_code(&refusal), Some(245), "{refusal}");
        assert!(refusal.message().starts_with("the caller says that it is of DVM"), "{refusal}");
    }
    assert_eq!(nodes(&dvm).len(), 2);
    let posing = Target::Tcp(dvm.listen(), own.dialer(Some(5)));
    let error = block_on(dial(&posing, WITHIN)).expect_err("the head is not node 5");
    assert!(error.to_string().contains("another node of the DVM than the expected one"), "{error}");
    until_up(&dvm, 2);
}

#[test]
fn a_node_gets_a_new_certificate_for_its_own_id_without_a_token() {
    let dvm = head();
    let node = joining(&dvm, "far", &["--token", &token(&dvm, &["--uses", "1"]), "--listen", "127.0.0.1:0"]).start();
    until_ready(&node);
    let before = credentials(&dvm, "far");
    let own = Own::new(&before).expect("the credentials are right");
    // Through the node's own port, too: it is not the head, and names the head.
    let record = fs::read(elsewhere(&dvm, "far").join("far/daemon.json")).expect("the node runs");
    let record: Value = serde_json::from_slice(&record).expect("daemon.json is JSON");
    let inner = record["listen"].as_str().expect("the node listens").to_owned();
    let renewed = |address: &str| block_on(renewal::renew(&own, address, WITHIN)).expect("it is a node");
    renewed(&inner);
    let after = renewed(&dvm.listen());
    assert_eq!((after.node, &after.dvm, &after.authority), (Some(1), &before.dvm, &before.authority));
    assert!(after.until_ms >= before.until_ms && after.from_ms >= before.from_ms && after.key != before.key);
    own.replace(&after).expect("the certificate belongs to its key");
    let refusal = block_on(attach(Target::Tcp(dvm.listen(), own.dialer(Some(0))), node_hello(&before.dvm, 2)));
    assert!(refusal.message().ends_with("its certificate is that of node 1"), "{refusal}");
    // Without a certificate of its own, a caller cannot renew one.
    let known: Token = token(&dvm, &[]).parse().expect("rsd prints tokens");
    let guest = Dialer::of_newcomer(known.authority).expect("the settings are right");
    let refusal = block_on(async {
        let channel = dial(&Target::Tcp(dvm.listen(), guest), WITHIN).await.expect("the head accepts connections");
        access_client(channel).renew(RenewRequest::default()).await.expect_err("the caller is a guest")
    });
    assert_eq!(exit_code(&refusal), Some(245), "{refusal}");
}

#[test]
fn calls_through_another_daemon_share_a_connection_that_survives_the_heads_restart() {
    const CALLS: usize = 20;
    let mut dvm = Dvm::start(2);
    let job = dvm.submit(["-n", "1", "sleep", "1000"]);
    let files = |dvm: &Dvm, at| rsd_tests::processes::open_files(dvm.pid(at)).expect("the daemon runs");
    dvm.ctl("--dvm node1 ps").ok();
    let before = (files(&dvm, 0), files(&dvm, 1));
    let get = || dvm.ctl(&format!("--dvm node1 kv get missing --job {job} --timeout 1m")).start();
    let waiting: Vec<Running> = (0..CALLS).map(|_| get()).collect();
    // The first count may include the connection of the call before it.
    eventually("all calls have arrived", WITHIN, || (files(&dvm, 1) + 2 >= before.1 + CALLS).then_some(()));
    dvm.ctl("--dvm node1 ps").ok(); // after these calls, on the same connection
    let more = (files(&dvm, 0).saturating_sub(before.0), files(&dvm, 1).saturating_sub(before.1));
    assert!(more.0 < CALLS / 2 && more.1 < CALLS + CALLS / 2, "each call has a connection: {more:?}");
    drop(waiting);
    dvm.ctl(&format!("cancel {job} --grace 0")).ok();
    dvm.ctl(&format!("wait {job}")).end();
    dvm.kill(0);
    dvm.restart(0);
    eventually("calls pass again", WITHIN, || dvm.ctl("--dvm node1 ps").end().status.success().then_some(()));
}

#[test]
fn idle_callers_without_a_certificate_keep_nobody_from_joining() {
    let dvm = head();
    let text = token(&dvm, &[]);
    let known: Token = text.parse().expect("rsd prints tokens");
    block_on(async {
        let mut idle = Vec::new();
        for _ in 0..300 {
            let guest = Dialer::of_newcomer(known.authority).expect("the settings are right");
            // The oldest are closed as soon as there are too many.
            idle.extend(dial(&Target::Tcp(dvm.listen(), guest), WITHIN).await.ok());
        }
        assert!(idle.len() > 250, "{} of 300", idle.len());
        let began = Instant::now();
        let node = joining(&dvm, "far", &["--token", &text]).start();
        until_ready(&node);
        assert!(began.elapsed() < AT_ONCE, "{:?}", began.elapsed());
    });
}

#[test]
fn a_daemon_of_another_protocol_is_refused_with_both_versions_and_logged() {
    let dvm = head();
    let node = joining(&dvm, "far", &["--token", &token(&dvm, &[])]).start();
    until_ready(&node);
    let own = Own::new(&credentials(&dvm, "far")).expect("the credentials are right");
    let refusal = block_on(async {
        let channel = dial(&Target::Tcp(dvm.listen(), own.dialer(None)), WITHIN).await.expect("the head accepts");
        let mut request = tonic::Request::new(tokio_stream::once(Up::default()));
        request.metadata_mut().insert("rsd-protocol", tonic::metadata::MetadataValue::from_static("99"));
        request.metadata_mut().insert("rsd-version", tonic::metadata::MetadataValue::from_static("9.9.9"));
        LinkClient::new(channel).attach(request).await.expect_err("another protocol is refused")
    });
    assert_eq!(exit_code(&refusal), Some(244));
    assert!(refusal.message().contains("9.9.9") && refusal.message().contains(rsd_proto::VERSION), "{refusal}");
    logged_once(&dvm, "9.9.9 (protocol 99)");
}

#[test]
fn a_user_on_another_machine_logs_in_and_runs_jobs() {
    let dvm = head();
    let listen = dvm.listen();
    let rsctl = |words: &[&str]| there(&dvm, "desk", built::rsctl()).args(words);
    let said = rsctl(&["--dvm", &listen, "ps"]).fails(245);
    assert!(said.contains("you have not logged in there") && said.contains("rsctl login"), "{said}");
    let said = rsctl(&["login", &listen, "--token", &token(&head(), &[])]).fails(245);
    assert!(said.contains("the token is of another DVM"), "{said}");
    let file = dvm.file("token", token(&dvm, &["--uses", "1"]));
    assert!(rsctl(&["login", &listen, "--token-file", &file]).ok().contains("for 7 days: rsctl --dvm "));
    let said = rsctl(&["login", &listen, "--token-file", &file]).fails(245);
    assert!(said.contains("used up"), "{said}");
    let stored = elsewhere(&dvm, "desk").join("rsd/logins").join(&listen);
    assert_eq!(fs::metadata(&stored).expect("the login is stored").permissions().mode() & 0o777, 0o600);
    assert_eq!(rsctl(&["--dvm", &listen, "run", "-n", "2", "echo", "hello"]).ok(), "hello\n".repeat(2));
    // A login of which a third is left is renewed by the next command.
    let login = || Credentials::decode(&*fs::read(&stored).expect("the login is stored")).expect("it is a message");
    let before = login();
    let aged = Credentials { from_ms: before.from_ms - 30 * 86_400_000, ..before.clone() };
    fs::write(&stored, aged.encode_to_vec()).expect("the file belongs to this user");
    rsctl(&["--dvm", &listen, "ps"]).ok();
    assert!(login().key != before.key && login().from_ms >= before.from_ms);
    // A user's certificate does not make a node, and makes no tokens.
    let own = Own::new(&login()).expect("the credentials are right");
    let refusal = block_on(attach(Target::Tcp(listen.clone(), own.dialer(None)), node_hello("", 1)));
    assert!(refusal.message().contains("does not allow rsd.v1.Link/Attach"), "{refusal}");
    // Nor does it replace the head's program.
    let refusal = block_on(async {
        let channel = dial(&Target::Tcp(listen.clone(), own.dialer(None)), WITHIN).await.expect("the head accepts");
        let request = UpgradeRequest { program: "/bin/true".into() };
        dvm_client(channel).upgrade(request).await.expect_err("it is not on this machine")
    });
    assert!(refusal.message().contains("replaced on its own machine"), "{refusal}");
    // On the head's machine the address leads to the unix socket and needs no login.
    assert_eq!(dvm.rsctl(["--dvm", &listen, "run", "-n", "1", "echo", "near"]).ok(), "near\n");
}

#[test]
fn a_starting_daemon_waits_for_its_head_while_another_program_has_the_port() {
    let mut dvm = Dvm::start(2);
    let listen = dvm.listen();
    dvm.kill(1);
    dvm.kill(0);
    let rogue = there(&dvm, "rogue", built::rsd());
    let rogue = rogue.args(["start", "--foreground", "--name", "rogue", "--listen", &listen, "--slots", "1"]).start();
    until_ready(&rogue);
    let node =
        dvm.call(built::rsd()).args(["start", "--foreground", "--name", "node1", "--slots", "4", "--join", &listen]);
    let node = node.start();
    eventually("the node has seen the other program", WITHIN, || {
        node.stderr().contains("does not belong to this DVM").then_some(())
    });
    there(&dvm, "rogue", built::rsd()).args(["stop", "--dvm", "rogue"]).ok();
    rogue.end().ok();
    dvm.restart(0);
    until_ready(&node);
    until_up(&dvm, 2);
    node.signal(nix::sys::signal::Signal::SIGTERM);
    node.end().ok();
}

#[test]
fn a_token_from_standard_input_survives_the_settings_file_and_is_printed_only_on_a_terminal() {
    let dvm = head();
    let settings = dvm.file("mine.toml", "[log]\nlevel = \"info\"\n");
    let words = ["--config", &settings, "--token-file", "-"];
    let node = joining(&dvm, "far", &words).stdin(token(&dvm, &["--uses", "1"])).start();
    until_ready(&node);
    until_up(&dvm, 2);
    // The harness reads this head's output through a pipe, which may as well lead to a log.
    let start = ["start", "--foreground", "--name", "second", "--listen", "127.0.0.1:0"];
    let second = there(&dvm, "second", built::rsd()).args(start).start();
    let said = second.until_stdout(|out| out.contains("join with").then(|| out.to_owned()));
    assert!(said.contains("--token TOKEN (rsd token new prints one)") && !said.contains("rsd1-"), "{said}");
    there(&dvm, "second", built::rsd()).args(["stop", "--dvm", "second"]).ok();
    second.end().ok();
    let line = format!("{} start --name third --listen 127.0.0.1:0", built::rsd().display());
    let seen = there(&dvm, "third", "script".as_ref()).args(["-qec", &line, "/dev/null"]).ok();
    assert!(seen.contains("--token rsd1-"), "{seen}");
    there(&dvm, "third", built::rsd()).args(["stop", "--dvm", "third"]).ok();
}
