//! Rails: further connections of a link, one for each further interface that the user has named, over which long messages go at the
//! same time as over the first.
//!
//! The main connection gives the order: only a payload of [`LONG`](super::lanes::LONG) bytes or more is cut into slices ([`super::lanes`]), of which the first
//! goes on the main connection behind the frame's head, and the others on rails, which carry nothing else ([`super::wire`]). A slice that
//! a socket does not accept is copied and sent later; until then, no other long frame is accepted.
//!
//! A link gets its rails when the first long frame goes over it:
//!
//! ```text
//! process that has dialled the main connection         the other process
//!                    Want   →                                                 unless that has something long to send first
//!                           ←   Offer, for each further interface             it listens there
//!   it dials each rail      →                                                 the usual handshake, with a secret of link and rail
//!                  Joined   →                                                 from now on the other process also uses the rail
//! ```
//!
//! The process that could dial the main connection can most likely dial the rails. It pairs interfaces of one network, and the rest in
//! order. If a rail cannot be connected, the link goes on without it. If an open one breaks, the peer is lost, since data are missing.
//!
//! Cost without a list of interfaces: a comparison for each long frame. With one: a listening socket for each further interface, a
//! connection for each rail of each link that carries long frames, and three system calls for each slice.

use std::io;
use std::net::{IpAddr, SocketAddr, TcpListener, TcpStream};
use std::time::Instant;

use super::directory::Way;
use super::end::End;
use super::handshake::{Dial, Greeting, ToRail};
use super::hello::Verdict;
use super::link::Link;
use super::private::Private;
use super::socket::{self, Source};
use super::wire::{BadStream, Control, Offer};
use super::{Id, Tcp};
use crate::engine::Peer;
use crate::transport::address::Interface;
use crate::transport::poller::Poller;

/// The interfaces of this process, and where it accepts rails.
#[derive(Debug)]
pub(super) struct Rails {
    /// `interfaces[rail]`; the main connections are accepted at the first.
    interfaces: Vec<Interface>,
    /// `listeners[rail]`, made when first needed.
    listeners: Vec<Option<Private<TcpListener>>>,
    /// Whether the user knows that a rail is missing.
    is_told: bool,
}

impl Rails {
    /// `None` if there are not at least two interfaces.
    pub(super) fn new(interfaces: Vec<Interface>) -> Option<Box<Self>> {
        let listeners = interfaces.iter().map(|_| None).collect();
        (interfaces.len() > 1).then(|| Box::new(Self { interfaces, listeners, is_told: false }))
    }

    /// How sockets are bound to an interface.
    fn source(&self, interface: &Interface) -> Source {
        let others = || self.interfaces.iter().filter(|other| other.address != interface.address);
        let is_ambiguous = !interface.loopback && others().any(|other| other.reaches(interface.address));
        Source { address: interface.address, device: is_ambiguous.then(|| interface.name.clone()) }
    }

    /// The listening address of a rail.
    fn listen(&mut self, rail: usize, poller: &Poller) -> io::Result<SocketAddr> {
        if let Some(listener) = &self.listeners[rail] {
            return listener.local_addr();
        }
        let listener = socket::listen_at(&self.source(&self.interfaces[rail]))?;
        poller.add(&listener, Id::Listener.token())?;
        let address = listener.local_addr()?;
        self.listeners[rail] = Some(Private::new(listener));
        Ok(address)
    }

    pub(super) fn listener(&self, rail: u8) -> Option<&TcpListener> {
        self.listeners.get(usize::from(rail))?.as_deref()
    }

    #[cfg(test)]
    pub(super) fn close_listeners(&mut self) {
        self.listeners.iter_mut().for_each(|listener| *listener = None);
    }

    #[cfg(test)]
    pub(super) fn is_told(&self) -> bool {
        self.is_told
    }

    /// The numbers of the rails.
    pub(super) fn numbers(&self) -> std::ops::Range<u8> {
        1..self.interfaces.len() as u8
    }

