//! The PMIx server of a step: what Open MPI and other PMIx clients ask of their process manager.
//!
//! A client is one connection of a rank; a rank may have several, one after the other or at once. The server is a codec over the engine
//! (`dialect`) for what all dialects have (fences of the whole job, spawns, aborts), and does itself what only PMIx has:
//!
//! - `description`: what a client is told about its job, and about other jobs;
//! - `committed`: the values that ranks put, opaque but for their keys;
//! - `gets`: which of them a client gets, and when;
//! - `collectives`: fences of some ranks, connections of jobs, groups;
//! - `published`: values under names;
//! - `spawns`: jobs that ranks start;
//! - `events`: what clients are told, and tell each other;
//! - `questions`: queries, logs and requests to control a job;
//! - `leftovers`: files that ranks want removed after their end;
//! - `pending`: what these modules pass each other.
//!
//! A request that others must complete keeps its [`To`] under a ticket, or in the list of the module that completes it. Nothing here
//! outlives the step. Answers to clients that are gone are dropped.

mod collectives;
mod committed;
mod description;
mod elsewhere;
mod events;
mod gets;
mod leftovers;
mod pending;
mod published;
mod questions;
mod spawns;

use std::collections::{BTreeMap, HashMap, VecDeque};
use std::time::Duration;

use bytes::Bytes;
use rsd_proto::pmix::environment::{Program, Server};
use rsd_proto::pmix::{
    Codec, GroupForm, Hello, Info, Message, MessageDecoder, Proc, Reply, Request, Role, Status, accepted, keys, rank,
    refused,
};

use rsd_proto::visible::visible;

use super::dialect::{self, Asker, By};
use super::{Effect, Local, Step};
use crate::Now;

use collectives::{Arrived, Collectives, Kind};
use committed::Committed;
use description::{Description, Inside};
use elsewhere::Elsewhere;
use events::{Events, Wanted};
use gets::Gets;
pub use leftovers::{Removal, Removed};

/// The number of a client, which the step process assigns: never used twice.
pub type Client = u64;

/// The most requests of one step that wait at a time.
const WAITING_MAX: usize = 1 << 16;

/// The PMIx server of a step.
#[derive(Debug, Default)]
pub(super) struct Pmix {
    /// Where it listens; None: there is none.
    server: Option<Server>,
    clients: BTreeMap<Client, Peer>,
    /// The last ticket.
    ticket: u64,
    awaited: BTreeMap<u64, Awaited>,
    /// The encoded description of this job, for each codec that was asked for.
    told: HashMap<Codec, Bytes>,
    committed: HashMap<Local, Committed>,
    gets: Gets,
    collectives: Collectives,
    elsewhere: Elsewhere,
    events: Events,
    /// What to remove when a rank has ended; None: when all have.
    leftovers: Vec<(Option<Local>, Removal)>,
    /// Ranks in the job's fence, each with the further fences that it has requested meanwhile.
    fencing: HashMap<Local, VecDeque<Fencing>>,
}

/// A connection.
#[derive(Debug)]
struct Peer {
    local: Local,
    codec: Codec,
    role: Role,
    groups: GroupForm,
    decoder: MessageDecoder,
    finalized: bool,
    wanted: Wanted,
}

/// Where an answer goes: the request with this tag of this client.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct To {
    client: Client,
    tag: u32,
}

/// What an answer of the engine or of the head completes.
#[derive(Debug)]
enum Awaited {
    /// The job's fence, for this rank.
    Fence(Local),
    /// A finalize.
    Finalize(To),
    /// A spawn.
    Spawn(To),
    /// What a rank has distributed with a fence, for this get.
    Held(pending::Missing),
    /// A request to the head.
    Head(pending::Asked),
}

/// A fence of the whole job that a rank has requested.
#[derive(Debug)]
struct Fencing {
    to: To,
    collects: bool,
    until: Option<Duration>,
    answered: bool,
}

