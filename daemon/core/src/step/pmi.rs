//! A rank's PMI connection.

use rsd_proto::pmi::v1::RequestDecoder;

use super::{Effect, Local, Step};
use crate::Now;

/// The state of one rank's dialogue with its process manager, over all its connections and in all dialects.
#[derive(Debug, Default)]
pub(super) struct Conn {
    decoder: RequestDecoder,
    spoken: bool,
    finalized: bool,
}

impl Conn {
    /// The rank has a new connection; its state from the previous one remains.
    pub(super) fn begin_anew(&mut self) {
        self.decoder = RequestDecoder::default();
    }

    /// The rank begins to use its process manager.
    pub(super) fn begin(&mut self) {
        (self.spoken, self.finalized) = (true, false);
    }

    /// The rank no longer uses its process manager.
    pub(super) fn finalize(&mut self) {
        self.finalized = true;
    }

    /// Returns whether the rank has ever sent a PMI message.
    pub(super) fn has_spoken(&self) -> bool {
        self.spoken
    }

    /// Returns whether the rank has finalized.
    pub(super) fn is_finalized(&self) -> bool {
        self.finalized
    }

    /// Returns whether the rank is between init and finalize.
    pub(super) fn is_active(&self) -> bool {
        self.spoken && !self.finalized
    }
}

impl Step {
    pub(super) fn on_pmi(&mut self, now: Now, local: Local, bytes: &[u8], out: &mut Vec<Effect>) {
        self.ranks[local].pmi.decoder.feed(bytes);
        while let Some(request) = self.ranks[local].pmi.decoder.next() {
            self.ranks[local].pmi.spoken = true;
            match request {
                Ok(request) => self.on_pmi1(now, local, request, out),
                Err(error) => self.on_protocol_fault(now, local, format!("sent malformed PMI: {error}"), out),
            }
        }
    }
}
