//! Options of `run` and `submit`: one program, and the job around it.

use std::ffi::OsString;
use std::path::PathBuf;
use std::time::Duration;

use clap::{Args, Parser};
use rsd_proto::called;
use rsd_proto::v1::Label;
use rsd_proto::v1::stdin_target::Target as StdinTarget;

use super::placing::{PLACEMENT, Placing};
use super::queue::Queueing;
use super::words::{duration, frameworks};

/// One program of a job, with its own options.
#[derive(Debug, Clone, Parser)]
pub(crate) struct Segment {
    /// Number of ranks [default: one per slot]
    #[arg(short, long = "np", value_name = "N", value_parser = ranks, allow_negative_numbers = true)]
    pub(crate) n: Option<u32>,
    /// Nodes to use, in this order: `a,b:2` (2 slots of b), `gpu[01-16]`, `+n2` (third node), `+e:2` (2 idle nodes), `+gpu=h200` (by label), `^c` (not c)
    #[arg(long, value_name = "NODE[:SLOTS],…", help_heading = PLACEMENT)]
    pub(crate) host: Vec<String>,
    /// A file with one node per line: `a slots=4 max_slots=8`, `b:2`; --host then chooses from it
    #[arg(long, value_name = "FILE", help_heading = PLACEMENT)]
    pub(crate) hostfile: Option<PathBuf>,
    /// Directory in which the ranks start [default: the current one]
    #[arg(long, value_name = "DIR")]
    pub(crate) wdir: Option<PathBuf>,
    /// Set a variable for the ranks, or forward a launcher's, such as PMI_RANK (all others are forwarded anyway)
    #[arg(short = 'x', value_name = "NAME[=VALUE]")]
    pub(crate) variables: Vec<OsString>,
    /// The program and its arguments
    #[arg(required = true, trailing_var_arg = true, value_name = "PROGRAM")]
    pub(crate) program: Vec<OsString>,
}

/// A job to submit.
#[derive(Debug, Clone, Args)]
pub(crate) struct Launch {
    #[command(flatten)]
    pub(crate) first: Segment,
    #[command(flatten)]
    pub(crate) placing: Placing,
    #[command(flatten)]
    pub(crate) queueing: Queueing,
    /// Give the job a name, by which it can be found: `rsctl logs NAME`
    #[arg(id = "job_name", long = "name", value_name = "NAME", value_parser = job_name)]
    pub(crate) job_name: Option<String>,
    /// Mark the job, for `rsctl ps --label`
    #[arg(id = "job_label", long = "job-label", value_name = "KEY=VALUE", value_parser = job_label)]
    pub(crate) job_labels: Vec<Label>,
    /// Set the variables in this file: one NAME=VALUE per line
    #[arg(long, value_name = "FILE")]
    pub(crate) env_file: Vec<PathBuf>,
    /// Set the variables that these frameworks read: torch, nccl, nvshmem
    #[arg(long, value_name = "FRAMEWORK,…", value_parser = exported)]
    pub(crate) export: Option<String>,
    /// End the job after this time, for example `90s`, `5m` or `1h` (exit code 124)
    #[arg(long, value_name = "TIME", value_parser = duration)]
    pub(crate) timeout: Option<Duration>,
    /// Fail the job if it has not been placed after this time in the queue (exit code 243)
    #[arg(long, value_name = "TIME", value_parser = duration)]
    pub(crate) queue_deadline: Option<Duration>,
    /// Keep the job in the queue until `rsctl release`
    #[arg(long)]
    pub(crate) hold: bool,
    /// Write output to files in this directory instead: rank.0.stdout, rank.0.stderr, …
    #[arg(long, value_name = "DIR")]
    pub(crate) output: Option<PathBuf>,
    /// Replace files of an earlier job in the --output directory
    #[arg(long, requires = "output")]
    pub(crate) overwrite: bool,
    /// When a node with ranks of the job is lost: end the job, or let the other ranks continue
    #[arg(long, value_name = "end|continue", default_value = "end")]
    pub(crate) on_node_loss: NodeLoss,
    /// When a rank dies that uses MPI: end the job, or let the other ranks continue, which are told (fault-tolerant MPI)
    #[arg(long, value_name = "end|continue", default_value = "end")]
    pub(crate) on_rank_loss: RankLoss,
    /// Run the ranks even if their MPI library cannot use rsd's process manager: each is then rank 0 of 1
    #[arg(long)]
    pub(crate) allow_singletons: bool,
    /// Time between TERM and KILL when the job is ended [default: the head's jobs.kill_grace, 5s]
    #[arg(long, value_name = "TIME", value_parser = duration)]
    pub(crate) kill_grace: Option<Duration>,
    /// The programs after the first ` : `.
    #[arg(skip)]
    pub(crate) others: Vec<Segment>,
}

