//! `rsd upgrade`: another program takes the place of a daemon, under its jobs.
//!
//! The daemon executes the program. So the process stays the same, with its pid, and what has started it (a service manager, a container, a
//! shell) need not know. Steps and clients see a short absence, as after a restart.
//!
//! - [`replace`] in the daemon: whether the program can take its place (it is asked, with the daemon's own arguments and state directory),
//!   and the execution.
//! - [`arrival`] in the program: until it is ready, it goes back to the earlier program when it fails.
//! - [`command`]: waits for the outcome, and starts the earlier program again if the process has ended.

mod arrival;
mod command;
mod replace;

pub(crate) use arrival::{arrived, go_back, reap_inherited};
pub(crate) use command::upgrade;
pub(crate) use replace::{Successor, arguments, check, execute};

/// The variable with the descriptor of the earlier program and its arguments, separated by [`BETWEEN`], in the environment of one that has taken its place.
pub(crate) const BACK: &str = "RSD_UPGRADE_BACK";
/// No argument of a daemon has this character.
const BETWEEN: &str = "\u{1f}";
/// The variable with the reason, in the environment of a program that a failed one has given the place back.
pub(crate) const FAILED: &str = "RSD_UPGRADE_FAILED";
