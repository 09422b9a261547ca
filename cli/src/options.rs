//! The command line: what clap reads, prints as help, completes in shells and writes as man pages.

pub(crate) mod placing;

use std::ffi::OsString;
use std::path::PathBuf;
use std::time::Duration;

use clap::{Args, CommandFactory, FromArgMatches, Parser, Subcommand};
use rsd_proto::v1::stdin_target::Target as StdinTarget;

use crate::exit::Failure;
use crate::group::options::GroupCommand;
use crate::kv::options::{self as kv, KvCommand};
use crate::plan::options::{self as plan, PlanOptions};
use crate::selectors::{Selector, whole_job};
use crate::{signals, spelling};
use placing::{PLACEMENT, Placing};

/// Run parallel programs on the daemons of rsd
#[derive(Debug, Parser)]
#[command(name = "rsctl", version, after_help = HELP, max_term_width = 110)]
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
    /// Write the man pages into a directory
    #[command(after_help = "Example:\n  rsctl man ~/.local/share/man/man1 && man rsctl-run")]
    Man {
        /// It is made if it is not there
        directory: PathBuf,
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

/// An argument of `run` as `plan` has it: no program is needed, and what has no part in placement is not shown.
fn in_plan(arg: clap::Arg) -> clap::Arg {
    let elsewhere = plan::ELSEWHERE.contains(&arg.get_id().as_str());
    let required = arg.is_required_set() && arg.get_id() != "program";
    arg.required(required).hide(elsewhere)
}

const RUN_HELP: &str = "\
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

const SUBMIT_HELP: &str = "\
Examples:
  rsctl submit -n 16 ./train                  prints the job's number, 7 say
  rsctl wait 7; rsctl logs 7; rsctl cancel 7
  rsctl submit -n 16 --output out ./train     one file per rank and stream

Several programs are joined by ` : `, as with run. Nobody forwards standard input to a submitted job.";

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
    pub(crate) export: Vec<OsString>,
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
    #[arg(long = "export", value_name = "FRAMEWORK,…", value_parser = frameworks)]
    pub(crate) frameworks: Option<String>,
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

/// `logs`.
#[derive(Debug, Args)]
pub(crate) struct Logs {
    /// `last`, `7`, or one rank: `7.3`
    #[arg(value_name = "JOB[.RANK]", default_value = "last")]
    pub(crate) job: Selector,
    /// Go on until the job ends
    #[arg(short, long)]
    pub(crate) follow: bool,
    /// Only this rank
    #[arg(short, long)]
    pub(crate) rank: Option<u32>,
    /// Only this stream
    #[arg(long)]
    pub(crate) stream: Option<OutputStream>,
    /// Put `[rank] ` before every line
    #[arg(short, long)]
    pub(crate) label: bool,
}

/// Which of a rank's streams.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
pub(crate) enum OutputStream {
    Stdout,
    Stderr,
}

/// Shells with completions.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
pub(crate) enum Shell {
    Bash,
    Zsh,
    Fish,
}

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

fn duration(text: &str) -> Result<Duration, String> {
    rsd_config::duration::parse(text).map_err(|error| error.to_string())
}

fn frameworks(text: &str) -> Result<String, String> {
    frameworks_or(text, "a variable of your own is -x NAME=VALUE, and all are forwarded anyway")
}

/// In the canonical form; `else_` is for who means variables of his own.
pub(crate) fn frameworks_or(text: &str, else_: &str) -> Result<String, String> {
    // srun's word for what is done anyway.
    if text.eq_ignore_ascii_case("ALL") {
        return Ok(String::new());
    }
    let found = rsd_proto::frameworks::parse(text).map_err(|error| format!("{error}; {else_}"))?;
    Ok(rsd_proto::frameworks::list(&found))
}

fn stdin_target(text: &str) -> Result<StdinTarget, String> {
    match text {
        "all" => Ok(StdinTarget::All(true)),
        "none" => Ok(StdinTarget::None(true)),
        _ => text.parse().map(StdinTarget::Rank).map_err(|_| "give a rank, `all` or `none`".to_owned()),
    }
}

/// Why there is nothing to do.
#[derive(Debug)]
pub(crate) enum Unread {
    /// Help, the version, or clap's own complaint, with a line of ours below it.
    Clap(clap::Error, Option<&'static str>),
    /// A complaint of ours.
    Failure(Failure),
}

/// Reads the arguments that follow the program's name.
pub(crate) fn read(args: &[OsString]) -> Result<Cli, Unread> {
    // Help and complaints come from the whole.
    let lean = lean(args).and_then(|command| read_by(command, args).ok());
    lean.map_or_else(|| read_by(Cli::command(), args), Ok)
}

/// All of the command line that a launch needs. The definitions of all commands take longer to build than a launch to read.
fn lean(args: &[OsString]) -> Option<clap::Command> {
    let launch = match args.first()?.to_str()? {
        "run" => Run::augment_args(clap::Command::new("run")),
        "submit" => Launch::augment_args(clap::Command::new("submit")),
        _ => return None,
    };
    Some(Global::augment_args(clap::Command::new("rsctl")).subcommand(launch))
}

fn read_by(command: clap::Command, args: &[OsString]) -> Result<Cli, Unread> {
    let segments = match spelling::launches(args, &command) {
        true => spelling::segments(args),
        false => vec![args],
    };
    let first = spelling::translate(segments[0], &command).map_err(Unread::Failure)?;
    let argv = std::iter::once(OsString::from("rsctl")).chain(first);
    let mut cli = command
        .try_get_matches_from(argv)
        .and_then(|matches| Cli::from_arg_matches(&matches))
        .map_err(|error| Unread::Clap(error, None))?;
    let planned = matches!(cli.command, Command::Plan(_));
    let others = segments[1..].iter().map(|args| read_segment(args, planned)).collect::<Result<Vec<_>, _>>()?;
    match &mut cli.command {
        Command::Run(Run { launch, .. }) | Command::Submit(launch) => launch.others = others,
        Command::Plan(options) => {
            options.run.launch.others = others;
            if let Some(text) = &options.diff {
                options.other = Some(plan::overlay(options.run.launch.clone(), text)?);
            }
        }
        Command::Ps { .. }
        | Command::Job(_)
        | Command::Logs(_)
        | Command::Wait { .. }
        | Command::Attach { .. }
        | Command::Signal { .. }
        | Command::Cancel { .. }
        | Command::Nodes
        | Command::Group(_)
        | Command::Kv(_)
        | Command::Mpi(_)
        | Command::Completion { .. }
        | Command::Name(_)
        | Command::Man { .. } => {}
    }
    Ok(cli)
}

fn read_segment(args: &[OsString], planned: bool) -> Result<Segment, Unread> {
    const ONLY: &str =
        "after ` : ` stand only -n, --host, --hostfile, --wdir and -x; other options go before the first program";
    // Not attributes of the type: the first program's command would get them too.
    let command = Segment::command().name("rsctl run … :").no_binary_name(true).disable_help_flag(true);
    let command = if planned { command.mut_args(in_plan) } else { command };
    let args = spelling::translate(args, &command).map_err(Unread::Failure)?;
    let matches = command.try_get_matches_from(args).and_then(|matches| Segment::from_arg_matches(&matches));
    matches.map_err(|error| Unread::Clap(error, Some(ONLY)))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn cli(text: &str) -> Result<Cli, Unread> {
        read(&text.split_whitespace().map(OsString::from).collect::<Vec<_>>())
    }

    fn launch(text: &str) -> Launch {
        match cli(text).unwrap().command {
            Command::Run(run) => run.launch,
            Command::Submit(launch) => launch,
            other => panic!("{other:?}"),
        }
    }

    fn complaint(text: &str) -> String {
        match cli(text).unwrap_err() {
            Unread::Clap(error, tip) => format!("{error}{}", tip.unwrap_or_default()),
            Unread::Failure(failure) => failure.text,
        }
    }

    #[test]
    fn clap_agrees_with_the_definitions() {
        Cli::command().debug_assert();
        Segment::command().debug_assert();
    }

    #[test]
    fn everything_after_the_program_is_the_programs() {
        let launch = launch("run -np 3 -x A=1 -x B ./a -n 9 --json -- --help");
        assert_eq!(launch.first.n, Some(3));
        assert_eq!(launch.first.export, ["A=1", "B"]);
        assert_eq!(launch.first.program, ["./a", "-n", "9", "--json", "--", "--help"]);
    }

    #[test]
    fn a_double_dash_ends_our_options() {
        assert_eq!(launch("run -n 2 -- -strange x").first.program, ["-strange", "x"]);
    }

    #[test]
    fn programs_joined_by_colons_have_their_own_local_options() {
        let launch = launch("submit --timeout 5s -n 1 ./a x : -np 2 --host b:2 -x C=3 --wdir /w ./b -l : ./c");
        assert_eq!(launch.timeout, Some(Duration::from_secs(5)));
        assert_eq!(launch.first.program, ["./a", "x"]);
        let [b, c] = &launch.others[..] else { panic!("{:?}", launch.others) };
        assert_eq!(
            (b.n, &b.host[..], &b.program[..]),
            (Some(2), &["b:2".to_owned()][..], &["./b".into(), "-l".into()][..])
        );
        assert_eq!(b.wdir.as_deref(), Some("/w".as_ref()));
        assert_eq!((c.n, &c.program[..]), (None, &["./c".into()][..]));
    }

    #[test]
    fn a_segment_without_a_program_or_with_a_global_option_is_refused() {
        assert!(complaint("run ./a :").contains("PROGRAM"));
        assert!(complaint("run ./a : --timeout 5s ./b").contains("go before the first program"));
    }

    #[test]
    fn counts_must_be_sensible() {
        assert!(complaint("run -n 0 ./a").contains("at least one rank"));
        assert!(complaint("run -n -3 ./a").contains("at least one rank"));
        assert!(complaint("run -n 99999999999 ./a").contains("at most 16777216"));
        assert!(complaint("run -n four ./a").contains("number of ranks"));
        assert_eq!(launch("run -n4 ./a").first.n, Some(4));
        assert_eq!(launch("run --np=4 ./a").first.n, Some(4));
    }

    #[test]
    fn policies_are_read_and_wrong_ones_answered() {
        let placing = launch("run --map-by socket:PE=2 --rank-by span --bind-to core ./a").placing;
        assert_eq!(placing.map_by.unwrap().map_by.to_string(), "package:pe=2");
        assert!(complaint("run --map-by cores ./a").contains("did you mean `core`?"));
        assert!(complaint("run --map-by= ./a").contains("give a mapping: slot"));
        assert!(complaint("run --rank-by core ./a").contains("write `span`, one per object in turn, or `fill`"));
        assert!(complaint("run --bind-to core:2 ./a").contains("--map-by slot:pe=2"));
        assert!(complaint("run --mem-bind near ./a").contains("none, local (only near memory), preferred"));
        assert!(complaint("run --compat ompi4 ./a").contains("`openmpi5`"));
        assert!(complaint("run --gpus-per-rank 0 ./a").contains("0 is not in 1..=1024"));
        assert!(complaint("run --gpus-visible ./a").contains("--gpus-per-rank <N>"));
    }

    #[test]
    fn colons_elsewhere_are_nothing_special() {
        assert!(complaint("signal : 9").contains("a job is `last`"));
    }
}
