//! The ways to other processes: shared memory on one node, TCP between nodes. [`Ways`] chooses for each peer.

mod address;
pub mod name;
pub mod poller;
pub mod shm;
pub mod tcp;
mod ways;
pub mod whereabouts;
#[cfg(test)]
#[cfg(not(loom))]
mod worlds;

pub use shm::Hearing;
pub use tcp::port;
pub use ways::{Bell, Neighbourhood, Prepared, Sleep, Stranger, Ways, needs_connections};
