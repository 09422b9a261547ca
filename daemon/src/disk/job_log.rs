//! One append-only log per job: the sequence of its events, output included. Every client reads the log at its own pace, so a slow
//! client does not delay the others.
//!
//! Events are length-delimited protobuf in `jobs/N.log`, which outlives the daemon ([`past`] reads what is there). A thread of its own
//! writes the files ([`writer`]), and clients' reads of files are done by tokio's blocking threads ([`follower`]): a slow or hung file
//! system delays neither the daemon's thread nor other jobs. Followers see an event when it is in the file, so what a client has seen is
//! there after a restart; they find the last events in memory ([`events`]). The core hears how many events are in the file, and
//! acknowledges only their output to the steps: the ranks of a job whose log is written slowly wait, and no others.
//!
//! Where standbys of the head have copies ([`copied`]), followers see an event when those have it too.
//!
//! When the file cannot grow (disk full, a limit, or a file system that does not answer) output is not kept: followers that keep up still
//! get it, and the file has a gap, which says how much is missing. The other events are kept in memory until the file can be written.

mod copied;
mod events;
mod follower;
mod past;
mod room;
#[cfg(test)]
mod tests;
mod writer;

use std::collections::{BTreeSet, HashMap};
use std::path::{Path, PathBuf};
use std::sync::mpsc::{Sender, channel};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use rsd_config::settings::Space;
use rsd_core::JobId;
use rsd_core::rsd::{Input, KeptJobs, Logged};
use rsd_proto::v1::{JobEvent, job_event};
use tokio::sync::watch;

pub(crate) use copied::Change;
use events::{Appended, Events};
pub(crate) use follower::Follower;
use room::Room;

/// The superuser, whose logs are not limited together.
const ROOT: u32 = 0;
/// How much a follower reads at once, and about how much is written at once.
const PIECE_BYTES: usize = 128 << 10;
/// How much of a log's end is kept in memory, for those that follow it and for those that may soon.
const FOLLOWED_BYTES: u64 = 256 << 10;
const UNFOLLOWED_BYTES: u64 = 16 << 10;
/// How long a log waits for a file system that writes nothing, of any log.
const PATIENCE: Duration = Duration::from_secs(5);
/// How often jobs that wait for followers are looked at.
const LOOK: Duration = Duration::from_secs(1);
/// Two to this power is more than the bytes that a log gets in a millisecond.
const POSITIONS_PER_MS_BITS: u32 = 20;

/// The logs of a head.
#[derive(Debug)]
pub(crate) struct JobLogs {
    dir: PathBuf,
    limit_bytes: u64,
    /// The most bytes of all logs of a user, except root.
    user_bytes: u64,
    writer: Sender<Work>,
    state: Arc<State>,
}

/// What the daemon's thread and the writer share.
struct State {
    logs: Mutex<HashMap<JobId, Arc<Log>>>,
    /// The bytes of the logs of each user, by uid.
    of_users: Mutex<HashMap<u32, u64>>,
    room: Room,
    /// The logs whose jobs wait for followers.
    held: Mutex<BTreeSet<JobId>>,
    busy: Mutex<Busy>,
    /// Passes an input to the core. It must not wait.
    tell: Box<dyn Fn(Input) + Send + Sync>,
    /// What standbys are told, and whether followers wait for them.
    copies: copied::Copied,
}

/// Whether the writer works.
#[derive(Debug, Clone, Copy, Default)]
struct Busy {
    /// Since when it has been at one piece of work; None: it has none.
    since: Option<Instant>,
    /// Whether this piece has lasted too long, and no log waits for it any more.
    is_given_up: bool,
}

impl std::fmt::Debug for State {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("State").field("busy", &lock(&self.busy)).finish_non_exhaustive()
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
}

#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
struct Progress {
    /// The position up to which followers may read.
    seen: u64,
    /// Whether that is the end of the log.
    ended: bool,
}

impl JobLogs {
    /// Logs in `dir`, of at most `limit_bytes` each, `user_bytes` of a user and `most` in all. `tell` gets the inputs for the core.
    pub(crate) fn new(
        dir: PathBuf,
        limit_bytes: u64,
        user_bytes: u64,
        most: Space,
        tell: impl Fn(Input) + Send + Sync + 'static,
    ) -> JobLogs {
        let (writer, work) = channel();
        let state = Arc::new(State {
            logs: Mutex::default(),
            of_users: Mutex::default(),
            room: Room::new(dir.clone(), most),
            held: Mutex::default(),
            busy: Mutex::default(),
            tell: Box::new(tell),
            copies: copied::Copied::default(),
        });
        let of_writer = Arc::clone(&state);
        let thread = std::thread::Builder::new().name("job-logs".into()).stack_size(128 << 10);
        if let Err(error) = thread.spawn(move || writer::write_all(&work, &of_writer)) {
            tracing::error!(%error, "cannot start the thread that writes job logs: jobs' output is lost");
        }
        JobLogs { dir, limit_bytes, user_bytes, writer, state }
    }

