//! A whole transport in one file: datagrams over Unix sockets. It provides only what a transport must, and shows what that is.
//!
//! For tests only. Each process binds a socket to a name that follows from its world and rank, and the kernel tells receivers the
//! sender's name. Datagrams between two sockets arrive complete, once and in order; a socket whose queue is full refuses them. So
//! the transport needs no connections. It never reads a sender's memory, and notices that a peer has died only when it sends to that peer.

use std::io::{ErrorKind, IoSlice};
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::os::linux::net::SocketAddrExt;
use std::os::unix::net::{SocketAddr, UnixDatagram};
use std::sync::Arc;
use std::time::Duration;

use nix::errno::Errno;
use nix::sys::eventfd::{EfdFlags, EventFd};
use nix::sys::socket::{MsgFlags, UnixAddr, sendmsg};

use super::{Nap, Station};
use crate::engine::frame::HEAD_MAX;
use crate::engine::{Frame, FrameLimits, Peer, PullRefused, Pulled, Refusal, Region, Sink, Transport};
use crate::memory::{Arrived, Buffer, Payload, Room};
use crate::transport::poller;

/// The payload of one frame in bytes, so that a datagram is not larger than a few pages.
pub(super) const LIMITS: FrameLimits =
    FrameLimits { eager: 1 << 10, eager_device: 1 << 10, part: 8 << 10, part_device: 8 << 10, lent: usize::MAX };

/// The longest sleep while a receiver has no room: nothing tells a sender when there is room again.
const RETRY: Duration = Duration::from_millis(1);

/// One process's end.
#[derive(Debug)]
pub(super) struct Datagrams {
    socket: UnixDatagram,
    /// Wakes the thread that sleeps.
    bell: Arc<EventFd>,
    world: u32,
    peers: Vec<State>,
    /// A frame was refused since the last sleep.
    is_refused: bool,
    room: Vec<u8>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum State {
    Present,
    /// Found dead; what it sent before is delivered first.
    Dead,
    /// Lost or cut off: nothing more comes from it.
    Over,
}

fn name(world: u32, rank: u32) -> Vec<u8> {
    format!("rsd-mpi-tests/{}/{world}/{rank}", std::process::id()).into_bytes()
}

impl Datagrams {
    /// Joins a world of this process, which no other world has as its number. All must have joined before the first sends.
    pub(super) fn new(world: u32, rank: u32, size: u32) -> Self {
        let address = SocketAddr::from_abstract_name(name(world, rank)).unwrap();
        let socket = UnixDatagram::bind_addr(&address).unwrap();
        socket.set_nonblocking(true).unwrap();
        let bell = EventFd::from_flags(EfdFlags::EFD_CLOEXEC | EfdFlags::EFD_NONBLOCK).unwrap();
        Self {
            socket,
            bell: Arc::new(bell),
            world,
            peers: vec![State::Present; size as usize],
            is_refused: false,
            room: vec![0; HEAD_MAX + LIMITS.part],
        }
    }

    fn sender(&self, address: &SocketAddr) -> Option<Peer> {
        let text = str::from_utf8(address.as_abstract_name()?).ok()?;
        let rank = text.rsplit('/').next()?.parse().ok()?;
        (name(self.world, rank) == text.as_bytes()).then_some(Peer(rank))
    }
}

impl Transport for Datagrams {
    fn limits(&self, _to: Peer) -> FrameLimits {
        LIMITS
    }

    fn try_send(&mut self, to: Peer, frame: &Frame, payload: Payload<'_>) -> Result<(), Refusal> {
        if self.peers[to.0 as usize] != State::Present {
            return Err(Refusal::Lost);
        }
        let mut head = [0; HEAD_MAX];
        let head_len = frame.encode(Room::new(&mut head));
        let mut body = vec![0; payload.len()];
        payload.copy_to(&mut body);
        let address = UnixAddr::new_abstract(&name(self.world, to.0)).expect("a short name");
        let pieces = [IoSlice::new(&head[..head_len]), IoSlice::new(&body)];
        match sendmsg(self.socket.as_raw_fd(), &pieces, &[], MsgFlags::MSG_DONTWAIT, Some(&address)) {
            Ok(_) => Ok(()),
            Err(Errno::EAGAIN | Errno::ENOBUFS | Errno::EINTR) => {
                self.is_refused = true;
                Err(Refusal::Full)
            }
            Err(errno) => {
                assert_eq!(errno, Errno::ECONNREFUSED, "to {to:?}");
                self.peers[to.0 as usize] = State::Dead;
                Err(Refusal::Lost)
            }
        }
    }

    fn poll<S: Sink>(&mut self, sink: &mut S) -> bool {
        let mut came = false;
        loop {
            let (len, address) = match self.socket.recv_from(&mut self.room) {
                Ok(got) => got,
                Err(error) if error.kind() == ErrorKind::Interrupted => continue,
                Err(error) => {
                    assert_eq!(error.kind(), ErrorKind::WouldBlock);
                    break;
                }
            };
            // A stranger's datagram is dropped.
            let Some(from) = self.sender(&address).filter(|from| (from.0 as usize) < self.peers.len()) else {
                continue;
            };
            if self.peers[from.0 as usize] == State::Over {
                continue;
            }
            let (frame, head_len) = Frame::decode(&self.room[..len]).expect("a frame of this transport");
            sink.on_frame(from, frame, Arrived::new(&self.room[head_len..len]));
            came = true;
        }
        for peer in (0..self.peers.len()).filter(|peer| self.peers[*peer] == State::Dead).collect::<Vec<_>>() {
            self.peers[peer] = State::Over;
            sink.on_lost(Peer(peer as u32), "its socket is closed");
            came = true;
        }
        came
    }

    fn offer(&mut self, _to: Peer, _buffer: &Buffer) -> Option<Region> {
        None
    }

    fn withdraw(&mut self, _to: Peer, region: Region) {
        panic!("{region:?} was never offered");
    }

    fn retract(&mut self, to: Peer, region: Region) {
        self.withdraw(to, region);
    }

    fn pull(&mut self, _: Peer, _: Region, _: &Buffer, _: usize, _: u32) -> Result<Pulled, PullRefused> {
        Err(PullRefused)
    }

    fn cut(&mut self, peer: Peer) {
        self.peers[peer.0 as usize] = State::Over;
    }
}

impl Station for Datagrams {
    type Bell = Arc<EventFd>;

    fn prepare_sleep(&mut self, limit: Duration) -> Option<Nap<Self::Bell>> {
        let limit = if std::mem::take(&mut self.is_refused) { RETRY } else { limit };
        let socket = OwnedFd::from(self.socket.try_clone().unwrap());
        let bell = Arc::clone(&self.bell);
        let sleep = move || {
            poller::wait_readable([socket.as_fd(), bell.as_fd()].into_iter(), limit);
            // If the bell has not rung, there is nothing to read.
            let _ = bell.read();
        };
        Some(Nap { bell: Arc::clone(&self.bell), sleep: Box::new(sleep) })
    }

    fn ring(bell: &Self::Bell) {
        bell.write(1).unwrap();
    }
}