/// What the loss of a node does to a job with ranks there.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
pub(crate) enum NodeLoss {
    End,
    Continue,
}

/// What the death of a rank that uses MPI does to its job.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
pub(crate) enum RankLoss {
    End,
    Continue,
}

/// A job to submit and follow.
#[derive(Debug, Args)]
pub(crate) struct Run {
    #[command(flatten)]
    pub(crate) launch: Launch,
    /// Put `[rank] ` before each line
    #[arg(short, long)]
    pub(crate) label: bool,
    /// Do not report on stderr what the job waits for
    #[arg(long)]
    pub(crate) quiet: bool,
    /// Print the placement on stderr before the ranks start, as `rsctl plan` does
    #[arg(long)]
    pub(crate) show_plan: bool,
    /// Which ranks read standard input: one rank, `all` or `none`
    #[arg(long, value_name = "RANK|all|none", default_value = "0", value_parser = stdin_target)]
    pub(crate) stdin: StdinTarget,
    /// How long to look for a daemon that is lost, and go on when it is back; 0: not at all
    #[arg(long, value_name = "TIME", value_parser = duration, default_value = "5m")]
    pub(crate) reconnect: Duration,
}

pub(super) const RUN_HELP: &str = "\
Examples:
  rsctl run -n 4 ./a.out
  rsctl run -n 8 --host n0:4,n1:4 -l ./a.out arg
  rsctl run --hostfile hosts --map-by node:oversubscribe -n 64 ./a.out
  rsctl run -n 1 ./server : -n 4 -x MODE=fast ./client    two programs, one MPI_COMM_WORLD
  rsctl run -n 8 --export torch,nccl python train.py      sets MASTER_ADDR, RANK, WORLD_SIZE, …

Programs are joined by ` : `. Each has its own -n, --host, --hostfile, --wdir and -x; a program without \
hosts uses those of the first. All other options go before the first program.

`rsctl plan` with the same options shows where the ranks would go; `rsctl help placement` explains it. \
Options of Open MPI, Hydra and srun that mean the same are accepted. For others, the error names rsctl's \
option.

Ctrl-C cancels the job (TERM, then KILL after --kill-grace). A second Ctrl-C kills it; with a third, rsctl \
exits without waiting. If no daemon is running, rsctl starts one for this job only.";

pub(super) const SUBMIT_HELP: &str = "\
Examples:
  rsctl submit -n 16 ./train                  prints the job's number, for example 7
  rsctl wait 7; rsctl logs 7; rsctl cancel 7
  rsctl submit -n 16 --output out ./train     one file per rank and stream
  rsctl submit --array 1-100%8 ./a '{index}'  a hundred jobs, at most eight at the same time
  rsctl submit --after ok:7 ./evaluate        only if job 7 succeeds

Several programs are joined by ` : `, as with run. A submitted job has no standard input. \
rsctl help queue explains when it starts.";

/// The most ranks of a job. A larger number is a typing error and is refused here.
const RANKS_MAX: u32 = 1 << 24;

fn ranks(text: &str) -> Result<u32, String> {
    match text.parse() {
        Ok(n) if (1..=i64::from(RANKS_MAX)).contains(&n) => Ok(u32::try_from(n).unwrap_or(RANKS_MAX)),
        Ok(..=0) => Err("a job has at least one rank".to_owned()),
        Ok(_) => Err(format!("a job has at most {RANKS_MAX} ranks")),
        Err(_) => Err("expected a number of ranks".to_owned()),
    }
}

fn job_name(text: &str) -> Result<String, String> {
    called::check_name(text).map(|()| text.to_owned())
}

/// Parses a label of a job.
pub(crate) fn job_label(text: &str) -> Result<Label, String> {
    called::label(text).map(|(key, value)| Label { key, value })
}

fn exported(text: &str) -> Result<String, String> {
    frameworks(text, "set your own variables with -x NAME=VALUE; the environment is forwarded anyway")
}

fn stdin_target(text: &str) -> Result<StdinTarget, String> {
    match text {
        "all" => Ok(StdinTarget::All(true)),
        "none" => Ok(StdinTarget::None(true)),
        _ => text.parse().map(StdinTarget::Rank).map_err(|_| "expected a rank, `all` or `none`".to_owned()),
    }
}
