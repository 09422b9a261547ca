//! The engine: decides which receive gets which message, and in which steps a message travels.
//!
//! It has no I/O, no clock and no environment. [`frame`] defines what processes send to each other, a [`Transport`] carries it and a
//! [`Sink`] receives it; the library calls [`Engine`]. Within, `matching` matches receives and messages, `arrivals` handles what arrives
//! (`signed`: messages that name their datatypes), `catching` receives without a request what has just arrived, `outbox` sends what there
//! is room for, `fetching` gets long messages that were announced, `probes` finds messages without receiving them, `loans` has the sends
//! whose memory the receiver may read, `cancelling` takes requests back, `farewell` lets go of peers, `holding` bounds what is stored of
//! unreceived messages (`flow`), `notes` keeps communicators usable that have lost members, `checking` is for programs under test,
//! `contexts` maps ranks to peers, `state` is the record of each request and message, and `core` holds them all.

mod calls;
pub mod frame;
mod transport;

mod cancelling;
mod checking;
mod loans;
mod operations;

mod farewell;
mod flow;
mod holding;
mod notes;
mod probes;
mod signed;

mod arrivals;
mod catching;
mod core;
mod fetching;
mod outbox;

mod contexts;
mod matching;
mod peers;
mod slab;
mod spare;
mod state;
mod traffic;

#[cfg(test)]
pub(crate) mod tests;

pub use calls::{MessageId, Mode, Note, Outcome, Probed, RequestId, Source, Started, TAG_MAX, TagMatch};
pub use farewell::Farewell;
pub use frame::{Envelope, Frame, Region, Sort};
pub use operations::Engine;
pub use traffic::Traffic;
pub use transport::{FrameLimits, Landing, Loan, Peer, PullRefused, Pulled, Refusal, Sink, Transport};
