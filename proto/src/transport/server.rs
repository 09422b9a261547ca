//! The server of a daemon: its services behind one HTTP/2 server, selected by the service name in the request's path.
//!
//! tonic's own router would do the same with a web framework below it, which costs every build more time than these lines.

use std::convert::Infallible;
use std::io;
use std::pin::Pin;
use std::task::{Context, Poll};

use tokio::sync::mpsc;
use tokio_stream::wrappers::ReceiverStream;
use tonic::Status;
use tonic::body::Body;
use tonic::codegen::http::{Request, Response};
use tonic::server::NamedService;
use tonic::service::InterceptorLayer;
use tower::util::BoxCloneSyncService;
use tower::{Service, ServiceExt};

use super::{CheckStamp, Conn, KEEP_ALIVE};

type Boxed = BoxCloneSyncService<Request<Body>, Response<Body>, Infallible>;

/// The services that a server offers, by their names (`rsd.v1.Dvm`).
#[derive(Debug, Clone, Default)]
pub struct Services(Vec<(&'static str, Boxed)>);

impl Services {
    /// Adds a generated server, for example a `DvmServer`.
    pub fn with<S>(mut self, service: S) -> Services
    where
        S: Service<Request<Body>, Response = Response<Body>, Error = Infallible>,
        S: NamedService + Clone + Send + Sync + 'static,
        S::Future: Send + 'static,
    {
        self.0.push((S::NAME, BoxCloneSyncService::new(service)));
        self
    }

    /// Serves `connections` (see [`accept`](super::accept)) until `stopped` completes; then finishes the requests that run.
    ///
    /// # Errors
    /// When the server cannot be set up. Failures of single connections end those connections only.
    pub async fn serve(
        self,
        connections: mpsc::Receiver<io::Result<Conn>>,
        stopped: impl Future<Output = ()>,
    ) -> Result<(), tonic::transport::Error> {
        tonic::transport::Server::builder()
            .layer(InterceptorLayer::new(CheckStamp))
            .initial_stream_window_size(1 << 20)
            .initial_connection_window_size(4 << 20)
            .http2_keepalive_interval(Some(KEEP_ALIVE))
            .http2_keepalive_timeout(Some(KEEP_ALIVE))
            .serve_with_incoming_shutdown(self, ReceiverStream::new(connections), stopped)
            .await
    }
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
        let name = path.strip_prefix('/').and_then(|path| path.split('/').next()).unwrap_or_default();
        match self.0.iter().find(|(known, _)| *known == name) {
            Some((_, service)) => Box::pin(service.clone().oneshot(request)),
            None => {
                let status = Status::unimplemented(format!("unknown service `{name}`: use programs of one release"));
                Box::pin(std::future::ready(Ok(status.into_http())))
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

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
        let request = Request::builder().uri(path).body(Body::empty()).unwrap();
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
