//! The gRPC service for join tokens and certificates. The head answers; any other daemon forwards.
//!
//! Which peer may call which method is decided before, by the transport. Here a caller's certificate only says for which node or user
//! the next one is.

use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;

use nix::unistd::geteuid;
use rsd_core::rsd::{Answer, Call, Caller, TokenCall};
use rsd_proto::services::access_client::AccessClient;
use rsd_proto::services::access_server::Access;
use rsd_proto::transport::renewal::not_the_head;
use rsd_proto::transport::token::{Fingerprint, Token};
use rsd_proto::transport::{Peer, Refusals, Stamped, Who, access_client, exit, exit_code, refusal};
use rsd_proto::v1::{
    EnrollRequest, Enrolled, ListTokensReply, ListTokensRequest, NewTokenReply, NewTokenRequest, RenewRequest,
    RevokeTokenRequest, TokenInfo,
};
use tokio::sync::{Mutex, Semaphore};
use tokio::time::timeout;
use tonic::{Code, Request, Response, Status};

use super::callers::{Callers, ROOT};
use super::forward::Turns;
use super::{Reply, status_of, unexpected};
use crate::clock::unix_ms;
use crate::door::Door;
use crate::random::random;
use crate::secure::authority::{Authority, Issued};
use crate::way_up::WayUp;

/// A token's life and uses, if the user sets none: enough to start the daemons of a small cluster by hand, one after the other.
const TTL: Duration = Duration::from_secs(600);
const USES: u32 = 32;

/// The head's service.
#[derive(Debug, Clone)]
pub(crate) struct HeadAccess {
    pub(crate) door: Door,
    /// None: the head does not listen on TCP.
    pub(crate) authority: Option<Arc<Authority>>,
    /// Where other daemons reach the head.
    pub(crate) listen: String,
    pub(crate) refusals: Refusals,
    pub(crate) callers: Callers,
}

impl HeadAccess {
    fn authority(&self) -> Result<&Authority, Status> {
        self.authority.as_deref().ok_or_else(|| {
            let text = "this DVM does not listen on TCP, so no daemon can join: restart its head with --listen";
            refusal(Code::FailedPrecondition, exit::USAGE, text)
        })
    }

    async fn tokens(&self, caller: Caller, call: TokenCall) -> Result<Vec<TokenInfo>, Status> {
        match self.door.call(caller, Call::Token(call)).await {
            Answer::Tokens(tokens) => Ok(tokens),
            Answer::Refused(refused) => Err(status_of(refused)),
            other => Err(unexpected(&other)),
        }
    }

    /// Uses a token, and signs a certificate for its caller.
    async fn enroll(&self, request: Request<EnrollRequest>, new_node: bool) -> Reply<Enrolled> {
        let authority = self.authority()?;
        let peer = peer(&request);
        let EnrollRequest { token, secret, public_key, from, daemon_uid } = request.into_inner();
        if new_node && self.callers.serves_all && daemon_uid != Some(ROOT) {
            let text = "the DVM serves all users of its machines, so only root runs its daemons";
            return Err(refusal(Code::PermissionDenied, exit::NOT_PERMITTED, text));
        }
        // A daemon of this DVM reports the address of the caller whose request it forwards.
        let from = match peer.from {
            Some(direct) if !matches!(peer.who, Who::Node(_)) => direct.to_string(),
            _ => from,
        };
        // Before a use of the token is spent.
        Authority::check_key(&public_key)
            .map_err(|error| refusal(Code::InvalidArgument, exit::USAGE, error.to_string()))?;
        let (hash, key) = (Fingerprint::of(&secret).0, Fingerprint::of(&public_key).0);
        let call = TokenCall::Redeem { id: token, hash, key, from: from.clone(), new_node };
        let (uid, node) = match self.door.call(Callers::daemon(), Call::Token(call)).await {
            Answer::Redeemed { uid, node } => (uid, node),
            Answer::Refused(refused) => {
                self.refusals.report(from.parse::<IpAddr>().ok(), &refused.text);
                return Err(status_of(refused));
            }
            other => return Err(unexpected(&other)),
        };
        let issued = match node {
            Some(node) => authority.for_node(node, &public_key, unix_ms()),
            None => authority.for_user(uid, &public_key, unix_ms()),
        };
        self.enrolled(authority, node, issued)
    }

