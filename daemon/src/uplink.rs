//! A joined daemon's connection to its parent: performs the actions of [`rsd_core::Uplink`].

use std::future::pending;
use std::io::ErrorKind::{HostUnreachable, NetworkUnreachable, TimedOut as IoTimedOut};
use std::pin::Pin;
use std::time::Duration;

use rsd_core::Uplink;
use rsd_core::uplink::{Action, Dial, Failure, Input};
use rsd_proto::transport::parts::{Joiner, split};
use rsd_proto::transport::{self, DialError, Dialer, End, Own, Target, exit_code, link_client};
use rsd_proto::v1::{Down, Up, down, up};
use tokio::sync::{mpsc, oneshot, watch};
use tokio_stream::wrappers::UnboundedReceiverStream;
use tonic::{Status, Streaming};
use tracing::{debug, info, warn};

use crate::clock::Clock;
use crate::door::{Door, Event};

/// The stream of the parent's messages.
struct Downs {
    stream: Streaming<Down>,
    joiner: Joiner,
    end: End,
}

impl Downs {
    /// Returns the next whole message; None at the end.
    async fn next(&mut self) -> Result<Option<Down>, Status> {
        while let Some(down) = self.stream.message().await? {
            if let Some(whole) = self.joiner.join(down)? {
                return Ok(Some(whole));
            }
        }
        Ok(None)
    }
}

/// An attempt to connect. Its result includes the stream if the peer has welcomed this daemon.
type Attempt = Pin<Box<dyn Future<Output = (Input, Option<Downs>)> + Send>>;

/// Runs the uplink as long as the daemon runs. If the uplink gives up, sends the reason to `failed` and returns.
pub(crate) async fn keep(
    mut uplink: Uplink,
    clock: Clock,
    own: Own,
    silence: Duration,
    door: Door,
    mut epochs: watch::Receiver<u64>,
    failed: oneshot::Sender<String>,
) {
    let (mut attempt, mut downs) = (None, None);
    let mut actions = Vec::new();
    loop {
        let due = uplink.next_deadline().map(|at| clock.instant(at));
        let input = tokio::select! {
            (input, opened) = end_of(&mut attempt) => {
                (attempt, downs) = (None, opened);
                input
            }
            input = next_of(&mut downs, &own) => input,
            Ok(()) = epochs.changed() => Input::Epoch(*epochs.borrow_and_update()),
            () = until(due) => Input::Tick,
        };
        match &input {
            Input::Lost { .. } => {
                downs = None;
                warn!(parent = uplink.address(), "the connection to the parent is lost");
            }
            Input::Redirected(redirect) => {
                info!(parent = redirect.parent_addrs.join(" or "), "redirected to another parent");
            }
            Input::Failed { why, .. } => warn!(parent = uplink.address(), why, "cannot reach the parent"),
            Input::Epoch(epoch) => info!(epoch, "there is a later head"),
            Input::Welcomed(_) | Input::Down(_) | Input::Tick => {}
        }
        uplink.handle(clock.now(), input, &mut actions);
        for action in actions.drain(..) {
            match action {
                Action::Dial(dial) => {
                    downs = None;
                    let dialer = own.dialer(dial.node);
                    attempt = Some(Box::pin(attach(dial, dialer, silence, door.clone())));
                }
                Action::Abandon => {
                    attempt = None;
                    warn!(parent = uplink.address(), "the parent does not answer");
                }
                Action::Leave => {
                    (attempt, downs) = (None, None);
                    warn!(parent = uplink.address(), "left a parent that obeys an earlier head");
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

async fn next_of(downs: &mut Option<Downs>, own: &Own) -> Input {
    match downs {
        Some(downs) => match downs.next().await {
            Ok(Some(mut down)) => {
                if let Some(down::Body::Ancestors(ancestors)) = &mut down.body {
                    // A node that invents a later head must not separate others from this one.
                    ancestors.epoch.take_if(|epoch| !own.proves(epoch));
                }
                Input::Down(down)
            }
            Ok(None) => Input::Lost { silent: false },
            Err(status) => {
                debug!(why = status.message(), "the link to the parent has failed");
                Input::Lost { silent: !downs.end.by_peer() }
            }
        },
        None => pending().await,
    }
}

async fn until(due: Option<std::time::Instant>) {
    match due {
        Some(due) => tokio::time::sleep_until(due.into()).await,
        None => pending().await,
    }
}

async fn attach(dial: Dial, dialer: Dialer, silence: Duration, door: Door) -> (Input, Option<Downs>) {
    let Dial { addresses, deadline, approach, node: _ } = dial;
    let failed = |why: String, kind| (Input::Failed { why, kind }, None);
    let end = End::default();
    let channel = match transport::dial_watched(&Target::AnyOf(addresses, dialer), deadline, silence, &end).await {
        Ok(channel) => channel,
        Err(error) => return failed(error.to_string(), kind_of(&error)),
    };
    let (hello, wanted) = oneshot::channel();
    door.send(Event::HelloWanted { approach, hello });
    let Ok(hello) = wanted.await else { return failed("the daemon is stopping".into(), Failure::Hopeless) };
    let (sender, receiver) = mpsc::unbounded_channel();
    split(Up { body: Some(up::Body::Hello(hello)) }, |up| {
        // The receiver exists, so this cannot fail.
        let _ = sender.send(up);
    });
    let of_status = |status: Status| {
        let kind = if exit_code(&status).is_some() { Failure::Hopeless } else { Failure::Passing };
        failed(status.message().to_owned(), kind)
    };
    let mut downs = match link_client(channel).attach(UnboundedReceiverStream::new(receiver)).await {
        Ok(response) => Downs { stream: response.into_inner(), joiner: Joiner::default(), end },
        Err(status) => return of_status(status),
    };
    match downs.next().await {
        Ok(Some(Down { body: Some(down::Body::Redirect(redirect)) })) => (Input::Redirected(redirect), None),
        Ok(Some(Down { body: Some(down::Body::Refused(refused)) })) => failed(refused.why, Failure::Hopeless),
        Ok(Some(Down { body: Some(down::Body::Welcome(welcome)) })) => {
            // This event must precede the welcome, because the daemon's answers use this sender.
            door.send(Event::Parent(sender));
            (Input::Welcomed(welcome), Some(downs))
        }
        Ok(Some(_) | None) => failed("the peer closed the connection".into(), Failure::Passing),
        Err(status) => of_status(status),
    }
}

/// Tells whether a machine does not answer, or the program there is not one of this DVM.
fn kind_of(error: &DialError) -> Failure {
    match error {
        DialError::NotPermitted { .. } => Failure::Hopeless,
        DialError::TimedOut(_) => Failure::Silent,
        DialError::Io(error) if matches!(error.kind(), HostUnreachable | NetworkUnreachable | IoTimedOut) => {
            Failure::Silent
        }
        // A program that is not trusted may have the port only for a while: until the head runs again, or the clocks agree.
        DialError::Untrusted(_) | DialError::NotRunning(_) | DialError::Io(_) => Failure::Passing,
    }
}
