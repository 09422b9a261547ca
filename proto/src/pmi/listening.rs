//! How ranks find each other without an exchange if rsd is the launcher and the job has several nodes.
//!
//! The step creates a listening TCP socket for each rank before the rank starts, and passes its descriptor number in [`LISTEN_FD`].
//! A rank gets the job's secret ([`SECRET_KEY`]), which exists from the start, and, before it first connects to another rank, that
//! rank's address ([`address_key`]): `a.b.c.d:port` or `[v6]:port`. The address may be answered only after every
//! node's part of the job has started. If the step has created no sockets, the job has no secret.
//!
//! Ranks on nodes behind a router or a firewall cannot be dialled from other machines. A rank can ask which ones these are
//! ([`dial_out_key`]). A rank that has got a secret need not ask unless [`DIAL_OUT`] is set.
//!
//! Ranks cannot put keys that begin with `PMI_`, so no rank can forge these answers.

/// The variable that holds the descriptor number of the rank's listening socket.
pub const LISTEN_FD: &str = "RSD_LISTEN_FD";
/// The variable that holds the job's PMI name. If the process manager reports the same name, the process manager is rsd.
pub const NAMESPACE: &str = "RSD_PMI_NAMESPACE";
/// The variable that is set if ranks of the job cannot be dialled from other machines.
pub const DIAL_OUT: &str = "RSD_DIAL_OUT";
/// The variable that is 1 if there is a machine that runs more ranks of the job than it has processors, otherwise 0: the same for all ranks.
pub const CROWDED: &str = "RSD_CROWDED";
/// The key of the job's secret, 64 hexadecimal digits.
pub const SECRET_KEY: &str = "PMI_rsd_secret";

const ADDRESS: &str = "PMI_rsd_address_";

/// Returns the key of a rank's address.
pub fn address_key(rank: u32) -> String {
    format!("{ADDRESS}{rank}")
}

/// Returns the rank whose address a key requests; `None` for any other key.
pub fn rank_of(key: &[u8]) -> Option<u32> {
    str::from_utf8(key).ok()?.strip_prefix(ADDRESS)?.parse().ok()
}

const DIAL_OUT_FROM: &str = "PMI_rsd_dial_out_";

/// Returns the key of the ranks from `first` on that ranks on other machines cannot dial: ranges as in [`losses::to_text`], at most
/// [`losses::RANGES_MAX`] of them. The key has no value if there is no such rank.
///
/// [`losses::to_text`]: super::losses::to_text
/// [`losses::RANGES_MAX`]: super::losses::RANGES_MAX
pub fn dial_out_key(first: u32) -> String {
    format!("{DIAL_OUT_FROM}{first}")
}

/// Returns the first rank that such a key asks about; `None` for any other key.
pub fn dial_out_from(key: &[u8]) -> Option<u32> {
    str::from_utf8(key).ok()?.strip_prefix(DIAL_OUT_FROM)?.parse().ok()
}

/// Returns the bytes as hexadecimal digits.
pub fn digits(secret: &[u8]) -> String {
    secret.iter().map(|byte| format!("{byte:02x}")).collect()
}

/// Returns the 32 bytes that 64 hexadecimal digits encode.
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
    fn only_an_address_key_names_a_rank() {
        assert_eq!(rank_of(address_key(4_000_000_000).as_bytes()), Some(4_000_000_000));
        for key in ["PMI_rsd_address_", "PMI_rsd_address_x", "PMI_rsd_address_-1", "rsd_address_1", SECRET_KEY] {
            assert_eq!(rank_of(key.as_bytes()), None, "{key}");
        }
        assert_eq!(rank_of(b"PMI_rsd_address_\xff"), None);
    }

    #[test]
    fn only_a_key_of_dial_out_names_its_first_rank() {
        assert_eq!(dial_out_from(dial_out_key(7).as_bytes()), Some(7));
        for key in [SECRET_KEY, &address_key(1), "PMI_rsd_dial_out_", "PMI_rsd_dial_out_-1"] {
            assert_eq!(dial_out_from(key.as_bytes()), None, "{key}");
        }
    }

    #[test]
    fn a_secret_survives_its_digits() {
        let bytes: [u8; 32] = std::array::from_fn(|index| (index * 9) as u8);
        assert_eq!(secret(digits(&bytes).as_bytes()), Some(bytes));
        let text = digits(&bytes);
        assert_eq!(secret(&text.as_bytes()[1..]), None);
        assert_eq!(secret(text.replace(|_: char| true, "g").as_bytes()), None);
    }
}
