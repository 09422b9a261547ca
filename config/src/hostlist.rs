//! Host lists on the command line: `--host node0,node1:4,node2:*`.
//!
//! A bare name that occurs once means the whole node; a bare name that occurs k times means k slots. `NAME:*` means the whole node,
//! `NAME:N` means N slots. Ranges (`gpu[01-16]`), relative nodes (`+n2`, `+e:3`) and `^NAME` are as in host files.
//!
//! Together with a host file, a list chooses from that file: the list sets order and counts, and the file limits the slots of each host.

use std::collections::HashMap;

use crate::host::{self, HOSTS_MAX, HostEntry, HostMistake, HostRef, Mistake, Slots};
use crate::hostfile::HostfileError;
use crate::syntax::SyntaxError;

const ACCEPTED: &str = "\
HOST[:N][,HOST[:N]]…, where HOST alone or HOST:* is the whole node; NAME[01-16,20], +nK, +idK, +e[:N], +KEY=VALUE[:N], ^HOST";
const ORIGIN: &str = "--host";

/// Parses a list into at least one entry.
pub fn parse(list: &str) -> Result<Vec<HostEntry>, HostfileError> {
    let items = items(list).map_err(|mistake| wrong(list, mistake))?;
    Ok(items.into_iter().map(|(_, entry)| entry).collect())
}

/// Chooses the list's hosts from `entries`, those of host file `file`. Fails if the file does not list a host.
pub fn choose(list: &str, entries: &[HostEntry], file: &str) -> Result<Vec<HostEntry>, HostfileError> {
    let items = items(list).map_err(|mistake| wrong(list, mistake))?;
    chosen(&items, entries, file).map_err(|mistake| wrong(list, mistake))
}

fn wrong(list: &str, mistake: Mistake) -> HostfileError {
    SyntaxError::new(ORIGIN, None, list, mistake, ACCEPTED)
}

/// Parses a list into entries, each with the byte offset of its item.
fn items(list: &str) -> Result<Vec<(usize, HostEntry)>, Mistake> {
    let mut entries = Vec::new();
    let (mut start, mut open) = (0, false);
    // The end of the list counts as a comma.
    for (at, c) in list.char_indices().chain([(list.len(), ',')]) {
        match c {
            '[' => open = true,
            ']' => open = false,
            ',' if !open || at == list.len() => {
                let item = &list[start..at];
                let at_item = start + item.len() - item.trim_start().len();
                start = at + 1;
                if item.trim().is_empty() {
                    return Err((at_item, HostMistake::NoHosts));
                }
                for entry in host::parse(at_item, item.trim())? {
                    entries.push((at_item, HostEntry { source: ORIGIN.into(), ..entry }));
                }
                if entries.len() > HOSTS_MAX {
                    return Err((at_item, HostMistake::TooMany));
                }
            }
            _ => {}
        }
    }
    Ok(entries)
}

/// All lines of a host file about one host.
struct Listed<'a> {
    first: &'a HostEntry,
    lines: u32,
    slots: Slots,
    /// The slots that the list has not used yet.
    left: u32,
}

fn chosen(items: &[(usize, HostEntry)], entries: &[HostEntry], file: &str) -> Result<Vec<HostEntry>, Mistake> {
    let relative = |entry: &&HostEntry| !matches!(entry.host, HostRef::Named(_) | HostRef::Excluded(_));
    if entries.iter().any(|entry| relative(&entry)) {
        return Err((0, HostMistake::RelativeInFile { file: file.to_owned() }));
    }
    let mut hosts = Hosts::of(entries);
    let mut taken_out: Vec<&HostEntry> = entries.iter().filter(|entry| excludes(entry).is_some()).collect();
    taken_out.extend(items.iter().map(|(_, entry)| entry).filter(|entry| excludes(entry).is_some()));
    let mut picks = Vec::new();
    for (at, entry) in items {
        let found = match &entry.host {
            HostRef::Named(name) => hosts.find(name).ok_or_else(|| (*at, hosts.missing(name, file)))?,
            HostRef::Nth(place) if (*place as usize) < hosts.listed.len() => *place as usize,
            HostRef::Nth(place) => {
                let hosts = hosts.listed.len();
                return Err((*at, HostMistake::BeyondFile { at: *place, hosts, file: file.to_owned() }));
            }
            HostRef::Idle(_) | HostRef::Id(_) | HostRef::Labelled { .. } => return Err((*at, HostMistake::IdleOfFile)),
            HostRef::Excluded(_) => continue,
        };
        picks.push((found, entry));
    }
    let mut out: Vec<HostEntry> = Vec::new();
    if picks.is_empty() {
        out.extend(entries.iter().filter(|entry| excludes(entry).is_none()).cloned());
    }
    let mut mentions = vec![0_u32; hosts.listed.len()];
    picks.iter().for_each(|(found, _)| mentions[*found] += 1);
    for (found, entry) in picks {
        let once = mentions[found] == 1;
        out.extend(hosts.listed[found].give(entry, once));
    }
    out.extend(taken_out.into_iter().cloned());
    Ok(out)
}

