use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::time::Duration;

use super::*;

/// A home directory, which is removed with this value.
struct Home(Here);

impl Home {
    fn new(name: &str) -> Home {
        let home = std::env::temp_dir().join(format!("rsd-ssh-config-{name}-{}", std::process::id()));
        let _ = fs::remove_dir_all(&home);
        fs::create_dir_all(home.join(".ssh")).unwrap();
        let variable = |name: &str| (name == "WORK").then(|| "/work".to_owned());
        Home(Here { home, user: "me".into(), uid: geteuid().as_raw(), host: "desk.site".into(), variable })
    }

    /// Writes a file below `.ssh`; returns its path.
    fn file(&self, name: &str, text: &str) -> PathBuf {
        let path = self.0.home.join(".ssh").join(name);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(&path, text).unwrap();
        fs::set_permissions(&path, fs::Permissions::from_mode(0o600)).unwrap();
        path
    }

    fn config(&self, text: &str) -> Config {
        let path = self.file("config", text);
        Config::read(&self.0, Some(&path)).unwrap()
    }

    fn settings(&self, text: &str, host: &str) -> Settings {
        self.config(text).settings(&Wish { host: host.into(), ..Wish::default() }, &self.0).unwrap().0
    }

    fn mistake(&self, text: &str) -> String {
        let path = self.file("config", text);
        let read = Config::read(&self.0, Some(&path));
        let told = read.and_then(|config| config.settings(&Wish { host: "a".into(), ..Wish::default() }, &self.0));
        let told = told.expect_err("the configuration is wrong").to_string();
        told.replace(&self.0.home.display().to_string(), "~")
    }
}

impl Drop for Home {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0.home);
    }
}

#[test]
fn without_a_configuration_the_defaults_of_ssh_apply() {
    let home = Home::new("defaults");
    let settings = home.settings("# empty\n", "Gpu01");
    let ssh = home.0.home.join(".ssh");
    assert_eq!((settings.host_name.as_str(), settings.port, settings.user.as_str()), ("Gpu01", 22, "me"));
    assert_eq!(settings.identity_files, ["id_ed25519", "id_ecdsa", "id_rsa"].map(|name| ssh.join(name)));
    assert_eq!(settings.known_hosts, ["known_hosts", "known_hosts2"].map(|name| ssh.join(name)));
    assert_eq!(
        (settings.first_use, settings.agent, settings.identities_only),
        (FirstUse::Refused, Agent::Variable, false)
    );
    assert_eq!((settings.jumps, settings.proxy_command, settings.connect_timeout), (vec![], None, None));
}

#[test]
fn the_first_value_counts_and_identity_files_add_up() {
    let home = Home::new("first");
    let text = "\
IdentityFile ~/.ssh/all
Host gpu* !gpu9
    HostName %h.cluster
    User = worker
    Port 2222
    IdentityFile \"~/.ssh/%r at %h\"
Host gpu?
    User other
    Port 1
    ConnectTimeout 1m30s
    StrictHostKeyChecking accept-new
Host *
    IdentityFile ${WORK}/key-%i
    IdentitiesOnly yes
    UserKnownHostsFile /a /b
    SomethingUnknown whatever
";
    let one = home.settings(text, "gpu1");
    assert_eq!((one.host_name.as_str(), one.port, one.user.as_str()), ("gpu1.cluster", 2222, "worker"));
    let ssh = home.0.home.join(".ssh");
    let key = PathBuf::from(format!("/work/key-{}", home.0.uid));
    assert_eq!(one.identity_files, [ssh.join("all"), ssh.join("worker at gpu1.cluster"), key]);
    assert_eq!((one.identities_only, one.first_use), (true, FirstUse::Accepted));
    assert_eq!(one.connect_timeout, Some(Duration::from_secs(90)));
    assert_eq!(one.known_hosts, [PathBuf::from("/a"), "/b".into()]);
    let nine = home.settings(text, "gpu9");
    assert_eq!((nine.host_name.as_str(), nine.port, nine.user.as_str()), ("gpu9", 1, "other"));
    let wish = Wish { host: "gpu1".into(), user: Some("you".into()), port: Some(7) };
    let (named, _) = home.config(text).settings(&wish, &home.0).unwrap();
    assert_eq!((named.port, named.user.as_str()), (7, "you"), "what the user names on the command line counts most");
}

