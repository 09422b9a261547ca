//! Reads the interface from `client-lib/abi/*.tsv`.

use std::collections::BTreeMap;
use std::fs;
use std::path::PathBuf;

use anyhow::{Context, bail};

use crate::places;

/// The folder of the tables and of the files that are generated for C.
pub(super) fn folder() -> PathBuf {
    places::root().join("client-lib/abi")
}

/// All tables.
pub(super) struct Tables {
    /// In the order of the table: by chapter, then by name.
    pub(super) functions: Vec<Function>,
    pub(super) constants: Vec<Constant>,
    pub(super) callbacks: Vec<Function>,
    implemented: BTreeMap<String, Implementation>,
}

/// A function, or the type of a function pointer.
pub(super) struct Function {
    /// The chapter of the standard, abbreviated; empty for a callback.
    pub(super) chapter: String,
    pub(super) name: String,
    /// The result type in C.
    pub(super) result: String,
    pub(super) parameters: Vec<Parameter>,
}

/// `const int ranks[]` is split into `const int`, `ranks`, `[]`.
pub(super) struct Parameter {
    /// With qualifiers and stars; `...` has neither name nor suffix.
    pub(super) ty: String,
    pub(super) name: String,
    pub(super) suffix: String,
}

pub(super) struct Constant {
    pub(super) group: Group,
    pub(super) name: String,
    pub(super) ty: String,
    /// A number, or the name of another constant.
    pub(super) value: String,
}

#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Group {
    Handle,
    Pointer,
    Number,
    Enum,
}

/// A line of `implemented.tsv`.
pub(super) struct Implementation {
    /// The path below `crate::api`.
    pub(super) path: String,
    pub(super) way: Way,
    /// Whether the implementation gets the form of the call: its last argument is true for the form with large counts.
    pub(super) gets_form: bool,
}

/// How a shim calls its implementation.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Way {
    /// Between `MPI_Init` and `MPI_Finalize`; errors go to the error handler.
    Inside,
    /// At any time; errors go to the error handler.
    Always,
    /// At any time; it returns a value and cannot fail.
    Plain,
}

impl Tables {
    pub(super) fn read() -> anyhow::Result<Tables> {
        let functions = rows("functions.tsv")?.into_iter().map(|row| match &row[..] {
            [chapter, name, result, parameters] => Function::read(chapter, name, result, parameters),
            _ => bail!("functions.tsv: {} needs four columns", row.join(" ")),
        });
        let constants = rows("constants.tsv")?.into_iter().map(|row| match &row[..] {
            [group, name, ty, value] => Constant::read(group, name, ty, value),
            _ => bail!("constants.tsv: {} needs four columns", row.join(" ")),
        });
        let callbacks = rows("callbacks.tsv")?.into_iter().map(|row| match &row[..] {
            [name, result, parameters] => Function::read("", name, result, parameters),
            _ => bail!("callbacks.tsv: {} needs three columns", row.join(" ")),
        });
        let implemented = rows("implemented.tsv")?.into_iter().map(|row| {
            let (path, way, gets_form) = match &row[1..] {
                [path] => (path, Way::Inside, false),
                [path, flag] if flag == "always" => (path, Way::Always, false),
                [path, flag] if flag == "plain" => (path, Way::Plain, false),
                [path, flag] if flag == "form" => (path, Way::Inside, true),
                _ => {
                    bail!("implemented.tsv: {}: `NAME PATH`, then `always`, `plain`, `form` or nothing", row.join(" "))
                }
            };
            Ok((row[0].clone(), Implementation { path: path.clone(), way, gets_form }))
        });
        let tables = Tables {
            functions: functions.collect::<anyhow::Result<_>>()?,
            constants: constants.collect::<anyhow::Result<_>>()?,
            callbacks: callbacks.collect::<anyhow::Result<_>>()?,
            implemented: implemented.collect::<anyhow::Result<_>>()?,
        };
        for name in tables.implemented.keys() {
            let function = tables.find(name).with_context(|| format!("implemented.tsv: unknown function {name}"))?;
            let narrow = tables.narrow_of(function);
            anyhow::ensure!(narrow.is_none(), "implemented.tsv: {name} is implemented by its int form");
        }
        Ok(tables)
    }

    pub(super) fn find(&self, name: &str) -> Option<&Function> {
        self.functions.iter().find(|function| function.name == name)
    }

