//! A joined daemon's connection to its parent: performs the actions of [`rsd_core::Uplink`].

use std::future::pending;
use std::pin::Pin;
use std::time::Duration;

use rsd_core::Uplink;
use rsd_core::uplink::{Action, Input};
use rsd_proto::transport::{DialError, Dialer, Own, Target, dial, exit_code, link_client};
use rsd_proto::v1::{Down, Up, down, up};
use tokio::sync::{mpsc, oneshot};
use tokio_stream::wrappers::UnboundedReceiverStream;
use tonic::Streaming;
use tracing::{info, warn};

use crate::clock::Clock;
use crate::door::{Door, Event};

/// The stream of the parent's messages.
type Downs = Streaming<Down>;
/// An attempt to connect. Its result includes the stream if the peer has welcomed this daemon.
type Attempt = Pin<Box<dyn Future<Output = (Input, Option<Downs>)> + Send>>;

/// Runs the uplink as long as the daemon runs. If the uplink gives up, sends the reason to `failed` and returns.
pub(crate) async fn keep(
    mut uplink: Uplink,
    clock: Clock,
    dial_deadline: Duration,
    own: Own,
    door: Door,
    failed: oneshot::Sender<String>,
) {
    let (mut attempt, mut downs) = (None, None);
    // The parent to which this daemon was redirected: address and node id. Any other address is that of some daemon of the DVM.
    let mut expected: Option<(String, u32)> = None;
    let mut actions = Vec::new();
    loop {
        let due = uplink.next_deadline().map(|at| clock.instant(at));
        let input = tokio::select! {
            (input, opened) = end_of(&mut attempt) => {
                (attempt, downs) = (None, opened);
                input
            }
            input = next_of(&mut downs) => input,
            () = until(due) => Input::Tick,
        };
        match &input {
            Input::Lost => {
                downs = None;
                warn!(parent = uplink.address(), "the connection to the parent is lost");
            }
            Input::Redirected(redirect) => {
                info!(parent = redirect.parent_addr, "redirected to another parent");
                // A redirect to the head may name another daemon, which knows the head.
                let parent = Some(redirect.parent).filter(|parent| *parent != 0);
                expected = parent.map(|parent| (redirect.parent_addr.clone(), parent));
            }
            Input::Failed { why, .. } => warn!(parent = uplink.address(), why, "cannot reach the parent"),
            Input::Welcomed(_) | Input::Down(_) | Input::Tick => {}
        }
        uplink.handle(clock.now(), input, &mut actions);
        for action in actions.drain(..) {
            match action {
                Action::Dial { address, redirected } => {
                    let node = expected.as_ref().filter(|(at, _)| *at == address).map(|(_, node)| *node);
                    let dialer = own.dialer(node);
                    attempt = Some(Box::pin(attach(address, dialer, redirected, dial_deadline, door.clone())));
                }
                Action::Abandon => {
                    attempt = None;
                    warn!(parent = uplink.address(), "the parent does not answer");
                }
                Action::Deliver(input) => door.send(Event::Input(input)),
                Action::GiveUp(why) => {
                    let _ = failed.send(why);
                    return;
                }
            }
        }
    }
}

async fn end_of(attempt: &mut Option<Attempt>) -> (Input, Option<Downs>) {
    match attempt {
        Some(attempt) => attempt.await,
        None => pending().await,
    }
}

async fn next_of(downs: &mut Option<Downs>) -> Input {
    match downs {
        Some(downs) => downs.message().await.ok().flatten().map_or(Input::Lost, Input::Down),
        None => pending().await,
    }
}

async fn until(due: Option<std::time::Instant>) {
    match due {
        Some(due) => tokio::time::sleep_until(due.into()).await,
        None => pending().await,
    }
}

async fn attach(
    address: String,
    dialer: Dialer,
    redirected: bool,
    deadline: Duration,
    door: Door,
) -> (Input, Option<Downs>) {
    let failed = |why: String, hopeless| (Input::Failed { why, hopeless }, None);
    let channel = match dial(&Target::Tcp(address, dialer), deadline).await {
        Ok(channel) => channel,
        Err(error) => {
            let hopeless = matches!(error, DialError::NotPermitted { .. } | DialError::Untrusted(_));
            return failed(error.to_string(), hopeless);
        }
    };
    let (hello, wanted) = oneshot::channel();
    door.send(Event::HelloWanted { redirected, hello });
    let Ok(hello) = wanted.await else { return failed("the daemon is stopping".into(), true) };
    let (sender, receiver) = mpsc::unbounded_channel();
    // The receiver exists, so this cannot fail.
    let _ = sender.send(Up { body: Some(up::Body::Hello(hello)) });
    let mut downs = match link_client(channel).attach(UnboundedReceiverStream::new(receiver)).await {
        Ok(response) => response.into_inner(),
        Err(status) => return failed(status.message().to_owned(), exit_code(&status).is_some()),
    };
    match downs.message().await {
        Ok(Some(Down { body: Some(down::Body::Redirect(redirect)) })) => (Input::Redirected(redirect), None),
        Ok(Some(Down { body: Some(down::Body::Welcome(welcome)) })) => {
            // This event must precede the welcome, because the daemon's answers use this sender.
            door.send(Event::Parent(sender));
            (Input::Welcomed(welcome), Some(downs))
        }
        Ok(Some(_) | None) => failed("the peer closed the connection".into(), false),
        Err(status) => failed(status.message().to_owned(), exit_code(&status).is_some()),
    }
}
