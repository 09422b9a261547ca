//! The heads of the frames that processes exchange.
//!
//! A frame is a head of 16, 24 or 40 bytes, and for some kinds a payload, whose length the transport carries in its own way.
//! A message that fits one frame is sent as [`Frame::Eager`]. A longer one is announced ([`Frame::Ready`]). Once the receiver
//! has a buffer for it, it either reads it from the sender's memory and sends [`Frame::Done`], or requests it
//! ([`Frame::Clear`]) and gets it as [`Frame::Part`]s in order. Frames between two processes arrive in the order sent. A receiver
//! that has closed a context to a message drops it; if the sender waits, it is told ([`Frame::Dropped`]).

use crate::memory::Room;

/// The values by which a receive matches a message (MPI 5.0 §3.2.3).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Envelope {
    /// The communicator's context: one for its point-to-point messages, another for its collectives.
    pub context: u32,
    /// The sender's rank in the communicator.
    pub rank: u32,
    /// The tag of the message.
    pub tag: i32,
}

/// Memory of the sender that the receiver may read; the transport interprets the fields.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Region {
    /// An address in the sender's memory.
    pub address: u64,
    /// The number of a ticket or similar at the sender.
    pub ticket: u32,
}

/// What follows the head of a message.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Sort {
    /// All its bytes, as of [`Frame::Eager`].
    Whole,
    /// All its bytes, as of [`Frame::EagerSync`].
    Sync {
        /// The sender's number of the request.
        send: u32,
    },
    /// Nothing yet, as of [`Frame::Ready`].
    Ready {
        /// The sender's number of the request.
        send: u32,
        /// Packed bytes of the message.
        len: u64,
    },
}

/// The head of a frame.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Frame {
    /// A whole message; payload: its bytes.
    Eager {
        /// The envelope for matching.
        envelope: Envelope,
    },
    /// A whole message whose sender waits until a receive has matched it (`MPI_Ssend`); the receiver confirms that with
    /// [`Frame::Done`]. Payload: its bytes.
    EagerSync {
        /// The envelope for matching.
        envelope: Envelope,
        /// The sender's number of the request.
        send: u32,
    },
    /// A long message is ready; no payload.
    Ready {
        /// The envelope for matching.
        envelope: Envelope,
        /// The sender's number of the request.
        send: u32,
        /// Packed bytes of the message.
        len: u64,
        /// Where the receiver may read it, if the transport offers that.
        region: Option<Region>,
    },
    /// Requests a message for which there is a buffer; no payload.
    Clear {
        /// The sender's number of the request.
        send: u32,
        /// The receiver's number of the request.
        receive: u32,
        /// The number of bytes wanted from the start: fewer than announced if the buffer is too small.
        len: u64,
    },
    /// The next bytes of a message, as payload.
    Part {
        /// The receiver's number of the request.
        receive: u32,
    },
    /// The receiver has everything it needs, so the send is complete; no payload.
    Done {
        /// The sender's number of the request.
        send: u32,
    },
    /// The receiver has dropped the message: its context is closed there, because it was revoked or a member has died; no payload.
    Dropped {
        /// The sender's number of the request.
        send: u32,
        /// Whether it was revoked.
        is_revoked: bool,
    },
    /// A note about a communicator, which no receive matches; payload: its bytes.
    Note {
        /// The communicator's first context.
        context: u32,
        /// A number that the library interprets.
        number: u32,
    },
    /// A message that says of which basic datatypes it is, for comparison.
    Signed {
        /// The 24 bits of a [`Sign`](crate::datatype::Sign).
        sign: u32,
        /// The envelope for matching.
        envelope: Envelope,
        /// What else belongs to it.
        sort: Sort,
    },
    /// Whether the receiver of this frame must announce its messages from now on, however short: those that it has sent are not being
    /// received; no payload.
    Hold {
        /// Whether it must.
        is_on: bool,
    },
    /// The farewell: no more frames will come from this process, which is about to finalize; no payload.
    Bye,
}

/// The longest head.
pub const HEAD_MAX: usize = 40;

/// Bytes that are not a valid head.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("understand a frame of kind {kind} with a head of {len} bytes")]
pub struct BadFrame {
    /// The first byte.
    pub kind: u8,
    /// The number of bytes.
    pub len: usize,
}

