use super::*;

fn here() -> Here {
    let env =
        [("HOME", "/h"), ("PATH", "/bin"), ("LIB_A", "1"), ("LIB_B", "2"), ("PMI_RANK", "3"), ("OMPI_MCA_btl", "tcp")];
    Here { wdir: "/w".into(), env: env.map(|(name, value)| (name.into(), value.into())).to_vec() }
}

fn asked(line: &str) -> Asked {
    let words: Vec<OsString> = line.split_whitespace().map(OsString::from).collect();
    parse::parse(&words, &|_| Err("no file".into())).unwrap()
}

fn spec(line: &str) -> Result<JobSpec, String> {
    let asked = asked(line);
    let launch = launch(&asked, &here(), None).map_err(|failure| failure.text)?;
    let stdin = stdin(&asked.job).map_err(|failure| failure.text)?;
    job_spec(&asked, &launch, stdin, &here()).map_err(|failure| failure.text)
}

fn texts(env: &[EnvVar]) -> Vec<String> {
    env.iter().map(|var| String::from_utf8_lossy(&[&var.name, &b"="[..], &var.value].concat()).into_owned()).collect()
}

/// The mapping, binding and rules of a command line.
fn placed(options: &str) -> Result<(String, String, String), String> {
    spec(&format!("{options} ./a")).map(|spec| (spec.map_by, spec.bind_to, spec.compat))
}

#[test]
fn placement_is_by_hydras_rules_only_with_options_of_hydra() {
    let vectors = [
        ("-n 2", "", "", ""),
        ("-ppn 2", "ppr:2:node", "", "hydra"),
        ("-hosts a,b -ppn 2", "ppr:2:node", "", "hydra"),
        ("-hosts a,b -bind-to core:2", ":pe=2", "core", "hydra"),
        ("-N 2", "ppr:2:node", "", ""),
        ("-npernode 2 --map-by slot:oversubscribe", "ppr:2:node:oversubscribe", "", ""),
        ("-npersocket 2", "ppr:2:package", "package", ""),
        ("--map-by ppr:2:socket:pe=2 --bind-to core", "ppr:2:package:pe=2", "core", ""),
        ("--bynode --nooversubscribe", "node:nooversubscribe", "", ""),
        ("-cpu-list 0,2", "pe-list=0,2", "", ""),
        ("-cpus-per-proc 2 -nolocal", ":pe=2:nolocal", "", ""),
        ("-ppn 2 -compat openmpi5", "ppr:2:node", "", "openmpi5"),
    ];
    for (options, map_by, bind_to, compat) in vectors {
        let expected = (map_by.to_owned(), bind_to.to_owned(), compat.to_owned());
        assert_eq!(placed(options), Ok(expected), "{options}");
    }
    assert!(placed("-N 2 --map-by core").unwrap_err().contains("-map-by core and a number of ranks per node"));
    assert!(placed("-N 2 -npersocket 2").unwrap_err().contains("leave out one of them"));
    assert!(placed("-bind-to user:0,1").unwrap_err().contains("pe-list"));
    assert!(placed("--map-by cores").unwrap_err().contains("did you mean `core`?"));
}

#[test]
fn the_environment_is_passed_as_requested() {
    let all = spec("-n 1 ./a").unwrap();
    assert_eq!(texts(&all.env), ["HOME=/h", "LIB_A=1", "LIB_B=2", "OMPI_MCA_btl=tcp", "PATH=/bin"]);
    let none = spec("-genvnone -env A 1 -n 1 ./a : -n 1 ./b").unwrap();
    assert_eq!(none.env, []);
    assert_eq!(none.apps.iter().map(|app| texts(&app.env)).collect::<Vec<_>>(), [vec!["A=1".to_owned()], vec![]]);
    let some = spec("-genvlist PATH,LIB_A,NOPE -genv LIB_A x -n 1 ./a : -envall ./b").unwrap();
    assert_eq!(texts(&some.apps[0].env), ["PATH=/bin", "LIB_A=x"]);
    assert_eq!(texts(&some.apps[1].env), ["HOME=/h", "LIB_B=2", "OMPI_MCA_btl=tcp", "PATH=/bin", "LIB_A=x"]);
    let set = spec("-genv A 1 -mca btl self -env A 2 -x LIB_* -x PMI_RANK -x NOPE ./a").unwrap();
    assert_eq!(texts(&set.apps[0].env), ["OMPI_MCA_btl=self", "A=2", "LIB_A=1", "LIB_B=2", "PMI_RANK=3"]);
    assert_eq!(unset(&asked("-x NOPE -x LIB_A -x NO* ./a"), &here()), ["NOPE"]);
}

