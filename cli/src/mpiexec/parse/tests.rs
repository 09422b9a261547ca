use super::super::table::{self, Takes};
use super::*;

fn no_file(path: &Path) -> Result<String, String> {
    Err(format!("cannot read {}: no such file", path.display()))
}

fn words(line: &str) -> Vec<OsString> {
    line.split_whitespace().map(OsString::from).collect()
}

fn parsed(line: &str) -> Result<Asked, String> {
    parse(&words(line), &no_file)
}

#[track_caller]
fn program(line: &str) -> Program {
    let asked = parsed(line).unwrap();
    assert_eq!(asked.notices, Vec::<String>::new());
    let [program] = &asked.programs[..] else { panic!("{:?}", asked.programs) };
    program.clone()
}

#[track_caller]
fn job(options: &str) -> Job {
    parsed(&format!("{options} ./a")).unwrap().job
}

/// What a command line with the text of a configuration file requests.
fn with_file(line: &str, text: &str) -> Result<Asked, String> {
    let read = |path: &Path| match path.to_str() {
        Some("cfg") => Ok(text.to_owned()),
        _ => no_file(path),
    };
    parse(&words(line), &read)
}

#[test]
fn ranks_are_counted_in_every_spelling() {
    for line in
        ["-n 4 ./a", "-np 4 ./a", "-c 4 ./a", "--n 4 ./a", "--np=4 ./a", "-n=4 ./a", "-n4 ./a", "-n 4 -np 4 ./a"]
    {
        assert_eq!((program(line).n, &program(line).argv[..]), (Some(4), &words("./a")[..]), "{line}");
    }
    for (line, expected) in [
        ("-n 0 ./a", "-n 0: a job has at least one rank"),
        ("-n -1 ./a", "-n -1: a job has at least one rank"),
        ("-n abc ./a", "-n abc: write a number of ranks"),
        ("-n 99999999999 ./a", "at most 16777216 ranks"),
        ("-np= ./a", "-np : write a number of ranks"),
        ("-n", "-n needs a value: -n N"),
        ("-n 2", "no program given after 2"),
        ("-n 2 -np 3 ./a", "-np: given twice"),
        ("", "no program given: mpiexec -n 4 ./a.out"),
        ("-n : ./a", "-n needs a value"),
    ] {
        let error = parsed(line).unwrap_err();
        assert!(error.contains(expected), "{line}: {error}");
    }
}

#[test]
fn options_after_the_program_belong_to_the_program() {
    let program = program("-n 2 ./a -n 9 --nosuch -- x=y");
    assert_eq!((program.n, program.argv), (Some(2), words("./a -n 9 --nosuch -- x=y")));
    assert_eq!(super::tests::program("-n 2 -- -strange x").argv, words("-strange x"));
    assert_eq!(super::tests::program("- x").argv, words("- x"));
}

#[test]
fn programs_are_joined_by_colons() {
    let asked = parsed("-timeout 5 -n 1 ./a : -n 2 -wdir /w -host b ./b x : -l ./c").unwrap();
    let found: Vec<_> = asked.programs.iter().map(|program| (program.n, program.argv.clone())).collect();
    assert_eq!(found, [(Some(1), words("./a")), (Some(2), words("./b x")), (None, words("./c"))]);
    assert_eq!(
        (asked.programs[1].wdir.as_deref(), &asked.programs[1].hosts[..]),
        (Some(Path::new("/w")), &["b".to_owned()][..])
    );
    assert!(asked.job.output.label && asked.job.timeout == Some(Duration::from_secs(5)));
    for line in [": ./a", "./a :", "./a : : ./b"] {
        assert!(parsed(line).unwrap_err().contains("no program before or after ` : `"), "{line}");
    }
    assert!(parsed("-n 2 ./a : -n 2").unwrap_err().contains("no program given after 2"));
}

