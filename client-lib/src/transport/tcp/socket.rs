//! The system calls on TCP sockets, with the options that all sockets of the library have.

use std::ffi::OsString;
use std::io::{self, IoSlice};
use std::net::{IpAddr, Ipv4Addr, SocketAddr, TcpListener, TcpStream};
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::sync::OnceLock;
use std::time::Duration;

use nix::fcntl::{FcntlArg, FdFlag, fcntl};
use nix::sys::socket::{
    self, AddressFamily, Backlog, GetSockOpt, MsgFlags, SockFlag, SockType, SockaddrStorage, setsockopt, sockopt,
};
use rsd_proto::pacing;

/// The first keep-alive probe on an idle connection is sent after this long.
const IDLE_S: u32 = 10;
/// Further probes follow at this interval.
const ASK_S: u32 = 5;
/// The connection is given up after this many unanswered probes: 30 s after the peer's host has vanished.
const ASKS: u32 = 4;
/// The same time for data without acknowledgement.
const SILENT: Duration = Duration::from_secs(30);

/// The send buffer towards a process on the same host, which the kernel doubles. By default it grows beyond the size of
/// the cache: 4 MiB take 615 us with this limit instead of 843, 1 MiB takes 129 instead of 283. Between hosts the
/// network decides.
const NEAR: usize = 512 << 10;

/// The congestion control towards a process with the same address, where nothing is ever congested. One that paces ([`pacing`]) also takes the
/// pauses of an MPI program for the host's limit at times: then windows of 128 KiB take 50 us a message instead of 16, for seconds. So every
/// connection begins without pacing; those to other addresses then change to the system's default.
const NEAR_CONTROL: &str = pacing::UNPACED;

/// The shortest retransmission timeout towards another host, instead of 200 ms: if many hosts send to one at the same time, the last
/// segments of their messages may be lost, which only the timeout repairs.
const RETRANSMIT_US: u32 = 10_000;
/// How long an acknowledgement may be delayed, instead of up to 200 ms: less than the timeout, or what has arrived would be sent again.
const DELAY_US: u32 = 5_000;

/// A listening socket on a port that the system chooses.
pub(super) fn listen(at: IpAddr) -> io::Result<TcpListener> {
    ready_to_listen(TcpListener::bind(SocketAddr::new(at, 0))?)
}

/// A socket that the parent process has made; it need not listen yet.
pub(super) fn inherited(descriptor: OwnedFd) -> io::Result<TcpListener> {
    // Programs that this process executes would keep the port open after this process has exited, and diallers waiting.
    fcntl(&descriptor, FcntlArg::F_SETFD(FdFlag::FD_CLOEXEC))?;
    ready_to_listen(TcpListener::from(descriptor))
}

fn ready_to_listen(listener: TcpListener) -> io::Result<TcpListener> {
    // For the connections that it will accept.
    begin_unpaced(&listener);
    // This also requests a longer queue than std does: all ranks of a job may dial one at the same time.
    socket::listen(&listener, Backlog::MAXCONN)?;
    listener.set_nonblocking(true)?;
    Ok(listener)
}

/// Starts to connect; the socket becomes writable when that has ended, and [`TcpStream::take_error`] returns the
/// result.
pub(super) fn dial(address: SocketAddr) -> io::Result<TcpStream> {
    connect(new(address.ip())?, address)
}

/// As [`dial`], through the interface with this address.
pub(super) fn dial_from(from: &Source, address: SocketAddr) -> io::Result<TcpStream> {
    let socket = new(address.ip())?;
    from.bind(&socket)?;
    connect(socket, address)
}

/// As [`listen`], for what arrives at the interface with this address.
pub(super) fn listen_at(at: &Source) -> io::Result<TcpListener> {
    let socket = new(at.address)?;
    at.bind(&socket)?;
    ready_to_listen(TcpListener::from(socket))
}

/// The end of a connection that is to go through one interface of several.
#[derive(Debug, Clone)]
pub(super) struct Source {
    pub(super) address: IpAddr,
    /// The name of the interface, if the address alone does not determine it.
    pub(super) device: Option<String>,
}

