//! The ranks of a step at the system level: their start, PMI socket, pipes and files.

use std::collections::HashSet;
use std::ffi::{CString, OsStr};
use std::fs::File;
use std::io::{ErrorKind, Write};
use std::net::IpAddr;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use bytes::{Bytes, BytesMut};
use nix::unistd::Pid;
use rsd_config::ports::PortRange;
use rsd_core::Step;
use rsd_core::step::{Bound, Input, Linked, Links, Local, MemoryBinding, RankStart, Stream};
use rsd_proto::inherited::of_process;
use rsd_proto::pmi::listening;
use rsd_proto::v1::LaunchBody;
use tokio::io::AsyncWriteExt;
use tokio::net::TcpStream;
use tokio::net::unix::pipe;
use tokio::sync::mpsc;
use tracing::debug;

use super::pmi_socket::PmiSocket;
use super::spawning::{self, Spawner};
use super::{Event, linked};
use crate::disk::state_dir;
use crate::network;
use crate::spawn::{self, Command, ConfineError, Crew, MemoryPolicy, Process, SpawnError};

/// The number of the PMI descriptor in a rank, which PMI_FD names.
const PMI_FD: i32 = 3;
/// The number of the listening socket in a rank, if it has one.
const LISTEN_FD: i32 = 4;
const READ_BYTES: usize = 64 << 10;

/// All ranks of the step.
#[derive(Debug)]
pub(super) struct Ranks {
    launch: LaunchBody,
    /// Limits that apply only to the ranks; empty: none.
    limits: String,
    /// The ports on which ranks listen.
    ports: PortRange,
    state_dir: PathBuf,
    /// How to start each program of the job; prepared when its first rank starts.
    programs: Vec<Option<Result<Arc<Program>, String>>>,
    io: Vec<RankIo>,
    /// Created when the first ranks start, if there are several.
    crew: Option<Crew>,
    events: mpsc::UnboundedSender<Event>,
    output: mpsc::Sender<Input>,
}

#[derive(Debug, Clone)]
struct Program {
    /// What to execute: `file`, or what sets the limits and then executes it.
    path: CString,
    file: PathBuf,
    argv: Vec<CString>,
    wdir: CString,
    /// The environment that all ranks of the program share.
    env: Vec<CString>,
}

#[derive(Debug, Default)]
struct RankIo {
    pmi: Option<PmiSocket>,
    stdin: Option<mpsc::UnboundedSender<Option<Bytes>>>,
    files: Option<[OutputFile; 2]>,
}

/// A rank's program, the variables that only this rank has, and its output files.
type Prepared = (Arc<Program>, Vec<CString>, Option<[OutputFile; 2]>);

/// A started rank.
#[derive(Debug)]
pub(super) struct Started {
    pub(super) pid: Pid,
    /// The port on which it listens for other ranks of its job; 0: none.
    pub(super) port: u16,
    /// Why it runs without the cpus that it was bound to.
    pub(super) unbound: Option<String>,
}

/// The step's ends of a rank's pipes and sockets.
#[derive(Debug)]
struct Ends {
    out: OwnedFd,
    err: OwnedFd,
    pmi: OwnedFd,
    stdin: Option<OwnedFd>,
}

impl Ends {
    fn into_vec(self) -> Vec<OwnedFd> {
        [Some(self.out), Some(self.err), Some(self.pmi), self.stdin].into_iter().flatten().collect()
    }

    fn from_vec(ends: Vec<OwnedFd>) -> Option<Ends> {
        let mut ends = ends.into_iter();
        Some(Ends { out: ends.next()?, err: ends.next()?, pmi: ends.next()?, stdin: ends.next() })
    }
}

