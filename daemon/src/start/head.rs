//! What a head needs before it may decide: that no other machine has become the head meanwhile, and the lease in etcd if there is one.

use std::sync::Arc;
use std::time::Instant;

use anyhow::bail;
use rsd_config::settings::Settings;
use rsd_proto::transport::{Own, exit};
use rsd_proto::v1 as wire;
use tracing::warn;

use super::place::Place;
use crate::disk::job_log::JobLogs;
use crate::disk::state_dir::StateDir;
use crate::door::Door;
use crate::failed::Failed;
use crate::options::StartOptions;
use crate::shell::replaced;
use crate::standby::copies::Copies;
use crate::standby::epochs;
use crate::standby::etcd::{HeadKey, Store};
use crate::standby::lease::{self, Keeper, NoLease};

/// What keeps a head the only one, and what lets a standby take its place.
pub(super) struct Leases {
    /// The copies of the head's journal.
    pub(super) copies: Copies,
    /// Keeps the lease of a head that has etcd.
    pub(super) keeper: Option<Keeper>,
    /// The etcd of a standby.
    pub(super) of_standby: Option<Store>,
}

impl Leases {
    /// Takes the head's lease, if its settings name an etcd.
    pub(super) async fn open(
        options: &StartOptions,
        settings: &Settings,
        place: &Place,
        epoch: &wire::HeadEpoch,
        (door, logs): (&Door, &Arc<JobLogs>),
        state_dir: &StateDir,
    ) -> anyhow::Result<Leases> {
        let is_listening_head = options.join.is_none() && place.membership.own().is_some();
        let store = match is_listening_head || options.standby.is_some() {
            true => {
                let store = Store::of(&settings.head, &place.identity.dvm);
                store.map_err(|error| Failed::new(exit::USAGE, format!("{error:#}")))?
            }
            false => None, // it needs none of the files that the settings name
        };
        let lasts = store.as_ref().filter(|_| is_listening_head).map(|store| store.lasts);
        let copies = Copies::new(Arc::clone(logs), door.clone(), settings.standby.patience, lasts);
        let (of_head, of_standby) = if is_listening_head { (store, None) } else { (None, store) };
        let keeper = match (of_head, place.membership.own()) {
            (Some(store), Some(own)) => {
                let (name, listen) = (place.identity.name.clone(), place.join_address.clone());
                let head = HeadKey { epoch: epoch.number, name, listen };
                let keeper = Keeper { store, copies: copies.clone(), own, head, epoch: epoch.clone(), lease: None };
                Some(first_lease(keeper, state_dir).await?)
            }
            _ => None,
        };
        Ok(Leases { copies, keeper, of_standby })
    }
}

/// Refuses to be the head again if another machine has become the head meanwhile.
pub(super) async fn give_way(
    state_dir: &StateDir,
    own: Option<Own>,
    records: &[wire::Kept],
    number: u64,
) -> anyhow::Result<()> {
    if let Some(later) = state_dir.later_epoch().filter(|later| later.number > number) {
        bail!(replaced(later.number));
    }
    let Some(own) = own else { return Ok(()) };
    if let Some(later) = epochs::later(&own, &epochs::standbys_of(records), number).await {
        state_dir.write_later_epoch(&later)?;
        bail!(replaced(later.number));
    }
    Ok(())
}

/// Takes the head's lease in etcd. Where etcd cannot be reached yet, the head waits for it while it runs.
async fn first_lease(mut keeper: Keeper, state_dir: &StateDir) -> anyhow::Result<Keeper> {
    let place = keeper.store.place();
    let deadline = Instant::now() + lease::FIRST;
    let why = loop {
        match keeper.take().await {
            Ok(()) => return Ok(keeper),
            Err(NoLease::Later(later)) => {
                state_dir.write_later_epoch(&later)?;
                bail!(replaced(later.number));
            }
            Err(NoLease::Refused(why)) => {
                bail!(Failed::new(exit::USAGE, format!("cannot use {place} in etcd: {why} (see rsctl help standbys)")));
            }
            Err(NoLease::NotYet(_)) if Instant::now() < deadline => tokio::time::sleep(lease::AGAIN).await,
            Err(NoLease::NotYet(why)) => break why,
        }
    };
    warn!(why, "this head has no lease in etcd, and decides nothing until it has");
    keeper.copies.set_why(&why);
    Ok(keeper)
}
