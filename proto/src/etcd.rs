//! A client of etcd, over the few messages of its public API (version 3) that the head's lease needs: keys, transactions, leases and users.
//!
//! The names and numbers are those of etcd's API reference, <https://etcd.io/docs/v3.5/dev-guide/api_reference_v3/>.

mod messages;

use std::io;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use hyper_util::rt::TokioIo;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName};
use rustls::{ClientConfig, RootCertStore};
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;
use tokio_stream::StreamExt;
use tonic::client::Grpc;
use tonic::codegen::http::uri::PathAndQuery;
use tonic::metadata::AsciiMetadataValue;
use tonic::transport::{Channel, Endpoint};
use tonic::{Code, Request, Status};
use tonic_prost::ProstCodec;

use messages as m;

/// Why etcd has not done something.
#[derive(Debug, thiserror::Error)]
pub enum EtcdError {
    /// A setting is wrong.
    #[error("{0}")]
    Setting(String),
    /// No server answers.
    #[error("{0}")]
    Unreachable(String),
    /// A server has refused it.
    #[error("{server} refuses: {why}")]
    Refused {
        /// Its address.
        server: String,
        /// Its words.
        why: String,
    },
}

/// A user of etcd.
#[derive(Clone)]
pub struct User {
    /// The name.
    pub name: String,
    /// The password.
    pub password: String,
}

impl std::fmt::Debug for User {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("User").field("name", &self.name).finish_non_exhaustive()
    }
}

/// How etcd is reached.
#[derive(Debug, Clone)]
pub struct Access {
    /// The first is the one that has answered last.
    servers: Vec<Server>,
    tls: Option<Arc<ClientConfig>>,
    user: Option<User>,
    deadline: Duration,
}

#[derive(Debug, Clone)]
struct Server {
    url: String,
    is_tls: bool,
    host: String,
    port: u16,
}

impl Server {
    fn parse(url: &str) -> Result<Server, EtcdError> {
        let wrong = |why: &str| EtcdError::Setting(format!("head.etcd: {url}: {why}: write \"https://HOST:2379\""));
        let (is_tls, rest) = match url.split_once("://") {
            Some(("https", rest)) => (true, rest),
            Some(("http", rest)) => (false, rest),
            Some(_) | None => return Err(wrong("neither https:// nor http://")),
        };
        let rest = rest.trim_end_matches('/');
        let (host, port) = match rest.rsplit_once(':') {
            Some((host, port)) if !port.contains(']') => {
                (host, port.parse().map_err(|_| wrong("the port is not a number"))?)
            }
            Some(_) | None => (rest, 2379),
        };
        let host = host.trim_start_matches('[').trim_end_matches(']');
        if host.is_empty() || host.contains(['/', '@', '?']) {
            return Err(wrong("the host is missing or not a name"));
        }
        let is_here = host == "localhost" || host.parse::<std::net::IpAddr>().is_ok_and(|ip| ip.is_loopback());
        if !is_tls && !is_here {
            return Err(wrong("without TLS, anyone on the network decides who is the head"));
        }
        Ok(Server { url: url.to_owned(), is_tls, host: host.to_owned(), port })
    }
}

impl Access {
    /// Returns how to reach these servers, whose answers may take up to `deadline`.
    ///
    /// # Errors
    /// A wrong address, or files that cannot be used.
    pub fn new(
        servers: &[String],
        user: Option<User>,
        authority: Option<&Path>,
        own: Option<(&Path, &Path)>,
        deadline: Duration,
    ) -> Result<Access, EtcdError> {
        let servers = servers.iter().map(|url| Server::parse(url)).collect::<Result<Vec<_>, _>>()?;
        let wants_tls = servers.iter().any(|server| server.is_tls);
        let tls = if wants_tls { Some(Arc::new(tls(authority, own)?)) } else { None };
        Ok(Access { servers, tls, user, deadline })
    }

    /// Connects to the first server that answers.
    ///
    /// # Errors
    /// What each of them has said.
    pub async fn connect(&mut self) -> Result<Etcd, EtcdError> {
        let mut said = Vec::new();
        for at in 0..self.servers.len() {
            match self.connect_to(&self.servers[at]).await {
                Ok(etcd) => {
                    self.servers.rotate_left(at);
                    return Ok(etcd);
                }
                Err(EtcdError::Unreachable(why)) => said.push(why),
                Err(error) => return Err(error),
            }
        }
        Err(EtcdError::Unreachable(said.join("; ")))
    }

