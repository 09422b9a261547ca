//! Turns the launcher's variables into a connected socket.

use std::io::{self, Read, Write};
use std::net::{TcpStream, ToSocketAddrs};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::str::FromStr;
use std::time::Duration;

use nix::fcntl::{FcntlArg, FdFlag, fcntl};
use nix::sys::socket::{MsgFlags, getsockopt, recv, sockopt};
use rsd_proto::pmi::listening;

use super::BootstrapError;

/// The variables with which a launcher tells where the process manager is.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Env {
    /// `PMI_FD`: the number of an inherited socket.
    pub fd: Option<String>,
    /// `PMI_RANK`, with `PMI_FD`.
    pub rank: Option<String>,
    /// `PMI_SIZE`, with `PMI_FD`.
    pub size: Option<String>,
    /// `PMI_PORT`: `host:port`.
    pub port: Option<String>,
    /// `PMI_ID`, with `PMI_PORT`: opaque.
    pub id: Option<String>,
    /// `PMI_JOBID`: the job's name, from Slurm, whose PMI-2 needs it.
    pub job: Option<String>,
    /// `RSD_LISTEN_FD`: the number of a listening socket, from rsd.
    pub listener: Option<String>,
    /// `RSD_PMI_NAMESPACE`: the job's name, from rsd.
    pub namespace: Option<String>,
    /// `RSD_DIAL_OUT`: whether ranks of the job cannot be dialled from other machines, from rsd.
    pub dial_out: bool,
    /// `RSD_CROWDED`: whether some machine runs more ranks of the job than it has processors, from rsd; the same for all ranks.
    pub crowded: bool,
    /// `RSD_NODE_ADDRESS`: the address at which other nodes reach this one, from rsd.
    pub address: Option<String>,
}

/// Where the process manager is. A process without one is alone: a singleton.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Attachment {
    /// At an inherited socket.
    Inherited {
        /// The descriptor's number.
        fd: i32,
        /// The launcher's number.
        rank: u32,
        /// The launcher's number.
        size: u32,
    },
    /// At a TCP port, where this process learns its rank.
    Tcp {
        /// `host:port`.
        address: String,
        /// The id by which the process manager knows this process.
        id: String,
    },
}

impl Env {
    /// The variables of this process.
    pub fn of_process() -> Self {
        let var = |name| std::env::var_os(name).map(|value| value.to_string_lossy().into_owned());
        Self {
            fd: var("PMI_FD"),
            rank: var("PMI_RANK"),
            size: var("PMI_SIZE"),
            port: var("PMI_PORT"),
            id: var("PMI_ID"),
            job: var("PMI_JOBID"),
            listener: var(listening::LISTEN_FD),
            namespace: var(listening::NAMESPACE),
            dial_out: var(listening::DIAL_OUT).is_some(),
            crowded: var(listening::CROWDED).is_some_and(|value| value == "1"),
            address: var("RSD_NODE_ADDRESS"),
        }
    }

    /// Returns where the process manager is; an inherited socket takes precedence over a port, as in other clients.
    pub fn attachment(&self) -> Result<Option<Attachment>, BootstrapError> {
        if let Some(fd) = &self.fd {
            let needs = |missing| BootstrapError::Incomplete { present: "PMI_FD", missing };
            let rank = self.rank.as_ref().ok_or_else(|| needs("PMI_RANK"))?;
            let size = self.size.as_ref().ok_or_else(|| needs("PMI_SIZE"))?;
            let fd_number = number("PMI_FD", fd, "the number of a descriptor")?;
            if fd_number < 0 {
                return Err(bad("PMI_FD", fd, "the number of a descriptor"));
            }
            let size_number = number("PMI_SIZE", size, "a number of ranks")?;
            let rank_number = number("PMI_RANK", rank, "a rank")?;
            if rank_number >= size_number {
                return Err(bad("PMI_RANK", rank, "a rank below PMI_SIZE"));
            }
            return Ok(Some(Attachment::Inherited { fd: fd_number, rank: rank_number, size: size_number }));
        }
        let Some(address) = &self.port else { return Ok(None) };
        let Some(id) = &self.id else {
            return Err(BootstrapError::Incomplete { present: "PMI_PORT", missing: "PMI_ID" });
        };
        if !address.rsplit_once(':').is_some_and(|(host, port)| !host.is_empty() && port.parse::<u16>().is_ok()) {
            return Err(bad("PMI_PORT", address, "host:port"));
        }
        Ok(Some(Attachment::Tcp { address: address.clone(), id: id.clone() }))
    }

