//! A joined daemon's way to the head, for clients' calls that it forwards and for its certificate.
//!
//! The user may have named another daemon of the DVM than the head. Once this daemon has a parent, it knows where the head is.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use rsd_proto::transport::{Own, Target, dial, exit, refusal};
use rsd_proto::v1::Ancestor;
use tonic::transport::Channel;
use tonic::{Code, Status};

/// The head's node id.
const HEAD: u32 = 0;

/// A joined daemon's way to the head.
#[derive(Debug, Clone)]
pub(crate) struct WayUp {
    /// The address that the user gave.
    join: String,
    own: Own,
    deadline: Duration,
    head: Arc<Mutex<Vec<String>>>,
}

impl WayUp {
    pub(crate) fn new(join: String, own: Own, deadline: Duration, above: &[Ancestor]) -> WayUp {
        let way_up = WayUp { join, own, deadline, head: Arc::default() };
        way_up.learn(above);
        way_up
    }

    /// Learns where the head is from the daemons above this one.
    pub(crate) fn learn(&self, above: &[Ancestor]) {
        if let Some(head) = above.iter().find(|above| above.node == HEAD) {
            self.head.lock().unwrap_or_else(PoisonError::into_inner).clone_from(&head.addresses);
        }
    }

    /// Returns where the head may be, each place with the node that must answer there: the head's own addresses, then the one that the
    /// user gave.
    fn places(&self) -> Vec<(Vec<String>, Option<u32>)> {
        let head = self.head.lock().unwrap_or_else(PoisonError::into_inner).clone();
        let join = if head.contains(&self.join) { Vec::new() } else { vec![self.join.clone()] };
        [(head, Some(HEAD)), (join, None)].into_iter().filter(|(addresses, _)| !addresses.is_empty()).collect()
    }

    /// Returns the likeliest address of the head.
    pub(crate) fn address(&self) -> String {
        let head = self.head.lock().unwrap_or_else(PoisonError::into_inner);
        head.first().unwrap_or(&self.join).clone()
    }

    pub(crate) fn deadline(&self) -> Duration {
        self.deadline
    }

    /// Connects to the head, or to a daemon that forwards to it.
    pub(crate) async fn dial(&self) -> Result<Channel, Status> {
        let mut failed = Vec::new();
        for (addresses, node) in self.places() {
            let target = Target::AnyOf(addresses, self.own.dialer(node));
            match dial(&target, self.deadline).await {
                Ok(channel) => return Ok(channel),
                Err(error) => failed.push(format!("at {target}: {error}")),
            }
        }
        let text = format!("the head is unreachable: {}", failed.join("; "));
        Err(refusal(Code::Unavailable, exit::UNREACHABLE, text))
    }
}
