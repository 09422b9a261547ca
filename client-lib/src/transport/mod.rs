//! The transports to other processes: shared memory on one node, TCP between nodes. [`Routes`] chooses for each peer.

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
pub use tcp::port;