/// Requests that wait for ranks of this node.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Blocked {
    /// The name of a collective, unless they wait for a value.
    pub(super) collective: String,
    /// The key of a value; empty: any.
    pub(super) value: Option<String>,
    pub(super) since: Duration,
    /// How many wait.
    pub(super) inside: u32,
    /// For which ranks.
    pub(super) missing: Vec<Local>,
}

impl Pmix {
    fn ticket(&mut self, awaited: Awaited) -> u64 {
        self.ticket += 1;
        self.awaited.insert(self.ticket, awaited);
        self.ticket
    }

    fn is_full(&self) -> bool {
        self.awaited.len() + self.gets.len() + self.collectives.len() > WAITING_MAX
    }

    /// Returns whether the rank has a connection.
    pub(super) fn serves(&self, local: Local) -> bool {
        self.clients.values().any(|peer| peer.local == local)
    }
}

impl Step {
    /// Lets the step serve PMIx where the step process listens.
    pub fn serve_pmix(mut self, server: Server) -> Step {
        self.pmix.server = Some(server);
        self
    }

    /// Returns where the step serves PMIx.
    pub(super) fn pmix_server(&self) -> Option<&Server> {
        self.pmix.server.as_ref()
    }

    /// Handles the first message of a new client, whose process belongs to this user.
    pub(super) fn on_pmix_hello(&mut self, now: Now, client: Client, hello: &Hello, uid: u32, out: &mut Vec<Effect>) {
        let is_it = |rank: &super::Rank| {
            rank.rank == hello.proc.rank
                && !rank.phase.is_over()
                && rank.member.as_ref().is_none_or(|member| member.belongs_to(uid))
        };
        let local = self.ranks.iter().position(is_it).filter(|_| hello.proc.namespace == self.launch.namespace);
        let Some(local) = local else {
            let refusal = Bytes::copy_from_slice(&refused(Status::UNREACHABLE));
            out.push(Effect::PmixSend(client, refusal));
            return out.push(Effect::PmixClose(client));
        };
        let peer = Peer {
            local,
            codec: hello.codec,
            role: hello.role,
            groups: GroupForm::of(&hello.version),
            decoder: MessageDecoder::default(),
            finalized: false,
            wanted: Wanted::default(),
        };
        self.pmix.clients.insert(client, peer);
        self.on_client_attached(local);
        out.push(Effect::PmixSend(client, Bytes::copy_from_slice(&accepted())));
        let by = By::Pmix { ticket: 0 };
        self.request(now, Asker { local, by }, dialect::Request::Begin, out);
    }

    /// Handles bytes of a client.
    pub(super) fn on_pmix(&mut self, now: Now, client: Client, bytes: &[u8], out: &mut Vec<Effect>) {
        if let Some(peer) = self.pmix.clients.get_mut(&client) {
            peer.decoder.feed(bytes);
        }
        // A request may remove its client.
        while let Some(peer) = self.pmix.clients.get_mut(&client) {
            let (local, codec) = (peer.local, peer.codec);
            let Some(message) = peer.decoder.next() else { return };
            let request = message.and_then(|Message { tag, payload }| Ok((tag, Request::decode(codec, &payload)?)));
            match request {
                Ok((tag, request)) => self.on_pmix_request(now, local, To { client, tag }, request, out),
                Err(error) => {
                    // Only this connection is lost. What its process does then, it does to itself.
                    let rank = self.ranks[local].rank;
                    out.push(Effect::Warn(format!("closed a PMIx connection of rank {rank}: {error}")));
                    out.push(Effect::PmixClose(client));
                    return self.on_pmix_gone(now, client, out);
                }
            }
        }
    }

