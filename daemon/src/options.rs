//! The command line of `rsd`.

use std::path::PathBuf;

use clap::{Args, Parser, Subcommand};
use rsd_config::settings::LogFormat;

/// The resident process manager: one daemon per node, together a distributed virtual machine for parallel programs.
#[derive(Debug, Parser)]
#[command(name = "rsd", version, max_term_width = 100)]
pub(crate) struct Options {
    #[command(subcommand)]
    pub(crate) command: Command,
}

#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// Start a daemon: without --join the head of a new DVM, with it one more node of another daemon's DVM
    #[command(after_help = "Examples:
  rsd start                                     one node, one user, nothing to configure
  rsd start --name node0 --listen 127.0.0.1:0   a head that others may join
  rsd start --name node1 --join 127.0.0.1:7817  one more node (several on one machine are several nodes)")]
    Start(StartOptions),
    /// Stop a daemon; the head stops its whole DVM
    Stop(StopOptions),
    /// Tell what a daemon is and does
    Status(StatusOptions),
    /// Hold the ranks of one job on this node (started by the daemon)
    #[command(hide = true)]
    Step(StepOptions),
    /// Answer an encoded plan request on standard input (asked by `rsctl plan --topology`)
    #[command(hide = true)]
    Plan,
    /// Write the topology that hwloc's environment variables describe (asked by `rsd plan`)
    #[command(hide = true)]
    Topology,
}

#[derive(Debug, Clone, Args)]
pub(crate) struct StartOptions {
    /// Stay in the foreground and log to stderr
    #[arg(long)]
    pub(crate) foreground: bool,
    /// Name of this node, and of the daemon for --dvm [default: the host name, and "default"]
    #[arg(long)]
    pub(crate) name: Option<String>,
    /// Directory of the daemon's socket, lock and records [default: one under the user's runtime directory]
    #[arg(long)]
    pub(crate) state_dir: Option<PathBuf>,
    /// Listen for other daemons here; port 0 takes a free one (loopback only in this version)
    #[arg(long, value_name = "ADDR", conflicts_with = "local_only")]
    pub(crate) listen: Option<String>,
    /// Listen on the unix socket only
    #[arg(long)]
    pub(crate) local_only: bool,
    /// Join the DVM of the daemon that listens there
    #[arg(long, value_name = "ADDR")]
    pub(crate) join: Option<String>,
    /// Ranks that this node takes without oversubscribing [default: as many as usable cores]
    #[arg(long, value_parser = clap::value_parser!(u32).range(0..=65_536))]
    pub(crate) slots: Option<u32>,
    /// Log level: error, warn, info, debug, trace, or per target as in info,rsd=debug
    #[arg(long, env = "RSD_LOG", value_name = "LEVEL")]
    pub(crate) log: Option<String>,
    /// Write the log as text or json
    #[arg(long, env = "RSD_LOG_FORMAT", value_name = "FORMAT", value_parser = log_format)]
    pub(crate) log_format: Option<LogFormat>,
    /// Exit when standard input is closed, and register nowhere (for `rsctl run` without a daemon)
    #[arg(long, hide = true, requires = "foreground")]
    pub(crate) private: bool,
}

#[derive(Debug, Args)]
pub(crate) struct StopOptions {
    /// Which daemon: its name or its state directory
    #[arg(long, env = "RSD_DVM", value_name = "NAME|STATE_DIR")]
    pub(crate) dvm: Option<String>,
    /// Kill the jobs that run
    #[arg(long)]
    pub(crate) force: bool,
}

#[derive(Debug, Args)]
pub(crate) struct StatusOptions {
    /// Which daemon: its name or its state directory
    #[arg(long, env = "RSD_DVM", value_name = "NAME|STATE_DIR")]
    pub(crate) dvm: Option<String>,
    /// As one JSON object
    #[arg(long)]
    pub(crate) json: bool,
}

#[derive(Debug, Args)]
pub(crate) struct StepOptions {
    pub(crate) state_dir: PathBuf,
}

fn log_format(word: &str) -> Result<LogFormat, &'static str> {
    match word {
        "text" => Ok(LogFormat::Text),
        "json" => Ok(LogFormat::Json),
        _ => Err("use text or json"),
    }
}
