//! `cargo xtask docs --check`: checks that the documentation matches the code.
//!
//! - [`names`]: every file, folder and function that `ARCHITECTURE.md` names in backticks exists.
//! - [`links`]: no relative link or anchor in a Markdown file is dead.
//! - [`examples`]: every example in a `--help` text, in a topic and in `README.md` has a test.
//!
//! A problem is reported as `file:line: reason`; all problems are reported at once.

mod examples;
mod links;
mod markdown;
mod names;
mod tree;

use std::ffi::OsString;
use std::fmt;

use crate::places;
use crate::shell::{cargo, quiet, step};
use tree::Tree;

/// The programs whose `--help` texts have examples.
const PROGRAMS: [&str; 2] = ["rsctl", "rsd"];

/// A place where the documentation does not match the code.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
struct Problem {
    /// `README.md:12`, or a command such as `rsctl logs --help`.
    place: String,
    reason: String,
}

impl fmt::Display for Problem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.place, self.reason)
    }
}

/// `cargo xtask docs --check`.
pub(crate) fn docs(args: &[OsString]) -> anyhow::Result<()> {
    anyhow::ensure!(args.len() == 1 && args[0] == "--check", "usage: cargo xtask docs --check");
    step("documentation", check)
}

/// Checks the documentation of this checkout. Builds the programs whose help it reads.
pub(crate) fn check() -> anyhow::Result<()> {
    let packages = PROGRAMS.map(|program| format!("--package={program}"));
    quiet(cargo(["build", "--quiet", "--bins"]).args(packages))?;
    let tree = Tree::of_checkout(places::root())?;
    let mut helps = Vec::new();
    for program in PROGRAMS {
        helps.extend(examples::help_texts(&places::binaries()?.join(program), program)?);
    }
    let mut problems = names::problems(&tree);
    problems.extend(links::problems(&tree));
    problems.extend(examples::problems(&tree, &helps));
    if problems.is_empty() {
        return Ok(());
    }
    let lines: Vec<String> = problems.iter().map(Problem::to_string).collect();
    let s = if lines.len() == 1 { "" } else { "s" };
    anyhow::bail!("{} problem{s} in the documentation:\n{}", lines.len(), lines.join("\n"))
}
