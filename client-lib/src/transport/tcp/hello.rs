//! The handshake by which two processes authenticate each other before any frame: without I/O.
//!
//! ```text
//! dialler → acceptor   hello      mark, from, to, nonce, HMAC(secret, "hello", all before)              120 bytes
//! acceptor → dialler   challenge  mark, nonce, HMAC(secret, "challenge", both names, both nonces)        80
//! dialler → acceptor   proof      HMAC(secret, "proof", both names, both nonces)                         32
//! acceptor → dialler   verdict    one of four words, twice                                                8
//! ```
//!
//! The mark is 16 bytes: eight letters, the version, and a word whose bytes show the machine's byte order. The hello's HMAC
//! shows with the first bytes that the sender belongs to the job, so the acceptor can wait for its proof without limit: the
//! dialler may be computing. Since a hello can be replayed it opens nothing; the proof, over the acceptor's fresh nonce, does.
//! HMAC is RFC 2104 with SHA-256; comparisons take constant time.
//!
//! The handshake of a rail ([`super::rails`]) is the same with [`rail_secret`] instead of the job's secret: so it also proves which link and
//! which rail the dialler means.

use hmac_sha256::HMAC;

use crate::transport::name::ProcessName;

/// A secret that only the processes of the job know.
pub(super) type Secret = [u8; 32];
/// Fresh random bytes.
pub(super) type Nonce = [u8; 32];

pub(super) const HELLO: usize = MARK + 2 * NAME + 32 + 32;
pub(super) const CHALLENGE: usize = MARK + 32 + 32;
pub(super) const PROOF: usize = 32;
pub(super) const VERDICT: usize = 8;

const MARK: usize = 16;
const NAME: usize = 20;
const LETTERS: [u8; 8] = *b"rsd-mpi\n";
const VERSION: u32 = 1;
const ORDER: u32 = 0x0102_0304;

/// Why the other side is not the expected peer. Each text reads after "failed to".
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub(super) enum Refused {
    #[error("understand it: it does not speak this library's protocol")]
    Foreign,
    #[error("talk to it: it uses version {0} of the wire protocol, this process version {VERSION}")]
    Version(u32),
    #[error("talk to it: its machine has a different byte order")]
    Order,
    #[error("authenticate it: it does not know the secret of this job, or is a different process of it")]
    Secret,
    #[error("find the process that it addressed: this one has a different name")]
    Name,
}

/// The acceptor's decision about a dialler that has proved its identity.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u32)]
pub(super) enum Verdict {
    /// Frames may follow.
    Welcome = 1,
    /// The acceptor's own dial to this process has precedence and will arrive.
    Yield = 2,
    /// The acceptor does not know the dialler yet: retry later.
    Later = 3,
    /// The acceptor has ended its contact with the dialler.
    Over = 4,
}

/// The dialler's side, after its hello.
#[derive(Debug)]
pub(super) struct Dialler {
    me: ProcessName,
    to: ProcessName,
    nonce: Nonce,
}

impl Dialler {
    /// Returns the dialler's side and the hello.
    pub(super) fn new(secret: &Secret, me: ProcessName, to: ProcessName, nonce: Nonce) -> (Self, [u8; HELLO]) {
        let mut hello = [0; HELLO];
        hello[..MARK].copy_from_slice(&mark());
        put_name(&mut hello[MARK..], me);
        put_name(&mut hello[MARK + NAME..], to);
        hello[MARK + 2 * NAME..][..32].copy_from_slice(&nonce);
        let (said, mac) = hello.split_at_mut(HELLO - 32);
        mac.copy_from_slice(&keyed(secret, &[b"hello", said]).finalize());
        (Self { me, to, nonce }, hello)
    }

