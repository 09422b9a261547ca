//! Where ranks listen. If the job has a secret, each of its ranks starts with a listening socket. The step reports the ports of
//! this node's ranks once, when all have started, and asks for the others when a rank first wants one.
//!
//! A rank's request waits until every node has reported its ports, or has ended. The answer is kept, so a step asks once. Ranks of
//! other MPIs never ask; they cost one socket each, and the report.

use std::collections::HashMap;
use std::net::{IpAddr, SocketAddr};

use prost::Message;
use rsd_proto::pmi::losses;
use rsd_proto::ranges;
use rsd_proto::v1::{self as wire, NodePorts, up};

use super::dialect::{Asker, Reply};
use super::{Effect, Phase, Step};
use crate::NodeId;
use crate::taskmap::TaskMap;

/// The report, the pending requests and the answer.
#[derive(Debug, Default)]
pub(super) struct Listening {
    /// The report, once all ranks have started.
    located: Option<wire::Located>,
    /// The ranks of other nodes, once a daemon has answered.
    known: Option<HashMap<NodeId, NodePorts>>,
    asked: bool,
    /// Ranks here that want to know where a rank listens.
    waiting: Vec<(Asker, u32)>,
}

impl Step {
    /// Whether ranks start with a listening socket.
    pub(super) fn makes_sockets(&self) -> bool {
        !self.launch.secret.is_empty()
    }

    /// Returns the address that ranks listen on.
    pub(super) fn listens_at(&self) -> Option<IpAddr> {
        self.address.parse().ok().filter(|_| self.makes_sockets())
    }

    /// Reports the ports when the last rank has started.
    pub(super) fn settle_listening(&mut self, out: &mut Vec<Effect>) {
        let starting = |rank: &super::Rank| rank.phase == Phase::Starting;
        if self.listening.located.is_some() || !self.makes_sockets() || self.ranks.iter().any(starting) {
            return;
        }
        let ports = self.ranks.iter().map(|rank| u32::from(rank.port)).collect();
        let here = NodePorts { node: self.node, address: self.address.clone(), ports };
        let located = wire::Located { job: self.job, nodes: vec![self.node], ports: vec![here.encode_to_vec().into()] };
        self.listening.located = Some(located.clone());
        self.send(up::Body::Located(located), out);
        self.answer_waiting(out);
    }

    /// Repeats the report and the pending request on a new link.
    pub(super) fn send_listening(&self, out: &mut Vec<Effect>) {
        if let Some(located) = self.listening.located.clone() {
            self.send(up::Body::Located(located), out);
        }
        if self.listening.asked && self.listening.known.is_none() {
            self.send(up::Body::Locate(wire::Locate { job: self.job }), out);
        }
    }

    /// A rank asks where another rank listens.
    pub(super) fn locate(&mut self, asker: Asker, rank: u32, out: &mut Vec<Effect>) {
        match self.find(rank) {
            Ok(address) if self.ranks[asker.local].phase == Phase::Running => {
                let value = address.map(|address| address.to_string().into());
                self.answer(&asker, Reply::Value(value), out);
            }
            Ok(_) => {}
            Err(Unknown { is_here }) => {
                self.listening.waiting.push((asker, rank));
                if !is_here && !self.listening.asked {
                    self.listening.asked = true;
                    self.send(up::Body::Locate(wire::Locate { job: self.job }), out);
                }
            }
        }
    }

    /// Every node has reported where its ranks listen. A repeated or invalid report counts as no report.
    pub(super) fn on_locations(&mut self, locations: wire::Locations, out: &mut Vec<Effect>) {
        let nodes = locations.ports.into_iter().filter_map(|ports| NodePorts::decode(ports).ok());
        self.listening.known = Some(nodes.map(|ports| (ports.node, ports)).collect());
        self.answer_waiting(out);
    }

    /// Returns the ranks from `first` on that ranks on other machines cannot dial, as many ranges as fit into an answer; None if there
    /// are none.
    pub(super) fn dial_out(&self, first: u32) -> Option<String> {
        ranks_from(&self.map, &self.launch.dial_out, first)
    }

    fn answer_waiting(&mut self, out: &mut Vec<Effect>) {
        for (asker, rank) in std::mem::take(&mut self.listening.waiting) {
            self.locate(asker, rank, out);
        }
    }

    /// Returns where a rank listens; None if it does not listen, or the rank is unknown.
    fn find(&self, rank: u32) -> Result<Option<SocketAddr>, Unknown> {
        let Some(node) = self.map.node_of(rank) else { return Ok(None) };
        let is_here = node == self.node;
        let port = |address: &str, port: u32| {
            let port = u16::try_from(port).ok().filter(|port| *port > 0)?;
            Some(SocketAddr::new(address.parse().ok()?, port))
        };
        if is_here {
            let known = self.listening.located.is_some();
            let own = self.ranks.iter().find(|own| own.rank == rank);
            return match own.filter(|_| known) {
                Some(own) => Ok(port(&self.address, u32::from(own.port))),
                None => Err(Unknown { is_here }),
            };
        }
        let known = self.listening.known.as_ref().ok_or(Unknown { is_here })?;
        let at = self.map.local_rank(rank).unwrap_or(0) as usize;
        Ok(known.get(&node).and_then(|node| port(&node.address, *node.ports.get(at)?)))
    }
}

/// The answer is not known yet.
struct Unknown {
    is_here: bool,
}

/// Returns the ranks from `first` on that run on these nodes, as text; None if there are none.
fn ranks_from(map: &TaskMap, nodes: &[NodeId], first: u32) -> Option<String> {
    let mut ranks: Vec<u32> = nodes.iter().flat_map(|node| map.ranks_on(*node)).filter(|rank| *rank >= first).collect();
    ranks.sort_unstable();
    let mut ranges = ranges::of(ranks);
    ranges.truncate(losses::RANGES_MAX);
    (!ranges.is_empty()).then(|| losses::to_text(&ranges))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::taskmap::TaskMapBuilder;

    #[test]
    fn ranks_that_only_dial_out_are_listed_in_parts() {
        // One rank on each node in turn.
        let mut builder = TaskMapBuilder::default();
        (0..100).for_each(|rank| builder.push(rank % 2, 1));
        let map = builder.build().unwrap();
        assert_eq!(ranks_from(&map, &[], 0), None);
        assert_eq!(ranks_from(&map, &[0, 1], 7).as_deref(), Some("7-99"));
        let (mut first, mut listed) = (0, Vec::new());
        while let Some(text) = ranks_from(&map, &[1], first) {
            let ranges = losses::parse(text.as_bytes()).unwrap();
            assert!(ranges.len() <= losses::RANGES_MAX);
            first = ranges.iter().map(|range| range.1).max().unwrap() + 1;
            listed.extend(ranges);
        }
        assert_eq!(listed, (0..50).map(|at| (2 * at + 1, 2 * at + 1)).collect::<Vec<_>>());
    }
}
