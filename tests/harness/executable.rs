//! Programs that a test writes and then executes.
//!
//! Another process writes them: one that another test forks from this process meanwhile would have the file open for writing, and the
//! kernel executes no such file.

use std::path::Path;

use crate::Call;

/// Writes a program that all users may execute.
///
/// # Panics
/// If its directory is not writable.
#[track_caller]
pub fn write_program(path: impl AsRef<Path>, bytes: impl Into<Vec<u8>>) {
    let path = path.as_ref().as_os_str();
    Call::new("sh").args(["-c".as_ref(), "cat >\"$0\" && chmod 755 \"$0\"".as_ref(), path]).stdin(bytes).ok();
}

/// Copies a program, so that all users may execute it.
///
/// # Panics
/// If it cannot be read, or its new directory is not writable.
#[track_caller]
pub fn copy_program(from: impl AsRef<Path>, to: impl AsRef<Path>) {
    let (from, to) = (from.as_ref().as_os_str(), to.as_ref().as_os_str());
    Call::new("sh").args(["-c".as_ref(), "cp \"$0\" \"$1\" && chmod 755 \"$1\"".as_ref(), from, to]).ok();
}
