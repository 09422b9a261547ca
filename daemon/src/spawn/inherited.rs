//! The umask, nice value and limits of the submitting process, which ranks inherit.
//!
//! The step adopts them before it starts a rank, and its ranks inherit them, which costs nothing. Limits that are lower than the
//! step's own could end the step itself. These are set by `rsd limits`, which then becomes the rank's program.

use std::fmt::Write;
use std::os::unix::process::CommandExt;
use std::process::Command;

use anyhow::{Context, anyhow};
use nix::errno::Errno;
use nix::sys::resource::{Resource, getrlimit, setrlimit};
use nix::sys::stat::{Mode, umask};
use rsd_proto::inherited::UNLIMITED;
use rsd_proto::v1::{Inherited, Limit};

use crate::descriptors::Room;
use crate::options::LimitsOptions;

/// The result of [`adopt`].
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct Adopted {
    /// Limits that apply only to the ranks, as `rsd limits` takes them; empty: none.
    pub(crate) of_ranks: String,
    /// Sentences about values that this node forbids.
    pub(crate) notices: Vec<String>,
}

/// Adopts `wanted` in this process, for the processes that it starts. `room` says how the limit on open files was set for this
/// process itself.
pub(crate) fn adopt(wanted: &Inherited, room: Room) -> Adopted {
    let mut adopted = Adopted::default();
    match room {
        Room::Raised { from } if !wanted.limits.iter().any(|limit| limit.resource == "nofile") => {
            let hard = getrlimit(Resource::RLIMIT_NOFILE).map_or(from, |(_, hard)| hard);
            adopted.of_ranks = format!("nofile={from}:{hard}");
        }
        Room::Raised { .. } | Room::Enough => {}
        Room::TooLow(why) => adopted.notices.push(why),
    }
    if let Some(bits) = wanted.umask {
        umask(Mode::from_bits_truncate(bits));
    }
    if let Some(nice) = wanted.nice {
        adopted.notices.extend(adopt_nice(nice));
    }
    for limit in &wanted.limits {
        let Some(resource) = resource(&limit.resource) else { continue };
        let Ok((soft, hard)) = getrlimit(resource) else { continue };
        match plan(limit, soft, hard) {
            Plan::Nothing => {}
            Plan::Set if setrlimit(resource, limit.soft, limit.hard).is_ok() => {}
            Plan::Set => {
                // Only root may raise a hard limit.
                let may = (limit.soft.min(hard), limit.hard.min(hard));
                if setrlimit(resource, may.0, may.1).is_err() || limit.soft > hard {
                    adopted.notices.push(forbidden(limit, hard));
                }
            }
            Plan::OfRanks => {
                let comma = if adopted.of_ranks.is_empty() { "" } else { "," };
                let (soft, hard) = (limit.soft.min(hard), limit.hard.min(hard));
                // Writing to a String cannot fail.
                let _ = write!(adopted.of_ranks, "{comma}{}={soft}:{hard}", limit.resource);
            }
        }
    }
    adopted
}

/// Executes the program with these limits. Returns only if that fails.
pub(crate) fn become_limited(options: &LimitsOptions) -> anyhow::Result<()> {
    for limit in options.limits.split(',') {
        let parsed = || {
            let (name, values) = limit.split_once('=')?;
            let (soft, hard) = values.split_once(':')?;
            Some((resource(name)?, soft.parse().ok()?, hard.parse().ok()?))
        };
        let (resource, soft, hard) = parsed().with_context(|| format!("read the limit {limit:?}"))?;
        setrlimit(resource, soft, hard).with_context(|| format!("set the limit {limit}"))?;
    }
    let mut argv = options.argv.iter();
    let mut command = Command::new(&options.program);
    command.arg0(argv.next().unwrap_or(&options.program)).args(argv);
    let error = command.exec();
    Err(anyhow!("cannot execute {}: {error}", options.program.display()))
}

/// How to apply one limit.
#[derive(Debug, PartialEq, Eq)]
enum Plan {
    Nothing,
    /// Set it in this process, for all processes that it starts.
    Set,
    OfRanks,
}

fn plan(wanted: &Limit, soft: u64, hard: u64) -> Plan {
    // A limit on memory, time, file size or descriptors below the present use could end the step, and with it the job.
    let could_end_the_step = matches!(&wanted.resource[..], "as" | "cpu" | "data" | "fsize" | "nofile");
    match (wanted.soft, wanted.hard) {
        it if it == (soft, hard) => Plan::Nothing,
        (less, _) if less < soft && could_end_the_step => Plan::OfRanks,
        _ => Plan::Set,
    }
}

fn forbidden(wanted: &Limit, hard: u64) -> String {
    let count = |value| if value == UNLIMITED { "unlimited".to_owned() } else { format!("{value}") };
    format!(
        "limit {}: {} in the submitting shell, {} here (this node's hard limit)",
        wanted.resource,
        count(wanted.soft),
        count(hard)
    )
}

fn adopt_nice(wanted: i32) -> Option<String> {
    // SAFETY: both calls take only numbers. For the value -1, errno says whether it is an error.
    let own = unsafe {
        *libc::__errno_location() = 0;
        libc::getpriority(libc::PRIO_PROCESS, 0)
    };
    if own == wanted || own == -1 && Errno::last_raw() != 0 {
        return None;
    }
    // SAFETY: as above.
    let refused = unsafe { libc::setpriority(libc::PRIO_PROCESS, 0, wanted) } != 0;
    refused.then(|| format!("nice value: {wanted} in the submitting shell, {own} here (only root may lower it)"))
}

fn resource(name: &str) -> Option<Resource> {
    Some(match name {
        "cpu" => Resource::RLIMIT_CPU,
        "fsize" => Resource::RLIMIT_FSIZE,
        "data" => Resource::RLIMIT_DATA,
        "stack" => Resource::RLIMIT_STACK,
        "core" => Resource::RLIMIT_CORE,
        "rss" => Resource::RLIMIT_RSS,
        "nproc" => Resource::RLIMIT_NPROC,
        "nofile" => Resource::RLIMIT_NOFILE,
        "memlock" => Resource::RLIMIT_MEMLOCK,
        "as" => Resource::RLIMIT_AS,
        "locks" => Resource::RLIMIT_LOCKS,
        "sigpending" => Resource::RLIMIT_SIGPENDING,
        "msgqueue" => Resource::RLIMIT_MSGQUEUE,
        "nice" => Resource::RLIMIT_NICE,
        "rtprio" => Resource::RLIMIT_RTPRIO,
        "rttime" => Resource::RLIMIT_RTTIME,
        _ => return None,
    })
}

#[cfg(test)]
mod tests {
    use rsd_proto::inherited::LIMITS;

    use super::*;

    #[test]
    fn every_limit_is_known_to_the_kernel() {
        for (name, _) in LIMITS {
            assert!(getrlimit(resource(name).expect(name)).is_ok(), "{name}");
        }
    }

    #[test]
    fn a_limit_that_could_end_the_step_applies_only_to_its_ranks() {
        let wanted = |resource: &str, soft, hard| Limit { resource: resource.into(), soft, hard };
        for (limit, expected) in [
            (wanted("nofile", 1024, 4096), Plan::Nothing),
            (wanted("nofile", 2048, 4096), Plan::Set),
            (wanted("nofile", 16, 16), Plan::OfRanks),
            (wanted("core", 0, 4096), Plan::Set),
            (wanted("core", 1024, UNLIMITED), Plan::Set),
        ] {
            assert_eq!(plan(&limit, 1024, 4096), expected, "{limit:?}");
        }
    }
}
