//! The ports of this process (MPI 5.0 §11.9.1).

use std::time::{Duration, Instant};

use crate::abi::constants::MPI_ERR_PORT;
use crate::error::{MpiError, MpiResult};
use crate::settings::Settings;
use crate::transport::Routes;
use crate::transport::name::ProcessName;
use crate::transport::port::{Port, PortName};

/// The open ports, usually few.
#[derive(Debug, Default)]
pub struct Ports(Vec<Port>);

impl Ports {
    /// The open port of this name; fails with class `MPI_ERR_PORT` if there is none.
    pub fn get_mut(&mut self, name: &PortName) -> MpiResult<&mut Port> {
        let found = self.0.iter_mut().find(|port| port.name() == name);
        found.ok_or_else(|| MpiError::new(MPI_ERR_PORT, "no port of this name is open in this process"))
    }

    /// Opens a port of this process; what others have to know.
    pub(super) fn open(&mut self, owner: ProcessName, routes: &mut Routes, settings: &Settings) -> MpiResult<PortName> {
        let failed = |error: std::io::Error| MpiError::new(MPI_ERR_PORT, format!("cannot listen: {error}"));
        let at = routes.listening_address(settings).map_err(failed)?;
        let port = Port::open(owner, at).map_err(failed)?;
        routes.watch(port.fd()).map_err(failed)?;
        let name = *port.name();
        self.0.push(port);
        Ok(name)
    }

    /// Closes a port: processes that wait there are refused.
    pub fn close(&mut self, name: &PortName) -> MpiResult {
        self.get_mut(name)?;
        self.0.retain(|port| port.name() != name);
        Ok(())
    }

    /// The longest time to sleep, so that the next caller to serve is not delayed.
    pub(super) fn sleep_limit(&self, limit: Duration) -> Duration {
        if self.0.is_empty() {
            return limit;
        }
        let now = Instant::now();
        // A deadline that has passed waits for an accept, not for the time.
        let left = self.0.iter().filter_map(|port| port.deadline()?.checked_duration_since(now));
        left.filter(|left| !left.is_zero()).min().map_or(limit, |left| left.min(limit))
    }
}

/// Decodes a port name from the user; fails with class `MPI_ERR_PORT` if it is invalid.
pub fn port_name(text: &[u8]) -> MpiResult<PortName> {
    let name = str::from_utf8(text).ok().and_then(PortName::parse);
    name.ok_or_else(|| {
        let shown: String = String::from_utf8_lossy(text).chars().take(40).collect();
        MpiError::new(MPI_ERR_PORT, format!("{shown:?} is not the name of a port from this library's MPI_Open_port"))
    })
}