fn excludes(entry: &HostEntry) -> Option<&str> {
    match &entry.host {
        HostRef::Excluded(name) => Some(name),
        HostRef::Named(_) | HostRef::Nth(_) | HostRef::Id(_) | HostRef::Labelled { .. } | HostRef::Idle(_) => None,
    }
}

impl Listed<'_> {
    /// Returns the slots that an entry of the list gets; None if the file's slots are used up. `once`: the list has no other entry for
    /// this host.
    fn give(&mut self, wish: &HostEntry, once: bool) -> Option<HostEntry> {
        let limited = self.slots != Slots::Unsaid && self.slots != Slots::Whole;
        let wished = match (wish.slots, once) {
            (Slots::Count(count), _) => Some(count),
            (Slots::Unsaid, false) => Some(1),
            (Slots::Unsaid, true) | (Slots::Whole, _) => None,
        };
        let slots = match wished {
            Some(count) => Slots::Count(count.min(self.left)),
            None if limited => Slots::Count(self.left),
            None => self.slots,
        };
        if let Slots::Count(count) = slots {
            self.left -= if limited { count } else { 0 };
        }
        let source = format!("{ORIGIN}, {}", self.first.source);
        let entry = HostEntry { slots, source, host: self.first.host.clone(), ..self.first.clone() };
        (slots != Slots::Count(0)).then_some(entry)
    }
}

/// The hosts of a file, each once, in the file's order.
struct Hosts<'a> {
    listed: Vec<Listed<'a>>,
    by_name: HashMap<String, usize>,
    /// By the part of the name before the first dot; None if several hosts share it.
    by_short: HashMap<String, Option<usize>>,
}

