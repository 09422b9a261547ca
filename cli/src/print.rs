//! Tables, durations and sizes for people.

use std::io::{self, Write};

use rsd_proto::transport::exit;

use crate::exit::Failure;

/// Prints on stdout. A closed pipe is not reported, but has an exit code for scripts.
pub(crate) fn out(text: &str) -> Result<(), Failure> {
    let mut stdout = io::stdout().lock();
    written(stdout.write_all(text.as_bytes()).and_then(|()| stdout.flush()))
}

/// Turns the result of a write to stdout into a failure.
pub(crate) fn written(result: io::Result<()>) -> Result<(), Failure> {
    match result {
        Ok(()) => Ok(()),
        Err(error) if error.kind() == io::ErrorKind::BrokenPipe => Err(Failure::new(BROKEN_PIPE, "")),
        Err(error) => Err(Failure::new(exit::INTERNAL, format!("cannot write to standard output: {error}"))),
    }
}

/// The code that a shell shows for a process killed by SIGPIPE.
pub(crate) const BROKEN_PIPE: u8 = 128 + 13;

/// Prints a message on stderr, after our name. A failed write is ignored: there is no other place to report it.
pub(crate) fn say(text: &str) {
    let _ = writeln!(io::stderr(), "rsctl: {text}");
}

/// Alignment of a column.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Align {
    Left,
    Right,
}

/// A table with two spaces between columns and no trailing blanks.
pub(crate) fn table<const N: usize>(columns: [(&str, Align); N], rows: &[[String; N]]) -> String {
    let width = |column: usize| {
        let cells = rows.iter().map(|row| row[column].chars().count());
        cells.chain([columns[column].0.chars().count()]).max().unwrap_or(0)
    };
    let widths: [usize; N] = std::array::from_fn(width);
    let line = |cells: [&str; N]| {
        let padded: [String; N] = std::array::from_fn(|column| match columns[column].1 {
            Align::Left => format!("{:<1$}", cells[column], widths[column]),
            Align::Right => format!("{:>1$}", cells[column], widths[column]),
        });
        format!("{}\n", padded.join("  ").trim_end())
    };
    let head = line(columns.map(|(title, _)| title));
    rows.iter().fold(head, |text, row| text + &line(std::array::from_fn(|column| row[column].as_str())))
}

/// `8s`, `3m12s`, `2h05m`, `3d04h`.
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

/// `7.8 GiB`.
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
    fn durations_are_short() {
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
