//! The logs of the daemon and of steps, which write to the daemon's.

mod json;

use std::io::IsTerminal;
use std::sync::OnceLock;

use rsd_config::settings::LogFormat;
use rsd_proto::transport::exit;
use tracing_subscriber::filter::{LevelFilter, Targets};
use tracing_subscriber::prelude::*;

use crate::failed::Failed;

/// What this process has been started with.
static STARTED: OnceLock<(String, &'static str)> = OnceLock::new();

/// Logs to stderr. In the background, stderr is the daemon's log file.
pub(crate) fn start(level: &str, format: LogFormat) -> anyhow::Result<()> {
    let filter = filter(level)?;
    let registry = tracing_subscriber::registry();
    let word = match format {
        LogFormat::Text => {
            let layer = tracing_subscriber::fmt::layer()
                .with_writer(std::io::stderr)
                .with_ansi(std::io::stderr().is_terminal())
                .with_target(false);
            registry.with(layer.with_filter(filter)).init();
            "text"
        }
        LogFormat::Json => {
            let layer = tracing_subscriber::fmt::layer()
                .fmt_fields(json::fields())
                .event_format(json::JsonLines)
                .with_writer(std::io::stderr);
            registry.with(layer.with_filter(filter)).init();
            "json"
        }
    };
    let _ = STARTED.set((level.to_owned(), word)); // a process starts its log once
    Ok(())
}

/// Returns the options with which a step logs as this daemon does.
pub(crate) fn of_steps() -> Vec<String> {
    STARTED
        .get()
        .map(|(level, format)| vec![format!("--log={level}"), format!("--log-format={format}")])
        .unwrap_or_default()
}

/// Reads a level, or levels of single components: `info,rsd=debug`.
pub(crate) fn filter(level: &str) -> anyhow::Result<Targets> {
    let wrong = || {
        let text = format!("log level {level:?}: use error, warn, info, debug, trace or info,rsd=debug");
        Failed::new(exit::USAGE, text)
    };
    // To the parser, a word that is no level is a component that logs everything.
    let for_all = level.split(',').filter(|part| !part.contains('='));
    for word in for_all {
        word.parse::<LevelFilter>().map_err(|_| wrong())?;
    }
    Ok(level.parse().map_err(|_| wrong())?)
}

#[cfg(test)]
mod tests {
    use tracing::Level;

    use super::*;

    #[test]
    fn a_filter_has_a_level_for_all_and_levels_for_components() {
        let is_shown = |text: &str, target: &str, level| filter(text).unwrap().would_enable(target, &level);
        assert!(is_shown("info", "rsd::shell", Level::INFO) && !is_shown("info", "rsd::shell", Level::DEBUG));
        assert!(is_shown("warn,rsd::shell=debug", "rsd::shell", Level::DEBUG));
        assert!(!is_shown("warn,rsd::shell=debug", "rsd::steps", Level::INFO));
        assert!(
            is_shown("off,rsd=trace", "rsd::steps", Level::TRACE) && !is_shown("off,rsd=trace", "h2", Level::ERROR)
        );
        assert!(filter("loud").unwrap_err().to_string().contains("info,rsd=debug"));
    }
}
