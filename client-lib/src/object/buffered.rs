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
}

#[derive(Debug)]
struct Attached {
    owner: Owner,
    address: *mut c_void,
    /// `None` if there is no limit.
    size: Option<usize>,
    /// The number of messages sent from it.
    sent: u64,
    sends: Vec<Copied>,
}

#[derive(Debug)]
struct Copied {
    /// Counted from 0.
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
        self.attached.push(Attached { owner, address, size, sent: 0, sends: Vec::new() });
        Ok(())
    }

    /// Whether a buffer is attached and has messages in flight.
    pub fn is_busy<T: Transport>(&mut self, owner: Owner, engine: &mut Engine<T>) -> bool {
        self.of(owner).is_some_and(|attached| {
            attached.collect(engine);
            !attached.sends.is_empty()
        })
    }

    /// The number of a buffer's sends so far that did not complete at once.
    pub fn sent(&self, owner: Owner) -> u64 {
        self.attached.iter().find(|it| it.owner == owner).map_or(0, |attached| attached.sent)
    }

    /// Whether the first `until` of them are complete.
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
        let Some(attached) = owner.and_then(|owner| self.of(owner)) else {
            return Err(MpiError::buffer("no buffer is attached for buffered sends: call MPI_Buffer_attach"));
        };
        attached.collect(engine);
        let overhead = MPI_BSEND_OVERHEAD as usize;
        let used = attached.sends.iter().map(|copied| copied.bytes.len() + overhead).sum::<usize>();
        let needed = buffer.len() + overhead;
        if let Some(size) = attached.size.filter(|size| used + needed > *size) {
            return Err(MpiError::buffer(format!(
                "the attached buffer of {size} bytes has no room for {needed} more bytes: {used} are in use"
            )));
        }
        let (bytes, copy) = buffer.copied()?;
        match engine.send(envelope, to, Mode::Standard, copy) {
            Started::Over(outcome) => outcome.error.map_or(Ok(()), |error| Err(*error)),
            Started::Pending(id) => {
                attached.sends.push(Copied { number: attached.sent, id, bytes });
                attached.sent += 1;
                Ok(())
            }
        }
    }

    fn of(&mut self, owner: Owner) -> Option<&mut Attached> {
        self.attached.iter_mut().find(|it| it.owner == owner)
    }
}

impl Attached {
    /// Drops the copies that have been sent. Their outcome is not reported: for the user the sends completed long ago.
    fn collect<T: Transport>(&mut self, engine: &mut Engine<T>) {
        self.sends.retain(|copied| engine.take(copied.id).is_none());
    }
}
