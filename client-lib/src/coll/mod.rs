//! Collective operations as schedules of messages (MPI 5.0 §6).
//!
//! A call becomes a [schedule]: what this rank sends, receives, copies and combines, as data, built by a pure function per
//! algorithm ([`barrier`], [`bcast`], [`gather`], [`allgather`], [`alltoall`], [`reduce`], [`allreduce`], [`reduce_scatter`],
//! [`scan`]), of which [`choice`] picks one. A [`run`] carries it out over whatever takes messages ([`run::Courier`]), on the
//! memory that [`operands`] lend to it; the blocking, the non-blocking and the persistent form of a function differ only in
//! who drives it. Between two groups there are schedules of their own ([`inter`]). Small blocking ones among processes of one
//! node take a short cut over memory that these share ([`node`]).

pub mod schedule;

pub mod allgather;
pub mod allreduce;
pub mod alltoall;
pub mod barrier;
pub mod bcast;
pub mod gather;
pub mod reduce;
pub mod reduce_scatter;
pub mod scan;

pub mod inter;

mod accumulator;
pub mod choice;
mod halving;

pub mod operands;
pub mod run;
mod running;

pub mod node;

#[cfg(test)]
mod tests;

pub use choice::Call;
pub use halving::Vector;
pub use running::{CollectiveId, Collectives, Members, Messages};
pub use schedule::{Area, Here, Schedule, Slice, Step};
