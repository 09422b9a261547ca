//! The `Observe` service: what happens in the DVM, which the head answers and other daemons forward; and the metrics of this daemon.
//!
//! A client that follows has no queue of its own: when there is a new event, and the client has read what it was sent, its task asks the
//! state machine for what came after its cursor. A client that is too slow learns how many events it has missed.

use rsd_core::rsd::{Answer, Call, Caller};
use rsd_proto::services::observe_server::Observe;
use rsd_proto::transport::{Shares, exit, observe_client, refusal};
use rsd_proto::v1::{EventsReply, EventsRequest, MetricsReply, MetricsRequest};
use tokio::sync::{mpsc, watch};
use tokio_stream::StreamExt;
use tokio_stream::wrappers::ReceiverStream;
use tonic::{Code, Request, Response, Status};

use super::callers::Callers;
use super::forward::Turns;
use super::{Events, Reply, status_of, unexpected};
use crate::door::Door;
use crate::metrics::Meter;
use crate::way_up::WayUp;

/// The most replies that wait for a slow client.
const QUEUE: usize = 2;

#[derive(Debug, Clone)]
pub(crate) struct ObserveService {
    pub(crate) door: Door,
    pub(crate) callers: Callers,
    /// The way to the head, for a daemon that is not the head.
    pub(crate) way_up: Option<WayUp>,
    /// The clients that follow the head's events, and the calls that this daemon forwards.
    pub(crate) followers: Shares,
    pub(crate) turns: Turns,
    pub(crate) meter: Meter,
}

impl ObserveService {
    async fn after(&self, caller: Caller, since: Option<u64>) -> Result<EventsReply, Status> {
        match self.door.call(caller, Call::Events { since }).await {
            Answer::Events(events) => Ok(*events),
            Answer::Refused(refused) => Err(status_of(refused)),
            other => Err(unexpected(&other)),
        }
    }

    /// Sends what has happened after `since`, and with `follow` what happens, until the client or the daemon ends.
    async fn send(
        &self,
        caller: Caller,
        mut since: Option<u64>,
        follow: bool,
        mut last: watch::Receiver<u64>,
        client: mpsc::Sender<Result<EventsReply, Status>>,
    ) {
        let mut is_first = true;
        loop {
            let seen = *last.borrow_and_update();
            let reply = self.after(caller, since).await;
            let failed = reply.is_err();
            let cursor = reply.as_ref().map_or(0, |reply| reply.cursor);
            // The first reply says where the client stands, also if nothing has happened.
            let is_news = reply.as_ref().map_or(true, |reply| !reply.events.is_empty() || reply.missed > 0);
            if (is_first || is_news) && client.send(reply).await.is_err() || failed {
                return;
            }
            (is_first, since) = (false, Some(cursor));
            if cursor < seen {
                continue;
            }
            if !follow {
                return;
            }
            tokio::select! {
                changed = last.changed() => if changed.is_err() { return },
                () = client.closed() => return,
            }
        }
    }
}

#[tonic::async_trait]
impl Observe for ObserveService {
    type EventsStream = Events<EventsReply>;

    async fn events(&self, request: Request<EventsRequest>) -> Reply<Self::EventsStream> {
        let caller = self.callers.of(&request)?;
        if let Some(way_up) = &self.way_up {
            let turn = self.turns.take(self.callers, &request)?;
            let request = self.callers.forwarded(request)?;
            let stream = observe_client(way_up.dial().await?).events(request).await?.into_inner();
            let stream = stream.map(move |reply| {
                let _counted = &turn; // until the stream is dropped
                reply
            });
            return Ok(Response::new(Box::pin(stream)));
        }
        let full = || {
            let text = format!(
                "{} clients of yours follow the DVM, and it allows a user no more (setting users.followers): end some",
                self.followers.most()
            );
            refusal(Code::ResourceExhausted, exit::NOT_PERMITTED, text)
        };
        let share = match self.callers.serves_all {
            true => Some(self.followers.take(caller.uid, 0).ok_or_else(full)?),
            false => None,
        };
        let EventsRequest { since, follow } = request.into_inner();
        let (client, stream) = mpsc::channel(QUEUE);
        let (service, last) = (self.clone(), self.door.last_event());
        tokio::spawn(async move {
            let _share = share;
            service.send(caller, since, follow, last, client).await;
        });
        Ok(Response::new(Box::pin(ReceiverStream::new(stream))))
    }

    async fn get_metrics(&self, request: Request<MetricsRequest>) -> Reply<MetricsReply> {
        let caller = self.callers.of(&request)?;
        let text = self.meter.text(caller).await.map_err(status_of)?;
        Ok(Response::new(MetricsReply { text }))
    }
}