    /// Takes over the logs that an earlier head left, and deletes those of other jobs. Returns what the core must know: of the jobs that
    /// have not ended, and of those whose logs lack the end.
    pub(crate) fn restore(&self, jobs: &KeptJobs, now_ms: u64) -> Vec<Logged> {
        let mut logged = Vec::new();
        for entry in std::fs::read_dir(&self.dir).into_iter().flatten().flatten() {
            let path = entry.path();
            if path.extension().is_none_or(|ending| ending != "log") {
                continue;
            }
            let job = path.file_stem().and_then(|stem| stem.to_str()).and_then(|stem| stem.parse::<JobId>().ok());
            match job {
                Some(job) if jobs.alive.contains(&job) => logged.extend(self.restore_log(&path, job, now_ms)),
                Some(job) if jobs.ended_unplaced.contains(&job) && !past::has_ended(&path) => {
                    logged.extend(self.restore_log(&path, job, now_ms));
                }
                Some(job) if jobs.ended.contains(&job) => {
                    let bytes = entry.metadata().map_or(0, |meta| meta.len());
                    self.add(job, past::uid(&path), Events::unread(bytes));
                }
                Some(_) | None => drop(std::fs::remove_file(&path)),
            }
        }
        for job in jobs.alive.iter().chain(&jobs.ended_unplaced) {
            if !lock(&self.state.logs).contains_key(job) {
                self.add(*job, None, Events::after(events::FileContents::default(), now_ms << POSITIONS_PER_MS_BITS));
                if !jobs.alive.contains(job) {
                    logged.push(Logged { job: *job, ..Logged::default() });
                }
            }
        }
        logged
    }

    fn restore_log(&self, path: &Path, job: JobId, now_ms: u64) -> Option<Logged> {
        match past::read(path, job) {
            Ok(past) => {
                let lost_bytes = past.contents.lost_bytes;
                self.add(job, past.uid, Events::after(past.contents, now_ms << POSITIONS_PER_MS_BITS));
                if lost_bytes > 0 {
                    (self.state.tell)(Input::LogWritten { log: job, events: 0, lost_bytes });
                }
                Some(past.logged)
            }
            Err(error) => {
                tracing::error!(path = %path.display(), %error, "cannot read the log of a running job: put aside as .unread");
                let _ = std::fs::rename(path, path.with_extension("unread"));
                None
            }
        }
    }

    fn add(&self, job: JobId, uid: Option<u32>, events: Events) {
        let user = uid.filter(|uid| *uid != ROOT);
        self.state.room.take(events.file_bytes());
        if let Some(user) = user {
            *lock(&self.state.of_users).entry(user).or_default() += events.counted_bytes;
        }
        lock(&self.state.logs).insert(job, Arc::new(Log::new(&self.dir, job, user, &self.state, events)));
    }

    /// Returns when [`JobLogs::give_up_hung`] must be called, if neither the writer nor a follower makes progress until then; None while
    /// nothing waits for them.
    pub(crate) fn patience_ends(&self) -> Option<Instant> {
        let Busy { since, is_given_up } = *lock(&self.state.busy);
        let of_writer = since.filter(|_| !is_given_up).map(|since| since + PATIENCE);
        let of_followers = (!lock(&self.state.held).is_empty()).then(|| Instant::now() + LOOK);
        of_writer.into_iter().chain(of_followers).min()
    }

    /// Gives up what the logs cannot write, if the file system has written nothing for too long. Their jobs go on.
    pub(crate) fn give_up_hung(&self, now: Instant) {
        let held: Vec<JobId> = lock(&self.state.held).iter().copied().collect();
        for log in held {
            let log = lock(&self.state.logs).get(&log).cloned();
            log.iter().for_each(|log| log.settle(&mut lock(&log.events), now));
        }
        {
            let mut busy = lock(&self.state.busy);
            if busy.is_given_up || busy.since.is_none_or(|since| since + PATIENCE > now) {
                return;
            }
            busy.is_given_up = true;
        }
        let all: Vec<Arc<Log>> = lock(&self.state.logs).values().cloned().collect();
        for log in all.iter().filter(|log| lock(&log.events).waiting_bytes() > 0) {
            tracing::error!(path = %log.path.display(), "the file system does not write a job's log");
            log.fail_hung();
        }
    }

    pub(crate) fn append(&self, job: JobId, event: JobEvent) {
        let owner = match &event.body {
            // The first event of every job.
            Some(job_event::Body::Submitted(submitted)) => submitted.owner.as_ref().map(|owner| owner.uid),
            _ => None,
        };
        let user = owner.filter(|uid| *uid != ROOT);
        let fresh = || Events::of_new_log(self.state.copies.of_new_log());
        let new = || Arc::new(Log::new(&self.dir, job, user, &self.state, fresh()));
        let log = Arc::clone(lock(&self.state.logs).entry(job).or_insert_with(new));
        let room = match log.user {
            Some(user) => self.user_bytes.saturating_sub(lock(&self.state.of_users).get(&user).copied().unwrap_or(0)),
            None => u64::MAX,
        };
        let Appended { bytes, needs_task } = log.append(event, self.limit_bytes, room);
        if let Some(user) = log.user {
            *lock(&self.state.of_users).entry(user).or_default() += bytes;
        }
        if needs_task && self.writer.send(Work::Write(Arc::clone(&log))).is_err() {
            log.fail("the thread that writes logs has ended");
        } else if lock(&self.state.busy).is_given_up {
            log.fail_hung();
        }
    }

