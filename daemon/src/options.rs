//! The command line of `rsd`.

use std::borrow::Cow;
use std::ffi::OsString;
use std::net::{SocketAddr, ToSocketAddrs};
use std::path::PathBuf;
use std::time::Duration;

use clap::builder::Styles;
use clap::parser::ValueSource;
use clap::{ArgMatches, Args, CommandFactory, FromArgMatches, Parser, Subcommand};
use rsd_config::ports::PortRange;
use rsd_config::settings::LogFormat;
use rsd_core::addresses::{InvalidWish, advertisable};
use rsd_proto::visible::visible;

use crate::owner::Owner;

/// Set in the environment of a daemon in the background: to [`TERMINAL`], if its first output is shown on a terminal.
pub(crate) const DAEMONIZED: &str = "RSD_DAEMONIZED";
pub(crate) const TERMINAL: &str = "terminal";

/// The resident process manager: one daemon per node; together they run parallel programs
#[derive(Debug, Parser)]
#[command(name = "rsd", version, max_term_width = 100, after_help = "Run programs with rsctl. More: rsctl help")]
pub(crate) struct Options {
    #[command(subcommand)]
    pub(crate) command: Command,
}

/// Why the arguments name no command to perform.
#[derive(Debug)]
pub(crate) enum Unread {
    /// Help, or the version.
    Help(clap::Error),
    /// A mistake, as text, in which control characters of arguments are escaped. `styled` if it has none.
    Mistake { text: String, styled: Option<clap::Error> },
}

/// Reads the arguments, the program's name first.
pub(crate) fn read(args: impl IntoIterator<Item = OsString>) -> Result<Options, Unread> {
    let args: Vec<OsString> = args.into_iter().collect();
    let parse = |styles: Styles| matches(styles, &args).and_then(|matches| Options::from_arg_matches(&matches));
    let error = match parse(Styles::default()) {
        Ok(options) => return Ok(options),
        Err(error) if !error.use_stderr() => return Err(Unread::Help(error)),
        Err(error) => error,
    };
    // clap's own control characters are its colours, so the error is made again without them.
    let plain = parse(Styles::plain()).err().map_or_else(|| error.to_string(), |it| it.render().ansi().to_string());
    Err(match visible(&plain) {
        Cow::Borrowed(_) => Unread::Mistake { text: plain, styled: Some(error) },
        Cow::Owned(text) => Unread::Mistake { text, styled: None },
    })
}

fn matches(styles: Styles, args: &[OsString]) -> Result<ArgMatches, clap::Error> {
    Options::command().styles(styles).try_get_matches_from(args)
}

/// Returns whether an argument of `rsd config show`, rather than a variable, has set this option.
pub(crate) fn is_argument_of_show(option: &str) -> bool {
    let args: Vec<OsString> = std::env::args_os().collect();
    let matches = matches(Styles::default(), &args).ok();
    let show = matches.as_ref().and_then(|it| it.subcommand_matches("config")?.subcommand_matches("show"));
    show.is_some_and(|show| show.value_source(option) == Some(ValueSource::CommandLine))
}

#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// Start a daemon: the head of a new DVM, or with --join a node of an existing one
    #[command(after_help = "Examples:
  rsd start                                     one node, one user, nothing to configure
  rsd start --listen 0.0.0.0:7817               a head that other machines can join; prints how to join it
  rsd start --join node0:7817 --token-file t    one more machine, with a token in the file t
  rsd start --name node0 --listen 127.0.0.1:0   a head that other daemons of this machine can join
  rsd start --name node1 --join 127.0.0.1:7817  one more node on the same machine, which needs no token")]
    Start(Box<StartOptions>),
    /// Stop a daemon; the head stops its whole DVM
    Stop(StopOptions),
    /// Replace the program of the daemon on this machine by another version, while its jobs go on
    #[command(after_help = "Examples:
  /opt/rsd-2/bin/rsd upgrade                 the daemon executes this program
  rsd upgrade --binary /opt/rsd-2/bin/rsd    the same
  rsctl upgrade --binary /opt/rsd-2/bin/rsd  all nodes of the DVM, one after the other, the head last

