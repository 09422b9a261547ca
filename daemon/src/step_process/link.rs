//! The step's link to its daemon: dialled again for as long as the step lives.

use std::path::{Path, PathBuf};
use std::time::Duration;

use rsd_core::step::Input;
use rsd_proto::transport::{Target, dial, link_client};
use rsd_proto::v1::{Hello, StepHello, Up, down, hello, up};
use tokio::sync::mpsc;
use tokio_stream::wrappers::UnboundedReceiverStream;
use tonic::transport::Channel;
use tracing::debug;

use super::Event;
use crate::state_dir;

const DIAL_DEADLINE: Duration = Duration::from_secs(10);
const RETRY_MIN: Duration = Duration::from_millis(20);
const RETRY_MAX: Duration = Duration::from_millis(500);

/// A connection to the daemon, nothing sent yet; None if there is no daemon just now.
pub(super) async fn dial_daemon(state_dir: &Path) -> Option<Channel> {
    let target = Target::Unix(state_dir::socket(state_dir));
    dial(&target, DIAL_DEADLINE).await.inspect_err(|error| debug!(%error, "cannot reach the daemon")).ok()
}

/// Attaches, passes messages, and attaches again, until the step's loop is gone. `first` is used before any is dialled.
pub(super) async fn keep(
    state_dir: PathBuf,
    hello: StepHello,
    events: mpsc::UnboundedSender<Event>,
    mut first: Option<Channel>,
) {
    let mut pause = RETRY_MIN;
    while !events.is_closed() {
        let channel = match first.take() {
            Some(channel) => Some(channel),
            None => dial_daemon(&state_dir).await,
        };
        if let Some(channel) = channel {
            match attach(channel, &hello, &events).await {
                Ok(()) => pause = RETRY_MIN,
                Err(error) => debug!(error, "the link to the daemon failed"),
            }
        }
        if events.send(Event::Input(Input::LinkDown)).is_err() {
            return;
        }
        tokio::time::sleep(pause).await;
        pause = (pause * 2).min(RETRY_MAX);
    }
}

/// One link, from its first message to its end.
async fn attach(channel: Channel, hello: &StepHello, events: &mpsc::UnboundedSender<Event>) -> Result<(), String> {
    let (sender, receiver) = mpsc::unbounded_channel();
    let who = Some(hello::Who::Step(hello.clone()));
    let first = Hello { version: rsd_proto::VERSION.into(), who };
    sender.send(Up { body: Some(up::Body::Hello(first)) }).map_err(|_| "closed")?;
    let response = link_client(channel).attach(UnboundedReceiverStream::new(receiver)).await;
    let mut downs = response.map_err(|status| status.message().to_owned())?.into_inner();
    let mut sender = Some(sender);
    loop {
        let down = match downs.message().await {
            Ok(Some(down)) => down,
            Ok(None) => return Ok(()),
            Err(status) => return Err(status.message().to_owned()),
        };
        let event = match down.body {
            Some(down::Body::Welcome(_)) => match sender.take() {
                Some(sender) => Event::LinkUp(sender),
                None => continue,
            },
            _ => Event::Input(Input::Down(down)),
        };
        if events.send(event).is_err() {
            return Ok(());
        }
    }
}