/// Makes a rank's pipes and sockets, and starts it; any thread may call this. If a binding that the user did not request fails,
/// the rank starts without it, and the remark says why.
fn start(
    program: &Program,
    mut own_env: Vec<CString>,
    bound: &Bound,
    (listen, ports): (Option<IpAddr>, PortRange),
    reads_stdin: bool,
    own_session: bool,
) -> Result<Process, String> {
    let broken = |what: &str, error: &dyn std::fmt::Display| format!("cannot create its {what}: {error}");
    let (out, out_end) = spawn::output_pipe().map_err(|e| broken("output pipe", &e))?;
    let (err, err_end) = spawn::output_pipe().map_err(|e| broken("output pipe", &e))?;
    let (pmi, pmi_end) = spawn::socket_pair().map_err(|e| broken("PMI socket", &e))?;
    let (stdin, stdin_end) = match reads_stdin {
        true => spawn::input_pipe().map(|(ours, theirs)| (Some(ours), theirs)).map_err(|e| broken("input pipe", &e))?,
        false => (None, File::open("/dev/null").map_err(|e| broken("standard input", &e))?.into()),
    };
    let listener = match listen.map(|at| network::rank_listener(at, ports)) {
        Some(Err(error)) if error.kind() == ErrorKind::AddrInUse => {
            return Err(format!("cannot listen for the other ranks: {error}"));
        }
        // Most programs never use this socket, so after any other failure the rank starts without it.
        Some(Err(error)) => {
            debug!(%error, "no listening socket");
            None
        }
        Some(Ok(listener)) => Some(listener),
        None => None,
    };
    let port = listener.as_ref().map_or(0, |(_, port)| *port);
    let mut pass = vec![(pmi_end.as_fd(), PMI_FD)];
    if let Some((listener, _)) = &listener {
        pass.push((listener.as_fd(), LISTEN_FD));
        own_env.extend(CString::new(format!("{}={LISTEN_FD}", listening::LISTEN_FD)));
    }
    let memory = bound.memory.as_ref().map(|memory| match memory {
        MemoryBinding::Only(nodes) => MemoryPolicy::only(nodes),
        MemoryBinding::First(nodes) => MemoryPolicy::first(nodes),
        MemoryBinding::InTurn(nodes) => MemoryPolicy::in_turn(nodes),
    });
    let command = Command {
        program: &program.path,
        argv: &program.argv,
        env: &program.env,
        own_env: &own_env,
        wdir: &program.wdir,
        stdin: stdin_end.as_fd(),
        stdout: out_end.as_fd(),
        stderr: err_end.as_fd(),
        pass: &pass,
        cpus: &bound.cpus,
        memory: memory.as_ref(),
        own_session,
    };
    let (spawned, remark) = match spawn::spawn(&command) {
        Err(SpawnError::Confine(why)) if !bound.required && !matches!(why, ConfineError::Memory(_)) => {
            (spawn::spawn(&Command { cpus: &[], ..command }), why.to_string())
        }
        spawned => (spawned, String::new()),
    };
    let pid = spawned.map_err(|error| error.to_string())?;
    Ok(Process { pid, ends: Ends { out, err, pmi: pmi.into(), stdin }.into_vec(), remark, port })
}

/// Whether so many ranks lead sessions of their own. Linux divides the processors among sessions first (`sched_autogroup`), so each rank
/// then has the share of a program of its own on a busy machine. But a rank that waits and yields its processor yields it only to
/// processes of its own session; so ranks that must share processors share a session, too. (An allreduce of four ranks on two
/// processors takes 45 us with own sessions, most of it for waking processors from their sleep, and 3 to 8 us in one.)
fn have_shares_of_their_own(ranks: usize) -> bool {
    std::thread::available_parallelism().is_ok_and(|processors| ranks <= processors.get())
}

#[derive(Debug)]
struct OutputFile {
    file: File,
    path: PathBuf,
    /// Whether a write has failed and was reported.
    failed: bool,
}

impl Ranks {
    pub(super) fn new(
        state_dir: &Path,
        launch: LaunchBody,
        limits: String,
        ports: PortRange,
        events: mpsc::UnboundedSender<Event>,
        output: mpsc::Sender<Input>,
    ) -> Ranks {
        let apps = launch.spec.as_ref().map_or(0, |spec| spec.apps.len());
        Ranks {
            launch,
            limits,
            ports,
            state_dir: state_dir.to_owned(),
            programs: (0..apps).map(|_| None).collect(),
            io: Vec::new(),
            crew: None,
            events,
            output,
        }
    }

