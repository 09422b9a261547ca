//! `cargo xtask layers`: a module uses only modules of lower layers, and no folder has a circle.
//!
//! [`CRATES`] lists the layers of each crate whose modules have an order. Within a folder the order is free, but two sibling modules
//! may not use each other, directly or through others. A file and the folder with its name count as one module: a child may use its
//! parent and a parent its children. Code that is compiled only for tests or models is ignored.

mod source;

use std::collections::{BTreeMap, BTreeSet};
use std::ffi::OsString;
use std::path::Path;

use crate::places;
use crate::shell::step;
use source::{Module, Modules};

/// A crate whose modules are checked.
struct Crate {
    /// Its root file.
    root: &'static str,
    /// Its top modules from the lowest layer to the highest, every one of them. Modules of one layer stand in one line and do not
    /// use each other. None: the order is free, and only circles are refused.
    layers: &'static [&'static str],
}

const CRATES: [Crate; 10] = [
    Crate { root: "proto/src/lib.rs", layers: &[] },
    Crate { root: "config/src/lib.rs", layers: &[] },
    Crate { root: "daemon/core/src/lib.rs", layers: &[] },
    Crate { root: "daemon/src/main.rs", layers: &[] },
    Crate { root: "cli/ssh/src/lib.rs", layers: &[] },
    Crate { root: "cli/src/main.rs", layers: &[] },
    Crate { root: "client-lib/bootstrap/src/lib.rs", layers: &[] },
    Crate { root: "client-lib/pmi/src/lib.rs", layers: &[] },
    Crate { root: "client-lib/pmi2/src/lib.rs", layers: &[] },
    Crate {
        root: "client-lib/src/lib.rs",
        layers: &[
            "abi",
            "error copy hint",
            "datatype",
            "device",
            "settings memory op",
            "engine",
            "shared_memory",
            "transport",
            "coll",
            "object",
            "runtime",
            "api",
            "exports",
        ],
    },
];

/// The arrows between sibling modules, each with the uses that cause it: `(module, used path)`.
type Arrows<'a> = BTreeMap<(&'a str, &'a str), Vec<(&'a Module, String)>>;

/// `cargo xtask layers`.
pub(crate) fn layers(_args: &[OsString]) -> anyhow::Result<()> {
    step("layers", check)
}

/// Fails with all arrows that point up or make a circle.
pub(crate) fn check() -> anyhow::Result<()> {
    let mut faults = Vec::new();
    for it in &CRATES {
        let modules = Modules::read(&places::root().join(it.root))?;
        let told = faults_of(&modules, it.layers);
        faults.extend(told.into_iter().map(|fault| format!("{}: {fault}", it.root)));
    }
    anyhow::ensure!(faults.is_empty(), "modules use higher layers, or each other:\n{}", faults.join("\n"));
    Ok(())
}

fn faults_of(modules: &Modules, layers: &[&str]) -> Vec<String> {
    let folders: BTreeSet<&[String]> =
        modules.all().filter_map(|module| module.path.split_last()).map(|it| it.1).collect();
    let mut faults = Vec::new();
    for folder in folders {
        let arrows = arrows(modules, folder);
        if folder.is_empty() && !layers.is_empty() {
            faults.extend(unlisted(modules, layers));
            faults.extend(upward(&arrows, layers));
        }
        faults.extend(circular(&arrows, folder));
    }
    faults
}

/// Top modules that no layer lists, and listed ones that do not exist.
fn unlisted(modules: &Modules, layers: &[&str]) -> Vec<String> {
    let listed: BTreeSet<&str> = layers.iter().flat_map(|layer| layer.split(' ')).collect();
    let there: BTreeSet<&str> = modules.all().filter_map(|module| module.path.first()).map(String::as_str).collect();
    let missing = there.difference(&listed).map(|name| format!("module {name} is in no layer: add it to CRATES"));
    let gone = listed.difference(&there).map(|name| format!("layer lists {name}, which does not exist"));
    missing.chain(gone).collect()
}

fn upward(arrows: &Arrows<'_>, layers: &[&str]) -> Vec<String> {
    let height = |name: &str| layers.iter().position(|layer| layer.split(' ').any(|it| it == name));
    let up = arrows.iter().filter(|((from, to), _)| height(to) >= height(from));
    up.map(|((from, to), uses)| format!("{from} uses {to}, which is not below it: {}", told(uses))).collect()
}

