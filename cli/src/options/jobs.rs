//! Options of the commands that look at jobs.

use std::time::Duration;

use clap::Args;

use crate::selectors::Selector;

/// `logs`.
#[derive(Debug, Args)]
pub(crate) struct Logs {
    /// `last`, `7`, a name, or one rank: `7.3`
    #[arg(value_name = "JOB[.RANK]", default_value = "last")]
    pub(crate) job: Selector,
    /// Follow the output until the job ends
    #[arg(short, long)]
    pub(crate) follow: bool,
    /// Only this rank
    #[arg(short, long)]
    pub(crate) rank: Option<u32>,
    /// Only this stream
    #[arg(long)]
    pub(crate) stream: Option<OutputStream>,
    /// Put `[rank] ` before each line
    #[arg(short, long)]
    pub(crate) label: bool,
    /// With -f: how long to look for a daemon that is lost, and go on when it is back; 0: not at all
    #[arg(long, value_name = "TIME", value_parser = super::words::duration, default_value = "5m")]
    pub(crate) reconnect: Duration,
}

/// A stream of a rank.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
pub(crate) enum OutputStream {
    Stdout,
    Stderr,
}
