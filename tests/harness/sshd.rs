//! Hosts that ssh reaches: real ssh servers on this machine, each with an environment of its own.
//!
//! The harness itself listens, and starts `sshd -i` for each connection. So ports are never guessed, and nothing runs in between.

use std::fs;
use std::net::{TcpListener, TcpStream};
use std::os::fd::OwnedFd;
use std::os::unix::fs::{DirBuilderExt, PermissionsExt};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};

use crate::{Call, Dvm, built};

/// The hosts of a test, and the user's home directory with a key, a configuration and known hosts.
#[derive(Debug)]
pub struct Hosts {
    home: PathBuf,
    /// The text of `~/.ssh/config`.
    config: Mutex<String>,
}

/// A host.
#[derive(Debug)]
pub struct SshHost {
    /// Its name in the configuration.
    pub name: String,
    /// Its port on this machine.
    pub port: u16,
    /// Its directory, which is the account's home.
    pub dir: PathBuf,
    connections: Arc<AtomicUsize>,
    /// The sockets of all connections.
    sockets: Arc<Mutex<Vec<TcpStream>>>,
}

impl Hosts {
    /// Creates a home with a key, in the scratch directory of a DVM that has no daemon yet.
    ///
    /// # Panics
    /// If ssh is not installed.
    #[track_caller]
    pub fn new(dvm: &Dvm) -> Hosts {
        let home = dvm.scratch().join("home");
        folder(&home.join(".ssh"));
        let hosts = Hosts { home, config: Mutex::default() };
        hosts.key("id_ed25519", "ed25519", "");
        // As root, sshd wants this directory of Debian's.
        if nix::unistd::geteuid().is_root() {
            fs::create_dir_all("/run/sshd").expect("root may create it");
        }
        hosts
    }

    /// The user's home directory.
    pub fn home(&self) -> &Path {
        &self.home
    }

    /// A file in the user's `.ssh`.
    pub fn ssh(&self, name: &str) -> PathBuf {
        self.home.join(".ssh").join(name)
    }

    /// Creates a key of the user; returns its path.
    #[track_caller]
    pub fn key(&self, name: &str, kind: &str, passphrase: &str) -> PathBuf {
        let path = self.ssh(name);
        keygen(&path, kind, passphrase);
        path
    }

    /// Starts a host on which rsd is in PATH, and adds it to the configuration and to the known hosts.
    #[track_caller]
    pub fn host(&self, name: &str) -> SshHost {
        let programs = built::rsd().parent().expect("a program is in a folder").display();
        self.host_with(name, &format!("{programs}:/usr/bin:/bin"), "")
    }

    /// Starts a host with this PATH and these lines in its entry of the configuration.
    #[track_caller]
    pub fn host_with(&self, name: &str, path: &str, lines: &str) -> SshHost {
        let dir = self.home.with_file_name(name);
        for below in ["", "run", "state", ".ssh"] {
            folder(&dir.join(below));
        }
        let host_key = dir.join("host_key");
        keygen(&host_key, "ed25519", "");
        fs::copy(self.ssh("id_ed25519.pub"), dir.join("authorized_keys")).expect("the directory is writable");
        let shown = dir.display();
        let config = format!(
            "HostKey {shown}/host_key\nAuthorizedKeysFile {shown}/authorized_keys\nStrictModes no\nUsePAM no\n\
             PasswordAuthentication no\nKbdInteractiveAuthentication no\nPermitRootLogin yes\nPidFile none\n\
             SetEnv HOME={shown} RSD_RUNTIME_DIR={shown}/run RSD_STATE_DIR={shown}/state PATH={path} OPENBLAS_NUM_THREADS=1\n"
        );
        fs::write(dir.join("sshd_config"), config).expect("the directory is writable");
        let listener = TcpListener::bind("127.0.0.1:0").expect("the loopback interface exists");
        let port = listener.local_addr().expect("it is bound").port();
        let host = SshHost { name: name.to_owned(), port, dir, connections: Arc::default(), sockets: Arc::default() };
        host.serve(listener);
        let public = fs::read_to_string(host.dir.join("host_key.pub")).expect("ssh-keygen wrote it");
        self.know(&host, &public);
        self.configure(&format!("Host {name}\n  HostName 127.0.0.1\n  Port {port}\n{lines}"));
        host
    }

