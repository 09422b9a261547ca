//! A process joins its job, tells the others where it is, and learns where they are.
//!
//! [`Env`] is what the launcher has said; [`Pmi::from_env`] joins and blocks until the process manager has answered. Then
//! each rank puts, all fence, and every rank gets what any rank put before the fence:
//!
//! ```no_run
//! # use rsd_mpi::bootstrap::{BootstrapError, Env, Limits, Pmi};
//! # fn main() -> Result<(), BootstrapError> {
//! let Some(mut pmi) = Pmi::from_env(&Env::of_process(), Limits::default())? else { return Ok(()) };
//! pmi.put(&format!("address-{}", pmi.rank()), "10.0.0.7:4411")?;
//! pmi.fence()?;
//! let next = pmi.get(&format!("address-{}", (pmi.rank() + 1) % pmi.size()))?;
//! # drop(next);
//! pmi.finalize()
//! # }
//! ```
//!
//! A process that nobody has launched gets its [`Env`] from a daemon instead ([`join`]).
//!
//! One thread, blocking sockets, one request at a time: the wire is rsd-proto's (`pmi::v1`), whose decoder bounds what a
//! server can make us hold. Every wait has a limit, but for the fence, which waits for the slowest rank.

mod attach;
mod client;
mod error;
pub mod join;
mod manage;

pub use attach::{Attachment, Env};
pub use client::{Limits, Pmi};
pub use error::BootstrapError;
pub use manage::Spawned;