#[test]
fn hosts_are_listed_in_every_form() {
    let hosts = |line: &str| {
        let asked = parsed(&format!("{line} ./a")).unwrap();
        (asked.programs[0].hosts.clone(), asked.programs[0].n, asked.job.by_hydra)
    };
    let list = |text: &str| vec![text.to_owned()];
    assert_eq!(hosts("-host a"), (list("a"), None, false));
    assert_eq!(hosts("-H a,b"), (list("a:1,b:1"), None, false));
    assert_eq!(hosts("--host a:2,b"), (list("a:2,b:1"), None, false));
    let lists = |texts: [&str; 2]| texts.map(str::to_owned).to_vec();
    assert_eq!(hosts("-H a -H b"), (lists(["a:1", "b:1"]), None, false));
    assert_eq!(hosts("-H a:3 -H b,c"), (lists(["a:3", "b:1,c:1"]), None, false));
    assert_eq!(hosts("-H gpu[01-02] -H a,b"), (lists(["gpu[01-02]", "a:1,b:1"]), None, false));
    assert_eq!(hosts("-H a,b -H gpu[01-02]"), (lists(["a:1,b:1", "gpu[01-02]"]), None, false));
    assert_eq!(hosts("-hosts a,b -H c"), (lists(["a,b", "c"]), None, true));
    assert_eq!(hosts("-host gpu[01-16]"), (list("gpu[01-16]"), None, false));
    assert_eq!(hosts("-host gpu[01,03],+n2,^c"), (list("gpu[01,03],+n2,^c"), None, false));
    assert_eq!(hosts("-hosts a:2,b:3"), (list("a:2,b:3"), None, true));
    assert_eq!(hosts("-hosts 2 a b"), (list("a:1,b:1"), Some(2), false));
    assert_eq!(hosts("-hosts 2 a 4 b 3"), (list("a:4,b:3"), Some(7), false));
    assert_eq!(hosts("-n 5 -hosts 2 a 4 b"), (list("a:4,b:1"), Some(5), false));
    assert!(parsed("-hosts 3 a b").unwrap_err().contains("-hosts 3 HOST [N] …, with 3 hosts"));
    assert!(parsed("-hosts 99999999999 a b").unwrap_err().contains("with 99999999999 hosts"));
    assert!(parsed("-hosts 1 a 0 ./a").unwrap_err().contains("leave the host out"));
    assert!(job("-f h").by_hydra && !job("-hostfile h").by_hydra && !job("-machinefile h").by_hydra);
    assert_eq!(program("-machinefile h ./a").hostfile.as_deref(), Some(Path::new("h")));
}

#[test]
fn ranks_per_node_are_by_hydras_rules_or_open_mpis() {
    for (options, expected) in [
        ("-ppn 2", (Some(2), true)),
        ("--perhost=2", (Some(2), true)),
        ("-cores 2", (Some(2), true)),
        ("-N 2", (Some(2), false)),
        ("--npernode 2", (Some(2), false)),
        ("-pernode", (Some(1), false)),
    ] {
        let job = job(options);
        assert_eq!((job.per_node, job.by_hydra), expected, "{options}");
    }
    assert_eq!(job("-npersocket 2").per_package, Some(2));
    assert_eq!(job("--map-by ppr:2:package").map_by.as_deref(), Some("ppr:2:package"));
    assert_eq!(job("-ppr 2:node").map_by.as_deref(), Some("ppr:2:node"));
    assert!(parsed("-ppn 0 ./a").unwrap_err().contains("write the number of ranks per node"));
    assert!(parsed("-bynode -byslot ./a").unwrap_err().contains("-byslot: given twice, or contradicts"));
}

#[test]
fn variables_are_set_passed_and_left_out() {
    let set = |name: &str, value: &str| Variable::Set(name.into(), value.into());
    let asked = parsed("-genv A 1 -env B=2=3 -x C=4 -x D -mca btl self,tcp --pmixmca gds hash ./a").unwrap();
    assert_eq!(asked.job.variables, [set("A", "1"), set("OMPI_MCA_btl", "self,tcp"), set("PMIX_MCA_gds", "hash")]);
    assert_eq!(asked.programs[0].variables, [set("B", "2=3"), set("C", "4"), Variable::Pass("D".into())]);
    assert_eq!(job("-genvlist A,B,").inherits, Some(Inherits::Only(vec!["A".into(), "B".into()])));
    assert_eq!(job("-genvnone").inherits, Some(Inherits::None));
    assert_eq!(program("-envnone ./a").inherits, Some(Inherits::None));
    assert!(parsed("-genvnone -genvall ./a").unwrap_err().contains("contradicts an earlier option"));
    assert!(parsed("-env A").unwrap_err().contains("-env needs a value: -env NAME VALUE"));
    assert!(parsed("-env =1 ./a").unwrap_err().contains("write -env NAME VALUE"));
    assert!(parsed("-mca btl").unwrap_err().contains("-mca needs a value: -mca NAME VALUE"));
}