    fn enrolled(&self, authority: &Authority, node: Option<u32>, issued: anyhow::Result<Issued>) -> Reply<Enrolled> {
        let refused =
            |error| refusal(Code::InvalidArgument, exit::USAGE, format!("cannot sign the certificate: {error:#}"));
        let Issued { certificate, from_ms, until_ms } = issued.map_err(refused)?;
        Ok(Response::new(Enrolled {
            certificate: certificate.into(),
            authority: authority.certificate().to_vec().into(),
            dvm: authority.dvm().to_owned(),
            node,
            from_ms,
            until_ms,
            head_uid: Some(geteuid().as_raw()),
            serves_all: self.callers.serves_all,
        }))
    }
}

fn peer<T>(request: &Request<T>) -> Peer {
    let own = Peer { who: Who::Local { uid: geteuid().as_raw(), pid: None }, from: None, at: None, is_over: false };
    request.extensions().get::<Peer>().copied().unwrap_or(own)
}

#[tonic::async_trait]
impl Access for HeadAccess {
    async fn join(&self, request: Request<EnrollRequest>) -> Reply<Enrolled> {
        self.enroll(request, true).await
    }

    async fn login(&self, request: Request<EnrollRequest>) -> Reply<Enrolled> {
        self.enroll(request, false).await
    }

    async fn renew(&self, request: Request<RenewRequest>) -> Reply<Enrolled> {
        let authority = self.authority()?;
        let who = peer(&request).who;
        let public_key = request.into_inner().public_key;
        match who {
            Who::Node(node) => self.enrolled(authority, Some(node), authority.for_node(node, &public_key, unix_ms())),
            Who::User(uid) => self.enrolled(authority, None, authority.for_user(uid, &public_key, unix_ms())),
            Who::Local { .. } | Who::Guest(_) => {
                Err(refusal(Code::FailedPrecondition, exit::USAGE, "only the owner of a certificate can renew it"))
            }
        }
    }

    async fn new_token(&self, request: Request<NewTokenRequest>) -> Reply<NewTokenReply> {
        let authority = self.authority()?.fingerprint();
        let caller = self.callers.of(&request)?;
        let NewTokenRequest { ttl_ms, uses, login_uid: login } = request.into_inner();
        let ttl = if ttl_ms == 0 { TTL } else { Duration::from_millis(ttl_ms) };
        let uses = if uses == 0 { USES } else { uses };
        let failed = |error| Status::internal(format!("cannot read random bytes: {error}"));
        let (id, secret) = (u64::from_ne_bytes(random().map_err(failed)?), random::<16>().map_err(failed)?);
        let call = TokenCall::New { id, hash: Fingerprint::of(&secret).0, ttl, uses, login };
        let tokens = self.tokens(caller, call).await?;
        let token = Token { authority, id, secret }.to_text();
        Ok(Response::new(NewTokenReply { token, info: tokens.first().copied(), listen: self.listen.clone() }))
    }

    async fn list_tokens(&self, request: Request<ListTokensRequest>) -> Reply<ListTokensReply> {
        let caller = self.callers.of(&request)?;
        Ok(Response::new(ListTokensReply { tokens: self.tokens(caller, TokenCall::List).await? }))
    }

    async fn revoke_token(&self, request: Request<RevokeTokenRequest>) -> Reply<TokenInfo> {
        let caller = self.callers.of(&request)?;
        let tokens = self.tokens(caller, TokenCall::Revoke { id: request.into_inner().id }).await?;
        Ok(Response::new(tokens.first().copied().unwrap_or_default()))
    }
}

