//! Join tokens: what admits a new node, or a user on another machine.
//!
//! The shell makes a token's number and secret and hashes secrets; this table sees only hashes. A secret has 128 random bits, so it
//! cannot be guessed, and its hash needs no protection against guessing. Wrong tokens are counted by source, so that a program that
//! keeps trying costs little. A right token is accepted all the same: a limit that also held for right tokens would let any program
//! on a shared address keep others out.

use std::collections::{BTreeMap, VecDeque};
use std::time::Duration;

use bytes::Bytes;
use rsd_proto::v1::token_change::Change;
use rsd_proto::v1::{KeptToken, TokenInfo, kept};

use super::Head;
use crate::between::{Order, Outputs};
use crate::calls::{Answer, Caller, Refused, TokenCall, exit};
use crate::contract::{Effect, in_ms};
use crate::{NodeId, Now};

/// The most tokens of a user who is no admin, with those that have ended.
const OF_USER_MAX: usize = 16;
/// The most tokens that are kept, with those that have ended.
const TOKENS_MAX: usize = 1024;
/// How long a token is kept after it has expired, so that a refusal can say why it is refused. When there are too many, all that admit
/// nothing any more are forgotten: no certificate depends on its token.
const MEMORY: Duration = Duration::from_secs(24 * 3600);
/// The longest life of a token.
const TTL_MAX: Duration = Duration::from_secs(366 * 24 * 3600);
/// The most wrong tokens from one source in [`WINDOW`] that are answered with the reason.
const WRONG_MAX: u32 = 10;
const WINDOW: Duration = Duration::from_secs(60);
/// The most sources that are counted; more are counted as one.
const SOURCES_MAX: usize = 4096;
/// The exchanges that are remembered.
const REDEEMED_MAX: usize = 1024;

/// All tokens, and the sources of wrong ones.
#[derive(Debug, Default)]
pub(super) struct Tokens {
    by_id: BTreeMap<u64, KeptToken>,
    wrong: BTreeMap<String, Wrong>,
    /// The last exchanges. A restart of the head forgets them: then a repeat costs one more use.
    redeemed: VecDeque<Redeemed>,
}

/// An exchange of a token for a certificate.
#[derive(Debug)]
struct Redeemed {
    id: u64,
    key: [u8; 32],
    uid: u32,
    node: Option<NodeId>,
}

/// The wrong tokens from one source since `since`.
#[derive(Debug)]
struct Wrong {
    since: Duration,
    count: u32,
}

impl Tokens {
    /// Adds a token. Fails if too many exist.
    fn add(&mut self, now: Now, token: KeptToken) -> Result<(), Refused> {
        self.forget_old(now, None);
        if self.by_id.len() >= TOKENS_MAX {
            let text = format!("the DVM has {TOKENS_MAX} tokens: revoke some, or wait until some have expired");
            return Err(Refused::new(exit::USAGE, text));
        }
        let Some(id) = token.info.map(|info| info.id) else { return Ok(()) };
        self.by_id.insert(id, token);
        Ok(())
    }

    /// Makes room for one more token: forgets the tokens that expired long ago; and if there are too many, of all or of this user, all of
    /// these that admit nothing any more. Returns their numbers.
    fn forget_old(&mut self, now: Now, uid: Option<u32>) -> Vec<u64> {
        let of = |uid| self.by_id.values().filter(|token| token.info.is_some_and(|info| info.uid == uid)).count();
        let is_full = self.by_id.len() >= TOKENS_MAX;
        let crowd = uid.filter(|uid| of(*uid) >= OF_USER_MAX);
        let old = |token: &KeptToken| {
            token.info.is_none_or(|info| {
                let is_crowded = is_full || crowd == Some(info.uid);
                info.expires_ms.saturating_add(in_ms(MEMORY)) < now.unix_ms || is_crowded && !is_valid(now, &info)
            })
        };
        let gone: Vec<u64> = self.by_id.iter().filter(|(_, token)| old(token)).map(|(id, _)| *id).collect();
        gone.iter().for_each(|id| drop(self.by_id.remove(id)));
        gone
    }

