//! Turns options into the job that the daemon receives. Relative paths and the environment are those of this process. The daemon
//! resolves node names.

use std::collections::BTreeMap;
use std::ffi::{OsStr, OsString};
use std::fs;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::{Path, PathBuf};
use std::time::Duration;

use bytes::Bytes;
use rsd_config::host::HostEntry;
use rsd_config::{hostfile, hostlist, rankfile};
use rsd_core::place::policy::{Compat, Policy};
use rsd_core::plan;
use rsd_proto::frameworks;
use rsd_proto::inherited;
use rsd_proto::pmi::environment::is_launcher_variable;
use rsd_proto::resources;
use rsd_proto::v1::stdin_target::Target;
use rsd_proto::v1::{App, EnvVar, Host, JobSpec, OnNodeLoss, OnRankLoss, RankPlace, Resource, StdinTarget, Submitter};

use crate::exit::Failure;
use crate::options::placing::Listing;
use crate::options::queue::Never;
use crate::options::{Launch, NodeLoss, RankLoss, Segment};

/// The directory and environment of this process.
#[derive(Debug)]
pub(crate) struct Here {
    pub(crate) wdir: PathBuf,
    pub(crate) env: Vec<(OsString, OsString)>,
}

impl Here {
    /// Reads both from this process. The path of the directory is `$PWD` if that names the same directory: the physical path may be a
    /// mount that exists only on this machine.
    pub(crate) fn now() -> Result<Here, Failure> {
        use std::os::unix::fs::MetadataExt;
        let physical = std::env::current_dir()
            .map_err(|error| Failure::usage(format!("cannot read the working directory: {error}")))?;
        let place = |path: &Path| fs::metadata(path).map(|meta| (meta.dev(), meta.ino())).ok();
        let shown = std::env::var_os("PWD").map(PathBuf::from).filter(|shown| shown.is_absolute());
        let wdir = shown.filter(|shown| place(shown) == place(&physical)).unwrap_or(physical);
        Ok(Here { wdir, env: std::env::vars_os().collect() })
    }
}

/// Returns the job that `launch` describes. `stdin` is None for a submitted job, which no client follows.
pub(crate) fn job_spec(launch: &Launch, stdin: Option<Target>, here: &Here) -> Result<JobSpec, Failure> {
    let (mut policy, listing) = launch.placing.policy()?;
    let (memory_per_rank, resources) = reserved(launch, &mut policy)?;
    let first_hosts = first_hosts(launch, listing)?;
    let mut apps = vec![app(&launch.first, first_hosts.clone(), here)?];
    for segment in &launch.others {
        let own = hosts(segment)?;
        apps.push(app(segment, if own.is_empty() { first_hosts.clone() } else { own }, here)?);
    }
    check_stdin(launch, stdin.as_ref())?;
    let output_dir = output_dir(launch, here)?;
    let Policy { map_by, rank_by, bind_to, mem_bind, compat, gpus_per_rank } = policy;
    Ok(JobSpec {
        apps,
        env: environment(&launch.env_file, here)?,
        oversubscribe: map_by.oversubscribe == Some(true),
        map_by: map_by.to_string(),
        rank_by: rank_by.map(|rank_by| rank_by.to_string()).unwrap_or_default(),
        bind_to: bind_to.map(|bind_to| bind_to.to_string()).unwrap_or_default(),
        mem_bind: mem_bind.map(|mem_bind| mem_bind.to_string()).unwrap_or_default(),
        compat: if compat == Compat::Rsd { String::new() } else { compat.to_string() },
        gpus_per_rank,
        gpus_visible: launch.placing.gpus_visible,
        rankfile: ranks(listing)?,
        export: launch.export.clone().unwrap_or_default(),
        // 0 means no timeout on the wire, so a requested timeout is at least 1 ms.
        timeout_ms: launch.timeout.map_or(0, |timeout| ms(timeout).max(1)),
        kill_grace_ms: launch.kill_grace.map(ms),
        on_node_loss: match launch.on_node_loss {
            NodeLoss::End => OnNodeLoss::End.into(),
            NodeLoss::Continue => OnNodeLoss::Continue.into(),
        },
        on_rank_loss: match launch.on_rank_loss {
            RankLoss::End => OnRankLoss::End.into(),
            RankLoss::Continue => OnRankLoss::Continue.into(),
        },
        allow_singletons: launch.allow_singletons,
        attached: stdin.is_some(),
        stdin: Some(StdinTarget { target: Some(stdin.unwrap_or(Target::None(true))) }),
        output_dir,
        output_overwrite: launch.overwrite,
        inherited: Some(inherited::of_self()),
        universe_size: None,
        // Those who submit it decide.
        reconnect_ms: 0,
        token: Bytes::new(),
        name: launch.job_name.clone().unwrap_or_default(),
        labels: launch.job_labels.clone(),
        submitter: Some(submitter(here)),
        queue_deadline_ms: launch.queue_deadline.map_or(0, |deadline| ms(deadline).max(1)),
        hold: launch.hold,
        array: launch.queueing.array.clone().unwrap_or_default(),
        after: launch.queueing.after.clone(),
        after_holds: launch.queueing.after_never == Never::Hold,
        priority: launch.queueing.priority,
        memory_per_rank,
        resources,
        retries: launch.queueing.retry,
        retry_on: launch.queueing.retry_on.clone(),
        ..JobSpec::default()
    })
}