    /// Takes the listening socket that the launcher has made. From now on it belongs to this process alone: programs
    /// that it executes do not inherit it.
    #[expect(unsafe_code, reason = "an inherited descriptor is known only by its number")]
    pub fn take_listener(&self) -> Result<OwnedFd, BootstrapError> {
        const NAME: &str = listening::LISTEN_FD;
        let missing = || BootstrapError::Incomplete { present: listening::NAMESPACE, missing: NAME };
        let text = self.listener.as_ref().ok_or_else(missing)?;
        let fd: i32 = number(NAME, text, "the number of a descriptor")?;
        if fd < 0 {
            return Err(bad(NAME, text, "the number of a descriptor"));
        }
        // SAFETY: the number is not -1, and is borrowed for two calls that the kernel refuses if it is not open.
        let borrowed = unsafe { BorrowedFd::borrow_raw(fd) };
        if !matches!(getsockopt(&borrowed, sockopt::AcceptConn), Ok(true)) {
            return Err(BootstrapError::NotListening { fd });
        }
        fcntl(borrowed, FcntlArg::F_SETFD(FdFlag::FD_CLOEXEC))
            .map_err(|errno| BootstrapError::Descriptor { fd, source: errno.into() })?;
        // SAFETY: it is an open listening socket, and its variable says that the launcher made it for this library
        // only.
        Ok(unsafe { OwnedFd::from_raw_fd(fd) })
    }
}

fn number<T: FromStr>(name: &'static str, value: &str, expected: &'static str) -> Result<T, BootstrapError> {
    value.parse().map_err(|_| bad(name, value, expected))
}

fn bad(name: &'static str, value: &str, expected: &'static str) -> BootstrapError {
    BootstrapError::BadVariable { name, value: value.into(), expected }
}

/// A connected socket of either family.
#[derive(Debug)]
pub(super) enum Socket {
    Unix(UnixStream),
    Tcp(TcpStream),
}

impl Socket {
    /// A second descriptor for the inherited socket, which programs that this process executes do not inherit. The
    /// first is unchanged, for other libraries in this process.
    #[expect(unsafe_code, reason = "an inherited descriptor is known only by its number")]
    pub(super) fn inherited(fd: i32) -> Result<Self, BootstrapError> {
        let descriptor = |source| BootstrapError::Descriptor { fd, source };
        if fd < 0 {
            return Err(descriptor(io::ErrorKind::InvalidInput.into()));
        }
        // SAFETY: the number is not -1 and is borrowed for one dup, which the kernel refuses if it is not open; the launcher
        // made the descriptor for this use.
        let own: OwnedFd = unsafe { BorrowedFd::borrow_raw(fd) }.try_clone_to_owned().map_err(descriptor)?;
        let socket = UnixStream::from(own);
        // The socket's family does not matter: the calls only require a socket.
        socket.set_read_timeout(None).map_err(descriptor)?;
        socket.set_nonblocking(false).map_err(descriptor)?;
        Ok(Self::Unix(socket))
    }

    /// Connects; `limit` applies to each address of the host name.
    pub(super) fn connect(address: &str, limit: Duration) -> Result<Self, BootstrapError> {
        let failed = |source| BootstrapError::Connect { address: address.into(), source };
        let mut last = io::ErrorKind::AddrNotAvailable.into();
        for address in address.to_socket_addrs().map_err(failed)? {
            match TcpStream::connect_timeout(&address, limit) {
                Ok(stream) => {
                    stream.set_nodelay(true).map_err(failed)?;
                    return Ok(Self::Tcp(stream));
                }
                Err(error) => last = error,
            }
        }
        Err(failed(last))
    }

    pub(super) fn set_read_timeout(&self, limit: Option<Duration>) -> io::Result<()> {
        match self {
            Self::Unix(socket) => socket.set_read_timeout(limit),
            Self::Tcp(socket) => socket.set_read_timeout(limit),
        }
    }

    pub(super) fn read(&mut self, bytes: &mut [u8]) -> io::Result<usize> {
        match self {
            Self::Unix(socket) => socket.read(bytes),
            Self::Tcp(socket) => socket.read(bytes),
        }
    }

    /// Reads what has arrived; fails with [`io::ErrorKind::WouldBlock`] if nothing has.
    pub(super) fn read_now(&self, bytes: &mut [u8]) -> io::Result<usize> {
        Ok(recv(self.as_fd().as_raw_fd(), bytes, MsgFlags::MSG_DONTWAIT)?)
    }

    pub(super) fn write_all(&mut self, bytes: &[u8]) -> io::Result<()> {
        match self {
            Self::Unix(socket) => socket.write_all(bytes),
            Self::Tcp(socket) => socket.write_all(bytes),
        }
    }
}

