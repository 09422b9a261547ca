//! Processes of another user on the same machine cannot join, and cannot take, change or end anything of this user's DVM.

use std::fs;
use std::io::{Read, Write};
use std::net::TcpStream;
use std::os::unix::fs::{PermissionsExt, chown};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use nix::unistd::Uid;
use rsd_proto::pmix::{Codec, Hello, Proc, Role};
use rsd_tests::{Call, Dvm, Mpi, Options, Running, built, client, copy_program, eventually, plain, python};

use crate::groups::{all_ok, hello_lines, member, until_waiting};

/// The uid of `nobody`.
const UID: u32 = 65_534;

/// The files that the other user can access: a directory with copies of programs, and the DVM's directory if its permissions
/// allow.
struct Stranger {
    dir: PathBuf,
    dvm: PathBuf,
}

impl Stranger {
    /// Returns `None` if this process cannot become another user.
    fn of(dvm: &Dvm) -> Option<Stranger> {
        if !Uid::effective().is_root() {
            eprintln!("skipped: only root can become another user");
            return None;
        }
        let ours = dvm.runtime_dir(0);
        let dir = ours.parent().expect("the directory has a parent").with_extension("stranger");
        fs::create_dir(&dir).expect("/tmp is writable");
        chown(&dir, Some(UID), Some(UID)).expect("root may change owners");
        for path in [&ours, &ours.join("..")] {
            fs::set_permissions(path, fs::Permissions::from_mode(0o755)).expect("the directory belongs to this user");
        }
        Some(Stranger { dir, dvm: ours })
    }

    /// A copy of a file that belongs to the other user.
    fn copy(&self, file: impl AsRef<Path>) -> PathBuf {
        let copy = self.dir.join(file.as_ref().file_name().expect("the path names a file"));
        copy_program(file, &copy);
        copy
    }

    fn call(&self, program: impl AsRef<Path>) -> Call {
        let call = Call::new(program.as_ref()).dir("/").env("RSD_RUNTIME_DIR", &self.dir).env("RSD_DVM", &self.dvm);
        call.env("LD_LIBRARY_PATH", &self.dir).env_remove("RSD_CONFIG").user(UID)
    }
}

impl Drop for Stranger {
    fn drop(&mut self) {
        // The directory is below /tmp, and no later test uses it.
        let _ = fs::remove_dir_all(&self.dir);
    }
}

/// A DVM that serves only this user, also if that is root.
fn of_one_user() -> Dvm {
    Dvm::start_with(Options { nodes: 1, slots: 4, args: vec!["--single-user".to_owned()] })
}

