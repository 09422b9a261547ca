//! The first message of a client and the answer.
//!
//! ```text
//! header (in the byte order of the machine), then
//! "native\0"  length:u32  credential  kind:u8  [uid:u32 gid:u32]  namespace\0  rank:u32  version\0  codec\0  buffer:u8  store\0  …
//! ```
//!
//! The numbers are big-endian. The credential is the client's own claim: a server that cares asks the kernel for the peer's uid. What
//! follows the name of the client's store is a list of attributes, which is ignored.

use super::error::WireError;
use super::message::{HEADER_BYTES, hello_length};
use super::{Codec, NAMESPACE_MAX, Proc, Status};

/// A client without the buffer's type: items without descriptions.
const PLAIN_BUFFER: u8 = 1;
/// The longest of the other texts.
const TEXT_MAX: usize = 1024;

/// What a client is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Role {
    /// A process that was started with its server's address in its environment.
    Client,
    /// A process that found the server by itself and named itself.
    Singleton,
}

/// The first message of a client.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Hello {
    /// What the client is.
    pub role: Role,
    /// Which process it says it is.
    pub proc: Proc,
    /// The version of its library.
    pub version: String,
    /// The codec of all further messages.
    pub codec: Codec,
}

impl Hello {
    /// Decodes the bytes that have arrived: the message and its length; None: more bytes are needed.
    pub fn decode(bytes: &[u8]) -> Result<Option<(Hello, usize)>, WireError> {
        let Some(length) = hello_length(bytes)? else { return Ok(None) };
        let Some(body) = bytes.get(HEADER_BYTES..HEADER_BYTES + length) else { return Ok(None) };
        Ok(Some((decode_body(body)?, HEADER_BYTES + length)))
    }

    /// Returns the message's bytes: the client's half.
    pub fn encode(&self, uid: u32, gid: u32) -> Vec<u8> {
        let mut body = b"native\0".to_vec();
        body.extend(8_u32.to_be_bytes());
        body.extend(uid.to_ne_bytes());
        body.extend(gid.to_ne_bytes());
        match self.role {
            Role::Client => body.push(0),
            Role::Singleton => {
                body.push(9);
                body.extend(uid.to_be_bytes());
                body.extend(gid.to_be_bytes());
            }
        }
        body.extend(self.proc.namespace.as_bytes());
        body.push(0);
        body.extend(self.proc.rank.to_be_bytes());
        for text in [&self.version[..], self.codec.name()] {
            body.extend(text.as_bytes());
            body.push(0);
        }
        body.push(PLAIN_BUFFER);
        body.extend(b"hash\0");
        let mut bytes = (-1_i32).to_ne_bytes().to_vec();
        bytes.extend(0_u32.to_ne_bytes());
        bytes.extend(u32::try_from(body.len()).unwrap_or(u32::MAX).to_ne_bytes());
        bytes.extend(0_u32.to_ne_bytes());
        bytes.extend(body);
        bytes
    }
}

fn decode_body(body: &[u8]) -> Result<Hello, WireError> {
    let mut rest = Rest(body);
    rest.text(TEXT_MAX)?; // the name of the security module
    let credential = rest.number()?;
    rest.take(usize::try_from(credential).map_err(|_| WireError::Short)?)?;
    let role = match rest.byte()? {
        0 => Role::Client,
        9 => Role::Singleton,
        other => return Err(WireError::NotARank(other)),
    };
    if role == Role::Singleton {
        rest.take(8)?; // its uid and gid, as it says
    }
    let namespace = rest.text(NAMESPACE_MAX)?;
    let rank = rest.number()?;
    let version = rest.text(TEXT_MAX)?;
    let codec = Codec::named(&rest.text(TEXT_MAX)?)?;
    match rest.byte()? {
        PLAIN_BUFFER => {}
        other => return Err(WireError::Buffer(other)),
    }
    Ok(Hello { role, proc: Proc { namespace, rank }, version, codec })
}

/// The answer to a client that is accepted: a status and the index of the client, which it ignores.
pub fn accepted() -> [u8; 8] {
    [0; 8]
}

/// The answer to a client that is refused.
pub fn refused(status: Status) -> [u8; 4] {
    status.0.to_be_bytes()
}

struct Rest<'a>(&'a [u8]);

impl<'a> Rest<'a> {
    fn take(&mut self, length: usize) -> Result<&'a [u8], WireError> {
        let (taken, rest) = self.0.split_at_checked(length).ok_or(WireError::Short)?;
        self.0 = rest;
        Ok(taken)
    }

    fn byte(&mut self) -> Result<u8, WireError> {
        Ok(self.take(1)?[0])
    }

    fn number(&mut self) -> Result<u32, WireError> {
        let bytes = self.take(4)?;
        Ok(u32::from_be_bytes([bytes[0], bytes[1], bytes[2], bytes[3]]))
    }

    fn text(&mut self, most: usize) -> Result<String, WireError> {
        let length = self.0.iter().position(|byte| *byte == 0).ok_or(WireError::Unterminated)?;
        let text = self.take(length + 1)?;
        if length > most {
            return Err(WireError::Name);
        }
        String::from_utf8(text[..length].to_vec()).map_err(|_| WireError::Name)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn hello(role: Role) -> Hello {
        Hello { role, proc: Proc::new("rsd-a.b", 3), version: "5.0.11".into(), codec: Codec::V41 }
    }

    #[test]
    fn a_first_message_arrives_in_any_pieces() {
        for role in [Role::Client, Role::Singleton] {
            let mut bytes = hello(role).encode(1000, 100);
            for length in 0..bytes.len() {
                assert_eq!(Hello::decode(&bytes[..length]), Ok(None));
            }
            let length = bytes.len();
            bytes.extend(b"the next message");
            assert_eq!(Hello::decode(&bytes), Ok(Some((hello(role), length))));
        }
    }

    #[test]
    fn tools_unknown_codecs_and_described_buffers_are_refused() {
        let bytes = hello(Role::Client).encode(0, 0);
        let replaced = |from: &[u8], to: &[u8]| {
            let at = bytes.windows(from.len()).position(|window| window == from).unwrap();
            let mut bytes = bytes.clone();
            bytes[at..at + from.len()].copy_from_slice(to);
            Hello::decode(&bytes).unwrap_err()
        };
        assert_eq!(replaced(b"\0\0\0\0rsd", b"\0\0\0\x05rsd"), WireError::NotARank(5));
        assert_eq!(replaced(b"v41", b"v20"), WireError::Codec("v20".into()));
        assert_eq!(replaced(b"v41\0\x01", b"v41\0\x02"), WireError::Buffer(2));
    }

    #[test]
    fn a_first_message_is_bounded() {
        let mut bytes = hello(Role::Client).encode(0, 0);
        bytes[8..12].copy_from_slice(&(1_u32 << 20).to_ne_bytes());
        assert_eq!(Hello::decode(&bytes), Err(WireError::LongHello(1 << 20)));
    }

    proptest! {
        #[test]
        fn no_bytes_make_the_decoder_panic(
            bytes in prop::collection::vec(any::<u8>(), 0..200),
            at in any::<prop::sample::Index>(),
            byte in any::<u8>(),
        ) {
            let _ = Hello::decode(&bytes);
            let mut damaged = hello(Role::Singleton).encode(0, 0);
            let at = at.index(damaged.len());
            damaged[at] = byte;
            let _ = Hello::decode(&damaged);
        }
    }
}
