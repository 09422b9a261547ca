//! Options of `run` and `submit`: one program, and the job around it.

use std::ffi::OsString;
use std::path::PathBuf;
use std::time::Duration;

use clap::{Args, Parser};
use rsd_proto::v1::stdin_target::Target as StdinTarget;

use super::placing::{PLACEMENT, Placing};
use super::words::{duration, frameworks};

/// One program of a job; of several, what stands between two ` : `.
#[derive(Debug, Clone, Parser)]
pub(crate) struct Segment {
    /// How many ranks [default: one per slot offered]
    #[arg(short, long = "np", value_name = "N", value_parser = ranks, allow_negative_numbers = true)]
    pub(crate) n: Option<u32>,
    /// Nodes to use, in this order: `a,b:2` (2 slots of b), `gpu[01-16]`, `+n2` (the third), `+e:2` (2 idle ones), `^c` (not c)
    #[arg(long, value_name = "NODE[:SLOTS],…", help_heading = PLACEMENT)]
    pub(crate) host: Vec<String>,
    /// A file with a node per line: `a slots=4 max_slots=8`, `b:2`; --host then chooses from it
    #[arg(long, value_name = "FILE", help_heading = PLACEMENT)]
    pub(crate) hostfile: Option<PathBuf>,
    /// Where the ranks start [default: here]
    #[arg(long, value_name = "DIR")]
    pub(crate) wdir: Option<PathBuf>,
    /// Set a variable, or forward it although it is a launcher's (all others are forwarded anyway)
    #[arg(short = 'x', value_name = "NAME[=VALUE]")]
    pub(crate) variables: Vec<OsString>,
    /// The program and its arguments
    #[arg(required = true, trailing_var_arg = true, value_name = "PROGRAM")]
    pub(crate) program: Vec<OsString>,
}

/// A job to be.
#[derive(Debug, Clone, Args)]
pub(crate) struct Launch {
    #[command(flatten)]
    pub(crate) first: Segment,
    #[command(flatten)]
    pub(crate) placing: Placing,
    /// A file of variables for the ranks: NAME=VALUE per line
    #[arg(long, value_name = "FILE")]
    pub(crate) env_file: Vec<PathBuf>,
    /// What other frameworks read from their environment: torch, nccl, nvshmem, several with commas between
    #[arg(long, value_name = "FRAMEWORK,…", value_parser = exported)]
    pub(crate) export: Option<String>,
    /// End the job after this time: `90s`, `5m`, `1h` (exit code 124)
    #[arg(long, value_name = "TIME", value_parser = duration)]
    pub(crate) timeout: Option<Duration>,
    /// Write one file per rank and stream into this directory instead
    #[arg(long, value_name = "DIR")]
    pub(crate) output: Option<PathBuf>,
    /// Between TERM and KILL when the job is ended [default: jobs.kill_grace of the head, 5s]
    #[arg(long, value_name = "TIME", value_parser = duration)]
    pub(crate) kill_grace: Option<Duration>,
    /// The programs after ` : `.
    #[arg(skip)]
    pub(crate) others: Vec<Segment>,
}

/// A job to follow.
#[derive(Debug, Args)]
pub(crate) struct Run {
    #[command(flatten)]
    pub(crate) launch: Launch,
    /// Put `[rank] ` before every line
    #[arg(short, long)]
    pub(crate) label: bool,
    /// Print on stderr where the ranks go, as `rsctl plan` does, before they start
    #[arg(long)]
    pub(crate) show_plan: bool,
    /// Who reads standard input: a rank, `all` or `none`
    #[arg(long, value_name = "RANK|all|none", default_value = "0", value_parser = stdin_target)]
    pub(crate) stdin: StdinTarget,
}

pub(super) const RUN_HELP: &str = "\
Examples:
  rsctl run -n 4 ./a.out
  rsctl run -n 8 --host n0:4,n1:4 -l ./a.out arg
  rsctl run --hostfile hosts --map-by node:oversubscribe -n 64 ./a.out
  rsctl run -n 1 ./server : -n 4 -x MODE=fast ./client    two programs, one MPI_COMM_WORLD
  rsctl run -n 8 --export torch,nccl python train.py      MASTER_ADDR, MASTER_PORT, RANK, WORLD_SIZE, LOCAL_RANK …

Of several programs joined by ` : ` each has its own -n, --host, --hostfile, --wdir and -x; one that
names no hosts uses those of the first. All other options stand before the first program.

`rsctl plan --help` explains placement, `rsctl plan` with the same options shows what they do. Options
as Open MPI, Hydra and srun spell them are understood, or answered with ours.

Ctrl-C once cancels the job (TERM, then KILL after --kill-grace), twice kills it, three times leaves
at once. Where no daemon runs, one is started for this job alone.";

pub(super) const SUBMIT_HELP: &str = "\
Examples:
  rsctl submit -n 16 ./train                  prints the job's number, 7 say
  rsctl wait 7; rsctl logs 7; rsctl cancel 7
  rsctl submit -n 16 --output out ./train     one file per rank and stream

Several programs are joined by ` : `, as with run. Nobody forwards standard input to a submitted job.";

/// As many ranks as a job may have; more is a slip of the finger, which no daemon needs to see.
const RANKS_MAX: u32 = 1 << 24;

fn ranks(text: &str) -> Result<u32, String> {
    match text.parse() {
        Ok(n) if (1..=i64::from(RANKS_MAX)).contains(&n) => Ok(u32::try_from(n).unwrap_or(RANKS_MAX)),
        Ok(..=0) => Err("a job has at least one rank".to_owned()),
        Ok(_) => Err(format!("a job has at most {RANKS_MAX} ranks")),
        Err(_) => Err("give the number of ranks".to_owned()),
    }
}

fn exported(text: &str) -> Result<String, String> {
    frameworks(text, "a variable of your own is -x NAME=VALUE, and all are forwarded anyway")
}

fn stdin_target(text: &str) -> Result<StdinTarget, String> {
    match text {
        "all" => Ok(StdinTarget::All(true)),
        "none" => Ok(StdinTarget::None(true)),
        _ => text.parse().map(StdinTarget::Rank).map_err(|_| "give a rank, `all` or `none`".to_owned()),
    }
}