    /// Returns the tokens that the caller may see.
    fn infos(&self, caller: Caller) -> Vec<TokenInfo> {
        let all = self.by_id.values().filter_map(|token| token.info);
        all.filter(|info| caller.may_use(info.uid)).collect()
    }

    /// Refuses one more token of a user who has many. Those that have ended were forgotten before, if there were too many.
    fn check_share(&self, caller: Caller) -> Result<(), Refused> {
        let own = self.by_id.values().filter(|token| token.info.is_some_and(|info| info.uid == caller.uid));
        if caller.is_admin || own.count() < OF_USER_MAX {
            return Ok(());
        }
        let text = format!("you have {OF_USER_MAX} valid tokens: revoke some, or wait until some have expired");
        Err(Refused::new(exit::USAGE, text))
    }

    pub(super) fn kept(&self) -> impl Iterator<Item = &KeptToken> {
        self.by_id.values()
    }

    /// Uses a token once, if it is valid. `from`: the source, for counting wrong tokens.
    fn redeem(&mut self, now: Now, id: u64, hash: &[u8], from: &str, new_node: bool) -> Result<&KeptToken, Refused> {
        let why = match self.by_id.get_mut(&id).filter(|token| token.hash == hash) {
            None => "unknown token",
            Some(KeptToken { info: Some(info), .. }) if info.revoked => "the token has been revoked",
            Some(KeptToken { info: Some(info), .. }) if info.expires_ms <= now.unix_ms => "the token has expired",
            Some(KeptToken { info: Some(info), .. }) if info.uses_left == 0 => "the token is used up",
            Some(KeptToken { info: Some(info), .. }) if info.login_only && new_node => {
                let text =
                    "the token is for rsctl login and admits no daemon: root makes one for daemons (rsd token new)";
                return Err(Refused::new(exit::NOT_PERMITTED, text));
            }
            Some(KeptToken { info: Some(info), .. }) => {
                info.uses_left -= 1;
                return Ok(&self.by_id[&id]);
            }
            Some(KeptToken { info: None, .. }) => "unknown token",
        };
        Err(Refused::new(exit::NOT_PERMITTED, self.count_wrong(now.mono, from, why)))
    }

    /// Returns the user and the node of an earlier exchange of this token for this key, whose answer may have been lost.
    fn redeemed(&self, id: u64, hash: &[u8], key: &[u8; 32], new_node: bool) -> Option<(u32, Option<NodeId>)> {
        let token = self.by_id.get(&id).filter(|token| token.hash == hash)?;
        let before = self.redeemed.iter().rev().find(|before| before.id == id && before.key == *key)?;
        let fits = token.info.is_some_and(|info| !info.revoked) && before.node.is_some() == new_node;
        fits.then_some((before.uid, before.node))
    }

    fn remember(&mut self, redeemed: Redeemed) {
        if self.redeemed.len() >= REDEEMED_MAX {
            self.redeemed.pop_front();
        }
        self.redeemed.push_back(redeemed);
    }

    /// Counts a wrong token; returns the refusal's text.
    fn count_wrong(&mut self, now: Duration, from: &str, why: &str) -> String {
        self.wrong.retain(|_, wrong| now.saturating_sub(wrong.since) < WINDOW);
        let known = self.wrong.contains_key(from) || self.wrong.len() < SOURCES_MAX;
        let source = if known { from } else { "" };
        let wrong = self.wrong.entry(source.to_owned()).or_insert(Wrong { since: now, count: 0 });
        wrong.count = wrong.count.saturating_add(1);
        if wrong.count > WRONG_MAX {
            return format!("too many wrong tokens from {from}: try again in a minute");
        }
        format!("{why}: make a new one on the head's machine: rsd token new")
    }
}

