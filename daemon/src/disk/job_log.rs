//! One append-only log per job: the sequence of its events, output included. Every client reads the log at its own pace, so a slow
//! client does not delay the others.
//!
//! Events are length-delimited protobuf in `jobs/N.log`. A thread of its own writes the files, and clients' reads of files are done by
//! tokio's blocking threads: a slow or hung file system delays neither the daemon's thread nor other jobs. Events that are not yet in
//! the file are in memory, where followers that keep up find them. When a log has many of them, it is *slow*: the core, which is told,
//! acknowledges no output of the job until enough is written. When the file cannot grow (disk full, the limit of `jobs.log_max`, or a file
//! system that does not answer) the head drops output and logs that; the job keeps running, and its other events are kept in memory.

mod follower;
mod writer;

use std::collections::{BTreeMap, HashMap, VecDeque};
use std::fs::File;
use std::path::{Path, PathBuf};
use std::sync::mpsc::{Sender, channel};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::{Duration, Instant};

use prost::Message;
use rsd_core::JobId;
use rsd_proto::v1::{JobEvent, job_event};
use tokio::sync::watch;

pub(crate) use follower::Follower;

/// The superuser, whose logs are not limited together.
const ROOT: u32 = 0;
/// How much a follower reads at once, and about how much is written at once.
const PIECE_BYTES: usize = 128 << 10;
/// How much of a log may wait to be written before it is slow. It is slow until a quarter of that waits.
const WAITING_BYTES: u64 = 16 << 20;
/// How long a slow log waits for a file system that writes nothing, of any log.
const PATIENCE: Duration = Duration::from_secs(5);

/// The logs of a head.
#[derive(Debug)]
pub(crate) struct JobLogs {
    dir: PathBuf,
    limit_bytes: u64,
    /// The most bytes of all logs of a user, except root.
    user_bytes: u64,
    logs: Mutex<HashMap<JobId, Arc<Log>>>,
    /// The bytes of the logs of each user, by uid.
    of_users: Mutex<HashMap<u32, u64>>,
    writer: Sender<Work>,
    state: Arc<State>,
}

/// What the daemon's thread and the writer share.
struct State {
    /// The slow logs.
    slow: Mutex<BTreeMap<JobId, Arc<Log>>>,
    /// Since when the writer has been at one piece of work; None: it has none.
    busy_since: Mutex<Option<Instant>>,
    /// Is called when a log becomes slow, and when it no longer is. It must not wait.
    on_pace: Box<dyn Fn(JobId, bool) + Send + Sync>,
}

impl std::fmt::Debug for State {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("State").field("slow", &lock(&self.slow).len()).finish_non_exhaustive()
    }
}

/// A task of the thread that writes.
#[derive(Debug)]
enum Work {
    Write(Arc<Log>),
    Remove(Arc<Log>),
    #[cfg(test)]
    Report(Sender<()>),
}

#[derive(Debug)]
struct Log {
    job: JobId,
    path: PathBuf,
    /// The user whose share it counts for; None in a DVM that serves one user, and for root.
    user: Option<u32>,
    events: Mutex<Events>,
    progress: watch::Sender<Progress>,
    state: Arc<State>,
    /// Why output was dropped.
    loss: OnceLock<String>,
}

#[derive(Debug, Default)]
struct Events {
    /// The numbers of events and bytes in the file.
    written: u64,
    written_bytes: u64,
    /// The events from number `written` on; after a failure, of the file or of the limit, those that are kept in memory.
    tail: VecDeque<Entry>,
    tail_bytes: u64,
    /// The bytes that count for the user: those of all events that were appended, even if they could not be written.
    counted_bytes: u64,
    /// Open while the job runs.
    file: Option<Arc<File>>,
    /// Whether the writer has a task for this log.
    is_queued: bool,
    /// Whether much of it waits to be written.
    is_slow: bool,
    /// Whether further output is dropped.
    is_full: bool,
    /// Whether nothing can be written any more.
    has_failed: bool,
    has_ended: bool,
}

#[derive(Debug)]
struct Entry {
    /// None: output that was dropped.
    event: Option<JobEvent>,
    bytes: u64,
}

