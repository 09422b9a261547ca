//! Transports to processes of other jobs. They are set up when the first such process needs them: shared memory, a
//! listening socket and a set to sleep on.

use std::io;
use std::net::IpAddr;
use std::os::fd::AsFd;
use std::sync::Arc;

use super::{Route, Routes, tcp};
use crate::engine::Peer;
use crate::settings::Settings;
use crate::transport::address;
use crate::transport::endpoint::{Endpoint, Node};
use crate::transport::name::ProcessName;
use crate::transport::poller::{Owner, Poller, Token};
use crate::transport::shm::{Shm, ShmConfig};
use crate::transport::tcp::{Listen, Tcp, TcpConfig};

/// A process of another job that this process becomes connected to.
#[derive(Debug)]
pub struct ForeignPeer<'a> {
    /// The other process's introduction.
    pub theirs: &'a Endpoint,
    /// This process's introduction to it.
    pub ours: &'a Endpoint,
    /// A secret that only the two processes know.
    pub secret: [u8; 32],
}

impl Routes {
    /// Returns this process's introduction to processes of another job. With `listens`, this process listens for peers
    /// on other nodes from now on.
    pub fn own_endpoint(
        &mut self,
        me: ProcessName,
        settings: &Settings,
        listens: bool,
        knows_foreign: bool,
    ) -> io::Result<Endpoint> {
        let address = if listens { Some(self.tcp(me, settings)?.socket_address()) } else { None };
        Ok(Endpoint { name: me, node: Node::here(), shares: settings.shm, knows_foreign, address })
    }

    /// Makes this process of another job reachable as `peer`. Nothing happens until either side sends.
    pub fn add_foreign(&mut self, peer: Peer, foreign: &ForeignPeer<'_>, settings: &Settings) -> io::Result<()> {
        let ForeignPeer { theirs, ours, secret } = *foreign;
        let route = if ours.shares_memory_with(theirs) {
            self.shm(ours.name, settings)?.expect(peer, theirs.name);
            Route::Shm
        } else {
            let address = theirs.address.ok_or_else(|| io::Error::other("it did not announce a listening address"))?;
            self.tcp(ours.name, settings)?.add_foreign(peer, theirs.name, address, secret);
            Route::Tcp
        };
        let index = peer.0 as usize;
        if index >= self.routes.len() {
            self.routes.resize(index + 1, Route::Own);
        }
        self.routes[index] = route;
        Ok(())
    }

    /// Connects to a peer that is not connected, even without anything to send, so that its death is noticed.
    pub fn reach(&mut self, peer: Peer) {
        match self.route(peer) {
            Some(Route::Shm) => self.shm.iter_mut().for_each(|shm| shm.reach(peer)),
            Some(Route::Tcp) => self.tcp.iter_mut().for_each(|tcp| tcp.reach(peer)),
            Some(Route::Own) | None => {}
        }
    }

    /// As [`Routes::reach`], for a peer that may not listen yet, or not any more; on other nodes only if `far` is set.
    pub fn seek(&mut self, peer: Peer, far: bool) {
        match (self.route(peer), &mut self.shm, &mut self.tcp) {
            (Some(Route::Shm), Some(shm), _) => shm.seek(peer),
            (Some(Route::Tcp), _, Some(tcp)) if far => tcp.reach(peer),
            _ => {}
        }
    }

    /// Adds a further secret that this peer and this process share.
    pub fn learn(&mut self, peer: Peer, secret: [u8; 32]) {
        if let (Some(Route::Tcp), Some(tcp)) = (self.route(peer), &mut self.tcp) {
            tcp.learn(peer, secret);
        }
    }

    /// Records that this peer is known to listen: if it does not, it is dead.
    pub fn trust(&mut self, peer: Peer) {
        if let (Some(Route::Shm), Some(shm)) = (self.route(peer), &mut self.shm) {
            shm.trust(peer);
        }
    }

    /// As [`Routes::trust`], because all live peers listen by now; `why` is the process manager's reason why a peer
    /// does not.
    pub fn doubt(&mut self, peer: Peer, why: Option<&str>) {
        if let (Some(Route::Shm), Some(shm)) = (self.route(peer), &mut self.shm) {
            shm.doubt(peer, why);
        }
    }

    /// As [`Routes::trust`]; the peer also knows this secret.
    pub fn trust_with(&mut self, peer: Peer, secret: [u8; 32]) {
        self.trust(peer);
        if let (Some(Route::Tcp), Some(tcp)) = (self.route(peer), &mut self.tcp) {
            tcp.trust(peer, secret);
        }
    }