impl<'a> Hosts<'a> {
    fn of(entries: &'a [HostEntry]) -> Hosts<'a> {
        let mut hosts = Hosts { listed: Vec::new(), by_name: HashMap::new(), by_short: HashMap::new() };
        for entry in entries {
            let HostRef::Named(name) = &entry.host else { continue };
            let name = name.to_ascii_lowercase();
            let count = match (entry.slots, entry.max_slots) {
                (Slots::Count(count), _) => count,
                (Slots::Unsaid, Some(max_slots)) => max_slots,
                (Slots::Unsaid | Slots::Whole, _) => u32::MAX,
            };
            let slots = if count == u32::MAX { entry.slots } else { Slots::Count(count) };
            match hosts.by_name.get(&name) {
                Some(at) => {
                    let host = &mut hosts.listed[*at];
                    host.lines += 1;
                    host.slots = match (host.slots, slots) {
                        (Slots::Count(sum), Slots::Count(more)) => Slots::Count(sum.saturating_add(more)),
                        (Slots::Whole, _) | (_, Slots::Whole) => Slots::Whole,
                        (Slots::Unsaid, _) | (_, Slots::Unsaid) => Slots::Count(host.lines),
                    };
                }
                None => {
                    let at = hosts.listed.len();
                    hosts.by_short.entry(short(&name).to_owned()).and_modify(|only| *only = None).or_insert(Some(at));
                    hosts.by_name.insert(name, at);
                    hosts.listed.push(Listed { first: entry, lines: 1, slots, left: 0 });
                }
            }
        }
        for host in &mut hosts.listed {
            host.left = if let Slots::Count(count) = host.slots { count } else { u32::MAX };
        }
        hosts
    }

    /// Finds a host as daemons do: case-insensitively. A short name matches a full one, and the reverse, if that is unambiguous.
    fn find(&self, name: &str) -> Option<usize> {
        let name = name.to_ascii_lowercase();
        let own = self.by_name.get(&name).copied();
        own.or_else(|| match short(&name) == name {
            true => self.by_short.get(&name).copied().flatten(),
            false => self.by_name.get(short(&name)).copied(),
        })
    }

    fn missing(&self, name: &str, file: &str) -> HostMistake {
        HostMistake::NotInFile { name: name.into(), file: file.into() }
    }
}

/// Returns the part of a name before the first dot. Addresses have no short form.
fn short(name: &str) -> &str {
    let address = name.parse::<std::net::IpAddr>().is_ok();
    if address { name } else { name.split_once('.').map_or(name, |(short, _)| short) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::hostfile;

    fn shown(entries: &[HostEntry]) -> String {
        let slots = |entry: &HostEntry| match entry.slots {
            Slots::Unsaid => String::new(),
            Slots::Whole => ":*".to_owned(),
            Slots::Count(count) => format!(":{count}"),
        };
        entries.iter().map(|entry| format!("{}{}", entry.host, slots(entry))).collect::<Vec<_>>().join(" ")
    }

    #[test]
    fn names_and_counts_are_parsed_in_order() {
        let vectors = [
            ("a,b:2, c:*,a", "a b:2 c:* a"),
            ("b:auto,c:AUTO", "b:* c:*"),
            ("gpu[01-03,7]:2,x", "gpu01:2 gpu02:2 gpu03:2 gpu7:2 x"),
            ("+n2,+N0:3,+e,+E:4", "+n2 +n0:3 +e +e:4"),
            ("^b,^gpu[1-2]", "^b ^gpu1 ^gpu2"),
            ("[fe80::1%eth0]:2,[::1]", "fe80::1%eth0:2 ::1"),
            ("10.0.0.7:3,node.org", "10.0.0.7:3 node.org"),
        ];
        for (list, expected) in vectors {
            assert_eq!(parse(list).map(|entries| shown(&entries)), Ok(expected.to_owned()), "{list}");
        }
        let [me] = &parse("me@a:2").unwrap()[..] else { panic!() };
        assert_eq!((me.user.as_deref(), me.slots, me.source.as_str()), (Some("me"), Slots::Count(2), "--host"));
    }

    #[test]
    fn a_mistake_names_its_position_and_the_accepted_form() {
        assert_eq!(
            parse("a,b:x").unwrap_err().to_string(),
            "--host, character 5: slots takes a number from 1 up, not `x`\n  \
               a,b:x\n      \
                   ^\n\
             accepted: HOST[:N][,HOST[:N]]…, where HOST alone or HOST:* is the whole node; \
             NAME[01-16,20], +nK, +idK, +e[:N], +KEY=VALUE[:N], ^HOST"
        );
        let vectors = [
            ("", "character 1: no host given"),
            ("a,,b", "character 3: no host given"),
            ("a,", "character 3: no host given"),
            ("a b", "character 1: invalid host name `a b`"),
            ("é,b:0", "character 1: invalid host name `é`"),
            ("a:*:2", "character 3: slots takes a number from 1 up, not `*:2`"),
            ("a:0", "character 3: slots takes a number from 1 up, not `0`"),
            ("a:4294967295", "character 3: slots takes a number from 1 up, not `4294967295`"),
            (
                "a,b:+2",
                "character 5: `+2` would change the node's own slots: set them when its daemon starts, with rsd start --slots N",
            ),
            ("a,gpu[01-16", "character 6: unclosed bracket"),
            ("a,gpu[1,x],b", "character 9: `x` is not a number or a range such as 1-16"),
            ("a,gpu1],b", "character 7: `]` without `[`"),
            ("gpu[0-99999]", "character 5: more than 65536 hosts"),
            ("a[0-65535],b", "character 12: more than 65536 hosts"),
            (
                "a,+x",
                "character 3: invalid relative node `+x`: use +nK (node K, from 0), +idK (the node with id K), +e (every idle node), +e:N (N idle nodes) or +KEY=VALUE (every node with this label)",
            ),
            ("+e:0", "character 4: +e takes a number from 1 up, not `0`"),
            ("+n1:x", "character 5: slots takes a number from 1 up, not `x`"),
            ("+n[0-3]", "character 3: a relative node cannot be a range: list each, +n0,+n1"),
            ("a,^b:2", "character 5: `^` excludes a host and takes a name only"),
            ("^me@b", "character 4: `^` excludes a host and takes a name only"),
            ("^", "character 2: invalid host name ``"),
            ("fe80::1", "character 1: an IPv6 address needs brackets: [fe80::1]"),
            ("[fe80::x]", "character 2: invalid IPv6 address `fe80::x`"),
            ("[::1%]", "character 2: invalid IPv6 address `::1%`"),
            ("[::1]x", "character 1: invalid host name `[::1]x`"),
            ("m e@b", "character 1: invalid user name `m e`"),
        ];
        for (list, expected) in vectors {
            let text = parse(list).unwrap_err().to_string();
            assert_eq!(text.lines().next().unwrap(), format!("--host, {expected}"), "{list:?}");
        }
    }

    #[test]
    fn a_list_with_a_host_file_chooses_from_the_file() {
        let file = "a slots=4 max_slots=6\nb:2\nc\nd\nd\nn1.site slots=3\nx max_slots=5\n";
        let entries = hostfile::parse(file, "./hosts").unwrap();
        let chosen = |list: &str| choose(list, &entries, "./hosts").map(|entries| shown(&entries));
        let vectors = [
            ("b,a", "b:2 a:4"),
            ("a:2,c:*", "a:2 c"),
            ("a:9", "a:4"),
            ("a,a,c", "a:1 a:1 c"),
            ("c,c", "c:1 c:1"),
            ("b,b,b", "b:1 b:1"),
            ("d", "d:2"),
            ("A,N1", "a:4 n1.site:3"),
            ("x", "x:5"),
            ("+n1,+n0", "b:2 a:4"),
            ("a,b,^b", "a:4 b:2 ^b"),
        ];
        for (list, expected) in vectors {
            assert_eq!(chosen(list), Ok(expected.to_owned()), "{list}");
        }
        let all = chosen("^c").unwrap();
        assert_eq!(all, "a:4 b:2 c d d n1.site:3 x ^c");
        let [a] = &choose("a:2", &entries, "./hosts").unwrap()[..] else { panic!() };
        assert_eq!((a.max_slots, a.source.as_str()), (Some(6), "--host, hostfile ./hosts:1"));
        let line = |list: &str| chosen(list).map_err(|error| error.to_string().lines().next().unwrap_or("").to_owned());
        assert_eq!(line("a,zz"), Err("--host, character 3: `zz` is not in ./hosts".into()));
        assert_eq!(line("+n6"), Err("--host, character 1: no host +n6: ./hosts has 6 hosts, from +n0".into()));
        let expected = "--host, character 3: only names and +nK choose from a host file: write the entry into the file, or omit --hostfile";
        assert_eq!(line("a,+e"), Err(expected.into()));
        let relative = hostfile::parse("+n2\n", "./hosts").unwrap();
        let text = choose("a", &relative, "./hosts").unwrap_err().to_string();
        assert!(text.starts_with("--host, character 1: --host cannot choose from ./hosts"), "{text}");
    }

    #[test]
    fn hosts_that_the_file_excludes_stay_excluded() {
        let entries = hostfile::parse("^b\n", "f").unwrap();
        assert_eq!(
            choose("a,b", &hostfile::parse("a\nb\n^b", "f").unwrap(), "f").map(|e| shown(&e)),
            Ok("a b ^b".into())
        );
        assert_eq!(choose("^c", &entries, "f").map(|entries| shown(&entries)), Ok("^b ^c".to_owned()));
    }
}
