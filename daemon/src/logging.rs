//! The daemon's log.

use std::io::IsTerminal;

use rsd_config::settings::LogFormat;
use rsd_proto::transport::exit;
use tracing_subscriber::filter::Targets;
use tracing_subscriber::prelude::*;

use crate::failed::Failed;

/// Logs to stderr. In the background, stderr is the daemon's log file.
pub(crate) fn start(level: &str, format: LogFormat) -> anyhow::Result<()> {
    let filter: Targets = level.parse().map_err(|_| {
        let text = format!("log level {level:?}: use error, warn, info, debug, trace or info,rsd=debug");
        Failed::new(exit::USAGE, text)
    })?;
    let registry = tracing_subscriber::registry();
    match format {
        LogFormat::Text => {
            let layer = tracing_subscriber::fmt::layer()
                .with_writer(std::io::stderr)
                .with_ansi(std::io::stderr().is_terminal())
                .with_target(false);
            registry.with(layer.with_filter(filter)).init();
        }
        LogFormat::Json => {
            let layer = tracing_subscriber::fmt::layer().json().with_writer(std::io::stderr);
            registry.with(layer.with_filter(filter)).init();
        }
    }
    Ok(())
}
