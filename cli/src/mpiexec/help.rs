//! What `mpiexec` prints instead of a launch, and the table of its options for the manual.

use std::fmt::Write;

use super::table::{Does, ROWS, Row, Takes};
use crate::exit::Failure;
use crate::print;

/// `mpiexec --version`.
pub(super) fn version() -> Result<u8, Failure> {
    print::out(&format!("mpiexec (rsd) {}\n", env!("CARGO_PKG_VERSION"))).map(|()| 0)
}

/// `mpiexec -info`.
pub(super) fn info() -> Result<u8, Failure> {
    let own = std::env::current_exe().map_or_else(|_| "unknown".to_owned(), |path| path.display().to_string());
    let base = rsd_config::runtime_dir(|name| std::env::var_os(name))?;
    let text = format!(
        "version:      mpiexec (rsd) {}\nprogram:      {own}\ndaemon:       {}\nsockets:      {}\n",
        env!("CARGO_PKG_VERSION"),
        crate::private::program().display(),
        base.display(),
    );
    print::out(&text).map(|()| 0)
}

/// `mpiexec --help`.
pub(super) fn help() -> Result<u8, Failure> {
    let mut text = "\
Usage: mpiexec [OPTIONS] PROGRAM [ARGUMENTS] [: [OPTIONS] PROGRAM [ARGUMENTS]]…

Runs MPI programs on the daemons of rsd or, if none is running, on this machine alone. Options have one dash or two.
In which launcher each has this meaning, exit codes and differences: rsctl help from-mpirun
"
    .to_owned();
    for (title, rows) in ROWS {
        // Writing to a String cannot fail.
        let _ = writeln!(text, "\n{title}:");
        for row in rows.iter().filter(|row| is_used(row)) {
            let names = row.names().map(|name| format!("-{name}")).fold(Vec::new(), |mut names, name| {
                if !names.contains(&name) {
                    names.push(name);
                }
                names
            });
            let names = format!("{}{}", names.join(", "), values(row.takes));
            let _ = match names.chars().count() > 34 {
                true => writeln!(text, "  {names}\n  {:34}  {}", "", row.here),
                false => writeln!(text, "  {names:34}  {}", row.here),
            };
        }
    }
    text.push_str("\nVariables: MPIEXEC_TIMEOUT (seconds), MPIEXEC_UNIVERSE_SIZE, HYDRA_HOST_FILE, RSD_DVM\n");
    print::out(&text).map(|()| 0)
}

fn is_used(row: &Row) -> bool {
    !matches!(row.does, Does::Ignored(_) | Does::Refused(_))
}

fn values(takes: Takes) -> String {
    match takes {
        Takes::Nothing => String::new(),
        Takes::Value(what) | Takes::Two(what) => format!(" {what}"),
        Takes::Pair => " NAME VALUE".to_owned(),
        Takes::Hosts => " HOSTS".to_owned(),
    }
}

/// Returns the table of all options for the manual, in Markdown: which launcher has each, and what it means here.
#[cfg(test)]
fn markdown() -> String {
    let mut text = String::new();
    for (title, rows) in ROWS {
        let _ = writeln!(text, "### {title}\n\n| Option | Open MPI | Hydra | smpd | Here |\n|---|---|---|---|---|");
        for row in *rows {
            let mut named: Vec<&str> = Vec::new();
            for name in row.names() {
                let mark = |names: &str| if names.split_whitespace().any(|own| own == name) { "yes" } else { "-" };
                let [openmpi, hydra, smpd] = [row.openmpi, row.hydra, row.smpd].map(mark);
                if named.contains(&name) {
                    continue;
                }
                let here = match (named.first(), row.does) {
                    (Some(first), _) => format!("as `-{first}`"),
                    (None, Does::Refused(instead)) => format!("refused: {instead}"),
                    (None, Does::Ignored(why)) => format!("ignored with a notice: {why}"),
                    (None, _) => row.here.to_owned(),
                };
                let values = if named.is_empty() { values(row.takes).replace('|', r"\|") } else { String::new() };
                let here = here.replace('|', r"\|");
                let _ = writeln!(text, "| `-{name}{values}` | {openmpi} | {hydra} | {smpd} | {here} |");
                named.push(name);
            }
        }
        text.push('\n');
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::topics;

    #[test]
    fn the_manual_has_the_table_of_options() {
        let topic = topics::find("from-mpirun").unwrap();
        let table = markdown();
        assert!(topic.source.contains(&table), "replace the tables below `## Options of mpiexec` by:\n\n{table}");
    }
}
