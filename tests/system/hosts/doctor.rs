//! `rsctl doctor` finds what is wrong with a network between hosts.

use std::time::Duration;

use rsd_tests::eventually;
use rsd_tests::hosts::{Cable, Cluster, Family, Plan};
use serde_json::Value;

#[test]
fn the_doctor_finds_a_firewall_a_small_mtu_and_a_slow_cable() {
    let slow = Cable { delay: Duration::from_millis(30), loss_per_mille: 0, kbit_per_s: 0 };
    let names = ["head", "a", "b"];
    let Some(network) = Plan::of(&names).only(Family::V4).cable("b", slow).start() else { return };
    let cluster = Cluster::on(network, &names, 4, "");
    let report = || -> (Option<i32>, Value) {
        let ended = cluster.ctl("doctor --json").end();
        (ended.status.code(), serde_json::from_str(&ended.out()).unwrap_or_else(|error| panic!("{error}: {ended}")))
    };
    let found = |report: &Value, check: &str| -> Vec<String> {
        let findings = report["findings"].as_array().unwrap().iter().filter(|finding| finding["check"] == check);
        let line = |finding: &Value| {
            let word = |field: &str| finding[field].as_str().unwrap_or("-").to_owned();
            format!("{} {} {}", word("level"), word("node"), word("other"))
        };
        findings.map(line).collect()
    };
    let (_, before) = report();
    assert_eq!((found(&before, "reach"), found(&before, "mtu")), (Vec::new(), Vec::new()), "{before}");
    assert_eq!(found(&before, "latency"), ["warning a b", "warning b a", "warning b head", "warning head b"]);

    let (a, b) = (cluster.host("a"), cluster.host("b"));
    a.nft(&format!(
        "table inet blocked {{
            chain in {{
                type filter hook input priority filter;
                ip saddr {} tcp flags & (syn | ack) == syn drop
            }}
        }}",
        b.address()
    ));
    let interface = cluster.json("nodes")["nodes"][2]["addresses"][0]["interface"].as_str().unwrap().to_owned();
    b.sh(&format!("ip link set dev {interface} mtu 1400")).ok();
    let (code, after) = report();
    assert_eq!(code, Some(2), "{after}");
    assert_eq!(found(&after, "reach"), ["error b a"], "{after}");
    assert_eq!(found(&after, "mtu"), ["warning b -"], "{after}");
    let first = &after["findings"][0];
    assert!(first["text"].as_str().unwrap().ends_with("nothing answers in time; the other direction works"), "{first}");
    assert_eq!(first["mend"], "open the ports of a for b: rsctl ports --emit nftables");

    // Large packets of connections that are older than the small MTU are lost, so b may not know yet that the job is over.
    b.sh(&format!("ip link set dev {interface} mtu 1500")).ok();
    eventually("b's step has ended", Duration::from_secs(60), || {
        let status: Value = serde_json::from_str(&b.call("rsd").args(["status", "--json"]).ok()).ok()?;
        (status["jobs"] == 0).then_some(())
    });
}