impl Frame {
    /// Writes the head to room for [`HEAD_MAX`] bytes; returns its length: 16, 24 or 40. Words are in the machine's byte order: transports
    /// refuse peers of a different byte order when they connect.
    #[inline]
    pub fn encode(&self, into: Room<'_>) -> usize {
        match *self {
            Self::Eager { envelope } => {
                put_envelope(into, 1, envelope);
                16
            }
            Self::EagerSync { envelope, send } => {
                put_envelope(into, 2, envelope);
                put_u32(into, 16, send);
                put_u32(into, 20, 0);
                24
            }
            Self::Ready { envelope, send, len, region } => {
                put_envelope(into, 3 + u8::from(region.is_some()), envelope);
                let region = region.unwrap_or(Region { address: 0, ticket: 0 });
                put_u32(into, 16, send);
                put_u32(into, 20, region.ticket);
                put_u64(into, 24, len);
                put_u64(into, 32, region.address);
                40
            }
            Self::Clear { send, receive, len } => {
                put_numbers(into, 5, send, receive);
                put_u64(into, 16, len);
                24
            }
            Self::Part { receive } => {
                put_numbers(into, 6, 0, receive);
                16
            }
            Self::Done { send } => {
                put_numbers(into, 7, send, 0);
                16
            }
            Self::Bye => {
                put_numbers(into, 8, 0, 0);
                16
            }
            Self::Dropped { send, is_revoked } => {
                put_numbers(into, 9, send, u32::from(is_revoked));
                16
            }
            Self::Note { context, number } => {
                put_numbers(into, 10, context, number);
                16
            }
            Self::Signed { sign, envelope, sort } => {
                let (kind, plain) = match sort {
                    Sort::Whole => (1, Self::Eager { envelope }),
                    Sort::Sync { send } => (2, Self::EagerSync { envelope, send }),
                    Sort::Ready { send, len } => (3, Self::Ready { envelope, send, len, region: None }),
                };
                let len = plain.encode(into);
                put_u32(into, 0, (kind + u32::from(SIGNED)) | sign << 8);
                len
            }
            Self::Hold { is_on } => {
                put_numbers(into, 11, u32::from(is_on), 0);
                16
            }
        }
    }

    /// Decodes the head at the start of `bytes`; returns it with its length.
    #[inline]
    pub fn decode(bytes: &[u8]) -> Result<(Self, usize), BadFrame> {
        let bad = || BadFrame { kind: bytes.first().copied().unwrap_or(0), len: bytes.len() };
        let Some(first) = bytes.first_chunk::<16>() else { return Err(bad()) };
        let envelope = Envelope { context: u32_at(first, 4), rank: u32_at(first, 8), tag: u32_at(first, 12) as i32 };
        let (send, receive) = (u32_at(first, 4), u32_at(first, 8));
        Ok(match first[0] {
            1 => (Self::Eager { envelope }, 16),
            2 => {
                let Some(head) = bytes.first_chunk::<24>() else { return Err(bad()) };
                (Self::EagerSync { envelope, send: u32_at(head, 16) }, 24)
            }
            kind @ (3 | 4) => {
                let Some(head) = bytes.first_chunk::<40>() else { return Err(bad()) };
                let region = (kind == 4).then(|| Region { address: u64_at(head, 32), ticket: u32_at(head, 20) });
                (Self::Ready { envelope, send: u32_at(head, 16), len: u64_at(head, 24), region }, 40)
            }
            5 => {
                let Some(head) = bytes.first_chunk::<24>() else { return Err(bad()) };
                (Self::Clear { send, receive, len: u64_at(head, 16) }, 24)
            }
            6 => (Self::Part { receive }, 16),
            7 => (Self::Done { send }, 16),
            8 => (Self::Bye, 16),
            9 => (Self::Dropped { send, is_revoked: receive != 0 }, 16),
            10 => (Self::Note { context: send, number: receive }, 16),
            11 => (Self::Hold { is_on: send != 0 }, 16),
            17..=19 => return Self::decode_signed(bytes),
            _ => return Err(bad()),
        })
    }
}

