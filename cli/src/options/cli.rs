//! The commands of rsctl, and the options that all of them take.

use std::ffi::OsString;
use std::path::PathBuf;
use std::time::Duration;

use clap::{Args, Parser, Subcommand};

use super::group::GroupCommand;
use super::head::HeadCommand;
use super::jobs::Logs;
use super::kv::{self, KvCommand};
use super::launch::{Launch, RUN_HELP, Run, SUBMIT_HELP};
use super::node::NodeCommand;
use super::plan::{PlanOptions, in_plan};
use super::ports::Form;
use super::ps::Ps;
use super::up::{DOWN_HELP, Down, UP_HELP, Up};
use super::watching::{Top, cursor};
use super::words::duration;
use crate::selectors::{Selector, one_job, some_jobs, whole_job};
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

/// Options of every command.
#[derive(Debug, Args)]
pub(crate) struct Global {
    /// The daemon to talk to, by name, state directory or address (see `login`) [default: $RSD_DVM, else the only one running]
    #[arg(long, global = true, value_name = "NAME|STATE_DIR|HOST:PORT,…")]
    pub(crate) dvm: Option<OsString>,
    /// Print JSON (`run` and `attach`: one event per line); errors on stderr are JSON too
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
  rsctl run -n 4 ./a.out             start a job, follow it, exit with its code
  rsctl submit -n 16 ./train         start a job and leave it running; prints its number
  rsctl logs -f last                 follow the output of the newest job
  rsctl job show 7                   where the ranks of job 7 are, and how they ended

Exit codes: the code of the first rank that failed, or 128 + signal if it was killed; 124 if the job timed \
out; 130 if it was cancelled. Errors of rsctl itself have codes from 240: rsctl help exit-codes.";

#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// Start a job and follow it: output, input, exit code
    #[command(after_help = RUN_HELP)]
    Run(Run),
    /// Start a job and leave it running; print its number
    #[command(after_help = SUBMIT_HELP)]
    Submit(Launch),
    /// Show where a job's ranks would go, and why; start nothing
    #[command(mut_args(in_plan))]
    Plan(Box<PlanOptions>),
    /// List jobs
    Ps(Ps),
    /// Show one job
    #[command(subcommand)]
    Job(JobCommand),
    /// Report on a job in one screen: who ran what where, what it used, how it ended
    #[command(after_help = REPORT_HELP)]
    Report {
        /// `last`, a job by number or name, or elements of an array: `7[3]`, `7[1-5]`
        #[arg(value_name = "JOB", default_value = "last", value_parser = some_jobs)]
        job: Selector,
    },
    /// Print a job's output
    #[command(after_help = "Examples:\n  rsctl logs last\n  rsctl logs -f 7 -l\n  rsctl logs 7.3        only rank 3")]
    Logs(Logs),
    /// Wait until jobs have ended; exit with the code of the first one that failed
    #[command(after_help = "Example:\n  job=$(rsctl submit -n 4 ./a.out) && rsctl wait $job")]
    Wait {
        /// `last`, jobs by number or name, or elements of an array: `7[3]`, `7[1-5]`
        #[arg(value_name = "JOB", default_value = "last", value_parser = some_jobs)]
        jobs: Vec<Selector>,
        /// How long to look for a daemon that is lost, and go on when it is back; 0: not at all
        #[arg(long, value_name = "TIME", value_parser = duration, default_value = "5m")]
        reconnect: Duration,
    },
    /// Follow a job from its beginning until it ends; Ctrl-C leaves it running
    Attach {
        /// `last`, or a job by number or name
        #[arg(value_name = "JOB", default_value = "last", value_parser = whole_job)]
        job: Selector,
        /// Put `[rank] ` before each line
        #[arg(short, long)]
        label: bool,
        /// How long to look for a daemon that is lost, and go on when it is back; 0: not at all
        #[arg(long, value_name = "TIME", value_parser = duration, default_value = "5m")]
        reconnect: Duration,
    },
    /// Send a signal to all ranks of a job, or to one
    #[command(after_help = "Examples:\n  rsctl signal 7 USR1\n  rsctl signal 7.3 SIGSTOP\n  rsctl signal last 10")]
    Signal {
        /// `last`, `7`, a name, or one rank: `7.3`
        #[arg(value_name = "JOB[.RANK]")]
        job: Selector,
        /// A name, with or without SIG, or a number
        #[arg(value_name = "SIGNAL", value_parser = signals::parse, allow_negative_numbers = true)]
        signal: i32,
    },
    /// End jobs: TERM, then KILL after the job's grace period
    Cancel {
        /// `last`, jobs by number or name, or elements of an array: `7[3]`, `7[1-5]`
        #[arg(value_name = "JOB", required = true, value_parser = some_jobs)]
        jobs: Vec<Selector>,
        /// Time between TERM and KILL [default: the job's --kill-grace]; 0: KILL at once
        #[arg(long, value_name = "TIME", value_parser = duration)]
        grace: Option<Duration>,
    },
    /// Say why a job waits, what frees it, and when it starts by what is known
    #[command(
        after_help = "Examples:\n  rsctl why 7\n  rsctl why '7[3]'        an element of an array\n\nMore: rsctl help queue"
    )]
    Why {
        /// `last`, a job by number or name, or an element of an array: `7[3]`
        #[arg(value_name = "JOB", default_value = "last", value_parser = one_job)]
        job: Selector,
    },
    /// Keep queued jobs from starting until `rsctl release`; what runs of an array goes on
    #[command(after_help = "Examples:\n  rsctl hold 7\n  rsctl hold '7[50-100]'")]
    Hold {
        /// `last`, jobs by number or name, or elements of an array: `7[3]`, `7[1-5]`
        #[arg(value_name = "JOB", required = true, value_parser = some_jobs)]
        jobs: Vec<Selector>,
    },
    /// Change the priority of queued jobs: those of higher priority come first
    #[command(after_help = "Example:\n  rsctl priority -10 7        after my other jobs")]
    Priority {
        /// Below 0 for anybody; above 0 only for the DVM's owner or root
        #[arg(value_name = "N", allow_negative_numbers = true)]
        priority: i32,
        /// `last`, or jobs by number or name
        #[arg(value_name = "JOB", required = true, value_parser = whole_job)]
        jobs: Vec<Selector>,
    },
    /// Let jobs start that are held
    #[command(
        after_help = "Example:\n  rsctl submit --hold --name step2 -n 4 ./step2; rsctl wait step1 && rsctl release step2"
    )]
    Release {
        /// `last`, jobs by number or name, or elements of an array: `7[3]`, `7[1-5]`
        #[arg(value_name = "JOB", required = true, value_parser = some_jobs)]
        jobs: Vec<Selector>,
    },
    /// Get access to a DVM on another machine, for seven days
    #[command(after_help = "Examples:
  rsctl login node0:7817 --token-file t && rsctl --dvm node0:7817 run -n 4 ./a.out")]
    Login {
        /// Where its head listens, as rsd token new prints it, and where its standbys would
        #[arg(value_name = "HOST:PORT,…")]
        address: String,
        /// A token (rsd token new on the head's machine). Other users may see it in the list of processes: prefer --token-file
        #[arg(long, value_name = "TOKEN")]
        token: Option<String>,
        /// File with the token; - is standard input
        #[arg(long, value_name = "FILE", conflicts_with = "token", required_unless_present = "token")]
        token_file: Option<PathBuf>,
    },
    /// Start daemons on other machines over ssh: a new DVM, or more nodes for one
    #[command(after_help = UP_HELP)]
    Up(Box<Up>),
    /// Stop what `up` has started
    #[command(after_help = DOWN_HELP)]
    Down(Down),
    /// Hold the connections of `up --via-ssh` (started by it)
    #[command(hide = true)]
    HoldConnections,
    /// Show what jobs, groups and nodes wait for, and what is missing
    #[command(after_help = WAITS_HELP)]
    Waits {
        /// `last`, or a job by number or name [default: everything in the DVM]
        #[arg(value_name = "JOB", value_parser = whole_job)]
        job: Option<Selector>,
    },
    /// Examine the nodes and the ways between them, and say how to mend what is wrong
    #[command(after_help = DOCTOR_HELP)]
    Doctor {
        /// Try all ways. Otherwise each of many nodes tries its parent in the tree of daemons and eight others
        #[arg(long)]
        all: bool,
    },
    /// Replace the daemons' program by another version on all nodes, one after the other, while jobs go on
    #[command(after_help = UPGRADE_HELP)]
    Upgrade(Upgrade),
    /// Examine this node (started by doctor as a job)
    #[command(hide = true)]
    Examine,
    /// Print what has happened in the DVM: jobs, nodes, groups, tokens
    #[command(after_help = EVENTS_HELP)]
    Events {
        /// Go on with what happens from now on
        #[arg(short, long)]
        follow: bool,
        /// Only what came after the event with this cursor, which --json prints
        #[arg(long, value_name = "CURSOR", value_parser = cursor)]
        since: Option<u64>,
        /// With --follow: how long to look for a daemon that is lost, and go on when it is back; 0: not at all
        #[arg(long, value_name = "TIME", value_parser = duration, default_value = "5m")]
        reconnect: Duration,
    },
    /// Show nodes, jobs, ranks and waits on a live screen
    #[command(
        after_help = "Examples:\n  rsctl top                    keys: ? shows all\n  rsctl top --plain --count 1  one table"
    )]
    Top(Top),
    /// Print the metrics of the daemon in the text format of Prometheus
    #[command(after_help = METRICS_HELP)]
    Metrics,
    /// List nodes: slots, cores, load, memory
    Nodes,
    /// Drain, resume, label or remove a node
    #[command(subcommand, after_help = NODE_HELP)]
    Node(NodeCommand),
    /// Show the head and its standbys, and make a standby the head
    #[command(subcommand, after_help = HEAD_HELP)]
    Head(HeadCommand),
    /// Show which ports the nodes of other machines must reach, for firewalls
    #[command(
        after_help = "Examples:\n  rsctl ports                          a table\n  rsctl ports --emit nftables > rsd.nft  a ruleset for each node"
    )]
    Ports {
        /// Print the rules for another program
        #[arg(long, value_name = "FORM", conflicts_with = "json")]
        emit: Option<Form>,
    },
    /// Show the names that ranks published (MPI_Publish_name)
    #[command(subcommand)]
    Name(NameCommand),
    /// Join and manage groups: processes that already run become one MPI_COMM_WORLD
    #[command(subcommand, after_help = GROUP_HELP)]
    Group(GroupCommand),
    /// Exchange values by name between the processes of a job, and wait in fences
    #[command(subcommand, after_help = kv::HELP)]
    Kv(KvCommand),
    /// Show the settings of rsd's MPI library
    #[command(subcommand)]
    Mpi(MpiCommand),
    /// Print the completions for a shell
    #[command(after_help = "Example:\n  rsctl completion bash > ~/.local/share/bash-completion/completions/rsctl")]
    Completion {
        /// The shell
        shell: Shell,
    },
    /// Write the man pages: those of commands into DIR/man1, those of topics into DIR/man7
    #[command(after_help = "Example:\n  rsctl man ~/.local/share/man && man rsctl-run")]
    Man {
        /// The directory, which is created if it does not exist; DIR/man1 means DIR
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

const WAITS_HELP: &str = "\
Examples:
  rsctl waits         everything in the DVM
  rsctl waits 7       fence 12 of job 7: 31 of 32 in, missing rank 17 (node3, pid 4411); for 42s

Shown are queued jobs, launches and fences in progress, jobs that are being ended, groups that are not \
complete, fences and values of `rsctl kv`, and nodes whose link is cut. The nodes have 1.5 s to answer; a node \
that does not answer is named. `rsctl run` and `attach` report on stderr what their job waits for once that has \
lasted 5 s.";

const REPORT_HELP: &str = "\
Examples:
  rsctl report            the newest job
  rsctl report train      the job of this name

Cpu time and the other figures are the kernel's, from the time when each rank and the processes that it waited for \
had ended; so they are known once all ranks have ended. A percentage is cpu time by the product of elapsed time and \
ranks. Memory is that of the largest process; it is at least what the process that started the rank had, a few MiB.";
const DOCTOR_HELP: &str = "\
Examples:
  rsctl doctor               a table of nodes, a table of ways, and what is wrong
  rsctl doctor --json --all  for programs, over all ways

It runs once on each node, as a job of yours: versions, limits, shared memory, GPUs, and for each way latency, \
bandwidth and clocks. It exits with 0 if all is well, with 1 if there are warnings, and with 2 if there are errors.";

const EVENTS_HELP: &str = "\
Examples:
  rsctl events                   what the head has kept
  rsctl events --follow --json   one object per line, each with its cursor
  rsctl events --since 1941f2a6b0300007 --json

The head keeps the latest events, about sixteen thousand, and of these several thousand over a restart or on a standby \
that takes over. When the event of a cursor is older than that, the number of missing events is told first.";

const METRICS_HELP: &str = "\
Examples:
  rsctl metrics                  of the head: also jobs, nodes and slots of the DVM
  rsctl --dvm node1 metrics      of one more daemon
  rsd start --metrics 9817       the same for Prometheus, at http://127.0.0.1:9817/metrics

More: rsctl help watching";

const GROUP_HELP: &str = "\
Example: another program starts sixteen workers, on any nodes of the DVM:
  rsctl group exec actors --size 16 -- python serve.py    in each of the sixteen processes
  rsctl group ls             all groups
  rsctl group show actors    which members wait, and how many are missing
  rsctl ps                   an epoch that has begun is a job: actors.1

More: rsctl help groups";

const HEAD_HELP: &str = "Examples:
  rsctl head show                  which daemon is the head, its standbys, and what they have not confirmed
  rsctl head allow node1           on the head's machine: node1 may stand by (rsd start --standby)
  rsctl head promote node3         when the head's machine is lost: node3, which stands by, becomes the head
  rsctl head promote --switch      on the standby, when the head runs: it hands over

See rsctl help standbys";
const NODE_HELP: &str = "\
NODE is a name as in rsctl nodes, a host name in full or short, an address, or +idK for the node with id K.

More: rsctl help several-machines";

/// `name …`.
#[derive(Debug, Subcommand)]
pub(crate) enum NameCommand {
    /// List names, with their jobs and ports
    #[command(after_help = "Example:\n  rsctl name ls       a name is listed until it is unpublished or its job ends")]
    Ls,
}

/// `mpi …`.
#[derive(Debug, Subcommand)]
pub(crate) enum MpiCommand {
    /// List the environment variables that rsd's MPI library reads
    #[command(after_help = "Example:\n  rsctl run -n 2 -x RSD_MPI_VERBOSE=transports ./a.out")]
    Settings,
}

/// `job …`.
#[derive(Debug, Subcommand)]
pub(crate) enum JobCommand {
    /// Print everything about a job: placement, times, how its ranks ended
    Show {
        /// `last`, a job by number or name, or an element of an array: `7[3]`
        #[arg(value_name = "JOB", default_value = "last", value_parser = one_job)]
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

/// `upgrade`.
#[derive(Debug, Args)]
pub(crate) struct Upgrade {
    /// Names, or +idK [default: all nodes, the head last]
    #[arg(value_name = "NODE")]
    pub(crate) nodes: Vec<String>,
    /// The rsd that takes the place of the daemons, at the same path on every node [default: the one beside this rsctl]
    #[arg(long, value_name = "PATH")]
    pub(crate) binary: Option<PathBuf>,
}

const UPGRADE_HELP: &str = "Examples:
  rsctl upgrade                                    all nodes execute the rsd beside this rsctl
  rsctl upgrade --binary /opt/rsd-2/bin/rsd        all nodes execute this program
  rsctl upgrade node7 --binary /opt/rsd-2/bin/rsd  one node first, to try it

A rank on each node runs `rsd upgrade`. The first failure ends it: that daemon goes on with its earlier program.";
