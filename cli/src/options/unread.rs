//! Arguments that name no command to perform: requests for help, and errors.

use crate::exit::Failure;

/// Why the arguments name no command to perform.
#[derive(Debug)]
pub(crate) enum Unread {
    /// Help, the version, or an error of clap, with a line of rsctl below it.
    Clap(clap::Error, Option<&'static str>),
    /// An error of clap, as text, whose arguments have control characters; they are shown as [`visible`](crate::print::visible) shows
    /// them. With the same line.
    Escaped(String, Option<&'static str>),
    /// An error of rsctl.
    Failure(Failure),
}