    /// Whether frames can go to a peer now, or could.
    pub fn is_connected(&self, peer: Peer) -> bool {
        self.shm.as_ref().is_some_and(|shm| shm.is_connected(peer))
            || self.tcp.as_ref().is_some_and(|tcp| tcp.is_connected(peer))
    }

    /// Whether this peer and this process are about to be connected: one has called the other, and may be answered by now.
    pub fn is_meeting(&self, peer: Peer) -> bool {
        self.shm.as_ref().is_some_and(|shm| shm.is_meeting(peer))
            || self.tcp.as_ref().is_some_and(|tcp| tcp.is_meeting(peer))
    }

    /// This process has said farewell to a peer, and expects at most the same from it: the peer's name may become that
    /// of another peer.
    pub fn disconnect(&mut self, peer: Peer) {
        match self.route(peer) {
            Some(Route::Shm) => self.shm.iter_mut().for_each(|shm| shm.disconnect(peer)),
            Some(Route::Tcp) => self.tcp.iter_mut().for_each(|tcp| tcp.disconnect(peer)),
            Some(Route::Own) | None => {}
        }
    }

    /// Forgets a peer after [`Routes::disconnect`]: nothing more arrives from it, and its number may become that of another
    /// peer.
    pub fn forget(&mut self, peer: Peer) {
        match self.route(peer) {
            Some(Route::Shm) => self.shm.iter_mut().for_each(|shm| shm.forget(peer)),
            Some(Route::Tcp) => self.tcp.iter_mut().for_each(|tcp| tcp.forget(peer)),
            Some(Route::Own) | None => {}
        }
        if let Some(route) = self.routes.get_mut(peer.0 as usize) {
            *route = Route::Own;
        }
    }

    /// Makes this descriptor end sleeps when it becomes readable, as long as it is open.
    pub fn watch(&mut self, descriptor: impl AsFd) -> io::Result<()> {
        self.poller()?.add(descriptor, Token { owner: Owner::Others, id: 0 })
    }

    /// Removes a descriptor that stays open.
    pub fn unwatch(&mut self, descriptor: impl AsFd) {
        if let Some(poller) = &self.poller {
            poller.remove(descriptor);
        }
    }

    /// The address at which others reach this process, or would reach it.
    pub fn listening_address(&self, settings: &Settings) -> io::Result<IpAddr> {
        match &self.tcp {
            Some(tcp) => Ok(tcp.socket_address().ip()),
            None => {
                let place = address::of(settings.interface.as_deref(), self.advertised)?;
                Ok(place.announce.unwrap_or(place.listen))
            }
        }
    }

    fn poller(&mut self) -> io::Result<&Arc<Poller>> {
        let made = match self.poller.take() {
            Some(poller) => poller,
            None => {
                let poller = Poller::new()?;
                if let Some(shm) = &self.shm {
                    poller.add(shm.fd(), Token { owner: Owner::Shm, id: 0 })?;
                }
                self.set = Some(Arc::new(poller.as_fd().try_clone_to_owned()?));
                Arc::new(poller)
            }
        };
        Ok(self.poller.insert(made))
    }

    fn tcp(&mut self, me: ProcessName, settings: &Settings) -> io::Result<&mut Tcp> {
        let made = match self.tcp.take() {
            Some(tcp) => tcp,
            None => {
                let mut secret = [0; 32];
                // No process of this job is reached that way.
                getrandom::fill(&mut secret).map_err(io::Error::from)?;
                let place = address::of(settings.interface.as_deref(), self.advertised)?;
                let config = TcpConfig {
                    me,
                    secret,
                    listen: Listen::At(place.listen),
                    advertise: place.announce,
                    rails: place.rails,
                    connect_limit: settings.connect,
                    hello_limit: settings.connect,
                    limits: tcp::LIMITS,
                };
                Tcp::new(config, Arc::clone(self.poller()?)).map_err(io::Error::other)?
            }
        };
        Ok(self.tcp.insert(made))
    }

    fn shm(&mut self, me: ProcessName, settings: &Settings) -> io::Result<&mut Shm> {
        let made = match self.shm.take() {
            Some(shm) => shm,
            None => {
                let config = ShmConfig {
                    cma: settings.cma,
                    device_ipc: settings.cuda_ipc,
                    connect_limit: settings.connect,
                    ..ShmConfig::new(me)
                };
                let shm = Shm::new(config)?;
                self.poller()?.add(shm.fd(), Token { owner: Owner::Shm, id: 0 })?;
                shm
            }
        };
        Ok(self.shm.insert(made))
    }
}
