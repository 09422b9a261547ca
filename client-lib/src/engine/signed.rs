//! Messages that say of which basic datatypes they are, so that their receiver can compare (`RSD_MPI_CHECK`).
//!
//! In a process that checks, short messages to the members of open contexts take the slow path (`Relation::is_barred`), where they become
//! [`Frame::Signed`]; their receivers handle these apart from all others. So a process that does not check pays nothing, and a process
//! that does may exchange messages with one that does not.

use super::arrivals::Whole;
use super::arrivals::{Match, NotAMember};
use super::calls::{Outcome, RequestId, Started};
use super::core::Core;
use super::frame::{Envelope, Frame, Sort};
use super::slab::Id;
use super::state::{Announcement, Content, Early, Kind, Message, Request, RequestState};
use super::transport::Peer;
use crate::datatype::Sign;
use crate::error::MpiError;
use crate::memory::{Arrived, Buffer};

impl Frame {
    /// The same message with a sign, if there is one.
    pub(super) fn with(self, sign: Option<Sign>) -> Self {
        let Some(sign) = sign.map(Sign::number) else { return self };
        match self {
            Self::Eager { envelope } => Self::Signed { sign, envelope, sort: Sort::Whole },
            Self::EagerSync { envelope, send } => Self::Signed { sign, envelope, sort: Sort::Sync { send } },
            Self::Ready { envelope, send, len, region: _ } => {
                Self::Signed { sign, envelope, sort: Sort::Ready { send, len } }
            }
            other => other,
        }
    }

    /// The same message without its sign, and the sign.
    pub(super) fn without_sign(self) -> (Self, Option<Sign>) {
        let Self::Signed { sign, envelope, sort } = self else { return (self, None) };
        let plain = match sort {
            Sort::Whole => Self::Eager { envelope },
            Sort::Sync { send } => Self::EagerSync { envelope, send },
            Sort::Ready { send, len } => Self::Ready { envelope, send, len, region: None },
        };
        (plain, Some(Sign::of_number(sign)))
    }
}

impl Core {
    /// The sign of a message, if it needs one.
    #[inline]
    pub(super) fn sign(&self, context: u32, buffer: &Buffer) -> Option<Sign> {
        if self.checks { self.sign_of(context, buffer) } else { None }
    }

    #[cold]
    fn sign_of(&self, context: u32, buffer: &Buffer) -> Option<Sign> {
        let is_users = self.contexts.get(context).is_some_and(|open| open.kind == Kind::User);
        is_users.then(|| buffer.sign(buffer.len()))
    }

    /// The members of a context that is being opened get signed messages.
    pub(super) fn bar(&mut self, members: &[Peer]) {
        for peer in members.iter().filter(|peer| **peer != self.me) {
            let relation = self.peers.relation(*peer);
            relation.is_checked = true;
            relation.review();
        }
    }

    /// A send of the user that is complete at once is a request nevertheless, so that one which is never waited for is found.
    #[cold]
    pub(super) fn kept_for_wait(&mut self, context: u32, started: Started) -> Started {
        let is_users = self.contexts.get(context).is_some_and(|open| open.kind == Kind::User);
        match started {
            Started::Over(outcome) if is_users && outcome.error.is_none() => {
                let request = Request { state: RequestState::Finished(outcome.clone()), forgotten: false };
                self.requests.add(request).map_or(Started::Over(outcome), |id| Started::Pending(RequestId(id)))
            }
            started => started,
        }
    }

