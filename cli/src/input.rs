//! Forwards standard input to the ranks that read it.

use std::fs::File;
use std::io::{self, Read};
use std::os::fd::AsFd;
use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::time::Duration;

use bytes::Bytes;
use nix::sys::signal::{SigSet, Signal};
use nix::sys::stat::{major, minor};
use rsd_proto::v1::InputChunk;
use tokio::sync::mpsc;
use tokio_stream::wrappers::ReceiverStream;

use crate::dvm::Client;

/// The most bytes that are read and sent at once.
const CHUNK_BYTES: usize = 64 << 10;

/// Sends standard input to `job` until it ends or the job no longer reads it. The reading thread may stay blocked in its last
/// read; it ends with the process.
pub(crate) fn forward(mut client: Client, job: u64) {
    let (sender, receiver) = mpsc::channel(4);
    std::thread::spawn(move || read(job, &sender));
    tokio::spawn(async move {
        // The job's events report its state. Unread input is not a failure.
        let _ = client.input(ReceiverStream::new(receiver)).await;
    });
}

/// Whether there is input to forward. There is none if standard input is /dev/null, which ranks can read themselves.
pub(crate) fn is_there() -> bool {
    let null = || -> io::Result<bool> {
        let meta = File::from(io::stdin().as_fd().try_clone_to_owned()?).metadata()?;
        Ok(meta.file_type().is_char_device() && (major(meta.rdev()), minor(meta.rdev())) == (1, 3))
    };
    !null().unwrap_or(false)
}

fn read(job: u64, sender: &mpsc::Sender<InputChunk>) {
    // The kernel stops a background process that reads its terminal. If the process blocks SIGTTIN, the read fails instead.
    let mut ttin = SigSet::empty();
    ttin.add(Signal::SIGTTIN);
    let Ok(()) = ttin.thread_block() else { return };
    let Ok(stdin) = io::stdin().as_fd().try_clone_to_owned() else { return };
    let mut stdin = File::from(stdin);
    let mut buffer = vec![0; CHUNK_BYTES];
    // The first chunk is empty: it names the job.
    let mut data = Bytes::new();
    while sender.blocking_send(InputChunk { job, data }).is_ok() {
        let count = loop {
            match stdin.read(&mut buffer) {
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(_) if in_background(&stdin) => std::thread::sleep(FOREGROUND_POLL),
                read => break read.unwrap_or(0),
            }
        };
        if count == 0 {
            return;
        }
        data = Bytes::copy_from_slice(&buffer[..count]);
    }
}

/// No signal announces that a running process group was brought to the foreground.
const FOREGROUND_POLL: Duration = Duration::from_millis(250);

/// Whether the terminal currently belongs to another process group.
fn in_background(stdin: &File) -> bool {
    nix::unistd::tcgetpgrp(stdin).is_ok_and(|group| group != nix::unistd::getpgrp())
}
