//! Certificates and join tokens: how daemons and users of other machines become members of this DVM.
//!
//! - [`authority`]: the head's, which signs all certificates of the DVM.
//! - [`enroll`]: how a daemon that starts gets its certificate: stored, or by a token.
//! - [`membership`]: what a daemon is in its DVM, with its certificate.
//! - [`renew`]: replaces certificates before they expire.
//! - [`refusals`]: the log of refused connections.

pub(crate) mod authority;
pub(crate) mod enroll;
pub(crate) mod membership;
pub(crate) mod refusals;
pub(crate) mod renew;
