//! The gRPC service about the head and its standbys: on the head, and on any other daemon.

use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use rsd_core::addresses::{dialable, of_standby};
use rsd_core::rsd::{Answer, Call, Caller, StandbyCall};
use rsd_proto::services::heads_server::Heads;
use rsd_proto::transport::{Own, Peer, Who, exit, heads_client, refusal};
use rsd_proto::v1::follow_down::Body;
use rsd_proto::v1::{
    AllowStandbyRequest, Ancestor, FollowBegin, FollowDown, FollowUp, GetEpochRequest, HeadEpoch, HeadInfo,
    KeptStandby, PromoteReply, PromoteRequest, ShowHeadRequest, StandbyInfo, follow_up,
};
use tokio::sync::{RwLock, mpsc};
use tokio_stream::Stream;
use tokio_stream::wrappers::UnboundedReceiverStream;
use tonic::{Code, Request, Response, Status, Streaming};

use super::callers::Callers;
use super::forward::Turns;
use super::{Reply, status_of, unexpected};
use crate::disk::job_log::JobLogs;
use crate::door::{Door, Event};
use crate::network;
use crate::standby::ask;
use crate::standby::copies::Copies;
use crate::standby::feed::Feed;
use crate::standby::promote::Promotion;
use crate::way_up::WayUp;

type Downs = Pin<Box<dyn Stream<Item = Result<FollowDown, Status>> + Send>>;

/// How long the state machine may take to list the standbys, before those that were known are shown.
const LIST_DEADLINE: Duration = Duration::from_secs(1);

/// The head's service.
#[derive(Debug, Clone)]
pub(crate) struct HeadService {
    pub(crate) door: Door,
    pub(crate) callers: Callers,
    pub(crate) copies: Copies,
    pub(crate) logs: Arc<JobLogs>,
    pub(crate) epoch: HeadEpoch,
    pub(crate) name: String,
    pub(crate) dvm: String,
    /// Where the head listens; empty: nowhere.
    pub(crate) listen: String,
    /// This head's certificate and the authority's key; None: it does not listen.
    pub(crate) keys: Option<(Own, rsd_proto::v1::Authority)>,
    pub(crate) dial_deadline: Duration,
    /// The standbys, as they were last heard of.
    pub(crate) known: Arc<Mutex<Vec<KeptStandby>>>,
    /// Read by requests for which a standby is being asked to take over.
    pub(crate) asks: Arc<RwLock<()>>,
}

impl HeadService {
    async fn standbys(&self, caller: Caller, call: StandbyCall) -> Result<Vec<KeptStandby>, Status> {
        match self.door.call(caller, Call::Standby(call)).await {
            Answer::Standbys(standbys) => {
                self.known().clone_from(&standbys);
                Ok(standbys)
            }
            Answer::Refused(refused) => Err(status_of(refused)),
            other => Err(unexpected(&other)),
        }
    }

    fn known(&self) -> MutexGuard<'_, Vec<KeptStandby>> {
        self.known.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn info(&self, standbys: Vec<KeptStandby>) -> HeadInfo {
        let standbys = standbys.into_iter().map(|standby| {
            let head = standby.head.unwrap_or_default();
            let mut addresses = dialable(&head, "");
            if addresses.is_empty() && !head.listen.is_empty() {
                addresses.push(head.listen); // only this machine reaches it
            }
            self.copies.describe(StandbyInfo {
                node: standby.node,
                name: head.name,
                addresses,
                ..StandbyInfo::default()
            })
        });
        HeadInfo {
            dvm: self.dvm.clone(),
            name: self.name.clone(),
            listen: self.listen.clone(),
            epoch: self.epoch.number,
            standbys: standbys.collect(),
            records: self.copies.number(),
            lease: self.copies.describe_lease(),
        }
    }
}

#[tonic::async_trait]
impl Heads for HeadService {
    type FollowStream = Downs;

