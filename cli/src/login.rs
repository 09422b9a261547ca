//! `rsctl login`: a user on another machine gets a certificate for a DVM, which later commands show.

use std::fs;
use std::io;
use std::path::Path;
use std::time::Duration;

use rsd_proto::transport::tls::{Distrust, TlsError, new_key};
use rsd_proto::transport::token::{InvalidToken, Token};
use rsd_proto::transport::{self, DialError, Dialer, Target, exit};
use rsd_proto::v1::{Credentials, EnrollRequest, Enrolled};

use crate::dvm::{DEADLINE, answer};
use crate::exit::Failure;
use crate::logins::{now_ms, store};
use crate::print;

/// Exchanges a token for a certificate, and stores it.
pub(crate) async fn login(address: &str, token: Option<&str>, file: Option<&Path>, json: bool) -> Result<u8, Failure> {
    let token: Token = match (token, file) {
        (Some(token), _) => token.parse(),
        (None, Some(path)) => read(path)?.parse(),
        (None, None) => return Err(Failure::usage("no token: use --token or --token-file")),
    }
    .map_err(|error: InvalidToken| Failure::usage(error.to_string()))?;
    let internal = |error: TlsError| Failure::new(exit::INTERNAL, error.to_string());
    let (key, public_key) = new_key().map_err(internal)?;
    let target = Target::Tcp(address.to_owned(), Dialer::of_newcomer(token.authority).map_err(internal)?);
    let channel = transport::dial(&target, DEADLINE).await.map_err(|error| match error {
        DialError::Untrusted(Distrust::Foreign) => {
            let text = format!("cannot log in at {address}: the token is of another DVM than the daemon there");
            Failure::new(exit::NOT_PERMITTED, text).hint("make one on the head's machine: rsd token new")
        }
        error => Failure::of_dial(address, &error),
    })?;
    let secret = token.secret.to_vec().into();
    let request =
        EnrollRequest { token: token.id, secret, public_key: public_key.into(), from: String::new(), daemon_uid: None };
    let reply = answer("logging in", transport::access_client(channel).login(request)).await?;
    let Enrolled { certificate, authority, dvm, node, from_ms, until_ms, head_uid, serves_all } = reply;
    let credentials =
        Credentials { key: key.into(), certificate, authority, dvm, node, from_ms, until_ms, head_uid, serves_all };
    store(address, &credentials)?;
    let hours = Duration::from_millis(until_ms.saturating_sub(now_ms())).as_secs() / 3600;
    let days = (hours + 12) / 24;
    if json {
        let told = serde_json::json!({ "address": address, "dvm": credentials.dvm, "until_ms": until_ms });
        print::out(&(crate::json::document(serde_json::json!({ "login": told })) + "\n"))?;
    } else {
        let text = format!("logged in to DVM {} for {days} days: rsctl --dvm {address} …\n", credentials.dvm);
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
