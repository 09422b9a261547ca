//! Checks relative links in Markdown files: the file exists, and so does the heading of an anchor.

use super::Problem;
use super::markdown::{split, without_spans};
use super::tree::Tree;

/// Dead links in all Markdown files.
pub(super) fn problems(tree: &Tree) -> Vec<Problem> {
    let pages = tree.files().filter(|(path, _)| path.ends_with(".md"));
    pages.flat_map(|(path, text)| of_page(tree, path, text)).collect()
}

fn of_page(tree: &Tree, page: &str, text: &str) -> Vec<Problem> {
    let mut problems = Vec::new();
    for line in split(text).0 {
        for target in targets(&without_spans(line.text)) {
            if let Some(reason) = dead(tree, page, &target) {
                problems.push(Problem { place: format!("{page}:{}", line.number), reason });
            }
        }
    }
    problems
}

/// The targets of `[text](target "title")` and `[name]: target`.
fn targets(line: &str) -> Vec<String> {
    let inline = line.split("](").skip(1).filter_map(|rest| rest.split(')').next());
    let definition =
        line.trim_start().strip_prefix('[').and_then(|rest| rest.split_once("]: ")).map(|(_, target)| target);
    let targets = inline.chain(definition).filter_map(|target| target.split_whitespace().next());
    targets.map(|target| target.trim_matches(['<', '>']).to_owned()).collect()
}

/// Why a link is dead; `None` if it is not.
fn dead(tree: &Tree, page: &str, target: &str) -> Option<String> {
    if target.contains("://") || target.starts_with("mailto:") {
        return None;
    }
    let (path, anchor) = target.split_once('#').map_or((target, None), |(path, anchor)| (path, Some(anchor)));
    let file = if path.is_empty() { page.to_owned() } else { resolve(page, path)? };
    if !tree.has(&file) && !file.is_empty() {
        return Some(format!("dead link `{target}`: no file {file}"));
    }
    let anchor = anchor.filter(|_| file.ends_with(".md"))?;
    let known = anchors(tree.text(&file)?);
    (!known.iter().any(|known| known == anchor))
        .then(|| format!("dead link `{target}`: no heading `#{anchor}` in {file}"))
}

/// The path of a link relative to its page. `None` if it leaves the checkout.
fn resolve(page: &str, path: &str) -> Option<String> {
    let mut parts: Vec<&str> = page.split('/').collect();
    parts.pop();
    for part in path.split('/').filter(|part| !part.is_empty() && *part != ".") {
        match part {
            ".." => drop(parts.pop()?),
            part => parts.push(part),
        }
    }
    Some(parts.join("/"))
}

/// The anchors of a page's headings, as GitHub makes them.
fn anchors(text: &str) -> Vec<String> {
    let mut anchors: Vec<String> = Vec::new();
    for line in split(text).0 {
        let Some(heading) = line.text.strip_prefix('#') else { continue };
        let heading = heading.trim_start_matches('#').trim();
        let kept = heading.chars().filter(|c| c.is_alphanumeric() || matches!(c, ' ' | '-' | '_'));
        let anchor: String = kept.map(|c| if c == ' ' { '-' } else { c.to_ascii_lowercase() }).collect();
        let before = anchors.iter().filter(|known| **known == anchor).count();
        anchors.push(if before == 0 { anchor } else { format!("{anchor}-{before}") });
    }
    anchors
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn dead_links_are_reported_with_file_line_and_reason() {
        let files = [
            (
                "README.md",
                "# rsd\n[a](cli/topics/a.md) [b](gone.md)\n`[x](y)` ![p](cli/p.svg)\n[w](https://x/y)\n[d](cli)\n",
            ),
            (
                "cli/topics/a.md",
                "## Two words, `code`!\n## Two words, `code`!\n[up](../../README.md#rsd) [no](#three)\n\
                                 [1](#two-words-code) [2](#two-words-code-1)\n[ref]: ../q.svg\n",
            ),
            ("cli/p.svg", ""),
        ];
        let tree = Tree::of(files.map(|(path, text)| (path.to_owned(), text.to_owned())));
        let found: Vec<String> = problems(&tree).iter().map(ToString::to_string).collect();
        assert_eq!(
            found,
            [
                "README.md:2: dead link `gone.md`: no file gone.md",
                "cli/topics/a.md:3: dead link `#three`: no heading `#three` in cli/topics/a.md",
                "cli/topics/a.md:5: dead link `../q.svg`: no file cli/q.svg",
            ]
        );
    }
}
