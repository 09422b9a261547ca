//! Sends errands, backlogs and long messages, as far as the transport has room.

use super::core::{Core, sent_whole, take_buffer};
use super::frame::Frame;
use super::peers::{Queued, Relation, Standing, copied_cost};
use super::slab::Id;
use super::state::{Announced, Errand, Request, RequestState, Streaming};
use super::transport::{Peer, Refusal, Transport};
use crate::memory::Payload;

/// The most frames sent to one peer before the next peer's turn.
const TURN: usize = 8;

impl Core {
    /// Returns whether anything was done.
    #[inline]
    pub(super) fn flush<T: Transport>(&mut self, transport: &mut T) -> bool {
        if self.errands.is_empty() && self.peers.busy.is_empty() {
            return false;
        }
        self.flush_all(transport)
    }

    fn flush_all<T: Transport>(&mut self, transport: &mut T) -> bool {
        let mut moved = self.run_errands(transport);
        let mut at = 0;
        while at < self.peers.busy.len() {
            moved |= self.serve(self.peers.busy[at], transport);
            if !self.peers.rest(at) {
                at += 1;
            }
        }
        moved | self.run_errands(transport)
    }

    fn run_errands<T: Transport>(&mut self, transport: &mut T) -> bool {
        let mut moved = false;
        while let Some(errand) = self.errands.pop_front() {
            moved = true;
            match errand {
                Errand::Withdraw(peer, region) => transport.withdraw(peer, region),
                Errand::Cut(peer) => transport.cut(peer),
            }
        }
        moved
    }

    /// Sends to one peer what there is room for; frames and parts of long messages take turns.
    fn serve<T: Transport>(&mut self, peer: Peer, transport: &mut T) -> bool {
        let mut moved = false;
        for _ in 0..TURN {
            let Some(relation) = self.peers.get(peer) else { break };
            let sent = match relation.next() {
                Next::Nothing => break,
                Next::Frame => self.send_queued(peer, transport),
                Next::Part => self.send_part(peer, transport),
            };
            match sent {
                Ok(()) => moved = true,
                Err(Refusal::Full) => break,
                Err(Refusal::Lost) => {
                    // The transport reports a lost peer, but not one that has finalized.
                    if self.peers.relation(peer).standing == Standing::Finalized {
                        self.lose(peer, "it has finalized");
                    }
                    break;
                }
            }
        }
        moved
    }

    fn send_queued<T: Transport>(&mut self, peer: Peer, transport: &mut T) -> Result<(), Refusal> {
        self.announce_next(peer);
        let relation = self.peers.relation(peer);
        match relation.backlog.front() {
            None => return Ok(()),
            Some(Queued::Head(frame)) => transport.try_send(peer, frame, Payload::NONE)?,
            Some(Queued::Copied { frame, bytes } | Queued::Note { frame, bytes }) => {
                transport.try_send(peer, frame, Payload::bytes(bytes))?;
            }
            Some(Queued::Lent(id)) => {
                if let Some(Request { state: RequestState::Queued(it), .. }) = self.requests.get(*id) {
                    let payload = match it.frame.without_sign().0 {
                        Frame::Ready { .. } => Payload::NONE,
                        _whole => Payload::new(&it.buffer, 0, it.buffer.len()),
                    };
                    transport.try_send(peer, &it.frame, payload)?;
                }
            }
        }
        relation.part_next = true;
        match relation.backlog.pop_front() {
            None | Some(Queued::Head(_) | Queued::Note { .. }) => {}
            Some(Queued::Copied { bytes, .. }) => {
                relation.copied -= copied_cost(bytes.len());
                self.recycle(bytes);
            }
            Some(Queued::Lent(id)) => self.on_lent_sent(id),
        }
        Ok(())
    }

    /// A message that waits for room is announced instead, if the peer has asked for that meanwhile.
    fn announce_next(&mut self, peer: Peer) {
        let relation = self.peers.relation(peer);
        let (true, Some(Queued::Lent(id))) = (relation.must_announce, relation.backlog.front()) else { return };
        let id = *id;
        let Some(Request { state: RequestState::Queued(it), .. }) = self.requests.get(id) else { return };
        let (frame, sign) = it.frame.without_sign();
        if let Frame::Eager { envelope } | Frame::EagerSync { envelope, .. } = frame
            && self.must_announce(peer, envelope)
            && let (len, send) = (it.buffer.len() as u64, id.number())
            && let Some(Request { state: RequestState::Queued(it), .. }) = self.requests.get_mut(id)
        {
            it.frame = Frame::Ready { envelope, send, len, region: None }.with(sign);
        }
    }

    fn on_lent_sent(&mut self, id: Id) {
        let Some(Request { state: RequestState::Queued(it), .. }) = self.requests.get_mut(id) else { return };
        let buffer = take_buffer(&mut it.buffer);
        match it.frame.without_sign().0 {
            Frame::EagerSync { envelope, .. } | Frame::Ready { envelope, .. } => {
                let announced = Announced { to: it.to, context: envelope.context, buffer, region: None };
                self.set(id, RequestState::Announced(Box::new(announced)));
            }
            Frame::Eager { .. }
            | Frame::Clear { .. }
            | Frame::Part { .. }
            | Frame::Done { .. }
            | Frame::Dropped { .. }
            | Frame::Note { .. }
            | Frame::Hold { .. }
            | Frame::Signed { .. }
            | Frame::Bye => {
                self.finish(id, sent_whole(&buffer));
            }
        }
    }

    fn send_part<T: Transport>(&mut self, peer: Peer, transport: &mut T) -> Result<(), Refusal> {
        let relation = self.peers.relation(peer);
        let Some(&id) = relation.streams.front() else { return Ok(()) };
        let Some(Request { state: RequestState::Streaming(streaming), .. }) = self.requests.get_mut(id) else {
            relation.streams.pop_front();
            return Ok(());
        };
        let Streaming { receive, buffer, at, end, .. } = &mut **streaming;
        let limits = transport.limits(peer);
        let most = if buffer.is_on_host() { limits.part } else { limits.part_device };
        let len = most.clamp(1, *end - *at);
        transport.try_send(peer, &Frame::Part { receive: *receive }, Payload::new(buffer, *at, len))?;
        *at += len;
        relation.part_next = false;
        if *at < *end {
            relation.streams.rotate_left(1);
            return Ok(());
        }
        relation.streams.pop_front();
        let outcome = sent_whole(buffer);
        self.finish(id, outcome);
        Ok(())
    }
}

enum Next {
    Nothing,
    Frame,
    Part,
}

impl Relation {
    fn next(&self) -> Next {
        match (self.backlog.is_empty(), self.streams.is_empty()) {
            (true, true) => Next::Nothing,
            (false, true) => Next::Frame,
            (true, false) => Next::Part,
            (false, false) if self.part_next => Next::Part,
            (false, false) => Next::Frame,
        }
    }
}
