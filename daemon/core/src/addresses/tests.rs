use super::*;

/// A list of interfaces as recorded: `name address`, with `-` in front of those that are down.
fn recorded(lines: &[&str]) -> Vec<OwnAddress> {
    let own = |line: &&str| {
        let (is_up, line) = line.strip_prefix('-').map_or((true, *line), |rest| (false, rest));
        let (interface, ip) = line.split_once(' ').expect("a name and an address");
        OwnAddress { interface: interface.into(), ip: ip.parse().expect("an address"), is_up }
    };
    lines.iter().map(own).collect()
}

/// A workstation with containers and virtual machines.
const WORKSTATION: &[&str] = &[
    "lo 127.0.0.1",
    "docker0 172.17.0.1",
    "-virbr0 192.168.122.1",
    "br-4f1c2b7a9d10 172.18.0.1",
    "enp3s0 192.168.1.20",
    "wlp2s0 192.168.1.77",
    "lo ::1",
    "docker0 fe80::42:acff:fe11:1",
    "enp3s0 2001:db8::20",
    "enp3s0 fe80::1a2b:3cff:fe4d:5e6f",
    "veth9a1c fe80::a00:27ff:fe4e:66a1",
    "-eth9 10.9.9.9",
];

/// A node of a Kubernetes cluster.
const KUBERNETES: &[&str] = &[
    "lo 127.0.0.1",
    "cni0 10.244.1.1",
    "flannel.1 10.244.1.0",
    "kube-ipvs0 10.96.0.1",
    "nodelocaldns 169.254.20.10",
    "cali12ab 169.254.1.1",
    "eth0 10.0.0.5",
    "ib0 10.1.0.5",
];

fn hosts(own: &[OwnAddress], wishes: &Wishes) -> Vec<String> {
    advertised(own, wishes).expect("the wishes are valid").into_iter().map(|address| address.host).collect()
}

fn words(words: &[&str]) -> Vec<String> {
    words.iter().map(|word| (*word).to_owned()).collect()
}

fn error(own: &[OwnAddress], wishes: &Wishes) -> String {
    let (option, why) = advertised(own, wishes).expect_err("the wish cannot be fulfilled");
    format!("{option}: {why}")
}

#[test]
fn interfaces_of_containers_and_virtual_machines_are_left_out() {
    let wishes = Wishes::default();
    assert_eq!(hosts(&recorded(WORKSTATION), &wishes), ["192.168.1.20", "2001:db8::20", "192.168.1.77"]);
    assert_eq!(hosts(&recorded(KUBERNETES), &wishes), ["10.0.0.5", "10.1.0.5"]);
    assert_eq!(hosts(&recorded(&["lo 127.0.0.1", "lo ::1"]), &wishes), [""; 0]);
    assert_eq!(hosts(&recorded(&["lo ::1", "eth0 fe80::1", "eth0 fd00::7"]), &wishes), ["fd00::7"]);
}

#[test]
fn the_way_to_the_other_nodes_comes_first() {
    let route = Some("10.1.0.5".parse().unwrap());
    assert_eq!(hosts(&recorded(KUBERNETES), &Wishes { route, ..Wishes::default() }), ["10.1.0.5", "10.0.0.5"]);
    // The way to a container is not a way to another machine.
    let route = Some("10.244.1.1".parse().unwrap());
    assert_eq!(hosts(&recorded(KUBERNETES), &Wishes { route, ..Wishes::default() }), ["10.0.0.5", "10.1.0.5"]);
    // A node that joins through a tunnel has a way that leads to itself.
    let route = Some("127.0.0.1".parse().unwrap());
    assert_eq!(hosts(&recorded(KUBERNETES), &Wishes { route, ..Wishes::default() }), ["10.0.0.5", "10.1.0.5"]);
}

#[test]
fn the_address_that_the_daemon_listens_on_comes_first() {
    let listen = |ip: &str| Wishes { listen: Some(ip.parse().unwrap()), ..Wishes::default() };
    assert_eq!(hosts(&recorded(KUBERNETES), &listen("10.1.0.5")), ["10.1.0.5", "10.0.0.5"]);
    assert_eq!(hosts(&recorded(KUBERNETES), &listen("10.244.1.1")), ["10.244.1.1", "10.0.0.5", "10.1.0.5"]);
    assert_eq!(hosts(&recorded(KUBERNETES), &listen("127.0.0.1")), ["10.0.0.5", "10.1.0.5"]);
}

#[test]
fn a_named_interface_is_used_whatever_it_is() {
    let interfaces = |names: &[&str]| Wishes { interfaces: words(names), ..Wishes::default() };
    assert_eq!(hosts(&recorded(WORKSTATION), &interfaces(&["docker0"])), ["172.17.0.1"]);
    assert_eq!(
        hosts(&recorded(WORKSTATION), &interfaces(&["wlp2s0", "enp3s0"])),
        ["192.168.1.77", "192.168.1.20", "2001:db8::20"]
    );
    assert_eq!(hosts(&recorded(WORKSTATION), &interfaces(&["eth9"])), ["10.9.9.9"], "an interface that is down");
    assert_eq!(
        error(&recorded(KUBERNETES[..2].as_ref()), &interfaces(&["ib0"])),
        "--interface ib0: no interface has this name and an address; interfaces with addresses: cni0, lo"
    );
    for name in ["lo", "veth9a1c"] {
        let text = error(&recorded(WORKSTATION), &interfaces(&[name]));
        assert!(text.contains("no address that other machines can use"), "{text}");
    }
}

