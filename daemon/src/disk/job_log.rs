//! One append-only log per job: the sequence of its events, output included. Output is kept only here. Every client reads the
//! log at its own pace, so a slow client does not delay the others.
//!
//! Events are length-delimited protobuf in `jobs/N.log`. When the file cannot grow (disk full, or the limit of
//! `jobs.log_max`) the head drops output and logs that; the job keeps running, and its other events are kept in memory.

use std::collections::HashMap;
use std::fs::{File, Metadata, OpenOptions};
use std::io::{Read, Seek, SeekFrom, Write};
use std::os::fd::AsRawFd;
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::PathBuf;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use bytes::{Buf, BytesMut};
use prost::Message;
use rsd_core::JobId;
use rsd_proto::v1::{JobEvent, job_event};
use tokio::sync::watch;

/// The superuser, whose logs are not limited together.
const ROOT: u32 = 0;
const READ_BYTES: usize = 128 << 10;

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
}

#[derive(Debug)]
struct Log {
    path: PathBuf,
    /// The user whose share it counts for; None in a DVM that serves one user, and for root.
    user: Option<u32>,
    writer: Mutex<Writer>,
    progress: watch::Sender<Progress>,
}

#[derive(Debug)]
struct Writer {
    /// None once the job has ended or a write has failed.
    file: Option<File>,
    /// Events since the file failed.
    memory: Vec<JobEvent>,
}

#[derive(Debug, Clone, Copy, Default)]
struct Progress {
    file_bytes: u64,
    in_memory: usize,
    ended: bool,
}

impl JobLogs {
    /// Logs in `dir`, of at most `limit_bytes` each and `user_bytes` of a user. Logs of an earlier daemon are deleted.
    pub(crate) fn new(dir: PathBuf, limit_bytes: u64, user_bytes: u64) -> JobLogs {
        for entry in std::fs::read_dir(&dir).into_iter().flatten().flatten() {
            if entry.path().extension().is_some_and(|ending| ending == "log") {
                let _ = std::fs::remove_file(entry.path());
            }
        }
        JobLogs { dir, limit_bytes, user_bytes, logs: Mutex::default(), of_users: Mutex::default() }
    }

    pub(crate) fn append(&self, job: JobId, event: JobEvent) {
        let owner = match &event.body {
            // The first event of every job.
            Some(job_event::Body::Submitted(submitted)) => submitted.owner.as_ref().map(|owner| owner.uid),
            _ => None,
        };
        let user = owner.filter(|uid| *uid != ROOT);
        let log = Arc::clone(lock(&self.logs).entry(job).or_insert_with(|| Arc::new(Log::new(&self.dir, job, user))));
        let room = match log.user {
            Some(user) => self.user_bytes.saturating_sub(lock(&self.of_users).get(&user).copied().unwrap_or(0)),
            None => u64::MAX,
        };
        let added = log.append(event, self.limit_bytes, room);
        if let Some(user) = log.user {
            *lock(&self.of_users).entry(user).or_default() += added;
        }
    }

    pub(crate) fn drop_log(&self, job: JobId) {
        if let Some(log) = lock(&self.logs).remove(&job) {
            // Readers have the file open and do not need its name.
            let _ = std::fs::remove_file(&log.path);
            self.forget_bytes(&log);
        }
    }

    fn forget_bytes(&self, log: &Log) {
        let Some(user) = log.user else { return };
        let mut of_users = lock(&self.of_users);
        if let Some(bytes) = of_users.get_mut(&user) {
            *bytes = bytes.saturating_sub(log.progress.borrow().file_bytes);
            if *bytes == 0 {
                of_users.remove(&user);
            }
        }
    }

    /// Returns a reader of a job's events, from the first event on. None: unknown job.
    pub(crate) fn follow(&self, job: JobId) -> Option<Follower> {
        let log = Arc::clone(lock(&self.logs).get(&job)?);
        let progress = log.progress.subscribe();
        Some(Follower {
            log,
            progress,
            file: None,
            read_bytes: 0,
            buffer: BytesMut::new(),
            from_memory: 0,
            failure: None,
        })
    }
}

