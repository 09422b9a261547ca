//! Options of `rsctl node`.

use std::time::Duration;

use clap::Subcommand;

use super::words::duration;

/// `node …`.
#[derive(Debug, Subcommand)]
pub(crate) enum NodeCommand {
    /// Start no more ranks on a node; running jobs go on
    #[command(after_help = "Example:\n  rsctl node drain gpu03 --wait && ssh gpu03 reboot")]
    Drain {
        /// A name, an address, or +idK
        #[arg(value_name = "NODE")]
        node: String,
        /// Return when no job has ranks there any more
        #[arg(long)]
        wait: bool,
        /// Give up the wait after this time, with exit code 124
        #[arg(long, value_name = "TIME", value_parser = duration, requires = "wait")]
        timeout: Option<Duration>,
    },
    /// Start ranks on a drained node again
    Resume {
        /// A name, an address, or +idK
        #[arg(value_name = "NODE")]
        node: String,
    },
    /// Forget a node that is gone: jobs with ranks there end now, not after link.reattach_grace
    #[command(after_help = "Examples:
  rsctl node remove gpu03            a node that is away
  rsctl node remove gpu03 --stop     a connected node: as rsd stop there

Its certificate stays valid: a daemon that is started there again joins as the same node.")]
    Remove {
        /// A name, an address, or +idK
        #[arg(value_name = "NODE")]
        node: String,
        /// Stop its daemon if it is connected
        #[arg(long)]
        stop: bool,
        /// Stop it although jobs have ranks there, which end
        #[arg(long, requires = "stop")]
        force: bool,
    },
    /// Set and delete labels, by which --host selects nodes
    #[command(after_help = "Examples:
  rsctl node label gpu03 gpu=h200 zone=a     sets two labels
  rsctl node label gpu03 zone-               deletes one
  rsctl run --host +gpu=h200 ./a.out         on all nodes with this label; +gpu=h200:2 on two of them")]
    Label {
        /// A name, an address, or +idK
        #[arg(value_name = "NODE")]
        node: String,
        /// KEY=VALUE sets a label, KEY- deletes it
        #[arg(value_name = "LABEL", required = true)]
        labels: Vec<String>,
    },
}
