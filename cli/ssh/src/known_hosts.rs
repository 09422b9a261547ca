//! Known host keys, by the rules of sshd(8), "SSH_KNOWN_HOSTS FILE FORMAT".
//!
//! A line is `[@MARKER] NAMES TYPE KEY`. NAMES is a list of patterns, or one name hashed with HMAC-SHA1 and a salt. The name of a
//! host with another port than 22 is `[host]:port`.

use std::fs::{self, DirBuilder, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::Mutex;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use ring::hmac;
use ring::rand::{SecureRandom, SystemRandom};
use russh::keys::{Algorithm, PublicKey, PublicKeyBase64};

use crate::config::{Settings, list_matches};

/// What the files say about a host's key.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Standing {
    /// The key is the host's.
    Trusted,
    /// The host has no key there. `authority`: but a line for host certificates, which rsctl does not support.
    Unknown {
        /// A line with the marker `@cert-authority` that names the host.
        authority: Option<Line>,
    },
    /// The host has other keys there.
    Changed {
        /// One of their lines.
        line: Line,
        /// Whether it is a key of the same type.
        same_type: bool,
    },
    /// The key is marked as revoked.
    Revoked {
        /// The line with the mark.
        line: Line,
    },
}

/// A line of a file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Line {
    /// The file.
    pub file: PathBuf,
    /// Its number, from 1.
    pub number: usize,
}

impl std::fmt::Display for Line {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}:{}", self.file.display(), self.number)
    }
}

/// The lines that name a host.
#[derive(Debug)]
pub(crate) struct Known {
    entries: Vec<Entry>,
}

#[derive(Debug)]
struct Entry {
    marker: Marker,
    key: PublicKey,
    line: Line,
    /// Whether it names the host with its port; false: only the host without a port, which is not 22.
    exact: bool,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Marker {
    None,
    Revoked,
    Authority,
}

impl Known {
    /// Reads the lines about a host from all its files. A file that does not exist has no lines; any other error fails.
    pub(crate) fn read(settings: &Settings) -> io::Result<Known> {
        let names = Names::of(settings);
        let mut entries = Vec::new();
        for file in settings.known_hosts.iter().chain(&settings.global_known_hosts) {
            let text = match fs::read(file) {
                Ok(bytes) => String::from_utf8_lossy(&bytes).into_owned(),
                Err(error) if error.kind() == io::ErrorKind::NotFound => continue,
                Err(error) => return Err(io::Error::new(error.kind(), format!("{}: {error}", file.display()))),
            };
            entries.extend(entries_of(&text, file, &names));
        }
        Ok(Known { entries })
    }

    /// Returns the algorithms of the host's keys, which are to be requested first: another key would be unknown.
    pub(crate) fn algorithms(&self) -> Vec<Algorithm> {
        self.keys().map(|entry| entry.key.algorithm()).collect()
    }

    /// Returns the lines with the host's keys: those for its port, else those without a port.
    fn keys(&self) -> impl Iterator<Item = &Entry> {
        let keys = || self.entries.iter().filter(|entry| entry.marker == Marker::None);
        let has_exact = keys().any(|entry| entry.exact);
        keys().filter(move |entry| entry.exact || !has_exact)
    }

