//! Generates the list of implemented functions.

use std::fmt::Write;

use super::tables::{Function, Tables};

/// `COVERAGE.md`.
pub(super) fn page(tables: &Tables) -> String {
    let done = |function: &&Function| tables.implementation(function).is_some();
    let of_standard = || tables.functions.iter().filter(|function| !function.name.starts_with("MPIX_"));
    let (all, sum) = (of_standard().count(), of_standard().filter(done).count());
    let mut text = format!(
        "# What rsd implements of the MPI 5.0 standard ABI\n\n\
         Generated from `*.tsv` by `cargo xtask abi`: do not edit. {sum} of {all} functions are implemented. The others can be\n\
         linked and called; they report `MPI_ERR_UNSUPPORTED_OPERATION` to the error handler. Functions that begin with MPIX_ are\n\
         extensions, and do not count.\n\n\
         | chapter | implemented | of |\n|---|---|---|\n"
    );
    for chapter in tables.chapters() {
        let functions = || tables.functions.iter().filter(|function| function.chapter == chapter);
        let _ = writeln!(text, "| {chapter} | {} | {} |", functions().filter(done).count(), functions().count());
    }
    text += "\n| function | chapter | |\n|---|---|---|\n";
    for function in &tables.functions {
        let state = if done(&function) { "implemented" } else { "unsupported" };
        let _ = writeln!(text, "| {} | {} | {state} |", function.name, function.chapter);
    }
    text
}
