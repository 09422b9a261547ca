//! Groups on the head: passes the requests of members and clients to the lobby, and starts epochs. An epoch is a job whose ranks
//! already run: it takes no slots, and its launch lists its members. Relays, fences and exits work as for any other job.

use bytes::Bytes;
use prost::Message;
use rsd_proto::frameworks;
use rsd_proto::join::{check_namespace, self_named_host};
use rsd_proto::v1::{
    self as wire, App, GroupEpoch, GroupJoin, GroupLeave, GroupState, JobSpec, RankExit, down, group_change, kept,
    rank_exit,
};

use super::Head;
use super::job::{Job, Surroundings};
use super::life::Pending;
use super::lobby::{Complete, Due, refusal};
use crate::between::{Order, Outputs};
use crate::calls::{Answer, Caller, GroupCall, Refused, exit};
use crate::contract::{Logged, namespace};
use crate::place::policy::Policy;
use crate::place::{self, Placement};
use crate::taskmap::{TaskMap, TaskMapBuilder};
use crate::{JobId, NodeId, Now, sentences};

impl Head {
    pub(super) fn on_group_call(
        &mut self,
        now: Now,
        caller: Caller,
        call: GroupCall,
        out: &mut Outputs<Order>,
    ) -> Result<Answer, Refused> {
        let mut due = Vec::new();
        let (realm, name) = match call {
            GroupCall::List => {
                let lobbies = self.lobbies.seen(|realm| !self.serves_all || caller.may_use(realm));
                let groups = lobbies.flat_map(|(_, lobby)| lobby.list(now.mono, |node| self.nodes.name(node)));
                return Ok(Answer::Groups(groups.collect()));
            }
            GroupCall::Create(rules) => {
                if self.serves_all && rules.mode.is_some_and(|mode| mode & 0o077 != 0) {
                    let text =
                        format!("group {}: --mode: in a DVM that serves all users, groups are private", rules.name);
                    return Err(Refused::new(exit::USAGE, text));
                }
                let realm = self.realm(caller.uid);
                self.lobbies.of(realm).create(now.mono, &rules, caller.uid)?;
                (realm, rules.name)
            }
            GroupCall::Get(name) => (self.realm_of_group(caller, &name)?, name),
            GroupCall::Close(name) => {
                let realm = self.realm_of_group(caller, &name)?;
                self.lobbies.of(realm).close(now.mono, &name, &mut due)?;
                let (group, change) = (name.clone(), Some(group_change::Change::Closed(true)));
                self.feed.group(realm, wire::GroupChange { group, change, ..Default::default() });
                (realm, name)
            }
            GroupCall::Kick { name, pid, node } => {
                let node = match node.is_empty() {
                    true => None,
                    false => Some(self.nodes.named(&node).ok_or_else(|| refusal::unknown_node(&node))?),
                };
                let realm = self.realm_of_group(caller, &name)?;
                self.lobbies.of(realm).kick(&name, pid, node, &mut due)?;
                (realm, name)
            }
        };
        let info = self.lobbies.of(realm).info(now.mono, &name, |node| self.nodes.name(node))?;
        self.perform_due(now, realm, due, out);
        Ok(Answer::Group(Box::new(info)))
    }

    /// Returns the realm of the group that a caller means. An admin may mean any user's.
    pub(super) fn realm_of_group(&self, caller: Caller, name: &str) -> Result<u32, Refused> {
        let own = self.realm(caller.uid);
        let seen = self.lobbies.seen(|realm| realm == own || caller.is_admin);
        let realms: Vec<u32> = seen.filter(|(_, lobby)| lobby.has(name)).map(|(realm, _)| realm).collect();
        match &realms[..] {
            [] => Ok(own),
            realms if realms.contains(&own) => Ok(own),
            [realm] => Ok(*realm),
            [..] => {
                let text =
                    format!("several users have a group {name}: act as one of them (runuser -u USER -- rsctl …)");
                Err(Refused::new(exit::USAGE, text))
            }
        }
    }

