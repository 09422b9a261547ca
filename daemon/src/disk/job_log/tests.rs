//! Logs over real files and pipes.

use std::fs::{File, OpenOptions};
use std::io::Read;
use std::os::unix::fs::OpenOptionsExt;

use prost::Message;
use rsd_proto::v1::{JobInfo, Record, User};

use super::events::delimited_len;
use super::*;

/// No limit of all logs together.
const ALL: Space = Space::Bytes(u64::MAX);

fn output(text: &'static [u8]) -> JobEvent {
    let records = vec![Record { rank: 0, data: text.into(), ..Default::default() }];
    JobEvent {
        at_ms: 1,
        body: Some(job_event::Body::Output(job_event::Output { records, node: 0, job: 0, end: text.len() as u64 })),
        ..Default::default()
    }
}

fn ended() -> JobEvent {
    JobEvent {
        at_ms: 2,
        body: Some(job_event::Body::Ended(JobInfo { job: 1, ..Default::default() })),
        ..Default::default()
    }
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
        events.push(JobEvent { position: 0, ..event });
    }
    events
}

#[tokio::test(flavor = "current_thread")]
async fn a_follower_gets_past_and_new_events_until_the_job_ends() {
    let dir = scratch("follow");
    let logs = Arc::new(JobLogs::new(dir.clone(), 1 << 20, 0, ALL, |_| {}));
    logs.append(1, output(b"before"));
    let follower = tokio::spawn(all(logs.follow(1, 0).unwrap()));
    tokio::task::yield_now().await;
    logs.append(1, output(b"after"));
    logs.append(1, ended());
    assert_eq!(follower.await.unwrap(), [output(b"before"), output(b"after"), ended()]);
    assert_eq!(all(logs.follow(1, 0).unwrap()).await.len(), 3);
    logs.drop_log(1);
    assert!(logs.follow(1, 0).is_none());
    std::fs::remove_dir_all(dir).unwrap();
}

#[tokio::test(flavor = "current_thread")]
async fn a_log_whose_file_is_deleted_while_the_job_runs_stays_complete() {
    let dir = scratch("deleted");
    let logs = JobLogs::new(dir.clone(), 1 << 20, 0, ALL, |_| {});
    logs.append(1, output(b"before"));
    logs.append(2, output(b"other"));
    logs.append(2, ended());
    settle(&logs);
    std::fs::remove_dir_all(&dir).unwrap();
    logs.append(1, output(b"after"));
    assert_eq!(positions(&logs).await[0].1, output(b"before"));
    logs.append(1, ended());
    assert_eq!(all(logs.follow(1, 0).unwrap()).await, [output(b"before"), output(b"after"), ended()]);

    let mut lost = logs.follow(2, 0).unwrap();
    assert_eq!(lost.next().await, None);
    let why = lost.failure().expect("the file is gone");
    assert!(why.starts_with("the rest of the job's output is lost: cannot read "), "{why}");
    lost.ended().await;
}