/// Returns the memory and the resources that a job reserves, without GPUs, which are placed.
fn reserved(launch: &Launch, policy: &mut Policy) -> Result<(u64, Vec<Resource>), Failure> {
    let mut memory = launch.queueing.mem_per_rank;
    let mut others: Vec<Resource> = Vec::new();
    for resource in &launch.queueing.resource {
        let twice = match &*resource.name {
            resources::MEMORY => memory.replace(resource.amount).is_some(),
            resources::GPU => {
                let gpus = u32::try_from(resource.amount).unwrap_or(u32::MAX);
                std::mem::replace(&mut policy.gpus_per_rank, gpus) > 0
            }
            name => others.iter().any(|other| other.name == name),
        };
        if twice {
            return Err(Failure::usage(format!("{} is requested twice: leave out one of the options", resource.name)));
        }
        if resource.name != resources::MEMORY && resource.name != resources::GPU {
            others.push(resource.clone());
        }
    }
    policy.check().map_err(Failure::usage)?;
    Ok((memory.unwrap_or(0), others))
}

/// Returns who submits, for people: the head knows by itself whose job it is.
fn submitter(here: &Here) -> Submitter {
    let variable = |name: &str| here.env.iter().find(|(own, _)| own == name).map(|(_, value)| value.to_string_lossy());
    let user = variable("USER").or_else(|| variable("LOGNAME")).map_or_else(account, std::borrow::Cow::into_owned);
    let host = nix::unistd::gethostname().map_or_else(|_| String::new(), |host| host.to_string_lossy().into_owned());
    Submitter { user, host, dir: bytes(here.wdir.as_os_str()) }
}

/// The user's name by the list of users, for cron and containers, which set no variable; the number if the list lacks it.
fn account() -> String {
    let uid = nix::unistd::geteuid();
    nix::unistd::User::from_uid(uid).ok().flatten().map_or_else(|| uid.to_string(), |user| user.name)
}

/// Refuses `--stdin` with a rank that does not exist. If a program has no `-n`, only the head knows the number of ranks and checks this.
fn check_stdin(launch: &Launch, stdin: Option<&Target>) -> Result<(), Failure> {
    let counts = std::iter::once(&launch.first).chain(&launch.others).map(|segment| segment.n);
    let (Some(ranks), Some(Target::Rank(rank))) = (counts.sum::<Option<u32>>(), stdin) else { return Ok(()) };
    if *rank < ranks {
        return Ok(());
    }
    let counted = if ranks == 1 { "1 rank, rank 0".to_owned() } else { format!("{ranks} ranks, 0 to {}", ranks - 1) };
    Err(Failure::usage(format!("--stdin {rank}: the job has {counted}")))
}

