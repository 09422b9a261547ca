//! How a process joins its job, tells the others its address, and learns theirs: the clients of PMI-1 ([`Pmi`]), which rsd's MPI
//! library uses, and of PMI-2 ([`Pmi2`]).
//!
//! [`Env`] is the launcher's information; [`Pmi::from_env`] joins and blocks until the process manager has answered. Then each
//! rank puts, all fence, and every rank gets what any rank put before the fence:
//!
//! ```no_run
//! # use rsd_bootstrap::{BootstrapError, Env, Limits, Pmi};
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
//! A process without a launcher gets its [`Env`] from a daemon instead ([`join`]).
//!
//! One thread, blocking sockets, one request at a time. The wire protocol is rsd-proto's (`pmi`), whose decoders bound the
//! memory that a server can make the client use. Every wait has a limit, except the fence, which waits for the slowest rank.

mod attach;
pub mod border;
mod client;
mod error;
mod frames;
pub mod join;
mod manage;

pub use attach::{Attachment, Env};
pub use client::{Limits, Lost, Pmi};
pub use error::BootstrapError;
pub use frames::Pmi2;
pub use manage::Spawned;
