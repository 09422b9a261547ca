//! Checks our dependencies: their licences, where they come from, and that no package is there in two versions.
//!
//! Cargo itself knows all of this, so no tool has to be compiled for it. Security advisories are not checked, because they change
//! without a change here.

use std::collections::BTreeMap;

use anyhow::{Context, ensure};

use crate::shell::{cargo, quiet};

/// The targets whose dependencies are checked.
const TARGETS: [&str; 2] = ["x86_64-unknown-linux-gnu", "aarch64-unknown-linux-gnu"];

/// The licences that rsd's own (Apache-2.0 OR MIT) may be combined with.
const LICENCES: [&str; 6] = ["MIT", "Apache-2.0", "BSD-3-Clause", "ISC", "Unicode-3.0", "Zlib"];

/// The packages that may have several versions: the name, the extra version's beginning, and the reason.
const EXTRA_VERSIONS: [(&str, &str, &str); 10] = [
    ("bitflags", "1.", "hwloc2 depends on it"),
    ("errno", "0.2.", "hwloc2 depends on it"),
    ("foldhash", "0.1.", "petgraph, in the code generator only"),
    ("getrandom", "0.2.", "ring depends on it"),
    ("hashbrown", "0.15.", "petgraph, in the code generator only"),
    ("logos", "0.15.", "protox, in the code generator only"),
    ("logos-codegen", "0.15.", "protox, in the code generator only"),
    ("logos-derive", "0.15.", "protox, in the code generator only"),
    ("syn", "2.", "derive macros move to syn 3 one by one; none of it is in our programs"),
    ("unicode-width", "0.1.", "miette, in the code generator only"),
];

/// Checks the dependencies of the whole workspace.
pub(crate) fn check() -> anyhow::Result<()> {
    let mut packages = BTreeMap::new();
    for target in TARGETS {
        let tree = [
            "tree",
            "--locked",
            "--workspace",
            "--edges=normal,build,dev",
            "--prefix=none",
            "--format={p}|{l}",
            "--target",
        ];
        let told = quiet(cargo(tree).arg(target))?;
        for line in String::from_utf8(told.stdout)?.lines().filter(|line| !line.is_empty()) {
            let package = Package::parse(line).with_context(|| format!("read {line:?} of cargo tree"))?;
            packages.insert((package.name.clone(), package.version.clone()), package);
        }
    }
    let faults = faults(packages.values(), &EXTRA_VERSIONS);
    ensure!(faults.is_empty(), "dependencies:\n{}", faults.join("\n"));
    Ok(())
}

/// A package as `cargo tree` shows it.
#[derive(Debug)]
struct Package {
    name: String,
    version: String,
    /// A path or a repository; None: the registry.
    place: Option<String>,
    licence: String,
}

impl Package {
    /// Parses `NAME vVERSION (PLACE) (*)|LICENCE`; the two in parentheses may be missing, and `(proc-macro)` may be there.
    fn parse(line: &str) -> Option<Package> {
        let (package, licence) = line.split_once('|')?;
        let mut words = package.split(' ');
        let (name, version) = (words.next()?, words.next()?.strip_prefix('v')?);
        let place = words.find(|word| !["(*)", "(proc-macro)"].contains(word));
        let licence = licence.trim_end_matches(" (*)");
        Some(Package {
            name: name.to_owned(),
            version: version.to_owned(),
            place: place.map(|place| place.trim_matches(['(', ')']).to_owned()),
            licence: licence.to_owned(),
        })
    }
}

