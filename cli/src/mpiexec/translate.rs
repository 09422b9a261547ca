//! [`Asked`] → the launch that `rsctl run` has options for, and the job that is submitted.
//!
//! Whose rules place the ranks: Hydra's if an option is used that only Hydra has (`-ppn`, `-hosts`, `-f`), rsd's otherwise, which are
//! those of Open MPI's documentation; `-compat` overrides both.

use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::str::FromStr;
use std::time::Duration;

use rsd_config::triplets;
use rsd_core::place::policy::{Compat, Directive, MapBy, MapByOption, PolicyError};
use rsd_core::place::topology::Kind;
use rsd_proto::v1::stdin_target::Target;
use rsd_proto::v1::{EnvVar, JobSpec, Soft, Triplet};

use super::parse::{self, Asked, Inherits, Job, Program, Universe, Variable};
use crate::exit::Failure;
use crate::options::placing::Placing;
use crate::options::queue::Queueing;
use crate::options::{Launch, NodeLoss, RankLoss, Segment};
use crate::output::Style;
use crate::output::pattern::Pattern;
use crate::run::View;
use crate::spec::{self, Here};

/// Completes what is requested by variables of the environment: those of other launchers that stand for options.
pub(super) fn with_environment(asked: &mut Asked, here: &Here) -> Result<(), String> {
    let value = |name: &str| {
        let found = here.env.iter().find(|(own, _)| own == name).and_then(|(_, value)| value.to_str());
        found.filter(|value| !value.is_empty())
    };
    let job = &mut asked.job;
    if let (None, Some(text)) = (job.timeout, value("MPIEXEC_TIMEOUT")) {
        job.timeout = Some(parse::timeout(text, "MPIEXEC_TIMEOUT")?);
    }
    if let (None, Some(text)) = (job.universe, value("MPIEXEC_UNIVERSE_SIZE")) {
        job.universe = Some(parse::universe(text, "MPIEXEC_UNIVERSE_SIZE")?);
    }
    let named = asked.programs.iter().any(|program| !program.hosts.is_empty() || program.hostfile.is_some());
    if let (false, Some(file), Some(first)) = (named, value("HYDRA_HOST_FILE"), asked.programs.first_mut()) {
        job.by_hydra = true;
        first.hostfile = Some(file.into());
    }
    Ok(())
}

/// Returns the options of `rsctl run` that mean the same. `local` is the node of `-localonly`.
pub(super) fn launch(asked: &Asked, here: &Here, local: Option<&str>) -> Result<Launch, Failure> {
    let mut segments = Vec::new();
    for program in &asked.programs {
        segments.push(segment(program, &asked.job, here, local)?);
    }
    let mut segments = segments.into_iter();
    let first = segments.next().unwrap_or(Segment {
        n: None,
        host: Vec::new(),
        hostfile: None,
        wdir: None,
        variables: Vec::new(),
        program: Vec::new(),
    });
    Ok(Launch {
        first,
        placing: placing(&asked.job)?,
        job_name: asked.job.name.clone(),
        job_labels: asked.job.labels.clone(),
        env_file: Vec::new(),
        export: None,
        timeout: asked.job.timeout.filter(|timeout| *timeout > Duration::ZERO),
        queueing: Queueing::default(),
        queue_deadline: None,
        hold: false,
        output: None,
        overwrite: false,
        on_node_loss: NodeLoss::End,
        on_rank_loss: if asked.job.survives { RankLoss::Continue } else { RankLoss::End },
        allow_singletons: asked.job.allow_singletons,
        kill_grace: None,
        others: segments.collect(),
    })
}

/// Whether no option says if there may be more ranks than slots.
pub(super) fn leaves_slots_open(launch: &Launch) -> bool {
    let said = launch.placing.map_by.as_ref().and_then(|option| option.map_by.oversubscribe);
    !launch.placing.oversubscribe && said.is_none()
}

