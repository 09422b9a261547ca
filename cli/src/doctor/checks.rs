//! What is wrong with nodes and with the ways between them, and how to mend it: pure.

use rsd_proto::v1::NodeInfo;

use super::Examined;
use super::node::{Looked, Reached};
use crate::print;

/// Below these, programs with many ranks fail or are slow.
const NOFILE_MIN: u64 = 4096;
const NPROC_MIN: u64 = 4096;
const SHM_MIN: u64 = 256 << 20;
const SHM_FREE_MIN: u64 = 64 << 20;
/// Slower than this is a fault, not a slow network.
const RTT_MAX_US: u64 = 20_000;
const BANDWIDTH_MIN: u64 = 10 << 20;
/// Clocks that differ by more confuse people; by more than the second one, certificates.
const SKEW_WARNING_MS: u64 = 500;
const SKEW_ERROR_MS: u64 = 60_000;

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Level {
    Warning,
    Error,
}

/// Something that is wrong, and the line that mends it.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Finding {
    pub(super) level: Level,
    /// A word for programs.
    pub(super) check: &'static str,
    pub(super) node: String,
    /// The other node, for a way between two.
    pub(super) other: Option<String>,
    pub(super) text: String,
    pub(super) mend: String,
}

/// Everything that was found.
#[derive(Debug, Default)]
pub(super) struct Report {
    /// By rank: names and what they have.
    pub(super) nodes: Vec<(String, String, Option<Looked>)>,
    pub(super) ways: Vec<(String, String, Reached)>,
    /// The worst first.
    pub(super) findings: Vec<Finding>,
}

impl Report {
    /// 0: all is well; 1: warnings; 2: errors.
    pub(super) fn exit_code(&self) -> u8 {
        match self.findings.iter().map(|finding| finding.level).max() {
            None => 0,
            Some(Level::Warning) => 1,
            Some(Level::Error) => 2,
        }
    }
}

/// Judges what came back. `absent`: nodes that could not be examined.
pub(super) fn report(examined: &[Examined], absent: &[NodeInfo], mut reached: Vec<Reached>) -> Report {
    let mut findings = Vec::new();
    for info in absent {
        let (level, text, mend) = match info.drained {
            true => (Level::Warning, "it is drained, and was not examined", format!("rsctl node resume {}", info.name)),
            false => (
                Level::Error,
                "its link is cut",
                format!("start its daemon there (rsd start --join …), or: rsctl node remove {}", info.name),
            ),
        };
        findings.push(Finding {
            level,
            check: "link",
            node: info.name.clone(),
            other: None,
            text: text.to_owned(),
            mend,
        });
    }
    let newest = examined.iter().map(|node| node.info.version.as_str()).max().unwrap_or_default();
    for node in examined {
        check_node(node, newest, &mut findings);
    }
    let name =
        |rank: u32| examined.get(rank as usize).map_or_else(|| format!("rank {rank}"), |node| node.info.name.clone());
    reached.sort_by_key(|way| (way.from, way.to));
    for way in &reached {
        let back = reached.iter().any(|other| (other.from, other.to) == (way.to, way.from) && other.error.is_empty());
        let to = examined.get(way.to as usize);
        check_way(way, back, (name(way.from), name(way.to)), to, &mut findings);
    }
    check_clocks(&reached, name, &mut findings);
    check_mtus(examined, &mut findings);
    findings.sort_by(|a, b| {
        b.level.cmp(&a.level).then_with(|| (&a.node, &a.other, a.check).cmp(&(&b.node, &b.other, b.check)))
    });
    let nodes = examined.iter().map(|node| (node.info.name.clone(), node.info.version.clone(), node.looked.clone()));
    let ways = reached.into_iter().map(|way| (name(way.from), name(way.to), way));
    Report { nodes: nodes.collect(), ways: ways.collect(), findings }
}