    async fn show_head(&self, request: Request<ShowHeadRequest>) -> Reply<HeadInfo> {
        let caller = self.callers.of(&request)?;
        // Without a lease, the state machine's answers are held back. What it had said before is shown all the same.
        let listed = tokio::time::timeout(LIST_DEADLINE, self.standbys(caller, StandbyCall::List)).await;
        let standbys = listed.unwrap_or_else(|_| Ok(self.known().clone()))?;
        Ok(Response::new(self.info(standbys)))
    }

    async fn allow_standby(&self, request: Request<AllowStandbyRequest>) -> Reply<HeadInfo> {
        let caller = self.callers.of(&request)?;
        if self.keys.is_none() {
            let text = "this head does not listen on TCP, so no node can stand by: restart it with --listen";
            return Err(refusal(Code::FailedPrecondition, exit::USAGE, text));
        }
        let AllowStandbyRequest { node, forbid } = request.into_inner();
        let standbys = self.standbys(caller, StandbyCall::Allow { node, forbid }).await?;
        self.copies.keep_only(&standbys.iter().map(|standby| standby.node).collect::<Vec<_>>());
        Ok(Response::new(self.info(standbys)))
    }

    async fn promote(&self, request: Request<PromoteRequest>) -> Reply<PromoteReply> {
        let caller = administrator(self.callers, &request)?;
        let request = request.into_inner();
        if !request.hand_over {
            let text = "this daemon is the head, and answers: rsctl head promote NODE --switch makes it hand over";
            return Err(refusal(Code::FailedPrecondition, exit::USAGE, text));
        }
        let Some((own, _)) = &self.keys else {
            let text = "this head does not listen on TCP, so no node can stand by: restart it with --listen";
            return Err(refusal(Code::FailedPrecondition, exit::USAGE, text));
        };
        // This daemon ends when it has handed over, but not before the answer is here.
        let _asks = self.asks.read().await;
        let machine = network::machine();
        let standbys = self.standbys(caller, StandbyCall::List).await?;
        let heads = standbys.into_iter().filter_map(|standby| standby.head);
        let standbys: Vec<Ancestor> = heads.map(|head| of_standby(&head, &machine)).collect();
        let stamped = |request: PromoteRequest| Callers::stamped(caller, request);
        ask::promote(own, &standbys, self.dial_deadline, request, stamped).await.map(Response::new)
    }

    async fn follow(&self, request: Request<Streaming<FollowUp>>) -> Reply<Self::FollowStream> {
        let node = match request.extensions().get::<Peer>().map(|peer| peer.who) {
            Some(Who::Node(node)) => node,
            Some(Who::Local { .. } | Who::User(_) | Who::Guest(_)) | None => {
                return Err(refusal(Code::PermissionDenied, exit::NOT_PERMITTED, "only a node stands by for the head"));
            }
        };
        let Some((own, authority)) = &self.keys else {
            return Err(refusal(Code::FailedPrecondition, exit::USAGE, "this head does not listen on TCP"));
        };
        let mut from = request.into_inner();
        let Some(FollowUp { body: Some(follow_up::Body::Hello(hello)) }) = from.message().await? else {
            return Err(Status::invalid_argument("a standby begins with its hello"));
        };
        let later = hello.epoch.filter(|epoch| epoch.number > self.epoch.number && own.proves(epoch));
        if let Some(epoch) = later {
            self.door.send(Event::StepDown(epoch));
            return Err(refusal(Code::FailedPrecondition, exit::USAGE, "this head has been replaced"));
        }
        // Before the key is sent.
        self.standbys(
            Callers::daemon(),
            StandbyCall::StandsBy { node, listen: hello.listen, daemon_listen: hello.daemon_listen },
        )
        .await?;
        let (to, stream) = mpsc::unbounded_channel();
        let begin = FollowBegin {
            authority: Some(authority.clone()),
            epoch: Some(self.epoch.clone()),
            head_name: self.name.clone(),
            serves_all: self.callers.serves_all,
        };
        let _ = to.send(Ok(FollowDown { body: Some(Body::Begin(begin)) })); // the receiver is returned below
        let (door, copies, logs) = (self.door.clone(), self.copies.clone(), Arc::clone(&self.logs));
        tokio::spawn(Feed { node, door, copies, logs, to }.run(from, hello.logs));
        Ok(Response::new(Box::pin(UnboundedReceiverStream::new(stream))))
    }

