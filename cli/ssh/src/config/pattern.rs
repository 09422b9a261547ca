//! Patterns of the configuration and of known_hosts: `*`, `?`, and lists in which `!` excludes.

/// Returns whether `name` matches `pattern`, in which `*` is any text and `?` one character. Letters match in either case.
pub(crate) fn matches(pattern: &str, name: &str) -> bool {
    let (pattern, name) = (pattern.to_ascii_lowercase(), name.to_ascii_lowercase());
    let (pattern, name): (Vec<char>, Vec<char>) = (pattern.chars().collect(), name.chars().collect());
    // The last `*` and the text that it has taken so far: more is given to it when the rest does not match.
    let (mut p, mut n, mut star) = (0, 0, None);
    while n < name.len() {
        match pattern.get(p) {
            Some('*') => {
                star = Some((p, n));
                p += 1;
            }
            Some(c) if *c == '?' || *c == name[n] => (p, n) = (p + 1, n + 1),
            Some(_) | None => match star {
                Some((at, taken)) => {
                    star = Some((at, taken + 1));
                    (p, n) = (at + 1, taken + 1);
                }
                None => return false,
            },
        }
    }
    pattern[p..].iter().all(|c| *c == '*')
}

/// Returns whether a list of patterns matches: at least one matches, and none that begins with `!`.
pub(crate) fn list_matches<'a>(patterns: impl IntoIterator<Item = &'a str>, name: &str) -> bool {
    let mut found = false;
    for pattern in patterns {
        match pattern.strip_prefix('!') {
            Some(excluded) if matches(excluded, name) => return false,
            Some(_) => {}
            None => found |= matches(pattern, name),
        }
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn stars_and_question_marks_match() {
        for (pattern, name) in
            [("*", ""), ("a", "A"), ("gpu??", "gpu01"), ("*.org", "a.b.org"), ("*a*b*", "xxaxxbxx"), ("a*b*c", "abbc")]
        {
            assert!(matches(pattern, name), "{pattern} {name}");
        }
        for (pattern, name) in [("", "a"), ("a", ""), ("gpu??", "gpu1"), ("*.org", "org"), ("a*b", "abc"), ("?", "")] {
            assert!(!matches(pattern, name), "{pattern} {name}");
        }
    }

    #[test]
    fn an_excluded_name_matches_no_list() {
        let list = |text: &'static str| text.split(' ');
        assert!(list_matches(list("a* !ab"), "ac"));
        assert!(!list_matches(list("a* !ab"), "ab"));
        assert!(!list_matches(list("!b"), "a"), "a list that only excludes matches nothing");
    }
}
