//! Collective operations as schedules of messages (MPI 5.0 §6).
//!
//! A call becomes a [schedule]: the sends, receives, copies and reductions of this rank, as data. Each algorithm is a pure
//! function that builds one ([`barrier`], [`bcast`], [`gather`], [`allgather`], [`alltoall`], [`reduce`], [`allreduce`],
//! [`reduce_scatter`], [`scan`], [`neighbor`]); [`choice`] selects the algorithm, by the [`layout`] of the ranks on nodes and
//! the bytes. A [`run`] executes the schedule over any message carrier ([`run::Courier`]), on the memory that [`operands`] lend
//! to it. The blocking, non-blocking and persistent forms of a function differ only in what drives the run. Two groups have schedules of
//! their own ([`inter`]). Among processes of one node, blocking collectives ([`node`]) and short non-blocking ones ([`outboxes`]) can bypass messages
//! and use shared memory.

pub mod layout;
pub mod schedule;

pub mod allgather;
pub mod allreduce;
pub mod alltoall;
pub mod barrier;
pub mod bcast;
pub mod gather;
pub mod neighbor;
pub mod reduce;
pub mod reduce_scatter;
pub mod scan;

pub mod inter;

mod accumulator;
pub mod choice;
mod halving;
mod tree;

pub mod operands;
pub mod run;
mod running;

pub mod node;
pub mod outboxes;

#[cfg(test)]
mod tests;

pub use choice::Call;
pub use halving::Vector;
pub use layout::Layout;
pub use running::{CollectiveId, Collectives, Members, Messages};
pub use schedule::{Action, Area, Here, Schedule, Slice};
