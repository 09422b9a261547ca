//! Reads configuration files, and those that they include.

use std::fs;
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use super::lines::lines;
use super::pattern::matches;
use super::{ConfigError, Here, expand};

/// The deepest nesting of included files, as in OpenSSH.
const DEPTH_MAX: usize = 16;

/// Where something is written.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Place {
    pub(super) file: Arc<Path>,
    pub(super) line: usize,
}

/// A line of a configuration, or the lines of the files that it includes.
#[derive(Debug)]
pub(super) enum Entry {
    Host { patterns: Vec<String> },
    Match { criteria: Vec<String>, place: Place },
    Included(Vec<Entry>),
    Set { keyword: String, args: Vec<String>, rest: String, place: Place },
}

/// A configuration file of the user, or of the machine.
pub(super) struct Source<'a> {
    pub(super) path: &'a Path,
    /// The folder of relative paths in `Include`.
    pub(super) base: &'a Path,
    /// Whether only the user and root may be able to write it.
    pub(super) private: bool,
}

/// Returns the entries of a file; none if it does not exist.
pub(super) fn read(source: &Source<'_>, here: &Here, depth: usize) -> Result<Vec<Entry>, ConfigError> {
    let failed = |error: io::Error| ConfigError { file: source.path.to_owned(), line: 0, what: error.to_string() };
    let text = match fs::read_to_string(source.path) {
        Ok(text) => text,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
        Err(error) => return Err(failed(error)),
    };
    let meta = fs::metadata(source.path).map_err(failed)?;
    if source.private && (![0, here.uid].contains(&meta.uid()) || meta.mode() & 0o022 != 0) {
        let what = "other users can write it, so it is not used: chmod go-w, and own it yourself".to_owned();
        return Err(ConfigError { file: source.path.to_owned(), line: 0, what });
    }
    let file: Arc<Path> = source.path.into();
    let wrong = |line: usize, what: &str| ConfigError { file: source.path.to_owned(), line, what: what.to_owned() };
    let mut entries = Vec::new();
    for line in lines(&text).map_err(|line| wrong(line, "a quote is not closed"))? {
        let place = Place { file: Arc::clone(&file), line: line.number };
        if line.args.is_empty() {
            return Err(wrong(line.number, &format!("`{}` needs a value", line.keyword)));
        }
        match line.keyword.as_str() {
            "host" => entries.push(Entry::Host { patterns: line.args }),
            "match" => entries.push(Entry::Match { criteria: line.args, place }),
            "include" if depth == DEPTH_MAX => return Err(wrong(line.number, "too many files include each other")),
            "include" => {
                let mut included = Vec::new();
                for pattern in &line.args {
                    for path in included_files(pattern, source.base, here) {
                        included.push(Entry::Included(read(&Source { path: &path, ..*source }, here, depth + 1)?));
                    }
                }
                entries.push(Entry::Included(included));
            }
            _ => entries.push(Entry::Set { keyword: line.keyword, args: line.args, rest: line.rest, place }),
        }
    }
    Ok(entries)
}

/// Returns the files that a pattern names, sorted. `*` and `?` may be in any part of the path.
fn included_files(pattern: &str, base: &Path, here: &Here) -> Vec<PathBuf> {
    let path = base.join(expand::tilde(pattern, here));
    let mut found = vec![PathBuf::new()];
    for part in path.components() {
        let text = part.as_os_str().to_string_lossy();
        if !text.contains(['*', '?']) {
            found.iter_mut().for_each(|path| path.push(part));
            continue;
        }
        let mut below: Vec<PathBuf> = Vec::new();
        for folder in &found {
            let names = fs::read_dir(folder).into_iter().flatten().flatten().map(|entry| entry.file_name());
            let names = names.filter(|name| {
                let name = name.to_string_lossy();
                matches(&text, &name) && (text.starts_with('.') || !name.starts_with('.'))
            });
            below.extend(names.map(|name| folder.join(name)));
        }
        below.sort();
        found = below;
    }
    found
}
