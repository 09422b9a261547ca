//! Connecting to a daemon that may have several addresses, of which some may not be reachable (RFC 8305, "happy eyeballs").
//!
//! The addresses are tried in order. The next attempt begins when the previous one has failed, or after [`STAGGER`]; earlier attempts
//! continue meanwhile. An attempt includes the TLS handshake, so another machine that has the address, as private networks use the
//! same addresses, does not end the search. The first attempt that succeeds wins.

use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use tokio::net::{TcpStream, lookup_host};
use tokio::task::JoinSet;
use tokio::time::{Instant, timeout_at};
use tokio_rustls::TlsConnector;
use tokio_rustls::client::TlsStream;

use super::{DialError, Dialer, tls};

/// An attempt that has failed.
#[derive(Debug)]
struct Failed {
    reached: Reached,
    error: DialError,
}

/// How far an attempt has come.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Reached {
    Nothing,
    /// Something that did not answer in time.
    Silence,
    /// A program has accepted the connection.
    Program,
    /// A program that is not trusted, or does not trust this one.
    Stranger,
}

impl Failed {
    fn early(error: DialError) -> Self {
        Self { reached: Reached::Nothing, error }
    }
}

/// How long an attempt runs alone.
const STAGGER: Duration = Duration::from_millis(250);

/// When an attempt ends, and how long after the beginning that is.
#[derive(Debug, Clone, Copy)]
struct Limit(Option<(Instant, Duration)>);

impl Limit {
    /// Runs an attempt, or a part of it. Each one ends by itself, so that what others have found before is not lost.
    async fn hold<T>(self, attempt: impl Future<Output = Result<T, Failed>>) -> Result<T, Failed> {
        let Some((end, deadline)) = self.0 else { return attempt.await };
        let late = |_| Err(Failed { reached: Reached::Silence, error: DialError::TimedOut(deadline) });
        timeout_at(end, attempt).await.unwrap_or_else(late)
    }
}

/// Connects to the daemon at one of these addresses, `HOST:PORT`. The attempts end after `deadline`, if one is given.
///
/// # Errors
/// Those of all attempts are reduced to the most telling one.
pub(super) async fn connect(
    addresses: &[String],
    dialer: &Dialer,
    deadline: Option<Duration>,
) -> Result<TlsStream<TcpStream>, DialError> {
    let limit = Limit(deadline.map(|deadline| (Instant::now() + deadline, deadline)));
    let attempts = addresses.iter().map(|address| at_name(address.clone(), dialer.clone(), limit));
    first(attempts.collect()).await.map_err(|failed| failed.error)
}

/// Tries all addresses that a name has.
async fn at_name(address: String, dialer: Dialer, limit: Limit) -> Result<TlsStream<TcpStream>, Failed> {
    let lookup = async {
        match address.parse() {
            Ok(numeric) => Ok(vec![numeric]),
            Err(_) => match lookup_host(&address).await {
                Ok(found) => Ok(found.collect()),
                Err(error) => Err(Failed::early(DialError::Io(error))),
            },
        }
    };
    let found: Vec<SocketAddr> = limit.hold(lookup).await?;
    let attempts = found.into_iter().map(|at| {
        let dialer = dialer.clone();
        async move { limit.hold(at_address(at, dialer)).await }
    });
    first(attempts.collect()).await
}

async fn at_address(at: SocketAddr, dialer: Dialer) -> Result<TlsStream<TcpStream>, Failed> {
    let stream = TcpStream::connect(at).await.map_err(|error| match error.kind() {
        io::ErrorKind::ConnectionRefused => Failed::early(DialError::NotRunning(error)),
        _ => Failed::early(DialError::Io(error)),
    })?;
    stream.set_nodelay(true).map_err(|error| Failed::early(DialError::Io(error)))?;
    let handshake = TlsConnector::from(Arc::clone(&dialer.config)).connect(dialer.name.clone(), stream).await;
    handshake.map_err(|error| match tls::Distrust::of(&error) {
        Some(why) => Failed { reached: Reached::Stranger, error: DialError::Untrusted(why) },
        None => {
            let text = format!("the connection to {at} broke during the TLS handshake ({error})");
            Failed { reached: Reached::Program, error: DialError::Io(io::Error::new(error.kind(), text)) }
        }
    })
}

/// Runs the attempts in order, and returns the first success. All others are cancelled.
async fn first<T: Send + 'static>(
    attempts: Vec<impl Future<Output = Result<T, Failed>> + Send + 'static>,
) -> Result<T, Failed> {
    let (mut waiting, mut running) = (attempts.into_iter(), JoinSet::new());
    let mut errors = Vec::new();
    loop {
        match waiting.next() {
            Some(next) => drop(running.spawn(next)),
            None if running.is_empty() => return Err(most_telling(errors)),
            None => {}
        }
        let more = waiting.len() > 0;
        tokio::select! {
            Some(done) = running.join_next() => match done {
                Ok(Ok(connected)) => return Ok(connected),
                Ok(Err(error)) => errors.push(error),
                // A panic, which the runtime has reported.
                Err(_) => {}
            },
            () = tokio::time::sleep(STAGGER), if more => {}
        }
    }
}

/// Returns the error of the attempt that has come farthest; of several, the one that failed first.
fn most_telling(errors: Vec<Failed>) -> Failed {
    let none = || Failed::early(DialError::Io(io::Error::new(io::ErrorKind::NotFound, "the daemon has no address")));
    errors.into_iter().rev().max_by_key(|failed| failed.reached).unwrap_or_else(none)
}