    async fn connect_to(&self, server: &Server) -> Result<Etcd, EtcdError> {
        let failed = |why: String| EtcdError::Unreachable(format!("{}: {why}", server.url));
        let late = |_| failed(format!("no answer within {:?}", self.deadline));
        let connect = async {
            let socket = TcpStream::connect((server.host.as_str(), server.port)).await?;
            socket.set_nodelay(true)?;
            channel(server, socket, self.tls.as_ref().filter(|_| server.is_tls)).await
        };
        let connected = tokio::time::timeout(self.deadline, connect).await.map_err(late)?;
        let channel = connected.map_err(|error| failed(with_causes(&error)))?;
        let mut etcd = Etcd { server: server.url.clone(), channel, token: None, deadline: self.deadline };
        if let Some(User { name, password }) = &self.user {
            let request = m::AuthenticateRequest { name: name.clone(), password: password.clone() };
            let reply: m::AuthenticateResponse = etcd.call(request, "/etcdserverpb.Auth/Authenticate").await?;
            let token = reply.token.parse().map_err(|_| failed("its token is no header".into()))?;
            etcd.token = Some(token);
        }
        // A server without a leader accepts connections.
        etcd.keys(b"rsd", b"").await.or_else(|error| match error {
            EtcdError::Refused { .. } => Ok(Vec::new()), // the prefix may be all that the user may read
            // Whether the alert of a server that misses a certificate arrives before it closes the connection is chance.
            EtcdError::Unreachable(why) if self.is_anonymous(server) && !why.contains("ertificate") => Err(
                EtcdError::Unreachable(format!("{why}: does it demand a certificate? head.etcd_certificate names one")),
            ),
            error => Err(error),
        })?;
        Ok(etcd)
    }

    /// Whether a TLS server sees no certificate of ours.
    fn is_anonymous(&self, server: &Server) -> bool {
        server.is_tls && self.tls.as_ref().is_some_and(|tls| !tls.client_auth_cert_resolver.has_certs())
    }
}

fn tls(authority: Option<&Path>, own: Option<(&Path, &Path)>) -> Result<ClientConfig, EtcdError> {
    let wrong = |key: &str, path: &Path, why: String| EtcdError::Setting(format!("{key}: {}: {why}", path.display()));
    let path = authority.ok_or_else(|| {
        EtcdError::Setting(
            "head.etcd_authority is missing: name the file with the authority of etcd's certificates".into(),
        )
    })?;
    let read = |key: &str, path: &Path| -> Result<Vec<CertificateDer<'static>>, EtcdError> {
        let found = CertificateDer::pem_file_iter(path).and_then(Iterator::collect::<Result<Vec<_>, _>>);
        let found = found.map_err(|error| wrong(key, path, error.to_string()))?;
        if found.is_empty() { Err(wrong(key, path, "no certificate in PEM".into())) } else { Ok(found) }
    };
    let mut roots = RootCertStore::empty();
    for certificate in read("head.etcd_authority", path)? {
        roots.add(certificate).map_err(|error| wrong("head.etcd_authority", path, error.to_string()))?;
    }
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let builder = ClientConfig::builder_with_provider(provider).with_protocol_versions(&[&rustls::version::TLS13]);
    let builder = builder.map_err(|error| EtcdError::Setting(error.to_string()))?.with_root_certificates(roots);
    let mut config = match own {
        None => builder.with_no_client_auth(),
        Some((certificate, key)) => {
            let secret = PrivateKeyDer::from_pem_file(key);
            let secret = secret.map_err(|error| wrong("head.etcd_key", key, error.to_string()))?;
            let chain = read("head.etcd_certificate", certificate)?;
            let built = builder.with_client_auth_cert(chain, secret);
            built.map_err(|error| wrong("head.etcd_certificate", certificate, error.to_string()))?
        }
    };
    config.alpn_protocols = vec![b"h2".to_vec()];
    Ok(config)
}

