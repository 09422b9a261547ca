//! What users call a job: its name, its labels, and the patterns by which they find it. rsctl checks them before it submits, and the head
//! again.

/// The most bytes of a name, or of a pattern for names.
pub const NAME_BYTES_MAX: usize = 64;
/// The most bytes of a label's key, and of its value.
pub const LABEL_BYTES_MAX: usize = 63;
/// The most labels of a job.
pub const LABELS_MAX: usize = 16;

/// Checks the name of a job. Returns why it is invalid. A name has no dot, because `train.3` is rank 3 of the job `train`, and does not
/// begin with a digit, because numbers are jobs.
pub fn check_name(name: &str) -> Result<(), String> {
    let fits = |c: char| c.is_ascii_alphanumeric() || matches!(c, '_' | '-' | '+' | ':');
    let begins = name.starts_with(|c: char| c.is_ascii_alphabetic() || c == '_');
    let why = match name {
        "last" | "all" => "this word has a meaning of its own".to_owned(),
        _ if name.len() > NAME_BYTES_MAX => format!("it has {} bytes, and the limit is {NAME_BYTES_MAX}", name.len()),
        _ if begins && name.chars().all(fits) => return Ok(()),
        _ => "it must begin with a letter or `_`, followed by letters, digits, `_`, `-`, `+` and `:`".to_owned(),
    };
    Err(format!("invalid job name `{}`: {why}", shown(name)))
}

/// Checks a label of a job. Returns why it is invalid.
pub fn check_label(key: &str, value: &str) -> Result<(), String> {
    let fits = |c: char| c.is_ascii_alphanumeric() || matches!(c, '.' | '-' | '_' | '/' | ':' | '+' | '@');
    let is_word = |word: &str| (1..=LABEL_BYTES_MAX).contains(&word.len()) && word.chars().all(fits);
    match [key, value].into_iter().find(|word| !is_word(word)) {
        None => Ok(()),
        Some(wrong) => Err(format!(
            "invalid label {}={}: `{}` must have 1 to {LABEL_BYTES_MAX} letters, digits, and . - _ / : + @",
            shown(key),
            shown(value),
            shown(wrong)
        )),
    }
}

/// Splits `KEY=VALUE` and checks both.
pub fn label(text: &str) -> Result<(String, String), String> {
    let (key, value) =
        text.split_once('=').ok_or_else(|| format!("invalid label `{}`: write KEY=VALUE", shown(text)))?;
    check_label(key, value).map(|()| (key.to_owned(), value.to_owned()))
}

/// Returns whether a name matches a pattern, in which `*` stands for any characters and `?` for one. Cost: at most the product of their
/// lengths.
pub fn matches(pattern: &str, name: &str) -> bool {
    let (pattern, name) = (pattern.as_bytes(), name.as_bytes());
    let (mut p, mut n) = (0, 0);
    // The last `*`, and from where the name is compared with what follows it.
    let mut star: Option<(usize, usize)> = None;
    while n < name.len() {
        match pattern.get(p) {
            Some(b'*') => {
                star = Some((p, n));
                p += 1;
            }
            Some(&c) if c == b'?' || c == name[n] => (p, n) = (p + 1, n + 1),
            Some(_) | None => {
                let Some((at, from)) = star else { return false };
                star = Some((at, from + 1));
                (p, n) = (at + 1, from + 1);
            }
        }
    }
    pattern[p..].iter().all(|c| *c == b'*')
}

/// Returns a word for a message: its first characters, if it is long.
fn shown(word: &str) -> String {
    match word.char_indices().nth(2 * NAME_BYTES_MAX) {
        None => word.to_owned(),
        Some((end, _)) => format!("{}…", &word[..end]),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_words_that_are_no_numbers_and_no_ranks() {
        for name in ["a", "_", "train", "relax-7", "Exp:12_b+c", &"x".repeat(NAME_BYTES_MAX)] {
            assert_eq!(check_name(name), Ok(()), "{name}");
        }
        for name in
            ["", "7", "7a", "-x", "a.3", "a b", "é", "a*", "a\n", "last", "all", &"x".repeat(NAME_BYTES_MAX + 1)]
        {
            let why = check_name(name).unwrap_err();
            assert!(why.starts_with(&format!("invalid job name `{name}`: ")) && why.len() < 300, "{why}");
        }
        assert!(check_name(&"y".repeat(1 << 20)).unwrap_err().len() < 400);
    }

    #[test]
    fn labels_have_a_key_and_a_value() {
        assert_eq!(label("project=a/b"), Ok(("project".into(), "a/b".into())));
        for text in ["project", "=x", "x=", "x=a b", "x=a=b", &format!("k={}", "v".repeat(64))] {
            assert!(label(text).unwrap_err().starts_with("invalid label "), "{text}");
        }
    }

    #[test]
    fn patterns_match_whole_names() {
        let vectors = [
            ("train", "train", true),
            ("train", "train2", false),
            ("tr*", "train", true),
            ("*in", "train", true),
            ("*a*n*", "train", true),
            ("t?ain", "train", true),
            ("t?", "t", false),
            ("*", "", true),
            ("", "", true),
            ("", "a", false),
            ("a*b*c", "a-b-b-c", true),
            ("a*b*c", "a-b-b-d", false),
        ];
        for (pattern, name, expected) in vectors {
            assert_eq!(matches(pattern, name), expected, "{pattern} {name}");
        }
    }

    #[test]
    fn a_pattern_of_many_stars_is_cheap() {
        let (pattern, name) = ("*a".repeat(NAME_BYTES_MAX / 2), "b".repeat(NAME_BYTES_MAX));
        assert!(!matches(&pattern, &name));
    }
}
