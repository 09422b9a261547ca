//! `rsctl kv`: values by name for the processes of a job.
//!
//! If the daemon restarts during a call, rsctl waits for it and repeats the call, which is safe because every call is idempotent.

use std::fs;
use std::hash::{BuildHasher, Hasher, RandomState};
use std::io::{self, IsTerminal, Read, Write};
use std::time::{Duration, Instant};

use bytes::Bytes;
use rsd_proto::transport::exit;
use rsd_proto::v1::{
    KvDeleteRequest, KvEntry, KvFenceRequest, KvGetRequest, KvPutRequest, KvScope, kv_scope::Of as Whose,
};
use serde_json::json;
use tonic::{Response, Status};

use crate::dvm::{self, Client, DEADLINE, Dvm};
use crate::exit::Failure;
use crate::json;
use crate::options::kv::{Given, KvCommand, Of};
use crate::print::{self, Align, out, say, written};
use crate::selectors::Which;

/// How long rsctl looks for a daemon that it has lost, unless the user says so, and the pause between two attempts.
const RETURN: Duration = Duration::from_secs(10);
const RETRY: Duration = Duration::from_millis(100);
/// The largest value. The head has the same limit.
const VALUE_BYTES_MAX: usize = 1 << 20;

/// Performs one command.
pub(crate) async fn perform(dvm: &Dvm, command: KvCommand, as_json: bool) -> Result<u8, Failure> {
    let now = Times { timeout: Duration::ZERO, reconnect: RETURN };
    match command {
        KvCommand::Put { key, value, of } => {
            let (scope, key, value) = (Some(scope(dvm, of).await?), Bytes::from(key), value_of(value)?);
            if value.len() > VALUE_BYTES_MAX {
                let text = format!(
                    "the value is too large: the limit is {VALUE_BYTES_MAX} bytes (1 MiB); write it to a file that all nodes \
                     can read, and put the file's path"
                );
                return Err(Failure::usage(text));
            }
            let request = KvPutRequest { scope, key, value };
            ask(dvm, "putting the value", now, async |client, _| client.kv_put(request.clone()).await).await?;
        }
        KvCommand::Get { key, timeout, hex, reconnect, of } => {
            let (scope, name) = (Some(scope(dvm, of).await?), Bytes::from(key.clone()));
            let get = async |client: &mut Client, left: Duration| {
                let request = KvGetRequest { scope: scope.clone(), key: name.clone(), timeout_ms: ms(left) };
                client.kv_get(request).await
            };
            let value = ask(dvm, "waiting for the value", Times { timeout, reconnect }, get).await?.value;
            if as_json {
                out(&(json::document(json!({ "key": key, "hex": digits(&value) })) + "\n"))?;
            } else if hex {
                out(&(digits(&value) + "\n"))?;
            } else {
                let mut stdout = io::stdout().lock();
                written(stdout.write_all(&value).and_then(|()| stdout.flush()))?;
            }
        }
        KvCommand::Fence { name, n, who, timeout, reconnect, of } => {
            let scope = scope(dvm, of).await?;
            if scope.rank.is_none() && who.is_none() {
                let text = "not inside a job or group; name this participant and the number of participants: \
                            rsctl kv fence ready -n 3 --as loader";
                return Err(Failure::usage(text));
            }
            // A new number for each call.
            let attempt = RandomState::new().build_hasher().finish();
            let (participants, who) = (n.unwrap_or(0), who.unwrap_or_default());
            let request = KvFenceRequest { scope: Some(scope), name, participants, who, attempt, timeout_ms: 0 };
            let enter = async |client: &mut Client, left: Duration| {
                client.kv_fence(KvFenceRequest { timeout_ms: ms(left), ..request.clone() }).await
            };
            ask(dvm, "waiting for the others", Times { timeout, reconnect }, enter).await?;
        }
        KvCommand::Ls { of } => {
            let scope = scope(dvm, of).await?;
            let list = async |client: &mut Client, _| client.kv_list(scope.clone()).await;
            show(&ask(dvm, "listing the values", now, list).await?.entries, as_json)?;
        }
        KvCommand::Del { key, of } => {
            let request = KvDeleteRequest { scope: Some(scope(dvm, of).await?), key: key.into() };
            ask(dvm, "removing the value", now, async |client, _| client.kv_delete(request.clone()).await).await?;
        }
    }
    Ok(0)
}

/// How long a call may wait for its answer, and for a daemon that is lost.
#[derive(Debug, Clone, Copy)]
struct Times {
    timeout: Duration,
    reconnect: Duration,
}

