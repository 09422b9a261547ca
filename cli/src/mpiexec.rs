//! `rsctl` called by the name of `mpiexec`, which MPI libraries run by themselves: an MPICH process that nobody has launched, and
//! that needs a process manager, listens on a port and runs `mpiexec -pmi_args PORT INTERFACE KEY PID`. It waits for whoever
//! connects there, for ever, and does not bear a connection that ends: it has to be served, whatever happens here.
//!
//! The daemon takes the process in as a job of its own, as it takes members of groups; this process stays between the two until one
//! of them hangs up. If no daemon does, the user hears why, and the process is served by [`singleton`]. Every other command line is
//! that of `rsctl run`.
//!
//! The dialogue is as MPICH's singletons speak it (4.0 to 5.0): we say `singinit`, it answers so, we say `singinit_info`; from
//! then on it is a rank's.

mod singleton;

use std::ffi::{OsStr, OsString};
use std::io::{self, BufRead, BufReader, Read, Write};
use std::net::{Ipv4Addr, Shutdown, TcpStream};
use std::path::Path;
use std::time::Duration;

use nix::unistd::{getppid, setsid};
use rsd_proto::join::{Go, Join};
use rsd_proto::transport::exit::USAGE;

use crate::dvm::Dvm;
use crate::exit::Failure;
use crate::group::join;
use crate::report;

/// What a launcher of that name is called for.
const NAME: &str = "mpiexec";
const ADOPT: &str = "-pmi_args";
/// For each line of the dialogue, and for the answer of the daemon.
const TALK: Duration = Duration::from_secs(30);
/// The name of a job that is none.
const NOBODY: &str = "singinit";
/// A line of PMI-1 is shorter.
const LINE_BYTES_MAX: u64 = 4096;

/// What is asked of us by this name.
pub(crate) enum Asked {
    /// The process that started us wants a process manager at this port.
    Adopt(u16),
    /// To launch: the command line of `rsctl`.
    Launch(Vec<OsString>),
}

/// None if that is not our name.
pub(crate) fn asked(name: Option<&OsStr>, args: &[OsString]) -> Option<Result<Asked, Failure>> {
    if Path::new(name?).file_name()? != NAME {
        return None;
    }
    if args.first().is_none_or(|first| first != ADOPT) {
        return Some(Ok(Asked::Launch(std::iter::once("run".into()).chain(args.iter().cloned()).collect())));
    }
    let port = args.get(1).and_then(|port| port.to_str()?.parse().ok()).filter(|port| *port > 0);
    Some(port.map(Asked::Adopt).ok_or_else(|| {
        Failure::usage("mpiexec -pmi_args is what an MPI library runs by itself, with the number of a port behind it")
    }))
}

/// Serves the process that started us until it ends.
pub(crate) fn adopt(port: u16, dvm: &Dvm) -> Result<u8, Failure> {
    let process = TcpStream::connect((Ipv4Addr::LOCALHOST, port))
        .map_err(|error| Failure::new(USAGE, format!("nobody listens at port {port} of -pmi_args: {error}")))?;
    // What ends the terminal's jobs is for the process to decide about.
    let _ = setsid();
    let lost = |error: io::Error| Failure::unreachable(format!("cannot serve the process that runs mpiexec: {error}"));
    match taken_in(dvm) {
        Ok((go, manager)) => {
            let process = greet(process, &go.namespace).map_err(lost)?;
            between(process, manager).map_err(lost)?;
            Ok(0)
        }
        Err(failure) => {
            let process = greet(process, NOBODY).map_err(lost)?;
            let code = report(&failure);
            singleton::serve(process).map_err(lost)?;
            Ok(code)
        }
    }
}

/// The place that the daemon gives to the process, and the way to its process manager.
fn taken_in(dvm: &Dvm) -> Result<(Go, Talk), Failure> {
    let go = join::join(&join::socket(dvm)?, request())?;
    match introduce(&go) {
        Ok(manager) => Ok((go, manager)),
        Err(error) => Err(Failure::unreachable(format!("no way to the process manager at {}: {error}", go.pmi_port))),
    }
}