    /// Adds lines to the configuration.
    pub fn configure(&self, lines: &str) {
        let mut config = self.config.lock().expect("no test panics while it holds the lock");
        config.push_str(lines);
        write(&self.ssh("config"), &config);
    }

    /// Replaces what known_hosts says about a host, by the text of a public key.
    pub fn know(&self, host: &SshHost, public: &str) {
        let place = format!("[127.0.0.1]:{} ", host.port);
        let text = fs::read_to_string(self.ssh("known_hosts")).unwrap_or_default();
        let others = text.lines().filter(|line| !line.contains(&place)).map(|line| format!("{line}\n"));
        let own = if public.is_empty() { String::new() } else { format!("{place}{}\n", public.trim()) };
        write(&self.ssh("known_hosts"), &(others.collect::<String>() + &own));
    }

    /// `rsctl` with the words of a line, for the user whose home this is.
    pub fn ctl(&self, dvm: &Dvm, line: &str) -> Call {
        self.call(dvm, built::rsctl()).args(line.split_whitespace())
    }

    /// A program for that user, on this machine.
    pub fn call(&self, dvm: &Dvm, program: impl AsRef<std::ffi::OsStr>) -> Call {
        let call = dvm.call(program).dir(dvm.scratch()).env("HOME", &self.home);
        call.env_remove("SSH_AUTH_SOCK").env_remove("XDG_STATE_HOME").env_remove("XDG_CONFIG_HOME")
    }
}

impl SshHost {
    /// How many connections it has accepted.
    pub fn connections(&self) -> usize {
        self.connections.load(Ordering::Relaxed)
    }

    /// Cuts all its connections.
    pub fn cut(&self) {
        let sockets = std::mem::take(&mut *self.sockets.lock().expect("no thread panics while it holds the lock"));
        for socket in sockets {
            // One that has ended cannot be cut.
            let _ = socket.shutdown(std::net::Shutdown::Both);
        }
    }

    /// Runs a program as if on the host.
    pub fn call(&self, program: impl AsRef<std::ffi::OsStr>) -> Call {
        let call = Call::new(program).env("HOME", &self.dir).env("RSD_RUNTIME_DIR", self.dir.join("run"));
        call.env("RSD_STATE_DIR", self.dir.join("state")).env_remove("RSD_DVM")
    }

    /// Whether a daemon is running on the host.
    pub fn runs_a_daemon(&self) -> bool {
        self.call(built::rsd()).args(["status"]).end().status.success()
    }

    fn serve(&self, listener: TcpListener) {
        let (dir, connections, sockets) = (self.dir.clone(), Arc::clone(&self.connections), Arc::clone(&self.sockets));
        std::thread::spawn(move || {
            for stream in listener.incoming().flatten() {
                if !dir.join("sshd_config").exists() {
                    return;
                }
                connections.fetch_add(1, Ordering::Relaxed);
                let kept = stream.try_clone().expect("a socket can be duplicated");
                sockets.lock().expect("no thread panics while it holds the lock").push(kept);
                serve_one(&dir, stream);
            }
        });
    }
}

/// Starts a server for one connection.
fn serve_one(dir: &Path, stream: TcpStream) {
    let stdin = OwnedFd::from(stream.try_clone().expect("a socket can be duplicated"));
    let child = Command::new("/usr/sbin/sshd")
        .args(["-i", "-e", "-f"])
        .arg(dir.join("sshd_config"))
        .env_clear()
        .process_group(0)
        .stdin(Stdio::from(stdin))
        .stdout(Stdio::from(OwnedFd::from(stream)))
        .stderr(fs::OpenOptions::new().append(true).create(true).open(dir.join("sshd.log")).expect("it is writable"))
        .spawn();
    let mut child = child.unwrap_or_else(|error| panic!("cannot start sshd: {error}: run cargo xtask setup"));
    std::thread::spawn(move || child.wait());
}

#[track_caller]
fn keygen(path: &Path, kind: &str, passphrase: &str) {
    let path = path.display().to_string();
    Call::new("ssh-keygen").args(["-q", "-t", kind, "-N", passphrase, "-C", "test", "-f", &path]).ok();
}

fn folder(path: &Path) {
    fs::DirBuilder::new().recursive(true).mode(0o700).create(path).expect("the DVM's directory is writable");
}

fn write(path: &Path, text: &str) {
    fs::write(path, text).expect("the home is writable");
    fs::set_permissions(path, fs::Permissions::from_mode(0o600)).expect("the home belongs to this user");
}
