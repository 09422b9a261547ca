//! Set-up, demo, tests, checks and benches of rsd: `cargo xtask COMMAND`.
//!
//! It needs only Rust and gcc, so that it runs on a machine where nothing else is installed.

mod abi;
mod bench;
mod checks;
mod conformance;
mod demo;
mod dependencies;
mod docs;
mod install;
mod layers;
mod mpi4py;
mod places;
#[path = "../../harness/prefix.rs"]
mod prefix;
mod programs;
mod setup;
mod shell;
mod stage;
mod suite;

use std::ffi::OsString;
use std::process::ExitCode;

struct Command {
    name: &'static str,
    args: &'static str,
    about: &'static str,
    run: fn(&[OsString]) -> anyhow::Result<()>,
}

const COMMANDS: [Command; 12] = [
    Command {
        name: "demo",
        args: "[--hosts N]",
        about: "run an MPI program under four daemons on this machine, or on N hosts made of namespaces",
        run: demo::demo,
    },
    Command {
        name: "test",
        args: "[NAME]",
        about: "run all tests, or those whose name contains NAME",
        run: suite::test,
    },
    Command {
        name: "ci",
        args: "",
        about: "check format, lints, documentation, licences, generated files and models, run all tests",
        run: checks::ci,
    },
    Command {
        name: "install",
        args: "[--prefix DIR]",
        about: "install programs, MPI library, manual pages and completions into ~/.local or DIR",
        run: install::install,
    },
    Command {
        name: "setup",
        args: "",
        about: "install the packages that building and testing need",
        run: setup::setup,
    },
    Command { name: "proto", args: "", about: "regenerate the modules of proto/", run: checks::proto },
    Command {
        name: "abi",
        args: "[--check]",
        about: "regenerate the MPI library's interface from its tables",
        run: abi::abi,
    },
    Command {
        name: "docs",
        args: "--check",
        about: "check names, links and examples in the documentation",
        run: docs::docs,
    },
    Command {
        name: "layers",
        args: "",
        about: "check that modules use only those of lower layers",
        run: layers::layers,
    },
    Command {
        name: "bench",
        args: "collectives|dvm|growth|hangs|incast|join|launch|mpi|scale|submit",
        about: "compare speed with other launchers and MPIs",
        run: bench::bench,
    },
    Command {
        name: "conformance",
        args: "[PATTERN]",
        about: "run mpi4py's tests on rsd's MPI library, on one node and over two; files may fail",
        run: conformance::conformance,
    },
    Command {
        name: "mpi4py",
        args: "[RANKS]",
        about: "run mpi4py's tests with Open MPI under rsd and its own launcher, compare",
        run: mpi4py::mpi4py,
    },
];

fn main() -> ExitCode {
    let args: Vec<OsString> = std::env::args_os().skip(1).collect();
    let named = args.first().and_then(|name| COMMANDS.iter().find(|command| name == command.name));
    let Some(command) = named else {
        eprintln!("usage: cargo xtask COMMAND");
        for Command { name, args, about, .. } in COMMANDS {
            eprintln!("  {:<22}  {about}", format!("{name} {args}"));
        }
        return ExitCode::from(2);
    };
    match (command.run)(&args[1..]) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("xtask {}: {error:#}", command.name);
            ExitCode::FAILURE
        }
    }
}
