use rsd_proto::v1::{App, Host, plan_reply::Outcome};

use super::*;
use crate::place::place;
use crate::place::topology::{Kind, Topology};

fn topology() -> Topology {
    Topology::regular(&[(Kind::Package, 2), (Kind::Core, 4), (Kind::Thread, 2)]).unwrap()
}

fn host(name: &str, slots: Option<u32>) -> Host {
    Host { name: name.into(), slots, source: "--host".into(), ..Host::default() }
}

fn spec(n: Option<u32>, hosts: Vec<Host>) -> JobSpec {
    JobSpec { apps: vec![App { n, hosts, ..App::default() }], ..JobSpec::default() }
}

fn slots(spec: &JobSpec) -> Vec<(String, u32, String)> {
    let nodes = imagine(spec, topology()).unwrap();
    nodes.into_iter().map(|node| (node.name, node.slots, node.slots_reason)).collect()
}

#[test]
fn imaginary_hosts_have_the_slots_of_their_list_or_their_cores() {
    let cores = |name: &str| (name.to_owned(), 8, "8 cores".to_owned());
    let told = |name: &str, slots| (name.to_owned(), slots, "--host".to_owned());
    assert_eq!(slots(&spec(None, Vec::new())), [cores("node0")]);
    assert_eq!(slots(&spec(None, vec![host("b", None), host("a", Some(20))])), [cores("b"), told("a", 20)]);
    assert_eq!(
        slots(&spec(None, vec![host("a", None), host("b", Some(1)), host("A", None)])),
        [told("a", 2), told("b", 1)]
    );
    let mut two = spec(None, vec![host("a", Some(2))]);
    two.apps.push(App { hosts: vec![host("c", None), host("a", Some(3))], ..App::default() });
    assert_eq!(slots(&two), [told("a", 3), cores("c")]);
    let threads = JobSpec { map_by: "slot:hwtcpus".into(), ..spec(None, vec![host("a", None)]) };
    assert_eq!(slots(&threads), [("a".to_owned(), 16, "16 hardware threads".to_owned())]);
}

#[test]
fn relative_nodes_are_refused_without_a_dvm() {
    let said = imagine(&spec(None, vec![host("a", None), host("+n1", None)]), topology()).unwrap_err();
    assert!(said.starts_with("+n1 (--host) names a node of a running DVM"), "{said}");
}

#[test]
fn a_plan_names_nodes_in_the_order_of_their_ranks() {
    let spec = spec(Some(12), vec![host("b", None), host("a", None)]);
    let nodes = imagine(&spec, topology()).unwrap();
    let outcome = place(&nodes, &request(&spec).unwrap(), 0);
    let Some(Outcome::Plan(plan)) = reply(&nodes, &outcome, |_| Vec::new()).outcome else { panic!("{outcome:?}") };
    assert_eq!(plan.nodes.iter().map(|node| (&*node.name, node.slots)).collect::<Vec<_>>(), [("b", 8), ("a", 8)]);
    assert_eq!((plan.app_sizes, plan.topologies.len()), (vec![12], 1));
    assert_eq!(plan.map.map(|map| map.nodes), Some(vec![0, 1]));
}

#[test]
fn a_refused_plan_lists_the_offers_and_fixes() {
    let spec = spec(Some(9), vec![host("a", Some(2)), host("b", Some(2))]);
    let nodes = imagine(&spec, topology()).unwrap();
    let outcome = place(&nodes, &request(&spec).unwrap(), 0);
    let Some(Outcome::Refused(refused)) = reply(&nodes, &outcome, |_| Vec::new()).outcome else {
        panic!("{outcome:?}")
    };
    assert_eq!((refused.asked, refused.free), (Some(9), Some(4)));
    assert!(refused.text.starts_with("9 ranks requested, 4 slots free on 2 nodes"), "{}", refused.text);
    assert_eq!(refused.nodes.iter().map(|node| (&*node.name, node.slots)).collect::<Vec<_>>(), [("a", 2), ("b", 2)]);
    assert!(refused.fixes.iter().any(|fix| fix == "-n 4"), "{:?}", refused.fixes);
}

#[test]
fn a_requested_binding_is_required() {
    for (map_by, bind_to, required) in [
        ("", "", false),
        ("numa", "", false),
        ("slot:pe=2", "", true),
        ("pe-list=0,1", "", true),
        ("rankfile", "", true),
        ("rankfile", "none", false),
        ("", "core", true),
        ("", "core:overload-allowed", true),
        ("", "core:if-supported", false),
        ("", "none", false),
    ] {
        let policy = Policy::from_texts(map_by, "", bind_to, "", "", 0).unwrap();
        assert_eq!(is_binding_required(&policy), required, "--map-by {map_by} --bind-to {bind_to}");
    }
}

#[test]
fn ranges_from_a_peer_are_limited_to_existing_threads() {
    let wild = [wire::Range { first: 2, count: u32::MAX }, wire::Range { first: u32::MAX, count: 9 }];
    assert_eq!(cpu_set(&wild, 5).to_string(), "2-4");
    assert_eq!(cpu_set(&ranges(&CpuSet::range(3..7)), 16), CpuSet::range(3..7));
}