/// What an append has done.
struct Appended {
    /// The bytes that count for the user.
    bytes: u64,
    /// Whether the writer needs a task.
    needs_task: bool,
}

#[derive(Debug, Clone, Copy, Default)]
struct Progress {
    events: u64,
    ended: bool,
}

impl JobLogs {
    /// Logs in `dir`, of at most `limit_bytes` each and `user_bytes` of a user. Logs of an earlier daemon are deleted. `on_pace` is called
    /// when a log becomes slow (true), and when it no longer is.
    pub(crate) fn new(
        dir: PathBuf,
        limit_bytes: u64,
        user_bytes: u64,
        on_pace: impl Fn(JobId, bool) + Send + Sync + 'static,
    ) -> JobLogs {
        for entry in std::fs::read_dir(&dir).into_iter().flatten().flatten() {
            if entry.path().extension().is_some_and(|ending| ending == "log") {
                let _ = std::fs::remove_file(entry.path());
            }
        }
        let (writer, work) = channel();
        let state = State { slow: Mutex::default(), busy_since: Mutex::default(), on_pace: Box::new(on_pace) };
        let state = Arc::new(state);
        let of_writer = Arc::clone(&state);
        let thread = std::thread::Builder::new().name("job-logs".into()).stack_size(128 << 10);
        if let Err(error) = thread.spawn(move || writer::write_all(&work, &of_writer)) {
            tracing::error!(%error, "cannot start the thread that writes job logs: jobs' output is lost");
        }
        JobLogs { dir, limit_bytes, user_bytes, logs: Mutex::default(), of_users: Mutex::default(), writer, state }
    }

    /// Returns when [`JobLogs::give_up_hung`] must be called, if the writer makes no progress until then; None while no log is slow.
    pub(crate) fn patience_ends(&self) -> Option<Instant> {
        if lock(&self.state.slow).is_empty() {
            return None;
        }
        // A writer without work has not yet seen that there is some.
        Some(lock(&self.state.busy_since).unwrap_or_else(Instant::now) + PATIENCE)
    }

    /// Drops what slow logs cannot write, if the file system has written nothing for too long. Their jobs go on.
    pub(crate) fn give_up_hung(&self, now: Instant) {
        let is_hung = lock(&self.state.busy_since).is_some_and(|since| since + PATIENCE <= now);
        let slow: Vec<Arc<Log>> = if is_hung { lock(&self.state.slow).values().cloned().collect() } else { Vec::new() };
        for log in slow {
            tracing::error!(path = %log.path.display(), "the file system does not write a job's log");
            log.fail(&format!("nothing was written within {} s", PATIENCE.as_secs()));
        }
    }

    pub(crate) fn append(&self, job: JobId, event: JobEvent) {
        let owner = match &event.body {
            // The first event of every job.
            Some(job_event::Body::Submitted(submitted)) => submitted.owner.as_ref().map(|owner| owner.uid),
            _ => None,
        };
        let user = owner.filter(|uid| *uid != ROOT);
        let log = Arc::clone(
            lock(&self.logs).entry(job).or_insert_with(|| Arc::new(Log::new(&self.dir, job, user, &self.state))),
        );
        let room = match log.user {
            Some(user) => self.user_bytes.saturating_sub(lock(&self.of_users).get(&user).copied().unwrap_or(0)),
            None => u64::MAX,
        };
        let Appended { bytes, needs_task } = log.append(event, self.limit_bytes, room);
        if let Some(user) = log.user {
            *lock(&self.of_users).entry(user).or_default() += bytes;
        }
        if needs_task && self.writer.send(Work::Write(Arc::clone(&log))).is_err() {
            log.fail("the thread that writes logs has ended");
        }
    }

    pub(crate) fn drop_log(&self, job: JobId) {
        if let Some(log) = lock(&self.logs).remove(&job) {
            self.forget_bytes(&log);
            lock(&self.state.slow).remove(&job);
            let _ = self.writer.send(Work::Remove(log)); // without a thread there is no file
        }
    }

