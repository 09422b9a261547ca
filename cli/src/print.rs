//! Printing: messages, tables, durations and sizes.

use std::borrow::Cow;
use std::io::{self, Write};
use std::sync::OnceLock;

use rsd_proto::transport::exit;
pub(crate) use rsd_proto::visible::visible;

use crate::exit::Failure;

/// Prints on stdout. A closed pipe causes no message, but an exit code for scripts.
pub(crate) fn out(text: &str) -> Result<(), Failure> {
    let mut stdout = io::stdout().lock();
    written(stdout.write_all(text.as_bytes()).and_then(|()| stdout.flush()))
}

/// Turns the result of a write to stdout into a failure.
pub(crate) fn written(result: io::Result<()>) -> Result<(), Failure> {
    match result {
        Ok(()) => Ok(()),
        Err(error) if error.kind() == io::ErrorKind::BrokenPipe => Err(Failure::new(BROKEN_PIPE, "")),
        Err(error) => Err(Failure::new(exit::SYSTEM, format!("cannot write to standard output: {error}"))),
    }
}

/// The code that a shell shows for a process killed by SIGPIPE.
pub(crate) const BROKEN_PIPE: u8 = 128 + 13;

/// The name of the program in its messages.
static NAME: OnceLock<&'static str> = OnceLock::new();

/// Sets the name under which this program was called. Only the first call has an effect.
pub(crate) fn set_name(name: &'static str) {
    let _ = NAME.set(name);
}

/// Prints a message on stderr, after the name of the program. A failed write is ignored: there is no other place to report it.
pub(crate) fn say(text: &str) {
    let _ = writeln!(io::stderr(), "{}: {}", NAME.get().unwrap_or(&"rsctl"), visible(text));
}

/// Prints a line on stderr as it is.
pub(crate) fn err(line: &str) {
    let _ = writeln!(io::stderr(), "{line}");
}

/// Returns [`visible`] text on one line: a newline in an argument must not look like another row.
pub(crate) fn one_line(text: &str) -> String {
    visible(text).replace(['\n', '\t'], " ")
}

/// Returns the number of columns of standard output; None if it is not a terminal.
pub(crate) fn width() -> Option<usize> {
    terminal_size::terminal_size_of(io::stdout()).map(|(width, _)| usize::from(width.0))
}

/// Alignment of a column.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Align {
    Left,
    Right,
}

/// Returns a table with two spaces between columns and no trailing blanks.
pub(crate) fn table<const N: usize>(columns: [(&str, Align); N], rows: &[[String; N]]) -> String {
    columns_within(None, &columns, rows)
}

/// The same, with the last column shortened if a line would be longer than `width`.
pub(crate) fn table_within<const N: usize>(
    width: Option<usize>,
    columns: [(&str, Align); N],
    rows: &[[String; N]],
) -> String {
    columns_within(width, &columns, rows)
}

/// The same for a number of columns that is not fixed; each row has as many cells.
pub(crate) fn columns_within<R: AsRef<[String]>>(
    width: Option<usize>,
    columns: &[(&str, Align)],
    rows: &[R],
) -> String {
    let rows: Vec<Vec<String>> =
        rows.iter().map(|row| row.as_ref().iter().map(|cell| one_line(cell)).collect()).collect();
    let widest = |(column, (title, _)): (usize, &(&str, Align))| {
        let cells = rows.iter().filter_map(|row| row.get(column)).map(|cell| cell.chars().count());
        cells.chain([title.chars().count()]).max().unwrap_or(0)
    };
    let widths: Vec<usize> = columns.iter().enumerate().map(widest).collect();
    let end = columns.len().saturating_sub(1);
    let before_last: usize = widths.iter().take(end).map(|width| width + 2).sum();
    // At least as wide as its title: a narrower terminal cannot show tables.
    let title = columns.last().map_or(0, |(title, _)| title.len());
    let last = width.map(|width| width.saturating_sub(before_last).max(title));
    let line = |cells: &[&str]| {
        let padded = cells.iter().zip(columns).enumerate().map(|(column, (cell, (_, align)))| {
            let cell = match last {
                Some(last) if column == end => shortened(cell, last),
                Some(_) | None => Cow::Borrowed(*cell),
            };
            // Not padded by a format width, which has an upper limit that an argument may exceed.
            let padding = " ".repeat(widths[column].saturating_sub(cell.chars().count()));
            match align {
                Align::Left if column == end => cell.into_owned(),
                Align::Left => format!("{cell}{padding}"),
                Align::Right => format!("{padding}{cell}"),
            }
        });
        format!("{}\n", padded.collect::<Vec<_>>().join("  ").trim_end())
    };
    let head = line(&columns.iter().map(|(title, _)| *title).collect::<Vec<_>>());
    rows.iter().fold(head, |text, row| text + &line(&row.iter().map(String::as_str).collect::<Vec<_>>()))
}