/// Calls the daemon, and repeats the call if the connection is lost. `call` gets the rest of the timeout.
async fn ask<T>(
    dvm: &Dvm,
    doing: &str,
    Times { timeout, reconnect }: Times,
    call: impl AsyncFn(&mut Client, Duration) -> Result<Response<T>, Status>,
) -> Result<T, Failure> {
    let began = Instant::now();
    let mut connected = false;
    let (mut lost, mut told): (Option<Instant>, bool) = (None, false);
    loop {
        let left = timeout.saturating_sub(began.elapsed());
        let client = if connected { dvm.client_again().await } else { dvm.client().await };
        let failure = match client {
            Ok(mut client) => {
                connected = true;
                if std::mem::take(&mut told) {
                    tell(dvm, "the daemon is back");
                }
                match tokio::time::timeout(left + DEADLINE, call(&mut client, left)).await {
                    Ok(Ok(answer)) => return Ok(answer.into_inner()),
                    Ok(Err(status)) => Failure::of_status(doing, &status),
                    Err(_) => {
                        return Err(Failure::unreachable(format!("the daemon did not answer in time while {doing}")));
                    }
                }
            }
            Err(failure) => failure,
        };
        let may_return = connected && matches!(failure.code, exit::UNREACHABLE | exit::NO_DAEMON);
        // What the others do meanwhile does not count when the timeout is over.
        let patience = reconnect.min(timeout.saturating_sub(began.elapsed()).max(RETURN));
        if !may_return || lost.get_or_insert_with(Instant::now).elapsed() > patience || reconnect.is_zero() {
            return Err(failure);
        }
        if !std::mem::replace(&mut told, true) && reconnect > RETURN {
            tell(dvm, &format!("{}; trying again", failure.text));
        }
        tokio::time::sleep(RETRY).await;
    }
}

fn tell(dvm: &Dvm, text: &str) {
    if !dvm.is_quiet() {
        say(text);
    }
}

/// Returns the job or group that the user named, else the job of this process; and the rank of this process in it.
async fn scope(dvm: &Dvm, of: Of) -> Result<KvScope, Failure> {
    let number = |name: &str| std::env::var(name).ok().and_then(|value| value.parse::<u64>().ok());
    let own = number("RSD_JOB");
    let whose = match (of.job, of.group) {
        (Some(selector), _) => Whose::Job(match &selector.job {
            Which::Last => 0,
            Which::Number(job) => *job,
            Which::Named(_) => dvm::job(&mut dvm.client().await?, selector).await?.job,
        }),
        (None, Some(group)) => Whose::Group(group),
        (None, None) => {
            Whose::Job(own.ok_or_else(|| Failure::usage("not inside a job or group; use --job 7 or --group actors"))?)
        }
    };
    let is_own = match &whose {
        Whose::Job(job) => own == Some(*job),
        Whose::Group(group) => std::env::var("RSD_GROUP").is_ok_and(|own| own == *group),
    };
    let rank = number("RSD_RANK").and_then(|rank| u32::try_from(rank).ok()).filter(|_| is_own);
    Ok(KvScope { of: Some(whose), rank })
}

fn value_of(given: Given) -> Result<Bytes, Failure> {
    use std::os::unix::ffi::OsStringExt;
    if let Some(text) = given.value {
        return Ok(text.into_vec().into());
    }
    if let Some(bytes) = given.hex {
        return Ok(bytes.0.into());
    }
    // Reads one byte more than allowed, which shows that a value is too long.
    let limit = VALUE_BYTES_MAX as u64 + 1;
    let mut value = Vec::new();
    if let Some(file) = given.file {
        let read = fs::File::open(&file).and_then(|file| file.take(limit).read_to_end(&mut value));
        read.map_err(|error| Failure::usage(format!("cannot read {}: {error}", file.display())))?;
        return Ok(value.into());
    }
    let stdin = io::stdin();
    if stdin.is_terminal() {
        say("reading the value from this terminal until Ctrl-D");
    }
    stdin
        .take(limit)
        .read_to_end(&mut value)
        .map_err(|error| Failure::usage(format!("cannot read the value from standard input: {error}")))?;
    if value.is_empty() {
        let text = "no value on standard input: use rsctl kv put KEY < FILE, --file FILE, --value TEXT or --hex DIGITS \
                    (--value '' for an empty value)";
        return Err(Failure::usage(text));
    }
    Ok(value.into())
}

fn show(entries: &[KvEntry], as_json: bool) -> Result<(), Failure> {
    let name = |entry: &KvEntry| String::from_utf8_lossy(&entry.key).into_owned();
    if as_json {
        let entry = |entry: &KvEntry| json!({ "key": name(entry), "bytes": entry.bytes, "rank": entry.rank });
        let values: Vec<_> = entries.iter().map(entry).collect();
        return out(&(json::document(json!({ "values": values })) + "\n"));
    }
    if entries.is_empty() {
        say("no values");
        return Ok(());
    }
    let columns = [("KEY", Align::Left), ("BYTES", Align::Right), ("RANK", Align::Right)];
    let rank = |entry: &KvEntry| entry.rank.map_or_else(|| "-".to_owned(), |rank| rank.to_string());
    let rows: Vec<_> = entries.iter().map(|entry| [name(entry), entry.bytes.to_string(), rank(entry)]).collect();
    out(&print::table(columns, &rows))
}

fn digits(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

fn ms(time: Duration) -> u64 {
    u64::try_from(time.as_millis()).unwrap_or(u64::MAX)
}
