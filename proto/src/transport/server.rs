//! The server of a daemon: its services behind one HTTP/2 server, selected by the service name in the request's path.
//!
//! Every request passes [`may_call`], the one table of what a peer may call.
//!
//! tonic's own router would do the same with a web framework below it, which costs every build more time than these lines.

use std::convert::Infallible;
use std::io;
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;

use tokio::sync::{mpsc, watch};
use tokio_stream::wrappers::ReceiverStream;
use tonic::body::Body;
use tonic::codegen::http::{HeaderMap, Request, Response};
use tonic::metadata::{AsciiMetadataValue, MetadataMap};
use tonic::server::NamedService;
use tonic::transport::server::Connected;
use tonic::{Code, Status};
use tower::util::BoxCloneSyncService;
use tower::{Service, ServiceExt};

use super::tls::Unrecognised;
use super::{Conn, KEEP_ALIVE, Peer, Refusals, Who, check_stamp, exit, own_uid, refusal};

type Boxed = BoxCloneSyncService<Request<Body>, Response<Body>, Infallible>;

/// The services that a server offers, by their names (`rsd.v1.Dvm`).
#[derive(Debug, Clone, Default)]
pub struct Services {
    services: Vec<(&'static str, Boxed)>,
    refusals: Refusals,
}

impl Services {
    /// Adds a generated server, for example a `DvmServer`.
    pub fn with<S>(mut self, service: S) -> Services
    where
        S: Service<Request<Body>, Response = Response<Body>, Error = Infallible>,
        S: NamedService + Clone + Send + Sync + 'static,
        S::Future: Send + 'static,
    {
        self.services.push((S::NAME, BoxCloneSyncService::new(service)));
        self
    }

    /// Reports refused requests of TCP peers to `refusals`.
    pub fn reporting_to(self, refusals: Refusals) -> Services {
        Services { refusals, ..self }
    }

