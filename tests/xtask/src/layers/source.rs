//! Finds the modules of a crate and the paths that each of them uses, with the small part of Rust's grammar that this needs.

use std::collections::BTreeMap;
use std::iter::Peekable;
use std::path::{Path, PathBuf};
use std::slice::Iter;

use anyhow::Context;

/// A module, and the items of the crate that it names.
#[derive(Debug)]
pub(super) struct Module {
    pub(super) path: Vec<String>,
    pub(super) file: PathBuf,
    /// The paths as written; each leaf of a `use` is one path.
    pub(super) uses: Vec<Vec<String>>,
    /// The names that its own `use`s define, which its children may import from it.
    names: BTreeMap<String, Vec<String>>,
}

/// The modules of a crate by path.
#[derive(Debug, Default)]
pub(super) struct Modules {
    by_path: BTreeMap<Vec<String>, Module>,
}

impl Modules {
    /// Reads the modules that the file declares, from their files.
    pub(super) fn read(root: &Path) -> anyhow::Result<Self> {
        Self::of(root, &|path| std::fs::read_to_string(path).ok())
    }

    pub(super) fn of(root: &Path, read: &dyn Fn(&Path) -> Option<String>) -> anyhow::Result<Self> {
        let mut modules = Self::default();
        let folder = root.parent().context("a file lies in a folder")?;
        modules.add(Vec::new(), root, folder, read)?;
        Ok(modules)
    }

    fn add(
        &mut self,
        path: Vec<String>,
        file: &Path,
        folder: &Path,
        read: &dyn Fn(&Path) -> Option<String>,
    ) -> anyhow::Result<()> {
        let text = read(file).with_context(|| format!("read {}", file.display()))?;
        let tokens = without_tests(&tokens(&text));
        let (children, uses, names) = parse(&tokens);
        for child in children {
            let below = folder.join(&child);
            let files = [folder.join(format!("{child}.rs")), below.join("mod.rs")];
            let file = files.iter().find(|file| read(file).is_some());
            let file = file.with_context(|| format!("find module {child} of {}", file_name(&path)))?;
            self.add([path.clone(), vec![child]].concat(), file, &below, read)?;
        }
        self.by_path.insert(path.clone(), Module { path, file: file.to_owned(), uses, names });
        Ok(())
    }

    pub(super) fn all(&self) -> impl Iterator<Item = &Module> {
        self.by_path.values()
    }

    /// Returns the module that has the item of a path, as seen from a module. None if the item belongs to another crate.
    pub(super) fn resolve(&self, from: &[String], path: &[String]) -> Option<&[String]> {
        self.follow(from, path, 8)
    }

    /// Follows names that modules import by `use`, at most this many times.
    fn follow(&self, from: &[String], path: &[String], hops: u32) -> Option<&[String]> {
        let (first, mut rest) = path.split_first()?;
        let mut at = match first.as_str() {
            "crate" => Vec::new(),
            "self" => from.to_vec(),
            "super" => from[..from.len().checked_sub(1)?].to_vec(),
            name => {
                let child = [from, &[name.to_owned()]].concat();
                self.by_path.contains_key(&child).then_some(child)?
            }
        };
        while let Some((name, after)) = rest.split_first() {
            let below = [at.clone(), vec![name.clone()]].concat();
            if name == "super" {
                at.pop()?;
            } else if self.by_path.contains_key(&below) {
                at = below;
            } else {
                let there = self.by_path.get(&at)?;
                let Some(named) = there.names.get(name).filter(|_| hops > 0 && at != from) else { break };
                return self.follow(&at, &[named, after].concat(), hops - 1);
            }
            rest = after;
        }
        self.by_path.get(&at).map(|module| &module.path[..])
    }
}

fn file_name(path: &[String]) -> String {
    if path.is_empty() { "the crate".to_owned() } else { path.join("::") }
}

/// Splits a text into names, `::` and single characters, without comments and literals.
fn tokens(text: &str) -> Vec<String> {
    let chars: Vec<char> = text.chars().collect();
    let at = |index: usize| chars.get(index).copied().unwrap_or('\0');
    let is_name = |it: char| it.is_alphanumeric() || it == '_';
    let mut tokens = Vec::new();
    let mut here = 0;
    while here < chars.len() {
        let start = here;
        match at(here) {
            '/' if at(here + 1) == '/' => {
                while here < chars.len() && at(here) != '\n' {
                    here += 1;
                }
            }
            '/' if at(here + 1) == '*' => {
                while here < chars.len() && !(here > start + 2 && at(here - 1) == '*' && at(here) == '/') {
                    here += 1;
                }
                here += 1;
            }
            '"' => here = after_string(&chars, here + 1),
            '\'' if at(here + 1) == '\\' || at(here + 2) == '\'' => {
                here += if at(here + 1) == '\\' { 3 } else { 2 };
                while here < chars.len() && at(here) != '\'' {
                    here += 1;
                }
                here += 1;
            }
            it if is_name(it) => {
                while is_name(at(here)) {
                    here += 1;
                }
                let name: String = chars[start..here].iter().collect();
                let hashes = chars[here..].iter().take_while(|it| **it == '#').count();
                if matches!(name.as_str(), "r" | "br" | "cr") && at(here + hashes) == '"' {
                    let end: Vec<char> = std::iter::once('"').chain(std::iter::repeat_n('#', hashes)).collect();
                    here += hashes + 1;
                    while here < chars.len() && !chars[here..].starts_with(&end) {
                        here += 1;
                    }
                    here += end.len();
                } else {
                    tokens.push(name);
                }
            }
            ':' if at(here + 1) == ':' => {
                tokens.push("::".to_owned());
                here += 2;
            }
            it => {
                if !it.is_whitespace() {
                    tokens.push(it.to_string());
                }
                here += 1;
            }
        }
    }
    tokens
}