    /// The chapters, in order.
    pub(super) fn chapters(&self) -> Vec<&str> {
        let mut chapters: Vec<&str> = self.functions.iter().map(|function| &*function.chapter).collect();
        chapters.dedup();
        chapters
    }

    /// For a form with large counts (`_c`, or `_x` of MPI 3), the form with `int`. `None` if their parameters differ in more than
    /// types, because they are then two functions.
    pub(super) fn narrow_of(&self, function: &Function) -> Option<&Function> {
        let narrow = self.find(function.name.strip_suffix("_c").or(function.name.strip_suffix("_x"))?)?;
        narrow.same_parameters(function).then_some(narrow)
    }

    /// For a form with `int`, the form with large counts.
    pub(super) fn wide_of(&self, function: &Function) -> Option<&Function> {
        let wide = self.find(&format!("{}_c", function.name))?;
        wide.same_parameters(function).then_some(wide)
    }

    /// A function's implementation, listed under its own name or that of its `int` form.
    pub(super) fn implementation(&self, function: &Function) -> Option<&Implementation> {
        let named = self.narrow_of(function).unwrap_or(function);
        self.implemented.get(&named.name)
    }

    /// Whether a type is a callback.
    pub(super) fn is_callback(&self, ty: &str) -> bool {
        let name = ty.trim_end_matches([' ', '*']);
        self.callbacks.iter().any(|callback| callback.name == name)
    }
}

impl Function {
    fn read(chapter: &str, name: &str, result: &str, parameters: &str) -> anyhow::Result<Function> {
        let parameters = parameters.split(", ").filter(|text| *text != "void");
        let parameters = parameters.map(Parameter::read).collect::<Option<_>>();
        let parameters = parameters.with_context(|| format!("{name}: invalid parameters"))?;
        Ok(Function { chapter: chapter.to_owned(), name: name.to_owned(), result: result.to_owned(), parameters })
    }

    fn same_parameters(&self, other: &Function) -> bool {
        let names = |function: &Function| function.parameters.iter().map(|one| one.name.clone()).collect::<Vec<_>>();
        names(self) == names(other)
    }
}

impl Parameter {
    fn read(text: &str) -> Option<Parameter> {
        if text == "..." {
            return Some(Parameter { ty: text.to_owned(), name: String::new(), suffix: String::new() });
        }
        let (text, suffix) = text.split_at(text.find('[').unwrap_or(text.len()));
        let (ty, name) = text.split_at(text.rfind([' ', '*'])? + 1);
        Some(Parameter { ty: ty.trim().to_owned(), name: name.to_owned(), suffix: suffix.to_owned() })
    }

    /// The parameter as written in C.
    pub(super) fn c(&self) -> String {
        let space = if self.ty.ends_with('*') || self.name.is_empty() { "" } else { " " };
        format!("{}{space}{}{}", self.ty, self.name, self.suffix)
    }
}

impl Constant {
    fn read(group: &str, name: &str, ty: &str, value: &str) -> anyhow::Result<Constant> {
        let group = match group {
            "handle" => Group::Handle,
            "pointer" => Group::Pointer,
            "number" => Group::Number,
            "enum" => Group::Enum,
            _ => bail!("constants.tsv: {name}: unknown group {group}"),
        };
        Ok(Constant { group, name: name.to_owned(), ty: ty.to_owned(), value: value.to_owned() })
    }
}

/// The lines of a table without its header, split into columns.
fn rows(table: &str) -> anyhow::Result<Vec<Vec<String>>> {
    let path = folder().join(table);
    let text = fs::read_to_string(&path).with_context(|| format!("read {}", path.display()))?;
    Ok(text.lines().skip(1).map(|line| line.split('\t').map(str::to_owned).collect()).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_parameter_is_split_into_type_name_and_array() {
        for (text, ty, name, suffix) in [
            ("int count", "int", "count", ""),
            ("const int ranks[]", "const int", "ranks", "[]"),
            ("int ranges[][3]", "int", "ranges", "[][3]"),
            ("char ***argv", "char ***", "argv", ""),
            ("char *argv[]", "char *", "argv", "[]"),
            ("...", "...", "", ""),
        ] {
            let read = Parameter::read(text).unwrap();
            assert_eq!((&*read.ty, &*read.name, &*read.suffix), (ty, name, suffix));
            assert_eq!(read.c(), text);
        }
    }
}
