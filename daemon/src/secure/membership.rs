//! What a daemon is in its DVM, and its certificate.

use std::sync::Arc;

use anyhow::Context;
use rsd_proto::transport::Own;
use rsd_proto::v1::Credentials;

use super::authority::Authority;
use super::renew::{self, Source};
use crate::clock::unix_ms;
use crate::disk::state_dir::StateDir;
use crate::way_up::WayUp;

/// What a daemon is in its DVM.
#[derive(Debug)]
pub(crate) enum Membership {
    /// A head that does not listen on TCP. It needs no certificate.
    Alone,
    /// A head that other daemons can join.
    Head {
        /// Signs all certificates.
        authority: Arc<Authority>,
        /// The head's certificate.
        own: Own,
        /// The same with its times.
        credentials: Credentials,
    },
    /// A joined daemon.
    Node {
        /// Its certificate.
        own: Own,
        /// The same with its times.
        credentials: Credentials,
    },
}

impl Membership {
    pub(crate) fn of_head(authority: Authority) -> anyhow::Result<Membership> {
        let credentials = authority.for_head(unix_ms()).context("make the head's certificate")?;
        let own = Own::new(&credentials).context("use the head's certificate")?;
        Ok(Membership::Head { authority: Arc::new(authority), own, credentials })
    }

    pub(crate) fn of_node(credentials: Credentials) -> anyhow::Result<Membership> {
        let own = Own::new(&credentials).context("use the certificate in the state directory (file credentials)")?;
        Ok(Membership::Node { own, credentials })
    }

    pub(crate) fn own(&self) -> Option<Own> {
        match self {
            Membership::Alone => None,
            Membership::Head { own, .. } | Membership::Node { own, .. } => Some(own.clone()),
        }
    }

    /// Returns whether the DVM serves all users. `head`: what a head decides.
    pub(crate) fn serves_all(&self, head: impl FnOnce() -> bool) -> bool {
        match self {
            Membership::Alone | Membership::Head { .. } => head(),
            Membership::Node { credentials, .. } => credentials.serves_all,
        }
    }

    pub(crate) fn authority(&self) -> Option<Arc<Authority>> {
        match self {
            Membership::Head { authority, .. } => Some(Arc::clone(authority)),
            Membership::Alone | Membership::Node { .. } => None,
        }
    }

    /// Renews the certificate as long as the daemon runs. `way_up`: a joined daemon's way to the head.
    pub(crate) fn spawn_renewal(&self, way_up: Option<WayUp>, state_dir: &Arc<StateDir>) {
        match (self, way_up) {
            (Membership::Head { authority, own, credentials }, _) => {
                let source = Source::Authority(Arc::clone(authority));
                tokio::spawn(renew::keep(own.clone(), source, credentials.clone()));
            }
            (Membership::Node { own, credentials }, Some(way_up)) => {
                let source = Source::Head { way_up, state_dir: Arc::clone(state_dir) };
                tokio::spawn(renew::keep(own.clone(), source, credentials.clone()));
            }
            (Membership::Alone | Membership::Node { .. }, _) => {}
        }
    }
}