    /// Handles a signed message.
    #[cold]
    pub(super) fn on_signed(&mut self, from: Peer, frame: Frame, envelope: Envelope, payload: Arrived<'_>) {
        let (plain, sign) = frame.without_sign();
        let sign = sign.unwrap_or(Sign::UNKNOWN);
        let (len, send) = match plain {
            Frame::EagerSync { send, .. } => (payload.len() as u64, Some(send)),
            Frame::Ready { send, len, .. } => (len, Some(send)),
            _whole => (payload.len() as u64, None),
        };
        if let Some(error) = self.mismatch_of_next(from, envelope, sign, len) {
            return match self.match_posted(from, envelope) {
                Ok(Match::Posted(id)) => {
                    self.fail_mismatched(id, envelope, error);
                    self.confirm(from, send);
                }
                Ok(Match::Unexpected | Match::Early | Match::Refused) | Err(NotAMember) => {}
            };
        }
        let is_stored = self.is_stored(from, envelope);
        match (plain, is_stored) {
            (Frame::Eager { .. }, false) => {
                self.on_eager(from, envelope, None, Whole::Lent(payload), false);
            }
            (Frame::EagerSync { send, .. }, false) => {
                self.on_eager(from, envelope, Some(send), Whole::Lent(payload), false);
            }
            (Frame::Ready { send, len, region, .. }, false) => {
                self.on_ready(Announcement { from, envelope, send, len, region });
            }
            (Frame::Eager { .. }, true) => {
                let content = Content::Bytes(self.keep_bytes(payload));
                self.keep_signed(from, envelope, sign, content);
            }
            (Frame::EagerSync { send, .. }, true) => {
                let content = Content::Sync { bytes: self.keep_bytes(payload), send };
                self.keep_signed(from, envelope, sign, content);
            }
            (Frame::Ready { send, len, region, .. }, true) => {
                let content = Content::Ready(Box::new(Announcement { from, envelope, send, len, region }));
                self.keep_signed(from, envelope, sign, content);
            }
            _no_message => {}
        }
    }

    /// A message for a context that is not open yet keeps its sign.
    pub(super) fn keep_signed_early(&mut self, from: Peer, frame: Frame, context: u32, payload: Arrived<'_>) {
        self.keep_early(context, Early { from, frame, payload: payload.to_vec() });
    }

    /// Stores a message with its sign.
    pub(super) fn keep_signed(&mut self, from: Peer, envelope: Envelope, sign: Sign, content: Content) {
        self.keep(Message { from, envelope, content: Content::Signed(Box::new((sign, content))) });
    }

    /// Whether no receive that is posted gets the message, and it is to be stored.
    fn is_stored(&self, from: Peer, envelope: Envelope) -> bool {
        self.contexts.get(envelope.context).is_some_and(|open| {
            open.members.get(envelope.rank as usize) == Some(&from)
                && !open.refuses(envelope.tag)
                && self.posted.find(&open.seen, envelope).is_none()
        })
    }

    /// The error of the receive that gets the message, if their datatypes differ.
    fn mismatch_of_next(&self, from: Peer, envelope: Envelope, sign: Sign, len: u64) -> Option<MpiError> {
        let open = self.contexts.get(envelope.context)?;
        if open.members.get(envelope.rank as usize) != Some(&from) {
            return None;
        }
        let (_, slot) = self.posted.find(&open.seen, envelope)?;
        let (_, request) = self.requests.at(slot)?;
        mismatch(sign, envelope, len, request.state.posted_buffer()?)
    }

    fn fail_mismatched(&mut self, id: Id, envelope: Envelope, error: MpiError) {
        self.finish(id, failed(envelope, error));
    }

    /// Tells a sender that waits that its message is taken.
    pub(super) fn confirm(&mut self, from: Peer, send: Option<u32>) {
        if let Some(send) = send {
            self.say(from, Frame::Done { send });
        }
    }
}

/// The outcome of a receive whose message has other datatypes.
pub(super) fn failed(envelope: Envelope, error: MpiError) -> Outcome {
    Outcome { source: envelope.rank, tag: envelope.tag, bytes: 0, cancelled: false, error: Some(Box::new(error)) }
}

/// What is wrong if a message of `len` bytes is received into this buffer.
pub(super) fn mismatch(sign: Sign, envelope: Envelope, len: u64, into: &Buffer) -> Option<MpiError> {
    // What does not fit is another error.
    let expected = into.sign(usize::try_from(len).ok().filter(|len| *len <= into.len())?);
    if sign.agrees(expected) {
        return None;
    }
    let Envelope { rank, tag, .. } = envelope;
    Some(MpiError::datatype(format!(
        "the message of rank {rank} with tag {tag} ({len} bytes) was sent as {sign} and is received as {expected}"
    )))
}
