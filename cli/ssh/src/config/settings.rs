//! What the configuration says about one host.

use std::path::PathBuf;
use std::time::Duration;

use super::files::Place;
use super::{ConfigError, Here, Wish, expand};

/// The settings of one host.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Settings {
    /// The host, as the user wrote it.
    pub alias: String,
    /// The name or address to connect to.
    pub host_name: String,
    /// The port to connect to.
    pub port: u16,
    /// The account.
    pub user: String,
    /// Files with private keys, in the order in which they are offered. A file need not exist.
    pub identity_files: Vec<PathBuf>,
    /// Whether the agent's other keys are not offered.
    pub identities_only: bool,
    /// The agent.
    pub agent: Agent,
    /// The hosts to go through, in order.
    pub jumps: Vec<Hop>,
    /// A command whose standard input and output are the connection.
    pub proxy_command: Option<String>,
    /// Files with the user's known hosts. New keys go to the first.
    pub known_hosts: Vec<PathBuf>,
    /// Files with the machine's known hosts.
    pub global_known_hosts: Vec<PathBuf>,
    /// The name under which the host's key is known, if it is another one.
    pub host_key_alias: Option<String>,
    /// Whether names in new entries of known_hosts are hashed.
    pub hash_known_hosts: bool,
    /// What happens to unknown host keys.
    pub first_use: FirstUse,
    /// The deadline for the connection.
    pub connect_timeout: Option<Duration>,
    /// Whether nothing may be asked on the terminal.
    pub batch: bool,
    /// The addresses to use.
    pub family: Family,
}

/// Where the agent is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Agent {
    /// No agent is used.
    None,
    /// At `$SSH_AUTH_SOCK`.
    Variable,
    /// At this socket.
    At(PathBuf),
}

/// What happens to unknown host keys. Changed and revoked keys are always refused.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum FirstUse {
    /// They are refused.
    Refused,
    /// They are accepted and written down.
    Accepted,
}

/// Which addresses of a host are used.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Family {
    /// All.
    Any,
    /// IPv4.
    V4,
    /// IPv6.
    V6,
}

/// A host to go through.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Hop {
    /// Its name or alias.
    pub host: String,
    /// The account, if named.
    pub user: Option<String>,
    /// The port, if named.
    pub port: Option<u16>,
}

impl Hop {
    /// Parses `[USER@]HOST[:PORT]` or `ssh://[USER@]HOST[:PORT]`.
    pub fn parse(text: &str) -> Option<Hop> {
        let text = text.strip_prefix("ssh://").map_or(text, |rest| rest.trim_end_matches('/'));
        let (user, place) = text.rsplit_once('@').map_or((None, text), |(user, place)| (Some(user), place));
        let (host, port) = match place.strip_prefix('[').and_then(|rest| rest.split_once(']')) {
            Some((host, rest)) => (host, rest.strip_prefix(':')),
            None if place.matches(':').count() > 1 => (place, None),
            None => place.split_once(':').map_or((place, None), |(host, port)| (host, Some(port))),
        };
        let port = match port {
            Some(port) => Some(port.parse().ok().filter(|port| *port > 0)?),
            None => None,
        };
        let fits = !host.is_empty() && !host.starts_with('-') && user != Some("");
        fits.then(|| Hop { host: host.to_owned(), user: user.map(str::to_owned), port })
    }
}

/// The files that are tried if the configuration names none.
const DEFAULT_IDENTITIES: [&str; 3] = ["id_ed25519", "id_ecdsa", "id_rsa"];

/// The values that have been found so far: raw, because `%h` may be known only at the end.
#[derive(Debug, Default)]
pub(super) struct Found {
    host_name: Option<String>,
    port: Option<u16>,
    user: Option<String>,
    identity_files: Vec<(String, Place)>,
    identities_only: Option<bool>,
    agent: Option<(String, Place)>,
    jumps: Option<(String, Place)>,
    proxy_command: Option<(String, Place)>,
    known_hosts: Option<(Vec<String>, Place)>,
    global_known_hosts: Option<Vec<String>>,
    host_key_alias: Option<String>,
    hash_known_hosts: Option<bool>,
    strict: Option<FirstUse>,
    connect_timeout: Option<Option<Duration>>,
    batch: Option<bool>,
    family: Option<Family>,
}

/// The keywords that [`Found::set`] takes.
const KEYWORDS: [&str; 16] = [
    "hostname",
    "port",
    "user",
    "identityfile",
    "identitiesonly",
    "identityagent",
    "proxyjump",
    "proxycommand",
    "userknownhostsfile",
    "globalknownhostsfile",
    "hostkeyalias",
    "hashknownhosts",
    "stricthostkeychecking",
    "connecttimeout",
    "batchmode",
    "addressfamily",
];

