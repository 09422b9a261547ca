//! `rsctl help`, man pages, completions, and `rsd config show`.

use rsd_tests::{Call, Dvm, Options, built};

fn no_daemon() -> Dvm {
    Dvm::start_with(Options { nodes: 0, slots: 4, args: Vec::new() })
}

/// The completions that a real bash with the installed script proposes for the last word.
fn proposed(dvm: &Dvm, words: &[&str]) -> Vec<String> {
    const COMPLETE: &str = r#"
        . <(rsctl completion bash)
        COMP_WORDS=("$@"); COMP_CWORD=$(($# - 1)); COMP_LINE="$*"; COMP_POINT=${#COMP_LINE}; COMP_TYPE=9
        _clap_complete_rsctl rsctl "${COMP_WORDS[COMP_CWORD]}" "${COMP_WORDS[COMP_CWORD-1]}"
        printf '%s\n' "${COMPREPLY[@]}""#;
    let folder = built::rsctl().parent().expect("a program is in a folder").display().to_string();
    let path = format!("{folder}:{}", std::env::var("PATH").unwrap_or_default());
    let call = dvm.call("bash").env("PATH", path).args(["--norc", "-c", COMPLETE, "bash", "rsctl"]).args(words).end();
    assert_eq!(call.err(), "", "completion is silent");
    call.ok().lines().map(|line| line.trim().to_owned()).collect()
}

#[test]
fn a_topic_is_plain_text_when_piped_and_an_unknown_one_names_the_nearest() {
    let dvm = no_daemon();
    let text = dvm.ctl("help placement").ok();
    assert!(text.starts_with("placement: ") && !text.contains('\x1b'), "{text}");
    assert!(dvm.ctl("help").ok().contains("from-torchrun"));
    assert!(dvm.ctl("help group exec").ok().contains("Usage: rsctl group exec"));
    let said = dvm.ctl("help placment").fails(240);
    assert!(said.contains("did you mean placement?") && said.contains("troubleshooting"), "{said}");
}

#[test]
fn man_pages_of_commands_and_topics_are_written() {
    let dvm = no_daemon();
    let root = dvm.scratch().join("man");
    dvm.rsctl(["man".as_ref(), root.join("man1").as_os_str()]).ok();
    dvm.call(built::rsd()).args(["man".as_ref(), root.as_os_str()]).ok();
    for page in ["man1/rsctl-run.1", "man1/rsd-start.1", "man7/rsd-placement.7", "man7/rsd-from-slurm.7"] {
        assert!(root.join(page).is_file(), "{page}");
    }
}

#[test]
fn completions_know_mappings_and_topics_without_a_daemon_and_nodes_jobs_and_groups_with_one() {
    let without = no_daemon();
    assert_eq!(proposed(&without, &["run", "--map-by", "n"]), ["node", "numa"]);
    assert_eq!(proposed(&without, &["help", "from-m"]), ["from-mpirun"]);
    assert_eq!(proposed(&without, &["signal", "last", "US"]), ["USR1", "USR2"]);
    assert!(proposed(&without, &["run", "--host", "n"]).iter().all(|word| !word.starts_with("node")));
    let dvm = Dvm::start(2);
    dvm.ctl("run -n 1 true").ok();
    dvm.ctl("group create actors --size 2").ok();
    assert_eq!(proposed(&dvm, &["run", "--host", "node0,node"]), ["node0,node0", "node0,node1"]);
    assert_eq!(proposed(&dvm, &["job", "show", "1"]), ["1"]);
    assert_eq!(proposed(&dvm, &["group", "show", "a"]), ["actors"]);
}

#[test]
fn completions_of_zsh_and_fish_are_registered_and_answered() {
    let dvm = no_daemon();
    let script = dvm.ctl("completion zsh").ok();
    assert!(script.starts_with("#compdef rsctl\n") && script.contains("RSCTL_COMPLETE=\"zsh\""), "{script}");
    assert!(script.contains("compdef _clap_dynamic_completer_rsctl rsctl"), "{script}");
    let script = dvm.ctl("completion fish").ok();
    assert!(script.contains("complete ") && script.contains("--command rsctl"), "{script}");
    assert!(script.contains("RSCTL_COMPLETE=fish rsctl -- "), "{script}");
    // The calls that the scripts make.
    let typed = ["--", "rsctl", "run", "--map-by", "n"];
    let zsh = dvm.rsctl(typed).env("RSCTL_COMPLETE", "zsh").env("_CLAP_COMPLETE_INDEX", "3").env("_CLAP_IFS", "\n");
    assert_eq!(zsh.ok().lines().collect::<Vec<_>>(), ["node", "numa"]);
    let fish = dvm.rsctl(typed).env("RSCTL_COMPLETE", "fish");
    assert_eq!(fish.ok().lines().collect::<Vec<_>>(), ["node", "numa"]);
    for (shell, registered) in [("bash", "complete -F _rsd "), ("zsh", "#compdef rsd\n"), ("fish", "complete -c rsd ")]
    {
        let script = dvm.call(built::rsd()).args(["completion", shell]).ok();
        assert!(script.contains(registered) && script.contains("local-only"), "{shell}: {script}");
    }
    // A reader that stops early is no reason for a panic.
    let line = format!("{} completion zsh | head -n 1", built::rsd().display());
    let ended = dvm.call("sh").args(["-c", &line]).end();
    assert!(!ended.err().contains("panicked"), "{ended}");
}

#[test]
fn config_show_names_the_file_and_line_of_each_value() {
    let dvm = no_daemon();
    dvm.file("mine.toml", "[jobs]\nkeep = 7\n");
    let show =
        |args: &[&str]| -> Call { dvm.call(built::rsd()).dir(dvm.scratch()).args(["config", "show"]).args(args) };
    let line =
        |text: &str, key: &str| text.lines().find(|line| line.starts_with(key)).expect("every key is shown").to_owned();
    // A relative path, by option and by variable.
    for call in [show(&["--config", "mine.toml"]), show(&[]).env("RSD_CONFIG", "mine.toml")] {
        let text = call.ok();
        assert!(line(&text, "jobs.keep").ends_with("mine.toml:2"), "{text}");
        assert!(line(&text, "tree.arity").ends_with("built in"), "{text}");
    }
    let json: serde_json::Value = serde_json::from_str(&show(&["--config", "mine.toml", "--json"]).ok()).expect("JSON");
    let keep = json["settings"]
        .as_array()
        .expect("a list")
        .iter()
        .find(|it| it["key"] == "jobs.keep")
        .expect("every key is shown");
    assert_eq!((&keep["value"], &keep["line"]), (&"7".into(), &2.into()));
    show(&["--config", "nowhere.toml"]).end().err().contains("nowhere.toml").then_some(()).expect("the file is named");
    // The option is named even if the variable has the same value.
    let text = show(&["--log", "debug"]).env("RSD_LOG", "debug").env("RSD_LOG_FORMAT", "json").ok();
    assert!(line(&text, "log.level").ends_with(" --log"), "{text}");
    assert!(line(&text, "log.format").ends_with(" $RSD_LOG_FORMAT"), "{text}");
    assert!(line(&show(&["--log-format", "json"]).ok(), "log.format").ends_with(" --log-format"));
}

#[test]
fn errors_of_rsd_are_json_on_request() {
    let dvm = no_daemon();
    let missing = ["config", "show", "--json", "--config", "nowhere.toml"];
    for (line, code, word) in
        [(&missing[..], 240, "nowhere.toml"), (&["status", "--json", "--nosuch"], 240, "--nosuch")]
    {
        let ended = dvm.call(built::rsd()).dir(dvm.scratch()).args(line).end();
        assert_eq!((ended.out().as_str(), ended.status.code()), ("", Some(code)));
        let said: serde_json::Value = serde_json::from_str(&ended.err()).expect("JSON");
        assert_eq!(said["error"]["exit_code"], code, "{said}");
        assert_eq!(said["error"]["code"], "usage", "{said}");
        assert!(said["error"]["message"].as_str().is_some_and(|text| text.contains(word)), "{said}");
    }
}

#[test]
fn a_daemon_in_the_background_reads_a_relative_settings_file() {
    let dvm = no_daemon();
    dvm.file("mine.toml", "[jobs]\nkeep = 1\n");
    let rsd = |args: &[&str]| dvm.call(built::rsd()).dir(dvm.scratch()).args(args).ok();
    rsd(&["start", "--slots", "1", "--config", "mine.toml"]);
    dvm.ctl("run -n 1 true").ok();
    dvm.ctl("run -n 1 true").ok();
    let listed = dvm.ctl("ps -a").ok();
    rsd(&["stop"]);
    assert_eq!(listed.lines().count(), 2, "{listed}");
}