fn faults<'a>(packages: impl IntoIterator<Item = &'a Package>, extra: &[(&str, &str, &str)]) -> Vec<String> {
    let mut faults = Vec::new();
    let mut versions: BTreeMap<&str, Vec<&str>> = BTreeMap::new();
    for package in packages {
        let Package { name, version, place, licence } = package;
        if !allowed(licence) {
            faults.push(format!("{name} {version}: the licence `{licence}` is not among {}", LICENCES.join(", ")));
        }
        if let Some(place) = place.as_deref().filter(|place| !place.starts_with('/')) {
            faults.push(format!("{name} {version} comes from {place}: use a release from the registry"));
        }
        versions.entry(name).or_default().push(version);
    }
    for (name, versions) in &versions {
        let is_extra = |version: &str| extra.iter().any(|(of, start, _)| of == name && version.starts_with(start));
        let kept: Vec<&str> = versions.iter().copied().filter(|version| !is_extra(version)).collect();
        if kept.len() > 1 {
            faults.push(format!(
                "{name} is built in the versions {}: update what depends on the older one, or add it to EXTRA_VERSIONS with the reason",
                kept.join(" and ")
            ));
        }
    }
    for (name, start, _) in extra {
        let of = versions.get(name).map(Vec::as_slice).unwrap_or_default();
        if of.len() < 2 || !of.iter().any(|version| version.starts_with(start)) {
            faults.push(format!("{name} {start}x is no longer an extra version: remove it from EXTRA_VERSIONS"));
        }
    }
    faults
}

/// Whether a licence expression (SPDX, or the older form with `/` for OR) can be met with [`LICENCES`].
fn allowed(expression: &str) -> bool {
    let spaced = expression.replace('/', " OR ").replace('(', " ( ").replace(')', " ) ");
    let mut words = spaced.split_whitespace().peekable();
    any(&mut words) == Some(true) && words.next().is_none()
}

type Words<'a> = std::iter::Peekable<std::str::SplitWhitespace<'a>>;

/// Parses and evaluates alternatives; None: the expression is malformed.
fn any(words: &mut Words<'_>) -> Option<bool> {
    let mut allowed = all(words)?;
    while words.next_if_eq(&"OR").is_some() {
        allowed |= all(words)?;
    }
    Some(allowed)
}

fn all(words: &mut Words<'_>) -> Option<bool> {
    let mut allowed = one(words)?;
    while words.next_if_eq(&"AND").is_some() {
        allowed &= one(words)?;
    }
    Some(allowed)
}

fn one(words: &mut Words<'_>) -> Option<bool> {
    match words.next()? {
        "(" => {
            let allowed = any(words)?;
            (words.next()? == ")").then_some(allowed)
        }
        licence => {
            // An exception only grants more, but each is a text of its own that somebody must have read.
            let exception = words.next_if_eq(&"WITH").and_then(|_| words.next());
            Some(LICENCES.contains(&licence) && exception.is_none_or(|name| name == "LLVM-exception"))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn licence_expressions_are_evaluated() {
        for yes in [
            "MIT",
            "MIT/Apache-2.0",
            "GPL-3.0-only OR MIT",
            "(MIT OR Apache-2.0) AND Unicode-3.0",
            "Apache-2.0 WITH LLVM-exception OR GPL-2.0-only",
            "MIT OR Apache-2.0 OR LGPL-2.1-or-later",
        ] {
            assert!(allowed(yes), "{yes}");
        }
        for no in ["", "GPL-3.0-only", "MIT AND GPL-3.0-only", "(MIT", "MIT MIT", "MIT OR", "MIT WITH Unknown", "mit"] {
            assert!(!allowed(no), "{no:?}");
        }
    }

    #[test]
    fn second_versions_foreign_sources_and_outdated_exceptions_are_reported() {
        let packages = [
            "a v1.0.0|MIT",
            "a v2.0.0 (proc-macro) (*)|MIT",
            "b v0.1.0 (https://example.org/b#1234)|MIT",
            "c v0.1.0 (/home/me/rsd/c)|MIT",
            "d v1.2.3|Proprietary",
        ]
        .map(|line| Package::parse(line).unwrap());
        let found = faults(&packages, &[("c", "0.", "no reason")]);
        let starts = ["b 0.1.0 comes from https", "d 1.2.3: the licence", "a is built in", "c 0.x is no longer"];
        assert_eq!(found.len(), starts.len(), "{found:?}");
        for (fault, start) in found.iter().zip(starts) {
            assert!(fault.starts_with(start), "{fault}");
        }
        assert_eq!(faults(&packages[..2], &[("a", "1.", "a reason")]), Vec::<String>::new());
    }
}
