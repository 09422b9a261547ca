//! Arguments that are not a command to perform.

use crate::exit::Failure;

/// Why there is nothing to do.
#[derive(Debug)]
pub(crate) enum Unread {
    /// Help, the version, or clap's own complaint, with a line of ours below it.
    Clap(clap::Error, Option<&'static str>),
    /// A complaint of ours.
    Failure(Failure),
}
