//! Questions of clients about their job, lines for its output, and requests to control it.

use std::collections::BTreeSet;

use bytes::Bytes;
use rsd_proto::pmix::{DataType, Info, Proc, ProcInfo, Query, Reply, Status, Value, keys, rank, text};
use rsd_proto::v1::{Control, Namespaces, RankRun, Stream, control, name_call};

use super::description::{Description, procs};
use super::pending::{Asked, Then};
use super::{Awaited, Effect, Local, Step, To};
use crate::Now;
use crate::step::Phase;

/// The most other jobs that the queries of one request are about.
const JOBS_MAX: usize = 64;

/// The states of processes.
mod state {
    pub(super) const RUNNING: u8 = 5;
    pub(super) const CONNECTED: u8 = 6;
    pub(super) const TERMINATED: u8 = 20;
}

impl Step {
    /// Answers queries, with the head's help if they are about other jobs.
    pub(super) fn on_pmix_query(&mut self, local: Local, to: To, queries: Vec<Query>, out: &mut Vec<Effect>) {
        let mut asked = queries.iter().flat_map(|query| &query.keys);
        if asked.any(|key| key == keys::QUERY_NAMESPACES.as_bytes()) {
            let ticket = self.pmix.ticket(Awaited::Head(Asked::Namespaces(to, queries)));
            return self.ask_head_for(
                ticket,
                name_call::Op::Namespaces(Namespaces { rank: self.ranks[local].rank }),
                out,
            );
        }
        self.query_jobs(to, queries, None, out);
    }

    /// Answers queries once the descriptions of the jobs that they are about are known.
    pub(super) fn query_jobs(&mut self, to: To, queries: Vec<Query>, namespaces: Option<Bytes>, out: &mut Vec<Effect>) {
        let about = queries.iter().filter_map(|query| job_of(&query.qualifiers));
        let jobs: BTreeSet<String> = about.filter(|job| *job != self.launch.namespace).map(str::to_owned).collect();
        if jobs.len() > JOBS_MAX {
            return self.send_pmix(to, &Reply::Done(Status::BAD_PARAM), out);
        }
        self.with_jobs(to, jobs.into_iter().collect(), Then::Queried { queries, namespaces }, out);
    }

    pub(super) fn answer_queries(&self, queries: &[Query], namespaces: Option<&Bytes>) -> Reply {
        let asked = queries.iter().flat_map(|query| query.keys.iter().map(move |key| (key, &query.qualifiers[..])));
        let asked: Vec<(&Vec<u8>, &[Info])> = asked.collect();
        let answers: Vec<Info> = asked
            .iter()
            .filter_map(|(key, qualifiers)| {
                let key = std::str::from_utf8(key).ok()?;
                let value = match namespaces.filter(|_| key == keys::QUERY_NAMESPACES) {
                    Some(namespaces) => Value::String(Some(namespaces.to_vec())),
                    None => self.answer_query(key, qualifiers)?,
                };
                Some(Info::new(key, value))
            })
            .collect();
        let status = match answers.len() {
            0 => Status::NOT_FOUND,
            found if found == asked.len() => Status::SUCCESS,
            _ => Status::PARTIAL_SUCCESS,
        };
        Reply::Infos(status, answers)
    }

