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

    /// Returns where the head may be, the likeliest address first, each with the node that must answer there.
    fn addresses(&self) -> Vec<(String, Option<u32>)> {
        let mut addresses = vec![(self.join.clone(), None)];
        let head = self.head.lock().unwrap_or_else(PoisonError::into_inner);
        addresses.retain(|(join, _)| !head.contains(join));
        head.iter().map(|address| (address.clone(), Some(HEAD))).chain(addresses).collect()
    }

    /// Returns the likeliest address of the head.
    pub(crate) fn address(&self) -> String {
        self.addresses().swap_remove(0).0
    }

    pub(crate) fn deadline(&self) -> Duration {
        self.deadline
    }

    /// Connects to the head, or to a daemon that forwards to it.
    pub(crate) async fn dial(&self) -> Result<Channel, Status> {
        let mut failed = Vec::new();
        for (address, node) in self.addresses() {
            match dial(&Target::Tcp(address.clone(), self.own.dialer(node)), self.deadline).await {
                Ok(channel) => return Ok(channel),
                Err(error) => failed.push(format!("at {address}: {error}")),
            }
        }
        let text = format!("the head is unreachable: {}", failed.join("; "));
        Err(refusal(Code::Unavailable, exit::UNREACHABLE, text))
    }
}