/// Whether no option names nodes.
pub(super) fn leaves_nodes_open(launch: &Launch) -> bool {
    let mut segments = launch.others.iter().chain([&launch.first]);
    let file = launch.placing.map_by.as_ref().is_some_and(|option| option.file.is_some());
    let names_none = |segment: &Segment| segment.host.is_empty() && segment.hostfile.is_none();
    !file && launch.placing.rankfile.is_none() && segments.all(names_none)
}

/// Returns the ranks that read standard input.
pub(super) fn stdin(job: &Job) -> Result<Target, Failure> {
    match job.stdin.as_deref() {
        None => Ok(Target::Rank(0)),
        Some("all") => Ok(Target::All(true)),
        Some("none") => Ok(Target::None(true)),
        Some(text) => {
            let rank = text.parse().map(Target::Rank);
            rank.map_err(|_| Failure::usage(format!("-stdin {text}: write one rank, `all` or `none`")))
        }
    }
}

/// Returns the job to submit.
pub(super) fn job_spec(asked: &Asked, launch: &Launch, stdin: Target, here: &Here) -> Result<JobSpec, Failure> {
    let mut spec = spec::job_spec(launch, Some(stdin), here)?;
    for (app, program) in spec.apps.iter_mut().zip(&asked.programs) {
        if let Some(path) = program.path.as_ref().or(asked.job.path.as_ref()) {
            app.path = path.as_bytes().to_vec().into();
        }
        app.soft = program.soft.as_deref().map(soft).transpose()?;
    }
    let own = |program: &Program| program.inherits.clone().or(asked.job.inherits.clone()).unwrap_or(Inherits::All);
    let inherits: Vec<Inherits> = asked.programs.iter().map(own).collect();
    if inherits.iter().any(|inherits| *inherits != Inherits::All) {
        let all = std::mem::take(&mut spec.env);
        for (app, inherits) in spec.apps.iter_mut().zip(&inherits) {
            let is_set = |var: &&EnvVar| !app.env.iter().any(|own| own.name == var.name);
            let passed: Vec<EnvVar> =
                all.iter().filter(|var| inherits.pass(&var.name)).filter(is_set).cloned().collect();
            app.env.splice(..0, passed);
        }
    }
    spec.universe_size = match asked.job.universe {
        None | Some(Universe::System) => None,
        Some(Universe::Infinite) => Some(0),
        Some(Universe::Size(size)) => Some(size),
    };
    let inherited = spec.inherited.get_or_insert_default();
    inherited.umask = asked.job.umask.or(inherited.umask);
    inherited.nice = asked.job.nice.or(inherited.nice);
    Ok(spec)
}

/// Returns how output is shown.
pub(super) fn view(job: &Job, here: &Here) -> Result<View, Failure> {
    let asked = &job.output;
    let pattern = |option: &str, text: &str| {
        Pattern::parse(text).map_err(|error| Failure::usage(format!("{option} {text}: {error}")))
    };
    let file = |option: &str, text: &str| -> Result<Pattern, Failure> {
        let absolute = here.wdir.join(text);
        let absolute = absolute.to_str().ok_or_else(|| Failure::usage(format!("{option}: not valid UTF-8")))?;
        // Percent signs in the path of the working directory do not begin codes.
        let literal = absolute.strip_suffix(text).unwrap_or_default();
        Ok(Pattern::literal(literal).then(pattern(option, text)?))
    };
    let mut label: Vec<Pattern> = Vec::new();
    label.extend(asked.time.then(Pattern::time));
    label.extend(asked.tag.then(Pattern::tag));
    label.extend(asked.label.then(Pattern::of_rank));
    if let Some(text) = &asked.pattern {
        label.push(pattern("-prepend-pattern", text)?);
    }
    let stdout = asked.stdout.as_deref().map(|text| file("-outfile-pattern", text)).transpose()?;
    let stderr = asked.stderr.as_deref().map(|text| file("-errfile-pattern", text)).transpose()?;
    let mut files = [stdout, stderr];
    let mut copied = false;
    let made = [("/1/rank.%R/stdout", "/1/rank.%R/stderr"), (".%R.out", ".%R.err")];
    for (given, (out, err)) in [&asked.directory, &asked.file].into_iter().zip(made) {
        let Some((name, silent)) = given else { continue };
        if files.iter().any(Option::is_some) {
            return Err(Failure::usage("output goes to files by two options: leave one of them out"));
        }
        let name = here.wdir.join(name);
        let name = name.to_str().ok_or_else(|| Failure::usage("-output-filename: not valid UTF-8"))?;
        let path = |ending| pattern("-output-filename", ending).map(|ending| Pattern::literal(name).then(ending));
        files = [Some(path(out)?), Some(path(err)?)];
        copied = !silent;
    }
    let label = label.into_iter().reduce(Pattern::then);
    let style = Style { label, merged: asked.merged, files, copied };
    Ok(View { style, exits: job.exit_codes, json: false, quiet: job.quiet })
}

