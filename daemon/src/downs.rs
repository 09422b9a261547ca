//! The messages to a child that it has not taken yet. A step of another user may never read: its queue is bounded, and the link is closed
//! when it is full. A step that is only slow dials again, and repeats what is unanswered.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use prost::Message;
use rsd_core::kvs;
use rsd_proto::transport::{Peer, Who};
use rsd_proto::v1::Down;
use tokio::sync::{mpsc, oneshot};
use tokio_stream::wrappers::UnboundedReceiverStream;
use tokio_stream::{Stream, StreamExt};
use tonic::Status;

/// The most bytes that wait for a step: the largest result of a fence, and what surrounds it.
const STEP_BYTES_MAX: usize = kvs::BYTES_MAX + (64 << 20);

/// The sending end.
#[derive(Debug)]
pub(crate) struct Downs {
    sender: mpsc::UnboundedSender<Result<Down, Status>>,
    waiting_bytes: Arc<AtomicUsize>,
    bytes_max: usize,
    /// Dropped with the sending end.
    _open: oneshot::Sender<()>,
}

/// Makes a queue: returns its sending end, the stream of what is sent, and what completes when the sending end is dropped.
pub(crate) fn queue(
    peer: Option<Peer>,
) -> (Downs, impl Stream<Item = Result<Down, Status>> + Send + 'static, oneshot::Receiver<()>) {
    let bytes_max = match peer.map(|peer| peer.who) {
        Some(Who::Local { .. }) => STEP_BYTES_MAX,
        Some(Who::Node(_) | Who::User(_) | Who::Guest(_)) | None => usize::MAX,
    };
    bounded(bytes_max)
}

fn bounded(
    bytes_max: usize,
) -> (Downs, impl Stream<Item = Result<Down, Status>> + Send + 'static, oneshot::Receiver<()>) {
    let (sender, receiver) = mpsc::unbounded_channel();
    let (open, closed) = oneshot::channel();
    let waiting_bytes = Arc::new(AtomicUsize::new(0));
    let taken = Arc::clone(&waiting_bytes);
    let stream = UnboundedReceiverStream::new(receiver).map(move |down| {
        taken.fetch_sub(bytes_of(&down), Ordering::Relaxed);
        down
    });
    (Downs { sender, waiting_bytes, bytes_max, _open: open }, stream, closed)
}

impl Downs {
    /// Adds a message. Returns false if the child has left too much unread: its link must be closed.
    pub(crate) fn send(&self, down: Result<Down, Status>) -> bool {
        let bytes = bytes_of(&down);
        if self.waiting_bytes.fetch_add(bytes, Ordering::Relaxed).saturating_add(bytes) > self.bytes_max {
            return false;
        }
        // If the link breaks now, its own task reports that.
        let _ = self.sender.send(down);
        true
    }
}

fn bytes_of(down: &Result<Down, Status>) -> usize {
    down.as_ref().map_or(0, Message::encoded_len)
}

#[cfg(test)]
mod tests {
    use rsd_proto::v1::{FenceDown, down};

    use super::*;

    #[tokio::test(flavor = "current_thread")]
    async fn what_a_child_does_not_read_is_bounded() {
        let message = || {
            let fence = FenceDown { job: 1, epoch: 2, batches: vec![vec![0; 1000].into()], is_held: false };
            Ok(Down { body: Some(down::Body::FenceDown(fence)) })
        };
        let (downs, stream, mut closed) = bounded(4000);
        let mut stream = std::pin::pin!(stream);
        assert!((0..3).all(|_| downs.send(message())));
        assert!(!downs.send(message()), "the fourth does not fit");

        let (downs, fresh, _closed) = bounded(4000);
        let mut fresh = std::pin::pin!(fresh);
        for _ in 0..100 {
            assert!(downs.send(message()));
            assert!(fresh.next().await.is_some(), "a child that reads gets any number");
        }
        assert!(stream.next().await.is_some());
        assert!(closed.try_recv().is_err());
    }
}