#[test]
fn another_user_cannot_use_or_change_a_dvm() {
    let dvm = of_one_user();
    let Some(stranger) = Stranger::of(&dvm) else { return };
    let (rsctl, hello) = (stranger.copy(built::rsctl()), Mpi::Ours.program("hello.c"));
    let names = Mpi::Ours.program("names.c");
    stranger.copy(Mpi::Ours.library_folder().join("libmpi_abi.so.1"));

    // The other user must not change these: a group that fills, and a name.
    let gated = ["sh", "-c", "echo \"PMI_PORT=$PMI_PORT PMI_ID=$PMI_ID\"; read line; exec $0", &hello];
    let start = || member(&dvm, 0, "actors --size 2", &gated).stdin_open().start();
    let mut members = vec![start()];
    let waiting = until_waiting(&dvm, "actors", 1);
    let pid = waiting[0]["pid"].to_string();
    let holder = dvm.rsctl(["run", "-n", "1", &names, "hold", "ocean", "1"]).start();
    holder.until_stdout(|out| out.contains("published").then_some(()));

    for words in [
        "group exec actors --size 2 -- true",
        "group env actors --size 2",
        "group create actors --size 1",
        "group close actors",
        &format!("group kick actors {pid}"),
        "group show actors",
        "group ls",
        "kv put key --group actors --value mine",
        "cancel last",
        "run -n 1 true",
    ] {
        let refused = stranger.call(&rsctl).args(words.split_whitespace()).fails(245);
        assert!(refused.contains("belongs to uid 0; use a daemon of your own: rsd start"), "{words}: {refused}");
    }
    // Nor by joining without rsctl, while the DVM's directory is open, and while it is closed.
    let header = Mpi::Ours.program_with("join.c", &[&format!("-I{}", client("include").display())]);
    let header = stranger.copy(header);
    stranger.copy(client("python").join("rsd_join.py"));
    let module = "import rsd_join, sys\ntry: rsd_join.join('actors', size=2, timeout='5s')\n\
                  except rsd_join.JoinError as error: sys.exit(f'refused {error.code}: {error}')";
    let runtime_dir = dvm.runtime_dir(0).join("..");
    for mode in [0o700, 0o755] {
        fs::set_permissions(&runtime_dir, fs::Permissions::from_mode(mode))
            .expect("the directory belongs to this user");
        stranger.call(&rsctl).args(["group", "ls"]).fails(245);
        let in_python = stranger.call("python3").env("PYTHONPATH", &stranger.dir).args(["-c", module]);
        for call in [stranger.call(&header).args(["actors", "2", "5"]), in_python] {
            let refused = call.fails(1);
            assert!(refused.contains("refused 245: ") && refused.contains("belongs to uid 0; use"), "{refused}");
        }
    }
    let refused = stranger.call(stranger.copy(&names)).args(["hold", "ocean", "1"]).end();
    assert!(!refused.status.success() && refused.err().contains("belongs to uid 0"), "{refused}");

    // Nor by sockets that were made accessible to all users.
    let ask = plain("ask.c");
    let preface = "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\u{0}\u{0}\u{0}\u{4}\u{0}\u{0}\u{0}\u{0}\u{0}";
    for (socket, text) in [("join.sock", "hello\n"), ("rsd.sock", preface)] {
        let path = dvm.runtime_dir(0).join(socket);
        assert_eq!(fs::metadata(&path).expect("the socket exists").permissions().mode() & 0o777, 0o600);
        fs::set_permissions(&path, fs::Permissions::from_mode(0o666)).expect("the socket belongs to this user");
        assert_eq!(stranger.call(stranger.copy(&ask)).args([&path]).stdin(text).ok(), "closed\n", "{socket}");
        assert_eq!(dvm.call(&ask).args([&path]).stdin(text).ok(), "answered\n", "{socket}");
    }
    assert_eq!(until_waiting(&dvm, "actors", 1)[0]["pid"].to_string(), pid);

    // Nor with a member's credentials, which the other user may have read somewhere.
    members.push(start());
    let place = members[0].until_stdout(|out| out.lines().find(|line| line.contains("PMI_ID=")).map(str::to_owned));
    let mut thief = stranger.call(stranger.copy(&hello));
    for (name, value) in place.split_whitespace().filter_map(|word| word.split_once('=')) {
        thief = thief.env(name, value);
    }
    let refused = thief.end();
    assert!(refused.err().contains("the process manager has closed the connection"), "{refused}");

    members.iter_mut().for_each(|member| member.write(b"go\n"));
    let mut lines = all_ok(members);
    lines.retain(|line| !line.contains("PMI_ID="));
    assert_eq!(lines, hello_lines(1, 2));
    dvm.call(&names).args(["connect", "ocean", "1"]).ok();
    assert_eq!(holder.end().ok(), "published\nnames ok on 1\n");
}

