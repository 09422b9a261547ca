//! `plan --diff`: a second set of options, which replace those of the first.

use std::ffi::OsString;

use clap::builder::Styles;
use clap::parser::ValueSource;
use clap::{ArgMatches, Args, FromArgMatches};

use super::launch::Launch;
use super::spelling;
use super::unread::Unread;
use crate::exit::Failure;

/// Returns the launch in which `options` replace those of the same name. All options that name hosts count as one.
pub(super) fn overlay(mut launch: Launch, options: &str, styles: &Styles) -> Result<Launch, Unread> {
    const NAME: &str = "rsctl plan --diff";
    let command = Launch::augment_args_for_update(clap::Command::new(NAME))
        .styles(styles.clone())
        .no_binary_name(true)
        .disable_help_flag(true)
        .mut_args(|arg| arg.required(false));
    let words = words(options).map_err(Unread::Failure)?;
    let words = spelling::translate(&words, &command).map_err(Unread::Failure)?;
    let unread = |error| Unread::Clap(error, Some("--diff takes options of run, as one word: --diff '--map-by node'"));
    let mut matches = command.try_get_matches_from(words).map_err(unread)?;
    // A default must not override an option that was given.
    let said = |matches: &ArgMatches, id: &str| matches.value_source(id) != Some(ValueSource::DefaultValue);
    let ids: Vec<String> = matches.ids().map(|id| id.as_str().to_owned()).collect();
    let unsaid: Vec<String> = ids.into_iter().filter(|id| !said(&matches, id)).collect();
    for id in &unsaid {
        let _ = matches.try_clear_id(id);
    }
    if matches.contains_id("program") {
        let text = "--diff takes options only, without a program, as in --diff '--map-by node'";
        return Err(Unread::Failure(Failure::usage(text)));
    }
    if matches.contains_id("host") || matches.contains_id("hostfile") {
        launch.first.host.clear();
        launch.first.hostfile = None;
    }
    // A rank file is a mapping too.
    if matches.contains_id("map_by") || matches.contains_id("rankfile") {
        (launch.placing.map_by, launch.placing.rankfile) = (None, None);
    }
    launch.update_from_arg_matches_mut(&mut matches).map_err(unread)?;
    Ok(launch)
}

/// Splits text into words as a shell does, with `'…'` and `"…"` around words that contain blanks.
fn words(text: &str) -> Result<Vec<OsString>, Failure> {
    let mut words: Vec<OsString> = Vec::new();
    let (mut word, mut quote) = (None::<String>, None);
    for c in text.chars() {
        match quote {
            Some(open) if c == open => quote = None,
            Some(_) => word.get_or_insert_default().push(c),
            None if c == '\'' || c == '"' => {
                quote = Some(c);
                word.get_or_insert_default();
            }
            None if c.is_whitespace() => words.extend(word.take().map(OsString::from)),
            None => word.get_or_insert_default().push(c),
        }
    }
    if let Some(open) = quote {
        return Err(Failure::usage(format!("--diff {text}: missing closing {open}")));
    }
    words.extend(word.map(OsString::from));
    Ok(words)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::options::plan::PlanOptions;
    use crate::options::{self, Command};

    fn plan(text: &[&str]) -> Result<PlanOptions, String> {
        let args: Vec<OsString> = ["plan"].iter().chain(text).map(OsString::from).collect();
        match options::read(&args) {
            Ok(cli) => match cli.command {
                Command::Plan(options) => Ok(*options),
                other => panic!("{other:?}"),
            },
            Err(Unread::Clap(error, tip)) => Err(format!("{error}{}", tip.unwrap_or_default())),
            Err(Unread::Escaped(text, tip)) => Err(text + tip.unwrap_or_default()),
            Err(Unread::Failure(failure)) => Err(failure.text),
        }
    }

    #[test]
    fn plan_takes_every_option_of_run() {
        let options = plan(&["-n", "2", "-l", "--stdin", "none", "--timeout", "5s", "./a", "-n", "9"]).unwrap();
        assert_eq!(options.run.launch.first.n, Some(2));
        assert_eq!(options.run.launch.first.program, ["./a", "-n", "9"]);
    }

    #[test]
    fn a_plan_needs_no_program() {
        assert!(plan(&["-n", "2"]).unwrap().run.launch.first.program.is_empty());
        let two = plan(&["-n", "2", ":", "-n", "1", "--host", "b"]).unwrap().run.launch;
        assert_eq!((two.first.n, two.others.len(), two.others[0].n), (Some(2), 1, Some(1)));
    }

    #[test]
    fn the_options_of_diff_replace_the_first_ones() {
        let options = plan(&["-n", "2", "--hostfile", "h", "--oversubscribe", "--diff", "-n 4 --host 'a,b'", "./a"]);
        let options = options.unwrap();
        let (first, other) = (options.run.launch, options.other.unwrap());
        assert_eq!((first.first.n, first.first.hostfile.is_some(), first.first.host.len()), (Some(2), true, 0));
        assert_eq!((other.first.n, other.first.hostfile, &other.first.host[..]), (Some(4), None, &["a,b".into()][..]));
        assert_eq!((other.placing.oversubscribe, &other.first.program[..]), (true, &["./a".into()][..]));
    }

    #[test]
    fn a_diff_that_is_not_options_is_refused() {
        assert!(plan(&["--diff", "--map-by node ./b"]).unwrap_err().contains("takes options only"));
        assert!(plan(&["--diff", "--map-by 'node"]).unwrap_err().contains("missing closing"));
        assert!(plan(&["--diff", "--no-such"]).unwrap_err().contains("--diff takes options of run"));
    }
}