/// Returns the output directory. Fails if it has output of an earlier job, unless `--overwrite` is given. The check covers only
/// directories that this machine can read; the nodes check theirs.
fn output_dir(launch: &Launch, here: &Here) -> Result<Bytes, Failure> {
    let Some(dir) = &launch.output else { return Ok(Bytes::new()) };
    let of_a_rank = |name: &OsStr| {
        let name = name.to_str()?.strip_prefix("rank.")?;
        let (rank, stream) = name.split_once('.')?;
        (rank.parse::<u32>().is_ok() && matches!(stream, "stdout" | "stderr")).then_some(())
    };
    let names = fs::read_dir(here.wdir.join(dir)).into_iter().flatten().flatten().map(|entry| entry.file_name());
    match names.filter(|name| of_a_rank(name).is_some()).min() {
        Some(name) if !launch.overwrite => Err(Failure::usage(format!(
            "--output {}: the directory has files of an earlier job ({}); choose another one, or replace them with --overwrite",
            dir.display(),
            name.display()
        ))),
        Some(_) | None => Ok(path(dir, here)),
    }
}

fn app(segment: &Segment, hosts: Vec<Host>, here: &Here) -> Result<App, Failure> {
    let env = segment.variables.iter().map(|text| exported(text, here)).collect::<Result<_, _>>()?;
    let wdir = segment.wdir.as_deref().unwrap_or(Path::new(""));
    let argv = segment.program.iter().map(|arg| bytes(arg)).collect();
    Ok(App { argv, n: segment.n, env, wdir: path(wdir, here), hosts, path: Bytes::new(), soft: None })
}

/// Returns the hosts of the first program: from its options, or from the file that the mapping follows.
fn first_hosts(launch: &Launch, listing: Listing<'_>) -> Result<Vec<Host>, Failure> {
    let own = hosts(&launch.first)?;
    match listing {
        Listing::Seq(None) if own.is_empty() => {
            Err(Failure::usage("--map-by seq needs a list of hosts: --hostfile FILE or --host a,b,a"))
        }
        Listing::Seq(Some(_)) if !own.is_empty() => Err(Failure::usage(
            "two lists of hosts given: leave out either file= of --map-by, or --host and --hostfile",
        )),
        Listing::Seq(Some(file)) => Ok(listed(Path::new(file))?.into_iter().map(plan::host).collect()),
        Listing::None | Listing::Seq(None) | Listing::Rankfile(_) => Ok(own),
    }
}

/// Returns the hosts of `--host` and `--hostfile`; an empty list means all nodes.
fn hosts(segment: &Segment) -> Result<Vec<Host>, Failure> {
    let list = segment.host.join(",");
    let entries = match &segment.hostfile {
        Some(file) if segment.host.is_empty() => listed(file)?,
        Some(file) => hostlist::choose(&list, &listed(file)?, &file.display().to_string()).map_err(Failure::usage)?,
        None if segment.host.is_empty() => Vec::new(),
        None => hostlist::parse(&list).map_err(Failure::usage)?,
    };
    Ok(entries.into_iter().map(plan::host).collect())
}

fn listed(file: &Path) -> Result<Vec<HostEntry>, Failure> {
    hostfile::parse(&read(file)?, &file.display().to_string()).map_err(Failure::usage)
}

/// Reads the ranks of a rank file.
fn ranks(listing: Listing<'_>) -> Result<Vec<RankPlace>, Failure> {
    let Listing::Rankfile(file) = listing else { return Ok(Vec::new()) };
    let entries = rankfile::parse(&read(file)?, &file.display().to_string()).map_err(Failure::usage)?;
    let rank = |entry: rankfile::RankEntry| RankPlace {
        rank: entry.rank,
        host: entry.host,
        cpus: entry.cpus,
        source: entry.source,
    };
    Ok(entries.into_iter().map(rank).collect())
}

