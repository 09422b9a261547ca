//! The certificates with which this user has logged in at DVMs on other machines.
//!
//! They are in `$XDG_CONFIG_HOME/rsd/logins` (`~/.config/rsd/logins`), with their keys, in a file per address with mode 0600.

use std::fs::{self, DirBuilder, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::PathBuf;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use prost::Message;
use rsd_proto::transport::{Own, Target, exit, renewal};
use rsd_proto::v1::Credentials;

use crate::exit::Failure;
use crate::print;

/// How long a command waits for a new certificate.
const RENEWAL_DEADLINE: Duration = Duration::from_secs(5);

/// Parses `HOST:PORT[,HOST:PORT]…`: where a DVM's head may be. None: these are no addresses. (Names of daemons have no colons.)
pub(crate) fn addresses(word: &str) -> Option<Vec<&str>> {
    let is_address = |word: &&str| {
        let parts = word.rsplit_once(':');
        parts.is_some_and(|(host, port)| {
            !host.is_empty() && !host.contains('/') && matches!(port.parse::<u16>(), Ok(1..))
        })
    };
    let words: Vec<&str> = word.split(',').collect();
    words.iter().all(is_address).then_some(words)
}

/// Returns how to reach the DVM at an address where this user has logged in. Renews the login if a third of its life is left; if that
/// fails, the next command tries again.
pub(crate) async fn target(address: &str) -> Result<Target, Failure> {
    let (own, stored) = stored(address)?;
    if renewal::is_due(&stored, now_ms())
        && let Ok(fresh) = renewal::renew(&own, address, RENEWAL_DEADLINE).await
        && own.replace(&fresh).is_ok()
        && let Err(failure) = store(address, &fresh)
    {
        print::say(&format!("the renewed login at {address} is not kept: {failure}"));
    }
    Ok(Target::Tcp(address.to_owned(), own.dialer(None)))
}

/// Returns the login at an address.
fn stored(address: &str) -> Result<(Own, Credentials), Failure> {
    let hint = "get a token on the head's machine (rsd token new), then: rsctl login HOST:PORT --token TOKEN";
    let path = place()?.join(address);
    let stored = match fs::read(&path) {
        Ok(bytes) => Credentials::decode(&*bytes).ok(),
        Err(error) if error.kind() == io::ErrorKind::NotFound => {
            let text =
                format!("no daemon of yours on this machine listens at {address}, and you have not logged in there");
            return Err(Failure::new(exit::NOT_PERMITTED, text).hint(hint));
        }
        Err(error) => return Err(Failure::new(exit::SYSTEM, format!("read {}: {error}", path.display()))),
    };
    let invalid = || Failure::new(exit::SYSTEM, format!("{}: not a login of rsctl: log in again", path.display()));
    let stored = stored.ok_or_else(invalid)?;
    if stored.until_ms <= now_ms() {
        return Err(Failure::new(exit::NOT_PERMITTED, format!("your login at {address} has expired")).hint(hint));
    }
    let own = Own::new(&stored).map_err(|_| invalid())?;
    Ok((own, stored))
}

/// Returns the time, in milliseconds since the Unix epoch.
pub(crate) fn now_ms() -> u64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    u64::try_from(since.as_millis()).unwrap_or(u64::MAX)
}

/// Returns the directory of all logins.
fn place() -> Result<PathBuf, Failure> {
    let variable = |name| std::env::var_os(name).map(PathBuf::from).filter(|path| path.is_absolute());
    let config = variable("XDG_CONFIG_HOME").or_else(|| variable("HOME").map(|home| home.join(".config")));
    let missing = || Failure::usage("no place for logins: set HOME or XDG_CONFIG_HOME to an absolute path");
    Ok(config.ok_or_else(missing)?.join("rsd/logins"))
}

/// Writes the file of an address, completely or not at all.
pub(crate) fn store(address: &str, credentials: &Credentials) -> Result<(), Failure> {
    let place = place()?;
    let path = place.join(address);
    // Several commands may renew it at the same time.
    let scratch = place.join(format!(".{address}.{}.new", std::process::id()));
    let write = || -> io::Result<()> {
        DirBuilder::new().recursive(true).mode(0o700).create(&place)?;
        let mut file = OpenOptions::new().write(true).create(true).truncate(true).mode(0o600).open(&scratch)?;
        file.write_all(&credentials.encode_to_vec())?;
        fs::rename(&scratch, &path)
    };
    write().map_err(|error| Failure::new(exit::SYSTEM, format!("write {}: {error}", path.display())))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_have_a_host_and_a_port() {
        assert_eq!(addresses("a:7817"), Some(vec!["a:7817"]));
        assert_eq!(addresses("a:7817,[::1]:1"), Some(vec!["a:7817", "[::1]:1"]));
        for word in ["", "a", "a:", "a:0", ":7817", "a:7817,", "a:7817,b", "/run/a:7817", "a:70000"] {
            assert_eq!(addresses(word), None, "{word}");
        }
    }
}
