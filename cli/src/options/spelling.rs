//! Processes the command line before clap does: MPMD segments, `-np`, and options of other launchers ([`foreign`]).
//!
//! clap does not support long options with a single dash: it would parse `-hostfile` as `-h -o …` and print the help. Its error for an
//! unknown option does not say what to write instead. So this module first translates the options before the program's name. It uses
//! clap's definitions to know which options take a value.

mod foreign;

use std::ffi::{OsStr, OsString};

use crate::exit::Failure;
use foreign::Answer;

/// Cuts at every argument that is `:` alone. `["run", "-n", "1", "a", ":", "-n", "2", "b"]` gives two segments.
pub(super) fn segments(args: &[OsString]) -> Vec<&[OsString]> {
    args.split(|arg| arg == ":").collect()
}

/// Returns `args` in the spelling of rsctl. `args` are the arguments after `rsctl`, or one further MPMD segment; `command` is the clap
/// command that will parse them.
pub(super) fn translate(args: &[OsString], command: &clap::Command) -> Result<Vec<OsString>, Failure> {
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
    let mut ours = args[..start].to_vec();
    let mut at = start;
    while let Some(token) = args.get(at).and_then(|arg| arg.to_str()).filter(|token| is_option(token)) {
        let (words, used) = one(token, args.get(at + 1), launch).map_err(Failure::usage)?;
        ours.extend(words);
        at += used;
    }
    ours.extend_from_slice(&args[at..]);
    Ok(ours)
}

/// Returns an option in the spelling of rsctl, with its value if it takes one, and the number of arguments that it used.
fn one(token: &str, next: Option<&OsString>, command: &clap::Command) -> Result<(Vec<OsString>, usize), String> {
    let (name, own_value) = token.split_once('=').map_or((token, None), |(name, value)| (name, Some(value)));
    if command.get_name() == "submit"
        && let Some((_, why)) = ATTACHED.iter().find(|(option, _)| *option == name)
    {
        return Err((*why).to_owned());
    }
    let ours = match name {
        "-np" => Some("--np".to_owned()),
        _ => is_ours(name, command).then(|| name.to_owned()).or_else(|| {
            // `-map-by` is `--map-by`.
            let doubled = format!("-{name}");
            (name.len() > 2 && !name.starts_with("--") && is_ours(&doubled, command)).then_some(doubled)
        }),
    };
    if let Some(ours) = ours {
        return Ok(match (own_value, next) {
            (Some(value), _) => (vec![format!("{ours}={value}").into()], 1),
            (None, Some(next)) if takes_value(&ours, command) => (vec![ours.into(), next.clone()], 2),
            (None, _) => (vec![ours.into()], 1),
        });
    }
    match foreign::find(name) {
        // clap reports the error.
        None => Ok((vec![token.into()], 1)),
        Some((_, answer)) => answered(name, own_value, next.and_then(|next| next.to_str()), *answer),
    }
}