impl Source {
    fn bind(&self, socket: &OwnedFd) -> io::Result<()> {
        if let Some(device) = &self.device {
            // It needs Linux 5.7, or a privilege. Without it, the system may use another interface of the same network.
            let _ = setsockopt(socket, sockopt::BindToDevice, &OsString::from(device));
        }
        Ok(socket::bind(socket.as_raw_fd(), &SockaddrStorage::from(SocketAddr::new(self.address, 0)))?)
    }
}

fn new(like: IpAddr) -> io::Result<OwnedFd> {
    let family = if like.is_ipv4() { AddressFamily::Inet } else { AddressFamily::Inet6 };
    let flags = SockFlag::SOCK_CLOEXEC | SockFlag::SOCK_NONBLOCK;
    Ok(socket::socket(family, SockType::Stream, flags, None)?)
}

fn connect(socket: OwnedFd, address: SocketAddr) -> io::Result<TcpStream> {
    let socket = TcpStream::from(socket);
    begin_unpaced(&socket);
    match socket::connect(socket.as_raw_fd(), &SockaddrStorage::from(address)) {
        Ok(()) | Err(nix::Error::EINPROGRESS) => Ok(socket),
        Err(error) => Err(error.into()),
    }
}

/// Selects the congestion control with which a connection begins.
fn begin_unpaced(socket: &impl AsFd) {
    if paced_default().is_some() {
        let _ = setsockopt(socket, sockopt::TcpCongestion, &OsString::from(pacing::UNPACED));
    }
}

/// The system's congestion control, if it paces, and connections may begin with another one and change to it later.
fn paced_default() -> Option<&'static OsString> {
    static DEFAULT: OnceLock<Option<OsString>> = OnceLock::new();
    let asked = || {
        let trial = new(Ipv4Addr::LOCALHOST.into()).ok()?;
        let default = socket::getsockopt(&trial, sockopt::TcpCongestion).ok().filter(|it| pacing::paces(it))?;
        setsockopt(&trial, sockopt::TcpCongestion, &OsString::from(pacing::UNPACED)).ok()?;
        setsockopt(&trial, sockopt::TcpCongestion, &default).ok()?;
        Some(default)
    };
    DEFAULT.get_or_init(asked).as_ref()
}

/// Sets the options of a connected socket. `TCP_USER_TIMEOUT` is not among them: it would also end connections to a
/// peer that is alive and computing, whose receive buffer is full ([`is_silent`] checks more precisely).
pub(super) fn set_options(socket: &TcpStream) -> io::Result<()> {
    socket.set_nonblocking(true)?;
    socket.set_nodelay(true)?;
    if is_near(socket)? {
        setsockopt(socket, sockopt::SndBuf, &NEAR)?;
        // If this fails, the system's default is used.
        let _ = setsockopt(socket, sockopt::TcpCongestion, &OsString::from(NEAR_CONTROL));
    } else {
        // Any other value comes from the route (`congctl`), which takes precedence.
        let is_unpaced = socket::getsockopt(socket, sockopt::TcpCongestion).is_ok_and(|now| now == pacing::UNPACED);
        if let Some(default) = paced_default().filter(|_| is_unpaced) {
            let _ = setsockopt(socket, sockopt::TcpCongestion, default);
        }
        // They need Linux 6.15, and a clock of more than 100 ticks a second.
        let _ = setsockopt(socket, timers::RetransmitMin, &RETRANSMIT_US);
        let _ = setsockopt(socket, timers::DelayMax, &DELAY_US);
    }
    setsockopt(socket, sockopt::KeepAlive, &true)?;
    setsockopt(socket, sockopt::TcpKeepIdle, &IDLE_S)?;
    setsockopt(socket, sockopt::TcpKeepInterval, &ASK_S)?;
    setsockopt(socket, sockopt::TcpKeepCount, &ASKS)?;
    Ok(())
}

