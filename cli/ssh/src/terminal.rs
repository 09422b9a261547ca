//! Asks for a passphrase on the terminal.

use std::io::{self, IsTerminal, Read, Write};

use nix::sys::termios::{LocalFlags, SetArg, SpecialCharacterIndices, Termios, tcgetattr, tcsetattr};

/// Returns whether a person can be asked: standard input and standard error are the terminal.
pub(crate) fn is_there() -> bool {
    io::stdin().is_terminal() && io::stderr().is_terminal()
}

/// Prints a question and reads a line without showing it. None: the user gave up (Ctrl-C, or the end of the input).
pub(crate) fn ask(question: &str) -> io::Result<Option<String>> {
    let mut stderr = io::stderr();
    // Before the question, so that nothing is shown of an answer that comes at once.
    let silent = Silent::new()?;
    // The line may have a progress display.
    write!(stderr, "\r\x1b[K{question}")?;
    stderr.flush()?;
    let answer = read(io::stdin());
    drop(silent);
    writeln!(stderr)?;
    answer
}

/// The terminal without echo and line editing, until this value is dropped. Keys such as Ctrl-C arrive as bytes, so that no signal
/// ends the process while the terminal is in this state.
struct Silent(Termios);

impl Silent {
    fn new() -> io::Result<Silent> {
        let before = tcgetattr(io::stdin())?;
        let mut silent = before.clone();
        silent.local_flags.remove(LocalFlags::ECHO | LocalFlags::ICANON | LocalFlags::ISIG);
        silent.control_chars[SpecialCharacterIndices::VMIN as usize] = 1;
        silent.control_chars[SpecialCharacterIndices::VTIME as usize] = 0;
        tcsetattr(io::stdin(), SetArg::TCSAFLUSH, &silent)?;
        Ok(Silent(before))
    }
}

impl Drop for Silent {
    fn drop(&mut self) {
        // There is no place to report an error.
        let _ = tcsetattr(io::stdin(), SetArg::TCSAFLUSH, &self.0);
    }
}

fn read(mut from: impl Read) -> io::Result<Option<String>> {
    let mut line = Vec::new();
    let mut byte = [0];
    loop {
        match from.read(&mut byte) {
            Ok(0) => return Ok(None),
            Ok(_) => {}
            Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
            Err(error) => return Err(error),
        }
        match byte[0] {
            b'\r' | b'\n' => return Ok(Some(String::from_utf8_lossy(&line).into_owned())),
            // Ctrl-C and Ctrl-D.
            3 => return Ok(None),
            4 if line.is_empty() => return Ok(None),
            // Backspace and Ctrl-U.
            8 | 127 => drop(line.pop()),
            21 => line.clear(),
            other => line.push(other),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_can_be_corrected_and_given_up() {
        let line = |bytes: &[u8]| read(bytes).unwrap();
        assert_eq!(line(b"secret\n").as_deref(), Some("secret"));
        assert_eq!(line(b"wrong\x15sex\x7fcret\r").as_deref(), Some("secret"));
        assert_eq!((line(b"abc\x03"), line(b"\x04"), line(b"abc")), (None, None, None));
    }
}