    /// Returns what the lines say about a key that the host has shown.
    pub(crate) fn standing(&self, key: &PublicKey) -> Standing {
        let is_it = |entry: &&Entry| entry.key.key_data() == key.key_data();
        let of = |marker: Marker| self.entries.iter().filter(move |entry| entry.marker == marker);
        if let Some(entry) = of(Marker::Revoked).find(is_it) {
            return Standing::Revoked { line: entry.line.clone() };
        }
        if self.keys().any(|entry| is_it(&entry)) {
            return Standing::Trusted;
        }
        let mut others: Vec<&Entry> = self.keys().filter(|entry| entry.exact).collect();
        others.sort_by_key(|entry| entry.key.algorithm() != key.algorithm());
        match others.first() {
            Some(entry) => {
                let same_type = entry.key.algorithm() == key.algorithm();
                Standing::Changed { line: entry.line.clone(), same_type }
            }
            None => Standing::Unknown { authority: of(Marker::Authority).next().map(|entry| entry.line.clone()) },
        }
    }
}

/// The names of a host in the files.
#[derive(Debug)]
struct Names {
    /// With the port, if it is not 22.
    exact: String,
    /// Without the port.
    bare: Option<String>,
}

impl Names {
    fn of(settings: &Settings) -> Names {
        let host = settings.host_name.to_ascii_lowercase();
        match (&settings.host_key_alias, settings.port) {
            (Some(alias), _) => Names { exact: alias.to_ascii_lowercase(), bare: None },
            (None, 22) => Names { exact: host, bare: None },
            (None, port) => Names { exact: format!("[{host}]:{port}"), bare: Some(host) },
        }
    }
}

/// Returns the name under which a host's key is stored: `host` or `[host]:port`.
pub fn name_of(settings: &Settings) -> String {
    Names::of(settings).exact
}

/// Returns the lines of a text that name the host. Lines that cannot be parsed are ignored, as ssh does.
fn entries_of(text: &str, file: &Path, names: &Names) -> Vec<Entry> {
    let entry = |(line, number): (&str, usize)| {
        let mut words = line.split_ascii_whitespace();
        let first = words.next().filter(|word| !word.starts_with('#'))?;
        let (marker, hosts) = match first {
            "@revoked" => (Marker::Revoked, words.next()?),
            "@cert-authority" => (Marker::Authority, words.next()?),
            word if word.starts_with('@') => return None,
            hosts => (Marker::None, hosts),
        };
        let exact = names_host(hosts, &names.exact);
        let named = exact || names.bare.as_ref().is_some_and(|bare| names_host(hosts, bare));
        if !named {
            return None;
        }
        let (_, key) = (words.next()?, words.next()?);
        let key = russh::keys::parse_public_key_base64(key).ok()?;
        Some(Entry { marker, key, line: Line { file: file.to_owned(), number }, exact })
    };
    text.lines().zip(1..).filter_map(entry).collect()
}

fn names_host(hosts: &str, name: &str) -> bool {
    match hosts.strip_prefix("|1|") {
        Some(hashed) => {
            let parts = hashed.split_once('|').map(|(salt, hash)| (STANDARD.decode(salt), STANDARD.decode(hash)));
            let Some((Ok(salt), Ok(hash))) = parts else { return false };
            hmac::verify(&hash_key(&salt), name.as_bytes(), &hash).is_ok()
        }
        None => list_matches(hosts.split(','), name),
    }
}

fn hash_key(salt: &[u8]) -> hmac::Key {
    hmac::Key::new(hmac::HMAC_SHA1_FOR_LEGACY_USE_ONLY, salt)
}

/// Appends a host's key to the first of the user's files. Several connections may do so at the same time.
pub(crate) fn learn(settings: &Settings, key: &PublicKey) -> io::Result<()> {
    static ONE_AT_A_TIME: Mutex<()> = Mutex::new(());
    let _one = ONE_AT_A_TIME.lock().unwrap_or_else(|poisoned| poisoned.into_inner());
    let Some(file) = settings.known_hosts.first() else {
        return Err(io::Error::other("the configuration names no file for known hosts"));
    };
    let name = match settings.hash_known_hosts {
        true => hashed(&name_of(settings))?,
        false => name_of(settings),
    };
    let line = format!("{name} {} {}\n", key.algorithm(), key.public_key_base64());
    let named = |error: io::Error| io::Error::new(error.kind(), format!("{}: {error}", file.display()));
    if let Some(folder) = file.parent() {
        DirBuilder::new().recursive(true).mode(0o700).create(folder).map_err(named)?;
    }
    let unfinished = fs::read(file).is_ok_and(|bytes| !bytes.is_empty() && !bytes.ends_with(b"\n"));
    let mut out = OpenOptions::new().append(true).create(true).mode(0o600).open(file).map_err(named)?;
    let text = if unfinished { format!("\n{line}") } else { line };
    out.write_all(text.as_bytes()).map_err(named)
}

fn hashed(name: &str) -> io::Result<String> {
    let mut salt = [0; 20];
    SystemRandom::new().fill(&mut salt).map_err(|_| io::Error::other("the system has no random numbers"))?;
    let hash = hmac::sign(&hash_key(&salt), name.as_bytes());
    Ok(format!("|1|{}|{}", STANDARD.encode(salt), STANDARD.encode(hash)))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::{Config, Here, Wish};

    const A: &str = "ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIJdD7y3aLq454yWBdwLWbieU1ebz9/cu7/QEXn9OIeZJ";
    const B: &str = "ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAILIG2T/B0l0gaqj3puu510tu9N1OkQ4znY3LYuEm5zCF";
    const EC: &str = "ecdsa-sha2-nistp256 AAAAE2VjZHNhLXNoYTItbmlzdHAyNTYAAAAIbmlzdHAyNTYAAABBBEmKSENjQEezOmxkZMy7opKgwFB9nkt5YRrYMjNuG5N87uRgg6CLrbo5wAdT/y6v0mKV0U2w0WZ2YB/++Tpockg=";

    fn key(text: &str) -> PublicKey {
        russh::keys::parse_public_key_base64(text.split(' ').nth(1).unwrap()).unwrap()
    }

    fn known(text: &str, host: &str, port: u16) -> Known {
        let names = match port {
            22 => Names { exact: host.into(), bare: None },
            port => Names { exact: format!("[{host}]:{port}"), bare: Some(host.into()) },
        };
        Known { entries: entries_of(text, "f".as_ref(), &names) }
    }

    fn line(number: usize) -> Line {
        Line { file: "f".into(), number }
    }

    const UNKNOWN: Standing = Standing::Unknown { authority: None };

    #[test]
    fn a_key_is_trusted_under_its_names_patterns_and_hashes() {
        let text = format!(
            "# comment\n\na,b.org {A}\n*.site,!bad.site {A}\n[c]:2222 {A}\nnonsense\n\
             |1|O33ESRMWPVkMYIwJ1Uw+n877jTo=|nuuC5vEqXlEZ/8BXQR7m619W6Ak= {B} me@here\n"
        );
        let standing = |host: &str, port, shown: &str| known(&text, host, port).standing(&key(shown));
        for (host, port) in [("a", 22), ("b.org", 22), ("x.site", 22), ("c", 2222), ("a", 2222)] {
            assert_eq!(standing(host, port, A), Standing::Trusted, "{host}:{port}");
        }
        assert_eq!(standing("example.com", 22, B), Standing::Trusted, "hashed");
        for (host, port) in [("c", 22), ("bad.site", 22), ("d", 22), ("example.org", 22)] {
            assert_eq!(standing(host, port, A), UNKNOWN, "{host}:{port}");
        }
        assert_eq!(standing("a", 22, B), Standing::Changed { line: line(3), same_type: true });
        assert_eq!(standing("a", 2222, B), UNKNOWN, "another port is another host, whose key may differ");
        assert_eq!(standing("a", 22, EC), Standing::Changed { line: line(3), same_type: false });
    }

    #[test]
    fn a_key_for_the_host_does_not_count_on_a_port_that_has_another_key() {
        let known = known(&format!("a {A}\na {EC}\n[a]:2222 {B}\n"), "a", 2222);
        assert_eq!(known.standing(&key(B)), Standing::Trusted);
        assert_eq!(known.standing(&key(A)), Standing::Changed { line: line(3), same_type: true });
        assert_eq!(known.algorithms(), [key(B).algorithm()]);
    }

    #[test]
    fn a_revoked_key_is_refused_even_if_it_is_also_trusted() {
        let text = format!("a {A}\n@revoked * {A}\n@cert-authority *.site {B}\n@unknown a {B}\n");
        assert_eq!(known(&text, "a", 22).standing(&key(A)), Standing::Revoked { line: line(2) });
        assert_eq!(known(&text, "a", 22).standing(&key(B)), Standing::Changed { line: line(1), same_type: true });
        assert_eq!(known(&text, "x.site", 22).standing(&key(B)), Standing::Unknown { authority: Some(line(3)) });
    }

    #[test]
    fn a_host_with_several_keys_is_trusted_by_each_and_their_types_are_requested_first() {
        let known = known(&format!("a {EC}\na {A}\na {B}\n@revoked a {A}\n"), "a", 22);
        assert_eq!(known.algorithms(), [key(EC).algorithm(), key(A).algorithm(), key(B).algorithm()]);
        assert_eq!(known.standing(&key(EC)), Standing::Trusted);
        assert_eq!(known.standing(&key(B)), Standing::Trusted);
    }

    #[test]
    fn a_learned_key_is_trusted_afterwards_plain_and_hashed() {
        let home = std::env::temp_dir().join(format!("rsd-known-hosts-{}", std::process::id()));
        let _ = fs::remove_dir_all(&home);
        let here = Here { home: home.clone(), user: "me".into(), uid: 1, host: "h".into(), variable: |_| None };
        let config = Config::read(&here, None).unwrap();
        let wish = Wish { host: "Node1".into(), user: None, port: Some(2222) };
        let mut settings = config.settings(&wish, &here).unwrap().0;
        // The machine's configuration may have set them.
        settings.global_known_hosts.clear();
        settings.hash_known_hosts = false;
        learn(&settings, &key(A)).unwrap();
        let file = home.join(".ssh/known_hosts");
        assert_eq!(fs::read_to_string(&file).unwrap(), format!("[node1]:2222 {A}\n"));
        fs::write(&file, format!("x {B}")).unwrap();
        settings.hash_known_hosts = true;
        learn(&settings, &key(B)).unwrap();
        let text = fs::read_to_string(&file).unwrap();
        assert!(text.starts_with(&format!("x {B}\n|1|")) && !text.contains("node1"), "{text}");
        assert_eq!(Known::read(&settings).unwrap().standing(&key(B)), Standing::Trusted);
        fs::remove_dir_all(home).unwrap();
    }
}
