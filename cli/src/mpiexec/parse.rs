//! The command line of `mpiexec` → [`Asked`], by the [table](super::table). Pure, except for files that `read` reads. [`given`] one option
//! · [`values`] their values.
//!
//! Options begin with one dash or two, and end at the first word that does not begin with a dash: the program. What follows belongs to
//! the program, up to a `:` alone, which begins the next program. Options that concern the whole job may stand before any program. An
//! option that is given twice must have the same value.

mod given;
mod values;

use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::time::Duration;

use rsd_proto::v1::Label;

use self::given::Given;
use self::values::set;
pub(super) use self::values::{timeout, universe};
use super::table::Does;
use super::words;

/// What a command line requests.
#[derive(Debug, Default, PartialEq)]
pub(super) struct Asked {
    /// Empty if only something is to be shown.
    pub(super) programs: Vec<Program>,
    pub(super) job: Job,
    /// Options without a meaning here, each with the reason.
    pub(super) notices: Vec<String>,
}

/// One program, with the options before it.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct Program {
    pub(super) n: Option<u32>,
    pub(super) soft: Option<String>,
    /// Entries of host lists, as written.
    pub(super) hosts: Vec<String>,
    pub(super) hostfile: Option<PathBuf>,
    pub(super) wdir: Option<PathBuf>,
    pub(super) path: Option<OsString>,
    pub(super) inherits: Option<Inherits>,
    pub(super) variables: Vec<Variable>,
    pub(super) argv: Vec<OsString>,
}

/// Which variables of this process a program gets.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Inherits {
    All,
    None,
    /// Those with these names.
    Only(Vec<String>),
}

/// A variable for ranks.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Variable {
    Set(OsString, OsString),
    /// With its value in this process.
    Pass(OsString),
}

/// What concerns all programs.
#[derive(Debug, Default, PartialEq)]
pub(super) struct Job {
    /// Hydra's rules place the ranks, because an option is used that only Hydra has.
    pub(super) by_hydra: bool,
    pub(super) per_node: Option<u32>,
    /// N ranks on each package.
    pub(super) per_package: Option<u32>,
    pub(super) map_by: Option<String>,
    pub(super) rank_by: Option<String>,
    pub(super) bind_to: Option<String>,
    pub(super) mem_bind: Option<String>,
    pub(super) compat: Option<String>,
    pub(super) rankfile: Option<PathBuf>,
    pub(super) oversubscribe: Option<bool>,
    pub(super) allow_singletons: bool,
    /// Whether the other ranks continue when one dies.
    pub(super) survives: bool,
    pub(super) threads_as_cpus: bool,
    pub(super) nolocal: bool,
    pub(super) local_only: bool,
    pub(super) cpus_per_rank: Option<u32>,
    pub(super) gpus_per_rank: Option<u32>,
    pub(super) inherits: Option<Inherits>,
    pub(super) variables: Vec<Variable>,
    pub(super) wdir: Option<PathBuf>,
    pub(super) path: Option<OsString>,
    pub(super) umask: Option<u32>,
    pub(super) nice: Option<i32>,
    pub(super) universe: Option<Universe>,
    pub(super) timeout: Option<Duration>,
    pub(super) name: Option<String>,
    pub(super) labels: Vec<Label>,
    pub(super) stdin: Option<String>,
    pub(super) output: Output,
    pub(super) exit_codes: bool,
    pub(super) show_plan: bool,
    pub(super) plan_only: bool,
    pub(super) quiet: bool,
    pub(super) dvm: Option<OsString>,
    pub(super) show: Option<Show>,
}

/// The value of `-usize`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Universe {
    System,
    Infinite,
    Size(u32),
}

