//! The rails of one link, and how a payload is divided among them ([`dividing`]).

mod dividing;

use std::io::{self, IoSlice, Read};
use std::net::{SocketAddr, TcpStream};
use std::os::fd::AsFd;
use std::time::Instant;

use super::end::{End, Got};
use super::private::Private;
use super::queue::Queue;
use super::socket;
use super::wire::{Cut, Incoming, LANES_MAX, Offer, Wanted};
use crate::engine::Sink;
use crate::transport::name::ProcessName;
use dividing::{Speed, divide};

/// The shortest payload that is cut. Half of it is on a network of 10 Gbit/s for 26 us, much longer than the further system calls take.
pub(super) const LONG: usize = 64 << 10;

/// The rails of a link, of which there may be none, and what is agreed with the peer.
#[derive(Debug, Default)]
pub(super) struct Lanes {
    /// `rails[number - 1]`.
    rails: [Option<Rail>; LANES_MAX - 1],
    main: Option<Speed>,
    /// The offers of the peer that have arrived.
    pub(super) offers: Vec<Offer>,
    /// This process has offered rails to the peer of this name, with this ticket.
    pub(super) ticket: Option<(ProcessName, u64)>,
}

/// A further connection.
#[derive(Debug)]
struct Rail {
    socket: Private<TcpStream>,
    /// The peer's address.
    address: SocketAddr,
    queue: Queue,
    speed: Speed,
    /// The peer knows that it is open.
    joined: bool,
    #[cfg(test)]
    carried: u64,
}

impl Rail {
    fn error(&self, error: &io::Error) -> io::Error {
        io::Error::new(error.kind(), format!("its connection at {}: {error}", self.address))
    }

    fn is_sending(&self) -> bool {
        !self.queue.is_empty()
    }
}

impl Lanes {
    /// Adds a connection; false if there is one of this number.
    pub(super) fn add(&mut self, number: u8, socket: TcpStream, address: SocketAddr, joined: bool) -> bool {
        let Some(place @ None) = self.rails.get_mut(usize::from(number) - 1) else { return false };
        let (socket, queue, speed) = (Private::new(socket), Queue::default(), Speed::RAIL);
        *place = Some(Rail {
            socket,
            address,
            queue,
            speed,
            joined,
            #[cfg(test)]
            carried: 0,
        });
        true
    }

    /// The peer knows that a rail is open; false if it is not.
    pub(super) fn join(&mut self, number: u8) -> bool {
        let rail = self.rails.get_mut(usize::from(number) - 1).and_then(Option::as_mut);
        rail.is_some_and(|rail| !std::mem::replace(&mut rail.joined, true))
    }

    fn iter(&self) -> impl Iterator<Item = &Rail> {
        self.rails.iter().flatten()
    }

    /// Whether there is a rail of this number.
    pub(super) fn has(&self, number: u8) -> bool {
        self.rails.get(usize::from(number) - 1).is_some_and(Option::is_some)
    }

    pub(super) fn sockets(&self) -> impl Iterator<Item = &TcpStream> {
        self.iter().map(|rail| &*rail.socket)
    }

    /// The addresses of the peer.
    pub(super) fn addresses(&self) -> impl Iterator<Item = SocketAddr> {
        self.iter().map(|rail| rail.address)
    }

    /// The number of rails on which this process sends.
    #[cfg(test)]
    pub(super) fn joined(&self) -> usize {
        self.iter().filter(|rail| rail.joined).count()
    }

    /// The number of bytes of payloads that each rail has been given.
    #[cfg(test)]
    pub(super) fn carried(&self) -> Vec<u64> {
        self.iter().map(|rail| rail.carried).collect()
    }

    /// Whether data are queued for a rail.
    #[inline]
    pub(super) fn is_sending(&self) -> bool {
        self.iter().any(Rail::is_sending)
    }

    /// A rail whose host has vanished.
    pub(super) fn silent(&self) -> Option<SocketAddr> {
        self.iter().find(|rail| socket::is_silent(&rail.socket)).map(|rail| rail.address)
    }

