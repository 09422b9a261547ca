//! Options of `plan`: those of `run`, and what only a plan is asked.

use clap::Args;

use super::launch::{Launch, Run};

/// `plan`.
#[derive(Debug, Args)]
#[command(after_long_help = HELP)]
pub(crate) struct PlanOptions {
    #[command(flatten)]
    pub(crate) run: Run,
    /// Plan as if no other job ran
    #[arg(long, help_heading = "Plan")]
    pub(crate) idle: bool,
    /// Plan for a machine that is not there: `pack:2 core:8 pu:2`, or an XML file of lstopo; every host named is one
    #[arg(long, value_name = "SYNTHETIC|FILE.xml", conflicts_with = "idle", help_heading = "Plan")]
    pub(crate) topology: Option<String>,
    /// Compare with the plan that these options make, laid over the others
    #[arg(long, value_name = "'OPTIONS'", allow_hyphen_values = true, help_heading = "Plan")]
    pub(crate) diff: Option<String>,
    /// A line for every rank: where it is and why
    #[arg(long, help_heading = "Plan")]
    pub(crate) reasons: bool,
    /// The launch of `diff`.
    #[arg(skip)]
    pub(crate) other: Option<Launch>,
}

/// Placement, taught by examples; the system tests run each and compare.
pub(crate) const HELP: &str = include_str!("plan.txt");

/// Options of a launch that change nothing about where ranks go; `plan` takes them, so that a `run` needs only its first word
/// changed, and its help does not show them.
pub(crate) const ELSEWHERE: [&str; 10] =
    ["label", "stdin", "env_file", "timeout", "output", "kill_grace", "variables", "export", "wdir", "show_plan"];

/// An argument of `run` as `plan` has it: no program is needed, and what has no part in placement is not shown.
pub(super) fn in_plan(arg: clap::Arg) -> clap::Arg {
    let elsewhere = ELSEWHERE.contains(&arg.get_id().as_str());
    let required = arg.is_required_set() && arg.get_id() != "program";
    arg.required(required).hide(elsewhere)
}
