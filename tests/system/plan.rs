//! `rsctl plan`: where a job would run, on running nodes and on described machines.

use rsd_tests::{Call, Dvm, Options};
use serde_json::{Value, json};

/// Returns a directory without daemons.
fn no_daemon() -> Dvm {
    Dvm::start_with(Options { nodes: 0, slots: 0, args: Vec::new() })
}

/// `rsctl` with the words of a line, split as a shell does.
fn shell(dvm: &Dvm, line: &str) -> Call {
    let (mut words, mut word, mut quoted) = (Vec::new(), String::new(), false);
    for c in line.chars().chain([' ']) {
        match c {
            '\'' => quoted = !quoted,
            ' ' if !quoted => words.extend(Some(std::mem::take(&mut word)).filter(|word| !word.is_empty())),
            c => word.push(c),
        }
    }
    dvm.rsctl(words.iter().skip_while(|word| *word == "rsctl"))
}

fn read(text: &str) -> Value {
    serde_json::from_str(text).unwrap_or_else(|error| panic!("{error} in {text}"))
}

/// The node and cores of each rank.
fn places(plan: &Value) -> Vec<(String, Vec<u64>)> {
    let ranks = plan["ranks"].as_array().unwrap_or_else(|| panic!("no ranks in {plan}"));
    let numbers = |value: &Value| value.as_array().expect("a list").iter().filter_map(Value::as_u64).collect();
    ranks.iter().map(|rank| (rank["node"].as_str().expect("a name").to_owned(), numbers(&rank["cores"]))).collect()
}

/// Runs the examples of `rsctl plan --help`: lines that begin with `$` are commands, and the lines below are their output, in this
/// order; `...` stands for any lines.
#[test]
fn the_examples_in_the_help_of_plan_print_what_they_show() {
    let dvm = no_daemon();
    let help = dvm.rsctl(["plan", "--help"]).ok();
    let mut examples = 0;
    let mut lines = help.lines().peekable();
    while let Some(line) = lines.next() {
        let Some(command) = line.trim_start().strip_prefix("$ ") else { continue };
        let indent = line.len() - line.trim_start().len();
        let ended = shell(&dvm, command).end();
        let printed = format!("{}{}", String::from_utf8_lossy(&ended.stdout), String::from_utf8_lossy(&ended.stderr));
        let mut rest = printed.lines();
        let (mut shown, mut gap) = (0, true);
        while let Some(line) = lines.next_if(|line| !line.trim().is_empty()) {
            let line = line.get(indent..).unwrap_or_default().trim_end();
            if line == "..." {
                gap = true;
                continue;
            }
            let found = if gap { rest.any(|printed| printed == line) } else { rest.next() == Some(line) };
            assert!(found, "`{command}` does not print {line:?} there, but:\n{printed}");
            (shown, gap) = (shown + 1, false);
        }
        assert!(shown > 0, "`{command}` shows nothing");
        examples += 1;
    }
    assert!(examples >= 8, "{examples} examples in:\n{help}");
}

#[test]
fn the_plan_in_the_manual_is_the_real_output() {
    let topic = include_str!("../../cli/topics/placement.md");
    let (_, rest) = topic.split_once("\nrsctl plan ").expect("the topic shows a plan");
    let (command, rest) = rest.split_once("\n```\n\n```text\n").expect("the topic shows its output");
    let (printed, _) = rest.split_once("```").expect("the output ends");
    assert_eq!(shell(&no_daemon(), &format!("rsctl plan {command}")).ok(), printed);
}

#[test]
fn a_plan_needs_no_daemon_and_no_hosts() {
    let dvm = no_daemon();
    let plan = shell(&dvm, "rsctl plan --topology 'pack:2 core:4 pu:2' --bind-to core -n 4 --json").ok();
    let plan = read(&plan);
    let core = |core: u64| ("node0".to_owned(), vec![core]);
    assert_eq!(places(&plan), [core(0), core(1), core(2), core(3)]);
    assert_eq!(plan["ranks"][3]["pus"], json!([6, 7]));
    assert_eq!((&plan["nodes"][0]["cores"], &plan["nodes"][0]["pus"]), (&json!(8), &json!(16)));
    let two = shell(&dvm, "rsctl plan --topology 'core:2 pu:1' --host a:2,b:2 -n 3 --bind-to none --json").ok();
    let unbound = |node: &str| (node.to_owned(), Vec::new());
    assert_eq!(places(&read(&two)), [unbound("a"), unbound("a"), unbound("b")]);
}

