//! `~`, `${VARIABLE}` and `%h` in values.

use std::path::PathBuf;

use super::Here;

/// Returns a path in which a leading `~/` is the user's home.
pub(super) fn tilde(text: &str, here: &Here) -> PathBuf {
    match text.strip_prefix('~') {
        Some("") => here.home.clone(),
        Some(rest) if rest.starts_with('/') => here.home.join(rest.trim_start_matches('/')),
        Some(_) | None => PathBuf::from(text),
    }
}

/// Replaces `%x` by the value for x, and `%%` by a percent sign. Err: the text for an unknown letter.
pub(super) fn percent(text: &str, tokens: &[(char, &str)]) -> Result<String, String> {
    let (mut out, mut chars) = (String::with_capacity(text.len()), text.chars());
    while let Some(c) = chars.next() {
        if c != '%' {
            out.push(c);
            continue;
        }
        let letter = chars.next().unwrap_or(' ');
        match tokens.iter().find(|(known, _)| *known == letter) {
            Some((_, value)) => out.push_str(value),
            None if letter == '%' => out.push('%'),
            None => return Err(format!("`%{letter}` is not supported here")),
        }
    }
    Ok(out)
}

/// Replaces `${NAME}` by environment variables. Err: the text for a variable that is not set.
pub(super) fn variables(text: &str, here: &Here) -> Result<String, String> {
    let (mut out, mut rest) = (String::with_capacity(text.len()), text);
    while let Some((before, after)) = rest.split_once("${") {
        let Some((name, after)) = after.split_once('}') else { break };
        let value = (here.variable)(name).ok_or_else(|| format!("the variable {name} is not set"))?;
        out.push_str(before);
        out.push_str(&value);
        rest = after;
    }
    Ok(out + rest)
}
