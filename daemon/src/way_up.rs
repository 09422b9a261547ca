//! A joined daemon's way to the head, for clients' calls that it forwards and for its certificate.
//!
//! The user may have named another daemon of the DVM than the head. Once this daemon has a parent, it knows where the head is.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use rsd_core::uplink::Known;
use rsd_proto::transport::{Kept, Own, Target, dial_kept, exit, exit_code, refusal};
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
    /// After how long a connection on which nothing answers is given up.
    silence: Duration,
    heads: Arc<Mutex<Heads>>,
    /// The connection that short calls share: a connection for each would cost both sides a TLS handshake, which any user could cause
    /// at any rate.
    kept: Arc<tokio::sync::Mutex<Option<Kept>>>,
}

/// Where the head is, and where its standbys will be the head.
#[derive(Debug, Default)]
struct Heads {
    head: Vec<String>,
    standbys: Vec<Ancestor>,
}

impl WayUp {
    pub(crate) fn new(join: String, own: Own, deadline: Duration, silence: Duration, known: &Known) -> WayUp {
        let way_up = WayUp { join, own, deadline, silence, heads: Arc::default(), kept: Arc::default() };
        way_up.learn(&known.above, &known.standbys);
        way_up
    }

    /// Learns where the head is from the daemons above this one, and where its standbys will be.
    pub(crate) fn learn(&self, above: &[Ancestor], standbys: &[Ancestor]) {
        let mut heads = self.heads();
        if let Some(head) = above.iter().find(|above| above.node == HEAD) {
            heads.head.clone_from(&head.addresses);
        }
        heads.standbys = standbys.to_vec();
    }

    fn heads(&self) -> MutexGuard<'_, Heads> {
        self.heads.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns where the head may be, each place with the node that must answer there: the head's own addresses, those of standbys, then the
    /// one that the user gave.
    fn places(&self) -> Vec<(Vec<String>, Option<u32>)> {
        let heads = self.heads();
        let join = if heads.head.contains(&self.join) { Vec::new() } else { vec![self.join.clone()] };
        let standbys = heads.standbys.iter().map(|standby| &standby.addresses);
        let known = std::iter::once(&heads.head).chain(standbys).map(|head| (head.clone(), Some(HEAD)));
        known.chain([(join, None)]).filter(|(addresses, _)| !addresses.is_empty()).collect()
    }

    /// Returns the likeliest address of the head.
    pub(crate) fn address(&self) -> String {
        self.heads().head.first().unwrap_or(&self.join).clone()
    }

    /// Returns the standbys of the head, as far as this daemon was told.
    pub(crate) fn standbys(&self) -> Vec<Ancestor> {
        self.heads().standbys.clone()
    }

    pub(crate) fn own(&self) -> &Own {
        &self.own
    }

    pub(crate) fn deadline(&self) -> Duration {
        self.deadline
    }

    /// Connects to the head, or to a daemon that forwards to it.
    pub(crate) async fn dial(&self) -> Result<Channel, Status> {
        Ok(self.dial_kept().await?.channel)
    }

    /// Returns the kept connection, or a new one if that is closed.
    pub(crate) async fn shared(&self) -> Result<Channel, Status> {
        // While one call dials, the others wait for its connection.
        let mut kept = self.kept.lock().await;
        if let Some(kept) = kept.as_ref().filter(|kept| kept.is_open()) {
            return Ok(kept.channel.clone());
        }
        let fresh = self.dial_kept().await?;
        let channel = fresh.channel.clone();
        *kept = Some(fresh);
        Ok(channel)
    }

    /// Gives the kept connection up if a call over it was not answered by the head.
    pub(crate) async fn check<T>(&self, answer: Result<T, Status>) -> Result<T, Status> {
        // A status without an exit code is not the head's. The other codes are about the call, and not about the connection.
        let is_lost =
            |status: &Status| exit_code(status).is_none() && matches!(status.code(), Code::Unavailable | Code::Unknown);
        if answer.as_ref().is_err_and(is_lost) {
            *self.kept.lock().await = None;
        }
        answer
    }

    async fn dial_kept(&self) -> Result<Kept, Status> {
        let mut failed = Vec::new();
        for (addresses, node) in self.places() {
            let target = Target::AnyOf(addresses, self.own.dialer(node));
            match dial_kept(&target, self.deadline, self.silence).await {
                Ok(kept) => return Ok(kept),
                Err(error) => failed.push(format!("at {target}: {error}")),
            }
        }
        let text = format!("the head is unreachable: {}", failed.join("; "));
        Err(refusal(Code::Unavailable, exit::UNREACHABLE, text))
    }
}
