//! The commands of rsctl, and what all of them take.

use std::ffi::OsString;
use std::path::PathBuf;
use std::time::Duration;

use clap::{Args, Parser, Subcommand};

use super::group::GroupCommand;
use super::jobs::Logs;
use super::kv::{self, KvCommand};
use super::launch::{Launch, RUN_HELP, Run, SUBMIT_HELP};
use super::plan::{PlanOptions, in_plan};
use super::words::duration;
use crate::selectors::{Selector, whole_job};
use crate::{signals, topics};

/// Run parallel programs on the daemons of rsd
#[derive(Debug, Parser)]
#[command(name = "rsctl", version, after_help = after_help(), max_term_width = 110, disable_help_subcommand = true)]
pub(crate) struct Cli {
    #[command(flatten)]
    pub(crate) global: Global,
    #[command(subcommand)]
    pub(crate) command: Command,
}

/// What every command takes.
#[derive(Debug, Args)]
pub(crate) struct Global {
    /// The daemon to ask: its name, or its state directory [default: $RSD_DVM, else the only one that runs]
    #[arg(long, global = true, value_name = "NAME|STATE_DIR")]
    pub(crate) dvm: Option<OsString>,
    /// Print JSON; `run` and `attach` print one event per line
    #[arg(long, global = true)]
    pub(crate) json: bool,
}

fn after_help() -> String {
    format!("{HELP}\n\nTopics (rsctl help TOPIC):\n{}", topics::list())
}

fn topic_help() -> String {
    format!("Topics:\n{}\nExamples:\n  rsctl help placement\n  rsctl help group exec", topics::list())
}

const HELP: &str = "\
Examples:
  rsctl run -n 4 ./a.out             run and follow; exits as the program does
  rsctl submit -n 16 ./train         leave it running; prints the job's number
  rsctl logs -f last                 follow what it writes
  rsctl job show 7                   where its ranks are, how they ended

Exit codes: that of the first rank that failed, 128 + signal for signals, 124 for --timeout,
130 when cancelled. rsctl's own: 240 usage, 241 no daemon, 242 daemon unreachable or lost,
243 does not fit, 244 other version, 245 not permitted, 246 no such job or rank,
247 a rank could not be started, 255 a fault of rsctl.";

#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// Start a job and follow it: its output, its input, its exit code
    #[command(after_help = RUN_HELP)]
    Run(Run),
    /// Start a job and leave it running; prints its number
    #[command(after_help = SUBMIT_HELP)]
    Submit(Launch),
    /// Show where a job's ranks would go, and why; nothing is started
    #[command(mut_args(in_plan))]
    Plan(Box<PlanOptions>),
    /// List jobs
    Ps {
        /// Ended jobs as well
        #[arg(short, long)]
        all: bool,
    },
    /// Look at one job
    #[command(subcommand)]
    Job(JobCommand),
    /// Print what a job has written
    #[command(after_help = "Examples:\n  rsctl logs last\n  rsctl logs -f 7 -l\n  rsctl logs 7.3        only rank 3")]
    Logs(Logs),
    /// Wait until jobs have ended; exits as the first of them that failed
    #[command(after_help = "Example:\n  job=$(rsctl submit -n 4 ./a.out) && rsctl wait $job")]
    Wait {
        /// `last`, or numbers
        #[arg(value_name = "JOB", default_value = "last", value_parser = whole_job)]
        jobs: Vec<Selector>,
    },
    /// Follow a job from its beginning until it ends; Ctrl-C leaves it running
    Attach {
        /// `last`, or its number
        #[arg(value_name = "JOB", default_value = "last", value_parser = whole_job)]
        job: Selector,
        /// Put `[rank] ` before every line
        #[arg(short, long)]
        label: bool,
    },
    /// Send a signal to all ranks of a job, or to one
    #[command(after_help = "Examples:\n  rsctl signal 7 USR1\n  rsctl signal 7.3 SIGSTOP\n  rsctl signal last 10")]
    Signal {
        /// `last`, `7`, or one rank: `7.3`
        #[arg(value_name = "JOB[.RANK]")]
        job: Selector,
        /// Name, with or without SIG, or number
        #[arg(value_name = "SIGNAL", value_parser = signals::parse, allow_negative_numbers = true)]
        signal: i32,
    },
    /// End jobs: TERM, and KILL after the job's grace
    Cancel {
        /// `last`, or numbers
        #[arg(value_name = "JOB", required = true, value_parser = whole_job)]
        jobs: Vec<Selector>,
        /// Between TERM and KILL, instead of the job's own; 0: KILL at once
        #[arg(long, value_name = "TIME", value_parser = duration)]
        grace: Option<Duration>,
    },
    /// List nodes: slots, cores, load, memory
    Nodes,
    /// Names that ranks have published (MPI_Publish_name)
    #[command(subcommand)]
    Name(NameCommand),
    /// Named groups: processes that run already become one MPI_COMM_WORLD
    #[command(subcommand, after_help = GROUP_HELP)]
    Group(GroupCommand),
    /// Values by name that the processes of a job leave for each other, and fences among them
    #[command(subcommand, after_help = kv::HELP)]
    Kv(KvCommand),
    /// About the MPI library of rsd
    #[command(subcommand)]
    Mpi(MpiCommand),
    /// Print the completions for a shell
    #[command(after_help = "Example:\n  rsctl completion bash > ~/.local/share/bash-completion/completions/rsctl")]
    Completion {
        /// Which shell
        shell: Shell,
    },
    /// Write the man pages: commands into man1, topics into man7 of a directory
    #[command(after_help = "Example:\n  rsctl man ~/.local/share/man && man rsctl-run")]
    Man {
        /// The directory, which is made if it does not exist; DIR/man1 means DIR
        #[arg(value_name = "DIR")]
        directory: PathBuf,
    },
    /// Explain a topic or a command
    #[command(after_help = topic_help())]
    Help {
        /// A topic, or a command
        #[arg(value_name = "TOPIC|COMMAND")]
        words: Vec<String>,
    },
}

const GROUP_HELP: &str = "\
Example: sixteen workers, started by whatever starts them, on any nodes of the DVM:
  rsctl group exec actors --size 16 -- python serve.py    in each of the places
  rsctl group ls             which groups there are
  rsctl group show actors    who waits, and how many are missing
  rsctl ps                   an epoch that has begun is a job: actors.1";

/// `name …`.
#[derive(Debug, Subcommand)]
pub(crate) enum NameCommand {
    /// List them, with their jobs and ports
    #[command(
        after_help = "Example:\n  rsctl name ls       a name is gone when it is unpublished, or its job has ended"
    )]
    Ls,
}

/// What there is to know about the MPI library.
#[derive(Debug, Subcommand)]
pub(crate) enum MpiCommand {
    /// List what programs that use it read from their environment
    #[command(after_help = "Example:\n  rsctl run -n 2 -x RSD_MPI_VERBOSE=transports ./a.out")]
    Settings,
}

/// `job …`.
#[derive(Debug, Subcommand)]
pub(crate) enum JobCommand {
    /// Everything about a job: placement, times, how its ranks ended
    Show {
        /// `last`, or its number
        #[arg(value_name = "JOB", default_value = "last", value_parser = whole_job)]
        job: Selector,
    },
}

/// Shells with completions.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
pub(crate) enum Shell {
    Bash,
    Zsh,
    Fish,
}