The other program first examines the daemon's options and state; if it cannot read them, nothing changes. If it fails before it is ready,
the earlier one takes its place again.")]
    Upgrade(UpgradeOptions),
    /// Print a daemon's role, slots and jobs
    Status(StatusOptions),
    /// Make, list and revoke the tokens with which daemons join and users log in
    #[command(subcommand)]
    Token(TokenCommand),
    /// Show the settings in effect
    #[command(subcommand)]
    Config(ConfigCommand),
    /// Print the completions for a shell
    #[command(after_help = "Example:\n  rsd completion bash > ~/.local/share/bash-completion/completions/rsd")]
    Completion {
        /// The shell
        #[arg(value_parser = clap::value_parser!(clap_complete::Shell))]
        shell: clap_complete::Shell,
    },
    /// Write the man pages into man1 of a directory
    #[command(after_help = "Example:\n  rsd man ~/.local/share/man && man rsd-start")]
    Man {
        /// The directory, which is created if it does not exist; DIR/man1 means DIR
        #[arg(value_name = "DIR")]
        directory: PathBuf,
    },
    /// Hold the ranks of one job on this node (started by the daemon)
    #[command(hide = true)]
    Step(StepOptions),
    /// Set limits and become a rank's program (started by a step)
    #[command(hide = true, disable_help_flag = true)]
    Limits(LimitsOptions),
    /// Answer an encoded plan request from standard input (called by `rsctl plan --topology`)
    #[command(hide = true)]
    Plan,
    /// Write the topology that hwloc's environment variables describe (called by `rsd plan`)
    #[command(hide = true)]
    Topology,
}

#[derive(Debug, Subcommand)]
pub(crate) enum TokenCommand {
    /// Print a new token, and how to use it
    #[command(after_help = "Examples:
  rsd token new                        for the next ten minutes and 32 daemons
  rsd token new --ttl 1h --uses 1
  rsd token new --user ann             by root: logs ann in from another machine
  rsd token new --quiet > token        only the token, for --token-file")]
    New {
        /// How long it is valid
        #[arg(long, default_value = "10m", value_name = "TIME", value_parser = rsd_config::duration::parse)]
        ttl: Duration,
        /// How many daemons may join and users log in with it
        #[arg(long, default_value_t = 32, value_name = "N", value_parser = clap::value_parser!(u32).range(1..))]
        uses: u32,
        /// Make a token that only logs this user in (root, where the daemons serve all users)
        #[arg(long, value_name = "USER", value_parser = uid_of)]
        user: Option<u32>,
        /// Print the token only
        #[arg(long, short)]
        quiet: bool,
        #[command(flatten)]
        which: TokenOptions,
    },
    /// List the tokens of the DVM, without their secrets
    #[command(after_help = "Example:\n  rsd token list")]
    List {
        #[command(flatten)]
        which: TokenOptions,
    },
    /// Revoke a token: nothing is admitted with it any more. Daemons that have joined stay
    #[command(after_help = "Example:\n  rsd token revoke 5f0c1e0a9b3d7e21")]
    Revoke {
        /// Its number, as listed
        #[arg(value_name = "NUMBER", value_parser = token_id)]
        id: u64,
        #[command(flatten)]
        which: TokenOptions,
    },
}

impl TokenCommand {
    /// Whether the user wants JSON.
    pub(crate) fn json(&self) -> bool {
        match self {
            TokenCommand::New { which, .. } | TokenCommand::List { which } | TokenCommand::Revoke { which, .. } => {
                which.json
            }
        }
    }
}

#[derive(Debug, Args)]
pub(crate) struct TokenOptions {
    /// The daemon, by name or state directory
    #[arg(long, env = "RSD_DVM", value_name = "NAME|STATE_DIR")]
    pub(crate) dvm: Option<String>,
    /// Print one JSON object
    #[arg(long)]
    pub(crate) json: bool,
}

/// Returns the uid of a user by name or number.
fn uid_of(word: &str) -> Result<u32, String> {
    if let Ok(uid) = word.parse() {
        return Ok(uid);
    }
    match nix::unistd::User::from_name(word) {
        Ok(Some(user)) => Ok(user.uid.as_raw()),
        Ok(None) => Err(format!("unknown user {word}")),
        Err(error) => Err(format!("cannot look up {word}: {error}")),
    }
}

fn token_id(word: &str) -> Result<u64, &'static str> {
    u64::from_str_radix(word, 16).map_err(|_| "expected a token's number, as rsd token list prints it")
}

#[derive(Debug, Subcommand)]
pub(crate) enum ConfigCommand {
    /// Print every setting, its value, and where the value comes from
    #[command(after_help = "Examples:
  rsd config show
  rsd config show --config mine.toml --json")]
    Show(ConfigOptions),
}