fn check_node(node: &Examined, newest: &str, findings: &mut Vec<Finding>) {
    let info = &node.info;
    let mut found = |level, check, text: String, mend: &str| {
        let (node, mend) = (info.name.clone(), mend.replace("NODE", &info.name));
        findings.push(Finding { level, check, node, other: None, text, mend });
    };
    if info.version != newest {
        let text = format!("its daemon is rsd {}, others are rsd {newest}", info.version);
        found(
            Level::Warning,
            "version",
            text,
            "install the newer release on NODE and restart its daemon: its ranks keep running",
        );
    }
    let Some(looked) = &node.looked else {
        let why = if node.failed.is_empty() { "it did not answer in time" } else { &node.failed };
        let text = format!("rsctl cannot run there: {why}");
        return found(
            Level::Error,
            "program",
            text,
            "install rsctl on NODE at the same path as here, or look at: rsctl waits",
        );
    };
    let few = |limit: Option<u64>, least: u64| limit.filter(|limit| *limit < least);
    if let Some(files) = few(looked.nofile, NOFILE_MIN) {
        let text = format!("ranks may open {files} files");
        found(
            Level::Warning,
            "nofile",
            text,
            "on NODE: ulimit -n 4096 before rsd start, or LimitNOFILE=65536 in rsd.service",
        );
    }
    if let Some(processes) = few(looked.nproc, NPROC_MIN) {
        let text = format!("your user may have {processes} processes and threads");
        found(
            Level::Warning,
            "nproc",
            text,
            "on NODE: ulimit -u unlimited before rsd start, or LimitNPROC=infinity in rsd.service",
        );
    }
    if let (true, Some(bytes)) = (looked.rdma, looked.memlock_bytes) {
        let text = format!("it has RDMA devices, and programs may lock only {} of memory", print::bytes(bytes));
        found(
            Level::Error,
            "memlock",
            text,
            "on NODE: ulimit -l unlimited before rsd start, or LimitMEMLOCK=infinity in rsd.service",
        );
    }
    if looked.shm_bytes < SHM_MIN {
        let text = format!("/dev/shm has {}", print::bytes(looked.shm_bytes));
        found(
            Level::Warning,
            "shm",
            text,
            "on NODE: mount -o remount,size=50% /dev/shm; for a container: --shm-size=1g",
        );
    } else if looked.shm_free_bytes < SHM_FREE_MIN {
        let text = format!(
            "/dev/shm has only {} left of {}",
            print::bytes(looked.shm_free_bytes),
            print::bytes(looked.shm_bytes)
        );
        found(
            Level::Warning,
            "shm",
            text,
            "on NODE: ls -l /dev/shm shows the files; remove those of programs that have ended",
        );
    }
    if let Some(scope @ 1..) = looked.ptrace_scope
        && !looked.xpmem
        && !looked.knem
    {
        let text = format!(
            "ranks cannot read each other's memory (ptrace_scope is {scope}), so long messages on the node are copied twice"
        );
        found(Level::Warning, "cma", text, "on NODE: sysctl -w kernel.yama.ptrace_scope=0");
    }
    if looked.nvidia_gpus > 0 && looked.nvidia_driver.is_empty() {
        let text = format!("it has {} NVIDIA GPUs, and no driver is loaded", looked.nvidia_gpus);
        found(Level::Error, "gpu", text, "on NODE: modprobe nvidia");
    }
    if looked.hugepages > 0 && looked.hugepages_free == 0 {
        let text = format!("all of its {} huge pages are in use", looked.hugepages);
        found(Level::Warning, "hugepages", text, "on NODE: sysctl -w vm.nr_hugepages=N with a larger N");
    }
}

/// Judges a way from a node to another one. `back`: whether the other direction works.
fn check_way(
    way: &Reached,
    back: bool,
    (from, to): (String, String),
    node: Option<&Examined>,
    findings: &mut Vec<Finding>,
) {
    let mut found = |level, check, text: String, mend: String| {
        findings.push(Finding { level, check, node: from.clone(), other: Some(to.clone()), text, mend });
    };
    if !way.error.is_empty() && !way.host.is_empty() {
        let text = format!("{}: small packets pass, and large ones or answers do not", way.error);
        let mend = format!(
            "give both the MTU of the network between them (ip link set dev IF mtu 1400 on {to} shows whether it is that), and let \
             ICMP \"fragmentation needed\" pass"
        );
        return found(Level::Error, "mtu", text, mend);
    }
    if !way.error.is_empty() {
        // Behind a router: its ranks dial the others.
        let dials_out = node.is_some_and(|node| node.info.reached.as_deref() == Some(""));
        let (level, note) = match (dials_out, back) {
            (true, true) => (Level::Warning, "; the other direction works, and ranks with rsd's MPI library use that"),
            (false, true) => (Level::Error, "; the other direction works"),
            (_, false) => (Level::Error, ""),
        };
        let mend = format!("open the ports of {to} for {from}: rsctl ports --emit nftables");
        return found(level, "reach", format!("cannot connect: {}{note}", way.error), mend);
    }
    if let Some(us @ RTT_MAX_US..) = way.rtt_us {
        let text = format!("a message and its answer take {} ms", us / 1000);
        found(
            Level::Warning,
            "latency",
            text,
            format!("look for a busy node or a detour: ping {}; traceroute {}", way.host, way.host),
        );
    }
    if let Some(rate) = way.bytes_per_second.filter(|rate| *rate < BANDWIDTH_MIN) {
        let text = format!("only {}/s pass", print::bytes(rate));
        let mend = format!("look at the link of {to} (ethtool IF: Speed, Duplex) and at who else uses it");
        found(Level::Warning, "bandwidth", text, mend);
    }
}

