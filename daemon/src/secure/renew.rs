//! Renewal: when a third of a certificate's life is left, its owner gets another one for a new key. The head signs its own; a
//! joined daemon requests one from the head over a connection that its present certificate opens.

use std::sync::Arc;
use std::time::Duration;

use rsd_proto::transport::{Own, renewal};
use rsd_proto::v1::Credentials;
use tracing::{error, info, warn};

use super::authority::Authority;
use crate::clock::unix_ms;
use crate::disk::state_dir::StateDir;
use crate::way_up::WayUp;

/// How often a daemon checks. The wall clock may jump, so it does not sleep until the time itself.
const CHECK_EVERY: Duration = Duration::from_secs(600);

/// Where a daemon's next certificate comes from.
#[derive(Debug)]
pub(crate) enum Source {
    /// The head's own authority.
    Authority(Arc<Authority>),
    /// The head; the result is stored.
    Head { way_up: WayUp, state_dir: Arc<StateDir> },
}

/// Renews a daemon's certificate as long as the daemon runs.
pub(crate) async fn keep(own: Own, source: Source, mut credentials: Credentials) {
    loop {
        if renewal::is_due(&credentials, unix_ms()) {
            match renewed(&own, &source).await {
                Ok(fresh) => {
                    info!(until_ms = fresh.until_ms, "renewed this daemon's certificate");
                    credentials = fresh;
                }
                Err(error) if credentials.until_ms <= unix_ms() => error!(
                    error = format!("{error:#}"),
                    "this daemon's certificate has expired, and without a valid one it cannot get another: make a token on the \
                     head's machine (rsd token new), and start this daemon again with --token-file"
                ),
                Err(error) => warn!(error = format!("{error:#}"), "cannot renew this daemon's certificate"),
            }
        }
        tokio::time::sleep(CHECK_EVERY).await;
    }
}

async fn renewed(own: &Own, source: &Source) -> anyhow::Result<Credentials> {
    let fresh = match source {
        Source::Authority(authority) => authority.for_head(unix_ms())?,
        Source::Head { way_up, state_dir } => {
            let fresh = renewal::renew(own, &way_up.address(), way_up.deadline()).await?;
            // What cannot be used must not be what a restart finds.
            own.replace(&fresh)?;
            state_dir.write_credentials(&fresh)?;
            return Ok(fresh);
        }
    };
    own.replace(&fresh)?;
    Ok(fresh)
}