/// Translates an option of another launcher, or returns the error for it.
fn answered(
    name: &str,
    own_value: Option<&str>,
    next: Option<&str>,
    answer: Answer,
) -> Result<(Vec<OsString>, usize), String> {
    let value = own_value.or_else(|| next.filter(|next| !is_option(next)));
    let typed = |value: &str| format!("{name}{}{value}", if own_value.is_some() { "=" } else { " " });
    let write = |ours: &str| {
        let shown = value.filter(|_| ours.contains("{}")).map_or(name.to_owned(), typed);
        let ours = ours.replace("{}", value.unwrap_or("N"));
        Err(format!("`{shown}` is another launcher's option; here write {ours}"))
    };
    let taken = |words: &[&str], valued: bool| {
        let words = words.iter().map(|word| word.replace("{}", value.unwrap_or_default()).into()).collect();
        (words, if valued && own_value.is_none() { 2 } else { 1 })
    };
    let missing = || Err(format!("`{name}` needs a value"));
    match (answer, value) {
        (Answer::Same(words), _) if !words.iter().any(|word| word.contains("{}")) => Ok(taken(words, false)),
        (Answer::Same(_) | Answer::Hosts, None) => missing(),
        (Answer::Same(words), Some(_)) => Ok(taken(words, true)),
        (Answer::ByValue(known, ours), value) => {
            match known.iter().find(|(known, _)| value.is_some_and(|value| value.eq_ignore_ascii_case(known))) {
                Some((_, words)) => Ok(taken(words, true)),
                None => write(ours),
            }
        }
        (Answer::Hosts, Some(hosts)) => match hosts.split(',').find(|host| !host.contains(':')) {
            None => Ok(taken(&["--host", "{}"], true)),
            Some(host) => Err(format!(
                "`{}`: a host alone is one slot there and the whole node here; write --host with {host}:1 or {host}:*",
                typed(hosts)
            )),
        },
        (Answer::Write(ours), _) => write(ours),
        (Answer::Leave(why), _) => Err(format!("`{name}` is another launcher's option; leave it out: {why}")),
        (Answer::Either(meanings), value) => {
            let shown = value.filter(|_| meanings.iter().any(|(_, ours)| ours.contains("{}")));
            let one = |(meaning, ours): &(&str, &str)| format!("{meaning}: write {ours}");
            let both = meanings.iter().map(one).collect::<Vec<_>>().join("; ").replace("{}", value.unwrap_or("N"));
            Err(format!("`{}` is ambiguous: {both}", shown.map_or(name.to_owned(), typed)))
        }
    }
}

/// Whether the command has an option of exactly this name.
fn is_ours(name: &str, command: &clap::Command) -> bool {
    command.get_arguments().any(|arg| is_named(arg, name)) || GLOBAL.iter().any(|(global, _)| *global == name)
}

fn is_named(arg: &clap::Arg, name: &str) -> bool {
    match name.strip_prefix("--") {
        Some(long) => arg.get_long_and_visible_aliases().is_some_and(|names| names.contains(&long)),
        None => name.strip_prefix('-').is_some_and(|short| {
            let mut letters = short.chars();
            letters.next().is_some_and(|letter| arg.get_short() == Some(letter)) && letters.next().is_none()
        }),
    }
}

fn is_option(token: &str) -> bool {
    token.starts_with('-') && token != "-" && token != "--"
}

/// Options that clap copies from the root only when it builds a command, and whether they take a value.
const GLOBAL: [(&str, bool); 4] = [("--dvm", true), ("--json", false), ("--help", false), ("-h", false)];

/// The commands that accept options of other launchers.
const LAUNCHING: [&str; 3] = ["run", "submit", "plan"];

/// Options of `run` that a submitted job does not support, and what to use instead.
const ATTACHED: [(&str, &str); 3] = [
    ("-l", "rsctl submit prints no output of the job: use `rsctl logs -l`"),
    ("--label", "rsctl submit prints no output of the job: use `rsctl logs --label`"),
    ("--stdin", "a submitted job has no standard input: use `rsctl run`"),
];

/// Returns the index of the first argument that is neither an option nor an option's value.
pub(super) fn program_at(args: &[OsString], command: &clap::Command) -> usize {
    let mut at = 0;
    while let Some(token) = args.get(at).and_then(|arg| arg.to_str()).filter(|token| is_option(token)) {
        at += if takes_value(token, command) { 2 } else { 1 };
    }
    at.min(args.len())
}

fn takes_value(token: &str, command: &clap::Command) -> bool {
    token == "-np"
        || command.get_arguments().any(|arg| is_named(arg, token) && arg.get_action().takes_values())
        || GLOBAL.contains(&(token, true))
}

