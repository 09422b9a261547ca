//! Arguments → [`Cli`]: cuts the segments, translates options of other launchers, and lets clap parse the result.

use std::borrow::Cow;
use std::ffi::OsString;

use clap::builder::Styles;
use clap::{Args, CommandFactory, FromArgMatches};

use super::cli::{Cli, Command, Global};
use super::launch::{Launch, Run, Segment};
use super::overlay::overlay;
use super::plan::in_plan;
use super::spelling;
use super::unread::Unread;
use crate::print::visible;

/// Reads the arguments after the program's name.
pub(crate) fn read(args: &[OsString]) -> Result<Cli, Unread> {
    // Help and errors come from the full definitions.
    let lean = lean(args).and_then(|command| read_by(command, args).ok());
    lean.map_or_else(|| read_by(Cli::command(), args).map_err(|unread| escaped(unread, args)), Ok)
}

/// Escapes the control characters of arguments that an error repeats. clap's own are its colours, so the error is made again without
/// them.
fn escaped(unread: Unread, args: &[OsString]) -> Unread {
    let Unread::Clap(error, tip) = unread else { return unread };
    if !error.use_stderr() {
        return Unread::Clap(error, tip);
    }
    let Err(Unread::Clap(plain, _)) = read_by(Cli::command().styles(Styles::plain()), args) else {
        return Unread::Clap(error, tip);
    };
    match visible(&plain.render().ansi().to_string()) {
        Cow::Borrowed(_) => Unread::Clap(error, tip),
        Cow::Owned(text) => Unread::Escaped(text, tip),
    }
}

/// The definitions that a launch needs, without those of other commands: building all of them takes longer than parsing a launch.
fn lean(args: &[OsString]) -> Option<clap::Command> {
    let globals = Global::augment_args(clap::Command::new("rsctl"));
    let launch = match args.get(spelling::program_at(args, &globals))?.to_str()? {
        "run" => Run::augment_args(clap::Command::new("run")),
        "submit" => Launch::augment_args(clap::Command::new("submit")),
        _ => return None,
    };
    Some(globals.subcommand(launch))
}

fn read_by(command: clap::Command, args: &[OsString]) -> Result<Cli, Unread> {
    let segments = match spelling::launches(args, &command) {
        true => spelling::segments(args),
        false => vec![args],
    };
    let first = spelling::translate(segments[0], &command).map_err(Unread::Failure)?;
    let argv = std::iter::once(OsString::from("rsctl")).chain(first);
    let styles = command.get_styles().clone();
    let mut cli = command
        .try_get_matches_from(argv)
        .and_then(|matches| Cli::from_arg_matches(&matches))
        .map_err(|error| Unread::Clap(error, None))?;
    let planned = matches!(cli.command, Command::Plan(_));
    let others =
        segments[1..].iter().map(|args| read_segment(args, planned, &styles)).collect::<Result<Vec<_>, _>>()?;
    match &mut cli.command {
        Command::Run(Run { launch, .. }) | Command::Submit(launch) => launch.others = others,
        Command::Plan(options) => {
            options.run.launch.others = others;
            if let Some(text) = &options.diff {
                options.other = Some(overlay(options.run.launch.clone(), text, &styles)?);
            }
        }
        Command::Ps(_)
        | Command::Report { .. }
        | Command::Job(_)
        | Command::Logs(_)
        | Command::Wait { .. }
        | Command::Attach { .. }
        | Command::Signal { .. }
        | Command::Cancel { .. }
        | Command::Release { .. }
        | Command::Login { .. }
        | Command::Up(_)
        | Command::Down(_)
        | Command::HoldConnections
        | Command::Why { .. }
        | Command::Hold { .. }
        | Command::Priority { .. }
        | Command::Waits { .. }
        | Command::Nodes
        | Command::Node(_)
        | Command::Head(_)
        | Command::Group(_)
        | Command::Kv(_)
        | Command::Mpi(_)
        | Command::Completion { .. }
        | Command::Name(_)
        | Command::Man { .. }
        | Command::Help { .. }
        | Command::Events { .. }
        | Command::Metrics
        | Command::Top(_)
        | Command::Doctor { .. }
        | Command::Upgrade(_)
        | Command::Examine
        | Command::Ports { .. } => {}
    }
    Ok(cli)
}

