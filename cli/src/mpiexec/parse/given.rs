//! One option of the command line: finds it in the table, takes its values, and records what it requests.

use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::OsStrExt;

use rsd_config::nearest::nearest;

use super::super::table::{self, Does, Row, Scope, Takes};
use super::values::{self, set};
use super::{Asked, Inherits, Job, Program, Show, Variable};

/// An option as it was typed.
pub(super) struct Given<'a> {
    pub(super) row: &'static Row,
    /// As typed, with its dashes.
    pub(super) typed: String,
    values: Vec<&'a OsStr>,
    /// How many of the arguments behind it are its values.
    pub(super) used: usize,
}

impl<'a> Given<'a> {
    /// Finds the option and its values. `behind`: the arguments behind it.
    pub(super) fn find(word: &'a str, behind: &'a [OsString]) -> Result<Given<'a>, String> {
        let bare = word.strip_prefix("--").or_else(|| word.strip_prefix('-')).unwrap_or(word);
        let (name, own) = bare.split_once('=').map_or((bare, None), |(name, value)| (name, Some(OsStr::new(value))));
        let row = table::find(name);
        // `-n4`
        let (row, own) = match (row, bare.strip_prefix('n')) {
            (None, Some(count)) if !count.is_empty() && count.bytes().all(|byte| byte.is_ascii_digit()) => {
                (table::find("n"), Some(OsStr::new(count)))
            }
            (row, _) => (row, own),
        };
        let Some(row) = row else { return Err(unknown(word, name)) };
        let typed = word.split('=').next().unwrap_or(word).to_owned();
        let mut given = Given { row, typed, values: Vec::new(), used: 0 };
        match (row.takes, own) {
            (Takes::Nothing, None) if row.does == Does::LocalOnly => {
                // smpd's `-localonly N`
                let is_number = |word: &OsStr| !word.is_empty() && word.as_bytes().iter().all(u8::is_ascii_digit);
                if let Some(count) = behind.first().filter(|next| is_number(next)) {
                    given.take(&[count]);
                }
            }
            (Takes::Nothing, None) => {}
            (Takes::Nothing, Some(value)) if name != "help" && name != "h" => {
                return Err(format!("{}: takes no value, but has `{}`", given.typed, value.display()));
            }
            (Takes::Nothing, Some(_)) => {}
            (Takes::Value(_), Some(value)) => given.values.push(value),
            (Takes::Pair, Some(value)) => {
                // `--env=NAME=VALUE`
                given.values.push(value);
            }
            (Takes::Two(_), Some(_)) => return Err(format!("{} takes two words: {0} NAME VALUE", given.typed)),
            (Takes::Value(_), None) if row.does == Does::StdinOrPreload => {
                if let Some(ranks) = behind.first().filter(|next| values::names_ranks(next)) {
                    given.take(&[ranks]);
                }
            }
            (Takes::Value(what), None) => given.take(&next(behind, 1, &given.typed, what)?),
            (Takes::Pair, None) => {
                let first = next(behind, 1, &given.typed, "NAME VALUE")?;
                match first[0].as_bytes().contains(&b'=') {
                    true => given.take(&first),
                    false => given.take(&next(behind, 2, &given.typed, "NAME VALUE")?),
                }
            }
            (Takes::Two(what), None) => given.take(&next(behind, 2, &given.typed, what)?),
            (Takes::Hosts, Some(value)) => given.values.push(value),
            (Takes::Hosts, None) => {
                let first = next(behind, 1, &given.typed, "HOSTS")?[0];
                let count = first.to_str().and_then(|word| word.parse::<usize>().ok());
                match count {
                    None => given.take(&[first]),
                    Some(count) => given.take(&counted(count, behind, &given.typed)?),
                }
            }
        }
        Ok(given)
    }

    fn take(&mut self, values: &[&'a OsStr]) {
        self.used = values.len();
        self.values.extend(values);
    }

    pub(super) fn value(&self) -> Result<&'a OsStr, String> {
        self.values.first().copied().ok_or_else(|| format!("{} needs a value", self.typed))
    }

    fn text(&self) -> Result<&'a str, String> {
        let value = self.value()?;
        value.to_str().ok_or_else(|| format!("{} {}: not valid UTF-8", self.typed, value.display()))
    }

    fn number(&self, what: &str) -> Result<u32, String> {
        let text = self.text()?;
        let wrong = || format!("{} {text}: write {what}", self.typed);
        text.parse().ok().filter(|number| *number > 0).ok_or_else(wrong)
    }

    /// The name and value of a variable.
    fn pair(&self) -> Result<Variable, String> {
        let (name, value) = match self.values[..] {
            [name, value] => (name.to_owned(), value.to_owned()),
            _ => {
                let word = self.value()?.as_bytes();
                let at = word.iter().position(|byte| *byte == b'=').unwrap_or(word.len());
                let value = word.get(at + 1..).unwrap_or_default();
                (OsStr::from_bytes(&word[..at]).to_owned(), OsStr::from_bytes(value).to_owned())
            }
        };
        match name.is_empty() || name.as_bytes().contains(&b'=') {
            true => Err(format!("{} {}: write {0} NAME VALUE", self.typed, name.display())),
            false => Ok(Variable::Set(name, value)),
        }
    }

    /// Does what the table says.
    pub(super) fn apply(&self, program: &mut Program, asked: &mut Asked) -> Result<(), String> {
        let Asked { job, notices, .. } = asked;
        let typed = &*self.typed;
        match self.row.does {
            Does::Ranks => set(&mut program.n, values::ranks(self.text()?, typed)?, typed),
            Does::Soft => set(&mut program.soft, self.text()?.to_owned(), typed),
            Does::Host => {
                let list = self.text()?;
                // Hosts of several options are one list.
                let list = match program.hosts.last_mut().filter(|_| !job.by_hydra) {
                    Some(before) => {
                        *before = values::one_slot_each(before);
                        values::one_slot_each(list)
                    }
                    None => values::alone_is_one_slot(list),
                };
                program.hosts.push(list);
                Ok(())
            }
            Does::HydraHosts if self.values.len() > 1 => {
                let (hosts, ranks) = values::of_ms_mpi(&self.values, typed)?;
                program.hosts.push(hosts);
                program.n = program.n.or(Some(ranks));
                Ok(())
            }
            Does::HydraHosts => {
                job.by_hydra = true;
                program.hosts.push(self.text()?.to_owned());
                Ok(())
            }
            Does::HostFile => set(&mut program.hostfile, self.value()?.into(), typed),
            Does::HydraHostFile => {
                job.by_hydra = true;
                set(&mut program.hostfile, self.value()?.into(), typed)
            }
            Does::PerNodeInTurns => {
                job.by_hydra = true;
                set(&mut job.per_node, self.number("the number of ranks per node")?, typed)
            }
            Does::PerNode => set(&mut job.per_node, self.number("the number of ranks per node")?, typed),
            Does::OnePerNode => set(&mut job.per_node, 1, typed),
            Does::PerPackage => set(&mut job.per_package, self.number("the number of ranks per package")?, typed),
            Does::MapBy => set(&mut job.map_by, self.text()?.to_owned(), typed),
            Does::Ppr => set(&mut job.map_by, format!("ppr:{}", self.text()?), typed),
            Does::MapTo(mapping) => set(&mut job.map_by, mapping.to_owned(), typed),
            Does::RankBy => set(&mut job.rank_by, self.text()?.to_owned(), typed),
            Does::BindTo => set(&mut job.bind_to, self.text()?.to_owned(), typed),
            Does::BoundTo(binding) => set(&mut job.bind_to, binding.to_owned(), typed),
            Does::MemBind => set(&mut job.mem_bind, self.text()?.to_owned(), typed),
            Does::RankFile => set(&mut job.rankfile, self.value()?.into(), typed),
            Does::Oversubscribe => set(&mut job.oversubscribe, true, typed),
            Does::NoOversubscribe => set(&mut job.oversubscribe, false, typed),
            Does::AllowSingletons => {
                job.allow_singletons = true;
                Ok(())
            }
            Does::Survive => {
                job.survives = true;
                Ok(())
            }
            Does::FaultTolerance => {
                let kind = self.text()?;
                match kind {
                    "mpi" | "ulfm" => {
                        job.survives = true;
                        let (name, value) = ("OMPI_MCA_mpi_ft_enable", "1");
                        job.variables.push(Variable::Set(name.into(), value.into()));
                        Ok(())
                    }
                    "none" | "no" => Ok(()),
                    _ => Err(format!("{typed} {kind}: write mpi, ulfm or none")),
                }
            }
            Does::ThreadsAsCpus => on(&mut job.threads_as_cpus),
            Does::CpusPerRank => set(&mut job.cpus_per_rank, self.number("the number of cpus per rank")?, typed),
            Does::CpuList => set(&mut job.map_by, format!("pe-list={}", self.text()?), typed),
            Does::NoLocal => on(&mut job.nolocal),
            Does::Gpus if self.text()?.eq_ignore_ascii_case("auto") => Ok(()),
            Does::Gpus => set(&mut job.gpus_per_rank, self.number("the number of GPUs per rank, or auto")?, typed),
            Does::LocalOnly => {
                job.local_only = true;
                match self.values[..] {
                    [] => Ok(()),
                    _ => set(&mut program.n, values::ranks(self.text()?, typed)?, typed),
                }
            }
            Does::Compat => set(&mut job.compat, self.text()?.to_owned(), typed),
            Does::Env(scope) => {
                variables(scope, program, job).push(self.pair()?);
                Ok(())
            }
            Does::EnvAll(scope) => set(inherits(scope, program, job), Inherits::All, typed),
            Does::EnvNone(scope) => set(inherits(scope, program, job), Inherits::None, typed),
            Does::EnvList(scope) => {
                let names = self.text()?.split(',').map(|name| name.trim().to_owned());
                set(
                    inherits(scope, program, job),
                    Inherits::Only(names.filter(|name| !name.is_empty()).collect()),
                    typed,
                )
            }
            Does::Export => {
                let text = self.value()?;
                let has_value = text.as_bytes().contains(&b'=');
                program.variables.push(if has_value { self.pair()? } else { Variable::Pass(text.to_owned()) });
                Ok(())
            }
            Does::Parameter(prefix) => {
                let Variable::Set(name, value) = self.pair()? else { return Ok(()) };
                let mut whole = OsString::from(prefix);
                whole.push(name);
                job.variables.push(Variable::Set(whole, value));
                Ok(())
            }
            Does::Directory(Scope::Program) => set(&mut program.wdir, self.value()?.into(), typed),
            Does::Directory(Scope::All) => set(&mut job.wdir, self.value()?.into(), typed),
            Does::Path(Scope::Program) => set(&mut program.path, self.directories()?, typed),
            Does::Path(Scope::All) => set(&mut job.path, self.directories()?, typed),
            Does::Umask => set(&mut job.umask, values::umask(self.text()?, typed)?, typed),
            Does::Priority => set(&mut job.nice, values::nice(self.text()?, typed)?, typed),
            Does::Label => on(&mut job.output.label),
            Does::Tag => on(&mut job.output.tag),
            Does::Timestamp => on(&mut job.output.time),
            Does::LabelPattern => set(&mut job.output.pattern, self.text()?.to_owned(), typed),
            Does::StdoutFile => set(&mut job.output.stdout, self.text()?.to_owned(), typed),
            Does::StderrFile => set(&mut job.output.stderr, self.text()?.to_owned(), typed),
            Does::OutputFiles => set(&mut job.output.directory, values::not_copied(self.text()?), typed),
            Does::Output => values::output(self.text()?, typed, &mut job.output),
            Does::Merge => on(&mut job.output.merged),
            Does::Stdin => set(&mut job.stdin, self.text()?.to_owned(), typed),
            Does::StdinOrPreload if self.values.is_empty() => {
                notices.push(format!("{typed} is ignored: rsd copies no files; the program must be on each node"));
                Ok(())
            }
            Does::StdinOrPreload => set(&mut job.stdin, self.text()?.to_owned(), typed),
            Does::ExitCodes => on(&mut job.exit_codes),
            Does::Timeout => set(&mut job.timeout, values::timeout(self.text()?, typed)?, typed),
            Does::JobName => set(&mut job.name, values::job_name(self.text()?, typed)?, typed),
            Does::JobLabel => {
                job.labels.push(values::job_label(self.text()?, typed)?);
                Ok(())
            }
            Does::Universe => set(&mut job.universe, values::universe(self.text()?, typed)?, typed),
            Does::ConfigFile => Err(format!("{typed}: it cannot be used here")),
            Does::ShowPlan => on(&mut job.show_plan),
            Does::PlanOnly => on(&mut job.plan_only),
            Does::Quiet => on(&mut job.quiet),
            Does::Info => show(job, Show::Info),
            Does::Version => show(job, Show::Version),
            Does::Help => show(job, Show::Help),
            Does::Dvm => set(&mut job.dvm, self.value()?.to_owned(), typed),
            Does::Accepted => Ok(()),
            Does::Ignored(why) => {
                let notice = format!("{typed} is ignored: {why}");
                if !notices.contains(&notice) {
                    notices.push(notice);
                }
                Ok(())
            }
            Does::Refused(instead) => Err(format!("{typed} is not supported: {instead}")),
        }
    }

    /// Directories to search; smpd separates them by semicolons.
    fn directories(&self) -> Result<OsString, String> {
        let bytes = self.value()?.as_bytes();
        let bytes: Vec<u8> = bytes.iter().map(|byte| if *byte == b';' { b':' } else { *byte }).collect();
        Ok(OsStr::from_bytes(&bytes).to_owned())
    }
}