#[test]
fn named_addresses_replace_all_others() {
    let wishes =
        Wishes { advertise: words(&["gw.example.org", "[2001:db8::20]", "gw.example.org"]), ..Wishes::default() };
    let expected = [("gw.example.org", ""), ("2001:db8::20", "enp3s0")];
    let expected = expected.map(|(host, interface)| NodeAddress { host: host.into(), interface: interface.into() });
    assert_eq!(advertised(&recorded(WORKSTATION), &wishes).unwrap(), expected);
    for (word, why) in [
        ("127.0.0.1", InvalidWish::Own),
        ("localhost", InvalidWish::Own),
        ("::", InvalidWish::Own),
        ("0.0.0.0", InvalidWish::Own),
        ("fe80::1", InvalidWish::LinkLocal),
        ("fe80::1%eth0", InvalidWish::NotAHost),
        ("10.0.0.1:7817", InvalidWish::NotAHost),
        ("10.0.0", InvalidWish::NotAHost),
        ("a b", InvalidWish::NotAHost),
        ("", InvalidWish::NotAHost),
    ] {
        assert_eq!(advertisable(word), Err(why), "{word}");
    }
}

/// A node on machine A.
fn node(listen: &str, reached: Option<&str>, addresses: &[(&str, &str)]) -> NodeInfo {
    let address =
        |(host, interface): &(&str, &str)| NodeAddress { host: (*host).into(), interface: (*interface).into() };
    let addresses = addresses.iter().map(address).collect();
    let inventory = Inventory { addresses, machine: "A".into(), ..Inventory::default() };
    let reached = reached.map(str::to_owned);
    NodeInfo { listen: listen.into(), inventory: Some(inventory), reached, ..NodeInfo::default() }
}

const TWO: &[(&str, &str)] = &[("10.0.0.5", "eth0"), ("fd00::5", "eth0")];

#[test]
fn loopback_is_for_the_same_machine_only() {
    let wildcard = node("0.0.0.0:7", None, TWO);
    assert_eq!(dialable(&wildcard, "A"), ["127.0.0.1:7", "10.0.0.5:7", "[fd00::5]:7"]);
    assert_eq!(dialable(&wildcard, "B"), ["10.0.0.5:7", "[fd00::5]:7"]);
    assert_eq!(dialable(&wildcard, ""), ["10.0.0.5:7", "[fd00::5]:7"]);
    let tunnelled = node("127.0.0.1:7", Some("127.0.0.1"), TWO);
    assert_eq!(dialable(&tunnelled, "A"), ["127.0.0.1:7"]);
    assert_eq!(dialable(&tunnelled, "B"), [""; 0]);
    assert_eq!(outward(&tunnelled), "10.0.0.5");
    // Two machines without a known identity are two machines.
    let unknown = NodeInfo { inventory: Some(Inventory::default()), ..tunnelled };
    assert_eq!(dialable(&unknown, ""), [""; 0]);
}

#[test]
fn a_standby_is_dialled_at_other_addresses_once_it_is_the_head() {
    let mut head = node("0.0.0.0:7817", None, &TWO[..1]);
    (head.node, head.name, head.daemon_listen) = (4, "n4".into(), "127.0.0.1:9".into());
    let here = of_standby(&head, "A");
    assert_eq!((here.node, here.name.as_str()), (4, "n4"));
    assert_eq!(
        (here.addresses, here.daemon),
        (vec!["127.0.0.1:7817".into(), "10.0.0.5:7817".into()], vec!["127.0.0.1:9".into()])
    );
    let elsewhere = of_standby(&head, "B");
    assert_eq!((elsewhere.addresses, elsewhere.daemon), (vec!["10.0.0.5:7817".into()], Vec::new()));
}

#[test]
fn the_address_that_was_reached_comes_first() {
    let reached = node("[::]:7", Some("fd00::5"), TWO);
    assert_eq!(dialable(&reached, "B"), ["[fd00::5]:7", "10.0.0.5:7"]);
    assert_eq!(outward(&reached), "fd00::5");
    assert_eq!(outward(&node("[::]:7", None, TWO)), "10.0.0.5");
}

#[test]
fn a_specific_listening_address_excludes_those_of_other_interfaces() {
    let both = [TWO, &[("gw.example.org", "")]].concat();
    assert_eq!(dialable(&node("10.0.0.5:7", None, &both), "B"), ["10.0.0.5:7", "gw.example.org:7"]);
    assert_eq!(dialable(&node("[fd00::5]:7", None, TWO), "A"), ["[fd00::5]:7"]);
}

#[test]
fn a_node_that_cannot_be_reached_is_no_parent_for_other_machines() {
    let nat = node("0.0.0.0:7", Some(""), TWO);
    assert_eq!(dialable(&nat, "B"), [""; 0]);
    assert!(!may_be_parent_of(&nat, "B") && may_be_parent_of(&nat, "A"));
    let willing = |reached| NodeInfo { may_listen: true, ..node("", reached, TWO) };
    assert!(may_be_parent_of(&willing(Some("10.0.0.5")), "B"));
    assert!(!may_be_parent_of(&willing(Some("127.0.0.1")), "B") && may_be_parent_of(&willing(Some("127.0.0.1")), "A"));
    assert!(!may_be_parent_of(&willing(Some("")), "B") && !may_be_parent_of(&willing(None), "B"));
    assert!(!may_be_parent_of(&node("", Some("10.0.0.5"), TWO), "B"));
}

#[test]
fn the_interface_follows_from_the_address() {
    let inventory = node("", None, &[("gw", ""), ("10.0.0.5", "eth0"), ("10.1.0.5", "ib0")]).inventory.unwrap();
    let interfaces = ["10.1.0.5", "127.0.0.1", "203.0.113.9"].map(|host| interface_of(&inventory, host).to_owned());
    assert_eq!(interfaces, ["ib0", "lo", "eth0"]);
}