    /// Which of this process's interfaces goes with which offer, if the main connection leaves from the address `main`.
    fn pairs(&self, main: IpAddr, offers: &[Offer]) -> Vec<(Offer, Source)> {
        let used = self.interfaces.iter().position(|it| it.address == main).unwrap_or(0);
        let mut free: Vec<&Interface> = self.interfaces.iter().collect();
        free.remove(used);
        let mut pairs = Vec::new();
        let mut rest = offers.to_vec();
        for is_of_network in [true, false] {
            rest.retain(|offer| {
                let ip = offer.address.ip();
                let fits = |it: &&Interface| it.reaches(ip) || (!is_of_network && it.address.is_ipv4() == ip.is_ipv4());
                let found = free.iter().position(fits);
                pairs.extend(found.map(|at| (*offer, self.source(free.remove(at)))));
                found.is_none()
            });
        }
        pairs
    }
}

impl Link {
    /// Whether both processes are on one machine: then no interface carries the connection. The user may have named loopback addresses.
    fn is_near(&self) -> bool {
        let here = self.socket.local_addr().map(|address| address.ip());
        here.is_ok_and(|here| here == self.address.ip() && !here.is_loopback())
    }
}

impl Tcp {
    /// A long frame goes over this link, and this process has several interfaces.
    #[cold]
    pub(super) fn use_rails(&mut self, id: u32) {
        let Some(link) = self.links.get_mut(id).filter(|link| link.lanes.is_none()) else { return };
        let (is_near, dialled) = (link.is_near(), link.dialled);
        link.lanes = Some(Box::default());
        match (is_near, dialled) {
            (true, _) => {}
            (false, true) => self.say(id, Control::Want),
            (false, false) => self.offer(id),
        }
    }

    fn say(&mut self, id: u32, record: Control) {
        if let Some(link) = self.links.get_mut(id) {
            link.say(record, &mut self.spare);
            self.activate(id);
        }
    }

    /// Offers a rail for each further interface.
    fn offer(&mut self, id: u32) {
        let (Some(rails), Some(link)) = (&mut self.rails, self.links.get_mut(id)) else { return };
        let mut ticket = [0; 8];
        let Some(name) = self.directory.name(link.peer) else { return };
        if link.is_near() || getrandom::fill(&mut ticket).is_err() {
            return;
        }
        let ticket = u64::from_ne_bytes(ticket);
        let mut offers = Vec::new();
        let mut failed = None;
        for rail in rails.numbers() {
            match rails.listen(rail.into(), &self.poller) {
                Ok(address) => offers.push(Offer { rail, left: 0, address, ticket }),
                Err(error) => failed = Some((rails.interfaces[usize::from(rail)].address, error)),
            }
        }
        link.lanes.get_or_insert_default().ticket = Some((name, ticket));
        self.own.tickets.insert(name, ticket);
        let count = offers.len() as u8;
        for (mut offer, at) in offers.into_iter().zip(1..) {
            offer.left = count - at;
            self.say(id, Control::Offer(offer));
        }
        if let Some((address, error)) = failed {
            self.lack_rail(&format!("cannot listen at {address}: {error}"));
        }
    }

    /// Handles the records that have arrived on a link.
    #[cold]
    pub(super) fn on_heard(&mut self, id: u32) -> Result<(), End> {
        let heard = self.links.get_mut(id).map(Link::heard).unwrap_or_default();
        for record in heard {
            let Some(link) = self.links.get_mut(id) else { return Ok(()) };
            let dialled = link.dialled;
            let lanes = link.lanes.get_or_insert_default();
            match record {
                Control::Want if dialled => return Err(BadStream::Unexpected.into()),
                Control::Want if lanes.ticket.is_none() => self.offer(id),
                Control::Want => {}
                Control::Offer(offer) => {
                    let is_next = lanes.offers.last().is_none_or(|last| last.left == offer.left + 1);
                    if !dialled || !is_next || lanes.offers.iter().any(|other| other.rail == offer.rail) {
                        return Err(BadStream::Unexpected.into());
                    }
                    lanes.offers.push(offer);
                    if offer.left == 0 {
                        self.dial_rails(id);
                    }
                }
                Control::Joined(rail) if dialled || !lanes.join(rail) => return Err(BadStream::Rail(rail).into()),
                Control::Joined(_) => {}
                // Those are for the stream's decoder.
                Control::Cut(_) => return Err(BadStream::Unexpected.into()),
            }
        }
        Ok(())
    }