#[test]
fn attributes_of_the_job_reach_its_description() {
    let job = spec("-umask 027 -priority 0 -usize infinite -timeout 3 -path /x;y -soft 2:8:2 -stdin none ./a : -n 2 -wdir d -path z ./b").unwrap();
    let inherited = job.inherited.clone().unwrap();
    assert_eq!((inherited.umask, inherited.nice, job.universe_size), (Some(0o27), Some(19), Some(0)));
    assert_eq!((job.timeout_ms, job.stdin.unwrap().target), (3000, Some(Target::None(true))));
    assert_eq!((&job.apps[0].path[..], &job.apps[1].path[..]), (&b"/x:y"[..], &b"z"[..]));
    assert_eq!((job.apps[0].n, job.apps[1].n, &job.apps[1].wdir[..]), (Some(8), Some(2), &b"/w/d"[..]));
    assert_eq!(job.apps[0].soft.as_ref().unwrap().triplets, [Triplet { first: 2, last: 8, stride: 2 }]);
    assert_eq!(spec("-usize 9 ./a").unwrap().universe_size, Some(9));
    assert_eq!(spec("-soft 9:1:-2,3 ./a").unwrap().apps[0].n, Some(9));
    assert!(spec("-soft 0 ./a").unwrap_err().contains("it accepts no number of ranks"));
    assert!(spec("-soft x ./a").unwrap_err().contains("-soft: invalid value"));
    assert!(spec("-stdin 1,2 ./a").unwrap_err().contains("write one rank, `all` or `none`"));
}

#[test]
fn variables_of_other_launchers_stand_for_options() {
    let mut here = here();
    let more = [("MPIEXEC_TIMEOUT", "60"), ("MPIEXEC_UNIVERSE_SIZE", "7"), ("HYDRA_HOST_FILE", "hosts")];
    here.env.extend(more.map(|(name, value)| (name.into(), value.into())));
    let with = |line: &str, here: &Here| {
        let mut asked = asked(line);
        with_environment(&mut asked, here).map(|()| asked)
    };
    let found = with("./a", &here).unwrap();
    assert_eq!((found.job.timeout, found.job.universe), (Some(Duration::from_secs(60)), Some(Universe::Size(7))));
    assert_eq!((found.programs[0].hostfile.as_deref(), found.job.by_hydra), (Some("hosts".as_ref()), true));
    let own = with("-timeout 5 -host b ./a", &here).unwrap();
    assert_eq!((own.job.timeout, own.programs[0].hostfile.is_none()), (Some(Duration::from_secs(5)), true));
    here.env.push(("MPIEXEC_TIMEOUT".into(), "x".into()));
    here.env.retain(|(_, value)| value != "60");
    assert!(with("./a", &here).unwrap_err().contains("MPIEXEC_TIMEOUT x: write seconds"));
}

#[test]
fn local_ranks_and_lists_of_hosts_exclude_each_other() {
    let local = |line: &str| launch(&asked(line), &here(), Some("n0"));
    assert_eq!(local("-localonly ./a").unwrap().first.host, ["n0"]);
    let counted = |line: &str| local(line).map(|found| (found.first.n, found.first.program)).unwrap();
    assert_eq!(counted("-localonly 3 ./a"), (Some(3), vec!["./a".into()]), "smpd's number of ranks");
    assert_eq!(counted("-localonly -n 3 ./a"), (Some(3), vec!["./a".into()]));
    assert_eq!(counted("-localonly ./a 3").0, None);
    assert!(local("-localonly -host b ./a").unwrap_err().text.contains("-localonly contradicts"));
}

#[test]
fn output_files_are_named_below_the_working_directory() {
    let view_of = |line: &str| view(&asked(line).job, &here());
    let style = view_of("-outfile-pattern out.%r -l ./a").unwrap().style;
    assert_eq!(style.files, [Some(Pattern::literal("/w/").then(Pattern::parse("out.%r").unwrap())), None]);
    assert_eq!((style.label, style.copied), (Some(Pattern::of_rank()), false));
    assert!(view_of("-output-filename o ./a").unwrap().style.copied);
    assert!(!view_of("-output-filename o:nocopy ./a").unwrap().style.copied);
    assert!(
        view_of("-outfile-pattern o.%x ./a").unwrap_err().text.contains("-outfile-pattern o.%x: `%x` is not known")
    );
    assert!(view_of("-outfile-pattern o -output-filename p ./a").unwrap_err().text.contains("two options"));
    assert!(view_of("-exitcodes -q ./a").is_ok_and(|view| view.exits && view.quiet));
}