#[derive(Debug, Args)]
pub(crate) struct ConfigOptions {
    /// Read this settings file instead of the one in RSD_CONFIG
    #[arg(long, value_name = "FILE")]
    pub(crate) config: Option<PathBuf>,
    #[command(flatten)]
    pub(crate) log: LogOptions,
    /// Print one JSON object
    #[arg(long)]
    pub(crate) json: bool,
}

/// The level and form of the daemon's log.
#[derive(Debug, Clone, Args)]
pub(crate) struct LogOptions {
    /// Log level: error, warn, info, debug or trace; per component, as in info,rsd=debug
    #[arg(long, env = "RSD_LOG", value_name = "LEVEL")]
    pub(crate) log: Option<String>,
    /// Log as text or json
    #[arg(long, env = "RSD_LOG_FORMAT", value_name = "FORMAT", value_parser = log_format)]
    pub(crate) log_format: Option<LogFormat>,
}

#[derive(Debug, Clone, Args)]
pub(crate) struct StartOptions {
    /// Stay in the foreground and log to stderr
    #[arg(long)]
    pub(crate) foreground: bool,
    /// Name of this node, and of the daemon for --dvm [default: the host name; "default"]
    #[arg(long)]
    pub(crate) name: Option<String>,
    /// Directory of the daemon's logs, keys and records; by default ~/.local/state/rsd/NAME@HOST, and /var/lib/rsd/NAME for root
    #[arg(long)]
    pub(crate) state_dir: Option<PathBuf>,
    /// Address on which other daemons can join, such as `0.0.0.0:7817` or `[::]:7817` for all addresses; port 0 takes a free port
    #[arg(long, value_name = "ADDR", conflicts_with = "local_only")]
    pub(crate) listen: Option<String>,
    /// Listen on the unix socket only
    #[arg(long)]
    pub(crate) local_only: bool,
    /// Address at which other machines reach this node, without a port; repeat it for several, the best first [default: those of the
    /// interfaces]
    #[arg(long, value_name = "ADDR", value_parser = advertised)]
    pub(crate) advertise: Vec<String>,
    /// Interface whose addresses other machines reach; repeat it for several, the best first [default: all, except those of
    /// containers and virtual machines]
    #[arg(long, value_name = "NAME", conflicts_with = "advertise")]
    pub(crate) interface: Vec<String>,
    /// TCP ports on which daemon and ranks listen, unless --listen names one [default: chosen by the kernel]
    #[arg(long, value_name = "LOW-HIGH")]
    pub(crate) port_range: Option<PortRange>,
    /// Join the DVM of the daemon at this address
    #[arg(long, value_name = "ADDR")]
    pub(crate) join: Option<String>,
    /// Token for --join, needed once if the DVM is on another machine. Other users may see it in the list of processes:
    /// prefer --token-file
    #[arg(long, value_name = "TOKEN", requires = "join")]
    pub(crate) token: Option<String>,
    /// Stand by for the head: hold a copy of what it keeps, and become the head on request when its machine is lost. As the head, this machine
    /// listens at this address [default: 0.0.0.0:7817]. The head must allow it: rsctl head allow NODE
    #[arg(long, value_name = "HOST:PORT", requires = "join", num_args = 0..=1, default_missing_value = "0.0.0.0:7817")]
    pub(crate) standby: Option<String>,
    /// File with the token for --join; - is standard input
    #[arg(long, value_name = "FILE", requires = "join", conflicts_with = "token")]
    pub(crate) token_file: Option<PathBuf>,
    /// Serve metrics for Prometheus over HTTP at this address, such as `127.0.0.1:9817`, or at this port of 127.0.0.1; port 0 takes a
    /// free port. Without TLS, and only counts: any program that reaches the address may read them
    #[arg(long, value_name = "ADDR:PORT", value_parser = metrics_address)]
    pub(crate) metrics: Option<SocketAddr>,
    /// Slots of this node: the number of ranks it takes without oversubscription [default: its usable cores]
    #[arg(long, value_parser = clap::value_parser!(u32).range(0..=65_536))]
    pub(crate) slots: Option<u32>,
    /// What this node has besides cores, memory and GPUs, for jobs that request it with --resource: `fpga:2`
    #[arg(long, value_name = "NAME[:N],…", value_delimiter = ',')]
    pub(crate) resource: Vec<String>,
    /// Read this settings file instead of the one in RSD_CONFIG
    #[arg(long, value_name = "FILE")]
    pub(crate) config: Option<PathBuf>,
    #[command(flatten)]
    pub(crate) logging: LogOptions,
    /// Serve only the user who starts it, also if that is root. Otherwise a head that root runs serves all users of its machines
    #[arg(long, conflicts_with = "join")]
    pub(crate) single_user: bool,
    /// For root with --join: join the head of this user, whose programs then run as root here
    #[arg(long, value_name = "USER", requires = "join", value_parser = uid_of)]
    pub(crate) trust_user: Option<u32>,
    /// Exit when standard input is closed, and stay hidden (for `rsctl run` without a daemon)
    #[arg(long, hide = true, requires = "foreground")]
    pub(crate) private: bool,
    /// Start nothing, and print the version as JSON if a daemon with these arguments could start (for `rsd upgrade`)
    #[arg(long, hide = true)]
    pub(crate) check: bool,
}

