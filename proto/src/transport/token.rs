//! Join tokens as users copy them: `rsd1-` and 56 bytes in base64url.
//!
//! A token contains the fingerprint of the authority of its DVM, so that the joining side recognises the DVM's daemons before it
//! sends the secret.

use std::fmt;
use std::str::FromStr;

use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use ring::digest::{SHA256, digest};
use thiserror::Error;

const PREFIX: &str = "rsd1-";
const FINGERPRINT_BYTES: usize = 32;
const ID_BYTES: usize = 8;
const SECRET_BYTES: usize = 16;

/// A token with which a daemon joins a DVM, or a user on another machine logs in.
#[derive(Clone, PartialEq, Eq)]
pub struct Token {
    /// The fingerprint of the DVM's authority.
    pub authority: Fingerprint,
    /// The token's number at the head.
    pub id: u64,
    /// The secret, of which the head keeps only a hash.
    pub secret: [u8; SECRET_BYTES],
}

impl fmt::Debug for Token {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // The secret must not reach a log.
        write!(f, "Token({:016x} of {})", self.id, self.authority)
    }
}

impl Token {
    /// Returns the token as text. `Token` has no `Display`, so that no message contains a token by mistake.
    pub fn to_text(&self) -> String {
        let mut bytes = Vec::with_capacity(FINGERPRINT_BYTES + ID_BYTES + SECRET_BYTES);
        bytes.extend(self.authority.0);
        bytes.extend(self.id.to_be_bytes());
        bytes.extend(self.secret);
        format!("{PREFIX}{}", URL_SAFE_NO_PAD.encode(bytes))
    }
}

/// The text is not a join token.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Error)]
#[error(
    "not a join token: copy all of it, from rsd1- to the end, or make a new one on the head's machine: rsd token new"
)]
pub struct InvalidToken;

impl FromStr for Token {
    type Err = InvalidToken;

    fn from_str(text: &str) -> Result<Token, InvalidToken> {
        let coded = text.trim().strip_prefix(PREFIX).ok_or(InvalidToken)?;
        let bytes = URL_SAFE_NO_PAD.decode(coded).map_err(|_| InvalidToken)?;
        let (authority, rest) = bytes.split_first_chunk::<FINGERPRINT_BYTES>().ok_or(InvalidToken)?;
        let (id, secret) = rest.split_first_chunk::<ID_BYTES>().ok_or(InvalidToken)?;
        let secret = secret.try_into().map_err(|_| InvalidToken)?;
        Ok(Token { authority: Fingerprint(*authority), id: u64::from_be_bytes(*id), secret })
    }
}

/// The SHA-256 of an authority's certificate, or of a secret.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Fingerprint(pub [u8; FINGERPRINT_BYTES]);

impl Fingerprint {
    /// Returns the fingerprint of these bytes.
    pub fn of(bytes: &[u8]) -> Fingerprint {
        let mut hash = [0; FINGERPRINT_BYTES];
        hash.copy_from_slice(digest(&SHA256, bytes).as_ref());
        Fingerprint(hash)
    }
}

impl fmt::Display for Fingerprint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.iter().try_for_each(|byte| write!(f, "{byte:02x}"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn token() -> Token {
        Token { authority: Fingerprint::of(b"an authority"), id: 0x0123_4567_89ab_cdef, secret: *b"sixteen bytes ok" }
    }

    #[test]
    fn a_token_is_one_word_that_is_read_back() {
        let text = token().to_text();
        assert_eq!(text.len(), 80);
        assert!(text.chars().all(|c| c.is_ascii_alphanumeric() || c == '-' || c == '_'), "{text}");
        assert_eq!(text.parse(), Ok(token()));
        assert_eq!(format!(" {text}\n").parse(), Ok(token()), "a file ends with a newline");
    }

    #[test]
    fn text_that_is_not_a_token_is_refused() {
        let text = token().to_text();
        for wrong in
            ["", "rsd1-", &text[1..], &text[..79], &format!("{text}A"), &text.replace("rsd1", "rsd2"), "rsd1-ä"]
        {
            assert_eq!(wrong.parse::<Token>(), Err(InvalidToken), "{wrong}");
        }
    }

    #[test]
    fn the_debug_form_of_a_token_does_not_show_its_secret() {
        let shown = format!("{:?}", token());
        assert!(shown.starts_with("Token(0123456789abcdef of "), "{shown}");
        assert!(!shown.contains("73697874") && !shown.contains("115, 105"), "{shown}");
    }
}