    /// Handles that a client's connection has closed. Without finalize, that is how a rank fails, as in PMI-1.
    pub(super) fn on_pmix_gone(&mut self, now: Now, client: Client, out: &mut Vec<Effect>) {
        let Some(peer) = self.pmix.clients.remove(&client) else { return };
        self.pmix.gets.forget(client);
        if self.has_members() {
            if !self.pmix.serves(peer.local) {
                self.on_member_hung_up(now, peer.local, out);
            }
            return;
        }
        let last = !self.pmix.clients.values().any(|other| other.local == peer.local && !other.finalized);
        if !peer.finalized && last {
            self.on_hung_up(now, peer.local);
        }
    }

    /// Closes the connections of a rank.
    pub(super) fn close_pmix(&mut self, local: Local, out: &mut Vec<Effect>) {
        let of_rank: Vec<Client> =
            self.pmix.clients.iter().filter(|(_, peer)| peer.local == local).map(|(client, _)| *client).collect();
        for client in of_rank {
            self.pmix.clients.remove(&client);
            self.pmix.gets.forget(client);
            out.push(Effect::PmixClose(client));
        }
    }

    fn on_pmix_request(&mut self, now: Now, local: Local, to: To, request: Request, out: &mut Vec<Effect>) {
        if self.pmix.is_full() {
            return self.send_pmix(to, &Reply::Done(Status::OUT_OF_RESOURCE), out);
        }
        let done = |status| Reply::Done(status);
        let reply = match request {
            Request::JobInfo => return self.send_job_info(to, out),
            Request::Abort { status, message, .. } => {
                self.send_pmix(to, &done(Status::SUCCESS), out);
                self.ranks[local].verdict.said = message.as_deref().and_then(one_line);
                let asker = Asker { local, by: By::Pmix { ticket: 0 } };
                return self.request(now, asker, dialect::Request::Abort { code: status, is_known: true }, out);
            }
            Request::Commit(commits) => return self.on_commit(now, local, to, commits, out),
            Request::Fence { procs, infos } => return self.on_pmix_fence(now, local, to, procs, infos, out),
            Request::Get { proc, infos, key } => return self.on_pmix_get(now, local, to, proc, &infos, key, out),
            Request::Finalize => {
                let ticket = self.pmix.ticket(Awaited::Finalize(to));
                let asker = Asker { local, by: By::Pmix { ticket } };
                return match self.is_last_client(to.client) {
                    true => self.request(now, asker, dialect::Request::Finalize, out),
                    // Another connection of the rank, of a child or another library, remains.
                    false => self.on_pmix_answer(ticket, dialect::Reply::Done, out),
                };
            }
            Request::Publish { infos } => return self.on_pmix_publish(local, to, infos, out),
            Request::Lookup { keys, infos } => return self.on_pmix_lookup(local, to, keys, &infos, out),
            Request::Unpublish { keys, infos } => return self.on_pmix_unpublish(local, to, keys, &infos, out),
            Request::Spawn { infos, apps } => return self.on_pmix_spawn(now, local, to, &infos, apps, out),
            Request::Connect { procs, infos } => {
                return self.enter_collective(now, Kind::Connect, procs, Arrived { to, local, infos }, out);
            }
            Request::Disconnect { procs, infos } => {
                return self.enter_collective(now, Kind::Disconnect, procs, Arrived { to, local, infos }, out);
            }
            Request::GroupConstruct { group, procs, infos } => {
                return self.enter_collective(now, Kind::Found(group), procs, Arrived { to, local, infos }, out);
            }
            Request::GroupDestruct { group } => return self.on_group_destruct(now, local, to, group, out),
            // The group goes on without it in what it does next; PMIx has no answer that says who is left.
            Request::GroupLeave { .. } => done(Status::SUCCESS),
            Request::Notify { status, range, infos } => {
                return self.on_pmix_notify(local, to, status, range, infos, out);
            }
            Request::RegisterEvents { codes, .. } => {
                if let Some(peer) = self.pmix.clients.get_mut(&to.client) {
                    peer.wanted.add(&codes);
                }
                self.send_pmix(to, &done(Status::SUCCESS), out);
                return self.tell_events(to.client, out);
            }
            Request::DeregisterEvents { codes } => {
                if let Some(peer) = self.pmix.clients.get_mut(&to.client) {
                    peer.wanted.remove(&codes);
                }
                return;
            }
            Request::Query(queries) => return self.on_pmix_query(local, to, queries, out),
            Request::Log { infos, .. } => done(self.on_pmix_log(local, &infos, out)),
            Request::JobControl { targets, infos } => {
                return self.on_job_control(now, local, to, &targets, &infos, out);
            }
            Request::ResolvePeers { node, namespace } => self.resolve_peers(node.as_deref(), &namespace),
            Request::ResolveNodes { namespace } => self.resolve_nodes(&namespace),
            Request::Unknown(_) => done(Status::NOT_SUPPORTED),
        };
        self.send_pmix(to, &reply, out);
    }