#[derive(Debug, Args)]
pub(crate) struct UpgradeOptions {
    /// The daemon, by name or state directory
    #[arg(long, env = "RSD_DVM", value_name = "NAME|STATE_DIR")]
    pub(crate) dvm: Option<String>,
    /// The rsd that takes its place [default: the one that performs this command]
    #[arg(long, value_name = "PATH")]
    pub(crate) binary: Option<PathBuf>,
}

#[derive(Debug, Args)]
pub(crate) struct StopOptions {
    /// The daemon, by name or state directory
    #[arg(long, env = "RSD_DVM", value_name = "NAME|STATE_DIR")]
    pub(crate) dvm: Option<String>,
    /// Kill running jobs instead of refusing to stop
    #[arg(long)]
    pub(crate) force: bool,
    /// Stop this daemon only, and leave its jobs running: they go on when it is started again
    #[arg(long, conflicts_with = "force")]
    pub(crate) keep_jobs: bool,
}

#[derive(Debug, Args)]
pub(crate) struct StatusOptions {
    /// The daemon, by name or state directory
    #[arg(long, env = "RSD_DVM", value_name = "NAME|STATE_DIR")]
    pub(crate) dvm: Option<String>,
    /// Print one JSON object
    #[arg(long)]
    pub(crate) json: bool,
}

#[derive(Debug, Args)]
pub(crate) struct StepOptions {
    pub(crate) state_dir: PathBuf,
    #[command(flatten)]
    pub(crate) logging: LogOptions,
    /// The limit on open files that ranks without one of their own inherit
    #[arg(long)]
    pub(crate) nofile: Option<u64>,
    /// The user to become, whose job's launch is standard input: `1000:ann`
    #[arg(long, value_parser = Owner::parse, requires = "order")]
    pub(crate) user: Option<Owner>,
    /// With --user: a job and this node's id
    #[arg(long, num_args = 2)]
    pub(crate) order: Option<Vec<u64>>,
}

#[derive(Debug, Args)]
pub(crate) struct LimitsOptions {
    /// `nofile=16:16,cpu=60:60`: resource, soft and hard limit
    pub(crate) limits: String,
    pub(crate) program: OsString,
    /// The program's arguments, its name first
    #[arg(trailing_var_arg = true, allow_hyphen_values = true)]
    pub(crate) argv: Vec<OsString>,
}

/// Reads `ADDR:PORT`, or a port of loopback.
fn metrics_address(word: &str) -> Result<SocketAddr, String> {
    let wrong = || "expected ADDR:PORT, such as 127.0.0.1:9817, or a port alone for 127.0.0.1".to_owned();
    if let Ok(port) = word.parse::<u16>() {
        return Ok(SocketAddr::from(([127, 0, 0, 1], port)));
    }
    let mut found = word.to_socket_addrs().map_err(|error| match error.kind() {
        std::io::ErrorKind::InvalidInput => wrong(),
        _ => error.to_string(),
    })?;
    found.next().ok_or_else(wrong)
}

fn advertised(word: &str) -> Result<String, InvalidWish> {
    advertisable(word)
}

fn log_format(word: &str) -> Result<LogFormat, &'static str> {
    match word {
        "text" => Ok(LogFormat::Text),
        "json" => Ok(LogFormat::Json),
        _ => Err("expected text or json"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_port_for_metrics_alone_is_at_loopback() {
        assert_eq!(metrics_address("9817"), Ok(SocketAddr::from(([127, 0, 0, 1], 9817))));
        assert_eq!(metrics_address("[::1]:0"), "[::1]:0".parse().map_err(|_| String::new()));
        assert!(metrics_address("here").is_err_and(|why| why.contains("ADDR:PORT")));
        assert!(metrics_address("70000").is_err());
    }
}