    /// Returns the proof.
    pub(super) fn on_challenge(&self, secret: &Secret, challenge: &[u8; CHALLENGE]) -> Result<[u8; PROOF], Refused> {
        check_mark(challenge)?;
        let theirs = nonce_at(challenge, MARK);
        let both = Both { dialler: self.me, acceptor: self.to, nonces: [&self.nonce, &theirs] };
        if !both.keyed(secret, b"challenge").finalize_verify(&nonce_at(challenge, MARK + 32)) {
            return Err(Refused::Secret);
        }
        Ok(both.keyed(secret, b"proof").finalize())
    }

    pub(super) fn on_verdict(verdict: &[u8; VERDICT]) -> Result<Verdict, Refused> {
        let words: [u32; 2] = [word_at(verdict, 0), word_at(verdict, 4)];
        match words {
            [1, 1] => Ok(Verdict::Welcome),
            [2, 2] => Ok(Verdict::Yield),
            [3, 3] => Ok(Verdict::Later),
            [4, 4] => Ok(Verdict::Over),
            _ => Err(Refused::Foreign),
        }
    }
}

/// The acceptor's side, after a hello.
#[derive(Debug)]
pub(super) struct Acceptor {
    pub(super) from: ProcessName,
    me: ProcessName,
    nonce: Nonce,
    theirs: Nonce,
}

impl Acceptor {
    /// Whether these may be the first bytes of a hello of any version; if not, there is no need to wait for more.
    pub(super) fn may_begin(bytes: &[u8]) -> bool {
        bytes.iter().zip(&LETTERS).all(|(byte, letter)| byte == letter)
    }

    /// The name that a hello claims; nothing is proved by that.
    pub(super) fn says(hello: &[u8; HELLO]) -> ProcessName {
        name_at(hello, MARK)
    }

    /// Returns the acceptor's side and the challenge.
    pub(super) fn new(
        secret: &Secret,
        me: ProcessName,
        nonce: Nonce,
        hello: &[u8; HELLO],
    ) -> Result<(Self, [u8; CHALLENGE]), Refused> {
        check_mark(hello)?;
        let (said, mac) = hello.split_at(HELLO - 32);
        if !keyed(secret, &[b"hello", said]).finalize_verify(&nonce_at(mac, 0)) {
            return Err(Refused::Secret);
        }
        let (from, to) = (name_at(hello, MARK), name_at(hello, MARK + NAME));
        if to != me {
            return Err(Refused::Name);
        }
        let theirs = nonce_at(hello, MARK + 2 * NAME);
        let mut challenge = Self::no_challenge();
        challenge[MARK..MARK + 32].copy_from_slice(&nonce);
        let both = Both { dialler: from, acceptor: me, nonces: [&theirs, &nonce] };
        challenge[MARK + 32..].copy_from_slice(&both.keyed(secret, b"challenge").finalize());
        Ok((Self { from, me, nonce, theirs }, challenge))
    }

    /// Sent instead of a challenge: this process's protocol version, and nothing that depends on its secret.
    pub(super) fn no_challenge() -> [u8; CHALLENGE] {
        let mut challenge = [0; CHALLENGE];
        challenge[..MARK].copy_from_slice(&mark());
        challenge
    }

    pub(super) fn on_proof(&self, secret: &Secret, proof: &[u8; PROOF]) -> Result<(), Refused> {
        let both = Both { dialler: self.from, acceptor: self.me, nonces: [&self.theirs, &self.nonce] };
        if both.keyed(secret, b"proof").finalize_verify(proof) { Ok(()) } else { Err(Refused::Secret) }
    }

    pub(super) fn verdict(verdict: Verdict) -> [u8; VERDICT] {
        let mut bytes = [0; VERDICT];
        bytes[..4].copy_from_slice(&(verdict as u32).to_ne_bytes());
        bytes[4..].copy_from_slice(&(verdict as u32).to_ne_bytes());
        bytes
    }
}

/// The secret of one rail of one link, which two processes that share `secret` have agreed upon by a ticket.
pub(super) fn rail_secret(secret: &Secret, ticket: u64, rail: u8) -> Secret {
    keyed(secret, &[b"rail", &ticket.to_ne_bytes(), &[rail]]).finalize()
}

