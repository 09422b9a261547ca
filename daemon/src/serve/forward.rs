//! A joined daemon's `Dvm` service: forwards clients' requests about the DVM to the head. This daemon itself answers status,
//! shutdown and joins to groups.

use std::pin::Pin;

use rsd_proto::services::dvm_server::Dvm;
use rsd_proto::transport::{Stamped, dvm_client};
use rsd_proto::v1::{
    CancelRequest, ChangeNodeRequest, GroupInfo, GroupRules, GroupSelector, InputChunk, InputReply, JobEvent, JobInfo,
    JobSelector, JobSpec, JoinRequest, KickRequest, KvDeleteRequest, KvDone, KvEntries, KvFenceRequest, KvGetRequest,
    KvPutRequest, KvScope, KvValue, ListGroupsReply, ListGroupsRequest, ListJobsReply, ListJobsRequest, ListNamesReply,
    ListNamesRequest, ListNodesReply, ListNodesRequest, LogsRequest, NodeInfo, PlanReply, PlanRequest, Record,
    ShutdownReply, ShutdownRequest, SignalRequest, StatusReply, StatusRequest, WaitsReply, WaitsRequest,
};
use tokio_stream::{Stream, StreamExt};
use tonic::{Request, Response, Status, Streaming};

use super::callers::Callers;
use super::groups::{self, JoinEvents};
use super::{self as serve, About};
use crate::door::Door;
use crate::way_up::WayUp;

type Reply<T> = Result<Response<T>, Status>;
type Events<T> = Pin<Box<dyn Stream<Item = Result<T, Status>> + Send>>;

/// The service and the way to the head.
#[derive(Debug, Clone)]
pub(crate) struct ForwardService {
    pub(crate) door: Door,
    pub(crate) about: About,
    pub(crate) way_up: WayUp,
    pub(crate) callers: Callers,
}

impl ForwardService {
    async fn head(&self) -> Result<rsd_proto::services::dvm_client::DvmClient<Stamped>, Status> {
        Ok(dvm_client(self.way_up.dial().await?))
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
        boxed(self.head().await?.submit(self.callers.forwarded(request)?).await?)
    }
    async fn plan(&self, request: Request<PlanRequest>) -> Reply<PlanReply> {
        self.head().await?.plan(self.callers.forwarded(request)?).await
    }
    async fn attach(&self, request: Request<JobSelector>) -> Reply<Self::AttachStream> {
        boxed(self.head().await?.attach(self.callers.forwarded(request)?).await?)
    }
    async fn logs(&self, request: Request<LogsRequest>) -> Reply<Self::LogsStream> {
        boxed(self.head().await?.logs(self.callers.forwarded(request)?).await?)
    }
    async fn input(&self, request: Request<Streaming<InputChunk>>) -> Reply<InputReply> {
        // If the client disconnects, the input ends there.
        let caller = self.callers.of(&request)?;
        let chunks = request.into_inner().map_while(Result::ok);
        self.head().await?.input(Callers::stamped(caller, chunks)).await
    }
    async fn list_jobs(&self, request: Request<ListJobsRequest>) -> Reply<ListJobsReply> {
        self.head().await?.list_jobs(self.callers.forwarded(request)?).await
    }
    async fn get_job(&self, request: Request<JobSelector>) -> Reply<JobInfo> {
        self.head().await?.get_job(self.callers.forwarded(request)?).await
    }
    async fn wait(&self, request: Request<JobSelector>) -> Reply<JobInfo> {
        self.head().await?.wait(self.callers.forwarded(request)?).await
    }
    async fn signal(&self, request: Request<SignalRequest>) -> Reply<JobInfo> {
        self.head().await?.signal(self.callers.forwarded(request)?).await
    }
    async fn cancel(&self, request: Request<CancelRequest>) -> Reply<JobInfo> {
        self.head().await?.cancel(self.callers.forwarded(request)?).await
    }
    async fn list_waits(&self, request: Request<WaitsRequest>) -> Reply<WaitsReply> {
        self.head().await?.list_waits(self.callers.forwarded(request)?).await
    }
    async fn list_nodes(&self, request: Request<ListNodesRequest>) -> Reply<ListNodesReply> {
        self.head().await?.list_nodes(self.callers.forwarded(request)?).await
    }
    async fn list_names(&self, request: Request<ListNamesRequest>) -> Reply<ListNamesReply> {
        self.head().await?.list_names(self.callers.forwarded(request)?).await
    }
    async fn join_group(&self, request: Request<JoinRequest>) -> Reply<JoinEvents> {
        groups::join(&self.door, self.callers, request).await
    }
    async fn create_group(&self, request: Request<GroupRules>) -> Reply<GroupInfo> {
        self.head().await?.create_group(self.callers.forwarded(request)?).await
    }
    async fn list_groups(&self, request: Request<ListGroupsRequest>) -> Reply<ListGroupsReply> {
        self.head().await?.list_groups(self.callers.forwarded(request)?).await
    }
    async fn get_group(&self, request: Request<GroupSelector>) -> Reply<GroupInfo> {
        self.head().await?.get_group(self.callers.forwarded(request)?).await
    }
    async fn close_group(&self, request: Request<GroupSelector>) -> Reply<GroupInfo> {
        self.head().await?.close_group(self.callers.forwarded(request)?).await
    }
    async fn kick_member(&self, request: Request<KickRequest>) -> Reply<GroupInfo> {
        self.head().await?.kick_member(self.callers.forwarded(request)?).await
    }
    async fn kv_put(&self, request: Request<KvPutRequest>) -> Reply<KvDone> {
        self.head().await?.kv_put(self.callers.forwarded(request)?).await
    }
    async fn kv_get(&self, request: Request<KvGetRequest>) -> Reply<KvValue> {
        self.head().await?.kv_get(self.callers.forwarded(request)?).await
    }
    async fn kv_list(&self, request: Request<KvScope>) -> Reply<KvEntries> {
        self.head().await?.kv_list(self.callers.forwarded(request)?).await
    }
    async fn kv_delete(&self, request: Request<KvDeleteRequest>) -> Reply<KvDone> {
        self.head().await?.kv_delete(self.callers.forwarded(request)?).await
    }
    async fn kv_fence(&self, request: Request<KvFenceRequest>) -> Reply<KvDone> {
        self.head().await?.kv_fence(self.callers.forwarded(request)?).await
    }
    async fn change_node(&self, request: Request<ChangeNodeRequest>) -> Reply<NodeInfo> {
        self.head().await?.change_node(self.callers.forwarded(request)?).await
    }
    async fn get_status(&self, request: Request<StatusRequest>) -> Reply<StatusReply> {
        serve::status(&self.door, self.callers.of(&request)?, &self.about).await
    }
    async fn shutdown(&self, request: Request<ShutdownRequest>) -> Reply<ShutdownReply> {
        serve::shutdown(&self.door, self.callers.of(&request)?, request.into_inner()).await
    }
}
