//! Renewal: when a third of a certificate's life is left, its owner gets another one for a new key. The head signs its own; a
//! joined daemon requests one from the head over a connection that its present certificate opens.

use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context, bail};
use rsd_proto::transport::tls::new_key;
use rsd_proto::transport::{Own, Target, access_client, dial};
use rsd_proto::v1::{Credentials, RenewRequest};
use tracing::{info, warn};

use super::authority::Authority;
use super::enroll;
use crate::clock::unix_ms;
use crate::disk::state_dir::StateDir;

/// How often a daemon checks. The wall clock may jump, so it does not sleep until the time itself.
const CHECK_EVERY: Duration = Duration::from_secs(600);

/// Where a daemon's next certificate comes from.
#[derive(Debug)]
pub(crate) enum Source {
    /// The head's own authority.
    Authority(Arc<Authority>),
    /// The head, at this address; the result is stored.
    Head { address: String, deadline: Duration, state_dir: Arc<StateDir> },
}

/// Renews a daemon's certificate as long as the daemon runs.
pub(crate) async fn keep(own: Own, source: Source, mut credentials: Credentials) {
    loop {
        if is_due(&credentials, unix_ms()) {
            match renewed(&own, &source).await {
                Ok(fresh) => {
                    info!(until_ms = fresh.until_ms, "renewed this daemon's certificate");
                    credentials = fresh;
                }
                Err(error) => warn!(error = format!("{error:#}"), "cannot renew this daemon's certificate"),
            }
        }
        tokio::time::sleep(CHECK_EVERY).await;
    }
}

/// Whether at most a third of the certificate's life is left.
pub(crate) fn is_due(credentials: &Credentials, now_ms: u64) -> bool {
    let life = credentials.until_ms.saturating_sub(credentials.from_ms);
    credentials.until_ms.saturating_sub(now_ms) <= life / 3
}

async fn renewed(own: &Own, source: &Source) -> anyhow::Result<Credentials> {
    let fresh = match source {
        Source::Authority(authority) => authority.for_head(unix_ms())?,
        Source::Head { address, deadline, state_dir } => {
            let (key, public_key) = new_key()?;
            let target = Target::Tcp(address.clone(), own.dialer(None));
            let mut client = access_client(dial(&target, *deadline).await.context("reach the head")?);
            let request = RenewRequest { public_key: public_key.into() };
            let reply = match tokio::time::timeout(*deadline, client.renew(request)).await {
                Ok(reply) => reply.map_err(|status| anyhow::anyhow!("{}", status.message()))?.into_inner(),
                Err(_) => bail!("no answer within {deadline:?}"),
            };
            let fresh = enroll::credentials_of(key, reply);
            state_dir.write_credentials(&fresh)?;
            fresh
        }
    };
    own.replace(&fresh)?;
    Ok(fresh)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_certificate_is_renewed_when_a_third_of_its_life_is_left() {
        let day = 86_400_000;
        let credentials = Credentials { from_ms: 100 * day, until_ms: 130 * day, ..Credentials::default() };
        assert!(!is_due(&credentials, 100 * day));
        assert!(!is_due(&credentials, 120 * day - 1));
        assert!(is_due(&credentials, 120 * day));
        assert!(is_due(&credentials, 131 * day), "also after its end");
    }
}