    fn answer_query(&self, key: &str, qualifiers: &[Info]) -> Option<Value> {
        let own = &self.launch.namespace;
        let wanted = Info::find(qualifiers, keys::RANK).and_then(Value::as_number);
        let wanted = wanted.and_then(|rank| u32::try_from(rank).ok()).filter(|rank| *rank < rank::FIRST_SPECIAL);
        if let Some(about) = job_of(qualifiers).filter(|about| about != own) {
            let description = self.described(about)?;
            return match (key, wanted) {
                (keys::QUERY_PROC_TABLE, _) => Some(table_of(description)),
                (key, Some(rank)) => description.value_of(rank, key),
                (key, None) => description.value(key),
            };
        }
        let groups = &self.pmix.collectives;
        let listed = |names: Vec<&str>| Value::text(names.join(","));
        match key {
            keys::QUERY_NAMESPACES => Some(Value::text(own.clone())),
            // Process sets are the MPI library's own: mpi://WORLD and mpi://SELF.
            keys::QUERY_NUM_PSETS => Some(Value::Size(0)),
            keys::QUERY_PSET_NAMES => Some(Value::text("")),
            keys::QUERY_NUM_GROUPS => Some(Value::Size(groups.groups().count() as u64)),
            keys::QUERY_GROUP_NAMES => Some(listed(groups.group_names().collect())),
            keys::QUERY_GROUP_MEMBERS => {
                let group = Info::find(qualifiers, "pmix.grp.id").and_then(Value::as_text)?;
                Some(procs(groups.members_of(std::str::from_utf8(group).ok()?)?))
            }
            keys::QUERY_SPAWN_SUPPORT => Some(listed(vec![
                keys::HOST,
                keys::HOSTFILE,
                keys::WDIR,
                keys::ENVAR_SET,
                keys::ENVAR_PREPEND,
                keys::ENVAR_APPEND,
            ])),
            keys::QUERY_LOCAL_PROC_TABLE => Some(self.proc_table(true)),
            keys::QUERY_PROC_TABLE => Some(self.proc_table(false)),
            key => {
                let description = self.description();
                match wanted {
                    Some(rank) => description.value_of(rank, key),
                    None => description.value(key),
                }
            }
        }
    }

    /// Returns the table of the job's processes. Process ids and states are known only of this node's.
    fn proc_table(&self, here: bool) -> Value {
        let program = |rank: u32| {
            let mut behind = 0;
            let app = self.launch.app_sizes.iter().position(|size| {
                behind += size;
                rank < behind
            });
            let argv = app.and_then(|app| self.launch_spec().apps.get(app)).and_then(|app| app.argv.first());
            argv.map(|name| name.to_vec())
        };
        let row = |number: u32| {
            let rank = self.ranks.iter().find(|rank| rank.rank == number);
            let state = match rank.map(|rank| rank.phase) {
                Some(Phase::Exited(_) | Phase::NeverRan | Phase::Left) => state::TERMINATED,
                Some(Phase::Starting | Phase::Running) if rank.is_some_and(|rank| rank.pmi.is_active()) => {
                    state::CONNECTED
                }
                Some(Phase::Starting | Phase::Running) | None => state::RUNNING,
            };
            let node = self.map.node_of(number).and_then(|id| self.map.position(id));
            Value::ProcInfo(Box::new(ProcInfo {
                proc: Proc::new(&self.launch.namespace, number),
                hostname: node.and_then(|node| self.launch.node_names.get(node)).and_then(|name| text(name)),
                executable: program(number),
                pid: rank.map_or(0, |rank| rank.pid),
                state,
            }))
        };
        let rows = match here {
            true => self.ranks.iter().map(|rank| row(rank.rank)).collect(),
            false => (0..self.map.size()).map(row).collect(),
        };
        Value::array(DataType::ProcInfo, rows)
    }

    pub(super) fn resolve_peers(&self, node: Option<&[u8]>, namespace: &str) -> Reply {
        if !namespace.is_empty() && namespace != self.launch.namespace {
            return Reply::Done(Status::NOT_FOUND);
        }
        let all = 0..self.map.nodes().len();
        let wanted: Vec<usize> = match node.filter(|node| !node.is_empty()) {
            Some(name) => all.filter(|index| self.launch.node_names[*index].as_bytes() == name).collect(),
            None => all.collect(),
        };
        if wanted.is_empty() {
            return Reply::Done(Status::NOT_FOUND);
        }
        let ranks = wanted.into_iter().flat_map(|index| self.map.ranks_on(self.map.nodes()[index]));
        Reply::Procs(ranks.map(|rank| Proc::new(&self.launch.namespace, rank)).collect())
    }

    pub(super) fn resolve_nodes(&self, namespace: &str) -> Reply {
        match namespace.is_empty() || namespace == self.launch.namespace {
            true => Reply::Text(text(&self.launch.node_names.join(","))),
            false => Reply::Done(Status::NOT_FOUND),
        }
    }

