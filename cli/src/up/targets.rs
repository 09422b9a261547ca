//! Which hosts the user named, and with how many slots.

use std::fs;
use std::net::{SocketAddr, ToSocketAddrs, UdpSocket};

use rsd_config::host::{HostEntry, HostRef, Slots};
use rsd_config::{dvm_name, hostfile, hostlist};
use rsd_proto::transport::exit;
use rsd_ssh::config::Wish;

use crate::exit::Failure;
use crate::options::up::Up;

/// A host on which a daemon is to run.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Host {
    /// As the user wrote it. Its daemon gets this name, so that `rsctl run` finds it with the same list.
    pub(crate) name: String,
    pub(crate) user: Option<String>,
    pub(crate) port: Option<u16>,
    /// The slots that its daemon offers; None: its cores.
    pub(crate) slots: Option<u32>,
}

impl Host {
    pub(crate) fn wish(&self) -> Wish {
        Wish { host: self.name.clone(), user: self.user.clone(), port: self.port }
    }

    /// Returns the name for its daemon; None: the host's own name is used, because this one is an address with colons.
    pub(crate) fn daemon_name(&self) -> Option<&str> {
        dvm_name::check(&self.name).ok().map(|()| self.name.as_str())
    }
}

/// Returns the hosts of `--host` and `--hostfile`, each once, in order.
pub(crate) fn hosts(up: &Up) -> Result<Vec<Host>, Failure> {
    let list = up.host.join(",");
    let listed = match &up.hostfile {
        Some(file) => {
            let shown = file.display().to_string();
            let text = fs::read_to_string(file)
                .map_err(|error| Failure::new(exit::USAGE, format!("cannot read host file {shown}: {error}")))?;
            Some((hostfile::parse(&text, &shown).map_err(Failure::usage)?, shown))
        }
        None => None,
    };
    let entries = match listed {
        Some((entries, _)) if list.is_empty() => entries,
        Some((entries, shown)) => hostlist::choose(&list, &entries, &shown).map_err(Failure::usage)?,
        None => hostlist::parse(&list).map_err(Failure::usage)?,
    };
    of_entries(&entries)
}

fn of_entries(entries: &[HostEntry]) -> Result<Vec<Host>, Failure> {
    let mut hosts: Vec<(Host, u32, bool)> = Vec::new();
    let mut excluded = Vec::new();
    for entry in entries {
        let name = match &entry.host {
            HostRef::Named(name) => name,
            HostRef::Excluded(name) => {
                excluded.push(name.to_ascii_lowercase());
                continue;
            }
            HostRef::Nth(_) | HostRef::Id(_) | HostRef::Labelled { .. } | HostRef::Idle(_) => {
                let text = format!(
                    "{}: `{}` chooses among the nodes of a DVM that runs: name the hosts",
                    entry.source, entry.host
                );
                return Err(Failure::usage(text));
            }
        };
        let (count, whole) = match entry.slots {
            Slots::Unsaid => (1, false),
            Slots::Whole => (1, true),
            Slots::Count(count) => (count, false),
        };
        let same = |host: &&mut (Host, u32, bool)| host.0.name.eq_ignore_ascii_case(name);
        match hosts.iter_mut().find(same) {
            Some((host, mentions, is_whole)) => {
                *mentions += 1;
                *is_whole |= whole;
                // Listed k times without a number means k slots.
                host.slots = Some(host.slots.unwrap_or(*mentions - 1).saturating_add(count));
                host.user = host.user.take().or_else(|| entry.user.clone());
                host.port = host.port.or(entry.port);
            }
            None => {
                let slots = if let Slots::Count(count) = entry.slots { Some(count) } else { None };
                let host = Host { name: name.clone(), user: entry.user.clone(), port: entry.port, slots };
                hosts.push((host, 1, whole));
            }
        }
    }
    hosts.retain(|(host, _, _)| !excluded.contains(&host.name.to_ascii_lowercase()));
    if hosts.is_empty() {
        return Err(Failure::usage("no host is left: the list excludes all that it names"));
    }
    let whole = |(host, _, whole): (Host, u32, bool)| if whole { Host { slots: None, ..host } } else { host };
    Ok(hosts.into_iter().map(whole).collect())
}

/// Returns whether a name means this machine. `leads_here`: whether a name with a domain has an address of this machine: the same short
/// name in another domain may be another machine.
pub(crate) fn is_here(name: &str, own: &str, leads_here: impl Fn(&str) -> bool) -> bool {
    let short = |name: &str| name.split('.').next().unwrap_or_default().to_ascii_lowercase();
    let is_own = || short(name) == short(own) && (!name.contains('.') || leads_here(name));
    matches!(name, "localhost" | "127.0.0.1" | "::1") || name.eq_ignore_ascii_case(own) || is_own()
}

/// Whether a name has an address of this machine.
pub(crate) fn leads_here(name: &str) -> bool {
    // The kernel binds a socket only to an address of this machine.
    let is_own = |at: SocketAddr| UdpSocket::bind((at.ip(), 0)).is_ok();
    (name, 0).to_socket_addrs().is_ok_and(|mut addresses| addresses.any(is_own))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shown(list: &str) -> Result<String, String> {
        let entries = hostlist::parse(list).map_err(|error| error.to_string())?;
        let hosts = of_entries(&entries).map_err(|failure| failure.text)?;
        let one = |host: &Host| {
            let user = host.user.as_ref().map_or(String::new(), |user| format!("{user}@"));
            format!("{user}{}{}", host.name, host.slots.map_or(String::new(), |slots| format!(":{slots}")))
        };
        Ok(hosts.iter().map(one).collect::<Vec<_>>().join(" "))
    }

    #[test]
    fn each_host_is_started_once_with_the_slots_of_all_its_mentions() {
        let vectors = [
            ("a,b:4", "a b:4"),
            ("a,a,b", "a:2 b"),
            ("a:2,a:3,A", "a:6"),
            ("a:*,a", "a"),
            ("gpu[1-2]:2,^gpu1", "gpu2:2"),
            ("me@a,b", "me@a b"),
        ];
        for (list, expected) in vectors {
            assert_eq!(shown(list).as_deref(), Ok(expected), "{list}");
        }
        assert!(shown("a,^a").is_err_and(|text| text.starts_with("no host is left")));
        assert!(shown("+n2").is_err_and(|text| text.contains("`+n2` chooses among the nodes")));
    }

    #[test]
    fn this_machine_has_several_names() {
        let leads_here = |name: &str| name == "desk.alias";
        for name in ["localhost", "desk", "Desk", "desk.site", "Desk.site", "desk.alias"] {
            assert!(is_here(name, "desk.site", leads_here), "{name}");
        }
        assert!(is_here("desk.alias", "desk", leads_here));
        for name in ["desk2", "desk.other", "other"] {
            assert!(!is_here(name, "desk.site", leads_here), "{name}");
        }
        assert!(!is_here("desk.site", "desk", leads_here), "it may be another machine");
        assert!(super::leads_here("127.0.0.1") && !super::leads_here("192.0.2.1"));
    }
}