    /// Serves `connections` (see [`accept`](super::accept())) until `stopped` completes; then finishes the requests that run. A
    /// connection of a node fails when that has not answered for `silence`.
    ///
    /// # Errors
    /// When the server cannot be set up. Failures of single connections end those connections only.
    pub async fn serve(
        self,
        connections: mpsc::Receiver<io::Result<Conn>>,
        silence: Duration,
        stopped: impl Future<Output = ()> + Send + 'static,
    ) -> Result<(), tonic::transport::Error> {
        let (nodes, others) = sorted(connections);
        // Dropped when this daemon stops.
        let (stopping, stop) = watch::channel(());
        tokio::spawn(async move {
            stopped.await;
            drop(stopping);
        });
        let server = |connections, keep_alive: Duration, calls: Option<u32>| {
            let mut stop = stop.clone();
            tonic::transport::Server::builder()
                .max_concurrent_streams(calls)
                .initial_stream_window_size(1 << 20)
                .initial_connection_window_size(4 << 20)
                .http2_keepalive_interval(Some(keep_alive))
                .http2_keepalive_timeout(Some(keep_alive))
                .serve_with_incoming_shutdown(self.clone(), ReceiverStream::new(connections), async move {
                    // The only change is the end.
                    while stop.changed().await.is_ok() {}
                })
        };
        let (nodes, others) = (server(nodes, silence / 2, Some(FORWARDED_MAX)), server(others, KEEP_ALIVE, None));
        tokio::try_join!(nodes, others).map(|_| ())
    }
}

/// The most calls of a node at the same time: it forwards those of all its users over one connection, and some wait for long.
const FORWARDED_MAX: u32 = 1 << 16;

type Connections = mpsc::Receiver<io::Result<Conn>>;

/// Separates the connections of nodes from all others.
fn sorted(mut connections: Connections) -> (Connections, Connections) {
    let ((node, nodes), (other, others)) = (mpsc::channel(1), mpsc::channel(1));
    tokio::spawn(async move {
        loop {
            let conn = tokio::select! {
                conn = connections.recv() => conn,
                // The servers have stopped: so does the listener.
                () = other.closed() => return,
            };
            let Some(conn) = conn else { return };
            let is_node = conn.as_ref().is_ok_and(|conn| matches!(conn.connect_info().who, Who::Node(_)));
            let _ = if is_node { node.send(conn).await } else { other.send(conn).await };
        }
    });
    (nodes, others)
}

impl Service<Request<Body>> for Services {
    type Response = Response<Body>;
    type Error = Infallible;
    type Future = Pin<Box<dyn Future<Output = Result<Response<Body>, Infallible>> + Send>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
        // Each service's readiness is awaited in its call, on its own clone.
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: Request<Body>) -> Self::Future {
        let path = request.uri().path();
        let (name, method) = path.strip_prefix('/').and_then(|path| path.split_once('/')).unwrap_or_default();
        // Every accepted connection has a peer.
        let unknown = Peer { who: Who::Guest(Unrecognised::NoCertificate), from: None, at: None, is_over: false };
        let peer = request.extensions().get::<Peer>().copied().unwrap_or(unknown);
        let not_permitted = |why: String| refusal(Code::PermissionDenied, exit::NOT_PERMITTED, why);
        let checked = check_stamp(request.headers()).and_then(|()| check_share(peer));
        if let Err(refused) = checked.and_then(|()| may_call(peer.who, name, method).map_err(not_permitted)) {
            self.refusals.report(peer.from, refused.message());
            return Box::pin(std::future::ready(Ok(refused.into_http())));
        }
        let hops = hops(request.headers());
        if hops > HOPS_MAX {
            let text = format!(
                "the request was forwarded {hops} times: daemons forward it to each other; restart one with --join HEAD"
            );
            let refused = refusal(Code::Unavailable, exit::UNREACHABLE, text);
            self.refusals.report(peer.from, refused.message());
            return Box::pin(std::future::ready(Ok(refused.into_http())));
        }
        match self.services.iter().find(|(known, _)| *known == name) {
            Some((_, service)) => Box::pin(HOPS.scope(hops, service.clone().oneshot(request))),
            None => {
                let status = Status::unimplemented(format!("unknown service `{name}`: use programs of one release"));
                Box::pin(std::future::ready(Ok(status.into_http())))
            }
        }
    }
}

/// Refuses a peer whose user has more connections than allowed.
fn check_share(peer: Peer) -> Result<(), Status> {
    let text = "you have as many connections to this daemon as it allows a user (setting users.connections): end some commands";
    if peer.is_over { Err(refusal(Code::ResourceExhausted, exit::NOT_PERMITTED, text)) } else { Ok(()) }
}

/// How often a request is forwarded from daemon to daemon on its way to the head.
const HOPS_MAX: u32 = 16;
const HOPS_KEY: &str = "rsd-hops";

tokio::task_local! {
    /// How often the request that this task handles was forwarded.
    static HOPS: u32;
}

fn hops(headers: &HeaderMap) -> u32 {
    headers.get(HOPS_KEY).and_then(|hops| hops.to_str().ok()?.parse().ok()).unwrap_or(0)
}

/// Makes `work` a part of the request that this task handles, also in another task: requests that it makes count as that one, forwarded.
pub fn for_request<T>(work: impl Future<Output = T>) -> impl Future<Output = T> {
    let hops = HOPS.try_with(|hops| *hops).ok();
    async move {
        match hops {
            Some(hops) => HOPS.scope(hops, work).await,
            None => work.await,
        }
    }
}

/// Counts a request that is made while another one is handled as that one, forwarded.
pub(super) fn count_hop(metadata: &mut MetadataMap) {
    if let Ok(hops) = HOPS.try_with(|hops| hops.saturating_add(1)) {
        metadata.insert(HOPS_KEY, AsciiMetadataValue::from(hops));
    }
}

