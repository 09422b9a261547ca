//! Prints the ranks' output on standard output and standard error, or writes it to files.
//!
//! [`pattern`] labels and names of files · [`labels`] lines · [`files`] what the thread writes to.
//!
//! A thread writes, so that a pipe whose reader has stopped does not delay Ctrl-C. The channel to the thread is short, so that
//! rsctl stops reading from the daemon while the thread cannot write.

mod files;
mod labels;
pub(crate) mod pattern;

use std::fs::File;
use std::io::{self, BufWriter, Write};
use std::os::fd::AsFd;
use std::path::Path;
use std::sync::Arc;
use std::time::SystemTime;

use bytes::Bytes;
use rsd_proto::v1::job_event::Placed;
use rsd_proto::v1::{Record, Stream};
use tokio::sync::{mpsc, oneshot};

use self::files::Files;
use self::labels::Labels;
use self::pattern::{Of, Pattern};
use crate::placement;

/// How ranks' output is shown.
#[derive(Debug, Clone, Default)]
pub(crate) struct Style {
    /// What is put before each line.
    pub(crate) label: Option<Pattern>,
    /// Standard error goes where standard output goes.
    pub(crate) merged: bool,
    /// Files, by stream; absent: standard output and standard error.
    pub(crate) files: [Option<Pattern>; 2],
    /// What goes to files is printed, too.
    pub(crate) copied: bool,
}

impl Style {
    /// With `label`, every line begins with its rank.
    pub(crate) fn labelled(label: bool) -> Style {
        Style { label: label.then(Pattern::of_rank), ..Style::default() }
    }
}

/// Where ranks' output goes.
pub(crate) struct Output {
    style: Style,
    labels: Labels,
    /// The job's number; 0: not yet known.
    job: u64,
    /// By first rank: runs of ranks, each with its node, in `nodes`.
    runs: Vec<(u32, usize)>,
    nodes: Vec<String>,
    /// Ranks of the job; 0: not yet known.
    ranks: u32,
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

/// A place that output is written to.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
enum To {
    Stdout,
    Stderr,
    File(Arc<Path>),
}

impl From<Stream> for To {
    fn from(stream: Stream) -> To {
        match stream {
            Stream::Stdout => To::Stdout,
            Stream::Stderr => To::Stderr,
        }
    }
}

/// Bytes for a place.
type Piece = (To, Bytes);

/// A failed write.
#[derive(Debug)]
pub(crate) struct Broken {
    to: To,
    error: io::Error,
}

impl Broken {
    /// Whether the reader has closed the pipe, which is not reported.
    pub(crate) fn is_pipe(&self) -> bool {
        !matches!(self.to, To::File(_)) && self.error.kind() == io::ErrorKind::BrokenPipe
    }
}

impl std::fmt::Display for Broken {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Broken { to, error } = self;
        match to {
            To::Stdout => write!(f, "cannot write to standard output: {error}"),
            To::Stderr => write!(f, "cannot write to standard error: {error}"),
            To::File(path) => write!(f, "cannot write ranks' output to {}: {error}", path.display()),
        }
    }
}

/// The most batches in the channel to the thread. The daemon bounds the size of a batch, so this bounds memory.
const BATCHES: usize = 8;

impl Output {
    pub(crate) fn new(style: Style) -> Output {
        let (sender, receiver) = mpsc::channel(BATCHES);
        let (end, ended) = oneshot::channel();
        Output {
            style,
            labels: Labels::default(),
            job: 0,
            runs: Vec::new(),
            nodes: Vec::new(),
            ranks: 0,
            sender,
            idle: Some(Ends { receiver, end }),
            ended,
        }
    }

    /// Sets the job's number.
    pub(crate) fn submitted(&mut self, job: u64) {
        self.job = job;
    }

    /// Records where the job's ranks are, if a label or a file's name depends on it.
    pub(crate) fn placed(&mut self, placed: &Placed) {
        let Style { label, files, .. } = &self.style;
        let (Some(map), true) = (&placed.map, label.iter().chain(files.iter().flatten()).any(Pattern::needs_places))
        else {
            return;
        };
        let nodes = placement::by_node(map, &placed.node_names);
        self.ranks = nodes.iter().map(placement::NodeRanks::count).sum();
        let runs =
            nodes.iter().enumerate().flat_map(|(at, node)| node.ranges.iter().map(move |(first, _)| (*first, at)));
        self.runs = runs.collect();
        self.runs.sort_unstable();
        // A name must not lead out of the directory of a file.
        self.nodes = nodes.into_iter().map(|node| node.name.replace('/', "_")).collect();
    }

    /// Returns the text of a pattern for the rank of a record.
    fn fill(&self, pattern: &Pattern, record: &Record) -> String {
        let run = self.runs.partition_point(|(first, _)| *first <= record.rank).checked_sub(1);
        let node = run.map(|run| self.runs[run].1).filter(|_| record.job == 0);
        let now = || SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
        pattern.fill(&Of {
            rank: record.rank,
            width: self.ranks.saturating_sub(1).to_string().len(),
            job: self.job,
            spawned: record.job,
            // Where ranks of spawned jobs are is not announced.
            node: node.and_then(|node| self.nodes.get(node)).map_or("unknown", String::as_str),
            node_index: node.unwrap_or_default(),
            stream: match record.stream() {
                Stream::Stdout => "stdout",
                Stream::Stderr => "stderr",
            },
            at_ms: if pattern.names_time() { u64::try_from(now().as_millis()).unwrap_or_default() } else { 0 },
        })
    }

