//! Questions of clients about their job, lines for its output, and requests to control it.

use bytes::Bytes;
use rsd_proto::pmix::{DataType, Info, Proc, ProcInfo, Query, Reply, Status, Value, keys, rank, text};
use rsd_proto::v1::Stream;

use super::description::procs;
use super::{Effect, Local, Step};
use crate::Now;
use crate::step::Phase;

/// The states of processes.
mod state {
    pub(super) const RUNNING: u8 = 5;
    pub(super) const CONNECTED: u8 = 6;
    pub(super) const TERMINATED: u8 = 20;
}

impl Step {
    pub(super) fn answer_queries(&self, queries: &[Query]) -> Reply {
        let asked = queries.iter().flat_map(|query| query.keys.iter().map(move |key| (key, &query.qualifiers[..])));
        let asked: Vec<(&Vec<u8>, &[Info])> = asked.collect();
        let answers: Vec<Info> = asked
            .iter()
            .filter_map(|(key, qualifiers)| {
                let key = std::str::from_utf8(key).ok()?;
                Some(Info::new(key, self.answer_query(key, qualifiers)?))
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
        let about = Info::find(qualifiers, keys::NAMESPACE).and_then(Value::as_text);
        if about.is_some_and(|about| about != own.as_bytes()) {
            return None;
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
                let wanted = Info::find(qualifiers, keys::RANK).and_then(Value::as_number);
                let description = self.description();
                match wanted.and_then(|rank| u32::try_from(rank).ok()) {
                    Some(rank) if rank < rank::FIRST_SPECIAL => description.value_of(rank, key),
                    Some(_) | None => description.value(key),
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
            let node = self.map.node_of(number).and_then(|id| self.map.nodes().iter().position(|node| *node == id));
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

    /// Controls this job's processes.
    pub(super) fn on_job_control(
        &mut self,
        now: Now,
        local: Local,
        targets: &[Proc],
        infos: &[Info],
        out: &mut Vec<Effect>,
    ) -> Reply {
        if targets.iter().any(|target| target.namespace != self.launch.namespace) {
            return Reply::Done(Status::NO_PERMISSIONS);
        }
        let whole = targets.is_empty() || targets.iter().any(|target| target.rank == rank::WILDCARD);
        let is_meant = |number: u32| whole || targets.iter().any(|target| target.rank == number);
        let mut status = Status::NOT_SUPPORTED;
        if infos.iter().any(|info| [keys::REGISTER_CLEANUP, keys::REGISTER_CLEANUP_DIR].contains(&&info.key[..])) {
            status = self.on_cleanup(local, targets, infos);
        }
        for info in infos {
            match &info.key[..] {
                keys::JOB_CONTROL_KILL | keys::JOB_CONTROL_TERMINATE if whole => {
                    self.on_abort(now, local, 1, true);
                    status = Status::SUCCESS;
                }
                keys::JOB_CONTROL_SIGNAL => {
                    let Some(signal) = info.value.as_number().and_then(|number| i32::try_from(number).ok()) else {
                        return Reply::Done(Status::BAD_PARAM);
                    };
                    // Ranks of other nodes are not reached: rsctl signal does that.
                    for (of, rank) in self.ranks.iter().enumerate() {
                        if rank.phase == Phase::Running && rank.member.is_none() && is_meant(rank.rank) {
                            out.push(Effect::Signal(of, signal));
                        }
                    }
                    status = Status::SUCCESS;
                }
                _ => {}
            }
        }
        Reply::Infos(status, Vec::new())
    }
}
