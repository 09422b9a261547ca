//! Contenders in turn, round after round: what happens on the machine happens to all of them.

use std::os::unix::process::CommandExt;
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::mpsc::RecvTimeoutError;
use std::sync::{Arc, mpsc};
use std::time::{Duration, Instant};

use anyhow::Context;

use super::ROUNDS;
use crate::shell::succeeds;

/// A launcher that takes longer hangs.
const DEADLINE: Duration = Duration::from_secs(30);

/// The times of one contender, sorted, and how often it hung or failed.
#[derive(Debug, Default)]
pub(super) struct Times {
    ms: Vec<f64>,
    hung: usize,
    failed: usize,
}

impl Times {
    pub(super) fn median(&self) -> Option<f64> {
        self.ms.get(self.ms.len() / 2).copied()
    }

    pub(super) fn text(&self) -> String {
        let median =
            self.median().map_or("–".to_owned(), |ms| if ms < 100.0 { format!("{ms:.1}") } else { format!("{ms:.0}") });
        median + &trouble(self.hung, self.failed)
    }

    pub(super) fn over(&self, other: &Times) -> String {
        match (self.median(), other.median()) {
            (Some(ours), Some(theirs)) => format!("{:.2}", ours / theirs),
            (None, _) | (_, None) => "–".to_owned(),
        }
    }
}

/// How often there was no result, to be put behind the median of the others.
pub(super) fn trouble(hung: usize, failed: usize) -> String {
    let told = |count: usize, what: &str| if count > 0 { format!(" ({what} {count}×)") } else { String::new() };
    told(hung, "hung") + &told(failed, "failed")
}

pub(super) type Contender<'a> = &'a dyn Fn() -> anyhow::Result<Command>;

/// Between two timed commands.
const PAUSE: Duration = Duration::from_millis(300);

/// Who has the turn, round after round, forwards and backwards: what one leaves behind it meets each of the others.
pub(super) fn turns(contenders: usize, rounds: usize) -> impl Iterator<Item = (usize, usize)> {
    let order = move |round: usize, turn: usize| if round.is_multiple_of(2) { turn } else { contenders - 1 - turn };
    (0..rounds).flat_map(move |round| (0..contenders).map(move |turn| (round, order(round, turn))))
}

/// Times the contenders in turn. The first round warms up and does not count.
pub(super) fn in_turn<const N: usize>(contenders: [Contender<'_>; N]) -> anyhow::Result<[Times; N]> {
    let all = in_turn_for(&contenders, ROUNDS)?;
    Ok(all.try_into().expect("there are as many times as contenders"))
}

/// The same, with as many rounds as are wanted.
pub(super) fn in_turn_for(contenders: &[Contender<'_>], rounds: usize) -> anyhow::Result<Vec<Times>> {
    let mut all: Vec<Times> = contenders.iter().map(|_| Times::default()).collect();
    for (round, at) in turns(contenders.len(), rounds + 1) {
        let (contender, times) = (&contenders[at], &mut all[at]);
        match timed(contender()?.stdout(Stdio::null()), DEADLINE)? {
            _ if round == 0 => {}
            Run::Took(ms) => times.ms.push(ms),
            Run::Hung => times.hung += 1,
            Run::Failed => times.failed += 1,
        }
    }
    all.iter_mut().for_each(|times| times.ms.sort_by(f64::total_cmp));
    Ok(all)
}

/// How a command went.
pub(super) enum Run {
    /// Successfully, in so many milliseconds.
    Took(f64),
    /// It was killed at its deadline.
    Hung,
    /// By itself, but not well.
    Failed,
}

/// Runs a command in a process group of its own, after a pause. Nothing but the command happens in the time that is measured.
pub(super) fn timed(command: &mut Command, deadline: Duration) -> anyhow::Result<Run> {
    command.process_group(0).stderr(Stdio::null());
    let group = Arc::new(AtomicU32::new(0));
    let (done, ended) = mpsc::channel::<()>();
    let watched = Arc::clone(&group);
    let watchdog = std::thread::spawn(move || {
        let hung = ended.recv_timeout(PAUSE + deadline) == Err(RecvTimeoutError::Timeout);
        if hung {
            let group = format!("-{}", watched.load(Ordering::Relaxed));
            succeeds(Command::new("kill").args(["-9", "--", &group]));
        }
        hung
    });
    // What one leaves to be done behind it, such as our daemon's next step in reserve, must not cost the other.
    std::thread::sleep(PAUSE);
    let since = Instant::now();
    let mut child = command.spawn().with_context(|| format!("start {}", command.get_program().display()))?;
    group.store(child.id(), Ordering::Relaxed);
    let status = child.wait()?;
    let took = since.elapsed();
    drop(done);
    Ok(match watchdog.join() {
        Ok(false) if status.success() => Run::Took(took.as_secs_f64() * 1e3),
        Ok(false) => Run::Failed,
        Ok(true) | Err(_) => Run::Hung,
    })
}