#[test]
fn match_blocks_apply_by_host_user_and_negation_and_others_are_skipped_with_a_notice() {
    let home = Home::new("match");
    let text = "\
Host short
    HostName long.site
Match host *.site !user root
    Port 1
Match originalhost short localuser me
    User found
Match exec \"exit 0\"
    User never
    IdentityFile /never
Match user found
    ConnectTimeout 3
Match final host long.site
    HostKeyAlias late
Match all
    Port 2
";
    let config = home.config(text);
    let wish = Wish { host: "short".into(), ..Wish::default() };
    let (settings, notices) = config.settings(&wish, &home.0).unwrap();
    assert_eq!((settings.port, settings.user.as_str()), (1, "found"));
    assert_eq!(settings.connect_timeout, Some(Duration::from_secs(3)));
    assert_eq!(settings.host_key_alias.as_deref(), Some("late"));
    assert!(!settings.identity_files.contains(&"/never".into()));
    assert_eq!(notices.len(), 1, "{notices:?}");
    assert!(
        notices[0].ends_with(".ssh/config:7: rsctl does not support `Match exec`: it skips this block"),
        "{notices:?}"
    );
    assert_eq!(config.settings(&wish, &home.0).unwrap().1, Vec::<String>::new(), "a notice appears once");
    let root = Wish { host: "x.site".into(), user: Some("root".into()), port: None };
    assert_eq!(config.settings(&root, &home.0).unwrap().0.port, 2);
}

#[test]
fn included_files_count_where_they_are_included_and_their_blocks_end_with_them() {
    let home = Home::new("include");
    home.file("conf.d/10-a", "User a\nHost b\nPort 10\n");
    home.file("conf.d/20-b", "User b\nConnectTimeout 5\n");
    home.file("conf.d/.hidden", "ConnectTimeout 1\n");
    let text = "Host a\nInclude conf.d/* ~/.ssh/absent\nPort 22222\nHost *\nPort 3\n";
    let a = home.settings(text, "a");
    assert_eq!((a.user.as_str(), a.port, a.connect_timeout), ("a", 22222, Some(Duration::from_secs(5))));
    let b = home.settings(text, "b");
    assert_eq!((b.user.as_str(), b.port), ("me", 3), "the file is included for a only");
    home.file("loop", "Include loop\n");
    assert_eq!(home.mistake("Include loop\n"), "~/.ssh/loop:1: too many files include each other");
}

#[test]
fn jump_hosts_and_commands_exclude_each_other_by_order() {
    let home = Home::new("jump");
    let hop = |host: &str, user: Option<&str>, port| Hop { host: host.into(), user: user.map(Into::into), port };
    let settings = home.settings("ProxyJump me@a:22,b, [::1]:7 ,ssh://c:9/\nProxyCommand nc %h %p\n", "x");
    let hops =
        vec![hop("a", Some("me"), Some(22)), hop("b", None, None), hop("::1", None, Some(7)), hop("c", None, Some(9))];
    assert_eq!((settings.jumps, settings.proxy_command), (hops, None));
    let settings = home.settings("ProxyCommand nc \"%h\" %p # x\nProxyJump a\n", "x");
    assert_eq!(settings.proxy_command.as_deref(), Some("nc \"x\" 22 # x"), "the shell reads the whole line");
    assert_eq!(settings.jumps, []);
    assert_eq!(home.settings("Host x\nProxyJump none\nHost *\nProxyJump a\n", "x").jumps, []);
    for wrong in ["", "a:0", "a:x", "@a", "-a", "a:70000"] {
        assert_eq!(Hop::parse(wrong), None, "{wrong}");
    }
}

#[test]
fn a_mistake_names_its_file_and_line() {
    let home = Home::new("mistakes");
    let vectors = [
        ("Port 0", "1: invalid port `0`"),
        ("\nPort x", "2: invalid port `x`"),
        ("User", "1: `user` needs a value"),
        ("User \"a", "1: a quote is not closed"),
        ("IdentitiesOnly maybe", "1: identitiesonly takes yes or no, not `maybe`"),
        ("StrictHostKeyChecking never", "1: stricthostkeychecking takes yes, ask, accept-new or no, not `never`"),
        ("ConnectTimeout soon", "1: invalid time `soon`"),
        ("IdentityFile %z", "1: `%z` is not supported here"),
        ("IdentityFile ${NOPE}/k", "1: the variable NOPE is not set"),
        ("ProxyJump a:b", "1: invalid jump host `a:b`: write [USER@]HOST[:PORT]"),
        ("Match host", "1: `Match host` needs a value"),
    ];
    for (text, expected) in vectors {
        assert_eq!(home.mistake(text), format!("~/.ssh/config:{expected}"), "{text}");
    }
    let path = home.file("config", "User a\n");
    fs::set_permissions(&path, fs::Permissions::from_mode(0o666)).unwrap();
    let told = Config::read(&home.0, Some(&path)).expect_err("others can write it").to_string();
    assert!(told.contains("other users can write it"), "{told}");
    let absent = home.0.home.join("absent");
    assert!(Config::read(&home.0, Some(&absent)).is_err(), "a file that was named must exist");
    assert!(Config::read(&Here { home: absent, ..home.0.clone() }, None).is_ok());
}
