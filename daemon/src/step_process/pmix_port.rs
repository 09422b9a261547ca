//! The port of the step's PMIx server, and its connections.
//!
//! PMIx has no authentication of its own that deserves the name: a client says which process it is. So the port is on loopback, the kernel
//! must say that the peer belongs to the job's user, and the first message must name the job, whose namespace other users cannot know.
//! A first message is bounded in bytes, time and number. A connection that breaks the protocol is closed alone.

use std::cell::Cell;
use std::collections::HashMap;
use std::ffi::OsStr;
use std::io::ErrorKind;
use std::net::Ipv4Addr;
use std::os::fd::AsRawFd;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};
use std::rc::Rc;
use std::time::Duration;

use bytes::{Bytes, BytesMut};
use nix::sched::sched_getaffinity;
use nix::sys::socket::{Shutdown, shutdown};
use nix::unistd::{Pid, geteuid};
use rsd_core::step::{Client, Input, Removal, Removed};
use rsd_proto::pmix::environment::Server;
use rsd_proto::pmix::{HELLO_MAX, Hello, fabric};
use rsd_proto::transport::loopback::loopback_peer_uid;
use rsd_proto::v1::LaunchBody;
use tokio::io::AsyncReadExt;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{Semaphore, mpsc};
use tracing::{debug, warn};

use super::Event;
use crate::network;

/// How long a peer may take to send its first message.
const HELLO_DEADLINE: Duration = Duration::from_secs(10);
/// The most connections that have not yet sent it.
const HELLOS_MAX: usize = 256;
/// The most connections of a rank, on average.
const CLIENTS_PER_RANK: usize = 16;
/// The most unread bytes of answers; a client that exceeds this has broken the protocol. The description of a large job is one answer.
const BACKLOG_BYTES: usize = 256 << 20;
/// The pause after a failure to accept, which usually means that no descriptors are left.
const PAUSE: Duration = Duration::from_millis(50);
const READ_BYTES: usize = 16 << 10;

/// A peer has sent its first message.
#[derive(Debug)]
pub(super) struct Arrival {
    stream: TcpStream,
    hello: Hello,
    /// Its user, as the kernel says.
    uid: u32,
    /// The bytes that it has sent after that message.
    rest: Bytes,
}

/// The port and its clients.
#[derive(Debug)]
pub(super) struct PmixPort {
    clients: HashMap<Client, Connection>,
    /// The number of the last client.
    last: Client,
    most: usize,
    /// For the files and the shared memory of ranks.
    directories: Directories,
    events: mpsc::UnboundedSender<Event>,
}

#[derive(Debug)]
struct Connection {
    stream: Rc<TcpStream>,
    backlog: mpsc::UnboundedSender<Bytes>,
    backlog_bytes: Rc<Cell<usize>>,
    is_closed: Rc<Cell<bool>>,
}

impl PmixPort {
    /// Listens. Returns also where, for the core.
    pub(super) fn listen(
        launch: &LaunchBody,
        ranks: u32,
        devices: fabric::Devices,
        events: mpsc::UnboundedSender<Event>,
    ) -> std::io::Result<(PmixPort, Server)> {
        // Port ranges are for firewalls, which this port never meets.
        let listener = network::listen((Ipv4Addr::LOCALHOST, 0).into())?;
        let port = listener.local_addr()?.port();
        tokio::task::spawn_local(accept(listener, events.clone()));
        // Other users see its name, so it must not contain the job's namespace.
        let name = crate::random::random::<8>().map(u64::from_ne_bytes).map_err(std::io::Error::other)?;
        let name = format!("rsd-ranks-{name:016x}");
        let (files, shared) = (temporary(launch).join(&name), Path::new(MEMORY).join(&name));
        let most = 64 + CLIENTS_PER_RANK * ranks as usize;
        // A path that is not UTF-8 cannot be described to clients, which then choose one of their own.
        let directory = files.to_str().unwrap_or_default().to_owned();
        let in_memory = if Path::new(MEMORY).is_dir() { shared.to_string_lossy().into_owned() } else { String::new() };
        let wanted = [&directory, &in_memory].into_iter().filter(|path| !path.is_empty()).map(PathBuf::from);
        let directories = Directories::Wanted(wanted.collect());
        let variable = |name: &str| variable(launch, name)?.to_str().map(str::to_owned);
        let no_fabric = fabric::absent(Path::new("/"), devices, &variable);
        let server = Server { port, directory, shared: in_memory, cores: cores(), no_fabric };
        Ok((PmixPort { clients: HashMap::new(), last: 0, most, directories, events }, server))
    }