/// The service of a joined daemon. Programs without a certificate may call `join` and `login`, so these share one connection to the
/// head, which is kept, and only a few are forwarded at the same time.
#[derive(Debug, Clone)]
pub(crate) struct ForwardAccess {
    way_up: WayUp,
    kept: Arc<Mutex<Option<AccessClient<Stamped>>>>,
    turns: Arc<Semaphore>,
    callers: Callers,
    of_users: Turns,
}

/// The most calls of programs without a certificate that are forwarded at the same time.
const FORWARDED_MAX: usize = 16;

impl ForwardAccess {
    pub(crate) fn new(way_up: WayUp, callers: Callers, of_users: Turns) -> ForwardAccess {
        let turns = Arc::new(Semaphore::new(FORWARDED_MAX));
        ForwardAccess { way_up, kept: Arc::default(), turns, callers, of_users }
    }

    /// Returns a client on the kept connection, or on a new one, and whether it is new.
    async fn client(&self) -> Result<(AccessClient<Stamped>, bool), Status> {
        // While one call dials, the others wait for its connection.
        let mut kept = self.kept.lock().await;
        if let Some(client) = &*kept {
            return Ok((client.clone(), false));
        }
        let client = access_client(self.way_up.dial().await?);
        *kept = Some(client.clone());
        Ok((client, true))
    }
}

/// Forwards a user's call about its tokens.
macro_rules! forward_for_user {
    ($self:ident, $method:ident, $request:expr) => {{
        let request = $request;
        let _turn = $self.of_users.take($self.callers, &request)?;
        let mut head = access_client($self.way_up.shared().await?);
        $self.way_up.check(head.$method($self.callers.forwarded(request)?).await).await
    }};
}

/// Calls the head with a copy of the request: over the kept connection, and if that is lost or silent, once more over a new one.
macro_rules! forward {
    ($self:ident, $method:ident, $request:expr) => {{
        let request = $request;
        // The semaphore is never closed.
        let _turn = $self.turns.acquire().await.map_err(|_| Status::internal("closed"))?;
        loop {
            let (mut client, is_new) = $self.client().await?;
            let answer = timeout($self.way_up.deadline(), client.$method(request.clone())).await;
            match answer.unwrap_or_else(|_| Err(Status::unavailable("the head does not answer"))) {
                // A status without an exit code is not the head's.
                Err(status) if exit_code(&status).is_none() => {
                    *$self.kept.lock().await = None;
                    if is_new {
                        break Err(status);
                    }
                }
                answer => break answer,
            }
        }
    }};
}

/// Adds the caller's address, which the head cannot see.
fn forwarded(request: Request<EnrollRequest>) -> EnrollRequest {
    let peer = peer(&request);
    let request = request.into_inner();
    match peer.from {
        Some(from) if !matches!(peer.who, Who::Node(_)) => EnrollRequest { from: from.to_string(), ..request },
        Some(_) | None => request,
    }
}

#[tonic::async_trait]
impl Access for ForwardAccess {
    async fn join(&self, request: Request<EnrollRequest>) -> Reply<Enrolled> {
        forward!(self, join, forwarded(request))
    }

    async fn login(&self, request: Request<EnrollRequest>) -> Reply<Enrolled> {
        forward!(self, login, forwarded(request))
    }

    async fn renew(&self, _: Request<RenewRequest>) -> Reply<Enrolled> {
        Err(not_the_head(&self.way_up.address()))
    }

    async fn new_token(&self, request: Request<NewTokenRequest>) -> Reply<NewTokenReply> {
        forward_for_user!(self, new_token, request)
    }

    async fn list_tokens(&self, request: Request<ListTokensRequest>) -> Reply<ListTokensReply> {
        forward_for_user!(self, list_tokens, request)
    }

    async fn revoke_token(&self, request: Request<RevokeTokenRequest>) -> Reply<TokenInfo> {
        forward_for_user!(self, revoke_token, request)
    }
}
