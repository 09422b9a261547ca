//! The decisions of rsd, without I/O, clock, environment or randomness: inputs with the time go in, effects come out.
//!
//! - [`Rsd`]: a daemon. Every daemon is a node of the [`tree`](rsd); the head also owns the jobs.
//! - [`Step`]: the part of one job on one node: its ranks, their PMI, output and exits.
//! - [`Uplink`]: how a daemon connects and reconnects to its parent.
//! - [`place`] and [`taskmap`]: which rank runs on which node. [`plan`]: the same as request and answer messages.
//! - [`lease`]: when a head may act and a standby may take over, by a lease in an external store.
//! - [`addresses`]: which addresses a node advertises, and at which ones others dial it.
//! - [`status`]: numbers of failures, as PMIx gives them.
//! - [`metrics`]: what daemons count, as text for Prometheus.
//! - [`kvs`], [`outbox`]: the store through which ranks exchange keys, and streams that survive lost links.
//!
//! The shell (package `rsd`) turns sockets, timers and processes into inputs and performs the effects. So a DVM of a
//! thousand nodes runs in one thread of a test: see `tests/simulation`.

pub mod addresses;
mod attempts;
mod between;
mod calls;
mod contract;
mod exits;
mod head;
pub mod kvs;
pub mod lease;
pub mod leftovers;
pub mod metrics;
mod node;
pub mod outbox;
pub mod place;
pub mod plan;
pub mod rsd;
pub mod sentences;
pub mod status;
pub mod step;
pub mod taskmap;
mod timers;
pub mod uplink;
mod usage;
mod waits;

pub use attempts::number as job_number;
pub use rsd::Rsd;
pub use step::Step;
pub use uplink::Uplink;

use std::time::Duration;

/// A job's number. The head counts jobs and never reuses a number.
pub type JobId = u64;
/// A node's number in its DVM; the head is 0.
pub type NodeId = u32;

/// The time, passed with every input.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Now {
    /// A monotonic clock, from any origin.
    pub mono: Duration,
    /// Milliseconds since the Unix epoch, for timestamps that users see.
    pub unix_ms: u64,
}

/// The settings that the state machines take.
#[derive(Debug, Clone, Copy)]
pub struct Tuning {
    /// Children of a node in the tree of daemons.
    pub arity: usize,
    /// After how long a link on which nothing answers counts as cut.
    pub silence: Duration,
    /// How long the head waits for an unreachable node.
    pub reattach_grace: Duration,
    /// How long a step without a daemon lets its ranks run.
    pub orphan_deadline: Duration,
    /// The time between TERM and KILL, for jobs that set none.
    pub kill_grace: Duration,
    /// The most unacknowledged output of one step, in bytes.
    pub output_window: u64,
    /// A line longer than this is passed on in pieces, in bytes.
    pub line_max: usize,
    /// The number of ended jobs that the head remembers for a user.
    pub jobs_kept: usize,
    /// How long it remembers them.
    pub jobs_kept_for: Duration,
    /// How much output of theirs it keeps, in bytes.
    pub jobs_kept_bytes: u64,
    /// In a DVM that serves all users: the most jobs of a user that are queued or running, except root's.
    pub user_jobs: usize,
    /// In a DVM that serves all users: the most bytes of the specifications of these jobs, except root's.
    pub user_submissions: u64,
    /// The largest result of a fence that goes to all nodes, in bytes. From larger ones, steps fetch what their ranks get.
    pub replicated_max: u64,
}

impl Default for Tuning {
    fn default() -> Tuning {
        Tuning {
            arity: 32,
            silence: Duration::from_secs(10),
            reattach_grace: Duration::from_secs(60),
            orphan_deadline: Duration::from_secs(600),
            kill_grace: Duration::from_secs(5),
            output_window: 1 << 20,
            line_max: 256 << 10,
            jobs_kept: 1000,
            jobs_kept_for: Duration::from_secs(90 * 86_400),
            jobs_kept_bytes: 64 << 30,
            user_jobs: 1000,
            user_submissions: 256 << 20,
            // A daemon with 32 children sends it in 54 ms over a link of 10 Gbit/s. It is what 120 nodes put with 128 ranks and 100 bytes
            // each.
            replicated_max: 2 << 20,
        }
    }
}

/// How long a request to stop a daemon waits for jobs that may be ending before it is refused. The client that makes it may have seen a
/// process end, or may have been told of a job's end, before this daemon knows of it.
const STOP_PATIENCE: std::time::Duration = std::time::Duration::from_secs(1);