fn request() -> Join {
    Join { pid: u32::try_from(getppid().as_raw()).ok(), ..Join::default() }
}

/// As the process that has this place: the daemon's side, up to the rank's first request.
fn introduce(go: &Go) -> io::Result<Talk> {
    let mut manager = Talk::new(TcpStream::connect(&go.pmi_port)?)?;
    manager.say(&format!("cmd=initack pmiid={}\n", go.pmi_id))?;
    for expected in ["cmd=initack rc=0", "cmd=set size=", "cmd=set rank=", "cmd=set debug="] {
        manager.hear(expected)?;
    }
    Ok(manager)
}

fn greet(process: TcpStream, namespace: &str) -> io::Result<Talk> {
    let mut process = Talk::new(process)?;
    process.say("cmd=singinit authtype=none\n")?;
    process.hear("cmd=singinit ")?;
    // Its standard streams are its own.
    process.say(&format!("cmd=singinit_info versionok=yes stdio=no kvsname={namespace}\n"))?;
    Ok(process)
}

/// Passes on what either says, until both have hung up.
fn between(process: Talk, manager: Talk) -> io::Result<()> {
    let (to_process, to_manager) = (process.stream.try_clone()?, manager.stream.try_clone()?);
    std::thread::scope(|scope| {
        scope.spawn(|| pass_on(manager, to_process));
        pass_on(process, to_manager);
    });
    Ok(())
}

fn pass_on(mut from: Talk, mut to: TcpStream) {
    // However it ends, the other side has to hear of it.
    let _ = from.stream.set_read_timeout(None);
    let _ = io::copy(&mut from.reader, &mut to);
    let _ = to.shutdown(Shutdown::Write);
}

/// One side, line by line at first.
struct Talk {
    stream: TcpStream,
    reader: BufReader<TcpStream>,
}

impl Talk {
    fn new(stream: TcpStream) -> io::Result<Talk> {
        stream.set_nodelay(true)?;
        stream.set_read_timeout(Some(TALK))?;
        let reader = BufReader::new(stream.try_clone()?);
        Ok(Talk { stream, reader })
    }

    fn say(&mut self, line: &str) -> io::Result<()> {
        self.stream.write_all(line.as_bytes())
    }

    fn hear(&mut self, expected: &str) -> io::Result<()> {
        let mut line = Vec::new();
        Read::by_ref(&mut self.reader).take(LINE_BYTES_MAX).read_until(b'\n', &mut line)?;
        match line.starts_with(expected.as_bytes()) {
            true => Ok(()),
            false => {
                let line = String::from_utf8_lossy(&line);
                Err(io::Error::other(format!("it says {:?}, not {expected:?}", line.trim_end())))
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn asked_by(name: &str, args: &[&str]) -> Option<Result<Asked, Failure>> {
        asked(Some(name.as_ref()), &args.iter().map(OsString::from).collect::<Vec<_>>())
    }

    #[test]
    fn by_the_name_of_mpiexec_it_adopts_and_else_launches() {
        assert!(asked_by("/usr/bin/rsctl", &["-pmi_args", "9"]).is_none());
        let adopt = asked_by("/x/mpiexec", &["-pmi_args", "4111", "default_interface", "default_key", "7"]);
        assert!(matches!(adopt, Some(Ok(Asked::Adopt(4111)))));
        let Some(Ok(Asked::Launch(args))) = asked_by("mpiexec", &["-n", "4", "./a.out"]) else { panic!("it launches") };
        assert_eq!(args, ["run", "-n", "4", "./a.out"]);
        for args in [&["-pmi_args"][..], &["-pmi_args", "0"], &["-pmi_args", "x"]] {
            assert!(matches!(asked_by("mpiexec", args), Some(Err(_))), "{args:?}");
        }
    }
}