/// Returns what an error says, and what its causes say: only the last of them may say that a certificate is missing.
fn with_causes(error: &(dyn std::error::Error + 'static)) -> String {
    let causes = std::iter::successors(error.source(), |cause| cause.source());
    causes.map(ToString::to_string).fold(error.to_string(), |text, cause| match text.ends_with(&cause) {
        true => text,
        false => format!("{text}: {cause}"),
    })
}

async fn channel(server: &Server, socket: TcpStream, tls: Option<&Arc<ClientConfig>>) -> io::Result<Channel> {
    let host = if server.host.contains(':') { format!("[{}]", server.host) } else { server.host.clone() };
    let endpoint = Endpoint::from_shared(format!("http://{host}:{}", server.port)).map_err(io::Error::other)?;
    let gone = || io::Error::new(io::ErrorKind::NotConnected, "the connection is lost");
    match tls {
        None => {
            let mut once = Some(socket);
            let connector = tower::service_fn(move |_| {
                let socket = once.take();
                async move { socket.map(TokioIo::new).ok_or_else(gone) }
            });
            endpoint.connect_with_connector(connector).await.map_err(io::Error::other)
        }
        Some(config) => {
            let name = ServerName::try_from(server.host.clone()).map_err(io::Error::other)?;
            let mut once = Some(TlsConnector::from(Arc::clone(config)).connect(name, socket).await?);
            let connector = tower::service_fn(move |_| {
                let socket = once.take();
                async move { socket.map(TokioIo::new).ok_or_else(gone) }
            });
            endpoint.connect_with_connector(connector).await.map_err(io::Error::other)
        }
    }
}

/// A key, with what is stored under it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct KeyValue {
    /// The key.
    pub key: Vec<u8>,
    /// Its value.
    pub value: Vec<u8>,
    /// The revision of its last change.
    pub revision: i64,
}

/// What must be true of a key.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Is {
    /// It was last changed at this revision; 0: it does not exist.
    Changed(i64),
    /// It is under this lease.
    Leased(i64),
}

/// A connection to a server. After an error it must not be used again.
#[derive(Debug)]
pub struct Etcd {
    server: String,
    channel: Channel,
    token: Option<AsciiMetadataValue>,
    deadline: Duration,
}

impl Etcd {
    fn request<T>(&self, message: T) -> Request<T> {
        let mut request = Request::new(message);
        if let Some(token) = &self.token {
            request.metadata_mut().insert("token", token.clone());
        }
        request
    }