/// Returns the environment of this process without the variables of launchers, overridden by those of the files. The list of what an
/// outer job has exported goes along: steps remove what it names.
fn environment(files: &[PathBuf], here: &Here) -> Result<Vec<EnvVar>, Failure> {
    let is_passed = |name: &OsStr| name == frameworks::EXPORTED || !is_launcher_variable(name.as_bytes());
    let own = here.env.iter().filter(|(name, _)| is_passed(name));
    let mut env: BTreeMap<Bytes, Bytes> = own.map(|(name, value)| (bytes(name), bytes(value))).collect();
    for file in files {
        let assignments =
            rsd_config::envfile::parse(&read(file)?, &file.display().to_string()).map_err(Failure::usage)?;
        env.extend(assignments.into_iter().map(|(name, value)| (Bytes::from(name), Bytes::from(value))));
    }
    Ok(env.into_iter().map(|(name, value)| EnvVar { name, value }).collect())
}

/// Parses `-x NAME=VALUE`, or `-x NAME` for the value in this process.
fn exported(text: &OsStr, here: &Here) -> Result<EnvVar, Failure> {
    let raw = text.as_bytes();
    let (name, value) = match raw.iter().position(|&b| b == b'=') {
        Some(at) => (&raw[..at], Some(&raw[at + 1..])),
        None => (raw, None),
    };
    if name.is_empty() {
        return Err(Failure::usage(format!("-x {}: write NAME=VALUE, or NAME alone", text.display())));
    }
    let own = || here.env.iter().find(|(own, _)| own.as_bytes() == name).map(|(_, value)| value.as_bytes());
    match value.or_else(own) {
        Some(value) => Ok(EnvVar { name: Bytes::copy_from_slice(name), value: Bytes::copy_from_slice(value) }),
        None => Err(Failure::usage(format!("-x {0}: {0} is not set here; write {0}=VALUE", text.display()))),
    }
}

fn read(file: &Path) -> Result<String, Failure> {
    fs::read_to_string(file).map_err(|error| Failure::usage(format!("cannot read {}: {error}", file.display())))
}

/// Returns the path, made absolute with the working directory.
fn path(path: &Path, here: &Here) -> Bytes {
    match path.as_os_str().is_empty() {
        true => bytes(here.wdir.as_os_str()),
        false => bytes(here.wdir.join(path).as_os_str()),
    }
}

fn bytes(text: &OsStr) -> Bytes {
    Bytes::from(text.to_owned().into_vec())
}

