//! Two processes that share a user's socket become an intercommunicator (MPI 5.0 §11.10.6).
//!
//! Each opens a port and sends its name over the socket, in a message of fixed length. The process with the smaller name accepts
//! at its own port, the other one connects there; both close their ports. So the socket carries exactly one message each way.
//!
//! ```text
//! | rsd-mpi join 1 LF | name of the port, filled up with spaces |     256 bytes
//! ```

use std::io::{self, ErrorKind};
use std::os::fd::{AsRawFd, BorrowedFd};
use std::time::{Duration, Instant};

use nix::sys::socket::{MsgFlags, recv, send};

use super::connect::{Role, connect_groups};
use super::ports::port_name;
use super::{Guard, State};
use crate::abi::CommHandle;
use crate::abi::constants::MPI_ERR_PORT;
use crate::error::{MpiError, MpiResult};

const MARK: &[u8] = b"rsd-mpi join 1\n";
const LEN: usize = 256;

/// How long the other process may take to call `MPI_Comm_join`.
const LIMIT: Duration = Duration::from_secs(60);

/// Makes an intercommunicator of this process and the one at the other end of the socket.
pub fn join(guard: &mut Guard<'_>, socket: BorrowedFd<'_>, own: CommHandle) -> MpiResult<CommHandle> {
    guard.comms.get(own)?;
    let ours = guard.open_port()?;
    let joined = swap(guard, socket, ours.text().as_bytes()).and_then(|theirs| {
        let other = port_name(&theirs)?;
        if other.owner == ours.owner {
            return Err(MpiError::other("both ends of the socket belong to this process"));
        }
        let (text, name) = (ours.text(), theirs);
        let role = if ours.owner < other.owner { Role::Accept(text.as_bytes()) } else { Role::Connect(&name) };
        let circle = guard.comms.get_mut(own)?.circle_of_all();
        match connect_groups(guard, own, circle, 0, role, Some(LIMIT)) {
            // Nothing of MPI's is left in the socket: the user can go on with it (MPI 5.0 §11.10.6).
            Err(error) if error.class == MPI_ERR_PORT => Ok(CommHandle::NULL),
            joined => joined,
        }
    });
    guard.ports.close(&ours)?;
    joined
}

/// Returns the other process's message.
fn swap(guard: &mut Guard<'_>, socket: BorrowedFd<'_>, text: &[u8]) -> MpiResult<Vec<u8>> {
    let mut said = MARK.to_vec();
    said.extend_from_slice(text);
    said.resize(LEN, b' ');
    let (mut sent, mut received) = (0, Vec::with_capacity(LEN));
    let start = Instant::now();
    // Without a report, the next check finds it soon. Only sockets can be watched.
    let watched = nix::unistd::dup(socket).map_err(io::Error::from).map_err(|error| broken(&error))?;
    let _ = guard.engine.transport_mut().watch(&watched);
    guard.wake_others();
    let swapped = guard.wait(|_| match step(socket, &said, &mut sent, &mut received) {
        Ok(false) if start.elapsed() >= LIMIT => Some(Err(MpiError::other(format!(
            "the process at the other end did not call MPI_Comm_join within {LIMIT:?}"
        )))),
        Ok(false) => None,
        Ok(true) => Some(Ok(())),
        Err(error) => Some(Err(broken(&error))),
    });
    let State { engine, .. } = &mut **guard;
    engine.transport_mut().unwatch(&watched);
    swapped?;
    let theirs = received.strip_prefix(MARK).ok_or_else(|| {
        MpiError::other(
            "the other end of the socket is not in MPI_Comm_join of this library, or the socket contained other data",
        )
    })?;
    Ok(theirs.trim_ascii_end().to_vec())
}

#[cold]
fn broken(error: &io::Error) -> MpiError {
    MpiError::other(format!("cannot communicate over the socket: {error}"))
}

/// Sends and receives what it can at once, no byte more than the message; returns whether both are complete.
fn step(socket: BorrowedFd<'_>, said: &[u8], sent: &mut usize, received: &mut Vec<u8>) -> io::Result<bool> {
    while *sent < said.len() {
        match now(send(socket.as_raw_fd(), &said[*sent..], MsgFlags::MSG_DONTWAIT | MsgFlags::MSG_NOSIGNAL))? {
            Some(count) => *sent += count,
            None => break,
        }
    }
    while received.len() < LEN {
        let mut bytes = [0; LEN];
        let room = LEN - received.len();
        match now(recv(socket.as_raw_fd(), &mut bytes[..room], MsgFlags::MSG_DONTWAIT))? {
            Some(0) => return Err(io::Error::new(ErrorKind::UnexpectedEof, "the other end was closed")),
            Some(count) => received.extend_from_slice(&bytes[..count]),
            None => break,
        }
    }
    Ok(*sent == said.len() && received.len() == LEN)
}

/// `None` if nothing can be done now.
fn now(result: nix::Result<usize>) -> io::Result<Option<usize>> {
    match result {
        Ok(count) => Ok(Some(count)),
        Err(nix::Error::EAGAIN | nix::Error::EINTR) => Ok(None),
        Err(error) => Err(error.into()),
    }
}

#[cfg(test)]
mod tests {
    use std::io::{Read, Write};
    use std::os::fd::AsFd;
    use std::os::unix::net::UnixStream;

    use super::*;

    #[test]
    fn no_byte_after_the_message_is_read() {
        let (one, mut other) = UnixStream::pair().unwrap();
        let (said, mut sent, mut received) = (vec![7; LEN], 0, Vec::new());
        assert!(!step(one.as_fd(), &said, &mut sent, &mut received).unwrap());
        other.write_all(&[&[9; LEN][..], b"more"].concat()).unwrap();
        assert!(step(one.as_fd(), &said, &mut sent, &mut received).unwrap());
        assert_eq!((sent, received), (LEN, vec![9; LEN]));
        let mut rest = [0; 4];
        (&one).read_exact(&mut rest).unwrap();
        assert_eq!(&rest, b"more");
        drop(other);
        assert!(step(one.as_fd(), &said, &mut 0, &mut Vec::new()).is_err());
    }
}