pub(super) fn is_known(keyword: &str) -> bool {
    KEYWORDS.contains(&keyword)
}

impl Found {
    pub(super) fn of(wish: &Wish) -> Found {
        Found { user: wish.user.clone(), port: wish.port, ..Found::default() }
    }

    pub(super) fn user(&self) -> Option<&str> {
        self.user.as_deref()
    }

    /// Returns the name to connect to, as far as it is known.
    pub(super) fn host_name(&self, wish: &Wish) -> Result<String, String> {
        match &self.host_name {
            Some(name) => expand::percent(name, &[('h', &wish.host), ('n', &wish.host)]),
            None => Ok(wish.host.clone()),
        }
    }

    /// Takes a value, unless an earlier line has set it.
    pub(super) fn set(&mut self, keyword: &str, args: &[String], rest: &str, place: &Place) -> Result<(), ConfigError> {
        let wrong = |what: String| ConfigError { file: place.file.to_path_buf(), line: place.line, what };
        let value = args[0].as_str();
        let at = || (value.to_owned(), place.clone());
        let flag = || match value.to_ascii_lowercase().as_str() {
            "yes" | "true" => Ok(true),
            "no" | "false" => Ok(false),
            _ => Err(wrong(format!("{keyword} takes yes or no, not `{value}`"))),
        };
        match keyword {
            "hostname" => first(&mut self.host_name, || Ok(value.to_owned()))?,
            "port" => {
                let port = value.parse().ok().filter(|port| *port > 0);
                first(&mut self.port, || port.ok_or_else(|| wrong(format!("invalid port `{value}`"))))?;
            }
            "user" => first(&mut self.user, || Ok(value.to_owned()))?,
            "identityfile" if !self.identity_files.iter().any(|(known, _)| known == value) => {
                self.identity_files.push(at());
            }
            "identityfile" => {}
            "identitiesonly" => first(&mut self.identities_only, flag)?,
            "identityagent" => first(&mut self.agent, || Ok(at()))?,
            // Whichever of the two stands first excludes the other.
            "proxyjump" if self.proxy_command.is_none() => {
                first(&mut self.jumps, || Ok((args.concat(), place.clone())))?;
            }
            "proxycommand" if self.jumps.is_none() => {
                first(&mut self.proxy_command, || Ok((rest.to_owned(), place.clone())))?;
            }
            "userknownhostsfile" => first(&mut self.known_hosts, || Ok((args.to_vec(), place.clone())))?,
            "globalknownhostsfile" => first(&mut self.global_known_hosts, || Ok(args.to_vec()))?,
            "hostkeyalias" => first(&mut self.host_key_alias, || Ok(value.to_owned()))?,
            "hashknownhosts" => first(&mut self.hash_known_hosts, flag)?,
            "stricthostkeychecking" => first(&mut self.strict, || match value.to_ascii_lowercase().as_str() {
                "yes" | "true" | "ask" => Ok(FirstUse::Refused),
                "accept-new" | "no" | "off" | "false" => Ok(FirstUse::Accepted),
                _ => Err(wrong(format!("stricthostkeychecking takes yes, ask, accept-new or no, not `{value}`"))),
            })?,
            "connecttimeout" => first(&mut self.connect_timeout, || match value {
                "none" => Ok(None),
                _ => seconds(value).map(Some).ok_or_else(|| wrong(format!("invalid time `{value}`"))),
            })?,
            "batchmode" => first(&mut self.batch, flag)?,
            "addressfamily" => first(&mut self.family, || match value.to_ascii_lowercase().as_str() {
                "any" => Ok(Family::Any),
                "inet" => Ok(Family::V4),
                "inet6" => Ok(Family::V6),
                _ => Err(wrong(format!("addressfamily takes any, inet or inet6, not `{value}`"))),
            })?,
            _ => {}
        }
        Ok(())
    }