/// Decides whether a peer may call a method of a service. The error is a sentence about the peer.
fn may_call(who: Who, service: &str, method: &str) -> Result<(), String> {
    match (who, service, method) {
        (Who::Local { uid, .. }, _, _) if uid == 0 || uid == own_uid() => Ok(()),
        // Another user, whom a daemon that serves all users has let in: the state machine knows what is whose.
        (Who::Local { .. }, "rsd.v1.Dvm", method) if !matches!(method, "Shutdown" | "Upgrade") => Ok(()),
        // It names a program of this machine.
        (Who::Node(_) | Who::User(_), "rsd.v1.Dvm", "Upgrade") => {
            Err("a daemon's program is replaced on its own machine: rsd upgrade".to_owned())
        }
        (Who::Local { .. }, "rsd.v1.Link", "Attach")
        | (Who::Local { .. }, "rsd.v1.Pmi" | "rsd.v1.Observe", _)
        | (Who::Local { .. }, "rsd.v1.Access", "NewToken" | "ListTokens" | "RevokeToken")
        | (Who::Node(_), "rsd.v1.Link" | "rsd.v1.Dvm" | "rsd.v1.Observe" | "rsd.v1.Access", _)
        | (Who::Local { .. } | Who::User(_), "rsd.v1.Heads", "ShowHead")
        | (Who::Node(_), "rsd.v1.Heads", "ShowHead" | "Follow" | "GetEpoch" | "Promote")
        | (Who::User(_), "rsd.v1.Dvm" | "rsd.v1.Observe", _)
        | (Who::User(_), "rsd.v1.Access", "Renew")
        | (Who::Guest(_), "rsd.v1.Access", "Join" | "Login") => Ok(()),
        (Who::Guest(why), _, _) => Err(format!(
            "{why}: get a token on the head's machine (rsd token new), then: rsd start --join HOST:PORT --token TOKEN for a \
             daemon, or rsctl login HOST:PORT --token TOKEN for a user"
        )),
        (Who::Local { .. }, _, _) => Err("only root may do this on a daemon that serves all users".to_owned()),
        (Who::Node(node), _, _) => Err(format!("node {node} may not call {service}/{method}")),
        (Who::User(uid), _, _) => Err(format!("the certificate of user {uid} does not allow {service}/{method}")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(flavor = "current_thread")]
    async fn a_request_that_daemons_forward_to_each_other_is_refused() {
        let call = async |hops: u32| {
            let mut request = Request::builder().uri("/rsd.v1.Dvm/ListJobs").header(HOPS_KEY, hops);
            for (name, value) in [("rsd-protocol", "4"), ("rsd-version", "0")] {
                request = request.header(name, value);
            }
            let mut request = request.body(Body::empty()).unwrap();
            request.extensions_mut().insert(Peer {
                who: Who::Local { uid: 0, pid: None },
                from: None,
                at: None,
                is_over: false,
            });
            let response = Services::default().call(request).await.unwrap();
            Status::from_header_map(response.headers()).unwrap().message().to_owned()
        };
        assert!(call(HOPS_MAX).await.starts_with("unknown service"));
        assert!(call(HOPS_MAX + 1).await.starts_with("the request was forwarded 17 times"));
        let mut metadata = MetadataMap::new();
        count_hop(&mut metadata);
        assert!(metadata.is_empty(), "a client's own request");
        HOPS.scope(3, async { count_hop(&mut metadata) }).await;
        assert_eq!(hops(&metadata.into_headers()), 4);
    }

    #[tokio::test(flavor = "current_thread")]
    async fn a_request_that_another_task_forwards_is_counted_too() {
        let count = async {
            let mut metadata = MetadataMap::new();
            count_hop(&mut metadata);
            hops(&metadata.into_headers())
        };
        let spawned = HOPS.sync_scope(3, || tokio::spawn(for_request(count)));
        assert_eq!(spawned.await.unwrap(), 4);
        assert_eq!(for_request(async { 7 }).await, 7, "outside of any request");
    }

    #[test]
    fn only_a_certificate_opens_more_than_enrolling() {
        let guest = Who::Guest(Unrecognised::NoCertificate);
        let (node, user) = (Who::Node(7), Who::User(1000));
        let local = Who::Local { uid: 0, pid: None };
        let other = Who::Local { uid: own_uid().wrapping_add(1000), pid: None };
        let rows = [
            // A guest, a node, a user elsewhere, another user here, and the own user or root here.
            ("rsd.v1.Access", "Join", [true, true, false, false, true]),
            ("rsd.v1.Access", "Login", [true, true, false, false, true]),
            ("rsd.v1.Access", "Renew", [false, true, true, false, true]),
            ("rsd.v1.Access", "NewToken", [false, true, false, true, true]),
            ("rsd.v1.Access", "RevokeToken", [false, true, false, true, true]),
            ("rsd.v1.Dvm", "Submit", [false, true, true, true, true]),
            ("rsd.v1.Dvm", "Shutdown", [false, true, true, false, true]),
            ("rsd.v1.Observe", "Events", [false, true, true, true, true]),
            ("rsd.v1.Heads", "ShowHead", [false, true, true, true, true]),
            ("rsd.v1.Heads", "Follow", [false, true, false, false, true]),
            ("rsd.v1.Heads", "GetEpoch", [false, true, false, false, true]),
            ("rsd.v1.Heads", "AllowStandby", [false, false, false, false, true]),
            ("rsd.v1.Heads", "Promote", [false, true, false, false, true]),
            ("rsd.v1.Link", "Attach", [false, true, false, true, true]),
            ("rsd.v1.Pmi", "Put", [false, false, false, true, true]),
            ("rsd.v1.Other", "Join", [false, false, false, false, true]),
        ];
        for (service, method, allowed) in rows {
            let found = [guest, node, user, other, local].map(|who| may_call(who, service, method).is_ok());
            assert_eq!(found, allowed, "{service}/{method}");
        }
        assert!(
            may_call(guest, "rsd.v1.Dvm", "Submit").unwrap_err().starts_with("it has no certificate of this DVM: ")
        );
    }

    /// A service that answers with its own name in a header.
    #[derive(Clone)]
    struct Named<const DVM: bool>;

    impl NamedService for Named<true> {
        const NAME: &'static str = "rsd.v1.Dvm";
    }

    impl NamedService for Named<false> {
        const NAME: &'static str = "rsd.v1.Pmi";
    }

    impl<const DVM: bool> Service<Request<Body>> for Named<DVM> {
        type Response = Response<Body>;
        type Error = Infallible;
        type Future = std::future::Ready<Result<Response<Body>, Infallible>>;

        fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
            Poll::Ready(Ok(()))
        }

        fn call(&mut self, _: Request<Body>) -> Self::Future {
            let name = if DVM { "dvm" } else { "pmi" };
            std::future::ready(Ok(Response::builder().header("name", name).body(Body::empty()).unwrap()))
        }
    }

    fn ask(path: &str) -> Response<Body> {
        let mut services = Services::default().with(Named::<true>).with(Named::<false>);
        let mut request =
            Request::builder().uri(path).header("rsd-protocol", crate::PROTOCOL).body(Body::empty()).unwrap();
        let who = Who::Local { uid: 0, pid: None };
        request.extensions_mut().insert(Peer { who, from: None, at: None, is_over: false });
        let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
        runtime.block_on(services.call(request)).unwrap()
    }

    #[test]
    fn a_request_goes_to_the_service_that_its_path_names() {
        assert_eq!(ask("/rsd.v1.Dvm/Submit").headers()["name"], "dvm");
        assert_eq!(ask("/rsd.v1.Pmi/Get").headers()["name"], "pmi");
    }

    #[test]
    fn a_request_for_an_unknown_service_is_answered_as_unimplemented() {
        for path in ["/rsd.v1.Other/Get", "/", "/rsd.v1.Dv", "/rsd.v1.Dvm2/Submit"] {
            let response = ask(path);
            assert_eq!(response.headers()["grpc-status"], "12", "{path}");
        }
    }
}