impl Log {
    fn new(dir: &std::path::Path, job: JobId, user: Option<u32>) -> Log {
        let path = dir.join(format!("{job}.log"));
        let file = OpenOptions::new().write(true).create(true).truncate(true).mode(0o600).open(&path);
        if let Err(error) = &file {
            tracing::error!(job, %error, path = %path.display(), "cannot create the log of a job: its output is lost");
        }
        let writer = Mutex::new(Writer { file: file.ok(), memory: Vec::new() });
        Log { path, user, writer, progress: watch::Sender::new(Progress::default()) }
    }

    /// Opens the log for reading. While the writer has the file open, this needs no path.
    fn open(&self) -> std::io::Result<File> {
        match &lock(&self.writer).file {
            Some(file) => File::open(format!("/proc/self/fd/{}", file.as_raw_fd())),
            None => File::open(&self.path),
        }
    }

    /// Whether the path still names this file.
    fn names(&self, file: &File) -> bool {
        let inode = |meta: Metadata| (meta.dev(), meta.ino());
        let own = file.metadata().map(inode).ok();
        own.is_some() && own == std::fs::metadata(&self.path).map(inode).ok()
    }

    /// Appends an event; output only within `limit_bytes` of this log and `room` bytes of its user. Returns how many bytes were written.
    fn append(&self, event: JobEvent, limit_bytes: u64, room: u64) -> u64 {
        let ended = matches!(event.body, Some(job_event::Body::Ended(_)));
        let is_output = matches!(event.body, Some(job_event::Body::Output(_)));
        let mut writer = lock(&self.writer);
        let bytes = event.encode_length_delimited_to_vec();
        let written = self.progress.borrow().file_bytes;
        let mut added = 0;
        if let Some(file) = &mut writer.file {
            let fits = !is_output || written + bytes.len() as u64 <= limit_bytes;
            let user_fits = !is_output || bytes.len() as u64 <= room;
            let wrote =
                if fits && user_fits { file.write_all(&bytes) } else { Err(std::io::ErrorKind::FileTooLarge.into()) };
            match wrote {
                Ok(()) => added = bytes.len() as u64,
                Err(error) => {
                    tracing::error!(path = %self.path.display(), %error, "cannot append to a job's log");
                    // A reader must not find a partial event.
                    let _ = file.set_len(written);
                    writer.file = None;
                    let text = match (fits, user_fits) {
                        (true, true) => format!(
                            "output from here on is lost: the head cannot write {}: {error}",
                            self.path.display()
                        ),
                        (true, false) => {
                            "output from here on is not kept: the logs of your jobs have as many bytes as this DVM allows a user \
                             (users.log)"
                                .to_owned()
                        }
                        (false, _) => format!(
                            "output from here on is not kept: the job has written {limit_bytes} bytes (jobs.log_max)"
                        ),
                    };
                    let body = Some(job_event::Body::Notice(text));
                    writer.memory.push(JobEvent { at_ms: event.at_ms, body });
                }
            }
        }
        if added == 0 && !is_output {
            writer.memory.push(event);
        }
        if ended && writer.file.as_ref().is_some_and(|file| self.names(file)) {
            writer.file = None;
        }
        let in_memory = writer.memory.len();
        self.progress.send_modify(|progress| {
            progress.file_bytes += added;
            progress.in_memory = in_memory;
            progress.ended |= ended;
        });
        added
    }
}

/// Reads one job's events in order.
#[derive(Debug)]
pub(crate) struct Follower {
    log: Arc<Log>,
    progress: watch::Receiver<Progress>,
    file: Option<File>,
    read_bytes: u64,
    buffer: BytesMut,
    from_memory: usize,
    failure: Option<String>,
}

impl Follower {
    /// Waits for the next event; None after the last event of a job that has ended.
    pub(crate) async fn next(&mut self) -> Option<JobEvent> {
        loop {
            let progress = *self.progress.borrow_and_update();
            match self.poll(progress) {
                Ok(Some(event)) => return Some(event),
                Ok(None) if progress.ended => return None,
                Ok(None) => {}
                Err(error) => return self.give_up(&error),
            }
            if self.progress.changed().await.is_err() {
                return None; // the log was dropped
            }
        }
    }