#[test]
fn an_xml_file_is_a_topology_too() {
    let dvm = no_daemon();
    let cores: String = (0..4)
        .map(|at| {
            let bit = format!("0x{:08x}", 1 << at);
            let sets = format!("cpuset=\"{bit}\" complete_cpuset=\"{bit}\" nodeset=\"0x1\" complete_nodeset=\"0x1\"");
            format!(
                "<object type=\"Core\" os_index=\"{at}\" {sets} gp_index=\"{}\">\
                 <object type=\"PU\" os_index=\"{at}\" {sets} gp_index=\"{}\"/></object>",
                10 + at,
                20 + at
            )
        })
        .collect();
    let sets = "cpuset=\"0xf\" complete_cpuset=\"0xf\" nodeset=\"0x1\" complete_nodeset=\"0x1\"";
    let xml = format!(
        "<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n<!DOCTYPE topology SYSTEM \"hwloc2.dtd\">\n\
         <topology version=\"2.0\"><object type=\"Machine\" os_index=\"0\" {sets} allowed_cpuset=\"0xf\" \
         allowed_nodeset=\"0x1\" gp_index=\"1\"><object type=\"NUMANode\" os_index=\"0\" {sets} gp_index=\"2\" \
         local_memory=\"1073741824\"/><object type=\"Package\" os_index=\"0\" {sets} gp_index=\"3\">{cores}</object>\
         </object></topology>\n"
    );
    dvm.file("four.xml", xml);
    let plan = read(&shell(&dvm, "rsctl plan --topology four.xml --bind-to core --json").ok());
    let core = |core: u64| ("node0".to_owned(), vec![core]);
    assert_eq!(places(&plan), [core(0), core(1), core(2), core(3)]);
    assert!(shell(&dvm, "rsctl plan --topology five.xml").fails(240).contains("cannot read five.xml"));
}

#[test]
fn an_invalid_topology_is_a_usage_error() {
    let dvm = no_daemon();
    let said = shell(&dvm, "rsctl plan --topology 'pack:two' -n 1").fails(240);
    assert!(said.contains("pack:2"), "{said}");
    let said = shell(&dvm, "rsctl plan --topology 'core:2 pu:1' --host +n1 -n 1").fails(240);
    assert!(said.contains("+n1"), "{said}");
}

#[test]
fn plan_refuses_what_run_refuses() {
    let dvm = Dvm::start(2);
    let planned = dvm.ctl("plan -n 9 true").fails(243);
    assert_eq!(planned, dvm.ctl("run -n 9 true").fails(243));
    let ended = dvm.ctl("plan -n 9 --json true").end();
    assert_eq!(ended.status.code(), Some(243));
    let refused = &read(&String::from_utf8_lossy(&ended.stdout))["refused"];
    assert_eq!((&refused["asked"], &refused["free"]), (&json!(9), &json!(8)));
    assert_eq!(format!("rsctl: {}\n", refused["text"].as_str().expect("a text")), planned);
}