fn unknown(word: &str, name: &str) -> String {
    let names = table::ROWS.iter().flat_map(|section| section.1).flat_map(Row::names).filter(|known| known.len() > 1);
    let near = nearest(name, names).map(|name| format!("; did you mean -{name}?")).unwrap_or_default();
    format!("unknown option {}{near} (all options: mpiexec --help)", word.split('=').next().unwrap_or(word))
}

/// The next `count` arguments.
fn next<'a>(behind: &'a [OsString], count: usize, typed: &str, what: &str) -> Result<Vec<&'a OsStr>, String> {
    match behind.get(..count) {
        Some(values) => Ok(values.iter().map(OsString::as_os_str).collect()),
        None => Err(format!("{typed} needs a value: {typed} {what}")),
    }
}

/// `COUNT HOST [N] HOST [N] …`, as MS-MPI takes them.
fn counted<'a>(count: usize, behind: &'a [OsString], typed: &str) -> Result<Vec<&'a OsStr>, String> {
    let is_number = |word: &OsString| word.to_str().is_some_and(|word| word.parse::<u32>().is_ok());
    let mut end = 1;
    // A list that is too short ends the loop: the count may be any number.
    for _ in 0..count.min(behind.len()) {
        end += 1;
        end += usize::from(behind.get(end).is_some_and(is_number));
    }
    next(behind, end, typed, &format!("{count} HOST [N] …, with {count} hosts"))
}

fn on(place: &mut bool) -> Result<(), String> {
    *place = true;
    Ok(())
}

fn show(job: &mut Job, what: Show) -> Result<(), String> {
    job.show.get_or_insert(what);
    Ok(())
}

fn variables<'a>(scope: Scope, program: &'a mut Program, job: &'a mut Job) -> &'a mut Vec<Variable> {
    match scope {
        Scope::Program => &mut program.variables,
        Scope::All => &mut job.variables,
    }
}

fn inherits<'a>(scope: Scope, program: &'a mut Program, job: &'a mut Job) -> &'a mut Option<Inherits> {
    match scope {
        Scope::Program => &mut program.inherits,
        Scope::All => &mut job.inherits,
    }
}