    /// Returns the settings, with defaults for what the configuration does not set.
    pub(super) fn settings(self, wish: &Wish, here: &Here) -> Result<Settings, ConfigError> {
        let general = |what: String| ConfigError { file: here.home.join(".ssh/config"), line: 0, what };
        let host_name = self.host_name(wish).map_err(general)?;
        let port = self.port.unwrap_or(22);
        let user = self.user.clone().unwrap_or_else(|| here.user.clone());
        let (home, uid, port_text) = (here.home.display().to_string(), here.uid.to_string(), port.to_string());
        let short = here.host.split('.').next().unwrap_or_default();
        let key_alias = self.host_key_alias.clone().unwrap_or_else(|| wish.host.clone());
        let tokens = [
            ('h', host_name.as_str()),
            ('n', &wish.host),
            ('p', &port_text),
            ('r', &user),
            ('u', &here.user),
            ('d', &home),
            ('i', &uid),
            ('l', &here.host),
            ('L', short),
            ('k', &key_alias),
        ];
        let expanded = |text: &str, place: &Place| {
            let text = expand::percent(text, &tokens).and_then(|text| expand::variables(&text, here));
            text.map_err(|what| ConfigError { file: place.file.to_path_buf(), line: place.line, what })
        };
        let path = |text: &str, place: &Place| Ok(expand::tilde(&expanded(text, place)?, here));
        let below_ssh = |name: &str| here.home.join(".ssh").join(name);
        let named = self.identity_files.iter().filter(|(file, _)| !file.eq_ignore_ascii_case("none"));
        let mut identity_files = named.map(|(file, place)| path(file, place)).collect::<Result<Vec<_>, _>>()?;
        if self.identity_files.is_empty() {
            identity_files = DEFAULT_IDENTITIES.map(below_ssh).to_vec();
        }
        let agent = match &self.agent {
            None => Agent::Variable,
            Some((word, _)) if word.eq_ignore_ascii_case("none") => Agent::None,
            Some((word, _)) if word == "SSH_AUTH_SOCK" => Agent::Variable,
            Some((word, place)) => match word.strip_prefix('$').filter(|name| !name.starts_with('{')) {
                Some(name) => (here.variable)(name).map_or(Agent::None, |value| Agent::At(value.into())),
                None => Agent::At(path(word, place)?),
            },
        };
        let jumps = match &self.jumps {
            None => Vec::new(),
            Some((word, _)) if word.eq_ignore_ascii_case("none") => Vec::new(),
            Some((words, place)) => {
                let hop = |word: &str| {
                    let word = expanded(word.trim(), place)?;
                    let what = format!("invalid jump host `{word}`: write [USER@]HOST[:PORT]");
                    let wrong = || ConfigError { file: place.file.to_path_buf(), line: place.line, what };
                    Hop::parse(&word).ok_or_else(wrong)
                };
                words.split(',').map(hop).collect::<Result<_, _>>()?
            }
        };
        let proxy_command = match &self.proxy_command {
            Some((command, place)) if !command.eq_ignore_ascii_case("none") => Some(expanded(command, place)?),
            Some(_) | None => None,
        };
        let known_hosts = match &self.known_hosts {
            None => vec![below_ssh("known_hosts"), below_ssh("known_hosts2")],
            Some((files, _)) if files.iter().any(|file| file.eq_ignore_ascii_case("none")) => Vec::new(),
            Some((files, place)) => files.iter().map(|file| path(file, place)).collect::<Result<_, _>>()?,
        };
        let machine = ["/etc/ssh/ssh_known_hosts", "/etc/ssh/ssh_known_hosts2"].map(str::to_owned).to_vec();
        let global = self.global_known_hosts.unwrap_or(machine).into_iter();
        Ok(Settings {
            alias: wish.host.clone(),
            identity_files,
            identities_only: self.identities_only.unwrap_or(false),
            agent,
            jumps,
            proxy_command,
            known_hosts,
            global_known_hosts: global.filter(|file| file != "none").map(|file| expand::tilde(&file, here)).collect(),
            host_key_alias: self.host_key_alias,
            hash_known_hosts: self.hash_known_hosts.unwrap_or(false),
            first_use: self.strict.unwrap_or(FirstUse::Refused),
            connect_timeout: self.connect_timeout.flatten(),
            batch: self.batch.unwrap_or(false),
            family: self.family.unwrap_or(Family::Any),
            host_name,
            port,
            user,
        })
    }
}

/// Sets a value if it is not set. A value that does not count is not checked.
fn first<T>(slot: &mut Option<T>, value: impl FnOnce() -> Result<T, ConfigError>) -> Result<(), ConfigError> {
    if slot.is_none() {
        *slot = Some(value()?);
    }
    Ok(())
}

/// Parses a time as ssh does: `10`, `1m30s`.
fn seconds(text: &str) -> Option<Duration> {
    let (mut total, mut digits) = (0_u64, String::new());
    for c in text.chars().chain(text.ends_with(|c: char| c.is_ascii_digit()).then_some('s')) {
        let unit = match c.to_ascii_lowercase() {
            '0'..='9' => {
                digits.push(c);
                continue;
            }
            's' => 1,
            'm' => 60,
            'h' => 3600,
            'd' => 86_400,
            'w' => 604_800,
            _ => return None,
        };
        total = total.checked_add(digits.parse::<u64>().ok()?.checked_mul(unit)?)?;
        digits.clear();
    }
    (total > 0).then(|| Duration::from_secs(total))
}
