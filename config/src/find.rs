//! Finds the daemon to talk to: the one that the user named, else that of the user's only running DVM.
//!
//! The base directory has one entry per daemon, a directory with the daemon's name. A daemon is running if the `rsd.lock` there is
//! locked; `daemon.json` describes the daemon, and its sockets are beside it. A daemon's state directory has a link to the entry. Of
//! the daemons of one DVM, only one counts, preferably the head.

use std::ffi::OsString;
use std::fmt;
use std::fs::{self, File, TryLockError};
use std::io;
use std::net::{IpAddr, SocketAddr, UdpSocket};
use std::os::unix::fs::MetadataExt;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};

use serde::Deserialize;

use crate::runtime::own_uid;

/// A running daemon.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Daemon {
    /// The directory of its sockets.
    dir: PathBuf,
    about: About,
}

impl Daemon {
    /// Its name, by which `--dvm` finds it.
    pub fn name(&self) -> &str {
        &self.about.name
    }

    /// The id of its DVM.
    pub fn dvm(&self) -> &str {
        &self.about.dvm
    }

    /// The directory of its sockets and its lock.
    pub fn dir(&self) -> &Path {
        &self.dir
    }

    /// Its state directory; to users who cannot enter that, the directory of its sockets stands for the daemon.
    pub fn state_dir(&self) -> &Path {
        let is_hidden = self.about.serves_all && own_uid() != ROOT;
        if is_hidden || self.about.state_dir.as_os_str().is_empty() { &self.dir } else { &self.about.state_dir }
    }

    /// Its unix socket.
    pub fn socket(&self) -> PathBuf {
        self.dir.join("rsd.sock")
    }
}

impl fmt::Display for Daemon {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let About { name, node, head, pid, .. } = &self.about;
        let role = if *head { "head, " } else { "" };
        write!(f, "{name}  ({role}node {node}, pid {pid}, {})", self.dir.display())
    }
}

/// The fields of `daemon.json` that are used here.
#[derive(Debug, Clone, PartialEq, Eq, Default, Deserialize)]
#[serde(default)]
struct About {
    name: String,
    dvm: String,
    node: u32,
    head: bool,
    pid: u32,
    state_dir: PathBuf,
    /// Whether it serves all users.
    serves_all: bool,
    /// Where it listens for other daemons; empty: nowhere.
    listen: String,
}

/// The daemon that the user named, and how.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Wish<'a> {
    /// `--dvm`.
    Option(&'a Path),
    /// `RSD_DVM`.
    Variable(&'a Path),
}

impl fmt::Display for Wish<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Wish::Option(word) => write!(f, "--dvm {}", word.display()),
            Wish::Variable(word) => write!(f, "RSD_DVM={}", word.display()),
        }
    }
}

/// Why no daemon was found.
#[derive(Debug)]
pub enum FindError {
    /// The user named no daemon, and no daemon is running.
    NoneRuns {
        /// The directory that was searched.
        base: PathBuf,
    },
    /// The user named no daemon, and several DVMs are running.
    Several(Vec<Daemon>),
    /// The named daemon is not running.
    NotRunning {
        /// How the user named it.
        wish: String,
        /// The daemons that are running.
        running: Vec<Daemon>,
    },
    /// The named daemon belongs to another user.
    NotPermitted {
        /// Its directory.
        place: PathBuf,
        /// Its owner.
        owner_uid: u32,
    },
    /// A directory cannot be read.
    Io {
        /// The directory.
        place: PathBuf,
        /// The cause.
        error: io::Error,
    },
}

impl std::error::Error for FindError {}

impl fmt::Display for FindError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            FindError::NoneRuns { base } => {
                write!(f, "no daemon is running here (looked in {}); start one with: rsd start", base.display())
            }
            FindError::Several(daemons) => {
                write!(f, "{} DVMs are running here; choose one with --dvm:", daemons.len())?;
                daemons.iter().try_for_each(|daemon| write!(f, "\n  --dvm {daemon}"))
            }
            FindError::NotRunning { wish, running } if running.is_empty() => {
                write!(f, "{wish}: no daemon is running; start one with: rsd start")
            }
            FindError::NotRunning { wish, running } => {
                write!(f, "{wish}: no such daemon is running; running daemons:")?;
                running.iter().try_for_each(|daemon| write!(f, "\n  --dvm {daemon}"))
            }
            FindError::NotPermitted { place, owner_uid } => {
                write!(f, "{} belongs to uid {owner_uid}; use a daemon of your own: rsd start", place.display())
            }
            FindError::Io { place, error } => write!(f, "cannot read {}: {error}", place.display()),
        }
    }
}

