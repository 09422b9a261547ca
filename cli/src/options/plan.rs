//! Options of `plan`: those of `run`, and its own.

use clap::Args;

use super::launch::{Launch, Run};

/// `plan`.
#[derive(Debug, Args)]
#[command(after_long_help = HELP)]
pub(crate) struct PlanOptions {
    #[command(flatten)]
    pub(crate) run: Run,
    /// Plan as if no other job were running
    #[arg(long, help_heading = "Plan")]
    pub(crate) idle: bool,
    /// Plan for machines that you describe: `pack:2 core:8 pu:2`, or an XML file of lstopo; each host is such a machine
    #[arg(long, value_name = "SYNTHETIC|FILE.xml", conflicts_with = "idle", help_heading = "Plan")]
    pub(crate) topology: Option<String>,
    /// Compare with a second plan, in which these options replace the given ones
    #[arg(long, value_name = "'OPTIONS'", allow_hyphen_values = true, help_heading = "Plan")]
    pub(crate) diff: Option<String>,
    /// Print a line for every rank: where it would go, and why
    #[arg(long, help_heading = "Plan")]
    pub(crate) reasons: bool,
    /// The launch in which the options of `diff` replace the others.
    #[arg(skip)]
    pub(crate) other: Option<Launch>,
}

/// Placement, explained by examples. The system tests run each example and compare the output.
pub(crate) const HELP: &str = include_str!("plan.txt");

/// Options of `run` without effect on placement. `plan` accepts them, so that a user can replace `run` by `plan` in a command. Its
/// help does not show them.
pub(crate) const ELSEWHERE: [&str; 18] = [
    "queue_deadline",
    "hold",
    "job_label",
    "allow_singletons",
    "label",
    "stdin",
    "env_file",
    "timeout",
    "output",
    "overwrite",
    "kill_grace",
    "on_node_loss",
    "on_rank_loss",
    "variables",
    "export",
    "wdir",
    "show_plan",
    "quiet",
];

/// Turns an argument of `run` into one of `plan`: makes the program optional and hides options without effect.
pub(super) fn in_plan(arg: clap::Arg) -> clap::Arg {
    let elsewhere = ELSEWHERE.contains(&arg.get_id().as_str());
    let required = arg.is_required_set() && arg.get_id() != "program";
    arg.required(required).hide(elsewhere)
}
