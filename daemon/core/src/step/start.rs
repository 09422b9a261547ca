//! How a step starts its ranks: program, rank numbers and environment.
//!
//! Ranks start at once or, in a job of several [programs](super::programs), when their MPI libraries are known and, in a job with
//! `--export`, when it is known where they [meet](super::meeting). The ranks of a group's
//! epoch already run: the step waits for their connections instead.

use std::net::IpAddr;

use bytes::Bytes;
use rsd_proto::frameworks::EXPORTED;
use rsd_proto::pmi::environment::{Place, is_launcher_variable};
use rsd_proto::pmi::listening;
use rsd_proto::pmix::environment::Server;
use rsd_proto::pmix::fabric;
use rsd_proto::v1::{self as wire, EnvVar, JobSpec, LaunchBody, stdin_target::Target, up};

use super::bound::{Bound, Part};
use super::lines::Lines;
use super::{Effect, Local, Phase, Rank, StdinState, Step, exits, meeting, pmi};
use crate::taskmap::TaskMap;
use crate::{NodeId, Now, Tuning};

/// One rank to start. Its argv and working directory are those of `LaunchBody.spec.apps[app]`, its environment is
/// [`Step::environment`] of that app plus `env`.
#[derive(Debug)]
pub struct RankStart {
    /// The index of the rank on this node.
    pub local: Local,
    /// Its rank in the job.
    pub rank: u32,
    /// The index of its program in an MPMD job.
    pub app: usize,
    /// Its own environment variables, as `NAME=VALUE`; the shell adds PMI_FD and RSD_LISTEN_FD.
    pub env: Vec<String>,
    /// The part of the node that it may use.
    pub bound: Bound,
    /// The address for its listening socket, whose port [`super::Input::Listening`] reports. If the socket cannot be made, the rank
    /// starts without, unless no port was free.
    pub listen: Option<IpAddr>,
    /// Whether it reads the client's standard input rather than /dev/null.
    pub reads_stdin: bool,
}

/// Returns the node's ranks in rank order; `parts[i]` is the part of the node that the i-th rank may use.
pub(super) fn local_ranks(
    node: NodeId,
    map: &TaskMap,
    launch: &LaunchBody,
    parts: Vec<Part>,
    tuning: Tuning,
) -> Result<Vec<Rank>, String> {
    let spec = launch.spec.as_ref().ok_or("invalid launch: it contains no job")?;
    if launch.app_sizes.len() != spec.apps.len() || launch.node_names.len() != map.nodes().len() {
        return Err("invalid launch: it is inconsistent".into());
    }
    if launch.app_sizes.iter().map(|n| u64::from(*n)).sum::<u64>() != u64::from(map.size()) {
        return Err("invalid launch: its programs and its map disagree on the number of ranks".into());
    }
    if spec.apps.iter().any(|app| app.argv.is_empty()) {
        return Err("invalid launch: it names no program".into());
    }
    let whole_lines = map.size() > 1;
    let ranks = map.ranks_on(node).zip(parts).map(|(rank, part)| Rank {
        rank,
        part,
        app: app_of(&launch.app_sizes, rank),
        phase: Phase::Starting,
        pid: 0,
        wants_losses: false,
        pmi: pmi::Conn::default(),
        passed: 0,
        port: 0,
        lines: [0, 1].map(|_| Lines::new(whole_lines, tuning.line_max)),
        stdin: if reads_stdin(spec, rank) { StdinState::Open { written: 0 } } else { StdinState::Null },
        verdict: exits::Verdict::default(),
        member: None,
    });
    let ranks: Vec<Rank> = ranks.collect();
    if ranks.is_empty() { Err(format!("invalid launch: it has no rank for node {node}")) } else { Ok(ranks) }
}

fn app_of(app_sizes: &[u32], rank: u32) -> usize {
    let mut behind = 0;
    app_sizes
        .iter()
        .position(|size| {
            behind += size;
            rank < behind
        })
        .expect("the sizes were checked to sum to the number of ranks")
}

fn reads_stdin(spec: &JobSpec, rank: u32) -> bool {
    match spec.stdin.and_then(|stdin| stdin.target) {
        Some(Target::Rank(wanted)) => wanted == rank,
        Some(Target::All(all)) => all,
        Some(Target::None(_)) | None => false,
    }
}

impl Step {
    pub(super) fn on_start(&mut self, now: Now, out: &mut Vec<Effect>) {
        if self.has_members() {
            self.await_members(now, out);
        }
        match self.has_several_programs() {
            true => out.push(Effect::FindLibraries),
            false => self.meet_and_begin(now, out),
        }
    }

    /// Begins at once or, in a job with `--export`, when it is known where the ranks meet.
    pub(super) fn meet_and_begin(&mut self, now: Now, out: &mut Vec<Effect>) {
        match self.needs_meeting() {
            true => self.begin_meeting(out),
            false => self.begin(now, out),
        }
    }

    /// Starts the ranks, or sends the members the address and port where they meet.
    pub(super) fn begin(&mut self, now: Now, out: &mut Vec<Effect>) {
        match self.has_members() {
            true => self.send_master(out),
            false => self.start(now, out),
        }
    }

    /// Reports that no rank is started, and why, as a sentence.
    pub(super) fn fail_before(&mut self, now: Now, why: &str, out: &mut Vec<Effect>) {
        for local in 0..self.ranks.len() {
            self.on_start_failed(now, local, why.to_owned(), out);
        }
    }

