//! The services that a daemon offers, as a head or below one.

use std::sync::Arc;

use rsd_proto::services::access_server::AccessServer;
use rsd_proto::services::dvm_server::DvmServer;
use rsd_proto::services::heads_server::HeadsServer;
use rsd_proto::services::link_server::LinkServer;
use rsd_proto::services::observe_server::ObserveServer;
use rsd_proto::services::pmi_server::PmiServer;
use rsd_proto::transport::parts::SENT_BYTES_MAX;
use rsd_proto::transport::{MESSAGE_BYTES_MAX, Refusals, Services, Shares};

use super::place::Place;
use crate::disk::job_log::JobLogs;
use crate::door::Door;
use crate::metrics::Meter;
use crate::serve::About;
use crate::serve::access::{ForwardAccess, HeadAccess};
use crate::serve::callers::Callers;
use crate::serve::forward::{ForwardService, Turns};
use crate::serve::head::HeadService;
use crate::serve::heads::{HeadService as HeadHeads, NodeService as NodeHeads};
use crate::serve::link::{Limits as LinkLimits, LinkService};
use crate::serve::observe::ObserveService;
use crate::serve::pmi::PmiService;
use crate::standby::promote::Promotion;
use crate::way_up::WayUp;

/// The largest request about tokens and certificates, which callers without a certificate may send.
const ACCESS_BYTES_MAX: usize = 4 << 10;

/// What the services share.
pub(super) struct Shared {
    pub(super) door: Door,
    pub(super) callers: Callers,
    pub(super) followers: Shares,
    pub(super) turns: Turns,
    pub(super) about: About,
    pub(super) refusals: Refusals,
    pub(super) meter: Meter,
}

impl Shared {
    /// The services of a head.
    pub(super) fn of_head(self, place: &Place, logs: Arc<JobLogs>, heads: HeadHeads) -> Services {
        let services = self.of_both(place, None).with(HeadsServer::new(heads));
        let Shared { door, callers, followers, about, refusals, .. } = self;
        let (authority, listen) = (place.membership.authority(), place.join_address.clone());
        let access = HeadAccess { door: door.clone(), authority, listen, refusals, callers };
        let (names, owners) = Default::default();
        let dvm = DvmServer::new(HeadService { door, logs, about, callers, names, followers, owners })
            .max_decoding_message_size(MESSAGE_BYTES_MAX)
            .max_encoding_message_size(MESSAGE_BYTES_MAX);
        services.with(dvm).with(AccessServer::new(access).max_decoding_message_size(ACCESS_BYTES_MAX))
    }

    /// The services of a daemon that has joined; it stands by for the head if there is a `promotion`.
    pub(super) fn of_node(self, place: &Place, way_up: WayUp, promotion: Option<Arc<Promotion>>) -> Services {
        let services = self.of_both(place, Some(way_up.clone()));
        let Shared { door, callers, turns, about, .. } = self;
        let (to_heads, to_access) = (turns.clone(), turns.clone());
        let heads = NodeHeads { door: door.clone(), way_up: way_up.clone(), callers, turns: to_heads, promotion };
        let access = ForwardAccess::new(way_up.clone(), callers, to_access);
        let dvm = DvmServer::new(ForwardService { door, about, way_up, callers, turns })
            .max_decoding_message_size(MESSAGE_BYTES_MAX)
            .max_encoding_message_size(MESSAGE_BYTES_MAX);
        let access = AccessServer::new(access).max_decoding_message_size(ACCESS_BYTES_MAX);
        services.with(HeadsServer::new(heads)).with(dvm).with(access)
    }

    fn of_both(&self, place: &Place, way_up: Option<WayUp>) -> Services {
        let (door, callers) = (self.door.clone(), self.callers);
        let machine = place.inventory.machine.clone();
        let (own, limits) = (place.membership.own(), LinkLimits::default());
        let link = LinkServer::new(LinkService { door: door.clone(), own, machine, limits })
            .max_decoding_message_size(SENT_BYTES_MAX)
            .max_encoding_message_size(MESSAGE_BYTES_MAX);
        let pmi = PmiServer::new(PmiService { door: door.clone(), callers });
        let (followers, turns, meter) = (self.followers.clone(), self.turns.clone(), self.meter.clone());
        let observe = ObserveServer::new(ObserveService { door, callers, way_up, followers, turns, meter })
            .max_decoding_message_size(MESSAGE_BYTES_MAX)
            .max_encoding_message_size(MESSAGE_BYTES_MAX);
        Services::default().reporting_to(self.refusals.clone()).with(link).with(pmi).with(observe)
    }
}
