//! Options of `rsctl head`.

use clap::Subcommand;

/// `head …`.
#[derive(Debug, Subcommand)]
pub(crate) enum HeadCommand {
    /// Show which daemon is the head, and its standbys
    #[command(
        after_help = "Example:\n  rsctl head show        the head, its standbys, and what they have not confirmed"
    )]
    Show,
    /// Let a node stand by for the head: it gets a copy of what the head keeps, and the key of the DVM
    #[command(after_help = "Example:\n  rsctl head allow node1 && ssh node1 rsd start --standby --join node0:7817

Run it on the head's machine, as the user who runs the head: the head takes this from no other machine.")]
    Allow {
        /// A name, an address, or +idK
        #[arg(value_name = "NODE")]
        node: String,
    },
    /// Let a node no longer stand by. It keeps the copy that it has, and the key
    #[command(after_help = "Example:\n  rsctl head forbid node1        node1 no longer stands by")]
    Forbid {
        /// A name, an address, or +idK
        #[arg(value_name = "NODE")]
        node: String,
    },
    /// Make a standby the head
    #[command(after_help = "Examples:
  rsctl head promote               when the head's machine is lost: refused while the head answers
  rsctl head promote node3         on any other node
  rsctl head promote --switch      when the head runs: it hands over and exits

Running jobs go on, except those with ranks on the machine of the head that is lost.")]
    Promote {
        /// The standby, by name or id; without it, the daemon that is asked
        #[arg(value_name = "NODE")]
        node: Option<String>,
        /// The head hands over; refused while jobs have ranks on its node
        #[arg(long)]
        switch: bool,
        /// Also if the copy may be old, or, with --switch, if jobs have ranks on the head's node: they end
        #[arg(long)]
        force: bool,
    },
}