fn circular(arrows: &Arrows<'_>, folder: &[String]) -> Vec<String> {
    let leads_back = |from: &str, to: &str| {
        let (mut seen, mut todo) = (BTreeSet::from([to]), vec![to]);
        while let Some(next) = todo.pop() {
            let onward = arrows.keys().filter(|(start, _)| *start == next).map(|(_, end)| *end);
            todo.extend(onward.filter(|end| seen.insert(end)));
        }
        seen.contains(from)
    };
    let circle = arrows.iter().filter(|((from, to), _)| leads_back(from, to));
    let place = if folder.is_empty() { String::new() } else { format!(" in {}", folder.join("::")) };
    circle.map(|((from, to), uses)| format!("circle{place}: {from} uses {to}: {}", told(uses))).collect()
}

/// Returns the uses between the modules of one folder, including those in modules below them.
fn arrows<'a>(modules: &'a Modules, folder: &[String]) -> Arrows<'a> {
    let mut arrows = Arrows::new();
    let inside = |path: &'a [String]| path.strip_prefix(folder).and_then(<[String]>::first);
    for module in modules.all() {
        let Some(from) = inside(&module.path) else { continue };
        for used in &module.uses {
            let Some(target) = modules.resolve(&module.path, used) else { continue };
            let Some(to) = inside(target) else { continue };
            if from != to {
                arrows.entry((from.as_str(), to.as_str())).or_default().push((module, used.join("::")));
            }
        }
    }
    arrows
}

fn told(uses: &[(&Module, String)]) -> String {
    let told: BTreeSet<String> =
        uses.iter().map(|(module, path)| format!("{} uses {path}", shown(&module.file))).collect();
    told.into_iter().collect::<Vec<_>>().join(", ")
}

fn shown(file: &Path) -> String {
    file.strip_prefix(places::root()).unwrap_or(file).display().to_string()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn faults(files: &[(&str, &str)], layers: &[&str]) -> Vec<String> {
        let read = |path: &Path| {
            let found = files.iter().find(|(name, _)| Path::new(name) == path);
            found.map(|(_, text)| (*text).to_owned())
        };
        faults_of(&Modules::of(Path::new("lib.rs"), &read).unwrap(), layers)
    }

    #[test]
    fn no_module_uses_one_above_it() {
        check().unwrap();
    }

    #[test]
    fn an_arrow_up_is_found_in_uses_and_in_paths_but_not_in_tests_comments_and_strings() {
        let root = ("lib.rs", "mod low; mod high;");
        let high = ("high.rs", "use crate::low::{self, Thing}; pub struct Other<'a>(&'a str);");
        let clean = "// use crate::high;\nconst A: &str = \"crate::high\"; const B: char = '\"';\n\
                     #[cfg(test)] mod tests { use crate::high::Other; }\n pub struct Thing;";
        assert_eq!(faults(&[root, high, ("low.rs", clean)], &["low", "high"]), Vec::<String>::new());
        for text in [
            "use crate::{high::Other};",
            "use super::high;",
            "fn f() { crate::high::f(1) }",
            "fn f(_: crate::high::Other) {}",
        ] {
            let found = faults(&[root, ("high.rs", ""), ("low.rs", text)], &["low", "high"]);
            assert!(
                matches!(&found[..], [one] if one.starts_with("low uses high, which is not below it: low.rs uses ")),
                "{found:?}"
            );
        }
    }

    #[test]
    fn a_circle_is_found_in_a_folder_and_through_its_parents_exports() {
        let files = |b: &'static str| {
            [
                ("lib.rs", "mod room;"),
                ("room/mod.rs", "mod a; mod b; pub use a::A; pub struct Own;"),
                ("room/a.rs", "use super::{Own, b::B}; pub struct A;"),
                ("room/b.rs", b),
            ]
        };
        assert_eq!(faults(&files("use super::Own; pub struct B;"), &[]), Vec::<String>::new());
        for b in ["use super::A;", "use crate::room::A as Other;", "fn f() -> super::A { todo!() }"] {
            assert_eq!(faults(&files(b), &[]).len(), 2, "{b}");
        }
    }

    #[test]
    fn every_top_module_has_a_layer() {
        let found = faults(&[("lib.rs", "mod one; mod two;"), ("one.rs", ""), ("two.rs", "")], &["one", "three"]);
        assert_eq!(found, ["module two is in no layer: add it to CRATES", "layer lists three, which does not exist"]);
    }
}
