//! Generates the constants in Rust.

use std::fmt::Write;

use super::tables::{Constant, Group, Tables};

/// `constants.rs`.
pub(super) fn module(tables: &Tables) -> String {
    let mut text =
        "//! The constants of the MPI 5.0 standard ABI. Generated from `abi/constants.tsv` by `cargo xtask abi`: do \
                    not edit.\n\n"
            .to_owned();
    for constant in &tables.constants {
        let (name, value) = (&constant.name, &constant.value);
        let ty = rust_type(tables, constant);
        let _ = write!(text, "/// `{name}`.\npub const {name}: {ty} = {value};\n");
    }
    text
}

/// Handles and addresses are integers in Rust; an alias has the type that it stands for.
fn rust_type(tables: &Tables, constant: &Constant) -> &'static str {
    if let Some(of) = tables.constants.iter().find(|other| other.name == constant.value) {
        return rust_type(tables, of);
    }
    match constant.group {
        _ if constant.ty == "MPI_Offset" => "i64",
        Group::Handle | Group::Pointer => "usize",
        Group::Number | Group::Enum => "i32",
    }
}