/// Whether both ends of a connected socket are on one host.
pub(super) fn is_near(socket: &TcpStream) -> io::Result<bool> {
    Ok(socket.local_addr()?.ip() == socket.peer_addr()?.ip())
}

/// Sends the pieces in order, as much as there is room for. No SIGPIPE, because the library does not own the process.
#[inline]
pub(super) fn send(socket: &TcpStream, pieces: &[IoSlice<'_>]) -> io::Result<usize> {
    let flags = MsgFlags::MSG_NOSIGNAL | MsgFlags::MSG_DONTWAIT;
    let sent = match pieces {
        [piece] => socket::send(socket.as_raw_fd(), piece, flags),
        pieces => socket::sendmsg::<SockaddrStorage>(socket.as_raw_fd(), pieces, &[], flags, None),
    };
    Ok(sent?)
}

/// Whether the peer's host has not acknowledged data for [`SILENT`], in spite of several retransmissions. A host
/// acknowledges even if the process does not read.
pub(super) fn is_silent(socket: &TcpStream) -> bool {
    let Ok(state) = state::State.get(socket) else { return false };
    let repeated = state.retransmits.max(state.probes);
    repeated >= 3 && Duration::from_millis(state.last_ack_recv.into()) > SILENT
}

/// What the kernel has sent more than once on a connection.
#[derive(Debug, Clone, Copy)]
pub(super) struct Resent {
    /// The number of segments. It may overflow.
    pub(super) segments: u32,
    /// The bytes of a segment.
    pub(super) segment_bytes: u32,
}

/// Queries how much was sent again. What the peer had got already does not count, if the kernel knows.
pub(super) fn resent(socket: &TcpStream) -> Option<Resent> {
    if is_at_least(5, 4) {
        let state = state::Longest.get(socket).ok()?;
        let segments = state.long.first.total_retrans.wrapping_sub(state.dsack_dups);
        return Some(Resent { segments, segment_bytes: state.long.first.snd_mss });
    }
    let state = state::State.get(socket).ok()?;
    Some(Resent { segments: state.total_retrans, segment_bytes: state.snd_mss })
}

/// What the kernel has received on a connection.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Disorder {
    /// Bytes.
    pub(super) arrived: u64,
    /// The number of segments that arrived before others which had been sent earlier. It may overflow.
    pub(super) segments: u32,
    /// The bytes of a segment.
    pub(super) segment_bytes: u32,
}

/// Queries what was received; `None` before Linux 5.4.
pub(super) fn disorder(socket: &TcpStream) -> Option<Disorder> {
    let state = is_at_least(5, 4).then(|| state::Longest.get(socket).ok()).flatten()?;
    let (arrived, segment_bytes) = (state.long.bytes_received, state.long.first.rcv_mss);
    Some(Disorder { arrived, segments: state.rcv_ooopack, segment_bytes })
}

/// How fast a connection is.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Pace {
    /// Bytes in a second, as the kernel has measured lately; 0 if it has not.
    pub(super) rate: u64,
    /// Bytes that it has not delivered.
    pub(super) backlog: u64,
    /// Bytes that it has delivered.
    pub(super) delivered: u64,
}

/// What the kernel knows about a connection's speed.
pub(super) fn pace(socket: &TcpStream) -> Pace {
    if !is_at_least(4, 9) {
        return Pace::default();
    }
    let Ok(state) = state::Long.get(socket) else { return Pace::default() };
    let unacked = u64::from(state.first.unacked) * u64::from(state.first.snd_mss);
    Pace { rate: state.delivery_rate, backlog: unacked + u64::from(state.notsent_bytes), delivered: state.bytes_acked }
}

