//! The command line before clap sees it: MPMD segments, `-np`, and options of other launchers.
//!
//! clap knows no single-dash long options (`-np`, `-hostfile`: it would read `-h -o …` and print its help), and an option
//! that it does not know says nothing about what to write instead. So the options before the program's name are looked at
//! first, with clap's own definitions as the list of those that take a value.

use std::ffi::{OsStr, OsString};

use crate::exit::Failure;

/// Cuts at every argument that is `:` alone. `["run", "-n", "1", "a", ":", "-n", "2", "b"]` gives two segments.
pub(crate) fn segments(args: &[OsString]) -> Vec<&[OsString]> {
    args.split(|arg| arg == ":").collect()
}

/// What `args` means in our spelling. `args` is what follows `rsctl`, or one further MPMD segment, and `command` the clap
/// command that will read it.
pub(crate) fn translate(args: &[OsString], command: &clap::Command) -> Result<Vec<OsString>, Failure> {
    let (start, launch) = match command.has_subcommands() {
        false => (0, command),
        true => {
            let end = program_at(args, command);
            let name = args.get(end).and_then(|name| name.to_str()).unwrap_or_default();
            match command.find_subcommand(name) {
                Some(launch) if LAUNCHING.contains(&name) => (end + 1, launch),
                _ => return Ok(args.to_vec()),
            }
        }
    };
    let mut ours = args.to_vec();
    let end = start + program_at(&args[start..], launch);
    let mut at = start;
    while at < end {
        let Some(token) = args[at].to_str() else { break };
        if token == "-np" {
            ours[at] = "-n".into();
        } else if let Some(text) = correction(token, launch) {
            return Err(Failure::usage(text));
        }
        at += if takes_value(token, launch) { 2 } else { 1 };
    }
    Ok(ours)
}

/// The commands that take options of other launchers for granted.
const LAUNCHING: [&str; 3] = ["run", "submit", "plan"];

/// Options of other launchers, and what to write here.
const FOREIGN: [(&[&str], &str); 19] = [
    (&["-c", "--n", "-ntasks", "--ntasks"], "-n N"),
    (&["-H", "-hosts", "--hosts", "-hostlist", "-w", "--nodelist"], "--host a,b:2"),
    (&["-f", "-machinefile", "--machinefile", "--default-hostfile"], "--hostfile FILE"),
    (&["--wd", "-wd", "--cwd", "-dir", "--chdir", "-D"], "--wdir DIR"),
    (&["-genv", "--genv", "-env", "--env"], "-x NAME=VALUE"),
    (
        &["-genvlist", "--genvlist", "-envlist", "--envlist"],
        "-x NAME for each (the whole environment is forwarded anyway)",
    ),
    (&["-genvall", "--genvall", "-envall", "--envall", "--export-all"], "nothing: the whole environment is forwarded"),
    (&["--tag-output", "-tag-output", "-prepend-rank", "--prepend-rank"], "--label"),
    (&["--output-filename", "-output-filename", "-outfile-pattern", "-errfile-pattern"], "--output DIR"),
    (&["-s"], "--stdin all, --stdin none or --stdin RANK"),
    (&["--nooversubscribe", "-nooversubscribe"], "nothing: this is the default"),
    (&["--bynode", "-bynode", "-rr"], "--map-by node"),
    (&["--byslot", "-byslot"], "--map-by slot"),
    (
        &["-ppn", "--ppn", "-perhost", "--npernode", "-npernode", "-N", "--ntasks-per-node"],
        "--host a:2,b:2 (ranks per node)",
    ),
    (&["--report-bindings", "-report-bindings"], "nothing: `rsctl plan` shows where ranks are bound"),
    (&["--cpu-set"], "--map-by pe-list=0,2,4-7"),
    (&["--mca", "-mca", "--gmca", "--prtemca", "--omca"], "-x OMPI_MCA_name=value"),
    (
        &["--allow-run-as-root", "-launcher", "--launcher", "-bootstrap", "-rmk", "--personality", "--prefix"],
        "nothing: it is not needed here",
    ),
    (
        &["--display", "-display", "--display-map", "-display-map"],
        "nothing, and then `rsctl job show last` for the placement",
    ),
];

/// Options of `run` that a detached job has no use for, and what has.
const ATTACHED: [(&str, &str); 3] = [
    ("-l", "nobody watches a submitted job: label its output with `rsctl logs -l`"),
    ("--label", "nobody watches a submitted job: label its output with `rsctl logs --label`"),
    ("--stdin", "nobody forwards standard input to a submitted job: use `rsctl run`"),
];

