//! Renewal of a certificate by its owner: a new one for a new key, over a connection that the present one opens.

use std::time::Duration;

use tonic::metadata::{AsciiMetadataValue, MetadataMap};
use tonic::{Code, Status};

use super::tls::{Own, TlsError, new_key};
use super::{DialError, Target, access_client, dial, exit};
use crate::v1::{Credentials, Enrolled, RenewRequest};

/// The address of the head, in the refusal of a daemon that is not the head.
const HEAD_KEY: &str = "rsd-head";
/// A daemon may name another daemon that is not the head either.
const HOPS_MAX: usize = 4;

/// Why a certificate could not be renewed. The old one stays valid.
#[derive(Debug, thiserror::Error)]
pub enum RenewalError {
    /// No new key.
    #[error(transparent)]
    Key(#[from] TlsError),
    /// The daemon is unreachable.
    #[error("cannot reach the daemon at {0}: {1}")]
    Unreachable(String, DialError),
    /// The daemon has refused.
    #[error("the daemon at {0} refuses: {1}")]
    Refused(String, String),
    /// No answer in time.
    #[error("the daemon at {0} did not answer within {1:?}")]
    TimedOut(String, Duration),
}

/// Whether at most a third of the certificate's life is left.
pub fn is_due(credentials: &Credentials, now_ms: u64) -> bool {
    let life = credentials.until_ms.saturating_sub(credentials.from_ms);
    credentials.until_ms.saturating_sub(now_ms) <= life / 3
}

/// Returns new credentials from the head of the DVM, to which the daemon at `address` belongs. `deadline`: for each daemon.
///
/// # Errors
/// When the head is unreachable or refuses.
pub async fn renew(own: &Own, address: &str, deadline: Duration) -> Result<Credentials, RenewalError> {
    let (key, public_key) = new_key()?;
    let mut address = address.to_owned();
    let mut hops = 1;
    loop {
        let target = Target::Tcp(address.clone(), own.dialer(None));
        let channel = match dial(&target, deadline).await {
            Ok(channel) => channel,
            Err(error) => return Err(RenewalError::Unreachable(address, error)),
        };
        let request = RenewRequest { public_key: public_key.clone().into() };
        match tokio::time::timeout(deadline, access_client(channel).renew(request)).await {
            Ok(Ok(reply)) => {
                let Enrolled { certificate, authority, dvm, node, from_ms, until_ms, head_uid, serves_all } =
                    reply.into_inner();
                return Ok(Credentials {
                    key: key.into(),
                    certificate,
                    authority,
                    dvm,
                    node,
                    from_ms,
                    until_ms,
                    head_uid,
                    serves_all,
                });
            }
            Ok(Err(status)) => match head_of(&status) {
                Some(head) if hops < HOPS_MAX => (address, hops) = (head, hops + 1),
                Some(_) | None => return Err(RenewalError::Refused(address, status.message().to_owned())),
            },
            Err(_) => return Err(RenewalError::TimedOut(address, deadline)),
        }
    }
}

/// Returns the refusal of a daemon that is not the head: the head must see the caller's own certificate.
pub fn not_the_head(head: &str) -> Status {
    let mut metadata = MetadataMap::new();
    metadata.insert("rsd-exit", AsciiMetadataValue::from(u16::from(exit::USAGE)));
    if let Ok(value) = AsciiMetadataValue::try_from(head) {
        metadata.insert(HEAD_KEY, value);
    }
    let text = format!("only the head renews certificates: it is at {head}");
    Status::with_metadata(Code::FailedPrecondition, text, metadata)
}

fn head_of(status: &Status) -> Option<String> {
    status.metadata().get(HEAD_KEY)?.to_str().ok().map(str::to_owned)
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

    #[test]
    fn a_daemon_that_is_not_the_head_names_the_head() {
        assert_eq!(head_of(&not_the_head("node0:7817")), Some("node0:7817".into()));
        assert_eq!(head_of(&Status::internal("broken")), None);
    }
}
