//! Pacing of connections between ranks.
//!
//! A congestion control that paces (BBR, the default of many systems) sets a timer for each segment, which takes a third of the processor
//! time of long messages between processes of one machine. Pacing stays on once such a control has been active on a connection. So these
//! connections begin with another one, also where they arrive before the rank accepts them.

use std::ffi::OsStr;

/// The congestion control with which connections begin, if not with the system's default: none if that does not pace. (Another control
/// would also disable ECN, which DCTCP agrees on with the first segment.)
pub fn unpaced(default: &OsStr) -> Option<&'static str> {
    default.as_encoded_bytes().starts_with(b"bbr").then_some("reno")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_control_that_paces_is_replaced() {
        for (default, unpaced) in [("bbr", Some("reno")), ("bbr2", Some("reno")), ("cubic", None), ("dctcp", None)] {
            assert_eq!(super::unpaced(OsStr::new(default)), unpaced, "{default}");
        }
    }
}
