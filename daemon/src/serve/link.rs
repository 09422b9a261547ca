//! The gRPC service for links from child daemons and steps.
//!
//! [`incoming`]: a child's messages, and what a user's steps may send.

mod incoming;

use std::time::Duration;

use rsd_core::rsd::{Input, LinkId};
use rsd_proto::services::link_server::Link;
use rsd_proto::transport::{Own, Peer, Who, exit, refusal};
use rsd_proto::v1::{Down, Hello, Up, hello};
use tonic::{Code, Request, Response, Status, Streaming};
use tracing::debug;

use super::{Events, Reply, connect_back};
use crate::door::{Door, Event};
use crate::downs;
use incoming::Incoming;
pub(crate) use incoming::Limits;

/// How long a child may take to close its stream when this daemon has closed the other direction.
const CLOSING: Duration = Duration::from_secs(10);

/// The service.
#[derive(Debug, Clone)]
pub(crate) struct LinkService {
    pub(crate) door: Door,
    /// This daemon's certificate; None: it has no TCP port.
    pub(crate) own: Option<Own>,
    /// This daemon's machine, see `Inventory.machine`.
    pub(crate) machine: String,
    pub(crate) limits: Limits,
}

#[tonic::async_trait]
impl Link for LinkService {
    type AttachStream = Events<Down>;

    async fn attach(&self, request: Request<Streaming<Up>>) -> Reply<Self::AttachStream> {
        let peer = request.extensions().get::<Peer>().copied();
        let mut incoming = Incoming::new(request.into_inner(), peer, &self.limits)?;
        let (downs, stream, closed) = downs::queue(peer);
        let LinkService { door, own, machine, .. } = self.clone();
        let link = door.new_link();
        tokio::spawn(async move {
            let Some(mut hello) = incoming.hello().await else { return };
            if let Err(why) = may_attach(peer, &hello, own.as_ref().map(Own::dvm).as_deref()) {
                downs.send(Err(why));
                return;
            }
            if let (Some(hello::Who::Node(node)), Some(own), Some(peer)) = (&mut hello.who, &own, peer) {
                node.epoch.take_if(|epoch| !own.proves(epoch));
                connect_back::complete(node, peer, own, &machine).await;
                if let Some(at) = connect_back::reached_at(node, peer, &machine) {
                    door.send(Event::Input(Input::ReachedAt(at)));
                }
            }
            door.send(Event::Link { link, down: downs });
            let uid = peer.map_or(NOBODY, uid_of);
            door.send(Event::Input(Input::Hello { link, hello, uid }));
            // The shell closes a link by dropping its sender; the child then closes this stream.
            let closing = async {
                let _ = closed.await;
                tokio::time::sleep(CLOSING).await;
            };
            tokio::select! {
                () = pass_on(&mut incoming, link, &door) => {}
                () = closing => debug!(link, "a child has not closed its side of a link"),
            }
            door.send(Event::Input(Input::LinkClosed { link }));
        });
        Ok(Response::new(Box::pin(stream)))
    }
}

/// Passes a child's messages on, until its end of the link is closed.
async fn pass_on(incoming: &mut Incoming, link: LinkId, door: &Door) {
    loop {
        match incoming.next().await {
            Ok(Some(up)) => door.send(Event::Input(Input::Up { link, up })),
            Ok(None) => return,
            Err(status) => return debug!(link, why = status.message(), "a link has ended"),
        }
    }
}

/// The uid of a peer that is no process of this machine: no job is its.
const NOBODY: u32 = u32::MAX;

fn uid_of(peer: Peer) -> u32 {
    match peer.who {
        Who::Local { uid, .. } => uid,
        Who::Node(_) | Who::User(_) | Who::Guest(_) => NOBODY,
    }
}

/// Checks that a child is the node that its certificate names, in this DVM: the head would take a node of another DVM for a new
/// one and give it another id. Steps use the unix socket.
fn may_attach(peer: Option<Peer>, hello: &Hello, dvm: Option<&str>) -> Result<(), Status> {
    let certified = match (peer.map(|peer| peer.who), &hello.who) {
        (Some(Who::Node(certified)), _) => certified,
        (Some(Who::Local { .. }), Some(hello::Who::Step(_))) => return Ok(()),
        (_, _) => {
            let text = "the unix socket is for steps: daemons join over TCP (rsd start --join)";
            return Err(refusal(Code::PermissionDenied, exit::NOT_PERMITTED, text));
        }
    };
    let named = match &hello.who {
        Some(hello::Who::Node(node)) if Some(&*node.dvm) != dvm => {
            let text = format!("the caller says that it is of DVM {:?}, and its certificate is of another", node.dvm);
            return Err(refusal(Code::PermissionDenied, exit::NOT_PERMITTED, text));
        }
        Some(hello::Who::Node(node)) => node.nodes.first().map(|node| node.node),
        Some(hello::Who::Step(_)) | None => None,
    };
    if named == Some(certified) {
        return Ok(());
    }
    let named = named.map_or_else(|| "not a node".to_owned(), |node| format!("node {node}"));
    let text = format!("the caller says that it is {named}, and its certificate is that of node {certified}");
    Err(refusal(Code::PermissionDenied, exit::NOT_PERMITTED, text))
}

#[cfg(test)]
mod tests {
    use rsd_proto::v1::{NodeHello, NodeInfo, StepHello};

    use super::*;

    fn says(who: hello::Who, certified: Who) -> bool {
        let hello = Hello { version: String::new(), who: Some(who) };
        may_attach(Some(Peer { who: certified, from: None, at: None, is_over: false }), &hello, Some("ours")).is_ok()
    }

    fn node(id: u32) -> hello::Who {
        let nodes = vec![NodeInfo { node: id, ..NodeInfo::default() }];
        hello::Who::Node(NodeHello { nodes, dvm: "ours".into(), ..NodeHello::default() })
    }

    #[test]
    fn a_node_does_not_attach_as_a_new_node_of_another_dvm() {
        for dvm in ["", "theirs"] {
            let nodes = vec![NodeInfo { node: 7, ..NodeInfo::default() }];
            let hello = hello::Who::Node(NodeHello { nodes, dvm: dvm.into(), ..NodeHello::default() });
            assert!(!says(hello, Who::Node(7)), "{dvm}");
        }
    }

    #[test]
    fn a_node_attaches_only_as_the_node_that_its_certificate_names() {
        assert!(says(node(7), Who::Node(7)));
        assert!(!says(node(8), Who::Node(7)));
        assert!(!says(node(0), Who::Node(7)), "a node without an id has not enrolled");
        assert!(!says(hello::Who::Step(StepHello::default()), Who::Node(7)), "steps use the unix socket");
        let local = Who::Local { uid: 0, pid: None };
        assert!(says(hello::Who::Step(StepHello::default()), local));
        assert!(!says(node(7), local), "daemons have certificates");
    }
}
