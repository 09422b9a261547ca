//! Text for a terminal.

use std::borrow::Cow;

/// Returns `text` without control characters that a terminal would interpret: all but newlines and tabs are shown as `cat -v` shows
/// them. Arguments, names and notices may contain any character.
pub fn visible(text: &str) -> Cow<'_, str> {
    let obeyed = |c: char| c.is_control() && c != '\n' && c != '\t';
    if !text.contains(obeyed) {
        return Cow::Borrowed(text);
    }
    let mut shown = String::with_capacity(text.len() + 16);
    for c in text.chars() {
        match c {
            c if !obeyed(c) => shown.push(c),
            '\x7f' => shown.push_str("^?"),
            c if c.is_ascii() => shown.extend(['^', char::from(c as u8 ^ 0x40)]),
            c => shown.extend(c.escape_unicode()),
        }
    }
    Cow::Owned(shown)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn control_characters_are_shown_instead_of_sent_to_the_terminal() {
        assert_eq!(visible("a\tb\n\u{1b}[2Jc\r\u{7f}\u{9b}d é"), "a\tb\n^[[2Jc^M^?\\u{9b}d é");
        assert_eq!(visible("plain é"), "plain é");
    }
}