    async fn call<Q, A>(&mut self, message: Q, path: &'static str) -> Result<A, EtcdError>
    where
        Q: prost::Message + 'static,
        A: prost::Message + Default + 'static,
    {
        let request = self.request(message);
        let mut grpc = Grpc::new(self.channel.clone());
        let call = async {
            grpc.ready().await.map_err(|error| Status::unavailable(with_causes(&error)))?;
            grpc.unary(request, PathAndQuery::from_static(path), ProstCodec::<Q, A>::default()).await
        };
        let reply = tokio::time::timeout(self.deadline, call).await.map_err(|_| self.late())?;
        reply.map(tonic::Response::into_inner).map_err(|status| self.failed(&status))
    }

    fn late(&self) -> EtcdError {
        EtcdError::Unreachable(format!("{}: no answer within {:?}", self.server, self.deadline))
    }

    fn failed(&self, status: &Status) -> EtcdError {
        let why = match std::error::Error::source(status) {
            Some(cause) => with_causes(cause),
            None => status.message().trim_start_matches("etcdserver: ").to_owned(),
        };
        match status.code() {
            Code::InvalidArgument
            | Code::PermissionDenied
            | Code::Unauthenticated
            | Code::FailedPrecondition
            | Code::Unimplemented => EtcdError::Refused { server: self.server.clone(), why },
            _ => EtcdError::Unreachable(format!("{}: {why}", self.server)),
        }
    }

    /// Returns the keys from `key` up to, but without, `end`; an empty `end`: only this key.
    ///
    /// # Errors
    /// See [`EtcdError`], as for all the following.
    pub async fn keys(&mut self, key: &[u8], end: &[u8]) -> Result<Vec<KeyValue>, EtcdError> {
        let request = m::RangeRequest { key: key.to_vec(), range_end: end.to_vec() };
        let reply: m::RangeResponse = self.call(request, "/etcdserverpb.KV/Range").await?;
        let found = reply.kvs.into_iter();
        Ok(found.map(|kv| KeyValue { key: kv.key, value: kv.value, revision: kv.mod_revision }).collect())
    }

    /// Stores values under keys, each with a lease or with 0, if all conditions hold. Returns whether they did.
    pub async fn commit(
        &mut self,
        conditions: &[(&[u8], Is)],
        puts: &[(&[u8], Vec<u8>, i64)],
    ) -> Result<bool, EtcdError> {
        let compare = |(key, is): &(&[u8], Is)| match is {
            Is::Changed(revision) => m::Compare {
                key: key.to_vec(),
                target: m::COMPARE_MOD,
                mod_revision: Some(*revision),
                ..m::Compare::default()
            },
            Is::Leased(lease) => {
                m::Compare { key: key.to_vec(), target: m::COMPARE_LEASE, lease: Some(*lease), ..m::Compare::default() }
            }
        };
        let put = |(key, value, lease): &(&[u8], Vec<u8>, i64)| m::RequestOp {
            put: Some(m::PutRequest { key: key.to_vec(), value: value.clone(), lease: *lease }),
        };
        let request = m::TxnRequest {
            compare: conditions.iter().map(compare).collect(),
            success: puts.iter().map(put).collect(),
        };
        let reply: m::TxnResponse = self.call(request, "/etcdserverpb.KV/Txn").await?;
        Ok(reply.succeeded)
    }

    /// Returns a new lease, which lasts this long without renewal.
    pub async fn grant(&mut self, lasts: Duration) -> Result<i64, EtcdError> {
        let ttl = i64::try_from(lasts.as_millis().div_ceil(1000)).unwrap_or(i64::MAX);
        let reply: m::LeaseGrantResponse =
            self.call(m::LeaseGrantRequest { ttl, id: 0 }, "/etcdserverpb.Lease/LeaseGrant").await?;
        Ok(reply.id)
    }

    /// Renews a lease. Returns whether there was still one.
    pub async fn keep_alive(&mut self, lease: i64) -> Result<bool, EtcdError> {
        let request = self.request(tokio_stream::once(m::LeaseKeepAliveRequest { id: lease }));
        let mut grpc = Grpc::new(self.channel.clone());
        let call = async {
            grpc.ready().await.map_err(|error| Status::unavailable(with_causes(&error)))?;
            let path = PathAndQuery::from_static("/etcdserverpb.Lease/LeaseKeepAlive");
            let codec = ProstCodec::<m::LeaseKeepAliveRequest, m::LeaseKeepAliveResponse>::default();
            let mut stream = grpc.streaming(request, path, codec).await?.into_inner();
            stream.next().await.unwrap_or_else(|| Err(Status::unavailable("the stream has ended")))
        };
        let reply = tokio::time::timeout(self.deadline, call).await.map_err(|_| self.late())?;
        reply.map(|reply| reply.ttl > 0).map_err(|status| self.failed(&status))
    }

    /// Ends a lease, and deletes the keys under it.
    pub async fn revoke(&mut self, lease: i64) -> Result<(), EtcdError> {
        let _: m::LeaseRevokeResponse =
            self.call(m::LeaseRevokeRequest { id: lease }, "/etcdserverpb.Lease/LeaseRevoke").await?;
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn servers_without_tls_are_only_on_this_machine() {
        for right in [
            "https://etcd1.example.org:2379",
            "https://[2001:db8::1]:2379/",
            "http://127.0.0.1:2379",
            "http://localhost",
            "http://[::1]:1",
        ] {
            assert!(Server::parse(right).is_ok(), "{right}");
        }
        let said = Server::parse("http://10.0.0.1:2379").unwrap_err().to_string();
        assert!(said.contains("without TLS"), "{said}");
        for wrong in ["10.0.0.1:2379", "ftp://a", "https://", "https://a:b", "https://a@b:1"] {
            assert!(Server::parse(wrong).is_err(), "{wrong}");
        }
        let server = Server::parse("https://[2001:db8::1]:2379").expect("it is an address");
        assert_eq!((server.host.as_str(), server.port, server.is_tls), ("2001:db8::1", 2379, true));
    }
}