#[test]
fn what_concerns_the_job_is_parsed() {
    let job = job("-umask 027 -priority 1:3 -usize 12 -timeout 1m30s -stdin all -exitcodes -q -dvm n0 -oversubscribe");
    assert_eq!((job.umask, job.nice, job.universe), (Some(0o27), Some(10), Some(Universe::Size(12))));
    assert_eq!((job.timeout, job.stdin.as_deref()), (Some(Duration::from_secs(90)), Some("all")));
    assert!(job.exit_codes && job.quiet && job.oversubscribe == Some(true) && job.dvm == Some("n0".into()));
    assert_eq!(super::tests::job("-usize infinite").universe, Some(Universe::Infinite));
    assert_eq!(super::tests::job("-timeout -1").timeout, Some(Duration::ZERO));
    for (line, expected) in [
        ("-umask 9 ./a", "three octal digits"),
        ("-umask 7777 ./a", "three octal digits"),
        ("-priority 5 ./a", "write 0 (idle)"),
        ("-usize 0 ./a", "write a number, SYSTEM or INFINITE"),
        ("-timeout soon ./a", "write seconds, or a time such as 5m"),
        ("-l=x ./a", "-l: takes no value, but has `x`"),
    ] {
        let error = parsed(line).unwrap_err();
        assert!(error.contains(expected), "{line}: {error}");
    }
}

#[test]
fn a_job_may_outlive_ranks() {
    let fault_tolerant = Variable::Set("OMPI_MCA_mpi_ft_enable".into(), "1".into());
    for options in ["-disable-auto-cleanup", "-enable-recovery", "-continuous"] {
        assert_eq!((job(options).survives, job(options).variables), (true, Vec::new()), "{options}");
    }
    for options in ["--with-ft ulfm", "-with-ft mpi"] {
        assert_eq!((job(options).survives, &job(options).variables[..]), (true, &[fault_tolerant.clone()][..]));
    }
    assert!(!job("-with-ft none").survives && !job("-disable-recovery").survives);
    assert!(parsed("-with-ft x ./a").unwrap_err().contains("-with-ft x: write mpi, ulfm or none"));
}

#[test]
fn output_is_labelled_and_written_to_files() {
    for options in ["-l", "-prepend-rank", "-lines", "--output rank"] {
        assert!(job(options).output.label, "{options}");
    }
    for options in ["-tag-output", "--output tag", "--output TAG-DETAILED"] {
        assert!(job(options).output.tag, "{options}");
    }
    let output = job("--output tag,merge,timestamp,dir=out:nocopy").output;
    assert!(output.tag && output.merged && output.time && output.directory == Some(("out".into(), true)));
    assert_eq!(job("-output-filename o").output.directory, Some(("o".into(), false)));
    assert_eq!(job("-outfile-pattern o.%r").output.stdout.as_deref(), Some("o.%r"));
    assert!(parsed("--output xml ./a").unwrap_err().contains("--output xml: write tag, rank"));
}

#[test]
fn s_names_ranks_in_hydra_and_nothing_in_open_mpi() {
    assert_eq!(job("-s all").stdin.as_deref(), Some("all"));
    assert_eq!(job("-s 3").stdin.as_deref(), Some("3"));
    let asked = parsed("-s ./a").unwrap();
    assert_eq!((asked.programs[0].argv.clone(), asked.job.stdin), (words("./a"), None));
    assert!(asked.notices[0].starts_with("-s is ignored: rsd copies no files"), "{:?}", asked.notices);
}

#[test]
fn a_configuration_file_holds_the_programs() {
    let text = "# two programs\n-n 1 sh -c 'echo \"a b\"'\n-n 2 -env X \"it's\" \\\n  ./b\n";
    for option in ["-configfile", "--app", "--configfile"] {
        let asked = with_file(&format!("-l {option} cfg"), text).unwrap();
        let argv: Vec<OsString> = ["sh", "-c", "echo \"a b\""].map(OsString::from).to_vec();
        assert_eq!((asked.programs[0].n, &asked.programs[0].argv), (Some(1), &argv));
        assert_eq!((asked.programs[1].n, &asked.programs[1].argv[..]), (Some(2), &words("./b")[..]));
        assert_eq!(asked.programs[1].variables, [Variable::Set("X".into(), "it's".into())]);
        assert!(asked.job.output.label);
    }
    let own = with_file("-configfile cfg", "./a -configfile x\n").unwrap();
    assert_eq!(own.programs[0].argv, words("./a -configfile x"));
    for (line, text, expected) in [
        ("-configfile cfg", "-n 1 ./a\n-n x ./b\n", "cfg:2: -n x: write a number of ranks"),
        ("-configfile cfg", "-n 1 'sh\n", "cfg:1: missing closing '"),
        ("-configfile cfg", "# nothing\n", "cfg: the file names no program"),
        ("-configfile cfg", "-configfile other\n", "cfg:1: a configuration file cannot name another one"),
        ("-configfile cfg ./a", "./a\n", "leave out ./a"),
        ("-n 2 -configfile cfg", "./a\n", "only options of the whole job"),
        ("-configfile other", "", "cannot read other: no such file"),
        ("-configfile", "", "-configfile needs a value: -configfile FILE"),
    ] {
        let error = with_file(line, text).unwrap_err();
        assert!(error.contains(expected), "{line}, {text:?}: {error}");
    }
}