    /// Notes that the client who has submitted a job is about to follow it: what is not kept waits for it, too.
    pub(crate) fn expect_follower(&self, job: JobId) {
        if let Some(log) = lock(&self.state.logs).get(&job) {
            lock(&log.events).expect_reader(Instant::now());
        }
    }

    pub(crate) fn drop_log(&self, job: JobId) {
        if let Some(log) = self.state.forget(job) {
            let _ = self.writer.send(Work::Remove(log)); // without a thread there is no file
        }
    }

    /// Returns a reader of a job's events from this position on (0: the first). None: unknown job.
    pub(crate) fn follow(&self, job: JobId, from: u64) -> Option<Follower> {
        let log = Arc::clone(lock(&self.state.logs).get(&job)?);
        Some(Follower::new(log, from))
    }
}

impl State {
    /// Forgets a log; its file is still there.
    fn forget(&self, job: JobId) -> Option<Arc<Log>> {
        let log = lock(&self.logs).remove(&job)?;
        lock(&self.held).remove(&job);
        self.copies.tell(Change::Gone(job));
        if let Some(user) = log.user {
            let mut of_users = lock(&self.of_users);
            if let Some(bytes) = of_users.get_mut(&user) {
                *bytes = bytes.saturating_sub(lock(&log.events).counted_bytes);
                if *bytes == 0 {
                    of_users.remove(&user);
                }
            }
        }
        Some(log)
    }

    /// Returns the log of the oldest job that has ended.
    fn oldest_ended(&self) -> Option<JobId> {
        let logs = lock(&self.logs);
        logs.values().filter(|log| lock(&log.events).is_complete()).map(|log| log.job).min()
    }
}

impl Log {
    fn new(dir: &Path, job: JobId, user: Option<u32>, state: &Arc<State>, events: Events) -> Log {
        let path = dir.join(format!("{job}.log"));
        let progress = watch::Sender::new(progress_of(&events));
        Log { job, path, user, events: Mutex::new(events), progress, state: Arc::clone(state) }
    }

    /// Adds an event; output only within `limit_bytes` of this log and `room` bytes of its user.
    fn append(self: &Arc<Self>, event: JobEvent, limit_bytes: u64, room: u64) -> Appended {
        let mut events = lock(&self.events);
        let appended = events.append(event, limit_bytes, room);
        self.settle(&mut events, Instant::now());
        appended
    }

    /// Tells followers and the core what they may count on now.
    fn settle(&self, events: &mut Events, now: Instant) {
        let progress = progress_of(events);
        self.progress.send_if_modified(|before| std::mem::replace(before, progress) != progress);
        events.watch_readers(now);
        let settled = events.settled(now);
        if settled > events.told {
            events.told = settled;
            let (log, lost_bytes) = (self.job, events.lost_bytes);
            (self.state.tell)(Input::LogWritten { log, events: settled, lost_bytes });
        }
        let is_held = events.is_held(now);
        if is_held != std::mem::replace(&mut events.was_held, is_held) {
            let mut held = lock(&self.state.held);
            if is_held {
                held.insert(self.job)
            } else {
                held.remove(&self.job)
            };
        }
        let is_followed = self.progress.receiver_count() > 0;
        let keep_bytes = match (is_followed, progress.ended) {
            (true, _) => FOLLOWED_BYTES,
            (false, false) => UNFOLLOWED_BYTES,
            (false, true) => 0,
        };
        events.trim(keep_bytes, now);
    }

    /// Handles that a follower leaves, which still counts. `reader`: its number, if it has read.
    fn leave(&self, reader: Option<u64>) {
        let (mut events, now) = (lock(&self.events), Instant::now());
        if let Some(reader) = reader {
            events.remove_reader(reader);
            self.settle(&mut events, now);
        }
        if self.progress.receiver_count() <= 1 && progress_of(&events).ended {
            events.trim(0, now);
        }
    }

    /// Gives up the output that is not written, and further output until something can be written again.
    fn fail(&self, why: &str) -> bool {
        let mut events = lock(&self.events);
        let text = format!("output from here on is not kept: the head cannot write {}: {why}", self.path.display());
        let is_news = events.fail(text);
        self.settle(&mut events, Instant::now());
        is_news
    }

    /// Gives up output for good, because there is no room for it.
    fn fill(&self) {
        let mut events = lock(&self.events);
        let text = "output from here on is not kept: the logs have as much room as this DVM allows (jobs.logs_max), or their disk is almost full";
        events.fill(text.to_owned());
        self.settle(&mut events, Instant::now());
    }

    fn fail_hung(&self) {
        self.fail(&format!("nothing was written within {} s", PATIENCE.as_secs()));
    }
}

fn progress_of(events: &Events) -> Progress {
    let seen = events.seen();
    Progress { seen, ended: events.has_ended && seen == events.end() }
}

/// Ignores poisoning: the data behind these locks is consistent at every point that can panic.
fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
