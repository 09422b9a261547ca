//! What decides about messages: which receive gets which message, and in what steps it travels.
//!
//! Pure: no I/O, no clock, no environment. [`frame`] is what processes say to each other, [`Transport`] what carries it and
//! [`Sink`] what it is passed on to; [`Engine`] is what the library asks. Within: `matching` decides who gets what, `core` takes
//! what comes in, `outbox` sends what there is room for, `contexts` tells from whom messages come, `state` is what is remembered
//! of each request and message.

mod calls;
pub mod frame;
mod transport;

mod operations;

mod core;
mod outbox;

mod contexts;
mod matching;
mod peers;
mod slab;
mod state;

#[cfg(test)]
pub(crate) mod tests;

pub use calls::{MessageId, Mode, Outcome, Probed, RequestId, Source, Started, TAG_MAX, TagMatch};
pub use frame::{Envelope, Frame, Region};
pub use operations::{Engine, Farewell};
pub use transport::{FrameLimits, Landing, Peer, PullRefused, Pulled, Refusal, Sink, Transport};