/// Whether the argument is the name of a command that launches.
pub(super) fn launches(args: &[OsString], command: &clap::Command) -> bool {
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
    fn np_is_translated_before_the_program_and_left_alone_after_it() {
        assert_eq!(translated("run -np 4 ./a -np 5").unwrap(), "run --np 4 ./a -np 5");
        assert_eq!(translated("--dvm d run -x A=1 -np 4 -l ./a").unwrap(), "--dvm d run -x A=1 --np 4 -l ./a");
        assert_eq!(translated("run --dvm d -np=4 ./a").unwrap(), "run --dvm d --np=4 ./a");
        assert_eq!(translated("run --host -np ./a").unwrap(), "run --host -np ./a");
        assert_eq!(translated("signal last USR1").unwrap(), "signal last USR1");
        let segment = translate(&words("-np 2 b -np"), &Segment::command()).unwrap();
        assert_eq!(segment, words("--np 2 b -np"));
    }

    #[test]
    fn long_options_may_have_one_dash() {
        let vectors = [
            ("run -host a:2 -hostfile h ./a", "run --host a:2 --hostfile h ./a"),
            (
                "run -map-by socket -bind-to core -rank-by=fill ./a",
                "run --map-by socket --bind-to core --rank-by=fill ./a",
            ),
            ("run -oversubscribe -timeout 5s ./a -host b", "run --oversubscribe --timeout 5s ./a -host b"),
            ("submit -wdir /w -use-hwthread-cpus ./a", "submit --wdir /w --use-hwthread-cpus ./a"),
            ("plan -gpus-per-rank 2 ./a", "plan --gpus-per-rank 2 ./a"),
        ];
        for (typed, ours) in vectors {
            assert_eq!(translated(typed).as_deref(), Ok(ours));
        }
    }

    #[test]
    fn foreign_options_of_equal_meaning_are_translated() {
        let vectors = [
            ("--n 4", "-n 4"),
            ("-ntasks 4", "-n 4"),
            ("--ntasks=4", "-n 4"),
            ("-npernode 2", "--map-by ppr:2:node"),
            ("--npernode=2", "--map-by ppr:2:node"),
            ("-pernode", "--map-by ppr:1:node"),
            ("--pernode", "--map-by ppr:1:node"),
            ("-H a:2,b:1", "--host a:2,b:1"),
            ("-hosts a:2", "--host a:2"),
            ("--hosts=a:2,b:*", "--host a:2,b:*"),
            ("-hostlist a:1", "--host a:1"),
            ("--hostlist a:1", "--host a:1"),
            ("-machinefile h", "--hostfile h"),
            ("--machinefile=h", "--hostfile h"),
            ("-bynode", "--map-by node"),
            ("--bynode", "--map-by node"),
            ("-byslot", "--map-by slot"),
            ("--byslot", "--map-by slot"),
            ("-m cyclic", "--map-by node"),
            ("--distribution=cyclic", "--map-by node"),
            ("--distribution Block", "--map-by slot"),
            ("--taskmap=block", "--map-by slot"),
            ("-rf r", "--rankfile r"),
            ("-O", "--oversubscribe"),
            ("--overcommit", "--oversubscribe"),
            ("-bind-to-core", "--bind-to core"),
            ("--bind-to-core", "--bind-to core"),
            ("-bind-to-socket", "--bind-to package"),
            ("--bind-to-socket", "--bind-to package"),
            ("-bind-to-none", "--bind-to none"),
            ("--bind-to-none", "--bind-to none"),
            ("--cpu-bind=cores", "--bind-to core"),
            ("--cpu-bind threads", "--bind-to hwthread"),
            ("--cpu-bind=sockets", "--bind-to package"),
            ("--cpu-bind=ldoms", "--bind-to numa"),
            ("--cpu-bind=none", "--bind-to none"),
            ("--cpu_bind=no", "--bind-to none"),
            ("-membind firsttouch", "--mem-bind none"),
            ("--membind=firsttouch", "--mem-bind none"),
            ("--gpus-per-task=2", "--gpus-per-rank 2 --gpus-visible"),
            ("-gpus-per-proc 1", "--gpus-per-rank 1 --gpus-visible"),
            ("--gpus-per-proc 1", "--gpus-per-rank 1 --gpus-visible"),
            ("--wd /w", "--wdir /w"),
            ("-wd /w", "--wdir /w"),
            ("--cwd=/w", "--wdir /w"),
            ("-cwd /w", "--wdir /w"),
            ("-dir /w", "--wdir /w"),
            ("-D /w", "--wdir /w"),
            ("--chdir /w", "--wdir /w"),
            ("-genvall", ""),
            ("--genvall", ""),
            ("-envall", ""),
            ("--envall", ""),
            ("--export-all", ""),
            ("--allow-run-as-root", ""),
            ("-J x", "--name x"),
            ("--job-name=x", "--name x"),
        ];
        for (typed, ours) in vectors {
            let ours = format!("run -l {ours} ./a -O").split_whitespace().collect::<Vec<_>>().join(" ");
            assert_eq!(translated(&format!("run -l {typed} ./a -O")), Ok(ours), "{typed}");
        }
        let same = |answer: &Answer| matches!(answer, Answer::Same(_) | Answer::ByValue(..) | Answer::Hosts);
        let tested = |name: &&str| vectors.iter().any(|(typed, _)| typed.split([' ', '=']).next() == Some(name));
        let rows = foreign::ROWS.iter().filter(|(_, answer)| same(answer));
        let untested: Vec<&str> = rows.flat_map(|(names, _)| *names).copied().filter(|name| !tested(name)).collect();
        assert!(untested.is_empty(), "{untested:?}");
    }

    #[test]
    fn clap_accepts_every_translated_option() {
        for (names, answer) in foreign::ROWS {
            let values: &[&str] = match answer {
                Answer::Same(words) if words.contains(&"--name") => &["x"],
                Answer::Same(_) => &["2"],
                Answer::ByValue(known, _) => &known.iter().map(|(value, _)| *value).collect::<Vec<_>>(),
                Answer::Hosts => &["a:2"],
                Answer::Write(_) | Answer::Leave(_) | Answer::Either(_) => &[],
            };
            for (name, value) in names.iter().flat_map(|name| values.iter().map(move |value| (name, value))) {
                let args = words(&format!("run {name}={value} ./a"));
                assert!(crate::options::read(&args).is_ok(), "{name}={value}");
            }
        }
    }

    #[test]
    fn a_foreign_option_of_different_meaning_is_refused_with_what_to_write() {
        let vectors = [
            (
                "-ppn 2",
                "`-ppn 2` is another launcher's option; here write --map-by ppr:2:node (ranks per node; no node is used twice)",
            ),
            (
                "--ppn=2",
                "`--ppn=2` is another launcher's option; here write --map-by ppr:2:node (ranks per node; no node is used twice)",
            ),
            (
                "-perhost -l",
                "`-perhost` is another launcher's option; here write --map-by ppr:N:node (ranks per node; no node is used twice)",
            ),
            (
                "--ntasks-per-node=4",
                "`--ntasks-per-node=4` is another launcher's option; here write --map-by ppr:4:node",
            ),
            (
                "-npersocket 2",
                "`-npersocket 2` is another launcher's option; here write --map-by ppr:2:package --bind-to package",
            ),
            (
                "--ntasks-per-socket 2",
                "`--ntasks-per-socket 2` is another launcher's option; here write --map-by ppr:2:package",
            ),
            ("--cpus-per-task=4", "`--cpus-per-task=4` is another launcher's option; here write --map-by slot:pe=4"),
            ("--cpus-per-proc 4", "`--cpus-per-proc 4` is another launcher's option; here write --map-by slot:pe=4"),
            (
                "-N 2",
                "`-N 2` is ambiguous: ranks per node (Open MPI): write --map-by ppr:2:node; \
                 number of nodes (srun, flux): write --host with their names, or --host +e:2 for idle nodes",
            ),
            (
                "-c 4",
                "`-c 4` is ambiguous: number of ranks (Open MPI): write -n 4; cpus per rank (srun): write --map-by slot:pe=4",
            ),
            (
                "-s",
                "`-s` is ambiguous: ranks that read standard input (Hydra): write --stdin all, --stdin none or --stdin RANK; \
                 nodes shared with other jobs (srun): write nothing, because rsd always shares nodes",
            ),
            (
                "-H a:2,b",
                "`-H a:2,b`: a host alone is one slot there and the whole node here; write --host with b:1 or b:*",
            ),
            ("-hosts -l", "`-hosts` needs a value"),
            ("-machinefile -l", "`-machinefile` needs a value"),
            (
                "-f h",
                "`-f h` is another launcher's option; here write --hostfile h (a host without a number is the whole node)",
            ),
            ("-w a,b", "`-w a,b` is another launcher's option; here write --host a,b"),
            (
                "--exclude=a",
                "`--exclude=a` is another launcher's option; here write --host ^a (and ^ before each further name)",
            ),
            ("--cpu-list 0,2", "`--cpu-list 0,2` is another launcher's option; here write --map-by pe-list=0,2"),
            ("--nolocal", "`--nolocal` is another launcher's option; here write --map-by slot:nolocal"),
            (
                "--report-bindings",
                "`--report-bindings` is another launcher's option; here write --show-plan with run; \
                 `rsctl plan` with the same options shows it and starts nothing",
            ),
            (
                "--display map",
                "`--display` is another launcher's option; leave it out: `rsctl plan` with the same options shows where ranks go",
            ),
            ("--mca btl self", "`--mca` is another launcher's option; here write -x OMPI_MCA_name=value"),
            ("-rr", "`-rr` is another launcher's option; here write --map-by node"),
            ("-G 2", "`-G` is another launcher's option; here write --gpus-per-rank N"),
        ];
        for (typed, expected) in vectors {
            assert_eq!(translated(&format!("run {typed} ./a")), Err(expected.to_owned()), "{typed}");
        }
        let text = translated("run --cpu-bind=verbose,cores ./a").unwrap_err();
        assert!(text.contains("here write --bind-to core, hwthread, package, numa or none"), "{text}");
        assert!(translated("run --distribution=plane=2 ./a").unwrap_err().contains("--rankfile FILE (any)"));
        assert!(
            translated("run -membind local ./a").unwrap_err().contains("--mem-bind local, preferred or interleave")
        );
        assert!(translated("submit -l ./a").unwrap_err().contains("rsctl logs -l"));
        assert_eq!(translated("run ./a -ppn 2").unwrap(), "run ./a -ppn 2");
    }

    #[test]
    fn every_row_is_translated_or_refused_under_each_of_its_names() {
        for (names, answer) in foreign::ROWS {
            for name in *names {
                let outcome = translated(&format!("run {name} x ./a"));
                let expected = match answer {
                    Answer::Same(_) => outcome.is_ok(),
                    Answer::ByValue(..) | Answer::Write(_) => outcome.is_err_and(|text| text.contains("; here write ")),
                    Answer::Hosts => outcome.is_err_and(|text| text.contains("write --host with x:1")),
                    Answer::Leave(_) => outcome.is_err_and(|text| text.contains("; leave it out: ")),
                    Answer::Either(_) => outcome.is_err_and(|text| text.matches(": write ").count() > 1),
                };
                assert!(expected, "{name}");
            }
        }
    }

    #[test]
    fn no_row_has_the_name_of_an_option_of_rsctl_and_no_name_is_listed_twice() {
        let mut listed: Vec<&str> = foreign::ROWS.iter().flat_map(|(names, _)| *names).copied().collect();
        for name in LAUNCHING {
            let mut cli = Cli::command();
            cli.build();
            let command = cli.find_subcommand(name).unwrap();
            let taken: Vec<&&str> = listed.iter().filter(|name| is_ours(name, command)).collect();
            assert!(taken.is_empty(), "{taken:?}");
        }
        let all = listed.len();
        listed.sort_unstable();
        listed.dedup();
        assert_eq!(listed.len(), all);
    }

    #[test]
    fn segments_are_cut_at_lone_colons() {
        let args = words("run -n 1 ./a x:y : -n 2 ./b : ./c");
        let cut: Vec<Vec<OsString>> = segments(&args).into_iter().map(<[OsString]>::to_vec).collect();
        assert_eq!(cut, [words("run -n 1 ./a x:y"), words("-n 2 ./b"), words("./c")]);
        assert_eq!(segments(&words("run ./a :")).len(), 2);
    }
}
