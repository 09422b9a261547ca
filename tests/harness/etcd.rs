//! An etcd server of one member, on loopback.

use std::net::TcpListener;
use std::path::PathBuf;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use nix::sys::signal::Signal;

use crate::call::{Call, Running};
use crate::eventually;

/// A server, with its data. It ends with the value.
#[derive(Debug)]
pub struct Etcd {
    dir: PathBuf,
    client: u16,
    peer: u16,
    server: Option<Running>,
}

impl Etcd {
    /// Starts a server.
    ///
    /// # Panics
    /// If it does not start.
    #[track_caller]
    pub fn start() -> Etcd {
        static COUNT: AtomicU32 = AtomicU32::new(0);
        let name = format!("rsd-etcd-{}-{}", std::process::id(), COUNT.fetch_add(1, Ordering::Relaxed));
        let free =
            || TcpListener::bind("127.0.0.1:0").and_then(|socket| socket.local_addr()).expect("there are free ports");
        let (client, peer) = (free().port(), free().port());
        let mut etcd = Etcd { dir: std::env::temp_dir().join(name), client, peer, server: None };
        etcd.begin();
        etcd
    }

    /// Starts it again, with its data.
    ///
    /// # Panics
    /// If it does not start.
    #[track_caller]
    pub fn begin(&mut self) {
        let (client, peer) = (self.url(), format!("http://127.0.0.1:{}", self.peer));
        let call = Call::new("etcd").args(["--name", "only", "--data-dir"]).args([&self.dir]);
        let call = call.args(["--listen-client-urls", &client, "--advertise-client-urls", &client]);
        let call = call.args(["--listen-peer-urls", &peer, "--initial-advertise-peer-urls", &peer]);
        let call = call.args(["--initial-cluster", &format!("only={peer}"), "--log-level", "error"]);
        self.server = Some(call.deadline(Duration::from_secs(600)).start());
        let at = format!("127.0.0.1:{}", self.client);
        eventually("etcd listens", Duration::from_secs(30), || std::net::TcpStream::connect(&at).ok());
    }

    /// Its address, for `head.etcd`.
    pub fn url(&self) -> String {
        format!("http://127.0.0.1:{}", self.client)
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
