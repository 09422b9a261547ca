//! Environment files: one `NAME=VALUE` per line, with comments and simple quotes.
//!
//! ```text
//! # a comment
//! OMP_NUM_THREADS=4          # after a value, a blank must precede the # of a comment
//! export MODE=fast           # `export` is allowed, so a shell can source the file
//! GREETING="two words\n"     # escapes: \" \\ \$ \n \t
//! PATTERN='$HOME stays'      # taken literally
//! EMPTY=
//! ```
//!
//! Variables are not expanded, so the file means the same on every machine.

use thiserror::Error;

use crate::syntax::SyntaxError;

const ACCEPTED: &str = "NAME=VALUE, NAME=\"VALUE\" or NAME='VALUE'";

/// A mistake in an environment file.
pub type EnvfileError = SyntaxError<EnvMistake>;

/// What can be wrong with a line.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[expect(missing_docs, reason = "the fields are what the user wrote")]
pub enum EnvMistake {
    /// No `=`.
    #[error("`{word}` has no value")]
    NoValue { word: String },
    /// Empty, or with characters that a variable name cannot have.
    #[error("invalid variable name `{name}`")]
    BadName { name: String },
    /// A quote that is not closed on its line.
    #[error("unterminated quote")]
    OpenQuote,
    /// Text other than a comment after the closing quote.
    #[error("only a comment may follow the closing quote")]
    BehindQuote,
    /// A NUL byte in a value.
    #[error("a value cannot hold a NUL byte")]
    Nul,
}

type Mistake = (usize, EnvMistake);

/// Returns names and values in the file's order. A name may occur more than once; the last value counts. `file_name` is only for
/// messages.
pub fn parse(text: &str, file_name: &str) -> Result<Vec<(String, String)>, EnvfileError> {
    let text = text.strip_prefix('\u{feff}').unwrap_or(text);
    let mut variables = Vec::new();
    for (line, number) in text.lines().zip(1..) {
        let variable =
            parse_line(line).map_err(|mistake| SyntaxError::new(file_name, Some(number), line, mistake, ACCEPTED))?;
        variables.extend(variable);
    }
    Ok(variables)
}

fn parse_line(line: &str) -> Result<Option<(String, String)>, Mistake> {
    let start = line.len() - line.trim_start().len();
    if line[start..].is_empty() || line[start..].starts_with('#') {
        return Ok(None);
    }
    let export = line[start..].strip_prefix("export").filter(|rest| rest.starts_with([' ', '\t']));
    let start = export.map_or(start, |rest| line.len() - rest.trim_start().len());
    let Some((name, _)) = line[start..].split_once('=') else {
        return Err((start, EnvMistake::NoValue { word: line[start..].trim_end().to_owned() }));
    };
    let fits = |c: char| c.is_ascii_alphanumeric() || matches!(c, '_' | '.' | '-');
    if name.is_empty() || name.starts_with(|c: char| c.is_ascii_digit()) || !name.chars().all(fits) {
        return Err((start, EnvMistake::BadName { name: name.to_owned() }));
    }
    let at = start + name.len() + 1;
    if let Some(nul) = line[at..].find('\0') {
        return Err((at + nul, EnvMistake::Nul));
    }
    let value = match line[at..].chars().next() {
        Some(quote @ ('"' | '\'')) => quoted(line, at, quote)?,
        Some(_) | None => plain(&line[at..]).to_owned(),
    };
    Ok(Some((name.to_owned(), value)))
}

/// Returns the text up to a comment, without the blanks around it.
fn plain(text: &str) -> &str {
    let comment = text.char_indices().find(|(at, c)| *c == '#' && text[..*at].ends_with([' ', '\t']));
    text[..comment.map_or(text.len(), |(at, _)| at)].trim()
}

/// Returns the text between the quote at byte `at` and the closing quote.
fn quoted(line: &str, at: usize, quote: char) -> Result<String, Mistake> {
    let mut value = String::new();
    let mut chars = line[at + 1..].char_indices();
    while let Some((offset, c)) = chars.next() {
        match c {
            _ if c == quote => {
                let behind = at + 1 + offset + 1;
                let rest = line[behind..].trim_start();
                let fine = rest.is_empty() || rest.starts_with('#');
                return if fine { Ok(value) } else { Err((line.len() - rest.len(), EnvMistake::BehindQuote)) };
            }
            '\\' if quote == '"' => match chars.next() {
                Some((_, 'n')) => value.push('\n'),
                Some((_, 't')) => value.push('\t'),
                Some((_, escaped @ ('"' | '\\' | '$'))) => value.push(escaped),
                Some((_, other)) => value.extend(['\\', other]),
                None => break,
            },
            _ => value.push(c),
        }
    }
    Err((at, EnvMistake::OpenQuote))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn every_form_is_parsed() {
        let text = "# a comment\n\n  A=1\r\nexport MODE=fast\nexport=x\nEMPTY=\nURL=http://h/#part  # the part stays\n\
                    TWO=\"two \\\"words\\\"\\n\\$HOME \\x\" # comment\nRAW='$HOME \\n # stays'\nA=a b=c \n";
        let variables = parse(text, "env").unwrap();
        let found: Vec<(&str, &str)> = variables.iter().map(|(name, value)| (&name[..], &value[..])).collect();
        assert_eq!(
            found,
            [
                ("A", "1"),
                ("MODE", "fast"),
                ("export", "x"),
                ("EMPTY", ""),
                ("URL", "http://h/#part"),
                ("TWO", "two \"words\"\n$HOME \\x"),
                ("RAW", "$HOME \\n # stays"),
                ("A", "a b=c"),
            ]
        );
    }

    #[test]
    fn a_mistake_names_file_line_and_column() {
        assert_eq!(
            parse("A=1\nB C=2\n", "./env").unwrap_err().to_string(),
            "./env:2:1: invalid variable name `B C`\n  B C=2\n  ^\n\
             accepted: NAME=VALUE, NAME=\"VALUE\" or NAME='VALUE'"
        );
        let vectors = [
            ("PATH", "1:1: `PATH` has no value"),
            ("export A", "1:8: `A` has no value"),
            ("=x", "1:1: invalid variable name ``"),
            ("1A=x", "1:1: invalid variable name `1A`"),
            ("A=\"x", "1:3: unterminated quote"),
            ("A=\"x\\", "1:3: unterminated quote"),
            ("A='x' y", "1:7: only a comment may follow the closing quote"),
            ("A=x\0", "1:4: a value cannot hold a NUL byte"),
        ];
        for (text, expected) in vectors {
            let error = parse(text, "env").unwrap_err().to_string();
            assert_eq!(error.lines().next().unwrap(), format!("env:{expected}"), "{text:?}");
        }
    }

    proptest! {
        #[test]
        fn a_quoted_value_is_read_back_unchanged(value in "[^\\\\\"\\$\r\n\0]*") {
            prop_assert_eq!(parse(&format!("A=\"{value}\""), "env").unwrap(), [("A".to_owned(), value)]);
        }

        #[test]
        fn any_text_is_parsed_or_refused(text in "[A-B=\"' #\\\\\n\té0]{0,30}") {
            if let Err(error) = parse(&text, "env") {
                prop_assert!(error.column <= text.lines().nth(error.line.unwrap() - 1).unwrap().chars().count());
            }
        }
    }
}
