//! An ssh client that follows the user's ssh configuration. It knows nothing of rsd.
//!
//! - [`config`]: `~/.ssh/config` and `/etc/ssh/ssh_config` → [`Settings`] of a host
//! - [`known_hosts`]: which host keys are trusted
//! - [`keys`]: the user's keys, from the agent and from files
//! - [`connect`]: [`Settings`] → [`Connection`], through jump hosts; [`session`]: commands and forwarded ports on it
//!
//! Only keys authenticate. Passwords, host certificates and GSSAPI are not supported.

pub mod config;
pub mod connect;
mod error;
pub mod keys;
pub mod known_hosts;
mod login;
pub mod session;
mod terminal;

pub use config::{Config, Here, Settings};
pub use connect::{Deadlines, Network};
pub use error::{HostKeyError, SshError};
pub use session::{Connection, Forwarded, Output};
