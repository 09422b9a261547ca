//! Runs contenders in turn, round after round, so that other load on the machine affects all of them.

use std::os::unix::process::CommandExt;
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::mpsc::RecvTimeoutError;
use std::sync::{Arc, mpsc};
use std::time::{Duration, Instant};

use anyhow::Context;

use super::ROUNDS;
use crate::shell::succeeds;

/// The deadline of a launcher; one that takes longer counts as hung.
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

    /// The time within which 99 % of the runs ended: of fewer than 100 runs, the longest.
    fn most(&self) -> Option<f64> {
        let rank = (self.ms.len() * 99).div_ceil(100);
        self.ms.get(rank.checked_sub(1)?).copied()
    }

    pub(super) fn text(&self) -> String {
        shown(self.median()) + &trouble(self.hung, self.failed)
    }

    /// The text of the time within which 99 % of the runs ended.
    pub(super) fn most_text(&self) -> String {
        shown(self.most())
    }

    /// Adds the times of further runs.
    pub(super) fn extend(&mut self, others: Times) {
        self.ms.extend(others.ms);
        self.ms.sort_by(f64::total_cmp);
        self.hung += others.hung;
        self.failed += others.failed;
    }

    pub(super) fn over(&self, other: &Times) -> String {
        match (self.median(), other.median()) {
            (Some(ours), Some(theirs)) => format!("{:.2}", ours / theirs),
            (None, _) | (_, None) => "–".to_owned(),
        }
    }
}

fn shown(ms: Option<f64>) -> String {
    ms.map_or("–".to_owned(), |ms| if ms < 100.0 { format!("{ms:.1}") } else { format!("{ms:.0}") })
}

/// The number of missing results, printed after the median of the others.
pub(super) fn trouble(hung: usize, failed: usize) -> String {
    let told = |count: usize, what: &str| if count > 0 { format!(" ({what} {count}×)") } else { String::new() };
    told(hung, "hung") + &told(failed, "failed")
}

pub(super) type Contender<'a> = &'a dyn Fn() -> anyhow::Result<Command>;

/// The pause between two timed commands.
const PAUSE: Duration = Duration::from_millis(300);

/// The order of turns: each round forwards and backwards, so that the aftermath of each contender affects each other one.
pub(super) fn turns(contenders: usize, rounds: usize) -> impl Iterator<Item = (usize, usize)> {
    let order = move |round: usize, turn: usize| if round.is_multiple_of(2) { turn } else { contenders - 1 - turn };
    (0..rounds).flat_map(move |round| (0..contenders).map(move |turn| (round, order(round, turn))))
}

/// Times the contenders in turn. The first round is a warm-up and does not count.
pub(super) fn in_turn<const N: usize>(contenders: [Contender<'_>; N]) -> anyhow::Result<[Times; N]> {
    let all = in_turn_for(&contenders, ROUNDS)?;
    Ok(all.try_into().expect("every contender has its times"))
}

/// Like [`in_turn`], with a given number of rounds.
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

/// The result of a timed command.
pub(super) enum Run {
    /// It succeeded in this many milliseconds.
    Took(f64),
    /// It was killed at its deadline.
    Hung,
    /// It exited with a failure.
    Failed,
}

/// Runs a command in its own process group, after a pause: work that one contender leaves behind, such as starting a spare step process
/// of rsd, must not be charged to the next.
pub(super) fn timed(command: &mut Command, deadline: Duration) -> anyhow::Result<Run> {
    timed_after(PAUSE, command, deadline)
}

/// Like [`timed`], with a given pause. Only the command itself is timed.
pub(super) fn timed_after(pause: Duration, command: &mut Command, deadline: Duration) -> anyhow::Result<Run> {
    command.process_group(0).stderr(Stdio::null());
    let group = Arc::new(AtomicU32::new(0));
    let (done, ended) = mpsc::channel::<()>();
    let watched = Arc::clone(&group);
    let watchdog = std::thread::spawn(move || {
        let hung = ended.recv_timeout(pause + deadline) == Err(RecvTimeoutError::Timeout);
        if hung {
            let group = format!("-{}", watched.load(Ordering::Relaxed));
            succeeds(Command::new("kill").args(["-9", "--", &group]));
        }
        hung
    });
    std::thread::sleep(pause);
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
