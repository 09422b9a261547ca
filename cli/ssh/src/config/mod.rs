//! The user's ssh configuration, by the rules of ssh_config(5): of several values for one keyword, the first counts.
//!
//! [`Config::read`] files → lines · [`Config::settings`] lines → what applies to one host. Keywords that rsctl does not use are
//! ignored. Of `Match`, `all`, `final`, `host`, `originalhost`, `user` and `localuser` are supported; a block with another criterion
//! is skipped with a notice, because running commands to decide (`exec`) is left to ssh.

mod expand;
mod files;
mod lines;
mod pattern;
mod settings;

use std::path::{Path, PathBuf};
use std::sync::Mutex;

use nix::unistd::{Uid, User, geteuid, gethostname};
use thiserror::Error;

use files::{Entry, Place, Source};
pub(crate) use pattern::list_matches;
pub use settings::{Agent, Family, FirstUse, Hop, Settings};
use settings::{Found, is_known};

/// The machine's configuration.
const OF_THE_MACHINE: &str = "/etc/ssh/ssh_config";

/// A configuration that cannot be used.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[error("{}: {what}", place(file, *line))]
pub struct ConfigError {
    /// The file.
    pub file: PathBuf,
    /// The line, from 1; 0: the whole file.
    pub line: usize,
    /// What is wrong.
    pub what: String,
}

fn place(file: &Path, line: usize) -> String {
    match line {
        0 => file.display().to_string(),
        line => format!("{}:{line}", file.display()),
    }
}

/// This user and machine, as the configuration may refer to them.
#[derive(Debug, Clone)]
pub struct Here {
    /// The user's home directory.
    pub home: PathBuf,
    /// The user's name.
    pub user: String,
    /// The user's id.
    pub uid: u32,
    /// This machine's name.
    pub host: String,
    /// Looks up an environment variable.
    pub variable: fn(&str) -> Option<String>,
}

impl Here {
    /// Returns this process's user and machine. `$HOME` has precedence over the home in the user database.
    pub fn now() -> Here {
        let account = User::from_uid(geteuid()).ok().flatten();
        let variable = |name: &str| std::env::var(name).ok().filter(|value| !value.is_empty());
        let home = variable("HOME").map(PathBuf::from).filter(|home| home.is_absolute());
        let home = home.or_else(|| account.as_ref().map(|account| account.dir.clone()));
        let user = account.map(|account| account.name).or_else(|| variable("USER"));
        Here {
            home: home.unwrap_or_else(|| PathBuf::from("/")),
            user: user.unwrap_or_else(|| Uid::effective().to_string()),
            uid: geteuid().as_raw(),
            host: gethostname().map(|name| name.to_string_lossy().into_owned()).unwrap_or_default(),
            variable: |name| std::env::var(name).ok().filter(|value| !value.is_empty()),
        }
    }
}

/// The configuration, before a host is known.
#[derive(Debug)]
pub struct Config {
    entries: Vec<Entry>,
    /// Whether a block is `Match final`, for which the configuration is read twice.
    has_final: bool,
    /// Notices that have been returned, so that each appears once.
    noticed: Mutex<Vec<String>>,
}

/// The host to look up, as the user wrote it.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Wish {
    /// A name or an alias.
    pub host: String,
    /// An account, which overrides the configuration.
    pub user: Option<String>,
    /// A port, which overrides the configuration.
    pub port: Option<u16>,
}

impl Config {
    /// Reads the user's and the machine's configuration, or `instead` of both only this file.
    pub fn read(here: &Here, instead: Option<&Path>) -> Result<Config, ConfigError> {
        let own_folder = here.home.join(".ssh");
        let mut entries = Vec::new();
        match instead {
            Some(path) => {
                std::fs::metadata(path).map_err(|error| ConfigError {
                    file: path.to_owned(),
                    line: 0,
                    what: error.to_string(),
                })?;
                entries = files::read(&Source { path, base: &own_folder, private: true }, here, 0)?;
            }
            None => {
                let own = own_folder.join("config");
                let machine = Source { path: OF_THE_MACHINE.as_ref(), base: "/etc/ssh".as_ref(), private: false };
                for source in [Source { path: &own, base: &own_folder, private: true }, machine] {
                    // Included, so that the last block of one file does not reach into the next.
                    entries.push(Entry::Included(files::read(&source, here, 0)?));
                }
            }
        }
        let has_final = any_final(&entries);
        Ok(Config { entries, has_final, noticed: Mutex::new(Vec::new()) })
    }