#[tokio::test(flavor = "current_thread")]
async fn a_log_with_much_to_write_does_not_delay_another_one() {
    let dir = scratch("turns");
    let logs = JobLogs::new(dir.clone(), 1 << 30, 0, ALL, |_| {});
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
async fn the_logs_of_a_user_are_limited_together() {
    let dir = scratch("users");
    let logs = JobLogs::new(dir.clone(), 1 << 20, 400, ALL, |_| {});
    for (job, uid) in [(1, 1000), (2, 1000), (3, 1001), (4, ROOT)] {
        logs.append(job, submitted(job, uid));
    }
    logs.append(1, output(&[b'x'; 300]));
    for job in 2..=4 {
        logs.append(job, output(&[b'x'; 300]));
        logs.append(job, ended());
    }
    let noted = all(logs.follow(2, 0).unwrap()).await;
    assert!(matches!(&noted[1].body, Some(job_event::Body::Notice(text)) if text.contains("users.log")), "{noted:?}");
    assert_eq!(all(logs.follow(3, 0).unwrap()).await.len(), 3, "another user");
    assert_eq!(all(logs.follow(4, 0).unwrap()).await.len(), 3, "root");
    (1..=3).for_each(|job| logs.drop_log(job));
    assert!(lock(&logs.state.of_users).is_empty());
    std::fs::remove_dir_all(dir).unwrap();
}

/// What is lost here.
fn lost(event: &JobEvent) -> Option<u64> {
    match &event.body {
        Some(job_event::Body::Gap(gap)) => Some(gap.bytes),
        _ => None,
    }
}

fn notice(event: &JobEvent) -> &str {
    match &event.body {
        Some(job_event::Body::Notice(text)) => text,
        other => panic!("{other:?}"),
    }
}

#[tokio::test(flavor = "current_thread")]
async fn a_full_log_says_what_is_missing_and_a_follower_that_keeps_up_gets_it() {
    let dir = scratch("full");
    let (told, inputs) = channel();
    let logs = JobLogs::new(dir.clone(), 60, 0, ALL, move |input| told.send(input).unwrap());
    logs.append(1, output(b"fits"));
    let live = tokio::spawn(all(logs.follow(1, 0).unwrap()));
    tokio::task::yield_now().await;
    logs.append(1, output(&[b'x'; 100]));
    logs.append(1, output(b"too late"));
    logs.append(1, ended());
    let live = live.await.unwrap();
    assert_eq!((live.len(), &live[0]), (5, &output(b"fits")));
    assert!(notice(&live[1]).contains("jobs.log_max"), "{live:?}");
    assert_eq!(live[2..], [output(&[b'x'; 100]), output(b"too late"), ended()]);
    settle(&logs);
    let events = all(logs.follow(1, 0).unwrap()).await;
    assert_eq!((events.len(), &events[..2], lost(&events[2]), &events[3]), (4, &live[..2], Some(108), &ended()));
    let last = inputs.try_iter().last();
    assert!(matches!(last, Some(Input::LogWritten { log: 1, events: 4, lost_bytes: 108 })), "{last:?}");
    std::fs::remove_dir_all(dir).unwrap();
}

/// Makes the log of job 1 a FIFO that nobody reads: writes block when it is full.
fn hang(dir: &Path) {
    nix::unistd::mkfifo(&dir.join("1.log"), nix::sys::stat::Mode::S_IRWXU).unwrap();
}

/// Waits until the writer has opened the FIFO: then somebody else can open it for writing only.
fn await_writer(dir: &Path) {
    let open = || OpenOptions::new().write(true).custom_flags(libc::O_NONBLOCK).open(dir.join("1.log"));
    while open().is_err() {
        std::thread::yield_now();
    }
}

#[tokio::test(flavor = "current_thread")]
async fn a_file_system_that_hangs_delays_no_appends_and_is_given_up() {
    let dir = scratch("hung");
    let (told, inputs) = channel();
    let logs = JobLogs::new(dir.clone(), 1 << 30, 0, ALL, move |input| told.send(input).unwrap());
    hang(&dir);
    let began = Instant::now();
    for _ in 0..2 {
        logs.append(1, output(&[b'x'; 100_000]));
    }
    await_writer(&dir);
    logs.append(2, output(b"behind it"));
    let mut follower = logs.follow(1, 0).unwrap();
    assert_eq!(follower.next_if_there().await, None, "what a follower has seen stays");
    assert!(began.elapsed() < PATIENCE, "{:?}", began.elapsed());
    assert_eq!(inputs.try_iter().count(), 0);

    let ends = logs.patience_ends().unwrap();
    logs.give_up_hung(ends - Duration::from_millis(1));
    assert_eq!(follower.next_if_there().await, None, "it may still make progress");
    logs.give_up_hung(ends);
    logs.append(1, ended());
    for _ in 0..2 {
        assert!(matches!(follower.next().await.unwrap().body, Some(job_event::Body::Output(_))));
    }
    let why = follower.next().await.unwrap();
    assert!(notice(&why).contains("nothing was written within 5 s"), "{why:?}");
    assert!(matches!(follower.next().await.unwrap().body, Some(job_event::Body::Ended(_))));
    assert_eq!(follower.next().await, None);
    // A log that begins now waits for nothing.
    logs.append(3, output(b"new"));
    let of_new = logs.follow(3, 0).unwrap().next_if_there().await.unwrap();
    assert_eq!(JobEvent { position: 0, ..of_new }, output(b"new"));
    let written: Vec<(JobId, u64, u64)> = inputs
        .try_iter()
        .filter_map(|input| match input {
            Input::LogWritten { log, events, lost_bytes } => Some((log, events, lost_bytes)),
            _ => None,
        })
        .collect();
    assert_eq!(logs.patience_ends(), None);
    for expected in [(1, 1, 200_000), (1, 3, 200_000), (2, 1, 9), (3, 1, 3)] {
        assert!(written.contains(&expected), "{expected:?} in {written:?}");
    }
    std::fs::remove_dir_all(dir).unwrap();
}

#[tokio::test(flavor = "current_thread")]
async fn a_log_that_could_not_be_written_goes_on_with_a_gap() {
    let dir = scratch("gap");
    let logs = JobLogs::new(dir.clone(), 1 << 30, 0, ALL, |_| {});
    logs.append(1, output(b"kept"));
    settle(&logs);
    lock(&lock(&logs.state.logs)[&1].events).file = None;
    // The writer cannot open a directory for writing.
    std::fs::rename(dir.join("1.log"), dir.join("aside")).unwrap();
    std::fs::create_dir(dir.join("1.log")).unwrap();
    let mut live = logs.follow(1, 0).unwrap();
    logs.append(1, output(b"lost"));
    assert_eq!(live.next().await.map(|event| JobEvent { position: 0, ..event }), Some(output(b"kept")));
    let at = live.next().await.unwrap().position;
    assert!(notice(&live.next().await.unwrap()).contains("cannot write "));
    std::fs::remove_dir(dir.join("1.log")).unwrap();
    std::fs::rename(dir.join("aside"), dir.join("1.log")).unwrap();
    // The pause before the next attempt may not be over.
    let began = Instant::now();
    while lock(&lock(&logs.state.logs)[&1].events).has_failed {
        assert!(began.elapsed() < Duration::from_secs(20), "it is not tried again");
        tokio::task::yield_now().await;
    }
    logs.append(1, output(b"kept again"));
    logs.append(1, ended());
    assert_eq!(all(live).await, [output(b"kept again"), ended()]);
    settle(&logs);
    let events = all(logs.follow(1, 0).unwrap()).await;
    assert_eq!((events.len(), lost(&events[1])), (5, Some(4)));
    assert_eq!(events[3..], [output(b"kept again"), ended()]);
    // One that stopped in the gap hears of it.
    let rest = all(logs.follow(1, at - 1).unwrap()).await;
    assert_eq!((rest.len(), lost(&rest[0])), (4, Some(4)));
    assert_eq!(all(logs.follow(1, at).unwrap()).await.len(), 3);
    std::fs::remove_dir_all(dir).unwrap();
}

#[tokio::test(flavor = "current_thread")]
async fn the_core_hears_what_is_in_the_file_in_few_inputs() {
    let dir = scratch("heard");
    let (told, inputs) = channel();
    let logs = JobLogs::new(dir.clone(), 1 << 30, 0, ALL, move |input| told.send(input).unwrap());
    for _ in 0..4000 {
        logs.append(1, output(&[b'x'; 10_000]));
    }
    settle(&logs);
    let mut written = Vec::new();
    for input in inputs.try_iter() {
        match input {
            Input::LogWritten { log: 1, events, lost_bytes: 0 } => written.push(events),
            other => panic!("{other:?}"),
        }
    }
    assert!(written.is_sorted() && written.last() == Some(&4000) && written.len() < 1000, "{}", written.len());
    std::fs::remove_dir_all(dir).unwrap();
}

#[tokio::test(flavor = "current_thread")]
async fn a_follower_reads_from_the_file_what_is_not_in_memory() {
    let dir = scratch("both");
    let logs = JobLogs::new(dir.clone(), 1 << 30, 0, ALL, |_| {});
    let mut slow = None;
    for round in 0..100 {
        logs.append(1, output(&[b'x'; 10_000]));
        let slow = slow.get_or_insert_with(|| logs.follow(1, 0).unwrap());
        if round % 7 == 0 {
            settle(&logs);
            assert!(slow.next_if_there().await.is_some());
        }
    }
    logs.append(1, ended());
    let rest = all(slow.unwrap()).await;
    assert_eq!((rest.len(), rest.last()), (101 - 15, Some(&ended())));
    assert_eq!(all(logs.follow(1, 0).unwrap()).await.len(), 101);
    std::fs::remove_dir_all(dir).unwrap();
}

fn submitted(job: JobId, uid: u32) -> JobEvent {
    let owner = Some(User { uid, name: "u".into() });
    let body = job_event::Body::Submitted(job_event::Submitted { job, owner, ..Default::default() });
    JobEvent { at_ms: 1, body: Some(body), ..Default::default() }
}

fn of_node(node: u32, job: JobId, end: u64) -> JobEvent {
    let records = vec![Record { data: vec![b'x'; 1000].into(), ..Default::default() }];
    let output = job_event::Output { records, node, job, end };
    JobEvent { at_ms: 1, body: Some(job_event::Body::Output(output)), ..Default::default() }
}

/// Takes every position that followers of job 1 have got so far.
async fn positions(logs: &JobLogs) -> Vec<(u64, JobEvent)> {
    let (mut follower, mut seen) = (logs.follow(1, 0).unwrap(), Vec::new());
    while let Some(event) = follower.next_if_there().await {
        seen.push((event.position, JobEvent { position: 0, ..event }));
    }
    seen
}

#[tokio::test(flavor = "current_thread")]
async fn the_next_head_goes_on_with_the_logs_of_running_jobs() {
    let dir = scratch("restart");
    let logs = JobLogs::new(dir.clone(), 1 << 30, 1 << 30, ALL, |_| {});
    for job in [1, 2, 3] {
        logs.append(job, submitted(job, 1000));
    }
    let appended = [of_node(0, 0, 1000), of_node(4, 0, 1000), of_node(4, 0, 2000), of_node(4, 9, 1000), output(b"y")];
    appended.iter().for_each(|event| logs.append(1, event.clone()));
    logs.append(2, output(b"of 2"));
    logs.append(2, ended());
    settle(&logs);
    let first = positions(&logs).await;
    assert_eq!(first.len(), 6);
    drop(logs);
    // The head was killed while it wrote the last event.
    let path = dir.join("1.log");
    let whole = std::fs::read(&path).unwrap();
    std::fs::write(&path, &whole[..whole.len() - 1]).unwrap();
    std::fs::write(dir.join("2.log"), [std::fs::read(dir.join("2.log")).unwrap(), vec![200]].concat()).unwrap();

    let logs = JobLogs::new(dir.clone(), 1 << 30, 1 << 30, ALL, |_| {});
    let jobs = KeptJobs { alive: [1, 7].into(), ended: [2].into(), ..KeptJobs::default() };
    let logged = logs.restore(&jobs, 1_700_000_000_000);
    let output_ends = [((0, 0), 1000), ((0, 4), 2000), ((9, 4), 1000)];
    assert_eq!(logged, [Logged { job: 1, events: vec![submitted(1, 1000)], output: output_ends.into() }]);
    assert!(!dir.join("3.log").exists() && logs.follow(3, 0).is_none() && logs.follow(7, 0).is_some());
    assert_eq!(all(logs.follow(2, 0).unwrap()).await, [submitted(2, 1000), output(b"of 2"), ended()]);
    assert!(lock(&logs.state.of_users)[&1000] > 4000, "{:?}", logs.state.of_users);

    // One client has seen everything that is left, the other one what was cut off, too.
    let mut clients = [5, 6].map(|seen| logs.follow(1, first[seen - 1].0).unwrap());
    for client in &mut clients {
        assert_eq!(client.next_if_there().await, None);
    }
    logs.append(1, output(b"new"));
    logs.append(1, ended());
    for client in clients {
        assert_eq!(all(client).await, [output(b"new"), ended()]);
    }
    settle(&logs);
    for (position, _) in &first[4..] {
        assert_eq!(all(logs.follow(1, *position).unwrap()).await, [output(b"new"), ended()]);
    }
    let second = positions(&logs).await;
    assert_eq!((second.len(), &second[..5]), (7, &first[..5]));
    assert!(second[5].0 > 1_700_000_000_000 << POSITIONS_PER_MS_BITS);

    // Wherever a client has stopped, it misses nothing and gets nothing twice; also of a log that a third head knows as ended.
    let third = JobLogs::new(dir.clone(), 1 << 30, 1 << 30, ALL, |_| {});
    assert_eq!(
        third.restore(&KeptJobs { alive: [].into(), ended: [1].into(), ..KeptJobs::default() }, 1_700_000_000_001),
        []
    );
    for logs in [&logs, &third] {
        for (at, (position, _)) in second.iter().enumerate() {
            let rest: Vec<JobEvent> = second[at + 1..].iter().map(|(_, event)| event.clone()).collect();
            assert_eq!(all(logs.follow(1, *position).unwrap()).await, rest, "from {at}");
        }
    }
    std::fs::remove_dir_all(dir).unwrap();
}

#[tokio::test(flavor = "current_thread")]
async fn the_log_of_a_job_that_ended_unplaced_is_completed_and_a_complete_one_is_left_alone() {
    let dir = scratch("unplaced");
    let logs = JobLogs::new(dir.clone(), 1 << 20, 0, ALL, |_| {});
    for job in 1..=3 {
        logs.append(job, submitted(job, ROOT));
    }
    logs.append(1, ended());
    settle(&logs);
    // Of the second one, the end is partial; the third has none, and the fourth not even a file.
    let end = ended().encode_length_delimited_to_vec();
    let partial = [std::fs::read(dir.join("2.log")).unwrap(), end[..end.len() - 1].to_vec()].concat();
    std::fs::write(dir.join("2.log"), partial).unwrap();

    let logs = JobLogs::new(dir.clone(), 1 << 20, 0, ALL, |_| {});
    let ended_jobs = KeptJobs { ended: (1..=4).collect(), ended_unplaced: (1..=4).collect(), ..KeptJobs::default() };
    let mut lacking = logs.restore(&ended_jobs, 1_700_000_000_000);
    lacking.sort_by_key(|log| log.job);
    let of = |job, events| Logged { job, events, ..Logged::default() };
    assert_eq!(lacking, [of(2, vec![submitted(2, ROOT)]), of(3, vec![submitted(3, ROOT)]), of(4, vec![])]);
    logs.append(4, submitted(4, ROOT));
    (2..=4).for_each(|job| logs.append(job, ended()));
    settle(&logs);
    for job in 1..=4 {
        assert_eq!(all(logs.follow(job, 0).unwrap()).await, [submitted(job, ROOT), ended()], "{job}");
    }
    let next = JobLogs::new(dir.clone(), 1 << 20, 0, ALL, |_| {});
    assert_eq!(next.restore(&ended_jobs, 1_700_000_000_001), []);
    std::fs::remove_dir_all(dir).unwrap();
}

/// The last number of events of job 1 that the core has heard of.
fn heard(inputs: &std::sync::mpsc::Receiver<Input>) -> u64 {
    let written = |input| match input {
        Input::LogWritten { log: 1, events, .. } => Some(events),
        _ => None,
    };
    inputs.try_iter().filter_map(written).last().unwrap_or(0)
}

#[tokio::test(flavor = "current_thread")]
async fn a_job_waits_for_followers_that_read_what_is_not_kept_and_not_for_others() {
    let dir = scratch("held");
    let (told, inputs) = channel();
    let logs = JobLogs::new(dir.clone(), 0, 0, ALL, move |input| told.send(input).unwrap());
    logs.append(1, submitted(1, ROOT));
    settle(&logs);
    let (mut follower, waiting) = (logs.follow(1, 0).unwrap(), logs.follow(1, 0).unwrap());
    assert!(follower.next().await.is_some());
    for _ in 0..20 {
        logs.append(1, output(&[b'x'; 100_000]));
    }
    settle(&logs);
    assert_eq!(heard(&inputs), 1);
    assert!(notice(&follower.next().await.unwrap()).contains("jobs.log_max"));
    for read in 1..=20 {
        assert!(matches!(follower.next().await.unwrap().body, Some(job_event::Body::Output(_))), "{read}");
    }
    assert_eq!(follower.next_if_there().await, None);
    assert_eq!(heard(&inputs), 21);

    // It stops to read.
    for _ in 0..20 {
        logs.append(1, output(&[b'x'; 100_000]));
    }
    logs.give_up_hung(Instant::now() + Duration::from_secs(29));
    assert_eq!(heard(&inputs), 0, "nothing new");
    logs.give_up_hung(Instant::now() + Duration::from_secs(31));
    assert_eq!(heard(&inputs), 41);
    logs.append(1, ended());
    settle(&logs);
    let rest = all(follower).await;
    let got = rest.len() as u64 - 2;
    assert_eq!((lost(&rest[0]), rest.last()), (Some(2_000_000 - got * 100_000), Some(&ended())));
    assert_eq!(logs.patience_ends(), None);
    drop(waiting);
    std::fs::remove_dir_all(dir).unwrap();
}

#[tokio::test(flavor = "current_thread")]
async fn what_is_not_kept_waits_for_the_client_that_is_about_to_follow() {
    let dir = scratch("expected");
    let (told, inputs) = channel();
    let logs = JobLogs::new(dir.clone(), 60, 0, ALL, move |input| told.send(input).unwrap());
    for job in [1, 2] {
        logs.append(job, output(b"fits"));
    }
    logs.expect_follower(1);
    // More than is kept in memory without a follower.
    for _ in 0..4 {
        (1..=2).for_each(|job| logs.append(job, output(&[b'x'; 100_000])));
    }
    settle(&logs);
    let settled: Vec<(JobId, u64)> = inputs
        .try_iter()
        .filter_map(|input| match input {
            Input::LogWritten { log, events, .. } => Some((log, events)),
            _ => None,
        })
        .collect();
    assert!(settled.contains(&(2, 5)) && settled.iter().all(|(log, events)| *log == 2 || *events == 1), "{settled:?}");
    (1..=2).for_each(|job| logs.append(job, ended()));
    let seen = async |job| all(logs.follow(job, 0).unwrap()).await.iter().filter_map(lost).sum::<u64>();
    assert_eq!((seen(1).await, seen(2).await > 0), (0, true));
    std::fs::remove_dir_all(dir).unwrap();
}

#[tokio::test(flavor = "current_thread")]
async fn the_oldest_logs_of_ended_jobs_make_room_for_new_ones() {
    let dir = scratch("room");
    let logs = JobLogs::new(dir.clone(), 1 << 30, 0, Space::Bytes(1000), |_| {});
    for job in 1..=3 {
        logs.append(job, output(&[b'x'; 300]));
        logs.append(job, ended());
        settle(&logs);
    }
    logs.append(4, output(&[b'x'; 300]));
    settle(&logs);
    let there: Vec<JobId> = (1..=4).filter(|job| logs.follow(*job, 0).is_some()).collect();
    assert_eq!((there, dir.join("1.log").exists()), (vec![2, 3, 4], false));
    logs.append(4, output(&[b'x'; 900]));
    settle(&logs);
    logs.append(4, ended());
    settle(&logs);
    let events = all(logs.follow(4, 0).unwrap()).await;
    assert_eq!((events.len(), lost(&events[1]), &events[3]), (4, Some(900), &ended()));
    assert!(notice(&events[2]).contains("jobs.logs_max"), "{events:?}");
    std::fs::remove_dir_all(dir).unwrap();
}