/// The data that challenge and proof authenticate.
struct Both<'a> {
    dialler: ProcessName,
    acceptor: ProcessName,
    nonces: [&'a Nonce; 2],
}

impl Both<'_> {
    fn keyed(&self, secret: &Secret, label: &[u8]) -> HMAC {
        let mut names = [0; 2 * NAME];
        put_name(&mut names, self.dialler);
        put_name(&mut names[NAME..], self.acceptor);
        keyed(secret, &[label, &names, self.nonces[0], self.nonces[1]])
    }
}

/// No label is a prefix of another one, and everything else has a fixed length: so no two messages have the same bytes.
fn keyed(secret: &Secret, parts: &[&[u8]]) -> HMAC {
    let mut hmac = HMAC::new(secret);
    parts.iter().for_each(|part| hmac.update(part));
    hmac
}

fn mark() -> [u8; MARK] {
    let mut mark = [0; MARK];
    mark[..8].copy_from_slice(&LETTERS);
    mark[8..12].copy_from_slice(&VERSION.to_ne_bytes());
    mark[12..].copy_from_slice(&ORDER.to_ne_bytes());
    mark
}

fn check_mark(message: &[u8]) -> Result<(), Refused> {
    if message[..8] != LETTERS {
        return Err(Refused::Foreign);
    }
    match (word_at(message, 8), word_at(message, 12)) {
        (VERSION, ORDER) => Ok(()),
        (version, ORDER) => Err(Refused::Version(version)),
        (_, order) if order == ORDER.swap_bytes() => Err(Refused::Order),
        _ => Err(Refused::Foreign),
    }
}

fn put_name(into: &mut [u8], name: ProcessName) {
    into[..16].copy_from_slice(&name.world);
    into[16..NAME].copy_from_slice(&name.rank.to_ne_bytes());
}

fn name_at(bytes: &[u8], at: usize) -> ProcessName {
    let mut world = [0; 16];
    world.copy_from_slice(&bytes[at..at + 16]);
    ProcessName { world, rank: word_at(bytes, at + 16) }
}

fn nonce_at(bytes: &[u8], at: usize) -> Nonce {
    let mut nonce = [0; 32];
    nonce.copy_from_slice(&bytes[at..at + 32]);
    nonce
}

fn word_at(bytes: &[u8], at: usize) -> u32 {
    let mut word = [0; 4];
    word.copy_from_slice(&bytes[at..at + 4]);
    u32::from_ne_bytes(word)
}

#[cfg(test)]
mod tests {
    use super::*;

    const A: ProcessName = ProcessName { world: [1; 16], rank: 0 };
    const B: ProcessName = ProcessName { world: [1; 16], rank: 1 };
    const SECRET: Secret = [7; 32];

    fn greet(secrets: [&Secret; 2]) -> Result<(Dialler, Acceptor, [u8; CHALLENGE]), Refused> {
        let (dialler, hello) = Dialler::new(secrets[0], A, B, [3; 32]);
        let (acceptor, challenge) = Acceptor::new(secrets[1], B, [4; 32], &hello)?;
        Ok((dialler, acceptor, challenge))
    }

    #[test]
    fn the_keyed_hash_is_hmac_with_sha_256() {
        // RFC 4231, test case 2.
        let mac = HMAC::mac("what do ya want for nothing?", "Jefe");
        let hex = "5bdcc146bf60754e6a042426089575c75a003f089d2739839dec58b964ec3843";
        assert_eq!(mac.iter().map(|byte| format!("{byte:02x}")).collect::<String>(), hex);
    }

    #[test]
    fn two_processes_of_a_job_authenticate_each_other() {
        let (dialler, acceptor, challenge) = greet([&SECRET, &SECRET]).unwrap();
        assert_eq!(acceptor.from, A);
        let proof = dialler.on_challenge(&SECRET, &challenge).unwrap();
        assert_eq!(acceptor.on_proof(&SECRET, &proof), Ok(()));
        for verdict in [Verdict::Welcome, Verdict::Yield, Verdict::Later, Verdict::Over] {
            assert_eq!(Dialler::on_verdict(&Acceptor::verdict(verdict)), Ok(verdict));
        }
        assert_eq!(Dialler::on_verdict(b"HTTP/1.1"), Err(Refused::Foreign));
    }