/// Judges the clocks: one finding for each node whose clock differs from that of the first node that has reached it.
fn check_clocks(reached: &[Reached], name: impl Fn(u32) -> String, findings: &mut Vec<Finding>) {
    let mut judged = std::collections::BTreeSet::new();
    for way in reached {
        let (Some(ahead), Some(rtt)) = (way.ahead_ms, way.rtt_us) else { continue };
        let off = ahead.unsigned_abs().saturating_sub(rtt / 1000 + 1);
        if off < SKEW_WARNING_MS || judged.contains(&way.from) || !judged.insert(way.to) {
            continue;
        }
        let level = if off < SKEW_ERROR_MS { Level::Warning } else { Level::Error };
        let (node, other) = (name(way.to), name(way.from));
        let side = if ahead > 0 { "ahead of" } else { "behind" };
        let text = format!("its clock is {} {side} that of {other}", print::duration(ahead.unsigned_abs()));
        let mend = format!("on {node} and {other}: timedatectl set-ntp true");
        findings.push(Finding { level, check: "clock", node, other: None, text, mend });
    }
}

/// Judges the MTUs of the interfaces through which nodes are reached: all should have the same.
fn check_mtus(examined: &[Examined], findings: &mut Vec<Finding>) {
    let mtu_of = |node: &Examined| {
        let address = node.info.inventory.as_ref()?.addresses.first()?;
        let looked = node.looked.as_ref()?;
        let (name, mtu) = looked.mtus.iter().find(|(name, _)| *name == address.interface)?;
        Some((node.info.name.clone(), name.clone(), *mtu))
    };
    let mtus: Vec<_> = examined.iter().filter_map(mtu_of).collect();
    let Some(largest) = mtus.iter().map(|(.., mtu)| *mtu).max() else { return };
    for (node, interface, mtu) in mtus.into_iter().filter(|(.., mtu)| *mtu < largest) {
        let text = format!("the MTU of {interface} is {mtu}, that of other nodes is {largest}");
        let mend = format!(
            "on {node}: ip link set dev {interface} mtu {largest}, if its network allows that; else {mtu} on the others"
        );
        findings.push(Finding { level: Level::Warning, check: "mtu", node, other: None, text, mend });
    }
}

#[cfg(test)]
pub(super) mod tests {
    use rsd_proto::v1::{Inventory, NodeAddress};

    use super::*;

    pub(in super::super) fn healthy() -> Looked {
        Looked {
            port: 7000,
            shm_bytes: 8 << 30,
            shm_free_bytes: 8 << 30,
            mtus: vec![("eth0".into(), 1500)],
            ..Looked::default()
        }
    }

    pub(in super::super) fn node(name: &str, looked: Option<Looked>) -> Examined {
        let addresses = vec![NodeAddress { host: "10.0.0.1".into(), interface: "eth0".into() }];
        let inventory = Some(Inventory { addresses, ..Inventory::default() });
        let info = NodeInfo { name: name.into(), version: "0.2.0".into(), inventory, ..NodeInfo::default() };
        Examined { info, looked, ..Examined::default() }
    }

    pub(in super::super) fn way(from: u32, to: u32) -> Reached {
        let (rtt_us, bytes_per_second, ahead_ms) = (Some(100), Some(1 << 30), Some(0));
        Reached { from, to, host: "10.0.0.1".into(), error: String::new(), rtt_us, bytes_per_second, ahead_ms }
    }

    fn found(examined: &[Examined], reached: Vec<Reached>) -> Vec<(Level, &'static str, String)> {
        let report = report(examined, &[], reached);
        for finding in &report.findings {
            assert!(!finding.mend.is_empty() && !finding.mend.contains("NODE"), "{finding:?}");
        }
        let who = |finding: &Finding| match &finding.other {
            Some(other) => format!("{}>{other}", finding.node),
            None => finding.node.clone(),
        };
        report.findings.iter().map(|finding| (finding.level, finding.check, who(finding))).collect()
    }

