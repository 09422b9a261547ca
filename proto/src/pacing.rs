//! Pacing of connections between ranks.
//!
//! A congestion control that paces (BBR, the default of many systems) sets a timer for each segment, which takes a third of the processor
//! time of long messages between processes of one machine. Pacing stays on once such a control has been active on a connection. So these
//! connections begin with another one, also where they arrive before the rank accepts them.

use std::ffi::OsStr;

/// The congestion control with which a connection begins if the system's default paces. Every kernel has it.
pub const UNPACED: &str = "reno";

/// Whether a congestion control paces. Any other default stays: to begin without it would also disable ECN, which DCTCP agrees on with the
/// first segment.
pub fn paces(control: &OsStr) -> bool {
    control.as_encoded_bytes().starts_with(b"bbr")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_bbr_paces() {
        let all = ["bbr", "bbr2", "cubic", "dctcp", UNPACED];
        assert_eq!(all.map(|control| paces(OsStr::new(control))), [true, true, false, false, false]);
    }
}