    #[test]
    fn each_side_notices_a_wrong_secret() {
        assert_eq!(greet([&SECRET, &[8; 32]]).unwrap_err(), Refused::Secret);
        let (dialler, _) = Dialler::new(&SECRET, A, B, [3; 32]);
        assert_eq!(dialler.on_challenge(&SECRET, &Acceptor::no_challenge()), Err(Refused::Secret));
        let (_, acceptor, _) = greet([&SECRET, &SECRET]).unwrap();
        assert_eq!(acceptor.on_proof(&SECRET, &[0; PROOF]), Err(Refused::Secret));
    }

    #[test]
    fn each_rail_of_each_link_has_its_own_secret() {
        let secrets = [(&SECRET, 1, 1), (&SECRET, 1, 2), (&SECRET, 2, 1), (&[8; 32], 1, 1)];
        let secrets = secrets.map(|(secret, ticket, rail)| rail_secret(secret, ticket, rail));
        for (at, one) in secrets.iter().enumerate() {
            assert!(*one != SECRET);
            for (other_at, other) in secrets.iter().enumerate() {
                assert_eq!(greet([one, other]).is_ok(), at == other_at);
            }
        }
    }

    #[test]
    fn no_message_can_be_replayed() {
        let (dialler, acceptor, challenge) = greet([&SECRET, &SECRET]).unwrap();
        let proof = dialler.on_challenge(&SECRET, &challenge).unwrap();
        // The same hello, but a different nonce of the acceptor.
        let (_, hello) = Dialler::new(&SECRET, A, B, [3; 32]);
        let (later, _) = Acceptor::new(&SECRET, B, [5; 32], &hello).unwrap();
        assert_eq!(later.on_proof(&SECRET, &proof), Err(Refused::Secret));
        // A message of one side is not valid as an answer of the other.
        let mut mirrored = [0; PROOF];
        mirrored.copy_from_slice(&challenge[MARK + 32..]);
        assert_eq!(acceptor.on_proof(&SECRET, &mirrored), Err(Refused::Secret));
    }

    #[test]
    fn any_changed_byte_is_refused() {
        let (_, hello) = Dialler::new(&SECRET, A, B, [3; 32]);
        let (dialler, _, challenge) = greet([&SECRET, &SECRET]).unwrap();
        for at in 0..HELLO {
            let mut changed = hello;
            changed[at] ^= 0x20;
            assert!(Acceptor::new(&SECRET, B, [4; 32], &changed).is_err(), "byte {at}");
        }
        for at in 0..CHALLENGE {
            let mut changed = challenge;
            changed[at] ^= 0x20;
            assert!(dialler.on_challenge(&SECRET, &changed).is_err(), "byte {at}");
        }
    }

    #[test]
    fn a_different_version_byte_order_or_process_is_named() {
        let (_, mut hello) = Dialler::new(&SECRET, A, B, [3; 32]);
        let of = |hello: &[u8; HELLO], me| Acceptor::new(&SECRET, me, [4; 32], hello).unwrap_err();
        assert_eq!(of(&hello, A), Refused::Name);
        hello[8..12].copy_from_slice(&9_u32.to_ne_bytes());
        assert_eq!(of(&hello, B), Refused::Version(9));
        hello[12..16].reverse();
        assert_eq!(of(&hello, B), Refused::Order);
        hello[0] = b'G';
        assert_eq!(of(&hello, B), Refused::Foreign);
        assert!(Acceptor::may_begin(b"") && Acceptor::may_begin(b"rsd-mpi\nany"));
        assert!(!Acceptor::may_begin(b"GET / HTTP/1.1"));
    }
}