    #[test]
    fn a_healthy_dvm_has_no_findings() {
        let nodes = [node("a", Some(healthy())), node("b", Some(healthy()))];
        let report = report(&nodes, &[], vec![way(1, 0), way(0, 1)]);
        assert_eq!((report.findings.len(), report.exit_code(), report.ways.len()), (0, 0, 2));
    }

    /// A check, how bad its fault is, and what makes the fault.
    type Fault = (&'static str, Level, fn(&mut Looked));

    #[test]
    fn each_fault_of_a_node_is_found() {
        let faults: [Fault; 8] = [
            ("nofile", Level::Warning, |it| it.nofile = Some(1024)),
            ("nproc", Level::Warning, |it| it.nproc = Some(100)),
            ("memlock", Level::Error, |it| (it.rdma, it.memlock_bytes) = (true, Some(65_536))),
            ("shm", Level::Warning, |it| it.shm_bytes = 64 << 20),
            ("shm", Level::Warning, |it| it.shm_free_bytes = 1),
            ("cma", Level::Warning, |it| it.ptrace_scope = Some(1)),
            ("gpu", Level::Error, |it| it.nvidia_gpus = 8),
            ("hugepages", Level::Warning, |it| it.hugepages = 4),
        ];
        for (check, level, fault) in faults {
            let mut looked = healthy();
            fault(&mut looked);
            assert_eq!(found(&[node("a", Some(looked))], Vec::new()), [(level, check, "a".to_owned())]);
        }
        assert_eq!(found(&[node("a", None)], Vec::new()), [(Level::Error, "program", "a".to_owned())]);
        let mut old = node("a", Some(healthy()));
        old.info.version = "0.1.0".into();
        assert_eq!(
            found(&[old, node("b", Some(healthy()))], Vec::new()),
            [(Level::Warning, "version", "a".to_owned())]
        );
        let mut small = healthy();
        small.mtus = vec![("eth0".into(), 1400)];
        let nodes = [node("a", Some(healthy())), node("b", Some(small))];
        assert_eq!(found(&nodes, Vec::new()), [(Level::Warning, "mtu", "b".to_owned())]);
    }

    #[test]
    fn each_fault_of_a_way_is_found_and_the_worst_comes_first() {
        let nodes = [node("a", Some(healthy())), node("b", Some(healthy()))];
        let refused = Reached {
            host: String::new(),
            error: "10.0.0.1: refused".into(),
            ..Reached { from: 0, to: 1, ..Reached::default() }
        };
        let slow = Reached { rtt_us: Some(80_000), bytes_per_second: Some(1000), ..way(1, 0) };
        let (error, warning) = (Level::Error, Level::Warning);
        let expected = [
            (error, "reach", "a>b".to_owned()),
            (warning, "bandwidth", "b>a".into()),
            (warning, "latency", "b>a".into()),
        ];
        assert_eq!(found(&nodes, vec![slow, refused.clone()]), expected);
        let stuck = Reached {
            error: "nothing answers".into(),
            rtt_us: None,
            bytes_per_second: None,
            ahead_ms: None,
            ..way(0, 1)
        };
        assert_eq!(found(&nodes, vec![stuck]), [(error, "mtu", "a>b".to_owned())]);
        let late = Reached { ahead_ms: Some(-90_000), ..way(0, 1) };
        let early = Reached { ahead_ms: Some(90_000), ..way(1, 0) };
        assert_eq!(found(&nodes, vec![late, early]), [(error, "clock", "b".to_owned())]);
        let mut hidden = node("b", Some(healthy()));
        hidden.info.reached = Some(String::new());
        let nodes = [node("a", Some(healthy())), hidden];
        assert_eq!(found(&nodes, vec![refused, way(1, 0)]), [(warning, "reach", "a>b".to_owned())]);
    }

    #[test]
    fn nodes_that_cannot_be_examined_are_named() {
        let away = NodeInfo { name: "c".into(), ..NodeInfo::default() };
        let drained = NodeInfo { name: "d".into(), drained: true, ..NodeInfo::default() };
        let report = report(&[], &[drained, away], Vec::new());
        let seen: Vec<_> = report.findings.iter().map(|finding| (finding.level, finding.node.as_str())).collect();
        assert_eq!((seen, report.exit_code()), (vec![(Level::Error, "c"), (Level::Warning, "d")], 2));
    }
}