fn is_valid(now: Now, info: &TokenInfo) -> bool {
    !info.revoked && info.uses_left > 0 && info.expires_ms > now.unix_ms
}

impl Head {
    pub(super) fn on_token_call(
        &mut self,
        now: Now,
        caller: Caller,
        call: TokenCall,
        out: &mut Outputs<Order>,
    ) -> Answer {
        match self.token_call(now, caller, call, out) {
            Ok(answer) => answer,
            Err(refused) => Answer::Refused(refused),
        }
    }

    fn token_call(
        &mut self,
        now: Now,
        caller: Caller,
        call: TokenCall,
        out: &mut Outputs<Order>,
    ) -> Result<Answer, Refused> {
        match call {
            TokenCall::New { id, hash, ttl, uses, login } => {
                let (uid, login_only) = self.token_user(caller, login)?;
                for old in self.tokens.forget_old(now, Some(caller.uid)) {
                    self.keep(kept::What::TokenGone(old));
                }
                self.tokens.check_share(caller)?;
                let expires_ms = now.unix_ms + in_ms(ttl.min(TTL_MAX));
                let info = TokenInfo { id, expires_ms, uses_left: uses, uses, revoked: false, uid, login_only };
                self.tokens.add(now, KeptToken { info: Some(info), hash: Bytes::copy_from_slice(&hash) })?;
                self.keep_token(id);
                self.feed.token(&info, Change::Made(uses));
                Ok(Answer::Tokens(vec![info]))
            }
            TokenCall::List => Ok(Answer::Tokens(self.tokens.infos(caller))),
            TokenCall::Revoke { id } => {
                let unknown = || Refused::new(exit::NO_SUCH_JOB, format!("unknown token {id:016x} (rsd token list)"));
                let token = self.tokens.by_id.get_mut(&id).and_then(|token| token.info.as_mut());
                let token = token.filter(|info| caller.may_use(info.uid)).ok_or_else(unknown)?;
                let was_revoked = std::mem::replace(&mut token.revoked, true);
                let info = *token;
                if !was_revoked {
                    self.feed.token(&info, Change::Revoked(true));
                    self.keep_token(id);
                }
                Ok(Answer::Tokens(vec![info]))
            }
            TokenCall::Redeem { id, hash, key, from, new_node } => {
                if let Some((uid, node)) = self.tokens.redeemed(id, &hash, &key, new_node) {
                    return Ok(Answer::Redeemed { uid, node });
                }
                let token = self.tokens.redeem(now, id, &hash, &from, new_node)?;
                let info = token.info.unwrap_or_default();
                let uid = info.uid;
                self.feed.token(&info, Change::Used(info.uses_left));
                self.keep_token(id);
                let node = new_node.then(|| {
                    let node = self.memory.next_node;
                    self.memory.next_node += 1;
                    // The id must never be given to another node.
                    out.push(Effect::Remember(self.memory));
                    node
                });
                self.tokens.remember(Redeemed { id, key, uid, node });
                Ok(Answer::Redeemed { uid, node })
            }
        }
    }

    /// Returns the user whom a new token logs in, and whether it does only that.
    fn token_user(&self, caller: Caller, login: Option<u32>) -> Result<(u32, bool), Refused> {
        match login {
            None => Ok((caller.uid, !caller.is_admin)),
            Some(uid) if uid == caller.uid || caller.is_admin && self.serves_all => Ok((uid, true)),
            Some(_) if caller.is_admin => {
                let text = "this DVM serves one user: its tokens log that user in (rsd token new without --user)";
                Err(Refused::new(exit::USAGE, text))
            }
            Some(_) => Err(Refused::new(exit::NOT_PERMITTED, "only root makes tokens for other users")),
        }
    }

    fn keep_token(&mut self, id: u64) {
        if let Some(token) = self.tokens.by_id.get(&id).cloned() {
            self.keep(kept::What::Token(token));
        }
    }

