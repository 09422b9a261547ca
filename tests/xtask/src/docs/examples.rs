//! Checks that examples have tests.
//!
//! Examples are the lines below "Example" in every `--help` text of our programs, and the lines of fenced `sh` blocks in
//! `README.md` and in the topics. `tests/system/examples.tsv` names the test of each:
//!
//! ```text
//! rsctl logs -f 7 -l        <TAB> output::logs_are_followed_until_the_job_ends
//! cli/topics/placement.md   <TAB> topics::the_examples_of_placement_run     reads all blocks of the file and runs them
//! cargo xtask demo          <TAB> none: it builds everything                 an example that no test can run, and why
//! ```
//!
//! An example that also stands in a file whose blocks a test runs needs no row of its own. A row is valid only if the example exists,
//! the test exists, and the test's file has every command and option of the example, or the
//! name of the file whose blocks it runs.

use std::collections::BTreeSet;
use std::path::Path;
use std::process::Command;

use super::Problem;
use super::markdown::split;
use super::tree::Tree;
use crate::shell::quiet;

const TABLE: &str = "tests/system/examples.tsv";
const TESTS: &str = "tests/system";
/// Commands that have subcommands.
const GROUPS: [&str; 5] = ["group", "kv", "job", "name", "config"];

/// The help text of a command: "rsctl group exec --help".
pub(super) struct Help {
    pub(super) command: String,
    pub(super) text: String,
}

/// The help texts of a program and of all its commands.
pub(super) fn help_texts(program: &Path, name: &str) -> anyhow::Result<Vec<Help>> {
    let mut helps = Vec::new();
    let mut pending: Vec<Vec<String>> = vec![Vec::new()];
    while let Some(words) = pending.pop() {
        let output = quiet(Command::new(program).args(&words).arg("--help"))?;
        let text = String::from_utf8_lossy(&output.stdout).into_owned();
        let commands = text.lines().skip_while(|line| *line != "Commands:").skip(1).take_while(|line| !line.is_empty());
        let commands = commands.filter_map(|line| line.strip_prefix("  ")?.split(' ').next());
        let commands = commands.filter(|command| !command.is_empty() && *command != "help");
        pending.extend(commands.map(|command| words.iter().cloned().chain([command.to_owned()]).collect()));
        let command = [name].into_iter().chain(words.iter().map(String::as_str)).collect::<Vec<_>>().join(" ");
        helps.push(Help { command: format!("{command} --help"), text });
    }
    Ok(helps)
}

/// An example and its location.
struct Example {
    place: String,
    /// The path, if the example is in a file.
    file: Option<String>,
    text: String,
}

/// Examples without a test, and invalid rows of the table.
pub(super) fn problems(tree: &Tree, helps: &[Help]) -> Vec<Problem> {
    let mut examples: Vec<Example> = helps.iter().flat_map(of_help).collect();
    let pages = tree.files().filter(|(path, _)| *path == "README.md" || is_topic(path));
    examples.extend(pages.flat_map(|(path, text)| of_page(path, text)));
    let mut problems = Vec::new();
    let (mut tested, mut files) = (BTreeSet::new(), Vec::new());
    for (row, number) in tree.text(TABLE).unwrap_or_default().lines().zip(1..) {
        if row.is_empty() || row.starts_with('#') {
            continue;
        }
        let place = format!("{TABLE}:{number}");
        let Some((example, test)) = row.split_once('\t') else {
            problems.push(Problem { place, reason: "a row is EXAMPLE<TAB>FILE::TEST".to_owned() });
            continue;
        };
        let reason = match files_of(example) {
            Some(pattern) => {
                files.push(pattern);
                let known = examples.iter().any(|own| own.file.as_deref().is_some_and(|file| fits(file, pattern)));
                wrong_row(tree, known, test, &[stem(example)])
            }
            None => {
                tested.insert(example);
                wrong_row(tree, examples.iter().any(|own| own.text == example), test, &words(example))
            }
        };
        problems.extend(reason.map(|reason| Problem { place, reason }));
    }
    let in_file =
        |own: &Example| own.file.as_deref().is_some_and(|file| files.iter().any(|pattern| fits(file, pattern)));
    // The same line in a file whose blocks a test runs is the same example.
    let run: BTreeSet<&str> = examples.iter().filter(|own| in_file(own)).map(|own| own.text.as_str()).collect();
    let covered = |own: &Example| tested.contains(own.text.as_str()) || run.contains(own.text.as_str());
    let untested = examples.iter().filter(|own| !covered(own));
    problems.extend(untested.map(|own| Problem {
        place: own.place.clone(),
        reason: format!("no test for the example `{}`: name one in {TABLE}", own.text),
    }));
    problems
}