/// Whether this is the Linux of this version or a later one. Queries of more than an earlier kernel knows are errors.
fn is_at_least(major: u32, minor: u32) -> bool {
    static VERSION: OnceLock<(u32, u32)> = OnceLock::new();
    let version = VERSION.get_or_init(|| {
        let release = nix::sys::utsname::uname().map(|name| name.release().to_string_lossy().into_owned());
        let release = release.unwrap_or_default();
        let mut numbers =
            release.split(|byte: char| !byte.is_ascii_digit()).map(|part| part.parse::<u32>().unwrap_or(0));
        (numbers.next().unwrap_or(0), numbers.next().unwrap_or(0))
    });
    *version >= (major, minor)
}

/// The limits of a connection's timers, in microseconds.
mod timers {
    use nix::{getsockopt_impl, setsockopt_impl, sockopt_impl};

    /// `TCP_RTO_MIN_US`.
    const RTO_MIN_US: libc::c_int = 45;
    /// `TCP_DELACK_MAX_US`.
    const DELACK_MAX_US: libc::c_int = 46;

    sockopt_impl!(
        /// The shortest retransmission timeout.
        RetransmitMin, Both, libc::IPPROTO_TCP, RTO_MIN_US, u32
    );

    sockopt_impl!(
        /// The longest delay of an acknowledgement.
        DelayMax, Both, libc::IPPROTO_TCP, DELACK_MAX_US, u32
    );
}

/// Queries the kernel's information about a connection.
mod state {
    use nix::{getsockopt_impl, sockopt_impl};

    /// `struct tcp_info` in its first version. That of the libc crate is as long as the latest kernel's, and an earlier kernel fills
    /// only a part of it, which is an error.
    #[derive(Debug, Clone, Copy)]
    #[repr(C)]
    #[expect(unreachable_pub, reason = "the macro makes a public item with it")]
    pub struct Info {
        pub(super) state: u8,
        _congestion: u8,
        pub(super) retransmits: u8,
        pub(super) probes: u8,
        _options: [u8; 4],
        _timeouts: [u32; 2],
        pub(super) snd_mss: u32,
        pub(super) rcv_mss: u32,
        pub(super) unacked: u32,
        _lost: [u32; 7],
        pub(super) last_ack_recv: u32,
        _path: [u32; 10],
        pub(super) total_retrans: u32,
    }

    /// As Linux 4.9 extends it.
    #[derive(Debug, Clone, Copy)]
    #[repr(C)]
    #[expect(unreachable_pub, reason = "the macro makes a public item with it")]
    pub struct LongInfo {
        pub(super) first: Info,
        _pacing: [u64; 2],
        pub(super) bytes_acked: u64,
        pub(super) bytes_received: u64,
        _segments: [u32; 2],
        pub(super) notsent_bytes: u32,
        _more: [u32; 3],
        pub(super) delivery_rate: u64,
    }

    /// As Linux 5.4 extends it.
    #[derive(Debug, Clone, Copy)]
    #[repr(C)]
    #[expect(unreachable_pub, reason = "the macro makes a public item with it")]
    pub struct LongestInfo {
        pub(super) long: LongInfo,
        _limited: [u64; 3],
        _delivered: [u32; 2],
        _sent: [u64; 2],
        pub(super) dsack_dups: u32,
        _reordered: u32,
        pub(super) rcv_ooopack: u32,
        _window: u32,
    }

    const _: () = assert!(size_of::<Info>() == 104 && size_of::<LongInfo>() == 168 && size_of::<LongestInfo>() == 232);

    sockopt_impl!(
        /// `TCP_INFO`, in the shape of its first version.
        State, GetOnly, libc::IPPROTO_TCP, libc::TCP_INFO, Info
    );

    sockopt_impl!(
        /// `TCP_INFO`, in the shape of Linux 4.9.
        Long, GetOnly, libc::IPPROTO_TCP, libc::TCP_INFO, LongInfo
    );

    sockopt_impl!(
        /// `TCP_INFO`, in the shape of Linux 5.4.
        Longest, GetOnly, libc::IPPROTO_TCP, libc::TCP_INFO, LongestInfo
    );
}

#[cfg(test)]
mod tests {
    use nix::sys::socket::SetSockOpt;

    use super::*;

