//! Buffered sends: messages are copied, so that the send completes at once (MPI 5.0 §3.6).
//!
//! The user's attached buffer limits how many bytes may be in flight; the copies are in the library's own memory, and detaching
//! returns the attached buffer. `MPI_BUFFER_AUTOMATIC` has no limit.

use std::ffi::c_void;

use crate::abi::constants::MPI_BSEND_OVERHEAD;
use crate::abi::{CommHandle, SessionHandle};
use crate::engine::{Engine, Envelope, Mode, Peer, RequestId, Started, Transport};
use crate::error::{MpiError, MpiResult};
use crate::memory::Buffer;

/// The owner of an attached buffer: the process, or one of its communicators or sessions.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Owner {
    /// `MPI_Buffer_attach`.
    Process,
    /// `MPI_Comm_attach_buffer`.
    Comm(CommHandle),
    /// `MPI_Session_attach_buffer`.
    Session(SessionHandle),
}

/// The attached buffers and the copies in flight.
#[derive(Debug, Default)]
pub struct Buffered {
    attached: Vec<Attached>,
    /// The number of messages sent so far that did not complete at once.
    sent: u64,
}

#[derive(Debug)]
struct Attached {
    owner: Owner,
    address: *mut c_void,
    /// `None` if there is no limit.
    size: Option<usize>,
    sends: Vec<Copied>,
}

#[derive(Debug)]
struct Copied {
    /// Counted from 0, over all buffers.
    number: u64,
    id: RequestId,
    /// The memory of the message's buffer.
    bytes: Box<[u8]>,
}

impl Buffered {
    /// Attaches a buffer of `size` bytes, or one without a limit.
    pub fn attach(&mut self, owner: Owner, address: *mut c_void, size: Option<usize>) -> MpiResult {
        if self.attached.iter().any(|it| it.owner == owner) {
            return Err(MpiError::buffer("a buffer is already attached: detach it first"));
        }
        self.attached.push(Attached { owner, address, size, sends: Vec::new() });
        Ok(())
    }

    /// Whether a buffer is attached and has messages in flight.
    pub fn is_busy<T: Transport>(&mut self, owner: Owner, engine: &mut Engine<T>) -> bool {
        self.of(owner).is_some_and(|attached| {
            attached.collect(engine);
            !attached.sends.is_empty()
        })
    }

    /// The number of sends so far that did not complete at once.
    pub fn sent(&self) -> u64 {
        self.sent
    }

    /// Whether those of the first `until` sends that are from a buffer are complete.
    pub fn is_flushed<T: Transport>(&self, owner: Owner, until: u64, engine: &Engine<T>) -> bool {
        let attached = self.attached.iter().find(|it| it.owner == owner);
        let under_way = |copied: &Copied| copied.number < until && engine.outcome(copied.id).is_none();
        !attached.is_some_and(|attached| attached.sends.iter().any(under_way))
    }

    /// Detaches the buffer: returns its address and size (`None`: no limit); `None` if none is attached.
    pub fn detach(&mut self, owner: Owner) -> Option<(*mut c_void, Option<usize>)> {
        let index = self.attached.iter().position(|it| it.owner == owner)?;
        let attached = self.attached.swap_remove(index);
        Some((attached.address, attached.size))
    }

    /// Sends a copy. The limit is that of the communicator's buffer, otherwise that of the session from which the
    /// communicator was derived, otherwise that of the process.
    pub fn send<T: Transport>(
        &mut self,
        engine: &mut Engine<T>,
        (comm, session): (CommHandle, Option<SessionHandle>),
        envelope: Envelope,
        to: Peer,
        buffer: &Buffer,
    ) -> MpiResult {
        let owners = [Some(Owner::Comm(comm)), session.map(Owner::Session), Some(Owner::Process)];
        let owner = owners.into_iter().flatten().find(|owner| self.attached.iter().any(|it| it.owner == *owner));
        let number = self.sent;
        let Some(attached) = owner.and_then(|owner| self.of(owner)) else {
            return Err(MpiError::buffer("no buffer is attached for buffered sends: call MPI_Buffer_attach"));
        };
        let needed = buffer.len() + OVERHEAD;
        if !attached.has_room(needed, engine) {
            // That earlier messages have been received may be among what has arrived.
            engine.progress();
        }
        if !attached.has_room(needed, engine) {
            return Err(MpiError::buffer(format!(
                "the attached buffer of {} bytes has no room for {needed} more bytes: {} are in use",
                attached.size.unwrap_or_default(),
                attached.used()
            )));
        }
        let (bytes, copy) = buffer.copied()?;
        match engine.send(envelope, to, Mode::Standard, copy) {
            Started::Over(outcome) => outcome.error.map_or(Ok(()), |error| Err(*error)),
            Started::Pending(id) => {
                attached.sends.push(Copied { number, id, bytes });
                self.sent += 1;
                Ok(())
            }
        }
    }

    fn of(&mut self, owner: Owner) -> Option<&mut Attached> {
        self.attached.iter_mut().find(|it| it.owner == owner)
    }
}

/// What each message needs beside its bytes.
const OVERHEAD: usize = MPI_BSEND_OVERHEAD as usize;

impl Attached {
    /// Whether so many more bytes fit.
    fn has_room<T: Transport>(&mut self, needed: usize, engine: &mut Engine<T>) -> bool {
        self.collect(engine);
        self.size.is_none_or(|size| self.used() + needed <= size)
    }

    fn used(&self) -> usize {
        self.sends.iter().map(|copied| copied.bytes.len() + OVERHEAD).sum()
    }

    /// Drops the copies that have been sent. Their outcome is not reported: for the user the sends completed long ago.
    fn collect<T: Transport>(&mut self, engine: &mut Engine<T>) {
        self.sends.retain(|copied| engine.take(copied.id).is_none());
    }
}