/// The base directory of root's daemons, which may serve all users.
const SYSTEM: &str = "/run/rsd";
/// The superuser.
const ROOT: u32 = 0;

/// Returns the base directory of the daemons that serve all users. None: the user has named another with `RSD_RUNTIME_DIR`.
pub fn system_base(env: impl Fn(&str) -> Option<OsString>) -> Option<&'static Path> {
    let is_named = env("RSD_RUNTIME_DIR").is_some_and(|value| !value.is_empty());
    if is_named { None } else { Some(Path::new(SYSTEM)) }
}

/// As [`find`]; if this user has no such daemon, one that serves all users and is in `system`.
pub fn find_for(base: &Path, system: Option<&Path>, wish: Option<Wish<'_>>) -> Result<Daemon, FindError> {
    match (find(base, wish), system.filter(|system| *system != base)) {
        (Err(error @ (FindError::NoneRuns { .. } | FindError::NotRunning { .. })), Some(system)) => {
            match find(system, wish) {
                Ok(daemon) => Ok(daemon),
                Err(several @ FindError::Several(_)) => Err(several),
                // The directory is root's own, for example.
                Err(_) => Err(error),
            }
        }
        (found, _) => found,
    }
}

/// Returns the daemon named by `wish`, or the only one that is running.
pub fn find(base: &Path, wish: Option<Wish<'_>>) -> Result<Daemon, FindError> {
    match wish {
        Some(wish) => named(base, wish),
        None => {
            let mut dvms = one_per_dvm(running(base)?);
            match dvms.len() {
                0 => Err(FindError::NoneRuns { base: base.to_owned() }),
                1 => Ok(dvms.remove(0)),
                _ => Err(FindError::Several(dvms)),
            }
        }
    }
}

/// Returns the names of all running daemons, for completions.
pub fn names(base: &Path) -> Vec<String> {
    running(base).unwrap_or_default().into_iter().map(|daemon| daemon.about.name).collect()
}

/// Returns a running daemon of this user that listens on one of these addresses of this machine. No other user
/// may write into its directory.
pub fn listening(base: &Path, addresses: &[SocketAddr]) -> Option<Daemon> {
    let listens = |daemon: &Daemon| {
        let at: Option<SocketAddr> = daemon.about.listen.parse().ok();
        at.is_some_and(|at| addresses.iter().any(|address| reaches(*address, at)))
    };
    let is_private = |daemon: &Daemon| {
        fs::metadata(&daemon.dir).is_ok_and(|meta| meta.uid() == own_uid() && meta.mode() & 0o022 == 0)
    };
    running(base).ok()?.into_iter().find(|daemon| listens(daemon) && is_private(daemon))
}

/// Whether a connection to `address` reaches a socket that listens at `at` on this machine.
fn reaches(address: SocketAddr, at: SocketAddr) -> bool {
    // Only an address of this machine can be bound.
    let is_own = |ip: IpAddr| UdpSocket::bind((ip, 0)).is_ok();
    address.port() == at.port() && (address.ip() == at.ip() || at.ip().is_unspecified()) && is_own(address.ip())
}

fn named(base: &Path, wish: Wish<'_>) -> Result<Daemon, FindError> {
    let (Wish::Option(word) | Wish::Variable(word)) = wish;
    // A word with a slash is the path of an entry or a state directory; any other is a name below the base directory.
    let is_path = word.as_os_str().as_encoded_bytes().contains(&b'/');
    if is_path {
        if let Some(daemon) = probe(&entry_of(word))? {
            return Ok(daemon);
        }
    } else {
        check_owner(base)?;
        if !word.as_os_str().is_empty()
            && let Some(daemon) = probe(&base.join(word))?
        {
            return Ok(daemon);
        }
    }
    let mut running = running(base)?;
    match running.iter().position(|daemon| Path::new(&daemon.about.name) == word) {
        Some(at) => Ok(running.swap_remove(at)),
        None => Err(FindError::NotRunning { wish: wish.to_string(), running }),
    }
}

/// The name of the link in a state directory that leads to the directory of the daemon's sockets.
pub const ENTRY_LINK: &str = "run";

/// Returns the directory of the sockets of the daemon with this state directory. Any other directory is returned as it is.
pub fn entry_of(dir: &Path) -> PathBuf {
    // The link is not used as a part of the path: a socket's path has at most 107 bytes.
    fs::read_link(dir.join(ENTRY_LINK)).unwrap_or_else(|_| dir.to_owned())
}