    /// Returns the places that a record goes to.
    fn places(&self, record: &Record) -> Vec<To> {
        let stream = if self.style.merged { Stream::Stdout } else { record.stream() };
        let printed = To::from(stream);
        match &self.style.files[stream as usize] {
            None => vec![printed],
            Some(name) => {
                let file = To::File(Path::new(&self.fill(name, record)).into());
                if self.style.copied { vec![file, printed] } else { vec![file] }
            }
        }
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
        let mut pieces = Vec::with_capacity(records.len());
        for record in records {
            let label = self.style.label.as_ref().map(|label| self.fill(label, &record));
            for to in self.places(&record) {
                let data = match &label {
                    Some(label) => {
                        let source = (record.job, record.rank);
                        self.labels.label(&to, source, label, &record.data, record.more)
                    }
                    None => record.data.clone(),
                };
                pieces.push((to, data));
            }
        }
        self.send(pieces);
    }

    /// Prints a line on stdout that is not from a rank.
    pub(crate) fn line(&mut self, mut text: String) {
        text.push('\n');
        self.send(vec![(To::Stdout, text.into())]);
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
        let newline = Bytes::from_static(b"\n");
        let pieces: Vec<Piece> = self.labels.unfinished().map(|to| (to.clone(), newline.clone())).collect();
        if !pieces.is_empty() {
            self.when_ready(async {}).await?;
            self.send(pieces);
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
    let on = |to: &To| {
        let to = to.clone();
        move |error| Broken { to, error }
    };
    let mut stdout = own(io::stdout().as_fd()).map_err(on(&To::Stdout))?;
    let mut stderr = own(io::stderr().as_fd()).map_err(on(&To::Stderr))?;
    let mut files = Files::default();
    while let Some(pieces) = receiver.blocking_recv() {
        for (to, data) in pieces {
            // Flushes the other stream first, so that its earlier output appears first.
            let (this, other, that) = match &to {
                To::Stdout => (&mut stdout, &mut stderr, To::Stderr),
                To::Stderr => (&mut stderr, &mut stdout, To::Stdout),
                To::File(path) => {
                    files.write(path, &data).map_err(on(&to))?;
                    continue;
                }
            };
            other.flush().map_err(on(&that))?;
            this.write_all(&data).map_err(on(&to))?;
        }
        if receiver.is_empty() {
            stdout.flush().map_err(on(&To::Stdout))?;
            stderr.flush().map_err(on(&To::Stderr))?;
        }
    }
    Ok(())
}

/// Returns a buffered writer to the same file, without the line buffering of std's.
fn own(fd: impl AsFd) -> io::Result<BufWriter<File>> {
    Ok(BufWriter::with_capacity(64 << 10, File::from(fd.as_fd().try_clone_to_owned()?)))
}

#[cfg(test)]
mod tests {
    use rsd_proto::v1::{Block, TaskMap};

    use super::*;

    fn record(rank: u32, data: &'static str, more: bool) -> Record {
        Record { rank, stream: Stream::Stdout.into(), data: data.into(), more, ..Record::default() }
    }

    fn labelled(records: &[Record]) -> String {
        let mut labels = Labels::default();
        let mut out = Vec::new();
        for record in records {
            let of = Of {
                rank: record.rank,
                width: 1,
                job: 7,
                spawned: record.job,
                node: "",
                node_index: 0,
                stream: "",
                at_ms: 0,
            };
            let (to, label) = (To::from(record.stream()), Pattern::of_rank().fill(&of));
            let source = (record.job, record.rank);
            out.extend_from_slice(&labels.label(&to, source, &label, &record.data, record.more));
        }
        labels.unfinished().for_each(|_| out.push(b'\n'));
        String::from_utf8(out).unwrap()
    }

    #[test]
    fn files_and_labels_are_named_after_ranks_and_nodes() {
        let files = [Some(Pattern::parse("out.%R.%h.%p").unwrap()), None];
        let mut output = Output::new(Style { files, merged: true, ..Style::default() });
        let block = |first_node, ranks_per_node| Block { first_node, nodes: 1, ranks_per_node };
        let map = TaskMap { nodes: vec![4, 2], blocks: vec![block(0, 2), block(1, 8), block(0, 1)] };
        output.placed(&Placed { map: Some(map), node_names: vec!["a".into(), "b".into()] });
        let file = |name: &str| To::File(Path::new(name).into());
        assert_eq!(output.places(&record(1, "x", false)), [file("out.01.a.0")]);
        assert_eq!(output.places(&record(9, "x", false)), [file("out.09.b.1")]);
        assert_eq!(output.places(&record(10, "x", false)), [file("out.10.a.0")]);
        assert_eq!(output.places(&Record { job: 9, ..record(1, "x", false) }), [file("out.01.unknown.0")]);
        let of_stderr = Record { stream: Stream::Stderr.into(), ..record(1, "x", false) };
        assert_eq!(output.places(&of_stderr), [file("out.01.a.0")]);
        output.style.copied = true;
        assert_eq!(output.places(&record(1, "x", false)), [file("out.01.a.0"), To::Stdout]);
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
