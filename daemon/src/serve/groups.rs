//! Named groups over gRPC: the head answers requests about groups; every daemon accepts members of its own node.

use std::pin::Pin;

use rsd_core::rsd::{Answer, Call, Caller, GroupCall};
use rsd_proto::join::{Event, Join};
use rsd_proto::transport::{Peer, Who, exit};
use rsd_proto::v1::{
    GroupInfo, GroupRefusal, GroupRules, JoinEvent, JoinGo, JoinRequest, JoinWait, KickRequest, ListGroupsReply,
    join_event,
};
use tokio_stream::wrappers::ReceiverStream;
use tokio_stream::{Stream, StreamExt};
use tonic::{Request, Response, Status};

use super::callers::Callers;
use super::join::{self, Process};
use super::{status_of, unexpected};
use crate::door::Door;

/// The messages to a joining process, up to go or error.
pub(crate) type JoinEvents = Pin<Box<dyn Stream<Item = Result<JoinEvent, Status>> + Send>>;

/// `JoinGroup`, the same on every daemon.
pub(crate) async fn join(
    door: &Door,
    callers: Callers,
    request: Request<JoinRequest>,
) -> Result<Response<JoinEvents>, Status> {
    let who = request.extensions().get::<Peer>().map(|peer| peer.who);
    let Some(Who::Local { uid, pid: caller_pid }) = who else {
        let text = "a process joins a group through the daemon of its own node".to_owned();
        let refused = Event::Error { code: exit::NOT_PERMITTED, text };
        return Ok(Response::new(Box::pin(tokio_stream::once(Ok(message(refused))))));
    };
    let user = callers.name_of(callers.of(&request)?).await?;
    let JoinRequest { group, size, min, max, rank, timeout_ms, token, pid, export } = request.into_inner();
    let token = Some(token).filter(|token| !token.is_empty());
    let pid = Some(pid).filter(|pid| *pid > 0);
    let export = Some(export).filter(|export| !export.is_empty());
    let join = Join { group: Some(group), size, min, max, rank, timeout_ms, token, pid, export, namespace: None };
    let events = join::over_grpc(door, Process { uid, user, pid: caller_pid }, join);
    Ok(Response::new(Box::pin(ReceiverStream::new(events).map(|event| Ok(message(event))))))
}

fn message(event: Event) -> JoinEvent {
    let event = match event {
        Event::Wait(wait) => {
            join_event::Event::Wait(JoinWait { token: wait.token, have: wait.have, want: wait.want, epoch: wait.epoch })
        }
        Event::Go(go) => join_event::Event::Go(JoinGo {
            rank: go.rank,
            size: go.size,
            local_rank: go.local_rank,
            local_size: go.local_size,
            epoch: go.epoch,
            pmi_port: go.pmi_port,
            pmi_id: go.pmi_id,
            job: go.job,
            namespace: go.namespace,
            node: go.node,
            nodes: go.nodes,
            node_index: go.node_index,
            address: go.address,
            env: go.env,
        }),
        Event::Error { code, text } => join_event::Event::Error(GroupRefusal { code: code.into(), text }),
    };
    JoinEvent { event: Some(event) }
}

async fn one(door: &Door, caller: Caller, call: GroupCall) -> Result<Response<GroupInfo>, Status> {
    match door.call(caller, Call::Group(call)).await {
        Answer::Group(info) => Ok(Response::new(*info)),
        Answer::Refused(refused) => Err(status_of(refused)),
        other => Err(unexpected(&other)),
    }
}

pub(crate) async fn create(door: &Door, caller: Caller, rules: GroupRules) -> Result<Response<GroupInfo>, Status> {
    one(door, caller, GroupCall::Create(rules)).await
}

pub(crate) async fn list(door: &Door, caller: Caller) -> Result<Response<ListGroupsReply>, Status> {
    match door.call(caller, Call::Group(GroupCall::List)).await {
        Answer::Groups(groups) => Ok(Response::new(ListGroupsReply { groups })),
        Answer::Refused(refused) => Err(status_of(refused)),
        other => Err(unexpected(&other)),
    }
}

pub(crate) async fn get(door: &Door, caller: Caller, name: String) -> Result<Response<GroupInfo>, Status> {
    one(door, caller, GroupCall::Get(name)).await
}

pub(crate) async fn close(door: &Door, caller: Caller, name: String) -> Result<Response<GroupInfo>, Status> {
    one(door, caller, GroupCall::Close(name)).await
}

pub(crate) async fn kick(door: &Door, caller: Caller, request: KickRequest) -> Result<Response<GroupInfo>, Status> {
    let KickRequest { name, pid, node } = request;
    one(door, caller, GroupCall::Kick { name, pid, node }).await
}
