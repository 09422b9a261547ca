//! `mpiexec -pmi_args`, which MPI libraries run themselves. An MPICH process without a launcher that needs a process manager
//! listens on a port and runs `mpiexec -pmi_args PORT INTERFACE KEY PID`. It waits for a connection without a deadline and cannot
//! handle a connection that ends, so it must be served even if no daemon is running.
//!
//! The daemon adopts the process as a job of one, as it does for members of groups. This program forwards between the two until one
//! of them closes the connection. If no daemon adopts the process, this program prints the reason, and [`singleton`] serves the
//! process.
//!
//! The dialogue is that of MPICH's singletons (4.0 to 5.0): this program sends `singinit`, the process answers `singinit`, this program
//! sends `singinit_info`. The rest is a rank's dialogue.

mod singleton;

use std::ffi::OsString;
use std::io::{self, BufRead, BufReader, Read, Write};
use std::net::{Ipv4Addr, Shutdown, TcpStream};
use std::time::Duration;

use nix::unistd::{getppid, setsid};
use rsd_proto::join::{Go, Join};
use rsd_proto::transport::exit::USAGE;

use crate::dvm::Dvm;
use crate::exit::Failure;
use crate::group::join;
use crate::report;

/// The first argument of an MPI library's call.
pub(super) const ADOPT: &str = "-pmi_args";
/// Deadline for each line of the dialogue, and for the daemon's answer.
const TALK: Duration = Duration::from_secs(30);
/// The KVS name of a process that no daemon has adopted.
const UNMANAGED: &str = "singinit";
/// No line of PMI-1 is longer.
const LINE_BYTES_MAX: u64 = 4096;

/// Returns the port at which the parent process needs a process manager.
pub(super) fn port(args: &[OsString]) -> Result<u16, Failure> {
    let port = args.get(1).and_then(|port| port.to_str()?.parse().ok()).filter(|port| *port > 0);
    port.ok_or_else(|| Failure::usage("mpiexec -pmi_args is for MPI libraries and needs a port number"))
}

/// Serves the parent process until it ends.
pub(super) fn adopt(port: u16, dvm: &Dvm) -> Result<u8, Failure> {
    let process = TcpStream::connect((Ipv4Addr::LOCALHOST, port))
        .map_err(|error| Failure::new(USAGE, format!("cannot connect to port {port} of -pmi_args: {error}")))?;
    // Signals of the terminal are for the parent process to handle.
    let _ = setsid();
    let lost = |error: io::Error| Failure::unreachable(format!("cannot serve the process that runs mpiexec: {error}"));
    match taken_in(dvm) {
        Ok((go, manager)) => {
            let process = greet(process, &go.namespace).map_err(lost)?;
            between(process, manager).map_err(lost)?;
            Ok(0)
        }
        Err(failure) => {
            let process = greet(process, UNMANAGED).map_err(lost)?;
            let code = report(&failure, false);
            singleton::serve(process).map_err(lost)?;
            Ok(code)
        }
    }
}

/// Joins for the parent process. Returns its place and a connection to its process manager.
fn taken_in(dvm: &Dvm) -> Result<(Go, Talk), Failure> {
    let go = join::join(&dvm.find()?, request())?;
    match introduce(&go) {
        Ok(manager) => Ok((go, manager)),
        Err(error) => {
            Err(Failure::unreachable(format!("cannot reach the process manager at {}: {error}", go.pmi_port)))
        }
    }
}

fn request() -> Join {
    Join { pid: u32::try_from(getppid().as_raw()).ok(), ..Join::default() }
}

/// Connects as the process with this place, up to the rank's first request.
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
    // The process keeps its standard streams.
    process.say(&format!("cmd=singinit_info versionok=yes stdio=no kvsname={namespace}\n"))?;
    Ok(process)
}

/// Forwards in both directions until both sides have closed.
fn between(process: Talk, manager: Talk) -> io::Result<()> {
    let (to_process, to_manager) = (process.stream.try_clone()?, manager.stream.try_clone()?);
    std::thread::scope(|scope| {
        scope.spawn(|| pass_on(manager, to_process));
        pass_on(process, to_manager);
    });
    Ok(())
}

fn pass_on(mut from: Talk, mut to: TcpStream) {
    // The other side must see the end of the stream, whether or not the copy failed.
    let _ = from.stream.set_read_timeout(None);
    let _ = io::copy(&mut from.reader, &mut to);
    let _ = to.shutdown(Shutdown::Write);
}

/// A connection to the process or its manager. It is read line by line until forwarding begins.
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
                Err(io::Error::other(format!("unexpected {:?} instead of {expected:?}", line.trim_end())))
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_library_names_its_port() {
        let port = |args: &[&str]| port(&args.iter().map(OsString::from).collect::<Vec<_>>());
        assert_eq!(port(&["-pmi_args", "4111", "default_interface", "default_key", "7"]), Ok(4111));
        for args in [&["-pmi_args"][..], &["-pmi_args", "0"], &["-pmi_args", "x"]] {
            assert!(port(args).is_err(), "{args:?}");
        }
    }
}
