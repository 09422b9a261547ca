//! Options of `up` and `down`.

use std::path::PathBuf;
use std::time::Duration;

use clap::Args;

use super::words::duration;

pub(super) const UP_HELP: &str = "\
Examples:
  rsctl up --host gpu01,gpu02:4 && rsctl run -n 8 ./a.out
  rsctl up --hostfile hosts --push                 copy rsd to the hosts first
  rsctl up --hostfile hosts --head gpu01           the head runs on gpu01, not here
  rsctl up --hostfile hosts --allow-missing        go on without hosts that fail
  rsctl up --host a,b --via-ssh                    only ssh passes between here and the hosts

The head runs here, and takes ranks only if the list names this machine. Hosts, users, ports, keys and jump hosts are those \
of ~/.ssh/config. If a host fails, everything that was started is stopped again, except with --allow-missing.

More: rsctl help ssh";

pub(super) const DOWN_HELP: &str = "\
Examples:
  rsctl down
  rsctl down --force        also if jobs are running";

/// How ssh is used.
#[derive(Debug, Clone, Args)]
pub(crate) struct Ssh {
    /// Accept the keys of hosts that are not in known_hosts, and write them there. Changed keys are always refused
    #[arg(long)]
    pub(crate) accept_new_host_keys: bool,
    /// Read this ssh configuration instead of ~/.ssh/config and /etc/ssh/ssh_config
    #[arg(long, value_name = "FILE")]
    pub(crate) ssh_config: Option<PathBuf>,
    /// Number of hosts to connect to at the same time
    #[arg(long, value_name = "N", default_value_t = 64, value_parser = clap::value_parser!(u32).range(1..=1024))]
    pub(crate) parallel: u32,
    /// Deadline for connecting to a host, and for each step of the login
    #[arg(long, value_name = "TIME", default_value = "10s", value_parser = duration)]
    pub(crate) connect_timeout: Duration,
    /// Deadline for each command on a host: looking for rsd, each copy, each attempt to start, the stop
    #[arg(long, value_name = "TIME", default_value = "60s", value_parser = duration)]
    pub(crate) timeout: Duration,
}

/// `up …`.
#[derive(Debug, Clone, Args)]
#[command(group(clap::ArgGroup::new("hosts").required(true).multiple(true)))]
pub(crate) struct Up {
    /// Hosts, as ssh knows them, with the slots that they offer: `a,b:4`, `gpu[01-16]`, `me@c`, `^b` (not b)
    #[arg(long, value_name = "HOST[:SLOTS],…", group = "hosts")]
    pub(crate) host: Vec<String>,
    /// A file with one host per line: `a slots=4`, `b:2`, `me@c port=2222`; --host then chooses from it
    #[arg(long, value_name = "FILE", group = "hosts")]
    pub(crate) hostfile: Option<PathBuf>,
    /// Start the head on this host [default: here]
    #[arg(long, value_name = "HOST")]
    pub(crate) head: Option<String>,
    /// Address on which a new head listens; port 0 takes a free port [default: 0.0.0.0:0; with --via-ssh: 127.0.0.1:0]
    #[arg(long, value_name = "ADDR")]
    pub(crate) listen: Option<String>,
    /// Name or address at which the hosts reach the head, with its port if that is another one [default: found through ssh]
    #[arg(long, value_name = "ADDR")]
    pub(crate) head_address: Option<String>,
    /// Carry the links to the head through ssh, for hosts that only ssh reaches; a process here holds the connections until `down`
    #[arg(long, conflicts_with_all = ["head", "head_address"])]
    pub(crate) via_ssh: bool,
    /// Copy rsd and rsctl to hosts where they are missing or differ; newer ones stay
    #[arg(long)]
    pub(crate) push: bool,
    /// Directory to copy to
    #[arg(long, value_name = "DIR", default_value = "~/.local/bin", requires = "push")]
    pub(crate) push_to: String,
    /// The path of rsd on the hosts [default: in PATH, else ~/.local/bin/rsd]
    #[arg(long, value_name = "PATH", conflicts_with = "push")]
    pub(crate) remote_rsd: Option<String>,
    /// Go on without hosts that fail
    #[arg(long)]
    pub(crate) allow_missing: bool,
    #[command(flatten)]
    pub(crate) ssh: Ssh,
}

/// `down …`.
#[derive(Debug, Clone, Args)]
pub(crate) struct Down {
    /// Kill running jobs instead of refusing to stop
    #[arg(long)]
    pub(crate) force: bool,
    #[command(flatten)]
    pub(crate) ssh: Ssh,
}