    #[test]
    fn the_kernel_reports_the_state_of_a_connection() {
        let listener = listen(Ipv4Addr::LOCALHOST.into()).unwrap();
        let socket = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        set_options(&socket).unwrap();
        const ESTABLISHED: u8 = 1;
        let state = state::State.get(&socket).unwrap();
        assert_eq!((state.state, state.probes, state.retransmits), (ESTABLISHED, 0, 0));
        assert!(!is_silent(&socket));
    }

    /// Waits until a connection is made; returns both ends.
    fn both_ends(listener: &TcpListener, address: SocketAddr) -> [TcpStream; 2] {
        let dialled = dial(address).unwrap();
        listener.set_nonblocking(false).unwrap();
        [listener.accept().unwrap().0, dialled]
    }

    fn control_of(socket: &TcpStream) -> OsString {
        socket::getsockopt(socket, sockopt::TcpCongestion).unwrap()
    }

    #[test]
    fn connections_begin_unpaced_and_those_to_other_addresses_change_to_the_default() {
        let default = socket::getsockopt(&new(Ipv4Addr::LOCALHOST.into()).unwrap(), sockopt::TcpCongestion).unwrap();
        let first = if paced_default().is_some() { OsString::from(pacing::UNPACED) } else { default.clone() };
        for (at, is_near) in [(Ipv4Addr::LOCALHOST, true), (Ipv4Addr::new(127, 0, 0, 2), false)] {
            let listener = listen(at.into()).unwrap();
            for end in both_ends(&listener, listener.local_addr().unwrap()) {
                assert_eq!(control_of(&end), first, "from the beginning");
                set_options(&end).unwrap();
                assert_eq!(super::is_near(&end).unwrap(), is_near);
                assert_eq!(control_of(&end), if is_near { OsString::from(NEAR_CONTROL) } else { default.clone() });
            }
        }
    }

    #[test]
    fn timers_between_hosts_are_short_if_the_kernel_knows_them() {
        let listener = listen(Ipv4Addr::new(127, 0, 0, 2).into()).unwrap();
        let socket = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        assert!(!is_near(&socket).unwrap());
        let before = timers::RetransmitMin.get(&socket);
        set_options(&socket).unwrap();
        if before.is_ok() && timers::DelayMax.set(&socket, &DELAY_US).is_ok() {
            // The kernel rounds up to its ticks.
            let within = |us: u32, wanted: u32| (wanted..2 * wanted + 1).contains(&us);
            assert!(within(timers::RetransmitMin.get(&socket).unwrap(), RETRANSMIT_US));
            assert!(within(timers::DelayMax.get(&socket).unwrap(), DELAY_US));
        }
        assert_eq!(resent(&socket).unwrap().segments, 0);
    }

    #[test]
    fn the_kernel_measures_the_speed_of_a_connection() {
        let listener = listen(Ipv4Addr::LOCALHOST.into()).unwrap();
        let socket = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        let (accepted, _) = listener.accept().unwrap();
        set_options(&socket).unwrap();
        // More than the peer's buffer takes.
        let bytes = vec![7; 1 << 20];
        let mut sent = 0;
        while let Ok(more) = send(&socket, &[IoSlice::new(&bytes)]) {
            sent += more as u64;
        }
        let full = pace(&socket);
        assert!(full.backlog > sent / 8 && full.backlog < 2 * sent && full.rate > 0, "{full:?} of {sent} bytes");
        assert!(full.delivered > 0 && full.delivered < sent, "{full:?} of {sent} bytes");
        drop(accepted);
    }

    #[test]
    fn an_inherited_socket_is_closed_in_executed_programs() {
        let socket = socket::socket(AddressFamily::Inet, SockType::Stream, SockFlag::empty(), None).unwrap();
        let listener = inherited(socket).unwrap();
        assert_eq!(fcntl(&listener, FcntlArg::F_GETFD).unwrap(), FdFlag::FD_CLOEXEC.bits());
        assert!(TcpStream::connect(("127.0.0.1", listener.local_addr().unwrap().port())).is_ok());
    }
}
