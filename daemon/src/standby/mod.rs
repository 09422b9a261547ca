//! Standbys: daemons that hold a copy of what the head keeps, and take over when its machine is lost.
//!
//! ```text
//! head: journal, logs, authority ──Follow──▶ standby: STATE_DIR/standby, which is the state directory of a head
//! head ◀──confirmed── standby             only then: answers, launches, acknowledgements of output, what followers see
//! rsctl head promote ▶ standby: epoch + 1 in the copied journal ▶ rsd start --state-dir STATE_DIR/standby ▶ nodes find it
//! ```
//!
//! - [`copies`]: at the head, what its standbys have confirmed. [`feed`]: what it sends to one of them.
//! - [`follow`]: at the standby, its connection to the head; [`files`]: what it writes.
//! - [`promote`]: how a standby becomes the head; it runs as a process of its own, so the node's daemon and its steps go on as they are.
//!   [`ask`]: another daemon asks it to.
//! - [`etcd`]: what etcd has about the head; [`lease`]: how the head keeps its lease there. A standby takes over by it in [`promote`].
//! - [`epochs`]: how a head hears of a later one, and gives way.

pub(crate) mod ask;
pub(crate) mod copies;
pub(crate) mod epochs;
pub(crate) mod etcd;
pub(crate) mod feed;
pub(crate) mod files;
pub(crate) mod follow;
pub(crate) mod lease;
pub(crate) mod promote;