    async fn get_epoch(&self, _: Request<GetEpochRequest>) -> Reply<HeadEpoch> {
        Ok(Response::new(self.epoch.clone()))
    }
}

/// Returns the caller, who must be an administrator.
fn administrator<T>(callers: Callers, request: &Request<T>) -> Result<Caller, Status> {
    let caller = callers.of(request)?;
    if caller.is_admin {
        return Ok(caller);
    }
    let text = "only root makes another machine the head of a DVM that serves all users";
    Err(refusal(Code::PermissionDenied, exit::NOT_PERMITTED, text))
}

/// The service of a daemon that is not the head.
#[derive(Debug, Clone)]
pub(crate) struct NodeService {
    pub(crate) door: Door,
    pub(crate) way_up: WayUp,
    pub(crate) callers: Callers,
    pub(crate) turns: Turns,
    /// None: it does not stand by.
    pub(crate) promotion: Option<Arc<Promotion>>,
}

#[tonic::async_trait]
impl Heads for NodeService {
    type FollowStream = Downs;

    async fn show_head(&self, request: Request<ShowHeadRequest>) -> Reply<HeadInfo> {
        let _turn = self.turns.take(self.callers, &request)?;
        let mut head = heads_client(self.way_up.shared().await?);
        self.way_up.check(head.show_head(self.callers.forwarded(request)?).await).await
    }

    async fn allow_standby(&self, _: Request<AllowStandbyRequest>) -> Reply<HeadInfo> {
        let text = "a standby gets the key of the DVM, so only the head itself may be asked: run rsctl head allow on its machine";
        Err(refusal(Code::PermissionDenied, exit::NOT_PERMITTED, text))
    }

    async fn promote(&self, request: Request<PromoteRequest>) -> Reply<PromoteReply> {
        let caller = administrator(self.callers, &request)?;
        let Answer::Status(status) = self.door.call(caller, Call::Status).await else {
            return Err(Status::unavailable("the daemon is stopping"));
        };
        let is_asked_by_node = matches!(request.extensions().get::<Peer>(), Some(Peer { who: Who::Node(_), .. }));
        let request = request.into_inner();
        let is_me = [&status.name, &status.node.to_string()].contains(&&request.node);
        match &self.promotion {
            Some(promotion) if is_me || request.node.is_empty() => promotion.promote(&request).await.map(Response::new),
            None if is_me || is_asked_by_node => {
                let text = format!("{} does not stand by for the head (rsd start --standby)", status.name);
                Err(refusal(Code::FailedPrecondition, exit::USAGE, text))
            }
            Some(_) | None => {
                let (own, standbys) = (self.way_up.own(), self.way_up.standbys());
                let stamped = |request: PromoteRequest| Callers::stamped(caller, request);
                ask::promote(own, &standbys, self.way_up.deadline(), request, stamped).await.map(Response::new)
            }
        }
    }

    async fn follow(&self, _: Request<Streaming<FollowUp>>) -> Reply<Self::FollowStream> {
        Err(refusal(Code::Unavailable, exit::UNREACHABLE, "the daemon there is not the head"))
    }

    async fn get_epoch(&self, _: Request<GetEpochRequest>) -> Reply<HeadEpoch> {
        Err(refusal(Code::Unavailable, exit::UNREACHABLE, "the daemon there is not the head"))
    }
}