    /// Dials what the peer has offered.
    fn dial_rails(&mut self, id: u32) {
        let (Some(rails), Some(link)) = (&self.rails, self.links.get_mut(id)) else { return };
        let (Some(name), Ok(main), Some(lanes)) =
            (self.directory.name(link.peer), link.socket.local_addr(), &link.lanes)
        else {
            return;
        };
        if link.is_near() {
            return;
        }
        let (now, mut dials) = (Instant::now(), Vec::new());
        for (offer, from) in rails.pairs(main.ip(), &lanes.offers) {
            let rail = ToRail { link: id, number: offer.rail, from };
            let dial = Dial::of_rail(&self.own, link.peer, name, rail, &offer, now);
            dials.push(self.greetings.add(Greeting::Dial(dial)));
        }
        dials.into_iter().for_each(|dial| self.greet(dial, now));
    }

    /// A dialled rail is open.
    pub(super) fn join_rail(&mut self, rail: &ToRail, address: SocketAddr, socket: TcpStream) {
        // It cannot fail: the socket is in the set, and nothing is added.
        let _ = self.poller.change(&socket, Id::Link(rail.link).token());
        let Some(link) = self.links.get_mut(rail.link) else { return };
        if link.lanes.get_or_insert_default().add(rail.number, socket, address, true) {
            link.open_rail(rail.number);
            self.say(rail.link, Control::Joined(rail.number));
        }
    }

    /// A connection to the port of a rail has proved that it belongs to this process's link.
    pub(super) fn admit_rail(&mut self, greeting: u32, peer: Option<Peer>) {
        let Some(Greeting::Answer(answer)) = self.greetings.take(greeting) else { return };
        let id = match peer.and_then(|peer| self.directory.way(peer)) {
            Some(Way::Open(id)) => id,
            Some(Way::Unused | Way::Wanted | Way::Dialled(_) | Way::Lost | Way::Over) | None => u32::MAX,
        };
        let link = self.links.get_mut(id);
        let link = link.filter(|link| link.lanes.as_ref().is_some_and(|lanes| !lanes.has(answer.rail)));
        let verdict = if link.is_some() { Verdict::Welcome } else { Verdict::Over };
        let sent = answer.send_verdict(verdict);
        match (link, sent) {
            (Some(link), Ok(())) => {
                // It cannot fail: the socket is in the set, and nothing is added.
                let _ = self.poller.change(&answer.socket, Id::Link(id).token());
                link.lanes.get_or_insert_default().add(answer.rail, answer.socket, answer.address, false);
                link.open_rail(answer.rail);
            }
            (Some(_), Err(_)) | (None, _) => self.poller.remove(&answer.socket),
        }
    }

    /// A link goes on without one of its rails; the user learns it once.
    pub(super) fn lack_rail(&mut self, why: &str) {
        if let Some(rails) = &mut self.rails
            && !std::mem::replace(&mut rails.is_told, true)
        {
            eprintln!("rsd: long messages do not use all interfaces of RSD_MPI_INTERFACE: {why}");
        }
    }

    /// Ends everything that belongs to the rails of a link, which is over.
    pub(super) fn close_rails(&mut self, id: u32, link: &Link) {
        let Some(lanes) = &link.lanes else { return };
        lanes.sockets().for_each(|socket| self.poller.remove(socket));
        if let Some((name, ticket)) = lanes.ticket
            && self.own.tickets.get(&name) == Some(&ticket)
        {
            self.own.tickets.remove(&name);
        }
        let is_of_link = |(greeting, it): (u32, &Greeting)| match it {
            Greeting::Dial(dial) => dial.rail.as_ref().filter(|rail| rail.link == id).map(|_| greeting),
            Greeting::Answer(_) => None,
        };
        let dials: Vec<u32> = self.greetings.iter().filter_map(is_of_link).collect();
        dials.into_iter().for_each(|dial| self.drop_greeting(dial));
    }
}
