//! Jobs that ranks start: PMIx's form of what the engine spawns.
//!
//! Each program becomes a segment with the info keys of `spawning` (which documents them); attributes of the whole job count for
//! every program. The new job's KVS has the name of its spawner from the start, which its ranks are told as their parent.

use rsd_proto::pmi::v1::{Spawn, SpawnSegment};
use rsd_proto::pmix::{App, Info, Proc, Reply, Status, Value, keys};

use super::pending::Then;
use super::{Awaited, Effect, Local, Step, To};
use crate::Now;
use crate::step::dialect::{self, Asker, By};

/// The key of the spawner, as `NAMESPACE RANK`.
const PARENT_KEY: &str = "PMI_x/parent";

impl Step {
    pub(super) fn on_pmix_spawn(
        &mut self,
        now: Now,
        local: Local,
        to: To,
        infos: &[Info],
        apps: Vec<App>,
        out: &mut Vec<Effect>,
    ) {
        let segments: Option<Vec<SpawnSegment>> = apps.iter().map(|app| segment(infos, app)).collect();
        let Some(segments) = segments.filter(|segments| !segments.is_empty()) else {
            return self.send_pmix(to, &Reply::Done(Status::BAD_PARAM), out);
        };
        let parent = format!("{} {}", self.launch.namespace, self.ranks[local].rank);
        let preput = [(PARENT_KEY.as_bytes().to_vec(), parent.into_bytes())].into();
        let ticket = self.pmix.ticket(Awaited::Spawn(to));
        let asker = Asker { local, by: By::Pmix { ticket } };
        self.request(now, asker, dialect::Request::Spawn(Spawn { segments, preput }), out);
    }

    pub(super) fn on_pmix_spawned(&mut self, to: To, reply: dialect::Reply, out: &mut Vec<Effect>) {
        match reply {
            dialect::Reply::Spawned { namespace, .. } => self.with_jobs(to, vec![namespace], Then::Spawned, out),
            dialect::Reply::Done
            | dialect::Reply::Value(_)
            | dialect::Reply::Neighbours { .. }
            | dialect::Reply::Refused(_)
            | dialect::Reply::Failed(_) => {
                // The head has told the user why.
                self.send_pmix(to, &Reply::Done(Status::JOB_FAILED_TO_LAUNCH), out);
            }
        }
    }

    /// Returns the process that spawned this job.
    pub(super) fn pmix_parent(&self) -> Option<Proc> {
        let parent = self.kvs.get(PARENT_KEY.as_bytes())?;
        let (namespace, rank) = std::str::from_utf8(parent).ok()?.rsplit_once(' ')?;
        Some(Proc { namespace: namespace.to_owned(), rank: rank.parse().ok()? })
    }
}

/// Returns a program as the engine wants it; None: it names no program.
fn segment(of_job: &[Info], app: &App) -> Option<SpawnSegment> {
    let command = app.command.clone().or_else(|| app.argv.first().cloned()).filter(|name| !name.is_empty())?;
    let mut info: Vec<(Vec<u8>, Vec<u8>)> = Vec::new();
    let mut add = |key: &str, value: &[u8]| info.push((key.as_bytes().to_vec(), value.to_vec()));
    if let Some(cwd) = app.cwd.as_deref().filter(|cwd| !cwd.is_empty()) {
        add("wdir", cwd);
    }
    for variable in app.env.iter().filter(|variable| variable.contains(&b'=')) {
        add("env", variable);
    }
    for attribute in of_job.iter().chain(&app.infos) {
        let text = attribute.value.as_text();
        match (&attribute.key[..], text) {
            (keys::HOST | "pmix.addhost", Some(hosts)) => add("host", hosts),
            (keys::HOSTFILE | "pmix.addhostfile", Some(file)) => add("hostfile", file),
            (keys::WDIR, Some(wdir)) => add("wdir", wdir),
            (keys::ENVAR_SET | keys::ENVAR_ADD, _) => {
                if let Value::Envar(envar) = &attribute.value {
                    let name = envar.name.clone().unwrap_or_default();
                    add("env", &[&name[..], b"=", envar.value.as_deref().unwrap_or_default()].concat());
                }
            }
            (keys::MAP_BY, Some(rule)) => add("map_by", rule),
            (keys::BIND_TO, Some(rule)) => add("bind_to", rule),
            (keys::PPR, Some(rule)) => add("ppr", rule),
            // Keys of MPI's own, which Open MPI passes on under their names.
            (key, Some(value)) if !keys::is_reserved(key) => add(key, value),
            _ => {}
        }
    }
    let args = app.argv.iter().skip(1).cloned().collect();
    let nprocs = u32::try_from(app.processes).ok().filter(|n| *n > 0).unwrap_or(1);
    Some(SpawnSegment { nprocs, execname: command, args, info })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_program_keeps_its_words_environment_and_places() {
        let app = App {
            command: Some(b"./child".to_vec()),
            argv: vec![b"child".to_vec(), b"a b".to_vec()],
            env: vec![b"OMPI_PARENT_PORT=x=y".to_vec(), b"nothing".to_vec()],
            cwd: Some(b"/work".to_vec()),
            processes: 3,
            infos: vec![Info::new(keys::WDIR, Value::text("/other"))],
        };
        let of_job = [Info::new(keys::HOST, Value::text("a:2,b")), Info::new(keys::TIMEOUT, Value::Int(3))];
        let segment = segment(&of_job, &app).unwrap();
        assert_eq!(
            (segment.nprocs, &segment.execname[..], &segment.args[..]),
            (3, &b"./child"[..], &[b"a b".to_vec()][..])
        );
        let info = [("wdir", "/work"), ("env", "OMPI_PARENT_PORT=x=y"), ("host", "a:2,b"), ("wdir", "/other")];
        let info = info.map(|(key, value)| (key.as_bytes().to_vec(), value.as_bytes().to_vec()));
        assert_eq!(segment.info, info);
        assert_eq!(super::segment(&[], &App::default()), None);
    }
}
