//! A joined daemon's `Dvm` service: forwards clients' requests about the DVM to the head. This daemon itself answers status,
//! shutdown and joins to groups.

use std::pin::Pin;
use std::time::Duration;

use rsd_proto::services::dvm_server::Dvm;
use rsd_proto::transport::{Own, Stamped, Target, dial, dvm_client, exit, refusal};
use rsd_proto::v1::{
    CancelRequest, GroupInfo, GroupRules, GroupSelector, InputChunk, InputReply, JobEvent, JobInfo, JobSelector,
    JobSpec, JoinRequest, KickRequest, KvDeleteRequest, KvDone, KvEntries, KvFenceRequest, KvGetRequest, KvPutRequest,
    KvScope, KvValue, ListGroupsReply, ListGroupsRequest, ListJobsReply, ListJobsRequest, ListNamesReply,
    ListNamesRequest, ListNodesReply, ListNodesRequest, LogsRequest, PlanReply, PlanRequest, Record, ShutdownReply,
    ShutdownRequest, SignalRequest, StatusReply, StatusRequest,
};
use tokio_stream::{Stream, StreamExt};
use tonic::{Code, Request, Response, Status, Streaming};

use super::groups::{self, JoinEvents};
use super::{self as serve, About};
use crate::door::Door;

type Reply<T> = Result<Response<T>, Status>;
type Events<T> = Pin<Box<dyn Stream<Item = Result<T, Status>> + Send>>;

/// The service and the head's address.
#[derive(Debug, Clone)]
pub(crate) struct ForwardService {
    pub(crate) door: Door,
    pub(crate) about: About,
    pub(crate) head: String,
    pub(crate) own: Own,
    pub(crate) deadline: Duration,
}

impl ForwardService {
    async fn head(&self) -> Result<rsd_proto::services::dvm_client::DvmClient<Stamped>, Status> {
        let target = Target::Tcp(self.head.clone(), self.own.dialer(None));
        let channel = dial(&target, self.deadline).await.map_err(|error| {
            refusal(Code::Unavailable, exit::UNREACHABLE, format!("the head at {} is unreachable: {error}", self.head))
        })?;
        Ok(dvm_client(channel))
    }
}

fn boxed<T: Send + 'static>(reply: Response<Streaming<T>>) -> Reply<Events<T>> {
    Ok(Response::new(Box::pin(reply.into_inner())))
}

#[tonic::async_trait]
impl Dvm for ForwardService {
    type SubmitStream = Events<JobEvent>;
    type AttachStream = Events<JobEvent>;
    type LogsStream = Events<Record>;
    type JoinGroupStream = JoinEvents;

    async fn submit(&self, request: Request<JobSpec>) -> Reply<Self::SubmitStream> {
        boxed(self.head().await?.submit(request.into_inner()).await?)
    }
    async fn plan(&self, request: Request<PlanRequest>) -> Reply<PlanReply> {
        self.head().await?.plan(request.into_inner()).await
    }
    async fn attach(&self, request: Request<JobSelector>) -> Reply<Self::AttachStream> {
        boxed(self.head().await?.attach(request.into_inner()).await?)
    }
    async fn logs(&self, request: Request<LogsRequest>) -> Reply<Self::LogsStream> {
        boxed(self.head().await?.logs(request.into_inner()).await?)
    }
    async fn input(&self, request: Request<Streaming<InputChunk>>) -> Reply<InputReply> {
        // If the client disconnects, the input ends there.
        let chunks = request.into_inner().map_while(Result::ok);
        self.head().await?.input(chunks).await
    }
    async fn list_jobs(&self, request: Request<ListJobsRequest>) -> Reply<ListJobsReply> {
        self.head().await?.list_jobs(request.into_inner()).await
    }
    async fn get_job(&self, request: Request<JobSelector>) -> Reply<JobInfo> {
        self.head().await?.get_job(request.into_inner()).await
    }
    async fn wait(&self, request: Request<JobSelector>) -> Reply<JobInfo> {
        self.head().await?.wait(request.into_inner()).await
    }
    async fn signal(&self, request: Request<SignalRequest>) -> Reply<JobInfo> {
        self.head().await?.signal(request.into_inner()).await
    }
    async fn cancel(&self, request: Request<CancelRequest>) -> Reply<JobInfo> {
        self.head().await?.cancel(request.into_inner()).await
    }
    async fn list_nodes(&self, request: Request<ListNodesRequest>) -> Reply<ListNodesReply> {
        self.head().await?.list_nodes(request.into_inner()).await
    }
    async fn list_names(&self, request: Request<ListNamesRequest>) -> Reply<ListNamesReply> {
        self.head().await?.list_names(request.into_inner()).await
    }
    async fn join_group(&self, request: Request<JoinRequest>) -> Reply<JoinEvents> {
        Ok(groups::join(&self.door, request))
    }
    async fn create_group(&self, request: Request<GroupRules>) -> Reply<GroupInfo> {
        self.head().await?.create_group(request.into_inner()).await
    }
    async fn list_groups(&self, request: Request<ListGroupsRequest>) -> Reply<ListGroupsReply> {
        self.head().await?.list_groups(request.into_inner()).await
    }
    async fn get_group(&self, request: Request<GroupSelector>) -> Reply<GroupInfo> {
        self.head().await?.get_group(request.into_inner()).await
    }
    async fn close_group(&self, request: Request<GroupSelector>) -> Reply<GroupInfo> {
        self.head().await?.close_group(request.into_inner()).await
    }
    async fn kick_member(&self, request: Request<KickRequest>) -> Reply<GroupInfo> {
        self.head().await?.kick_member(request.into_inner()).await
    }
    async fn kv_put(&self, request: Request<KvPutRequest>) -> Reply<KvDone> {
        self.head().await?.kv_put(request.into_inner()).await
    }
    async fn kv_get(&self, request: Request<KvGetRequest>) -> Reply<KvValue> {
        self.head().await?.kv_get(request.into_inner()).await
    }
    async fn kv_list(&self, request: Request<KvScope>) -> Reply<KvEntries> {
        self.head().await?.kv_list(request.into_inner()).await
    }
    async fn kv_delete(&self, request: Request<KvDeleteRequest>) -> Reply<KvDone> {
        self.head().await?.kv_delete(request.into_inner()).await
    }
    async fn kv_fence(&self, request: Request<KvFenceRequest>) -> Reply<KvDone> {
        self.head().await?.kv_fence(request.into_inner()).await
    }
    async fn get_status(&self, _: Request<StatusRequest>) -> Reply<StatusReply> {
        serve::status(&self.door, &self.about).await
    }
    async fn shutdown(&self, request: Request<ShutdownRequest>) -> Reply<ShutdownReply> {
        serve::shutdown(&self.door, request.into_inner()).await
    }
}