    fn start(&mut self, now: Now, out: &mut Vec<Effect>) {
        let here = self.ranks.len();
        let node_index = self.map.position(self.node).unwrap_or(0);
        let node_name = self.launch.node_names[node_index].clone();
        let listen = self.listens_at();
        let mut failed = Vec::new();
        let mut offers_pmix = false;
        for (local, rank) in self.ranks.iter().enumerate() {
            let (bound, part_env) = match &rank.part {
                Ok(part) => part.clone(),
                Err(why) => {
                    failed.push((local, why.clone()));
                    continue;
                }
            };
            let number = rank.rank;
            let place = Place {
                job: crate::attempts::number(self.job),
                rank: number,
                size: self.map.size(),
                local_rank: local as u32,
                local_size: here as u32,
                node_index: node_index as u32,
                node_name: &node_name,
                namespace: &self.launch.namespace,
                node_address: &self.address,
            };
            let mut env: Vec<String> =
                place.variables().into_iter().map(|(name, value)| format!("{name}={value}")).collect();
            env.extend(part_env);
            env.extend(self.job_name().map(|name| format!("RSD_JOB_NAME={name}")));
            env.extend((!self.launch.dial_out.is_empty()).then(|| format!("{}=1", listening::DIAL_OUT)));
            env.push(format!("{}={}", listening::CROWDED, u32::from(self.launch.crowded)));
            env.extend(self.launch.spawned.then(|| "PMI_SPAWNED=1".to_owned()));
            if let Some(server) = self.pmix_server() {
                let variables = server.variables(&place, &self.program_of(rank.app)).into_iter();
                env.extend(variables.map(|(name, value)| format!("{name}={value}")));
                env.extend(self.unless_set(server, here as u32, rank.app));
            }
            env.extend(self.frameworks_env(&place, rank.app));
            name_exported(&mut env);
            offers_pmix |= env.iter().any(|variable| variable.starts_with("PMIX_SERVER_URI"));
            let reads_stdin = rank.stdin != StdinState::Null;
            out.push(Effect::Spawn(RankStart { local, rank: number, app: rank.app, env, bound, listen, reads_stdin }));
        }
        self.begin_guard(now, offers_pmix);
        for (local, why) in failed {
            self.on_start_failed(now, local, why, out);
        }
    }

    /// Returns the name that the user has given the job, if any.
    fn job_name(&self) -> Option<&str> {
        self.launch.spec.as_ref().map(|spec| spec.name.as_str()).filter(|name| !name.is_empty())
    }

    /// Returns the variables that make libraries use this process manager, unless the user has set them.
    fn unless_set(&self, server: &Server, local_size: u32, app: usize) -> Vec<String> {
        let given = Step::environment(&self.launch, app);
        let names: Vec<&[u8]> = given.iter().filter_map(|var| var.split(|byte| *byte == b'=').next()).collect();
        let wanted = server.unless_set(local_size, &names).into_iter();
        wanted.map(|(name, value)| format!("{name}={value}")).collect()
    }

    /// Reports that the last rank here has started, in a spawned job, whose spawner waits for that.
    pub(super) fn settle_begun(&mut self, out: &mut Vec<Effect>) {
        let never = |rank: &Rank| matches!(rank.phase, Phase::Starting | Phase::NeverRan);
        if self.begun || !self.launch.spawned || self.ranks.iter().any(never) {
            return;
        }
        self.begun = true;
        self.send_begun(out);
    }

    /// Repeats that report on a new link.
    pub(super) fn send_begun(&self, out: &mut Vec<Effect>) {
        if self.begun {
            self.send(up::Body::Begun(wire::Begun { job: self.job, nodes: vec![self.node] }), out);
        }
    }

    /// Returns the environment of an app as `NAME=VALUE`: the client's without variables of other launchers, then the app's own.
    /// With `gpus_visible`, each rank's GPUs replace `CUDA_VISIBLE_DEVICES`.
    pub fn environment(launch: &LaunchBody, app: usize) -> Vec<Bytes> {
        let Some(spec) = &launch.spec else { return Vec::new() };
        let own = spec.apps.get(app).map_or(&[][..], |app| &app.env);
        let overridden = |var: &&EnvVar| !own.iter().any(|other| other.name == var.name);
        let inherited = spec.env.iter().filter(overridden).filter(|var| !is_launcher_variable(&var.name));
        let ours = |var: &&EnvVar| !(spec.gpus_visible && var.name == b"CUDA_VISIBLE_DEVICES"[..]);
        let inherited = inherited.filter(|var| meeting::may_be_inherited(spec, &var.name));
        inherited
            .chain(own)
            .filter(ours)
            .map(|EnvVar { name, value }| [name, &b"="[..], value].concat().into())
            .collect()
    }
}

/// Adds the variables about fabrics to the list of those that are not the user's own: a job that a rank submits to other nodes is not
/// to inherit what is true of this one.
fn name_exported(env: &mut Vec<String>) {
    let names = env.iter().filter_map(|var| var.split('=').next());
    let names: Vec<&str> = names.filter(|name| fabric::is_of_absence(name)).collect();
    if names.is_empty() {
        return;
    }
    let names = names.join(",");
    match env.iter_mut().find(|var| var.split('=').next() == Some(EXPORTED)) {
        Some(list) if list.ends_with('=') => list.push_str(&names),
        Some(list) => list.extend([",", &names]),
        None => env.push(format!("{EXPORTED}={names}")),
    }
}