#[test]
fn idle_connections_of_another_user_keep_no_group_from_starting() {
    let dvm = of_one_user();
    let Some(stranger) = Stranger::of(&dvm) else { return };
    let gated = ["sh", "-c", "echo \"PMI_PORT=$PMI_PORT\"; read line; exec $0", &Mpi::Ours.program("hello.c")];
    let mut members = [0, 1].map(|_| member(&dvm, 0, "actors --size 2", &gated).stdin_open().start());
    let port = members[0]
        .until_stdout(|out| out.lines().find_map(|line| line.strip_prefix("PMI_PORT=127.0.0.1:").map(str::to_owned)));
    let script = "import socket, sys\n\
                  idle = [socket.create_connection(('127.0.0.1', int(sys.argv[1]))) for _ in range(900)]\n\
                  print('open', flush=True); sys.stdin.read()";
    let flood = stranger.call("python3").args(["-c", script, &port]).stdin_open().start();
    flood.until_stdout(|out| out.contains("open").then_some(()));
    let began = std::time::Instant::now();
    members.iter_mut().for_each(|member| member.write(b"go\n"));
    let mut lines = all_ok(members.into());
    lines.retain(|line| !line.contains("PMI_PORT="));
    assert_eq!(lines, hello_lines(1, 2));
    assert!(began.elapsed() < std::time::Duration::from_secs(8), "{:?}", began.elapsed());
}

/// Binds the socket names of the next jobs as they would follow from the DVM's name, the job's number and the rank alone.
const SQUATTER: &str = r#"
import socket, sys
def fnv(text, value):
    for byte in text:
        value = ((value ^ byte) * 0x100000001b3) & (2**64 - 1)
    return value
held = []
for job in range(1, 9):
    name = f'rsd-{sys.argv[1]}-{job}'.encode()
    world = f'{fnv(name, 0xcbf29ce484222325):016x}{fnv(name, 0x6c62272e07bb0142) >> 32:08x}{job:08x}'
    for rank in range(4):
        one = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        one.bind(f'\0rsd-mpi-{world}-{rank}')
        one.listen(9)
        held.append(one)
print('bound', flush=True)
sys.stdin.read()
"#;

#[test]
fn the_names_of_the_mpi_librarys_sockets_cannot_be_computed_by_others() {
    let dvm = Dvm::start(1);
    let Some(stranger) = Stranger::of(&dvm) else { return };
    let record = dvm.record(0);
    let of = record["dvm"].as_str().expect("a daemon's record names its DVM");
    let mut squatter = stranger.call("python3").args(["-c", SQUATTER, of]).stdin_open().start();
    squatter.until_stdout(|out| out.contains("bound").then_some(()));
    let hello = Mpi::Ours.program("hello.c");
    for _ in 0..2 {
        let printed = dvm.rsctl(["run", "-n", "4", &hello]).ok();
        assert_eq!(printed.lines().count(), 4, "{printed}");
    }
    let namespaces: Vec<String> =
        (0..2).map(|_| dvm.ctl("run -n 1 printenv RSD_PMI_NAMESPACE").ok().trim().to_owned()).collect();
    for (namespace, job) in namespaces.iter().zip(3..) {
        let random =
            namespace.strip_prefix(&format!("rsd-{of}.")).and_then(|rest| rest.strip_suffix(&format!("-{job}")));
        assert!(random.is_some_and(|random| random.len() == 24), "{namespaces:?}");
    }
    let random = |at: usize| namespaces[at].rsplit_once('.').map(|(_, rest)| rest[..24].to_owned());
    assert_ne!(random(0), random(1));
    squatter.close_stdin();
    squatter.end().ok();
}

/// The port of the PMIx server and the namespace of a job of two ranks: rank 1 waits in MPI_Init, rank 0 for a line.
fn pmix_of(job: &Running) -> (u16, String) {
    job.until_stdout(|out| {
        let (uri, namespace) = out.lines().next()?.split_once(' ')?;
        Some((uri.rsplit(':').next()?.parse().ok()?, namespace.to_owned()))
    })
}

fn gated_job(dvm: &Dvm) -> Running {
    let interpreter = Mpi::OpenMpi5.python().expect("it brings mpi4py").display().to_string();
    let [_, path] = python("world.py");
    let script = "if [ $RSD_RANK = 0 ]; then echo $PMIX_SERVER_URI41 $PMIX_NAMESPACE; read line; fi; exec \"$@\"";
    let call = dvm.rsctl(["run", "-n", "2", "sh", "-c", script, "sh", &interpreter, &path]);
    let job = call.env("OMPI_MCA_pml", "ob1").stdin_open().start();
    eventually("rank 1 waits in MPI_Init", Duration::from_secs(30), || {
        dvm.rsctl(["waits"]).ok().contains("fence").then_some(())
    });
    job
}