fn after_string(chars: &[char], mut here: usize) -> usize {
    while here < chars.len() && chars[here] != '"' {
        here += if chars[here] == '\\' { 2 } else { 1 };
    }
    here + 1
}

/// Removes the items under `#[cfg(test)]` or `#[cfg(loom)]`, alone or with other conditions.
fn without_tests(tokens: &[String]) -> Vec<String> {
    let mut kept = Vec::new();
    let mut rest = tokens;
    while let Some(first) = rest.first() {
        let attribute = match rest {
            [hash, open, ..] if hash == "#" && open == "[" => Some((false, 1 + group(&rest[1..]))),
            [hash, bang, open, ..] if hash == "#" && bang == "!" && open == "[" => Some((true, 2 + group(&rest[2..]))),
            _ => None,
        };
        match attribute {
            Some((whole, len)) if is_for_tests(&rest[..len]) => {
                if whole {
                    return Vec::new();
                }
                rest = &rest[len + item(&rest[len..])..];
            }
            Some((_, len)) => rest = &rest[len..],
            None => {
                kept.push(first.clone());
                rest = &rest[1..];
            }
        }
    }
    kept
}

fn is_for_tests(attribute: &[String]) -> bool {
    let conditions = attribute.iter().skip_while(|it| *it != "cfg");
    let mut negated = false;
    for name in conditions.filter(|it| *it != "(") {
        match name.as_str() {
            "test" | "loom" if !negated => return true,
            name => negated = name == "not",
        }
    }
    false
}

/// Returns the number of tokens of a bracket and its contents.
fn group(tokens: &[String]) -> usize {
    let mut depth = 0_i32;
    for (index, token) in tokens.iter().enumerate() {
        depth += depth_of(token);
        if depth == 0 {
            return index + 1;
        }
    }
    tokens.len()
}

fn depth_of(token: &str) -> i32 {
    match token {
        "(" | "[" | "{" => 1,
        ")" | "]" | "}" => -1,
        _ => 0,
    }
}

/// Returns the number of tokens of an item with its attributes: up to a semicolon or comma, or to the end of a block.
fn item(tokens: &[String]) -> usize {
    let mut index = 0;
    while index < tokens.len() {
        match tokens[index].as_str() {
            ";" | "," => return index + 1,
            "{" => return index + group(&tokens[index..]),
            "(" | "[" => index += group(&tokens[index..]),
            // The end of the enclosing block.
            ")" | "]" | "}" => return index,
            _ => index += 1,
        }
    }
    index
}

type Parsed = (Vec<String>, Vec<Vec<String>>, BTreeMap<String, Vec<String>>);

/// Finds the declared modules, the used paths, and the names defined by `use`.
fn parse(tokens: &[String]) -> Parsed {
    let (mut children, mut uses, mut names) = Parsed::default();
    let mut rest = tokens.iter().peekable();
    while let Some(token) = rest.next() {
        match token.as_str() {
            "mod" => {
                let name = rest.next().cloned().unwrap_or_default();
                if rest.peek().is_some_and(|it| *it == ";") {
                    children.push(name);
                }
            }
            "use" => tree(&mut rest, Vec::new(), &mut |path, name| {
                names.insert(name, path.clone());
                uses.push(path);
            }),
            "crate" | "self" | "super" => {
                let mut path = vec![token.clone()];
                while rest.next_if(|it| *it == "::").is_some() {
                    match rest.next_if(|it| it.chars().all(|it| it.is_alphanumeric() || it == '_')) {
                        Some(name) => path.push(name.clone()),
                        None => break,
                    }
                }
                // By themselves they are a receiver or a visibility.
                if path.len() > 1 {
                    uses.push(path);
                }
            }
            _ => {}
        }
    }
    (children, uses, names)
}

/// Visits the leaves of a `use` tree, each with its name in this module.
fn tree(rest: &mut Peekable<Iter<'_, String>>, prefix: Vec<String>, leaf: &mut dyn FnMut(Vec<String>, String)) {
    let mut path = prefix;
    let mut name = None;
    while let Some(token) = rest.next_if(|it| !matches!(it.as_str(), ";" | "," | "}")) {
        match token.as_str() {
            "::" => {}
            "{" => {
                while rest.peek().is_some_and(|it| *it != "}" && *it != ";") {
                    tree(rest, path.clone(), leaf);
                    rest.next_if(|it| *it == ",");
                }
                rest.next_if(|it| *it == "}");
                return;
            }
            "as" => name = rest.next().cloned(),
            "*" => return leaf(path, "*".to_owned()),
            // `a::{self}` is `a`.
            "self" if !path.is_empty() => {}
            _ => path.push(token.clone()),
        }
    }
    if let Some(last) = path.last().cloned() {
        leaf(path, name.unwrap_or(last));
    }
}
