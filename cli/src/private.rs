//! A DVM of one node for a single `run`, used if no daemon is running. The daemon stops when this process ends, because this process
//! holds the other end of its standard input.

use std::fs::{self, DirBuilder};
use std::io;
use std::os::unix::fs::{DirBuilderExt, MetadataExt};
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::time::{Duration, SystemTime};

use nix::fcntl::{Flock, FlockArg};
use rsd_config::NoStateDir;
use rsd_config::find::entry_of;
use rsd_proto::transport::exit;
use tokio::io::{AsyncBufReadExt, BufReader};
use tokio::process::{Child, ChildStdin, ChildStdout, Command};

use crate::exit::Failure;

/// The daemon and its directory.
pub(crate) struct Private {
    /// Its state directory.
    dir: PathBuf,
    child: Child,
    /// Closing it stops the daemon.
    stdin: ChildStdin,
    /// Kept open: a closed pipe would end the daemon when it prints.
    _stdout: BufReader<ChildStdout>,
}

/// What a private daemon is to be.
#[derive(Debug, Default)]
pub(crate) struct Wish {
    /// The name of its node; None: `private`.
    pub(crate) name: Option<String>,
    /// None: as many as the node has.
    pub(crate) slots: Option<u32>,
    /// Whether daemons on other machines may join it.
    pub(crate) listens: bool,
}

impl Wish {
    fn options(&self) -> Vec<String> {
        let name = self.name.as_deref().unwrap_or("private");
        let slots = self.slots.map(|slots| format!("--slots={slots}"));
        let listen = self.listens.then(|| "--listen=0.0.0.0:0".to_owned());
        [format!("--name={name}")].into_iter().chain(slots).chain(listen).collect()
    }
}

/// Deadline for the daemon to become ready, and to stop.
const DEADLINE: Duration = Duration::from_secs(10);

/// Prefix of the directories of private daemons' sockets; the dot hides them from the search for daemons.
const RUNTIME_PREFIX: &str = ".private-";

impl Private {
    /// Starts the `rsd` beside this program, else the one in PATH, and waits until it is ready.
    pub(crate) async fn start(base: &Path, wish: &Wish) -> Result<Private, Failure> {
        let io = |what: &str, error: io::Error| {
            Failure::new(exit::SYSTEM, format!("cannot start a private daemon: {what}: {error}"))
        };
        remove_left_over(base, RUNTIME_PREFIX);
        let mut prefix = state_prefix(base)?;
        if let (Some(parent), Some(name)) = (prefix.parent(), prefix.file_name()) {
            remove_left_over(parent, &name.to_string_lossy());
        }
        prefix.as_mut_os_string().push("XXXXXX");
        let dir = nix::unistd::mkdtemp(&prefix).map_err(|errno| io(&prefix.display().to_string(), errno.into()))?;
        let log = dir.join("stderr");
        let stderr = fs::File::create(&log).map_err(|error| io(&log.display().to_string(), error))?;
        let program = program();
        let child = Command::new(&program)
            .args(["start", "--foreground", "--private", "--state-dir"])
            .arg(&dir)
            .args(wish.options())
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(stderr)
            // In a process group of its own, so that Ctrl-C reaches only rsctl, which then cancels the job.
            .process_group(0)
            .spawn();
        let mut child = match child {
            Ok(child) => child,
            Err(error) => {
                let _ = fs::remove_dir_all(&dir);
                return Err(no_program(&program, &error));
            }
        };
        let (Some(stdin), Some(stdout)) = (child.stdin.take(), child.stdout.take()) else {
            return Err(io("its pipes", io::ErrorKind::BrokenPipe.into()));
        };
        let mut private = Private { dir, child, stdin, _stdout: BufReader::new(stdout) };
        let mut ready = String::new();
        let said = tokio::time::timeout(DEADLINE, private._stdout.read_line(&mut ready)).await;
        if matches!(said, Ok(Ok(_))) && ready.starts_with("rsd: ready") {
            return Ok(private);
        }
        let complaint = fs::read_to_string(&log).unwrap_or_default();
        let complaint = complaint.lines().last().unwrap_or("it did not become ready").to_owned();
        private.stop().await;
        Err(Failure::unreachable(format!("cannot start a private daemon ({}): {complaint}", program.display())))
    }

    pub(crate) fn socket(&self) -> PathBuf {
        entry_of(&self.dir).join("rsd.sock")
    }

