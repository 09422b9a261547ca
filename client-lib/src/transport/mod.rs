//! The transports to other processes: shared memory on one node, TCP between nodes. [`Routes`] chooses for each peer.
//!
//! # Another transport
//!
//! A transport for another network (libfabric, UCX) is one more folder beside [`shm`] and [`tcp`], and one more variant of the routes.
//!
//! It must provide, as [`Transport`](crate::engine::Transport) says:
//!
//! - `limits`, `try_send` and `poll`: frames that arrive complete, once, and in the order sent between two processes, with payloads up to its
//!   own limits. A frame that cannot go now is refused ([`Refusal::Full`](crate::engine::Refusal)); the engine keeps it. No call blocks.
//! - `cut` and the report of losses ([`Sink::on_lost`](crate::engine::Sink)): a peer that has died or misbehaves is reported once, after all that
//!   it sent before.
//! - A sleep: a descriptor that becomes readable when something arrives, and a call before the sleep after which that is certain
//!   ([`Routes::prepare_sleep`]). A network without descriptors needs a limit for the sleep instead.
//!
//! It may lack everything else:
//!
//! - `offer`, `withdraw` and `pull`: without them (`offer` returns `None`, `pull` refuses), long messages are sent in parts. A
//!   [`Region`](crate::engine::Region) is a ticket of the sender and one word, which the transport alone interprets. A remote key that is longer
//!   stays in a table under its ticket, and is sent when the ticket is first used.
//! - `catch`: without it, all messages come by `poll`.
//! - Landings ([`Sink::landing`](crate::engine::Sink)), for transports that read from streams.
//! - Put, get, atomic and flush: no transport has them. Windows reach memory of their node by themselves, and other memory by messages
//!   (`object::window`). A network that has them adds a variant to `object::window::Place`; accumulates must keep to the owner's guards, or all
//!   members must use the network's atomics for all of them.
//!
//! Parts of a message arrive in order, so they carry no offset. A transport that sends over several rails puts them in order itself.
//!
//! `transport::tests::datagrams` is an example, complete in one file: Unix datagrams, with nothing but what a transport must provide.
//!
//! The bodies of `engine::tests::bodies` run over every transport: over these two, that example, and the one of the engine's tests
//! (`engine::tests::fake`), which provides any subset of the above, in one thread.

mod address;
pub mod endpoint;
pub mod name;
pub mod poller;
mod routes;
pub mod shm;
pub mod tcp;
#[cfg(test)]
#[cfg(not(loom))]
mod tests;

pub use routes::{Bell, ForeignPeer, Neighbourhood, Prepared, Routes, Sleep, needs_connections};
pub use shm::Watched;
pub use tcp::{close_in_child, port};