    /// Divides a payload of this length; `None` if all of it goes on the main connection, `main`, which has nothing queued.
    pub(super) fn divide(&mut self, len: usize, main: &TcpStream) -> Option<Cut> {
        if !self.iter().any(|rail| rail.joined) {
            return None;
        }
        let mut speeds = [None; LANES_MAX];
        let own = self.main.get_or_insert(Speed::MAIN);
        let now = Instant::now();
        own.look(socket::pace(main), now);
        let main_rate = own.rate();
        speeds[0] = Some(*own);
        for (rail, speed) in self.rails.iter_mut().zip(&mut speeds[1..]) {
            if let Some(rail) = rail.as_mut().filter(|rail| rail.joined) {
                let pace = socket::pace(&rail.socket);
                rail.speed.look_at_rail(pace, rail.queue.len(), now, main_rate);
                *speed = Some(rail.speed);
            }
        }
        let cut = divide(len, &mut speeds);
        for (rail, speed) in self.rails.iter_mut().zip(&speeds[1..]) {
            if let (Some(rail), Some(speed)) = (rail, speed) {
                rail.speed = *speed;
            }
        }
        (cut[0] as usize != len).then_some(cut)
    }

    /// Sends the slices of a payload that are not the main connection's.
    pub(super) fn send(&mut self, payload: &[u8], cut: &Cut, spare: &mut Vec<u8>) -> io::Result<()> {
        let mut at = cut[0] as usize;
        for (rail, len) in self.rails.iter_mut().zip(&cut[1..]) {
            let slice = &payload[at..at + *len as usize];
            at += slice.len();
            let Some(rail) = rail.as_mut().filter(|_| !slice.is_empty()) else { continue };
            #[cfg(test)]
            {
                rail.carried += slice.len() as u64;
            }
            let pieces = [IoSlice::new(slice)];
            let sent = match socket::send(&rail.socket, &pieces) {
                Ok(sent) => sent,
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => 0,
                Err(error) => return Err(rail.error(&error)),
            };
            if sent < slice.len() {
                rail.queue.keep(&pieces, sent, spare);
            }
        }
        Ok(())
    }

    /// Sends what is queued, as much as there is room for; returns whether any was sent.
    pub(super) fn flush(&mut self, spare: &mut Vec<u8>) -> io::Result<bool> {
        let mut moved = false;
        for rail in self.rails.iter_mut().flatten() {
            let result = rail.queue.flush(&rail.socket, spare);
            moved |= result.map_err(|error| rail.error(&error))?;
        }
        Ok(moved)
    }

    /// Reads once from each rail that has to deliver a part of the current payload.
    pub(super) fn read<S: Sink>(&self, incoming: &mut Incoming, scratch: &mut [u8], sink: &mut S) -> Result<Got, End> {
        let mut got = Got::Nothing;
        for (number, rail) in (1..).zip(&self.rails) {
            let Some(rail) = rail else { continue };
            let (read, room, is_fed) = match incoming.wanted_of(number) {
                Wanted::Any | Wanted::Nothing => continue,
                Wanted::Landing(landing, at, left) => {
                    (landing.buffer.read_from(rail.socket.as_fd(), at, left, &mut []), left, false)
                }
                Wanted::Here(place) => ((&*rail.socket).read(place), place.len(), false),
                Wanted::Some(left) => {
                    let room = left.min(scratch.len());
                    ((&*rail.socket).read(&mut scratch[..room]), room, true)
                }
            };
            let count = match read {
                Ok(0) => {
                    let text = "it closed the connection without finalizing MPI: its process has exited";
                    return Err(rail.error(&io::Error::new(io::ErrorKind::UnexpectedEof, text)).into());
                }
                Ok(count) => count,
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => continue,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => 0,
                Err(error) => return Err(rail.error(&error).into()),
            };
            match is_fed {
                true => incoming.feed_of(number, &scratch[..count], sink)?,
                false => incoming.landed_of(number, count, sink)?,
            }
            got = got.max(if count == room { Got::Full } else { Got::Some });
        }
        Ok(got)
    }
}