impl AsFd for Socket {
    fn as_fd(&self) -> BorrowedFd<'_> {
        match self {
            Self::Unix(socket) => socket.as_fd(),
            Self::Tcp(socket) => socket.as_fd(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn env(fd: &str, rank: &str, size: &str, port: &str, id: &str) -> Env {
        let some = |text: &str| (!text.is_empty()).then(|| text.to_string());
        Env { fd: some(fd), rank: some(rank), size: some(size), port: some(port), id: some(id), ..Env::default() }
    }

    #[test]
    fn the_variables_locate_the_process_manager() {
        let inherited = Attachment::Inherited { fd: 7, rank: 2, size: 3 };
        assert_eq!(env("7", "2", "3", "", "").attachment().unwrap(), Some(inherited.clone()));
        assert_eq!(env("7", "2", "3", "host:1", "9").attachment().unwrap(), Some(inherited));
        let tcp = Attachment::Tcp { address: "host:1".into(), id: "9".into() };
        assert_eq!(env("", "2", "3", "host:1", "9").attachment().unwrap(), Some(tcp));
        assert_eq!(env("", "2", "3", "", "9").attachment().unwrap(), None);
        assert_eq!(Env::default().attachment().unwrap(), None);
    }

    #[test]
    fn incomplete_or_invalid_variables_are_named() {
        let vectors = [
            (env("7", "", "3", "", ""), "find PMI_RANK in the environment, although PMI_FD is set"),
            (env("7", "0", "", "", ""), "find PMI_SIZE in the environment, although PMI_FD is set"),
            (env("", "", "", "host:1", ""), "find PMI_ID in the environment, although PMI_PORT is set"),
            (env("-1", "0", "1", "", ""), "read PMI_FD=\"-1\" as the number of a descriptor"),
            (env("7", "x", "1", "", ""), "read PMI_RANK=\"x\" as a rank"),
            (env("7", "3", "3", "", ""), "read PMI_RANK=\"3\" as a rank below PMI_SIZE"),
            (env("7", "0", "many", "", ""), "read PMI_SIZE=\"many\" as a number of ranks"),
            (env("", "", "", "host", "1"), "read PMI_PORT=\"host\" as host:port"),
            (env("", "", "", "host:99999", "1"), "read PMI_PORT=\"host:99999\" as host:port"),
        ];
        for (env, text) in vectors {
            assert_eq!(env.attachment().unwrap_err().to_string(), text);
        }
    }

    #[test]
    fn a_descriptor_that_is_closed_or_not_a_socket_is_refused() {
        let file = std::fs::File::open("/dev/null").unwrap();
        let fd = std::os::fd::AsRawFd::as_raw_fd(&file);
        assert!(matches!(Socket::inherited(fd), Err(BootstrapError::Descriptor { .. })));
        // Beyond the descriptors that a process may have open.
        assert!(matches!(Socket::inherited(i32::MAX), Err(BootstrapError::Descriptor { .. })));
        assert!(matches!(Socket::inherited(-1), Err(BootstrapError::Descriptor { .. })));
    }

    #[test]
    fn only_a_listening_socket_is_taken_over() {
        let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let (address, fd) = (listener.local_addr().unwrap(), std::os::fd::IntoRawFd::into_raw_fd(listener));
        let env_of = |text: &str| Env { listener: Some(text.into()), ..Env::default() };
        let taken = env_of(&fd.to_string()).take_listener().unwrap();
        assert_eq!((taken.as_raw_fd(), fcntl(&taken, FcntlArg::F_GETFD)), (fd, Ok(FdFlag::FD_CLOEXEC.bits())));
        let connected = TcpStream::connect(address).unwrap();
        let plain = connected.as_raw_fd().to_string();
        for (env, text) in [
            (env_of(&plain), format!("use descriptor {plain} from RSD_LISTEN_FD as a listening socket")),
            (env_of("1000000000"), "use descriptor 1000000000 from RSD_LISTEN_FD as a listening socket".into()),
            (env_of("-1"), "read RSD_LISTEN_FD=\"-1\" as the number of a descriptor".into()),
            (Env::default(), "find RSD_LISTEN_FD in the environment, although RSD_PMI_NAMESPACE is set".into()),
        ] {
            let error = env.take_listener().unwrap_err().to_string();
            assert!(error.starts_with(&text), "{error}");
        }
    }

    #[test]
    fn a_port_without_a_listener_is_refused_at_once() {
        let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap().to_string();
        drop(listener);
        let error = Socket::connect(&address, Duration::from_secs(5)).unwrap_err();
        assert_eq!(error.to_string(), format!("connect to the process manager at {address} from PMI_PORT"));
    }
}
