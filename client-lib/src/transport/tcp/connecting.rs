//! How connections begin and end: the decisions about dials, answers and deadlines.

use std::io::ErrorKind;
use std::net::SocketAddr;
use std::time::Instant;

use super::directory::Way;
use super::end::End;
use super::handshake::{Answer, Dial, Dialled, Greeting, Progress};
use super::hello::Verdict;
use super::link::Link;
use super::reaching::Manner;
use super::{Id, LOOK, REST, Tcp, UNIDENTIFIED_MAX, socket};
use crate::engine::Peer;
use crate::transport::name::ProcessName;

impl Tcp {
    pub(super) fn dial(&mut self, peer: Peer, name: ProcessName, address: SocketAddr) {
        let now = Instant::now();
        let dial = match self.reaching.manner(peer) {
            Manner::Dial => Dial::new(&self.own, peer, name, address, now),
            Manner::Both => Dial::new(&self.own, peer, name, address, now).or_await(now + self.own.connect_limit),
            Manner::Await => Dial::awaiting(&self.own, peer, name, address, now),
        };
        let id = self.greetings.add(Greeting::Dial(dial));
        self.directory.set(peer, Way::Dialled(id));
        self.watch(id);
        self.greet(id, now);
    }

    /// Makes the poller report the handshake's new socket.
    fn watch(&mut self, id: u32) {
        let socket = match self.greetings.get(id) {
            Some(Greeting::Dial(dial)) => dial.socket(),
            Some(Greeting::Answer(answer)) => Some(&answer.socket),
            None => None,
        };
        if let Some(socket) = socket {
            // Only memory can be missing; then the deadline of the attempt ends it.
            let _ = self.poller.add(socket, Id::Greeting(id).token());
        }
    }

    pub(super) fn greet(&mut self, id: u32, now: Instant) {
        match self.greetings.get_mut(id) {
            Some(Greeting::Dial(_)) => self.advance_dial(id, now),
            Some(Greeting::Answer(_)) => self.advance_answer(id, now),
            // The report is older than the connection's last change.
            None => {}
        }
    }

    fn advance_dial(&mut self, id: u32, now: Instant) {
        if self.is_coming(id, now) {
            return;
        }
        let Some(Greeting::Dial(dial)) = self.greetings.get_mut(id) else { return };
        let (peer, address) = (dial.peer, dial.address);
        let rail = dial.rail.clone();
        match (dial.advance(&self.own, now), rail) {
            (Dialled::Wait, _) => {}
            (Dialled::Watch, _) => self.watch(id),
            (Dialled::Open(socket), rail) => {
                self.greetings.take(id);
                match rail {
                    Some(rail) => self.join_rail(&rail, address, socket),
                    None => self.open(Link::new(socket, peer, address, true)),
                }
            }
            (Dialled::Failed(why), rail) => {
                self.drop_greeting(id);
                match rail {
                    Some(rail) => {
                        let (who, from) = (self.directory.call(peer), rail.from.address);
                        self.lack_rail(&format!("{who} is unreachable at {address} from {from}: {why}"));
                    }
                    None => self.lose(peer, Some(address), &format!("it is unreachable: {why}")),
                }
            }
        }
    }

    /// Whether the peer's own dial, which is overdue, has arrived after all. Then its handshake is waited for without limit, because
    /// the peer may be computing.
    fn is_coming(&mut self, id: u32, now: Instant) -> bool {
        let Some(Greeting::Dial(dial)) = self.greetings.get(id) else { return false };
        let Some(name) = dial.overdue(now) else { return false };
        // This process may have been computing: its system has accepted connections that it has not seen.
        self.accept(now);
        let is_of_peer = |greeting: &Greeting| match greeting {
            Greeting::Answer(answer) => answer.rail == 0 && answer.from() == Some(name),
            Greeting::Dial(_) => false,
        };
        let is_coming = self.greetings.iter().any(|(_, greeting)| is_of_peer(greeting));
        if let Some(Greeting::Dial(dial)) = self.greetings.get_mut(id).filter(|_| is_coming) {
            dial.await_longer(now + self.own.connect_limit);
        }
        is_coming
    }

