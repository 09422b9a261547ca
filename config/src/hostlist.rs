//! Host lists on the command line: `--host node0,node1:4,node2:*`.
//!
//! A name alone and `NAME:*` are the whole node, `NAME:N` is N slots. What names that come several times mean is decided where
//! ranks are placed.

use crate::hostfile::{HostEntry, HostMistake, HostfileError, Mistake, parse_host};
use crate::syntax::SyntaxError;

const ACCEPTED: &str = "HOST[:N][,HOST[:N]]…, where HOST alone or HOST:* is the whole node";

/// The hosts of a list, at least one.
pub fn parse(list: &str) -> Result<Vec<HostEntry>, HostfileError> {
    let mut at = 0;
    let mut entries = Vec::new();
    for item in list.split(',') {
        let entry =
            parse_item(at, item).map_err(|mistake| SyntaxError::new("--host", None, list, mistake, ACCEPTED))?;
        entries.push(HostEntry { source: "--host".into(), ..entry });
        at += item.len() + 1;
    }
    Ok(entries)
}

fn parse_item(at: usize, item: &str) -> Result<HostEntry, Mistake> {
    let at = at + item.len() - item.trim_start().len();
    let item = item.trim();
    if item.is_empty() {
        return Err((at, HostMistake::NoHosts));
    }
    parse_host(at, item.strip_suffix(":*").unwrap_or(item))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_and_counts_are_read_in_order() {
        let found: Vec<_> =
            parse("a,b:2, c:*,a").unwrap().into_iter().map(|e| (e.name, e.slots, e.max_slots, e.source)).collect();
        let entry = |name: &str, slots| (name.to_owned(), slots, None, "--host".to_owned());
        assert_eq!(found, [entry("a", None), entry("b", Some(2)), entry("c", None), entry("a", None)]);
    }

    #[test]
    fn a_mistake_names_its_character_and_the_accepted_form() {
        assert_eq!(
            parse("a,b:x").unwrap_err().to_string(),
            "--host, character 5: slots takes a number from 1 up, not `x`\n  \
               a,b:x\n      \
                   ^\n\
             accepted: HOST[:N][,HOST[:N]]…, where HOST alone or HOST:* is the whole node"
        );
        let vectors = [
            ("", "character 1: no host is named"),
            ("a,,b", "character 3: no host is named"),
            ("a,", "character 3: no host is named"),
            ("a b", "character 1: `a b` is no host name"),
            ("a,^b", "character 3: excluded hosts (^host) are not supported in this version"),
            ("é,b:0", "character 1: `é` is no host name"),
            ("a:*:2", "character 3: slots takes a number from 1 up, not `*:2`"),
        ];
        for (list, expected) in vectors {
            let text = parse(list).unwrap_err().to_string();
            assert_eq!(text.lines().next().unwrap(), format!("--host, {expected}"), "{list:?}");
        }
    }
}
