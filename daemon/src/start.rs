//! `rsd start`: checks what the user wants, moves to the background, and runs the daemon ([`daemon`]).

mod announce;
mod daemon;
mod head;
mod place;
mod services;
mod standby;

use std::fs::{File, OpenOptions};
use std::io::{IsTerminal, Read, Seek, SeekFrom, Write};
use std::net::{SocketAddr, ToSocketAddrs, UdpSocket};
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::Arc;

use anyhow::{Context, bail};
use rsd_config::NoStateDir;
use rsd_proto::transport::exit;
use rsd_proto::transport::token::{InvalidToken, Token};

use crate::descriptors;
use crate::disk::state_dir::{StateDir, make_private};
use crate::disk::{journal, step_files};
use crate::failed::{Failed, out, say};
use crate::logging;
use crate::options::{DAEMONIZED, StartOptions, TERMINAL};
use crate::reach;
use crate::settings::{self, named_file, runtime_dir};
use crate::upgrade;

pub(crate) fn start(options: StartOptions) -> anyhow::Result<()> {
    crate::spawn::seal_inherited().context("list inherited descriptors")?;
    if let Some(name) = &options.name {
        rsd_config::dvm_name::check(name)?;
    }
    reach::check_listen(options.listen.as_deref())?;
    reach::check_listen(options.standby.as_deref())?;
    check_not_itself(options.listen.as_deref(), options.join.as_deref())?;
    if options.foreground {
        // Before anything is read from standard input: what was read would be lost.
        execute_with_settings_file(options.config.as_deref())?;
    }
    let token = if options.check { None } else { token(&options)? };
    let is_first = std::env::var_os(DAEMONIZED).is_none() && !options.check;
    if let Some(join) = options.join.as_deref().filter(|_| is_first)
        && let Some(why) = check_join(join)?
    {
        say(&format!("--join {join}: {why}: retrying"));
    }
    let state_dir = match &options.state_dir {
        Some(path) => std::path::absolute(path).context("find the state directory")?,
        None => {
            if let Some(why) = rsd_config::passed_over(|name| std::env::var_os(name)) {
                say(&format!("{why}: using {} (see RSD_RUNTIME_DIR)", runtime_dir()?.display()));
            }
            default_state_dir(name_of(&options))?
        }
    };
    if options.check {
        return check(&options, &state_dir);
    }
    if options.foreground { foreground(options, token, &state_dir) } else { background(&options, token, &state_dir) }
}

/// The daemon's name for `--dvm`.
fn name_of(options: &StartOptions) -> &str {
    options.name.as_deref().unwrap_or("default")
}

/// Makes the state directory for a daemon without `--state-dir`. If there is none in the user's home, it is in the runtime directory.
fn default_state_dir(name: &str) -> anyhow::Result<PathBuf> {
    let wanted = rsd_config::state_dir(|name| std::env::var_os(name), name);
    let why = match &wanted {
        Ok(path) => match make_private(path) {
            Ok(()) => return Ok(path.clone()),
            Err(error) if std::env::var_os("RSD_STATE_DIR").is_some() => return Err(error),
            Err(error) => format!("{error:#}"),
        },
        Err(error @ NoStateDir::Relative { .. }) => bail!(usage(error.to_string())),
        Err(error @ NoStateDir::Homeless) => error.to_string(),
    };
    // The runtime directory may be below /tmp, where another user could have made it first.
    let base = runtime_dir()?;
    make_private(&base)?;
    let path = base.join(".state").join(rsd_config::state_dir_name(name));
    say(&format!(
        "{why}: the state is in {}, which a logout or a restart of the machine may remove (see RSD_STATE_DIR)",
        path.display()
    ));
    Ok(path)
}

/// Returns the join token from the options or a file.
fn token(options: &StartOptions) -> anyhow::Result<Option<Token>> {
    let text = match (&options.token, &options.token_file) {
        (Some(token), _) => token.clone(),
        (None, Some(path)) => read_token(path)?,
        (None, None) => return Ok(None),
    };
    Ok(Some(text.parse().map_err(|error: InvalidToken| usage(error.to_string()))?))
}

/// Reads a token file; `-` is standard input. A file that other users may read is accepted with a notice: Kubernetes mounts secrets
/// so, in containers without other users.
fn read_token(path: &Path) -> anyhow::Result<String> {
    let failed = |error: std::io::Error| Failed::new(exit::SYSTEM, format!("read {}: {error}", path.display()));
    if path == Path::new("-") {
        return Ok(std::io::read_to_string(std::io::stdin()).map_err(failed)?);
    }
    let mut file = File::open(path).map_err(failed)?;
    if file.metadata().map_err(failed)?.mode() & 0o077 != 0 {
        eprintln!("rsd: --token-file {}: other users may read the token: chmod 600", path.display());
    }
    let mut text = String::new();
    file.read_to_string(&mut text).map_err(failed)?;
    Ok(text)
}

