//! Counts messages, for tools.

/// What an engine has sent and received.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Traffic {
    /// Messages whose send was started.
    pub sent: u64,
    /// Their packed bytes.
    pub sent_bytes: u64,
    /// Messages that a receive has got completely.
    pub received: u64,
    /// Their packed bytes.
    pub received_bytes: u64,
}

impl Traffic {
    #[inline(always)]
    pub(super) fn send(&mut self, bytes: usize) {
        self.sent += 1;
        self.sent_bytes += bytes as u64;
    }

    #[inline(always)]
    pub(super) fn receive(&mut self, bytes: u64) {
        self.received += 1;
        self.received_bytes += bytes;
    }
}