#[test]
fn ranks_run_where_the_plan_puts_them() {
    let dvm = Dvm::start(2);
    for options in ["-n 5", "-n 5 --map-by node", "-n 10 --oversubscribe", "-n 2 --host node1:1,node0:1"] {
        let plan = read(&dvm.ctl(&format!("plan {options} --json")).ok());
        let printed =
            dvm.rsctl(["run"]).args(options.split(' ')).args(["sh", "-c", "echo $RSD_RANK $RSD_NODE_NAME"]).ok();
        let mut ran: Vec<(u32, &str)> = printed
            .lines()
            .filter_map(|line| line.split_once(' '))
            .filter_map(|(r, n)| Some((r.parse().ok()?, n)))
            .collect();
        ran.sort_unstable();
        let planned = places(&plan);
        let planned: Vec<(u32, &str)> = (0..).zip(planned.iter().map(|(node, _)| &**node)).collect();
        assert_eq!(ran, planned, "{options}");
        // The command in full places the ranks in the same way.
        let full = plan["command"].as_str().expect("a command").replace("rsctl run", "rsctl plan --json");
        assert_eq!(places(&read(&shell(&dvm, &full.replace("PROGRAM", "true")).ok())), places(&plan), "{full}");
    }
}

#[test]
fn the_command_in_full_gives_the_same_placement() {
    let dvm = no_daemon();
    dvm.file("hosts", "b slots=3\na slots=4\n");
    dvm.file("ranks", "rank 1=a slot=0-1\nrank 0=b slot=3\n");
    let options = [
        "",
        "-n 3",
        "-n 3 --map-by node --host a:4,b:4",
        "--map-by package --hostfile hosts",
        "-n 5 --map-by package:span --rank-by fill --host a,b",
        "--map-by ppr:2:package --bind-to package:overload-allowed",
        "--map-by slot:pe=3",
        "--map-by slot:hwtcpus",
        "-n 20 --oversubscribe",
        "--map-by pe-list=0,2,5:ordered",
        "--map-by seq --hostfile hosts",
        "--map-by seq:file=hosts",
        "--rankfile ranks",
        "-n 3 --bind-to hwthread --rank-by node --host a:2,b:2",
        "-n 12 --compat openmpi5 --host a:8,b:8",
        "-n 5 --compat hydra --host a:2,b:2",
        "-n 2 --host a : -n 3 --host b,a",
    ];
    for options in options {
        let plan = |options: &str| {
            let line = format!("rsctl plan --json --topology 'pack:2 core:4 pu:2' {options}");
            read(&shell(&dvm, &line).ok())
        };
        let first = plan(options);
        let command = first["command"].as_str().expect("a command").to_owned();
        let full = command.strip_prefix("rsctl run ").unwrap_or_else(|| panic!("{command}"));
        assert_eq!(first["ranks"], plan(full)["ranks"], "{options} in full: {command}");
    }
}

#[test]
fn a_plan_goes_around_other_jobs_unless_it_is_for_an_idle_dvm() {
    let dvm = Dvm::start(2);
    let job = dvm.submit(["-n", "3", "sleep", "1000"]);
    let nodes = |line: &str| places(&read(&dvm.ctl(line).ok())).into_iter().map(|(node, _)| node).collect::<Vec<_>>();
    assert_eq!(nodes("plan -n 2 --json"), ["node0", "node1"]);
    assert_eq!(nodes("plan -n 2 --idle --json"), ["node0", "node0"]);
    dvm.rsctl(["cancel", "--grace", "0", &job]).ok();
    dvm.rsctl(["wait", &job]).end();
}

#[test]
fn without_a_daemon_the_plan_is_for_this_machine() {
    let dvm = no_daemon();
    let ended = dvm.ctl("plan -n 1 --json true").end();
    assert_eq!(ended.status.code(), Some(0));
    assert_eq!(places(&read(&String::from_utf8_lossy(&ended.stdout))).len(), 1);
}

#[test]
fn ten_thousand_nodes_are_planned_quickly() {
    let dvm = no_daemon();
    let topology = "pack:2 numa:4 core:4 pu:1";
    let hosts = "node[0-9999]";
    let text = dvm.rsctl(["plan", "--topology", topology, "--host", hosts, "--bind-to", "core"]).ok();
    assert!(text.starts_with("320000 ranks on 10000 nodes\n"), "{}", &text[..200]);
    assert!(text.lines().count() < 80, "{text}");
    let json = dvm.rsctl(["plan", "--topology", topology, "--host", hosts, "--map-by", "node", "--json"]).ok();
    assert_eq!(json.matches("{\"rank\":").count(), 320_000);
}
