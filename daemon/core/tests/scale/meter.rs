//! What a phase costs: messages between daemons, and the memory and the time of the state machines.

use std::time::{Duration, Instant};

use peak_alloc::PeakAlloc;

#[global_allocator]
static ALLOCATOR: PeakAlloc = PeakAlloc;

/// The memory that one daemon holds, and the most that it has held since the last [`Held::begin`].
#[derive(Debug, Default, Clone, Copy)]
pub(crate) struct Held {
    now: i64,
    most: i64,
    time: Duration,
}

impl Held {
    /// Begins a new phase.
    pub(crate) fn begin(&mut self) {
        (self.most, self.time) = (self.now, Duration::ZERO);
    }

    /// Does one daemon's work. Of what it returns, `leaves` bytes leave the daemon.
    pub(crate) fn measure<T>(&mut self, work: impl FnOnce() -> T, leaves: impl Fn(&T) -> usize) -> T {
        ALLOCATOR.reset_peak_usage();
        let before = ALLOCATOR.current_usage() as i64;
        let begin = Instant::now();
        let done = work();
        self.time += begin.elapsed();
        self.most = self.most.max(self.now + ALLOCATOR.peak_usage() as i64 - before);
        self.now += ALLOCATOR.current_usage() as i64 - before - leaves(&done) as i64;
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