    fn forget_bytes(&self, log: &Log) {
        let Some(user) = log.user else { return };
        let mut of_users = lock(&self.of_users);
        if let Some(bytes) = of_users.get_mut(&user) {
            *bytes = bytes.saturating_sub(lock(&log.events).counted_bytes);
            if *bytes == 0 {
                of_users.remove(&user);
            }
        }
    }

    /// Returns why output of a job was dropped, if any was.
    pub(crate) fn loss(&self, job: JobId) -> Option<String> {
        lock(&self.logs).get(&job)?.loss.get().cloned()
    }

    /// Returns a reader of a job's events, from the first event on. None: unknown job.
    pub(crate) fn follow(&self, job: JobId) -> Option<Follower> {
        let log = Arc::clone(lock(&self.logs).get(&job)?);
        Some(Follower::new(log))
    }
}

impl Log {
    fn new(dir: &Path, job: JobId, user: Option<u32>, state: &Arc<State>) -> Log {
        let path = dir.join(format!("{job}.log"));
        let progress = watch::Sender::new(Progress::default());
        Log { job, path, user, events: Mutex::default(), progress, state: Arc::clone(state), loss: OnceLock::new() }
    }

    /// Adds an event; output only within `limit_bytes` of this log and `room` bytes of its user.
    fn append(self: &Arc<Self>, event: JobEvent, limit_bytes: u64, room: u64) -> Appended {
        let is_output = matches!(event.body, Some(job_event::Body::Output(_)));
        let mut events = lock(&self.events);
        events.has_ended |= matches!(event.body, Some(job_event::Body::Ended(_)));
        let before = events.tail_bytes;
        let (bytes, used) = (delimited_len(&event), events.written_bytes + events.tail_bytes);
        let why_not = match is_output && !events.is_full {
            true if used + bytes > limit_bytes => Some(format!(
                "output from here on is not kept: the job has written {limit_bytes} bytes (jobs.log_max)"
            )),
            true if bytes > room => Some(
                "output from here on is not kept: the logs of your jobs have as many bytes as this DVM allows a user (users.log)"
                    .to_owned(),
            ),
            true | false => None,
        };
        if let Some(text) = why_not {
            events.is_full = true;
            let _ = self.loss.set(text.clone());
            events.push(JobEvent { at_ms: event.at_ms, body: Some(job_event::Body::Notice(text)) });
        } else if !(is_output && events.is_full) {
            events.push(event);
        }
        let needs_task = !events.is_queued && !events.has_failed;
        events.is_queued |= needs_task;
        let added = events.tail_bytes - before;
        events.counted_bytes += added;
        if events.tail_bytes > WAITING_BYTES && !events.has_failed && !events.is_slow {
            events.is_slow = true;
            lock(&self.state.slow).insert(self.job, Arc::clone(self));
            (self.state.on_pace)(self.job, true);
        }
        self.report(&events);
        Appended { bytes: added, needs_task }
    }

    /// Records that little waits to be written, or nothing will be.
    fn is_no_longer_slow(&self, events: &mut Events) {
        if std::mem::take(&mut events.is_slow) {
            lock(&self.state.slow).remove(&self.job);
            (self.state.on_pace)(self.job, false);
        }
    }

    fn report(&self, events: &Events) {
        let (count, ended) = (events.written + events.tail.len() as u64, events.has_ended);
        self.progress.send_modify(|progress| *progress = Progress { events: count, ended });
    }

    /// Drops the output that is not written, and further output. The other events stay in memory.
    fn fail(&self, why: &str) {
        let mut events = lock(&self.events);
        if std::mem::replace(&mut events.has_failed, true) {
            return;
        }
        events.is_full = true;
        self.is_no_longer_slow(&mut events);
        let text = format!("output from here on is lost: the head cannot write {}: {why}", self.path.display());
        let _ = self.loss.set(text.clone());
        let mut notice = Some(job_event::Body::Notice(text));
        let mut at_ms = 0;
        for entry in &mut events.tail {
            at_ms = entry.event.as_ref().map_or(at_ms, |event| event.at_ms);
            if matches!(&entry.event, Some(JobEvent { body: Some(job_event::Body::Output(_)), .. })) {
                entry.event = notice.take().map(|notice| JobEvent { at_ms, body: Some(notice) });
            }
        }
        if notice.is_some() {
            events.push(JobEvent { at_ms, body: notice });
        }
        self.report(&events);
    }
}

