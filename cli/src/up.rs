//! `rsctl up` and `rsctl down`: start and stop the daemons of a DVM over ssh.
//!
//! [`targets`] options → hosts · [`place`] runs scripts here or on a host · [`daemon`] one daemon on one host · [`push`] copies
//! programs · [`head`] the head · [`mod@hold`] connections that stay · [`start`] all nodes · [`mod@down`] stops them · [`record`] what was started · [`report`] what the user
//! sees.

mod daemon;
mod down;
mod head;
mod hold;
mod place;
mod push;
mod record;
mod report;
mod start;
mod targets;

pub(crate) use down::down;
pub(crate) use hold::hold;
pub(crate) use start::up;

use rsd_proto::transport::exit;
use rsd_ssh::{Config, Deadlines, Here, Network};

use crate::dvm::Dvm;
use crate::exit::Failure;
use crate::options::up::Ssh;

/// Prepares connections as the user's options and ssh configuration say.
fn network(options: &Ssh) -> Result<Network, Failure> {
    let here = Here::now();
    let config = Config::read(&here, options.ssh_config.as_deref())
        .map_err(|error| Failure::new(exit::USAGE, format!("ssh configuration: {error}")))?;
    let deadlines = Deadlines { connect: options.connect_timeout, authenticate: options.connect_timeout };
    Ok(Network::new(config, here, options.accept_new_host_keys, deadlines))
}

/// Returns the name that the user has given the DVM; None: no name was given.
fn wished_name(dvm: &Dvm) -> Result<Option<String>, Failure> {
    let Some(word) = dvm.word() else { return Ok(None) };
    let word = word.to_string_lossy().into_owned();
    match rsd_config::dvm_name::check(&word) {
        Ok(()) => Ok(Some(word)),
        Err(_) => {
            Err(Failure::usage(format!("--dvm {word}: here it takes the name of a DVM, not a path or an address")))
        }
    }
}
