//! The lines of a configuration file: a keyword and its arguments.

/// A line with a keyword.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Line {
    /// From 1.
    pub(super) number: usize,
    /// In lower case.
    pub(super) keyword: String,
    pub(super) args: Vec<String>,
    /// Everything after the keyword, for values that are commands.
    pub(super) rest: String,
}

/// Splits a text into its lines; Err has the number of a line with an open quote.
pub(super) fn lines(text: &str) -> Result<Vec<Line>, usize> {
    let mut lines = Vec::new();
    for (line, number) in text.lines().zip(1..) {
        let line = line.trim();
        if line.is_empty() || line.starts_with('#') {
            continue;
        }
        let end = line.find(|c: char| c.is_whitespace() || c == '=').unwrap_or(line.len());
        let rest = line[end..].trim_start();
        let rest = rest.strip_prefix('=').unwrap_or(rest).trim_start();
        let args = words(rest).ok_or(number)?;
        let keyword = line[..end].trim_matches('"').to_ascii_lowercase();
        lines.push(Line { number, keyword, args, rest: rest.to_owned() });
    }
    Ok(lines)
}

/// Splits a value into words. Quotes, single or double, keep blanks; a backslash keeps a quote, a blank or a backslash; a word that
/// begins with `#` begins a comment. None: a quote is not closed.
fn words(text: &str) -> Option<Vec<String>> {
    let mut words = Vec::new();
    let mut chars = text.chars().peekable();
    loop {
        while chars.next_if(|c| c.is_whitespace()).is_some() {}
        if matches!(chars.peek(), None | Some('#')) {
            return Some(words);
        }
        let (mut word, mut quote) = (String::new(), None);
        while let Some(c) = chars.next_if(|c| quote.is_some() || !c.is_whitespace()) {
            match (c, quote) {
                ('\\', _) if matches!(chars.peek(), Some('"' | '\'' | '\\')) => word.extend(chars.next()),
                ('\\', None) if chars.peek() == Some(&' ') => word.extend(chars.next()),
                (c, Some(open)) if c == open => quote = None,
                ('"' | '\'', None) => quote = Some(c),
                (c, _) => word.push(c),
            }
        }
        if quote.is_some() {
            return None;
        }
        words.push(word);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn one(text: &str) -> (String, Vec<String>) {
        let mut lines = lines(text).unwrap();
        assert_eq!(lines.len(), 1, "{text}");
        let line = lines.remove(0);
        (line.keyword, line.args)
    }

    #[test]
    fn keywords_and_arguments_are_split_as_ssh_does() {
        let vectors: [(&str, &str, &[&str]); 8] = [
            ("Host a b", "host", &["a", "b"]),
            ("\tPort = 22", "port", &["22"]),
            ("User=me", "user", &["me"]),
            ("IdentityFile \"my key\" # comment", "identityfile", &["my key"]),
            ("IdentityFile my\\ key", "identityfile", &["my key"]),
            ("User 'a b'\"c\"", "user", &["a bc"]),
            ("User a#b", "user", &["a#b"]),
            ("User \\\"a", "user", &["\"a"]),
        ];
        for (text, keyword, args) in vectors {
            let args = args.iter().map(|arg| (*arg).to_owned()).collect();
            assert_eq!(one(text), (keyword.to_owned(), args), "{text}");
        }
        assert_eq!(lines("# a\n\n  # b\n").unwrap(), []);
        assert_eq!(lines("Host a\nUser \"b\n").unwrap_err(), 2);
    }
}
