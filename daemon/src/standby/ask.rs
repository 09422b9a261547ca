//! Asks the daemon of a standby to become the head, for a user of another node. The head may be lost, and with it the ways through the
//! tree, so the standby is dialled: each node knows where its daemon listens.

use std::time::Duration;

use rsd_proto::transport::{Own, Target, dial, exit, heads_client, refusal};
use rsd_proto::v1::{Ancestor, PromoteReply, PromoteRequest};
use tonic::{Code, Request, Status};

/// Asks the standby that `request` names. `stamped`: adds for whom the request is.
///
/// # Errors
/// When there is no such standby, it is unreachable, or it refuses.
pub(crate) async fn promote(
    own: &Own,
    standbys: &[Ancestor],
    deadline: Duration,
    request: PromoteRequest,
    stamped: impl FnOnce(PromoteRequest) -> Request<PromoteRequest>,
) -> Result<PromoteReply, Status> {
    let standby = find(standbys, &request.node)?;
    let name = &standby.name;
    if standby.daemon.is_empty() {
        let text = format!(
            "the daemon of {name} cannot be reached from here: run rsctl head promote on the machine of {name}"
        );
        return Err(refusal(Code::FailedPrecondition, exit::USAGE, text));
    }
    let target = Target::AnyOf(standby.daemon.clone(), own.dialer(Some(standby.node)));
    let channel = dial(&target, deadline).await.map_err(|error| {
        let text =
            format!("the standby {name} is unreachable: at {target}: {error}: run rsctl head promote on its machine");
        refusal(Code::Unavailable, exit::UNREACHABLE, text)
    })?;
    let request = PromoteRequest { node: standby.node.to_string(), ..request };
    Ok(heads_client(channel).promote(stamped(request)).await?.into_inner())
}

fn find<'a>(standbys: &'a [Ancestor], word: &str) -> Result<&'a Ancestor, Status> {
    let is_it = |standby: &&Ancestor| standby.name == word || standby.node.to_string() == word;
    let unknown = || {
        let names: Vec<&str> = standbys.iter().map(|standby| standby.name.as_str()).collect();
        let known = match names.as_slice() {
            [] => "this DVM has no standby".to_owned(),
            names => format!("standbys: {}", names.join(", ")),
        };
        let text = match word {
            "" => format!(
                "this daemon does not stand by for the head (rsd start --standby): name a standby, rsctl head promote NODE ({known})"
            ),
            word => format!("{word} does not stand by for the head: {known}"),
        };
        refusal(Code::FailedPrecondition, exit::USAGE, text)
    };
    standbys.iter().find(is_it).ok_or_else(unknown)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_standby_is_found_by_name_or_id_and_others_are_named() {
        let standby = |node, name: &str| Ancestor { node, name: name.into(), ..Ancestor::default() };
        let standbys = [standby(3, "a"), standby(5, "b")];
        assert_eq!(
            [find(&standbys, "a"), find(&standbys, "5")].map(|found| found.map(|it| it.node).ok()),
            [Some(3), Some(5)]
        );
        let said = |standbys: &[Ancestor], word| find(standbys, word).unwrap_err().message().to_owned();
        assert_eq!(said(&standbys, "c"), "c does not stand by for the head: standbys: a, b");
        assert_eq!(said(&[], "c"), "c does not stand by for the head: this DVM has no standby");
        assert!(said(&standbys, "").contains("rsctl head promote NODE (standbys: a, b)"));
    }
}
