//! `rsctl login`: a user on another machine gets a certificate for a DVM, which later commands show.

use std::fs;
use std::io;
use std::path::Path;
use std::time::Duration;

use rsd_proto::transport::tls::{Distrust, TlsError, new_key};
use rsd_proto::transport::token::{InvalidToken, Token};
use rsd_proto::transport::{self, DialError, Dialer, Target, exit};
use rsd_proto::v1::{Credentials, EnrollRequest, Enrolled};

use crate::dvm::{DEADLINE_OF_EACH, answer};
use crate::exit::Failure;
use crate::logins::{addresses, now_ms, store};
use crate::print;

/// Exchanges a token for a certificate at the first of these addresses that answers, and stores it for all of them.
pub(crate) async fn login(word: &str, token: Option<&str>, file: Option<&Path>, json: bool) -> Result<u8, Failure> {
    let token: Token = match (token, file) {
        (Some(token), _) => token.parse(),
        (None, Some(path)) => read(path)?.parse(),
        (None, None) => return Err(Failure::usage("no token: use --token or --token-file")),
    }
    .map_err(|error: InvalidToken| Failure::usage(error.to_string()))?;
    let internal = |error: TlsError| Failure::new(exit::INTERNAL, error.to_string());
    let (key, public_key) = new_key().map_err(internal)?;
    let addresses = addresses(word).ok_or_else(|| {
        Failure::usage(format!(
            "{word}: expected HOST:PORT, where the head listens, or several with commas between them"
        ))
    })?;
    let mut failures = Vec::new();
    let mut reached = None;
    for address in &addresses {
        let target = Target::Tcp((*address).to_owned(), Dialer::of_newcomer(token.authority).map_err(internal)?);
        match transport::dial(&target, DEADLINE_OF_EACH).await {
            Ok(channel) => {
                reached = Some(channel);
                break;
            }
            Err(DialError::Untrusted(Distrust::Foreign)) => {
                let text = format!("cannot log in at {address}: the token is of another DVM than the daemon there");
                let failure = Failure::new(exit::NOT_PERMITTED, text);
                failures.push(failure.hint("make one on the head's machine: rsd token new"));
            }
            Err(error) => failures.push(Failure::of_dial(address, &error)),
        }
    }
    let channel = reached.ok_or_else(|| Failure::of_all(failures))?;
    let secret = token.secret.to_vec().into();
    let request =
        EnrollRequest { token: token.id, secret, public_key: public_key.into(), from: String::new(), daemon_uid: None };
    let reply = answer("logging in", transport::access_client(channel).login(request)).await?;
    let Enrolled { certificate, authority, dvm, node, from_ms, until_ms, head_uid, serves_all } = reply;
    let credentials =
        Credentials { key: key.into(), certificate, authority, dvm, node, from_ms, until_ms, head_uid, serves_all };
    for address in &addresses {
        store(address, &credentials)?;
    }
    let hours = Duration::from_millis(until_ms.saturating_sub(now_ms())).as_secs() / 3600;
    let days = (hours + 12) / 24;
    if json {
        let told = serde_json::json!({ "address": word, "dvm": credentials.dvm, "until_ms": until_ms });
        print::out(&(crate::json::document(serde_json::json!({ "login": told })) + "\n"))?;
    } else {
        let text = format!("logged in to DVM {} for {days} days: rsctl --dvm {word} …\n", credentials.dvm);
        print::out(&text)?;
    }
    Ok(0)
}

fn read(path: &Path) -> Result<String, Failure> {
    let text = match path == Path::new("-") {
        true => io::read_to_string(io::stdin()),
        false => fs::read_to_string(path),
    };
    text.map_err(|error| Failure::new(exit::SYSTEM, format!("read {}: {error}", path.display())))
}