impl Inherits {
    fn pass(&self, name: &[u8]) -> bool {
        match self {
            Inherits::All => true,
            Inherits::None => false,
            Inherits::Only(names) => names.iter().any(|own| own.as_bytes() == name),
        }
    }
}

fn segment(program: &Program, job: &Job, here: &Here, local: Option<&str>) -> Result<Segment, Failure> {
    let host = match local {
        Some(_) if !program.hosts.is_empty() || program.hostfile.is_some() => {
            return Err(Failure::usage("-localonly contradicts a list of hosts: leave out one of them"));
        }
        Some(local) => vec![local.to_owned()],
        None => program.hosts.clone(),
    };
    let n = match (&program.soft, program.n) {
        (Some(triplets), None) => Some(most(triplets)?),
        (Some(_) | None, n) => n,
    };
    Ok(Segment {
        n,
        host,
        hostfile: program.hostfile.clone(),
        wdir: program.wdir.clone().or_else(|| job.wdir.clone()),
        variables: variables(program, job, here),
        program: program.argv.clone(),
    })
}

/// Returns the variables to set, as `NAME=VALUE`; a later one replaces an earlier one of the same name.
fn variables(program: &Program, job: &Job, here: &Here) -> Vec<OsString> {
    let mut set: Vec<(&OsStr, &OsStr)> = Vec::new();
    for variable in job.variables.iter().chain(&program.variables) {
        match variable {
            Variable::Set(name, value) => set.push((name, value)),
            Variable::Pass(name) => {
                let begins = name.as_bytes().strip_suffix(b"*");
                let meant = |own: &OsStr| match begins {
                    Some(prefix) => own.as_bytes().starts_with(prefix),
                    None => own == name,
                };
                set.extend(here.env.iter().filter(|(own, _)| meant(own)).map(|(own, value)| (&**own, &**value)));
            }
        }
    }
    let last = |(at, (name, _)): &(usize, &(&OsStr, &OsStr))| !set[at + 1..].iter().any(|(later, _)| later == name);
    let words = set
        .iter()
        .enumerate()
        .filter(last)
        .map(|(_, (name, value))| OsString::from_vec([name.as_bytes(), b"=", value.as_bytes()].concat()));
    words.collect()
}

/// Returns the variables of `-x NAME` that are not set here.
pub(super) fn unset<'a>(asked: &'a Asked, here: &Here) -> Vec<&'a OsStr> {
    let passed = asked.programs.iter().flat_map(|program| &program.variables).filter_map(|variable| match variable {
        Variable::Pass(name) => Some(name.as_os_str()),
        Variable::Set(..) => None,
    });
    let is_set = |name: &OsStr| name.as_bytes().ends_with(b"*") || here.env.iter().any(|(own, _)| own == name);
    passed.filter(|name| !is_set(name)).collect()
}

