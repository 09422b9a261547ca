//! Files that take ranks' output: created when the first output comes, with the directories above them, and replaced if they exist.

use std::collections::{HashMap, HashSet};
use std::fs::{self, File};
use std::io::{self, Write};
use std::path::Path;
use std::sync::Arc;

/// How many files are open at a time. A job may have more ranks than a process may have files.
const OPEN_MAX: usize = 256;

/// The files of a job.
#[derive(Debug, Default)]
pub(super) struct Files {
    open: HashMap<Arc<Path>, File>,
    /// Files that this process has created or replaced.
    begun: HashSet<Arc<Path>>,
}

impl Files {
    /// Appends to a file.
    pub(super) fn write(&mut self, path: &Arc<Path>, data: &[u8]) -> io::Result<()> {
        if let Some(file) = self.open.get_mut(path) {
            return file.write_all(data);
        }
        if self.open.len() >= OPEN_MAX {
            self.open.clear();
        }
        let mut file = match self.begun.insert(Arc::clone(path)) {
            false => File::options().append(true).open(path)?,
            true => {
                if let Some(dir) = path.parent().filter(|dir| !dir.as_os_str().is_empty()) {
                    fs::create_dir_all(dir)?;
                }
                File::options().create(true).write(true).truncate(true).open(path)?
            }
        };
        file.write_all(data)?;
        self.open.insert(Arc::clone(path), file);
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn more_files_than_may_be_open_get_all_of_their_output() {
        let dir = std::env::temp_dir().join(format!("rsctl-files-{}", std::process::id()));
        let path = |at: usize| -> Arc<Path> { dir.join(format!("d{at}/out")).into() };
        let mut files = Files::default();
        fs::create_dir_all(dir.join("d0")).unwrap();
        fs::write(path(0), "of an earlier job").unwrap();
        for line in ["a\n", "b\n"] {
            (0..=OPEN_MAX).for_each(|at| files.write(&path(at), line.as_bytes()).unwrap());
        }
        assert!(files.open.len() <= OPEN_MAX);
        assert!((0..=OPEN_MAX).all(|at| fs::read_to_string(path(at)).unwrap() == "a\nb\n"));
        fs::remove_dir_all(dir).unwrap();
    }
}
