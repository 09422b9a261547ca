//! The HTTP port for Prometheus (`rsd start --metrics`): `GET /metrics`, and no other path.
//!
//! It is the only port of a daemon without TLS. It listens only if the user says so, and answers with counts alone, as for a user who owns
//! nothing: on a machine with several users, all of them can connect to a loopback port. A request is bounded in bytes and time, and so are the
//! connections, so this port cannot be used to fill the daemon's memory.

use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use anyhow::Context;
use rsd_core::rsd::Caller;
use rsd_proto::transport::exit;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::Semaphore;
use tracing::{debug, info, warn};

use super::Meter;
use crate::failed::Failed;

/// The most bytes of a request's head, and the most time for a request and its answer.
const HEAD_BYTES: usize = 8 << 10;
const DEADLINE: Duration = Duration::from_secs(5);
/// The most connections at a time; further ones wait in the kernel.
const CONNECTIONS: usize = 8;
/// How long the port rests when the kernel cannot accept a connection.
const PAUSE: Duration = Duration::from_millis(100);

/// Somebody who owns nothing.
const STRANGER: Caller = Caller { uid: u32::MAX, is_admin: false };

/// An open port.
#[derive(Debug)]
pub(crate) struct MetricsPort(TcpListener);

impl MetricsPort {
    /// Opens a port.
    ///
    /// # Errors
    /// When the address cannot be used.
    pub(crate) async fn open(at: SocketAddr) -> anyhow::Result<MetricsPort> {
        let failed = |error: io::Error| Failed::new(exit::SYSTEM, format!("--metrics {at}: {error}"));
        let listener = TcpListener::bind(at).await.map_err(failed)?;
        let address = listener.local_addr().context("find the port for metrics")?;
        match address.ip().is_loopback() {
            true => info!(%address, "metrics for Prometheus"),
            false => warn!(%address, "metrics for Prometheus, for all programs that reach this address"),
        }
        Ok(MetricsPort(listener))
    }

    pub(crate) fn address(&self) -> io::Result<SocketAddr> {
        self.0.local_addr()
    }

    /// Answers requests as long as the daemon runs.
    pub(crate) async fn serve(self, meter: Meter) {
        let room = Arc::new(Semaphore::new(CONNECTIONS));
        loop {
            let Ok(place) = Arc::clone(&room).acquire_owned().await else { return };
            match self.0.accept().await {
                Ok((stream, from)) => {
                    let meter = meter.clone();
                    tokio::spawn(async move {
                        let answered = tokio::time::timeout(DEADLINE, answer(stream, &meter)).await;
                        debug!(%from, ?answered, "request for metrics");
                        drop(place);
                    });
                }
                Err(error) => {
                    warn!(%error, "cannot accept a connection for metrics");
                    tokio::time::sleep(PAUSE).await;
                }
            }
        }
    }
}

async fn answer(mut stream: TcpStream, meter: &Meter) -> io::Result<()> {
    let mut head = Vec::new();
    let status = loop {
        if let Some(line) = first_line(&head) {
            break route(&line);
        }
        if head.len() >= HEAD_BYTES {
            break Route::Wrong("431 Request Header Fields Too Large");
        }
        let mut piece = [0; 1024];
        match stream.read(&mut piece).await? {
            0 => return Ok(()),
            read => head.extend_from_slice(&piece[..read]),
        }
    };
    let (status, kind, body) = match status {
        Route::Metrics { with_body } => match meter.text(STRANGER).await {
            Ok(text) => {
                ("200 OK", "text/plain; version=0.0.4; charset=utf-8", if with_body { text } else { String::new() })
            }
            Err(refused) => ("503 Service Unavailable", "text/plain; charset=utf-8", refused.text + "\n"),
        },
        Route::Wrong(status) => (status, "text/plain; charset=utf-8", format!("{status}: use GET /metrics\n")),
    };
    let allow = if status.starts_with("405") { "Allow: GET, HEAD\r\n" } else { "" };
    let length = body.len();
    let head = format!(
        "HTTP/1.1 {status}\r\nContent-Type: {kind}\r\nContent-Length: {length}\r\n{allow}Connection: close\r\n\r\n"
    );
    stream.write_all(head.as_bytes()).await?;
    stream.write_all(body.as_bytes()).await?;
    stream.shutdown().await
}

#[derive(Debug, PartialEq, Eq)]
enum Route {
    Metrics { with_body: bool },
    Wrong(&'static str),
}

/// Returns the first line of a request whose head is complete.
fn first_line(head: &[u8]) -> Option<String> {
    let ends = head.windows(4).any(|four| four == b"\r\n\r\n") || head.windows(2).any(|two| two == b"\n\n");
    let line = head.split(|byte| *byte == b'\n').next()?;
    ends.then(|| String::from_utf8_lossy(line).trim_end().to_owned())
}

fn route(line: &str) -> Route {
    let mut words = line.split(' ');
    let (method, target, version) = (words.next(), words.next(), words.next());
    let path = target.map(|target| target.split('?').next().unwrap_or_default());
    match (method, path, version, words.next()) {
        (Some(method @ ("GET" | "HEAD")), Some("/metrics"), Some("HTTP/1.0" | "HTTP/1.1"), None) => {
            Route::Metrics { with_body: method == "GET" }
        }
        (Some("GET" | "HEAD"), Some(_), Some("HTTP/1.0" | "HTTP/1.1"), None) => Route::Wrong("404 Not Found"),
        (Some(_), Some(_), Some("HTTP/1.0" | "HTTP/1.1"), None) => Route::Wrong("405 Method Not Allowed"),
        (_, _, _, _) => Route::Wrong("400 Bad Request"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_one_path_is_answered() {
        let rows = [
            ("GET /metrics HTTP/1.1", Route::Metrics { with_body: true }),
            ("HEAD /metrics?x=1 HTTP/1.0", Route::Metrics { with_body: false }),
            ("GET / HTTP/1.1", Route::Wrong("404 Not Found")),
            ("GET /metrics/../etc HTTP/1.1", Route::Wrong("404 Not Found")),
            ("POST /metrics HTTP/1.1", Route::Wrong("405 Method Not Allowed")),
            ("GET /metrics", Route::Wrong("400 Bad Request")),
            ("GET /metrics HTTP/1.1 x", Route::Wrong("400 Bad Request")),
            ("\u{fffd}\u{16}\u{3}", Route::Wrong("400 Bad Request")),
            ("", Route::Wrong("400 Bad Request")),
        ];
        for (line, expected) in rows {
            assert_eq!(route(line), expected, "{line}");
        }
    }

    #[test]
    fn a_request_is_complete_at_the_empty_line() {
        assert_eq!(first_line(b"GET /metrics HTTP/1.1\r\nHost: a\r\n"), None);
        assert_eq!(first_line(b"GET /metrics HTTP/1.1\r\nHost: a\r\n\r\n").as_deref(), Some("GET /metrics HTTP/1.1"));
        assert_eq!(first_line(b"GET / HTTP/1.0\n\n").as_deref(), Some("GET / HTTP/1.0"));
        assert_eq!(first_line(b""), None);
    }
}