impl Events {
    fn push(&mut self, event: JobEvent) {
        let bytes = delimited_len(&event);
        self.tail_bytes += bytes;
        self.tail.push_back(Entry { event: Some(event), bytes });
    }
}

fn delimited_len(event: &JobEvent) -> u64 {
    let len = event.encoded_len();
    (len + prost::length_delimiter_len(len)) as u64
}

/// Ignores poisoning: the data behind these locks is consistent at every point that can panic.
fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use std::fs::OpenOptions;
    use std::io::Read;
    use std::os::unix::fs::OpenOptionsExt;

    use rsd_proto::v1::{JobInfo, Record, User};

    use super::*;

    fn output(text: &'static [u8]) -> JobEvent {
        let records = vec![Record { rank: 0, data: text.into(), ..Default::default() }];
        JobEvent {
            at_ms: 1,
            body: Some(job_event::Body::Output(job_event::Output { records, node: 0, job: 0, end: text.len() as u64 })),
        }
    }

    fn ended() -> JobEvent {
        JobEvent { at_ms: 2, body: Some(job_event::Body::Ended(JobInfo { job: 1, ..Default::default() })) }
    }

    fn scratch(name: &str) -> PathBuf {
        let dir = std::env::temp_dir().join(format!("rsd-job-log-{name}-{}", std::process::id()));
        std::fs::create_dir_all(&dir).unwrap();
        dir
    }

    /// Waits until everything is written.
    fn settle(logs: &JobLogs) {
        let (done, wait) = channel();
        logs.writer.send(Work::Report(done)).unwrap();
        wait.recv().unwrap();
    }

    async fn all(mut follower: Follower) -> Vec<JobEvent> {
        let mut events = Vec::new();
        while let Some(event) = follower.next().await {
            events.push(event);
        }
        events
    }

    #[tokio::test(flavor = "current_thread")]
    async fn a_follower_gets_past_and_new_events_until_the_job_ends() {
        let dir = scratch("follow");
        let logs = Arc::new(JobLogs::new(dir.clone(), 1 << 20, 0, |_, _| {}));
        logs.append(1, output(b"before"));
        let follower = tokio::spawn(all(logs.follow(1).unwrap()));
        tokio::task::yield_now().await;
        logs.append(1, output(b"after"));
        logs.append(1, ended());
        assert_eq!(follower.await.unwrap(), [output(b"before"), output(b"after"), ended()]);
        assert_eq!(all(logs.follow(1).unwrap()).await.len(), 3);
        logs.drop_log(1);
        assert!(logs.follow(1).is_none());
        std::fs::remove_dir_all(dir).unwrap();
    }

    #[tokio::test(flavor = "current_thread")]
    async fn a_log_whose_file_is_deleted_while_the_job_runs_stays_complete() {
        let dir = scratch("deleted");
        let logs = JobLogs::new(dir.clone(), 1 << 20, 0, |_, _| {});
        logs.append(1, output(b"before"));
        logs.append(2, output(b"other"));
        logs.append(2, ended());
        settle(&logs);
        std::fs::remove_dir_all(&dir).unwrap();
        logs.append(1, output(b"after"));
        assert_eq!(logs.follow(1).unwrap().next().await, Some(output(b"before")));
        logs.append(1, ended());
        assert_eq!(all(logs.follow(1).unwrap()).await, [output(b"before"), output(b"after"), ended()]);

        let mut lost = logs.follow(2).unwrap();
        assert_eq!(lost.next().await, None);
        let why = lost.failure().expect("the file is gone");
        assert!(why.starts_with("the rest of the job's output is lost: cannot read "), "{why}");
        lost.ended().await;
    }

    #[tokio::test(flavor = "current_thread")]
    async fn a_full_log_has_a_notice_and_the_end_of_the_job() {
        let dir = scratch("full");
        let logs = JobLogs::new(dir.clone(), 60, 0, |_, _| {});
        logs.append(1, output(b"fits"));
        logs.append(1, output(&[b'x'; 100]));
        logs.append(1, output(b"too late"));
        logs.append(1, ended());
        let events = all(logs.follow(1).unwrap()).await;
        assert_eq!(events[0], output(b"fits"));
        assert!(matches!(&events[1].body, Some(job_event::Body::Notice(text)) if text.contains("jobs.log_max")));
        assert_eq!(events[2], ended());
        assert_eq!(events.len(), 3);
        std::fs::remove_dir_all(dir).unwrap();
    }

    #[tokio::test(flavor = "current_thread")]
    async fn a_file_system_that_hangs_delays_neither_appends_nor_followers_that_keep_up() {
        let dir = scratch("hung");
        let logs = JobLogs::new(dir.clone(), 1 << 30, 0, |_, _| {});
        // A FIFO that nobody reads: writes block when it is full.
        nix::unistd::mkfifo(&dir.join("1.log"), nix::sys::stat::Mode::S_IRWXU).unwrap();
        let began = std::time::Instant::now();
        logs.append(1, output(&[b'x'; 100_000]));
        let mut follower = logs.follow(1).unwrap();
        // Somebody else can open it for writing only when the writer has opened it for reading and writing.
        let open = || OpenOptions::new().write(true).custom_flags(libc::O_NONBLOCK).open(dir.join("1.log"));
        while open().is_err() {
            std::thread::yield_now();
        }
        for _ in 0..40 {
            logs.append(1, output(&[b'x'; 100_000]));
            assert!(follower.next().await.is_some());
        }
        logs.append(1, ended());
        assert!(follower.next().await.is_some());
        assert_eq!(follower.next().await, Some(ended()));
        assert!(began.elapsed() < PATIENCE, "{:?}", began.elapsed());
        std::fs::remove_dir_all(dir).unwrap();
    }

    #[tokio::test(flavor = "current_thread")]
    async fn a_log_that_is_not_written_is_slow_and_is_given_up_without_delaying_the_daemon() {
        let dir = scratch("slow");
        let paces = Arc::new(Mutex::new(Vec::new()));
        let told = Arc::clone(&paces);
        let logs = JobLogs::new(dir.clone(), 1 << 30, 0, move |job, is_slow| lock(&told).push((job, is_slow)));
        nix::unistd::mkfifo(&dir.join("1.log"), nix::sys::stat::Mode::S_IRWXU).unwrap();
        let began = Instant::now();
        for _ in 0..400 {
            logs.append(1, output(&[b'x'; 100_000]));
        }
        assert!(began.elapsed() < PATIENCE, "{:?}", began.elapsed());
        assert_eq!(*lock(&paces), [(1, true)]);
        // Somebody else can open it for writing only when the writer has opened it for reading and writing.
        let open = || OpenOptions::new().write(true).custom_flags(libc::O_NONBLOCK).open(dir.join("1.log"));
        while open().is_err() {
            std::thread::yield_now();
        }
        let ends = logs.patience_ends().unwrap();
        logs.give_up_hung(ends - Duration::from_millis(1));
        assert_eq!(lock(&paces).len(), 1, "it may still make progress");
        logs.give_up_hung(ends);
        assert_eq!((&lock(&paces)[1..], logs.patience_ends()), (&[(1, false)][..], None));
        logs.append(1, ended());
        let events = all(logs.follow(1).unwrap()).await;
        let [job_event::Body::Notice(why), job_event::Body::Ended(_)] =
            [0, 1].map(|at| events[at].body.clone().unwrap())
        else {
            panic!("{events:?}")
        };
        assert!(why.contains("nothing was written within 5 s"), "{why}");
        std::fs::remove_dir_all(dir).unwrap();
    }

    #[tokio::test(flavor = "current_thread")]
    async fn a_slow_log_becomes_fast_when_it_is_written_and_loses_nothing() {
        let dir = scratch("fast");
        let (paces, told) = channel();
        let logs = JobLogs::new(dir.clone(), 1 << 30, 0, move |_, is_slow| paces.send(is_slow).unwrap());
        for _ in 0..400 {
            logs.append(1, output(&[b'x'; 100_000]));
        }
        logs.append(1, ended());
        settle(&logs);
        let told: Vec<bool> = told.try_iter().collect();
        assert!(told.chunks(2).all(|pair| pair == [true, false]), "{told:?}");
        assert_eq!((all(logs.follow(1).unwrap()).await.len(), logs.patience_ends()), (401, None));
        std::fs::remove_dir_all(dir).unwrap();
    }

    #[tokio::test(flavor = "current_thread")]
    async fn a_log_with_much_to_write_does_not_delay_another_one() {
        let dir = scratch("turns");
        let logs = JobLogs::new(dir.clone(), 1 << 30, 0, |_, _| {});
        nix::unistd::mkfifo(&dir.join("1.log"), nix::sys::stat::Mode::S_IRWXU).unwrap();
        for _ in 0..10 {
            logs.append(1, output(&[b'x'; 100_000]));
        }
        logs.append(2, output(b"short"));
        // Takes two pieces out of the pipe, which blocks the writer before and after that.
        let piece = 2 * usize::try_from(delimited_len(&output(&[b'x'; 100_000]))).unwrap();
        let mut pipe = File::open(dir.join("1.log")).unwrap();
        pipe.read_exact(&mut vec![0; 2 * piece]).unwrap();
        let began = Instant::now();
        while std::fs::metadata(dir.join("2.log")).map_or(0, |meta| meta.len()) == 0 {
            assert!(began.elapsed() < Duration::from_secs(10), "the other log waits");
            std::thread::yield_now();
        }
        std::fs::remove_dir_all(dir).unwrap();
    }

    #[tokio::test(flavor = "current_thread")]
    async fn a_follower_reads_from_the_file_what_is_written_and_the_rest_from_memory() {
        let dir = scratch("both");
        let logs = JobLogs::new(dir.clone(), 1 << 30, 0, |_, _| {});
        let mut slow = None;
        for round in 0..100 {
            logs.append(1, output(&[b'x'; 10_000]));
            let slow = slow.get_or_insert_with(|| logs.follow(1).unwrap());
            if round % 7 == 0 {
                settle(&logs);
                assert!(slow.next_if_there().await.is_some());
            }
        }
        logs.append(1, ended());
        let rest = all(slow.unwrap()).await;
        assert_eq!((rest.len(), rest.last()), (101 - 15, Some(&ended())));
        assert_eq!(all(logs.follow(1).unwrap()).await.len(), 101);
        std::fs::remove_dir_all(dir).unwrap();
    }

    #[tokio::test(flavor = "current_thread")]
    async fn the_logs_of_a_user_are_limited_together() {
        let dir = scratch("users");
        let logs = JobLogs::new(dir.clone(), 1 << 20, 400, |_, _| {});
        let submitted = |job, uid| {
            let owner = Some(User { uid, name: "u".into() });
            let body = job_event::Body::Submitted(job_event::Submitted { job, owner, ..Default::default() });
            JobEvent { at_ms: 1, body: Some(body) }
        };
        for (job, uid) in [(1, 1000), (2, 1000), (3, 1001), (4, ROOT)] {
            logs.append(job, submitted(job, uid));
        }
        logs.append(1, output(&[b'x'; 300]));
        for job in 2..=4 {
            logs.append(job, output(&[b'x'; 300]));
            logs.append(job, ended());
        }
        let noted = all(logs.follow(2).unwrap()).await;
        assert!(
            matches!(&noted[1].body, Some(job_event::Body::Notice(text)) if text.contains("users.log")),
            "{noted:?}"
        );
        assert_eq!(all(logs.follow(3).unwrap()).await.len(), 3, "another user");
        assert_eq!(all(logs.follow(4).unwrap()).await.len(), 3, "root");
        (1..=3).for_each(|job| logs.drop_log(job));
        assert!(lock(&logs.of_users).is_empty());
        std::fs::remove_dir_all(dir).unwrap();
    }
}
