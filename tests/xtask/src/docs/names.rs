//! Checks names in `ARCHITECTURE.md`: files, folders and functions in backticks exist.
//!
//! - A span with a slash, or with the extension of a source file, is a path. It may leave out leading folders and the extension:
//!   `coll/node` is `client-lib/src/coll/node.rs`. `{a,b}` stands for several names.
//! - `Type::name` is an item of a file that names the type, or of the module `Type`. `name()` is a function of any file.
//! - In a table row, functions belong to the file that the row names: `serve.rs` | `Dvm::submit`, `start`.
//! - Absolute paths and those with a placeholder in capitals (`jobs/N.log`) lie outside the checkout and are not checked.

use super::Problem;
use super::markdown::{spans, split};
use super::tree::Tree;

const PAGE: &str = "ARCHITECTURE.md";
/// The extensions of files that can be named without a folder.
const ENDINGS: [&str; 8] = [".rs", ".md", ".proto", ".toml", ".tsv", ".h", ".c", ".py"];
/// The keywords before an item's name.
const ITEMS: [&str; 8] = ["fn", "struct", "enum", "trait", "const", "static", "type", "mod"];

/// Names that do not exist.
pub(super) fn problems(tree: &Tree) -> Vec<Problem> {
    let Some(text) = tree.text(PAGE) else { return Vec::new() };
    let mut problems = Vec::new();
    for line in split(text).0 {
        let reasons = match line.text.trim_start().starts_with('|') {
            true => of_row(tree, line.text),
            false => spans(line.text).into_iter().filter_map(|span| unknown(tree, span)).collect(),
        };
        let place = format!("{PAGE}:{}", line.number);
        problems.extend(reasons.into_iter().map(|reason| Problem { place: place.clone(), reason }));
    }
    problems
}

/// The errors in a row of a table.
fn of_row(tree: &Tree, row: &str) -> Vec<String> {
    let mut files: Vec<&str> = Vec::new();
    let mut reasons = Vec::new();
    for span in spans(row) {
        if is_path(span) {
            files = expand(span).iter().flat_map(|path| find(tree, path)).collect();
            reasons.extend(unknown(tree, span));
        } else if is_item(span) && files.iter().any(|file| tree.text(file).is_some()) {
            let texts = files.iter().filter_map(|file| tree.text(file));
            if !texts.clone().any(|text| defines(text, span)) {
                reasons.push(format!("no function `{span}` in {}", files.join(", ")));
            }
        } else {
            reasons.extend(unknown(tree, span));
        }
    }
    reasons
}

/// Returns why a span outside a row with a file is unknown. `None` if it is known or is not a name.
fn unknown(tree: &Tree, span: &str) -> Option<String> {
    if is_path(span) {
        let missing = expand(span).into_iter().find(|path| find(tree, path).is_empty())?;
        return Some(format!("no file or folder `{missing}`"));
    }
    if let Some(name) = span.strip_suffix("()").filter(|name| is_word(name)) {
        return (!sources(tree).any(|(_, text)| has_item(text, name))).then(|| format!("no function `{name}`"));
    }
    let (owner, name) = span.rsplit_once("::").filter(|_| is_item(span))?;
    let owner = owner.rsplit("::").next().unwrap_or(owner);
    let module = |path: &str| path.trim_end_matches("/mod.rs").trim_end_matches(".rs").ends_with(&format!("/{owner}"));
    let found = sources(tree).any(|(path, text)| defines(text, span) || (module(path) && has_item(text, name)));
    (!found).then(|| format!("no item `{span}`"))
}

fn sources(tree: &Tree) -> impl Iterator<Item = (&str, &str)> {
    tree.files().filter(|(path, _)| [".rs", ".py", ".c", ".h"].iter().any(|ending| path.ends_with(ending)))
}

/// Whether a span is the path of something in the checkout.
fn is_path(span: &str) -> bool {
    let fits = |c: char| c.is_ascii_alphanumeric() || "/._-{},*".contains(c);
    let placeholder = |part: &str| {
        let stem = part.split('.').next().unwrap_or(part);
        !stem.is_empty() && stem.chars().all(|c| c.is_ascii_uppercase())
    };
    let named = span.contains('/') || ENDINGS.iter().any(|ending| span.ends_with(ending) && span.len() > ending.len());
    let pages = span.ends_with(".md");
    named && span.chars().all(fits) && !span.starts_with(['/', '-']) && (pages || !span.split('/').any(placeholder))
}

/// Whether a span is the name of a function or of a type's item.
fn is_item(span: &str) -> bool {
    let span = span.strip_suffix("()").unwrap_or(span);
    !span.is_empty() && span.split("::").all(is_word)
}

fn is_word(word: &str) -> bool {
    !word.is_empty()
        && word.chars().all(|c| c.is_ascii_alphanumeric() || c == '_')
        && !word.starts_with(|c: char| c.is_ascii_digit())
}

/// The paths that `a/{b,c}.rs` stands for.
fn expand(span: &str) -> Vec<String> {
    match (span.find('{'), span.find('}')) {
        (Some(open), Some(close)) if open < close => {
            let (before, after) = (&span[..open], &span[close + 1..]);
            span[open + 1..close].split(',').map(|name| format!("{before}{name}{after}")).collect()
        }
        _ => vec![span.to_owned()],
    }
}

