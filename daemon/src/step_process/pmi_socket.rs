//! A rank's PMI connection: one task reads the rank's requests, and another writes the answers that the socket did not take at
//! once.

use std::cell::Cell;
use std::io::ErrorKind;
use std::os::fd::AsRawFd;
use std::rc::Rc;

use bytes::Bytes;
use nix::sys::socket::{MsgFlags, Shutdown, recv, shutdown};
use rsd_core::step::{Input, Local};
use tokio::net::UnixStream;
use tokio::sync::mpsc;

use super::Event;

/// The most unread bytes of answers; a client that exceeds this has broken the protocol.
const BACKLOG_BYTES: usize = 4 << 20;

/// More than a socket holds, in pieces of 4 KiB.
const REST_READS_MAX: usize = 256;

/// The connection of one rank.
#[derive(Debug)]
pub(super) struct PmiSocket {
    /// Set when the rank has a newer connection: events of this one are not reported.
    replaced: Rc<Cell<bool>>,
    stream: Rc<UnixStream>,
    /// Sends answers to the writing task if the socket did not take them at once.
    backlog: mpsc::UnboundedSender<Bytes>,
    backlog_bytes: Rc<Cell<usize>>,
}

impl PmiSocket {
    /// Serves a connected stream socket of any family.
    pub(super) fn serve(
        local: Local,
        socket: std::os::unix::net::UnixStream,
        events: mpsc::UnboundedSender<Event>,
    ) -> std::io::Result<PmiSocket> {
        let stream = Rc::new(UnixStream::from_std(socket)?);
        let replaced = Rc::new(Cell::new(false));
        tokio::task::spawn_local(read(local, Rc::clone(&stream), Rc::clone(&replaced), events));
        let (backlog, late) = mpsc::unbounded_channel();
        let backlog_bytes = Rc::new(Cell::new(0));
        tokio::task::spawn_local(write(Rc::clone(&stream), late, Rc::clone(&backlog_bytes)));
        Ok(PmiSocket { replaced, stream, backlog, backlog_bytes })
    }

    /// Sends an answer. Returns false if the rank does not read its answers.
    pub(super) fn send(&self, bytes: &Bytes) -> bool {
        let waiting = self.backlog_bytes.get();
        let sent = if waiting > 0 { 0 } else { self.stream.try_write(bytes).unwrap_or(0) };
        if sent == bytes.len() {
            return true;
        }
        let waiting = waiting + bytes.len() - sent;
        if waiting > BACKLOG_BYTES {
            return false;
        }
        self.backlog_bytes.set(waiting);
        // The writing task ends only with the socket.
        let _ = self.backlog.send(bytes.slice(sent..));
        true
    }

    /// Returns what the rank has sent and the reading task has not read yet.
    pub(super) fn rest(&self) -> Vec<Bytes> {
        let (mut rest, mut buffer) = (Vec::new(), [0; 4096]);
        // A process that the rank has left may go on writing.
        while rest.len() < REST_READS_MAX
            && let Ok(read @ 1..) = recv(self.stream.as_raw_fd(), &mut buffer, MsgFlags::MSG_DONTWAIT)
        {
            rest.push(Bytes::copy_from_slice(&buffer[..read]));
        }
        rest
    }

    /// Closes the connection. The reading task sees the end and reports it.
    pub(super) fn close(&self) {
        let _ = shutdown(self.stream.as_raw_fd(), Shutdown::Both);
    }

    /// Closes the connection because a newer one exists: its end is not reported.
    pub(super) fn replace(&self) {
        self.replaced.set(true);
        self.close();
    }
}

async fn read(local: Local, stream: Rc<UnixStream>, replaced: Rc<Cell<bool>>, events: mpsc::UnboundedSender<Event>) {
    let mut buffer = [0; 4096];
    while stream.readable().await.is_ok() {
        let input = match stream.try_read(&mut buffer) {
            Ok(0) => break,
            Ok(n) => Input::Pmi(local, Bytes::copy_from_slice(&buffer[..n])),
            Err(error) if error.kind() == ErrorKind::WouldBlock => continue,
            Err(_) => break,
        };
        if replaced.get() {
            return;
        }
        let _ = events.send(Event::Input(input));
    }
    if !replaced.get() {
        let _ = events.send(Event::Input(Input::PmiClosed(local)));
    }
}

async fn write(stream: Rc<UnixStream>, mut late: mpsc::UnboundedReceiver<Bytes>, left: Rc<Cell<usize>>) {
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
