//! Groups on the head: what members and clients say to the lobby, and what it says to them. An epoch is a job whose ranks run
//! already: it takes no slots, its launch names its members, and from then on it is relayed, fenced and ended as any other.

use bytes::Bytes;
use rsd_proto::frameworks;
use rsd_proto::v1::{
    self as wire, App, GroupEpoch, GroupJoin, GroupLeave, GroupState, JobSpec, RankExit, kept, rank_exit,
};

use crate::calls::{Refused, exit, log};
use crate::head::job::Job;
use crate::head::lobby::{Complete, Due};
use crate::head::{name_among, namespace};
use crate::place::Placement;
use crate::place::policy::Policy;
use crate::rsd::{Answer, Effect, ReqId, Rsd};
use crate::taskmap::{TaskMap, TaskMapBuilder};
use crate::{JobId, Now, sentences};

/// What clients ask about groups; each is answered with [`Answer::Group`] but for `List`, with [`Answer::Groups`].
#[derive(Debug)]
pub enum GroupCall {
    /// A group with rules of its own, for this user.
    Create {
        /// Its name, size and times.
        rules: wire::GroupRules,
        /// Its owner.
        uid: u32,
    },
    /// All groups.
    List,
    /// One, by name.
    Get(String),
    /// Nobody is to join any more.
    Close(String),
    /// A member that waits is to go.
    Kick {
        /// The group.
        name: String,
        /// The member.
        pid: u32,
        /// The name of its node; empty: any.
        node: String,
    },
}

impl Rsd {
    pub(crate) fn on_group_call(&mut self, now: Now, req: ReqId, call: GroupCall, out: &mut Vec<Effect>) {
        let answer = self.ask_lobby(now, call, out).unwrap_or_else(Answer::Refused);
        out.push(Effect::Answer { req, answer });
    }

    fn ask_lobby(&mut self, now: Now, call: GroupCall, out: &mut Vec<Effect>) -> Result<Answer, Refused> {
        let Some(head) = &mut self.head else {
            return Err(Refused { exit_code: exit::USAGE, text: "groups are the head's".into() });
        };
        let mut due = Vec::new();
        let name = match call {
            GroupCall::List => {
                let groups = head.lobby.list(now.mono, |node| head.node_name(node));
                return Ok(Answer::Groups(groups));
            }
            GroupCall::Create { rules, uid } => {
                head.lobby.create(now.mono, &rules, uid)?;
                rules.name
            }
            GroupCall::Get(name) => name,
            GroupCall::Close(name) => {
                head.lobby.close(now.mono, &name, &mut due)?;
                name
            }
            GroupCall::Kick { name, pid, node } => {
                let node = if node.is_empty() { None } else { Some(head.node_named(&node)?) };
                head.lobby.kick(&name, pid, node, &mut due)?;
                name
            }
        };
        let info = head.lobby.info(now.mono, &name, |node| head.node_name(node))?;
        self.perform_due(now, due, out);
        Ok(Answer::Group(Box::new(info)))
    }

    pub(crate) fn on_group_join(&mut self, now: Now, join: GroupJoin, out: &mut Vec<Effect>) {
        let Some(head) = &mut self.head else { return };
        let (node, member, token) = (join.node, join.member, join.token.clone());
        let joined = match self.stopping {
            None => head.lobby.join(now.mono, join, |node| name_among(&head.nodes, node)),
            Some(_) => Err(Refused { exit_code: exit::NOT_PLACED, text: "the DVM is being stopped".into() }),
        };
        if let Err(Refused { exit_code, text }) = joined {
            let error = wire::GroupError { code: u32::from(exit_code), text };
            let state = Some(wire::group_state::State::Error(error));
            self.on_group_state(now, GroupState { node, member, token, state }, out);
        }
    }

    pub(crate) fn on_group_leave(&mut self, now: Now, leave: GroupLeave, out: &mut Vec<Effect>) {
        let Some(head) = &mut self.head else { return };
        let Some(job) = head.lobby.leave(&leave.token) else { return };
        // Its epoch has begun, and it will never be in it.
        let Some(rank) = head.jobs.get(&job).and_then(|job| job.rank_of_member(&leave.token)) else { return };
        let exit = RankExit {
            rank,
            node: leave.node,
            how: Some(rank_exit::How::Failed(sentences::member_left())),
            fatal: true,
            code: 1,
            ..Default::default()
        };
        self.on_rank_failed(now, wire::RankFailed { job, exit: Some(exit) }, out);
    }

