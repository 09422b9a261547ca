//! `rsd`: the daemon of a node (`rsd start`), the process that runs a job's ranks there (`rsd step`), and commands to a
//! daemon (`rsd status`, `rsd stop`, `rsd upgrade`).
//!
//! The package `rsd-core` decides; this package turns sockets, timers and processes into its inputs and performs its effects. In
//! reading order:
//!
//! - [`options`], [`start`]: the command line, and becoming a daemon.
//! - [`shell`]: the loop around `rsd_core::Rsd`; [`door`] is its queue, and [`downs`] those of the links' messages.
//! - [`serve`]: connections from clients, members, child daemons and steps. [`uplink`]: the connection to the parent.
//! - [`secure`]: certificates and join tokens. [`standby`]: copies of what the head keeps, and other machines that become the head.
//! - [`steps`]: the step processes that a daemon starts. [`step_process`]: such a process, the loop around `rsd_core::Step`.
//!   [`spawn`], [`reap`]: its ranks.
//! - [`upgrade`]: another program takes a daemon's place.
//! - [`inventory`]: the node's resources and load. [`disk`]: the files of a daemon.
//! - [`metrics`]: metrics for Prometheus.
//! - [`plan`]: placement on machines that are only described, for `rsctl plan`.

mod clock;
mod descriptors;
mod disk;
mod door;
mod downs;
mod failed;
mod inventory;
mod logging;
mod manual;
mod metrics;
mod network;
mod options;
mod owner;
mod plan;
mod presence;
mod query;
mod random;
mod reach;
mod reap;
mod secure;
mod serve;
mod settings;
mod shell;
mod spawn;
mod standby;
mod start;
mod step_process;
mod steps;
mod token;
mod upgrade;
mod uplink;
mod way_up;

use std::io::Write;
use std::process::ExitCode;

use rsd_proto::transport::exit;

use options::{Command, ConfigCommand, Unread};

fn main() -> ExitCode {
    let options = match options::read(std::env::args_os()) {
        Ok(options) => options,
        Err(unread) => {
            if let Unread::Mistake { text, .. } = &unread {
                upgrade::go_back(text.lines().next().unwrap_or_default());
            }
            return report_unread(&unread, std::env::args_os().any(|arg| arg == "--json"));
        }
    };
    let as_json = match &options.command {
        Command::Status(options) => options.json,
        Command::Config(ConfigCommand::Show(options)) => options.json,
        Command::Token(command) => command.json(),
        Command::Start(_)
        | Command::Stop(_)
        | Command::Upgrade(_)
        | Command::Completion { .. }
        | Command::Man { .. }
        | Command::Step(_)
        | Command::Limits(_)
        | Command::Plan
        | Command::Topology => false,
    };
    let done = match options.command {
        Command::Start(options) => start::start(*options),
        Command::Stop(options) => query::stop(options),
        Command::Upgrade(options) => upgrade::upgrade(options),
        Command::Status(options) => query::status(options),
        Command::Token(command) => token::token(command),
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
            failed::report(code, &format!("{error:#}"), None, as_json);
            ExitCode::from(code)
        }
    }
}

fn report_unread(unread: &Unread, as_json: bool) -> ExitCode {
    match unread {
        // Help goes to standard output, errors to standard error. There is no place to report a failed write.
        Unread::Help(error) => drop(error.print()),
        Unread::Mistake { text, .. } if as_json => {
            let text = text.strip_prefix("error: ").unwrap_or(text);
            let (message, more) = text.split_once("\n\n").unwrap_or((text, ""));
            failed::report(exit::USAGE, message.trim_end(), Some(more.trim_end()), true);
        }
        Unread::Mistake { styled: Some(error), .. } => drop(error.print()),
        Unread::Mistake { text, styled: None } => drop(write!(std::io::stderr(), "{text}")),
    }
    match unread {
        Unread::Help(_) => ExitCode::SUCCESS,
        Unread::Mistake { .. } => ExitCode::from(exit::USAGE),
    }
}