    /// Starts ranks; the crew starts several. The errors are sentences.
    pub(super) fn spawn(&mut self, starts: &[RankStart]) -> Vec<(Local, Result<Started, String>)> {
        if let [only] = starts {
            let started = self.prepare(only).and_then(|(program, env, files)| {
                match start(&program, env, &only.bound, (only.listen, self.ports), only.reads_stdin, true) {
                    Ok(process) => self.adopt(only.local, process, files),
                    Err(why) => Err(self.not_started(files, why)),
                }
            });
            return vec![(only.local, started)];
        }
        let own_sessions = have_shares_of_their_own(starts.len());
        let mut crew = match self.crew.take().map_or_else(Crew::new, Ok) {
            Ok(crew) => crew,
            Err(error) => {
                let why = format!("cannot create the threads that start it: {error}");
                return starts.iter().map(|start| (start.local, Err(why.clone()))).collect();
            }
        };
        let mut running = Vec::with_capacity(starts.len());
        let mut files = Vec::with_capacity(starts.len());
        for (at, rank) in (0..).zip(starts) {
            let (bound, reads_stdin) = (rank.bound.clone(), rank.reads_stdin);
            let listen = (rank.listen, self.ports);
            match self.prepare(rank) {
                Ok((program, env, own)) => {
                    files.push(own);
                    crew.start(at, Box::new(move || start(&program, env, &bound, listen, reads_stdin, own_sessions)));
                }
                Err(why) => {
                    files.push(None);
                    running.push((rank.local, Err(why)));
                }
            }
        }
        while let Some((at, process)) = crew.next() {
            let (local, files) = (starts[at as usize].local, files[at as usize].take());
            let started = match process {
                Ok(process) => self.adopt(local, process, files),
                Err(why) => Err(self.not_started(files, why)),
            };
            running.push((local, started));
        }
        self.crew = Some(crew);
        running
    }

    /// Returns the program, variables and files with which a rank is started.
    fn prepare(&mut self, start: &RankStart) -> Result<Prepared, String> {
        if self.io.len() <= start.local {
            self.io.resize_with(start.local + 1, RankIo::default);
        }
        let program = self.program(start.app)?;
        let env: Vec<CString> = start.env.iter().filter_map(|var| CString::new(var.as_str()).ok()).collect();
        let sets_any = self.launch.spec.as_ref().and_then(|spec| spec.apps.get(start.app));
        let program = match sets_any.is_some_and(|app| !app.env.is_empty()) {
            true => Arc::new(program.without(&env)),
            false => program,
        };
        // The files come last: a program that cannot run then leaves no files that the next attempt would have to replace.
        Ok((program, env, self.open_files(start.rank)?))
    }

    fn program(&mut self, app: usize) -> Result<Arc<Program>, String> {
        let (launch, limits, state_dir) = (&self.launch, &self.limits, &self.state_dir);
        self.programs[app].get_or_insert_with(|| prepare(launch, app, limits, state_dir).map(Arc::new)).clone()
    }

    /// Returns the MPI library that each program of the job would load here; None: unknown or none.
    pub(super) fn libraries(&mut self) -> Vec<Option<Linked>> {
        let mut programs: Vec<Option<Arc<Program>>> = Vec::new();
        let mut found: Vec<Option<Linked>> = Vec::new();
        for app in 0..self.programs.len() {
            // A program that cannot be found is reported when its ranks are to start.
            let program = self.program(app).ok();
            let like = |other: &Option<Arc<Program>>| match (other, &program) {
                (Some(a), Some(b)) => a.file == b.file && a.env == b.env && a.wdir == b.wdir,
                _ => false,
            };
            let library = match programs.iter().position(like) {
                Some(same) => found[same].clone(),
                None => program
                    .as_ref()
                    .and_then(|it| linked::look(&it.file, &it.env, Path::new(OsStr::from_bytes(it.wdir.as_bytes())))),
            };
            programs.push(program);
            found.push(library);
        }
        found
    }

    /// Returns what a program of the job would load here.
    pub(super) fn links(&mut self, app: usize) -> Links {
        let Ok(program) = self.program(app) else { return Links::default() };
        linked::links(&program.file, &program.env, Path::new(OsStr::from_bytes(program.wdir.as_bytes())))
    }

