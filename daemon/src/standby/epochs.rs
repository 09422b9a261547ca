//! How a head hears of a later one.
//!
//! Nodes that have heard of the later head tell it when they connect. Because none may connect, a head with standbys also asks at the places
//! where they would be the head: before it begins, and while it runs.

use std::time::Duration;

use rsd_core::addresses::dialable;
use rsd_core::rsd::{Answer, Call, Caller, StandbyCall};
use rsd_proto::transport::{Own, Target, dial, heads_client};
use rsd_proto::v1::{GetEpochRequest, HeadEpoch, Kept, KeptStandby, kept::What};
use tokio::task::JoinSet;

use crate::door::{Door, Event};
use crate::network;

/// How often a head asks.
const EVERY: Duration = Duration::from_secs(3);
/// How long it waits for an answer.
const DEADLINE: Duration = Duration::from_secs(2);

/// Returns the epoch of a later head at one of these places, if there is one.
pub(crate) async fn later(own: &Own, standbys: &[KeptStandby], number: u64) -> Option<HeadEpoch> {
    let machine = network::machine();
    let mut asked = JoinSet::new();
    for head in standbys.iter().filter_map(|standby| standby.head.as_ref()) {
        let target = Target::AnyOf(dialable(head, &machine), own.dialer(Some(0)));
        asked.spawn(async move {
            let ask = async {
                let channel = dial(&target, DEADLINE).await.ok()?;
                Some(heads_client(channel).get_epoch(GetEpochRequest {}).await.ok()?.into_inner())
            };
            tokio::time::timeout(DEADLINE, ask).await.ok().flatten()
        });
    }
    let mut highest: Option<HeadEpoch> = None;
    while let Some(answer) = asked.join_next().await {
        let found = answer.ok().flatten().filter(|epoch| epoch.number > number && own.proves(epoch));
        highest = highest.into_iter().chain(found).max_by_key(|epoch| epoch.number);
    }
    highest
}

/// Asks as long as the head runs, and has it step down.
pub(crate) async fn watch(own: Own, door: Door, caller: Caller, number: u64) {
    loop {
        tokio::time::sleep(EVERY).await;
        let answer = door.call(caller, Call::Standby(StandbyCall::List)).await;
        let Answer::Standbys(standbys) = answer else { continue };
        if let Some(epoch) = later(&own, &standbys, number).await {
            return door.send(Event::StepDown(epoch));
        }
    }
}

/// Returns the standbys that these records tell of.
pub(crate) fn standbys_of(records: &[Kept]) -> Vec<KeptStandby> {
    let mut standbys: Vec<KeptStandby> = Vec::new();
    for record in records {
        match &record.what {
            Some(What::Standby(standby)) => {
                standbys.retain(|known| known.node != standby.node);
                standbys.push(standby.clone());
            }
            Some(What::StandbyGone(node)) => standbys.retain(|known| known.node != *node),
            Some(_) | None => {}
        }
    }
    standbys
}
