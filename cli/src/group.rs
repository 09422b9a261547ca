//! `rsctl group`: named groups of processes that already run.
//!
//! `exec` and `env` join by the text protocol of [`rsd_proto::join`], as any program can; the other commands call the head.

pub(crate) mod join;
mod program;
mod view;

use std::os::unix::process::CommandExt;
use std::process::Command;

use nix::unistd::{geteuid, getppid};
use rsd_proto::join::Join;
use rsd_proto::pmi::environment::is_launcher_variable;
use rsd_proto::transport::exit;
use rsd_proto::v1::{GroupInfo, GroupRules, GroupSelector, KickRequest, ListGroupsRequest};
use serde_json::json;

use crate::dvm::{self, Client, Dvm};
use crate::exit::Failure;
use crate::json;
use crate::options::group::{Exec, GroupCommand, JoinOptions};
use crate::print::{out, say};

/// `group exec`: joins, and becomes the program. Returns only if that fails.
pub(crate) fn exec(exec: &Exec, dvm: &Dvm) -> Result<u8, Failure> {
    let Some((program, args)) = exec.program.split_first() else {
        return Err(Failure::usage("program missing: rsctl group exec actors --size 16 -- ./worker"));
    };
    // Checked before the join: a member whose program cannot start would end the epoch of all members.
    program::check(program)?;
    let daemon = dvm.find()?;
    join::tell_missing(dvm, &exec.join.name);
    let go = join::join(&daemon, request(&exec.join, None))?;
    let mut command = Command::new(program);
    command.args(args);
    for (name, _) in std::env::vars_os() {
        use std::os::unix::ffi::OsStrExt;
        if is_launcher_variable(name.as_bytes()) {
            command.env_remove(name);
        }
    }
    command.envs(join::variables(&exec.join.name, &go, &daemon));
    let error = command.exec();
    Err(Failure::new(exit::NOT_STARTED, format!("cannot execute {}: {error}", program.display())))
}

/// `group env`: joins for another process, and prints the environment for it.
pub(crate) fn env(options: &JoinOptions, pid: Option<u32>, as_json: bool, dvm: &Dvm) -> Result<u8, Failure> {
    let joined = join_for(options, pid, as_json, dvm);
    if joined.is_err() && !as_json {
        // `eval "$(rsctl group env …)"` returns the status of the last command that it evaluates.
        out("false\n")?;
    }
    joined
}

fn join_for(options: &JoinOptions, pid: Option<u32>, as_json: bool, dvm: &Dvm) -> Result<u8, Failure> {
    let daemon = dvm.find()?;
    let pid = pid.or_else(|| u32::try_from(getppid().as_raw()).ok());
    join::tell_missing(dvm, &options.name);
    let go = join::join(&daemon, request(options, pid))?;
    let variables = join::variables(&options.name, &go, &daemon);
    match as_json {
        true => {
            let variables = variables.into_iter().map(|(name, value)| (name.to_owned(), value.into())).collect();
            out(&(json::document(json!({ "variables": serde_json::Value::Object(variables) })) + "\n"))?;
        }
        false => {
            let lines = variables.iter().map(|(name, value)| format!("export {name}={}\n", quoted(value)));
            out(&lines.collect::<String>())?;
        }
    }
    Ok(0)
}

fn request(options: &JoinOptions, pid: Option<u32>) -> Join {
    Join {
        group: Some(options.name.clone()),
        size: options.size,
        min: options.min,
        max: options.max,
        rank: options.rank,
        timeout_ms: options.timeout.map(|time| u64::try_from(time.as_millis()).unwrap_or(u64::MAX)),
        token: None,
        pid,
        export: options.export.clone(),
        namespace: None,
    }
}

/// Quotes a value for a shell.
fn quoted(value: &str) -> String {
    let plain = |byte: u8| byte.is_ascii_alphanumeric() || b"-_./:,+@%".contains(&byte);
    if !value.is_empty() && value.bytes().all(plain) {
        value.to_owned()
    } else {
        format!("'{}'", value.replace('\'', r"'\''"))
    }
}

/// Performs the commands that call the head.
pub(crate) async fn ask(mut client: Client, command: GroupCommand, as_json: bool) -> Result<u8, Failure> {
    let name_of = |name: String| GroupSelector { name };
    let info = match command {
        GroupCommand::Ls => {
            let reply = dvm::answer("listing the groups", client.list_groups(ListGroupsRequest {})).await?;
            return list(&reply.groups, as_json);
        }
        GroupCommand::Create(create) => {
            let (min, max) = create.sizes()?;
            let ms = |time: Option<std::time::Duration>| {
                time.map(|time| u64::try_from(time.as_millis()).unwrap_or(u64::MAX))
            };
            let rules = GroupRules {
                name: create.name,
                min,
                max,
                ttl_ms: ms(create.ttl),
                timeout_ms: ms(create.timeout),
                settle_ms: ms(create.settle),
                mode: create.mode,
            };
            dvm::answer("creating the group", client.create_group(rules)).await?
        }
        GroupCommand::Show { name } => {
            let info = dvm::answer("asking for the group", client.get_group(name_of(name))).await?;
            return show(&info, as_json);
        }
        GroupCommand::Close { name } => dvm::answer("closing the group", client.close_group(name_of(name))).await?,
        GroupCommand::Kick { name, member } => {
            let request = KickRequest { name, pid: member.pid, node: member.node };
            dvm::answer("turning the member away", client.kick_member(request)).await?
        }
        // These join by the text protocol instead.
        GroupCommand::Env { .. } | GroupCommand::Exec(_) => return Ok(0),
    };
    if as_json {
        return show(&info, true);
    }
    Ok(0)
}

fn list(groups: &[GroupInfo], as_json: bool) -> Result<u8, Failure> {
    if as_json {
        let groups: Vec<_> = groups.iter().map(view::json).collect();
        out(&(json::document(json!({ "groups": groups })) + "\n"))?;
    } else if groups.is_empty() {
        say("no groups");
    } else {
        out(&view::table(groups, geteuid().as_raw()))?;
    }
    Ok(0)
}

fn show(info: &GroupInfo, as_json: bool) -> Result<u8, Failure> {
    match as_json {
        true => out(&(json::document(view::json(info)) + "\n"))?,
        false => out(&view::description(info))?,
    }
    Ok(0)
}