fn is_topic(path: &str) -> bool {
    path.starts_with("cli/topics/") && path.ends_with(".md")
}

/// The path or pattern in a row that is about files.
fn files_of(example: &str) -> Option<&str> {
    (example.ends_with(".md") && !example.contains(' ')).then_some(example)
}

fn fits(file: &str, pattern: &str) -> bool {
    match pattern.strip_suffix("*.md") {
        Some(folder) => file.strip_prefix(folder).is_some_and(|name| !name.contains('/')),
        None => file == pattern,
    }
}

/// `placement` of `cli/topics/placement.md`; the folder's name for `cli/topics/*.md`.
fn stem(path: &str) -> &str {
    let path = path.trim_end_matches("/*.md");
    let name = path.rsplit('/').next().unwrap_or(path);
    name.strip_suffix(".md").unwrap_or(name)
}

/// Why a row is invalid; `None` if it is valid.
fn wrong_row(tree: &Tree, known: bool, test: &str, words: &[&str]) -> Option<String> {
    if !known {
        return Some("no such example in the help texts, README.md or the topics: remove the row".to_owned());
    }
    if test.strip_prefix("none: ").is_some_and(|reason| !reason.trim().is_empty()) {
        return None;
    }
    let Some((file, name)) = test.split_once("::") else {
        return Some(format!("`{test}` is not FILE::TEST or none: REASON"));
    };
    let path = format!("{TESTS}/{file}.rs");
    let Some(text) = tree.text(&path) else { return Some(format!("no file {path}")) };
    if !text.contains(&format!("fn {name}(")) {
        return Some(format!("no test {name} in {path}"));
    }
    let missing = words.iter().find(|word| !has_word(text, word))?;
    Some(format!("{path} does not use `{missing}`, which the example has"))
}

/// Whether a text has `word`, not as part of a longer word or option.
fn has_word(text: &str, word: &str) -> bool {
    let inside = |c: Option<char>| c.is_some_and(|c| c.is_ascii_alphanumeric() || c == '-');
    let whole = |at: usize| !inside(text[..at].chars().next_back()) && !inside(text[at + word.len()..].chars().next());
    text.match_indices(word).any(|(at, _)| whole(at))
}

/// The commands and options of an example.
fn words(example: &str) -> Vec<&str> {
    let mut words = Vec::new();
    let split = |c: char| c.is_whitespace() || "$()\"'`".contains(c);
    let tokens: Vec<&str> = example.split(split).filter(|token| !token.is_empty()).collect();
    for (at, token) in tokens.iter().enumerate() {
        if token.starts_with('-') && *token != "-" && *token != "--" {
            words.push(token.split('=').next().unwrap_or(token));
        }
        if matches!(*token, "rsctl" | "rsd") {
            let command = tokens.get(at + 1).copied().filter(|word| !word.starts_with('-'));
            words.extend(command);
            if command.is_some_and(|command| GROUPS.contains(&command)) {
                words.extend(tokens.get(at + 2).copied().filter(|word| !word.starts_with('-')));
            }
        }
    }
    words
}

/// The examples of a help text. Two spaces separate an example from its description. A line without rsd's programs continues the
/// description.
fn of_help(help: &Help) -> Vec<Example> {
    let mut examples = Vec::new();
    let mut inside = false;
    for line in help.text.lines() {
        if line.starts_with("Example") {
            inside = true;
        } else if let Some(line) = line.strip_prefix("  ").filter(|line| inside && !line.starts_with(' ')) {
            let text = line.split("  ").next().unwrap_or(line).trim_end().to_owned();
            if has_word(&text, "rsctl") || has_word(&text, "rsd") {
                examples.push(Example { place: help.command.clone(), file: None, text });
            }
        } else if !line.trim().is_empty() && !line.starts_with("  ") {
            inside = false;
        }
    }
    examples
}

