//! An etcd server of one member.

use std::net::TcpListener;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use nix::sys::signal::Signal;

use crate::call::{Call, Running};
use crate::certificates::Certificates;
use crate::eventually;

/// Whom a server lets in.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Guard {
    /// Everybody, without TLS.
    None,
    /// Everybody, with TLS.
    Tls,
    /// Who has a certificate of its authority.
    Certificates,
}

/// A server on loopback, with its data. It ends with the value.
#[derive(Debug)]
pub struct Etcd {
    dir: PathBuf,
    client: u16,
    peer: u16,
    guard: Guard,
    server: Option<Running>,
}

impl Etcd {
    /// Starts a server that lets everybody in.
    ///
    /// # Panics
    /// If it does not start.
    #[track_caller]
    pub fn start() -> Etcd {
        Etcd::guarded(Guard::None)
    }

    /// Starts a server.
    ///
    /// # Panics
    /// If it does not start.
    #[track_caller]
    pub fn guarded(guard: Guard) -> Etcd {
        static COUNT: AtomicU32 = AtomicU32::new(0);
        let name = format!("rsd-etcd-{}-{}", std::process::id(), COUNT.fetch_add(1, Ordering::Relaxed));
        let free =
            || TcpListener::bind("127.0.0.1:0").and_then(|socket| socket.local_addr()).expect("there are free ports");
        let (client, peer) = (free().port(), free().port());
        let dir = std::env::temp_dir().join(name);
        std::fs::create_dir_all(&dir).expect("the directory of temporary files is writable");
        if guard != Guard::None {
            Certificates::new(&["127.0.0.1"]).write(&dir);
        }
        let mut etcd = Etcd { dir, client, peer, guard, server: None };
        etcd.begin();
        etcd
    }

    /// Starts it again, with its data.
    ///
    /// # Panics
    /// If it does not start.
    #[track_caller]
    pub fn begin(&mut self) {
        let peer = format!("http://127.0.0.1:{}", self.peer);
        let call = serving(Call::new("etcd"), self.guard, &self.dir, (&self.url(), &self.url(), &peer));
        self.server = Some(call.deadline(Duration::from_secs(600)).start());
        let at = format!("127.0.0.1:{}", self.client);
        eventually("etcd listens", Duration::from_secs(30), || std::net::TcpStream::connect(&at).ok());
    }

    /// Its address, for `head.etcd`.
    pub fn url(&self) -> String {
        let scheme = if self.guard == Guard::None { "http" } else { "https" };
        format!("{scheme}://127.0.0.1:{}", self.client)
    }

    /// A file of its certificates, as [`Certificates::files`] names them.
    pub fn file(&self, name: &str) -> String {
        self.dir.join(name).display().to_string()
    }

    /// Administers the server with `etcdctl` and these arguments.
    pub fn ctl(&self, line: &str) -> Call {
        let call = Call::new("etcdctl").env("ETCDCTL_API", "3").args(["--endpoints", &self.url()]);
        let call = match self.guard {
            Guard::None => call,
            Guard::Tls | Guard::Certificates => call.args(["--cacert", &self.file("authority.pem")]),
        };
        call.args(line.split_whitespace())
    }

    /// Kills it.
    pub fn end(&mut self) {
        if let Some(server) = self.server.take() {
            server.signal(Signal::SIGKILL);
            server.gone();
        }
    }
}

impl Drop for Etcd {
    fn drop(&mut self) {
        self.end();
        let _ = std::fs::remove_dir_all(&self.dir); // a test that has failed says so already
    }
}

/// Adds the arguments of a server to `etcd`. `dir` has its certificates, and gets its data. It listens at the first address, is called at
/// the second, and would talk to its peers at the third.
pub fn serving(etcd: Call, guard: Guard, dir: &Path, (listens, client, peer): (&str, &str, &str)) -> Call {
    let call = etcd.args(["--name", "only", "--data-dir"]).args([&dir.join("data")]);
    let call = call.args(["--listen-client-urls", listens, "--advertise-client-urls", client]);
    let call = call.args(["--listen-peer-urls", peer, "--initial-advertise-peer-urls", peer]);
    let call = call.args(["--initial-cluster", &format!("only={peer}"), "--log-level", "error"]);
    let file = |name: &str| dir.join(name).display().to_string();
    let call = match guard {
        Guard::None => return call,
        Guard::Tls => call,
        Guard::Certificates => call.args(["--client-cert-auth", "--trusted-ca-file", &file("authority.pem")]),
    };
    call.args(["--cert-file", &file("server.pem"), "--key-file", &file("server-key.pem")])
}
