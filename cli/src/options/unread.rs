//! Arguments that are not a command to perform.

use crate::exit::Failure;

/// Why there is no command to perform.
#[derive(Debug)]
pub(crate) enum Unread {
    /// Help, the version, or an error of clap, with a line of rsctl below it.
    Clap(clap::Error, Option<&'static str>),
    /// An error of rsctl.
    Failure(Failure),
}