    /// Serves the members of a group, who connect to the port of their PMI server.
    pub(super) fn of_members(port: u16, ranks: u32, events: mpsc::UnboundedSender<Event>) -> (PmixPort, Server) {
        let most = 64 + CLIENTS_PER_RANK * ranks as usize;
        // They may belong to several users, so they have no directories in common.
        let directories = Directories::Wanted(Vec::new());
        // Each looks for a fabric itself, by its own variables.
        let server =
            Server { port, directory: String::new(), shared: String::new(), cores: cores(), no_fabric: Vec::new() };
        (PmixPort { clients: HashMap::new(), last: 0, most, directories, events }, server)
    }

    /// Serves a peer, under the number that is returned. None: there are too many.
    pub(super) fn serve(&mut self, stream: TcpStream) -> Option<Client> {
        self.clients.retain(|_, connection| !connection.is_closed.get());
        if self.clients.len() >= self.most {
            warn!("dropped a PMIx connection: the job's ranks have {} already", self.most);
            return None;
        }
        self.directories.make();
        self.last += 1;
        let client = self.last;
        let stream = Rc::new(stream);
        let is_closed = Rc::new(Cell::new(false));
        tokio::task::spawn_local(read(client, Rc::clone(&stream), Rc::clone(&is_closed), self.events.clone()));
        let (backlog, late) = mpsc::unbounded_channel();
        let backlog_bytes = Rc::new(Cell::new(0));
        tokio::task::spawn_local(write(Rc::clone(&stream), late, Rc::clone(&backlog_bytes)));
        self.clients.insert(client, Connection { stream, backlog, backlog_bytes, is_closed });
        Some(client)
    }

    pub(super) fn send(&mut self, client: Client, bytes: &Bytes) {
        let Some(connection) = self.clients.get(&client) else { return };
        let waiting = connection.backlog_bytes.get();
        let sent = if waiting > 0 { 0 } else { connection.stream.try_write(bytes).unwrap_or(0) };
        let waiting = waiting + bytes.len() - sent;
        if waiting > BACKLOG_BYTES {
            return self.close(client);
        }
        if sent < bytes.len() {
            connection.backlog_bytes.set(waiting);
            // The writing task ends only with the socket.
            let _ = connection.backlog.send(bytes.slice(sent..));
        }
    }

    /// Removes the files of the ranks, which have all ended.
    pub(super) fn remove_directories(&mut self) {
        self.directories.remove();
    }

    /// Closes a connection. What was sent before still arrives; the reading task sees the end and reports it.
    pub(super) fn close(&mut self, client: Client) {
        if let Some(connection) = self.clients.remove(&client) {
            let _ = shutdown(connection.stream.as_raw_fd(), Shutdown::Both);
        }
    }
}

/// Where kernels keep files in memory.
const MEMORY: &str = "/dev/shm";

/// Directories of the ranks here. They are removed with everything in them.
#[derive(Debug)]
enum Directories {
    /// No client has come yet.
    Wanted(Vec<PathBuf>),
    Made(Vec<PathBuf>),
}

impl Directories {
    fn make(&mut self) {
        let Directories::Wanted(paths) = self else { return };
        let made = std::mem::take(paths).into_iter().filter(|path| {
            // If another program has taken the name, which it could only guess, the ranks make do without.
            match std::fs::DirBuilder::new().mode(0o700).create(path) {
                Ok(()) => true,
                Err(error) => {
                    debug!(%error, directory = %path.display(), "no directory for the ranks' files");
                    false
                }
            }
        });
        *self = Directories::Made(made.collect());
    }

    fn remove(&mut self) {
        let Directories::Made(paths) = self else { return };
        for path in std::mem::take(paths) {
            if let Err(error) = std::fs::remove_dir_all(&path) {
                debug!(%error, directory = %path.display(), "cannot remove the ranks' files");
            }
        }
    }
}

impl Drop for Directories {
    fn drop(&mut self) {
        self.remove();
    }
}

/// Removes a file or directory that a rank has named. This process has no more rights than the rank had.
pub(super) fn remove(removal: &Removal) {
    let path = Path::new(OsStr::from_bytes(&removal.path));
    let removed = match removal.what {
        Removed::File => std::fs::remove_file(path),
        Removed::EmptyDirectory => std::fs::remove_dir(path),
        Removed::Tree => std::fs::remove_dir_all(path),
        Removed::Content => std::fs::read_dir(path).map(|entries| {
            for entry in entries.flatten().map(|entry| entry.path()) {
                let _ = if entry.is_dir() && !entry.is_symlink() {
                    std::fs::remove_dir_all(&entry)
                } else {
                    std::fs::remove_file(&entry)
                };
            }
        }),
    };
    if let Err(error) = removed.or_else(|error| if error.kind() == ErrorKind::NotFound { Ok(()) } else { Err(error) }) {
        debug!(%error, path = %path.display(), "cannot remove what a rank has left");
    }
}

