//! `rsd token`: makes, lists and revokes join tokens.

use std::time::Duration;

use rsd_proto::transport::access_client;
use rsd_proto::v1::{ListTokensRequest, NewTokenRequest, RevokeTokenRequest, TokenInfo};
use serde_json::json;

use crate::clock::unix_ms;
use crate::failed::out;
use crate::options::TokenCommand;
use crate::query::{ask, count, which};

pub(crate) fn token(command: TokenCommand) -> anyhow::Result<()> {
    match command {
        TokenCommand::New { ttl, uses, user, quiet, which: options } => {
            let ttl_ms = u64::try_from(ttl.as_millis()).unwrap_or(u64::MAX);
            let request = NewTokenRequest { ttl_ms, uses, login_uid: user };
            let daemon = which(options.dvm.as_deref())?;
            let reply = ask(&daemon, async |channel| access_client(channel).new_token(request).await)?;
            if options.json {
                let info = reply.info.unwrap_or_default();
                let token = json!({ "token": reply.token, "join": reply.listen, "info": to_json(&info) });
                out(format_args!("{}\n", json!({ "schema_version": 1, "token": token })))
            } else if quiet {
                out(format_args!("{}\n", reply.token))
            } else {
                let (info, listen) = (reply.info.unwrap_or_default(), &reply.listen);
                out(format_args!("{}\n", reply.token))?;
                if info.login_only {
                    return out(format_args!("uid {} logs in with:  rsctl login {listen} --token TOKEN\n", info.uid));
                }
                out(format_args!("another machine joins with:  rsd start --join {listen} --token TOKEN\n"))?;
                out(format_args!("a user there logs in with:   rsctl login {listen} --token TOKEN\n"))
            }
        }
        TokenCommand::List { which: options } => {
            let daemon = which(options.dvm.as_deref())?;
            let reply = ask(&daemon, async |channel| access_client(channel).list_tokens(ListTokensRequest {}).await)?;
            match options.json {
                true => {
                    let tokens: Vec<_> = reply.tokens.iter().map(to_json).collect();
                    out(format_args!("{}\n", json!({ "schema_version": 1, "tokens": tokens })))
                }
                false => out(to_text(&reply.tokens, unix_ms())),
            }
        }
        TokenCommand::Revoke { id, which: options } => {
            let daemon = which(options.dvm.as_deref())?;
            let request = RevokeTokenRequest { id };
            let info = ask(&daemon, async |channel| access_client(channel).revoke_token(request).await)?;
            match options.json {
                true => out(format_args!("{}\n", json!({ "schema_version": 1, "token": to_json(&info) }))),
                false => out(format_args!("revoked token {:016x}\n", info.id)),
            }
        }
    }
}

fn to_json(info: &TokenInfo) -> serde_json::Value {
    json!({
        "number": format!("{:016x}", info.id),
        "expires_ms": info.expires_ms,
        "uses_left": info.uses_left,
        "uses": info.uses,
        "revoked": info.revoked,
        "uid": info.uid,
        "login_only": info.login_only,
    })
}

fn to_text(tokens: &[TokenInfo], now_ms: u64) -> String {
    let mut text = String::from("NUMBER            USES LEFT  STATE\n");
    for info in tokens {
        let left = Duration::from_millis(info.expires_ms.saturating_sub(now_ms));
        let state = match (info.revoked, left.is_zero(), info.uses_left) {
            (true, _, _) => "revoked".to_owned(),
            (false, true, _) => "expired".to_owned(),
            (false, false, 0) => "used up".to_owned(),
            (false, false, _) if left < Duration::from_secs(120) => {
                format!("valid for {}", count(left.as_secs() as u32, "second"))
            }
            (false, false, _) => format!("valid for {}", count((left.as_secs() / 60) as u32, "minute")),
        };
        text.push_str(&format!("{:016x}  {:<9}  {state}\n", info.id, format!("{}/{}", info.uses_left, info.uses)));
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_token_is_listed_with_the_reason_why_it_admits_nothing() {
        let info = TokenInfo {
            id: 0xab,
            expires_ms: 1_000_000,
            uses_left: 3,
            uses: 4,
            revoked: false,
            uid: 0,
            login_only: false,
        };
        let tokens = [info, TokenInfo { uses_left: 0, ..info }, TokenInfo { revoked: true, ..info }];
        let lines = |now_ms| to_text(&tokens, now_ms).lines().map(str::to_owned).collect::<Vec<_>>();
        assert_eq!(
            lines(400_000),
            [
                "NUMBER            USES LEFT  STATE",
                "00000000000000ab  3/4        valid for 10 minutes",
                "00000000000000ab  0/4        used up",
                "00000000000000ab  3/4        revoked",
            ]
        );
        assert_eq!(lines(999_000)[1], "00000000000000ab  3/4        valid for 1 second");
        assert_eq!(lines(1_000_000)[1], "00000000000000ab  3/4        expired");
    }
}