/// Refuses an address that no retry can make valid. Some: a temporary error of the resolver, which a retry may solve.
fn check_join(join: &str) -> anyhow::Result<Option<String>> {
    let port = join.rsplit_once(':').map(|(_, port)| port.parse::<u16>());
    if !matches!(port, Some(Ok(1..))) {
        bail!(usage(format!(
            "--join {join}: no port: write HOST:PORT as in the head's ready line, for example node0:7817"
        )));
    }
    match join.to_socket_addrs().map(|mut addresses| addresses.next()) {
        Ok(Some(_)) => Ok(None),
        Ok(None) => bail!(usage(format!("--join {join}: the name has no address"))),
        // std does not expose the resolver's error number (EAI_AGAIN). The texts are those of glibc and musl.
        Err(error) if ["Temporary failure", "Try again"].iter().any(|word| error.to_string().contains(word)) => {
            Ok(Some(error.to_string()))
        }
        Err(error) => bail!(usage(format!("--join {join}: {error}"))),
    }
}

/// Refuses to join the address on which this daemon is about to listen, under whatever name. (A way that leads back through
/// another machine shows when the daemon meets itself there.)
fn check_not_itself(listen: Option<&str>, join: Option<&str>) -> anyhow::Result<()> {
    let (Some(listen), Some(join)) = (listen, join) else { return Ok(()) };
    // What cannot be resolved is reported elsewhere.
    let resolve = |address: &str| address.to_socket_addrs().map(Vec::from_iter).unwrap_or_default();
    let listens = resolve(listen);
    // The kernel binds a socket to an address of this machine only.
    let is_here = |at: &SocketAddr| UdpSocket::bind((at.ip(), 0)).is_ok();
    let is_own = |at: &SocketAddr| {
        let same = |own: &SocketAddr| own.ip() == at.ip() || own.ip().is_unspecified() && is_here(at);
        listens.iter().any(|own| own.port() == at.port() && same(own))
    };
    match resolve(join).iter().any(is_own) {
        true => bail!(usage(format!(
            "--join {join}: this daemon itself would listen there (--listen {listen}): name the head, or a daemon that has \
             joined it"
        ))),
        false => Ok(()),
    }
}

fn usage(text: String) -> Failed {
    Failed::new(exit::USAGE, text)
}

// --- into the background ---

/// Starts the daemon as a separate process and waits until it is ready.
fn background(options: &StartOptions, token: Option<Token>, state_dir: &Path) -> anyhow::Result<()> {
    // If another daemon uses the directory, the error appears here and at once. The daemon locks it again.
    drop(StateDir::open(state_dir)?);
    let log_path = state_dir.join("rsd.log");
    let mut log = OpenOptions::new().append(true).read(true).create(true).mode(0o600).open(&log_path);
    let log =
        log.as_mut().map_err(|error| Failed::new(exit::SYSTEM, format!("open {}: {error}", log_path.display())))?;
    let before = log.seek(SeekFrom::End(0))?;
    let mut command = Command::new("/proc/self/exe");
    command.arg0("rsd");
    command.args(["start", "--foreground", "--state-dir"]).arg(state_dir);
    for (flag, value) in [
        ("--name", &options.name),
        ("--listen", &options.listen),
        ("--join", &options.join),
        ("--standby", &options.standby),
        ("--metrics", &options.metrics.map(|at| at.to_string())),
        ("--slots", &options.slots.map(|slots| slots.to_string())),
        ("--log", &options.logging.log),
        ("--log-format", &options.logging.log_format.map(|format| format!("{format:?}").to_lowercase())),
    ] {
        if let Some(value) = value {
            command.arg(flag).arg(value);
        }
    }
    for (flag, values) in
        [("--advertise", &options.advertise), ("--interface", &options.interface), ("--resource", &options.resource)]
    {
        for value in values {
            command.arg(flag).arg(value);
        }
    }
    if let Some(range) = options.port_range {
        command.arg("--port-range").arg(range.to_string());
    }
    for (flag, given) in [("--local-only", options.local_only), ("--single-user", options.single_user)] {
        if given {
            command.arg(flag);
        }
    }
    if let Some(uid) = options.trust_user {
        command.args(["--trust-user", &uid.to_string()]);
    }
    if token.is_some() {
        // Command lines and environments can be read by others, or are inherited.
        command.args(["--token-file", "-"]);
    }
    if let Some(file) = named_file(options.config.as_deref())? {
        command.env(settings::FILE, file);
    }
    // hwloc's plug-ins (graphics cards and others) cost memory and time, and rsd uses nothing that they report.
    command
        .env("HWLOC_PLUGINS_PATH", "/nonexistent")
        .env(DAEMONIZED, if std::io::stdout().is_terminal() { TERMINAL } else { "1" });
    let mut child = command
        .current_dir("/")
        .stdin(if token.is_some() { Stdio::piped() } else { Stdio::null() })
        .stdout(Stdio::piped())
        .stderr(Stdio::from(log.try_clone()?))
        .spawn()
        .context("start the daemon")?;
    if let (Some(mut stdin), Some(token)) = (child.stdin.take(), token) {
        // If the daemon has already failed, its error is reported below.
        let _ = stdin.write_all(token.to_text().as_bytes());
    }
    // The daemon closes its standard output when it is ready.
    let mut lines = String::new();
    if let Some(mut stdout) = child.stdout.take() {
        stdout.read_to_string(&mut lines).context("wait for the daemon")?;
    }
    if lines.ends_with('\n') {
        return out(lines);
    }
    let status = child.wait().context("wait for the daemon")?;
    let mut text = String::new();
    log.seek(SeekFrom::Start(before))?;
    log.read_to_string(&mut text).context("read the daemon's log")?;
    let in_log = text.lines().find_map(|line| line.strip_prefix("rsd: "));
    // A log on a full disk has no error.
    let said = in_log.or(Some(lines.as_str()).filter(|said| !said.is_empty())).unwrap_or("the daemon printed no error");
    let code = status.code().and_then(|code| u8::try_from(code).ok()).unwrap_or(exit::INTERNAL);
    bail!(Failed::new(code, format!("{said}\n  (the daemon ended with {status}; its log is {})", log_path.display())))
}

