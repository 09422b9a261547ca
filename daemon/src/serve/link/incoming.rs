//! The messages of a child: whole again, and within limits. Steps of other users are these users' processes, which may send anything and
//! as slowly as they like; nodes and the daemon's own steps are trusted.

use std::time::Duration;

use nix::unistd::geteuid;
use rsd_core::kvs;
use rsd_proto::transport::parts::Joiner;
use rsd_proto::transport::{Peer, Share, Shares, Who, exit, refusal};
use rsd_proto::v1::{Hello, Up, up};
use tokio::time::timeout;
use tonic::{Code, Status, Streaming};

use crate::serve::callers::ROOT;

/// How long a step may take to send its first message. A step of the daemon's own user may wait in reserve.
const HELLO_DEADLINE: Duration = Duration::from_secs(10);
/// The largest message of a step: what its ranks put before a fence, and what surrounds it.
const STEP_BYTES_MAX: usize = kvs::BYTES_MAX + (64 << 20);
/// The most streams of a user that have not sent their first message.
const SILENT_MAX: usize = 256;
/// The most pieces of incomplete messages that are held for a user; a piece has at most about 1 MiB.
const PIECES_MAX: usize = 2048;

/// What each user's steps may have at this daemon.
#[derive(Debug, Clone)]
pub(crate) struct Limits {
    silent: Shares,
    pieces: Shares,
}

impl Default for Limits {
    fn default() -> Limits {
        Limits { silent: Shares::new(SILENT_MAX), pieces: Shares::new(PIECES_MAX) }
    }
}

/// The messages of one child.
#[derive(Debug)]
pub(super) struct Incoming {
    ups: Streaming<Up>,
    whole: Whole,
    /// Until the first message has arrived.
    silent: Option<Share>,
}

impl Incoming {
    /// Fails if the user has too many streams.
    pub(super) fn new(ups: Streaming<Up>, peer: Option<Peer>, limits: &Limits) -> Result<Incoming, Status> {
        let who = peer.map(|peer| peer.who);
        let whole = Whole::new(who, limits);
        let silent = match whole.user {
            Some(uid) => Some(limits.silent.take(uid, 0).ok_or_else(|| {
                let text = format!("{SILENT_MAX} streams of your processes have not said which step they are");
                refusal(Code::ResourceExhausted, exit::NOT_PERMITTED, text)
            })?),
            None => None,
        };
        Ok(Incoming { ups, whole, silent })
    }

    /// Returns the first message; None if it is none that may be first, or comes too late.
    pub(super) async fn hello(&mut self) -> Option<Hello> {
        let first = match self.whole.user {
            Some(_) => timeout(HELLO_DEADLINE, self.next()).await.ok()?,
            None => self.next().await,
        };
        match first {
            Ok(Some(Up { body: Some(up::Body::Hello(hello)) })) => {
                self.silent = None;
                self.whole.begin();
                Some(hello)
            }
            Ok(_) | Err(_) => None,
        }
    }

    /// Returns the next whole message; None at the end.
    pub(super) async fn next(&mut self) -> Result<Option<Up>, Status> {
        while let Some(up) = self.ups.message().await? {
            if let Some(whole) = self.whole.take(up)? {
                return Ok(Some(whole));
            }
        }
        Ok(None)
    }
}

/// Joins the pieces of one child's messages.
#[derive(Debug)]
struct Whole {
    joiner: Joiner,
    is_step: bool,
    /// The user whose share the pieces take; None: unlimited.
    user: Option<u32>,
    pieces: Shares,
    held: Vec<Share>,
}

impl Whole {
    fn new(who: Option<Who>, limits: &Limits) -> Whole {
        let (is_step, user) = match who {
            Some(Who::Local { uid, .. }) => (true, Some(uid).filter(|uid| *uid != ROOT && *uid != geteuid().as_raw())),
            Some(Who::Node(_) | Who::User(_) | Who::Guest(_)) | None => (false, None),
        };
        // A step's first message is small, that of a node describes all nodes below it.
        let joiner = if is_step { Joiner::up_to(0) } else { Joiner::default() };
        Whole { joiner, is_step, user, pieces: limits.pieces.clone(), held: Vec::new() }
    }

    /// Accepts large messages from now on.
    fn begin(&mut self) {
        if self.is_step {
            self.joiner = Joiner::up_to(STEP_BYTES_MAX);
        }
    }

    /// Takes the next message; None: a piece that is not the last.
    fn take(&mut self, up: Up) -> Result<Option<Up>, Status> {
        let whole = self.joiner.join(up)?;
        if self.joiner.held_bytes() == 0 {
            self.held.clear();
        }
        if let (None, Some(uid)) = (&whole, self.user) {
            let text = "the incomplete messages of your steps are too large together";
            let piece = self.pieces.take(uid, 0);
            self.held.push(piece.ok_or_else(|| refusal(Code::ResourceExhausted, exit::NOT_PERMITTED, text))?);
        }
        Ok(whole)
    }
}

#[cfg(test)]
mod tests {
    use bytes::Bytes;
    use rsd_proto::transport::parts::InParts;
    use rsd_proto::v1::Part;

    use super::*;

    fn other_user() -> Option<Who> {
        Some(Who::Local { uid: geteuid().as_raw() + 1000, pid: None })
    }

    fn piece(data: Bytes, last: bool) -> Up {
        Up::of_part(Part { data, last })
    }

    #[test]
    fn a_step_sends_nothing_in_pieces_before_its_first_message() {
        let limits = Limits::default();
        for who in [other_user(), Some(Who::Local { uid: ROOT, pid: None })] {
            let mut whole = Whole::new(who, &limits);
            assert!(whole.take(piece(Bytes::from_static(b"x"), false)).is_err(), "{who:?}");
            whole.begin();
            assert!(whole.take(piece(Bytes::from_static(b"x"), false)).is_ok(), "{who:?}");
        }
        assert!(Whole::new(Some(Who::Node(7)), &limits).take(piece(Bytes::from_static(b"x"), false)).is_ok());
    }

    #[test]
    fn the_pieces_of_all_steps_of_a_user_are_limited_together() {
        let limits = Limits { pieces: Shares::new(4), ..Limits::default() };
        let mut links: Vec<Whole> = (0..3).map(|_| Whole::new(other_user(), &limits)).collect();
        links.iter_mut().for_each(Whole::begin);
        for at in [0, 0, 1, 1] {
            assert!(links[at].take(piece(Bytes::from_static(b"\n"), false)).is_ok());
        }
        assert!(links[2].take(piece(Bytes::from_static(b"\n"), false)).is_err());
        drop(links.remove(1));
        assert!(links[1].take(piece(Bytes::from_static(b"\n"), false)).is_ok(), "the closed link's are free");
        // A message that is complete holds nothing.
        let mut done = Whole::new(other_user(), &limits);
        done.begin();
        for _ in 0..9 {
            assert_eq!(done.take(piece(Bytes::new(), true)).expect("nothing decodes"), Some(Up::default()));
        }
    }
}
