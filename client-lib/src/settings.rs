//! The user's settings in `RSD_MPI_*` and `RSD_JOIN*` (rsd-proto has the table, `library::SETTINGS`).

use std::time::Duration;

use rsd_config::duration;
use rsd_proto::join::{self, Join};
use rsd_proto::library::{SETTINGS, setting};

use crate::device::Wanted;
use crate::error::{MpiError, MpiResult};

/// The settings of one process.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Settings {
    /// `RSD_MPI_CMA`.
    pub cma: bool,
    /// `RSD_MPI_CHECK`.
    pub check: bool,
    /// `RSD_MPI_CONNECT_S`.
    pub connect: Duration,
    /// `RSD_MPI_CUDA`.
    pub cuda: Wanted,
    /// `RSD_MPI_CUDA_IPC`.
    pub cuda_ipc: bool,
    /// `RSD_JOIN` and related variables: the group to join.
    pub join: Option<Join>,
    /// `RSD_JOIN_EXPORT`, which only programs that join before `MPI_Init` can obey.
    pub join_exports: bool,
    /// `RSD_MPI_INTERFACE`: one interface, or several separated by commas.
    pub interface: Option<String>,
    /// `RSD_MPI_PROGRESS`: whether a thread makes progress while the program computes.
    pub progresses: bool,
    /// `RSD_MPI_SHM`.
    pub shm: bool,
    /// `RSD_MPI_SINGLETON`.
    pub singleton: Singleton,
    /// `RSD_MPI_SPIN_US`; `None` if it depends on the number of cores.
    pub spin: Option<Duration>,
    /// `RSD_MPI_VERBOSE`: whether to report the transports at the end.
    pub tell_transports: bool,
}

/// The behaviour of a process without a process manager.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum Singleton {
    /// It runs as a world of one, unless the environment shows a launcher of several processes.
    #[default]
    Refuse,
    /// It runs as a world of one.
    Allow,
    /// As `Allow`, and it asks no daemon for anything.
    Alone,
}

impl Default for Settings {
    fn default() -> Self {
        Self {
            cma: true,
            check: false,
            connect: Duration::from_secs(30),
            cuda: Wanted::Auto,
            cuda_ipc: true,
            join: None,
            join_exports: false,
            interface: None,
            progresses: false,
            shm: true,
            singleton: Singleton::Refuse,
            spin: None,
            tell_transports: false,
        }
    }
}

impl Settings {
    /// Reads the variables of an environment, ignoring all but `RSD_MPI_*` and `RSD_JOIN*`. An unknown name or an
    /// invalid value is an error that names the accepted ones.
    pub fn from_variables(variables: impl IntoIterator<Item = (String, String)>) -> MpiResult<Self> {
        let mut settings = Self::default();
        for (name, value) in variables {
            if name.starts_with("RSD_MPI_") || name == "RSD_JOIN" || name.starts_with("RSD_JOIN_") {
                settings.set(&name, &value)?;
            }
        }
        let joins = settings.join.as_ref();
        if joins.is_some_and(|join| join.group.is_none() && *join != Join::default()) {
            return Err(MpiError::other(
                "RSD_JOIN_… is set in the environment without a group: set RSD_JOIN to its name, or unset these",
            ));
        }
        settings.join = settings.join.filter(|join| join.group.is_some());
        Ok(settings)
    }