    pub(super) fn accept(&mut self, now: Instant) {
        self.resting = None;
        self.accept_at(0, now);
        let rails = self.rails.as_ref().map_or(0..0, |rails| rails.numbers());
        rails.for_each(|rail| self.accept_at(rail, now));
    }

    /// Accepts main connections (0) or those of one rail.
    fn accept_at(&mut self, rail: u8, now: Instant) {
        loop {
            let listener = match &self.rails {
                Some(rails) if rail > 0 => rails.listener(rail),
                Some(_) | None => Some(&*self.listener),
            };
            let Some(listener) = listener else { return };
            match listener.accept() {
                Ok((socket, address)) => {
                    let Ok(answer) = Answer::new(&self.own, socket, address, rail, now) else { continue };
                    self.make_room();
                    let id = self.greetings.add(Greeting::Answer(answer));
                    self.watch(id);
                    self.advance_answer(id, now);
                }
                Err(error) => match error.kind() {
                    ErrorKind::WouldBlock => return,
                    ErrorKind::ConnectionAborted | ErrorKind::Interrupted => {}
                    // No descriptors or no memory: pending connections are accepted later.
                    _ => {
                        self.resting = Some(now + REST);
                        return;
                    }
                },
            }
        }
    }

    /// If there are too many silent connections, closes the one that has been silent for longest.
    fn make_room(&mut self) {
        let unidentified = self.greetings.iter().filter_map(|(id, greeting)| match greeting {
            Greeting::Answer(answer) => Some((answer.deadline()?, id)),
            Greeting::Dial(_) => None,
        });
        let (count, oldest) = unidentified.fold((0, None), |(count, oldest), one| {
            (count + 1, Some(oldest.map_or(one, |oldest: (Instant, u32)| oldest.min(one))))
        });
        if let Some((_, id)) = oldest.filter(|_| count >= UNIDENTIFIED_MAX) {
            self.refuse(id);
        }
    }

    fn advance_answer(&mut self, id: u32, now: Instant) {
        let Some(Greeting::Answer(answer)) = self.greetings.get_mut(id) else { return };
        match answer.advance(&self.own, now) {
            Progress::Wait => {}
            Progress::Refused => self.refuse(id),
            Progress::Gone => self.drop_greeting(id),
            Progress::Named(name) => {
                self.drop_older(id, name);
                // The proof may have arrived already.
                self.advance_answer(id, now);
            }
            Progress::Proved(name) if answer.rail > 0 => self.admit_rail(id, self.directory.find(name)),
            Progress::Proved(name) => self.welcome(id, name),
        }
    }

    /// A process has only one handshake for each connection at a time: it has given up the older one.
    fn drop_older(&mut self, id: u32, name: ProcessName) {
        let rail = match self.greetings.get(id) {
            Some(Greeting::Answer(answer)) => answer.rail,
            Some(Greeting::Dial(_)) | None => return,
        };
        let older = self.greetings.iter().find(|(other, greeting)| match greeting {
            Greeting::Answer(answer) => *other != id && answer.rail == rail && answer.from() == Some(name),
            Greeting::Dial(_) => false,
        });
        if let Some((older, _)) = older {
            self.drop_greeting(older);
        }
    }

    /// Decides about a connection whose other end has proved its identity.
    fn welcome(&mut self, id: u32, name: ProcessName) {
        let peer = self.directory.find(name);
        let verdict = match peer.and_then(|peer| self.directory.way(peer)) {
            None => Verdict::Later,
            Some(Way::Unused | Way::Wanted) => Verdict::Welcome,
            Some(Way::Dialled(own)) if self.own.me < name && self.may_be_taken(own) => Verdict::Yield,
            Some(Way::Dialled(own)) => {
                self.drop_greeting(own);
                Verdict::Welcome
            }
            Some(Way::Open(_) | Way::Lost | Way::Over) => Verdict::Over,
        };
        let Some(Greeting::Answer(answer)) = self.greetings.take(id) else { return };
        let sent = answer.send_verdict(verdict);
        match (verdict, peer) {
            // Even if the verdict cannot be sent: then the new link ends at once, with the reason.
            (Verdict::Welcome, Some(peer)) => self.open(Link::new(answer.socket, peer, answer.address, false)),
            (Verdict::Welcome | Verdict::Yield | Verdict::Later | Verdict::Over, _) => {
                drop(sent);
                self.poller.remove(&answer.socket);
            }
        }
    }

