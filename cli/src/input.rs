//! Forwards standard input to the ranks that read it.
//!
//! What the readers have not confirmed is kept here, at most [`KEPT_BYTES`], so that it can be sent again after the connection was lost
//! or the head was restarted.

use std::collections::VecDeque;
use std::fs::File;
use std::io::{self, Read};
use std::os::fd::AsFd;
use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use nix::sys::signal::{SigSet, Signal};
use nix::sys::stat::{major, minor};
use rsd_proto::v1::InputChunk;
use tokio::sync::{Mutex, mpsc};
use tokio_stream::wrappers::ReceiverStream;

use crate::dvm::Client;

/// The most bytes that are read and sent at once.
const CHUNK_BYTES: usize = 64 << 10;
/// How much is read ahead of what the readers have confirmed. The head takes less than this ahead of the readers.
const KEPT_BYTES: u64 = 1 << 20;

/// The standard input of this process, for one job.
#[derive(Debug, Clone)]
pub(crate) struct Input(Arc<Mutex<Kept>>);

/// What has been read, and not been confirmed.
#[derive(Debug)]
struct Kept {
    /// The chunks that are read, as they come.
    read: mpsc::Receiver<Bytes>,
    chunks: VecDeque<(u64, Bytes)>,
    /// The number of the next byte.
    end: u64,
    is_at_end: bool,
    is_closed: bool,
}

impl Input {
    /// Begins to read. The reading thread may stay blocked in its last read; it ends with the process.
    pub(crate) fn begin() -> Input {
        let (sender, read) = mpsc::channel(1);
        std::thread::spawn(move || self::read(&sender));
        let kept = Kept { read, chunks: VecDeque::new(), end: 0, is_at_end: false, is_closed: false };
        Input(Arc::new(Mutex::new(kept)))
    }

    /// Sends the input to a job until it ends, the job no longer reads it, or the connection is lost. Then it can be called again.
    pub(crate) async fn forward(self, mut client: Client, job: u64) {
        // An earlier call that has not noticed the loss of its connection still has the lock.
        let mut kept = self.0.lock().await;
        if kept.is_closed {
            return;
        }
        let (sender, receiver) = mpsc::channel(1);
        // The first chunk is empty: it names the job, and where the input goes on.
        let begin = kept.chunks.front().map_or(kept.end, |(at, _)| *at);
        let chunk = |at: u64, data: Bytes, end: bool| InputChunk { job, data, at: Some(at), end: Some(end) };
        let _ = sender.try_send(chunk(begin, Bytes::new(), false));
        // The job's events report its state. Unread input is not a failure.
        let Ok(replies) = client.input(ReceiverStream::new(receiver)).await else { return };
        let mut replies = replies.into_inner();
        let (mut next, mut sender, mut has_ended) = (0, Some(sender), false);
        loop {
            if has_ended {
                sender = None;
            }
            let room = kept.end - begin_of(&kept) < KEPT_BYTES;
            let Kept { read, chunks, is_at_end, end, .. } = &mut *kept;
            let is_last = next == chunks.len();
            let unsent = match chunks.get(next) {
                Some((at, data)) => Some(chunk(*at, data.clone(), false)),
                None => (*is_at_end && !has_ended).then(|| chunk(*end, Bytes::new(), true)),
            };
            let has_unsent = unsent.is_some();
            let send = async {
                if let (Some(sender), Some(chunk)) = (&sender, unsent) {
                    let _ = sender.send(chunk).await; // a failure ends the replies
                }
            };
            tokio::select! {
                reply = replies.message() => match reply {
                    Ok(Some(reply)) => {
                        let before = kept.chunks.len();
                        kept.confirm(reply.delivered_bytes);
                        next -= (before - kept.chunks.len()).min(next);
                        if reply.closed {
                            kept.is_closed = true;
                            kept.chunks.clear();
                            return;
                        }
                    }
                    // All of it is delivered, or the job no longer reads it.
                    Ok(None) if sender.is_none() => {
                        kept.is_closed = true;
                        return;
                    }
                    Ok(None) | Err(_) => return,
                },
                () = send, if has_unsent => match is_last {
                    true => has_ended = true,
                    false => next += 1,
                },
                data = read.recv(), if !has_unsent && room && !*is_at_end => match data {
                    Some(data) => kept.push(data),
                    None => kept.is_at_end = true,
                },
            }
        }
    }
}

fn begin_of(kept: &Kept) -> u64 {
    kept.chunks.front().map_or(kept.end, |(at, _)| *at)
}

impl Kept {
    fn push(&mut self, data: Bytes) {
        let at = self.end;
        self.end += data.len() as u64;
        self.chunks.push_back((at, data));
    }

    /// Forgets the chunks of which the readers have all.
    fn confirm(&mut self, bytes: u64) {
        while self.chunks.front().is_some_and(|(at, data)| at + data.len() as u64 <= bytes) {
            self.chunks.pop_front();
        }
    }
}

/// Whether there is input to forward. There is none if standard input is /dev/null, which ranks can read themselves.
pub(crate) fn is_there() -> bool {
    let null = || -> io::Result<bool> {
        let meta = File::from(io::stdin().as_fd().try_clone_to_owned()?).metadata()?;
        Ok(meta.file_type().is_char_device() && (major(meta.rdev()), minor(meta.rdev())) == (1, 3))
    };
    !null().unwrap_or(false)
}

fn read(sender: &mpsc::Sender<Bytes>) {
    // The kernel stops a background process that reads its terminal. If the process blocks SIGTTIN, the read fails instead.
    let mut ttin = SigSet::empty();
    ttin.add(Signal::SIGTTIN);
    let Ok(()) = ttin.thread_block() else { return };
    let Ok(stdin) = io::stdin().as_fd().try_clone_to_owned() else { return };
    let mut stdin = File::from(stdin);
    let mut buffer = vec![0; CHUNK_BYTES];
    loop {
        let count = match stdin.read(&mut buffer) {
            Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
            Err(_) if in_background(&stdin) => {
                std::thread::sleep(FOREGROUND_POLL);
                continue;
            }
            read => read.unwrap_or(0),
        };
        if count == 0 || sender.blocking_send(Bytes::copy_from_slice(&buffer[..count])).is_err() {
            return;
        }
    }
}

/// No signal announces that a running process group was brought to the foreground.
const FOREGROUND_POLL: Duration = Duration::from_millis(250);

/// Whether the terminal currently belongs to another process group.
fn in_background(stdin: &File) -> bool {
    nix::unistd::tcgetpgrp(stdin).is_ok_and(|group| group != nix::unistd::getpgrp())
}