    /// Returns the path of a file in its directory, which is removed with it.
    pub(crate) fn file(&self, name: &str) -> PathBuf {
        self.dir.join(name)
    }

    /// Stops the daemon and removes its directory.
    pub(crate) async fn stop(self) {
        let Private { dir, mut child, stdin, _stdout } = self;
        drop(stdin);
        if tokio::time::timeout(DEADLINE, child.wait()).await.is_err() {
            // Its steps end at their own deadlines.
            let _ = child.kill().await;
        }
        let _ = fs::remove_dir_all(dir);
    }
}

/// Stops the daemon, if there is one. Ctrl-C skips the wait; the daemon then stops by itself.
pub(crate) async fn stop(private: Option<Private>) {
    let Some(private) = private else { return };
    tokio::select! {
        () = private.stop() => {}
        _ = tokio::signal::ctrl_c() => {}
    }
}

/// Returns how long this process looks for a daemon that it has lost: a private one does not come back.
pub(crate) fn patience(private: &Option<Private>, wanted: Duration) -> Duration {
    if private.is_some() { Duration::ZERO } else { wanted }
}

/// Returns the path of `rsd`: the program beside rsctl, else the one in PATH.
pub(crate) fn program() -> PathBuf {
    let beside = std::env::current_exe().ok().map(|own| own.with_file_name("rsd"));
    beside.filter(|path| path.is_file()).unwrap_or_else(|| PathBuf::from("rsd"))
}

fn no_program(program: &Path, error: &io::Error) -> Failure {
    let where_ = match error.kind() {
        io::ErrorKind::NotFound => "no rsd beside rsctl or in PATH".to_owned(),
        _ => format!("{}: {error}", program.display()),
    };
    Failure::new(exit::NO_DAEMON, format!("no daemon is running here, and rsctl cannot start a private one: {where_}"))
}

/// Returns the first part of the path of a private daemon's state directory, in an existing directory: where other daemons have their
/// state, else in the runtime directory `base`.
fn state_prefix(base: &Path) -> Result<PathBuf, Failure> {
    let place = rsd_config::state_dir(|name| std::env::var_os(name), ".private");
    let place = match place {
        Err(error @ NoStateDir::Relative { .. }) => return Err(Failure::new(exit::USAGE, error.to_string())),
        Ok(place) if place.parent().is_some_and(|parent| make_base(parent).is_ok()) => place,
        Ok(_) | Err(NoStateDir::Homeless) => {
            make_base(base)?;
            base.join(rsd_config::state_dir_name(".private"))
        }
    };
    let mut prefix = place.into_os_string();
    prefix.push("-");
    Ok(prefix.into())
}

/// Creates the base directory with access for this user only.
fn make_base(base: &Path) -> Result<(), Failure> {
    let failure = |error: io::Error| Failure::new(exit::SYSTEM, format!("cannot create {}: {error}", base.display()));
    DirBuilder::new().mode(0o700).recursive(true).create(base).map_err(failure)?;
    let meta = fs::symlink_metadata(base).map_err(failure)?;
    let own = nix::unistd::geteuid().as_raw();
    if !meta.is_dir() || meta.uid() != own {
        let text =
            format!("{} is not a directory owned by uid {own}: remove it, or set RSD_RUNTIME_DIR", base.display());
        return Err(Failure::new(exit::NOT_PERMITTED, text));
    }
    Ok(())
}

/// Removes directories of private daemons whose rsctl was killed. It leaves new directories, whose daemons may not have locked them
/// yet. The prefix of a directory that several machines share contains the host's name.
fn remove_left_over(base: &Path, prefix: &str) {
    const YOUNG: Duration = Duration::from_secs(60);
    let Ok(entries) = fs::read_dir(base) else { return };
    for entry in entries.flatten() {
        let is_private = entry.file_name().as_encoded_bytes().starts_with(prefix.as_bytes());
        let modified = entry.metadata().and_then(|meta| meta.modified());
        let is_old = modified.is_ok_and(|at| SystemTime::now().duration_since(at).is_ok_and(|age| age > YOUNG));
        if is_private && is_old && !is_locked(&entry.path()) {
            let _ = fs::remove_dir_all(entry.path());
        }
    }
}

fn is_locked(dir: &Path) -> bool {
    match fs::File::open(dir.join("rsd.lock")) {
        Ok(file) => Flock::lock(file, FlockArg::LockSharedNonblock).is_err(),
        Err(_) => false,
    }
}
