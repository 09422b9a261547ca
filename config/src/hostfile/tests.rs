use proptest::prelude::*;

use super::*;

fn error(text: &str) -> String {
    parse(text, "./hosts").unwrap_err().to_string()
}

fn shown(entry: &HostEntry) -> String {
    let slots = match entry.slots {
        Slots::Unsaid => String::new(),
        Slots::Whole => ":*".to_owned(),
        Slots::Count(count) => format!(":{count}"),
    };
    let max = entry.max_slots.map_or(String::new(), |max| format!(" max {max}"));
    let user = entry.user.as_ref().map_or(String::new(), |user| format!(" user {user}"));
    let port = entry.port.map_or(String::new(), |port| format!(" port {port}"));
    format!("{}{slots}{max}{user}{port}", entry.host)
}

#[test]
fn every_form_is_parsed() {
    let text = "# our nodes\n\nnode0 slots=2 max_slots=20\r\n  node1:4 # fast\nnode2\n\
                node3 CPU = 8 Max-Slots =9\nnode4.org count=1\nnode5 slots_max=3\n10.0.0.7\n\
                // more\nme@node6:2 port=2222/* and\n several lines */ node7 cpus=3 User-Name=you\n\
                gpu[01-02,20] slots=8 max-cpus=9\n[fe80::1] slots=2\nnode8:auto\n^gpu02\n+n2\n+N3 slots=2\n+e\n+e:3\nnode1:2\n";
    let entries = parse(text, "./hosts").unwrap();
    let found: Vec<String> = entries.iter().map(shown).collect();
    let expected = [
        "node0:2 max 20",
        "node1:4",
        "node2",
        "node3:8 max 9",
        "node4.org:1",
        "node5 max 3",
        "10.0.0.7",
        "node6:2 user me port 2222",
        "node7:3 user you",
        "gpu01:8 max 9",
        "gpu02:8 max 9",
        "gpu20:8 max 9",
        "fe80::1:2",
        "node8:*",
        "^gpu02",
        "+n2",
        "+n3:2",
        "+e",
        "+e:3",
        "node1:2",
    ];
    assert_eq!(found, expected);
    let sources: Vec<&str> = entries.iter().map(|entry| entry.source.as_str()).collect();
    assert_eq!(
        (sources[0], sources[2], sources[8]),
        ("hostfile ./hosts:3", "hostfile ./hosts:5", "hostfile ./hosts:12")
    );
}

#[test]
fn all_synonyms_are_known() {
    for key in ["slots", "slot", "cpu", "cpus", "count", "SLOTS"] {
        assert_eq!(parse(&format!("a {key}=3"), "f").unwrap()[0].slots, Slots::Count(3), "{key}");
    }
    let max = "max_slots max-slots slots_max slots-max max_cpu max-cpus cpu_max cpus-max max_count count-max max-slot";
    for key in max.split(' ') {
        assert_eq!(parse(&format!("a {key}=3"), "f").unwrap()[0].max_slots, Some(3), "{key}");
    }
    for key in ["user", "username", "user-name", "user_name"] {
        assert_eq!(parse(&format!("a {key}=me"), "f").unwrap()[0].user.as_deref(), Some("me"), "{key}");
    }
}

#[test]
fn a_host_on_several_lines_must_be_bare_on_all_or_have_a_count_on_all() {
    assert_eq!(parse("a\nb\nA\na\n", "f").unwrap().len(), 4);
    assert_eq!(parse("a:2\nb:1\na:1\n", "f").unwrap().len(), 3);
    let refused =
        ["a slots=2\na slots=2", "a\na slots=2", "a slots=2\na", "a:2\na", "a:2\na slots=1", "a max_slots=2\na"];
    for text in refused {
        let expected =
            "./hosts:2:1: `a` is already on line 1, and slots are given: list it on one line, with all its slots";
        assert_eq!(error(text).lines().next(), Some(expected), "{text:?}");
    }
}

#[test]
fn a_mistake_is_shown_with_file_line_column_and_the_accepted_form() {
    assert_eq!(
        error("node0 slots=2\nnode1 slots=x max_slots=3"),
        "./hosts:2:13: slots takes a number from 1 up, not `x`\n  \
           node1 slots=x max_slots=3\n              \
                       ^\n\
         accepted: HOST [slots=N] [max_slots=M] [user=NAME] [port=P], HOST:N, USER@HOST, NAME[01-16,20], +nK, +idK, +e[:N], \
         +KEY=VALUE[:N], ^HOST"
    );
}