impl Frame {
    /// The head is that of the plain frame, but for the first word.
    #[cold]
    fn decode_signed(bytes: &[u8]) -> Result<(Self, usize), BadFrame> {
        let mut plain = [0; HEAD_MAX];
        let len = bytes.len().min(HEAD_MAX);
        plain[..len].copy_from_slice(&bytes[..len]);
        let sign = u32_at(&plain, 0) >> 8;
        let kind = u32::from(plain[0] - SIGNED);
        plain[..4].copy_from_slice(&kind.to_ne_bytes());
        let (frame, head) = Self::decode(&plain[..len]).map_err(|_| BadFrame { kind: bytes[0], len: bytes.len() })?;
        let signed = |envelope, sort| Ok((Self::Signed { sign, envelope, sort }, head));
        match frame {
            Self::Eager { envelope } => signed(envelope, Sort::Whole),
            Self::EagerSync { envelope, send } => signed(envelope, Sort::Sync { send }),
            Self::Ready { envelope, send, len, .. } => signed(envelope, Sort::Ready { send, len }),
            _other => Err(BadFrame { kind: bytes[0], len: bytes.len() }),
        }
    }
}

/// The kinds of signed frames are those of the plain ones and this.
const SIGNED: u8 = 16;

#[inline]
fn put_envelope(into: Room<'_>, kind: u8, envelope: Envelope) {
    put_u32(into, 0, u32::from(kind));
    put_u32(into, 4, envelope.context);
    put_u32(into, 8, envelope.rank);
    put_u32(into, 12, envelope.tag as u32);
}

#[inline]
fn put_numbers(into: Room<'_>, kind: u8, send: u32, receive: u32) {
    put_u32(into, 0, u32::from(kind));
    put_u32(into, 4, send);
    put_u32(into, 8, receive);
    put_u32(into, 12, 0);
}

#[inline]
fn put_u32(into: Room<'_>, at: usize, value: u32) {
    into.put(at, value.to_ne_bytes());
}

#[inline]
fn put_u64(into: Room<'_>, at: usize, value: u64) {
    into.put(at, value.to_ne_bytes());
}

#[inline]
fn u32_at<const N: usize>(bytes: &[u8; N], at: usize) -> u32 {
    u32::from_ne_bytes([bytes[at], bytes[at + 1], bytes[at + 2], bytes[at + 3]])
}

#[inline]
fn u64_at<const N: usize>(bytes: &[u8; N], at: usize) -> u64 {
    (u64::from(u32_at(bytes, at + 4)) << 32) | u64::from(u32_at(bytes, at))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_kind_of_frame_decodes_to_what_was_encoded() {
        let envelope = Envelope { context: 7, rank: u32::MAX, tag: -5 };
        let region = Region { address: 0x7fff_0000_1234_5678, ticket: 9 };
        let frames = [
            (Frame::Eager { envelope }, 16),
            (Frame::EagerSync { envelope, send: 3 }, 24),
            (Frame::Ready { envelope, send: 3, len: u64::MAX, region: Some(region) }, 40),
            (Frame::Ready { envelope, send: 3, len: 0, region: None }, 40),
            (Frame::Clear { send: 3, receive: 4, len: 1 << 40 }, 24),
            (Frame::Part { receive: 4 }, 16),
            (Frame::Done { send: 3 }, 16),
            (Frame::Bye, 16),
            (Frame::Dropped { send: 3, is_revoked: true }, 16),
            (Frame::Note { context: 7, number: u32::MAX }, 16),
            (Frame::Hold { is_on: true }, 16),
            (Frame::Signed { sign: 0xab_cdef, envelope, sort: Sort::Whole }, 16),
            (Frame::Signed { sign: 0, envelope, sort: Sort::Sync { send: 9 } }, 24),
            (Frame::Signed { sign: 1, envelope, sort: Sort::Ready { send: 9, len: 1 << 40 } }, 40),
        ];
        for (frame, len) in frames {
            let mut head = [0xaa; HEAD_MAX];
            assert_eq!(frame.encode(Room::new(&mut head)), len);
            assert_eq!(Frame::decode(&head), Ok((frame, len)));
            assert_eq!(Frame::decode(&head[..len]), Ok((frame, len)));
            assert!(Frame::decode(&head[..len - 1]).is_err());
        }
        assert_eq!(Frame::decode(&[0; 40]), Err(BadFrame { kind: 0, len: 40 }));
        assert_eq!(Frame::decode(&[31; 40]), Err(BadFrame { kind: 31, len: 40 }));
    }
}