    /// Whether the peer may have accepted this dial as the connection between the two.
    pub(super) fn may_be_taken(&self, id: u32) -> bool {
        match self.greetings.get(id) {
            Some(Greeting::Dial(dial)) => dial.may_be_taken(),
            Some(Greeting::Answer(_)) | None => false,
        }
    }

    fn refuse(&mut self, id: u32) {
        self.refused += 1;
        self.drop_greeting(id);
    }

    pub(super) fn drop_greeting(&mut self, id: u32) {
        match self.greetings.take(id) {
            Some(Greeting::Dial(dial)) => {
                if let Some(socket) = dial.socket() {
                    self.poller.remove(socket);
                }
            }
            Some(Greeting::Answer(answer)) => self.poller.remove(&answer.socket),
            None => {}
        }
    }

    fn open(&mut self, link: Link) {
        let peer = link.peer;
        self.reaching.needs(peer);
        let id = self.links.add(link);
        self.directory.set(peer, Way::Open(id));
        if let Some(link) = self.links.get(id) {
            // It cannot fail: the socket is in the set, and nothing is added.
            let _ = self.poller.change(&link.socket, Id::Link(id).token());
        }
        self.activate(id);
    }

    pub(super) fn end(&mut self, id: u32, end: &End) {
        let Some(link) = self.close(id) else { return };
        let is_current = self.directory.way(link.peer) == Some(Way::Open(id));
        match end {
            _ if link.is_left() => {}
            End::Orderly if is_current => self.directory.set(link.peer, Way::Over),
            End::Orderly => {}
            End::Closed | End::Io(_) | End::Bad(_) | End::Silent | End::RailSilent(_) if is_current => {
                self.lose(link.peer, Some(link.address), &end.to_string());
            }
            // This process has said farewell; its peer has not.
            End::Closed | End::Io(_) | End::Bad(_) | End::Silent | End::RailSilent(_) => {
                self.losses.push_back((link.peer, format!("a process at {}: {end}", link.address)));
            }
        }
    }

    pub(super) fn close(&mut self, id: u32) -> Option<Link> {
        let link = self.links.take(id)?;
        self.poller.remove(&link.socket);
        self.close_rails(id, &link);
        self.leave(id, link.address.ip(), &link.standing);
        self.lossy -= usize::from(link.is_lossy());
        Some(link)
    }

    pub(super) fn lose(&mut self, peer: Peer, address: Option<SocketAddr>, why: &str) {
        // As long as nothing is sent to it, it does not matter; a send dials again.
        if self.reaching.needs(peer) {
            return self.directory.set(peer, Way::Unused);
        }
        self.directory.set(peer, Way::Lost);
        let who = self.directory.call(peer);
        let reason = match address {
            Some(address) => format!("{who} ({address}): {why}"),
            None => format!("{who}: {why}"),
        };
        self.losses.push_back((peer, reason));
    }

    /// Handles everything that is due; returns the time.
    pub(super) fn look_at_clock(&mut self) -> Instant {
        let now = Instant::now();
        if self.greetings.len() > 0 {
            for id in self.greetings.ids() {
                let deadline = match self.greetings.get(id) {
                    Some(Greeting::Dial(dial)) => dial.deadline(),
                    Some(Greeting::Answer(answer)) => answer.deadline(),
                    None => None,
                };
                if deadline.is_some_and(|deadline| deadline <= now) {
                    self.greet(id, now);
                }
            }
        }
        if self.resting.is_some_and(|until| until <= now) {
            self.accept(now);
        }
        if self.next_look <= now {
            self.next_look = now + LOOK;
            self.forget_losses(now);
            let silent = |(id, link): (u32, &Link)| match link.lanes.as_ref().and_then(|lanes| lanes.silent()) {
                Some(rail) => Some((id, End::RailSilent(rail))),
                None => socket::is_silent(&link.socket).then_some((id, End::Silent)),
            };
            let silent = self.links.iter().filter_map(silent).collect::<Vec<_>>();
            for (id, end) in silent {
                self.active.retain(|active| *active != id);
                self.end(id, &end);
            }
        }
        if self.admission.is_waiting() {
            self.relieve(now);
        }
        now
    }
}