#[cfg(test)]
mod tests {
    use std::future::pending;
    use std::pin::Pin;

    use super::*;

    type Attempt = Pin<Box<dyn Future<Output = Result<&'static str, Failed>> + Send>>;

    fn refused() -> Attempt {
        Box::pin(async { Err(Failed::early(DialError::NotRunning(io::ErrorKind::ConnectionRefused.into()))) })
    }

    fn after(time: Duration, name: &'static str) -> Attempt {
        Box::pin(async move {
            tokio::time::sleep(time).await;
            Ok(name)
        })
    }

    /// Runs the attempts; returns the result and how long it took.
    fn run(attempts: Vec<Attempt>) -> (Result<&'static str, DialError>, Duration) {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build().unwrap();
        runtime.block_on(async {
            let begin = Instant::now();
            (first(attempts).await.map_err(|failed| failed.error), begin.elapsed())
        })
    }

    #[test]
    fn a_failure_starts_the_next_attempt_at_once() {
        let (found, took) = run(vec![refused(), refused(), after(Duration::ZERO, "third")]);
        assert_eq!(found.ok(), Some("third"));
        assert!(took < STAGGER, "{took:?}");
    }

    #[test]
    fn an_address_that_does_not_answer_delays_the_next_one_only_briefly() {
        let (found, took) = run(vec![Box::pin(pending()), after(Duration::ZERO, "second")]);
        assert_eq!(found.ok(), Some("second"));
        assert!((STAGGER..20 * STAGGER).contains(&took), "{took:?}");
    }

    #[test]
    fn an_earlier_attempt_may_still_win() {
        let (found, _) = run(vec![after(STAGGER + STAGGER / 4, "first"), Box::pin(pending())]);
        assert_eq!(found.ok(), Some("first"));
    }

    #[tokio::test(flavor = "current_thread")]
    async fn a_program_that_hangs_up_is_named_and_not_the_address_where_none_listens() {
        let dialer = Dialer::of_newcomer(crate::transport::token::Fingerprint::of(b"any")).unwrap();
        let closed = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let open = listener.local_addr().unwrap();
        let hanging_up = tokio::spawn(async move { drop(listener.accept().await) });
        let error = connect(&[closed, open].map(|at| at.to_string()), &dialer, None).await.err().unwrap().to_string();
        assert!(error.starts_with(&format!("the connection to {open} broke during the TLS handshake (")), "{error}");
        hanging_up.await.unwrap();
        let error = connect(&[closed.to_string()], &dialer, None).await.err().unwrap().to_string();
        assert!(error.starts_with("no daemon is listening there ("), "{error}");
    }

    #[tokio::test(flavor = "current_thread")]
    async fn an_address_that_never_answers_does_not_hide_what_another_one_has_said() {
        let deadline = Duration::from_millis(700);
        let dialer = Dialer::of_newcomer(crate::transport::token::Fingerprint::of(b"any")).unwrap();
        // The kernel accepts the connection, and no program answers.
        let silent = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let silent = silent.local_addr().map(|at| (at.to_string(), silent)).unwrap();
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let rude = listener.local_addr().unwrap().to_string();
        let hanging_up = tokio::spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                drop(stream);
            }
        });
        for addresses in [[&silent.0, &rude], [&rude, &silent.0]] {
            let begin = Instant::now();
            let error =
                connect(&addresses.map(String::clone), &dialer, Some(deadline)).await.err().unwrap().to_string();
            assert!(error.starts_with(&format!("the connection to {rude} broke")), "{error}");
            assert!((deadline..20 * deadline).contains(&begin.elapsed()), "{:?}", begin.elapsed());
        }
        let closed = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().to_string();
        for addresses in [vec![silent.0.clone()], vec![closed, silent.0.clone()]] {
            let error = connect(&addresses, &dialer, Some(deadline)).await.err().unwrap();
            assert!(matches!(error, DialError::TimedOut(after) if after == deadline), "{error}");
        }
        hanging_up.abort();
    }

    #[test]
    fn the_error_is_that_of_the_attempt_that_came_farthest_or_failed_first() {
        let failing = |reached, error: fn() -> DialError| {
            move || Box::pin(async move { Err(Failed { reached, error: error() }) }) as Attempt
        };
        let other = failing(Reached::Nothing, || DialError::Io(io::ErrorKind::HostUnreachable.into()));
        let broken = failing(Reached::Program, || DialError::Io(io::ErrorKind::ConnectionReset.into()));
        let foreign = failing(Reached::Stranger, || DialError::Untrusted(tls::Distrust::Foreign));
        for attempts in [vec![refused(), broken(), other()], vec![broken(), refused()]] {
            let found = run(attempts).0;
            assert!(matches!(&found, Err(DialError::Io(error)) if error.kind() == io::ErrorKind::ConnectionReset));
        }
        assert!(matches!(run(vec![broken(), foreign()]).0, Err(DialError::Untrusted(_))));
        assert!(matches!(run(vec![refused(), other()]).0, Err(DialError::NotRunning(_))));
        assert!(matches!(run(vec![refused(), foreign()]).0, Err(DialError::Untrusted(_))));
        assert!(matches!(run(Vec::new()).0, Err(DialError::Io(_))));
    }
}
