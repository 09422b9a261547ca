//! Ctrl-C and SIGTERM, while a job is followed or a DVM is started. One that comes between two waits counts for the next.

use rsd_proto::transport::exit;
use tokio::signal::unix::{Signal, SignalKind, signal};

use crate::exit::Failure;

/// The two signals, and how often the user has interrupted.
pub(crate) struct Interrupts {
    int: Signal,
    term: Signal,
    stage: Stage,
}

/// What an interrupt requests.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Step {
    /// Cancel the job, with its grace period.
    Cancel,
    /// Kill the job at once.
    Kill,
    /// Exit without waiting for the job.
    Leave,
    /// Nothing: the cancel is in progress.
    Nothing,
}

impl Interrupts {
    /// Handles the signals from now on.
    pub(crate) fn listen() -> Result<Interrupts, Failure> {
        let listen = |kind| {
            signal(kind).map_err(|error| Failure::new(exit::INTERNAL, format!("cannot handle signals: {error}")))
        };
        let (int, term) = (listen(SignalKind::interrupt())?, listen(SignalKind::terminate())?);
        Ok(Interrupts { int, term, stage: Stage::default() })
    }

    /// Waits for the next interrupt.
    pub(crate) async fn next(&mut self) -> Step {
        tokio::select! {
            Some(()) = self.int.recv() => self.stage.on_int(),
            Some(()) = self.term.recv() => self.stage.on_term(),
            else => std::future::pending().await,
        }
    }

    /// Performs `work`. None: an interrupt has come first. The caller may go on with the work.
    pub(crate) async fn unless<T>(&mut self, work: impl Future<Output = T>) -> Option<T> {
        tokio::select! {
            biased;
            _ = self.next() => None,
            done = work => Some(done),
        }
    }

    /// Performs `work` unless an interrupt comes first.
    pub(crate) async fn unless_pressed<T>(
        &mut self,
        work: impl Future<Output = Result<T, Failure>>,
    ) -> Result<T, Failure> {
        tokio::select! {
            result = work => result,
            _ = self.next() => Err(Failure::new(exit::CANCELLED, "interrupted before the job was accepted")),
        }
    }
}

/// The number of interrupts.
#[derive(Debug, Default)]
struct Stage(u32);

impl Stage {
    fn on_int(&mut self) -> Step {
        self.0 += 1;
        match self.0 {
            1 => Step::Cancel,
            2 => Step::Kill,
            _ => Step::Leave,
        }
    }

    /// SIGTERM counts as the first Ctrl-C, once.
    fn on_term(&mut self) -> Step {
        match self.0 {
            0 => self.on_int(),
            _ => Step::Nothing,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_interrupt_cancels_the_second_kills_the_third_exits() {
        let mut stage = Stage::default();
        assert_eq!([stage.on_int(), stage.on_int(), stage.on_int()], [Step::Cancel, Step::Kill, Step::Leave]);
    }

    #[tokio::test]
    async fn an_interrupt_before_the_work_counts() {
        let mut interrupts = Interrupts::listen().unwrap();
        assert_eq!(interrupts.unless(async { 1 }).await, Some(1));
        nix::sys::signal::raise(nix::sys::signal::Signal::SIGINT).unwrap();
        // The signal's handler wakes the runtime, which then tells the listener.
        let patience = std::time::Duration::from_secs(20);
        let work = tokio::time::sleep(patience);
        assert_eq!(interrupts.unless(work).await, None);
    }

    #[test]
    fn term_counts_as_the_first_ctrl_c_only() {
        let mut stage = Stage::default();
        assert_eq!([stage.on_term(), stage.on_term(), stage.on_int()], [Step::Cancel, Step::Nothing, Step::Kill]);
    }
}