    /// Returns the settings for a host, and notices that have not been returned before.
    pub fn settings(&self, wish: &Wish, here: &Here) -> Result<(Settings, Vec<String>), ConfigError> {
        let mut found = Found::of(wish);
        let mut notices = Vec::new();
        for is_final in [false, true].into_iter().take(if self.has_final { 2 } else { 1 }) {
            let mut pass = Pass { wish, here, is_final, found: &mut found, notices: &mut notices };
            pass.evaluate(&self.entries, true)?;
        }
        let settings = found.settings(wish, here)?;
        let mut noticed = self.noticed.lock().unwrap_or_else(|poisoned| poisoned.into_inner());
        notices.sort();
        notices.dedup();
        notices.retain(|notice| !noticed.contains(notice));
        noticed.extend(notices.iter().cloned());
        Ok((settings, notices))
    }
}

fn any_final(entries: &[Entry]) -> bool {
    entries.iter().any(|entry| match entry {
        Entry::Included(entries) => any_final(entries),
        Entry::Match { criteria, .. } => {
            criteria.iter().any(|word| word.trim_start_matches('!').eq_ignore_ascii_case("final"))
        }
        Entry::Host { .. } | Entry::Set { .. } => false,
    })
}

/// One reading of the configuration for one host.
struct Pass<'a> {
    wish: &'a Wish,
    here: &'a Here,
    is_final: bool,
    found: &'a mut Found,
    notices: &'a mut Vec<String>,
}

impl Pass<'_> {
    /// Takes the values of entries. Blocks in an included file end with it, and count only where it was included.
    fn evaluate(&mut self, entries: &[Entry], applies: bool) -> Result<(), ConfigError> {
        let mut active = applies;
        for entry in entries {
            match entry {
                Entry::Host { patterns } => {
                    let patterns = patterns.iter().map(String::as_str);
                    active = applies && list_matches(patterns, &self.wish.host);
                }
                Entry::Match { criteria, place } => active = applies && self.fulfils(criteria, place)?,
                Entry::Included(entries) => self.evaluate(entries, active)?,
                Entry::Set { keyword, args, rest, place } if active && is_known(keyword) => {
                    self.found.set(keyword, args, rest, place)?;
                }
                Entry::Set { .. } => {}
            }
        }
        Ok(())
    }

    fn fulfils(&mut self, criteria: &[String], place: &Place) -> Result<bool, ConfigError> {
        let wrong = |what: String| ConfigError { file: place.file.to_path_buf(), line: place.line, what };
        let (mut fulfilled, mut words) = (true, criteria.iter());
        while let Some(word) = words.next() {
            let (negated, word) = word.strip_prefix('!').map_or((false, word.as_str()), |word| (true, word));
            let (keyword, value) = word.split_once('=').map_or((word, None), |(word, value)| (word, Some(value)));
            let keyword = keyword.to_ascii_lowercase();
            let this = match keyword.as_str() {
                "all" => true,
                "final" => self.is_final,
                // Names are never made canonical here.
                "canonical" => false,
                _ => {
                    let value = value.or_else(|| words.next().map(String::as_str));
                    let value = value.ok_or_else(|| wrong(format!("`Match {keyword}` needs a value")))?;
                    let list = || value.split(',');
                    match keyword.as_str() {
                        "host" => list_matches(list(), &self.found.host_name(self.wish).map_err(&wrong)?),
                        "originalhost" => list_matches(list(), &self.wish.host),
                        "user" => list_matches(list(), self.found.user().unwrap_or(&self.here.user)),
                        "localuser" => list_matches(list(), &self.here.user),
                        _ => {
                            self.notices.push(format!(
                                "{}:{}: rsctl does not support `Match {keyword}`: it skips this block",
                                place.file.display(),
                                place.line
                            ));
                            return Ok(false);
                        }
                    }
                }
            };
            fulfilled &= this != negated;
        }
        Ok(fulfilled)
    }
}

#[cfg(test)]
mod tests;