fn placing(job: &Job) -> Result<Placing, Failure> {
    let none = MapByOption { map_by: MapBy::default(), file: None };
    let mut map_by = value::<MapByOption>("-map-by", job.map_by.as_deref())?.unwrap_or(none);
    let (bind_to, cpus) = match job.bind_to.as_deref().and_then(|text| text.rsplit_once(':')) {
        // Hydra's `core:2`.
        Some((object, count)) if count.parse::<u32>().is_ok_and(|count| count > 0) => {
            (Some(object), count.parse::<u32>().ok())
        }
        Some(_) | None => (job.bind_to.as_deref(), None),
    };
    let per = match (job.per_node, job.per_package) {
        (Some(_), Some(_)) => {
            return Err(Failure::usage("ranks per node and per package given: leave out one of them"));
        }
        (Some(count), None) => Some(Directive::Ppr { count, per: None }),
        (None, Some(count)) => Some(Directive::Ppr { count, per: Some(Kind::Package) }),
        (None, None) => None,
    };
    match (&per, &map_by.map_by.directive) {
        (Some(per), Some(directive)) if per != directive && *directive != Directive::Slot => {
            let text = format!("{} and a number of ranks per node: leave out one of them", map_by.map_by);
            return Err(Failure::usage(format!("-map-by {text}")));
        }
        (Some(_), Some(_) | None) => map_by.map_by.directive = per,
        (None, _) => {}
    }
    map_by.map_by.pe = job.cpus_per_rank.or(cpus).or(map_by.map_by.pe);
    map_by.map_by.nolocal |= job.nolocal;
    if job.oversubscribe == Some(false) {
        map_by.map_by.oversubscribe = Some(false);
    }
    let bind_to = bind_to.or(job.per_package.map(|_| "package"));
    let given = map_by.file.is_some() || map_by.map_by != MapBy::default();
    Ok(Placing {
        map_by: given.then_some(map_by),
        rank_by: value("-rank-by", job.rank_by.as_deref())?,
        bind_to: value("-bind-to", bind_to)?,
        mem_bind: value("-membind", job.mem_bind.as_deref())?,
        oversubscribe: job.oversubscribe == Some(true),
        use_hwthread_cpus: job.threads_as_cpus,
        rankfile: job.rankfile.clone(),
        gpus_per_rank: job.gpus_per_rank,
        gpus_visible: job.gpus_per_rank.is_some(),
        compat: value("-compat", job.compat.as_deref())?.or(job.by_hydra.then_some(Compat::Hydra)),
    })
}

/// Parses the value of an option of placement.
fn value<T: FromStr<Err = PolicyError>>(option: &str, text: Option<&str>) -> Result<Option<T>, Failure> {
    let parsed = |text: &str| text.parse().map_err(|error| Failure::usage(format!("{option} {text}: {error}")));
    text.map(parsed).transpose()
}

/// Parses the numbers of ranks that are acceptable.
fn soft(text: &str) -> Result<Soft, Failure> {
    let triplets = triplets::parse(text).map_err(|error| Failure::usage(format!("-soft: {error}")))?;
    let triplet = |triplets::Triplet { first, last, stride }| Triplet { first, last, stride };
    Ok(Soft { triplets: triplets.into_iter().map(triplet).collect() })
}

/// Returns the largest acceptable number of ranks.
fn most(text: &str) -> Result<u32, Failure> {
    let ends = soft(text)?.triplets.into_iter().map(|Triplet { first, last, stride }| match stride {
        ..0 => first,
        _ if last < first => 0,
        _ => first + last.saturating_sub(first) / stride * stride,
    });
    let most = ends.max().and_then(|most| u32::try_from(most).ok()).filter(|most| *most > 0);
    most.ok_or_else(|| Failure::usage(format!("-soft {text}: it accepts no number of ranks")))
}

#[cfg(test)]
mod tests;
