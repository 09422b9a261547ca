//! The gRPC service for links from child daemons and steps.

use rsd_core::rsd::Input;
use rsd_proto::services::link_server::Link;
use rsd_proto::v1::{Down, Up, up};
use tokio::sync::mpsc;
use tokio_stream::wrappers::UnboundedReceiverStream;
use tonic::{Request, Response, Streaming};

use super::{Events, Reply};
use crate::door::{Door, Event};

/// The service.
#[derive(Debug, Clone)]
pub(crate) struct LinkService {
    pub(crate) door: Door,
}

#[tonic::async_trait]
impl Link for LinkService {
    type AttachStream = Events<Down>;

    async fn attach(&self, request: Request<Streaming<Up>>) -> Reply<Self::AttachStream> {
        let mut ups = request.into_inner();
        let (sender, receiver) = mpsc::unbounded_channel();
        let door = self.door.clone();
        let link = door.new_link();
        tokio::spawn(async move {
            let hello = match ups.message().await {
                Ok(Some(Up { body: Some(up::Body::Hello(hello)) })) => hello,
                _ => return,
            };
            door.send(Event::Link { link, down: sender });
            door.send(Event::Input(Input::Hello { link, hello }));
            // The shell closes a link by dropping its sender; the child then closes this stream.
            while let Ok(Some(up)) = ups.message().await {
                door.send(Event::Input(Input::Up { link, up }));
            }
            door.send(Event::Input(Input::LinkClosed { link }));
        });
        Ok(Response::new(Box::pin(UnboundedReceiverStream::new(receiver))))
    }
}