    /// Serves the pipes and the socket of a rank that has started.
    fn adopt(&mut self, local: Local, process: Process, files: Option<[OutputFile; 2]>) -> Result<Started, String> {
        let ends = Ends::from_vec(process.ends).ok_or("its pipes were lost")?;
        let broken = |what: &str, error: &dyn std::fmt::Display| format!("cannot serve its {what}: {error}");
        self.read_output(local, Stream::Stdout, ends.out).map_err(|e| broken("output pipe", &e))?;
        self.read_output(local, Stream::Stderr, ends.err).map_err(|e| broken("output pipe", &e))?;
        let pmi =
            PmiSocket::serve(local, ends.pmi.into(), self.events.clone()).map_err(|e| broken("PMI socket", &e))?;
        let stdin = match ends.stdin {
            Some(ours) => Some(self.feed_stdin(local, ours).map_err(|e| broken("input pipe", &e))?),
            None => None,
        };
        self.io[local] = RankIo { pmi: Some(pmi), stdin, files };
        let unbound = Some(process.remark).filter(|why| !why.is_empty());
        Ok(Started { pid: process.pid, port: process.port, unbound })
    }

    fn open_files(&self, rank: u32) -> Result<Option<[OutputFile; 2]>, String> {
        let Some(spec) = self.launch.spec.as_ref().filter(|spec| !spec.output_dir.is_empty()) else { return Ok(None) };
        let dir = Path::new(OsStr::from_bytes(&spec.output_dir));
        std::fs::create_dir_all(dir)
            .map_err(|e| format!("cannot create the output directory {}: {e}", dir.display()))?;
        let open = |stream: &str| {
            let path = dir.join(format!("rank.{rank}.{stream}"));
            let mut options = File::options();
            let file = match spec.output_overwrite {
                true => options.write(true).create(true).truncate(true).open(&path),
                false => options.write(true).create_new(true).open(&path),
            };
            match file {
                Ok(file) => Ok(OutputFile { file, path, failed: false }),
                Err(error) if error.kind() == ErrorKind::AlreadyExists => {
                    Err(format!("output file {}: exists already (replace it: --overwrite)", path.display()))
                }
                Err(error) => Err(format!("cannot write its output to {}: {error}", path.display())),
            }
        };
        Ok(Some([open("stdout")?, open("stderr")?]))
    }

    /// Removes the files of a rank that has not started, unless they may have existed before.
    fn not_started(&self, files: Option<[OutputFile; 2]>, why: String) -> String {
        if !self.launch.spec.as_ref().is_some_and(|spec| spec.output_overwrite) {
            files.iter().flatten().for_each(|file| drop(std::fs::remove_file(&file.path)));
        }
        why
    }

    pub(super) fn write_file(&mut self, local: Local, stream: Stream, bytes: &[u8]) -> Result<(), String> {
        let Some(files) = &mut self.io[local].files else { return Ok(()) };
        let OutputFile { file, path, failed } = &mut files[stream as usize];
        match file.write_all(bytes) {
            Err(error) if !std::mem::replace(failed, true) => {
                Err(format!("cannot write its output to {}: {error}", path.display()))
            }
            Err(_) | Ok(()) => Ok(()),
        }
    }

    // --- spawns ---

    /// Returns a rank of program `app` as a spawner; `pid` is its process, if known.
    pub(super) fn spawner(&self, app: usize, pid: Option<u32>) -> Spawner {
        let spec = self.launch.spec.clone().unwrap_or_default();
        let launched_in = spec.apps.get(app).map(|app| PathBuf::from(OsStr::from_bytes(&app.wdir)));
        let (env, wdir) = pid.and_then(|pid| spawning::look_at(pid).ok()).unwrap_or_else(|| {
            let env = spec.env.clone();
            (env, launched_in.clone().unwrap_or_default())
        });
        let same = |launched: &PathBuf| std::fs::canonicalize(launched).is_ok_and(|place| place == wdir);
        Spawner {
            env,
            // The directory as the user wrote it, if it is the same place.
            wdir: launched_in.filter(same).unwrap_or(wdir),
            oversubscribe: spec.oversubscribe,
            output_dir: spec.output_dir,
            output_overwrite: spec.output_overwrite,
            inherited: pid.map(of_process).or(spec.inherited),
            gpus_visible: spec.gpus_visible,
            universe_size: spec.universe_size,
        }
    }

    // --- PMI ---