    /// Restores a token from the records of the previous head.
    pub(super) fn restore_token(&mut self, now: Now, token: KeptToken) {
        // More than the limit were never kept.
        let _ = self.tokens.add(now, token);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const HASH: [u8; 32] = [7; 32];
    const ADMIN: Caller = Caller { uid: 0, is_admin: true };
    const USER: Caller = Caller { uid: 1000, is_admin: false };

    fn at(seconds: u64) -> Now {
        Now { mono: Duration::from_secs(seconds), unix_ms: 1_000_000_000_000 + seconds * 1000 }
    }

    fn token(id: u64, uses: u32, ttl: u64) -> KeptToken {
        let expires_ms = at(ttl).unix_ms;
        let info = TokenInfo { id, expires_ms, uses_left: uses, uses, revoked: false, uid: 1000, login_only: false };
        KeptToken { info: Some(info), hash: Bytes::copy_from_slice(&HASH) }
    }

    fn with(token: KeptToken) -> Tokens {
        let mut tokens = Tokens::default();
        tokens.add(at(0), token).unwrap();
        tokens
    }

    fn refused(tokens: &mut Tokens, now: u64, id: u64, hash: &[u8]) -> String {
        tokens.redeem(at(now), id, hash, "10.0.0.1", true).unwrap_err().text
    }

    #[test]
    fn an_exchange_that_is_repeated_for_the_same_key_has_the_same_answer() {
        let mut tokens = with(token(5, 1, 600));
        tokens.redeem(at(1), 5, &HASH, "a", true).unwrap();
        tokens.remember(Redeemed { id: 5, key: [1; 32], uid: 1000, node: Some(7) });
        assert_eq!(tokens.redeemed(5, &HASH, &[1; 32], true), Some((1000, Some(7))));
        assert_eq!(tokens.redeemed(5, &HASH, &[2; 32], true), None, "another key");
        assert_eq!(tokens.redeemed(5, &[8; 32], &[1; 32], true), None, "another secret");
        assert_eq!(tokens.redeemed(5, &HASH, &[1; 32], false), None, "a login");
        for key in 0..REDEEMED_MAX {
            tokens.remember(Redeemed { id: 6, key: [u8::try_from(key % 256).unwrap(); 32], uid: 0, node: None });
        }
        assert_eq!(tokens.redeemed(5, &HASH, &[1; 32], true), None, "long ago");
    }

    #[test]
    fn a_token_admits_as_often_as_it_says_until_it_expires() {
        let mut tokens = with(token(5, 2, 600));
        assert!(tokens.redeem(at(1), 5, &HASH, "a", true).is_ok());
        assert!(tokens.redeem(at(599), 5, &HASH, "a", true).is_ok());
        assert!(refused(&mut tokens, 599, 5, &HASH).starts_with("the token is used up: make a new one"));
        let mut tokens = with(token(5, 2, 600));
        assert!(refused(&mut tokens, 600, 5, &HASH).starts_with("the token has expired: "));
    }

    #[test]
    fn a_wrong_secret_and_an_unknown_number_get_the_same_answer() {
        let mut tokens = with(token(5, 1, 600));
        let wrong = refused(&mut tokens, 1, 5, &[8; 32]);
        assert!(wrong.starts_with("unknown token: "), "{wrong}");
        assert_eq!(refused(&mut tokens, 1, 6, &HASH), wrong);
        assert!(tokens.redeem(at(1), 5, &HASH, "a", true).is_ok(), "wrong ones do not use it up");
    }

    #[test]
    fn a_revoked_token_admits_nothing() {
        let mut tokens = with(token(5, 1, 600));
        tokens.by_id.get_mut(&5).unwrap().info.as_mut().unwrap().revoked = true;
        assert!(refused(&mut tokens, 1, 5, &HASH).starts_with("the token has been revoked: "));
    }

    #[test]
    fn wrong_tokens_are_counted_by_source_and_a_right_one_still_admits() {
        let mut tokens = with(token(5, 1, 600));
        for _ in 0..WRONG_MAX {
            assert!(refused(&mut tokens, 1, 9, &HASH).starts_with("unknown token"));
        }
        let text = refused(&mut tokens, 2, 9, &HASH);
        assert_eq!(text, "too many wrong tokens from 10.0.0.1: try again in a minute");
        let other = tokens.redeem(at(2), 9, &HASH, "10.0.0.2", true).unwrap_err();
        assert!(other.text.starts_with("unknown token"), "another source is counted by itself");
        assert!(tokens.redeem(at(2), 5, &HASH, "10.0.0.1", true).is_ok());
        assert!(refused(&mut tokens, 62, 9, &HASH).starts_with("unknown token"), "a minute later");
    }

    #[test]
    fn sources_and_tokens_are_bounded() {
        let mut tokens = Tokens::default();
        for source in 0..SOURCES_MAX + 100 {
            tokens.redeem(at(1), 9, &HASH, &source.to_string(), true).unwrap_err();
        }
        assert_eq!(tokens.wrong.len(), SOURCES_MAX + 1);
        for id in 0..TOKENS_MAX as u64 {
            tokens.add(at(0), token(id, 1, 600)).unwrap();
        }
        assert!(tokens.add(at(0), token(9999, 1, 600)).unwrap_err().text.contains("revoke some"));
        assert!(tokens.add(at(601), token(9999, 1, 1200)).is_ok(), "those that have ended are forgotten");
        assert_eq!(tokens.infos(ADMIN).len(), 1);
        let next_day = 1200 + MEMORY.as_secs();
        assert_eq!(tokens.forget_old(at(next_day), None), [0; 0]);
        assert_eq!(tokens.forget_old(at(next_day + 1), None), [9999]);
    }

    #[test]
    fn tokens_that_have_ended_keep_no_others_out() {
        let mut tokens = Tokens::default();
        for id in 0..TOKENS_MAX as u64 {
            let mut token = token(id, 1, 600);
            let info = token.info.as_mut().unwrap();
            (info.uid, info.revoked, info.uses_left) = (id as u32, id % 2 == 0, u32::from(id % 2 == 0));
            tokens.add(at(0), token).unwrap();
        }
        assert!(tokens.add(at(0), token(9999, 1, 600)).is_ok(), "all others are revoked or used up");
        assert_eq!(tokens.by_id.len(), 1);
    }

    #[test]
    fn a_users_tokens_admit_no_daemons_and_are_bounded() {
        let mut tokens = Tokens::default();
        let of_user = |id| {
            let mut token = token(id, 1, 600);
            token.info.as_mut().unwrap().login_only = true;
            token
        };
        for id in 0..OF_USER_MAX as u64 {
            tokens.check_share(USER).unwrap();
            tokens.add(at(0), of_user(id)).unwrap();
        }
        assert_eq!(tokens.forget_old(at(0), Some(USER.uid)), [0; 0]);
        assert!(tokens.check_share(USER).unwrap_err().text.contains("16 valid tokens"));
        assert!(tokens.check_share(ADMIN).is_ok());
        let text = tokens.redeem(at(1), 5, &HASH, "a", true).unwrap_err().text;
        assert!(text.starts_with("the token is for rsctl login and admits no daemon"), "{text}");
        assert!(tokens.redeem(at(1), 5, &HASH, "a", false).is_ok());
        let other = Caller { uid: 1001, is_admin: false };
        assert_eq!((tokens.infos(other).len(), tokens.infos(USER).len()), (0, OF_USER_MAX));
        tokens.by_id.get_mut(&6).unwrap().info.as_mut().unwrap().revoked = true;
        assert_eq!(tokens.forget_old(at(0), Some(USER.uid)), [5, 6], "one is used up and one is revoked");
        assert!(tokens.check_share(USER).is_ok());
        assert_eq!(tokens.forget_old(at(601), Some(other.uid)), [0; 0]);
    }
}
