//! `rsd`: the daemon of a node (`rsd start`), the process that runs a job's ranks there (`rsd step`), and two commands to a
//! daemon (`rsd status`, `rsd stop`).
//!
//! The package `rsd-core` decides; this package turns sockets, timers and processes into its inputs and performs its effects. In
//! reading order:
//!
//! - [`options`], [`start`]: the command line, and becoming a daemon.
//! - [`shell`]: the loop around `rsd_core::Rsd`; [`door`] is its queue.
//! - [`serve`]: connections from clients, members, child daemons and steps. [`uplink`]: the connection to the parent.
//! - [`steps`]: the step processes that a daemon starts. [`step_process`]: such a process, the loop around `rsd_core::Step`.
//!   [`spawn`], [`reap`]: its ranks.
//! - [`inventory`]: the node's resources and load. [`disk`]: the files of a daemon.
//! - [`plan`]: placement on machines that are only described, for `rsctl plan`.

mod clock;
mod disk;
mod door;
mod failed;
mod inventory;
mod logging;
mod manual;
mod options;
mod plan;
mod presence;
mod query;
mod random;
mod reap;
mod serve;
mod settings;
mod shell;
mod spawn;
mod start;
mod step_process;
mod steps;
mod uplink;

use std::process::ExitCode;

use clap::Parser;
use rsd_proto::transport::exit;

use options::{Command, ConfigCommand, Options};

fn main() -> ExitCode {
    let options = match Options::try_parse() {
        Ok(options) => options,
        Err(error) => {
            // Help goes to stdout and usage errors to stderr; a closed stream is ignored.
            let _ = error.print();
            return if error.use_stderr() { ExitCode::from(exit::USAGE) } else { ExitCode::SUCCESS };
        }
    };
    let as_json = matches!(&options.command, Command::Status(status) if status.json);
    let done = match options.command {
        Command::Start(options) => start::start(options),
        Command::Stop(options) => query::stop(options),
        Command::Status(options) => query::status(options),
        Command::Config(ConfigCommand::Show(options)) => settings::show(&options),
        Command::Completion { shell } => manual::complete(shell),
        Command::Man { directory } => manual::write(&directory),
        Command::Step(options) => step_process::main(options),
        Command::Limits(options) => spawn::become_limited(&options),
        Command::Plan => plan::plan(),
        Command::Topology => plan::topology(),
    };
    match done {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            let code = failed::exit_code(&error);
            match as_json {
                true => eprintln!("{}", failed::json(code, &format!("{error:#}"))),
                false => eprintln!("rsd: {error:#}"),
            }
            ExitCode::from(code)
        }
    }
}