    fn set(&mut self, name: &str, value: &str) -> MpiResult {
        let Some(setting) = setting(name) else {
            let names = SETTINGS.iter().map(|setting| setting.name).collect::<Vec<_>>().join(", ");
            return Err(MpiError::other(format!("unknown setting {name} in the environment (known: {names})")));
        };
        let choose = |yes: &str, no: &str| match value {
            _ if value == yes => Some(true),
            _ if value == no => Some(false),
            _ => None,
        };
        let number = || value.parse::<u64>().ok();
        let count = || value.parse::<u32>().ok();
        if name == "RSD_JOIN_EXPORT" {
            self.join_exports = !value.is_empty();
            return Ok(());
        }
        let join = self.join.get_or_insert_default();
        let understood = match name {
            // An empty value counts as unset.
            "RSD_JOIN" if value.is_empty() => Some(()),
            "RSD_JOIN" => join::check_name(value).is_ok().then(|| join.group = Some(value.to_owned())),
            "RSD_JOIN_MAX" => count().map(|max| join.max = Some(max)),
            "RSD_JOIN_MIN" => count().map(|min| join.min = Some(min)),
            "RSD_JOIN_RANK" => count().map(|rank| join.rank = Some(rank)),
            "RSD_JOIN_SIZE" => count().map(|size| join.size = Some(size)),
            "RSD_JOIN_TIMEOUT" => {
                duration::parse(value).ok().map(|time| join.timeout_ms = Some(time.as_millis() as u64))
            }
            // The settings of the compiler wrappers.
            "RSD_MPI_CC" | "RSD_MPI_CXX" => Some(()),
            "RSD_MPI_CMA" => choose("auto", "off").map(|on| self.cma = on),
            "RSD_MPI_CHECK" => choose("1", "0").map(|on| self.check = on),
            "RSD_MPI_CONNECT_S" => {
                number().filter(|seconds| *seconds > 0).map(|seconds| self.connect = Duration::from_secs(seconds))
            }
            "RSD_MPI_CUDA" => match value {
                "auto" => Some(Wanted::Auto),
                "on" => Some(Wanted::On),
                "off" => Some(Wanted::Off),
                _ => None,
            }
            .map(|wanted| self.cuda = wanted),
            "RSD_MPI_CUDA_IPC" => choose("auto", "off").map(|on| self.cuda_ipc = on),
            "RSD_MPI_INTERFACE" => (!value.is_empty()).then(|| self.interface = Some(value.to_owned())),
            "RSD_MPI_PROGRESS" => choose("thread", "none").map(|thread| self.progresses = thread),
            "RSD_MPI_SHM" => choose("on", "off").map(|on| self.shm = on),
            "RSD_MPI_SINGLETON" => match value {
                "allow" => Some(Singleton::Allow),
                "alone" => Some(Singleton::Alone),
                "refuse" => Some(Singleton::Refuse),
                _ => None,
            }
            .map(|singleton| self.singleton = singleton),
            "RSD_MPI_SPIN_US" => number().map(|spin| self.spin = Some(Duration::from_micros(spin))),
            "RSD_MPI_VERBOSE" => choose("transports", "off").map(|tell| self.tell_transports = tell),
            _ => None,
        };
        understood.ok_or_else(|| MpiError::other(format!("invalid {name}={value:?}: expected {}", setting.values)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(variables: &[(&str, &str)]) -> MpiResult<Settings> {
        Settings::from_variables(variables.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())))
    }

    #[test]
    fn every_setting_of_the_table_is_accepted_and_has_an_effect() {
        let vectors = [
            ("RSD_MPI_CHECK", "1"),
            ("RSD_MPI_CMA", "off"),
            ("RSD_MPI_CONNECT_S", "5"),
            ("RSD_MPI_CUDA", "on"),
            ("RSD_MPI_CUDA_IPC", "off"),
            ("RSD_MPI_INTERFACE", "eth0"),
            ("RSD_MPI_PROGRESS", "thread"),
            ("RSD_MPI_SHM", "off"),
            ("RSD_MPI_SINGLETON", "allow"),
            ("RSD_MPI_SPIN_US", "0"),
            ("RSD_MPI_VERBOSE", "transports"),
        ];
        let joins = [
            ("RSD_JOIN_MAX", "16"),
            ("RSD_JOIN_MIN", "8"),
            ("RSD_JOIN_RANK", "0"),
            ("RSD_JOIN_SIZE", "16"),
            ("RSD_JOIN_TIMEOUT", "90s"),
        ];
        let wrappers = [("RSD_MPI_CC", "gcc"), ("RSD_MPI_CXX", "ccache g++")];
        // It does not name a group to join.
        let export = [("RSD_JOIN_EXPORT", "torch")];
        assert!(of(&export).unwrap().join.is_none() && of(&export).unwrap().join_exports);
        let mut names: Vec<_> =
            vectors.iter().chain(&joins).chain(&wrappers).chain(&export).map(|(name, _)| *name).collect();
        names.push("RSD_JOIN");
        names.sort_unstable();
        assert_eq!(names, SETTINGS.iter().map(|it| it.name).collect::<Vec<_>>());
        assert_eq!(of(&wrappers).unwrap(), Settings::default());
        for vector in vectors {
            assert_ne!(of(&[vector]).unwrap(), Settings::default(), "{vector:?}");
        }
        let actors = of(&[("RSD_JOIN", "actors")]).unwrap();
        assert_eq!(actors.join, Some(Join { group: Some("actors".into()), ..Join::default() }));
        for vector in joins {
            assert_ne!(of(&[("RSD_JOIN", "actors"), vector]).unwrap(), actors, "{vector:?}");
            assert!(of(&[vector]).unwrap_err().text.contains("set RSD_JOIN to its name"), "{vector:?}");
        }
        assert_eq!(of(&[("RSD_JOIN", "")]).unwrap(), Settings::default());
        assert_eq!(of(&[("PATH", "/bin"), ("RSD_DVM", "x")]).unwrap(), Settings::default());
    }

    #[test]
    fn an_invalid_setting_is_named_with_the_accepted_values() {
        let error = of(&[("RSD_MPI_CONNECT_S", "0")]).unwrap_err();
        assert_eq!(error.text, "invalid RSD_MPI_CONNECT_S=\"0\": expected seconds, at least 1");
        let error = of(&[("RSD_JOIN", "a b")]).unwrap_err();
        assert!(error.text.starts_with("invalid RSD_JOIN=\"a b\": expected a group's name"), "{}", error.text);
        for name in ["RSD_MPI_SMH", "RSD_JOIN_GROUP"] {
            let error = of(&[(name, "off")]).unwrap_err();
            assert!(error.text.starts_with(&format!("unknown setting {name} in the environment (known: RSD_JOIN, ")));
        }
    }
}