/// Returns the directory for temporary files in which the job's ranks would look, if it exists here.
fn temporary(launch: &LaunchBody) -> PathBuf {
    match variable(launch, "TMPDIR").map(Path::new).filter(|dir| dir.is_absolute() && dir.is_dir()) {
        Some(dir) => dir.to_owned(),
        None => PathBuf::from("/tmp"),
    }
}

/// Returns a variable of the job, unless a program of it has its own.
fn variable<'a>(launch: &'a LaunchBody, name: &str) -> Option<&'a OsStr> {
    let env = launch.spec.as_ref().map_or(&[][..], |spec| &spec.env);
    env.iter().find(|var| var.name == name.as_bytes()).map(|var| OsStr::from_bytes(&var.value))
}

/// Returns how many cpus this process may use.
fn cores() -> u32 {
    let set = sched_getaffinity(Pid::from_raw(0));
    let count =
        set.map_or(1, |set| (0..nix::sched::CpuSet::count()).filter(|cpu| set.is_set(*cpu).unwrap_or(false)).count());
    u32::try_from(count).unwrap_or(1)
}

async fn accept(listener: TcpListener, events: mpsc::UnboundedSender<Event>) {
    let user = geteuid().as_raw();
    let room = Rc::new(Semaphore::new(HELLOS_MAX));
    loop {
        let accepted = tokio::select! {
            accepted = listener.accept() => accepted,
            () = events.closed() => return,
        };
        let Ok((stream, peer)) = accepted else {
            tokio::time::sleep(PAUSE).await;
            continue;
        };
        let uid = stream.local_addr().ok().and_then(|local| loopback_peer_uid(local, peer));
        if uid != Some(user) {
            debug!(%peer, uid, "dropped a PMIx connection of another user");
            continue;
        }
        let (events, room) = (events.clone(), Rc::clone(&room));
        tokio::task::spawn_local(async move {
            // The semaphore is never closed.
            let Ok(_permit) = room.acquire().await else { return };
            match tokio::time::timeout(HELLO_DEADLINE, first_message(stream, user)).await {
                Ok(Some(arrival)) => drop(events.send(Event::PmixArrival(arrival))),
                Ok(None) | Err(_) => debug!(%peer, "dropped a PMIx connection without a valid first message"),
            }
        });
    }
}

/// Reads the first message of a peer. None: it is invalid, or the peer has gone.
pub(super) async fn first_message(mut stream: TcpStream, uid: u32) -> Option<Arrival> {
    let mut bytes = BytesMut::new();
    loop {
        match Hello::decode(&bytes) {
            Ok(Some((hello, length))) => {
                stream.set_nodelay(true).ok()?;
                let rest = bytes.split_off(length).freeze();
                return Some(Arrival { stream, hello, uid, rest });
            }
            Ok(None) if bytes.len() > 2 * HELLO_MAX => return None,
            Ok(None) => {}
            Err(error) => {
                debug!(%error, "invalid first message of a PMIx client");
                return None;
            }
        }
        if stream.read_buf(&mut bytes).await.ok()? == 0 {
            return None;
        }
    }
}

impl Arrival {
    /// Returns the connection, and who it is and what it has sent.
    pub(super) fn take(self) -> (TcpStream, Hello, u32, Bytes) {
        (self.stream, self.hello, self.uid, self.rest)
    }
}

async fn read(client: Client, stream: Rc<TcpStream>, is_closed: Rc<Cell<bool>>, events: mpsc::UnboundedSender<Event>) {
    while stream.readable().await.is_ok() {
        let mut buffer = BytesMut::with_capacity(READ_BYTES);
        match stream.try_read_buf(&mut buffer) {
            Ok(0) => break,
            Ok(_) => drop(events.send(Event::Input(Input::Pmix(client, buffer.freeze())))),
            Err(error) if error.kind() == ErrorKind::WouldBlock => {}
            Err(_) => break,
        }
    }
    is_closed.set(true);
    let _ = events.send(Event::Input(Input::PmixClosed(client)));
}

async fn write(stream: Rc<TcpStream>, mut late: mpsc::UnboundedReceiver<Bytes>, left: Rc<Cell<usize>>) {
    while let Some(mut bytes) = late.recv().await {
        while !bytes.is_empty() && stream.writable().await.is_ok() {
            match stream.try_write(&bytes) {
                Ok(n) => {
                    left.set(left.get() - n);
                    bytes = bytes.slice(n..);
                }
                Err(error) if error.kind() == ErrorKind::WouldBlock => {}
                Err(_) => return,
            }
        }
    }
}
