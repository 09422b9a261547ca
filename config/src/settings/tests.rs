use std::collections::BTreeSet;

use super::*;

fn layer(path: &str, text: &str) -> Layer {
    Layer { path: path.into(), text: text.into() }
}

fn error(text: &str) -> String {
    Settings::from_layers(&[layer("/etc/rsd/rsd.toml", text)]).unwrap_err().to_string()
}

#[test]
fn the_built_in_file_has_exactly_the_known_keys() {
    let mut section = String::new();
    let mut found = Vec::new();
    for line in BUILT_IN.lines().filter(|line| !line.starts_with('#')) {
        if let Some(name) = line.strip_prefix('[').and_then(|line| line.strip_suffix(']')) {
            section = name.to_owned();
        } else if let Some((key, _)) = line.split_once(" = ") {
            found.push(format!("{section}.{key}"));
        }
    }
    assert_eq!(found, KEYS);
}

#[test]
fn the_defaults_come_from_the_built_in_file() {
    let settings = Settings::from_layers(&[]).unwrap();
    assert_eq!((settings.log.level.as_str(), settings.log.format), ("info", LogFormat::Text));
    assert_eq!(settings.tree.arity, 32);
    let seconds = Duration::from_secs;
    let link =
        Link { silence: seconds(10), reattach_grace: seconds(30), retry_max: seconds(2), dial_deadline: seconds(10) };
    assert_eq!(settings.link, link);
    assert_eq!(settings.step.orphan_deadline, seconds(600));
    let jobs = Jobs {
        keep: 1000,
        keep_for: seconds(90 * 86_400),
        keep_bytes: 64 << 30,
        kill_grace: seconds(5),
        log_max: 1 << 30,
        logs_max: Space::Percent(10),
        resources: Vec::new(),
    };
    assert_eq!(settings.jobs, jobs);
    assert_eq!(settings.output, Output { window: 1 << 20, line_max: 256 << 10 });
}

#[test]
fn a_later_layer_wins_key_by_key() {
    let settings = Settings::from_layers(&[
        layer("a", "tree.arity = 2\n[log]\nlevel = \"debug\"\nformat = \"json\"\n"),
        layer("b", "[log]\nlevel = \"warn\"\n[tree]\n"),
    ]);
    let settings = settings.unwrap();
    assert_eq!((settings.log.level.as_str(), settings.log.format), ("warn", LogFormat::Json));
    assert_eq!((settings.tree.arity, settings.jobs.keep), (2, 1000));
}

#[test]
fn a_mistake_names_file_line_key_and_accepted_values() {
    let vectors = [
        ("\n[link]\nretry = \"2s\"", "3: unknown setting link.retry; did you mean link.retry_max?"),
        ("[jobs]\nkepp = 3", "2: unknown setting jobs.kepp; did you mean jobs.keep?"),
        ("arity = 3", "1: unknown setting arity; did you mean tree.arity?"),
        ("log = 3", "1: log must be a section of keys, not 3"),
        ("[outptu]\nwindow = \"1MiB\"", "1: unknown setting outptu; did you mean output?"),
        ("[tree]\n\narity = 0", "3: tree.arity must be a whole number from 1 up, not 0"),
        ("tree.arity = \"many\"", "1: tree.arity must be a whole number from 1 up, not \"many\""),
        ("tree.arity = -1", "1: tree.arity must be a whole number from 1 up, not -1"),
        ("link.retry_max = 2", "1: link.retry_max must be a duration such as \"10s\", not 2"),
        ("output.window = \"1M\"", "1: output.window must be a size such as \"256KiB\", not \"1M\""),
        ("log.format = \"xml\"", "1: log.format must be \"text\" or \"json\", not \"xml\""),
        ("log.level = \"\"", "1: log.level must be a text such as \"info\", not \"\""),
    ];
    for (text, expected) in vectors {
        assert_eq!(error(text), format!("/etc/rsd/rsd.toml:{expected}"), "{text:?}");
    }
    assert!(error("[log]\nlevel = ").starts_with("cannot read the settings in /etc/rsd/rsd.toml:2: "));
    assert!(error("colour = \"green\"").contains("the settings are log.level, log.format, tree.arity"));
}

#[test]
fn the_environment_determines_which_files_are_read() {
    let paths = |pairs: &[(&str, &str)]| {
        let files =
            layer_files(None, |name| pairs.iter().find(|(known, _)| *known == name).map(|(_, value)| value.into()));
        files.into_iter().map(|file| (file.path.display().to_string(), file.required)).collect::<Vec<_>>()
    };
    let file = |path: &str, required| (path.to_owned(), required);
    let system = file("/etc/rsd/rsd.toml", false);
    assert_eq!(paths(&[]), std::slice::from_ref(&system));
    assert_eq!(
        paths(&[("HOME", "/home/u"), ("XDG_CONFIG_HOME", ""), ("RSD_CONFIG", "my.toml")]),
        [system.clone(), file("/home/u/.config/rsd/rsd.toml", false), file("my.toml", true)]
    );
    assert_eq!(
        paths(&[("HOME", "/home/u"), ("XDG_CONFIG_HOME", "/c"), ("RSD_CONFIG", "")]),
        [system, file("/c/rsd/rsd.toml", false)]
    );
}

#[test]
fn a_settings_file_that_the_user_names_must_exist() {
    let load = |path: &str| {
        let path = path.to_owned();
        Settings::load(move |name| (name == "RSD_CONFIG").then(|| path.clone().into()))
    };
    let missing = load("/nowhere/rsd.toml").unwrap_err();
    assert_eq!(missing.to_string(), "cannot read the settings in /nowhere/rsd.toml");
    assert!(matches!(missing, SettingsError::Unreadable { source, .. } if source.kind() == io::ErrorKind::NotFound));
    let built_in = concat!(env!("CARGO_MANIFEST_DIR"), "/rsd.toml");
    assert_eq!(load(built_in).unwrap(), Settings::from_layers(&[]).unwrap());
}

#[test]
fn every_section_is_listed() {
    let sections: BTreeSet<&str> = sections().collect();
    let expected = ["head", "jobs", "link", "log", "network", "node", "output", "standby", "step", "tree", "users"];
    assert_eq!(sections.into_iter().collect::<Vec<_>>(), expected);
}

#[test]
fn every_value_names_its_source() {
    let loaded = Loaded::from_layers(&[
        layer("a", "[jobs]\nkeep = 7\nkill_grace = \"1s\"\n"),
        layer("b", "\n\njobs.keep = 8\n"),
    ]);
    let mut loaded = loaded.unwrap();
    loaded.set_text("log.level", "debug", Source::Option("--log"));
    let shown = |key: &str| {
        let value = loaded.values.iter().find(|known| known.key == key).unwrap();
        format!("{} {}", value.value, value.source)
    };
    assert_eq!(shown("jobs.keep"), "8 b:3");
    assert_eq!(shown("jobs.kill_grace"), "\"1s\" a:3");
    assert_eq!(shown("tree.arity"), "32 built in");
    assert_eq!(shown("log.level"), "\"debug\" --log");
    assert_eq!(loaded.values.iter().map(|value| value.key).collect::<Vec<_>>(), KEYS);
}

#[test]
fn a_file_named_by_an_option_replaces_the_one_of_the_variable() {
    let files = layer_files(Some("mine.toml".as_ref()), |name| (name == "RSD_CONFIG").then(|| "other.toml".into()));
    let last = files.last().unwrap();
    assert_eq!((last.path.to_str(), last.required), (Some("mine.toml"), true));
}
