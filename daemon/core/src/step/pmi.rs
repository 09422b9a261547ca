//! A rank's PMI connection, on which PMI-1 and PMI-2 may come.

use rsd_proto::pmi::dialogue::{Request, RequestDecoder};

use super::{Effect, Local, Step};
use crate::Now;

/// The state of one rank's dialogue with its process manager, over all its connections and in all dialects.
#[derive(Debug, Default)]
pub(super) struct Conn {
    decoder: RequestDecoder,
    /// Whether its last message was a frame of PMI-2.
    in_frames: bool,
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

    /// Returns whether the rank speaks PMI-2.
    pub(super) fn is_in_frames(&self) -> bool {
        self.in_frames
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
            let conn = &mut self.ranks[local].pmi;
            (conn.spoken, conn.in_frames) = (true, matches!(request, Ok(Request::Two(_))));
            match request {
                Ok(Request::One(request)) => self.on_pmi1(now, local, request, out),
                Ok(Request::Two(asked)) => self.on_pmi2(now, local, asked, out),
                Err(error) => self.on_protocol_fault(now, local, format!("sent malformed PMI: {error}"), out),
            }
        }
    }
}