#[test]
fn unknown_options_name_the_nearest_and_refused_ones_what_to_do() {
    for (line, expected) in [
        ("-hostfil h ./a", "unknown option -hostfil; did you mean -hostfile?"),
        ("--oversubscrib ./a", "unknown option --oversubscrib; did you mean -oversubscribe?"),
        ("-nosuchoption=3 ./a", "unknown option -nosuchoption (all options: mpiexec --help)"),
        ("--zzzzzzzz ./a", "unknown option --zzzzzzzz (all"),
        ("-rankmap (0,1) ./a", "-rankmap is not supported: write -rankfile FILE"),
        ("-file x ./a", "-file is not supported: its form is not defined; use -configfile"),
    ] {
        let error = parsed(line).unwrap_err();
        assert!(error.contains(expected), "{line}: {error}");
    }
}

#[test]
fn options_without_a_meaning_are_named_once() {
    let asked = parsed("-launcher ssh -iface eth0 -n 1 ./a : -launcher ssh ./b").unwrap();
    assert_eq!(asked.notices.len(), 2, "{:?}", asked.notices);
    assert_eq!(asked.notices[0], "-launcher is ignored: daemons already run on the nodes");
    assert_eq!(parsed("-nompi -noprompt --allow-run-as-root ./a").unwrap().notices, Vec::<String>::new());
}

#[test]
fn a_job_has_a_name_and_labels() {
    let job = job("-name train --job-label a=1 -job-label b=2");
    let labels: Vec<(&str, &str)> = job.labels.iter().map(|it| (it.key.as_str(), it.value.as_str())).collect();
    assert_eq!((job.name.as_deref(), &labels[..]), (Some("train"), &[("a", "1"), ("b", "2")][..]));
    assert!(parsed("-name 7 ./a").unwrap_err().contains("-name: invalid job name `7`"));
    assert!(parsed("-job-label x ./a").unwrap_err().contains("write KEY=VALUE"));
}

#[test]
fn what_is_only_shown_needs_no_program() {
    for (line, shown) in [
        ("--version", Show::Version),
        ("-V", Show::Version),
        ("-info", Show::Info),
        ("--help", Show::Help),
        ("-h", Show::Help),
        ("--help=full", Show::Help),
    ] {
        assert_eq!(parsed(line).unwrap().job.show, Some(shown), "{line}");
    }
    assert!(job("-do-not-launch -n 2").plan_only);
}

/// Every option of the table is accepted, has a notice, or is refused with a reason; no name is in two rows.
#[test]
fn every_row_does_what_it_says() {
    let mut names: Vec<&str> = Vec::new();
    for row in table::ROWS.iter().flat_map(|section| section.1) {
        let mut own: Vec<&str> = row.names().collect();
        own.sort_unstable();
        own.dedup();
        assert!(!own.is_empty());
        for name in &own {
            let known = [
                (Does::Priority, "2"),
                (Does::Output, "tag"),
                (Does::ConfigFile, "cfg"),
                (Does::JobName, "x"),
                (Does::JobLabel, "a=b"),
                (Does::FaultTolerance, "ulfm"),
            ];
            let value = known.iter().find(|(does, _)| *does == row.does).map_or("4", |(_, value)| value);
            let values = match row.takes {
                Takes::Nothing => String::new(),
                Takes::Value(_) => value.to_owned(),
                Takes::Pair | Takes::Two(_) => "NAME VALUE".to_owned(),
                Takes::Hosts => "a:2,b".to_owned(),
            };
            let outcome = with_file(&format!("-{name} {values} ./a"), "./a");
            if let Does::Refused(instead) = row.does {
                assert!(outcome.is_err_and(|error| error.contains(instead)), "-{name}");
            } else if let Does::Ignored(why) = row.does {
                assert!(outcome.is_ok_and(|asked| asked.notices[0].contains(why)), "-{name}");
            } else if row.does == Does::ConfigFile {
                assert!(outcome.is_err_and(|error| error.contains("leave out ./a")), "-{name}");
            } else {
                assert!(outcome.is_ok(), "-{name}: {outcome:?}");
            }
        }
        names.extend(own);
    }
    let count = names.len();
    names.sort_unstable();
    names.dedup();
    assert_eq!(names.len(), count, "a name is in two rows");
}