fn read_segment(args: &[OsString], planned: bool, styles: &Styles) -> Result<Segment, Unread> {
    const ONLY: &str =
        "after ` : ` only -n, --host, --hostfile, --wdir and -x are allowed; other options go before the first program";
    // Set here, because attributes on the type would also apply to the command of the first program.
    let command = Segment::command().name("rsctl run … :").no_binary_name(true).disable_help_flag(true);
    let command = command.styles(styles.clone());
    let command = if planned { command.mut_args(in_plan) } else { command };
    let args = spelling::translate(args, &command).map_err(Unread::Failure)?;
    let matches = command.try_get_matches_from(args).and_then(|matches| Segment::from_arg_matches(&matches));
    matches.map_err(|error| Unread::Clap(error, Some(ONLY)))
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

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
            Unread::Escaped(text, tip) => text + tip.unwrap_or_default(),
            Unread::Failure(failure) => failure.text,
        }
    }

    #[test]
    fn errors_show_the_control_characters_of_arguments() {
        let mistake = cli("plan --diff --nosuch ./a").unwrap_err();
        assert!(matches!(mistake, Unread::Clap(..)), "{mistake:?}");
        for text in [
            "plan --diff --\u{1b}[2Jx ./a",
            "run --\u{1b}[2Jx ./a",
            "run -n \u{1b}[2J ./a",
            "run ./a : --\u{1b}[2Jx ./b",
            "\u{1b}[2J",
            "wait \u{9b}2J",
        ] {
            let said = complaint(text);
            assert!(said.contains("[2J") || said.contains("\\u{9b}2J"), "{said:?}");
            assert!(!said.contains(|c: char| c.is_control() && c != '\n'), "{said:?}");
        }
    }

    #[test]
    fn claps_own_checks_accept_the_definitions() {
        Cli::command().debug_assert();
        Segment::command().debug_assert();
    }

    #[test]
    fn arguments_after_the_program_belong_to_it() {
        let launch = launch("run -np 3 -x A=1 -x B ./a -n 9 --json -- --help");
        assert_eq!(launch.first.n, Some(3));
        assert_eq!(launch.first.variables, ["A=1", "B"]);
        assert_eq!(launch.first.program, ["./a", "-n", "9", "--json", "--", "--help"]);
    }

    #[test]
    fn a_launch_is_read_without_the_definitions_of_other_commands() {
        let is_lean = |text: &str| {
            let args: Vec<_> = text.split_whitespace().map(OsString::from).collect();
            lean(&args).is_some_and(|command| read_by(command, &args).is_ok())
        };
        for line in ["run ./a", "--json submit ./a", "--dvm a run -n 2 ./a", "--dvm=a --json run ./a : -n 2 ./b"] {
            assert!(is_lean(line), "{line}");
        }
        assert!(!is_lean("--dvm run ps") && !is_lean("ps"));
        let Cli { global, command } = cli("--dvm a run -n 2 ./a").unwrap();
        assert_eq!(global.dvm.as_deref(), Some("a".as_ref()));
        assert!(matches!(command, Command::Run(run) if run.launch.first.n == Some(2)));
    }

    #[test]
    fn a_double_dash_ends_the_options_of_rsctl() {
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
    fn rank_counts_out_of_range_are_refused() {
        assert!(complaint("run -n 0 ./a").contains("at least one rank"));
        assert!(complaint("run -n -3 ./a").contains("at least one rank"));
        assert!(complaint("run -n 99999999999 ./a").contains("at most 16777216"));
        assert!(complaint("run -n four ./a").contains("expected a number of ranks"));
        assert_eq!(launch("run -n4 ./a").first.n, Some(4));
        assert_eq!(launch("run --np=4 ./a").first.n, Some(4));
    }

    #[test]
    fn an_unknown_policy_is_refused_with_the_known_ones() {
        let placing = launch("run --map-by socket:PE=2 --rank-by span --bind-to core ./a").placing;
        assert_eq!(placing.map_by.unwrap().map_by.to_string(), "package:pe=2");
        assert!(complaint("run --map-by cores ./a").contains("did you mean `core`?"));
        assert!(complaint("run --map-by= ./a").contains("expected a mapping: slot"));
        assert!(complaint("run --rank-by core ./a").contains("write `span`, one per object in turn, or `fill`"));
        assert!(complaint("run --bind-to core:2 ./a").contains("--map-by slot:pe=2"));
        assert!(complaint("run --mem-bind near ./a").contains("none, local (only near memory), preferred"));
        assert!(complaint("run --compat ompi4 ./a").contains("`openmpi5`"));
        assert!(complaint("run --gpus-per-rank 0 ./a").contains("0 is not in 1..=1024"));
        assert!(complaint("run --gpus-visible ./a").contains("--gpus-per-rank <N>"));
    }

    #[test]
    fn a_colon_outside_a_launch_is_an_ordinary_argument() {
        assert!(complaint("signal : 9").contains("expected a job (`last`"));
    }
}
