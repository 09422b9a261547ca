//! What decides about messages: which receive gets which message, and in what steps it travels.
//!
//! Pure: no I/O, no clock, no environment. [`frame`] is what processes say to each other, [`transport`] what carries it and
//! what the engine asks of it; [`core`](Engine) matches and keeps the requests.

pub mod frame;
mod transport;

pub use transport::{FrameLimits, Landing, Peer, PullRefused, Refusal, Sink, Transport};
