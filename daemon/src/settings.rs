//! The daemon's settings, and their conversion for the state machines.

use std::path::{Path, PathBuf};

use anyhow::Context;
use rsd_config::RelativeRuntimeDir;
use rsd_config::settings::{Loaded, Settings, Source};
use rsd_core::Tuning;

use crate::failed::out;
use crate::options::{ConfigOptions, LogOptions, is_argument_of_show};

/// The variable that names a settings file.
pub(crate) const FILE: &str = "RSD_CONFIG";

/// Reads the settings from their files.
pub(crate) fn settings() -> anyhow::Result<Settings> {
    Ok(Settings::load(|name| std::env::var_os(name))?)
}

/// Returns the settings file named by option or variable, as an absolute path, because daemons and steps change their directory.
pub(crate) fn named_file(option: Option<&Path>) -> anyhow::Result<Option<PathBuf>> {
    let variable = std::env::var_os(FILE).filter(|value| !value.is_empty()).map(PathBuf::from);
    let named = option.map(Path::to_owned).or(variable);
    named.map(|path| std::path::absolute(path).context("find the settings file")).transpose()
}

/// `rsd config show`: prints every setting, its value and what has set it.
pub(crate) fn show(options: &ConfigOptions) -> anyhow::Result<()> {
    let named = named_file(options.config.as_deref())?;
    let mut loaded = Loaded::load(named.as_deref(), |name| std::env::var_os(name))?;
    let LogOptions { log, log_format } = &options.log;
    let format = log_format.map(|format| format!("{format:?}").to_lowercase());
    for (key, flag, option, variable, value) in [
        ("log.level", "--log", "log", "RSD_LOG", log),
        ("log.format", "--log-format", "log_format", "RSD_LOG_FORMAT", &format),
    ] {
        if let Some(value) = value {
            let source = if is_argument_of_show(option) { Source::Option(flag) } else { Source::Variable(variable) };
            loaded.set_text(key, value, source);
        }
    }
    match options.json {
        true => out(format_args!("{}\n", to_json(&loaded))),
        false => out(to_text(&loaded)),
    }
}

fn to_text(loaded: &Loaded) -> String {
    let width = |text: fn(&rsd_config::settings::KeyValue) -> usize| loaded.values.iter().map(text).max().unwrap_or(0);
    let (keys, values) = (width(|it| it.key.len()), width(|it| it.value.len()));
    let line = |it: &rsd_config::settings::KeyValue| format!("{:keys$}  {:values$}  {}\n", it.key, it.value, it.source);
    let file = |(path, read): &(PathBuf, bool)| {
        format!("# {}{}\n", path.display(), if *read { "" } else { " (does not exist)" })
    };
    let files: String = loaded.files.iter().map(file).collect();
    loaded.values.iter().map(line).collect::<String>() + "\n# files, a later one wins:\n" + &files
}

fn to_json(loaded: &Loaded) -> serde_json::Value {
    let settings = loaded.values.iter().map(|it| {
        let (path, line) = match &it.source {
            Source::File { path, line } => (Some(path), Some(line)),
            Source::BuiltIn | Source::Variable(_) | Source::Option(_) => (None, None),
        };
        serde_json::json!({
            "key": it.key,
            "value": it.value.trim_matches('"'),
            "source": it.source.to_string(),
            "path": path,
            "line": line,
        })
    });
    let files = loaded.files.iter().map(|(path, read)| serde_json::json!({ "path": path, "read": read }));
    serde_json::json!({
        "schema_version": 1,
        "settings": settings.collect::<Vec<_>>(),
        "files": files.collect::<Vec<_>>(),
    })
}

/// Returns the directory in which daemons have their sockets and clients look for them.
pub(crate) fn runtime_dir() -> Result<PathBuf, RelativeRuntimeDir> {
    rsd_config::runtime_dir(|name| std::env::var_os(name))
}

/// Returns the settings that the state machines take.
pub(crate) fn tuning(settings: &Settings) -> Tuning {
    Tuning {
        arity: settings.tree.arity,
        replicated_max: settings.tree.replicated_max,
        silence: settings.link.silence,
        reattach_grace: settings.link.reattach_grace,
        orphan_deadline: settings.step.orphan_deadline,
        kill_grace: settings.jobs.kill_grace,
        output_window: settings.output.window,
        line_max: usize::try_from(settings.output.line_max).unwrap_or(usize::MAX),
        jobs_kept: settings.jobs.keep,
        jobs_kept_for: settings.jobs.keep_for,
        jobs_kept_bytes: settings.jobs.keep_bytes,
        user_jobs: settings.users.jobs,
        user_submissions: settings.users.submissions,
    }
}