/// How output is shown, and where.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct Output {
    pub(super) label: bool,
    pub(super) tag: bool,
    pub(super) time: bool,
    pub(super) pattern: Option<String>,
    pub(super) merged: bool,
    pub(super) stdout: Option<String>,
    pub(super) stderr: Option<String>,
    /// Open MPI's directory for files, which also get copies; and whether output is then not printed.
    pub(super) directory: Option<(String, bool)>,
    /// Open MPI's `file=`.
    pub(super) file: Option<(String, bool)>,
}

/// What is printed instead of a launch.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Show {
    Version,
    Info,
    Help,
}

/// Reads a file that an option names.
pub(super) type Read<'a> = &'a dyn Fn(&Path) -> Result<String, String>;

/// Parses the arguments after the program's name. Errors are messages for the user.
pub(super) fn parse(args: &[OsString], read: Read<'_>) -> Result<Asked, String> {
    let mut asked = Asked::default();
    if args.is_empty() {
        return Err("no program given: mpiexec -n 4 ./a.out (options: mpiexec --help)".to_owned());
    }
    segments(args, read, &mut asked)?;
    match (asked.programs.is_empty(), asked.job.show.is_some() || asked.job.plan_only) {
        (true, false) => Err("no program given: mpiexec -n 4 ./a.out (options: mpiexec --help)".to_owned()),
        (true, true) | (false, _) => Ok(asked),
    }
}

fn segments(args: &[OsString], read: Read<'_>, asked: &mut Asked) -> Result<(), String> {
    let cut: Vec<&[OsString]> = args.split(|arg| arg == ":").collect();
    if cut.len() > 1 && cut.iter().any(|segment| segment.is_empty()) {
        return Err("no program before or after ` : `: write one program on each side".to_owned());
    }
    cut.iter().try_for_each(|args| segment(args, read, asked))
}

fn segment(args: &[OsString], read: Read<'_>, asked: &mut Asked) -> Result<(), String> {
    let mut program = Program::default();
    let mut rest = args;
    let mut file = None;
    while let Some((first, behind)) = rest.split_first() {
        let Some(word) = first.to_str() else { break };
        if word == "--" {
            rest = behind;
            break;
        }
        if !word.starts_with('-') || word == "-" {
            break;
        }
        let option = Given::find(word, behind)?;
        let used = option.used;
        if option.row.does == Does::ConfigFile {
            set(&mut file, PathBuf::from(option.value()?), &option.typed)?;
        } else {
            option.apply(&mut program, asked)?;
        }
        rest = &behind[used..];
    }
    if let Some(file) = file {
        return match (rest, program == Program::default()) {
            ([], true) => configfile(&file, read, asked),
            ([], false) => Err(format!("{}: only options of the whole job may precede -configfile", file.display())),
            ([program, ..], _) => Err(format!(
                "-configfile {}: the programs are in the file; leave out {}",
                file.display(),
                program.display()
            )),
        };
    }
    program.argv = rest.to_vec();
    if program.argv.is_empty() {
        let only_shown = asked.job.show.is_some() || asked.job.plan_only;
        let last = args.last().map(|last| format!(" after {}", last.display())).unwrap_or_default();
        return match only_shown {
            true => Ok(()),
            false => Err(format!("no program given{last}: mpiexec -n 4 ./a.out")),
        };
    }
    asked.programs.push(program);
    Ok(())
}

/// Each line is a program with its options. A line may continue after a backslash, and begins with `#` if it is a comment.
fn configfile(file: &Path, read: Read<'_>, asked: &mut Asked) -> Result<(), String> {
    let name = file.display();
    let text = read(file)?;
    let before = asked.programs.len();
    let another = |_: &Path| Err("a configuration file cannot name another one".to_owned());
    for (number, line) in words::lines(&text) {
        let at = |error: String| format!("{name}:{number}: {error}");
        let args = words::split(&line).map_err(at)?;
        segments(&args, &another, asked).map_err(at)?;
    }
    match asked.programs.len() > before {
        true => Ok(()),
        false => Err(format!("{name}: the file names no program; write one per line: -n 4 ./a.out")),
    }
}

#[cfg(test)]
mod tests;