/// Returns at most `width` characters; the last is `…` if some are left out.
pub(crate) fn shortened(text: &str, width: usize) -> Cow<'_, str> {
    match text.char_indices().nth(width) {
        None => Cow::Borrowed(text),
        Some(_) => text.chars().take(width.saturating_sub(1)).chain(['…']).collect(),
    }
}

/// Returns a duration as `8s`, `3m12s`, `2h05m` or `3d04h`.
pub(crate) fn duration(ms: u64) -> String {
    let seconds = ms / 1000;
    let (minutes, hours, days) = (seconds / 60, seconds / 3600, seconds / 86400);
    match (days, hours, minutes) {
        (0, 0, 0) if ms < 10_000 => format!("{}.{}s", seconds, ms % 1000 / 100),
        (0, 0, 0) => format!("{seconds}s"),
        (0, 0, _) => format!("{minutes}m{:02}s", seconds % 60),
        (0, _, _) => format!("{hours}h{:02}m", minutes % 60),
        (_, _, _) => format!("{days}d{:02}h", hours % 24),
    }
}

/// Returns a size as `7.8 GiB`.
pub(crate) fn bytes(count: u64) -> String {
    const UNITS: [&str; 5] = ["B", "KiB", "MiB", "GiB", "TiB"];
    let unit = (0..UNITS.len() - 1).find(|&unit| count >> (10 * (unit + 1)) == 0).unwrap_or(UNITS.len() - 1);
    match unit {
        0 => format!("{count} B"),
        _ => format!("{:.1} {}", count as f64 / (1_u64 << (10 * unit)) as f64, UNITS[unit]),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn columns_are_aligned_without_trailing_blanks() {
        let rows = [["7".to_owned(), "n0".to_owned(), "./a".to_owned()], ["12".into(), "nodé1".into(), String::new()]];
        let text = table([("JOB", Align::Right), ("NODES", Align::Left), ("COMMAND", Align::Left)], &rows);
        assert_eq!(text, "JOB  NODES  COMMAND\n  7  n0     ./a\n 12  nodé1\n");
    }

    #[test]
    fn a_command_line_of_any_length_is_shown_and_shortened_on_a_terminal() {
        let columns = [("JOB", Align::Right), ("COMMAND", Align::Left)];
        let rows = [["7".to_owned(), "x".repeat(70_000)], ["8".to_owned(), "./a".to_owned()]];
        let whole = table(columns, &rows);
        assert_eq!(whole.lines().map(str::len).collect::<Vec<_>>(), [12, 70_005, 8]);
        assert_eq!(table_within(Some(12), columns, &rows), "JOB  COMMAND\n  7  xxxxxx…\n  8  ./a\n");
        assert_eq!(table_within(Some(3), columns, &rows), "JOB  COMMAND\n  7  xxxxxx…\n  8  ./a\n");
    }

    #[test]
    fn control_characters_are_shown_instead_of_sent_to_the_terminal() {
        assert_eq!(one_line("./ring\n10\u{0}"), "./ring 10^@");
        let text =
            table([("A", Align::Left), ("B", Align::Left)], &[["\u{1b}]0;x\u{7}".to_owned(), "y\nz".to_owned()]]);
        assert_eq!(text, "A         B\n^[]0;x^G  y z\n");
    }

    #[test]
    fn durations_are_printed_in_short_form() {
        let vectors = [
            (0, "0.0s"),
            (1_234, "1.2s"),
            (12_345, "12s"),
            (192_000, "3m12s"),
            (7_500_000, "2h05m"),
            (273_600_000, "3d04h"),
        ];
        for (ms, text) in vectors {
            assert_eq!(duration(ms), text);
        }
    }

    #[test]
    fn sizes_are_in_the_unit_that_fits() {
        let vectors =
            [(0, "0 B"), (1023, "1023 B"), (1024, "1.0 KiB"), (8_375_186_227, "7.8 GiB"), (1 << 52, "4096.0 TiB")];
        for (count, text) in vectors {
            assert_eq!(bytes(count), text);
        }
    }
}
