//! A daemon that stands by for the head.

use std::sync::{Arc, Mutex};

use super::place::Place;
use crate::clock::since_boot;
use crate::disk::state_dir::StateDir;
use crate::options::StartOptions;
use crate::reach;
use crate::secure::membership::Membership;
use crate::standby::etcd::Store;
use crate::standby::files::{self, Files};
use crate::standby::follow::{Following, Standby};
use crate::standby::promote::Promotion;
use crate::way_up::WayUp;

/// Returns how this daemon becomes the head, if it stands by; begins to follow the head, or starts it if it is here.
pub(super) fn standby(
    options: &StartOptions,
    state_dir: &StateDir,
    place: &Place,
    way_up: Option<&WayUp>,
    store: Option<Store>,
) -> anyhow::Result<Option<Arc<Promotion>>> {
    let (Some(listen), Some(way_up), Membership::Node { own, credentials }) =
        (&options.standby, way_up, &place.membership)
    else {
        return Ok(None);
    };
    let name = format!("{}-head", place.identity.name);
    let path = state_dir.path().to_owned();
    let files = Files::open(&path, &credentials.dvm, &name)?;
    let is_promoted = files::is_promoted(&path);
    // The port of a head that was promoted is in use already.
    let (listen, reserved) = match is_promoted {
        true => (files.listen().unwrap_or_else(|| listen.clone()), None),
        false => {
            let (at, reserved) = reach::reserve(listen)?;
            files.write_listen(&at)?;
            (at, Some(reserved))
        }
    };
    let standby = Arc::new(Standby {
        node: credentials.node.unwrap_or_default(),
        own: own.clone(),
        authority: credentials.authority.clone(),
        way_up: way_up.clone(),
        listen,
        daemon_listen: place.bound.map(|at| at.to_string()).unwrap_or_default(),
        state_dir: path,
        files: Mutex::new(files),
        following: Mutex::new(Following { heard: since_boot(), ..Following::default() }),
    });
    let has_etcd = store.is_some();
    let promotion = Arc::new(Promotion {
        standby: Arc::clone(&standby),
        name,
        serves_all: credentials.serves_all,
        reserved: Mutex::new(reserved),
        config: options.config.clone(),
        turn: tokio::sync::Mutex::new(store),
    });
    if is_promoted {
        promotion.start_again();
    } else {
        standby.start()?;
        if has_etcd {
            tokio::spawn(Arc::clone(&promotion).watch());
        }
    }
    Ok(Some(promotion))
}
