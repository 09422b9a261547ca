//! The member's side of the join protocol: one request, news while it waits, one answer.
//!
//! No runtime and no threads, because the process is about to become another program. A daemon that is restarted meanwhile is
//! waited for, and asked for the same place again.

use std::io::{self, Read, Write};
use std::os::unix::fs::MetadataExt;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use nix::unistd::geteuid;
use rsd_proto::join::{Decoder, Event, Go, Join, Line, SOCKET};
use rsd_proto::transport::{DialError, exit};

use super::place_of;
use crate::exit::Failure;
use crate::print::say;

/// A daemon that went away is looked for so long, every so often.
const RETURN: Duration = Duration::from_secs(10);
const RETRY: Duration = Duration::from_millis(100);
/// Who waits longer than this is told who else is there.
const PATIENCE: Duration = Duration::from_secs(5);

/// The join socket of the daemon meant.
pub(crate) fn socket(place: &crate::Place) -> Result<PathBuf, Failure> {
    Ok(place.find()?.state_dir.join(SOCKET))
}

/// Waits for a place in the group. Ends when the daemon answers, which it does in the time asked for, or is gone.
pub(crate) fn join(socket: &Path, mut join: Join) -> Result<Go, Failure> {
    let own_uid = geteuid().as_raw();
    let owner_uid = std::fs::metadata(socket).map_or(own_uid, |meta| meta.uid());
    if owner_uid != own_uid {
        return Err(Failure::of_dial(&socket.display().to_string(), &DialError::NotPermitted { owner_uid, own_uid }));
    }
    let began = Instant::now();
    let wanted = join.timeout_ms;
    let mut lost: Option<Instant> = None;
    loop {
        let spent = u64::try_from(began.elapsed().as_millis()).unwrap_or(u64::MAX);
        join.timeout_ms = wanted.map(|time| time.saturating_sub(spent));
        match once(socket, &mut join, began) {
            Ok(answer) => return answer,
            Err(Lost { error, talked }) => {
                // The first connection must work; later ones are to a daemon that is coming back.
                let never = join.token.is_none();
                let since = if talked { Instant::now() } else { lost.unwrap_or_else(Instant::now) };
                lost = Some(since);
                if never || since.elapsed() > RETURN {
                    let text = format!("lost the daemon at {}: {error}", socket.display());
                    return Err(Failure::unreachable(text));
                }
                std::thread::sleep(RETRY);
            }
        }
    }
}

/// The connection broke before an answer.
struct Lost {
    error: io::Error,
    /// The daemon had said something.
    talked: bool,
}

fn once(socket: &Path, join: &mut Join, began: Instant) -> Result<Result<Go, Failure>, Lost> {
    let mut talked = false;
    let mut decoder = Decoder::default();
    let mut buffer = [0; 4096];
    let mut attempt = || -> io::Result<Result<Go, Failure>> {
        let mut stream = UnixStream::connect(socket)?;
        stream.write_all(join.line().as_bytes())?;
        loop {
            match decoder.next_line::<Event>() {
                Some(Ok(Event::Wait(wait))) => {
                    talked = true;
                    if began.elapsed() > PATIENCE {
                        let waited = began.elapsed().as_secs();
                        let (have, want) = (wait.have, wait.want);
                        say(&format!("group {}: {have} of {want} are here after {waited} s", join.group));
                    }
                    join.token = Some(wait.token);
                }
                Some(Ok(Event::Go(go))) => return Ok(Ok(*go)),
                Some(Ok(Event::Error { code, text })) => return Ok(Err(Failure::new(code, text))),
                Some(Err(error)) => {
                    return Ok(Err(Failure::new(
                        exit::VERSION,
                        format!("the daemon's answer: failed to read it: {error}"),
                    )));
                }
                None => match stream.read(&mut buffer)? {
                    0 => return Err(io::ErrorKind::UnexpectedEof.into()),
                    n => decoder.feed(&buffer[..n]),
                },
            }
        }
    };
    attempt().map_err(|error| Lost { error, talked })
}

/// The environment of a member: that of a rank, and the way to its PMI server.
pub(crate) fn variables(group: &str, go: &Go, socket: &Path) -> Vec<(&'static str, String)> {
    let mut variables = vec![("PMI_PORT", go.pmi_port.clone()), ("PMI_ID", go.pmi_id.to_string())];
    variables.extend(place_of(go).variables());
    variables.push(("RSD_GROUP", group.to_owned()));
    variables.push(("RSD_EPOCH", go.epoch.to_string()));
    if let Some(state_dir) = socket.parent().and_then(Path::to_str) {
        variables.push(("RSD_DVM", state_dir.to_owned()));
        variables.push(("RSD_SOCKET", format!("{state_dir}/rsd.sock")));
    }
    variables
}