/// The sentence for an option that is not ours but has an equivalent.
fn correction(token: &str, command: &clap::Command) -> Option<String> {
    let name = token.split_once('=').map_or(token, |(name, _)| name);
    if command.get_name() == "submit"
        && let Some((_, why)) = ATTACHED.iter().find(|(option, _)| *option == name)
    {
        return Some((*why).to_owned());
    }
    let long = |name: &str| command.get_arguments().any(|arg| arg.get_long() == Some(name));
    if let Some((_, ours)) = FOREIGN.iter().find(|(names, _)| names.contains(&name)) {
        return Some(format!("`{name}` is another launcher's option; here write {ours}"));
    }
    let bare = name.strip_prefix('-').filter(|rest| rest.len() > 1 && !rest.starts_with('-'))?;
    long(bare).then(|| format!("`{name}` is spelled --{bare} here"))
}

/// Where the first argument stands that is neither an option nor an option's value.
fn program_at(args: &[OsString], command: &clap::Command) -> usize {
    let mut at = 0;
    while let Some(token) = args.get(at).and_then(|arg| arg.to_str()) {
        if token == "--" || token == "-" || !token.starts_with('-') {
            break;
        }
        at += if takes_value(token, command) { 2 } else { 1 };
    }
    at.min(args.len())
}

fn takes_value(token: &str, command: &clap::Command) -> bool {
    let named = |arg: &clap::Arg| match token.strip_prefix("--") {
        Some(long) => arg.get_long_and_visible_aliases().is_some_and(|names| names.contains(&long)),
        None => token.strip_prefix('-').is_some_and(|short| {
            let mut letters = short.chars();
            letters.next().is_some_and(|letter| arg.get_short() == Some(letter)) && letters.next().is_none()
        }),
    };
    token == "-np"
        || command.get_arguments().any(|arg| named(arg) && arg.get_action().takes_values())
        // Taken from the root only when clap builds the command.
        || token == "--dvm"
}

/// Whether the argument is the name of a command that launches.
pub(crate) fn launches(args: &[OsString], command: &clap::Command) -> bool {
    let name = args.get(program_at(args, command)).map(OsString::as_os_str);
    LAUNCHING.iter().any(|launching| name == Some(OsStr::new(launching)))
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory;

    use super::*;
    use crate::options::{Cli, Segment};

    fn words(text: &str) -> Vec<OsString> {
        text.split_whitespace().map(OsString::from).collect()
    }

    fn translated(text: &str) -> Result<String, String> {
        let ours = translate(&words(text), &Cli::command()).map_err(|failure| failure.text)?;
        Ok(ours.iter().map(|word| word.to_string_lossy()).collect::<Vec<_>>().join(" "))
    }

    #[test]
    fn np_is_n_before_the_program_and_untouched_after_it() {
        assert_eq!(translated("run -np 4 ./a -np 5").unwrap(), "run -n 4 ./a -np 5");
        assert_eq!(translated("--dvm d run -x A=1 -np 4 -l ./a").unwrap(), "--dvm d run -x A=1 -n 4 -l ./a");
        assert_eq!(translated("run --host -np ./a").unwrap(), "run --host -np ./a");
        assert_eq!(translated("signal last USR1").unwrap(), "signal last USR1");
        let segment = translate(&words("-np 2 b -np"), &Segment::command()).unwrap();
        assert_eq!(segment, words("-n 2 b -np"));
    }

    #[test]
    fn options_of_other_launchers_are_answered_with_ours() {
        assert!(translated("run -hostfile h ./a").unwrap_err().contains("--hostfile"));
        assert!(translated("run -ppn 2 ./a").unwrap_err().contains("--host a:2,b:2"));
        assert!(translated("run --mca btl self ./a").unwrap_err().contains("-x OMPI_MCA_name=value"));
        assert!(translated("submit -l ./a").unwrap_err().contains("rsctl logs -l"));
        assert_eq!(translated("run ./a --bind-to core").unwrap(), "run ./a --bind-to core");
    }

    #[test]
    fn no_option_of_ours_is_taken_for_another_launchers() {
        for name in LAUNCHING {
            let cli = Cli::command();
            let command = cli.find_subcommand(name).unwrap();
            for arg in command.get_arguments() {
                if let Some(long) = arg.get_long() {
                    assert_eq!(correction(&format!("--{long}"), command), None);
                }
                if let Some(short) = arg.get_short() {
                    assert_eq!(correction(&format!("-{short}"), command), None);
                }
            }
        }
    }

    #[test]
    fn segments_are_cut_at_lone_colons() {
        let args = words("run -n 1 ./a x:y : -n 2 ./b : ./c");
        let cut: Vec<Vec<OsString>> = segments(&args).into_iter().map(<[OsString]>::to_vec).collect();
        assert_eq!(cut, [words("run -n 1 ./a x:y"), words("-n 2 ./b"), words("./c")]);
        assert_eq!(segments(&words("run ./a :")).len(), 2);
    }
}
