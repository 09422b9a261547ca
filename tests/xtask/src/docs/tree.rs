//! The files of a checkout, for the checks.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::process::Command;

use anyhow::Context;

use crate::shell::quiet;

/// Tracked files by path, with their text; a binary file has an empty text.
pub(super) struct Tree {
    files: BTreeMap<String, String>,
    folders: BTreeSet<String>,
}

impl Tree {
    /// Reads the tracked files, and new files that git does not ignore.
    pub(super) fn of_checkout(root: &Path) -> anyhow::Result<Tree> {
        let mut list = Command::new("git");
        list.current_dir(root).args(["ls-files", "-z", "--cached", "--others", "--exclude-standard"]);
        let paths = quiet(&mut list).context("list the checkout's files")?.stdout;
        let paths = String::from_utf8_lossy(&paths).into_owned();
        // A file that is deleted but still tracked is skipped.
        let existing = paths.split('\0').filter(|path| root.join(path).is_file());
        let read = |path: &str| (path.to_owned(), std::fs::read_to_string(root.join(path)).unwrap_or_default());
        Ok(Tree::of(existing.map(read)))
    }

    /// A tree of these files.
    pub(super) fn of(files: impl IntoIterator<Item = (String, String)>) -> Tree {
        let files: BTreeMap<String, String> = files.into_iter().collect();
        let mut folders = BTreeSet::new();
        for path in files.keys() {
            let above = path.match_indices('/').map(|(at, _)| path[..at].to_owned());
            folders.extend(above);
        }
        Tree { files, folders }
    }

    pub(super) fn text(&self, path: &str) -> Option<&str> {
        self.files.get(path).map(String::as_str)
    }

    /// Files with their texts.
    pub(super) fn files(&self) -> impl Iterator<Item = (&str, &str)> {
        self.files.iter().map(|(path, text)| (path.as_str(), text.as_str()))
    }

    /// Whether a file or folder has exactly this path.
    pub(super) fn has(&self, path: &str) -> bool {
        self.files.contains_key(path) || self.folders.contains(path)
    }

    /// The paths of files and folders.
    pub(super) fn paths(&self) -> impl Iterator<Item = &str> {
        self.files.keys().chain(&self.folders).map(String::as_str)
    }
}
