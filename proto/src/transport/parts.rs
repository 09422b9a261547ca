//! Messages of a link that are larger than a gRPC message may be: the results of fences, the exits and addresses of very many ranks.
//! The sender splits such a message into [`Part`]s, and the receiver joins them.

use bytes::{Bytes, BytesMut};
use prost::Message;
use tonic::{Code, Status};

use super::{exit, refusal};
use crate::v1::{Down, Part, Up, down, up};

/// The largest message that is sent in one piece, and the size of the pieces of larger ones, in bytes.
pub const PART_BYTES: usize = 1 << 20;
/// The largest message that is joined, in bytes. Every content of messages has a lower limit of its own.
const WHOLE_BYTES_MAX: usize = 2 << 30;

/// A message of a link.
pub trait InParts: Message + Default {
    /// Makes a message of a piece.
    fn of_part(part: Part) -> Self;
    /// Returns the piece, if the message is one.
    fn into_part(self) -> Result<Part, Self>;
}

impl InParts for Up {
    fn of_part(part: Part) -> Up {
        Up { body: Some(up::Body::Part(part)) }
    }

    fn into_part(self) -> Result<Part, Up> {
        match self.body {
            Some(up::Body::Part(part)) => Ok(part),
            _ => Err(self),
        }
    }
}

impl InParts for Down {
    fn of_part(part: Part) -> Down {
        Down { body: Some(down::Body::Part(part)) }
    }

    fn into_part(self) -> Result<Part, Down> {
        match self.body {
            Some(down::Body::Part(part)) => Ok(part),
            _ => Err(self),
        }
    }
}

/// Calls `send` with the message, or with its pieces in order.
pub fn split<M: InParts>(message: M, mut send: impl FnMut(M)) {
    if message.encoded_len() <= PART_BYTES {
        return send(message);
    }
    let mut rest = Bytes::from(message.encode_to_vec());
    while !rest.is_empty() {
        let data = rest.split_to(PART_BYTES.min(rest.len()));
        send(M::of_part(Part { data, last: rest.is_empty() }));
    }
}

/// The largest message that a child may send in one piece: its first message, which may describe the nodes of a very large job.
pub const SENT_BYTES_MAX: usize = 4 * PART_BYTES;

/// Joins the pieces of one link.
#[derive(Debug)]
pub struct Joiner {
    pieces: BytesMut,
    bytes_max: usize,
}

impl Default for Joiner {
    fn default() -> Joiner {
        Joiner::up_to(WHOLE_BYTES_MAX)
    }
}

impl Joiner {
    /// Returns a joiner of messages of at most so many bytes. With 0, no message may come in pieces.
    pub fn up_to(bytes_max: usize) -> Joiner {
        Joiner { pieces: BytesMut::new(), bytes_max: bytes_max.min(WHOLE_BYTES_MAX) }
    }

    /// Returns how many bytes of an incomplete message it holds.
    pub fn held_bytes(&self) -> usize {
        self.pieces.len()
    }

    /// Takes the next message; None: a piece that is not the last.
    pub fn join<M: InParts>(&mut self, message: M) -> Result<Option<M>, Status> {
        let bytes_max = self.bytes_max;
        let part = match message.into_part() {
            Ok(part) => part,
            Err(message) => return Ok(Some(message)),
        };
        if self.pieces.len() + part.data.len() > bytes_max {
            let text = format!("a message has more than {bytes_max} bytes");
            return Err(refusal(Code::ResourceExhausted, exit::INTERNAL, text));
        }
        self.pieces.extend_from_slice(&part.data);
        if !part.last {
            return Ok(None);
        }
        let whole = M::decode(self.pieces.split().freeze());
        whole.map(Some).map_err(|error| refusal(Code::InvalidArgument, exit::INTERNAL, format!("read parts: {error}")))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::v1::FenceUp;

    fn fence(bytes: usize) -> Up {
        let batches = vec![Bytes::from(vec![7; bytes])];
        Up {
            body: Some(up::Body::FenceUp(FenceUp { job: 1, epoch: 2, nodes: vec![3], batches, ..FenceUp::default() })),
        }
    }

    #[test]
    fn a_large_message_is_whole_again_and_a_small_one_is_not_split() {
        for (bytes, pieces) in [(10, 1), (PART_BYTES, 2), (3 * PART_BYTES - 64, 3)] {
            let (mut sent, mut joiner) = (Vec::new(), Joiner::default());
            split(fence(bytes), |up| sent.push(up));
            assert_eq!(sent.len(), pieces);
            assert!(sent.iter().all(|up| up.encoded_len() <= PART_BYTES + 16));
            let mut joined: Vec<_> = sent.into_iter().filter_map(|up| joiner.join(up).unwrap()).collect();
            assert_eq!(joined.pop(), Some(fence(bytes)));
            assert!(joined.is_empty());
        }
    }

    #[test]
    fn pieces_without_an_end_are_refused() {
        let mut joiner = Joiner::up_to(1000);
        let piece = || Up::of_part(Part { data: Bytes::from(vec![0; 600]), last: false });
        assert_eq!(joiner.join(piece()).unwrap(), None);
        assert_eq!(joiner.held_bytes(), 600);
        assert!(joiner.join(piece()).unwrap_err().message().contains("more than 1000 bytes"));
        assert!(Joiner::up_to(0).join(piece()).unwrap_err().message().contains("more than 0 bytes"));
    }
}