    /// Serves a member's connection, in place of an earlier one.
    pub(super) fn attach(&mut self, local: Local, stream: TcpStream) -> std::io::Result<()> {
        if self.io.len() <= local {
            self.io.resize_with(local + 1, RankIo::default);
        }
        // The calls used on the socket work on any stream socket.
        let socket = OwnedFd::from(stream.into_std()?).into();
        let pmi = PmiSocket::serve(local, socket, self.events.clone())?;
        if let Some(before) = self.io[local].pmi.replace(pmi) {
            before.replace();
        }
        Ok(())
    }

    pub(super) fn pmi_send(&mut self, local: Local, bytes: &Bytes) {
        let Some(pmi) = self.io.get(local).and_then(|io| io.pmi.as_ref()) else { return };
        if !pmi.send(bytes) {
            self.pmi_close(local);
        }
    }

    /// Returns what a rank has sent on its PMI connection and nothing has read yet.
    pub(super) fn pmi_rest(&self, local: Local) -> Vec<Bytes> {
        self.io.get(local).and_then(|io| io.pmi.as_ref()).map(PmiSocket::rest).unwrap_or_default()
    }

    pub(super) fn pmi_close(&mut self, local: Local) {
        if let Some(pmi) = self.io.get_mut(local).and_then(|io| io.pmi.take()) {
            pmi.close();
        }
    }

    // --- standard streams ---

    fn read_output(&self, local: Local, stream: Stream, pipe: OwnedFd) -> std::io::Result<()> {
        let receiver = pipe::Receiver::from_owned_fd(pipe)?;
        let output = self.output.clone();
        tokio::task::spawn_local(async move {
            while receiver.readable().await.is_ok() {
                // One buffer per read, not one per pipe: there may be hundreds of pipes.
                let mut buffer = BytesMut::with_capacity(READ_BYTES);
                let input = match receiver.try_read_buf(&mut buffer) {
                    Ok(0) => {
                        // Usually the rank is exiting and closes its other descriptors next. Yielding this core to it avoids
                        // being woken for each of them.
                        std::thread::yield_now();
                        break;
                    }
                    Ok(n) => Input::Output(local, stream, Bytes::copy_from_slice(&buffer[..n])),
                    Err(error) if error.kind() == ErrorKind::WouldBlock => continue,
                    Err(_) => break,
                };
                drop(buffer);
                if output.send(input).await.is_err() {
                    return;
                }
            }
            let _ = output.send(Input::OutputClosed(local, stream)).await;
        });
        Ok(())
    }

    fn feed_stdin(&self, local: Local, pipe: OwnedFd) -> std::io::Result<mpsc::UnboundedSender<Option<Bytes>>> {
        let mut sender = pipe::Sender::from_owned_fd(pipe)?;
        let (queue, mut chunks) = mpsc::unbounded_channel::<Option<Bytes>>();
        let events = self.events.clone();
        tokio::task::spawn_local(async move {
            while let Some(Some(bytes)) = chunks.recv().await {
                if sender.write_all(&bytes).await.is_err() {
                    break; // the rank has closed its standard input
                }
                let _ = events.send(Event::Input(Input::StdinWritten(local, bytes.len() as u64)));
            }
            drop(sender);
            let _ = events.send(Event::Input(Input::StdinClosed(local)));
        });
        Ok(queue)
    }

    pub(super) fn stdin_write(&mut self, local: Local, bytes: Bytes) {
        if let Some(stdin) = self.io.get(local).and_then(|io| io.stdin.as_ref()) {
            let _ = stdin.send(Some(bytes)); // the task has ended if the rank closed its standard input
        }
    }

    pub(super) fn stdin_close(&mut self, local: Local) {
        if let Some(stdin) = self.io.get_mut(local).and_then(|io| io.stdin.take()) {
            let _ = stdin.send(None);
        }
    }
}

impl Program {
    /// Returns the program without the variables that a rank has of its own. What rsd says about a rank's place counts, also if its user
    /// says something else: of two values, a C program takes the first and a shell the last.
    fn without(&self, own: &[CString]) -> Program {
        let own: HashSet<&[u8]> = own.iter().map(|var| name_of(var.as_bytes())).collect();
        let env = self.env.iter().filter(|var| !own.contains(name_of(var.as_bytes()))).cloned().collect();
        Program { env, ..self.clone() }
    }
}