    pub(crate) fn settle_lobby(&mut self, now: Now, out: &mut Vec<Effect>) {
        while let Some(head) = &mut self.head {
            let due = head.lobby.settle(now.mono, |node| name_among(&head.nodes, node));
            if due.is_empty() {
                return;
            }
            self.perform_due(now, due, out);
        }
    }

    fn perform_due(&mut self, now: Now, due: Vec<Due>, out: &mut Vec<Effect>) {
        for due in due {
            match due {
                Due::Tell { node, member, token, state } => {
                    let state = GroupState { node, member, token, state: Some(state.into()) };
                    self.on_group_state(now, state, out);
                }
                Due::Begin(complete) => self.begin_epoch(now, complete, out),
            }
        }
    }

    fn begin_epoch(&mut self, now: Now, complete: Complete, out: &mut Vec<Effect>) {
        let Some(head) = &mut self.head else { return };
        let mut map = TaskMapBuilder::default();
        complete.seats.iter().for_each(|seat| map.push(seat.join.node, 1));
        let map = map.build().expect("a group is smaller than the largest job");
        let id = head.memory.next_job;
        head.memory.next_job += 1;
        out.push(Effect::Remember(head.memory));
        let wanted = complete.seats.iter().filter_map(|seat| frameworks::parse(&seat.join.export).ok()).flatten();
        let members = complete.seats.iter().map(|seat| wire::GroupMember {
            token: seat.join.token.clone(),
            pmi_id: seat.join.pmi_id,
            pid: seat.join.pid,
            started: seat.join.started,
            uid: seat.join.uid,
            by_other: seat.join.by_other,
        });
        let epoch = GroupEpoch {
            name: complete.group.clone(),
            epoch: complete.epoch,
            members: members.collect(),
            namespace: namespace(&self.dvm, id),
            node_names: map.nodes().iter().map(|node| head.node_name(*node)).collect(),
            export: frameworks::list(&wanted.collect::<Vec<_>>()),
        };
        head.lobby.began(&complete, id);
        let Some(launch) = self.insert_epoch(now, id, epoch, map, None, out) else { return };
        if let Some(head) = &mut self.head
            && let Some(epoch) = head.jobs.get(&id).and_then(Job::kept)
        {
            head.keep(kept::What::Epoch(epoch));
        }
        self.on_launch(now, launch, out);
    }

    /// The job of an epoch, which has been launched if it was there before a restart. Returns its launch.
    pub(crate) fn insert_epoch(
        &mut self,
        now: Now,
        id: JobId,
        epoch: GroupEpoch,
        map: TaskMap,
        launched: Option<wire::Launch>,
        out: &mut Vec<Effect>,
    ) -> Option<wire::Launch> {
        use prost::Message;
        let head = self.head.as_mut()?;
        let command = match epoch.name.is_empty() {
            true => "singleton".to_owned(),
            false => format!("{}.{}", epoch.name, epoch.epoch),
        };
        let apps = vec![App { argv: vec![command.into()], ..App::default() }];
        let spec = JobSpec { apps, export: epoch.export.clone(), ..JobSpec::default() };
        let grace_ms = u64::try_from(self.tuning.kill_grace.as_millis()).unwrap_or(u64::MAX);
        let mut job = Job::new(now, id, spec, Bytes::new(), epoch.namespace.clone(), String::new(), grace_ms);
        out.push(log(now, id, job.submitted()));

        let universe_size = head.slots().max(map.size());
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
        let (mut launch, placed) = job.start(now, placement, epoch.node_names.clone(), universe_size, false);
        launch.group = epoch.encode_to_vec().into();
        let launch = launched.unwrap_or(launch);
        job.launch = Some(launch.clone());
        job.joined = true;
        job.members = epoch.members.into_iter().map(|member| member.token).collect();
        head.insert_running(job);
        out.push(log(now, id, placed));
        Some(launch)
    }
}