// --- the daemon ---

/// Executes this program again with the settings file in `RSD_CONFIG`, unless it is there. Steps read the settings too: they inherit
/// the variable, and only exec can change this process's environment safely.
fn execute_with_settings_file(config: Option<&Path>) -> anyhow::Result<()> {
    let config = named_file(config)?;
    let is_set = |file: &&Path| std::env::var_os(settings::FILE).as_deref() == Some(file.as_os_str());
    let Some(file) = config.as_deref().filter(|file| !is_set(file)) else { return Ok(()) };
    let words = std::env::args_os().skip(1);
    let error = Command::new("/proc/self/exe").arg0("rsd").args(words).env(settings::FILE, file).exec();
    Err(error).context("start with the settings file in RSD_CONFIG")
}

fn foreground(options: StartOptions, token: Option<Token>, state_dir: &Path) -> anyhow::Result<()> {
    upgrade::reap_inherited();
    if std::env::var_os(DAEMONIZED).is_some() {
        // Leaves the terminal of the shell that started it. This fails only if the process already leads a session.
        let _ = nix::unistd::setsid();
    }
    let settings = settings::settings()?;
    let level = options.logging.log.as_deref().unwrap_or(&settings.log.level);
    let format = options.logging.log_format.unwrap_or(settings.log.format);
    logging::start(level, format)?;
    let state_dir = Arc::new(StateDir::open(state_dir)?);
    descriptors::raise();
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().context("start the runtime")?;
    let done = runtime.block_on(daemon::serve(options, token, settings, &state_dir));
    if let Err(error) = &done {
        upgrade::go_back(&format!("{error:#}"));
    }
    if let (Err(error), Some(_)) = (&done, std::env::var_os(DAEMONIZED)) {
        // Without a newline, which says that the daemon is ready.
        print!("{error:#}");
        let _ = std::io::stdout().flush(); // its standard output may be closed
    }
    // The threads that watch steps end with the process.
    runtime.shutdown_background();
    match done? {
        Some(successor) => Err(upgrade::execute(&successor)),
        None => Ok(()),
    }
}

/// Examines whether a daemon with these options and this state directory could start, for one of another version that runs there.
fn check(options: &StartOptions, state_dir: &Path) -> anyhow::Result<()> {
    let settings = settings::settings()?;
    logging::filter(options.logging.log.as_deref().unwrap_or(&settings.log.level))?;
    place::declared("node.resources or --resource", &options.resource)?;
    place::declared("jobs.resources", &settings.jobs.resources)?;
    journal::check(state_dir)?;
    step_files::check(state_dir)?;
    let (version, newest, oldest) = (rsd_proto::VERSION, rsd_proto::PROTOCOL, rsd_proto::PROTOCOL_OLDEST);
    println!("{}", serde_json::json!({ "version": version, "protocol": newest, "protocol_oldest": oldest }));
    Ok(())
}
