//! Shows a mistake in the user's text: its position, the mistake, the line, and the accepted form.

use std::error::Error;
use std::fmt;

/// The most characters of the line that are shown before and after the mistake.
const SHOWN: (usize, usize) = (60, 40);

/// A mistake of kind `C` in the user's text. It displays as several lines:
///
/// ```text
/// ./hosts:3:7: slots takes a number from 1 up, not `x`
///   node0 slots=x
///         ^
/// accepted: HOST [slots=N] [max_slots=M], or HOST:N
/// ```
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SyntaxError<C> {
    /// The file as the user named it, or the option.
    pub origin: Box<str>,
    /// The line, from 1; absent for an option's value.
    pub line: Option<usize>,
    /// The character in the line, from 1.
    pub column: usize,
    /// The whole line.
    pub text: Box<str>,
    /// What is wrong.
    pub cause: C,
    /// The accepted form.
    pub accepted: &'static str,
}

impl<C> SyntaxError<C> {
    /// A mistake at byte `offset` of line `text`.
    pub(crate) fn new(
        origin: &str,
        line: Option<usize>,
        text: &str,
        (offset, cause): (usize, C),
        accepted: &'static str,
    ) -> SyntaxError<C> {
        let column = text.char_indices().take_while(|(at, _)| *at < offset).count() + 1;
        SyntaxError { origin: origin.into(), line, column, text: text.into(), cause, accepted }
    }
}

impl<C: fmt::Display> fmt::Display for SyntaxError<C> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.line {
            Some(line) => write!(f, "{}:{line}:{}: ", self.origin, self.column)?,
            None => write!(f, "{}, character {}: ", self.origin, self.column)?,
        }
        let start = self.column.saturating_sub(1 + SHOWN.0);
        let shown: Vec<char> = self.text.chars().skip(start).take(self.column - 1 - start + SHOWN.1).collect();
        let before = shown.len().min(self.column - 1 - start);
        let clean = |c: &char| if c.is_control() { ' ' } else { *c };
        let line: String = shown.iter().map(clean).collect();
        write!(f, "{}\n  {}\n  {:before$}^\naccepted: {}", self.cause, line.trim_end(), "", self.accepted)
    }
}

impl<C: fmt::Debug + fmt::Display> Error for SyntaxError<C> {}

/// Replaces comments with blanks: `#` and `//` to the end of the line, and `/* … */` over any number of lines. All other bytes
/// keep their offsets. Fails with the line, from 1, and the byte offset in it where an unterminated comment begins.
pub(crate) fn without_comments(text: &str) -> Result<String, (usize, usize)> {
    let mut bare = String::with_capacity(text.len());
    let mut rest = text;
    while let Some(at) = rest.find(['#', '/']) {
        let (before, comment) = rest.split_at(at);
        bare.push_str(before);
        let length = if comment.starts_with('#') || comment.starts_with("//") {
            comment.find(['\n', '\r']).unwrap_or(comment.len())
        } else if let Some(inside) = comment.strip_prefix("/*") {
            let Some(length) = inside.find("*/") else {
                let before = &text[..text.len() - comment.len()];
                let line_start = before.rfind('\n').map_or(0, |end| end + 1);
                return Err((before.matches('\n').count() + 1, before.len() - line_start));
            };
            length + 4
        } else {
            bare.push('/');
            rest = &comment[1..];
            continue;
        };
        for c in comment[..length].chars() {
            if matches!(c, '\n' | '\r') { bare.push(c) } else { bare.extend(std::iter::repeat_n(' ', c.len_utf8())) }
        }
        rest = &comment[length..];
    }
    bare.push_str(rest);
    Ok(bare)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn long_lines_are_cut_and_control_characters_are_blanked() {
        let text = format!("{}\u{1b}[31m?{}", "é".repeat(100), "x".repeat(1000));
        let error = SyntaxError::new("f", Some(1), &text, (205, "no"), "yes");
        assert_eq!(error.column, 106);
        let shown = error.to_string();
        let lines: Vec<&str> = shown.lines().collect();
        assert_eq!(lines[0], "f:1:106: no");
        assert_eq!(lines[1].chars().count(), 2 + 60 + 40);
        assert!(!shown.contains('\u{1b}'));
        assert_eq!(lines[1].chars().nth(lines[2].len() - 1), Some('?'));
    }

    #[test]
    fn a_mistake_at_the_end_is_marked_after_the_text() {
        let error = SyntaxError::new("--host", None, "a:", (2, "no"), "yes");
        assert_eq!(error.to_string(), "--host, character 3: no\n  a:\n    ^\naccepted: yes");
    }

    #[test]
    fn comments_become_blanks_of_equal_length() {
        let vectors = [
            ("a # b\nc", "a    \nc"),
            ("a// b /* c\r\nd", "a         \r\nd"),
            ("a /* é\n# */ b # é", "a      \n     b     "),
            ("a /b/ c", "a /b/ c"),
            ("/*/ a */b", "        b"),
            ("", ""),
        ];
        for (text, bare) in vectors {
            assert_eq!(without_comments(text).as_deref(), Ok(bare), "{text:?}");
            assert_eq!(text.len(), bare.len());
        }
        assert_eq!(without_comments("a\nb /* c\n"), Err((2, 2)));
        assert_eq!(without_comments("/*/"), Err((1, 0)));
    }
}
