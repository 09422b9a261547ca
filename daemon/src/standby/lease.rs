//! How the head keeps its lease in etcd, and names there the standbys that may take over. The rules are in [`rsd_core::lease`].

use std::collections::BTreeSet;
use std::time::Duration;

use rsd_core::lease::{self, Ground};
use rsd_proto::etcd::EtcdError;
use rsd_proto::transport::Own;
use rsd_proto::v1::HeadEpoch;
use tracing::{error, info, warn};

use super::copies::Copies;
use super::etcd::{HeadKey, PARTS, Store};
use crate::clock::since_boot;
use crate::door::{Door, Event};

/// How long a head that starts asks for its first lease, and how often, before it goes on to ask in the background.
pub(crate) const FIRST: Duration = Duration::from_secs(5);
pub(crate) const AGAIN: Duration = Duration::from_millis(200);

/// The head, for its lease.
#[derive(Debug)]
pub(crate) struct Keeper {
    pub(crate) store: Store,
    pub(crate) copies: Copies,
    pub(crate) own: Own,
    pub(crate) head: HeadKey,
    pub(crate) epoch: HeadEpoch,
    /// Under which the head's key is.
    pub(crate) lease: Option<i64>,
}

/// Why there is no lease.
#[derive(Debug)]
pub(crate) enum NoLease {
    /// There is a later head.
    Later(HeadEpoch),
    /// Not now.
    NotYet(String),
    /// The settings are wrong, or etcd refuses the user.
    Refused(String),
}

impl From<EtcdError> for NoLease {
    fn from(error: EtcdError) -> NoLease {
        let text = error.to_string();
        match error {
            EtcdError::Unreachable(_) => NoLease::NotYet(text),
            EtcdError::Setting(_) | EtcdError::Refused { .. } => NoLease::Refused(text),
        }
    }
}

impl Keeper {
    /// Takes the lease.
    pub(crate) async fn take(&mut self) -> Result<(), NoLease> {
        let asked = since_boot();
        let view = self.store.view().await?;
        let stored = view.stored();
        let candidates = match lease::take(&stored, self.epoch.number) {
            Ok(candidates) => candidates,
            Err(_) if self.own.proves(&view.epoch()) => return Err(NoLease::Later(view.epoch())),
            Err(later) => {
                let place = self.store.place();
                let text =
                    format!("etcd has epoch {later} under {place}, without a proof: somebody else has written it");
                return Err(NoLease::Refused(text));
            }
        };
        if let Some(other) = view.head().filter(|head| head.epoch != self.epoch.number) {
            return Err(NoLease::NotYet(format!(
                "the lease of {} (epoch {}) has not ended yet",
                other.name, other.epoch
            )));
        }
        let is_known = stored.candidates.is_some_and(|(named, _)| named == self.epoch.number);
        let named = (!is_known).then_some(&candidates);
        let Some(lease) = self.store.take(&view, &self.head, &self.epoch, named).await? else {
            return Err(NoLease::NotYet("etcd has changed meanwhile".into()));
        };
        self.lease = Some(lease);
        self.copies.learn(|held| held.on_renewed(asked));
        self.copies.recorded(candidates);
        self.name_candidates(lease).await?;
        Ok(())
    }

    /// Renews the lease.
    async fn renew(&mut self, lease: i64) -> Result<(), NoLease> {
        let asked = since_boot();
        if !self.store.renew(lease).await? {
            self.lease = None;
            return self.take().await;
        }
        self.copies.learn(|held| held.on_renewed(asked));
        self.name_candidates(lease).await
    }

    /// Has etcd name exactly the standbys in step.
    async fn name_candidates(&mut self, lease: i64) -> Result<(), NoLease> {
        loop {
            let in_step: BTreeSet<_> = self.copies.complete();
            if self.copies.has_candidates(&in_step) {
                return Ok(());
            }
            self.copies.learn(|held| held.on_candidates_asked(&in_step));
            if !self.store.name(lease, self.epoch.number, &in_step).await? {
                self.lease = None;
                return Err(NoLease::NotYet("the lease has ended".into()));
            }
            info!(?in_step, "the standbys that take over if this head is lost");
            self.copies.recorded(in_step);
        }
    }

    /// Keeps the lease as long as the head runs.
    pub(crate) async fn keep(mut self, door: Door) {
        let every = self.store.lasts / PARTS;
        let mut said = Said::default();
        loop {
            tokio::select! {
                () = tokio::time::sleep(every) => {}
                () = self.copies.news() => {}
            }
            if self.copies.is_over() {
                if let Some(lease) = self.lease {
                    self.store.revoke(lease).await;
                }
                return;
            }
            let done = match self.lease {
                Some(lease) => self.renew(lease).await,
                None => self.take().await,
            };
            let why = match done {
                Ok(()) => String::new(),
                Err(NoLease::Later(epoch)) => {
                    self.copies.learn(lease::HeadLease::on_over);
                    return door.send(Event::StepDown(epoch));
                }
                Err(NoLease::NotYet(why) | NoLease::Refused(why)) => why,
            };
            self.copies.set_why(&why);
            said.tell(self.copies.learn(|_| {}), why);
        }
    }
}

/// What the log has said last.
#[derive(Debug, Default)]
struct Said(Option<(Option<Ground>, bool)>);

impl Said {
    fn tell(&mut self, ground: Option<Ground>, why: String) {
        let now = (ground, why.is_empty());
        if self.0.replace(now) == Some(now) {
            return;
        }
        match now {
            (Some(_), true) => info!("this head has its lease in etcd"),
            (Some(Ground::Held), false) => warn!(why, "etcd does not renew this head's lease, which still lasts"),
            (Some(Ground::Confirmed), false) => {
                warn!(why, "etcd does not renew this head's lease: the head goes on, because its standbys confirm it");
            }
            (None, _) => {
                error!(why, "this head has no lease in etcd, and decides nothing until it has: jobs that run go on");
            }
        }
    }
}
