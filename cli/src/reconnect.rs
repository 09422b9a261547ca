//! A daemon that was lost and is back: the head was killed and started again, or the machine's daemons are being upgraded. Commands that
//! follow or wait for something go on where they stopped.

use std::time::{Duration, Instant};

use rsd_proto::transport::{dvm_client, exit, observe_client};
use tonic::transport::Channel;

use crate::dvm::{Client, Dvm, Observer};
use crate::exit::Failure;
use crate::print::{duration, say};

/// How long a command looks for a daemon that it has lost, unless the user says so.
pub(crate) const PATIENCE: Duration = Duration::from_secs(5 * 60);
/// The pauses between attempts: the first, which doubles after each failure, and the longest.
const PAUSE: Duration = Duration::from_millis(20);
const PAUSE_MAX: Duration = Duration::from_secs(1);

/// A connection to a daemon, and the way to a new one.
pub(crate) struct Contact<'a, C = Client> {
    pub(crate) client: C,
    dvm: &'a Dvm,
    patience: Duration,
    /// Makes a client of a new connection.
    client_on: fn(Channel) -> C,
    /// Whether the user is told that the daemon is lost or back.
    tells: bool,
}

impl<'a> Contact<'a> {
    /// A connection of this client. With a `patience` of zero it is not made again.
    pub(crate) fn new(dvm: &'a Dvm, client: Client, patience: Duration) -> Contact<'a> {
        Contact::of(dvm, client, patience, dvm_client)
    }
}

impl<'a> Contact<'a, Observer> {
    /// The same, to watch the DVM.
    pub(crate) fn to_watch(dvm: &'a Dvm, client: Observer, patience: Duration) -> Contact<'a, Observer> {
        Contact::of(dvm, client, patience, observe_client)
    }
}

impl<'a, C> Contact<'a, C> {
    /// The same, of a client that `client_on` makes of a connection.
    pub(crate) fn of(dvm: &'a Dvm, client: C, patience: Duration, client_on: fn(Channel) -> C) -> Contact<'a, C> {
        Contact { client, dvm, patience, client_on, tells: !dvm.is_quiet() }
    }

    /// The same, without telling the user: the caller does that.
    pub(crate) fn silent(self) -> Contact<'a, C> {
        Contact { tells: false, ..self }
    }

    pub(crate) fn patience(&self) -> Duration {
        self.patience
    }

    /// Performs `attempt`, and repeats it when the daemon is lost meanwhile.
    pub(crate) async fn keep<T>(&mut self, attempt: impl AsyncFn(&mut C) -> Result<T, Failure>) -> Result<T, Failure> {
        match attempt(&mut self.client).await {
            Ok(done) => Ok(done),
            Err(failure) => self.again(failure, attempt).await,
        }
    }

    /// Handles that a call has failed: if the daemon is lost, looks for it and performs `attempt` when it is back.
    ///
    /// # Errors
    /// `failure`, if it is a refusal or nothing is to be repeated; what went wrong last, if the daemon does not come back in time.
    pub(crate) async fn again<T>(
        &mut self,
        failure: Failure,
        attempt: impl AsyncFn(&mut C) -> Result<T, Failure>,
    ) -> Result<T, Failure> {
        if self.patience.is_zero() || !failure.is_unreachable() {
            return Err(failure);
        }
        let patience = short(self.patience);
        self.tell(&format!("{}; trying again for {patience}", failure.text));
        let (end, mut pause) = (Instant::now() + self.patience, PAUSE);
        loop {
            let left = end.saturating_duration_since(Instant::now());
            let tried = async {
                let mut client = (self.client_on)(self.dvm.channel_again().await?);
                let done = attempt(&mut client).await?;
                Ok::<_, Failure>((client, done))
            };
            match tried.await {
                Ok((client, done)) => {
                    self.client = client;
                    self.tell("the daemon is back");
                    return Ok(done);
                }
                Err(last) if !matches!(last.code, exit::UNREACHABLE | exit::NO_DAEMON) => {
                    return Err(Failure { text: format!("the daemon is back: {}", last.text), ..last });
                }
                Err(_) if left.is_zero() => {
                    let text = format!("{}; it did not come back within {patience}", failure.text);
                    return Err(Failure { text, ..failure });
                }
                Err(_) => tokio::time::sleep(pause.min(left)).await,
            }
            pause = (pause * 2).min(PAUSE_MAX);
        }
    }

    fn tell(&self, text: &str) {
        if self.tells {
            say(text);
        }
    }
}

/// Returns a time as a user would type it: `5m`.
fn short(time: Duration) -> String {
    match time.as_secs() {
        seconds if seconds >= 60 && seconds % 60 == 0 => format!("{}m", seconds / 60),
        _ => duration(u64::try_from(time.as_millis()).unwrap_or(u64::MAX)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_are_short() {
        let times = [300_000, 60_000, 90_000, 7_200_000, 12_000, 1_500].map(|ms| short(Duration::from_millis(ms)));
        assert_eq!(times, ["5m", "1m", "1m30s", "120m", "12s", "1.5s"]);
    }
}
