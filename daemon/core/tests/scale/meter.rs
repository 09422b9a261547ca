//! What a phase costs: messages between daemons, and the memory and the time of the state machines.

use std::cell::RefCell;
use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};
use std::time::{Duration, Instant};

use bytes::Bytes;
use peak_alloc::PeakAlloc;

#[global_allocator]
static ALLOCATOR: PeakAlloc = PeakAlloc;

/// The memory that one daemon holds, and the most that it has held since the last [`Held::begin`].
#[derive(Debug, Default)]
pub(crate) struct Held {
    now: i64,
    most: i64,
    time: Duration,
    shared: Shared,
}

/// The bytes of received messages that a daemon holds. In this process all receivers of a large message share it; each is charged for it.
#[derive(Debug, Default, Clone)]
pub(crate) struct Shared(Arc<AtomicI64>);

/// Messages of fewer bytes are copied for each receiver.
const SHARED_FROM: usize = 64 << 10;

impl Shared {
    /// Returns a message as received: the sender's copy is not this daemon's memory.
    pub(crate) fn received(&self, packet: &Bytes) -> Bytes {
        if packet.len() < SHARED_FROM {
            return Bytes::copy_from_slice(packet);
        }
        self.0.fetch_add(packet.len() as i64, Ordering::Relaxed);
        Bytes::from_owner(Received { packet: packet.clone(), of: self.clone() })
    }

    fn bytes(&self) -> i64 {
        self.0.load(Ordering::Relaxed)
    }
}

struct Received {
    packet: Bytes,
    of: Shared,
}

impl AsRef<[u8]> for Received {
    fn as_ref(&self) -> &[u8] {
        &self.packet
    }
}

impl Drop for Received {
    fn drop(&mut self) {
        self.of.0.fetch_sub(self.packet.len() as i64, Ordering::Relaxed);
        // What another daemon has allocated is not freed here.
        DROPPED.with_borrow_mut(|dropped| dropped.push(std::mem::take(&mut self.packet)));
    }
}

thread_local! {
    /// Messages that receivers have dropped.
    static DROPPED: RefCell<Vec<Bytes>> = const { RefCell::new(Vec::new()) };
}

impl Held {
    /// Begins a new phase.
    pub(crate) fn begin(&mut self) {
        (self.most, self.time) = (self.now + self.shared.bytes(), Duration::ZERO);
    }

    pub(crate) fn shared(&self) -> Shared {
        self.shared.clone()
    }

    /// Does one daemon's work. Of what it returns, `leaves` bytes leave the daemon.
    pub(crate) fn measure<T>(&mut self, work: impl FnOnce() -> T, leaves: impl Fn(&T) -> usize) -> T {
        ALLOCATOR.reset_peak_usage();
        let (before, shared) = (ALLOCATOR.current_usage() as i64, self.shared.bytes());
        let begin = Instant::now();
        let done = work();
        self.time += begin.elapsed();
        let shared = shared.max(self.shared.bytes());
        self.most = self.most.max(self.now + shared + ALLOCATOR.peak_usage() as i64 - before);
        self.now += ALLOCATOR.current_usage() as i64 - before - leaves(&done) as i64;
        drop(DROPPED.take());
        done
    }

    pub(crate) fn most(&self) -> u64 {
        self.most.max(0) as u64
    }

    pub(crate) fn time(&self) -> Duration {
        self.time
    }
}

/// What one phase has cost.
#[derive(Debug, Default, Clone)]
pub(crate) struct Cost {
    pub(crate) rounds: u32,
    pub(crate) messages: u64,
    pub(crate) bytes: u64,
    /// The largest message.
    pub(crate) largest: u64,
    /// The messages that the head has received and sent, and their bytes.
    pub(crate) at_head: u64,
    pub(crate) head_bytes: u64,
    /// The bytes of the job's log and of the journal.
    pub(crate) written: u64,
    /// Peak memory and time: the head, the inner node and the leaf with the most.
    pub(crate) memory: [u64; 3],
    pub(crate) time: [Duration; 3],
}