    pub(super) fn on_group_join(&mut self, now: Now, join: GroupJoin, out: &mut Outputs<Order>) {
        let (node, member, token) = (join.node, join.member, join.token.clone());
        let (realm, nodes) = (self.realm(join.uid), &self.nodes);
        let joined = match self.is_stopping() {
            false => self
                .check_jobs(join.uid, 0)
                .and_then(|()| self.check_namespace(&join))
                .and_then(|()| self.lobbies.of(realm).join(now.mono, join, |node| nodes.name(node))),
            true => Err(Refused::new(exit::NOT_PLACED, "the DVM is being stopped")),
        };
        if let Err(Refused { exit_code, text }) = joined {
            let error = wire::GroupError { code: u32::from(exit_code), text };
            let state = Some(wire::group_state::State::Error(error));
            out.order(down::Body::GroupState(GroupState { node, member, token, state }));
        }
    }

    /// Refuses a process that would have the name of another one.
    fn check_namespace(&self, join: &GroupJoin) -> Result<(), Refused> {
        if join.namespace.is_empty() {
            return Ok(());
        }
        if let Err(error) = check_namespace(&join.namespace) {
            return Err(Refused::new(exit::USAGE, error.to_string()));
        }
        match self.jobs.named(&join.namespace, self.realm(join.uid)).filter(|job| self.jobs.is_alive(job.id)) {
            Some(job) if job.rank_of_member(&join.token).is_none() => Err(refusal::attached(&join.namespace, job.id)),
            Some(_) | None => Ok(()),
        }
    }

    pub(super) fn on_group_leave(&mut self, now: Now, leave: &GroupLeave, out: &mut Outputs<Order>) {
        let realm = self.realm(leave.uid);
        let Some(job) = self.lobbies.of(realm).leave(&leave.token) else { return };
        // The member left after its epoch began.
        let Some(rank) = self.jobs.get(job).and_then(|job| job.rank_of_member(&leave.token)) else { return };
        let exit = RankExit {
            rank,
            node: leave.node,
            how: Some(rank_exit::How::Failed(sentences::member_left())),
            fatal: true,
            code: 1,
            ..Default::default()
        };
        self.on_rank_failed(now, job, exit, out);
    }

    pub(super) fn settle_lobby(&mut self, now: Now, out: &mut Outputs<Order>) {
        while let Some((_, realm)) = self.lobbies.next_due().filter(|(at, _)| *at <= now.mono) {
            let nodes = &self.nodes;
            let due = self.lobbies.of(realm).settle(now.mono, |node| nodes.name(node));
            self.perform_due(now, realm, due, out);
            self.lobbies.forget_empty();
        }
    }

    fn perform_due(&mut self, now: Now, realm: u32, due: Vec<Due>, out: &mut Outputs<Order>) {
        for due in due {
            match due {
                Due::Send { node, member, token, state } => {
                    let state = Some(state.into());
                    out.order(down::Body::GroupState(GroupState { node, member, token, state }));
                }
                Due::Begin(complete) => self.begin_epoch(now, realm, &complete, out),
            }
        }
    }

