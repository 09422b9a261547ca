//! The member's side over a socket, for processes without a runtime or threads of their own: one request, news while it
//! waits, one answer. A daemon that is restarted meanwhile is waited for, and asked for the same place again.

use std::io::{self, Read, Write};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::time::{Duration, Instant};

use super::{Decoder, Event, Go, Join, JoinError, Line, Wait};

/// A daemon that went away is looked for so long, every so often.
const RETURN: Duration = Duration::from_secs(10);
const RETRY: Duration = Duration::from_millis(100);

/// Why there is no place.
#[derive(Debug, thiserror::Error)]
pub enum NotJoined {
    /// The daemon says no.
    #[error("{text}")]
    Refused {
        /// rsctl's exit code for it.
        code: u8,
        /// Names what to do.
        text: String,
    },
    /// The daemon is of another release, or none of ours.
    #[error("failed to read the daemon's answer: {0}")]
    NotUnderstood(JoinError),
    /// No daemon listens there, or it went away and did not come back.
    #[error("lost the daemon: {0}")]
    Lost(io::Error),
}

/// Waits for a place in the group of the daemon whose [`super::SOCKET`] this is; `on_wait` hears how many have come. Ends when the
/// daemon answers, which it does in the time asked for, or is gone.
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
                // The first connection must work; later ones are to a daemon that is coming back.
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

/// Over one connection; fails if that breaks before an answer.
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

    /// A daemon that takes one connection after the other: what it reads there, and what it answers before it closes.
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
    fn a_place_is_kept_over_a_restart_of_the_daemon() {
        let wait = "wait token=t5 have=1 want=2 epoch=1\n";
        let (asked, heard) = with_daemon(&[wait, GO], actors());
        assert_eq!(asked.unwrap().pmi_id, 7);
        assert!(!heard[0].contains("token=") && heard[1].contains("token=t5"), "{heard:?}");
    }

    #[test]
    fn refusals_nonsense_and_an_early_end_are_told_apart() {
        let (asked, _) = with_daemon(&["error code=243 text=no%20room\n"], actors());
        assert!(matches!(asked, Err(NotJoined::Refused { code: 243, text }) if text == "no room"));
        let (asked, _) = with_daemon(&["well met\n"], actors());
        assert!(matches!(asked, Err(NotJoined::NotUnderstood(_))));
        let (asked, _) = with_daemon(&[""], actors());
        assert!(matches!(asked, Err(NotJoined::Lost(_))));
    }
}
