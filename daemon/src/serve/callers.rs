//! Who makes a request: what the transport has recognised, as the user for whom the state machine acts.
//!
//! A daemon of a DVM that serves one user counts every caller as that user. In a DVM that serves all
//! users, each caller is its own user, and root is the administrator. There a daemon forwards its callers' requests with their uid. It
//! is believed because only root runs daemons of such a DVM.

use std::collections::HashMap;
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use nix::unistd::{Uid, User, geteuid};
use rsd_core::rsd::Caller;
use rsd_proto::transport::{CALLER_UID, Peer, Who, exit, refusal};
use tonic::metadata::AsciiMetadataValue;
use tonic::{Code, Request, Status};

/// The superuser.
pub(crate) const ROOT: u32 = 0;

/// How long the name of a user is remembered.
const REMEMBERED: Duration = Duration::from_secs(30);

/// How a daemon tells its callers apart.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Callers {
    /// Whether the DVM serves all users.
    pub(crate) serves_all: bool,
}

/// Whether another daemon forwards this request of its client.
pub(crate) fn is_forwarded<T>(request: &Request<T>) -> bool {
    matches!(request.extensions().get::<Peer>().map(|peer| peer.who), Some(Who::Node(_)))
}

impl Callers {
    /// Returns the daemon itself.
    pub(crate) fn daemon() -> Caller {
        Caller { uid: geteuid().as_raw(), is_admin: true }
    }

    /// Returns the caller of a request.
    ///
    /// # Errors
    /// When a node forwards a request without its caller's uid.
    pub(crate) fn of<T>(self, request: &Request<T>) -> Result<Caller, Status> {
        if !self.serves_all {
            return Ok(Callers::daemon());
        }
        let uid = match request.extensions().get::<Peer>().map(|peer| peer.who) {
            Some(Who::Local { uid, .. } | Who::User(uid)) => Some(uid),
            Some(Who::Node(_)) => {
                request.metadata().get(CALLER_UID).and_then(|uid| uid.to_str().ok()).and_then(|uid| uid.parse().ok())
            }
            Some(Who::Guest(_)) | None => None,
        };
        let unknown = || refusal(Code::PermissionDenied, exit::NOT_PERMITTED, "the request does not say whose it is");
        uid.map(|uid| Caller { uid, is_admin: uid == ROOT }).ok_or_else(unknown)
    }

    /// Returns the name of a caller's user on this machine; empty in a DVM that serves one user.
    ///
    /// # Errors
    /// When this machine does not know the user.
    pub(crate) async fn name_of(self, caller: Caller) -> Result<String, Status> {
        if !self.serves_all {
            return Ok(String::new());
        }
        // The database may be on the network.
        let found = tokio::task::spawn_blocking(move || User::from_uid(Uid::from_raw(caller.uid))).await;
        match found {
            Ok(Ok(Some(user))) => Ok(user.name),
            Ok(Ok(None)) => {
                let text = format!(
                    "uid {} is unknown on the head's machine: its users must be the same on all machines",
                    caller.uid
                );
                Err(refusal(Code::PermissionDenied, exit::NOT_PERMITTED, text))
            }
            Ok(Err(error)) => Err(Status::internal(format!("cannot look up uid {}: {error}", caller.uid))),
            Err(error) => Err(Status::internal(format!("cannot look up uid {}: {error}", caller.uid))),
        }
    }

    /// Returns a request to forward to the head, with its caller's uid.
    ///
    /// # Errors
    /// As [`Callers::of`].
    pub(crate) fn forwarded<T>(self, request: Request<T>) -> Result<Request<T>, Status> {
        let caller = self.of(&request)?;
        Ok(Callers::stamped(caller, request.into_inner()))
    }

    /// Returns a request to the head for this caller.
    pub(crate) fn stamped<T>(caller: Caller, message: T) -> Request<T> {
        let mut request = Request::new(message);
        request.metadata_mut().insert(CALLER_UID, AsciiMetadataValue::from(caller.uid));
        request
    }
}

/// The names of those who have submitted jobs lately. A look-up takes a thread 0.1 ms, in which a job's launch waits.
#[derive(Debug, Default)]
pub(crate) struct Names(Mutex<HashMap<u32, (String, Instant)>>);

impl Names {
    /// As [`Callers::name_of`]; a name may be as old as [`REMEMBERED`].
    ///
    /// # Errors
    /// As [`Callers::name_of`]. They are not remembered.
    pub(crate) async fn of(&self, callers: Callers, caller: Caller) -> Result<String, Status> {
        if let Some(name) = self.find(caller.uid, Instant::now()) {
            return Ok(name);
        }
        let name = callers.name_of(caller).await?;
        self.put(caller.uid, &name, Instant::now());
        Ok(name)
    }

    fn find(&self, uid: u32, now: Instant) -> Option<String> {
        let known = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        known.get(&uid).filter(|(_, since)| now < *since + REMEMBERED).map(|(name, _)| name.clone())
    }

    fn put(&self, uid: u32, name: &str, now: Instant) {
        let mut known = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        known.retain(|_, (_, since)| now < *since + REMEMBERED);
        known.insert(uid, (name.to_owned(), now));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_is_remembered_for_its_time_and_no_longer() {
        let (names, began) = (Names::default(), Instant::now());
        names.put(1000, "alice", began);
        assert_eq!(names.find(1000, began + REMEMBERED / 2).as_deref(), Some("alice"));
        assert_eq!(names.find(1001, began), None);
        assert_eq!(names.find(1000, began + REMEMBERED), None);
        names.put(1001, "bob", began + REMEMBERED);
        assert_eq!(names.0.lock().unwrap().len(), 1, "old names are dropped");
    }

    fn from(who: Who, forwarded_for: Option<u32>) -> Request<()> {
        let mut request = Request::new(());
        request.extensions_mut().insert(Peer { who, from: None, at: None, is_over: false });
        if let Some(uid) = forwarded_for {
            request.metadata_mut().insert(CALLER_UID, AsciiMetadataValue::from(uid));
        }
        request
    }

    #[test]
    fn only_a_node_may_say_for_whom_it_calls() {
        let all = Callers { serves_all: true };
        let uid =
            |who, forwarded_for| all.of(&from(who, forwarded_for)).map(|caller| (caller.uid, caller.is_admin)).ok();
        let local = |uid| Who::Local { uid, pid: None };
        assert_eq!(uid(local(1000), None), Some((1000, false)));
        assert_eq!(uid(local(1000), Some(0)), Some((1000, false)), "what a user adds changes nothing");
        assert_eq!(uid(Who::User(1000), Some(0)), Some((1000, false)));
        assert_eq!(uid(local(0), None), Some((0, true)));
        assert_eq!(uid(Who::Node(7), Some(1000)), Some((1000, false)));
        assert_eq!(uid(Who::Node(7), None), None);
        let forwarded = all.forwarded(from(local(1000), Some(0))).unwrap();
        assert_eq!(forwarded.metadata().get(CALLER_UID).unwrap(), "1000");
    }

    #[test]
    fn a_dvm_of_one_user_has_one_caller() {
        let own = Callers { serves_all: false };
        for who in [Who::Local { uid: 0, pid: None }, Who::User(1000), Who::Node(7)] {
            assert_eq!(own.of(&from(who, Some(1000))).unwrap(), Callers::daemon());
        }
    }
}
