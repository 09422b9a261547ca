//! The packets that two processes exchange when they connect: one each way, the caller's first.

use super::geometry::Geometry;
use crate::transport::name::ProcessName;

/// The first eight bytes; a process with another byte order sends them reversed.
const MAGIC: u64 = u64::from_ne_bytes(*b"rsd-shm\n").to_be();
/// Raised whenever a shared format changes: frames, ring, cells, this packet.
const VERSION: u32 = 5;

/// How a process introduces itself. Two descriptors accompany the packet: its segment and its doorbell.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Hello {
    /// The sender.
    pub(super) from: ProcessName,
    /// The process that the sender believes it is connected to.
    pub(super) to: ProcessName,
    /// The number with which the recipient must mark its frames in the sender's ring.
    pub(super) sign: u16,
    /// The geometry of the sender's segment.
    pub(super) geometry: Geometry,
    /// The word at `probe` in the sender's memory.
    pub(super) nonce: u64,
    /// The address where the recipient may test whether it can read the sender's memory.
    pub(super) probe: u64,
    /// The sender's pid and user namespaces, as inode numbers; 0 if unknown.
    pub(super) namespaces: [u64; 2],
}

/// Why a packet is not a valid hello.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub(super) enum NotHello {
    #[error("it speaks a different protocol")]
    Foreign,
    #[error("it cannot open more files: raise its limit (ulimit -Hn, where the job is submitted)")]
    Full,
    #[error("it uses version {0} of the shared-memory protocol, this process version {VERSION}")]
    Version(u32),
}

/// The answer of a process that cannot open more files.
pub(super) const FULL: &[u8] = b"rsd-shm full";

impl Hello {
    /// Bytes of a packet.
    pub(super) const LEN: usize = 8 + 4 + 2 * 20 + 4 + 12 + 32;

    pub(super) fn encode(&self) -> [u8; Self::LEN] {
        let mut packet = [0; Self::LEN];
        let mut at = 0;
        let mut put = |bytes: &[u8]| {
            packet[at..at + bytes.len()].copy_from_slice(bytes);
            at += bytes.len();
        };
        put(&MAGIC.to_ne_bytes());
        put(&VERSION.to_ne_bytes());
        for name in [self.from, self.to] {
            put(&name.world);
            put(&name.rank.to_ne_bytes());
        }
        put(&u32::from(self.sign).to_ne_bytes());
        for count in [self.geometry.slots, self.geometry.small, self.geometry.large] {
            put(&count.to_ne_bytes());
        }
        for word in [self.nonce, self.probe, self.namespaces[0], self.namespaces[1]] {
            put(&word.to_ne_bytes());
        }
        packet
    }

    pub(super) fn decode(packet: &[u8]) -> Result<Self, NotHello> {
        if packet == FULL {
            return Err(NotHello::Full);
        }
        let mut rest = packet;
        if take::<8>(&mut rest)? != MAGIC.to_ne_bytes() {
            return Err(NotHello::Foreign);
        }
        let version = u32::from_ne_bytes(take(&mut rest)?);
        if version != VERSION {
            return Err(NotHello::Version(version));
        }
        let mut name = || Ok(ProcessName { world: take(&mut rest)?, rank: u32::from_ne_bytes(take(&mut rest)?) });
        let (from, to) = (name()?, name()?);
        let sign = u16::try_from(u32::from_ne_bytes(take(&mut rest)?)).map_err(|_| NotHello::Foreign)?;
        let mut count = || Ok(u32::from_ne_bytes(take(&mut rest)?));
        let geometry = Geometry { slots: count()?, small: count()?, large: count()? };
        let mut word = || Ok(u64::from_ne_bytes(take(&mut rest)?));
        let (nonce, probe, namespaces) = (word()?, word()?, [word()?, word()?]);
        Ok(Self { from, to, sign, geometry, nonce, probe, namespaces })
    }
}

fn take<const N: usize>(rest: &mut &[u8]) -> Result<[u8; N], NotHello> {
    let (bytes, others) = rest.split_first_chunk::<N>().ok_or(NotHello::Foreign)?;
    *rest = others;
    Ok(*bytes)
}

#[cfg(test)]
#[cfg(not(loom))]
mod tests {
    use super::*;

    #[test]
    fn a_packet_decodes_to_what_was_encoded_and_anything_else_is_refused() {
        let hello = Hello {
            from: ProcessName::new(b"job", 3),
            to: ProcessName::new(b"other", 70_000),
            sign: 513,
            geometry: Geometry { slots: 1024, small: 64, large: 32 },
            nonce: u64::MAX - 1,
            probe: 0x7fff_1234_5678,
            namespaces: [4026531836, 4026531837],
        };
        let packet = hello.encode();
        assert_eq!(Hello::decode(&packet), Ok(hello));
        for len in 0..packet.len() {
            assert_eq!(Hello::decode(&packet[..len]), Err(NotHello::Foreign));
        }
        assert_eq!(Hello::decode(FULL), Err(NotHello::Full));
        let mut other = packet;
        other[8] += 1;
        assert!(matches!(Hello::decode(&other), Err(NotHello::Version(_))));
        other[..8].reverse();
        assert_eq!(Hello::decode(&other), Err(NotHello::Foreign));
    }
}
