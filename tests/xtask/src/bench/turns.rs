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
#[derive(Default)]
pub(super) struct Times {
    ms: Vec<f64>,
    hung: usize,
    failed: usize,
}

impl Times {
    fn median(&self) -> Option<f64> {
        self.ms.get(self.ms.len() / 2).copied()
    }

    pub(super) fn text(&self) -> String {
        let median =
            self.median().map_or("–".to_owned(), |ms| if ms < 100.0 { format!("{ms:.1}") } else { format!("{ms:.0}") });
        let trouble = |count: usize, what: &str| if count > 0 { format!(" ({what} {count}×)") } else { String::new() };
        median + &trouble(self.hung, "hung") + &trouble(self.failed, "failed")
    }

    pub(super) fn over(&self, other: &Times) -> String {
        match (self.median(), other.median()) {
            (Some(ours), Some(theirs)) => format!("{:.2}", ours / theirs),
            (None, _) | (_, None) => "–".to_owned(),
        }
    }
}

pub(super) type Contender<'a> = &'a dyn Fn() -> anyhow::Result<Command>;

/// Between two timed commands.
const PAUSE: Duration = Duration::from_millis(300);

/// Runs the contenders in turn, forwards and backwards: what one leaves behind it meets each of the others. The first round warms
/// up and does not count.
pub(super) fn in_turn<const N: usize>(contenders: [Contender<'_>; N]) -> anyhow::Result<[Times; N]> {
    let mut all: [Times; N] = std::array::from_fn(|_| Times::default());
    for round in 0..=ROUNDS {
        let forwards = 0..N;
        let order: Vec<usize> = if round % 2 == 0 { forwards.collect() } else { forwards.rev().collect() };
        for at in order {
            let (contender, times) = (&contenders[at], &mut all[at]);
            match timed(contender()?)? {
                _ if round == 0 => {}
                Run::Took(ms) => times.ms.push(ms),
                Run::Hung => times.hung += 1,
                Run::Failed => times.failed += 1,
            }
        }
    }
    all.iter_mut().for_each(|times| times.ms.sort_by(f64::total_cmp));
    Ok(all)
}

enum Run {
    Took(f64),
    Hung,
    Failed,
}

/// Runs a command in a process group of its own, after a pause. Nothing but the command happens in the time that is measured.
fn timed(mut command: Command) -> anyhow::Result<Run> {
    command.process_group(0).stdout(Stdio::null()).stderr(Stdio::null());
    let group = Arc::new(AtomicU32::new(0));
    let (done, ended) = mpsc::channel::<()>();
    let watched = Arc::clone(&group);
    let watchdog = std::thread::spawn(move || {
        let hung = ended.recv_timeout(PAUSE + DEADLINE) == Err(RecvTimeoutError::Timeout);
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
