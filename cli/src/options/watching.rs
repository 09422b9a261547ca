//! `rsctl top` and `rsctl events`.

use std::time::Duration;

/// The options of `top`.
#[derive(Debug, clap::Args)]
pub(crate) struct Top {
    /// Time between two looks at the DVM
    #[arg(long, value_name = "TIME", default_value = "2s", value_parser = interval)]
    pub(crate) interval: Duration,
    /// Print tables instead of showing a screen; so does top without a terminal
    #[arg(long)]
    pub(crate) plain: bool,
    /// End after so many tables (with --plain, or without a terminal)
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..))]
    pub(crate) count: Option<u64>,
}

fn interval(text: &str) -> Result<Duration, String> {
    const SHORTEST: Duration = Duration::from_millis(200);
    match rsd_config::duration::parse(text).map_err(|error| error.to_string())? {
        short if short < SHORTEST => Err("the shortest interval is 200ms".to_owned()),
        interval => Ok(interval),
    }
}

/// Reads a cursor: the number of an event, as `--json` prints it.
pub(super) fn cursor(text: &str) -> Result<u64, String> {
    u64::from_str_radix(text, 16)
        .map_err(|_| "expected the cursor of an event, as rsctl events --json prints it".to_owned())
}
