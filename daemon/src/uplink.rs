//! A joined daemon's link to its parent: dialled, followed where the head sends it, and dialled again when it breaks.

use std::time::Duration;

use rsd_core::rsd::Input;
use rsd_proto::transport::{DialError, Target, dial, exit_code, link_client};
use rsd_proto::v1::{Redirect, Up, down, up};
use tokio::sync::{mpsc, oneshot};
use tokio_stream::wrappers::UnboundedReceiverStream;
use tracing::{info, warn};

use crate::door::{Door, Event};

const RETRY_MIN: Duration = Duration::from_millis(20);
/// A parent that is not the head may be gone for ever: after so many knocks the head is asked.
const KNOCKS: u32 = 6;

/// How to reach a parent.
#[derive(Debug, Clone)]
pub(crate) struct Uplink {
    /// Where the user said the DVM is.
    pub(crate) join: String,
    /// For one attempt.
    pub(crate) dial_deadline: Duration,
    /// The longest pause between two.
    pub(crate) retry_max: Duration,
}

/// How an attempt ended.
enum Attempt {
    /// The link was there, and is cut.
    Lost,
    /// Someone above sends us elsewhere.
    Redirected(Redirect),
    /// Nothing came of it: why, and whether trying again can help.
    Failed { why: String, hopeless: bool },
}

/// Keeps the link for as long as the daemon runs. The first failure beyond the dial deadline goes to `failed`: a daemon that
/// has never been in a DVM gives up.
pub(crate) async fn keep(uplink: Uplink, door: Door, failed: oneshot::Sender<String>) {
    let mut failed = Some(failed);
    let started = tokio::time::Instant::now();
    let (mut address, mut redirected) = (uplink.join.clone(), false);
    let (mut pause, mut knocks) = (RETRY_MIN, 0);
    loop {
        match attach(&uplink, &address, redirected, &door).await {
            Attempt::Lost => {
                warn!(parent = address, "the link to the parent is cut");
                door.send(Event::Input(Input::ParentLost));
                // It knows us: we may come back to it without asking the head.
                (failed, redirected, pause, knocks) = (None, true, RETRY_MIN, 0);
            }
            Attempt::Redirected(redirect) => {
                info!(parent = redirect.parent_addr, "sent to another parent");
                address = redirect.parent_addr.clone();
                redirected = redirect.node != 0;
                door.send(Event::Input(Input::Redirected(redirect)));
                continue;
            }
            Attempt::Failed { why, hopeless } => {
                let late = started.elapsed() >= uplink.dial_deadline;
                if let Some(failed) = failed.take_if(|_| hopeless || late) {
                    let _ = failed.send(format!("cannot join the DVM at {address}: {why}"));
                    return;
                }
                knocks += 1;
                warn!(parent = address, why, "cannot reach the parent");
            }
        }
        if knocks >= KNOCKS && address != uplink.join {
            (address, redirected, knocks) = (uplink.join.clone(), false, 0);
        }
        tokio::time::sleep(pause).await;
        pause = (pause * 2).min(uplink.retry_max);
    }
}

async fn attach(uplink: &Uplink, address: &str, redirected: bool, door: &Door) -> Attempt {
    let channel = match dial(&Target::Tcp(address.to_owned()), uplink.dial_deadline).await {
        Ok(channel) => channel,
        Err(error) => {
            let hopeless = matches!(error, DialError::NotPermitted { .. });
            return Attempt::Failed { why: error.to_string(), hopeless };
        }
    };
    let (hello, wanted) = oneshot::channel();
    door.send(Event::HelloWanted { redirected, hello });
    let Ok(hello) = wanted.await else {
        return Attempt::Failed { why: "the daemon is stopping".into(), hopeless: true };
    };
    let (sender, receiver) = mpsc::unbounded_channel();
    // The receiver is right here.
    let _ = sender.send(Up { body: Some(up::Body::Hello(hello)) });
    let mut client = link_client(channel);
    let response = client.attach(UnboundedReceiverStream::new(receiver));
    let mut downs = match tokio::time::timeout(uplink.dial_deadline, response).await {
        Ok(Ok(response)) => response.into_inner(),
        Ok(Err(status)) => {
            return Attempt::Failed { why: status.message().to_owned(), hopeless: exit_code(&status).is_some() };
        }
        Err(_) => return Attempt::Failed { why: "no answer in time".into(), hopeless: false },
    };
    let first = match tokio::time::timeout(uplink.dial_deadline, downs.message()).await {
        Ok(Ok(Some(down))) => down.body,
        Ok(Ok(None)) => None,
        Ok(Err(status)) => return Attempt::Failed { why: status.message().to_owned(), hopeless: false },
        Err(_) => return Attempt::Failed { why: "no answer in time".into(), hopeless: false },
    };
    match first {
        Some(down::Body::Redirect(redirect)) => return Attempt::Redirected(redirect),
        Some(down::Body::Welcome(welcome)) => {
            door.send(Event::Parent(sender));
            door.send(Event::Input(Input::Welcome(welcome)));
        }
        _ => return Attempt::Failed { why: "it hung up".into(), hopeless: false },
    }
    while let Ok(Some(down)) = downs.message().await {
        door.send(Event::Input(Input::Down(down)));
    }
    Attempt::Lost
}