    /// Writes what a client logs to its own output: Open MPI's explanations of its errors arrive here.
    pub(super) fn on_pmix_log(&mut self, local: Local, infos: &[Info], out: &mut Vec<Effect>) -> Status {
        let mut done = 0;
        for info in infos {
            let stream = match &info.key[..] {
                keys::LOG_STDERR => Stream::Stderr,
                keys::LOG_STDOUT => Stream::Stdout,
                _ => continue,
            };
            if let Some(line) = info.value.as_text() {
                done += 1;
                let end = if line.ends_with(b"\n") { &b""[..] } else { b"\n" };
                self.on_output(local, stream, &Bytes::from([line, end].concat()), out);
            }
        }
        match done {
            0 if infos.is_empty() => Status::SUCCESS,
            0 => Status::NOT_SUPPORTED,
            _ => Status::SUCCESS,
        }
    }

    /// Signals or ends processes of this job or of others of the same user, and takes over what is to be removed.
    pub(super) fn on_job_control(
        &mut self,
        now: Now,
        local: Local,
        to: To,
        targets: &[Proc],
        infos: &[Info],
        out: &mut Vec<Effect>,
    ) {
        let own = &self.launch.namespace;
        let of = targets.first().map_or(own, |target| &target.namespace).clone();
        if targets.iter().any(|target| target.namespace != of) {
            return self.send_pmix(to, &Reply::Done(Status::NOT_SUPPORTED), out); // processes of one job at a time
        }
        let is_own = of == *own;
        let whole = targets.is_empty() || targets.iter().any(|target| target.rank == rank::WILDCARD);
        let mut status = Status::NOT_SUPPORTED;
        let cleans = |info: &Info| [keys::REGISTER_CLEANUP, keys::REGISTER_CLEANUP_DIR].contains(&&info.key[..]);
        if is_own && infos.iter().any(cleans) {
            status = self.on_cleanup(local, targets, infos);
        }
        for info in infos {
            match &info.key[..] {
                keys::JOB_CONTROL_KILL | keys::JOB_CONTROL_TERMINATE if whole && is_own => {
                    self.on_abort(now, local, 1, true);
                    status = Status::SUCCESS;
                }
                keys::JOB_CONTROL_KILL | keys::JOB_CONTROL_TERMINATE if whole => {
                    return self.control((local, to), of, control::What::End(true), Vec::new(), out);
                }
                keys::JOB_CONTROL_SIGNAL => {
                    let Some(signal) = info.value.as_number().and_then(|number| i32::try_from(number).ok()) else {
                        return self.send_pmix(to, &Reply::Done(Status::BAD_PARAM), out);
                    };
                    let run = |target: &Proc| RankRun { first: target.rank, last: target.rank };
                    let ranks = if whole { Vec::new() } else { targets.iter().map(run).collect() };
                    return self.control((local, to), of, control::What::Signal(signal), ranks, out);
                }
                _ => {}
            }
        }
        self.send_pmix(to, &Reply::Infos(status, Vec::new()), out);
    }

    /// Asks the head to signal or end processes.
    fn control(
        &mut self,
        (local, to): (Local, To),
        namespace: String,
        what: control::What,
        mut ranks: Vec<RankRun>,
        out: &mut Vec<Effect>,
    ) {
        ranks.sort_unstable_by_key(|run| run.first);
        ranks.dedup();
        let ticket = self.pmix.ticket(Awaited::Head(Asked::Control(to)));
        let control = Control { namespace, what: Some(what), ranks, rank: self.ranks[local].rank };
        self.ask_head_for(ticket, name_call::Op::Control(control), out);
    }
}

/// Returns the job that a query is about, if it says so.
fn job_of(qualifiers: &[Info]) -> Option<&str> {
    let about = Info::find(qualifiers, keys::NAMESPACE).and_then(Value::as_text)?;
    std::str::from_utf8(about).ok().filter(|about| !about.is_empty())
}

/// Returns the table of another job's processes, with what is known here.
fn table_of(job: &Description) -> Value {
    let row = |number: u32| {
        let node = job.map.node_of(number).and_then(|id| job.map.nodes().iter().position(|node| *node == id));
        Value::ProcInfo(Box::new(ProcInfo {
            proc: Proc::new(&job.namespace, number),
            hostname: node.and_then(|node| job.node_names.get(node)).and_then(|name| text(name)),
            executable: None,
            pid: 0,
            state: state::RUNNING,
        }))
    };
    Value::array(DataType::ProcInfo, (0..job.map.size()).map(row).collect())
}