/// Returns all running daemons, sorted by name. Entries that begin with a dot are private daemons and are not listed.
fn running(base: &Path) -> Result<Vec<Daemon>, FindError> {
    let io = |error| FindError::Io { place: base.to_owned(), error };
    check_owner(base)?;
    let entries = match fs::read_dir(base) {
        Ok(entries) => entries,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
        Err(error) if error.kind() == io::ErrorKind::PermissionDenied => return Err(denied(base, error)),
        Err(error) => return Err(io(error)),
    };
    let mut daemons = Vec::new();
    for entry in entries {
        let entry = entry.map_err(io)?;
        if !entry.file_name().as_encoded_bytes().starts_with(b".") {
            // An entry that cannot be probed, such as another user's, is skipped; it must not fail the search.
            daemons.extend(probe(&entry.path()).ok().flatten());
        }
    }
    daemons.sort_by(|a, b| (&a.about.name, &a.dir).cmp(&(&b.about.name, &b.dir)));
    Ok(daemons)
}

/// Refuses a base directory of another user, who may have created it first where it is below /tmp.
fn check_owner(base: &Path) -> Result<(), FindError> {
    match fs::metadata(base) {
        Ok(meta) if meta.uid() == ROOT && meta.mode() & 0o022 == 0 => Ok(()),
        Ok(meta) if meta.uid() != own_uid() => {
            Err(FindError::NotPermitted { place: base.to_owned(), owner_uid: meta.uid() })
        }
        Ok(_) | Err(_) => Ok(()),
    }
}

/// Keeps one daemon of each DVM: the head if it is listed, else the first.
fn one_per_dvm(daemons: Vec<Daemon>) -> Vec<Daemon> {
    let mut dvms: Vec<Daemon> = Vec::new();
    for daemon in daemons {
        match dvms.iter_mut().find(|kept| kept.about.dvm == daemon.about.dvm) {
            Some(kept) if daemon.about.head && !kept.about.head => *kept = daemon,
            Some(_) => {}
            None => dvms.push(daemon),
        }
    }
    dvms
}

/// Returns the daemon of an entry, if it is running.
fn probe(dir: &Path) -> Result<Option<Daemon>, FindError> {
    let file = match File::open(dir.join("rsd.lock")) {
        Ok(file) => file,
        Err(error) if error.kind() == io::ErrorKind::PermissionDenied => {
            return probe_public(dir).map(Some).ok_or_else(|| denied(dir, error));
        }
        Err(_) => return Ok(None),
    };
    // A shared lock, so that two processes that probe at the same time do not take each other for the daemon.
    match file.try_lock_shared() {
        Err(TryLockError::WouldBlock) => {}
        Ok(()) | Err(TryLockError::Error(_)) => return Ok(None),
    }
    // The daemon writes this file once it accepts connections.
    let Ok(json) = fs::read(dir.join("daemon.json")) else { return Ok(None) };
    let Ok(about) = serde_json::from_slice(&json) else { return Ok(None) };
    Ok(Some(Daemon { dir: dir.to_owned(), about }))
}

/// Returns root's daemon of an entry, if it is running and serves all users. Its lock is root's own, so its socket is tried.
fn probe_public(dir: &Path) -> Option<Daemon> {
    let meta = fs::metadata(dir).ok().filter(|meta| meta.uid() == ROOT && meta.mode() & 0o022 == 0)?;
    let about: About = serde_json::from_slice(&fs::read(dir.join("daemon.json")).ok()?).ok()?;
    let serves = meta.is_dir() && about.serves_all && UnixStream::connect(dir.join("rsd.sock")).is_ok();
    serves.then(|| Daemon { dir: dir.to_owned(), about })
}

