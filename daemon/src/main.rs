//! `rsd`: the daemon of a node (`rsd start`), the process that holds a job's ranks there (`rsd step`), and the two commands
//! that ask a daemon about itself (`rsd status`, `rsd stop`).
//!
//! What is decided is `rsd-core`'s; this package turns sockets, timers and processes into its inputs and performs its
//! effects. In reading order:
//!
//! - [`options`], [`start`]: the command line, and becoming a daemon.
//! - [`state_dir`]: what a daemon keeps on disk, and how it is found.
//! - [`shell`]: the loop around `rsd_core::Rsd`. [`serve`], [`groups`], [`forward`], [`uplink`], [`job_log`], [`steps`], [`join`]: its surroundings.
//! - [`step_process`]: the loop around `rsd_core::Step`. [`spawn`], [`reap`]: processes.
//! - [`inventory`], [`load`]: what the node has and does. [`plan`]: the same of machines that are not there, for `rsctl plan`.

mod forward;
mod groups;
mod inventory;
mod job_log;
mod join;
mod kept;
mod kv;
mod load;
mod logging;
mod options;
mod plan;
mod query;
mod reap;
mod serve;
mod shell;
mod spawn;
mod start;
mod state_dir;
mod step_process;
mod steps;
mod uplink;

use std::process::ExitCode;

use clap::Parser;

use options::{Command, Options};

fn main() -> ExitCode {
    let done = match Options::parse().command {
        Command::Start(options) => start::start(options),
        Command::Stop(options) => query::stop(options),
        Command::Status(options) => query::status(options),
        Command::Step(options) => step_process::main(options),
        Command::Plan => plan::plan(),
        Command::Topology => plan::topology(),
    };
    match done {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("rsd: {error:#}");
            ExitCode::from(error.downcast_ref::<query::Failed>().map_or(1, |failed| failed.code))
        }
    }
}
