//! Sends whose memory stays lent after they have started: the receiver may read it until the next poll ([`Transport::try_lend`]).

use super::calls::Started;
use super::core::{Core, sent_whole};
use super::frame::Frame;
use super::operations::Engine;
use super::slab::Id;
use super::state::{OnLoan, Request, RequestState};
use super::transport::{Loan, Peer, Refusal, Transport};
use crate::memory::Buffer;

impl<T: Transport> Engine<T> {
    /// Ends the loans to a peer, or all. One that is being read is left for later, unless it `must` end now. Returns whether any has ended.
    #[cold]
    #[inline(never)]
    pub(super) fn redeem(&mut self, only: Option<Peer>, must: bool) -> bool {
        let mut loans = std::mem::take(&mut self.core.loans);
        let before = loans.len();
        loans.retain(|id| {
            // Otherwise its peer was lost, and it has failed.
            let Some(Request { state: RequestState::OnLoan(it), .. }) = self.core.requests.get(*id) else {
                return false;
            };
            let OnLoan { to, loan, ref buffer } = **it;
            if only.is_some_and(|only| only != to) {
                return true;
            }
            let buffer = buffer.clone();
            let is_over = self.transport.redeem(to, loan, &buffer, must, &mut self.core);
            if is_over {
                self.core.finish(*id, sent_whole(&buffer));
            }
            !is_over
        });
        self.core.loans = loans;
        self.core.loans.len() < before
    }

    /// Completes the sends whose memory is lent.
    #[cold]
    #[inline(never)]
    pub(super) fn end_loans(&mut self) {
        if !self.core.loans.is_empty() {
            self.redeem(None, true);
            self.core.flush(&mut self.transport);
        }
    }

    /// Whether memory is lent: [`Engine::progress`] must be called again soon.
    #[inline]
    pub fn lends(&self) -> bool {
        !self.core.loans.is_empty()
    }

    /// Lends a message. Of several to one peer, only the last one stays lent. Not inlined: most messages are shorter.
    #[inline(never)]
    pub(super) fn try_lend(
        &mut self,
        to: Peer,
        frame: &Frame,
        buffer: &Buffer,
        may_stay: bool,
    ) -> Result<Option<Loan>, Refusal> {
        if self.core.lends_to(to) {
            self.redeem(Some(to), true);
            self.core.flush(&mut self.transport);
        }
        let may_stay = may_stay && self.core.requests.vacant().is_some();
        match self.transport.try_lend(to, frame, buffer, may_stay, &mut self.core) {
            // Other loans may hold the cells that this message needs.
            Err(Refusal::Full) if self.lends() => {
                self.end_loans();
                self.transport.try_lend(to, frame, buffer, may_stay, &mut self.core)
            }
            result => result,
        }
    }
}

impl Core {
    /// Whether memory is lent to this peer.
    #[inline]
    fn lends_to(&self, to: Peer) -> bool {
        let is_lent = |id: &Id| self.requests.get(*id).is_some_and(|request| request.state.depends_on() == Some(to));
        self.loans.iter().any(is_lent)
    }

    /// Creates the request of a message whose memory is lent.
    #[cold]
    pub(super) fn lend(&mut self, to: Peer, loan: Loan, buffer: Buffer) -> Started {
        self.start(|_| RequestState::OnLoan(Box::new(OnLoan { to, loan, buffer })), |core, id| core.loans.push(id))
    }
}
