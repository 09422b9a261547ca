//! The words of a configuration file: as a shell splits them, without variables and wildcards.

use std::ffi::OsString;

/// Returns the lines that are neither empty nor comments, each with its number. A line that ends in a backslash continues on the next.
pub(super) fn lines(text: &str) -> Vec<(usize, String)> {
    let mut whole: Vec<(usize, String)> = Vec::new();
    let mut continued = false;
    for (line, number) in text.strip_prefix('\u{feff}').unwrap_or(text).lines().zip(1..) {
        let (line, goes_on) = match line.trim_end().strip_suffix('\\') {
            Some(line) => (line, true),
            None => (line, false),
        };
        match (whole.last_mut(), continued) {
            (Some((_, begun)), true) => {
                begun.push(' ');
                begun.push_str(line);
            }
            (Some(_) | None, _) if line.trim_start().starts_with('#') => continue,
            (Some(_) | None, _) => whole.push((number, line.to_owned())),
        }
        continued = goes_on;
    }
    whole.retain(|(_, line)| !line.trim().is_empty());
    whole
}

/// Splits a line into words. `'…'` takes everything as it is; in `"…"` and outside of quotes, a backslash takes the next character as it
/// is (in `"…"` only before `"` and `\`).
pub(super) fn split(line: &str) -> Result<Vec<OsString>, String> {
    let mut words: Vec<OsString> = Vec::new();
    let (mut word, mut quote) = (None::<String>, None);
    let mut chars = line.chars().peekable();
    while let Some(c) = chars.next() {
        match quote {
            Some(open) if c == open => quote = None,
            Some('"') if c == '\\' && chars.peek().is_some_and(|next| matches!(next, '"' | '\\')) => {
                word.get_or_insert_default().extend(chars.next());
            }
            Some(_) => word.get_or_insert_default().push(c),
            None if c == '\'' || c == '"' => {
                quote = Some(c);
                word.get_or_insert_default();
            }
            None if c == '\\' => word.get_or_insert_default().extend(chars.next()),
            None if c.is_whitespace() => words.extend(word.take().map(OsString::from)),
            None => word.get_or_insert_default().push(c),
        }
    }
    if let Some(open) = quote {
        return Err(format!("missing closing {open}"));
    }
    words.extend(word.map(OsString::from));
    Ok(words)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn words(line: &str) -> Vec<String> {
        split(line).unwrap().into_iter().map(|word| word.into_string().unwrap()).collect()
    }

    #[test]
    fn quotes_keep_blanks_and_other_quotes() {
        assert_eq!(
            words(r#"-n 2 sh -c 'echo "a b"' "it's" "" a\ b"#),
            ["-n", "2", "sh", "-c", r#"echo "a b""#, "it's", "", "a b"]
        );
        assert_eq!(words(r#""say \"x\" \n" 'a\b' x"y"z"#), [r#"say "x" \n"#, r"a\b", "xyz"]);
        assert!(split("sh -c 'x").unwrap_err().contains("missing closing '"));
    }

    #[test]
    fn lines_may_be_comments_or_continue() {
        let text = "# first\n-n 1 \\\n  ./a x\n\n   # more\n-n 2 ./b # not a comment\n./c \\";
        let found: Vec<(usize, String)> = lines(text).iter().map(|(at, line)| (*at, words(line).join(" "))).collect();
        let expected = [(2, "-n 1 ./a x"), (6, "-n 2 ./b # not a comment"), (7, "./c")];
        assert_eq!(found, expected.map(|(at, line)| (at, line.to_owned())));
    }
}