    fn begin_epoch(&mut self, now: Now, realm: u32, complete: &Complete, out: &mut Outputs<Order>) {
        let mut map = TaskMapBuilder::default();
        complete.seats.iter().for_each(|seat| map.push(seat.join.node, 1));
        let map = map.build().expect("a group is smaller than the largest job");
        let id = self.next_job(out);
        let wanted = complete.seats.iter().filter_map(|seat| frameworks::parse(&seat.join.export).ok()).flatten();
        let members = complete.seats.iter().map(|seat| wire::GroupMember {
            token: seat.join.token.clone(),
            pmi_id: seat.join.pmi_id,
            pid: seat.join.pid,
            started: seat.join.started,
            uid: seat.join.uid,
            by_other: seat.join.by_other,
        });
        let namespace = match complete.seats.first().map(|seat| &seat.join) {
            Some(join) if !join.namespace.is_empty() => join.namespace.clone(),
            first => namespace(&self.dvm, first.map_or(&[], |join| &join.random), id),
        };
        // A process that runs already knows its machine by the host's name. Two processes that disagree on whether they share a machine
        // hang.
        let host = self_named_host(&namespace).map(str::to_owned);
        let name_of = |node: &NodeId| host.clone().unwrap_or_else(|| self.nodes.name(*node));
        let epoch = GroupEpoch {
            name: complete.group.clone(),
            epoch: complete.epoch,
            members: members.collect(),
            node_names: map.nodes().iter().map(name_of).collect(),
            namespace,
            node_addresses: self.nodes.addresses(map.nodes()),
            dial_out: self.nodes.dial_out(map.nodes()),
            export: frameworks::list(&wanted.collect::<Vec<_>>()),
        };
        self.lobbies.of(realm).began(complete, id);
        let (group, formed) = (complete.group.clone(), Some(group_change::Change::Formed(map.size())));
        self.feed.group(realm, wire::GroupChange { group, epoch: complete.epoch, job: id, change: formed });
        let user = complete.seats.first().map(|seat| seat.join.user.clone()).unwrap_or_default();
        self.start_epoch(now, id, self.owner(realm, user), epoch, map, None, out);
        if let Some(epoch) = self.jobs.get(id).and_then(Job::kept) {
            self.keep(kept::What::Epoch(epoch));
        }
    }

    /// Starts the job of an epoch. `past`: its launch, and what its log has, if it ran before the head was started.
    #[expect(clippy::too_many_arguments, reason = "called for new epochs and for those of before a restart")]
    pub(super) fn start_epoch(
        &mut self,
        now: Now,
        id: JobId,
        owner: Option<wire::User>,
        epoch: GroupEpoch,
        map: TaskMap,
        past: Option<(wire::Launch, Option<&Logged>)>,
        out: &mut Outputs<Order>,
    ) {
        let command = match epoch.name.is_empty() {
            true => "singleton".to_owned(),
            false => format!("{}.{}", epoch.name, epoch.epoch),
        };
        let apps = vec![App { argv: vec![command.into()], ..App::default() }];
        let spec = JobSpec { apps, export: epoch.export.clone(), ..JobSpec::default() };
        let policy = Policy::default();
        let wanted =
            place::Request { apps: Vec::new(), policy, oversubscribe: false, rankfile: Vec::new(), needs: Vec::new() };
        let (secret, preput, reason) = (Bytes::new(), Vec::new(), String::new());
        let mut job = self.new_job(now, id, owner, Pending { spec, wanted, secret, preput, reason }, &[]);
        job.namespace = epoch.namespace.clone();
        job.joined = true;
        let submitted = job.submitted();

        let universe_size = self.nodes.slots().max(map.size());
        let placement = Placement {
            app_sizes: vec![map.size()],
            map,
            used: Vec::new(),
            bindings: Vec::new(),
            binding_runs: Vec::new(),
            exclusive: false,
            policy: Policy::default(),
            notices: Vec::new(),
        };
        let around = Surroundings {
            node_names: epoch.node_names.clone(),
            universe_size,
            node_addresses: epoch.node_addresses.clone(),
            dial_out: epoch.dial_out.clone(),
            crowded: false,
        };
        let Some((mut launch, placed)) = job.start(now, placement, around) else { return };
        launch.group = epoch.encode_to_vec().into();
        let mut news = vec![submitted, placed];
        if let Some((launched, logged)) = past {
            launch = launched;
            news = job.missing_events(logged);
            job.recall(now, logged);
        }
        if let Some(active) = job.active_mut() {
            active.launch = launch.clone();
            active.members = epoch.members.into_iter().map(|member| member.token).collect();
        }
        self.jobs.insert(job);
        self.has_started(id);
        news.into_iter().for_each(|body| out.log(now, id, body));
        out.order(down::Body::Launch(launch));
    }
}