    /// Returns whether no other connection of the same rank is before its finalize.
    fn is_last_client(&self, client: Client) -> bool {
        let local = self.pmix.clients.get(&client).map(|peer| peer.local);
        !self.pmix.clients.iter().any(|(other, peer)| *other != client && Some(peer.local) == local && !peer.finalized)
    }

    /// Handles the engine's answer to what was passed to it under a ticket.
    pub(super) fn on_pmix_answer(&mut self, ticket: u64, reply: dialect::Reply, out: &mut Vec<Effect>) {
        let status = match &reply {
            dialect::Reply::Done
            | dialect::Reply::Value(_)
            | dialect::Reply::Spawned { .. }
            | dialect::Reply::Neighbours { .. } => Status::SUCCESS,
            dialect::Reply::Refused(_) => Status::ERROR,
            dialect::Reply::Failed(_) => Status::UNREACHABLE,
        };
        match self.pmix.awaited.remove(&ticket) {
            Some(Awaited::Fence(local)) => {
                let fencing = self.pmix.fencing.get_mut(&local).and_then(VecDeque::pop_front);
                if let Some(Fencing { to, answered: false, .. }) = fencing {
                    self.send_pmix(to, &Reply::Done(status), out);
                }
            }
            Some(Awaited::Finalize(to)) => {
                if let Some(peer) = self.pmix.clients.get_mut(&to.client) {
                    peer.finalized = true;
                    peer.wanted = Wanted::default();
                }
                self.send_pmix(to, &Reply::Done(status), out);
            }
            Some(Awaited::Spawn(to)) => self.on_pmix_spawned(to, reply, out),
            Some(Awaited::Held(missing)) if status.is_success() => self.on_distributed(missing, out),
            Some(Awaited::Held(missing)) => self.send_pmix(missing.to, &Reply::Done(Status::TIMEOUT), out),
            Some(Awaited::Head(_)) | None => {}
        }
    }

    /// Returns what waits for ranks of this node.
    pub(super) fn blocked_in_pmix(&self) -> Vec<Blocked> {
        self.blocked_collectives().chain(self.pmix.gets.blocked()).collect()
    }

    /// Does what is due.
    pub(super) fn settle_pmix(&mut self, now: Now, out: &mut Vec<Effect>) {
        self.settle_fencing(now, out);
        self.settle_gets(now, out);
        self.settle_collectives(now, out);
    }

    /// Returns when something is due.
    pub(super) fn pmix_deadline(&self) -> Option<Duration> {
        let fences = self.pmix.fencing.values().flatten().filter(|fencing| !fencing.answered);
        let fences = fences.filter_map(|fencing| fencing.until);
        fences.chain(self.pmix.gets.deadline()).chain(self.pmix.collectives.deadline()).min()
    }

    /// Handles that a rank has ended: what waits for it will not come.
    pub(super) fn on_pmix_rank_over(&mut self, local: Local, out: &mut Vec<Effect>) {
        self.fail_gets_of(local, out);
        self.answer_fetches_of(local, out);
        self.fail_collectives_of(local, out);
        self.tell_lost(local, out);
        self.remove_leftovers(local, out);
    }

