//! Where a process is and how to reach it, as processes of different jobs tell each other.
//!
//! Within a job all of this follows from the launcher's information. Between jobs, a process introduces itself in words that
//! other processes forward ([`Endpoint::to_words`]).

use std::net::{IpAddr, Ipv6Addr, SocketAddr};

use super::name::ProcessName;

/// The environment variable with the launcher's name of this node; several nodes on one machine have different names.
const NODE_NAME: &str = "RSD_NODE_NAME";

/// The node of a process.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Node {
    /// A hash of boot, network namespace and user: equal for processes that can share memory.
    machine: u64,
    /// A hash of the launcher's name of the node; 0 if the launcher does not name it.
    label: u64,
}

impl Node {
    /// The node of this process.
    pub fn here() -> Self {
        let boot = std::fs::read("/proc/sys/kernel/random/boot_id").unwrap_or_default();
        // Abstract unix sockets belong to the network namespace.
        let namespace = nix::sys::stat::stat("/proc/self/ns/net").map_or(0, |stat| stat.st_ino);
        let user = nix::unistd::geteuid().as_raw();
        let machine = hash(&[boot.trim_ascii(), &namespace.to_ne_bytes(), &user.to_ne_bytes()].concat());
        let label = std::env::var_os(NODE_NAME).map_or(0, |name| hash(name.as_encoded_bytes()));
        Self { machine, label }
    }

    /// Whether both are the same node. A process without a launcher's label is on every node of its machine.
    pub fn is(self, other: Self) -> bool {
        self.machine == other.machine && (self.label == other.label || self.label == 0 || other.label == 0)
    }

    /// Encodes the node as words.
    pub fn to_words(self) -> [u64; 2] {
        [self.machine, self.label]
    }

    /// Decodes the node from words.
    pub fn from_words(words: [u64; 2]) -> Self {
        let [machine, label] = words;
        Self { machine, label }
    }

    /// A non-negative number that is equal for processes on one node, and equal on different nodes only by chance.
    pub fn colour(self) -> i32 {
        let mixed = (self.machine ^ self.label.rotate_left(32)).wrapping_mul(PRIME);
        (mixed >> 33) as i32
    }
}

const PRIME: u64 = 0x0100_0000_01b3;

/// FNV-1a; never 0.
fn hash(bytes: &[u8]) -> u64 {
    bytes.iter().fold(0xcbf2_9ce4_8422_2325, |hash, byte| (hash ^ u64::from(*byte)).wrapping_mul(PRIME)).max(1)
}

/// The introduction of a process to others.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Endpoint {
    /// The name of the process.
    pub name: ProcessName,
    /// The node of the process.
    pub node: Node,
    /// Whether it shares memory with other processes of its node.
    pub shares: bool,
    /// Whether it is connected to processes of other jobs, or waits for the farewell of some.
    pub knows_foreign: bool,
    /// The address where it listens for processes on other nodes, if it does.
    pub address: Option<SocketAddr>,
}

/// The number of words of an endpoint.
pub const WORDS: usize = 8;

impl Endpoint {
    /// Whether the two communicate through shared memory rather than TCP.
    pub fn shares_memory_with(&self, other: &Self) -> bool {
        self.shares && other.shares && self.node.is(other.node)
    }

    /// Encodes the endpoint as words.
    pub fn to_words(self) -> [u64; WORDS] {
        let world = u128::from_be_bytes(self.name.world);
        let (ip, port) = self.address.map_or((Ipv6Addr::UNSPECIFIED, 0), |address| {
            let ip = match address.ip() {
                IpAddr::V4(ip) => ip.to_ipv6_mapped(),
                IpAddr::V6(ip) => ip,
            };
            (ip, address.port())
        });
        let ip = u128::from(ip);
        let shares = u64::from(self.shares) | u64::from(self.knows_foreign) << 2;
        let flags = shares | u64::from(self.address.is_some()) << 1 | u64::from(port) << 16;
        let Node { machine, label } = self.node;
        let rank = u64::from(self.name.rank);
        [(world >> 64) as u64, world as u64, rank, machine, label, flags, (ip >> 64) as u64, ip as u64]
    }

    /// Decodes an endpoint; `None` if [`Endpoint::to_words`] cannot have made these words.
    pub fn from_words(words: &[u64]) -> Option<Self> {
        let &[high, low, rank, machine, label, flags, ip_high, ip_low] = words else { return None };
        let world = (u128::from(high) << 64 | u128::from(low)).to_be_bytes();
        let name = ProcessName { world, rank: u32::try_from(rank).ok()? };
        let ip = Ipv6Addr::from(u128::from(ip_high) << 64 | u128::from(ip_low));
        let ip = ip.to_ipv4_mapped().map_or(IpAddr::V6(ip), IpAddr::V4);
        let port = u16::try_from(flags >> 16).ok()?;
        if flags & 0xffff > 7 {
            return None;
        }
        let address = (flags & 2 != 0).then_some(SocketAddr::new(ip, port));
        Some(Self {
            name,
            node: Node { machine, label },
            shares: flags & 1 != 0,
            knows_foreign: flags & 4 != 0,
            address,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn node(machine: u64, label: u64) -> Node {
        Node { machine, label }
    }

    #[test]
    fn an_encoded_introduction_decodes_and_nothing_else_does() {
        for address in [None, Some("10.0.0.7:4411"), Some("[fd00::7]:65535"), Some("[::1]:0")] {
            for (shares, knows_foreign) in [(true, false), (false, true), (true, true), (false, false)] {
                let address = address.map(|it| it.parse().unwrap());
                let (name, node) = (ProcessName::new(b"kvs", 70_000), node(3, u64::MAX));
                let one = Endpoint { name, node, shares, knows_foreign, address };
                let words = one.to_words();
                assert_eq!(Endpoint::from_words(&words), Some(one));
                assert_eq!(Endpoint::from_words(&words[..7]), None);
                for (at, wrong) in [(2, 1 << 32), (5, 8), (5, 1 << 32)] {
                    let mut changed = words;
                    changed[at] |= wrong;
                    assert_eq!(Endpoint::from_words(&changed), None, "{at}");
                }
            }
        }
    }

    #[test]
    fn nodes_of_one_machine_differ_by_their_labels_if_both_have_one() {
        assert!(node(1, 2).is(node(1, 2)) && !node(1, 2).is(node(1, 3)) && !node(1, 2).is(node(4, 2)));
        assert!(node(1, 0).is(node(1, 3)) && node(1, 3).is(node(1, 0)) && !node(1, 0).is(node(2, 0)));
        assert!(Node::here().is(Node::here()) && Node::here().machine != 0);
        assert_eq!(node(1, 2).colour(), node(1, 2).colour());
        assert_ne!(node(1, 2).colour(), node(1, 3).colour());
        assert!([0, 1, u64::MAX].iter().all(|word| node(*word, 1).colour() >= 0));
    }
}
