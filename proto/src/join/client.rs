//! The member's side over a socket, for processes without a runtime or threads of their own: one request, progress events while
//! the member waits, one answer. If the daemon restarts in the meantime, the member reconnects and requests the same place again.

use std::io::{self, Read, Write};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::time::{Duration, Instant};

use super::{Decoder, Event, Go, Join, JoinError, Line, Wait};

/// How long a member tries to reconnect to a daemon, and how often.
const RETURN: Duration = Duration::from_secs(10);
const RETRY: Duration = Duration::from_millis(100);

/// Why a member gets no place.
#[derive(Debug, thiserror::Error)]
pub enum NotJoined {
    /// The daemon refused.
    #[error("{text}")]
    Refused {
        /// The exit code that rsctl uses for it.
        code: u8,
        /// Says what to do.
        text: String,
    },
    /// The daemon has another release, or the peer is not an rsd daemon.
    #[error("failed to read the daemon's answer: {0}")]
    NotUnderstood(JoinError),
    /// No daemon listens there, or the daemon disconnected and did not restart.
    #[error("lost the daemon: {0}")]
    Lost(io::Error),
}

/// Waits for a place in the group of the daemon that listens at `socket` ([`super::SOCKET`]); `on_wait` gets the number of
/// members that have joined. Returns when the daemon answers, which it does within the requested timeout, or when the connection
/// is lost.
pub fn ask(socket: &Path, mut join: Join, mut on_wait: impl FnMut(&Wait)) -> Result<Go, NotJoined> {
    let began = Instant::now();
    let wanted = join.timeout_ms;
    let mut lost: Option<Instant> = None;
    loop {
        let spent = u64::try_from(began.elapsed().as_millis()).unwrap_or(u64::MAX);
        join.timeout_ms = wanted.map(|time| time.saturating_sub(spent));
        let mut talked = false;
        let told = |wait: Wait| {
            talked = true;
            on_wait(&wait);
            wait.token
        };
        match once(socket, &mut join, told) {
            Ok(answer) => return answer,
            Err(error) => {
                // Only the first connection must succeed at once; later connections are retried while the daemon restarts.
                let never = join.token.is_none();
                let since = if talked { Instant::now() } else { lost.unwrap_or_else(Instant::now) };
                lost = Some(since);
                if never || since.elapsed() > RETURN {
                    return Err(NotJoined::Lost(error));
                }
                std::thread::sleep(RETRY);
            }
        }
    }
}

/// Sends the request over one connection. Fails if the connection breaks before an answer.
fn once(socket: &Path, join: &mut Join, mut told: impl FnMut(Wait) -> String) -> io::Result<Result<Go, NotJoined>> {
    let mut decoder = Decoder::default();
    let mut buffer = [0; 4096];
    let mut stream = UnixStream::connect(socket)?;
    stream.write_all(join.line().as_bytes())?;
    loop {
        match decoder.next_line::<Event>() {
            Some(Ok(Event::Wait(wait))) => join.token = Some(told(wait)),
            Some(Ok(Event::Go(go))) => return Ok(Ok(*go)),
            Some(Ok(Event::Error { code, text })) => return Ok(Err(NotJoined::Refused { code, text })),
            Some(Err(error)) => return Ok(Err(NotJoined::NotUnderstood(error))),
            None => match stream.read(&mut buffer) {
                Ok(0) => return Err(io::ErrorKind::UnexpectedEof.into()),
                Ok(n) => decoder.feed(&buffer[..n]),
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            },
        }
    }
}

#[cfg(test)]
mod tests {
    use std::io::{BufRead, BufReader};
    use std::os::unix::net::UnixListener;
    use std::thread;

    use super::*;

    /// Starts a daemon that accepts one connection after the other. For each connection it records the request and sends one of
    /// `answers`.
    fn with_daemon(answers: &[&str], join: Join) -> (Result<Go, NotJoined>, Vec<String>) {
        static COUNT: std::sync::atomic::AtomicU32 = std::sync::atomic::AtomicU32::new(0);
        let number = COUNT.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
        let path = std::env::temp_dir().join(format!("rsd-ask-{}-{number}", std::process::id()));
        let listener = UnixListener::bind(&path).unwrap();
        let mut heard = Vec::new();
        let asked = thread::scope(|scope| {
            let asking = scope.spawn(|| ask(&path, join, |_| ()));
            for answer in answers {
                let (mut stream, _) = listener.accept().unwrap();
                let mut line = String::new();
                BufReader::new(&stream).read_line(&mut line).unwrap();
                heard.push(line);
                stream.write_all(answer.as_bytes()).unwrap();
            }
            drop(listener);
            std::fs::remove_file(&path).unwrap();
            asking.join().unwrap()
        });
        (asked, heard)
    }

    const GO: &str = "go rank=1 size=2 local_rank=0 local_size=1 epoch=1 pmi_port=127.0.0.1:9 pmi_id=7 job=3 namespace=n \
                      node=a nodes=2\n";

    fn actors() -> Join {
        Join { group: Some("actors".into()), size: Some(2), ..Join::default() }
    }

    #[test]
    fn a_member_keeps_its_place_when_the_daemon_restarts() {
        let wait = "wait token=t5 have=1 want=2 epoch=1\n";
        let (asked, heard) = with_daemon(&[wait, GO], actors());
        assert_eq!(asked.unwrap().pmi_id, 7);
        assert!(!heard[0].contains("token=") && heard[1].contains("token=t5"), "{heard:?}");
    }

    #[test]
    fn refusals_malformed_answers_and_lost_connections_are_distinct_errors() {
        let (asked, _) = with_daemon(&["error code=243 text=no%20room\n"], actors());
        assert!(matches!(asked, Err(NotJoined::Refused { code: 243, text }) if text == "no room"));
        let (asked, _) = with_daemon(&["well met\n"], actors());
        assert!(matches!(asked, Err(NotJoined::NotUnderstood(_))));
        let (asked, _) = with_daemon(&[""], actors());
        assert!(matches!(asked, Err(NotJoined::Lost(_))));
    }
}