#[test]
fn every_mistake_has_its_own_message() {
    let vectors = [
        ("node0 slots", "1:7: `slots` needs a value: slots=N"),
        ("node0 slots=", "1:7: `slots` needs a value: slots=N"),
        ("node0 slots=0", "1:13: slots takes a number from 1 up, not `0`"),
        ("node0 slots=+1", "1:13: slots takes a number from 1 up, not `+1`"),
        ("node0 max_slots=99999999999", "1:17: max_slots takes a number from 1 up, not `99999999999`"),
        ("node0:two", "1:7: slots takes a number from 1 up, not `two`"),
        ("node0:2:3", "1:7: slots takes a number from 1 up, not `2:3`"),
        ("node0:", "1:7: slots takes a number from 1 up, not ``"),
        ("node0:2 slots=2", "1:9: slots is given twice"),
        ("node0 cpu=2 slots=2", "1:13: slots is given twice"),
        ("node0 slots=4 max_slots=2", "1:15: max_slots=2 is less than slots=4"),
        ("node0 slot5=2", "1:7: unknown host-file key `slot5`"),
        ("node0 =2", "1:7: unknown host-file key ``"),
        (":4", "1:1: invalid host name ``"),
        ("nöde", "1:1: invalid host name `nöde`"),
        ("-n", "1:1: invalid host name `-n`"),
        ("node0,node1", "1:6: a host file has one host per line; write a range as gpu[01-16,20]"),
        ("node0:2,node1", "1:8: a host file has one host per line; write a range as gpu[01-16,20]"),
        ("@node0", "1:1: invalid user name ``"),
        ("me@node0 user=you", "1:10: user is given twice"),
        ("node0 user=-x", "1:12: invalid user name `-x`"),
        ("node0 port=0", "1:12: port takes a number from 1 to 65535, not `0`"),
        ("node0 port=65536", "1:12: port takes a number from 1 to 65535, not `65536`"),
        ("node0 port=+22", "1:12: port takes a number from 1 to 65535, not `+22`"),
        ("node0 port=22 port=23", "1:15: port is given twice"),
        ("node0 binding=core", "1:7: binding is not per host: use rsctl run --bind-to core"),
        ("node0 slots+=2", "1:7: a node's own slots are set when its daemon starts: rsd start --slots N"),
        ("node0 slots-=2", "1:7: a node's own slots are set when its daemon starts: rsd start --slots N"),
        ("node0 sockets=2", "1:7: each node reports its own hardware: remove this key"),
        ("^node0 slots=2", "1:8: `^` excludes a host and takes a name only"),
        ("^node0:2", "1:7: `^` excludes a host and takes a name only"),
        (
            "+2",
            "1:1: invalid relative node `+2`: use +nK (node K, from 0), +idK (the node with id K), +e (every idle node), +e:N (N idle nodes) or +KEY=VALUE (every node with this label)",
        ),
        ("node[0-3", "1:5: unclosed bracket"),
        ("node[0-3, 5]", "1:5: unclosed bracket"),
        ("node[3-0]", "1:6: the range 3-0 is reversed: write 0-3"),
        ("node[0-003]", "1:6: `0-003` has ends of different widths: write both with the same number of digits"),
        ("a[0-65535]\nb", "2:1: more than 65536 hosts"),
        ("fe80::1", "1:1: an IPv6 address needs brackets: [fe80::1]"),
        ("node0\n  /* é\n", "2:3: unterminated comment"),
        ("# nothing\n\n", "2:1: no host given"),
        ("", "1:1: no host given"),
    ];
    for (text, expected) in vectors {
        assert_eq!(error(text).lines().next().unwrap(), format!("./hosts:{expected}"), "{text:?}");
    }
}

proptest! {
    #[test]
    fn any_text_is_parsed_or_refused(text in "[a-c0-2:=# \t\né@^+,/*\\[\\]slotmax_-]{0,40}") {
        match parse(&text, "f") {
            Ok(entries) => prop_assert!(!entries.is_empty()),
            Err(error) => {
                let line = text.lines().nth(error.line.unwrap() - 1).unwrap_or("");
                prop_assert!(error.column <= line.chars().count() + 1);
                prop_assert_eq!(error.to_string().lines().count(), 4);
            }
        }
    }
}
