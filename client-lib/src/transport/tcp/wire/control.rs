//! Records between the frames of a link: how two processes agree on rails, and how a payload is cut.
//!
//! ```text
//! 0          4        8                                                       64
//! | kind: u32 | 8: u32 | content, then 0 …                                     |
//! ```
//!
//! Their second word is 8, which no frame's head has as its length. Without rails there are none.

use std::net::{IpAddr, Ipv6Addr, SocketAddr};

use super::{PREFIX, UNIT};
use crate::transport::address::INTERFACES_MAX;

/// The most connections of a link: the main one and its rails.
pub(in crate::transport::tcp) const LANES_MAX: usize = INTERFACES_MAX;

/// The length of each record.
pub(in crate::transport::tcp) const RECORD: usize = UNIT;

/// The second word of each record.
pub(super) const MARK: u32 = 8;

/// How many bytes of a payload go over each connection, the main one first.
pub(in crate::transport::tcp) type Cut = [u32; LANES_MAX];

/// A record.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in crate::transport::tcp) enum Control {
    /// The process that has dialled the main connection wants rails.
    Want,
    /// The other process accepts a rail here.
    Offer(Offer),
    /// The dialled rail with this number is open on both sides.
    Joined(u8),
    /// The next frame's payload comes in slices.
    Cut(Cut),
}

/// Where a process accepts a rail of one link.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in crate::transport::tcp) struct Offer {
    /// The number of the rail, from 1.
    pub(in crate::transport::tcp) rail: u8,
    /// How many offers follow.
    pub(in crate::transport::tcp) left: u8,
    /// The listening address.
    pub(in crate::transport::tcp) address: SocketAddr,
    /// The ticket of this link: the process that dials proves that it knows it.
    pub(in crate::transport::tcp) ticket: u64,
}

const WANT: u32 = 1;
const OFFER: u32 = 2;
const JOINED: u32 = 3;
const CUT: u32 = 4;

impl Control {
    pub(in crate::transport::tcp) fn encode(&self) -> [u8; RECORD] {
        let mut bytes = [0; RECORD];
        let kind = match self {
            Self::Want => WANT,
            Self::Offer(Offer { rail, left, address, ticket }) => {
                let ip = match address.ip() {
                    IpAddr::V4(ip) => ip.to_ipv6_mapped(),
                    IpAddr::V6(ip) => ip,
                };
                bytes[8] = *rail;
                bytes[9] = *left;
                bytes[10..12].copy_from_slice(&address.port().to_ne_bytes());
                bytes[16..24].copy_from_slice(&ticket.to_ne_bytes());
                bytes[24..40].copy_from_slice(&ip.octets());
                OFFER
            }
            Self::Joined(rail) => {
                bytes[8] = *rail;
                JOINED
            }
            Self::Cut(cut) => {
                for (to, len) in bytes[PREFIX..].chunks_exact_mut(4).zip(cut) {
                    to.copy_from_slice(&len.to_ne_bytes());
                }
                CUT
            }
        };
        bytes[..4].copy_from_slice(&kind.to_ne_bytes());
        bytes[4..8].copy_from_slice(&MARK.to_ne_bytes());
        bytes
    }

    /// Returns what [`Control::encode`] has made these bytes of; `None` if it cannot have made them.
    pub(super) fn decode(bytes: &[u8; RECORD]) -> Option<Self> {
        let word = |at: usize| bytes[at..].first_chunk().map(|it| u32::from_ne_bytes(*it));
        let is_rail = |rail: u8| (1..LANES_MAX as u8).contains(&rail);
        let record = match word(0)? {
            WANT => Self::Want,
            OFFER => {
                let ip = Ipv6Addr::from(*bytes[24..].first_chunk::<16>()?);
                let ip = ip.to_ipv4_mapped().map_or(IpAddr::V6(ip), IpAddr::V4);
                let address = SocketAddr::new(ip, u16::from_ne_bytes(*bytes[10..].first_chunk()?));
                let ticket = u64::from_ne_bytes(*bytes[16..].first_chunk()?);
                Self::Offer(Offer { rail: bytes[8], left: bytes[9], address, ticket })
            }
            JOINED => Self::Joined(bytes[8]),
            CUT => {
                let mut cut = Cut::default();
                for (len, at) in cut.iter_mut().zip((PREFIX..).step_by(4)) {
                    *len = word(at)?;
                }
                Self::Cut(cut)
            }
            _unknown => return None,
        };
        let is_valid = match record {
            Self::Want | Self::Cut(_) => true,
            Self::Offer(Offer { rail, left, .. }) => is_rail(rail) && usize::from(left) < LANES_MAX,
            Self::Joined(rail) => is_rail(rail),
        };
        (is_valid && record.encode() == *bytes).then_some(record)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_record_decodes_and_no_other_bytes_do() {
        let offer = |address: &str| {
            Control::Offer(Offer { rail: 7, left: 2, address: address.parse().unwrap(), ticket: u64::MAX - 5 })
        };
        let cut = Control::Cut([5, 0, 9, 1 << 22, 0, 0, 0, u32::MAX]);
        for record in [Control::Want, offer("10.0.0.7:4411"), offer("[fd00::7]:65535"), Control::Joined(3), cut] {
            let bytes = record.encode();
            assert_eq!(Control::decode(&bytes), Some(record));
            for at in [0, 5, 63] {
                let mut changed = bytes;
                changed[at] ^= 0x40;
                assert_eq!(Control::decode(&changed), None, "{record:?}, byte {at}");
            }
        }
        for (record, at, wrong) in [(Control::Joined(3), 8, 0), (Control::Joined(3), 8, 8), (offer("[::1]:9"), 9, 8)] {
            let mut changed = record.encode();
            changed[at] = wrong;
            assert_eq!(Control::decode(&changed), None, "{record:?}");
        }
    }
}
