//! Prints the ranks' output on standard output and standard error.
//!
//! A thread writes, so that a pipe whose reader has stopped does not delay Ctrl-C. The channel to the thread is short, so that
//! rsctl stops reading from the daemon while the thread cannot write.

use std::fs::File;
use std::io::{self, BufWriter, Write};
use std::os::fd::AsFd;

use bytes::Bytes;
use rsd_proto::v1::{Record, Stream};
use tokio::sync::{mpsc, oneshot};

/// Where ranks' output goes.
pub(crate) struct Output {
    labels: Option<Labels>,
    sender: mpsc::Sender<Vec<Piece>>,
    /// The thread's ends of the channels, until the first write starts the thread.
    idle: Option<Ends>,
    ended: oneshot::Receiver<Result<(), Broken>>,
}

/// The thread's ends of the two channels.
struct Ends {
    receiver: mpsc::Receiver<Vec<Piece>>,
    end: oneshot::Sender<Result<(), Broken>>,
}

/// Bytes for one of the two streams.
type Piece = (Stream, Bytes);

/// A failed write to one of the two streams.
#[derive(Debug)]
pub(crate) struct Broken {
    stream: Stream,
    error: io::Error,
}

impl Broken {
    /// Whether the reader has closed the pipe, which is not reported.
    pub(crate) fn is_pipe(&self) -> bool {
        self.error.kind() == io::ErrorKind::BrokenPipe
    }
}

impl std::fmt::Display for Broken {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let name = match self.stream {
            Stream::Stdout => "standard output",
            Stream::Stderr => "standard error",
        };
        write!(f, "cannot write to {name}: {}", self.error)
    }
}

/// The most batches in the channel to the thread. The daemon bounds the size of a batch, so this bounds memory.
const BATCHES: usize = 8;

impl Output {
    /// With `label`, every line begins with its rank.
    pub(crate) fn new(label: bool) -> Output {
        let (sender, receiver) = mpsc::channel(BATCHES);
        let (end, ended) = oneshot::channel();
        Output { labels: label.then(Labels::default), sender, idle: Some(Ends { receiver, end }), ended }
    }

    /// Waits until the channel has room, then for `next`. Fails if a write has failed.
    pub(crate) async fn when_ready<T>(&mut self, next: impl Future<Output = T>) -> Result<T, Broken> {
        let Output { sender, ended, .. } = self;
        let next = async {
            match sender.reserve().await {
                Ok(_) => next.await,
                // The thread has ended; `ended` carries the reason.
                Err(_) => std::future::pending().await,
            }
        };
        tokio::select! {
            biased;
            Ok(Err(broken)) = ended => Err(broken),
            value = next => Ok(value),
        }
    }

    /// Prints records.
    pub(crate) fn write(&mut self, records: Vec<Record>) {
        let pieces = records
            .into_iter()
            .map(|record| {
                let stream = record.stream();
                let data = match &mut self.labels {
                    Some(labels) => labels.label(&record),
                    None => record.data,
                };
                (stream, data)
            })
            .collect();
        self.send(pieces);
    }

    /// Prints a line on stdout that is not from a rank.
    pub(crate) fn line(&mut self, mut text: String) {
        text.push('\n');
        self.send(vec![(Stream::Stdout, text.into())]);
    }

    fn send(&mut self, pieces: Vec<Piece>) {
        if let Some(Ends { receiver, end }) = self.idle.take() {
            std::thread::spawn(move || {
                // The receiver is gone if rsctl exits early.
                let _ = end.send(drain(receiver));
            });
        }
        // An error means: the channel is full, because the caller did not wait; or closed, and the next when_ready() returns the reason.
        let _ = self.sender.try_send(pieces);
    }

    /// Waits until everything is written.
    pub(crate) async fn finish(mut self) -> Result<(), Broken> {
        if let Some(labels) = &self.labels {
            let pieces = labels.unfinished();
            if !pieces.is_empty() {
                self.when_ready(async {}).await?;
                self.send(pieces);
            }
        }
        let Output { sender, idle, ended, .. } = self;
        drop(sender);
        match idle {
            Some(_) => Ok(()),
            None => ended.await.unwrap_or(Ok(())),
        }
    }
}

fn drain(mut receiver: mpsc::Receiver<Vec<Piece>>) -> Result<(), Broken> {
    let on = |stream| move |error| Broken { stream, error };
    let mut stdout = own(io::stdout().as_fd()).map_err(on(Stream::Stdout))?;
    let mut stderr = own(io::stderr().as_fd()).map_err(on(Stream::Stderr))?;
    while let Some(pieces) = receiver.blocking_recv() {
        for (stream, data) in pieces {
            // Flushes the other stream first, so that its earlier output appears first.
            let (this, other, that) = match stream {
                Stream::Stdout => (&mut stdout, &mut stderr, Stream::Stderr),
                Stream::Stderr => (&mut stderr, &mut stdout, Stream::Stdout),
            };
            other.flush().map_err(on(that))?;
            this.write_all(&data).map_err(on(stream))?;
        }
        if receiver.is_empty() {
            stdout.flush().map_err(on(Stream::Stdout))?;
            stderr.flush().map_err(on(Stream::Stderr))?;
        }
    }
    Ok(())
}

