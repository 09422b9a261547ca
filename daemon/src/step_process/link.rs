//! The step's link to its daemon, which is dialled again as long as the step runs.

use std::path::{Path, PathBuf};
use std::time::Duration;

use rsd_core::step::Input;
use rsd_core::uplink::Backoff;
use rsd_proto::transport::{Target, dial, link_client};
use rsd_proto::v1::{Down, Hello, StepHello, Up, down, hello, up};
use tokio::sync::mpsc;
use tokio_stream::wrappers::UnboundedReceiverStream;
use tonic::Streaming;
use tracing::debug;

use super::Event;
use crate::disk::state_dir;

const DIAL_DEADLINE: Duration = Duration::from_secs(10);

/// A connected stream to the daemon, before the first message.
pub(super) struct Line {
    ups: mpsc::UnboundedSender<Up>,
    downs: Streaming<Down>,
}

/// Connects to the daemon; None if no daemon answers.
pub(super) async fn open(state_dir: &Path) -> Option<Line> {
    let target = Target::Unix(state_dir::socket(state_dir));
    let channel =
        dial(&target, DIAL_DEADLINE).await.inspect_err(|error| debug!(%error, "cannot reach the daemon")).ok()?;
    let (ups, receiver) = mpsc::unbounded_channel();
    let attaching = link_client(channel).attach(UnboundedReceiverStream::new(receiver)).await;
    let downs = attaching.inspect_err(|status| debug!(%status, "the daemon refused the link")).ok()?.into_inner();
    Some(Line { ups, downs })
}

/// Attaches, passes messages, and attaches again until the step's loop ends. Uses `first` before it connects again.
pub(super) async fn keep(
    state_dir: PathBuf,
    hello: StepHello,
    events: mpsc::UnboundedSender<Event>,
    mut first: Option<Line>,
) {
    let mut backoff = Backoff::of_step();
    while !events.is_closed() {
        let line = match first.take() {
            Some(line) => Some(line),
            None => open(&state_dir).await,
        };
        if let Some(line) = line {
            match serve(line, &hello, &events).await {
                Ok(()) => backoff.reset(),
                Err(error) => debug!(error, "the link to the daemon failed"),
            }
        }
        if events.send(Event::Input(Input::LinkDown)).is_err() {
            return;
        }
        tokio::time::sleep(backoff.pause()).await;
    }
}

/// Serves one link, from its first message to its end.
async fn serve(line: Line, hello: &StepHello, events: &mpsc::UnboundedSender<Event>) -> Result<(), String> {
    let Line { ups, mut downs } = line;
    let who = Some(hello::Who::Step(hello.clone()));
    let first = Hello { version: rsd_proto::VERSION.into(), who };
    ups.send(Up { body: Some(up::Body::Hello(first)) }).map_err(|_| "closed")?;
    let mut sender = Some(ups);
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