/// The lines of a page's `sh` blocks, without comments; a backslash at the end joins a line with the next.
fn of_page(path: &str, text: &str) -> Vec<Example> {
    let mut examples: Vec<Example> = Vec::new();
    for block in split(text).1.into_iter().filter(|block| block.language.split(' ').next() == Some("sh")) {
        let mut joined: Option<Example> = None;
        for (number, line) in block.lines {
            let line = line.split(" # ").next().unwrap_or(line).trim();
            let (line, open) = line.strip_suffix('\\').map_or((line, false), |line| (line.trim_end(), true));
            let text = joined.take().map_or(line.to_owned(), |before| format!("{} {line}", before.text));
            let example = Example { place: format!("{path}:{number}"), file: Some(path.to_owned()), text };
            match open {
                true => joined = Some(example),
                false if example.text.is_empty() || example.text.starts_with('#') => {}
                false => examples.push(example),
            }
        }
    }
    examples
}

#[cfg(test)]
mod tests {
    use super::*;

    const HELP: &str = "Show logs\n\nUsage: rsctl logs [OPTIONS]\n\nExamples:\n  rsctl logs last\n  rsctl logs -f 7 -l   follows,\n  as it grows\n\nMore:\n  none\n";

    fn found(readme: &str, table: &str) -> Vec<String> {
        let files = [
            ("README.md", readme),
            ("cli/topics/kv.md", "```sh\nrsctl kv put a b\n```\n"),
            (TABLE, table),
            ("tests/system/output.rs", "#[test]\nfn logs_follow() {\n    ctl(\"logs -f last\");\n}\n"),
            ("tests/system/topics.rs", "#[test]\nfn all_run() {\n    read(\"cli/topics\");\n}\n"),
        ];
        let tree = Tree::of(files.map(|(path, text)| (path.to_owned(), text.to_owned())));
        let help = Help { command: "rsctl logs --help".to_owned(), text: HELP.to_owned() };
        problems(&tree, &[help]).iter().map(ToString::to_string).collect()
    }

    #[test]
    fn an_example_without_a_test_is_reported() {
        let readme = "# x\n```sh\nrsctl run -n 4 \\\n  ./a.out   # runs\n# a comment\n```\n```text\nnot one\n```\n";
        assert_eq!(
            found(readme, "# EXAMPLE<TAB>TEST\nrsctl logs last\toutput::logs_follow\n"),
            [
                "rsctl logs --help: no test for the example `rsctl logs -f 7 -l`: name one in tests/system/examples.tsv",
                "README.md:4: no test for the example `rsctl run -n 4 ./a.out`: name one in tests/system/examples.tsv",
                "cli/topics/kv.md:2: no test for the example `rsctl kv put a b`: name one in tests/system/examples.tsv",
            ]
        );
    }

    #[test]
    fn an_invalid_row_is_reported() {
        let table = "rsctl logs last\toutput::gone\nrsctl logs -f 7 -l\toutput::logs_follow\ncli/topics/*.md\ttopics::all_run\n\
                     rsctl ps\toutput::logs_follow\nno tab\nrsctl logs last\tnone: \nrsctl logs last\tnone: a reason\n";
        assert_eq!(
            found("", table),
            [
                "tests/system/examples.tsv:1: no test gone in tests/system/output.rs",
                "tests/system/examples.tsv:2: tests/system/output.rs does not use `-l`, which the example has",
                "tests/system/examples.tsv:4: no such example in the help texts, README.md or the topics: remove the row",
                "tests/system/examples.tsv:5: a row is EXAMPLE<TAB>FILE::TEST",
                "tests/system/examples.tsv:6: `none: ` is not FILE::TEST or none: REASON",
            ]
        );
    }

    #[test]
    fn commands_and_options_are_the_words_that_a_test_must_use() {
        assert_eq!(words("rsctl group exec actors --size=16 -- python serve.py"), ["group", "exec", "--size"]);
        assert_eq!(words("job=$(rsctl submit -n 4 ./a.out) && rsctl wait $job"), ["submit", "-n", "wait"]);
    }
}