/// Returns the error for a place that this user may not read.
fn denied(place: &Path, error: io::Error) -> FindError {
    // The place may be below an unreadable directory. Then the error names the owner of that directory.
    let seen = place.ancestors().find_map(|place| Some((place, fs::metadata(place).ok()?)));
    match seen {
        Some((place, meta)) => FindError::NotPermitted { place: place.to_owned(), owner_uid: meta.uid() },
        None => FindError::Io { place: place.to_owned(), error },
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::symlink;
    use std::sync::atomic::{AtomicU32, Ordering};

    use super::*;

    /// A base directory with daemons. Their locks are held until it is dropped.
    struct Base {
        dir: PathBuf,
        locks: Vec<File>,
    }

    impl Base {
        fn new() -> Base {
            static COUNT: AtomicU32 = AtomicU32::new(0);
            let number = COUNT.fetch_add(1, Ordering::Relaxed);
            let dir = std::env::temp_dir().join(format!("rsd-find-{}-{number}", std::process::id()));
            fs::create_dir(&dir).unwrap();
            Base { dir, locks: Vec::new() }
        }

        fn add(&mut self, at: &str, dvm: &str, head: bool, runs: bool) -> PathBuf {
            let dir = self.dir.join(at);
            fs::create_dir_all(&dir).unwrap();
            let name = dir.file_name().unwrap().to_str().unwrap();
            let json = format!(r#"{{"name":"{name}","dvm":"{dvm}","node":0,"head":{head},"pid":1,"protocol":1}}"#);
            fs::write(dir.join("daemon.json"), json).unwrap();
            let lock = File::create(dir.join("rsd.lock")).unwrap();
            if runs {
                lock.try_lock().unwrap();
                self.locks.push(lock);
            }
            dir
        }

        fn find(&self, wish: Option<Wish<'_>>) -> Result<PathBuf, String> {
            find(&self.dir, wish).map(|daemon| daemon.dir).map_err(|error| error.to_string())
        }
    }

    impl Drop for Base {
        fn drop(&mut self) {
            let _ = fs::remove_dir_all(&self.dir);
        }
    }

    #[test]
    fn the_only_running_daemon_is_found() {
        let mut base = Base::new();
        assert!(base.find(None).unwrap_err().contains("rsd start"));
        base.add("old", "1", true, false);
        assert!(base.find(None).unwrap_err().contains("no daemon is running"));
        let n0 = base.add("n0", "2", true, true);
        base.add(".private-x", "3", true, true);
        assert_eq!(base.find(None), Ok(n0));
    }

    #[test]
    fn without_a_base_directory_no_daemon_is_running() {
        assert!(matches!(find(Path::new("/nonexistent/rsd"), None), Err(FindError::NoneRuns { .. })));
    }

    #[test]
    fn daemons_of_one_dvm_count_once_and_the_head_is_preferred() {
        let mut base = Base::new();
        base.add("a1", "9f", false, true);
        let head = base.add("h0", "9f", true, true);
        base.add("z2", "9f", false, true);
        assert_eq!(base.find(None), Ok(head));
    }

    #[test]
    fn two_running_dvms_are_listed() {
        let mut base = Base::new();
        base.add("a", "1", true, true);
        base.add("b", "2", true, true);
        let text = base.find(None).unwrap_err();
        assert!(text.starts_with("2 DVMs are running here"), "{text}");
        assert!(text.contains("\n  --dvm a  (head, node 0, pid 1,") && text.contains("\n  --dvm b  "), "{text}");
    }

    #[test]
    fn a_daemon_is_found_by_its_name_its_entry_its_state_directory_or_its_own_name() {
        let mut base = Base::new();
        let a = base.add("a", "1", true, true);
        let second = base.add("far-2", "2", true, true);
        let json = r#"{"name":"far","dvm":"2","state_dir":"/x"}"#;
        fs::write(second.join("daemon.json"), json).unwrap();
        let state_dir = base.dir.join("state/far");
        fs::create_dir_all(&state_dir).unwrap();
        symlink(&second, state_dir.join(ENTRY_LINK)).unwrap();
        assert_eq!(base.find(Some(Wish::Option("a".as_ref()))), Ok(a.clone()));
        assert_eq!(base.find(Some(Wish::Option(&a))), Ok(a));
        assert_eq!(base.find(Some(Wish::Option(&state_dir))), Ok(second.clone()));
        assert_eq!(base.find(Some(Wish::Option("far-2".as_ref()))), Ok(second.clone()));
        assert_eq!(base.find(Some(Wish::Variable("far".as_ref()))), Ok(second));
    }

    #[test]
    fn a_daemon_that_is_not_running_is_reported_with_those_that_are() {
        let mut base = Base::new();
        base.add("gone", "1", true, false);
        let text = base.find(Some(Wish::Option("gone".as_ref()))).unwrap_err();
        assert!(text.starts_with("--dvm gone: no daemon is running; start one"), "{text}");
        base.add("a", "2", true, true);
        let text = base.find(Some(Wish::Variable("/x/y".as_ref()))).unwrap_err();
        assert!(text.starts_with("RSD_DVM=/x/y: no such daemon is running; running daemons:\n  --dvm a  "), "{text}");
        assert!(base.find(Some(Wish::Option("".as_ref()))).is_err());
    }
}