#[test]
fn another_user_at_the_pmix_port_is_refused_by_the_kernels_word() {
    let dvm = of_one_user();
    let Some(stranger) = Stranger::of(&dvm) else { return };
    let mut job = gated_job(&dvm);
    let (port, namespace) = pmix_of(&job);
    let port = port.to_string();
    let [_, knock] = python("knock.py");
    let knock = stranger.copy(knock);
    for rank in ["0", "1"] {
        assert_eq!(stranger.call("python3").args([&knock]).args([&port, &namespace, rank]).ok(), "closed\n");
    }
    // The job's own user is accepted as a rank, but not as a process that does not exist.
    let own = |namespace: &str, rank| dvm.call("python3").args([&knock]).args([&port, namespace, rank]).ok();
    assert_eq!(own(&namespace, "1"), "accepted\n");
    assert_eq!((own(&namespace, "2"), own("rsd-a.b-1", "1")), ("refused\n".into(), "refused\n".into()));
    job.write(b"go\n");
    assert!(job.end().ok().contains("world right on 2"));
}

#[test]
fn garbage_and_idle_connections_at_the_pmix_port_do_not_disturb_a_job() {
    let dvm = Dvm::start(1);
    let mut job = gated_job(&dvm);
    let (port, namespace) = pmix_of(&job);
    let connect = || {
        let stream = TcpStream::connect(("127.0.0.1", port)).expect("the port is open");
        stream.set_read_timeout(Some(Duration::from_secs(30))).expect("it is a socket");
        stream
    };
    let idle: Vec<TcpStream> = (0..200).map(|_| connect()).collect();
    // How long until the server closes a connection that has sent this.
    let closed_after = |bytes: &[u8]| {
        let (mut stream, began, mut rest) = (connect(), Instant::now(), Vec::new());
        // It may be closed before all is written.
        let _ = stream.write_all(bytes);
        let end = stream.read_to_end(&mut rest);
        assert!(rest.is_empty() && !end.is_err_and(|error| error.kind() == std::io::ErrorKind::WouldBlock), "{rest:?}");
        began.elapsed()
    };
    let hello =
        Hello { role: Role::Client, proc: Proc::new(&namespace, 1), version: "5.0.11".into(), codec: Codec::V41 }
            .encode(0, 0);
    let garbage: Vec<u8> = (0..70_000_u32).map(|at| (at.wrapping_mul(2_654_435_761) >> 24) as u8).collect();
    let mut oversized = hello.clone();
    oversized[8..12].copy_from_slice(&(1_u32 << 30).to_ne_bytes());
    let soon = Duration::from_secs(5);
    assert!(closed_after(&garbage) < soon && closed_after(&oversized) < soon);
    // A client that says who it is and breaks the protocol afterwards is closed alone.
    let mut broken = connect();
    broken.write_all(&hello).expect("the server reads");
    broken.read_exact(&mut [0; 8]).expect("it is accepted");
    broken.write_all(&[0xff; 64]).expect("the server reads");
    assert_eq!(broken.read(&mut [0; 8]).ok(), Some(0));
    // The ranks start and fence while 200 connections say nothing.
    job.write(b"go\n");
    assert!(job.end().ok().contains("world right on 2"));
    drop(idle);
    // Half a message does not hold a place for ever.
    let mut job = gated_job(&dvm);
    let (port, _) = pmix_of(&job);
    let mut half = TcpStream::connect(("127.0.0.1", port)).expect("the port is open");
    half.set_read_timeout(Some(Duration::from_secs(30))).expect("it is a socket");
    half.write_all(&hello[..hello.len() / 2]).expect("the server reads");
    assert_eq!(half.read(&mut [0; 8]).ok(), Some(0));
    job.write(b"go\n");
    assert!(job.end().ok().contains("world right on 2"));
}