/// Returns a buffered writer to the same file, without the line buffering of std's.
fn own(fd: impl AsFd) -> io::Result<BufWriter<File>> {
    Ok(BufWriter::with_capacity(64 << 10, File::from(fd.as_fd().try_clone_to_owned()?)))
}

/// Puts `[rank] ` before lines, and `[job.rank] ` before lines of spawned jobs. When another rank's output interrupts a line,
/// the line is ended there and continues under a new label.
#[derive(Debug, Default)]
struct Labels {
    /// By stream: the job and rank of the unfinished line.
    open: [Option<(u64, u32)>; 2],
}

impl Labels {
    fn label(&mut self, record: &Record) -> Bytes {
        let Record { rank, data, more, job, .. } = record;
        let source = (*job, *rank);
        let open = &mut self.open[record.stream() as usize];
        let continues = *open == Some(source);
        let mut out = Vec::with_capacity(data.len() + 16);
        if data.is_empty() {
            if continues && !more {
                out.push(b'\n');
                *open = None;
            }
            return out.into();
        }
        if open.is_some() && !continues {
            out.push(b'\n');
        }
        let label = if *job == 0 { format!("[{rank}] ") } else { format!("[{job}.{rank}] ") };
        for (at, line) in data.split_inclusive(|&b| b == b'\n').enumerate() {
            if at > 0 || !continues {
                out.extend_from_slice(label.as_bytes());
            }
            out.extend_from_slice(line);
        }
        *open = None;
        if !data.ends_with(b"\n") {
            match more {
                true => *open = Some(source),
                false => out.push(b'\n'),
            }
        }
        out.into()
    }

    /// Returns a newline for each unfinished line.
    fn unfinished(&self) -> Vec<Piece> {
        let newline = Bytes::from_static(b"\n");
        let streams = [Stream::Stdout, Stream::Stderr].into_iter();
        streams.filter(|&stream| self.open[stream as usize].is_some()).map(|stream| (stream, newline.clone())).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn record(rank: u32, data: &'static str, more: bool) -> Record {
        Record { rank, stream: Stream::Stdout.into(), data: data.into(), more, job: 0 }
    }

    fn labelled(records: &[Record]) -> String {
        let mut labels = Labels::default();
        let mut out = Vec::new();
        records.iter().for_each(|record| out.extend_from_slice(&labels.label(record)));
        labels.unfinished().iter().for_each(|(_, data)| out.extend_from_slice(data));
        String::from_utf8(out).unwrap()
    }

    #[test]
    fn every_line_has_its_rank() {
        assert_eq!(labelled(&[record(0, "a\nb\n", false), record(11, "\n", false)]), "[0] a\n[0] b\n[11] \n");
    }

    #[test]
    fn ranks_of_spawned_jobs_have_labels_with_their_job() {
        let of_child = |data, more| Record { job: 8, ..record(0, data, more) };
        let records = [record(0, "a", true), of_child("b\n", false), of_child("c", true), record(0, "d\n", false)];
        assert_eq!(labelled(&records), "[0] a\n[8.0] b\n[8.0] c\n[0] d\n");
    }

    #[test]
    fn an_unfinished_last_line_is_ended() {
        assert_eq!(labelled(&[record(0, "a", false), record(1, "b\nc", false)]), "[0] a\n[1] b\n[1] c\n");
    }

    #[test]
    fn a_line_in_several_records_has_one_label() {
        let records = [record(0, "x\nab", true), record(0, "cd", true), record(0, "ef\ng\n", false)];
        assert_eq!(labelled(&records), "[0] x\n[0] abcdef\n[0] g\n");
        assert_eq!(
            labelled(&[record(0, "ab", true), record(0, "", false), record(0, "c\n", false)]),
            "[0] ab\n[0] c\n"
        );
    }

    #[test]
    fn an_interrupted_line_continues_under_a_new_label() {
        let records = [record(0, "name? ", true), record(1, "hello\n", false), record(0, "bob\n", false)];
        assert_eq!(labelled(&records), "[0] name? \n[1] hello\n[0] bob\n");
    }

    #[test]
    fn the_two_streams_do_not_interrupt_each_other() {
        let mut err = record(1, "oops\n", false);
        err.stream = Stream::Stderr.into();
        assert_eq!(labelled(&[record(0, "ab", true), err, record(0, "c\n", false)]), "[0] ab[1] oops\nc\n");
    }

    #[test]
    fn an_unfinished_line_is_ended_at_the_end() {
        assert_eq!(labelled(&[record(3, "half", true)]), "[3] half\n");
    }
}