fn ms(duration: Duration) -> u64 {
    u64::try_from(duration.as_millis()).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use rsd_core::place;

    use super::*;
    use crate::options::{self, Command};

    fn here() -> Here {
        let env = [
            ("HOME", "/h"),
            ("PMI_RANK", "3"),
            ("OMPI_MCA_btl", "self"),
            ("OMPI_COMM_WORLD_RANK", "1"),
            ("RSD_DVM", "x"),
        ];
        Here { wdir: "/w".into(), env: env.map(|(name, value)| (name.into(), value.into())).to_vec() }
    }

    fn spec(text: &str) -> Result<JobSpec, String> {
        let args: Vec<OsString> = text.split_whitespace().map(OsString::from).collect();
        match options::read(&args).unwrap().command {
            Command::Run(run) => job_spec(&run.launch, Some(run.stdin), &here()),
            Command::Submit(launch) => job_spec(&launch, None, &here()),
            other => panic!("{other:?}"),
        }
        .map_err(|failure| failure.text)
    }

    fn names(env: &[EnvVar]) -> Vec<String> {
        let text = |bytes: &Bytes| String::from_utf8_lossy(bytes).into_owned();
        env.iter().map(|var| format!("{}={}", text(&var.name), text(&var.value))).collect()
    }

    #[test]
    fn the_environment_is_forwarded_without_launchers_variables() {
        assert_eq!(names(&spec("run a").unwrap().env), ["HOME=/h", "OMPI_MCA_btl=self"]);
    }

    #[test]
    fn x_sets_a_variable_or_forwards_one_that_is_set() {
        let spec_of = |text| spec(text).map(|spec| names(&spec.apps[0].env));
        assert_eq!(spec_of("run -x A=1=2 -x PMI_RANK -x B= a").unwrap(), ["A=1=2", "PMI_RANK=3", "B="]);
        assert!(spec_of("run -x NOPE a").unwrap_err().contains("NOPE is not set here"));
        assert!(spec_of("run -x =1 a").is_err());
    }

    #[test]
    fn a_submitted_job_is_detached_and_reads_nothing() {
        let submitted = spec("submit a").unwrap();
        assert_eq!((submitted.attached, submitted.stdin.unwrap().target), (false, Some(Target::None(true))));
        let ran = spec("run --stdin all a").unwrap();
        assert_eq!((ran.attached, ran.stdin.unwrap().target), (true, Some(Target::All(true))));
        assert!(spec("run --stdin none a").unwrap().attached);
    }

    #[test]
    fn paths_are_made_absolute() {
        let spec = spec("run --wdir sub --output out a : --wdir /abs b : c").unwrap();
        assert_eq!(spec.output_dir, "/w/out");
        assert_eq!(spec.apps.iter().map(|app| app.wdir.clone()).collect::<Vec<_>>(), ["/w/sub", "/abs", "/w"]);
    }

    #[test]
    fn programs_without_hosts_use_those_of_the_first() {
        let spec = spec("run --host a,b:2 -n 1 x : -n 2 y : --host c z").unwrap();
        let hosts = |app: &App| app.hosts.iter().map(|host| (host.name.clone(), host.slots)).collect::<Vec<_>>();
        let ab = vec![("a".to_owned(), None), ("b".to_owned(), Some(2))];
        assert_eq!(spec.apps.iter().map(hosts).collect::<Vec<_>>(), [ab.clone(), ab, vec![("c".to_owned(), None)]]);
    }

    #[test]
    fn times_are_milliseconds_and_a_timeout_of_zero_is_kept() {
        let spec = spec("run --timeout 0 --kill-grace 250ms --map-by node:oversubscribe a").unwrap();
        assert_eq!(
            (spec.timeout_ms, spec.kill_grace_ms, spec.oversubscribe, &*spec.map_by),
            (1, Some(250), true, "node:oversubscribe")
        );
    }

    /// Writes a file for this test.
    fn file(name: &str, text: &str) -> String {
        let directory = std::env::temp_dir().join(format!("rsctl-spec-{}", std::process::id()));
        fs::create_dir_all(&directory).unwrap();
        let path = directory.join(name);
        fs::write(&path, text).unwrap();
        path.display().to_string()
    }

    fn host_names(spec: &JobSpec) -> Vec<String> {
        let slots = |host: &Host| match host.slots {
            None => String::new(),
            Some(place::Host::WHOLE) => ":*".to_owned(),
            Some(count) => format!(":{count}"),
        };
        spec.apps[0].hosts.iter().map(|host| format!("{}{}", host.name, slots(host))).collect()
    }

    #[test]
    fn placement_is_sent_as_canonical_text() {
        let options = "--map-by Socket:pe=2:NOLOCAL --use-hwthread-cpus --rank-by FILL --bind-to l3:if-supported \
                       --mem-bind prefer --compat mpich --gpus-per-rank 2 --gpus-visible --oversubscribe";
        let spec = spec(&format!("run {options} a")).unwrap();
        assert_eq!(spec.map_by, "package:pe=2:nolocal:hwtcpus:oversubscribe");
        assert_eq!((&*spec.rank_by, &*spec.bind_to, &*spec.mem_bind), ("fill", "l3cache:if-supported", "preferred"));
        assert_eq!((&*spec.compat, spec.gpus_per_rank, spec.gpus_visible), ("hydra", 2, true));
        assert!(spec.oversubscribe);
        let plain = super::tests::spec("run a").unwrap();
        assert_eq!([&*plain.map_by, &*plain.rank_by, &*plain.bind_to, &*plain.mem_bind, &*plain.compat], [""; 5]);
        assert!(!plain.oversubscribe && plain.gpus_per_rank == 0 && plain.rankfile.is_empty());
    }

    #[test]
    fn hosts_are_sent_as_the_user_named_them() {
        let listed = spec("run --host a:*,b:2,gpu[1-2] --host +n2,+e:3,^c x").unwrap();
        assert_eq!(host_names(&listed), ["a:*", "b:2", "gpu1", "gpu2", "+n2", "+e:3", "^c"]);
        let hosts = file("filtered", "a slots=4 max_slots=6\nb:2\n");
        let chosen = spec(&format!("run --hostfile {hosts} --host b,a:1 x")).unwrap();
        assert_eq!(host_names(&chosen), ["b:2", "a:1"]);
        assert_eq!(chosen.apps[0].hosts[1].max_slots, Some(6));
        assert_eq!(chosen.apps[0].hosts[1].source, format!("--host, hostfile {hosts}:1"));
        let error = spec(&format!("run --hostfile {hosts} --host c x")).unwrap_err();
        assert!(error.starts_with(&format!("--host, character 1: `c` is not in {hosts}\n")), "{error}");
    }

    #[test]
    fn rsctl_reads_the_rank_file() {
        let ranks = file("ranks", "rank 0=a slot=0-1\nrank 1=b slot=1:0,2\n");
        for options in [format!("--rankfile {ranks}"), format!("--map-by rankfile:file={ranks}")] {
            let spec = spec(&format!("run {options} x")).unwrap();
            assert_eq!(spec.map_by, "rankfile");
            let found: Vec<_> = spec.rankfile.iter().map(|r| (r.rank, &*r.host, &*r.cpus, &*r.source)).collect();
            let source = |line: u32| format!("rankfile {ranks}:{line}");
            assert_eq!(found, [(0, "a", "0-1", &*source(1)), (1, "b", "1:0,1:2", &*source(2))]);
        }
        let both = spec(&format!("run --map-by rankfile --rankfile {ranks} x")).unwrap();
        assert_eq!((both.rankfile.len(), &*both.map_by), (2, "rankfile"));
        let more = spec(&format!("run --rankfile {ranks} --map-by :oversubscribe x")).unwrap();
        assert_eq!(more.map_by, "rankfile:oversubscribe");
    }

    #[test]
    fn seq_follows_a_list_of_hosts() {
        let hosts = file("seq", "a\nb\na\n");
        let names = |text: String| spec(&text).map(|spec| (spec.map_by.clone(), host_names(&spec)));
        let expected = ("seq".to_owned(), ["a", "b", "a"].map(str::to_owned).to_vec());
        assert_eq!(names(format!("run --map-by seq --hostfile {hosts} x")), Ok(expected.clone()));
        assert_eq!(names(format!("run --map-by seq:file={hosts} x")), Ok(expected.clone()));
        assert_eq!(names("run --map-by seq --host a,b,a x".into()), Ok(expected));
        assert!(names("run --map-by seq x".into()).unwrap_err().contains("--hostfile FILE or --host a,b,a"));
        assert!(names(format!("run --map-by seq:file={hosts} --host a x")).unwrap_err().contains("two lists of hosts"));
    }

    #[test]
    fn options_that_contradict_each_other_are_refused_by_name() {
        let vectors = [
            ("--oversubscribe --map-by slot:nooversubscribe", "leave out one of them"),
            ("--map-by rankfile", "--map-by rankfile needs a file: --rankfile FILE"),
            ("--map-by rankfile:file=f --rankfile f", "two rank files"),
            ("--map-by node --rankfile f", "--map-by node: the rank file decides where each rank goes"),
            ("--map-by seq --rankfile f", "--map-by seq: the rank file decides where each rank goes"),
            ("--map-by :pe=2 --rankfile f", "leave out pe, span and nolocal"),
            ("--rankfile f --rank-by slot", "--rank-by slot: a rankfile numbers the ranks itself"),
            ("--rankfile /nonexistent/ranks", "cannot read /nonexistent/ranks"),
        ];
        for (options, expected) in vectors {
            let error = spec(&format!("run {options} x")).unwrap_err();
            assert!(error.contains(expected), "{options}: {error}");
        }
    }

    #[test]
    fn an_unreadable_file_is_named() {
        assert!(spec("run --hostfile /nonexistent/hosts a").unwrap_err().contains("/nonexistent/hosts"));
        assert!(spec("run --env-file /nonexistent/env a").unwrap_err().contains("/nonexistent/env"));
    }
}