    /// Returns the next event if the log already has it.
    pub(crate) fn try_next(&mut self) -> Option<JobEvent> {
        let progress = *self.progress.borrow_and_update();
        self.poll(progress).unwrap_or_else(|error| self.give_up(&error))
    }

    /// Waits until the job has ended, or its log was dropped.
    pub(crate) async fn ended(&mut self) {
        // An error means that the log was dropped.
        let _ = self.progress.wait_for(|progress| progress.ended).await;
    }

    /// Returns why the events stopped before the job's end, if the log could not be read.
    pub(crate) fn failure(&self) -> Option<&str> {
        self.failure.as_deref()
    }

    fn give_up(&mut self, error: &std::io::Error) -> Option<JobEvent> {
        let path = self.log.path.display();
        tracing::error!(%path, %error, "cannot read a job's log");
        self.failure = Some(format!("the rest of the job's output is lost: cannot read {path}: {error}"));
        None
    }

    fn poll(&mut self, progress: Progress) -> std::io::Result<Option<JobEvent>> {
        loop {
            if let Some(event) = take_event(&mut self.buffer)? {
                return Ok(Some(event));
            }
            if self.read_bytes >= progress.file_bytes {
                break;
            }
            self.fill(progress.file_bytes)?;
        }
        let event = lock(&self.log.writer).memory.get(self.from_memory).cloned();
        self.from_memory += usize::from(event.is_some());
        Ok(event)
    }

    fn fill(&mut self, file_bytes: u64) -> std::io::Result<()> {
        let file = match &mut self.file {
            Some(file) => file,
            None => self.file.insert(self.log.open()?),
        };
        let wanted = usize::try_from(file_bytes - self.read_bytes).unwrap_or(READ_BYTES).min(READ_BYTES);
        let have = self.buffer.len();
        self.buffer.resize(have + wanted, 0);
        file.seek(SeekFrom::Start(self.read_bytes))?;
        file.read_exact(&mut self.buffer[have..])?;
        self.read_bytes += wanted as u64;
        Ok(())
    }
}

/// Takes one complete event from the front.
fn take_event(buffer: &mut BytesMut) -> std::io::Result<Option<JobEvent>> {
    let mut peek = &buffer[..];
    let Ok(len) = prost::decode_length_delimiter(&mut peek) else { return Ok(None) };
    let head = buffer.len() - peek.len();
    if peek.len() < len {
        return Ok(None);
    }
    buffer.advance(head);
    let event = buffer.split_to(len).freeze();
    JobEvent::decode(event).map(Some).map_err(std::io::Error::other)
}

/// Ignores poisoning: the data behind these locks is consistent at every point that can panic.
fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use rsd_proto::v1::{JobInfo, Record, User};

    use super::*;

    fn output(text: &'static [u8]) -> JobEvent {
        let records = vec![Record { rank: 0, data: text.into(), ..Default::default() }];
        JobEvent { at_ms: 1, body: Some(job_event::Body::Output(job_event::Output { records })) }
    }

    fn ended() -> JobEvent {
        JobEvent { at_ms: 2, body: Some(job_event::Body::Ended(JobInfo { job: 1, ..Default::default() })) }
    }

    fn scratch(name: &str) -> PathBuf {
        let dir = std::env::temp_dir().join(format!("rsd-job-log-{name}-{}", std::process::id()));
        std::fs::create_dir_all(&dir).unwrap();
        dir
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
        let logs = Arc::new(JobLogs::new(dir.clone(), 1 << 20, 0));
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
        let logs = JobLogs::new(dir.clone(), 1 << 20, 0);
        logs.append(1, output(b"before"));
        logs.append(2, output(b"other"));
        logs.append(2, ended());
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
        let logs = JobLogs::new(dir.clone(), 60, 0);
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
    async fn the_logs_of_a_user_are_limited_together() {
        let dir = scratch("users");
        let logs = JobLogs::new(dir.clone(), 1 << 20, 400);
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
