//! The ports of this process (MPI 5.0 §11.9.1).

use std::time::{Duration, Instant};

use crate::abi::constants::MPI_ERR_PORT;
use crate::error::{MpiError, MpiResult};
use crate::runtime::State;
use crate::transport::port::{Port, PortName};

/// Those that are open, a few at most.
#[derive(Debug, Default)]
pub struct Ports(Vec<Port>);

impl Ports {
    /// The open port of this name; an error of class `MPI_ERR_PORT` if there is none.
    pub fn get_mut(&mut self, name: &PortName) -> MpiResult<&mut Port> {
        let found = self.0.iter_mut().find(|port| port.name() == name);
        found.ok_or_else(|| MpiError::new(MPI_ERR_PORT, "no port of this name is open in this process"))
    }

    /// How long to sleep at most, so that somebody whose turn it is then is not kept waiting.
    pub(super) fn sleep_limit(&self, limit: Duration) -> Duration {
        if self.0.is_empty() {
            return limit;
        }
        let now = Instant::now();
        // What is over waits for an accept, not for the time.
        let left = self.0.iter().filter_map(|port| port.deadline()?.checked_duration_since(now));
        left.filter(|left| !left.is_zero()).min().map_or(limit, |left| left.min(limit))
    }
}

impl State {
    /// Opens a port; what others have to know.
    pub fn open_port(&mut self) -> MpiResult<PortName> {
        let failed = |error: std::io::Error| MpiError::new(MPI_ERR_PORT, format!("cannot listen: {error}"));
        let owner = self.comms.names.of_rank(self.me().0);
        let Some(world) = &self.world else { return Err(MpiError::intern("the library is not open")) };
        let at = self.engine.transport().listening_address(&world.settings).map_err(failed)?;
        let port = Port::open(owner, at).map_err(failed)?;
        self.engine.transport_mut().watch(port.fd()).map_err(failed)?;
        let name = *port.name();
        self.ports.0.push(port);
        Ok(name)
    }

    /// Closes a port: who waits there is refused.
    pub fn close_port(&mut self, name: &PortName) -> MpiResult {
        self.ports.get_mut(name)?;
        self.ports.0.retain(|port| port.name() != name);
        Ok(())
    }
}

/// What the user passes as the name of a port; an error of class `MPI_ERR_PORT` if it is none.
pub fn port_name(text: &[u8]) -> MpiResult<PortName> {
    let name = str::from_utf8(text).ok().and_then(PortName::parse);
    name.ok_or_else(|| {
        let shown: String = String::from_utf8_lossy(text).chars().take(40).collect();
        MpiError::new(
            MPI_ERR_PORT,
            format!("{shown:?} is not the name of a port as MPI_Open_port of this library says it"),
        )
    })
}