    // --- fences of the whole job ---

    fn on_pmix_fence(
        &mut self,
        now: Now,
        local: Local,
        to: To,
        procs: Vec<Proc>,
        infos: Vec<Info>,
        out: &mut Vec<Effect>,
    ) {
        if !self.is_whole_job(&procs) {
            return self.enter_collective(now, Kind::Fence, procs, Arrived { to, local, infos }, out);
        }
        let collects = Info::is_set(&infos, keys::COLLECT_DATA);
        let fencing = Fencing { to, collects, until: until(now, &infos), answered: false };
        let queue = self.pmix.fencing.entry(local).or_default();
        queue.push_back(fencing);
        if queue.len() == 1 {
            self.enter_pmix_fence(now, local, out);
        }
    }

    /// Enters the job's fence for the first of the rank's requests.
    fn enter_pmix_fence(&mut self, now: Now, local: Local, out: &mut Vec<Effect>) {
        let Some(first) = self.pmix.fencing.get(&local).and_then(VecDeque::front) else { return };
        if first.collects && !self.distribute(now, local, out) {
            return;
        }
        let ticket = self.pmix.ticket(Awaited::Fence(local));
        self.request(now, Asker { local, by: By::Pmix { ticket } }, dialect::Request::Fence, out);
    }

    fn settle_fencing(&mut self, now: Now, out: &mut Vec<Effect>) {
        let inside: Vec<Local> = self
            .pmix
            .awaited
            .values()
            .filter_map(|awaited| match awaited {
                Awaited::Fence(local) => Some(*local),
                Awaited::Finalize(_) | Awaited::Spawn(_) | Awaited::Held(_) | Awaited::Head(_) => None,
            })
            .collect();
        let waiting: Vec<Local> =
            self.pmix.fencing.iter().filter(|(_, queue)| !queue.is_empty()).map(|(l, _)| *l).collect();
        for local in waiting {
            if !inside.contains(&local) {
                self.enter_pmix_fence(now, local, out);
            }
        }
        let mut late = Vec::new();
        for fencing in self.pmix.fencing.values_mut().flatten() {
            if !fencing.answered && fencing.until.is_some_and(|until| until <= now.mono) {
                fencing.answered = true;
                late.push(fencing.to);
            }
        }
        for to in late {
            self.send_pmix(to, &Reply::Done(Status::TIMEOUT), out);
        }
    }

    /// Returns whether these are all processes of this job, and no others.
    fn is_whole_job(&self, procs: &[Proc]) -> bool {
        if procs.is_empty() {
            return true;
        }
        if procs.iter().any(|proc| proc.namespace != self.launch.namespace) {
            return false;
        }
        if procs.iter().any(|proc| proc.rank == rank::WILDCARD) {
            return true;
        }
        let mut ranks: Vec<u32> = procs.iter().map(|proc| proc.rank).collect();
        ranks.sort_unstable();
        ranks.dedup();
        ranks.len() == self.map.size() as usize && ranks.last() == Some(&(self.map.size() - 1))
    }

    // --- descriptions ---

    fn send_job_info(&mut self, to: To, out: &mut Vec<Effect>) {
        let Some(codec) = self.pmix.clients.get(&to.client).map(|peer| peer.codec) else { return };
        let told = self.told(codec);
        // The description is shared by all clients, so it is sent as a part of its own.
        let head = Reply::JobInfo(self.launch.namespace.clone(), Bytes::new()).encode(codec);
        let header = Message::header(to.tag, head.len() + told.len());
        out.push(Effect::PmixSend(to.client, [&header[..], &head].concat().into()));
        out.push(Effect::PmixSend(to.client, told));
    }

    fn told(&mut self, codec: Codec) -> Bytes {
        if let Some(told) = self.pmix.told.get(&codec) {
            return told.clone();
        }
        let told = self.description().blob(codec);
        self.pmix.told.insert(codec, told.clone());
        told
    }