/// Returns the name of a variable.
fn name_of(var: &[u8]) -> &[u8] {
    var.split(|byte| *byte == b'=').next().unwrap_or_default()
}

/// Prepares everything that all ranks of a program share.
fn prepare(launch: &LaunchBody, app: usize, limits: &str, state_dir: &Path) -> Result<Program, String> {
    let spec = launch.spec.as_ref().ok_or("the launch contains no job")?;
    let wanted = &spec.apps[app];
    let c_string = |bytes: &[u8], what: &str| {
        CString::new(bytes).map_err(|_| format!("{what} contains a zero byte: {:?}", String::from_utf8_lossy(bytes)))
    };
    let wdir = Path::new(OsStr::from_bytes(&wanted.wdir));
    spawn::check_wdir(wdir).map_err(|error| error.to_string())?;

    let mut env = Vec::new();
    let ours = [&b"RSD_DVM"[..], b"RSD_SOCKET", b"PMI_FD"];
    for var in Step::environment(launch, app).into_iter().filter(|var| !ours.contains(&name_of(var))) {
        env.push(c_string(&var, "an environment variable")?);
    }
    let search = env.iter().find_map(|var| var.as_bytes().strip_prefix(b"PATH="));
    let search = search.unwrap_or(b"/usr/local/bin:/usr/bin:/bin");
    let search = match wanted.path.is_empty() {
        true => search.to_vec(),
        false => [&wanted.path[..], search].join(&b':'),
    };
    let socket = state_dir::socket(state_dir);
    for (name, value) in [("RSD_DVM", state_dir), ("RSD_SOCKET", &socket)] {
        env.push(c_string(&[name.as_bytes(), b"=", value.as_os_str().as_bytes()].concat(), name)?);
    }
    env.push(c_string(format!("PMI_FD={PMI_FD}").as_bytes(), "PMI_FD")?);

    let name = wanted.argv.first().ok_or("the launch names no program")?;
    let search = OsStr::from_bytes(&search);
    let file = spawn::resolve(OsStr::from_bytes(name), wdir, search).map_err(|e| e.to_string())?;
    spawn::check_env_line(&file, wdir, search).map_err(|e| e.to_string())?;
    let argv = wanted.argv.iter().map(|word| c_string(word, "an argument"));
    let mut argv = argv.collect::<Result<Vec<_>, _>>()?;
    let mut path = c_string(file.as_os_str().as_bytes(), "the program's path")?;
    if !limits.is_empty() {
        argv.splice(..0, [c"rsd".into(), c"limits".into(), c_string(limits.as_bytes(), "a limit")?, path]);
        path = c"/proc/self/exe".into();
    }
    Ok(Program { path, file, argv, wdir: c_string(&wanted.wdir, "the working directory")?, env })
}

#[cfg(test)]
mod tests {
    use nix::sys::wait::waitpid;

    use super::*;

    /// A cpu number that no machine has.
    const NO_CPU: u32 = 60_000;

    fn start_on(cpus: &[u32], required: bool) -> Result<Process, String> {
        let text = |text: &str| CString::new(text).expect("no zero in it");
        let program = Program {
            path: text("/bin/true"),
            file: "/bin/true".into(),
            argv: vec![text("true")],
            wdir: text("/"),
            env: Vec::new(),
        };
        let bound = Bound { cpus: cpus.to_vec(), memory: None, required };
        start(&program, Vec::new(), &bound, (None, PortRange::Any), false, true)
    }

    #[test]
    fn a_rank_starts_without_a_default_binding_but_not_without_a_requested_one() {
        let unbound = start_on(&[NO_CPU], false).expect("the rank starts unbound");
        assert!(unbound.remark.starts_with("cannot run on cpus 60000"), "{}", unbound.remark);
        let free = start_on(&[], true).expect("an unbound rank starts");
        assert_eq!(free.remark, "");
        for process in [unbound, free] {
            waitpid(process.pid, None).expect("our child");
        }
        let refused = start_on(&[NO_CPU], true).expect_err("a required binding must not be dropped");
        assert!(refused.contains("--bind-to none"), "{refused}");
    }
}
