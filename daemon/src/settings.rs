//! The daemon's settings, and the part of them that the state machines take.

use std::path::PathBuf;

use rsd_config::settings::Settings;
use rsd_core::Tuning;

/// Reads the settings from their files and the environment.
pub(crate) fn settings() -> anyhow::Result<Settings> {
    Ok(Settings::load(|name| std::env::var_os(name))?)
}

/// Returns the directory below which daemons without `--state-dir` keep their state, and where all are registered.
pub(crate) fn runtime_dir() -> PathBuf {
    rsd_config::runtime_dir(|name| std::env::var_os(name))
}

/// Returns the settings that the state machines take.
pub(crate) fn tuning(settings: &Settings) -> Tuning {
    Tuning {
        arity: settings.tree.arity,
        reattach_grace: settings.link.reattach_grace,
        orphan_deadline: settings.step.orphan_deadline,
        kill_grace: settings.jobs.kill_grace,
        output_window: settings.output.window,
        line_max: usize::try_from(settings.output.line_max).unwrap_or(usize::MAX),
        jobs_kept: settings.jobs.keep,
    }
}