/// The files and folders that a path names, in full or by its end, with or without `.rs`.
fn find<'t>(tree: &'t Tree, path: &str) -> Vec<&'t str> {
    let path = path.trim_end_matches('/').trim_end_matches("/*");
    let same = |known: &str| {
        let stem = known.strip_suffix("/mod.rs").or_else(|| known.strip_suffix(".rs")).unwrap_or(known);
        [known, stem].iter().any(|known| {
            *known == path
                || known.strip_suffix(path).is_some_and(|before| before.ends_with('/'))
                || matches(path, known)
        })
    };
    tree.paths().filter(|known| same(known)).collect()
}

/// Whether `known` ends with the pattern `dir/*.md`.
fn matches(pattern: &str, known: &str) -> bool {
    let Some((before, after)) = pattern.split_once('*') else { return false };
    let name_at = known.rfind('/').map_or(0, |at| at + 1);
    let folder_fits = before.is_empty() || known[..name_at].ends_with(before);
    folder_fits && known[name_at..].ends_with(after)
}

/// Whether a text defines `name` or `Type::name`; for the latter it must also name the type.
fn defines(text: &str, span: &str) -> bool {
    let span = span.strip_suffix("()").unwrap_or(span);
    match span.rsplit_once("::") {
        None => has_item(text, span),
        Some((owner, name)) => {
            let owner = owner.rsplit("::").next().unwrap_or(owner);
            has_word(text, owner) && (has_item(text, name) || has_variant(text, owner, name))
        }
    }
}

/// Whether a text has `fn name`, `struct name`, ….
fn has_item(text: &str, name: &str) -> bool {
    ITEMS.iter().any(|keyword| has_word(text, &format!("{keyword} {name}"))) || has_word(text, &format!("def {name}"))
}

/// Whether `enum owner` has the variant `name`.
fn has_variant(text: &str, owner: &str, name: &str) -> bool {
    let Some((_, body)) = text.split_once(&format!("enum {owner} ")) else { return false };
    let body = body.split("\n}").next().unwrap_or(body);
    body.lines().any(|line| line.trim_start().strip_prefix(name).is_some_and(|rest| rest.starts_with([',', '(', ' '])))
}

/// Whether a text has `word`, not as part of a longer word.
fn has_word(text: &str, word: &str) -> bool {
    let inside = |c: Option<char>| c.is_some_and(|c| c.is_ascii_alphanumeric() || c == '_');
    let whole = |(at, found): (usize, &str)| {
        !inside(text[..at].chars().next_back()) && !inside(text[at + found.len()..].chars().next())
    };
    text.match_indices(word).any(whole)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn found(page: &str) -> Vec<String> {
        let files = [
            (PAGE, page),
            ("daemon/src/serve.rs", "impl Dvm {\n    async fn submit(&self) {}\n}\nfn free() {}\n"),
            ("client-lib/src/coll/node.rs", "pub enum Frame {\n    Eager,\n    Part { at: u32 },\n}\n"),
            ("client-lib/src/runtime/mod.rs", "pub fn call() {}\n"),
            ("cli/topics/mpi.md", "# MPI\n"),
        ];
        let tree = Tree::of(files.map(|(path, text)| (path.to_owned(), text.to_owned())));
        problems(&tree).iter().map(ToString::to_string).collect()
    }

    #[test]
    fn names_that_exist_pass_in_full_and_in_part() {
        let page = "`daemon/src/serve.rs` `serve.rs` `coll/node` `daemon/src/` `cli/topics/*.md` `coll/{node}` `Frame::Eager`\n\
                    `Frame::Part`, `Dvm::submit`, `runtime::call`, `free()`; not names: `a b`, `/proc/self`, `jobs/N.log`, `MPI_Init`\n\
                    ```\nnot/checked.rs\n```\n\
                    | hop | file | function |\n|---|---|---|\n| 1 | `daemon/src/serve.rs` | `Dvm::submit`, `free` |\n";
        assert_eq!(found(page), Vec::<String>::new());
    }

    #[test]
    fn names_that_do_not_exist_are_reported_with_file_line_and_reason() {
        let page = "`serve.rs`\n`gone.rs` `coll/{node,gone}`\n`Dvm::stop` and `gone()`\n| `serve.rs` | `Dvm::stop`, `free` |\n\
                    | `serve.rs` | `Other::submit` |\n| `gone/x.rs` | `free` |\n";
        assert_eq!(
            found(page),
            [
                "ARCHITECTURE.md:2: no file or folder `gone.rs`",
                "ARCHITECTURE.md:2: no file or folder `coll/gone`",
                "ARCHITECTURE.md:3: no item `Dvm::stop`",
                "ARCHITECTURE.md:3: no function `gone`",
                "ARCHITECTURE.md:4: no function `Dvm::stop` in daemon/src/serve.rs",
                "ARCHITECTURE.md:5: no function `Other::submit` in daemon/src/serve.rs",
                "ARCHITECTURE.md:6: no file or folder `gone/x.rs`",
            ]
        );
    }
}
