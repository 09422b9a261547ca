//! How ranks find each other without an exchange, where the launcher is rsd and the job has several nodes.
//!
//! The step makes a listening TCP socket for each rank before it starts, and says by [`LISTEN_FD`] under which number the rank
//! has it. A rank asks for the job's secret ([`SECRET_KEY`]), which is there from the start, and, when it first wants to talk
//! to another, for that one's address ([`address_key`]): `a.b.c.d:port` or `[v6]:port`. That answer may take until every
//! node's part of the job has started. Where the step has made no sockets, it has no secret either.
//!
//! Ranks cannot put keys that begin with `PMI_`, so none can answer in the step's place.

/// The variable with the number of the rank's listening socket.
pub const LISTEN_FD: &str = "RSD_LISTEN_FD";
/// The variable with the job's PMI name: if it is also what the process manager says, that is rsd.
pub const NAMESPACE: &str = "RSD_PMI_NAMESPACE";
/// The key of the job's secret, 64 hexadecimal digits.
pub const SECRET_KEY: &str = "PMI_rsd_secret";

const ADDRESS: &str = "PMI_rsd_address_";

/// The key of a rank's address.
pub fn address_key(rank: u32) -> String {
    format!("{ADDRESS}{rank}")
}

/// Whose address a key asks for; none if it is another key.
pub fn rank_of(key: &[u8]) -> Option<u32> {
    str::from_utf8(key).ok()?.strip_prefix(ADDRESS)?.parse().ok()
}

/// Bytes as hexadecimal digits.
pub fn digits(secret: &[u8]) -> String {
    secret.iter().map(|byte| format!("{byte:02x}")).collect()
}

/// The 32 bytes behind 64 hexadecimal digits.
pub fn secret(digits: &[u8]) -> Option<[u8; 32]> {
    let text = str::from_utf8(digits).ok().filter(|text| text.len() == 64 && text.is_ascii())?;
    let mut bytes = [0; 32];
    for (index, byte) in bytes.iter_mut().enumerate() {
        *byte = u8::from_str_radix(&text[2 * index..2 * index + 2], 16).ok()?;
    }
    Some(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_rank_is_found_in_its_key_and_in_no_other() {
        assert_eq!(rank_of(address_key(4_000_000_000).as_bytes()), Some(4_000_000_000));
        for key in ["PMI_rsd_address_", "PMI_rsd_address_x", "PMI_rsd_address_-1", "rsd_address_1", SECRET_KEY] {
            assert_eq!(rank_of(key.as_bytes()), None, "{key}");
        }
        assert_eq!(rank_of(b"PMI_rsd_address_\xff"), None);
    }

    #[test]
    fn a_secret_comes_back_from_its_digits() {
        let bytes: [u8; 32] = std::array::from_fn(|index| (index * 9) as u8);
        assert_eq!(secret(digits(&bytes).as_bytes()), Some(bytes));
        let text = digits(&bytes);
        assert_eq!(secret(&text.as_bytes()[1..]), None);
        assert_eq!(secret(text.replace(|_: char| true, "g").as_bytes()), None);
    }
}
