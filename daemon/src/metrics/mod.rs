//! Metrics of a daemon as text for Prometheus: those of its core, of its loop ([`pace`]) and of its process ([`process`]). `rsctl metrics`
//! gets them over the daemon's socket, a Prometheus server over HTTP ([`port`]).

pub(crate) mod pace;
pub(crate) mod port;
mod process;

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use rsd_core::metrics::{self, Family};
use rsd_core::rsd::{Answer, Call, Caller, Refused};

use crate::disk::state_dir::StateDir;
use crate::door::Door;

/// How long the sizes of logs may take: the state directory may be on a file server.
const DISK_DEADLINE: Duration = Duration::from_secs(1);

/// What measures a daemon.
#[derive(Debug, Clone)]
pub(crate) struct Meter {
    door: Door,
    jobs: PathBuf,
    log: PathBuf,
    started_ms: u64,
}

impl Meter {
    pub(crate) fn new(door: Door, state_dir: &Arc<StateDir>, started_ms: u64) -> Meter {
        Meter { door, jobs: state_dir.jobs(), log: state_dir.path().join("rsd.log"), started_ms }
    }

    /// Returns the text of all metrics that a caller may see.
    pub(crate) async fn text(&self, caller: Caller) -> Result<String, Refused> {
        let mut families = match self.door.call(caller, Call::Metrics).await {
            Answer::Metrics(families) => families,
            Answer::Refused(refused) => return Err(refused),
            other => {
                let text = format!("internal error: unexpected answer {other:?}");
                return Err(Refused { exit_code: rsd_proto::transport::exit::INTERNAL, text });
            }
        };
        families.extend(self.log_bytes().await);
        families.extend(process::families(self.started_ms));
        Ok(metrics::text(&families))
    }

    /// Returns the sizes of the daemon's logs; nothing, if the disk does not answer.
    async fn log_bytes(&self) -> Option<Family> {
        let (jobs, log) = (self.jobs.clone(), self.log.clone());
        let sizes = tokio::task::spawn_blocking(move || {
            let files = std::fs::read_dir(jobs).into_iter().flatten().flatten();
            let jobs: u64 = files.filter_map(|file| file.metadata().ok()).map(|meta| meta.len()).sum();
            let own = std::fs::metadata(log).map_or(0, |meta| meta.len());
            [("daemon", own as f64), ("jobs", jobs as f64)]
        });
        let sizes = tokio::time::timeout(DISK_DEADLINE, sizes).await.ok()?.ok()?;
        Some(Family::gauges("rsd_log_bytes", "Size of the logs in the state directory.", "log", sizes))
    }
}