    /// Returns the description of this job for its own processes on this node.
    fn description(&self) -> Description {
        let node = self.map.position(self.node).unwrap_or(0) as u32;
        let spec = self.launch_spec();
        let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
        let apps = spec.apps.iter().map(|app| {
            let words: Vec<String> = app.argv.iter().map(|word| text(word)).collect();
            (words.join(" "), text(&app.wdir))
        });
        let cpus = self.ranks.iter().filter_map(|rank| {
            let (bound, _) = rank.part.as_ref().ok()?;
            let cpus = rsd_proto::ranges::of(bound.cpus.iter().copied());
            let cpus = cpus.iter().map(|(first, last)| match first == last {
                true => first.to_string(),
                false => format!("{first}-{last}"),
            });
            let cpus = cpus.collect::<Vec<_>>().join(",");
            (!cpus.is_empty()).then(|| (rank.rank, format!("hwloc:{cpus}")))
        });
        let server = self.pmix.server.as_ref();
        Description {
            namespace: self.launch.namespace.clone(),
            job: self.job.to_string(),
            map: self.map.clone(),
            node_names: self.launch.node_names.clone(),
            app_sizes: self.launch.app_sizes.clone(),
            universe_size: self.launch.universe_size,
            inside: Some(Inside {
                node,
                oversubscribed: server.is_some_and(|server| self.ranks.len() > server.cores as usize),
                directory: server.map(|server| server.directory.clone()).unwrap_or_default(),
                apps: apps.collect(),
                cpusets: cpus.collect(),
                parent: self.pmix_parent(),
            }),
        }
    }

    /// Returns a program of the job as Open MPI's variables describe it.
    pub(super) fn program_of(&self, app: usize) -> Program {
        let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
        let spec = self.launch_spec().apps.get(app);
        let words: Vec<String> = spec.map_or_else(Vec::new, |app| app.argv.iter().map(|word| text(word)).collect());
        Program {
            command: words.first().cloned().unwrap_or_default(),
            args: words.get(1..).unwrap_or_default().join(" "),
            wdir: spec.map(|app| text(&app.wdir)).unwrap_or_default(),
            sizes: self.launch.app_sizes.clone(),
        }
    }

    // --- answers ---

    fn send_pmix(&self, to: To, reply: &Reply, out: &mut Vec<Effect>) {
        let Some(codec) = self.pmix.clients.get(&to.client).map(|peer| peer.codec) else { return };
        let message = Message { tag: to.tag, payload: reply.encode(codec).into() };
        out.push(Effect::PmixSend(to.client, message.encode().into()));
    }

    fn codec_of(&self, client: Client) -> Option<Codec> {
        self.pmix.clients.get(&client).map(|peer| peer.codec)
    }

    /// Returns the process that a local rank is.
    fn proc_of(&self, local: Local) -> Proc {
        Proc { namespace: self.launch.namespace.clone(), rank: self.ranks[local].rank }
    }
}

/// Returns what a process says about its abort, if anything, as one line of limited length.
fn one_line(message: &[u8]) -> Option<String> {
    const MOST: usize = 500;
    let text = visible(&String::from_utf8_lossy(message).split_whitespace().collect::<Vec<_>>().join(" ")).to_string();
    (!text.is_empty()).then(|| text.chars().take(MOST).collect())
}

/// Returns when a request with these attributes has waited too long.
fn until(now: Now, infos: &[Info]) -> Option<Duration> {
    let seconds = Info::find(infos, keys::TIMEOUT)?.as_number()?;
    let seconds = u64::try_from(seconds).ok().filter(|seconds| *seconds > 0)?;
    // Longer than any job. Programs that want no end give the largest number that there is.
    const MOST: u64 = 100 * 365 * 24 * 3600;
    Some(now.mono + Duration::from_secs(seconds.min(MOST)))
}
