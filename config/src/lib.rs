//! Parses what users write for rsd: settings, host files and host lists, rank files, environment files, durations, sizes and names.
//!
//! - [`hostfile`], [`hostlist`] (both built on [`host`]), [`rankfile`], [`envfile`]: parse text and report a mistake with its
//!   line, column and the accepted form ([`syntax`]).
//! - [`settings`] (the feature of that name): every key is documented in `rsd.toml`, which is also the built-in default.
//! - [`duration`], [`size`], [`ports`], [`triplets`]: `5s`, `1MiB`, `7000-7100`, `2:10:2`.
//! - [`runtime_dir`], [`find`], [`dvm_name`]: where a user's DVMs are, which one a command talks to, and which names are valid.
//!   [`state_dir`]: where a daemon keeps its state.
//!
//! The environment is always an argument; programs pass `|name| std::env::var_os(name)`. `rsd-core` decides which ranks run where.

pub mod duration;
pub mod dvm_name;
pub mod envfile;
pub mod find;
pub mod host;
pub mod hostfile;
pub mod hostlist;
mod mistake;
pub mod nearest;
pub mod ports;
mod ranges;
pub mod rankfile;
mod runtime;
#[cfg(feature = "settings")]
pub mod settings;
pub mod size;
mod state;
pub mod syntax;
pub mod triplets;

pub use runtime::{RelativeRuntimeDir, passed_over, runtime_dir};
pub use state::{NoStateDir, state_dir, state_dir_name};
